#include "exec/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/compress.h"
#include "exec/pipeline.h"
#include "graph/op_table.h"

/* ---- buffers by what they are for ---- */

typedef struct maker {
  exec_layout *layout;
  const plan_plan *plan;
  int rank;
  dp_error *error;
} maker;

static int compare(const plan_buffer *a, const plan_buffer *b) {
  if (a->role != b->role) return a->role < b->role ? -1 : 1;
  if (a->role == PLAN_ROLE_PERSISTENT) return (a->memory_class > b->memory_class) - (a->memory_class < b->memory_class);
  if (a->gradient != b->gradient) return a->gradient < b->gradient ? -1 : 1;
  if (a->message != b->message) return a->message < b->message ? -1 : 1;
  if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
  if (a->tensor == GRAPH_NONE && a->chunk != b->chunk) return a->chunk < b->chunk ? -1 : 1;
  return (a->microbatch > b->microbatch) - (a->microbatch < b->microbatch);
}

static int compare_entries(const void *left, const void *right) {
  return compare(*(const plan_buffer *const *)left, *(const plan_buffer *const *)right);
}

static const plan_buffer *find(const maker *m, plan_buffer key) {
  const plan_buffer *wanted = &key;
  const plan_buffer *const *found =
      bsearch(&wanted, m->layout->sorted, m->layout->plan->buffer_count, sizeof(const plan_buffer *), compare_entries);
  return found ? *found : NULL;
}

static char *at(const maker *m, const plan_buffer *buffer) {
  return buffer ? m->layout->base + buffer->offset_bytes : NULL;
}

static char *block_of(const maker *m, plan_role role, int chunk, int microbatch) {
  return at(m, find(m, (plan_buffer){.role = role,
                                     .gradient = role == PLAN_ROLE_KEPT,
                                     .message = PLAN_NO_PEER,
                                     .tensor = GRAPH_NONE,
                                     .chunk = (uint16_t)chunk,
                                     .microbatch = (uint32_t)microbatch}));
}

static void *whole(const maker *m, int tensor, bool gradient, int microbatch) {
  return at(m, find(m, (plan_buffer){.role = PLAN_ROLE_WHOLE,
                                     .gradient = gradient,
                                     .message = PLAN_NO_PEER,
                                     .tensor = tensor,
                                     .microbatch = (uint32_t)microbatch}));
}

static exec_memory *memory_of(const maker *m, int chunk, int microbatch) {
  return &m->layout->memory[chunk * m->layout->microbatches + microbatch];
}

static bool is_of_rank(const maker *m, int chunk) { return m->plan->chunks[chunk].rank == m->rank; }

/* The chunk of the rank that has a unit; GRAPH_NONE: another rank has it. */
static int chunk_of(const maker *m, int unit) {
  for (int c = 0; c < m->plan->chunk_count; c++)
    if (unit >= m->plan->chunks[c].first_unit && unit < m->plan->chunks[c].first_unit + m->plan->chunks[c].unit_count)
      return is_of_rank(m, c) ? c : GRAPH_NONE;
  return GRAPH_NONE;
}

/* In a buffer of its own, or among what its maker saves. */
static void *value_of(const maker *m, int tensor, int microbatch) {
  void *own = whole(m, tensor, false, microbatch);
  const int chunk = own ? GRAPH_NONE : chunk_of(m, m->layout->graph->tensors.items[tensor].producer_unit);
  if (chunk == GRAPH_NONE) return own;
  const plan_place place = plan_places_made(&m->layout->places[chunk], tensor);
  return place.block == PLAN_BLOCK_SAVED ? exec_memory_at(memory_of(m, chunk, microbatch), place) : NULL;
}

static dp_status missing(const maker *m, const char *what, int tensor) {
  return dp_fail(m->error, DP_INTERNAL, "worker %d: the plan has no buffer for %s %s", m->layout->worker, what,
                 m->layout->graph->tensors.items[tensor].name);
}

/* ---- what lives throughout ---- */

static char *persistent(const maker *m, plan_memory_class memory_class) {
  return at(m, find(m, (plan_buffer){.role = PLAN_ROLE_PERSISTENT, .memory_class = (uint8_t)memory_class}));
}

