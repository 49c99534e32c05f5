/* The folder of a run, written alike by the commands that predict. */
#ifndef DP_CLI_FOLDER_H
#define DP_CLI_FOLDER_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/options.h"
#include "reports/report.h"
#include "sim/predict.h"

/* A prediction as reports/ sees it, with what it rests on. Borrows the arguments; free the rest with cli_folder_free.
 */
typedef struct cli_folder_view {
  report_run run;
  report_bound bounds[SIM_MAX_BOUNDS];
  dp_arena arena;
} cli_folder_view;

/* `values` has the scenario's file and --set. */
dp_status cli_folder_view_of(const plan_scenario *scenario, const sim_efficiency *efficiency,
                             const sim_prediction *prediction, const cli_values *values, cli_folder_view *view,
                             dp_error *error);
void cli_folder_view_free(cli_folder_view *view);

/* DP_BAD_INPUT for an empty --out, and for --no-plots without it. `out`, `no_plots`: their slots. */
dp_status cli_folder_check(const cli_values *values, const char *command, int out, int no_plots, dp_error *error);

/* The same rows as JSON, for tune.json; NULL: no memory. */
json_t *cli_folder_assumptions(const report_run *run);

/* Writes the folder and says so on stderr. `tune`: the search that found the plan, or NULL. */
dp_status cli_folder_write(const report_run *run, const json_t *tune, const char *folder, bool plots, dp_error *error);

/* $GNUPLOT, else the one that configure found, else whichever is in PATH. */
const char *cli_folder_gnuplot(void);

#endif
