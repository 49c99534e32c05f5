/* One row an op kind: how a device does it; internal to exec/. */
#ifndef DP_EXEC_OPS_H
#define DP_EXEC_OPS_H

#include "exec/chunk.h"
#include "graph/op_table.h"

/* One op of one frame, looked up. */
typedef struct exec_call {
  const graph *graph;
  const graph_op *op;
  void *kern; /* exec_chunk.kern */
  const graph_tensor *in[GRAPH_MAX_INPUTS], *out[GRAPH_MAX_PIECES];
  const void *x[GRAPH_MAX_INPUTS];
  void *y[GRAPH_MAX_PIECES];
  void *dx[GRAPH_MAX_INPUTS];       /* NULL: not wanted */
  bool add[GRAPH_MAX_INPUTS];       /* dx holds something: add to it */
  const void *dy[GRAPH_MAX_PIECES]; /* NULL: none has reached it */
  const void *w[GRAPH_MAX_WEIGHTS];
  void *dw[GRAPH_MAX_WEIGHTS]; /* NULL: not trained */
  const exec_lora *adapter;    /* NULL: none */
  const void *residual;        /* of a product with a sum behind it: what is added */
  void *dbias;                 /* to be made with an activation's gradient; NULL: not */
  void *statistics;            /* what forward leaves for backward beside its outputs */
  void *hidden_gradient;       /* of an adapter: from the input gradient to the weight gradient */
  /* Of a group of siblings, all of them, by ops. */
  const struct exec_call *siblings;
  int sibling_count;
} exec_call;

typedef struct exec_op_row {
  void (*forward)(const exec_call *call);
  void (*backward_input)(const exec_call *call);           /* NULL: no input ever has a gradient */
  void (*backward_weight)(const exec_call *call);          /* NULL: no weights */
  size_t (*workspace)(const exec_call *call, int threads); /* NULL: none */
  void (*again)(const exec_call *call); /* a norm's output from its input and statistics; NULL: forward does */
} exec_op_row;

/* By graph_op_kind; forward NULL: there is no arithmetic for it. A reshape
 * that shows its input is never run. */
extern const exec_op_row exec_op_rows[GRAPH_OP_KIND_COUNT]; /* the CPU's */

#endif
