/* plan/: the places inside a chunk's blocks, held to the laws of plan/places.h, for random plans of random graphs and
 * of the small models of tests/fixtures; and their sizes against the memory layout's. */
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "graph/op_table.h"
#include "plan/memory.h"
#include "plan/places.h"
#include "tests/fixtures.h"
#include "tests/plan_reference.h"
#include "tests/suite.h"

static dp_error error;
static graph model;
static plan_plan plan;
static plan_program program;
static plan_memory memory;
static unsigned now; /* seed, for messages */

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void drop(void) {
  plan_memory_free(&memory);
  plan_program_free(&program);
  plan_plan_free(&plan);
  graph_free(&model);
}

#define OK(call) ck_assert_msg((call) == DP_OK, "seed %u: %s", now, error.text)

/* ---- the laws ---- */

static bool meet(const plan_life *a, const plan_life *b) { return a->begin <= b->end && b->begin <= a->end; }
static bool overlap(const plan_life *a, const plan_life *b) {
  return a->at < b->at + b->bytes && b->at < a->at + a->bytes;
}

/* Two places of the workspace that live at one time lie apart, and none is outside. */
static void check_lives(const plan_pass_places *pass) {
  for (uint32_t i = 0; i < pass->life_count; i++) {
    const plan_life *a = &pass->lives[i];
    if (a->at < 0 || a->at + a->bytes > pass->workspace_bytes || a->begin > a->end)
      ck_abort_msg("seed %u: life %u is outside the workspace", now, i);
    for (uint32_t j = 0; j < i; j++)
      if (meet(a, &pass->lives[j]) && overlap(a, &pass->lives[j]))
        ck_abort_msg("seed %u: lives %u and %u meet", now, i, j);
  }
}

/* An operand lies in its block; in the workspace it is alive while the action runs. */
static void check_place(const plan_places *places, const plan_pass_places *pass, uint32_t action, plan_place place,
                        int64_t bytes) {
  bool right =
      place.block == PLAN_BLOCK_NONE || (place.block == PLAN_BLOCK_OUTSIDE && place.at < places->outside_count);
  if (place.block == PLAN_BLOCK_WORKSPACE)
    for (uint32_t l = 0; !right && l < pass->life_count; l++)
      right = pass->lives[l].at == place.at && pass->lives[l].bytes >= bytes && pass->lives[l].begin <= action &&
              action <= pass->lives[l].end;
  else if (place.block != PLAN_BLOCK_NONE && place.block != PLAN_BLOCK_OUTSIDE)
    right = place.at >= 0 && place.at + bytes <= places->block_bytes[place.block];
  if (!right) ck_abort_msg("seed %u: action %u: an operand of block %u lies elsewhere", now, action, place.block);
}

static void check_actions(const plan_places *places, const plan_pass_places *pass) {
  for (uint32_t a = 0; a < pass->action_count; a++) {
    const graph_op *op = &model.ops.items[pass->actions[a].op];
    const plan_place *at = &pass->places[pass->actions[a].first_place];
    const int n = op->input_count, m = op->output_count;
    for (int i = 0; i < 2 * (n + m); i++) {
      const int k = i % (n + m), tensor = k < n ? op->inputs[k] : op->outputs[k - n];
      check_place(places, pass, a, at[i], model.tensors.items[tensor].bytes);
    }
    check_place(places, pass, a, at[2 * (n + m)], op->statistic_bytes);
    check_place(places, pass, a, at[2 * (n + m) + 1], op->saved_extra_bytes);
    /* what it writes is nothing that it reads */
    for (int i = n; i < n + m && pass->actions[a].kind == PLAN_ACTION_FORWARD; i++)
      for (int j = 0; j < n; j++)
        if (at[i].block == PLAN_BLOCK_WORKSPACE && at[j].block == PLAN_BLOCK_WORKSPACE && at[i].at == at[j].at)
          ck_abort_msg("seed %u: action %u writes over what it reads", now, a);
  }
}

/* A reshape that only its own unit reads is not run: in every pass, units run all of the others forward once. */
static void check_forward(const plan_places *places) {
  uint32_t ops = 0;
  for (int u = places->first_unit; u < places->first_unit + places->unit_count; u++)
    for (int o = model.units.items[u].first_op; o < model.units.items[u].first_op + model.units.items[u].op_count; o++)
      ops += plan_places_root(&model, model.ops.items[o].outputs[0]) == model.ops.items[o].outputs[0];
  ck_assert_uint_eq(places->passes[PLAN_PASS_FORWARD].action_count, ops);
}

