/* [train] and [data] of a scenario. Files that they name are looked for when something is trained: a plan is predicted
 * on machines that have neither data nor weights. */
#include <stdio.h>

#include "plan/scenario_reader.h"

const char *const plan_objective_names[] = {"epsilon", "v_prediction", "sample", "flow", NULL};
const char *const plan_rate_schedule_names[] = {"constant", "cosine", "linear", NULL};

/* ---- [train] ---- */

typedef struct train_keys {
  const char *scheduler, *weights;
  double min_snr_gamma, guidance, learning_rate, epsilon, weight_decay, lr_floor, clip_norm, ema_decay, lora_alpha;
  int64_t warmup_steps, seed, threads, checkpoint_every, keep_checkpoints, evaluate_every, evaluate_samples, psnr_every;
  int objective, lr_schedule;
  bool deterministic;
  const dp_node *betas, *stage_rates, *lora_targets;
} train_keys;

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(train_keys, key), false, min, max, NULL, help }
#define CHOICE(key, choices, help) \
  { #key, DP_FIELD_CHOICE, offsetof(train_keys, key), false, 0, 0, choices, help }
const dp_field plan_train_fields[PLAN_TRAIN_FIELD_COUNT] = {
    CHOICE(objective, plan_objective_names,
           "what the model learns to tell; default by the scheduler, else epsilon for UNets, flow for the others"),
    ROW(scheduler, DP_FIELD_STRING, 0, 0,
        "a scheduler_config.json of diffusers; default Stable Diffusion's (scaled_linear, 0.00085 to 0.012) for UNets, "
        "flow with shift 3 for SD 3, with shift 1 for Flux"),
    ROW(min_snr_gamma, DP_FIELD_REAL, 0, 1e6,
        "bound of a sample's weight by its noise (min-SNR); default 0: all alike"),
    ROW(guidance, DP_FIELD_REAL, 0, 1000, "given to models that take one (Flux dev); default 1"),
    ROW(learning_rate, DP_FIELD_REAL, 0, 100, "default 1e-4"),
    ROW(betas, DP_FIELD_NODE, 0, 0, "AdamW's two, each below 1; default [0.9, 0.999]"),
    ROW(epsilon, DP_FIELD_REAL, 1e-30, 1, "AdamW's; default 1e-8"),
    ROW(weight_decay, DP_FIELD_REAL, 0, 100, "of AdamW, decoupled; default 0.01"),
    CHOICE(lr_schedule, plan_rate_schedule_names, "how the rate falls to lr_floor at the last step; default constant"),
    ROW(warmup_steps, DP_FIELD_INTEGER, 0, 1e9, "in which the rate rises evenly from 0; default 0"),
    ROW(lr_floor, DP_FIELD_REAL, 0, 1, "least part of learning_rate, with cosine and linear; default 0"),
    ROW(stage_rates, DP_FIELD_NODE, 0, 0, "list of a factor of the rate for each stage; default all 1"),
    ROW(clip_norm, DP_FIELD_REAL, 0, 1e9, "most that all gradients together may measure, 0: not clipped; default 1, without [train] 0"),
    ROW(ema_decay, DP_FIELD_REAL, 0, 0.999999, "of running means of the weights; default 0: none are kept"),
    ROW(lora_alpha, DP_FIELD_REAL, 1e-6, 1e6, "adapters are scaled by lora_alpha / lora_rank; default lora_rank"),
    ROW(lora_targets, DP_FIELD_NODE, 0, 0,
        "list of ends of names of linear layers (\"to_q\", \"ff.net.0.proj\"); default the attention projections"),
    ROW(seed, DP_FIELD_INTEGER, 0, 9e15, "of noise, timesteps, order of the data and first weights; default 0"),
    ROW(weights, DP_FIELD_STRING, 0, 0,
        "a folder of diffusers to begin from; default drawn by the seed, doc/training.md"),
    ROW(threads, DP_FIELD_INTEGER, 1, 1024, "of each worker's kernels; default its device's cores; of a GPU, the processors shared evenly"),
    ROW(deterministic, DP_FIELD_BOOLEAN, 0, 0,
        "a step has the same bits each time; false: GPUs add up in any order where that is faster; default true"),
    ROW(checkpoint_every, DP_FIELD_INTEGER, 0, 1e9, "steps; default 0: one at the end"),
    ROW(keep_checkpoints, DP_FIELD_INTEGER, 0, 1e6, "the newest so many; default 3; 0: all"),
    ROW(evaluate_every, DP_FIELD_INTEGER, 0, 1e9, "steps; default 0: never"),
    ROW(evaluate_samples, DP_FIELD_INTEGER, 1, 1e6, "rounded up to whole batches; default one global batch"),
    ROW(psnr_every, DP_FIELD_INTEGER, 0, 1e9, "steps between two measurements of compressed skips; default 0: none"),
};
#undef CHOICE
#undef ROW

static bool is_number(const dp_node *node) { return node->kind == DP_NODE_REAL || node->kind == DP_NODE_INTEGER; }

static dp_status read_betas(const dp_node *node, double betas[2], dp_error *error) {
  char shown[80];
  if (node->kind != DP_NODE_ARRAY || node->count != 2)
    return dp_fail_at(error, node, "train.betas: found %s, allowed: a list of two numbers from 0 to below 1",
                      dp_node_show(node, shown));
  for (size_t i = 0; i < 2; i++) {
    const dp_node *item = node->items[i];
    if (!is_number(item) || item->real < 0 || item->real >= 1)
      return dp_fail_at(error, item, "train.betas: found %s, allowed: numbers from 0 to below 1",
                        dp_node_show(item, shown));
    betas[i] = item->real;
  }
  return DP_OK;
}

/* How many there must be is known when a plan is run. */
static dp_status read_stage_rates(const dp_node *node, plan_scenario *scenario, dp_error *error) {
  char shown[80];
  if (node->kind != DP_NODE_ARRAY || node->count == 0)
    return dp_fail_at(error, node, "train.stage_rates: found %s, allowed: a list of numbers from 0, one a stage",
                      dp_node_show(node, shown));
  double *rates = DP_ARENA_NEW(&scenario->arena, double, node->count);
  if (!rates) return dp_fail_memory(error);
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    if (!is_number(item) || item->real < 0 || item->real > 1e6)
      return dp_fail_at(error, item, "train.stage_rates: found %s, allowed: numbers from 0 to 1e6",
                        dp_node_show(item, shown));
    rates[i] = item->real;
  }
  scenario->train.stage_rates = rates;
  scenario->train.stage_rate_count = node->count;
  return DP_OK;
}

