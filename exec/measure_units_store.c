#include "exec/measure_units_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/line.h"
#include "base/median.h"

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
  exec_units_free_links(&u->links);
  dp_array_free(&u->gaps);
  for (int role = 0; role < EXEC_UNITS_ROLES; role++) dp_array_free(&u->rests[role]);
  dp_array_free(&u->errors);
  dp_array_free(&u->repeats);
  dp_array_free(&u->issues);
  dp_array_free(&u->begins);
  dp_array_free(&u->runtimes);
  dp_arena_free(&u->arena);
  free(u);
}

exec_units_took exec_units_has_taken(const exec_units *units) {
  return (exec_units_took){.programs = units->makings, .made_s = units->made_s, .measured_s = units->measured_s};
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

static void drop_errors(exec_units_errors *errors, int making) {
  size_t kept = 0;
  for (size_t i = 0; i < errors->count; i++)
    if (errors->items[i].making != making) errors->items[kept++] = errors->items[i];
  errors->count = kept;
}

void exec_units_drop(exec_units *u, int making) {
  drop_errors(&u->errors, making);
  drop_errors(&u->repeats, making);
  for (size_t i = 0; i < u->rows.count; i++)
    for (int f = 0; f < 2; f++) {
      exec_units_samples *samples = &u->rows.items[i].samples[f];
      size_t kept = 0;
      for (size_t s = 0; s < samples->count; s++)
        if (samples->items[s].making != making) samples->items[kept++] = samples->items[s];
      samples->count = kept;
    }
}

dp_status exec_units_part(exec_units *u, int64_t sms, int sharers, dp_error *error) {
  u->gaps.count = u->issues.count = u->begins.count = u->runtimes.count = 0;
  for (int role = 0; role < EXEC_UNITS_ROLES; role++) u->rests[role].count = 0;
  for (u->part = 0; u->part < u->parts.count; u->part++)
    if (u->parts.items[u->part].sms == sms) return DP_OK;
  const plan_profile_part made = {.sms = sms, .workers = sharers};
  return dp_array_push(&u->parts, made) && dp_array_push(&u->programs, 0) ? DP_OK : dp_fail_memory(error);
}

static double middle(const exec_units_series *series) { return dp_median(series->items, series->count); }

dp_status exec_units_end_run(exec_units *u, dp_error *error) {
  plan_profile_part *part = &u->parts.items[u->part];
  (void)error;
  u->programs.items[u->part]++;
  const double rest_s = fmax(0, middle(&u->rests[EXEC_UNITS_OTHER]));
  part->instruction_s += fmax(0, middle(&u->gaps)) + rest_s;
  part->feed_s += fmax(0, middle(&u->rests[EXEC_UNITS_FEEDS]) - rest_s);
  part->loss_s += fmax(0, middle(&u->rests[EXEC_UNITS_HAS_LOSS]) - rest_s);
  part->issue_s += fmax(0, middle(&u->issues));
  part->step_s += fmax(0, middle(&u->begins));
  part->runtime_bytes += (int64_t)middle(&u->runtimes);
  return DP_OK;
}

/* ---- beside others ---- */

double exec_units_slowed(const exec_units_slowness *slowness, const double beside[2]) {
  return 1 + beside[0] * slowness->by[0] + beside[1] * slowness->by[1];
}

/* Neither less than nothing. Where the points hardly tell one from the other, both are alike. */
void exec_units_slow(const exec_units_point *points, size_t count, exec_units_slowness *slowness) {
  double xx[2] = {0, 0}, xr[2] = {0, 0}, xy = 0;
  for (size_t i = 0; i < count; i++) {
    const double *x = points[i].beside;
    for (int k = 0; k < 2; k++) {
      xx[k] += x[k] * x[k];
      xr[k] += x[k] * points[i].more;
    }
    xy += x[0] * x[1];
  }
  const double likeness = 0.005 * (xx[0] + xx[1]);
  const double a = xx[0] + likeness, b = xx[1] + likeness, c = xy - likeness, det = a * b - c * c;
  *slowness = (exec_units_slowness){.by = {0, 0}};
  if (xx[0] + xx[1] <= 0 || det <= 0) return;
  slowness->by[0] = (xr[0] * b - xr[1] * c) / det;
  slowness->by[1] = (xr[1] * a - xr[0] * c) / det;
  for (int k = 0; k < 2; k++)
    if (slowness->by[k] < 0) {
      slowness->by[k] = 0;
      slowness->by[!k] = fmax(0, xr[!k] / (k == 0 ? b : a));
      return;
    }
}

/* ---- the profile ---- */

/* The middle of what samples took alone; and of each way in which they are slower beside others, the mean. */
static bool middle_of(const exec_units_samples *samples, double *scratch, double *alone_s,
                      exec_units_slowness *slowness) {
  *slowness = (exec_units_slowness){.by = {0, 0}};
  for (size_t i = 0; i < samples->count; i++) {
    scratch[i] = samples->items[i].seconds;
    for (int k = 0; k < 2; k++) slowness->by[k] += samples->items[i].slowness.by[k] / (double)samples->count;
  }
  *alone_s = fmax(1e-9, dp_median(scratch, samples->count));
  return samples->count > 0;
}

static dp_status add_unit(const exec_units_row_data *row, double *scratch, plan_profile *profile, dp_error *error) {
  plan_profile_unit unit = {.sms = row->sms, .pass = row->pass};
  const exec_units_samples *later = &row->samples[0], *first = &row->samples[1];
  exec_units_slowness slowness, of_first;
  const bool has_first = middle_of(first, scratch, &unit.first_s, &of_first);
  const bool has_later = middle_of(later, scratch, &unit.alone_s, &slowness);
  if (!has_first && !has_later) return DP_OK;
  if (!has_later) unit.alone_s = unit.first_s;
  if (!has_later) slowness = of_first;
  if (!has_first) unit.first_s = 0;
  unit.beside_forward_s = unit.alone_s * (1 + slowness.by[0]);
  unit.beside_backward_s = unit.alone_s * (1 + slowness.by[1]);
  unit.runs = (int64_t)(first->count + later->count);
  unit.unit = dp_arena_strdup(&profile->arena, row->key);
  unit.name = dp_arena_strdup(&profile->arena, row->name);
  return unit.unit && unit.name && dp_array_push(&profile->units, unit) ? DP_OK : dp_fail_memory(error);
}

/* Of those that ran theirs alone, a line in parameters. */
static dp_status fit_alone(const exec_units *u, const plan_profile_part *part, bool with_norm, double *constant_s,
                           double *s_per_parameter, dp_error *error) {
  double *points = malloc((2 * u->optimizers.count + 1) * sizeof *points), *seconds = points + u->optimizers.count;
  size_t count = 0;
  if (!points) return dp_fail_memory(error);
  for (size_t i = 0; i < u->optimizers.count; i++) {
    const exec_units_optimizer *one = &u->optimizers.items[i];
    if (one->sms != part->sms || one->all || one->with_norm != with_norm) continue;
    points[count] = one->parameters;
    seconds[count++] = one->seconds;
  }
  dp_fit_line(points, seconds, count, constant_s, s_per_parameter);
  free(points);
  return DP_OK;
}

double exec_units_shared_s(double *seconds, size_t count, double factor, double workers) {
  double sum = 0, at_s = 0, done_s = 0; /* done: of each that still runs, alone */
  dp_sort(seconds, count);
  for (size_t i = 0; i < count; i++) {
    at_s += (seconds[i] - done_s) * fmax(1, (double)(count - i) * factor / workers);
    done_s = seconds[i];
    sum += at_s;
  }
  return sum;
}

static bool began_together(const exec_units_optimizer *one, const plan_profile_part *part) {
  return one->sms == part->sms && one->all;
}

static double measured_s(const exec_units *u, const plan_profile_part *part) {
  double sum = 0;
  for (size_t i = 0; i < u->optimizers.count; i++)
    if (began_together(&u->optimizers.items[i], part)) sum += u->optimizers.items[i].seconds;
  return sum;
}

/* What they would have taken with such a factor. Those of a round follow on one another. */
static double shared_s(const exec_units *u, const plan_profile_part *part, double factor, double *scratch) {
  double sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < u->optimizers.count; i++) {
    const exec_units_optimizer *one = &u->optimizers.items[i];
    if (!began_together(one, part)) continue;
    scratch[count++] = part->optimizer_s + part->optimizer_s_per_parameter * one->parameters;
    if (i + 1 < u->optimizers.count && one[1].round == one->round) continue;
    sum += exec_units_shared_s(scratch, count, factor, (double)part->workers);
    count = 0;
  }
  return sum;
}

