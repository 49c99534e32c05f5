/* Attention in tiles: the scores of ROWS queries and COLUMNS keys at a time, in a thread's own workspace. */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

enum { ROWS = 128, COLUMNS = 512, FEW_HEADS = 4 };

typedef struct attention_job {
  const kern_attention *size;
  const float *q, *k, *v, *y, *dy, *lse_in;
  float *out, *lse, *dq, *dk, *dv;
  int64_t q_stride, k_stride, v_stride, y_stride; /* from token to token */
  int64_t q_blocks, k_blocks;
  float *scratch;
  int64_t scratch_floats; /* of one thread */
  bool accumulate;
} attention_job;

static int64_t tile_rows(const kern_attention *s) { return kern_min(ROWS, s->q_tokens); }
static int64_t tile_columns(const kern_attention *s) { return kern_min(COLUMNS, s->k_tokens); }

/* Two tiles, and three values a row. */
static int64_t scratch_floats(const kern_attention *s) {
  return (2 * tile_rows(s) * tile_columns(s) + 3 * tile_rows(s) + 15) / 16 * 16;
}

size_t kern_attention_workspace(const kern_attention *s, int threads) {
  return (size_t)threads * kern_floats(scratch_floats(s));
}

static attention_job job_of(kern_context *context, const kern_attention *s) {
  const int64_t width = s->heads * s->head_dim;
  return (attention_job){
      .size = s,
      .q_stride = kern_stride(s->q_stride, width),
      .k_stride = kern_stride(s->k_stride, width),
      .v_stride = kern_stride(s->v_stride, width),
      .y_stride = kern_stride(s->y_stride, width),
      .q_blocks = kern_ceil_div(s->q_tokens, tile_rows(s)),
      .k_blocks = kern_ceil_div(s->k_tokens, tile_columns(s)),
      .scratch = kern_workspace(context, kern_attention_workspace(s, kern_context_threads(context))),
      .scratch_floats = scratch_floats(s),
  };
}

/* c[m, n] = alpha a b^T + beta c, or a b, or a^T b */
static void product(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed, float alpha, const float *a,
                    int64_t a_stride, const float *b, int64_t b_stride, float beta, float *c, int64_t c_stride) {
  const kern_gemm size = {.m = m,
                          .n = n,
                          .k = k,
                          .a_transposed = a_transposed,
                          .b_transposed = b_transposed,
                          .a_stride = a_stride,
                          .b_stride = b_stride,
                          .c_stride = c_stride,
                          .alpha = alpha,
                          .beta = beta};
  kern_gemm_serial(&size, a, b, c);
}

KERN_CLONES static float row_max(int64_t n, const float *x) {
  float lanes[KERN_LANES], rest[KERN_LANES];
  int64_t i = 0;
  for (int l = 0; l < KERN_LANES; l++) lanes[l] = rest[l] = -INFINITY;
  for (; i + KERN_LANES <= n; i += KERN_LANES)
    for (int l = 0; l < KERN_LANES; l++) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
  for (int l = 0; l < KERN_LANES; l++) lanes[l] = rest[l] > lanes[l] ? rest[l] : lanes[l];
  for (int width = KERN_LANES / 2; width > 0; width /= 2)
    for (int l = 0; l < width; l++) lanes[l] = lanes[l + width] > lanes[l] ? lanes[l + width] : lanes[l];
  return lanes[0];
}

/* x = exp(x - shift); returns the sum. The end of a row is a block too: of what is beyond it e^-87 is added, nothing.
 */
KERN_CLONES static float row_exp_sum(int64_t n, float shift, float *x) {
  float lanes[KERN_LANES] = {0}, rest[KERN_LANES];
  int64_t i = 0;
  for (; i + KERN_LANES <= n; i += KERN_LANES)
    for (int l = 0; l < KERN_LANES; l++) {
      const float e = kern_exp(x[i + l] - shift);
      x[i + l] = e;
      lanes[l] += e;
    }
  if (i == n) return kern_lanes_sum(lanes);
  for (int l = 0; l < KERN_LANES; l++) rest[l] = -INFINITY;
  memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
  for (int l = 0; l < KERN_LANES; l++) {
    rest[l] = kern_exp(rest[l] - shift);
    lanes[l] += rest[l];
  }
  memcpy(x + i, rest, (size_t)(n - i) * sizeof *x);
  return kern_lanes_sum(lanes);
}

