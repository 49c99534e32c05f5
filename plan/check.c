/* Structure of a program, and the proof that it ends whatever the durations. */
#include <inttypes.h>

#include "base/str.h"
#include "plan/program.h"

/* The play without durations: every lane goes on as far as it can. A lane whose head waits for another instruction is
 * queued at that instruction and looked at again when it is done, so each wait is looked at about once. */
typedef struct checker {
  const plan_program *program;
  dp_error *error;
  uint32_t *lane_of;       /* [instruction] */
  uint32_t *next;          /* [lane] id of the head */
  uint32_t *waited;        /* [lane] the head's waits that are done */
  uint64_t *done;          /* one bit an instruction */
  uint64_t *ready;         /* the same: waits only for its peer or group */
  uint32_t *queue;         /* [instruction] 1 + first lane queued at it */
  uint32_t *queue_next;    /* [lane] 1 + next lane in the same queue */
  uint32_t *group_ready;   /* [group] members that are ready */
  uint32_t *group_queue;   /* [group] 1 + first of their lanes, linked by queue_next */
  uint32_t *stack, height; /* lanes to look at */
} checker;

/* ---- structure ---- */

static dp_status broken(const checker *c, uint32_t id, const char *law) {
  char shown[128];
  return dp_fail(c->error, DP_INTERNAL, "program: instruction %" PRIu32 " (%s) %s", id,
                 plan_instruction_show(c->program, id, shown), law);
}

static dp_status check_lanes(checker *c) {
  const plan_program *p = c->program;
  const char *const law = "program: lane %" PRIu32 " is not where the lanes before it end, or not its worker's";
  uint32_t end = 0;
  if (p->worker_lane[0] != 0 || p->worker_lane[p->worker_count] != p->lane_count || p->wait_first[0] != 0)
    return dp_fail(c->error, DP_INTERNAL, "program: the workers' lanes are not all lanes");
  for (uint32_t w = 0; w < (uint32_t)p->worker_count; w++) {
    if (p->worker_lane[w + 1] <= p->worker_lane[w])
      return dp_fail(c->error, DP_INTERNAL, "program: worker %" PRIu32 " has no lane", w);
    for (uint32_t l = p->worker_lane[w]; l < p->worker_lane[w + 1]; l++) {
      const plan_lane *lane = &p->lanes[l];
      const bool first = l == p->worker_lane[w];
      if (lane->worker != w || lane->first != end || lane->count > p->instruction_count - end ||
          (lane->kind == PLAN_LANE_COMPUTE) != first)
        return dp_fail(c->error, DP_INTERNAL, law, l);
      for (end += lane->count; c->next[l] < lane->count; c->next[l]++) c->lane_of[lane->first + c->next[l]] = l;
    }
  }
  if (end != p->instruction_count) return dp_fail(c->error, DP_INTERNAL, "program: the lanes are not all instructions");
  return DP_OK;
}

static dp_status check_transfer(const checker *c, uint32_t id, const plan_lane *lane) {
  const plan_program *p = c->program;
  const plan_instruction *i = &p->instructions[id];
  const bool send = i->opcode == PLAN_SEND;
  if (lane->kind != (send ? PLAN_LANE_SEND : PLAN_LANE_RECV)) return broken(c, id, "is on a lane of another kind");
  if (i->class_id >= p->message_count) return broken(c, id, "has no message");
  const plan_message *message = &p->messages[i->class_id];
  if ((send ? message->from_worker : message->to_worker) != lane->worker ||
      (send ? message->to_worker : message->from_worker) != lane->peer || message->backward != lane->backward)
    return broken(c, id, "is not on the lane of its message's ends");
  if (i->peer >= p->instruction_count) return broken(c, id, "has no peer");
  const plan_instruction *peer = &p->instructions[i->peer];
  if (peer->opcode != (send ? PLAN_RECV : PLAN_SEND) || peer->peer != id || peer->class_id != i->class_id)
    return broken(c, id, "and its peer do not name each other with one message");
  if (i->chunk != (send ? message->from_chunk : message->to_chunk))
    return broken(c, id, "is not of its message's chunk");
  const bool latent = !message->backward && message->to_chunk < message->from_chunk;
  if (!latent && peer->microbatch != i->microbatch) return broken(c, id, "and its peer are of two microbatches");
  return DP_OK;
}

