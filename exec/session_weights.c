/* The weights of a session: first ones, from a folder of diffusers or drawn; and the folder or adapters that come out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "exec/adapter.h"
#include "exec/checkpoint_model.h"
#include "exec/lanes.h"
#include "exec/session_parts.h"
#include "exec/tables.h"
#include "graph/op_table.h"

/* ---- first weights ---- */

/* FNV-1a of a name: each weight has a stream of its own, whatever the plan. */
static uint64_t stream_of(const char *name) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
  return hash;
}

static const uint64_t weights_key = UINT64_C(0x7765696768747321);

static void draw(uint64_t seed, const char *name, double bound, int64_t n, float *out) {
  dp_random random;
  dp_random_init(&random, seed ^ weights_key, stream_of(name));
  for (int64_t i = 0; i < n; i++) out[i] = (float)((2 * dp_random_uniform(&random) - 1) * bound);
}

/* In the layout of files. */
static void draw_weight(const exec_session *s, const graph_op *op, int weight, float *out) {
  const graph_weight *w = &s->graph->weights.items[weight], *first = &s->graph->weights.items[op->first_weight];
  if (first->rank < 2) { /* of a norm */
    for (int64_t i = 0; i < w->parameters; i++) out[i] = dp_ends_with(w->name, ".bias") ? 0 : 1;
    return;
  }
  draw(s->seed, w->name, 1 / sqrt((double)(first->parameters / first->dims[0])), w->parameters, out);
}

static dp_status draw_lora(exec_session *s, int worker, int op, dp_error *error) {
  const exec_parameters *p = exec_session_parameters(s, worker);
  const int64_t in = s->graph->ops.items[op].attributes.in_channels, n = p->lora[op].rank * in;
  if (n == 0) return DP_OK;
  float *a = malloc((size_t)n * sizeof *a);
  if (!a) return dp_fail_memory(error);
  draw(s->seed, s->graph->ops.items[op].name, 1 / sqrt((double)in), n, a);
  const dp_status status = exec_pipeline_write(s->pipeline, worker, EXEC_VALUES, p->lora_offset[op], n, a, error);
  free(a);
  return status;
}

static int64_t largest_weight(const graph *g) {
  int64_t most = 1;
  for (size_t w = 0; w < g->weights.count; w++)
    if (g->weights.items[w].parameters > most) most = g->weights.items[w].parameters;
  return most;
}

static dp_status fill_worker(exec_session *s, int worker, const exec_weights *weights, float *file, dp_error *error) {
  const graph *g = s->graph;
  exec_parameters *p = exec_session_parameters(s, worker);
  for (size_t o = 0; o < g->ops.count; o++) {
    const graph_op *op = &g->ops.items[o];
    for (int w = op->first_weight; w < op->first_weight + op->weight_count; w++) {
      if (!exec_parameters_value(p, w)) continue;
      if (weights)
        DP_TRY(exec_weights_read(weights, w, file, error));
      else
        draw_weight(s, op, w, file);
      DP_TRY(exec_pipeline_write_weight(s->pipeline, worker, EXEC_VALUES, w, file, error));
    }
    if (p->lora) DP_TRY(draw_lora(s, worker, (int)o, error));
  }
  return DP_OK;
}

dp_status exec_session_begin_means(exec_session *s, dp_error *error) {
  enum { PIECE = 1 << 20 };
  float *piece = malloc(PIECE * sizeof *piece);
  dp_status status = piece ? DP_OK : dp_fail_memory(error);
  for (int w = 0; w < s->program->worker_count; w++) {
    const exec_parameters *p = exec_session_parameters(s, w);
    for (int64_t at = 0; status == DP_OK && p && p->means && at < p->trained_count; at += PIECE) {
      const int64_t n = p->trained_count - at < PIECE ? p->trained_count - at : PIECE;
      status = exec_pipeline_read(s->pipeline, w, EXEC_VALUES, at, n, piece, error);
      if (status == DP_OK) status = exec_pipeline_write(s->pipeline, w, EXEC_MEANS, at, n, piece, error);
    }
  }
  free(piece);
  return status;
}

static dp_status fill_constants(const graph *g, exec_pipeline *pipeline, int worker, const exec_weights *weights,
                                const dp_node *config, dp_error *error) {
  for (size_t t = 0; t < g->tensors.count; t++) {
    const graph_tensor *tensor = &g->tensors.items[t];
    if (!tensor->is_constant || !exec_pipeline_constant(pipeline, worker, (int)t)) continue;
    const dp_safetensor *buffer = weights ? exec_weights_buffer(weights, tensor->name) : NULL;
    float *constant = malloc((size_t)graph_tensor_elements(tensor) * sizeof *constant);
    dp_status status = constant ? DP_OK : dp_fail_memory(error);
    if (status == DP_OK)
      status = exec_table_fill(g, (int)t, config, weights ? weights->files : NULL, buffer, constant, error);
    if (status == DP_OK) status = exec_pipeline_write_constant(pipeline, worker, (int)t, constant, error);
    free(constant);
    DP_TRY(status);
  }
  return DP_OK;
}

