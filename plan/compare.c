#include "plan/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/median.h"
#include "plan/compare_causes.h"
#include "plan/replay.h"

double plan_error_of(double predicted, double measured) { return measured > 0 ? predicted / measured - 1 : 0; }

/* ---- the same program ---- */

static bool same_lane(const plan_lane *a, const plan_lane *b) {
  return a->worker == b->worker && a->kind == b->kind && a->backward == b->backward && a->peer == b->peer &&
         a->first == b->first && a->count == b->count;
}

static bool same_instruction(const plan_instruction *a, const plan_instruction *b) {
  return a->opcode == b->opcode && a->part == b->part && a->chunk == b->chunk && a->microbatch == b->microbatch &&
         a->peer == b->peer;
}

/* Whether two programs have the same lanes and instructions; else `why` says in what they differ. */
static bool same_program(const plan_program *a, const plan_program *b, char why[160]) {
  if (a == b) return true;
  if (a->worker_count != b->worker_count || a->lane_count != b->lane_count ||
      a->instruction_count != b->instruction_count) {
    (void)snprintf(why, 160, "%d workers, %" PRIu32 " lanes, %" PRIu32 " instructions; and %d, %" PRIu32 ", %" PRIu32,
                   a->worker_count, a->lane_count, a->instruction_count, b->worker_count, b->lane_count,
                   b->instruction_count);
    return false;
  }
  for (uint32_t l = 0; l < a->lane_count; l++)
    if (!same_lane(&a->lanes[l], &b->lanes[l])) {
      (void)snprintf(why, 160, "lane %" PRIu32 " is another one", l);
      return false;
    }
  for (uint32_t i = 0; i < a->instruction_count; i++)
    if (!same_instruction(&a->instructions[i], &b->instructions[i])) {
      char one[128], other[128];
      (void)snprintf(why, 160, "instruction %" PRIu32 ": %.60s; and %.60s", i, plan_instruction_show(a, i, one),
                     plan_instruction_show(b, i, other));
      return false;
    }
  return true;
}

/* ---- spreads ---- */

typedef struct comparer {
  const plan_comparison_input *input;
  const plan_program *program;
  plan_comparison *out;
  dp_arena scratch;
  plan_replay replay;
  plan_parts predicted, measured, effect;
  dp_error *error;
} comparer;

#define SCRATCH(c, type, count) DP_ARENA_NEW(&(c)->scratch, type, (size_t)(count) + 1)
#define KEEP(c, type, count) DP_ARENA_NEW(&(c)->out->arena, type, (size_t)(count) + 1)

/* Some steps of one side. */
typedef struct steps {
  const double *start_s, *end_s; /* [count * instruction_count] */
  uint32_t count;
} steps;

/* What is counted: an instruction is a part of one item, an item belongs to one group. */
typedef struct grouping {
  uint32_t *item_of;  /* [instruction] PLAN_NO_PEER: not counted */
  uint32_t *group_of; /* [item] */
  uint32_t item_count, group_count;
} grouping;

static void spread_values(double *values, size_t count, uint32_t step_count, plan_spread *spread) {
  *spread = (plan_spread){.count = (uint32_t)(count / step_count)};
  for (size_t i = 0; i < count; i++) spread->total_s += values[i] / step_count;
  if (count) spread->mean_s = spread->total_s * step_count / (double)count;
  dp_sort(values, count);
  spread->median_s = plan_quantile(values, count, 0.5);
  spread->p95_s = plan_quantile(values, count, 0.95);
}

/* spreads[group_count] */
static dp_status spread_side(comparer *c, const grouping *g, const steps *from, plan_spread *spreads) {
  const uint32_t n = c->program->instruction_count;
  double *length_s = SCRATCH(c, double, g->item_count);
  double *values = SCRATCH(c, double, (size_t)g->item_count * from->count);
  size_t *first = SCRATCH(c, size_t, g->group_count), *next = SCRATCH(c, size_t, g->group_count);
  if (!length_s || !values || !first || !next) return dp_fail_memory(c->error);
  for (uint32_t i = 0; i < g->item_count; i++) first[g->group_of[i] + 1] += from->count;
  for (uint32_t k = 0; k < g->group_count; k++) {
    first[k + 1] += first[k];
    next[k] = first[k];
  }
  for (uint32_t s = 0; s < from->count; s++) {
    const double *start_s = from->start_s + (size_t)s * n, *end_s = from->end_s + (size_t)s * n;
    for (uint32_t i = 0; i < g->item_count; i++) length_s[i] = 0;
    for (uint32_t i = 0; i < n; i++)
      if (g->item_of[i] != PLAN_NO_PEER) length_s[g->item_of[i]] += end_s[i] - start_s[i];
    for (uint32_t i = 0; i < g->item_count; i++) values[next[g->group_of[i]]++] = length_s[i];
  }
  for (uint32_t k = 0; k < g->group_count; k++)
    spread_values(values + first[k], first[k + 1] - first[k], from->count, &spreads[k]);
  return DP_OK;
}

