/* The live monitor: baselines and their verdicts by numbers, drift, and what of a program's timeline counts for what.
 */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/schema.h"
#include "profiler/monitor.h"
#include "tests/plan_reference.h"
#include "tests/suite.h"

static dp_error error;
static plan_monitor rule;
static prof_series series;

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  rule = plan_monitor_defaults;
  rule.baseline_steps = 10;
  rule.window_steps = 20;
  ck_assert_int_eq(prof_series_init(&rule, &series, &error), DP_OK);
}
static void teardown(void) { prof_series_free(&series); }

static int64_t at; /* the step */
static prof_verdict add(double value) { return prof_series_add(&series, &rule, ++at, value, 0); }

static void alternate(double low, double high) {
  at = series.count = series.next = series.slow = 0;
  for (int i = 0; i < 20; i++) ck_assert_int_eq(add(i % 2 ? low : high), PROF_STEADY);
}

/* ---- series ---- */

START_TEST(a_baseline_has_the_mean_the_median_and_the_deviation) {
  alternate(1, 1.1);
  ck_assert_double_eq_tol(series.mean, 1.05, 1e-12);
  ck_assert_double_eq_tol(series.median, 1.05, 1e-12);
  ck_assert_double_eq_tol(series.deviation, 1.4826 * 0.05, 1e-12);
  ck_assert_double_eq_tol(prof_series_score(&series, 1.6), 0.55 / (1.4826 * 0.05), 1e-9);
  alternate(2, 2);
  ck_assert_double_eq_tol(series.deviation, 0.02, 1e-12); /* a hundredth of the median */
}
END_TEST

START_TEST(slow_is_over_both_the_multiple_and_the_score) {
  alternate(1, 1.1);
  ck_assert_int_eq(add(1.574), PROF_STEADY); /* z 7.07, but 1.499 times the mean */
  ck_assert_int_eq(series.slow, 0);
  alternate(1, 1.1);
  ck_assert_int_eq(add(1.6), PROF_STEADY);
  ck_assert_int_eq(series.slow, 1);
  alternate(0.5, 1.5);
  ck_assert_int_eq(add(4), PROF_STEADY); /* 4 times the mean, but z 4.05 */
  ck_assert_int_eq(series.slow, 0);
  alternate(0.5, 1.5);
  ck_assert_int_eq(add(6), PROF_STEADY);
  ck_assert_int_eq(series.slow, 1);
}
END_TEST

START_TEST(nothing_is_said_before_there_is_a_baseline) {
  at = 0;
  for (int i = 0; i < 9; i++) (void)add(1);
  ck_assert_int_eq(add(100), PROF_STEADY);
  ck_assert_int_eq(series.slow, 0);
  ck_assert_int_eq(series.count, 10);
}
END_TEST

START_TEST(an_alarm_is_raised_once_and_ends_once) {
  alternate(1, 1);
  ck_assert_int_eq(add(3), PROF_STEADY); /* one alone */
  ck_assert_int_eq(add(1), PROF_STEADY);
  ck_assert_int_eq(add(3), PROF_STEADY);
  ck_assert_int_eq(add(3), PROF_ALARM);
  ck_assert_int_eq(series.since, 23);
  for (int i = 0; i < 100; i++) ck_assert_int_eq(add(3), PROF_STEADY);
  ck_assert_double_eq_tol(series.mean, 1, 1e-12); /* slow values are no baseline */
  const double almost[] = {1.1, 1.2, 1.3, 1, 1};  /* 1.3 is neither slow nor well */
  for (size_t i = 0; i < DP_COUNT_OF(almost); i++) ck_assert_int_eq(add(almost[i]), PROF_STEADY);
  ck_assert_int_eq(add(1), PROF_RECOVERED);
  ck_assert_int_eq(add(3), PROF_STEADY);
  ck_assert_int_eq(add(3), PROF_ALARM);
}
END_TEST

START_TEST(what_is_less_than_worth_a_word_is_not_slow) {
  alternate(1e-6, 1e-6);
  for (int i = 0; i < 5; i++) ck_assert_int_eq(prof_series_add(&series, &rule, ++at, 9e-4, 1e-3), PROF_STEADY);
  ck_assert_int_eq(series.slow, 0);
  alternate(1e-6, 1e-6);
  ck_assert_int_eq(prof_series_add(&series, &rule, ++at, 2e-3, 1e-3), PROF_STEADY);
  ck_assert_int_eq(prof_series_add(&series, &rule, ++at, 2e-3, 1e-3), PROF_ALARM);
  for (int i = 0; i < 5; i++) ck_assert_int_eq(prof_series_add(&series, &rule, ++at, 6e-4, 1e-3), PROF_STEADY);
  for (int i = 0; i < 2; i++) ck_assert_int_eq(prof_series_add(&series, &rule, ++at, 4e-4, 1e-3), PROF_STEADY);
  ck_assert_int_eq(prof_series_add(&series, &rule, ++at, 4e-4, 1e-3), PROF_RECOVERED); /* 400 times the mean */
}
END_TEST

