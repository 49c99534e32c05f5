/* What a step of a pipeline can do beside plain training: clip by the global norm, train adapters, keep running means,
 * evaluate, and say where something was not finite. Numbers are PyTorch's and PEFT's, of tests/fixtures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/adapter.h"
#include "sim/predict.h"
#include "tests/exec_fixture.h"
#include "tests/exec_memory.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

static dp_error error;
#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

/* A model of the fixtures under a plan, fed with the fixture's batch. */
typedef struct rig {
  const char *model;
  dp_document numbers, config;
  dp_safetensors inputs;
  exec_weights weights;
  plan_scenario scenario;
  sim_prediction p;
  plan_timeline timeline;
  exec_pipeline *pipeline;
  exec_step step;
  float spoil; /* added to every input latent of sample 1; NaN spoils it */
} rig;

static rig r;

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  r = (rig){.model = NULL};
  read_efficiency();
}

static void finish(void) {
  exec_pipeline_free(r.pipeline);
  plan_timeline_free(&r.timeline);
  sim_prediction_free(&r.p);
  plan_scenario_free(&r.scenario);
  exec_weights_close(&r.weights);
  dp_safetensors_close(&r.inputs);
  dp_document_free(&r.numbers);
  dp_document_free(&r.config);
  r = (rig){.model = NULL};
}

static void teardown(void) {
  finish();
  free_efficiency();
}

static void fill(void *pointer, int replica, int microbatch, int tensor, float *out) {
  const rig *from = pointer;
  const graph_tensor *t = &from->p.graph.tensors.items[tensor];
  const char *name = t->is_output ? "target" : t->name;
  const dp_safetensor *source = dp_safetensors_find(&from->inputs, name);
  ck_assert_msg(source != NULL, "the fixture has no %s", name);
  const int64_t n = graph_tensor_elements(t) / t->dims[0], samples = source->elements / n;
  float *all = malloc((size_t)source->elements * sizeof *all);
  ck_assert_ptr_nonnull(all);
  dp_error trouble = DP_ERROR_INIT;
  ck_assert_int_eq(dp_safetensor_read_fp32(&from->inputs, source, all, &trouble), DP_OK);
  for (int64_t s = 0; s < t->dims[0]; s++) {
    const int64_t sample = (((int64_t)replica * from->p.plan.microbatches + microbatch) * t->dims[0] + s) % samples;
    const int64_t positions = t->rank == 4 ? t->dims[2] * t->dims[3] : 1, channels = n / positions;
    for (int64_t c = 0; c < channels; c++)
      for (int64_t at = 0; at < positions; at++)
        out[s * n + (t->rank == 4 ? at * channels + c : c)] = all[sample * n + c * positions + at];
    if (sample == 1 && t->rank == 4 && !t->is_output) out[s * n] += from->spoil;
  }
  free(all);
}

static double number(const dp_node *node) { return node->kind == DP_NODE_REAL ? node->real : (double)node->integer; }
static double real_of(const dp_node *table, const char *key) { return number(dp_node_get(table, key)); }

static void load(void) {
  OK(exec_fixture_load(r.pipeline, &r.p.program, &r.p.graph, &r.weights, r.config.root, &error));
}

static void load_adapters(void) {
  exec_adapter file;
  OK(exec_adapter_open(fixture_path(r.model, "lora"), &r.p.graph, &file, &error));
  for (int w = 0; w < r.p.program.worker_count; w++)
    for (int l = 0; l < file.count; l++) {
      const exec_lora *lora = &exec_pipeline_parameters(r.pipeline, w)->lora[file.layers[l].op];
      if (lora->rank > 0) OK(exec_adapter_read(&file, l, lora->a, lora->b, &error));
    }
  exec_adapter_close(&file);
}

