/* The op table: one row per op kind says its name, shape inference, FLOPs, bytes, what backward keeps, and weights.
 * Model files only build graphs out of ops; they never compute costs.
 */
#ifndef DP_GRAPH_OP_H
#define DP_GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

typedef enum graph_op_kind {
  GRAPH_CONV2D,
  GRAPH_CONV3D,
  GRAPH_LINEAR,
  GRAPH_ATTENTION, /* inputs q, k, v: self, cross and joint differ only in where q, k, v come from (attributes.form) */
  GRAPH_GROUP_NORM,
  GRAPH_LAYER_NORM,
  GRAPH_RMS_NORM,
  GRAPH_SILU,
  GRAPH_GELU, /* tanh form: that of SD 3 and Flux */
  GRAPH_GEGLU,
  GRAPH_SWIGLU,
  GRAPH_ADD,
  GRAPH_CONCAT,
  GRAPH_SPLIT,
  GRAPH_UPSAMPLE,
  GRAPH_DOWNSAMPLE, /* average pooling; a strided convolution is GRAPH_CONV2D */
  GRAPH_TIME_EMBEDDING, /* sinusoidal */
  GRAPH_TEXT_EMBEDDING, /* table look-up */
  GRAPH_MODULATE,       /* adaLN: x * (1 + scale) + shift, or the gate x * g */
  GRAPH_ROTARY,
  GRAPH_PATCHIFY,
  GRAPH_UNPATCHIFY,
  GRAPH_RESHAPE, /* a view or layout change */
  GRAPH_LOSS,    /* mean squared error of prediction and target */
  GRAPH_SYNTHETIC, /* no arithmetic: stands for a unit of fixed cost */
  /* Only in the share that a member of a tensor group has of a model (graph/shard.h): */
  GRAPH_TENSOR_ENTER,  /* a whole tensor, to be read in part: its gradient is summed over the members */
  GRAPH_TENSOR_REDUCE, /* partial sums to their sum, in place */
  GRAPH_TENSOR_GATHER, /* the members' channels to all channels */
  GRAPH_OP_KIND_COUNT
} graph_op_kind;
const char *graph_op_kind_name(graph_op_kind kind); /* "conv2d", "attention", ... */

/* The efficiency class, by which the cost model picks a curve. */
typedef enum graph_op_class {
  GRAPH_CLASS_GEMM,
  GRAPH_CLASS_CONVOLUTION,
  GRAPH_CLASS_ATTENTION,
  GRAPH_CLASS_MEMORY, /* bound by memory traffic */
  GRAPH_CLASS_COUNT
} graph_op_class;
extern const char *const graph_op_class_names[]; /* "gemm", "convolution", "attention", "memory", NULL */
const char *graph_op_class_name(graph_op_class op_class);

/* What the members of a tensor group do together in one direction of an op. */
typedef enum graph_collective {
  GRAPH_COLLECTIVE_NONE,
  GRAPH_COLLECTIVE_ALL_REDUCE,
  GRAPH_COLLECTIVE_ALL_GATHER
} graph_collective;

typedef enum graph_attention_form { GRAPH_ATTENTION_SELF, GRAPH_ATTENTION_CROSS, GRAPH_ATTENTION_JOINT } graph_attention_form;

enum { GRAPH_MAX_PIECES = 16 }; /* outputs of a split */

/* Only what the kind uses is set. */
typedef struct graph_attributes {
  int64_t in_channels, out_channels;
  int64_t kernel[3], stride[3], padding[3]; /* T, H, W; the first is not used in two dimensions */
  bool bias, affine;
  int64_t groups;
  int64_t heads, head_dim;
  graph_attention_form form;
  int64_t scale;   /* up- and down-sampling */
  int64_t axis;    /* concat, split */
  int64_t parts;   /* split: so many equal pieces; 0: two pieces, the first of size `first`; gather: members */
  int64_t first;
  int64_t grid[3];  /* T, H, W: reshape of tokens to an image (T 0: rank 4), unpatchify (in patches, then) */
  int64_t patch[3]; /* T, H, W */
  double epsilon;
  /* time embedding, as diffusers' get_timestep_embedding: sines before cosines (flip_sin_to_cos = false), freq_shift, and
   * what the model multiplies its input by (0: 1) */
  bool sines_first;
  double frequency_shift, time_factor;
} graph_attributes;

#endif
