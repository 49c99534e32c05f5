#include "plan/memory_rules.h"

#include <string.h>

#include "plan/places.h"

/* ---- what the graph says ---- */

static const graph_tensor *tensor_at(const plan_keeper *k, int tensor) { return &k->graph->tensors.items[tensor]; }

static bool in_chunk(const plan_keeper *k, int unit, int chunk) { return unit >= 0 && k->chunk_of_unit[unit] == chunk; }

/* The tensor whose memory it shows, as far as that was made in the same chunk. */
static int root_of(const plan_keeper *k, int tensor) {
  for (;;) {
    const graph_tensor *t = tensor_at(k, tensor);
    if (t->view_of == GRAPH_NONE || t->producer_unit == GRAPH_NONE ||
        !in_chunk(k, tensor_at(k, t->view_of)->producer_unit, k->chunk_of_unit[t->producer_unit]))
      return tensor;
    tensor = t->view_of;
  }
}

static bool used_by(const plan_keeper *k, int tensor, int chunk) {
  const graph_tensor *t = tensor_at(k, tensor);
  for (int i = 0; i < t->consumer_unit_count; i++)
    if (in_chunk(k, t->consumer_units[i], chunk)) return true;
  return false;
}

/* Whether the chunk's saved activations hold it: the rule of graph_saved_bytes. */
static bool saved_by(const plan_keeper *k, int tensor, int chunk) {
  const plan_chunk *c = &k->plan->chunks[chunk];
  return plan_places_saves(k->plan, k->graph, tensor, c->first_unit, c->unit_count);
}

static plan_memory_class class_of_kind(plan_traffic kind) {
  return kind == PLAN_TRAFFIC_SKIP ? PLAN_MEMORY_SKIPS : PLAN_MEMORY_BOUNDARY;
}

/* Something beyond the next unit uses it. */
static plan_memory_class class_of_tensor(const graph_tensor *t) {
  return t->consumer_unit_count > 0 && t->consumer_units[t->consumer_unit_count - 1] > t->producer_unit + 1
             ? PLAN_MEMORY_SKIPS
             : PLAN_MEMORY_BOUNDARY;
}

/* ---- the list ---- */

static dp_status add(plan_keeper *k, plan_keep_list *list, plan_keep keep) {
  keep.first_end = list->ends.count;
  keep.end_count = 0;
  return dp_array_push(&list->keeps, keep) ? DP_OK : dp_fail_memory(k->error);
}

static dp_status add_end(plan_keeper *k, plan_keep_list *list, plan_keep_end end) {
  if (!dp_array_push(&list->ends, end)) return dp_fail_memory(k->error);
  list->keeps.items[list->keeps.count - 1].end_count++;
  return DP_OK;
}

static dp_status end_pass(plan_keeper *k, plan_keep_list *list, int pass, int chunk) {
  return add_end(k, list, (plan_keep_end){.pass = pass, .chunk = chunk});
}

static dp_status end_sent(plan_keeper *k, plan_keep_list *list, uint32_t message) {
  return add_end(k, list, (plan_keep_end){.sent = true, .message = message});
}

static int last_pass(const plan_keeper *k) { return k->split_backward ? PLAN_PASS_WEIGHT : PLAN_PASS_BACKWARD; }

/* The uses of a tensor by the chunks of the rank other than its maker's, from `first` on; returns through `used`
 * whether there are any, and the last chunk. */
static dp_status end_uses(plan_keeper *k, plan_keep_list *list, int rank, int tensor, int first, bool write,
                          int *last_chunk) {
  const int made = k->chunk_of_unit[tensor_at(k, tensor)->producer_unit];
  *last_chunk = GRAPH_NONE;
  for (int i = k->rank_first[rank]; i < k->rank_first[rank + 1]; i++) {
    const int chunk = k->rank_chunks[i];
    if (chunk < first || chunk == made || !used_by(k, tensor, chunk)) continue;
    *last_chunk = chunk;
    if (write) DP_TRY(end_pass(k, list, saved_by(k, tensor, chunk) ? last_pass(k) : PLAN_PASS_FORWARD, chunk));
  }
  return DP_OK;
}

/* ---- messages ---- */

static const plan_message *message_at(const plan_keeper *k, uint32_t message) { return &k->program->messages[message]; }

