/* Which actions of the small models in tests/fixtures are one call on a device that fuses: how many of each kind, and
 * that what a group does not write is read by nobody else. (That groups leave every bit as it is: test_exec_model.) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/fusion.h"
#include "exec/parameters.h"
#include "graph/model.h"
#include "graph/op_table.h"
#include "tests/fixtures.h"
#include "tests/suite.h"

static dp_error error;
static graph g;
static dp_arena arena;
static plan_plan plan;
static plan_places places;
static exec_fusion fusion;

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void teardown(void) {
  graph_free(&g);
  dp_arena_free(&arena);
}

#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

typedef enum how { TRAINED, RECOMPUTED, APART, ADAPTED, EVALUATED } how;

static void open_model(const char *model, how h) {
  graph_model_options options;
  graph_model_options_default(&options);
  options.batch = 2;
  options.height = 128;
  options.width = 192;
  options.text_tokens = 7;
  if (h == ADAPTED) {
    options.trainable = GRAPH_TRAIN_LORA;
    options.lora_rank = 3;
    options.lora_all_linear = true;
  }
  OK(graph_model_read(fixture_path(model, "config.json"), &options, &g, &error));
  const int units = (int)g.units.count;
  plan = (plan_plan){.training = h != EVALUATED,
                     .ranks = 1,
                     .chunks_per_rank = 1,
                     .replicas = 1,
                     .microbatches = 1,
                     .chunk_count = 1,
                     .chunks = DP_ARENA_NEW(&arena, plan_chunk, 1),
                     .recompute = DP_ARENA_NEW(&arena, uint8_t, (size_t)units)};
  plan.chunks[0] = (plan_chunk){0, units, 0};
  memset(plan.recompute, h == RECOMPUTED, (size_t)units);
  OK(plan_places_of(&plan, &g, 0, h == APART, &arena, &places, &error));
  OK(exec_fusion_of(&g, &places, &arena, &fusion, &error));
}

/* ---- counts ---- */

static const struct {
  const char *model;
  how how;
  int counts[EXEC_FUSION_COUNT]; /* over all passes, as exec_fusion_kind orders them */
} cases[] = {
    {"sd15", TRAINED, {0, 29, 29, 54, 40, 29, 50, 100, 12, 12, 0, 11, 20, 20, 30}},
    {"sd15", RECOMPUTED, {0, 58, 0, 84, 40, 29, 50, 100, 0, 0, 11, 11, 40, 20, 30}},
    {"sd15", APART, {0, 29, 29, 54, 0, 0, 0, 0, 0, 0, 0, 0, 20, 20, 30}},
    {"sd15", ADAPTED, {0, 29, 0, 54, 0, 28, 50, 80, 10, 10, 0, 10}},
    {"sd15", EVALUATED, {0, 29, 0, 54, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0}},
    {"sdxl", TRAINED, {0, 35, 35, 80, 62, 35, 74, 148, 19, 19, 0, 19, 34, 34, 51}},
    {"sdxl", RECOMPUTED, {0, 70, 0, 125, 62, 35, 74, 148, 0, 0, 19, 19, 68, 34, 51}},
    {"sdxl", APART, {0, 35, 35, 80, 0, 0, 0, 0, 0, 0, 0, 0, 34, 34, 51}},
    {"sdxl", ADAPTED, {0, 35, 0, 80, 0, 34, 73, 135, 17, 17, 0, 17}},
    {"sdxl", EVALUATED, {0, 35, 0, 79, 0, 0, 0, 0, 0, 0, 0, 0, 34, 0, 0}},
    {"sd3", TRAINED, {0, 0, 0, 1, 0, 0, 7, 8, 5, 5, 0, 5}},
    {"sd3", RECOMPUTED, {0, 0, 0, 1, 0, 0, 7, 8, 0, 0, 5, 5}},
    {"sd3", APART, {0, 0, 0, 1, 0, 0, 5, 5}},
    {"sd3", ADAPTED, {0, 0, 0, 1, 0, 0, 4, 4, 3, 3, 0, 3}},
    {"sd3", EVALUATED, {0, 0, 0, 1, 0, 0, 0, 0}},
    {"flux-dev", TRAINED, {0, 0, 0, 2, 12, 0, 12, 14, 7, 7, 2, 9}},
    {"flux-dev", RECOMPUTED, {0, 0, 0, 2, 12, 0, 12, 14, 0, 0, 9, 9}},
    {"flux-dev", APART, {0, 0, 0, 2, 0, 0, 8, 8}},
    {"flux-dev", ADAPTED, {0, 0, 0, 2, 0, 0, 8, 8, 4, 4, 2, 6}},
    {"flux-dev", EVALUATED, {0, 0, 0, 2, 0, 0, 0, 0}},
};