KERN_CLONES static void row_scale(int64_t n, float factor, float *x) {
  KERN_INDEPENDENT
  for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

KERN_CLONES static float row_dot(int64_t n, const float *x, const float *y) {
  float lanes[KERN_LANES] = {0};
  int64_t i = 0;
  for (; i + KERN_LANES <= n; i += KERN_LANES)
    for (int l = 0; l < KERN_LANES; l++) lanes[l] += x[i + l] * y[i + l];
  float sum = kern_lanes_sum(lanes);
  for (; i < n; i++) sum += x[i] * y[i];
  return sum;
}

/* p = exp(s - lse) in the place of s, ds = scale p (dp - delta) in the place of dp */
KERN_CLONES static void row_backward(int64_t n, float lse, float delta, float scale, float *s, float *dp) {
  float s_rest[KERN_LANES] = {0}, dp_rest[KERN_LANES] = {0};
  const int64_t whole = n / KERN_LANES * KERN_LANES;
  const size_t rest_bytes = (size_t)(n - whole) * sizeof *s;
  KERN_INDEPENDENT
  for (int64_t i = 0; i < whole; i++) {
    const float p = kern_exp(s[i] - lse);
    s[i] = p;
    dp[i] = scale * (p * (dp[i] - delta));
  }
  if (whole == n) return;
  memcpy(s_rest, s + whole, rest_bytes);
  memcpy(dp_rest, dp + whole, rest_bytes);
  for (int l = 0; l < KERN_LANES; l++) {
    const float p = kern_exp(s_rest[l] - lse);
    s_rest[l] = p;
    dp_rest[l] = scale * (p * (dp_rest[l] - delta));
  }
  memcpy(s + whole, s_rest, rest_bytes);
  memcpy(dp + whole, dp_rest, rest_bytes);
}

static void forward_part(const void *data, int64_t index, int thread) {
  const attention_job *j = data;
  const kern_attention *s = j->size;
  const int64_t batch = index / (s->heads * j->q_blocks), head = index / j->q_blocks % s->heads;
  const int64_t first = index % j->q_blocks * tile_rows(s), rows = kern_min(tile_rows(s), s->q_tokens - first);
  const int64_t width = tile_columns(s), dim = s->head_dim;
  const float *q = j->q + (batch * s->q_tokens + first) * j->q_stride + head * dim;
  float *out = j->out + (batch * s->q_tokens + first) * j->y_stride + head * dim;
  float *scores = j->scratch + thread * j->scratch_floats;
  float *max = scores + rows * width, *sum = max + rows;
  for (int64_t start = 0; start < s->k_tokens; start += width) {
    const int64_t columns = kern_min(width, s->k_tokens - start);
    const int64_t token = batch * s->k_tokens + start;
    product(rows, columns, dim, false, true, s->scale, q, j->q_stride, j->k + token * j->k_stride + head * dim,
            j->k_stride, 0, scores, width);
    for (int64_t i = 0; i < rows; i++) {
      float *row = scores + i * width;
      const float new_max = row_max(columns, row);
      if (start == 0) {
        max[i] = new_max;
        sum[i] = row_exp_sum(columns, new_max, row);
        continue;
      }
      if (new_max > max[i]) { /* what is there was relative to a lower maximum */
        const float shrink = expf(max[i] - new_max);
        row_scale(dim, shrink, out + i * j->y_stride);
        sum[i] *= shrink;
        max[i] = new_max;
      }
      sum[i] += row_exp_sum(columns, max[i], row);
    }
    product(rows, dim, columns, false, false, 1, scores, width, j->v + token * j->v_stride + head * dim, j->v_stride,
            start == 0 ? 0 : 1, out, j->y_stride);
  }
  for (int64_t i = 0; i < rows; i++) {
    row_scale(dim, 1 / sum[i], out + i * j->y_stride);
    if (j->lse != NULL) j->lse[(batch * s->heads + head) * s->q_tokens + first + i] = max[i] + logf(sum[i]);
  }
}

void kern_attention_forward(kern_context *context, const kern_attention *s, const float *q, const float *k,
                            const float *v, float *y, float *lse) {
  attention_job j = job_of(context, s);
  j.q = q;
  j.k = k;
  j.v = v;
  j.out = y;
  j.lse = lse;
  kern_parallel(context, s->batch * s->heads * j.q_blocks, forward_part, &j);
}

enum { OF_QUERIES = 1, OF_KEYS = 2 };

/* The gradients `what` of one head from query blocks [q_from, q_to) and key blocks [k_from, k_to). */
static void backward_range(const attention_job *j, int64_t batch, int64_t head, int64_t q_from, int64_t q_to,
                           int64_t k_from, int64_t k_to, int what, int thread) {
  const kern_attention *s = j->size;
  const int64_t height = tile_rows(s), width = tile_columns(s), dim = s->head_dim, at = head * dim;
  float *scores = j->scratch + thread * j->scratch_floats;
  float *dscores = scores + height * width, *delta = dscores + height * width;
  for (int64_t qb = q_from; qb < q_to; qb++) {
    const int64_t rows = kern_min(height, s->q_tokens - qb * height), q_token = batch * s->q_tokens + qb * height;
    const float *q = j->q + q_token * j->q_stride + at;
    const float *y = j->y + q_token * j->y_stride + at, *dy = j->dy + q_token * j->y_stride + at;
    const float *lse = j->lse_in + (batch * s->heads + head) * s->q_tokens + qb * height;
    for (int64_t i = 0; i < rows; i++) delta[i] = row_dot(dim, y + i * j->y_stride, dy + i * j->y_stride);
    for (int64_t kb = k_from; kb < k_to; kb++) {
      const int64_t columns = kern_min(width, s->k_tokens - kb * width), k_token = batch * s->k_tokens + kb * width;
      const float *k = j->k + k_token * j->k_stride + at, *v = j->v + k_token * j->v_stride + at;
      product(rows, columns, dim, false, true, s->scale, q, j->q_stride, k, j->k_stride, 0, scores, width);
      product(rows, columns, dim, false, true, 1, dy, j->y_stride, v, j->v_stride, 0, dscores, width);
      for (int64_t i = 0; i < rows; i++)
        row_backward(columns, lse[i], delta[i], s->scale, scores + i * width, dscores + i * width);
      if ((what & OF_QUERIES) && j->dq != NULL)
        product(rows, dim, columns, false, false, 1, dscores, width, k, j->k_stride, kb > 0 || j->accumulate ? 1 : 0,
                j->dq + q_token * j->q_stride + at, j->q_stride);
      if (!(what & OF_KEYS)) continue;
      const float beta = qb > 0 || j->accumulate ? 1 : 0;
      if (j->dv != NULL)
        product(columns, dim, rows, true, false, 1, scores, width, dy, j->y_stride, beta,
                j->dv + k_token * j->v_stride + at, j->v_stride);
      if (j->dk != NULL)
        product(columns, dim, rows, true, false, 1, dscores, width, q, j->q_stride, beta,
                j->dk + k_token * j->k_stride + at, j->k_stride);
    }
  }
}

static void backward_whole_part(const void *data, int64_t index, int thread) {
  const attention_job *j = data;
  const int64_t heads = j->size->heads;
  backward_range(j, index / heads, index % heads, 0, j->q_blocks, 0, j->k_blocks, OF_QUERIES | OF_KEYS, thread);
}

static void backward_queries_part(const void *data, int64_t index, int thread) {
  const attention_job *j = data;
  const int64_t heads = j->size->heads, block = index % j->q_blocks, head = index / j->q_blocks;
  backward_range(j, head / heads, head % heads, block, block + 1, 0, j->k_blocks, OF_QUERIES, thread);
}

static void backward_keys_part(const void *data, int64_t index, int thread) {
  const attention_job *j = data;
  const int64_t heads = j->size->heads, block = index % j->k_blocks, head = index / j->k_blocks;
  backward_range(j, head / heads, head % heads, 0, j->q_blocks, block, block + 1, OF_KEYS, thread);
}

/* Each head by itself; few heads are cut further, at the price of making the scores twice. */
void kern_attention_backward(kern_context *context, const kern_attention *s, const float *q, const float *k,
                             const float *v, const float *y, const float *lse, const float *dy, float *dq, float *dk,
                             float *dv, bool accumulate) {
  attention_job j = job_of(context, s);
  j.q = q;
  j.k = k;
  j.v = v;
  j.y = y;
  j.lse_in = lse;
  j.dy = dy;
  j.dq = dq;
  j.dk = dk;
  j.dv = dv;
  j.accumulate = accumulate;
  const int64_t heads = s->batch * s->heads;
  if (heads >= FEW_HEADS || (j.q_blocks == 1 && j.k_blocks == 1)) {
    kern_parallel(context, heads, backward_whole_part, &j);
    return;
  }
  if (dq != NULL) kern_parallel(context, heads * j.q_blocks, backward_queries_part, &j);
  if (dk != NULL || dv != NULL) kern_parallel(context, heads * j.k_blocks, backward_keys_part, &j);
}
