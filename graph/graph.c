#include "graph/graph.h"

#include "graph/checked.h"

int64_t graph_dtype_bytes(graph_dtype dtype) { return dtype == GRAPH_FP32 ? 4 : 2; }

const char *const graph_dtype_names[] = {
    [GRAPH_FP32] = "fp32", [GRAPH_FP16] = "fp16", [GRAPH_BF16] = "bf16", [GRAPH_DTYPE_COUNT] = NULL};

const char *graph_dtype_name(graph_dtype dtype) { return graph_dtype_names[dtype]; }

void graph_free(graph *g) {
  dp_array_free(&g->tensors);
  dp_array_free(&g->ops);
  dp_array_free(&g->units);
  dp_array_free(&g->weights);
  dp_arena_free(&g->arena);
  *g = (struct graph){0};
}

/* Some unit of the ascending list lies in [first, last) and passes the filter: flag (its recompute flag) == wanted. */
static bool any_unit(const int *units, int count, int first, int last, int other_than, const uint8_t *recompute,
                     bool wanted) {
  for (int i = 0; i < count && units[i] < last; i++)
    if (units[i] >= first && units[i] != other_than && (recompute != NULL && recompute[units[i]] != 0) == wanted)
      return true;
  return false;
}

int64_t graph_saved_bytes(const graph *g, int first, int count, const uint8_t *recompute, int64_t *received_bytes) {
  const int last = first + count;
  int64_t total = 0, received = 0;
  for (size_t i = 0; i < g->tensors.count; i++) {
    const graph_tensor *t = &g->tensors.items[i];
    if (t->is_constant) continue;
    if (!any_unit(t->saver_units, t->saver_unit_count, first, last, GRAPH_NONE, recompute, false) &&
        !(recompute != NULL &&
          any_unit(t->consumer_units, t->consumer_unit_count, first, last, t->producer_unit, recompute, true)))
      continue;
    total = graph_add(total, t->bytes);
    if (t->producer_unit != GRAPH_NONE && (t->producer_unit < first || t->producer_unit >= last))
      received = graph_add(received, t->bytes);
  }
  for (int u = first; u < last; u++)
    if (recompute == NULL || recompute[u] == 0) total = graph_add(total, g->units.items[u].saved_extra_bytes);
  if (received_bytes != NULL) *received_bytes = received;
  return total;
}

int graph_cut_tensors(const graph *g, int cut, int *tensors) {
  int count = 0;
  for (size_t i = 0; i < g->tensors.count; i++) {
    const graph_tensor *t = &g->tensors.items[i];
    if (t->producer_unit == GRAPH_NONE || t->producer_unit >= cut || t->consumer_unit_count == 0) continue;
    if (t->consumer_units[t->consumer_unit_count - 1] >= cut) tensors[count++] = (int)i;
  }
  return count;
}

bool graph_tensor_is_skip(const graph *g, int tensor) {
  const graph_tensor *t = &g->tensors.items[tensor];
  return t->producer_unit != GRAPH_NONE && t->consumer_unit_count > 0 &&
         t->consumer_units[t->consumer_unit_count - 1] > t->producer_unit + 1;
}

bool graph_tensor_is_vector(const graph_tensor *tensor) { return tensor->rank <= 2; }
