/* [model] of a scenario, and the graph of the model that it names. */
#include <string.h>

#include "graph/shard.h"
#include "plan/scenario_reader.h"

static const double US = 1e-6;

typedef struct model_keys {
  const char *config;
  int64_t height, width, frames, text_tokens, synthetic_units, boundary_bytes, parameters, activation_bytes;
  double forward_us, backward_us, weight_backward_us;
  int precision;
} model_keys;

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(model_keys, key), false, min, max, NULL, help }
const dp_field plan_model_fields[PLAN_MODEL_FIELD_COUNT] = {
    ROW(config, DP_FIELD_STRING, 0, 0, "a diffusers config.json, relative to the scenario"),
    ROW(height, DP_FIELD_INTEGER, 8, 65536, "pixels; default the model's own size"),
    ROW(width, DP_FIELD_INTEGER, 8, 65536, "pixels; default the model's own size"),
    ROW(frames, DP_FIELD_INTEGER, 1, 65536, "default 1"),
    ROW(text_tokens, DP_FIELD_INTEGER, 1, 1000000, "default the model's own"),
    {"precision", DP_FIELD_CHOICE, offsetof(model_keys, precision), false, 0, 0, graph_dtype_names, "default bf16"},
    ROW(synthetic_units, DP_FIELD_INTEGER, 1, 65535, "instead of config: equal units with the fixed costs below"),
    ROW(forward_us, DP_FIELD_REAL, 0, 1e12, "us of one unit and sample"),
    ROW(backward_us, DP_FIELD_REAL, 0, 1e12, "us, whole backward of one unit and sample; default 2 * forward_us"),
    ROW(weight_backward_us, DP_FIELD_REAL, 0, 1e12, "us, the weight part of it; default half"),
    ROW(boundary_bytes, DP_FIELD_INTEGER, 0, 1e14, "between units, one sample; default 0, which takes no time"),
    ROW(parameters, DP_FIELD_INTEGER, 0, 1e14, "of one unit; default 0"),
    ROW(activation_bytes, DP_FIELD_INTEGER, 0, 1e14, "kept for backward by one unit and sample; default 0"),
};
#undef ROW
static const char *const synthetic_keys[] = {
    "forward_us", "backward_us", "weight_backward_us", "boundary_bytes", "parameters", "activation_bytes", NULL};
static const char *const config_keys[] = {"height", "width", "frames", "text_tokens", NULL};

static dp_status read_synthetic(const dp_node *table, const model_keys *keys, plan_scenario *scenario,
                                dp_error *error) {
  const dp_node *wrong = plan_scenario_first_of(table, config_keys);
  if (wrong)
    return dp_fail_at(error, wrong, "model.%s: found beside synthetic_units, allowed: only with config", wrong->key);
  if (!dp_node_get(table, "forward_us"))
    return dp_fail_at(error, table,
                      "model: the key \"forward_us\" is missing, needed: us of one synthetic unit and sample");
  const double backward_us = dp_node_get(table, "backward_us") ? keys->backward_us : 2 * keys->forward_us;
  const double weight_us = dp_node_get(table, "weight_backward_us") ? keys->weight_backward_us : backward_us / 2;
  if (weight_us > backward_us)
    return dp_fail_at(error, dp_node_get(table, "weight_backward_us"),
                      "model.weight_backward_us: found %.9g, allowed: at most backward_us, %.9g", weight_us,
                      backward_us);
  scenario->synthetic = true;
  scenario->synthetic_options = (graph_synthetic_options){.units = keys->synthetic_units,
                                                          .batch = 1,
                                                          .forward_s = keys->forward_us * US,
                                                          .backward_s = backward_us * US,
                                                          .weight_backward_s = weight_us * US,
                                                          .boundary_bytes = keys->boundary_bytes,
                                                          .parameters = keys->parameters,
                                                          .activation_bytes = keys->activation_bytes,
                                                          .precision = (graph_dtype)keys->precision};
  return DP_OK;
}

