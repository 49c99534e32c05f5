#include "exec/ops_sizes.h"

#include <math.h>

static int64_t elements(const graph_tensor *t) { return graph_tensor_elements(t); }

/* ---- products ---- */

static void linear_forward(const exec_call *c) {
  const kern_linear size = exec_linear_size(c);
  kern_linear_forward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->y[0]);
  if (!c->adapter) return;
  const kern_lora lora = exec_lora_size(c);
  kern_lora_forward(c->kern, &lora, c->x[0], c->adapter->a, c->adapter->b, c->statistics, c->y[0]);
}

static void linear_backward_input(const exec_call *c) {
  const kern_linear size = exec_linear_size(c);
  if (c->dx[0]) kern_linear_input_gradient(c->kern, &size, c->w[0], c->dy[0], c->dx[0], c->add[0]);
  if (!c->adapter) return;
  const kern_lora lora = exec_lora_size(c);
  kern_lora_input_gradient(c->kern, &lora, c->adapter->a, c->adapter->b, c->dy[0], c->hidden_gradient, c->dx[0]);
}

static void linear_backward_weight(const exec_call *c) {
  const kern_linear size = exec_linear_size(c);
  if (c->dw[0] || c->dw[1]) kern_linear_weight_gradient(c->kern, &size, c->x[0], c->dy[0], c->dw[0], c->dw[1]);
  if (!c->adapter || !c->adapter->da) return;
  const kern_lora lora = exec_lora_size(c);
  kern_lora_weight_gradient(c->kern, &lora, c->x[0], c->dy[0], c->statistics, c->hidden_gradient, c->adapter->da,
                            c->adapter->db);
}

static size_t linear_workspace(const exec_call *c, int threads) {
  const kern_linear size = exec_linear_size(c);
  return kern_linear_workspace(&size, threads);
}

static void conv_forward(const exec_call *c) {
  const kern_conv2d size = exec_conv_size(c);
  kern_conv2d_forward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->y[0]);
}

static void conv_backward_input(const exec_call *c) {
  const kern_conv2d size = exec_conv_size(c);
  if (c->dx[0]) kern_conv2d_input_gradient(c->kern, &size, c->w[0], c->dy[0], c->dx[0], c->add[0]);
}

static void conv_backward_weight(const exec_call *c) {
  const kern_conv2d size = exec_conv_size(c);
  if (c->dw[0] || c->dw[1]) kern_conv2d_weight_gradient(c->kern, &size, c->x[0], c->dy[0], c->dw[0], c->dw[1]);
}

static size_t conv_workspace(const exec_call *c, int threads) {
  const kern_conv2d size = exec_conv_size(c);
  return kern_conv2d_workspace(&size, threads);
}

/* ---- attention; statistics: log of the sums of exponentials ---- */

static void attention_forward(const exec_call *c) {
  const kern_attention size = exec_attention_size(c);
  kern_attention_forward(c->kern, &size, c->x[0], c->x[1], c->x[2], c->y[0], c->statistics);
}

static void attention_backward(const exec_call *c) {
  const kern_attention size = exec_attention_size(c);
  bool add = false; /* then for all: what has nothing yet gets zeros */
  for (int i = 0; i < 3; i++) add = add || (c->dx[i] && c->add[i]);
  for (int i = 0; i < 3; i++)
    if (add && c->dx[i] && !c->add[i]) kern_fill(c->kern, elements(c->in[i]), 0, c->dx[i]);
  kern_attention_backward(c->kern, &size, c->x[0], c->x[1], c->x[2], c->y[0], c->statistics, c->dy[0], c->dx[0],
                          c->dx[1], c->dx[2], add);
}

static size_t attention_workspace(const exec_call *c, int threads) {
  const kern_attention size = exec_attention_size(c);
  return kern_attention_workspace(&size, threads);
}

/* ---- norms; statistics: means and reciprocal deviations ---- */

static void group_norm_forward(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  kern_group_norm_forward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->y[0], c->statistics);
}

