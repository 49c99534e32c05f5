/* A model, or a tensor member's share of it, as a microbatch of one size sees it, and what its units cost on every kind
 * of device of a cluster: what the trials of a search share. */
#ifndef DP_SIM_PREPARED_H
#define DP_SIM_PREPARED_H

#include "graph/peaks.h"
#include "plan/scenario.h"
#include "sim/cost.h"

typedef struct sim_prepared_kind {
  const plan_device *device; /* one of the kind: devices of one model and share are alike */
  sim_cost_context context;  /* its device: without the SMs that plan.nccl_sms keeps for NCCL */
  sim_unit_cost *units; /* [model.units.count] */
} sim_prepared_kind;

typedef struct sim_prepared {
  int64_t microbatch_size, nccl_sms;
  graph model;
  graph_peaks *peaks;
  const sim_implementation *implementation;
  sim_prepared_kind *kinds; /* in the order in which the cluster lists its devices */
  int kind_count;
  dp_arena arena;
} sim_prepared;

/* `tensor`: members of a tensor group; 1 gives the whole model. Collectives are in no cost here. Of the scenario only
 * the model, the task, the cluster and plan.nccl_sms count. It and `efficiency` must outlive the result; so must the result what is
 * predicted with it. Reading it from several threads is safe. On failure nothing is left to free. */
dp_status sim_prepare_share(const plan_scenario *scenario, const sim_efficiency *efficiency, int64_t microbatch_size,
                            int tensor, sim_prepared *prepared, dp_error *error);
/* The whole model. */
dp_status sim_prepare(const plan_scenario *scenario, const sim_efficiency *efficiency, int64_t microbatch_size,
                      sim_prepared *prepared, dp_error *error);
void sim_prepared_free(sim_prepared *prepared);

/* The kind of a device of that cluster. */
const sim_prepared_kind *sim_prepared_kind_of(const sim_prepared *prepared, const plan_device *device);

#endif
