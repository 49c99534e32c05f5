/* What a search found besides the best plan, and what all of it rests on. */
#include <string.h>

#include "reports/page.h"
#include "reports/plots.h"

static const dp_node *study(const report_page *page, const char *name) {
  return report_node_list(dp_node_get(page->files->tune, "studies"), name);
}

static const char *plan_of(const dp_node *row) {
  const char *text = report_node_text(row, "text");
  return text ? text : "";
}

static void finish(report_page *page, report_table *table) {
  if (table->failed) page->failed = true;
  report_write_table(page->writer, table);
  report_table_free(table);
}

/* "–" for what is unknown */
static void money_cell(report_table *table, const dp_node *row, const char *key) {
  const double value = report_node_real(row, key);
  if (value > 0)
    report_table_cell(table, "%.2f", value);
  else
    report_table_cell(table, "–");
}

static void plan_columns(report_table *table) {
  report_table_column(table, "samples/s", REPORT_RIGHT);
  report_table_column(table, "step", REPORT_RIGHT);
  report_table_column(table, "GB", REPORT_RIGHT);
  report_table_column(table, "USD/M", REPORT_RIGHT);
  report_table_column(table, "J", REPORT_RIGHT);
  report_table_column(table, "bubble", REPORT_RIGHT);
  report_table_column(table, "plan", REPORT_TEXT);
}

static void rate_cell(report_page *page, report_table *table, const dp_node *row) {
  report_table_cell(table, "%s", report_page_rate(page, report_node_real(row, "throughput_samples_per_s")));
}

static void plan_cells(report_page *page, report_table *table, const dp_node *row) {
  char step[32];
  rate_cell(page, table, row);
  report_table_cell(table, "%s", dp_format_seconds(report_node_real(row, "step_s"), step));
  report_table_cell(table, "%.1f", report_node_real(row, "peak_memory_bytes") / 1e9);
  money_cell(table, row, "usd_per_million_samples");
  money_cell(table, row, "joules_per_sample");
  report_table_cell(table, "%.1f %%", 100 * report_node_real(row, "bubble_ratio"));
  report_table_cell(table, "%s", plan_of(row));
}

/* ---- what would fit ---- */

void report_page_remedies(report_page *page) {
  const dp_node *list = report_node_list(page->files->tune, "remedies");
  report_table table = {0};
  report_write_text(page->writer, NULL,
                    "Each change alone, the smallest first; throughput is the least to expect, from a narrow search.");
  report_table_column(&table, "change", REPORT_TEXT);
  report_table_column(&table, "how", REPORT_LEFT);
  report_table_column(&table, "samples/s", REPORT_RIGHT);
  report_table_column(&table, "GB", REPORT_RIGHT);
  report_table_column(&table, "plan", REPORT_TEXT);
  for (size_t i = 0; list && i < list->count; i++) {
    const dp_node *row = list->items[i];
    const char *what = report_node_text(row, "what"), *how = report_node_text(row, "how");
    report_table_row(&table, false);
    report_table_cell(&table, "%s", what ? what : "");
    report_table_cell(&table, "%s", how ? how : "hardware");
    rate_cell(page, &table, row);
    report_table_cell(&table, "%.1f", report_node_real(row, "peak_memory_bytes") / 1e9);
    report_table_cell(&table, "%s", plan_of(row));
  }
  finish(page, &table);
}

/* ---- the front ---- */

void report_page_front(report_page *page) {
  const dp_node *front = report_node_list(page->files->tune, "front");
  report_table table = {0};
  report_write_text(page->writer, NULL,
                    "Plans that no other one beats in throughput, memory of the fullest worker (GB) and cost (USD per "
                    "million samples) "
                    "at once.");
  (void)report_page_plot(page, REPORT_PLOT_FRONT);
  report_table_column(&table, "", REPORT_RIGHT);
  plan_columns(&table);
  for (size_t i = 0; front && i < front->count; i++) {
    report_table_row(&table, false);
    report_table_cell(&table, "%zu", i + 1);
    plan_cells(page, &table, front->items[i]);
  }
  table.best = 1;
  finish(page, &table);
}

/* ---- scaling ---- */

