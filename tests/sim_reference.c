#include "tests/sim_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void reference_share(const double *capacity, int link_count, reference_flow *flows, int flow_count, double *residual,
                     int *open) {
  memcpy(residual, capacity, (size_t)link_count * sizeof *residual);
  int left = 0;
  for (int f = 0; f < flow_count; f++) {
    flows[f].fixed = false;
    left += flows[f].active;
  }
  while (left > 0) {
    memset(open, 0, (size_t)link_count * sizeof *open);
    for (int f = 0; f < flow_count; f++) {
      for (int h = 0; flows[f].active && !flows[f].fixed && h < flows[f].hops; h++) open[flows[f].links[h]]++;
    }
    double level = INFINITY;
    int lowest = -1;
    for (int l = 0; l < link_count; l++) {
      if (open[l] > 0 && residual[l] / open[l] < level) level = residual[(lowest = l)] / open[l];
    }
    int capped = -1;
    for (int f = 0; f < flow_count; f++) {
      if (!flows[f].active || flows[f].fixed || flows[f].cap > level) continue;
      level = flows[capped = f].cap;
    }
    for (int f = 0; f < flow_count; f++) {
      reference_flow *flow = &flows[f];
      if (!flow->active || flow->fixed) continue;
      bool fix = f == capped;
      for (int h = 0; capped < 0 && h < flow->hops; h++) fix |= flow->links[h] == lowest;
      if (!fix) continue;
      flow->fixed = true;
      flow->rate = level;
      left--;
      for (int h = 0; h < flow->hops; h++) residual[flow->links[h]] = fmax(residual[flow->links[h]] - level, 0);
    }
  }
}

/* rate: FLOW: bytes/s; COMPUTE: how many times longer it takes. */
typedef enum run_phase { IDLE, COMPUTE, FLOW, LATENCY } run_phase;

/* What runs on a lane; members of a travel other than its leading lane (SEND, or the group's lowest) are FOLLOWING it. */
typedef struct lane_run {
  run_phase phase;
  bool following;
  double remaining, since_s, issued_s; /* at since_s; COMPUTE: seconds; FLOW: bytes */
  double rate, end_s, latency_s, slowdown;
} lane_run;

typedef struct reference {
  const sim_input *input;
  const plan_program *program;
  plan_timeline *timeline;
  double now_s;
  uint32_t *head;
  bool *done;
  lane_run *runs;
  reference_flow *flows; /* one a lane */
  double *residual, *stretch;
  int *open;
  uint32_t remaining;
} reference;

static bool lane_is_open(const reference *r, uint32_t l) {
  const plan_lane *lane = &r->program->lanes[l];
  if (r->runs[l].phase != IDLE || r->runs[l].following || r->head[l] == lane->first + lane->count) return false;
  for (uint32_t w = r->program->wait_first[r->head[l]]; w < r->program->wait_first[r->head[l] + 1]; w++) {
    if (!r->done[r->program->waits[w]]) return false;
  }
  return true;
}

/* Lanes that must start together with lane l's head, l first; 0 when not all are open, or l does not lead. */
static uint32_t gather(const reference *r, uint32_t l, uint32_t *members) {
  const plan_program *p = r->program;
  const plan_instruction *head = &p->instructions[r->head[l]];
  const bool group = p->lanes[l].kind == PLAN_LANE_COLLECTIVE;
  uint32_t count = 0, needed = 0;
  if (p->lanes[l].kind == PLAN_LANE_COMPUTE) {
    members[0] = l;
    return 1;
  }
  if (p->lanes[l].kind == PLAN_LANE_RECV) return 0;
  if (!group) {
    members[count++] = l;
    for (uint32_t m = 0; m < p->lane_count; m++) {
      if (p->lanes[m].count > 0 && r->head[m] == head->peer && lane_is_open(r, m)) members[count++] = m;
    }
    return count == 2 ? 2 : 0;
  }
  for (uint32_t m = 0; m < p->lane_count; m++) {
    if (p->lanes[m].kind != PLAN_LANE_COLLECTIVE) continue;
    for (uint32_t i = p->lanes[m].first; i < p->lanes[m].first + p->lanes[m].count; i++) {
      if (p->instructions[i].peer != head->peer) continue;
      needed++;
      if (r->head[m] == i && lane_is_open(r, m)) members[count++] = m;
    }
  }
  return count == needed && members[0] == l ? count : 0;
}

