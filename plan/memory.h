/* The memory layout of every worker, from the program by liveness. The executor allocates this layout; the simulator
 * reports it: the prediction is the allocation.
 *
 * Time is counted in moments of the worker's compute lane: moment 2 k + 1 is while compute instruction k runs, moment
 * 2 k is between instructions k - 1 and k, and the last moment follows the last instruction. Persistent classes
 * (weights, gradients, optimizer state, workspace, runtime) live throughout. For the others, of each chunk and
 * microbatch:
 *   saved activations: from the forward to the backward (to the weight backward, where it comes apart; and then the
 *     gradients of what its weighted ops put out, and of adapters' hidden values, are kept from the input backward on);
 *     a recomputed unit keeps only what it reads, and needs its activations again, as workspace, while its backward runs
 *     (where the weight backward comes apart, in a buffer from the input backward to that);
 *   received: from the moment after the instruction that the RECV waits for (0 when it waits for none) to the last use
 *     on the worker: the backward when a chunk saves it, else the forward;
 *   made here and used by a later chunk of the worker, or sent: from its forward to its last use and until it has been
 *     sent, unless it is saved here anyway. It has been sent when a compute instruction that waits for the SEND is
 *     about to start; without one, forward tensors in training have been when their chunk's backward is, for its
 *     gradient comes back after them; anything else is kept to the end;
 *   gradients of all these: from the first backward that adds to it, or from its RECV, to the producer's backward, or
 *     until it has been sent. What a chunk receives stays until it is added: in its own backward, or, where it only
 *     handed the tensor on, in that of the next chunk here that uses, made or received the tensor;
 *   graph inputs: while the chunks that read them run forward, unless saved. Constant ones count as weights.
 * A compressed skip is received and sent as its K values and is whole while its chunks need it: where it is made, at
 * least to the end of that forward; where it is received, from its chunk's forward to the last use. In training both
 * ends' matrices are (plan/compressor.h): the whole is kept where it was made, and the K values where they were received,
 * to the backward of those chunks, and the matrices are among the weights. So is its gradient:
 * whole from the first backward that adds to it to the last, K values from the last on (the whole of one chunk's is
 * workspace).
 *
 * Gradients of weights live throughout, unless each is written once in a step and by overwriting
 * (plan_memory_options.overwrites, on a rank with one chunk and one microbatch). Then they lie where the saved activations
 * of later units have been: the backward of a unit writes its own behind all that it and earlier units still read
 * (plan/memory_rules.h has the law). What of them does not lie in the buffer of the saved activations lives from the
 * backward on, the rest from the moment after it.
 *
 * An executor that fuses nothing (plan_memory_options.unfused; the CPU's) uses this very layout. Then the workspace is
 * what the places of plan/places.h take, and saved activations are less what they make again; what leaves a chunk has a
 * buffer of its own unless the chunk saves that tensor itself, for views are copied where they leave their unit; and the
 * gradient of the graph's output takes the output's place, or, where that is saved, a buffer from the forward to the
 * backward.
 */
#ifndef DP_PLAN_MEMORY_H
#define DP_PLAN_MEMORY_H

#include "plan/program.h"

typedef enum plan_memory_class {
  PLAN_MEMORY_WEIGHTS,
  PLAN_MEMORY_GRADIENTS,
  PLAN_MEMORY_OPTIMIZER,   /* states, and fp32 master weights or their low halves */
  PLAN_MEMORY_ACTIVATIONS, /* saved for backward, all microbatches in flight */
  PLAN_MEMORY_SKIPS,       /* skip tensors and their gradients: received, to be sent, or kept for another chunk here */
  PLAN_MEMORY_BOUNDARY,    /* the same of boundary tensors; graph inputs, output, latents */
  PLAN_MEMORY_WORKSPACE,   /* transients of the running unit and library workspace */
  PLAN_MEMORY_RUNTIME,     /* CUDA context, communicators, a part of the process: outside the layout */
  PLAN_MEMORY_CLASS_COUNT
} plan_memory_class;
extern const char *const plan_memory_class_names[]; /* "weights", ..., NULL */

/* What a buffer is for. */
typedef enum plan_role {
  PLAN_ROLE_PERSISTENT, /* all of its class that lives throughout */
  PLAN_ROLE_SAVED,      /* of a chunk: the blocks of plan/places.h */
  PLAN_ROLE_AGAIN,
  PLAN_ROLE_KEPT,
  PLAN_ROLE_INPUTS,
  PLAN_ROLE_WHOLE,     /* a tensor's value or gradient, as its ops have it: made, received or collected here */
  PLAN_ROLE_ARRIVED,   /* a tensor's gradient as `message` brings it; a compressed skip's: K values a sample */
  PLAN_ROLE_PROJECTED, /* the K values a sample of a compressed skip, or of its gradient, that `message` brings or takes */
  PLAN_ROLE_LATENTS,   /* that `message` brings or takes */
  PLAN_ROLE_GRADIENTS  /* of weights, where they share room with SAVED: beyond its end, and, when it has died, in it */
} plan_role;