static dp_status check_reduce(checker *c, uint32_t id, const plan_lane *lane) {
  const plan_program *p = c->program;
  const plan_instruction *i = &p->instructions[id];
  if (lane->kind != PLAN_LANE_COLLECTIVE) return broken(c, id, "is on a lane of another kind");
  if (i->peer >= p->group_count || p->group_class[i->peer] != i->class_id || i->class_id >= p->collective_count)
    return broken(c, id, "has no group");
  const plan_collective *collective = &p->collectives[i->class_id];
  const uint32_t place = c->group_ready[i->peer]++;
  /* members ascend, as workers do here */
  if (place >= collective->member_count || p->group_members[collective->first_member + place] != lane->worker)
    return broken(c, id, "is not what its group has next");
  return DP_OK;
}

static dp_status check_instructions(checker *c) {
  const plan_program *p = c->program;
  for (uint32_t id = 0; id < p->instruction_count; id++) {
    const plan_instruction *i = &p->instructions[id];
    const plan_lane *lane = &p->lanes[c->lane_of[id]];
    if (i->opcode == PLAN_SEND || i->opcode == PLAN_RECV) {
      DP_TRY(check_transfer(c, id, lane));
    } else if (i->opcode == PLAN_ALL_REDUCE) {
      DP_TRY(check_reduce(c, id, lane));
    } else {
      if (lane->kind != PLAN_LANE_COMPUTE || i->opcode >= PLAN_OPCODE_COUNT)
        return broken(c, id, "is on a lane of another kind");
      if (i->class_id >= p->work_count || p->works[i->class_id].worker != lane->worker ||
          p->works[i->class_id].opcode != i->opcode)
        return broken(c, id, "has no work class of its own worker and kind");
    }
    if (p->wait_first[id + 1] < p->wait_first[id]) return broken(c, id, "has fewer than no waits");
    for (uint32_t w = p->wait_first[id]; w < p->wait_first[id + 1]; w++)
      if (p->waits[w] >= p->instruction_count || p->lanes[c->lane_of[p->waits[w]]].worker != lane->worker)
        return broken(c, id, "waits for an instruction of another worker");
  }
  for (uint32_t g = 0; g < p->group_count; g++) {
    if (c->group_ready[g] != p->collectives[p->group_class[g]].member_count)
      return dp_fail(c->error, DP_INTERNAL, "program: group %" PRIu32 " has %" PRIu32 " of %" PRIu32 " members", g,
                     c->group_ready[g], p->collectives[p->group_class[g]].member_count);
    c->group_ready[g] = 0;
  }
  return DP_OK;
}

/* ---- play ---- */

static bool has(const uint64_t *bits, uint32_t id) { return bits[id / 64] >> (id % 64) & 1; }
static void set(uint64_t *bits, uint32_t id) { bits[id / 64] |= UINT64_C(1) << (id % 64); }

static void finish(checker *c, uint32_t lane) {
  const uint32_t id = c->next[lane]++;
  c->waited[lane] = 0;
  set(c->done, id);
  for (uint32_t queued = c->queue[id]; queued; queued = c->queue_next[queued - 1]) c->stack[c->height++] = queued - 1;
}

static void play_lane(checker *c, uint32_t l) {
  const plan_program *p = c->program;
  const plan_lane *lane = &p->lanes[l];
  while (c->next[l] < lane->first + lane->count) {
    const uint32_t id = c->next[l];
    const plan_instruction *i = &p->instructions[id];
    const uint32_t *waits = &p->waits[p->wait_first[id]], count = p->wait_first[id + 1] - p->wait_first[id];
    while (c->waited[l] < count && has(c->done, waits[c->waited[l]])) c->waited[l]++;
    if (c->waited[l] < count) {
      c->queue_next[l] = c->queue[waits[c->waited[l]]];
      c->queue[waits[c->waited[l]]] = l + 1;
      return;
    }
    if (i->opcode == PLAN_SEND || i->opcode == PLAN_RECV) {
      if (!has(c->ready, i->peer)) {
        set(c->ready, id);
        return;
      }
      const uint32_t other = c->lane_of[i->peer];
      finish(c, other);
      c->stack[c->height++] = other;
    } else if (i->opcode == PLAN_ALL_REDUCE) {
      if (++c->group_ready[i->peer] < p->collectives[i->class_id].member_count) {
        set(c->ready, id);
        c->queue_next[l] = c->group_queue[i->peer];
        c->group_queue[i->peer] = l + 1;
        return;
      }
      for (uint32_t queued = c->group_queue[i->peer]; queued; queued = c->queue_next[queued - 1]) {
        finish(c, queued - 1);
        c->stack[c->height++] = queued - 1;
      }
    }
    finish(c, l);
  }
}

