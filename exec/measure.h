/* What ops, links and instructions cost on this machine, measured in the steps of real pipelines: the functions that
 * run, on the operands that they run on, with the caches as a step leaves them.
 *
 * Each program that is run tells something:
 *   one worker                   ops alone, the optimizer, what an instruction and a step take beside their ops
 *   replicas of one stage        ops while all workers compute side by side, sums of gradients
 *   a pipeline                   copies between workers, and how long others take to notice
 * Steps in which every op is timed take turns with steps in which only instructions are.
 */
#ifndef DP_EXEC_MEASURE_H
#define DP_EXEC_MEASURE_H

#include "exec/pipeline.h"
#include "plan/profile.h"

typedef struct exec_measure exec_measure;

dp_status exec_measure_create(int threads, exec_measure **measure, dp_error *error);
void exec_measure_free(exec_measure *measure); /* NULL is fine */

/* Runs a training program of one process for about `seconds`, and at least for a few steps. tick (NULL: none) is told
 * of every step. What exec_pipeline_create refuses is refused. */
typedef void (*exec_measure_tick)(void *data, double elapsed_s);
dp_status exec_measure_run(exec_measure *measure, const plan_program *program, const graph *graph, double seconds,
                           exec_measure_tick tick, void *data, dp_error *error);

/* Ops, laws, points and figures of the host from all that was run, with every fifth op kept aside for the error of
 * laws. What says which device this is stays empty: device, implementation, precision. DP_BAD_INPUT: no program of one
 * worker was run. */
dp_status exec_measure_profile(const exec_measure *measure, plan_profile *profile, dp_error *error);

/* What this machine calls its processor, and how many of its cores this process may use. `name` is in `arena`. */
dp_status exec_measure_machine(dp_arena *arena, const char **name, int *cores, dp_error *error);

#endif