static bool is_latent(const plan_message *m) { return !m->backward && m->to_chunk < m->from_chunk; }

static bool carries(const plan_keeper *k, const plan_message *m, int tensor) {
  const int *ids = &k->program->message_tensors[m->first_tensor];
  int low = 0, high = m->tensor_count; /* ascending */
  while (low < high) {
    const int middle = (low + high) / 2;
    if (ids[middle] < tensor)
      low = middle + 1;
    else
      high = middle;
  }
  return low < m->tensor_count && ids[low] == tensor;
}

static plan_traffic kind_in(const plan_keeper *k, const plan_message *m, int tensor) {
  return plan_traffic_kind(k->graph, k->chunk_of_unit, m->backward ? m->to_chunk : m->from_chunk,
                           m->backward ? m->from_chunk : m->to_chunk, tensor);
}

/* Bytes on the wire; true when those are projected. */
static bool wire_bytes(const plan_keeper *k, const plan_message *m, int tensor, int64_t *bytes) {
  *bytes = tensor_at(k, tensor)->bytes;
  return kind_in(k, m, tensor) == PLAN_TRAFFIC_SKIP && plan_skip_is_compressed(k->plan, k->graph, tensor, bytes);
}

/* Whether a compressor of the tensor is trained: its gradient is made of what it read. */
static bool learns(const plan_keeper *k, int tensor) {
  return k->plan->training && tensor_at(k, tensor)->needs_gradient;
}

static dp_status keep_received_tensor(plan_keeper *k, plan_keep_list *list, int rank, uint32_t message, int tensor) {
  const plan_message *m = message_at(k, message);
  int64_t bytes;
  int last_use;
  const bool compressed = wire_bytes(k, m, tensor, &bytes);
  plan_keep keep = {.memory_class = class_of_kind(kind_in(k, m, tensor)),
                    .role = compressed ? PLAN_ROLE_PROJECTED : PLAN_ROLE_WHOLE,
                    .received = true,
                    .for_message = compressed,
                    .chunk = m->to_chunk,
                    .message = message,
                    .tensor = tensor,
                    .bytes = bytes};
  DP_TRY(end_uses(k, list, rank, tensor, m->to_chunk, false, &last_use));
  if (last_use > m->to_chunk) keep.memory_class = PLAN_MEMORY_SKIPS;
  DP_TRY(add(k, list, keep));
  DP_TRY(end_pass(k, list, PLAN_PASS_FORWARD, m->to_chunk));
  if (compressed && learns(k, tensor)) DP_TRY(end_pass(k, list, PLAN_PASS_BACKWARD, m->to_chunk));
  if (compressed) { /* made whole as its chunk begins */
    keep.role = PLAN_ROLE_WHOLE;
    keep.received = keep.for_message = false;
    keep.pass = PLAN_PASS_FORWARD;
    keep.bytes = tensor_at(k, tensor)->bytes;
    DP_TRY(add(k, list, keep));
  }
  DP_TRY(end_uses(k, list, rank, tensor, m->to_chunk, true, &last_use));
  if (compressed) return last_use == GRAPH_NONE ? end_pass(k, list, PLAN_PASS_FORWARD, m->to_chunk) : DP_OK;
  for (uint32_t i = k->out_first[rank]; i < k->out_first[rank + 1]; i++) { /* handed on */
    const plan_message *out = message_at(k, k->out_messages[i]);
    if (!out->backward && out->from_chunk >= m->to_chunk && carries(k, out, tensor))
      DP_TRY(end_sent(k, list, k->out_messages[i]));
  }
  return DP_OK;
}

/* Whose backward takes up a gradient that a chunk of the rank receives: the chunk's own, where that is the tensor's
 * home (the rank's chunk that made or received the tensor) or where gradients of it are collected by then. A chunk that
 * only handed the tensor on does nothing with the gradient: it stays for the next chunk here that does. */
