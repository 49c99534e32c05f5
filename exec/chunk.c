#include "exec/chunk.h"

#include <string.h>

#include "base/clock.h"
#include "exec/ops.h"

/* Shapes and attributes alone. */
static exec_call shape_of(const graph *g, const graph_op *op, const exec_lora *adapters) {
  exec_call c = {.graph = g, .op = op};
  for (int i = 0; i < op->input_count; i++) c.in[i] = &g->tensors.items[op->inputs[i]];
  for (int i = 0; i < op->output_count; i++) c.out[i] = &g->tensors.items[op->outputs[i]];
  const exec_lora *adapter = adapters ? &adapters[op - g->ops.items] : NULL;
  if (adapter && adapter->rank > 0) c.adapter = adapter;
  return c;
}

static exec_call call_of(const exec_chunk *chunk, const exec_frame *frame, int op_index) {
  const graph_op *op = &chunk->graph->ops.items[op_index];
  exec_call c = shape_of(chunk->graph, op, chunk->adapters);
  c.kern = chunk->kern;
  c.statistics = frame->statistics[op_index];
  for (int i = 0; i < op->input_count; i++) c.x[i] = frame->values[frame->root[op->inputs[i]]];
  for (int i = 0; i < op->output_count; i++) c.y[i] = frame->values[frame->root[op->outputs[i]]];
  for (int w = 0; w < op->weight_count; w++) {
    c.w[w] = exec_parameters_value(chunk->parameters, op->first_weight + w);
    c.dw[w] = exec_parameters_gradient(chunk->parameters, op->first_weight + w);
  }
  return c;
}

size_t exec_chunk_workspace(const graph *g, int first_unit, int unit_count, int threads) {
  size_t most = 0;
  for (int u = first_unit; u < first_unit + unit_count; u++) {
    const graph_unit *unit = &g->units.items[u];
    for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++) {
      const exec_call c = shape_of(g, &g->ops.items[o], NULL);
      const exec_op_row *row = &exec_op_rows[c.op->kind];
      const size_t bytes = row->workspace ? row->workspace(&c, threads) : 0;
      if (bytes > most) most = bytes;
    }
  }
  return most;
}

dp_status exec_chunk_check(const exec_chunk *chunk, dp_error *error) {
  for (int o = chunk->first_op; o < chunk->first_op + chunk->op_count; o++) {
    const graph_op *op = &chunk->graph->ops.items[o];
    if (!exec_op_rows[op->kind].forward)
      return dp_fail(error, DP_UNSUPPORTED, "%s: the CPU has no arithmetic for %s", op->name,
                     graph_op_kind_name(op->kind));
  }
  return DP_OK;
}

/* ---- frames ---- */

static float *floats(exec_frame *frame, size_t count, bool *failed) {
  float *made = DP_ARENA_NEW(&frame->arena, float, count ? count : 1);
  *failed = *failed || !made;
  return made;
}

static void place(exec_frame *frame, const graph *g, int tensor, bool gradient, bool *failed) {
  const graph_tensor *t = &g->tensors.items[tensor];
  if (!frame->values[tensor] && t->producer_op != GRAPH_NONE)
    frame->values[tensor] = floats(frame, (size_t)graph_tensor_elements(t), failed);
  if (gradient && !frame->gradients[tensor])
    frame->gradients[tensor] = floats(frame, (size_t)graph_tensor_elements(t), failed);
}

dp_status exec_frame_add(exec_frame *frame, const graph *g, int tensor, bool gradient, dp_error *error) {
  bool failed = false;
  place(frame, g, frame->root[tensor], gradient && g->tensors.items[tensor].needs_gradient, &failed);
  return failed ? dp_fail_memory(error) : DP_OK;
}

static void place_op(exec_frame *frame, const graph *g, int o, const exec_lora *adapters, bool gradients,
                     bool *failed) {
  const graph_op *op = &g->ops.items[o];
  const exec_call c = shape_of(g, op, adapters);
  const exec_op_row *row = &exec_op_rows[op->kind];
  const size_t count = row->statistics ? row->statistics(&c) : 0;
  if (count) frame->statistics[o] = floats(frame, count, failed);
  for (int i = 0; i < op->input_count + op->output_count; i++) {
    const int tensor = frame->root[i < op->input_count ? op->inputs[i] : op->outputs[i - op->input_count]];
    /* attention makes all three of its gradients at once, wanted or not */
    const bool wanted = g->tensors.items[tensor].needs_gradient || op->kind == GRAPH_ATTENTION;
    place(frame, g, tensor, gradients && wanted, failed);
  }
}

