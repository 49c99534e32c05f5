#include "exec/measure_units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/lanes.h"
#include "exec/machine.h"
#include "exec/measure_units_store.h"

enum { FIRST_STEPS = 2, MOST_ROUNDS = 50 };

/* One program being measured. */
typedef struct run {
  exec_units *units;
  const exec_units_how *how;
  const plan_program *program;
  exec_pipeline *pipeline;
  exec_step step;
  bool filled;      /* the device has its inputs */
  bool unrecorded;  /* units are told apart in instructions that are not recorded */
  bool began;       /* these can be told apart */
  uint8_t *only;    /* [instruction] */
  uint32_t *marks;  /* [instruction] the first */
  double *marked_s; /* [instruction] all busy, the least with marks */
  double *bare_s;   /* the same without */
  size_t *row_of;   /* [unit * passes + pass] */
  dp_arena arena;
  dp_error *error;
} run;

/* ---- operands ---- */

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  const run *r = data;
  const graph_tensor *t = &r->how->graph->tensors.items[tensor];
  if (r->filled) return; /* it has them */
  const int64_t from = replica + 31 * microbatch + 7 * tensor;
  for (int64_t i = 0, n = graph_tensor_elements(t); i < n; i++) {
    const float x = (float)(((i + from) * 7919 + 13) % 4093) / 2046.5f - 1;
    out[i] = t->rank == 1 ? 500 + 400 * x : x;
  }
}

static dp_status fill_constants(run *r, int w) {
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

static dp_status fill_all(run *r) {
  for (int w = 0; w < r->program->worker_count; w++) {
    exec_worker *worker = &r->pipeline->workers[w];
    const exec_parameters *p = &worker->parameters;
    worker->kind->strew(worker, p->count * graph_dtype_bytes(p->value_dtype), p->values);
    DP_TRY(fill_constants(r, w));
  }
  return DP_OK;
}

/* ---- which instructions ---- */

static const plan_lane *compute_of(const run *r, int w) { return &r->program->lanes[r->program->worker_lane[w]]; }

static bool is_pass(const plan_instruction *i) { return i->opcode <= PLAN_BACKWARD_WEIGHT; }

static plan_profile_pass pass_of(const plan_instruction *i) {
  return i->opcode == PLAN_FORWARD          ? PLAN_PROFILE_FORWARD
         : i->opcode == PLAN_BACKWARD       ? PLAN_PROFILE_BACKWARD
         : i->opcode == PLAN_BACKWARD_INPUT ? PLAN_PROFILE_BACKWARD_INPUT
                                            : PLAN_PROFILE_BACKWARD_WEIGHT;
}

static bool is_first(const run *r, int w, const plan_instruction *i) {
  const exec_worker *worker = &r->pipeline->workers[w];
  return i->opcode != PLAN_FORWARD && i->opcode != PLAN_BACKWARD_INPUT && worker->first_microbatch &&
         worker->first_microbatch[i->chunk] == (int)i->microbatch;
}

/* Passes, or the optimizer, of the workers from `first` on, each `every`th up to `end`; of one microbatch, or of all
 * (-1). */
static void choose(run *r, bool passes, int first, int every, int end, int microbatch) {
  memset(r->only, 0, r->program->instruction_count);
  for (int w = first; w < end; w += every) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const plan_instruction *instruction = &r->program->instructions[i];
      const bool wanted = passes ? is_pass(instruction) : instruction->opcode == PLAN_OPTIMIZER_STEP;
      r->only[i] = wanted && (microbatch < 0 || !passes || instruction->microbatch == (uint32_t)microbatch);
    }
  }
}

/* ---- steps ---- */

static double span_s(const run *r, uint32_t i) { return r->pipeline->end_s[i] - r->pipeline->start_s[i]; }

/* The share of the other workers of a device that computed, over a time, on average. */
static double crowd_of(const run *r, int worker, double from_s, double to_s) {
  const int sharers = r->how->sharers;
  double together_s = 0;
  if (sharers < 2 || to_s <= from_s) return 0;
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; w != worker && i < lane->first + lane->count; i++)
      if (r->only[i]) together_s += fmax(0, fmin(to_s, r->pipeline->end_s[i]) - fmax(from_s, r->pipeline->start_s[i]));
  }
  return together_s / (to_s - from_s) / (sharers - 1);
}

