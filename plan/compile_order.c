#include "plan/compile.h"

static dp_status check_plan(const plan_compiler *c) {
  const plan_plan *plan = c->plan;
  if (plan->ranks < 1 || plan->replicas < 1 || plan->microbatches < 1 || plan->denoise_steps < 1 ||
      plan->chunk_count < 1 || !plan->chunks || !plan->order)
    return dp_fail(c->error, DP_INTERNAL, "plan: has no chunks, no order or no workers");
  int unit = 0;
  for (int k = 0; k < plan->chunk_count; k++) {
    const plan_chunk *chunk = &plan->chunks[k];
    if (chunk->first_unit != unit || chunk->unit_count < 1 || chunk->rank < 0 || chunk->rank >= plan->ranks)
      return dp_fail(c->error, DP_BAD_INPUT,
                     "plan: found chunk %d with units %d to %d on stage %d, allowed: one or more units from %d on", k,
                     chunk->first_unit, chunk->first_unit + chunk->unit_count - 1, chunk->rank, unit);
    unit += chunk->unit_count;
  }
  if ((size_t)unit != c->graph->units.count)
    return dp_fail(c->error, DP_BAD_INPUT, "plan: found chunks of %d units in all, allowed: the model's %zu", unit,
                   c->graph->units.count);
  return DP_OK;
}

static dp_status bad_step(const plan_compiler *c, int rank, int at, const char *why) {
  const plan_step *step = &c->plan->order[rank][at];
  return dp_fail(c->error, DP_INTERNAL, "plan: the order of stage %d has %s chunk %d microbatch %u at place %d, %s",
                 rank, step->opcode < PLAN_OPCODE_COUNT ? plan_opcode_names[step->opcode] : "?", (int)step->chunk,
                 step->microbatch, at, why);
}

/* Where each step stands; every chunk has each of its passes once per microbatch, ascending. */
static dp_status index_order(plan_compiler *c) {
  const plan_plan *plan = c->plan;
  c->first_step = PLAN_SCRATCH(c, uint32_t, plan->ranks + 1);
  if (!c->first_step) return dp_fail_memory(c->error);
  for (int r = 0; r < plan->ranks; r++) c->first_step[r + 1] = c->first_step[r] + (uint32_t)plan->order_count[r];
  const plan_step *any = plan->order[plan->chunks[0].rank];
  for (int i = 0; i < plan->order_count[plan->chunks[0].rank]; i++)
    if (any[i].opcode == PLAN_BACKWARD_INPUT) c->split_backward = true;
  const int passes = !plan->training ? 1 : c->split_backward ? 3 : 2;
  for (int k = 0; k < plan->chunk_count; k++)
    for (int pass = 0; pass < passes; pass++) {
      c->chunks[k].step[pass] = PLAN_SCRATCH(c, int, c->items);
      if (!c->chunks[k].step[pass]) return dp_fail_memory(c->error);
    }
  int *next = PLAN_SCRATCH(c, int, (size_t)plan->chunk_count *PLAN_PASS_COUNT);
  if (!next) return dp_fail_memory(c->error);
  for (int r = 0; r < plan->ranks; r++)
    for (int i = 0; i < plan->order_count[r]; i++) {
      const plan_step *step = &plan->order[r][i];
      if (step->opcode > PLAN_BACKWARD_WEIGHT || step->chunk >= plan->chunk_count)
        return bad_step(c, r, i, "which is no step");
      const int pass = plan_compile_pass(step->opcode), k = step->chunk;
      int *count = &next[k * PLAN_PASS_COUNT + pass];
      if (plan->chunks[k].rank != r) return bad_step(c, r, i, "a chunk of another stage");
      if (pass >= passes || (pass == PLAN_PASS_BACKWARD && (step->opcode == PLAN_BACKWARD_INPUT) != c->split_backward))
        return bad_step(c, r, i, "which this kind of plan does not have");
      if (*count >= c->items || step->microbatch != (uint32_t)*count)
        return bad_step(c, r, i, "microbatches of a chunk must ascend one by one");
      if (pass > 0 && *count >= next[k * PLAN_PASS_COUNT + pass - 1])
        return bad_step(c, r, i, "before the pass that it follows");
      c->chunks[k].step[pass][(*count)++] = i;
    }
  for (int k = 0; k < plan->chunk_count; k++)
    for (int pass = 0; pass < passes; pass++)
      if (next[k * PLAN_PASS_COUNT + pass] != c->items)
        return dp_fail(c->error, DP_INTERNAL, "plan: the order has %d of %d microbatches of chunk %d",
                       next[k * PLAN_PASS_COUNT + pass], c->items, k);
  return DP_OK;
}

