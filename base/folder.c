#define _GNU_SOURCE /* renameat2 */
#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static dp_status fail_write(const char *path, int reason, dp_error *error) {
  return dp_fail(error, DP_IO_FAILED, "%s: cannot be written: %s", path, strerror(reason));
}

/* Walks over the entries of a folder, first only looking; `found` gets whether there is one. */
static dp_status walk(const char *path, bool (*is_ours)(const char *name), bool removes, bool *found, dp_error *error) {
  DIR *stream = opendir(path);
  *found = stream != NULL;
  if (!stream && errno == ENOENT) return DP_OK;
  if (!stream && errno == ENOTDIR)
    return dp_fail(error, DP_BAD_INPUT, "%s: found a file, allowed: a folder or a new name", path);
  if (!stream) return fail_write(path, errno, error);
  dp_status status = DP_OK;
  const struct dirent *entry = NULL;
  while (status == DP_OK && (errno = 0, entry = readdir(stream)) != NULL) {
    const char *name = entry->d_name;
    struct stat about;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (fstatat(dirfd(stream), name, &about, AT_SYMLINK_NOFOLLOW) != 0)
      status = errno == ENOENT ? DP_OK : fail_write(path, errno, error);
    else if (!S_ISREG(about.st_mode) || (is_ours && !is_ours(name)))
      status =
          dp_fail(error, DP_BAD_INPUT,
                  "%s: found %s in it, allowed: a new folder, or one with nothing else in it to replace", path, name);
    else if (removes && unlinkat(dirfd(stream), name, 0) != 0 && errno != ENOENT)
      status = dp_fail(error, DP_IO_FAILED, "%s/%s: cannot be removed: %s", path, name, strerror(errno));
  }
  if (status == DP_OK && !entry && errno) status = fail_write(path, errno, error);
  (void)closedir(stream);
  return status;
}

dp_status dp_folder_remove(const char *path, bool (*is_ours)(const char *name), dp_error *error) {
  bool found = false;
  DP_TRY(walk(path, is_ours, false, &found, error));
  if (!found) return DP_OK;
  DP_TRY(walk(path, is_ours, true, &found, error));
  if (rmdir(path) != 0 && errno != ENOENT)
    return dp_fail(error, DP_IO_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
  return DP_OK;
}

static void release(dp_folder_output *output) {
  free(output->path);
  free(output->temporary);
  *output = (dp_folder_output){0};
}

/* The length of the parent's part of a path with the slash; 0: the current folder. */
static size_t parent_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

dp_status dp_folder_output_open(const char *path, bool (*is_ours)(const char *name), dp_folder_output *output,
                                dp_error *error) {
  bool found = false;
  struct stat about;
  DP_TRY(walk(path, is_ours, false, &found, error));
  dp_folder_output made = {.is_ours = is_ours, .path = strdup(path)};
  size_t length = made.path ? strlen(made.path) : 0;
  while (length > 1 && made.path[length - 1] == '/') made.path[--length] = 0;
  if (found && made.path && lstat(made.path, &about) == 0 &&
      S_ISLNK(about.st_mode)) { /* it goes on showing the folder */
    free(made.path);
    made.path = realpath(path, NULL);
    length = made.path ? strlen(made.path) : 0;
  }
  made.temporary = made.path ? malloc(length + 16) : NULL;
  if (!made.temporary) {
    release(&made);
    return dp_fail_memory(error);
  }
  const size_t parent = parent_length(made.path);
  (void)snprintf(made.temporary, length + 16, "%.*s.%s.XXXXXX", (int)parent, made.path, made.path + parent);
  if (!mkdtemp(made.temporary)) {
    const dp_status status = fail_write(path, errno, error);
    release(&made);
    return status;
  }
  const mode_t mask = umask(0);
  (void)umask(mask);
  (void)chmod(made.temporary, 0777 & ~mask);
  *output = made;
  return DP_OK;
}

/* Gives `temporary` the name `path`; what had it is then at `temporary`, or nowhere. Returns 0 or a reason. */
static int exchange(const char *temporary, const char *path) {
  struct stat about;
  if (stat(path, &about) != 0) return rename(temporary, path) == 0 ? 0 : errno;
#ifdef RENAME_EXCHANGE
  if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE) == 0) return 0;
  if (errno != ENOSYS && errno != EINVAL) return errno;
#endif
  char *aside = malloc(strlen(temporary) + 5);
  if (!aside) return ENOMEM;
  (void)snprintf(aside, strlen(temporary) + 5, "%s.old", temporary);
  int reason = 0;
  if (rename(path, aside) != 0) {
    reason = errno;
  } else if (rename(temporary, path) != 0) {
    reason = errno;
    (void)rename(aside, path);
  } else {
    (void)rename(aside, temporary);
  }
  free(aside);
  return reason;
}

dp_status dp_folder_output_commit(dp_folder_output *output, dp_error *error) {
  bool found = false;
  dp_status status = dp_folder_output_blame(output, dp_folder_sync(output->temporary, error), error);
  if (status == DP_OK) status = walk(output->path, output->is_ours, false, &found, error); /* as it is now */
  if (status == DP_OK) {
    const int reason = exchange(output->temporary, output->path);
    if (reason) status = fail_write(output->path, reason, error);
  }
  if (status == DP_OK) {
    const size_t parent = parent_length(output->path);
    char *place = parent ? strndup(output->path, parent) : strdup(".");
    status = place ? dp_folder_sync(place, error) : dp_fail_memory(error);
    free(place);
  }
  dp_folder_output_abandon(output); /* the old folder, after an exchange */
  return status;
}

void dp_folder_output_abandon(dp_folder_output *output) {
  if (output->temporary) (void)dp_folder_remove(output->temporary, NULL, NULL);
  release(output);
}

dp_status dp_folder_output_blame(const dp_folder_output *output, dp_status status, dp_error *error) {
  char *at = status != DP_OK && error ? strstr(error->text, output->temporary) : NULL;
  if (!at) return status;
  const size_t before = strlen(output->temporary), after = strlen(output->path); /* the shorter one */
  memmove(at + after, at + before, strlen(at + before) + 1);
  memcpy(at, output->path, after);
  return status;
}
