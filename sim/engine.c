#include "sim/engine.h"

#include <string.h>

#include "base/str.h"
#include "sim/engine_state.h"

static bool is_done(const sim_engine *e, uint32_t instruction) {
  return e->done[instruction / 64] >> instruction % 64 & 1;
}

static const plan_instruction *head_of(const sim_engine *e, const sim_lane *lane) {
  return &e->program->instructions[lane->head];
}

/* Takes what the lane's next instruction is out of the program. */
static void fetch(const sim_engine *e, sim_lane *lane, uint32_t id) {
  if (id == lane->end) return;
  const plan_instruction *instruction = &e->program->instructions[id];
  lane->wait = e->program->wait_first[id];
  lane->wait_end = e->program->wait_first[id + 1];
  lane->class_id = instruction->class_id;
  lane->peer = instruction->peer;
}

static void record(sim_engine *e, sim_lane *lane, double end_s) {
  lane->phase = SIM_LANE_RUNNING;
  e->timeline->start_s[lane->head] = e->now_s;
  e->timeline->end_s[lane->head] = end_s;
  fetch(e, lane, lane->head + 1);
}

/* Queues the end of what runs on a lane, or ends it within this instant. */
static void schedule(sim_engine *e, uint32_t lane, double end_s) {
  if (end_s > e->now_s) {
    sim_heap_push(&e->queue, end_s, lane);
  } else {
    e->instant[e->instant_count++] = lane;
  }
}

static void start_compute(sim_engine *e, uint32_t lane_id, sim_lane *lane) {
  const uint32_t id = lane->head, class_id = lane->class_id;
  const double work_s = e->input->instruction_s ? e->input->instruction_s[id] : e->input->work_s[class_id];
  double start_s = e->now_s, issued_s = 0;
  if (e->input->work_issue_s != NULL) {
    issued_s = e->timeline->issue_s[id];
    const double begun_s = issued_s - e->input->work_issue_s[class_id];
    if (begun_s > start_s) start_s = begun_s;
  }
  double end_s = start_s + work_s;
  if (e->stretches) {
    sim_compute *compute = &e->computes[lane->worker];
    compute->remaining_s = work_s;
    compute->since_s = start_s;
    compute->issued_s = issued_s;
    end_s = start_s + work_s * compute->stretch;
  }
  if (issued_s > end_s) end_s = issued_s;
  lane->phase = SIM_LANE_RUNNING;
  e->timeline->start_s[id] = start_s;
  e->timeline->end_s[id] = end_s;
  fetch(e, lane, id + 1);
  schedule(e, lane_id, end_s);
}

/* Both ends are ready: the SEND's lane leads. */
static void start_pair(sim_engine *e, uint32_t send, uint32_t receive) {
  sim_lane *from = &e->lanes[send], *to = &e->lanes[receive];
  from->partner = receive;
  to->partner = send;
  const double fixed_s = e->fixed_s[from->class_id];
  const double end_s = e->now_s + fixed_s;
  record(e, from, end_s);
  record(e, to, end_s);
  if (fixed_s >= 0) {
    schedule(e, send, end_s);
  } else {
    e->deferred[e->deferred_count++] = send;
  }
}

/* Its end is ready, and another is not: compute that this slows is put right once the instant has come to rest. */
static void wait_for_others(sim_engine *e, uint32_t lane_id, sim_lane *lane, uint32_t class_id) {
  if (!e->stretches || e->fixed_s[class_id] >= 0 || e->travels[class_id].waiting_slowdown <= 0 || lane->is_waiter)
    return;
  lane->is_waiter = true;
  e->waiters[e->waiter_count++] = lane_id;
}

static void meet_peer(sim_engine *e, uint32_t lane_id, sim_lane *lane) {
  const uint32_t peer = lane->peer;
  lane->phase = SIM_LANE_READY;
  const sim_lane *other = &e->lanes[lane->partner];
  if (peer - other->head >= other->end - other->head) { /* not yet to come on that lane */
    lane->partner = sim_engine_lane_of(e->program, peer);
    other = &e->lanes[lane->partner];
  }
  if (other->head != peer || other->phase != SIM_LANE_READY) {
    wait_for_others(e, lane_id, lane, lane->class_id);
    return;
  }
  if (lane->kind == PLAN_LANE_SEND) {
    start_pair(e, lane_id, lane->partner);
  } else {
    start_pair(e, lane->partner, lane_id);
  }
}

