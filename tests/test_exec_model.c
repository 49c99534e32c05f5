/* The CPU's arithmetic against diffusers: outputs, losses, every gradient and five steps of AdamW of the small models
 * in tests/fixtures (what PyTorch's own rounding leaves is within 1e-6, 8e-6 and 5e-7: see README.md there). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "exec/checkpoint_model.h"
#include "exec/tables.h"
#include "graph/model.h"
#include "graph/op_table.h"
#include "tests/exec_cuts.h"
#include "tests/exec_fused.h"
#include "tests/fixtures.h"
#include "tests/suite.h"

static const char *const models[] = {"sd15", "sd21", "sdxl", "sd3", "sd35", "flux-dev", "flux-schnell"};
enum { MODEL_COUNT = sizeof models / sizeof *models, STEPS = 5 };

static dp_error error;
static dp_document numbers, config;
static dp_safetensors inputs, expected;
static exec_weights weights;
static graph g;
static kern_context *kern;
static exec_parameters parameters;
static exec_cuts whole; /* of one chunk */
static float **values;  /* [tensor] inputs and constants */
static dp_arena arena;
static float *target;
static int output;

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void teardown(void) {
  exec_cuts_free(&whole);
  exec_parameters_free(&parameters);
  kern_context_free(kern);
  kern = NULL;
  exec_weights_close(&weights);
  dp_safetensors_close(&inputs);
  dp_safetensors_close(&expected);
  dp_document_free(&numbers);
  dp_document_free(&config);
  graph_free(&g);
  dp_arena_free(&arena);
}

#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static float *read_values(const dp_safetensors *file, const char *name, int64_t *count) {
  const dp_safetensor *tensor = dp_safetensors_find(file, name);
  ck_assert_msg(tensor != NULL, "%s lacks %s", file->path, name);
  float *out = DP_ARENA_NEW(&arena, float, (size_t)tensor->elements);
  ck_assert_ptr_nonnull(out);
  OK(dp_safetensor_read_fp32(file, tensor, out, &error));
  if (count) *count = tensor->elements;
  return out;
}

/* Images of files, [B, C, H, W], as they lie in memory here. */
static float *channels_last(const graph_tensor *t, const float *x) {
  float *y = DP_ARENA_NEW(&arena, float, (size_t)graph_tensor_elements(t));
  ck_assert_ptr_nonnull(y);
  if (t->rank == 4)
    kern_channels_last(kern, t->dims[0], t->dims[1], t->dims[2] * t->dims[3], x, y);
  else
    memcpy(y, x, (size_t)graph_tensor_elements(t) * sizeof *y);
  return y;
}

static void cut(const int *cuts, int count, const uint8_t *recompute, bool split, exec_cuts *made) {
  exec_cuts_make(&g, cuts, count, recompute, split, &parameters, kern, made);
  made->inputs = values;
  made->target = target;
}

static void open_trained(const char *model, int threads, bool lora) {
  OK(dp_document_read(fixture_path(model, "expected.json"), &numbers, &error));
  OK(dp_document_read(fixture_path(model, "config.json"), &config, &error));
  OK(dp_safetensors_open(fixture_path(model, "inputs.safetensors"), &inputs, &error));
  OK(dp_safetensors_open(fixture_path(model, "expected.safetensors"), &expected, &error));
  graph_model_options options;
  graph_model_options_default(&options);
  options.batch = dp_node_get(numbers.root, "batch")->integer;
  options.height = 8 * dp_node_get(numbers.root, "latent_height")->integer;
  options.width = 8 * dp_node_get(numbers.root, "latent_width")->integer;
  options.text_tokens = dp_node_get(numbers.root, "text_tokens")->integer;
  options.precision = GRAPH_FP32;
  if (lora) {
    options.trainable = GRAPH_TRAIN_LORA;
    options.lora_rank = 3;
    options.lora_all_linear = true;
  }
  OK(graph_model_read(fixture_path(model, "config.json"), &options, &g, &error));
  OK(exec_weights_open(fixture_path(model, ""), &g, &weights, &error));
  const int units = (int)g.units.count;
  const kern_context_options how = {.threads = threads,
                                    .workspace_bytes = exec_chunk_workspace(&exec_math_cpu, &g, 0, units, threads)};
  OK(kern_context_create(&how, &kern, &error));
  OK(exec_parameters_init(&g, &(exec_parameters_options){.training = true}, &parameters, &error));
  OK(exec_chunk_check(&exec_math_cpu, &g, &error));
  for (size_t w = 0; w < g.weights.count; w++) {
    float *file = DP_ARENA_NEW(&arena, float, (size_t)g.weights.items[w].parameters);
    ck_assert_ptr_nonnull(file);
    OK(exec_weights_read(&weights, (int)w, file, &error));
    exec_parameters_from_file(kern, &parameters, (int)w, file);
  }
  values = DP_ARENA_NEW(&arena, float *, g.tensors.count);
  ck_assert_ptr_nonnull(values);
  for (size_t t = 0; t < g.tensors.count; t++) {
    const graph_tensor *tensor = &g.tensors.items[t];
    if (tensor->is_output) {
      output = (int)t;
      target = channels_last(tensor, read_values(&inputs, "target", NULL));
    }
    if (tensor->producer_op != GRAPH_NONE) continue;
    if (tensor->is_constant) {
      values[t] = DP_ARENA_NEW(&arena, float, (size_t)graph_tensor_elements(tensor));
      OK(exec_table_fill(&g, (int)t, config.root, weights.files, exec_weights_buffer(&weights, tensor->name), values[t],
                         &error));
    } else {
      values[t] = channels_last(tensor, read_values(&inputs, tensor->name, NULL));
    }
  }
  cut(NULL, 0, NULL, false, &whole);
}

