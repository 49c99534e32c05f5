#include "exec/measure_units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "exec/lanes.h"
#include "exec/machine.h"
#include "exec/measure_units_store.h"

enum { FIRST_STEPS = 2, MOST_ROUNDS = 50, ASIDE = 5, LEAST = 5 }; /* every fifth is kept aside, of so many */

/* What of a program is played: see measure_units.h. */
typedef enum part { ALONE, FORWARDS, BACKWARDS, EVEN_FORWARD, ODD_FORWARD, MIXED, PARTS } part;

/* A unit's run alone, before what its marks take is known. */
typedef struct pending {
  size_t row;
  int worker;
  uint32_t instruction;
  double seconds;
} pending;

/* What lies between the first and the last mark of an instruction, round by round, and who else computed meanwhile. */
typedef struct spans {
  double seconds[MOST_ROUNDS], beside[2][MOST_ROUNDS];
  int count;
} spans;

/* One program being measured. */
typedef struct run {
  exec_units *units;
  const exec_units_how *how;
  const plan_program *program;
  exec_pipeline *pipeline;
  exec_step step;
  bool filled;        /* the device has its inputs */
  bool unrecorded;    /* units are told apart in instructions that are not recorded */
  int making;         /* of the program, of all */
  bool began;         /* these can be told apart */
  bool ends_only;     /* only the first mark and the last are there */
  uint8_t *only;      /* [instruction] */
  uint32_t *marks;    /* [instruction] its worker's first */
  spans *fine, *bare; /* [instruction] alone, with all marks; [part][instruction] with two */
  DP_ARRAY(pending) pendings;
  size_t *row_of; /* [unit * passes + pass] */
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

static bool is_forward(const plan_instruction *i) { return i->opcode == PLAN_FORWARD; }

static bool in_part(part of, int w, const plan_instruction *i) {
  switch (of) {
    case FORWARDS:
      return is_forward(i);
    case BACKWARDS:
      return !is_forward(i);
    case EVEN_FORWARD:
    case ODD_FORWARD:
      return is_forward(i) == (w % 2 == (of == ODD_FORWARD));
    default:
      return true;
  }
}

/* Passes of the workers first to end - 1. */
static void choose(run *r, part of, int first, int end) {
  memset(r->only, 0, r->program->instruction_count);
  for (int w = first; w < end; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const plan_instruction *instruction = &r->program->instructions[i];
      r->only[i] = is_pass(instruction) && in_part(of, w, instruction);
    }
  }
}

/* Their optimizers. A device waits until the host has issued them: what comes first in its queue would else last until
 * that has. */
static void choose_optimizers(run *r, int first, int end) {
  memset(r->only, 0, r->program->instruction_count);
  for (int w = first; w < end; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
      r->only[i] = r->program->instructions[i].opcode == PLAN_OPTIMIZER_STEP;
  }
  r->pipeline->work.hold_s = 2e-3; /* more than it was seen to take */
}

/* ---- steps ---- */

static double span_s(const run *r, uint32_t i) { return r->pipeline->end_s[i] - r->pipeline->start_s[i]; }

/* The share of the other workers of a device that ran forwards over a time, on average, and what else. */
static void find_beside(const run *r, int worker, double from_s, double to_s, double beside[2]) {
  const int sharers = r->how->sharers;
  beside[0] = beside[1] = 0;
  if (sharers < 2 || to_s <= from_s) return;
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; w != worker && i < lane->first + lane->count; i++) {
      if (!r->only[i]) continue;
      const double together_s = fmin(to_s, r->pipeline->end_s[i]) - fmax(from_s, r->pipeline->start_s[i]);
      beside[!is_forward(&r->program->instructions[i])] += fmax(0, together_s) / (to_s - from_s) / (sharers - 1);
    }
  }
}

static dp_status read_mark(const run *r, int w, uint32_t number, double *at_s) {
  exec_worker *worker = &r->pipeline->workers[w];
  return worker->kind->read_mark(r->pipeline, worker, number, at_s, r->error);
}

static spans *bare_of(const run *r, part of, uint32_t i) {
  return &r->bare[(size_t)of * r->program->instruction_count + i];
}

static void keep_span(spans *s, double seconds, const double beside[2]) {
  if (s->count == MOST_ROUNDS) return;
  s->seconds[s->count] = seconds;
  for (int k = 0; k < 2; k++) s->beside[k][s->count] = beside ? beside[k] : 0;
  s->count++;
}

/* The unit that is the k-th to run. */
static uint32_t unit_of(const plan_work *work, plan_profile_pass pass, uint32_t k) {
  return pass == PLAN_PROFILE_FORWARD ? work->first_unit + k : work->first_unit + work->unit_count - 1 - k;
}

