/* Everything that can be settled before virtual time begins: which links can be shared at all, which transfers take a
 * fixed time, who belongs to a group, when hosts issue what. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "sim/engine_state.h"

static bool is_figure(double x) { return x >= 0 && x <= DBL_MAX; }

static dp_status check_transfers(const char *what, const sim_transfer *transfers, uint32_t count, int link_count,
                                 dp_error *error) {
  for (uint32_t i = 0; i < count; i++) {
    const sim_transfer *t = &transfers[i];
    if (!is_figure(t->bytes) || !is_figure(t->latency_s) || !is_figure(t->busy_latency_s) ||
        !is_figure(t->compute_slowdown) || !is_figure(t->waiting_slowdown) || t->hops < 0 ||
        isnan(t->cap_bytes_per_s) || isnan(t->busy_cap_bytes_per_s)) {
      return dp_fail(error, DP_INTERNAL,
                     "%s class %u: bytes %g, latency %g s (busy %g s), cap %g B/s (busy %g B/s), slowdown %g (waiting "
                     "%g), hops %d: all must be numbers and none but a cap negative",
                     what, i, t->bytes, t->latency_s, t->busy_latency_s, t->cap_bytes_per_s, t->busy_cap_bytes_per_s,
                     t->compute_slowdown, t->waiting_slowdown, t->hops);
    }
    for (int h = 0; h < t->hops; h++) {
      if (t->links[h] < 0 || t->links[h] >= link_count) {
        return dp_fail(error, DP_INTERNAL, "%s class %u: link %d, allowed: 0 to %d", what, i, t->links[h], link_count - 1);
      }
    }
  }
  return DP_OK;
}

static dp_status check_input(const sim_input *input, dp_error *error) {
  const plan_program *program = input->program;
  for (uint32_t i = 0; i < program->work_count; i++) {
    if (!is_figure(input->work_s[i]) || (input->work_issue_s != NULL && !is_figure(input->work_issue_s[i]))) {
      return dp_fail(error, DP_INTERNAL, "work class %u takes %g s and %g s to issue, allowed: >= 0 and finite", i,
                     input->work_s[i], input->work_issue_s != NULL ? input->work_issue_s[i] : 0);
    }
  }
  for (int l = 0; l < input->link_count; l++) {
    const double capacity = input->link_capacity_bytes_per_s[l];
    if (!(capacity > 0 && capacity <= DBL_MAX)) {
      return dp_fail(error, DP_INTERNAL, "link %d carries %g B/s, allowed: > 0 and finite", l, capacity);
    }
  }
  DP_TRY(check_transfers("message", input->messages, program->message_count, input->link_count, error));
  return check_transfers("collective", input->collectives, program->collective_count, input->link_count, error);
}

uint32_t sim_engine_lane_of(const plan_program *program, uint32_t instruction) {
  uint32_t low = 0, high = program->lane_count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (program->lanes[middle].first <= instruction) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Classes are numbered messages first, then collectives. */
static uint32_t class_count(const plan_program *program) { return program->message_count + program->collective_count; }

static const sim_transfer *transfer_of(const sim_input *input, uint32_t class_id) {
  const uint32_t messages = input->program->message_count;
  return class_id < messages ? &input->messages[class_id] : &input->collectives[class_id - messages];
}

/* What travels on a lane that leads: SEND lanes, and the first lane of each group. */
static bool leads(const sim_engine *e, uint32_t lane_id, uint32_t instruction, uint32_t *class_id) {
  const plan_instruction *i = &e->program->instructions[instruction];
  if (e->program->lanes[lane_id].kind == PLAN_LANE_SEND) {
    *class_id = i->class_id;
    return true;
  }
  if (e->group_lanes[e->group_first[i->peer]] != lane_id) return false;
  *class_id = e->program->message_count + e->program->group_class[i->peer];
  return true;
}

static bool is_leading_kind(const plan_lane *lane) {
  return lane->kind == PLAN_LANE_SEND || lane->kind == PLAN_LANE_COLLECTIVE;
}

