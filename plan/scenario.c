#include "plan/scenario.h"

#include <stdio.h>
#include <string.h>

#include "base/allowed.h"
#include "base/file.h"
#include "base/range.h"
#include "base/schema.h"
#include "graph/shard.h"
#include "plan/cluster_change.h"
#include "plan/describe.h"
#include "plan/scenario_reader.h"

static const double US = 1e-6;

const dp_node *plan_scenario_node(const plan_scenario *scenario, const char *table, const char *key) {
  const dp_node *root = scenario->document.root, *section = dp_node_get(root, table);
  const dp_node *node = dp_node_get(section, key);
  return node ? node : section ? section : root;
}

/* The first of `keys` that the table has, NULL when it has none. */
static const dp_node *first_of(const dp_node *table, const char *const *keys) {
  for (; *keys; keys++)
    if (dp_node_get(table, *keys)) return dp_node_get(table, *keys);
  return NULL;
}

static bool opens(const char *path) {
  FILE *stream = fopen(path, "rb");
  if (stream) (void)fclose(stream);
  return stream != NULL;
}

dp_status plan_scenario_resolve(plan_scenario *scenario, const dp_node *node, const char *what, const char **path,
                                dp_error *error) {
  const char *const from[] = {node->line > 0 ? node->file : NULL, scenario->document.file};
  for (int i = 0; i < 2; i++) {
    *path = dp_path_resolve(&scenario->arena, from[i], node->string);
    if (!*path) return dp_fail_memory(error);
    if (opens(*path)) return DP_OK;
  }
  return dp_fail_at(error, node,
                    "%s: found \"%.200s\", which cannot be opened, allowed: a file beside the scenario or in the "
                    "installed data",
                    what, node->string);
}

/* ---- [model] ---- */

