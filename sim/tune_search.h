/* A search under way: what its parts share; internal to sim/. */
#ifndef DP_SIM_TUNE_SEARCH_H
#define DP_SIM_TUNE_SEARCH_H

#include "sim/tune_space.h"

/* Counts, why-sentences, Pareto front and neighbours. */
dp_status sim_tune_sum_up(sim_tune_result *result, dp_error *error);

#endif
