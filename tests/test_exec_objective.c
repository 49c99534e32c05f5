/* What a model is fed in training: the same numbers whatever the plan, laid out as diffusers lays them out, and the
 * laws of noise, weights and evaluations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"
#include "exec/objective.h"
#include "graph/op_table.h"
#include "tests/fixtures.h"
#include "tests/suite.h"

enum { BATCH = 4, MAX_VALUES = 1 << 16 };

static dp_error error;
static plan_scenario scenario;
static plan_plan plan;
static graph g;
static exec_objective objective;
static dp_safetensors inputs;
static dp_document numbers;
static dp_arena arena;

#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void teardown(void) {
  exec_objective_free(&objective);
  graph_free(&g);
  plan_plan_free(&plan);
  plan_scenario_free(&scenario);
  dp_safetensors_close(&inputs);
  dp_document_free(&numbers);
  dp_arena_free(&arena);
}

static int64_t number(const char *key) { return dp_node_get(numbers.root, key)->integer; }

/* A scenario of a fixture's model, with further lines. */
static void read_scenario(const char *model, const char *lines) {
  char text[8192];
  OK(dp_document_read(fixture_path(model, "expected.json"), &numbers, &error));
  OK(dp_safetensors_open(fixture_path(model, "inputs.safetensors"), &inputs, &error));
  (void)snprintf(text, sizeof text,
                 "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"%s\"\nheight = %d\nwidth = %d\n"
                 "text_tokens = %d\nprecision = \"fp32\"\n[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\n"
                 "model = \"RTX-4090\"\ncount = 2\n[task]\nglobal_batch = %d\n%s\n",
                 fixture_path(model, "config.json"), (int)(8 * number("latent_height")),
                 (int)(8 * number("latent_width")), (int)number("text_tokens"), BATCH, lines);
  OK(plan_scenario_parse(text, strlen(text), "objective.toml", &scenario, &error));
  OK(plan_scenario_plan(&scenario, &plan, &error));
  OK(plan_scenario_graph(&scenario, plan.microbatch_size, &g, &error));
}

static void open_model(const char *model, const char *lines) {
  read_scenario(model, lines);
  OK(exec_objective_init(&scenario, &g, &plan, &objective, &error));
}

static int tensor_of(exec_role role) {
  for (size_t t = 0; t < g.tensors.count; t++)
    if (objective.roles[t] == role) return (int)t;
  ck_abort_msg("no input of role %d", (int)role);
}

/* Everything of a role for the whole batch, by sample. */
static float *fed(exec_role role, int64_t *each) {
  const int tensor = tensor_of(role);
  const graph_tensor *t = &g.tensors.items[tensor];
  const exec_feed feed = exec_objective_feed(&objective);
  *each = graph_tensor_elements(t) / t->dims[0];
  float *out = DP_ARENA_NEW(&arena, float, (size_t)(BATCH * *each));
  ck_assert_ptr_nonnull(out);
  for (int r = 0; r < plan.replicas; r++)
    for (int m = 0; m < plan.microbatches; m++)
      feed.fill(feed.data, r, m, tensor, out + ((r * plan.microbatches) + m) * plan.microbatch_size * *each);
  return out;
}

static float *read_input(const char *name) {
  const dp_safetensor *tensor = dp_safetensors_find(&inputs, name);
  ck_assert_msg(tensor != NULL, "%s", name);
  float *out = DP_ARENA_NEW(&arena, float, (size_t)tensor->elements);
  OK(dp_safetensor_read_fp32(&inputs, tensor, out, &error));
  return out;
}

/* The fixture's two samples, twice. */
static const exec_batch *make_batch(void) {
  const exec_objective_sizes *z = &objective.sizes;
  const int64_t n = z->height * z->width * z->channels, positions = z->height * z->width;
  exec_sample_view *views = DP_ARENA_NEW(&arena, exec_sample_view, BATCH);
  exec_batch *batch = DP_ARENA_NEW(&arena, exec_batch, 1);
  const float *latents = read_input("latents"), *text = read_input("encoder_hidden_states"),
              *pooled =
                  z->pooled_channels
                      ? read_input(dp_safetensors_find(&inputs, "text_embeds") ? "text_embeds" : "pooled_projections")
                      : NULL;
  for (int s = 0; s < BATCH; s++) {
    float *own = DP_ARENA_NEW(&arena, float, (size_t)n);
    const float *from = latents + s % 2 * n;
    for (int64_t c = 0; c < z->channels; c++)
      for (int64_t p = 0; p < positions; p++) own[p * z->channels + c] = from[c * positions + p];
    views[s] = (exec_sample_view){.latents = own,
                                  .text = text + s % 2 * z->text_tokens * z->text_channels,
                                  .pooled = pooled ? pooled + s % 2 * z->pooled_channels : NULL,
                                  .original_height = 700 + s,
                                  .original_width = 900,
                                  .crop_top = 3,
                                  .crop_left = s};
  }
  *batch = (exec_batch){.height = z->height, .width = z->width, .channels = z->channels, .samples = views};
  return batch;
}