typedef struct model_keys {
  const char *config;
  int64_t height, width, frames, text_tokens, synthetic_units, boundary_bytes, parameters, activation_bytes;
  double forward_us, backward_us, weight_backward_us;
  int precision;
} model_keys;

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(model_keys, key), false, min, max, NULL, help }
static const dp_field model_fields[] = {
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
  const dp_node *wrong = first_of(table, config_keys);
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

static dp_status read_model(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  model_keys keys = {.frames = 1, .precision = GRAPH_BF16};
  DP_TRY(dp_schema_read(table, NULL, "model", model_fields, DP_COUNT_OF(model_fields), &keys, error));
  graph_model_options_default(&scenario->model_options);
  scenario->model_options.precision = (graph_dtype)keys.precision;
  if (keys.config && keys.synthetic_units)
    return dp_fail_at(error, dp_node_get(table, "synthetic_units"),
                      "model.synthetic_units: found beside config, allowed: one of the two");
  if (!keys.config && !keys.synthetic_units)
    return dp_fail_at(error, table, "model: found neither config nor synthetic_units, needed: one of the two");
  if (keys.synthetic_units) return read_synthetic(table, &keys, scenario, error);
  const dp_node *wrong = first_of(table, synthetic_keys);
  if (wrong)
    return dp_fail_at(error, wrong, "model.%s: found beside config, allowed: only with synthetic_units", wrong->key);
  scenario->model_options.height = keys.height;
  scenario->model_options.width = keys.width;
  scenario->model_options.frames = keys.frames;
  scenario->model_options.text_tokens = keys.text_tokens;
  return plan_scenario_resolve(scenario, dp_node_get(table, "config"), "model.config", &scenario->config_path, error);
}

/* ---- [task] ---- */

typedef struct task_keys {
  int64_t global_batch, lora_rank, steps;
  int kind, optimizer, trainable, gradient_precision;
  bool guidance, cuda_graphs;
  const char *implementation;
} task_keys;

static const char *const kind_choices[] = {"train", "sample", NULL};
static const char *const trainable_choices[] = {"full", "lora", NULL};
static const char *const gradient_choices[] = {"fp32", "model", NULL};
static const dp_field task_fields[] = {
    {"kind", DP_FIELD_CHOICE, offsetof(task_keys, kind), false, 0, 0, kind_choices, "default train"},
    {"global_batch", DP_FIELD_INTEGER, offsetof(task_keys, global_batch), false, 1, 1e9, NULL,
     "samples a step, of all replicas; default from the plan"},
    {"optimizer", DP_FIELD_CHOICE, offsetof(task_keys, optimizer), false, 0, 0, plan_optimizer_names, "default adamw"},
    {"trainable", DP_FIELD_CHOICE, offsetof(task_keys, trainable), false, 0, 0, trainable_choices, "default full"},
    {"lora_rank", DP_FIELD_INTEGER, offsetof(task_keys, lora_rank), false, 1, 65536, NULL,
     "with trainable = \"lora\"; default 16"},
    {"steps", DP_FIELD_INTEGER, offsetof(task_keys, steps), false, 1, 1e9, NULL,
     "train: steps of the job, default 1; sample: denoise steps, default 50"},
    {"guidance", DP_FIELD_BOOLEAN, offsetof(task_keys, guidance), false, 0, 0, NULL,
     "sample: classifier-free guidance, the model sees each sample twice; default false"},
    {"gradient_precision", DP_FIELD_CHOICE, offsetof(task_keys, gradient_precision), false, 0, 0, gradient_choices,
     "what gradients accumulate in; default fp32"},
    {"cuda_graphs", DP_FIELD_BOOLEAN, offsetof(task_keys, cuda_graphs), false, 0, 0, NULL,
     "one launch an instruction instead of one a kernel; default true"},
    {"implementation", DP_FIELD_STRING, offsetof(task_keys, implementation), false, 0, 0, NULL,
     "how ops are run, a row of catalogue/efficiency.toml; default fused"},
};
static const char *const training_keys[] = {"optimizer", "trainable", "lora_rank", "gradient_precision", NULL};

static dp_status read_task(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  task_keys keys = {.lora_rank = 16, .cuda_graphs = true, .implementation = "fused"};
  DP_TRY(dp_schema_read(table, NULL, "task", task_fields, DP_COUNT_OF(task_fields), &keys, error));
  const bool training = keys.kind == 0;
  const dp_node *wrong = training ? dp_node_get(table, "guidance") : first_of(table, training_keys);
  if (wrong)
    return dp_fail_at(error, wrong, "task.%s: found with kind = \"%s\", allowed: only with kind = \"%s\"", wrong->key,
                      kind_choices[keys.kind], kind_choices[!keys.kind]);
  const dp_node *rank = dp_node_get(table, "lora_rank");
  if (rank && keys.trainable == 0)
    return dp_fail_at(error, rank,
                      "task.lora_rank: found with trainable = \"full\", allowed: only with trainable = \"lora\"");
  if (keys.trainable == 1 && scenario->synthetic)
    return dp_fail_at(error, dp_node_get(table, "trainable"),
                      "task.trainable: found \"lora\" with synthetic units, allowed: full");
  scenario->training = training;
  scenario->global_batch = keys.global_batch;
  scenario->optimizer = (plan_optimizer)keys.optimizer;
  scenario->steps = keys.steps ? keys.steps : training ? 1 : 50;
  scenario->guidance = keys.guidance;
  scenario->gradient_fp32 = keys.gradient_precision == 0;
  scenario->cuda_graphs = keys.cuda_graphs;
  scenario->implementation = keys.implementation;
  scenario->model_options.trainable = keys.trainable == 0 ? GRAPH_TRAIN_FULL : GRAPH_TRAIN_LORA;
  scenario->model_options.lora_rank = keys.lora_rank;
  return DP_OK;
}

/* ---- [plan] ---- */

typedef struct plan_keys {
  int64_t stages, chunks, data_parallel, tensor_parallel, microbatches, microbatch_size, k, gradient_buckets, nccl_sms;
  int schedule, skip_policy, transport;
  const dp_node *split, *recompute, *devices, *skips;
} plan_keys;

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(plan_keys, key), false, min, max, NULL, help }
static const dp_field plan_fields[] = {
    ROW(stages, DP_FIELD_INTEGER, 1, 65536,
        "of a replica's pipeline; default devices / data_parallel / tensor_parallel"),
    ROW(split, DP_FIELD_NODE, 0, 0,
        "cut points, ascending unit indices, stages * chunks - 1 of them; or \"balanced\" (default: equal times of the "
        "workers; folded, fewest bytes among these), or \"even\" (equal times of the chunks)"),
    ROW(chunks, DP_FIELD_INTEGER, 1, 65535, "chunks a worker; default 1; interleaved, folded and zb-v 2"),
    ROW(data_parallel, DP_FIELD_INTEGER, 1, 65536, "replicas; default 1"),
    ROW(tensor_parallel, DP_FIELD_INTEGER, 1, GRAPH_MAX_TENSOR_PARALLEL,
        "workers that share each stage, by heads and channels; default 1"),
    {"schedule", DP_FIELD_CHOICE, offsetof(plan_keys, schedule), false, 0, 0, plan_schedule_names, "default 1f1b"},
    ROW(microbatches, DP_FIELD_INTEGER, 1, 1e6,
        "per replica and step; default from task.global_batch, else 4 * stages"),
    ROW(microbatch_size, DP_FIELD_INTEGER, 1, 65536, "samples; default 1"),
    {"skip_policy", DP_FIELD_CHOICE, offsetof(plan_keys, skip_policy), false, 0, 0, plan_skip_policy_names,
     "default direct"},
    ROW(skips, DP_FIELD_NODE, 0, 0, "list of \"UNIT=POLICY\": skips made in that unit, apart from skip_policy"),
    ROW(k, DP_FIELD_INTEGER, 1, 1e9, "values a sample that a compressed skip keeps"),
    ROW(recompute, DP_FIELD_NODE, 0, 0, "\"none\", \"all\", \"auto\" (what memory needs), or a list of unit names or indices"),
    ROW(devices, DP_FIELD_NODE, 0, 0, "device of each worker: by replica, tensor member, stage; default in order"),
    ROW(gradient_buckets, DP_FIELD_INTEGER, 1, 255, "parts of a gradient's all-reduce; default 4"),
    {"transport", DP_FIELD_CHOICE, offsetof(plan_keys, transport), false, 0, 0, plan_transport_names,
     "how workers of one machine exchange data: peer copies, NCCL, or through pinned host memory; default auto: by "
     "topology"},
    ROW(nccl_sms, DP_FIELD_INTEGER, 0, 65536,
        "multiprocessors of each device kept for NCCL, compute has the others; default 0: they share all"),
};
#undef ROW

