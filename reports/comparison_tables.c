/* Tables of a comparison.json. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/comparison.h"
#include "reports/read.h"

enum { MOST_WORKERS = 16, MOST_CHUNKS = 32, NARROW_NAME = 43, WIDE_NAME = 90 };

static void ms_cell(report_table *table, double predicted_s, double measured_s) {
  report_change_cell(table, predicted_s * 1e3, measured_s * 1e3);
}

/* A dash where the row has no such sides. */
static void sides_cell(report_table *table, const dp_node *row, const char *key) {
  const dp_node *predicted = dp_node_get(row, "predicted"), *measured = dp_node_get(row, "measured");
  if (!predicted || !measured)
    report_table_cell(table, "–");
  else
    ms_cell(table, report_node_real(predicted, key), report_node_real(measured, key));
}

/* What would be printed as -0 is 0. */
static double rounded(double value, double least) { return fabs(value) < least ? 0 : value; }

/* What a row adds to the step, and its share where causes do not cancel each other. */
static void effect_cells(report_table *table, double effect_s, double difference_s, bool share) {
  const double effect_ms = rounded(effect_s * 1e3, 0.0005), part = difference_s != 0 ? effect_s / difference_s : 0;
  report_table_cell(table, "%+.*f", report_digits(effect_ms), effect_ms);
  if (!share) return;
  if (difference_s == 0 || fabs(part) > 9.99)
    report_table_cell(table, "–");
  else
    report_table_cell(table, "%.0f %%", rounded(100 * part, 0.5));
}

/* ---- the result ---- */

static void add_pair(report_table *table, const dp_node *root, const char *key, const char *name,
                     report_figure_kind kind) {
  const dp_node *row = dp_node_get(root, key);
  char text[40];
  if (!row) return;
  const double predicted = report_node_real(row, "predicted"), measured = report_node_real(row, "measured");
  report_table_row(table, false);
  report_table_cell(table, "%s", name);
  report_table_cell(table, "%s", report_figure(kind, predicted, text));
  report_table_cell(table, "%s", report_figure(kind, measured, text));
  report_table_cell(table, "%s", report_figure_apart(kind, predicted, measured, text));
}

static void make_result(const dp_node *root, report_table *table) {
  const dp_node *steps = dp_node_get(root, "steps");
  char p95[32], longest[32];
  report_table_column(table, "", REPORT_LEFT);
  report_table_column(table, "predicted", REPORT_RIGHT);
  report_table_column(table, "measured", REPORT_RIGHT);
  report_table_column(table, "error", REPORT_RIGHT);
  add_pair(table, root, "step_s", "step", REPORT_FIGURE_SECONDS);
  add_pair(table, root, "throughput_samples_per_s", "samples/s", REPORT_FIGURE_NUMBER);
  add_pair(table, root, "bubble_ratio", "bubble ratio", REPORT_FIGURE_PERCENT);
  add_pair(table, root, "exposed_comm_s", "communication not hidden", REPORT_FIGURE_SECONDS);
  add_pair(table, root, "imbalance", "busiest worker / mean", REPORT_FIGURE_RATIO);
  add_pair(table, root, "peak_memory_bytes", "memory, fullest worker", REPORT_FIGURE_BYTES);
  if (report_node_integer(steps, "count") > 1)
    report_table_note(table, "Measured: the median of the last %lld steps; 95th percentile %s, longest %s.",
                      (long long)report_node_integer(steps, "count"),
                      dp_format_seconds(report_node_real(steps, "p95_s"), p95),
                      dp_format_seconds(report_node_real(steps, "max_s"), longest));
}

/* ---- rows of the program ---- */

static void effect_columns(report_table *table, bool share) {
  report_table_column(table, "adds ms", REPORT_RIGHT);
  if (share) report_table_column(table, "share", REPORT_RIGHT);
}