/* Noised latents and targets together give the clean latents back; so do those of the fixture, which diffusers noised
 * and packed. */
static void check_layout(const char *model) {
  open_model(model, "");
  exec_objective_begin(&objective, 3, make_batch());
  int64_t each;
  const float *noised = fed(EXEC_ROLE_LATENTS, &each), *target = fed(EXEC_ROLE_TARGET, &each);
  const bool flow = dp_safetensors_find(&inputs, "sigma") != NULL, packed = objective.packed;
  const float *their = read_input(packed || flow ? "hidden_states" : "sample"), *their_target = read_input("target"),
              *their_time = read_input(flow ? "sigma" : "timestep");
  const exec_objective_sizes *z = &objective.sizes;
  const int64_t positions = z->height * z->width;
  for (int s = 0; s < BATCH; s++)
    for (int64_t i = 0; i < each; i++) {
      /* images of files are channels first */
      const int64_t j = packed ? i : i % z->channels * positions + i / z->channels, k = s % 2 * each + j;
      double mine, theirs;
      if (flow) {
        mine = noised[s * each + i] - objective.timesteps[s] * target[s * each + i];
        theirs = their[k] - (double)their_time[s % 2] * their_target[k];
      } else {
        const double a = objective.scheduler.alphas_cumprod[(int)objective.timesteps[s]];
        const double b = objective.scheduler.alphas_cumprod[(int)their_time[s % 2]];
        mine = (noised[s * each + i] - sqrt(1 - a) * target[s * each + i]) / sqrt(a);
        theirs = (their[k] - sqrt(1 - b) * their_target[k]) / sqrt(b);
      }
      ck_assert_msg(fabs(mine - theirs) < 2e-4, "%s: sample %d value %d: %g, diffusers %g", model, s, (int)i, mine,
                    theirs);
    }
  teardown();
}

START_TEST(latents_lie_as_diffusers_lays_them_out) {
  check_layout("sd15");
  check_layout("sdxl");
  check_layout("sd3");
  check_layout("flux-dev");
}
END_TEST

/* What was prepared ahead is what would be made, in the model's order; it is taken, for training alone. */
static void check_prepared(const char *model) {
  open_model(model, "[plan]\nstages = 1\nmicrobatch_size = 2");
  const exec_batch *batch = make_batch();
  exec_sample_view *views = DP_ARENA_NEW(&arena, exec_sample_view, BATCH);
  const exec_batch prepared = {
      .height = batch->height, .width = batch->width, .channels = batch->channels, .samples = views};
  int64_t each;
  exec_objective_begin(&objective, 7, batch);
  const float *given = fed(EXEC_ROLE_LATENTS, &each), *wanted = fed(EXEC_ROLE_TARGET, &each);
  for (int s = 0; s < BATCH; s++) {
    float *room = DP_ARENA_NEW(&arena, float, (size_t)(2 * each));
    exec_objective_prepare(&objective, 7, s, batch->samples[s].latents, room, room + each);
    ck_assert_mem_eq(room, given + s * each, (size_t)each * sizeof *room);
    ck_assert_mem_eq(room + each, wanted + s * each, (size_t)each * sizeof *room);
    room[0] = room[each] = 99; /* to be known again */
    views[s] = batch->samples[s];
    views[s].given = room;
    views[s].wanted = room + each;
  }
  exec_objective_begin(&objective, 7, &prepared);
  const float *taken = fed(EXEC_ROLE_LATENTS, &each), *taken_target = fed(EXEC_ROLE_TARGET, &each);
  exec_objective_begin_evaluation(&objective, 0, 1, &prepared);
  const float *evaluated = fed(EXEC_ROLE_LATENTS, &each);
  for (int s = 0; s < BATCH; s++) {
    ck_assert(taken[s * each] == 99 && taken_target[s * each] == 99 && evaluated[s * each] != 99);
    ck_assert_mem_eq(taken + s * each + 1, given + s * each + 1, (size_t)(each - 1) * sizeof *taken);
  }
  teardown();
}

START_TEST(what_was_prepared_is_what_would_be_made) {
  check_prepared("sd15");
  check_prepared("sd3");
  check_prepared("flux-dev");
}
END_TEST

