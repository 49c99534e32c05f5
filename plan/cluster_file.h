/* What a cluster file says, checked row by row, before it becomes a graph (plan/cluster.c). Internal to plan/.
 *
 * Ownership: the arena given to plan_cluster_file_read owns all; strings belong to the document.
 */
#ifndef DP_PLAN_CLUSTER_FILE_H
#define DP_PLAN_CLUSTER_FILE_H

#include "plan/cluster.h"

enum { PLAN_MAX_SOCKETS = 8, PLAN_MAX_PCIE_DEPTH = 4, PLAN_MAX_MESH = 256, PLAN_MAX_INNER = 1024 };
enum { PLAN_MAX_NAME = 64, PLAN_MAX_LINKS = 2000000 };

/* One [[node.pcie]]: a root complex (parent -1) or a switch below one. */
typedef struct plan_pcie_row {
  const char *name;
  int parent;                  /* index of a row of this node, -1: a root complex */
  int socket;                  /* of its root complex */
  const plan_link_model *link; /* to the parent; of a root: to its socket's memory */
  double bandwidth_bytes_per_s;
  double peer_bytes_per_s;     /* of a root: what it forwards between its ports; 0: twice its widest port */
  const dp_node *node;
} plan_pcie_row;

typedef struct plan_device_row {
  const char *name; /* NULL: "gpu" and the card's index in the node */
  const plan_device_model *model;
  int count, parts, pcie;
  int64_t memory_bytes; /* of a whole card */
  int64_t part_sm_count;
  bool peer_to_peer;
  const plan_link_model *link, *part_link; /* to PCIe; between parts of a card */
  double link_bytes_per_s;
  double price_usd_per_h, purchase_usd, tdp_w; /* of a whole card */
  const dp_node *node;
} plan_device_row;

typedef enum plan_nvlink_shape { PLAN_NVLINK_SWITCH, PLAN_NVLINK_MESH, PLAN_NVLINK_PAIRS } plan_nvlink_shape;
typedef struct plan_nvlink_row {
  const char *name; /* of the switch */
  plan_nvlink_shape shape;
  const plan_link_model *link;  /* NULL: of each card's model */
  double bandwidth_bytes_per_s; /* 0: of the class */
  int *cards;                   /* indices of cards in the node */
  int card_count;
  const dp_node *node;
} plan_nvlink_row;

typedef struct plan_nic_row {
  const char *name;
  int count, pcie, fabric;
  const plan_link_model *link, *pcie_link;
  const dp_node *node;
} plan_nic_row;

typedef struct plan_node_row {
  const char *name; /* NULL: "node" and its index in the cluster */
  int count, card_count, socket_count;
  double power_w, price_usd_per_h; /* price of the machine; 0: of its cards */
  const plan_link_model *host_link;
  DP_ARRAY(plan_pcie_row) pcie;
  DP_ARRAY(plan_device_row) devices;
  DP_ARRAY(plan_nvlink_row) nvlinks;
  DP_ARRAY(plan_nic_row) nics;
  const dp_node *node;
} plan_node_row;

typedef struct plan_cluster_file {
  const char *name;
  double price_usd_per_h, purchase_usd, host_issue_factor;
  DP_ARRAY(plan_device_model *) models; /* the file's own rows, in the arena */
  DP_ARRAY(plan_link_model *) links;
  DP_ARRAY(const char *) fabrics;
  DP_ARRAY(plan_node_row) nodes;
  int64_t device_count, vertex_count, link_count; /* of the whole cluster */
} plan_cluster_file;

dp_status plan_cluster_file_read(const dp_node *table, const plan_catalogue *catalogue, dp_arena *arena,
                                 plan_cluster_file *file, dp_error *error);
void plan_cluster_file_free(plan_cluster_file *file); /* the arrays; what is in the arena stays */

#endif
