/* The host as a worker's device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/lanes.h"

/* ---- memory ---- */

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static int64_t workspace(const plan_program *program, const graph *g, int rank, int threads) {
  const plan_plan *plan = program->plan;
  size_t most = larger(1 << 16 /* the loss */, exec_compress_workspace(program, &exec_math_cpu, g->precision, threads));
  for (int c = 0; c < plan->chunk_count; c++)
    if (plan->chunks[c].rank == rank)
      most = larger(most, exec_chunk_workspace(&exec_math_cpu, g, plan->chunks[c].first_unit,
                                               plan->chunks[c].unit_count, threads));
  const int64_t trained = exec_trained_floats(program, g, rank);
  if (trained > 0) most = larger(most, kern_sum_squares_workspace(trained, threads));
  return (int64_t)most;
}

static dp_status check(const exec_work *work, dp_error *error) {
  if (work->graph->precision != GRAPH_FP32)
    return dp_fail(error, DP_UNSUPPORTED, "the executor on processors knows no %s, allowed: fp32",
                   graph_dtype_name(work->graph->precision));
  return exec_chunk_check(&exec_math_cpu, work->graph, error);
}

static dp_status open_device(const exec_work *work, exec_worker *w, dp_error *error) {
  (void)work, (void)w, (void)error;
  return DP_OK;
}

static dp_status allocate(exec_worker *w, int64_t bytes, char **base, dp_error *error) {
  (void)w;
  *base = aligned_alloc(PLAN_ALIGNMENT, (size_t)bytes);
  return *base ? DP_OK : dp_fail_memory(error);
}

static void release(exec_worker *w, char *base) {
  (void)w;
  free(base);
}

static dp_status probe(const exec_probe_copy *copy, double *seconds, dp_error *error) {
  char *both = malloc(2 * copy->bytes);
  if (!both) return dp_fail_memory(error);
  memset(both, 0, 2 * copy->bytes);
  for (int i = 0; i <= EXEC_PROBES; i++) { /* the first is not timed */
    const double from_s = dp_clock_s();
    memcpy(both + (i % 2 ? copy->bytes : 0), both + (i % 2 ? 0 : copy->bytes), copy->bytes);
    const double taken_s = dp_clock_s() - from_s;
    if (i == 1 || (i > 1 && taken_s < *seconds)) *seconds = taken_s;
  }
  const volatile char *seen = both; /* the copies are not left out */
  (void)seen[copy->bytes];
  free(both);
  return DP_OK;
}

static dp_status start(const exec_work *work, exec_worker *w, dp_error *error) {
  const kern_context_options how = {.threads = exec_work_threads(work),
                                    .workspace = w->layout.workspace,
                                    .workspace_bytes = w->layout.workspace_bytes};
  DP_TRY(kern_context_create(&how, &w->kern, error));
  w->context = w->kern;
  return DP_OK;
}

static void close_device(exec_worker *w) {
  free(w->marks_s);
  free(w->noise);
}

static dp_status read_values(exec_worker *w, graph_dtype dtype, int64_t n, const void *from, float *to,
                             dp_error *error) {
  (void)w, (void)dtype, (void)error;
  memcpy(to, from, (size_t)n * sizeof *to);
  return DP_OK;
}

static dp_status write_values(exec_worker *w, graph_dtype dtype, int64_t n, const float *from, void *to,
                              dp_error *error) {
  (void)w, (void)dtype, (void)error;
  memcpy(to, from, (size_t)n * sizeof *from);
  return DP_OK;
}

static void zero(exec_worker *w, int64_t bytes, void *at) { kern_fill(w->kern, bytes / (int64_t)sizeof(float), 0, at); }

static void prepare(const exec_work *work, exec_worker *w, const exec_chunk *chunk, int microbatch) {
  (void)work, (void)w, (void)chunk, (void)microbatch;
}

static void feed(const exec_work *work, exec_worker *w, int tensor, int microbatch, void *place) {
  const exec_feed *source = &work->options.feed;
  source->fill(source->data, plan_worker_replica(work->plan, w->index), microbatch, tensor, place);
}

/* ---- a step ---- */

static void begin(const exec_work *work, exec_worker *w) {
  (void)work;
  w->loss = w->square = 0;
  w->scale = 1;
  w->spoilt = false;
}

static dp_status collect(const exec_work *work, exec_worker *w, dp_error *error) {
  (void)work, (void)w, (void)error;
  return DP_OK;
}

/* The weighted mean over the samples of all replicas, and its gradient. */
static void take_loss(const exec_work *work, exec_worker *w, int microbatch, const void *target_place) {
  const exec_feed *source = &work->options.feed;
  const float *output = w->layout.outputs[microbatch], *target = target_place;
  const kern_loss size = exec_loss_size(work);
  if (source->weigh) source->weigh(source->data, plan_worker_replica(work->plan, w->index), microbatch, w->weights);
  const float *weights = source->weigh ? w->weights : NULL;
  for (int64_t s = 0; s < size.batch; s++) { /* one by one: there is no bound on samples */
    kern_loss one = size;
    one.batch = 1;
    w->loss += kern_loss_forward(w->kern, &one, output + s * size.n, target + s * size.n, weights ? weights + s : NULL,
                                 &w->squares[microbatch * size.batch + s]);
  }
  if (!work->step->evaluate)
    kern_loss_backward(w->kern, &size, output, target, weights, w->layout.output_gradients[microbatch]);
}