static void open_model(const char *model, int threads) { open_trained(model, threads, false); }

static int64_t output_elements(void) { return graph_tensor_elements(&g.tensors.items[output]); }

/* Largest difference, over the largest element of the reference. */
static double difference(int64_t n, const float *a, const float *reference) {
  double most = 0, largest = 0;
  for (int64_t i = 0; i < n; i++) {
    ck_assert(isfinite(a[i]));
    most = fmax(most, fabs((double)a[i] - reference[i]));
    largest = fmax(largest, fabs((double)reference[i]));
  }
  return largest > 0 ? most / largest : most;
}

static void check_model(const char *model, int threads) {
  open_model(model, threads);
  const double loss = exec_cuts_step(&whole);
  ck_assert_msg(fabs(loss - dp_node_get(numbers.root, "loss")->real) < 1e-5, "%s: loss %.9g, diffusers has %.9g", model,
                loss, dp_node_get(numbers.root, "loss")->real);
  const float *right = channels_last(&g.tensors.items[output], read_values(&expected, "output", NULL));
  double most = 0;
  for (int64_t i = 0; i < output_elements(); i++) most = fmax(most, fabs((double)whole.output[i] - right[i]));
  ck_assert_msg(most < 1e-5, "%s: the output is off by %.3g", model, most);
  for (size_t w = 0; w < g.weights.count; w++) {
    char name[512];
    int64_t n;
    (void)snprintf(name, sizeof name, "grad.%s", g.weights.items[w].name);
    const float *reference = read_values(&expected, name, &n);
    float *file = DP_ARENA_NEW(&arena, float, (size_t)n);
    exec_parameters_to_file(kern, &parameters, parameters.gradients, (int)w, file);
    const double off = difference(n, file, reference);
    ck_assert_msg(off < 1e-4, "%s: %s is off by %.3g of its largest element", model, name, off);
  }
  teardown();
}

START_TEST(outputs_and_gradients_are_diffusers) {
  for (int m = 0; m < MODEL_COUNT; m++) check_model(models[m], 1 + m % 3);
}
END_TEST

/* `losses`: before each step, and after the last. */
START_TEST(five_steps_of_adamw_are_pytorchs) {
  for (int m = 0; m < MODEL_COUNT; m++) {
    open_model(models[m], 2);
    const dp_node *adamw = dp_node_get(numbers.root, "adamw"), *losses = dp_node_get(numbers.root, "losses");
    kern_adamw settings = {.lr = dp_node_get(adamw, "lr")->real,
                           .beta1 = dp_node_get(adamw, "betas")->items[0]->real,
                           .beta2 = dp_node_get(adamw, "betas")->items[1]->real,
                           .epsilon = dp_node_get(adamw, "eps")->real,
                           .weight_decay = dp_node_get(adamw, "weight_decay")->real,
                           .gradient_scale = 1};
    for (int s = 0; s <= STEPS; s++) {
      kern_fill(kern, parameters.count, 0, parameters.gradients);
      const double loss = exec_cuts_step(&whole);
      ck_assert_msg(fabs(loss - losses->items[s]->real) < 1e-5, "%s: step %d: loss %.9g, PyTorch has %.9g", models[m],
                    s, loss, losses->items[s]->real);
      settings.step = s + 1;
      kern_adamw_step(kern, &settings, parameters.count, parameters.values, parameters.gradients, parameters.first,
                      parameters.second);
    }
    teardown();
  }
}
END_TEST

static int64_t random_below(dp_random *random, int64_t n) { return (int64_t)dp_random_below(random, (uint64_t)n); }