static int joining_chunk(plan_keeper *k, plan_keep_list *list, int rank, int chunk, int tensor) {
  int home = k->chunk_of_unit[tensor_at(k, tensor)->producer_unit], last_use;
  if (home == chunk) return chunk;
  for (uint32_t i = k->in_first[rank]; k->plan->chunks[home].rank != rank && i < k->in_first[rank + 1]; i++) {
    const plan_message *in = message_at(k, k->in_messages[i]);
    if (!in->backward && carries(k, in, tensor)) home = in->to_chunk;
  }
  (void)end_uses(k, list, rank, tensor, home, false, &last_use);
  return last_use >= chunk ? chunk : last_use > home ? last_use : home;
}

static dp_status keep_received(plan_keeper *k, plan_keep_list *list, int rank, uint32_t message) {
  const plan_message *m = message_at(k, message);
  if (is_latent(m)) {
    DP_TRY(add(k, list,
               (plan_keep){.memory_class = PLAN_MEMORY_BOUNDARY,
                           .role = PLAN_ROLE_LATENTS,
                           .received = true,
                           .for_message = true,
                           .chunk = m->to_chunk,
                           .message = message,
                           .tensor = GRAPH_NONE,
                           .bytes = m->bytes}));
    return end_pass(k, list, PLAN_PASS_FORWARD, m->to_chunk);
  }
  for (int t = m->first_tensor; t < m->first_tensor + m->tensor_count; t++) {
    const int tensor = k->program->message_tensors[t];
    if (!m->backward) {
      DP_TRY(keep_received_tensor(k, list, rank, message, tensor));
      continue;
    }
    int64_t bytes;
    (void)wire_bytes(k, m, tensor, &bytes);
    DP_TRY(add(k, list,
               (plan_keep){.memory_class = class_of_kind(kind_in(k, m, tensor)),
                           .role = PLAN_ROLE_ARRIVED,
                           .gradient = true,
                           .received = true,
                           .for_message = true,
                           .chunk = m->to_chunk,
                           .message = message,
                           .tensor = tensor,
                           .bytes = bytes}));
    DP_TRY(end_pass(k, list, PLAN_PASS_BACKWARD, joining_chunk(k, list, rank, m->to_chunk, tensor)));
  }
  return DP_OK;
}

/* Gradients that leave: collected from the last chunk here that uses the tensor, whose backward is the first. */
static dp_status keep_sent_gradients(plan_keeper *k, plan_keep_list *list, int rank, uint32_t message) {
  const plan_message *m = message_at(k, message);
  for (int t = m->first_tensor; t < m->first_tensor + m->tensor_count; t++) {
    const int tensor = k->program->message_tensors[t];
    int64_t bytes;
    int last_use;
    const bool compressed = wire_bytes(k, m, tensor, &bytes);
    DP_TRY(end_uses(k, list, rank, tensor, m->from_chunk, false, &last_use));
    plan_keep keep = {.memory_class = class_of_kind(kind_in(k, m, tensor)),
                      .role = PLAN_ROLE_WHOLE,
                      .gradient = true,
                      .chunk = m->from_chunk,
                      .pass = PLAN_PASS_BACKWARD,
                      .tensor = tensor,
                      .bytes = bytes};
    if (compressed) {
      keep.role = PLAN_ROLE_PROJECTED;
      keep.for_message = true;
      keep.message = message;
      DP_TRY(add(k, list, keep));
      DP_TRY(end_sent(k, list, message));
      if (last_use <= m->from_chunk) continue;
      keep.role = PLAN_ROLE_WHOLE;
      keep.for_message = false;
      keep.bytes = tensor_at(k, tensor)->bytes;
    }
    if (last_use > m->from_chunk) keep.chunk = last_use;
    DP_TRY(add(k, list, keep));
    DP_TRY(compressed ? end_pass(k, list, PLAN_PASS_BACKWARD, m->from_chunk) : end_sent(k, list, message));
  }
  return DP_OK;
}

/* ---- chunks ---- */

/* That of an output whose value the backward reads. */
static dp_status keep_loss_gradient(plan_keeper *k, plan_keep_list *list, int chunk, int tensor) {
  DP_TRY(add(k, list,
             (plan_keep){.memory_class = PLAN_MEMORY_BOUNDARY,
                         .role = PLAN_ROLE_WHOLE,
                         .gradient = true,
                         .chunk = chunk,
                         .pass = PLAN_PASS_FORWARD,
                         .tensor = tensor,
                         .bytes = tensor_at(k, tensor)->bytes}));
  return end_pass(k, list, PLAN_PASS_BACKWARD, chunk);
}

