/* Arithmetic on the CPU: the forward and backward of every op, the optimiser, and what skips need. fp32.
 *
 * Rules that hold for all functions:
 * - Images are [B, H, W, C], tokens [B, T, C], vectors [B, C]: channels last. What a shape calls "rows" of width n is
 * any such tensor with its last dimension n. A stride is in floats between rows; 0 means dense (the row's width).
 * - Gradients of weights are added to what lies there. Gradients of inputs are added where `accumulate` is set, else
 * they overwrite. Forward outputs overwrite. A gradient pointer that may be NULL says so: NULL is not computed.
 * - An output may not overlap an input, unless "in place" is said: then it may be exactly that input.
 * - Nothing is allocated and nothing fails: sizes are positive, and the context's workspace has at least the bytes that
 *   kern_<op>_workspace says (the most of forward and backward) for the context's threads. Ops without such a function
 *   need no workspace.
 * - Work is cut into parts by the sizes alone, and every sum has one order: the results have the same bits for any
 * number of threads. NaN and infinity in an input reach the output.
 */
#ifndef DP_KERNELS_CPU_KERN_H
#define DP_KERNELS_CPU_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Threads and workspace. One call at a time on a context; several contexts may work at once. */
typedef struct kern_context kern_context;

typedef struct kern_context_options {
  int threads;            /* the caller's own thread counts; at least 1 */
  size_t workspace_bytes; /* the most that the ops to be run need */
  void *workspace;        /* so many bytes, on a 64-byte boundary, not owned; NULL: the context allocates them */
} kern_context_options;

/* DP_BAD_INPUT: threads below 1 or above 1024; DP_NO_MEMORY; DP_UNSUPPORTED: the system gives no more threads. */
dp_status kern_context_create(const kern_context_options *options, kern_context **context, dp_error *error);
void kern_context_free(kern_context *context); /* NULL is fine */
int kern_context_threads(const kern_context *context);
/* What multiplies matrices: tiles of this library for the vectors of this machine ("tiles for AVX-512"), or OpenBLAS
 * where it has none wide enough. */
const char *kern_gemm_name(void);

/* C[m, n] = alpha op(A) op(B) + beta C, row-major, with row strides; op(A) is [m, k], and A^T where a_transposed. With
 * beta 0 C is overwritten. m, n and k may be 0. */
typedef struct kern_gemm {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  int64_t a_stride, b_stride, c_stride;
  float alpha, beta;
} kern_gemm;
void kern_gemm_run(kern_context *context, const kern_gemm *size, const float *a, const float *b, float *c);

/* y[rows, out] = x[rows, in] w[out, in]^T + bias[out]; bias may be NULL. */
typedef struct kern_linear {
  int64_t rows, in, out;
  int64_t x_stride, y_stride; /* of x and dx, of y and dy */
} kern_linear;
size_t kern_linear_workspace(const kern_linear *size, int threads);
void kern_linear_forward(kern_context *context, const kern_linear *size, const float *x, const float *w,
                         const float *bias, float *y);
void kern_linear_input_gradient(kern_context *context, const kern_linear *size, const float *w, const float *dy,
                                float *dx, bool accumulate);
/* dw and dbias: each may be NULL. */
void kern_linear_weight_gradient(kern_context *context, const kern_linear *size, const float *x, const float *dy,
                                 float *dw, float *dbias);

/* The adapter of a linear layer (Hu et al., "LoRA", 2021): y += scale (x a^T) b^T with a[rank, in], b[out, rank].
 * hidden[rows, rank] = x a^T is written by forward and read by the weight gradient; dhidden[rows, rank] = scale dy b is
 * written by the input gradient and read by the weight gradient. */
typedef struct kern_lora {
  int64_t rows, in, out, rank;
  int64_t x_stride, y_stride;
  float scale;
} kern_lora;
void kern_lora_forward(kern_context *context, const kern_lora *size, const float *x, const float *a, const float *b,
                       float *hidden, float *y);
/* dx may be NULL (then only dhidden is made), else it is added to: that of the layer itself lies there. */
void kern_lora_input_gradient(kern_context *context, const kern_lora *size, const float *a, const float *b,
                              const float *dy, float *dhidden, float *dx);
void kern_lora_weight_gradient(kern_context *context, const kern_lora *size, const float *x, const float *dy,
                               const float *hidden, const float *dhidden, float *da, float *db);

