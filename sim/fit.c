#include "sim/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/memory.h"
#include "plan/transport.h"
#include "sim/partition.h"

enum { ALL_ROUTES_RANKS = 32 }; /* up to so many ranks every route is looked at */

typedef struct room {
  dp_arena arena;
  int *in_flight, *begun;
  double *hop_latency_s, *hop_s_per_byte, *wire_s_per_byte;
  int64_t *persistent_bytes, *kept_bytes;
} room;

/* Most microbatches that each chunk has begun and not finished, in the plan's order. */
static void count_in_flight(const plan_plan *plan, int *begun, int *most, bool *split_backward) {
  *split_backward = false;
  for (int r = 0; plan->training && r < plan->ranks; r++)
    for (int i = 0; i < plan->order_count[r]; i++)
      *split_backward = *split_backward || plan->order[r][i].opcode == PLAN_BACKWARD_WEIGHT;
  for (int r = 0; r < plan->ranks; r++)
    for (int i = 0; i < plan->order_count[r]; i++) {
      const plan_step *step = &plan->order[r][i];
      const int last = *split_backward ? PLAN_BACKWARD_WEIGHT : PLAN_BACKWARD;
      begun[step->chunk] += step->opcode == PLAN_FORWARD ? 1 : step->opcode == last ? -1 : 0;
      if (begun[step->chunk] > most[step->chunk]) most[step->chunk] = begun[step->chunk];
    }
  /* sampling finishes a microbatch with the forward of the rank's last chunk: the next but one may have come in */
  for (int c = 0; !plan->training && c < plan->chunk_count; c++)
    most[c] = plan->chunks_per_rank > 1 && plan->microbatches > 1 ? 2 : 1;
}

int64_t sim_fit_persistent_bytes(const graph *g, int unit, bool training, plan_optimizer optimizer, bool gradient_fp32,
                                 bool splits_masters) {
  const graph_unit *u = &g->units.items[unit];
  const int64_t width = graph_dtype_bytes(g->precision), weights = (u->parameters + u->adapter_parameters) * width;
  if (!training) return weights;
  return weights + u->trainable_parameters * (gradient_fp32 ? 4 : width) +
         (int64_t)ceil((double)u->trainable_parameters * plan_optimizer_bytes(optimizer, g->precision, splits_masters));
}

static void count_bytes(const sim_fit *fit, bool split_backward, room *m) {
  const graph *g = fit->graph;
  const plan_plan *plan = fit->plan;
  for (size_t u = 0; u < g->units.count; u++) {
    const graph_unit *unit = &g->units.items[u];
    m->persistent_bytes[u] =
        sim_fit_persistent_bytes(g, (int)u, plan->training, plan->optimizer, plan->gradient_fp32, fit->splits_masters);
    if (!plan->training) continue;
    for (int o = unit->first_op; split_backward && o < unit->first_op + unit->op_count; o++) {
      const graph_op *op = &g->ops.items[o];
      if (op->parameters + op->adapter_parameters == 0 || op->trainable == GRAPH_TRAIN_FROZEN) continue;
      for (int i = 0; i < op->output_count; i++) m->kept_bytes[u] += g->tensors.items[op->outputs[i]].bytes;
    }
  }
}

/* Seconds a byte over the links of each hop, and, where one does not know with whom, the mean over the ranks it may be.
 */
static dp_status count_links(const sim_fit *fit, room *m, dp_error *error) {
  const plan_plan *plan = fit->plan;
  const plan_cluster *cluster = &fit->scenario->cluster;
  plan_route route;
  for (int c = 1; c < plan->chunk_count; c++) {
    const int from = plan->chunks[c - 1].rank, to = plan->chunks[c].rank;
    if (plan->devices[from] == plan->devices[to]) continue;
    DP_TRY(plan_transport_route(plan, cluster, from, to, &route, error));
    m->hop_latency_s[c] = route.latency_s;
    m->hop_s_per_byte[c] = 1 / route.bandwidth_bytes_per_s;
  }
  for (int r = 0; r < plan->ranks; r++) {
    double sum = 0;
    int count = 0;
    for (int q = 0; q < plan->ranks; q++) {
      if (q == r || (plan->ranks > ALL_ROUTES_RANKS && q != r - 1 && q != r + 1)) continue;
      DP_TRY(plan_transport_route(plan, cluster, q, r, &route, error));
      sum += 1 / route.bandwidth_bytes_per_s;
      count++;
    }
    if (count) m->wire_s_per_byte[r] = sum / count;
  }
  return DP_OK;
}

