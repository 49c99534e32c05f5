#include "exec/fusion.h"

#include "graph/op_table.h"

typedef struct finder {
  const graph *graph;
  const plan_pass_places *pass;
} finder;

/* An operand of an action. bytes: of the workspace alone, where places begin and end anywhere. */
typedef struct spot {
  plan_place place;
  int64_t bytes;
  uint32_t begin, end;
} spot;

static const plan_action *action_at(const finder *f, uint32_t a) { return &f->pass->actions[a]; }
static const graph_op *op_at(const finder *f, uint32_t a) { return &f->graph->ops.items[action_at(f, a)->op]; }

static bool is(const finder *f, uint32_t a, plan_action_kind kind, graph_op_kind op) {
  return a < f->pass->action_count && action_at(f, a)->kind == kind && op_at(f, a)->kind == op;
}

static bool is_product(const finder *f, uint32_t a) {
  return a < f->pass->action_count && (op_at(f, a)->kind == GRAPH_LINEAR || op_at(f, a)->kind == GRAPH_CONV2D);
}

/* Both are actions of one unit. */
static bool are_together(const finder *f, uint32_t a, uint32_t b) {
  return b < f->pass->action_count && op_at(f, a)->unit == op_at(f, b)->unit;
}

/* `operand` as plan_action counts them. */
static spot spot_of(const finder *f, uint32_t a, int operand) {
  spot s = {.place = f->pass->places[action_at(f, a)->first_place + (uint32_t)operand]};
  for (uint32_t l = 0; s.place.block == PLAN_BLOCK_WORKSPACE && l < f->pass->life_count; l++) {
    const plan_life *life = &f->pass->lives[l];
    if (life->at != s.place.at || a < life->begin || a > life->end || life->bytes < s.bytes) continue;
    s.bytes = life->bytes;
    s.begin = life->begin;
    s.end = life->end;
  }
  return s;
}

static spot input_of(const finder *f, uint32_t a, int i) { return spot_of(f, a, i); }
static spot output_of(const finder *f, uint32_t a) { return spot_of(f, a, op_at(f, a)->input_count); }
static spot input_gradient_of(const finder *f, uint32_t a, int i) {
  const graph_op *op = op_at(f, a);
  return spot_of(f, a, op->input_count + op->output_count + i);
}
static spot output_gradient_of(const finder *f, uint32_t a) {
  const graph_op *op = op_at(f, a);
  return spot_of(f, a, 2 * op->input_count + op->output_count);
}
static spot statistics_of(const finder *f, uint32_t a) {
  const graph_op *op = op_at(f, a);
  return spot_of(f, a, 2 * (op->input_count + op->output_count));
}
static bool are_same(spot a, spot b) { return a.place.block == b.place.block && a.place.at == b.place.at; }

static bool meet(spot a, spot b) {
  if (a.place.block == PLAN_BLOCK_NONE || a.place.block != b.place.block) return false;
  if (a.place.block != PLAN_BLOCK_WORKSPACE) return a.place.at == b.place.at;
  return a.place.at < b.place.at + b.bytes && b.place.at < a.place.at + a.bytes;
}

static bool meet_unless_in_place(spot a, spot b) { return meet(a, b) && !(are_same(a, b) && a.bytes == b.bytes); }

/* Nothing but these actions, first and last among them, has to do with it. */
static bool lives_for(spot s, uint32_t first, uint32_t last) {
  return s.place.block == PLAN_BLOCK_WORKSPACE && s.begin == first && s.end == last;
}

/* Both inputs are of the output's shape, so that the sum's gradients are that of the output. */
static bool is_plain_sum(const finder *f, uint32_t a) {
  const graph_tensor *t = f->graph->tensors.items;
  const graph_op *op = op_at(f, a);
  const graph_tensor *x = &t[op->inputs[0]], *y = &t[op->inputs[1]], *sum = &t[op->outputs[0]];
  const int64_t n = graph_tensor_elements(sum);
  return graph_tensor_elements(x) == n && graph_tensor_elements(y) == n && x->dtype == sum->dtype &&
         y->dtype == sum->dtype;
}

static bool is_of(const finder *f, uint32_t a, plan_action_kind kind, int op) {
  return a < f->pass->action_count && action_at(f, a)->kind == kind && action_at(f, a)->op == op;
}

/* The actions from `a` on that are an op's input gradients and its weight gradients, or one of them. */
static uint32_t gradients_of(const finder *f, uint32_t a, int op) {
  uint32_t count = is_of(f, a, PLAN_ACTION_INPUT_GRADIENT, op);
  return count + is_of(f, a + count, PLAN_ACTION_WEIGHT_GRADIENT, op);
}