START_TEST(kinds_are_counted) {
  int counts[EXEC_FUSION_COUNT] = {0};
  open_model(cases[_i].model, cases[_i].how);
  for (int p = 0; p < PLAN_PASS_COUNT; p++)
    for (uint32_t a = 0; a < places.passes[p].action_count; a += fusion.groups[p][a].count) {
      ck_assert_int_ge(fusion.groups[p][a].count, 1);
      counts[fusion.groups[p][a].kind] += fusion.groups[p][a].kind != EXEC_FUSION_NONE;
    }
  for (int k = 0; k < EXEC_FUSION_COUNT; k++)
    ck_assert_msg(counts[k] == cases[_i].counts[k],
                  "%s (%d): {0, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d}", cases[_i].model,
                  (int)cases[_i].how, counts[1], counts[2], counts[3], counts[4], counts[5], counts[6], counts[7],
                  counts[8], counts[9], counts[10], counts[11], counts[12], counts[13], counts[14]);
}
END_TEST

/* ---- nobody reads what is not written ---- */

static plan_place place_of(const plan_pass_places *pass, uint32_t a, int operand) {
  return pass->places[pass->actions[a].first_place + (uint32_t)operand];
}

/* The place of the workspace that lives at an action where `place` begins: an index into lives. */
static int life_at(const plan_pass_places *pass, uint32_t a, plan_place place) {
  ck_assert_int_eq(place.block, PLAN_BLOCK_WORKSPACE);
  for (uint32_t l = 0; l < pass->life_count; l++)
    if (pass->lives[l].at == place.at && pass->lives[l].begin <= a && a <= pass->lives[l].end) return (int)l;
  ck_abort_msg("action %u: an operand has no life", a);
}

static bool is_by(const exec_group *groups, uint32_t a, uint32_t sum) {
  return groups[a].kind == EXEC_FUSION_BY_SUM && groups[a].other == sum;
}

/* The only other actions with an operand there while it lives are of the group, or do without it. */
static void assert_forgotten(int p, uint32_t a, uint32_t writer, int operand) {
  const plan_pass_places *pass = &places.passes[p];
  const exec_group *groups = fusion.groups[p];
  const plan_place place = place_of(pass, writer, operand);
  const int life = life_at(pass, writer, place);
  int used = 0;
  ck_assert_uint_eq(pass->lives[life].begin, writer);
  for (uint32_t b = 0; b < pass->action_count; b++) {
    const graph_op *op = &g.ops.items[pass->actions[b].op];
    for (int i = 0; i < 2 * (op->input_count + op->output_count + 1); i++) {
      const plan_place other = place_of(pass, b, i);
      if (other.block != place.block || other.at != place.at || life_at(pass, b, other) != life) continue;
      const bool without = is_by(groups, b, a) || (groups[a].kind == EXEC_FUSION_NORM_SILU_AGAIN &&
                                                   groups[b].kind == EXEC_FUSION_SILU_NORM_BACKWARD);
      if (b < a || b >= a + groups[a].count) ck_assert(without);
      used++;
    }
  }
  ck_assert_int_ge(used, 2);
}

static bool is_in_place(const plan_pass_places *pass, uint32_t gradient) {
  const plan_place dx = place_of(pass, gradient, 2), dy = place_of(pass, gradient, 3); /* of x, y, dx, dy */
  return dx.block == dy.block && dx.at == dy.at;
}

/* The gradient's place is its own from where it is made, or that of the output's gradient, and its action follows with
 * the same operands. */
