#define _POSIX_C_SOURCE 200809L
#include "exec/lanes.h"

#include <string.h>

#include "base/clock.h"
#include "base/condition.h"
#include "exec/stall.h"

/* ---- waiting: the lock is held ---- */

static bool stopped(exec_pipeline *p) { return atomic_load(&p->stop); }

static void wait_change(exec_pipeline *p, exec_lane *lane) {
  if (p->work.options.transport)
    dp_condition_wait(&lane->changed, &p->lock, EXEC_LOOK_S); /* whether the step goes on */
  else
    (void)pthread_cond_wait(&lane->changed, &p->lock);
}

static void wake(exec_pipeline *p, uint32_t lane) {
  if (lane >= p->first_lane && lane < p->end_lane) (void)pthread_cond_signal(&p->lanes[lane].changed);
}

static void wake_all(exec_pipeline *p) {
  for (uint32_t l = p->first_lane; l < p->end_lane; l++) wake(p, l);
}

static void give_up(exec_pipeline *p, const dp_error *why) {
  if (!atomic_exchange(&p->stop, true)) p->trouble = *why;
  wake_all(p);
}

static void finish(exec_pipeline *p, uint32_t i, double start_s, double end_s) {
  p->start_s[i] = start_s;
  p->end_s[i] = end_s;
  p->done[i] = 1;
  p->moved_s = end_s;
  wake(p, p->lane_of[i]);
  for (uint32_t d = p->dependent_first[i]; d < p->dependent_first[i + 1]; d++) wake(p, p->lane_of[p->dependents[d]]);
}

static bool may_start(const exec_pipeline *p, uint32_t i) {
  const plan_program *program = p->work.program;
  for (uint32_t w = program->wait_first[i]; w < program->wait_first[i + 1]; w++)
    if (!p->done[program->waits[w]]) return false;
  return true;
}

/* ---- how an instruction is done ---- */

typedef enum part {
  PART_COMPUTE,
  PART_TRANSFER, /* the receiver, for both ends */
  PART_SEND,     /* to another process */
  PART_RECEIVE,  /* from another */
  PART_LEAD,     /* the first member of a group, or of those of it that are here, for all of this process */
  PART_FOLLOW,   /* the first member is elsewhere, and each goes to it alone */
  PART_REST      /* another lane of this process does it */
} part;

static part part_of(const exec_pipeline *p, const plan_lane *lane, uint32_t i) {
  if (lane->kind == PLAN_LANE_COMPUTE) return PART_COMPUTE;
  if (lane->kind == PLAN_LANE_COLLECTIVE) {
    const plan_collective *collective = &p->work.program->collectives[p->work.program->instructions[i].class_id];
    const uint32_t *members = &p->work.program->group_members[collective->first_member];
    if (!p->work.kind->deferred && !exec_is_here(p, members[0])) return PART_FOLLOW;
    return exec_first_here(p, collective) == lane->worker ? PART_LEAD : PART_REST;
  }
  const bool here = exec_is_here(p, lane->peer);
  if (lane->kind == PLAN_LANE_SEND) return here ? PART_REST : PART_SEND;
  return here ? PART_TRANSFER : PART_RECEIVE;
}

bool exec_is_done_by_others(const exec_pipeline *p, uint32_t lane) {
  const plan_lane *of = &p->work.program->lanes[lane];
  for (uint32_t i = of->first; i < of->first + of->count; i++)
    if (part_of(p, of, i) != PART_REST) return false;
  return true;
}

uint32_t exec_first_here(const exec_pipeline *p, const plan_collective *collective) {
  const uint32_t *members = &p->work.program->group_members[collective->first_member];
  for (uint32_t m = 0; m < collective->member_count; m++)
    if (exec_is_here(p, members[m])) return members[m];
  return UINT32_MAX;
}

