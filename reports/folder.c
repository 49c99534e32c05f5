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

/* What an earlier run left would lie about this one. */
static dp_status write_or_remove(const json_t *json, const char *path, dp_error *error) {
  if (json) return report_json_write(json, path, error);
  (void)remove(path);
  return DP_OK;
}

/* Of the run alone, or of the run beside its prediction. */
typedef struct writing {
  const report_run *run, *predicted; /* predicted: NULL where there is nothing to compare */
  const json_t *comparison;
  const char *folder;
  const report_options *options;
  dp_arena arena;
  dp_str *notes;
  dp_error *error;
} writing;

/* The page is made from the files, as `report` makes it; the plots, from the run itself, for the timeline is in no file
 * that is read back. */
static dp_status write_page(const writing *w, const char *path) {
  report_files files;
  DP_TRY(report_files_read(w->folder, &files, w->error));
  const report_plot_source source = {
      .run = w->run, .tune = files.tune, .predicted = w->predicted, .log = report_files_log(&files)};
  dp_status status = report_plots_write(&source, w->folder, w->options->gnuplot, false, w->notes, w->error);
  dp_str page = {0};
  dp_output output;
  if (status == DP_OK) status = report_page_build(&files, w->folder, false, &page, w->error);
  if (status == DP_OK) status = dp_output_open(path, &output, w->error);
  if (status == DP_OK) {
    (void)fwrite(page.text, 1, page.length, output.stream); /* dp_output_commit looks at the stream's error flag */
    status = dp_output_commit(&output, w->error);
  }
  dp_str_free(&page);
  report_files_free(&files);
  return status;
}

static dp_status write_prediction(writing *w) {
  const char *folder = join(&w->arena, w->folder, "predicted");
  const char *metrics = folder ? join(&w->arena, folder, "metrics.json") : NULL;
  const char *timeline = folder ? join(&w->arena, folder, "timeline.json") : NULL;
  if (!metrics || !timeline) return dp_fail_memory(w->error);
  if (!w->predicted) {
    (void)remove(metrics);
    (void)remove(timeline);
    (void)remove(folder);
    return DP_OK;
  }
  DP_TRY(dp_folder_make(folder, w->error));
  DP_TRY(write_made(w->predicted, report_metrics_json, metrics, w->error));
  return report_trace_write(w->predicted, timeline, w->error);
}

static dp_status write_all(writing *w) {
  const char *folder = w->folder;
  const char *plan = join(&w->arena, folder, "plan.json"), *metrics = join(&w->arena, folder, "metrics.json");
  const char *setup = join(&w->arena, folder, "setup.json"), *tune = join(&w->arena, folder, "tune.json");
  const char *timeline = join(&w->arena, folder, "timeline.json"), *page = join(&w->arena, folder, "report.html");
  const char *plots = join(&w->arena, folder, "plots"), *comparison = join(&w->arena, folder, "comparison.json");
  if (!plan || !metrics || !setup || !tune || !timeline || !page || !plots || !comparison)
    return dp_fail_memory(w->error);
  DP_TRY(dp_folder_make(plots, w->error));
  DP_TRY(write_plan(w->run, plan, w->error));
  DP_TRY(write_made(w->run, report_metrics_json, metrics, w->error));
  DP_TRY(write_made(w->run, report_setup_json, setup, w->error));
  DP_TRY(write_or_remove(w->options->tune, tune, w->error));
  DP_TRY(write_prediction(w));
  DP_TRY(write_or_remove(w->comparison, comparison, w->error));
  DP_TRY(report_trace_pair_write(w->run, w->predicted, timeline, w->error));
  DP_TRY(write_page(w, page));
  return w->notes->failed ? dp_fail_memory(w->error) : DP_OK;
}

dp_status report_folder_write(const report_run *run, const char *folder, const report_options *options, dp_str *notes,
                              dp_error *error) {
  writing w = {.run = run, .folder = folder, .options = options, .notes = notes, .error = error};
  const dp_status status = write_all(&w);
  dp_arena_free(&w.arena);
  return status;
}

dp_status report_run_folder_write(const report_pair *pair, const char *folder, const report_options *options,
                                  dp_str *notes, dp_error *error) {
  void *comparison = NULL;
  DP_TRY(report_comparison_json(pair, &comparison, error));
  writing w = {.run = pair->measured,
               .predicted = pair->predicted,
               .comparison = comparison,
               .folder = folder,
               .options = options,
               .notes = notes,
               .error = error};
  const dp_status status = write_all(&w);
  dp_arena_free(&w.arena);
  json_decref(comparison);
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
  const report_plot_source source = {.run = &files.run,
                                     .tune = files.tune,
                                     .predicted = report_files_predicted(&files),
                                     .log = report_files_log(&files)};
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
