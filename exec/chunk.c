#include "exec/chunk.h"

#include "base/clock.h"
#include "exec/fusion.h"
#include "exec/ops.h"

/* Shapes and attributes alone. */
static exec_call shape_of(const graph *g, const graph_op *op) {
  exec_call c = {.graph = g, .op = op};
  for (int i = 0; i < op->input_count; i++) c.in[i] = &g->tensors.items[op->inputs[i]];
  for (int i = 0; i < op->output_count; i++) c.out[i] = &g->tensors.items[op->outputs[i]];
  return c;
}

size_t exec_chunk_workspace(const exec_math *math, const graph *g, int first_unit, int unit_count, int threads) {
  size_t most = 0;
  for (int u = first_unit; u < first_unit + unit_count; u++) {
    const graph_unit *unit = &g->units.items[u];
    for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++) {
      const exec_call c = shape_of(g, &g->ops.items[o]);
      const exec_op_row *row = &math->rows[c.op->kind];
      const size_t bytes = row->workspace ? row->workspace(&c, threads) : 0;
      if (bytes > most) most = bytes;
    }
  }
  return most;
}

static const exec_math *math_of(const exec_chunk *chunk) { return chunk->math ? chunk->math : &exec_math_cpu; }

dp_status exec_chunk_check(const exec_math *math, const graph *g, dp_error *error) {
  for (size_t o = 0; o < g->ops.count; o++) {
    const graph_op *op = &g->ops.items[o];
    if (!math->rows[op->kind].forward)
      return dp_fail(error, DP_UNSUPPORTED, "%s: %s has no arithmetic for %s", op->name, math->name,
                     graph_op_kind_name(op->kind));
  }
  return DP_OK;
}

/* ---- actions ---- */

void *exec_memory_at(const exec_memory *memory, plan_place place) {
  if (place.block == PLAN_BLOCK_NONE) return NULL;
  if (place.block == PLAN_BLOCK_OUTSIDE) return memory->outside[place.at];
  return memory->blocks[place.block] + place.at;
}

static exec_call call_of(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                         const plan_action *action) {
  const graph_op *op = &chunk->graph->ops.items[action->op];
  const plan_place *values = &pass->places[action->first_place];
  const int n = op->input_count, m = op->output_count;
  const exec_lora *adapters = chunk->parameters->lora;
  exec_call c = shape_of(chunk->graph, op);
  if (adapters && adapters[action->op].rank > 0) c.adapter = &adapters[action->op];
  c.kern = chunk->kern;
  for (int i = 0; i < n; i++) c.x[i] = exec_memory_at(memory, values[i]);
  for (int i = 0; i < m; i++) c.y[i] = exec_memory_at(memory, values[n + i]);
  c.statistics = exec_memory_at(memory, values[2 * (n + m)]);
  c.hidden_gradient = exec_memory_at(memory, values[2 * (n + m) + 1]);
  for (int w = 0; w < op->weight_count; w++) {
    c.w[w] = exec_parameters_value(chunk->parameters, op->first_weight + w);
    c.dw[w] = exec_parameters_gradient(chunk->parameters, op->first_weight + w);
  }
  return c;
}

/* Fills in gradients of outputs; false: none has reached any. */
static bool look_up_outputs(const exec_memory *memory, const plan_place *gradients, exec_call *c) {
  bool any = false;
  for (int i = 0; i < c->op->output_count; i++) {
    if (!memory->begun[plan_places_root(c->graph, c->op->outputs[i])]) continue;
    c->dy[i] = exec_memory_at(memory, gradients[i]);
    any = any || c->dy[i];
  }
  return any;
}

static void look_up_inputs(const exec_memory *memory, const plan_place *gradients, exec_call *c) {
  for (int i = 0; i < c->op->input_count; i++) {
    c->dx[i] = exec_memory_at(memory, gradients[i]);
    c->add[i] = c->dx[i] && memory->begun[plan_places_root(c->graph, c->op->inputs[i])];
  }
}

static const plan_place *gradients_of(const plan_pass_places *pass, const plan_action *action, const graph_op *op) {
  return &pass->places[action->first_place] + op->input_count + op->output_count;
}

static void begin_inputs(const exec_memory *memory, const exec_call *c) {
  for (int i = 0; i < c->op->input_count; i++)
    if (c->dx[i]) memory->begun[plan_places_root(c->graph, c->op->inputs[i])] = 1;
}