/* y[batch, out_height, out_width, out] from x[batch, height, width, in] and w[out, kernel_height, kernel_width, in]. */
typedef struct kern_conv2d {
  int64_t batch, height, width, in, out;
  int64_t kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width;
} kern_conv2d;
int64_t kern_conv2d_out_height(const kern_conv2d *size); /* (height + 2 padding - kernel) / stride + 1 */
int64_t kern_conv2d_out_width(const kern_conv2d *size);
size_t kern_conv2d_workspace(const kern_conv2d *size, int threads);
void kern_conv2d_forward(kern_context *context, const kern_conv2d *size, const float *x, const float *w,
                         const float *bias, float *y);
void kern_conv2d_input_gradient(kern_context *context, const kern_conv2d *size, const float *w, const float *dy,
                                float *dx, bool accumulate);
void kern_conv2d_weight_gradient(kern_context *context, const kern_conv2d *size, const float *x, const float *dy,
                                 float *dw, float *dbias);
/* Weights between the layout of files, [out, in, kh, kw], and that of memory, [out, kh, kw, in]. */
void kern_conv2d_weight_from_file(kern_context *context, int64_t out, int64_t in, int64_t kernel_height,
                                  int64_t kernel_width, const float *file, float *memory);
void kern_conv2d_weight_to_file(kern_context *context, int64_t out, int64_t in, int64_t kernel_height,
                                int64_t kernel_width, const float *memory, float *file);

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
size_t kern_attention_workspace(const kern_attention *size, int threads);
void kern_attention_forward(kern_context *context, const kern_attention *size, const float *q, const float *k,
                            const float *v, float *y, float *lse);
/* Each gradient may be NULL; `accumulate` is for all. */
void kern_attention_backward(kern_context *context, const kern_attention *size, const float *q, const float *k,
                             const float *v, const float *y, const float *lse, const float *dy, float *dq, float *dk,
                             float *dv, bool accumulate);

/* Norms. y = gain (x - mean) rstd + offset with rstd = 1 / sqrt(variance + epsilon), variance over n. gain and offset
 * may be NULL (1 and 0). `statistics` is written by forward; _again makes y once more from x and it, with the same
 * bits. Backward: dx, dgain and doffset may each be NULL. In place: y on x in forward and _again; dx on dy. */
typedef struct kern_group_norm {
  int64_t batch, positions, channels, groups; /* x[batch, positions, channels]; groups divides channels */
  float epsilon;
} kern_group_norm; /* statistics[batch, groups, 2]: mean, rstd */
size_t kern_group_norm_workspace(const kern_group_norm *size, int threads);
void kern_group_norm_forward(kern_context *context, const kern_group_norm *size, const float *x, const float *gain,
                             const float *offset, float *y, float *statistics);
void kern_group_norm_again(kern_context *context, const kern_group_norm *size, const float *x, const float *gain,
                           const float *offset, const float *statistics, float *y);
void kern_group_norm_backward(kern_context *context, const kern_group_norm *size, const float *x, const float *gain,
                              const float *statistics, const float *dy, float *dx, bool accumulate, float *dgain,
                              float *doffset);

typedef struct kern_row_norm {
  int64_t rows, channels;
  float epsilon;
} kern_row_norm;
size_t kern_row_norm_workspace(const kern_row_norm *size, int threads); /* layer norm and RMS norm */
/* statistics[rows, 2]: mean, rstd */
void kern_layer_norm_forward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                             const float *offset, float *y, float *statistics);
void kern_layer_norm_again(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                           const float *offset, const float *statistics, float *y);
void kern_layer_norm_backward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                              const float *statistics, const float *dy, float *dx, bool accumulate, float *dgain,
                              float *doffset);
/* y = gain x rstd, rstd = 1 / sqrt(mean of x^2 + epsilon); statistics[rows]: rstd. For the norm of each head a row is a
 * head of a token: rows = batch * tokens * heads, channels = head_dim. */
void kern_rms_norm_forward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                           float *y, float *statistics);
void kern_rms_norm_again(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                         const float *statistics, float *y);
void kern_rms_norm_backward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                            const float *statistics, const float *dy, float *dx, bool accumulate, float *dgain);

/* Activations of n values; in place: y on x, dx on dy. GELU exact: x Phi(x), with Phi to 3e-7; tanh form:
 * 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). */
typedef enum kern_activation { KERN_SILU, KERN_GELU, KERN_GELU_TANH } kern_activation;
void kern_activation_forward(kern_context *context, kern_activation kind, int64_t n, const float *x, float *y);
void kern_activation_backward(kern_context *context, kern_activation kind, int64_t n, const float *x, const float *dy,
                              float *dx, bool accumulate);