static dp_status keep_units(run *r, int w, uint32_t at, exec_units_phase phase) {
  const plan_instruction *instruction = &r->program->instructions[at];
  const plan_work *work = &r->program->works[instruction->class_id];
  const plan_profile_pass pass = pass_of(instruction);
  exec_worker *worker = &r->pipeline->workers[w];
  double before_s, after_s;
  DP_TRY(worker->kind->read_mark(r->pipeline, worker, r->marks[at], &before_s, r->error));
  const double first_s = before_s;
  for (uint32_t k = 0; k < work->unit_count; k++, before_s = after_s) {
    DP_TRY(worker->kind->read_mark(r->pipeline, worker, r->marks[at] + k + 1, &after_s, r->error));
    const uint32_t unit =
        pass == PLAN_PROFILE_FORWARD ? work->first_unit + k : work->first_unit + work->unit_count - 1 - k;
    const exec_units_sample sample = {
        .seconds = after_s - before_s, .crowd = crowd_of(r, w, before_s, after_s), .phase = phase};
    DP_TRY(exec_units_keep(r->units, r->row_of[unit * PLAN_PROFILE_PASS_COUNT + pass], is_first(r, w, instruction),
                           &sample, r->error));
  }
  const double rest_s = span_s(r, at) - (before_s - first_s); /* with one mark more than units have */
  return dp_array_push(&r->units->rests, rest_s) ? DP_OK : dp_fail_memory(r->error);
}

static dp_status keep_all_units(run *r, exec_units_phase phase) {
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
      if (r->only[i]) DP_TRY(keep_units(r, w, i, phase));
  }
  return DP_OK;
}

static void keep_least(const run *r, double *least_s) {
  for (uint32_t i = 0; i < r->program->instruction_count; i++)
    if (r->only[i] && (least_s[i] == 0 || span_s(r, i) < least_s[i])) least_s[i] = span_s(r, i);
}

static dp_status step_only(run *r) { return exec_pipeline_step_only(r->pipeline, &r->step, r->only, r->error); }

/* Again and again, for so long, at least once. */
static dp_status take_units(run *r, exec_units_phase phase, double seconds) {
  const double began_s = dp_clock_s();
  for (int i = 0; i == 0 || (i < MOST_ROUNDS && dp_clock_s() - began_s < seconds); i++) {
    DP_TRY(step_only(r));
    DP_TRY(keep_all_units(r, phase));
    if (phase == EXEC_UNITS_BUSY) keep_least(r, r->marked_s);
  }
  return DP_OK;
}

static dp_status take_marked(run *r, double seconds) {
  const int workers = r->program->worker_count, sharers = r->how->sharers;
  const int together = sharers > 1 ? 1 : workers; /* those on devices of their own are alone all the same */
  choose(r, true, 0, 1, workers, -1);
  DP_TRY(take_units(r, sharers > 1 ? EXEC_UNITS_BUSY : EXEC_UNITS_ALONE, seconds * 0.3));
  if (r->pipeline->work.kind->deferred) r->units->clock_hz = exec_machine_clock_hz(0);
  if (sharers == 1) keep_least(r, r->marked_s);
  if (sharers == 1) return DP_OK;
  for (int odd = 0; sharers > 2 && odd < 2; odd++) {
    choose(r, true, odd, 2, workers, -1);
    DP_TRY(take_units(r, EXEC_UNITS_HALF, seconds * 0.1));
  }
  for (int w = 0; w < workers; w += together) {
    choose(r, true, w, 1, w + together, 0);
    DP_TRY(take_units(r, EXEC_UNITS_ALONE, seconds * 0.3 / workers));
  }
  return DP_OK;
}

/* ---- the optimizer ---- */

static dp_status keep_optimizers(run *r, bool all) {
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
      if (r->only[i]) {
        const exec_units_optimizer one = {.sms = r->how->sms,
                                          .parameters = (double)r->pipeline->workers[w].parameters.trained_count,
                                          .seconds = span_s(r, i),
                                          .crowd = crowd_of(r, w, r->pipeline->start_s[i], r->pipeline->end_s[i]),
                                          .all = all && r->how->sharers > 1};
        if (one.parameters > 0 && !dp_array_push(&r->units->optimizers, one)) return dp_fail_memory(r->error);
      }
  }
  return DP_OK;
}

static dp_status take_optimizers(run *r) {
  enum { TIMES = 3 };
  const int workers = r->program->worker_count;
  for (int i = 0; i < TIMES; i++) {
    choose(r, false, 0, 1, workers, -1);
    DP_TRY(step_only(r));
    DP_TRY(keep_optimizers(r, true));
    for (int w = 0; r->how->sharers > 1 && w < workers; w++) {
      choose(r, false, w, 1, w + 1, -1);
      DP_TRY(step_only(r));
      DP_TRY(keep_optimizers(r, false));
    }
  }
  return DP_OK;
}

/* ---- without marks: what these take, and what lies between instructions ---- */

