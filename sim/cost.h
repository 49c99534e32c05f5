/* The cost model: device time and host issue time of any piece of work.
 *
 * Time of an op, best source first: measured here for this exact shape, interpolated from a profile (both from a
 * profile.json, once there is one), else analytic roofline:
 *   t = max(flops / (peak * e_class(size)), bytes / (bandwidth * e_memory(bytes))) + launch gap,
 * with per-class efficiency curves from catalogue/efficiency.toml, where every number has its source. The answer says
 * which source each figure rests on, and how wide its error band is.
 */
#ifndef DP_SIM_COST_H
#define DP_SIM_COST_H

#include "graph/graph.h"
#include "plan/cluster.h"
#include "plan/program.h"

typedef struct sim_efficiency sim_efficiency; /* the file, parsed */

/* folder NULL: the installed catalogue. */
dp_status sim_efficiency_read(const char *folder, sim_efficiency **efficiency, dp_error *error);
void sim_efficiency_free(sim_efficiency *efficiency);

typedef enum sim_cost_source { SIM_COST_FIXED, SIM_COST_MEASURED, SIM_COST_INTERPOLATED, SIM_COST_ANALYTIC, SIM_COST_SOURCE_COUNT } sim_cost_source;
extern const char *const sim_cost_source_names[];

/* Device seconds of one direction of one op on a device. */
double sim_cost_work(const sim_efficiency *efficiency, const plan_device *device, graph_dtype precision, const graph_work *work);

/* Unit costs of a graph on a device: [unit] seconds and host issue seconds. Ops of class "memory" that follow their
 * producer in a unit are costed as own kernels unless the table says fused. */
typedef struct sim_unit_cost {
  double forward_s, backward_input_s, backward_weight_s;
  double forward_issue_s, backward_input_issue_s, backward_weight_issue_s;
  double by_class_s[GRAPH_CLASS_COUNT]; /* forward + backward, for "what bounds the step" */
  double error_band; /* relative, one sigma */
} sim_unit_cost;
dp_status sim_cost_units(const sim_efficiency *efficiency, const graph *graph, const plan_device *device, bool cuda_graphs,
                         double host_issue_factor, sim_unit_cost *units, dp_error *error);

/* Seconds of the optimizer step over `parameters` trainable parameters (one fused pass over weights, gradients, states). */
double sim_cost_optimizer(const sim_efficiency *efficiency, const plan_device *device, graph_dtype precision,
                          plan_optimizer optimizer, int64_t parameters);

/* Per-worker bytes outside the layout: CUDA context, communicators; and library workspace. */
int64_t sim_cost_runtime_bytes(const sim_efficiency *efficiency, const plan_device *device, int peers);
int64_t sim_cost_workspace_bytes(const sim_efficiency *efficiency, const plan_device *device);

#endif
