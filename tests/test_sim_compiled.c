/* The engine on programs that plan_compile made: closed forms, random plans of every schedule, and the compiler against
 * programs made by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "tests/plan_reference.h"
#include "tests/sim_laws.h"
#include "tests/sim_programs.h"
#include "tests/sim_reference.h"
#include "tests/suite.h"

static dp_error error;
static graph model;
static plan_plan plan;
static plan_program program;
static plan_timeline timeline;
static sim_figures figures;

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  model = (graph){.class_name = NULL};
  plan = (plan_plan){.training = false};
  program = (plan_program){.plan = NULL};
  timeline = (plan_timeline){.program = NULL};
  figures = (sim_figures){.work_s = NULL};
}
static void teardown(void) {
  sim_figures_free(&figures);
  plan_timeline_free(&timeline);
  plan_program_free(&program);
  plan_plan_free(&plan);
  graph_free(&model);
}
static void again(void) {
  teardown();
  setup();
}

static void near(double found, double wanted) {
  ck_assert_msg(fabs(found - wanted) <= 1e-9 * fmax(fabs(wanted), 1), "found %.17g, wanted %.17g", found, wanted);
}

static void compile(const reference_plan *wanted) {
  reference_plan_make(wanted, &model, &plan);
  dp_status status = plan_compile(&plan, &model, &program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  status = plan_program_check(&program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}

static void run(void) {
  ck_assert_int_eq(plan_timeline_init(&program, &timeline, &error), DP_OK);
  const dp_status status = sim_run(&figures.input, &timeline, NULL, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}

/* Seconds of each work class from the units' fixed costs; the optimizer step is free. */
static void cost_works(void) {
  for (uint32_t i = 0; i < program.work_count; i++) {
    const plan_work *work = &program.works[i];
    const bool input = work->opcode == PLAN_BACKWARD || work->opcode == PLAN_BACKWARD_INPUT;
    const bool weight = work->opcode == PLAN_BACKWARD || work->opcode == PLAN_BACKWARD_WEIGHT;
    figures.work_s[i] = 0;
    for (uint32_t u = work->first_unit; u < (uint32_t)work->first_unit + work->unit_count; u++) {
      const graph_fixed_cost *cost = &model.units.items[u].fixed;
      if (work->opcode == PLAN_FORWARD) figures.work_s[i] += cost->forward_s;
      if (input) figures.work_s[i] += cost->backward_input_s;
      if (weight) figures.work_s[i] += cost->backward_weight_s;
    }
  }
}

/* The step of equal units, one a chunk, without communication: messages have no bytes, whatever their latency. */
static double step_of(const reference_plan *wanted, double forward_s, double backward_s, double weight_s) {
  const int v = wanted->chunks_per_rank ? wanted->chunks_per_rank : 1;
  again();
  reference_chain(wanted->ranks * v, forward_s, backward_s, weight_s, 0, &model);
  compile(wanted);
  sim_figures_line(&program, 0, 0, 0, 1, 1, &figures);
  for (uint32_t c = 0; c < program.message_count; c++) figures.messages[c].bytes = (double)program.messages[c].bytes;
  cost_works();
  run();
  sim_laws_check(&figures.input, &timeline);
  return timeline.step_s;
}

static void bubble(double wanted) {
  plan_metrics metrics;
  ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
  near(metrics.bubble_ratio, wanted);
  plan_metrics_free(&metrics);
}