static bool receives(const run *r, uint32_t i) {
  for (uint32_t w = r->program->wait_first[i]; w < r->program->wait_first[i + 1]; w++)
    if (r->program->instructions[r->program->waits[w]].opcode == PLAN_RECV) return true;
  return false;
}

static dp_status keep_gaps(run *r) {
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first + 1; i < lane->first + lane->count; i++)
      if (r->only[i - 1] && r->only[i] && !receives(r, i) &&
          !dp_array_push(&r->units->gaps, r->pipeline->start_s[i] - r->pipeline->end_s[i - 1]))
        return dp_fail_memory(r->error);
  }
  return DP_OK;
}

static void forget_marks(run *r) {
  for (int w = 0; w < r->program->worker_count; w++) {
    exec_worker *worker = &r->pipeline->workers[w];
    worker->mark_first = NULL;
    worker->unrecorded = false;
    if (worker->kind->forget) worker->kind->forget(worker);
  }
}

static dp_status keep_issue(run *r) {
  double issue_s = 0;
  int count = 0;
  for (uint32_t i = 0; i < r->program->instruction_count; i++) count += r->only[i];
  for (uint32_t l = 0; l < r->program->lane_count; l++) {
    issue_s += r->pipeline->lanes[l].issue_s;
    r->pipeline->lanes[l].issue_s = 0;
  }
  /* on the host an instruction is done when it is issued */
  const double each_s = r->pipeline->work.kind->deferred ? issue_s / count : 0;
  return dp_array_push(&r->units->issues, each_s) ? DP_OK : dp_fail_memory(r->error);
}

static dp_status keep_marks(run *r) {
  for (uint32_t i = 0; i < r->program->instruction_count; i++) {
    if (r->bare_s[i] == 0 || r->marked_s[i] == 0) continue;
    const uint32_t units = r->program->works[r->program->instructions[i].class_id].unit_count;
    const double mark_s = (r->marked_s[i] - r->bare_s[i]) / (units + 1);
    if (!dp_array_push(&r->units->marks, mark_s)) return dp_fail_memory(r->error);
  }
  return DP_OK;
}

static dp_status take_bare(run *r, double seconds) {
  const double began_s = dp_clock_s();
  forget_marks(r);
  choose(r, true, 0, 1, r->program->worker_count, -1);
  DP_TRY(step_only(r)); /* what is recorded anew takes longer */
  for (uint32_t l = 0; l < r->program->lane_count; l++) r->pipeline->lanes[l].issue_s = 0;
  for (int i = 0; i < 2 || (i < MOST_ROUNDS && dp_clock_s() - began_s < seconds); i++) {
    DP_TRY(step_only(r));
    keep_least(r, r->bare_s);
    DP_TRY(keep_gaps(r));
    DP_TRY(keep_issue(r));
  }
  return keep_marks(r);
}

/* A whole step, from without: what it takes before its first instruction starts and after its last has ended. */
static dp_status take_steps(run *r) {
  enum { TIMES = 2 };
  const plan_program *program = r->program;
  for (int i = 0; i < TIMES; i++) {
    double first_s = INFINITY, last_s = 0;
    const double began_s = dp_clock_s();
    DP_TRY(exec_pipeline_step_only(r->pipeline, &r->step, NULL, r->error));
    const double wall_s = dp_clock_s() - began_s;
    for (int w = 0; w < program->worker_count; w++) {
      const plan_lane *lane = compute_of(r, w);
      for (uint32_t k = lane->first; k < lane->first + lane->count; k++) {
        first_s = fmin(first_s, r->pipeline->start_s[k]);
        last_s = fmax(last_s, r->pipeline->end_s[k]);
      }
    }
    if (!dp_array_push(&r->units->begins, wall_s - (last_s - first_s))) return dp_fail_memory(r->error);
  }
  return DP_OK;
}

/* ---- links ---- */

static dp_status compute(void *data, double *seconds, dp_error *error) {
  run *r = data;
  DP_TRY(exec_pipeline_step_only(r->pipeline, &r->step, r->only, error));
  *seconds = 0;
  for (uint32_t i = 0; i < r->program->instruction_count; i++)
    if (r->only[i]) *seconds += span_s(r, i);
  return DP_OK;
}

/* The same whatever is computed beside: once. */
static dp_status take_links(run *r) {
  if (r->units->links.measured || r->how->sharers < 2) return DP_OK;
  choose(r, true, 0, 1, r->program->worker_count, -1);
  return exec_units_measure_links(r->units, r->pipeline, compute, r, r->error);
}

/* ---- a program ---- */

