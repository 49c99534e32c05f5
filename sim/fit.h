/* A split that fits: hands the partitioner what it asks for, out of a scenario and a plan whose order is known. */
#ifndef DP_SIM_FIT_H
#define DP_SIM_FIT_H

#include "graph/peaks.h"
#include "plan/scenario.h"

enum { SIM_FIT_CHUNKS = 64 }; /* more are not worth the time */

typedef struct sim_fit {
  const plan_scenario *scenario;
  const plan_plan *plan; /* with chunks and order of some split: the order says how many microbatches are in flight */
  const graph *graph;
  graph_peaks *peaks;
  const double *const *unit_s;       /* [rank][unit], of its slowest replica */
  const int64_t *fixed_bytes;        /* [rank] runtime and library workspace */
  const int64_t *memory_limit_bytes; /* [rank], the least of its replicas */
  bool splits_masters;               /* plan_optimizer_bytes */
} sim_fit;

typedef struct sim_fit_split_result {
  bool fits;        /* by the partitioner's estimate; else the split least over-full */
  bool possible;    /* false: no split fits whatever the layout, and nothing else is set */
  double slowest_s; /* the slowest rank, per microbatch */
} sim_fit_split_result;

/* Weights, adapters, and in training gradients and optimizer states of a unit. */
int64_t sim_fit_persistent_bytes(const graph *graph, int unit, bool training, plan_optimizer optimizer,
                                 bool gradient_fp32, bool splits_masters);

/* in_flight[chunk_count]: most microbatches that each chunk has begun and not finished, in the plan's order. */
dp_status sim_fit_in_flight(const plan_plan *plan, int *in_flight, dp_error *error);

/* cuts[chunk_count - 1]; memory_bytes[ranks]: the partitioner's estimate. */
dp_status sim_fit_split(const sim_fit *fit, int *cuts, int64_t *memory_bytes, sim_fit_split_result *result,
                        dp_error *error);

#endif