/* Values within a quarter of their mean: 1.25 / 0.95 is less than the multiple. */
START_TEST(noise_makes_no_alarm) {
  dp_random random;
  dp_random_init(&random, 5, 0);
  at = 0;
  for (int i = 0; i < 20000; i++) ck_assert_int_eq(add(0.75 + 0.5 * dp_random_uniform(&random)), PROF_STEADY);
}
END_TEST

/* ---- drift ---- */

START_TEST(a_change_against_the_prediction_is_told_once) {
  prof_drift drift = {.seen = 0};
  for (int i = 1; i <= 40; i++) ck_assert(!prof_drift_add(&drift, 0.08, i, i % 2 ? 1.29 : 1.31));
  ck_assert_double_eq_tol(drift.reference, 1.3, 1e-12);
  int told = 0;
  for (int i = 41; i <= 100; i++)
    if (prof_drift_add(&drift, 0.08, i, 1.43)) told = told ? -1 : i;
  ck_assert_int_eq(told, 49); /* nine of sixteen */
  ck_assert_int_eq(drift.since, 41);
  ck_assert_double_eq_tol(drift.now, 1.43, 1e-12);
  for (int i = 101; i <= 120; i++) ck_assert(!prof_drift_add(&drift, 0.08, i, 1.3));
  for (int i = 121; i <= 140; i++) ck_assert(!prof_drift_add(&drift, 0.08, i, 1.1)); /* nearer to the prediction */
  told = 0;
  for (int i = 141; i <= 160; i++) told += prof_drift_add(&drift, 0.08, i, 0.6); /* further off, and faster */
  ck_assert_int_eq(told, 1);
}
END_TEST

START_TEST(a_drift_comes_from_the_class_that_has_grown_most) {
  prof_mix mix = {.seen = 0};
  double ratio = 0, seconds[GRAPH_CLASS_COUNT] = {4, 2, 1, 0};
  for (int i = 0; i < 4; i++) prof_mix_add(&mix, seconds);
  ck_assert_int_eq(prof_mix_most(&mix, true, &ratio), -1); /* nothing to compare with yet */
  seconds[GRAPH_CLASS_GEMM] = 4.2;
  seconds[GRAPH_CLASS_ATTENTION] = 1.5;
  seconds[GRAPH_CLASS_MEMORY] = 0.1; /* was not there */
  for (int i = 0; i < 5; i++) prof_mix_add(&mix, seconds);
  ck_assert_int_eq(prof_mix_most(&mix, true, &ratio), GRAPH_CLASS_ATTENTION);
  ck_assert_double_eq_tol(ratio, 1.5, 1e-12);
  ck_assert_int_eq(prof_mix_most(&mix, false, &ratio), -1); /* none is faster */
  seconds[GRAPH_CLASS_CONVOLUTION] = 1;
  for (int i = 0; i < 5; i++) prof_mix_add(&mix, seconds);
  ck_assert_int_eq(prof_mix_most(&mix, false, &ratio), GRAPH_CLASS_CONVOLUTION);
  ck_assert_double_eq_tol(ratio, 0.5, 1e-12);
}
END_TEST

/* ---- a program's timeline ---- */

static graph chain;
static plan_plan plan;
static plan_program program;
static plan_timeline timeline, healthy;
static prof_monitor monitor;
static prof_event events[64];

static void begin(const reference_plan *wanted, int units) {
  reference_chain(units, 1, 2, -1, 1000, &chain);
  reference_plan_make(wanted, &chain, &plan);
  ck_assert_int_eq(plan_compile(&plan, &chain, &program, &error), DP_OK);
  reference_play(&program, &chain, 0.125, 8000, NULL, &healthy);
  reference_play(&program, &chain, 0.125, 8000, NULL, &timeline);
  ck_assert_int_eq(prof_monitor_init(&program, &rule, &healthy, &monitor, &error), DP_OK);
  ck_assert_uint_le(prof_monitor_most(&monitor), 64);
}