/* An op's gradients of weights in a backward that is to overwrite them: nothing has come as far, or it is to be added.
 */
static void begin_weights(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                          const plan_action *action) {
  const exec_call c = call_of(chunk, memory, pass, action);
  if (action->kind != PLAN_ACTION_WEIGHT_GRADIENT || !chunk->fresh) return;
  for (int w = 0; w < c.op->weight_count; w++)
    if (c.dw[w])
      math_of(chunk)->clear(chunk->kern, chunk->graph->weights.items[c.op->first_weight + w].parameters, c.dw[w]);
  if (c.adapter && c.adapter->da) math_of(chunk)->clear(chunk->kern, c.op->adapter_parameters, c.adapter->da);
}

/* False: no gradient has come that far. */
static bool run_action(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                       const plan_action *action) {
  exec_call c = call_of(chunk, memory, pass, action);
  const exec_op_row *row = &math_of(chunk)->rows[c.op->kind];
  const plan_place *gradients = gradients_of(pass, action, c.op);
  switch (action->kind) {
    case PLAN_ACTION_FORWARD:
      row->forward(&c);
      return true;
    case PLAN_ACTION_AGAIN:
      (row->again ? row->again : row->forward)(&c);
      return true;
    case PLAN_ACTION_INPUT_GRADIENT:
      if (!look_up_outputs(memory, gradients + c.op->input_count, &c)) return false;
      look_up_inputs(memory, gradients, &c);
      row->backward_input(&c);
      begin_inputs(memory, &c);
      return true;
    default:
      if (!look_up_outputs(memory, gradients + c.op->input_count, &c)) {
        begin_weights(chunk, memory, pass, action);
        return false;
      }
      if (!math_of(chunk)->overwrite) begin_weights(chunk, memory, pass, action);
      row->backward_weight(&c);
      return true;
  }
}

/* An action's time is all that its turn takes, from looking up its operands on. Returns when the next one begins. */
static double tell(const exec_chunk *chunk, const plan_action *action, double start_s) {
  static const plan_direction directions[] = {[PLAN_ACTION_FORWARD] = PLAN_DIRECTION_FORWARD,
                                              [PLAN_ACTION_INPUT_GRADIENT] = PLAN_DIRECTION_BACKWARD_INPUT,
                                              [PLAN_ACTION_WEIGHT_GRADIENT] = PLAN_DIRECTION_BACKWARD_WEIGHT};
  const double now_s = dp_clock_s();
  if (action->kind == PLAN_ACTION_AGAIN) return start_s; /* it goes to the one that needs it */
  chunk->observer->note(chunk->observer->data, chunk->worker, action->op, directions[action->kind], now_s - start_s);
  return dp_clock_s();
}

/* ---- groups of actions: exec/fusion.h ---- */

/* `actions` are a norm's gradients, of its input, its weights or both, by the gradient of what it, or the SiLU behind
 * it, puts out. */
static void run_norm_backward(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                              const plan_action *actions, int count, const void *dy, exec_fusion_kind kind) {
  exec_call c = call_of(chunk, memory, pass, &actions[0]);
  c.dy[0] = dy;
  if (actions[0].kind == PLAN_ACTION_INPUT_GRADIENT) look_up_inputs(memory, gradients_of(pass, &actions[0], c.op), &c);
  if (actions[count - 1].kind != PLAN_ACTION_WEIGHT_GRADIENT)
    for (int w = 0; w < c.op->weight_count; w++) c.dw[w] = NULL;
  math_of(chunk)->fused[kind](&c);
  begin_inputs(memory, &c);
}

static void run_sum_backward(const exec_memory *memory, const exec_op_row *row, const plan_place *gradients, int input,
                             exec_call *sum) {
  look_up_inputs(memory, gradients, sum);
  sum->dx[input] = NULL;
  row->backward_input(sum);
  begin_inputs(memory, sum);
}

/* The gradient that the sum would only have copied. */
static void run_by_sum(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                       const plan_action *action, const void *dy) {
  exec_call c = call_of(chunk, memory, pass, action);
  const exec_op_row *row = &math_of(chunk)->rows[c.op->kind];
  c.dy[0] = dy;
  if (action->kind == PLAN_ACTION_WEIGHT_GRADIENT) {
    row->backward_weight(&c);
    return;
  }
  look_up_inputs(memory, gradients_of(pass, action, c.op), &c);
  row->backward_input(&c);
  begin_inputs(memory, &c);
}

