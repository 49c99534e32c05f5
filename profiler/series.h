/* One figure a step, held to a running baseline: whether it has become slow, and whether it is well again.
 *
 * The baseline is the newest `window_steps` values that were not slow. Of it come the mean, the median m and the
 * deviation d = max(1.4826 median(|x - m|), m / 100): 1.4826 makes the median of the absolute deviations (MAD) the
 * standard deviation of normal values, and a hundredth keeps values that hardly vary from being judged by nothing.
 * A value x is slow where all of this is so:
 *
 *   the baseline has baseline_steps values      x > multiple * mean
 *   (x - m) / d > z_score                       x - mean > least_s, what the caller thinks worth a word
 *
 * The multiple alone would take a noisy figure's outliers for news, the score alone a steady figure's trifles. An alarm
 * is raised at the last of slow_steps slow values in a row; it ends at the last of recovered_steps values in a row that
 * are well: at most recovered_multiple * mean, or over the mean by less than half of least_s. So there is one alarm
 * however long it lasts, and none flickers: between slow and well nothing changes. Slow values, and all while an alarm
 * lasts, leave the baseline as it was.
 */
#ifndef DP_PROFILER_SERIES_H
#define DP_PROFILER_SERIES_H

#include <stdbool.h>

#include "base/status.h"
#include "plan/scenario_monitor.h"

typedef struct prof_series {
  double *values, *sorted; /* [window_steps] the baseline, the next overwritten at `next`; malloc'ed */
  int64_t count, next;
  double mean, median, deviation; /* of the baseline */
  int64_t slow, well;             /* values in a row */
  int64_t since;                  /* step of the first of the slow ones, of an alarm too */
  bool alarmed;
} prof_series;

typedef enum prof_verdict { PROF_STEADY, PROF_ALARM, PROF_RECOVERED } prof_verdict;

dp_status prof_series_init(const plan_monitor *rule, prof_series *series, dp_error *error);
void prof_series_free(prof_series *series); /* a zeroed one is fine */
/* The value of a step, finite and not negative; steps ascend. The verdicts other than PROF_STEADY come once each, in
 * turns. */
prof_verdict prof_series_add(prof_series *series, const plan_monitor *rule, int64_t step, double value, double least_s);
/* (x - m) / d; 0 without a baseline. */
double prof_series_score(const prof_series *series, double value);

#endif
