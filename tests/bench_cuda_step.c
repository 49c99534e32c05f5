/* Steps of a model on CUDA devices under a plan, by random weights and inputs: how long a training step and a forward
 * take, how busy each worker is, what memory was taken.
 *
 * Under mpirun the workers are shared out among the processes.
 *
 * usage: bench_cuda_step NAME=VALUE...
 *   model=sdxl_unet  of scenarios/models   height=1024 width=1024 tokens=77   pixels, text tokens
 *   batch=8   samples a step   precision=bf16   lora=0   rank of adapters; 0: all weights are trained
 *   deterministic=1   0: sums may have any order where that is faster
 *   gradients=fp32   or model: in bf16, as PyTorch has them   clip=1   0: the norm is not asked for
 *   virtual=1   parts of one device, for the prediction; 1: eight whole ones   cluster=FILE   in their place
 *   plan="stages = 1"   lines of [plan], apart by semicolons   steps=7   measured, after two
 *   algorithms=FILE   what was timed by other runs, and is added to by this one
 *   profile=FILE   of diffpipe calibrate --backend cuda, for the prediction   forward=1   0: evaluations are not timed
 *   weights=file   as those of a model; noise: whatever is quickly there, of one process
 *   timeline=FILE   gets the last step's instructions, measured beside predicted, a line each
 *
 * A sample's numbers come from its place in the batch, so that the losses of all plans are those of one worker.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/random.h"
#include "exec/algorithms.h"
#include "exec/lanes.h"
#include "exec/pipeline.h"
#include "exec/transport_mpi.h"
#include "graph/op_table.h"
#include "plan/scenario.h"
#include "plan/timeline.h"
#include "sim/predict.h"

enum { NOISE = 1 << 20, MOST_STEPS = 100 };

static exec_transport *transport; /* under mpirun */
static dp_error error = DP_ERROR_INIT;
static float noise[NOISE];

static void must(dp_status status) {
  if (status == DP_OK) return;
  fprintf(stderr, "bench_cuda_step: %s\n", error.text);
  exit(1);
}

static const char *value_of(int argc, char **argv, const char *name, const char *otherwise) {
  const size_t n = strlen(name);
  for (int i = 1; i < argc; i++)
    if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=') return argv[i] + n + 1;
  return otherwise;
}

static long number_of(int argc, char **argv, const char *name, const char *otherwise) {
  return strtol(value_of(argc, argv, name, otherwise), NULL, 10);
}

static void read_scenario(int argc, char **argv, plan_scenario *scenario) {
  char text[16384], plan[2048], lora[64] = "", devices[4352], profile[4200] = "";
  const char *cluster = value_of(argc, argv, "cluster", NULL);
  const char *each = "[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"H200-SXM-141GB\"\n";
  const long parts = number_of(argc, argv, "virtual", "1");
  if (cluster)
    (void)snprintf(devices, sizeof devices, "file = \"%.4096s\"", cluster);
  else if (parts > 1)
    (void)snprintf(devices, sizeof devices, "%scount = 1\nvirtual = %ld", each, parts);
  else
    (void)snprintf(devices, sizeof devices, "%scount = 8", each);
  if (value_of(argc, argv, "profile", NULL))
    (void)snprintf(profile, sizeof profile, "profile = \"%.4096s\"\n", value_of(argc, argv, "profile", NULL));
  (void)snprintf(plan, sizeof plan, "%s", value_of(argc, argv, "plan", "stages = 1"));
  for (char *c = plan; *c; c++)
    if (*c == ';') *c = '\n';
  if (number_of(argc, argv, "lora", "0") > 0)
    (void)snprintf(lora, sizeof lora, "trainable = \"lora\"\nlora_rank = %ld\n", number_of(argc, argv, "lora", "0"));
  (void)snprintf(
      text, sizeof text,
      "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"models/%s.json\"\nheight = %ld\n"
      "width = %ld\ntext_tokens = %ld\nprecision = \"%s\"\n[task]\nglobal_batch = %ld\n"
      "gradient_precision = \"%s\"\nimplementation = \"cuda\"\n%s" /* as diffpipe run has it, for the prediction */
      "[cluster]\n%s%s\n[plan]\n%s\n",
      value_of(argc, argv, "model", "sdxl_unet"), number_of(argc, argv, "height", "1024"),
      number_of(argc, argv, "width", "1024"), number_of(argc, argv, "tokens", "77"),
      value_of(argc, argv, "precision", "bf16"), number_of(argc, argv, "batch", "8"),
      value_of(argc, argv, "gradients", "fp32"), lora, profile, devices, plan);
  must(plan_scenario_parse(text, strlen(text), "bench.toml", scenario, &error));
  scenario->global_norm = number_of(argc, argv, "clip", "1") != 0;
  scenario->train.deterministic = number_of(argc, argv, "deterministic", "1") != 0;
}