static bool is_operand(const finder *f, uint32_t a, spot s) {
  const graph_op *op = op_at(f, a);
  for (int i = 0; i < 2 * (op->input_count + op->output_count + 1); i++)
    if (are_same(spot_of(f, a, i), s)) return true;
  return false;
}

/* ---- the kinds: what begins with action `a`; count 1: it does not ---- */

static const exec_group alone = {.count = 1};

static exec_group silu_norm_backward(const finder *f, uint32_t a);

/* Actions after the next one that read what action `a` writes are gradients of SiLUs that do without it. */
static bool is_read_by_next_alone(const finder *f, uint32_t a, spot between) {
  if (between.place.block != PLAN_BLOCK_WORKSPACE || between.begin != a) return false;
  for (uint32_t b = a + 2; b <= between.end; b++)
    if (is_operand(f, b, between) && silu_norm_backward(f, b).kind == EXEC_FUSION_NONE) return false;
  return true;
}

static exec_group norm_silu(const finder *f, uint32_t a) {
  const bool again = is(f, a, PLAN_ACTION_AGAIN, GRAPH_GROUP_NORM);
  if (!again && !is(f, a, PLAN_ACTION_FORWARD, GRAPH_GROUP_NORM)) return alone;
  if (!is(f, a + 1, PLAN_ACTION_FORWARD, GRAPH_SILU) && !is(f, a + 1, PLAN_ACTION_AGAIN, GRAPH_SILU)) return alone;
  const spot between = output_of(f, a), y = output_of(f, a + 1);
  if (!are_same(between, input_of(f, a + 1, 0)) || !is_read_by_next_alone(f, a, between) ||
      meet_unless_in_place(y, input_of(f, a, 0)) || meet(y, statistics_of(f, a)))
    return alone;
  return (exec_group){.kind = again ? EXEC_FUSION_NORM_SILU_AGAIN : EXEC_FUSION_NORM_SILU, .count = 2};
}

static exec_group product_add(const finder *f, uint32_t a) {
  if (!is_product(f, a) || action_at(f, a)->kind != PLAN_ACTION_FORWARD ||
      !is(f, a + 1, PLAN_ACTION_FORWARD, GRAPH_ADD) || !is_plain_sum(f, a + 1))
    return alone;
  const spot between = output_of(f, a), y = output_of(f, a + 1);
  const int input = are_same(between, input_of(f, a + 1, 1));
  if (!are_same(between, input_of(f, a + 1, input)) || are_same(between, input_of(f, a + 1, 1 - input)) ||
      !lives_for(between, a, a + 1) || meet(y, input_of(f, a, 0)) || meet(y, statistics_of(f, a)))
    return alone;
  return (exec_group){.kind = EXEC_FUSION_PRODUCT_ADD, .count = 2, .input = (uint8_t)input};
}

static exec_group norm_backward(const finder *f, uint32_t a) {
  if (action_at(f, a)->kind != PLAN_ACTION_INPUT_GRADIENT || !graph_op_has(op_at(f, a), GRAPH_OP_NORM) ||
      gradients_of(f, a, action_at(f, a)->op) != 2)
    return alone;
  return (exec_group){.kind = EXEC_FUSION_NORM_BACKWARD, .count = 2};
}

static exec_group silu_norm_backward(const finder *f, uint32_t a) {
  const bool again = is(f, a, PLAN_ACTION_AGAIN, GRAPH_GROUP_NORM);
  const uint32_t silu = a + again, first = silu + 1;
  if (!is(f, silu, PLAN_ACTION_INPUT_GRADIENT, GRAPH_SILU)) return alone;
  const int norm = f->graph->tensors.items[plan_places_root(f->graph, op_at(f, silu)->inputs[0])].producer_op;
  if (norm == GRAPH_NONE || f->graph->ops.items[norm].kind != GRAPH_GROUP_NORM) return alone;
  const uint32_t last = silu + gradients_of(f, first, norm);
  if (last == silu) return alone;
  const spot between = input_gradient_of(f, silu, 0);
  if (!are_same(between, output_gradient_of(f, last)) || !lives_for(between, silu, last)) return alone;
  if (again && (action_at(f, a)->op != norm || !are_same(output_of(f, a), input_of(f, silu, 0)) ||
                !lives_for(output_of(f, a), a, silu)))
    return alone;
  if (meet_unless_in_place(input_gradient_of(f, first, 0), output_gradient_of(f, silu))) return alone;
  return (exec_group){.kind = EXEC_FUSION_SILU_NORM_BACKWARD, .count = (uint8_t)(last - a + 1)};
}

