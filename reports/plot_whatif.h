/* The plots of a comparison of clusters: bars of throughput, cost and sensitivity, and a plot a sweep. Plain figures:
 * what found them is not known here. All pointers are borrowed for the call.
 */
#ifndef DP_REPORTS_PLOT_WHATIF_H
#define DP_REPORTS_PLOT_WHATIF_H

#include "reports/plots.h"

enum { REPORT_MAX_RESOURCES = 8 };

typedef struct report_whatif_row {
  const char *cluster;
  bool fits;
  double samples_per_s, usd_per_million; /* 0: nothing fits, a price is unknown */
  bool measured;                         /* `gain` is known */
  double gain[REPORT_MAX_RESOURCES];     /* relative, by 10 % more of each resource */
} report_whatif_row;

typedef struct report_whatif_point {
  double number; /* the value, where the sweep is numeric */
  bool known, fits, changed;
  double samples_per_s;
  const char *plan; /* brief; "" when there is none */
} report_whatif_point;

typedef struct report_whatif_sweep {
  const char *key;
  bool numeric, logarithmic;
  const char *const *values;
  int value_count;
  const report_whatif_point *points; /* [row * value_count + value] */
} report_whatif_sweep;

typedef struct report_whatif {
  const char *scenario;
  int64_t global_batch;
  const report_whatif_row *rows;
  int row_count;
  const char *const *resources; /* [resource_count] names */
  int resource_count;
  const report_whatif_sweep *sweeps;
  int sweep_count;
} report_whatif;

/* whatif_throughput, whatif_cost (where prices are known), whatif_sensitivity and sweep_1, sweep_2, ... as
 * report_plots_write does: what an earlier run left of others is removed, and a gnuplot that is missing or fails is no
 * error but a line of `notes`. */
dp_status report_whatif_plots_write(const report_whatif *figures, const char *folder, const char *gnuplot,
                                    dp_str *notes, dp_error *error);

#endif
