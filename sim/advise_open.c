/* From a diffusion-pipe configuration to the scenario that stands for it, and the layers of its model. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "sim/adviser.h"

/* ---- the model's config.json ---- */

static bool opens(const char *path) {
  FILE *stream = fopen(path, "rb");
  if (stream) (void)fclose(stream);
  return stream != NULL;
}

/* Whether the text holds the word, whatever the case. */
static bool names(const char *text, const char *word) {
  for (; text && *text; text++) {
    size_t i = 0;
    while (word[i] && ((unsigned char)text[i] | 0x20) == (unsigned char)word[i]) i++;
    if (!word[i]) return true;
  }
  return false;
}

static dp_status find_model(sim_adviser *a) {
  const plan_dpipe *c = a->config;
  sim_advise_result *out = a->out;
  dp_arena *arena = &out->arena;
  if (a->options->model) {
    out->config_path = dp_path_resolve(arena, NULL, a->options->model);
    out->variant = "--model";
    if (!out->config_path) return dp_fail_memory(a->error);
    return opens(out->config_path) ? DP_OK
                                   : dp_fail(a->error, DP_BAD_INPUT,
                                             "--model: found \"%.200s\", which cannot be opened, allowed: a diffusers "
                                             "config.json",
                                             a->options->model);
  }
  const bool unet = c->family == PLAN_DPIPE_SDXL;
  const char *folder = unet ? c->checkpoint_path : c->diffusers_path;
  if (folder && !c->transformer_path) {
    const char *name = dp_arena_printf(arena, "%s/%s/config.json", folder, unet ? "unet" : "transformer");
    const char *path = name ? dp_path_resolve(arena, c->document.file, name) : NULL;
    if (!path) return dp_fail_memory(a->error);
    if (opens(path)) {
      out->config_path = path;
      out->variant = unet ? "checkpoint_path" : "diffusers_path";
      return DP_OK;
    }
  }
  const char *name = "sdxl_unet.json";
  const char *said = c->transformer_path ? c->transformer_path : c->diffusers_path;
  out->variant = "the type";
  if (c->family == PLAN_DPIPE_FLUX) {
    const bool fast = names(said, "schnell");
    name = fast ? "flux_schnell.json" : "flux_dev.json";
    out->variant = fast || names(said, "dev") ? "the name of the path" : "the type; where it is another, say --model";
  } else if (c->family == PLAN_DPIPE_SD3) {
    const bool newer = names(said, "3.5") || names(said, "35");
    name = newer ? (names(said, "medium") ? "sd35_medium.json" : "sd35_large.json") : "sd3_medium.json";
    out->variant =
        newer || names(said, "medium") ? "the name of the path" : "the type; where it is another, say --model";
  }
  out->config_path = dp_arena_printf(arena, "%s/models/%s", dp_data_folder(), name);
  return out->config_path ? DP_OK : dp_fail_memory(a->error);
}

/* ---- the scenario ---- */

static bool add_path(dp_str *text, const char *path) {
  dp_str_add_quoted(text, path);
  dp_str_add(text, "\n");
  while (*path && (unsigned char)*path >= 0x20 && *path != 0x7f) path++;
  return !*path;
}

