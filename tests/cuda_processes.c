/* Run by tests/gpu/processes.sh under mpirun: workers on CUDA devices in several processes against the CPU's lone
 * worker, by each transport; and what happens to a run whose peer dies, hangs or never comes. Process 0 speaks; its
 * last line is `N passed, N failed`. Exits with 77 where there is no device.
 *
 * usage: cuda_processes TRANSPORT [FIRST [COUNT]] [--model NAME] [--bf16] [--fault KIND PROCESS STEP]
 *   TRANSPORT   auto, local, nccl or host     FIRST, COUNT   of the plans, from 0
 *   --fault     kill: it is killed; stop: it is stopped; hang: a thread of it waits for ever, and it lives on; device:
 * the queue of its first worker waits for ever; in a step of the first plan, from 1. late: it never starts MPI.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/device_cuda_wire.h"
#include "exec/transport_mpi.h"
#include "exec/watch.h"
#include "sim/predict.h"
#include "tests/cuda_bounds.h"
#include "tests/cuda_plans.h"
#include "tests/exec_fixture.h"
#include "tests/timeline_order.h"

enum { SAMPLES = 8, STEPS = 3 };

static const char *const plans[] = {
    "stages = 2\nschedule = \"1f1b\"",
    "stages = 2\nschedule = \"folded\"",
    "stages = 2\nschedule = \"zb-v\"\ndata_parallel = 2\ngradient_buckets = 3",
    "stages = 1\ndata_parallel = 4",
    "stages = 4\nschedule = \"zb-h1\"",
    "stages = 4\nschedule = \"gpipe\"\nskip_policy = \"relay\"",
    "stages = 2\nschedule = \"interleaved\"\nchunks = 3\nrecompute = \"all\"",
    "stages = 4\nschedule = \"folded\"\nsplit = \"even\"",
    "stages = 4\nschedule = \"1f1b\"\ndata_parallel = 2",
};
enum { PLANS = sizeof plans / sizeof *plans };

static exec_transport *transport;
static exec_watch *watch;
static sim_efficiency *efficiency;
static dp_error error = DP_ERROR_INIT;
static int passed, failed, rings, at_step, fault_process = -1, fault_step;
static const char *fault = "", *model = "sd15";
static exec_pipeline *running;

static void say_line(void *data, const char *line) {
  (void)data;
  fprintf(stderr, "cuda_processes: %s\n", line);
}

static void end_run(void *data, dp_status status) {
  (void)data;
  _exit(dp_exit_status(status));
}

static void end_late(int launched, double waited_s) {
  fprintf(stderr, "cuda_processes: of %d processes some have not started MPI within %.0f s\n", launched, waited_s);
  _exit(1);
}

static void must(dp_status status) {
  if (status == DP_OK) return;
  exec_watch_fail(watch, status, error.text);
  say_line(NULL, error.text);
  _exit(1);
}

static bool speaks(void) { return exec_process(transport) == 0; }

static void check(bool right, const char *plan, const char *what, double value) {
  if (right)
    passed++;
  else
    failed++;
  if (!right && speaks()) printf("FAIL %s: %s, %g\n", plan, what, value);
}

/* ---- a process that fails ---- */

static void wait_for_ever(void) {
  for (;;) dp_sleep_s(1);
}

static void CUDART_CB hold_queue(void *data) {
  (void)data;
  wait_for_ever();
}

/* Behind what has been put there. */
static void hang_device(void) {
  (void)cudaLaunchHostFunc(exec_cuda_of(&running->workers[running->first_worker])->stream, hold_queue, NULL);
}

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  if (at_step > 0 && at_step == fault_step && exec_process(transport) == fault_process) {
    if (strcmp(fault, "kill") == 0) (void)raise(SIGKILL);
    if (strcmp(fault, "stop") == 0) (void)raise(SIGSTOP);
    if (strcmp(fault, "hang") == 0) wait_for_ever();
    if (strcmp(fault, "device") == 0) hang_device();
  }
  exec_fixture_fill(data, replica, microbatch, tensor, out);
}

/* ---- a run ---- */

typedef struct outcome {
  double loss[STEPS], evaluated;
  float *gradients; /* of all weights, of the last step */
  int64_t count;
} outcome;

