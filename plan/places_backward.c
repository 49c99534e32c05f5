/* The passes backward: what is made again, and where gradients lie. */
#include "plan/places_build.h"

static void begin_gated_gradient(plan_placer *p, const graph_op *op);

/* ---- values at hand ---- */

/* It is saved, or made again by now; not through reshapes. */
static plan_place at_hand(plan_placer *p, int tensor) {
  const graph_tensor *t = plan_placer_tensor(p, tensor);
  if (p->saved[tensor] || t->is_constant) return p->value[tensor];
  if (p->value_life[tensor]) return plan_placer_use(p, p->value_life[tensor]);
  return p->again[tensor];
}

/* The same memory under another shape does, too. */
static int held_root(plan_placer *p, int tensor) {
  for (;;) {
    tensor = plan_placer_root(p, tensor);
    const graph_tensor *t = plan_placer_tensor(p, tensor);
    if (!plan_place_is_none(at_hand(p, tensor)) || !plan_placer_has(p, t->producer_unit)) return tensor;
    const graph_op *op = plan_placer_op(p, t->producer_op);
    if (op->kind != GRAPH_RESHAPE) return tensor;
    tensor = op->inputs[0];
  }
}

/* Where a value or statistics are at this point of a backward; NONE: nowhere. */
static plan_place value_of(plan_placer *p, int tensor) { return at_hand(p, held_root(p, tensor)); }

static plan_place statistics_of(plan_placer *p, int op) {
  if (!plan_place_is_none(p->statistics[op])) return p->statistics[op];
  if (p->statistics_life[op]) return plan_placer_use(p, p->statistics_life[op]);
  return p->statistics_again[op];
}

static void hold(plan_placer *p, int tensor) {
  p->value_life[tensor] = plan_placer_begin(p, plan_placer_tensor(p, tensor)->bytes);
  p->failed = p->failed || !dp_array_push(&p->made, tensor);
}

/* What was made again for a unit is no longer there. */
static void forget(plan_placer *p) {
  for (size_t i = 0; i < p->made.count; i++) p->value_life[p->made.items[i]] = 0;
  p->made.count = 0;
}

/* Makes a value again, if it is nowhere, for the backward of an op. */
static dp_status fetch(plan_placer *p, int tensor, int for_op) {
  tensor = held_root(p, tensor);
  const graph_tensor *t = plan_placer_tensor(p, tensor);
  if (!plan_place_is_none(at_hand(p, tensor))) return DP_OK;
  if (!plan_placer_has(p, t->producer_unit))
    return dp_fail(p->error, DP_INTERNAL, "plan: the backward of %s needs %s, which is not kept",
                   plan_placer_op(p, for_op)->name, t->name);
  const graph_op *op = plan_placer_op(p, t->producer_op);
  plan_operands operands = {.statistics = {PLAN_BLOCK_NONE, 0}};
  for (int i = 0; i < op->input_count; i++) DP_TRY(fetch(p, op->inputs[i], for_op));
  for (int i = 0; i < op->input_count; i++) operands.in[i] = value_of(p, op->inputs[i]);
  hold(p, tensor);
  begin_gated_gradient(p, op);
  for (int i = 0; i < op->output_count; i++)
    if (op->outputs[i] == tensor) operands.out[i] = plan_placer_use(p, p->value_life[tensor]);
  operands.statistics = statistics_of(p, t->producer_op);
  const bool anew = plan_place_is_none(operands.statistics) && plan_placer_statistic_bytes(op) > 0;
  if (anew) operands.statistics = plan_placer_use(p, plan_placer_begin(p, plan_placer_statistic_bytes(op)));
  plan_placer_act(p, anew ? PLAN_ACTION_FORWARD : PLAN_ACTION_AGAIN, t->producer_op, &operands);
  return p->failed ? dp_fail_memory(p->error) : DP_OK;
}

/* ---- recomputation of a unit ---- */

enum { NOT_WANTED, WANTED_BRIEFLY, WANTED_SAVED };

