/* A cluster: nodes, devices, and the links between them as a graph of vertices (devices, switches, root complexes, NICs,
 * fabrics) and directed edges. Routes are shortest paths; transfers over a common edge share its bandwidth.
 *
 * The shape of a node: a card has one link to its PCIe switch or root complex (parts of a card share it), a root complex
 * one to the memory of its socket (the host vertex), sockets are joined pairwise. What a root complex forwards from one of
 * its ports to another crosses a link from it to itself, which all such transfers share: by default twice the widest port,
 * as all-reduces over all cards of a machine show (four RTX 4090 12.7 GB/s each of 24, four RTX 5090 35 of 55, eight 28).
 * NVLink is a port into a switch, or
 * links between pairs. A route never passes through a device, and cards that cannot copy to their peers directly
 * (`peer_to_peer` of the card) go through the host's memory. The latency of a link class is that of a whole transfer:
 * the first and the last link of a crossing carry half of it each, the links between none.
 *
 * Ownership: the cluster's arena owns all; the catalogue and the document it was read from must outlive it.
 */
#ifndef DP_PLAN_CLUSTER_H
#define DP_PLAN_CLUSTER_H

#include "base/array.h"
#include "base/node.h"
#include "plan/device.h"

enum { PLAN_MAX_HOPS = 16 };

typedef struct plan_device {
  const char *name; /* "node0/gpu3", "node0/gpu0.2" for part 2 of a split card */
  const plan_device_model *model;
  int node;              /* index of the machine */
  int card;              /* physical card in the cluster: parts of one card share it */
  int vertex;            /* in the link graph */
  int parts;             /* of its card: 1 when whole */
  int64_t memory_bytes;  /* limit of this device (a part: its share) */
  int64_t sm_count;
  double compute_share;  /* of the card's SMs: 1 when whole */
  double price_usd_per_h, tdp_w, purchase_usd; /* shares for parts; 0: unknown */
} plan_device;

typedef struct plan_link {
  const plan_link_model *model;
  const char *name;  /* "node0/gpu3 > node0/nvswitch" */
  int from, to;      /* vertices */
  double bandwidth_bytes_per_s, latency_s; /* as the model or the file says */
} plan_link; /* directed: each way is a link of its own */

typedef enum plan_vertex_kind {
  PLAN_VERTEX_DEVICE,
  PLAN_VERTEX_NVSWITCH,
  PLAN_VERTEX_PCIE_SWITCH,
  PLAN_VERTEX_PCIE_ROOT,
  PLAN_VERTEX_HOST,
  PLAN_VERTEX_NIC,
  PLAN_VERTEX_FABRIC,
  PLAN_VERTEX_CARD /* a card cut into parts: its parts share its ports */
} plan_vertex_kind;

typedef struct plan_vertex {
  const char *name;
  plan_vertex_kind kind;
  int node; /* -1 for a fabric */
} plan_vertex;

/* A path between two devices: link ids in order; latency_s is the sum along it, the bandwidth the least of it. A route
 * from a device to itself is empty. `limiting` is the model of the slowest link: its size factors and its effect on
 * compute are the route's. */
typedef struct plan_route {
  int links[PLAN_MAX_HOPS], count;
  double latency_s, bandwidth_bytes_per_s;
  const plan_link_model *limiting;
} plan_route;

/* What the classes of the cluster's links are to other transports than peer copies (plan/transport.h): rows of its file or
 * of the catalogue, else estimates (plan/link_class.c), which say so in `source`. */
typedef struct plan_link_class {
  const plan_link_model *model;
  const plan_link_model *nccl;      /* NCCL's send and receive over it; of a network class itself */
  const plan_link_model *partition; /* the same on multiprocessors of its own */
  const plan_link_model *host;      /* of a card's link to the host: copies through host memory over it */
} plan_link_class;

typedef struct plan_link_classes {
  plan_link_class *items;
  int count;
  /* Between parts of one card: staged through host memory, measured on cards whose link to the host is of a class; and
   * NCCL between processes. */
  const plan_link_model *parts_host, *parts_host_link;
  plan_link_class parts_nccl;
} plan_link_classes;

/* A way from one device to another that a live run has found to be slow (plan/slow.h). */
typedef struct plan_slow_way {
  int from, to;  /* devices */
  double factor; /* of the time that a transfer takes; > 1 */
  int links[PLAN_MAX_HOPS], count; /* what of it is to blame, too, where others cross it */
} plan_slow_way;

typedef struct plan_cluster {
  dp_arena arena;
  const char *name, *file;
  DP_ARRAY(plan_device) devices;
  DP_ARRAY(plan_vertex) vertices;
  DP_ARRAY(plan_link) links;
  int node_count, card_count;
  double price_usd_per_h; /* whole cluster: the file's figure, else the sum of its devices' (0 when one is unknown) */
  double purchase_usd;    /* to buy it all, by the same rule */
  double power_w;         /* whole cluster: devices' TDP + nodes' base power */
  double host_issue_factor; /* how much slower than the reference this host issues work; 1 by default */
  int *first_link;        /* adjacency, CSR over vertices: for the route search */
  int *adjacent_links;
  plan_link_classes classes;
  const plan_slow_way *slow; /* borrowed; NULL: nothing is known to be slow */
  int slow_count;
  struct plan_topology *topology; /* what routes are found with: plan/topology.h */
} plan_cluster;

enum { PLAN_MAX_DEVICES = 65536, PLAN_MAX_VERTICES = 400000 };

/* Reads a cluster file (format = "diffpipe-cluster"), or the same keys inline under a scenario's [cluster]. */
dp_status plan_cluster_read(const char *path, plan_catalogue *catalogue, dp_document *document, plan_cluster *cluster,
                            dp_error *error);
dp_status plan_cluster_build(const dp_node *table, plan_catalogue *catalogue, plan_cluster *cluster, dp_error *error);
void plan_cluster_free(plan_cluster *cluster);

/* Shortest path by hops, then widest, then the last link of least latency, then lowest link ids: reproducible. Where several NICs are equally near, a device
 * takes the one of its own place among its node's cards, as NCCL spreads them. DP_BAD_INPUT when the devices are not
 * connected. Allocates nothing; takes time in proportion to the switches of the two nodes, not to the cluster. */
dp_status plan_cluster_route(const plan_cluster *cluster, int from_device, int to_device, plan_route *route, dp_error *error);

/* Whether two devices are whole GPUs of one machine. */
bool plan_devices_are_apart(const plan_device *a, const plan_device *b);

/* The row of a class that the cluster's links have; NULL: of another. */
const plan_link_class *plan_cluster_link_class(const plan_cluster *cluster, const plan_link_model *model);

/* "nvlink", "pcie" or "network": what a ring over these devices must cross at its weakest (copies inside a card count as
 * nvlink, links between sockets as pcie). */
plan_link_kind plan_cluster_weakest_kind(const plan_cluster *cluster, const int *devices, int count);

#endif