static void make_kinds(const dp_node *root, double difference_s, report_table *table) {
  const dp_node *list = report_node_list(root, "kinds");
  static const char *const keys[] = {"median_s", "mean_s", "p95_s"};
  report_table_title(table, "By kind of instruction, predicted → measured");
  report_table_column(table, "kind", REPORT_LEFT);
  report_table_column(table, "count", REPORT_RIGHT);
  report_table_column(table, "median ms", REPORT_RIGHT);
  report_table_column(table, "mean ms", REPORT_RIGHT);
  report_table_column(table, "p95 ms", REPORT_RIGHT);
  effect_columns(table, true);
  for (size_t i = 0; list && i < list->count; i++) {
    const dp_node *row = list->items[i];
    const char *kind = report_node_text(row, "kind");
    report_table_row(table, false);
    report_table_cell(table, "%.16s", kind ? kind : "");
    report_table_cell(table, "%lld", (long long)report_node_integer(row, "count"));
    for (size_t k = 0; k < 3; k++) sides_cell(table, row, keys[k]);
    effect_cells(table, report_node_real(row, "effect_s"), difference_s, true);
  }
  report_table_note(table,
                    "What lengths add to the step; late starts are not in it. A SEND and its RECV are one transfer.");
}

static void make_workers(const dp_node *root, double difference_s, report_table *table) {
  const dp_node *list = report_node_list(root, "workers");
  report_table_title(table, "By worker, ms of a step, predicted → measured");
  report_table_column(table, "worker", REPORT_RIGHT);
  report_table_column(table, "device", REPORT_LEFT);
  report_table_column(table, "compute", REPORT_RIGHT);
  report_table_column(table, "not hidden", REPORT_RIGHT);
  report_table_column(table, "idle", REPORT_RIGHT);
  report_table_column(table, "peak GB", REPORT_RIGHT);
  effect_columns(table, false);
  for (size_t i = 0; list && i < list->count && i < MOST_WORKERS; i++) {
    const dp_node *row = list->items[i], *p = dp_node_get(row, "predicted"), *m = dp_node_get(row, "measured");
    const char *device = report_node_text(row, "device");
    report_table_row(table, false);
    report_table_cell(table, "%lld", (long long)report_node_integer(row, "worker"));
    report_table_cell(table, "%.16s", device ? device : "");
    sides_cell(table, row, "compute_s");
    sides_cell(table, row, "exposed_comm_s");
    sides_cell(table, row, "idle_s");
    report_change_cell(table, report_node_real(p, "peak_memory_bytes") / 1e9,
                       report_node_real(m, "peak_memory_bytes") / 1e9);
    effect_cells(table, report_node_real(row, "effect_s"), difference_s, false);
  }
  if (list && list->count > MOST_WORKERS)
    report_table_note(table, "The first %d of %zu workers; all stand in comparison.json.", MOST_WORKERS, list->count);
}

static void make_chunks(const dp_node *root, double difference_s, report_table *table) {
  const dp_node *list = report_node_list(root, "chunks");
  report_table_title(table, "By chunk, mean ms of a microbatch, predicted → measured");
  report_table_column(table, "chunk", REPORT_RIGHT);
  report_table_column(table, "rank", REPORT_RIGHT);
  report_table_column(table, "units", REPORT_LEFT);
  report_table_column(table, "forward", REPORT_RIGHT);
  report_table_column(table, "backward", REPORT_RIGHT);
  effect_columns(table, true);
  for (size_t i = 0; list && i < list->count && i < MOST_CHUNKS; i++) {
    const dp_node *row = list->items[i], *forward = dp_node_get(row, "forward"),
                  *backward = dp_node_get(row, "backward");
    const long long first = (long long)report_node_integer(row, "first_unit");
    report_table_row(table, false);
    report_table_cell(table, "%lld", (long long)report_node_integer(row, "chunk"));
    report_table_cell(table, "%lld", (long long)report_node_integer(row, "rank"));
    report_table_cell(table, "%lld to %lld", first, first + (long long)report_node_integer(row, "unit_count") - 1);
    sides_cell(table, forward, "mean_s");
    sides_cell(table, backward, "mean_s");
    effect_cells(table, report_node_real(forward, "effect_s") + report_node_real(backward, "effect_s"), difference_s,
                 true);
  }
  if (list && list->count > MOST_CHUNKS)
    report_table_note(table, "The first %d of %zu chunks; all stand in comparison.json.", MOST_CHUNKS, list->count);
}

/* ---- units ---- */

typedef struct unit_row {
  const dp_node *node;
  double effect_s, apart_s; /* 0: as predicted */
} unit_row;

static double apart_s(const dp_node *direction) {
  const double measured_s = report_node_real(direction, "measured_s"),
               predicted_s = report_node_real(direction, "predicted_s");
  return measured_s > 0 && fabs(measured_s - predicted_s) > 1e-6 * predicted_s ? fabs(measured_s - predicted_s) : 0;
}

