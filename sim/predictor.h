/* A prediction under way: what the parts of sim_predict share; internal to sim/. */
#ifndef DP_SIM_PREDICTOR_H
#define DP_SIM_PREDICTOR_H

#include "sim/predict.h"

/* Workers with equal devices share unit costs. */
typedef struct sim_device_kind {
  const plan_device *device;
  sim_cost_context context;
  const sim_unit_cost *units;
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
  double *work_s, *work_issue_s;
  sim_transfer *messages, *collectives;
  bool adapted; /* the balanced split, or as many microbatches in flight as wished, did not fit */
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

/* The scenario's split, else the balanced one. */
dp_status sim_predict_set_chunks(sim_predictor *p);
void sim_predict_place_chunks(sim_predictor *p, const int *cuts); /* cuts[chunk_count - 1] */
/* Order, program and memory; where the balanced split does not fit, another one. */
dp_status sim_predict_compile(sim_predictor *p);
/* The same with the chunks as they are and, folded, 2 * ranks microbatches in flight, whether it fits or not. */
dp_status sim_predict_compile_once(sim_predictor *p);
/* Instead of sim_predict_compile: chooses the units to recompute, too. */
dp_status sim_predict_compile_recomputing(sim_predictor *p);
/* Unit times after the plan's recompute flags changed. */
void sim_predict_cost_recompute(sim_predictor *p);
/* Device and host time of every work, routes of messages and collectives, and the run. */
dp_status sim_predict_run(sim_predictor *p);
/* What bounds the step. */
dp_status sim_predict_bounds(sim_predictor *p);

#endif
