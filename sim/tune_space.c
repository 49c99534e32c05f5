#include "sim/tune_space.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"
#include "graph/shard.h"
#include "sim/efficiency.h"
#include "sim/fit.h"

static dp_status read_list_from(sim_space *s, const char *key, int64_t least, sim_list *out) {
  const dp_node *node = dp_node_get(s->scenario->search, key);
  if (!node) return DP_OK;
  return dp_range_read_integers(node, key, least, INT64_MAX / 2, s->arena, &out->values, &out->count, s->error);
}

static dp_status read_list(sim_space *s, const char *key, sim_list *out) { return read_list_from(s, key, 1, out); }

/* A list of names as indices into `choices`; plan_scenario_read has checked them. */
static dp_status read_names(sim_space *s, const char *key, const char *const *choices, sim_list *out) {
  const dp_node *node = dp_node_get(s->scenario->search, key);
  if (!node) return DP_OK;
  const size_t count = node->kind == DP_NODE_ARRAY ? node->count : 1;
  out->values = DP_ARENA_NEW(s->arena, int64_t, count);
  if (!out->values) return dp_fail_memory(s->error);
  for (size_t i = 0; i < count; i++) {
    const dp_node *item = node->kind == DP_NODE_ARRAY ? node->items[i] : node;
    for (int c = 0; choices[c]; c++)
      if (strcmp(choices[c], item->string) == 0) out->values[out->count++] = c;
  }
  return DP_OK;
}

static dp_status fill_list(sim_space *s, sim_list *out, int64_t first, int64_t last, bool doubling) {
  if (out->count) return DP_OK;
  size_t count = 0;
  for (int64_t x = first; x <= last; x = doubling ? 2 * x : x + 1) count++;
  out->values = DP_ARENA_NEW(s->arena, int64_t, count ? count : 1);
  if (!out->values) return dp_fail_memory(s->error);
  for (int64_t x = first; x <= last; x = doubling ? 2 * x : x + 1) out->values[out->count++] = x;
  return DP_OK;
}

/* Tensor groups within a node, 2, 4 and 8: between nodes they lose by far. */
static int64_t widest_group(const sim_space *s) {
  enum { WIDEST = 8 };
  const plan_cluster *cluster = &s->scenario->cluster;
  int64_t most = 1, here = 0;
  for (size_t d = 0; d < cluster->devices.count; d++) {
    here = d > 0 && cluster->devices.items[d].node == cluster->devices.items[d - 1].node ? here + 1 : 1;
    if (here > most) most = here;
  }
  return s->scenario->synthetic ? 1 : most < WIDEST ? most : WIDEST;
}

static dp_status read_space(sim_space *s) {
  const dp_node *search = s->scenario->search;
  const dp_node *max_stages = dp_node_get(search, "max_stages"), *lossy = dp_node_get(search, "allow_lossy_skips");
  const int64_t most = max_stages && max_stages->integer < s->devices ? max_stages->integer : s->devices;
  DP_TRY(read_list(s, "stages", &s->stages));
  DP_TRY(read_list(s, "data_parallel", &s->replicas));
  DP_TRY(read_list(s, "tensor_parallel", &s->tensors));
  DP_TRY(read_list(s, "chunks", &s->chunks));
  DP_TRY(read_list(s, "microbatch_sizes", &s->sizes));
  DP_TRY(read_list(s, "k", &s->ks));
  DP_TRY(read_names(s, "schedules", plan_schedule_names, &s->schedules));
  DP_TRY(read_names(s, "skip_policies", plan_skip_policy_names, &s->policies));
  DP_TRY(read_names(s, "recompute", plan_recompute_names, &s->recompute));
  DP_TRY(read_names(s, "transports", plan_transport_names, &s->transports));
  DP_TRY(read_list_from(s, "nccl_sms", 0, &s->nccl_sms));
  DP_TRY(fill_list(s, &s->stages, 1, most, s->devices > 16));
  DP_TRY(fill_list(s, &s->replicas, 1, s->devices, s->devices > 16));
  DP_TRY(fill_list(s, &s->tensors, 1, widest_group(s), true));
  DP_TRY(fill_list(s, &s->chunks, 2, 4, true));
  DP_TRY(fill_list(s, &s->sizes, 1, s->global_batch < 64 ? s->global_batch : 64, true));
  DP_TRY(fill_list(s, &s->schedules, 0, PLAN_SCHEDULE_COUNT - 1, false));
  DP_TRY(fill_list(s, &s->policies, PLAN_SKIP_DIRECT, PLAN_SKIP_DIRECT, false));
  if (!(lossy && lossy->boolean)) s->ks.count = 0; /* lossy only where it was allowed */
  if (!s->scenario->training || s->scenario->synthetic) {
    s->recompute = (sim_list){NULL, 0};
    return fill_list(s, &s->recompute, PLAN_RECOMPUTE_NONE, PLAN_RECOMPUTE_NONE, false);
  }
  return fill_list(s, &s->recompute, PLAN_RECOMPUTE_ALL, PLAN_RECOMPUTE_AUTO, false);
}

