/* Arithmetic on a CUDA device: the forward and backward of every op, the optimiser, and what skips need, on the layouts
 * of kernels/sizes.h. In plain C, so that who calls needs no CUDA compiler.
 *
 * Rules that hold for all functions:
 * - Pointers are device memory unless a name says host. `void *` of an activation, a gradient of one, or a weight that
 *   kernels read has the context's dtype; of a weight's gradient, the context's gradient dtype. Statistics,
 * log-sum-exps and moments are fp32; sums of squares are double. Activations and weights begin on a
 * boundary of 16 bytes; strides and channels need not be multiples of anything, but multiples of 8 are fast.
 * - Sums and softmax are in fp32 whatever the dtype, norms' moments too; a value is rounded to the dtype when it is
 *   written, once. In bf16 a product may be rounded once more before something of bf16 is added to it (a bias, a
 *   residual, what lies there), and a convolution before anything is.
 * - Gradients of weights are added to what lies there, or overwrite it (kern_cuda_overwrite). Gradients of inputs are
 * added where `accumulate` is set, else they overwrite. Forward outputs overwrite. A gradient pointer that may be NULL
 * says so: NULL is not computed.
 * - An output may not overlap an input, unless "in place" is said: then it may be exactly that input.
 * - Everything is put on the context's stream and may be captured in a graph; no function waits for the device or
 *   allocates, except the first call of a product, a convolution or attention of new sizes, which may build and, while
 *   kern_cuda_tune is on, time: what is captured must have been called before.
 * - Every sum has one order that depends on the sizes and the device alone: the same call has the same bits, unless
 *   options.any_order is set. (Where a library cannot promise that, its fastest deterministic way is taken.)
 * - Nothing returns an error: the first one is kept in the context and told by kern_cuda_status. After one, calls do
 *   nothing. NaN and infinity in an input reach the output.
 * - The context's workspace has at least the bytes that kern_cuda_<op>_workspace says (the most of forward and
 * backward). These functions need no device. Ops without one need no workspace.
 */
#ifndef DP_KERNELS_CUDA_CUDA_H
#define DP_KERNELS_CUDA_CUDA_H

#include <stddef.h>

#include "base/status.h"
#include "kernels/sizes.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kern_dtype { KERN_FP32, KERN_BF16 } kern_dtype;
static inline int64_t kern_dtype_bytes(kern_dtype dtype) { return dtype == KERN_FP32 ? 4 : 2; }

/* What was found by timing, for contexts to come and for other workers: asked before anything is timed, told what was
 * found. `device` says of which device, of how many of its multiprocessors, and with which libraries; `problem` has the
 * sizes and all else that the choice depends on; `way` is read by the same kernels alone. Each is one line. Called by
 * the thread that uses the context. */
typedef struct kern_cuda_memory {
  /* The way that is known, until the context has ended; NULL: none. */
  const char *(*find)(void *data, const char *device, const char *problem);
  /* In the place of one that is known: that one cannot be had any more. */
  void (*keep)(void *data, const char *device, const char *problem, const char *way);
  void *data;
} kern_cuda_memory;

/* A stream of a device or of a part of one, with the libraries' handles and a workspace. One thread at a time. */
typedef struct kern_cuda kern_cuda;

typedef struct kern_cuda_options {
  kern_dtype dtype;       /* of activations and of the weights that kernels read */
  kern_dtype gradient;    /* of weights' gradients */
  void *stream;           /* cudaStream_t, not owned; the context that it belongs to is current in every call */
  int sm_count;           /* streaming multiprocessors of the part that the stream runs on; 0: all */
  void *workspace;        /* device memory on a boundary of 256 bytes, not owned */
  size_t workspace_bytes; /* the most that the ops to be run need */
  /* With fp32: whether products may round to TF32 (10 bits); else they are exact to fp32. */
  bool tf32;
  /* Sums may have any order where that is faster, so that two equal calls differ by rounding: attention's dq in bf16. */
  bool any_order;
  kern_cuda_memory memory; /* functions that are NULL: nothing is remembered */
} kern_cuda_options;

