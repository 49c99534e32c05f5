/* diffpipe calibrate --from RUN_DIR: a profile from what a run measured. */
#ifndef DP_CLI_CALIBRATE_RUN_H
#define DP_CLI_CALIBRATE_RUN_H

#include "base/str.h"
#include "plan/scenario.h"
#include "sim/cost.h"

/* Fills an empty profile from the folder's timeline.json, the step of median duration, and comparison.json; the
 * scenario must be the run's, with what was set. `outliers`: a line each. DP_BAD_INPUT: it is of another scenario or
 * plan. */
dp_status cli_calibrate_run(const plan_scenario *scenario, const sim_efficiency *efficiency, const char *folder,
                            plan_profile *profile, dp_str *outliers, dp_error *error);

#endif
