/* The rules of each rank as buffers for every microbatch, and the persistent ones; peaks; offsets. */
#include "plan/memory.h"

#include <math.h>
#include <string.h>

#include "plan/compressor.h"
#include "plan/memory_rules.h"
#include "plan/places.h"

const char *const plan_memory_class_names[] = {"weights",  "gradients", "optimizer", "activations", "skips",
                                               "boundary", "workspace", "runtime",   NULL};

double plan_optimizer_bytes(plan_optimizer optimizer, graph_dtype precision, bool splits_masters) {
  static const double state_bytes[PLAN_OPTIMIZER_COUNT] = {
      [PLAN_ADAMW] = 8, [PLAN_ADAMW_8BIT] = 2, [PLAN_ADAFACTOR] = 0.01, [PLAN_SGD] = 4};
  const double master_bytes = precision == GRAPH_FP32 ? 0 : precision == GRAPH_BF16 && splits_masters ? 2 : 4;
  return state_bytes[optimizer] + master_bytes;
}

/* Positions on its rank's compute lane of a chunk's passes, by microbatch: first and last part. */
typedef struct positions {
  uint32_t *first[PLAN_PASS_COUNT], *last[PLAN_PASS_COUNT];
} positions;

typedef struct planner {
  plan_keeper keeper;
  const plan_memory_options *options;
  plan_memory *memory;
  dp_arena scratch;
  dp_error *error;
  positions *chunks;
  uint32_t *sends, *recvs; /* [message * items + microbatch of that end] instruction, NONE: no such transfer */
  uint32_t *release;       /* [instruction - the worker's first] of a SEND: 1 + first position that waits for it */
  int64_t *change_bytes;   /* [moment] */
  plan_keep_list list;
  int64_t gradients_begin_bytes, gradients_bytes; /* of the rank at hand, shared: from the beginning of SAVED */
} planner;

#define NONE UINT32_MAX
#define SCRATCH(p, type, count) DP_ARENA_NEW(&(p)->scratch, type, (size_t)(count))

