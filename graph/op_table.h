/* Inside graph/: the rows of the op table and what its functions are given. */
#ifndef DP_GRAPH_OP_TABLE_H
#define DP_GRAPH_OP_TABLE_H

#include "graph/graph.h"

enum { GRAPH_MAX_INPUTS = 8, GRAPH_MAX_WEIGHTS = 2 };

/* What shape inference reads and fills in. `problem` set: the inputs do not fit the op. */
typedef struct graph_shape {
  const graph_attributes *attributes;
  int input_count;
  const graph_tensor *inputs[GRAPH_MAX_INPUTS];
  graph_dtype precision;
  int output_count;
  graph_tensor outputs[GRAPH_MAX_PIECES]; /* rank, dims, dtype */
  int weight_count;
  struct {
    const char *suffix; /* "weight", "bias" */
    int rank;
    int64_t dims[GRAPH_MAX_RANK];
  } weights[GRAPH_MAX_WEIGHTS];
  char problem[200];
} graph_shape;

/* What costs and saved tensors are computed from, once the gradients of the graph are known. */
typedef struct graph_cost {
  const graph *graph;
  const graph_op *op;
  const graph_tensor *inputs[GRAPH_MAX_INPUTS];
  const graph_tensor *output; /* the first */
  int64_t in, out;            /* elements of the first input and of the first output */
  int64_t element_bytes;      /* of the precision */
  bool input_gradient;        /* some input needs a gradient */
  bool weight_gradient;       /* its own weights do (not an adapter) */
  bool after_norm;            /* reads what a norm of the unit made that keeps its input: is made again from that */
  bool saves[GRAPH_MAX_INPUTS], saves_output;
  int64_t saved_extra_bytes, statistic_bytes; /* kept for backward; written by forward, kept or not */
  graph_work forward, backward_input, backward_weight;
} graph_cost;

enum {
  GRAPH_OP_VIEW = 1,        /* outputs show the memory of the first input */
  GRAPH_OP_ELEMENTWISE = 2, /* can run inside the kernel of the op before it */
  GRAPH_OP_NORM = 4,        /* what follows elementwise can be computed again from what it keeps */
  GRAPH_OP_SHARES_GRADIENT =
      8, /* the gradients of its inputs are (slices of) that of its output: no memory of their own */
  GRAPH_OP_PLAIN = 16, /* an activation of each value by itself */
  GRAPH_OP_GATED = 32  /* an activation of one half times the other */
};

typedef struct graph_op_row {
  const char *name;
  graph_op_class op_class;
  int min_inputs, max_inputs;
  unsigned traits;
  void (*shape)(graph_shape *shape);
  void (*cost)(graph_cost *cost); /* work and what backward keeps */
} graph_op_row;

extern const graph_op_row graph_op_rows[GRAPH_OP_KIND_COUNT];

static inline bool graph_op_has(const graph_op *op, unsigned traits) {
  return (graph_op_rows[op->kind].traits & traits) != 0;
}

int64_t graph_tensor_elements(const graph_tensor *tensor); /* INT64_MAX when too many to count */
int graph_tensor_channel_axis(const graph_tensor *tensor); /* 1 of images, the last of tokens and vectors */

/* Shape inference, one a row: op_shape.c. */
void graph_shape_conv(graph_shape *shape);
void graph_shape_linear(graph_shape *shape);
void graph_shape_attention(graph_shape *shape);
void graph_shape_group_norm(graph_shape *shape);
void graph_shape_layer_norm(graph_shape *shape);
void graph_shape_rms_norm(graph_shape *shape);
void graph_shape_same(graph_shape *shape);
void graph_shape_gated(graph_shape *shape);
void graph_shape_add(graph_shape *shape);
void graph_shape_concat(graph_shape *shape);
void graph_shape_split(graph_shape *shape);
void graph_shape_upsample(graph_shape *shape);
void graph_shape_downsample(graph_shape *shape);
void graph_shape_time_embedding(graph_shape *shape);
void graph_shape_text_embedding(graph_shape *shape);
void graph_shape_modulate(graph_shape *shape);
void graph_shape_rotary(graph_shape *shape);
void graph_shape_patchify(graph_shape *shape);
void graph_shape_unpatchify(graph_shape *shape);
void graph_shape_reshape(graph_shape *shape);
void graph_shape_loss(graph_shape *shape);
void graph_shape_synthetic(graph_shape *shape);
void graph_shape_tensor_gather(graph_shape *shape);

/* Work and saved tensors, one a row: op_cost.c. */
void graph_cost_conv(graph_cost *cost);
void graph_cost_linear(graph_cost *cost);
void graph_cost_attention(graph_cost *cost);
void graph_cost_norm(graph_cost *cost);
void graph_cost_activation(graph_cost *cost);
void graph_cost_gated(graph_cost *cost);
void graph_cost_add(graph_cost *cost);
void graph_cost_concat(graph_cost *cost);
void graph_cost_view(graph_cost *cost);
void graph_cost_resample(graph_cost *cost);
void graph_cost_time_embedding(graph_cost *cost);
void graph_cost_text_embedding(graph_cost *cost);
void graph_cost_modulate(graph_cost *cost);
void graph_cost_rotary(graph_cost *cost);
void graph_cost_copy(graph_cost *cost);
void graph_cost_loss(graph_cost *cost);
void graph_cost_tensor_enter(graph_cost *cost);
void graph_cost_tensor_reduce(graph_cost *cost);
void graph_cost_tensor_gather(graph_cost *cost);
void graph_cost_accumulate(graph_work *backward_input, const graph_tensor *tensor);

#endif
