/* Attention through cuDNN's graphs of operations: the products, the softmax and their gradients are said one by one (as
 * in Dao, "FlashAttention-2", 2023), and cuDNN has one engine for the whole. What it does not take, and fp32, runs on
 * our own kernels; so does what has no plan that fits into the workspace.
 *
 * The backward graph whose last product goes straight to dq is cuDNN's deterministic one: it keeps the gradients of all
 * scores, 2 bytes each, in the workspace, so samples or heads are taken in as many goes as keep that within
 * MOST_SCORE_BYTES. The graph that adds dq up in fp32, from zeros, does so in any order; it is taken where the other is
 * not to be had, or where any order is allowed and it is faster, and kern_cuda_describe tells of it.
 */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_graph.h"
#include "kernels/cuda/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST_SCORE_BYTES = (int64_t)640 << 20, SPARE_BYTES = (int64_t)16 << 20;

/* ---- sizes of a go and of the workspace ---- */

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static int64_t score_bytes(const kern_attention *s, int64_t pairs) {
  return pairs * up(s->q_tokens, 128) * up(s->k_tokens, 128) * 2;
}

/* The next smaller go: fewer samples, then fewer heads of one; all goes are of one size and their log-sum-exps begin on
 * boundaries of 16 bytes. */
static bool go_smaller(const kern_attention *s, int64_t *batch, int64_t *heads) {
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

static void first_go(const kern_attention *s, int64_t *batch, int64_t *heads) {
  *batch = s->batch;
  *heads = s->heads;
  while (score_bytes(s, *batch * *heads) > MOST_SCORE_BYTES) {
    int64_t less_batch = *batch, less_heads = *heads;
    if (!go_smaller(s, &less_batch, &less_heads)) return;
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

static size_t dq_sum_bytes(const kern_attention *s) {
  return kern_attention_round((size_t)(s->batch * s->heads * s->q_tokens * s->head_dim) * sizeof(float));
}

/* cuDNN tells what a plan needs only on a device; this leaves it one go's gradients of scores, and as much as fp32
 * copies of its queries and keys. */
size_t kern_cuda_attention_workspace(const kern_attention *s, kern_dtype dtype) {
  if (dtype == KERN_FP32) return kern_attention_own_workspace(s);
  int64_t batch, heads;
  first_go(s, &batch, &heads);
  const int64_t pairs = batch * heads, scores = score_bytes(s, pairs),
                tokens = up(s->q_tokens, 128) + up(s->k_tokens, 128);
  const size_t kept = (size_t)(scores + pairs * tokens * up(s->head_dim, 64) * 4 + SPARE_BYTES);
  const size_t sums = dq_sum_bytes(s) + (size_t)SPARE_BYTES;
  return parts_of(s).rest + (kept > sums ? kept : sums);
}

/* ---- a call ---- */

typedef struct attention_call {
  kern_cuda *context;
  const kern_attention *size;
  const void *q, *k, *v, *y, *dy;
  const float *lse;
  void *dq, *dk, *dv;
  size_t rest; /* where the plan's part of the workspace begins */
  const entry *entry;
  cudnnStatus_t status;
} attention_call;

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
      if (cudaMemsetAsync(workspace + rest, 0, dq_sum_bytes(s), c->context->stream) != cudaSuccess)
        return CUDNN_STATUS_EXECUTION_FAILED;
      rest += dq_sum_bytes(s);
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
      b.ok ? cudnnBackendExecute(c->context->dnn, c->entry->plan, pack) : CUDNN_STATUS_BAD_PARAM;
  kern_attention_destroy_from(&b, 0);
  return status;
}

static void run(void *data) {
  attention_call *c = data;
  const entry *e = c->entry;
  c->status = CUDNN_STATUS_SUCCESS;
  for (int64_t batch = 0; batch < c->size->batch; batch += e->batch)
    for (int64_t head = 0; head < c->size->heads; head += e->heads)
      if (c->status == CUDNN_STATUS_SUCCESS) c->status = run_go(c, batch, head);
}

/* ---- plans ---- */

static bool has_any_order_note(builder *b, descriptor config) {
  const int first = b->made_count;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t count = 0;
  bool found = false;
  descriptor engine = kern_attention_make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (b->ok &&
      cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                               &engine) == CUDNN_STATUS_SUCCESS &&
      cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) == CUDNN_STATUS_SUCCESS)
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
      found = found || notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
  kern_attention_destroy_from(b, first);
  return found;
}

