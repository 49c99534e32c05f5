/* Which way two workers exchange data, as the plan and the topology have it: the executor moves messages so, and the
 * simulator predicts them so.
 *
 *   two machines                    nccl, whatever the plan says
 *   one machine, the plan says      local, nccl or host: that
 *   one machine, the plan says auto:
 *     processors                    local: the memory that they share
 *     parts of one card             host where their class of link is of kind "host" (`virtual_link`), else local
 *     NVLink, PCIe of cards with peer access (also over the processors between two root complexes)   local
 *     a path through the host's memory, since one of the cards has no peer access (`peer_to_peer`)   host
 *
 * Over a route that is not taken for `auto`, bandwidth and latency are the route's, changed as the class of its slowest
 * link is under that transport (plan_link_class):
 *
 *   host, though the cards are peers   up the one card's PCIe links to its socket's memory, over the link between
 * sockets, down the other's; parts of one card: up and down its own nccl          the route of the topology; between
 * parts of one card sockets of the host, over the card's PCIe links. With nccl_sms at most what so many multiprocessors
 * carry
 *
 * Members of a collective: nccl where any two of them are on two machines or the plan says nccl; else host where the
 * first reaches any of the others through the host's memory, else local.
 */
#ifndef DP_PLAN_TRANSPORT_H
#define DP_PLAN_TRANSPORT_H

#include "plan/plan.h"

/* Never PLAN_TRANSPORT_AUTO. `cluster` NULL or without links, or a plan without devices: all workers are on one machine and reach each
 * other's memory. */
plan_transport plan_transport_of(const plan_plan *plan, const plan_cluster *cluster, int worker_a, int worker_b);
plan_transport plan_transport_of_group(const plan_plan *plan, const plan_cluster *cluster, const uint32_t *workers,
                                       uint32_t count);
/* Whether two devices of one machine copy to each other's memory without the host's: as the table's auto. */
bool plan_devices_are_peers(const plan_cluster *cluster, int device_a, int device_b);

/* The route of what one worker sends another. For `auto` plan_cluster_route's, but for NCCL on multiprocessors of its
 * own. DP_BAD_INPUT as there, and where the catalogue has no class of links to estimate the transport by. */
dp_status plan_transport_route(const plan_plan *plan, const plan_cluster *cluster, int from_worker, int to_worker,
                               plan_route *route, dp_error *error);
/* The same of a transport that is not the plan's own choice for them. */
dp_status plan_transport_route_by(const plan_plan *plan, const plan_cluster *cluster, plan_transport transport,
                                  int from_device, int to_device, plan_route *route, dp_error *error);

/* Multiprocessors that compute has on a device of `sm_count` where a plan keeps `nccl_sms` for NCCL: whole groups of
 * `step` (plan_device_sm_step); what is left beside them is NCCL's, so it has at least what the plan says. */
static inline int64_t plan_compute_sms(int64_t sm_count, int64_t step, int64_t nccl_sms) {
  return nccl_sms > 0 ? (sm_count - nccl_sms) / step * step : sm_count;
}

/* DP_BAD_INPUT where the plan wants of its devices what they cannot do; the text begins with the key. */
dp_status plan_transport_check(const plan_plan *plan, const plan_cluster *cluster, dp_error *error);
dp_status plan_nccl_sms_check(const plan_plan *plan, const plan_cluster *cluster, dp_error *error);

#endif