static void end(void) {
  prof_monitor_free(&monitor);
  plan_timeline_free(&timeline);
  plan_timeline_free(&healthy);
  plan_program_free(&program);
  plan_plan_free(&plan);
  graph_free(&chain);
}

static void expect_quiet(int64_t from, int64_t to) {
  for (int64_t step = from; step <= to; step++)
    ck_assert_uint_eq(prof_monitor_step(&monitor, step, healthy.step_s, &healthy, false, events), 0);
}

/* Stretches what a worker computes, or what comes to it from another. */
static void stretch(double factor, uint32_t worker, uint32_t from) {
  for (uint32_t l = 0; l < program.lane_count; l++) {
    const plan_lane *lane = &program.lanes[l];
    const bool hit =
        lane->worker == worker &&
        (from == PLAN_NO_PEER ? lane->kind == PLAN_LANE_COMPUTE : lane->kind == PLAN_LANE_RECV && lane->peer == from);
    for (uint32_t i = lane->first; hit && i < lane->first + lane->count; i++)
      timeline.end_s[i] = timeline.start_s[i] + factor * (healthy.end_s[i] - healthy.start_s[i]);
  }
}

START_TEST(a_slow_link_is_told_by_its_name) {
  char text[256];
  begin(&(reference_plan){.ranks = 3, .schedule = PLAN_1F1B, .microbatches = 4}, 3);
  expect_quiet(1, 12);
  stretch(21, 1, 0);
  ck_assert_uint_eq(prof_monitor_step(&monitor, 13, 2 * healthy.step_s, &timeline, false, events), 0);
  ck_assert_uint_eq(prof_monitor_step(&monitor, 14, 2 * healthy.step_s, &timeline, false, events), 1);
  const prof_event *e = &events[0]; /* the step is slow because of it: not told */
  ck_assert_int_eq(e->kind, PROF_EVENT_ALARM);
  ck_assert_int_eq(e->watched->subject, PROF_OF_LINK);
  ck_assert_uint_eq(e->watched->worker, 0);
  ck_assert_uint_eq(e->watched->peer, 1);
  ck_assert_uint_eq(e->watched->parts, 4);
  ck_assert_double_eq_tol(e->mean_s, 0.25, 1e-9); /* latency and 1000 bytes */
  ck_assert_double_eq_tol(e->now_s, 21 * 0.25, 1e-9);
  ck_assert_str_eq(prof_event_show(&monitor, e, text),
                   "link worker 0 > worker 1: 5.250 s a message, 21 times the mean of 250 ms (z 2000) since step 13");
  int told = 0;
  for (int64_t step = 15; step <= 18; step++)
    told += (int)prof_monitor_step(&monitor, step, healthy.step_s, &healthy, false, events);
  ck_assert_int_eq(told, 1); /* the link is well; of the step nothing had been told */
  ck_assert_int_eq(events[0].kind, PROF_EVENT_RECOVERED);
  end();
}
END_TEST

START_TEST(a_late_sender_is_no_slow_link) {
  begin(&(reference_plan){.ranks = 3, .schedule = PLAN_1F1B, .microbatches = 4}, 3);
  for (uint32_t i = 0; i < program.instruction_count; i++) /* who receives has waited from the beginning on */
    if (program.instructions[i].opcode == PLAN_RECV) timeline.start_s[i] = 0;
  expect_quiet(1, 12);
  for (int64_t step = 13; step < 18; step++)
    ck_assert_uint_eq(prof_monitor_step(&monitor, step, healthy.step_s, &timeline, false, events), 0);
  end();
}
END_TEST

START_TEST(a_slow_stage_and_a_slow_step_are_told_apart) {
  char name[64];
  begin(&(reference_plan){.ranks = 2, .replicas = 2, .schedule = PLAN_1F1B, .microbatches = 4}, 2);
  rule.drift = 0;
  expect_quiet(1, 12);
  stretch(2, 3, PLAN_NO_PEER);
  for (int64_t step = 13; step < 16; step++) /* timed op by op: no news */
    ck_assert_uint_eq(prof_monitor_step(&monitor, step, 2 * healthy.step_s, &timeline, true, events), 0);
  ck_assert_uint_eq(prof_monitor_step(&monitor, 16, 2 * healthy.step_s, &timeline, false, events), 0);
  ck_assert_uint_eq(prof_monitor_step(&monitor, 17, 2 * healthy.step_s, &timeline, false, events), 1);
  ck_assert_str_eq(prof_watched_show(&monitor, events[0].watched, name), "stage 1 of replica 1");
  int64_t step = 18;
  for (int told = 0; told == 0; step++)
    told = (int)prof_monitor_step(&monitor, step, healthy.step_s, &healthy, false, events);
  ck_assert_uint_eq(prof_monitor_step(&monitor, 30, 2 * healthy.step_s, &healthy, false, events), 0);
  ck_assert_uint_eq(prof_monitor_step(&monitor, 31, 2 * healthy.step_s, &healthy, false, events), 1);
  ck_assert_str_eq(prof_watched_show(&monitor, events[0].watched, name), "step");
  end();
}
END_TEST