/* x[rows, 2 channels] to y[rows, channels]. GEGLU: first half * GELU(second half), as diffusers' GEGLU; SwiGLU:
 * first half * SiLU(second half), as diffusers' SwiGLU. */
typedef enum kern_gated { KERN_GEGLU, KERN_SWIGLU } kern_gated;
void kern_gated_forward(kern_context *context, kern_gated kind, int64_t rows, int64_t channels, const float *x,
                        float *y);
void kern_gated_backward(kern_context *context, kern_gated kind, int64_t rows, int64_t channels, const float *x,
                         const float *dy, float *dx, bool accumulate);

/* z = x + y; in place on either. The gradient of a sum is that of z itself: kern_axpy or kern_copy where it must move.
 */
void kern_add(kern_context *context, int64_t n, const float *x, const float *y, float *z);
/* Values for each sample broadcast over its positions: x[batch, positions, channels], vectors [batch, channels] with
 * vector_stride floats from sample to sample (0: dense; negative: one vector for all samples), so that they may be
 * pieces of one tensor. Gradients of vectors have the vectors' stride, are summed over positions (and samples, where
 * there is one vector) and, like those of inputs, follow `accumulate`. */
typedef struct kern_broadcast {
  int64_t batch, positions, channels, vector_stride;
} kern_broadcast;
size_t kern_broadcast_workspace(const kern_broadcast *size, int threads); /* of backward, for all three */
void kern_add_vector_forward(kern_context *context, const kern_broadcast *size, const float *x, const float *vector,
                             float *y); /* in place */
void kern_add_vector_backward(kern_context *context, const kern_broadcast *size, const float *dy, float *dvector,
                              bool accumulate);
/* y = x (1 + scale) + shift; in place. dx, dscale and dshift may each be NULL; dx may be dy. */
void kern_modulate_forward(kern_context *context, const kern_broadcast *size, const float *x, const float *scale,
                           const float *shift, float *y);
void kern_modulate_backward(kern_context *context, const kern_broadcast *size, const float *x, const float *scale,
                            const float *dy, float *dx, float *dscale, float *dshift, bool accumulate);
/* y = x gate; in place. dx and dgate may each be NULL; dx may be dy. */
void kern_gate_forward(kern_context *context, const kern_broadcast *size, const float *x, const float *gate, float *y);
void kern_gate_backward(kern_context *context, const kern_broadcast *size, const float *x, const float *gate,
                        const float *dy, float *dx, float *dgate, bool accumulate);

/* Concatenation and splitting: `outer` rows, each of the pieces' widths one after another. Over channels outer is all
 * positions and a width the piece's channels; over tokens outer is the batch and a width tokens * channels. The
 * gradient of one is the other. A piece that is NULL is left out. */
void kern_concat(kern_context *context, int64_t outer, int pieces, const int64_t *widths, const float *const *piece,
                 float *whole, bool accumulate);
void kern_split(kern_context *context, int64_t outer, int pieces, const int64_t *widths, const float *whole,
                float *const *piece, bool accumulate);

/* Images by a whole factor: nearest neighbour up, x[batch, height, width, channels] to y[.., height * factor, ..]; the
 * mean of factor * factor down, where factor divides height and width. */
typedef struct kern_resample {
  int64_t batch, height, width, channels; /* of x */
  int64_t factor;
} kern_resample;
void kern_upsample_forward(kern_context *context, const kern_resample *size, const float *x, float *y);
void kern_upsample_backward(kern_context *context, const kern_resample *size, const float *dy, float *dx,
                            bool accumulate);
void kern_downsample_forward(kern_context *context, const kern_resample *size, const float *x, float *y);
void kern_downsample_backward(kern_context *context, const kern_resample *size, const float *dy, float *dx,
                              bool accumulate);

/* x[batch, height, width, channels] to tokens [batch, (height / patch) (width / patch), channels patch patch]; the
 * values of a token are ordered patch row, patch column, channel (SD3's output) or channel, patch row, patch column
 * (Flux's packed latents). Each function is the gradient of the other. */
typedef struct kern_patches {
  int64_t batch, height, width, channels, patch; /* of the image; patch divides height and width */
  bool channel_first;
} kern_patches;
void kern_patchify(kern_context *context, const kern_patches *size, const float *x, float *tokens, bool accumulate);
void kern_unpatchify(kern_context *context, const kern_patches *size, const float *tokens, float *x, bool accumulate);
/* [batch, channels, positions] of files and back. */
void kern_channels_last(kern_context *context, int64_t batch, int64_t channels, int64_t positions, const float *x,
                        float *y);
