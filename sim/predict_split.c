#include "sim/predictor.h"

#include <string.h>

#include "plan/transport.h"

static dp_status default_cuts(sim_predictor *p, int *cuts) {
  const plan_plan *plan = &p->out->plan;
  const graph *model = &p->out->graph;
  const int n = (int)model->units.count, chunks = plan->chunk_count;
  double *unit_cost = SIM_SCRATCH(p, double, n), *speed = SIM_SCRATCH(p, double, chunks);
  if (!unit_cost || !speed) return dp_fail_memory(p->error);
  for (int u = 0; u < n; u++) unit_cost[u] = sim_kind_unit_s(p, &p->kinds[0], u);
  const bool by_rank = plan->schedule == PLAN_FOLDED && p->out->split_way != PLAN_SPLIT_EVEN;
  const int speeds = by_rank ? plan->ranks : chunks;
  for (int c = 0; c < speeds; c++) {
    const int rank = by_rank ? c : plan_schedule_chunk_rank(plan->schedule, plan->ranks, c);
    const double model_s = p->kinds[p->rank_kind[rank]].model_s;
    speed[c] = model_s > 0 ? p->kinds[0].model_s / model_s : 1;
  }
  if (!by_rank) return plan_split_balanced(unit_cost, n, chunks, speed, cuts, p->error);
  /* what a skip byte that travels costs: out and its gradient back, over the slowest link between neighbours */
  double s_per_byte = 0;
  for (int r = 0; r + 1 < plan->ranks; r++) {
    plan_route route;
    DP_TRY(plan_transport_route(plan, &p->scenario->cluster, r, r + 1, &route, p->error));
    if (route.count > 0 && 1 / route.bandwidth_bytes_per_s > s_per_byte) s_per_byte = 1 / route.bandwidth_bytes_per_s;
  }
  return plan_split_folded(model, unit_cost, plan->ranks, (plan->training ? 2 : 1) * s_per_byte, speed, cuts, p->error);
}

void sim_predict_place_chunks(sim_predictor *p, const int *cuts) {
  plan_plan *plan = &p->out->plan;
  for (int c = 0; c < plan->chunk_count; c++) {
    const int first = c ? cuts[c - 1] : 0, end = c + 1 < plan->chunk_count ? cuts[c] : (int)p->out->graph.units.count;
    plan->chunks[c] = (plan_chunk){.first_unit = first,
                                   .unit_count = end - first,
                                   .rank = plan_schedule_chunk_rank(plan->schedule, plan->ranks, c)};
  }
}

dp_status sim_predict_set_chunks(sim_predictor *p) {
  plan_plan *plan = &p->out->plan;
  const plan_scenario *scenario = p->scenario;
  const int n = (int)p->out->graph.units.count;
  plan->chunk_count = plan->ranks * plan->chunks_per_rank;
  if (plan->chunk_count > n)
    return dp_fail_at(p->error, plan_scenario_node(scenario, "plan", "stages"),
                      "plan: %d stages of %d chunk(s) need %d units, the model has %d, allowed: at most %d stages",
                      plan->ranks, plan->chunks_per_rank, plan->chunk_count, n, n / plan->chunks_per_rank);
  plan->chunks = DP_ARENA_NEW(&plan->arena, plan_chunk, plan->chunk_count);
  int *cuts = SIM_SCRATCH(p, int, plan->chunk_count);
  if (!plan->chunks || !cuts) return dp_fail_memory(p->error);
  if (scenario->split_count) {
    if ((int)scenario->split_count != plan->chunk_count - 1)
      return dp_fail_at(p->error, plan_scenario_node(scenario, "plan", "split"),
                        "plan.split: found %zu cut points, allowed: %d (stages * chunks - 1)", scenario->split_count,
                        plan->chunk_count - 1);
    for (int c = 0; c + 1 < plan->chunk_count; c++) {
      const int64_t least = c ? scenario->split[c - 1] + 1 : 1;
      if (scenario->split[c] < least || scenario->split[c] > n - 1)
        return dp_fail_at(p->error, plan_scenario_node(scenario, "plan", "split"),
                          "plan.split: found %lld at item %d, allowed: %lld to %d, ascending",
                          (long long)scenario->split[c], c, (long long)least, n - 1);
      cuts[c] = (int)scenario->split[c];
    }
  } else if (plan->chunk_count > 1) {
    DP_TRY(default_cuts(p, cuts));
  }
  sim_predict_place_chunks(p, cuts);
  return DP_OK;
}
