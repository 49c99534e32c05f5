/* Attention in tiles. Queries lie in the lanes of vectors: a panel has as many as the widest tile has columns, and
 * scores are kept as [key][query of the panel], so that maxima, sums and products with keys and values go down the
 * columns and nothing but a block of queries is ever turned round. A block is some panels; it meets KEYS keys at a
 * time, in a thread's own workspace.
 */
#include "kernels/cpu/context.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vector.h"

enum { KEYS = 128, QUERIES = 128, BLOCK_VALUES = 8192, FEW_HEADS = 4, MAX_PANELS = QUERIES / 8 };

typedef struct attention_job {
  const kern_attention *size;
  const kern_tiles *tiles;
  const float *q, *k, *v, *y, *dy, *lse_in;
  float *out, *lse, *dq, *dk, *dv;
  int64_t q_stride, k_stride, v_stride, y_stride; /* from token to token */
  int width;                                      /* of a panel */
  int64_t queries, q_blocks, k_blocks;            /* of a block; blocks */
  float *scratch;
  int64_t scratch_floats; /* of one thread */
  bool accumulate;
} attention_job;

/* One thread's: [panel][key][width], [panel][dim][width], [query][packed dim], [query]. */
typedef struct scratch {
  float *scores, *dscores, *q, *dy, *sum; /* turned round; sum: what forward or dq adds up */
  float *q_rows, *dy_rows;                /* packed as they are */
  float *shift, *total;                   /* maximum or lse; sum of exponentials or delta */
} scratch;

static int64_t padded(int64_t n) { return (n + KERN_TILE_COLUMNS - 1) / KERN_TILE_COLUMNS * KERN_TILE_COLUMNS; }

/* Whole panels of any width, so that the workspace is the same on every machine; fewer where heads are wide. */
static int64_t queries_of(const kern_attention *s) {
  const int64_t most = kern_min(QUERIES, BLOCK_VALUES / s->head_dim) / KERN_TILE_COLUMNS * KERN_TILE_COLUMNS;
  return kern_max(KERN_TILE_COLUMNS, kern_min(most, padded(s->q_tokens)));
}

static int64_t scratch_floats(const kern_attention *s) {
  const int64_t queries = queries_of(s);
  return queries * (2 * kern_min(KEYS, s->k_tokens) + 3 * s->head_dim + 2 * padded(s->head_dim) + 2) + 10 * 16;
}

size_t kern_attention_workspace(const kern_attention *s, int threads) {
  return (size_t)threads * kern_floats(scratch_floats(s));
}

static float *take(float **at, int64_t n) {
  float *taken = *at;
  *at += (n + 15) / 16 * 16;
  return taken;
}

static scratch scratch_of(const attention_job *j, int thread) {
  const int64_t keys = kern_min(KEYS, j->size->k_tokens), dim = j->size->head_dim;
  float *at = j->scratch + thread * (int64_t)(kern_floats(j->scratch_floats) / sizeof(float));
  scratch s;
  s.scores = take(&at, j->queries * keys);
  s.dscores = take(&at, j->queries * keys);
  s.q = take(&at, j->queries * dim);
  s.dy = take(&at, j->queries * dim);
  s.sum = take(&at, j->queries * dim);
  s.q_rows = take(&at, j->queries * padded(dim));
  s.dy_rows = take(&at, j->queries * padded(dim));
  s.shift = take(&at, j->queries);
  s.total = take(&at, j->queries);
  return s;
}

static attention_job job_of(kern_context *context, const kern_attention *s) {
  const int64_t width = s->heads * s->head_dim;
  attention_job j = {
      .size = s,
      .tiles = kern_tiles_get(),
      .q_stride = kern_stride(s->q_stride, width),
      .k_stride = kern_stride(s->k_stride, width),
      .v_stride = kern_stride(s->v_stride, width),
      .y_stride = kern_stride(s->y_stride, width),
      .width = kern_tiles_get()->widths[0].columns,
      .queries = queries_of(s),
      .k_blocks = kern_ceil_div(s->k_tokens, KEYS),
      .scratch = kern_workspace(context, kern_attention_workspace(s, kern_context_threads(context))),
      .scratch_floats = scratch_floats(s),
  };
  j.q_blocks = kern_ceil_div(s->q_tokens, j.queries);
  return j;
}