static dp_status read_targets(const dp_node *node, plan_scenario *scenario, dp_error *error) {
  char shown[80];
  if (node->kind != DP_NODE_ARRAY || node->count == 0)
    return dp_fail_at(error, node, "train.lora_targets: found %s, allowed: a list of ends of names of linear layers",
                      dp_node_show(node, shown));
  const char **targets = DP_ARENA_NEW(&scenario->arena, const char *, node->count);
  if (!targets) return dp_fail_memory(error);
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    if (item->kind != DP_NODE_STRING || !item->string[0])
      return dp_fail_at(error, item, "train.lora_targets: found %s, allowed: ends of names of linear layers",
                        dp_node_show(item, shown));
    targets[i] = item->string;
  }
  scenario->model_options.lora_targets = targets;
  scenario->model_options.lora_target_count = node->count;
  return DP_OK;
}

static const char *const lora_keys[] = {"lora_alpha", "lora_targets"};

dp_status plan_scenario_read_train(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  train_keys keys = {.guidance = 1,
                     .learning_rate = 1e-4,
                     .epsilon = 1e-8,
                     .weight_decay = 0.01,
                     .clip_norm = table ? 1 : 0,
                     .keep_checkpoints = 3,
                     .objective = -1,
                     .deterministic = true};
  DP_TRY(
      dp_schema_read(table, scenario->document.root, "train", plan_train_fields, PLAN_TRAIN_FIELD_COUNT, &keys, error));
  for (size_t i = 0; i < DP_COUNT_OF(lora_keys) && scenario->model_options.trainable != GRAPH_TRAIN_LORA; i++)
    if (dp_node_get(table, lora_keys[i]))
      return dp_fail_at(error, dp_node_get(table, lora_keys[i]),
                        "train.%s: found with trainable = \"full\", allowed: only with trainable = \"lora\"",
                        lora_keys[i]);
  scenario->train = (plan_train){.objective = keys.objective,
                                 .scheduler = keys.scheduler,
                                 .min_snr_gamma = keys.min_snr_gamma,
                                 .guidance = keys.guidance,
                                 .learning_rate = keys.learning_rate,
                                 .betas = {0.9, 0.999},
                                 .epsilon = keys.epsilon,
                                 .weight_decay = keys.weight_decay,
                                 .rate_schedule = (plan_rate_schedule)keys.lr_schedule,
                                 .warmup_steps = keys.warmup_steps,
                                 .rate_floor = keys.lr_floor,
                                 .clip_norm = keys.clip_norm,
                                 .ema_decay = keys.ema_decay,
                                 .lora_alpha = keys.lora_alpha,
                                 .seed = keys.seed,
                                 .weights = keys.weights,
                                 .threads = keys.threads,
                                 .deterministic = keys.deterministic,
                                 .checkpoint_every = keys.checkpoint_every,
                                 .keep_checkpoints = keys.keep_checkpoints,
                                 .evaluate_every = keys.evaluate_every,
                                 .evaluate_samples = keys.evaluate_samples,
                                 .psnr_every = keys.psnr_every};
  scenario->global_norm = keys.clip_norm > 0;
  if (keys.betas) DP_TRY(read_betas(keys.betas, scenario->train.betas, error));
  if (keys.stage_rates) DP_TRY(read_stage_rates(keys.stage_rates, scenario, error));
  return keys.lora_targets ? read_targets(keys.lora_targets, scenario, error) : DP_OK;
}

