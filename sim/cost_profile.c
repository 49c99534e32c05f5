/* Costs of units from a profile: what was measured, else what its laws say, else the roofline. */
#include <math.h>

#include "graph/op_table.h"
#include "plan/places.h"
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
  const double seconds = sim_cost_op_of(context, keys->graph, op, (sim_direction)direction);
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
      for (int k = 0; k < 2; k++) cost->beside_s[d][k] += fmax(0, found.busy_s - found.alone_s);
      cost->source_s[found.source] += found.alone_s;
    }
}

/* What was measured takes the place of `share` of what the curves say of a direction. */
static void take_measured(const plan_profile_unit *row, double share, sim_direction d, sim_unit_cost *cost) {
  const double by_curves = cost->device_s[d], seconds = share * row->alone_s;
  for (int c = 0; c < GRAPH_CLASS_COUNT; c++) {
    if (by_curves > 0) cost->class_s[d][c] *= seconds / by_curves;
    if (by_curves <= 0 && c == GRAPH_CLASS_MEMORY) cost->class_s[d][c] = seconds;
  }
  cost->device_s[d] = seconds;
  cost->beside_s[d][0] = share * (row->beside_forward_s - row->alone_s);
  cost->beside_s[d][1] = share * (row->beside_backward_s - row->alone_s);
  cost->first_s[d] = row->first_s > 0 ? share * (row->first_s - row->alone_s) : 0;
  cost->issue_s[d] = 0; /* whole units are put in the queue at once */
  cost->source_s[PLAN_SOURCE_MEASURED] += seconds;
}

typedef struct unit_rows {
  const plan_profile_unit *of[PLAN_PROFILE_PASS_COUNT]; /* NULL: not measured */
} unit_rows;

static unit_rows find_rows(const sim_cost_context *context, const plan_profile_keys *keys, int u, dp_str *scratch) {
  char key[17];
  unit_rows rows;
  plan_profile_unit_key(keys, u, scratch, key);
  for (int p = 0; p < PLAN_PROFILE_PASS_COUNT; p++)
    rows.of[p] = plan_profile_find_unit(context->profile, key, context->device->sm_count, (plan_profile_pass)p);
  return rows;
}

/* By the curves, as others of the same device were found to be off from these. */
static void estimate(const sim_cost_context *context, sim_direction d, sim_unit_cost *cost) {
  const plan_profile_part *part = plan_profile_find_part(context->profile, context->device->sm_count);
  const double known = !part ? 0 : d == SIM_FORWARD ? part->forward_factor : part->backward_factor;
  const double factor = known > 0 ? known : 1;
  cost->device_s[d] *= factor;
  cost->first_s[d] *= factor;
  for (int c = 0; c < GRAPH_CLASS_COUNT; c++) cost->class_s[d][c] *= factor;
  cost->source_s[known > 0 ? PLAN_SOURCE_INTERPOLATED : PLAN_SOURCE_ANALYTIC] += cost->device_s[d];
}

static bool reads(const graph *model, const int *tensors, int count, int tensor) {
  for (int i = 0; i < count; i++)
    if (plan_places_root(model, tensors[i]) == plan_places_root(model, tensor)) return true;
  return false;
}

/* Whether what the op makes is read by a backward of its unit, or by what of the unit is run again. */
static bool is_run_again(const graph *model, const graph_unit *unit, int o, const uint8_t *again) {
  const graph_op *op = &model->ops.items[o];
  for (int later = o; later < unit->first_op + unit->op_count; later++) {
    const graph_op *reader = &model->ops.items[later];
    for (int i = 0; i < op->output_count; i++) {
      if (reads(model, reader->saved, reader->saved_count, op->outputs[i])) return true;
      if (later > o && again[later - unit->first_op] &&
          reads(model, reader->inputs, reader->input_count, op->outputs[i]))
        return true;
    }
  }
  return op->saved_extra_bytes > 0;
}

/* By the curves. What nobody reads backward, as the product that a unit ends with, is not run again, and what a backward
 * makes again rather than keep (plan_places_remakes) is in its time. As plan/places_backward.c runs it, whatever else is
 * saved. */
