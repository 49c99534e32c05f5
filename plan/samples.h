/* The timelines of a run's last steps: what a measured run is reported from.
 *
 * Memory is bounded: of the last `capacity` steps starts and ends are kept, older ones are overwritten. The step that
 * stands for the run is a real one, that whose duration is the median: starts and ends of one step fit together,
 * medians instruction by instruction would not.
 */
#ifndef DP_PLAN_SAMPLES_H
#define DP_PLAN_SAMPLES_H

#include "plan/timeline.h"

typedef struct plan_timeline_samples {
  const plan_program *program;
  uint32_t capacity, count; /* steps that can be, and that are kept */
  uint64_t seen;            /* steps that were added */
  double *start_s, *end_s;  /* [capacity * instruction_count] step after step, in no order of time; malloc'ed */
  double *step_s;           /* [capacity] malloc'ed */
} plan_timeline_samples;

/* Durations of the steps that are kept. */
typedef struct plan_step_spread {
  uint32_t count;
  double median_s, mean_s, p95_s, max_s; /* 0 without steps */
} plan_step_spread;

/* capacity >= 1. The program must outlive it. */
dp_status plan_timeline_samples_init(const plan_program *program, uint32_t capacity, plan_timeline_samples *samples,
                                     dp_error *error);
void plan_timeline_samples_free(plan_timeline_samples *samples);
void plan_timeline_samples_clear(plan_timeline_samples *samples); /* as if none had been added */
/* Copies what the timeline, which is of that program, says. */
void plan_timeline_samples_add(plan_timeline_samples *samples, const plan_timeline *timeline);
/* A new timeline, for plan_timeline_free: the step of median duration (of an even number the shorter of the middle two;
 * of equal ones the one kept first). DP_INTERNAL: nothing was added. */
dp_status plan_timeline_samples_median(const plan_timeline_samples *samples, plan_timeline *timeline, dp_error *error);
dp_status plan_timeline_samples_spread(const plan_timeline_samples *samples, plan_step_spread *spread, dp_error *error);

/* Of ascending values: the smallest that at least `share` (0 to 1) of them do not exceed, which is always one of them
 * (dp_quantile gives what lies between two); 0 of none. */
double plan_quantile(const double *sorted, size_t count, double share);

#endif
