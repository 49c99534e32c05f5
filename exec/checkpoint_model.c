#define _POSIX_C_SOURCE 200809L
#include "exec/checkpoint_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/node.h"
#include "base/str.h"

/* In the order of preference; diffusers, too, looks for an index first. */
static const struct {
  const char *name;
  bool is_index;
} candidates[] = {{"diffusion_pytorch_model.safetensors.index.json", true},
                  {"diffusion_pytorch_model.safetensors", false},
                  {"diffusion_pytorch_model.safetensors.index.fp16.json", true},
                  {"diffusion_pytorch_model.fp16.safetensors", false}};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };

static bool exists(const char *folder, const char *name, dp_arena *arena, const char **path) {
  *path = dp_arena_printf(arena, "%s/%s", folder, name);
  return *path && access(*path, F_OK) == 0;
}

dp_status exec_weights_find(const char *path, dp_arena *arena, const char **folder, const char **config_path,
                            dp_error *error) {
  static const char *const parts[] = {"unet", "transformer"};
  const char *found = NULL, *config = NULL, *candidate = NULL;
  if (exists(path, "config.json", arena, &config)) {
    found = dp_arena_strdup(arena, path);
  } else {
    for (size_t p = 0; p < 2; p++) {
      const char *part = dp_arena_printf(arena, "%s/%s", path, parts[p]);
      if (!part) return dp_fail_memory(error);
      if (!exists(part, "config.json", arena, &candidate)) continue;
      if (found)
        return dp_fail(error, DP_BAD_INPUT, "%s: found unet/ and transformer/, allowed: the folder of one model", path);
      found = part;
      config = candidate;
    }
  }
  if (!config) return dp_fail_memory(error);
  if (!found)
    return dp_fail(
        error, DP_BAD_INPUT,
        "%s: no model was found, allowed: a folder with config.json, or with unet/ or transformer/ that has one", path);
  *folder = found;
  *config_path = config;
  return DP_OK;
}

/* What does not fit: the first ones are told, all are counted. */
typedef struct problem_list {
  size_t count;
  dp_str text;
} problem_list;
enum { TOLD = 4 };