/* Work areas of prepare that go before the run. */
typedef struct scratch {
  double *load;       /* [link] most that the flows of all lanes together can want */
  double *lane_load;  /* [link] of the lane looked at */
  uint32_t *lane_mark; /* [link] that lane + 1 */
  uint32_t *times;     /* [link] crossings by the class looked at */
  uint32_t *class_mark; /* [class] last lane + 1 that it was seen on */
  uint32_t *flow_hops;  /* [lane] */
} scratch;

static void scratch_free(scratch *s) {
  free(s->load);
  free(s->lane_load);
  free(s->lane_mark);
  free(s->times);
  free(s->class_mark);
  free(s->flow_hops);
}

static dp_status scratch_make(const sim_engine *e, scratch *s, dp_error *error) {
  const size_t links = (size_t)e->input->link_count + 1;
  s->load = calloc(links, sizeof *s->load);
  s->lane_load = calloc(links, sizeof *s->lane_load);
  s->lane_mark = calloc(links, sizeof *s->lane_mark);
  s->times = calloc(links, sizeof *s->times);
  s->class_mark = calloc((size_t)class_count(e->program) + 1, sizeof *s->class_mark);
  s->flow_hops = calloc((size_t)e->program->lane_count + 1, sizeof *s->flow_hops);
  const bool made = s->load != NULL && s->lane_load != NULL && s->lane_mark != NULL && s->times != NULL &&
                    s->class_mark != NULL && s->flow_hops != NULL;
  return made ? DP_OK : dp_fail_memory(error);
}

/* A lane carries one transfer at a time, so it asks of a link at most the largest cap among its classes. Where all lanes
 * together ask no more than the capacity, the link never binds beyond what the caps say already. */
static void add_loads(const sim_engine *e, scratch *s) {
  const plan_program *program = e->program;
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    if (!is_leading_kind(lane)) continue;
    uint32_t last_class = SIM_NONE;
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      uint32_t class_id;
      if (!leads(e, l, i, &class_id) || class_id == last_class) continue;
      last_class = class_id;
      if (s->class_mark[class_id] == l + 1) continue;
      s->class_mark[class_id] = l + 1;
      const sim_transfer *t = transfer_of(e->input, class_id);
      if (t->bytes == 0) continue;
      const double cap = fmax(e->travels[class_id].cap, e->travels[class_id].busy_cap);
      for (int h = 0; h < t->hops; h++) s->times[t->links[h]]++;
      for (int h = 0; h < t->hops; h++) {
        const int link = t->links[h];
        const double want = s->times[link] * cap;
        s->times[link] = 0; /* a repeat finds 0 and adds nothing */
        if (s->lane_mark[link] != l + 1) {
          s->lane_mark[link] = l + 1;
          s->lane_load[link] = 0;
        }
        if (want > s->lane_load[link]) {
          s->load[link] += want - s->lane_load[link];
          s->lane_load[link] = want;
        }
      }
    }
  }
}

static bool can_fill(const sim_input *input, const scratch *s, int link) {
  return s->load[link] > input->link_capacity_bytes_per_s[link] * (1 + SIM_NETWORK_EPSILON);
}

/* Caps of a class alone and busy, with all capacities on its path. */
static void take_caps(const sim_input *input, const sim_transfer *t, sim_travel *travel) {
  double cap = t->cap_bytes_per_s > 0 ? t->cap_bytes_per_s : INFINITY;
  double busy_cap = t->busy_cap_bytes_per_s > 0 ? t->busy_cap_bytes_per_s : INFINITY;
  for (int h = 0; h < t->hops; h++) {
    cap = fmin(cap, input->link_capacity_bytes_per_s[t->links[h]]);
    busy_cap = fmin(busy_cap, input->link_capacity_bytes_per_s[t->links[h]]);
  }
  travel->bytes = t->bytes;
  travel->latency_s = t->latency_s;
  travel->cap = cap;
  travel->busy_latency_s = t->busy_latency_s;
  travel->busy_cap = busy_cap;
  travel->slowdown = t->compute_slowdown;
  travel->waiting_slowdown = t->waiting_slowdown;
  travel->asks_busy = t->busy_latency_s != t->latency_s || busy_cap != cap;
}

