#define _DEFAULT_SOURCE
/* Why a step differs from its prediction: what was put in must be found, and all effects must add up. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "base/random.h"
#include "plan/compare.h"
#include "plan/replay.h"
#include "sim/unit_times.h"
#include "tests/compare_world.h"
#include "tests/sim_texts.h"
#include "tests/suite.h"

#define STUDY HEAD UNITS CARDS("A100-SXM4-80GB", "8")
static const char *const texts[] = {
    STUDY "[plan]\nstages = 4\nmicrobatches = 8\nschedule = \"1f1b\"\n",
    STUDY "[plan]\nstages = 2\nmicrobatches = 5\nschedule = \"gpipe\"\n",
    STUDY "[plan]\nstages = 2\nmicrobatches = 6\nschedule = \"interleaved\"\nchunks = 2\n",
    STUDY "[plan]\nstages = 4\nmicrobatches = 8\nschedule = \"folded\"\n",
    STUDY "[plan]\nstages = 3\nmicrobatches = 6\nschedule = \"zb-h1\"\n",
    STUDY "[plan]\nstages = 2\nmicrobatches = 4\nschedule = \"zb-v\"\n",
    STUDY "[plan]\nstages = 4\nmicrobatches = 4\ndata_parallel = 2\n",
    HEAD SD15 "[task]\nkind = \"train\"\n" CARDS("A100-SXM4-80GB", "4") "[plan]\nstages = 4\nmicrobatches = 8\n",
};
enum { TEXTS = sizeof texts / sizeof texts[0] };

static run world; /* of the test's loop index */
static plan_comparison found;

static void begin(int index) {
  load_as("scenario.toml", texts[index], &world.scenario);
  predict(&world.scenario, &world.prediction);
}

static void compare_with(const plan_timeline *measured) {
  dp_error error = DP_ERROR_INIT;
  const plan_comparison_input input = {.predicted = &world.prediction.timeline, .measured = measured};
  ck_assert_msg(plan_compare(&input, &found, &error) == DP_OK, "%s", error.text);
}

static double sum_of(plan_cause_kind kind) {
  double sum_s = 0;
  for (int c = 0; c < found.cause_count; c++)
    if (found.causes[c].kind == kind) sum_s += found.causes[c].effect_s;
  return sum_s;
}

/* The laws that hold whatever was measured. */
static void check_sums(const plan_timeline *measured) {
  const double scale_s = measured->step_s + world.prediction.timeline.step_s, slack_s = 1e-9 * scale_s;
  double all_s = 0, kinds_s = 0, workers_s = 0, chunks_s = 0;
  for (int c = 0; c < found.cause_count; c++) {
    all_s += found.causes[c].effect_s;
    if (c) ck_assert(fabs(found.causes[c - 1].effect_s) >= fabs(found.causes[c].effect_s));
    ck_assert(fabs(found.causes[c].worst_effect_s) * found.causes[c].count >= fabs(found.causes[c].effect_s) - slack_s);
  }
  ck_assert_double_eq(found.difference_s, measured->step_s - world.prediction.timeline.step_s);
  ck_assert_double_eq_tol(all_s, found.difference_s, slack_s);
  for (int k = 0; k < PLAN_OPCODE_COUNT; k++) {
    kinds_s += found.kinds[k].effect_s;
    ck_assert_uint_eq(found.kinds[k].predicted.count, found.kinds[k].measured.count);
    ck_assert(found.kinds[k].measured.median_s <= found.kinds[k].measured.p95_s);
  }
  const double lengths_s = sum_of(PLAN_CAUSE_COMPUTE) + sum_of(PLAN_CAUSE_TRANSFER) + sum_of(PLAN_CAUSE_COLLECTIVE);
  ck_assert_double_eq_tol(kinds_s, lengths_s, slack_s);
  for (int w = 0; w < found.measured.worker_count; w++) {
    workers_s += found.workers[w].effect_s;
    ck_assert_double_eq_tol(found.workers[w].measured.total_s, found.measured.workers[w].compute_s, slack_s);
  }
  ck_assert_double_eq_tol(workers_s, sum_of(PLAN_CAUSE_COMPUTE) + sum_of(PLAN_CAUSE_COMPUTE_DELAY), slack_s);
  for (int c = 0; c < world.prediction.plan.chunk_count; c++)
    chunks_s += found.chunks[0][c].effect_s + found.chunks[1][c].effect_s;
  ck_assert_double_eq_tol(chunks_s + found.kinds[PLAN_OPTIMIZER_STEP].effect_s, sum_of(PLAN_CAUSE_COMPUTE), slack_s);
}