static void meet_group(sim_engine *e, uint32_t lane_id, sim_lane *lane) {
  const uint32_t group = lane->peer;
  const uint32_t first = e->group_first[group], last = e->group_first[group + 1];
  lane->phase = SIM_LANE_READY;
  const uint32_t class_id = e->program->message_count + e->program->group_class[group];
  if (++e->group_ready[group] < last - first) {
    wait_for_others(e, lane_id, lane, class_id);
    return;
  }
  const double fixed_s = e->fixed_s[class_id];
  for (uint32_t m = first; m < last; m++) record(e, &e->lanes[e->group_lanes[m]], e->now_s + fixed_s);
  if (fixed_s >= 0) {
    schedule(e, e->group_lanes[first], e->now_s + fixed_s);
  } else {
    e->deferred[e->deferred_count++] = e->group_lanes[first];
  }
}

/* Starts the head of an idle lane, if nothing holds it. */
static void advance(sim_engine *e, uint32_t lane_id) {
  sim_lane *lane = &e->lanes[lane_id];
  const uint32_t id = lane->head;
  lane->waiting_for = SIM_NONE;
  if (id == lane->end) return;
  for (; lane->wait < lane->wait_end; lane->wait++) {
    const uint32_t wait = e->program->waits[lane->wait];
    if (!is_done(e, wait)) {
      lane->waiting_for = wait;
      return;
    }
  }
  if (lane->kind == PLAN_LANE_COMPUTE) {
    start_compute(e, lane_id, lane);
  } else if (lane->kind == PLAN_LANE_COLLECTIVE) {
    meet_group(e, lane_id, lane);
  } else {
    meet_peer(e, lane_id, lane);
  }
}

/* The head of a running lane is done. */
static void finish(sim_engine *e, uint32_t lane_id) {
  sim_lane *lane = &e->lanes[lane_id];
  const uint32_t id = lane->head++;
  e->done[id / 64] |= (uint64_t)1 << id % 64;
  e->remaining--;
  lane->phase = SIM_LANE_IDLE;
  advance(e, lane_id);
  const uint32_t *range = &e->program->worker_lane[lane->worker];
  for (uint32_t l = range[0], last = range[1]; l < last; l++) {
    if (e->lanes[l].waiting_for == id) advance(e, l);
  }
}

/* The lanes of the travel that a lane leads: a SEND's own and its partner's, or a group's. */
static uint32_t members_of(const sim_engine *e, uint32_t lane_id, const uint32_t **members, uint32_t pair[2]) {
  const sim_lane *lane = &e->lanes[lane_id];
  if (lane->kind == PLAN_LANE_COLLECTIVE) {
    const uint32_t group = head_of(e, lane)->peer;
    *members = &e->group_lanes[e->group_first[group]];
    return e->group_first[group + 1] - e->group_first[group];
  }
  pair[0] = lane_id;
  pair[1] = lane->partner;
  *members = pair;
  return 2;
}

static const sim_travel *travel_of(const sim_engine *e, const sim_lane *lane) {
  const plan_instruction *instruction = head_of(e, lane);
  if (lane->kind != PLAN_LANE_COLLECTIVE) return &e->travels[instruction->class_id];
  return &e->travels[e->program->message_count + e->program->group_class[instruction->peer]];
}

/* What touches the worker has changed: puts the end of its running compute right. An end that moves away is only
 * recorded; the queued event finds it when it comes up. */
static void restretch(sim_engine *e, uint32_t worker, double stretch) {
  sim_compute *compute = &e->computes[worker];
  const uint32_t lane_id = e->program->worker_lane[worker];
  const sim_lane *lane = &e->lanes[lane_id];
  if (lane->kind == PLAN_LANE_COMPUTE && lane->phase == SIM_LANE_RUNNING) {
    if (e->now_s > compute->since_s) {
      compute->remaining_s = fmax(compute->remaining_s - (e->now_s - compute->since_s) / compute->stretch, 0);
      compute->since_s = e->now_s;
    }
    const double end_s = fmax(compute->since_s + compute->remaining_s * stretch, compute->issued_s);
    e->timeline->end_s[lane->head] = end_s;
    sim_heap_hasten(&e->queue, end_s, lane_id);
    e->statistics.rate_changes++;
  }
  compute->stretch = stretch;
}

