/* What the commands that search share. */
#ifndef DP_CLI_SEARCH_H
#define DP_CLI_SEARCH_H

#include "base/progress.h"
#include "cli/options.h"
#include "sim/tune.h"

/* sim_tune_options with --threads of `values` (its row has `slot`), Ctrl-C as what stops it, and `progress`, begun,
 * drawn as it goes; NULL: none is. */
sim_tune_options cli_search_options(const cli_values *values, int slot, dp_progress *progress);

/* Between the two Ctrl-C ends the search and not the program: what is known so far is still told. */
void cli_search_begin(void);
void cli_search_end(void);

#endif
