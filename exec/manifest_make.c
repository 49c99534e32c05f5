#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/array.h"
#include "base/file.h"
#include "base/str.h"
#include "exec/manifest.h"

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* DP_BAD_INPUT for what cannot stand in JSON. */
static dp_status check_text(const char *path, const char *what, const char *text, size_t length, dp_error *error) {
  json_t *probe = memchr(text, 0, length) ? NULL : json_stringn(text, length);
  const bool fine = probe != NULL;
  json_decref(probe);
  if (fine) return DP_OK;
  return dp_fail(error, DP_BAD_INPUT, "%s: %s is not text, allowed: UTF-8", path, what);
}

const char *exec_manifest_caption_path(const char *folder, const char *file, dp_arena *arena) {
  const char *slash = strrchr(file, '/'), *dot = strrchr(slash ? slash : file, '.');
  return dp_arena_printf(arena, "%s/%.*s.txt", folder, (int)(dot ? dot - file : (long)strlen(file)), file);
}

dp_status exec_manifest_caption(const char *folder, const char *file, dp_arena *arena, const char **caption,
                                dp_error *error) {
  const char *path = exec_manifest_caption_path(folder, file, arena);
  struct stat about;
  if (!path) return dp_fail_memory(error);
  *caption = "";
  if (stat(path, &about) != 0 && errno == ENOENT) return DP_OK;
  char *text = NULL;
  size_t length = 0;
  DP_TRY(dp_file_read(path, EXEC_CAPTION_BYTES, &text, &length, error));
  dp_status status = check_text(path, "the caption", text, length, error);
  const char *begin = text;
  for (; length > 0 && is_space(*begin); length--) begin++;
  while (length > 0 && is_space(begin[length - 1])) length--;
  if (status == DP_OK && !(*caption = dp_arena_printf(arena, "%.*s", (int)length, begin)))
    status = dp_fail_memory(error);
  free(text);
  return status;
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The names of the images of a folder, ascending; arena-owned. */
static dp_status list_images(const char *folder, dp_arena *arena, const char ***names, size_t *count, dp_error *error) {
  DP_ARRAY(const char *) found = {0};
  DIR *stream = opendir(folder);
  if (!stream) return dp_fail(error, DP_BAD_INPUT, "%s: cannot be read: %s", folder, strerror(errno));
  dp_status status = DP_OK;
  for (const struct dirent *entry; status == DP_OK && (entry = readdir(stream)) != NULL;) {
    if (entry->d_name[0] == '.' || !exec_image_is_named(entry->d_name)) continue;
    const char *name = dp_arena_strdup(arena, entry->d_name);
    if (!name || !dp_array_push(&found, name)) status = dp_fail_memory(error);
  }
  (void)closedir(stream);
  const char **made = status == DP_OK ? DP_ARENA_NEW(arena, const char *, found.count) : NULL;
  if (status == DP_OK && !made) status = dp_fail_memory(error);
  if (status == DP_OK && found.count == 0)
    status = dp_fail(error, DP_BAD_INPUT, "%s: found no image, allowed: files that end in .ppm, .png, .jpg or .jpeg",
                     folder);
  if (status == DP_OK) {
    memcpy(made, found.items, found.count * sizeof *made);
    qsort(made, found.count, sizeof *made, by_name);
    *names = made;
    *count = found.count;
  }
  dp_array_free(&found);
  return status;
}

static dp_status describe(const char *folder, const char *file, dp_arena *arena, exec_sample *sample, dp_error *error) {
  const char *path = dp_arena_printf(arena, "%s/%s", folder, file);
  char *bytes = NULL;
  size_t length = 0;
  exec_image image = {0};
  if (!path) return dp_fail_memory(error);
  DP_TRY(check_text(path, "the name", file, strlen(file), error));
  DP_TRY(dp_file_read(path, EXEC_IMAGE_FILE_BYTES, &bytes, &length, error));
  *sample = (exec_sample){.file = file, .crc32 = (uint32_t)crc32_z(0, (const unsigned char *)bytes, length)};
  dp_status status = exec_image_parse((const unsigned char *)bytes, length, path, EXEC_IMAGE_PIXELS, &image, error);
  free(bytes);
  sample->width = image.width;
  sample->height = image.height;
  exec_image_free(&image);
  if (status == DP_OK) status = exec_manifest_caption(folder, file, arena, &sample->caption, error);
  return status;
}

static dp_status make(const char *folder, exec_manifest_progress progress, void *data, exec_manifest *made,
                      dp_error *error) {
  const char **names = NULL;
  size_t length = strlen(folder);
  while (length > 1 && folder[length - 1] == '/') length--;
  made->folder = dp_arena_printf(&made->arena, "%.*s", (int)length, folder);
  made->path = dp_arena_printf(&made->arena, "%s/manifest.json", made->folder ? made->folder : "");
  if (!made->folder || !made->path) return dp_fail_memory(error);
  DP_TRY(list_images(made->folder, &made->arena, &names, &made->count, error));
  if (!(made->samples = DP_ARENA_NEW(&made->arena, exec_sample, made->count))) return dp_fail_memory(error);
  for (size_t i = 0; i < made->count; i++) {
    DP_TRY(describe(made->folder, names[i], &made->arena, &made->samples[i], error));
    if (progress) progress(data, i + 1, made->count);
  }
  exec_manifest_rehash(made);
  return DP_OK;
}

dp_status exec_manifest_make(const char *folder, exec_manifest_progress progress, void *data, exec_manifest *manifest,
                             dp_error *error) {
  exec_manifest made = {0};
  const dp_status status = make(folder, progress, data, &made, error);
  if (status == DP_OK)
    *manifest = made;
  else
    exec_manifest_free(&made);
  return status;
}

/* A line of the file; NULL: no memory. */
static char *sample_text(const exec_sample *s) {
  char hex[9];
  (void)snprintf(hex, sizeof hex, "%08" PRIx32, s->crc32);
  json_t *json = json_pack("{ss sI sI ss}", "file", s->file, "width", (json_int_t)s->width, "height",
                           (json_int_t)s->height, "crc32", hex);
  if (json && s->caption[0] && json_object_set_new(json, "caption", json_string(s->caption)) != 0) {
    json_decref(json);
    return NULL;
  }
  char *text = json ? json_dumps(json, 0) : NULL;
  json_decref(json);
  return text;
}

dp_status exec_manifest_write(const exec_manifest *manifest, dp_error *error) {
  dp_str all = {0};
  dp_str_add(&all, "{\n  \"format\": \"diffpipe-dataset\",\n  \"version\": 1,\n  \"samples\": [\n");
  for (size_t i = 0; i < manifest->count && !all.failed; i++) {
    char *text = sample_text(&manifest->samples[i]);
    if (!text) all.failed = true;
    dp_str_addf(&all, "    %s%s\n", text ? text : "", i + 1 < manifest->count ? "," : "");
    free(text);
  }
  dp_str_add(&all, "  ]\n}\n");
  const dp_status status =
      all.failed ? dp_fail_memory(error) : dp_file_write(manifest->path, all.text, all.length, error);
  dp_str_free(&all);
  return status;
}