static void touch(sim_engine *e, uint32_t lane_id, double slowdown) {
  const uint32_t worker = e->lanes[lane_id].worker;
  e->lane_slowdown[lane_id] = slowdown;
  double most = 0, waiting = 0;
  const uint32_t *range = &e->program->worker_lane[worker];
  for (uint32_t l = range[0]; l < range[1]; l++) {
    if (e->lanes[l].phase == SIM_LANE_READY)
      waiting += e->lane_slowdown[l];
    else if (e->lane_slowdown[l] > most) /* fmax would be a call; there is no NaN here */
      most = e->lane_slowdown[l];
  }
  const double stretch = 1 + most + waiting;
  if (stretch != e->computes[worker].stretch) restretch(e, worker, stretch);
}

static bool computes_now(const sim_engine *e, uint32_t worker) {
  const sim_lane *lane = &e->lanes[e->program->worker_lane[worker]];
  return lane->kind == PLAN_LANE_COMPUTE && lane->phase == SIM_LANE_RUNNING && e->timeline->start_s[lane->head] <= e->now_s;
}

static void finish_travel(sim_engine *e, uint32_t lane_id) {
  const uint32_t *members;
  uint32_t pair[2];
  const uint32_t count = members_of(e, lane_id, &members, pair);
  if (e->stretches) {
    for (uint32_t m = 0; m < count; m++) {
      if (e->lane_slowdown[members[m]] != 0) touch(e, members[m], 0);
    }
  }
  for (uint32_t m = 0; m < count; m++) finish(e, members[m]);
}

/* The last byte has left: the links are free, and a latency later the travel ends. False when the flow, by now slower
 * than when it was queued, has bytes left. */
static bool end_flow(sim_engine *e, uint32_t lane_id) {
  const uint32_t flow = e->lane_flow[lane_id];
  const double left_s = sim_network_finish_s(e->network, flow);
  if (left_s > e->now_s) {
    sim_heap_push(&e->queue, left_s, lane_id);
    return false;
  }
  sim_network_end(e->network, flow);
  e->network_changed = true;
  e->lanes[lane_id].flowing = false;
  const double end_s = e->now_s + e->lane_latency_s[lane_id];
  const uint32_t *members;
  uint32_t pair[2];
  const uint32_t count = members_of(e, lane_id, &members, pair);
  for (uint32_t m = 0; m < count; m++) e->timeline->end_s[e->lanes[members[m]].head] = end_s;
  schedule(e, lane_id, end_s);
  return true;
}

static void handle(sim_engine *e, uint32_t lane_id) {
  sim_lane *lane = &e->lanes[lane_id];
  if (lane->kind == PLAN_LANE_COMPUTE) {
    if (e->stretches && e->timeline->end_s[lane->head] > e->now_s) {
      sim_heap_push(&e->queue, e->timeline->end_s[lane->head], lane_id);
    } else {
      finish(e, lane_id);
    }
  } else if (lane->flowing) {
    end_flow(e, lane_id);
  } else if (lane->kind == PLAN_LANE_COLLECTIVE || e->stretches) {
    finish_travel(e, lane_id);
  } else {
    const uint32_t partner = lane->partner; /* the lane may go on with another */
    finish(e, lane_id);
    finish(e, partner);
  }
}

static void slow_waiters(sim_engine *e) {
  for (uint32_t i = 0; i < e->waiter_count; i++) {
    sim_lane *lane = &e->lanes[e->waiters[i]];
    lane->is_waiter = false;
    if (lane->phase == SIM_LANE_READY) touch(e, e->waiters[i], travel_of(e, lane)->waiting_slowdown);
  }
  e->waiter_count = 0;
}