dp_status exec_frame_init(const graph *g, const uint8_t *here, const exec_lora *adapters, bool gradients,
                          exec_frame *frame, dp_error *error) {
  *frame = (exec_frame){.values = NULL};
  frame->root = DP_ARENA_NEW(&frame->arena, int, g->tensors.count);
  frame->values = DP_ARENA_NEW(&frame->arena, float *, g->tensors.count);
  frame->gradients = DP_ARENA_NEW(&frame->arena, float *, g->tensors.count);
  frame->begun = DP_ARENA_NEW(&frame->arena, uint8_t, g->tensors.count);
  frame->statistics = DP_ARENA_NEW(&frame->arena, float *, g->ops.count);
  bool failed = !frame->root || !frame->values || !frame->gradients || !frame->begun || !frame->statistics;
  for (size_t t = 0; t < g->tensors.count && !failed; t++) { /* inputs come before what is made of them */
    const graph_tensor *tensor = &g->tensors.items[t];
    const bool shows = tensor->producer_op != GRAPH_NONE && g->ops.items[tensor->producer_op].kind == GRAPH_RESHAPE &&
                       (!here || here[tensor->producer_unit]);
    frame->root[t] = shows ? frame->root[g->ops.items[tensor->producer_op].inputs[0]] : (int)t;
  }
  for (size_t o = 0; o < g->ops.count && !failed; o++)
    if (!here || here[g->ops.items[o].unit]) place_op(frame, g, (int)o, adapters, gradients, &failed);
  if (!failed) return DP_OK;
  exec_frame_free(frame);
  return dp_fail_memory(error);
}

void exec_frame_free(exec_frame *frame) {
  dp_arena_free(&frame->arena);
  memset(frame, 0, sizeof *frame);
}

void exec_frame_clear(exec_frame *frame, const graph *g) { memset(frame->begun, 0, g->tensors.count); }

/* ---- passes ---- */

/* An op's time is all that its turn takes, from looking up its operands on. */
static double begin(const exec_chunk *chunk) { return chunk->observer && chunk->observer->on ? dp_clock_s() : 0; }

static void tell(const exec_chunk *chunk, int op, plan_direction direction, double start_s) {
  const exec_observer *observer = chunk->observer;
  if (observer && observer->on) observer->note(observer->data, chunk->worker, op, direction, dp_clock_s() - start_s);
}

void exec_chunk_forward(const exec_chunk *chunk, exec_frame *frame) {
  for (int o = chunk->first_op; o < chunk->first_op + chunk->op_count; o++) {
    const double start_s = begin(chunk);
    const exec_call c = call_of(chunk, frame, o);
    exec_op_rows[c.op->kind].forward(&c);
    tell(chunk, o, PLAN_DIRECTION_FORWARD, start_s);
  }
}

/* Fills in gradients of outputs; false: none has reached any. */
static bool look_up_outputs(const exec_frame *frame, exec_call *c) {
  bool any = false;
  for (int i = 0; i < c->op->output_count; i++) {
    const int tensor = frame->root[c->op->outputs[i]];
    if (!frame->begun[tensor]) continue;
    c->dy[i] = frame->gradients[tensor];
    any = true;
  }
  return any;
}

void exec_chunk_backward_input(const exec_chunk *chunk, exec_frame *frame) {
  for (int o = chunk->first_op + chunk->op_count - 1; o >= chunk->first_op; o--) {
    const double start_s = begin(chunk);
    exec_call c = call_of(chunk, frame, o);
    const exec_op_row *row = &exec_op_rows[c.op->kind];
    if (c.op->kind == GRAPH_RESHAPE || !row->backward_input || !look_up_outputs(frame, &c)) continue;
    for (int i = 0; i < c.op->input_count; i++) {
      const int tensor = frame->root[c.op->inputs[i]];
      if (!frame->gradients[tensor]) continue;
      c.dx[i] = frame->gradients[tensor];
      c.add[i] = frame->begun[tensor];
    }
    row->backward_input(&c);
    for (int i = 0; i < c.op->input_count; i++)
      if (c.dx[i]) frame->begun[frame->root[c.op->inputs[i]]] = 1;
    tell(chunk, o, PLAN_DIRECTION_BACKWARD_INPUT, start_s);
  }
}

void exec_chunk_backward_weight(const exec_chunk *chunk, exec_frame *frame) {
  for (int o = chunk->first_op + chunk->op_count - 1; o >= chunk->first_op; o--) {
    const double start_s = begin(chunk);
    exec_call c = call_of(chunk, frame, o);
    const exec_op_row *row = &exec_op_rows[c.op->kind];
    if (!row->backward_weight || !look_up_outputs(frame, &c)) continue;
    row->backward_weight(&c);
    tell(chunk, o, PLAN_DIRECTION_BACKWARD_WEIGHT, start_s);
  }
}
