/* The small models of tests/fixtures, which diffusers and PyTorch made (tests/reference/make_fixtures.py), against the
 * graphs and the noise schedules: what the executor is later compared with is read here as it reads it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/node.h"
#include "base/safetensors.h"
#include "exec/scheduler.h"
#include "graph/model.h"
#include "tests/fixtures.h"
#include "tests/suite.h"

static const char *const models[] = {"sd15", "sd21", "sdxl", "sd3", "sd35", "flux-dev", "flux-schnell"};
enum { MODEL_COUNT = sizeof models / sizeof *models };

static dp_error error;
static dp_safetensors weights, inputs, expected;
static dp_document numbers;
static graph g;

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void teardown(void) {
  dp_safetensors_close(&weights);
  dp_safetensors_close(&inputs);
  dp_safetensors_close(&expected);
  dp_document_free(&numbers);
  graph_free(&g);
}

#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static const dp_node *number(const char *key) {
  const dp_node *node = dp_node_get(numbers.root, key);
  ck_assert_msg(node != NULL, "expected.json lacks %s", key);
  return node;
}

static float *values(const dp_safetensors *file, const char *name, int64_t *count) {
  const dp_safetensor *tensor = dp_safetensors_find(file, name);
  ck_assert_msg(tensor != NULL, "%s lacks %s", file->path, name);
  float *out = malloc((size_t)tensor->elements * sizeof *out);
  ck_assert_ptr_nonnull(out);
  OK(dp_safetensor_read_fp32(file, tensor, out, &error));
  if (count != NULL) *count = tensor->elements;
  return out;
}

static void open_model(const char *model, graph_trainable trainable, int64_t lora_rank) {
  OK(dp_document_read(fixture_path(model, "expected.json"), &numbers, &error));
  OK(dp_safetensors_open(fixture_path(model, "diffusion_pytorch_model.safetensors"), &weights, &error));
  OK(dp_safetensors_open(fixture_path(model, "inputs.safetensors"), &inputs, &error));
  OK(dp_safetensors_open(fixture_path(model, "expected.safetensors"), &expected, &error));
  graph_model_options options;
  graph_model_options_default(&options);
  options.batch = number("batch")->integer;
  options.height = 8 * number("latent_height")->integer;
  options.width = 8 * number("latent_width")->integer;
  options.text_tokens = number("text_tokens")->integer;
  options.precision = GRAPH_FP32;
  options.trainable = trainable;
  options.lora_rank = lora_rank;
  OK(graph_model_read(fixture_path(model, "config.json"), &options, &g, &error));
}

static void check_shape(const char *what, const dp_safetensor *tensor, int rank, const int64_t *dims) {
  char made[96], given[96];
  ck_assert_msg(tensor != NULL, "%s is in no file", what);
  ck_assert_str_eq(dp_dtype_name(tensor->dtype), "F32");
  ck_assert_msg(strcmp(dp_shape_text(rank, dims, made), dp_safetensor_shape(tensor, given)) == 0,
                "%s: %s in the graph, %s in the file", what, made, given);
}

/* Names and shapes, both ways. SD3's table of positions is a buffer of the checkpoint, no weight. */
START_TEST(weights_and_gradients_are_the_graphs) {
  open_model(models[_i], GRAPH_TRAIN_FULL, 0);
  ck_assert_str_eq(g.class_name, number("class")->string);
  ck_assert_int_eq(g.parameters, number("parameters")->integer);
  char name[512];
  for (size_t w = 0; w < g.weights.count; w++) {
    const graph_weight *weight = &g.weights.items[w];
    snprintf(name, sizeof name, "grad.%s", weight->name);
    check_shape(weight->name, dp_safetensors_find(&weights, weight->name), weight->rank, weight->dims);
    check_shape(name, dp_safetensors_find(&expected, name), weight->rank, weight->dims);
  }
  const bool table = dp_safetensors_find(&weights, "pos_embed.pos_embed") != NULL;
  ck_assert_int_eq(table, strcmp(g.class_name, "SD3Transformer2DModel") == 0);
  ck_assert_uint_eq(weights.count, g.weights.count + table);
}
END_TEST