static int by_effect(const void *a, const void *b) {
  const unit_row *x = a, *y = b;
  if (fabs(x->effect_s) != fabs(y->effect_s)) return fabs(x->effect_s) > fabs(y->effect_s) ? -1 : 1;
  if (x->apart_s != y->apart_s) return x->apart_s > y->apart_s ? -1 : 1;
  return (x->node->line > y->node->line) - (x->node->line < y->node->line);
}

static void unit_cell(report_table *table, const dp_node *direction) {
  const double predicted_s = report_node_real(direction, "predicted_s"),
               measured_s = report_node_real(direction, "measured_s");
  if (measured_s > 0)
    ms_cell(table, predicted_s, measured_s);
  else
    report_table_cell(table, "–");
}

/* What names have in common stands in front, what tells them apart at both ends: the middle is left out. */
static void name_cell(report_table *table, const char *name, int width) {
  const int length = (int)strlen(name), front = width / 3, back = width - front - 1;
  if (length <= width)
    report_table_cell(table, "%s", name);
  else
    report_table_cell(table, "%.*s…%s", front, name, name + length - back);
}

static dp_status make_units(const dp_node *root, double difference_s, int top, bool narrow, report_table *table,
                            dp_error *error) {
  const dp_node *list = report_node_list(root, "units");
  const size_t all = list ? list->count : 0;
  size_t count = 0;
  unit_row *rows = calloc(all + 1, sizeof *rows);
  if (!rows) return dp_fail_memory(error);
  for (size_t i = 0; i < all; i++) {
    const dp_node *forward = dp_node_get(list->items[i], "forward"),
                  *backward = dp_node_get(list->items[i], "backward");
    rows[count] =
        (unit_row){list->items[i], report_node_real(forward, "effect_s") + report_node_real(backward, "effect_s"),
                   apart_s(forward) + apart_s(backward)};
    if (rows[count].apart_s > 0) count++;
  }
  if (count) qsort(rows, count, sizeof *rows, by_effect);
  report_table_title(table, "By unit, mean ms of a microbatch, predicted → measured");
  report_table_column(table, "unit", REPORT_LEFT);
  if (!narrow) report_table_column(table, "mostly", REPORT_LEFT);
  report_table_column(table, "chunk", REPORT_RIGHT);
  report_table_column(table, "forward", REPORT_RIGHT);
  report_table_column(table, "backward", REPORT_RIGHT);
  effect_columns(table, true);
  for (size_t i = 0; i < count && (int)i < top; i++) {
    const dp_node *row = rows[i].node;
    const char *name = report_node_text(row, "name"), *class = report_node_text(row, "class");
    report_table_row(table, false);
    name_cell(table, name ? name : "", narrow ? NARROW_NAME : WIDE_NAME);
    if (!narrow) report_table_cell(table, "%.12s", class ? class : "");
    report_table_cell(table, "%lld", (long long)report_node_integer(row, "chunk"));
    unit_cell(table, dp_node_get(row, "forward"));
    unit_cell(table, dp_node_get(row, "backward"));
    effect_cells(table, rows[i].effect_s, difference_s, true);
  }
  if ((int)count > top) report_table_note(table, "%d of %zu units, the largest effect first.", top, all);
  free(rows);
  return DP_OK;
}

dp_status report_compared_tables(const dp_node *root, int top, bool narrow, report_table tables[REPORT_COMPARED_COUNT],
                                 dp_error *error) {
  const double difference_s = report_node_real(root, "difference_s");
  for (int t = 0; t < REPORT_COMPARED_COUNT; t++) tables[t] = (report_table){0};
  make_result(root, &tables[REPORT_COMPARED_RESULT]);
  make_kinds(root, difference_s, &tables[REPORT_COMPARED_KINDS]);
  make_workers(root, difference_s, &tables[REPORT_COMPARED_WORKERS]);
  make_chunks(root, difference_s, &tables[REPORT_COMPARED_CHUNKS]);
  dp_status status = make_units(root, difference_s, top, narrow, &tables[REPORT_COMPARED_UNITS], error);
  for (int t = 0; t < REPORT_COMPARED_COUNT && status == DP_OK; t++)
    if (tables[t].failed) status = dp_fail_memory(error);
  for (int t = 0; t < REPORT_COMPARED_COUNT && status != DP_OK; t++) report_table_free(&tables[t]);
  return status;
}
