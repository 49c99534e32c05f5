/* What travels between chunks, by liveness and skip policy; internal to plan/.
 *
 * A tensor made in a unit of chunk a and consumed in units of chunks b > a goes
 *   direct, compress, local: from a to each consumer's rank once, to the first consumer chunk there;
 *   relay: from chunk to chunk until every consumer's rank has it; hops within a rank, or to one that has it, are free.
 * Ranks that have it already (the producer's own) get nothing. In training the gradient of each tensor that needs one
 * takes the same way back. One flow carries all tensors from one chunk to another; neighbours on two ranks always have
 * one each way, be it empty, since the order of the schedule rests on it. Sampling: the latent goes from the last chunk
 * to the first, the only forward flow that goes back.
 */
#ifndef DP_PLAN_TRAFFIC_H
#define DP_PLAN_TRAFFIC_H

#include "plan/program.h"

typedef struct plan_flow {
  int from_chunk, to_chunk;
  bool backward;
  bool relayed; /* carries a tensor that its sender did not make */
  int64_t bytes, kind_bytes[PLAN_TRAFFIC_COUNT];
  int first_tensor, tensor_count; /* into plan_traffic_table.tensors */
} plan_flow;

typedef struct plan_traffic_table {
  plan_flow *flows; /* forward ones first, then by sending chunk, then by receiving chunk */
  int flow_count;
  int *tensors;
  int tensor_count;
} plan_traffic_table;

/* What a tensor counts as on its way between two chunks: boundary where it leaves the chunk that made it for the unit
 * after the one that made it, skip everywhere else. `from` and `to` as in the forward direction. */
plan_traffic plan_traffic_kind(const graph *graph, const int *chunk_of_unit, int from, int to, int tensor);

/* In `arena`. DP_BAD_INPUT when a skip would travel under PLAN_SKIP_LOCAL. */
dp_status plan_traffic_build(const plan_plan *plan, const graph *graph, dp_arena *arena, plan_traffic_table *table,
                             dp_error *error);

#endif