static void check_activation(int p, uint32_t a) {
  const plan_pass_places *pass = &places.passes[p];
  const uint32_t gradient = fusion.groups[p][a].other;
  const plan_place dx = place_of(pass, gradient, 2); /* of x, y, dx, dy */
  ck_assert_uint_eq(fusion.groups[p][gradient].kind, EXEC_FUSION_ACTIVATION_DONE);
  ck_assert_int_eq(pass->actions[a].op, pass->actions[gradient].op);
  ck_assert_int_eq(pass->actions[gradient].kind, PLAN_ACTION_INPUT_GRADIENT);
  if (!is_in_place(pass, gradient)) ck_assert_uint_eq(pass->lives[life_at(pass, gradient, dx)].begin, a);
  for (uint32_t b = a + 1; b < gradient; b++) {
    const graph_op *op = &g.ops.items[pass->actions[b].op];
    for (int i = 0; i < 2 * (op->input_count + op->output_count + 1); i++) {
      const plan_place other = place_of(pass, b, i);
      ck_assert(other.block != dx.block || other.at != dx.at);
    }
  }
}

/* What the bias' gradient is made of is begun by action `a`, whole when it is made, and what the linear reads. */
static void check_bias(int p, uint32_t a) {
  const plan_pass_places *pass = &places.passes[p];
  const exec_group *group = &fusion.groups[p][a];
  const uint32_t gradient = group->kind == EXEC_FUSION_ACTIVATION_BOTH ? group->other : a, linear = group->bias;
  const plan_place dx = place_of(pass, gradient, 2); /* of x, y, dx, dy */
  if (linear == 0) return;
  ck_assert_uint_eq(fusion.groups[p][linear].kind, EXEC_FUSION_BIAS_DONE);
  ck_assert_int_eq(pass->actions[linear].kind, PLAN_ACTION_WEIGHT_GRADIENT);
  ck_assert_int_eq(g.ops.items[pass->actions[linear].op].kind, GRAPH_LINEAR);
  ck_assert_int_eq(g.ops.items[pass->actions[linear].op].weight_count, 2);
  ck_assert_int_eq(g.ops.items[pass->actions[linear].op].unit, g.ops.items[pass->actions[a].op].unit);
  const plan_place dy = place_of(pass, linear, 3);
  ck_assert(dy.block == dx.block && dy.at == dx.at);
  if (!is_in_place(pass, gradient)) ck_assert_uint_eq(pass->lives[life_at(pass, gradient, dx)].begin, a);
  ck_assert_int_eq(life_at(pass, gradient, dx), life_at(pass, linear, dy));
  for (uint32_t b = gradient + 1; b < linear; b++) { /* gradients of inputs are all that is written */
    const graph_op *op = &g.ops.items[pass->actions[b].op];
    for (int i = 0; i < op->input_count; i++) {
      const plan_place other = place_of(pass, b, op->input_count + op->output_count + i);
      ck_assert(other.block != dx.block || other.at != dx.at);
    }
  }
}

/* ---- siblings ---- */

/* What they put out, or the gradients of that, as `operand` of their actions, which go by ops: at one distance, and
 * nobody else is there from action `first` until their lives begin. */
static void assert_even(int p, uint32_t first, const uint32_t *actions, int count, int operand) {
  const plan_pass_places *pass = &places.passes[p];
  const graph_op *op = &g.ops.items[pass->actions[actions[0]].op];
  const int64_t distance = place_of(pass, actions[1], operand).at - place_of(pass, actions[0], operand).at;
  ck_assert_int_ge(distance, g.tensors.items[op->outputs[0]].bytes);
  for (int i = 0; i < count; i++) {
    const plan_place at = place_of(pass, actions[i], operand);
    const int life = at.block == PLAN_BLOCK_WORKSPACE ? life_at(pass, actions[i], at) : -1;
    ck_assert_uint_ne(at.block, PLAN_BLOCK_OUTSIDE);
    ck_assert_int_eq(at.at, place_of(pass, actions[0], operand).at + i * distance);
    for (uint32_t l = 0; life >= 0 && l < pass->life_count; l++) {
      const plan_life *own = &pass->lives[life], *other = &pass->lives[l];
      if ((int)l == life || other->end < first || other->begin > own->end) continue;
      ck_assert(other->at >= own->at + own->bytes || own->at >= other->at + other->bytes);
    }
  }
}

