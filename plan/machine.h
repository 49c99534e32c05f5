/* What a machine says of its GPUs, and the cluster file that follows from it.
 *
 * Who reads it from a driver is apart (exec/machine.h), so that the same facts, written down on one machine as JSON
 * (`format = "diffpipe-machine"`), give the cluster file on another.
 *
 * A GPU is the card of catalogue/devices.toml whose words are those of the driver's name for it. Left out of both are
 * sizes
 * ("80GB"), kinds of memory ("HBM3") and "NVIDIA", "Tesla", "GeForce", "GPU", "Generation", "Edition"; "SXM" need not
 * stand in the driver's name, and its number means nothing. A row's `driver_name` goes before. The memory must be
 * within -5 to +10 % of the card's (drivers count GiB as sellers count GB), the compute capability that of its
 * architecture.
 */
#ifndef DP_PLAN_MACHINE_H
#define DP_PLAN_MACHINE_H

#include "base/str.h"
#include "plan/cluster.h"

/* How far two GPUs are apart over PCIe, nearest first: NVML's levels. */
typedef enum plan_pcie_path {
  PLAN_PATH_INTERNAL,   /* on one board */
  PLAN_PATH_SINGLE,     /* one switch */
  PLAN_PATH_MULTIPLE,   /* several switches, no root complex */
  PLAN_PATH_HOSTBRIDGE, /* one root complex */
  PLAN_PATH_NODE,       /* root complexes of one socket */
  PLAN_PATH_SYSTEM,     /* two sockets */
  PLAN_PATH_COUNT
} plan_pcie_path;
extern const char *const plan_pcie_path_names[]; /* "internal", "single", ..., NULL */

typedef struct plan_machine_gpu {
  const char *name;                       /* as the driver says: "NVIDIA H200" */
  const char *uuid, *bus;                 /* "" where unknown, as are numbers that are 0 */
  int64_t memory_bytes;                   /* that can be allocated */
  int64_t capability;                     /* 90 for sm90 */
  int64_t pcie_generation, pcie_lanes;    /* what card and slot reach together */
  double power_w;                         /* limit */
  int64_t nvlink_version, switch_nvlinks; /* their generation, 4 for an H100's; active links into switches */
} plan_machine_gpu;

typedef struct plan_machine_pair {
  int64_t a, b;    /* GPUs, a < b */
  int path;        /* plan_pcie_path */
  bool peer;       /* each reads and writes the other's memory */
  int64_t nvlinks; /* active, from one to the other */
} plan_machine_pair;

typedef struct plan_machine {
  const char *name, *driver; /* of the host; "" where unknown */
  const char *cpu_vendor;    /* "AuthenticAMD", "GenuineIntel" */
  int64_t cpu_model;
  const plan_machine_gpu *gpus; /* in the driver's order, that of bus addresses */
  int gpu_count;
  const plan_machine_pair *pairs; /* each two once, by a and then b */
} plan_machine;

enum { PLAN_MAX_GPUS = 64 };

static inline int plan_machine_pair_count(const plan_machine *machine) {
  return machine->gpu_count * (machine->gpu_count - 1) / 2;
}
/* a != b, in any order. */
static inline const plan_machine_pair *plan_machine_pair_of(const plan_machine *machine, int a, int b) {
  const int low = a < b ? a : b, high = a < b ? b : a;
  return &machine->pairs[low * machine->gpu_count - low * (low + 1) / 2 + high - low - 1];
}

/* The catalogue's card. DP_BAD_INPUT: it has none, or more than one. */
dp_status plan_machine_model(const plan_machine_gpu *gpu, const plan_catalogue *catalogue,
                             const plan_device_model **model, dp_error *error);
/* Appends a cluster file. DP_BAD_INPUT: there is no GPU, or one that the catalogue does not know. */
dp_status plan_machine_cluster(const plan_machine *machine, const plan_catalogue *catalogue, dp_str *toml,
                               dp_error *error);

/* The facts as JSON: a new jansson object (json_t *); NULL no memory. Reading keeps all in the document and the arena.
 */
void *plan_machine_json(const plan_machine *machine);
dp_status plan_machine_read(const char *path, dp_document *document, dp_arena *arena, plan_machine *machine,
                            dp_error *error);

#endif