static void end(plan_timeline *measured) {
  plan_comparison_free(&found);
  plan_timeline_free(measured);
  end_run(&world);
}

/* ---- what was put in ---- */

typedef struct recipe {
  const plan_program *program;
  uint32_t worker;
  bool backward_of_worker, transfers; /* are `factor` times as long */
  double factor;
  uint32_t instruction; /* or this one alone; PLAN_NO_PEER */
  double longer, delay_s;
} recipe;

static void cook(const void *how, uint32_t id, distortion *what) {
  const recipe *r = how;
  const plan_instruction *i = &r->program->instructions[id];
  const plan_lane *lane = &r->program->lanes[plan_instruction_lane(r->program, id)];
  if (r->backward_of_worker && is_backward(i->opcode) && lane->worker == r->worker) what->factor = r->factor;
  if (r->transfers && i->opcode == PLAN_SEND) what->factor = r->factor;
  if (id == r->instruction) *what = (distortion){r->longer, r->delay_s};
}

START_TEST(nothing_differs) {
  begin(_i);
  plan_timeline measured;
  const recipe none = {.program = &world.prediction.program, .instruction = PLAN_NO_PEER};
  distorted_timeline(&world.prediction.timeline, cook, &none, &measured);
  for (uint32_t i = 0; i < measured.program->instruction_count; i++)
    ck_assert_double_eq_tol(measured.end_s[i], world.prediction.timeline.end_s[i], 1e-12);
  plan_timeline_free(&measured);
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(plan_timeline_init(&world.prediction.program, &measured, &error), DP_OK);
  memcpy(measured.start_s, world.prediction.timeline.start_s, measured.program->instruction_count * sizeof(double));
  memcpy(measured.end_s, world.prediction.timeline.end_s, measured.program->instruction_count * sizeof(double));
  measured.step_s = world.prediction.timeline.step_s;
  compare_with(&measured);
  check_sums(&measured);
  ck_assert_int_eq(found.cause_count, 0);
  ck_assert_double_eq(found.difference_s, 0);
  end(&measured);
}
END_TEST

/* Both timelines come back from their parts. */
START_TEST(replays_are_exact) {
  begin(_i);
  plan_timeline measured;
  const recipe how = {.program = &world.prediction.program,
                      .worker = 1,
                      .backward_of_worker = true,
                      .factor = 1.7,
                      .instruction = 0,
                      .longer = 2,
                      .delay_s = 1e-3};
  distorted_timeline(&world.prediction.timeline, cook, &how, &measured);
  dp_error error = DP_ERROR_INIT;
  plan_replay replay;
  plan_parts a, b;
  ck_assert_msg(plan_replay_init(&world.prediction.program, &replay, &error) == DP_OK, "%s", error.text);
  ck_assert_int_eq(plan_replay_dissect(&replay, &world.prediction.timeline, &a, &error), DP_OK);
  ck_assert_int_eq(plan_replay_dissect(&replay, &measured, &b, &error), DP_OK);
  for (int t = 0; t < 2; t++) {
    const plan_timeline *own = t ? &measured : &world.prediction.timeline;
    const uint32_t last = plan_replay_run(&replay, &a, &b, t);
    for (uint32_t i = 0; i < own->program->instruction_count; i++)
      ck_assert_double_eq_tol(replay.end_s[i], own->end_s[i], 1e-12 * own->step_s);
    ck_assert_double_eq_tol(replay.end_s[last], own->step_s, 1e-12 * own->step_s);
  }
  plan_replay_free(&replay);
  compare_with(&measured);
  end(&measured);
}
END_TEST

START_TEST(a_slow_worker) {
  begin(_i);
  const uint32_t workers = (uint32_t)world.prediction.program.worker_count;
  for (uint32_t w = 0; w < workers; w++) {
    plan_timeline measured;
    const recipe how = {.program = &world.prediction.program,
                        .worker = w,
                        .backward_of_worker = true,
                        .factor = 1.5,
                        .instruction = PLAN_NO_PEER};
    distorted_timeline(&world.prediction.timeline, cook, &how, &measured);
    compare_with(&measured);
    check_sums(&measured);
    ck_assert(found.difference_s > 0);
    double own_s = 0;
    for (int c = 0; c < found.cause_count; c++) {
      const plan_cause *cause = &found.causes[c];
      if (cause->kind != PLAN_CAUSE_COMPUTE || cause->worker != (int)w || !is_backward(cause->opcode)) continue;
      own_s += cause->effect_s;
      ck_assert_double_eq_tol(cause->measured_s, 1.5 * cause->predicted_s, 1e-9);
    }
    ck_assert_int_eq(found.causes[0].kind, PLAN_CAUSE_COMPUTE);
    ck_assert_int_eq(found.causes[0].worker, (int)w);
    ck_assert_double_eq_tol(own_s, found.difference_s, 1e-9 * measured.step_s);
    plan_comparison_free(&found);
    plan_timeline_free(&measured);
  }
  end_run(&world);
}
END_TEST

