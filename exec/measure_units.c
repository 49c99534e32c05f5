#include "exec/measure_units_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { FIRST_STEPS = 2 };

/* ---- operands ---- */

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  const exec_units_job *r = data;
  const graph_tensor *t = &r->how->graph->tensors.items[tensor];
  if (r->filled) return; /* it has them */
  const int64_t from = replica + 31 * microbatch + 7 * tensor;
  for (int64_t i = 0, n = graph_tensor_elements(t); i < n; i++) {
    const float x = (float)(((i + from) * 7919 + 13) % 4093) / 2046.5f - 1;
    out[i] = t->rank == 1 ? 500 + 400 * x : x;
  }
}

static dp_status fill_constants(exec_units_job *r, int w) {
  const graph *g = r->how->graph;
  for (size_t t = 0; t < g->tensors.count; t++) {
    if (!g->tensors.items[t].is_constant || !exec_pipeline_constant(r->pipeline, w, (int)t)) continue;
    float *values = malloc((size_t)graph_tensor_elements(&g->tensors.items[t]) * sizeof *values);
    if (!values) return dp_fail_memory(r->error);
    fill(r, 0, 0, (int)t, values);
    const dp_status status = exec_pipeline_write_constant(r->pipeline, w, (int)t, values, r->error);
    free(values);
    DP_TRY(status);
  }
  return DP_OK;
}

static dp_status fill_all(exec_units_job *r) {
  for (int w = 0; w < r->program->worker_count; w++) {
    exec_worker *worker = &r->pipeline->workers[w];
    const exec_parameters *p = &worker->parameters;
    worker->kind->strew(worker, p->count * graph_dtype_bytes(p->value_dtype), p->values);
    DP_TRY(fill_constants(r, w));
  }
  return DP_OK;
}

/* ---- links ---- */

static dp_status compute(void *data, int worker, double *seconds, dp_error *error) {
  exec_units_job *r = data;
  DP_TRY(exec_pipeline_step_only(r->pipeline, &r->step, r->only, error));
  *seconds = 0;
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = exec_units_compute_of(r, w);
    for (uint32_t i = lane->first; (worker < 0 || w == worker) && i < lane->first + lane->count; i++)
      if (r->only[i]) *seconds += exec_units_span_s(r, i);
  }
  return DP_OK;
}

/* The same whatever is computed beside: once. */
static dp_status take_links(exec_units_job *r) {
  if (r->units->links.measured) return DP_OK;
  exec_units_choose(r, EXEC_UNITS_MIXED, 0, r->program->worker_count);
  return exec_units_measure_links(&r->units->links, r->pipeline, r->how->sharers == 1, r->how->nccl, compute, r,
                                  r->error);
}

/* ---- a program ---- */

static dp_status make_rows(exec_units_job *r) {
  const graph *g = r->how->graph;
  plan_profile_keys keys;
  dp_str scratch = {0};
  char key[17];
  r->row_of = DP_ARENA_NEW(&r->arena, size_t, g->units.count * PLAN_PROFILE_PASS_COUNT);
  if (!r->row_of) return dp_fail_memory(r->error);
  DP_TRY(plan_profile_keys_init(g, &keys, r->error));
  dp_status status = DP_OK;
  for (size_t u = 0; u < g->units.count && status == DP_OK; u++) {
    plan_profile_unit_key(&keys, (int)u, &scratch, key);
    if (scratch.failed) status = dp_fail_memory(r->error);
    for (int p = 0; p < PLAN_PROFILE_PASS_COUNT && status == DP_OK; p++)
      status = exec_units_row(r->units, key, g->units.items[u].name, r->how->sms, (plan_profile_pass)p,
                              &r->row_of[u * PLAN_PROFILE_PASS_COUNT + (size_t)p], r->error);
  }
  dp_str_free(&scratch);
  plan_profile_keys_free(&keys);
  return status;
}

static dp_status make_marks(exec_units_job *r) {
  const plan_program *program = r->program;
  for (int w = 0; w < program->worker_count; w++) {
    const plan_lane *lane = exec_units_compute_of(r, w);
    exec_worker *worker = &r->pipeline->workers[w];
    uint32_t count = 0;
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      r->marks[i] = count;
      if (exec_units_is_pass(&program->instructions[i]))
        count += program->works[program->instructions[i].class_id].unit_count + 1;
    }
    DP_TRY(worker->kind->make_marks(worker, count, r->error));
    worker->mark_first = &r->marks[lane->first];
    worker->unrecorded = r->unrecorded;
  }
  return DP_OK;
}

static dp_status check(const exec_units_job *r) {
  const plan_plan *plan = r->program->plan;
  if (r->how->options.transport)
    return dp_fail(r->error, DP_UNSUPPORTED, "units are measured by one process, found several");
  if (plan->replicas == 1 && plan->microbatches >= 2 && plan->training) return DP_OK;
  return dp_fail(r->error, DP_INTERNAL,
                 "units: found %d replicas and %d microbatches, allowed: one that trains on two or more",
                 plan->replicas, plan->microbatches);
}

static dp_status keep_device(exec_units_job *r) {
  const exec_worker *w = &r->pipeline->workers[0];
  if (r->units->device || !w->kind->describe) return DP_OK;
  r->units->device = dp_arena_strdup(&r->units->arena, w->kind->describe(w));
  return r->units->device ? DP_OK : dp_fail_memory(r->error);
}

