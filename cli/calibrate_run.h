/* diffpipe calibrate --from RUN_DIR: a profile from what a run measured. */
#ifndef DP_CLI_CALIBRATE_RUN_H
#define DP_CLI_CALIBRATE_RUN_H

#include "base/str.h"
#include "plan/scenario.h"
#include "sim/cost.h"

typedef struct cli_run_told {
  dp_str outliers;       /* instructions that took too long, a line each; to be freed */
  double recorded_share; /* of the passes' time, what is of units that were recorded one by one */
  uint64_t units_aside;  /* recorded instructions */
  double units_error;    /* median on the units of these */
} cli_run_told;

/* Fills an empty profile from the folder's timeline.json, the step of median duration, comparison.json, and its records,
 * where there are such; the scenario must be the run's, with what was set. `told`: zeroed. DP_BAD_INPUT: it is of another
 * scenario or plan. */
dp_status cli_calibrate_run(const plan_scenario *scenario, const sim_efficiency *efficiency, const char *folder,
                            plan_profile *profile, cli_run_told *told, dp_error *error);

#endif
