/* Run by tests/test_exec_mpi.sh, alone and under mpirun: steps of many plans, and all that came of them, to the bit.
 * What it prints is the same however many processes share the workers of a plan; it says so, and goes on to the next,
 * where they cannot share them.
 *
 * usage: exec_mpi [FIRST [COUNT [STEPS]]]   plans, from 0; all of them, three steps and an evaluation */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/transport_mpi.h"
#include "exec/watch.h"
#include "sim/predict.h"
#include "tests/exec_fixture.h"
#include "tests/timeline_order.h"

static const struct {
  const char *model, *plan;
} cases[] = {
    {"sd15", "stages = 2\nschedule = \"1f1b\""},
    {"sd15", "stages = 4\nschedule = \"gpipe\"\nskip_policy = \"relay\""},
    {"sd15", "stages = 2\nschedule = \"interleaved\"\nchunks = 3"},
    {"sd15", "stages = 2\nschedule = \"folded\""},
    {"sd15", "stages = 4\nschedule = \"folded\"\nsplit = \"even\""},
    {"sd15", "stages = 4\nschedule = \"zb-h1\""},
    {"sd15", "stages = 2\nschedule = \"zb-v\""},
    {"sd15", "stages = 1\ndata_parallel = 4"},
    {"sd15", "stages = 2\nschedule = \"folded\"\ndata_parallel = 2"},
    {"sd15", "stages = 2\nschedule = \"zb-v\"\ndata_parallel = 2\ngradient_buckets = 3"},
    {"sd15", "stages = 2\nschedule = \"1f1b\"\ndata_parallel = 4"},
    {"sd15", "stages = 2\nschedule = \"1f1b\"\nskip_policy = \"compress\"\nk = 64\ndata_parallel = 2"},
    {"sd3", "stages = 2\nschedule = \"1f1b\"\ndata_parallel = 2"},
    {"flux-dev", "stages = 4\nschedule = \"zb-h1\""},
};
enum { CASES = sizeof cases / sizeof *cases, SAMPLES = 8, STEPS = 4 /* the last is an evaluation */ };

static exec_transport *transport;
static exec_watch *watch;
static dp_error error = DP_ERROR_INIT;

static void say_line(void *data, const char *line) {
  (void)data;
  fprintf(stderr, "exec_mpi: %s\n", line);
}

static void end_run(void *data, dp_status status) {
  (void)data;
  _exit(dp_exit_status(status));
}

static void fail(const char *file, int line, const char *what) {
  char text[DP_ERROR_TEXT_BYTES * 2];
  (void)snprintf(text, sizeof text, "%s:%d: %s: %s", file, line, what, error.text);
  exec_watch_fail(watch, DP_INTERNAL, text);
  say_line(NULL, text);
  _exit(1);
}

#define CHECK(what) ((what) ? (void)0 : fail(__FILE__, __LINE__, #what))
#define OK(call) CHECK((call) == DP_OK)

static bool speaks(void) { return !transport || transport->process == 0; }

__attribute__((format(printf, 1, 2))) static void print(const char *format, ...) {
  va_list arguments;
  if (!speaks()) return;
  va_start(arguments, format);
  (void)vprintf(format, arguments);
  va_end(arguments);
}

/* A weight's numbers come from its index alone: small, and gains near 1. */
static void fill_weights(exec_pipeline *pipeline, const plan_program *program, const graph *g) {
  for (int w = 0; w < program->worker_count; w++) {
    if (!exec_pipeline_has(pipeline, w)) continue;
    for (size_t k = 0; k < g->weights.count; k++) {
      float *value = exec_parameters_value(exec_pipeline_parameters(pipeline, w), (int)k);
      const bool is_gain = strstr(g->weights.items[k].name, "norm") && strstr(g->weights.items[k].name, ".weight");
      dp_random random;
      dp_random_init(&random, 99, k);
      for (int64_t i = 0; value && i < g->weights.items[k].parameters; i++)
        value[i] = (float)((is_gain ? 1 : 0) + 0.2 * (dp_random_uniform(&random) - 0.5));
    }
    for (size_t t = 0; t < g->tensors.count; t++) {
      float *constant = g->tensors.items[t].is_constant ? exec_pipeline_constant(pipeline, w, (int)t) : NULL;
      const int64_t n = graph_tensor_elements(&g->tensors.items[t]);
      for (int64_t i = 0; constant && i < n; i++) constant[i] = (float)((i * 37 + (int64_t)t) % 101) / 101;
    }
  }
}

/* ---- a plan ---- */

static bool can_share(const plan_program *program) {
  return !transport || program->worker_count % transport->process_count == 0;
}