void kern_channels_first(kern_context *context, int64_t batch, int64_t channels, int64_t positions, const float *x,
                         float *y);

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
void kern_time_embedding_forward(kern_context *context, const kern_time_embedding *size, const float *t, float *y);

/* y[n, channels] = table[ids[n], channels]; ids lie within the table. */
void kern_embedding_forward(kern_context *context, int64_t n, int64_t channels, const int32_t *ids, const float *table,
                            float *y);
void kern_embedding_weight_gradient(kern_context *context, int64_t n, int64_t channels, const int32_t *ids,
                                    const float *dy, float *dtable);

/* Flux's rotary embedding (Su et al., "RoFormer", 2021, in interleaved pairs): of x[batch, tokens, heads * head_dim]
 * each pair (2i, 2i + 1) of a head is turned: y0 = x0 cos - x1 sin, y1 = x1 cos + x0 sin, with the tables' own value at
 * each of the two. cosines, sines [tokens, head_dim]; head_dim is even. In place: y on x, dx on dy. */
typedef struct kern_rotary {
  int64_t batch, tokens, heads, head_dim;
} kern_rotary;
void kern_rotary_forward(kern_context *context, const kern_rotary *size, const float *x, const float *cosines,
                         const float *sines, float *y);
void kern_rotary_backward(kern_context *context, const kern_rotary *size, const float *dy, const float *cosines,
                          const float *sines, float *dx, bool accumulate);

/* Squared error of prediction and target [batch, n]: squares[batch] = mean over n of the sample's squared differences
 * (double), and the return value = factor sum over samples of weight * squares. weights[batch] NULL: 1. The mean over a
 * global batch of G samples has factor 1 / G. Gradient: dp = 2 factor weight (p - t) / n. */
typedef struct kern_loss {
  int64_t batch, n;
  double factor;
} kern_loss;
size_t kern_loss_workspace(const kern_loss *size, int threads);
double kern_loss_forward(kern_context *context, const kern_loss *size, const float *prediction, const float *target,
                         const float *weights, double *squares);
void kern_loss_backward(kern_context *context, const kern_loss *size, const float *prediction, const float *target,
                        const float *weights, float *dprediction); /* in place on prediction */

/* Flat arrays. */
size_t kern_sum_squares_workspace(int64_t n, int threads);
double kern_sum_squares(kern_context *context, int64_t n, const float *x);
void kern_fill(kern_context *context, int64_t n, float value, float *x);
void kern_copy(kern_context *context, int64_t n, const float *x, float *y);
void kern_scale(kern_context *context, int64_t n, float factor, const float *x, float *y); /* in place */
void kern_axpy(kern_context *context, int64_t n, float factor, const float *x, float *y);  /* y += factor x */
void kern_ema(kern_context *context, int64_t n, float decay, const float *x,
              float *mean); /* mean += (1 - decay) (x - mean) */

/* AdamW (Loshchilov & Hutter, "Decoupled weight decay regularization", 2019), in PyTorch's order of operations:
 * g = gradient_scale gradient; p *= 1 - lr weight_decay; m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2;
 * p -= lr / (1 - beta1^step) m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon). */
typedef struct kern_adamw {
  double lr, beta1, beta2, epsilon, weight_decay;
  double gradient_scale; /* 1, or less where a norm is clipped */
  int64_t step;          /* from 1 */
} kern_adamw;
void kern_adamw_step(kern_context *context, const kern_adamw *settings, int64_t n, float *parameters,
                     const float *gradients, float *first, float *second);

/* A separable projection y[batch, out_height, out_width, out] of x[batch, height, width, in]: each dimension by its own
 * matrix, of_channels[out, in], of_height[out_height, height], of_width[out_width, width]. A skip compressor is one of
 * these to [kc, kh, kw] and one back. Channels go first where they become fewer, else last. */
typedef struct kern_separable {
  int64_t batch, height, width, in;
  int64_t out_height, out_width, out;
} kern_separable;
size_t kern_separable_workspace(const kern_separable *size, int threads);
void kern_separable_forward(kern_context *context, const kern_separable *size, const float *x, const float *of_channels,
                            const float *of_height, const float *of_width, float *y);
void kern_separable_input_gradient(kern_context *context, const kern_separable *size, const float *of_channels,
                                   const float *of_height, const float *of_width, const float *dy, float *dx,
                                   bool accumulate);
void kern_separable_weight_gradient(kern_context *context, const kern_separable *size, const float *x,
                                    const float *of_channels, const float *of_height, const float *of_width,
                                    const float *dy, float *dof_channels, float *dof_height, float *dof_width);

#endif