/* The first worker here that has a weight; -1: none. */
static int owner_here(exec_pipeline *pipeline, int workers, size_t weight) {
  for (int w = 0; w < workers; w++)
    if (exec_pipeline_has(pipeline, w) && exec_parameters_value(exec_pipeline_parameters(pipeline, w), (int)weight))
      return w;
  return -1;
}

/* From the first process that has a weight to process 0. */
static void keep_gradients(exec_pipeline *pipeline, const sim_prediction *p, exec_transport *t, outcome *o) {
  const graph *g = &p->graph;
  const int processes = exec_process_count(t);
  int owners[64];
  float *next = o->gradients;
  for (size_t k = 0; k < g->weights.count; k++) {
    const size_t bytes = (size_t)g->weights.items[k].parameters * sizeof *next;
    const int mine = owner_here(pipeline, p->program.worker_count, k);
    int process = 0;
    must(exec_gather(t, &mine, sizeof mine, owners, &error));
    must(exec_broadcast(t, owners, (size_t)processes * sizeof *owners, &error));
    while (process + 1 < processes && owners[process] < 0) process++;
    if (exec_process(t) == process)
      must(exec_pipeline_read_weight(pipeline, mine, EXEC_GRADIENTS, (int)k, next, &error));
    if (process > 0 && exec_process(t) == process) must(t->send(t, 0, EXEC_TAG_TIMES, next, bytes, NULL, &error));
    if (process > 0 && exec_process(t) == 0) must(t->receive(t, process, EXEC_TAG_TIMES, next, bytes, NULL, &error));
    next += g->weights.items[k].parameters;
  }
}

static void train(exec_pipeline *pipeline, const sim_prediction *p, exec_transport *t, outcome *o) {
  plan_timeline timeline;
  exec_step step = {.clip_norm = 0.5,
                    .adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01}};
  exec_step_result result = {.squares = NULL};
  must(plan_timeline_init(&p->program, &timeline, &error));
  for (int s = 0; s < STEPS; s++) {
    step.adamw.step = s + 1;
    at_step = t ? s + 1 : 0;
    exec_watch_step(watch, s + 1);
    must(exec_pipeline_step(pipeline, &step, &result, &timeline, &error));
    o->loss[s] = result.loss;
    if (speaks())
      check(timeline_is_ordered(&timeline) && transfers_follow(&timeline), "timeline", "has no order in step", s + 1);
  }
  at_step = 0;
  keep_gradients(pipeline, p, t, o);
  step.evaluate = true;
  must(exec_pipeline_step(pipeline, &step, &result, NULL, &error));
  must(exec_pipeline_step(pipeline, &step, &result, NULL, &error));
  o->evaluated = result.loss;
  plan_timeline_free(&timeline);
}

/* Wires here that go through memory that both ends have mapped. */
static int count_rings(exec_pipeline *p) {
  int count = 0;
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++) {
    const exec_cuda_wire *wire = exec_cuda_lanes_of(p)->wires[lane];
    count += wire && wire->ring;
  }
  return count;
}

/* t: NULL, the CPU's lone worker. False: these processes cannot share it. */
static bool run(const char *plan, const char *precision, exec_transport *t, outcome *o) {
  const exec_fixture job = {.model = model,
                            .height = 128,
                            .width = 192,
                            .text_tokens = 7,
                            .global_batch = SAMPLES,
                            .precision = precision,
                            .device = "H200-SXM-141GB",
                            .plan = plan};
  plan_scenario scenario;
  sim_prediction p;
  exec_weights weights = {0};
  dp_document config = {0};
  exec_pipeline *pipeline = NULL;
  must(exec_fixture_scenario(&job, &scenario, &error));
  scenario.global_norm = true;
  must(sim_predict(&scenario, efficiency, &p, &error));
  const bool can = p.program.worker_count % exec_process_count(t) == 0;
  exec_fixture_feed feed = {.graph = &p.graph, .microbatches = p.plan.microbatches};
  const exec_pipeline_options options = {
      .cuda = t != NULL, .threads = 1, .feed = {.fill = fill, .data = &feed}, .transport = t};
  *o = (outcome){.count = p.graph.parameters};
  o->gradients = calloc((size_t)o->count, sizeof *o->gradients);
  if (!o->gradients) must(dp_fail_memory(&error));
  if (can) {
    must(exec_weights_open(fixture_path(model, ""), &p.graph, &weights, &error));
    must(dp_document_read(fixture_path(model, "config.json"), &config, &error));
    must(exec_pipeline_create(&p.program, &p.graph, &options, &pipeline, &error));
    running = pipeline;
    rings = t ? count_rings(pipeline) : 0;
    must(exec_fixture_load(pipeline, &p.program, &p.graph, &weights, config.root, &error));
    train(pipeline, &p, t, o);
    exec_pipeline_free(pipeline);
    dp_document_free(&config);
    exec_weights_close(&weights);
  }
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
  return can;
}