START_TEST(slow_links) {
  begin(_i);
  plan_timeline measured;
  const recipe how = {
      .program = &world.prediction.program, .transfers = true, .factor = 3, .instruction = PLAN_NO_PEER};
  distorted_timeline(&world.prediction.timeline, cook, &how, &measured);
  compare_with(&measured);
  check_sums(&measured);
  ck_assert(found.difference_s > 0);
  ck_assert_int_eq(found.causes[0].kind, PLAN_CAUSE_TRANSFER);
  ck_assert_double_eq_tol(sum_of(PLAN_CAUSE_TRANSFER), found.difference_s, 1e-9 * measured.step_s);
  end(&measured);
}
END_TEST

/* Delays and lengths of one instruction each. Twice the step is more than any slack. */
START_TEST(one_instruction) {
  begin(_i);
  const plan_program *program = &world.prediction.program;
  const double step_s = world.prediction.timeline.step_s;
  for (uint32_t id = 0; id < program->instruction_count; id += 7) {
    const plan_instruction *i = &program->instructions[id];
    const plan_lane *lane = &program->lanes[plan_instruction_lane(program, id)];
    const double length_s = world.prediction.timeline.end_s[id] - world.prediction.timeline.start_s[id];
    if (lane->kind != PLAN_LANE_COMPUTE && lane->kind != PLAN_LANE_SEND) continue;
    for (int late = 0; late < 2; late++) {
      if (!late && length_s <= 0) continue;
      plan_timeline measured;
      const recipe how = {.program = program,
                          .instruction = id,
                          .longer = late ? 1 : 1 + 2 * step_s / length_s,
                          .delay_s = late ? 2 * step_s : 0};
      distorted_timeline(&world.prediction.timeline, cook, &how, &measured);
      compare_with(&measured);
      check_sums(&measured);
      const plan_cause *cause = &found.causes[0];
      const plan_cause_kind kinds[2][2] = {{PLAN_CAUSE_COMPUTE, PLAN_CAUSE_COMPUTE_DELAY},
                                           {PLAN_CAUSE_TRANSFER, PLAN_CAUSE_TRANSFER_DELAY}};
      ck_assert_int_eq(cause->kind, kinds[i->opcode == PLAN_SEND][late]);
      ck_assert_int_eq(cause->worker, (int)lane->worker);
      ck_assert_uint_eq(cause->worst, id);
      ck_assert_double_eq_tol(cause->worst_effect_s, found.difference_s, 1e-9 * measured.step_s);
      plan_comparison_free(&found);
      plan_timeline_free(&measured);
    }
  }
  end_run(&world);
}
END_TEST

/* Two causes: each gets a part, nothing else does. */
START_TEST(two_causes) {
  begin(_i);
  plan_timeline measured;
  const recipe how = {.program = &world.prediction.program,
                      .worker = 1,
                      .backward_of_worker = true,
                      .transfers = true,
                      .factor = 2,
                      .instruction = PLAN_NO_PEER};
  distorted_timeline(&world.prediction.timeline, cook, &how, &measured);
  compare_with(&measured);
  check_sums(&measured);
  double own_s = 0;
  for (int c = 0; c < found.cause_count; c++) {
    const plan_cause *cause = &found.causes[c];
    if (cause->kind == PLAN_CAUSE_COMPUTE && cause->worker == 1 && is_backward(cause->opcode)) own_s += cause->effect_s;
    ck_assert(cause->effect_s >= -1e-9 * measured.step_s);
  }
  ck_assert(own_s > 0 && sum_of(PLAN_CAUSE_TRANSFER) >= 0);
  ck_assert_double_eq_tol(own_s + sum_of(PLAN_CAUSE_TRANSFER), found.difference_s, 1e-9 * measured.step_s);
  end(&measured);
}
END_TEST