/* DP_UNSUPPORTED: a library or the device is too old, and which. */
dp_status kern_cuda_create(const kern_cuda_options *options, kern_cuda **context, dp_error *error);
void kern_cuda_free(kern_cuda *context); /* NULL is fine */
/* The first thing that went wrong, told once; launches are looked at, the device is not waited for. */
dp_status kern_cuda_status(kern_cuda *context, dp_error *error);
/* While on, products, convolutions and attention of new sizes are timed in a few ways on the arrays they are called
 * with (which are written several times), and the fastest is kept; off, the libraries' first choice is taken for new
 * sizes. What is remembered is neither timed nor guessed. */
void kern_cuda_tune(kern_cuda *context, bool on);
/* All sizes are new again: after others have changed what is remembered. The device has ended all work. */
void kern_cuda_forget(kern_cuda *context);
/* While on, gradients of weights, biases, norms' gains and offsets and adapters overwrite; off, which is how it begins,
 * they are added. Those of separable projections are always added. */
void kern_cuda_overwrite(kern_cuda *context, bool on);
/* Versions of the libraries and what attention will run on, for reports: one line, without newline. */
void kern_cuda_describe(const kern_cuda *context, char out[256]);

/* ---- products: products.c, linear.c ---- */

/* C[m, n] = alpha op(A) op(B) + beta C, row-major, with row strides; op(A) is [m, k], and A^T where a_transposed. A and
 * B have the context's dtype, C its own. */
typedef struct kern_cuda_gemm {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  int64_t a_stride, b_stride, c_stride;
  float alpha, beta;
  kern_dtype c_dtype;
  int64_t batch, a_batch_stride, b_batch_stride, c_batch_stride; /* batch 0 or 1: one product */
} kern_cuda_gemm;
void kern_cuda_gemm_run(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, void *c);

size_t kern_cuda_linear_workspace(const kern_linear *size, kern_dtype dtype);
/* residual: NULL, or [rows, out] with y's stride, added to y: y = x w^T + bias + residual. In place: y on residual. */
void kern_cuda_linear_forward(kern_cuda *context, const kern_linear *size, const void *x, const void *w,
                              const void *bias, const void *residual, void *y);
void kern_cuda_linear_input_gradient(kern_cuda *context, const kern_linear *size, const void *w, const void *dy,
                                     void *dx, bool accumulate);
/* dw and dbias: each may be NULL; with both, one product may form them, reading dy once. */
void kern_cuda_linear_weight_gradient(kern_cuda *context, const kern_linear *size, const void *x, const void *dy,
                                      void *dw, void *dbias);

/* Siblings, `count` of them, at least two, of one size without bias: what each would do by itself, in one product where
 * w and y, or dy and dw, lie at equal distances, in ascending order, and that has been timed to be faster. The lists
 * are host memory, read before the call returns. Workspace as for one. */
void kern_cuda_linears_forward(kern_cuda *context, const kern_linear *size, int count, const void *x,
                               const void *const *w, void *const *y);
void kern_cuda_linears_weight_gradient(kern_cuda *context, const kern_linear *size, int count, const void *x,
                                       const void *const *dy, void *const *dw);

size_t kern_cuda_lora_workspace(const kern_lora *size, kern_dtype dtype);
/* hidden and dhidden have the context's dtype. */
void kern_cuda_lora_forward(kern_cuda *context, const kern_lora *size, const void *x, const void *a, const void *b,
                            void *hidden, void *y);
void kern_cuda_lora_input_gradient(kern_cuda *context, const kern_lora *size, const void *a, const void *b,
                                   const void *dy, void *dhidden, void *dx); /* dx may be NULL, else it is added to */
void kern_cuda_lora_weight_gradient(kern_cuda *context, const kern_lora *size, const void *x, const void *dy,
                                    const void *hidden, const void *dhidden, void *da, void *db);

/* ---- convolutions: conv.c ---- */