typedef struct plan_buffer {
  uint8_t memory_class;
  uint8_t gradient : 1; /* of `tensor`, not its value */
  uint8_t role : 7;
  uint16_t chunk;              /* that makes or receives it; persistent buffers: the rank's first */
  uint32_t microbatch;         /* PLAN_NO_PEER for persistent buffers */
  uint32_t message;            /* of the first copy of the pipeline; PLAN_NO_PEER: where the role has none */
  int32_t tensor;              /* GRAPH_NONE: several, or none of the graph's (activations, weights, latents) */
  uint32_t begin, end;         /* moments, inclusive */
  int64_t offset_bytes, bytes; /* aligned to PLAN_ALIGNMENT */
} plan_buffer;
enum { PLAN_ALIGNMENT = 256 };

typedef struct plan_worker_memory {
  plan_buffer *buffers; uint32_t buffer_count; /* persistent ones first; replicas share one list */
  int64_t layout_bytes;      /* size of the one allocation: every offset + bytes fits */
  int64_t live_peak_bytes;   /* most bytes live at once, aligned (the lower bound of any layout); without runtime */
  int64_t peak_bytes;        /* layout_bytes + runtime: what the device must have */
  int64_t at_peak_bytes[PLAN_MEMORY_CLASS_COUNT]; /* by class, at the first moment of the live peak; runtime too */
  uint32_t peak_position;    /* of the compute instruction that runs or comes next at that moment */
  int64_t gradients_offset_bytes; /* of weights: where their one run begins */
  bool shares_gradients;     /* with SAVED: only a backward that overwrites may begin them */
  int64_t resting_bytes;     /* persistent buffers: what is live before and after the step; without runtime */
} plan_worker_memory;

typedef struct plan_memory {
  dp_arena arena;
  plan_worker_memory *workers; int worker_count;
} plan_memory;

/* Bytes of library workspace of a rank, for kernels of so many threads. */
typedef int64_t (*plan_library_workspace)(const plan_program *program, const graph *graph, int rank, int threads);

typedef struct plan_memory_options {
  int64_t runtime_bytes;   /* CUDA context, communicators, a part of the process: per worker */
  int64_t workspace_bytes; /* library workspace, per worker */
  plan_library_workspace library_workspace; /* and as much more; NULL: none */
  int threads;
  bool unfused; /* for an executor that runs one op after another: the layout that it allocates */
  bool means;   /* running means of what is trained are kept, in fp32; counted as optimizer state */
  bool splits_masters; /* plan_optimizer_bytes */
  bool overwrites; /* unfused: the first backward of a step overwrites gradients of weights */
  /* [rank], or NULL. A rank whose live peak and runtime are more than that is not placed: its layout_bytes are its
   * live_peak_bytes, the least that any layout takes, and its offsets are 0. For those who only ask whether it fits. */
  const int64_t *limit_bytes;
} plan_memory_options;

/* Bytes of optimizer state for each trainable parameter: AdamW two fp32 moments, in 8 bits two bytes; SGD fp32
 * momentum; Adafactor rows and columns of the second moment, taken as 0.01 bytes; and the fp32 master weight where the
 * model is not fp32: whole, or, of a bf16 model with splits_masters, the half that its weight does not have (diffpipe's
 * executor: kernels/halves.h). */
double plan_optimizer_bytes(plan_optimizer optimizer, graph_dtype precision, bool splits_masters);

/* Offsets: every buffer's begin, end and bytes are set; writes offset_bytes >= base_bytes so that no two buffers that
 * live at one moment overlap, and returns through `top_bytes` the end of the highest. The better of two rules: best fit
 * in order of begin, and, up to a few thousand buffers, first fit in order of size. Deterministic. */
dp_status plan_memory_place(plan_buffer *buffers, uint32_t count, int64_t base_bytes, int64_t live_peak_bytes,
                            int64_t *top_bytes, dp_error *error);

dp_status plan_memory_layout(const plan_program *program, const graph *graph, const plan_memory_options *options,
                             plan_memory *memory, dp_error *error);
/* Whether the plan's weight backward comes apart. */
bool plan_splits_backward(const plan_plan *plan);
void plan_memory_free(plan_memory *memory);

#endif