static void stir(const void *how, uint32_t id, distortion *what) {
  const recipe *r = how;
  dp_random random;
  dp_random_init(&random, r->worker, id); /* the same whenever it is asked */
  what->factor = 1 + (r->factor - 1) * dp_random_uniform(&random);
  what->delay_s = r->delay_s * dp_random_uniform(&random);
}

/* Everything differs: the effects still add up, and nothing that got slower has made the step shorter. */
START_TEST(everything_differs) {
  begin(_i % TEXTS);
  plan_timeline measured;
  const recipe how = {.worker = (uint32_t)_i, .factor = _i % 3 ? 1.6 : 0.4, .delay_s = _i % 2 ? 1e-4 : 0};
  distorted_timeline(&world.prediction.timeline, stir, &how, &measured);
  compare_with(&measured);
  check_sums(&measured);
  for (int c = 0; c < found.cause_count; c++)
    if (_i % 3) ck_assert(found.causes[c].effect_s >= -1e-9 * measured.step_s);
  end(&measured);
}
END_TEST

/* The other world is the simulator's own: the same job and plan, on cards whose links are slower. */
START_TEST(other_links) {
#define PLAN_OF_IT "[plan]\nstages = 4\nmicrobatches = 8\nsplit = [3, 6, 9]\n"
  load_as("scenario.toml", HEAD UNITS CARDS("A100-SXM4-80GB", "4") PLAN_OF_IT, &world.scenario);
  predict(&world.scenario, &world.prediction);
  run other;
  load_as("scenario.toml", HEAD UNITS CARDS("RTX-3090", "4") PLAN_OF_IT, &other.scenario);
  predict(&other.scenario, &other.prediction);
  compare_with(&other.prediction.timeline);
  check_sums(&other.prediction.timeline);
  ck_assert(found.difference_s > 0);
  ck_assert_int_eq(found.causes[0].kind, PLAN_CAUSE_TRANSFER);
  /* the rest is compute, which transfers over another kind of link slow down otherwise */
  ck_assert_double_eq_tol(sum_of(PLAN_CAUSE_TRANSFER), found.difference_s, 0.05 * found.difference_s);
  plan_comparison_free(&found);
  end_run(&other);
  end_run(&world);
}
END_TEST

START_TEST(after_the_last_instruction) {
  begin(0);
  plan_timeline measured;
  const recipe none = {.program = &world.prediction.program, .instruction = PLAN_NO_PEER};
  distorted_timeline(&world.prediction.timeline, cook, &none, &measured);
  measured.step_s += 0.25;
  compare_with(&measured);
  check_sums(&measured);
  ck_assert_int_eq(found.causes[0].kind, PLAN_CAUSE_AFTER);
  ck_assert_double_eq_tol(found.causes[0].effect_s, 0.25, 1e-9);
  end(&measured);
}
END_TEST

START_TEST(different_programs) {
  dp_error error = DP_ERROR_INIT;
  begin(0);
  run other;
  load_as("scenario.toml", texts[1], &other.scenario);
  predict(&other.scenario, &other.prediction);
  const plan_comparison_input input = {.predicted = &world.prediction.timeline, .measured = &other.prediction.timeline};
  ck_assert_int_eq(plan_compare(&input, &found, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, "timelines of different programs (4 workers, "), "%s", error.text);
  end_run(&other);
  /* as many instructions, others */
  load_as("scenario.toml", STUDY "[plan]\nstages = 4\nmicrobatches = 8\nschedule = \"gpipe\"\n", &other.scenario);
  predict(&other.scenario, &other.prediction);
  ck_assert_int_eq(plan_compare(&input, &found, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, "worker 0 FORWARD chunk 0"), "%s", error.text);
  end_run(&other);
  /* compiled twice, the same */
  load_as("scenario.toml", texts[0], &other.scenario);
  predict(&other.scenario, &other.prediction);
  ck_assert_int_eq(plan_compare(&input, &found, &error), DP_OK);
  ck_assert_int_eq(found.cause_count, 0);
  plan_comparison_free(&found);
  end_run(&other);
  end_run(&world);
}
END_TEST

/* ---- units ---- */

