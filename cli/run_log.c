#define _POSIX_C_SOURCE 200809L
#include "cli/run_log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/json.h"
#include "reports/json.h"

enum { MOST_BYTES = 1 << 30 };

static dp_status keep_loss(cli_run_log *log, int64_t step, double loss, dp_error *error) {
  while ((int64_t)log->losses.count < step)
    if (!dp_array_push(&log->losses, (double)NAN)) return dp_fail_memory(error);
  log->losses.items[step - 1] = loss;
  return DP_OK;
}

/* ---- reading back ---- */

/* Keeps a line of a step that is done; `kept` gets it. What cannot be read is left out: a line that a killed run had
 * not finished. */
static dp_status take_line(cli_run_log *log, const char *line, size_t length, int64_t done, dp_str *kept,
                           dp_error *error) {
  json_t *row = json_loadb(line, length, 0, NULL);
  const json_t *step = json_object_get(row, "step"), *loss = json_object_get(row, "loss");
  const int64_t number_of = json_is_integer(step) ? json_integer_value(step) : -1;
  dp_status status = DP_OK;
  if (number_of >= 0 && number_of <= done) {
    dp_str_add_bytes(kept, line, length);
    dp_str_add(kept, "\n");
    if (loss && number_of > 0)
      status = keep_loss(log, number_of, json_is_number(loss) ? json_number_value(loss) : (double)NAN, error);
    if (json_object_get(row, "psnr")) {
      json_decref(log->psnr);
      log->psnr = json_incref(json_object_get(row, "psnr"));
    }
    if (json_object_get(row, "eval_loss") && json_array_append(log->evaluations, row) != 0)
      status = dp_fail_memory(error);
  }
  json_decref(row);
  return status;
}

static dp_status read_back(cli_run_log *log, int64_t done, dp_str *kept, dp_error *error) {
  char *text = NULL;
  size_t length = 0;
  FILE *there = fopen(log->path, "rb");
  if (!there) return DP_OK;
  (void)fclose(there);
  DP_TRY(dp_file_read(log->path, MOST_BYTES, &text, &length, error));
  dp_status status = DP_OK;
  for (const char *line = text, *end; status == DP_OK && (end = strchr(line, '\n')) != NULL; line = end + 1)
    status = take_line(log, line, (size_t)(end - line), done, kept, error);
  free(text);
  if (status == DP_OK && kept->failed) status = dp_fail_memory(error);
  return status;
}

static dp_status open_file(const char *folder, int64_t done, cli_run_log *log, dp_error *error) {
  dp_str kept = {0}, path = {0};
  dp_str_addf(&path, "%s/log.jsonl", folder);
  if (path.failed) return dp_fail_memory(error);
  log->path = path.text;
  dp_status status = done ? read_back(log, done, &kept, error) : DP_OK;
  /* as it must be before the first line is added */
  if (status == DP_OK) status = dp_file_write(log->path, kept.text, kept.length, error);
  dp_str_free(&kept);
  DP_TRY(status);
  log->stream = fopen(log->path, "ab");
  return log->stream ? DP_OK : dp_fail(error, DP_IO_FAILED, "%s: cannot be opened: %s", log->path, strerror(errno));
}

dp_status cli_run_log_open(const char *folder, int64_t done, cli_run_log *log, dp_error *error) {
  cli_run_log made = {.evaluations = json_array()};
  dp_status status = made.evaluations ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK && folder) status = open_file(folder, done, &made, error);
  if (status == DP_OK && done > 0 && (int64_t)made.losses.count < done)
    status = keep_loss(&made, done, (double)NAN, error);
  if (status == DP_OK)
    *log = made;
  else
    cli_run_log_close(&made);
  return status;
}

void cli_run_log_close(cli_run_log *log) {
  if (log->stream) (void)fclose(log->stream);
  json_decref(log->evaluations);
  json_decref(log->psnr);
  dp_array_free(&log->losses);
  free(log->path);
  *log = (cli_run_log){.stream = NULL};
}

/* ---- writing ---- */

dp_status cli_run_log_row(cli_run_log *log, json_t *row, dp_error *error) {
  if (!row) return dp_fail_memory(error);
  if (!log->stream) {
    json_decref(row);
    return DP_OK;
  }
  char *line = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17));
  json_decref(row);
  if (!line) return dp_fail_memory(error);
  errno = 0;
  const bool done = fprintf(log->stream, "%s\n", line) > 0 && fflush(log->stream) == 0;
  free(line);
  return done ? DP_OK : dp_fail(error, DP_IO_FAILED, "%s: cannot be written: %s", log->path, strerror(errno));
}

static dp_status keep_psnr(cli_run_log *log, const exec_session *session, const double *psnr, dp_error *error) {
  json_decref(log->psnr);
  log->psnr = json_object();
  bool done = log->psnr != NULL;
  for (int s = 0; done && s < exec_session_skips(session); s++)
    done = cli_json_put(log->psnr, exec_session_skip_name(session, s), report_json_number(psnr[s]));
  return done ? DP_OK : dp_fail_memory(error);
}

dp_status cli_run_log_step(cli_run_log *log, const exec_session *session, const exec_session_report *report, int stages,
                           double step_s, double samples_per_s, dp_error *error) {
  DP_TRY(keep_loss(log, report->step, report->loss, error));
  if (report->psnr) DP_TRY(keep_psnr(log, session, report->psnr, error));
  return cli_run_log_row(
      log,
      json_pack("{sI sI so so so so so so so*}", "step", (json_int_t)report->step, "epoch", (json_int_t)report->epoch,
                "loss", report_json_number(report->loss), "lr", report_json_number(report->learning_rate),
                "gradient_norm", report_json_number(report->gradient_norm), "stage_norms",
                report_json_numbers(report->rank_norms, (size_t)stages), "step_s", report_json_number(step_s),
                "samples_per_s", report_json_number(samples_per_s), "psnr",
                report->psnr ? json_incref(log->psnr) : NULL),
      error);
}

dp_status cli_run_log_evaluation(cli_run_log *log, int64_t step, const exec_evaluation *evaluation,
                                 const exec_evaluation *means, dp_error *error) {
  json_t *row = json_pack("{sI so so sI}", "step", (json_int_t)step, "eval_loss", report_json_number(evaluation->loss),
                          "eval_quantiles", report_json_numbers(evaluation->quantiles, EXEC_QUANTILES), "eval_samples",
                          (json_int_t)evaluation->samples);
  bool done = row != NULL;
  if (done && means)
    done = cli_json_put(row, "eval_ema_loss", report_json_number(means->loss)) &&
           cli_json_put(row, "eval_ema_quantiles", report_json_numbers(means->quantiles, EXEC_QUANTILES));
  if (!done || json_array_append(log->evaluations, row) != 0) {
    json_decref(row);
    return dp_fail_memory(error);
  }
  return cli_run_log_row(log, row, error);
}

dp_status cli_run_log_event(cli_run_log *log, int64_t step, const char *event, const char *path, dp_error *error) {
  json_t *row = json_pack("{sI ss}", "step", (json_int_t)step, "event", event);
  if (row && path && !cli_json_put(row, "path", cli_json_text(path))) {
    json_decref(row);
    row = NULL;
  }
  return cli_run_log_row(log, row, error);
}
