#include "profiler/drift.h"

#include <math.h>
#include <string.h>

#include "base/median.h"

static bool is_over(const prof_drift *d, double limit, double ratio) { return fabs(ratio / d->reference - 1) > limit; }

static int64_t first_over(const prof_drift *d, double limit) {
  for (int64_t i = d->seen; i < d->seen + PROF_DRIFT_STEPS; i++) { /* from the oldest on */
    const int64_t at = i % PROF_DRIFT_STEPS;
    if (is_over(d, limit, d->ratios[at])) return d->steps[at];
  }
  return d->steps[(d->seen - 1) % PROF_DRIFT_STEPS];
}

bool prof_drift_add(prof_drift *d, double limit, int64_t step, double ratio) {
  double sorted[PROF_DRIFT_STEPS];
  const int64_t at = d->seen++ % PROF_DRIFT_STEPS;
  d->ratios[at] = ratio;
  d->steps[at] = step;
  if (d->seen < PROF_DRIFT_STEPS) return false;
  memcpy(sorted, d->ratios, sizeof sorted);
  d->now = dp_median(sorted, PROF_DRIFT_STEPS);
  if (d->seen == PROF_DRIFT_STEPS) d->reference = d->now;
  if (!is_over(d, limit / 2, d->now)) d->told = false;
  if (d->told || !is_over(d, limit, d->now) || fabs(d->now - 1) <= fabs(d->reference - 1)) return false;
  d->told = true;
  d->since = first_over(d, limit);
  return true;
}