static void group_norm_again(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  kern_group_norm_again(c->kern, &size, c->x[0], c->w[0], c->w[1], c->statistics, c->y[0]);
}

static void group_norm_backward_input(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  if (c->dx[0])
    kern_group_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], c->dx[0], c->add[0], NULL,
                             NULL);
}

static void group_norm_backward_weight(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  if (c->dw[0])
    kern_group_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], NULL, false, c->dw[0],
                             c->dw[1]);
}

static size_t group_norm_workspace(const exec_call *c, int threads) {
  const kern_group_norm size = exec_group_norm_size(c);
  return kern_group_norm_workspace(&size, threads);
}

static void layer_norm_forward(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  kern_layer_norm_forward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->y[0], c->statistics);
}

static void layer_norm_again(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  kern_layer_norm_again(c->kern, &size, c->x[0], c->w[0], c->w[1], c->statistics, c->y[0]);
}

static void layer_norm_backward_input(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  if (c->dx[0])
    kern_layer_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], c->dx[0], c->add[0], NULL,
                             NULL);
}

static void layer_norm_backward_weight(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  if (c->dw[0])
    kern_layer_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], NULL, false, c->dw[0],
                             c->dw[1]);
}

static void rms_norm_forward(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  kern_rms_norm_forward(c->kern, &size, c->x[0], c->w[0], c->y[0], c->statistics);
}

static void rms_norm_again(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  kern_rms_norm_again(c->kern, &size, c->x[0], c->w[0], c->statistics, c->y[0]);
}

static void rms_norm_backward_input(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  if (c->dx[0])
    kern_rms_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], c->dx[0], c->add[0], NULL);
}

static void rms_norm_backward_weight(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  if (c->dw[0])
    kern_rms_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], NULL, false, c->dw[0]);
}

static size_t row_norm_workspace(const exec_call *c, int threads) {
  const kern_row_norm size = exec_row_norm_size(c);
  return kern_row_norm_workspace(&size, threads);
}

/* ---- activations ---- */

static void activation_forward(const exec_call *c) {
  kern_activation_forward(c->kern, exec_activation_of(c), elements(c->in[0]), c->x[0], c->y[0]);
}

static void activation_backward(const exec_call *c) {
  if (c->dx[0])
    kern_activation_backward(c->kern, exec_activation_of(c), elements(c->in[0]), c->x[0], c->dy[0], c->dx[0],
                             c->add[0]);
}

static void gated_forward(const exec_call *c) {
  kern_gated_forward(c->kern, exec_gated_of(c), exec_rows(c->out[0]), exec_channels(c->out[0]), c->x[0], c->y[0]);
}

static void gated_backward(const exec_call *c) {
  if (c->dx[0])
    kern_gated_backward(c->kern, exec_gated_of(c), exec_rows(c->out[0]), exec_channels(c->out[0]), c->x[0], c->dy[0],
                        c->dx[0], c->add[0]);
}

/* ---- sums ---- */

/* What lies there already is not moved. */
static void move(const exec_call *c, int64_t n, const float *from, float *to, bool add) {
  if (from == to) return;
  if (add)
    kern_axpy(c->kern, n, 1, from, to);
  else
    kern_copy(c->kern, n, from, to);
}

/* The second operand: alike; one value a channel; or the same for every sample. */
static void add_forward(const exec_call *c) {
  const int64_t n = elements(c->in[0]), m = elements(c->in[1]);
  if (exec_is_vector_of(c->in[0], c->in[1])) {
    const kern_broadcast size = exec_broadcast_size(c->in[0]);
    kern_add_vector_forward(c->kern, &size, c->x[0], c->x[1], c->y[0]);
    return;
  }
  const float *x = c->x[0];
  float *y = c->y[0];
  for (int64_t at = 0; at < n; at += m) kern_add(c->kern, m, x + at, c->x[1], y + at);
}