static dp_status prepare_travels(sim_engine *e, scratch *s, dp_error *error) {
  const sim_input *input = e->input;
  const uint32_t classes = class_count(e->program);
  size_t hops = 0;
  for (uint32_t c = 0; c < classes; c++) {
    take_caps(input, transfer_of(input, c), &e->travels[c]);
    hops += (size_t)transfer_of(input, c)->hops;
  }
  if (hops > 0) {
    add_loads(e, s);
    e->shared_links = malloc(hops * sizeof(int));
    if (e->shared_links == NULL) return dp_fail_memory(error);
    e->statistics.memory_bytes += hops * sizeof(int);
  }
  int *next = e->shared_links;
  for (uint32_t c = 0; c < classes; c++) {
    const sim_transfer *t = transfer_of(input, c);
    sim_travel *travel = &e->travels[c];
    travel->shared = next;
    for (int h = 0; h < t->hops && t->bytes > 0; h++) {
      if (can_fill(input, s, t->links[h])) *next++ = t->links[h];
    }
    travel->shared_count = t->hops > 0 ? (uint32_t)(next - travel->shared) : 0;
    if (t->bytes == 0) {
      e->fixed_s[c] = 0;
    } else if (travel->shared_count > 0 || travel->asks_busy || travel->slowdown > 0 || travel->waiting_slowdown > 0) {
      e->fixed_s[c] = -1;
      e->stretches |= travel->slowdown > 0 || travel->waiting_slowdown > 0;
    } else {
      e->fixed_s[c] = travel->latency_s + travel->bytes / travel->cap;
    }
  }
  return DP_OK;
}

/* One flow for each lane that leads transfers over shared links. */
static dp_status prepare_network(sim_engine *e, scratch *s, dp_error *error) {
  const plan_program *program = e->program;
  uint32_t flows = 0;
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    e->lane_flow[l] = SIM_NONE;
    uint32_t most = 0;
    for (uint32_t i = lane->first; is_leading_kind(lane) && i < lane->first + lane->count; i++) {
      uint32_t class_id;
      if (leads(e, l, i, &class_id) && e->travels[class_id].shared_count > most) most = e->travels[class_id].shared_count;
    }
    if (most == 0) continue;
    e->lane_flow[l] = flows;
    e->flow_lane[flows] = l;
    s->flow_hops[flows++] = most;
  }
  if (flows == 0) return DP_OK;
  DP_TRY(sim_network_create(e->input->link_capacity_bytes_per_s, e->input->link_count, s->flow_hops, flows, &e->network,
                            error));
  e->statistics.memory_bytes += sim_network_memory_bytes(e->network);
  return DP_OK;
}

static dp_status prepare_groups(sim_engine *e, dp_error *error) {
  const plan_program *program = e->program;
  for (int pass = 0; pass < 2; pass++) { /* count, then fill */
    for (uint32_t l = 0; l < program->lane_count; l++) {
      const plan_lane *lane = &program->lanes[l];
      if (lane->kind != PLAN_LANE_COLLECTIVE) continue;
      for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
        const uint32_t group = program->instructions[i].peer;
        if (group >= program->group_count || program->group_class[group] >= program->collective_count) {
          return dp_fail(error, DP_INTERNAL, "instruction %u names group %u, allowed: below %u", i, group,
                         program->group_count);
        }
        if (pass == 0) {
          e->group_first[group + 1]++;
        } else {
          e->group_lanes[e->group_first[group] + e->group_ready[group]++] = l;
        }
      }
    }
    for (uint32_t g = 0; g < program->group_count && pass == 0; g++) e->group_first[g + 1] += e->group_first[g];
  }
  memset(e->group_ready, 0, program->group_count * sizeof *e->group_ready);
  return DP_OK;
}

static uint32_t member_count_of(const plan_program *program) {
  uint32_t count = 0;
  for (uint32_t l = 0; l < program->lane_count; l++) {
    if (program->lanes[l].kind == PLAN_LANE_COLLECTIVE) count += program->lanes[l].count;
  }
  return count;
}

