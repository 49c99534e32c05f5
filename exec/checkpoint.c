#define _POSIX_C_SOURCE 200809L
#include "exec/checkpoint.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/array.h"
#include "base/file.h"
#include "base/node.h"
#include "base/schema.h"

enum { STATE_BYTES = 1 << 24, BUFFER_BYTES = 1 << 18, MAX_WORLD = 1 << 20 };

/* ---- what saving and loading share ---- */

uint32_t exec_checkpoint_crc32(const char *bytes, size_t length) {
  return (uint32_t)crc32_z(0, (const unsigned char *)bytes, length);
}

dp_status exec_checkpoint_sum(const char *path, uint64_t *bytes, uint32_t *crc32, dp_error *error) {
  const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  unsigned char *buffer = malloc(BUFFER_BYTES);
  uint64_t total = 0;
  uint32_t sum = 0;
  ssize_t got = file < 0 ? -1 : 0;
  while (buffer && file >= 0 && ((got = read(file, buffer, BUFFER_BYTES)) > 0 || (got < 0 && errno == EINTR))) {
    if (got < 0) continue;
    sum = (uint32_t)crc32_z(sum, buffer, (size_t)got);
    total += (uint64_t)got;
  }
  const int reason = errno;
  if (file >= 0) (void)close(file);
  free(buffer);
  if (!buffer) return dp_fail_memory(error);
  if (got < 0) return dp_fail(error, DP_BAD_INPUT, "%s: cannot be read: %s", path, strerror(reason));
  *bytes = total;
  *crc32 = sum;
  return DP_OK;
}

void exec_checkpoint_tail(uint32_t crc32, char out[EXEC_CHECKPOINT_TAIL + 1]) {
  (void)snprintf(out, EXEC_CHECKPOINT_TAIL + 1, ",\n  \"state_crc32\": \"%08" PRIx32 "\"\n}\n", crc32);
}

int64_t exec_checkpoint_step_of(const char *name) {
  if (strncmp(name, "step-", 5) != 0 || !isdigit((unsigned char)name[5])) return -1;
  char *end = NULL, again[32];
  errno = 0;
  const long long step = strtoll(name + 5, &end, 10);
  (void)snprintf(again, sizeof again, "step-%lld", step);
  return *end || errno || strcmp(again, name) != 0 ? -1 : (int64_t)step; /* no zeros in front */
}

static int newest_first(const void *a, const void *b) {
  const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return left > right ? -1 : left < right;
}

dp_status exec_checkpoint_steps(const char *folder, dp_arena *arena, int64_t **steps, size_t *count, dp_error *error) {
  DP_ARRAY(int64_t) found = {0};
  DIR *stream = opendir(folder);
  if (!stream && errno != ENOENT)
    return dp_fail(error, DP_BAD_INPUT, "%s: cannot be read: %s", folder, strerror(errno));
  dp_status status = DP_OK;
  for (const struct dirent *entry; stream && status == DP_OK && (entry = readdir(stream)) != NULL;) {
    const int64_t step = exec_checkpoint_step_of(entry->d_name);
    if (step >= 0 && !dp_array_push(&found, step)) status = dp_fail_memory(error);
  }
  if (stream) (void)closedir(stream);
  int64_t *made = status == DP_OK ? DP_ARENA_NEW(arena, int64_t, found.count) : NULL;
  if (status == DP_OK && !made) status = dp_fail_memory(error);
  if (status == DP_OK) {
    if (found.count) {
      memcpy(made, found.items, found.count * sizeof *made);
      qsort(made, found.count, sizeof *made, newest_first);
    }
    *steps = made;
    *count = found.count;
  }
  dp_array_free(&found);
  return status;
}

/* ---- state.json ---- */

typedef struct state_keys {
  const char *format, *seed, *plan, *state_crc32;
  int64_t version, step, world;
  const dp_node *counters, *files;
} state_keys;

