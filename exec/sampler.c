#include <math.h>
#include <string.h>

#include "exec/scheduler.h"

static double sigma_of(double product) { return sqrt((1 - product) / product); }

/* ---- timesteps and sigmas ---- */

static void space_timesteps(const exec_scheduler *s, int steps, double *timesteps) {
  const exec_scheduler_options *o = &s->options;
  const int n = o->train_timesteps;
  const bool multistep = o->solver == EXEC_DPMPP_2M || o->solver == EXEC_UNIPC;
  for (int i = 0; i < steps; i++) {
    const int back = steps - 1 - i;
    switch (o->spacing) {
      case EXEC_LEADING: { /* multistep solvers leave the lowest of steps + 1 out, and begin at it */
        const int ratio = n / (multistep ? steps + 1 : steps);
        timesteps[i] = (double)(multistep ? back + 1 : back) * ratio + o->steps_offset;
        break;
      }
      case EXEC_TRAILING:
        timesteps[i] = nearbyint(n - (double)i * n / steps) - 1;
        break;
      default:
        if (multistep)
          timesteps[i] = nearbyint((double)(back + 1) * (n - 1) / steps);
        else
          timesteps[i] = steps > 1 ? (double)back * (n - 1) / (steps - 1) : 0;
        if (o->solver == EXEC_DDPM || o->solver == EXEC_DDIM) timesteps[i] = nearbyint(timesteps[i]);
        break;
    }
  }
}

/* Linear between the timesteps of training. */
static double sigma_at(const exec_scheduler *s, double t) {
  const int last = s->options.train_timesteps - 1;
  if (t <= 0) return sigma_of(s->alphas_cumprod[0]);
  if (t >= last) return sigma_of(s->alphas_cumprod[last]);
  const int low = (int)t;
  const double a = sigma_of(s->alphas_cumprod[low]), b = sigma_of(s->alphas_cumprod[low + 1]);
  return a + (b - a) * (t - low);
}

/* Where sigma lies among those of training, linear in the logarithm. */
static double timestep_of(const exec_scheduler *s, double sigma) {
  const int n = s->options.train_timesteps;
  const double x = log(fmax(sigma, 1e-10));
  int low = 0, high = n - 1; /* sigmas ascend */
  while (low + 1 < high) {
    const int middle = (low + high) / 2;
    if (log(sigma_of(s->alphas_cumprod[middle])) <= x)
      low = middle;
    else
      high = middle;
  }
  if (low > n - 2) low = n - 2;
  if (low < 0) return 0;
  const double a = log(sigma_of(s->alphas_cumprod[low])), b = log(sigma_of(s->alphas_cumprod[low + 1]));
  const double share = fmin(fmax((x - a) / (b - a), 0), 1);
  return low + share;
}

/* Karras et al. 2022, equation 5, rho = 7. */
static void space_karras(const exec_scheduler *s, double largest, double smallest, bool whole, double *timesteps,
                         double *sigmas, int steps) {
  const double rho = 7, from = pow(largest, 1 / rho), to = pow(smallest, 1 / rho);
  for (int i = 0; i < steps; i++) {
    const double share = steps > 1 ? (double)i / (steps - 1) : 0;
    sigmas[i] = pow(from + share * (to - from), rho);
    timesteps[i] = timestep_of(s, sigmas[i]);
    if (whole) timesteps[i] = nearbyint(timesteps[i]);
  }
}

static void space_flow(const exec_scheduler *s, int steps, double *timesteps, double *sigmas) {
  const double n = s->options.train_timesteps, shift = s->options.shift;
  const double least = shift / n / (1 + (shift - 1) / n); /* what training ends with, shifted */
  for (int i = 0; i < steps; i++) {
    const double u = steps > 1 ? 1 + (least - 1) * i / (steps - 1) : 1;
    sigmas[i] = shift * u / (1 + (shift - 1) * u);
    timesteps[i] = sigmas[i] * n;
  }
  sigmas[steps] = 0;
}

