/* DIR/log.jsonl: what a run says as it goes, a JSON object a line, each given to the system before the next step.
 *
 * A step that was trained: {"step", "epoch", "loss", "lr", "gradient_norm", "stage_norms", "step_s", "samples_per_s"},
 * and where compressed skips were measured "psnr": {"TENSOR to UNIT": dB}. An evaluation: {"step", "eval_loss",
 * "eval_quantiles", "eval_samples"}, with running means "eval_ema_loss" and "eval_ema_quantiles", too. Else {"step",
 * "event", "path"}: "checkpoint"; {"step", "event"}: "resumed", "interrupted"; what the monitor tells (cli/run_monitor.h).
 *
 * A run that resumes keeps the lines up to its checkpoint's step; those of later steps are done again.
 */
#ifndef DP_CLI_RUN_LOG_H
#define DP_CLI_RUN_LOG_H

#include <jansson.h>
#include <stdio.h>

#include "base/array.h"
#include "exec/session.h"

typedef struct cli_run_log {
  FILE *stream; /* NULL: nothing is written */
  char *path;
  DP_ARRAY(double) losses; /* of all steps of the run; NAN: not in the log */
  json_t *evaluations;     /* all lines of evaluations, a list */
  json_t *psnr;            /* the last ones; NULL: none */
} cli_run_log;

/* Opens the log of a folder to go on after `done` steps, of which the losses are read back; 0: anew. folder NULL:
 * losses and evaluations are kept and nothing is written. */
dp_status cli_run_log_open(const char *folder, int64_t done, cli_run_log *log, dp_error *error);
/* Safe on a zeroed one. */
void cli_run_log_close(cli_run_log *log);

dp_status cli_run_log_step(cli_run_log *log, const exec_session *session, const exec_session_report *report, int stages,
                           double step_s, double samples_per_s, dp_error *error);
/* means: NULL without running means. */
dp_status cli_run_log_evaluation(cli_run_log *log, int64_t step, const exec_evaluation *evaluation,
                                 const exec_evaluation *means, dp_error *error);
/* An object of the caller's, which it takes; NULL: no memory. */
dp_status cli_run_log_row(cli_run_log *log, json_t *row, dp_error *error);
/* path may be NULL. */
dp_status cli_run_log_event(cli_run_log *log, int64_t step, const char *event, const char *path, dp_error *error);

#endif
