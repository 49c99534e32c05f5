/* Attention through cuDNN's graphs of operations: the products, the softmax and their gradients are said one by one (as
 * in Dao, "FlashAttention-2", 2023), and cuDNN has one engine for the whole. What it does not take, and fp32, runs on
 * our own kernels; so does what has no plan that fits into the workspace.
 *
 * The backward graph whose last product goes straight to dq is cuDNN's deterministic one: it keeps the gradients of all
 * scores, 2 bytes each, in the workspace, so samples or heads are taken in as many goes as keep that within
 * MOST_SCORE_BYTES. The graph that adds dq up in fp32, from zeros, does so in any order; it is taken where that is
 * allowed and it is faster, or the other is not to be had, and kern_cuda_describe tells of it. Where any order is not
 * allowed, our own kernels do what has no deterministic plan.
 *
 * To few keys there are kernels of our own, with one order of sums, that are timed against cuDNN's plan; wherever cuDNN
 * is not taken they go before our others.
 */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST_SCORE_BYTES = (int64_t)640 << 20, SPARE_BYTES = (int64_t)16 << 20;

/* ---- sizes of a go and of the workspace ---- */

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static int64_t score_bytes(const kern_attention *s, int64_t pairs) {
  return pairs * up(s->q_tokens, 128) * up(s->k_tokens, 128) * 2;
}

bool kern_attention_go_smaller(const kern_attention *s, int64_t *batch, int64_t *heads) {
  for (;;) {
    int64_t *n = *batch > 1 ? batch : heads;
    const int64_t all = *batch > 1 ? s->batch : s->heads;
    if (*n == 1) return false;
    do {
      --*n;
    } while (all % *n != 0);
    if (*batch * *heads * s->q_tokens % 4 == 0) return true;
  }
}

void kern_attention_first_go(const kern_attention *s, int64_t *batch, int64_t *heads) {
  *batch = s->batch;
  *heads = s->heads;
  while (score_bytes(s, *batch * *heads) > MOST_SCORE_BYTES) {
    int64_t less_batch = *batch, less_heads = *heads;
    if (!kern_attention_go_smaller(s, &less_batch, &less_heads)) return;
    *batch = less_batch;
    *heads = less_heads;
  }
}

/* The workspace of backward: delta, gradients that are not written straight to where they belong, dq's sums where the
 * graph has them, and what cuDNN asks for. */
typedef struct parts {
  size_t dq, dk, dv, rest;
} parts;

static parts parts_of(const kern_attention *s) {
  const size_t width = (size_t)(s->heads * s->head_dim) * 2;
  parts p;
  p.dq = kern_attention_own_workspace(s);
  p.dk = p.dq + kern_attention_round((size_t)(s->batch * s->q_tokens) * width);
  p.dv = p.dk + kern_attention_round((size_t)(s->batch * s->k_tokens) * width);
  p.rest = p.dv + kern_attention_round((size_t)(s->batch * s->k_tokens) * width);
  return p;
}

size_t kern_attention_dq_sum_bytes(const kern_attention *s) {
  return kern_attention_round((size_t)(s->batch * s->heads * s->q_tokens * s->head_dim) * sizeof(float));
}

/* cuDNN tells what a plan needs only on a device; this leaves it one go's gradients of scores, and as much as fp32
 * copies of its queries and keys. */
size_t kern_cuda_attention_workspace(const kern_attention *s, kern_dtype dtype) {
  if (dtype == KERN_FP32) return kern_attention_own_workspace(s);
  int64_t batch, heads;
  kern_attention_first_go(s, &batch, &heads);
  const int64_t pairs = batch * heads, scores = score_bytes(s, pairs),
                tokens = up(s->q_tokens, 128) + up(s->k_tokens, 128);
  const size_t kept = (size_t)(scores + pairs * tokens * up(s->head_dim, 64) * 4 + SPARE_BYTES);
  const size_t sums = kern_attention_dq_sum_bytes(s) + (size_t)SPARE_BYTES, few = kern_attention_few_workspace(s);
  const size_t most = kept > sums ? kept : sums;
  return parts_of(s).rest + (most > few ? most : few);
}