/* ---- [data] ---- */

typedef struct data_keys {
  const char *path;
  const dp_node *buckets;
  bool shuffle, trust_cache;
} data_keys;

#define ROW(key, type, help) \
  { #key, type, offsetof(data_keys, key), false, 0, 0, NULL, help }
const dp_field plan_data_fields[PLAN_DATA_FIELD_COUNT] = {
    ROW(path, DP_FIELD_STRING, "a data set's folder or manifest, doc/data.md; needed to train"),
    ROW(buckets, DP_FIELD_NODE, "list of [height, width], pixels; default one, the model's own size"),
    ROW(shuffle, DP_FIELD_BOOLEAN, "another order in each epoch, by train.seed; default true"),
    ROW(trust_cache, DP_FIELD_BOOLEAN, "takes latents and text that were not made for this model; default false"),
};
#undef ROW

static dp_status read_buckets(const dp_node *node, plan_scenario *scenario, dp_error *error) {
  char shown[80];
  if (node->kind != DP_NODE_ARRAY || node->count == 0)
    return dp_fail_at(error, node, "data.buckets: found %s, allowed: a list of [height, width]",
                      dp_node_show(node, shown));
  plan_bucket *buckets = DP_ARENA_NEW(&scenario->arena, plan_bucket, node->count);
  if (!buckets) return dp_fail_memory(error);
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    int64_t *sides = NULL;
    size_t count = 0;
    if (item->kind != DP_NODE_ARRAY || item->count != 2)
      return dp_fail_at(error, item, "data.buckets: found %s, allowed: [height, width]", dp_node_show(item, shown));
    DP_TRY(dp_schema_read_integers(item, "data.buckets", 8, 65536, &scenario->arena, &sides, &count, error));
    buckets[i] = (plan_bucket){sides[0], sides[1]};
  }
  scenario->data.buckets = buckets;
  scenario->data.bucket_count = node->count;
  return DP_OK;
}

dp_status plan_scenario_read_data(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  data_keys keys = {.shuffle = true};
  DP_TRY(dp_schema_read(table, scenario->document.root, "data", plan_data_fields, PLAN_DATA_FIELD_COUNT, &keys, error));
  scenario->data = (plan_data){.path = keys.path, .shuffle = keys.shuffle, .trust_cache = keys.trust_cache};
  return keys.buckets ? read_buckets(keys.buckets, scenario, error) : DP_OK;
}

dp_status plan_scenario_find_training(plan_scenario *scenario, dp_error *error) {
  const struct {
    const char *table, *key;
    const char **path;
  } files[] = {{"train", "scheduler", &scenario->train.scheduler},
               {"train", "weights", &scenario->train.weights},
               {"data", "path", &scenario->data.path}};
  for (size_t i = 0; i < DP_COUNT_OF(files); i++) {
    char what[32];
    if (!*files[i].path) continue;
    (void)snprintf(what, sizeof what, "%s.%s", files[i].table, files[i].key);
    DP_TRY(plan_scenario_resolve(scenario, plan_scenario_node(scenario, files[i].table, files[i].key), what,
                                 files[i].path, error));
  }
  return DP_OK;
}
