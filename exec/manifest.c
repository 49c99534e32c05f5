#define _POSIX_C_SOURCE 200809L
#include "exec/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/file.h"
#include "base/node.h"
#include "base/schema.h"

enum { MANIFEST_BYTES = 1 << 26 };

typedef struct root_keys {
  const char *format;
  int64_t version;
  const dp_node *samples;
} root_keys;

typedef struct sample_keys {
  const char *file, *caption, *crc32;
  int64_t width, height;
} sample_keys;

static const dp_field root_fields[] = {
    {"format", DP_FIELD_STRING, offsetof(root_keys, format), true, 0, 0, NULL, "\"diffpipe-dataset\""},
    {"version", DP_FIELD_INTEGER, offsetof(root_keys, version), true, 1, 1, NULL, "1"},
    {"samples", DP_FIELD_NODE, offsetof(root_keys, samples), true, 0, 0, NULL, "list of tables, at least one"},
};

static const dp_field sample_fields[] = {
    {"file", DP_FIELD_STRING, offsetof(sample_keys, file), true, 0, 0, NULL,
     "the image, relative to the manifest's folder; each once"},
    {"caption", DP_FIELD_STRING, offsetof(sample_keys, caption), false, 0, 0, NULL, "its text; default none"},
    {"width", DP_FIELD_INTEGER, offsetof(sample_keys, width), true, 1, EXEC_IMAGE_SIDE, NULL, "pixels"},
    {"height", DP_FIELD_INTEGER, offsetof(sample_keys, height), true, 1, EXEC_IMAGE_SIDE, NULL, "pixels"},
    {"crc32", DP_FIELD_STRING, offsetof(sample_keys, crc32), true, 0, 0, NULL,
     "CRC-32 of the image's file, 8 hexadecimal digits"},
};

size_t exec_manifest_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {{"the top of the file", root_fields, DP_COUNT_OF(root_fields)},
                                       {"samples", sample_fields, DP_COUNT_OF(sample_fields)}};
  *tables = all;
  return DP_COUNT_OF(all);
}

void exec_manifest_rehash(exec_manifest *manifest) {
  uLong sum = 0;
  for (size_t i = 0; i < manifest->count; i++) {
    const exec_sample *s = &manifest->samples[i];
    char numbers[64];
    const int length =
        snprintf(numbers, sizeof numbers, "%" PRId64 "x%" PRId64 ":%08" PRIx32, s->width, s->height, s->crc32);
    /* with the terminators, so that no text can run into the next */
    sum = crc32_z(sum, (const unsigned char *)s->file, strlen(s->file) + 1);
    sum = crc32_z(sum, (const unsigned char *)s->caption, strlen(s->caption) + 1);
    sum = crc32_z(sum, (const unsigned char *)numbers, (size_t)length + 1);
  }
  manifest->hash = (uint32_t)sum;
}

/* A path that stays in the folder: nothing of a foreign manifest should open files elsewhere. */
static bool stays_inside(const char *file) {
  if (file[0] == '/') return false;
  for (const char *part = file; part; part = strchr(part, '/')) {
    if (*part == '/') part++;
    if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2])) return false;
  }
  return true;
}

static dp_status read_sample(const dp_node *node, dp_arena *arena, exec_sample *sample, dp_error *error) {
  sample_keys keys = {.caption = ""};
  DP_TRY(dp_schema_read(node, node, "samples", sample_fields, DP_COUNT_OF(sample_fields), &keys, error));
  if (!stays_inside(keys.file))
    return dp_fail_at(error, node, "file: found \"%.200s\", allowed: a path in the manifest's folder", keys.file);
  if (strlen(keys.crc32) != 8 || strspn(keys.crc32, "0123456789abcdef") != 8)
    return dp_fail_at(error, node, "crc32: found \"%.40s\", allowed: 8 hexadecimal digits, in lower case", keys.crc32);
  *sample = (exec_sample){dp_arena_strdup(arena, keys.file), dp_arena_strdup(arena, keys.caption), keys.width,
                          keys.height, (uint32_t)strtoul(keys.crc32, NULL, 16)};
  return sample->file && sample->caption ? DP_OK : dp_fail_memory(error);
}