#define ROW(field, type, min, max, help) \
  { #field, type, offsetof(state_keys, field), true, min, max, NULL, help }
static const dp_field state_fields[] = {
    ROW(format, DP_FIELD_STRING, 0, 0, "\"diffpipe-checkpoint\""),
    ROW(version, DP_FIELD_INTEGER, 1, 1, "1"),
    ROW(step, DP_FIELD_INTEGER, 0, 9e18, "steps done"),
    ROW(seed, DP_FIELD_STRING, 0, 0, "of the run; a number of 64 bits, written in decimal"),
    ROW(world, DP_FIELD_INTEGER, 1, MAX_WORLD, "workers that wrote it"),
    ROW(plan, DP_FIELD_STRING, 0, 0, "fingerprint of plan and model"),
    ROW(counters, DP_FIELD_NODE, 0, 0, "{NAME: integer}: samples seen and the like"),
    ROW(files, DP_FIELD_NODE, 0, 0, "list of {name, bytes, crc32}; crc32 as 8 hexadecimal digits"),
    ROW(state_crc32, DP_FIELD_STRING, 0, 0,
        "CRC-32 of all bytes before the comma in front of this key, which is the last"),
};
#undef ROW

typedef struct file_keys {
  const char *name, *crc32;
  int64_t bytes;
} file_keys;

static const dp_field file_fields[] = {
    {"name", DP_FIELD_STRING, offsetof(file_keys, name), true, 0, 0, NULL, "in the same folder"},
    {"bytes", DP_FIELD_INTEGER, offsetof(file_keys, bytes), true, 0, 9e18, NULL, "its size"},
    {"crc32", DP_FIELD_STRING, offsetof(file_keys, crc32), true, 0, 0, NULL, "8 hexadecimal digits"},
};

static dp_status read_counters(const dp_node *node, exec_checkpoint *c, dp_error *error) {
  if (node->kind != DP_NODE_TABLE) return dp_fail_at(error, node, "counters: found no table, allowed: {NAME: integer}");
  exec_checkpoint_counter *made = DP_ARENA_NEW(&c->arena, exec_checkpoint_counter, node->count);
  if (!made) return dp_fail_memory(error);
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    if (item->kind != DP_NODE_INTEGER || item->integer < 0)
      return dp_fail_at(error, item, "counters: %s is no integer from 0", item->key);
    made[i] = (exec_checkpoint_counter){dp_arena_strdup(&c->arena, item->key), item->integer};
    if (!made[i].name) return dp_fail_memory(error);
  }
  c->state.counters = made;
  c->state.counter_count = node->count;
  return DP_OK;
}

static dp_status open_file(exec_checkpoint *c, const dp_node *node, dp_error *error) {
  file_keys keys = {0};
  DP_TRY(dp_schema_read(node, node, "files", file_fields, DP_COUNT_OF(file_fields), &keys, error));
  if (strchr(keys.name, '/') || keys.name[0] == '.')
    return dp_fail_at(error, node, "files: found the name %s, allowed: a file in the folder", keys.name);
  const char *path = dp_arena_printf(&c->arena, "%s/%s", c->path, keys.name);
  uint64_t bytes = 0;
  uint32_t sum = 0;
  char hex[9];
  if (!path) return dp_fail_memory(error);
  DP_TRY(exec_checkpoint_sum(path, &bytes, &sum, error));
  if (bytes != (uint64_t)keys.bytes)
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: damaged: found %" PRIu64 " bytes, allowed: %" PRId64 ", as state.json says", path, bytes,
                   keys.bytes);
  (void)snprintf(hex, sizeof hex, "%08" PRIx32, sum);
  if (strcmp(hex, keys.crc32) != 0)
    return dp_fail(error, DP_BAD_INPUT, "%s: damaged: found the CRC-32 %s, allowed: %s, as state.json says", path, hex,
                   keys.crc32);
  DP_TRY(dp_safetensors_open(path, &c->files[c->file_count], error));
  c->file_count++;
  return DP_OK;
}

/* A name is in one file only. */
static dp_status check_names(const exec_checkpoint *c, dp_error *error) {
  for (size_t f = 1; f < c->file_count; f++)
    for (size_t t = 0; t < c->files[f].count; t++)
      for (size_t before = 0; before < f; before++)
        if (dp_safetensors_find(&c->files[before], c->files[f].tensors[t].name))
          return dp_fail(error, DP_BAD_INPUT, "%s: tensor %s: found in %s too, allowed: once", c->files[f].path,
                         c->files[f].tensors[t].name, c->files[before].path);
  return DP_OK;
}