static dp_status fill_all(exec_session *s, const exec_weights *weights, dp_error *error) {
  dp_document config = {0};
  float *file = malloc((size_t)largest_weight(s->graph) * sizeof *file);
  if (!file) return dp_fail_memory(error);
  dp_status status = dp_document_read(s->graph->config_file, &config, error);
  for (int w = 0; status == DP_OK && w < s->program->worker_count; w++) {
    if (!exec_pipeline_has(s->pipeline, w)) continue;
    status = fill_worker(s, w, weights, file, error);
    for (size_t i = 0; status == DP_OK && i < s->options.size_count; i++)
      status = fill_constants(s->options.sizes[i].graph, s->lanes[i].pipeline, w, weights, config.root, error);
  }
  dp_document_free(&config);
  free(file);
  return status;
}

static dp_status open_weights(const exec_session *s, dp_arena *arena, exec_weights *weights, dp_error *error) {
  const char *folder = NULL, *config = NULL;
  DP_TRY(exec_weights_find(s->options.scenario->train.weights, arena, &folder, &config, error));
  return exec_weights_open(folder, s->graph, weights, error);
}

dp_status exec_session_fill(exec_session *s, dp_error *error) {
  if (!s->options.scenario->train.weights) return fill_all(s, NULL, error);
  dp_arena arena = {0};
  exec_weights weights = {0};
  dp_status status = open_weights(s, &arena, &weights, error);
  if (status == DP_OK) status = fill_all(s, &weights, error);
  exec_weights_close(&weights);
  dp_arena_free(&arena);
  return status;
}

/* ---- what comes out: process 0 writes, and gets from the others what it lacks, in the order of the file ---- */

enum { TAG_EXPORT = EXEC_TAG_CONTROL + 64 };

typedef struct exporter {
  exec_session *session;
  bool means;                 /* in the place of trained weights */
  exec_adapter_layer *layers; /* of adapters; NULL: whole weights */
  int count;                  /* of weights, or of layers */
  int next;                   /* that process 0 has not asked for yet */
  float *buffer, *second;     /* the largest weight or factor */
} exporter;

static exec_transport *transport_of(const exporter *e) { return e->session->options.transport; }
static int process_here(const exporter *e) { return exec_process(transport_of(e)); }

/* The worker of the first replica that has it. */
static int owner_of(const exporter *e, int index) {
  const exec_session *s = e->session;
  int unit = 0;
  if (e->layers) {
    unit = s->graph->ops.items[e->layers[index].op].unit;
  } else {
    for (size_t o = 0; o < s->graph->ops.count; o++) {
      const graph_op *op = &s->graph->ops.items[o];
      if (index >= op->first_weight && index < op->first_weight + op->weight_count) unit = op->unit;
    }
  }
  for (int c = 0; c < s->plan->chunk_count; c++) {
    const plan_chunk *chunk = &s->plan->chunks[c];
    if (unit >= chunk->first_unit && unit < chunk->first_unit + chunk->unit_count)
      return plan_worker_of(s->plan, 0, 0, chunk->rank);
  }
  return 0;
}

static size_t floats_of(const exporter *e, int index, int factor) {
  if (!e->layers) return factor ? 0 : (size_t)e->session->graph->weights.items[index].parameters;
  return (size_t)(e->layers[index].rank * (factor ? e->layers[index].out : e->layers[index].in));
}

/* From this process's own worker into the buffers. */
static dp_status take_own(const exporter *e, int index, int worker, dp_error *error) {
  const exec_parameters *p = exec_session_parameters(e->session, worker);
  exec_pipeline *pipeline = e->session->pipeline;
  if (e->layers) {
    const exec_array array = e->means ? EXEC_MEANS : EXEC_VALUES;
    const int64_t a = p->lora_offset[e->layers[index].op], n = (int64_t)floats_of(e, index, 0);
    DP_TRY(exec_pipeline_read(pipeline, worker, array, a, n, e->buffer, error));
    return exec_pipeline_read(pipeline, worker, array, a + n, (int64_t)floats_of(e, index, 1), e->second, error);
  }
  const exec_array array = e->means && p->trained[index] ? EXEC_MEANS : EXEC_VALUES;
  return exec_pipeline_read_weight(pipeline, worker, array, index, e->buffer, error);
}

