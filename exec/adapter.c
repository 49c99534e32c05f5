#define _POSIX_C_SOURCE 200809L
#include "exec/adapter.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/node.h"
#include "base/str.h"

static const char file_name[] = "pytorch_lora_weights.safetensors", metadata_key[] = "lora_adapter_metadata";

dp_status exec_adapter_layers(const graph *g, dp_arena *arena, exec_adapter_layer **layers, int *count,
                              dp_error *error) {
  int found = 0;
  for (size_t o = 0; o < g->ops.count; o++) found += g->ops.items[o].adapter_parameters > 0;
  exec_adapter_layer *made = DP_ARENA_NEW(arena, exec_adapter_layer, (size_t)found);
  if (!made) return dp_fail_memory(error);
  *layers = made;
  *count = found;
  for (size_t o = 0; o < g->ops.count; o++) {
    const graph_op *op = &g->ops.items[o];
    const int64_t in = op->attributes.in_channels, out = op->attributes.out_channels;
    if (op->adapter_parameters <= 0) continue;
    *made++ = (exec_adapter_layer){.op = (int)o, .rank = op->adapter_parameters / (in + out), .in = in, .out = out};
  }
  return DP_OK;
}

/* ---- reading ---- */

typedef enum role_kind { ROLE_A, ROLE_B, ROLE_ALPHA, ROLE_NONE } role_kind;

/* The older names are those of diffusers before PEFT. */
static const struct {
  const char *ending;
  role_kind role;
} endings[] = {{".lora_A.weight", ROLE_A},
               {".lora_B.weight", ROLE_B},
               {".lora_A.default.weight", ROLE_A},
               {".lora_B.default.weight", ROLE_B},
               {".lora.down.weight", ROLE_A},
               {".lora.up.weight", ROLE_B},
               {".alpha", ROLE_ALPHA}};

static const char *const prefixes[] = {"unet.", "transformer."};
static const char *const foreign[] = {"text_encoder.", "text_encoder_2.", "text_encoder_3."};