START_TEST(every_schedule_takes_its_closed_form) {
  const int p = 2 << _i;
  const double f = 1.3, b = 2.9;
  for (int m = 1; m <= 32; m++) {
    for (plan_schedule schedule = PLAN_GPIPE; schedule <= PLAN_1F1B; schedule++) {
      near(step_of(&(reference_plan){.ranks = p, .schedule = schedule, .microbatches = m}, f, b, -1),
           (m + p - 1) * (f + b));
      bubble((p - 1.0) / (m + p - 1));
    }
    for (int v = 1; v <= 4; v *= 2) {
      const reference_plan wanted = {.ranks = p, .chunks_per_rank = v, .schedule = PLAN_INTERLEAVED, .microbatches = m};
      near(step_of(&wanted, f / v, b / v, -1), (v * fmax(m, p) + fmin(m, p) - 1) * (f + b) / v);
      if (m >= p) bubble((p - 1.0) / (v * m + p - 1));
    }
    const double t = 0.7;
    near(step_of(&(reference_plan){.ranks = p, .schedule = PLAN_ZB_H1, .microbatches = m}, t, 2 * t, t),
         (3 * m + p - 1 + fmax(0, p - m)) * t);
    near(step_of(&(reference_plan){.ranks = p, .chunks_per_rank = 2, .schedule = PLAN_ZB_V, .microbatches = m}, t,
                 2 * t, t),
         fmax(6 * m + p - 1, 4 * m + 4 * p - 2) * t);
  }
}

/* 1F1B with transfers: what the compiler makes takes as long as the program made by hand, on links of its own, over
 * ports and over roots. */
START_TEST(compiled_1f1b_runs_as_the_one_made_by_hand) {
  for (int p = 2; p <= 8; p *= 2) {
    for (int m = 1; m <= 20; m += 3) {
      for (int wiring = 0; wiring < 3; wiring++) {
        double step_s[2];
        for (int hand = 0; hand < 2; hand++) {
          again();
          reference_chain(p, 1, 2, -1, 1000, &model);
          if (hand) {
            sim_program_1f1b(p, m, &program);
          } else {
            compile(&(reference_plan){.ranks = p, .schedule = PLAN_1F1B, .microbatches = m});
          }
          if (wiring == 0) sim_figures_line(&program, 1, 2, 1000, 0.01, 2500, &figures);
          if (wiring == 1) sim_figures_switch(&program, 1, 2, 1000, 0.01, 900, &figures);
          if (wiring == 2) sim_figures_roots(&program, 1, 2, 1000, 0.01, 1100, 4, &figures);
          if (!hand) cost_works();
          run();
          sim_laws_check(&figures.input, &timeline);
          step_s[hand] = timeline.step_s;
        }
        near(step_s[0], step_s[1]);
      }
    }
  }
}

/* Any plan: a schedule, chunks, replicas with their all-reduce, skips, training or sampling. */
static void random_plan(dp_random *random) {
  reference_plan wanted = {.ranks = 1 + (int)dp_random_below(random, 4),
                           .schedule = (plan_schedule)dp_random_below(random, PLAN_SCHEDULE_COUNT),
                           .microbatches = 1 + (int)dp_random_below(random, 6),
                           .replicas = 1 + (int)dp_random_below(random, 3),
                           .gradient_buckets = 1 + (int)dp_random_below(random, 3),
                           .skip_policy = dp_random_below(random, 2) ? PLAN_SKIP_DIRECT : PLAN_SKIP_RELAY};
  const bool two = wanted.schedule == PLAN_FOLDED || wanted.schedule == PLAN_ZB_V;
  wanted.chunks_per_rank = two ? 2 : wanted.schedule == PLAN_INTERLEAVED ? 1 + (int)dp_random_below(random, 3) : 1;
  if (wanted.schedule != PLAN_ZB_H1 && wanted.schedule != PLAN_ZB_V && dp_random_below(random, 4) == 0) {
    wanted.sampling = true;
    wanted.denoise_steps = 1 + (int)dp_random_below(random, 3);
  }
  const int chunks = wanted.ranks * wanted.chunks_per_rank, units = chunks + (int)dp_random_below(random, 6);
  if (dp_random_below(random, 2)) {
    reference_skip_graph(units, 3, random, &model);
  } else {
    reference_chain(units, 1, 2, -1, 1000, &model);
  }
  compile(&wanted);
}

/* With busy figures the last bit can decide who is first where sums of the same durations meet, so there the two
 * engines would have to round alike: those mixes are for programs of unlike instructions (test_sim_engine). */
