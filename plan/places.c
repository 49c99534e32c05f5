/* The blocks, the forward pass, and the lives of a pass as offsets. */
#include "plan/places.h"

#include <string.h>

#include "plan/memory.h"
#include "plan/places_build.h"
#include "plan/traffic.h"

/* ---- what the graph says ---- */

static bool shows(const graph *g, const graph_op *op) {
  if (op->kind != GRAPH_RESHAPE) return false;
  const graph_tensor *t = &g->tensors.items[op->outputs[0]];
  return !t->is_output && t->consumer_unit_count == 1 && t->consumer_units[0] == op->unit;
}

bool plan_placer_shows(const plan_placer *p, const graph_op *op) { return shows(p->graph, op); }

int plan_places_root(const graph *g, int tensor) {
  for (;;) {
    const int producer = g->tensors.items[tensor].producer_op;
    if (producer == GRAPH_NONE || !shows(g, &g->ops.items[producer])) return tensor;
    tensor = g->ops.items[producer].inputs[0];
  }
}

bool plan_placer_learns(const graph_op *op) {
  return op->adapter_parameters > 0 || (op->trainable == GRAPH_TRAIN_FULL && op->parameters > 0);
}

/* Attention without a backward writes none. */
int64_t plan_placer_statistic_bytes(const graph_op *op) {
  return op->kind == GRAPH_ATTENTION ? 0 : op->statistic_bytes;
}

bool plan_placer_leaves(const plan_placer *p, const graph_tensor *t) {
  return t->is_output || (t->consumer_unit_count > 0 && t->consumer_units[t->consumer_unit_count - 1] >= p->end_unit);
}

/* Another chunk of the worker than its maker and this one uses it, or of those after this one. */
static bool used_elsewhere(const plan_placer *p, int tensor, bool later) {
  const graph_tensor *t = plan_placer_tensor(p, tensor);
  const int rank = p->plan->chunks[p->chunk].rank;
  for (int i = 0; i < t->consumer_unit_count; i++) {
    const int user = p->chunk_of_unit[t->consumer_units[i]];
    if (p->plan->chunks[user].rank == rank && (later ? user > p->chunk : user != p->chunk)) return true;
  }
  return false;
}

/* Chunk `user` gets it as K values. */
static bool travels_projected(const plan_placer *p, int tensor, int user) {
  const int maker = p->chunk_of_unit[plan_placer_tensor(p, tensor)->producer_unit];
  int64_t bytes;
  return p->plan->chunks[maker].rank != p->plan->chunks[user].rank &&
         plan_traffic_kind(p->graph, p->chunk_of_unit, maker, user, tensor) == PLAN_TRAFFIC_SKIP &&
         plan_skip_is_compressed(p->plan, p->graph, tensor, &bytes);
}

/* Its gradient leaves as K values and no other chunk of the worker adds to it. */
static bool departs_projected(const plan_placer *p, int tensor) {
  return travels_projected(p, tensor, p->chunk) && !used_elsewhere(p, tensor, false);
}

/* ---- places ---- */

static void push_failed(plan_placer *p, bool pushed) { p->failed = p->failed || !pushed; }

int plan_placer_begin(plan_placer *p, int64_t bytes) {
  const uint32_t now = (uint32_t)p->actions.count;
  push_failed(p, dp_array_push(&p->lives, ((plan_life){.begin = now, .end = now, .bytes = bytes})));
  return (int)p->lives.count;
}

plan_place plan_placer_use(plan_placer *p, int life) {
  if (p->failed) return (plan_place){PLAN_BLOCK_NONE, 0};
  p->lives.items[life - 1].end = (uint32_t)p->actions.count;
  return (plan_place){PLAN_BLOCK_WORKSPACE, life - 1};
}

static plan_place outside_at(plan_placer *p, int tensor, bool gradient) {
  int *index = &p->outside[gradient][tensor];
  if (*index == 0) {
    push_failed(p, dp_array_push(&p->outsides, ((plan_outside){tensor, gradient})));
    *index = (int)p->outsides.count;
  }
  return (plan_place){PLAN_BLOCK_OUTSIDE, *index - 1};
}

static void push_places(plan_placer *p, const plan_place *places, int count) {
  for (int i = 0; i < count; i++) push_failed(p, dp_array_push(&p->places, places[i]));
}