START_TEST(every_plan_draws_the_same) {
  static const char *const plans[] = {"[plan]\nstages = 1", "[plan]\nstages = 1\nmicrobatch_size = 4",
                                      "[plan]\nstages = 1\ndata_parallel = 2",
                                      "[plan]\nstages = 1\ndata_parallel = 2\nmicrobatch_size = 2"};
  static const exec_role roles[] = {EXEC_ROLE_LATENTS, EXEC_ROLE_TARGET,   EXEC_ROLE_TIMESTEP,
                                    EXEC_ROLE_TEXT,    EXEC_ROLE_TIME_IDS, EXEC_ROLE_POOLED};
  enum { ROLES = sizeof roles / sizeof *roles };
  float *first[ROLES];
  int64_t each;
  for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
    open_model("sdxl", plans[p]);
    exec_objective_begin(&objective, 11, make_batch());
    for (int r = 0; r < ROLES; r++) {
      const float *out = fed(roles[r], &each);
      const size_t bytes = (size_t)(BATCH * each) * sizeof *out;
      if (p == 0) {
        first[r] = malloc(bytes);
        ck_assert_ptr_nonnull(first[r]);
        memcpy(first[r], out, bytes);
      }
      ck_assert_mem_eq(first[r], out, bytes);
    }
    teardown();
  }
  for (int r = 0; r < ROLES; r++) free(first[r]);
}
END_TEST

START_TEST(steps_seeds_and_samples_draw_different_numbers) {
  int64_t each;
  open_model("sd15", "[train]\nseed = 5");
  const exec_batch *batch = make_batch();
  exec_objective_begin(&objective, 0, batch);
  const float *a = fed(EXEC_ROLE_TARGET, &each);
  ck_assert_mem_ne(a, a + each, (size_t)each * sizeof *a);
  exec_objective_begin(&objective, 1, batch);
  const float *b = fed(EXEC_ROLE_TARGET, &each);
  ck_assert_mem_ne(a, b, (size_t)each * sizeof *a);
  objective.seed++;
  exec_objective_begin(&objective, 0, batch);
  ck_assert_mem_ne(a, fed(EXEC_ROLE_TARGET, &each), (size_t)each * sizeof *a);
  objective.seed--;
  exec_objective_begin_evaluation(&objective, 0, 1, batch);
  ck_assert_mem_ne(a, fed(EXEC_ROLE_TARGET, &each), (size_t)each * sizeof *a);
  exec_objective_begin(&objective, 0, batch);
  ck_assert_mem_eq(a, fed(EXEC_ROLE_TARGET, &each), (size_t)(BATCH * each) * sizeof *a);
}
END_TEST

START_TEST(models_are_told_their_timestep) {
  static const struct {
    const char *model;
    double factor;
  } cases[] = {{"sd15", 1}, {"sd3", 1000}, {"flux-dev", 1}};
  int64_t each;
  for (int c = 0; c < 3; c++) {
    open_model(cases[c].model, "[train]\nguidance = 3.5");
    exec_objective_begin(&objective, 2, make_batch());
    const float *t = fed(EXEC_ROLE_TIMESTEP, &each);
    for (int s = 0; s < BATCH; s++) {
      const double drawn = exec_scheduler_draw(&objective.scheduler, 0, 2, (uint64_t)s);
      ck_assert_float_eq(t[s], (float)(drawn * cases[c].factor));
    }
    if (c == 2)
      for (int s = 0; s < BATCH; s++) ck_assert_float_eq(fed(EXEC_ROLE_GUIDANCE, &each)[s], 3.5f);
    teardown();
  }
  open_model("sdxl", "");
  exec_objective_begin(&objective, 2, make_batch());
  const float *ids = fed(EXEC_ROLE_TIME_IDS, &each);
  const float expected[] = {702, 900, 3, 2, 64, 96};
  ck_assert_int_eq(each, 6);
  for (int i = 0; i < 6; i++) ck_assert_float_eq(ids[2 * 6 + i], expected[i]);
}
END_TEST

START_TEST(weights_are_min_snr) {
  float weights[BATCH];
  open_model("sd15",
             "[train]\nmin_snr_gamma = 5\nobjective = \"v_prediction\"\n[plan]\nstages = 1\nmicrobatch_size = 4");
  exec_objective_begin(&objective, 4, make_batch());
  const exec_feed feed = exec_objective_feed(&objective);
  feed.weigh(feed.data, 0, 0, weights);
  for (int s = 0; s < BATCH; s++) {
    const double a = objective.scheduler.alphas_cumprod[(int)objective.timesteps[s]], snr = a / (1 - a);
    ck_assert_double_eq_tol(weights[s], fmin(snr, 5) / (snr + 1), 1e-6);
  }
  objective.min_snr_gamma = 0;
  feed.weigh(feed.data, 0, 0, weights);
  for (int s = 0; s < BATCH; s++) ck_assert_float_eq(weights[s], 1);
}
END_TEST