static dp_status keep_units(run *r, int w, uint32_t at) {
  const plan_instruction *instruction = &r->program->instructions[at];
  const plan_work *work = &r->program->works[instruction->class_id];
  const plan_profile_pass pass = pass_of(instruction);
  double before_s, after_s;
  DP_TRY(read_mark(r, w, r->marks[at], &before_s));
  const double first_s = before_s;
  for (uint32_t k = 0; k < work->unit_count; k++, before_s = after_s) {
    DP_TRY(read_mark(r, w, r->marks[at] + k + 1, &after_s));
    const pending p = {.row = r->row_of[unit_of(work, pass, k) * PLAN_PROFILE_PASS_COUNT + pass],
                       .worker = w,
                       .instruction = at,
                       .seconds = after_s - before_s};
    if (!dp_array_push(&r->pendings, p)) return dp_fail_memory(r->error);
  }
  keep_span(&r->fine[at], before_s - first_s, NULL);
  return DP_OK;
}

/* Of an instruction that another one is before: the first one of a queue lasts until the host has issued it. */
static dp_status keep_rest(run *r, uint32_t at, double between_s) {
  const plan_instruction *instruction = &r->program->instructions[at];
  const exec_units_role role = instruction->opcode != PLAN_FORWARD                       ? EXEC_UNITS_OTHER
                               : instruction->chunk == 0                                 ? EXEC_UNITS_FEEDS
                               : instruction->chunk == r->program->plan->chunk_count - 1 ? EXEC_UNITS_HAS_LOSS
                                                                                         : EXEC_UNITS_OTHER;
  if (at == compute_of(r, r->program->lanes[r->pipeline->lane_of[at]].worker)->first || !r->only[at - 1]) return DP_OK;
  return dp_array_push(&r->units->rests[role], span_s(r, at) - between_s) ? DP_OK : dp_fail_memory(r->error);
}

static dp_status keep_ends(run *r, int w, uint32_t at, part of) {
  const plan_work *work = &r->program->works[r->program->instructions[at].class_id];
  double first_s, last_s, beside[2];
  DP_TRY(read_mark(r, w, r->marks[at], &first_s));
  DP_TRY(read_mark(r, w, r->marks[at] + work->unit_count, &last_s));
  find_beside(r, w, first_s, last_s, beside);
  keep_span(bare_of(r, of, at), last_s - first_s, beside);
  return of == MIXED || r->how->sharers == 1 ? keep_rest(r, at, last_s - first_s) : DP_OK;
}

static dp_status keep_all(run *r, part of) {
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
      if (r->only[i]) DP_TRY(r->ends_only ? keep_ends(r, w, i, of) : keep_units(r, w, i));
  }
  return DP_OK;
}

static dp_status step_only(run *r) { return exec_pipeline_step_only(r->pipeline, &r->step, r->only, r->error); }

/* ---- what lies between instructions ---- */

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

/* The least of an instruction, in the middle of the workers: later ones may wait for room in the device's queues. */
static dp_status keep_issue(run *r) {
  const bool deferred = r->pipeline->work.kind->deferred; /* on the host an instruction is done when it is issued */
  for (int w = 0; w < r->program->worker_count; w++) {
    const exec_lane *lane = &r->pipeline->lanes[r->program->worker_lane[w]];
    if (!dp_array_push(&r->units->issues, deferred ? lane->least_issue_s : 0)) return dp_fail_memory(r->error);
  }
  return DP_OK;
}

/* Again and again, for so long, a few times at least. */
static dp_status take(run *r, part of, double seconds) {
  enum { LEAST_ROUNDS = 5 };
  const bool all = of == MIXED || r->how->sharers == 1;
  const double began_s = dp_clock_s();
  for (int i = 0; i < LEAST_ROUNDS || (i < MOST_ROUNDS && dp_clock_s() - began_s < seconds); i++) {
    for (uint32_t l = 0; l < r->program->lane_count; l++) r->pipeline->lanes[l].least_issue_s = 0;
    DP_TRY(step_only(r));
    DP_TRY(keep_all(r, of));
    if (!all || !r->ends_only) continue;
    DP_TRY(keep_gaps(r));
    DP_TRY(keep_issue(r));
  }
  return DP_OK;
}

static dp_status take_alone(run *r, double seconds) {
  const int workers = r->program->worker_count, sharers = r->how->sharers;
  const int together = sharers > 1 ? 1 : workers; /* those on devices of their own are alone all the same */
  for (int w = 0; w < workers; w += together) {
    choose(r, ALONE, w, w + together);
    DP_TRY(take(r, ALONE, seconds * together / workers));
  }
  return DP_OK;
}

