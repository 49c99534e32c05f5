/* From plan.json, as simulate, tune and run write it, to the scenario that it is a plan of. */
#ifndef DP_CLI_RUN_PLAN_H
#define DP_CLI_RUN_PLAN_H

#include <jansson.h>

#include "base/arena.h"
#include "base/str.h"
#include "cli/options.h"
#include "sim/predict.h"

/* Where a run comes from. */
typedef struct cli_run_source {
  const char *scenario;    /* path */
  const char *const *sets; /* of the plan's own folder, the plan itself, then those of the command line */
  int set_count;
  const char *plan_path; /* NULL: the argument is a scenario */
  dp_arena arena;
} cli_run_source;

/* The argument is a plan when its file says so. setup.json beside it names the scenario and the assignments. */
dp_status cli_run_source_of(const cli_values *values, cli_run_source *source, dp_error *error);
void cli_run_source_free(cli_run_source *source);

/* What of the plan in the file the plan that will run does not have, a line for each; nothing for a scenario. */
dp_status cli_run_differences(const cli_run_source *source, const sim_prediction *prediction,
                              const plan_cluster *cluster, dp_str *lines, dp_error *error);

#endif
