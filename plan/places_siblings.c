/* Linear layers that read the same: which they are, and places for them at equal distances. */
#include "plan/places_build.h"

/* ---- which they are ---- */

static bool are_siblings(const graph *g, int a, int b) {
  const graph_op *x = &g->ops.items[a], *y = &g->ops.items[b];
  const graph_tensor *t = g->tensors.items;
  return x->kind == GRAPH_LINEAR && y->kind == GRAPH_LINEAR && x->unit == y->unit && x->weight_count == 1 &&
         y->weight_count == 1 && x->adapter_parameters == 0 && y->adapter_parameters == 0 &&
         x->trainable == y->trainable && x->attributes.in_channels == y->attributes.in_channels &&
         x->attributes.out_channels == y->attributes.out_channels &&
         plan_places_root(g, x->inputs[0]) == plan_places_root(g, y->inputs[0]) &&
         t[x->outputs[0]].bytes == t[y->outputs[0]].bytes;
}

plan_siblings plan_places_siblings(const graph *g, int op) {
  plan_siblings s = {.first = op, .count = 1};
  int begin = op, end = op + 1;
  while (begin > 0 && are_siblings(g, begin - 1, begin)) begin--;
  while (end < (int)g->ops.count && are_siblings(g, end - 1, end)) end++;
  s.first = op - (op - begin) % PLAN_MAX_SIBLINGS;
  s.count = end - s.first < PLAN_MAX_SIBLINGS ? end - s.first : PLAN_MAX_SIBLINGS;
  return s;
}

/* ---- seats: the lives of siblings' outputs, or of the gradients of these, side by side ---- */

/* Of a pass: seats[count] are to lie one behind the other, each of so many bytes. */
typedef struct bench {
  plan_life *seats[PLAN_MAX_SIBLINGS];
  int count;
  int64_t bytes;
} bench;

static bool is_seat(const bench *b, const plan_life *life) {
  for (int i = 0; i < b->count; i++)
    if (b->seats[i] == life) return true;
  return false;
}

static bool live_at_once(const plan_life *a, const plan_life *b) { return a->begin <= b->end && b->begin <= a->end; }

/* others[count]: lives while one of the bench is, none of it; those that meet none of its seats leave them free. */
static bool is_free(const bench *b, int64_t at, plan_life *const *others, size_t count) {
  for (size_t o = 0; o < count; o++)
    for (int i = 0; i < b->count; i++) {
      const int64_t begin = at + i * b->bytes;
      if (live_at_once(others[o], b->seats[i]) && others[o]->at < begin + b->bytes &&
          begin < others[o]->at + plan_place_aligned(others[o]->bytes))
        return false;
    }
  return true;
}

/* The lowest place that is free, which begins where the pass does or a seat does behind another life; -1: none. */
static int64_t find_place(const bench *b, int64_t end_bytes, plan_life *const *others, size_t count) {
  int64_t best = -1;
  if (b->count * b->bytes <= end_bytes && is_free(b, 0, others, count)) return 0;
  for (size_t o = 0; o < count; o++)
    for (int i = 0; i < b->count; i++) {
      const int64_t at = others[o]->at + plan_place_aligned(others[o]->bytes) - i * b->bytes;
      if (at < 0 || at + b->count * b->bytes > end_bytes || (best >= 0 && at >= best)) continue;
      if (is_free(b, at, others, count)) best = at;
    }
  return best;
}

static void seat(plan_placer *p, const bench *b, int64_t end_bytes, plan_life **others) {
  size_t count = 0;
  int i = 1;
  while (i < b->count && b->seats[i]->at == b->seats[i - 1]->at + b->bytes) i++;
  if (i == b->count) return;
  for (size_t l = 0; l < p->lives.count; l++) {
    plan_life *life = &p->lives.items[l];
    bool meets = false;
    for (i = 0; i < b->count; i++) meets = meets || live_at_once(life, b->seats[i]);
    if (meets && !is_seat(b, life)) others[count++] = life;
  }
  const int64_t at = find_place(b, end_bytes, others, count);
  for (i = 0; at >= 0 && i < b->count; i++) b->seats[i]->at = at + i * b->bytes;
}

static bool is_action(const plan_placer *p, size_t a, plan_action_kind kind, int op) {
  return a < p->actions.count && p->actions.items[a].kind == kind && p->actions.items[a].op == op;
}

/* Adds the life of an action's operand, unless it has none in the workspace or another sibling has the same. */
static bool add_seat(plan_placer *p, bench *b, size_t action, int operand) {
  const plan_place place = p->places.items[p->actions.items[action].first_place + (uint32_t)operand];
  if (place.block != PLAN_BLOCK_WORKSPACE || is_seat(b, &p->lives.items[place.at])) return false;
  b->seats[b->count++] = &p->lives.items[place.at];
  return true;
}

/* Of siblings that begin with the op of forward action `a`. */
static bool find_outputs(plan_placer *p, size_t a, bench *b) {
  const plan_siblings s = plan_places_siblings(p->graph, p->actions.items[a].op);
  if (s.count < 2 || s.first != p->actions.items[a].op) return false;
  for (int i = 0; i < s.count; i++)
    if (!is_action(p, a + (size_t)i, PLAN_ACTION_FORWARD, s.first + i) ||
        !add_seat(p, b, a + (size_t)i, PLAN_LINEAR_OUTPUT))
      return false;
  return true;
}

/* Of siblings that end with the op of weight gradient `a`: backward that is the first. */
static bool find_gradients(plan_placer *p, size_t a, bench *b) {
  const plan_siblings s = plan_places_siblings(p->graph, p->actions.items[a].op);
  size_t actions[PLAN_MAX_SIBLINGS];
  if (s.count < 2 || s.first + s.count - 1 != p->actions.items[a].op) return false;
  for (int i = s.count - 1; i >= 0; i--) {
    const size_t from = i == s.count - 1 ? a : actions[i + 1] + 1;
    actions[i] = from;
    while (actions[i] < from + PLAN_SIBLINGS_NEAR &&
           !is_action(p, actions[i], PLAN_ACTION_WEIGHT_GRADIENT, s.first + i))
      actions[i]++;
    if (actions[i] == from + PLAN_SIBLINGS_NEAR) return false;
  }
  for (int i = 0; i < s.count; i++)
    if (!add_seat(p, b, actions[i], PLAN_LINEAR_OUTPUT_GRADIENT)) return false;
  return true;
}

dp_status plan_placer_seat_siblings(plan_placer *p, int64_t end_bytes) {
  plan_life **others = DP_ARENA_NEW(&p->scratch, plan_life *, p->lives.count);
  if (!others) return dp_fail_memory(p->error);
  for (size_t a = 0; a < p->actions.count; a++) {
    const plan_action *action = &p->actions.items[a];
    const bool forward = action->kind == PLAN_ACTION_FORWARD;
    bench b = {.count = 0};
    if (plan_placer_op(p, action->op)->kind != GRAPH_LINEAR) continue;
    if (!forward && action->kind != PLAN_ACTION_WEIGHT_GRADIENT) continue;
    if (!(forward ? find_outputs(p, a, &b) : find_gradients(p, a, &b))) continue;
    b.bytes = plan_place_aligned(b.seats[0]->bytes);
    seat(p, &b, end_bytes, others);
  }
  return DP_OK;
}