/* The configurations that a way of guessing names, best first. */
static int configs_of(builder *b, descriptor graph, cudnnBackendHeurMode_t mode, descriptor configs[MAX_PLANS]) {
  const descriptor guess = kern_attention_make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  kern_attention_set_descriptor(b, guess, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  kern_attention_set(b, guess, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  kern_attention_finish(b, guess);
  if (!b->ok) return 0;
  int64_t count = 0;
  for (int i = 0; i < MAX_PLANS; i++) configs[i] = kern_attention_make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (!b->ok || cudnnBackendGetAttribute(guess, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_PLANS,
                                         &count, configs) != CUDNN_STATUS_SUCCESS)
    return 0;
  return (int)(count < MAX_PLANS ? count : MAX_PLANS);
}

/* What came of an attempt: nothing was made, something that needs too much workspace, or a plan. */
typedef enum outcome { NOTHING, TOO_LARGE, FOUND } outcome;

static void keep_fastest(attention_call *c, entry *e, descriptor plan) {
  const descriptor before = e->plan;
  e->plan = plan;
  const float ms = kern_cuda_time_ms(c->context, run, c);
  if (c->status == CUDNN_STATUS_SUCCESS && (!before || ms < e->ms))
    e->ms = ms;
  else
    e->plan = before;
}

/* What the plan may use of the workspace. */
static size_t room_of(const attention_call *c, const entry *e) {
  const size_t used = c->rest + (e->form == GRAPH_SUM ? dq_sum_bytes(c->size) : 0);
  const size_t all = c->context->options.workspace_bytes;
  return all > used ? all - used : 0;
}

/* A plan by a configuration; NULL with NOTHING or TOO_LARGE. */
static outcome make_plan(attention_call *c, entry *e, descriptor config, descriptor *plan) {
  builder *b = &e->built;
  const descriptor made = kern_attention_make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  kern_attention_set(b, made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &c->context->dnn);
  kern_attention_set_descriptor(b, made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  kern_attention_finish(b, made);
  int64_t bytes = 0, n = 0;
  outcome out = NOTHING;
  *plan = NULL;
  if (b->ok && cudnnBackendGetAttribute(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                        &bytes) == CUDNN_STATUS_SUCCESS) {
    out = (size_t)bytes > room_of(c, e) ? TOO_LARGE : FOUND;
    if (out == FOUND) *plan = made;
  }
  b->ok = true; /* another may do */
  return out;
}

/* The best of the graph's plans that fit, of those with or without the note that sums have any order. While the context
 * is tuning they are timed, else the first is taken. */
static outcome find_plan(attention_call *c, entry *e, const descriptor *configs, int count, bool any_order) {
  builder *b = &e->built;
  outcome out = NOTHING;
  for (int i = 0; i < count && (!e->plan || c->context->tuning); i++) {
    if (has_any_order_note(b, configs[i]) != any_order || !b->ok) continue;
    descriptor plan;
    const outcome now = make_plan(c, e, configs[i], &plan);
    if (now == TOO_LARGE) out = TOO_LARGE;
    if (now != FOUND) continue;
    if (c->context->tuning)
      keep_fastest(c, e, plan);
    else
      e->plan = plan;
    if (e->plan == plan) e->config = configs[i];
  }
  if (!e->plan) return out;
  e->any_order = any_order || e->form == GRAPH_SUM;
  return FOUND;
}

static bool make_graph(const attention_call *c, entry *e) {
  builder *b = &e->built;
  kern_attention_destroy_from(b, 0);
  *b = (builder){.ok = true};
  kern_attention_say(b, e);
  e->graph = kern_attention_make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  kern_attention_set(b, e->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &c->context->dnn);
  kern_attention_set(b, e->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->operation_count,
                     b->operations);
  kern_attention_finish(b, e->graph);
  return b->ok;
}

static outcome build(attention_call *c, entry *e) {
  builder *b = &e->built;
  if (!make_graph(c, e)) return NOTHING;
  static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  outcome out = NOTHING;
  for (int m = 0; m < 2 && out != FOUND; m++) {
    descriptor configs[MAX_PLANS];
    const int count = configs_of(b, e->graph, modes[m], configs);
    b->ok = true;
    for (int any_order = 0; any_order < 2 && out != FOUND; any_order++) {
      const outcome now = find_plan(c, e, configs, count, any_order);
      if (now > out) out = now;
    }
  }
  return out;
}

/* Leaves e->plan NULL where cuDNN has no such form. */
static void try_form(attention_call *c, entry *e, form f) {
  const kern_attention *s = c->size;
  e->form = f;
  e->batch = s->batch;
  e->heads = s->heads;
  c->entry = e;
  if (e->key.backward && f == GRAPH) first_go(s, &e->batch, &e->heads);
  while (build(c, e) == TOO_LARGE && e->key.backward && f == GRAPH && go_smaller(s, &e->batch, &e->heads))
    ;
  if (!e->plan) kern_attention_destroy_from(&e->built, 0);
}

/* Takes the form's plan where it is faster than the one there is. */
static void challenge(attention_call *c, entry *e, form f) {
  entry *other = calloc(1, sizeof *other);
  if (!other) return; /* then it stays as it is */
  other->key = e->key;
  try_form(c, other, f);
  if (other->plan && other->ms < e->ms) {
    const entry slower = *e;
    *e = *other;
    *other = slower;
  }
  kern_attention_destroy_from(&other->built, 0);
  free(other);
  c->entry = e;
}

/* Leaves e->plan NULL where cuDNN has no way. */
static void decide(attention_call *c, entry *e) {
  static const form of_forward[] = {GRAPH, ONE_OPERATION}, of_backward[] = {GRAPH, GRAPH_SUM},
                    in_any_order[] = {GRAPH_SUM, GRAPH};
  const bool any_order = e->key.any_order;
  const form *forms = any_order ? in_any_order : e->key.backward ? of_backward : of_forward;
  try_form(c, e, forms[0]);
  if (!e->plan)
    try_form(c, e, forms[1]);
  else if (any_order && c->context->tuning)
    challenge(c, e, forms[1]);
}

/* ---- what is remembered: "own", or the form, the batch and heads of a go, and the engine ---- */

typedef struct attempt {
  attention_call *call;
  entry *entry;
} attempt;

static const char *const form_names[] = {"graph", "sum", "operation"}; /* as `form` */

static bool restore_plan(attention_call *c, entry *e, const char *words) {
  builder *b = &e->built;
  if (!make_graph(c, e)) return false;
  e->config = kern_cuda_engine_of(e->graph, words);
  if (!e->config) return false;
  if (b->made_count == MAX_DESCRIPTORS) {
    (void)cudnnBackendDestroyDescriptor(e->config);
    return false;
  }
  b->made[b->made_count++] = e->config;
  e->any_order = has_any_order_note(b, e->config) || e->form == GRAPH_SUM;
  return make_plan(c, e, e->config, &e->plan) == FOUND;
}

static bool restore(void *data, const char *words) {
  const attempt *at = data;
  entry *e = at->entry;
  const kern_attention *s = at->call->size;
  uint64_t batch, heads;
  if (kern_cuda_take_word(&words, "own")) return !*words;
  e->form = 0;
  while (e->form <= ONE_OPERATION && !kern_cuda_take_word(&words, form_names[e->form])) e->form++;
  if (e->form > ONE_OPERATION || (e->form != GRAPH && (e->form == GRAPH_SUM) != (e->key.backward != 0))) return false;
  if (!kern_cuda_take_number(&words, 10, &batch) || !kern_cuda_take_number(&words, 10, &heads) || batch < 1 ||
      heads < 1 || (uint64_t)s->batch % batch != 0 || (uint64_t)s->heads % heads != 0)
    return false;
  e->batch = (int64_t)batch;
  e->heads = (int64_t)heads;
  if (restore_plan(at->call, e, words)) return true;
  kern_attention_destroy_from(&e->built, 0);
  e->plan = NULL;
  return false;
}

static bool choose_anew(void *data, char words[KERN_CUDA_WAY_BYTES]) {
  const attempt *at = data;
  const entry *e = at->entry;
  decide(at->call, at->entry);
  if (!e->plan) {
    (void)snprintf(words, KERN_CUDA_WAY_BYTES, "own");
    return true;
  }
  const int length = snprintf(words, KERN_CUDA_WAY_BYTES, "%s %lld %lld ", form_names[e->form], (long long)e->batch,
                              (long long)e->heads);
  return kern_cuda_engine_tell(e->graph, e->config, words + length, (size_t)(KERN_CUDA_WAY_BYTES - length));
}

/* The plans depend on the whole workspace, too. */
static void choose(attention_call *c, entry *e, kern_cuda_key words) {
  attempt at = {c, e};
  const kern_cuda_chooser chooser = {restore, choose_anew, &at};
  words.words[KERN_CUDA_KEY_WORDS - 1] = (int64_t)c->context->options.workspace_bytes;
  kern_cuda_choose(c->context, "attention", &words, &chooser);
}

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
  choose(c, e, words);
  return e;
}

/* False: our own kernels must. */
static bool run_cudnn(attention_call *c, const attention_key *key) {
  entry *e = entry_of(c, key);
  if (!e || !e->plan) return false;
  c->entry = e;
  run(c);
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
  (void)snprintf(out, bytes, "attention: %d sizes with cuDNN (%d with sums in any order), %d that it does not take",
                 t.cudnn, t.any_order, t.own);
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
  if (is_for_cudnn(context, &s, false) && is_aligned(q) && is_aligned(k) && is_aligned(v) && is_aligned(y) &&
      is_aligned(lse)) {
    attention_call c = {.context = context, .size = &s, .q = q, .k = k, .v = v, .y = y, .lse = lse};
    const attention_key key = key_of(&s, lse != NULL);
    if (run_cudnn(&c, &key) || kern_cuda_failed(context)) return;
  }
  kern_attention_own_forward(context, &s, q, k, v, y, lse);
}

void kern_cuda_attention_backward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                  const void *v, const void *y, const float *lse, const void *dy, void *dq, void *dk,
                                  void *dv, bool accumulate) {
  const kern_attention s = with_strides(size);
  const int64_t width = s.heads * s.head_dim;
  if (kern_cuda_failed(context) || s.batch * width == 0 || (!dq && !dk && !dv) || is_too_wide(context, &s)) return;
  if (is_for_cudnn(context, &s, true) && is_aligned(q) && is_aligned(k) && is_aligned(v) && is_aligned(y) &&
      is_aligned(lse) && is_aligned(dy) && is_aligned(dq) && is_aligned(dk) && is_aligned(dv)) {
    const parts p = parts_of(&s);
    char *workspace = context->options.workspace;
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
                        .rest = p.rest};
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
  kern_attention_own_backward(context, &s, q, k, v, y, lse, dy, dq, dk, dv, accumulate);
}
