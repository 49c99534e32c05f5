/* Layer norm and RMS norm: a row is in the cache while its statistics and then its values are computed.
 *
 * With xh = (x - mean) rstd (RMS: mean 0) and g = dy gain: dx = rstd (g - mean(g) - xh mean(g xh)), without mean(g) for
 * RMS; dgain = sum of dy xh, doffset = sum of dy over rows.
 */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

typedef struct norm_job {
  const kern_row_norm *size;
  bool rms, again;
  const float *x, *gain, *offset, *dy, *statistics_in;
  float *y, *statistics, *dx;
  bool accumulate;
  int64_t rows_a_part;
  float *partial; /* [partials][2][channels]: of dgain, of doffset */
  int64_t partials;
} norm_job;

KERN_CLONES static float sum_of(int64_t n, const float *x) {
  float lanes[KERN_LANES] = {0};
  int64_t i = 0;
  for (; i + KERN_LANES <= n; i += KERN_LANES)
    for (int l = 0; l < KERN_LANES; l++) lanes[l] += x[i + l];
  float sum = kern_lanes_sum(lanes);
  for (; i < n; i++) sum += x[i];
  return sum;
}

KERN_CLONES static float squares_of(int64_t n, float mean, const float *x) {
  float lanes[KERN_LANES] = {0};
  int64_t i = 0;
  for (; i + KERN_LANES <= n; i += KERN_LANES)
    for (int l = 0; l < KERN_LANES; l++) lanes[l] += (x[i + l] - mean) * (x[i + l] - mean);
  float sum = kern_lanes_sum(lanes);
  for (; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

KERN_CLONES static void normalise(int64_t n, float mean, float rstd, const float *gain, const float *offset,
                                  const float *x, float *y) {
  if (gain == NULL) {
    KERN_INDEPENDENT
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd;
  } else {
    KERN_INDEPENDENT
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * gain[i];
  }
  if (offset == NULL) return;
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] += offset[i];
}

static void forward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const norm_job *j = data;
  const int64_t n = j->size->channels;
  const int64_t from = index * j->rows_a_part, to = kern_min(j->size->rows, from + j->rows_a_part);
  for (int64_t i = from; i < to; i++) {
    const float *x = j->x + i * n;
    float mean = 0, rstd;
    if (j->again) {
      mean = j->rms ? 0 : j->statistics_in[2 * i];
      rstd = j->rms ? j->statistics_in[i] : j->statistics_in[2 * i + 1];
    } else {
      if (!j->rms) mean = sum_of(n, x) / (float)n;
      rstd = 1 / sqrtf(squares_of(n, mean, x) / (float)n + j->size->epsilon);
      if (j->rms) {
        j->statistics[i] = rstd;
      } else {
        j->statistics[2 * i] = mean;
        j->statistics[2 * i + 1] = rstd;
      }
    }
    normalise(n, mean, rstd, j->gain, j->offset, x, j->y + i * n);
  }
}

static void run_forward(kern_context *context, norm_job *j) {
  j->rows_a_part = kern_part_rows(j->size->channels);
  kern_parallel(context, kern_ceil_div(j->size->rows, j->rows_a_part), forward_part, j);
}

/* *g_sum = sum of dy gain, *gx_sum = sum of dy gain xh */
KERN_CLONES static void backward_sums(int64_t n, float mean, float rstd, const float *gain, const float *x,
                                      const float *dy, float *g_sum, float *gx_sum) {
  float g_lanes[KERN_LANES] = {0}, gx_lanes[KERN_LANES] = {0};
  int64_t i = 0;
  for (; i + KERN_LANES <= n; i += KERN_LANES)
    for (int l = 0; l < KERN_LANES; l++) {
      const float g = gain == NULL ? dy[i + l] : dy[i + l] * gain[i + l];
      g_lanes[l] += g;
      gx_lanes[l] += g * ((x[i + l] - mean) * rstd);
    }
  *g_sum = kern_lanes_sum(g_lanes);
  *gx_sum = kern_lanes_sum(gx_lanes);
  for (; i < n; i++) {
    const float g = gain == NULL ? dy[i] : dy[i] * gain[i];
    *g_sum += g;
    *gx_sum += g * ((x[i] - mean) * rstd);
  }
}

KERN_CLONES static void backward_row(int64_t n, float mean, float rstd, float g_mean, float gx_mean, const float *gain,
                                     const float *x, const float *dy, float keep, float *dx) {
  if (gain == NULL) {
    KERN_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
      const float value = rstd * (dy[i] - g_mean - (x[i] - mean) * rstd * gx_mean);
      dx[i] = keep != 0 ? dx[i] + value : value;
    }
  } else {
    KERN_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
      const float value = rstd * (dy[i] * gain[i] - g_mean - (x[i] - mean) * rstd * gx_mean);
      dx[i] = keep != 0 ? dx[i] + value : value;
    }
  }
}

