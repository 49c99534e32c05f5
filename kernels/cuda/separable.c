/* Separable projections, over the products. One dimension after another: channels, width, height where channels become
 * fewer, else height, width, channels; so the two tensors between, t1 and t2, are small ones. Backward makes them
 * again.
 */
#include "kernels/cuda/products.h"

/* Products whose sum is a matrix' gradient are made this many bytes at a time, and at least one. */
static const size_t most_partial_bytes = (size_t)64 << 20;

typedef struct shape {
  bool channels_first;
  int64_t channels, height; /* of t1 and t2 */
  int64_t t1, t2;           /* values */
} shape;

static shape shape_of(const kern_separable *s) {
  shape f = {.channels_first = s->out <= s->in};
  f.channels = f.channels_first ? s->out : s->in;
  f.height = f.channels_first ? s->height : s->out_height;
  f.t1 = s->batch * f.height * s->width * f.channels;
  f.t2 = s->batch * f.height * s->out_width * f.channels;
  return f;
}

/* Of `outer` products, as many as are made at a time. */
static int64_t chunk_of(int64_t outer, int64_t values) {
  const int64_t most = (int64_t)(most_partial_bytes / sizeof(float)) / values;
  return most < 1 ? 1 : most < outer ? most : outer;
}

static size_t partial_bytes(int64_t outer, int64_t values) {
  return kern_cuda_round_up((size_t)(chunk_of(outer, values) * values) * sizeof(float)) +
         kern_cuda_column_sums_workspace(chunk_of(outer, values), values);
}

/* In this order in the workspace, after what products use. */
typedef struct between {
  char *t1, *t2, *d1, *d2, *partial;
} between;

static size_t bytes_of(int64_t values, kern_dtype dtype) {
  return kern_cuda_round_up((size_t)(values * kern_dtype_bytes(dtype)));
}

size_t kern_cuda_separable_workspace(const kern_separable *s, kern_dtype dtype) {
  const shape f = shape_of(s);
  return KERN_CUDA_PRODUCT_BYTES + 2 * (bytes_of(f.t1, dtype) + bytes_of(f.t2, dtype)) +
         kern_cuda_larger(partial_bytes(s->batch * f.height, s->out_width * s->width),
                          partial_bytes(s->batch, s->out_height * s->height));
}

static between between_of(const kern_cuda *context, const kern_separable *s) {
  const shape f = shape_of(s);
  const size_t t1 = bytes_of(f.t1, context->options.dtype), t2 = bytes_of(f.t2, context->options.dtype);
  between w;
  w.t1 = (char *)context->options.workspace + KERN_CUDA_PRODUCT_BYTES;
  w.t2 = w.t1 + t1;
  w.d1 = w.t2 + t2;
  w.d2 = w.d1 + t1;
  w.partial = w.d2 + t2;
  return w;
}

static void multiply(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, void *c) {
  kern_cuda_product(context, size, a, b, NULL, NULL, c, context->options.workspace, KERN_CUDA_PRODUCT_BYTES);
}

/* For each of `outer` matrices: out[to, n] = matrix[to, from] in[from, n]; transposed: out[from, n] = matrix^T in[to,
 * n]. */
static void left(kern_cuda *context, int64_t outer, int64_t to, int64_t from, int64_t n, const void *matrix,
                 bool transposed, const void *in, bool accumulate, void *out) {
  const kern_cuda_gemm size = {.m = transposed ? from : to,
                               .n = n,
                               .k = transposed ? to : from,
                               .a_transposed = transposed,
                               .alpha = 1,
                               .beta = accumulate ? 1 : 0,
                               .c_dtype = context->options.dtype,
                               .batch = outer,
                               .b_batch_stride = (transposed ? to : from) * n,
                               .c_batch_stride = (transposed ? from : to) * n};
  multiply(context, &size, matrix, in, out);
}

/* dmatrix[to, from] += sum of dout[to, n] in[from, n]^T: all products, in fp32, then their sum. */
static void left_gradient(kern_cuda *context, int64_t outer, int64_t to, int64_t from, int64_t n, const void *dout,
                          const void *in, void *dmatrix, char *partial) {
  const int64_t values = to * from, chunk = chunk_of(outer, values), bytes = kern_dtype_bytes(context->options.dtype);
  char *const sums = partial + kern_cuda_round_up((size_t)(chunk * values) * sizeof(float));
  for (int64_t first = 0; first < outer; first += chunk) {
    const int64_t count = chunk < outer - first ? chunk : outer - first;
    const kern_cuda_gemm size = {.m = to,
                                 .n = from,
                                 .k = n,
                                 .b_transposed = true,
                                 .alpha = 1,
                                 .c_dtype = KERN_FP32,
                                 .batch = count,
                                 .a_batch_stride = to * n,
                                 .b_batch_stride = from * n,
                                 .c_batch_stride = values};
    multiply(context, &size, (const char *)dout + first * to * n * bytes, (const char *)in + first * from * n * bytes,
             partial);
    kern_cuda_column_sums(context, count, values, values, KERN_FP32, partial, context->options.gradient, true, dmatrix,
                          sums);
  }
}

