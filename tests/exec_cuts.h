/* A model cut in chunks that one worker runs, without a plan's memory layout: every buffer is a piece of its own, NaN
 * when a step begins, so that what is read before it is written shows. */
#ifndef DP_TESTS_EXEC_CUTS_H
#define DP_TESTS_EXEC_CUTS_H

#include "exec/chunk.h"

typedef struct exec_cuts {
  const graph *graph;
  plan_plan plan;
  bool split_backward;
  plan_places *places; /* [chunk] */
  exec_chunk *chunks;
  exec_memory *memory;
  float **inputs;              /* [tensor] of the graph: constants and what the feed would give; the caller's */
  float *target;               /* the caller's */
  float **values, **gradients; /* [tensor] of those that are outside; made when first asked for */
  float *output;               /* a copy of the output, after a step */
  int output_tensor;
  dp_arena arena;
} exec_cuts;

/* cuts[count]: first units of all chunks but the first. recompute[unit]: NULL is none. Fails the test when something is
 * refused. inputs and target must be set before a step. */
void exec_cuts_make(const graph *g, const int *cuts, int count, const uint8_t *recompute, bool split_backward,
                    const exec_parameters *parameters, kern_context *kern, exec_cuts *made);
void exec_cuts_free(exec_cuts *cuts);
/* From now on neighbouring actions run as groups, by `math`, memory is not poisoned while chunks run, and gradients of
 * weights are overwritten. */
void exec_cuts_fuse(exec_cuts *cuts, const exec_math *math);
/* Forward and backward of a microbatch that is the whole batch. Returns the loss. */
double exec_cuts_step(exec_cuts *cuts);

#endif