KERN_CLONES static void add_weights_row(int64_t n, float mean, float rstd, const float *x, const float *dy,
                                        float *dgain, float *doffset) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) {
    dgain[i] += dy[i] * ((x[i] - mean) * rstd);
    doffset[i] += dy[i];
  }
}

KERN_CLONES static void add_to(int64_t n, const float *x, float *y) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

static void backward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const norm_job *j = data;
  const int64_t n = j->size->channels;
  const int64_t from = index * j->rows_a_part, to = kern_min(j->size->rows, from + j->rows_a_part);
  float *dgain = j->partial == NULL ? NULL : j->partial + 2 * n * index;
  if (dgain != NULL) memset(dgain, 0, (size_t)(2 * n) * sizeof *dgain);
  for (int64_t i = from; i < to; i++) {
    const float *x = j->x + i * n, *dy = j->dy + i * n;
    const float mean = j->rms ? 0 : j->statistics_in[2 * i];
    const float rstd = j->rms ? j->statistics_in[i] : j->statistics_in[2 * i + 1];
    if (dgain != NULL) add_weights_row(n, mean, rstd, x, dy, dgain, dgain + n); /* before dx may overwrite dy */
    if (j->dx == NULL) continue;
    float g_sum, gx_sum;
    backward_sums(n, mean, rstd, j->gain, x, dy, &g_sum, &gx_sum);
    backward_row(n, mean, rstd, j->rms ? 0 : g_sum / (float)n, gx_sum / (float)n, j->gain, x, dy, j->accumulate ? 1 : 0,
                 j->dx + i * n);
  }
}

size_t kern_row_norm_workspace(const kern_row_norm *s, int threads) {
  (void)threads;
  return kern_floats(kern_partials(s->rows, s->channels) * 2 * s->channels);
}

static void run_backward(kern_context *context, norm_job *j, float *dgain, float *doffset) {
  const int64_t n = j->size->channels;
  if (dgain != NULL || doffset != NULL) {
    j->partials = kern_partials(j->size->rows, n);
    j->partial = kern_workspace(context, kern_row_norm_workspace(j->size, kern_context_threads(context)));
    j->rows_a_part = kern_ceil_div(j->size->rows, j->partials);
  } else {
    j->rows_a_part = kern_part_rows(n);
  }
  kern_parallel(context, kern_ceil_div(j->size->rows, j->rows_a_part), backward_part, j);
  for (int64_t p = 0; p < j->partials; p++) {
    const float *part = j->partial + 2 * n * p;
    if (dgain != NULL) add_to(n, part, dgain);
    if (doffset != NULL) add_to(n, part + n, doffset);
  }
}

void kern_layer_norm_forward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                             const float *offset, float *y, float *statistics) {
  norm_job j = {.size = size, .x = x, .gain = gain, .offset = offset, .y = y, .statistics = statistics};
  run_forward(context, &j);
}

void kern_layer_norm_again(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                           const float *offset, const float *statistics, float *y) {
  norm_job j = {.size = size, .again = true, .x = x, .gain = gain, .offset = offset, .y = y};
  j.statistics_in = statistics;
  run_forward(context, &j);
}

void kern_layer_norm_backward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                              const float *statistics, const float *dy, float *dx, bool accumulate, float *dgain,
                              float *doffset) {
  norm_job j = {.size = size, .x = x, .gain = gain, .dy = dy, .statistics_in = statistics};
  j.dx = dx;
  j.accumulate = accumulate;
  run_backward(context, &j, dgain, doffset);
}

void kern_rms_norm_forward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                           float *y, float *statistics) {
  norm_job j = {.size = size, .rms = true, .x = x, .gain = gain, .y = y, .statistics = statistics};
  run_forward(context, &j);
}

void kern_rms_norm_again(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                         const float *statistics, float *y) {
  norm_job j = {.size = size, .rms = true, .again = true, .x = x, .gain = gain, .y = y, .statistics_in = statistics};
  run_forward(context, &j);
}

void kern_rms_norm_backward(kern_context *context, const kern_row_norm *size, const float *x, const float *gain,
                            const float *statistics, const float *dy, float *dx, bool accumulate, float *dgain) {
  norm_job j = {.size = size, .rms = true, .x = x, .gain = gain, .dy = dy, .statistics_in = statistics};
  j.dx = dx;
  j.accumulate = accumulate;
  run_backward(context, &j, dgain, NULL);
}
