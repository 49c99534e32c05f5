/* How a CUDA device does each op: kernels/cuda/ under the graph's attributes. */
#include <math.h>

#include "exec/device_cuda.h"
#include "exec/fusion.h"
#include "exec/ops_sizes.h"
#include "graph/op_table.h"

#define elements graph_tensor_elements

static kern_dtype dtype_of(const exec_call *c) { return c->graph->precision == GRAPH_BF16 ? KERN_BF16 : KERN_FP32; }

/* ---- products ---- */

static void linear_forward(const exec_call *c) {
  const kern_linear size = exec_linear_size(c);
  kern_cuda_linear_forward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->residual, c->y[0]);
  if (!c->adapter) return;
  const kern_lora lora = exec_lora_size(c);
  kern_cuda_lora_forward(c->kern, &lora, c->x[0], c->adapter->a, c->adapter->b, c->statistics, c->y[0]);
}

static void linear_backward_input(const exec_call *c) {
  const kern_linear size = exec_linear_size(c);
  if (c->dx[0]) kern_cuda_linear_input_gradient(c->kern, &size, c->w[0], c->dy[0], c->dx[0], c->add[0]);
  if (!c->adapter) return;
  const kern_lora lora = exec_lora_size(c);
  kern_cuda_lora_input_gradient(c->kern, &lora, c->adapter->a, c->adapter->b, c->dy[0], c->hidden_gradient, c->dx[0]);
}

static void linear_backward_weight(const exec_call *c) {
  const kern_linear size = exec_linear_size(c);
  if (c->dw[0] || c->dw[1]) kern_cuda_linear_weight_gradient(c->kern, &size, c->x[0], c->dy[0], c->dw[0], c->dw[1]);
  if (!c->adapter || !c->adapter->da) return;
  const kern_lora lora = exec_lora_size(c);
  kern_cuda_lora_weight_gradient(c->kern, &lora, c->x[0], c->dy[0], c->statistics, c->hidden_gradient, c->adapter->da,
                                 c->adapter->db);
}

static size_t linear_workspace(const exec_call *c, int threads) {
  (void)threads;
  const kern_linear size = exec_linear_size(c);
  size_t bytes = kern_cuda_linear_workspace(&size, dtype_of(c));
  if (c->op->adapter_parameters > 0) {
    const exec_lora adapter = {.rank = c->op->adapter_parameters / (size.in + size.out)};
    exec_call with = *c;
    with.adapter = &adapter;
    const kern_lora lora = exec_lora_size(&with);
    const size_t more = kern_cuda_lora_workspace(&lora, dtype_of(c));
    if (more > bytes) bytes = more;
  }
  return bytes;
}

static void conv_forward(const exec_call *c) {
  const kern_conv2d size = exec_conv_size(c);
  kern_cuda_conv2d_forward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->residual, c->y[0]);
}

static void conv_backward_input(const exec_call *c) {
  const kern_conv2d size = exec_conv_size(c);
  if (c->dx[0]) kern_cuda_conv2d_input_gradient(c->kern, &size, c->w[0], c->dy[0], c->dx[0], c->add[0]);
}

static void conv_backward_weight(const exec_call *c) {
  const kern_conv2d size = exec_conv_size(c);
  if (c->dw[0] || c->dw[1]) kern_cuda_conv2d_weight_gradient(c->kern, &size, c->x[0], c->dy[0], c->dw[0], c->dw[1]);
}

static size_t conv_workspace(const exec_call *c, int threads) {
  (void)threads;
  const kern_conv2d size = exec_conv_size(c);
  return kern_cuda_conv2d_workspace(&size, dtype_of(c));
}

/* ---- attention; statistics: log of the sums of exponentials ---- */

static void attention_forward(const exec_call *c) {
  const kern_attention size = exec_attention_size(c);
  kern_cuda_attention_forward(c->kern, &size, c->x[0], c->x[1], c->x[2], c->y[0], c->statistics);
}

static void attention_backward(const exec_call *c) {
  const kern_attention size = exec_attention_size(c);
  bool add = false; /* then for all: what has nothing yet gets zeros */
  for (int i = 0; i < 3; i++) add = add || (c->dx[i] && c->add[i]);
  for (int i = 0; i < 3; i++)
    if (add && c->dx[i] && !c->add[i]) kern_cuda_fill(c->kern, dtype_of(c), elements(c->in[i]), 0, c->dx[i]);
  kern_cuda_attention_backward(c->kern, &size, c->x[0], c->x[1], c->x[2], c->y[0], c->statistics, c->dy[0], c->dx[0],
                               c->dx[1], c->dx[2], add);
}

