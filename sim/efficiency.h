/* The parsed efficiency file: what cost.c computes with. Private to sim/. */
#ifndef DP_SIM_EFFICIENCY_H
#define DP_SIM_EFFICIENCY_H

#include "base/array.h"
#include "base/node.h"
#include "plan/memory.h"
#include "sim/cost.h"

enum { SIM_MAX_POINTS = 24 };

typedef struct sim_curve {
  const char *implementation; /* NULL: of those that have none of their own */
  int op_class;               /* graph_op_class */
  int backward;               /* 0 forward, 1 backward */
  int backend;                /* attention: 0 cudnn, 1 flash; else 0 */
  int64_t head_dim;           /* attention; else 0 */
  bool any_order;             /* where sums may have any order */
  int points;
  double ideal_s[SIM_MAX_POINTS], share[SIM_MAX_POINTS];
} sim_curve;

typedef struct sim_architecture {
  const char *prefix;
  double attention[2][2]; /* [backend][backward] */
} sim_architecture;

/* What parts of a card do beyond their share of its SMs, log-linear in that share: of products a factor of their speed, of
 * memory one of their bandwidth, which is at most the card's. */
typedef struct sim_partition {
  int points; /* 0: nothing is said */
  double share[SIM_MAX_POINTS], factor[2][GRAPH_CLASS_COUNT][SIM_MAX_POINTS]; /* forward, backward */
} sim_partition;

struct sim_implementation {
  const char *name;
  bool measured; /* whole models were compared with it */
  bool fuses;    /* elementwise ops run inside the kernels before them; else memory is laid out for plan/places.h */
  bool splits_masters; /* plan_optimizer_bytes */
  bool overwrites_gradients; /* plan_memory_options.overwrites */
  int attention_backend;
  int64_t key_tile, least_head_dim; /* attention pads its keys to multiples of the one, head dimensions to the other */
  double issue_s_per_kernel[2];     /* forward, backward */
  double issue_s_per_instruction;
  double instruction_s; /* of the device itself, beside its ops */
  double optimizer_efficiency;
  double context_bytes, communicator_bytes, workspace_bytes;
  double process_bytes; /* in equal parts of the workers of a machine, on GPUs of the parts of a card */
  double error_band;     /* of whole steps on the curves' architecture; 0: the file's */
  double kernel_share[2][GRAPH_OP_KIND_COUNT]; /* forward, backward */
  sim_partition partition; /* where algorithms are chosen on the very part; else the file's */
  double gradient_share; /* how many times its curve's time adding to weights' gradients takes; 0: they are written once */
  plan_library_workspace library_workspace; /* instead of workspace_bytes; NULL: not known */
};

struct sim_efficiency {
  dp_document document;
  const char *reference_architecture; /* of the reference device, first word */
  double best_product_share;
  DP_ARRAY(sim_curve) curves;
  DP_ARRAY(sim_architecture) architectures;
  DP_ARRAY(sim_implementation) implementations;
  double partition_bandwidth; /* times its share of SMs: of the memory's, while no other part computes */
  sim_partition partition;
  double band_reference, band_other, band_recalled, band_unmeasured, band_measured;
};

/* Seconds for work whose ideal time is ideal_s: the logarithm of the time is linear in that of ideal_s between points;
 * constant time below the first point, constant share above the last. Never decreases. */
double sim_curve_time_s(const sim_curve *curve, double ideal_s);
/* The implementation's own, for sums in any order if these may have it and it has one for them, else the common one; NULL
 * when the file has none (the reader makes sure that it has the ones cost.c asks for). */
const sim_curve *sim_efficiency_curve(const sim_efficiency *efficiency, const sim_implementation *implementation,
                                      int op_class, int backward, int backend, int64_t head_dim, bool any_order);

#endif
