/* Studies around a search: how the best plan changes with the devices that may be used and with the batch, and what a
 * lossy skip's K would cost.
 *
 * Fewer devices and smaller batches are searches of their own, so the figure is of the best plan there. For larger
 * batches the 16 fastest plans of the search are simulated with more microbatches: a search would take many times the
 * first one's time, and what is fast with m microbatches seldom gets slow with 4 m. */
#ifndef DP_SIM_STUDY_H
#define DP_SIM_STUDY_H

#include "sim/tune.h"

typedef struct sim_study_point {
  int devices; /* the first so many of the cluster, in its order; price and power in proportion */
  int64_t global_batch;
  bool found, fits; /* a plan could be simulated; it fits */
  sim_trial trial;  /* the best that fits, else the nearest; `why` is NULL */
} sim_study_point;

typedef struct sim_study_k {
  int64_t k; /* 0: skips exact */
  int64_t skip_bytes, peak_bytes;
  double step_s, throughput_samples_per_s;
  bool fits;
} sim_study_k;

typedef struct sim_study {
  dp_arena arena;
  sim_study_point *devices; /* 1, 2, 4, ... and all */
  sim_study_point *batches; /* a quarter, half, once, twice, four times the global batch, where that is whole */
  sim_study_k *ks;          /* exact, then each K of the search; none unless lossy skips are allowed */
  int device_count, batch_count, k_count;
  sim_candidate k_layout; /* of ks: the best plan, or the best of more than one stage, for one sends no skips */
  bool stopped;           /* points are missing */
} sim_study;

/* `result`: of sim_tune on this scenario. options.progress is called after each point with done and total points.
 * Points at which there is no plan to try are left out. */
dp_status sim_study_run(const plan_scenario *scenario, const sim_efficiency *efficiency, const sim_tune_result *result,
                        const sim_tune_options *options, sim_study *study, dp_error *error);
void sim_study_free(sim_study *study);

#endif