static size_t attention_workspace(const exec_call *c, int threads) {
  (void)threads;
  const kern_attention size = exec_attention_size(c);
  return kern_cuda_attention_workspace(&size, dtype_of(c));
}

/* ---- norms ---- */

static void group_norm_forward(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  kern_cuda_group_norm_forward(c->kern, &size, c->x[0], c->w[0], c->w[1], false, c->y[0], c->statistics);
}

static void group_norm_again(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  kern_cuda_group_norm_again(c->kern, &size, c->x[0], c->w[0], c->w[1], c->statistics, false, c->y[0]);
}

static void group_norm_backward_input(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  if (c->dx[0])
    kern_cuda_group_norm_backward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->statistics, c->dy[0], false, c->dx[0],
                                  c->add[0], NULL, NULL);
}

static void group_norm_backward_weight(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  if (c->dw[0])
    kern_cuda_group_norm_backward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->statistics, c->dy[0], false, NULL,
                                  false, c->dw[0], c->dw[1]);
}

static size_t group_norm_workspace(const exec_call *c, int threads) {
  (void)threads;
  const kern_group_norm size = exec_group_norm_size(c);
  return kern_cuda_group_norm_workspace(&size, dtype_of(c));
}

static void layer_norm_forward(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  kern_cuda_layer_norm_forward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->y[0], c->statistics);
}

static void layer_norm_again(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  kern_cuda_layer_norm_again(c->kern, &size, c->x[0], c->w[0], c->w[1], c->statistics, c->y[0]);
}

static void layer_norm_backward_input(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  if (c->dx[0])
    kern_cuda_layer_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], c->dx[0], c->add[0], NULL,
                                  NULL);
}

static void layer_norm_backward_weight(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  if (c->dw[0])
    kern_cuda_layer_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], NULL, false, c->dw[0],
                                  c->dw[1]);
}

static void rms_norm_forward(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  kern_cuda_rms_norm_forward(c->kern, &size, c->x[0], c->w[0], c->y[0], c->statistics);
}

static void rms_norm_again(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  kern_cuda_rms_norm_again(c->kern, &size, c->x[0], c->w[0], c->statistics, c->y[0]);
}

static void rms_norm_backward_input(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  if (c->dx[0])
    kern_cuda_rms_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], c->dx[0], c->add[0], NULL);
}

static void rms_norm_backward_weight(const exec_call *c) {
  const kern_row_norm size = exec_row_norm_size(c);
  if (c->dw[0])
    kern_cuda_rms_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], NULL, false, c->dw[0]);
}

static size_t row_norm_workspace(const exec_call *c, int threads) {
  (void)threads;
  const kern_row_norm size = exec_row_norm_size(c);
  return kern_cuda_row_norm_workspace(&size, dtype_of(c));
}

/* ---- activations ---- */

static void activation_forward(const exec_call *c) {
  kern_cuda_activation_forward(c->kern, exec_activation_of(c), elements(c->in[0]), c->x[0], c->y[0]);
}

static void activation_backward(const exec_call *c) {
  if (c->dx[0])
    kern_cuda_activation_backward(c->kern, exec_activation_of(c), elements(c->in[0]), c->x[0], c->dy[0], c->dx[0],
                                  c->add[0]);
}

static size_t activation_workspace(const exec_call *c, int threads) {
  (void)threads;
  return kern_cuda_activation_bias_workspace(exec_rows(c->out[0]), exec_channels(c->out[0]), dtype_of(c));
}

static void gated_forward(const exec_call *c) {
  kern_cuda_gated_forward(c->kern, exec_gated_of(c), exec_rows(c->out[0]), exec_channels(c->out[0]), c->x[0], c->y[0]);
}

static void gated_backward(const exec_call *c) {
  if (c->dx[0])
    kern_cuda_gated_backward(c->kern, exec_gated_of(c), exec_rows(c->out[0]), exec_channels(c->out[0]), c->x[0],
                             c->dy[0], c->dx[0], c->add[0]);
}

static size_t gated_workspace(const exec_call *c, int threads) {
  (void)threads;
  return kern_cuda_gated_bias_workspace(exec_rows(c->out[0]), exec_channels(c->out[0]), dtype_of(c));
}

/* ---- sums ---- */

/* What lies there already is not moved. */
static void move(const exec_call *c, int64_t n, const void *from, void *to, bool add) {
  if (from == to) return;
  if (add)
    kern_cuda_axpy(c->kern, dtype_of(c), n, 1, from, to);
  else
    kern_cuda_copy(c->kern, n, from, to);
}

