/* What becomes of the times that were taken: a unit's, and how much slower instructions are beside others. */
#include "exec/measure_units_run.h"

#include <math.h>

#include "base/median.h"

enum { ASIDE = 5, LEAST = 5 }; /* every fifth is kept aside, of so many */

static bool is_aside(const exec_units_spans *s, int round) { return s->count >= LEAST && round % ASIDE == ASIDE - 1; }

double exec_units_middle(const exec_units_spans *s, const double *values) {
  double kept[EXEC_UNITS_MOST_ROUNDS];
  size_t count = 0;
  for (int i = 0; i < s->count; i++)
    if (!is_aside(s, i)) kept[count++] = values[i];
  return dp_median(kept, count);
}

/* Instructions of a worker that do the same work: of each microbatch; but the first one overwrites gradients. */
static bool are_alike(const exec_units_job *r, int w, uint32_t a, uint32_t b) {
  const plan_instruction *x = &r->program->instructions[a], *y = &r->program->instructions[b];
  return x->class_id == y->class_id && exec_units_is_first(r, w, x) == exec_units_is_first(r, w, y);
}

/* How much slower an instruction is beside others, from all that are like it. */
static dp_status find_slowness(exec_units_job *r, int w, uint32_t at, exec_units_slowness *slowness) {
  const plan_lane *lane = exec_units_compute_of(r, w);
  exec_units_points points = {0};
  dp_status status = DP_OK;
  *slowness = (exec_units_slowness){.by = {0, 0}};
  for (int p = EXEC_UNITS_FORWARDS; p < EXEC_UNITS_PLAYS; p++)
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const exec_units_spans *alone = exec_units_bare_of(r, EXEC_UNITS_ALONE, i),
                             *s = exec_units_bare_of(r, (exec_units_play)p, i);
      if (s->count == 0 || alone->count == 0 || !are_alike(r, w, at, i)) continue;
      const exec_units_point point = {
          .more = exec_units_middle(s, s->seconds) / fmax(1e-9, exec_units_middle(alone, alone->seconds)) - 1,
          .beside = {exec_units_middle(s, s->beside[0]), exec_units_middle(s, s->beside[1])}};
      if (!dp_array_push(&points, point)) status = dp_fail_memory(r->error);
    }
  if (status == DP_OK) exec_units_slow(points.items, points.count, slowness);
  dp_array_free(&points);
  return status;
}

/* What was kept aside against what the others say of it, and how far two runs of the same differ. */
static dp_status look(exec_units_job *r, uint32_t at, const exec_units_slowness *slowness) {
  const exec_units_spans *alone = exec_units_bare_of(r, EXEC_UNITS_ALONE, at);
  const double alone_s = exec_units_middle(alone, alone->seconds);
  for (int p = EXEC_UNITS_ALONE; p < EXEC_UNITS_PLAYS; p++) {
    const exec_units_spans *s = exec_units_bare_of(r, (exec_units_play)p, at);
    for (int i = 0; i < s->count; i++) {
      const double beside[2] = {s->beside[0][i], s->beside[1][i]};
      const double foretold_s = alone_s * exec_units_slowed(slowness, beside);
      if (s->seconds[i] <= 0) continue;
      const exec_units_error error = {fabs(foretold_s / s->seconds[i] - 1), r->making};
      if (is_aside(s, i) && !dp_array_push(&r->units->errors, error)) return dp_fail_memory(r->error);
      const exec_units_error repeat = {i > 0 ? fabs(s->seconds[i - 1] / s->seconds[i] - 1) : 0, r->making};
      if (i > 0 && !dp_array_push(&r->units->repeats, repeat)) return dp_fail_memory(r->error);
    }
  }
  return DP_OK;
}

/* A mark takes time itself: units take their share of what an instruction takes without those between them; and all of
 * its units are slowed as it is. */
dp_status exec_units_keep_samples(exec_units_job *r) {
  const double least = 0.5, most = 1.1;
  exec_units_slowness *slowness = DP_ARENA_NEW(&r->arena, exec_units_slowness, r->program->instruction_count);
  if (!slowness) return dp_fail_memory(r->error);
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = exec_units_compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      if (exec_units_bare_of(r, EXEC_UNITS_ALONE, i)->count == 0) continue;
      DP_TRY(find_slowness(r, w, i, &slowness[i]));
      DP_TRY(look(r, i, &slowness[i]));
    }
  }
  for (size_t i = 0; i < r->pendings.count; i++) {
    const exec_units_pending *p = &r->pendings.items[i];
    const exec_units_spans *fine = &r->fine[p->instruction],
                           *bare = exec_units_bare_of(r, EXEC_UNITS_ALONE, p->instruction);
    const double factor = exec_units_middle(bare, bare->seconds) / fmax(1e-9, exec_units_middle(fine, fine->seconds));
    const exec_units_sample sample = {.seconds = p->seconds * fmin(most, fmax(least, factor)),
                                      .slowness = slowness[p->instruction],
                                      .making = r->making};
    const bool first = exec_units_is_first(r, p->worker, &r->program->instructions[p->instruction]);
    DP_TRY(exec_units_keep(r->units, p->row, first, &sample, r->error));
  }
  return DP_OK;
}
