/* A prediction under way: what the parts of sim_predict share; internal to sim/. */
#ifndef DP_SIM_PREDICTOR_H
#define DP_SIM_PREDICTOR_H

#include "plan/nccl.h"
#include "sim/predict.h"

/* Workers with equal devices, in tensor groups that communicate alike, share unit costs. */
typedef struct sim_device_kind {
  const plan_device *device;
  sim_cost_context context;
  const sim_unit_cost *units; /* with the collectives of the tensor group in device_s and issue_s, not in class_s */
  int link;                   /* of its tensor groups: into predictor.tensor_links */
  double *tensor_prefix[3];   /* running sums of these collectives alone; NULL without tensor groups */
  double *tensor_recompute_prefix;
  double *prefix[3];                                 /* [unit_count + 1] running sums of device_s by direction */
  double *issue_prefix[3];                           /* the same of issue_s */
  double model_s;                                    /* all units, both directions, with recomputation */
  double *recompute_prefix, *recompute_issue_prefix; /* of forward, over units that are recomputed */
  double *compress_s[2]; /* [chunk_count] to project and restore the skips of a forward, and of a backward */
} sim_device_kind;

typedef struct sim_predictor {
  const plan_scenario *scenario;
  const sim_prepared *prepared;
  sim_prediction *out;
  dp_arena scratch;
  sim_device_kind *kinds;
  int kind_count;
  int *kind_of_worker;
  int *rank_kind; /* [rank] the slowest of its replicas */
  plan_nccl_query *tensor_links; /* how tensor groups communicate; op and bytes are to be set */
  int tensor_link_count;
  int *tensor_link_of_worker; /* NULL without tensor groups */
  double *work_s, *work_issue_s;
  double *work_beside_s[2]; /* with a profile: what is to be added when all others run forwards, or anything else */
  double *work_tensor_s; /* the part of work_s that is collectives of the tensor group */
  sim_transfer *messages, *collectives;
  double *link_capacity; /* [link] bytes/s; then what is shared at each device, and of each node (predict_links.c) */
  bool roughly; /* what does not fit is not placed */
  dp_error *error;
} sim_predictor;

#define SIM_SCRATCH(p, type, count) DP_ARENA_NEW(&(p)->scratch, type, (size_t)(count))

static inline int sim_worker_device(const plan_plan *plan, int worker) { return plan->devices[worker]; }

static inline double sim_prefix_span(const double *prefix, int first, int count) {
  return prefix[first + count] - prefix[first];
}

/* Device seconds of a run of units. Sums of equal fixed costs must not depend on where in the graph they stand: they
 * are added one by one. */
double sim_kind_span_s(const sim_device_kind *kind, int direction, int first, int count);
/* Seconds of a unit on a kind of device, forward and backward, with recomputation. */
double sim_kind_unit_s(const sim_predictor *p, const sim_device_kind *kind, int unit);

/* Tensor groups (predict_tensor.c). A collective runs on the compute lane, alone on the group's devices: NCCL's cost
 * model at the pace of the slowest link of the ring, each link shared with the rings of the plan's other tensor groups,
 * which mostly communicate at the same time. Members keep in step: all take as long as the slowest of them computes.
 * Not modelled: pipeline transfers and gradient all-reduces that cross the same links meanwhile, and waiting for a
 * member that such a transfer has delayed. */
dp_status sim_predict_tensor_links(sim_predictor *p);
/* Adds the collectives to a kind's units. */
dp_status sim_predict_tensor_cost(sim_predictor *p, sim_device_kind *kind);
/* The sum of a rank's partial gradients, before its optimizer step. */
double sim_predict_tensor_optimizer_s(const sim_predictor *p, const sim_device_kind *kind, int rank);
/* Every member of a group has the kind of its slowest. */
void sim_predict_tensor_keep_step(sim_predictor *p);

/* The scenario's split, else the balanced one. */
dp_status sim_predict_set_chunks(sim_predictor *p);
void sim_predict_place_chunks(sim_predictor *p, const int *cuts); /* cuts[chunk_count - 1] */
/* Order, program and memory; where the balanced split does not fit, another one. */
dp_status sim_predict_compile(sim_predictor *p);
/* The same with the chunks as they are and, folded, 2 * ranks microbatches in flight, whether it fits or not. */
dp_status sim_predict_compile_once(sim_predictor *p);
/* Instead of sim_predict_compile: chooses the units to recompute, too. */
dp_status sim_predict_compile_recomputing(sim_predictor *p);
/* Lays out anew what did not fit and was not placed, unless the prediction is a rough one. */
dp_status sim_predict_place(sim_predictor *p);
/* Unit times after the plan's recompute flags changed. */
void sim_predict_cost_recompute(sim_predictor *p);
/* Device and host time of every work, routes of messages and collectives, and the run. */
dp_status sim_predict_run(sim_predictor *p);
/* Messages and all-reduces that the profile has measured (predict_links.c). */
/* The transfer's bytes are set; measured: all else of it is, too. */
dp_status sim_predict_measured_message(sim_predictor *p, int from_worker, int to_worker, const plan_route *route,
                                       sim_transfer *transfer, bool *measured);
/* By NCCL, over a ring of the members' devices; the transfer's bytes and links are set. False: nothing of it is known,
 * or set. */
bool sim_predict_measured_sum(sim_predictor *p, const plan_collective *collective, const int *devices,
                              const plan_link_model *limiting, double ring_bytes_per_s, sim_transfer *transfer);
/* In the memory of one machine or card: bound by its own time alone. */
void sim_predict_as_measured(const plan_profile *profile, plan_profile_point point, sim_transfer *transfer);
/* What of a measured transfer between processors of a machine is a hand-over (predict_waits.c). */
void sim_predict_hand_over(const plan_profile *profile, sim_transfer *transfer);
/* Whether workers take the norm of their gradients before they meet over it; else it is part of the optimizer's step. */
bool sim_predict_meets_for_norm(const sim_predictor *p);
/* Once the program has been played: all-reduces of the norm take as much longer as the last member needs for its own.
 * False: none does. */
bool sim_predict_norms(sim_predictor *p);
/* At the end: in the timeline transfers start and end as in a run. */
void sim_predict_tell_waits(sim_predictor *p);
/* With a profile: plays the program again with what workers of one machine cost each other, once it has been played. */
dp_status sim_predict_crowd(sim_predictor *p, const sim_input *input);
/* What bounds the step. */
dp_status sim_predict_bounds(sim_predictor *p);

#endif
