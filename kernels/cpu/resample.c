/* Nearest-neighbour enlargement and mean pooling by a whole factor: small pixel (y, x) stands for the large pixels
 * (y factor + dy, x factor + dx). Each of the four ops either spreads a small row or gathers one.
 */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

typedef struct resample_job {
  int64_t small_height, small_width, channels, factor;
  float weight;
  const float *from;
  float *to;
  bool accumulate;
} resample_job;

KERN_CLONES static void weighted_row(int64_t n, float weight, const float *x, int add, float *y) {
  if (add) {
    KERN_INDEPENDENT
    for (int64_t i = 0; i < n; i++) y[i] += weight * x[i];
  } else {
    KERN_INDEPENDENT
    for (int64_t i = 0; i < n; i++) y[i] = weight * x[i];
  }
}

/* One row of small pixels to its rows of large ones. */
static void spread_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const resample_job *j = data;
  const int64_t n = j->channels, large_width = j->small_width * j->factor;
  const float *from = j->from + index * j->small_width * n;
  for (int64_t y = 0; y < j->factor; y++) {
    float *to = j->to + (index * j->factor + y) * large_width * n;
    for (int64_t x = 0; x < large_width; x++)
      weighted_row(n, j->weight, from + x / j->factor * n, j->accumulate, to + x * n);
  }
}

static void gather_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const resample_job *j = data;
  const int64_t n = j->channels, large_width = j->small_width * j->factor;
  float *to = j->to + index * j->small_width * n;
  for (int64_t y = 0; y < j->factor; y++) {
    const float *from = j->from + (index * j->factor + y) * large_width * n;
    for (int64_t x = 0; x < large_width; x++)
      weighted_row(n, j->weight, from + x * n, j->accumulate || y > 0 || x % j->factor > 0, to + x / j->factor * n);
  }
}

static resample_job job_of(const kern_resample *s, bool x_is_small, bool mean, const float *from, float *to,
                           bool accumulate) {
  return (resample_job){.small_height = x_is_small ? s->height : s->height / s->factor,
                        .small_width = x_is_small ? s->width : s->width / s->factor,
                        .channels = s->channels,
                        .factor = s->factor,
                        .weight = mean ? 1.0f / (float)(s->factor * s->factor) : 1,
                        .from = from,
                        .to = to,
                        .accumulate = accumulate};
}

void kern_upsample_forward(kern_context *context, const kern_resample *s, const float *x, float *y) {
  const resample_job j = job_of(s, true, false, x, y, false);
  kern_parallel(context, s->batch * j.small_height, spread_part, &j);
}

void kern_upsample_backward(kern_context *context, const kern_resample *s, const float *dy, float *dx,
                            bool accumulate) {
  const resample_job j = job_of(s, true, false, dy, dx, accumulate);
  kern_parallel(context, s->batch * j.small_height, gather_part, &j);
}

void kern_downsample_forward(kern_context *context, const kern_resample *s, const float *x, float *y) {
  const resample_job j = job_of(s, false, true, x, y, false);
  kern_parallel(context, s->batch * j.small_height, gather_part, &j);
}

void kern_downsample_backward(kern_context *context, const kern_resample *s, const float *dy, float *dx,
                              bool accumulate) {
  const resample_job j = job_of(s, false, true, dy, dx, accumulate);
  kern_parallel(context, s->batch * j.small_height, spread_part, &j);
}
