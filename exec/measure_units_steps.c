/* Steps of a program that do only some of it, and what is kept of them as they end. */
#include "exec/measure_units_run.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "exec/machine.h"

/* ---- which instructions ---- */

static plan_profile_pass pass_of(const plan_instruction *i) {
  return i->opcode == PLAN_FORWARD          ? PLAN_PROFILE_FORWARD
         : i->opcode == PLAN_BACKWARD       ? PLAN_PROFILE_BACKWARD
         : i->opcode == PLAN_BACKWARD_INPUT ? PLAN_PROFILE_BACKWARD_INPUT
                                            : PLAN_PROFILE_BACKWARD_WEIGHT;
}

bool exec_units_is_first(const exec_units_job *r, int w, const plan_instruction *i) {
  const exec_worker *worker = &r->pipeline->workers[w];
  return i->opcode != PLAN_FORWARD && i->opcode != PLAN_BACKWARD_INPUT && worker->first_microbatch &&
         worker->first_microbatch[i->chunk] == (int)i->microbatch;
}

static bool is_forward(const plan_instruction *i) { return i->opcode == PLAN_FORWARD; }

static bool is_chosen(exec_units_play of, int w, const plan_instruction *i) {
  if (of == EXEC_UNITS_OPTIMIZERS) return i->opcode == PLAN_OPTIMIZER_STEP;
  if (!exec_units_is_pass(i)) return false;
  switch (of) {
    case EXEC_UNITS_FORWARDS:
      return is_forward(i);
    case EXEC_UNITS_BACKWARDS:
      return !is_forward(i);
    case EXEC_UNITS_EVEN_FORWARD:
    case EXEC_UNITS_ODD_FORWARD:
      return is_forward(i) == (w % 2 == (of == EXEC_UNITS_ODD_FORWARD));
    default:
      return true;
  }
}

void exec_units_choose(exec_units_job *r, exec_units_play of, int first, int end) {
  memset(r->only, 0, r->program->instruction_count);
  for (int w = first; w < end; w++) {
    const plan_lane *lane = exec_units_compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
      r->only[i] = is_chosen(of, w, &r->program->instructions[i]);
  }
}

/* ---- steps ---- */

/* The share of the other workers of a device that ran forwards over a time, on average, and what else. */
static void find_beside(const exec_units_job *r, int worker, double from_s, double to_s, double beside[2]) {
  const int sharers = r->how->sharers;
  beside[0] = beside[1] = 0;
  if (sharers < 2 || to_s <= from_s) return;
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = exec_units_compute_of(r, w);
    for (uint32_t i = lane->first; w != worker && i < lane->first + lane->count; i++) {
      if (!r->only[i]) continue;
      const double together_s = fmin(to_s, r->pipeline->end_s[i]) - fmax(from_s, r->pipeline->start_s[i]);
      beside[!is_forward(&r->program->instructions[i])] += fmax(0, together_s) / (to_s - from_s) / (sharers - 1);
    }
  }
}

static dp_status read_mark(const exec_units_job *r, int w, uint32_t number, double *at_s) {
  exec_worker *worker = &r->pipeline->workers[w];
  return worker->kind->read_mark(r->pipeline, worker, number, at_s, r->error);
}

static void keep_span(exec_units_spans *s, double seconds, const double beside[2]) {
  if (s->count == EXEC_UNITS_MOST_ROUNDS) return;
  s->seconds[s->count] = seconds;
  for (int k = 0; k < 2; k++) s->beside[k][s->count] = beside ? beside[k] : 0;
  s->count++;
}

/* The unit that is the k-th to run. */
static uint32_t unit_of(const plan_work *work, plan_profile_pass pass, uint32_t k) {
  return pass == PLAN_PROFILE_FORWARD ? work->first_unit + k : work->first_unit + work->unit_count - 1 - k;
}

static dp_status keep_units(exec_units_job *r, int w, uint32_t at) {
  const plan_instruction *instruction = &r->program->instructions[at];
  const plan_work *work = &r->program->works[instruction->class_id];
  const plan_profile_pass pass = pass_of(instruction);
  double before_s, after_s;
  DP_TRY(read_mark(r, w, r->marks[at], &before_s));
  const double first_s = before_s;
  for (uint32_t k = 0; k < work->unit_count; k++, before_s = after_s) {
    DP_TRY(read_mark(r, w, r->marks[at] + k + 1, &after_s));
    const exec_units_pending p = {.row = r->row_of[unit_of(work, pass, k) * PLAN_PROFILE_PASS_COUNT + pass],
                                  .worker = w,
                                  .instruction = at,
                                  .seconds = after_s - before_s};
    if (!dp_array_push(&r->pendings, p)) return dp_fail_memory(r->error);
  }
  keep_span(&r->fine[at], before_s - first_s, NULL);
  return DP_OK;
}