static dp_status read_state(const dp_node *root, exec_checkpoint *c, dp_error *error) {
  state_keys keys = {0};
  DP_TRY(dp_schema_check_format(root, "diffpipe-checkpoint", 1, error));
  DP_TRY(dp_schema_read(root, root, "state", state_fields, DP_COUNT_OF(state_fields), &keys, error));
  char *end = NULL;
  errno = 0;
  c->state = (exec_checkpoint_state){.step = keys.step, .world = (int)keys.world};
  c->state.seed = strtoull(keys.seed, &end, 10);
  if (errno || *end || !isdigit((unsigned char)keys.seed[0]))
    return dp_fail_at(error, dp_node_get(root, "seed"), "seed: found %s, allowed: 0 to 2^64 - 1", keys.seed);
  if (!(c->state.plan = dp_arena_strdup(&c->arena, keys.plan))) return dp_fail_memory(error);
  DP_TRY(read_counters(keys.counters, c, error));
  if (keys.files->kind != DP_NODE_ARRAY) return dp_fail_at(error, keys.files, "files: found no list, allowed: a list");
  c->files = DP_ARENA_NEW(&c->arena, dp_safetensors, keys.files->count);
  if (!c->files) return dp_fail_memory(error);
  for (size_t i = 0; i < keys.files->count; i++) DP_TRY(open_file(c, keys.files->items[i], error));
  return check_names(c, error);
}

/* The text before the last key has the checksum that the last key says, to the byte. */
static dp_status check_sum(const char *text, size_t length, const char *path, dp_error *error) {
  char tail[EXEC_CHECKPOINT_TAIL + 1] = "";
  const size_t before = length < EXEC_CHECKPOINT_TAIL ? 0 : length - EXEC_CHECKPOINT_TAIL;
  exec_checkpoint_tail(exec_checkpoint_crc32(text, before), tail);
  if (length >= EXEC_CHECKPOINT_TAIL && memcmp(text + before, tail, EXEC_CHECKPOINT_TAIL) == 0) return DP_OK;
  return dp_fail(error, DP_BAD_INPUT, "%s: damaged: its end is not the checksum of the rest, allowed: %.8s", path,
                 tail + EXEC_CHECKPOINT_TAIL - 12);
}

static dp_status open_all(const char *path, exec_checkpoint *c, dp_error *error) {
  size_t trimmed = strlen(path);
  while (trimmed > 1 && path[trimmed - 1] == '/') trimmed--;
  c->path = dp_arena_printf(&c->arena, "%.*s", (int)trimmed, path);
  const char *file = dp_arena_printf(&c->arena, "%s/state.json", c->path ? c->path : "");
  char *text = NULL;
  size_t length = 0;
  dp_document document = {0};
  if (!c->path || !file) return dp_fail_memory(error);
  DP_TRY(dp_file_read(file, STATE_BYTES, &text, &length, error));
  dp_status status = check_sum(text, length, file, error);
  if (status == DP_OK) status = dp_document_parse_json(text, length, file, &document, error);
  free(text);
  if (status == DP_OK) status = read_state(document.root, c, error);
  dp_document_free(&document);
  const char *slash = strrchr(c->path, '/');
  const int64_t named = exec_checkpoint_step_of(slash ? slash + 1 : c->path);
  if (status == DP_OK && named >= 0 && named != c->state.step)
    status = dp_fail(error, DP_BAD_INPUT, "%s: step: found %" PRId64 ", allowed: %" PRId64 ", as the folder is named",
                     file, c->state.step, named);
  return status;
}

dp_status exec_checkpoint_open(const char *path, exec_checkpoint *checkpoint, dp_error *error) {
  exec_checkpoint made = {0};
  const dp_status status = open_all(path, &made, error);
  if (status == DP_OK)
    *checkpoint = made;
  else
    exec_checkpoint_close(&made);
  return status;
}

void exec_checkpoint_close(exec_checkpoint *checkpoint) {
  for (size_t f = 0; f < checkpoint->file_count; f++) dp_safetensors_close(&checkpoint->files[f]);
  dp_arena_free(&checkpoint->arena);
  *checkpoint = (exec_checkpoint){0};
}