/* FNV-1a of all that each worker keeps. */
static void print_weights(exec_pipeline *pipeline, const plan_program *program) {
  enum { MOST = 16 };
  uint64_t mine[MOST] = {0}, all[MOST] = {0};
  const int each = program->worker_count / (transport ? transport->process_count : 1);
  CHECK(program->worker_count <= MOST);
  for (int w = 0, at = 0; w < program->worker_count; w++) {
    if (!exec_pipeline_has(pipeline, w)) continue;
    const exec_parameters *p = exec_pipeline_parameters(pipeline, w);
    const unsigned char *bytes = (const unsigned char *)p->values;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < (size_t)p->count * sizeof(float); i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    mine[at++] = hash;
  }
  OK(exec_gather(transport, mine, (size_t)each * sizeof *mine, all, &error));
  for (int w = 0; w < program->worker_count; w++) print(" %016llx", (unsigned long long)all[w]);
  print("\n");
}

static void take_steps(exec_pipeline *pipeline, const sim_prediction *p, int steps) {
  plan_timeline timeline;
  double norms[16], psnr[64];
  exec_step step = {.clip_norm = 0.5,
                    .measure_skips = true,
                    .means_decay = 0.9,
                    .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01}};
  exec_step_result result = {.rank_norms = norms, .psnr = psnr};
  OK(plan_timeline_init(&p->program, &timeline, &error));
  for (int s = 1; s <= steps; s++) {
    step.adamw.step = s;
    step.evaluate = step.use_means = s == STEPS;
    exec_watch_step(watch, s);
    OK(exec_pipeline_step(pipeline, &step, &result, &timeline, &error));
    CHECK(!speaks() || (timeline_is_ordered(&timeline) && transfers_meet(&timeline)));
    print("  step %d loss %a norm %a ranks", s, result.loss, result.gradient_norm);
    for (int r = 0; r < p->plan.ranks; r++) print(" %a", norms[r]);
    for (int k = 0; k < exec_pipeline_skips(pipeline); k++) print(" psnr %a", psnr[k]);
    print("\n");
  }
  plan_timeline_free(&timeline);
}

static void run_plan(exec_pipeline *pipeline, const sim_prediction *p, int steps) {
  fill_weights(pipeline, &p->program, &p->graph);
  if (exec_pipeline_skips(pipeline) > 0) OK(exec_pipeline_fit_skips(pipeline, &error));
  take_steps(pipeline, p, steps);
  print("  weights");
  print_weights(pipeline, &p->program);
}

static void run_case(int c, int steps, sim_efficiency *efficiency) {
  const exec_fixture job = {.model = cases[c].model,
                            .height = 64,
                            .width = 128,
                            .text_tokens = 7,
                            .global_batch = SAMPLES,
                            .plan = cases[c].plan};
  plan_scenario scenario;
  sim_prediction p;
  exec_pipeline *pipeline = NULL;
  OK(exec_fixture_scenario(&job, &scenario, &error));
  scenario.global_norm = true;
  OK(sim_predict(&scenario, efficiency, &p, &error));
  print("plan %d\n", c);
  if (can_share(&p.program)) {
    exec_fixture_feed feed = {.graph = &p.graph, .microbatches = p.plan.microbatches};
    const exec_pipeline_options options = {
        .threads = 1, .feed = {.fill = exec_fixture_fill, .data = &feed}, .transport = transport, .means = true};
    OK(exec_pipeline_create(&p.program, &p.graph, &options, &pipeline, &error));
    run_plan(pipeline, &p, steps);
    exec_pipeline_free(pipeline);
  } else {
    print("  %d workers are not for %d processes\n", p.program.worker_count, transport->process_count);
  }
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
}

int main(int argc, char **argv) {
  const int first = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
  const int count = argc > 2 ? (int)strtol(argv[2], NULL, 10) : CASES - first;
  const int steps = argc > 3 ? (int)strtol(argv[3], NULL, 10) : STEPS;
  sim_efficiency *efficiency = NULL;
  OK(exec_transport_open_mpi(&transport, NULL, &error));
  OK(exec_watch_open(&(exec_watch_options){.transport = transport, .say = say_line, .end = end_run}, &watch, &error));
  OK(sim_efficiency_read(NULL, &efficiency, &error));
  for (int c = first; c < first + count && c < CASES; c++) run_case(c, steps, efficiency);
  sim_efficiency_free(efficiency);
  CHECK(fflush(stdout) == 0);
  if (transport) transport->free(transport);
  exec_watch_close(watch);
  return 0;
}
