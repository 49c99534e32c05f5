/* [train] and [data] of a scenario: how a model is trained, and on what. A plan, and what is predicted of it, depends on
 * none of them but lora_targets, which decides what is trained; memory also on ema_decay, and on threads a little.
 */
#ifndef DP_PLAN_SCENARIO_TRAIN_H
#define DP_PLAN_SCENARIO_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const char *const plan_objective_names[]; /* "epsilon", "v_prediction", "sample", "flow", NULL */

typedef enum plan_rate_schedule { PLAN_RATE_CONSTANT, PLAN_RATE_COSINE, PLAN_RATE_LINEAR } plan_rate_schedule;
extern const char *const plan_rate_schedule_names[]; /* "constant", "cosine", "linear", NULL */

typedef struct plan_train {
  int objective;             /* index into plan_objective_names; -1: by the scheduler, else by the model */
  const char *scheduler;     /* a scheduler_config.json of diffusers, as written; NULL: by the model */
  double min_snr_gamma;      /* 0: losses are not weighted */
  double guidance;           /* what a model that is distilled of guidance (Flux dev) is told; default 1 */
  double learning_rate, betas[2], epsilon, weight_decay;
  plan_rate_schedule rate_schedule;
  int64_t warmup_steps;      /* in which the rate rises evenly from 0 */
  double rate_floor;         /* least share of learning_rate, at the last step */
  double *stage_rates;       /* factor of each stage's rate; NULL: 1 */
  size_t stage_rate_count;
  double clip_norm;          /* of all gradients; 0: they are not clipped. Sets plan_scenario.global_norm */
  double ema_decay;          /* of running means of the weights; 0: none are kept */
  double lora_alpha;         /* 0: the rank, so that adapters are not scaled */
  int64_t seed;
  const char *weights;       /* a folder of diffusers to begin from, as written; NULL: drawn by the seed */
  int64_t threads;           /* of each worker's kernels; 0: its device's cores; of a GPU, the processors shared evenly */
  bool deterministic;        /* false: sums on GPUs may have any order where that is faster */
  int64_t checkpoint_every, keep_checkpoints; /* steps, 0: only at the end; how many, 0: all */
  int64_t evaluate_every;    /* steps; 0: only with --eval */
  int64_t evaluate_samples;  /* 0: a global batch */
  int64_t psnr_every;        /* steps between two looks at what compressed skips lose; 0: none */
} plan_train;

/* Pixels. */
typedef struct plan_bucket {
  int64_t height, width;
} plan_bucket;

typedef struct plan_data {
  const char *path;          /* of a data set's folder or manifest, as written; NULL: none */
  plan_bucket *buckets; size_t bucket_count; /* 0: one, the model's own size */
  bool shuffle, trust_cache;
} plan_data;

#endif