static dp_status keep_runtime(exec_units_job *r) {
  const int workers = r->program->worker_count;
  int64_t bytes = exec_pipeline_device_bytes(r->pipeline);
  for (int w = 0; bytes > 0 && w < workers; w++) bytes -= exec_pipeline_memory(r->pipeline, w)->layout_bytes;
  return dp_array_push(&r->units->runtimes, bytes > 0 ? (double)bytes / workers : 0.0) ? DP_OK
                                                                                       : dp_fail_memory(r->error);
}

/* As many on each device as the cluster has it, however many there are. */
static dp_status find_places(exec_units_job *r, const exec_place **places) {
  const int workers = r->program->worker_count, sharers = r->how->sharers;
  exec_place *made = DP_ARENA_NEW(&r->arena, exec_place, (size_t)workers);
  if (!made) return dp_fail_memory(r->error);
  for (int w = 0; w < workers; w++) made[w] = (exec_place){w / sharers, w % sharers, sharers};
  *places = made;
  return DP_OK;
}

static dp_status measure(exec_units_job *r) {
  const uint32_t n = r->program->instruction_count;
  const double began_s = dp_clock_s();
  exec_pipeline_options options = r->how->options;
  options.feed = (exec_feed){.fill = fill, .data = r};
  DP_TRY(check(r));
  DP_TRY(find_places(r, &options.places));
  r->only = DP_ARENA_NEW(&r->arena, uint8_t, n);
  r->marks = DP_ARENA_NEW(&r->arena, uint32_t, n);
  r->fine = DP_ARENA_NEW(&r->arena, exec_units_spans, n);
  r->bare = DP_ARENA_NEW(&r->arena, exec_units_spans, EXEC_UNITS_PLAYS * (size_t)n);
  if (!r->only || !r->marks || !r->fine || !r->bare) return dp_fail_memory(r->error);
  DP_TRY(make_rows(r));
  DP_TRY(exec_units_part(r->units, r->how->sms, r->how->sharers, r->error));
  DP_TRY(exec_pipeline_create(r->program, r->how->graph, &options, &r->pipeline, r->error));
  DP_TRY(keep_device(r));
  DP_TRY(make_marks(r));
  DP_TRY(fill_all(r));
  for (int i = 0; i < FIRST_STEPS; i++) { /* as it is, and recorded */
    DP_TRY(exec_pipeline_step_only(r->pipeline, &r->step, NULL, r->error));
    r->filled = r->pipeline->work.kind->deferred;
  }
  double at_s;
  exec_worker *worker = &r->pipeline->workers[0];
  DP_TRY(worker->kind->read_mark(r->pipeline, worker, r->marks[exec_units_compute_of(r, 0)->first], &at_s, r->error));
  r->began = true;
  const double made_s = dp_clock_s();
  r->units->made_s += made_s - began_s;
  DP_TRY(keep_runtime(r));
  DP_TRY(exec_units_take_units(r, r->how->seconds));
  DP_TRY(exec_units_take_optimizers(r));
  DP_TRY(exec_units_take_steps(r));
  DP_TRY(take_links(r));
  r->units->measured_s += dp_clock_s() - made_s;
  return exec_units_end_run(r->units, r->error);
}

/* What all instructions take together while all compute. */
static double together_s(const exec_units_job *r) {
  double sum = 0;
  for (uint32_t i = 0; r->bare && i < r->program->instruction_count; i++) {
    const exec_units_spans *s = exec_units_bare_of(r, EXEC_UNITS_MIXED, i);
    sum += exec_units_middle(s, s->seconds);
  }
  return sum;
}

typedef struct outcome {
  int making;
  bool began;
  double together_s;
} outcome;

static dp_status measure_once(const exec_units_how *how, exec_units *units, bool unrecorded, outcome *out,
                              dp_error *error) {
  exec_units_job r = {.units = units, .how = how, .program = how->program, .unrecorded = unrecorded, .error = error};
  r.making = units->makings++;
  r.step.adamw = (kern_adamw){.lr = 0, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .step = 1};
  const dp_status status = measure(&r);
  *out = (outcome){.making = r.making, .began = r.began, .together_s = together_s(&r)};
  exec_pipeline_free(r.pipeline);
  dp_array_free(&r.pendings);
  dp_arena_free(&r.arena);
  return status;
}

/* One making of a program in some forty had its parts slow each other down twice as much, in all of its runs; the
 * same program made anew did not, and why is not known. Of two, what was faster with all computing is kept. */
dp_status exec_units_run(exec_units *units, const exec_units_how *how, dp_error *error) {
  exec_units_how half = *how;
  outcome first, second;
  dp_error why = DP_ERROR_INIT;
  bool unrecorded = false;
  if (how->sharers > 1) half.seconds /= 2;
  dp_status status = measure_once(&half, units, unrecorded, &first, &why);
  if (status == DP_RUN_FAILED && !first.began && how->options.cuda) {
    /* a device that cannot tell moments within what it has recorded: in instructions that are not */
    unrecorded = true;
    why = (dp_error)DP_ERROR_INIT;
    status = measure_once(&half, units, unrecorded, &first, &why);
  }
  if (status == DP_OK && how->sharers > 1) {
    status = measure_once(&half, units, unrecorded, &second, &why);
    if (status == DP_OK) exec_units_drop(units, second.together_s > first.together_s ? second.making : first.making);
  }
  return status == DP_OK ? DP_OK : dp_fail(error, status, "%s", why.text);
}