static void points(report_page *page, const char *name, const char *key, const char *head, const char *title,
                   int64_t own) {
  const dp_node *list = study(page, name);
  report_table table = {0};
  double unit = 0;
  const bool devices = strcmp(name, "devices") == 0;
  report_table_title(&table, "%s", title);
  report_table_column(&table, head, REPORT_RIGHT);
  if (devices) report_table_column(&table, "efficiency", REPORT_RIGHT);
  plan_columns(&table);
  for (size_t i = 0; list && i < list->count; i++) {
    const dp_node *row = list->items[i];
    const int64_t value = report_node_integer(row, key);
    const bool fits = report_node_true(row, "fits");
    const double rate = report_node_real(row, "throughput_samples_per_s");
    if (fits && unit <= 0 && value > 0) unit = rate / (double)value;
    report_table_row(&table, !fits);
    report_table_cell(&table, "%lld", (long long)value);
    if (devices && fits && unit > 0)
      report_table_cell(&table, "%.0f %%", 100 * rate / (double)value / unit);
    else if (devices)
      report_table_cell(&table, "–");
    if (fits) {
      plan_cells(page, &table, row);
      if (value == own) table.best = (int)i + 1;
    } else {
      report_table_cell(&table, "–");
      report_table_cell(&table, "–");
      report_table_cell(&table, "%.1f", report_node_real(row, "peak_memory_bytes") / 1e9);
      for (int c = 0; c < 3; c++) report_table_cell(&table, "–");
      report_table_cell(&table, "nothing fits; the nearest: %s", plan_of(row));
    }
  }
  if (devices)
    report_table_note(&table,
                      "The first so many devices of the cluster, at their share of its price and power; efficiency "
                      "is throughput a device, against the first row that fits.");
  finish(page, &table);
}

void report_page_scaling(report_page *page) {
  const report_files *files = page->files;
  report_write_text(
      page->writer, NULL,
      "Each row is the best plan found for that many devices, or for that global batch, all else equal; for "
      "larger batches the best of the 16 fastest plans above, with more microbatches.");
  if (report_node_true(dp_node_get(files->tune, "studies"), "stopped"))
    report_write_text(page->writer, "note", "The studies were stopped: points are missing.");
  report_write_row_begin(page->writer);
  (void)report_page_plot(page, REPORT_PLOT_DEVICES);
  (void)report_page_plot(page, REPORT_PLOT_BATCH);
  report_write_row_end(page->writer);
  points(page, "devices", "devices", "devices", "With devices", (int64_t)files->cluster.devices.count);
  points(page, "batch", "global_batch", "batch", "With the global batch",
         (int64_t)files->plan.microbatches * files->plan.microbatch_size * files->plan.replicas);
}

/* ---- lossy skips ---- */

void report_page_k(report_page *page) {
  const dp_node *list = study(page, "k");
  const char *layout = report_node_text(dp_node_get(page->files->tune, "studies"), "k_layout");
  report_table table = {0};
  report_write_text(page->writer, NULL,
                    report_page_text(page,
                                     "Skip tensors that travel can be projected to K values a sample. That loses "
                                     "something, and how much has not been measured: a run has to. The layout is: %s.",
                                     layout ? layout : "the best plan's"));
  (void)report_page_plot(page, REPORT_PLOT_K);
  report_table_column(&table, "K", REPORT_RIGHT);
  report_table_column(&table, "skips, GB a step", REPORT_RIGHT);
  report_table_column(&table, "GB on the fullest", REPORT_RIGHT);
  report_table_column(&table, "step", REPORT_RIGHT);
  report_table_column(&table, "samples/s", REPORT_RIGHT);
  report_table_column(&table, "quality", REPORT_LEFT);
  for (size_t i = 0; list && i < list->count; i++) {
    const dp_node *row = list->items[i];
    char step[32];
    const char *quality = report_node_text(row, "quality");
    report_table_row(&table, !report_node_true(row, "fits"));
    if (report_node_integer(row, "k"))
      report_table_cell(&table, "%lld", (long long)report_node_integer(row, "k"));
    else
      report_table_cell(&table, "exact");
    report_table_cell(&table, "%.3f", report_node_real(row, "skip_bytes") / 1e9);
    report_table_cell(&table, "%.1f", report_node_real(row, "peak_memory_bytes") / 1e9);
    report_table_cell(&table, "%s", dp_format_seconds(report_node_real(row, "step_s"), step));
    rate_cell(page, &table, row);
    report_table_cell(&table, "%s", quality ? quality : "");
  }
  finish(page, &table);
}