/* Constants lie before the weights, each of which may be of an odd number of bytes. */
static char *place_constants(const maker *m, char *next) {
  exec_layout *l = m->layout;
  for (int c = 0; c < m->plan->chunk_count; c++)
    for (int i = 0; i < l->places[c].outside_count; i++) {
      const int tensor = l->places[c].outside[i].tensor;
      const graph_tensor *t = &l->graph->tensors.items[tensor];
      if (!t->is_constant || l->constants[tensor]) continue;
      l->constants[tensor] = next;
      next += t->bytes;
    }
  return next;
}

static dp_status place_persistent(const maker *m) {
  exec_layout *l = m->layout;
  int64_t places_bytes = 0;
  l->gradients = (float *)(void *)(l->base + l->plan->gradients_offset_bytes);
  l->optimizer = (float *)(void *)persistent(m, PLAN_MEMORY_OPTIMIZER);
  l->constants = DP_ARENA_NEW(&l->arena, void *, l->graph->tensors.count);
  if (!l->constants) return dp_fail_memory(m->error);
  l->values = (float *)(void *)place_constants(m, persistent(m, PLAN_MEMORY_WEIGHTS));
  for (int c = 0; c < m->plan->chunk_count; c++)
    if (is_of_rank(m, c) && l->places[c].block_bytes[PLAN_BLOCK_WORKSPACE] > places_bytes)
      places_bytes = l->places[c].block_bytes[PLAN_BLOCK_WORKSPACE];
  const plan_buffer *workspace =
      find(m, (plan_buffer){.role = PLAN_ROLE_PERSISTENT, .memory_class = PLAN_MEMORY_WORKSPACE});
  const int64_t from = (places_bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
  if (!workspace || workspace->bytes <= from)
    return dp_fail(m->error, DP_INTERNAL, "worker %d: the plan has no workspace for the kernels", m->layout->worker);
  l->workspace = at(m, workspace) + from;
  l->workspace_bytes = (size_t)(workspace->bytes - from);
  return DP_OK;
}

/* ---- chunks ---- */

static dp_status place_chunk(const maker *m, int chunk, int microbatch) {
  static const struct {
    plan_block block;
    plan_role role;
  } blocks[] = {{PLAN_BLOCK_SAVED, PLAN_ROLE_SAVED},
                {PLAN_BLOCK_AGAIN, PLAN_ROLE_AGAIN},
                {PLAN_BLOCK_KEPT, PLAN_ROLE_KEPT},
                {PLAN_BLOCK_INPUTS, PLAN_ROLE_INPUTS}};
  exec_layout *l = m->layout;
  exec_memory *memory = memory_of(m, chunk, microbatch);
  for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
    memory->blocks[blocks[b].block] = block_of(m, blocks[b].role, chunk, microbatch);
    if (!memory->blocks[blocks[b].block] && l->places[chunk].block_bytes[blocks[b].block] > 0)
      return dp_fail(m->error, DP_INTERNAL, "worker %d: the plan has no buffer for block %d of chunk %d",
                     m->layout->worker, (int)blocks[b].block, chunk);
  }
  memory->blocks[PLAN_BLOCK_WORKSPACE] = persistent(m, PLAN_MEMORY_WORKSPACE);
  memory->begun = exec_layout_begun(l, (uint32_t)microbatch);
  memory->outside = DP_ARENA_NEW(&l->arena, void *, (size_t)l->places[chunk].outside_count);
  return memory->outside ? DP_OK : dp_fail_memory(m->error);
}

/* After all chunks have their blocks: what is outside one may be in another's. */
static dp_status place_outside(const maker *m, int chunk, int microbatch) {
  exec_layout *l = m->layout;
  for (int i = 0; i < l->places[chunk].outside_count; i++) {
    const plan_outside *what = &l->places[chunk].outside[i];
    void **place = &memory_of(m, chunk, microbatch)->outside[i];
    if (what->gradient)
      *place = whole(m, what->tensor, true, microbatch);
    else if (l->graph->tensors.items[what->tensor].is_constant)
      *place = l->constants[what->tensor];
    else
      *place = value_of(m, what->tensor, microbatch);
    if (!*place) return missing(m, what->gradient ? "the gradient of" : "the value of", what->tensor);
  }
  return DP_OK;
}

