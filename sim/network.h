/* The network in virtual time: flows over paths of links that share bandwidth by max-min fairness.
 *
 * The allocation: rates x_f >= 0 such that for every link l the sum of x_f over flows crossing l is at most its capacity,
 * x_f <= cap_f (what one flow can reach alone: its size factor times the route's bandwidth), and no x_f can grow without
 * shrinking some x_g <= x_f (Bertsekas and Gallager, "Data Networks", 6.5.2). Solved by progressive filling over the
 * connected component of flows that the change touches. A flow of n bytes that starts at t with latency alpha ends at
 * t + alpha + (time to move n bytes at its varying rate). With n = 0 bytes it takes no time at all.
 * The engine sees the network only through these calls; nothing is allocated after sim_network_init.
 */
#ifndef DP_SIM_NETWORK_H
#define DP_SIM_NETWORK_H

#include <stdint.h>

#include "base/status.h"

typedef struct sim_network sim_network;

/* capacity_bytes_per_s[link_count]; at most `max_flows` flows exist at once, each crossing at most `max_hops` links. */
dp_status sim_network_create(const double *capacity_bytes_per_s, int link_count, uint32_t max_flows, int max_hops,
                             sim_network **network, dp_error *error);
void sim_network_destroy(sim_network *network);
void sim_network_reset(sim_network *network);

/* Starts flow `flow` (an id below max_flows that the caller manages) at time now_s. Returns through `changed` the flows
 * whose finish times moved (the new one included), to be asked for by sim_network_finish_s. */
void sim_network_start(sim_network *network, uint32_t flow, const int *links, int hops, double bytes, double cap_bytes_per_s,
                       double now_s, const uint32_t **changed, uint32_t *changed_count);
/* Ends it (its last byte has left) at now_s. */
void sim_network_end(sim_network *network, uint32_t flow, double now_s, const uint32_t **changed, uint32_t *changed_count);
/* When the flow's last byte leaves, at present rates. */
double sim_network_finish_s(const sim_network *network, uint32_t flow);
double sim_network_rate(const sim_network *network, uint32_t flow); /* bytes/s now, for tests */

#endif