/* A tensor that the chunk makes: kept for later chunks of the rank and until it is sent, be it by one of them. */
static dp_status keep_made(plan_keeper *k, plan_keep_list *list, int rank, int chunk, int tensor) {
  const graph_tensor *t = tensor_at(k, tensor);
  int last_use;
  plan_keep keep = {.memory_class = class_of_tensor(t),
                    .role = PLAN_ROLE_WHOLE,
                    .chunk = chunk,
                    .pass = PLAN_PASS_FORWARD,
                    .tensor = tensor,
                    .bytes = t->bytes};
  DP_TRY(end_uses(k, list, rank, tensor, chunk + 1, false, &last_use));
  const bool saved = saved_by(k, k->unfused ? tensor : root_of(k, tensor), chunk);
  DP_TRY(add(k, list, keep));
  if (!saved) DP_TRY(end_uses(k, list, rank, tensor, chunk + 1, true, &last_use));
  if (!saved && t->is_output)
    DP_TRY(end_pass(k, list, k->plan->training ? PLAN_PASS_BACKWARD : PLAN_PASS_FORWARD, chunk));
  size_t whole = list->keeps.count - 1;
  for (uint32_t i = k->out_first[rank]; i < k->out_first[rank + 1]; i++) {
    const plan_message *m = message_at(k, k->out_messages[i]);
    int64_t bytes;
    if (m->backward || m->from_chunk < chunk || !carries(k, m, tensor) || saved) continue;
    if (!wire_bytes(k, m, tensor, &bytes)) {
      DP_TRY(end_sent(k, list, k->out_messages[i]));
      continue;
    }
    DP_TRY(end_pass(k, list, PLAN_PASS_FORWARD, chunk)); /* it is projected then */
    if (learns(k, tensor)) DP_TRY(end_pass(k, list, PLAN_PASS_BACKWARD, chunk));
  }
  if (list->keeps.items[whole].end_count == 0) list->keeps.count--; /* nobody else wants it */
  for (uint32_t i = k->out_first[rank]; i < k->out_first[rank + 1]; i++) {
    const plan_message *m = message_at(k, k->out_messages[i]);
    if (m->backward || m->from_chunk < chunk || !carries(k, m, tensor) || !wire_bytes(k, m, tensor, &keep.bytes))
      continue;
    keep.role = PLAN_ROLE_PROJECTED;
    keep.for_message = true;
    keep.message = k->out_messages[i];
    DP_TRY(add(k, list, keep));
    DP_TRY(end_sent(k, list, k->out_messages[i]));
  }
  if (k->unfused && saved && t->is_output && t->needs_gradient && last_use == GRAPH_NONE)
    DP_TRY(keep_loss_gradient(k, list, chunk, tensor));
  if (!k->plan->training || !t->needs_gradient || last_use == GRAPH_NONE) return DP_OK;
  keep = (plan_keep){.memory_class = class_of_tensor(t),
                     .role = PLAN_ROLE_WHOLE,
                     .gradient = true,
                     .chunk = last_use,
                     .pass = PLAN_PASS_BACKWARD,
                     .tensor = tensor,
                     .bytes = t->bytes};
  DP_TRY(add(k, list, keep));
  return end_pass(k, list, PLAN_PASS_BACKWARD, chunk);
}

/* What recomputed units save: made again by the input backward, and read by the weight backward too. */
static int64_t again_bytes(const plan_keeper *k, int chunk) {
  const plan_chunk *c = &k->plan->chunks[chunk];
  int64_t bytes = 0;
  for (int u = c->first_unit; k->plan->recompute && u < c->first_unit + c->unit_count; u++) {
    if (!k->plan->recompute[u]) continue;
    const graph_unit *unit = &k->graph->units.items[u];
    bytes += unit->saved_extra_bytes;
    for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
      for (int i = 0; i < k->graph->ops.items[o].output_count; i++) {
        const int tensor = k->graph->ops.items[o].outputs[i];
        const graph_tensor *t = tensor_at(k, tensor);
        bool saved = false;
        for (int s = 0; s < t->saver_unit_count; s++) saved = saved || in_chunk(k, t->saver_units[s], chunk);
        if (saved && !saved_by(k, tensor, chunk)) bytes += t->bytes;
      }
  }
  return bytes;
}

