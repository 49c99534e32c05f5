#include "tests/exec_fused.h"

#include <check.h>
#include <stdlib.h>

#include "exec/ops.h"
#include "exec/ops_sizes.h"

static float *room(const exec_call *c) {
  float *made = malloc((size_t)graph_tensor_elements(c->out[0]) * sizeof *made);
  ck_assert_ptr_nonnull(made);
  return made;
}

static void norm_silu(const exec_call *c) {
  exec_op_rows[c->op->kind].forward(c);
  kern_activation_forward(c->kern, KERN_SILU, graph_tensor_elements(c->out[0]), c->y[0], c->y[0]);
}

static void norm_silu_again(const exec_call *c) {
  exec_op_rows[c->op->kind].again(c);
  kern_activation_forward(c->kern, KERN_SILU, graph_tensor_elements(c->out[0]), c->y[0], c->y[0]);
}

static void product_add(const exec_call *c) {
  ck_assert_ptr_nonnull(c->residual);
  exec_op_rows[c->op->kind].forward(c);
  kern_add(c->kern, graph_tensor_elements(c->out[0]), c->y[0], c->residual, c->y[0]);
}

/* The weights' first: the input's gradient may take the place of what both read. */
static void norm_backward(const exec_call *c) {
  exec_op_rows[c->op->kind].backward_weight(c);
  exec_op_rows[c->op->kind].backward_input(c);
}

static void silu_norm_backward(const exec_call *c) {
  exec_call part = *c;
  float *normed = room(c), *gradient = room(c);
  part.y[0] = normed;
  exec_op_rows[c->op->kind].again(&part);
  kern_activation_backward(c->kern, KERN_SILU, graph_tensor_elements(c->out[0]), normed, c->dy[0], gradient, false);
  part.dy[0] = gradient;
  norm_backward(&part);
  free(normed);
  free(gradient);
}

static void (*const fused[EXEC_FUSION_COUNT])(const exec_call *call) = {
    [EXEC_FUSION_NORM_SILU] = norm_silu,
    [EXEC_FUSION_NORM_SILU_AGAIN] = norm_silu_again,
    [EXEC_FUSION_PRODUCT_ADD] = product_add,
    [EXEC_FUSION_NORM_BACKWARD] = norm_backward,
    [EXEC_FUSION_SILU_NORM_BACKWARD] = silu_norm_backward,
};

static void move_values(void *kern, int64_t n, const void *from, void *to, bool add) {
  exec_math_cpu.move(kern, n, from, to, add);
}
static void spoil(void *kern, int64_t bytes, void *at) { exec_math_cpu.spoil(kern, bytes, at); }

const exec_math exec_math_fused = {
    .name = "the CPU, by groups", .rows = exec_op_rows, .move = move_values, .spoil = spoil, .fused = fused};