/* Where nothing is sent by NCCL, SMs kept for it are lost. */
static bool keeps_in_vain(const sim_space *s, const sim_candidate *c) {
  const bool copied = c->transport == PLAN_TRANSPORT_LOCAL || c->transport == PLAN_TRANSPORT_HOST;
  return c->nccl_sms > 0 && (sim_candidate_workers(c) == 1 || (copied && s->scenario->cluster.node_count == 1));
}

static dp_status add_transports(sim_space *s, const sim_candidate *candidate) {
  sim_candidate copy = *candidate;
  const size_t transports = s->transports.count, kept = s->nccl_sms.count;
  if (transports + kept == 0) return dp_array_push(&s->candidates, copy) ? DP_OK : dp_fail_memory(s->error);
  copy.own_transport = true;
  for (size_t t = 0; t < (transports ? transports : 1); t++)
    for (size_t n = 0; n < (kept ? kept : 1); n++) {
      copy.transport = transports ? (plan_transport)s->transports.values[t] : s->scenario->transport;
      copy.nccl_sms = (int)(kept ? s->nccl_sms.values[n] : s->scenario->nccl_sms);
      const bool again = sim_candidate_workers(&copy) == 1 && t > 0; /* one worker sends nothing */
      if (again || keeps_in_vain(s, &copy)) continue;
      if (!dp_array_push(&s->candidates, copy)) return dp_fail_memory(s->error);
    }
  return DP_OK;
}

static dp_status add(sim_space *s, const sim_candidate *candidate) {
  sim_candidate copy = *candidate;
  if (copy.skip_policy != PLAN_SKIP_COMPRESS) {
    copy.k = 0;
    return add_transports(s, &copy);
  }
  for (size_t i = 0; i < s->ks.count; i++) {
    copy.k = s->ks.values[i];
    DP_TRY(add_transports(s, &copy));
  }
  return DP_OK;
}

/* All policies of one layout; compress joins whenever lossy skips are allowed and K is given. */
static dp_status add_policies(sim_space *s, sim_candidate *candidate) {
  bool compress = false;
  const size_t count = candidate->stages == 1 ? 1 : s->policies.count; /* one stage sends nothing */
  for (size_t i = 0; i < count; i++) {
    candidate->skip_policy = (plan_skip_policy)s->policies.values[i];
    compress = compress || candidate->skip_policy == PLAN_SKIP_COMPRESS;
    DP_TRY(add(s, candidate));
  }
  if (compress || candidate->stages == 1 || !s->ks.count) return DP_OK;
  candidate->skip_policy = PLAN_SKIP_COMPRESS;
  return add(s, candidate);
}

static dp_status add_chunks(sim_space *s, sim_candidate *candidate) {
  const bool v_shaped = candidate->schedule == PLAN_FOLDED || candidate->schedule == PLAN_ZB_V;
  if (candidate->schedule != PLAN_INTERLEAVED) {
    candidate->chunks = v_shaped ? 2 : 1;
    DP_TRY(add_policies(s, candidate));
    if (candidate->schedule != PLAN_FOLDED || candidate->stages == 1) return DP_OK;
    candidate->even_split = true; /* moves more bytes, drains faster */
    return add_policies(s, candidate);
  }
  for (size_t i = 0; i < s->chunks.count; i++) {
    candidate->chunks = (int)s->chunks.values[i];
    if (candidate->chunks > 1) DP_TRY(add_policies(s, candidate));
  }
  return DP_OK;
}

static bool schedule_makes_sense(const plan_scenario *scenario, int64_t schedule) {
  return scenario->training || (schedule != PLAN_ZB_H1 && schedule != PLAN_ZB_V && schedule != PLAN_GPIPE);
}

