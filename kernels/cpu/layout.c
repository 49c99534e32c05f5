/* Ops that move values: concatenation, splitting, channels first and last, patches. */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

KERN_CLONES static void add_to(int64_t n, const float *x, float *y) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

static void move(int64_t n, const float *x, bool accumulate, float *y) {
  if (accumulate)
    add_to(n, x, y);
  else
    memcpy(y, x, (size_t)n * sizeof *y);
}

/* Rows are cut too where they are long: over tokens there are few. */
typedef struct rows_job {
  int64_t rows, width, from_stride, to_stride;
  int64_t rows_a_part, width_a_part, parts_a_row;
  const float *from;
  float *to;
  bool accumulate;
} rows_job;

static void rows_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const rows_job *j = data;
  const int64_t first = index / j->parts_a_row * j->rows_a_part, last = kern_min(j->rows, first + j->rows_a_part);
  const int64_t at = index % j->parts_a_row * j->width_a_part, width = kern_min(j->width_a_part, j->width - at);
  for (int64_t i = first; i < last; i++)
    move(width, j->from + i * j->from_stride + at, j->accumulate, j->to + i * j->to_stride + at);
}

static void move_rows(kern_context *context, int64_t rows, int64_t width, const float *from, int64_t from_stride,
                      float *to, int64_t to_stride, bool accumulate) {
  rows_job j = {.rows = rows, .width = width, .from_stride = from_stride, .to_stride = to_stride};
  j.from = from;
  j.to = to;
  j.accumulate = accumulate;
  j.width_a_part = kern_min(width, KERN_PART_VALUES);
  j.parts_a_row = kern_ceil_div(width, j.width_a_part);
  j.rows_a_part = kern_part_rows(j.width_a_part);
  kern_parallel(context, kern_ceil_div(rows, j.rows_a_part) * j.parts_a_row, rows_part, &j);
}

static int64_t sum_of(int pieces, const int64_t *widths) {
  int64_t sum = 0;
  for (int i = 0; i < pieces; i++) sum += widths[i];
  return sum;
}

void kern_concat(kern_context *context, int64_t outer, int pieces, const int64_t *widths, const float *const *piece,
                 float *whole, bool accumulate) {
  const int64_t stride = sum_of(pieces, widths);
  for (int i = 0; i < pieces; whole += widths[i++])
    if (piece[i] != NULL) move_rows(context, outer, widths[i], piece[i], widths[i], whole, stride, accumulate);
}

void kern_split(kern_context *context, int64_t outer, int pieces, const int64_t *widths, const float *whole,
                float *const *piece, bool accumulate) {
  const int64_t stride = sum_of(pieces, widths);
  for (int i = 0; i < pieces; whole += widths[i++])
    if (piece[i] != NULL) move_rows(context, outer, widths[i], whole, stride, piece[i], widths[i], accumulate);
}

/* y[batch, columns, rows] = x[batch, rows, columns], in square blocks. */
typedef struct transpose_job {
  int64_t rows, columns, blocks; /* blocks of rows in a sample */
  const float *x;
  float *y;
} transpose_job;

enum { BLOCK = 32 };

static void transpose_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const transpose_job *j = data;
  const int64_t sample = index / j->blocks, first = index % j->blocks * BLOCK;
  const int64_t last = kern_min(j->rows, first + BLOCK);
  const float *x = j->x + sample * j->rows * j->columns;
  float *y = j->y + sample * j->rows * j->columns;
  for (int64_t c0 = 0; c0 < j->columns; c0 += BLOCK)
    for (int64_t c = c0; c < kern_min(j->columns, c0 + BLOCK); c++)
      for (int64_t r = first; r < last; r++) y[c * j->rows + r] = x[r * j->columns + c];
}

static void transpose(kern_context *context, int64_t batch, int64_t rows, int64_t columns, const float *x, float *y) {
  const transpose_job j = {.rows = rows, .columns = columns, .blocks = kern_ceil_div(rows, BLOCK), .x = x, .y = y};
  kern_parallel(context, batch * j.blocks, transpose_part, &j);
}

void kern_channels_last(kern_context *context, int64_t batch, int64_t channels, int64_t positions, const float *x,
                        float *y) {
  transpose(context, batch, channels, positions, x, y);
}

void kern_channels_first(kern_context *context, int64_t batch, int64_t channels, int64_t positions, const float *x,
                         float *y) {
  transpose(context, batch, positions, channels, x, y);
}

typedef struct patches_job {
  const kern_patches *size;
  const float *from;
  float *to;
  bool pack, accumulate;
} patches_job;

/* One row of patches. */
static void patches_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const patches_job *j = data;
  const kern_patches *s = j->size;
  const int64_t p = s->patch, across = s->width / p, down = s->height / p, n = s->channels;
  const int64_t image = index / down, row = index % down;
  for (int64_t column = 0; column < across; column++)
    for (int64_t y = 0; y < p; y++) {
      const int64_t token = (index * across + column) * n * p * p;
      const int64_t pixel = ((image * s->height + row * p + y) * s->width + column * p) * n;
      if (!s->channel_first) { /* p pixels of n channels lie together in both */
        const int64_t at = token + y * p * n;
        move(p * n, j->from + (j->pack ? pixel : at), j->accumulate, j->to + (j->pack ? at : pixel));
        continue;
      }
      for (int64_t c = 0; c < n; c++)
        for (int64_t x = 0; x < p; x++) {
          const int64_t at = token + (c * p + y) * p + x, of_image = pixel + x * n + c;
          const float value = j->from[j->pack ? of_image : at];
          float *to = &j->to[j->pack ? at : of_image];
          *to = j->accumulate ? *to + value : value;
        }
    }
}

void kern_patchify(kern_context *context, const kern_patches *size, const float *x, float *tokens, bool accumulate) {
  const patches_job j = {.size = size, .from = x, .to = tokens, .pack = true, .accumulate = accumulate};
  kern_parallel(context, size->batch * (size->height / size->patch), patches_part, &j);
}

void kern_unpatchify(kern_context *context, const kern_patches *size, const float *tokens, float *x, bool accumulate) {
  const patches_job j = {.size = size, .from = tokens, .to = x, .accumulate = accumulate};
  kern_parallel(context, size->batch * (size->height / size->patch), patches_part, &j);
}
