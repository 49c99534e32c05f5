/* What diffusers, PyTorch and PEFT put out for the small models of tests/fixtures against a CUDA device, in fp32 and
 * bf16: the output, the loss, every gradient, the losses over five steps of AdamW, and the same of LoRA files. Ends
 * with `N passed, N failed`; exits with 77 where there is no device.
 *
 * usage: test_cuda_fixtures [MODEL] [--cpu]
 *   --cpu   on the host instead, in fp32 alone
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/adapter.h"
#include "exec/lanes.h"
#include "sim/predict.h"
#include "tests/cuda_checks.h"
#include "tests/exec_fixture.h"

enum { STEPS = 5 };

static dp_error error = DP_ERROR_INIT;
static bool on_host;
static sim_efficiency *efficiency;

/* A model at work. */
typedef struct rig {
  const char *model;
  bool bf16, lora;
  dp_document numbers, config;
  const dp_node *trained; /* of the numbers: losses */
  dp_safetensors inputs, expected;
  exec_weights weights;
  exec_adapter adapter;
  plan_scenario scenario;
  sim_prediction p;
  exec_pipeline *pipeline;
  dp_arena arena;
  double all, off; /* the norm of all expected gradients; how far those found are away, as a part of it */
  int64_t count;
  /* the worst that was seen */
  double output, gradient, loss;
} rig;

/* ---- making it ---- */

static double number(const dp_node *node) { return node->kind == DP_NODE_REAL ? node->real : (double)node->integer; }
static double real_of(const dp_node *table, const char *key) { return number(dp_node_get(table, key)); }

/* A tensor of a file; NULL: it has no such one, or no memory is left. */
static float *values_of(rig *r, const dp_safetensors *file, const char *name, int64_t *count) {
  const dp_safetensor *tensor = dp_safetensors_find(file, name);
  float *out = tensor ? DP_ARENA_NEW(&r->arena, float, (size_t)tensor->elements) : NULL;
  if (!out || dp_safetensor_read_fp32(file, tensor, out, &error) != DP_OK) {
    check(false, "%s: %s cannot be read", file->path, name);
    return NULL;
  }
  *count = tensor->elements;
  return out;
}

/* Images of files, [B, C, H, W], lie channels last in memory. */
static void to_memory(const graph_tensor *t, const float *file, float *memory) {
  const int64_t n = graph_tensor_elements(t) / t->dims[0], positions = t->rank == 4 ? t->dims[2] * t->dims[3] : 1,
                channels = n / positions;
  for (int64_t s = 0; s < t->dims[0]; s++)
    for (int64_t c = 0; c < channels; c++)
      for (int64_t at = 0; at < positions; at++) memory[s * n + at * channels + c] = file[s * n + c * positions + at];
}

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  rig *r = data;
  const graph_tensor *t = &r->p.graph.tensors.items[tensor];
  int64_t n;
  (void)replica, (void)microbatch; /* one worker has the whole batch at once */
  const float *file = values_of(r, &r->inputs, t->is_output ? "target" : t->name, &n);
  if (file) to_memory(t, file, out);
}

static dp_status load_adapters(rig *r) {
  const exec_parameters *p = exec_pipeline_parameters(r->pipeline, 0);
  for (int l = 0; l < r->adapter.count; l++) {
    const exec_adapter_layer *layer = &r->adapter.layers[l];
    const int64_t of_a = layer->rank * layer->in, of_b = layer->rank * layer->out;
    float *both = DP_ARENA_NEW(&r->arena, float, (size_t)(of_a + of_b));
    if (!both) return dp_fail_memory(&error);
    DP_TRY(exec_adapter_read(&r->adapter, l, both, both + of_a, &error));
    DP_TRY(exec_pipeline_write(r->pipeline, 0, EXEC_VALUES, p->lora_offset[layer->op], of_a + of_b, both, &error));
  }
  return DP_OK;
}

