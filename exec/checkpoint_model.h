/* A model's weights in a folder of diffusers: read into fp32, written so that diffusers' from_pretrained loads it.
 *
 * The folder holds config.json and diffusion_pytorch_model.safetensors, or the index
 * diffusion_pytorch_model.safetensors.index.json that says in which of several such files each tensor lies;
 * half-precision variants (".fp16" in the name) are taken where there is nothing else. A pipeline's folder
 * (model_index.json) is taken for its unet/ or transformer/.
 *
 * Opening holds the folder to a graph: every weight of the graph must be there once, of the right shape and of a dtype
 * that means numbers (F32, F16, BF16, F64), and nothing else may be there but buffers: tensors that the graph has as
 * constant inputs (SD 3's table of positions), which no training changes and which are written back. The first few
 * problems and their number make one line. A folder whose config.json contradicts the file that the graph was made from
 * is refused, too, since shapes alone do not tell (the number of heads changes none).
 */
#ifndef DP_EXEC_CHECKPOINT_MODEL_H
#define DP_EXEC_CHECKPOINT_MODEL_H

#include <stdint.h>

#include "base/arena.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "graph/graph.h"

/* The folder of the model itself, and its config.json from which the graph is to be built; arena-owned. DP_BAD_INPUT
 * when there is no config.json, or a pipeline has both unet/ and transformer/. */
dp_status exec_weights_find(const char *path, dp_arena *arena, const char **folder, const char **config_path,
                            dp_error *error);

/* An open folder. The graph must outlive it. */
typedef struct exec_weights {
  dp_arena arena;
  const graph *graph;
  dp_safetensors *files; /* each file once */
  size_t file_count;
  const dp_safetensor **tensors; /* by weight of the graph */
  int *file_of;                  /* by weight of the graph: where it lies */
  const dp_safetensor **buffers;
  size_t buffer_count;
} exec_weights;

/* Opens all files of a folder as exec_weights_find gives it, for a whole model's graph. */
dp_status exec_weights_open(const char *folder, const graph *graph, exec_weights *weights, dp_error *error);
void exec_weights_close(exec_weights *weights); /* safe on a zeroed one */

/* Reads a weight of the graph into fp32, in the order of its dims (room for its `parameters`). Only what is read comes
 * into memory, so a stage reads its own weights and no others. Threads may read at the same time. */
dp_status exec_weights_read(const exec_weights *weights, int weight, float *out, dp_error *error);
/* Reads the weights [first, first + count) one behind the other into `out`: those of a unit or of a stage. */
dp_status exec_weights_read_range(const exec_weights *weights, int first, int count, float *out, dp_error *error);
/* A buffer by name; NULL: the folder has none, and diffusers computes it. */
const dp_safetensor *exec_weights_buffer(const exec_weights *weights, const char *name);

/* How a folder is written. Zero-initialised but for config_path is fine. */
typedef struct exec_weights_form {
  const char *config_path;             /* copied unchanged */
  uint64_t shard_bytes;                /* more than that of tensors is cut into several files; 0: EXEC_SHARD_BYTES */
  const dp_safetensor *const *buffers; /* F32, F16, BF16 or F64; written beside the weights in fp32 */
  size_t buffer_count;
} exec_weights_form;
#define EXEC_SHARD_BYTES UINT64_C(10000000000) /* as diffusers does */

/* Gives weight `weight` in fp32 in the order of its dims, valid until the next call: where it lies already so, its
 * address, else a copy in a place that is used again. Called once for each weight, in the order of the graph. */
typedef dp_status (*exec_weights_source)(void *context, int weight, const float **values, dp_error *error);
/* A source for `context` = const float *const values[weights of the graph]. */
dp_status exec_weights_source_array(void *context, int weight, const float **values, dp_error *error);

/* Writes the folder beside and exchanges it (base/folder.h); its parents are made. One that is there may hold nothing
 * but what this writes. `bytes` (may be NULL) gets the bytes of all files. DP_IO_FAILED: nothing has changed. */
dp_status exec_weights_write(const char *folder, const graph *graph, const exec_weights_form *form,
                             exec_weights_source source, void *context, uint64_t *bytes, dp_error *error);

#endif
