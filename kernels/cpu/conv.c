/* Convolutions as matrix products. One row of `columns` holds what the kernel sees at an output position, in the order
 * of the weights' memory: (kernel row, kernel column, channel). Output positions are taken in strips, so that the
 * columns of a strip fit STRIP_VALUES; a 1x1 kernel sees the input itself and needs none.
 */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

enum { STRIP_VALUES = 4 << 20 };

typedef struct conv_job {
  const kern_conv2d *size;
  int64_t out_height, out_width;
  int64_t first, count; /* the strip's output positions, of batch * out_height * out_width */
  int64_t row_width, rows_a_part;
  const float *source;
  float *target;
} conv_job;

int64_t kern_conv2d_out_height(const kern_conv2d *s) {
  return (s->height + 2 * s->padding_height - s->kernel_height) / s->stride_height + 1;
}
int64_t kern_conv2d_out_width(const kern_conv2d *s) {
  return (s->width + 2 * s->padding_width - s->kernel_width) / s->stride_width + 1;
}

static int64_t positions(const kern_conv2d *s) {
  return s->batch * kern_conv2d_out_height(s) * kern_conv2d_out_width(s);
}

static int64_t row_width(const kern_conv2d *s) { return s->kernel_height * s->kernel_width * s->in; }

static bool direct(const kern_conv2d *s) {
  return s->kernel_height == 1 && s->kernel_width == 1 && s->stride_height == 1 && s->stride_width == 1 &&
         s->padding_height == 0 && s->padding_width == 0;
}

/* Output positions of a strip: as even as strips can be. */
static int64_t strip_positions(const kern_conv2d *s) {
  const int64_t all = positions(s);
  const int64_t most = kern_max(1, STRIP_VALUES / row_width(s));
  return kern_ceil_div(all, kern_ceil_div(all, most));
}

static size_t columns_bytes(const kern_conv2d *s) {
  return direct(s) ? 0 : kern_floats(strip_positions(s) * row_width(s));
}

size_t kern_conv2d_workspace(const kern_conv2d *s, int threads) {
  (void)threads;
  const size_t columns = columns_bytes(s), sums = kern_sum_rows_workspace(positions(s), s->out);
  return columns > sums ? columns : sums;
}

static conv_job job_of(const kern_conv2d *s) {
  return (conv_job){.size = s,
                    .out_height = kern_conv2d_out_height(s),
                    .out_width = kern_conv2d_out_width(s),
                    .row_width = row_width(s)};
}

/* The part of [0, kernel) that lies within the input when the kernel begins at `start`. */
static void inside(int64_t start, int64_t kernel, int64_t length, int64_t *from, int64_t *to) {
  *from = kern_max(0, -start);
  *to = kern_max(*from, kern_min(kernel, length - start));
}

static void fill_columns(const conv_job *j, int64_t position, float *row) {
  const kern_conv2d *s = j->size;
  const int64_t image = position / (j->out_height * j->out_width);
  const int64_t y = position / j->out_width % j->out_height * s->stride_height - s->padding_height;
  const int64_t x = position % j->out_width * s->stride_width - s->padding_width;
  int64_t from, to;
  inside(x, s->kernel_width, s->width, &from, &to);
  if (from >= s->kernel_width) from = to = s->kernel_width;
  for (int64_t k = 0; k < s->kernel_height; k++, row += s->kernel_width * s->in) {
    if (y + k < 0 || y + k >= s->height) {
      memset(row, 0, (size_t)(s->kernel_width * s->in) * sizeof *row);
      continue;
    }
    const float *source = j->source + ((image * s->height + y + k) * s->width + x + from) * s->in;
    memset(row, 0, (size_t)(from * s->in) * sizeof *row);
    if (to > from) memcpy(row + from * s->in, source, (size_t)((to - from) * s->in) * sizeof *row);
    memset(row + to * s->in, 0, (size_t)((s->kernel_width - to) * s->in) * sizeof *row);
  }
}

static void columns_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const conv_job *j = data;
  const int64_t from = index * j->rows_a_part, to = kern_min(j->count, from + j->rows_a_part);
  for (int64_t i = from; i < to; i++) fill_columns(j, j->first + i, j->target + i * j->row_width);
}

static void make_columns(kern_context *context, conv_job *j, const float *x, float *columns) {
  j->source = x;
  j->target = columns;
  j->rows_a_part = kern_part_rows(j->row_width);
  kern_parallel(context, kern_ceil_div(j->count, j->rows_a_part), columns_part, j);
}

KERN_CLONES static void add_to(int64_t n, const float *x, float *y) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