static dp_status open_files(rig *r) {
  DP_TRY(dp_document_read(fixture_path(r->model, "expected.json"), &r->numbers, &error));
  DP_TRY(dp_document_read(fixture_path(r->model, "config.json"), &r->config, &error));
  DP_TRY(dp_safetensors_open(fixture_path(r->model, "inputs.safetensors"), &r->inputs, &error));
  r->trained = r->lora ? dp_node_get(r->numbers.root, "lora") : r->numbers.root;
  return dp_safetensors_open(fixture_path(r->model, r->lora ? "lora/expected.safetensors" : "expected.safetensors"),
                             &r->expected, &error);
}

static dp_status open_pipeline(rig *r) {
  const dp_node *root = r->numbers.root;
  const exec_fixture job = {.model = r->model,
                            .height = 8 * (int)real_of(root, "latent_height"),
                            .width = 8 * (int)real_of(root, "latent_width"),
                            .text_tokens = (int)real_of(root, "text_tokens"),
                            .global_batch = 2,
                            .precision = r->bf16 ? "bf16" : "fp32",
                            .task = r->lora ? "trainable = \"lora\"\nlora_rank = 4" : "",
                            .plan = "stages = 1\nmicrobatch_size = 2"};
  DP_TRY(exec_fixture_scenario(&job, &r->scenario, &error));
  DP_TRY(sim_predict(&r->scenario, efficiency, &r->p, &error));
  DP_TRY(exec_weights_open(fixture_path(r->model, ""), &r->p.graph, &r->weights, &error));
  if (r->lora) DP_TRY(exec_adapter_open(fixture_path(r->model, "lora"), &r->p.graph, &r->adapter, &error));
  const exec_pipeline_options options = {.cuda = !on_host,
                                         .threads = 1,
                                         .feed = {.fill = fill, .data = r},
                                         .lora_alpha = r->lora ? real_of(r->trained, "alpha") : 0};
  DP_TRY(exec_pipeline_create(&r->p.program, &r->p.graph, &options, &r->pipeline, &error));
  DP_TRY(exec_fixture_load(r->pipeline, &r->p.program, &r->p.graph, &r->weights, r->config.root, &error));
  return r->lora ? load_adapters(r) : DP_OK;
}

static void close_all(rig *r) {
  exec_pipeline_free(r->pipeline);
  exec_adapter_close(&r->adapter);
  exec_weights_close(&r->weights);
  sim_prediction_free(&r->p);
  plan_scenario_free(&r->scenario);
  dp_safetensors_close(&r->inputs);
  dp_safetensors_close(&r->expected);
  dp_document_free(&r->numbers);
  dp_document_free(&r->config);
  dp_arena_free(&r->arena);
}

/* ---- bounds ---- */

/* fp32: what the executor on the host is held to. bf16: a value that is stored is off by up to u = 2^-8 of itself, by
 * less than u / 2 as the root of the mean square. Of each op three are: a weight, what it puts out, and, where
 * something is added, the sum before that. Roundings are independent, norms and residual sums keep them about as large
 * beside the values as they were, and so after n ops their squares have added up to 3 n (u / 2)^2; in backward, which
 * reads what forward has put out, to twice that. */
static double rounding_of(const rig *r, bool backward) {
  return ldexp(1, -9) * sqrt((backward ? 6 : 3) * (double)r->p.graph.ops.count);
}

/* ---- what is compared ---- */

static double root_of(int64_t n, const float *a, const float *b) {
  double square = 0;
  for (int64_t i = 0; i < n; i++) {
    const double d = (double)a[i] - (b ? b[i] : 0);
    square += d * d;
  }
  return sqrt(square);
}

