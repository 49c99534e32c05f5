#include "plan/plan.h"

#include <jansson.h>

const char *const plan_schedule_names[] = {"gpipe", "1f1b", "interleaved", "folded", "zb-h1", "zb-v", NULL};
const char *const plan_recompute_names[] = {"none", "all", "auto", NULL};
const char *const plan_skip_policy_names[] = {"direct", "relay", "compress", "local", NULL};
const char *const plan_transport_names[] = {"auto", "local", "nccl", "host", NULL};
const char *const plan_optimizer_names[] = {"adamw", "adamw-8bit", "adafactor", "sgd", NULL};

void plan_plan_free(plan_plan *plan) {
  dp_arena_free(&plan->arena);
  *plan = (plan_plan){0};
}

int plan_chunk_of(const plan_plan *plan, size_t unit) {
  int chunk = 0;
  while (chunk + 1 < plan->chunk_count && (int)unit >= plan->chunks[chunk + 1].first_unit) chunk++;
  return chunk;
}

int plan_schedule_chunk_rank(plan_schedule schedule, int ranks, int chunk) {
  if (schedule == PLAN_FOLDED || schedule == PLAN_ZB_V) return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
  return chunk % ranks;
}

plan_skip_policy plan_skip_policy_of(const plan_plan *plan, int tensor) {
  return plan->tensor_skip_policy ? (plan_skip_policy)plan->tensor_skip_policy[tensor] : plan->skip_policy;
}

bool plan_skip_is_used(const plan_plan *plan, const graph *g, plan_skip_policy policy) {
  bool used = plan->skip_policy == policy;
  for (size_t t = 0; plan->tensor_skip_policy && t < g->tensors.count; t++)
    used = used || plan->tensor_skip_policy[t] == policy;
  return used;
}

bool plan_skip_is_compressed(const plan_plan *plan, const graph *g, int tensor, int64_t *bytes) {
  const graph_tensor *t = &g->tensors.items[tensor];
  if (plan_skip_policy_of(plan, tensor) != PLAN_SKIP_COMPRESS || t->rank < 4) return false;
  const int64_t compressed_bytes = t->dims[0] * plan->k * graph_dtype_bytes(t->dtype);
  if (compressed_bytes >= t->bytes) return false;
  *bytes = compressed_bytes;
  return true;
}

int64_t plan_trainable_parameters(const plan_plan *plan, const graph *g, int rank) {
  int64_t parameters = 0;
  for (int c = 0; c < plan->chunk_count; c++)
    for (int u = 0; plan->chunks[c].rank == rank && u < plan->chunks[c].unit_count; u++)
      parameters += g->units.items[plan->chunks[c].first_unit + u].trainable_parameters;
  return parameters;
}

int64_t plan_partial_gradient_bytes(const plan_plan *plan, const graph *g, int rank) {
  int64_t parameters = 0;
  for (int c = 0; c < plan->chunk_count; c++)
    for (int u = 0; plan->chunks[c].rank == rank && u < plan->chunks[c].unit_count; u++)
      parameters += g->units.items[plan->chunks[c].first_unit + u].partial_parameters;
  return parameters * (plan->gradient_fp32 ? 4 : graph_dtype_bytes(g->precision));
}

/* ---- plan.json ---- */

static int set(json_t *object, const char *key, json_t *value) { return json_object_set_new(object, key, value); }

static json_t *chunk_json(const plan_plan *plan, const graph *g, int chunk) {
  const plan_chunk *c = &plan->chunks[chunk];
  json_t *object = json_object(), *recomputed = json_array();
  int failed = set(object, "rank", json_integer(c->rank)) | set(object, "first_unit", json_integer(c->first_unit)) |
               set(object, "unit_count", json_integer(c->unit_count));
  if (g)
    failed |= set(object, "first", json_string(g->units.items[c->first_unit].name)) |
              set(object, "last", json_string(g->units.items[c->first_unit + c->unit_count - 1].name));
  for (int u = c->first_unit; plan->recompute && u < c->first_unit + c->unit_count; u++)
    if (plan->recompute[u]) failed |= json_array_append_new(recomputed, json_integer(u));
  failed |= set(object, "recompute", recomputed);
  if (!failed) return object;
  json_decref(object);
  return NULL;
}