static dp_status spread_both(comparer *c, const grouping *g, plan_compared *out) {
  const plan_comparison_input *in = c->input;
  steps predicted = {in->predicted->start_s, in->predicted->end_s, 1};
  steps measured = {in->measured->start_s, in->measured->end_s, 1};
  if (in->samples && in->samples->count)
    measured = (steps){in->samples->start_s, in->samples->end_s, in->samples->count};
  plan_spread *spreads = SCRATCH(c, plan_spread, g->group_count);
  if (!spreads) return dp_fail_memory(c->error);
  DP_TRY(spread_side(c, g, &predicted, spreads));
  for (uint32_t k = 0; k < g->group_count; k++) out[k].predicted = spreads[k];
  DP_TRY(spread_side(c, g, &measured, spreads));
  for (uint32_t k = 0; k < g->group_count; k++) out[k].measured = spreads[k];
  return DP_OK;
}

static dp_status grouping_new(comparer *c, uint32_t items, uint32_t groups, grouping *g) {
  *g = (grouping){.item_of = SCRATCH(c, uint32_t, c->program->instruction_count),
                  .group_of = SCRATCH(c, uint32_t, items),
                  .item_count = items,
                  .group_count = groups};
  return g->item_of && g->group_of ? DP_OK : dp_fail_memory(c->error);
}

static bool computes(const comparer *c, uint32_t id) {
  return c->program->lanes[c->replay.lane_of[id]].kind == PLAN_LANE_COMPUTE;
}

static uint32_t worker_of(const comparer *c, uint32_t id) { return c->program->lanes[c->replay.lane_of[id]].worker; }

static dp_status compare_kinds(comparer *c) {
  const uint32_t n = c->program->instruction_count;
  grouping g;
  DP_TRY(grouping_new(c, n, PLAN_OPCODE_COUNT, &g));
  for (uint32_t i = 0; i < n; i++) {
    g.item_of[i] = i;
    g.group_of[i] = c->program->instructions[i].opcode;
    c->out->kinds[g.group_of[i]].effect_s += c->effect.length_s[i];
  }
  return spread_both(c, &g, c->out->kinds);
}

static dp_status compare_workers(comparer *c) {
  const uint32_t n = c->program->instruction_count;
  grouping g;
  uint32_t items = 0;
  c->out->workers = KEEP(c, plan_compared, c->program->worker_count);
  if (!c->out->workers) return dp_fail_memory(c->error);
  DP_TRY(grouping_new(c, n, (uint32_t)c->program->worker_count, &g));
  for (uint32_t i = 0; i < n; i++) {
    g.item_of[i] = PLAN_NO_PEER;
    if (!computes(c, i)) continue;
    const uint32_t w = worker_of(c, i);
    g.item_of[i] = items;
    g.group_of[items++] = w;
    c->out->workers[w].effect_s += c->effect.length_s[i] + c->effect.delay_s[c->replay.event_of[i]];
  }
  g.item_count = items;
  return spread_both(c, &g, c->out->workers);
}

/* An item is a chunk's forward, or backward with all its parts, of one microbatch on one copy of the pipeline. */
static dp_status compare_chunks(comparer *c) {
  const plan_plan *plan = c->program->plan;
  const uint32_t n = c->program->instruction_count, chunks = (uint32_t)plan->chunk_count;
  uint32_t microbatches = 1;
  for (uint32_t i = 0; i < n; i++)
    if (c->program->instructions[i].microbatch >= microbatches)
      microbatches = c->program->instructions[i].microbatch + 1;
  const uint32_t copies = (uint32_t)(c->program->worker_count / plan->ranks);
  plan_compared *both = KEEP(c, plan_compared, 2 * (size_t)chunks); /* forward of each, then backward */
  grouping g;
  if (!both) return dp_fail_memory(c->error);
  c->out->chunks[0] = both;
  c->out->chunks[1] = both + chunks;
  const uint32_t places = copies * microbatches * chunks * 2;
  uint32_t *item_at = SCRATCH(c, uint32_t, places); /* 1 + the item; 0: nothing runs there */
  if (!item_at) return dp_fail_memory(c->error);
  DP_TRY(grouping_new(c, places, 2 * chunks, &g));
  g.item_count = 0;
  for (uint32_t i = 0; i < n; i++) {
    const plan_instruction *one = &c->program->instructions[i];
    g.item_of[i] = PLAN_NO_PEER;
    if (!computes(c, i) || one->opcode == PLAN_OPTIMIZER_STEP) continue;
    const uint32_t copy = worker_of(c, i) / (uint32_t)plan->ranks;
    const uint32_t group = (one->opcode == PLAN_FORWARD ? 0 : chunks) + one->chunk;
    uint32_t *item = &item_at[(copy * microbatches + one->microbatch) * 2 * chunks + group];
    if (!*item) {
      g.group_of[g.item_count] = group;
      *item = ++g.item_count;
    }
    g.item_of[i] = *item - 1;
    both[group].effect_s += c->effect.length_s[i];
  }
  return spread_both(c, &g, both);
}

