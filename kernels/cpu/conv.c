/* Convolutions as products whose operands are read where they lie. Output positions are rows of a product, what the
 * kernel sees there its columns, in the order of the weights' memory: (kernel row, kernel column, channel). No such row
 * is ever made: a tile is given, for each kernel position, where the channels of its rows lie in the image, or zeros.
 *
 * The gradient of the input is a convolution of dy: with a stride, one for each residue of the input's coordinates,
 * each with the kernel positions that meet it. The gradient of the weights is a product over positions, the columns of
 * which are packed out of the image block by block.
 */
#include "kernels/cpu/context.h"
#include "kernels/cpu/tile.h"

enum { MAX_PARTS = 64, LEAST_PRODUCTS = 1 << 20, LEAST_ROWS = 192, BLOCK_VALUES = 65536, WHOLE_ROWS = 24 };

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

size_t kern_conv2d_workspace(const kern_conv2d *s, int threads) {
  (void)threads;
  return kern_sum_rows_workspace(positions(s), s->out);
}

/* What lies outside of an image. */
static const float zeros[KERN_TILE_DEPTH];

/* A side of a product: what a part of it has, not cut once it has so few, else in multiples of `whole`. */
typedef struct side {
  int64_t part, few, whole;
} side;

/* Parts are cut along the first side until they are few, then along the other, while each has enough to do. */
static void cut(int64_t depth, side *first, side *other) {
  for (int64_t parts = 1; parts < MAX_PARTS && first->part * other->part * depth >= 2 * LEAST_PRODUCTS; parts *= 2) {
    side *s = first->part > first->few ? first : other;
    if (s->part <= s->few) break;
    s->part = kern_ceil_div(kern_ceil_div(s->part, 2), s->whole) * s->whole;
  }
}

/* ---- forward, and the gradient of the input ---- */

/* One dimension of a grid of targets: target `first` + step g, for g < count, sees source g * source_step + offset +
 * the kernel positions first_tap, first_tap + tap_step, ... up to taps of them, which lie source_tap_step apart. */
typedef struct axis {
  int64_t first, step, count;
  int64_t source_step, offset, source_tap_step, source_length;
  int64_t first_tap, tap_step, taps;
} axis;

typedef struct conv_job {
  const kern_conv2d *size;
  const kern_tiles *tiles;
  bool backward;
  axis y, x;
  int64_t channels, columns; /* of the source, summed over; of the target */
  int64_t target_height, target_width;
  int64_t rows, part_rows, part_columns, parts_across;
  const float *source, *w, *bias;
  float *target;
  bool add;
} conv_job;

static axis forward_axis(int64_t length, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  return (axis){.step = 1,
                .count = out,
                .source_step = stride,
                .offset = -padding,
                .source_tap_step = 1,
                .source_length = length,
                .tap_step = 1,
                .taps = kernel};
}

/* Input coordinates first, first + stride, ...: y sees output (y + padding - tap) / stride for taps that leave no rest.
 */
static axis backward_axis(int64_t length, int64_t out, int64_t kernel, int64_t stride, int64_t padding, int64_t first) {
  const int64_t tap = (first + padding) % stride;
  return (axis){.first = first,
                .step = stride,
                .count = kern_max(0, kern_ceil_div(length - first, stride)),
                .source_step = 1,
                .offset = (first + padding - tap) / stride,
                .source_tap_step = -1,
                .source_length = out,
                .first_tap = tap,
                .tap_step = stride,
                .taps = tap < kernel ? kern_ceil_div(kernel - tap, stride) : 0};
}

/* Where a row of the product lies. */
typedef struct place {
  int64_t image, y, x; /* of the grid */
} place;

static place place_of(const conv_job *j, int64_t row) {
  return (place){row / (j->x.count * j->y.count), row / j->x.count % j->y.count, row % j->x.count};
}

static void next_place(const conv_job *j, place *p) {
  if (++p->x < j->x.count) return;
  p->x = 0;
  if (++p->y < j->y.count) return;
  p->y = 0;
  p->image++;
}

static float *target_of(const conv_job *j, const place *p) {
  const int64_t y = j->y.first + p->y * j->y.step, x = j->x.first + p->x * j->x.step;
  return j->target + ((p->image * j->target_height + y) * j->target_width + x) * j->columns;
}

