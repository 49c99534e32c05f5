/* Ways between devices that a live run has found slower than they were: a cluster's description stays as it is, and
 * what is predicted over it takes them into account.
 *
 * What was measured is a way, a pair of devices. What is slow may be a link of it, which other pairs cross too:
 * suspects are those of its links that no way of the same run crosses that is as fast as ever. A transfer takes
 * `factor` times as long where it goes that way, or crosses a suspect; of several that apply, the largest counts. Sums
 * in a memory that processors share go no way.
 */
#ifndef DP_PLAN_SLOW_H
#define DP_PLAN_SLOW_H

#include "plan/cluster.h"
#include "plan/plan.h"

/* A way that a run's workers use, and how many times as long it takes as it did; up to 1: as fast as ever. */
typedef struct plan_way_seen {
  int from_worker, to_worker;
  double factor;
} plan_way_seen;

/* The slow ones of `seen`, as the plan's devices and transport have them: slow[count] has room for all. */
dp_status plan_slow_ways(const plan_plan *plan, const plan_cluster *cluster, const plan_way_seen *seen, int count,
                         plan_slow_way *slow, int *slow_count, dp_error *error);

/* How many times as long a transfer by this route takes; 1 where nothing of it is slow. */
double plan_slow_factor(const plan_cluster *cluster, int from_device, int to_device, const plan_route *route);

#endif