/* Their weights, or the gradients of these, too: in the order of ops. */
static void assert_weights_are_even(const int *ops, int count) {
  exec_parameters parameters;
  OK(exec_parameters_init(&g, &(exec_parameters_options){.training = plan.training}, &parameters, &error));
  for (int i = 0; i < count; i++) {
    const int weight = g.ops.items[ops[i]].first_weight, first = g.ops.items[ops[0]].first_weight;
    ck_assert_int_eq(g.ops.items[ops[i]].weight_count, 1);
    ck_assert_int_eq(g.ops.items[ops[i]].adapter_parameters, 0);
    ck_assert_int_eq(parameters.offset[weight], parameters.offset[first] + i * g.weights.items[first].parameters);
    ck_assert_int_eq(parameters.trained[weight], parameters.trained[first]);
  }
  exec_parameters_free(&parameters);
}

/* All read the same; of gradients, which then are as they will be where their own actions are. */
static void check_siblings(int p, uint32_t a) {
  const plan_pass_places *pass = &places.passes[p];
  const exec_group *group = &fusion.groups[p][a];
  const bool forward = group->kind == EXEC_FUSION_SIBLINGS;
  const int count = forward ? group->count : group->third > 0 ? 3 : 2;
  uint32_t actions[3] = {a, a + 1, a + 2};
  int ops[3];
  for (int i = 0; !forward && i < count; i++)
    actions[count - 1 - i] = i == 0 ? a : i == 1 ? group->other : group->third;
  for (int i = 0; i < count; i++) {
    const plan_place x = place_of(pass, a, 0), other = place_of(pass, actions[i], 0);
    ops[i] = pass->actions[actions[i]].op;
    ck_assert_int_eq(pass->actions[actions[i]].kind, forward ? PLAN_ACTION_FORWARD : PLAN_ACTION_WEIGHT_GRADIENT);
    ck_assert(x.block == other.block && x.at == other.at);
    if (!forward && actions[i] != a) ck_assert_int_eq(fusion.groups[p][actions[i]].kind, EXEC_FUSION_SIBLING_DONE);
    if (i > 0) ck_assert_int_eq(ops[i], ops[0] + i);
  }
  assert_even(p, a, actions, count, forward ? PLAN_LINEAR_OUTPUT : PLAN_LINEAR_OUTPUT_GRADIENT);
  assert_weights_are_even(ops, count);
  for (int i = 0; !forward && i < count; i++) { /* gradients of inputs are all that is written between them */
    const plan_place dy = place_of(pass, actions[i], PLAN_LINEAR_OUTPUT_GRADIENT);
    if (dy.block == PLAN_BLOCK_WORKSPACE) ck_assert_uint_lt(pass->lives[life_at(pass, actions[i], dy)].begin, a);
    for (uint32_t b = a; b < actions[i]; b++) {
      const graph_op *op = &g.ops.items[pass->actions[b].op];
      for (int k = 0; k < op->input_count; k++) {
        const plan_place dx = place_of(pass, b, op->input_count + op->output_count + k);
        ck_assert(dx.block != dy.block || dx.at != dy.at || dx.block == PLAN_BLOCK_NONE);
      }
    }
  }
}

