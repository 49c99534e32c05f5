/* Arithmetic on the CPU: the forward and backward of every op, the optimiser, and what skips need. fp32. What each op
 * computes, and the layouts, stand in kernels/sizes.h.
 *
 * Rules that hold for all functions:
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
#include "kernels/sizes.h"

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

size_t kern_linear_workspace(const kern_linear *size, int threads);
void kern_linear_forward(kern_context *context, const kern_linear *size, const float *x, const float *w,
                         const float *bias, float *y);
void kern_linear_input_gradient(kern_context *context, const kern_linear *size, const float *w, const float *dy,
                                float *dx, bool accumulate);
/* dw and dbias: each may be NULL. */
void kern_linear_weight_gradient(kern_context *context, const kern_linear *size, const float *x, const float *dy,
                                 float *dw, float *dbias);

void kern_lora_forward(kern_context *context, const kern_lora *size, const float *x, const float *a, const float *b,
                       float *hidden, float *y);
/* dx may be NULL (then only dhidden is made), else it is added to: that of the layer itself lies there. */
void kern_lora_input_gradient(kern_context *context, const kern_lora *size, const float *a, const float *b,
                              const float *dy, float *dhidden, float *dx);
void kern_lora_weight_gradient(kern_context *context, const kern_lora *size, const float *x, const float *dy,
                               const float *hidden, const float *dhidden, float *da, float *db);

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

size_t kern_attention_workspace(const kern_attention *size, int threads);
void kern_attention_forward(kern_context *context, const kern_attention *size, const float *q, const float *k,
                            const float *v, float *y, float *lse);
/* Each gradient may be NULL; `accumulate` is for all. */
void kern_attention_backward(kern_context *context, const kern_attention *size, const float *q, const float *k,
                             const float *v, const float *y, const float *lse, const float *dy, float *dq, float *dk,
                             float *dv, bool accumulate);

size_t kern_group_norm_workspace(const kern_group_norm *size, int threads);
void kern_group_norm_forward(kern_context *context, const kern_group_norm *size, const float *x, const float *gain,
                             const float *offset, float *y, float *statistics);
void kern_group_norm_again(kern_context *context, const kern_group_norm *size, const float *x, const float *gain,
                           const float *offset, const float *statistics, float *y);
void kern_group_norm_backward(kern_context *context, const kern_group_norm *size, const float *x, const float *gain,
                              const float *statistics, const float *dy, float *dx, bool accumulate, float *dgain,
                              float *doffset);

size_t kern_row_norm_workspace(const kern_row_norm *size, int threads); /* layer norm and RMS norm */
void kern_layer_norm_forward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                             const float *offset, float *y, float *statistics);
void kern_layer_norm_again(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                           const float *offset, const float *statistics, float *y);
void kern_layer_norm_backward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                              const float *statistics, const float *dy, float *dx, bool accumulate, float *dgain,
                              float *doffset);
void kern_rms_norm_forward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                           float *y, float *statistics);
void kern_rms_norm_again(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                         const float *statistics, float *y);
void kern_rms_norm_backward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                            const float *statistics, const float *dy, float *dx, bool accumulate, float *dgain);

void kern_activation_forward(kern_context *context, kern_activation kind, int64_t n, const float *x, float *y);
void kern_activation_backward(kern_context *context, kern_activation kind, int64_t n, const float *x, const float *dy,
                              float *dx, bool accumulate);
void kern_gated_forward(kern_context *context, kern_gated kind, int64_t rows, int64_t channels, const float *x,
                        float *y);
void kern_gated_backward(kern_context *context, kern_gated kind, int64_t rows, int64_t channels, const float *x,
                         const float *dy, float *dx, bool accumulate);

/* z = x + y; in place on either. The gradient of a sum is that of z itself: kern_axpy or kern_copy where it must move.
 */
void kern_add(kern_context *context, int64_t n, const float *x, const float *y, float *z);
size_t kern_broadcast_workspace(const kern_broadcast *size, int threads); /* of backward, for all three */
void kern_add_vector_forward(kern_context *context, const kern_broadcast *size, const float *x, const float *vector,
                             float *y); /* in place */
void kern_add_vector_backward(kern_context *context, const kern_broadcast *size, const float *dy, float *dvector,
                              bool accumulate);
/* In place; dx, dscale and dshift may each be NULL; dx may be dy. */
void kern_modulate_forward(kern_context *context, const kern_broadcast *size, const float *x, const float *scale,
                           const float *shift, float *y);
void kern_modulate_backward(kern_context *context, const kern_broadcast *size, const float *x, const float *scale,
                            const float *dy, float *dx, float *dscale, float *dshift, bool accumulate);
/* In place; dx and dgate may each be NULL; dx may be dy. */
void kern_gate_forward(kern_context *context, const kern_broadcast *size, const float *x, const float *gate, float *y);
void kern_gate_backward(kern_context *context, const kern_broadcast *size, const float *x, const float *gate,
                        const float *dy, float *dx, float *dgate, bool accumulate);

/* A piece that is NULL is left out. */
void kern_concat(kern_context *context, int64_t outer, int pieces, const int64_t *widths, const float *const *piece,
                 float *whole, bool accumulate);
void kern_split(kern_context *context, int64_t outer, int pieces, const int64_t *widths, const float *whole,
                float *const *piece, bool accumulate);

void kern_upsample_forward(kern_context *context, const kern_resample *size, const float *x, float *y);
void kern_upsample_backward(kern_context *context, const kern_resample *size, const float *dy, float *dx,
                            bool accumulate);
void kern_downsample_forward(kern_context *context, const kern_resample *size, const float *x, float *y);
void kern_downsample_backward(kern_context *context, const kern_resample *size, const float *dy, float *dx,
                              bool accumulate);

void kern_patchify(kern_context *context, const kern_patches *size, const float *x, float *tokens, bool accumulate);
void kern_unpatchify(kern_context *context, const kern_patches *size, const float *tokens, float *x, bool accumulate);
/* [batch, channels, positions] of files and back. */
void kern_channels_last(kern_context *context, int64_t batch, int64_t channels, int64_t positions, const float *x,
                        float *y);
void kern_channels_first(kern_context *context, int64_t batch, int64_t channels, int64_t positions, const float *x,
                         float *y);

void kern_time_embedding_forward(kern_context *context, const kern_time_embedding *size, const float *t, float *y);

/* y[n, channels] = table[ids[n], channels]; ids lie within the table. */
void kern_embedding_forward(kern_context *context, int64_t n, int64_t channels, const int32_t *ids, const float *table,
                            float *y);
void kern_embedding_weight_gradient(kern_context *context, int64_t n, int64_t channels, const int32_t *ids,
                                    const float *dy, float *dtable);

void kern_rotary_forward(kern_context *context, const kern_rotary *size, const float *x, const float *cosines,
                         const float *sines, float *y);
void kern_rotary_backward(kern_context *context, const kern_rotary *size, const float *dy, const float *cosines,
                          const float *sines, float *dx, bool accumulate);

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

void kern_adamw_step(kern_context *context, const kern_adamw *settings, int64_t n, float *parameters,
                     const float *gradients, float *first, float *second);

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