/* ---- a call ---- */

/* dims of a tensor's go: bytes from its beginning; bf16. */
static void *at(const void *base, const kern_attention *s, int64_t batch, int64_t head, int64_t tokens,
                int64_t stride) {
  return base ? (char *)(uintptr_t)base + (batch * tokens * stride + head * s->head_dim) * 2 : NULL;
}

static cudnnStatus_t run_go(const attention_call *c, int64_t batch, int64_t head) {
  enum { MOST = 16 };
  const kern_attention *s = c->size;
  const attention_key *k = &c->entry->key;
  char *workspace = c->context->options.workspace;
  float scale = s->scale, one = 1;
  int64_t uids[MOST];
  void *pointers[MOST];
  int count = 0;
#define GIVE(uid, pointer) (uids[count] = (uid), pointers[count++] = (pointer))
  GIVE(Q, at(c->q, s, batch, head, k->q_tokens, k->q_stride));
  GIVE(K, at(c->k, s, batch, head, k->k_tokens, k->k_stride));
  GIVE(V, at(c->v, s, batch, head, k->k_tokens, k->v_stride));
  GIVE(Y, at(c->y, s, batch, head, k->q_tokens, k->y_stride));
  GIVE(SCALE, &scale);
  if (k->stats) GIVE(LSE, (float *)(uintptr_t)c->lse + (batch * s->heads + head) * s->q_tokens);
  size_t rest = c->rest;
  if (k->backward) {
    GIVE(DY, at(c->dy, s, batch, head, k->q_tokens, k->y_stride));
    GIVE(DQ, at(c->dq, s, batch, head, k->q_tokens, k->dq_stride));
    GIVE(DK, at(c->dk, s, batch, head, k->k_tokens, k->dk_stride));
    GIVE(DV, at(c->dv, s, batch, head, k->k_tokens, k->dv_stride));
    GIVE(DELTA, workspace);
    GIVE(ONE, &one);
    if (c->entry->form == GRAPH_SUM) {
      GIVE(DQ_SUM, workspace + rest);
      if (cudaMemsetAsync(workspace + rest, 0, kern_attention_dq_sum_bytes(s), c->context->stream) != cudaSuccess)
        return CUDNN_STATUS_EXECUTION_FAILED;
      rest += kern_attention_dq_sum_bytes(s);
    }
  }
#undef GIVE
  void *const plan_workspace = workspace + rest;
  builder b = {.ok = true};
  const descriptor pack = kern_attention_make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  kern_attention_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids);
  kern_attention_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
  kern_attention_set(&b, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &plan_workspace);
  kern_attention_finish(&b, pack);
  const cudnnStatus_t status =
      b.ok ? kern_cuda_execute(c->context, c->entry->plan, pack) : CUDNN_STATUS_BAD_PARAM;
  kern_attention_destroy_from(&b, 0);
  return status;
}

void kern_attention_run(void *data) {
  attention_call *c = data;
  const entry *e = c->entry;
  c->status = CUDNN_STATUS_SUCCESS;
  for (int64_t batch = 0; batch < c->size->batch; batch += e->batch)
    for (int64_t head = 0; head < c->size->heads; head += e->heads)
      if (c->status == CUDNN_STATUS_SUCCESS) c->status = run_go(c, batch, head);
}

void kern_attention_run_few(void *data) {
  attention_call *c = data;
  const attention_key *k = &c->entry->key;
  if (!k->backward) {
    kern_attention_few_forward(c->context, c->size, c->q, c->k, c->v, (void *)(uintptr_t)c->y,
                               (float *)(uintptr_t)c->lse);
    return;
  }
  const kern_attention_few to = {.dq = c->dq,
                                 .dk = c->dk,
                                 .dv = c->dv,
                                 .dq_stride = k->dq_stride,
                                 .dk_stride = k->dk_stride,
                                 .dv_stride = k->dv_stride,
                                 .workspace = (char *)c->context->options.workspace + c->rest};
  kern_attention_few_backward(c->context, c->size, c->q, c->k, c->v, c->lse, c->dy, &to);
}