static void start(const char *model, const char *task, const char *plan, bool means) {
  r.model = model;
  OK(dp_document_read(fixture_path(model, "expected.json"), &r.numbers, &error));
  OK(dp_document_read(fixture_path(model, "config.json"), &r.config, &error));
  OK(dp_safetensors_open(fixture_path(model, "inputs.safetensors"), &r.inputs, &error));
  const dp_node *root = r.numbers.root;
  const exec_fixture job = {.model = model,
                            .height = 8 * (int)real_of(root, "latent_height"),
                            .width = 8 * (int)real_of(root, "latent_width"),
                            .text_tokens = (int)real_of(root, "text_tokens"),
                            .global_batch = 2,
                            .task = task,
                            .plan = plan};
  OK(exec_fixture_scenario(&job, &r.scenario, &error));
  r.scenario.global_norm = true;
  r.scenario.train.ema_decay = means ? 0.9 : 0;
  predict_memory_of_cpu(&r.scenario, efficiency);
  OK(sim_predict(&r.scenario, efficiency, &r.p, &error));
  OK(plan_program_check(&r.p.program, &error));
  OK(plan_timeline_init(&r.p.program, &r.timeline, &error));
  OK(exec_weights_open(fixture_path(model, ""), &r.p.graph, &r.weights, &error));
  const dp_node *lora = dp_node_get(root, "lora"), *adamw = dp_node_get(root, "adamw");
  const exec_pipeline_options options = {.feed = {.fill = fill, .data = &r},
                                         .lora_alpha = lora ? real_of(lora, "alpha") : 0,
                                         .means = means,
                                         .poison = true};
  OK(exec_pipeline_create(&r.p.program, &r.p.graph, &options, &r.pipeline, &error));
  check_memory(r.pipeline, &r.p);
  load();
  r.step.adamw = (kern_adamw){.lr = real_of(adamw, "lr"),
                              .beta1 = dp_node_get(adamw, "betas")->items[0]->real,
                              .beta2 = dp_node_get(adamw, "betas")->items[1]->real,
                              .epsilon = real_of(adamw, "eps"),
                              .weight_decay = real_of(adamw, "weight_decay")};
}

static exec_step_result run(int64_t step) {
  exec_step_result result = {.squares = NULL};
  r.step.adamw.step = step;
  OK(exec_pipeline_step(r.pipeline, &r.step, &result, &r.timeline, &error));
  return result;
}

static const char *const plans[] = {
    "stages = 1",
    "stages = 2\nschedule = \"1f1b\"",
    "stages = 4\nschedule = \"zb-h1\"",
    "stages = 2\nschedule = \"folded\"",
    "stages = 2\nschedule = \"gpipe\"\ndata_parallel = 2",
    "stages = 1\ndata_parallel = 2",
};
enum { PLAN_COUNT = sizeof plans / sizeof *plans, STEPS = 5 };

/* ---- clipping ---- */

/* The optimizer steps of all workers start after the last gradient of any: by the program, through the norm. */
static void check_order(void) {
  double last_s = 0, first_s = INFINITY;
  for (uint32_t i = 0; i < r.p.program.instruction_count; i++) {
    const uint8_t opcode = r.p.program.instructions[i].opcode;
    if (opcode == PLAN_OPTIMIZER_STEP && r.timeline.start_s[i] < first_s) first_s = r.timeline.start_s[i];
    if (opcode < PLAN_SEND && r.timeline.end_s[i] > last_s) last_s = r.timeline.end_s[i];
  }
  ck_assert(first_s >= last_s);
}

START_TEST(clipping_is_pytorchs_under_every_plan) {
  static const char *const models[] = {"sd15", "sd3"};
  for (int m = 0; m < 2; m++)
    for (int i = 0; i < PLAN_COUNT; i++) {
      if (suite_is_short() && i % 2 != m) continue;
      start(models[m], "", plans[i], false);
      const dp_node *clipped = dp_node_get(r.numbers.root, "clipped");
      const dp_node *losses = dp_node_get(clipped, "losses"), *norms = dp_node_get(clipped, "gradient_norms");
      r.step.clip_norm = real_of(clipped, "max_norm");
      for (int s = 0; s < STEPS; s++) {
        const exec_step_result result = run(s + 1);
        ck_assert_msg(fabs(result.loss - number(losses->items[s])) < 1e-5, "%s, %s: step %d: loss %.9g, PyTorch %.9g",
                      models[m], plans[i], s, result.loss, number(losses->items[s]));
        ck_assert_msg(fabs(result.gradient_norm / number(norms->items[s]) - 1) < 1e-4,
                      "%s, %s: step %d: norm %.9g, PyTorch %.9g", models[m], plans[i], s, result.gradient_norm,
                      number(norms->items[s]));
        check_order();
      }
      finish();
    }
}
END_TEST

