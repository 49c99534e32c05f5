/* What travels in a step: summed between pairs of workers, and over each physical link.
 *
 * A message counts where it is sent. An all-reduce counts as the ring that plan/nccl.h prices and plan_metrics counts:
 * each member sends 2 (n - 1) / n of the buffer to the next one; so do the members of a tensor group. Over a route
 * every link carries all of its bytes.
 */
#ifndef DP_REPORTS_FLOWS_H
#define DP_REPORTS_FLOWS_H

#include "base/array.h"
#include "reports/report.h"

typedef struct report_flow {
  int from, to; /* workers */
  int64_t kind_bytes[PLAN_TRAFFIC_COUNT];
} report_flow;

typedef struct report_link_load {
  int link; /* of the cluster */
  int64_t kind_bytes[PLAN_TRAFFIC_COUNT];
} report_link_load;

typedef struct report_flows {
  DP_ARRAY(report_flow) pairs;      /* by from, then to */
  DP_ARRAY(report_link_load) links; /* by link; empty where the cluster has no links */
} report_flows;

dp_status report_flows_of(const report_run *run, report_flows *flows, dp_error *error);
void report_flows_free(report_flows *flows);
int64_t report_flow_bytes(const int64_t kind_bytes[PLAN_TRAFFIC_COUNT]);

#endif
