/* What a run leaves in its folder beside log and checkpoints, and what it prints: predicted beside measured. */
#ifndef DP_CLI_RUN_REPORT_H
#define DP_CLI_RUN_REPORT_H

#include "cli/folder.h"
#include "cli/run_log.h"
#include "plan/samples.h"

/* Steps of which the timelines are kept: the run is reported by the one of median duration. */
enum { CLI_RUN_STEPS_KEPT = 15 };

/* A run as it is reported. `predicted` is the caller's view; all else is made here. */
typedef struct cli_run_report {
  const cli_folder_view *predicted;
  report_run measured;
  plan_timeline timeline;
  plan_metrics metrics;
  plan_step_spread spread;
  report_bound bounds[REPORT_MAX_BOUNDS];
  report_skip *skips;     /* malloc'ed; names are the log's */
  plan_memory memory;     /* what the workers have allocated, and in equal parts what is there beside it */
  int64_t peak_rss_bytes; /* of all processes */
  int64_t device_bytes;   /* taken of the memory of CUDA devices; 0: there are none */
} cli_run_report;

/* The most that the processes had in memory, together; on process 0. */
dp_status cli_run_peak_rss(exec_transport *transport, int64_t *bytes, dp_error *error);
/* From the steps that were kept; at least one. The log and the session's pipeline outlive the report. pipeline NULL: it
 * is gone, and the memory that is reported is the predicted one. */
dp_status cli_run_report_make(const cli_folder_view *predicted, const plan_timeline_samples *samples,
                              const exec_pipeline *pipeline, const cli_run_log *log, int64_t peak_rss_bytes,
                              cli_run_report *report, dp_error *error);
void cli_run_report_free(cli_run_report *report);

/* The folder's report; says so on stderr. Times of units: predicted, and measured of some. */
dp_status cli_run_report_write(const cli_run_report *report, const plan_timeline_samples *samples,
                               const plan_unit_times *unit_costs, const plan_unit_times *unit_times, const char *folder,
                               bool plots, dp_error *error);

/* What is printed of a run. report NULL: no step was measured. */
typedef struct cli_run_told {
  const char *name, *folder; /* folder NULL: none was written */
  const char *checkpoint;    /* "": none */
  int64_t first_step, steps; /* steps done before this command, and in all */
  bool interrupted;
  const cli_run_log *log;
  const cli_folder_view *predicted;
  const cli_run_report *report;
} cli_run_told;
dp_status cli_run_print_json(const cli_run_told *told, dp_error *error);
dp_status cli_run_print_text(const cli_run_told *told, dp_error *error);

#endif