/* Input position `index` takes its share of every column row of the strip that saw it. */
static void gather_columns(const conv_job *j, int64_t index, float *target) {
  const kern_conv2d *s = j->size;
  const int64_t image = index / (s->height * s->width);
  const int64_t y = index / s->width % s->height + s->padding_height, x = index % s->width + s->padding_width;
  for (int64_t ky = kern_min(y, s->kernel_height - 1); ky >= 0; ky--) {
    if ((y - ky) % s->stride_height != 0) continue;
    const int64_t out_y = (y - ky) / s->stride_height;
    if (out_y >= j->out_height) break;
    for (int64_t kx = kern_min(x, s->kernel_width - 1); kx >= 0; kx--) {
      if ((x - kx) % s->stride_width != 0) continue;
      const int64_t out_x = (x - kx) / s->stride_width;
      if (out_x >= j->out_width) break;
      const int64_t row = (image * j->out_height + out_y) * j->out_width + out_x - j->first;
      if (row < 0 || row >= j->count) continue;
      add_to(s->in, j->source + row * j->row_width + (ky * s->kernel_width + kx) * s->in, target);
    }
  }
}

static void gather_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const conv_job *j = data;
  const kern_conv2d *s = j->size;
  const int64_t all = s->batch * s->height * s->width;
  const int64_t from = index * j->rows_a_part, to = kern_min(all, from + j->rows_a_part);
  for (int64_t i = from; i < to; i++) gather_columns(j, i, j->target + i * s->in);
}

void kern_conv2d_forward(kern_context *context, const kern_conv2d *s, const float *x, const float *w, const float *bias,
                         float *y) {
  conv_job j = job_of(s);
  const int64_t all = positions(s), strip = direct(s) ? all : strip_positions(s);
  float *columns = direct(s) ? NULL : kern_workspace(context, columns_bytes(s));
  for (j.first = 0; j.first < all; j.first += strip) {
    j.count = kern_min(strip, all - j.first);
    if (columns != NULL) make_columns(context, &j, x, columns);
    const kern_gemm product = {.m = j.count,
                               .n = s->out,
                               .k = j.row_width,
                               .b_transposed = true,
                               .a_stride = j.row_width,
                               .b_stride = j.row_width,
                               .c_stride = s->out,
                               .alpha = 1};
    kern_gemm_bias(context, &product, columns != NULL ? columns : x, w, bias, y + j.first * s->out);
  }
}

void kern_conv2d_input_gradient(kern_context *context, const kern_conv2d *s, const float *w, const float *dy, float *dx,
                                bool accumulate) {
  conv_job j = job_of(s);
  const int64_t all = positions(s), strip = direct(s) ? all : strip_positions(s);
  float *columns = direct(s) ? NULL : kern_workspace(context, columns_bytes(s));
  if (columns != NULL && !accumulate) kern_fill(context, s->batch * s->height * s->width * s->in, 0, dx);
  for (j.first = 0; j.first < all; j.first += strip) {
    j.count = kern_min(strip, all - j.first);
    const kern_gemm product = {.m = j.count,
                               .n = j.row_width,
                               .k = s->out,
                               .a_stride = s->out,
                               .b_stride = j.row_width,
                               .c_stride = j.row_width,
                               .alpha = 1,
                               .beta = columns == NULL && accumulate ? 1 : 0};
    kern_gemm_run(context, &product, dy + j.first * s->out, w, columns != NULL ? columns : dx);
    if (columns == NULL) continue;
    j.source = columns;
    j.target = dx;
    j.rows_a_part = kern_part_rows(s->in);
    kern_parallel(context, kern_ceil_div(s->batch * s->height * s->width, j.rows_a_part), gather_part, &j);
  }
}

void kern_conv2d_weight_gradient(kern_context *context, const kern_conv2d *s, const float *x, const float *dy,
                                 float *dw, float *dbias) {
  conv_job j = job_of(s);
  const int64_t all = positions(s), strip = direct(s) ? all : strip_positions(s);
  float *columns = direct(s) ? NULL : kern_workspace(context, columns_bytes(s));
  for (j.first = 0; dw != NULL && j.first < all; j.first += strip) {
    j.count = kern_min(strip, all - j.first);
    if (columns != NULL) make_columns(context, &j, x, columns);
    const kern_gemm product = {.m = s->out,
                               .n = j.row_width,
                               .k = j.count,
                               .a_transposed = true,
                               .a_stride = s->out,
                               .b_stride = j.row_width,
                               .c_stride = j.row_width,
                               .alpha = 1,
                               .beta = 1};
    kern_gemm_run(context, &product, dy + j.first * s->out, columns != NULL ? columns : x, dw);
  }
  if (dbias != NULL) kern_sum_rows(context, all, s->out, s->out, dy, false, dbias);
}

void kern_conv2d_weight_from_file(kern_context *context, int64_t out, int64_t in, int64_t kernel_height,
                                  int64_t kernel_width, const float *file, float *memory) {
  kern_channels_last(context, out, in, kernel_height * kernel_width, file, memory);
}

void kern_conv2d_weight_to_file(kern_context *context, int64_t out, int64_t in, int64_t kernel_height,
                                int64_t kernel_width, const float *memory, float *file) {
  kern_channels_first(context, out, in, kernel_height * kernel_width, memory, file);
}
