/* The device catalogue: what a card can do, who says so, and whether that was verified.
 *
 * Read from catalogue/devices.toml of the data folder; a cluster file may add its own rows. Every figure's source stands
 * in the row. Ownership: the catalogue's document owns all strings.
 */
#ifndef DP_PLAN_DEVICE_H
#define DP_PLAN_DEVICE_H

#include "base/array.h"
#include "base/node.h"
#include "graph/graph.h"

/* How cards of one machine reach each other besides PCIe. */
typedef enum plan_interconnect {
  PLAN_INTERCONNECT_NONE,
  PLAN_INTERCONNECT_NVLINK,          /* SXM boards: NVSwitch by default */
  PLAN_INTERCONNECT_NVLINK_BRIDGE,   /* pairs, only where a cluster file says so */
  PLAN_INTERCONNECT_INFINITY_FABRIC, /* AMD: a mesh by default */
  PLAN_INTERCONNECT_COUNT
} plan_interconnect;
extern const char *const plan_interconnect_names[]; /* "none", "nvlink", "nvlink-bridge", "infinity-fabric", NULL */

typedef struct plan_device_model {
  const char *name; /* "A100-SXM4-80GB" */
  const char *driver_name;  /* what its driver calls it, where plan/machine.h's rule does not tell; "" */
  const char *architecture; /* "Ampere sm80" */
  int64_t memory_bytes; /* GB of the data sheet times 1e9 */
  double memory_bandwidth_bytes_per_s;
  double peak_flops_per_s[GRAPH_DTYPE_COUNT]; /* dense, fp32 accumulation; fp32 means without tensor cores */
  double tf32_flops_per_s, fp8_flops_per_s; /* 0: not supported */
  double achieved_flops_per_s; /* best bf16 matrix product measured by others; 0: none */
  int64_t sm_count, l2_bytes;
  double tdp_w, price_usd_per_h; /* price 0: unknown */
  double purchase_usd;           /* 0: unknown */
  int64_t nvlink_generation, pcie_generation, pcie_lanes; /* NVLink 0: none; PCIe 0: a processor */
  double nvlink_bytes_per_s;     /* one way, all links together */
  double c2c_bytes_per_s;        /* one way to a Grace CPU, in place of PCIe; 0: none */
  plan_interconnect interconnect;
  const char *interconnect_link; /* its class of link; "" when there is none */
  bool peer_to_peer;             /* direct copies over PCIe; else staged through the host */
  const char *memory_type;       /* "HBM3" */
  const char *source, *price_source, *achieved_source, *notes; /* "" when none */
  const char *verified, *recalled; /* which figures were checked against a source, which are from memory */
  const dp_node *node; /* where the row stands */
} plan_device_model;

/* A class of links: alpha + n / beta, with beta's achieved share by message size, and what it does to compute. */
typedef enum plan_link_kind {
  PLAN_LINK_NVLINK,
  PLAN_LINK_PCIE,
  PLAN_LINK_NETWORK,
  PLAN_LINK_MEMORY, /* copies inside one card: virtual devices */
  PLAN_LINK_HOST,   /* between CPU sockets */
  PLAN_LINK_KIND_COUNT
} plan_link_kind;
extern const char *const plan_link_kind_names[]; /* "nvlink", "pcie", "network", "memory", "host", NULL */

typedef struct plan_link_size_factor {
  double bytes, factor; /* share of `bandwidth_bytes_per_s` that a message of this size reaches; linear in log(bytes) between */
} plan_link_size_factor;

typedef struct plan_link_model {
  const char *name; /* "nvlink3", "pcie4-x16", "ib-hdr200" */
  plan_link_kind kind;
  double bandwidth_bytes_per_s; /* one way, achieved ceiling (the theoretical one stands in theoretical_) */
  double theoretical_bytes_per_s;
  double latency_s;
  double busy_latency_s;         /* the same beside compute on either end; 0: unchanged */
  double busy_bandwidth_factor;  /* share of the bandwidth left beside compute; 1: unchanged */
  double compute_slowdown;       /* compute on both ends runs (1 + this) times longer while a transfer is under way */
  plan_link_size_factor *size_factors; /* ascending in bytes; none: 1 */
  int size_factor_count;
  plan_link_size_factor *busy_size_factors; /* the same beside compute; none: see plan_link_busy_factor */
  int busy_size_factor_count;
  int64_t nccl_sms; /* of NCCL on multiprocessors of its own: so many carry the bandwidth; 0: it is no such class */
  bool whole_port; /* the figure is a device's whole port: a mesh divides it among its peers */
  double reference_memory_bytes_per_s; /* copies inside a card: measured at this memory bandwidth, scaled by the card's;
                                          0: not scaled */
  const char *source, *notes;
  bool verified;
  const dp_node *node;
} plan_link_model;

/* NCCL's published cost model for collectives (NVIDIA/nccl src/graph/tuning.cc); times in s, bandwidths in bytes/s. */
typedef struct plan_nccl_model plan_nccl_model; /* read from catalogue/nccl.toml by plan_catalogue_read; see plan/nccl.h */

typedef struct plan_catalogue {
  dp_document devices_document, links_document, nccl_document;
  DP_ARRAY(plan_device_model) devices;
  DP_ARRAY(plan_link_model) links;
  plan_nccl_model *nccl;
  dp_arena arena;
} plan_catalogue;

/* folder NULL: dp_data_folder() + "/catalogue". */
dp_status plan_catalogue_read(const char *folder, plan_catalogue *catalogue, dp_error *error);
void plan_catalogue_free(plan_catalogue *catalogue);
/* NULL when there is none of that name. */
const plan_device_model *plan_catalogue_device(const plan_catalogue *catalogue, const char *name);
const plan_link_model *plan_catalogue_link(const plan_catalogue *catalogue, const char *name);
double plan_link_factor(const plan_link_model *link, double bytes);
/* The same beside compute: busy_size_factors where measured, else plan_link_factor times busy_bandwidth_factor. */
double plan_link_busy_factor(const plan_link_model *link, double bytes);
/* busy_latency_s, or latency_s where it is 0 (unchanged). */
double plan_link_busy_latency_s(const plan_link_model *link);

/* A worker's share of the processors: on no bus, but in the memory that all workers of its machine have. */
static inline bool plan_device_is_processor(const plan_device_model *model) { return model->pcie_generation == 0; }

/* Green contexts come in multiples of so many SMs (CUDA driver API, cuDevSmResourceSplitByCount): 8 from Hopper on, 2
 * before. */
int64_t plan_device_sm_step(const plan_device_model *model);

/* Rows of a cluster file's own [[device]] and [[link]] tables, by the same rules. */
dp_status plan_device_model_read(const dp_node *table, plan_device_model *model, dp_error *error);
dp_status plan_link_model_read(const dp_node *table, dp_arena *arena, plan_link_model *model, dp_error *error);

#endif
