/* Which steps a run records of itself, and what it says that this costs. */
#include "profiler/pace.h"

#include <math.h>

#include "base/random.h"
#include "tests/suite.h"

/* A run whose recorded steps take `cost` more of 1 s, the step after a burst `after` more, and switching switch_s. */
typedef struct made_run {
  int64_t steps;
  size_t keep;
  double cost, after, switch_s, noise;
  int64_t size_every; /* one step in so many is of another size and takes 3 s; 0: none is */
} made_run;

typedef struct outcome {
  prof_pace_cost cost;
  int64_t recorded, last; /* usual steps without cold ones; the last recorded steps, one after the other, at the end */
  int64_t kept;           /* usual steps without cold ones after which one is recorded, too */
  int64_t bursts;
  double really; /* all that recording took, by what the steps would have taken */
} outcome;

static outcome play(const made_run *m, prof_pace *pace) {
  outcome o = {.recorded = 0};
  dp_random random;
  bool was = true, was_usual = false;
  double more_s = 0, plain_s = 0;
  dp_random_init(&random, 7, 0);
  prof_pace_begin(pace, 0, m->keep, m->steps);
  for (int64_t i = 0; i < m->steps; i++) {
    const bool on = prof_pace_next(pace), usual = m->size_every == 0 || i % m->size_every != 0;
    const double step_s = (usual ? 1 : 3) * (1 + m->noise * (dp_random_uniform(&random) - 0.5));
    const double extra_s = on ? m->cost : was && i >= PROF_PACE_COLD ? m->after : 0;
    const double switch_s = on != was ? m->switch_s : 0;
    prof_pace_step(pace, step_s + extra_s, switch_s, usual);
    more_s += extra_s + switch_s;
    plain_s += step_s;
    o.recorded += on && usual && i >= PROF_PACE_COLD;
    o.bursts += on && !was;
    o.kept += on && was && was_usual;
    was_usual = usual && i >= PROF_PACE_COLD;
    o.last = on ? o.last + 1 : 0;
    was = on;
  }
  ck_assert(!prof_pace_next(pace)); /* there are no more */
  o.cost = prof_pace_cost_of(pace);
  o.really = more_s / plain_s;
  return o;
}

START_TEST(a_run_of_many_steps_keeps_to_the_bound) {
  static const double costs[] = {0.004, 0.05, 0.2, 1};
  prof_pace pace;
  const made_run run = {.steps = 4000, .keep = 12, .cost = costs[_i], .noise = 0.02};
  const outcome o = play(&run, &pace);
  ck_assert(o.cost.known);
  ck_assert_double_eq_tol(o.cost.step, run.cost, 0.01);
  ck_assert_double_le(o.really, PROF_PACE_BOUND);
  ck_assert_double_eq_tol(o.cost.run, o.really, 0.003);
  ck_assert_int_ge(o.kept, (int64_t)run.keep);
  ck_assert_double_eq_tol(o.cost.plain_s, 1, 0.01);
  ck_assert_double_eq_tol(o.cost.recorded_s, 1 + run.cost, 0.01);
}
END_TEST

/* It does not record less than it may, either. */
START_TEST(what_may_be_recorded_is) {
  prof_pace pace;
  const made_run dear = {.steps = 4000, .keep = 12, .cost = 0.05}, cheap = {.steps = 900, .keep = 12};
  const outcome o = play(&dear, &pace), p = play(&cheap, &pace);
  ck_assert_double_ge(o.really, 0.9 * PROF_PACE_AIM * PROF_PACE_BOUND);
  ck_assert_int_ge(p.recorded, 900 * PROF_PACE_BURST / (2 * PROF_PACE_BURST + 1) - 2 * PROF_PACE_BURST);
}
END_TEST

START_TEST(switching_and_what_it_leaves_behind_count) {
  prof_pace pace;
  const made_run run = {.steps = 2000, .keep = 8, .cost = 0.01, .after = 0.08, .switch_s = 0.02};
  const outcome o = play(&run, &pace);
  ck_assert_double_eq_tol(o.cost.step, 0.01 + (0.08 + 2 * 0.02) / PROF_PACE_BURST, 1e-9);
  ck_assert_double_le(o.really, PROF_PACE_BOUND);
}
END_TEST

