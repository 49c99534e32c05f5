/* Noise schedulers: how data is noised for training, and the steps that take noise away again in sampling.
 *
 * Diffusion (DDPM, Ho et al. 2020, arXiv:2006.11239): x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) n, with a_t the running
 * product of 1 - beta_t over `train_timesteps` steps. Betas are linear, linear in their square roots ("scaled_linear",
 * Stable Diffusion), or make a_t a squared cosine (Nichol and Dhariwal 2021). As in diffusers, betas and 1 - beta are
 * rounded to fp32; the product is taken in double and rounded to fp32. What a model predicts, of a sample at t: the
 * noise n (epsilon); v = sqrt(a_t) n - sqrt(1 - a_t) x_0 (Salimans and Ho 2022); x_0 itself (sample). Flow matching (SD
 * 3, Flux; Esser et al. 2024, arXiv:2403.03206): x_s = (1 - s) x_0 + s n, the model predicts n - x_0, and s = shift u /
 * (1 + (shift - 1) u) for u even in (0, 1].
 *
 * Solvers: DDPM's and DDIM's (Song et al. 2020) steps, Euler's method in x / sqrt(a_t) over sigma = sqrt((1 - a_t) /
 * a_t) (Karras et al. 2022), DPM-Solver++ 2M (Lu et al. 2022, arXiv:2211.01095), UniPC with B(h) = e^h - 1 (Zhao et al.
 * 2023, arXiv:2302.04867), and Euler's method for flows.
 */
#ifndef DP_EXEC_SCHEDULER_H
#define DP_EXEC_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/node.h"
#include "base/status.h"

typedef enum exec_solver {
  EXEC_DDPM,
  EXEC_DDIM,
  EXEC_EULER,
  EXEC_DPMPP_2M,
  EXEC_UNIPC,
  EXEC_FLOW_EULER,
  EXEC_SOLVER_COUNT
} exec_solver;
extern const char *const exec_solver_names[]; /* diffusers' classes: "DDPMScheduler", ..., NULL */

typedef enum exec_prediction { EXEC_EPSILON, EXEC_V, EXEC_SAMPLE, EXEC_FLOW, EXEC_PREDICTION_COUNT } exec_prediction;
extern const char *const exec_prediction_names[]; /* "epsilon", "v_prediction", "sample", "flow", NULL */

typedef enum exec_betas { EXEC_LINEAR, EXEC_SCALED_LINEAR, EXEC_SQUARED_COSINE, EXEC_BETAS_COUNT } exec_betas;
typedef enum exec_spacing { EXEC_LEADING, EXEC_LINSPACE, EXEC_TRAILING, EXEC_SPACING_COUNT } exec_spacing;

/* The settings that are read of a scheduler_config.json; defaults are those of diffusers' class of that solver. */
typedef struct exec_scheduler_options {
  exec_solver solver;
  exec_prediction prediction;
  exec_betas betas;
  exec_spacing spacing;
  int train_timesteps;
  double beta_start, beta_end;
  bool clip_sample; /* x_0 is kept within clip_range (DDPM, DDIM) */
  double clip_range;
  bool set_alpha_to_one; /* DDIM: a before the first timestep is 1, else a_0 */
  int steps_offset;
  bool karras_sigmas;
  bool final_sigma_zero;  /* DPM-Solver++ and UniPC: the last sigma is 0, else the least one */
  bool lower_order_final; /* the last steps go down to first order (of few steps) */
  double shift;           /* flow */
} exec_scheduler_options;

void exec_scheduler_defaults(exec_solver solver, exec_scheduler_options *options);
/* Reads a config; the solver is its _class_name, unless `solver` is not NULL. Keys of other classes are passed over;
 * values that are known to diffusers and not built here are DP_BAD_INPUT, as are numbers out of range. */
dp_status exec_scheduler_read(const dp_node *config, const exec_solver *solver, exec_scheduler_options *options,
                              dp_error *error);

typedef struct exec_scheduler {
  exec_scheduler_options options;
  double *alphas_cumprod; /* [train_timesteps]; flow: NULL */
  /* set for a number of sampling steps */
  int steps;
  double *timesteps, *sigmas; /* [steps], [steps + 1]; flow: timesteps are 1000 sigma */
  dp_arena arena;
} exec_scheduler;

dp_status exec_scheduler_init(const exec_scheduler_options *options, exec_scheduler *scheduler, dp_error *error);
void exec_scheduler_free(exec_scheduler *scheduler);

/* ---- training ---- */

/* x_t and what the model should predict for it, over n values. DDPM: t of 0 to train_timesteps - 1, an integer; flow:
 * t is s in (0, 1]. `target` may be NULL. */
void exec_scheduler_noise(const exec_scheduler *scheduler, double t, const float *clean, const float *noise, int64_t n,
                          float *noised, float *target);
/* min-SNR weight of the loss at t (Hang et al. 2023, arXiv:2303.09556): min(snr, gamma) / snr for epsilon, divided by
 * snr + 1 instead for v, min(snr, gamma) for sample; 1 for flow. snr = a_t / (1 - a_t). */
double exec_scheduler_min_snr(const exec_scheduler *scheduler, double t, double gamma);
/* The timestep of sample `index` of step `step`: uniform; flow: s with u the logistic function of a standard normal, as
 * SD 3 was trained. From counters alone, so that any plan draws the same for the same sample. */
double exec_scheduler_draw(const exec_scheduler *scheduler, uint64_t seed, uint64_t step, uint64_t index);

/* The timestep at `part` in [0, 1) of the schedule, from little noise to all: of flows s with u = part. */
double exec_scheduler_at(const exec_scheduler *scheduler, double part);

/* ---- sampling ---- */

/* Sets timesteps and sigmas. DP_BAD_INPUT: not 1 to train_timesteps steps. */
dp_status exec_scheduler_set_steps(exec_scheduler *scheduler, int steps, dp_error *error);
/* Standard noise times this is what sampling starts from. */
double exec_scheduler_initial_sigma(const exec_scheduler *scheduler);
/* What the model is fed instead of the sample at step i is sample times this. */
double exec_scheduler_input_scale(const exec_scheduler *scheduler, int i);

/* One trajectory; steps must be taken from 0 up. */
typedef struct exec_sampler {
  const exec_scheduler *scheduler;
  int64_t n;
  int next;           /* step to be taken */
  float *previous[3]; /* x_0 as implied at this step and the two before */
  float *last_sample; /* UniPC: what its last step began from */
  int last_order;
  dp_arena arena;
} exec_sampler;
dp_status exec_sampler_init(const exec_scheduler *scheduler, int64_t n, exec_sampler *sampler, dp_error *error);
void exec_sampler_free(exec_sampler *sampler);
/* Takes step `next`: `sample` becomes that of the next timestep.
 * noise: standard noise, for DDPM alone, at every timestep but 0; else NULL. */
void exec_sampler_step(exec_sampler *sampler, const float *prediction, const float *noise, float *sample);

#endif