/* The step that a step waits for beyond its own rank's order: false when there is none. */
static bool dependency(const plan_compiler *c, const plan_step *step, int *chunk, int *pass, int *item) {
  const int last = c->plan->chunk_count - 1;
  *pass = plan_compile_pass(step->opcode);
  *item = (int)step->microbatch;
  *chunk = *pass == PLAN_PASS_FORWARD ? step->chunk - 1 : step->chunk + 1;
  if (*pass == PLAN_PASS_WEIGHT || *chunk > last) return false;
  if (*chunk >= 0) return true;
  *chunk = last; /* the latent of the denoise step before */
  *item -= c->plan->microbatches;
  return *item >= 0;
}

/* Levels: every rank goes on until a step's dependency has none; who gives it one wakes the rank. */
static dp_status find_levels(plan_compiler *c) {
  const plan_plan *plan = c->plan;
  c->level = PLAN_SCRATCH(c, int, c->first_step[plan->ranks]);
  int *done = PLAN_SCRATCH(c, int, plan->ranks), *stack = PLAN_SCRATCH(c, int, plan->ranks);
  bool *waiting = PLAN_SCRATCH(c, bool, plan->ranks);
  if (!c->level || !done || !stack || !waiting) return dp_fail_memory(c->error);
  int height = 0;
  for (int r = plan->ranks - 1; r >= 0; r--) stack[height++] = r;
  while (height > 0) {
    const int r = stack[--height];
    waiting[r] = false;
    while (done[r] < plan->order_count[r]) {
      const plan_step *step = &plan->order[r][done[r]];
      int chunk, pass, item, level = done[r] ? c->level[c->first_step[r] + (uint32_t)done[r] - 1] : 0;
      if (dependency(c, step, &chunk, &pass, &item)) {
        const int rank = plan->chunks[chunk].rank, at = c->chunks[chunk].step[pass][item];
        if (at >= done[rank]) {
          waiting[r] = true;
          break;
        }
        const int other = c->level[c->first_step[rank] + (uint32_t)at];
        if (other > level) level = other;
      }
      c->level[c->first_step[r] + (uint32_t)done[r]++] = level + (step->opcode == PLAN_BACKWARD ? 2 : 1);
      const int fed =
          step->opcode == PLAN_FORWARD ? step->chunk + 1 < plan->chunk_count ? step->chunk + 1 : 0 : step->chunk - 1;
      if (fed >= 0 && waiting[plan->chunks[fed].rank]) {
        waiting[plan->chunks[fed].rank] = false;
        stack[height++] = plan->chunks[fed].rank;
      }
    }
  }
  for (int r = 0; r < plan->ranks; r++)
    if (done[r] < plan->order_count[r]) return bad_step(c, r, done[r], "which waits for a step that waits for it");
  return DP_OK;
}

dp_status plan_compile_order(plan_compiler *c) {
  DP_TRY(check_plan(c));
  c->items = c->plan->microbatches * c->plan->denoise_steps;
  c->chunks = PLAN_SCRATCH(c, plan_compile_chunk, c->plan->chunk_count);
  if (!c->chunks) return dp_fail_memory(c->error);
  DP_TRY(index_order(c));
  return find_levels(c);
}
