/* What a prediction takes a microbatch of each unit to cost, as the type that measured times of units have. */
#ifndef DP_SIM_UNIT_TIMES_H
#define DP_SIM_UNIT_TIMES_H

#include "plan/unit_times.h"
#include "sim/predict.h"

/* From the units' costs on the devices of the first copy, stretched so that the units of a chunk take together what the
 * chunk's instructions take on average in the prediction: workers that compute at once, transfers, hosts and compressed
 * skips are spread over the units so. Of a prediction that prepared itself. Free with plan_unit_times_free. */
dp_status sim_unit_times(const plan_scenario *scenario, const sim_prediction *prediction, plan_unit_times *times,
                         dp_error *error);

#endif
