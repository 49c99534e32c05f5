#define _POSIX_C_SOURCE 200809L
#include "exec/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "exec/lanes.h"
#include "exec/measure_store.h"
#include "graph/op_table.h"

enum { DEPTH = 128, NOISE = 4096, LEAST_STEPS = 4 };

/* One program being measured. */
typedef struct run {
  exec_measure *measure;
  const plan_program *program;
  const graph *graph;
  exec_pipeline *pipeline;
  exec_observer observer;
  plan_timeline timeline;
  float noise[NOISE];
  double *samples; /* [(worker * ops + op) * directions + direction][DEPTH] */
  uint32_t *taken; /* the same: how many were offered */
  dp_error *error;
} run;

static size_t slot_count(const run *r) { return r->graph->ops.count * PLAN_DIRECTION_COUNT; }

static void note(void *data, int worker, int op, plan_direction direction, double seconds) {
  run *r = data;
  const size_t slot = (size_t)worker * slot_count(r) + (size_t)op * PLAN_DIRECTION_COUNT + direction;
  r->samples[slot * DEPTH + r->taken[slot]++ % DEPTH] = seconds;
}

/* ---- operands: their values do not matter as long as nothing overflows or fades away ---- */

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  const run *r = data;
  const graph_tensor *t = &r->graph->tensors.items[tensor];
  const bool time = t->rank == 1;
  for (int64_t i = 0, n = graph_tensor_elements(t); i < n; i++) {
    const float x = r->noise[(i + 97 * replica + 31 * microbatch + 7 * tensor) % NOISE];
    out[i] = time ? 500 + 400 * x : x;
  }
}

/* As networks are begun: products keep the scale of what they are given, gains are 1. */
static void fill_weights(run *r, exec_parameters *parameters) {
  for (size_t w = 0; w < r->graph->weights.count; w++) {
    const graph_weight *weight = &r->graph->weights.items[w];
    float *values = exec_parameters_value(parameters, (int)w);
    if (!values) continue;
    const double fan_in = (double)weight->parameters / (double)weight->dims[0];
    const float scale = weight->rank > 1 ? (float)sqrt(3 / fan_in) : 0;
    const bool gain = weight->rank == 1 && strstr(weight->name, ".weight") != NULL;
    for (int64_t i = 0; i < weight->parameters; i++)
      values[i] = gain ? 1 : scale * r->noise[(size_t)(i + (int64_t)w) % NOISE];
  }
}

static void fill_all(run *r) {
  for (int i = 0; i < NOISE; i++) r->noise[i] = (float)((i * 7919 + 13) % 4093) / 2046.5f - 1;
  for (int w = 0; w < r->program->worker_count; w++) {
    fill_weights(r, exec_pipeline_parameters(r->pipeline, w));
    for (size_t t = 0; t < r->graph->tensors.count; t++) {
      float *constant = r->graph->tensors.items[t].is_constant ? exec_pipeline_constant(r->pipeline, w, (int)t) : NULL;
      if (constant) fill(r, 0, 0, (int)t, constant);
    }
  }
}

/* ---- steps ---- */

/* What a slot takes, over all workers; 0: it never ran. halves: of the earlier and the later samples. */
static double slot_time(run *r, size_t slot, double halves[2], int64_t *count) {
  double *all = r->measure->scratch;
  size_t n = 0;
  halves[0] = halves[1] = 0;
  for (int w = 0; w < r->program->worker_count; w++) {
    const size_t at = (size_t)w * slot_count(r) + slot;
    const size_t kept = r->taken[at] < DEPTH ? r->taken[at] : DEPTH;
    for (size_t i = 0; i < kept; i++) all[n++] = r->samples[at * DEPTH + i];
  }
  *count = (int64_t)n;
  if (r->program->worker_count == 1) { /* halves first: the whole sorts them through each other */
    halves[0] = exec_measure_typical(all, n / 2);
    halves[1] = exec_measure_typical(all + n / 2, n - n / 2);
  }
  return exec_measure_typical(all, n);
}

static dp_status keep_ops(run *r) {
  const bool alone = r->program->worker_count == 1;
  if (!alone && r->program->plan->ranks > 1) return DP_OK; /* others computed beside it now and then */
  plan_profile_keys keys;
  dp_str key = {0};
  DP_TRY(plan_profile_keys_init(r->graph, &keys, r->error));
  dp_status status = DP_OK;
  for (size_t slot = 0; slot < slot_count(r) && status == DP_OK; slot++) {
    const int op = (int)(slot / PLAN_DIRECTION_COUNT);
    const plan_direction direction = (plan_direction)(slot % PLAN_DIRECTION_COUNT);
    double halves[2];
    int64_t runs;
    const double seconds = slot_time(r, slot, halves, &runs);
    if (runs == 0 || !plan_profile_runs(r->graph, op, direction)) continue;
    plan_profile_key(&keys, op, direction, &key);
    if (key.failed) status = dp_fail_memory(r->error);
    const exec_measure_sample sample = {
        dp_str_text(&key), r->graph->ops.items[op].kind, direction, plan_profile_work_of(r->graph, op, direction),
        seconds,           {halves[0], halves[1]},       runs};
    r->measure->pass_s += seconds;
    if (status == DP_OK) status = exec_measure_keep_op(r->measure, &sample, !alone, r->error);
  }
  dp_str_free(&key);
  plan_profile_keys_free(&keys);
  return status;
}

