/* Reports: what a run (predicted or measured) tells, as a table, as JSON, as a trace, as plots and as a page.
 *
 * reports/ knows plan/ and what lies below, not who made the run: the simulator's and the executor's results both come
 * here as a report_run, a view that borrows everything. Nothing here decides or estimates; figures are printed as
 * given. GB is 1e9 bytes in all that is written for people, and every table says so.
 */
#ifndef DP_REPORTS_REPORT_H
#define DP_REPORTS_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"
#include "plan/cluster.h"
#include "plan/memory.h"
#include "plan/samples.h"
#include "plan/timeline.h"
#include "plan/unit_times.h"

/* What bounds the step, largest first. */
typedef struct report_bound {
  const char *name;
  double share; /* of workers * step_s; all shares sum to 1 */
} report_bound;

/* What a prediction rests on. */
typedef struct report_assumption {
  const char *what, *value, *source; /* as the catalogue states it */
  double error_band;                 /* relative, one sigma, of what rests on it; 0: none is known */
} report_assumption;

/* What a compressed skip lost, last measured. */
typedef struct report_skip {
  const char *name; /* "TENSOR to UNIT" */
  double psnr_db;
} report_skip;

/* All pointers are borrowed and mandatory unless said otherwise; program->plan is the plan. */
typedef struct report_run {
  const char *name;               /* the scenario's */
  const char *origin;             /* "predicted" or "measured" */
  const char *scenario_file;      /* as the user named it; NULL: unknown */
  const char *const *assignments; /* what --set gave, "task.global_batch=64" */
  int assignment_count;
  const graph *graph;
  const plan_cluster *cluster;
  const plan_program *program;
  const plan_timeline *timeline;
  const plan_metrics *metrics;
  const plan_memory *memory;
  const int64_t *memory_limit_bytes; /* [worker] */
  bool fits;
  int tightest_worker;
  const report_bound *bounds; /* may be NULL when bound_count is 0 */
  int bound_count;
  double error_band;                    /* relative, of step_s; 0: none is claimed */
  double usd_per_million_samples;       /* 0: unknown */
  double joules_per_sample;             /* 0: unknown */
  int64_t job_steps;                    /* training steps of the whole job; 0: unknown */
  const report_assumption *assumptions; /* may be NULL when assumption_count is 0 */
  int assumption_count;
  const report_skip *skips; /* measured: compressed skips; may be NULL when skip_count is 0 */
  int skip_count;
  const plan_step_spread *steps; /* measured: of the steps that `timeline` is the median of; NULL: it is the only one */
} report_run;

/* A measured run beside its prediction; both are of one program, graph and cluster. */
typedef struct report_pair {
  const report_run *predicted, *measured;
  const plan_timeline_samples *samples;                    /* of the measured program; NULL: measured->timeline alone */
  const plan_unit_times *predicted_units, *measured_units; /* NULL: units are not compared */
} report_pair;

/* What bounds a measured step, from its metrics alone: at most REPORT_MAX_BOUNDS, the largest first. */
enum { REPORT_MAX_BOUNDS = 6 };
void report_bounds_of(const plan_metrics *metrics, report_bound bounds[REPORT_MAX_BOUNDS], int *count);

/* The summary for a terminal: at most REPORT_WIDTH columns, UTF-8. More than REPORT_MAX_ROWS workers are summarised. */
enum { REPORT_WIDTH = 100, REPORT_MAX_ROWS = 16 };
dp_status report_summary(const report_run *run, dp_str *out, dp_error *error);

/* "fits: worker 3 (node0/gpu3) is tightest, ..." or "DOES NOT FIT: ..." */
void report_verdict(const report_run *run, dp_str *out);

/* "2 of 8 devices are idle: node0/gpu6, node0/gpu7" appended to `out`; nothing when all work. */
void report_idle_devices(const report_run *run, dp_str *out);

/* metrics.json and `--json`: a new json_t * (typed void so that this header stays light). See doc/formats.md. */
dp_status report_metrics_json(const report_run *run, void **json, dp_error *error);