static void compare_output(rig *r) {
  const int output = r->pipeline->work.output;
  const graph_tensor *t = &r->p.graph.tensors.items[output];
  exec_worker *w = &r->pipeline->workers[0];
  int64_t n;
  const float *file = values_of(r, &r->expected, "output", &n);
  float *right = DP_ARENA_NEW(&r->arena, float, (size_t)n), *found = DP_ARENA_NEW(&r->arena, float, (size_t)n);
  if (!file || !right || !found) return;
  to_memory(t, file, right);
  check(r->pipeline->work.kind->read(w, t->dtype, n, w->layout.outputs[0], found, &error) == DP_OK, "%s", error.text);
  for (int64_t i = 0; i < n && !r->bf16; i++) r->output = fmax(r->output, fabs((double)found[i] - right[i]));
  if (r->bf16) r->output = root_of(n, found, right) / root_of(n, right, NULL);
  const double bound = r->bf16 ? rounding_of(r, false) : 1e-5;
  check(r->output < bound, "%s: the output is off by %.3g, allowed: %.3g", r->model, r->output, bound);
}

/* In bf16 a gradient whose terms cancel, as those of what a norm takes away again, is held to a share of all gradients,
 * which is as large as the terms would be; and one of a few values may be two deviations off. */
static void compare_gradient(rig *r, const char *name, const float *found) {
  char full[600];
  int64_t n;
  (void)snprintf(full, sizeof full, "grad.%s", name);
  const float *right = values_of(r, &r->expected, full, &n);
  if (!right) return;
  double off = 0, largest = 0;
  for (int64_t i = 0; i < n; i++) {
    off = fmax(off, fabs((double)found[i] - right[i]));
    largest = fmax(largest, fabs((double)right[i]));
  }
  const double distance = root_of(n, found, right);
  r->off += distance * distance;
  if (r->bf16) {
    off = distance;
    largest = fmax(root_of(n, right, NULL), r->all * sqrt((double)n / (double)r->count));
  }
  if (largest > 0) off /= largest;
  const double bound = r->bf16 ? 2 * rounding_of(r, true) : 1e-4;
  r->gradient = fmax(r->gradient, off);
  check(off < bound, "%s: the gradient of %s is off by %.3g of its size, allowed: %.3g", r->model, name, off, bound);
}

/* Of all gradients that are expected: how many values, and their norm. */
static void size_up(rig *r) {
  double square = 0;
  for (size_t t = 0; t < r->expected.count; t++) {
    const char *name = r->expected.tensors[t].name;
    int64_t n;
    const float *values = strncmp(name, "grad.", 5) == 0 ? values_of(r, &r->expected, name, &n) : NULL;
    if (!values) continue;
    square += pow(root_of(n, values, NULL), 2);
    r->count += n;
  }
  r->all = sqrt(square);
}

static void compare_gradients(rig *r) {
  const graph *g = &r->p.graph;
  const exec_parameters *p = exec_pipeline_parameters(r->pipeline, 0);
  size_up(r);
  for (int w = 0; w < (int)g->weights.count && !r->lora; w++) {
    float *found = DP_ARENA_NEW(&r->arena, float, (size_t)g->weights.items[w].parameters);
    if (!found || exec_pipeline_read_weight(r->pipeline, 0, EXEC_GRADIENTS, w, found, &error) != DP_OK)
      check(false, "%s", error.text);
    else
      compare_gradient(r, g->weights.items[w].name, found);
  }
  for (int l = 0; l < r->adapter.count; l++) {
    const exec_adapter_layer *layer = &r->adapter.layers[l];
    const int64_t of_a = layer->rank * layer->in, of_b = layer->rank * layer->out, at = p->lora_offset[layer->op];
    float *found = DP_ARENA_NEW(&r->arena, float, (size_t)(of_a + of_b));
    if (!found || exec_pipeline_read(r->pipeline, 0, EXEC_GRADIENTS, at, of_a + of_b, found, &error) != DP_OK) {
      check(false, "%s", error.text);
      continue;
    }
    compare_gradient(r, layer->a->name, found);
    compare_gradient(r, layer->b->name, found + of_a);
  }
  r->off = sqrt(r->off) / r->all;
  const double bound = r->bf16 ? rounding_of(r, true) : 1e-4;
  check(r->off < bound, "%s: all gradients are off by %.3g, allowed: %.3g", r->model, r->off, bound);
}

