/* The arithmetic of a run of units on the CPU: forward, and backward in one part or in two, over tensors whose places
 * others decide.
 *
 * A chunk knows the ops of its units in order. A frame holds, for one microbatch, where the value and the gradient of
 * each tensor lie that its ops touch, and the statistics that norms and attention keep. Whoever makes a frame (here:
 * one block of memory with a place of its own for every tensor) may let places be shared by tensors that do not live at
 * once. Gradients: the first op that adds to one overwrites it, the others add; a tensor that none has reached has
 * none.
 *
 * Activations are channels-last: [B, C, H, W] lies as [B, H, W, C], so that turning images into tokens moves nothing.
 */
#ifndef DP_EXEC_CHUNK_H
#define DP_EXEC_CHUNK_H

#include "exec/parameters.h"
#include "plan/profile.h"

typedef struct exec_frame {
  int *root; /* [tensor] whose place it has: a reshape's output shows its input's memory */
  float **values,
      **gradients;    /* [tensor of the graph]; NULL: not of this chunk; gradients NULL too where none is wanted */
  uint8_t *begun;     /* [tensor] its gradient holds something */
  float **statistics; /* [op of the graph] what it keeps for backward beside tensors; NULL: nothing */
  dp_arena arena;
} exec_frame;

/* Is told how long each op took, by the thread that did it. `on` may change between two passes. */
typedef struct exec_observer {
  bool on;
  void (*note)(void *data, int worker, int op, plan_direction direction, double seconds);
  void *data;
} exec_observer;

typedef struct exec_chunk {
  const graph *graph;
  int first_unit, unit_count, first_op, op_count;
  const exec_parameters *parameters;
  const exec_lora *adapters; /* [op of the graph], rank 0: none; NULL: none at all */
  kern_context *kern;
  const exec_observer *observer; /* NULL: nobody looks */
  int worker;                    /* what the observer is told */
} exec_chunk;

/* Most workspace that any op of the units needs: for the kern_context to be made. */
size_t exec_chunk_workspace(const graph *graph, int first_unit, int unit_count, int threads);

/* Places for every tensor that the units here make or read and, with gradients, for the gradient of each that needs
 * one. here[unit]: nonzero for those of this worker; NULL: all. Values of graph inputs are left NULL: the caller sets
 * them. */
dp_status exec_frame_init(const graph *graph, const uint8_t *here, const exec_lora *adapters, bool gradients,
                          exec_frame *frame, dp_error *error);
/* A place for one more tensor, that is only handed on here. */
dp_status exec_frame_add(exec_frame *frame, const graph *graph, int tensor, bool gradient, dp_error *error);
void exec_frame_free(exec_frame *frame);
/* Forgets all gradients. */
void exec_frame_clear(exec_frame *frame, const graph *graph);

/* DP_UNSUPPORTED naming the op when one of the chunk's ops has no arithmetic here. */
dp_status exec_chunk_check(const exec_chunk *chunk, dp_error *error);
void exec_chunk_forward(const exec_chunk *chunk, exec_frame *frame);
/* Gradients of what leaves the chunk are there and begun. Input gradients first, all of them; then those of weights. */
void exec_chunk_backward_input(const exec_chunk *chunk, exec_frame *frame);
void exec_chunk_backward_weight(const exec_chunk *chunk, exec_frame *frame);

#endif
