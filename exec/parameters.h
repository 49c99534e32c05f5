/* The weights of a worker's units in memory: values, and of those that are trained gradients, AdamW's moments and
 * running means, each one flat array: in fp32, on the host. On a device the arrays are addresses there, and values and
 * gradients have dtypes of their own. Where values are bf16, those that are trained are halves of fp32 masters, and the
 * other halves are kept beside them (kernels/halves.h): what AdamW works on, means are made of and checkpoints have.
 *
 * Trained weights and the factors of LoRA adapters come first, unit by unit in the order of the graph, so that every
 * run of units has its gradients in one piece; frozen weights follow. Convolutions are kept as [out, kh, kw, in], as
 * the kernels want them; files have [out, in, kh, kw].
 */
#ifndef DP_EXEC_PARAMETERS_H
#define DP_EXEC_PARAMETERS_H

#include "base/arena.h"
#include "graph/graph.h"
#include "kernels/cpu/kern.h"

/* The LoRA adapter of an op: y += scale B (A x). */
typedef struct exec_lora {
  int64_t rank;
  float scale;           /* alpha / rank */
  void *a, *b, *da, *db; /* [rank, in], [out, rank] and their gradients, added to; da, db NULL: not trained */
} exec_lora;

/* More trained floats of a unit: what compresses skips. */
typedef struct exec_extra {
  int unit;
  int64_t count;
  bool trained;
} exec_extra;

typedef struct exec_parameters_options {
  const uint8_t *here; /* [unit] nonzero for those of this worker; NULL: all */
  bool training;       /* gradients and moments, too */
  bool means;          /* running means of what is trained */
  double lora_alpha;   /* 0: the rank, so that the scale is 1 */
  /* Where the arrays are to lie, not owned, zeroed; NULL: in memory of their own. optimizer: both moments, then means,
   * then low halves, as far as there are such. */
  float *values, *gradients, *optimizer;
  graph_dtype value_dtype, gradient_dtype; /* not fp32: then the arrays are given */
  const exec_extra *extras;
  int extra_count;
} exec_parameters_options;

typedef struct exec_parameters {
  const graph *graph;
  int64_t count, trained_count; /* floats of `values`; of all other arrays, which go with its first ones */
  int64_t *offset;              /* [graph weight] into `values`; -1: of another worker */
  uint8_t *trained;             /* [graph weight] has a gradient */
  int64_t *unit_first;          /* [unit + 1] where the trained floats of each unit begin; empty for other workers' */
  float *values, *gradients, *first, *second; /* the last three: NULL unless for training */
  float *means;                               /* NULL: not kept */
  uint16_t *low;                              /* halves of masters, the values are the others; NULL: values are whole */
  graph_dtype value_dtype, gradient_dtype;
  exec_lora *lora;       /* [op] rank 0: none; NULL: no op has one */
  int64_t *lora_offset;  /* [op] of its a, which its b follows */
  int64_t *extra_offset; /* [extra] into `values`, and where it is trained into the others */
  dp_arena arena;
} exec_parameters;

/* All zero. */
dp_status exec_parameters_init(const graph *graph, const exec_parameters_options *options, exec_parameters *parameters,
                               dp_error *error);
void exec_parameters_free(exec_parameters *parameters);
/* Exchanges the weights for their running means, or back. */
void exec_parameters_exchange_means(exec_parameters *parameters);

/* NULL where the worker has no such weight, or it has no gradient. */
void *exec_parameters_value(const exec_parameters *parameters, int weight);
void *exec_parameters_gradient(const exec_parameters *parameters, int weight);

/* On the host: a weight from the layout of files, and any of the arrays back to it: dims of graph_weight, dense.
 * `array` may be `values`, or one of the others where the weight is trained. */
void exec_parameters_from_file(kern_context *context, exec_parameters *parameters, int weight, const float *file);
void exec_parameters_to_file(kern_context *context, const exec_parameters *parameters, const float *array, int weight,
                             float *file);
/* One weight, from where files have it to where memory does, and back. Whether the two lie otherwise. */
void exec_weight_from_file(kern_context *context, const graph_weight *weight, const float *file, float *memory);
void exec_weight_to_file(kern_context *context, const graph_weight *weight, const float *memory, float *file);
bool exec_weight_is_permuted(const graph_weight *weight);

#endif
