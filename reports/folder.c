#include <jansson.h>

#include "base/file.h"
#include "reports/html.h"
#include "reports/plots.h"
#include "reports/report.h"

static const char *join(dp_arena *arena, const char *folder, const char *name) {
  return dp_arena_printf(arena, "%s/%s", folder, name);
}

static dp_status write_json(const json_t *json, const char *path, dp_error *error) {
  dp_output output;
  DP_TRY(dp_output_open(path, &output, error));
  const int failed = json_dumpf(json, output.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
  (void)fputs("\n", output.stream);
  if (!failed) return dp_output_commit(&output, error);
  dp_output_abandon(&output);
  return dp_fail(error, DP_IO_FAILED, "%s: cannot be written", path);
}

static dp_status write_plan(const report_run *run, const char *path, dp_error *error) {
  json_t *plan = plan_plan_json(run->program->plan, run->graph, run->cluster);
  if (!plan) return dp_fail_memory(error);
  const dp_status status = write_json(plan, path, error);
  json_decref(plan);
  return status;
}

static dp_status write_metrics(const report_run *run, const char *path, dp_error *error) {
  void *metrics = NULL;
  DP_TRY(report_metrics_json(run, &metrics, error));
  const dp_status status = write_json(metrics, path, error);
  json_decref(metrics);
  return status;
}

static dp_status write_all(const report_run *run, const char *folder, const report_options *options, dp_arena *arena,
                           dp_str *notes, dp_error *error) {
  const char *plan = join(arena, folder, "plan.json"), *metrics = join(arena, folder, "metrics.json");
  const char *timeline = join(arena, folder, "timeline.json"), *page = join(arena, folder, "report.html");
  const char *plots = join(arena, folder, "plots");
  bool drawn = false;
  if (!plan || !metrics || !timeline || !page || !plots) return dp_fail_memory(error);
  DP_TRY(dp_folder_make(plots, error));
  DP_TRY(write_plan(run, plan, error));
  DP_TRY(write_metrics(run, metrics, error));
  DP_TRY(report_trace_write(run, timeline, error));
  DP_TRY(report_plots_write(run, folder, options, notes, &drawn, error));
  DP_TRY(report_html_write(run, drawn ? folder : NULL, page, error));
  return notes->failed ? dp_fail_memory(error) : DP_OK;
}

dp_status report_folder_write(const report_run *run, const char *folder, const report_options *options, dp_str *notes,
                              dp_error *error) {
  dp_arena arena = {0};
  const dp_status status = write_all(run, folder, options, &arena, notes, error);
  dp_arena_free(&arena);
  return status;
}