/* The lane of that one. */
static uint32_t lead_lane(const exec_pipeline *p, uint32_t group) {
  for (uint32_t m = p->groups.first[group]; m < p->groups.first[group + 1]; m++) {
    const uint32_t lane = p->lane_of[p->groups.ids[m]];
    if (exec_is_here(p, p->work.program->lanes[lane].worker)) return lane;
  }
  return UINT32_MAX;
}

/* Members of the group that are in this process. */
static uint32_t members_here(const exec_pipeline *p, uint32_t group) {
  uint32_t count = 0;
  for (uint32_t m = p->groups.first[group]; m < p->groups.first[group + 1]; m++)
    count += exec_is_here(p, p->work.program->lanes[p->lane_of[p->groups.ids[m]]].worker);
  return count;
}

/* This end is ready; waits until the ends that it needs are, or for all of it where another lane does it. Each member's
 * square is taken while its compute lane sleeps: what waits for the norm is the optimizer step alone. */
static void meet(exec_pipeline *p, exec_lane *lane, part how, uint32_t i) {
  const plan_program *program = p->work.program;
  const uint32_t peer = program->instructions[i].peer;
  p->ready[i] = 1;
  if (how == PART_LEAD || how == PART_REST) {
    const plan_lane *of = &program->lanes[lane->lane];
    if (of->kind == PLAN_LANE_COLLECTIVE) {
      p->group_ready[peer]++;
      wake(p, lead_lane(p, peer));
    } else {
      wake(p, p->lane_of[peer]);
    }
  }
  if (how == PART_REST)
    while (!p->done[i] && !stopped(p)) wait_change(p, lane);
  if (how == PART_TRANSFER)
    while (!p->ready[peer] && !stopped(p)) wait_change(p, lane);
  if (how == PART_LEAD)
    while (p->group_ready[peer] < members_here(p, peer) && !stopped(p)) wait_change(p, lane);
}

static dp_status work_on(exec_pipeline *p, part how, uint32_t worker, uint32_t i, dp_error *error) {
  switch (how) {
    case PART_COMPUTE:
      exec_worker_run(&p->work, &p->workers[worker], i);
      return DP_OK;
    case PART_TRANSFER:
      exec_transfer(p, i);
      return DP_OK;
    case PART_SEND:
      return exec_send(p, i, error);
    case PART_RECEIVE:
      return exec_receive(p, i, error);
    case PART_LEAD:
      return exec_reduce_lead(p, i, error);
    default:
      return exec_reduce_follow(p, i, error);
  }
}

static void finish_all(exec_pipeline *p, part how, uint32_t i, double start_s) {
  const plan_program *program = p->work.program;
  const uint32_t peer = program->instructions[i].peer;
  const double end_s = dp_clock_s();
  if (how == PART_TRANSFER) finish(p, peer, start_s, end_s);
  for (uint32_t m = how == PART_LEAD ? p->groups.first[peer] : UINT32_MAX;
       how == PART_LEAD && m < p->groups.first[peer + 1]; m++)
    if (p->groups.ids[m] != i && exec_is_here(p, program->lanes[p->lane_of[p->groups.ids[m]]].worker))
      finish(p, p->groups.ids[m], start_s, end_s);
  finish(p, i, start_s, end_s);
}

/* The square of this member's gradients, before it meets the others. */
static void prepare(exec_pipeline *p, const plan_lane *lane, uint32_t i) {
  const plan_program *program = p->work.program;
  if (lane->kind == PLAN_LANE_COLLECTIVE && program->collectives[program->instructions[i].class_id].norm &&
      !p->work.step->evaluate)
    p->work.kind->norm(&p->workers[lane->worker]);
}