START_TEST(a_slow_unit) {
  dp_error error = DP_ERROR_INIT;
  begin(_i ? 7 : 0);
  const plan_plan *plan = &world.prediction.plan;
  plan_unit_times predicted, measured_units;
  ck_assert_msg(sim_unit_times(&world.scenario, &world.prediction, &predicted, &error) == DP_OK, "%s",
                error.text);
  ck_assert_int_eq(plan_unit_times_init(predicted.unit_count, &measured_units, &error), DP_OK);
  /* the units of a chunk are its work, without what hosts add */
  for (int c = 0; c < plan->chunk_count && !_i; c++) {
    double sum_s[2] = {0, 0};
    for (int u = plan->chunks[c].first_unit; u < plan->chunks[c].first_unit + plan->chunks[c].unit_count; u++) {
      sum_s[0] += plan_unit_forward_s(&predicted, (size_t)u);
      sum_s[1] += plan_unit_backward_s(&predicted, (size_t)u);
    }
    for (uint32_t i = 0; i < world.prediction.program.instruction_count; i++) {
      const plan_instruction *one = &world.prediction.program.instructions[i];
      if (one->chunk != c || (one->opcode != PLAN_FORWARD && one->opcode != PLAN_BACKWARD)) continue;
      ck_assert_double_eq_tol(world.prediction.timeline.end_s[i] - world.prediction.timeline.start_s[i],
                              sum_s[one->opcode == PLAN_BACKWARD], 1e-5); /* transfers slow it a little */
    }
  }
  /* one unit's backward is slower, and so is its chunk */
  const int chunk = 1, slow = plan->chunks[chunk].first_unit + 1;
  double before_s = 0, more_s = 0;
  for (size_t u = 0; u < predicted.unit_count; u++)
    for (int m = 0; m < 3; m++) {                         /* several microbatches: the mean counts */
      const double factor = (int)u == slow ? 1.0 + m : 1; /* twice, on average */
      plan_unit_times_add(&measured_units, u, PLAN_UNIT_FORWARD, plan_unit_forward_s(&predicted, u));
      plan_unit_times_add(&measured_units, u, PLAN_UNIT_BACKWARD_INPUT, factor * plan_unit_backward_s(&predicted, u));
    }
  for (int u = 0; u < plan->chunks[chunk].unit_count; u++)
    before_s += plan_unit_backward_s(&predicted, (size_t)(plan->chunks[chunk].first_unit + u));
  more_s = plan_unit_backward_s(&predicted, (size_t)slow);
  plan_timeline measured;
  const recipe how = {.program = &world.prediction.program,
                      .worker = 1,
                      .backward_of_worker = true,
                      .factor = 1 + more_s / before_s,
                      .instruction = PLAN_NO_PEER};
  distorted_timeline(&world.prediction.timeline, cook, &how, &measured);
  const plan_comparison_input input = {.predicted = &world.prediction.timeline,
                                       .measured = &measured,
                                       .predicted_units = &predicted,
                                       .measured_units = &measured_units};
  ck_assert_msg(plan_compare(&input, &found, &error) == DP_OK, "%s", error.text);
  ck_assert_uint_eq(found.unit_count, predicted.unit_count);
  for (size_t u = 0; u < found.unit_count; u++) {
    const plan_compared_unit *unit = &found.units[u];
    ck_assert_double_eq_tol(unit->measured_s[1], ((int)u == slow ? 2 : 1) * unit->predicted_s[1], 1e-12);
    if ((int)u != slow) ck_assert(fabs(unit->effect_s[0]) + fabs(unit->effect_s[1]) <= 1e-9);
  }
  const double tolerance_s = (_i ? 0.2 : 1e-2) * found.difference_s; /* hosts are in the chunk, not in its units */
  ck_assert_double_eq_tol(found.units[slow].effect_s[1], found.difference_s, tolerance_s);
  plan_comparison_free(&found);
  const plan_unit_times fewer = {.unit_count = 1, .total_s = measured_units.total_s, .runs = measured_units.runs};
  plan_comparison_input unlike = input;
  unlike.measured_units = &fewer;
  ck_assert_int_eq(plan_compare(&unlike, &found, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "times of"));
  plan_unit_times_free(&predicted);
  plan_unit_times_free(&measured_units);
  end(&measured);
}
END_TEST

/* ---- several steps ---- */

