/* [plan] of a scenario; and from it and [task] to a plan: every count settled, or the contradiction named at its key. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "plan/scenario_reader.h"
#include "plan/transport.h"

/* ---- the table ---- */

typedef struct plan_keys {
  int64_t stages, chunks, data_parallel, tensor_parallel, microbatches, microbatch_size, k, gradient_buckets, nccl_sms;
  int schedule, skip_policy, transport;
  const dp_node *split, *recompute, *devices, *skips;
} plan_keys;

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(plan_keys, key), false, min, max, NULL, help }
const dp_field plan_plan_fields[PLAN_PLAN_FIELD_COUNT] = {
    ROW(stages, DP_FIELD_INTEGER, 1, 65536,
        "of a replica's pipeline; default devices / data_parallel / tensor_parallel"),
    ROW(split, DP_FIELD_NODE, 0, 0,
        "cut points, ascending unit indices, stages * chunks - 1 of them; or \"balanced\" (equal times of the workers; "
        "folded, fewest bytes among these), \"even\" (equal times of the chunks), or \"auto\" (default: balanced; "
        "folded, the faster of both)"),
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
    ROW(recompute, DP_FIELD_NODE, 0, 0,
        "\"none\", \"all\", \"auto\" (what memory needs), or a list of unit names or indices"),
    ROW(devices, DP_FIELD_NODE, 0, 0, "device of each worker: by replica, tensor member, stage; default in order"),
    ROW(gradient_buckets, DP_FIELD_INTEGER, 1, 255, "parts of a gradient's all-reduce; default 4"),
    {"transport", DP_FIELD_CHOICE, offsetof(plan_keys, transport), false, 0, 0, plan_transport_names,
     "how workers of one machine exchange data: peer copies, NCCL, or through pinned host memory; default auto: by "
     "topology"},
    ROW(nccl_sms, DP_FIELD_INTEGER, 0, 65536,
        "multiprocessors of each device kept for NCCL, compute has the others; default 0: they share all"),
};
#undef ROW

const char *const plan_split_way_names[] = {"auto", "balanced", "even", NULL};

