/* What the files of convolutions share: cuDNN's plans (conv_plan.c) and the ways by products (conv_columns.c,
 * conv_shifts.c). */
#ifndef DP_KERNELS_CUDA_CONV_H
#define DP_KERNELS_CUDA_CONV_H

#include "kernels/cuda/products.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline int64_t kern_cuda_conv_out_height(const kern_conv2d *s) {
  return (s->height + 2 * s->padding_height - s->kernel_height) / s->stride_height + 1;
}
static inline int64_t kern_cuda_conv_out_width(const kern_conv2d *s) {
  return (s->width + 2 * s->padding_width - s->kernel_width) / s->stride_width + 1;
}

typedef enum kern_conv_direction {
  KERN_CONV_FORWARD,         /* x, w to y */
  KERN_CONV_INPUT_GRADIENT,  /* w, y (its gradient) to x */
  KERN_CONV_WEIGHT_GRADIENT, /* x, y to w */
} kern_conv_direction;

/* Arrays by what they are to the convolution; the residual lies as the result. */
typedef enum kern_conv_array {
  KERN_CONV_X,
  KERN_CONV_W,
  KERN_CONV_Y,
  KERN_CONV_BIAS,
  KERN_CONV_RESIDUAL,
  KERN_CONV_ARRAYS
} kern_conv_array;

/* ---- conv_plan.c ---- */

/* What cuDNN is asked for: result = convolution [+ residual] [+ bias], or with `add` result += convolution. */
typedef struct kern_conv_graph {
  kern_conv2d size;
  kern_conv_direction direction;
  kern_dtype result; /* the others have the context's dtype */
  bool add, bias, residual;
} kern_conv_graph;

typedef struct kern_conv_plans kern_conv_plans;

/* At most `most` plans in the order of cuDNN's hopes, each deterministic, as exact as the context asks for, and with a
 * workspace within the limit. NULL: there are none; that is no failure. */
kern_conv_plans *kern_conv_plans_make(kern_cuda *context, const kern_conv_graph *graph, size_t workspace_bytes,
                                      int most);
/* One plan, by the words of kern_conv_plans_tell. NULL: there is none such. */
kern_conv_plans *kern_conv_plans_restore(kern_cuda *context, const kern_conv_graph *graph, size_t workspace_bytes,
                                         const char *words);
bool kern_conv_plans_tell(const kern_conv_plans *plans, int index, char *out,
                          size_t bytes); /* as kern_cuda_engine_tell */
int kern_conv_plans_count(const kern_conv_plans *plans);
/* Only plan `index` stays, and keeps its index. */
void kern_conv_plans_keep(kern_conv_plans *plans, int index);
void kern_conv_plans_free(kern_conv_plans *plans); /* NULL is fine */
cudnnStatus_t kern_conv_plans_run(kern_cuda *context, const kern_conv_plans *plans, int index,
                                  void *const arrays[KERN_CONV_ARRAYS], void *workspace);

/* ---- conv_columns.c, conv_gather.cu ---- */

/* Any convolution, as a product with what each position meets, gathered some positions at a time. accumulate as
 * kern_cuda_conv2d_input_gradient's; gradients of weights are added. `turned` has room for the weights, where the
 * input's gradient is asked for; the workspace has at least KERN_CONV_COLUMNS_BYTES. */
#define KERN_CONV_COLUMNS_BYTES (2 * KERN_CUDA_PRODUCT_BYTES)
void kern_conv_columns_run(kern_cuda *context, const kern_conv2d *size, kern_conv_direction direction, bool accumulate,
                           void *const arrays[KERN_CONV_ARRAYS], void *turned, void *workspace, size_t workspace_bytes);

/* columns[count, kernel_height, kernel_width, channels] of positions from `first` on: of y's, what each meets in x; or
 * `back`, of x's, what reaches each from y. Zeros where that is outside. */
void kern_conv_gather(kern_cuda *context, const kern_conv2d *size, bool back, int64_t first, int64_t count,
                      const void *source, void *columns);
/* turned[kernel_height, kernel_width, out, in] of w[out, kernel_height, kernel_width, in]. */
void kern_conv_turn(kern_cuda *context, const kern_conv2d *size, const void *w, void *turned);

/* ---- conv_shifts.c, conv_gather.cu ---- */

/* Weights' gradients as products of dy with x some positions on; `spread`: x's copy has each position's neighbours
 * beside it, and there is one product. Else there are kernel_width, each added to those before in the gradients' dtype.
 * The bytes of workspace that it takes; 0: it is not for this convolution. Arrays begin on boundaries of 16 bytes. */
size_t kern_conv_shifts_bytes(const kern_conv2d *size, kern_dtype dtype, bool spread);
void kern_conv_shifts_run(kern_cuda *context, const kern_conv2d *size, bool spread, bool accumulate,
                          void *const arrays[KERN_CONV_ARRAYS], void *workspace);

/* Images in a grid: each in the upper left of grid_height x grid_width positions, one image behind the other. */
typedef struct kern_conv_grid {
  int64_t batch, height, width, grid_height, grid_width;
} kern_conv_grid;
/* spread[rows, taps, channels] of image[batch, height, width, channels]: row i has the grid's positions i - before and
 * the taps - 1 behind it; zeros where there is no image. All of it is whole pieces of 16 bytes, less than 2^31. */
void kern_conv_spread(kern_cuda *context, const kern_conv_grid *grid, int64_t channels, int64_t taps, int64_t before,
                      int64_t rows, const void *image, void *spread);

#ifdef __cplusplus
}
#endif
#endif