/* Of a step that does only some: by itself. */
static void run_alone(exec_pipeline *p, exec_lane *self, const plan_lane *lane, uint32_t i) {
  const plan_program *program = p->work.program;
  dp_error error = DP_ERROR_INIT;
  if (lane->kind != PLAN_LANE_COMPUTE || !p->work.only[i]) return;
  for (uint32_t w = program->wait_first[i]; w < program->wait_first[i + 1]; w++)
    if (program->instructions[program->waits[w]].opcode == PLAN_RECV) exec_transfer_nothing(p, program->waits[w]);
  const double start_s = dp_clock_s();
  if (p->work.kind->deferred) p->work.kind->enter(p, self->lane, i);
  exec_worker_run(&p->work, &p->workers[lane->worker], i);
  const dp_status status = p->work.kind->deferred ? p->work.kind->leave(p, self->lane, i, &error) : DP_OK;
  p->start_s[i] = start_s;
  p->end_s[i] = dp_clock_s();
  const double issue_s = p->end_s[i] - start_s;
  if (self->least_issue_s == 0 || issue_s < self->least_issue_s) self->least_issue_s = issue_s;
  if (status == DP_OK) return;
  (void)pthread_mutex_lock(&p->lock);
  give_up(p, &error);
  (void)pthread_mutex_unlock(&p->lock);
}

static void tell_witness(const exec_pipeline *p, uint32_t i, bool begins) {
  const exec_witness *witness = p->work.options.witness;
  if (witness) witness->note(witness->data, p->work.program, i, begins);
}

static void run_instruction(exec_pipeline *p, exec_lane *self, const plan_lane *lane, uint32_t i) {
  if (p->work.only) {
    run_alone(p, self, lane, i);
    return;
  }
  const part how = part_of(p, lane, i);
  dp_error error = DP_ERROR_INIT;
  (void)pthread_mutex_lock(&p->lock);
  while (!may_start(p, i) && !stopped(p)) wait_change(p, self);
  (void)pthread_mutex_unlock(&p->lock);
  if (stopped(p)) return;
  if (!p->work.kind->deferred) prepare(p, lane, i);
  (void)pthread_mutex_lock(&p->lock);
  meet(p, self, how, i);
  if (how != PART_REST) self->at = i;
  (void)pthread_mutex_unlock(&p->lock);
  if (how == PART_REST || stopped(p)) return;
  if (how == PART_COMPUTE) atomic_store_explicit(&p->position, i, memory_order_relaxed);
  const double start_s = dp_clock_s();
  tell_witness(p, i, true);
  if (p->work.kind->deferred) p->work.kind->enter(p, self->lane, i);
  dp_status status = work_on(p, how, lane->worker, i, &error);
  if (p->work.kind->deferred && status == DP_OK) status = p->work.kind->leave(p, self->lane, i, &error);
  tell_witness(p, i, false);
  (void)pthread_mutex_lock(&p->lock);
  self->at = PLAN_NO_PEER;
  if (status == DP_OK)
    finish_all(p, how, i, start_s);
  else
    give_up(p, &error);
  (void)pthread_mutex_unlock(&p->lock);
}

/* ---- threads ---- */

static void *run_lane(void *data) {
  exec_lane *self = data;
  exec_pipeline *p = self->pipeline;
  const plan_lane *lane = &p->work.program->lanes[self->lane];
  uint64_t seen = 0;
  (void)pthread_mutex_lock(&p->lock);
  for (;;) {
    while (p->generation == seen && !p->quit) (void)pthread_cond_wait(&self->changed, &p->lock);
    if (p->quit) break;
    seen = p->generation;
    (void)pthread_mutex_unlock(&p->lock);
    for (uint32_t i = lane->first; i < lane->first + lane->count && !stopped(p); i++) run_instruction(p, self, lane, i);
    (void)pthread_mutex_lock(&p->lock);
    if (--p->running == 0) (void)pthread_cond_signal(&p->all_done);
  }
  (void)pthread_mutex_unlock(&p->lock);
  return NULL;
}