static dp_status place_output(const maker *m, int chunk, int microbatch) {
  exec_layout *l = m->layout;
  for (int i = 0; i < l->places[chunk].made_count; i++) {
    const plan_port *made = &l->places[chunk].made[i];
    if (!l->graph->tensors.items[made->tensor].is_output) continue;
    l->outputs[microbatch] = exec_memory_at(memory_of(m, chunk, microbatch), made->place);
    l->output_gradients[microbatch] = l->outputs[microbatch];
    for (int a = 0; a < l->places[chunk].arrival_count; a++)
      if (l->places[chunk].arrivals[a].tensor == made->tensor)
        l->output_gradients[microbatch] =
            exec_memory_at(memory_of(m, chunk, microbatch), l->places[chunk].arrivals[a].collected);
  }
  return DP_OK;
}

static dp_status place_chunks(const maker *m) {
  exec_layout *l = m->layout;
  l->outputs = DP_ARENA_NEW(&l->arena, void *, (size_t)l->microbatches);
  l->output_gradients = DP_ARENA_NEW(&l->arena, void *, (size_t)l->microbatches);
  if (!l->outputs || !l->output_gradients) return dp_fail_memory(m->error);
  dp_status (*const steps[])(const maker *, int, int) = {place_chunk, place_outside, place_output};
  for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
    for (int c = 0; c < m->plan->chunk_count; c++)
      for (int mb = 0; is_of_rank(m, c) && mb < l->microbatches; mb++) DP_TRY(steps[s](m, c, mb));
  return DP_OK;
}

/* ---- messages ---- */

static const plan_message *message_at(const maker *m, uint32_t message) {
  return &m->layout->program->messages[message];
}

static bool sends(const maker *m, uint32_t message) { return is_of_rank(m, message_at(m, message)->from_chunk); }
static bool receives(const maker *m, uint32_t message) { return is_of_rank(m, message_at(m, message)->to_chunk); }

static const plan_buffer *arrived(const maker *m, uint32_t message, int tensor, int microbatch) {
  return find(m, (plan_buffer){.role = PLAN_ROLE_ARRIVED,
                               .gradient = true,
                               .message = message,
                               .tensor = tensor,
                               .microbatch = (uint32_t)microbatch});
}

static void *projected(const maker *m, uint32_t message, int tensor, bool gradient, int microbatch) {
  return at(m, find(m, (plan_buffer){.role = PLAN_ROLE_PROJECTED,
                                     .gradient = gradient,
                                     .message = message,
                                     .tensor = tensor,
                                     .microbatch = (uint32_t)microbatch}));
}

static void *port_of(const maker *m, uint32_t message, int tensor, int microbatch) {
  void *values = projected(m, message, tensor, message_at(m, message)->backward, microbatch);
  if (values) return values;
  if (!message_at(m, message)->backward) return value_of(m, tensor, microbatch);
  return sends(m, message) ? whole(m, tensor, true, microbatch) : at(m, arrived(m, message, tensor, microbatch));
}

static dp_status place_ports(const maker *m) {
  exec_layout *l = m->layout;
  const plan_program *program = l->program;
  const uint32_t count = plan_message_count(program);
  uint32_t ports = 0;
  l->port_first = DP_ARENA_NEW(&l->arena, uint32_t, (size_t)count + 1);
  if (!l->port_first) return dp_fail_memory(m->error);
  for (uint32_t i = 0; i < count; i++) {
    l->port_first[i] = ports;
    if (sends(m, i) || receives(m, i)) ports += (uint32_t)message_at(m, i)->tensor_count;
  }
  l->ports = DP_ARENA_NEW(&l->arena, void *, (size_t)ports *(size_t)l->microbatches);
  if (!l->ports) return dp_fail_memory(m->error);
  for (uint32_t i = 0; i < count; i++)
    for (int t = 0; (sends(m, i) || receives(m, i)) && t < message_at(m, i)->tensor_count; t++) {
      const int tensor = program->message_tensors[message_at(m, i)->first_tensor + t];
      for (int mb = 0; mb < l->microbatches; mb++) {
        void **port = &l->ports[(l->port_first[i] + (uint32_t)t) * (uint32_t)l->microbatches + (uint32_t)mb];
        *port = port_of(m, i, tensor, mb);
        if (!*port)
          return missing(m, message_at(m, i)->backward ? "the message with the gradient of" : "the message with",
                         tensor);
      }
    }
  return DP_OK;
}

