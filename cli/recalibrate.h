/* diffpipe calibrate --from: a profile that has learnt from a run. */
#ifndef DP_CLI_RECALIBRATE_H
#define DP_CLI_RECALIBRATE_H

#include "base/arena.h"
#include "plan/scenario.h"

/* What the run in `folder` took against what was predicted of it with the scenario's profile: by pass, the median time
 * of each chunk's instructions, and of the optimizer's. DP_BAD_INPUT: the folder has no comparison, is of another
 * scenario or was predicted otherwise; a factor is beyond 0.01 to 100. `step_s`: what was predicted of the run's step. */
dp_status cli_recalibrate(const plan_scenario *scenario, const char *folder, plan_profile_factors *factors,
                          double *step_s, dp_error *error);
/* The assignment "cluster.profile=..." that the run in `folder` was given; NULL: none. In the arena. */
dp_status cli_run_profile_of(const char *folder, dp_arena *arena, const char **assignment, dp_error *error);

#endif
