/* plan/: the orders of all schedules against their closed forms, played by tests/plan_reference.c. */
#include <math.h>
#include <string.h>

#include "base/schema.h"
#include "tests/plan_reference.h"
#include "tests/suite.h"

static dp_error error;
static graph chain;
static plan_plan plan;
static plan_program program;
static plan_timeline timeline;

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void drop(void) {
  plan_timeline_free(&timeline);
  plan_program_free(&program);
  plan_plan_free(&plan);
  graph_free(&chain);
}

static const int rank_counts[] = {2, 4, 8}, chunk_counts[] = {1, 2, 4};
static const double ratios[][2] = {{1, 2}, {1, 1}, {2, 1}, {0.7, 2.9}};

/* Compiles and plays a plan of equal units, one a chunk, that cost forward_s and backward_s. */
static void play(const reference_plan *wanted, double forward_s, double backward_s, double weight_s) {
  const int v = wanted->chunks_per_rank ? wanted->chunks_per_rank : 1;
  reference_chain(wanted->ranks * v, forward_s, backward_s, weight_s, 0, &chain);
  reference_plan_make(wanted, &chain, &plan);
  dp_status status = plan_compile(&plan, &chain, &program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  status = plan_program_check(&program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  reference_play(&program, &chain, 0, 0, NULL, &timeline);
}

static void expect_step(double wanted_s, const reference_plan *w) {
  ck_assert_msg(fabs(timeline.step_s / wanted_s - 1) < 1e-9, "%s p %d m %d v %d: step %.12g, wanted %.12g",
                plan_schedule_names[w->schedule], w->ranks, w->microbatches, w->chunks_per_rank, timeline.step_s, wanted_s);
}

static double interleaved_s(int p, int m, int v, double forward_s, double backward_s) {
  return (v * fmax(m, p) + fmin(m, p) - 1) * (forward_s + backward_s) / v;
}

START_TEST(straight_schedules_have_their_closed_forms) {
  for (int i = 0; i < (int)DP_COUNT_OF(rank_counts); i++)
    for (int m = 1; m <= 32; m++)
      for (int k = 0; k < (int)DP_COUNT_OF(ratios); k++)
        for (plan_schedule schedule = PLAN_GPIPE; schedule <= PLAN_1F1B; schedule++) {
          const int p = rank_counts[i];
          const double whole_s = ratios[k][0] + ratios[k][1];
          const reference_plan wanted = {.ranks = p, .schedule = schedule, .microbatches = m};
          play(&wanted, ratios[k][0], ratios[k][1], -1);
          expect_step((m + p - 1) * whole_s, &wanted);
          plan_metrics metrics;
          ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
          ck_assert_double_eq_tol(metrics.bubble_ratio, (p - 1.0) / (m + p - 1), 1e-9);
          plan_metrics_free(&metrics);
          for (int s = 0; s < p; s++)
            ck_assert_int_eq(reference_in_flight(&plan, s, PLAN_BACKWARD), schedule == PLAN_GPIPE ? m : m < p - s ? m : p - s);
          drop();
        }
}
END_TEST

START_TEST(interleaved_has_its_closed_form) {
  for (int i = 0; i < (int)DP_COUNT_OF(rank_counts); i++)
    for (int m = 1; m <= 32; m++)
      for (int j = 0; j < (int)DP_COUNT_OF(chunk_counts); j++)
        for (int k = 0; k < (int)DP_COUNT_OF(ratios); k++) {
          const int p = rank_counts[i], v = chunk_counts[j];
          const reference_plan wanted = {.ranks = p, .chunks_per_rank = v, .schedule = PLAN_INTERLEAVED, .microbatches = m};
          play(&wanted, ratios[k][0] / v, ratios[k][1] / v, -1);
          expect_step(interleaved_s(p, m, v, ratios[k][0], ratios[k][1]), &wanted);
          if (m >= p) {
            plan_metrics metrics;
            ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
            ck_assert_double_eq_tol(metrics.bubble_ratio, (p - 1.0) / (v * m + p - 1), 1e-9);
            plan_metrics_free(&metrics);
          }
          drop();
        }
}
END_TEST

START_TEST(zb_h1_has_a_third_of_the_bubble_and_the_memory_of_1f1b) {
  for (int i = 0; i < (int)DP_COUNT_OF(rank_counts); i++)
    for (int m = 1; m <= 32; m++) {
      const int p = rank_counts[i];
      const reference_plan wanted = {.ranks = p, .schedule = PLAN_ZB_H1, .microbatches = m};
      play(&wanted, 1, 2, 1);
      expect_step(3 * m + p - 1 + (m < p ? p - m : 0), &wanted);
      const double bubble_1f1b_s = (p - 1) * 3;
      if (m >= p) ck_assert_double_eq_tol(timeline.step_s - 3 * m, bubble_1f1b_s / 3, 1e-9);
      for (int s = 0; s < p; s++) ck_assert_int_eq(reference_in_flight(&plan, s, PLAN_BACKWARD_WEIGHT), m < p ? m : p);
      drop();
    }
}
END_TEST

START_TEST(zb_v_idles_the_same_for_any_number_of_microbatches) {
  for (int i = 0; i < (int)DP_COUNT_OF(rank_counts); i++)
    for (int m = 1; m <= 32; m++) {
      const int p = rank_counts[i];
      const reference_plan wanted = {.ranks = p, .chunks_per_rank = 2, .schedule = PLAN_ZB_V, .microbatches = m};
      play(&wanted, 1, 2, 1);
      expect_step(fmax(6 * m + p - 1, 4 * m + 4 * p - 2), &wanted);
      for (int s = 0; s < p; s++) ck_assert_int_le(reference_in_flight(&plan, s, PLAN_BACKWARD_WEIGHT), 2 * p);
      drop();
    }
}
END_TEST

START_TEST(sampling_has_its_closed_form) {
  for (int i = 0; i < (int)DP_COUNT_OF(rank_counts); i++)
    for (int m = 1; m <= 20; m++)
      for (int j = 0; j < (int)DP_COUNT_OF(chunk_counts); j++)
        for (int steps = 1; steps <= 3; steps++) {
          const int p = rank_counts[i], v = chunk_counts[j];
          const reference_plan wanted = {.ranks = p, .chunks_per_rank = v, .schedule = PLAN_INTERLEAVED, .microbatches = m,
                                         .denoise_steps = steps, .sampling = true};
          play(&wanted, 1, 2, 1);
          expect_step(steps * v * fmax(m, p) + fmin(m, p) - 1, &wanted);
          drop();
        }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {straight_schedules_have_their_closed_forms, interleaved_has_its_closed_form,
                                zb_h1_has_a_third_of_the_bubble_and_the_memory_of_1f1b,
                                zb_v_idles_the_same_for_any_number_of_microbatches, sampling_has_its_closed_form};
  return suite_run("plan_schedule", tests, DP_COUNT_OF(tests), setup, drop, 120);
}
