/* How workers exchange data, measured message by message with the executor's own copies, alone and while the workers
 * compute: parts of one device (a profile's `copies` and `staged`), or devices of their own (its `links`). Internal to
 * exec/.
 *
 * With NCCL (devices of their own alone) also its send and receive between the first two, and what compute takes while a
 * receive waits for its sender, for which NCCL's kernels hold multiprocessors.
 *
 * Between neighbours: of the first two, by size; and of all at once, on devices of their own both ways. A message on its
 * own lies in the queue of the lane that receives it and begins as soon as the device can.
 */
#ifndef DP_EXEC_MEASURE_LINKS_H
#define DP_EXEC_MEASURE_LINKS_H

#include "exec/pipeline.h"
#include "plan/profile.h"

/* Messages of one size, one at a time. */
typedef struct exec_units_copy {
  double bytes, alone_s, busy_s;
  bool aside; /* not for the profile, but to see what that says of it */
} exec_units_copy;
enum { EXEC_UNITS_LOCAL, EXEC_UNITS_HOST, EXEC_UNITS_NCCL, EXEC_UNITS_WAYS };
typedef DP_ARRAY(exec_units_copy) exec_units_copies; /* ascending */

/* What the cluster says of a way; link "": it does not know it, and a profile is told nothing of it. */
typedef struct exec_units_route {
  char link[64];
  double bytes_per_s, latency_s;
} exec_units_route;

typedef struct exec_units_links {
  bool measured, apart; /* apart: the workers are on devices of their own */
  int workers, ways;    /* ways: the first of them, without NCCL or with it */
  exec_units_copies copies[EXEC_UNITS_WAYS];
  double both_bytes_per_s[EXEC_UNITS_WAYS];     /* apart: of two messages between neighbours, there and back at once */
  double together_bytes_per_s[EXEC_UNITS_WAYS]; /* of messages between all neighbours at once, beside compute */
  double slowdown[EXEC_UNITS_WAYS];
  double waiting_slowdown; /* NCCL: of the worker whose receive waits */
  double handover_s;
  exec_units_route routes[EXEC_UNITS_WAYS]; /* apart: of the first two */
} exec_units_links;

/* `compute` has all workers compute for a while, and says how long a worker did, or (-1) all together. */
typedef dp_status (*exec_units_compute)(void *data, int worker, double *seconds, dp_error *error);
/* Nothing is measured of a pipeline without messages between neighbours. nccl: NCCL, too; where there is none, that is
 * DP_UNSUPPORTED. */
dp_status exec_units_measure_links(exec_units_links *links, struct exec_pipeline *pipeline, bool apart, bool nccl,
                                   exec_units_compute compute, void *data, dp_error *error);
dp_status exec_units_add_links(const exec_units_links *links, plan_profile *profile, dp_error *error);
void exec_units_free_links(exec_units_links *links);

#endif