/* All plans of so many stages, replicas and tensor members. */
static dp_status add_layouts(sim_space *s, int64_t stages, int64_t replicas, int64_t tensor) {
  for (size_t b = 0; b < s->sizes.count; b++) {
    const int64_t size = s->sizes.values[b], each = s->global_batch / replicas;
    if (size > each || each % size) continue;
    for (size_t c = 0; c < s->schedules.count; c++) {
      if (stages == 1 ? c > 0 : !schedule_makes_sense(s->scenario, s->schedules.values[c])) continue;
      for (size_t again = 0; again < s->recompute.count; again++) {
        sim_candidate candidate = {
            .stages = (int)stages,
            .replicas = (int)replicas,
            .tensor = (int)tensor,
            .microbatches = (int)(each / size),
            .microbatch_size = (int)size,
            .schedule = stages == 1 ? PLAN_1F1B : (plan_schedule)s->schedules.values[c], /* all alike */
            .recompute = (plan_recompute)s->recompute.values[again],
            .recomputed_units = -1};
        DP_TRY(add_chunks(s, &candidate));
      }
    }
  }
  return DP_OK;
}

static dp_status enumerate(sim_space *s) {
  for (size_t r = 0; r < s->replicas.count; r++)
    for (size_t t = 0; t < s->tensors.count; t++)
      for (size_t p = 0; p < s->stages.count; p++) {
        const int64_t replicas = s->replicas.values[r], stages = s->stages.values[p], tensor = s->tensors.values[t];
        if (stages * replicas * tensor > s->devices || s->global_batch % replicas) continue;
        if (tensor > 1 && s->scenario->synthetic) continue; /* such units cannot be split */
        DP_TRY(add_layouts(s, stages, replicas, tensor));
      }
  if (s->candidates.count == 0)
    return dp_fail_at(
        s->error, s->scenario->search ? s->scenario->search : s->scenario->document.root,
        "[search]: found no plan to try for a global batch of %lld on %lld devices, allowed: lists with a number "
        "of replicas and a microbatch size that divide it",
        (long long)s->global_batch, (long long)s->devices);
  return DP_OK;
}

/* Bytes that a member sends to the others in one direction of all units. A collective takes no less than that over the
 * fastest link of the cluster: its pace is that of the slowest link of a ring (plan/nccl.h), and no algorithm or
 * protocol beats the ring's bytes at that pace. */
static double sent_bytes(const graph *share, bool backward) {
  double bytes = 0;
  for (size_t o = 0; o < share->ops.count; o++)
    bytes += (double)graph_collective_sent_bytes(
        backward ? &share->ops.items[o].backward_input : &share->ops.items[o].forward, share->tensor_parallel);
  return bytes;
}

static dp_status cost_size(const plan_scenario *scenario, const sim_efficiency *efficiency, int64_t size, int tensor,
                           sim_size_cost *cost, dp_error *error) {
  DP_TRY(sim_prepare_share(scenario, efficiency, size, tensor, &cost->prepared, error));
  const graph *model = &cost->prepared.model;
  for (size_t u = 0; u < model->units.count; u++)
    cost->persistent_bytes +=
        sim_fit_persistent_bytes(model, (int)u, scenario->training, scenario->optimizer, scenario->gradient_fp32,
                                 cost->prepared.implementation->splits_masters);
  if (!scenario->synthetic)
    cost->fixed_bytes =
        sim_cost_runtime_bytes(&cost->prepared.kinds[0].context, 0, (int)scenario->cluster.devices.count) +
        sim_cost_workspace_bytes(&cost->prepared.kinds[0].context);
  double *const sums[] = {&cost->forward_s, &cost->input_s, &cost->weight_s};
  for (int d = SIM_FORWARD; d <= SIM_BACKWARD_WEIGHT; d++)
    for (size_t u = 0; u < cost->prepared.model.units.count; u++) {
      double least_s = INFINITY;
      for (int k = 0; k < cost->prepared.kind_count; k++)
        least_s = fmin(least_s, cost->prepared.kinds[k].units[u].device_s[d]);
      *sums[d] += least_s;
    }
  double fastest = 0;
  for (size_t l = 0; l < scenario->cluster.links.count; l++)
    fastest = fmax(fastest, scenario->cluster.links.items[l].bandwidth_bytes_per_s);
  if (tensor > 1 && fastest > 0) {
    cost->forward_s += sent_bytes(&cost->prepared.model, false) / fastest;
    cost->input_s += sent_bytes(&cost->prepared.model, true) / fastest;
  }
  return DP_OK;
}

static bool is_cost_of(const sim_space *s, const sim_size_cost *cost, const sim_candidate *candidate) {
  return cost->prepared.microbatch_size == candidate->microbatch_size &&
         cost->prepared.nccl_sms == sim_candidate_nccl_sms(s->scenario, candidate) &&
         cost->prepared.model.tensor_parallel == sim_candidate_tensor(candidate);
}

const sim_size_cost *sim_space_cost(const sim_space *s, const sim_candidate *candidate) {
  size_t i = 0;
  while (!is_cost_of(s, &s->costs[i], candidate)) i++;
  return &s->costs[i];
}

