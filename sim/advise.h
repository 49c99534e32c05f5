/* Advice on a diffusion-pipe configuration: what each size of its dataset costs on a cluster, and which settings would
 * be faster, or fit at all. Only what diffusion-pipe can do is proposed.
 *
 * How its settings become a plan: 1F1B over straight stages; pipeline_stages times replicas are all GPUs, stage s of
 * replica r on GPU s * replicas + r (DeepSpeed's topology has the axes pipe, data); every tensor that a later stage
 * needs is handed on from stage to stage (skips are relayed: its layers pass their whole tuple on); stages are cut
 * between layers (plan/dpipe.h); gradients in the weights' precision, all-reduced after the last backward in one go;
 * PyTorch eager, kernels issued one by one.
 *
 * Memory is the plan's layout with what that does not know put right, each a sum of weights (MEMORY IS AN ESTIMATE
 * here):
 *
 *   optimizer   states as the named optimizer has them, no fp32 copies
 *   adapters    in their own dtype
 *   fp8         the blocks' matrices at one byte
 *   swapped     without the weights of blocks kept in the host's memory
 *   unsloth     without the kept inputs of at least 5e6 elements
 *   text        SDXL's text encoders: weights, gradients, states on the first stage; not their activations, nor their time
 *
 * Copies of swapped blocks and offloaded inputs go beside compute: a step takes at least what they take over the card's
 * PCIe link.
 */
#ifndef DP_SIM_ADVISE_H
#define DP_SIM_ADVISE_H

#include "plan/dpipe.h"
#include "plan/memory.h"
#include "plan/scenario.h"
#include "sim/cost.h"

enum { SIM_ADVISE_TEXT = PLAN_MEMORY_CLASS_COUNT, SIM_ADVISE_CLASS_COUNT };
extern const char *const sim_advise_class_names[]; /* plan_memory_class_names, "text encoders", NULL */

typedef struct sim_advise_setting {
  int stages, replicas;
  int64_t accumulation, micro_batch; /* micro_batch 0: by size, as the configuration lists them, times 2^list_shift */
  int list_shift;
  plan_dpipe_checkpointing checkpointing;
  plan_dpipe_partition partition;
  const int64_t *split; /* [stages - 1] first layers of stages, whatever the partition; arena-owned */
  const plan_dpipe_optimizer *optimizer;
  bool fp8;
  int64_t blocks_to_swap;
} sim_advise_setting;

/* One size under one setting. */
typedef struct sim_advise_figures {
  bool fits;
  int worker, device; /* least room left, or most over */
  int64_t need_bytes, limit_bytes, class_bytes[SIM_ADVISE_CLASS_COUNT];
  int64_t micro_batch, global_batch;
  double step_s, throughput_samples_per_s, bubble_ratio, error_band;
  const char *bound_name; /* what takes most of the workers' time beside compute; NULL: nothing */
  double bound_share;
} sim_advise_figures;

typedef struct sim_advise_row {
  const plan_dpipe_bucket *bucket;
  int stands_for;      /* sizes of this resolution, this one among them */
  bool representative; /* the most pixels of its resolution: what the search looks at */
  sim_advise_figures figures;
} sim_advise_row;

/* All rows under one setting: throughput with as many samples of each row's size; the row least at ease. */
typedef struct sim_advise_mix {
  bool fits;
  double throughput_samples_per_s, bubble_ratio; /* bubble: mean over the rows, by time */
  sim_advise_figures tightest;
  const plan_dpipe_bucket *tightest_bucket;
} sim_advise_mix;

typedef enum sim_advise_group {
  SIM_ADVISE_STAGES,     /* pipeline_stages, with gradient_accumulation_steps so that the global batch stays */
  SIM_ADVISE_BATCH,      /* the micro batch, likewise */
  SIM_ADVISE_CHECKPOINT, /* activation_checkpointing */
  SIM_ADVISE_SPLIT,      /* partition_method and partition_split */
  SIM_ADVISE_OPTIMIZER,  /* the rest only when nothing fits otherwise */
  SIM_ADVISE_FP8,
  SIM_ADVISE_SWAP,
  SIM_ADVISE_SMALLER, /* a smaller global batch */
  SIM_ADVISE_GROUP_COUNT
} sim_advise_group;
extern const char *const sim_advise_group_names[]; /* "pipeline_stages", ... */

typedef struct sim_advise_change {
  sim_advise_group group;
  bool possible;      /* alone: else it goes only with the others */
  sim_advise_mix mix; /* of it alone */
  double gain;        /* relative throughput against the file as it is */
} sim_advise_change;

typedef struct sim_advise_proposal {
  sim_advise_setting setting;
  sim_advise_mix mix;
  double gain;
  sim_advise_change changes[SIM_ADVISE_GROUP_COUNT];
  int change_count; /* 0: the file as it is */
} sim_advise_proposal;

typedef struct sim_advise_result {
  dp_arena arena;
  const char *config_path, *variant; /* of the model; how it was chosen */
  const char *class_name;
  int64_t parameters, trainable_parameters; /* of the model; with adapters */
  int layers;
  const char **layer_names;
  int64_t *layer_weights; /* what 'parameters' counts */
  int gpus;
  sim_advise_setting now;
  sim_advise_mix mix;
  sim_advise_row *rows;
  int row_count;
  bool any_fits;
  sim_advise_proposal smallest; /* when the file as it is does not fit: fewest changes; else as `fastest` */
  sim_advise_proposal fastest;
  bool has_split;            /* more than one stage, and another split is worth it */
  sim_advise_proposal split; /* everything else as it is */
  /* the fastest with more accumulation, which is another global batch */
  struct {
    int64_t accumulation, global_batch;
    sim_advise_mix mix;
  } more[2];
  int more_count;
  int trials; /* settings and sizes simulated */
  const char **notes;
  int note_count;
} sim_advise_result;

typedef struct sim_advise_options {
  const char *model;   /* a diffusers config.json in place of the one found; NULL */
  const char *cluster; /* file */
  void (*progress)(void *data, uint64_t done);
  void *progress_data;
} sim_advise_options;

/* config with its dataset read; it must outlive the result. The scenario that stands for it goes to *scenario, to be
 * freed with plan_scenario_free after the result. On failure nothing is left to free. */
dp_status sim_advise(const plan_dpipe *config, const sim_efficiency *efficiency, const sim_advise_options *options,
                     plan_scenario *scenario, sim_advise_result *result, dp_error *error);
void sim_advise_result_free(sim_advise_result *result);

#endif
