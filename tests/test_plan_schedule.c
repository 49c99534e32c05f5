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
                plan_schedule_names[w->schedule], w->ranks, w->microbatches, w->chunks_per_rank, timeline.step_s,
                wanted_s);
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
            ck_assert_int_eq(reference_in_flight(&plan, s, PLAN_BACKWARD), schedule == PLAN_GPIPE ? m
                                                                           : m < p - s            ? m
                                                                                                  : p - s);
          drop();
        }
}
END_TEST

START_TEST(interleaved_has_its_closed_form) {
  for (int i = 0; i < (int)DP_COUNT_OF(rank_counts); i++)
    for (int m = 1; m <= 32; m++)
      for (int j = 0; j < (int)DP_COUNT_OF(chunk_counts); j++)
        for (int k = 0; k < 2 * (int)DP_COUNT_OF(ratios); k++) {
          const plan_schedule schedule = k % 2 ? PLAN_GPIPE : PLAN_INTERLEAVED; /* with chunks too */
          const double *ratio = ratios[k / 2];
          const int p = rank_counts[i], v = chunk_counts[j];
          const reference_plan wanted = {.ranks = p, .chunks_per_rank = v, .schedule = schedule, .microbatches = m};
          play(&wanted, ratio[0] / v, ratio[1] / v, -1);
          expect_step(interleaved_s(p, m, v, ratio[0], ratio[1]), &wanted);
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
          const reference_plan wanted = {.ranks = p,
                                         .chunks_per_rank = v,
                                         .schedule = PLAN_INTERLEAVED,
                                         .microbatches = m,
                                         .denoise_steps = steps,
                                         .sampling = true};
          play(&wanted, 1, 2, 1);
          expect_step(steps * v * fmax(m, p) + fmin(m, p) - 1, &wanted);
          drop();
        }
}
END_TEST

/* ---- folded: list scheduled ---- */