static dp_status read_split(const dp_node *node, plan_scenario *scenario, dp_error *error) {
  if (node->kind == DP_NODE_STRING) {
    char shown[80];
    for (int w = 0; w < PLAN_SPLIT_WAYS; w++)
      if (strcmp(node->string, plan_split_way_names[w]) == 0) {
        scenario->split_way = (plan_split_way)w;
        return DP_OK;
      }
    return dp_fail_at(error, node,
                      "plan.split: found %s, allowed: \"auto\", \"balanced\", \"even\", or a list of cut points",
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
    return dp_fail_at(error, node, "plan.skips: found %s, allowed: a list of \"UNIT=POLICY\"",
                      dp_node_show(node, shown));
  const char **skips = DP_ARENA_NEW(&scenario->arena, const char *, node->count);
  if (!skips) return dp_fail_memory(error);
  for (size_t i = 0; i < node->count; i++) {
    const dp_node *item = node->items[i];
    const char *equals = item->kind == DP_NODE_STRING ? strrchr(item->string, '=') : NULL;
    int policy = 0;
    while (equals && plan_skip_policy_names[policy] && strcmp(equals + 1, plan_skip_policy_names[policy]) != 0)
      policy++;
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

dp_status plan_scenario_read_plan(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  plan_keys keys = {.schedule = -1, .skip_policy = -1};
  DP_TRY(dp_schema_read(table, scenario->document.root, "plan", plan_plan_fields, PLAN_PLAN_FIELD_COUNT, &keys, error));
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
    return dp_fail_at(error, dp_node_get(table, keys.skip_policy == PLAN_SKIP_COMPRESS ? "skip_policy" : "skips"),
                      "plan.%s: found \"compress\" without k, needed: k, the values a sample that a skip keeps",
                      keys.skip_policy == PLAN_SKIP_COMPRESS ? "skip_policy" : "skips");
  if (keys.k && !compress)
    return dp_fail_at(error, dp_node_get(table, "k"),
                      "plan.k: found with skip_policy = \"%s\", allowed: only with \"compress\"",
                      plan_skip_policy_names[keys.skip_policy < 0 ? PLAN_SKIP_DIRECT : keys.skip_policy]);
  return DP_OK;
}

dp_status plan_scenario_read_batch(const dp_node *table, const dp_node *task, plan_scenario *scenario,
                                   dp_error *error) {
  const dp_node *root = scenario->document.root;
  plan_keys keys = {.schedule = -1, .skip_policy = -1};
  DP_TRY(dp_schema_read(table, root, "plan", plan_plan_fields, PLAN_PLAN_FIELD_COUNT, &keys, error));
  if (!scenario->global_batch && keys.microbatches)
    scenario->global_batch = keys.microbatches * (keys.microbatch_size ? keys.microbatch_size : 1) *
                             (keys.data_parallel ? keys.data_parallel : 1);
  if (!scenario->global_batch || scenario->global_batch > 1000000000)
    return dp_fail_at(
        error, task ? task : root,
        "task: the key \"global_batch\" is missing, needed: samples a step, 1 to 1000000000, for plans to be "
        "compared by");
  DP_TRY(plan_scenario_read_plan(NULL, scenario, error));
  scenario->stages = 1;
  return DP_OK;
}

/* ---- the plan ---- */

enum { MAX_COMPUTE_STEPS = 1 << 22, MAX_CHUNKS = 65535, MAX_CHUNK_UNITS = 1 << 26 };

typedef struct counts {
  int64_t devices, stages, replicas, tensor, chunks, microbatches, microbatch_size, steps;
} counts;

static dp_status settle_workers(const plan_scenario *s, counts *c, dp_error *error) {
  const char *where = s->device_map_count ? "entries of plan.devices" : "devices of the cluster";
  c->devices = s->device_map_count ? (int64_t)s->device_map_count : (int64_t)s->cluster.devices.count;
  c->replicas = s->data_parallel ? s->data_parallel : 1;
  if (c->replicas > c->devices)
    return dp_fail_at(error, plan_scenario_node(s, "plan", "data_parallel"),
                      "plan.data_parallel: found %lld, allowed: at most %lld, the %s", (long long)c->replicas,
                      (long long)c->devices, where);
  c->tensor = s->tensor_parallel ? s->tensor_parallel : 1;
  if (s->synthetic && c->tensor > 1)
    return dp_fail_at(error, plan_scenario_node(s, "plan", "tensor_parallel"),
                      "plan.tensor_parallel: found %lld with synthetic units, allowed: 1", (long long)c->tensor);
  if (c->tensor * c->replicas > c->devices)
    return dp_fail_at(
        error, plan_scenario_node(s, "plan", "tensor_parallel"),
        "plan.tensor_parallel: found %lld with data_parallel = %lld, allowed: at most %lld, since there are "
        "%lld %s",
        (long long)c->tensor, (long long)c->replicas, (long long)(c->devices / c->replicas), (long long)c->devices,
        where);
  const int64_t copies = c->replicas * c->tensor;
  char tensor[48] = "";
  if (c->tensor > 1) (void)snprintf(tensor, sizeof tensor, " and tensor_parallel = %lld", (long long)c->tensor);
  c->stages = s->stages ? s->stages : c->devices / copies;
  if (c->stages * copies > c->devices)
    return dp_fail_at(
        error, plan_scenario_node(s, "plan", "stages"),
        "plan.stages: found %lld with data_parallel = %lld%s, %lld workers, allowed: at most %lld stages, "
        "since there are %lld %s",
        (long long)c->stages, (long long)c->replicas, tensor, (long long)(c->stages * copies),
        (long long)(c->devices / copies), (long long)c->devices, where);
  if (c->tensor > 1) (void)snprintf(tensor, sizeof tensor, " * %lld tensor members", (long long)c->tensor);
  if (s->device_map_count && c->stages * copies != c->devices)
    return dp_fail_at(error, plan_scenario_node(s, "plan", "devices"),
                      "plan.devices: found %lld entries for %lld stages * %lld replicas%s, allowed: %lld",
                      (long long)c->devices, (long long)c->stages, (long long)c->replicas, tensor,
                      (long long)(c->stages * copies));
  return DP_OK;
}

static dp_status settle_chunks(const plan_scenario *s, plan_schedule schedule, counts *c, dp_error *error) {
  const bool v_shaped = schedule == PLAN_FOLDED || schedule == PLAN_ZB_V;
  const bool several = v_shaped || schedule == PLAN_INTERLEAVED;
  c->chunks = s->chunks ? s->chunks : several ? 2 : 1;
  if (v_shaped && c->chunks != 2)
    return dp_fail_at(error, plan_scenario_node(s, "plan", "chunks"),
                      "plan.chunks: found %lld with schedule = \"%s\", allowed: 2", (long long)c->chunks,
                      plan_schedule_names[schedule]);
  if (!several && c->chunks != 1)
    return dp_fail_at(
        error, plan_scenario_node(s, "plan", "chunks"),
        "plan.chunks: found %lld with schedule = \"%s\", allowed: 1 (interleaved, folded and zb-v take more)",
        (long long)c->chunks, plan_schedule_names[schedule]);
  const int64_t all = c->stages * c->chunks;
  if (all > MAX_CHUNKS)
    return dp_fail_at(error, plan_scenario_node(s, "plan", c->chunks > 1 ? "chunks" : "stages"),
                      "plan: found %lld stages of %lld chunks, %lld in all, allowed: at most %d", (long long)c->stages,
                      (long long)c->chunks, (long long)all, MAX_CHUNKS);
  if (s->synthetic && all > s->synthetic_options.units)
    return dp_fail_at(
        error, plan_scenario_node(s, "plan", "stages"),
        "plan.stages: found %lld stages of %lld chunks, allowed: at most %lld chunks in all, the model's units",
        (long long)c->stages, (long long)c->chunks, (long long)s->synthetic_options.units);
  /* what splitting and laying out take grows with this product; 8192 chunks of 8192 units pass */
  if (s->synthetic && all * s->synthetic_options.units > MAX_CHUNK_UNITS)
    return dp_fail_at(error, plan_scenario_node(s, "plan", c->chunks > 1 ? "chunks" : "stages"),
                      "plan: found %lld chunks of %lld synthetic units, allowed: at most %lld chunks of so many units",
                      (long long)all, (long long)s->synthetic_options.units,
                      (long long)(MAX_CHUNK_UNITS / s->synthetic_options.units));
  if (s->split_count && (int64_t)s->split_count != all - 1)
    return dp_fail_at(error, plan_scenario_node(s, "plan", "split"),
                      "plan.split: found %zu cut point%s, allowed: %lld (stages * chunks - 1)", s->split_count,
                      s->split_count == 1 ? "" : "s", (long long)(all - 1));
  if (s->synthetic && s->split_count && s->split[s->split_count - 1] >= s->synthetic_options.units)
    return dp_fail_at(error, plan_scenario_node(s, "plan", "split"),
                      "plan.split: found %lld, allowed: at most %lld (units - 1)",
                      (long long)s->split[s->split_count - 1], (long long)(s->synthetic_options.units - 1));
  return DP_OK;
}

/* global_batch = microbatches * microbatch_size * data_parallel */
static dp_status settle_batch(const plan_scenario *s, counts *c, dp_error *error) {
  const int64_t batch = s->global_batch;
  c->microbatches = s->microbatches;
  c->microbatch_size = s->microbatch_size;
  if (batch == 0) {
    if (!c->microbatch_size) c->microbatch_size = 1;
    if (!c->microbatches) c->microbatches = s->training ? 4 * c->stages : c->stages;
    return DP_OK;
  }
  if (batch % c->replicas)
    return dp_fail_at(error, plan_scenario_node(s, "task", "global_batch"),
                      "task.global_batch: found %lld, allowed: a multiple of data_parallel, %lld", (long long)batch,
                      (long long)c->replicas);
  const int64_t share = batch / c->replicas;
  if (c->microbatches && c->microbatch_size) {
    if (c->microbatches * c->microbatch_size == share) return DP_OK;
    return dp_fail_at(error, plan_scenario_node(s, "task", "global_batch"),
                      "task.global_batch: found %lld, allowed: microbatches * microbatch_size * data_parallel = %lld * "
                      "%lld * %lld = %lld",
                      (long long)batch, (long long)c->microbatches, (long long)c->microbatch_size,
                      (long long)c->replicas, (long long)(c->microbatches * c->microbatch_size * c->replicas));
  }
  if (!c->microbatches && !c->microbatch_size) c->microbatch_size = 1;
  int64_t *unknown = c->microbatches ? &c->microbatch_size : &c->microbatches;
  const int64_t known = c->microbatches ? c->microbatches : c->microbatch_size;
  const char *key = c->microbatches ? "microbatches" : "microbatch_size";
  if (share % known)
    return dp_fail_at(
        error, plan_scenario_node(s, "plan", key),
        "plan.%s: found %lld with global_batch = %lld and data_parallel = %lld, allowed: a divisor of %lld", key,
        (long long)known, (long long)batch, (long long)c->replicas, (long long)share);
  *unknown = share / known;
  return DP_OK;
}

/* What would not fit into a program, and sizes that later arithmetic takes as int. */
static dp_status check_size(const plan_scenario *s, const counts *c, dp_error *error) {
  if (c->microbatch_size > 65536)
    return dp_fail_at(error, plan_scenario_node(s, "task", "global_batch"),
                      "task.global_batch: found %lld, which makes microbatches of %lld samples, allowed: at most 65536",
                      (long long)s->global_batch, (long long)c->microbatch_size);
  const double passes = (double)c->stages * (double)(c->replicas * c->tensor) * (double)c->chunks *
                        (double)c->microbatches * (double)c->steps;
  char tensor[48] = "";
  if (c->tensor > 1) (void)snprintf(tensor, sizeof tensor, " * %lld tensor members", (long long)c->tensor);
  if (passes > MAX_COMPUTE_STEPS)
    return dp_fail_at(error, plan_scenario_node(s, "plan", "microbatches"),
                      "plan: found %lld stages * %lld replicas%s * %lld chunks * %lld microbatches%s = %.9g passes a "
                      "step, allowed: at most %d",
                      (long long)c->stages, (long long)c->replicas, tensor, (long long)c->chunks,
                      (long long)c->microbatches, c->steps > 1 ? " * denoise steps" : "", passes, MAX_COMPUTE_STEPS);
  return DP_OK;
}

/* Workers take devices in order; a tensor group, which talks most, neighbouring ones, then come stages, then replicas.
 */
static dp_status place(const plan_scenario *s, plan_plan *plan, dp_error *error) {
  const int workers = plan_worker_count(plan), tensor = plan_tensor(plan);
  plan->devices = DP_ARENA_NEW(&plan->arena, int, (size_t)workers);
  uint8_t *taken = DP_ARENA_NEW(&plan->arena, uint8_t, s->cluster.devices.count);
  if (!plan->devices || !taken) return dp_fail_memory(error);
  for (int w = 0; w < workers; w++) {
    const int group = plan_worker_replica(plan, w) * plan->ranks + plan_worker_rank(plan, w);
    const int device = s->device_map ? (int)s->device_map[w] : group * tensor + plan_worker_member(plan, w);
    if (taken[device])
      return dp_fail_at(error, plan_scenario_node(s, "plan", "devices"),
                        "plan.devices: found device %d twice, allowed: once", device);
    taken[device] = 1;
    plan->devices[w] = device;
  }
  return DP_OK;
}

static dp_status check_precision(const plan_scenario *s, const plan_plan *plan, dp_error *error) {
  const graph_dtype precision = s->model_options.precision;
  for (int w = 0; !s->synthetic && w < plan_worker_count(plan); w++) {
    const plan_device *device = &s->cluster.devices.items[plan->devices[w]];
    if (device->model->peak_flops_per_s[precision] > 0) continue;
    const char *other = device->model->peak_flops_per_s[GRAPH_FP16] > 0 ? "fp16 or fp32" : "fp32";
    return dp_fail_at(error, plan_scenario_node(s, "model", "precision"),
                      "model.precision: found %s, which device %s, %s, does not compute, allowed: %s",
                      graph_dtype_name(precision), device->name, device->model->name, other);
  }
  return DP_OK;
}

static dp_status settle_transport(const plan_scenario *s, plan_plan *plan, dp_error *error) {
  dp_error reason = DP_ERROR_INIT;
  plan->transport_wanted = s->transport;
  plan->nccl_sms = (int)s->nccl_sms;
  if (plan_transport_check(plan, &s->cluster, &reason) != DP_OK)
    return dp_fail_at(error, plan_scenario_node(s, "plan", "transport"), "plan.%s", reason.text);
  if (plan_nccl_sms_check(plan, &s->cluster, &reason) != DP_OK)
    return dp_fail_at(error, plan_scenario_node(s, "plan", "nccl_sms"), "plan.%s", reason.text);
  return DP_OK;
}

static dp_status settle(const plan_scenario *s, plan_plan *plan, dp_error *error) {
  const plan_schedule schedule = s->schedule < 0 ? PLAN_1F1B : (plan_schedule)s->schedule;
  counts c = {.steps = s->training ? 1 : s->steps};
  DP_TRY(settle_workers(s, &c, error));
  DP_TRY(settle_chunks(s, schedule, &c, error));
  DP_TRY(settle_batch(s, &c, error));
  DP_TRY(check_size(s, &c, error));
  plan->training = s->training;
  plan->ranks = (int)c.stages;
  plan->chunks_per_rank = (int)c.chunks;
  plan->chunk_count = (int)(c.stages * c.chunks);
  plan->replicas = (int)c.replicas;
  plan->tensor = (int)c.tensor;
  plan->schedule = schedule;
  plan->microbatches = (int)c.microbatches;
  plan->microbatch_size = (int)c.microbatch_size;
  plan->denoise_steps = (int)c.steps;
  plan->skip_policy = s->skip_policy < 0 ? PLAN_SKIP_DIRECT : (plan_skip_policy)s->skip_policy;
  plan->k = s->k;
  plan->optimizer = s->optimizer;
  plan->gradient_fp32 = s->gradient_fp32;
  plan->global_norm = s->training && s->global_norm;
  plan->gradient_buckets = s->gradient_buckets ? (int)s->gradient_buckets : c.replicas > 1 ? 4 : 1;
  DP_TRY(place(s, plan, error));
  DP_TRY(settle_transport(s, plan, error));
  return check_precision(s, plan, error);
}

dp_status plan_scenario_plan(const plan_scenario *scenario, plan_plan *plan, dp_error *error) {
  plan_plan made = {0};
  const dp_status status = settle(scenario, &made, error);
  if (status != DP_OK)
    plan_plan_free(&made);
  else
    *plan = made;
  return status;
}