void plan_placer_act(plan_placer *p, plan_action_kind kind, int index, const plan_operands *operands) {
  const graph_op *op = plan_placer_op(p, index);
  const plan_action action = {.op = index, .kind = (uint8_t)kind, .first_place = (uint32_t)p->places.count};
  push_places(p, operands->in, op->input_count);
  push_places(p, operands->out, op->output_count);
  push_places(p, operands->in_gradient, op->input_count);
  push_places(p, operands->out_gradient, op->output_count);
  push_places(p, &operands->statistics, 1);
  push_places(p, &operands->hidden, 1);
  push_failed(p, dp_array_push(&p->actions, action));
}

/* The next bytes of a block. */
static plan_place take(plan_placer *p, plan_block block, int64_t bytes) {
  const plan_place place = {block, p->out->block_bytes[block]};
  p->out->block_bytes[block] += bytes;
  return place;
}

/* ---- blocks ---- */

/* Of a recomputed unit: made again by the input backward, for the weight backward. */
static bool is_again(const plan_placer *p, const graph_tensor *t) {
  if (!p->split || !plan_placer_has(p, t->producer_unit) || !plan_placer_recomputes(p, t->producer_unit)) return false;
  for (int i = 0; i < t->saver_unit_count; i++)
    if (plan_placer_has(p, t->saver_units[i])) return true;
  return false;
}

/* In which round of place_saved it gets its place: multiples of the boundary that kernels want tensors on, tensors of
 * other sizes, statistics of other sizes, and last what leaves all that follows on the boundary of the workspace. */
enum { KERNEL_ALIGNMENT = 16, LAST_ROUND = 3 };
static int round_of(int64_t bytes, bool statistics) {
  if (bytes % PLAN_PLACE_ALIGNMENT == 0) return LAST_ROUND;
  return bytes % KERNEL_ALIGNMENT == 0 ? 0 : statistics ? 2 : 1;
}

static void save_tensor(plan_placer *p, int tensor, int round) {
  const graph_tensor *t = plan_placer_tensor(p, tensor);
  if (p->saved[tensor] && round_of(t->bytes, false) == round) p->value[tensor] = take(p, PLAN_BLOCK_SAVED, t->bytes);
}

/* What the backward of later units reads lies behind what that of earlier ones does: it is free first. But what would
 * leave the next one unaligned comes before all, and what aligns that. */
static void place_saved(plan_placer *p) {
  for (int round = 0; round <= LAST_ROUND; round++) {
    if (round == LAST_ROUND)
      p->out->block_bytes[PLAN_BLOCK_SAVED] = plan_place_aligned(p->out->block_bytes[PLAN_BLOCK_SAVED]);
    for (int t = 0; t < (int)p->graph->tensors.count; t++)
      if (plan_placer_tensor(p, t)->producer_unit == GRAPH_NONE) save_tensor(p, t, round);
    for (int o = p->first_op; o < p->end_op; o++) {
      const graph_op *op = plan_placer_op(p, o);
      for (int i = 0; i < op->output_count; i++) save_tensor(p, op->outputs[i], round);
      if (op->saved_extra_bytes > 0 && !plan_placer_recomputes(p, op->unit) &&
          round_of(op->saved_extra_bytes, true) == round)
        p->statistics[o] = take(p, PLAN_BLOCK_SAVED, op->saved_extra_bytes);
    }
  }
}

static void place_value(plan_placer *p, int tensor) {
  const graph_tensor *t = plan_placer_tensor(p, tensor);
  const bool here = plan_placer_has(p, t->producer_unit), input = t->producer_unit == GRAPH_NONE;
  bool used = here;
  for (int i = 0; i < t->consumer_unit_count; i++) used = used || plan_placer_has(p, t->consumer_units[i]);
  if (!used || !plan_place_is_none(p->value[tensor])) return;
  if (t->is_constant || (!here && !input))
    p->value[tensor] = outside_at(p, tensor, false);
  else if (input)
    p->value[tensor] = take(p, PLAN_BLOCK_INPUTS, t->bytes);
  else if (plan_placer_leaves(p, t))
    p->value[tensor] = outside_at(p, tensor, false);
  if (!p->saved[tensor] && is_again(p, t)) p->again[tensor] = take(p, PLAN_BLOCK_AGAIN, t->bytes);
}

/* Where gradients from outside the chunk are collected before its backward begins. */
plan_place plan_placer_collected(plan_placer *p, int tensor) {
  const graph_tensor *t = plan_placer_tensor(p, tensor);
  if (used_elsewhere(p, tensor, true)) return outside_at(p, tensor, true);
  if (!t->is_output) return (plan_place){PLAN_BLOCK_NONE, 0};
  return p->saved[tensor] ? outside_at(p, tensor, true) : p->value[tensor]; /* the loss's takes its place */
}