/* ---- products with a panel ---- */

/* c[rows][width] = alpha a[rows][k] panel[k][width] */
static void rows_by_panel(const attention_job *j, int64_t rows, int64_t k, float alpha, const float *a, int64_t stride,
                          const float *panel, float *c_first) {
  const int tile_rows = j->tiles->rows;
  const float *of_a[KERN_TILE_ROWS];
  float *c[KERN_TILE_ROWS];
  const kern_tile_call call = {.taps = 1, .k = k, .rows = of_a, .b = panel, .c = c, .alpha = alpha};
  for (int64_t i = 0; i < rows; i += tile_rows) {
    const int64_t last = kern_min(tile_rows, rows - i) - 1;
    const float *from = a + i * stride;
    float *to = c_first + i * j->width;
    for (int r = 0; r < tile_rows; r++) {
      of_a[r] = from + (r < last ? r : last) * stride;
      c[r] = to + r * j->width;
    }
    kern_tile_run(j->tiles, 0, &call, last + 1, j->width);
  }
}

/* c[columns][width] = a[k][columns]^T panel[k][width], or += */
static void columns_by_panel(const attention_job *j, int64_t columns, int64_t k, const float *a, int64_t stride,
                             const float *panel, bool add, float *c_first) {
  const int tile_rows = j->tiles->rows;
  float *c[KERN_TILE_ROWS];
  kern_tile_call call = {.taps = 1, .k = k, .stride = stride, .b = panel, .c = c, .alpha = 1, .add = add};
  for (int64_t i = 0; i < columns; i += tile_rows) {
    const int64_t count = kern_min(tile_rows, columns - i);
    call.columns = a + i;
    for (int r = 0; r < count; r++) c[r] = c_first + (i + r) * j->width;
    kern_tile_run(j->tiles, 0, &call, count, j->width);
  }
}

/* c[keys][dim] = scores[panel][keys][width] times the packed rows of the block's queries, or += */
static void scores_by_rows(const attention_job *j, int panels, int64_t keys, const float *scores, const float *packed,
                           bool add, float *c_first, int64_t stride) {
  const int tile_rows = j->tiles->rows;
  const int64_t dim = j->size->head_dim;
  const float *rows[MAX_PANELS * KERN_TILE_ROWS];
  float *c[KERN_TILE_ROWS];
  kern_tile_call call = {.taps = panels, .k = j->width, .rows = rows, .c = c, .alpha = 1, .add = add};
  for (int64_t i = 0; i < keys; i += tile_rows) {
    const int64_t count = kern_min(tile_rows, keys - i);
    for (int p = 0; p < panels; p++)
      for (int r = 0; r < tile_rows; r++)
        rows[p * tile_rows + r] = scores + (p * keys + i + kern_min(r, count - 1)) * j->width;
    call.b = packed;
    for (int64_t at = 0; at < dim;) {
      const int width = kern_tile_width(j->tiles, dim - at), across = j->tiles->widths[width].columns;
      for (int r = 0; r < count; r++) c[r] = c_first + (i + r) * stride + at;
      kern_tile_run(j->tiles, width, &call, count, dim - at);
      call.b += panels * j->width * across;
      at += across;
    }
  }
}

/* What the above takes: of each range of channels, those of all queries; queries that are not there are 0. */
static void pack_rows(const attention_job *j, int64_t queries, int panels, const float *x, int64_t stride,
                      float *packed) {
  const int64_t dim = j->size->head_dim, all = panels * j->width;
  for (int64_t at = 0; at < dim;) {
    const int width = kern_tile_width(j->tiles, dim - at), across = j->tiles->widths[width].columns;
    kern_tile_pack(queries, dim - at, across, false, x + at, stride, packed);
    memset(packed + queries * across, 0, (size_t)((all - queries) * across) * sizeof *packed);
    packed += all * across;
    at += across;
  }
}

