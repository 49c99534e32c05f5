/* Convolutions as products with columns that are gathered first: for sizes and alignments that cuDNN has nothing for,
 * and those with so few channels that this is faster. Exact wherever products are.
 */
#include "kernels/cuda/conv.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

void kern_conv_columns_run(kern_cuda *context, const kern_conv2d *s, kern_conv_direction direction, bool accumulate,
                           void *const arrays[KERN_CONV_ARRAYS], void *turned, void *workspace,
                           size_t workspace_bytes) {
  const bool back = direction == KERN_CONV_INPUT_GRADIENT;
  const kern_dtype dtype = context->options.dtype;
  const int64_t bytes = kern_dtype_bytes(dtype), taps = s->kernel_height * s->kernel_width;
  const int64_t positions =
      back ? s->batch * s->height * s->width : s->batch * kern_cuda_conv_out_height(s) * kern_cuda_conv_out_width(s);
  const int64_t width = taps * (back ? s->out : s->in);
  char *const columns = (char *)workspace + KERN_CUDA_PRODUCT_BYTES;
  int64_t chunk = (int64_t)(workspace_bytes - KERN_CUDA_PRODUCT_BYTES) / (width * bytes);
  if (chunk < 1) {
    kern_cuda_fail(context, DP_UNSUPPORTED, "a convolution's %lld columns have no room", (long long)width);
    return;
  }
  if (chunk >= 16) chunk -= chunk % 16; /* rows of a chunk begin as aligned as the first */
  chunk = least(chunk, positions);
  if (back) kern_conv_turn(context, s, arrays[KERN_CONV_W], turned);
  for (int64_t first = 0; first < positions && !kern_cuda_failed(context); first += chunk) {
    const int64_t count = least(chunk, positions - first);
    const char *const source = arrays[back ? KERN_CONV_Y : KERN_CONV_X];
    char *const y = (char *)arrays[KERN_CONV_Y] + first * s->out * bytes;
    kern_conv_gather(context, s, back, first, count, source, columns);
    if (direction == KERN_CONV_FORWARD) {
      const char *residual = arrays[KERN_CONV_RESIDUAL];
      if (residual) residual += first * s->out * bytes;
      const kern_cuda_gemm size = {.m = count,
                                   .n = s->out,
                                   .k = width,
                                   .b_transposed = true,
                                   .alpha = 1,
                                   .beta = residual ? 1 : 0,
                                   .c_dtype = dtype};
      kern_cuda_product(context, &size, columns, arrays[KERN_CONV_W], arrays[KERN_CONV_BIAS], residual, y, workspace,
                        KERN_CUDA_PRODUCT_BYTES);
    } else if (back) {
      const kern_cuda_gemm size = {
          .m = count, .n = s->in, .k = width, .alpha = 1, .beta = accumulate ? 1 : 0, .c_dtype = dtype};
      kern_cuda_product(context, &size, columns, turned, NULL, NULL,
                        (char *)arrays[KERN_CONV_X] + first * s->in * bytes, workspace, KERN_CUDA_PRODUCT_BYTES);
    } else {
      const kern_cuda_gemm size = {.m = s->out,
                                   .n = width,
                                   .k = count,
                                   .a_transposed = true,
                                   .alpha = 1,
                                   .beta = accumulate || first > 0 ? 1 : 0,
                                   .c_dtype = context->options.gradient};
      kern_cuda_product(context, &size, y, columns, NULL, NULL, arrays[KERN_CONV_W], workspace,
                        KERN_CUDA_PRODUCT_BYTES);
    }
  }
}
