#include "graph/liveness.h"

#include <stdlib.h>

#include "graph/checked.h"
#include "graph/op_table.h"

enum { KEEP_SAVED = 1, KEEP_LEAVES = 2 };

/* A range of units and its ops [op_first, op_last). */
typedef struct range {
  int first, last, op_first, op_last;
} range;

static range range_of(const graph *g, int first, int count) {
  const graph_unit *units = g->units.items;
  return (range){first, first + count, count > 0 ? units[first].first_op : 0,
                 count > 0 ? units[first + count - 1].first_op + units[first + count - 1].op_count : 0};
}

dp_status graph_liveness_init(const graph *g, graph_liveness *liveness, dp_error *error) {
  const size_t count = g->tensors.count + 1;
  *liveness = (graph_liveness){.graph = g,
                               .last_use = malloc(count * sizeof(int)),
                               .buffer = malloc(count * sizeof(int)),
                               .holders = malloc(count * sizeof(int)),
                               .keep = malloc(count)};
  if (liveness->last_use && liveness->buffer && liveness->holders && liveness->keep) return DP_OK;
  graph_liveness_free(liveness);
  return dp_fail_memory(error);
}

void graph_liveness_free(graph_liveness *liveness) {
  free(liveness->last_use);
  free(liveness->buffer);
  free(liveness->holders);
  free(liveness->keep);
  *liveness = (graph_liveness){0};
}

int graph_liveness_root(const graph *g, int tensor, int first, int last) {
  const graph_tensor *t = &g->tensors.items[tensor];
  while (t->view_of != GRAPH_NONE && t->producer_unit >= first && t->producer_unit < last) {
    tensor = t->view_of;
    t = &g->tensors.items[tensor];
  }
  return tensor;
}

static bool leaves(const graph_tensor *t, const range *r) {
  return t->is_output || (t->consumer_unit_count > 0 && t->consumer_units[t->consumer_unit_count - 1] >= r->last);
}

static void reset(graph_liveness *l, int tensor) {
  for (;; tensor = l->graph->tensors.items[tensor].view_of) {
    l->last_use[tensor] = l->buffer[tensor] = GRAPH_NONE;
    l->holders[tensor] = 0;
    l->keep[tensor] = 0;
    if (l->graph->tensors.items[tensor].view_of == GRAPH_NONE) return;
  }
}

/* Who is read last by which op, what is saved, what leaves. */
static void scan(graph_liveness *l, const range *r) {
  const graph *g = l->graph;
  for (int o = r->op_first; o < r->op_last; o++) {
    const graph_op *op = &g->ops.items[o];
    for (int i = 0; i < op->input_count; i++) reset(l, op->inputs[i]);
    for (int i = 0; i < op->output_count; i++) reset(l, op->outputs[i]);
  }
  for (int o = r->op_first; o < r->op_last; o++) {
    const graph_op *op = &g->ops.items[o];
    for (int i = 0; i < op->input_count; i++) l->last_use[graph_liveness_root(g, op->inputs[i], r->first, r->last)] = o;
    for (int i = 0; i < op->saved_count; i++)
      l->keep[graph_liveness_root(g, op->saved[i], r->first, r->last)] |= KEEP_SAVED;
    for (int i = 0; i < op->output_count; i++)
      if (leaves(&g->tensors.items[op->outputs[i]], r))
        l->keep[graph_liveness_root(g, op->outputs[i], r->first, r->last)] |= KEEP_LEAVES;
  }
}

static int64_t forward_peak(const graph_liveness *l, const range *r, uint8_t excluded) {
  const graph *g = l->graph;
  int64_t live = 0, peak = 0;
  for (int o = r->op_first; o < r->op_last; o++) {
    const graph_op *op = &g->ops.items[o];
    if (graph_op_has(op, GRAPH_OP_VIEW)) continue;
    for (int i = 0; i < op->output_count; i++) {
      const int t = op->outputs[i];
      if ((l->keep[t] & excluded) == 0 && !g->tensors.items[t].fused_away)
        live = graph_add(live, g->tensors.items[t].bytes);
    }
    if (live > peak) peak = live;
    /* A tensor dies at its last reader; one that nobody reads dies at once. */
    for (int i = 0; i < op->output_count; i++)
      if (l->last_use[op->outputs[i]] == GRAPH_NONE && (l->keep[op->outputs[i]] & excluded) == 0)
        live -= g->tensors.items[op->outputs[i]].bytes;
    for (int i = 0; i < op->input_count; i++) {
      const int t = graph_liveness_root(g, op->inputs[i], r->first, r->last);
      const graph_tensor *tensor = &g->tensors.items[t];
      bool seen = false;
      for (int j = 0; j < i; j++) seen = seen || graph_liveness_root(g, op->inputs[j], r->first, r->last) == t;
      const bool made_here = tensor->producer_op >= r->op_first && tensor->producer_op < r->op_last;
      if (!seen && made_here && l->last_use[t] == o && (l->keep[t] & excluded) == 0 && !g->tensors.items[t].fused_away)
        live -= tensor->bytes;
    }
  }
  return peak;
}