/* ---- whether and how ---- */

/* What graphs are known to take, or to take wrongly, without being told by the library. */
static bool is_for_cudnn(const kern_cuda *context, const kern_attention *s, bool backward) {
  const size_t version = cudnnGetVersion();
  if (context->options.dtype != KERN_BF16 || version < 90600 || version == 91000 || version == 91001) return false;
  if (s->k_tokens == 0 || s->q_tokens == 0) return false;
  if (backward && ((version <= 91500 && s->k_tokens % 128 != 0) || (s->q_tokens == 1 && s->k_tokens == 1)))
    return false;
  return s->head_dim % 8 == 0 && s->q_stride % 8 == 0 && s->k_stride % 8 == 0 && s->v_stride % 8 == 0 &&
         s->y_stride % 8 == 0;
}

static bool is_aligned(const void *pointer) { return (uintptr_t)pointer % 16 == 0; }

static entry *entry_of(attention_call *c, const attention_key *key) {
  kern_cuda *context = c->context;
  kern_cuda_key words = {{0}};
  _Static_assert(sizeof *key < sizeof words, "the cache has room for the key, and the last word is left over");
  memcpy(&words, key, sizeof *key);
  entry *e = kern_cuda_cache_find(context->attentions, &words);
  if (e) return e;
  e = calloc(1, sizeof *e);
  if (!e) {
    kern_cuda_fail(context, DP_NO_MEMORY, "out of memory");
    return NULL;
  }
  e->key = *key;
  if (!kern_cuda_cache_add(context, &context->attentions, &words, e)) {
    free(e);
    return NULL;
  }
  c->entry = e;
  kern_attention_choose(c, e, words);
  return e;
}

/* False: our own kernels must. */
static bool run_cudnn(attention_call *c, const attention_key *key) {
  entry *e = entry_of(c, key);
  if (!e || !e->plan) return false;
  c->entry = e;
  kern_attention_run(c);
  if (c->status == CUDNN_STATUS_SUCCESS) return true;
  e->plan = NULL; /* it was promised, but is not there on this device */
  return false;
}

static void release(void *value) {
  kern_attention_destroy_from(&((entry *)value)->built, 0);
  free(value);
}
void kern_cuda_attentions_free(kern_cuda_cache *cache) { kern_cuda_cache_free(cache, release); }

typedef struct tally {
  int cudnn, any_order, own;
} tally;

static void count(const void *value, void *data) {
  const entry *e = value;
  tally *t = data;
  t->own += !e->plan;
  t->cudnn += e->plan != NULL;
  t->any_order += e->plan && e->any_order;
}

void kern_cuda_attentions_describe(const kern_cuda_cache *cache, char *out, size_t bytes) {
  tally t = {0};
  kern_cuda_cache_each(cache, count, &t);
  (void)snprintf(out, bytes, "attention: %d sizes with cuDNN (%d with sums in any order), %d with our own", t.cudnn,
                 t.any_order, t.own);
}

/* ---- the contract ---- */

static kern_attention with_strides(const kern_attention *size) {
  kern_attention s = *size;
  const int64_t width = s.heads * s.head_dim;
  if (s.q_stride == 0) s.q_stride = width;
  if (s.k_stride == 0) s.k_stride = width;
  if (s.v_stride == 0) s.v_stride = width;
  if (s.y_stride == 0) s.y_stride = width;
  return s;
}

static bool is_too_wide(kern_cuda *context, const kern_attention *s) {
  if (s->head_dim <= KERN_ATTENTION_MOST_DIM) return false;
  kern_cuda_fail(context, DP_UNSUPPORTED, "attention has heads of %lld channels; at most %d are allowed",
                 (long long)s->head_dim, KERN_ATTENTION_MOST_DIM);
  return true;
}

