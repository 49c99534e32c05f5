/* The memory layout of every worker, from the program by liveness. The executor allocates this layout; the simulator
 * reports it: the prediction is the allocation.
 *
 * Time is the position on the worker's compute lane. Persistent classes (weights, gradients, optimizer state, runtime)
 * live throughout. A buffer received for compute position k lives from k - 1 (its receive may be posted once position
 * k - PLAN_PREFETCH is done) to its last use; saved activations live from their forward to their backward (or backward
 * weight); recomputed units keep only their inputs and need one unit's activations again during its backward.
 */
#ifndef DP_PLAN_MEMORY_H
#define DP_PLAN_MEMORY_H

#include "plan/program.h"

typedef enum plan_memory_class {
  PLAN_MEMORY_WEIGHTS,
  PLAN_MEMORY_GRADIENTS,
  PLAN_MEMORY_OPTIMIZER,   /* states and fp32 master weights */
  PLAN_MEMORY_ACTIVATIONS, /* saved for backward, all microbatches in flight */
  PLAN_MEMORY_SKIPS,       /* skip tensors kept for a later chunk of the same worker or waiting to be sent or used */
  PLAN_MEMORY_BOUNDARY,    /* send and receive buffers */
  PLAN_MEMORY_WORKSPACE,   /* transients of the running unit and library workspace */
  PLAN_MEMORY_RUNTIME,     /* CUDA context, communicators: outside the layout */
  PLAN_MEMORY_CLASS_COUNT
} plan_memory_class;
extern const char *const plan_memory_class_names[]; /* "weights", ..., NULL */

typedef struct plan_buffer {
  uint8_t memory_class;
  uint16_t chunk;
  uint32_t microbatch;       /* PLAN_NO_PEER for persistent buffers */
  int64_t offset_bytes, bytes; /* aligned to PLAN_ALIGNMENT */
  uint32_t begin, end;       /* positions on the compute lane, inclusive */
} plan_buffer;
enum { PLAN_ALIGNMENT = 256 };

typedef struct plan_worker_memory {
  plan_buffer *buffers; uint32_t buffer_count;
  int64_t layout_bytes;      /* size of the one allocation: every offset + bytes fits */
  int64_t live_peak_bytes;   /* most bytes live at once (the lower bound of any layout) */
  int64_t peak_bytes;        /* layout_bytes + runtime: what the device must have */
  int64_t at_peak_bytes[PLAN_MEMORY_CLASS_COUNT]; /* by class, at the position of the live peak */
  uint32_t peak_position;
  int64_t resting_bytes;     /* persistent classes: what is live before and after the step */
} plan_worker_memory;

typedef struct plan_memory {
  dp_arena arena;
  plan_worker_memory *workers; int worker_count;
} plan_memory;

typedef struct plan_memory_options {
  int64_t runtime_bytes;   /* CUDA context and communicators, per worker */
  int64_t workspace_bytes; /* library workspace, per worker */
} plan_memory_options;

dp_status plan_memory_layout(const plan_program *program, const graph *graph, const plan_memory_options *options,
                             plan_memory *memory, dp_error *error);
void plan_memory_free(plan_memory *memory);

#endif
