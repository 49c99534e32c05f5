/* Figures of runs that stand beside each other: read off metrics and memory, and shown. */
#include <math.h>
#include <stdio.h>

#include "reports/comparison.h"

int report_digits(double value) {
  const double size = fabs(value);
  return size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0;
}

const char *report_figure(report_figure_kind kind, double value, char out[40]) {
  char text[32];
  switch (kind) {
    case REPORT_FIGURE_SECONDS:
      (void)snprintf(out, 40, "%s", dp_format_seconds(value, text));
      break;
    case REPORT_FIGURE_NUMBER:
      (void)snprintf(out, 40, "%.*f", report_digits(value), value);
      break;
    case REPORT_FIGURE_PERCENT:
      (void)snprintf(out, 40, "%.1f %%", 100 * value);
      break;
    case REPORT_FIGURE_BYTES:
      (void)snprintf(out, 40, "%s", dp_format_bytes(value, text));
      break;
    default:
      (void)snprintf(out, 40, "%.2f", value);
  }
  return out;
}

const char *report_figure_apart(report_figure_kind kind, double value, double from, char out[40]) {
  if (kind == REPORT_FIGURE_PERCENT)
    (void)snprintf(out, 40, "%+.1f points", 100 * (value - from));
  else if (from > 0)
    (void)snprintf(out, 40, "%+.1f %%", 100 * (value / from - 1));
  else
    (void)snprintf(out, 40, "–");
  return out;
}

void report_change_cell(report_table *table, double before, double after) {
  report_table_cell(table, "%.*f → %.*f", report_digits(before), before, report_digits(after), after);
}

double report_imbalance(const plan_metrics *metrics, int *worker) {
  double most_s = 0, sum_s = 0;
  *worker = 0;
  for (int w = 0; w < metrics->worker_count; w++) {
    sum_s += metrics->workers[w].compute_s;
    if (metrics->workers[w].compute_s <= most_s) continue;
    most_s = metrics->workers[w].compute_s;
    *worker = w;
  }
  return sum_s > 0 ? most_s * metrics->worker_count / sum_s : 1;
}

double report_exposed_s(const plan_metrics *metrics) {
  double sum_s = 0;
  for (int w = 0; w < metrics->worker_count; w++) sum_s += metrics->workers[w].exposed_comm_s;
  return metrics->worker_count ? sum_s / metrics->worker_count : 0;
}

double report_fullest_bytes(const plan_memory *memory) {
  int64_t most = 0;
  for (int w = 0; w < memory->worker_count; w++)
    if (memory->workers[w].peak_bytes > most) most = memory->workers[w].peak_bytes;
  return (double)most;
}