static void compare(const char *plan, const char *way, bool bf16, const outcome *one) {
  char text[512], line[512];
  outcome o;
  double worst = 0;
  (void)snprintf(text, sizeof text, "%s\ntransport = \"%s\"", plan, way);
  (void)snprintf(line, sizeof line, "%s", text);
  for (char *c = line; *c; c++)
    if (*c == '\n') *c = ' ';
  const double began_s = dp_clock_s();
  if (run(text, bf16 ? "bf16" : "fp32", transport, &o)) {
    for (int s = 0; s < STEPS; s++) worst = fmax(worst, fabs(o.loss[s] / one->loss[s] - 1));
    worst = fmax(worst, fabs(o.evaluated / one->evaluated - 1));
    check(worst < loss_bound[bf16], line, "losses off by", worst);
    if (speaks()) {
      const double off = distance(o.count, o.gradients, one->gradients);
      printf("%s  loss %.2e  gradients %.2e  %.1f s  %d rings  %s\n", bf16 ? "bf16" : "fp32", worst, off,
             dp_clock_s() - began_s, rings, line);
      (void)fflush(stdout);
      check(off < gradient_bound[bf16], line, "gradients off by", off);
    }
  }
  free(o.gradients);
}

static int usage(const char *name) {
  (void)fprintf(stderr, "usage: %s TRANSPORT [FIRST [COUNT]] [--model NAME] [--bf16] [--fault KIND PROCESS STEP]\n",
                name);
  return 2;
}

int main(int argc, char **argv) {
  const char *words[3] = {"auto", "0", "99"};
  int count = 0;
  bool bf16 = false;
  outcome one;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--bf16") == 0) {
      bf16 = true;
    } else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc) {
      model = argv[++i];
    } else if (strcmp(argv[i], "--fault") == 0 && i + 3 < argc) {
      fault = argv[++i];
      fault_process = (int)strtol(argv[++i], NULL, 10);
      fault_step = (int)strtol(argv[++i], NULL, 10);
    } else if (argv[i][0] != '-' && count < 3) {
      words[count++] = argv[i];
    } else {
      return usage(argv[0]);
    }
  }
  const int first = (int)strtol(words[1], NULL, 10), plan_count = (int)strtol(words[2], NULL, 10);
  if (exec_device_cuda_there(&error) != DP_OK) {
    printf("%s\n", error.text);
    return 77;
  }
  must(sim_efficiency_read(NULL, &efficiency, &error));
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (strcmp(fault, "late") == 0 && rank && strtol(rank, NULL, 10) == fault_process) wait_for_ever();
  must(exec_transport_open_mpi(&transport, end_late, &error));
  if (!transport) return usage(argv[0]);
  must(exec_watch_open(&(exec_watch_options){.transport = transport, .say = say_line, .end = end_run}, &watch, &error));
  (void)run("stages = 1", "fp32", NULL, &one);
  for (int i = first; i < PLANS && i < first + plan_count; i++) compare(plans[i], words[0], bf16, &one);
  free(one.gradients);
  sim_efficiency_free(efficiency);
  must(exec_barrier(transport, &error));
  if (speaks()) tell_plans();
  if (speaks()) printf("%d passed, %d failed\n", passed, failed);
  transport->free(transport);
  exec_watch_close(watch);
  return failed > 0 || passed == 0;
}
