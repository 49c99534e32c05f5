/* What was predicted of a measured run beside what came of it, and how the training went. */
#include <math.h>

#include "reports/comparison.h"
#include "reports/page.h"
#include "reports/plots.h"

enum { TOP_UNITS = 20 };

void report_page_compared(report_page *page) {
  const dp_node *comparison = page->files->comparison, *why = report_node_list(comparison, "why");
  report_table tables[REPORT_COMPARED_COUNT];
  if (report_compared_tables(comparison, TOP_UNITS, false, tables, NULL) != DP_OK) {
    page->failed = true;
    return;
  }
  report_write_table(page->writer, &tables[REPORT_COMPARED_RESULT]);
  report_write_heading(page->writer, "Why");
  report_write_list_begin(page->writer);
  for (size_t i = 0; why && i < why->count; i++)
    if (why->items[i]->kind == DP_NODE_STRING)
      report_write_item(page->writer, report_page_text(page, "%s", why->items[i]->string));
  report_write_list_end(page->writer);
  (void)report_page_plot(page, REPORT_PLOT_COMPARED);
  report_write_table(page->writer, &tables[REPORT_COMPARED_KINDS]);
  report_write_table(page->writer, &tables[REPORT_COMPARED_WORKERS]);
  report_write_folded_table(page->writer, "By chunk", &tables[REPORT_COMPARED_CHUNKS]);
  report_write_folded_table(page->writer, "By unit", &tables[REPORT_COMPARED_UNITS]);
  for (int t = 0; t < REPORT_COMPARED_COUNT; t++) report_table_free(&tables[t]);
}

/* The mean of the last steps' losses, at most so many. */
static double last_loss(const report_log *log, size_t most, size_t *count) {
  double sum = 0;
  *count = 0;
  for (size_t i = log->rows.count; i-- > 0 && *count < most;) {
    if (!isfinite(log->rows.items[i].loss)) continue;
    sum += log->rows.items[i].loss;
    ++*count;
  }
  return *count ? sum / (double)*count : NAN;
}

void report_page_training(report_page *page) {
  const report_log *log = report_files_log(page->files);
  const report_log_row *first = &log->rows.items[0], *last = &log->rows.items[log->rows.count - 1];
  size_t count;
  const double loss = last_loss(log, 20, &count);
  const char *text = report_page_text(page, "Steps %lld to %lld.", (long long)first->step, (long long)last->step);
  if (count && isfinite(first->loss))
    text = report_page_text(page, "%s The loss was %.4g at first and is %.4g, the mean of the last %zu steps.", text,
                            first->loss, loss, count);
  if (log->evaluations.count) {
    const report_log_evaluation *evaluation = &log->evaluations.items[log->evaluations.count - 1];
    text =
        report_page_text(page, "%s Evaluated at step %lld: %.4g.", text, (long long)evaluation->step, evaluation->loss);
  }
  report_write_text(page->writer, NULL, text);
  report_write_row_begin(page->writer);
  (void)report_page_plot(page, REPORT_PLOT_LOSS);
  (void)report_page_plot(page, REPORT_PLOT_RATE);
  report_write_row_end(page->writer);
}