static bool begins_with(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static role_kind role_of(const char *name, size_t *module_length) {
  const size_t length = strlen(name);
  for (size_t e = 0; e < sizeof endings / sizeof endings[0]; e++) {
    const size_t tail = strlen(endings[e].ending);
    if (length <= tail || strcmp(name + length - tail, endings[e].ending) != 0) continue;
    *module_length = length - tail;
    return endings[e].role;
  }
  return ROLE_NONE;
}

static bool is_layer(const graph *g, const exec_adapter_layer *layer, const char *module, size_t length) {
  const char *name = g->ops.items[layer->op].name;
  return strlen(name) == length && memcmp(name, module, length) == 0;
}

static dp_status fail_at_tensor(const exec_adapter *adapter, const char *name, const char *what, dp_error *error) {
  return dp_fail(error, DP_BAD_INPUT, "%s: tensor %.200s: %s", adapter->file.path, name, what);
}

static dp_status take_tensor(exec_adapter *adapter, const graph *g, const dp_safetensor *tensor, const char **prefix,
                             dp_error *error) {
  const char *name = tensor->name;
  size_t length = 0;
  for (size_t f = 0; f < sizeof foreign / sizeof foreign[0]; f++)
    if (begins_with(name, foreign[f])) return DP_OK;
  for (size_t p = 0; p < 2; p++) {
    if (!begins_with(name, prefixes[p])) continue;
    name += strlen(prefixes[p]);
    *prefix = prefixes[p];
    break;
  }
  const role_kind role = role_of(name, &length);
  if (role == ROLE_NONE)
    return fail_at_tensor(adapter, tensor->name, "allowed: MODULE.lora_A.weight, MODULE.lora_B.weight, MODULE.alpha",
                          error);
  for (int l = 0; l < adapter->count; l++) {
    exec_adapter_layer *layer = &adapter->layers[l];
    if (!is_layer(g, layer, name, length)) continue;
    const dp_safetensor **place = role == ROLE_A ? &layer->a : &layer->b;
    if (role == ROLE_ALPHA) {
      float alpha = 0;
      if (tensor->elements != 1) return fail_at_tensor(adapter, tensor->name, "allowed: one number", error);
      DP_TRY(dp_safetensor_read_fp32(&adapter->file, tensor, &alpha, error));
      layer->alpha = (double)alpha;
      return DP_OK;
    }
    if (*place) return fail_at_tensor(adapter, tensor->name, "found this factor twice, allowed: once", error);
    *place = tensor;
    return DP_OK;
  }
  return fail_at_tensor(adapter, tensor->name, "found no such adapted layer in this model and scenario", error);
}

static dp_status check_factor(const exec_adapter *adapter, const graph *g, const exec_adapter_layer *layer,
                              const char *which, const dp_safetensor *tensor, int64_t rows, int64_t columns,
                              dp_error *error) {
  char found[96];
  const char *module = g->ops.items[layer->op].name;
  if (!tensor)
    return dp_fail(error, DP_BAD_INPUT, "%s: %s of %s is missing, allowed: every adapted layer of the scenario",
                   adapter->file.path, which, module);
  if (tensor->rank != 2 || tensor->dims[0] != rows || tensor->dims[1] != columns)
    return dp_fail(error, DP_BAD_INPUT, "%s: tensor %s: found %s, allowed: [%lld, %lld], of rank %lld (task.lora_rank)",
                   adapter->file.path, tensor->name, dp_safetensor_shape(tensor, found), (long long)rows,
                   (long long)columns, (long long)layer->rank);
  return DP_OK;
}

/* PEFT takes a key of a pattern as a regular expression for the end of a module's name; names are what people write. */
static bool is_pattern_for(const char *key, const char *module) {
  const bool whole = key[0] == '^';
  if (whole) key++;
  const size_t length = strlen(module), tail = strlen(key);
  if (tail > length || strcmp(module + length - tail, key) != 0) return false;
  return tail == length || (!whole && module[length - tail - 1] == '.');
}

static const dp_node *config_value(const dp_node *config, const char *prefix, const char *key, dp_arena *arena) {
  const char *name = dp_arena_printf(arena, "%s%s", prefix, key);
  return name ? dp_node_get(config, name) : NULL;
}

/* Reads what PEFT's LoraConfig says of alpha, for layers that have no tensor of their own. */
static dp_status read_config(exec_adapter *adapter, const graph *g, const char *prefix, const dp_node *config,
                             dp_error *error) {
  static const char *const refused[] = {"use_dora", "lora_bias"};
  dp_arena *arena = &adapter->arena;
  for (size_t r = 0; r < 2; r++) {
    const dp_node *node = config_value(config, prefix, refused[r], arena);
    if (node && node->kind == DP_NODE_BOOLEAN && node->boolean)
      return dp_fail_at(error, node, "%s: found true, allowed: false", refused[r]);
  }
  const dp_node *alpha = config_value(config, prefix, "lora_alpha", arena),
                *pattern = config_value(config, prefix, "alpha_pattern", arena),
                *stabilised = config_value(config, prefix, "use_rslora", arena);
  for (int l = 0; l < adapter->count; l++) {
    exec_adapter_layer *layer = &adapter->layers[l];
    const dp_node *own = alpha;
    if (layer->alpha != 0) continue;
    for (size_t i = 0; pattern && i < pattern->count; i++)
      if (pattern->kind == DP_NODE_TABLE && is_pattern_for(pattern->items[i]->key, g->ops.items[layer->op].name))
        own = pattern->items[i];
    if (!own || own->kind == DP_NODE_NULL) continue;
    if ((own->kind != DP_NODE_INTEGER && own->kind != DP_NODE_REAL) || own->real <= 0) {
      char found[80];
      return dp_fail_at(error, own, "%s: found %s, allowed: a number above 0", own->key, dp_node_show(own, found));
    }
    layer->alpha = own->real;
    if (stabilised && stabilised->kind == DP_NODE_BOOLEAN && stabilised->boolean)
      layer->alpha *= sqrt((double)layer->rank);
  }
  return DP_OK;
}

static dp_status read_alphas(exec_adapter *adapter, const graph *g, const char *prefix, dp_error *error) {
  const char *text = dp_safetensors_metadata(&adapter->file, metadata_key);
  if (text) {
    dp_document document = {0};
    const char *name = dp_arena_printf(&adapter->arena, "%s: %s", adapter->file.path, metadata_key);
    if (!name) return dp_fail_memory(error);
    DP_TRY(dp_document_parse_json(text, strlen(text), name, &document, error));
    const dp_status status = read_config(adapter, g, prefix, document.root, error);
    dp_document_free(&document);
    DP_TRY(status);
  }
  for (int l = 0; l < adapter->count; l++)
    if (adapter->layers[l].alpha == 0) adapter->layers[l].alpha = (double)adapter->layers[l].rank;
  return DP_OK;
}

static dp_status open_all(const char *path, const graph *g, exec_adapter *adapter, dp_error *error) {
  struct stat about;
  if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
    path = dp_arena_printf(&adapter->arena, "%s/%s", path, file_name);
  if (!path) return dp_fail_memory(error);
  DP_TRY(dp_safetensors_open(path, &adapter->file, error));
  DP_TRY(exec_adapter_layers(g, &adapter->arena, &adapter->layers, &adapter->count, error));
  const char *prefix = "";
  for (size_t t = 0; t < adapter->file.count; t++)
    DP_TRY(take_tensor(adapter, g, adapter->file.by_name[t], &prefix, error));
  for (int l = 0; l < adapter->count; l++) {
    const exec_adapter_layer *layer = &adapter->layers[l];
    DP_TRY(check_factor(adapter, g, layer, "lora_A", layer->a, layer->rank, layer->in, error));
    DP_TRY(check_factor(adapter, g, layer, "lora_B", layer->b, layer->out, layer->rank, error));
  }
  return read_alphas(adapter, g, prefix, error);
}

dp_status exec_adapter_open(const char *path, const graph *g, exec_adapter *adapter, dp_error *error) {
  exec_adapter made = {0};
  const dp_status status = open_all(path, g, &made, error);
  if (status == DP_OK)
    *adapter = made;
  else
    exec_adapter_close(&made);
  return status;
}

void exec_adapter_close(exec_adapter *adapter) {
  dp_safetensors_close(&adapter->file);
  dp_arena_free(&adapter->arena);
  *adapter = (exec_adapter){0};
}

dp_status exec_adapter_read(const exec_adapter *adapter, int layer, float *a, float *b, dp_error *error) {
  DP_TRY(dp_safetensor_read_fp32(&adapter->file, adapter->layers[layer].a, a, error));
  return dp_safetensor_read_fp32(&adapter->file, adapter->layers[layer].b, b, error);
}

/* ---- writing ---- */

/* PEFT's LoraConfig as JSON, its keys with the prefix; every layer is named, so that no pattern can match another. */
static char *make_config(const graph *g, const exec_adapter_layer *layers, int count, double alpha,
                         const char *prefix) {
  json_t *modules = json_array(), *root = json_object();
  bool done = modules && root;
  for (int l = 0; l < count && done; l++)
    done = json_array_append_new(modules, json_string(g->ops.items[layers[l].op].name)) == 0;
  const struct {
    const char *key;
    json_t *value;
  } rows[] = {{"r", json_integer(count ? layers[0].rank : 1)},
              {"lora_alpha", alpha == floor(alpha) ? json_integer((json_int_t)alpha) : json_real(alpha)},
              {"lora_dropout", json_real(0)},
              {"bias", json_string("none")},
              {"target_modules", modules}};
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    char key[64];
    (void)snprintf(key, sizeof key, "%s%s", prefix, rows[r].key);
    done = json_object_set_new(root, key, rows[r].value) == 0 && done; /* takes the value, also when it fails */
  }
  char *text = done ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
  json_decref(root);
  return text;
}

