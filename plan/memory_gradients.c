/* Gradients of weights where saved activations have been. */
#include "plan/memory_rules.h"
#include "plan/places.h"

/* Bytes that an action's operand takes: of the tensors, then of the statistics and the gradient of hidden values. */
static int64_t operand_bytes(const graph *g, const graph_op *op, int operand) {
  const int tensors = op->input_count + op->output_count, k = operand % tensors;
  if (operand >= 2 * tensors) return op->saved_extra_bytes;
  return g->tensors.items[k < op->input_count ? op->inputs[k] : op->outputs[k - op->input_count]].bytes;
}

/* Where in SAVED ends what the actions of a unit's backward have to do with. */
static int64_t saved_end(const graph *g, const plan_pass_places *pass, int unit) {
  int64_t end = 0;
  for (uint32_t a = pass->unit_begin[unit]; a < pass->unit_end[unit]; a++) {
    const graph_op *op = &g->ops.items[pass->actions[a].op];
    const int operands = 2 * (op->input_count + op->output_count + 1);
    for (int i = 0; i < operands; i++) {
      const plan_place place = pass->places[pass->actions[a].first_place + (uint32_t)i];
      const int64_t to = place.at + operand_bytes(g, op, i);
      if (place.block == PLAN_BLOCK_SAVED && to > end) end = to;
    }
  }
  return end;
}

/* Parameters whose gradients the actions of a unit write. */
static int64_t written(const graph *g, const plan_pass_places *pass, int unit) {
  int64_t count = 0;
  for (uint32_t a = pass->unit_begin[unit]; a < pass->unit_end[unit]; a++) {
    const graph_op *op = &g->ops.items[pass->actions[a].op];
    if (pass->actions[a].kind != PLAN_ACTION_WEIGHT_GRADIENT) continue;
    count += op->adapter_parameters + (op->trainable == GRAPH_TRAIN_FULL ? op->parameters : 0);
  }
  return count;
}

static bool find(const plan_keeper *k, const plan_places *places, int64_t value_bytes, int64_t *begin_bytes) {
  const plan_pass_places *pass = &places->passes[PLAN_PASS_BACKWARD];
  int64_t end = 0, before = 0;
  *begin_bytes = 0;
  for (int u = 0; u < places->unit_count; u++) {
    const int64_t own = k->graph->units.items[places->first_unit + u].trainable_parameters,
                  to = saved_end(k->graph, pass, u);
    if (written(k->graph, pass, u) != own) return false;
    if (to > end) end = to;
    if (own > 0 && end - before * value_bytes > *begin_bytes) *begin_bytes = end - before * value_bytes;
    before += own;
  }
  return true;
}

dp_status plan_keeper_gradients(const plan_keeper *k, int rank, int64_t value_bytes, bool *shares,
                                int64_t *begin_bytes) {
  const int chunk = k->rank_chunks[k->rank_first[rank]];
  *shares = false;
  if (!k->plan->training || !k->unfused || k->split_backward || k->items > 1 || k->program->compressor_count > 0 ||
      k->rank_first[rank + 1] - k->rank_first[rank] != 1)
    return DP_OK;
  dp_arena arena = {0};
  plan_places places;
  const dp_status status = plan_places_of(k->plan, k->graph, chunk, false, &arena, &places, k->error);
  if (status == DP_OK) *shares = find(k, &places, value_bytes, begin_bytes);
  dp_arena_free(&arena);
  return status;
}
