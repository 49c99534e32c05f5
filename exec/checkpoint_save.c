#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "exec/checkpoint.h"

enum { NAME_LENGTH = 50 };

/* What a checkpoint's folder may hold; what a killed run leaves in a hidden one has endings of mkstemp. */
static bool is_ours(const char *name) {
  return strcmp(name, "state.json") == 0 || strstr(name, ".safetensors") != NULL;
}

/* RUN/checkpoints of an output, into the arena. */
static const char *folder_of(const exec_checkpoint_output *output, dp_arena *arena) {
  const char *slash = strrchr(output->folder.path, '/');
  return dp_arena_printf(arena, "%.*s", (int)(slash - output->folder.path), output->folder.path);
}

static void remove_leftovers(const char *folder, dp_arena *arena) {
  DIR *stream = opendir(folder);
  for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;) {
    if (strncmp(entry->d_name, ".step-", 6) != 0) continue;
    const char *path = dp_arena_printf(arena, "%s/%s", folder, entry->d_name);
    if (path) (void)dp_folder_remove(path, NULL, NULL);
  }
  if (stream) (void)closedir(stream);
}

dp_status exec_checkpoint_begin(const char *run_folder, int64_t step, exec_checkpoint_output *output, dp_error *error) {
  dp_arena arena = {0};
  exec_checkpoint_output made = {.step = step};
  const char *folder = dp_arena_printf(&arena, "%s/checkpoints", run_folder);
  const char *path = dp_arena_printf(&arena, "%s/checkpoints/step-%" PRId64, run_folder, step);
  dp_status status = folder && path ? dp_folder_make(folder, error) : dp_fail_memory(error);
  if (status == DP_OK) {
    remove_leftovers(folder, &arena);
    status = dp_folder_output_open(path, is_ours, &made.folder, error);
  }
  dp_arena_free(&arena);
  if (status == DP_OK) *output = made;
  return status;
}

static uint64_t array_bytes(const exec_checkpoint_array *array) {
  uint64_t bytes = sizeof(float);
  for (int d = 0; d < array->rank; d++) bytes *= (uint64_t)array->dims[d];
  return bytes;
}

static dp_status write_arrays(const char *path, const exec_checkpoint_array *arrays, size_t count,
                              exec_checkpoint_source source, void *context, dp_arena *arena, dp_error *error) {
  dp_safetensors_entry *entries = DP_ARENA_NEW(arena, dp_safetensors_entry, count);
  dp_safetensors_writer writer = {0};
  if (!entries) return dp_fail_memory(error);
  for (size_t i = 0; i < count; i++)
    entries[i] = (dp_safetensors_entry){arrays[i].name, DP_DTYPE_F32, arrays[i].rank, arrays[i].dims};
  dp_status status = dp_safetensors_create(path, entries, count, NULL, 0, &writer, error);
  for (size_t i = 0; i < count && status == DP_OK; i++) {
    const float *values = NULL;
    status = source(context, i, &values, error);
    if (status == DP_OK) status = dp_safetensors_write(&writer, values, (size_t)array_bytes(&arrays[i]), error);
  }
  if (status == DP_OK) status = dp_safetensors_commit(&writer, NULL, error);
  dp_safetensors_abandon(&writer);
  return status;
}

static bool is_part_name(const char *name) {
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
  const size_t length = strlen(name);
  return length > 0 && length <= NAME_LENGTH && strspn(name, allowed) == length;
}

dp_status exec_checkpoint_write_part_from(const exec_checkpoint_output *output, const char *name,
                                          const exec_checkpoint_array *arrays, size_t count,
                                          exec_checkpoint_source source, void *context, exec_checkpoint_part *part,
                                          dp_error *error) {
  exec_checkpoint_part made = {0};
  dp_arena arena = {0};
  if (!is_part_name(name))
    return dp_fail(error, DP_INTERNAL, "the part %.100s of a checkpoint, allowed: letters, digits, - and _", name);
  (void)snprintf(made.name, sizeof made.name, "%s.safetensors", name);
  const char *path = dp_arena_printf(&arena, "%s/%s", output->folder.temporary, made.name);
  dp_status status = path ? write_arrays(path, arrays, count, source, context, &arena, error) : dp_fail_memory(error);
  if (status == DP_OK) status = exec_checkpoint_sum(path, &made.bytes, &made.crc32, error);
  status = dp_folder_output_blame(&output->folder, status, error);
  dp_arena_free(&arena);
  if (status == DP_OK) *part = made;
  return status;
}

static dp_status give_array(void *context, size_t index, const float **values, dp_error *error) {
  (void)error;
  *values = (*(const exec_checkpoint_array *const *)context)[index].values;
  return DP_OK;
}

dp_status exec_checkpoint_write_part(const exec_checkpoint_output *output, const char *name,
                                     const exec_checkpoint_array *arrays, size_t count, exec_checkpoint_part *part,
                                     dp_error *error) {
  return exec_checkpoint_write_part_from(output, name, arrays, count, give_array, &arrays, part, error);
}