static void place_gradient(plan_placer *p, int tensor) {
  const graph_tensor *t = plan_placer_tensor(p, tensor);
  if (!t->needs_gradient) return;
  if (!plan_placer_has(p, t->producer_unit)) {
    bool used = false;
    for (int i = 0; i < t->consumer_unit_count; i++) used = used || plan_placer_has(p, t->consumer_units[i]);
    if (used && !departs_projected(p, tensor)) p->gradient[tensor] = outside_at(p, tensor, true);
  } else if (p->split && plan_placer_learns(plan_placer_op(p, t->producer_op))) {
    p->gradient[tensor] = take(p, PLAN_BLOCK_KEPT, t->bytes);
  } else if (plan_placer_leaves(p, t)) {
    p->gradient[tensor] = plan_placer_collected(p, tensor);
  }
}

static int64_t hidden_bytes(const graph_op *op) { return op->adapter_parameters > 0 ? op->saved_extra_bytes : 0; }

static void place_op(plan_placer *p, int index) {
  const graph_op *op = plan_placer_op(p, index);
  if (!p->plan->training) return;
  if (op->saved_extra_bytes > 0 && plan_placer_recomputes(p, op->unit) && p->split)
    p->statistics_again[index] = take(p, PLAN_BLOCK_AGAIN, op->saved_extra_bytes);
  if (p->split && hidden_bytes(op) > 0) p->hidden[index] = take(p, PLAN_BLOCK_KEPT, hidden_bytes(op));
}

/* In other blocks, too, tensors whose size keeps the next one aligned are first. */
static void place_blocks(plan_placer *p) {
  const int tensors = (int)p->graph->tensors.count, units = p->end_unit - p->first_unit;
  for (int t = 0; t < tensors; t++)
    p->saved[t] = plan_places_saves(p->plan, p->graph, t, p->first_unit, units) &&
                  !plan_places_remakes(p->plan, p->graph, t, p->first_unit, units);
  if (p->plan->training) place_saved(p);
  for (int odd = 0; odd < 2; odd++)
    for (int t = 0; t < tensors; t++) {
      if ((plan_placer_tensor(p, t)->bytes % PLAN_PLACE_ALIGNMENT != 0) != (odd == 1)) continue;
      place_value(p, t);
      if (p->plan->training) place_gradient(p, t);
    }
  for (int o = p->first_op; o < p->end_op; o++) place_op(p, o);
}

static dp_status check_saved(const plan_placer *p) {
  const int64_t saved_bytes =
      p->plan->training ? plan_places_saved_bytes(p->plan, p->graph, p->first_unit, p->end_unit - p->first_unit) : 0;
  if (p->out->block_bytes[PLAN_BLOCK_SAVED] == saved_bytes) return DP_OK;
  return dp_fail(p->error, DP_INTERNAL, "plan: chunk %d has places for %lld saved bytes, the graph counts %lld",
                 p->chunk, (long long)p->out->block_bytes[PLAN_BLOCK_SAVED], (long long)saved_bytes);
}

/* ---- forward ---- */

static plan_place forward_value(plan_placer *p, int tensor) {
  const int root = plan_placer_root(p, tensor);
  return plan_place_is_none(p->value[root]) ? plan_placer_use(p, p->value_life[root]) : p->value[root];
}

static bool is_pair(graph_op_kind first, graph_op_kind second) {
  if (second == GRAPH_ADD) return first == GRAPH_LINEAR || first == GRAPH_CONV2D;
  return first == GRAPH_GROUP_NORM && second == GRAPH_SILU;
}

/* What a product or a group norm reads and notes stays until the sum or the SiLU behind it is there: who does both at
 * once writes that meanwhile. */
static void use_pair(plan_placer *p, int second) {
  if (second == p->first_op || !is_pair(plan_placer_op(p, second - 1)->kind, plan_placer_op(p, second)->kind)) return;
  const int read = p->value_life[plan_placer_root(p, plan_placer_op(p, second - 1)->inputs[0])];
  if (read) (void)plan_placer_use(p, read);
  if (p->statistics_life[second - 1]) (void)plan_placer_use(p, p->statistics_life[second - 1]);
}