static void run_forward_pair(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                             const plan_action *actions, const exec_group *group) {
  exec_call c = call_of(chunk, memory, pass, &actions[0]);
  const exec_call next = call_of(chunk, memory, pass, &actions[1]);
  c.y[0] = next.y[0];
  if (group->kind == EXEC_FUSION_PRODUCT_ADD) c.residual = next.x[1 - group->input];
  math_of(chunk)->fused[group->kind](&c);
}

static void *bias_gradient(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                           uint32_t action) {
  return action > 0 ? call_of(chunk, memory, pass, &pass->actions[action]).dw[1] : NULL;
}

/* The gradient of an activation's input, and of the bias that it had added. */
static void run_activation_bias(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                                uint32_t a, const exec_group *group) {
  exec_call c = call_of(chunk, memory, pass, &pass->actions[a]);
  const plan_place *gradients = gradients_of(pass, &pass->actions[a], c.op);
  if (!look_up_outputs(memory, gradients + c.op->input_count, &c)) return;
  look_up_inputs(memory, gradients, &c);
  c.dbias = bias_gradient(chunk, memory, pass, group->bias);
  if (c.dbias)
    math_of(chunk)->fused[group->kind](&c);
  else /* not trained */
    math_of(chunk)->rows[c.op->kind].backward_input(&c);
  begin_inputs(memory, &c);
}

/* The gradients of that linear's weights but for the bias'. */
static void run_without_bias(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                             const plan_action *action) {
  exec_call c = call_of(chunk, memory, pass, action);
  if (!look_up_outputs(memory, gradients_of(pass, action, c.op) + c.op->input_count, &c)) {
    begin_weights(chunk, memory, pass, action);
    return;
  }
  c.dw[1] = NULL;
  math_of(chunk)->rows[c.op->kind].backward_weight(&c);
}

/* An activation made again, and the gradient of its input, where one has come that far. */
static void run_activation_both(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                                uint32_t a, const exec_group *group) {
  const exec_call again = call_of(chunk, memory, pass, &pass->actions[a]);
  const plan_action *action = &pass->actions[group->other];
  exec_call c = call_of(chunk, memory, pass, action);
  const plan_place *gradients = gradients_of(pass, action, c.op);
  if (!look_up_outputs(memory, gradients + c.op->input_count, &c)) {
    (void)run_action(chunk, memory, pass, &pass->actions[a]);
    return;
  }
  look_up_inputs(memory, gradients, &c);
  c.y[0] = again.y[0];
  c.dbias = bias_gradient(chunk, memory, pass, group->bias);
  math_of(chunk)->fused[group->kind](&c);
  begin_inputs(memory, &c);
}

static void run_siblings(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                         const plan_action *actions, const exec_group *group) {
  exec_call calls[PLAN_MAX_SIBLINGS];
  for (int i = 0; i < group->count; i++) calls[i] = call_of(chunk, memory, pass, &actions[i]);
  calls[0].siblings = calls;
  calls[0].sibling_count = group->count;
  math_of(chunk)->fused[group->kind](&calls[0]);
}

/* The gradients of siblings' weights, of actions that go from the last op to the first; one by one where a gradient has
 * come to some alone. */
static void run_siblings_weights(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass,
                                 uint32_t a, const exec_group *group) {
  const uint32_t actions[PLAN_MAX_SIBLINGS] = {a, group->other, group->third};
  const int count = group->third > 0 ? 3 : 2;
  exec_call calls[PLAN_MAX_SIBLINGS];
  bool all = true;
  for (int i = 0; i < count; i++) {
    const plan_action *action = &pass->actions[actions[count - 1 - i]];
    calls[i] = call_of(chunk, memory, pass, action);
    all = look_up_outputs(memory, gradients_of(pass, action, calls[i].op) + calls[i].op->input_count, &calls[i]) && all;
  }
  calls[0].siblings = calls;
  calls[0].sibling_count = count;
  if (all)
    math_of(chunk)->fused[group->kind](&calls[0]);
  else
    for (int i = 0; i < count; i++) (void)run_action(chunk, memory, pass, &pass->actions[actions[i]]);
}

