/* Inside graph/: memory by liveness, over the ops of a range of units. */
#ifndef DP_GRAPH_LIVENESS_H
#define DP_GRAPH_LIVENESS_H

#include "graph/graph.h"

/* Scratch for one graph; entries are reset as they are touched, so one scratch serves many ranges. */
typedef struct graph_liveness {
  const graph *graph;
  int *last_use; /* per tensor: the last op of the range that reads it or a view of it; GRAPH_NONE */
  int *buffer;   /* per tensor: which buffer holds its gradient (named by a tensor); GRAPH_NONE */
  int *holders;  /* per buffer: how many tensors' gradients lie in it */
  uint8_t *keep; /* per tensor: saved by an op of the range, leaves the range */
} graph_liveness;

dp_status graph_liveness_init(const graph *graph, graph_liveness *liveness, dp_error *error);
void graph_liveness_free(graph_liveness *liveness);
graph_transients graph_liveness_transients(graph_liveness *liveness, int first, int count);
/* Fills in output_bytes, saved_bytes, input_bytes and the transients of a unit. */
void graph_liveness_unit(graph_liveness *liveness, graph_unit *units, int unit);

/* The tensor that holds t's memory, seen from a worker with the units [first, last): views made there are looked
 * through. */
int graph_liveness_root(const graph *graph, int tensor, int first, int last);

#endif
