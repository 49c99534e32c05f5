/* Whether what is measured goes away from what was predicted: a slow change, which a running baseline goes along with.
 *
 * A figure a step: r = measured / predicted. The first DRIFT_STEPS make the reference, their median r0: predictions are
 * wrong by something, and that is no news. From then on the median r1 of the newest DRIFT_STEPS is compared with it: at
 * |r1 / r0 - 1| > limit and |r1 - 1| > |r0 - 1|, away from the prediction, there is a drift, told once; `since` is the
 * first of those steps whose own |r / r0 - 1| is over the limit. It may be told again once |r1 / r0 - 1| has been at
 * most half the limit.
 */
#ifndef DP_PROFILER_DRIFT_H
#define DP_PROFILER_DRIFT_H

#include <stdbool.h>
#include <stdint.h>

enum { PROF_DRIFT_STEPS = 16 };

typedef struct prof_drift { /* zeroed: nothing was seen */
  double ratios[PROF_DRIFT_STEPS];
  int64_t steps[PROF_DRIFT_STEPS];
  int64_t seen;
  double reference, now; /* medians; 0: not yet */
  int64_t since;
  bool told;
} prof_drift;

/* ratio > 0; steps ascend. True where a drift is to be told: `reference`, `now` and `since` say which. */
bool prof_drift_add(prof_drift *drift, double limit, int64_t step, double ratio);

#endif
