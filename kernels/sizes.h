/* What an op is told of its operands, and what it computes: the words that kernels of every device share.
 *
 * Images are [B, H, W, C], tokens [B, T, C], vectors [B, C]: channels last. What a shape calls "rows" of width n is any
 * such tensor with its last dimension n. A stride is in values between rows; 0 means dense (the row's width). A
 * gradient is called d and the name of what it is one of: dx, dw.
 */
#ifndef DP_KERNELS_SIZES_H
#define DP_KERNELS_SIZES_H

#include <stdbool.h>
#include <stdint.h>

/* y[rows, out] = x[rows, in] w[out, in]^T + bias[out]; bias may be NULL. */
typedef struct kern_linear {
  int64_t rows, in, out;
  int64_t x_stride, y_stride; /* of x and dx, of y and dy */
} kern_linear;

/* The adapter of a linear layer (Hu et al., "LoRA", 2021): y += scale (x a^T) b^T with a[rank, in], b[out, rank].
 * hidden[rows, rank] = x a^T is written by forward and read by the weight gradient; dhidden[rows, rank] = scale dy b is
 * written by the input gradient and read by the weight gradient. */
typedef struct kern_lora {
  int64_t rows, in, out, rank;
  int64_t x_stride, y_stride;
  float scale;
} kern_lora;

/* y[batch, out_height, out_width, out] from x[batch, height, width, in] and w[out, kernel_height, kernel_width, in]. */
typedef struct kern_conv2d {
  int64_t batch, height, width, in, out;
  int64_t kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width;
} kern_conv2d;

/* Attention, per head h: y = softmax(scale q k^T) v. q and y are [batch, q_tokens, heads * head_dim], k and v
 * [batch, k_tokens, heads * head_dim]; a stride is from token to token (samples follow each other: tokens * stride), so
 * that q, k and v may be slices of one tensor. Gradients have the strides of what they are gradients of.
 * lse[batch, heads, q_tokens] = log of the sum of exponentials, kept for backward; NULL in forward where none follows.
 * Tiles as in Dao et al., "FlashAttention", 2022, algorithms 1 and 4. */
typedef struct kern_attention {
  int64_t batch, heads, head_dim, q_tokens, k_tokens;
  int64_t q_stride, k_stride, v_stride, y_stride;
  float scale; /* mostly 1 / sqrt(head_dim) */
} kern_attention;

/* Norms. y = gain (x - mean) rstd + offset with rstd = 1 / sqrt(variance + epsilon), variance over n. gain and offset
 * may be NULL (1 and 0). `statistics` is written by forward; _again makes y once more from x and it, with the same
 * bits. Backward: dx, dgain and doffset may each be NULL. In place: y on x in forward and _again; dx on dy. */
typedef struct kern_group_norm {
  int64_t batch, positions, channels, groups; /* x[batch, positions, channels]; groups divides channels */
  float epsilon;
} kern_group_norm; /* statistics[batch, groups, 2]: mean, rstd */

/* Layer norm as above over each row, statistics[rows, 2]: mean, rstd. RMS norm: y = gain x rstd, rstd = 1 / sqrt(mean
 * of x^2 + epsilon), statistics[rows]: rstd. For the norm of each head a row is a head of a token: rows = batch *
 * tokens * heads, channels = head_dim. */
typedef struct kern_row_norm {
  int64_t rows, channels;
  float epsilon;
} kern_row_norm;

/* Activations of n values; in place: y on x, dx on dy. GELU exact: x Phi(x), with Phi to 3e-7; tanh form:
 * 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
typedef enum kern_activation { KERN_SILU, KERN_GELU, KERN_GELU_TANH } kern_activation;

/* x[rows, 2 channels] to y[rows, channels]. GEGLU: first half * GELU(second half), as diffusers' GEGLU; SwiGLU:
 * first half * SiLU(second half), as diffusers' SwiGLU. */
typedef enum kern_gated { KERN_GEGLU, KERN_SWIGLU } kern_gated;