/* ---- neighbours ---- */

enum { MAX_LOST_ROWS = 60 };

void report_page_lost(report_page *page) {
  const dp_node *list = report_node_list(page->files->tune, "rejected");
  report_table table = {0};
  report_write_text(page->writer, NULL, "Plans one choice away from the best, and what each loses by.");
  report_table_column(&table, "plan", REPORT_TEXT);
  report_table_column(&table, "why it lost", REPORT_TEXT);
  for (size_t i = 0; list && i < list->count && i < MAX_LOST_ROWS; i++) {
    const char *why = report_node_text(list->items[i], "why");
    report_table_row(&table, false);
    report_table_cell(&table, "%s", plan_of(list->items[i]));
    report_table_cell(&table, "%s", why ? why : "");
  }
  if (list && list->count > MAX_LOST_ROWS)
    report_table_note(&table, "The first %d of %zu; all stand in tune.json.", MAX_LOST_ROWS, list->count);
  finish(page, &table);
}

/* ---- other planners ---- */

void report_page_baselines(report_page *page) {
  const dp_node *list = report_node_list(page->files->tune, "baselines");
  report_table table = {0};
  report_write_text(page->writer, NULL,
                    "The best that each way of planning makes of the same job on the same devices, predicted alike.");
  report_table_column(&table, "planner", REPORT_LEFT);
  report_table_column(&table, "samples/s", REPORT_RIGHT);
  report_table_column(&table, "gain of the best", REPORT_RIGHT);
  report_table_column(&table, "skips, GB a step", REPORT_RIGHT);
  report_table_column(&table, "plan", REPORT_TEXT);
  for (size_t i = 0; list && i < list->count; i++) {
    const dp_node *row = list->items[i], *gain = dp_node_get(row, "gain_of_best");
    const char *title = report_node_text(row, "title"), *why = report_node_text(row, "why");
    const bool fits = report_node_true(row, "fits");
    report_table_row(&table, !fits);
    report_table_cell(&table, "%s", title ? title : "");
    if (fits)
      rate_cell(page, &table, row);
    else
      report_table_cell(&table, "–");
    if (gain && gain->kind == DP_NODE_REAL)
      report_table_cell(&table, "%+.1f %%", 100 * gain->real);
    else
      report_table_cell(&table, "–");
    report_table_cell(&table, "%.2f", report_node_real(row, "skip_bytes") / 1e9);
    report_table_cell(&table, "%s%s%s", plan_of(row), why && why[0] ? ": " : "", why ? why : "");
  }
  finish(page, &table);
}

/* ---- assumptions ---- */

void report_page_assumptions(report_page *page) {
  const report_run *run = &page->files->run;
  report_table table = {0};
  report_write_text(
      page->writer, NULL,
      "What the figures rest on, and who says so. The error band is one standard deviation; a dash means that "
      "none is stated.");
  report_table_column(&table, "what", REPORT_LEFT);
  report_table_column(&table, "value", REPORT_TEXT);
  report_table_column(&table, "band", REPORT_RIGHT);
  report_table_column(&table, "source", REPORT_TEXT);
  for (int a = 0; a < run->assumption_count; a++) {
    const report_assumption *row = &run->assumptions[a];
    report_table_row(&table, false);
    report_table_cell(&table, "%s", row->what);
    report_table_cell(&table, "%s", row->value);
    if (row->error_band > 0)
      report_table_cell(&table, "± %.0f %%", 100 * row->error_band);
    else
      report_table_cell(&table, "–");
    report_table_cell(&table, "%s", row->source);
  }
  report_table_note(&table, "\"Measured here\": by the authors of diffpipe, on one H200 unless said otherwise.");
  finish(page, &table);
}