dp_status plan_scenario_read_model(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  model_keys keys = {.frames = 1, .precision = GRAPH_BF16};
  DP_TRY(dp_schema_read(table, NULL, "model", plan_model_fields, PLAN_MODEL_FIELD_COUNT, &keys, error));
  graph_model_options_default(&scenario->model_options);
  scenario->model_options.precision = (graph_dtype)keys.precision;
  if (keys.config && keys.synthetic_units)
    return dp_fail_at(error, dp_node_get(table, "synthetic_units"),
                      "model.synthetic_units: found beside config, allowed: one of the two");
  if (!keys.config && !keys.synthetic_units)
    return dp_fail_at(error, table, "model: found neither config nor synthetic_units, needed: one of the two");
  if (keys.synthetic_units) return read_synthetic(table, &keys, scenario, error);
  const dp_node *wrong = plan_scenario_first_of(table, synthetic_keys);
  if (wrong)
    return dp_fail_at(error, wrong, "model.%s: found beside config, allowed: only with synthetic_units", wrong->key);
  scenario->model_options.height = keys.height;
  scenario->model_options.width = keys.width;
  scenario->model_options.frames = keys.frames;
  scenario->model_options.text_tokens = keys.text_tokens;
  return plan_scenario_resolve(scenario, dp_node_get(table, "config"), "model.config", &scenario->config_path, error);
}

/* ---- its graph ---- */

/* "DATA/models/sdxl_unet.json:1: height is 1023, must be ..." is about a key of the scenario: says so there. */
static dp_status blame_scenario(const plan_scenario *scenario, const dp_error *reason, dp_error *error) {
  static const char *const keys[][2] = {{"model", "height"},      {"model", "width"},    {"model", "frames"},
                                        {"model", "text_tokens"}, {"task", "lora_rank"}, {"train", "lora_targets"}};
  const size_t length = strlen(scenario->config_path);
  const char *text = reason->text;
  if (strncmp(text, scenario->config_path, length) == 0 && text[length] == ':') {
    const char *said = strstr(text + length, ": ");
    for (size_t k = 0; said && k < DP_COUNT_OF(keys); k++) {
      const char *table = keys[k][0], *key = keys[k][1];
      const size_t n = strlen(key);
      if (strncmp(said + 2, key, n) == 0 && strncmp(said + 2 + n, " is ", 4) == 0)
        return dp_fail_at(error, plan_scenario_node(scenario, table, key), "%s.%s", table, said + 2);
    }
  }
  return dp_fail(error, reason->status, "%s", text);
}

/* The share of one of `tensor` members; takes the whole model. */
static dp_status take_share(const plan_scenario *scenario, int tensor, graph *whole, graph *share, dp_error *error) {
  dp_error reason = DP_ERROR_INIT;
  memset(share, 0, sizeof *share);
  const dp_status status = graph_shard(whole, tensor, share, &reason);
  graph_free(whole);
  if (status != DP_BAD_INPUT) return status == DP_OK ? DP_OK : dp_fail(error, status, "%s", reason.text);
  const char *table = scenario->job_only ? "search" : "plan";
  return dp_fail_at(error, plan_scenario_node(scenario, table, "tensor_parallel"), "%s.tensor_parallel: %s", table,
                    reason.text);
}

dp_status plan_scenario_share(const plan_scenario *scenario, int64_t microbatch_size, int tensor, graph *out,
                              dp_error *error) {
  if (tensor <= 1) return plan_scenario_graph(scenario, microbatch_size, out, error);
  graph whole;
  DP_TRY(plan_scenario_graph(scenario, microbatch_size, &whole, error));
  return take_share(scenario, tensor, &whole, out, error);
}

dp_status plan_scenario_graph(const plan_scenario *scenario, int64_t microbatch_size, graph *out, dp_error *error) {
  memset(out, 0, sizeof *out);
  const int64_t batch = microbatch_size * (scenario->guidance ? 2 : 1);
  if (scenario->synthetic) {
    graph_synthetic_options options = scenario->synthetic_options;
    options.batch = batch;
    return graph_synthetic_build(&options, out, error);
  }
  graph_model_options options = scenario->model_options;
  options.batch = batch;
  dp_error reason = DP_ERROR_INIT;
  const dp_status status = graph_model_read(scenario->config_path, &options, out, &reason);
  return status == DP_OK          ? DP_OK
         : status == DP_BAD_INPUT ? blame_scenario(scenario, &reason, error)
                                  : dp_fail(error, status, "%s", reason.text);
}
