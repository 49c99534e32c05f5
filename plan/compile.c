/* Instructions and their waits; copying a pipeline. */
#include "plan/compile.h"

#include <limits.h>
#include <string.h>

/* ---- instructions ---- */

static bool is_split(const plan_compiler *c, int chunk, int pass, uint32_t microbatch) {
  return c->chunks[chunk].parts > 1 && microbatch + 1 == (uint32_t)c->items &&
         pass == (c->split_backward ? PLAN_PASS_WEIGHT : PLAN_PASS_BACKWARD);
}

/* Ends the pass whose gradients are reduced between replicas. */
static bool is_reduced(const plan_compiler *c, int pass, uint32_t microbatch) {
  return c->plan->training && c->plan->replicas > 1 && microbatch + 1 == (uint32_t)c->items &&
         pass == (c->split_backward ? PLAN_PASS_WEIGHT : PLAN_PASS_BACKWARD);
}

static uint32_t collective_lane(const plan_compiler *c, int rank) {
  return (rank + 1 < c->plan->ranks ? c->program->worker_lane[rank + 1] : c->lanes) - 1;
}

static void make_compute(plan_compiler *c, int rank) {
  const plan_plan *plan = c->plan;
  plan_program *program = c->program;
  uint32_t at = program->lanes[program->worker_lane[rank]].first;
  for (int i = 0; i < plan->order_count[rank]; i++) {
    const plan_step *step = &plan->order[rank][i];
    const plan_compile_chunk *chunk = &c->chunks[step->chunk];
    const int pass = plan_compile_pass(step->opcode);
    const bool split = is_split(c, step->chunk, pass, step->microbatch);
    const int parts = split ? chunk->parts : 1;
    for (int p = 0; p < parts; p++)
      program->instructions[at++] = (plan_instruction){step->opcode,
                                                       (uint8_t)p,
                                                       step->chunk,
                                                       step->microbatch,
                                                       split ? chunk->part_work + (uint32_t)p : chunk->work[pass],
                                                       PLAN_NO_PEER};
    c->instruction[c->first_step[rank] + (uint32_t)i] = at - 1;
    if (!is_reduced(c, pass, step->microbatch)) continue;
    const uint32_t lane = collective_lane(c, rank);
    for (int p = 0; p < parts; p++) {
      const uint32_t group = chunk->first_group + (uint32_t)p;
      program->instructions[program->lanes[lane].first + c->cursor[lane]++] = (plan_instruction){
          PLAN_ALL_REDUCE, (uint8_t)p, step->chunk, step->microbatch, program->group_class[group], group};
    }
  }
  if (!plan->training) return;
  const uint16_t chunk = (uint16_t)c->rank_chunks[c->rank_first[rank]];
  program->instructions[at] =
      (plan_instruction){PLAN_OPTIMIZER_STEP, 0, chunk, 0, c->optimizer_work[rank], PLAN_NO_PEER};
  if (c->norm_group == PLAN_NO_PEER) return;
  const uint32_t lane = collective_lane(c, rank);
  program->instructions[program->lanes[lane].first + c->cursor[lane]++] =
      (plan_instruction){PLAN_ALL_REDUCE, 0, chunk, 0, program->group_class[c->norm_group], c->norm_group};
}

