/* LoRA adapters in a file of diffusers: pytorch_lora_weights.safetensors, as save_lora_weights and save_lora_adapter
 * write it and load_lora_weights and load_lora_adapter read it (diffusers 0.42, loaders/peft.py, loaders/lora_base.py).
 *
 * A layer of rank r computes y += (alpha / r) B (A x), A [r, in], B [out, r]. Its tensors are named
 * PREFIX.MODULE.lora_A.weight and PREFIX.MODULE.lora_B.weight; PREFIX is "unet" for a UNet2DConditionModel and
 * "transformer" for all others, and is absent in what save_lora_adapter writes. alpha comes from a tensor
 * PREFIX.MODULE.alpha, else from the string `lora_adapter_metadata` of the file (JSON of PEFT's LoraConfig, its keys
 * with the prefix: lora_alpha, alpha_pattern, use_rslora), else it is r.
 */
#ifndef DP_EXEC_ADAPTER_H
#define DP_EXEC_ADAPTER_H

#include <stdint.h>

#include "base/arena.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "graph/graph.h"

/* One adapted linear layer. */
typedef struct exec_adapter_layer {
  int op; /* of the graph; its name is the module */
  int64_t rank, in, out;
  /* of an open file: */
  const dp_safetensor *a, *b;
  double alpha; /* with use_rslora, which divides by sqrt(r): times sqrt(r), so that alpha / rank is always the scale */
} exec_adapter_layer;

/* The adapted layers of a graph that was built with GRAPH_TRAIN_LORA, in the order of its ops: layer numbers mean this
 * list. Arena-owned. */
dp_status exec_adapter_layers(const graph *g, dp_arena *arena, exec_adapter_layer **layers, int *count,
                              dp_error *error);

typedef struct exec_adapter {
  dp_arena arena;
  dp_safetensors file;
  exec_adapter_layer *layers;
  int count;
} exec_adapter;

/* Opens a file, or a folder that has pytorch_lora_weights.safetensors, and holds it to the graph: every adapted layer
 * is there with its rank, and no other. Adapters of text encoders in the same file are passed over. DP_BAD_INPUT, one
 * line; DoRA and adapters with biases are not built here. */
dp_status exec_adapter_open(const char *path, const graph *g, exec_adapter *adapter, dp_error *error);
void exec_adapter_close(exec_adapter *adapter); /* safe on a zeroed one */
/* A layer's factors in fp32: a [rank, in], b [out, rank]. */
dp_status exec_adapter_read(const exec_adapter *adapter, int layer, float *a, float *b, dp_error *error);

/* Gives the factors of a layer, valid until the next call. Called once for each layer, in order. */
typedef dp_status (*exec_adapter_source)(void *context, int layer, const float **a, const float **b, dp_error *error);

/* Writes FOLDER/pytorch_lora_weights.safetensors (the folder is made) beside and renames it. `bytes` may be NULL. */
dp_status exec_adapter_write(const char *folder, const graph *g, double alpha, exec_adapter_source source,
                             void *context, uint64_t *bytes, dp_error *error);

#endif