/* Kernel positions [tap, tap + taps) of a row, in steps of `step` pointers; each the channels from `channel` on. */
static void find_row(const conv_job *j, const place *p, int64_t tap, int64_t taps, int64_t channel, int step,
                     const float **pointers) {
  const axis *y = &j->y, *x = &j->x;
  const int64_t top = p->y * y->source_step + y->offset, left = p->x * x->source_step + x->offset;
  int64_t ky = tap / x->taps, kx = tap % x->taps;
  for (int64_t t = 0; t < taps; t++, pointers += step) {
    const int64_t sy = top + ky * y->source_tap_step, sx = left + kx * x->source_tap_step;
    const bool inside = sy >= 0 && sy < y->source_length && sx >= 0 && sx < x->source_length;
    *pointers = inside
                    ? j->source + ((p->image * y->source_length + sy) * x->source_length + sx) * j->channels + channel
                    : zeros;
    if (++kx < x->taps) continue;
    kx = 0;
    ky++;
  }
}

/* Kernel positions [tap, tap + taps) and channels [channel, channel + k) of each: what one pass over C adds. */
typedef struct block {
  int64_t tap, taps, channel, k;
} block;

static block next_block(const conv_job *j, const block *last) {
  const int64_t all = j->y.taps * j->x.taps;
  block b = {.tap = last->tap, .channel = last->channel + last->k};
  if (b.channel >= j->channels) {
    b.channel = 0;
    b.tap += last->taps;
  }
  b.k = kern_min(KERN_TILE_DEPTH, j->channels - b.channel);
  b.taps = b.k < j->channels ? 1 : kern_min(KERN_TILE_TAPS, KERN_TILE_DEPTH / b.k);
  b.taps = kern_min(b.taps, all - b.tap);
  return b;
}

/* The weights of a block for the columns from `column` on. */
static void pack_weights(const conv_job *j, const block *b, int64_t column, int width, float *panel) {
  const kern_conv2d *s = j->size;
  const int64_t row = row_width(s);
  for (int64_t t = b->tap; t < b->tap + b->taps; t++, panel += b->k * width) {
    const int64_t ky = j->y.first_tap + t / j->x.taps * j->y.tap_step;
    const int64_t kx = j->x.first_tap + t % j->x.taps * j->x.tap_step;
    const float *w = j->w + (ky * s->kernel_width + kx) * s->in;
    if (j->backward)
      kern_tile_pack(b->k, j->columns - column, width, false, w + b->channel * row + column, row, panel);
    else
      kern_tile_pack(b->k, j->columns - column, width, true, w + column * row + b->channel, row, panel);
  }
}

/* Rows [from, to) of the columns that the panel has. */
static void run_rows(const conv_job *j, const block *b, int64_t from, int64_t to, int64_t column, int width,
                     const float *panel) {
  const int tile_rows = j->tiles->rows;
  const float *rows[KERN_TILE_TAPS * KERN_TILE_ROWS];
  float *c[KERN_TILE_ROWS];
  const bool first = b->tap == 0 && b->channel == 0;
  kern_tile_call call = {.taps = b->taps, .k = b->k, .rows = rows, .b = panel, .c = c, .alpha = 1};
  call.add = j->add || !first;
  call.bias = j->bias != NULL && first ? j->bias + column : NULL;
  place p = place_of(j, from);
  for (int64_t i = from; i < to; i += tile_rows) {
    const int64_t count = kern_min(tile_rows, to - i);
    for (int r = 0; r < tile_rows; r++) {
      if (r < count) {
        find_row(j, &p, b->tap, b->taps, b->channel, tile_rows, rows + r);
        c[r] = target_of(j, &p) + column;
        next_place(j, &p);
      } else {
        for (int64_t t = 0; t < b->taps; t++) rows[t * tile_rows + r] = zeros;
      }
    }
    kern_tile_run(j->tiles, width, &call, count, j->columns - column);
  }
}

static void conv_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const conv_job *j = data;
  _Alignas(64) float panel[KERN_TILE_DEPTH * KERN_TILE_COLUMNS];
  const int64_t from = index / j->parts_across * j->part_rows, to = kern_min(j->rows, from + j->part_rows);
  const int64_t first = index % j->parts_across * j->part_columns, end = kern_min(j->columns, first + j->part_columns);
  const int64_t rows = kern_max(LEAST_ROWS, BLOCK_VALUES / j->channels / WHOLE_ROWS * WHOLE_ROWS);
  for (int64_t i = from; i < to; i += rows)
    for (int64_t column = first; column < end;) {
      const int width = kern_tile_width(j->tiles, j->columns - column), across = j->tiles->widths[width].columns;
      block b = {0};
      do {
        b = next_block(j, &b);
        pack_weights(j, &b, column, across, panel);
        run_rows(j, &b, i, kern_min(to, i + rows), column, width, panel);
      } while (b.tap + b.taps < j->y.taps * j->x.taps || b.channel + b.k < j->channels);
      column += across;
    }
}