dp_status exec_lanes_start(exec_pipeline *p, dp_error *error) {
  if (pthread_mutex_init(&p->lock, NULL) != 0) return dp_fail(error, DP_UNSUPPORTED, "the system gives no more locks");
  const dp_status status = dp_condition_init(&p->all_done, error);
  if (status != DP_OK) {
    (void)pthread_mutex_destroy(&p->lock);
    return status;
  }
  p->has_locks = true;
  for (uint32_t l = p->first_lane; l < p->end_lane; l++) {
    exec_lane *lane = &p->lanes[l];
    lane->pipeline = p;
    lane->lane = l;
    lane->at = PLAN_NO_PEER;
    DP_TRY(dp_condition_init(&lane->changed, error));
    lane->has_condition = true;
  }
  for (uint32_t l = p->first_lane; l < p->end_lane; l++) {
    exec_lane *lane = &p->lanes[l];
    lane->has_thread = pthread_create(&lane->thread, NULL, run_lane, lane) == 0;
    if (!lane->has_thread)
      return dp_fail(error, DP_UNSUPPORTED, "the system gives %u threads, needed: %u, one a lane", l - p->first_lane,
                     p->end_lane - p->first_lane);
  }
  return DP_OK;
}

void exec_lanes_stop(exec_pipeline *p) {
  if (!p->has_locks) return;
  (void)pthread_mutex_lock(&p->lock);
  p->quit = true;
  for (uint32_t l = p->first_lane; l < p->end_lane; l++)
    if (p->lanes[l].has_condition) (void)pthread_cond_signal(&p->lanes[l].changed);
  (void)pthread_mutex_unlock(&p->lock);
  for (uint32_t l = p->first_lane; l < p->end_lane; l++)
    if (p->lanes[l].has_thread) (void)pthread_join(p->lanes[l].thread, NULL);
  for (uint32_t l = p->first_lane; l < p->end_lane; l++)
    if (p->lanes[l].has_condition) (void)pthread_cond_destroy(&p->lanes[l].changed);
  (void)pthread_cond_destroy(&p->all_done);
  (void)pthread_mutex_destroy(&p->lock);
  p->has_locks = false;
}

/* On devices something else than a lane may find that the step cannot end. */
static void wait_lanes(exec_pipeline *p) {
  dp_error why = DP_ERROR_INIT;
  if (!p->work.kind->deferred) {
    (void)pthread_cond_wait(&p->all_done, &p->lock);
    return;
  }
  dp_condition_wait(&p->all_done, &p->lock, EXEC_LOOK_S);
  if (p->running == 0 || stopped(p)) return;
  (void)pthread_mutex_unlock(&p->lock);
  const dp_status status = exec_stall_look(p, &why);
  (void)pthread_mutex_lock(&p->lock);
  if (status != DP_OK) give_up(p, &why);
}

/* Lanes see within milliseconds that a step has been stopped, but for one in a call of a driver that waits for a device;
 * the first time it is asked is when that began. */
static bool is_left(exec_pipeline *p, double *since_s) {
  enum { LEAVE_S = 1 };
  if (!p->work.kind->deferred || !stopped(p)) return false;
  if (*since_s == 0) *since_s = dp_clock_s();
  return dp_clock_s() - *since_s > LEAVE_S;
}

dp_status exec_lanes_step(exec_pipeline *p, dp_error *error) {
  const uint32_t n = p->work.program->instruction_count;
  double stopped_s = 0;
  (void)pthread_mutex_lock(&p->lock);
  memset(p->done, 0, n);
  memset(p->ready, 0, n);
  memset(p->group_ready, 0, p->work.program->group_count * sizeof *p->group_ready);
  atomic_store(&p->stop, false);
  atomic_store(&p->position, PLAN_NO_PEER);
  p->trouble = (dp_error)DP_ERROR_INIT;
  p->running = p->end_lane - p->first_lane;
  p->generation++;
  wake_all(p);
  p->moved_s = p->looked_s = dp_clock_s();
  while (p->running > 0 && !is_left(p, &stopped_s)) wait_lanes(p);
  p->left = p->running > 0;
  (void)pthread_mutex_unlock(&p->lock);
  if (!stopped(p)) return DP_OK;
  return dp_fail(error, p->trouble.status, "%s", p->trouble.text);
}