/* As plan.skips of a scenario: "UNIT=POLICY" where the policy of a unit's skip tensors is not the plan's. */
static json_t *skips_json(const plan_plan *plan, const graph *g) {
  json_t *array = json_array();
  int failed = array == NULL, last = GRAPH_NONE;
  for (size_t t = 0; !failed && t < g->tensors.count; t++) {
    const int unit = g->tensors.items[t].producer_unit, policy = plan->tensor_skip_policy[t];
    if (unit == GRAPH_NONE || unit == last || policy == (int)plan->skip_policy) continue;
    failed =
        json_array_append_new(array, json_sprintf("%s=%s", g->units.items[unit].name, plan_skip_policy_names[policy]));
    last = unit;
  }
  if (!failed) return array;
  json_decref(array);
  return NULL;
}

static json_t *devices_json(const plan_plan *plan, const plan_cluster *cluster) {
  json_t *array = json_array();
  int failed = array == NULL;
  for (int w = 0; !failed && w < plan_worker_count(plan); w++) {
    const int device = plan->devices[w];
    failed = json_array_append_new(array, cluster && device >= 0 && (size_t)device < cluster->devices.count
                                              ? json_string(cluster->devices.items[device].name)
                                              : json_integer(device));
  }
  if (!failed) return array;
  json_decref(array);
  return NULL;
}

/* One string a rank, an entry a step: "F0.3" is FORWARD of chunk 0, microbatch 3; B, I and W are the backwards. */
static json_t *order_json(const plan_plan *plan) {
  static const char letters[] = {'F', 'B', 'I', 'W'};
  json_t *ranks = json_array();
  int failed = ranks == NULL;
  for (int r = 0; !failed && r < plan->ranks; r++) {
    json_t *steps = json_array();
    for (int i = 0; i < plan->order_count[r]; i++) {
      const plan_step *step = &plan->order[r][i];
      failed |= json_array_append_new(
          steps, json_sprintf("%c%d.%u", letters[step->opcode & 3], (int)step->chunk, (unsigned)step->microbatch));
    }
    failed |= json_array_append_new(ranks, steps);
  }
  if (!failed) return ranks;
  json_decref(ranks);
  return NULL;
}

void *plan_plan_json(const plan_plan *plan, const graph *g, const plan_cluster *cluster) {
  json_t *object = json_object(), *chunks = json_array(), *split = json_array();
  int failed =
      set(object, "format", json_string("diffpipe-plan")) | set(object, "version", json_integer(1)) |
      set(object, "kind", json_string(plan->training ? "train" : "sample")) |
      set(object, "schedule", json_string(plan_schedule_names[plan->schedule])) |
      set(object, "stages", json_integer(plan->ranks)) | set(object, "chunks", json_integer(plan->chunks_per_rank)) |
      set(object, "data_parallel", json_integer(plan->replicas)) |
      set(object, "tensor_parallel", json_integer(plan_tensor(plan))) |
      set(object, "microbatches", json_integer(plan->microbatches)) |
      set(object, "microbatch_size", json_integer(plan->microbatch_size)) |
      set(object, "denoise_steps", json_integer(plan->denoise_steps)) |
      set(object, "skip_policy", json_string(plan_skip_policy_names[plan->skip_policy])) |
      set(object, "k", json_integer(g ? (plan_skip_is_used(plan, g, PLAN_SKIP_COMPRESS) ? plan->k : 0) : plan->k)) |
      set(object, "optimizer", plan->training ? json_string(plan_optimizer_names[plan->optimizer]) : json_null()) |
      set(object, "gradient_fp32", json_boolean(plan->gradient_fp32)) |
      set(object, "gradient_buckets", json_integer(plan->gradient_buckets));
  for (int c = 0; !failed && c < plan->chunk_count; c++)
    failed |= json_array_append_new(chunks, chunk_json(plan, g, c));
  for (int c = 1; !failed && c < plan->chunk_count; c++)
    failed |= json_array_append_new(split, json_integer(plan->chunks[c].first_unit));
  if (!failed && plan->global_norm) failed |= set(object, "global_norm", json_true());
  if (!failed && plan->transport_wanted != PLAN_TRANSPORT_AUTO)
    failed |= set(object, "transport", json_string(plan_transport_names[plan->transport_wanted]));
  if (!failed && plan->nccl_sms) failed |= set(object, "nccl_sms", json_integer(plan->nccl_sms));
  if (!failed && plan->tensor_skip_policy && g) failed |= set(object, "skips", skips_json(plan, g));
  failed |= set(object, "split", split);
  failed |= set(object, "placement", chunks);
  if (!failed && plan->devices) failed |= set(object, "devices", devices_json(plan, cluster));
  if (!failed && plan->order) failed |= set(object, "order", order_json(plan));
  if (!failed) return object;
  json_decref(object);
  return NULL;
}