/* The group that begins with action `a`. */
static void run_group(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass, uint32_t a,
                      const exec_group *group) {
  const plan_action *actions = &pass->actions[a];
  if (group->kind == EXEC_FUSION_NORM_SILU || group->kind == EXEC_FUSION_NORM_SILU_AGAIN ||
      group->kind == EXEC_FUSION_PRODUCT_ADD) {
    run_forward_pair(chunk, memory, pass, actions, group);
    return;
  }
  if (group->kind == EXEC_FUSION_ACTIVATION_BOTH) run_activation_both(chunk, memory, pass, a, group);
  if (group->kind == EXEC_FUSION_ACTIVATION_BIAS) run_activation_bias(chunk, memory, pass, a, group);
  if (group->kind == EXEC_FUSION_BIAS_DONE) run_without_bias(chunk, memory, pass, actions);
  if (group->kind == EXEC_FUSION_SIBLINGS) run_siblings(chunk, memory, pass, actions, group);
  if (group->kind == EXEC_FUSION_SIBLINGS_WEIGHTS) run_siblings_weights(chunk, memory, pass, a, group);
  if (group->kind >= EXEC_FUSION_ACTIVATION_BOTH) return;
  /* by whose output's gradient; a norm made again for a SiLU's is read by nobody else */
  const int again = actions[0].kind == PLAN_ACTION_AGAIN;
  const int skipped = again + (group->kind == EXEC_FUSION_SILU_NORM_BACKWARD);
  const plan_action *by = group->kind == EXEC_FUSION_BY_SUM ? &pass->actions[group->other] : &actions[again];
  exec_call c = call_of(chunk, memory, pass, by);
  const plan_place *gradients = gradients_of(pass, by, c.op);
  if (!look_up_outputs(memory, gradients + c.op->input_count, &c))
    for (int i = 0; i < group->count; i++) begin_weights(chunk, memory, pass, &actions[i]);
  else if (group->kind == EXEC_FUSION_SUM_BACKWARD)
    run_sum_backward(memory, &math_of(chunk)->rows[c.op->kind], gradients, group->input, &c);
  else if (group->kind == EXEC_FUSION_BY_SUM)
    run_by_sum(chunk, memory, pass, actions, c.dy[0]);
  else
    run_norm_backward(chunk, memory, pass, actions + skipped, group->count - skipped, c.dy[0], group->kind);
}

/* ---- passes ---- */

/* The places of the workspace whose life begins, or ends, with an action. */
static void poison(const exec_chunk *chunk, const exec_memory *memory, const plan_pass_places *pass, uint32_t at,
                   bool begin) {
  for (uint32_t l = 0; chunk->poison && l < pass->life_count; l++) {
    const plan_life *life = &pass->lives[l];
    if ((begin ? life->begin : life->end) != at) continue;
    math_of(chunk)->spoil(chunk->kern, life->bytes,
                          exec_memory_at(memory, (plan_place){PLAN_BLOCK_WORKSPACE, life->at}));
  }
}

static void run_actions(const exec_chunk *chunk, const exec_memory *memory, int which, uint32_t begin, uint32_t end) {
  const plan_pass_places *pass = &chunk->places->passes[which];
  const bool observed = chunk->observer && chunk->observer->on;
  if (chunk->fusion && !observed && !chunk->poison) {
    const exec_group *groups = chunk->fusion->groups[which];
    for (uint32_t a = begin; a < end; a += groups[a].count) {
      if (groups[a].kind != EXEC_FUSION_NONE)
        run_group(chunk, memory, pass, a, &groups[a]);
      else
        (void)run_action(chunk, memory, pass, &pass->actions[a]);
    }
    return;
  }
  double start_s = observed ? dp_clock_s() : 0;
  for (uint32_t a = begin; a < end; a++) {
    if (a > 0 || which != PLAN_PASS_BACKWARD) poison(chunk, memory, pass, a, true); /* else begin_backward has */
    const bool ran = run_action(chunk, memory, pass, &pass->actions[a]);
    if (observed) start_s = ran ? tell(chunk, &pass->actions[a], start_s) : dp_clock_s();
    poison(chunk, memory, pass, a, false);
  }
}

static void mark(const exec_chunk *chunk, int number, bool is_end) {
  if (chunk->marks && (is_end || !chunk->marks->ends_only))
    chunk->marks->mark(chunk->marks->data, chunk->marks->first + (uint32_t)number);
}

