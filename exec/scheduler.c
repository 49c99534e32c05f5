#include "exec/scheduler.h"

#include <math.h>
#include <string.h>

#include "base/allowed.h"
#include "base/random.h"

const char *const exec_solver_names[] = {"DDPMScheduler",
                                         "DDIMScheduler",
                                         "EulerDiscreteScheduler",
                                         "DPMSolverMultistepScheduler",
                                         "UniPCMultistepScheduler",
                                         "FlowMatchEulerDiscreteScheduler",
                                         NULL};
const char *const exec_prediction_names[] = {"epsilon", "v_prediction", "sample", "flow", NULL};
static const char *const betas_names[] = {"linear", "scaled_linear", "squaredcos_cap_v2", NULL};
static const char *const spacing_names[] = {"leading", "linspace", "trailing", NULL};

static bool is_flow(const exec_scheduler_options *o) { return o->solver == EXEC_FLOW_EULER; }

void exec_scheduler_defaults(exec_solver solver, exec_scheduler_options *o) {
  *o = (exec_scheduler_options){.solver = solver,
                                .prediction = solver == EXEC_FLOW_EULER ? EXEC_FLOW : EXEC_EPSILON,
                                .betas = EXEC_LINEAR,
                                .spacing = solver == EXEC_DDPM || solver == EXEC_DDIM ? EXEC_LEADING : EXEC_LINSPACE,
                                .train_timesteps = 1000,
                                .beta_start = 0.0001,
                                .beta_end = 0.02,
                                .clip_sample = solver == EXEC_DDPM || solver == EXEC_DDIM,
                                .clip_range = 1,
                                .set_alpha_to_one = true,
                                .final_sigma_zero = solver == EXEC_DPMPP_2M || solver == EXEC_UNIPC,
                                .lower_order_final = true,
                                .shift = 1};
}

/* ---- reading a config ---- */

static dp_status read_choice(const dp_node *config, const char *key, const char *const *choices, int *value,
                             dp_error *error) {
  const dp_node *node = dp_node_get(config, key);
  if (!node || node->kind == DP_NODE_NULL) return DP_OK;
  for (int c = 0; node->kind == DP_NODE_STRING && choices[c]; c++)
    if (strcmp(node->string, choices[c]) == 0) {
      *value = c;
      return DP_OK;
    }
  char shown[80];
  dp_allowed allowed = {.given = node->kind == DP_NODE_STRING ? node->string : NULL};
  for (int c = 0; choices[c]; c++) dp_allowed_add(&allowed, choices[c]);
  const dp_status status =
      dp_fail_at(error, node, "%s: found %s, %s", key, dp_node_show(node, shown), dp_allowed_text(&allowed));
  dp_allowed_free(&allowed);
  return status;
}

static dp_status read_real(const dp_node *config, const char *key, double min, double max, double *value,
                           dp_error *error) {
  const dp_node *node = dp_node_get(config, key);
  if (!node || node->kind == DP_NODE_NULL) return DP_OK;
  char shown[80];
  if ((node->kind != DP_NODE_REAL && node->kind != DP_NODE_INTEGER) || !(node->real >= min && node->real <= max))
    return dp_fail_at(error, node, "%s: found %s, allowed: %g to %g", key, dp_node_show(node, shown), min, max);
  *value = node->real;
  return DP_OK;
}

static dp_status read_integer(const dp_node *config, const char *key, int min, int max, int *value, dp_error *error) {
  const dp_node *node = dp_node_get(config, key);
  if (!node || node->kind == DP_NODE_NULL) return DP_OK;
  char shown[80];
  if (node->kind != DP_NODE_INTEGER || node->integer < min || node->integer > max)
    return dp_fail_at(error, node, "%s: found %s, allowed: %d to %d", key, dp_node_show(node, shown), min, max);
  *value = (int)node->integer;
  return DP_OK;
}

static dp_status read_boolean(const dp_node *config, const char *key, bool *value, dp_error *error) {
  const dp_node *node = dp_node_get(config, key);
  if (!node || node->kind == DP_NODE_NULL) return DP_OK;
  char shown[80];
  if (node->kind != DP_NODE_BOOLEAN)
    return dp_fail_at(error, node, "%s: found %s, allowed: true or false", key, dp_node_show(node, shown));
  *value = node->boolean;
  return DP_OK;
}

