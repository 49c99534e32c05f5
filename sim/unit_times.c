#include "sim/unit_times.h"

/* Seconds of a chunk's forward, or of all parts of its backward, of a microbatch on the first copy, on average. */
static double instructions_s(const sim_prediction *prediction, int chunk, bool backward) {
  const plan_program *program = &prediction->program;
  const uint32_t l = program->worker_lane[prediction->plan.chunks[chunk].rank];
  const plan_lane *lane = &program->lanes[l];
  double sum_s = 0;
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
    const plan_instruction *one = &program->instructions[i];
    if (one->chunk != chunk || one->opcode == PLAN_OPTIMIZER_STEP || (one->opcode != PLAN_FORWARD) != backward)
      continue;
    sum_s += prediction->timeline.end_s[i] - prediction->timeline.start_s[i];
  }
  return sum_s / (prediction->plan.microbatches * (double)prediction->plan.denoise_steps);
}

static void stretch(const sim_prediction *prediction, int chunk, bool backward, plan_unit_times *times) {
  const plan_chunk *units = &prediction->plan.chunks[chunk];
  double sum_s = 0;
  for (int u = units->first_unit; u < units->first_unit + units->unit_count; u++)
    sum_s += backward ? plan_unit_backward_s(times, (size_t)u) : plan_unit_forward_s(times, (size_t)u);
  const double whole_s = instructions_s(prediction, chunk, backward), factor = sum_s > 0 ? whole_s / sum_s : 1;
  for (int u = units->first_unit; u < units->first_unit + units->unit_count; u++)
    for (int d = 0; d < PLAN_UNIT_DIRECTION_COUNT; d++)
      if ((d != PLAN_UNIT_FORWARD) == backward) times->total_s[u * PLAN_UNIT_DIRECTION_COUNT + d] *= factor;
}

dp_status sim_unit_times(const plan_scenario *scenario, const sim_prediction *prediction, plan_unit_times *times,
                         dp_error *error) {
  const plan_plan *plan = &prediction->plan;
  const sim_prepared *prepared = &prediction->own;
  if (prepared->kind_count == 0)
    return dp_fail(error, DP_INTERNAL, "unit times: what the prediction was made with is needed");
  DP_TRY(plan_unit_times_init(prediction->graph.units.count, times, error));
  for (size_t u = 0; u < times->unit_count; u++) {
    const int worker = plan->chunks[plan_chunk_of(plan, u)].rank; /* of the first copy */
    const plan_device *device = &scenario->cluster.devices.items[plan->devices[worker]];
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
  for (int c = 0; c < plan->chunk_count; c++) {
    stretch(prediction, c, false, times);
    if (plan->training) stretch(prediction, c, true, times);
  }
  return DP_OK;
}