dp_status exec_scheduler_set_steps(exec_scheduler *s, int steps, dp_error *error) {
  const exec_scheduler_options *o = &s->options;
  if (steps < 1 || steps > o->train_timesteps)
    return dp_fail(error, DP_BAD_INPUT, "found %d sampling steps, allowed: 1 to %d", steps, o->train_timesteps);
  double *timesteps = DP_ARENA_NEW(&s->arena, double, (size_t)steps);
  double *sigmas = DP_ARENA_NEW(&s->arena, double, (size_t)steps + 1);
  if (!timesteps || !sigmas) return dp_fail_memory(error);
  s->steps = steps;
  s->timesteps = timesteps;
  s->sigmas = sigmas;
  if (o->solver == EXEC_FLOW_EULER) {
    space_flow(s, steps, timesteps, sigmas);
    return DP_OK;
  }
  space_timesteps(s, steps, timesteps);
  for (int i = 0; i < steps; i++) sigmas[i] = sigma_at(s, timesteps[i]);
  const bool multistep = o->solver == EXEC_DPMPP_2M || o->solver == EXEC_UNIPC;
  const double least = sigma_of(s->alphas_cumprod[0]);
  if (o->karras_sigmas && multistep)
    space_karras(s, sigma_of(s->alphas_cumprod[o->train_timesteps - 1]), least, true, timesteps, sigmas, steps);
  else if (o->karras_sigmas)
    space_karras(s, sigmas[0], sigmas[steps - 1], false, timesteps, sigmas, steps);
  sigmas[steps] = multistep && !o->final_sigma_zero ? least : 0;
  return DP_OK;
}

double exec_scheduler_initial_sigma(const exec_scheduler *s) {
  if (s->options.solver != EXEC_EULER) return 1;
  double most = 0;
  for (int i = 0; i < s->steps; i++) most = fmax(most, s->sigmas[i]);
  return s->options.spacing == EXEC_LEADING ? sqrt(most * most + 1) : most;
}

double exec_scheduler_input_scale(const exec_scheduler *s, int i) {
  return s->options.solver == EXEC_EULER ? 1 / sqrt(s->sigmas[i] * s->sigmas[i] + 1) : 1;
}

/* ---- steps ---- */

dp_status exec_sampler_init(const exec_scheduler *scheduler, int64_t n, exec_sampler *sampler, dp_error *error) {
  *sampler = (exec_sampler){.scheduler = scheduler, .n = n};
  for (int i = 0; i < 3; i++) sampler->previous[i] = DP_ARENA_NEW(&sampler->arena, float, (size_t)n);
  sampler->last_sample = DP_ARENA_NEW(&sampler->arena, float, (size_t)n);
  if (sampler->previous[0] && sampler->previous[1] && sampler->previous[2] && sampler->last_sample) return DP_OK;
  exec_sampler_free(sampler);
  return dp_fail_memory(error);
}

void exec_sampler_free(exec_sampler *sampler) {
  dp_arena_free(&sampler->arena);
  *sampler = (exec_sampler){.n = 0};
}

/* x_0 and the noise, as the model's prediction implies them. */
static void imply(exec_prediction kind, double a, double b, double prediction, double x, double *clean, double *noise) {
  switch (kind) {
    case EXEC_V:
      *clean = a * x - b * prediction;
      *noise = a * prediction + b * x;
      return;
    case EXEC_SAMPLE:
      *clean = prediction;
      *noise = (x - a * prediction) / b;
      return;
    default:
      *clean = (x - b * prediction) / a;
      *noise = prediction;
      return;
  }
}

static double clipped(const exec_scheduler_options *o, double x) {
  return o->clip_sample ? fmin(fmax(x, -o->clip_range), o->clip_range) : x;
}

/* a before the step's timestep, on the grid of this many steps. */
static double product_before(const exec_scheduler *s, int i, double first) {
  const double before = s->timesteps[i] - s->options.train_timesteps / s->steps; /* in whole steps */
  return before >= 0 ? s->alphas_cumprod[(int)before] : first;
}

