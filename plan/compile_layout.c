#include <stdlib.h>
#include <string.h>

#include "graph/shard.h"
#include "plan/compile.h"

enum { MAX_PARTS = 255 };

/* Lanes other than compute, before they have numbers. */
typedef struct lane_key {
  uint32_t rank, peer;
  uint16_t kind, backward;
} lane_key;

/* ---- flows and lanes ---- */

uint32_t plan_compile_flow_items(const plan_compiler *c, const plan_flow *flow) {
  const bool latent = !flow->backward && flow->to_chunk < flow->from_chunk;
  return (uint32_t)(latent ? c->items - c->plan->microbatches : c->items);
}

/* Forward tensors in training stay where they were made until that microbatch's backward, which proves that they were
 * sent. Everything else is sent from buffers that are used in turns. */
static int flow_slots(const plan_compiler *c, const plan_flow *flow) {
  if (c->plan->training && !flow->backward && !flow->relayed) return 0;
  const int distance = abs(flow->to_chunk - flow->from_chunk);
  const bool latent = !flow->backward && flow->to_chunk < flow->from_chunk;
  return distance <= 1 || latent ? 2 : 1 + distance;
}

static int compare_lanes(const void *left, const void *right) {
  const lane_key *a = left, *b = right;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->peer != b->peer) return a->peer < b->peer ? -1 : 1;
  return (a->backward > b->backward) - (a->backward < b->backward);
}

static dp_status index_flows(plan_compiler *c) {
  const plan_plan *plan = c->plan;
  const plan_traffic_table *table = &c->traffic;
  c->entering = PLAN_SCRATCH(c, int, table->flow_count);
  c->slots = PLAN_SCRATCH(c, int, table->flow_count);
  c->send_lane = PLAN_SCRATCH(c, uint32_t, table->flow_count);
  c->recv_lane = PLAN_SCRATCH(c, uint32_t, table->flow_count);
  if (!c->entering || !c->slots || !c->send_lane || !c->recv_lane) return dp_fail_memory(c->error);
  for (int f = 0; f < table->flow_count; f++) {
    const plan_flow *flow = &table->flows[f];
    plan_compile_chunk *from = &c->chunks[flow->from_chunk];
    if (from->out_count[flow->backward]++ == 0) from->first_out[flow->backward] = f;
    c->chunks[flow->to_chunk].in_count[flow->backward]++;
    c->slots[f] = flow_slots(c, flow);
  }
  int at = 0;
  for (int k = 0; k < plan->chunk_count; k++)
    for (int d = 0; d < 2; d++) {
      c->chunks[k].first_in[d] = at;
      at += c->chunks[k].in_count[d];
      c->chunks[k].in_count[d] = 0;
    }
  for (int f = 0; f < table->flow_count; f++) {
    plan_compile_chunk *to = &c->chunks[table->flows[f].to_chunk];
    const int d = table->flows[f].backward;
    c->entering[to->first_in[d] + to->in_count[d]++] = f;
  }
  return DP_OK;
}

static dp_status index_ranks(plan_compiler *c) {
  const plan_plan *plan = c->plan;
  c->rank_chunks = PLAN_SCRATCH(c, int, plan->chunk_count);
  c->rank_first = PLAN_SCRATCH(c, int, plan->ranks + 1);
  int *next = PLAN_SCRATCH(c, int, plan->ranks);
  if (!c->rank_chunks || !c->rank_first || !next) return dp_fail_memory(c->error);
  for (int k = 0; k < plan->chunk_count; k++) c->rank_first[plan->chunks[k].rank + 1]++;
  for (int r = 0; r < plan->ranks; r++)
    if (c->rank_first[r + 1] == 0)
      return dp_fail(c->error, DP_BAD_INPUT, "plan: found no chunk on stage %d, allowed: 1 or more", r);
  for (int r = 0; r < plan->ranks; r++) next[r] = c->rank_first[r + 1] += c->rank_first[r];
  for (int k = plan->chunk_count - 1; k >= 0; k--) c->rank_chunks[--next[plan->chunks[k].rank]] = k;
  return DP_OK;
}