/* Any operand of the action but inputs and gradients of outputs, which are only read. */
static bool may_write(const finder *f, uint32_t a, spot s) {
  const graph_op *op = op_at(f, a);
  const int gradients = 2 * op->input_count + op->output_count; /* of outputs begin there */
  for (int i = op->input_count; i < 2 * (op->input_count + op->output_count + 1); i++)
    if ((i < gradients || i >= gradients + op->output_count) && meet(spot_of(f, a, i), s)) return true;
  return false;
}

/* Of a product, or of a gate or modulation. */
static bool can_read_sum(const finder *f, uint32_t a) {
  const uint8_t kind = action_at(f, a)->kind;
  return (is_product(f, a) && (kind == PLAN_ACTION_INPUT_GRADIENT || kind == PLAN_ACTION_WEIGHT_GRADIENT)) ||
         is(f, a, PLAN_ACTION_INPUT_GRADIENT, GRAPH_MODULATE);
}

/* The sum's gradient stays where it is while a copy of it would live, which gradients of that kind alone would read. */
static bool need_not_be_copied(const finder *f, uint32_t a, int input) {
  const spot copy = input_gradient_of(f, a, input), from = output_gradient_of(f, a);
  if (copy.place.block != PLAN_BLOCK_WORKSPACE || copy.begin != a || copy.end == a || copy.end - a > 16 ||
      !are_together(f, a, copy.end) || are_same(copy, input_gradient_of(f, a, 1 - input)))
    return false;
  for (uint32_t b = a + 1; b <= copy.end; b++) {
    if (may_write(f, b, from)) return false;
    if (is_operand(f, b, copy) && !(can_read_sum(f, b) && are_same(output_gradient_of(f, b), copy))) return false;
  }
  return true;
}

static exec_group sum_backward(const finder *f, uint32_t a) {
  if (!is(f, a, PLAN_ACTION_INPUT_GRADIENT, GRAPH_ADD) || !is_plain_sum(f, a)) return alone;
  for (int input = 0; input < 2; input++)
    if (need_not_be_copied(f, a, input))
      return (exec_group){.kind = EXEC_FUSION_SUM_BACKWARD, .count = 1, .input = (uint8_t)input};
  return alone;
}

enum { NEAR = 16 }; /* actions between which gradients of an activation and of the linear before it lie */

static bool is_activation(const finder *f, uint32_t a, plan_action_kind kind) {
  return a < f->pass->action_count && action_at(f, a)->kind == kind &&
         graph_op_has(op_at(f, a), GRAPH_OP_PLAIN | GRAPH_OP_GATED);
}

/* The gradient of an activation's input, of action `gradient`, adds to nothing: it begins with action `a`, or takes the
 * place of the output's. */
static bool is_begun_by(const finder *f, uint32_t a, uint32_t gradient) {
  const spot dx = input_gradient_of(f, gradient, 0);
  return dx.place.block == PLAN_BLOCK_WORKSPACE && (dx.begin == a || are_same(dx, output_gradient_of(f, gradient)));
}

/* Nothing between the two actions writes what is read for the gradient, or has to do with the gradient. */
static bool can_come_early(const finder *f, uint32_t a, uint32_t gradient) {
  const spot x = input_of(f, a, 0), dx = input_gradient_of(f, gradient, 0), dy = output_gradient_of(f, gradient);
  const spot y = output_of(f, a);
  if (!are_same(x, input_of(f, gradient, 0)) || !is_begun_by(f, a, gradient) ||
      (dy.place.block == PLAN_BLOCK_WORKSPACE && dy.begin >= a) || meet(dx, x) || meet_unless_in_place(dx, dy) ||
      meet(dx, y) || meet(y, dy))
    return false;
  for (uint32_t b = a + 1; b < gradient; b++)
    if (is_operand(f, b, dx) || may_write(f, b, x) || may_write(f, b, dy) || may_write(f, b, dx)) return false;
  return true;
}

/* The input's gradient of an activation, of action `gradient`, is begun by action `a` and is all that the linear whose
 * output the input is will have: the action of the gradients of that one's weights, with a bias; 0: none. */