static int64_t up(int64_t bytes) { return (bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT; }

/* The layout has just those buffers for every microbatch. */
static void check_blocks(int chunk, const plan_places *places) {
  static const struct {
    plan_block block;
    plan_role role;
  } pairs[] = {{PLAN_BLOCK_SAVED, PLAN_ROLE_SAVED},
               {PLAN_BLOCK_AGAIN, PLAN_ROLE_AGAIN},
               {PLAN_BLOCK_KEPT, PLAN_ROLE_KEPT},
               {PLAN_BLOCK_INPUTS, PLAN_ROLE_INPUTS}};
  const plan_worker_memory *worker = &memory.workers[plan.chunks[chunk].rank];
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    int found = 0;
    for (uint32_t b = 0; b < worker->buffer_count; b++) {
      const plan_buffer *buffer = &worker->buffers[b];
      if (buffer->role != pairs[i].role || buffer->chunk != chunk) continue;
      found++;
      if (buffer->bytes != up(places->block_bytes[pairs[i].block]))
        ck_abort_msg("seed %u: block %d has %lld bytes, its buffer %lld", now, (int)pairs[i].block,
                     (long long)places->block_bytes[pairs[i].block], (long long)buffer->bytes);
    }
    ck_assert_int_eq(found, places->block_bytes[pairs[i].block] > 0 ? plan.microbatches * plan.denoise_steps : 0);
  }
}

/* Everything outside is somewhere on the worker: a buffer of its own, or what another chunk saves. */
static void check_outside(int chunk, const plan_places *places, const plan_places *all) {
  const plan_worker_memory *worker = &memory.workers[plan.chunks[chunk].rank];
  for (int i = 0; i < places->outside_count; i++) {
    const plan_outside *what = &places->outside[i];
    bool found = model.tensors.items[what->tensor].is_constant;
    for (uint32_t b = 0; !found && b < worker->buffer_count; b++)
      found = worker->buffers[b].role == PLAN_ROLE_WHOLE && worker->buffers[b].tensor == what->tensor &&
              worker->buffers[b].gradient == what->gradient;
    for (int c = 0; !found && !what->gradient && c < plan.chunk_count; c++)
      found = plan.chunks[c].rank == plan.chunks[chunk].rank &&
              plan_places_made(&all[c], what->tensor).block == PLAN_BLOCK_SAVED;
    if (!found)
      ck_abort_msg("seed %u: chunk %d: %s%s is nowhere", now, chunk, what->gradient ? "the gradient of " : "",
                   model.tensors.items[what->tensor].name);
  }
}

static void check_plan(void) {
  const plan_memory_options options = {.unfused = true, .overwrites = now % 2 == 0};
  dp_arena arena = {0};
  OK(plan_compile(&plan, &model, &program, &error));
  OK(plan_memory_layout(&program, &model, &options, &memory, &error));
  plan_places *all = DP_ARENA_NEW(&arena, plan_places, (size_t)plan.chunk_count);
  ck_assert_ptr_nonnull(all);
  for (int c = 0; c < plan.chunk_count; c++)
    OK(plan_places_of(&plan, &model, c, plan_splits_backward(&plan), &arena, &all[c], &error));
  for (int c = 0; c < plan.chunk_count; c++) {
    for (int pass = 0; pass < PLAN_PASS_COUNT; pass++) {
      check_lives(&all[c].passes[pass]);
      check_actions(&all[c], &all[c].passes[pass]);
      ck_assert_int_le(all[c].passes[pass].workspace_bytes, all[c].block_bytes[PLAN_BLOCK_WORKSPACE]);
    }
    check_forward(&all[c]);
    check_blocks(c, &all[c]);
    check_outside(c, &all[c], all);
  }
  dp_arena_free(&arena);
  drop();
}

/* ---- plans ---- */

static void make_plan(dp_random *random) {
  int cuts[64];
  const int units = (int)model.units.count;
  reference_plan wanted = reference_random_plan(random, units, cuts);
  wanted.tensor = 0;
  reference_plan_make(&wanted, &model, &plan);
  const uint64_t recomputed = dp_random_below(random, 4); /* of 3; 0: none, 3: all */
  for (int u = 0; u < units; u++) plan.recompute[u] = dp_random_below(random, 3) < recomputed;
}

START_TEST(random_plans_of_random_graphs) {
  for (uint64_t seed = 0; seed < 400; seed++) {
    dp_random random;
    now = (unsigned)seed;
    dp_random_init(&random, seed, 3);
    reference_skip_graph(6 + (int)dp_random_below(&random, 20), (int)(seed % 5), &random, &model);
    make_plan(&random);
    check_plan();
  }
}
END_TEST

