/* What a class of links is under NCCL and through the host's memory, where no row says so. Internal to plan/.
 *
 * A class X has the row "X-nccl", "X-nccl-partition" or "X-host" of the cluster's file or of the catalogue. Where there
 * is none, it is estimated by a class of which both were measured, R and R' (plan/link_class.c names them):
 *
 *   bandwidth      X's, times that of R' over that of R
 *   latency        X's, and what R' has more than R; beside compute what R' has more than alone comes on top: kernels
 *                  begin, and wait for a GEMM's blocks, as long over any link
 *   size factors   those of R', at sizes in proportion to the bandwidths of X and R
 *   slowdown       of compute: that of R' in proportion to the bandwidth, at most all of it, at least X's own
 *
 * So NCCL over X takes what it takes over R for a message as much larger as R is faster, but for the latency. Network
 * classes are NCCL's own figures. On multiprocessors of its own NCCL does not wait for compute, and carries at most
 * what so many did over R.
 */
#ifndef DP_PLAN_LINK_CLASS_H
#define DP_PLAN_LINK_CLASS_H

#include "plan/cluster_file.h"

/* Fills cluster->classes. */
dp_status plan_link_classes_find(const plan_cluster_file *file, const plan_catalogue *catalogue, plan_cluster *cluster,
                                 dp_error *error);

#endif