/* Each quantile has its share of the samples, spread over its quarter of the schedule. */
START_TEST(evaluations_cover_the_schedule) {
  enum { BATCHES = 3 };
  open_model("sd15", "");
  const exec_batch *batch = make_batch();
  double sums[EXEC_QUANTILES] = {0};
  for (int b = 0; b < BATCHES; b++) {
    exec_objective_begin_evaluation(&objective, b, BATCHES, batch);
    for (int s = 0; s < BATCH; s++) {
      const int quantile = (b * BATCH + s) % EXEC_QUANTILES;
      ck_assert_int_eq((int)objective.timesteps[s] / 250, quantile);
      sums[quantile] += objective.timesteps[s];
    }
  }
  for (int q = 0; q < EXEC_QUANTILES; q++) ck_assert_double_eq_tol(sums[q] / BATCHES, 250 * q + 125, 1);
}
END_TEST

START_TEST(noise_is_standard_normal_and_random_access) {
  static float a[MAX_VALUES], b[MAX_VALUES];
  exec_noise(9, 4, 0, MAX_VALUES, a);
  double moments[5] = {0};
  for (int i = 0; i < MAX_VALUES; i++)
    for (int k = 1; k < 5; k++) moments[k] += pow(a[i], k) / MAX_VALUES;
  /* five standard deviations of each mean */
  ck_assert_double_eq_tol(moments[1], 0, 5 * sqrt(1.0 / MAX_VALUES));
  ck_assert_double_eq_tol(moments[2], 1, 5 * sqrt(2.0 / MAX_VALUES));
  ck_assert_double_eq_tol(moments[3], 0, 5 * sqrt(15.0 / MAX_VALUES));
  ck_assert_double_eq_tol(moments[4], 3, 5 * sqrt(96.0 / MAX_VALUES));
  for (int64_t first = 0; first < 400; first += 40) exec_noise(9, 4, first, 40, b + first);
  ck_assert_mem_eq(a, b, 400 * sizeof *a);
  exec_noise(9, 5, 0, MAX_VALUES, b);
  double product = 0;
  for (int i = 0; i < MAX_VALUES; i++) product += (double)a[i] * b[i] / MAX_VALUES;
  ck_assert_double_eq_tol(product, 0, 5 * sqrt(1.0 / MAX_VALUES));
}
END_TEST

START_TEST(schedules_follow_model_config_and_objective) {
  char line[5000];
  exec_scheduler_options o;
  read_scenario("sd15", "");
  OK(exec_objective_scheduler(&scenario, &g, &o, &error));
  ck_assert(o.prediction == EXEC_EPSILON && o.betas == EXEC_SCALED_LINEAR && o.beta_start == 0.00085);
  teardown();
  read_scenario("sd3", "");
  OK(exec_objective_scheduler(&scenario, &g, &o, &error));
  ck_assert(o.prediction == EXEC_FLOW && o.shift == 3);
  teardown();
  read_scenario("flux-dev", "");
  OK(exec_objective_scheduler(&scenario, &g, &o, &error));
  ck_assert(o.prediction == EXEC_FLOW && o.shift == 1);
  teardown();
  (void)snprintf(line, sizeof line, "[train]\nscheduler = \"%s\"\nobjective = \"sample\"",
                 fixture_path("schedules", "ddpm/scheduler_config.json"));
  read_scenario("sd15", line);
  OK(plan_scenario_find_training(&scenario, &error));
  OK(exec_objective_scheduler(&scenario, &g, &o, &error));
  ck_assert(o.prediction == EXEC_SAMPLE && o.betas == EXEC_SCALED_LINEAR);
  teardown();
  (void)snprintf(line, sizeof line, "[train]\nscheduler = \"%s\"\nobjective = \"flow\"",
                 fixture_path("schedules", "ddpm/scheduler_config.json"));
  read_scenario("sd15", line);
  OK(plan_scenario_find_training(&scenario, &error));
  ck_assert_int_eq(exec_objective_init(&scenario, &g, &plan, &objective, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "objective.toml:18: train.objective: found \"flow\" with the scheduler DDPMScheduler, allowed: "
                   "epsilon, v_prediction or sample");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {latents_lie_as_diffusers_lays_them_out,
                                what_was_prepared_is_what_would_be_made,
                                every_plan_draws_the_same,
                                steps_seeds_and_samples_draw_different_numbers,
                                models_are_told_their_timestep,
                                weights_are_min_snr,
                                evaluations_cover_the_schedule,
                                noise_is_standard_normal_and_random_access,
                                schedules_follow_model_config_and_objective};
  return suite_run("exec_objective", tests, sizeof tests / sizeof tests[0], setup, teardown, 120);
}
