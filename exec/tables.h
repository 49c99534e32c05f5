/* Constant inputs of models: SD 3's table of positions and Flux's rotary table, as diffusers makes them
 * (tests/reference/NUMERICS.md says from where each rule comes). */
#ifndef DP_EXEC_TABLES_H
#define DP_EXEC_TABLES_H

#include "base/node.h"
#include "base/safetensors.h"
#include "graph/graph.h"

/* Fills a constant input of the graph, dense in the order of its dims. `config`: the model's. `buffer`: of that name in
 * the checkpoint; NULL: it has none, and the table is computed. DP_UNSUPPORTED for a tensor that is not known here. */
dp_status exec_table_fill(const graph *graph, int tensor, const dp_node *config, const dp_safetensors *file,
                          const dp_safetensor *buffer, float *out, dp_error *error);

#endif
