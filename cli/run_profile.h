/* What --profile-steps leaves in the run's folder: profile.txt and profile.json (doc/profiling.md), and of steps whose
 * work was recorded profile-timeline.json, the one of median duration, as timeline.json has the run's. */
#ifndef DP_CLI_RUN_PROFILE_H
#define DP_CLI_RUN_PROFILE_H

#include "cli/run_record.h"
#include "reports/report.h"

/* In the process that speaks; says so on stderr. `predicted`: the run whose program was recorded. */
dp_status cli_run_profile_write(const cli_run_recorded *recorded, const report_run *predicted, const char *folder,
                                dp_error *error);
/* A line of the run's text: where its workers' time went. */
void cli_run_profile_print(const cli_run_recorded *recorded);

#endif