static const char *after(const exec_call *c, const void *from, int64_t values) {
  return (const char *)from + values * graph_dtype_bytes(c->graph->precision);
}

static void add_forward(const exec_call *c) {
  const int64_t n = elements(c->in[0]), m = elements(c->in[1]);
  if (exec_is_vector_of(c->in[0], c->in[1])) {
    const kern_broadcast size = exec_broadcast_size(c->in[0]);
    kern_cuda_add_vector_forward(c->kern, &size, c->x[0], c->x[1], c->y[0]);
    return;
  }
  for (int64_t at = 0; at < n; at += m)
    kern_cuda_add(c->kern, m, after(c, c->x[0], at), c->x[1],
                  (char *)c->y[0] + (after(c, c->x[0], at) - (const char *)c->x[0]));
}

static void add_backward(const exec_call *c) {
  const int64_t n = elements(c->in[0]), m = elements(c->in[1]);
  if (c->dx[0]) move(c, n, c->dy[0], c->dx[0], c->add[0]);
  if (!c->dx[1]) return;
  const bool same = c->dx[0] == c->dx[1]; /* x + x */
  if (exec_is_vector_of(c->in[0], c->in[1])) {
    const kern_broadcast size = exec_broadcast_size(c->in[0]);
    kern_cuda_add_vector_backward(c->kern, &size, c->dy[0], c->dx[1], c->add[1]);
    return;
  }
  for (int64_t at = 0; at < n; at += m) move(c, m, after(c, c->dy[0], at), c->dx[1], same || c->add[1] || at > 0);
}

static size_t broadcast_workspace(const exec_call *c, int threads) {
  (void)threads;
  const kern_broadcast size = exec_broadcast_size(c->in[0]);
  return kern_cuda_broadcast_workspace(&size, dtype_of(c));
}

/* ---- pieces ---- */

static void concat_forward(const exec_call *c) {
  const int64_t outer = exec_outer_of(c->out[0], (int)c->op->attributes.axis);
  int64_t widths[GRAPH_MAX_INPUTS];
  for (int i = 0; i < c->op->input_count; i++) widths[i] = elements(c->in[i]) / outer;
  kern_cuda_concat(c->kern, outer, c->op->input_count, widths, c->x, c->y[0], false);
}

static void concat_backward(const exec_call *c) {
  const int64_t outer = exec_outer_of(c->out[0], (int)c->op->attributes.axis);
  int64_t widths[GRAPH_MAX_INPUTS];
  for (int i = 0; i < c->op->input_count; i++) widths[i] = elements(c->in[i]) / outer;
  for (int add = 0; add < 2; add++) {
    void *pieces[GRAPH_MAX_INPUTS] = {NULL};
    bool any = false;
    for (int i = 0; i < c->op->input_count; i++)
      if (c->dx[i] && c->add[i] == (add == 1)) {
        pieces[i] = c->dx[i];
        any = true;
      }
    if (any) kern_cuda_split(c->kern, outer, c->op->input_count, widths, c->dy[0], pieces, add == 1);
  }
}

static void split_forward(const exec_call *c) {
  const int64_t outer = exec_outer_of(c->in[0], (int)c->op->attributes.axis);
  int64_t widths[GRAPH_MAX_PIECES];
  for (int i = 0; i < c->op->output_count; i++) widths[i] = elements(c->out[i]) / outer;
  kern_cuda_split(c->kern, outer, c->op->output_count, widths, c->x[0], c->y, false);
}

static void split_backward(const exec_call *c) {
  const int64_t outer = exec_outer_of(c->in[0], (int)c->op->attributes.axis);
  int64_t widths[GRAPH_MAX_PIECES];
  bool whole = true;
  for (int i = 0; i < c->op->output_count; i++) {
    widths[i] = elements(c->out[i]) / outer;
    whole = whole && c->dy[i];
  }
  if (!c->dx[0]) return;
  if (!whole && !c->add[0]) kern_cuda_fill(c->kern, dtype_of(c), elements(c->in[0]), 0, c->dx[0]);
  kern_cuda_concat(c->kern, outer, c->op->output_count, widths, c->dy, c->dx[0], c->add[0] || !whole);
}

static void reshape_forward(const exec_call *c) { kern_cuda_copy(c->kern, elements(c->in[0]), c->x[0], c->y[0]); }

static void reshape_backward(const exec_call *c) {
  if (c->dx[0]) move(c, elements(c->in[0]), c->dy[0], c->dx[0], c->add[0]);
}