/* y = x + vector, y = x (1 + scale) + shift ("modulate") or y = x gate: values for each sample broadcast over its
 * positions: x[batch, positions, channels], vectors [batch, channels] with
 * vector_stride floats from sample to sample (0: dense; negative: one vector for all samples), so that they may be
 * pieces of one tensor. Gradients of vectors have the vectors' stride, are summed over positions (and samples, where
 * there is one vector) and, like those of inputs, follow `accumulate`. */
typedef struct kern_broadcast {
  int64_t batch, positions, channels, vector_stride;
} kern_broadcast;

/* Concatenation and splitting have no struct: `outer` rows, each of the pieces' widths one after another. Over channels
 * outer is all positions and a width the piece's channels; over tokens outer is the batch and a width tokens *
 * channels. The gradient of one is the other.
 *
 * Images by a whole factor: nearest neighbour up, x[batch, height, width, channels] to y[.., height * factor, ..]; the
 * mean of factor * factor down, where factor divides height and width. */
typedef struct kern_resample {
  int64_t batch, height, width, channels; /* of x */
  int64_t factor;
} kern_resample;

/* x[batch, height, width, channels] to tokens [batch, (height / patch) (width / patch), channels patch patch]; the
 * values of a token are ordered patch row, patch column, channel (SD3's output) or channel, patch row, patch column
 * (Flux's packed latents). Each function is the gradient of the other. */
typedef struct kern_patches {
  int64_t batch, height, width, channels, patch; /* of the image; patch divides height and width */
  bool channel_first;
} kern_patches;

/* diffusers' get_timestep_embedding: half = channels / 2 frequencies exp(-ln(max_period) i / (half - freq_shift)),
 * times scale and t; sines then cosines, or cosines first with flip_sin_to_cos; a last 0 where channels is odd. t[n] to
 * y[n, channels], angles in fp32. Sizes [B, n] are B * n values. */
typedef struct kern_time_embedding {
  int64_t n, channels;
  bool flip_sin_to_cos;
  double freq_shift; /* downscale_freq_shift */
  double scale;
  double max_period;
} kern_time_embedding;

/* Flux's rotary embedding (Su et al., "RoFormer", 2021, in interleaved pairs): of x[batch, tokens, heads * head_dim]
 * each pair (2i, 2i + 1) of a head is turned: y0 = x0 cos - x1 sin, y1 = x1 cos + x0 sin, with the tables' own value at
 * each of the two. cosines, sines [tokens, head_dim]; head_dim is even. In place: y on x, dx on dy. */
typedef struct kern_rotary {
  int64_t batch, tokens, heads, head_dim;
} kern_rotary;

/* Squared error of prediction and target [batch, n]: squares[batch] = mean over n of the sample's squared differences
 * (double), and the return value = factor sum over samples of weight * squares. weights[batch] NULL: 1. The mean over a
 * global batch of G samples has factor 1 / G. Gradient: dp = 2 factor weight (p - t) / n. */
typedef struct kern_loss {
  int64_t batch, n;
  double factor;
} kern_loss;

/* AdamW (Loshchilov & Hutter, "Decoupled weight decay regularization", 2019), in PyTorch's order of operations:
 * g = gradient_scale gradient; p *= 1 - lr weight_decay; m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2;
 * p -= lr / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon). */
typedef struct kern_adamw {
  double lr, beta1, beta2, epsilon, weight_decay;
  double gradient_scale; /* 1, or less where a norm is clipped */
  int64_t step;          /* from 1 */
} kern_adamw;

/* A separable projection y[batch, out_height, out_width, out] of x[batch, height, width, in]: each dimension by its own
 * matrix, of_channels[out, in], of_height[out_height, height], of_width[out_width, width]. A skip compressor is one of
 * these to [kc, kh, kw] and one back. Channels go first where they become fewer, else last. */
typedef struct kern_separable {
  int64_t batch, height, width, in;
  int64_t out_height, out_width, out;
} kern_separable;

#endif