static bool is_missing(const plan_placer *p, int tensor, int unit) {
  const graph_tensor *t = plan_placer_tensor(p, tensor);
  return t->producer_unit == unit && !p->saved[tensor];
}

static bool runs_again(const plan_placer *p, const graph_op *op) {
  if (plan_placer_shows(p, op)) return false;
  for (int i = 0; i < op->output_count; i++)
    if (p->wanted[op->outputs[i]]) return true;
  return op->saved_extra_bytes > 0;
}

/* What the unit's ops save, and what that is made of. */
static void want(plan_placer *p, const graph_unit *unit, int index) {
  for (int o = unit->first_op + unit->op_count - 1; o >= unit->first_op; o--) {
    const graph_op *op = plan_placer_op(p, o);
    for (int i = 0; i < op->saved_count; i++)
      if (is_missing(p, op->saved[i], index)) p->wanted[op->saved[i]] = WANTED_SAVED;
  }
  for (int o = unit->first_op + unit->op_count - 1; o >= unit->first_op; o--) {
    const graph_op *op = plan_placer_op(p, o);
    for (int i = 0; runs_again(p, op) && i < op->input_count; i++) {
      const int root = plan_placer_root(p, op->inputs[i]);
      if (is_missing(p, root, index) && p->wanted[root] == NOT_WANTED) p->wanted[root] = WANTED_BRIEFLY;
    }
  }
}

static plan_place run_again_output(plan_placer *p, const graph_op *op, int output) {
  const int tensor = op->outputs[output];
  if (p->wanted[tensor] == WANTED_SAVED && !plan_place_is_none(p->again[tensor])) return p->again[tensor];
  if (p->wanted[tensor] != NOT_WANTED) {
    hold(p, tensor);
    return plan_placer_use(p, p->value_life[tensor]);
  }
  if (op->output_count > 1) return (plan_place){PLAN_BLOCK_NONE, 0}; /* a piece that nobody asks for */
  return plan_placer_use(p, plan_placer_begin(p, plan_placer_tensor(p, tensor)->bytes)); /* its statistics are wanted */
}

static void run_again(plan_placer *p, int index) {
  const graph_op *op = plan_placer_op(p, index);
  plan_operands operands = {.statistics = p->statistics_again[index]};
  for (int i = 0; i < op->input_count; i++) operands.in[i] = value_of(p, op->inputs[i]);
  for (int i = 0; i < op->output_count; i++) operands.out[i] = run_again_output(p, op, i);
  if (plan_place_is_none(operands.statistics) && op->statistic_bytes > 0) {
    const int life = plan_placer_begin(p, op->statistic_bytes);
    operands.statistics = plan_placer_use(p, life);
    if (op->saved_extra_bytes > 0) p->statistics_life[index] = life;
  }
  plan_placer_act(p, PLAN_ACTION_FORWARD, index, &operands);
}

/* Runs what the backward of a recomputed unit rests on. */
static void recompute(plan_placer *p, int index) {
  const graph_unit *unit = &p->graph->units.items[index];
  want(p, unit, index);
  for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
    if (runs_again(p, plan_placer_op(p, o))) run_again(p, o);
  for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
    for (int i = 0; i < plan_placer_op(p, o)->output_count; i++) {
      const int tensor = plan_placer_op(p, o)->outputs[i];
      if (p->wanted[tensor] == WANTED_BRIEFLY) p->value_life[tensor] = 0;
      p->wanted[tensor] = NOT_WANTED;
    }
}

/* ---- what a backward needs ---- */

typedef struct needs {
  bool in[GRAPH_MAX_INPUTS], out, statistics;
} needs;

static bool wants_gradient(const plan_placer *p, int tensor) {
  return plan_placer_tensor(p, plan_placer_root(p, tensor))->needs_gradient;
}

