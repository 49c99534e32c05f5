#include "graph/peaks.h"

#include <stdatomic.h>
#include <stdlib.h>

/* backward is written last: who sees it sees the others. -1: not known. */
typedef struct entry {
  _Atomic int64_t forward_bytes, inference_bytes, backward_bytes;
} entry;

struct graph_peaks {
  const graph *graph;
  size_t side; /* 0: nothing is remembered */
  entry entries[];
};

dp_status graph_peaks_new(const graph *g, graph_peaks **peaks, dp_error *error) {
  const size_t side = g->units.count <= GRAPH_PEAKS_UNITS ? g->units.count : 0;
  graph_peaks *made = malloc(sizeof *made + side * side * sizeof(entry));
  if (!made) return dp_fail_memory(error);
  made->graph = g;
  made->side = side;
  for (size_t i = 0; i < side * side; i++) {
    atomic_init(&made->entries[i].forward_bytes, -1);
    atomic_init(&made->entries[i].inference_bytes, -1);
    atomic_init(&made->entries[i].backward_bytes, -1);
  }
  *peaks = made;
  return DP_OK;
}

void graph_peaks_free(graph_peaks *peaks) { free(peaks); }

dp_status graph_peaks_of(graph_peaks *peaks, int first, int count, graph_transients *transients, dp_error *error) {
  if (peaks->side == 0 || count < 1) return graph_transient_bytes(peaks->graph, first, count, transients, error);
  entry *e = &peaks->entries[(size_t)first * peaks->side + (size_t)count - 1];
  const int64_t backward_bytes = atomic_load_explicit(&e->backward_bytes, memory_order_acquire);
  if (backward_bytes >= 0) {
    *transients = (graph_transients){atomic_load_explicit(&e->forward_bytes, memory_order_relaxed),
                                     atomic_load_explicit(&e->inference_bytes, memory_order_relaxed), backward_bytes};
    return DP_OK;
  }
  DP_TRY(graph_transient_bytes(peaks->graph, first, count, transients, error));
  atomic_store_explicit(&e->forward_bytes, transients->forward_bytes, memory_order_relaxed);
  atomic_store_explicit(&e->inference_bytes, transients->inference_bytes, memory_order_relaxed);
  atomic_store_explicit(&e->backward_bytes, transients->backward_bytes, memory_order_release);
  return DP_OK;
}
