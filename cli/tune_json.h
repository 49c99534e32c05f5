/* The answer of a search as JSON: what `tune --json` prints and tune.json holds. */
#ifndef DP_CLI_TUNE_JSON_H
#define DP_CLI_TUNE_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "sim/study.h"

/* A simulated trial; NULL: no memory. */
json_t *cli_trial_json(const sim_trial *trial);

/* The studies around it: devices, batch, k. */
dp_status cli_study_json(const sim_study *study, json_t **json, dp_error *error);

/* The whole answer; `all`: every plan that was looked at among `rejected`, else the best plan's neighbours. */
dp_status cli_tune_json(const sim_tune_result *result, bool all, double search_s, json_t **json, dp_error *error);

#endif