static needs input_needs(const plan_placer *p, const graph_op *op) {
  needs n = {.out = false};
  switch (op->kind) {
    case GRAPH_ATTENTION:
      n = (needs){.in = {true, true, true}, .out = true, .statistics = true};
      break;
    case GRAPH_GROUP_NORM:
    case GRAPH_LAYER_NORM:
    case GRAPH_RMS_NORM:
      n.in[0] = n.statistics = wants_gradient(p, op->inputs[0]);
      break;
    case GRAPH_SILU:
    case GRAPH_GELU:
    case GRAPH_GEGLU:
    case GRAPH_SWIGLU:
      n.in[0] = wants_gradient(p, op->inputs[0]);
      break;
    case GRAPH_MODULATE:
      n.in[0] = wants_gradient(p, op->inputs[1]);
      n.in[1] = wants_gradient(p, op->inputs[0]);
      break;
    case GRAPH_ROTARY:
      n.in[1] = true;
      break;
    case GRAPH_LOSS:
      n.in[0] = n.in[1] = true;
      break;
    default:
      break;
  }
  return n;
}

static needs weight_needs(const graph_op *op) {
  return (needs){.in = {plan_placer_learns(op)},
                 .statistics = graph_op_has(op, GRAPH_OP_NORM) || op->adapter_parameters};
}

static dp_status fetch_all(plan_placer *p, int index, const needs *n) {
  const graph_op *op = plan_placer_op(p, index);
  for (int i = 0; i < op->input_count; i++)
    if (n->in[i]) DP_TRY(fetch(p, op->inputs[i], index));
  if (n->out) DP_TRY(fetch(p, op->outputs[0], index));
  return DP_OK;
}

static plan_operands operands_of(plan_placer *p, int index, const needs *n) {
  const graph_op *op = plan_placer_op(p, index);
  plan_operands operands = {.statistics = {PLAN_BLOCK_NONE, 0}};
  for (int i = 0; i < op->input_count; i++)
    if (n->in[i]) operands.in[i] = value_of(p, op->inputs[i]);
  if (n->out) operands.out[0] = value_of(p, op->outputs[0]);
  if (n->statistics) operands.statistics = statistics_of(p, index);
  return operands;
}

/* ---- gradients ---- */

/* NONE: nothing has reached it. */
static plan_place gradient_read(plan_placer *p, int tensor) {
  const int root = plan_placer_root(p, tensor);
  if (!plan_place_is_none(p->gradient[root])) return p->gradient[root];
  return p->gradient_life[root] ? plan_placer_use(p, p->gradient_life[root]) : (plan_place){PLAN_BLOCK_NONE, 0};
}

static plan_place gradient_write(plan_placer *p, int tensor) {
  const int root = plan_placer_root(p, tensor);
  const graph_tensor *t = plan_placer_tensor(p, root);
  if (!t->needs_gradient) return (plan_place){PLAN_BLOCK_NONE, 0};
  if (plan_place_is_none(p->gradient[root]) && p->gradient_life[root] == 0)
    p->gradient_life[root] = plan_placer_begin(p, t->bytes);
  return gradient_read(p, tensor);
}

static graph_op_kind producer_kind(const plan_placer *p, int tensor) {
  const int producer = plan_placer_tensor(p, plan_placer_root(p, tensor))->producer_op;
  return producer == GRAPH_NONE ? GRAPH_OP_KIND_COUNT : plan_placer_op(p, producer)->kind;
}

/* The gradients of what makes it can read the sum's as well as a copy of that. */
static bool needs_no_copy(const plan_placer *p, int tensor) {
  const graph_op_kind kind = producer_kind(p, tensor);
  return kind == GRAPH_LINEAR || kind == GRAPH_CONV2D || kind == GRAPH_MODULATE;
}

/* Nothing has reached the gradient of the op's input i, which is as large as that of its output. */
static bool could_take_over(const plan_placer *p, const graph_op *op, int i) {
  const int root = plan_placer_root(p, op->inputs[i]);
  const graph_tensor *x = plan_placer_tensor(p, root), *y = plan_placer_tensor(p, op->outputs[0]);
  return x->needs_gradient && plan_place_is_none(p->gradient[root]) && p->gradient_life[root] == 0 &&
         x->bytes == y->bytes && x->dtype == y->dtype;
}