static dp_status read_split(const dp_node *node, plan_scenario *scenario, dp_error *error) {
  if (node->kind == DP_NODE_STRING) {
    char shown[80];
    scenario->even_split = strcmp(node->string, "even") == 0;
    if (scenario->even_split || strcmp(node->string, "balanced") == 0) return DP_OK;
    return dp_fail_at(error, node, "plan.split: found %s, allowed: \"balanced\", \"even\", or a list of cut points",
                      dp_node_show(node, shown));
  }
  DP_TRY(dp_schema_read_integers(node, "plan.split", 1, 65535, &scenario->arena, &scenario->split,
                                 &scenario->split_count, error));
  for (size_t i = 1; i < scenario->split_count; i++)
    if (scenario->split[i] <= scenario->split[i - 1])
      return dp_fail_at(error, node->kind == DP_NODE_ARRAY ? node->items[i] : node,
                        "plan.split: found %lld after %lld, allowed: ascending cut points",
                        (long long)scenario->split[i], (long long)scenario->split[i - 1]);
  return DP_OK;
}

static dp_status read_recompute(const dp_node *node, plan_scenario *scenario, dp_error *error) {
  char shown[80];
  for (int r = 0; node->kind == DP_NODE_STRING && r < PLAN_RECOMPUTE_CHOICES; r++)
    if (strcmp(node->string, plan_recompute_names[r]) == 0) {
      scenario->recompute = (plan_recompute)r;
      return DP_OK;
    }
  if (node->kind != DP_NODE_ARRAY)
    return dp_fail_at(error, node,
                      "plan.recompute: found %s, allowed: none, all, auto, or a list of unit names or indices",
                      dp_node_show(node, shown));
  scenario->recompute = PLAN_RECOMPUTE_LISTED;
  scenario->recompute_list = node;
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    if (item->kind != DP_NODE_STRING && !(item->kind == DP_NODE_INTEGER && item->integer >= 0))
      return dp_fail_at(error, item, "plan.recompute: found %s, allowed: unit names or indices from 0",
                        dp_node_show(item, shown));
  }
  return DP_OK;
}

