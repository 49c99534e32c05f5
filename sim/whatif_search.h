/* What the parts of a what-if share; internal to sim/. */
#ifndef DP_SIM_WHATIF_SEARCH_H
#define DP_SIM_WHATIF_SEARCH_H

#include "sim/whatif.h"

/* hardware->gain[resource], of a row that fits: its best plan predicted again with a tenth more of that. */
dp_status sim_hardware_measure_gain(sim_hardware *hardware, const sim_efficiency *efficiency, sim_resource resource,
                                    dp_error *error);

/* "the nearest plan is 4 stages x 1 replica, ...: worker 2 needs 43.1 of 40.0 GB, ..."; in `arena`, NULL: no memory. */
const char *sim_trial_why_not(const sim_trial *nearest, dp_arena *arena);

/* One search, or in a fixed plan one prediction, of the job with KEY=VALUE set. `hint`: a plan that may fit and bound
 * the search, or NULL. `fixed`: as sim_whatif_request.plan_fixed; *kept is the plan kept so far (stages 0: none), and
 * set by the first point that fits. What `point` holds is in `arena`. */
typedef struct sim_point_job {
  const sim_whatif_request *request;
  const char *cluster_path, *key, *value;
  const sim_candidate *hint;
  bool fixed, own_plan;
  sim_candidate *kept;
  dp_arena *arena;
} sim_point_job;
dp_status sim_sweep_point_find(const sim_point_job *job, sim_sweep_point *point, dp_error *error);

#endif
