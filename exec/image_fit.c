#include <math.h>
#include <stdlib.h>

#include "exec/image.h"

exec_cover exec_cover_of(int64_t width, int64_t height, int64_t to_width, int64_t to_height) {
  /* the side that is short of the target sets the scale; the other is rounded, and never below the target */
  exec_cover cover = {.width = to_width, .height = to_height};
  if (width * to_height < height * to_width)
    cover.height = (2 * height * to_width + width) / (2 * width);
  else
    cover.width = (2 * width * to_height + height) / (2 * height);
  cover.crop_left = (cover.width - to_width) / 2;
  cover.crop_top = (cover.height - to_height) / 2;
  return cover;
}

/* The source pixels that a target pixel is made of, [first, first + count), and their weights. */
typedef struct tap {
  int64_t first, count;
  double *weights;
} tap;

typedef struct taps {
  tap *items; /* one a target pixel */
  double *weights;
} taps;

static void taps_free(taps *t) {
  free(t->items);
  free(t->weights);
}

/* Target pixel i of `count` is pixel crop + i of a line of `scaled` pixels, which `size` pixels are scaled to. */
static bool taps_make(int64_t size, int64_t scaled, int64_t crop, int64_t count, taps *out) {
  const double step = (double)size / (double)scaled, reach = step > 1 ? step : 1;
  const int64_t most = 2 * (int64_t)ceil(reach) + 1;
  *out = (taps){calloc((size_t)count, sizeof *out->items), calloc((size_t)(count * most), sizeof *out->weights)};
  if (!out->items || !out->weights) return false;
  for (int64_t i = 0; i < count; i++) {
    tap *t = &out->items[i];
    const double middle = ((double)(crop + i) + 0.5) * step;
    const double low = floor(middle - reach + 0.5), high = ceil(middle + reach - 0.5);
    t->first = low < 0 ? 0 : (int64_t)low;
    const int64_t end = high > (double)size ? size : (int64_t)high;
    t->weights = out->weights + i * most;
    double sum = 0;
    for (int64_t s = t->first; s < end; s++) {
      const double far = fabs(((double)s + 0.5 - middle) / reach);
      t->weights[t->count] = far < 1 ? 1 - far : 0;
      sum += t->weights[t->count++];
    }
    for (int64_t s = 0; s < t->count; s++) t->weights[s] /= sum;
  }
  return true;
}

/* The rows that the vertical taps need, scaled across: rows[row][to_width][3]. */
static void scale_across(const exec_image *image, const taps *across, int64_t first_row, int64_t rows, int64_t to_width,
                         float *out) {
  for (int64_t y = 0; y < rows; y++) {
    const unsigned char *row = image->rgb + 3 * image->width * (first_row + y);
    for (int64_t x = 0; x < to_width; x++) {
      const tap *t = &across->items[x];
      double sums[3] = {0};
      for (int64_t s = 0; s < t->count; s++)
        for (int c = 0; c < 3; c++) sums[c] += t->weights[s] * row[3 * (t->first + s) + c];
      for (int c = 0; c < 3; c++) out[3 * (y * to_width + x) + c] = (float)sums[c];
    }
  }
}

static void scale_down(const float *rows, const taps *down, int64_t first_row, int64_t to_width, int64_t to_height,
                       float *out) {
  for (int64_t y = 0; y < to_height; y++) {
    const tap *t = &down->items[y];
    for (int64_t x = 0; x < to_width; x++)
      for (int64_t c = 0; c < 3; c++) {
        double sum = 0;
        for (int64_t s = 0; s < t->count; s++)
          sum += t->weights[s] * (double)rows[3 * ((t->first - first_row + s) * to_width + x) + c];
        out[(c * to_height + y) * to_width + x] = (float)(sum / 255);
      }
  }
}

dp_status exec_image_fit(const exec_image *image, int64_t to_width, int64_t to_height, float *out, dp_error *error) {
  const exec_cover cover = exec_cover_of(image->width, image->height, to_width, to_height);
  taps across = {0}, down = {0};
  float *rows = NULL;
  if (taps_make(image->width, cover.width, cover.crop_left, to_width, &across) &&
      taps_make(image->height, cover.height, cover.crop_top, to_height, &down)) {
    const tap *last = &down.items[to_height - 1];
    const int64_t first = down.items[0].first, count = last->first + last->count - first;
    rows = malloc((size_t)(3 * count * to_width) * sizeof *rows);
    if (rows) {
      scale_across(image, &across, first, count, to_width, rows);
      scale_down(rows, &down, first, to_width, to_height, out);
    }
  }
  taps_free(&across);
  taps_free(&down);
  const bool done = rows != NULL;
  free(rows);
  return done ? DP_OK : dp_fail_memory(error);
}