static void make_noise(void) {
  dp_random random;
  dp_random_init(&random, 1, 1);
  for (int64_t i = 0; i < NOISE; i++) noise[i] = (float)(2 * dp_random_uniform(&random) - 1);
}

/* In runs: a remainder for each of billions takes seconds. */
static void take_noise(int64_t from, float scale, int64_t n, float *out) {
  for (int64_t run; n > 0; n -= run, from += run, out += run) {
    const float *at = noise + from % NOISE;
    run = n < NOISE - from % NOISE ? n : NOISE - from % NOISE;
    for (int64_t i = 0; i < run; i++) out[i] = scale * at[i];
  }
}

/* Drawn in the bounds that PyTorch draws them in; gains are 1. With wider ones gradients had norms of hundreds, and their
 * rounding made other ones by each plan. */
static void load(exec_pipeline *pipeline, const sim_prediction *p) {
  const graph *g = &p->graph;
  int64_t most = 1;
  for (size_t w = 0; w < g->weights.count; w++)
    if (g->weights.items[w].parameters > most) most = g->weights.items[w].parameters;
  for (size_t t = 0; t < g->tensors.count; t++)
    if (g->tensors.items[t].is_constant && graph_tensor_elements(&g->tensors.items[t]) > most)
      most = graph_tensor_elements(&g->tensors.items[t]);
  float *file = malloc((size_t)most * sizeof *file);
  if (!file) must(dp_fail_memory(&error));
  for (size_t w = 0; w < g->weights.count; w++) {
    const graph_weight *weight = &g->weights.items[w];
    const bool gain = weight->rank == 1 && strstr(weight->name, "norm") && strstr(weight->name, ".weight");
    const float scale = weight->rank > 1 ? (float)sqrt((double)weight->dims[0] / (double)weight->parameters) : 0.02f;
    bool drawn = false; /* other processes have the others */
    for (int k = 0; k < p->program.worker_count; k++) {
      if (!exec_pipeline_has(pipeline, k) || !exec_parameters_value(exec_pipeline_parameters(pipeline, k), (int)w))
        continue;
      if (!drawn) take_noise(7919 * (int64_t)w, gain ? 0 : scale, weight->parameters, file);
      for (int64_t i = 0; !drawn && gain && i < weight->parameters; i++) file[i] = 1;
      drawn = true;
      must(exec_pipeline_write_weight(pipeline, k, EXEC_VALUES, (int)w, file, &error));
    }
  }
  for (size_t t = 0; t < g->tensors.count; t++) {
    if (!g->tensors.items[t].is_constant) continue;
    take_noise(0, 1, graph_tensor_elements(&g->tensors.items[t]), file);
    for (int k = 0; k < p->program.worker_count; k++)
      if (exec_pipeline_has(pipeline, k) && exec_pipeline_constant(pipeline, k, (int)t))
        must(exec_pipeline_write_constant(pipeline, k, (int)t, file, &error));
  }
  free(file);
}

/* The same times come of it, if not losses. */
static void strew(exec_pipeline *pipeline, const sim_prediction *p) {
  for (int w = 0; w < p->program.worker_count; w++) {
    exec_worker *worker = &pipeline->workers[w];
    const exec_parameters *parameters = &worker->parameters;
    must(worker->kind->make_marks(worker, 0, &error));
    worker->kind->strew(worker, parameters->count * graph_dtype_bytes(parameters->value_dtype), parameters->values);
  }
}

typedef struct feed {
  const graph *graph;
  int64_t microbatches;
} feed;

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  const feed *d = data;
  const graph_tensor *t = &d->graph->tensors.items[tensor];
  const bool time = strcmp(t->name, "timestep") == 0;
  const int64_t samples = t->dims[0], n = graph_tensor_elements(t) / samples;
  for (int64_t s = 0; s < samples; s++, out += n) {
    const int64_t sample = (replica * d->microbatches + microbatch) * samples + s;
    take_noise(104729 * (1 + tensor + 31 * sample), 1, n, out);
    for (int64_t i = 0; time && i < n; i++) out[i] = 500 + 400 * out[i];
  }
}

/* What workers timed becomes what all of them take, and is kept. */
static void share_algorithms(exec_pipeline *pipeline, exec_algorithms *algorithms, const char *path) {
  bool changed = false;
  must(exec_algorithms_agree(algorithms, transport, &changed, &error));
  if (changed) must(exec_pipeline_choose_again(pipeline, &error));
  if (exec_process(transport) == 0) must(exec_algorithms_add_to(algorithms, path, &error));
}