/* Of an instruction that another one is before: the first one of a queue lasts until the host has issued it. */
static dp_status keep_rest(exec_units_job *r, uint32_t at, double between_s) {
  const plan_instruction *instruction = &r->program->instructions[at];
  const exec_units_role role = instruction->opcode != PLAN_FORWARD                       ? EXEC_UNITS_OTHER
                               : instruction->chunk == 0                                 ? EXEC_UNITS_FEEDS
                               : instruction->chunk == r->program->plan->chunk_count - 1 ? EXEC_UNITS_HAS_LOSS
                                                                                         : EXEC_UNITS_OTHER;
  if (at == exec_units_compute_of(r, r->program->lanes[r->pipeline->lane_of[at]].worker)->first || !r->only[at - 1])
    return DP_OK;
  return dp_array_push(&r->units->rests[role], exec_units_span_s(r, at) - between_s) ? DP_OK : dp_fail_memory(r->error);
}

static dp_status keep_ends(exec_units_job *r, int w, uint32_t at, exec_units_play of) {
  const plan_work *work = &r->program->works[r->program->instructions[at].class_id];
  double first_s, last_s, beside[2];
  DP_TRY(read_mark(r, w, r->marks[at], &first_s));
  DP_TRY(read_mark(r, w, r->marks[at] + work->unit_count, &last_s));
  find_beside(r, w, first_s, last_s, beside);
  keep_span(exec_units_bare_of(r, of, at), last_s - first_s, beside);
  return of == EXEC_UNITS_MIXED || r->how->sharers == 1 ? keep_rest(r, at, last_s - first_s) : DP_OK;
}

static dp_status keep_all(exec_units_job *r, exec_units_play of) {
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = exec_units_compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
      if (r->only[i]) DP_TRY(r->ends_only ? keep_ends(r, w, i, of) : keep_units(r, w, i));
  }
  return DP_OK;
}

static dp_status step_only(exec_units_job *r) {
  return exec_pipeline_step_only(r->pipeline, &r->step, r->only, r->error);
}

/* ---- what lies between instructions ---- */

static bool receives(const exec_units_job *r, uint32_t i) {
  for (uint32_t w = r->program->wait_first[i]; w < r->program->wait_first[i + 1]; w++)
    if (r->program->instructions[r->program->waits[w]].opcode == PLAN_RECV) return true;
  return false;
}

static dp_status keep_gaps(exec_units_job *r) {
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = exec_units_compute_of(r, w);
    for (uint32_t i = lane->first + 1; i < lane->first + lane->count; i++)
      if (r->only[i - 1] && r->only[i] && !receives(r, i) &&
          !dp_array_push(&r->units->gaps, r->pipeline->start_s[i] - r->pipeline->end_s[i - 1]))
        return dp_fail_memory(r->error);
  }
  return DP_OK;
}

/* The least of an instruction, in the middle of the workers: later ones may wait for room in the device's queues. */
static dp_status keep_issue(exec_units_job *r) {
  const bool deferred = r->pipeline->work.kind->deferred; /* on the host an instruction is done when it is issued */
  for (int w = 0; w < r->program->worker_count; w++) {
    const exec_lane *lane = &r->pipeline->lanes[r->program->worker_lane[w]];
    if (!dp_array_push(&r->units->issues, deferred ? lane->least_issue_s : 0)) return dp_fail_memory(r->error);
  }
  return DP_OK;
}

/* Again and again, for so long, a few times at least. */
static dp_status take(exec_units_job *r, exec_units_play of, double seconds) {
  enum { LEAST_ROUNDS = 5 };
  const bool all = of == EXEC_UNITS_MIXED || r->how->sharers == 1;
  const double began_s = dp_clock_s();
  for (int i = 0; i < LEAST_ROUNDS || (i < EXEC_UNITS_MOST_ROUNDS && dp_clock_s() - began_s < seconds); i++) {
    for (uint32_t l = 0; l < r->program->lane_count; l++) r->pipeline->lanes[l].least_issue_s = 0;
    DP_TRY(step_only(r));
    DP_TRY(keep_all(r, of));
    if (!all || !r->ends_only) continue;
    DP_TRY(keep_gaps(r));
    DP_TRY(keep_issue(r));
  }
  return DP_OK;
}

static dp_status take_alone(exec_units_job *r, double seconds) {
  const int workers = r->program->worker_count, sharers = r->how->sharers;
  const int together = sharers > 1 ? 1 : workers; /* those on devices of their own are alone all the same */
  for (int w = 0; w < workers; w += together) {
    exec_units_choose(r, EXEC_UNITS_ALONE, w, w + together);
    DP_TRY(take(r, EXEC_UNITS_ALONE, seconds * together / workers));
  }
  return DP_OK;
}

