/* diffpipe run: trains by a plan, measures every step, and lays what was measured beside what was predicted. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/schema.h"
#include "cli/command.h"
#include "cli/efficiency.h"
#include "cli/run_algorithms.h"
#include "cli/run_degrade.h"
#include "cli/run_memory.h"
#include "cli/run_notes.h"
#include "cli/run_plan.h"
#include "cli/run_processes.h"
#include "cli/run_profile.h"
#include "cli/run_record.h"
#include "cli/run_report.h"
#include "cli/run_signals.h"
#include "cli/run_units.h"
#include "exec/checkpoint.h"
#include "exec/run_lock.h"
#include "profiler/process.h"
#include "sim/unit_times.h"

enum {
  SLOT_SET,
  SLOT_PROFILE,
  SLOT_STEPS,
  SLOT_RESUME,
  SLOT_EVAL,
  SLOT_OUT,
  SLOT_NO_PLOTS,
  SLOT_BACKEND,
  SLOT_THREADS,
  SLOT_TRUST_CACHE,
  SLOT_ALGORITHMS,
  SLOT_ON_ANOMALY,
  SLOT_PROFILE_STEPS,
  SLOT_JSON
};

enum { BACKEND_AUTO, BACKEND_CPU, BACKEND_CUDA };
static const char *const backends[] = {"auto", "cpu", "cuda", NULL};
enum { ANOMALY_ALARM, ANOMALY_ADVISE, ANOMALY_DEGRADE, ANOMALY_OFF };
static const char *const anomalies[] = {"alarm", "advise", "degrade", "off", NULL};

static const cli_option options[] = {
    CLI_OPTION_SET(SLOT_SET),
    CLI_OPTION_PROFILE(SLOT_PROFILE),
    {.name = "steps",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "train up to step N",
     .fallback = "task.steps",
     .slot = SLOT_STEPS,
     .min = 1,
     .max = 1000000000},
    {.name = "resume", .type = CLI_FLAG, .help = "go on from the newest whole checkpoint", .slot = SLOT_RESUME},
    {.name = "eval", .type = CLI_FLAG, .help = "train nothing; evaluate at fixed timesteps", .slot = SLOT_EVAL},
    {.name = "out",
     .letter = 'o',
     .type = CLI_STRING,
     .argument = "DIR",
     .help = "the run's folder",
     .fallback = "run-NAME of the scenario",
     .slot = SLOT_OUT},
    {.name = "no-plots",
     .type = CLI_FLAG,
     .help = "write the figures of the plots but do not draw them",
     .slot = SLOT_NO_PLOTS},
    {.name = "backend",
     .type = CLI_CHOICE,
     .argument = "NAME",
     .help = "what the workers run on",
     .fallback = "auto",
     .slot = SLOT_BACKEND,
     .choices = backends},
    {.name = "threads",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "of each worker on processors",
     .fallback = "train.threads, else a device's cores",
     .slot = SLOT_THREADS,
     .min = 1,
     .max = 1024},
    {.name = "algorithms",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "of CUDA's libraries: take what FILE has, add what was timed",
     .slot = SLOT_ALGORITHMS},
    {.name = "on-anomaly",
     .type = CLI_CHOICE,
     .argument = "WHAT",
     .help = "what to do when the run slows down",
     .fallback = "alarm",
     .slot = SLOT_ON_ANOMALY,
     .choices = anomalies},
    {.name = "profile-steps",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "record what N of the last steps did, kernels too",
     .slot = SLOT_PROFILE_STEPS,
     .min = 1,
     .max = CLI_RUN_RECORD_MOST},
    {.name = "trust-cache",
     .type = CLI_FLAG,
     .help = "take a cache that was made for another model or of other data",
     .slot = SLOT_TRUST_CACHE},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON},
};

/* ---- a run ---- */