/* Tries one after the other, the newest first; `last` keeps why the newest was passed over. */
static dp_status find_among(const char *folder, const int64_t *steps, size_t count, dp_arena *arena,
                            exec_checkpoint *checkpoint, dp_str *skipped, dp_error *error) {
  dp_error newest = DP_ERROR_INIT;
  for (size_t i = 0; i < count; i++) {
    dp_error reason = DP_ERROR_INIT;
    const char *path = dp_arena_printf(arena, "%s/step-%" PRId64, folder, steps[i]);
    if (!path) return dp_fail_memory(error);
    const dp_status status = exec_checkpoint_open(path, checkpoint, &reason);
    if (status == DP_OK) return DP_OK;
    if (status == DP_NO_MEMORY) return dp_fail_memory(error);
    if (i == 0) newest = reason;
    if (skipped) dp_str_addf(skipped, "%s\n", reason.text);
  }
  if (!count)
    return dp_fail(error, DP_BAD_INPUT, "%s: found no checkpoint, allowed: the folder of a run that has saved one",
                   folder);
  return dp_fail(error, DP_BAD_INPUT, "%s: none of %zu checkpoint%s is whole; the newest: %.700s", folder, count,
                 count > 1 ? "s" : "", newest.text);
}

dp_status exec_checkpoint_find(const char *run_folder, exec_checkpoint *checkpoint, dp_str *skipped, dp_error *error) {
  dp_arena arena = {0};
  int64_t *steps = NULL;
  size_t count = 0;
  const char *folder = dp_arena_printf(&arena, "%s/checkpoints", run_folder);
  dp_status status = folder ? exec_checkpoint_steps(folder, &arena, &steps, &count, error) : dp_fail_memory(error);
  if (status == DP_OK) status = find_among(folder, steps, count, &arena, checkpoint, skipped, error);
  dp_arena_free(&arena);
  return status;
}

dp_status exec_checkpoint_check(const exec_checkpoint *checkpoint, const exec_checkpoint_state *run, dp_error *error) {
  const exec_checkpoint_state *saved = &checkpoint->state;
  if (saved->world != run->world)
    return dp_fail(error, DP_BAD_INPUT, "%s: found a run of %d worker%s, allowed: %d, as the checkpoint was written by",
                   checkpoint->path, run->world, run->world > 1 ? "s" : "", saved->world);
  if (strcmp(saved->plan, run->plan) != 0)
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: found the plan %.100s, allowed: %.100s, which the checkpoint was written with",
                   checkpoint->path, run->plan, saved->plan);
  if (saved->seed != run->seed)
    return dp_fail(error, DP_BAD_INPUT, "%s: found the seed %" PRIu64 ", allowed: %" PRIu64 ", that of the checkpoint",
                   checkpoint->path, run->seed, saved->seed);
  return DP_OK;
}

dp_status exec_checkpoint_read(const exec_checkpoint *checkpoint, const char *name, int rank, const int64_t *dims,
                               float *out, dp_error *error) {
  char found[96], wanted[96];
  for (size_t f = 0; f < checkpoint->file_count; f++) {
    const dp_safetensors *file = &checkpoint->files[f];
    const dp_safetensor *tensor = dp_safetensors_find(file, name);
    if (!tensor) continue;
    if (tensor->dtype != DP_DTYPE_F32 || !dp_safetensor_has_shape(tensor, rank, dims))
      return dp_fail(error, DP_BAD_INPUT, "%s: tensor %s: found %s %s, allowed: F32 %s", file->path, name,
                     dp_dtype_name(tensor->dtype), dp_safetensor_shape(tensor, found),
                     dp_shape_text(rank, dims, wanted));
    return dp_safetensor_read_fp32(file, tensor, out, error);
  }
  return dp_fail(error, DP_BAD_INPUT, "%s: tensor %s is missing", checkpoint->path, name);
}

int64_t exec_checkpoint_counter_of(const exec_checkpoint *checkpoint, const char *name) {
  for (size_t i = 0; i < checkpoint->state.counter_count; i++)
    if (strcmp(checkpoint->state.counters[i].name, name) == 0) return checkpoint->state.counters[i].value;
  return -1;
}