/* One input's gradient lies where the sum's does, which nobody else needs from then on, so that it need not be copied;
 * rather not a product's or a gate's, whose gradients can read the sum's anyway. */
static void take_over_sum(plan_placer *p, const graph_op *sum) {
  const int life = p->gradient_life[plan_placer_root(p, sum->outputs[0])];
  int taker = -1;
  if (!life || plan_placer_root(p, sum->inputs[0]) == plan_placer_root(p, sum->inputs[1])) return;
  for (int i = 0; i < 2; i++)
    if (could_take_over(p, sum, i) && (taker < 0 || needs_no_copy(p, sum->inputs[taker]))) taker = i;
  if (taker >= 0) p->gradient_life[plan_placer_root(p, sum->inputs[taker])] = life;
}

/* The gradient of what a plain activation behind a linear layer reads lies where its output's does: who makes the
 * output again can make it on the way. (Behind a norm it has a place of its own, where both may be left out.) */
static void take_over_activation(plan_placer *p, const graph_op *op) {
  const int life = p->gradient_life[plan_placer_root(p, op->outputs[0])];
  if (life && producer_kind(p, op->inputs[0]) == GRAPH_LINEAR && could_take_over(p, op, 0))
    p->gradient_life[plan_placer_root(p, op->inputs[0])] = life;
}

static bool has_arrived(plan_placer *p, const graph_op *op) {
  for (int i = 0; i < op->output_count; i++) {
    const int root = plan_placer_root(p, op->outputs[i]);
    if (!plan_place_is_none(p->gradient[root]) || p->gradient_life[root]) return true;
  }
  return false;
}

/* Who makes a gated activation again can make the gradient of its input on the way. */
static void begin_gated_gradient(plan_placer *p, const graph_op *op) {
  if (!graph_op_has(op, GRAPH_OP_GATED) || p->split || !has_arrived(p, op) ||
      plan_placer_tensor(p, plan_placer_root(p, op->inputs[0]))->consumer_op_count != 1)
    return;
  (void)gradient_write(p, op->inputs[0]);
}

static void read_output_gradients(plan_placer *p, const graph_op *op, plan_operands *operands) {
  for (int i = 0; i < op->output_count; i++) operands->out_gradient[i] = gradient_read(p, op->outputs[i]);
}

/* The gradient of a sum, of which that of a product or a gate that it adds is a copy, stays as long as the copy is
 * read: who can read the one for the other need not copy. */
static void use_sum_gradient(plan_placer *p, int index) {
  const graph_op *op = plan_placer_op(p, index);
  const graph_unit *unit = &p->graph->units.items[op->unit];
  if (plan_placer_tensor(p, op->outputs[0])->consumer_op_count != 1) return;
  for (int o = index + 1; o < unit->first_op + unit->op_count; o++) {
    const graph_op *sum = plan_placer_op(p, o);
    if (sum->kind != GRAPH_ADD) continue;
    const int life = p->gradient_life[plan_placer_root(p, sum->outputs[0])];
    for (int i = 0; i < 2 && life; i++)
      if (plan_placer_root(p, sum->inputs[i]) == op->outputs[0]) (void)plan_placer_use(p, life);
  }
}

/* hidden_life: of the gradient of an adapter's hidden values, in the workspace; 0: it is kept, or there is none. */
static dp_status weight_op(plan_placer *p, int index, int hidden_life) {
  const graph_op *op = plan_placer_op(p, index);
  if (!plan_placer_learns(op)) return DP_OK;
  const needs n = weight_needs(op);
  DP_TRY(fetch_all(p, index, &n));
  plan_operands operands = operands_of(p, index, &n);
  read_output_gradients(p, op, &operands);
  operands.hidden = hidden_life ? plan_placer_use(p, hidden_life) : p->hidden[index];
  use_sum_gradient(p, index);
  plan_placer_act(p, PLAN_ACTION_WEIGHT_GRADIENT, index, &operands);
  return DP_OK;
}

