/* Weights' gradients of convolutions that keep their image's size, as products without columns. Both images are copied
 * into a grid with zeros behind each row and below each image, where a tap is one and the same shift for all positions:
 *   dw[o, r, s, c] = sum over q of dy[q, o] x[q + r W + s, c], W the width of the grid,
 * with x from one padding before the grid on. What is outside of an image, on whichever side, is a zero of the row or
 * of the image before it, and dy's zeros meet whatever is there in x: zeros as well.
 *
 * The taps of a row of the kernel lie side by side in dw. In x they do too, at the price of rows that overlap, which a
 * product may not have; so either rows are made that do not, `spread`, or of each kernel_width positions one is summed
 * at a time, each sum added to those before. Rows of the kernel are a batch.
 */
#include "kernels/cuda/conv.h"

typedef struct plan {
  kern_conv_grid grid;
  int64_t sums;   /* products one after another */
  int64_t terms;  /* positions that are summed over, in all: the first to the last of dy, and zeros to even lengths */
  int64_t x_rows; /* of x's copy, from `before` positions before the grid on */
  int64_t before, taps;
  size_t y_bytes, x_bytes;
} plan;

static plan plan_of(const kern_conv2d *s, kern_dtype dtype, bool spread) {
  enum { EVEN = 8 };
  const kern_conv_grid grid = {.batch = s->batch,
                               .height = s->height,
                               .width = s->width,
                               .grid_height = s->height + s->padding_height,
                               .grid_width = s->width + s->padding_width};
  plan p = {.grid = grid, .sums = spread ? 1 : s->kernel_width, .taps = spread ? s->kernel_width : 1};
  const int64_t last = ((s->batch - 1) * grid.grid_height + s->height - 1) * grid.grid_width + s->width;
  const int64_t even = EVEN * p.sums, bytes = kern_dtype_bytes(dtype);
  p.terms = (last + even - 1) / even * even;
  p.before = s->padding_height * grid.grid_width + s->padding_width;
  p.x_rows = p.terms + (s->kernel_height - 1) * grid.grid_width + p.sums - 1;
  p.y_bytes = kern_cuda_round_up((size_t)(p.terms * s->out * bytes));
  p.x_bytes = kern_cuda_round_up((size_t)(p.x_rows * p.taps * s->in * bytes));
  return p;
}

size_t kern_conv_shifts_bytes(const kern_conv2d *s, kern_dtype dtype, bool spread) {
  enum { PIECE = 16 };
  const int64_t bytes = kern_dtype_bytes(dtype);
  if (s->stride_height != 1 || s->stride_width != 1 || 2 * s->padding_height != s->kernel_height - 1 ||
      2 * s->padding_width != s->kernel_width - 1 || s->in * bytes % PIECE != 0 || s->out * bytes % PIECE != 0)
    return 0;
  const plan p = plan_of(s, dtype, spread);
  if ((p.y_bytes | p.x_bytes) / PIECE > INT32_MAX) return 0;
  return KERN_CUDA_PRODUCT_BYTES + p.y_bytes + p.x_bytes;
}

void kern_conv_shifts_run(kern_cuda *context, const kern_conv2d *s, bool spread, bool accumulate,
                          void *const arrays[KERN_CONV_ARRAYS], void *workspace) {
  const plan p = plan_of(s, context->options.dtype, spread);
  const int64_t bytes = kern_dtype_bytes(context->options.dtype), row = s->kernel_width * s->in;
  char *const y = (char *)workspace + KERN_CUDA_PRODUCT_BYTES, *const x = y + p.y_bytes;
  kern_conv_spread(context, &p.grid, s->out, 1, 0, p.terms, arrays[KERN_CONV_Y], y);
  kern_conv_spread(context, &p.grid, s->in, p.taps, p.before, p.x_rows, arrays[KERN_CONV_X], x);
  for (int64_t first = 0; first < p.sums && !kern_cuda_failed(context); first++) {
    const kern_cuda_gemm size = {.m = s->out,
                                 .n = row,
                                 .k = p.terms / p.sums,
                                 .a_transposed = true,
                                 .a_stride = p.sums * s->out,
                                 .b_stride = row,
                                 .c_stride = s->kernel_height * row,
                                 .alpha = 1,
                                 .beta = accumulate || first > 0 ? 1 : 0,
                                 .c_dtype = context->options.gradient,
                                 .batch = s->kernel_height,
                                 .b_batch_stride = p.grid.grid_width * p.taps * s->in,
                                 .c_batch_stride = row};
    kern_cuda_product(context, &size, y + first * s->out * bytes, x + first * s->in * bytes, NULL, NULL,
                      arrays[KERN_CONV_W], workspace, KERN_CUDA_PRODUCT_BYTES);
  }
}
