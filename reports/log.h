/* The log of a training run, log.jsonl: an object a line, written as the run goes.
 *
 * A line with `step` and `loss` is a step that was trained; one with `step` and `eval_loss` an evaluation; others are
 * passed over. A run that was resumed does some steps again: what was logged before of them is dropped. The last line
 * may be cut off, where a run was killed as it wrote.
 */
#ifndef DP_REPORTS_LOG_H
#define DP_REPORTS_LOG_H

#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

typedef struct report_log_row {
  int64_t step;
  double loss, lr, gradient_norm, step_s, samples_per_s; /* NAN: not there, or null */
} report_log_row;

typedef struct report_log_evaluation {
  int64_t step;
  double loss; /* NAN: null */
} report_log_evaluation;

typedef struct report_log {
  DP_ARRAY(report_log_row) rows; /* by step */
  DP_ARRAY(report_log_evaluation) evaluations;
} report_log;

/* DP_BAD_INPUT names file and line: no JSON object, a key of another kind. */
dp_status report_log_read(const char *path, report_log *log, dp_error *error);
void report_log_free(report_log *log);

#endif