static int by_file(const void *a, const void *b) {
  return strcmp((*(const exec_sample *const *)a)->file, (*(const exec_sample *const *)b)->file);
}

static dp_status check_names(const exec_manifest *manifest, dp_error *error) {
  const exec_sample **sorted = malloc(manifest->count * sizeof *sorted);
  if (!sorted) return dp_fail_memory(error);
  for (size_t i = 0; i < manifest->count; i++) sorted[i] = &manifest->samples[i];
  qsort(sorted, manifest->count, sizeof *sorted, by_file);
  dp_status status = DP_OK;
  for (size_t i = 1; i < manifest->count && status == DP_OK; i++)
    if (strcmp(sorted[i - 1]->file, sorted[i]->file) == 0)
      status = dp_fail(error, DP_BAD_INPUT, "%s: samples: found the file \"%.200s\" twice, allowed: once",
                       manifest->path, sorted[i]->file);
  free(sorted);
  return status;
}

static dp_status read_root(const dp_node *root, exec_manifest *made, dp_error *error) {
  root_keys keys = {0};
  DP_TRY(dp_schema_check_format(root, "diffpipe-dataset", 1, error));
  DP_TRY(dp_schema_read(root, root, "the manifest", root_fields, DP_COUNT_OF(root_fields), &keys, error));
  if (keys.samples->kind != DP_NODE_ARRAY || keys.samples->count == 0)
    return dp_fail_at(error, keys.samples, "samples: found %s, allowed: a list of at least one sample",
                      keys.samples->kind == DP_NODE_ARRAY ? "an empty list" : dp_node_kind_name(keys.samples->kind));
  if (!(made->samples = DP_ARENA_NEW(&made->arena, exec_sample, keys.samples->count))) return dp_fail_memory(error);
  made->count = keys.samples->count;
  for (size_t i = 0; i < made->count; i++)
    DP_TRY(read_sample(keys.samples->items[i], &made->arena, &made->samples[i], error));
  exec_manifest_rehash(made);
  return check_names(made, error);
}

dp_status exec_manifest_parse(const char *text, size_t length, const char *name, exec_manifest *manifest,
                              dp_error *error) {
  exec_manifest made = {0};
  dp_document document = {0};
  const char *slash = strrchr(name, '/');
  made.path = dp_arena_strdup(&made.arena, name);
  made.folder = slash ? dp_arena_printf(&made.arena, "%.*s", slash > name ? (int)(slash - name) : 1, name)
                      : dp_arena_strdup(&made.arena, ".");
  dp_status status = made.path && made.folder ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) status = dp_document_parse_json(text, length, name, &document, error);
  if (status == DP_OK) status = read_root(document.root, &made, error);
  dp_document_free(&document);
  if (status == DP_OK)
    *manifest = made;
  else
    exec_manifest_free(&made);
  return status;
}

static dp_status read_file(const char *path, bool is_folder, exec_manifest *manifest, dp_error *error) {
  struct stat about;
  char *text = NULL;
  size_t length = 0;
  if (is_folder && stat(path, &about) != 0)
    return dp_fail(error, DP_BAD_INPUT, "%s: is missing, make it with `diffpipe data manifest FOLDER`", path);
  DP_TRY(dp_file_read(path, MANIFEST_BYTES, &text, &length, error));
  const dp_status status = exec_manifest_parse(text, length, path, manifest, error);
  free(text);
  return status;
}

dp_status exec_manifest_read(const char *path, exec_manifest *manifest, dp_error *error) {
  struct stat about;
  dp_arena arena = {0};
  const bool is_folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  const char *file = is_folder ? dp_arena_printf(&arena, "%.*s/manifest.json", (int)length, path) : path;
  const dp_status status = file ? read_file(file, is_folder, manifest, error) : dp_fail_memory(error);
  dp_arena_free(&arena);
  return status;
}

void exec_manifest_free(exec_manifest *manifest) {
  dp_arena_free(&manifest->arena);
  *manifest = (exec_manifest){0};
}

static dp_status fail_changed(const char *path, dp_error *error) {
  return dp_fail(error, DP_BAD_INPUT,
                 "%s: was changed since the manifest was made, allowed: what the manifest describes; make it and the "
                 "cache again with `diffpipe data manifest` and `diffpipe data cache`",
                 path);
}