/* The parts of the last backward, whose gradients are reduced between replicas as soon as each is done. */
static void set_parts(plan_compiler *c) {
  const plan_plan *plan = c->plan;
  for (int k = 0; k < plan->chunk_count; k++) {
    int parts = plan->training && plan->replicas > 1 ? plan->gradient_buckets : 1;
    if (parts > plan->chunks[k].unit_count) parts = plan->chunks[k].unit_count;
    if (parts > MAX_PARTS) parts = MAX_PARTS;
    c->chunks[k].parts = parts > 1 ? parts : 1;
  }
}

static lane_key send_key(const plan_compiler *c, const plan_flow *flow) {
  const plan_chunk *chunks = c->plan->chunks;
  return (lane_key){(uint32_t)chunks[flow->from_chunk].rank, (uint32_t)chunks[flow->to_chunk].rank, PLAN_LANE_SEND,
                    flow->backward};
}

static lane_key recv_key(const plan_compiler *c, const plan_flow *flow) {
  const plan_chunk *chunks = c->plan->chunks;
  return (lane_key){(uint32_t)chunks[flow->to_chunk].rank, (uint32_t)chunks[flow->from_chunk].rank, PLAN_LANE_RECV,
                    flow->backward};
}

static uint32_t find_lane(const lane_key *keys, uint32_t count, const lane_key *key) {
  return (uint32_t)((const lane_key *)bsearch(key, keys, count, sizeof *keys, compare_lanes) - keys);
}

/* Numbers and sizes of lanes and instructions of one replica. */
static dp_status lay_out_lanes(plan_compiler *c) {
  const plan_plan *plan = c->plan;
  const uint32_t flows = (uint32_t)c->traffic.flow_count, ranks = (uint32_t)plan->ranks;
  const bool collective = plan_reduces(plan), norm = collective && plan->global_norm;
  lane_key *keys = PLAN_SCRATCH(c, lane_key, 2 * (size_t)flows + 2 * (size_t)ranks);
  if (!keys) return dp_fail_memory(c->error);
  uint32_t count = 0;
  for (uint32_t r = 0; r < ranks; r++) {
    keys[count++] = (lane_key){r, PLAN_NO_PEER, PLAN_LANE_COMPUTE, 0};
    if (collective) keys[count++] = (lane_key){r, PLAN_NO_PEER, PLAN_LANE_COLLECTIVE, 0};
  }
  for (uint32_t f = 0; f < flows; f++) {
    keys[count++] = send_key(c, &c->traffic.flows[f]);
    keys[count++] = recv_key(c, &c->traffic.flows[f]);
  }
  qsort(keys, count, sizeof *keys, compare_lanes);
  uint32_t unique = 0;
  for (uint32_t i = 0; i < count; i++)
    if (i == 0 || compare_lanes(&keys[i], &keys[unique - 1]) != 0) keys[unique++] = keys[i];
  c->lanes = unique;

  uint64_t *size = PLAN_SCRATCH(c, uint64_t, unique);
  c->cursor = PLAN_SCRATCH(c, uint32_t, unique);
  if (!size || !c->cursor) return dp_fail_memory(c->error);
  for (uint32_t f = 0; f < flows; f++) {
    const plan_flow *flow = &c->traffic.flows[f];
    const lane_key send = send_key(c, flow), recv = recv_key(c, flow);
    c->send_lane[f] = find_lane(keys, unique, &send);
    c->recv_lane[f] = find_lane(keys, unique, &recv);
    size[c->send_lane[f]] += plan_compile_flow_items(c, flow);
    size[c->recv_lane[f]] += plan_compile_flow_items(c, flow);
  }
  uint64_t total = 0;
  for (uint32_t l = 0; l < unique; l++) {
    const int rank = (int)keys[l].rank;
    uint64_t parts = 0, chunks = 0;
    for (int k = c->rank_first[rank]; k < c->rank_first[rank + 1]; k++, chunks++)
      parts += (uint64_t)c->chunks[c->rank_chunks[k]].parts;
    if (keys[l].kind == PLAN_LANE_COMPUTE)
      size[l] = (uint64_t)plan->order_count[rank] + parts - chunks + plan->training;
    if (keys[l].kind == PLAN_LANE_COLLECTIVE) size[l] = (plan->replicas > 1 ? parts : 0) + norm;
    total += size[l];
  }
  const uint32_t copies = (uint32_t)plan_copy_count(plan);
  if (total * (uint64_t)copies >= PLAN_NO_PEER / 2)
    return dp_fail(c->error, DP_BAD_INPUT, "plan: found %.3g instructions, allowed: at most %u", (double)total * copies,
                   PLAN_NO_PEER / 2);
  plan_program *program = c->program;
  c->instructions = (uint32_t)total;
  program->worker_count = plan_worker_count(plan);
  program->lane_count = unique * copies;
  program->instruction_count = c->instructions * copies;
  program->worker_lane = PLAN_KEEP(c, uint32_t, program->worker_count + 1);
  program->lanes = PLAN_KEEP(c, plan_lane, program->lane_count);
  program->instructions = PLAN_KEEP(c, plan_instruction, program->instruction_count);
  program->wait_first = PLAN_KEEP(c, uint32_t, (size_t)program->instruction_count + 1);
  if (!program->worker_lane || !program->lanes || !program->instructions || !program->wait_first)
    return dp_fail_memory(c->error);
  uint32_t first = 0;
  for (uint32_t l = 0; l < unique; l++) {
    program->lanes[l] =
        (plan_lane){keys[l].rank, keys[l].kind, keys[l].backward, keys[l].peer, first, (uint32_t)size[l]};
    if (keys[l].kind == PLAN_LANE_COMPUTE) program->worker_lane[keys[l].rank] = l;
    first += (uint32_t)size[l];
  }
  return DP_OK;
}