static uint32_t bias_of(const finder *f, uint32_t a, uint32_t gradient) {
  const int linear = f->graph->tensors.items[plan_places_root(f->graph, op_at(f, gradient)->inputs[0])].producer_op;
  const spot dx = input_gradient_of(f, gradient, 0);
  if (linear == GRAPH_NONE || f->graph->ops.items[linear].kind != GRAPH_LINEAR ||
      f->graph->ops.items[linear].weight_count < 2 || !is_begun_by(f, a, gradient))
    return 0;
  for (uint32_t b = gradient + 1; b < gradient + NEAR && are_together(f, a, b); b++) {
    if (is_of(f, b, PLAN_ACTION_WEIGHT_GRADIENT, linear)) return are_same(output_gradient_of(f, b), dx) ? b : 0;
    if (may_write(f, b, dx)) return 0;
  }
  return 0;
}

static exec_group activation_both(const finder *f, uint32_t a) {
  if (!is_activation(f, a, PLAN_ACTION_AGAIN)) return alone;
  for (uint32_t b = a + 1; b < a + NEAR && are_together(f, a, b); b++)
    if (is_of(f, b, PLAN_ACTION_INPUT_GRADIENT, action_at(f, a)->op) && can_come_early(f, a, b))
      return (exec_group){.kind = EXEC_FUSION_ACTIVATION_BOTH, .count = 1, .other = b, .bias = bias_of(f, a, b)};
  return alone;
}

static exec_group activation_bias(const finder *f, uint32_t a) {
  const uint32_t bias = is_activation(f, a, PLAN_ACTION_INPUT_GRADIENT) ? bias_of(f, a, a) : 0;
  return bias ? (exec_group){.kind = EXEC_FUSION_ACTIVATION_BIAS, .count = 1, .bias = bias} : alone;
}

/* ---- siblings ---- */

/* What siblings put out, or the gradients of that, in the order of ops: at one distance from one to the next, at which
 * they do not meet, in one block. */
static bool lie_evenly(const spot *spots, int count, int64_t bytes) {
  const int64_t distance = spots[1].place.at - spots[0].place.at;
  for (int i = 0; i < count; i++) {
    if (spots[i].place.block == PLAN_BLOCK_NONE || spots[i].place.block == PLAN_BLOCK_OUTSIDE ||
        spots[i].place.block != spots[0].place.block)
      return false;
    if (i > 0 && spots[i].place.at - spots[i - 1].place.at != distance) return false;
  }
  return distance >= bytes;
}

/* Nothing else is there from action `a` until its own life begins. */
static bool is_free_from(const finder *f, uint32_t a, spot s) {
  for (uint32_t l = 0; s.place.block == PLAN_BLOCK_WORKSPACE && l < f->pass->life_count; l++) {
    const plan_life *life = &f->pass->lives[l];
    if (life->begin < s.begin && life->end >= a && life->at < s.place.at + s.bytes &&
        s.place.at < life->at + life->bytes)
      return false;
  }
  return true;
}

static int64_t output_bytes(const finder *f, uint32_t a) {
  return f->graph->tensors.items[op_at(f, a)->outputs[0]].bytes;
}

static exec_group siblings(const finder *f, uint32_t a) {
  if (!is(f, a, PLAN_ACTION_FORWARD, GRAPH_LINEAR)) return alone;
  const plan_siblings s = plan_places_siblings(f->graph, action_at(f, a)->op);
  spot outputs[PLAN_MAX_SIBLINGS];
  if (s.count < 2 || s.first != action_at(f, a)->op) return alone;
  for (uint32_t i = 0; i < (uint32_t)s.count; i++) {
    if (!is_of(f, a + i, PLAN_ACTION_FORWARD, s.first + (int)i) || !are_same(input_of(f, a, 0), input_of(f, a + i, 0)))
      return alone;
    outputs[i] = output_of(f, a + i);
    if (!is_free_from(f, a, outputs[i]) || meet(outputs[i], input_of(f, a, 0))) return alone;
  }
  if (!lie_evenly(outputs, s.count, output_bytes(f, a))) return alone;
  return (exec_group){.kind = EXEC_FUSION_SIBLINGS, .count = (uint8_t)s.count};
}

/* The gradient of a sibling's weights, of action `b`, is made of what lies at action `a` as it will lie then. */
static bool can_come_along(const finder *f, uint32_t a, uint32_t b) {
  const spot x = input_of(f, a, 0), later = input_of(f, b, 0), dy = output_gradient_of(f, b);
  if (!are_same(x, later) || x.begin != later.begin || dy.place.block == PLAN_BLOCK_NONE ||
      (dy.place.block == PLAN_BLOCK_WORKSPACE && dy.begin >= a))
    return false;
  for (uint32_t c = a; c < b; c++)
    if (may_write(f, c, x) || may_write(f, c, dy)) return false;
  return true;
}