size_t kern_cuda_conv2d_workspace(const kern_conv2d *size, kern_dtype dtype);
/* residual as kern_cuda_linear_forward's. */
void kern_cuda_conv2d_forward(kern_cuda *context, const kern_conv2d *size, const void *x, const void *w,
                              const void *bias, const void *residual, void *y);
void kern_cuda_conv2d_input_gradient(kern_cuda *context, const kern_conv2d *size, const void *w, const void *dy,
                                     void *dx, bool accumulate);
void kern_cuda_conv2d_weight_gradient(kern_cuda *context, const kern_conv2d *size, const void *x, const void *dy,
                                      void *dw, void *dbias);

/* ---- attention: attention.c (cuDNN), attention_own.cu, attention_few*.cu (few keys) ---- */

size_t kern_cuda_attention_workspace(const kern_attention *size, kern_dtype dtype);
void kern_cuda_attention_forward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                 const void *v, void *y, float *lse);
/* Each gradient may be NULL; `accumulate` is for all. */
void kern_cuda_attention_backward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                  const void *v, const void *y, const float *lse, const void *dy, void *dq, void *dk,
                                  void *dv, bool accumulate);

/* ---- norms: group_norm.cu, row_norm.cu ---- */

/* silu: y = SiLU(norm(x)), as a UNet's blocks go on; backward then takes dy of that and finds the norm's output again
 * from x and statistics. In place as the CPU's: y on x, dx on dy. */
size_t kern_cuda_group_norm_workspace(const kern_group_norm *size, kern_dtype dtype);
void kern_cuda_group_norm_forward(kern_cuda *context, const kern_group_norm *size, const void *x, const void *gain,
                                  const void *offset, bool silu, void *y, float *statistics);
void kern_cuda_group_norm_again(kern_cuda *context, const kern_group_norm *size, const void *x, const void *gain,
                                const void *offset, const float *statistics, bool silu, void *y);
void kern_cuda_group_norm_backward(kern_cuda *context, const kern_group_norm *size, const void *x, const void *gain,
                                   const void *offset, const float *statistics, const void *dy, bool silu, void *dx,
                                   bool accumulate, void *dgain, void *doffset);

size_t kern_cuda_row_norm_workspace(const kern_row_norm *size, kern_dtype dtype); /* layer norm and RMS norm */
void kern_cuda_layer_norm_forward(kern_cuda *context, const kern_row_norm *size, const void *x, const void *gain,
                                  const void *offset, void *y, float *statistics);
void kern_cuda_layer_norm_again(kern_cuda *context, const kern_row_norm *size, const void *x, const void *gain,
                                const void *offset, const float *statistics, void *y);
void kern_cuda_layer_norm_backward(kern_cuda *context, const kern_row_norm *size, const void *x, const void *gain,
                                   const float *statistics, const void *dy, void *dx, bool accumulate, void *dgain,
                                   void *doffset);
void kern_cuda_rms_norm_forward(kern_cuda *context, const kern_row_norm *size, const void *x, const void *gain, void *y,
                                float *statistics);
void kern_cuda_rms_norm_again(kern_cuda *context, const kern_row_norm *size, const void *x, const void *gain,
                              const float *statistics, void *y);
void kern_cuda_rms_norm_backward(kern_cuda *context, const kern_row_norm *size, const void *x, const void *gain,
                                 const float *statistics, const void *dy, void *dx, bool accumulate, void *dgain);

/* ---- activations and sums: activation.cu, broadcast.cu ---- */

void kern_cuda_activation_forward(kern_cuda *context, kern_activation kind, int64_t n, const void *x, void *y);
void kern_cuda_activation_backward(kern_cuda *context, kern_activation kind, int64_t n, const void *x, const void *dy,
                                   void *dx, bool accumulate); /* dx may be dy */
/* Forward's y and backward's dx, which overwrites, in one pass over x. */
void kern_cuda_activation_both(kern_cuda *context, kern_activation kind, int64_t n, const void *x, const void *dy,
                               void *dx, void *y);