/* The JSON without the checksum of itself; NULL: no memory, or text that is not UTF-8. */
static char *make_state(const exec_checkpoint_state *state, const exec_checkpoint_part *parts, size_t part_count) {
  json_t *counters = json_object(), *files = json_array();
  bool done = counters && files;
  for (size_t i = 0; i < state->counter_count; i++)
    done = json_object_set_new(counters, state->counters[i].name, json_integer(state->counters[i].value)) == 0 && done;
  for (size_t p = 0; p < part_count; p++) {
    char hex[9];
    (void)snprintf(hex, sizeof hex, "%08" PRIx32, parts[p].crc32);
    done = json_array_append_new(files, json_pack("{sssIss}", "name", parts[p].name, "bytes",
                                                  (json_int_t)parts[p].bytes, "crc32", hex)) == 0 &&
           done;
  }
  char seed[32];
  (void)snprintf(seed, sizeof seed, "%" PRIu64, state->seed);
  json_t *root = json_pack("{sssisIsssisssoso}", "format", "diffpipe-checkpoint", "version", 1, "step",
                           (json_int_t)state->step, "seed", seed, "world", state->world, "plan", state->plan,
                           "counters", counters, "files", files); /* takes both, also when it fails */
  char *text = done && root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  json_decref(root);
  return text;
}

static dp_status write_state(const char *path, const exec_checkpoint_state *state, const exec_checkpoint_part *parts,
                             size_t part_count, uint64_t *bytes, dp_error *error) {
  char *text = make_state(state, parts, part_count), tail[EXEC_CHECKPOINT_TAIL + 1];
  if (!text) return dp_fail_memory(error);
  const size_t length = strlen(text) - 2; /* without "\n}" */
  exec_checkpoint_tail(exec_checkpoint_crc32(text, length), tail);
  dp_output output = {0};
  dp_status status = dp_output_open(path, &output, error);
  if (status == DP_OK) status = dp_output_write(&output, text, length, error);
  if (status == DP_OK) status = dp_output_write(&output, tail, EXEC_CHECKPOINT_TAIL, error);
  if (status == DP_OK) status = dp_output_sync(&output, error);
  if (status == DP_OK) status = dp_output_commit(&output, error);
  dp_output_abandon(&output);
  free(text);
  *bytes += length + EXEC_CHECKPOINT_TAIL;
  return status;
}

/* Puts a checkpoint of a later step out of the way. */
static dp_status set_aside(const char *folder, int64_t step, dp_arena *arena, dp_error *error) {
  const char *from = dp_arena_printf(arena, "%s/step-%" PRId64, folder, step);
  const char *to = dp_arena_printf(arena, "%s/stale-step-%" PRId64, folder, step);
  if (!from || !to) return dp_fail_memory(error);
  DP_TRY(dp_folder_remove(to, is_ours, error));
  if (rename(from, to) == 0) return DP_OK;
  return dp_fail(error, DP_IO_FAILED, "%s: cannot be renamed: %s", from, strerror(errno));
}

/* Keeps the newest up to `step`. An old folder that somebody has put a file of theirs into stays. */
static dp_status prune(const char *folder, int64_t step, int keep, dp_arena *arena, dp_error *error) {
  int64_t *steps = NULL;
  size_t count = 0;
  int kept = 0;
  DP_TRY(exec_checkpoint_steps(folder, arena, &steps, &count, error));
  for (size_t i = 0; i < count; i++) {
    if (steps[i] > step) {
      DP_TRY(set_aside(folder, steps[i], arena, error));
    } else if (keep > 0 && ++kept > keep) {
      const char *path = dp_arena_printf(arena, "%s/step-%" PRId64, folder, steps[i]);
      if (!path) return dp_fail_memory(error);
      const dp_status status = dp_folder_remove(path, is_ours, error);
      if (status != DP_OK && status != DP_BAD_INPUT) return status;
    }
  }
  return DP_OK;
}

dp_status exec_checkpoint_commit(exec_checkpoint_output *output, const exec_checkpoint_state *state,
                                 const exec_checkpoint_part *parts, size_t part_count, int keep, uint64_t *bytes,
                                 dp_error *error) {
  dp_arena arena = {0};
  uint64_t total = 0;
  for (size_t p = 0; p < part_count; p++) total += parts[p].bytes;
  const char *folder = folder_of(output, &arena);
  const char *path = dp_arena_printf(&arena, "%s/state.json", output->folder.temporary);
  dp_status status = DP_OK;
  if (!folder || !path)
    status = dp_fail_memory(error);
  else if (state->step != output->step)
    status = dp_fail(error, DP_INTERNAL, "%s: a state of step %" PRId64 ", allowed: that of the checkpoint",
                     output->folder.path, state->step);
  if (status == DP_OK)
    status = dp_folder_output_blame(&output->folder, write_state(path, state, parts, part_count, &total, error), error);
  if (status == DP_OK)
    status = dp_folder_output_commit(&output->folder, error);
  else
    dp_folder_output_abandon(&output->folder);
  if (status == DP_OK) status = prune(folder, state->step, keep, &arena, error);
  dp_arena_free(&arena);
  if (status == DP_OK && bytes) *bytes = total;
  return status;
}

void exec_checkpoint_abandon(exec_checkpoint_output *output) {
  dp_folder_output_abandon(&output->folder);
  *output = (exec_checkpoint_output){0};
}