/* Switches of diffusers that change the arithmetic and are not built here: only their "off" is read. */
static dp_status refuse_others(const dp_node *config, dp_error *error) {
  static const char *const off[] = {"thresholding",    "rescale_betas_zero_snr", "use_exponential_sigmas",
                                    "use_beta_sigmas", "use_lu_lambdas",         "use_flow_sigmas",
                                    "invert_sigmas",   "stochastic_sampling",    "use_dynamic_shifting"};
  for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
    bool on = false;
    DP_TRY(read_boolean(config, off[i], &on, error));
    if (on) return dp_fail_at(error, dp_node_get(config, off[i]), "%s: found true, allowed: false", off[i]);
  }
  const dp_node *trained = dp_node_get(config, "trained_betas");
  if (trained && trained->kind != DP_NODE_NULL)
    return dp_fail_at(error, trained, "trained_betas: found a list, allowed: null (beta_schedule says them)");
  return DP_OK;
}

static dp_status read_solver_keys(const dp_node *config, exec_scheduler_options *o, dp_error *error) {
  static const char *const variance[] = {"fixed_small", NULL}, *const algorithm[] = {"dpmsolver++", NULL};
  static const char *const midpoint[] = {"midpoint", NULL}, *const bh2[] = {"bh2", NULL};
  static const char *const final_sigmas[] = {"sigma_min", "zero", NULL};
  int only = 0, order = 2, final_sigma = o->final_sigma_zero;
  if (o->solver == EXEC_DDPM) DP_TRY(read_choice(config, "variance_type", variance, &only, error));
  if (o->solver != EXEC_DPMPP_2M && o->solver != EXEC_UNIPC) return DP_OK;
  if (o->solver == EXEC_DPMPP_2M) DP_TRY(read_choice(config, "algorithm_type", algorithm, &only, error));
  DP_TRY(read_choice(config, "solver_type", o->solver == EXEC_UNIPC ? bh2 : midpoint, &only, error));
  DP_TRY(read_integer(config, "solver_order", 2, 2, &order, error));
  DP_TRY(read_boolean(config, "lower_order_final", &o->lower_order_final, error));
  DP_TRY(read_choice(config, "final_sigmas_type", final_sigmas, &final_sigma, error));
  o->final_sigma_zero = final_sigma == 1;
  return DP_OK;
}

dp_status exec_scheduler_read(const dp_node *config, const exec_solver *solver, exec_scheduler_options *options,
                              dp_error *error) {
  if (config->kind != DP_NODE_TABLE) return dp_fail_at(error, config, "a scheduler config must be a JSON object");
  int class_index = solver ? (int)*solver : -1;
  if (!solver) DP_TRY(read_choice(config, "_class_name", exec_solver_names, &class_index, error));
  if (class_index < 0)
    return dp_fail_at(error, config, "the key \"_class_name\" is missing, needed: which scheduler this is");
  exec_scheduler_options o;
  exec_scheduler_defaults((exec_solver)class_index, &o);
  int prediction = (int)o.prediction, betas = (int)o.betas, spacing = (int)o.spacing;
  DP_TRY(read_integer(config, "num_train_timesteps", 1, 1000000, &o.train_timesteps, error));
  if (is_flow(&o)) {
    DP_TRY(read_real(config, "shift", 1e-6, 1e6, &o.shift, error));
  } else {
    DP_TRY(read_choice(config, "prediction_type", exec_prediction_names, &prediction, error));
    if (prediction == EXEC_FLOW)
      return dp_fail_at(error, dp_node_get(config, "prediction_type"),
                        "prediction_type: found \"flow\", allowed: epsilon, v_prediction or sample");
    DP_TRY(read_choice(config, "beta_schedule", betas_names, &betas, error));
    DP_TRY(read_choice(config, "timestep_spacing", spacing_names, &spacing, error));
    DP_TRY(read_real(config, "beta_start", 1e-12, 0.999, &o.beta_start, error));
    DP_TRY(read_real(config, "beta_end", 1e-12, 0.999, &o.beta_end, error));
    DP_TRY(read_boolean(config, "clip_sample", &o.clip_sample, error));
    DP_TRY(read_real(config, "clip_sample_range", 1e-6, 1e6, &o.clip_range, error));
    DP_TRY(read_boolean(config, "set_alpha_to_one", &o.set_alpha_to_one, error));
    DP_TRY(read_integer(config, "steps_offset", 0, 1000, &o.steps_offset, error));
    DP_TRY(read_boolean(config, "use_karras_sigmas", &o.karras_sigmas, error));
  }
  o.prediction = (exec_prediction)prediction;
  o.betas = (exec_betas)betas;
  o.spacing = (exec_spacing)spacing;
  DP_TRY(read_solver_keys(config, &o, error));
  DP_TRY(refuse_others(config, error));
  *options = o;
  return DP_OK;
}

