/* Separable projections. One dimension after another: channels, width, height where channels become fewer, else height,
 * width, channels; so the two tensors between, t1 and t2, are small ones. Backward makes them again.
 */
#include "kernels/cpu/context.h"

typedef struct shape {
  bool channels_first;
  int64_t t1_floats, t2_floats;
  int64_t channels; /* of t1 and t2 */
  int64_t height;   /* of t1 and t2 */
} shape;

static shape shape_of(const kern_separable *s) {
  shape f = {.channels_first = s->out <= s->in};
  f.channels = f.channels_first ? s->out : s->in;
  f.height = f.channels_first ? s->height : s->out_height;
  f.t1_floats = s->batch * f.height * s->width * f.channels;
  f.t2_floats = s->batch * f.height * s->out_width * f.channels;
  return f;
}

typedef struct between {
  float *t1, *t2, *d1, *d2;
} between;

size_t kern_separable_workspace(const kern_separable *s, int threads) {
  (void)threads;
  const shape f = shape_of(s);
  return 2 * (kern_floats(f.t1_floats) + kern_floats(f.t2_floats));
}

static between between_of(kern_context *context, const kern_separable *s) {
  const shape f = shape_of(s);
  char *block = kern_workspace(context, kern_separable_workspace(s, kern_context_threads(context)));
  const size_t t1 = kern_floats(f.t1_floats), t2 = kern_floats(f.t2_floats);
  return (between){.t1 = (float *)(void *)block,
                   .t2 = (float *)(void *)(block + t1),
                   .d1 = (float *)(void *)(block + t1 + t2),
                   .d2 = (float *)(void *)(block + 2 * t1 + t2)};
}

/* For each of `outer` matrices: out[to, n] = matrix[to, from] in[from, n]; transposed: out[from, n] = matrix^T in[to,
 * n]. Gradient: dmatrix[to, from] += sum of dout[to, n] in[from, n]^T. */
typedef struct left_job {
  int64_t outer, to, from, n;
  int64_t width, parts; /* columns of a part, or rows of the gradient's; parts of a matrix */
  bool transposed;
  float beta;
  const float *matrix, *in;
  float *out;
} left_job;

static void left_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const left_job *j = data;
  const int64_t o = index / j->parts, at = index % j->parts * j->width;
  const int64_t rows_in = j->transposed ? j->to : j->from, rows_out = j->transposed ? j->from : j->to;
  const kern_gemm product = {.m = rows_out,
                             .n = kern_min(j->width, j->n - at),
                             .k = rows_in,
                             .a_transposed = j->transposed,
                             .a_stride = j->from,
                             .b_stride = j->n,
                             .c_stride = j->n,
                             .alpha = 1,
                             .beta = j->beta};
  kern_gemm_serial(&product, j->matrix, j->in + o * rows_in * j->n + at, j->out + o * rows_out * j->n + at);
}

static void left(kern_context *context, int64_t outer, int64_t to, int64_t from, int64_t n, const float *matrix,
                 bool transposed, const float *in, bool accumulate, float *out) {
  enum { WIDTH = 512 };
  left_job j = {.outer = outer, .to = to, .from = from, .n = n, .width = WIDTH, .transposed = transposed};
  j.beta = accumulate ? 1 : 0;
  j.parts = kern_ceil_div(n, WIDTH);
  j.matrix = matrix;
  j.in = in;
  j.out = out;
  kern_parallel(context, outer * j.parts, left_part, &j);
}

static void left_gradient_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const left_job *j = data;
  const int64_t first = index * j->width;
  const kern_gemm product = {.m = kern_min(j->width, j->to - first),
                             .n = j->from,
                             .k = j->n,
                             .b_transposed = true,
                             .a_stride = j->n,
                             .b_stride = j->n,
                             .c_stride = j->from,
                             .alpha = 1,
                             .beta = 1};
  for (int64_t o = 0; o < j->outer; o++)
    kern_gemm_serial(&product, j->matrix + (o * j->to + first) * j->n, j->in + o * j->from * j->n,
                     j->out + first * j->from);
}