/* Turns round: [panel][dim][width]. */
static void pack_panels(const attention_job *j, int64_t queries, const float *x, int64_t stride, float *packed) {
  const int64_t dim = j->size->head_dim;
  for (int64_t first = 0; first < queries; first += j->width, packed += dim * j->width)
    kern_tile_pack(dim, queries - first, j->width, true, x + first * stride, stride, packed);
}

/* And back: y[queries][dim] = panels * factor[query], or += */
static void unpack_panels(const attention_job *j, int64_t queries, const float *panels, const float *factor, bool add,
                          float *y, int64_t stride) {
  const int64_t dim = j->size->head_dim, width = j->width;
  for (int64_t i = 0; i < queries; i++) {
    const float *from = panels + i / width * dim * width + i % width, by = factor == NULL ? 1 : factor[i];
    float *to = y + i * stride;
    for (int64_t c = 0; c < dim; c++) to[c] = add ? to[c] + from[c * width] * by : from[c * width] * by;
  }
}

/* ---- down the columns of scores: `lanes` of them, rows `width` apart ---- */

#define DOWN(lanes)                                                                                                   \
  KERN_CLONES static void max_##lanes(int64_t n, int64_t width, const float *x, float *max) {                         \
    float most[lanes];                                                                                                \
    memcpy(most, max, sizeof most);                                                                                   \
    for (int64_t i = 0; i < n; i++, x += width)                                                                       \
      for (int l = 0; l < (lanes); l++) most[l] = x[l] > most[l] ? x[l] : most[l];                                    \
    memcpy(max, most, sizeof most);                                                                                   \
  }                                                                                                                   \
  /* x = exp(x - shift), which total takes in */                                                                      \
  KERN_CLONES KERN_FUSED static void exp_sum_##lanes(int64_t n, int64_t width, const float *shift, float *x,          \
                                                     float *total) {                                                  \
    float sum[lanes], by[lanes];                                                                                      \
    memcpy(sum, total, sizeof sum);                                                                                   \
    memcpy(by, shift, sizeof by);                                                                                     \
    for (int64_t i = 0; i < n; i++, x += width)                                                                       \
      for (int l = 0; l < (lanes); l++) {                                                                             \
        const float e = kern_exp(x[l] - by[l]);                                                                       \
        x[l] = e;                                                                                                     \
        sum[l] += e;                                                                                                  \
      }                                                                                                               \
    memcpy(total, sum, sizeof sum);                                                                                   \
  }                                                                                                                   \
  /* p = exp(s - lse) in the place of s, ds = scale p (dp - delta) in the place of dp */                              \
  KERN_CLONES KERN_FUSED static void backward_##lanes(int64_t n, int64_t width, const float *lse, const float *delta, \
                                                      float scale, float *restrict s, float *restrict dp) {           \
    float by[lanes], less[lanes];                                                                                     \
    memcpy(by, lse, sizeof by);                                                                                       \
    memcpy(less, delta, sizeof less);                                                                                 \
    for (int64_t i = 0; i < n; i++, s += width, dp += width)                                                          \
      for (int l = 0; l < (lanes); l++) {                                                                             \
        const float p = kern_exp(s[l] - by[l]);                                                                       \
        s[l] = p;                                                                                                     \
        dp[l] = scale * (p * (dp[l] - less[l]));                                                                      \
      }                                                                                                               \
  }
DOWN(16)
DOWN(8)

static void max_down(const attention_job *j, int64_t n, const float *x, float *max) {
  for (int at = 0; at < j->width; at += 16) (j->width < 16 ? max_8 : max_16)(n, j->width, x + at, max + at);
}