/* The unit is looked up when the graph is there. */
static dp_status read_skips(const dp_node *node, plan_scenario *scenario, bool *compress, dp_error *error) {
  char shown[80];
  if (node->kind != DP_NODE_ARRAY)
    return dp_fail_at(error, node, "plan.skips: found %s, allowed: a list of \"UNIT=POLICY\"", dp_node_show(node, shown));
  const char **skips = DP_ARENA_NEW(&scenario->arena, const char *, node->count);
  if (!skips) return dp_fail_memory(error);
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    const char *equals = item->kind == DP_NODE_STRING ? strrchr(item->string, '=') : NULL;
    int policy = 0;
    while (equals && plan_skip_policy_names[policy] && strcmp(equals + 1, plan_skip_policy_names[policy]) != 0) policy++;
    if (!equals || equals == item->string || !plan_skip_policy_names[policy])
      return dp_fail_at(error, item,
                        "plan.skips: found %s, allowed: \"UNIT=POLICY\" with direct, relay, compress or local",
                        dp_node_show(item, shown));
    *compress = *compress || policy == PLAN_SKIP_COMPRESS;
    skips[i] = item->string;
  }
  scenario->skips = skips;
  scenario->skip_count = node->count;
  scenario->skips_node = node;
  return DP_OK;
}

static dp_status read_plan(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  plan_keys keys = {.schedule = -1, .skip_policy = -1};
  DP_TRY(dp_schema_read(table, scenario->document.root, "plan", plan_fields, DP_COUNT_OF(plan_fields), &keys, error));
  scenario->stages = keys.stages;
  scenario->chunks = keys.chunks;
  scenario->data_parallel = keys.data_parallel;
  scenario->tensor_parallel = keys.tensor_parallel;
  scenario->microbatches = keys.microbatches;
  scenario->microbatch_size = keys.microbatch_size;
  scenario->k = keys.k;
  scenario->gradient_buckets = keys.gradient_buckets;
  scenario->schedule = keys.schedule;
  scenario->skip_policy = keys.skip_policy;
  scenario->transport = (plan_transport)keys.transport;
  scenario->nccl_sms = keys.nccl_sms;
  if (keys.split) DP_TRY(read_split(keys.split, scenario, error));
  if (keys.recompute) DP_TRY(read_recompute(keys.recompute, scenario, error));
  if (keys.devices)
    DP_TRY(dp_schema_read_integers(keys.devices, "plan.devices", 0, (int64_t)scenario->cluster.devices.count - 1,
                                   &scenario->arena, &scenario->device_map, &scenario->device_map_count, error));
  bool compress = keys.skip_policy == PLAN_SKIP_COMPRESS;
  if (keys.skips) DP_TRY(read_skips(keys.skips, scenario, &compress, error));
  if (compress && !keys.k)
    return dp_fail_at(
        error, dp_node_get(table, keys.skip_policy == PLAN_SKIP_COMPRESS ? "skip_policy" : "skips"),
        "plan.%s: found \"compress\" without k, needed: k, the values a sample that a skip keeps",
        keys.skip_policy == PLAN_SKIP_COMPRESS ? "skip_policy" : "skips");
  if (keys.k && !compress)
    return dp_fail_at(error, dp_node_get(table, "k"),
                      "plan.k: found with skip_policy = \"%s\", allowed: only with \"compress\"",
                      plan_skip_policy_names[keys.skip_policy < 0 ? PLAN_SKIP_DIRECT : keys.skip_policy]);
  return DP_OK;
}

/* ---- [search]: read again by the tuner; here so that a typing error is never silent ---- */

