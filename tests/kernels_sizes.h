/* What the sizes of a row of the table of ops mean to each kind, on every device. */
#ifndef DP_TESTS_KERNELS_SIZES_H
#define DP_TESTS_KERNELS_SIZES_H

#include <math.h>

#include "tests/kernels_ops.h"

/* z: rows, in, out, bias, extra floats between rows of x and of y */
static inline kern_linear linear_of(const int64_t *z) {
  return (kern_linear){.rows = z[0], .in = z[1], .out = z[2], .x_stride = z[1] + z[4], .y_stride = z[2] + z[4]};
}

/* z: rows, in, out, rank. y starts as the last input: its gradient is dy itself, and that of x is added to. */
static inline kern_lora lora_of(const int64_t *z) {
  return (kern_lora){.rows = z[0], .in = z[1], .out = z[2], .rank = z[3], .scale = 0.75f};
}

/* z: batch, height, width, in, out, kernel height, kernel width, stride, padding height, padding width, bias */
static inline kern_conv2d conv_of(const int64_t *z) {
  return (kern_conv2d){.batch = z[0],
                       .height = z[1],
                       .width = z[2],
                       .in = z[3],
                       .out = z[4],
                       .kernel_height = z[5],
                       .kernel_width = z[6],
                       .stride_height = z[7],
                       .stride_width = z[7],
                       .padding_height = z[8],
                       .padding_width = z[9]};
}

/* z: batch, height, width, in, out, kernel height, kernel width: of odd kernels, as large as its input */
static inline kern_conv2d same_conv_of(const int64_t *z) {
  const int64_t all[] = {z[0], z[1], z[2], z[3], z[4], z[5], z[6], 1, z[5] / 2, z[6] / 2};
  return conv_of(all);
}

/* z: batch, heads, head_dim, q_tokens, k_tokens, slices: then k is in[0]'s second third and v its last, as q_tokens =
 * k_tokens and the three are one tensor [B, T, 3 * width] */
static inline kern_attention attention_of(const int64_t *z) {
  const int64_t width = z[1] * z[2], stride = z[5] ? 3 * width : 0;
  return (kern_attention){.batch = z[0],
                          .heads = z[1],
                          .head_dim = z[2],
                          .q_tokens = z[3],
                          .k_tokens = z[4],
                          .q_stride = stride,
                          .k_stride = stride,
                          .v_stride = stride,
                          .scale = 1 / sqrtf((float)z[2])};
}

/* z: batch, height, width, in, out_height, out_width, out */
static inline kern_separable separable_of(const int64_t *z) {
  return (kern_separable){z[0], z[1], z[2], z[3], z[4], z[5], z[6]};
}

/* z: batch, positions, channels, groups, affine */
static inline kern_group_norm group_norm_of(const int64_t *z) {
  return (kern_group_norm){z[0], z[1], z[2], z[3], 0.01f};
}

/* z: rows, channels, affine */
static inline kern_row_norm row_norm_of(const int64_t *z) { return (kern_row_norm){z[0], z[1], 0.01f}; }

/* z: batch, positions, channels, vectors (0: dense; -1: one for all samples; 3: as a piece of three) */
static inline kern_broadcast broadcast_of(const int64_t *z) {
  return (kern_broadcast){z[0], z[1], z[2], z[3] < 0 ? -1 : z[3] * z[2]};
}

/* Between the vectors of a piece lies what is nobody's; such gradients are added, as weights' are. */
static inline bool adds(const int64_t *z, bool accumulate) { return z[3] > 0 || accumulate; }

/* z: batch, height, width, channels, factor */
static inline kern_resample resample_of(const int64_t *z) { return (kern_resample){z[0], z[1], z[2], z[3], z[4]}; }

/* z: batch, height, width, channels, patch, channel first */
static inline kern_patches patches_of(const int64_t *z) {
  return (kern_patches){z[0], z[1], z[2], z[3], z[4], z[5] != 0};
}

static inline kern_rotary rotary_of(const int64_t *z) { return (kern_rotary){z[0], z[1], z[2], z[3]}; }

/* z: batch, n, weighted; out: the loss, then each sample's squares. Only the loss has a gradient, which overwrites. */
static inline kern_loss loss_of(const int64_t *z) { return (kern_loss){z[0], z[1], 0.125}; }

#endif
