/* Linear layers and their adapters, of the products of products.c. */
#include "kernels/cuda/products.h"

static void product_of(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, const void *bias,
                       const void *residual, void *c) {
  kern_cuda_product(context, size, a, b, bias, residual, c, context->options.workspace,
                    context->options.workspace_bytes);
}

size_t kern_cuda_linear_workspace(const kern_linear *s, kern_dtype dtype) {
  (void)dtype;
  return kern_cuda_larger(KERN_CUDA_PRODUCT_BYTES, kern_cuda_column_sums_workspace(s->rows, s->out));
}

static kern_cuda_gemm forward_size(const kern_cuda *context, const kern_linear *s, bool add) {
  return (kern_cuda_gemm){.m = s->rows,
                          .n = s->out,
                          .k = s->in,
                          .b_transposed = true,
                          .a_stride = s->x_stride,
                          .c_stride = s->y_stride,
                          .alpha = 1,
                          .beta = add ? 1 : 0,
                          .c_dtype = context->options.dtype};
}

void kern_cuda_linear_forward(kern_cuda *context, const kern_linear *s, const void *x, const void *w, const void *bias,
                              const void *residual, void *y) {
  const kern_cuda_gemm size = forward_size(context, s, residual != NULL);
  product_of(context, &size, x, w, bias, residual, y);
}

void kern_cuda_linear_input_gradient(kern_cuda *context, const kern_linear *s, const void *w, const void *dy, void *dx,
                                     bool accumulate) {
  const kern_cuda_gemm size = {.m = s->rows,
                               .n = s->in,
                               .k = s->out,
                               .a_stride = s->y_stride,
                               .c_stride = s->x_stride,
                               .alpha = 1,
                               .beta = accumulate ? 1 : 0,
                               .c_dtype = context->options.dtype};
  product_of(context, &size, dy, w, NULL, NULL, dx);
}

/* The weight's gradient, by `size`, and the bias' by one product. False: neither was done. Sums are rounded once: in
 * bf16 they are not added to what lies there. */
static bool both_gradients(kern_cuda *context, const kern_cuda_gemm *size, const void *x, const void *dy, void *dw,
                           void *dbias) {
  const kern_dtype gradient = context->options.gradient;
  const size_t row = kern_cuda_round_up((size_t)size->m * sizeof(float));
  const size_t bytes = context->options.workspace_bytes < KERN_CUDA_PRODUCT_BYTES ? context->options.workspace_bytes
                                                                                  : KERN_CUDA_PRODUCT_BYTES;
  const bool add = !context->overwrites;
  if (kern_cuda_failed(context) || context->options.dtype != KERN_BF16 || (add && gradient == KERN_BF16) ||
      size->m <= 0 || size->n <= 0 || size->k <= 0 || bytes < KERN_CUDA_PRODUCT_BYTES || row > bytes / 16 ||
      (uintptr_t)dbias % 16 != 0)
    return false;
  char *const workspace = context->options.workspace;
  void *const sums = add ? workspace + bytes - row : dbias;
  if (!kern_cuda_product_with_sums(context, size, dy, x, dw, sums, workspace, add ? bytes - row : bytes)) return false;
  if (add) kern_cuda_add_to(context, size->m, gradient, sums, gradient, dbias);
  return true;
}

static kern_cuda_gemm weight_size(const kern_cuda *context, const kern_linear *s) {
  return (kern_cuda_gemm){.m = s->out,
                          .n = s->in,
                          .k = s->rows,
                          .a_transposed = true,
                          .a_stride = s->y_stride,
                          .b_stride = s->x_stride,
                          .alpha = 1,
                          .beta = context->overwrites ? 0 : 1,
                          .c_dtype = context->options.gradient};
}

void kern_cuda_linear_weight_gradient(kern_cuda *context, const kern_linear *s, const void *x, const void *dy, void *dw,
                                      void *dbias) {
  const kern_cuda_gemm size = weight_size(context, s);
  if (dw && dbias && both_gradients(context, &size, x, dy, dw, dbias)) return;
  if (dw) product_of(context, &size, dy, x, NULL, NULL, dw);
  if (dbias)
    kern_cuda_column_sums(context, s->rows, s->out, kern_cuda_or_dense(s->y_stride, s->out), context->options.dtype, dy,
                          context->options.gradient, !context->overwrites, dbias, context->options.workspace);
}

/* ---- siblings ---- */

/* How far arrays lie apart, in values, where each follows the one before at the same distance; 0: they do not. */
static int64_t distance_of(int count, const void *const *arrays, int64_t value_bytes) {
  const intptr_t bytes = (intptr_t)arrays[1] - (intptr_t)arrays[0];
  for (int i = 2; i < count; i++)
    if ((intptr_t)arrays[i] - (intptr_t)arrays[i - 1] != bytes) return 0;
  return bytes > 0 && bytes % value_bytes == 0 ? bytes / value_bytes : 0;
}

