/* A training configuration of diffusion-pipe (tdrussell's trainer, built on DeepSpeed's pipeline engine) and its dataset
 * file, read as that program reads them. Keys that do not change what a step costs are listed, never fatal.
 *
 * Facts are taken from the project's source, tdrussell/diffusion-pipe at 8f83dbf (August 2026):
 *   train.py                 defaults, batch keys, activation_checkpointing, blocks_to_swap, optimizers by name; 'parameters'
 *                            counts all weights of a layer, frozen ones too (it replaces DeepSpeed's
 *                            _count_layer_params, which counts trainable ones only)
 *   utils/pipeline.py        partition_method = 'manual': partition_split holds the first layer of every stage but the first
 *   utils/dataset.py         size buckets from resolutions and aspect ratios; batches by size
 *   utils/common.py          names of dtypes
 *   models/{sdxl,sd3,flux}.py  to_layers(), checkpointable_layers, what stays out of fp8
 */
#ifndef DP_PLAN_DPIPE_H
#define DP_PLAN_DPIPE_H

#include "base/array.h"
#include "base/node.h"
#include "graph/graph.h"
#include "plan/plan.h"

typedef enum plan_dpipe_family { PLAN_DPIPE_SDXL, PLAN_DPIPE_SD3, PLAN_DPIPE_FLUX, PLAN_DPIPE_FAMILY_COUNT } plan_dpipe_family;
extern const char *const plan_dpipe_family_names[];   /* "sdxl", "sd3", "flux", NULL: as model.type has them */
extern const char *const plan_dpipe_family_classes[]; /* "UNet2DConditionModel", ... */

typedef enum plan_dpipe_checkpointing {
  PLAN_DPIPE_KEEP_ALL,  /* false */
  PLAN_DPIPE_RECOMPUTE, /* true: a checkpointable layer keeps its input and is run again in backward */
  PLAN_DPIPE_UNSLOTH    /* 'unsloth': the same, with kept inputs of 5e6 elements and more in the host's memory */
} plan_dpipe_checkpointing;
extern const char *const plan_dpipe_checkpointing_names[]; /* as written in the file: "false", "true", "'unsloth'" */

typedef enum plan_dpipe_partition { PLAN_DPIPE_PARAMETERS, PLAN_DPIPE_UNIFORM, PLAN_DPIPE_MANUAL } plan_dpipe_partition;
extern const char *const plan_dpipe_partition_names[]; /* "parameters", "uniform", "manual", NULL */

/* dtype names of the files; graph_dtype and, for weights alone, one byte a value. */
typedef enum plan_dpipe_dtype {
  PLAN_DPIPE_FP32,
  PLAN_DPIPE_FP16,
  PLAN_DPIPE_BF16,
  PLAN_DPIPE_FP8 /* either format */
} plan_dpipe_dtype;
extern const char *const plan_dpipe_dtype_names[]; /* "float32", "float16", "bfloat16", "float8" */

/* An optimizer of train.py, by its name in lower case. States are as wide as the trainable weights, which have no fp32
 * copy: bytes per trainable parameter = state_values * width + state_bytes. */
typedef struct plan_dpipe_optimizer {
  const char *name;
  double state_values, state_bytes;
  plan_optimizer cost; /* the nearest of ours: how long its step takes */
  const char *what;    /* one phrase */
} plan_dpipe_optimizer;
/* NULL when the name is none of the table. */
const plan_dpipe_optimizer *plan_dpipe_optimizer_find(const char *name);

/* A batch size for pictures of about size * size pixels; size 0: of any size. */
typedef struct plan_dpipe_batch {
  double size;
  int64_t batch;
} plan_dpipe_batch;

/* A size that batches are made of. */
typedef struct plan_dpipe_bucket {
  int64_t width, height, frames;
  double resolution, ratio; /* as the dataset file says: sqrt of the area, width / height; size_buckets: of the size itself */
  const dp_node *node;      /* resolutions or size_buckets */
} plan_dpipe_bucket;

/* A key that nothing here looks at. */
typedef struct plan_dpipe_key {
  const char *name; /* "optimizer.lr" */
  const dp_node *node;
  bool known; /* diffusion-pipe has a key of that name */
} plan_dpipe_key;

enum { PLAN_DPIPE_MAX_BUCKETS = 4096 };