/* The weight gradient of an op, of the actions behind `a` that are near; 0: it is none of them. */
static uint32_t weight_gradient_near(const finder *f, uint32_t a, int op) {
  for (uint32_t b = a + 1; b <= a + PLAN_SIBLINGS_NEAR; b++)
    if (is_of(f, b, PLAN_ACTION_WEIGHT_GRADIENT, op)) return b;
  return 0;
}

/* groups: of actions behind `a`, those that are not NONE already are something else. */
static exec_group siblings_weights(const finder *f, uint32_t a, const exec_group *groups) {
  if (!is(f, a, PLAN_ACTION_WEIGHT_GRADIENT, GRAPH_LINEAR)) return alone;
  const plan_siblings s = plan_places_siblings(f->graph, action_at(f, a)->op);
  uint32_t actions[PLAN_MAX_SIBLINGS] = {a};
  spot gradients[PLAN_MAX_SIBLINGS];
  if (s.count < 2 || s.first + s.count - 1 != action_at(f, a)->op) return alone;
  for (int i = 0; i < s.count; i++) {
    if (i > 0) actions[i] = weight_gradient_near(f, actions[i - 1], s.first + s.count - 1 - i);
    if (actions[i] == 0 || groups[actions[i]].kind != EXEC_FUSION_NONE || !can_come_along(f, a, actions[i]))
      return alone;
    gradients[s.count - 1 - i] = output_gradient_of(f, actions[i]);
  }
  if (!lie_evenly(gradients, s.count, output_bytes(f, a))) return alone;
  return (exec_group){
      .kind = EXEC_FUSION_SIBLINGS_WEIGHTS, .count = 1, .other = actions[1], .third = s.count > 2 ? actions[2] : 0};
}

static void mark_by_sum(const finder *f, uint32_t a, int input, exec_group *groups) {
  const spot copy = input_gradient_of(f, a, input);
  for (uint32_t b = a + 1; b <= copy.end; b++)
    if (is_operand(f, b, copy)) groups[b] = (exec_group){.kind = EXEC_FUSION_BY_SUM, .count = 1, .other = a};
}

static void mark_siblings(uint32_t a, exec_group *groups) {
  const exec_group done = {.kind = EXEC_FUSION_SIBLING_DONE, .count = 1, .other = a};
  groups[groups[a].other] = done;
  if (groups[a].third > 0) groups[groups[a].third] = done;
}

static exec_group group_at(const finder *f, uint32_t a) {
  static exec_group (*const kinds[])(const finder *f, uint32_t a) = {norm_silu,       product_add,   silu_norm_backward,
                                                                     sum_backward,    norm_backward, activation_both,
                                                                     activation_bias, siblings};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    const exec_group group = kinds[k](f, a);
    if (group.kind != EXEC_FUSION_NONE && are_together(f, a, a + group.count - 1)) return group;
  }
  return alone;
}

dp_status exec_fusion_of(const graph *g, const plan_places *places, dp_arena *arena, exec_fusion *fusion,
                         dp_error *error) {
  for (int p = 0; p < PLAN_PASS_COUNT; p++) {
    const finder f = {.graph = g, .pass = &places->passes[p]};
    exec_group *groups = DP_ARENA_NEW(arena, exec_group, f.pass->action_count);
    if (!groups) return dp_fail_memory(error);
    for (uint32_t a = 0; a < f.pass->action_count; a += groups[a].count) {
      if (groups[a].kind == EXEC_FUSION_BY_SUM || groups[a].kind == EXEC_FUSION_ACTIVATION_DONE ||
          groups[a].kind == EXEC_FUSION_BIAS_DONE || groups[a].kind == EXEC_FUSION_SIBLING_DONE)
        continue;
      groups[a] = group_at(&f, a);
      if (groups[a].kind == EXEC_FUSION_NONE) groups[a] = siblings_weights(&f, a, groups);
      if (groups[a].kind == EXEC_FUSION_SIBLINGS_WEIGHTS) mark_siblings(a, groups);
      if (groups[a].kind == EXEC_FUSION_ACTIVATION_BOTH)
        groups[groups[a].other] = (exec_group){.kind = EXEC_FUSION_ACTIVATION_DONE, .count = 1, .other = a};
      if (groups[a].bias > 0)
        groups[groups[a].bias] = (exec_group){.kind = EXEC_FUSION_BIAS_DONE, .count = 1, .other = a};
      if (groups[a].kind == EXEC_FUSION_SUM_BACKWARD) mark_by_sum(&f, a, groups[a].input, groups);
    }
    fusion->groups[p] = groups;
  }
  return DP_OK;
}