/* And how much longer all at once take: what makes their sum as long as it was. */
static dp_status fit_optimizer(const exec_units *u, plan_profile_part *part, dp_error *error) {
  enum { HALVINGS = 40 };
  double norm_s = 0, with_norm_s_per_parameter = 0, low = 1, high = (double)part->workers;
  DP_TRY(fit_alone(u, part, false, &part->optimizer_s, &part->optimizer_s_per_parameter, error));
  DP_TRY(fit_alone(u, part, true, &norm_s, &with_norm_s_per_parameter, error));
  part->norm_s_per_parameter = fmax(0, with_norm_s_per_parameter - part->optimizer_s_per_parameter);
  double *scratch = malloc((u->optimizers.count + 1) * sizeof *scratch);
  if (!scratch) return dp_fail_memory(error);
  const double took_s = measured_s(u, part);
  for (int i = 0; i < HALVINGS && took_s > 0; i++) {
    const double middle = (low + high) / 2;
    *(shared_s(u, part, middle, scratch) < took_s ? &low : &high) = middle;
  }
  free(scratch);
  part->optimizer_busy_factor = low;
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

static double middle_error(const exec_units_errors *errors, double *scratch) {
  for (size_t i = 0; i < errors->count; i++) scratch[i] = errors->items[i].value;
  return dp_median(scratch, errors->count);
}

static dp_status add_all(const exec_units *u, double *scratch, plan_profile *profile, dp_error *error) {
  for (size_t i = 0; i < u->rows.count; i++) DP_TRY(add_unit(&u->rows.items[i], scratch, profile, error));
  for (size_t i = 0; i < u->parts.count; i++) {
    plan_profile_part part = u->parts.items[i];
    const int programs = u->programs.items[i] ? u->programs.items[i] : 1;
    part.instruction_s /= programs;
    part.feed_s /= programs;
    part.loss_s /= programs;
    part.issue_s /= programs;
    part.step_s /= programs;
    part.runtime_bytes /= programs;
    part.optimizer_busy_factor = 1;
    DP_TRY(fit_optimizer(u, &part, error));
    if (!dp_array_push(&profile->parts, part)) return dp_fail_memory(error);
  }
  if (u->clock_hz > 0) profile->clock_hz = u->clock_hz;
  profile->repeat_error = middle_error(&u->repeats, scratch);
  profile->held_out_error = middle_error(&u->errors, scratch);
  profile->held_out = (int64_t)u->errors.count;
  if (u->links.measured) DP_TRY(exec_units_add_links(&u->links, profile, error));
  return plan_profile_finish_units(profile, error);
}

dp_status exec_units_profile(const exec_units *u, plan_profile *profile, dp_error *error) {
  size_t most = u->errors.count > u->repeats.count ? u->errors.count : u->repeats.count;
  for (size_t i = 0; i < u->rows.count; i++)
    for (int f = 0; f < 2; f++)
      if (u->rows.items[i].samples[f].count > most) most = u->rows.items[i].samples[f].count;
  double *scratch = malloc((most + 1) * sizeof *scratch);
  if (!scratch) return dp_fail_memory(error);
  drop_known(u, profile);
  const dp_status status = add_all(u, scratch, profile, error);
  free(scratch);
  return status;
}
