/* Activations, plain and gated. */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

static const float root_2_over_pi = 0.797884561f, cubic = 0.044715f;

/* f(x) and its derivative in *slope */
KERN_INLINE float silu(float x, float *slope) {
  const float s = kern_sigmoid(x);
  *slope = s * (1.0f + x * (1.0f - s));
  return x * s;
}

KERN_INLINE float gelu(float x, float *slope) {
  float density;
  const float phi = kern_normal(x, &density);
  *slope = phi + x * density;
  return x * phi;
}

/* 0.5 (1 + tanh u) = sigmoid(2 u) */
KERN_INLINE float gelu_tanh(float x, float *slope) {
  const float s = kern_sigmoid(2.0f * root_2_over_pi * (x + cubic * x * x * x));
  *slope = s + x * s * (1.0f - s) * (2.0f * root_2_over_pi) * (1.0f + 3.0f * cubic * x * x);
  return x * s;
}

#define FORWARD(name, function)                                                 \
  KERN_CLONES static void name##_forward(int64_t n, const float *x, float *y) { \
    KERN_INDEPENDENT                                                            \
    for (int64_t i = 0; i < n; i++) {                                           \
      float slope;                                                              \
      y[i] = function(x[i], &slope);                                            \
    }                                                                           \
  }
#define BACKWARD(name, function)                                                                       \
  KERN_CLONES static void name##_backward(int64_t n, const float *x, const float *dy, float *dx) {     \
    KERN_INDEPENDENT                                                                                   \
    for (int64_t i = 0; i < n; i++) {                                                                  \
      float slope;                                                                                     \
      (void)function(x[i], &slope);                                                                    \
      dx[i] = dy[i] * slope;                                                                           \
    }                                                                                                  \
  }                                                                                                    \
  KERN_CLONES static void name##_backward_add(int64_t n, const float *x, const float *dy, float *dx) { \
    KERN_INDEPENDENT                                                                                   \
    for (int64_t i = 0; i < n; i++) {                                                                  \
      float slope;                                                                                     \
      (void)function(x[i], &slope);                                                                    \
      dx[i] += dy[i] * slope;                                                                          \
    }                                                                                                  \
  }
/* x: [first, gate]; y = first * f(gate) */
#define GATED(name, function)                                                                                     \
  KERN_CLONES static void name##_gated_forward(int64_t n, const float *x, float *y) {                             \
    KERN_INDEPENDENT                                                                                              \
    for (int64_t i = 0; i < n; i++) {                                                                             \
      float slope;                                                                                                \
      y[i] = x[i] * function(x[n + i], &slope);                                                                   \
    }                                                                                                             \
  }                                                                                                               \
  KERN_CLONES static void name##_gated_backward(int64_t n, const float *x, const float *dy, float *dx, int add) { \
    KERN_INDEPENDENT                                                                                              \
    for (int64_t i = 0; i < n; i++) {                                                                             \
      float slope;                                                                                                \
      const float value = function(x[n + i], &slope);                                                             \
      const float first = dy[i] * value, gate = dy[i] * x[i] * slope;                                             \
      dx[i] = add ? dx[i] + first : first;                                                                        \
      dx[n + i] = add ? dx[n + i] + gate : gate;                                                                  \
    }                                                                                                             \
  }

FORWARD(silu, silu)
BACKWARD(silu, silu)
GATED(silu, silu)
FORWARD(gelu, gelu)
BACKWARD(gelu, gelu)
GATED(gelu, gelu)
FORWARD(gelu_tanh, gelu_tanh)
BACKWARD(gelu_tanh, gelu_tanh)

typedef void (*forward_loop)(int64_t n, const float *x, float *y);
typedef void (*backward_loop)(int64_t n, const float *x, const float *dy, float *dx);
typedef void (*gated_backward_loop)(int64_t n, const float *x, const float *dy, float *dx, int add);

typedef struct activation_job {
  forward_loop forward;
  backward_loop backward;
  gated_backward_loop gated_backward;
  int64_t n, rows_a_part; /* values, or channels of rows */
  int64_t rows;
  const float *x, *dy;
  float *y, *dx;
  bool accumulate;
} activation_job;

static void forward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const activation_job *j = data;
  const int64_t at = index * KERN_PART_VALUES;
  j->forward(kern_min(KERN_PART_VALUES, j->n - at), j->x + at, j->y + at);
}

static void backward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const activation_job *j = data;
  const int64_t at = index * KERN_PART_VALUES;
  j->backward(kern_min(KERN_PART_VALUES, j->n - at), j->x + at, j->dy + at, j->dx + at);
}

void kern_activation_forward(kern_context *context, kern_activation kind, int64_t n, const float *x, float *y) {
  static const forward_loop loops[] = {
      [KERN_SILU] = silu_forward, [KERN_GELU] = gelu_forward, [KERN_GELU_TANH] = gelu_tanh_forward};
  const activation_job j = {.forward = loops[kind], .n = n, .x = x, .y = y};
  kern_parallel(context, kern_ceil_div(n, KERN_PART_VALUES), forward_part, &j);
}

void kern_activation_backward(kern_context *context, kern_activation kind, int64_t n, const float *x, const float *dy,
                              float *dx, bool accumulate) {
  static const backward_loop loops[][2] = {[KERN_SILU] = {silu_backward, silu_backward_add},
                                           [KERN_GELU] = {gelu_backward, gelu_backward_add},
                                           [KERN_GELU_TANH] = {gelu_tanh_backward, gelu_tanh_backward_add}};
  const activation_job j = {.backward = loops[kind][accumulate], .n = n, .x = x, .dy = dy, .dx = dx};
  kern_parallel(context, kern_ceil_div(n, KERN_PART_VALUES), backward_part, &j);
}

static void gated_forward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const activation_job *j = data;
  const int64_t from = index * j->rows_a_part, to = kern_min(j->rows, from + j->rows_a_part);
  for (int64_t i = from; i < to; i++) j->forward(j->n, j->x + 2 * j->n * i, j->y + j->n * i);
}

static void gated_backward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const activation_job *j = data;
  const int64_t from = index * j->rows_a_part, to = kern_min(j->rows, from + j->rows_a_part);
  for (int64_t i = from; i < to; i++)
    j->gated_backward(j->n, j->x + 2 * j->n * i, j->dy + j->n * i, j->dx + 2 * j->n * i, j->accumulate);
}

void kern_gated_forward(kern_context *context, kern_gated kind, int64_t rows, int64_t channels, const float *x,
                        float *y) {
  static const forward_loop loops[] = {[KERN_GEGLU] = gelu_gated_forward, [KERN_SWIGLU] = silu_gated_forward};
  activation_job j = {.forward = loops[kind], .n = channels, .rows = rows, .x = x, .y = y};
  j.rows_a_part = kern_part_rows(2 * channels);
  kern_parallel(context, kern_ceil_div(rows, j.rows_a_part), gated_forward_part, &j);
}

void kern_gated_backward(kern_context *context, kern_gated kind, int64_t rows, int64_t channels, const float *x,
                         const float *dy, float *dx, bool accumulate) {
  static const gated_backward_loop loops[] = {[KERN_GEGLU] = gelu_gated_backward, [KERN_SWIGLU] = silu_gated_backward};
  activation_job j = {.gated_backward = loops[kind], .n = channels, .rows = rows, .x = x, .dy = dy, .dx = dx};
  j.accumulate = accumulate;
  j.rows_a_part = kern_part_rows(2 * channels);
  kern_parallel(context, kern_ceil_div(rows, j.rows_a_part), gated_backward_part, &j);
}