START_TEST(random_plans_run_as_the_plain_engine_says) {
  if (SIM_MIXES[_i].busy) return;
  for (uint64_t seed = 0; seed < 60; seed++) {
    dp_random random;
    dp_random_init(&random, seed, (uint64_t)_i);
    random_plan(&random);
    sim_figures_random(&random, &program, &SIM_MIXES[_i], &figures);
    run();
    plan_timeline wanted;
    ck_assert_int_eq(plan_timeline_init(&program, &wanted, &error), DP_OK);
    const dp_status status = reference_run(&figures.input, &wanted, NULL, &error);
    ck_assert_msg(status == DP_OK, "%s", error.text);
    for (uint32_t i = 0; i < program.instruction_count; i++) {
      near(timeline.start_s[i], wanted.start_s[i]);
      near(timeline.end_s[i], wanted.end_s[i]);
    }
    plan_timeline_free(&wanted);
    again();
  }
}

START_TEST(laws_hold_for_random_plans) {
  for (uint64_t seed = 0; seed < 150; seed++) {
    dp_random random;
    dp_random_init(&random, seed, (uint64_t)_i);
    random_plan(&random);
    sim_figures_random(&random, &program, &SIM_MIXES[_i], &figures);
    run();
    sim_laws_check(&figures.input, &timeline);
    double *start_s = calloc(program.instruction_count + 1, sizeof *start_s);
    ck_assert(timeline.step_s >= sim_laws_lone_starts(&figures.input, start_s) * (1 - 1e-12));
    free(start_s);
    const plan_timeline before = timeline;
    run();
    ck_assert(memcmp(before.start_s, timeline.start_s, program.instruction_count * sizeof(double)) == 0);
    ck_assert(memcmp(before.end_s, timeline.end_s, program.instruction_count * sizeof(double)) == 0);
    plan_timeline_free(&timeline);
    timeline = before;
    again();
  }
}

/* Where no two transfers share a link, more bandwidth, less latency or faster devices and hosts never lengthen a step;
 * nor an instruction's end. */
START_TEST(unshared_faster_parts_never_lengthen_a_plan) {
  const sim_figures_options options = {.link_count = 0, .max_hops = 1, .hosts = true};
  for (uint64_t seed = 0; seed < 300; seed++) {
    dp_random random;
    dp_random_init(&random, seed, 1000);
    random_plan(&random);
    sim_figures_random(&random, &program, &options, &figures);
    run();
    const plan_timeline before = timeline;
    const uint64_t what = dp_random_below(&random, 4);
    for (uint32_t i = 0; i < program.work_count; i++) {
      if (what == 0) figures.work_s[i] *= dp_random_uniform(&random);
      if (what == 1) figures.work_issue_s[i] *= dp_random_uniform(&random);
    }
    for (uint32_t c = 0; c < program.message_count; c++) {
      sim_transfer *t = &figures.messages[c];
      if (what == 2) t->latency_s = t->busy_latency_s *= dp_random_uniform(&random);
      if (what == 3) t->cap_bytes_per_s = t->busy_cap_bytes_per_s *= 1 + dp_random_uniform(&random);
    }
    run();
    for (uint32_t i = 0; i < program.instruction_count; i++) {
      ck_assert(timeline.end_s[i] <= before.end_s[i] * (1 + 1e-12));
    }
    plan_timeline_free(&timeline);
    timeline = before;
    again();
  }
}

int main(void) {
  Suite *suite = suite_create("sim_compiled");
  TCase *tcase = suite_case(suite, "sim_compiled", setup, teardown, 240);
  tcase_add_loop_test(tcase, every_schedule_takes_its_closed_form, 0, 3);
  tcase_add_test(tcase, compiled_1f1b_runs_as_the_one_made_by_hand);
  tcase_add_loop_test(tcase, random_plans_run_as_the_plain_engine_says, 0, SIM_MIX_COUNT);
  tcase_add_loop_test(tcase, laws_hold_for_random_plans, 0, SIM_MIX_COUNT);
  tcase_add_test(tcase, unshared_faster_parts_never_lengthen_a_plan);
  return suite_finish(suite);
}