typedef struct run {
  const cli_values *values;
  const plan_scenario *scenario;
  const sim_efficiency *efficiency;
  const cli_folder_view *predicted;  /* of the model's own size */
  const plan_unit_times *unit_costs; /* as predicted */
  const cli_run_sizes *sizes;
  cli_processes *processes;
  exec_transport *transport; /* theirs; NULL: one process */
  exec_session *session;
  bool cuda;                   /* on CUDA devices */
  exec_algorithms *algorithms; /* NULL: not on CUDA devices */
  const char *folder;
  int64_t steps; /* to be done in all */
  int64_t first; /* done when this command began */
  int64_t saved; /* steps done at the last checkpoint of this command; -1: none yet */
  bool interrupted;
  cli_run_log log;
  plan_timeline_samples samples;
  cli_run_units units;
  cli_run_monitor monitor;
  cli_run_degrade degrade;
  cli_run_record record;    /* of --profile-steps */
  exec_session_options how; /* the session */
  dp_progress bar;
} run;

/* Only process 0 talks and writes what there is one of. */
static bool speaks(const run *r) { return cli_processes_speak(r->processes); }
static bool given(const run *r, int slot) { return r->values->slots[slot].given; }
static int64_t on_anomaly(const cli_values *values) { return values->slots[SLOT_ON_ANOMALY].integer; }

static dp_status log_event(run *r, const char *event, const char *path, dp_error *error) {
  const dp_status status =
      speaks(r) ? cli_run_log_event(&r->log, exec_session_done(r->session), event, path, error) : DP_OK;
  return exec_agree(r->transport, status, error);
}

static dp_status save(run *r, dp_error *error) {
  if (r->saved == exec_session_done(r->session)) return DP_OK;
  DP_TRY(exec_session_save(r->session, error));
  r->saved = exec_session_done(r->session);
  cli_processes_note(r->processes, r->session);
  return log_event(r, "checkpoint", exec_session_checkpoint(r->session), error);
}

static dp_status evaluate(run *r, dp_error *error) {
  exec_evaluation plain, means;
  const bool has_means = r->scenario->train.ema_decay > 0;
  DP_TRY(exec_session_evaluate(r->session, false, &plain, error));
  if (has_means) DP_TRY(exec_session_evaluate(r->session, true, &means, error));
  const dp_status status = speaks(r) ? cli_run_log_evaluation(&r->log, exec_session_done(r->session), &plain,
                                                              has_means ? &means : NULL, error)
                                     : DP_OK;
  return exec_agree(r->transport, status, error);
}

static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

/* For --profile-steps: usual are those of the program that the run began with, but on processors such as time ops. */
static dp_status record_step(run *r, const exec_session_report *report, const plan_timeline *timeline, double step_s,
                             int64_t from_ns, bool usual, dp_error *error) {
  return cli_run_record_step(&r->record, (uint64_t)report->step, from_ns, prof_process_now_ns(), step_s,
                             report->timed && usual, speaks(r) ? timeline : NULL, error);
}

/* A step that recorded itself took longer than it would: the run is reported by such ones only where there are no
 * others. */
static void sample_step(run *r, const plan_timeline *timeline) {
  if (cli_run_record_slows(&r->record)) return;
  if (r->record.plain == 1) plan_timeline_samples_clear(&r->samples);
  plan_timeline_samples_add(&r->samples, timeline);
}