static dp_status take_together(run *r, double seconds) {
  for (int p = FORWARDS; r->how->sharers > 1 && p < PARTS; p++) {
    choose(r, (part)p, 0, r->program->worker_count);
    DP_TRY(take(r, (part)p, seconds / (PARTS - FORWARDS)));
  }
  return DP_OK;
}

/* ---- what becomes of them ---- */

static bool is_aside(const spans *s, int round) { return s->count >= LEAST && round % ASIDE == ASIDE - 1; }

/* The middle of what is not kept aside. */
static double middle(const spans *s, const double *values) {
  double kept[MOST_ROUNDS];
  size_t count = 0;
  for (int i = 0; i < s->count; i++)
    if (!is_aside(s, i)) kept[count++] = values[i];
  return dp_median(kept, count);
}

/* Instructions of a worker that do the same work: of each microbatch; but the first one overwrites gradients. */
static bool are_alike(const run *r, int w, uint32_t a, uint32_t b) {
  const plan_instruction *x = &r->program->instructions[a], *y = &r->program->instructions[b];
  return x->class_id == y->class_id && is_first(r, w, x) == is_first(r, w, y);
}

/* How much slower an instruction is beside others, from all that are like it. */
static dp_status find_slowness(run *r, int w, uint32_t at, exec_units_slowness *slowness) {
  const plan_lane *lane = compute_of(r, w);
  exec_units_points points = {0};
  dp_status status = DP_OK;
  *slowness = (exec_units_slowness){.by = {0, 0}};
  for (int p = FORWARDS; p < PARTS; p++)
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const spans *alone = bare_of(r, ALONE, i), *s = bare_of(r, (part)p, i);
      if (s->count == 0 || alone->count == 0 || !are_alike(r, w, at, i)) continue;
      const exec_units_point point = {.more = middle(s, s->seconds) / fmax(1e-9, middle(alone, alone->seconds)) - 1,
                                      .beside = {middle(s, s->beside[0]), middle(s, s->beside[1])}};
      if (!dp_array_push(&points, point)) status = dp_fail_memory(r->error);
    }
  if (status == DP_OK) exec_units_slow(points.items, points.count, slowness);
  dp_array_free(&points);
  return status;
}

/* What was kept aside against what the others say of it, and how far two runs of the same differ. */
static dp_status look(run *r, uint32_t at, const exec_units_slowness *slowness) {
  const spans *alone = bare_of(r, ALONE, at);
  const double alone_s = middle(alone, alone->seconds);
  for (int p = ALONE; p < PARTS; p++) {
    const spans *s = bare_of(r, (part)p, at);
    for (int i = 0; i < s->count; i++) {
      const double beside[2] = {s->beside[0][i], s->beside[1][i]};
      const double foretold_s = alone_s * exec_units_slowed(slowness, beside);
      if (s->seconds[i] <= 0) continue;
      if (is_aside(s, i) && !dp_array_push(&r->units->errors, fabs(foretold_s / s->seconds[i] - 1)))
        return dp_fail_memory(r->error);
      if (i > 0 && !dp_array_push(&r->units->repeats, fabs(s->seconds[i - 1] / s->seconds[i] - 1)))
        return dp_fail_memory(r->error);
    }
  }
  return DP_OK;
}

/* A mark takes time itself: units take their share of what an instruction takes without those between them; and all of
 * its units are slowed as it is. */
static dp_status keep_samples(run *r) {
  const double least = 0.5, most = 1.1;
  exec_units_slowness *slowness = DP_ARENA_NEW(&r->arena, exec_units_slowness, r->program->instruction_count);
  if (!slowness) return dp_fail_memory(r->error);
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      if (bare_of(r, ALONE, i)->count == 0) continue;
      DP_TRY(find_slowness(r, w, i, &slowness[i]));
      DP_TRY(look(r, i, &slowness[i]));
    }
  }
  for (size_t i = 0; i < r->pendings.count; i++) {
    const pending *p = &r->pendings.items[i];
    const spans *fine = &r->fine[p->instruction], *bare = bare_of(r, ALONE, p->instruction);
    const double factor = middle(bare, bare->seconds) / fmax(1e-9, middle(fine, fine->seconds));
    const exec_units_sample sample = {.seconds = p->seconds * fmin(most, fmax(least, factor)),
                                      .slowness = slowness[p->instruction],
                                      .making = r->making};
    const bool first = is_first(r, p->worker, &r->program->instructions[p->instruction]);
    DP_TRY(exec_units_keep(r->units, p->row, first, &sample, r->error));
  }
  return DP_OK;
}

