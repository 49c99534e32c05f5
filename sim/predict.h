/* A whole prediction: scenario in, plan, program, timeline, memory and metrics out. */
#ifndef DP_SIM_PREDICT_H
#define DP_SIM_PREDICT_H

#include "plan/memory.h"
#include "plan/scenario.h"
#include "plan/timeline.h"
#include "sim/cost.h"
#include "sim/engine.h"
#include "sim/prepared.h"

#define SIM_BOUND_HOST "host issuing work"
/* What bounds a worker or the step, largest first. */
typedef struct sim_bound {
  const char
      *name;    /* "compute: convolution", "communication", "pipeline bubble", SIM_BOUND_HOST, "optimizer step", ... */
  double share; /* of workers * step_s; all shares sum to 1 */
} sim_bound;
enum { SIM_MAX_BOUNDS = 12 };

/* The worker with the least room, or most over. */
typedef struct sim_shortage {
  int worker;
  int64_t peak_bytes, limit_bytes, activation_bytes;
} sim_shortage;

typedef struct sim_prediction {
  graph graph; /* a view: `own` or the caller's sim_prepared has it */
  plan_plan plan;
  plan_program program;
  plan_timeline timeline;
  plan_metrics metrics;
  plan_memory memory;
  sim_statistics statistics;
  int64_t *memory_limit_bytes; /* [worker] */
  bool fits;
  plan_split_way split_way; /* "auto" settled */
  sim_shortage without_recomputation; /* recompute = "auto": why the balanced split needed something else;
                                       * all 0: it did not */
  int tightest_worker;                /* least room left, or most over */
  sim_bound bounds[SIM_MAX_BOUNDS];
  int bound_count;
  double error_band;                                 /* relative, of step_s */
  double source_share[PLAN_SOURCE_COUNT];            /* of the ops' time; without a profile all is analytic */
  double usd_per_million_samples, joules_per_sample; /* 0: a price or power is unknown */
  dp_arena arena;
  sim_prepared own; /* empty when the caller prepared */
} sim_prediction;

/* The scenario must outlive the prediction. Of a folded placement whose split is open both ways are predicted, and the
 * faster one is kept. */
dp_status sim_predict(const plan_scenario *scenario, const sim_efficiency *efficiency, sim_prediction *prediction,
                      dp_error *error);
/* The same for one of many plans of a job. `prepared`: of this scenario's job and the plan's microbatch size and tensor
 * group (others are an error); it must outlive the prediction. */
dp_status sim_predict_prepared(const plan_scenario *scenario, const sim_prepared *prepared, sim_prediction *prediction,
                               dp_error *error);
sim_shortage sim_prediction_shortage(const sim_prediction *prediction);
/* The same for a search: the memory of a plan that does not fit may be the least that any layout takes. */
dp_status sim_predict_roughly(const plan_scenario *scenario, const sim_prepared *prepared, sim_prediction *prediction,
                              dp_error *error);
void sim_prediction_free(sim_prediction *prediction);

#endif