/* Sends and receives take their places on their lanes in the order in which the sender makes the messages. */
static void make_transfers(plan_compiler *c, int rank) {
  const plan_plan *plan = c->plan;
  plan_program *program = c->program;
  for (int i = 0; i < plan->order_count[rank]; i++) {
    const plan_step *step = &plan->order[rank][i];
    const int direction = plan_compile_pass(step->opcode);
    if (direction == PLAN_PASS_WEIGHT) continue;
    const plan_compile_chunk *chunk = &c->chunks[step->chunk];
    for (int f = chunk->first_out[direction]; f < chunk->first_out[direction] + chunk->out_count[direction]; f++) {
      const plan_flow *flow = &c->traffic.flows[f];
      const uint32_t count = plan_compile_flow_items(c, flow);
      if (step->microbatch >= count) continue;
      const uint32_t place = c->cursor[c->send_lane[f]]++;
      const uint32_t send = program->lanes[c->send_lane[f]].first + place;
      const uint32_t recv = program->lanes[c->recv_lane[f]].first + place;
      program->instructions[send] = (plan_instruction){PLAN_SEND, 0, step->chunk, step->microbatch, (uint32_t)f, recv};
      program->instructions[recv] = (plan_instruction){
          PLAN_RECV, 0, (uint16_t)flow->to_chunk, step->microbatch + (uint32_t)c->items - count, (uint32_t)f, send};
      c->sends[(size_t)f * (size_t)c->items + step->microbatch] = send;
    }
  }
}

/* ---- waits ---- */

/* When each receive of a lane is posted: after which step of its rank, NONE: at once. By the law of compile.h. */
static void post_receives(plan_compiler *c, uint32_t lane_id) {
  const plan_lane *lane = &c->program->lanes[lane_id];
  const int rank = (int)lane->worker;
  const int *level = &c->level[c->first_step[rank]];
  int limit = INT_MAX, post = INT_MAX;
  int below = c->plan->order_count[rank]; /* steps whose level is below the limit */
  for (uint32_t id = lane->first + lane->count; id-- > lane->first;) {
    const plan_instruction *recv = &c->program->instructions[id];
    const plan_flow *flow = &c->traffic.flows[recv->class_id];
    const int direction = flow->backward;
    const uint32_t sent = c->program->instructions[recv->peer].microbatch, slots = (uint32_t)c->slots[recv->class_id];
    if (slots && sent + slots < plan_compile_flow_items(c, flow)) {
      const int from = c->plan->chunks[flow->from_chunk].rank;
      const int next =
          c->level[c->first_step[from] + (uint32_t)c->chunks[flow->from_chunk].step[direction][sent + slots]];
      if (next < limit) limit = next;
      while (below > 0 && level[below - 1] >= limit) below--;
    }
    const int use = c->chunks[flow->to_chunk].step[direction][recv->microbatch];
    if (use - PLAN_PREFETCH < post) post = use - PLAN_PREFETCH;
    if (below - 1 < post) post = below - 1;
    if (post < 0) return; /* this one and all before it are posted at once */
    c->post[id] = (uint32_t)post + 1;
  }
}

/* The waits of instruction `id`, into `waits` when that is not NULL; returns how many. The first part of a step waits
 * for what it reads, the last part for the buffer that it fills. */
static uint32_t step_waits(const plan_compiler *c, const plan_step *step, bool first, bool last, uint32_t *waits) {
  const int direction = plan_compile_pass(step->opcode);
  uint32_t count = 0;
  if (direction == PLAN_PASS_WEIGHT) return 0;
  const plan_compile_chunk *chunk = &c->chunks[step->chunk];
  for (int i = 0; first && i < chunk->in_count[direction]; i++) {
    const int f = c->entering[chunk->first_in[direction] + i];
    const plan_flow *flow = &c->traffic.flows[f];
    const uint32_t shift = (uint32_t)c->items - plan_compile_flow_items(c, flow);
    if (step->microbatch < shift) continue;
    if (waits) {
      const uint32_t send = c->sends[(size_t)f * (size_t)c->items + step->microbatch - shift];
      waits[count] = c->program->instructions[send].peer;
    }
    count++;
  }
  for (int f = chunk->first_out[direction]; last && f < chunk->first_out[direction] + chunk->out_count[direction];
       f++) {
    const uint32_t slots = (uint32_t)c->slots[f];
    if (!slots || step->microbatch < slots || step->microbatch >= plan_compile_flow_items(c, &c->traffic.flows[f]))
      continue;
    if (waits) waits[count] = c->sends[(size_t)f * (size_t)c->items + step->microbatch - slots];
    count++;
  }
  return count;
}

