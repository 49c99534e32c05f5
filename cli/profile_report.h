/* diffpipe profile report: what the ways of printing it share. */
#ifndef DP_CLI_PROFILE_REPORT_H
#define DP_CLI_PROFILE_REPORT_H

#include "base/str.h"
#include "profiler/summary.h"

typedef struct cli_recorded {
  prof_session session;
  prof_rules rules;
  unsigned char *classes;
  prof_steps steps;
  prof_summary summary;
} cli_recorded;

/* Format `diffpipe-profile-summary`, to stdout. */
dp_status cli_profile_print_json(const cli_recorded *profile, dp_error *error);

#endif