typedef struct plan_dpipe {
  dp_document document, dataset; /* dataset.root NULL: not read yet */
  dp_arena arena;
  const char *dataset_path; /* as the file says; NULL: it does not */
  /* top of the file */
  int64_t stages, accumulation, blocks_to_swap;
  DP_ARRAY(plan_dpipe_batch) batches; /* of pictures: image_micro_batch_size_per_gpu, else micro_batch_size_per_gpu */
  const char *batch_key;              /* the name of the one that counts */
  plan_dpipe_checkpointing checkpointing;
  plan_dpipe_partition partition;
  int64_t *split;
  size_t split_count;
  bool compile;
  /* [model] */
  plan_dpipe_family family;
  plan_dpipe_dtype dtype, transformer_dtype; /* of all; of the blocks' matrices */
  const char *diffusers_path, *transformer_path, *checkpoint_path;
  /* [adapter] */
  bool lora;
  int64_t rank;
  plan_dpipe_dtype adapter_dtype;
  /* [optimizer] */
  const char *optimizer_name;
  const plan_dpipe_optimizer *optimizer; /* an unknown one is taken as adamw */
  bool optimizer_known, gradient_release;
  /* dataset */
  DP_ARRAY(plan_dpipe_bucket) buckets; /* pictures, each size once, ascending in resolution, then ratio */
  int video_buckets;                   /* sizes of more than one frame, which these families do not take */
  DP_ARRAY(plan_dpipe_key) unused;
} plan_dpipe;

/* Reads the configuration with the assignments applied ("pipeline_stages=2"). What diffusion-pipe itself refuses is an
 * error that names file and line. */
dp_status plan_dpipe_read(const char *path, const char *const *sets, int set_count, plan_dpipe *config, dp_error *error);
/* The same from memory; `name` stands in for the path. */
dp_status plan_dpipe_parse(const char *text, size_t length, const char *name, plan_dpipe *config, dp_error *error);
/* Reads the dataset file and makes its buckets. path NULL: what the configuration says, from its own folder first, then as
 * written. */
dp_status plan_dpipe_read_dataset(plan_dpipe *config, const char *path, dp_error *error);
dp_status plan_dpipe_parse_dataset(plan_dpipe *config, const char *text, size_t length, const char *name, dp_error *error);
void plan_dpipe_free(plan_dpipe *config);

/* The micro batch of a bucket: that of the size nearest to the square root of its pixels, the first of equally near ones. */
int64_t plan_dpipe_batch_of(const plan_dpipe *config, const plan_dpipe_bucket *bucket);
/* The node of a top-level key or of a table's key, else of the table, else the root. table NULL: the top. */
const dp_node *plan_dpipe_node(const plan_dpipe *config, const char *table, const char *key);

/* ---- layers: what to_layers() of the models makes; partitions cut between them ---- */

/* Whether a unit of our UNet graph belongs to the layer of the unit before it (graph_model_options.joins). A layer of SDXL
 * is a resnet and the transformer blocks of the attention beside it: conv_in with the text encoders, per down block its
 * resnets and its downsampler, the first resnet of the middle, the middle's attention with its second resnet, per up block
 * its resnets and its upsampler, conv_out. SDXL has 23. SD3 has an initial layer, one a block, a final one (24 blocks: 26);
 * Flux the same over double, then single blocks (19 + 38: 59): there our units are the layers. */
bool plan_dpipe_joins(const char *unit);
/* Whether the layer that begins with this unit takes part in activation checkpointing (checkpointable_layers). */
bool plan_dpipe_is_checkpointed(plan_dpipe_family family, const char *unit);

/* SDXL's first layer holds both text encoders, which are trained with the rest (CLIP-L 123,060,480 and OpenCLIP bigG
 * 694,659,840 weights); an adapter of rank r on all their linear layers has r * 905,728. */
enum { PLAN_DPIPE_TEXT_ENCODERS = 817720320, PLAN_DPIPE_TEXT_ADAPTER = 905728 };

/* DeepSpeed's rules (deepspeed/runtime/utils.py: partition_uniform, partition_balanced): parts[stages + 1], stage s holds
 * the layers [parts[s], parts[s + 1]). Uniform: layers / stages each, the first layers % stages one more. Balanced: of all
 * partitions the one whose heaviest and lightest stage differ least; of equal ones that with the latest last cut. Fewer
 * layers than stages leave the last stages empty. */
void plan_deepspeed_uniform(int layers, int stages, int *parts);
dp_status plan_deepspeed_balanced(const int64_t *weights, int layers, int stages, int *parts, dp_error *error);

#endif
