#include "reports/json.h"

#include <math.h>

#include "base/file.h"
#include "reports/table.h"

void report_json_set(json_t **object, const char *key, json_t *value) {
  if (*object && json_object_set_new(*object, key, value) == 0) return; /* it takes the value even when it fails */
  if (!*object) json_decref(value);
  json_decref(*object);
  *object = NULL;
}

void report_json_append(json_t **array, json_t *value) {
  if (*array && json_array_append_new(*array, value) == 0) return;
  if (!*array) json_decref(value);
  json_decref(*array);
  *array = NULL;
}

json_t *report_json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *report_json_numbers(const double *values, size_t count) {
  json_t *list = json_array();
  for (size_t i = 0; i < count; i++) report_json_append(&list, report_json_number(values[i]));
  return list;
}

json_t *report_json_known(double value) { return value > 0 ? report_json_number(value) : json_null(); }

json_t *report_json_text(const char *value) {
  dp_arena arena = {0};
  const char *clean = report_text_clean(&arena, value ? value : "");
  json_t *json = clean ? json_string(clean) : NULL;
  dp_arena_free(&arena);
  return json;
}

dp_status report_json_write(const json_t *json, const char *path, dp_error *error) {
  dp_output output;
  DP_TRY(dp_output_open(path, &output, error));
  const int failed = json_dumpf(json, output.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
  (void)fputs("\n", output.stream);
  if (!failed) return dp_output_commit(&output, error);
  dp_output_abandon(&output);
  return dp_fail(error, DP_IO_FAILED, "%s: cannot be written", path);
}
