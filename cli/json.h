/* What the commands that print JSON share. */
#ifndef DP_CLI_JSON_H
#define DP_CLI_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "sim/tune.h"

/* Sets object.key and takes over `value`; false when there was no memory for either. */
bool cli_json_put(json_t *object, const char *key, json_t *value);

/* The keys of [plan] that give this candidate; NULL: no memory. */
json_t *cli_json_candidate(const sim_candidate *candidate);

#endif
