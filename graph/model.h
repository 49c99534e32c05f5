/* From a diffusers config.json to a graph. */
#ifndef DP_GRAPH_MODEL_H
#define DP_GRAPH_MODEL_H

#include "base/node.h"
#include "graph/graph.h"

typedef struct graph_model_options {
  int64_t batch;              /* samples per microbatch, >= 1 */
  int64_t height, width;      /* pixels; multiples of what the model needs (8 times the down-sampling or patch) */
  int64_t frames;             /* 1 for images */
  int64_t text_tokens;
  graph_dtype precision;
  graph_trainable trainable;  /* GRAPH_TRAIN_FULL, or GRAPH_TRAIN_LORA: adapters on the attention projections */
  int64_t lora_rank;
  bool lora_all_linear;       /* adapters on every linear layer of the blocks, not on the attention projections alone */
  /* Instead: adapters on the linear layers whose names are one of these or end with one after a dot, as PEFT's
   * target_modules; each must name some layer. NULL: as above. Borrowed while the graph is built. */
  const char *const *lora_targets;
  size_t lora_target_count;
  bool (*joins)(const char *unit); /* NULL, or whether the unit of that name becomes part of the unit before it */
} graph_model_options;

/* Height, width 0 and text_tokens 0 mean the model's own default (sample_size times 8; 77, 333, 512). */
void graph_model_options_default(graph_model_options *options);

/* Reads a config (any JSON of diffusers' kind) and builds its graph. Errors: DP_BAD_INPUT naming FILE:LINE for an
 * unknown class (lists the known ones), a missing, unknown or absurd key, sizes the model cannot take. */
dp_status graph_model_read(const char *config_path, const graph_model_options *options, graph *graph, dp_error *error);
dp_status graph_model_build(const dp_node *config, const graph_model_options *options, graph *graph, dp_error *error);

/* Model families: one row each; _class_name picks the row. */
typedef struct graph_family {
  const char *class_name;
  dp_status (*build)(const dp_node *config, const graph_model_options *options, graph *graph, dp_error *error);
} graph_family;
extern const graph_family graph_families[];
extern const int graph_family_count;

/* `count` equal units in a chain, with fixed costs, for studies and closed forms. All figures are for one unit and one
 * sample; times and bytes scale with batch. backward_s is whole, weight_backward_s its weight part. */
typedef struct graph_synthetic_options {
  int64_t units, batch;
  double forward_s, backward_s, weight_backward_s;
  int64_t boundary_bytes, parameters, activation_bytes;
  graph_dtype precision;
} graph_synthetic_options;
dp_status graph_synthetic_build(const graph_synthetic_options *options, graph *graph, dp_error *error);

#endif
