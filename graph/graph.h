/* A model as a graph: tensors, ops, units.
 *
 * A graph is built for one microbatch size and one resolution, so every shape and count in it is concrete. Units are in
 * execution order; a unit is the smallest run of ops that a partition keeps together. Every tensor knows its producer
 * and its consumers, so what crosses a cut (boundary and skip tensors alike) follows from liveness alone.
 *
 * Counting rules: a multiply-add is 2 FLOPs; `matrix_flops` counts only matrix products, convolutions and attention
 * (as PyTorch's FlopCounterMode does); `flops` counts elementwise work too. Bytes are those of `precision`.
 * Ownership: the graph owns everything through its arena. Immutable after graph_finish.
 */
#ifndef DP_GRAPH_GRAPH_H
#define DP_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/status.h"
#include "graph/op.h"

enum { GRAPH_MAX_RANK = 5, GRAPH_NONE = -1, GRAPH_MAX_TENSOR_PARALLEL = 64 };

typedef enum graph_dtype { GRAPH_FP32, GRAPH_FP16, GRAPH_BF16, GRAPH_DTYPE_COUNT } graph_dtype;
int64_t graph_dtype_bytes(graph_dtype dtype);
extern const char *const graph_dtype_names[];    /* "fp32", "fp16", "bf16", NULL */
const char *graph_dtype_name(graph_dtype dtype); /* "fp32", ... */

typedef struct graph_tensor {
  const char *name; /* "down_blocks.0.resnets.1.output" */
  int rank;
  int64_t dims[GRAPH_MAX_RANK]; /* logical order [B, C, H, W], [B, C, T, H, W] or [B, tokens, channels] */
  graph_dtype dtype;
  int64_t bytes;
  int producer_op, producer_unit; /* GRAPH_NONE for a graph input (latent, timestep, text): every worker is fed those */
  int *consumer_units;            /* ascending, unique; the producer's own unit too when an op of it reads the tensor */
  int consumer_unit_count;
  int consumer_op_count; /* ops that read it */
  int view_of;       /* the tensor whose memory it shows (reshape, split); GRAPH_NONE: has memory of its own */
  bool is_constant;  /* a graph input that no sample changes (table of positions): kept once, in no per-microbatch sum */
  int *saver_units;  /* ascending, unique: units whose backward keeps it */
  int saver_unit_count;
  bool needs_gradient; /* some trainable weight lies upstream */
  bool is_output;      /* of the graph: consumed by the loss or the sampler */
  bool fused_away;     /* its producer and the next op, its only reader, are one kernel: it is never in memory */
} graph_tensor;

/* A weight with diffusers' name and shape, as in the checkpoint. */
typedef struct graph_weight {
  const char *name;
  int rank;
  int64_t dims[GRAPH_MAX_RANK];
  int64_t parameters;
} graph_weight;

/* The work of one direction of one op, for the cost model. */
typedef struct graph_work {
  graph_op_class op_class;
  int64_t flops, matrix_flops;
  int64_t bytes_read, bytes_written; /* least traffic of one fused kernel: each operand once */
  /* the matrix product behind it: [batch] x (m, k) x (k, n). Convolution: implicit GEMM (m = output positions times
   * batch, n = output channels, k = input channels times taps). Attention: batch = batch times heads, m = query tokens,
   * n = key tokens, k = head dimension. 0 for memory-bound ops. */
  int64_t batch, m, n, k;
  int kernels; /* launches; 0: nothing runs (a view) */
  graph_collective collective; /* after the kernels, among the members of the tensor group */
  int64_t collective_bytes;    /* of the whole tensor */
} graph_work;

typedef enum graph_trainable {
  GRAPH_TRAIN_FULL,
  GRAPH_TRAIN_FROZEN, /* weights have no gradient and no optimizer state */
  GRAPH_TRAIN_LORA    /* frozen, plus a rank-r adapter with gradient and state */
} graph_trainable;

typedef struct graph_op {
  graph_op_kind kind;
  const char *name; /* "down_blocks.0.resnets.0.conv1" */
  int unit;
  int *inputs, input_count; /* tensor ids */
  int *outputs, output_count;
  graph_attributes attributes;
  int first_weight, weight_count; /* into graph.weights */
  int64_t parameters;             /* of those weights, without adapter */
  graph_trainable trainable;
  int64_t adapter_parameters; /* LoRA: rank * (in + out); else 0 */
  graph_work forward, backward_input, backward_weight;
  /* Elementwise on what the op just before made in this unit for nobody else: a fused implementation runs it inside
   * that op's kernel and never writes the tensor between them. `forward` still counts it as a kernel of its own. */
  bool fused;
  /* Tensor ids that backward needs and that therefore stay in memory. A view made in this unit is given as the tensor
   * that it shows, so that memory is counted once. */
  int *saved, saved_count;
  int64_t saved_extra_bytes; /* private to the op: mean and rstd, log-sum-exp, masks */
  int64_t statistic_bytes;   /* what forward writes beside its outputs: those bytes, be they saved or not */
} graph_op;