/* ---- images ---- */

static void upsample_forward(const exec_call *c) {
  const kern_resample size = exec_resample_size(c);
  kern_cuda_upsample_forward(c->kern, &size, c->x[0], c->y[0]);
}
static void upsample_backward(const exec_call *c) {
  const kern_resample size = exec_resample_size(c);
  if (c->dx[0]) kern_cuda_upsample_backward(c->kern, &size, c->dy[0], c->dx[0], c->add[0]);
}
static void downsample_forward(const exec_call *c) {
  const kern_resample size = exec_resample_size(c);
  kern_cuda_downsample_forward(c->kern, &size, c->x[0], c->y[0]);
}
static void downsample_backward(const exec_call *c) {
  const kern_resample size = exec_resample_size(c);
  if (c->dx[0]) kern_cuda_downsample_backward(c->kern, &size, c->dy[0], c->dx[0], c->add[0]);
}
static void unpatchify_forward(const exec_call *c) {
  const kern_patches size = exec_patches_size(c);
  kern_cuda_unpatchify(c->kern, &size, c->x[0], c->y[0], false);
}
static void unpatchify_backward(const exec_call *c) {
  const kern_patches size = exec_patches_size(c);
  if (c->dx[0]) kern_cuda_patchify(c->kern, &size, c->dy[0], c->dx[0], c->add[0]);
}

/* ---- conditioning ---- */

static void time_embedding_forward(const exec_call *c) {
  const kern_time_embedding size = exec_time_embedding_size(c);
  kern_cuda_time_embedding_forward(c->kern, &size, c->x[0], c->out[0]->dtype == GRAPH_FP32 ? KERN_FP32 : KERN_BF16,
                                   c->y[0]);
}

static void modulate_forward(const exec_call *c) {
  const kern_broadcast size = exec_broadcast_size(c->in[0]);
  if (c->op->input_count == 2)
    kern_cuda_gate_forward(c->kern, &size, c->x[0], c->x[1], c->y[0]);
  else
    kern_cuda_modulate_forward(c->kern, &size, c->x[0], c->x[1], c->x[2], c->y[0]);
}

/* All at once where all add or all overwrite, else one by one. */
static void modulate_backward(const exec_call *c) {
  const kern_broadcast size = exec_broadcast_size(c->in[0]);
  for (int add = 0; add < 2; add++) {
    void *dx[3] = {NULL, NULL, NULL};
    bool any = false;
    for (int i = 0; i < c->op->input_count; i++)
      if (c->dx[i] && c->add[i] == (add == 1)) {
        dx[i] = c->dx[i];
        any = true;
      }
    if (!any) continue;
    if (c->op->input_count == 2)
      kern_cuda_gate_backward(c->kern, &size, c->x[0], c->x[1], c->dy[0], dx[0], dx[1], add == 1);
    else
      kern_cuda_modulate_backward(c->kern, &size, c->x[0], c->x[1], c->dy[0], dx[0], dx[1], dx[2], add == 1);
  }
}

static void rotary_forward(const exec_call *c) {
  const kern_rotary size = exec_rotary_size(c);
  const float *cosines = c->x[1];
  kern_cuda_rotary_forward(c->kern, &size, c->x[0], cosines, cosines + size.tokens * size.head_dim, c->y[0]);
}
static void rotary_backward(const exec_call *c) {
  const kern_rotary size = exec_rotary_size(c);
  const float *cosines = c->x[1];
  if (c->dx[0])
    kern_cuda_rotary_backward(c->kern, &size, c->dy[0], cosines, cosines + size.tokens * size.head_dim, c->dx[0],
                              c->add[0]);
}

