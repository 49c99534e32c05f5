#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/str.h"
#include "exec/checkpoint_model.h"

static const char stem[] = "diffusion_pytorch_model", ending[] = ".safetensors",
                  index_name[] = "diffusion_pytorch_model.safetensors.index.json";

enum { CONFIG_BYTES = 1 << 26 };

/* What a folder of ours may hold; shards of an earlier writing too. */
static bool is_ours(const char *name) {
  return strcmp(name, "config.json") == 0 || strcmp(name, index_name) == 0 ||
         (strncmp(name, stem, strlen(stem)) == 0 && dp_ends_with(name, ending));
}

/* One run of writing. Tensors are numbered: the buffers, then the weights. */
typedef struct writing {
  const graph *graph;
  const exec_weights_form *form;
  exec_weights_source source;
  void *context;
  dp_safetensors_entry *entries;
  size_t count;
  size_t *firsts; /* by file: its first tensor; of file_count + 1 */
  size_t file_count;
  uint64_t bytes;
} writing;

static uint64_t entry_bytes(const dp_safetensors_entry *entry) {
  uint64_t bytes = sizeof(float);
  for (int d = 0; d < entry->rank; d++) bytes *= (uint64_t)entry->dims[d];
  return bytes;
}

/* Lists the tensors and cuts the list into files, each as full as the limit allows. */
static dp_status lay_out(writing *w, dp_arena *arena, dp_error *error) {
  const uint64_t limit = w->form->shard_bytes ? w->form->shard_bytes : EXEC_SHARD_BYTES;
  const size_t buffers = w->form->buffer_count;
  w->count = buffers + w->graph->weights.count;
  w->entries = DP_ARENA_NEW(arena, dp_safetensors_entry, w->count);
  w->firsts = DP_ARENA_NEW(arena, size_t, w->count + 2);
  if (!w->entries || !w->firsts) return dp_fail_memory(error);
  uint64_t filled = 0;
  for (size_t i = 0; i < w->count; i++) {
    const dp_safetensor *buffer = i < buffers ? w->form->buffers[i] : NULL;
    const graph_weight *weight = buffer ? NULL : &w->graph->weights.items[i - buffers];
    w->entries[i] = buffer ? (dp_safetensors_entry){buffer->name, DP_DTYPE_F32, buffer->rank, buffer->dims}
                           : (dp_safetensors_entry){weight->name, DP_DTYPE_F32, weight->rank, weight->dims};
    const uint64_t bytes = entry_bytes(&w->entries[i]);
    if (i == 0 || (filled > 0 && (bytes > limit || filled > limit - bytes))) {
      w->firsts[w->file_count++] = i;
      filled = 0;
    }
    filled += bytes;
  }
  if (w->file_count == 0) w->file_count = 1; /* of no tensors */
  w->firsts[w->file_count] = w->count;
  return DP_OK;
}

static const char *file_name(const writing *w, size_t file, char out[96]) {
  if (w->file_count == 1)
    (void)snprintf(out, 96, "%s%s", stem, ending);
  else
    (void)snprintf(out, 96, "%s-%05zu-of-%05zu%s", stem, file + 1, w->file_count, ending);
  return out;
}

static dp_status write_buffer(const dp_safetensor *buffer, dp_safetensors_writer *writer, dp_error *error) {
  float *values = malloc((size_t)buffer->elements * sizeof *values + 1);
  const dp_safetensors file = {.path = writer->output.path};
  dp_status status = values ? dp_safetensor_read_fp32(&file, buffer, values, error) : dp_fail_memory(error);
  if (status == DP_OK) status = dp_safetensors_write(writer, values, (size_t)buffer->elements * sizeof *values, error);
  free(values);
  return status;
}

static dp_status write_tensors(writing *w, size_t first, size_t end, dp_safetensors_writer *writer, dp_error *error) {
  const size_t buffers = w->form->buffer_count;
  for (size_t i = first; i < end; i++) {
    const float *values = NULL;
    if (i < buffers) {
      DP_TRY(write_buffer(w->form->buffers[i], writer, error));
      continue;
    }
    DP_TRY(w->source(w->context, (int)(i - buffers), &values, error));
    DP_TRY(dp_safetensors_write(writer, values, (size_t)entry_bytes(&w->entries[i]), error));
  }
  return DP_OK;
}

