#include "exec/ops_sizes.h"

#include <math.h>

int64_t exec_channels(const graph_tensor *t) { return t->dims[graph_tensor_channel_axis(t)]; }

int64_t exec_positions(const graph_tensor *t) {
  int64_t positions = 1;
  for (int i = 1; i < t->rank; i++)
    if (i != graph_tensor_channel_axis(t)) positions *= t->dims[i];
  return positions;
}

int64_t exec_rows(const graph_tensor *t) { return graph_tensor_elements(t) / exec_channels(t); }

kern_linear exec_linear_size(const exec_call *c) {
  return (kern_linear){.rows = exec_rows(c->in[0]), .in = exec_channels(c->in[0]), .out = exec_channels(c->out[0])};
}

/* statistics: what the adapter's first half makes. */
kern_lora exec_lora_size(const exec_call *c) {
  return (kern_lora){.rows = exec_rows(c->in[0]),
                     .in = exec_channels(c->in[0]),
                     .out = exec_channels(c->out[0]),
                     .rank = c->adapter->rank,
                     .scale = c->adapter->scale};
}

kern_conv2d exec_conv_size(const exec_call *c) {
  const graph_attributes *a = &c->op->attributes;
  return (kern_conv2d){.batch = c->in[0]->dims[0],
                       .height = c->in[0]->dims[2],
                       .width = c->in[0]->dims[3],
                       .in = a->in_channels,
                       .out = a->out_channels,
                       .kernel_height = a->kernel[1],
                       .kernel_width = a->kernel[2],
                       .stride_height = a->stride[1],
                       .stride_width = a->stride[2],
                       .padding_height = a->padding[1],
                       .padding_width = a->padding[2]};
}

kern_attention exec_attention_size(const exec_call *c) {
  const graph_attributes *a = &c->op->attributes;
  return (kern_attention){.batch = c->in[0]->dims[0],
                          .heads = a->heads,
                          .head_dim = a->head_dim,
                          .q_tokens = c->in[0]->dims[1],
                          .k_tokens = c->in[1]->dims[1],
                          .scale = 1 / sqrtf((float)a->head_dim)};
}

kern_group_norm exec_group_norm_size(const exec_call *c) {
  return (kern_group_norm){.batch = c->in[0]->dims[0],
                           .positions = exec_positions(c->in[0]),
                           .channels = exec_channels(c->in[0]),
                           .groups = c->op->attributes.groups,
                           .epsilon = (float)c->op->attributes.epsilon};
}

/* Each row, or each head of a row. */
kern_row_norm exec_row_norm_size(const exec_call *c) {
  const int64_t head_dim = c->op->attributes.head_dim, channels = head_dim ? head_dim : exec_channels(c->in[0]);
  return (kern_row_norm){.rows = graph_tensor_elements(c->in[0]) / channels,
                         .channels = channels,
                         .epsilon = (float)c->op->attributes.epsilon};
}

kern_activation exec_activation_of(const exec_call *c) {
  return c->op->kind == GRAPH_SILU ? KERN_SILU : KERN_GELU_TANH;
}

kern_gated exec_gated_of(const exec_call *c) { return c->op->kind == GRAPH_GEGLU ? KERN_GEGLU : KERN_SWIGLU; }

bool exec_is_vector_of(const graph_tensor *x, const graph_tensor *y) { return y->rank == 2 && x->rank > 2; }

kern_broadcast exec_broadcast_size(const graph_tensor *x) {
  return (kern_broadcast){.batch = x->dims[0], .positions = exec_positions(x), .channels = exec_channels(x)};
}

/* In memory, a tensor is `outer` rows of which a piece along the axis has a width. */
int64_t exec_outer_of(const graph_tensor *t, int axis) {
  int64_t outer = t->dims[0];
  if (axis == 0) return 1;
  if (axis != graph_tensor_channel_axis(t)) { /* tokens, of [B, T, C] */
    for (int i = 1; i < axis; i++) outer *= t->dims[i];
    return outer;
  }
  return exec_rows(t);
}

kern_resample exec_resample_size(const exec_call *c) {
  return (kern_resample){.batch = c->in[0]->dims[0],
                         .height = c->in[0]->dims[2],
                         .width = c->in[0]->dims[3],
                         .channels = c->in[0]->dims[1],
                         .factor = c->op->attributes.scale};
}

/* A token's values are patch row, patch column, channel: SD 3's output. */
kern_patches exec_patches_size(const exec_call *c) {
  const graph_attributes *a = &c->op->attributes;
  return (kern_patches){.batch = c->out[0]->dims[0],
                        .height = c->out[0]->dims[2],
                        .width = c->out[0]->dims[3],
                        .channels = c->out[0]->dims[1],
                        .patch = a->patch[1]};
}

/* The table holds cosines, then sines. */
kern_rotary exec_rotary_size(const exec_call *c) {
  const graph_attributes *a = &c->op->attributes;
  return (kern_rotary){
      .batch = c->in[0]->dims[0], .tokens = c->in[0]->dims[1], .heads = a->heads, .head_dim = a->head_dim};
}

kern_time_embedding exec_time_embedding_size(const exec_call *c) {
  const graph_attributes *a = &c->op->attributes;
  return (kern_time_embedding){.n = graph_tensor_elements(c->in[0]),
                               .channels = a->out_channels,
                               .flip_sin_to_cos = !a->sines_first,
                               .freq_shift = a->frequency_shift,
                               .scale = a->time_factor > 0 ? a->time_factor : 1,
                               .max_period = 10000};
}