/* ---- the cycle ---- */

/* What the head of a stuck lane waits for. */
static uint32_t blocker(const checker *c, uint32_t l) {
  const plan_program *p = c->program;
  const uint32_t id = c->next[l];
  const plan_instruction *i = &p->instructions[id];
  if (!has(c->ready, id)) return p->waits[p->wait_first[id] + c->waited[l]];
  if (i->opcode != PLAN_ALL_REDUCE) return i->peer;
  const plan_collective *collective = &p->collectives[i->class_id];
  for (uint32_t m = 0; m < collective->member_count; m++) {
    const uint32_t worker = p->group_members[collective->first_member + m];
    for (uint32_t lane = p->worker_lane[worker]; lane < p->worker_lane[worker + 1]; lane++) {
      if (p->lanes[lane].kind != PLAN_LANE_COLLECTIVE) continue;
      for (uint32_t other = c->next[lane]; other < p->lanes[lane].first + p->lanes[lane].count; other++)
        if (p->instructions[other].peer == i->peer && !has(c->ready, other)) return other;
    }
  }
  return id;
}

static dp_status name_cycle(checker *c, uint32_t stuck) {
  const plan_program *p = c->program;
  /* from lane to lane until one comes again; waited + 1 marks are not needed any more: use queue_next as the mark */
  for (uint32_t l = 0; l < p->lane_count; l++) c->queue_next[l] = 0;
  uint32_t lane = stuck;
  for (; c->queue_next[lane] == 0; lane = c->lane_of[blocker(c, lane)]) c->queue_next[lane] = 1;
  dp_str text = {0};
  char shown[128];
  const uint32_t first = lane;
  do {
    const uint32_t wanted = blocker(c, lane), next = c->lane_of[wanted];
    dp_str_addf(&text, "%s%s waits for ", lane == first ? "" : "; ", plan_instruction_show(p, c->next[lane], shown));
    dp_str_add(&text, plan_instruction_show(p, wanted, shown));
    if (wanted != c->next[next]) dp_str_addf(&text, ", behind %s", plan_instruction_show(p, c->next[next], shown));
    lane = next;
  } while (lane != first && text.length < DP_ERROR_TEXT_BYTES);
  const dp_status status = dp_fail(c->error, DP_INTERNAL, "program: deadlock: %s", dp_str_text(&text));
  dp_str_free(&text);
  return status;
}

static dp_status check(checker *c, dp_arena *scratch) {
  const plan_program *p = c->program;
  const size_t lanes = p->lane_count, instructions = p->instruction_count, groups = p->group_count;
  c->lane_of = DP_ARENA_NEW(scratch, uint32_t, instructions);
  c->queue = DP_ARENA_NEW(scratch, uint32_t, instructions);
  c->next = DP_ARENA_NEW(scratch, uint32_t, lanes);
  c->waited = DP_ARENA_NEW(scratch, uint32_t, lanes);
  c->queue_next = DP_ARENA_NEW(scratch, uint32_t, lanes);
  c->stack = DP_ARENA_NEW(scratch, uint32_t, lanes);
  c->done = DP_ARENA_NEW(scratch, uint64_t, instructions / 64 + 1);
  c->ready = DP_ARENA_NEW(scratch, uint64_t, instructions / 64 + 1);
  c->group_ready = DP_ARENA_NEW(scratch, uint32_t, groups);
  c->group_queue = DP_ARENA_NEW(scratch, uint32_t, groups);
  if (!c->lane_of || !c->queue || !c->next || !c->waited || !c->queue_next || !c->stack || !c->done || !c->ready ||
      !c->group_ready || !c->group_queue)
    return dp_fail_memory(c->error);
  DP_TRY(check_lanes(c));
  DP_TRY(check_instructions(c));
  for (uint32_t l = 0; l < p->lane_count; l++) {
    c->next[l] = p->lanes[l].first;
    c->stack[c->height++] = p->lane_count - 1 - l;
  }
  while (c->height > 0) play_lane(c, c->stack[--c->height]);
  for (uint32_t l = 0; l < p->lane_count; l++)
    if (c->next[l] < p->lanes[l].first + p->lanes[l].count) return name_cycle(c, l);
  return DP_OK;
}

dp_status plan_program_check(const plan_program *program, dp_error *error) {
  dp_arena scratch = {0};
  checker c = {.program = program, .error = error};
  const dp_status status = check(&c, &scratch);
  dp_arena_free(&scratch);
  return status;
}