static void forward_op(plan_placer *p, int index) {
  const graph_op *op = plan_placer_op(p, index);
  plan_operands operands = {.statistics = p->statistics[index]};
  if (plan_placer_shows(p, op)) return;
  for (int i = 0; i < op->input_count; i++) operands.in[i] = forward_value(p, op->inputs[i]);
  use_pair(p, index);
  for (int i = 0; i < op->output_count; i++) {
    const int tensor = op->outputs[i];
    if (plan_place_is_none(p->value[tensor]))
      p->value_life[tensor] = plan_placer_begin(p, plan_placer_tensor(p, tensor)->bytes);
    operands.out[i] = forward_value(p, tensor);
  }
  if (plan_place_is_none(operands.statistics) && plan_placer_statistic_bytes(op) > 0) {
    p->statistics_life[index] = plan_placer_begin(p, plan_placer_statistic_bytes(op));
    operands.statistics = plan_placer_use(p, p->statistics_life[index]);
  }
  plan_placer_act(p, PLAN_ACTION_FORWARD, index, &operands);
}

/* The largest skip that leaves compressed. */
static int64_t compressed_bytes(const plan_placer *p) {
  int64_t most = 0;
  for (int t = 0; t < (int)p->graph->tensors.count; t++) {
    const graph_tensor *tensor = plan_placer_tensor(p, t);
    if (!plan_placer_has(p, tensor->producer_unit)) continue;
    for (int i = 0; i < tensor->consumer_unit_count; i++) {
      const int user = p->chunk_of_unit[tensor->consumer_units[i]];
      if (user == p->chunk || !travels_projected(p, t, user)) continue;
      if (tensor->bytes > most) most = tensor->bytes;
    }
  }
  return most;
}

static void forward(plan_placer *p) {
  const graph_tensor *output = NULL;
  for (int u = p->first_unit; u < p->end_unit; u++) {
    const graph_unit *unit = &p->graph->units.items[u];
    p->out->passes[PLAN_PASS_FORWARD].unit_begin[u - p->first_unit] = (uint32_t)p->actions.count;
    for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++) {
      forward_op(p, o);
      for (int i = 0; i < plan_placer_op(p, o)->output_count; i++) {
        const graph_tensor *t = plan_placer_tensor(p, plan_placer_op(p, o)->outputs[i]);
        if (t->is_output && (!output || t->bytes > output->bytes)) output = t;
      }
    }
    p->out->passes[PLAN_PASS_FORWARD].unit_end[u - p->first_unit] = (uint32_t)p->actions.count;
  }
  if (output && p->plan->training) p->out->target = plan_placer_use(p, plan_placer_begin(p, output->bytes));
  const int64_t scratch_bytes = p->plan->training ? compressed_bytes(p) : 0;
  if (scratch_bytes > 0) p->out->scratch = plan_placer_use(p, plan_placer_begin(p, scratch_bytes));
}

/* ---- a pass ---- */

static int64_t most_alive(const plan_buffer *buffers, uint32_t count, uint32_t moments, int64_t *change_bytes) {
  int64_t alive = 0, most = 0;
  for (uint32_t i = 0; i < count; i++) {
    change_bytes[buffers[i].begin] += buffers[i].bytes;
    change_bytes[buffers[i].end + 1] -= buffers[i].bytes;
  }
  for (uint32_t m = 0; m < moments; m++) {
    alive += change_bytes[m];
    if (alive > most) most = alive;
  }
  return most;
}

static dp_status place_lives(plan_placer *p, plan_pass_places *pass) {
  const uint32_t count = (uint32_t)p->lives.count, moments = (uint32_t)p->actions.count + 1;
  plan_buffer *buffers = DP_ARENA_NEW(&p->scratch, plan_buffer, count);
  int64_t *change_bytes = DP_ARENA_NEW(&p->scratch, int64_t, (size_t)moments + 1);
  if (!buffers || !change_bytes) return dp_fail_memory(p->error);
  for (uint32_t i = 0; i < count; i++)
    buffers[i] = (plan_buffer){.begin = p->lives.items[i].begin,
                               .end = p->lives.items[i].end,
                               .bytes = plan_place_aligned(p->lives.items[i].bytes)};
  const int64_t most = most_alive(buffers, count, moments, change_bytes);
  DP_TRY(plan_memory_place(buffers, count, 0, most, &pass->workspace_bytes, p->error));
  for (uint32_t i = 0; i < count; i++) p->lives.items[i].at = buffers[i].offset_bytes;
  return plan_placer_seat_siblings(p, pass->workspace_bytes);
}

