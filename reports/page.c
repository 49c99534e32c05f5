#define _POSIX_C_SOURCE 200809L
#include "reports/page.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "reports/plots.h"

const char *report_page_text(report_page *page, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = vsnprintf(NULL, 0, format, arguments);
  char *made = length < 0 ? NULL : dp_arena_alloc(&page->arena, (size_t)length + 1, 1);
  if (made) (void)vsnprintf(made, (size_t)length + 1, format, again);
  va_end(again);
  va_end(arguments);
  const char *clean = made ? report_text_clean(&page->arena, made) : NULL;
  if (!clean) page->failed = true;
  return clean ? clean : "";
}

const char *report_page_rate(report_page *page, double rate) {
  return report_page_text(page, "%.*f", rate < 10 ? 3 : rate < 100 ? 2 : rate < 1000 ? 1 : 0, rate);
}

bool report_page_plot(report_page *page, int plot) {
  const char *path = dp_arena_printf(&page->arena, "%s/%s.svg", page->folder, report_plots[plot].name);
  char *svg = NULL;
  size_t length = 0;
  dp_str markup = {0};
  if (!path) page->failed = true;
  if (!path || page->writer->markdown || access(path, R_OK) != 0) return false;
  if (dp_file_read(path, 1u << 28, &svg, &length, NULL) != DP_OK) return false;
  report_svg_inline(svg, &markup);
  if (markup.failed) page->failed = true;
  report_write_figure(page->writer, report_plots[plot].name, dp_str_text(&markup), report_plots[plot].caption,
                      report_plots[plot].wide);
  dp_str_free(&markup);
  free(svg);
  return true;
}

/* ---- the sections that every run has ---- */

static void timeline(report_page *page) {
  const bool drawn = report_page_plot(page, REPORT_PLOT_TIMELINE);
  if (!drawn && !page->writer->markdown)
    report_write_text(page->writer, "note",
                      "The timeline is not drawn here: timeline.json opens in Perfetto, and plots/timeline.gp draws it "
                      "where gnuplot is installed.");
  report_write_table(page->writer, &page->tables.tables[REPORT_TABLE_BOUNDS]);
  report_write_table(page->writer, &page->tables.tables[REPORT_TABLE_TIME]);
}

static void memory(report_page *page) {
  (void)report_page_plot(page, REPORT_PLOT_MEMORY);
  report_write_table(page->writer, &page->tables.tables[REPORT_TABLE_MEMORY]);
}

static void details(report_page *page) {
  report_write_table(page->writer, &page->tables.tables[REPORT_TABLE_RUN]);
  report_write_table(page->writer, &page->tables.tables[REPORT_TABLE_RESULT]);
}

static bool always(const report_files *files) {
  (void)files;
  return true;
}

static const dp_node *studies(const report_files *files, const char *name) {
  return report_node_list(dp_node_get(files->tune, "studies"), name);
}
static bool has_remedies(const report_files *files) { return report_node_list(files->tune, "remedies") != NULL; }
static bool has_comparison(const report_files *files) { return files->comparison != NULL; }
static bool has_log(const report_files *files) { return report_files_log(files) != NULL; }
static bool has_profile(const report_files *files) { return files->profile != NULL; }
static bool has_front(const report_files *files) { return report_node_list(files->tune, "front") != NULL; }
static bool has_points(const report_files *files) { return studies(files, "devices") || studies(files, "batch"); }
static bool has_k(const report_files *files) { return studies(files, "k") != NULL; }
static bool has_lost(const report_files *files) { return report_node_list(files->tune, "rejected") != NULL; }
static bool has_baselines(const report_files *files) { return report_node_list(files->tune, "baselines") != NULL; }
static bool has_assumptions(const report_files *files) { return files->run.assumption_count > 0; }

static const struct {
  const char *id, *title;
  bool (*wanted)(const report_files *files);
  void (*write)(report_page *page);
} sections[] = {
    {"changes", "What would fit", has_remedies, report_page_remedies},
    {"predicted-and-measured", "Predicted and measured", has_comparison, report_page_compared},
    {"training", "Training", has_log, report_page_training},
    {"plan", "The plan on the cluster", always, report_page_plan},
    {"time", "Timeline", always, timeline},
    {"profile", "Where the last steps went", has_profile, report_page_profile},
    {"memory-by-class", "Memory", always, memory},
    {"other-plans", "Other good plans", has_front, report_page_front},
    {"scaling", "Scaling", has_points, report_page_scaling},
    {"lossy-skips", "Lossy skips", has_k, report_page_k},
    {"lost", "Why not another plan", has_lost, report_page_lost},
    {"other-planners", "Other planners", has_baselines, report_page_baselines},
    {"run", "The run in full", always, details},
    {"assumptions", "Assumptions", has_assumptions, report_page_assumptions},
};
enum { SECTION_COUNT = sizeof sections / sizeof sections[0] };

static void contents(report_page *page) {
  const char *ids[SECTION_COUNT][2];
  int count = 0;
  for (int s = 0; s < SECTION_COUNT; s++) {
    if (!sections[s].wanted(page->files)) continue;
    ids[count][0] = sections[s].id;
    ids[count++][1] = sections[s].title;
  }
  report_write_contents(page->writer, (const char *const(*)[2])ids, count);
}

dp_status report_page_build(const report_files *files, const char *folder, bool markdown, dp_str *out,
                            dp_error *error) {
  report_writer writer = {.markdown = markdown, .out = out};
  report_page page = {.files = files, .folder = folder, .writer = &writer};
  DP_TRY(report_tables_build(&files->run, &page.tables, error));
  report_page_answer(&page);
  contents(&page);
  for (int s = 0; s < SECTION_COUNT; s++) {
    if (!sections[s].wanted(files)) continue;
    report_write_section(&writer, sections[s].id, sections[s].title);
    sections[s].write(&page);
  }
  report_write_end(&writer);
  const bool failed = page.failed || out->failed;
  report_tables_free(&page.tables);
  dp_arena_free(&page.arena);
  return failed ? dp_fail_memory(error) : DP_OK;
}