/* A mean of squares is off by twice what its terms are. */
static void compare_loss(rig *r, int step, double loss) {
  const double right = number(dp_node_get(r->trained, "losses")->items[step]), off = fabs(loss - right);
  const double bound = r->bf16 ? 2 * right * rounding_of(r, false) : 1e-5;
  r->loss = fmax(r->loss, off);
  check(off < bound, "%s: step %d: the loss is %.9g, PyTorch has %.9g", r->model, step, loss, right);
}

static dp_status compare(rig *r) {
  const dp_node *adamw = dp_node_get(r->numbers.root, "adamw");
  exec_step_result result = {.squares = NULL};
  exec_step step = {.evaluate = true,
                    .adamw = {.lr = real_of(adamw, "lr"),
                              .beta1 = number(dp_node_get(adamw, "betas")->items[0]),
                              .beta2 = number(dp_node_get(adamw, "betas")->items[1]),
                              .epsilon = real_of(adamw, "eps"),
                              .weight_decay = real_of(adamw, "weight_decay")}};
  DP_TRY(exec_pipeline_step(r->pipeline, &step, &result, NULL, &error));
  compare_output(r);
  step.evaluate = false;
  for (int s = 0; s < STEPS; s++) {
    step.adamw.step = s + 1;
    DP_TRY(exec_pipeline_step(r->pipeline, &step, &result, NULL, &error));
    compare_loss(r, s, result.loss);
    if (s == 0) compare_gradients(r);
  }
  step.evaluate = true;
  DP_TRY(exec_pipeline_step(r->pipeline, &step, &result, NULL, &error));
  compare_loss(r, STEPS, result.loss);
  return DP_OK;
}

static void try(const char *model, bool lora, bool bf16) {
  rig r = {.model = model, .bf16 = bf16, .lora = lora};
  error = (dp_error)DP_ERROR_INIT;
  dp_status status = open_files(&r);
  if (status == DP_OK) status = open_pipeline(&r);
  if (status == DP_OK) status = compare(&r);
  check(status == DP_OK, "%s: %s", model, error.text);
  printf("%-12s %s %s  output %.2e  loss %.2e  gradients %.2e, of one weight %.2e", model, bf16 ? "bf16" : "fp32",
         lora ? "lora" : "full", r.output, r.loss, r.off, r.gradient);
  if (bf16) printf("  allowed %.2e, %.2e", rounding_of(&r, false), rounding_of(&r, true));
  printf("\n");
  (void)fflush(stdout);
  close_all(&r);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    bool has_lora;
  } models[] = {{"sd15", true},  {"sd21", false},    {"sdxl", false},        {"sd3", true},
                {"sd35", false}, {"flux-dev", true}, {"flux-schnell", false}};
  const char *only = NULL;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--cpu") == 0) {
      on_host = true;
    } else if (argv[i][0] != '-' && !only) {
      only = argv[i];
    } else {
      (void)fprintf(stderr, "usage: %s [MODEL] [--cpu]\n", argv[0]);
      return 2;
    }
  }
  if (!on_host && exec_device_cuda_there(&error) != DP_OK) {
    printf("%s\n", error.text);
    return 77;
  }
  if (sim_efficiency_read(NULL, &efficiency, &error) != DP_OK) {
    printf("%s\n", error.text);
    return 1;
  }
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    if (only && strcmp(only, models[m].name) != 0) continue;
    for (int bf16 = 0; bf16 < (on_host ? 1 : 2); bf16++)
      for (int lora = 0; lora <= models[m].has_lora; lora++) try(models[m].name, lora == 1, bf16 == 1);
  }
  sim_efficiency_free(efficiency);
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0 || passed == 0;
}
