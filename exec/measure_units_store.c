#include "exec/measure_units_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/line.h"
#include "base/median.h"

enum { ASIDE = 5, LEAST = 5 }; /* every fifth sample is kept aside, where there are so many */

dp_status exec_units_create(exec_units **units, dp_error *error) {
  *units = calloc(1, sizeof **units);
  return *units ? DP_OK : dp_fail_memory(error);
}

void exec_units_free(exec_units *u) {
  if (!u) return;
  for (size_t i = 0; i < u->rows.count; i++)
    for (int f = 0; f < 2; f++) dp_array_free(&u->rows.items[i].samples[f]);
  dp_array_free(&u->rows);
  dp_array_free(&u->parts);
  dp_array_free(&u->programs);
  dp_array_free(&u->optimizers);
  for (int way = 0; way < EXEC_UNITS_WAYS; way++) dp_array_free(&u->links.copies[way]);
  dp_array_free(&u->gaps);
  dp_array_free(&u->rests);
  dp_array_free(&u->issues);
  dp_array_free(&u->marks);
  dp_array_free(&u->begins);
  dp_array_free(&u->runtimes);
  dp_arena_free(&u->arena);
  free(u);
}

const char *exec_units_device(const exec_units *u) { return u->device ? u->device : ""; }

/* ---- keeping ---- */

dp_status exec_units_row(exec_units *u, const char *key, const char *name, int64_t sms, plan_profile_pass pass,
                         size_t *row, dp_error *error) {
  for (*row = 0; *row < u->rows.count; ++*row) {
    const exec_units_row_data *r = &u->rows.items[*row];
    if (r->sms == sms && r->pass == pass && strcmp(r->key, key) == 0) return DP_OK;
  }
  exec_units_row_data made = {.name = dp_arena_strdup(&u->arena, name), .sms = sms, .pass = pass};
  memcpy(made.key, key, sizeof made.key);
  return made.name && dp_array_push(&u->rows, made) ? DP_OK : dp_fail_memory(error);
}

dp_status exec_units_keep(exec_units *u, size_t row, bool first, const exec_units_sample *sample, dp_error *error) {
  return dp_array_push(&u->rows.items[row].samples[first], *sample) ? DP_OK : dp_fail_memory(error);
}

dp_status exec_units_part(exec_units *u, int64_t sms, int sharers, dp_error *error) {
  u->gaps.count = u->rests.count = u->issues.count = u->marks.count = u->begins.count = u->runtimes.count = 0;
  for (u->part = 0; u->part < u->parts.count; u->part++)
    if (u->parts.items[u->part].sms == sms) return DP_OK;
  const plan_profile_part made = {.sms = sms, .workers = sharers};
  return dp_array_push(&u->parts, made) && dp_array_push(&u->programs, 0) ? DP_OK : dp_fail_memory(error);
}

static double middle(const exec_units_series *series) { return dp_median(series->items, series->count); }

/* Of all that lies in an instruction beside its units: some have more of it, as the loss. */
static double mean(const exec_units_series *series) {
  double sum = 0;
  for (size_t i = 0; i < series->count; i++) sum += series->items[i];
  return series->count ? sum / (double)series->count : 0;
}

dp_status exec_units_end_run(exec_units *u, dp_error *error) {
  plan_profile_part *part = &u->parts.items[u->part];
  const double mark_s = fmax(0, middle(&u->marks));
  (void)error;
  if (u->programs.items[u->part] == 0 || mark_s < u->mark_s) u->mark_s = mark_s;
  u->programs.items[u->part]++;
  part->instruction_s += fmax(0, middle(&u->gaps)) + fmax(0, mean(&u->rests) - mark_s);
  part->issue_s += fmax(0, middle(&u->issues));
  part->step_s += fmax(0, middle(&u->begins));
  part->runtime_bytes += (int64_t)middle(&u->runtimes);
  return DP_OK;
}

/* ---- solving ---- */

double exec_units_between(double alone_s, double half_s, double busy_s, double crowd) {
  return alone_s + fmin(2 * crowd, 1) * (half_s - alone_s) + fmax(2 * crowd - 1, 0) * (busy_s - half_s);
}

/* Without its mark, which is the smaller part of it where anything is known. */
static double own_s(const exec_units_sample *sample, double mark_s) {
  return fmax(fmax(1e-9, sample->seconds / 2), sample->seconds - mark_s);
}

static bool is_aside(const exec_units_samples *samples, size_t i) {
  return samples->count >= LEAST && i % ASIDE == ASIDE - 1;
}

static double middle_of(const exec_units_samples *samples, exec_units_phase phase, double mark_s, double *scratch,
                        size_t *count) {
  *count = 0;
  for (size_t i = 0; i < samples->count; i++)
    if (samples->items[i].phase == phase && !is_aside(samples, i))
      scratch[(*count)++] = own_s(&samples->items[i], mark_s);
  return dp_median(scratch, *count);
}

