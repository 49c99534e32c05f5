/* Flat arrays: sums, copies, and the optimiser. */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

typedef struct flat_job flat_job;
struct flat_job {
  void (*loop)(const flat_job *job, int64_t from, int64_t n);
  int64_t n;
  float factor;
  const float *x, *y;
  float *out;
  double *partial;
  /* AdamW */
  float *first, *second;
  float decay, one_minus_beta1, beta2, one_minus_beta2, gradient_scale, step_size, root_correction, epsilon;
};

static void flat_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const flat_job *j = data;
  const int64_t from = index * KERN_PART_VALUES;
  j->loop(j, from, kern_min(KERN_PART_VALUES, j->n - from));
}

static void run(kern_context *context, const flat_job *j) {
  kern_parallel(context, kern_ceil_div(j->n, KERN_PART_VALUES), flat_part, j);
}

KERN_CLONES static void add_loop(const flat_job *j, int64_t from, int64_t n) {
  const float *x = j->x + from, *y = j->y + from;
  float *out = j->out + from;
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}

void kern_add(kern_context *context, int64_t n, const float *x, const float *y, float *z) {
  run(context, &(flat_job){.loop = add_loop, .n = n, .x = x, .y = y, .out = z});
}

KERN_CLONES static void fill_loop(const flat_job *j, int64_t from, int64_t n) {
  float *out = j->out + from;
  const float value = j->factor;
  for (int64_t i = 0; i < n; i++) out[i] = value;
}

void kern_fill(kern_context *context, int64_t n, float value, float *x) {
  run(context, &(flat_job){.loop = fill_loop, .n = n, .factor = value, .out = x});
}

static void copy_loop(const flat_job *j, int64_t from, int64_t n) {
  memcpy(j->out + from, j->x + from, (size_t)n * sizeof(float));
}

void kern_copy(kern_context *context, int64_t n, const float *x, float *y) {
  run(context, &(flat_job){.loop = copy_loop, .n = n, .x = x, .out = y});
}

KERN_CLONES static void scale_loop(const flat_job *j, int64_t from, int64_t n) {
  const float *x = j->x + from, factor = j->factor;
  float *out = j->out + from;
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) out[i] = factor * x[i];
}

void kern_scale(kern_context *context, int64_t n, float factor, const float *x, float *y) {
  run(context, &(flat_job){.loop = scale_loop, .n = n, .factor = factor, .x = x, .out = y});
}

KERN_CLONES static void axpy_loop(const flat_job *j, int64_t from, int64_t n) {
  const float *x = j->x + from, factor = j->factor;
  float *out = j->out + from;
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) out[i] += factor * x[i];
}

void kern_axpy(kern_context *context, int64_t n, float factor, const float *x, float *y) {
  run(context, &(flat_job){.loop = axpy_loop, .n = n, .factor = factor, .x = x, .out = y});
}

KERN_CLONES static void ema_loop(const flat_job *j, int64_t from, int64_t n) {
  const float *x = j->x + from, factor = j->factor;
  float *out = j->out + from;
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) out[i] += factor * (x[i] - out[i]);
}

void kern_ema(kern_context *context, int64_t n, float decay, const float *x, float *mean) {
  run(context, &(flat_job){.loop = ema_loop, .n = n, .factor = (float)(1 - (double)decay), .x = x, .out = mean});
}

/* Short runs of squares in fp32, their sums in fp64. */
KERN_CLONES static void squares_loop(const flat_job *j, int64_t from, int64_t n) {
  enum { RUN = 16 * KERN_LANES };
  const float *x = j->x + from;
  double sum = 0;
  for (int64_t at = 0; at < n; at += RUN) {
    const int64_t length = kern_min(RUN, n - at);
    float lanes[KERN_LANES] = {0};
    int64_t i = 0;
    for (; i + KERN_LANES <= length; i += KERN_LANES)
      for (int l = 0; l < KERN_LANES; l++) lanes[l] += x[at + i + l] * x[at + i + l];
    for (int l = 0; i < length; i++, l++) lanes[l] += x[at + i] * x[at + i];
    sum += (double)kern_lanes_sum(lanes);
  }
  j->partial[from / KERN_PART_VALUES] = sum;
}

size_t kern_sum_squares_workspace(int64_t n, int threads) {
  (void)threads;
  return (size_t)kern_ceil_div(n, KERN_PART_VALUES) * sizeof(double);
}

double kern_sum_squares(kern_context *context, int64_t n, const float *x) {
  flat_job j = {.loop = squares_loop, .n = n, .x = x};
  j.partial = kern_workspace(context, kern_sum_squares_workspace(n, kern_context_threads(context)));
  run(context, &j);
  double sum = 0;
  for (int64_t p = 0; p < kern_ceil_div(n, KERN_PART_VALUES); p++) sum += j.partial[p];
  return sum;
}

KERN_CLONES static void adamw_loop(const flat_job *j, int64_t from, int64_t n) {
  const float *gradient = j->x + from;
  float *p = j->out + from, *m = j->first + from, *v = j->second + from;
  const float decay = j->decay, one_minus_beta1 = j->one_minus_beta1, beta2 = j->beta2;
  const float one_minus_beta2 = j->one_minus_beta2, gradient_scale = j->gradient_scale, step_size = j->step_size;
  const float root_correction = j->root_correction, epsilon = j->epsilon;
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) {
    const float g = gradient[i] * gradient_scale;
    m[i] += one_minus_beta1 * (g - m[i]);
    v[i] = beta2 * v[i] + one_minus_beta2 * g * g;
    p[i] = p[i] * decay - step_size * m[i] / (sqrtf(v[i]) / root_correction + epsilon);
  }
}

void kern_adamw_step(kern_context *context, const kern_adamw *s, int64_t n, float *parameters, const float *gradients,
                     float *first, float *second) {
  const double step = (double)s->step;
  const flat_job j = {.loop = adamw_loop,
                      .n = n,
                      .x = gradients,
                      .out = parameters,
                      .first = first,
                      .second = second,
                      .decay = (float)(1 - s->lr * s->weight_decay),
                      .one_minus_beta1 = (float)(1 - s->beta1),
                      .beta2 = (float)s->beta2,
                      .one_minus_beta2 = (float)(1 - s->beta2),
                      .gradient_scale = (float)s->gradient_scale,
                      .step_size = (float)(s->lr / (1 - pow(s->beta1, step))),
                      .root_correction = (float)sqrt(1 - pow(s->beta2, step)),
                      .epsilon = (float)s->epsilon};
  run(context, &j);
}