/* Likewise, but y may be NULL, and dbias[channels], the sums of dx over rows before it is rounded: the gradient of a
 * bias that x had added last, a gradient of a weight as others are. */
size_t kern_cuda_activation_bias_workspace(int64_t rows, int64_t channels, kern_dtype dtype);
void kern_cuda_activation_bias(kern_cuda *context, kern_activation kind, int64_t rows, int64_t channels, const void *x,
                               const void *dy, void *dx, void *y, void *dbias);
void kern_cuda_gated_forward(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                             void *y);
void kern_cuda_gated_backward(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                              const void *dy, void *dx, bool accumulate);
/* As those of plain activations, but x and dx have 2 channels for one of y, and so has dbias[2 channels]. */
void kern_cuda_gated_both(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                          const void *dy, void *dx, void *y);
size_t kern_cuda_gated_bias_workspace(int64_t rows, int64_t channels, kern_dtype dtype);
void kern_cuda_gated_bias(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                          const void *dy, void *dx, void *y, void *dbias);
/* z = x + y; in place on either. */
void kern_cuda_add(kern_cuda *context, int64_t n, const void *x, const void *y, void *z);
size_t kern_cuda_broadcast_workspace(const kern_broadcast *size, kern_dtype dtype); /* of backward, for all three */
void kern_cuda_add_vector_forward(kern_cuda *context, const kern_broadcast *size, const void *x, const void *vector,
                                  void *y); /* in place */
void kern_cuda_add_vector_backward(kern_cuda *context, const kern_broadcast *size, const void *dy, void *dvector,
                                   bool accumulate);
/* In place; dx, dscale and dshift may each be NULL; dx may be dy. */
void kern_cuda_modulate_forward(kern_cuda *context, const kern_broadcast *size, const void *x, const void *scale,
                                const void *shift, void *y);
void kern_cuda_modulate_backward(kern_cuda *context, const kern_broadcast *size, const void *x, const void *scale,
                                 const void *dy, void *dx, void *dscale, void *dshift, bool accumulate);
/* In place; dx and dgate may each be NULL; dx may be dy. */
void kern_cuda_gate_forward(kern_cuda *context, const kern_broadcast *size, const void *x, const void *gate, void *y);
void kern_cuda_gate_backward(kern_cuda *context, const kern_broadcast *size, const void *x, const void *gate,
                             const void *dy, void *dx, void *dgate, bool accumulate);

/* ---- moves: moves.cu ---- */

/* At most KERN_CUDA_MAX_PIECES; one that is NULL is left out. widths is host memory, read before the call returns; so
 * are the lists of pieces. */
enum { KERN_CUDA_MAX_PIECES = 16 };
void kern_cuda_concat(kern_cuda *context, int64_t outer, int pieces, const int64_t *widths, const void *const *piece,
                      void *whole, bool accumulate);
void kern_cuda_split(kern_cuda *context, int64_t outer, int pieces, const int64_t *widths, const void *whole,
                     void *const *piece, bool accumulate);
void kern_cuda_upsample_forward(kern_cuda *context, const kern_resample *size, const void *x, void *y);
void kern_cuda_upsample_backward(kern_cuda *context, const kern_resample *size, const void *dy, void *dx,
                                 bool accumulate);
void kern_cuda_downsample_forward(kern_cuda *context, const kern_resample *size, const void *x, void *y);
void kern_cuda_downsample_backward(kern_cuda *context, const kern_resample *size, const void *dy, void *dx,
                                   bool accumulate);
void kern_cuda_patchify(kern_cuda *context, const kern_patches *size, const void *x, void *tokens, bool accumulate);
void kern_cuda_unpatchify(kern_cuda *context, const kern_patches *size, const void *tokens, void *x, bool accumulate);
/* t is fp32; y is of the dtype given, angles and sines in fp32. */
void kern_cuda_time_embedding_forward(kern_cuda *context, const kern_time_embedding *size, const float *t,
                                      kern_dtype y_dtype, void *y);