typedef struct search_keys {
  const dp_node *stages, *data_parallel, *tensor_parallel, *chunks, *microbatch_sizes, *schedules, *skip_policies, *k, *recompute,
      *transports, *nccl_sms;
  int64_t max_stages, max_trials;
  double max_seconds;
  bool allow_lossy_skips;
} search_keys;

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(search_keys, key), false, min, max, NULL, help }
static const dp_field search_fields[] = {
    ROW(stages, DP_FIELD_NODE, 0, 0, "list or range of stage counts to try; default all that the devices allow"),
    ROW(max_stages, DP_FIELD_INTEGER, 1, 65536, "default the number of devices"),
    ROW(data_parallel, DP_FIELD_NODE, 0, 0, "list or range of replica counts to try"),
    ROW(tensor_parallel, DP_FIELD_NODE, 0, 0, "list or range of tensor group sizes to try; default 1, 2, 4, 8 in a node"),
    ROW(chunks, DP_FIELD_NODE, 0, 0, "list or range of chunks a worker to try, interleaved"),
    ROW(microbatch_sizes, DP_FIELD_NODE, 0, 0, "list or range of microbatch sizes to try"),
    ROW(schedules, DP_FIELD_NODE, 0, 0, "list of schedules to try"),
    ROW(skip_policies, DP_FIELD_NODE, 0, 0, "list of skip policies to try"),
    ROW(k, DP_FIELD_NODE, 0, 0, "list or range of values a sample to try with compress"),
    ROW(allow_lossy_skips, DP_FIELD_BOOLEAN, 0, 0, "whether compress may be proposed; default false"),
    ROW(recompute, DP_FIELD_NODE, 0, 0, "list of none, all, auto; default auto: what memory needs"),
    ROW(transports, DP_FIELD_NODE, 0, 0, "list of transports to try; default auto"),
    ROW(nccl_sms, DP_FIELD_NODE, 0, 0, "list or range of multiprocessors to try to keep for NCCL; default 0"),
    ROW(max_trials, DP_FIELD_INTEGER, 1, 1e9, "plans to simulate at most"),
    ROW(max_seconds, DP_FIELD_REAL, 0.001, 1e9, "time to search at most"),
};
#undef ROW

static dp_status check_choices(const dp_node *node, const char *what, const char *const *choices, dp_error *error) {
  if (!node) return DP_OK;
  dp_status status = DP_OK;
  const size_t count = node->kind == DP_NODE_ARRAY ? node->count : 1;
  for (size_t i = 0; i < count && status == DP_OK; i++) {
    const dp_node *item = node->kind == DP_NODE_ARRAY ? node->items[i] : node;
    int c = 0;
    while (choices[c] && (item->kind != DP_NODE_STRING || strcmp(choices[c], item->string) != 0)) c++;
    if (choices[c]) continue;
    dp_allowed allowed = {.given = item->kind == DP_NODE_STRING ? item->string : NULL};
    for (c = 0; choices[c]; c++) dp_allowed_add(&allowed, choices[c]);
    char shown[80];
    status = dp_fail_at(error, item, "%s: found %s, %s", what, dp_node_show(item, shown), dp_allowed_text(&allowed));
    dp_allowed_free(&allowed);
  }
  return status;
}

static dp_status check_integers_from(const dp_node *node, const char *what, int64_t min, int64_t max,
                                     plan_scenario *scenario, dp_error *error) {
  int64_t *values = NULL;
  size_t count = 0;
  return node ? dp_range_read_integers(node, what, min, max, &scenario->arena, &values, &count, error) : DP_OK;
}

static dp_status check_integers(const dp_node *node, const char *what, int64_t max, plan_scenario *scenario,
                                dp_error *error) {
  return check_integers_from(node, what, 1, max, scenario, error);
}

static dp_status read_search(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  search_keys keys = {0};
  DP_TRY(dp_schema_read(table, scenario->document.root, "search", search_fields, DP_COUNT_OF(search_fields), &keys,
                        error));
  DP_TRY(check_integers(keys.stages, "search.stages", 65536, scenario, error));
  DP_TRY(check_integers(keys.data_parallel, "search.data_parallel", 65536, scenario, error));
  DP_TRY(check_integers(keys.tensor_parallel, "search.tensor_parallel", GRAPH_MAX_TENSOR_PARALLEL, scenario, error));
  DP_TRY(check_integers(keys.chunks, "search.chunks", 65535, scenario, error));
  DP_TRY(check_integers(keys.microbatch_sizes, "search.microbatch_sizes", 65536, scenario, error));
  DP_TRY(check_integers(keys.k, "search.k", 1000000000, scenario, error));
  DP_TRY(check_choices(keys.schedules, "search.schedules", plan_schedule_names, error));
  DP_TRY(check_choices(keys.skip_policies, "search.skip_policies", plan_skip_policy_names, error));
  DP_TRY(check_choices(keys.recompute, "search.recompute", plan_recompute_names, error));
  DP_TRY(check_choices(keys.transports, "search.transports", plan_transport_names, error));
  DP_TRY(check_integers_from(keys.nccl_sms, "search.nccl_sms", 0, 65536, scenario, error));
  scenario->search = table;
  return DP_OK;
}

/* ---- [cluster] ---- */