static void run_conv(kern_context *context, conv_job *j) {
  j->tiles = kern_tiles_get();
  j->rows = j->size->batch * j->y.count * j->x.count;
  if (j->rows == 0) return;
  side rows = {j->rows, 2 * LEAST_ROWS, WHOLE_ROWS}, columns = {j->columns, KERN_TILE_COLUMNS, KERN_TILE_COLUMNS};
  cut(j->y.taps * j->x.taps * j->channels, &rows, &columns);
  j->part_rows = rows.part;
  j->part_columns = columns.part;
  j->parts_across = kern_ceil_div(j->columns, j->part_columns);
  kern_parallel(context, kern_ceil_div(j->rows, j->part_rows) * j->parts_across, conv_part, j);
}

void kern_conv2d_forward(kern_context *context, const kern_conv2d *s, const float *x, const float *w, const float *bias,
                         float *y) {
  conv_job j = {.size = s, .channels = s->in, .columns = s->out, .source = x, .w = w, .bias = bias, .target = y};
  j.target_height = kern_conv2d_out_height(s);
  j.target_width = kern_conv2d_out_width(s);
  j.y = forward_axis(s->height, j.target_height, s->kernel_height, s->stride_height, s->padding_height);
  j.x = forward_axis(s->width, j.target_width, s->kernel_width, s->stride_width, s->padding_width);
  run_conv(context, &j);
}

void kern_conv2d_input_gradient(kern_context *context, const kern_conv2d *s, const float *w, const float *dy, float *dx,
                                bool accumulate) {
  conv_job j = {.size = s, .backward = true, .channels = s->out, .columns = s->in, .source = dy, .w = w, .target = dx};
  j.target_height = s->height;
  j.target_width = s->width;
  j.add = accumulate;
  const int64_t height = kern_conv2d_out_height(s), width = kern_conv2d_out_width(s);
  bool seen = true; /* every input position by some output */
  for (int64_t y = 0; y < s->stride_height; y++)
    seen = seen && (y + s->padding_height) % s->stride_height < s->kernel_height;
  for (int64_t x = 0; x < s->stride_width; x++)
    seen = seen && (x + s->padding_width) % s->stride_width < s->kernel_width;
  if (!seen && !accumulate) kern_fill(context, s->batch * s->height * s->width * s->in, 0, dx);
  for (int64_t y = 0; y < s->stride_height; y++)
    for (int64_t x = 0; x < s->stride_width; x++) {
      j.y = backward_axis(s->height, height, s->kernel_height, s->stride_height, s->padding_height, y);
      j.x = backward_axis(s->width, width, s->kernel_width, s->stride_width, s->padding_width, x);
      if (j.y.taps > 0 && j.x.taps > 0) run_conv(context, &j);
    }
}

/* ---- the gradient of the weights ---- */

typedef struct weight_job {
  const kern_conv2d *size;
  const kern_tiles *tiles;
  int64_t out_height, out_width, positions;
  int64_t part_rows, part_columns, parts_across; /* rows: output channels; columns: of row_width */
  const float *x, *dy;
  float *dw;
} weight_job;

/* Columns [column, column + columns) of what the kernel sees at positions [first, first + count), packed. Columns of
 * one kernel position at a time. */
