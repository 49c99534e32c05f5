#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

dp_status dp_file_read(const char *path, size_t limit_bytes, char **text, size_t *length, dp_error *error) {
  /* not blocking: the opening of a pipe that nobody writes to would never return */
  const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  FILE *stream = file < 0 ? NULL : fdopen(file, "rb");
  if (!stream) {
    const dp_status failed = dp_fail(error, DP_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    if (file >= 0) (void)close(file);
    return failed;
  }
  struct stat about;
  dp_status status = DP_OK;
  char *bytes = NULL;
  if (fstat(fileno(stream), &about) != 0 || !S_ISREG(about.st_mode)) {
    status = dp_fail(error, DP_BAD_INPUT, "%s: found a folder or a device, allowed: a regular file", path);
  } else if ((uint64_t)about.st_size > limit_bytes) {
    status = dp_fail(error, DP_BAD_INPUT, "%s: found %lld bytes, allowed: at most %zu", path, (long long)about.st_size,
                     limit_bytes);
  } else if (!(bytes = malloc((size_t)about.st_size + 1))) {
    status = dp_fail_memory(error);
  } else {
    const size_t got = fread(bytes, 1, (size_t)about.st_size, stream);
    if (ferror(stream)) {
      status = dp_fail(error, DP_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    } else {
      bytes[got] = 0;
      *length = got;
      *text = bytes;
      bytes = NULL;
    }
  }
  free(bytes);
  (void)fclose(stream);
  return status;
}

dp_status dp_output_open(const char *path, dp_output *output, dp_error *error) {
  struct stat about;
  if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) /* the renaming would put a file in a device's place */
    return dp_fail(error, DP_IO_FAILED, "%s: cannot be written: found a folder or a device, allowed: a regular file",
                   path);
  const size_t length = strlen(path);
  dp_output made = {NULL, malloc(length + 1), malloc(length + 8)};
  if (!made.path || !made.temporary) {
    free(made.path);
    free(made.temporary);
    return dp_fail_memory(error);
  }
  memcpy(made.path, path, length + 1);
  (void)snprintf(made.temporary, length + 8, "%s.XXXXXX", path);
  const int file = mkstemp(made.temporary);
  if (file >= 0) {
    const mode_t mask = umask(0);
    (void)umask(mask);
    (void)fchmod(file, 0666 & ~mask);
    made.stream = fdopen(file, "wb");
  }
  if (!made.stream) {
    const dp_status status = dp_fail(error, DP_IO_FAILED, "%s: cannot be written: %s", path, strerror(errno));
    if (file >= 0) {
      (void)close(file);
      (void)unlink(made.temporary);
    }
    free(made.path);
    free(made.temporary);
    return status;
  }
  *output = made;
  return DP_OK;
}

dp_status dp_output_write(dp_output *output, const void *bytes, size_t count, dp_error *error) {
  errno = 0;
  if (!count || fwrite(bytes, 1, count, output->stream) == count) return DP_OK;
  return dp_fail(error, DP_IO_FAILED, "%s: cannot be written: %s", output->path, strerror(errno ? errno : EIO));
}

/* Some file systems and devices cannot be synced and say EINVAL: there is nothing to wait for. */
static bool sync_failed(int file) { return fsync(file) != 0 && errno != EINVAL; }

dp_status dp_output_sync(dp_output *output, dp_error *error) {
  errno = 0;
  if (fflush(output->stream) == 0 && !ferror(output->stream) && !sync_failed(fileno(output->stream))) return DP_OK;
  return dp_fail(error, DP_IO_FAILED, "%s: cannot be written: %s", output->path, strerror(errno ? errno : EIO));
}

dp_status dp_output_commit(dp_output *output, dp_error *error) {
  errno = 0;
  bool failed = fflush(output->stream) != 0 || ferror(output->stream);
  int reason = errno ? errno : EIO; /* an earlier write failed: its reason is gone */
  if (fclose(output->stream) != 0 && !failed) {
    failed = true;
    reason = errno;
  }
  output->stream = NULL;
  if (!failed && rename(output->temporary, output->path) != 0) {
    failed = true;
    reason = errno;
  }
  dp_status status = DP_OK;
  if (failed) {
    status = dp_fail(error, DP_IO_FAILED, "%s: cannot be written: %s", output->path, strerror(reason));
    (void)unlink(output->temporary);
  }
  free(output->path);
  free(output->temporary);
  *output = (dp_output){0};
  return status;
}

void dp_output_abandon(dp_output *output) {
  if (output->stream) (void)fclose(output->stream);
  if (output->temporary) (void)unlink(output->temporary);
  free(output->path);
  free(output->temporary);
  *output = (dp_output){0};
}

dp_status dp_file_write(const char *path, const void *bytes, size_t count, dp_error *error) {
  dp_output output;
  DP_TRY(dp_output_open(path, &output, error));
  dp_status status = dp_output_write(&output, bytes, count, error);
  if (status == DP_OK) status = dp_output_commit(&output, error);
  dp_output_abandon(&output);
  return status;
}

dp_status dp_folder_make(const char *path, dp_error *error) {
  const size_t length = strlen(path);
  char *copy = malloc(length + 1);
  if (!copy) return dp_fail_memory(error);
  memcpy(copy, path, length + 1);
  dp_status status = DP_OK;
  for (size_t i = 1; i <= length && status == DP_OK; i++) {
    if (copy[i] != '/' && copy[i] != 0) continue;
    const char kept = copy[i];
    copy[i] = 0;
    struct stat about;
    if (mkdir(copy, 0777) != 0 && (errno != EEXIST || stat(copy, &about) != 0 || !S_ISDIR(about.st_mode)))
      status = dp_fail(error, DP_IO_FAILED, "%s: cannot be made a folder: %s", copy, strerror(errno));
    copy[i] = kept;
  }
  free(copy);
  return status;
}

dp_status dp_folder_sync(const char *path, dp_error *error) {
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool failed = folder < 0 || sync_failed(folder);
  const int reason = errno;
  if (folder >= 0) (void)close(folder);
  return failed ? dp_fail(error, DP_IO_FAILED, "%s: cannot be written: %s", path, strerror(reason)) : DP_OK;
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

const char *dp_data_folder(void) {
  static _Thread_local char found[PATH_MAX]; /* one a thread, so that none waits for another */
  const char *given = getenv("DIFFPIPE_DATA_DIR");
  if (given && *given) return given;
  if (found[0]) return found;
  char program[PATH_MAX], candidate[PATH_MAX + 64];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length > 0) {
    program[length] = 0;
#if defined(DP_BUILD_DIR) && defined(DP_SOURCE_DATA_DIR)
    if (strncmp(program, DP_BUILD_DIR "/", sizeof DP_BUILD_DIR) == 0 && exists(DP_SOURCE_DATA_DIR)) {
      (void)snprintf(found, sizeof found, "%s", DP_SOURCE_DATA_DIR);
      return found;
    }
#endif
    char *slash = strrchr(program, '/');
    if (slash) *slash = 0;
    (void)snprintf(candidate, sizeof candidate, "%s/../share/diffpipe", program);
    if (exists(candidate) && strlen(candidate) < sizeof found) {
      memcpy(found, candidate, strlen(candidate) + 1);
      return found;
    }
  }
#ifdef DP_PKGDATADIR
  (void)snprintf(found, sizeof found, "%s", DP_PKGDATADIR);
#else
  (void)snprintf(found, sizeof found, "scenarios");
#endif
  return found;
}

const char *dp_path_resolve(dp_arena *arena, const char *from_file, const char *name) {
  if (name[0] == '/') return dp_arena_strdup(arena, name);
  const char *slash = from_file ? strrchr(from_file, '/') : NULL;
  const char *beside = slash ? dp_arena_printf(arena, "%.*s/%s", (int)(slash - from_file), from_file, name)
                             : dp_arena_strdup(arena, name);
  if (!beside || exists(beside)) return beside;
  const char *installed = dp_arena_printf(arena, "%s/%s", dp_data_folder(), name);
  return installed && exists(installed) ? installed : installed ? beside : NULL;
}
