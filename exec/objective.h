/* What a model is fed in training, and what it is to predict: noise, timesteps and conditioning for a global batch.
 *
 * Sample i of a global batch is that of place ((replica * microbatches) + microbatch) * microbatch_size + s, whoever
 * works on it. Its noise and its timestep come from the seed, the step and i alone, by counters, so that every plan
 * draws the same numbers for the same sample. Inputs go by diffusers' names:
 *
 *   sample, hidden_states   the noised latents; Flux's packed, 2 x 2 to a token
 *   timestep                0 to 999; of flows 1000 s, and for Flux s alone (it multiplies by 1000 itself)
 *   encoder_hidden_states   the text; text_embeds, pooled_projections: the pooled text
 *   time_ids                height and width of the image, what was cropped at the top and left, height and width
 *                           trained at (SDXL)
 *   guidance                train.guidance
 *
 * Evaluation takes fixed timesteps, spread evenly over the schedule: sample i of n stands at ((i mod 4) + (i / 4 + 1/2)
 * / ceil(n / 4)) / 4 of it, i / 4 rounded down, so that sample i is of quantile i mod 4.
 */
#ifndef DP_EXEC_OBJECTIVE_H
#define DP_EXEC_OBJECTIVE_H

#include "exec/dataset.h"
#include "exec/pipeline.h"
#include "exec/scheduler.h"
#include "plan/scenario.h"

enum { EXEC_QUANTILES = 4 };

/* The noise schedule of a scenario: of train.scheduler, which must have been found, or the usual one of the model's
 * family, and train.objective. DP_BAD_INPUT where the two contradict. */
dp_status exec_objective_scheduler(const plan_scenario *scenario, const graph *graph, exec_scheduler_options *options,
                                   dp_error *error);

/* Sizes that a data set must have for the model; 0: it takes none. */
typedef struct exec_objective_sizes {
  int64_t height, width, channels; /* of latents */
  int64_t text_tokens, text_channels, pooled_channels;
} exec_objective_sizes;

typedef enum exec_role {
  EXEC_ROLE_NONE, /* constants, and what is made by an op */
  EXEC_ROLE_LATENTS,
  EXEC_ROLE_TIMESTEP,
  EXEC_ROLE_TEXT,
  EXEC_ROLE_POOLED,
  EXEC_ROLE_TIME_IDS,
  EXEC_ROLE_GUIDANCE,
  EXEC_ROLE_TARGET
} exec_role;

typedef struct exec_objective {
  const graph *graph;
  exec_scheduler scheduler;
  exec_objective_sizes sizes;
  uint64_t seed;
  double min_snr_gamma, guidance;
  int microbatches, microbatch_size, global_batch;
  bool packed;         /* latents are Flux's tokens */
  double time_factor;  /* of what the model is told */
  uint8_t *roles;      /* [tensor] exec_role */
  double *timesteps;   /* [global_batch] of this step, as exec_scheduler_noise takes them */
  uint64_t noise_seed; /* of this step */
  bool training;       /* this step is one of training */
  const exec_batch *batch;
  dp_arena arena;
} exec_objective;

/* The plan gives the batch. The graph must outlive it. DP_BAD_INPUT: the model does not predict what it is given (as
 * many channels), or has an input that is not known here. */
dp_status exec_objective_init(const plan_scenario *scenario, const graph *graph, const plan_plan *plan,
                              exec_objective *objective, dp_error *error);
void exec_objective_free(exec_objective *objective); /* safe on a zeroed one */

/* What a training step (from 0) makes of a sample's latents: what the model is given, and what it is to predict, each in
 * the order in which it has it. Of any step, at any time, by any thread. */
void exec_objective_prepare(const exec_objective *objective, int64_t step, int64_t sample, const float *latents,
                            float *given, float *wanted);

/* Between steps. Samples of the batch that have been prepared for this step are taken as they are. The batch stays
 * borrowed until the next call. Step: from 0. */
void exec_objective_begin(exec_objective *objective, int64_t step, const exec_batch *batch);
/* Batch `index` of `count` of an evaluation. */
void exec_objective_begin_evaluation(exec_objective *objective, int64_t index, int64_t count, const exec_batch *batch);

/* `data` is the exec_objective. */
exec_feed exec_objective_feed(exec_objective *objective);

/* n standard normal numbers (Box and Muller) of counter-based noise, [first, first + n) of the stream; first is a
 * multiple of 4. */
void exec_noise(uint64_t seed, uint64_t stream, int64_t first, int64_t n, float *out);

#endif
