/* The steps of a run: each is measured, logged and watched, and evaluations and checkpoints come between. */
#include <stdio.h>

#include "base/clock.h"
#include "cli/run_parts.h"
#include "cli/run_signals.h"
#include "profiler/process.h"

dp_status cli_run_note_event(cli_run_job *r, const char *event, const char *path, dp_error *error) {
  const dp_status status =
      cli_run_speaks(r) ? cli_run_log_event(&r->log, exec_session_done(r->session), event, path, error) : DP_OK;
  return exec_agree(r->transport, status, error);
}

static dp_status save(cli_run_job *r, dp_error *error) {
  if (r->saved == exec_session_done(r->session)) return DP_OK;
  DP_TRY(exec_session_save(r->session, error));
  r->saved = exec_session_done(r->session);
  cli_processes_note(r->processes, r->session);
  return cli_run_note_event(r, "checkpoint", exec_session_checkpoint(r->session), error);
}

dp_status cli_run_evaluate(cli_run_job *r, dp_error *error) {
  exec_evaluation plain, means;
  const bool has_means = r->scenario->train.ema_decay > 0;
  DP_TRY(exec_session_evaluate(r->session, false, &plain, error));
  if (has_means) DP_TRY(exec_session_evaluate(r->session, true, &means, error));
  const dp_status status = cli_run_speaks(r) ? cli_run_log_evaluation(&r->log, exec_session_done(r->session), &plain,
                                                                      has_means ? &means : NULL, error)
                                             : DP_OK;
  return exec_agree(r->transport, status, error);
}

static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

/* For --profile-steps: usual are those of the program that the run began with, but on processors such as time ops. */
static dp_status record_step(cli_run_job *r, const exec_session_report *report, const plan_timeline *timeline,
                             double step_s, int64_t from_ns, bool usual, dp_error *error) {
  return cli_run_record_step(&r->record, (uint64_t)report->step, from_ns, prof_process_now_ns(), step_s,
                             report->timed && usual, cli_run_speaks(r) ? timeline : NULL, error);
}

/* A step that recorded itself took longer than it would: the run is reported by such ones only where there are no
 * others. */
static void sample_step(cli_run_job *r, const plan_timeline *timeline) {
  if (cli_run_record_slows(&r->record)) return;
  if (r->record.plain == 1) plan_timeline_samples_clear(&r->samples);
  plan_timeline_samples_add(&r->samples, timeline);
}

static dp_status note_step(cli_run_job *r, const exec_session_report *report, const plan_timeline *timeline,
                           double step_s, int64_t from_ns, bool observed, dp_error *error) {
  const plan_plan *plan = exec_session_plan(r->session);
  const double samples_per_s = (double)(plan->replicas * plan->microbatches * plan->microbatch_size) / step_s;
  char note[96], duration[32];
  const bool counts = report->step > r->first + 1 || r->steps == r->first + 1; /* the first step fills caches */
  DP_TRY(record_step(r, report, timeline, step_s, from_ns, counts && (!observed || r->cuda), error));
  if (!cli_run_speaks(r)) return DP_OK;
  if (report->timed && observed) cli_run_units_count(&r->units);
  if (report->timed && !observed && counts) sample_step(r, timeline);
  (void)snprintf(note, sizeof note, "step %lld, loss %.4g, %s, %.4g samples/s", (long long)report->step, report->loss,
                 dp_format_seconds(step_s, duration), samples_per_s);
  dp_progress_update(&r->bar, (uint64_t)(report->step - r->first), note);
  DP_TRY(cli_run_log_step(&r->log, r->session, report, plan->ranks, step_s, samples_per_s, error));
  return cli_run_monitor_step(&r->monitor, report->step, step_s, report->timed ? timeline : NULL,
                              cli_run_record_slows(&r->record), observed ? r->units.classes : NULL, error);
}

/* `timeline`: of the program that the run began with. */
static dp_status take_step(cli_run_job *r, plan_timeline *timeline, dp_error *error) {
  const plan_train *train = &r->scenario->train;
  exec_session_report report;
  int64_t wished;
  cli_processes_note(r->processes, r->session);
  const bool observed = cli_run_units_begin(&r->units, exec_session_done(r->session) + 1);
  const double from_s = dp_clock_s();
  const int64_t from_ns = prof_process_now_ns();
  DP_TRY(exec_session_step(r->session, &report, r->degrade.degraded ? NULL : timeline, error));
  DP_TRY(exec_agree(r->transport, note_step(r, &report, timeline, dp_clock_s() - from_s, from_ns, observed, error),
                    error));
  DP_TRY(cli_run_record_next(r->transport, exec_session_pipeline(r->session), &r->record, error));
  DP_TRY(
      exec_agree(r->transport, cli_run_degrade_step(&r->degrade, &r->monitor, report.step, &r->session, error), error));
  if (is_due(train->evaluate_every, report.step)) DP_TRY(cli_run_evaluate(r, error));
  DP_TRY(cli_run_wish(r->transport, &wished, error));
  r->interrupted = wished == CLI_RUN_WISH_STOP && report.step < r->steps;
  if (wished != CLI_RUN_WISH_NONE || is_due(train->checkpoint_every, report.step)) DP_TRY(save(r, error));
  return DP_OK;
}

/* Where the timelines are, on process 0; and on those that change plans with it. */
static dp_status begin_monitor(cli_run_job *r, dp_error *error) {
  const report_run *predicted = &r->predicted->run;
  const cli_run_anomaly what = r->on_anomaly;
  if ((!cli_run_speaks(r) && what != CLI_RUN_DEGRADE) || what == CLI_RUN_OFF) return DP_OK;
  DP_TRY(cli_run_monitor_init(predicted->program, &r->scenario->monitor, predicted->timeline, &r->log, &r->bar,
                              &r->monitor, error));
  r->monitor.quiet = !cli_run_speaks(r);
  if (what == CLI_RUN_ALARM) return DP_OK;
  return cli_run_degrade_begin(r->scenario, r->efficiency, r->processes, &r->how, what == CLI_RUN_DEGRADE, &r->monitor,
                               &r->degrade, error);
}

dp_status cli_run_train(cli_run_job *r, dp_error *error) {
  plan_timeline timeline = {0};
  DP_TRY(exec_agree(r->transport, begin_monitor(r, error), error));
  DP_TRY(plan_timeline_init(r->predicted->run.program, &timeline, error));
  dp_status status = DP_OK;
  cli_run_listen();
  cli_run_record_expect(r->steps - r->first, &r->record);
  if (cli_run_speaks(r)) dp_progress_begin(&r->bar, "train", (uint64_t)(r->steps - r->first));
  while (status == DP_OK && !r->interrupted && exec_session_done(r->session) < r->steps)
    status = take_step(r, &timeline, error);
  if (cli_run_speaks(r)) dp_progress_end(&r->bar);
  cli_run_record_end(status == DP_OK ? exec_session_pipeline(r->session) : NULL, &r->record);
  plan_timeline_free(&timeline);
  if (status == DP_OK) status = save(r, error);
  if (status == DP_OK && r->interrupted) return cli_run_note_event(r, "interrupted", NULL, error);
  return status == DP_OK ? exec_session_export(r->session, error) : status;
}
