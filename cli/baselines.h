/* Other planners beside the plan found: a table, and JSON. */
#ifndef DP_CLI_BASELINES_H
#define DP_CLI_BASELINES_H

#include <jansson.h>

#include "sim/baseline.h"

void cli_baselines_print(const sim_baselines *baselines, const sim_tune_result *tuned);

/* An array of rows: name, title, plan (the keys of [plan], `split` among them where the planner has its own), text,
 * fits, step_s, throughput_samples_per_s, bubble_ratio, peak_memory_bytes, skip_bytes, boundary_bytes, gain_of_best
 * (null where one of the two does not fit), why, grid, simulated. NULL: no memory. */
json_t *cli_baselines_json(const sim_baselines *baselines);

#endif
