/* What ops' shapes and attributes are in the words of kernels/sizes.h; internal to exec/. Of a tensor in memory,
 * channels last. */
#ifndef DP_EXEC_OPS_SIZES_H
#define DP_EXEC_OPS_SIZES_H

#include "exec/ops.h"

int64_t exec_channels(const graph_tensor *t);
int64_t exec_positions(const graph_tensor *t);
int64_t exec_rows(const graph_tensor *t);
kern_linear exec_linear_size(const exec_call *c);
kern_lora exec_lora_size(const exec_call *c);
kern_conv2d exec_conv_size(const exec_call *c);
kern_attention exec_attention_size(const exec_call *c);
kern_group_norm exec_group_norm_size(const exec_call *c);
kern_row_norm exec_row_norm_size(const exec_call *c);
kern_activation exec_activation_of(const exec_call *c);
kern_gated exec_gated_of(const exec_call *c);
bool exec_is_vector_of(const graph_tensor *x, const graph_tensor *y);
kern_broadcast exec_broadcast_size(const graph_tensor *x);
int64_t exec_outer_of(const graph_tensor *t, int axis);
kern_resample exec_resample_size(const exec_call *c);
kern_patches exec_patches_size(const exec_call *c);
kern_rotary exec_rotary_size(const exec_call *c);
kern_time_embedding exec_time_embedding_size(const exec_call *c);

#endif