/* The table without `profile`, which is no key of a cluster. */
static const dp_node *without_profile(const dp_node *table, dp_arena *arena) {
  if (!dp_node_get(table, "profile")) return table;
  dp_node *bare = DP_ARENA_NEW(arena, dp_node, 1);
  if (!bare) return NULL;
  *bare = *table;
  bare->items = DP_ARENA_NEW(arena, dp_node *, table->count);
  bare->count = bare->capacity = 0;
  if (!bare->items) return NULL;
  for (size_t i = 0; i < table->count; i++)
    if (strcmp(table->items[i]->key, "profile") != 0) bare->items[bare->count++] = table->items[i];
  return bare;
}

static dp_status read_cluster(const dp_node *whole, plan_scenario *scenario, dp_error *error) {
  const dp_node *file = dp_node_get(whole, "file");
  char shown[80];
  if (whole->kind != DP_NODE_TABLE)
    return dp_fail_at(error, whole, "cluster: found %s, allowed: a table", dp_node_show(whole, shown));
  const dp_node *table = without_profile(whole, &scenario->arena);
  if (!table) return dp_fail_memory(error);
  if (!file) {
    if (table->count == 0)
      return dp_fail_at(error, table,
                        "cluster: found neither file nor node, needed: a cluster file or [[cluster.node]]");
    return plan_cluster_build(table, &scenario->catalogue, &scenario->cluster, error);
  }
  for (size_t i = 0; i < table->count; i++)
    if (table->items[i] != file)
      return dp_fail_at(error, table->items[i], "cluster.%.60s: found beside file, allowed: one of the two",
                        table->items[i]->key);
  if (file->kind != DP_NODE_STRING || !file->string[0])
    return dp_fail_at(error, file, "cluster.file: found %s, allowed: the path of a cluster file",
                      dp_node_show(file, shown));
  const char *path = NULL;
  DP_TRY(plan_scenario_resolve(scenario, file, "cluster.file", &path, error));
  return plan_cluster_read(path, &scenario->catalogue, &scenario->cluster_document, &scenario->cluster, error);
}

/* ---- [cluster] profile ---- */

static bool is_of_job(const plan_scenario *scenario, const plan_profile *profile) {
  return strcmp(profile->implementation, scenario->implementation) == 0 &&
         profile->precision == scenario->model_options.precision;
}

const plan_profile *plan_scenario_profile(const plan_scenario *scenario, const plan_device *device) {
  const plan_profile *profile = scenario->profile;
  if (!profile || scenario->synthetic || !is_of_job(scenario, profile)) return NULL;
  return strcmp(profile->device, device->model->name) == 0 ? profile : NULL;
}

/* `anywhere`: the cluster is one of several, and this may be the profile of another. */
static dp_status read_profile(const dp_node *node, bool anywhere, plan_scenario *scenario, dp_error *error) {
  char shown[80];
  if (!node) return DP_OK;
  if (node->kind != DP_NODE_STRING || !node->string[0])
    return dp_fail_at(error, node, "cluster.profile: found %s, allowed: the path of a profile.json",
                      dp_node_show(node, shown));
  DP_TRY(plan_scenario_resolve(scenario, node, "cluster.profile", &scenario->profile_path, error));
  plan_profile *profile = DP_ARENA_NEW(&scenario->arena, plan_profile, 1);
  if (!profile) return dp_fail_memory(error);
  DP_TRY(plan_profile_read(scenario->profile_path, profile, error));
  scenario->profile = profile;
  /* What runs on GPUs is known by its profile; without one, what is compared is what others run. */
  const char *key = plan_scenario_node(scenario, "task", "implementation")->key;
  if (strcmp(profile->implementation, "cuda") == 0 && !(key && strcmp(key, "implementation") == 0))
    scenario->implementation = profile->implementation;
  if (anywhere || scenario->synthetic) return DP_OK;
  if (!is_of_job(scenario, profile))
    return dp_fail_at(error, node, "cluster.profile: found one of %s in %s, allowed: of %s in %s, as the job runs",
                      profile->implementation, graph_dtype_name(profile->precision), scenario->implementation,
                      graph_dtype_name(scenario->model_options.precision));
  for (size_t d = 0; d < scenario->cluster.devices.count; d++)
    if (plan_scenario_profile(scenario, &scenario->cluster.devices.items[d])) return DP_OK;
  return dp_fail_at(error, node, "cluster.profile: found one of %.60s, allowed: of a device of the cluster (%.60s)",
                    profile->device, scenario->cluster.devices.items[0].model->name);
}