static uint32_t sum_of(const char *bytes, size_t length) {
  return (uint32_t)crc32_z(0, (const unsigned char *)bytes, length);
}

static dp_status parse_image(const exec_sample *sample, const char *path, const char *bytes, size_t length,
                             exec_image *image, dp_error *error) {
  exec_image made = {0};
  if (sum_of(bytes, length) != sample->crc32) return fail_changed(path, error);
  DP_TRY(exec_image_parse((const unsigned char *)bytes, length, path, EXEC_IMAGE_PIXELS, &made, error));
  if (made.width == sample->width && made.height == sample->height) {
    *image = made;
    return DP_OK;
  }
  const dp_status status =
      dp_fail(error, DP_BAD_INPUT,
              "%s: found %" PRId64 " × %" PRId64 " pixels, allowed: %" PRId64 " × %" PRId64 ", as the manifest says",
              path, made.width, made.height, sample->width, sample->height);
  exec_image_free(&made);
  return status;
}

dp_status exec_manifest_image(const exec_manifest *manifest, size_t sample, exec_image *image, dp_error *error) {
  dp_arena arena = {0};
  char *bytes = NULL;
  size_t length = 0;
  const exec_sample *s = &manifest->samples[sample];
  const char *path = dp_arena_printf(&arena, "%s/%s", manifest->folder, s->file);
  dp_status status = path ? dp_file_read(path, EXEC_IMAGE_FILE_BYTES, &bytes, &length, error) : dp_fail_memory(error);
  if (status == DP_OK) status = parse_image(s, path, bytes, length, image, error);
  free(bytes);
  dp_arena_free(&arena);
  return status;
}

static bool is_older(const struct stat *about, const struct stat *than) {
  return about->st_mtim.tv_sec != than->st_mtim.tv_sec ? about->st_mtim.tv_sec < than->st_mtim.tv_sec
                                                       : about->st_mtim.tv_nsec < than->st_mtim.tv_nsec;
}

static dp_status check_sample(const exec_manifest *manifest, const exec_sample *sample, const struct stat *than,
                              dp_arena *arena, dp_error *error) {
  struct stat about;
  const char *path = dp_arena_printf(arena, "%s/%s", manifest->folder, sample->file);
  const char *text = exec_manifest_caption_path(manifest->folder, sample->file, arena);
  if (!path || !text) return dp_fail_memory(error);
  if (stat(path, &about) == 0 && !is_older(&about, than)) {
    char *bytes = NULL;
    size_t length = 0;
    DP_TRY(dp_file_read(path, EXEC_IMAGE_FILE_BYTES, &bytes, &length, error));
    const bool same = sum_of(bytes, length) == sample->crc32;
    free(bytes);
    if (!same) return fail_changed(path, error);
  }
  if (stat(text, &about) == 0 && !is_older(&about, than)) {
    const char *caption = NULL;
    DP_TRY(exec_manifest_caption(manifest->folder, sample->file, arena, &caption, error));
    if (strcmp(caption, sample->caption) != 0) return fail_changed(text, error);
  }
  return DP_OK;
}

dp_status exec_manifest_check_files(const exec_manifest *manifest, dp_error *error) {
  struct stat than;
  if (stat(manifest->path, &than) != 0) return DP_OK; /* parsed from memory */
  dp_status status = DP_OK;
  for (size_t i = 0; i < manifest->count && status == DP_OK; i++) {
    dp_arena arena = {0};
    status = check_sample(manifest, &manifest->samples[i], &than, &arena, error);
    dp_arena_free(&arena);
  }
  return status;
}

dp_status exec_manifest_order(const exec_manifest *manifest, const int64_t (*buckets)[2], size_t bucket_count,
                              int64_t global_batch, uint64_t seed, bool shuffle, exec_order *order, dp_error *error) {
  int *bucket_of = calloc(manifest->count, sizeof *bucket_of);
  if (!bucket_of) return dp_fail_memory(error);
  for (size_t i = 0; i < manifest->count; i++)
    bucket_of[i] = exec_bucket_of(buckets, bucket_count, manifest->samples[i].height, manifest->samples[i].width);
  const dp_status status =
      exec_order_make(bucket_of, manifest->count, bucket_count, global_batch, seed, shuffle, order, error);
  free(bucket_of);
  return status;
}
