#include "sim/unit_times.h"

/* The worker of the first copy that holds a unit. */
static int worker_of(const plan_plan *plan, size_t unit) {
  for (int c = 0; c < plan->chunk_count; c++)
    if ((int)unit < plan->chunks[c].first_unit + plan->chunks[c].unit_count) return plan->chunks[c].rank;
  return 0;
}

dp_status sim_unit_times(const plan_scenario *scenario, const sim_prepared *prepared, const sim_prediction *prediction,
                         plan_unit_times *times, dp_error *error) {
  const plan_plan *plan = &prediction->plan;
  if (!prepared) prepared = &prediction->own;
  if (prepared->kind_count == 0)
    return dp_fail(error, DP_INTERNAL, "unit times: what the prediction was made with is needed");
  DP_TRY(plan_unit_times_init(prediction->graph.units.count, times, error));
  for (size_t u = 0; u < times->unit_count; u++) {
    const plan_device *device = &scenario->cluster.devices.items[plan->devices[worker_of(plan, u)]];
    const sim_prepared_kind *kind = sim_prepared_kind_of(prepared, device);
    if (!kind) {
      plan_unit_times_free(times);
      return dp_fail(error, DP_INTERNAL, "unit times: found a device that the prediction was not made with");
    }
    const sim_unit_cost *cost = &kind->units[u];
    const double again_s = plan->recompute && plan->recompute[u] ? cost->device_s[SIM_FORWARD] : 0;
    plan_unit_times_add(times, u, PLAN_UNIT_FORWARD, cost->device_s[SIM_FORWARD]);
    if (!plan->training) continue;
    plan_unit_times_add(times, u, PLAN_UNIT_BACKWARD_INPUT, cost->device_s[SIM_BACKWARD_INPUT] + again_s);
    plan_unit_times_add(times, u, PLAN_UNIT_BACKWARD_WEIGHT, cost->device_s[SIM_BACKWARD_WEIGHT]);
  }
  return DP_OK;
}