static int64_t aligned(int64_t bytes) { return (bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT; }

/* ---- positions ---- */

static dp_status index_program(planner *p) {
  const plan_program *program = p->keeper.program;
  const plan_plan *plan = p->keeper.plan;
  const size_t items = (size_t)p->keeper.items, messages = plan_message_count(program);
  p->chunks = SCRATCH(p, positions, plan->chunk_count);
  p->sends = SCRATCH(p, uint32_t, messages * items);
  p->recvs = SCRATCH(p, uint32_t, messages * items);
  if (!p->chunks || !p->sends || !p->recvs) return dp_fail_memory(p->error);
  memset(p->sends, 0xff, messages * items * sizeof *p->sends);
  memset(p->recvs, 0xff, messages * items * sizeof *p->recvs);
  const int passes = !plan->training ? 1 : p->keeper.split_backward ? 3 : 2;
  for (int c = 0; c < plan->chunk_count; c++)
    for (int pass = 0; pass < passes; pass++) {
      p->chunks[c].first[pass] = SCRATCH(p, uint32_t, 2 * items);
      if (!p->chunks[c].first[pass]) return dp_fail_memory(p->error);
      p->chunks[c].last[pass] = p->chunks[c].first[pass] + items;
    }
  size_t most = 0, most_instructions = 0;
  for (int r = 0; r < plan->ranks; r++) {
    const uint32_t first = program->worker_lane[r], end = program->worker_lane[r + 1];
    const plan_lane *compute = &program->lanes[first], *last = &program->lanes[end - 1];
    if (compute->count > most) most = compute->count;
    if (last->first + last->count - compute->first > most_instructions)
      most_instructions = last->first + last->count - compute->first;
    for (uint32_t l = first; l < end; l++)
      for (uint32_t at = 0; at < program->lanes[l].count; at++) {
        const uint32_t id = program->lanes[l].first + at;
        const plan_instruction *i = &program->instructions[id];
        if (i->opcode == PLAN_SEND) p->sends[i->class_id * items + i->microbatch] = id;
        if (i->opcode == PLAN_RECV) p->recvs[i->class_id * items + i->microbatch] = id;
        if (i->opcode > PLAN_BACKWARD_WEIGHT) continue;
        positions *chunk = &p->chunks[i->chunk];
        const int pass = plan_compile_pass(i->opcode);
        if (i->part == 0) chunk->first[pass][i->microbatch] = at;
        chunk->last[pass][i->microbatch] = at;
      }
  }
  p->release = SCRATCH(p, uint32_t, most_instructions);
  p->change_bytes = SCRATCH(p, int64_t, 2 * most + 2);
  return p->release && p->change_bytes ? DP_OK : dp_fail_memory(p->error);
}

/* For each SEND of the worker, the first compute instruction that waits for it. */
static void index_releases(planner *p, int rank) {
  const plan_program *program = p->keeper.program;
  const uint32_t end_lane = program->worker_lane[rank + 1];
  const plan_lane *compute = &program->lanes[program->worker_lane[rank]], *last = &program->lanes[end_lane - 1];
  memset(p->release, 0, (last->first + last->count - compute->first) * sizeof *p->release);
  for (uint32_t at = 0; at < compute->count; at++)
    for (uint32_t w = program->wait_first[compute->first + at]; w < program->wait_first[compute->first + at + 1]; w++) {
      uint32_t *release = &p->release[program->waits[w] - compute->first];
      if (*release == 0) *release = at + 1;
    }
}

/* ---- moments ---- */

static bool begin_of(const planner *p, const plan_keep *keep, const plan_lane *compute, uint32_t item,
                     uint32_t *moment) {
  if (!keep->received) {
    *moment = 2 * p->chunks[keep->chunk].first[keep->pass][item] + 1;
    return true;
  }
  const plan_program *program = p->keeper.program;
  const uint32_t id = p->recvs[(size_t)keep->message * (size_t)p->keeper.items + item];
  if (id == NONE) return false; /* the first denoise step receives no latents */
  *moment = 0;
  for (uint32_t w = program->wait_first[id]; w < program->wait_first[id + 1]; w++) {
    const uint32_t posted = 2 * (program->waits[w] - compute->first + 1);
    if (posted > *moment) *moment = posted;
  }
  return true;
}

static uint32_t end_of(const planner *p, const plan_keep_end *end, const plan_lane *compute, uint32_t item) {
  if (!end->sent) return 2 * p->chunks[end->chunk].last[end->pass][item] + 1;
  const plan_message *message = &p->keeper.program->messages[end->message];
  const uint32_t id = p->sends[(size_t)end->message * (size_t)p->keeper.items + item];
  if (id == NONE) return 0; /* the last denoise step's latents go nowhere */
  const uint32_t release = p->release[id - compute->first];
  if (release) return 2 * (release - 1);
  if (p->keeper.plan->training && !message->backward)
    return 2 * p->chunks[message->from_chunk].first[PLAN_PASS_BACKWARD][item];
  return 2 * compute->count;
}

/* ---- buffers ---- */

/* One without bytes is none. */
static plan_buffer *add_buffer(plan_worker_memory *worker, plan_buffer buffer) {
  plan_buffer *added = &worker->buffers[worker->buffer_count];
  buffer.bytes = aligned(buffer.bytes);
  if (buffer.bytes == 0) return NULL;
  *added = buffer;
  worker->buffer_count++;
  return added;
}

static dp_status placed_workspace_bytes(const planner *p, int chunk, int64_t *bytes) {
  const plan_keeper *k = &p->keeper;
  dp_arena arena = {0};
  plan_places places;
  const dp_status status = plan_places_of(k->plan, k->graph, chunk, k->split_backward, &arena, &places, p->error);
  if (status == DP_OK && places.block_bytes[PLAN_BLOCK_WORKSPACE] > *bytes)
    *bytes = aligned(places.block_bytes[PLAN_BLOCK_WORKSPACE]);
  dp_arena_free(&arena);
  return status;
}

/* Peak of what the running chunk needs beside what it saves, sends and receives. */
static dp_status workspace_bytes(const planner *p, int chunk, int64_t *bytes) {
  const plan_keeper *k = &p->keeper;
  if (p->options->unfused) return placed_workspace_bytes(p, chunk, bytes);
  const plan_chunk *c = &k->plan->chunks[chunk];
  graph_transients transients;
  DP_TRY(graph_transient_bytes(k->graph, c->first_unit, c->unit_count, &transients, p->error));
  int64_t again_bytes = 0;
  bool recomputed = false;
  for (int u = c->first_unit; k->plan->recompute && u < c->first_unit + c->unit_count; u++) {
    if (!k->plan->recompute[u]) continue;
    recomputed = true;
    if (k->split_backward) continue; /* kept until the weight backward, as activations */
    if (k->graph->units.items[u].saved_bytes > again_bytes) again_bytes = k->graph->units.items[u].saved_bytes;
  }
  int64_t most = k->plan->training && !recomputed ? transients.forward_bytes : transients.inference_bytes;
  if (k->plan->training && transients.backward_bytes + again_bytes > most)
    most = transients.backward_bytes + again_bytes;
  if (most > *bytes) *bytes = most;
  return DP_OK;
}

static dp_status add_persistent(planner *p, int rank, const plan_lane *compute, plan_worker_memory *worker) {
  const plan_keeper *k = &p->keeper;
  const graph *g = k->graph;
  int64_t parameters = 0, trainable = 0, constant_bytes = 0, transient_bytes = 0;
  for (int i = k->rank_first[rank]; i < k->rank_first[rank + 1]; i++) {
    const plan_chunk *c = &k->plan->chunks[k->rank_chunks[i]];
    DP_TRY(workspace_bytes(p, k->rank_chunks[i], &transient_bytes));
    for (int u = c->first_unit; u < c->first_unit + c->unit_count; u++) {
      const graph_unit *unit = &g->units.items[u];
      parameters += unit->parameters + unit->adapter_parameters;
      trainable += unit->trainable_parameters;
      for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
        for (int n = 0; n < g->ops.items[o].input_count; n++) {
          const int tensor = g->ops.items[o].inputs[n];
          if (!g->tensors.items[tensor].is_constant || k->mark[tensor] == -1 - rank) continue;
          k->mark[tensor] = -1 - rank;
          constant_bytes += g->tensors.items[tensor].bytes;
        }
    }
  }
  for (int i = 0; i < k->program->compressor_count; i++) {
    const plan_compressor *compressor = &k->program->compressors[i];
    const int ends = (k->plan->chunks[k->chunk_of_unit[compressor->down_unit]].rank == rank) +
                     (k->plan->chunks[k->chunk_of_unit[compressor->up_unit]].rank == rank);
    parameters += ends * compressor->parameters;
    if (compressor->trained) trainable += ends * compressor->parameters;
  }
  if (!k->plan->training) trainable = 0;
  const int64_t gradient_bytes = k->plan->gradient_fp32 ? 4 : graph_dtype_bytes(g->precision);
  const double state_bytes = plan_optimizer_bytes(k->plan->optimizer, g->precision, p->options->splits_masters);
  const int64_t library_bytes =
      p->options->library_workspace ? p->options->library_workspace(k->program, g, rank, p->options->threads) : 0;
  const int64_t bytes[PLAN_MEMORY_CLASS_COUNT] = {
      [PLAN_MEMORY_WEIGHTS] = parameters * graph_dtype_bytes(g->precision) + constant_bytes,
      [PLAN_MEMORY_GRADIENTS] = trainable * gradient_bytes,
      [PLAN_MEMORY_OPTIMIZER] =
          (int64_t)ceil((double)trainable * state_bytes) + (p->options->means ? trainable * 4 : 0),
      [PLAN_MEMORY_WORKSPACE] = transient_bytes + p->options->workspace_bytes + library_bytes};
  int64_t offset_bytes = 0;
  p->gradients_bytes = aligned(bytes[PLAN_MEMORY_GRADIENTS]);
  if (p->options->overwrites && trainable > 0)
    DP_TRY(plan_keeper_gradients(k, rank, gradient_bytes, &worker->shares_gradients, &p->gradients_begin_bytes));
  for (int c = 0; c < PLAN_MEMORY_CLASS_COUNT; c++) {
    if (c == PLAN_MEMORY_GRADIENTS) worker->gradients_offset_bytes = trainable > 0 ? offset_bytes : 0;
    if (c == PLAN_MEMORY_GRADIENTS && worker->shares_gradients) continue; /* share_gradients */
    (void)add_buffer(worker, (plan_buffer){.memory_class = (uint8_t)c,
                                           .chunk = (uint16_t)k->rank_chunks[k->rank_first[rank]],
                                           .microbatch = PLAN_NO_PEER,
                                           .message = PLAN_NO_PEER,
                                           .tensor = GRAPH_NONE,
                                           .end = 2 * compute->count,
                                           .offset_bytes = offset_bytes,
                                           .bytes = bytes[c]});
    offset_bytes += aligned(bytes[c]);
  }
  worker->resting_bytes = offset_bytes;
  return DP_OK;
}

static void add_rules(planner *p, const plan_lane *compute, plan_worker_memory *worker) {
  for (size_t r = 0; r < p->list.keeps.count; r++) {
    const plan_keep *keep = &p->list.keeps.items[r];
    for (uint32_t item = 0; item < (uint32_t)p->keeper.items; item++) {
      uint32_t begin;
      if (!begin_of(p, keep, compute, item, &begin)) continue;
      uint32_t end = begin;
      for (size_t e = 0; e < keep->end_count; e++) {
        const uint32_t moment = end_of(p, &p->list.ends.items[keep->first_end + e], compute, item);
        if (moment > end) end = moment;
      }
      (void)add_buffer(worker, (plan_buffer){.memory_class = (uint8_t)keep->memory_class,
                                             .gradient = keep->gradient,
                                             .role = (uint8_t)keep->role & 0x7f,
                                             .message = keep->for_message ? keep->message : PLAN_NO_PEER,
                                             .chunk = (uint16_t)keep->chunk,
                                             .microbatch = item,
                                             .tensor = keep->tensor,
                                             .begin = begin,
                                             .end = end,
                                             .bytes = keep->bytes});
    }
  }
}

static void exchange(plan_buffer *a, plan_buffer *b) {
  const plan_buffer kept = *a;
  *a = *b;
  *b = kept;
}

/* Puts SAVED's buffer and those of the gradients behind it and in it where they lie, at the end of the persistent ones,
 * and before all others in the list. Returns how many, and through `top_bytes` the end of the last. */
static uint32_t share_gradients(const planner *p, int rank, const plan_lane *compute, plan_worker_memory *worker,
                                uint32_t persistent, int64_t *top_bytes) {
  const int chunk = p->keeper.rank_chunks[p->keeper.rank_first[rank]];
  plan_buffer *buffers = &worker->buffers[persistent];
  plan_buffer gradients = {.memory_class = PLAN_MEMORY_GRADIENTS,
                           .gradient = 1,
                           .role = PLAN_ROLE_GRADIENTS,
                           .chunk = (uint16_t)chunk,
                           .microbatch = PLAN_NO_PEER,
                           .message = PLAN_NO_PEER,
                           .tensor = GRAPH_NONE,
                           .begin = 2 * p->chunks[chunk].first[PLAN_PASS_BACKWARD][0] + 1,
                           .end = 2 * compute->count};
  const uint32_t count = worker->buffer_count - persistent;
  uint32_t fixed = 0;
  int64_t saved_bytes = 0;
  for (uint32_t b = 0; b < count && fixed == 0; b++) {
    if (buffers[b].role != PLAN_ROLE_SAVED) continue;
    exchange(&buffers[b], &buffers[fixed++]);
    buffers[0].offset_bytes = worker->resting_bytes;
    saved_bytes = buffers[0].bytes;
  }
  const int64_t begin = aligned(p->gradients_begin_bytes), end = begin + p->gradients_bytes;
  worker->gradients_offset_bytes = worker->resting_bytes + begin;
  *top_bytes = worker->resting_bytes + (end > saved_bytes ? end : saved_bytes);
  if (end > saved_bytes) { /* beyond SAVED, from the backward on */
    gradients.offset_bytes = worker->resting_bytes + saved_bytes;
    gradients.bytes = end - saved_bytes;
    exchange(&buffers[fixed++], add_buffer(worker, gradients));
  }
  if (begin < saved_bytes) { /* in it, from its end on */
    gradients.offset_bytes = worker->gradients_offset_bytes;
    gradients.bytes = (end < saved_bytes ? end : saved_bytes) - begin;
    gradients.begin = buffers[0].end + 1;
    exchange(&buffers[fixed++], add_buffer(worker, gradients));
  }
  return fixed;
}

static void find_peak(planner *p, const plan_lane *compute, plan_worker_memory *worker) {
  const uint32_t moments = 2 * compute->count + 1;
  memset(p->change_bytes, 0, (moments + 1) * sizeof *p->change_bytes);
  for (uint32_t b = 0; b < worker->buffer_count; b++) {
    p->change_bytes[worker->buffers[b].begin] += worker->buffers[b].bytes;
    p->change_bytes[worker->buffers[b].end + 1] -= worker->buffers[b].bytes;
  }
  int64_t live_bytes = 0;
  uint32_t peak = 0;
  for (uint32_t m = 0; m < moments; m++) {
    live_bytes += p->change_bytes[m];
    if (live_bytes <= worker->live_peak_bytes) continue;
    worker->live_peak_bytes = live_bytes;
    peak = m;
  }
  worker->peak_position = peak / 2;
  for (uint32_t b = 0; b < worker->buffer_count; b++)
    if (worker->buffers[b].begin <= peak && peak <= worker->buffers[b].end)
      worker->at_peak_bytes[worker->buffers[b].memory_class] += worker->buffers[b].bytes;
  worker->at_peak_bytes[PLAN_MEMORY_RUNTIME] = p->options->runtime_bytes;
}

static dp_status lay_out_rank(planner *p, int rank, plan_worker_memory *worker) {
  const plan_program *program = p->keeper.program;
  const plan_lane *compute = &program->lanes[program->worker_lane[rank]];
  DP_TRY(plan_keeper_rank(&p->keeper, rank, &p->list));
  index_releases(p, rank);
  const size_t most = p->list.keeps.count * (size_t)p->keeper.items + PLAN_MEMORY_CLASS_COUNT + 2;
  if (most > UINT32_MAX)
    return dp_fail(p->error, DP_BAD_INPUT, "plan: found %zu buffers on a worker, allowed: at most %u", most,
                   UINT32_MAX);
  worker->buffers = DP_ARENA_NEW(&p->memory->arena, plan_buffer, most);
  if (!worker->buffers) return dp_fail_memory(p->error);
  DP_TRY(add_persistent(p, rank, compute, worker));
  uint32_t placed = worker->buffer_count;
  int64_t top_bytes = worker->resting_bytes;
  add_rules(p, compute, worker);
  if (worker->shares_gradients) placed += share_gradients(p, rank, compute, worker, placed, &top_bytes);
  find_peak(p, compute, worker);
  worker->layout_bytes = worker->live_peak_bytes;
  worker->peak_bytes = worker->layout_bytes + p->options->runtime_bytes;
  if (p->options->limit_bytes && worker->peak_bytes > p->options->limit_bytes[rank]) return DP_OK;
  DP_TRY(plan_memory_place(worker->buffers + placed, worker->buffer_count - placed, top_bytes, worker->live_peak_bytes,
                           &worker->layout_bytes, p->error));
  worker->peak_bytes = worker->layout_bytes + p->options->runtime_bytes;
  return DP_OK;
}

static dp_status lay_out(planner *p, const plan_program *program, const graph *g) {
  const plan_plan *plan = program->plan;
  DP_TRY(plan_keeper_init(program, g, p->options->unfused, &p->scratch, &p->keeper, p->error));
  DP_TRY(index_program(p));
  p->memory->worker_count = program->worker_count;
  p->memory->workers = DP_ARENA_NEW(&p->memory->arena, plan_worker_memory, (size_t)program->worker_count);
  if (!p->memory->workers) return dp_fail_memory(p->error);
  for (int r = 0; r < plan->ranks; r++) {
    DP_TRY(lay_out_rank(p, r, &p->memory->workers[r]));
    for (int i = 1; i < plan_copy_count(plan); i++) p->memory->workers[i * plan->ranks + r] = p->memory->workers[r];
  }
  return DP_OK;
}

dp_status plan_memory_layout(const plan_program *program, const graph *g, const plan_memory_options *options,
                             plan_memory *memory, dp_error *error) {
  *memory = (plan_memory){0};
  planner p = {.options = options, .memory = memory, .error = error};
  const dp_status status = lay_out(&p, program, g);
  dp_array_free(&p.list.keeps);
  dp_array_free(&p.list.ends);
  dp_arena_free(&p.scratch);
  if (status != DP_OK) plan_memory_free(memory);
  return status;
}

void plan_memory_free(plan_memory *memory) {
  dp_arena_free(&memory->arena);
  *memory = (plan_memory){0};
}