static void pack_columns(const weight_job *j, int64_t first, int64_t count, int64_t column, int64_t columns, int width,
                         float *panel) {
  const kern_conv2d *s = j->size;
  for (int64_t at = 0; at < columns;) {
    const int64_t tap = (column + at) / s->in, channel = (column + at) % s->in;
    const int64_t run = kern_min(columns - at, s->in - channel);
    const int64_t ky = tap / s->kernel_width - s->padding_height, kx = tap % s->kernel_width - s->padding_width;
    int64_t image = first / (j->out_height * j->out_width), y = first / j->out_width % j->out_height;
    int64_t x = first % j->out_width;
    float *to = panel + at;
    for (int64_t l = 0; l < count; l++, to += width) {
      const int64_t sy = y * s->stride_height + ky, sx = x * s->stride_width + kx;
      const bool inside = sy >= 0 && sy < s->height && sx >= 0 && sx < s->width;
      const float *from = inside ? j->x + ((image * s->height + sy) * s->width + sx) * s->in + channel : zeros;
      if (run == KERN_TILE_COLUMNS) /* a length that the compiler knows */
        memcpy(to, from, KERN_TILE_COLUMNS * sizeof *to);
      else
        memcpy(to, from, (size_t)run * sizeof *to);
      if (++x < j->out_width) continue;
      x = 0;
      if (++y < j->out_height) continue;
      y = 0;
      image++;
    }
    at += run;
  }
  for (int64_t l = 0; columns < width && l < count; l++)
    memset(panel + l * width + columns, 0, (size_t)(width - columns) * sizeof *panel);
}

/* dw's rows [from, to) and the panel's columns. */
static void add_weights(const weight_job *j, int64_t first, int64_t count, int64_t from, int64_t to, int64_t column,
                        int64_t columns, int width, const float *panel) {
  const kern_conv2d *s = j->size;
  const int tile_rows = j->tiles->rows;
  const int64_t row = row_width(s);
  float *c[KERN_TILE_ROWS];
  kern_tile_call call = {.taps = 1, .k = count, .stride = s->out, .b = panel, .c = c, .alpha = 1, .add = true};
  for (int64_t i = from; i < to; i += tile_rows) {
    const int64_t rows = kern_min(tile_rows, to - i);
    call.columns = j->dy + first * s->out + i;
    for (int r = 0; r < rows; r++) c[r] = j->dw + (i + r) * row + column;
    kern_tile_run(j->tiles, width, &call, rows, columns);
  }
}

static void weight_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const weight_job *j = data;
  _Alignas(64) float panel[KERN_TILE_DEPTH * KERN_TILE_COLUMNS];
  const int64_t from = index / j->parts_across * j->part_rows, to = kern_min(j->size->out, from + j->part_rows);
  const int64_t begin = index % j->parts_across * j->part_columns;
  const int64_t end = kern_min(row_width(j->size), begin + j->part_columns);
  for (int64_t first = 0; first < j->positions; first += KERN_TILE_DEPTH) {
    const int64_t count = kern_min(KERN_TILE_DEPTH, j->positions - first);
    for (int64_t column = begin; column < end;) {
      const int width = kern_tile_width(j->tiles, end - column), across = j->tiles->widths[width].columns;
      const int64_t columns = kern_min(across, end - column);
      pack_columns(j, first, count, column, columns, across, panel);
      add_weights(j, first, count, from, to, column, columns, width, panel);
      column += columns;
    }
  }
}

void kern_conv2d_weight_gradient(kern_context *context, const kern_conv2d *s, const float *x, const float *dy,
                                 float *dw, float *dbias) {
  weight_job j = {.size = s, .tiles = kern_tiles_get(), .positions = positions(s), .x = x, .dy = dy, .dw = dw};
  j.out_height = kern_conv2d_out_height(s);
  j.out_width = kern_conv2d_out_width(s);
  side rows = {s->out, WHOLE_ROWS, WHOLE_ROWS}, columns = {row_width(s), KERN_TILE_COLUMNS, KERN_TILE_COLUMNS};
  cut(j.positions, &columns, &rows);
  j.part_rows = rows.part;
  j.part_columns = columns.part;
  j.parts_across = kern_ceil_div(row_width(s), j.part_columns);
  if (dw != NULL) kern_parallel(context, kern_ceil_div(s->out, j.part_rows) * j.parts_across, weight_part, &j);
  if (dbias != NULL) kern_sum_rows(context, positions(s), s->out, s->out, dy, false, dbias);
}

void kern_conv2d_weight_from_file(kern_context *context, int64_t out, int64_t in, int64_t kernel_height,
                                  int64_t kernel_width, const float *file, float *memory) {
  kern_channels_last(context, out, in, kernel_height * kernel_width, file, memory);
}

void kern_conv2d_weight_to_file(kern_context *context, int64_t out, int64_t in, int64_t kernel_height,
                                int64_t kernel_width, const float *memory, float *file) {
  kern_channels_first(context, out, in, kernel_height * kernel_width, memory, file);
}