/* Over channels: y[rows, out] = x[rows, in] of_channels^T, and its gradients. */
static void rows_forward(kern_cuda *context, const kern_separable *s, int64_t rows, const void *x,
                         const void *of_channels, void *y) {
  const kern_cuda_gemm size = {
      .m = rows, .n = s->out, .k = s->in, .b_transposed = true, .alpha = 1, .c_dtype = context->options.dtype};
  multiply(context, &size, x, of_channels, y);
}

static void rows_input_gradient(kern_cuda *context, const kern_separable *s, int64_t rows, const void *of_channels,
                                const void *dy, void *dx, bool accumulate) {
  const kern_cuda_gemm size = {
      .m = rows, .n = s->in, .k = s->out, .alpha = 1, .beta = accumulate ? 1 : 0, .c_dtype = context->options.dtype};
  multiply(context, &size, dy, of_channels, dx);
}

static void rows_weight_gradient(kern_cuda *context, const kern_separable *s, int64_t rows, const void *x,
                                 const void *dy, void *dof_channels) {
  const kern_cuda_gemm size = {.m = s->out,
                               .n = s->in,
                               .k = rows,
                               .a_transposed = true,
                               .alpha = 1,
                               .beta = 1,
                               .c_dtype = context->options.gradient};
  multiply(context, &size, dy, x, dof_channels);
}

static int64_t rows_before(const kern_separable *s) { return s->batch * s->height * s->width; }
static int64_t rows_after(const kern_separable *s) { return s->batch * s->out_height * s->out_width; }

/* t1 and t2, from x. */
static void make_between(kern_cuda *context, const kern_separable *s, const void *x, const void *of_channels,
                         const void *of_height, const void *of_width, const between *w) {
  const shape f = shape_of(s);
  if (f.channels_first)
    rows_forward(context, s, rows_before(s), x, of_channels, w->t1);
  else
    left(context, s->batch, s->out_height, s->height, s->width * s->in, of_height, false, x, false, w->t1);
  left(context, s->batch * f.height, s->out_width, s->width, f.channels, of_width, false, w->t1, false, w->t2);
}

void kern_cuda_separable_forward(kern_cuda *context, const kern_separable *s, const void *x, const void *of_channels,
                                 const void *of_height, const void *of_width, void *y) {
  const between w = between_of(context, s);
  make_between(context, s, x, of_channels, of_height, of_width, &w);
  if (shape_of(s).channels_first)
    left(context, s->batch, s->out_height, s->height, s->out_width * s->out, of_height, false, w.t2, false, y);
  else
    rows_forward(context, s, rows_after(s), w.t2, of_channels, y);
}

/* d2 and d1, from dy. */
static void make_gradients(kern_cuda *context, const kern_separable *s, const void *of_channels, const void *of_height,
                           const void *of_width, const void *dy, const between *w) {
  const shape f = shape_of(s);
  if (f.channels_first)
    left(context, s->batch, s->out_height, s->height, s->out_width * s->out, of_height, true, dy, false, w->d2);
  else
    rows_input_gradient(context, s, rows_after(s), of_channels, dy, w->d2, false);
  left(context, s->batch * f.height, s->out_width, s->width, f.channels, of_width, true, w->d2, false, w->d1);
}

void kern_cuda_separable_input_gradient(kern_cuda *context, const kern_separable *s, const void *of_channels,
                                        const void *of_height, const void *of_width, const void *dy, void *dx,
                                        bool accumulate) {
  const between w = between_of(context, s);
  make_gradients(context, s, of_channels, of_height, of_width, dy, &w);
  if (shape_of(s).channels_first)
    rows_input_gradient(context, s, rows_before(s), of_channels, w.d1, dx, accumulate);
  else
    left(context, s->batch, s->out_height, s->height, s->width * s->in, of_height, true, w.d1, accumulate, dx);
}

void kern_cuda_separable_weight_gradient(kern_cuda *context, const kern_separable *s, const void *x,
                                         const void *of_channels, const void *of_height, const void *of_width,
                                         const void *dy, void *dof_channels, void *dof_height, void *dof_width) {
  const shape f = shape_of(s);
  const between w = between_of(context, s);
  make_between(context, s, x, of_channels, of_height, of_width, &w);
  make_gradients(context, s, of_channels, of_height, of_width, dy, &w);
  left_gradient(context, s->batch * f.height, s->out_width, s->width, f.channels, w.d2, w.t1, dof_width, w.partial);
  if (f.channels_first) {
    rows_weight_gradient(context, s, rows_before(s), x, w.d1, dof_channels);
    left_gradient(context, s->batch, s->out_height, s->height, s->out_width * s->out, dy, w.t2, dof_height, w.partial);
  } else {
    rows_weight_gradient(context, s, rows_after(s), w.t2, dy, dof_channels);
    left_gradient(context, s->batch, s->out_height, s->height, s->width * s->in, w.d1, x, dof_height, w.partial);
  }
}
