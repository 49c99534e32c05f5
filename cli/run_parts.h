/* What the files of `diffpipe run` share: the command in run.c, around the steps run_work.c, the steps run_train.c. What
 * is apart has headers of its own: run_plan.h, run_processes.h, run_log.h, run_report.h and so on. */
#ifndef DP_CLI_RUN_PARTS_H
#define DP_CLI_RUN_PARTS_H

#include "cli/folder.h"
#include "cli/run_degrade.h"
#include "cli/run_plan.h"
#include "cli/run_processes.h"
#include "cli/run_record.h"
#include "cli/run_units.h"
#include "exec/algorithms.h"
#include "plan/samples.h"
#include "sim/unit_times.h"

/* What to do when the run slows down. */
typedef enum cli_run_anomaly { CLI_RUN_ALARM, CLI_RUN_ADVISE, CLI_RUN_DEGRADE, CLI_RUN_OFF } cli_run_anomaly;

/* The first part is set by who makes it; what follows `saved` begins as zeros. */
typedef struct cli_run_job {
  /* of the command line */
  bool resume, evaluates, json, plots;
  const char *algorithms_file; /* NULL: none is given */
  int threads;                 /* of each worker; 0: the scenario says */
  size_t profile_steps;        /* to be recorded; 0: none */
  cli_run_anomaly on_anomaly;
  const plan_scenario *scenario;
  const sim_efficiency *efficiency;
  const cli_folder_view *predicted;  /* of the model's own size */
  const plan_unit_times *unit_costs; /* as predicted */
  const cli_run_sizes *sizes;
  cli_processes *processes;
  exec_transport *transport; /* theirs; NULL: one process */
  bool cuda;                 /* on CUDA devices */
  const char *folder;
  int64_t steps; /* to be done in all */
  int64_t saved; /* steps done at the last checkpoint of this command; -1: none yet */
  int64_t first; /* done when this command began */
  bool interrupted;
  exec_session *session;
  exec_algorithms *algorithms; /* NULL: not on CUDA devices */
  cli_run_log log;
  plan_timeline_samples samples;
  cli_run_units units;
  cli_run_monitor monitor;
  cli_run_degrade degrade;
  cli_run_record record;    /* of --profile-steps */
  exec_session_options how; /* the session */
  dp_progress bar;
} cli_run_job;

/* Only process 0 talks and writes what there is one of. */
static inline bool cli_run_speaks(const cli_run_job *r) { return cli_processes_speak(r->processes); }

/* ---- run_work.c ---- */

/* Makes the session and its folder, runs it, and tells what came of it. */
dp_status cli_run_work(cli_run_job *run, dp_error *error);

/* ---- run_train.c: all processes call these ---- */

/* A line of log.jsonl that is no step: what happened, and the file that it is about, or NULL. */
dp_status cli_run_note_event(cli_run_job *run, const char *event, const char *path, dp_error *error);
dp_status cli_run_evaluate(cli_run_job *run, dp_error *error);
/* Up to the last step or until somebody wants it to end; then the last checkpoint and what is exported. */
dp_status cli_run_train(cli_run_job *run, dp_error *error);

#endif