static dp_status make_scenario(sim_adviser *a) {
  const plan_dpipe *c = a->config;
  const char *cluster = dp_path_resolve(&a->out->arena, NULL, a->options->cluster);
  if (!cluster) return dp_fail_memory(a->error);
  if (!opens(cluster))
    return dp_fail(a->error, DP_BAD_INPUT,
                   "--cluster: found \"%.200s\", which cannot be opened, allowed: a cluster file here or in the "
                   "installed data",
                   a->options->cluster);
  dp_str text = {0};
  dp_str_addf(&text, "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nprecision = \"%s\"\nconfig = ",
              graph_dtype_name((graph_dtype)c->dtype));
  bool good = add_path(&text, a->out->config_path);
  dp_str_addf(&text,
              "[task]\nkind = \"train\"\nimplementation = \"pytorch-eager\"\ncuda_graphs = false\n"
              "gradient_precision = \"model\"\noptimizer = \"%s\"\n",
              plan_optimizer_names[c->optimizer->cost]);
  if (c->lora) dp_str_addf(&text, "trainable = \"lora\"\nlora_rank = %lld\n", (long long)c->rank);
  dp_str_add(&text, "[plan]\nstages = 1\n[cluster]\nfile = ");
  good = add_path(&text, cluster) && good;
  dp_status status = text.failed ? dp_fail_memory(a->error) : DP_OK;
  if (status == DP_OK && !good)
    status = dp_fail(a->error, DP_BAD_INPUT, "--cluster, --model: found a control character in a path, allowed: none");
  if (status == DP_OK) status = plan_scenario_parse(text.text, text.length, "advise", a->scenario, a->error);
  dp_str_free(&text);
  if (status != DP_OK) return status;
  plan_scenario *s = a->scenario;
  s->model_options.lora_all_linear = true;
  s->model_options.joins = c->family == PLAN_DPIPE_SDXL ? plan_dpipe_joins : NULL;
  s->schedule = PLAN_1F1B;
  s->skip_policy = PLAN_SKIP_RELAY;
  s->chunks = 1;
  s->gradient_buckets = 1;
  return DP_OK;
}

/* ---- layers ---- */

static dp_status list_recomputed(sim_adviser *a, const graph *model) {
  const size_t n = model->units.count;
  dp_node *list = SIM_ADVISER_NEW(a, dp_node, 1), *items = SIM_ADVISER_NEW(a, dp_node, n);
  dp_node **places = SIM_ADVISER_NEW(a, dp_node *, n);
  if (!list || !items || !places) return dp_fail_memory(a->error);
  *list = (dp_node){.kind = DP_NODE_ARRAY, .file = "advise", .items = places};
  for (size_t u = 0; u < n; u++) {
    if (!plan_dpipe_is_checkpointed(a->config->family, model->units.items[u].name)) continue;
    items[u] = (dp_node){.kind = DP_NODE_INTEGER, .file = "advise", .integer = (int64_t)u, .real = (double)u};
    places[list->count++] = &items[u];
  }
  a->recompute = list;
  return DP_OK;
}

static dp_status list_layers(sim_adviser *a) {
  const plan_dpipe *c = a->config;
  sim_advise_result *out = a->out;
  const sim_prepared *prepared;
  DP_TRY(sim_adviser_graph_of(a, &c->buckets.items[0], plan_dpipe_batch_of(c, &c->buckets.items[0]), &prepared));
  const graph *model = &prepared->model;
  if (strcmp(model->class_name, plan_dpipe_family_classes[c->family]) != 0)
    return dp_fail(a->error, DP_BAD_INPUT, "%s: found a %s, needed for model.type = \"%s\": a %s", out->config_path,
                   model->class_name, plan_dpipe_family_names[c->family], plan_dpipe_family_classes[c->family]);
  const size_t n = model->units.count;
  out->layers = (int)n;
  out->layer_names = SIM_ADVISER_NEW(a, const char *, n);
  out->layer_weights = SIM_ADVISER_NEW(a, int64_t, n);
  out->class_name = dp_arena_strdup(&out->arena, model->class_name);
  if (!out->layer_names || !out->layer_weights || !out->class_name) return dp_fail_memory(a->error);
  out->parameters = model->parameters;
  out->trainable_parameters = model->trainable_parameters;
  for (size_t u = 0; u < n; u++) {
    const graph_unit *unit = &model->units.items[u];
    out->layer_names[u] = dp_arena_strdup(&out->arena, unit->name);
    if (!out->layer_names[u]) return dp_fail_memory(a->error);
    out->layer_weights[u] = unit->parameters + unit->adapter_parameters;
  }
  if (c->family == PLAN_DPIPE_SDXL)
    out->layer_weights[0] += PLAN_DPIPE_TEXT_ENCODERS + (c->lora ? c->rank * PLAN_DPIPE_TEXT_ADAPTER : 0);
  return list_recomputed(a, model);
}

dp_status sim_adviser_open(sim_adviser *a) {
  DP_TRY(find_model(a));
  DP_TRY(make_scenario(a));
  a->out->gpus = (int)a->scenario->cluster.devices.count;
  return list_layers(a);
}