static dp_status list_entries(const graph *g, const exec_adapter_layer *layers, int count, const char *prefix,
                              dp_arena *arena, dp_safetensors_entry **entries, dp_error *error) {
  dp_safetensors_entry *made = DP_ARENA_NEW(arena, dp_safetensors_entry, 2 * (size_t)count);
  int64_t *dims = DP_ARENA_NEW(arena, int64_t, 4 * (size_t)count);
  if (!made || !dims) return dp_fail_memory(error);
  for (int i = 0; i < 2 * count; i++) {
    const exec_adapter_layer *layer = &layers[i / 2];
    int64_t *own = dims + 2 * i;
    own[0] = i % 2 ? layer->out : layer->rank;
    own[1] = i % 2 ? layer->rank : layer->in;
    const char *name = dp_arena_printf(arena, "%s%s.lora_%c.weight", prefix, g->ops.items[layer->op].name, "AB"[i % 2]);
    if (!name) return dp_fail_memory(error);
    made[i] = (dp_safetensors_entry){name, DP_DTYPE_F32, 2, own};
  }
  *entries = made;
  return DP_OK;
}

static dp_status write_factors(const exec_adapter_layer *layers, int count, exec_adapter_source source, void *context,
                               dp_safetensors_writer *writer, dp_error *error) {
  for (int l = 0; l < count; l++) {
    const float *a = NULL, *b = NULL;
    DP_TRY(source(context, l, &a, &b, error));
    DP_TRY(dp_safetensors_write(writer, a, sizeof *a * (size_t)(layers[l].rank * layers[l].in), error));
    DP_TRY(dp_safetensors_write(writer, b, sizeof *b * (size_t)(layers[l].rank * layers[l].out), error));
  }
  return DP_OK;
}