START_TEST(a_short_run_records_its_last_steps) {
  static const struct {
    int64_t steps;
    size_t keep;
    bool known;
  } rows[] = {{24, 12, true}, {13, 6, true}, {6, 4, false}, {3, 20, false}, {15, 12, false}};
  prof_pace pace;
  const made_run run = {.steps = rows[_i].steps, .keep = rows[_i].keep, .cost = 0.1};
  const outcome o = play(&run, &pace);
  const int64_t warm = run.steps > PROF_PACE_COLD ? run.steps - PROF_PACE_COLD : 0;
  const int64_t wanted = warm < (int64_t)run.keep + 1 ? warm : (int64_t)run.keep + 1; /* the last is not kept */
  ck_assert_int_eq(o.recorded, wanted);
  ck_assert_int_ge(o.last, wanted);
  ck_assert_int_eq(o.kept, wanted > 0 ? wanted - 1 : 0);
  ck_assert(o.cost.known == rows[_i].known);
  if (!o.cost.known) return;
  ck_assert_double_eq_tol(o.cost.step, 0.1, 1e-9);
  ck_assert_double_gt(o.cost.run, PROF_PACE_BOUND);
  ck_assert_double_eq_tol(o.cost.run, o.really, 1e-9);
}
END_TEST

/* In between: some bursts were recorded before it showed what they cost; the rest comes at the end. */
START_TEST(what_is_missing_comes_at_the_end) {
  prof_pace pace;
  for (int64_t steps = 20; steps < 200; steps++) {
    const made_run run = {.steps = steps, .keep = 12, .cost = 0.08};
    const outcome o = play(&run, &pace);
    ck_assert_int_ge(o.kept, 12);
    ck_assert_int_lt(o.recorded, 12 + 3 * PROF_PACE_BURST + steps / 4);
    if (o.cost.run <= PROF_PACE_BOUND) ck_assert_double_le(o.really, PROF_PACE_BOUND + 1e-9);
  }
}
END_TEST

START_TEST(steps_of_another_size_say_nothing) {
  prof_pace pace;
  const made_run run = {.steps = 3000, .keep = 12, .cost = 0.05, .size_every = 3};
  const outcome o = play(&run, &pace);
  ck_assert_double_eq_tol(o.cost.step, 0.05, 1e-9);
  ck_assert_double_le(o.cost.run, PROF_PACE_BOUND);
  ck_assert_int_ge(o.kept, 12);
}
END_TEST

START_TEST(a_run_that_becomes_slower_is_measured_beside_itself) {
  prof_pace pace;
  prof_pace_begin(&pace, 0.02, 12, 4000);
  for (int64_t i = 0; i < 4000; i++) {
    const bool on = prof_pace_next(&pace);
    prof_pace_step(&pace, (1 + 1e-4 * (double)i) * (on ? 1.05 : 1), 0, true);
  }
  const prof_pace_cost cost = prof_pace_cost_of(&pace);
  ck_assert_double_eq_tol(cost.step, 0.05, 0.005);
  ck_assert_double_le(cost.run, 0.02);
}
END_TEST

START_TEST(a_run_that_ends_in_a_burst_has_measured_it) {
  prof_pace pace;
  prof_pace_begin(&pace, 0.02, 12, 1000);
  for (int i = 0; i < PROF_PACE_COLD + PROF_PACE_BURST + 2; i++)
    prof_pace_step(&pace, prof_pace_next(&pace) ? 1.5 : 1, 0, true);
  (void)prof_pace_next(&pace); /* it is stopped before that one */
  const prof_pace_cost cost = prof_pace_cost_of(&pace);
  ck_assert(cost.known);
  ck_assert_int_eq(cost.recorded, 2);
  ck_assert_int_eq(cost.plain, PROF_PACE_BURST);
  ck_assert_double_eq_tol(cost.step, 0.5, 1e-9);
  ck_assert_double_eq_tol(cost.run, 0.5 * (PROF_PACE_COLD + 2) / (PROF_PACE_COLD + PROF_PACE_BURST + 2), 1e-9);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("profiler pace");
  TCase *tcase = suite_case(suite, "pace", NULL, NULL, 0);
  tcase_add_loop_test(tcase, a_run_of_many_steps_keeps_to_the_bound, 0, 4);
  tcase_add_test(tcase, what_may_be_recorded_is);
  tcase_add_test(tcase, switching_and_what_it_leaves_behind_count);
  tcase_add_loop_test(tcase, a_short_run_records_its_last_steps, 0, 5);
  tcase_add_test(tcase, what_is_missing_comes_at_the_end);
  tcase_add_test(tcase, steps_of_another_size_say_nothing);
  tcase_add_test(tcase, a_run_that_becomes_slower_is_measured_beside_itself);
  tcase_add_test(tcase, a_run_that_ends_in_a_burst_has_measured_it);
  return suite_finish(suite);
}