/* Gradients of what weighted ops put out, and of their adapters' hidden values, from the input backward to that of the
 * weights. */
static int64_t kept_bytes(const plan_keeper *k, int chunk) {
  const graph_unit *units = &k->graph->units.items[k->plan->chunks[chunk].first_unit];
  const graph_unit *last = &units[k->plan->chunks[chunk].unit_count - 1];
  int64_t bytes = 0;
  for (int o = units[0].first_op; o < last->first_op + last->op_count; o++) {
    const graph_op *op = &k->graph->ops.items[o];
    if (op->parameters + op->adapter_parameters == 0 || op->trainable == GRAPH_TRAIN_FROZEN) continue;
    if (op->adapter_parameters > 0) bytes += op->saved_extra_bytes;
    for (int i = 0; i < op->output_count; i++) bytes += tensor_at(k, op->outputs[i])->bytes;
  }
  return bytes;
}

/* Saved activations, and what the weight backward needs beside them when it comes apart. */
static dp_status keep_saved(plan_keeper *k, plan_keep_list *list, int chunk) {
  const plan_chunk *c = &k->plan->chunks[chunk];
  int64_t received_bytes = 0, saved_bytes;
  if (k->unfused)
    saved_bytes = plan_places_saved_bytes(k->plan, k->graph, c->first_unit, c->unit_count);
  else
    saved_bytes = graph_saved_bytes(k->graph, c->first_unit, c->unit_count, k->plan->recompute, &received_bytes);
  plan_keep keep = {.memory_class = PLAN_MEMORY_ACTIVATIONS,
                    .role = PLAN_ROLE_SAVED,
                    .chunk = chunk,
                    .pass = PLAN_PASS_FORWARD,
                    .tensor = GRAPH_NONE,
                    .bytes = saved_bytes - received_bytes};
  DP_TRY(add(k, list, keep));
  DP_TRY(end_pass(k, list, last_pass(k), chunk));
  if (!k->split_backward) return DP_OK;
  keep.pass = PLAN_PASS_BACKWARD;
  keep.role = PLAN_ROLE_AGAIN;
  keep.bytes = again_bytes(k, chunk);
  DP_TRY(add(k, list, keep));
  DP_TRY(end_pass(k, list, PLAN_PASS_WEIGHT, chunk));
  keep.gradient = true;
  keep.role = PLAN_ROLE_KEPT;
  keep.bytes = kept_bytes(k, chunk);
  DP_TRY(add(k, list, keep));
  return end_pass(k, list, PLAN_PASS_WEIGHT, chunk);
}

static dp_status keep_chunk(plan_keeper *k, plan_keep_list *list, int rank, int chunk) {
  const plan_chunk *c = &k->plan->chunks[chunk];
  if (k->plan->training) DP_TRY(keep_saved(k, list, chunk));
  const graph_unit *units = &k->graph->units.items[c->first_unit];
  const int first = units[0].first_op, end = units[c->unit_count - 1].first_op + units[c->unit_count - 1].op_count;
  plan_keep inputs = {.memory_class = PLAN_MEMORY_BOUNDARY,
                      .role = PLAN_ROLE_INPUTS,
                      .chunk = chunk,
                      .pass = PLAN_PASS_FORWARD,
                      .tensor = GRAPH_NONE};
  for (int o = first; o < end; o++) {
    const graph_op *op = &k->graph->ops.items[o];
    for (int i = 0; i < op->input_count; i++) {
      const graph_tensor *t = tensor_at(k, op->inputs[i]);
      if (t->producer_unit != GRAPH_NONE || t->is_constant || k->mark[op->inputs[i]] == chunk + 1) continue;
      k->mark[op->inputs[i]] = chunk + 1;
      if (!saved_by(k, op->inputs[i], chunk)) inputs.bytes += t->bytes;
    }
    for (int i = 0; i < op->output_count; i++) DP_TRY(keep_made(k, list, rank, chunk, op->outputs[i]));
  }
  DP_TRY(add(k, list, inputs));
  return end_pass(k, list, PLAN_PASS_FORWARD, chunk);
}

