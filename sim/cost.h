/* The cost model: device time and host issue time of any piece of work.
 *
 * Time of an op, best source first: measured for this exact shape, interpolated from a profile (both from a
 * profile.json: plan/profile.h), else the analytic roofline used here:
 *
 *   compute_s = flops / peak,  traffic_s = bytes / memory bandwidth           (at the data sheet's figures)
 *   t = max(compute_s / e_class(compute_s), traffic_s / e_memory(traffic_s))
 *
 * e is an efficiency curve of catalogue/efficiency.toml: the achieved share of the peak as a function of the ideal
 * time, the time log-log interpolated between its points, the share flat above the last, the time constant below the
 * first (a launch cannot be shorter). Curves are functions of ideal time, not of size, because what spoils small
 * kernels (launch, ramp-up, the last wave) takes about the same time on a fast card and on a slow one. Matrix products
 * and convolutions are scaled by what the card's best product reaches against what the curves' card reaches. Attention
 * pads its keys to a tile and small head dimensions to a least one, by default 128 and 64. A part of a card (virtual
 * device) has its share of peak and bandwidth, times a measured factor per class where algorithms were not chosen for it.
 * Every number and its source stand in the file, none in the code.
 */
#ifndef DP_SIM_COST_H
#define DP_SIM_COST_H

#include "graph/graph.h"
#include "plan/cluster.h"
#include "plan/memory.h"
#include "plan/plan.h"
#include "plan/profile.h"

/* The file, parsed. Ownership: free with sim_efficiency_free, after everything that came from it. */
typedef struct sim_efficiency sim_efficiency;
/* How ops are run: which attention kernel, what is fused, what the host pays. One [[implementation]] of the file. */
typedef struct sim_implementation sim_implementation;

/* folder NULL: the installed catalogue. */
dp_status sim_efficiency_read(const char *folder, sim_efficiency **efficiency, dp_error *error);
void sim_efficiency_free(sim_efficiency *efficiency);
/* What the kernels of an implementation of that name need, in place of the file's workspace: the executor's own figure, so
 * that what is predicted is what it allocates. NULL: not known. */
void sim_efficiency_use_library(sim_efficiency *efficiency, const char *implementation,
                                plan_library_workspace workspace);
/* DP_BAD_INPUT listing the known names when there is none of that name; `node` may be NULL. */
dp_status sim_efficiency_implementation(const sim_efficiency *efficiency, const char *name, const dp_node *node,
                                        const sim_implementation **implementation, dp_error *error);

typedef struct sim_cost_context {
  const sim_efficiency *efficiency;
  const sim_implementation *implementation;
  const plan_device *device;
  graph_dtype precision;
  bool any_order;              /* of sums, where that is faster: train.deterministic = false */
  bool gradient_fp32;          /* gradients of weights are fp32 whatever the precision */
  bool cuda_graphs;            /* the host issues one launch a chunk instead of one a kernel */
  double host_issue_factor;    /* how much slower than the reference this host is */
  const plan_profile *profile; /* of this device; NULL: nothing was measured */
} sim_cost_context;

typedef enum sim_direction {
  SIM_FORWARD,
  SIM_BACKWARD_INPUT,
  SIM_BACKWARD_WEIGHT
} sim_direction; /* as plan_direction */

/* Device seconds of one direction of one op by the roofline; 0 where nothing runs. Gradients of weights are added to. */
double sim_cost_op(const sim_cost_context *context, const graph_op *op, sim_direction direction);
/* The same of an op of a model, with what an executor that fuses nothing copies where the graph has a view. */
double sim_cost_op_of(const sim_cost_context *context, const graph *model, int op, sim_direction direction);

/* Costs of one unit on one device. */
typedef struct sim_unit_cost {
  double device_s[3];                   /* by sim_direction */
  double issue_s[3];                    /* host seconds to issue it, kernel by kernel; 0 with CUDA graphs */
  double class_s[3][GRAPH_CLASS_COUNT]; /* device_s by op class */
  double beside_s[3][2]; /* what is to be added while all other workers run forwards side by side, or anything else */
  double spared_s;             /* of a forward, what a recomputation does not run again */
  double first_s[3];           /* what is to be added in a step's first microbatch */
  double whole_s;              /* what is to be added where a backward is not split */
  double source_s[PLAN_SOURCE_COUNT];   /* device_s of all directions by what it rests on; without a profile 0 */
} sim_unit_cost;
/* units[model->units.count]. Units with fixed costs have exactly those. With a profile the loss is in the forward of
 * the unit that makes the output. */