/* ---- the file ---- */

typedef struct file_keys {
  const char *format, *name;
  int64_t version;
  const dp_node *model, *task, *cluster, *plan, *search, *link, *device, *host, *whatif, *train, *data, *monitor;
} file_keys;

static const dp_field file_fields[] = {
    {"format", DP_FIELD_STRING, offsetof(file_keys, format), true, 0, 0, NULL, "diffpipe-scenario"},
    {"version", DP_FIELD_INTEGER, offsetof(file_keys, version), true, 1, 1, NULL, "1"},
    {"name", DP_FIELD_STRING, offsetof(file_keys, name), false, 0, 0, NULL, "default the file's name"},
    {"model", DP_FIELD_NODE, offsetof(file_keys, model), true, 0, 0, NULL, "[model], with config or synthetic_units"},
    {"task", DP_FIELD_NODE, offsetof(file_keys, task), false, 0, 0, NULL, "[task]"},
    {"cluster", DP_FIELD_NODE, offsetof(file_keys, cluster), true, 0, 0, NULL, "[cluster], with file or [[cluster.node]]"},
    {"plan", DP_FIELD_NODE, offsetof(file_keys, plan), false, 0, 0, NULL, "[plan]"},
    {"search", DP_FIELD_NODE, offsetof(file_keys, search), false, 0, 0, NULL, "[search]"},
    {"link", DP_FIELD_NODE, offsetof(file_keys, link), false, 0, 0, NULL, "[link]: what is changed of the cluster's"},
    {"device", DP_FIELD_NODE, offsetof(file_keys, device), false, 0, 0, NULL, "[device]: what is changed of its cards"},
    {"host", DP_FIELD_NODE, offsetof(file_keys, host), false, 0, 0, NULL, "[host]: what is changed of its machines"},
    {"whatif", DP_FIELD_NODE, offsetof(file_keys, whatif), false, 0, 0, NULL, "[whatif]"},
    {"train", DP_FIELD_NODE, offsetof(file_keys, train), false, 0, 0, NULL, "[train]"},
    {"data", DP_FIELD_NODE, offsetof(file_keys, data), false, 0, 0, NULL, "[data]"},
    {"monitor", DP_FIELD_NODE, offsetof(file_keys, monitor), false, 0, 0, NULL, "[monitor]"},
};

/* "scenarios/sdxl.toml" -> "sdxl" */
static const char *stem(dp_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  const char *base = slash ? slash + 1 : path;
  const char *dot = strrchr(base, '.');
  return dp_arena_printf(arena, "%.*s", (int)(dot && dot > base ? dot - base : (ptrdiff_t)strlen(base)), base);
}

/* [plan] is not looked at, but for typing errors and, without task.global_batch, for the batch that it makes. */
static dp_status read_job(const file_keys *file, plan_scenario *scenario, dp_error *error) {
  const dp_node *root = scenario->document.root;
  plan_keys keys = {.schedule = -1, .skip_policy = -1};
  DP_TRY(dp_schema_read(file->plan, root, "plan", plan_fields, DP_COUNT_OF(plan_fields), &keys, error));
  if (!scenario->global_batch && keys.microbatches)
    scenario->global_batch = keys.microbatches * (keys.microbatch_size ? keys.microbatch_size : 1) *
                             (keys.data_parallel ? keys.data_parallel : 1);
  if (!scenario->global_batch || scenario->global_batch > 1000000000)
    return dp_fail_at(error, file->task ? file->task : root,
                      "task: the key \"global_batch\" is missing, needed: samples a step, 1 to 1000000000, for plans to be "
                      "compared by");
  DP_TRY(read_plan(NULL, scenario, error));
  scenario->stages = 1;
  return DP_OK;
}