/* Fixed costs of a synthetic unit, per microbatch; on any device, without host cost. */
typedef struct graph_fixed_cost {
  bool present;
  double forward_s, backward_input_s, backward_weight_s;
} graph_fixed_cost;

typedef struct graph_unit {
  const char *name;
  int first_op, op_count;
  int64_t parameters;           /* weights of the unit, without adapters */
  int64_t trainable_parameters; /* weights or adapters with gradient and optimizer state */
  int64_t adapter_parameters;
  int64_t partial_parameters; /* a tensor group's: of the trainable ones, those that every member has and of whose
                               * gradient it has a part: summed over the group before the optimizer step */
  int64_t forward_flops, matrix_flops; /* forward, this microbatch */
  int64_t output_bytes;                /* tensors made here and consumed by later units or the loss */
  int64_t saved_bytes;                 /* unique tensors that its backward needs, made here or received, plus extras */
  int64_t saved_extra_bytes;           /* the part of it private to its ops: statistics, adapters' hidden values */
  int64_t input_bytes;                 /* graph inputs and tensors of earlier units that it reads: what recomputation
                                        * keeps instead */
  int64_t forward_transient_bytes;     /* peak of live intermediates that are neither saved nor outputs */
  int64_t inference_transient_bytes;   /* the same when nothing is saved, as in sampling */
  int64_t backward_transient_bytes;    /* peak of live gradients during its backward, those of its inputs and outputs too */
  graph_fixed_cost fixed;
} graph_unit;

typedef struct graph {
  dp_arena arena;
  const char *class_name; /* "UNet2DConditionModel", "synthetic" */
  const char *config_file;
  int64_t batch, height, width, frames, text_tokens; /* height and width in pixels; batch: samples per microbatch */
  graph_dtype precision;
  DP_ARRAY(graph_tensor) tensors;
  DP_ARRAY(graph_op) ops;
  DP_ARRAY(graph_unit) units;
  DP_ARRAY(graph_weight) weights;
  int64_t parameters, trainable_parameters, forward_flops, matrix_flops; /* totals */
  int64_t saved_bytes; /* of the whole graph as one range: its activation memory per microbatch */
  int64_t latent_bytes; /* one microbatch of latents: what a sampler hands from the last stage to the first */
  int tensor_parallel;  /* members of the tensor group of whose shares this graph is one; 1: the whole model */
  int whole_products;   /* products, convolutions and attentions that every member does whole: they cannot be split */
  int64_t model_parameters, model_trainable_parameters; /* of the whole model; those above are of this share */
} graph;

void graph_free(graph *graph);

/* The products of a linear layer's adapter of rank r, y += (x A) B, as kernels of their own: x A, then its product with B
 * added to y; dy B', then its product with A' added to dx; dA = x' (dy B') and dB = (x A)' dy, and dy B' once more where
 * the input gradient did not make it. An op's own work has them in it. `rows` of x and y, in values of so many bytes. */
typedef struct graph_adapter {
  graph_work forward[2], backward_input[2], backward_weight[3];
} graph_adapter;
graph_adapter graph_adapter_of(const graph_op *op, int64_t rows, int64_t element_bytes);

/* Bytes that backward of the units [first, first + count) keeps per microbatch: every tensor once, however many ops
 * save it. Units whose recompute flag is set keep only what they read from earlier units. recompute may be NULL, else
 * one byte per unit of the graph. Tensors made outside the range are counted too (they live on this worker). When
 * `received_bytes` is not NULL it gets the part of the result made by units outside the range (so that receive buffers
 * are not counted twice); graph inputs are made by no unit and are not in it. */
int64_t graph_saved_bytes(const graph *graph, int first, int count, const uint8_t *recompute, int64_t *received_bytes);

/* The tensors made by units before `cut` and consumed by units at or after it (graph inputs and tensors that are only
 * outputs of the graph are not). Ascending. Writes ids into `tensors` (room for graph.tensors.count) and returns how many. */
int graph_cut_tensors(const graph *graph, int cut, int *tensors);

/* Peaks of live memory over the units [first, first + count) run one after another on one worker: the units' own transients
 * and the tensors (backward: gradients) that pass from one of them to a later one. Forward excludes what training saves;
 * inference saves nothing. Tensors that leave the range or come from outside it are excluded from both; backward
 * includes their gradients. */
typedef struct graph_transients {
  int64_t forward_bytes, inference_bytes, backward_bytes;
} graph_transients;
dp_status graph_transient_bytes(const graph *graph, int first, int count, graph_transients *transients, dp_error *error);

/* [B, C] or less: a conditioning vector (the time embedding), small beside any feature map or token sequence. */
bool graph_tensor_is_vector(const graph_tensor *tensor);
/* A skip tensor: made in a unit and consumed by a unit that is not the next one. */
bool graph_tensor_is_skip(const graph *graph, int tensor);

#endif
