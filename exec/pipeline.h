/* A program run for real, by threads of one process: the `local` transport on the CPU.
 *
 * Every lane of the program is a thread that runs its instructions in their order, each when all in its wait list are
 * done; a SEND and its RECV meet, and the members of an ALL_REDUCE. So what runs is the program that the simulator
 * plays, and the timeline has the same type. Each worker has its units' weights, and a frame a microbatch with a place
 * for each tensor. Gradients that arrive are set aside and added, the furthest chunk's first, when the backward that
 * needs them begins, so that the sums do not depend on who was faster.
 *
 * Not yet: memory laid out by the plan, compressed skips, recomputation, tensor groups, sampling (all DP_UNSUPPORTED).
 */
#ifndef DP_EXEC_PIPELINE_H
#define DP_EXEC_PIPELINE_H

#include "exec/chunk.h"
#include "plan/program.h"
#include "plan/timeline.h"

/* What the model is fed: graph inputs as they lie in memory, and the target of the output. */
typedef struct exec_feed {
  /* Fills `out` with a graph input, or with the target where tensor is the output. Called by several threads. */
  void (*fill)(void *data, int replica, int microbatch, int tensor, float *out);
  void *data;
} exec_feed;

typedef struct exec_pipeline_options {
  int threads; /* of each worker's kernels; 0: 1 */
  exec_feed feed;
  kern_adamw adamw; /* step is counted here */
} exec_pipeline_options;

typedef struct exec_pipeline exec_pipeline;

/* The program, its plan and the graph must outlive it. Weights are zero: fill exec_pipeline_parameters. DP_UNSUPPORTED
 * names what is not known yet, or the first op without arithmetic. */
dp_status exec_pipeline_create(const plan_program *program, const graph *graph, const exec_pipeline_options *options,
                               exec_pipeline **pipeline, dp_error *error);
void exec_pipeline_free(exec_pipeline *pipeline); /* NULL is fine */
exec_parameters *exec_pipeline_parameters(exec_pipeline *pipeline, int worker);
kern_context *exec_pipeline_kernels(exec_pipeline *pipeline, int worker);
/* A constant input of a worker's frames, dense; NULL: none of its units reads it. */
float *exec_pipeline_constant(exec_pipeline *pipeline, int worker, int tensor);

/* One step: every instruction once. loss: the mean over the samples of all replicas. timeline (NULL or initialised for
 * the program) gets the times. DP_UNSUPPORTED: no thread could be started. */
dp_status exec_pipeline_step(exec_pipeline *pipeline, double *loss, plan_timeline *timeline, dp_error *error);

#endif
