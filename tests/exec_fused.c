#include "tests/exec_fused.h"

#include <check.h>
#include <stdlib.h>

#include "exec/ops.h"
#include "exec/ops_sizes.h"

static bool overwrites;

static void overwrite(void *kern, bool on) {
  (void)kern;
  overwrites = on;
}

static void clear(void *kern, int64_t n, void *at) { kern_fill(kern, n, 0, at); }

static void backward_weight(const exec_call *c) {
  for (int w = 0; overwrites && w < c->op->weight_count; w++)
    if (c->dw[w]) clear(c->kern, c->graph->weights.items[c->op->first_weight + w].parameters, c->dw[w]);
  if (overwrites && c->adapter && c->adapter->da) clear(c->kern, c->op->adapter_parameters, c->adapter->da);
  exec_op_rows[c->op->kind].backward_weight(c);
}

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
  backward_weight(c);
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

static void activation_bias(const exec_call *c) {
  const int64_t channels = exec_channels(c->in[0]);
  const kern_linear linear = {.rows = exec_rows(c->in[0]), .in = 1, .out = channels};
  ck_assert(!c->add[0]);
  exec_op_rows[c->op->kind].backward_input(c);
  if (overwrites) clear(c->kern, channels, c->dbias);
  kern_linear_weight_gradient(c->kern, &linear, NULL, c->dx[0], NULL, c->dbias);
}

static void activation_both(const exec_call *c) {
  ck_assert(!c->add[0]);
  exec_op_rows[c->op->kind].forward(c);
  if (c->dbias)
    activation_bias(c);
  else
    exec_op_rows[c->op->kind].backward_input(c);
}

static void siblings(const exec_call *c) {
  ck_assert_int_ge(c->sibling_count, 2);
  ck_assert_ptr_eq(c, c->siblings);
  for (int i = 0; i < c->sibling_count; i++) {
    ck_assert_ptr_eq(c->siblings[i].x[0], c->x[0]);
    exec_op_rows[c->op->kind].forward(&c->siblings[i]);
  }
}

static void siblings_weights(const exec_call *c) {
  ck_assert_int_ge(c->sibling_count, 2);
  for (int i = 0; i < c->sibling_count; i++) {
    ck_assert_ptr_eq(c->siblings[i].x[0], c->x[0]);
    backward_weight(&c->siblings[i]);
  }
}

static void (*const fused[EXEC_FUSION_COUNT])(const exec_call *call) = {
    [EXEC_FUSION_NORM_SILU] = norm_silu,
    [EXEC_FUSION_NORM_SILU_AGAIN] = norm_silu_again,
    [EXEC_FUSION_PRODUCT_ADD] = product_add,
    [EXEC_FUSION_NORM_BACKWARD] = norm_backward,
    [EXEC_FUSION_SILU_NORM_BACKWARD] = silu_norm_backward,
    [EXEC_FUSION_ACTIVATION_BOTH] = activation_both,
    [EXEC_FUSION_ACTIVATION_BIAS] = activation_bias,
    [EXEC_FUSION_SIBLINGS] = siblings,
    [EXEC_FUSION_SIBLINGS_WEIGHTS] = siblings_weights,
};

static void move_values(void *kern, int64_t n, const void *from, void *to, bool add) {
  exec_math_cpu.move(kern, n, from, to, add);
}
static void spoil(void *kern, int64_t bytes, void *at) { exec_math_cpu.spoil(kern, bytes, at); }

const exec_math *exec_math_fused(void) {
  static exec_op_row rows[GRAPH_OP_KIND_COUNT];
  static const exec_math math = {.name = "the CPU, by groups",
                                 .rows = rows,
                                 .move = move_values,
                                 .spoil = spoil,
                                 .fused = fused,
                                 .overwrite = overwrite,
                                 .clear = clear};
  for (int k = 0; k < GRAPH_OP_KIND_COUNT; k++) {
    rows[k] = exec_op_rows[k];
    if (rows[k].backward_weight) rows[k].backward_weight = backward_weight;
  }
  return &math;
}
