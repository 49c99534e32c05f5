/* Noise schedulers against the sums that diffusers' own tests assert (tests/schedulers/test_scheduler_*.py: the full
 * loops of a dummy model), and against the laws of noising. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/scheduler.h"
#include "tests/suite.h"

enum { N = 4 * 3 * 8 * 8 };

static exec_scheduler scheduler;
static exec_sampler sampler;
static dp_error error;
static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void teardown(void) {
  exec_sampler_free(&sampler);
  exec_scheduler_free(&scheduler);
}

/* ---- PyTorch's normal numbers of a CPU generator, as its documents give the algorithm ---- */

static uint32_t twister[624];
static int twister_at;
static void twister_seed(uint32_t seed) {
  twister[0] = seed;
  for (uint32_t i = 1; i < 624; i++) twister[i] = 1812433253u * (twister[i - 1] ^ (twister[i - 1] >> 30)) + i;
  twister_at = 624;
}
static uint32_t twister_next(void) {
  if (twister_at == 624) {
    for (int i = 0; i < 624; i++) {
      const uint32_t y = (twister[i] & 0x80000000u) | (twister[(i + 1) % 624] & 0x7fffffffu);
      twister[i] = twister[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    twister_at = 0;
  }
  uint32_t y = twister[twister_at++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}
static void torch_randn(float *out) { /* N is a multiple of 16 */
  for (int i = 0; i < N; i++) out[i] = (float)(twister_next() & 0xFFFFFF) * 0x1p-24f;
  for (int block = 0; block < N; block += 16)
    for (int j = 0; j < 8; j++) {
      const double radius = sqrt(-2 * log(1 - (double)out[block + j]));
      const double angle = 6.28318530717958647692 * (double)out[block + j + 8];
      out[block + j] = (float)(radius * cos(angle));
      out[block + j + 8] = (float)(radius * sin(angle));
    }
}

START_TEST(torch_numbers_are_torchs) {
  static const double first[] = {-1.1258, -1.1524, -0.2506, -0.4339};
  float values[N];
  twister_seed(0);
  torch_randn(values);
  for (int i = 0; i < 4; i++) ck_assert_double_eq_tol(values[i], first[i], 1e-4);
}
END_TEST

/* ---- the loops ---- */

/* dummy_sample_deter: k = ((c * 8 + h) * 8 + w) * 4 + b counts from 0 over the transposed array. */
static void dummy(float *sample, float *noise) {
  for (int b = 0; b < 4; b++)
    for (int i = 0; i < N / 4; i++) {
      const int k = i * 4 + b;
      if (sample) sample[b * (N / 4) + i] = (float)k / N;
      if (noise) noise[b * (N / 4) + i] = (float)(N - 1 - k) / N;
    }
}

typedef struct loop {
  exec_solver solver;
  exec_prediction prediction;
  bool karras;
  double sum, mean; /* of absolute values; sum 0: not said */
} loop;
static const loop loops[] = {
    {EXEC_DDPM, EXEC_EPSILON, false, 258.9606, 0.3372},
    {EXEC_DDPM, EXEC_V, false, 202.0296, 0.2631},
    {EXEC_DDIM, EXEC_EPSILON, false, 172.0067, 0.223967},
    {EXEC_DDIM, EXEC_V, false, 52.5302, 0.0684},
    {EXEC_EULER, EXEC_EPSILON, false, 10.0807, 0.0131},
    {EXEC_EULER, EXEC_EPSILON, true, 124.52299, 0.162139},
    {EXEC_DPMPP_2M, EXEC_EPSILON, false, 0, 0.3301},
    {EXEC_DPMPP_2M, EXEC_V, false, 0, 0.2251},
    {EXEC_DPMPP_2M, EXEC_V, true, 0, 0.2096},
    {EXEC_UNIPC, EXEC_EPSILON, false, 0, 0.2464},
    {EXEC_UNIPC, EXEC_EPSILON, true, 0, 0.2925},
    {EXEC_UNIPC, EXEC_V, false, 0, 0.1014},
    {EXEC_UNIPC, EXEC_V, true, 0, 0.1966},
};

static void start(const loop *l, int steps) {
  exec_scheduler_options options;
  exec_scheduler_defaults(l->solver, &options);
  options.prediction = l->prediction;
  options.karras_sigmas = l->karras;
  options.final_sigma_zero = false;
  if (l->solver == EXEC_EULER) options.train_timesteps = 1100;
  if (l->solver == EXEC_DPMPP_2M) options.lower_order_final = false;
  ck_assert_int_eq(exec_scheduler_init(&options, &scheduler, &error), DP_OK);
  ck_assert_int_eq(exec_scheduler_set_steps(&scheduler, steps, &error), DP_OK);
  ck_assert_int_eq(exec_sampler_init(&scheduler, N, &sampler, &error), DP_OK);
}

static void finish(const char *name, const float *sample, double sum, double mean) {
  double found = 0;
  for (int i = 0; i < N; i++) found += fabs((double)sample[i]);
  if (sum > 0) ck_assert_msg(fabs(found - sum) < 1e-2, "%s: sum %.6f, expected %.6f", name, found, sum);
  ck_assert_msg(fabs(found / N - mean) < 1e-3, "%s: mean %.6f, expected %.6f", name, found / N, mean);
  teardown();
}

/* model(x, t) = x t / (t + 1) */
static void run_from(int first, float *sample) {
  float prediction[N], noise[N];
  sampler.next = first;
  for (int i = first; i < scheduler.steps; i++) {
    const double t = scheduler.timesteps[i];
    const float scale = (float)exec_scheduler_input_scale(&scheduler, i), factor = (float)(t / (t + 1));
    for (int k = 0; k < N; k++) sample[k] *= scale;
    for (int k = 0; k < N; k++) prediction[k] = sample[k] * factor;
    if (scheduler.options.solver == EXEC_DDPM && t > 0) torch_randn(noise);
    exec_sampler_step(&sampler, prediction, noise, sample);
  }
}

START_TEST(loops_give_diffusers_sums) {
  for (size_t l = 0; l < sizeof loops / sizeof loops[0]; l++) {
    float sample[N];
    char name[80];
    (void)snprintf(name, sizeof name, "%s %s%s", exec_solver_names[loops[l].solver],
                   exec_prediction_names[loops[l].prediction], loops[l].karras ? " Karras" : "");
    start(&loops[l], loops[l].solver == EXEC_DDPM ? 1000 : 10);
    dummy(sample, NULL);
    for (int k = 0; k < N; k++) sample[k] *= (float)exec_scheduler_initial_sigma(&scheduler);
    twister_seed(0);
    run_from(0, sample);
    finish(name, sample, loops[l].sum, loops[l].mean);
  }
}
END_TEST

START_TEST(timesteps_are_diffusers) {
  static const double multistep[] = {999, 899, 799, 699, 599, 500, 400, 300, 200, 100};
  start(&loops[6], 10);
  for (int i = 0; i < 10; i++) ck_assert_double_eq(scheduler.timesteps[i], multistep[i]);
  teardown();
  start(&loops[2], 10);
  for (int i = 0; i < 10; i++) ck_assert_double_eq(scheduler.timesteps[i], 900 - 100 * i);
  teardown();
  start(&loops[4], 10);
  ck_assert_double_eq_tol(exec_scheduler_initial_sigma(&scheduler), 261.0556, 1e-3);
}
END_TEST

START_TEST(ddpm_of_a_noised_sample) {
  float clean[N], noise[N], sample[N];
  start(&loops[0], 1000);
  dummy(clean, noise);
  const int first = 998; /* the last two of 1000 timesteps: 1 and 0 */
  exec_scheduler_noise(&scheduler, scheduler.timesteps[first], clean, noise, N, sample, NULL);
  twister_seed(0);
  run_from(first, sample);
  finish("DDPM with noise", sample, 387.9466, 0.5051);
}
END_TEST

/* ---- training ---- */

/* From x_t and what the model should say, each parametrisation gets back to x_0 and the noise. */
START_TEST(targets_are_consistent) {
  float clean[N], noise[N], noised[N], target[N];
  dummy(clean, noise);
  for (int kind = EXEC_EPSILON; kind <= EXEC_SAMPLE; kind++)
    for (int t = 0; t < 1000; t += 111) {
      const loop l = {EXEC_DDIM, (exec_prediction)kind, false, 0, 0};
      start(&l, 10);
      scheduler.options.clip_sample = false;
      exec_scheduler_noise(&scheduler, t, clean, noise, N, noised, target);
      const double a = sqrt(scheduler.alphas_cumprod[t]), b = sqrt(1 - scheduler.alphas_cumprod[t]);
      for (int i = 0; i < N; i++) {
        const double x = kind == EXEC_V        ? a * noised[i] - b * target[i]
                         : kind == EXEC_SAMPLE ? target[i]
                                               : (noised[i] - b * target[i]) / a;
        ck_assert_double_eq_tol(x, clean[i], 1e-6 / a);
      }
      teardown();
    }
  const loop flow = {EXEC_FLOW_EULER, EXEC_FLOW, false, 0, 0};
  start(&flow, 4);
  exec_scheduler_noise(&scheduler, 0.25, clean, noise, N, noised, target);
  for (int i = 0; i < N; i++) ck_assert_double_eq_tol(noised[i] - 0.25 * target[i], clean[i], 1e-6);
}
END_TEST

/* With a perfect model every flow step lies on the straight line. */
START_TEST(flows_end_at_the_clean_sample) {
  const loop flow = {EXEC_FLOW_EULER, EXEC_FLOW, false, 0, 0};
  float clean[N], noise[N], sample[N], velocity[N];
  dummy(clean, noise);
  start(&flow, 7);
  ck_assert_double_eq(scheduler.sigmas[0], 1);
  ck_assert_double_eq(scheduler.sigmas[7], 0);
  memcpy(sample, noise, sizeof sample);
  for (int i = 0; i < N; i++) velocity[i] = noise[i] - clean[i];
  for (int i = 0; i < 7; i++) {
    ck_assert_double_lt(scheduler.sigmas[i + 1], scheduler.sigmas[i]);
    exec_sampler_step(&sampler, velocity, NULL, sample);
    for (int k = 0; k < N; k++)
      ck_assert_double_eq_tol(sample[k], clean[k] + scheduler.sigmas[i + 1] * velocity[k], 1e-5);
  }
}
END_TEST

START_TEST(min_snr_weights) {
  start(&loops[0], 10);
  for (int t = 0; t < 1000; t += 37) {
    const double snr = scheduler.alphas_cumprod[t] / (1 - scheduler.alphas_cumprod[t]);
    scheduler.options.prediction = EXEC_EPSILON;
    ck_assert_double_eq_tol(exec_scheduler_min_snr(&scheduler, t, 5), snr > 5 ? 5 / snr : 1, 1e-12);
    scheduler.options.prediction = EXEC_V;
    ck_assert_double_eq_tol(exec_scheduler_min_snr(&scheduler, t, 5), (snr > 5 ? 5 : snr) / (snr + 1), 1e-12);
  }
}
END_TEST

START_TEST(draws_depend_on_counters_alone_and_cover) {
  start(&loops[0], 10);
  int tenths[10] = {0};
  for (uint64_t i = 0; i < 20000; i++) {
    const double t = exec_scheduler_draw(&scheduler, 7, i / 16, i % 16);
    ck_assert(t >= 0 && t < 1000 && t == floor(t));
    ck_assert(t == exec_scheduler_draw(&scheduler, 7, i / 16, i % 16));
    tenths[(int)t / 100]++;
  }
  for (int i = 0; i < 10; i++) ck_assert(tenths[i] > 1800 && tenths[i] < 2200); /* 2000 each, sd 42 */
  teardown();
  const loop flow = {EXEC_FLOW_EULER, EXEC_FLOW, false, 0, 0};
  start(&flow, 4);
  double sum = 0;
  for (uint64_t i = 0; i < 20000; i++) {
    const double s = exec_scheduler_draw(&scheduler, 7, i, 0);
    ck_assert(s > 0 && s < 1);
    sum += s;
  }
  ck_assert_double_eq_tol(sum / 20000, 0.5, 0.01); /* symmetric about 1/2 without shift */
}
END_TEST

/* ---- configs ---- */

static dp_status read(const char *text, exec_scheduler_options *options) {
  dp_document document;
  error = (dp_error)DP_ERROR_INIT;
  ck_assert_int_eq(dp_document_parse_json(text, strlen(text), "scheduler_config.json", &document, &error), DP_OK);
  const dp_status status = exec_scheduler_read(document.root, NULL, options, &error);
  dp_document_free(&document);
  return status;
}

START_TEST(configs_are_read) {
  exec_scheduler_options o;
  ck_assert_int_eq(
      read("{\"_class_name\": \"EulerDiscreteScheduler\", \"beta_end\": 0.012, \"beta_schedule\":\n"
           "\"scaled_linear\", \"beta_start\": 0.00085, \"clip_sample\": false, \"skip_prk_steps\": true,\n"
           "\"prediction_type\": \"v_prediction\", \"steps_offset\": 1, \"trained_betas\": null}",
           &o),
      DP_OK);
  ck_assert_int_eq(o.solver, EXEC_EULER);
  ck_assert_int_eq(o.betas, EXEC_SCALED_LINEAR);
  ck_assert_int_eq(o.prediction, EXEC_V);
  ck_assert_double_eq(o.beta_start, 0.00085);
  ck_assert(!o.clip_sample);
  ck_assert_int_eq(read("{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"shift\": 3.0}", &o), DP_OK);
  ck_assert_int_eq(o.prediction, EXEC_FLOW);
  ck_assert_double_eq(o.shift, 3);
}
END_TEST

START_TEST(wrong_configs_are_refused_by_line) {
  static const struct {
    const char *text, *says;
  } cases[] = {
      {"{}", "scheduler_config.json:1: the key \"_class_name\" is missing, needed: which scheduler this is"},
      {"[]", "scheduler_config.json:1: a scheduler config must be a JSON object"},
      {"{\"_class_name\":\n\"HeunScheduler\"}", "scheduler_config.json:1: _class_name: found \"HeunScheduler\", "},
      {"{\"_class_name\": \"DDPMScheduler\",\n\"beta_start\": 2}",
       "scheduler_config.json:2: beta_start: found 2, allowed: 1e-12 to 0.999"},
      {"{\"_class_name\": \"DDPMScheduler\",\n\"num_train_timesteps\": 0.5}",
       "scheduler_config.json:2: num_train_timesteps: found 0.5, allowed: 1 to 1000000"},
      {"{\"_class_name\": \"DDPMScheduler\",\n\"thresholding\": true}",
       "scheduler_config.json:2: thresholding: found true, allowed: false"},
      {"{\"_class_name\": \"DDPMScheduler\",\n\"clip_sample\": 1}",
       "scheduler_config.json:2: clip_sample: found 1, allowed: true or false"},
      {"{\"_class_name\": \"DDPMScheduler\",\n\"trained_betas\": [0.1]}",
       "scheduler_config.json:2: trained_betas: found a list, allowed: null (beta_schedule says them)"},
      {"{\"_class_name\": \"DPMSolverMultistepScheduler\",\n\"solver_order\": 3}",
       "scheduler_config.json:2: solver_order: found 3, allowed: 2 to 2"},
      {"{\"_class_name\": \"DDPMScheduler\",\n\"prediction_type\": \"flow\"}",
       "scheduler_config.json:2: prediction_type: found \"flow\", allowed: epsilon, v_prediction or sample"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    exec_scheduler_options o;
    ck_assert_int_eq(read(cases[i].text, &o), DP_BAD_INPUT);
    ck_assert_msg(strncmp(error.text, cases[i].says, strlen(cases[i].says)) == 0, "%s", error.text);
  }
}
END_TEST

START_TEST(steps_are_bounded) {
  start(&loops[0], 1000);
  ck_assert_int_eq(exec_scheduler_set_steps(&scheduler, 0, &error), DP_BAD_INPUT);
  ck_assert_int_eq(exec_scheduler_set_steps(&scheduler, 1001, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "found 1001 sampling steps, allowed: 1 to 1000");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {torch_numbers_are_torchs, loops_give_diffusers_sums,
                                timesteps_are_diffusers,  ddpm_of_a_noised_sample,
                                targets_are_consistent,   flows_end_at_the_clean_sample,
                                min_snr_weights,          draws_depend_on_counters_alone_and_cover,
                                configs_are_read,         wrong_configs_are_refused_by_line,
                                steps_are_bounded};
  return suite_run("exec_scheduler", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