const exec_op_row exec_cuda_rows[GRAPH_OP_KIND_COUNT] = {
    [GRAPH_CONV2D] = {conv_forward, conv_backward_input, conv_backward_weight, conv_workspace, NULL},
    [GRAPH_LINEAR] = {linear_forward, linear_backward_input, linear_backward_weight, linear_workspace, NULL},
    [GRAPH_ATTENTION] = {attention_forward, attention_backward, NULL, attention_workspace, NULL},
    [GRAPH_GROUP_NORM] = {group_norm_forward, group_norm_backward_input, group_norm_backward_weight,
                          group_norm_workspace, group_norm_again},
    [GRAPH_LAYER_NORM] = {layer_norm_forward, layer_norm_backward_input, layer_norm_backward_weight, row_norm_workspace,
                          layer_norm_again},
    [GRAPH_RMS_NORM] = {rms_norm_forward, rms_norm_backward_input, rms_norm_backward_weight, row_norm_workspace,
                        rms_norm_again},
    [GRAPH_SILU] = {activation_forward, activation_backward, NULL, activation_workspace, NULL},
    [GRAPH_GELU] = {activation_forward, activation_backward, NULL, activation_workspace, NULL},
    [GRAPH_GEGLU] = {gated_forward, gated_backward, NULL, gated_workspace, NULL},
    [GRAPH_SWIGLU] = {gated_forward, gated_backward, NULL, gated_workspace, NULL},
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

/* ---- groups of actions ---- */

static void norm_silu(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  kern_cuda_group_norm_forward(c->kern, &size, c->x[0], c->w[0], c->w[1], true, c->y[0], c->statistics);
}

static void norm_silu_again(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  kern_cuda_group_norm_again(c->kern, &size, c->x[0], c->w[0], c->w[1], c->statistics, true, c->y[0]);
}

static void product_add(const exec_call *c) { exec_cuda_rows[c->op->kind].forward(c); } /* c->residual */

static void silu_norm_backward(const exec_call *c) {
  const kern_group_norm size = exec_group_norm_size(c);
  kern_cuda_group_norm_backward(c->kern, &size, c->x[0], c->w[0], c->w[1], c->statistics, c->dy[0], true, c->dx[0],
                                c->add[0], c->dw[0], c->dw[1]);
}

static void norm_backward(const exec_call *c) {
  const kern_group_norm groups = exec_group_norm_size(c);
  const kern_row_norm size = exec_row_norm_size(c);
  if (c->op->kind == GRAPH_GROUP_NORM)
    kern_cuda_group_norm_backward(c->kern, &groups, c->x[0], c->w[0], c->w[1], c->statistics, c->dy[0], false, c->dx[0],
                                  c->add[0], c->dw[0], c->dw[1]);
  else if (c->op->kind == GRAPH_LAYER_NORM)
    kern_cuda_layer_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], c->dx[0], c->add[0],
                                  c->dw[0], c->dw[1]);
  else
    kern_cuda_rms_norm_backward(c->kern, &size, c->x[0], c->w[0], c->statistics, c->dy[0], c->dx[0], c->add[0],
                                c->dw[0]);
}

/* Of y and dbias, those that are not NULL, with the gradient of x; not neither. */
static void activation_gradient(const exec_call *c, void *y) {
  const int64_t rows = exec_rows(c->out[0]), channels = exec_channels(c->out[0]);
  const bool gated = graph_op_has(c->op, GRAPH_OP_GATED);
  if (gated && c->dbias)
    kern_cuda_gated_bias(c->kern, exec_gated_of(c), rows, channels, c->x[0], c->dy[0], c->dx[0], y, c->dbias);
  else if (gated)
    kern_cuda_gated_both(c->kern, exec_gated_of(c), rows, channels, c->x[0], c->dy[0], c->dx[0], y);
  else if (c->dbias)
    kern_cuda_activation_bias(c->kern, exec_activation_of(c), rows, channels, c->x[0], c->dy[0], c->dx[0], y, c->dbias);
  else
    kern_cuda_activation_both(c->kern, exec_activation_of(c), rows * channels, c->x[0], c->dy[0], c->dx[0], y);
}

static void activation_bias(const exec_call *c) { activation_gradient(c, NULL); }
static void activation_both(const exec_call *c) { activation_gradient(c, c->y[0]); }

static void siblings(const exec_call *c) {
  const kern_linear size = exec_linear_size(c);
  const void *w[PLAN_MAX_SIBLINGS];
  void *y[PLAN_MAX_SIBLINGS];
  for (int i = 0; i < c->sibling_count; i++) {
    w[i] = c->siblings[i].w[0];
    y[i] = c->siblings[i].y[0];
  }
  kern_cuda_linears_forward(c->kern, &size, c->sibling_count, c->x[0], w, y);
}

static void siblings_weights(const exec_call *c) {
  const kern_linear size = exec_linear_size(c);
  const void *dy[PLAN_MAX_SIBLINGS];
  void *dw[PLAN_MAX_SIBLINGS];
  for (int i = 0; i < c->sibling_count; i++) {
    dy[i] = c->siblings[i].dy[0];
    dw[i] = c->siblings[i].dw[0];
  }
  kern_cuda_linears_weight_gradient(c->kern, &size, c->sibling_count, c->x[0], dy, dw);
}

void (*const exec_cuda_fused[EXEC_FUSION_COUNT])(const exec_call *call) = {
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