static void exp_sum_down(const attention_job *j, int64_t n, const float *shift, float *x, float *total) {
  for (int at = 0; at < j->width; at += 16)
    (j->width < 16 ? exp_sum_8 : exp_sum_16)(n, j->width, shift + at, x + at, total + at);
}

static void backward_down(const attention_job *j, int64_t n, const float *lse, const float *delta, float *s,
                          float *dp) {
  for (int at = 0; at < j->width; at += 16)
    (j->width < 16 ? backward_8 : backward_16)(n, j->width, lse + at, delta + at, j->size->scale, s + at, dp + at);
}

KERN_CLONES static void scale_rows(int64_t rows, int64_t width, const float *factor, float *x) {
  for (int64_t i = 0; i < rows; i++, x += width) {
    KERN_INDEPENDENT
    for (int64_t l = 0; l < width; l++) x[l] *= factor[l];
  }
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

/* ---- forward ---- */

/* A panel against keys [first, first + keys) of the head. */
static void forward_keys(const attention_job *j, const scratch *w, const float *k, const float *v, int64_t keys,
                         bool begin) {
  const int64_t dim = j->size->head_dim;
  float before[KERN_TILE_COLUMNS], shrink[KERN_TILE_COLUMNS];
  rows_by_panel(j, keys, dim, j->size->scale, k, j->k_stride, w->q, w->scores);
  for (int l = 0; l < j->width; l++) before[l] = begin ? -INFINITY : w->shift[l];
  memcpy(w->shift, before, (size_t)j->width * sizeof *before);
  max_down(j, keys, w->scores, w->shift);
  if (!begin) { /* what is there was relative to a lower maximum */
    for (int l = 0; l < j->width; l++) shrink[l] = w->shift[l] > before[l] ? expf(before[l] - w->shift[l]) : 1;
    scale_rows(1, j->width, shrink, w->total);
    scale_rows(dim, j->width, shrink, w->sum);
  } else {
    memset(w->total, 0, (size_t)j->width * sizeof *w->total);
  }
  exp_sum_down(j, keys, w->shift, w->scores, w->total);
  columns_by_panel(j, dim, keys, v, j->v_stride, w->scores, !begin, w->sum);
}

static void forward_part(const void *data, int64_t index, int thread) {
  const attention_job *j = data;
  const kern_attention *s = j->size;
  const int64_t batch = index / (s->heads * j->q_blocks), head = index / j->q_blocks % s->heads, dim = s->head_dim;
  const int64_t begin = index % j->q_blocks * j->queries, end = kern_min(s->q_tokens, begin + j->queries);
  const float *k = j->k + batch * s->k_tokens * j->k_stride + head * dim;
  const float *v = j->v + batch * s->k_tokens * j->v_stride + head * dim;
  const scratch w = scratch_of(j, thread);
  for (int64_t first = begin; first < end; first += j->width) {
    const int64_t count = kern_min(j->width, end - first), token = batch * s->q_tokens + first;
    pack_panels(j, count, j->q + token * j->q_stride + head * dim, j->q_stride, w.q);
    for (int64_t from = 0; from < s->k_tokens; from += KEYS)
      forward_keys(j, &w, k + from * j->k_stride, v + from * j->v_stride, kern_min(KEYS, s->k_tokens - from),
                   from == 0);
    float factor[KERN_TILE_COLUMNS];
    for (int64_t i = 0; i < count; i++) {
      factor[i] = 1 / w.total[i];
      if (j->lse != NULL) j->lse[(batch * s->heads + head) * s->q_tokens + first + i] = w.shift[i] + logf(w.total[i]);
    }
    unpack_panels(j, count, w.sum, factor, false, j->out + token * j->y_stride + head * dim, j->y_stride);
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

/* ---- backward ---- */

enum { OF_QUERIES = 1, OF_KEYS = 2 };

/* A block of queries of a head. */
typedef struct query_block {
  int64_t token, count; /* of all tokens */
  int panels;
  bool first;
} query_block;

static void load_block(const attention_job *j, const query_block *b, int64_t batch, int64_t head, const scratch *w) {
  const kern_attention *s = j->size;
  const int64_t at = head * s->head_dim;
  const float *q = j->q + b->token * j->q_stride + at;
  const float *y = j->y + b->token * j->y_stride + at, *dy = j->dy + b->token * j->y_stride + at;
  const float *lse = j->lse_in + (batch * s->heads + head) * s->q_tokens + b->token - batch * s->q_tokens;
  pack_panels(j, b->count, q, j->q_stride, w->q);
  pack_panels(j, b->count, dy, j->y_stride, w->dy);
  pack_rows(j, b->count, b->panels, q, j->q_stride, w->q_rows);
  pack_rows(j, b->count, b->panels, dy, j->y_stride, w->dy_rows);
  for (int64_t i = 0; i < b->panels * j->width; i++) { /* queries that are not there: 0 all over */
    w->shift[i] = i < b->count ? lse[i] : 0;
    w->total[i] = i < b->count ? row_dot(s->head_dim, y + i * j->y_stride, dy + i * j->y_stride) : 0;
  }
}

static void backward_keys(const attention_job *j, const query_block *b, int64_t batch, int64_t head, int64_t k_block,
                          bool begin, int what, const scratch *w) {
  const kern_attention *s = j->size;
  const int64_t dim = s->head_dim, at = head * dim, width = j->width;
  const int64_t keys = kern_min(KEYS, s->k_tokens - k_block * KEYS), token = batch * s->k_tokens + k_block * KEYS;
  const float *k = j->k + token * j->k_stride + at, *v = j->v + token * j->v_stride + at;
  for (int p = 0; p < b->panels; p++) {
    float *scores = w->scores + p * keys * width, *dscores = w->dscores + p * keys * width;
    rows_by_panel(j, keys, dim, s->scale, k, j->k_stride, w->q + p * dim * width, scores);
    rows_by_panel(j, keys, dim, 1, v, j->v_stride, w->dy + p * dim * width, dscores);
    backward_down(j, keys, w->shift + p * width, w->total + p * width, scores, dscores);
    if ((what & OF_QUERIES) && j->dq != NULL)
      columns_by_panel(j, dim, keys, k, j->k_stride, dscores, !begin, w->sum + p * dim * width);
  }
  if (!(what & OF_KEYS)) return;
  const bool add = !b->first || j->accumulate;
  if (j->dv != NULL)
    scores_by_rows(j, b->panels, keys, w->scores, w->dy_rows, add, j->dv + token * j->v_stride + at, j->v_stride);
  if (j->dk != NULL)
    scores_by_rows(j, b->panels, keys, w->dscores, w->q_rows, add, j->dk + token * j->k_stride + at, j->k_stride);
}

/* The gradients `what` of one head from query blocks [q_from, q_to) and key blocks [k_from, k_to). */
static void backward_range(const attention_job *j, int64_t batch, int64_t head, int64_t q_from, int64_t q_to,
                           int64_t k_from, int64_t k_to, int what, int thread) {
  const kern_attention *s = j->size;
  const scratch w = scratch_of(j, thread);
  for (int64_t qb = q_from; qb < q_to; qb++) {
    query_block b = {.token = batch * s->q_tokens + qb * j->queries, .first = qb == 0};
    b.count = kern_min(j->queries, s->q_tokens - qb * j->queries);
    b.panels = (int)kern_ceil_div(b.count, j->width);
    load_block(j, &b, batch, head, &w);
    for (int64_t kb = k_from; kb < k_to; kb++) backward_keys(j, &b, batch, head, kb, kb == k_from, what, &w);
    if ((what & OF_QUERIES) && j->dq != NULL)
      unpack_panels(j, b.count, w.sum, NULL, j->accumulate, j->dq + b.token * j->q_stride + head * s->head_dim,
                    j->q_stride);
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
