/* One vector a sample over all positions: sums, scale and shift, gates. Their gradients are sums over positions: blocks
 * of positions are summed by themselves, then joined in order.
 */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

typedef struct broadcast_job broadcast_job;
struct broadcast_job {
  void (*loop)(int64_t n, const float *x, const float *a, const float *b, float *y);
  const kern_broadcast *size;
  int64_t vector_stride, rows, blocks; /* rows of a block, blocks of a sample */
  const float *x, *a, *b, *dy;
  float *y, *dx;
  bool of_a, of_b, accumulate;
  float *partial; /* [batch][blocks][2][channels] */
};

static broadcast_job job_of(const kern_broadcast *s) {
  broadcast_job j = {.size = s};
  j.vector_stride = s->vector_stride < 0 ? 0 : kern_stride(s->vector_stride, s->channels);
  j.blocks = kern_partials(s->positions, s->channels);
  j.rows = kern_ceil_div(s->positions, j.blocks);
  j.blocks = kern_ceil_div(s->positions, j.rows);
  return j;
}

size_t kern_broadcast_workspace(const kern_broadcast *s, int threads) {
  (void)threads;
  return kern_floats(s->batch * job_of(s).blocks * 2 * s->channels);
}

static void forward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const broadcast_job *j = data;
  const kern_broadcast *s = j->size;
  const int64_t n = s->channels, sample = index / j->blocks, first = index % j->blocks * j->rows;
  const int64_t rows = kern_min(j->rows, s->positions - first), at = (sample * s->positions + first) * n;
  const float *a = j->a + sample * j->vector_stride, *b = j->b == NULL ? NULL : j->b + sample * j->vector_stride;
  for (int64_t i = 0; i < rows; i++) j->loop(n, j->x + at + i * n, a, b, j->y + at + i * n);
}

static void run_forward(kern_context *context, broadcast_job *j) {
  kern_parallel(context, j->size->batch * j->blocks, forward_part, j);
}

KERN_CLONES static void add_loop(int64_t n, const float *x, const float *a, const float *b, float *y) {
  (void)b;
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] = x[i] + a[i];
}
KERN_CLONES static void modulate_loop(int64_t n, const float *x, const float *a, const float *b, float *y) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * (1.0f + a[i]) + b[i];
}
KERN_CLONES static void gate_loop(int64_t n, const float *x, const float *a, const float *b, float *y) {
  (void)b;
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * a[i];
}

/* The input's gradient, added or not: dy (1 + a), dy a */
KERN_CLONES static void scaled_row(int64_t n, float one, const float *a, const float *dy, int add, float *dx) {
  if (add) {
    KERN_INDEPENDENT
    for (int64_t i = 0; i < n; i++) dx[i] += dy[i] * (one + a[i]);
  } else {
    KERN_INDEPENDENT
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * (one + a[i]);
  }
}
KERN_CLONES static void product_row(int64_t n, const float *x, const float *dy, float *sum) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) sum[i] += x[i] * dy[i];
}
KERN_CLONES static void add_row(int64_t n, const float *x, float *sum) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

typedef struct backward_job {
  broadcast_job j;
  float one; /* the input's factor is one + a */
} backward_job;

static void backward_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const backward_job *whole = data;
  const broadcast_job *j = &whole->j;
  const kern_broadcast *s = j->size;
  const int64_t n = s->channels, sample = index / j->blocks, first = index % j->blocks * j->rows;
  const int64_t rows = kern_min(j->rows, s->positions - first), from = (sample * s->positions + first) * n;
  float *da = j->partial == NULL ? NULL : j->partial + index * 2 * n, *db = da == NULL ? NULL : da + n;
  if (da != NULL) memset(da, 0, (size_t)(2 * n) * sizeof *da);
  for (int64_t i = 0; i < rows; i++) {
    const float *dy = j->dy + from + i * n;
    if (j->of_a) product_row(n, j->x + from + i * n, dy, da);
    if (j->of_b) add_row(n, dy, db);
    if (j->dx != NULL)
      scaled_row(n, whole->one, j->a + sample * j->vector_stride, dy, j->accumulate, j->dx + from + i * n);
  }
}

static void join(const broadcast_job *j, int which, float *gradient) {
  const kern_broadcast *s = j->size;
  for (int64_t b = 0; b < s->batch; b++) {
    float *target = gradient + b * j->vector_stride;
    if (!j->accumulate && (b == 0 || j->vector_stride > 0)) memset(target, 0, (size_t)s->channels * sizeof *target);
    for (int64_t p = 0; p < j->blocks; p++)
      add_row(s->channels, j->partial + ((b * j->blocks + p) * 2 + which) * s->channels, target);
  }
}

/* da = sum of dy x, db = sum of dy */
static void run_backward(kern_context *context, broadcast_job *j, float one, float *da, float *db) {
  j->of_a = da != NULL;
  j->of_b = db != NULL;
  if (j->of_a || j->of_b)
    j->partial = kern_workspace(context, kern_broadcast_workspace(j->size, kern_context_threads(context)));
  const backward_job whole = {*j, one};
  kern_parallel(context, j->size->batch * j->blocks, backward_part, &whole);
  if (j->of_a) join(j, 0, da);
  if (j->of_b) join(j, 1, db);
}

void kern_add_vector_forward(kern_context *context, const kern_broadcast *size, const float *x, const float *vector,
                             float *y) {
  broadcast_job j = job_of(size);
  j.loop = add_loop;
  j.x = x;
  j.a = vector;
  j.y = y;
  run_forward(context, &j);
}

void kern_add_vector_backward(kern_context *context, const kern_broadcast *size, const float *dy, float *dvector,
                              bool accumulate) {
  broadcast_job j = job_of(size);
  j.dy = dy;
  j.accumulate = accumulate;
  run_backward(context, &j, 0, NULL, dvector);
}

void kern_modulate_forward(kern_context *context, const kern_broadcast *size, const float *x, const float *scale,
                           const float *shift, float *y) {
  broadcast_job j = job_of(size);
  j.loop = modulate_loop;
  j.x = x;
  j.a = scale;
  j.b = shift;
  j.y = y;
  run_forward(context, &j);
}

void kern_modulate_backward(kern_context *context, const kern_broadcast *size, const float *x, const float *scale,
                            const float *dy, float *dx, float *dscale, float *dshift, bool accumulate) {
  broadcast_job j = job_of(size);
  j.x = x;
  j.a = scale;
  j.dy = dy;
  j.dx = dx;
  j.accumulate = accumulate;
  run_backward(context, &j, 1, dscale, dshift);
}

void kern_gate_forward(kern_context *context, const kern_broadcast *size, const float *x, const float *gate, float *y) {
  broadcast_job j = job_of(size);
  j.loop = gate_loop;
  j.x = x;
  j.a = gate;
  j.y = y;
  run_forward(context, &j);
}

void kern_gate_backward(kern_context *context, const kern_broadcast *size, const float *x, const float *gate,
                        const float *dy, float *dx, float *dgate, bool accumulate) {
  broadcast_job j = job_of(size);
  j.x = x;
  j.a = gate;
  j.dy = dy;
  j.dx = dx;
  j.accumulate = accumulate;
  run_backward(context, &j, 0, dgate, NULL);
}
