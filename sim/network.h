/* The network in virtual time: flows over paths of links that share bandwidth by max-min fairness.
 *
 * The allocation: rates x_f >= 0 such that for every link l the sum of x_f over the crossings of l is at most its
 * capacity, x_f <= cap_f (what one flow can reach alone: its size factor times the route's bandwidth), and no x_f can
 * grow without shrinking some x_g <= x_f. It exists and is unique; a feasible allocation is the one if and only if each
 * flow is at its cap or has a bottleneck: a full link on which no flow is faster (Bertsekas and Gallager, "Data
 * Networks", 2nd edition, 6.5.2). A flow whose path names a link twice crosses it twice and takes twice its rate there.
 *
 * Solved by progressive filling over a set S of flows that starts with those which share a full link with the change;
 * all other flows keep their rates. Where an outsider has lost its bottleneck it joins S and the set is solved again,
 * so that the answer is exact and yet costs no more than the region in which rates really move.
 *
 * A flow of n > 0 bytes moves them at its varying rate; latency is the caller's (the engine adds it after the last
 * byte has left, when the links are free again).
 *
 * Contract: nothing is allocated after sim_network_create. Changes at one instant are registered by start and end and
 * take effect together in sim_network_settle; no query is valid between. Relative tolerance of "full" and "faster":
 * SIM_NETWORK_EPSILON, so rates are exact to about that.
 */
#ifndef DP_SIM_NETWORK_H
#define DP_SIM_NETWORK_H

#include <stdint.h>

#include "base/status.h"

#define SIM_NETWORK_EPSILON 1e-12

typedef struct sim_network sim_network;

/* capacity_bytes_per_s[link_count], each > 0 and finite; flow ids are below `flow_count` and flow f crosses at most
 * flow_hops[f] links. Both arrays are copied. */
dp_status sim_network_create(const double *capacity_bytes_per_s, int link_count, const uint32_t *flow_hops,
                             uint32_t flow_count, sim_network **network, dp_error *error);
void sim_network_destroy(sim_network *network); /* NULL is allowed */
uint64_t sim_network_memory_bytes(const sim_network *network);

/* Registers that flow `flow` (not under way) starts now: bytes > 0, cap > 0 (INFINITY: only its links bind it; then
 * hops must be > 0). `links` must stay valid until the flow ends. */
void sim_network_start(sim_network *network, uint32_t flow, const int *links, uint32_t hops, double bytes,
                       double cap_bytes_per_s);
/* Registers that its last byte has left, or that it is taken off. */
void sim_network_end(sim_network *network, uint32_t flow);
/* Shares the links anew at now_s, which never decreases. `changed` gets the flows whose finish times moved, the new ones
 * included; the list is valid until the next call. */
void sim_network_settle(sim_network *network, double now_s, const uint32_t **changed, uint32_t *changed_count);

/* When the flow's last byte leaves, at present rates. */
double sim_network_finish_s(const sim_network *network, uint32_t flow);
double sim_network_rate(const sim_network *network, uint32_t flow); /* bytes/s now */

typedef struct sim_network_counts {
  uint64_t settles;      /* calls of settle that had to solve */
  uint64_t solves;       /* progressive fillings, repeats included */
  uint64_t solved_flows; /* sum of the sizes of S over all solves */
} sim_network_counts;
sim_network_counts sim_network_count(const sim_network *network);

#endif
