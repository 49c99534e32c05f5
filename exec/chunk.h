/* The arithmetic of a chunk: its passes, as plan/places.h lists their actions, over memory that others give.
 *
 * Activations are channels-last: [B, C, H, W] lies as [B, H, W, C], so that turning images into tokens moves nothing.
 * Gradients: the first action that adds to one overwrites it, the others add; a tensor that none has reached has none.
 */
#ifndef DP_EXEC_CHUNK_H
#define DP_EXEC_CHUNK_H

#include "exec/parameters.h"
#include "plan/places.h"
#include "plan/profile.h"

/* Is told how long each op took, by the thread that did it. `on` may change between two passes. Ops of recomputed units
 * count as forward each time; what makes an output again counts as the op's that needs it. */
typedef struct exec_observer {
  bool on;
  void (*note)(void *data, int worker, int op, plan_direction direction, double seconds);
  void *data;
} exec_observer;

/* Told between the units of a pass: mark `first` before the one that runs first, the next before the second, and one
 * more after the last. On a device it is put in the queue with them. */
typedef struct exec_marks {
  void (*mark)(void *data, uint32_t number);
  void *data;
  uint32_t first;
  bool ends_only; /* only the first and the last */
} exec_marks;

struct exec_call; /* exec/ops.h, as exec_op_row */

/* A device's arithmetic, as chunks need it. */
typedef struct exec_math {
  const char *name;               /* "the CPU" */
  const struct exec_op_row *rows; /* exec/ops.h: by graph_op_kind */
  /* n values of the graph's precision, put or added. */
  void (*move)(void *kern, int64_t n, const void *from, void *to, bool add);
  void (*spoil)(void *kern, int64_t bytes, void *at); /* for tests: NaN */
  /* Waits for the device. */
  bool (*is_finite)(void *kern, graph_dtype dtype, int64_t n, const void *x);
  /* What groups of actions do in one call, by exec_fusion_kind (exec/fusion.h); NULL: it runs every action by itself.
   */
  void (*const *fused)(const struct exec_call *call);
  /* While on, gradients of weights overwrite what lies there; NULL: they are always added, and where they are to
   * overwrite an op's become zero before. And n of them become zero. */
  void (*overwrite)(void *kern, bool on);
  void (*clear)(void *kern, int64_t n, void *at);
  /* Separable projections (kernels/sizes.h) by matrices of channels, height and width; gradients of these are added. */
  size_t (*project_workspace)(const kern_separable *size, graph_dtype dtype, int threads);
  void (*project)(void *kern, const kern_separable *size, void *const matrices[3], const void *x, void *y);
  void (*project_input_gradient)(void *kern, const kern_separable *size, void *const matrices[3], const void *dy,
                                 void *dx, bool add);
  void (*project_weight_gradient)(void *kern, const kern_separable *size, void *const matrices[3], const void *x,
                                  const void *dy, void *const gradients[3]);
} exec_math;
extern const exec_math exec_math_cpu;

typedef struct exec_fusion exec_fusion; /* exec/fusion.h */

typedef struct exec_chunk {
  const graph *graph;
  const plan_places *places;
  const exec_parameters *parameters;
  const exec_math *math;         /* NULL: the CPU's */
  void *kern;                    /* what it works on: the CPU's kern_context, a CUDA device's kern_cuda */
  const exec_observer *observer; /* NULL: nobody looks */
  int worker;                    /* what the observer is told */
  const exec_marks *marks;       /* NULL: units are not told apart */
  bool poison;                   /* for tests: places of the workspace are NaN before and after their life */
  bool fresh;                    /* gradients of its weights hold nothing yet: this backward overwrites them */
  const exec_fusion *fusion; /* NULL, or where an observer looks or poison is laid: no two actions are one call */
} exec_chunk;

/* Of one microbatch. */
typedef struct exec_memory {
  char *blocks[PLAN_BLOCK_COUNT]; /* NONE and OUTSIDE: not read. A block of 0 bytes may be NULL */
  void **outside;                 /* [places.outside_count] */
  uint8_t *begun; /* [tensor of the graph] the gradient of what has memory of its own holds something; of
                   * all chunks of the worker */
} exec_memory;

/* Most workspace that any op of the units needs: for the kern_context to be made. */
size_t exec_chunk_workspace(const exec_math *math, const graph *graph, int first_unit, int unit_count, int threads);
/* DP_UNSUPPORTED naming the first op of the graph that has no arithmetic here. */
dp_status exec_chunk_check(const exec_math *math, const graph *graph, dp_error *error);

/* Where a place lies; NULL: NONE. */
void *exec_memory_at(const exec_memory *memory, plan_place place);

/* Graph inputs, constants and what is received are there. */
void exec_chunk_forward(const exec_chunk *chunk, const exec_memory *memory);
/* Whether what leaves the last unit of the chunk is finite. */
bool exec_chunk_is_finite(const exec_chunk *chunk, const exec_memory *memory);
/* The first unit of the chunk that puts out something not finite, its forward run again: all that it reads is still
 * there. GRAPH_NONE: there is none. */
int exec_chunk_find_not_finite(const exec_chunk *chunk, const exec_memory *memory);

/* Before the first backward of a microbatch: gradients that were collected for the chunk go where it looks for them;
 * then arrivals may be added there. */
void exec_chunk_begin_backward(const exec_chunk *chunk, const exec_memory *memory);
/* The backward of the last units of those that have had none yet; without weight gradients where these come apart. */
void exec_chunk_backward(const exec_chunk *chunk, const exec_memory *memory, int first_unit, int unit_count);
/* The weight backward, where it comes apart. */
void exec_chunk_backward_weight(const exec_chunk *chunk, const exec_memory *memory, int first_unit, int unit_count);

#endif