/* Gives the gradient of `tensor` a buffer of its own. */
static void hold(graph_liveness *l, int tensor, int64_t *live) {
  l->buffer[tensor] = tensor;
  l->holders[tensor] = 1;
  *live = graph_add(*live, l->graph->tensors.items[tensor].bytes);
}

static int64_t backward_peak(graph_liveness *l, const range *r) {
  const graph *g = l->graph;
  int64_t live = 0, peak = 0;
  for (int o = r->op_first; o < r->op_last; o++) { /* gradients that come in from later units or the loss */
    const graph_op *op = &g->ops.items[o];
    for (int i = 0; i < op->output_count; i++) {
      const int t = graph_liveness_root(g, op->outputs[i], r->first, r->last);
      if ((l->keep[t] & KEEP_LEAVES) && l->buffer[t] == GRAPH_NONE && g->tensors.items[t].needs_gradient)
        hold(l, t, &live);
    }
  }
  peak = live;
  for (int o = r->op_last - 1; o >= r->op_first; o--) {
    const graph_op *op = &g->ops.items[o];
    if (graph_op_has(op, GRAPH_OP_VIEW) || op->output_count != 1) continue;
    const int output = op->outputs[0], buffer = l->buffer[output];
    if (buffer == GRAPH_NONE) continue; /* nobody wants its gradient */
    for (int i = 0; i < op->input_count; i++) {
      const int t = graph_liveness_root(g, op->inputs[i], r->first, r->last);
      const graph_tensor *tensor = &g->tensors.items[t];
      if (!tensor->needs_gradient || l->buffer[t] != GRAPH_NONE) continue;
      const bool same = tensor->bytes == g->tensors.items[output].bytes;
      if (tensor->fused_away || (graph_op_has(op, GRAPH_OP_SHARES_GRADIENT) && (same || op->kind == GRAPH_CONCAT))) {
        l->buffer[t] = buffer;
        l->holders[buffer]++;
      } else {
        hold(l, t, &live);
      }
    }
    if (live > peak) peak = live;
    if (--l->holders[buffer] == 0) live -= g->tensors.items[buffer].bytes;
  }
  return peak;
}

graph_transients graph_liveness_transients(graph_liveness *l, int first, int count) {
  const range r = range_of(l->graph, first, count);
  graph_transients transients;
  scan(l, &r);
  transients.forward_bytes = forward_peak(l, &r, KEEP_SAVED | KEEP_LEAVES);
  transients.inference_bytes = forward_peak(l, &r, KEEP_LEAVES);
  transients.backward_bytes = backward_peak(l, &r);
  return transients;
}

dp_status graph_transient_bytes(const graph *g, int first, int count, graph_transients *transients, dp_error *error) {
  graph_liveness liveness;
  DP_TRY(graph_liveness_init(g, &liveness, error));
  *transients = graph_liveness_transients(&liveness, first, count);
  graph_liveness_free(&liveness);
  return DP_OK;
}

void graph_liveness_unit(graph_liveness *l, graph_unit *units, int unit) {
  const graph *g = l->graph;
  graph_unit *u = &units[unit];
  const range r = range_of(g, unit, 1);
  const graph_transients transients = graph_liveness_transients(l, unit, 1);
  u->forward_transient_bytes = transients.forward_bytes;
  u->inference_transient_bytes = transients.inference_bytes;
  u->backward_transient_bytes = transients.backward_bytes;
  u->output_bytes = u->input_bytes = u->saved_extra_bytes = 0;
  for (int o = r.op_first; o < r.op_last; o++) {
    const graph_op *op = &g->ops.items[o];
    u->saved_extra_bytes = graph_add(u->saved_extra_bytes, op->saved_extra_bytes);
    for (int i = 0; i < op->output_count; i++)
      if (leaves(&g->tensors.items[op->outputs[i]], &r))
        u->output_bytes = graph_add(u->output_bytes, g->tensors.items[op->outputs[i]].bytes);
  }
  u->saved_bytes = u->saved_extra_bytes;
  /* last_use and buffer are free again: use them to count every tensor once */
  for (int o = r.op_first; o < r.op_last; o++) {
    const graph_op *op = &g->ops.items[o];
    for (int i = 0; i < op->saved_count; i++) l->buffer[op->saved[i]] = GRAPH_NONE;
    for (int i = 0; i < op->input_count; i++) l->last_use[op->inputs[i]] = GRAPH_NONE;
  }
  for (int o = r.op_first; o < r.op_last; o++) {
    const graph_op *op = &g->ops.items[o];
    for (int i = 0; i < op->saved_count; i++) {
      const int t = op->saved[i];
      if (l->buffer[t] == GRAPH_NONE) u->saved_bytes = graph_add(u->saved_bytes, g->tensors.items[t].bytes);
      l->buffer[t] = t;
    }
    for (int i = 0; i < op->input_count; i++) {
      const int t = op->inputs[i];
      const graph_tensor *tensor = &g->tensors.items[t];
      if (l->last_use[t] == GRAPH_NONE && tensor->producer_unit != unit && !tensor->is_constant)
        u->input_bytes = graph_add(u->input_bytes, tensor->bytes);
      l->last_use[t] = o;
    }
  }
}