static void step_ddpm(exec_sampler *m, const float *prediction, const float *noise, float *sample) {
  const exec_scheduler *s = m->scheduler;
  const int t = (int)s->timesteps[m->next];
  const double product = s->alphas_cumprod[t], before = product_before(s, m->next, 1);
  const double alpha = (double)(float)(product / before),
               beta = 1 - alpha; /* fp32, as diffusers has it: 1 - alpha tells */
  const double of_clean = sqrt(before) * beta / (1 - product), of_sample = sqrt(alpha) * (1 - before) / (1 - product);
  const double deviation = sqrt(fmax((1 - before) / (1 - product) * beta, 1e-20));
  for (int64_t i = 0; i < m->n; i++) {
    double clean, implied;
    imply(s->options.prediction, sqrt(product), sqrt(1 - product), prediction[i], sample[i], &clean, &implied);
    double x = of_clean * clipped(&s->options, clean) + of_sample * sample[i];
    if (t > 0 && noise) x += deviation * noise[i];
    sample[i] = (float)x;
  }
}

static void step_ddim(exec_sampler *m, const float *prediction, float *sample) {
  const exec_scheduler *s = m->scheduler;
  const double product = s->alphas_cumprod[(int)s->timesteps[m->next]];
  const double before = product_before(s, m->next, s->options.set_alpha_to_one ? 1 : s->alphas_cumprod[0]);
  for (int64_t i = 0; i < m->n; i++) {
    double clean, implied;
    imply(s->options.prediction, sqrt(product), sqrt(1 - product), prediction[i], sample[i], &clean, &implied);
    sample[i] = (float)(sqrt(before) * clipped(&s->options, clean) + sqrt(1 - before) * implied);
  }
}

static void step_euler(exec_sampler *m, const float *prediction, float *sample) {
  const exec_scheduler *s = m->scheduler;
  const double sigma = s->sigmas[m->next], next = s->sigmas[m->next + 1];
  const double root = sqrt(sigma * sigma + 1);
  for (int64_t i = 0; i < m->n; i++) {
    double clean;
    if (s->options.prediction == EXEC_V)
      clean = prediction[i] * -sigma / root + sample[i] / (sigma * sigma + 1);
    else if (s->options.prediction == EXEC_SAMPLE)
      clean = prediction[i];
    else
      clean = sample[i] - sigma * prediction[i];
    sample[i] = (float)(sample[i] + (sample[i] - clean) / sigma * (next - sigma));
  }
}

static void step_flow(exec_sampler *m, const float *prediction, float *sample) {
  const double by = m->scheduler->sigmas[m->next + 1] - m->scheduler->sigmas[m->next];
  for (int64_t i = 0; i < m->n; i++) sample[i] = (float)(sample[i] + by * prediction[i]);
}

/* A sigma as the solvers for lambda = log(alpha / sigma) want it. */
typedef struct level {
  double alpha, sigma, lambda;
} level;

static level level_of(double sigma) {
  const double alpha = 1 / sqrt(sigma * sigma + 1);
  return (level){alpha, sigma * alpha, sigma > 0 ? -log(sigma) : INFINITY};
}

/* x_0 of this step into previous[0]; those before move on. */
static void remember(exec_sampler *m, const float *prediction, const float *sample) {
  const exec_scheduler *s = m->scheduler;
  const level now = level_of(s->sigmas[m->next]);
  float *oldest = m->previous[2];
  m->previous[2] = m->previous[1];
  m->previous[1] = m->previous[0];
  m->previous[0] = oldest;
  for (int64_t i = 0; i < m->n; i++) {
    double clean, implied;
    imply(s->options.prediction, now.alpha, now.sigma, prediction[i], sample[i], &clean, &implied);
    oldest[i] = (float)clean;
  }
}