/* Of a phase, what each sample says of the time at a crowd of 1/2, or of 1: known is the time at 0, or at 1/2. */
static double reach(const exec_units_samples *samples, exec_units_phase phase, double mark_s, double from,
                    double known_s, double *scratch, size_t *count) {
  const double least = 0.1; /* of the way from what is known, of a sample that says anything */
  *count = 0;
  for (size_t i = 0; i < samples->count; i++) {
    const exec_units_sample *s = &samples->items[i];
    const double way = fmin(2 * (s->crowd - from), 1);
    if (s->phase != phase || is_aside(samples, i) || way < least) continue;
    scratch[(*count)++] = known_s + fmax(0, own_s(s, mark_s) - known_s) / way;
  }
  return dp_median(scratch, *count);
}

bool exec_units_solve(const exec_units_samples *samples, double mark_s, double *scratch, double *alone_s,
                      double *half_s, double *busy_s) {
  size_t alone, half, busy;
  double alone_at = middle_of(samples, EXEC_UNITS_ALONE, mark_s, scratch, &alone);
  if (alone == 0) return false;
  double half_at = reach(samples, EXEC_UNITS_HALF, mark_s, 0, alone_at, scratch, &half);
  double busy_at = half ? reach(samples, EXEC_UNITS_BUSY, mark_s, 0.5, half_at, scratch, &busy) : 0;
  if (!half) { /* one other worker: none or all of them */
    busy = 0;
    for (size_t i = 0; i < samples->count; i++)
      if (samples->items[i].phase == EXEC_UNITS_BUSY && samples->items[i].crowd > 0.2 && !is_aside(samples, i))
        scratch[busy++] =
            alone_at + fmax(0, own_s(&samples->items[i], mark_s) - alone_at) / fmin(samples->items[i].crowd, 1);
    busy_at = busy ? dp_median(scratch, busy) : alone_at;
    half_at = (alone_at + busy_at) / 2;
  } else if (!busy) {
    busy_at = 2 * half_at - alone_at;
  }
  *alone_s = alone_at;
  *half_s = half_at;
  *busy_s = fmax(half_at, busy_at);
  return true;
}

/* ---- the profile ---- */

/* What is gathered over all rows. */
typedef struct check {
  exec_units_series errors, halves;
} check;

static dp_status look_aside(const exec_units_samples *samples, double mark_s, double alone_s, double half_s,
                            double busy_s, check *c, dp_error *error) {
  for (size_t i = 0; i < samples->count; i++) {
    const exec_units_sample *s = &samples->items[i];
    const double measured_s = own_s(s, mark_s);
    if (!is_aside(samples, i)) continue;
    if (!dp_array_push(&c->errors, fabs(exec_units_between(alone_s, half_s, busy_s, s->crowd) / measured_s - 1)))
      return dp_fail_memory(error);
  }
  return DP_OK;
}

/* How far two runs of the same, one after another, differ. */
static dp_status look_at_halves(const exec_units_samples *samples, check *c, dp_error *error) {
  for (size_t i = 1; i < samples->count; i++) {
    const exec_units_sample *a = &samples->items[i - 1], *b = &samples->items[i];
    if (a->phase == b->phase && fabs(a->crowd - b->crowd) < 0.05 && b->seconds > 0 &&
        !dp_array_push(&c->halves, fabs(a->seconds / b->seconds - 1)))
      return dp_fail_memory(error);
  }
  return DP_OK;
}

/* Where the later microbatches were not alone, they take more than the first as they do beside others. */
static double scaled_alone_s(const exec_units_row_data *row, double mark_s, double first_s, double *scratch) {
  size_t first, later;
  const double first_busy_s = middle_of(&row->samples[1], EXEC_UNITS_BUSY, mark_s, scratch, &first);
  const double later_busy_s = middle_of(&row->samples[0], EXEC_UNITS_BUSY, mark_s, scratch, &later);
  return first && later ? first_s * fmin(2, fmax(0.5, later_busy_s / first_busy_s)) : first_s;
}

static dp_status add_unit(const exec_units *u, const exec_units_row_data *row, double *scratch, check *c,
                          plan_profile *profile, dp_error *error) {
  plan_profile_unit unit = {.sms = row->sms, .pass = row->pass};
  const exec_units_samples *later = &row->samples[0], *first = &row->samples[1];
  double first_half_s = 0, first_busy_s = 0;
  const bool has_first = exec_units_solve(first, u->mark_s, scratch, &unit.first_s, &first_half_s, &first_busy_s);
  const bool has_later = exec_units_solve(later, u->mark_s, scratch, &unit.alone_s, &unit.half_s, &unit.busy_s);
  if (!has_first && !has_later) return DP_OK;
  if (has_first) DP_TRY(look_aside(first, u->mark_s, unit.first_s, first_half_s, first_busy_s, c, error));
  if (has_later) DP_TRY(look_aside(later, u->mark_s, unit.alone_s, unit.half_s, unit.busy_s, c, error));
  if (!has_later) {
    unit.alone_s = scaled_alone_s(row, u->mark_s, unit.first_s, scratch);
    unit.half_s = unit.alone_s * (first_half_s / unit.first_s);
    unit.busy_s = unit.alone_s * (first_busy_s / unit.first_s);
  }
  DP_TRY(look_at_halves(later, c, error));
  unit.runs = (int64_t)(first->count + later->count);
  unit.unit = dp_arena_strdup(&profile->arena, row->key);
  unit.name = dp_arena_strdup(&profile->arena, row->name);
  return unit.unit && unit.name && dp_array_push(&profile->units, unit) ? DP_OK : dp_fail_memory(error);
}

