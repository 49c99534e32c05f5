/* From plan.json, as simulate, tune and run write it, to the scenario that it is a plan of. */
#ifndef DP_CLI_RUN_PLAN_H
#define DP_CLI_RUN_PLAN_H

#include <jansson.h>

#include "base/arena.h"
#include "base/str.h"
#include "cli/options.h"
#include "exec/session.h"
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

/* The programs of a run: one a bucket of data.buckets, of the split of the plan, else that of the model's own size. The
 * prediction must outlive them. */
typedef struct cli_run_sizes {
  exec_session_size *sizes;
  size_t count;
  sim_prediction *made; /* [count] of other sizes than the model's */
  dp_arena arena;
} cli_run_sizes;
dp_status cli_run_sizes_of(const plan_scenario *scenario, const sim_efficiency *efficiency,
                           const sim_prediction *prediction, cli_run_sizes *sizes, dp_error *error);
void cli_run_sizes_free(cli_run_sizes *sizes);

#endif
