/* Which of cuDNN's plans attention of a size runs on: those of each form that fit into the workspace, by timing where
 * the context is tuning, and then against our own kernel of few keys; and in which words that is remembered. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/attention_graph.h"
#include "kernels/cuda/engine.h"

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
  const float ms = kern_cuda_time_ms(c->context, kern_attention_run, c);
  if (c->status == CUDNN_STATUS_SUCCESS && (!before || ms < e->ms))
    e->ms = ms;
  else
    e->plan = before;
  (void)cudaGetLastError(); /* of what could not be launched */
}

/* What the plan may use of the workspace. */
static size_t room_of(const attention_call *c, const entry *e) {
  const size_t used = c->rest + (e->form == GRAPH_SUM ? kern_attention_dq_sum_bytes(c->size) : 0);
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

/* Of a gradient only where the call says so; in forward no sum is more than one block's. */
static bool may_have_any_order(const entry *e) { return !e->key.backward || e->key.any_order; }

static outcome build(attention_call *c, entry *e) {
  builder *b = &e->built;
  if (!make_graph(c, e)) return NOTHING;
  static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  outcome out = NOTHING;
  for (int m = 0; m < 2 && out != FOUND; m++) {
    descriptor configs[MAX_PLANS];
    const int count = configs_of(b, e->graph, modes[m], configs);
    b->ok = true;
    for (int any_order = 0; any_order <= may_have_any_order(e) && out != FOUND; any_order++) {
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
  if (e->key.backward && f == GRAPH) kern_attention_first_go(s, &e->batch, &e->heads);
  while (build(c, e) == TOO_LARGE && e->key.backward && f == GRAPH &&
         kern_attention_go_smaller(s, &e->batch, &e->heads))
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
static void decide_plan(attention_call *c, entry *e) {
  if (!e->key.any_order) {
    try_form(c, e, GRAPH);
    if (!e->plan && !e->key.backward) try_form(c, e, ONE_OPERATION);
    return;
  }
  try_form(c, e, GRAPH_SUM);
  if (!e->plan)
    try_form(c, e, GRAPH);
  else if (c->context->tuning)
    challenge(c, e, GRAPH);
}

static void decide(attention_call *c, entry *e) {
  decide_plan(c, e);
  if (!c->few || !e->plan || !c->context->tuning) return;
  if (kern_cuda_time_ms(c->context, kern_attention_run_few, c) >= e->ms) return;
  e->plan = NULL;
  kern_attention_destroy_from(&e->built, 0);
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
  if (e->any_order && !may_have_any_order(e)) return false;
  if (make_plan(c, e, e->config, &e->plan) != FOUND) return false;
  kern_attention_run(c); /* which a part of a device with other clusters may refuse; it may be run twice */
  if (c->status == CUDNN_STATUS_SUCCESS) return true;
  (void)cudaGetLastError();
  return false;
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

/* The plans depend on the whole workspace, too. Where there is more to choose from it is another kind. */
void kern_attention_choose(attention_call *c, entry *e, kern_cuda_key words) {
  attempt at = {c, e};
  const kern_cuda_chooser chooser = {restore, choose_anew, &at};
  words.words[KERN_CUDA_KEY_WORDS - 1] = (int64_t)c->context->options.workspace_bytes;
  kern_cuda_choose(c->context, c->few ? "attention-few" : "attention", &words, &chooser);
}