/* ---- classes ---- */

/* Cuts the chunk's units from its end into `parts` runs of about equal parameters, each of one unit or more. */
static void cut_part(const plan_compiler *c, int chunk, int part, uint32_t *first, uint32_t *count) {
  const plan_chunk *units = &c->plan->chunks[chunk];
  const graph_unit *all = &c->graph->units.items[units->first_unit];
  const int parts = c->chunks[chunk].parts;
  double total = 0, sum = 0;
  for (int u = 0; u < units->unit_count; u++) total += (double)all[u].trainable_parameters;
  int end = units->unit_count;
  for (int p = 0; p <= part; p++) {
    int start = end;
    while (start > parts - 1 - p) { /* leave a unit for each part to come */
      const double unit = total > 0 ? (double)all[start - 1].trainable_parameters : 1;
      const double goal = (total > 0 ? total : units->unit_count) * (p + 1) / parts;
      if (start < end && p < parts - 1 && sum + unit / 2 > goal) break;
      sum += unit;
      start--;
    }
    *first = (uint32_t)(units->first_unit + start);
    *count = (uint32_t)(end - start);
    end = start;
  }
}

static int64_t gradient_bytes(const plan_compiler *c, uint32_t first, uint32_t count) {
  int64_t parameters = 0;
  for (uint32_t u = first; u < first + count; u++) parameters += c->graph->units.items[u].trainable_parameters;
  for (int i = 0; i < c->program->compressor_count; i++) {
    const plan_compressor *compressor = &c->program->compressors[i];
    if (!compressor->trained) continue;
    if ((uint32_t)compressor->down_unit - first < count) parameters += compressor->parameters;
    if ((uint32_t)compressor->up_unit - first < count) parameters += compressor->parameters;
  }
  return parameters * (c->plan->gradient_fp32 ? 4 : graph_dtype_bytes(c->graph->precision));
}

/* What a member sends in one direction of a unit. */
static int64_t unit_tensor_bytes(const plan_compiler *c, const graph_unit *unit, bool backward) {
  int64_t bytes = 0;
  for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++) {
    const graph_op *op = &c->graph->ops.items[o];
    bytes += graph_collective_sent_bytes(backward ? &op->backward_input : &op->forward, plan_tensor(c->plan));
  }
  return bytes;
}

/* Units run forward again where they are recomputed; the optimizer step begins with the sum of partial gradients. */
static int64_t work_tensor_bytes(const plan_compiler *c, const plan_work *work) {
  const plan_plan *plan = c->plan;
  int64_t bytes = 0;
  if (plan_tensor(plan) == 1) return 0;
  if (work->opcode == PLAN_OPTIMIZER_STEP) {
    const graph_work sum = {.collective = GRAPH_COLLECTIVE_ALL_REDUCE,
                            .collective_bytes = plan_partial_gradient_bytes(plan, c->graph, (int)work->worker)};
    return graph_collective_sent_bytes(&sum, plan_tensor(plan));
  }
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) {
    const graph_unit *unit = &c->graph->units.items[u];
    const bool input = work->opcode == PLAN_BACKWARD || work->opcode == PLAN_BACKWARD_INPUT;
    if (input) bytes += unit_tensor_bytes(c, unit, true);
    if (work->opcode == PLAN_FORWARD || (input && plan->recompute && plan->recompute[u]))
      bytes += unit_tensor_bytes(c, unit, false);
  }
  return bytes;
}

