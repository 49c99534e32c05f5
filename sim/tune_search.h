/* A search under way: what its parts share; internal to sim/. */
#ifndef DP_SIM_TUNE_SEARCH_H
#define DP_SIM_TUNE_SEARCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "sim/tune_space.h"

enum { SIM_REFINING_TRIALS = 96 }; /* at most; there is room for as many after the candidates' trials */

typedef struct sim_search {
  const plan_scenario *scenario;
  const sim_space *space;
  const sim_tune_options *options;
  sim_tune_result *result;
  int threads;
  bool roughly;   /* as sim_predict_roughly */
  double until_s; /* on the clock; INFINITY: none */
  int64_t most_trials, taken;
  /* the round */
  const int *order; /* trial indices */
  int count;
  atomic_int next;
  atomic_bool out_of_memory;
  pthread_mutex_t arena_lock;
} sim_search;

/* Simulates the trials that wait, in rounds, until the search must stop; then finds the best anew. DP_NO_MEMORY. */
dp_status sim_search_run(sim_search *search, const int *trials, int count);

/* Policies by skip tensor for the best plan. */
dp_status sim_tune_refine(sim_search *search);

/* Counts, why-sentences, Pareto front and neighbours. */
dp_status sim_tune_sum_up(sim_tune_result *result, dp_error *error);

/* In how many choices two candidates differ; the number of microbatches follows from the others. Skips apart from the
 * policy count only where nothing else differs. */
int sim_candidate_differences(const sim_candidate *a, const sim_candidate *b);

#endif
