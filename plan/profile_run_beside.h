/* How much longer passes take while others compute that share their device, or a machine's processors, from one measured
 * step. What an instruction met is in the step's timeline: over its time the mean of the others that ran forwards, f, and
 * of those that did anything else, b, as shares of all others. By the law of plan/profile.h it took
 *   alone (1 + f by[pass][0] + b by[pass][1])
 * with its class's `alone` (same chunk and pass), and one `by` for all forwards and one for all other passes. These two
 * numbers are fitted to all classes at once, so that within each the logarithms of `alone` vary least: what a pipeline
 * fills and drains alone tells. The first instruction of a lane does not count (a device's queue begins with it), nor does
 * what took PLAN_PROFILE_OUTLIER times the middle of its class, nor every fifth of a class, which is kept aside.
 * Where it explains less than half of how the instructions of a class differ, noise does, and `by` is 0.
 */
#ifndef DP_PLAN_PROFILE_RUN_BESIDE_H
#define DP_PLAN_PROFILE_RUN_BESIDE_H

#include "plan/profile_run.h"

typedef struct plan_profile_beside {
  double by[2][2];     /* [0 forward, 1 any other pass][all others run forwards, or anything else] */
  double (*shares)[2]; /* [instruction] f, b of compute; malloc'ed */
} plan_profile_beside;

dp_status plan_profile_beside_of_run(const plan_profile_run *run, plan_profile_beside *beside, dp_error *error);
void plan_profile_beside_free(plan_profile_beside *beside); /* safe on a zeroed one */
/* How many times as long as alone an instruction took. */
double plan_profile_beside_stretch(const plan_profile_beside *beside, const plan_program *program,
                                   uint32_t instruction);

#endif