/* ---- the schedule ---- */

/* The double of the nearest float. */
static double in_fp32(double x) { return (double)(float)x; }

/* Item i of n evenly spaced ones, as PyTorch makes them in fp32: from the nearer end, in one rounding. */
static double linspace_at(double from, double to, int n, int i) {
  const float a = (float)from, b = (float)to, step = n > 1 ? (b - a) / (float)(n - 1) : 0;
  return i < n / 2 || n == 1 ? fmaf(step, (float)i, a) : fmaf(-step, (float)(n - 1 - i), b);
}

static double cosine_product(double t) {
  const double half_pi = 1.57079632679489661923;
  const double c = cos((t + 0.008) / 1.008 * half_pi);
  return c * c;
}

static double beta_at(const exec_scheduler_options *o, int t) {
  const int n = o->train_timesteps;
  switch (o->betas) {
    case EXEC_SCALED_LINEAR: {
      const double root = linspace_at(sqrt(o->beta_start), sqrt(o->beta_end), n, t);
      return in_fp32(root * root);
    }
    case EXEC_SQUARED_COSINE:
      return in_fp32(fmin(1 - cosine_product((t + 1.0) / n) / cosine_product((double)t / n), 0.999));
    default:
      return linspace_at(o->beta_start, o->beta_end, n, t);
  }
}

dp_status exec_scheduler_init(const exec_scheduler_options *options, exec_scheduler *scheduler, dp_error *error) {
  *scheduler = (exec_scheduler){.options = *options};
  if (is_flow(options)) return DP_OK;
  scheduler->alphas_cumprod = DP_ARENA_NEW(&scheduler->arena, double, (size_t)options->train_timesteps);
  if (!scheduler->alphas_cumprod) return dp_fail_memory(error);
  double product = 1;
  for (int t = 0; t < options->train_timesteps; t++) {
    product *= in_fp32(1 - beta_at(options, t));
    scheduler->alphas_cumprod[t] = in_fp32(product);
  }
  return DP_OK;
}

void exec_scheduler_free(exec_scheduler *scheduler) {
  dp_arena_free(&scheduler->arena);
  *scheduler = (exec_scheduler){.steps = 0};
}

/* ---- training ---- */

void exec_scheduler_noise(const exec_scheduler *s, double t, const float *clean, const float *noise, int64_t n,
                          float *noised, float *target) {
  if (is_flow(&s->options)) {
    const float a = (float)(1 - t), b = (float)t;
    for (int64_t i = 0; i < n; i++) {
      const float x = clean[i], e = noise[i];
      noised[i] = a * x + b * e;
      if (target) target[i] = e - x;
    }
    return;
  }
  const double product = s->alphas_cumprod[(int)t];
  const float a = (float)sqrt(product), b = (float)sqrt(1 - product);
  for (int64_t i = 0; i < n; i++) {
    const float x = clean[i], e = noise[i];
    noised[i] = a * x + b * e;
    if (target)
      target[i] = s->options.prediction == EXEC_V ? a * e - b * x : s->options.prediction == EXEC_SAMPLE ? x : e;
  }
}

double exec_scheduler_min_snr(const exec_scheduler *s, double t, double gamma) {
  if (is_flow(&s->options)) return 1;
  const double product = s->alphas_cumprod[(int)t], snr = product / (1 - product);
  const double least = fmin(snr, gamma);
  if (s->options.prediction == EXEC_SAMPLE) return least;
  return least / (s->options.prediction == EXEC_V ? snr + 1 : snr);
}

static double shifted(const exec_scheduler_options *o, double u) { return o->shift * u / (1 + (o->shift - 1) * u); }

double exec_scheduler_draw(const exec_scheduler *s, uint64_t seed, uint64_t step, uint64_t index) {
  dp_random random;
  dp_random_init(&random, seed ^ (step * 0x9e3779b97f4a7c15u), index);
  if (!is_flow(&s->options)) return (double)dp_random_below(&random, (uint64_t)s->options.train_timesteps);
  const double two_pi = 6.28318530717958647692;
  const double radius = sqrt(-2 * log(1 - dp_random_uniform(&random)));
  const double normal = radius * cos(two_pi * dp_random_uniform(&random));
  return shifted(&s->options, 1 / (1 + exp(-normal)));
}

double exec_scheduler_at(const exec_scheduler *s, double part) {
  if (is_flow(&s->options)) return shifted(&s->options, part);
  return floor(part * s->options.train_timesteps);
}