static void norm(exec_worker *w) {
  w->square = kern_sum_squares(w->kern, w->parameters.trained_count, w->parameters.gradients);
}

/* A worker alone, or without global_norm, has not met the others. */
static void optimize(const exec_work *work, exec_worker *w) {
  const exec_step *step = work->step;
  exec_parameters *p = &w->parameters;
  kern_adamw settings = step->adamw;
  if (work->program->worker_count == 1 || !work->plan->global_norm) {
    norm(w);
    w->spoilt = !isfinite(w->square);
  }
  if (work->program->worker_count == 1) {
    w->norms[0] = w->square;
    exec_worker_clip(work, w);
  }
  if (w->spoilt) return;
  if (step->rank_rates) settings.lr *= step->rank_rates[plan_worker_rank(work->plan, w->index)];
  settings.gradient_scale = w->scale;
  kern_adamw_step(w->kern, &settings, p->trained_count, p->values, p->gradients, p->first, p->second);
  if (p->means) kern_ema(w->kern, p->trained_count, (float)step->means_decay, p->values, p->means);
}

static void use_means(exec_worker *w, bool means) {
  (void)means;
  exec_parameters_exchange_means(&w->parameters);
}

/* ---- measuring ---- */

enum { NOISE = 4096 };

static dp_status make_marks(exec_worker *w, uint32_t count, dp_error *error) {
  w->marks_s = calloc((size_t)count + 1, sizeof *w->marks_s);
  w->noise = malloc(NOISE * sizeof *w->noise);
  if (!w->marks_s || !w->noise) return dp_fail_memory(error);
  for (int i = 0; i < NOISE; i++) w->noise[i] = (float)((i * 7919 + 13) % 4093) / 2046.5f - 1;
  return DP_OK;
}

static void mark(exec_worker *w, uint32_t number) { w->marks_s[number] = dp_clock_s(); }

static dp_status read_mark(const struct exec_pipeline *p, exec_worker *w, uint32_t number, double *at_s,
                           dp_error *error) {
  (void)p, (void)error;
  *at_s = w->marks_s[number];
  return DP_OK;
}

static void strew(exec_worker *w, int64_t bytes, void *at) {
  for (int64_t done = 0, count; done < bytes; done += count) {
    count = bytes - done < NOISE * (int64_t)sizeof *w->noise ? bytes - done : NOISE * (int64_t)sizeof *w->noise;
    memcpy((char *)at + done, w->noise, (size_t)count);
  }
}

typedef struct copies {
  char *from, *to;
} copies;

static void close_copies(struct exec_pipeline *p) {
  copies *c = p->copies;
  if (!c) return;
  free(c->from);
  free(c->to);
  free(c);
  p->copies = NULL;
}

static dp_status open_copies(struct exec_pipeline *p, const uint32_t *lanes, int count, int64_t bytes,
                             dp_error *error) {
  copies *c = calloc(1, sizeof *c);
  (void)lanes, (void)count;
  if (!c) return dp_fail_memory(error);
  p->copies = c;
  c->from = calloc((size_t)bytes, 1);
  c->to = calloc((size_t)bytes, 1);
  if (c->from && c->to) return DP_OK;
  close_copies(p);
  return dp_fail_memory(error);
}

/* All memory is the host's. */
static dp_status time_copies(struct exec_pipeline *p, int count, bool host, int64_t bytes, double *seconds,
                             dp_error *error) {
  const copies *c = p->copies;
  (void)host, (void)error;
  const double began_s = dp_clock_s();
  for (int i = 0; i < count; i++) memcpy(c->to, c->from, (size_t)bytes);
  *seconds = dp_clock_s() - began_s;
  return DP_OK;
}

/* ---- between workers ---- */

static void copy(exec_pipeline *p, uint32_t lane, int64_t bytes, uint32_t from_worker, const void *from,
                 uint32_t to_worker, void *to) {
  (void)p, (void)lane, (void)from_worker, (void)to_worker;
  memcpy(to, from, (size_t)bytes);
}

static void clear(exec_pipeline *p, uint32_t lane, int64_t bytes, void *at) {
  (void)p, (void)lane;
  memset(at, 0, (size_t)bytes);
}

static void delay(exec_pipeline *p, uint32_t lane) {
  (void)lane;
  exec_throttle_sleep(&p->throttle);
}

static void add_gradients(exec_pipeline *p, uint32_t lane, uint32_t worker, int64_t n, const void *from, void *to) {
  const float *x = from;
  float *sum = to;
  (void)p, (void)lane, (void)worker;
  for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

const exec_device_kind exec_device_cpu = {.name = "cpu",
                                          .math = &exec_math_cpu,
                                          .workspace = workspace,
                                          .check = check,
                                          .open = open_device,
                                          .allocate = allocate,
                                          .release = release,
                                          .start = start,
                                          .close = close_device,
                                          .probe = probe,
                                          .read = read_values,
                                          .write = write_values,
                                          .zero = zero,
                                          .prepare = prepare,
                                          .feed = feed,
                                          .loss = take_loss,
                                          .norm = norm,
                                          .optimize = optimize,
                                          .begin = begin,
                                          .collect = collect,
                                          .use_means = use_means,
                                          .make_marks = make_marks,
                                          .mark = mark,
                                          .read_mark = read_mark,
                                          .strew = strew,
                                          .open_copies = open_copies,
                                          .close_copies = close_copies,
                                          .time_copies = time_copies,
                                          .copy = copy,
                                          .clear = clear,
                                          .delay = delay,
                                          .add_gradients = add_gradients};