/* Inputs under the graph's names; Flux's output is compared as it comes, packed. */
START_TEST(inputs_and_output_are_the_graphs) {
  open_model(models[_i], GRAPH_TRAIN_FULL, 0);
  int found = 0;
  for (size_t t = 0; t < g.tensors.count; t++) {
    const graph_tensor *tensor = &g.tensors.items[t];
    if (tensor->producer_op == GRAPH_NONE && !tensor->is_constant) {
      const dp_safetensor *input = dp_safetensors_find(&inputs, tensor->name);
      ck_assert_msg(input != NULL, "no input %s", tensor->name);
      check_shape(tensor->name, input, tensor->rank, tensor->dims);
      found++;
    }
    if (tensor->is_output) {
      check_shape("output", dp_safetensors_find(&expected, "output"), tensor->rank, tensor->dims);
      check_shape("target", dp_safetensors_find(&inputs, "target"), tensor->rank, tensor->dims);
      found += 100;
    }
  }
  ck_assert_int_ge(found, 103);
  ck_assert_int_lt(found, 200);
}
END_TEST

/* What the numbers mean: the loss is the mean square, and the norm is that of all gradients. */
START_TEST(loss_and_norm_follow_from_the_tensors) {
  open_model(models[_i], GRAPH_TRAIN_FULL, 0);
  int64_t n;
  float *output = values(&expected, "output", &n), *target = values(&inputs, "target", NULL);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; i++) sum += ((double)output[i] - target[i]) * ((double)output[i] - target[i]);
  ck_assert_double_eq_tol(sum / (double)n, number("loss")->real, 1e-6);
  ck_assert_double_eq_tol(number("losses")->items[0]->real, number("loss")->real, 1e-6);
  for (size_t t = 0; t < expected.count; t++) {
    if (strncmp(expected.tensors[t].name, "grad.", 5) != 0) continue;
    float *gradient = values(&expected, expected.tensors[t].name, &n);
    for (int64_t i = 0; i < n; i++) squares += (double)gradient[i] * gradient[i];
    free(gradient);
  }
  ck_assert_double_eq_tol(sqrt(squares), number("gradient_norms")->items[0]->real, 1e-5);
  free(output);
  free(target);
}
END_TEST

START_TEST(adapters_are_the_graphs) {
  static const char *const with_lora[] = {"sd15", "sd3", "flux-dev"};
  OK(dp_safetensors_open(fixture_path(with_lora[_i], "lora/pytorch_lora_weights.safetensors"), &weights, &error));
  int64_t parameters = 0;
  for (size_t t = 0; t < weights.count; t++) parameters += weights.tensors[t].elements;
  dp_safetensors_close(&weights);
  open_model(with_lora[_i], GRAPH_TRAIN_LORA, 4);
  ck_assert_int_eq(dp_node_get(number("lora"), "rank")->integer, 4);
  ck_assert_int_eq(g.trainable_parameters, parameters);
}
END_TEST

/* ---- noise schedules ---- */

static exec_scheduler_options scheduler_options(const char *folder) {
  exec_scheduler_options options;
  dp_document config = {0};
  char name[64];
  snprintf(name, sizeof name, "schedules/%s", folder);
  OK(dp_document_read(fixture_path(name, "scheduler_config.json"), &config, &error));
  OK(exec_scheduler_read(config.root, NULL, &options, &error));
  dp_document_free(&config);
  return options;
}