/* Of all processes, on process 0: what is taken of the devices that its workers are on, by whomever. */
static int64_t taken_bytes(const exec_pipeline *pipeline) {
  enum { MOST_PROCESSES = 64 };
  int64_t here = exec_pipeline_device_bytes(pipeline), each[MOST_PROCESSES] = {0}, all = 0;
  if (exec_process_count(transport) > MOST_PROCESSES) return 0;
  if (!transport) return here;
  must(exec_gather(transport, &here, sizeof here, each, &error));
  for (int p = 0; p < exec_process_count(transport); p++) all += each[p];
  return all;
}

static void write_timeline(const char *path, const sim_prediction *p, const plan_timeline *measured) {
  FILE *file = fopen(path, "w");
  if (!file) must(dp_fail(&error, DP_RUN_FAILED, "%s: cannot be written", path));
  fprintf(file,
          "worker\tlane\topcode\tchunk\tmicrobatch\tpeer\tbytes\tstart_ms\tend_ms\tpredicted_start_ms\t"
          "predicted_end_ms\n");
  for (uint32_t l = 0; l < p->program.lane_count; l++) {
    const plan_lane *lane = &p->program.lanes[l];
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const plan_instruction *one = &p->program.instructions[i];
      const bool travels = lane->kind == PLAN_LANE_SEND || lane->kind == PLAN_LANE_RECV;
      fprintf(file, "%u\t%u\t%s\t%u\t%u\t%d\t%lld\t%.4f\t%.4f\t%.4f\t%.4f\n", lane->worker, l,
              plan_opcode_names[one->opcode], one->chunk, one->microbatch, travels ? (int)lane->peer : -1,
              travels ? (long long)p->program.messages[one->class_id].bytes : 0, 1e3 * measured->start_s[i],
              1e3 * measured->end_s[i], 1e3 * p->timeline.start_s[i], 1e3 * p->timeline.end_s[i]);
    }
  }
  if (fclose(file) != 0) must(dp_fail(&error, DP_RUN_FAILED, "%s: cannot be written", path));
}

