/* What whole GPUs of one machine exchanged in a measured step of a run: a profile's `links`.
 *
 * A message takes from when both of its ends were ready, or it began, to its end; an all-reduce of NCCL as long as it did
 * on the member that was there last. Sizes are the program's, so each is one; the middle counts, by itself and beside
 * compute on either end. Every fifth is kept aside. Of messages the way is that of the first which joins two whole GPUs,
 * and of others those over links of its class; not NCCL on multiprocessors of its own. `slowdown` is 0: what compute took
 * beside messages is in the units' times.
 */
#ifndef DP_PLAN_PROFILE_RUN_LINKS_H
#define DP_PLAN_PROFILE_RUN_LINKS_H

#include "plan/cluster.h"
#include "plan/profile.h"
#include "plan/timeline.h"

/* In the place of what the profile has of such ways; without such GPUs it stays as it is. */
dp_status plan_profile_links_of_run(const plan_timeline *timeline, const plan_cluster *cluster, plan_profile *profile,
                                    dp_error *error);
/* Whether a message is one of two whole GPUs; `cluster` NULL: none is. */
bool plan_profile_is_apart(const plan_program *program, const plan_cluster *cluster, const plan_message *message);

#endif