static const sim_transfer *transfer_of(const reference *r, uint32_t l) {
  const plan_instruction *head = &r->program->instructions[r->head[l]];
  if (r->program->lanes[l].kind != PLAN_LANE_COLLECTIVE) return &r->input->messages[head->class_id];
  return &r->input->collectives[r->program->group_class[head->peer]];
}

static uint32_t followers(const reference *r, uint32_t l, uint32_t *members) {
  members[0] = l;
  uint32_t count = 1;
  const plan_instruction *head = &r->program->instructions[r->head[l]];
  for (uint32_t m = 0; m < r->program->lane_count; m++) {
    if (m == l || !r->runs[m].following) continue;
    const plan_instruction *other = &r->program->instructions[r->head[m]];
    const bool same = r->program->lanes[l].kind == PLAN_LANE_COLLECTIVE
                          ? r->program->lanes[m].kind == PLAN_LANE_COLLECTIVE && other->peer == head->peer
                          : r->head[m] == head->peer;
    if (same) members[count++] = m;
  }
  return count;
}

static void complete(reference *r, uint32_t l, uint32_t *members) {
  const uint32_t count = r->program->lanes[l].kind == PLAN_LANE_COMPUTE ? (members[0] = l, 1) : followers(r, l, members);
  for (uint32_t m = 0; m < count; m++) {
    const uint32_t id = r->head[members[m]]++;
    r->timeline->end_s[id] = r->now_s;
    r->done[id] = true;
    r->remaining--;
    r->runs[members[m]] = (lane_run){0};
    r->flows[members[m]].active = false;
  }
}

static double end_of(const reference *r, uint32_t l) {
  const lane_run *run = &r->runs[l];
  if (run->phase == COMPUTE) return fmax(run->since_s + run->remaining * run->rate, run->issued_s);
  if (run->phase == FLOW) return run->since_s + run->remaining / run->rate;
  return run->end_s;
}

static bool computes_now(const reference *r, uint32_t worker) {
  for (uint32_t l = r->program->worker_lane[worker]; l < r->program->worker_lane[worker + 1]; l++) {
    if (r->runs[l].phase == COMPUTE && r->timeline->start_s[r->head[l]] <= r->now_s) return true;
  }
  return false;
}

static void start_compute(reference *r, uint32_t l) {
  const uint32_t id = r->head[l], class_id = r->program->instructions[id].class_id;
  lane_run *run = &r->runs[l];
  run->phase = COMPUTE;
  run->remaining = r->input->work_s[class_id];
  run->rate = r->stretch[r->program->lanes[l].worker];
  run->since_s = r->now_s;
  if (r->input->work_issue_s != NULL) {
    run->issued_s = r->timeline->issue_s[id];
    run->since_s = fmax(run->since_s, run->issued_s - r->input->work_issue_s[class_id]);
  }
  r->timeline->start_s[id] = run->since_s;
}

static void start_travel(reference *r, uint32_t l, uint32_t *members) {
  const uint32_t count = gather(r, l, members);
  const sim_transfer *t = transfer_of(r, l);
  bool busy = false;
  for (uint32_t m = 0; m < count; m++) busy |= computes_now(r, r->program->lanes[members[m]].worker);
  const double cap = busy ? t->busy_cap_bytes_per_s : t->cap_bytes_per_s;
  for (uint32_t m = 0; m < count; m++) {
    r->timeline->start_s[r->head[members[m]]] = r->now_s;
    r->runs[members[m]] = (lane_run){.following = members[m] != l, .slowdown = t->compute_slowdown};
  }
  lane_run *run = &r->runs[l];
  run->phase = FLOW;
  run->remaining = t->bytes;
  run->since_s = r->now_s;
  run->latency_s = busy ? t->busy_latency_s : t->latency_s;
  r->flows[l] = (reference_flow){.links = t->links, .hops = t->hops, .cap = cap > 0 ? cap : INFINITY, .active = true};
}