int main(int argc, char **argv) {
  plan_scenario scenario;
  sim_prediction p;
  sim_efficiency *efficiency = NULL;
  exec_pipeline *pipeline = NULL;
  plan_timeline timeline;
  plan_metrics metrics = {0}, expected = {0};
  double seconds[MOST_STEPS], forward[MOST_STEPS];
  const long steps = number_of(argc, argv, "steps", "7");
  const char *remembered = value_of(argc, argv, "algorithms", NULL);
  exec_algorithms *algorithms = NULL;
  double first_loss = 0, last_loss = 0;
  if (exec_device_cuda_there(&error) != DP_OK) {
    printf("%s\n", error.text);
    return 77;
  }
  must(exec_transport_open_mpi(&transport, NULL, &error));
  const bool speaks = exec_process(transport) == 0;
  if (!speaks && !freopen("/dev/null", "w", stdout)) return 1;
  make_noise();
  read_scenario(argc, argv, &scenario);
  must(sim_efficiency_read(NULL, &efficiency, &error));
  sim_efficiency_use_library(efficiency, "cuda", exec_library_workspace(true)); /* as diffpipe has it */
  must(sim_predict(&scenario, efficiency, &p, &error));
  const bool deterministic = number_of(argc, argv, "deterministic", "1") != 0;
  feed fed = {.graph = &p.graph, .microbatches = p.plan.microbatches};
  if (remembered) {
    must(exec_algorithms_create(&algorithms, &error));
    must(exec_algorithms_read(algorithms, remembered, false, &error));
  }
  const exec_pipeline_options options = {.cuda = true,
                                         .transport = transport,
                                         .cluster = &scenario.cluster,
                                         .any_order = !deterministic,
                                         .algorithms = algorithms,
                                         .feed = {.fill = fill, .data = &fed}};
  const double began_s = dp_clock_s();
  must(exec_pipeline_create(&p.program, &p.graph, &options, &pipeline, &error));
  if (remembered) share_algorithms(pipeline, algorithms, remembered);
  const double made_s = dp_clock_s();
  if (strcmp(value_of(argc, argv, "weights", "file"), "noise") == 0)
    strew(pipeline, &p);
  else
    load(pipeline, &p);
  const double loaded_s = dp_clock_s();
  must(plan_timeline_init(&p.program, &timeline, &error));
  exec_step step = {.clip_norm = number_of(argc, argv, "clip", "1") != 0,
                    .adamw = {.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01}};
  exec_step_result result = {.squares = NULL};
  double busy_s = 0;
  for (int s = 0; s < steps + 2; s++) {
    step.adamw.step = s + 1;
    const double start_s = dp_clock_s();
    must(exec_pipeline_step(pipeline, &step, &result, &timeline, &error));
    if (s >= 2) seconds[s - 2] = dp_clock_s() - start_s;
    if (s == 0) first_loss = result.loss;
    last_loss = result.loss;
    if (s < 2 || s == steps + 1)
      printf("step %d: %.1f ms, loss %.5f, norm %.4f\n", s + 1, (dp_clock_s() - start_s) * 1e3, result.loss,
             result.gradient_norm);
  }
  if (speaks) must(plan_metrics_of(&timeline, &metrics, &error));
  must(plan_metrics_of(&p.timeline, &expected, &error));
  for (int w = 0; w < metrics.worker_count; w++) busy_s += metrics.workers[w].compute_s / metrics.worker_count;
  if (speaks && value_of(argc, argv, "timeline", NULL))
    write_timeline(value_of(argc, argv, "timeline", NULL), &p, &timeline);
  step.evaluate = true;
  forward[0] = forward[1] = 0;
  const bool forwards = number_of(argc, argv, "forward", "1") != 0;
  for (int s = 0; forwards && s < steps + 2; s++) {
    const double start_s = dp_clock_s();
    must(exec_pipeline_step(pipeline, &step, &result, NULL, &error));
    if (s >= 2) forward[s - 2] = dp_clock_s() - start_s;
  }
  const int64_t taken = taken_bytes(pipeline);
  int64_t planned = 0, largest = 0, predicted = 0;
  for (int w = 0; w < p.program.worker_count; w++) {
    const int64_t bytes = exec_pipeline_memory(pipeline, w)->layout_bytes;
    planned += bytes;
    predicted += p.memory.workers[w].peak_bytes;
    if (bytes > largest) largest = bytes;
  }
  char plan[512]; /* in JSON */
  (void)snprintf(plan, sizeof plan, "%s", value_of(argc, argv, "plan", "stages = 1"));
  for (char *c = plan; *c; c++)
    if (*c == '"') *c = '\'';
  printf("made in %.1f s, loaded in %.1f s\n", made_s - began_s, loaded_s - made_s);
  printf(
      "{\"model\": \"%s\", \"batch\": %ld, \"lora\": %ld, \"deterministic\": %s, \"plan\": \"%s\", \"workers\": %d, "
      "\"step_ms\": %.2f, "
      "\"forward_ms\": %.2f, "
      "\"timeline_ms\": %.2f, \"bubble\": %.4f, \"busy_ms\": %.2f, \"planned_gb\": %.3f, \"taken_gb\": %.3f, "
      "\"predicted_step_ms\": %.2f, \"predicted_bubble\": %.4f, \"processes\": %d, \"largest_planned_gb\": %.3f, "
      "\"first_loss\": %.8g, \"last_loss\": %.8g, \"predicted_gb\": %.3f, \"measured_share\": %.3f}\n",
      value_of(argc, argv, "model", "sdxl_unet"), number_of(argc, argv, "batch", "8"),
      number_of(argc, argv, "lora", "0"), deterministic ? "true" : "false", plan, p.program.worker_count,
      dp_median(seconds, (size_t)steps) * 1e3, forwards ? dp_median(forward, (size_t)steps) * 1e3 : 0.0,
      timeline.step_s * 1e3, metrics.bubble_ratio, busy_s * 1e3, (double)planned / 1e9, (double)taken / 1e9,
      p.timeline.step_s * 1e3, expected.bubble_ratio, exec_process_count(transport), (double)largest / 1e9, first_loss,
      last_loss, (double)predicted / 1e9, p.source_share[PLAN_SOURCE_MEASURED]);
  for (uint32_t l = 0; l < p.program.lane_count; l++) {
    double sum[PLAN_OPCODE_COUNT] = {0};
    int count[PLAN_OPCODE_COUNT] = {0};
    const plan_lane *lane = &p.program.lanes[l];
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      sum[p.program.instructions[i].opcode] += timeline.end_s[i] - timeline.start_s[i];
      count[p.program.instructions[i].opcode]++;
    }
    for (int o = 0; o < PLAN_OPCODE_COUNT; o++)
      if (count[o] && lane->kind == PLAN_LANE_COMPUTE)
        printf("  worker %u %s: %d, %.2f ms\n", lane->worker, plan_opcode_names[o], count[o], sum[o] * 1e3);
  }
  plan_metrics_free(&metrics);
  plan_metrics_free(&expected);
  exec_pipeline_free(pipeline);
  exec_algorithms_free(algorithms);
  plan_timeline_free(&timeline);
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
  sim_efficiency_free(efficiency);
  if (transport) transport->free(transport);
  return 0;
}