static dp_status take_together(exec_units_job *r, double seconds) {
  for (int p = EXEC_UNITS_FORWARDS; r->how->sharers > 1 && p < EXEC_UNITS_PLAYS; p++) {
    exec_units_choose(r, (exec_units_play)p, 0, r->program->worker_count);
    DP_TRY(take(r, (exec_units_play)p, seconds / (EXEC_UNITS_PLAYS - EXEC_UNITS_FORWARDS)));
  }
  return DP_OK;
}

static void tell_ends_only(exec_units_job *r) {
  r->ends_only = true;
  for (int w = 0; w < r->program->worker_count; w++) {
    exec_worker *worker = &r->pipeline->workers[w];
    worker->mark_ends = true;
    if (worker->kind->forget) worker->kind->forget(worker);
  }
}

dp_status exec_units_take_units(exec_units_job *r, double seconds) {
  DP_TRY(take_alone(r, seconds * 0.3));
  tell_ends_only(r);
  exec_units_choose(r, EXEC_UNITS_MIXED, 0, r->program->worker_count);
  DP_TRY(step_only(r)); /* what is recorded anew takes longer */
  DP_TRY(take_alone(r, seconds * 0.2));
  DP_TRY(take_together(r, seconds * 0.5));
  if (r->pipeline->work.kind->deferred) r->units->clock_hz = exec_machine_clock_hz(0);
  return exec_units_keep_samples(r);
}

/* ---- the optimizer ---- */

static dp_status keep_optimizers(exec_units_job *r, bool all) {
  r->units->rounds++;
  for (int w = 0; w < r->program->worker_count; w++) {
    const plan_lane *lane = exec_units_compute_of(r, w);
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      if (!r->only[i]) continue;
      const exec_units_optimizer one = {.sms = r->how->sms,
                                        .parameters = (double)r->pipeline->workers[w].parameters.trained_count,
                                        .seconds = exec_units_span_s(r, i),
                                        .all = all && r->how->sharers > 1,
                                        .with_norm = r->pipeline->work.with_norm,
                                        .round = r->units->rounds};
      if (one.parameters > 0 && !dp_array_push(&r->units->optimizers, one)) return dp_fail_memory(r->error);
    }
  }
  return DP_OK;
}

/* Each on its own, with the norm and without; and all together. A device waits until the host has issued them: what comes
 * first in its queue would else last until that has. */
dp_status exec_units_take_optimizers(exec_units_job *r) {
  enum { TIMES = 3 };
  const int workers = r->program->worker_count, together = r->how->sharers > 1 ? 1 : workers;
  r->pipeline->work.hold_s = 2e-3; /* more than it was seen to take */
  for (int i = 0; i <= TIMES; i++) /* the first is not kept: what is new takes longer */
    for (int with_norm = 0; with_norm < 2; with_norm++) {
      r->pipeline->work.with_norm = with_norm;
      for (int w = 0; w < workers; w += together) {
        exec_units_choose(r, EXEC_UNITS_OPTIMIZERS, w, w + together);
        DP_TRY(step_only(r));
        if (i > 0) DP_TRY(keep_optimizers(r, false));
      }
      if (together == workers || with_norm) continue;
      exec_units_choose(r, EXEC_UNITS_OPTIMIZERS, 0, workers);
      DP_TRY(step_only(r));
      if (i > 0) DP_TRY(keep_optimizers(r, true));
    }
  r->pipeline->work.with_norm = false;
  r->pipeline->work.hold_s = 0;
  return DP_OK;
}

static void forget_marks(exec_units_job *r) {
  for (int w = 0; w < r->program->worker_count; w++) {
    exec_worker *worker = &r->pipeline->workers[w];
    worker->mark_first = NULL;
    worker->unrecorded = false;
    if (worker->kind->forget) worker->kind->forget(worker);
  }
}

/* A whole step, from without: what it takes before its first instruction starts and after its last has ended. */
dp_status exec_units_take_steps(exec_units_job *r) {
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
      const plan_lane *lane = exec_units_compute_of(r, w);
      for (uint32_t k = lane->first; k < lane->first + lane->count; k++) {
        first_s = fmin(first_s, r->pipeline->start_s[k]);
        last_s = fmax(last_s, r->pipeline->end_s[k]);
      }
    }
    if (!dp_array_push(&r->units->begins, wall_s - (last_s - first_s))) return dp_fail_memory(r->error);
  }
  return DP_OK;
}