dp_status sim_cost_units(const sim_cost_context *context, const graph *model, sim_unit_cost *units, dp_error *error);
/* By the curves alone: adds to a zeroed unit. */
void sim_cost_unit_by_curves(const sim_cost_context *context, const graph *model, int unit, sim_unit_cost *cost);
/* The same from the context's profile. */
dp_status sim_cost_profile_units(const sim_cost_context *context, const graph *model, sim_unit_cost *units,
                                 dp_error *error);

/* Of a model's units that the context's profile has: what they took forward, and backward, and what the curves say. Adds
 * to both. DP_NO_MEMORY. */
typedef struct sim_against_curves {
  double measured_s[2], curves_s[2];
} sim_against_curves;
dp_status sim_cost_against_curves(const sim_cost_context *context, const graph *model, sim_against_curves *sums,
                                  dp_error *error);

/* Host seconds to launch one kernel of a direction; 0 with CUDA graphs. */
double sim_cost_launch_s(const sim_cost_context *context, sim_direction direction);

/* Host seconds to issue one instruction whatever is in it (a graph launch, bookkeeping). */
double sim_cost_instruction_issue_s(const sim_cost_context *context);

/* Device seconds of one instruction beside its ops: what a device that issues its own work spends on it. */
double sim_cost_instruction_s(const sim_cost_context *context);
/* The share of a unit's forward that its recomputation adds to a backward without it: the rest nobody reads then, or that
 * backward makes again anyway. */
double sim_cost_again_share(const sim_cost_context *context, const graph *model, int unit);
/* By a profile of units: of the chunk that takes the model's inputs, and of the one that has the loss. */
double sim_cost_forward_s(const sim_cost_context *context, bool feeds, bool has_loss);
/* Of a worker's gradients, before the workers meet over it; 0: it is part of the optimizer's step. */
double sim_cost_norm_s(const sim_cost_context *context, int64_t parameters);
/* The same where no others are met: what sim_cost_optimizer is without; 0: it has it. */
double sim_cost_own_norm_s(const sim_cost_context *context, int64_t parameters);

/* Seconds of the optimizer step over `parameters` trainable parameters: one fused pass over weights, gradients, states;
 * as measured for AdamW where there is a profile, with what a step takes beside its instructions. Of a part of a GPU:
 * while no other part computes. */
double sim_cost_optimizer(const sim_cost_context *context, plan_optimizer optimizer, bool gradient_fp32,
                          int64_t parameters);

/* Seconds to project a skip tensor [B, C, H, W] to K values a sample, or back: bound by one read of the tensor. */
double sim_cost_compress(const sim_cost_context *context, int64_t tensor_bytes, int64_t samples, int64_t k);

/* Per-worker bytes outside the layout (CUDA context, a communicator per peer, its part of what is shared: on a processor
 * the process that `sharers` workers of a machine are in, on a GPU what its parts share), and library workspace. */
int64_t sim_cost_runtime_bytes(const sim_cost_context *context, int peers, int sharers);
int64_t sim_cost_workspace_bytes(const sim_cost_context *context);
/* How memory is laid out on workers with so many peers, so many to a machine, of as many threads as their devices have
 * cores. */
plan_memory_options sim_cost_memory_options(const sim_cost_context *context, int peers, int sharers);

/* What is to be added to it while all workers compute side by side: on parts of a GPU, so many times as long less one as
 * sim_cost_optimizer_crowd says. 1: they do not wait for each other's memory. */
double sim_cost_optimizer_busy_s(const sim_cost_context *context, plan_optimizer optimizer, bool gradient_fp32,
                                 int64_t parameters);
double sim_cost_optimizer_crowd(const sim_cost_context *context);

/* Relative error to expect of figures that rest on a source, on this device, one standard deviation. */
double sim_cost_source_band(const sim_cost_context *context, plan_source source);
/* Relative error to expect of analytic figures on this device, one standard deviation. */
double sim_cost_error_band(const sim_cost_context *context);
/* The same of the device alone: how far devices are from what the curves carry over to them. */
double sim_efficiency_device_band(const sim_efficiency *efficiency, const plan_device_model *model);

#endif
