/* NCCL's cost model for collectives, as published in NVIDIA/nccl src/graph/tuning.cc (2.30.7); the constants stand in
 * catalogue/nccl.toml.
 *
 *   time = latency + bytes / algbw,   the least over algorithms (ring, tree) and protocols (LL, LL128, Simple)
 *
 * With n ranks on N nodes, s = 2 (n - 1) steps for an all-reduce and n - 1 for all-gather and reduce-scatter, of which
 * i = 2 (N - 1) or N - 1 cross nodes, and busbw the speed of one direction of the slowest link of the ring:
 *   ring latency = base + (s - i) intra + i net          (net of the tree row when every node has one rank)
 *   tree latency = base + 2 ((n / N - 1) intra + floor(log2 N) net)          all-reduce only
 *   ring busbw: Simple as it is; LL half of it, at most ll_max; LL128 0.92 of it, at most channels * channel_max
 *   tree busbw: 0.92 of it, at most channels * channel_max; LL: that / 3.8, at most ll_max; LL128: that * 7/9 on one
 *     node, 15/16 on more, at most channels * channel_max
 *   algbw = busbw * n / s (ring), busbw / 2 (tree)
 * where bytes are those of the whole buffer (all-gather: of the gathered result). LL128 needs NVLink inside the nodes.
 *
 * Left out: the tree correction table, the plateau factor of inter-node rings, NVLS (on 8 H100 it reaches 480 GB/s
 * where the ring reaches 370), PAT, CollNet. Send and receive are no part of NCCL's model: links.toml has them.
 */
#ifndef DP_PLAN_NCCL_H
#define DP_PLAN_NCCL_H

#include "plan/cluster.h"

typedef enum plan_nccl_op { PLAN_NCCL_ALL_REDUCE, PLAN_NCCL_ALL_GATHER, PLAN_NCCL_REDUCE_SCATTER } plan_nccl_op;
typedef enum plan_nccl_arch {
  PLAN_NCCL_VOLTA,
  PLAN_NCCL_AMPERE, /* Ada too, as NCCL does */
  PLAN_NCCL_HOPPER,
  PLAN_NCCL_BLACKWELL,
  PLAN_NCCL_ARCH_COUNT
} plan_nccl_arch;
typedef enum plan_nccl_algorithm { PLAN_NCCL_TREE, PLAN_NCCL_RING, PLAN_NCCL_ALGORITHM_COUNT } plan_nccl_algorithm;
typedef enum plan_nccl_protocol {
  PLAN_NCCL_LL,
  PLAN_NCCL_LL128,
  PLAN_NCCL_SIMPLE,
  PLAN_NCCL_PROTOCOL_COUNT
} plan_nccl_protocol;
extern const char *const plan_nccl_algorithm_names[]; /* "tree", "ring", NULL */
extern const char *const plan_nccl_protocol_names[];  /* "LL", "LL128", "Simple", NULL */

typedef struct plan_nccl_query {
  plan_nccl_op op;
  plan_nccl_arch arch;
  plan_link_kind intra;   /* inside a node: PLAN_LINK_NVLINK, else taken as PCI */
  int ranks, nodes;       /* ranks >= nodes >= 1, spread evenly */
  double bus_bytes_per_s; /* one direction of the slowest link of the ring, all channels together */
  int channels;           /* 0: as many as an effective NVLink, or 12 GB/s of PCIe or network, makes of it */
  bool intel_cpu;         /* over several nodes NCCL picks LL's ceiling by the CPU; false: AMD */
  double bytes;
} plan_nccl_query;

typedef struct plan_nccl_cost {
  double latency_s, bandwidth_s; /* their sum is the time */
  double bus_bytes_per_s;        /* (bytes that one rank sends in a ring) / bandwidth_s; 0 when it sends nothing */
  plan_nccl_algorithm algorithm;
  plan_nccl_protocol protocol;
} plan_nccl_cost;

/* Reads the root table of nccl.toml; the model lives in `arena`. */
dp_status plan_nccl_read(const dp_node *root, dp_arena *arena, plan_nccl_model **model, dp_error *error);

/* The time of the cheapest algorithm and protocol; 0 for one rank or no bytes. cost may be NULL. */
double plan_nccl_time_s(const plan_nccl_model *model, const plan_nccl_query *query, plan_nccl_cost *cost);
/* The same for one given algorithm and protocol; infinity where NCCL has no such combination. */
double plan_nccl_time_of_s(const plan_nccl_model *model, const plan_nccl_query *query, plan_nccl_algorithm algorithm,
                           plan_nccl_protocol protocol, plan_nccl_cost *cost);

/* "Ampere sm80" -> Ampere; what NCCL does not know (AMD) counts as Ampere. */
plan_nccl_arch plan_nccl_arch_of(const plan_device_model *device);
/* What NCCL makes of the device's NVLinks, one way, all together; 0 without NVLink. */
double plan_nccl_nvlink_bytes_per_s(const plan_nccl_model *model, const plan_device_model *device);

/* A query without op and bytes: these devices, in a ring whose slowest route reaches `ring_bytes_per_s`. */
plan_nccl_query plan_nccl_query_of(const plan_nccl_model *model, const plan_cluster *cluster, const int *devices,
                                   int count, double ring_bytes_per_s);
/* An all-reduce of `bytes` over these devices, in a ring whose slowest route reaches `ring_bytes_per_s`. */
void plan_nccl_all_reduce(const plan_nccl_model *model, const plan_cluster *cluster, const int *devices, int count,
                          double ring_bytes_per_s, double bytes, plan_nccl_cost *cost);

#endif