START_TEST(random_plans_of_models) {
  static const char *const models[] = {"sd15", "sdxl", "sd3", "sd35", "flux-dev"};
  for (uint64_t seed = 0; seed < 60; seed++) {
    dp_random random;
    graph_model_options options;
    now = (unsigned)seed;
    dp_random_init(&random, seed, 4);
    graph_model_options_default(&options);
    options.height = options.width = 128;
    options.text_tokens = 7;
    options.batch = 1 + (int64_t)(seed % 2);
    if (seed % 3 == 1) {
      options.trainable = GRAPH_TRAIN_LORA;
      options.lora_rank = 3;
      options.lora_all_linear = seed % 2 == 0;
    }
    OK(graph_model_read(fixture_path(models[seed % 5], "config.json"), &options, &model, &error));
    make_plan(&random);
    check_plan();
  }
}
END_TEST

/* ---- what is not saved ---- */

static bool is_norm_or_activation(const graph_op *op) {
  return graph_op_has(op, GRAPH_OP_NORM) || op->kind == GRAPH_SILU || op->kind == GRAPH_GELU || op->kind == GRAPH_GEGLU;
}

/* The graph keeps them for the products behind them. Bytes of them; none is in SAVED. */
static int64_t check_not_saved(const plan_places *places) {
  const plan_pass_places *pass = &places->passes[PLAN_PASS_FORWARD];
  int64_t bytes = 0;
  for (uint32_t a = 0; a < pass->action_count; a++) {
    const graph_op *op = &model.ops.items[pass->actions[a].op];
    const graph_tensor *t = &model.tensors.items[op->outputs[0]];
    if (!is_norm_or_activation(op) || t->consumer_unit_count != 1 || t->consumer_units[0] != op->unit) continue;
    if (pass->places[pass->actions[a].first_place + (uint32_t)op->input_count].block == PLAN_BLOCK_SAVED)
      ck_abort_msg("%s is saved", t->name);
    if (plan_places_saves(&plan, &model, op->outputs[0], 0, (int)model.units.count)) bytes += t->bytes;
  }
  return bytes;
}

START_TEST(what_norms_and_activations_put_out_is_made_again) {
  static const char *const models[] = {"sd15", "sdxl", "sd3", "sd35", "flux-dev"};
  for (size_t i = 0; i < DP_COUNT_OF(models); i++) {
    graph_model_options options;
    dp_arena arena = {0};
    plan_places places;
    const reference_plan wanted = {.ranks = 1, .microbatches = 1};
    graph_model_options_default(&options);
    options.height = options.width = 128;
    options.text_tokens = 7;
    OK(graph_model_read(fixture_path(models[i], "config.json"), &options, &model, &error));
    reference_plan_make(&wanted, &model, &plan);
    OK(plan_places_of(&plan, &model, 0, false, &arena, &places, &error));
    const int64_t spared = check_not_saved(&places);
    ck_assert_int_gt(spared, 0);
    ck_assert_int_lt(places.block_bytes[PLAN_BLOCK_SAVED] + spared, model.saved_bytes + 64); /* what aligns it */
    dp_arena_free(&arena);
    drop();
  }
}
END_TEST

/* ---- gradients where saved activations have been ---- */

/* No backward of a unit has to do with what its own or later units' gradients have been written over. Returns by how
 * much they lie in SAVED. */