static void step_dpmpp(exec_sampler *m, const float *prediction, float *sample) {
  const exec_scheduler *s = m->scheduler;
  const level now = level_of(s->sigmas[m->next]), next = level_of(s->sigmas[m->next + 1]);
  remember(m, prediction, sample);
  const bool last = m->next == s->steps - 1;
  const bool first_order =
      m->next == 0 || (last && (s->options.final_sigma_zero || (s->options.lower_order_final && s->steps < 15)));
  const double h = next.lambda - now.lambda, shrink = isinf(h) ? -1 : expm1(-h);
  double of_difference = 0;
  if (!first_order) of_difference = 0.5 * h / (now.lambda - level_of(s->sigmas[m->next - 1]).lambda);
  for (int64_t i = 0; i < m->n; i++) {
    const double clean = m->previous[0][i];
    const double ahead = first_order ? clean : clean + of_difference * (clean - m->previous[1][i]);
    sample[i] = (float)(next.sigma / now.sigma * sample[i] - next.alpha * shrink * ahead);
  }
}

/* UniPC's corrector of order 1 or 2: rho solves R rho = b with R_jk = r_k^(j-1), r = (r, 1). */
static void corrector_weights(int order, double r, double hh, double *of_old, double *of_new) {
  *of_old = 0;
  *of_new = 0.5;
  if (order < 2) return;
  const double first = expm1(hh), second = first / hh - 1;
  const double b0 = second / first, b1 = (second / hh - 0.5) * 2 / first;
  *of_old = (b1 - b0) / (r - 1); /* rho_0 + rho_1 = b0, r rho_0 + rho_1 = b1 */
  *of_new = b0 - *of_old;
}

/* The sample again, from where the last step began, now that the model has been asked about where it led. */
static void correct(exec_sampler *m, float *sample) {
  const exec_scheduler *s = m->scheduler;
  const level now = level_of(s->sigmas[m->next]), from = level_of(s->sigmas[m->next - 1]);
  const double h = now.lambda - from.lambda, grow = expm1(-h);
  const double r = m->last_order == 2 ? (level_of(s->sigmas[m->next - 2]).lambda - from.lambda) / h : 0;
  double of_old, of_new;
  corrector_weights(m->last_order, r, -h, &of_old, &of_new);
  for (int64_t i = 0; i < m->n; i++) {
    const double base = m->previous[1][i];
    double correction = of_new * (m->previous[0][i] - base);
    if (m->last_order == 2) correction += of_old * (m->previous[2][i] - base) / r;
    sample[i] = (float)(now.sigma / from.sigma * m->last_sample[i] - now.alpha * grow * (base + correction));
  }
}

static void step_unipc(exec_sampler *m, const float *prediction, float *sample) {
  const exec_scheduler *s = m->scheduler;
  const level now = level_of(s->sigmas[m->next]), next = level_of(s->sigmas[m->next + 1]);
  remember(m, prediction, sample);
  if (m->next > 0) correct(m, sample);
  int order = m->next > 0 ? 2 : 1;
  if (s->options.lower_order_final && s->steps - m->next < order) order = s->steps - m->next;
  const double h = next.lambda - now.lambda, grow = isinf(h) ? -1 : expm1(-h);
  const double r = order == 2 ? (level_of(s->sigmas[m->next - 1]).lambda - now.lambda) / h : 0;
  memcpy(m->last_sample, sample, (size_t)m->n * sizeof *sample);
  for (int64_t i = 0; i < m->n; i++) {
    const double clean = m->previous[0][i];
    const double ahead = order == 2 ? clean + 0.5 * (m->previous[1][i] - clean) / r : clean;
    sample[i] = (float)(next.sigma / now.sigma * sample[i] - next.alpha * grow * ahead);
  }
  m->last_order = order;
}

void exec_sampler_step(exec_sampler *m, const float *prediction, const float *noise, float *sample) {
  switch (m->scheduler->options.solver) {
    case EXEC_DDPM:
      step_ddpm(m, prediction, noise, sample);
      break;
    case EXEC_DDIM:
      step_ddim(m, prediction, sample);
      break;
    case EXEC_EULER:
      step_euler(m, prediction, sample);
      break;
    case EXEC_DPMPP_2M:
      step_dpmpp(m, prediction, sample);
      break;
    case EXEC_UNIPC:
      step_unipc(m, prediction, sample);
      break;
    default:
      step_flow(m, prediction, sample);
      break;
  }
  m->next++;
}