/* comparison.json: a new json_t *. See doc/reports.md. DP_BAD_INPUT: the two are of different programs. */
dp_status report_comparison_json(const report_pair *pair, void **json, dp_error *error);

/* setup.json: model, job, cluster, what each chunk holds, what travels between workers and over links, assumptions. */
dp_status report_setup_json(const report_run *run, void **json, dp_error *error);

/* timeline.json: Chrome trace event format, written as it goes. A process a worker, a thread a lane, a complete event
 * an instruction, a flow from every SEND to its RECV. Times are rounded to ns, starts and ends alike, so that spans
 * that touch still touch and none overlap. Where `predicted` is not NULL, both runs are in the file under processes of
 * their own; a worker's two stand together, the prediction first. */
dp_status report_trace_write(const report_run *run, const report_run *predicted, const char *path, dp_error *error);

typedef struct report_options {
  const char *gnuplot; /* program, searched in PATH when it has no slash; NULL: no plots */
  const void *tune;    /* json_t *: tune.json, the search that found the plan; NULL: there was none */
} report_options;

/* Writes the folder of a run, which is made when missing:
 *   plan.json metrics.json setup.json timeline.json report.html, and tune.json where there was a search
 *   NAME.{svg,png}          of every plot, by gnuplot
 *   plots/NAME.{gp,tsv}     what they were drawn from: `gnuplot NAME.gp` draws them again
 * Each file is written beside and renamed. When gnuplot cannot be run, everything else is written, and `notes` (which
 * may not be NULL) gets a line that says so. */
dp_status report_folder_write(const report_run *run, const char *folder, const report_options *options, dp_str *notes,
                              dp_error *error);

/* The same for a measured run beside its prediction, `folder` being the run's:
 *   plan.json metrics.json setup.json timeline.json report.html   the measured run's; timeline.json has both
 *   predicted/metrics.json predicted/timeline.json                the prediction's
 *   comparison.json                                               where they differ, and why
 * What else is in the folder stays; log.jsonl, if there is one, is drawn. DP_BAD_INPUT: the two are of different
 * programs. */
dp_status report_run_folder_write(const report_pair *pair, const char *folder, const report_options *options,
                                  dp_str *notes, dp_error *error);

/* plan.json and setup.json alone, into a folder that is there: before a run, so that it can be made again whatever
 * happens. */
dp_status report_folder_begin(const report_run *run, const char *folder, dp_error *error);

/* What a run's folder says of predicted and measured, for a terminal, at most `top` units; and the file as it is, a new
 * json_t *. DP_BAD_INPUT: it has no comparison. */
dp_status report_compare_text(const char *folder, int top, dp_str *out, dp_error *error);
dp_status report_compare_json(const char *folder, void **json, dp_error *error);

/* Two folders, of runs or predictions, side by side: their metrics. As text, and as a new json_t *. */
dp_status report_compare_runs_text(const char *a, const char *b, dp_str *out, dp_error *error);
dp_status report_compare_runs_json(const char *a, const char *b, void **json, dp_error *error);

/* Whether a page can be made of a folder's JSON files: reads them. DP_BAD_INPUT names file and line. */
dp_status report_check(const char *folder, dp_error *error);

/* Makes the page of a folder again from its JSON files: HTML, or Markdown. Plots that the folder lacks are drawn into
 * it first (gnuplot NULL: they are not), but for the timeline, whose instructions are not read back. */
dp_status report_again(const char *folder, bool markdown, const char *gnuplot, dp_str *page, dp_str *notes,
                       dp_error *error);

/* The losses of two runs, from their folders' log.jsonl, in one plot: FOLDER/losses.{svg,png} and what it was drawn from.
 * gnuplot as in report_options; one that is missing or fails is a line of `notes`. */
dp_status report_losses_write(const char *first, const char *second, const char *folder, const char *gnuplot,
                              dp_str *notes, dp_error *error);

#endif
