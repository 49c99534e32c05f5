/* Around the steps of a run: its folder, its session, where it goes on, and what it tells at the end. */
#include <stdio.h>

#include "base/file.h"
#include "cli/run_algorithms.h"
#include "cli/run_memory.h"
#include "cli/run_notes.h"
#include "cli/run_parts.h"
#include "cli/run_profile.h"
#include "cli/run_report.h"
#include "exec/checkpoint.h"
#include "exec/run_lock.h"

/* Whether the folder has checkpoints, whole or not. */
static dp_status has_checkpoints(const char *folder, bool *has, dp_error *error) {
  dp_arena arena = {0};
  int64_t *steps = NULL;
  size_t count = 0;
  const char *inner = dp_arena_printf(&arena, "%s/checkpoints", folder);
  const dp_status status = inner ? exec_checkpoint_steps(inner, &arena, &steps, &count, error) : dp_fail_memory(error);
  *has = count > 0;
  dp_arena_free(&arena);
  return status;
}

/* Goes on, or begins; where nothing was saved yet, --resume begins. */
static dp_status begin(cli_run_job *r, dp_error *error) {
  bool has = false;
  dp_str notes = {0};
  dp_status status = cli_run_speaks(r) ? has_checkpoints(r->folder, &has, error) : DP_OK;
  if (status == DP_OK && has && !r->resume && !r->evaluates)
    status = dp_fail(error, DP_BAD_INPUT, "%s: found the checkpoints of a run, allowed: --resume, or another --out",
                     r->folder);
  DP_TRY(exec_agree(r->transport, status, error));
  int64_t any = has;
  DP_TRY(exec_maximum(r->transport, &any, error));
  if (any && r->resume) {
    status = exec_session_resume(r->session, &notes, error);
    if (status == DP_OK && notes.failed) status = dp_fail_memory(error);
    if (status == DP_OK) cli_run_note_lines(&notes);
    dp_str_free(&notes);
    DP_TRY(status);
  } else if (r->resume && cli_run_speaks(r)) {
    fprintf(stderr, "diffpipe: note: %s has no checkpoint: the run begins\n", r->folder);
  }
  r->first = exec_session_done(r->session);
  status = cli_run_speaks(r) ? cli_run_log_open(r->evaluates ? NULL : r->folder, r->first, &r->log, error) : DP_OK;
  DP_TRY(exec_agree(r->transport, status, error));
  return r->first > 0 && !r->evaluates ? cli_run_note_event(r, "resumed", NULL, error) : DP_OK;
}

static dp_status tell(const cli_run_job *r, const cli_run_report *report, dp_error *error) {
  const cli_run_told told = {.name = r->scenario->name,
                             .folder = r->evaluates ? NULL : r->folder,
                             .checkpoint = exec_session_checkpoint(r->session),
                             .first_step = r->first,
                             .steps = exec_session_done(r->session),
                             .interrupted = r->interrupted,
                             .log = &r->log,
                             .predicted = r->predicted,
                             .report = report};
  return r->json ? cli_run_print_json(&told, error) : cli_run_print_text(&told, error);
}

/* Every process has ended its records: cli_run_peak_rss has met them. */
static dp_status make_profile(const cli_run_job *r, cli_run_recorded *recorded, dp_error *error) {
  *recorded = (cli_run_recorded){.lost = 0};
  if (r->record.keep == 0) return DP_OK;
  DP_TRY(cli_run_recorded_of(&r->record, recorded, error));
  dp_status status = DP_OK;
  if (recorded->tables.step_count > 0)
    status = cli_run_profile_write(recorded, &r->predicted->run, r->folder, error);
  else
    fprintf(stderr, "diffpipe: note: there is no profile: no step of the run's own plan and size was done\n");
  if (status != DP_OK) cli_run_recorded_free(recorded);
  return status;
}

static dp_status report_run_of(const cli_run_job *r, int64_t peak_rss_bytes, dp_error *error) {
  cli_run_report report;
  if (r->samples.count == 0) return tell(r, NULL, error);
  /* the buffers of another plan are not what was predicted */
  const exec_pipeline *pipeline = r->degrade.degraded ? NULL : exec_session_pipeline(r->session);
  DP_TRY(cli_run_report_make(r->predicted, &r->samples, pipeline, &r->log, peak_rss_bytes, &report, error));
  dp_status status =
      cli_run_report_write(&report, &r->samples, r->unit_costs, &r->units.times, r->folder, r->plots, error);
  if (status == DP_OK) status = tell(r, &report, error);
  cli_run_report_free(&report);
  return status;
}

