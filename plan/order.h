/* What the schedule generators share; internal to plan/. */
#ifndef DP_PLAN_ORDER_H
#define DP_PLAN_ORDER_H

#include "plan/program.h"

/* Microbatches times denoise steps: how often each chunk runs forward. */
int plan_order_items(const plan_plan *plan);

/* Appends a step to a rank's order, which has room for it. */
void plan_order_add(plan_plan *plan, int rank, plan_opcode opcode, int chunk, int microbatch);

/* The list scheduler: plays the plan with the chunks' costs; every rank, whenever it is free, takes one of its ready
 * steps, backward before forward, while at most limit[rank] microbatches are begun and not finished there. Plays
 * several rules for choosing among ready steps, with and without an eye on transfers, and keeps the order with the
 * shortest step when transfers take their time (ties: the first rule).
 * O(n * (log ranks + chunks a rank)) for n steps; deterministic. Writes the orders, which have room. */
dp_status plan_order_list(plan_plan *plan, const plan_chunk_costs *costs, const int *limit, dp_error *error);

#endif