static dp_status backward_op(plan_placer *p, int index) {
  const graph_op *op = plan_placer_op(p, index);
  bool passes_on = op->adapter_parameters > 0;
  for (int i = 0; i < op->input_count; i++) passes_on = passes_on || wants_gradient(p, op->inputs[i]);
  if (plan_placer_shows(p, op) || !has_arrived(p, op)) return DP_OK;
  int hidden_life = 0;
  if (passes_on) {
    const needs n = input_needs(p, op);
    DP_TRY(fetch_all(p, index, &n));
    plan_operands operands = operands_of(p, index, &n);
    read_output_gradients(p, op, &operands);
    if (op->kind == GRAPH_ADD) take_over_sum(p, op);
    if (graph_op_has(op, GRAPH_OP_PLAIN)) take_over_activation(p, op);
    for (int i = 0; i < op->input_count; i++) operands.in_gradient[i] = gradient_write(p, op->inputs[i]);
    if (op->adapter_parameters > 0 && !p->split) hidden_life = plan_placer_begin(p, op->saved_extra_bytes);
    operands.hidden = hidden_life ? plan_placer_use(p, hidden_life) : p->hidden[index];
    use_sum_gradient(p, index);
    plan_placer_act(p, PLAN_ACTION_INPUT_GRADIENT, index, &operands);
  }
  return p->split ? DP_OK : weight_op(p, index, hidden_life);
}

/* ---- passes ---- */

static void add_arrivals(plan_placer *p) {
  for (int t = 0; t < (int)p->graph->tensors.count; t++) {
    const graph_tensor *tensor = plan_placer_tensor(p, t);
    if (!plan_placer_has(p, tensor->producer_unit) || !tensor->needs_gradient || !plan_placer_leaves(p, tensor))
      continue;
    plan_arrival arrival = {.tensor = t, .collected = plan_placer_collected(p, t)};
    arrival.place = gradient_write(p, t);
    p->failed = p->failed || !dp_array_push(&p->arrivals, arrival);
  }
}

/* Those that are made in the workspace stay there to the end. */
static void add_departures(plan_placer *p) {
  for (int t = 0; t < (int)p->graph->tensors.count; t++) {
    if (!p->gradient_life[t] || plan_placer_has(p, plan_placer_tensor(p, t)->producer_unit)) continue;
    const plan_port departure = {t, plan_placer_use(p, p->gradient_life[t])};
    p->failed = p->failed || !dp_array_push(&p->departures, departure);
  }
}

dp_status plan_placer_backward(plan_placer *p) {
  plan_pass_places *pass = &p->out->passes[PLAN_PASS_BACKWARD];
  add_arrivals(p);
  for (int u = p->end_unit - 1; u >= p->first_unit; u--) {
    const graph_unit *unit = &p->graph->units.items[u];
    pass->unit_begin[u - p->first_unit] = (uint32_t)p->actions.count;
    if (plan_placer_recomputes(p, u)) recompute(p, u);
    for (int o = unit->first_op + unit->op_count - 1; o >= unit->first_op; o--) DP_TRY(backward_op(p, o));
    forget(p);
    pass->unit_end[u - p->first_unit] = (uint32_t)p->actions.count;
  }
  add_departures(p);
  return DP_OK;
}

dp_status plan_placer_weight(plan_placer *p) {
  plan_pass_places *pass = &p->out->passes[PLAN_PASS_WEIGHT];
  for (int u = p->end_unit - 1; u >= p->first_unit; u--) {
    const graph_unit *unit = &p->graph->units.items[u];
    pass->unit_begin[u - p->first_unit] = (uint32_t)p->actions.count;
    for (int o = unit->first_op + unit->op_count - 1; o >= unit->first_op; o--) DP_TRY(weight_op(p, o, 0));
    forget(p);
    pass->unit_end[u - p->first_unit] = (uint32_t)p->actions.count;
  }
  return DP_OK;
}
