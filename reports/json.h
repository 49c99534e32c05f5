/* Building JSON that reads straight down: objects and arrays are sticky, NULL once something failed. */
#ifndef DP_REPORTS_JSON_H
#define DP_REPORTS_JSON_H

#include <jansson.h>

#include "base/status.h"
#include "plan/samples.h"

/* Both take over `value`, whatever becomes of it. */
void report_json_set(json_t **object, const char *key, json_t *value);
void report_json_append(json_t **array, json_t *value);

json_t *report_json_number(double value);    /* null where it is not finite */
json_t *report_json_numbers(const double *values, size_t count);
json_t *report_json_known(double value);     /* null for 0, which means unknown in a run */
json_t *report_json_text(const char *value); /* cleaned; NULL counts as "" */

json_t *report_steps_json(const plan_step_spread *steps); /* "steps" of metrics.json and comparison.json */

/* Whole or not at all: written beside and renamed. */
dp_status report_json_write(const json_t *json, const char *path, dp_error *error);

#endif
