/* The weights of a worker's units in memory: values, gradients and AdamW's moments, each one flat array in fp32.
 *
 * Of every weight of the graph that one of the units owns, in the order of the graph. Convolutions are kept as
 * [out, kh, kw, in], as the kernels want them; files have [out, in, kh, kw].
 */
#ifndef DP_EXEC_PARAMETERS_H
#define DP_EXEC_PARAMETERS_H

#include "base/arena.h"
#include "graph/graph.h"
#include "kernels/cpu/kern.h"

typedef struct exec_parameters {
  const graph *graph;
  int64_t count;                              /* floats of each array */
  int64_t *offset;                            /* [graph weight] into the arrays; -1: of another worker */
  uint8_t *trained;                           /* [graph weight] has a gradient */
  float *values, *gradients, *first, *second; /* [count] gradients and moments: NULL unless for training */
  dp_arena arena;
} exec_parameters;

/* here[unit]: nonzero for those of this worker; NULL: all. Zeroed. Frozen weights have room in all arrays too; nothing
 * is ever written there but their values. */
dp_status exec_parameters_init(const graph *graph, const uint8_t *here, bool training, exec_parameters *parameters,
                               dp_error *error);
void exec_parameters_free(exec_parameters *parameters);

/* NULL where the worker has no such weight, or it has no gradient. */
float *exec_parameters_value(const exec_parameters *parameters, int weight);
float *exec_parameters_gradient(const exec_parameters *parameters, int weight);

/* A weight from the layout of files, and any of the arrays back to it: dims of graph_weight, dense. */
void exec_parameters_from_file(kern_context *context, exec_parameters *parameters, int weight, const float *file);
void exec_parameters_to_file(kern_context *context, const exec_parameters *parameters, const float *array, int weight,
                             float *file);

#endif
