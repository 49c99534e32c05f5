/* [monitor] of a scenario: when a live run is said to be slower than it was. Nothing of a plan depends on it. The rules
 * that the numbers belong to stand in profiler/series.h and profiler/drift.h.
 */
#ifndef DP_PLAN_SCENARIO_MONITOR_H
#define DP_PLAN_SCENARIO_MONITOR_H

#include <stdint.h>

typedef struct plan_monitor {
  int64_t baseline_steps;    /* values that a baseline has before anything is said; 2 or more, at most window_steps */
  int64_t window_steps;      /* the newest so many make the baseline */
  double multiple;           /* of the baseline's mean; > 1 */
  double z_score;            /* robust: deviations from the median, by the median of those */
  double least_share;        /* of the mean step, by which a part of it must be slower */
  int64_t slow_steps;        /* in a row, until it is an alarm */
  double recovered_multiple; /* of the mean, at most which all is well again; 1 to multiple */
  int64_t recovered_steps;   /* in a row */
  double drift;              /* by which measured / predicted may change; 0: nobody looks */
  int64_t probe_every;       /* steps between two looks at a link that was left */
  const char *hook;          /* a command for the shell; NULL: none */
} plan_monitor;

extern const plan_monitor plan_monitor_defaults;

#endif