START_TEST(sums_of_gradients_are_watched_without_the_norm) {
  char name[64];
  begin(&(reference_plan){.ranks = 2, .replicas = 2, .schedule = PLAN_1F1B, .microbatches = 4, .global_norm = true}, 2);
  int sums = 0;
  for (uint32_t i = 0; i < monitor.watched_count; i++) sums += monitor.watched[i].subject == PROF_OF_SUM;
  ck_assert_int_eq(sums, 2);
  expect_quiet(1, 12);
  for (uint32_t i = 0; i < program.instruction_count; i++) {
    const plan_instruction *in = &program.instructions[i];
    const uint32_t lane = plan_instruction_lane(&program, i);
    if (in->opcode != PLAN_ALL_REDUCE) continue;
    if (program.collectives[in->class_id].norm) timeline.end_s[i] += 100;
    if (!program.collectives[in->class_id].norm && program.lanes[lane].worker % 2 == 1) timeline.end_s[i] += 50;
  }
  uint32_t told = 0;
  for (int64_t step = 13; step < 15; step++)
    told = prof_monitor_step(&monitor, step, healthy.step_s, &timeline, false, events);
  ck_assert_uint_eq(told, 1);
  ck_assert_str_eq(prof_watched_show(&monitor, events[0].watched, name), "gradients of stage 1");
  end();
}
END_TEST

START_TEST(a_stage_that_drifts_is_noted) {
  char text[256];
  begin(&(reference_plan){.ranks = 2, .schedule = PLAN_1F1B, .microbatches = 4}, 2);
  double ops[2 * PLAN_PASS_COUNT * GRAPH_CLASS_COUNT];
  for (size_t i = 0; i < DP_COUNT_OF(ops); i++) ops[i] = 1;
  for (int i = 0; i < 4; i++) prof_monitor_ops(&monitor, ops);
  ops[(1 * PLAN_PASS_COUNT + PLAN_PASS_FORWARD) * GRAPH_CLASS_COUNT + GRAPH_CLASS_ATTENTION] = 1.4;
  for (int i = 0; i < 4; i++) prof_monitor_ops(&monitor, ops);
  expect_quiet(1, 40);
  stretch(1.1, 1, PLAN_NO_PEER);
  uint32_t told = 0;
  int64_t when = 0;
  prof_event seen[2];
  for (int64_t step = 41; step < 80; step++) {
    const uint32_t count = prof_monitor_step(&monitor, step, healthy.step_s, &timeline, false, events);
    if (count == 2) memcpy(seen, events, sizeof seen);
    if (count) when = step;
    told += count;
  }
  ck_assert_uint_eq(told, 2); /* forward and backward of stage 1 */
  ck_assert_int_eq(when, 49);
  ck_assert_int_eq(seen[0].kind, PROF_EVENT_DRIFT);
  ck_assert_str_eq(
      prof_event_show(&monitor, &seen[0], text),
      "stage 1 forward: 10 % slower than predicted since step 41, +0 % at first, mostly attention (+40 %)");
  ck_assert_int_eq(seen[1].pass, PLAN_PASS_BACKWARD);
  ck_assert_int_eq(seen[1].op_class, -1);
  end();
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_baseline_has_the_mean_the_median_and_the_deviation,
                                slow_is_over_both_the_multiple_and_the_score,
                                nothing_is_said_before_there_is_a_baseline,
                                an_alarm_is_raised_once_and_ends_once,
                                what_is_less_than_worth_a_word_is_not_slow,
                                noise_makes_no_alarm,
                                a_change_against_the_prediction_is_told_once,
                                a_drift_comes_from_the_class_that_has_grown_most,
                                a_slow_link_is_told_by_its_name,
                                a_late_sender_is_no_slow_link,
                                a_slow_stage_and_a_slow_step_are_told_apart,
                                sums_of_gradients_are_watched_without_the_norm,
                                a_stage_that_drifts_is_noted};
  return suite_run("profiler_monitor", tests, DP_COUNT_OF(tests), setup, teardown, 0);
}
