/* The plainest engine that follows the rules of sim/engine.h and sim/network.h: what tests compare with and what the
 * benchmark names as its peer ("textbook"). At every event it looks through all lanes and fills all links anew. */
#ifndef DP_TESTS_SIM_REFERENCE_H
#define DP_TESTS_SIM_REFERENCE_H

#include <stdbool.h>

#include "sim/engine.h"

typedef struct reference_flow {
  const int *links;
  int hops;
  double cap, rate;
  bool active, fixed;
} reference_flow;

/* Max-min rates of all active flows by progressive filling over everything. residual: [link_count] work space. */
void reference_share(const double *capacity, int link_count, reference_flow *flows, int flow_count, double *residual,
                     int *open);

/* As sim_run. */
dp_status reference_run(const sim_input *input, plan_timeline *timeline, uint64_t *events, dp_error *error);

#endif