/* ---- what arrives ---- */

/* The chunk whose backward takes it up: the one at whose end its buffer's life ends. */
static int taken_up_by(const maker *m, const plan_buffer *buffer) {
  const plan_program *program = m->layout->program;
  const plan_lane *compute = &program->lanes[program->worker_lane[m->layout->worker]];
  return program->instructions[compute->first + buffer->end / 2].chunk;
}

/* Where the backward of the chunk looks for it, or where gradients are collected on this worker. */
static void *target_of(const maker *m, int chunk, int tensor, int microbatch) {
  const plan_places *places = &m->layout->places[chunk];
  for (int a = 0; a < places->arrival_count; a++)
    if (places->arrivals[a].tensor == tensor)
      return exec_memory_at(memory_of(m, chunk, microbatch), places->arrivals[a].place);
  return whole(m, tensor, true, microbatch);
}

/* After those from chunks as far as this one's, or further. */
static void put(const maker *m, exec_inbox *inbox, exec_arrival arrival) {
  int i = inbox->count++;
  for (;
       i > 0 && message_at(m, inbox->arrivals[i - 1].message)->from_chunk < message_at(m, arrival.message)->from_chunk;
       i--)
    inbox->arrivals[i] = inbox->arrivals[i - 1];
  inbox->arrivals[i] = arrival;
}

static dp_status place_inboxes(const maker *m) {
  exec_layout *l = m->layout;
  const plan_program *program = l->program;
  const uint32_t count = plan_message_count(program);
  int arrivals = 0, to = 0;
  for (uint32_t i = 0; i < count; i++)
    if (receives(m, i) && message_at(m, i)->backward) arrivals += message_at(m, i)->tensor_count;
  l->inboxes = DP_ARENA_NEW(&l->arena, exec_inbox, (size_t)m->plan->chunk_count);
  l->targets = DP_ARENA_NEW(&l->arena, void *, (size_t)arrivals *(size_t)l->microbatches);
  if (!l->inboxes || !l->targets) return dp_fail_memory(m->error);
  for (int c = 0; c < m->plan->chunk_count; c++) {
    l->inboxes[c].arrivals = DP_ARENA_NEW(&l->arena, exec_arrival, (size_t)(is_of_rank(m, c) ? arrivals : 0));
    if (!l->inboxes[c].arrivals) return dp_fail_memory(m->error);
  }
  for (uint32_t i = 0; i < count; i++)
    for (int t = 0; receives(m, i) && message_at(m, i)->backward && t < message_at(m, i)->tensor_count; t++, to++) {
      const int tensor = program->message_tensors[message_at(m, i)->first_tensor + t];
      const int chunk = taken_up_by(m, arrived(m, i, tensor, 0)); /* that it is there place_ports has seen */
      for (int mb = 0; mb < l->microbatches; mb++) {
        void **target = &l->targets[to * l->microbatches + mb];
        *target = target_of(m, chunk, tensor, mb);
        if (!*target) return missing(m, "the sum of the gradients of", tensor);
      }
      put(m, &l->inboxes[chunk], (exec_arrival){.message = i, .tensor = tensor, .port = t, .to = to});
    }
  return DP_OK;
}

/* ---- compressed skips ---- */

/* The message that brings the gradients of what another brings. */
static uint32_t answer_to(const maker *m, uint32_t message) {
  const plan_message *forward = message_at(m, message);
  const uint32_t count = plan_message_count(m->layout->program);
  uint32_t i = 0;
  while (i < count && (!message_at(m, i)->backward || message_at(m, i)->from_chunk != forward->to_chunk ||
                       message_at(m, i)->to_chunk != forward->from_chunk))
    i++;
  return i;
}