/* All that can start now: zero-time work to its end, then travels together. */
static void start_all(reference *r, uint32_t *members, uint32_t *ready) {
  for (bool again = true; again;) {
    again = false;
    uint32_t ready_count = 0;
    for (uint32_t l = 0; l < r->program->lane_count; l++) {
      if (!lane_is_open(r, l)) continue;
      const uint32_t count = gather(r, l, members);
      if (count == 0) continue;
      if (r->program->lanes[l].kind == PLAN_LANE_COMPUTE) {
        start_compute(r, l);
        if (end_of(r, l) <= r->now_s) {
          complete(r, l, members);
          again = true;
        }
      } else if (transfer_of(r, l)->bytes == 0) {
        for (uint32_t m = 0; m < count; m++) {
          r->timeline->start_s[r->head[members[m]]] = r->now_s;
          r->runs[members[m]].following = members[m] != l;
        }
        complete(r, l, members);
        again = true;
      } else {
        ready[ready_count++] = l;
      }
    }
    if (again) continue;
    for (uint32_t i = 0; i < ready_count; i++) start_travel(r, ready[i], members);
  }
}

/* Of what the lane's worker computes, while the lane's head waits for others. */
static double waiting_of(const reference *r, uint32_t l) {
  if (r->program->lanes[l].kind == PLAN_LANE_COMPUTE || !lane_is_open(r, l)) return 0;
  const sim_transfer *t = transfer_of(r, l);
  return t->bytes > 0 ? t->waiting_slowdown : 0;
}

static void share(reference *r) {
  const plan_program *p = r->program;
  reference_share(r->input->link_capacity_bytes_per_s, r->input->link_count, r->flows, (int)p->lane_count, r->residual,
                  r->open);
  for (int w = 0; w < p->worker_count; w++) {
    double most = 0, waiting = 0;
    for (uint32_t l = p->worker_lane[w]; l < p->worker_lane[w + 1]; l++) {
      most = fmax(most, r->runs[l].slowdown);
      waiting += waiting_of(r, l);
    }
    r->stretch[w] = 1 + most + waiting;
  }
  /* What goes on at another rate has done its part so far at the old one. */
  for (uint32_t l = 0; l < p->lane_count; l++) {
    lane_run *run = &r->runs[l];
    const bool flow = run->phase == FLOW;
    if (!flow && run->phase != COMPUTE) continue;
    const double rate = flow ? r->flows[l].rate : r->stretch[p->lanes[l].worker];
    if (fabs(rate - run->rate) <= 1e-12 * run->rate || rate == run->rate) continue;
    if (r->now_s > run->since_s) {
      const double since_s = r->now_s - run->since_s;
      run->remaining = fmax(run->remaining - (flow ? since_s * run->rate : since_s / run->rate), 0);
      run->since_s = r->now_s;
    }
    run->rate = rate;
  }
}