static dp_status split(const sim_fit *fit, room *m, int *cuts, int64_t *memory_bytes, sim_fit_split_result *out,
                       dp_error *error) {
  const plan_plan *plan = fit->plan;
  const size_t chunks = (size_t)plan->chunk_count, units = fit->graph->units.count, ranks = (size_t)plan->ranks;
  m->in_flight = DP_ARENA_NEW(&m->arena, int, chunks);
  m->begun = DP_ARENA_NEW(&m->arena, int, chunks);
  m->hop_latency_s = DP_ARENA_NEW(&m->arena, double, chunks);
  m->hop_s_per_byte = DP_ARENA_NEW(&m->arena, double, chunks);
  m->wire_s_per_byte = DP_ARENA_NEW(&m->arena, double, ranks);
  m->persistent_bytes = DP_ARENA_NEW(&m->arena, int64_t, units);
  m->kept_bytes = DP_ARENA_NEW(&m->arena, int64_t, units);
  if (!m->in_flight || !m->begun || !m->hop_latency_s || !m->hop_s_per_byte || !m->wire_s_per_byte ||
      !m->persistent_bytes || !m->kept_bytes)
    return dp_fail_memory(error);
  bool split_backward;
  count_in_flight(plan, m->begun, m->in_flight, &split_backward);
  count_bytes(fit, split_backward, m);
  DP_TRY(count_links(fit, m, error));
  const bool tight_warm_up = plan->training && plan->schedule != PLAN_GPIPE && plan->schedule != PLAN_FOLDED;
  const sim_partition_problem problem = {.graph = fit->graph,
                                         .peaks = fit->peaks,
                                         .ranks = plan->ranks,
                                         .chunks_per_rank = plan->chunks_per_rank,
                                         .folded = plan->schedule == PLAN_FOLDED || plan->schedule == PLAN_ZB_V,
                                         .training = plan->training,
                                         .skip_policy = plan->skip_policy,
                                         .k = plan->k,
                                         .unit_s = fit->unit_s,
                                         .hop_latency_s = m->hop_latency_s,
                                         .hop_s_per_byte = m->hop_s_per_byte,
                                         .wire_s_per_byte = m->wire_s_per_byte,
                                         .exposed_share = tight_warm_up ? 1 : 0,
                                         .unit_persistent_bytes = m->persistent_bytes,
                                         .unit_kept_bytes = m->kept_bytes,
                                         .recompute = plan->recompute,
                                         .in_flight = m->in_flight,
                                         .fixed_bytes = fit->fixed_bytes,
                                         .memory_limit_bytes = fit->memory_limit_bytes,
                                         .only_if_possible = true};
  sim_partition_result result;
  sim_partition_load *loads = DP_ARENA_NEW(&m->arena, sim_partition_load, ranks);
  if (!loads) return dp_fail_memory(error);
  DP_TRY(sim_partition_solve(&problem, cuts, loads, &result, error));
  *out = (sim_fit_split_result){result.feasible, !result.impossible && !result.skips_travel, result.slowest_s};
  for (size_t r = 0; out->possible && r < ranks; r++) memory_bytes[r] = loads[r].memory_bytes;
  return DP_OK;
}

dp_status sim_fit_in_flight(const plan_plan *plan, int *in_flight, dp_error *error) {
  int *begun = calloc((size_t)plan->chunk_count, sizeof *begun);
  if (!begun) return dp_fail_memory(error);
  bool split_backward;
  memset(in_flight, 0, (size_t)plan->chunk_count * sizeof *in_flight);
  count_in_flight(plan, begun, in_flight, &split_backward);
  free(begun);
  return DP_OK;
}

dp_status sim_fit_split(const sim_fit *fit, int *cuts, int64_t *memory_bytes, sim_fit_split_result *result,
                        dp_error *error) {
  room m = {0};
  const dp_status status = split(fit, &m, cuts, memory_bytes, result, error);
  dp_arena_free(&m.arena);
  return status;
}
