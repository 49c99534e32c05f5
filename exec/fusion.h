/* Neighbouring actions of a chunk that one call of a device's kernels can do, found once per chunk from its places;
 * internal to exec/.
 *
 * The places stay as they are: what lies between two actions of a group is not written, which is right because it lives
 * in the workspace for the group alone, and what the group writes lies nowhere that it reads (but exactly in place,
 * where a kernel can). So a pass run by groups has the results of one run action by action, but for what rounding the
 * value between them would have done. Groups end with their unit.
 *
 * Siblings (plan/places.h) whose outputs, or the gradients of these, lie at equal distances are one call, in which a
 * device may do them as one product. Gradients of their weights are made with those of the one that comes first
 * backward, the last of them: what they are made of is all there by then. (Those of their input stay three products: a
 * sum over three arrays is no batch.)
 *
 * Activations that are made again with their gradients are gated ones, and plain ones behind a linear layer, where the
 * gradient of what they read lies where that of their output does (plan/places.h) and takes its place.
 *
 * Of the 215 GB that all but products and attention read and write in a training step of SDXL (8 samples of 1024 x 1024
 * in bf16) this leaves out 58: 20 of group norms and SiLUs, 12 of sums behind products, 12 of sums' gradients, 13 of
 * biases' gradients.
 */
#ifndef DP_EXEC_FUSION_H
#define DP_EXEC_FUSION_H

#include "base/arena.h"
#include "exec/chunk.h"

/* Forward actions are of a forward pass or of a unit that is recomputed. */
typedef enum exec_fusion_kind {
  EXEC_FUSION_NONE,
  EXEC_FUSION_NORM_SILU,          /* a group norm, forward, and the SiLU of it */
  EXEC_FUSION_NORM_SILU_AGAIN,    /* the same, made again */
  EXEC_FUSION_PRODUCT_ADD,        /* a linear or a convolution, forward, and the sum with an equally shaped residual */
  EXEC_FUSION_NORM_BACKWARD,      /* gradients of a norm's input and of its weights */
  EXEC_FUSION_SILU_NORM_BACKWARD, /* [the group norm's output again,] the SiLU's gradient, the norm's [, its weights']
                                   */
  EXEC_FUSION_SUM_BACKWARD,       /* a sum's gradients but for the one that the next kind does without; alone */
  EXEC_FUSION_BY_SUM,             /* gradients of a product or gate that it adds, by the sum's, not a copy; alone */
  EXEC_FUSION_ACTIVATION_BOTH,    /* an activation made again and its input's gradient, where it is made; alone */
  EXEC_FUSION_ACTIVATION_DONE,    /* that gradient, which is there already; alone */
  EXEC_FUSION_ACTIVATION_BIAS,    /* an activation's gradient and its linear's bias'; alone */
  EXEC_FUSION_BIAS_DONE,          /* gradients of that linear's weights but for the bias'; alone */
  EXEC_FUSION_SIBLINGS,           /* siblings, forward */
  EXEC_FUSION_SIBLINGS_WEIGHTS,   /* gradients of their weights, with that of the one that comes first; alone */
  EXEC_FUSION_SIBLING_DONE,       /* those of another one, which are there already; alone */
  EXEC_FUSION_COUNT
} exec_fusion_kind;

/* What begins with an action. */
typedef struct exec_group {
  uint8_t kind;   /* exec_fusion_kind */
  uint8_t count;  /* actions; 0: it is in the group of one before it */
  uint8_t input;  /* of a sum: what the product or the gate makes */
  uint32_t other; /* BY_SUM: the action of the sum; ACTIVATION_BOTH: of the gradient; _WEIGHTS: of the second's */
  uint32_t third; /* SIBLINGS_WEIGHTS: of the third's; 0: there are two */
  uint32_t bias;  /* ACTIVATION_BOTH and _BIAS: the action whose bias' gradient is made as well; 0: none */
} exec_group;

struct exec_fusion {
  exec_group *groups[PLAN_PASS_COUNT]; /* [action] */
};

/* In `arena`. */
dp_status exec_fusion_of(const graph *graph, const plan_places *places, dp_arena *arena, exec_fusion *fusion,
                         dp_error *error);

#endif