static dp_status make_works(plan_compiler *c) {
  const plan_plan *plan = c->plan;
  plan_program *program = c->program;
  uint32_t count = plan->training ? (uint32_t)plan->ranks : 0;
  for (int k = 0; k < plan->chunk_count; k++)
    count += (!plan->training     ? 1u
              : c->split_backward ? 3u
                                  : 2u) +
             (uint32_t)(c->chunks[k].parts > 1 ? c->chunks[k].parts : 0);
  c->works = count;
  program->work_count = count * (uint32_t)plan_copy_count(plan);
  program->works = PLAN_KEEP(c, plan_work, program->work_count);
  if (!program->works) return dp_fail_memory(c->error);
  c->optimizer_work = PLAN_SCRATCH(c, uint32_t, plan->ranks);
  if (!c->optimizer_work) return dp_fail_memory(c->error);
  plan_work *work = program->works;
  for (int r = 0; r < plan->ranks; r++) {
    for (int i = c->rank_first[r]; i < c->rank_first[r + 1]; i++) {
      const int k = c->rank_chunks[i];
      plan_compile_chunk *chunk = &c->chunks[k];
      const plan_chunk *units = &plan->chunks[k];
      const plan_work whole = {
          PLAN_FORWARD, 0, 1, (uint16_t)k, (uint32_t)r, (uint32_t)units->first_unit, (uint32_t)units->unit_count, 0};
      const uint8_t opcodes[PLAN_PASS_COUNT] = {PLAN_FORWARD, c->split_backward ? PLAN_BACKWARD_INPUT : PLAN_BACKWARD,
                                                PLAN_BACKWARD_WEIGHT};
      for (int pass = 0; pass < (!plan->training ? 1 : c->split_backward ? 3 : 2); pass++) {
        chunk->work[pass] = (uint32_t)(work - program->works);
        *work = whole;
        (work++)->opcode = opcodes[pass];
      }
      chunk->part_work = (uint32_t)(work - program->works);
      for (int p = 0; chunk->parts > 1 && p < chunk->parts; p++, work++) {
        *work = whole;
        work->opcode = opcodes[c->split_backward ? PLAN_PASS_WEIGHT : PLAN_PASS_BACKWARD];
        work->part = (uint8_t)p;
        work->parts = (uint8_t)chunk->parts;
        cut_part(c, k, p, &work->first_unit, &work->unit_count);
      }
    }
    if (!plan->training) continue;
    const plan_chunk *first = &plan->chunks[c->rank_chunks[c->rank_first[r]]];
    c->optimizer_work[r] = (uint32_t)(work - program->works);
    *work++ = (plan_work){PLAN_OPTIMIZER_STEP,
                          0,
                          1,
                          (uint16_t)c->rank_chunks[c->rank_first[r]],
                          (uint32_t)r,
                          (uint32_t)first->first_unit,
                          (uint32_t)first->unit_count,
                          0};
  }
  for (uint32_t w = 0; w < count; w++) program->works[w].tensor_bytes = work_tensor_bytes(c, &program->works[w]);
  return DP_OK;
}