/* Cuts an array off the block, or with a NULL block only counts its bytes. */
static void *carve(char *block, size_t *used, size_t count, size_t size) {
  void *start = block != NULL ? block + *used : NULL;
  *used += (count * size + 63) / 64 * 64;
  return start;
}

static size_t lay_out(sim_engine *e, char *block) {
  const plan_program *p = e->program;
  const size_t lanes = p->lane_count, workers = (size_t)p->worker_count, classes = class_count(p);
  size_t used = 0;
  void *queue = carve(block, &used, 1, sim_heap_bytes(p->lane_count));
  if (block != NULL) sim_heap_place(&e->queue, queue, p->lane_count);
  e->lanes = carve(block, &used, lanes, sizeof *e->lanes);
  e->done = carve(block, &used, ((size_t)p->instruction_count + 63) / 64, sizeof *e->done);
  e->fixed_s = carve(block, &used, classes, sizeof *e->fixed_s);
  e->travels = carve(block, &used, classes, sizeof *e->travels);
  e->instant = carve(block, &used, lanes, sizeof *e->instant);
  e->deferred = carve(block, &used, lanes, sizeof *e->deferred);
  e->waiters = carve(block, &used, lanes, sizeof *e->waiters);
  e->group_first = carve(block, &used, (size_t)p->group_count + 1, sizeof *e->group_first);
  e->group_lanes = carve(block, &used, member_count_of(p), sizeof *e->group_lanes);
  e->group_ready = carve(block, &used, p->group_count, sizeof *e->group_ready);
  e->computes = carve(block, &used, workers, sizeof *e->computes);
  e->lane_slowdown = carve(block, &used, lanes, sizeof *e->lane_slowdown);
  e->lane_flow = carve(block, &used, lanes, sizeof *e->lane_flow);
  e->flow_lane = carve(block, &used, lanes, sizeof *e->flow_lane);
  e->lane_latency_s = carve(block, &used, lanes, sizeof *e->lane_latency_s);
  return used;
}

static dp_status prepare_arrays(sim_engine *e, dp_error *error) {
  const plan_program *program = e->program;
  const size_t bytes = (lay_out(e, NULL) + 63) / 64 * 64 + 64;
  e->memory = aligned_alloc(64, bytes);
  if (e->memory == NULL) return dp_fail_memory(error);
  memset(e->memory, 0, bytes);
  lay_out(e, e->memory);
  e->statistics.memory_bytes = bytes;
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    e->lanes[l] = (sim_lane){.head = lane->first,
                             .end = lane->first + lane->count,
                             .partner = l,
                             .worker = lane->worker,
                             .waiting_for = SIM_NONE,
                             .kind = (uint8_t)lane->kind,
                             .phase = SIM_LANE_IDLE};
  }
  for (int w = 0; w < program->worker_count; w++) e->computes[w].stretch = 1;
  e->remaining = program->instruction_count;
  return DP_OK;
}

dp_status sim_engine_prepare(const sim_input *input, plan_timeline *timeline, sim_engine *engine, dp_error *error) {
  DP_TRY(check_input(input, error));
  *engine = (sim_engine){.input = input, .program = input->program, .timeline = timeline};
  scratch s = {0};
  dp_status status = prepare_arrays(engine, error);
  if (status == DP_OK) status = scratch_make(engine, &s, error);
  if (status == DP_OK) status = prepare_groups(engine, error);
  if (status == DP_OK) status = prepare_travels(engine, &s, error);
  if (status == DP_OK && engine->shared_links != NULL) status = prepare_network(engine, &s, error);
  if (status == DP_OK && input->work_issue_s != NULL) status = sim_engine_issue(input, timeline, error);
  scratch_free(&s);
  if (status != DP_OK) sim_engine_release(engine);
  return status;
}

void sim_engine_release(sim_engine *engine) {
  sim_network_destroy(engine->network);
  free(engine->shared_links);
  free(engine->memory);
}