static void add_backward(const exec_call *c) {
  const int64_t n = elements(c->in[0]), m = elements(c->in[1]);
  if (c->dx[0]) move(c, n, c->dy[0], c->dx[0], c->add[0]);
  if (!c->dx[1]) return;
  const bool same = c->dx[0] == c->dx[1]; /* x + x */
  if (exec_is_vector_of(c->in[0], c->in[1])) {
    const kern_broadcast size = exec_broadcast_size(c->in[0]);
    kern_add_vector_backward(c->kern, &size, c->dy[0], c->dx[1], c->add[1]);
    return;
  }
  const float *dy = c->dy[0];
  for (int64_t at = 0; at < n; at += m) move(c, m, dy + at, c->dx[1], same || c->add[1] || at > 0);
}

static size_t broadcast_workspace(const exec_call *c, int threads) {
  const kern_broadcast size = exec_broadcast_size(c->in[0]);
  return kern_broadcast_workspace(&size, threads);
}

/* ---- pieces ---- */

static void concat_forward(const exec_call *c) {
  const int64_t outer = exec_outer_of(c->out[0], (int)c->op->attributes.axis);
  int64_t widths[GRAPH_MAX_INPUTS];
  const float *pieces[GRAPH_MAX_INPUTS];
  for (int i = 0; i < c->op->input_count; i++) {
    widths[i] = elements(c->in[i]) / outer;
    pieces[i] = c->x[i];
  }
  kern_concat(c->kern, outer, c->op->input_count, widths, pieces, c->y[0], false);
}

static void concat_backward(const exec_call *c) {
  const int64_t outer = exec_outer_of(c->out[0], (int)c->op->attributes.axis);
  int64_t widths[GRAPH_MAX_INPUTS];
  for (int i = 0; i < c->op->input_count; i++) widths[i] = elements(c->in[i]) / outer;
  for (int add = 0; add < 2; add++) {
    float *pieces[GRAPH_MAX_INPUTS] = {NULL};
    bool any = false;
    for (int i = 0; i < c->op->input_count; i++)
      if (c->dx[i] && c->add[i] == (add == 1)) {
        pieces[i] = c->dx[i];
        any = true;
      }
    if (any) kern_split(c->kern, outer, c->op->input_count, widths, c->dy[0], pieces, add == 1);
  }
}

static void split_forward(const exec_call *c) {
  const int64_t outer = exec_outer_of(c->in[0], (int)c->op->attributes.axis);
  int64_t widths[GRAPH_MAX_PIECES];
  float *pieces[GRAPH_MAX_PIECES];
  for (int i = 0; i < c->op->output_count; i++) {
    widths[i] = elements(c->out[i]) / outer;
    pieces[i] = c->y[i];
  }
  kern_split(c->kern, outer, c->op->output_count, widths, c->x[0], pieces, false);
}

static void split_backward(const exec_call *c) {
  const int64_t outer = exec_outer_of(c->in[0], (int)c->op->attributes.axis);
  int64_t widths[GRAPH_MAX_PIECES];
  const float *pieces[GRAPH_MAX_PIECES];
  bool whole = true;
  for (int i = 0; i < c->op->output_count; i++) {
    widths[i] = elements(c->out[i]) / outer;
    pieces[i] = c->dy[i];
    whole = whole && c->dy[i];
  }
  if (!c->dx[0]) return;
  if (!whole && !c->add[0]) kern_fill(c->kern, elements(c->in[0]), 0, c->dx[0]);
  kern_concat(c->kern, outer, c->op->output_count, widths, pieces, c->dx[0], c->add[0] || !whole);
}

/* A reshape whose output leaves its unit. */
static void reshape_forward(const exec_call *c) { kern_copy(c->kern, elements(c->in[0]), c->x[0], c->y[0]); }

static void reshape_backward(const exec_call *c) {
  if (c->dx[0]) move(c, elements(c->in[0]), c->dy[0], c->dx[0], c->add[0]);
}