static dp_status make_messages(plan_compiler *c) {
  const plan_plan *plan = c->plan;
  plan_program *program = c->program;
  c->messages = (uint32_t)c->traffic.flow_count;
  program->message_count = c->messages * (uint32_t)plan_copy_count(plan);
  program->messages = PLAN_KEEP(c, plan_message, program->message_count);
  if (!program->messages) return dp_fail_memory(c->error);
  program->message_tensors = c->traffic.tensors;
  program->message_tensor_count = (uint32_t)c->traffic.tensor_count;
  for (uint32_t f = 0; f < c->messages; f++) {
    const plan_flow *flow = &c->traffic.flows[f];
    plan_message *message = &program->messages[f];
    *message = (plan_message){.from_worker = (uint32_t)plan->chunks[flow->from_chunk].rank,
                              .to_worker = (uint32_t)plan->chunks[flow->to_chunk].rank,
                              .from_chunk = (uint16_t)flow->from_chunk,
                              .to_chunk = (uint16_t)flow->to_chunk,
                              .backward = flow->backward,
                              .bytes = flow->bytes,
                              .first_tensor = flow->first_tensor,
                              .tensor_count = flow->tensor_count};
    memcpy(message->kind_bytes, flow->kind_bytes, sizeof message->kind_bytes);
  }
  return DP_OK;
}

/* Members of groups: for each rank and member of its tensor group the replicas; then, for the norm, all workers. */
static void list_members(const plan_compiler *c, uint32_t *members) {
  const plan_plan *plan = c->plan;
  const int tensor = plan_tensor(plan);
  for (int r = 0; r < plan->ranks; r++)
    for (int m = 0; m < tensor; m++)
      for (int i = 0; i < plan->replicas; i++)
        members[(r * tensor + m) * plan->replicas + i] = (uint32_t)plan_worker_of(plan, i, m, r);
  for (int w = 0; w < c->program->worker_count; w++) members[c->program->worker_count + w] = (uint32_t)w;
}

/* A collective class and a group for each part of each chunk's last backward and each member of the tensor group: the
 * same for all replicas. The last one is the norm's. */
static dp_status make_collectives(plan_compiler *c) {
  const plan_plan *plan = c->plan;
  plan_program *program = c->program;
  c->norm_group = PLAN_NO_PEER;
  if (!plan_reduces(plan)) return DP_OK;
  uint32_t count = 0;
  for (int k = 0; k < plan->chunk_count && plan->replicas > 1; k++) count += (uint32_t)c->chunks[k].parts;
  c->groups = count;
  count = count * (uint32_t)plan_tensor(plan) + (plan->global_norm ? 1 : 0);
  program->group_member_count = (uint32_t)program->worker_count * (plan->global_norm ? 2 : 1);
  program->collectives = PLAN_KEEP(c, plan_collective, count);
  program->group_class = PLAN_KEEP(c, uint32_t, count);
  program->group_members = PLAN_KEEP(c, uint32_t, 2 * (size_t)program->worker_count);
  if (!program->collectives || !program->group_class || !program->group_members) return dp_fail_memory(c->error);
  program->collective_count = program->group_count = count;
  list_members(c, program->group_members);
  const int tensor = plan_tensor(plan);
  count = 0;
  for (int m = 0; m < tensor && plan->replicas > 1; m++)
    for (int k = 0; k < plan->chunk_count; k++) {
      if (m == 0) c->chunks[k].first_group = count;
      for (int p = 0; p < c->chunks[k].parts; p++, count++) {
        plan_collective *collective = &program->collectives[count];
        *collective =
            (plan_collective){.first_member = (uint32_t)((plan->chunks[k].rank * tensor + m) * plan->replicas),
                              .member_count = (uint32_t)plan->replicas,
                              .chunk = (uint16_t)k,
                              .part = (uint8_t)p};
        cut_part(c, k, p, &collective->first_unit, &collective->unit_count);
        collective->bytes = gradient_bytes(c, collective->first_unit, collective->unit_count);
        program->group_class[count] = count;
      }
    }
  if (!plan->global_norm) return DP_OK;
  c->norm_group = program->group_class[count] = count;
  program->collectives[count] = (plan_collective){.bytes = (int64_t)sizeof(double),
                                                  .first_member = (uint32_t)program->worker_count,
                                                  .member_count = (uint32_t)program->worker_count,
                                                  .norm = 1};
  return DP_OK;
}

dp_status plan_compile_layout(plan_compiler *c) {
  DP_TRY(plan_traffic_build(c->plan, c->graph, &c->program->arena, &c->traffic, c->error));
  DP_TRY(index_ranks(c));
  DP_TRY(index_flows(c));
  set_parts(c);
  DP_TRY(lay_out_lanes(c));
  DP_TRY(make_works(c));
  DP_TRY(make_messages(c));
  DP_TRY(plan_compressors_make(c->program, c->graph, c->error));
  return make_collectives(c);
}