static void noise_as_diffusers(const char *model, const exec_scheduler *s, const char *steps, const char *noised_name) {
  OK(dp_safetensors_open(fixture_path(model, "inputs.safetensors"), &inputs, &error));
  int64_t n, batch;
  float *clean = values(&inputs, "latents", &n), *noise = values(&inputs, "noise", NULL);
  float *t = values(&inputs, steps, &batch), *noised = values(&inputs, noised_name, NULL);
  float *target = values(&inputs, "target", NULL);
  float *my_noised = malloc((size_t)n * sizeof *my_noised), *my_target = malloc((size_t)n * sizeof *my_target);
  const int64_t one = n / batch;
  for (int64_t b = 0; b < batch; b++)
    exec_scheduler_noise(s, t[b], clean + b * one, noise + b * one, one, my_noised + b * one, my_target + b * one);
  for (int64_t i = 0; i < n; i++) {
    ck_assert_float_eq_tol(my_noised[i], noised[i], 1e-6f);
    ck_assert_float_eq_tol(my_target[i], target[i], 1e-6f);
  }
  float *const all[] = {clean, noise, t, noised, target, my_noised, my_target};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  dp_safetensors_close(&inputs);
}

START_TEST(ddpm_is_diffusers_own) {
  exec_scheduler_options options = scheduler_options("ddpm");
  static const struct {
    exec_prediction prediction;
    const char *min_snr, *model;
  } cases[] = {{EXEC_EPSILON, "min_snr.epsilon", "sd15"}, {EXEC_V, "min_snr.v_prediction", "sd21"}};
  OK(dp_safetensors_open(fixture_path("schedules", "schedules.safetensors"), &expected, &error));
  float *products = values(&expected, "ddpm.alphas_cumprod", NULL);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    exec_scheduler s;
    options.prediction = cases[c].prediction;
    OK(exec_scheduler_init(&options, &s, &error));
    float *min_snr = values(&expected, cases[c].min_snr, NULL);
    for (int t = 0; t < 1000; t++) {
      ck_assert_msg((float)s.alphas_cumprod[t] == products[t], "alphas_cumprod[%d]: %.9g, diffusers has %.9g", t,
                    s.alphas_cumprod[t], (double)products[t]);
      ck_assert_double_eq_tol(exec_scheduler_min_snr(&s, t, 5), min_snr[t], 2e-6);
    }
    noise_as_diffusers(cases[c].model, &s, "timestep", "sample");
    free(min_snr);
    exec_scheduler_free(&s);
  }
  free(products);
}
END_TEST

/* Flux packs what it noises, so that SD3's tensors alone are compared. */
START_TEST(flow_is_diffusers_own) {
  static const char *const kinds[] = {"sd3", "flux-schnell"};
  OK(dp_safetensors_open(fixture_path("schedules", "schedules.safetensors"), &expected, &error));
  for (int k = 0; k < 2; k++) {
    const exec_scheduler_options options = scheduler_options(kinds[k]);
    exec_scheduler s;
    char name[64];
    int64_t n;
    OK(exec_scheduler_init(&options, &s, &error));
    snprintf(name, sizeof name, "%s.sampling_sigmas", kinds[k]);
    float *sigmas = values(&expected, name, &n);
    OK(exec_scheduler_set_steps(&s, (int)n - 1, &error));
    for (int64_t i = 0; i < n; i++)
      ck_assert_msg(fabs(s.sigmas[i] - sigmas[i]) <= 1e-6, "%s[%" PRId64 "]: %.9g, diffusers has %.9g", name, i,
                    s.sigmas[i], (double)sigmas[i]);
    free(sigmas);
    if (k == 0) noise_as_diffusers("sd3", &s, "sigma", "hidden_states");
    exec_scheduler_free(&s);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("fixtures");
  TCase *tcase = suite_case(suite, "fixtures", setup, teardown, 60);
  tcase_add_loop_test(tcase, weights_and_gradients_are_the_graphs, 0, MODEL_COUNT);
  tcase_add_loop_test(tcase, inputs_and_output_are_the_graphs, 0, MODEL_COUNT);
  tcase_add_loop_test(tcase, loss_and_norm_follow_from_the_tensors, 0, MODEL_COUNT);
  tcase_add_loop_test(tcase, adapters_are_the_graphs, 0, 3);
  tcase_add_test(tcase, ddpm_is_diffusers_own);
  tcase_add_test(tcase, flow_is_diffusers_own);
  return suite_finish(suite);
}
