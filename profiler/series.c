#include "profiler/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"

static const double MAD_OF_NORMAL = 1.4826, LEAST_DEVIATION = 0.01;

dp_status prof_series_init(const plan_monitor *rule, prof_series *series, dp_error *error) {
  double *values = calloc(2 * (size_t)rule->window_steps, sizeof *values);
  if (!values) return dp_fail_memory(error);
  *series = (prof_series){.values = values, .sorted = values + rule->window_steps};
  return DP_OK;
}

void prof_series_free(prof_series *series) {
  free(series->values);
  *series = (prof_series){.values = NULL};
}

static void take(prof_series *s, int64_t capacity, double value) {
  s->values[s->next] = value;
  s->next = (s->next + 1) % capacity;
  if (s->count < capacity) s->count++;
  const size_t n = (size_t)s->count;
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += s->values[i];
  s->mean = sum / (double)n;
  memcpy(s->sorted, s->values, n * sizeof *s->sorted);
  s->median = dp_median(s->sorted, n);
  for (size_t i = 0; i < n; i++) s->sorted[i] = fabs(s->values[i] - s->median);
  s->deviation = fmax(MAD_OF_NORMAL * dp_median(s->sorted, n), LEAST_DEVIATION * s->median);
}

double prof_series_score(const prof_series *s, double value) {
  if (s->count == 0) return 0;
  if (s->deviation > 0) return (value - s->median) / s->deviation;
  return value > s->median ? HUGE_VAL : 0;
}

static bool is_slow(const prof_series *s, const plan_monitor *rule, double value, double least_s) {
  return s->count >= rule->baseline_steps && value > rule->multiple * s->mean &&
         prof_series_score(s, value) > rule->z_score && value - s->mean > least_s;
}

static prof_verdict judge_alarmed(prof_series *s, const plan_monitor *rule, double value, double least_s) {
  const bool well = value <= rule->recovered_multiple * s->mean || value - s->mean < least_s / 2;
  s->well = well ? s->well + 1 : 0;
  if (s->well < rule->recovered_steps) return PROF_STEADY;
  s->alarmed = false;
  s->slow = s->well = 0;
  return PROF_RECOVERED;
}

prof_verdict prof_series_add(prof_series *s, const plan_monitor *rule, int64_t step, double value, double least_s) {
  if (s->alarmed) return judge_alarmed(s, rule, value, least_s);
  if (!is_slow(s, rule, value, least_s)) {
    s->slow = 0;
    take(s, rule->window_steps, value);
    return PROF_STEADY;
  }
  if (s->slow++ == 0) s->since = step;
  s->alarmed = s->slow >= rule->slow_steps;
  return s->alarmed ? PROF_ALARM : PROF_STEADY;
}