static dp_status play(reference *r, uint64_t *events, dp_error *error) {
  uint32_t *members = calloc((size_t)r->program->lane_count + 1, sizeof *members);
  uint32_t *ready = calloc((size_t)r->program->lane_count + 1, sizeof *ready);
  double *ends = calloc((size_t)r->program->lane_count + 1, sizeof *ends);
  if (members == NULL || ready == NULL || ends == NULL) {
    free(members);
    free(ready);
    free(ends);
    return dp_fail_memory(error);
  }
  for (int w = 0; w < r->program->worker_count; w++) r->stretch[w] = 1;
  start_all(r, members, ready);
  for (*events = 0;; (*events)++) {
    share(r);
    double next_s = INFINITY;
    for (uint32_t l = 0; l < r->program->lane_count; l++) {
      ends[l] = r->runs[l].phase == IDLE ? INFINITY : end_of(r, l);
      next_s = fmin(next_s, ends[l]);
    }
    if (next_s == INFINITY) break;
    r->now_s = next_s;
    for (uint32_t l = 0; l < r->program->lane_count; l++) {
      if (ends[l] > next_s) continue;
      lane_run *run = &r->runs[l];
      if (run->phase == FLOW) {
        run->phase = LATENCY;
        run->end_s = r->now_s + run->latency_s;
        r->flows[l].active = false;
      }
      if (run->phase == COMPUTE || run->end_s <= r->now_s) complete(r, l, members);
    }
    start_all(r, members, ready);
  }
  free(members);
  free(ready);
  free(ends);
  r->timeline->step_s = r->now_s;
  return r->remaining == 0 ? DP_OK : dp_fail(error, DP_INTERNAL, "reference: %u instructions left", r->remaining);
}

/* Hosts take turns by position; a worker without a host of its own number shares with those of the same number. */
static void issue(reference *r) {
  const plan_program *p = r->program;
  for (int h = 0; h < p->worker_count; h++) {
    const int number = r->input->worker_host != NULL ? r->input->worker_host[h] : h;
    bool seen = false;
    for (int w = 0; w < h && r->input->worker_host != NULL; w++) seen |= r->input->worker_host[w] == number;
    double clock_s = 0;
    for (uint32_t position = 0; !seen && position < p->instruction_count; position++) {
      for (int w = h; w < p->worker_count; w++) {
        if (w != h && (r->input->worker_host == NULL || r->input->worker_host[w] != number)) continue;
        if (p->worker_lane[w] == p->worker_lane[w + 1]) continue;
        const plan_lane *lane = &p->lanes[p->worker_lane[w]];
        if (lane->kind != PLAN_LANE_COMPUTE || position >= lane->count) continue;
        clock_s += r->input->work_issue_s[p->instructions[lane->first + position].class_id];
        r->timeline->issue_s[lane->first + position] = clock_s;
      }
    }
  }
}

dp_status reference_run(const sim_input *input, plan_timeline *timeline, uint64_t *events, dp_error *error) {
  const plan_program *p = input->program;
  const size_t lanes = (size_t)p->lane_count + 1, links = (size_t)input->link_count + 1;
  uint64_t counted = 0;
  reference r = {.input = input,
                 .program = p,
                 .timeline = timeline,
                 .head = calloc(lanes, sizeof(uint32_t)),
                 .done = calloc((size_t)p->instruction_count + 1, sizeof(bool)),
                 .runs = calloc(lanes, sizeof(lane_run)),
                 .flows = calloc(lanes, sizeof(reference_flow)),
                 .residual = calloc(links, sizeof(double)),
                 .open = calloc(links, sizeof(int)),
                 .stretch = calloc((size_t)p->worker_count + 1, sizeof(double)),
                 .remaining = p->instruction_count};
  if (input->work_issue_s != NULL && timeline->issue_s == NULL) {
    timeline->issue_s = calloc((size_t)p->instruction_count + 1, sizeof(double));
  }
  dp_status status = DP_OK;
  if (r.head == NULL || r.done == NULL || r.runs == NULL || r.flows == NULL || r.residual == NULL || r.open == NULL ||
      r.stretch == NULL || (input->work_issue_s != NULL && timeline->issue_s == NULL)) {
    status = dp_fail_memory(error);
  } else {
    for (uint32_t l = 0; l < p->lane_count; l++) r.head[l] = p->lanes[l].first;
    if (input->work_issue_s != NULL) issue(&r);
    status = play(&r, &counted, error);
  }
  if (events != NULL) *events = counted;
  free(r.head);
  free(r.done);
  free(r.runs);
  free(r.flows);
  free(r.residual);
  free(r.open);
  free(r.stretch);
  return status;
}