static void tell_ends_only(run *r) {
  r->ends_only = true;
  for (int w = 0; w < r->program->worker_count; w++) {
    exec_worker *worker = &r->pipeline->workers[w];
    worker->mark_ends = true;
    if (worker->kind->forget) worker->kind->forget(worker);
  }
}

static dp_status take_units(run *r, double seconds) {
  DP_TRY(take_alone(r, seconds * 0.3));
  tell_ends_only(r);
  choose(r, MIXED, 0, r->program->worker_count);
  DP_TRY(step_only(r)); /* what is recorded anew takes longer */
  DP_TRY(take_alone(r, seconds * 0.2));
  DP_TRY(take_together(r, seconds * 0.5));
  if (r->pipeline->work.kind->deferred) r->units->clock_hz = exec_machine_clock_hz(0);
  return keep_samples(r);
}

/* ---- the optimizer ---- */

static dp_status keep_optimizers(run *r, bool all) {
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      if (!r->only[i]) continue;
      double beside[2];
      find_beside(r, w, r->pipeline->start_s[i], r->pipeline->end_s[i], beside);
      const exec_units_optimizer one = {.sms = r->how->sms,
                                        .parameters = (double)r->pipeline->workers[w].parameters.trained_count,
                                        .seconds = span_s(r, i),
                                        .crowd = beside[0] + beside[1],
                                        .all = all && r->how->sharers > 1,
                                        .with_norm = r->pipeline->work.with_norm};
      if (one.parameters > 0 && !dp_array_push(&r->units->optimizers, one)) return dp_fail_memory(r->error);
    }
  }
  return DP_OK;
}

/* Each on its own, with the norm and without; and all together. */
static dp_status take_optimizers(run *r) {
  enum { TIMES = 3 };
  const int workers = r->program->worker_count, together = r->how->sharers > 1 ? 1 : workers;
  for (int i = 0; i <= TIMES; i++) /* the first is not kept: what is new takes longer */
    for (int with_norm = 0; with_norm < 2; with_norm++) {
      r->pipeline->work.with_norm = with_norm;
      for (int w = 0; w < workers; w += together) {
        choose_optimizers(r, w, w + together);
        DP_TRY(step_only(r));
        if (i > 0) DP_TRY(keep_optimizers(r, false));
      }
      if (together == workers || with_norm) continue;
      choose_optimizers(r, 0, workers);
      DP_TRY(step_only(r));
      if (i > 0) DP_TRY(keep_optimizers(r, true));
    }
  r->pipeline->work.with_norm = false;
  r->pipeline->work.hold_s = 0;
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

/* A whole step, from without: what it takes before its first instruction starts and after its last has ended. */
static dp_status take_steps(run *r) {
  enum { TIMES = 2 };
  const plan_program *program = r->program;
  forget_marks(r);
  DP_TRY(exec_pipeline_step_only(r->pipeline, &r->step, NULL, r->error)); /* what is recorded anew takes longer */
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

static dp_status compute(void *data, int worker, double *seconds, dp_error *error) {
  run *r = data;
  DP_TRY(exec_pipeline_step_only(r->pipeline, &r->step, r->only, error));
  *seconds = 0;
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = compute_of(r, w);
    for (uint32_t i = lane->first; (worker < 0 || w == worker) && i < lane->first + lane->count; i++)
      if (r->only[i]) *seconds += span_s(r, i);
  }
  return DP_OK;
}

/* The same whatever is computed beside: once. */
static dp_status take_links(run *r) {
  if (r->units->links.measured) return DP_OK;
  choose(r, MIXED, 0, r->program->worker_count);
  return exec_units_measure_links(&r->units->links, r->pipeline, r->how->sharers == 1, r->how->nccl, compute, r,
                                  r->error);
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
  r->fine = DP_ARENA_NEW(&r->arena, spans, n);
  r->bare = DP_ARENA_NEW(&r->arena, spans, PARTS * (size_t)n);
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
  DP_TRY(worker->kind->read_mark(r->pipeline, worker, r->marks[compute_of(r, 0)->first], &at_s, r->error));
  r->began = true;
  DP_TRY(keep_runtime(r));
  DP_TRY(take_units(r, r->how->seconds));
  DP_TRY(take_optimizers(r));
  DP_TRY(take_steps(r));
  DP_TRY(take_links(r));
  return exec_units_end_run(r->units, r->error);
}

/* What all instructions take together while all compute. */
static double together_s(const run *r) {
  double sum = 0;
  for (uint32_t i = 0; r->bare && i < r->program->instruction_count; i++) {
    const spans *s = bare_of(r, MIXED, i);
    sum += middle(s, s->seconds);
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
  run r = {.units = units, .how = how, .program = how->program, .unrecorded = unrecorded, .error = error};
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