static void check_group(int p, uint32_t a) {
  const plan_pass_places *pass = &places.passes[p];
  const exec_group *group = &fusion.groups[p][a];
  const graph_op *op = &g.ops.items[pass->actions[a].op];
  const bool again = pass->actions[a].kind == PLAN_ACTION_AGAIN;
  for (uint32_t b = a; b < a + group->count; b++) {
    ck_assert_int_eq(g.ops.items[pass->actions[b].op].unit, op->unit);
    if (b > a) ck_assert_int_eq(fusion.groups[p][b].count, 0);
  }
  switch (group->kind) {
    case EXEC_FUSION_NORM_SILU:
    case EXEC_FUSION_NORM_SILU_AGAIN:
    case EXEC_FUSION_PRODUCT_ADD:
      assert_forgotten(p, a, a, op->input_count);
      return;
    case EXEC_FUSION_SILU_NORM_BACKWARD:
      if (again) assert_forgotten(p, a, a, op->input_count);
      assert_forgotten(p, a, a + again, 2); /* of x, y, dx, dy */
      return;
    case EXEC_FUSION_SUM_BACKWARD:
      assert_forgotten(p, a, a, 3 + group->input); /* of x, x, y, dx, dx, dy */
      return;
    case EXEC_FUSION_ACTIVATION_BOTH:
      check_activation(p, a);
      check_bias(p, a);
      return;
    case EXEC_FUSION_ACTIVATION_BIAS:
      ck_assert_uint_gt(group->bias, a);
      check_bias(p, a);
      return;
    case EXEC_FUSION_BIAS_DONE:
      ck_assert_uint_eq(fusion.groups[p][group->other].bias, a);
      return;
    case EXEC_FUSION_SIBLINGS:
    case EXEC_FUSION_SIBLINGS_WEIGHTS:
      check_siblings(p, a);
      return;
    case EXEC_FUSION_SIBLING_DONE:
      ck_assert(fusion.groups[p][group->other].other == a || fusion.groups[p][group->other].third == a);
      return;
    case EXEC_FUSION_BY_SUM:
      ck_assert_int_eq(fusion.groups[p][group->other].kind, EXEC_FUSION_SUM_BACKWARD);
      return;
    default:
      return;
  }
}

START_TEST(what_is_not_written_is_read_by_nobody) {
  open_model(cases[_i].model, cases[_i].how);
  for (int p = 0; p < PLAN_PASS_COUNT; p++)
    for (uint32_t a = 0; a < places.passes[p].action_count; a += fusion.groups[p][a].count)
      if (fusion.groups[p][a].kind != EXEC_FUSION_NONE) check_group(p, a);
}
END_TEST

/* Gradients that a sum writes: where it only hands its own on, none of its inputs has a copy. What is left are inputs
 * whose gradient another action has begun, as of skips. */
static const struct {
  const char *model;
  int sums, written;
} handed[] = {{"sd15", 54, 4}, {"sdxl", 80, 6}, {"sd3", 10, 0}, {"flux-dev", 16, 0}};

START_TEST(sums_hand_their_gradient_on) {
  int sums = 0, written = 0;
  open_model(handed[_i].model, TRAINED);
  const plan_pass_places *pass = &places.passes[PLAN_PASS_BACKWARD];
  for (uint32_t a = 0; a < pass->action_count; a++) {
    const exec_group *group = &fusion.groups[PLAN_PASS_BACKWARD][a];
    const graph_op *op = &g.ops.items[pass->actions[a].op];
    const graph_tensor *const t = g.tensors.items;
    if (op->kind != GRAPH_ADD || graph_tensor_elements(&t[op->inputs[0]]) != graph_tensor_elements(&t[op->inputs[1]]))
      continue;
    const plan_place dy = place_of(pass, a, 5); /* of x, x, y, dx, dx, dy */
    sums++;
    for (int i = 0; i < 2; i++) {
      const plan_place dx = place_of(pass, a, 3 + i);
      written +=
          (dx.block != dy.block || dx.at != dy.at) && !(group->kind == EXEC_FUSION_SUM_BACKWARD && group->input == i);
    }
  }
  ck_assert_msg(sums == handed[_i].sums && written == handed[_i].written, "%s: %d sums, %d written", handed[_i].model,
                sums, written);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("exec_fusion");
  TCase *tcase = suite_case(suite, "exec_fusion", setup, teardown, 60);
  tcase_add_loop_test(tcase, kinds_are_counted, 0, sizeof cases / sizeof *cases);
  tcase_add_loop_test(tcase, what_is_not_written_is_read_by_nobody, 0, sizeof cases / sizeof *cases);
  tcase_add_loop_test(tcase, sums_hand_their_gradient_on, 0, sizeof handed / sizeof *handed);
  return suite_finish(suite);
}