/* The waits of all instructions of a rank, in order: counted into wait_first[id + 1], or written. */
static void rank_waits(plan_compiler *c, int rank, bool count_only) {
  plan_program *program = c->program;
  const plan_plan *plan = c->plan;
  uint32_t *first = program->wait_first;
  const uint32_t lane_end = rank + 1 < plan->ranks ? program->worker_lane[rank + 1] : c->lanes;
  const plan_lane *compute = &program->lanes[program->worker_lane[rank]];
  uint32_t id = compute->first;
  for (int i = 0; i < plan->order_count[rank]; i++)
    for (const uint32_t end = c->instruction[c->first_step[rank] + (uint32_t)i]; id <= end; id++) {
      const plan_step *step = &plan->order[rank][i];
      const uint32_t count = step_waits(c, step, program->instructions[id].part == 0, id == end,
                                        count_only ? NULL : &program->waits[first[id]]);
      if (count_only) first[id + 1] = count;
    }
  for (uint32_t l = program->worker_lane[rank] + 1; l < lane_end; l++) {
    const plan_lane *lane = &program->lanes[l];
    for (uint32_t at = lane->first; at < lane->first + lane->count; at++) {
      const plan_instruction *instruction = &program->instructions[at];
      if (count_only) {
        first[at + 1] = lane->kind != PLAN_LANE_RECV || c->post[at] ? 1 : 0;
        continue;
      }
      const plan_compile_chunk *chunk = &c->chunks[instruction->chunk];
      uint32_t wait = 0;
      if (lane->kind == PLAN_LANE_RECV) {
        if (!c->post[at]) continue;
        wait = c->instruction[c->first_step[rank] + c->post[at] - 1];
      } else if (lane->kind == PLAN_LANE_SEND) {
        wait = c->instruction[c->first_step[rank] + (uint32_t)chunk->step[lane->backward][instruction->microbatch]];
      } else if (instruction->peer == c->norm_group) { /* all is computed but the optimizer step */
        wait = compute->first + compute->count - 2;
      } else {
        const int pass = c->split_backward ? PLAN_PASS_WEIGHT : PLAN_PASS_BACKWARD;
        wait = c->instruction[c->first_step[rank] + (uint32_t)chunk->step[pass][instruction->microbatch]] -
               (uint32_t)(chunk->parts - 1) + instruction->part;
      }
      program->waits[first[at]] = wait;
    }
  }
  if (!plan->training) return;
  const plan_lane *last = &program->lanes[lane_end - 1]; /* the optimizer waits for the collectives */
  const uint32_t optimizer = compute->first + compute->count - 1,
                 reduces = last->kind == PLAN_LANE_COLLECTIVE ? last->count : 0;
  if (count_only) first[optimizer + 1] = reduces;
  for (uint32_t i = 0; !count_only && i < reduces; i++) program->waits[first[optimizer] + i] = last->first + i;
}

static dp_status make_waits(plan_compiler *c) {
  plan_program *program = c->program;
  uint32_t *first = program->wait_first;
  c->post = PLAN_SCRATCH(c, uint32_t, c->instructions);
  if (!c->post) return dp_fail_memory(c->error);
  for (uint32_t l = 0; l < c->lanes; l++)
    if (program->lanes[l].kind == PLAN_LANE_RECV) post_receives(c, l);
  for (int r = 0; r < c->plan->ranks; r++) rank_waits(c, r, true);
  uint64_t total = 0;
  for (uint32_t i = 1; i <= c->instructions; i++) {
    total += first[i];
    if (total * (uint64_t)plan_copy_count(c->plan) > UINT32_MAX)
      return dp_fail(c->error, DP_BAD_INPUT, "plan: found more than %u dependencies", UINT32_MAX);
    first[i] = (uint32_t)total;
  }
  c->waits = (uint32_t)total;
  program->waits = PLAN_KEEP(c, uint32_t, total * (uint64_t)plan_copy_count(c->plan));
  if (!program->waits) return dp_fail_memory(c->error);
  for (int r = 0; r < c->plan->ranks; r++) rank_waits(c, r, false);
  return DP_OK;
}