static void locate(const plan_placer *p, plan_place *place) {
  if (place->block == PLAN_BLOCK_WORKSPACE) place->at = p->lives.items[place->at].at;
}

/* ISO C allows no memcpy from a null pointer, even of nothing. */
static void *copy(dp_arena *arena, const void *items, size_t count, size_t size) {
  void *made = dp_arena_alloc(arena, count, size);
  if (made && count) memcpy(made, items, count * size);
  return made;
}

static dp_status end_pass(plan_placer *p, plan_pass_places *pass) {
  if (p->failed) return dp_fail_memory(p->error);
  DP_TRY(place_lives(p, pass));
  for (size_t i = 0; i < p->places.count; i++) locate(p, &p->places.items[i]);
  pass->action_count = (uint32_t)p->actions.count;
  pass->life_count = (uint32_t)p->lives.count;
  pass->actions = copy(p->arena, p->actions.items, p->actions.count, sizeof *pass->actions);
  pass->places = copy(p->arena, p->places.items, p->places.count, sizeof *pass->places);
  pass->lives = copy(p->arena, p->lives.items, p->lives.count, sizeof *pass->lives);
  if (!pass->actions || !pass->places || !pass->lives) return dp_fail_memory(p->error);
  if (pass->workspace_bytes > p->out->block_bytes[PLAN_BLOCK_WORKSPACE])
    p->out->block_bytes[PLAN_BLOCK_WORKSPACE] = pass->workspace_bytes;
  if (pass == &p->out->passes[PLAN_PASS_FORWARD]) {
    locate(p, &p->out->target);
    locate(p, &p->out->scratch);
  }
  if (pass == &p->out->passes[PLAN_PASS_BACKWARD]) {
    for (size_t i = 0; i < p->arrivals.count; i++) locate(p, &p->arrivals.items[i].place);
    for (size_t i = 0; i < p->departures.count; i++) locate(p, &p->departures.items[i].place);
  }
  p->actions.count = p->places.count = p->lives.count = p->made.count = 0;
  memset(p->value_life, 0, p->graph->tensors.count * sizeof *p->value_life);
  memset(p->gradient_life, 0, p->graph->tensors.count * sizeof *p->gradient_life);
  memset(p->statistics_life, 0, p->graph->ops.count * sizeof *p->statistics_life);
  return DP_OK;
}

static dp_status run_passes(plan_placer *p) {
  plan_pass_places *passes = p->out->passes;
  forward(p);
  DP_TRY(end_pass(p, &passes[PLAN_PASS_FORWARD]));
  if (!p->plan->training) return DP_OK;
  DP_TRY(plan_placer_backward(p));
  DP_TRY(end_pass(p, &passes[PLAN_PASS_BACKWARD]));
  if (!p->split) return DP_OK;
  DP_TRY(plan_placer_weight(p));
  return end_pass(p, &passes[PLAN_PASS_WEIGHT]);
}

/* ---- what the executor must know beside ---- */

static dp_status list_ports(plan_placer *p) {
  plan_places *out = p->out;
  const int tensors = (int)p->graph->tensors.count;
  for (int fill = 0; fill < 2; fill++) {
    out->input_count = out->made_count = 0;
    for (int t = 0; t < tensors; t++) {
      const plan_place place = p->value[t];
      const graph_tensor *tensor = plan_placer_tensor(p, t);
      if (plan_place_is_none(place) || tensor->is_constant) continue;
      if (tensor->producer_unit == GRAPH_NONE) {
        if (fill) out->inputs[out->input_count] = (plan_port){t, place};
        out->input_count++;
      } else if (plan_placer_has(p, tensor->producer_unit) && plan_placer_leaves(p, tensor)) {
        if (fill) out->made[out->made_count] = (plan_port){t, place};
        out->made_count++;
      }
    }
    if (fill) break;
    out->inputs = DP_ARENA_NEW(p->arena, plan_port, (size_t)out->input_count);
    out->made = DP_ARENA_NEW(p->arena, plan_port, (size_t)out->made_count);
    if (!out->inputs || !out->made) return dp_fail_memory(p->error);
  }
  out->outside_count = (int)p->outsides.count;
  out->arrival_count = (int)p->arrivals.count;
  out->departure_count = (int)p->departures.count;
  out->outside = copy(p->arena, p->outsides.items, p->outsides.count, sizeof *out->outside);
  out->arrivals = copy(p->arena, p->arrivals.items, p->arrivals.count, sizeof *out->arrivals);
  out->departures = copy(p->arena, p->departures.items, p->departures.count, sizeof *out->departures);
  return out->outside && out->arrivals && out->departures ? DP_OK : dp_fail_memory(p->error);
}

