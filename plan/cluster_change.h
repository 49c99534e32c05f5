/* Changes to a cluster that was read, for what-if questions: [link], [device] and [host] of a scenario.
 *
 * The keys are those of the files: [link] those of a class of links, [device] those of a card, [host] those of a
 * machine. A table speaks of all links or all cards; a table in it (`[link.nvlink]`, `[link.pcie4-x16]`,
 * `[device.RTX-4090]`) of one kind or class of links, or of one model of cards, and has the last word. All that is not
 * named stays.
 *
 *   link.bandwidth_gb_per_s  of each link; a root complex forwards twice that between its ports
 *   link.latency_us          of a whole transfer, spread over the links of a crossing as plan/cluster.h says
 *   device.bf16_tflops       the achieved figure changes in the same ratio, unless it is given too
 *   device.memory_bandwidth_gb_per_s   copies inside a card change in the same ratio, where their class is scaled by it
 *   device and host prices and powers  those of the whole cluster are summed up anew
 */
#ifndef DP_PLAN_CLUSTER_CHANGE_H
#define DP_PLAN_CLUSTER_CHANGE_H

#include "plan/cluster.h"

/* `root`: of the scenario; without the three tables nothing changes. DP_BAD_INPUT for what is unknown, out of range, or
 * speaks of what this cluster does not have; but prices may be given for any card of the catalogue. On failure the
 * cluster may be changed in part. */
dp_status plan_cluster_change(const dp_node *root, const plan_catalogue *catalogue, plan_cluster *cluster,
                              dp_error *error);

#endif