void exec_chunk_forward(const exec_chunk *chunk, const exec_memory *memory) {
  const plan_pass_places *pass = &chunk->places->passes[PLAN_PASS_FORWARD];
  uint32_t begin = 0;
  for (int u = 0; chunk->marks && u < chunk->places->unit_count; begin = pass->unit_end[u++]) {
    mark(chunk, u, u == 0);
    run_actions(chunk, memory, PLAN_PASS_FORWARD, begin, pass->unit_end[u]);
  }
  run_actions(chunk, memory, PLAN_PASS_FORWARD, begin, pass->action_count);
  mark(chunk, chunk->places->unit_count, true);
}

static bool is_finite(const exec_chunk *chunk, const exec_memory *memory, int tensor, plan_place place) {
  const graph_tensor *t = &chunk->graph->tensors.items[tensor];
  return math_of(chunk)->is_finite(chunk->kern, t->dtype, graph_tensor_elements(t), exec_memory_at(memory, place));
}

bool exec_chunk_is_finite(const exec_chunk *chunk, const exec_memory *memory) {
  const plan_places *places = chunk->places;
  for (int i = 0; i < places->made_count; i++) {
    const graph_tensor *t = &chunk->graph->tensors.items[places->made[i].tensor];
    if (t->producer_unit == places->first_unit + places->unit_count - 1 &&
        !is_finite(chunk, memory, places->made[i].tensor, places->made[i].place))
      return false;
  }
  return true;
}

int exec_chunk_find_not_finite(const exec_chunk *chunk, const exec_memory *memory) {
  const plan_pass_places *pass = &chunk->places->passes[PLAN_PASS_FORWARD];
  for (uint32_t a = 0; a < pass->action_count; a++) {
    const plan_action *action = &pass->actions[a];
    const graph_op *op = &chunk->graph->ops.items[action->op];
    (void)run_action(chunk, memory, pass, action);
    for (int i = 0; i < op->output_count; i++)
      if (!is_finite(chunk, memory, op->outputs[i],
                     pass->places[action->first_place + (uint32_t)(op->input_count + i)]))
        return op->unit;
  }
  return GRAPH_NONE;
}

void exec_chunk_begin_backward(const exec_chunk *chunk, const exec_memory *memory) {
  poison(chunk, memory, &chunk->places->passes[PLAN_PASS_BACKWARD], 0, true);
  for (int i = 0; i < chunk->places->arrival_count; i++) {
    const plan_arrival *arrival = &chunk->places->arrivals[i];
    const void *from = exec_memory_at(memory, arrival->collected);
    void *to = exec_memory_at(memory, arrival->place);
    if (from && from != to && memory->begun[arrival->tensor])
      math_of(chunk)->move(chunk->kern, graph_tensor_elements(&chunk->graph->tensors.items[arrival->tensor]), from, to,
                           false);
  }
}

/* Units run from the last one on. */
static void run_units(const exec_chunk *chunk, const exec_memory *memory, int which, int first_unit, int unit_count) {
  const plan_pass_places *pass = &chunk->places->passes[which];
  const int first = first_unit - chunk->places->first_unit, last = first + unit_count - 1;
  const bool overwrites = chunk->fresh && math_of(chunk)->overwrite;
  if (overwrites) math_of(chunk)->overwrite(chunk->kern, true);
  uint32_t begin = pass->unit_begin[last];
  for (int u = last; chunk->marks && u >= first; begin = pass->unit_end[u--]) {
    mark(chunk, last - u, u == last);
    run_actions(chunk, memory, which, begin, pass->unit_end[u]);
  }
  run_actions(chunk, memory, which, begin, pass->unit_end[first]);
  mark(chunk, unit_count, true);
  if (overwrites) math_of(chunk)->overwrite(chunk->kern, false);
}

void exec_chunk_backward(const exec_chunk *chunk, const exec_memory *memory, int first_unit, int unit_count) {
  run_units(chunk, memory, PLAN_PASS_BACKWARD, first_unit, unit_count);
}

void exec_chunk_backward_weight(const exec_chunk *chunk, const exec_memory *memory, int first_unit, int unit_count) {
  run_units(chunk, memory, PLAN_PASS_WEIGHT, first_unit, unit_count);
}
