#include <jansson.h>
#include <stdio.h>

#include "base/file.h"
#include "reports/json.h"
#include "reports/page.h"
#include "reports/plots.h"

static const char *join(dp_arena *arena, const char *folder, const char *name) {
  return dp_arena_printf(arena, "%s/%s", folder, name);
}

static dp_status write_plan(const report_run *run, const char *path, dp_error *error) {
  json_t *plan = plan_plan_json(run->program->plan, run->graph, run->cluster);
  if (!plan) return dp_fail_memory(error);
  const dp_status status = report_json_write(plan, path, error);
  json_decref(plan);
  return status;
}

typedef dp_status (*maker)(const report_run *run, void **json, dp_error *error);

static dp_status write_made(const report_run *run, maker make, const char *path, dp_error *error) {
  void *json = NULL;
  DP_TRY(make(run, &json, error));
  const dp_status status = report_json_write(json, path, error);
  json_decref(json);
  return status;
}

/* The search of an earlier run would lie about this plan. */
static dp_status write_tune(const json_t *tune, const char *path, dp_error *error) {
  if (tune) return report_json_write(tune, path, error);
  (void)remove(path);
  return DP_OK;
}

/* The page is made from the files, as `report` makes it; the plots, from the run itself, for the timeline is in no file
 * that is read back. */
static dp_status write_page(const report_run *run, const char *folder, const char *path, const report_options *options,
                            dp_str *notes, dp_error *error) {
  report_files files;
  DP_TRY(report_files_read(folder, &files, error));
  const report_plot_source source = {run, files.tune};
  dp_status status = report_plots_write(&source, folder, options->gnuplot, false, notes, error);
  dp_str page = {0};
  dp_output output;
  if (status == DP_OK) status = report_page_build(&files, folder, false, &page, error);
  if (status == DP_OK) status = dp_output_open(path, &output, error);
  if (status == DP_OK) {
    (void)fwrite(page.text, 1, page.length, output.stream); /* dp_output_commit looks at the stream's error flag */
    status = dp_output_commit(&output, error);
  }
  dp_str_free(&page);
  report_files_free(&files);
  return status;
}

static dp_status write_all(const report_run *run, const char *folder, const report_options *options, dp_arena *arena,
                           dp_str *notes, dp_error *error) {
  const char *plan = join(arena, folder, "plan.json"), *metrics = join(arena, folder, "metrics.json");
  const char *setup = join(arena, folder, "setup.json"), *tune = join(arena, folder, "tune.json");
  const char *timeline = join(arena, folder, "timeline.json"), *page = join(arena, folder, "report.html");
  const char *plots = join(arena, folder, "plots");
  if (!plan || !metrics || !setup || !tune || !timeline || !page || !plots) return dp_fail_memory(error);
  DP_TRY(dp_folder_make(plots, error));
  DP_TRY(write_plan(run, plan, error));
  DP_TRY(write_made(run, report_metrics_json, metrics, error));
  DP_TRY(write_made(run, report_setup_json, setup, error));
  DP_TRY(write_tune(options->tune, tune, error));
  DP_TRY(report_trace_write(run, timeline, error));
  DP_TRY(write_page(run, folder, page, options, notes, error));
  return notes->failed ? dp_fail_memory(error) : DP_OK;
}

dp_status report_folder_write(const report_run *run, const char *folder, const report_options *options, dp_str *notes,
                              dp_error *error) {
  dp_arena arena = {0};
  const dp_status status = write_all(run, folder, options, &arena, notes, error);
  dp_arena_free(&arena);
  return status;
}

dp_status report_check(const char *folder, dp_error *error) {
  report_files files;
  DP_TRY(report_files_read(folder, &files, error));
  report_files_free(&files);
  return DP_OK;
}

dp_status report_again(const char *folder, bool markdown, const char *gnuplot, dp_str *page, dp_str *notes,
                       dp_error *error) {
  report_files files;
  DP_TRY(report_files_read(folder, &files, error));
  const report_plot_source source = {&files.run, files.tune};
  dp_arena arena = {0};
  const char *plots = join(&arena, folder, "plots");
  dp_status status = plots ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK && gnuplot && !markdown) {
    /* a folder that cannot be written to has a page without the plots that it lacks */
    dp_error trouble = DP_ERROR_INIT;
    dp_status drawn = dp_folder_make(plots, &trouble);
    if (drawn == DP_OK) drawn = report_plots_write(&source, folder, gnuplot, true, notes, &trouble);
    if (drawn != DP_OK) dp_str_addf(notes, "some plots were not drawn: %s\n", trouble.text);
  }
  if (status == DP_OK) status = report_page_build(&files, folder, markdown, page, error);
  dp_arena_free(&arena);
  report_files_free(&files);
  return status;
}