static dp_status note_step(run *r, const exec_session_report *report, const plan_timeline *timeline, double step_s,
                           int64_t from_ns, bool observed, dp_error *error) {
  const plan_plan *plan = exec_session_plan(r->session);
  const double samples_per_s = (double)(plan->replicas * plan->microbatches * plan->microbatch_size) / step_s;
  char note[96], duration[32];
  const bool counts = report->step > r->first + 1 || r->steps == r->first + 1; /* the first step fills caches */
  DP_TRY(record_step(r, report, timeline, step_s, from_ns, counts && (!observed || r->cuda), error));
  if (!speaks(r)) return DP_OK;
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
static dp_status take_step(run *r, plan_timeline *timeline, dp_error *error) {
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
  DP_TRY(cli_run_record_next(r->transport, &r->record, error));
  DP_TRY(exec_agree(r->transport,
                    cli_run_degrade_step(&r->degrade, &r->monitor, report.step, &r->session, error), error));
  if (is_due(train->evaluate_every, report.step)) DP_TRY(evaluate(r, error));
  DP_TRY(cli_run_wish(r->transport, &wished, error));
  r->interrupted = wished == CLI_RUN_WISH_STOP && report.step < r->steps;
  if (wished != CLI_RUN_WISH_NONE || is_due(train->checkpoint_every, report.step)) DP_TRY(save(r, error));
  return DP_OK;
}

/* Where the timelines are, on process 0; and on those that change plans with it. */
static dp_status begin_monitor(run *r, dp_error *error) {
  const report_run *predicted = &r->predicted->run;
  const int64_t what = on_anomaly(r->values);
  if ((!speaks(r) && what != ANOMALY_DEGRADE) || what == ANOMALY_OFF) return DP_OK;
  DP_TRY(cli_run_monitor_init(predicted->program, &r->scenario->monitor, predicted->timeline, &r->log, &r->bar,
                              &r->monitor, error));
  r->monitor.quiet = !speaks(r);
  if (what == ANOMALY_ALARM) return DP_OK;
  return cli_run_degrade_begin(r->scenario, r->efficiency, r->processes, &r->how, what == ANOMALY_DEGRADE, &r->monitor,
                               &r->degrade, error);
}

static dp_status train(run *r, dp_error *error) {
  plan_timeline timeline = {0};
  DP_TRY(exec_agree(r->transport, begin_monitor(r, error), error));
  DP_TRY(plan_timeline_init(r->predicted->run.program, &timeline, error));
  dp_status status = DP_OK;
  cli_run_listen();
  cli_run_record_expect(r->steps - r->first, &r->record);
  if (speaks(r)) dp_progress_begin(&r->bar, "train", (uint64_t)(r->steps - r->first));
  while (status == DP_OK && !r->interrupted && exec_session_done(r->session) < r->steps)
    status = take_step(r, &timeline, error);
  if (speaks(r)) dp_progress_end(&r->bar);
  cli_run_record_end(&r->record);
  plan_timeline_free(&timeline);
  if (status == DP_OK) status = save(r, error);
  if (status == DP_OK && r->interrupted) return log_event(r, "interrupted", NULL, error);
  return status == DP_OK ? exec_session_export(r->session, error) : status;
}

/* ---- before and after ---- */

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
static dp_status begin(run *r, dp_error *error) {
  bool has = false;
  dp_str notes = {0};
  dp_status status = speaks(r) ? has_checkpoints(r->folder, &has, error) : DP_OK;
  if (status == DP_OK && has && !given(r, SLOT_RESUME) && !given(r, SLOT_EVAL))
    status = dp_fail(error, DP_BAD_INPUT, "%s: found the checkpoints of a run, allowed: --resume, or another --out",
                     r->folder);
  DP_TRY(exec_agree(r->transport, status, error));
  int64_t any = has;
  DP_TRY(exec_maximum(r->transport, &any, error));
  if (any && given(r, SLOT_RESUME)) {
    status = exec_session_resume(r->session, &notes, error);
    if (status == DP_OK && notes.failed) status = dp_fail_memory(error);
    if (status == DP_OK) cli_run_note_lines(&notes);
    dp_str_free(&notes);
    DP_TRY(status);
  } else if (given(r, SLOT_RESUME) && speaks(r)) {
    fprintf(stderr, "diffpipe: note: %s has no checkpoint: the run begins\n", r->folder);
  }
  r->first = exec_session_done(r->session);
  status = speaks(r) ? cli_run_log_open(given(r, SLOT_EVAL) ? NULL : r->folder, r->first, &r->log, error) : DP_OK;
  DP_TRY(exec_agree(r->transport, status, error));
  return r->first > 0 && !given(r, SLOT_EVAL) ? log_event(r, "resumed", NULL, error) : DP_OK;
}

static dp_status tell(const run *r, const cli_run_report *report, dp_error *error) {
  const cli_run_told told = {.name = r->scenario->name,
                             .folder = given(r, SLOT_EVAL) ? NULL : r->folder,
                             .checkpoint = exec_session_checkpoint(r->session),
                             .first_step = r->first,
                             .steps = exec_session_done(r->session),
                             .interrupted = r->interrupted,
                             .log = &r->log,
                             .predicted = r->predicted,
                             .report = report};
  return given(r, SLOT_JSON) ? cli_run_print_json(&told, error) : cli_run_print_text(&told, error);
}

/* Every process has ended its records: cli_run_peak_rss has met them. */
static dp_status make_profile(const run *r, cli_run_recorded *recorded, dp_error *error) {
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

static dp_status report_run_of(const run *r, int64_t peak_rss_bytes, dp_error *error) {
  cli_run_report report;
  if (r->samples.count == 0) return tell(r, NULL, error);
  /* the buffers of another plan are not what was predicted */
  const exec_pipeline *pipeline = r->degrade.degraded ? NULL : exec_session_pipeline(r->session);
  DP_TRY(cli_run_report_make(r->predicted, &r->samples, pipeline, &r->log, peak_rss_bytes, &report, error));
  dp_status status = cli_run_report_write(&report, &r->samples, r->unit_costs, &r->units.times, r->folder,
                                          !given(r, SLOT_NO_PLOTS), error);
  if (status == DP_OK) status = tell(r, &report, error);
  cli_run_report_free(&report);
  return status;
}

static dp_status work(run *r, dp_error *error) {
  DP_TRY(begin(r, error));
  if (given(r, SLOT_EVAL)) {
    DP_TRY(evaluate(r, error));
    return speaks(r) ? tell(r, NULL, error) : DP_OK;
  }
  DP_TRY(
      exec_agree(r->transport, speaks(r) ? report_folder_begin(&r->predicted->run, r->folder, error) : DP_OK, error));
  if (r->first >= r->steps && speaks(r))
    fprintf(stderr, "diffpipe: note: %s has %lld steps already, allowed: more by --steps\n", r->folder,
            (long long)r->first);
  int64_t peak_rss_bytes;
  DP_TRY(train(r, error));
  DP_TRY(cli_run_peak_rss(r->transport, &peak_rss_bytes, error));
  if (!speaks(r)) return DP_OK;
  cli_run_recorded recorded;
  DP_TRY(make_profile(r, &recorded, error)); /* the page has it */
  const dp_status status = report_run_of(r, peak_rss_bytes, error);
  if (status == DP_OK && !given(r, SLOT_JSON)) cli_run_profile_print(&recorded);
  cli_run_recorded_free(&recorded);
  return status;
}

/* Other processes do not wait for a search. */
static void advise(const run *r, const exec_shortage *shortage, dp_error *error) {
  if (shortage->needed_bytes == 0 || r->transport) return;
  fprintf(stderr, "diffpipe: note: looking for a plan that fits\n");
  cli_run_add_advice(r->scenario, r->efficiency, shortage, exec_device_cuda_count(), error);
}

static const char *algorithms_file(const run *r) {
  return given(r, SLOT_ALGORITHMS) ? r->values->slots[SLOT_ALGORITHMS].string : NULL;
}

static dp_status read_algorithms(run *r, dp_error *error) {
  return r->cuda ? cli_run_algorithms_read(r->folder, algorithms_file(r), &r->algorithms, error) : DP_OK;
}

static dp_status write_algorithms(run *r, dp_error *error) {
  dp_str notes = {0};
  if (!r->algorithms || !speaks(r)) return DP_OK;
  const dp_status status = cli_run_algorithms_write(r->algorithms, given(r, SLOT_EVAL) ? NULL : r->folder,
                                                    algorithms_file(r), &notes, error);
  if (status == DP_OK) cli_run_note_lines(&notes);
  dp_str_free(&notes);
  return status;
}

/* Makes the session and runs it; the lock is held meanwhile. */
static dp_status open_and_work(run *r, dp_error *error) {
  const report_run *predicted = &r->predicted->run;
  exec_shortage shortage = {0};
  r->how = (exec_session_options){
      .scenario = r->scenario,
      .sizes = r->sizes->sizes,
      .size_count = r->sizes->count,
      .transport = r->transport,
      .folder = r->folder,
      .steps = r->steps,
      .observer = r->cuda ? NULL : &r->units.observer,
      .cuda = r->cuda,
      .shortage = &shortage,
      .threads = given(r, SLOT_THREADS) ? (int)r->values->slots[SLOT_THREADS].integer : 0};
  const bool records = given(r, SLOT_PROFILE_STEPS) && !given(r, SLOT_EVAL);
  cli_run_record_init(predicted->program, records ? (size_t)r->values->slots[SLOT_PROFILE_STEPS].integer : 0,
                      &r->record);
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

static dp_status lock_and_work(run *r, dp_error *error) {
  int lock = -1;
  dp_status status = DP_OK;
  if (speaks(r) && !r->predicted->run.fits) status = cli_run_note_verdict(&r->predicted->run, error);
  if (status == DP_OK && speaks(r) && !given(r, SLOT_EVAL)) {
    status = dp_folder_make(r->folder, error);
    if (status == DP_OK) status = exec_run_lock(r->folder, &lock, error);
    if (status == DP_OK && given(r, SLOT_PROFILE_STEPS)) status = cli_run_record_clear(r->folder, error);
  }
  status = exec_agree(r->transport, status, error);
  if (status == DP_OK) status = open_and_work(r, error);
  exec_run_unlock(lock);
  return status;
}

/* ---- from the command line to a plan ---- */

static dp_status run_prediction(const cli_values *values, const cli_run_source *source, const plan_scenario *scenario,
                                const sim_efficiency *efficiency, const sim_prediction *prediction,
                                const cli_run_sizes *sizes, bool cuda, cli_processes *processes, dp_error *error) {
  cli_folder_view view;
  dp_arena arena = {0};
  cli_values as_read = *values; /* what the reports name: the scenario, with all assignments */
  const char *const argument = source->scenario;
  as_read.arguments = &argument;
  as_read.sets = source->sets;
  as_read.set_count = source->set_count;
  plan_unit_times unit_costs = {0};
  if (on_anomaly(values) == ANOMALY_DEGRADE)
    DP_TRY(cli_run_degrade_check(scenario, &prediction->plan, &prediction->graph,
                                 exec_process_count(processes->transport), cuda, error));
  DP_TRY(cli_run_note_differences(source, scenario, prediction, !cli_processes_speak(processes), error));
  const int64_t threads =
      values->slots[SLOT_THREADS].given ? values->slots[SLOT_THREADS].integer : scenario->train.threads;
  if (cli_processes_speak(processes)) DP_TRY(cli_run_note_profile(scenario, threads, error));
  if (cuda) cli_processes_note_transport(processes, &prediction->plan);
  DP_TRY(sim_unit_times(scenario, prediction, &unit_costs, error));
  dp_status status = cli_folder_view_of(scenario, efficiency, prediction, &as_read, &view, error);
  if (status != DP_OK) {
    plan_unit_times_free(&unit_costs);
    return status;
  }
  run r = {.values = values,
           .processes = processes,
           .transport = processes->transport,
           .scenario = scenario,
           .efficiency = efficiency,
           .cuda = cuda,
           .predicted = &view,
           .sizes = sizes,
           .unit_costs = &unit_costs,
           .steps = scenario->steps,
           .saved = -1};
  if (values->slots[SLOT_STEPS].given) r.steps = values->slots[SLOT_STEPS].integer;
  view.run.job_steps = r.steps;
  r.folder = values->slots[SLOT_OUT].given ? values->slots[SLOT_OUT].string
                                           : dp_arena_printf(&arena, "run-%s", scenario->name);
  status = r.folder ? cli_processes_ready(processes, &prediction->program, error) : dp_fail_memory(error);
  if (status == DP_OK) status = lock_and_work(&r, error);
  if (processes->agreed) status = cli_processes_end(processes, status, error);
  cli_folder_view_free(&view);
  plan_unit_times_free(&unit_costs);
  dp_arena_free(&arena);
  return status;
}

/* By itself: a cluster of processors, or an implementation for them, runs on processors; any other on CUDA devices
 * where this machine has one. What runs is predicted: the plan's memory is then the executor's. */
static dp_status choose_backend(const cli_values *values, bool speak, plan_scenario *scenario, bool *cuda,
                                dp_error *error) {
  const int64_t wanted = values->slots[SLOT_BACKEND].given ? values->slots[SLOT_BACKEND].integer : BACKEND_AUTO;
  dp_error why = DP_ERROR_INIT;
  *cuda = wanted == BACKEND_CUDA;
  if (wanted == BACKEND_CUDA) DP_TRY(exec_device_cuda_there(error));
  if (wanted == BACKEND_AUTO && strcmp(scenario->implementation, "cpu") != 0 &&
      !plan_device_is_processor(scenario->cluster.devices.items[0].model)) {
    *cuda = exec_device_cuda_there(&why) == DP_OK;
    if (!*cuda && speak) fprintf(stderr, "diffpipe: note: the workers run on processors: %s\n", why.text);
  }
  if (*cuda) scenario->implementation = "cuda";
  return DP_OK;
}

static dp_status run_scenario(const cli_values *values, const cli_run_source *source, plan_scenario *scenario,
                              cli_processes *processes, dp_error *error) {
  sim_efficiency *efficiency = NULL;
  sim_prediction prediction;
  bool cuda;
  DP_TRY(choose_backend(values, cli_processes_speak(processes), scenario, &cuda, error));
  if (values->slots[SLOT_TRUST_CACHE].given) scenario->data.trust_cache = true;
  DP_TRY(plan_scenario_find_training(scenario, error));
  DP_TRY(cli_efficiency_read(&efficiency, error));
  dp_status status = sim_predict(scenario, efficiency, &prediction, error);
  if (status == DP_OK) {
    cli_run_sizes sizes;
    status = cli_run_sizes_of(scenario, efficiency, &prediction, &sizes, error);
    if (status == DP_OK) {
      status = run_prediction(values, source, scenario, efficiency, &prediction, &sizes, cuda, processes, error);
      cli_run_sizes_free(&sizes);
    }
    sim_prediction_free(&prediction);
  }
  sim_efficiency_free(efficiency);
  return status;
}

static dp_status read_and_run(const cli_values *values, cli_processes *processes, dp_error *error) {
  if (values->slots[SLOT_OUT].given && !values->slots[SLOT_OUT].string[0])
    return dp_fail(error, DP_BAD_INPUT, "run: --out: found \"\", allowed: a folder");
  cli_run_source source;
  plan_scenario scenario;
  DP_TRY(cli_run_source_of(values, &source, error));
  dp_status status = plan_scenario_read(source.scenario, source.sets, source.set_count, &scenario, error);
  if (status == DP_OK) {
    status = run_scenario(values, &source, &scenario, processes, error);
    plan_scenario_free(&scenario);
  }
  cli_run_source_free(&source);
  return status;
}

static dp_status run_command(const cli_values *values, dp_error *error) {
  cli_processes processes;
  DP_TRY(cli_processes_begin(&processes, error));
  return cli_processes_end(&processes, read_and_run(values, &processes, error), error);
}

const cli_command cli_run = {
    .name = "run",
    .arguments = "PLAN|SCENARIO",
    .takes = "one, a plan or a scenario",
    .summary = "Train by a plan on this machine, and lay what was measured beside the prediction.",
    .help =
        "SCENARIO is a TOML file with [data]; PLAN the plan.json of a folder that simulate, tune or run wrote:\n"
        "its setup.json says of which scenario. The folder of a run gets log.jsonl (a line a step),\n"
        "checkpoints/, plan.json, setup.json, metrics.json, timeline.json, report.html, and at the end model/.\n"
        "\n"
        "Under mpirun or srun the workers are shared out among the processes, in equal runs.\n"
        "\n"
        "SIGINT and SIGTERM end the run after the step, with a checkpoint and exit status 0; --resume goes on\n"
        "with the same bits. SIGUSR1 saves and goes on. doc/training.md tells the rest.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run_command};