static void assert_step_is(exec_cuts *c, double loss, const float *right, const char *model, int round, float before,
                           const char *how) {
  kern_fill(kern, parameters.trained_count, before, parameters.gradients);
  const double found = exec_cuts_step(c);
  ck_assert_msg(found == loss, "%s, round %d%s: loss %.9g, whole %.9g", model, round, how, found, loss);
  for (int64_t i = 0; i < parameters.trained_count; i++)
    if (parameters.gradients[i] != right[i])
      ck_abort_msg("%s, round %d%s: gradient %" PRId64 " is %.9g, whole %.9g", model, round, how, i,
                   parameters.gradients[i], right[i]);
}

/* However the model is cut, whatever is made again, whether or not the weight backward comes apart, and whether actions
 * run by themselves or in groups: gradients are handed from chunk to chunk as one chunk adds them up. */
static void assert_same_bits(const char *model, dp_random *random, int rounds) {
  const int units = (int)g.units.count;
  const double loss = exec_cuts_step(&whole);
  const size_t bytes = (size_t)parameters.trained_count * sizeof(float);
  float *right = malloc(bytes);
  ck_assert_ptr_nonnull(right);
  memcpy(right, parameters.gradients, bytes);
  for (int round = 0; round < rounds; round++) {
    int cuts[64], count = 0;
    uint8_t recompute[64];
    const int64_t cut_of = round == 0 ? 3 : random_below(random, 4), again_of = random_below(random, 4);
    ck_assert_int_le(units, 64);
    for (int u = 0; u < units; u++) {
      recompute[u] = random_below(random, 3) < again_of;
      if (u > 0 && random_below(random, 3) < cut_of) cuts[count++] = u;
    }
    exec_cuts c;
    cut(cuts, count, recompute, round % 2 == 1, &c);
    assert_step_is(&c, loss, right, model, round, 0, "");
    exec_cuts_fuse(&c, exec_math_fused());
    assert_step_is(&c, loss, right, model, round, NAN, ", in groups");
    exec_cuts_free(&c);
  }
  free(right);
}

START_TEST(cuts_and_recomputation_change_no_bit) {
  dp_random random;
  dp_random_init(&random, 3, 1);
  for (int m = 0; m < MODEL_COUNT; m++) {
    open_model(models[m], 2);
    assert_same_bits(models[m], &random, suite_is_short() ? 4 : 12);
    teardown();
  }
}
END_TEST

/* The same of adapters, with factors that are not zero. */
START_TEST(cuts_and_recomputation_change_no_bit_of_adapters) {
  dp_random random;
  dp_random_init(&random, 3, 2);
  for (int m = 0; m < MODEL_COUNT; m++) {
    open_trained(models[m], 2, true);
    for (int64_t i = 0; i < parameters.trained_count; i++)
      parameters.values[i] = (float)(0.2 * dp_random_uniform(&random) - 0.1);
    assert_same_bits(models[m], &random, suite_is_short() ? 4 : 12);
    teardown();
  }
}
END_TEST

START_TEST(threads_change_no_bit) {
  float *first = NULL;
  double loss = 0;
  for (int threads = 1; threads <= 3; threads++) {
    open_model("sdxl", threads);
    const double found = exec_cuts_step(&whole);
    const size_t bytes = (size_t)parameters.count * sizeof *first;
    if (!first) {
      first = malloc(bytes);
      ck_assert_ptr_nonnull(first);
      memcpy(first, parameters.gradients, bytes);
      loss = found;
    }
    ck_assert(found == loss);
    ck_assert_mem_eq(first, parameters.gradients, bytes);
    teardown();
  }
  free(first);
}
END_TEST

/* Without the checkpoint's table of positions it is computed: the same to rounding. */
START_TEST(positions_are_computed_as_diffusers_does) {
  open_model("sd3", 1);
  for (size_t t = 0; t < g.tensors.count; t++) {
    const graph_tensor *tensor = &g.tensors.items[t];
    if (!tensor->is_constant) continue;
    const int64_t n = graph_tensor_elements(tensor);
    float *computed = DP_ARENA_NEW(&arena, float, (size_t)n);
    OK(exec_table_fill(&g, (int)t, config.root, NULL, NULL, computed, &error));
    for (int64_t i = 0; i < n; i++) ck_assert_float_eq_tol(computed[i], values[t][i], 1e-6f);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {outputs_and_gradients_are_diffusers,
                                five_steps_of_adamw_are_pytorchs,
                                cuts_and_recomputation_change_no_bit,
                                cuts_and_recomputation_change_no_bit_of_adapters,
                                threads_change_no_bit,
                                positions_are_computed_as_diffusers_does};
  return suite_run("exec_model", tests, sizeof tests / sizeof tests[0], setup, teardown, 300);
}
