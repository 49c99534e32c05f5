/* A worker's memory: where in its one allocation, laid out as plan/memory.h says, and where in it everything lies;
 * internal to exec/.
 *
 * Nothing else of the worker grows with the model: bookkeeping (which gradients have begun, losses) is beside it.
 */
#ifndef DP_EXEC_LAYOUT_H
#define DP_EXEC_LAYOUT_H

#include "exec/chunk.h"
#include "plan/compressor.h"
#include "plan/memory.h"

/* One tensor of a message of gradients, as a chunk's backward adds it. */
typedef struct exec_arrival {
  uint32_t message;
  int tensor; /* of the graph */
  int port;   /* of the tensor, in the message */
  int to;     /* into targets */
} exec_arrival;

/* The gradients that a chunk's backward begins with, the furthest chunk's first. */
typedef struct exec_inbox {
  exec_arrival *arrivals;
  int count;
} exec_inbox;

typedef struct exec_layout {
  const plan_program *program;
  const graph *graph;
  const plan_worker_memory *plan;
  const plan_buffer **sorted; /* by what they are for */
  int worker, microbatches;
  char *base;          /* not owned */
  uint8_t *begun;      /* [microbatch * tensors] */
  plan_places *places; /* [chunk] of those of this worker */
  exec_memory *memory; /* [chunk * microbatches + microbatch] the same */
  /* [(port_first[message] + tensor of the message) * microbatches + microbatch]: where a message of this worker takes
   * it from or puts it. Messages are those of the first copy of the pipeline. */
  uint32_t *port_first;
  void **ports;
  exec_inbox *inboxes;                   /* [chunk] */
  void **targets;                        /* [to * microbatches + microbatch] */
  void **outputs, **output_gradients;    /* [microbatch] of the graph's output; NULL: made by another worker */
  float *values, *gradients, *optimizer; /* for exec_parameters_options */
  void **constants;                      /* [tensor]; NULL: not read here */
  void *workspace;                       /* of the kernels */
  size_t workspace_bytes;
  dp_arena arena;
} exec_layout;

/* base: plan->layout_bytes on a boundary of PLAN_ALIGNMENT, of a device or of the host, only pointed into. Whatever
 * `plan` points to must outlive it. DP_INTERNAL: the plan has no buffer for something that the worker needs. */
dp_status exec_layout_init(const plan_program *program, const graph *graph, const plan_worker_memory *plan, int worker,
                           char *base, exec_layout *layout, dp_error *error);
void exec_layout_free(exec_layout *layout); /* safe on a zeroed one */

/* An end of a compressed skip, of one microbatch: the tensor, its K values, and, where it is restored and trained, the
 * gradients of both. */
dp_status exec_layout_squeeze(const exec_layout *layout, const plan_compressor *compressor, bool down, int microbatch,
                              void **whole, void **packed, void **whole_gradient, void **packed_gradient,
                              dp_error *error);
/* A message's number in the first copy of the pipeline. */
uint32_t exec_layout_message(const plan_program *program, uint32_t message);
static inline void *exec_layout_port(const exec_layout *l, uint32_t message, int tensor, uint32_t microbatch) {
  return l->ports[(l->port_first[message] + (uint32_t)tensor) * (uint32_t)l->microbatches + microbatch];
}
static inline uint8_t *exec_layout_begun(const exec_layout *l, uint32_t microbatch) {
  return l->begun + microbatch * l->graph->tensors.count;
}

#endif
