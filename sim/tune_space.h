/* The candidates of a search and their lower bounds; internal to sim/. */
#ifndef DP_SIM_TUNE_SPACE_H
#define DP_SIM_TUNE_SPACE_H

#include "base/array.h"
#include "sim/tune.h"

typedef struct sim_list {
  int64_t *values;
  size_t count;
} sim_list;

/* What all candidates of one microbatch size, tensor group and nccl_sms share. */
typedef struct sim_size_cost {
  sim_prepared prepared;
  /* of one microbatch, each unit on the device that is fastest for it; of a tensor group's member, with what it sends to
   * the others */
  double forward_s, input_s, weight_s;
  int64_t persistent_bytes; /* of the model, or a member's share: weights, gradients, optimizer states */
  int64_t fixed_bytes;      /* of every worker: runtime without communicators, library workspace */
} sim_size_cost;

typedef struct sim_space {
  const plan_scenario *scenario;
  int64_t devices, global_batch;
  sim_list stages, replicas, tensors, chunks, sizes, schedules, policies, ks, recompute, transports, nccl_sms;
  DP_ARRAY(sim_candidate) candidates;
  sim_size_cost *costs; /* one for each microbatch size, tensor group and nccl_sms that a candidate has */
  size_t cost_count;
  int64_t *largest_bytes; /* [devices + 1] memory of the largest 0, 1, 2, ... devices */
  dp_arena *arena;        /* borrowed: lists and costs */
  dp_error *error;
} sim_space;

/* Reads [search], enumerates, and costs every microbatch size. scenario, arena and error are set before. Free it
 * whether that worked or not. */
dp_status sim_space_build(sim_space *space, const sim_efficiency *efficiency);
void sim_space_free(sim_space *space);
const sim_size_cost *sim_space_cost(const sim_space *space, const sim_candidate *candidate);
/* Less than any plan of the candidate can take. */
double sim_space_bound_s(const sim_space *space, const sim_candidate *candidate);
/* Whether the devices could hold what is there throughout, however it is divided; what there is, and room for it. */
bool sim_space_may_fit(const sim_space *space, const sim_candidate *candidate, int64_t *persistent_bytes,
                       int64_t *room_bytes);

#endif