static dp_status write_file(writing *w, size_t file, const char *folder, dp_arena *arena, dp_error *error) {
  static const dp_safetensors_string metadata = {"format", "pt"}; /* without it transformers' kin refuse the file */
  char name[96];
  const char *path = dp_arena_printf(arena, "%s/%s", folder, file_name(w, file, name));
  if (!path) return dp_fail_memory(error);
  const size_t first = w->firsts[file], end = w->firsts[file + 1];
  dp_safetensors_writer writer = {0};
  uint64_t bytes = 0;
  DP_TRY(dp_safetensors_create(path, w->entries + first, end - first, &metadata, 1, &writer, error));
  dp_status status = write_tensors(w, first, end, &writer, error);
  if (status == DP_OK)
    status = dp_safetensors_commit(&writer, &bytes, error);
  else
    dp_safetensors_abandon(&writer);
  if (status == DP_OK) w->bytes += bytes;
  return status;
}

static dp_status write_text(writing *w, const char *folder, const char *name, const char *text, size_t length,
                            dp_arena *arena, dp_error *error) {
  const char *path = dp_arena_printf(arena, "%s/%s", folder, name);
  dp_output output;
  if (!path) return dp_fail_memory(error);
  DP_TRY(dp_output_open(path, &output, error));
  dp_status status = dp_output_write(&output, text, length, error);
  if (status == DP_OK) status = dp_output_sync(&output, error);
  if (status == DP_OK)
    status = dp_output_commit(&output, error);
  else
    dp_output_abandon(&output);
  if (status == DP_OK) w->bytes += length;
  return status;
}

/* {"metadata": {"total_size": bytes of all tensors}, "weight_map": {TENSOR: FILE}} */
static dp_status write_index(writing *w, const char *folder, dp_arena *arena, dp_error *error) {
  json_t *map = json_object();
  uint64_t total = 0;
  bool done = map != NULL;
  for (size_t f = 0; f < w->file_count; f++)
    for (size_t i = w->firsts[f]; i < w->firsts[f + 1] && done; i++) {
      char name[96];
      total += entry_bytes(&w->entries[i]);
      done = json_object_set_new(map, w->entries[i].name, json_string(file_name(w, f, name))) == 0;
    }
  json_t *root = json_pack("{s{sI}so}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
  char *text = done && root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
  json_decref(root);
  const dp_status status =
      text ? write_text(w, folder, index_name, text, strlen(text), arena, error) : dp_fail_memory(error);
  free(text);
  return status;
}

static dp_status write_all(writing *w, const char *folder, const char *config, size_t config_bytes, dp_arena *arena,
                           dp_error *error) {
  DP_TRY(lay_out(w, arena, error));
  DP_TRY(write_text(w, folder, "config.json", config, config_bytes, arena, error));
  for (size_t f = 0; f < w->file_count; f++) DP_TRY(write_file(w, f, folder, arena, error));
  return w->file_count > 1 ? write_index(w, folder, arena, error) : DP_OK;
}

static dp_status make_parent(const char *folder, dp_arena *arena, dp_error *error) {
  size_t length = strlen(folder);
  while (length > 1 && folder[length - 1] == '/') length--;
  while (length > 0 && folder[length - 1] != '/') length--;
  if (length == 0) return DP_OK;
  const char *parent = dp_arena_printf(arena, "%.*s", (int)length, folder);
  return parent ? dp_folder_make(parent, error) : dp_fail_memory(error);
}

dp_status exec_weights_write(const char *folder, const graph *g, const exec_weights_form *form,
                             exec_weights_source source, void *context, uint64_t *bytes, dp_error *error) {
  writing w = {.graph = g, .form = form, .source = source, .context = context};
  dp_arena arena = {0};
  dp_folder_output output = {0};
  char *config = NULL;
  size_t config_bytes = 0;
  dp_status status = dp_file_read(form->config_path, CONFIG_BYTES, &config, &config_bytes, error);
  if (status == DP_OK) status = make_parent(folder, &arena, error);
  if (status == DP_OK) status = dp_folder_output_open(folder, is_ours, &output, error);
  if (status == DP_OK)
    status =
        dp_folder_output_blame(&output, write_all(&w, output.temporary, config, config_bytes, &arena, error), error);
  if (status == DP_OK)
    status = dp_folder_output_commit(&output, error);
  else
    dp_folder_output_abandon(&output);
  free(config);
  dp_arena_free(&arena);
  if (status == DP_OK && bytes) *bytes = w.bytes;
  return status;
}

dp_status exec_weights_source_array(void *context, int weight, const float **values, dp_error *error) {
  (void)error;
  *values = ((const float *const *)context)[weight];
  return DP_OK;
}