/* ---- units ---- */

/* How often a chunk's difference counts in the step: its effect is so many times that of one microbatch. */
static double weight_of(const plan_compared *chunk) {
  const double difference_s = chunk->measured.mean_s - chunk->predicted.mean_s;
  if (fabs(difference_s) <= 1e-9 * chunk->predicted.mean_s) return 0;
  return fmin(fmax(chunk->effect_s / difference_s, 0), chunk->measured.count);
}

static dp_status compare_units(comparer *c) {
  const plan_comparison_input *in = c->input;
  const plan_plan *plan = c->program->plan;
  if (!in->predicted_units || !in->measured_units) return DP_OK;
  const size_t units = in->predicted_units->unit_count;
  if (in->measured_units->unit_count != units)
    return dp_fail(c->error, DP_BAD_INPUT, "compare: found times of %zu units predicted, %zu measured; allowed: alike",
                   units, in->measured_units->unit_count);
  c->out->units = KEEP(c, plan_compared_unit, units);
  if (!c->out->units) return dp_fail_memory(c->error);
  c->out->unit_count = units;
  for (size_t u = 0; u < units; u++) {
    plan_compared_unit *unit = &c->out->units[u];
    unit->predicted_s[0] = plan_unit_forward_s(in->predicted_units, u);
    unit->predicted_s[1] = plan_unit_backward_s(in->predicted_units, u);
    unit->measured_s[0] = plan_unit_forward_s(in->measured_units, u);
    unit->measured_s[1] = plan_unit_backward_s(in->measured_units, u);
  }
  for (int k = 0; k < plan->chunk_count; k++)
    for (int d = 0; d < 2; d++) {
      const double weight = weight_of(&c->out->chunks[d][k]);
      for (int i = 0; i < plan->chunks[k].unit_count; i++) {
        const size_t u = (size_t)(plan->chunks[k].first_unit + i);
        plan_compared_unit *unit = u < units ? &c->out->units[u] : NULL;
        if (unit && unit->measured_s[d] > 0) unit->effect_s[d] = weight * (unit->measured_s[d] - unit->predicted_s[d]);
      }
    }
  return DP_OK;
}

/* ---- the whole ---- */

static double latest_end_s(const plan_timeline *timeline) {
  double latest_s = 0;
  for (uint32_t i = 0; i < timeline->program->instruction_count; i++) latest_s = fmax(latest_s, timeline->end_s[i]);
  return latest_s;
}

static dp_status compare_all(comparer *c) {
  const plan_comparison_input *in = c->input;
  plan_comparison *out = c->out;
  DP_TRY(plan_metrics_of(in->predicted, &out->predicted, c->error));
  DP_TRY(plan_metrics_of(in->measured, &out->measured, c->error));
  out->difference_s = in->measured->step_s - in->predicted->step_s;
  DP_TRY(plan_replay_init(c->program, &c->replay, c->error));
  DP_TRY(plan_replay_dissect(&c->replay, in->predicted, &c->predicted, c->error));
  DP_TRY(plan_replay_dissect(&c->replay, in->measured, &c->measured, c->error));
  DP_TRY(plan_replay_share(&c->replay, &c->predicted, &c->measured, &c->effect, c->error));
  DP_TRY(compare_kinds(c));
  DP_TRY(compare_workers(c));
  DP_TRY(compare_chunks(c));
  DP_TRY(compare_units(c));
  const double after_s[2] = {in->predicted->step_s - latest_end_s(in->predicted),
                             in->measured->step_s - latest_end_s(in->measured)};
  return plan_compare_causes(&c->replay, &c->predicted, &c->measured, &c->effect, after_s, out, c->error);
}

dp_status plan_compare(const plan_comparison_input *input, plan_comparison *comparison, dp_error *error) {
  char why[160];
  *comparison = (plan_comparison){.program = input->measured->program};
  if (!same_program(input->predicted->program, input->measured->program, why))
    return dp_fail(error, DP_BAD_INPUT, "compare: found timelines of different programs (%s), allowed: of one", why);
  comparer c = {.input = input, .program = input->measured->program, .out = comparison, .error = error};
  const dp_status status = compare_all(&c);
  plan_replay_free(&c.replay);
  dp_arena_free(&c.scratch);
  if (status != DP_OK) plan_comparison_free(comparison);
  return status;
}

void plan_comparison_free(plan_comparison *comparison) {
  plan_metrics_free(&comparison->predicted);
  plan_metrics_free(&comparison->measured);
  dp_arena_free(&comparison->arena);
  *comparison = (plan_comparison){0};
}
