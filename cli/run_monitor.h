/* The live monitor of a run: what profiler/monitor.h says of its steps, told in three ways: a line on stderr, an object
 * in log.jsonl, and monitor.hook.
 *
 * The object: {"step", "event", "subject", "name", "line", ...}. event: "alarm" or "recovered", with "since", "now_s",
 * "mean_s", "median_s", "z_score" (null: without bound), of a link "worker" and "peer", of a stage "worker"; "drift",
 * with "since", "stage", "chunk", "pass", "measured_s", "predicted_s", "first_ratio", "op_class", "class_ratio" (null:
 * not known). doc/monitor.md lists them all.
 */
#ifndef DP_CLI_RUN_MONITOR_H
#define DP_CLI_RUN_MONITOR_H

#include "base/progress.h"
#include "cli/run_hook.h"
#include "cli/run_log.h"
#include "profiler/monitor.h"

typedef struct cli_run_monitor {
  prof_monitor monitor; /* of the program that the run began with; program NULL: nothing is watched */
  prof_event *events;   /* of the last step */
  uint32_t event_count;
  int cold; /* steps that are not judged any more */
  cli_run_hook hook;
  cli_run_log *log;
  dp_progress *bar; /* cleared before a line */
  bool quiet;       /* of a process that does not speak: nothing is told */
} cli_run_monitor;

/* Log and bar are the run's; program and rule must outlive the monitor. */
dp_status cli_run_monitor_init(const plan_program *program, const plan_monitor *rule, const plan_timeline *predicted,
                               cli_run_log *log, dp_progress *bar, cli_run_monitor *monitor, dp_error *error);
void cli_run_monitor_free(cli_run_monitor *monitor); /* a zeroed one is fine */

/* Judges a step, as prof_monitor_step, and tells of it; `events` say the same. recorded: CUPTI was on, which disturbs it
 * as timing its ops does. ops: as prof_monitor_ops has them, where the step's ops were timed; NULL: they were not. */
dp_status cli_run_monitor_step(cli_run_monitor *monitor, int64_t step, double step_s, const plan_timeline *timeline,
                               bool recorded, const double *ops, dp_error *error);
/* What lasts is taken to be over; the next steps, in which caches are filled and CUDA's instructions recorded, are not
 * judged: so it begins. */
enum { CLI_RUN_COLD_STEPS = 3 };
void cli_run_monitor_begin_again(cli_run_monitor *monitor);
/* Tells of something else: takes the object, which has "step", "event" and "line"; NULL: no memory. */
dp_status cli_run_monitor_tell(cli_run_monitor *monitor, json_t *row, dp_error *error);

#endif