/* cosines and sines are fp32. */
void kern_cuda_rotary_forward(kern_cuda *context, const kern_rotary *size, const void *x, const float *cosines,
                              const float *sines, void *y);
void kern_cuda_rotary_backward(kern_cuda *context, const kern_rotary *size, const void *dy, const float *cosines,
                               const float *sines, void *dx, bool accumulate);

/* ---- the loss, flat arrays: flat.cu ---- */

/* squares[batch] as kern_loss says; *sum += factor sum over samples of weight * squares. weights[batch] fp32, or NULL.
 */
size_t kern_cuda_loss_workspace(const kern_loss *size);
void kern_cuda_loss_forward(kern_cuda *context, const kern_loss *size, const void *prediction, const void *target,
                            const float *weights, double *squares, double *sum);
void kern_cuda_loss_backward(kern_cuda *context, const kern_loss *size, const void *prediction, const void *target,
                             const float *weights, void *dprediction); /* in place on prediction */

size_t kern_cuda_sum_squares_workspace(int64_t n);
void kern_cuda_sum_squares(kern_cuda *context, kern_dtype dtype, int64_t n, const void *x,
                           double *sum); /* overwrites */
void kern_cuda_fill(kern_cuda *context, kern_dtype dtype, int64_t n, float value, void *x);
void kern_cuda_convert(kern_cuda *context, int64_t n, kern_dtype from, const void *x, kern_dtype to, void *y);
void kern_cuda_copy(kern_cuda *context, int64_t n, const void *x, void *y); /* of the context's dtype */
void kern_cuda_axpy(kern_cuda *context, kern_dtype dtype, int64_t n, float factor, const void *x, void *y); /* y += */
/* In their order; values may be mapped memory of the host. */
void kern_cuda_sum(kern_cuda *context, int n, const double *values, double *sum);
/* *flag |= 1 where x holds something not finite. */
void kern_cuda_find_not_finite(kern_cuda *context, int64_t n, const void *x, uint32_t *flag);

/* ---- the optimiser: adamw.cu ---- */

/* AdamW over all of a worker's trained parameters in one pass, with clipping by the global norm and running means.
 * weights[n] have the context's dtype. In bf16 each is half of an fp32 master and low[n] has the others
 * (kernels/halves.h): the step is the master's, and both are written. In fp32 low is not read. Gradients (of the
 * gradient dtype) are scaled by min(1, clip_norm / (sqrt(*norm_square) + 1e-6)); clip_norm 0: they are not. Where
 * *norm_square is not finite nothing changes. settings.gradient_scale is not read. */
typedef struct kern_cuda_adamw {
  kern_adamw settings;
  int64_t n;
  double clip_norm;
  double means_decay; /* means NULL: not read */
} kern_cuda_adamw;
void kern_cuda_adamw_step(kern_cuda *context, const kern_cuda_adamw *how, const double *norm_square,
                          const void *gradients, void *weights, uint16_t *low, float *first, float *second,
                          float *means);
/* Masters, kept as above, and their means change places: twice, and every number is what it was, to the bit. */
void kern_cuda_exchange_means(kern_cuda *context, int64_t n, void *weights, uint16_t *low, float *means);

/* ---- separable projections: separable.c, over the products ---- */

/* The matrices and their gradients (added to) have the dtype and the gradient dtype. */
size_t kern_cuda_separable_workspace(const kern_separable *size, kern_dtype dtype);
void kern_cuda_separable_forward(kern_cuda *context, const kern_separable *size, const void *x, const void *of_channels,
                                 const void *of_height, const void *of_width, void *y);
void kern_cuda_separable_input_gradient(kern_cuda *context, const kern_separable *size, const void *of_channels,
                                        const void *of_height, const void *of_width, const void *dy, void *dx,
                                        bool accumulate);
void kern_cuda_separable_weight_gradient(kern_cuda *context, const kern_separable *size, const void *x,
                                         const void *of_channels, const void *of_height, const void *of_width,
                                         const void *dy, void *dof_channels, void *dof_height, void *dof_width);

#ifdef __cplusplus
}
#endif
#endif
