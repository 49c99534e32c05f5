/* A training step of a UNet in the shape of SD 1.5 (forward, loss, backward, AdamW; a plan of one worker) beside
 * PyTorch's eager mode: both load the same weights and batch, take turns, and must find the same loss after the first
 * steps. Memory is the most that was resident in steps, less what was before the model was loaded.
 *
 * DIFFPIPE_TORCH names the Python that has PyTorch and diffusers (tests/reference/requirements.txt), python3 by
 * default; DIFFPIPE_TORCH_OPTIONS is handed to tests/reference/step_speed.py. Without them there is no ratio.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/random.h"
#include "exec/checkpoint_model.h"
#include "exec/pipeline.h"
#include "graph/model.h"
#include "graph/op_table.h"
#include "sim/predict.h"
#include "tests/bench.h"
#include "tests/bench_peer.h"
#include "tests/exec_fixture.h"
#include "tests/resident.h"

enum { MOST_THREADS = 2, WARM_STEPS = 3, MAX_RUNS = 32 };

/* What is measured: the latents are batch x 4 x height x width. */
typedef struct workload {
  const char *name;
  const char *config; /* weights and inputs are made up; NULL: those of tests/fixtures/sd15 */
  int64_t batch, height, width, tokens;
  int runs, steps; /* of each side, in turn */
} workload;

static const workload workloads[] = {
    {"fixture", NULL, 2, 16, 24, 7, 15, 10},
    {"unet", "bench_step.json", 4, 32, 32, 77, 9, 2},
};

static dp_error error = DP_ERROR_INIT;
static sim_efficiency *efficiency;
static char folder[64]; /* of the made-up model; "" none */

static void clean_up(void) {
  dp_error ignored = DP_ERROR_INIT;
  if (folder[0] != '\0') (void)dp_folder_remove(folder, NULL, &ignored);
  folder[0] = '\0';
}

static void fail(const char *text) {
  fprintf(stderr, "bench_step: %s\n", text);
  exit(1);
}

static void must(dp_status status) {
  if (status != DP_OK) fail(error.text);
}

static float *floats(dp_arena *arena, int64_t n) {
  float *made = DP_ARENA_NEW(arena, float, (size_t)n);
  if (made == NULL) fail("out of memory");
  return made;
}

/* ---- a model that is made up ---- */

static void fill_random(dp_random *random, int64_t n, double scale, double shift, float *out) {
  for (int64_t i = 0; i < n; i++) out[i] = (float)(shift + scale * (2 * dp_random_uniform(random) - 1));
}

static graph_model_options options_of(const workload *w) {
  graph_model_options options;
  graph_model_options_default(&options);
  options.batch = w->batch;
  options.height = 8 * w->height;
  options.width = 8 * w->width;
  options.text_tokens = w->tokens;
  options.precision = GRAPH_FP32;
  return options;
}

/* As PyTorch draws them: within 1 / sqrt(fan in); norms near 1. */
static void make_weights(const graph *g, const char *config) {
  dp_arena arena = {NULL};
  dp_random random;
  dp_random_init(&random, 7, 0);
  const float **values = DP_ARENA_NEW(&arena, const float *, g->weights.count);
  if (values == NULL) fail("out of memory");
  for (size_t i = 0; i < g->weights.count; i++) {
    const graph_weight *w = &g->weights.items[i];
    float *made = floats(&arena, w->parameters);
    const bool gain = w->rank == 1 && strstr(w->name, "norm") != NULL && strstr(w->name, "weight") != NULL;
    const double scale = w->rank == 1 ? 0.05 : 1 / sqrt((double)(w->parameters / w->dims[0]));
    fill_random(&random, w->parameters, scale, gain ? 1 : 0, made);
    values[i] = made;
  }
  const exec_weights_form form = {.config_path = config};
  must(exec_weights_write(folder, g, &form, exec_weights_source_array, values, NULL, &error));
  dp_arena_free(&arena);
}