/* The squares of the ranks' norms sum to the whole's; a rank whose rate is 0 does not move. */
START_TEST(ranks_have_norms_and_rates) {
  start("sd15", "", "stages = 2\nschedule = \"1f1b\"", false);
  double norms[2];
  const double rates[2] = {0, 1};
  exec_step_result result = {.rank_norms = norms};
  r.step.rank_rates = rates;
  r.step.adamw.step = 1;
  const exec_parameters *first = exec_pipeline_parameters(r.pipeline, 0),
                        *second = exec_pipeline_parameters(r.pipeline, 1);
  float *before = malloc((size_t)first->count * sizeof *before);
  ck_assert_ptr_nonnull(before);
  memcpy(before, first->values, (size_t)first->count * sizeof *before);
  const float some = second->values[0];
  OK(exec_pipeline_step(r.pipeline, &r.step, &result, NULL, &error));
  ck_assert(norms[0] > 0 && norms[1] > 0);
  ck_assert_double_eq_tol(hypot(norms[0], norms[1]), result.gradient_norm, 1e-12);
  ck_assert_mem_eq(before, first->values, (size_t)first->count * sizeof *before);
  ck_assert(second->values[0] != some);
  free(before);
}
END_TEST

START_TEST(clipping_without_a_global_norm_is_refused) {
  start("sd15", "", "stages = 2", false);
  r.p.plan.global_norm = false;
  r.step.clip_norm = 1;
  ck_assert_int_eq(exec_pipeline_step(r.pipeline, &r.step, NULL, NULL, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "gradients cannot be clipped: the plan has no global norm");
}
END_TEST

/* ---- adapters ---- */

START_TEST(adapters_train_as_pefts_do) {
  static const char *const models[] = {"sd15", "sd3", "flux-dev"};
  for (int m = 0; m < 3; m++)
    for (int i = 0; i < PLAN_COUNT; i++) {
      start(models[m], "trainable = \"lora\"\nlora_rank = 4", plans[i], false);
      load_adapters();
      const dp_node *losses = dp_node_get(dp_node_get(r.numbers.root, "lora"), "losses");
      for (int s = 0; s < STEPS; s++) {
        const exec_step_result result = run(s + 1);
        ck_assert_msg(fabs(result.loss - number(losses->items[s])) < 1e-5, "%s, %s: step %d: loss %.9g, PEFT %.9g",
                      models[m], plans[i], s, result.loss, number(losses->items[s]));
      }
      for (int w = 0; w < r.p.program.worker_count; w++) { /* nothing else has moved, nor has room to */
        const exec_parameters *p = exec_pipeline_parameters(r.pipeline, w);
        for (size_t k = 0; k < r.p.graph.weights.count; k++)
          ck_assert(!exec_parameters_value(p, (int)k) || p->offset[k] >= p->trained_count);
      }
      finish();
    }
}
END_TEST

/* ---- evaluation and means ---- */

START_TEST(an_evaluation_learns_nothing) {
  start("sd15", "", "stages = 2\nschedule = \"folded\"", true);
  double squares[2];
  exec_step_result result = {.squares = squares};
  r.step.evaluate = true;
  OK(exec_pipeline_step(r.pipeline, &r.step, &result, &r.timeline, &error));
  ck_assert_double_eq_tol(result.loss, real_of(r.numbers.root, "loss"), 1e-5);
  ck_assert_double_eq_tol((squares[0] + squares[1]) / 2, result.loss, 1e-12);
  const double loss = result.loss;
  OK(exec_pipeline_step(r.pipeline, &r.step, &result, &r.timeline, &error));
  ck_assert(result.loss == loss && result.gradient_norm == 0);
  /* means are 0 as yet: the model puts out 0, and the loss is the mean square of the target */
  r.step.use_means = true;
  OK(exec_pipeline_step(r.pipeline, &r.step, &result, &r.timeline, &error));
  ck_assert(result.loss != loss);
  r.step.use_means = false;
  OK(exec_pipeline_step(r.pipeline, &r.step, &result, &r.timeline, &error));
  ck_assert(result.loss == loss);
}
END_TEST

START_TEST(means_follow_the_weights) {
  start("sd15", "", "stages = 2", true);
  exec_parameters *p = exec_pipeline_parameters(r.pipeline, 1);
  const size_t bytes = (size_t)p->trained_count * sizeof(float);
  memcpy(p->means, p->values, bytes);
  float *before = malloc(bytes);
  ck_assert_ptr_nonnull(before);
  memcpy(before, p->values, bytes);
  r.step.means_decay = 0.75;
  (void)run(1);
  for (int64_t i = 0; i < p->trained_count; i++)
    ck_assert_float_eq_tol(p->means[i], 0.75f * before[i] + 0.25f * p->values[i], 1e-6f);
  free(before);
}
END_TEST

/* A weight of a sample's loss scales its part of the loss and of the gradients. */
static void weigh(void *data, int replica, int microbatch, float *out) {
  (void)data;
  (void)replica;
  out[0] = microbatch == 0 ? 2 : 0;
}

START_TEST(samples_are_weighed) {
  start("sd15", "", "stages = 2", false);
  double squares[2];
  exec_step_result result = {.squares = squares};
  exec_pipeline *weighed = NULL;
  const exec_pipeline_options options = {.feed = {.fill = fill, .weigh = weigh, .data = &r}};
  OK(exec_pipeline_create(&r.p.program, &r.p.graph, &options, &weighed, &error));
  exec_pipeline_free(r.pipeline);
  r.pipeline = weighed;
  load();
  r.step.adamw.step = 1;
  OK(exec_pipeline_step(r.pipeline, &r.step, &result, NULL, &error));
  ck_assert_double_eq_tol(result.loss, squares[0], 1e-7);
  ck_assert_double_gt(fabs(squares[0] - squares[1]), 1e-3);
}
END_TEST

/* Two pipelines on the same weights, as of two resolutions: a step of either moves both. */
START_TEST(pipelines_share_weights) {
  start("sd15", "", "stages = 2\nschedule = \"1f1b\"", false);
  exec_pipeline *other = NULL;
  const exec_pipeline_options options = {.feed = {.fill = fill, .data = &r}, .shared = r.pipeline};
  OK(exec_pipeline_create(&r.p.program, &r.p.graph, &options, &other, &error));
  const dp_node *losses = dp_node_get(r.numbers.root, "losses");
  for (int s = 0; s < STEPS; s++) {
    exec_step_result result = {.squares = NULL};
    r.step.adamw.step = s + 1;
    OK(exec_pipeline_step(s % 2 ? other : r.pipeline, &r.step, &result, NULL, &error));
    ck_assert_double_eq_tol(result.loss, number(losses->items[s]), 1e-5);
  }
  exec_pipeline_free(other);
}
END_TEST

/* ---- compressed skips ---- */

static const char *const compressed[] = {
    "stages = 2\nschedule = \"1f1b\"\nskip_policy = \"compress\"\nk = %d",
    "stages = 4\nschedule = \"zb-h1\"\nskip_policy = \"compress\"\nk = %d",
    "stages = 2\nschedule = \"1f1b\"\nskip_policy = \"compress\"\nk = %d\ndata_parallel = 2",
    "stages = 4\nschedule = \"gpipe\"\ngradient_buckets = 3\nskip_policy = \"compress\"\nk = %d\ndata_parallel = 2",
    "stages = 4\nschedule = \"folded\"\nsplit = [1, 2, 4, 6, 8, 9, 10]\nskip_policy = \"compress\"\nk = %d",
};

static void start_compressed(const char *plan, int k) {
  char text[512];
  (void)snprintf(text, sizeof text, plan, k);
  start("sd15", "", text, false);
  ck_assert_int_gt(exec_pipeline_skips(r.pipeline), 0);
  OK(exec_pipeline_fit_skips(r.pipeline, &error));
}

/* The loss of an evaluation, and the least PSNR of all skips. */
static double measure(double *least) {
  double psnr[16];
  exec_step_result result = {.psnr = psnr};
  exec_step step = r.step;
  step.evaluate = step.measure_skips = true;
  OK(exec_pipeline_step(r.pipeline, &step, &result, NULL, &error));
  *least = INFINITY;
  for (int s = 0; s < exec_pipeline_skips(r.pipeline); s++) *least = fmin(*least, psnr[s]);
  return result.loss;
}

START_TEST(more_values_lose_less) {
  static const int k[] = {16, 128, 512, 3000};
  double last = 0, exact = 0, off = 0;
  for (int i = 0; i < 4; i++) {
    double least;
    start_compressed(compressed[0], k[i]);
    const double loss = measure(&least);
    exact = real_of(r.numbers.root, "loss");
    off = fabs(loss - exact);
    ck_assert_msg(least > last, "k = %d: %.3g dB, fewer values had %.3g", k[i], least, last);
    last = least;
    finish();
  }
  ck_assert_msg(last > 30 && off < 2e-3 * exact, "%.3g dB, loss off by %.3g", last, off);
}
END_TEST

/* Central differences of the loss by every few entries of both ends' matrices, under every plan. */
START_TEST(gradients_of_compressors_are_those_of_the_loss) {
  for (size_t i = 0; i < sizeof compressed / sizeof *compressed; i++) {
    start_compressed(compressed[i], 64);
    const double lr = r.step.adamw.lr;
    r.step.adamw.lr = 0;
    (void)run(1);
    r.step.adamw.lr = lr;
    for (int s = 0; s < exec_pipeline_skips(r.pipeline); s++)
      for (int end = 0; end < 2; end++) {
        double square = 0, off = 0, least;
        const exec_skip first = exec_pipeline_skip(r.pipeline, s, 0);
        for (int64_t at = 0; at < first.compressor->parameters; at += suite_is_short() ? 397 : 23) {
          const float h = 2e-2f;
          double losses[2];
          for (int side = 0; side < 2; side++) {
            for (int replica = 0; replica < r.p.plan.replicas; replica++) {
              const exec_skip ends = exec_pipeline_skip(r.pipeline, s, replica);
              exec_pipeline_parameters(r.pipeline, ends.worker[end])->values[ends.offset[end] + at] +=
                  side ? -2 * h : h;
            }
            losses[side] = measure(&least);
          }
          for (int replica = 0; replica < r.p.plan.replicas; replica++) {
            const exec_skip ends = exec_pipeline_skip(r.pipeline, s, replica);
            exec_pipeline_parameters(r.pipeline, ends.worker[end])->values[ends.offset[end] + at] += h;
          }
          const double difference = (losses[0] - losses[1]) / (2 * (double)h);
          const double gradient =
              exec_pipeline_parameters(r.pipeline, first.worker[end])->gradients[first.offset[end] + at];
          square += difference * difference;
          off += (difference - gradient) * (difference - gradient);
        }
        ck_assert_msg(off < 4e-4 * square, "%s: skip %d, end %d: off by %.3g of %.3g", compressed[i], s, end, sqrt(off),
                      sqrt(square));
      }
    finish();
  }
}
END_TEST

/* Both ends learn with the model, the same in all replicas. */
START_TEST(compressors_learn) {
  for (size_t i = 0; i < sizeof compressed / sizeof *compressed; i++) {
    double least;
    start_compressed(compressed[i], 64);
    const exec_skip before = exec_pipeline_skip(r.pipeline, 0, 0);
    ck_assert_int_eq(before.compressor->parameters % 8, 0); /* weights behind them are as aligned as without */
    const float was = exec_pipeline_parameters(r.pipeline, before.worker[1])->values[before.offset[1]];
    const double loss = measure(&least);
    for (int s = 0; s < 10; s++) (void)run(s + 1);
    ck_assert(measure(&least) < loss);
    ck_assert(exec_pipeline_parameters(r.pipeline, before.worker[1])->values[before.offset[1]] != was);
    for (int replica = 1; replica < r.p.plan.replicas; replica++)
      for (int s = 0; s < exec_pipeline_skips(r.pipeline); s++) {
        const exec_skip one = exec_pipeline_skip(r.pipeline, s, 0), other = exec_pipeline_skip(r.pipeline, s, replica);
        for (int e = 0; e < 2; e++)
          ck_assert_mem_eq(exec_pipeline_parameters(r.pipeline, one.worker[e])->values + one.offset[e],
                           exec_pipeline_parameters(r.pipeline, other.worker[e])->values + other.offset[e],
                           (size_t)one.compressor->parameters * sizeof(float));
      }
    finish();
  }
}
END_TEST

/* ---- what is not finite ---- */

START_TEST(what_is_not_finite_names_its_unit) {
  for (int i = 1; i < 4; i++) {
    start("sd15", "", plans[i], false);
    r.step.clip_norm = 1;
    (void)run(1);
    const exec_parameters *p = exec_pipeline_parameters(r.pipeline, 1);
    const size_t bytes = (size_t)p->count * sizeof(float);
    float *before = malloc(bytes);
    ck_assert_ptr_nonnull(before);
    memcpy(before, p->values, bytes);
    r.spoil = NAN;
    r.step.adamw.step = 2;
    ck_assert_int_eq(exec_pipeline_step(r.pipeline, &r.step, NULL, NULL, &error), DP_RUN_FAILED);
    ck_assert_str_eq(error.text, "unit conv_in, microbatch 1 on worker 0, is the first whose output is not finite");
    ck_assert_mem_eq(before, p->values, bytes); /* nobody has stepped */
    free(before);
    error = (dp_error)DP_ERROR_INIT;
    r.spoil = 0;
    (void)run(2); /* and the run could go on */
    finish();
  }
}
END_TEST

/* A weight that is not finite, in the middle of the model. */
START_TEST(a_spoilt_weight_names_its_unit) {
  start("sd15", "", "stages = 2\nschedule = \"1f1b\"", false);
  int unit = (int)r.p.plan.chunks[1].first_unit + 1, weight = -1;
  const graph *g = &r.p.graph;
  for (int o = g->units.items[unit].first_op; weight < 0; o++)
    if (g->ops.items[o].weight_count > 0) weight = g->ops.items[o].first_weight;
  *(float *)exec_parameters_value(exec_pipeline_parameters(r.pipeline, 1), weight) = INFINITY;
  r.step.adamw.step = 1;
  char wanted[256];
  (void)snprintf(wanted, sizeof wanted, "unit %s, microbatch 0 on worker 1, is the first whose output is not finite",
                 g->units.items[unit].name);
  ck_assert_int_eq(exec_pipeline_step(r.pipeline, &r.step, NULL, NULL, &error), DP_RUN_FAILED);
  ck_assert_str_eq(error.text, wanted);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {clipping_is_pytorchs_under_every_plan,
                                ranks_have_norms_and_rates,
                                clipping_without_a_global_norm_is_refused,
                                adapters_train_as_pefts_do,
                                an_evaluation_learns_nothing,
                                means_follow_the_weights,
                                samples_are_weighed,
                                pipelines_share_weights,
                                more_values_lose_less,
                                gradients_of_compressors_are_those_of_the_loss,
                                compressors_learn,
                                what_is_not_finite_names_its_unit,
                                a_spoilt_weight_names_its_unit};
  return suite_run("exec_step", tests, sizeof tests / sizeof tests[0], setup, teardown, 300);
}
