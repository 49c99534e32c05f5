/* What routes are found with: for each card its ports, for each node its switches. Internal to plan/.
 *
 * "Inner" vertices are a node's root complexes, switches, sockets and NICs: all that a route may pass through.
 */
#ifndef DP_PLAN_TOPOLOGY_H
#define DP_PLAN_TOPOLOGY_H

#include "plan/cluster_file.h"

typedef struct plan_card {
  int vertex; /* a whole card: of its device; a card in parts: its own */
  int node;
  int place; /* index among its node's cards */
  bool peer_to_peer;
  int memory_link;                                 /* copies between its parts; -1: a whole card */
  int chain[PLAN_MAX_PCIE_DEPTH + 1], chain_count; /* links from the card up to its socket's memory */
} plan_card;

typedef struct plan_topology_node {
  int first_inner, inner_count; /* vertices */
} plan_topology_node;

typedef struct plan_topology {
  int *twin;                 /* [link] the other way; of a memory link itself */
  int *inner_split;          /* [vertex] end of its links to inner vertices and fabrics within adjacent_links */
  plan_card *cards;          /* [card_count] */
  plan_topology_node *nodes; /* [node_count] */
  int *root_link;            /* [vertex] of a root complex: its link to itself, which what it forwards crosses; else -1 */
  int *device_port;          /* [device] link from a part to its card; -1: a whole card */
  int fabric_count;          /* vertices 0 .. fabric_count - 1 */
} plan_topology;

#endif
