/* Ways that have become slow: what crosses them, what a step then takes, and the plan that a run falls back to. */
#include <math.h>

#include "base/schema.h"
#include "plan/transport.h"
#include "sim/fallback.h"
#include "tests/sim_texts.h"
#include "tests/suite.h"

#define JOB \
  HEAD UNITS "[task]\nglobal_batch = 16\n" CARDS("A100-PCIe-80GB", "4") "[search]\nmicrobatch_sizes = [1, 2]\n"

static dp_error error;
static run now;
static sim_fallbacks fallbacks;

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  read_efficiency();
  load_as("job.toml", JOB "[plan]\nstages = 4\nmicrobatch_size = 1\n", &now.scenario);
  predict(&now.scenario, &now.prediction);
  ck_assert_int_eq(sim_fallbacks_prepare(&now.scenario, efficiency, 1, &fallbacks, &error), DP_OK);
}

static void teardown(void) {
  sim_fallbacks_free(&fallbacks);
  end_run(&now);
  free_efficiency();
}

/* A straight pipeline's ways, of which 0 to 1 has become slow. */
static int find_slow(double factor, plan_slow_way *slow) {
  const plan_way_seen seen[] = {{0, 1, factor}, {1, 2, 1}, {2, 3, 0.9}, {1, 0, 1}, {2, 1, 1}, {3, 2, 1}};
  int count = 0;
  const dp_status status =
      plan_slow_ways(&now.prediction.plan, &now.scenario.cluster, seen, (int)DP_COUNT_OF(seen), slow, &count, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  return count;
}

START_TEST(a_link_is_suspected_that_no_fast_way_crosses) {
  plan_slow_way slow[6];
  plan_cluster cluster = now.scenario.cluster;
  ck_assert_int_eq(find_slow(10, slow), 1);
  cluster.slow = slow;
  cluster.slow_count = 1;
  /* into device 1 comes what 2 sends it, and that is fast; out of device 0 goes nothing else */
  for (int from = 0; from < 4; from++)
    for (int to = 0; to < 4; to++) {
      plan_route route;
      if (from == to) continue;
      ck_assert_int_eq(plan_cluster_route(&cluster, from, to, &route, &error), DP_OK);
      const double factor = plan_slow_factor(&cluster, from, to, &route);
      ck_assert_msg(factor == (from == 0 ? 10 : 1), "%d to %d: %g", from, to, factor);
    }
}
END_TEST

START_TEST(candidates_are_what_a_run_can_go_over_to) {
  ck_assert_int_gt(fallbacks.count, 4);
  ck_assert_int_eq(fallbacks.global_batch, 16);
  for (int i = 0; i < fallbacks.count; i++) {
    int alike = 0;
    for (int k = 0; k < fallbacks.count; k++)
      alike += fallbacks.candidates[k].stages == fallbacks.candidates[i].stages &&
               fallbacks.candidates[k].replicas == fallbacks.candidates[i].replicas;
    ck_assert_int_le(alike, SIM_FALLBACKS_EACH);
    ck_assert_int_eq(sim_candidate_tensor(&fallbacks.candidates[i]), 1);
    if (i) ck_assert_double_ge(fallbacks.expected_s[i], fallbacks.expected_s[i - 1]);
  }
}
END_TEST

START_TEST(the_fallback_is_the_best_over_the_slow_way) {
  static const double factors[] = {3, 10, 100, 1e6};
  double before_s = now.prediction.metrics.step_s;
  for (size_t i = 0; i < DP_COUNT_OF(factors); i++) {
    plan_slow_way slow[6];
    sim_fallback f;
    const int count = find_slow(factors[i], slow);
    ck_assert_int_eq(sim_fallback_find(&fallbacks, &now.scenario, efficiency, slow, count, &f, &error), DP_OK);
    ck_assert_double_ge(f.kept_s, before_s); /* slower is slower */
    before_s = f.kept_s;
    plan_scenario slowed = now.scenario;
    slowed.cluster.slow = slow;
    slowed.cluster.slow_count = count;
    for (int c = 0; c < fallbacks.count; c++) {
      sim_prediction other;
      const plan_scenario changed = sim_tune_scenario(&slowed, &fallbacks.candidates[c], fallbacks.global_batch);
      predict(&changed, &other);
      if (other.fits && other.metrics.step_s < f.kept_s * (1 - SIM_FALLBACK_MARGIN)) {
        ck_assert(f.found);
        ck_assert_double_le(f.prediction.metrics.step_s, other.metrics.step_s);
      }
      sim_prediction_free(&other);
    }
    ck_assert(f.found || factors[i] < 1e6);
    sim_fallback_free(&f);
  }
}
END_TEST

START_TEST(a_way_that_is_all_but_cut_is_not_gone) {
  plan_slow_way slow[6];
  sim_fallback f;
  const int count = find_slow(1e6, slow);
  ck_assert_int_eq(sim_fallback_find(&fallbacks, &now.scenario, efficiency, slow, count, &f, &error), DP_OK);
  ck_assert(f.found);
  ck_assert_double_lt(f.prediction.metrics.step_s, 3 * now.prediction.metrics.step_s);
  const plan_program *program = &f.prediction.program;
  for (uint32_t m = 0; m < program->message_count; m++) {
    plan_route route;
    const int from = (int)program->messages[m].from_worker, to = (int)program->messages[m].to_worker;
    ck_assert_int_eq(plan_transport_route(&f.prediction.plan, &f.scenario.cluster, from, to, &route, &error), DP_OK);
    ck_assert_double_eq(
        plan_slow_factor(&f.scenario.cluster, f.prediction.plan.devices[from], f.prediction.plan.devices[to], &route),
        1);
  }
  sim_fallback_free(&f);
}
END_TEST

START_TEST(a_trifle_is_no_reason) {
  plan_slow_way slow[6];
  sim_fallback f;
  sim_fallbacks own = fallbacks;
  own.count = 0;
  const int count = find_slow(1e6, slow);
  ck_assert_int_eq(sim_fallback_find(&own, &now.scenario, efficiency, slow, count, &f, &error), DP_OK);
  ck_assert(!f.found); /* there is none */
  sim_fallback_free(&f);
  /* a scenario's best plan is left by nothing */
  const plan_scenario best = sim_tune_scenario(&now.scenario, &fallbacks.candidates[0], 16);
  ck_assert_int_eq(sim_fallback_find(&fallbacks, &best, efficiency, NULL, 0, &f, &error), DP_OK);
  ck_assert(!f.found);
  sim_fallback_free(&f);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_link_is_suspected_that_no_fast_way_crosses, candidates_are_what_a_run_can_go_over_to,
                                the_fallback_is_the_best_over_the_slow_way, a_way_that_is_all_but_cut_is_not_gone,
                                a_trifle_is_no_reason};
  return suite_run("sim_fallback", tests, sizeof tests / sizeof tests[0], setup, teardown, 0);
}