static dp_status work(cli_run_job *r, dp_error *error) {
  DP_TRY(begin(r, error));
  if (r->evaluates) {
    DP_TRY(cli_run_evaluate(r, error));
    return cli_run_speaks(r) ? tell(r, NULL, error) : DP_OK;
  }
  DP_TRY(exec_agree(r->transport, cli_run_speaks(r) ? report_folder_begin(&r->predicted->run, r->folder, error) : DP_OK,
                    error));
  if (r->first >= r->steps && cli_run_speaks(r))
    fprintf(stderr, "diffpipe: note: %s has %lld steps already, allowed: more by --steps\n", r->folder,
            (long long)r->first);
  int64_t peak_rss_bytes;
  DP_TRY(cli_run_train(r, error));
  DP_TRY(cli_run_peak_rss(r->transport, &peak_rss_bytes, error));
  if (!cli_run_speaks(r)) return DP_OK;
  cli_run_recorded recorded;
  DP_TRY(make_profile(r, &recorded, error)); /* the page has it */
  const dp_status status = report_run_of(r, peak_rss_bytes, error);
  if (status == DP_OK && !r->json) cli_run_profile_print(&recorded);
  cli_run_recorded_free(&recorded);
  return status;
}

/* Other processes do not wait for a search. */
static void advise(const cli_run_job *r, const exec_shortage *shortage, dp_error *error) {
  if (shortage->needed_bytes == 0 || r->transport) return;
  fprintf(stderr, "diffpipe: note: looking for a plan that fits\n");
  cli_run_add_advice(r->scenario, r->efficiency, shortage, exec_device_cuda_count(), error);
}

static dp_status read_algorithms(cli_run_job *r, dp_error *error) {
  return r->cuda ? cli_run_algorithms_read(r->folder, r->algorithms_file, &r->algorithms, error) : DP_OK;
}

static dp_status write_algorithms(cli_run_job *r, dp_error *error) {
  dp_str notes = {0};
  if (!r->algorithms || !cli_run_speaks(r)) return DP_OK;
  const dp_status status =
      cli_run_algorithms_write(r->algorithms, r->evaluates ? NULL : r->folder, r->algorithms_file, &notes, error);
  if (status == DP_OK) cli_run_note_lines(&notes);
  dp_str_free(&notes);
  return status;
}

/* Makes the session and runs it; the lock is held meanwhile. */
static dp_status open_and_work(cli_run_job *r, dp_error *error) {
  const report_run *predicted = &r->predicted->run;
  exec_shortage shortage = {0};
  r->how = (exec_session_options){.scenario = r->scenario,
                                  .sizes = r->sizes->sizes,
                                  .size_count = r->sizes->count,
                                  .transport = r->transport,
                                  .folder = r->folder,
                                  .steps = r->steps,
                                  .observer = r->cuda ? NULL : &r->units.observer,
                                  .cuda = r->cuda,
                                  .shortage = &shortage,
                                  .threads = r->threads};
  const bool records = r->profile_steps > 0 && !r->evaluates;
  cli_run_record_init(predicted->program, records ? r->profile_steps : 0, &r->record);
  if (records && r->cuda) r->how.witness = &r->record.witness;
  dp_status status = plan_timeline_samples_init(predicted->program, CLI_RUN_STEPS_KEPT, &r->samples, error);
  if (status == DP_OK) status = cli_run_units_init(predicted->graph, predicted->program, &r->units, error);
  if (status == DP_OK) status = read_algorithms(r, error);
  r->how.algorithms = r->algorithms;
  status = exec_agree(r->transport, status, error);
  if (status == DP_OK) {
    status = exec_session_create(&r->how, &r->session, error);
    if (status != DP_OK) advise(r, &shortage, error);
  }
  if (status == DP_OK) status = exec_agree(r->transport, write_algorithms(r, error), error);
  if (status == DP_OK && r->how.witness) status = cli_run_record_begin(r->folder, r->transport, &r->record, error);
  if (status == DP_OK) {
    cli_processes_follow(r->processes, r->session);
    status = work(r, error);
    cli_processes_fail(r->processes, status, error); /* before the buffers go */
    cli_processes_leave(r->session, status, error);
    cli_processes_follow(r->processes, NULL);
  }
  exec_session_free(r->session);
  cli_run_degrade_free(&r->degrade);
  exec_algorithms_free(r->algorithms);
  cli_run_log_close(&r->log);
  plan_timeline_samples_free(&r->samples);
  cli_run_units_free(&r->units);
  cli_run_monitor_free(&r->monitor);
  cli_run_record_free(&r->record);
  return status;
}

dp_status cli_run_work(cli_run_job *r, dp_error *error) {
  int lock = -1;
  dp_status status = DP_OK;
  if (cli_run_speaks(r) && !r->predicted->run.fits) status = cli_run_note_verdict(&r->predicted->run, error);
  if (status == DP_OK && cli_run_speaks(r) && !r->evaluates) {
    status = dp_folder_make(r->folder, error);
    if (status == DP_OK) status = exec_run_lock(r->folder, &lock, error);
    if (status == DP_OK && r->profile_steps > 0) status = cli_run_record_clear(r->folder, error);
  }
  status = exec_agree(r->transport, status, error);
  if (status == DP_OK) status = open_and_work(r, error);
  exec_run_unlock(lock);
  return status;
}
