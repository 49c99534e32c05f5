/* What the commands that print JSON share. */
#ifndef DP_CLI_JSON_H
#define DP_CLI_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "sim/tune.h"

/* Of a text that may be no UTF-8, as a folder's name: ? stands for each byte that is not. NULL: no memory. */
json_t *cli_json_text(const char *text);
/* Sets object.key and takes over `value`; false when there was no memory for either. */
bool cli_json_put(json_t *object, const char *key, json_t *value);

/* To stdout, with a line's end. DP_IO_FAILED: it could not be written. */
dp_status cli_json_print(const json_t *json, dp_error *error);

/* The keys of [plan] that give this candidate; NULL: no memory. */
json_t *cli_json_candidate(const sim_candidate *candidate);

#endif