/* ---- images ---- */

static void upsample_forward(const exec_call *c) {
  const kern_resample size = exec_resample_size(c);
  kern_upsample_forward(c->kern, &size, c->x[0], c->y[0]);
}
static void upsample_backward(const exec_call *c) {
  const kern_resample size = exec_resample_size(c);
  if (c->dx[0]) kern_upsample_backward(c->kern, &size, c->dy[0], c->dx[0], c->add[0]);
}
static void downsample_forward(const exec_call *c) {
  const kern_resample size = exec_resample_size(c);
  kern_downsample_forward(c->kern, &size, c->x[0], c->y[0]);
}
static void downsample_backward(const exec_call *c) {
  const kern_resample size = exec_resample_size(c);
  if (c->dx[0]) kern_downsample_backward(c->kern, &size, c->dy[0], c->dx[0], c->add[0]);
}

static void unpatchify_forward(const exec_call *c) {
  const kern_patches size = exec_patches_size(c);
  kern_unpatchify(c->kern, &size, c->x[0], c->y[0], false);
}
static void unpatchify_backward(const exec_call *c) {
  const kern_patches size = exec_patches_size(c);
  if (c->dx[0]) kern_patchify(c->kern, &size, c->dy[0], c->dx[0], c->add[0]);
}

/* ---- conditioning ---- */

static void time_embedding_forward(const exec_call *c) {
  const kern_time_embedding size = exec_time_embedding_size(c);
  kern_time_embedding_forward(c->kern, &size, c->x[0], c->y[0]);
}

/* x (1 + scale) + shift, or with two inputs x gate */
static void modulate_forward(const exec_call *c) {
  const kern_broadcast size = exec_broadcast_size(c->in[0]);
  if (c->op->input_count == 2)
    kern_gate_forward(c->kern, &size, c->x[0], c->x[1], c->y[0]);
  else
    kern_modulate_forward(c->kern, &size, c->x[0], c->x[1], c->x[2], c->y[0]);
}

static void modulate_backward(const exec_call *c) {
  const kern_broadcast size = exec_broadcast_size(c->in[0]);
  for (int i = 0; i < c->op->input_count; i++) { /* one by one: each adds or overwrites */
    if (!c->dx[i]) continue;
    float *dx[3] = {NULL, NULL, NULL};
    dx[i] = c->dx[i];
    if (c->op->input_count == 2)
      kern_gate_backward(c->kern, &size, c->x[0], c->x[1], c->dy[0], dx[0], dx[1], c->add[i]);
    else
      kern_modulate_backward(c->kern, &size, c->x[0], c->x[1], c->dy[0], dx[0], dx[1], dx[2], c->add[i]);
  }
}

static void rotary_forward(const exec_call *c) {
  const kern_rotary size = exec_rotary_size(c);
  const float *cosines = c->x[1];
  kern_rotary_forward(c->kern, &size, c->x[0], cosines, cosines + size.tokens * size.head_dim, c->y[0]);
}
static void rotary_backward(const exec_call *c) {
  const kern_rotary size = exec_rotary_size(c);
  const float *cosines = c->x[1];
  if (c->dx[0])
    kern_rotary_backward(c->kern, &size, c->dy[0], cosines, cosines + size.tokens * size.head_dim, c->dx[0], c->add[0]);
}

