#include "reports/log.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MOST_BYTES = 1 << 30 };

typedef struct log_reader {
  const char *path;
  int line;
  report_log *log;
  dp_error *error;
} log_reader;

static dp_status bad(const log_reader *r, const char *key, const char *allowed) {
  return dp_fail(r->error, DP_BAD_INPUT, "%s:%d: %s: allowed: %s", r->path, r->line, key, allowed);
}

/* NAN where the key is missing or null. */
static dp_status number(const log_reader *r, const json_t *row, const char *key, double *out) {
  const json_t *value = json_object_get(row, key);
  *out = value && json_is_number(value) ? json_number_value(value) : NAN;
  if (value && !json_is_number(value) && !json_is_null(value)) return bad(r, key, "a number or null");
  return DP_OK;
}

static dp_status add_row(const log_reader *r, const json_t *json, int64_t step) {
  report_log_row row = {.step = step};
  report_log *log = r->log;
  DP_TRY(number(r, json, "loss", &row.loss));
  DP_TRY(number(r, json, "lr", &row.lr));
  DP_TRY(number(r, json, "gradient_norm", &row.gradient_norm));
  DP_TRY(number(r, json, "step_s", &row.step_s));
  DP_TRY(number(r, json, "samples_per_s", &row.samples_per_s));
  while (log->rows.count && log->rows.items[log->rows.count - 1].step >= step) log->rows.count--;
  while (log->evaluations.count && log->evaluations.items[log->evaluations.count - 1].step >= step)
    log->evaluations.count--;
  return dp_array_push(&log->rows, row) ? DP_OK : dp_fail_memory(r->error);
}

static dp_status add_evaluation(const log_reader *r, const json_t *json, int64_t step) {
  report_log_evaluation made = {.step = step};
  DP_TRY(number(r, json, "eval_loss", &made.loss));
  return dp_array_push(&r->log->evaluations, made) ? DP_OK : dp_fail_memory(r->error);
}

static dp_status add_line(const log_reader *r, const json_t *json) {
  if (!json_is_object(json)) return bad(r, "found no object", "one a line");
  const json_t *step = json_object_get(json, "step");
  const bool trained = json_object_get(json, "loss") != NULL, evaluated = json_object_get(json, "eval_loss") != NULL;
  if (!trained && !evaluated) return DP_OK;
  if (!json_is_integer(step) || json_integer_value(step) < 0) return bad(r, "step", "an integer from 0");
  if (trained) DP_TRY(add_row(r, json, json_integer_value(step)));
  return evaluated ? add_evaluation(r, json, json_integer_value(step)) : DP_OK;
}

static dp_status read_lines(log_reader *r, const char *text) {
  for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) { /* what has no end is cut off */
    json_error_t trouble;
    r->line++;
    if (end == text) continue;
    json_t *json = json_loadb(text, (size_t)(end - text), 0, &trouble);
    if (!json) return dp_fail(r->error, DP_BAD_INPUT, "%s:%d: no JSON: %s", r->path, r->line, trouble.text);
    const dp_status status = add_line(r, json);
    json_decref(json);
    if (status != DP_OK) return status;
  }
  return DP_OK;
}

dp_status report_log_read(const char *path, report_log *log, dp_error *error) {
  *log = (report_log){.rows = {0}};
  log_reader r = {.path = path, .log = log, .error = error};
  char *text = NULL;
  size_t length = 0;
  DP_TRY(dp_file_read(path, MOST_BYTES, &text, &length, error));
  const dp_status status = read_lines(&r, text);
  free(text);
  if (status != DP_OK) report_log_free(log);
  return status;
}

void report_log_free(report_log *log) {
  dp_array_free(&log->rows);
  dp_array_free(&log->evaluations);
}