/* Here the job's matrix is dout. */
static void left_gradient(kern_context *context, int64_t outer, int64_t to, int64_t from, int64_t n, const float *dout,
                          const float *in, float *dmatrix) {
  left_job j = {.outer = outer, .to = to, .from = from, .n = n, .width = 16, .matrix = dout, .in = in, .out = dmatrix};
  kern_parallel(context, kern_ceil_div(to, j.width), left_gradient_part, &j);
}

static kern_linear of_rows(const kern_separable *s, bool before) {
  return (kern_linear){.rows = before ? s->batch * s->height * s->width : s->batch * s->out_height * s->out_width,
                       .in = s->in,
                       .out = s->out};
}

/* t1 and t2, from x. */
static void make_between(kern_context *context, const kern_separable *s, const float *x, const float *of_channels,
                         const float *of_height, const float *of_width, const between *w) {
  const shape f = shape_of(s);
  const kern_linear rows = of_rows(s, true);
  if (f.channels_first)
    kern_linear_forward(context, &rows, x, of_channels, NULL, w->t1);
  else
    left(context, s->batch, s->out_height, s->height, s->width * s->in, of_height, false, x, false, w->t1);
  left(context, s->batch * f.height, s->out_width, s->width, f.channels, of_width, false, w->t1, false, w->t2);
}

void kern_separable_forward(kern_context *context, const kern_separable *s, const float *x, const float *of_channels,
                            const float *of_height, const float *of_width, float *y) {
  const between w = between_of(context, s);
  const kern_linear rows = of_rows(s, false);
  make_between(context, s, x, of_channels, of_height, of_width, &w);
  if (shape_of(s).channels_first)
    left(context, s->batch, s->out_height, s->height, s->out_width * s->out, of_height, false, w.t2, false, y);
  else
    kern_linear_forward(context, &rows, w.t2, of_channels, NULL, y);
}

/* d2 and d1, from dy. */
static void make_gradients(kern_context *context, const kern_separable *s, const float *of_channels,
                           const float *of_height, const float *of_width, const float *dy, const between *w) {
  const shape f = shape_of(s);
  const kern_linear rows = of_rows(s, false);
  if (f.channels_first)
    left(context, s->batch, s->out_height, s->height, s->out_width * s->out, of_height, true, dy, false, w->d2);
  else
    kern_linear_input_gradient(context, &rows, of_channels, dy, w->d2, false);
  left(context, s->batch * f.height, s->out_width, s->width, f.channels, of_width, true, w->d2, false, w->d1);
}

void kern_separable_input_gradient(kern_context *context, const kern_separable *s, const float *of_channels,
                                   const float *of_height, const float *of_width, const float *dy, float *dx,
                                   bool accumulate) {
  const between w = between_of(context, s);
  const kern_linear rows = of_rows(s, true);
  make_gradients(context, s, of_channels, of_height, of_width, dy, &w);
  if (shape_of(s).channels_first)
    kern_linear_input_gradient(context, &rows, of_channels, w.d1, dx, accumulate);
  else
    left(context, s->batch, s->out_height, s->height, s->width * s->in, of_height, true, w.d1, accumulate, dx);
}

void kern_separable_weight_gradient(kern_context *context, const kern_separable *s, const float *x,
                                    const float *of_channels, const float *of_height, const float *of_width,
                                    const float *dy, float *dof_channels, float *dof_height, float *dof_width) {
  const shape f = shape_of(s);
  const between w = between_of(context, s);
  const kern_linear rows = of_rows(s, f.channels_first);
  make_between(context, s, x, of_channels, of_height, of_width, &w);
  make_gradients(context, s, of_channels, of_height, of_width, dy, &w);
  left_gradient(context, s->batch * f.height, s->out_width, s->width, f.channels, w.d2, w.t1, dof_width);
  if (f.channels_first) {
    kern_linear_weight_gradient(context, &rows, x, w.d1, dof_channels, NULL);
    left_gradient(context, s->batch, s->out_height, s->height, s->out_width * s->out, dy, w.t2, dof_height);
  } else {
    kern_linear_weight_gradient(context, &rows, w.t2, dy, dof_channels, NULL);
    left_gradient(context, s->batch, s->out_height, s->height, s->width * s->in, w.d1, x, dof_height);
  }
}