const exec_op_row exec_op_rows[GRAPH_OP_KIND_COUNT] = {
    [GRAPH_CONV2D] = {conv_forward, conv_backward_input, conv_backward_weight, conv_workspace, NULL},
    [GRAPH_LINEAR] = {linear_forward, linear_backward_input, linear_backward_weight, linear_workspace, NULL},
    [GRAPH_ATTENTION] = {attention_forward, attention_backward, NULL, attention_workspace, NULL},
    [GRAPH_GROUP_NORM] = {group_norm_forward, group_norm_backward_input, group_norm_backward_weight,
                          group_norm_workspace, group_norm_again},
    [GRAPH_LAYER_NORM] = {layer_norm_forward, layer_norm_backward_input, layer_norm_backward_weight, row_norm_workspace,
                          layer_norm_again},
    [GRAPH_RMS_NORM] = {rms_norm_forward, rms_norm_backward_input, rms_norm_backward_weight, row_norm_workspace,
                        rms_norm_again},
    [GRAPH_SILU] = {activation_forward, activation_backward, NULL, NULL, NULL},
    [GRAPH_GELU] = {activation_forward, activation_backward, NULL, NULL, NULL},
    [GRAPH_GEGLU] = {gated_forward, gated_backward, NULL, NULL, NULL},
    [GRAPH_SWIGLU] = {gated_forward, gated_backward, NULL, NULL, NULL},
    [GRAPH_ADD] = {add_forward, add_backward, NULL, broadcast_workspace, NULL},
    [GRAPH_CONCAT] = {concat_forward, concat_backward, NULL, NULL, NULL},
    [GRAPH_SPLIT] = {split_forward, split_backward, NULL, NULL, NULL},
    [GRAPH_UPSAMPLE] = {upsample_forward, upsample_backward, NULL, NULL, NULL},
    [GRAPH_DOWNSAMPLE] = {downsample_forward, downsample_backward, NULL, NULL, NULL},
    [GRAPH_TIME_EMBEDDING] = {time_embedding_forward, NULL, NULL, NULL, NULL},
    [GRAPH_MODULATE] = {modulate_forward, modulate_backward, NULL, broadcast_workspace, NULL},
    [GRAPH_ROTARY] = {rotary_forward, rotary_backward, NULL, NULL, NULL},
    [GRAPH_UNPATCHIFY] = {unpatchify_forward, unpatchify_backward, NULL, NULL, NULL},
    [GRAPH_RESHAPE] = {reshape_forward, reshape_backward, NULL, NULL, NULL},
};

/* ---- what chunks need beside ops ---- */

static void move_values(void *context, int64_t n, const void *from, void *to, bool add) {
  if (add)
    kern_axpy(context, n, 1, from, to);
  else
    kern_copy(context, n, from, to);
}

static void spoil(void *context, int64_t bytes, void *at) {
  kern_fill(context, bytes / (int64_t)sizeof(float), NAN, at);
}

static void clear(void *context, int64_t n, void *at) { kern_fill(context, n, 0, at); }

static bool is_finite(void *context, graph_dtype dtype, int64_t n, const void *values) {
  const float *x = values;
  float sum = 0; /* 0 times what is not finite is not 0 */
  (void)context, (void)dtype;
  for (int64_t i = 0; i < n; i++) sum += 0 * x[i];
  return sum == 0;
}

static size_t project_workspace(const kern_separable *size, graph_dtype dtype, int threads) {
  (void)dtype;
  return kern_separable_workspace(size, threads);
}

static void project(void *context, const kern_separable *size, void *const m[3], const void *x, void *y) {
  kern_separable_forward(context, size, x, m[0], m[1], m[2], y);
}

static void project_input_gradient(void *context, const kern_separable *size, void *const m[3], const void *dy,
                                   void *dx, bool add) {
  kern_separable_input_gradient(context, size, m[0], m[1], m[2], dy, dx, add);
}

static void project_weight_gradient(void *context, const kern_separable *size, void *const m[3], const void *x,
                                    const void *dy, void *const dm[3]) {
  kern_separable_weight_gradient(context, size, x, m[0], m[1], m[2], dy, dm[0], dm[1], dm[2]);
}

const exec_math exec_math_cpu = {.name = "the CPU",
                                 .rows = exec_op_rows,
                                 .move = move_values,
                                 .spoil = spoil,
                                 .clear = clear,
                                 .is_finite = is_finite,
                                 .project_workspace = project_workspace,
                                 .project = project,
                                 .project_input_gradient = project_input_gradient,
                                 .project_weight_gradient = project_weight_gradient};