double sim_cost_again_share(const sim_cost_context *context, const graph *model, int u) {
  enum { MOST_OPS = 512 };
  const graph_unit *unit = &model->units.items[u];
  uint8_t again[MOST_OPS];
  double all_s = 0, again_s = 0;
  if (unit->op_count > MOST_OPS) return 1;
  for (int o = unit->first_op + unit->op_count - 1; o >= unit->first_op; o--) {
    const double seconds = sim_cost_op_of(context, model, o, SIM_FORWARD);
    again[o - unit->first_op] = is_run_again(model, unit, o, again);
    all_s += seconds;
    if (again[o - unit->first_op] && !plan_places_is_cheap(&model->ops.items[o])) again_s += seconds;
  }
  return all_s > 0 ? again_s / all_s : 1;
}

/* A unit that runs whole. Where a backward was measured in one piece alone, its parts share it as the curves say. */
static void cost_whole_unit(const sim_cost_context *context, const plan_profile_keys *keys, int u, sim_unit_cost *cost,
                            dp_str *scratch) {
  const unit_rows rows = find_rows(context, keys, u, scratch);
  const plan_profile_unit *whole = rows.of[PLAN_PROFILE_BACKWARD];
  sim_cost_unit_by_curves(context, keys->graph, u, cost);
  if (rows.of[PLAN_PROFILE_FORWARD]) {
    take_measured(rows.of[PLAN_PROFILE_FORWARD], 1, SIM_FORWARD, cost);
    if (whole || rows.of[PLAN_PROFILE_BACKWARD_INPUT])
      cost->spared_s = cost->device_s[SIM_FORWARD] * (1 - sim_cost_again_share(context, keys->graph, u));
  } else {
    estimate(context, SIM_FORWARD, cost);
  }
  const double input_s = cost->device_s[SIM_BACKWARD_INPUT], weight_s = cost->device_s[SIM_BACKWARD_WEIGHT];
  if (rows.of[PLAN_PROFILE_BACKWARD_INPUT] && rows.of[PLAN_PROFILE_BACKWARD_WEIGHT]) {
    take_measured(rows.of[PLAN_PROFILE_BACKWARD_INPUT], 1, SIM_BACKWARD_INPUT, cost);
    take_measured(rows.of[PLAN_PROFILE_BACKWARD_WEIGHT], 1, SIM_BACKWARD_WEIGHT, cost);
    if (whole)
      cost->whole_s = whole->alone_s - cost->device_s[SIM_BACKWARD_INPUT] - cost->device_s[SIM_BACKWARD_WEIGHT];
  } else if (whole) {
    const double share = input_s + weight_s > 0 ? input_s / (input_s + weight_s) : 1;
    take_measured(whole, share, SIM_BACKWARD_INPUT, cost);
    take_measured(whole, 1 - share, SIM_BACKWARD_WEIGHT, cost);
  } else {
    estimate(context, SIM_BACKWARD_INPUT, cost);
    estimate(context, SIM_BACKWARD_WEIGHT, cost);
  }
}

dp_status sim_cost_against_curves(const sim_cost_context *context, const graph *model, sim_against_curves *sums,
                                  dp_error *error) {
  plan_profile_keys keys;
  dp_str scratch = {0};
  DP_TRY(plan_profile_keys_init(model, &keys, error));
  for (size_t u = 0; u < model->units.count; u++) {
    sim_unit_cost cost = {.whole_s = 0};
    const unit_rows rows = find_rows(context, &keys, (int)u, &scratch);
    const plan_profile_unit *forward = rows.of[PLAN_PROFILE_FORWARD], *backward = rows.of[PLAN_PROFILE_BACKWARD];
    sim_cost_unit_by_curves(context, model, (int)u, &cost);
    if (forward) sums->measured_s[0] += forward->alone_s;
    if (forward) sums->curves_s[0] += cost.device_s[SIM_FORWARD];
    if (backward) sums->measured_s[1] += backward->alone_s;
    if (backward) sums->curves_s[1] += cost.device_s[SIM_BACKWARD_INPUT] + cost.device_s[SIM_BACKWARD_WEIGHT];
  }
  const dp_status status = scratch.failed ? dp_fail_memory(error) : DP_OK;
  dp_str_free(&scratch);
  plan_profile_keys_free(&keys);
  return status;
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
    if (unit->fixed.present) continue;
    if (context->profile->units.count)
      cost_whole_unit(context, &keys, (int)u, &units[u], &key);
    else
      cost_unit(context, &keys, unit, &units[u], &key);
  }
  cost_loss(context->profile, model, units);
  const dp_status status = key.failed ? dp_fail_memory(error) : DP_OK;
  dp_str_free(&key);
  plan_profile_keys_free(&keys);
  return status;
}