static void make_inputs(const graph *g, const char *path) {
  enum { MOST = 8 };
  dp_safetensors_entry entries[MOST];
  const graph_tensor *tensors[MOST];
  size_t count = 0;
  for (size_t t = 0; t < g->tensors.count; t++) {
    const graph_tensor *tensor = &g->tensors.items[t];
    if (tensor->producer_op != GRAPH_NONE && !tensor->is_output) continue;
    if (count == MOST) fail("the model has more inputs than this program knows");
    tensors[count] = tensor;
    entries[count++] =
        (dp_safetensors_entry){tensor->is_output ? "target" : tensor->name, DP_DTYPE_F32, tensor->rank, tensor->dims};
  }
  dp_safetensors_writer writer;
  dp_arena arena = {NULL};
  dp_random random;
  dp_random_init(&random, 7, 1);
  must(dp_safetensors_create(path, entries, count, NULL, 0, &writer, &error));
  for (size_t i = 0; i < count; i++) {
    const int64_t n = graph_tensor_elements(tensors[i]);
    float *values = floats(&arena, n);
    fill_random(&random, n, 1.7, 0, values);
    if (strcmp(entries[i].name, "timestep") == 0)
      for (int64_t k = 0; k < n; k++) values[k] = (float)(37 + 211 * k);
    must(dp_safetensors_write(&writer, values, (size_t)n * sizeof *values, &error));
  }
  must(dp_safetensors_commit(&writer, NULL, &error));
  dp_arena_free(&arena);
}

static const char *source_path(const char *file) {
  static char path[4096];
  const char *source = getenv("SRCDIR");
  (void)snprintf(path, sizeof path, "%s/tests/%s", source ? source : ".", file);
  return path;
}

/* The workload's folder and file of inputs. */
static void prepare(const workload *w, char path[4096], char inputs[4096 + 32]) {
  if (w->config == NULL) {
    (void)snprintf(path, 4096, "%s", fixture_path("sd15", ""));
  } else {
    const graph_model_options options = options_of(w);
    graph g = {0};
    (void)snprintf(folder, sizeof folder, "/tmp/diffpipe-bench-XXXXXX");
    if (mkdtemp(folder) == NULL) fail("no folder can be made in /tmp");
    (void)atexit(clean_up);
    must(graph_model_read(source_path(w->config), &options, &g, &error));
    make_weights(&g, source_path(w->config));
    (void)snprintf(inputs, 4096 + 32, "%s/inputs.safetensors", folder);
    make_inputs(&g, inputs);
    graph_free(&g);
    (void)snprintf(path, 4096, "%s", folder);
  }
  (void)snprintf(inputs, 4096 + 32, "%s/inputs.safetensors", path);
}

/* ---- our side ---- */

typedef struct trainer {
  plan_scenario scenario;
  sim_prediction prediction;
  dp_safetensors inputs;
  exec_pipeline *pipeline;
  exec_step step;
} trainer;

/* Images of files, [B, C, H, W], as they lie in memory here: [B, H, W, C]. */
static void feed(void *data, int replica, int microbatch, int tensor, float *out) {
  (void)replica, (void)microbatch;
  const trainer *t = data;
  const graph_tensor *wanted = &t->prediction.graph.tensors.items[tensor];
  const dp_safetensor *found = dp_safetensors_find(&t->inputs, wanted->is_output ? "target" : wanted->name);
  if (found == NULL || found->elements != graph_tensor_elements(wanted)) fail("the file of inputs is not the model's");
  const int64_t channels = wanted->rank == 4 ? wanted->dims[1] : 1;
  const int64_t positions = wanted->rank == 4 ? wanted->dims[2] * wanted->dims[3] : found->elements / wanted->dims[0];
  for (int64_t i = 0; i < found->elements; i++) {
    const int64_t sample = i / (channels * positions), channel = i / positions % channels, position = i % positions;
    memcpy(&out[(sample * positions + position) * channels + channel], found->data + (size_t)i * sizeof *out,
           sizeof *out);
  }
}

static void read_weights(trainer *t, const char *path) {
  exec_weights weights;
  must(exec_weights_open(path, &t->prediction.graph, &weights, &error));
  must(exec_fixture_load(t->pipeline, &t->prediction.program, &t->prediction.graph, &weights, NULL, &error));
  exec_weights_close(&weights);
}

static void trainer_open(trainer *t, const workload *w, int threads, const char *path, const char *inputs) {
  char text[8192];
  *t = (trainer){.step.adamw = {1e-3, 0.9, 0.999, 1e-8, 1e-2, 1, 0}};
  (void)snprintf(text, sizeof text,
                 "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"%s/config.json\"\nheight = %d\n"
                 "width = %d\ntext_tokens = %d\nprecision = \"fp32\"\n[task]\nglobal_batch = %d\n[cluster]\n"
                 "[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"RTX-4090\"\n[plan]\nstages = 1\n"
                 "microbatches = 1\nmicrobatch_size = %d\n",
                 path, 8 * (int)w->height, 8 * (int)w->width, (int)w->tokens, (int)w->batch, (int)w->batch);
  must(plan_scenario_parse(text, strlen(text), "bench_step.toml", &t->scenario, &error));
  must(sim_predict(&t->scenario, efficiency, &t->prediction, &error));
  must(dp_safetensors_open(inputs, &t->inputs, &error));
  const exec_pipeline_options options = {.threads = threads, .feed = {.fill = feed, .data = t}};
  must(exec_pipeline_create(&t->prediction.program, &t->prediction.graph, &options, &t->pipeline, &error));
  read_weights(t, path);
}

