/* The folder of a run, written alike by the commands that predict. */
#ifndef DP_CLI_FOLDER_H
#define DP_CLI_FOLDER_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/options.h"
#include "reports/report.h"
#include "sim/predict.h"

/* A prediction as reports/ sees it; everything is borrowed, `bounds` too. `values` has the scenario's file and --set.
 */
void cli_folder_run(const plan_scenario *scenario, const sim_prediction *prediction, const cli_values *values,
                    report_bound bounds[SIM_MAX_BOUNDS], report_run *run);

/* Writes the folder and says so on stderr. `tune`: the search that found the plan, or NULL. */
dp_status cli_folder_write(const report_run *run, const json_t *tune, const char *folder, bool plots, dp_error *error);

/* $GNUPLOT, else the one that configure found, else whichever is in PATH. */
const char *cli_folder_gnuplot(void);

#endif