dp_status plan_keeper_rank(plan_keeper *k, int rank, plan_keep_list *list) {
  list->keeps.count = list->ends.count = 0;
  for (int i = k->rank_first[rank]; i < k->rank_first[rank + 1]; i++)
    DP_TRY(keep_chunk(k, list, rank, k->rank_chunks[i]));
  for (uint32_t i = k->in_first[rank]; i < k->in_first[rank + 1]; i++)
    DP_TRY(keep_received(k, list, rank, k->in_messages[i]));
  for (uint32_t i = k->out_first[rank]; i < k->out_first[rank + 1]; i++) {
    const uint32_t message = k->out_messages[i];
    const plan_message *m = message_at(k, message);
    if (m->backward) DP_TRY(keep_sent_gradients(k, list, rank, message));
    if (!is_latent(m)) continue;
    DP_TRY(add(k, list,
               (plan_keep){.memory_class = PLAN_MEMORY_BOUNDARY,
                           .role = PLAN_ROLE_LATENTS,
                           .for_message = true,
                           .chunk = m->from_chunk,
                           .pass = PLAN_PASS_FORWARD,
                           .message = message,
                           .tensor = GRAPH_NONE,
                           .bytes = m->bytes}));
    DP_TRY(end_sent(k, list, message));
  }
  return DP_OK;
}

/* ---- once for all ranks ---- */

/* Lists messages by one of their ends. */
static bool by_rank(const plan_keeper *k, bool out, uint32_t count, dp_arena *arena, uint32_t **messages,
                    uint32_t **first) {
  const size_t ranks = (size_t)k->plan->ranks;
  *messages = DP_ARENA_NEW(arena, uint32_t, count);
  *first = DP_ARENA_NEW(arena, uint32_t, ranks + 2);
  if (!*messages || !*first) return false;
  /* counted two places on, so that filling leaves first[] where it must be */
  for (uint32_t m = 0; m < count; m++)
    (*first)[2 + (out ? k->program->messages[m].from_worker : k->program->messages[m].to_worker)]++;
  for (size_t r = 2; r < ranks + 2; r++) (*first)[r] += (*first)[r - 1];
  for (uint32_t m = 0; m < count; m++)
    (*messages)[(*first)[1 + (out ? k->program->messages[m].from_worker : k->program->messages[m].to_worker)]++] = m;
  return true;
}

bool plan_splits_backward(const plan_plan *plan) {
  for (int i = 0; i < plan->order_count[0]; i++)
    if (plan->order[0][i].opcode == PLAN_BACKWARD_WEIGHT) return true;
  return false;
}

dp_status plan_keeper_init(const plan_program *program, const graph *g, bool unfused, dp_arena *arena, plan_keeper *k,
                           dp_error *error) {
  const plan_plan *plan = program->plan;
  *k = (plan_keeper){.program = program,
                     .plan = plan,
                     .graph = g,
                     .error = error,
                     .items = plan->microbatches * plan->denoise_steps,
                     .split_backward = plan_splits_backward(plan),
                     .unfused = unfused};
  k->chunk_of_unit = DP_ARENA_NEW(arena, int, g->units.count);
  k->mark = DP_ARENA_NEW(arena, int, g->tensors.count);
  k->rank_chunks = DP_ARENA_NEW(arena, int, (size_t)plan->chunk_count);
  k->rank_first = DP_ARENA_NEW(arena, int, (size_t)plan->ranks + 2);
  const uint32_t messages = plan_message_count(program);
  if (!k->chunk_of_unit || !k->mark || !k->rank_chunks || !k->rank_first ||
      !by_rank(k, false, messages, arena, &k->in_messages, &k->in_first) ||
      !by_rank(k, true, messages, arena, &k->out_messages, &k->out_first))
    return dp_fail_memory(error);
  for (int c = 0; c < plan->chunk_count; c++) {
    k->rank_first[plan->chunks[c].rank + 2]++;
    for (int u = 0; u < plan->chunks[c].unit_count; u++) k->chunk_of_unit[plan->chunks[c].first_unit + u] = c;
  }
  for (int r = 0; r < plan->ranks; r++) k->rank_first[r + 2] += k->rank_first[r + 1];
  for (int c = 0; c < plan->chunk_count; c++) k->rank_chunks[k->rank_first[plan->chunks[c].rank + 1]++] = c;
  return DP_OK;
}
