/* What `diffpipe run` says on stderr of what it was given, a line each: `diffpipe: note: ...`. */
#ifndef DP_CLI_RUN_NOTES_H
#define DP_CLI_RUN_NOTES_H

#include "cli/run_plan.h"
#include "reports/report.h"
#include "sim/predict.h"

/* Each line of the text. */
void cli_run_note_lines(const dp_str *lines);
/* What no longer is as it was when the plan was written; silent: only read. */
dp_status cli_run_note_differences(const cli_run_source *source, const plan_scenario *scenario,
                                   const sim_prediction *prediction, bool silent, dp_error *error);
/* A profile of another machine, of another card or driver, or of other threads (of a worker; 0: as the scenario leaves
 * it), which predicts another run. */
dp_status cli_run_note_profile(const plan_scenario *scenario, int64_t threads, dp_error *error);
/* A plan that does not fit its devices may yet fit this machine. */
dp_status cli_run_note_verdict(const report_run *run, dp_error *error);

#endif