/* Of those that ran theirs alone; and how much longer all at once take. */
static dp_status fit_optimizer(const exec_units *u, plan_profile_part *part, dp_error *error) {
  double *points = malloc((2 * u->optimizers.count + 1) * sizeof *points), *seconds = points + u->optimizers.count;
  double more = 0, shared = 0;
  size_t count = 0;
  if (!points) return dp_fail_memory(error);
  for (size_t i = 0; i < u->optimizers.count; i++) {
    const exec_units_optimizer *one = &u->optimizers.items[i];
    if (one->sms != part->sms || one->all) continue;
    points[count] = one->parameters;
    seconds[count++] = one->seconds;
  }
  dp_fit_line(points, seconds, count, &part->optimizer_s, &part->optimizer_s_per_parameter);
  free(points);
  for (size_t i = 0; i < u->optimizers.count; i++) {
    const exec_units_optimizer *one = &u->optimizers.items[i];
    const double alone_s = part->optimizer_s + part->optimizer_s_per_parameter * one->parameters;
    if (one->sms != part->sms || !one->all) continue;
    more += one->seconds - alone_s;
    shared += one->crowd * alone_s;
  }
  part->optimizer_busy_factor = shared > 0 ? fmax(1, 1 + more / shared) : 1;
  return DP_OK;
}

static void drop_known(const exec_units *u, plan_profile *profile) {
  size_t kept = 0;
  for (size_t i = 0; i < profile->units.count; i++) {
    const plan_profile_unit *unit = &profile->units.items[i];
    bool anew = false;
    for (size_t k = 0; k < u->rows.count && !anew; k++) {
      const exec_units_row_data *row = &u->rows.items[k];
      anew = row->sms == unit->sms && row->pass == unit->pass && strcmp(row->key, unit->unit) == 0 &&
             row->samples[0].count + row->samples[1].count > 0;
    }
    if (!anew) profile->units.items[kept++] = *unit;
  }
  profile->units.count = kept;
  kept = 0;
  for (size_t i = 0; i < profile->parts.count; i++) {
    bool anew = false;
    for (size_t k = 0; k < u->parts.count; k++) anew = anew || u->parts.items[k].sms == profile->parts.items[i].sms;
    if (!anew) profile->parts.items[kept++] = profile->parts.items[i];
  }
  profile->parts.count = kept;
}

static dp_status add_all(const exec_units *u, double *scratch, check *c, plan_profile *profile, dp_error *error) {
  for (size_t i = 0; i < u->rows.count; i++) DP_TRY(add_unit(u, &u->rows.items[i], scratch, c, profile, error));
  for (size_t i = 0; i < u->parts.count; i++) {
    plan_profile_part part = u->parts.items[i];
    const int programs = u->programs.items[i] ? u->programs.items[i] : 1;
    part.instruction_s /= programs;
    part.issue_s /= programs;
    part.step_s /= programs;
    part.runtime_bytes /= programs;
    part.optimizer_busy_factor = 1;
    DP_TRY(fit_optimizer(u, &part, error));
    if (!dp_array_push(&profile->parts, part)) return dp_fail_memory(error);
  }
  if (u->clock_hz > 0) profile->clock_hz = u->clock_hz;
  profile->repeat_error = dp_median(c->halves.items, c->halves.count);
  profile->held_out_error = dp_median(c->errors.items, c->errors.count);
  profile->held_out = (int64_t)c->errors.count;
  if (u->links.measured) DP_TRY(exec_units_add_links(u, profile, error));
  return plan_profile_finish_units(profile, error);
}

dp_status exec_units_profile(const exec_units *u, plan_profile *profile, dp_error *error) {
  size_t most = 1;
  check c = {0};
  for (size_t i = 0; i < u->rows.count; i++)
    for (int f = 0; f < 2; f++)
      if (u->rows.items[i].samples[f].count > most) most = u->rows.items[i].samples[f].count;
  double *scratch = malloc(most * sizeof *scratch);
  if (!scratch) return dp_fail_memory(error);
  drop_known(u, profile);
  const dp_status status = add_all(u, scratch, &c, profile, error);
  free(scratch);
  dp_array_free(&c.errors);
  dp_array_free(&c.halves);
  return status;
}
