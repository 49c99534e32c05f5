/* Squared error. Parts of a sample are summed by themselves, in fp64 over short fp32 runs, then joined in order. */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

typedef struct loss_job {
  const kern_loss *size;
  int64_t parts; /* of a sample */
  const float *prediction, *target, *weights;
  float *gradient;
  double *partial;
} loss_job;

KERN_CLONES static double squares(int64_t n, const float *x, const float *y) {
  enum { RUN = 16 * KERN_LANES };
  double sum = 0;
  for (int64_t at = 0; at < n; at += RUN) {
    const int64_t length = kern_min(RUN, n - at);
    float lanes[KERN_LANES] = {0};
    int64_t i = 0;
    for (; i + KERN_LANES <= length; i += KERN_LANES)
      for (int l = 0; l < KERN_LANES; l++) {
        const float d = x[at + i + l] - y[at + i + l];
        lanes[l] += d * d;
      }
    for (int l = 0; i < length; i++, l++) {
      const float d = x[at + i] - y[at + i];
      lanes[l] += d * d;
    }
    sum += (double)kern_lanes_sum(lanes);
  }
  return sum;
}

static void forward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const loss_job *j = data;
  const int64_t n = j->size->n, first = index % j->parts * KERN_PART_VALUES, at = index / j->parts * n + first;
  j->partial[index] = squares(kern_min(KERN_PART_VALUES, n - first), j->prediction + at, j->target + at);
}

KERN_CLONES static void differences(int64_t n, float factor, const float *x, const float *y, float *out) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) out[i] = factor * (x[i] - y[i]);
}

static void backward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const loss_job *j = data;
  const int64_t n = j->size->n, sample = index / j->parts, first = index % j->parts * KERN_PART_VALUES;
  const double weight = j->weights == NULL ? 1 : j->weights[sample];
  const int64_t at = sample * n + first;
  differences(kern_min(KERN_PART_VALUES, n - first), (float)(2 * j->size->factor * weight / (double)n),
              j->prediction + at, j->target + at, j->gradient + at);
}

size_t kern_loss_workspace(const kern_loss *s, int threads) {
  (void)threads;
  return (size_t)(s->batch * kern_ceil_div(s->n, KERN_PART_VALUES)) * sizeof(double);
}

double kern_loss_forward(kern_context *context, const kern_loss *s, const float *prediction, const float *target,
                         const float *weights, double *sample_squares) {
  loss_job j = {.size = s, .parts = kern_ceil_div(s->n, KERN_PART_VALUES), .prediction = prediction, .target = target};
  j.partial = kern_workspace(context, kern_loss_workspace(s, kern_context_threads(context)));
  kern_parallel(context, s->batch * j.parts, forward_part, &j);
  double loss = 0;
  for (int64_t b = 0; b < s->batch; b++) {
    double sum = 0;
    for (int64_t p = 0; p < j.parts; p++) sum += j.partial[b * j.parts + p];
    sample_squares[b] = sum / (double)s->n;
    loss += (weights == NULL ? 1 : (double)weights[b]) * sample_squares[b];
  }
  return s->factor * loss;
}

void kern_loss_backward(kern_context *context, const kern_loss *s, const float *prediction, const float *target,
                        const float *weights, float *dprediction) {
  const loss_job j = {.size = s,
                      .parts = kern_ceil_div(s->n, KERN_PART_VALUES),
                      .prediction = prediction,
                      .target = target,
                      .weights = weights,
                      .gradient = dprediction};
  kern_parallel(context, s->batch * j.parts, backward_part, &j);
}
