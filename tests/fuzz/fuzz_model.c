/* Any text as a model's config.json: it is refused in one line, or makes a graph whose sums agree. */
#include <stdlib.h>
#include <string.h>

#include "graph/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_graph(const graph *g) {
  int64_t parameters = 0, flops = 0;
  if (g->units.count == 0 || g->parameters < 0 || g->forward_flops < g->matrix_flops || g->matrix_flops < 0) abort();
  for (size_t u = 0; u < g->units.count; u++) {
    const graph_unit *unit = &g->units.items[u];
    if (unit->saved_bytes < 0 || unit->output_bytes <= 0 || unit->forward_transient_bytes < 0 ||
        unit->backward_transient_bytes < 0)
      abort();
    parameters += unit->parameters;
    flops += unit->forward_flops;
  }
  if (parameters != g->parameters || flops != g->forward_flops) abort();
  if (graph_saved_bytes(g, 0, (int)g->units.count, NULL, NULL) != g->saved_bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = 0;
  dp_document document = {0};
  dp_error error = DP_ERROR_INIT;
  if (dp_document_parse_json(text, size, "fuzz", &document, &error) == DP_OK) {
    graph_model_options options;
    graph_model_options_default(&options);
    options.trainable = size % 2 ? GRAPH_TRAIN_FULL : GRAPH_TRAIN_LORA;
    graph g = {0};
    const dp_status status = graph_model_build(document.root, &options, &g, &error);
    if (status == DP_OK)
      check_graph(&g);
    else if (status != DP_BAD_INPUT || strncmp(error.text, "fuzz:", 5) != 0 || strchr(error.text, '\n') || g.ops.items)
      abort();
    graph_free(&g);
  }
  dp_document_free(&document);
  free(text);
  return 0;
}
