/* The plan that a run goes over to when ways between its workers have become slow.
 *
 * Beforehand the tuner searches the scenario (sim/tune.h), and of every number of stages and replicas the most
 * promising candidates are kept: those that an executor can take a run over to, so without tensor groups and with every
 * skip exact. When ways are slow (plan/slow.h), each of them is predicted over the cluster as it is now, on the devices
 * in their order and, where it leaves some idle, without the one or the other end of the slowest way; a candidate whose
 * bound is no better than the best is passed over. The best is the fallback if it fits and is faster than the running
 * plan over the same cluster by SIM_FALLBACK_MARGIN: a change costs something, and predictions are wrong by something.
 */
#ifndef DP_SIM_FALLBACK_H
#define DP_SIM_FALLBACK_H

#include "plan/slow.h"
#include "sim/tune.h"

#define SIM_FALLBACK_MARGIN 0.05
enum { SIM_FALLBACKS_EACH = 2 }; /* of one number of stages and replicas */

typedef struct sim_fallbacks {
  dp_arena arena;
  sim_candidate *candidates; /* ascending in expected_s */
  double *expected_s;        /* a step over the cluster as it is said to be: none over a slow one is faster */
  int count;
  int64_t global_batch;
} sim_fallbacks;

/* Of plans whose workers `processes` share evenly. May take seconds. count 0: there is none. */
dp_status sim_fallbacks_prepare(const plan_scenario *scenario, const sim_efficiency *efficiency, int processes,
                                sim_fallbacks *fallbacks, dp_error *error);
void sim_fallbacks_free(sim_fallbacks *fallbacks); /* a zeroed one is fine */

/* Does not move, nor does the scenario that it was found for end, while its prediction is in use. */
typedef struct sim_fallback {
  bool found;
  plan_scenario scenario;    /* a view of the other, with the slow ways in its cluster */
  sim_prediction prediction; /* where found */
  sim_candidate candidate;
  double kept_s; /* a step of the running plan over the slow ways, predicted */
  dp_arena arena;
} sim_fallback;

/* `scenario`: of the running plan. `slow` outlives the fallback. */
dp_status sim_fallback_find(const sim_fallbacks *fallbacks, const plan_scenario *scenario,
                            const sim_efficiency *efficiency, const plan_slow_way *slow, int slow_count,
                            sim_fallback *fallback, dp_error *error);
/* The same fallback again, for another process: of a candidate on these devices. */
dp_status sim_fallback_take(const plan_scenario *scenario, const sim_efficiency *efficiency, const plan_slow_way *slow,
                            int slow_count, const sim_candidate *candidate, int64_t global_batch,
                            const int64_t *devices, sim_fallback *fallback, dp_error *error);
void sim_fallback_free(sim_fallback *fallback); /* a zeroed one is fine */

#endif
