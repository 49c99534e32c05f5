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
  u->gaps.count = u->rests.count = u->issues.count = u->begins.count = u->runtimes.count = 0;
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
  (void)error;
  u->programs.items[u->part]++;
  part->instruction_s += fmax(0, middle(&u->gaps)) + fmax(0, mean(&u->rests));
  part->issue_s += fmax(0, middle(&u->issues));
  part->step_s += fmax(0, middle(&u->begins));
  part->runtime_bytes += (int64_t)middle(&u->runtimes);
  return DP_OK;
}

/* ---- solving ---- */

double exec_units_between(const exec_units_times *times, const double beside[2]) {
  double seconds = times->alone_s;
  for (int k = 0; k < 2; k++) seconds += beside[k] * (times->beside_s[k] - times->alone_s);
  return seconds;
}

static bool is_aside(const exec_units_samples *samples, size_t i) {
  return samples->count >= LEAST && i % ASIDE == ASIDE - 1;
}

static bool middle_alone(const exec_units_samples *samples, double *scratch, double *seconds) {
  size_t count = 0;
  for (size_t i = 0; i < samples->count; i++)
    if (samples->items[i].alone && !is_aside(samples, i)) scratch[count++] = samples->items[i].seconds;
  *seconds = fmax(1e-9, dp_median(scratch, count));
  return count > 0;
}

/* Sums of normal equations: of both shares and of what is more than alone. */
typedef struct normal {
  double xx[2], xy, xr[2];
} normal;

/* The middles of a group's samples, from one to before another, join them. */
static void join_group(const exec_units_samples *samples, size_t from, size_t to, double alone_s, double *scratch,
                       normal *n) {
  double *column[3] = {scratch, scratch + samples->count, scratch + 2 * samples->count};
  size_t count = 0;
  for (size_t i = from; i < to; i++) {
    const exec_units_sample *s = &samples->items[i];
    if (is_aside(samples, i)) continue;
    for (int k = 0; k < 2; k++) column[k][count] = s->beside[k];
    column[2][count++] = s->seconds - alone_s;
  }
  if (count == 0) return;
  const double x[2] = {dp_median(column[0], count), dp_median(column[1], count)}, r = dp_median(column[2], count);
  for (int k = 0; k < 2; k++) {
    n->xx[k] += x[k] * x[k];
    n->xr[k] += x[k] * r;
  }
  n->xy += x[0] * x[1];
}

/* Neither less than nothing. Where the runs hardly tell one from the other, both are alike. */
static void solve_both(const normal *n, double more_s[2]) {
  const double likeness = 0.005 * (n->xx[0] + n->xx[1]);
  const double a = n->xx[0] + likeness, b = n->xx[1] + likeness, c = n->xy - likeness, det = a * b - c * c;
  more_s[0] = more_s[1] = 0;
  if (n->xx[0] + n->xx[1] <= 0 || det <= 0) return;
  more_s[0] = (n->xr[0] * b - n->xr[1] * c) / det;
  more_s[1] = (n->xr[1] * a - n->xr[0] * c) / det;
  for (int k = 0; k < 2; k++)
    if (more_s[k] < 0) {
      more_s[k] = 0;
      more_s[!k] = fmax(0, n->xr[!k] / (k == 0 ? b : a));
      return;
    }
}

static int by_group(const void *a, const void *b) {
  const exec_units_sample *x = a, *y = b;
  return (x->group > y->group) - (x->group < y->group);
}

bool exec_units_solve(exec_units_samples *samples, double *scratch, exec_units_times *times) {
  normal n = {.xy = 0};
  double more_s[2];
  if (samples->count) qsort(samples->items, samples->count, sizeof *samples->items, by_group);
  if (!middle_alone(samples, scratch, &times->alone_s)) return false;
  for (size_t i = 0, end; i < samples->count; i = end) {
    for (end = i + 1; end < samples->count && samples->items[end].group == samples->items[i].group;) end++;
    if (!samples->items[i].alone) join_group(samples, i, end, times->alone_s, scratch, &n);
  }
  solve_both(&n, more_s);
  for (int k = 0; k < 2; k++) times->beside_s[k] = times->alone_s + more_s[k];
  return true;
}

/* ---- the profile ---- */

/* What is gathered over all rows. */
typedef struct check {
  exec_units_series errors, halves;
} check;

static dp_status look_aside(const exec_units_samples *samples, const exec_units_times *times, check *c,
                            dp_error *error) {
  for (size_t i = 0; i < samples->count; i++) {
    const exec_units_sample *s = &samples->items[i];
    if (is_aside(samples, i) && s->seconds > 0 &&
        !dp_array_push(&c->errors, fabs(exec_units_between(times, s->beside) / s->seconds - 1)))
      return dp_fail_memory(error);
  }
  return DP_OK;
}

/* How far two runs of the same differ. */
static dp_status look_at_halves(const exec_units_samples *samples, check *c, dp_error *error) {
  for (size_t i = 1; i < samples->count; i++) {
    const exec_units_sample *a = &samples->items[i - 1], *b = &samples->items[i];
    if (a->group == b->group && b->seconds > 0 && !dp_array_push(&c->halves, fabs(a->seconds / b->seconds - 1)))
      return dp_fail_memory(error);
  }
  return DP_OK;
}

static dp_status add_unit(exec_units_row_data *row, double *scratch, check *c, plan_profile *profile, dp_error *error) {
  plan_profile_unit unit = {.sms = row->sms, .pass = row->pass};
  exec_units_samples *later = &row->samples[0], *first = &row->samples[1];
  exec_units_times times = {0}, of_first = {0};
  const bool has_first = exec_units_solve(first, scratch, &of_first);
  const bool has_later = exec_units_solve(later, scratch, &times);
  if (!has_first && !has_later) return DP_OK;
  if (has_first) DP_TRY(look_aside(first, &of_first, c, error));
  if (has_later) DP_TRY(look_aside(later, &times, c, error));
  if (!has_later) times = of_first;
  unit.alone_s = times.alone_s;
  unit.beside_forward_s = times.beside_s[0];
  unit.beside_backward_s = times.beside_s[1];
  unit.first_s = has_first ? of_first.alone_s : 0;
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
  for (size_t i = 0; i < u->rows.count; i++) DP_TRY(add_unit(&u->rows.items[i], scratch, c, profile, error));
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
  double *scratch = malloc(3 * most * sizeof *scratch);
  if (!scratch) return dp_fail_memory(error);
  drop_known(u, profile);
  const dp_status status = add_all(u, scratch, &c, profile, error);
  free(scratch);
  dp_array_free(&c.errors);
  dp_array_free(&c.halves);
  return status;
}
