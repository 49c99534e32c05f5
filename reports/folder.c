#include <jansson.h>
#include <stdio.h>

#include "base/file.h"
#include "reports/json.h"
#include "reports/page.h"
#include "reports/plots.h"

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

static dp_status path_of(writing *w, const char *name, const char **path) {
  *path = dp_arena_printf(&w->arena, "%s/%s", w->folder, name);
  return *path ? DP_OK : dp_fail_memory(w->error);
}

static dp_status make_folder(writing *w, const char *name) {
  const char *path;
  DP_TRY(path_of(w, name, &path));
  return dp_folder_make(path, w->error);
}

static dp_status plan_json(const report_run *run, void **json, dp_error *error) {
  *json = plan_plan_json(run->program->plan, run->graph, run->cluster);
  return *json ? DP_OK : dp_fail_memory(error);
}

typedef dp_status (*maker)(const report_run *run, void **json, dp_error *error);

static dp_status write_made(writing *w, const report_run *run, maker make, const char *name) {
  const char *path;
  void *json = NULL;
  DP_TRY(path_of(w, name, &path));
  DP_TRY(make(run, &json, w->error));
  const dp_status status = report_json_write(json, path, w->error);
  json_decref(json);
  return status;
}

/* What an earlier run left would lie about this one. */
static dp_status write_or_remove(writing *w, const json_t *json, const char *name) {
  const char *path;
  DP_TRY(path_of(w, name, &path));
  if (json) return report_json_write(json, path, w->error);
  (void)remove(path);
  return DP_OK;
}

static dp_status write_trace(writing *w, const report_run *run, const report_run *predicted, const char *name) {
  const char *path;
  DP_TRY(path_of(w, name, &path));
  return report_trace_write(run, predicted, path, w->error);
}

/* The page is made from the files, as `report` makes it; the plots, from the run itself, for the timeline is in no file
 * that is read back. */
static dp_status write_page(writing *w, const char *name) {
  const char *path;
  report_files files;
  DP_TRY(path_of(w, name, &path));
  DP_TRY(report_files_read(w->folder, &files, w->error));
  const report_plot_source source = {
      .run = w->run, .tune = files.tune, .predicted = w->predicted, .log = report_files_log(&files)};
  dp_status status = report_plots_write(&source, w->folder, w->options->gnuplot, false, w->notes, w->error);
  dp_str page = {0};
  if (status == DP_OK) status = report_page_build(&files, w->folder, false, &page, w->error);
  if (status == DP_OK) status = dp_file_write(path, page.text, page.length, w->error);
  dp_str_free(&page);
  report_files_free(&files);
  return status;
}

static dp_status write_prediction(writing *w) {
  if (!w->predicted) {
    DP_TRY(write_or_remove(w, NULL, "predicted/metrics.json"));
    DP_TRY(write_or_remove(w, NULL, "predicted/timeline.json"));
    return write_or_remove(w, NULL, "predicted");
  }
  DP_TRY(make_folder(w, "predicted"));
  DP_TRY(write_made(w, w->predicted, report_metrics_json, "predicted/metrics.json"));
  return write_trace(w, w->predicted, NULL, "predicted/timeline.json");
}

/* What makes the run again. */
static dp_status write_start(writing *w) {
  DP_TRY(write_made(w, w->run, report_setup_json, "setup.json"));
  return write_made(w, w->run, plan_json, "plan.json");
}

static dp_status write_all(writing *w) {
  DP_TRY(make_folder(w, "plots"));
  DP_TRY(write_start(w));
  DP_TRY(write_made(w, w->run, report_metrics_json, "metrics.json"));
  DP_TRY(write_or_remove(w, w->options->tune, "tune.json"));
  DP_TRY(write_prediction(w));
  DP_TRY(write_or_remove(w, w->comparison, "comparison.json"));
  DP_TRY(write_trace(w, w->run, w->predicted, "timeline.json"));
  DP_TRY(write_page(w, "report.html"));
  return w->notes->failed ? dp_fail_memory(w->error) : DP_OK;
}

dp_status report_folder_begin(const report_run *run, const char *folder, dp_error *error) {
  writing w = {.run = run, .folder = folder, .error = error};
  const dp_status status = write_start(&w);
  dp_arena_free(&w.arena);
  return status;
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
  dp_str plots = {0};
  dp_str_addf(&plots, "%s/plots", folder);
  dp_status status = plots.failed ? dp_fail_memory(error) : DP_OK;
  if (status == DP_OK && gnuplot && !markdown) {
    /* a folder that cannot be written to has a page without the plots that it lacks */
    dp_error trouble = DP_ERROR_INIT;
    dp_status drawn = dp_folder_make(dp_str_text(&plots), &trouble);
    if (drawn == DP_OK) drawn = report_plots_write(&source, folder, gnuplot, true, notes, &trouble);
    if (drawn != DP_OK) dp_str_addf(notes, "some plots were not drawn: %s\n", trouble.text);
  }
  if (status == DP_OK) status = report_page_build(&files, folder, markdown, page, error);
  dp_str_free(&plots);
  report_files_free(&files);
  return status;
}
