/* Seconds that each unit takes for one microbatch, by direction: predicted by the cost model, or measured as an
 * executor runs the units of its instructions one after another. The same type, so that the two can be laid side by
 * side.
 *
 * A backward that is not split is one run of BACKWARD_INPUT with the time of the whole; one that is split is a run of
 * each. What recomputation takes is part of the backward. Optimizer steps and transfers are in none of them.
 */
#ifndef DP_PLAN_UNIT_TIMES_H
#define DP_PLAN_UNIT_TIMES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum plan_unit_direction {
  PLAN_UNIT_FORWARD,
  PLAN_UNIT_BACKWARD_INPUT,
  PLAN_UNIT_BACKWARD_WEIGHT,
  PLAN_UNIT_DIRECTION_COUNT
} plan_unit_direction;

typedef struct plan_unit_times {
  size_t unit_count;
  double *total_s; /* [unit_count * PLAN_UNIT_DIRECTION_COUNT] of all runs; malloc'ed */
  uint32_t *runs;  /* the same; 0: not timed; malloc'ed */
} plan_unit_times;

dp_status plan_unit_times_init(size_t unit_count, plan_unit_times *times, dp_error *error);
void plan_unit_times_free(plan_unit_times *times); /* zero-initialised is fine */

/* One run. Several threads may add to one object as long as no two add to the same unit and direction at once. */
void plan_unit_times_add(plan_unit_times *times, size_t unit, plan_unit_direction direction, double seconds);

/* Of one microbatch; 0 where it was not timed. Backward: both parts together. */
double plan_unit_forward_s(const plan_unit_times *times, size_t unit);
double plan_unit_backward_s(const plan_unit_times *times, size_t unit);

#endif
