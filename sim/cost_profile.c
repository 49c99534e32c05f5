/* Costs of units from a profile: what was measured, else what its laws say, else the roofline. */
#include <math.h>

#include "graph/op_table.h"
#include "sim/cost.h"

_Static_assert((int)SIM_FORWARD == (int)PLAN_DIRECTION_FORWARD &&
                   (int)SIM_BACKWARD_INPUT == (int)PLAN_DIRECTION_BACKWARD_INPUT &&
                   (int)SIM_BACKWARD_WEIGHT == (int)PLAN_DIRECTION_BACKWARD_WEIGHT,
               "directions are numbered alike");

/* Of an op that runs. */
static plan_profile_cost cost_of(const sim_cost_context *context, const plan_profile_keys *keys, int op,
                                 plan_direction direction, dp_str *key) {
  const graph_op *o = &keys->graph->ops.items[op];
  const plan_profile_work work = plan_profile_work_of(keys->graph, op, direction);
  plan_profile_cost cost;
  plan_profile_key(keys, op, direction, key);
  if (plan_profile_op_cost(context->profile, dp_str_text(key), o->kind, direction, &work, &cost)) return cost;
  const double seconds = sim_cost_op(context, o, (sim_direction)direction);
  return (plan_profile_cost){seconds, seconds, PLAN_SOURCE_ANALYTIC};
}

static void cost_unit(const sim_cost_context *context, const plan_profile_keys *keys, const graph_unit *unit,
                      sim_unit_cost *cost, dp_str *key) {
  for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
    for (int d = 0; d < PLAN_DIRECTION_COUNT; d++) {
      if (!plan_profile_runs(keys->graph, o, (plan_direction)d)) continue;
      const plan_profile_cost found = cost_of(context, keys, o, (plan_direction)d, key);
      cost->device_s[d] += found.alone_s;
      cost->class_s[d][graph_op_rows[keys->graph->ops.items[o].kind].op_class] += found.alone_s;
      cost->busy_s[d] += fmax(0, found.busy_s - found.alone_s);
      cost->source_s[found.source] += found.alone_s;
    }
}

static void cost_loss(const plan_profile *profile, const graph *model, sim_unit_cost *units) {
  for (size_t t = 0; t < model->tensors.count; t++) {
    const graph_tensor *output = &model->tensors.items[t];
    if (!output->is_output || output->producer_unit == GRAPH_NONE) continue;
    const double seconds = profile->loss_s + profile->loss_s_per_byte * (double)output->bytes;
    sim_unit_cost *cost = &units[output->producer_unit];
    cost->device_s[SIM_FORWARD] += seconds;
    cost->class_s[SIM_FORWARD][GRAPH_CLASS_MEMORY] += seconds;
    cost->source_s[PLAN_SOURCE_MEASURED] += seconds;
  }
}

dp_status sim_cost_profile_units(const sim_cost_context *context, const graph *model, sim_unit_cost *units,
                                 dp_error *error) {
  plan_profile_keys keys;
  dp_str key = {0};
  DP_TRY(plan_profile_keys_init(model, &keys, error));
  for (size_t u = 0; u < model->units.count; u++) {
    const graph_unit *unit = &model->units.items[u];
    const double fixed_s[] = {unit->fixed.forward_s, unit->fixed.backward_input_s, unit->fixed.backward_weight_s};
    for (int d = 0; unit->fixed.present && d < PLAN_DIRECTION_COUNT; d++) units[u].device_s[d] = fixed_s[d];
    if (!unit->fixed.present) cost_unit(context, &keys, unit, &units[u], &key);
  }
  cost_loss(context->profile, model, units);
  const dp_status status = key.failed ? dp_fail_memory(error) : DP_OK;
  dp_str_free(&key);
  plan_profile_keys_free(&keys);
  return status;
}
