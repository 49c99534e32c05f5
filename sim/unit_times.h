/* What a prediction takes a microbatch of each unit to cost, as the type that measured times of units have. */
#ifndef DP_SIM_UNIT_TIMES_H
#define DP_SIM_UNIT_TIMES_H

#include "plan/unit_times.h"
#include "sim/predict.h"

/* On the device of the unit's first copy, without hosts, compressed skips and collectives of tensor groups. `prepared`:
 * what the prediction was made with; NULL: it prepared itself. Free with plan_unit_times_free. */
dp_status sim_unit_times(const plan_scenario *scenario, const sim_prepared *prepared, const sim_prediction *prediction,
                         plan_unit_times *times, dp_error *error);

#endif