static dp_status pass(const exporter *e, int peer, int index, dp_error *error) {
  exec_transport *t = transport_of(e);
  for (int f = 0; f < (e->layers ? 2 : 1); f++) {
    float *buffer = f ? e->second : e->buffer;
    const size_t bytes = floats_of(e, index, f) * sizeof *buffer;
    if (process_here(e) == 0)
      DP_TRY(t->receive(t, peer, TAG_EXPORT, buffer, bytes, NULL, error));
    else
      DP_TRY(t->send(t, 0, TAG_EXPORT, buffer, bytes, NULL, error));
  }
  return DP_OK;
}

/* Brings one to process 0. */
static dp_status bring(exporter *e, int index, dp_error *error) {
  const int worker = owner_of(e, index), here = process_here(e);
  const int process = exec_process_of(e->session->pipeline, worker);
  e->next = index + 1;
  if (process == here) DP_TRY(take_own(e, index, worker, error));
  return process != 0 && (process == here || here == 0) ? pass(e, process, index, error) : DP_OK;
}

static dp_status give_weight(void *context, int weight, const float **values, dp_error *error) {
  exporter *e = context;
  DP_TRY(bring(e, weight, error));
  *values = e->buffer;
  return DP_OK;
}

static dp_status give_layer(void *context, int layer, const float **a, const float **b, dp_error *error) {
  exporter *e = context;
  DP_TRY(bring(e, layer, error));
  *a = e->buffer;
  *b = e->second;
  return DP_OK;
}

static dp_status write_weights(exporter *e, const char *path, dp_error *error) {
  dp_arena arena = {0};
  exec_weights start = {0};
  exec_weights_form form = {.config_path = e->session->graph->config_file};
  dp_error unread = DP_ERROR_INIT;
  /* buffers go back as they were, if they are still there; diffusers computes those that are missing */
  if (e->session->options.scenario->train.weights && open_weights(e->session, &arena, &start, &unread) == DP_OK) {
    form.buffers = start.buffers;
    form.buffer_count = start.buffer_count;
  }
  const dp_status status = exec_weights_write(path, e->session->graph, &form, give_weight, e, NULL, error);
  exec_weights_close(&start);
  dp_arena_free(&arena);
  return status;
}

static double alpha_of(const exec_session *s) {
  const double alpha = s->options.scenario->train.lora_alpha;
  return alpha > 0 ? alpha : (double)s->options.scenario->model_options.lora_rank;
}

static dp_status write(exporter *e, const char *path, dp_error *error) {
  dp_status status = DP_OK;
  if (process_here(e) == 0)
    status = e->layers ? exec_adapter_write(path, e->session->graph, alpha_of(e->session), give_layer, e, NULL, error)
                       : write_weights(e, path, error);
  /* the others give in the same order; where process 0 has failed, it takes what is still sent */
  while (e->next < e->count) {
    const dp_status brought = bring(e, e->next, status == DP_OK ? error : NULL);
    if (brought == DP_OK) continue;
    if (status == DP_OK) status = brought;
    break;
  }
  return exec_agree(transport_of(e), status, error);
}

static dp_status make_exporter(exec_session *s, dp_arena *arena, exporter *e, dp_error *error) {
  *e = (exporter){.session = s, .count = (int)s->graph->weights.count};
  size_t most = (size_t)largest_weight(s->graph);
  if (s->lora) {
    DP_TRY(exec_adapter_layers(s->graph, arena, &e->layers, &e->count, error));
    most = 1;
    for (int l = 0; l < e->count; l++)
      for (int f = 0; f < 2; f++)
        if (floats_of(e, l, f) > most) most = floats_of(e, l, f);
  }
  e->buffer = DP_ARENA_NEW(arena, float, most);
  e->second = DP_ARENA_NEW(arena, float, s->lora ? most : 1);
  return e->buffer && e->second ? DP_OK : dp_fail_memory(error);
}

dp_status exec_session_export(exec_session *s, dp_error *error) {
  static const char *const names[] = {"model", "model-ema"};
  dp_arena arena = {0};
  exporter e;
  dp_status status = exec_agree(s->options.transport, make_exporter(s, &arena, &e, error), error);
  for (int m = 0; m < (s->means ? 2 : 1) && status == DP_OK; m++) {
    const char *path = dp_arena_printf(&arena, "%s/%s", s->options.folder, names[m]);
    e.means = m == 1;
    e.next = 0;
    status = exec_agree(s->options.transport, path ? DP_OK : dp_fail_memory(error), error);
    if (status == DP_OK) status = write(&e, path, error);
  }
  dp_arena_free(&arena);
  return status;
}