void kern_cuda_linears_forward(kern_cuda *context, const kern_linear *s, int count, const void *x, const void *const *w,
                               void *const *y) {
  const int64_t bytes = kern_dtype_bytes(context->options.dtype);
  kern_cuda_gemm size = forward_size(context, s, false);
  size.batch = count;
  size.b_batch_stride = distance_of(count, w, bytes);
  size.c_batch_stride = distance_of(count, (const void *const *)y, bytes);
  if (size.b_batch_stride > 0 && size.c_batch_stride > 0 &&
      kern_cuda_product_siblings(context, &size, x, w[0], y[0], context->options.workspace,
                                 context->options.workspace_bytes))
    return;
  for (int i = 0; i < count; i++) kern_cuda_linear_forward(context, s, x, w[i], NULL, NULL, y[i]);
}

void kern_cuda_linears_weight_gradient(kern_cuda *context, const kern_linear *s, int count, const void *x,
                                       const void *const *dy, void *const *dw) {
  kern_cuda_gemm size = weight_size(context, s);
  size.batch = count;
  size.a_batch_stride = distance_of(count, dy, kern_dtype_bytes(context->options.dtype));
  size.c_batch_stride = distance_of(count, (const void *const *)dw, kern_dtype_bytes(context->options.gradient));
  if (size.a_batch_stride > 0 && size.c_batch_stride > 0 &&
      kern_cuda_product_siblings(context, &size, dy[0], x, dw[0], context->options.workspace,
                                 context->options.workspace_bytes))
    return;
  for (int i = 0; i < count; i++) kern_cuda_linear_weight_gradient(context, s, x, dy[i], dw[i], NULL);
}

/* ---- adapters ---- */

size_t kern_cuda_lora_workspace(const kern_lora *s, kern_dtype dtype) {
  (void)s;
  (void)dtype;
  return KERN_CUDA_PRODUCT_BYTES;
}

void kern_cuda_lora_forward(kern_cuda *context, const kern_lora *s, const void *x, const void *a, const void *b,
                            void *hidden, void *y) {
  const kern_dtype dtype = context->options.dtype;
  const kern_cuda_gemm down = {.m = s->rows,
                               .n = s->rank,
                               .k = s->in,
                               .b_transposed = true,
                               .a_stride = s->x_stride,
                               .alpha = 1,
                               .c_dtype = dtype};
  const kern_cuda_gemm up = {.m = s->rows,
                             .n = s->out,
                             .k = s->rank,
                             .b_transposed = true,
                             .c_stride = s->y_stride,
                             .alpha = s->scale,
                             .beta = 1,
                             .c_dtype = dtype};
  product_of(context, &down, x, a, NULL, NULL, hidden);
  product_of(context, &up, hidden, b, NULL, NULL, y);
}

void kern_cuda_lora_input_gradient(kern_cuda *context, const kern_lora *s, const void *a, const void *b, const void *dy,
                                   void *dhidden, void *dx) {
  const kern_dtype dtype = context->options.dtype;
  const kern_cuda_gemm up = {
      .m = s->rows, .n = s->rank, .k = s->out, .a_stride = s->y_stride, .alpha = s->scale, .c_dtype = dtype};
  const kern_cuda_gemm down = {
      .m = s->rows, .n = s->in, .k = s->rank, .c_stride = s->x_stride, .alpha = 1, .beta = 1, .c_dtype = dtype};
  product_of(context, &up, dy, b, NULL, NULL, dhidden);
  if (dx) product_of(context, &down, dhidden, a, NULL, NULL, dx);
}

void kern_cuda_lora_weight_gradient(kern_cuda *context, const kern_lora *s, const void *x, const void *dy,
                                    const void *hidden, const void *dhidden, void *da, void *db) {
  const kern_dtype gradient = context->options.gradient;
  const kern_cuda_gemm of_a = {.m = s->rank,
                               .n = s->in,
                               .k = s->rows,
                               .a_transposed = true,
                               .b_stride = s->x_stride,
                               .alpha = 1,
                               .beta = context->overwrites ? 0 : 1,
                               .c_dtype = gradient};
  const kern_cuda_gemm of_b = {.m = s->out,
                               .n = s->rank,
                               .k = s->rows,
                               .a_transposed = true,
                               .a_stride = s->y_stride,
                               .alpha = s->scale,
                               .beta = context->overwrites ? 0 : 1,
                               .c_dtype = gradient};
  product_of(context, &of_a, dhidden, x, NULL, NULL, da);
  product_of(context, &of_b, dy, hidden, NULL, NULL, db);
}