plan_place plan_places_made(const plan_places *places, int tensor) {
  int low = 0, high = places->made_count; /* ascending */
  while (low < high) {
    const int middle = (low + high) / 2;
    if (places->made[middle].tensor < tensor)
      low = middle + 1;
    else
      high = middle;
  }
  return low < places->made_count && places->made[low].tensor == tensor ? places->made[low].place
                                                                        : (plan_place){PLAN_BLOCK_NONE, 0};
}

/* ---- all ---- */

#define SCRATCH(p, type, count) DP_ARENA_NEW(&(p)->scratch, type, (size_t)(count))

static dp_status prepare(plan_placer *p) {
  const size_t tensors = p->graph->tensors.count, ops = p->graph->ops.count;
  p->chunk_of_unit = SCRATCH(p, int, p->graph->units.count);
  p->value = SCRATCH(p, plan_place, tensors);
  p->again = SCRATCH(p, plan_place, tensors);
  p->gradient = SCRATCH(p, plan_place, tensors);
  p->statistics = SCRATCH(p, plan_place, ops);
  p->statistics_again = SCRATCH(p, plan_place, ops);
  p->hidden = SCRATCH(p, plan_place, ops);
  p->saved = SCRATCH(p, uint8_t, tensors);
  p->wanted = SCRATCH(p, uint8_t, tensors);
  p->outside[0] = SCRATCH(p, int, tensors);
  p->outside[1] = SCRATCH(p, int, tensors);
  p->value_life = SCRATCH(p, int, tensors);
  p->gradient_life = SCRATCH(p, int, tensors);
  p->statistics_life = SCRATCH(p, int, ops);
  if (!p->chunk_of_unit || !p->value || !p->again || !p->gradient || !p->statistics || !p->statistics_again ||
      !p->hidden || !p->saved || !p->wanted || !p->outside[0] || !p->outside[1] || !p->value_life ||
      !p->gradient_life || !p->statistics_life)
    return dp_fail_memory(p->error);
  for (int c = 0; c < p->plan->chunk_count; c++)
    for (int u = 0; u < p->plan->chunks[c].unit_count; u++) p->chunk_of_unit[p->plan->chunks[c].first_unit + u] = c;
  for (int pass = 0; pass < PLAN_PASS_COUNT; pass++) {
    const size_t units = (size_t)(p->end_unit - p->first_unit);
    p->out->passes[pass].unit_begin = DP_ARENA_NEW(p->arena, uint32_t, units);
    p->out->passes[pass].unit_end = DP_ARENA_NEW(p->arena, uint32_t, units);
    if (!p->out->passes[pass].unit_begin || !p->out->passes[pass].unit_end) return dp_fail_memory(p->error);
  }
  return DP_OK;
}

static dp_status place_all(plan_placer *p) {
  DP_TRY(prepare(p));
  place_blocks(p);
  if (p->failed) return dp_fail_memory(p->error);
  DP_TRY(check_saved(p));
  DP_TRY(run_passes(p));
  return list_ports(p);
}

dp_status plan_places_of(const plan_plan *plan, const graph *g, int chunk, bool split_backward, dp_arena *arena,
                         plan_places *places, dp_error *error) {
  const plan_chunk *of = &plan->chunks[chunk];
  const graph_unit *last = &g->units.items[of->first_unit + of->unit_count - 1];
  *places = (plan_places){.first_unit = of->first_unit, .unit_count = of->unit_count};
  plan_placer p = {.plan = plan,
                   .graph = g,
                   .out = places,
                   .arena = arena,
                   .error = error,
                   .chunk = chunk,
                   .first_unit = of->first_unit,
                   .end_unit = of->first_unit + of->unit_count,
                   .first_op = g->units.items[of->first_unit].first_op,
                   .end_op = last->first_op + last->op_count,
                   .split = split_backward};
  const dp_status status = place_all(&p);
  dp_array_free(&p.outsides);
  dp_array_free(&p.arrivals);
  dp_array_free(&p.departures);
  dp_array_free(&p.actions);
  dp_array_free(&p.places);
  dp_array_free(&p.lives);
  dp_array_free(&p.made);
  dp_arena_free(&p.scratch);
  return status;
}