static dp_status write_file(const char *path, const graph *g, double alpha, dp_arena *arena, exec_adapter_source source,
                            void *context, uint64_t *bytes, dp_error *error) {
  const char *prefix = prefixes[strcmp(g->class_name, "UNet2DConditionModel") != 0];
  exec_adapter_layer *layers = NULL;
  dp_safetensors_entry *entries = NULL;
  int count = 0;
  if (!path) return dp_fail_memory(error);
  DP_TRY(exec_adapter_layers(g, arena, &layers, &count, error));
  DP_TRY(list_entries(g, layers, count, prefix, arena, &entries, error));
  char *config = make_config(g, layers, count, alpha, prefix);
  if (!config) return dp_fail_memory(error);
  const dp_safetensors_string metadata[] = {{"format", "pt"}, {metadata_key, config}};
  dp_safetensors_writer writer = {0};
  dp_status status = dp_safetensors_create(path, entries, 2 * (size_t)count, metadata, 2, &writer, error);
  free(config);
  if (status == DP_OK) status = write_factors(layers, count, source, context, &writer, error);
  if (status == DP_OK) status = dp_safetensors_commit(&writer, bytes, error);
  dp_safetensors_abandon(&writer);
  return status;
}

dp_status exec_adapter_write(const char *folder, const graph *g, double alpha, exec_adapter_source source,
                             void *context, uint64_t *bytes, dp_error *error) {
  dp_arena arena = {0};
  dp_status status = dp_folder_make(folder, error);
  if (status == DP_OK)
    status = write_file(dp_arena_printf(&arena, "%s/%s", folder, file_name), g, alpha, &arena, source, context, bytes,
                        error);
  if (status == DP_OK) status = dp_folder_sync(folder, error);
  dp_arena_free(&arena);
  return status;
}
