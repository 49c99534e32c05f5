/* What a chunk saves, and what it makes again instead. */
#include "graph/op_table.h"
#include "plan/places_build.h"

static bool lies_in(int unit, int first, int count) { return unit >= first && unit < first + count; }

bool plan_places_saves(const plan_plan *plan, const graph *g, int tensor, int first, int count) {
  const graph_tensor *t = &g->tensors.items[tensor];
  if (!plan->training || t->is_constant) return false;
  for (int i = 0; i < t->saver_unit_count; i++)
    if (lies_in(t->saver_units[i], first, count) && !(plan->recompute && plan->recompute[t->saver_units[i]]))
      return true;
  for (int i = 0; plan->recompute && i < t->consumer_unit_count; i++)
    if (lies_in(t->consumer_units[i], first, count) && t->consumer_units[i] != t->producer_unit &&
        plan->recompute[t->consumer_units[i]])
      return true;
  return false;
}

bool plan_places_is_cheap(const graph_op *op) {
  return graph_op_has(op, GRAPH_OP_NORM | GRAPH_OP_ELEMENTWISE) || op->kind == GRAPH_CONCAT ||
         op->kind == GRAPH_SPLIT || op->kind == GRAPH_RESHAPE;
}

/* All that the op reads is saved, or can in turn be made by cheap ops of its unit. */
static bool can_run_again(const plan_plan *plan, const graph *g, const graph_op *op, int first, int count) {
  if (!plan_places_is_cheap(op)) return false;
  for (int i = 0; i < op->input_count; i++) {
    const int root = plan_places_root(g, op->inputs[i]);
    const graph_tensor *t = &g->tensors.items[root];
    if (t->is_constant || plan_places_saves(plan, g, root, first, count)) continue;
    if (t->producer_unit != op->unit || !can_run_again(plan, g, &g->ops.items[t->producer_op], first, count))
      return false;
  }
  return true;
}

bool plan_places_remakes(const plan_plan *plan, const graph *g, int tensor, int first, int count) {
  const graph_tensor *t = &g->tensors.items[tensor];
  const int unit = t->producer_unit;
  return lies_in(unit, first, count) && !t->is_output && t->consumer_unit_count == 1 && t->consumer_units[0] == unit &&
         !(plan->recompute && plan->recompute[unit]) && plan_places_saves(plan, g, tensor, first, count) &&
         can_run_again(plan, g, &g->ops.items[t->producer_op], first, count);
}

/* Behind all of SAVED whose size would leave the next one unaligned. */
static int64_t padding_bytes(const plan_plan *plan, const graph *g, int first, int count) {
  const graph_unit *last = &g->units.items[first + count - 1];
  int64_t odd_bytes = 0;
  for (int t = 0; t < (int)g->tensors.count; t++) {
    const graph_tensor *tensor = &g->tensors.items[t];
    if (tensor->bytes % PLAN_PLACE_ALIGNMENT == 0) continue;
    if (tensor->producer_unit != GRAPH_NONE && !lies_in(tensor->producer_unit, first, count)) continue;
    if (plan_places_saves(plan, g, t, first, count) && !plan_places_remakes(plan, g, t, first, count))
      odd_bytes += tensor->bytes;
  }
  for (int o = g->units.items[first].first_op; o < last->first_op + last->op_count; o++) {
    const graph_op *op = &g->ops.items[o];
    if (op->saved_extra_bytes % PLAN_PLACE_ALIGNMENT != 0 && !(plan->recompute && plan->recompute[op->unit]))
      odd_bytes += op->saved_extra_bytes;
  }
  return (PLAN_PLACE_ALIGNMENT - odd_bytes % PLAN_PLACE_ALIGNMENT) % PLAN_PLACE_ALIGNMENT;
}

int64_t plan_places_saved_bytes(const plan_plan *plan, const graph *g, int first, int count) {
  int64_t received_bytes = 0, bytes = graph_saved_bytes(g, first, count, plan->recompute, &received_bytes);
  const graph_unit *last = &g->units.items[first + count - 1];
  for (int o = g->units.items[first].first_op; o < last->first_op + last->op_count; o++)
    for (int i = 0; i < g->ops.items[o].output_count; i++)
      if (plan_places_remakes(plan, g, g->ops.items[o].outputs[i], first, count))
        bytes -= g->tensors.items[g->ops.items[o].outputs[i]].bytes;
  return bytes - received_bytes + padding_bytes(plan, g, first, count);
}