static dp_status read_root(plan_scenario *scenario, const char *cluster_file, dp_error *error) {
  const dp_node *root = scenario->document.root;
  DP_TRY(dp_schema_check_format(root, "diffpipe-scenario", 1, error));
  file_keys keys = {0};
  DP_TRY(dp_schema_read(root, NULL, "scenario", file_fields, DP_COUNT_OF(file_fields), &keys, error));
  scenario->name = keys.name ? keys.name : stem(&scenario->arena, scenario->document.file);
  if (!scenario->name) return dp_fail_memory(error);
  DP_TRY(read_model(keys.model, scenario, error));
  DP_TRY(read_task(keys.task, scenario, error));
  DP_TRY(plan_scenario_read_train(keys.train, scenario, error));
  DP_TRY(plan_scenario_read_data(keys.data, scenario, error));
  DP_TRY(plan_scenario_read_monitor(keys.monitor, scenario, error));
  DP_TRY(plan_catalogue_read(NULL, &scenario->catalogue, error));
  DP_TRY(cluster_file ? plan_cluster_read(cluster_file, &scenario->catalogue, &scenario->cluster_document,
                                          &scenario->cluster, error)
                      : read_cluster(keys.cluster, scenario, error));
  DP_TRY(plan_cluster_change(root, &scenario->catalogue, &scenario->cluster, error));
  DP_TRY(read_profile(dp_node_get(keys.cluster, "profile"), cluster_file != NULL, scenario, error));
  DP_TRY(scenario->job_only ? read_job(&keys, scenario, error) : read_plan(keys.plan, scenario, error));
  DP_TRY(read_search(keys.search, scenario, error));
  DP_TRY(plan_scenario_read_whatif(keys.whatif, scenario, error));
  plan_plan plan = {0};
  DP_TRY(plan_scenario_plan(scenario, &plan, error)); /* contradictions show now */
  plan_plan_free(&plan);
  return DP_OK;
}

static dp_status finish(plan_scenario *made, const char *cluster_file, plan_scenario *scenario, dp_error *error) {
  const dp_status status = read_root(made, cluster_file, error);
  if (status != DP_OK)
    plan_scenario_free(made);
  else
    *scenario = *made;
  return status;
}

dp_status plan_scenario_read_from(const plan_scenario_source *source, plan_scenario *scenario, dp_error *error) {
  plan_scenario made = {.job_only = source->job_only};
  DP_TRY(dp_document_read(source->path, &made.document, error));
  for (int i = 0; i < source->set_count; i++) {
    dp_status status = DP_OK;
    if (made.document.root->kind == DP_NODE_TABLE) status = dp_document_set(&made.document, source->sets[i], error);
    if (status != DP_OK) {
      plan_scenario_free(&made);
      return status;
    }
  }
  return finish(&made, source->cluster_file, scenario, error);
}

dp_status plan_scenario_read(const char *path, const char *const *sets, int set_count, plan_scenario *scenario,
                             dp_error *error) {
  const plan_scenario_source source = {.path = path, .sets = sets, .set_count = set_count};
  return plan_scenario_read_from(&source, scenario, error);
}

dp_status plan_scenario_read_job(const char *path, const char *const *sets, int set_count, plan_scenario *scenario,
                                 dp_error *error) {
  const plan_scenario_source source = {.path = path, .sets = sets, .set_count = set_count, .job_only = true};
  return plan_scenario_read_from(&source, scenario, error);
}

dp_status plan_scenario_parse(const char *text, size_t length, const char *name, plan_scenario *scenario,
                              dp_error *error) {
  plan_scenario made = {0};
  DP_TRY(dp_document_parse_toml(text, length, name, &made.document, error));
  return finish(&made, NULL, scenario, error);
}

void plan_scenario_free(plan_scenario *scenario) {
  if (scenario->profile) plan_profile_free(scenario->profile);
  plan_cluster_free(&scenario->cluster);
  plan_catalogue_free(&scenario->catalogue);
  dp_document_free(&scenario->cluster_document);
  dp_document_free(&scenario->document);
  dp_arena_free(&scenario->arena);
  *scenario = (plan_scenario){0};
}

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

size_t plan_scenario_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"the top of the file", file_fields, DP_COUNT_OF(file_fields)},
      {"[model]", model_fields, DP_COUNT_OF(model_fields)},
      {"[task]", task_fields, DP_COUNT_OF(task_fields)},
      {"[plan]", plan_fields, DP_COUNT_OF(plan_fields)},
      {"[search]", search_fields, DP_COUNT_OF(search_fields)},
      {"[whatif]", plan_whatif_fields, PLAN_WHATIF_FIELD_COUNT},
      {"[train]", plan_train_fields, PLAN_TRAIN_FIELD_COUNT},
      {"[data]", plan_data_fields, PLAN_DATA_FIELD_COUNT},
      {"[monitor]", plan_monitor_fields, PLAN_MONITOR_FIELD_COUNT},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}