static void trainer_close(trainer *t) {
  exec_pipeline_free(t->pipeline);
  dp_safetensors_close(&t->inputs);
  sim_prediction_free(&t->prediction);
  plan_scenario_free(&t->scenario);
}

static double step(trainer *t) {
  exec_step_result result = {.squares = NULL};
  t->step.adamw.step++;
  must(exec_pipeline_step(t->pipeline, &t->step, &result, NULL, &error));
  return result.loss;
}

/* ---- both in turn ---- */

static double megabytes(int64_t bytes) { return (double)bytes * 1e-6; }

static void report(const workload *w, int threads, const char *what, double value, const char *unit, const char *peer,
                   double ratio) {
  char name[128];
  (void)snprintf(name, sizeof name, "training step, %s, batch %d, %d thread%s: %s",
                 w->config ? "UNet of 15 M parameters" : "UNet of tests/fixtures/sd15", (int)w->batch, threads,
                 threads > 1 ? "s" : "", what);
  bench_report(name, value, unit, peer, ratio, w->runs);
}

/* Only the first steps can be compared: training carries rounding on. */
static void check_loss(const workload *w, double ours, double theirs) {
  if (fabs(theirs - ours) < 1e-4 * fabs(ours)) return;
  fprintf(stderr, "bench_step: %s: the loss is %.9g, PyTorch has %.9g\n", w->name, ours, theirs);
  exit(1);
}

static void compare(const workload *w, int threads) {
  char path[4096], inputs[4096 + 32];
  double ours_s[MAX_RUNS], peer_s[MAX_RUNS];
  bench_sample theirs = {0};
  bench_peer peer;
  trainer t;
  prepare(w, path, inputs);
  bench_peer_start(&peer, source_path("reference/step_speed.py"), path, inputs, threads);
  const char *peer_name = peer.running ? "PyTorch eager" : NULL;
  const int64_t before = resident_bytes("VmRSS:");
  double loss = 0;
  trainer_open(&t, w, threads, path, inputs);
  for (int s = 0; s < WARM_STEPS; s++) loss = step(&t);
  (void)resident_forget_peak();
  if (peer.running) {
    bench_peer_steps(&peer, WARM_STEPS, &theirs);
    check_loss(w, loss, theirs.loss);
  }
  bench_peer_forget(&peer);
  for (int r = 0; r < w->runs; r++) {
    const double from_s = bench_clock_s(threads);
    for (int s = 0; s < w->steps; s++) (void)step(&t);
    ours_s[r] = (bench_clock_s(threads) - from_s) / w->steps;
    if (!peer.running) continue;
    bench_peer_steps(&peer, w->steps, &theirs);
    peer_s[r] = threads == 1 ? theirs.cpu_s : theirs.wall_s;
  }
  const int64_t bytes = resident_bytes("VmHWM:") - before, peer_bytes = bench_peer_memory(&peer);
  const double ours = bench_median(ours_s, w->runs), other = peer_name ? bench_median(peer_s, w->runs) : 0;
  report(w, threads, threads == 1 ? "CPU time" : "wall time", 1e3 * ours, "ms", peer_name, other / ours);
  report(w, threads, "memory", megabytes(bytes), "MB", peer_name, (double)peer_bytes / (double)bytes);
  bench_peer_stop(&peer);
  trainer_close(&t);
  clean_up();
}

/* In a process of its own: what an earlier one has left in memory would be found again. */
static void compare_apart(const workload *w, int threads) {
  int status = 0;
  const pid_t process = fork();
  if (process == 0) {
    compare(w, threads);
    exit(0);
  }
  if (process < 0 || waitpid(process, &status, 0) != process) fail("no process can be made");
  if (status != 0) exit(1); /* it has said why */
}

int main(int count, char **arguments) {
  const char *only = count > 1 ? arguments[1] : NULL;
  const long only_threads = count > 2 ? strtol(arguments[2], NULL, 10) : 0;
  must(sim_efficiency_read(NULL, &efficiency, &error));
  for (size_t w = 0; w < sizeof workloads / sizeof *workloads; w++)
    for (int threads = 1; threads <= MOST_THREADS; threads++)
      if ((only == NULL || strcmp(only, workloads[w].name) == 0) && (only_threads == 0 || only_threads == threads))
        compare_apart(&workloads[w], threads);
  sim_efficiency_free(efficiency);
  return 0;
}