/* What this process has computed so far: of a step of one thread that is its duration, whoever else uses the machine.
 */
static double computed_s(void) {
  struct timespec now;
  return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0 ? (double)now.tv_sec + 1e-9 * (double)now.tv_nsec : 0;
}

/* A lone worker has it in its optimizer's step; several take it before they meet over it, also in another thread than
 * their instructions run in. */
static dp_status time_norm(run *r) {
  exec_worker *w = &r->pipeline->workers[0];
  const double start_s = dp_clock_s();
  w->kind->norm(w);
  return exec_measure_keep_norm(r->measure, r->graph, dp_clock_s() - start_s, r->error);
}

/* Steps in turns: every op timed, or none. The first of all is not counted. */
static dp_status take_steps(run *r, double seconds, exec_measure_tick tick, void *data) {
  exec_step step = {.adamw = {.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8}};
  const double began_s = dp_clock_s();
  for (int i = 0; i < 1 + 2 * LEAST_STEPS || dp_clock_s() - began_s < seconds; i++) {
    r->observer.on = i % 2 == 1;
    step.adamw.step = i + 1;
    const double start_s = dp_clock_s(), computed = computed_s();
    DP_TRY(exec_pipeline_step(r->pipeline, &step, NULL, r->observer.on ? NULL : &r->timeline, r->error));
    const double wall_s = dp_clock_s() - start_s;
    const double own_s = r->measure->threads == 1 ? computed_s() - computed : wall_s;
    if (i > 0 && !r->observer.on) {
      DP_TRY(exec_measure_keep_step(r->measure, &r->timeline, wall_s, own_s, r->error));
      DP_TRY(exec_measure_keep_optimizer(r->measure, &r->timeline, r->graph, r->error));
      if (r->program->worker_count == 1) DP_TRY(time_norm(r));
    }
    if (tick) tick(data, dp_clock_s() - began_s);
  }
  return DP_OK;
}

/* The loss of a microbatch and its gradient, as a worker computes them. */
static dp_status time_loss(run *r) {
  enum { RUNS = 200 };
  const graph_tensor *t = NULL;
  for (size_t i = 0; i < r->graph->tensors.count; i++)
    if (r->graph->tensors.items[i].is_output) t = &r->graph->tensors.items[i];
  const int64_t elements = graph_tensor_elements(t);
  const kern_loss size = {.batch = t->dims[0], .n = elements / t->dims[0], .factor = 1};
  float *values = calloc((size_t)elements, 3 * sizeof *values);
  if (!values) return dp_fail_memory(r->error);
  kern_context *kern = exec_pipeline_kernels(r->pipeline, 0);
  for (int i = 0; i < RUNS; i++) {
    const double start_s = dp_clock_s();
    for (int64_t s = 0; s < size.batch; s++) {
      kern_loss one = size;
      double square;
      one.batch = 1;
      (void)kern_loss_forward(kern, &one, values + s * size.n, values + elements + s * size.n, NULL, &square);
    }
    kern_loss_backward(kern, &size, values, values + elements, NULL, values + 2 * elements);
    r->measure->scratch[i] = dp_clock_s() - start_s;
  }
  free(values);
  return exec_measure_keep_loss(r->measure, 4 * (double)elements, exec_measure_typical(r->measure->scratch, RUNS),
                                r->error);
}

static dp_status measure_run(run *r, double seconds, exec_measure_tick tick, void *data) {
  const size_t slots = (size_t)r->program->worker_count * slot_count(r);
  const exec_pipeline_options options = {
      .threads = r->measure->threads, .feed = {.fill = fill, .data = r}, .observer = &r->observer};
  r->samples = malloc(slots * DEPTH * sizeof *r->samples);
  r->taken = calloc(slots + 1, sizeof *r->taken);
  if (!r->samples || !r->taken) return dp_fail_memory(r->error);
  DP_TRY(exec_measure_reserve(r->measure, (size_t)r->program->worker_count * DEPTH, r->error));
  DP_TRY(plan_timeline_init(r->program, &r->timeline, r->error));
  DP_TRY(exec_pipeline_create(r->program, r->graph, &options, &r->pipeline, r->error));
  fill_all(r);
  exec_measure_begin_run(r->measure, r->program);
  DP_TRY(take_steps(r, seconds, tick, data));
  DP_TRY(keep_ops(r));
  if (r->program->worker_count == 1) DP_TRY(time_loss(r));
  return exec_measure_end_run(r->measure, r->graph, r->error);
}

dp_status exec_measure_run(exec_measure *measure, const plan_program *program, const graph *g, double seconds,
                           exec_measure_tick tick, void *data, dp_error *error) {
  run *r = calloc(1, sizeof *r);
  if (!r) return dp_fail_memory(error);
  r->measure = measure;
  r->program = program;
  r->graph = g;
  r->observer = (exec_observer){.note = note, .data = r};
  r->error = error;
  const dp_status status = measure_run(r, seconds, tick, data);
  exec_pipeline_free(r->pipeline);
  plan_timeline_free(&r->timeline);
  free(r->samples);
  free(r->taken);
  free(r);
  return status;
}