static int64_t check_shared(int rank, int64_t value_bytes) {
  const plan_worker_memory *worker = &memory.workers[rank];
  const plan_buffer *saved = NULL;
  dp_arena arena = {0};
  plan_places places;
  int64_t before = 0;
  if (plan_trainable_parameters(&plan, &model, rank) == 0) return 0;
  OK(plan_places_of(&plan, &model, rank, false, &arena, &places, &error));
  if (!worker->shares_gradients) ck_abort_msg("seed %u: gradients have their own room on rank %d", now, rank);
  for (uint32_t b = 0; b < worker->buffer_count; b++)
    if (worker->buffers[b].role == PLAN_ROLE_SAVED) saved = &worker->buffers[b];
  ck_assert_ptr_nonnull(saved);
  const plan_pass_places *pass = &places.passes[PLAN_PASS_BACKWARD];
  for (int u = 0; u < places.unit_count; u++) {
    const int64_t own = model.units.items[places.first_unit + u].trainable_parameters;
    const int64_t free_bytes = worker->gradients_offset_bytes + before * value_bytes - saved->offset_bytes;
    before += own;
    for (uint32_t a = 0; own > 0 && a < pass->action_count; a++) {
      const graph_op *op = &model.ops.items[pass->actions[a].op];
      const int n = op->input_count, m = op->output_count;
      if (op->unit > places.first_unit + u) continue; /* it has run */
      for (int i = 0; i < 2 * (n + m + 1); i++) {
        const plan_place place = pass->places[pass->actions[a].first_place + (uint32_t)i];
        const int k = i % (n + m), tensor = k < n ? op->inputs[k] : op->outputs[k - n];
        const int64_t bytes = i < 2 * (n + m) ? model.tensors.items[tensor].bytes : op->saved_extra_bytes;
        if (place.block == PLAN_BLOCK_SAVED && place.at + bytes > free_bytes)
          ck_abort_msg("seed %u: the gradients of unit %d lie in what unit %d reads", now, places.first_unit + u,
                       op->unit);
      }
    }
  }
  ck_assert_int_le(worker->gradients_offset_bytes + before * value_bytes, worker->layout_bytes);
  ck_assert_int_ge(worker->gradients_offset_bytes, worker->resting_bytes);
  dp_arena_free(&arena);
  return saved->offset_bytes + saved->bytes - worker->gradients_offset_bytes;
}

/* Buffers of one moment lie apart, gradients of weights beside all others. */
static void check_apart(const plan_worker_memory *worker) {
  for (uint32_t i = 0; i < worker->buffer_count; i++)
    for (uint32_t j = 0; j < i; j++) {
      const plan_buffer *a = &worker->buffers[i], *b = &worker->buffers[j];
      if (a->begin <= b->end && b->begin <= a->end && a->offset_bytes < b->offset_bytes + b->bytes &&
          b->offset_bytes < a->offset_bytes + a->bytes)
        ck_abort_msg("seed %u: buffers %u and %u meet", now, i, j);
    }
}

START_TEST(gradients_lie_where_activations_have_been) {
  static const char *const models[] = {"sd15", "sdxl", "sd3", "sd35", "flux-dev"};
  for (uint64_t seed = 0; seed < 40; seed++) {
    const bool fp32 = seed % 2 == 0;
    const plan_memory_options apart = {.unfused = true}, sharing = {.unfused = true, .overwrites = true};
    const reference_plan wanted = {.ranks = 1 + (int)(seed / 5 % 3), .schedule = PLAN_GPIPE, .microbatches = 1};
    dp_random random;
    graph_model_options options;
    int64_t layout_bytes[4], within = 0;
    now = (unsigned)seed;
    dp_random_init(&random, seed, 5);
    graph_model_options_default(&options);
    options.height = options.width = 192;
    options.text_tokens = 7;
    options.batch = 1 + (int64_t)(seed % 3);
    if (seed % 4 == 3) {
      options.trainable = GRAPH_TRAIN_LORA;
      options.lora_rank = 3;
    }
    OK(graph_model_read(fixture_path(models[seed % 5], "config.json"), &options, &model, &error));
    reference_plan_make(&wanted, &model, &plan);
    plan.gradient_fp32 = fp32;
    for (size_t u = 0; seed % 3 == 1 && u < model.units.count; u++)
      plan.recompute[u] = dp_random_below(&random, 2) == 0;
    OK(plan_compile(&plan, &model, &program, &error));
    OK(plan_memory_layout(&program, &model, &apart, &memory, &error));
    for (int r = 0; r < wanted.ranks; r++) {
      ck_assert(!memory.workers[r].shares_gradients);
      layout_bytes[r] = memory.workers[r].layout_bytes;
    }
    plan_memory_free(&memory);
    OK(plan_memory_layout(&program, &model, &sharing, &memory, &error));
    for (int r = 0; r < wanted.ranks; r++) {
      within += check_shared(r, fp32 ? 4 : graph_dtype_bytes(model.precision));
      check_apart(&memory.workers[r]);
      ck_assert_int_le(memory.workers[r].layout_bytes, layout_bytes[r]);
    }
    if (within <= 0) ck_abort_msg("seed %u: nothing lies in saved activations", now);
    drop();
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {random_plans_of_random_graphs, random_plans_of_models,
                                what_norms_and_activations_put_out_is_made_again,
                                gradients_lie_where_activations_have_been};
  return suite_run("plan_places", tests, DP_COUNT_OF(tests), setup, drop, 120);
}
