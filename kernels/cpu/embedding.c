/* Embeddings of time, of ids, and of positions. */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

void kern_time_embedding_forward(kern_context *context, const kern_time_embedding *s, const float *t, float *y) {
  (void)context;
  const int64_t half = s->channels / 2;
  for (int64_t i = 0; i < half; i++) {
    /* fp32 at each step, as PyTorch computes it: large angles are sensitive to the last bit of the frequency */
    const float exponent = (float)(-log(s->max_period)) * (float)i / (float)((double)half - s->freq_shift);
    const float frequency = expf(exponent);
    for (int64_t n = 0; n < s->n; n++) {
      const float angle = (float)s->scale * (t[n] * frequency);
      float *row = y + n * s->channels;
      row[s->flip_sin_to_cos ? half + i : i] = sinf(angle);
      row[s->flip_sin_to_cos ? i : half + i] = cosf(angle);
    }
  }
  for (int64_t n = 0; n < s->n && s->channels % 2 != 0; n++) y[n * s->channels + s->channels - 1] = 0;
}

typedef struct look_up_job {
  int64_t n, channels, width; /* of a part */
  const int32_t *ids;
  const float *from;
  float *to;
} look_up_job;

static void look_up_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const look_up_job *j = data;
  const int64_t from = index * j->width, to = kern_min(j->n, from + j->width);
  for (int64_t i = from; i < to; i++)
    memcpy(j->to + i * j->channels, j->from + j->ids[i] * j->channels, (size_t)j->channels * sizeof(float));
}

void kern_embedding_forward(kern_context *context, int64_t n, int64_t channels, const int32_t *ids, const float *table,
                            float *y) {
  const look_up_job j = {n, channels, kern_part_rows(channels), ids, table, y};
  kern_parallel(context, kern_ceil_div(n, j.width), look_up_part, &j);
}

KERN_CLONES static void add_to(int64_t n, const float *x, float *y) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

/* An id may stand at several places: a part has some channels of all of them. */
static void look_up_gradient_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const look_up_job *j = data;
  const int64_t from = index * j->width, width = kern_min(j->width, j->channels - from);
  for (int64_t i = 0; i < j->n; i++)
    add_to(width, j->from + i * j->channels + from, j->to + j->ids[i] * j->channels + from);
}

void kern_embedding_weight_gradient(kern_context *context, int64_t n, int64_t channels, const int32_t *ids,
                                    const float *dy, float *dtable) {
  const look_up_job j = {n, channels, 128, ids, dy, dtable};
  kern_parallel(context, kern_ceil_div(channels, j.width), look_up_gradient_part, &j);
}

typedef struct rotary_job {
  const kern_rotary *size;
  int64_t tokens_a_part;
  bool back, accumulate;
  const float *from, *cosines, *sines;
  float *to;
} rotary_job;

KERN_CLONES static void turn(int64_t n, const float *cosines, const float *sines, const float *x, float *y) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i += 2) {
    const float first = x[i], second = x[i + 1];
    y[i] = first * cosines[i] - second * sines[i];
    y[i + 1] = second * cosines[i + 1] + first * sines[i + 1];
  }
}

/* The transpose of turn. */
KERN_CLONES static void turn_back(int64_t n, const float *cosines, const float *sines, const float *dy, int add,
                                  float *dx) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i += 2) {
    const float first = dy[i] * cosines[i] + dy[i + 1] * sines[i + 1];
    const float second = dy[i + 1] * cosines[i + 1] - dy[i] * sines[i];
    dx[i] = add ? dx[i] + first : first;
    dx[i + 1] = add ? dx[i + 1] + second : second;
  }
}

static void rotary_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const rotary_job *j = data;
  const kern_rotary *s = j->size;
  const int64_t all = s->batch * s->tokens, width = s->heads * s->head_dim;
  const int64_t from = index * j->tokens_a_part, to = kern_min(all, from + j->tokens_a_part);
  for (int64_t i = from; i < to; i++) {
    const float *cosines = j->cosines + i % s->tokens * s->head_dim, *sines = j->sines + i % s->tokens * s->head_dim;
    for (int64_t at = i * width; at < (i + 1) * width; at += s->head_dim)
      if (j->back)
        turn_back(s->head_dim, cosines, sines, j->from + at, j->accumulate, j->to + at);
      else
        turn(s->head_dim, cosines, sines, j->from + at, j->to + at);
  }
}

static void run_rotary(kern_context *context, rotary_job *j) {
  const kern_rotary *s = j->size;
  j->tokens_a_part = kern_part_rows(s->heads * s->head_dim);
  kern_parallel(context, kern_ceil_div(s->batch * s->tokens, j->tokens_a_part), rotary_part, j);
}

void kern_rotary_forward(kern_context *context, const kern_rotary *size, const float *x, const float *cosines,
                         const float *sines, float *y) {
  rotary_job j = {.size = size, .from = x, .cosines = cosines, .sines = sines, .to = y};
  run_rotary(context, &j);
}

void kern_rotary_backward(kern_context *context, const kern_rotary *size, const float *dy, const float *cosines,
                          const float *sines, float *dx, bool accumulate) {
  rotary_job j = {.size = size, .back = true, .from = dy, .cosines = cosines, .sines = sines, .to = dx};
  j.accumulate = accumulate;
  run_rotary(context, &j);
}