double sim_space_bound_s(const sim_space *s, const sim_candidate *c) {
  const sim_size_cost *cost = sim_space_cost(s, c);
  const bool training = s->scenario->training;
  const double p = c->stages, m = (double)c->microbatches * (training ? 1 : (double)s->scenario->steps);
  const double f = cost->forward_s, w = training ? cost->weight_s : 0;
  const double b = training ? cost->input_s + w + (c->recompute == PLAN_RECOMPUTE_ALL ? f : 0) : 0, t = f + b;
  const bool apart = c->schedule == PLAN_ZB_H1 || c->schedule == PLAN_ZB_V;
  double bound = fmax(apart ? t - w : t, m * t / p);
  if (training && c->schedule == PLAN_GPIPE) bound = t + (m - 1) * t / p;
  if (training && c->schedule == PLAN_1F1B) bound = t + ((m - 1) * b + fmax(0, m - p) * f) / p;
  return bound * (1 - 1e-9); /* sums in another order must not prune the best */
}

bool sim_space_may_fit(const sim_space *s, const sim_candidate *c, int64_t *persistent_bytes, int64_t *room_bytes) {
  const sim_size_cost *cost = sim_space_cost(s, c);
  const int tensor = sim_candidate_tensor(c), workers = c->stages * tensor; /* of a replica */
  *persistent_bytes = tensor * cost->persistent_bytes;
  *room_bytes = s->largest_bytes[workers] - workers * cost->fixed_bytes;
  return *persistent_bytes <= *room_bytes;
}

static int descending(const void *left, const void *right) {
  const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return (a < b) - (a > b);
}

static dp_status sum_memories(sim_space *s) {
  const plan_cluster *cluster = &s->scenario->cluster;
  const size_t n = cluster->devices.count;
  s->largest_bytes = DP_ARENA_NEW(s->arena, int64_t, n + 1);
  if (!s->largest_bytes) return dp_fail_memory(s->error);
  for (size_t d = 0; d < n; d++) s->largest_bytes[d + 1] = cluster->devices.items[d].memory_bytes;
  qsort(s->largest_bytes + 1, n, sizeof *s->largest_bytes, descending);
  for (size_t d = 0; d < n; d++) s->largest_bytes[d + 1] += s->largest_bytes[d];
  return DP_OK;
}

/* Candidates of a tensor group that splits nothing of the model are no plans. */
static dp_status cost_sizes(sim_space *s, const sim_efficiency *efficiency) {
  bool splits_nothing[GRAPH_MAX_TENSOR_PARALLEL + 1] = {false};
  size_t kept = 0;
  s->costs = DP_ARENA_NEW(s->arena, sim_size_cost, s->sizes.count * s->tensors.count * (s->nccl_sms.count + 1));
  if (!s->costs) return dp_fail_memory(s->error);
  for (size_t i = 0; i < s->candidates.count; i++) {
    const sim_candidate candidate = s->candidates.items[i];
    const int tensor = sim_candidate_tensor(&candidate);
    size_t c = 0;
    while (c < s->cost_count && !is_cost_of(s, &s->costs[c], &candidate)) c++;
    if (c == s->cost_count && !splits_nothing[tensor]) {
      plan_scenario changed = *s->scenario;
      changed.nccl_sms = sim_candidate_nccl_sms(s->scenario, &candidate);
      const dp_status status =
          cost_size(&changed, efficiency, candidate.microbatch_size, tensor, &s->costs[c], s->error);
      if (status != DP_OK && (status != DP_BAD_INPUT || tensor == 1)) return status;
      splits_nothing[tensor] = status != DP_OK;
      s->cost_count += status == DP_OK;
    }
    if (!splits_nothing[tensor]) s->candidates.items[kept++] = candidate;
  }
  s->candidates.count = kept;
  return kept > 0 ? DP_OK : DP_BAD_INPUT; /* the error says of which group */
}

dp_status sim_space_build(sim_space *s, const sim_efficiency *efficiency) {
  s->global_batch = sim_tune_global_batch(s->scenario, s->error);
  if (!s->global_batch) return DP_BAD_INPUT;
  s->devices = s->scenario->device_map_count ? (int64_t)s->scenario->device_map_count
                                             : (int64_t)s->scenario->cluster.devices.count;
  DP_TRY(read_space(s));
  DP_TRY(enumerate(s));
  DP_TRY(sum_memories(s));
  return cost_sizes(s, efficiency);
}

void sim_space_free(sim_space *s) {
  for (size_t c = 0; c < s->cost_count; c++) sim_prepared_free(&s->costs[c].prepared);
  dp_array_free(&s->candidates);
}