static dp_status make_rows(run *r) {
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

static dp_status make_marks(run *r) {
  const plan_program *program = r->program;
  for (int w = 0; w < program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    exec_worker *worker = &r->pipeline->workers[w];
    uint32_t count = 0;
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      r->marks[i] = count;
      if (is_pass(&program->instructions[i])) count += program->works[program->instructions[i].class_id].unit_count + 1;
    }
    DP_TRY(worker->kind->make_marks(worker, count, r->error));
    worker->mark_first = &r->marks[lane->first];
    worker->unrecorded = r->unrecorded;
  }
  return DP_OK;
}

static dp_status check(const run *r) {
  const plan_plan *plan = r->program->plan;
  if (r->how->options.transport)
    return dp_fail(r->error, DP_UNSUPPORTED, "units are measured by one process, found several");
  if (plan->replicas == 1 && plan->microbatches >= 2 && plan->training) return DP_OK;
  return dp_fail(r->error, DP_INTERNAL,
                 "units: found %d replicas and %d microbatches, allowed: one that trains on two or more",
                 plan->replicas, plan->microbatches);
}

static dp_status keep_device(run *r) {
  const exec_worker *w = &r->pipeline->workers[0];
  if (r->units->device || !w->kind->describe) return DP_OK;
  r->units->device = dp_arena_strdup(&r->units->arena, w->kind->describe(w));
  return r->units->device ? DP_OK : dp_fail_memory(r->error);
}

static dp_status keep_runtime(run *r) {
  const int workers = r->program->worker_count;
  int64_t bytes = exec_pipeline_device_bytes(r->pipeline);
  for (int w = 0; bytes > 0 && w < workers; w++) bytes -= exec_pipeline_memory(r->pipeline, w)->layout_bytes;
  return dp_array_push(&r->units->runtimes, bytes > 0 ? (double)bytes / workers : 0.0) ? DP_OK
                                                                                       : dp_fail_memory(r->error);
}

/* As many on each device as the cluster has it, however many there are. */
static dp_status find_places(run *r, const exec_place **places) {
  const int workers = r->program->worker_count, sharers = r->how->sharers;
  exec_place *made = DP_ARENA_NEW(&r->arena, exec_place, (size_t)workers);
  if (!made) return dp_fail_memory(r->error);
  for (int w = 0; w < workers; w++) made[w] = (exec_place){w / sharers, w % sharers, sharers};
  *places = made;
  return DP_OK;
}

static dp_status measure(run *r) {
  const uint32_t n = r->program->instruction_count;
  exec_pipeline_options options = r->how->options;
  options.feed = (exec_feed){.fill = fill, .data = r};
  DP_TRY(check(r));
  DP_TRY(find_places(r, &options.places));
  r->only = DP_ARENA_NEW(&r->arena, uint8_t, n);
  r->marks = DP_ARENA_NEW(&r->arena, uint32_t, n);
  r->marked_s = DP_ARENA_NEW(&r->arena, double, n);
  r->bare_s = DP_ARENA_NEW(&r->arena, double, n);
  if (!r->only || !r->marks || !r->marked_s || !r->bare_s) return dp_fail_memory(r->error);
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
  DP_TRY(worker->kind->read_mark(r->pipeline, worker, r->marks[compute_of(r, 0)->first], &at_s, r->error));
  r->began = true;
  DP_TRY(keep_runtime(r));
  DP_TRY(take_marked(r, r->how->seconds * 0.8));
  DP_TRY(take_optimizers(r));
  DP_TRY(take_bare(r, r->how->seconds * 0.2));
  DP_TRY(take_steps(r));
  DP_TRY(take_links(r));
  return exec_units_end_run(r->units, r->error);
}

static dp_status measure_once(const exec_units_how *how, exec_units *units, bool unrecorded, bool *began,
                              dp_error *error) {
  run r = {.units = units, .how = how, .program = how->program, .unrecorded = unrecorded, .error = error};
  r.step.adamw = (kern_adamw){.lr = 0, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .step = 1};
  const dp_status status = measure(&r);
  *began = r.began;
  exec_pipeline_free(r.pipeline);
  dp_arena_free(&r.arena);
  return status;
}

/* Where a device cannot tell moments within what it has recorded, they are told in instructions that are not. */
dp_status exec_units_run(exec_units *units, const exec_units_how *how, dp_error *error) {
  bool began = false;
  dp_error first = DP_ERROR_INIT;
  dp_status status = measure_once(how, units, false, &began, &first);
  if (status == DP_RUN_FAILED && !began && how->options.cuda) return measure_once(how, units, true, &began, error);
  return status == DP_OK ? DP_OK : dp_fail(error, status, "%s", first.text);
}