/* Starts the travels that this instant has made ready, and shares the links anew. */
static void start_travels(sim_engine *e) {
  slow_waiters(e);
  for (uint32_t i = 0; i < e->deferred_count; i++) {
    const uint32_t lane_id = e->deferred[i];
    const sim_travel *travel = travel_of(e, &e->lanes[lane_id]);
    const uint32_t *members;
    uint32_t pair[2];
    const uint32_t count = members_of(e, lane_id, &members, pair);
    bool busy = false;
    for (uint32_t m = 0; m < count && travel->asks_busy && !busy; m++) busy = computes_now(e, e->lanes[members[m]].worker);
    const double latency_s = busy ? travel->busy_latency_s : travel->latency_s;
    const double cap = busy ? travel->busy_cap : travel->cap;
    if (travel->shared_count > 0) {
      e->lane_latency_s[lane_id] = latency_s;
      e->lanes[lane_id].flowing = true;
      e->network_changed = true;
      e->statistics.shared_flows++;
      sim_network_start(e->network, e->lane_flow[lane_id], travel->shared, travel->shared_count, travel->bytes, cap);
    } else {
      const double end_s = e->now_s + (latency_s + travel->bytes / cap);
      for (uint32_t m = 0; m < count; m++) e->timeline->end_s[e->lanes[members[m]].head] = end_s;
      sim_heap_push(&e->queue, end_s, lane_id);
    }
    if (travel->slowdown > 0 || travel->waiting_slowdown > 0) {
      for (uint32_t m = 0; m < count; m++) touch(e, members[m], travel->slowdown);
    }
  }
  e->deferred_count = 0;
  if (!e->network_changed) return;
  e->network_changed = false;
  const uint32_t *changed;
  uint32_t count;
  sim_network_settle(e->network, e->now_s, &changed, &count);
  e->statistics.rate_changes += count;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t lane_id = e->flow_lane[changed[i]];
    const double left_s = sim_network_finish_s(e->network, changed[i]);
    if (e->queue.position[lane_id] == SIM_NOT_QUEUED) {
      sim_heap_push(&e->queue, left_s, lane_id);
    } else {
      sim_heap_hasten(&e->queue, left_s, lane_id);
    }
  }
}

static void drain_instant(sim_engine *e) {
  while (e->instant_count > 0) handle(e, e->instant[--e->instant_count]);
}

static dp_status fail_stuck(const sim_engine *e, dp_error *error) {
  dp_str text = {0};
  for (int w = 0; w < e->program->worker_count && text.length < DP_ERROR_TEXT_BYTES; w++) {
    for (uint32_t l = e->program->worker_lane[w]; l < e->program->worker_lane[w + 1]; l++) {
      if (e->lanes[l].head == e->lanes[l].end) continue;
      char shown[128];
      dp_str_addf(&text, "%s%s", text.length > 0 ? "; " : "", plan_instruction_show(e->program, e->lanes[l].head, shown));
      break;
    }
  }
  const dp_status status = dp_fail(error, DP_INTERNAL, "the program cannot go on after %g s with %u instructions left: %s",
                                   e->now_s, e->remaining, dp_str_text(&text));
  dp_str_free(&text);
  return status;
}

static dp_status play(sim_engine *e, dp_error *error) {
  for (uint32_t l = 0; l < e->program->lane_count; l++) fetch(e, &e->lanes[l], e->lanes[l].head);
  for (uint32_t l = 0; l < e->program->lane_count; l++) advance(e, l);
  drain_instant(e);
  start_travels(e);
  double next_s;
  while (sim_heap_first(&e->queue, &next_s)) {
    e->now_s = next_s;
    do {
      e->statistics.events++;
      handle(e, sim_heap_take(&e->queue));
      if (e->instant_count > 0) drain_instant(e);
    } while (sim_heap_first(&e->queue, &next_s) && next_s <= e->now_s);
    if (e->deferred_count > 0 || e->waiter_count > 0 || e->network_changed) start_travels(e);
  }
  return e->remaining == 0 ? DP_OK : fail_stuck(e, error);
}

dp_status sim_run(const sim_input *input, plan_timeline *timeline, sim_statistics *statistics, dp_error *error) {
  sim_engine engine;
  DP_TRY(sim_engine_prepare(input, timeline, &engine, error));
  const dp_status status = play(&engine, error);
  if (status == DP_OK) {
    timeline->step_s = engine.now_s;
    if (engine.network != NULL) engine.statistics.solved_flows = sim_network_count(engine.network).solved_flows;
    if (statistics != NULL) *statistics = engine.statistics;
  }
  sim_engine_release(&engine);
  return status;
}