static attention_key key_of(const kern_attention *s, bool stats) {
  return (attention_key){.batch = s->batch,
                         .heads = s->heads,
                         .dim = s->head_dim,
                         .q_tokens = s->q_tokens,
                         .k_tokens = s->k_tokens,
                         .q_stride = s->q_stride,
                         .k_stride = s->k_stride,
                         .v_stride = s->v_stride,
                         .y_stride = s->y_stride,
                         .stats = stats};
}

void kern_cuda_attention_forward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                 const void *v, void *y, float *lse) {
  const kern_attention s = with_strides(size);
  if (kern_cuda_failed(context) || s.batch * s.heads * s.q_tokens * s.head_dim == 0 || is_too_wide(context, &s)) return;
  const bool aligned = is_aligned(q) && is_aligned(k) && is_aligned(v) && is_aligned(y) && is_aligned(lse);
  const bool few = aligned && kern_attention_few_takes_forward(context, &s);
  if (aligned && is_for_cudnn(context, &s, false)) {
    attention_call c = {.context = context, .size = &s, .q = q, .k = k, .v = v, .y = y, .lse = lse, .few = few};
    const attention_key key = key_of(&s, lse != NULL);
    if (run_cudnn(&c, &key) || kern_cuda_failed(context)) return;
  }
  if (few)
    kern_attention_few_forward(context, &s, q, k, v, y, lse);
  else
    kern_attention_own_forward(context, &s, q, k, v, y, lse);
}

void kern_cuda_attention_backward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                  const void *v, const void *y, const float *lse, const void *dy, void *dq, void *dk,
                                  void *dv, bool accumulate) {
  const kern_attention s = with_strides(size);
  const int64_t width = s.heads * s.head_dim;
  if (kern_cuda_failed(context) || s.batch * width == 0 || (!dq && !dk && !dv) || is_too_wide(context, &s)) return;
  const parts p = parts_of(&s);
  char *workspace = context->options.workspace;
  const bool aligned = is_aligned(q) && is_aligned(k) && is_aligned(v) && is_aligned(y) && is_aligned(lse) &&
                       is_aligned(dy) && is_aligned(dq) && is_aligned(dk) && is_aligned(dv);
  const bool few = aligned && kern_attention_few_takes_backward(context, &s);
  if (aligned && is_for_cudnn(context, &s, true)) {
    /* What is added, or not wanted, is written beside. */
    const bool q_beside = !dq || accumulate, k_beside = !dk || accumulate, v_beside = !dv || accumulate;
    attention_call c = {.context = context,
                        .size = &s,
                        .q = q,
                        .k = k,
                        .v = v,
                        .y = y,
                        .lse = lse,
                        .dy = dy,
                        .dq = q_beside ? workspace + p.dq : dq,
                        .dk = k_beside ? workspace + p.dk : dk,
                        .dv = v_beside ? workspace + p.dv : dv,
                        .rest = p.rest,
                        .few = few};
    attention_key key = key_of(&s, true);
    key.backward = true;
    key.any_order = context->options.any_order;
    key.dq_stride = q_beside ? width : s.q_stride;
    key.dk_stride = k_beside ? width : s.k_stride;
    key.dv_stride = v_beside ? width : s.v_stride;
    if (run_cudnn(&c, &key)) {
      if (dq && q_beside) kern_attention_add(context, s.batch * s.q_tokens, width, c.dq, dq, s.q_stride);
      if (dk && k_beside) kern_attention_add(context, s.batch * s.k_tokens, width, c.dk, dk, s.k_stride);
      if (dv && v_beside) kern_attention_add(context, s.batch * s.k_tokens, width, c.dv, dv, s.v_stride);
      return;
    }
    if (kern_cuda_failed(context)) return;
  }
  if (few) {
    const kern_attention_few to = {dq, dk, dv, s.q_stride, s.k_stride, s.v_stride, accumulate, workspace + p.rest};
    kern_attention_few_backward(context, &s, q, k, v, lse, dy, &to);
    return;
  }
  kern_attention_own_backward(context, &s, q, k, v, y, lse, dy, dq, dk, dv, accumulate);
}
