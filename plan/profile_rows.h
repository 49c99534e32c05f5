/* Links of a profile from what tests/bench_cuda_links wrote under mpirun, a process a GPU: a JSON object a line, of one
 * size of one kind of exchange each. Its head says what the columns are.
 *
 *   nccl, one way      the points of `nccl`; both ways: of those of the largest size, what goes into a GPU and out of it;
 *                      neighbours, both ways: all at once
 *   nccl, all-reduce   those of `all-reduce`, of as many GPUs as there were processes
 *
 * What NCCL slows compute by is the middle over the sizes. Sizes are not kept aside: `error` is 0. Rows of copies are
 * passed over, since a calibration measures these itself.
 */
#ifndef DP_PLAN_PROFILE_ROWS_H
#define DP_PLAN_PROFILE_ROWS_H

#include "plan/cluster.h"
#include "plan/profile.h"

/* Into the profile's `links`, as links of the class that the cluster's first two devices are joined by, which must be
 * whole GPUs of one host. DP_BAD_INPUT names file and line. */
dp_status plan_profile_read_rows(const char *path, const plan_cluster *cluster, plan_profile *profile, dp_error *error);

#endif
