/* What a comparison of a run with its prediction says to people: sentences, JSON and tables.
 *
 * The figures are plan/compare.h's. comparison.json keeps all that is shown, sentences included, so that tables and
 * page are made from the file alone, long after the timelines are gone.
 */
#ifndef DP_REPORTS_COMPARISON_H
#define DP_REPORTS_COMPARISON_H

#include "base/node.h"
#include "plan/compare.h"
#include "reports/report.h"
#include "reports/table.h"

/* Why the step differs, the largest effect first, then what else a reader should know. Lines live in `arena`. */
dp_status report_why_of(const report_pair *pair, const plan_comparison *comparison, dp_arena *arena,
                        const char *const **lines, int *count, dp_error *error);

enum {
  REPORT_COMPARED_RESULT,
  REPORT_COMPARED_KINDS,
  REPORT_COMPARED_WORKERS,
  REPORT_COMPARED_CHUNKS,
  REPORT_COMPARED_UNITS,
  REPORT_COMPARED_COUNT
};

/* Tables of a comparison.json, for report_tables' printers; at most `top` units, the largest effect first. `narrow`: in
 * REPORT_WIDTH columns, for which long names of units lose their middle. What the file lacks is left out. Free each
 * with report_table_free. */
dp_status report_compared_tables(const dp_node *comparison, int top, bool narrow,
                                 report_table tables[REPORT_COMPARED_COUNT], dp_error *error);

/* Four figures, so that columns align: the digits after the point. */
int report_digits(double value);

typedef enum report_figure_kind {
  REPORT_FIGURE_SECONDS, /* "12.3 ms" */
  REPORT_FIGURE_BYTES,   /* "12.3 GB" */
  REPORT_FIGURE_PERCENT, /* of a share: "12.3 %" */
  REPORT_FIGURE_NUMBER,  /* four figures: "12.34" */
  REPORT_FIGURE_RATIO    /* "1.23" */
} report_figure_kind;
const char *report_figure(report_figure_kind kind, double value, char out[40]);
/* How far it is from another one: "+1.2 %", of shares "-1.2 points"; a dash where the other is 0. */
const char *report_figure_apart(report_figure_kind kind, double value, double from, char out[40]);
/* "10.12 → 12.34" */
void report_change_cell(report_table *table, double before, double after);

/* Communication that is not hidden, of a worker on average. */
double report_exposed_s(const plan_metrics *metrics);
double report_fullest_bytes(const plan_memory *memory);
/* How much longer than the mean the busiest worker computes (1: all alike), and which it is (the first of equal ones).
 */
double report_imbalance(const plan_metrics *metrics, int *worker);

#endif