static void play_folded(int p, int m, const int *limit) {
  const reference_plan wanted = {.ranks = p, .chunks_per_rank = 2, .schedule = PLAN_FOLDED, .microbatches = m};
  reference_chain(2 * p, 1, 2, 1, 0, &chain);
  reference_plan_shape(&wanted, &chain, &plan);
  dp_status status = plan_order_generate(&plan, NULL, limit, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  status = plan_compile(&plan, &chain, &program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  status = plan_program_check(&program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  reference_play(&program, &chain, 0, 0, NULL, &timeline);
}

/* Microbatches begun (forward of the rank's first chunk) and not finished (its backward). */
static int most_begun(int rank) {
  int now = 0, most = 0;
  for (int i = 0; i < plan.order_count[rank]; i++) {
    if (plan.order[rank][i].chunk != rank) continue;
    now += plan.order[rank][i].opcode == PLAN_FORWARD ? 1 : -1;
    if (now > most) most = now;
  }
  return most;
}

START_TEST(folded_is_no_slower_than_1f1b) {
  for (int i = 0; i < (int)DP_COUNT_OF(rank_counts); i++)
    for (int m = 1; m <= 32; m++) {
      const int p = rank_counts[i];
      play_folded(p, m, NULL);
      ck_assert_double_le(timeline.step_s, (m + p - 1) * 6 + 1e-9);
      ck_assert_double_ge(timeline.step_s,
                          fmax(6 * m + p - 1, 2 * p * 3) - 1e-9); /* rank p - 1 waits p - 1 for its first */
      for (int r = 0; r < p; r++) ck_assert_int_le(most_begun(r), 2 * p);
      drop();
    }
}
END_TEST

/* It keeps its limit whatever it is; from 1.5 p on the bubble does not grow with the microbatches: the periodic rule.
 */
START_TEST(folded_keeps_its_limit_and_its_pace) {
  for (int i = 0; i < (int)DP_COUNT_OF(rank_counts); i++)
    for (int m = 1; m <= 128; m += m < 8 ? 1 : 40) {
      const int p = rank_counts[i];
      int limit[8];
      for (int most = 1; most <= 2 * p; most++) {
        for (int r = 0; r < p; r++) limit[r] = most;
        play_folded(p, m, limit);
        for (int r = 0; r < p; r++) ck_assert_int_le(most_begun(r), most);
        if (2 * most >= 3 * p) ck_assert_double_le(timeline.step_s, (m + p - 1) * 6 + 1 + 1e-9);
        drop();
      }
    }
}
END_TEST

/* With costs of its own the order plays as the scheduler thought, and never slower than one microbatch at a time. */
START_TEST(folded_takes_unlike_costs) {
  for (uint64_t seed = 0; seed < 60; seed++) {
    dp_random random;
    dp_random_init(&random, seed, 7);
    const int p = 1 + (int)dp_random_below(&random, 6), m = 1 + (int)dp_random_below(&random, 20);
    const reference_plan wanted = {.ranks = p, .chunks_per_rank = 2, .schedule = PLAN_FOLDED, .microbatches = m};
    reference_chain(2 * p, 1, 2, 1, 0, &chain);
    double forward_s[12], input_s[12], weight_s[12], load_s[6] = {0}, most_s = 0, chain_s = 0;
    for (int c = 0; c < 2 * p; c++) {
      graph_fixed_cost *cost = &chain.units.items[c].fixed;
      cost->forward_s = forward_s[c] = dp_random_below(&random, 8) ? dp_random_uniform(&random) : 0;
      cost->backward_input_s = input_s[c] = dp_random_uniform(&random);
      cost->backward_weight_s = weight_s[c] = dp_random_uniform(&random);
      const double whole_s = forward_s[c] + input_s[c] + weight_s[c];
      load_s[c < p ? c : 2 * p - 1 - c] += whole_s;
      chain_s += whole_s;
    }
    for (int r = 0; r < p; r++) most_s = fmax(most_s, load_s[r]);
    const plan_chunk_costs costs = {forward_s, input_s, weight_s, NULL};
    reference_plan_shape(&wanted, &chain, &plan);
    ck_assert_int_eq(plan_order_generate(&plan, &costs, NULL, &error), DP_OK);
    ck_assert_int_eq(plan_compile(&plan, &chain, &program, &error), DP_OK);
    ck_assert_int_eq(plan_program_check(&program, &error), DP_OK);
    reference_play(&program, &chain, 0, 0, NULL, &timeline);
    ck_assert_double_ge(timeline.step_s, fmax(m * most_s, chain_s) - 1e-9);
    ck_assert_double_le(timeline.step_s, fmin(m * chain_s, 1.25 * (m * most_s + chain_s)) + 1e-9);
    drop();
  }
}
END_TEST

/* An order made for transfers that take time is the better one where they do. */
START_TEST(folded_orders_know_transfers) {
  enum { P = 4, M = 64 };
  double unit[2 * P], way_s[2 * P], step_s[2];
  for (int c = 0; c < 2 * P; c++) unit[c] = way_s[c] = 1;
  for (int known = 0; known < 2; known++) {
    const reference_plan wanted = {.ranks = P, .chunks_per_rank = 2, .schedule = PLAN_FOLDED, .microbatches = M};
    const plan_chunk_costs costs = {unit, unit, unit, known ? way_s : NULL};
    reference_chain(2 * P, 1, 2, 1, 100, &chain);
    reference_plan_shape(&wanted, &chain, &plan);
    ck_assert_int_eq(plan_order_generate(&plan, &costs, NULL, &error), DP_OK);
    ck_assert_int_eq(plan_compile(&plan, &chain, &program, &error), DP_OK);
    ck_assert_int_eq(plan_program_check(&program, &error), DP_OK);
    reference_play(&program, &chain, 0, 100, NULL, &timeline); /* every transfer takes 1, as a forward does */
    step_s[known] = timeline.step_s;
    drop();
  }
  /* 6 M of work a rank; a way there and back of 2 (2 P - 2) transfers */
  ck_assert_double_le(step_s[1], 6 * (M + P - 1) + 4 * P - 4);
  ck_assert_double_lt(step_s[1], 0.8 * step_s[0]);
}
END_TEST

/* The last rank of a V waits p - 1 chunks for its first microbatch, and as many follow its last. */
START_TEST(folded_sampling_is_as_short_as_a_v_can_be) {
  for (int i = 0; i < (int)DP_COUNT_OF(rank_counts); i++)
    for (int m = 1; m <= 24; m++)
      for (int steps = 1; steps <= 3; steps++) {
        const int p = rank_counts[i];
        for (plan_schedule schedule = PLAN_FOLDED; schedule <= PLAN_ZB_V; schedule += PLAN_ZB_V - PLAN_FOLDED) {
          const reference_plan wanted = {.ranks = p,
                                         .chunks_per_rank = 2,
                                         .schedule = schedule,
                                         .microbatches = m,
                                         .denoise_steps = steps,
                                         .sampling = true};
          play(&wanted, 1, 2, 1);
          expect_step(2 * steps * fmax(m, p) + 2 * (fmin(m, p) - 1), &wanted);
          drop();
        }
      }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {straight_schedules_have_their_closed_forms,
                                interleaved_has_its_closed_form,
                                zb_h1_has_a_third_of_the_bubble_and_the_memory_of_1f1b,
                                zb_v_idles_the_same_for_any_number_of_microbatches,
                                sampling_has_its_closed_form,
                                folded_is_no_slower_than_1f1b,
                                folded_keeps_its_limit_and_its_pace,
                                folded_takes_unlike_costs,
                                folded_orders_know_transfers,
                                folded_sampling_is_as_short_as_a_v_can_be};
  return suite_run("plan_schedule", tests, DP_COUNT_OF(tests), setup, drop, 120);
}
