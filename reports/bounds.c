#include "reports/report.h"

void report_bounds_of(const plan_metrics *metrics, report_bound bounds[REPORT_MAX_BOUNDS], int *count) {
  enum { FORWARD, BACKWARD, OPTIMIZER, TENSOR, COMM, BUBBLE };
  static const char *const names[REPORT_MAX_BOUNDS] = {"compute: forward",         "compute: backward",
                                                       "optimizer step",           "tensor-parallel collectives",
                                                       "communication not hidden", "pipeline bubble"};
  double spent_s[REPORT_MAX_BOUNDS] = {0};
  for (int w = 0; w < metrics->worker_count; w++) {
    const plan_worker_metrics *worker = &metrics->workers[w];
    const double idle_s = worker->idle_s > 0 ? worker->idle_s : 0; /* sums round */
    const double comm_s = worker->exposed_comm_s < idle_s ? worker->exposed_comm_s : idle_s;
    spent_s[FORWARD] += worker->forward_s;
    spent_s[BACKWARD] += worker->backward_s;
    spent_s[OPTIMIZER] += worker->optimizer_s;
    spent_s[TENSOR] += worker->tensor_s;
    spent_s[COMM] += comm_s;
    spent_s[BUBBLE] += idle_s - comm_s;
  }
  double whole_s = 0;
  for (int b = 0; b < REPORT_MAX_BOUNDS; b++) whole_s += spent_s[b];
  *count = 0;
  for (int b = 0; b < REPORT_MAX_BOUNDS; b++) {
    if (whole_s <= 0 || spent_s[b] <= 1e-6 * whole_s) continue;
    int at = (*count)++;
    for (; at > 0 && bounds[at - 1].share < spent_s[b] / whole_s; at--) bounds[at] = bounds[at - 1];
    bounds[at] = (report_bound){names[b], spent_s[b] / whole_s};
  }
}