START_TEST(the_median_step) {
  dp_error error = DP_ERROR_INIT;
  begin(1);
  const uint32_t n = world.prediction.program.instruction_count;
  plan_timeline_samples samples;
  plan_step_spread spread;
  plan_timeline step, median;
  ck_assert_int_eq(plan_timeline_samples_init(&world.prediction.program, 0, &samples, &error), DP_INTERNAL);
  ck_assert_int_eq(plan_timeline_samples_init(&world.prediction.program, 5, &samples, &error), DP_OK);
  ck_assert_int_eq(plan_timeline_samples_median(&samples, &median, &error), DP_INTERNAL);
  ck_assert_int_eq(plan_timeline_samples_spread(&samples, &spread, &error), DP_OK);
  ck_assert_uint_eq(spread.count, 0);
  /* the first two fall out; of 3 9 5 4 8 the median is 5 */
  static const double factors[] = {100, 200, 3, 9, 5, 4, 8};
  for (size_t s = 0; s < 7; s++) {
    ck_assert_int_eq(plan_timeline_init(&world.prediction.program, &step, &error), DP_OK);
    for (uint32_t i = 0; i < n; i++) {
      step.start_s[i] = factors[s] * world.prediction.timeline.start_s[i];
      step.end_s[i] = factors[s] * world.prediction.timeline.end_s[i];
    }
    step.step_s = factors[s];
    plan_timeline_samples_add(&samples, &step);
    plan_timeline_free(&step);
  }
  ck_assert_uint_eq(samples.count, 5);
  ck_assert_uint_eq(samples.seen, 7);
  ck_assert_int_eq(plan_timeline_samples_spread(&samples, &spread, &error), DP_OK);
  ck_assert_double_eq(spread.median_s, 5);
  ck_assert_double_eq_tol(spread.mean_s, 5.8, 1e-12);
  ck_assert_double_eq(spread.p95_s, 9);
  ck_assert_double_eq(spread.max_s, 9);
  ck_assert_int_eq(plan_timeline_samples_median(&samples, &median, &error), DP_OK);
  for (uint32_t i = 0; i < n; i++) {
    ck_assert_double_eq(median.start_s[i], 5 * world.prediction.timeline.start_s[i]);
    ck_assert_double_eq(median.end_s[i], 5 * world.prediction.timeline.end_s[i]);
  }
  /* spreads are of all five steps */
  const plan_comparison_input input = {
      .predicted = &world.prediction.timeline, .measured = &median, .samples = &samples};
  ck_assert_int_eq(plan_compare(&input, &found, &error), DP_OK);
  const plan_compared *forward = &found.kinds[PLAN_FORWARD];
  ck_assert_uint_eq(forward->predicted.count, 10);
  ck_assert_uint_eq(forward->measured.count, 10);
  ck_assert_double_eq_tol(forward->measured.mean_s, 5.8 * forward->predicted.mean_s, 1e-12);
  ck_assert_double_eq_tol(forward->measured.total_s, 5.8 * forward->predicted.total_s, 1e-12);
  ck_assert_double_eq_tol(forward->measured.p95_s, 9 * forward->predicted.p95_s, 1e-12);
  plan_comparison_free(&found);
  plan_timeline_samples_free(&samples);
  end(&median);
}
END_TEST

START_TEST(quantiles) {
  double values[] = {5, 1, 4, 2, 3};
  dp_sort(values, 5);
  ck_assert_double_eq(plan_quantile(values, 5, 0), 1);
  ck_assert_double_eq(plan_quantile(values, 5, 0.2), 1);
  ck_assert_double_eq(plan_quantile(values, 5, 0.5), 3);
  ck_assert_double_eq(plan_quantile(values, 4, 0.5), 2);
  ck_assert_double_eq(plan_quantile(values, 5, 0.95), 5);
  ck_assert_double_eq(plan_quantile(values, 5, 1), 5);
  ck_assert_double_eq(plan_quantile(values, 0, 0.5), 0);
  ck_assert_double_eq(plan_error_of(2, 4), -0.5);
  ck_assert_double_eq(plan_error_of(2, 0), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("plan_compare");
  TCase *tcase = suite_case(suite, "compare", read_efficiency, free_efficiency, 0);
  tcase_add_loop_test(tcase, nothing_differs, 0, TEXTS);
  tcase_add_loop_test(tcase, replays_are_exact, 0, TEXTS);
  tcase_add_loop_test(tcase, a_slow_worker, 0, TEXTS);
  tcase_add_loop_test(tcase, slow_links, 0, TEXTS);
  tcase_add_loop_test(tcase, one_instruction, 0, TEXTS);
  tcase_add_loop_test(tcase, two_causes, 0, TEXTS);
  tcase_add_loop_test(tcase, everything_differs, 0, 8 * TEXTS);
  tcase_add_test(tcase, other_links);
  tcase_add_test(tcase, after_the_last_instruction);
  tcase_add_test(tcase, different_programs);
  tcase_add_loop_test(tcase, a_slow_unit, 0, 2);
  tcase_add_test(tcase, the_median_step);
  tcase_add_test(tcase, quantiles);
  return suite_finish(suite);
}
