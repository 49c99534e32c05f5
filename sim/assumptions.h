/* What a prediction rests on: every figure that somebody outside has to be believed for, with the source that the
 * catalogue states, and the error to expect of it where one is known. */
#ifndef DP_SIM_ASSUMPTIONS_H
#define DP_SIM_ASSUMPTIONS_H

#include "sim/predict.h"

typedef struct sim_assumption {
  const char *what, *value, *source;
  double error_band; /* relative, one standard deviation, of what rests on it; 0: none is stated */
} sim_assumption;

/* Of the cards and link classes of the scenario's cluster, the curves of the op classes in the model, how ops are run,
 * collectives, and the error band of the step itself, which comes first. In `arena`. */
dp_status sim_assumptions_of(const plan_scenario *scenario, const sim_efficiency *efficiency,
                             const sim_prediction *prediction, dp_arena *arena, const sim_assumption **assumptions,
                             int *count, dp_error *error);

#endif