/* ---- replicas and members of tensor groups ---- */

static void copy_pipeline(plan_compiler *c, uint32_t copy) {
  plan_program *program = c->program;
  const uint32_t workers = copy * (uint32_t)c->plan->ranks, first_instruction = copy * c->instructions;
  const uint32_t first_work = copy * c->works, first_message = copy * c->messages;
  const uint32_t first_group = copy % (uint32_t)plan_tensor(c->plan) * c->groups;
  for (uint32_t r = 0; r < (uint32_t)c->plan->ranks; r++)
    program->worker_lane[workers + r] = program->worker_lane[r] + copy * c->lanes;
  for (uint32_t l = 0; l < c->lanes; l++) {
    plan_lane *lane = &program->lanes[copy * c->lanes + l];
    *lane = program->lanes[l];
    lane->worker += workers;
    lane->first += first_instruction;
    if (lane->peer != PLAN_NO_PEER) lane->peer += workers;
  }
  for (uint32_t i = 0; i < c->instructions; i++) {
    plan_instruction *instruction = &program->instructions[first_instruction + i];
    *instruction = program->instructions[i];
    const uint8_t opcode = instruction->opcode;
    if (opcode == PLAN_SEND || opcode == PLAN_RECV) {
      instruction->peer += first_instruction;
      instruction->class_id += first_message;
    } else if (opcode == PLAN_ALL_REDUCE) {     /* groups and their classes are common to the replicas of a member */
      if (instruction->peer != c->norm_group) { /* that is common to all */
        instruction->peer += first_group;
        instruction->class_id += first_group;
      }
    } else {
      instruction->class_id += first_work;
    }
    program->wait_first[first_instruction + i + 1] = program->wait_first[i + 1] + copy * c->waits;
  }
  for (uint32_t i = 0; i < c->waits; i++) program->waits[copy * c->waits + i] = program->waits[i] + first_instruction;
  for (uint32_t i = 0; i < c->works; i++) {
    program->works[first_work + i] = program->works[i];
    program->works[first_work + i].worker += workers;
  }
  for (uint32_t i = 0; i < c->messages; i++) {
    program->messages[first_message + i] = program->messages[i];
    program->messages[first_message + i].from_worker += workers;
    program->messages[first_message + i].to_worker += workers;
  }
}

static dp_status compile(plan_compiler *c) {
  DP_TRY(plan_compile_order(c));
  DP_TRY(plan_compile_layout(c));
  const int ranks = c->plan->ranks;
  c->instruction = PLAN_SCRATCH(c, uint32_t, c->first_step[ranks]);
  c->sends = PLAN_SCRATCH(c, uint32_t, (size_t)c->messages * (size_t)c->items);
  if (!c->instruction || !c->sends) return dp_fail_memory(c->error);
  for (int r = 0; r < ranks; r++) make_compute(c, r);
  for (int r = 0; r < ranks; r++) make_transfers(c, r);
  DP_TRY(make_waits(c));
  for (int i = 1; i < plan_copy_count(c->plan); i++) copy_pipeline(c, (uint32_t)i);
  c->program->worker_lane[c->program->worker_count] = c->program->lane_count;
  return DP_OK;
}

dp_status plan_compile(const plan_plan *plan, const graph *g, plan_program *program, dp_error *error) {
  *program = (plan_program){.plan = plan};
  plan_compiler c = {.plan = plan, .graph = g, .program = program, .error = error};
  const dp_status status = compile(&c);
  dp_arena_free(&c.scratch);
  if (status != DP_OK) plan_program_free(program);
  return status;
}
