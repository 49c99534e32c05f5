/* What other planners would make of the same job on the same devices, to measure the search by.
 *
 * Each baseline chooses the best of its own grid: every number of stages, replicas and every microbatch size that the
 * search looked at, each with nothing and with everything recomputed, the last two also with just what memory needs,
 * whatever [search] says of schedules, skips and recomputation. So planners are compared, not a badly chosen batch.
 * None of them has tensor groups. Everything is predicted by sim_predict. A grid point is left out only where its step
 * cannot be shorter than the best found: with T_s the time of one microbatch on stage s, T their sum, p stages and m
 * microbatches a replica, each on the fastest device for it, the step takes at least
 *
 *   1F1B                           T + (m - 1) * max of T_s
 *   folded, sampling               max(T, m * max of T_s)
 *
 * with T / p instead of the largest T_s where diffpipe's own split is still to be found.
 */
#ifndef DP_SIM_BASELINE_H
#define DP_SIM_BASELINE_H

#include "sim/tune.h"

typedef enum sim_baseline_kind {
  SIM_BASELINE_REPLICAS,         /* one stage: data parallel alone */
  SIM_BASELINE_EQUAL_PARAMETERS, /* 1F1B, every stage as many weights as can be, frozen ones too; skips relayed: what
                                  * DeepSpeed's PipelineModule does with partition_method "parameters", whose stages
                                  * hand all tensors on to the next one */
  SIM_BASELINE_EQUAL_TRAINABLE,  /* the same with trainable weights only, as DeepSpeed counts; where some are frozen */
  SIM_BASELINE_EQUAL_UNITS,      /* 1F1B, every stage as many units ("uniform"); skips direct */
  SIM_BASELINE_STRAIGHT,         /* 1F1B with diffpipe's own split, skips direct */
  SIM_BASELINE_FOLDED,           /* no other planner: diffpipe's folded placement, to tell why it wins or does not */
  SIM_BASELINE_COUNT
} sim_baseline_kind;
extern const char *const sim_baseline_names[];  /* "replicas", "equal-parameters", ..., NULL */
extern const char *const sim_baseline_titles[]; /* "1F1B, equal parameters", ... */

typedef struct sim_baseline {
  sim_baseline_kind kind;
  sim_trial trial; /* the best of the grid; where nothing fits, the plan that is least over its memory. `why`: against
                    * the plan found. Not simulated: REFUSED, or WAITING where it was stopped */
  int *cuts;       /* stages - 1 ascending cut points of a split of its own; else NULL */
  int cut_count;
  double gain; /* throughput of the plan found over this one's, less 1; NAN where either does not fit */
  int grid, simulated;
} sim_baseline;

typedef struct sim_baselines {
  sim_baseline rows[SIM_BASELINE_COUNT]; /* those that apply, in the order of their kinds */
  int count;
  dp_arena arenas[SIM_BASELINE_COUNT];
} sim_baselines;

/* `tuned`: what sim_tune made of this scenario. Of `options` threads and stop count. On failure nothing is left to
 * free. The answer does not depend on the number of threads. */
dp_status sim_baselines_find(const plan_scenario *scenario, const sim_efficiency *efficiency,
                             const sim_tune_result *tuned, const sim_tune_options *options, sim_baselines *baselines,
                             dp_error *error);
void sim_baselines_free(sim_baselines *baselines);

/* The split of EQUAL_PARAMETERS or EQUAL_TRAINABLE (the largest stage as small as can be, then the most even; in a
 * study without weights every unit weighs one) or EQUAL_UNITS (the first units % stages stages have one more): stages -
 * 1 cuts. DP_BAD_INPUT for other kinds and for more stages than units. */
dp_status sim_baseline_split(sim_baseline_kind kind, const graph *model, int stages, int *cuts, dp_error *error);

#endif