/* Where the whole gradient is when the backward of the chunk that restored the value has run. */
static void *departure_of(const maker *m, int chunk, int tensor, int microbatch) {
  const plan_places *places = &m->layout->places[chunk];
  for (int i = 0; i < places->departure_count; i++)
    if (places->departures[i].tensor == tensor)
      return exec_memory_at(memory_of(m, chunk, microbatch), places->departures[i].place);
  return whole(m, tensor, true, microbatch);
}

dp_status exec_layout_squeeze(const exec_layout *l, const plan_compressor *c, bool down, int microbatch,
                              void **whole_value, void **packed, void **whole_gradient, void **packed_gradient,
                              dp_error *error) {
  exec_layout view = *l;
  const maker m = {
      .layout = &view, .plan = l->program->plan, .rank = plan_worker_rank(l->program->plan, l->worker), .error = error};
  *whole_gradient = *packed_gradient = NULL;
  *whole_value = value_of(&m, c->tensor, microbatch);
  *packed = projected(&m, c->message, c->tensor, false, microbatch);
  if (!*whole_value || !*packed) return missing(&m, "the compressed skip", c->tensor);
  if (down || !c->trained) return DP_OK;
  *whole_gradient = departure_of(&m, message_at(&m, c->message)->to_chunk, c->tensor, microbatch);
  *packed_gradient = projected(&m, answer_to(&m, c->message), c->tensor, true, microbatch);
  return *whole_gradient && *packed_gradient ? DP_OK : missing(&m, "the gradient of the compressed skip", c->tensor);
}

/* ---- all ---- */

static dp_status sort_buffers(maker *m) {
  const plan_worker_memory *plan = m->layout->plan;
  m->layout->sorted = malloc(((size_t)plan->buffer_count + 1) * sizeof *m->layout->sorted);
  if (!m->layout->sorted) return dp_fail_memory(m->error);
  for (uint32_t i = 0; i < plan->buffer_count; i++) m->layout->sorted[i] = &plan->buffers[i];
  qsort(m->layout->sorted, plan->buffer_count, sizeof *m->layout->sorted, compare_entries);
  return DP_OK;
}

static dp_status make(maker *m) {
  exec_layout *l = m->layout;
  const size_t chunks = (size_t)m->plan->chunk_count, microbatches = (size_t)l->microbatches;
  l->begun = DP_ARENA_NEW(&l->arena, uint8_t, microbatches * l->graph->tensors.count);
  l->places = DP_ARENA_NEW(&l->arena, plan_places, chunks);
  l->memory = DP_ARENA_NEW(&l->arena, exec_memory, chunks * microbatches);
  if (!l->begun || !l->places || !l->memory) return dp_fail_memory(m->error);
  DP_TRY(sort_buffers(m));
  for (int c = 0; c < m->plan->chunk_count; c++)
    if (is_of_rank(m, c))
      DP_TRY(plan_places_of(m->plan, l->graph, c, plan_splits_backward(m->plan), &l->arena, &l->places[c], m->error));
  DP_TRY(place_persistent(m));
  DP_TRY(place_chunks(m));
  DP_TRY(place_ports(m));
  return place_inboxes(m);
}

dp_status exec_layout_init(const plan_program *program, const graph *g, const plan_worker_memory *plan, int worker,
                           char *base, exec_layout *layout, dp_error *error) {
  *layout = (exec_layout){.program = program,
                          .graph = g,
                          .plan = plan,
                          .worker = worker,
                          .microbatches = program->plan->microbatches,
                          .base = base};
  maker m = {.layout = layout, .plan = program->plan, .rank = plan_worker_rank(program->plan, worker), .error = error};
  const dp_status status = make(&m);
  if (status != DP_OK) exec_layout_free(layout);
  return status;
}

void exec_layout_free(exec_layout *l) {
  free(l->sorted);
  dp_arena_free(&l->arena);
  *l = (exec_layout){.base = NULL};
}

uint32_t exec_layout_message(const plan_program *program, uint32_t message) {
  return message % plan_message_count(program);
}