static void add_problem(problem_list *problems, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add_problem(problem_list *problems, const char *name, const char *format, ...) {
  if (problems->count++ >= TOLD) return;
  char text[200];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  dp_str_addf(&problems->text, "%s%.120s: %s", problems->count > 1 ? "; " : "", name, text);
}

static dp_status tell_problems(problem_list *problems, const char *where, dp_error *error) {
  dp_status status = DP_OK;
  if (problems->text.failed)
    status = dp_fail_memory(error);
  else if (problems->count)
    status =
        dp_fail(error, DP_BAD_INPUT, "%s: %zu tensor%s not fit the model: %s%s", where, problems->count,
                problems->count > 1 ? "s do" : " does", problems->text.text, problems->count > TOLD ? "; ..." : "");
  dp_str_free(&problems->text);
  return status;
}

static dp_status open_file(exec_weights *weights, const char *path, dp_error *error) {
  DP_TRY(dp_safetensors_open(path, &weights->files[weights->file_count], error));
  weights->file_count++;
  return DP_OK;
}

/* A shard's name stands in a file that somebody wrote: it may not lead out of the folder. */
static bool is_plain_name(const char *name) { return name[0] && name[0] != '.' && !strchr(name, '/'); }

/* Opens each file that the index names, once. */
static dp_status open_shards(exec_weights *weights, const char *folder, const dp_node *map, dp_error *error) {
  weights->files = DP_ARENA_NEW(&weights->arena, dp_safetensors, map->count);
  if (!weights->files) return dp_fail_memory(error);
  for (size_t i = 0; i < map->count; i++) {
    const dp_node *entry = map->items[i];
    if (entry->kind != DP_NODE_STRING || !is_plain_name(entry->string)) {
      char found[80];
      return dp_fail_at(error, entry, "weight_map: found %s, allowed: the name of a file in the folder",
                        dp_node_show(entry, found));
    }
    const char *path = dp_arena_printf(&weights->arena, "%s/%s", folder, entry->string);
    if (!path) return dp_fail_memory(error);
    size_t known = 0;
    while (known < weights->file_count && strcmp(weights->files[known].path, path) != 0) known++;
    if (known == weights->file_count) DP_TRY(open_file(weights, path, error));
  }
  return DP_OK;
}

static const char *file_name(const dp_safetensors *file) { return strrchr(file->path, '/') + 1; }

/* Each tensor lies in the file that the index names for it, and in no other. */
static void check_map(const exec_weights *weights, const dp_node *map, problem_list *problems) {
  size_t held = 0;
  for (size_t i = 0; i < map->count; i++) {
    const dp_node *entry = map->items[i];
    size_t f = 0;
    while (strcmp(file_name(&weights->files[f]), entry->string) != 0) f++;
    if (dp_safetensors_find(&weights->files[f], entry->key))
      held++;
    else
      add_problem(problems, entry->key, "not in %.80s, where the index has it", entry->string);
  }
  size_t all = 0;
  for (size_t f = 0; f < weights->file_count; f++) all += weights->files[f].count;
  if (all == held) return;
  for (size_t f = 0; f < weights->file_count; f++)
    for (size_t t = 0; t < weights->files[f].count; t++) {
      const char *name = weights->files[f].tensors[t].name;
      const dp_node *entry = dp_node_get(map, name);
      if (!entry || strcmp(entry->string, file_name(&weights->files[f])) != 0)
        add_problem(problems, name, "in %.80s, where the index does not have it", file_name(&weights->files[f]));
    }
}

static dp_status open_index(exec_weights *weights, const char *folder, const char *path, dp_error *error) {
  dp_document document = {0};
  DP_TRY(dp_document_read(path, &document, error));
  const dp_node *map = dp_node_get(document.root, "weight_map");
  dp_status status = DP_OK;
  if (!map || map->kind != DP_NODE_TABLE || map->count == 0)
    status = dp_fail_at(error, map ? map : document.root, "weight_map: found no table, allowed: {TENSOR: FILE}");
  else
    status = open_shards(weights, folder, map, error);
  if (status == DP_OK) {
    problem_list problems = {0};
    check_map(weights, map, &problems);
    status = tell_problems(&problems, path, error);
  }
  dp_document_free(&document);
  return status;
}

static dp_status open_files(exec_weights *weights, const char *folder, dp_error *error) {
  const char *path = NULL;
  for (size_t c = 0; c < CANDIDATES; c++) {
    if (!exists(folder, candidates[c].name, &weights->arena, &path)) continue;
    if (candidates[c].is_index) return open_index(weights, folder, path, error);
    weights->files = DP_ARENA_NEW(&weights->arena, dp_safetensors, 1);
    return weights->files ? open_file(weights, path, error) : dp_fail_memory(error);
  }
  if (exists(folder, "diffusion_pytorch_model.bin", &weights->arena, &path))
    return dp_fail(error, DP_BAD_INPUT,
                   "%s: found diffusion_pytorch_model.bin, allowed: %s (diffusers' save_pretrained writes it)", folder,
                   candidates[1].name);
  return dp_fail(error, DP_BAD_INPUT, "%s: no weights were found, allowed: %s, or an index %s of several files", folder,
                 candidates[1].name, candidates[0].name);
}

static const graph_tensor *constant_of(const graph *g, const char *name) {
  for (size_t t = 0; t < g->tensors.count; t++)
    if (g->tensors.items[t].is_constant && strcmp(g->tensors.items[t].name, name) == 0) return &g->tensors.items[t];
  return NULL;
}

/* A table of positions may be larger than what the graph's resolution takes of it; the rest of its shape is the same.
 */
static bool is_buffer_of(const graph_tensor *constant, const dp_safetensor *tensor) {
  return constant->rank == tensor->rank && tensor->rank > 1 && dp_dtype_is_float(tensor->dtype) &&
         constant->dims[0] == tensor->dims[0] && constant->dims[tensor->rank - 1] == tensor->dims[tensor->rank - 1] &&
         constant->dims[1] <= tensor->dims[1];
}

static void place_weights(exec_weights *weights, problem_list *problems) {
  const graph *g = weights->graph;
  char found[96], wanted[96];
  for (size_t w = 0; w < g->weights.count; w++) {
    const graph_weight *weight = &g->weights.items[w];
    const dp_safetensor *tensor = NULL;
    for (size_t f = 0; f < weights->file_count && !tensor; f++) {
      tensor = dp_safetensors_find(&weights->files[f], weight->name);
      weights->file_of[w] = (int)f;
    }
    weights->tensors[w] = tensor;
    if (!tensor)
      add_problem(problems, weight->name, "missing");
    else if (!dp_safetensor_has_shape(tensor, weight->rank, weight->dims))
      add_problem(problems, weight->name, "found %s, allowed: %s", dp_safetensor_shape(tensor, found),
                  dp_shape_text(weight->rank, weight->dims, wanted));
    else if (!dp_dtype_is_float(tensor->dtype))
      add_problem(problems, weight->name, "found dtype %s, allowed: F32, F16, BF16, F64", dp_dtype_name(tensor->dtype));
  }
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What is in the files and is no weight of the graph: its buffers, or a problem. */
static dp_status place_buffers(exec_weights *weights, problem_list *problems, dp_error *error) {
  const graph *g = weights->graph;
  const char **names = malloc((g->weights.count + 1) * sizeof *names);
  DP_ARRAY(const dp_safetensor *) buffers = {0};
  dp_status status = names ? DP_OK : dp_fail_memory(error);
  for (size_t w = 0; w < g->weights.count && names; w++) names[w] = g->weights.items[w].name;
  if (names) qsort(names, g->weights.count, sizeof *names, compare_names);
  for (size_t f = 0; f < weights->file_count && status == DP_OK; f++)
    for (size_t t = 0; t < weights->files[f].count && status == DP_OK; t++) {
      const dp_safetensor *tensor = weights->files[f].by_name[t];
      const graph_tensor *constant = NULL;
      char found[96];
      if (bsearch(&tensor->name, names, g->weights.count, sizeof *names, compare_names)) continue;
      if (!(constant = constant_of(g, tensor->name)))
        add_problem(problems, tensor->name, "not of this model");
      else if (!is_buffer_of(constant, tensor))
        add_problem(problems, tensor->name, "found %s of %s, which is not this model's table",
                    dp_safetensor_shape(tensor, found), dp_dtype_name(tensor->dtype));
      else if (!dp_array_push(&buffers, tensor))
        status = dp_fail_memory(error);
    }
  weights->buffers = DP_ARENA_NEW(&weights->arena, const dp_safetensor *, buffers.count);
  if (status == DP_OK && !weights->buffers) status = dp_fail_memory(error);
  if (status == DP_OK && buffers.count) memcpy(weights->buffers, buffers.items, buffers.count * sizeof *buffers.items);
  weights->buffer_count = buffers.count;
  dp_array_free(&buffers);
  free(names);
  return status;
}

static bool is_equal(const dp_node *a, const dp_node *b) {
  if (a->kind == DP_NODE_ARRAY) {
    bool same = b->kind == DP_NODE_ARRAY && a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++) same = is_equal(a->items[i], b->items[i]);
    return same;
  }
  if (a->kind == DP_NODE_STRING) return b->kind == DP_NODE_STRING && strcmp(a->string, b->string) == 0;
  if (a->kind == DP_NODE_BOOLEAN) return b->kind == DP_NODE_BOOLEAN && a->boolean == b->boolean;
  return a->kind == DP_NODE_TABLE || a->real == b->real; /* nothing that we read is a table */
}

/* Weights can fit a model that they do not belong to: the number of heads changes no shape. So where the graph was made
 * from another config.json the two are compared. A key that one of them lacks has its class default there; a list may
 * be written as one number; sample_size only says at which resolution. */
static dp_status check_config(const graph *g, const char *folder, dp_arena *arena, dp_error *error) {
  const char *path = NULL;
  if (!g->config_file || access(g->config_file, F_OK) != 0) return DP_OK; /* made from memory */
  if (!exists(folder, "config.json", arena, &path) || strcmp(path, g->config_file) == 0) return DP_OK;
  dp_document ours = {0}, theirs = {0};
  dp_status status = dp_document_read(g->config_file, &ours, error);
  if (status == DP_OK) status = dp_document_read(path, &theirs, error);
  for (size_t i = 0; status == DP_OK && i < theirs.root->count; i++) {
    const dp_node *found = theirs.root->items[i], *wanted = dp_node_get(ours.root, found->key);
    char found_text[80], wanted_text[80];
    if (!found->key || found->key[0] == '_' || strcmp(found->key, "sample_size") == 0) continue;
    if (!wanted || wanted->kind == DP_NODE_NULL || found->kind == DP_NODE_NULL) continue;
    if ((wanted->kind == DP_NODE_ARRAY) != (found->kind == DP_NODE_ARRAY) || is_equal(found, wanted)) continue;
    status = dp_fail_at(error, found, "%s: found %s, allowed: %s, as in %s, of which the model was made", found->key,
                        dp_node_show(found, found_text), dp_node_show(wanted, wanted_text), g->config_file);
  }
  dp_document_free(&ours);
  dp_document_free(&theirs);
  return status;
}

dp_status exec_weights_open(const char *folder, const graph *g, exec_weights *weights, dp_error *error) {
  exec_weights made = {.graph = g};
  made.tensors = DP_ARENA_NEW(&made.arena, const dp_safetensor *, g->weights.count);
  made.file_of = DP_ARENA_NEW(&made.arena, int, g->weights.count);
  dp_status status = made.tensors && made.file_of ? DP_OK : dp_fail_memory(error);
  problem_list problems = {0};
  if (status == DP_OK) status = check_config(g, folder, &made.arena, error);
  if (status == DP_OK) status = open_files(&made, folder, error);
  if (status == DP_OK) {
    place_weights(&made, &problems);
    status = place_buffers(&made, &problems, error);
  }
  if (status == DP_OK)
    status = tell_problems(&problems, folder, error);
  else
    dp_str_free(&problems.text);
  if (status == DP_OK)
    *weights = made;
  else
    exec_weights_close(&made);
  return status;
}

void exec_weights_close(exec_weights *weights) {
  for (size_t f = 0; f < weights->file_count; f++) dp_safetensors_close(&weights->files[f]);
  dp_arena_free(&weights->arena);
  *weights = (exec_weights){0};
}

dp_status exec_weights_read(const exec_weights *weights, int weight, float *out, dp_error *error) {
  return dp_safetensor_read_fp32(&weights->files[weights->file_of[weight]], weights->tensors[weight], out, error);
}

dp_status exec_weights_read_range(const exec_weights *weights, int first, int count, float *out, dp_error *error) {
  for (int w = first; w < first + count; w++) {
    DP_TRY(exec_weights_read(weights, w, out, error));
    out += weights->tensors[w]->elements;
  }
  return DP_OK;
}

const dp_safetensor *exec_weights_buffer(const exec_weights *weights, const char *name) {
  for (size_t b = 0; b < weights->buffer_count; b++)
    if (strcmp(weights->buffers[b]->name, name) == 0) return weights->buffers[b];
  return NULL;
}
