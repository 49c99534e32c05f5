/* A plan that a search found, as settings for the command line. */
#ifndef DP_CLI_CANDIDATE_H
#define DP_CLI_CANDIDATE_H

#include "base/str.h"
#include "sim/tune.h"

/* "--set plan.stages=4 ...": all of [plan], words of a shell. `between`: what is between groups that belong on one
 * line, as " " or " \\\n    ". */
void cli_candidate_settings(const sim_candidate *candidate, const char *between, dp_str *out);

#endif
