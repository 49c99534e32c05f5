/* The search against simulating everything, and what it says of the plans that lost. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/tune.h"
#include "tests/sim_texts.h"
#include "tests/suite.h"

static void load(plan_scenario *scenario, const char *text) { load_as("tune.toml", text, scenario); }

/* Small grids of unlike kinds: what follows must hold on all. */
static const char *const grids[] = {
    HEAD SDXL
    "[task]\nglobal_batch = 32\n" CARDS("A100-SXM4-80GB", "4") "[search]\nmicrobatch_sizes = [2, 4]\nchunks = [2]\n",
    HEAD SDXL
    "[task]\nglobal_batch = 16\n" CARDS("RTX-4090", "4") "[search]\nmicrobatch_sizes = [1]\nchunks = [2, 4]\n",
    HEAD SD15 "[task]\nglobal_batch = 64\n" CARDS(
        "RTX-3090", "4") "[search]\nmicrobatch_sizes = [4, 8]\nschedules = [\"1f1b\", \"folded\", \"zb-v\"]\n",
    HEAD SD15 "[task]\nkind = \"sample\"\nsteps = 4\nglobal_batch = 16\n" CARDS(
        "L40S", "4") "[search]\nmicrobatch_sizes = [1, 2, 4]\n",
    HEAD UNITS "[task]\nglobal_batch = 24\n" CARDS("A100-PCIe-80GB", "6") "[search]\nmicrobatch_sizes = [1, 2, 3]\n",
    HEAD SDXL "[task]\nglobal_batch = 8\n" CARDS(
        "A100-PCIe-80GB", "2") "[search]\nmicrobatch_sizes = [1]\nallow_lossy_skips = true\nk = [1024, 65536]\n",
};
enum { GRID_COUNT = sizeof grids / sizeof grids[0] };

START_TEST(as_good_as_simulating_every_plan) {
  for (int g = 0; g < GRID_COUNT; g++) {
    plan_scenario scenario;
    sim_tune_result result;
    load(&scenario, grids[g]);
    search(&scenario, 2, &result);
    const int64_t batch = sim_tune_global_batch(&scenario, NULL);
    double most = 0;
    int fitting = 0;
    for (int i = 0; i < result.trial_count; i++) {
      const plan_scenario changed = sim_tune_scenario(&scenario, &result.trials[i].candidate, batch);
      sim_prediction prediction;
      dp_error error = DP_ERROR_INIT;
      if (sim_predict(&changed, efficiency, &prediction, &error) != DP_OK) {
        ck_assert_int_eq(error.status, DP_BAD_INPUT);
        continue;
      }
      /* the bound is one */
      ck_assert_msg(prediction.metrics.step_s >= result.trials[i].bound_s, "grid %d plan %d: step %.9g, bound %.9g", g,
                    i, prediction.metrics.step_s, result.trials[i].bound_s);
      if (prediction.fits) {
        fitting++;
        /* a plan with skip policies of its own is set aside where it gains less than a thousandth */
        if (result.trials[i].set_aside)
          ck_assert_double_le(prediction.metrics.throughput_samples_per_s * (1 - 1.1e-3),
                              result.trials[result.best].throughput_samples_per_s);
        else
          most = fmax(most, prediction.metrics.throughput_samples_per_s);
      }
      sim_prediction_free(&prediction);
    }
    if (fitting == 0) {
      ck_assert_int_eq(result.best, -1);
    } else {
      ck_assert_int_ge(result.best, 0);
      ck_assert_double_ge(result.trials[result.best].throughput_samples_per_s, most * (1 - 1e-9));
      ck_assert(result.trials[result.best].fits);
    }
    ck_assert_int_eq(result.simulated + result.pruned + result.too_large + result.refused, result.trial_count);
    sim_tune_result_free(&result);
    plan_scenario_free(&scenario);
  }
}
END_TEST

START_TEST(threads_change_nothing) {
  plan_scenario scenario;
  sim_tune_result one, four;
  load(&scenario, grids[0]);
  search(&scenario, 1, &one);
  search(&scenario, 4, &four);
  ck_assert_int_eq(one.best, four.best);
  ck_assert_int_eq(one.trial_count, four.trial_count);
  for (int i = 0; i < one.trial_count; i++) {
    ck_assert_int_eq(one.trials[i].state, four.trials[i].state);
    ck_assert(one.trials[i].step_s == four.trials[i].step_s);
    ck_assert_str_eq(one.trials[i].why, four.trials[i].why);
  }
  ck_assert_int_eq(one.front_count, four.front_count);
  sim_tune_result_free(&one);
  sim_tune_result_free(&four);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(front_is_a_front) {
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, grids[0]);
  search(&scenario, 2, &result);
  ck_assert_int_gt(result.front_count, 0);
  ck_assert_int_eq(result.front[0], result.best);
  for (int i = 1; i < result.front_count; i++) { /* slower ones need less memory: all cost one price an hour */
    const sim_trial *before = &result.trials[result.front[i - 1]], *here = &result.trials[result.front[i]];
    ck_assert_double_le(here->throughput_samples_per_s, before->throughput_samples_per_s);
    ck_assert_int_le(here->peak_bytes, before->peak_bytes);
  }
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
}
END_TEST

/* Every sentence appears, with its figures. */
START_TEST(neighbours_say_why_they_lost) {
  static const char *const sentences[] = {"does not fit: worker ", "slower by ", "slower by at least "};
  bool seen[3] = {false, false, false};
  for (int g = 0; g < GRID_COUNT; g++) {
    plan_scenario scenario;
    sim_tune_result result;
    load(&scenario, grids[g]);
    search(&scenario, 2, &result);
    for (int i = 0; i < result.trial_count && result.best >= 0; i++)
      for (int s = 0; s < 3; s++)
        if (strncmp(result.trials[i].why, sentences[s], strlen(sentences[s])) == 0) seen[s] = true;
    for (int n = 0; n < result.neighbour_count; n++) {
      ck_assert_int_ne(result.neighbours[n], result.best);
      ck_assert_uint_gt(strlen(result.trials[result.neighbours[n]].why), 0);
    }
    sim_tune_result_free(&result);
    plan_scenario_free(&scenario);
  }
  for (int s = 0; s < 3; s++) ck_assert_msg(seen[s], "\"%s\" was never said", sentences[s]);
}
END_TEST

START_TEST(plans_with_more_chunks_than_units_are_refused) {
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, HEAD "[model]\nsynthetic_units = 5\nforward_us = 100\n[task]\nglobal_batch = 16\n" CARDS(
                      "A100-SXM4-80GB", "8") "[plan]\nstages = 1\n");
  search(&scenario, 2, &result);
  int refused = 0;
  for (int i = 0; i < result.trial_count; i++)
    if (result.trials[i].candidate.stages * result.trials[i].candidate.chunks > 5 &&
        result.trials[i].state == SIM_TRIAL_REFUSED) {
      refused++;
      ck_assert_msg(strncmp(result.trials[i].why, "cannot be: ", 11) == 0, "%s", result.trials[i].why);
    }
  ck_assert_int_gt(refused, 0);
  ck_assert_int_eq(refused, result.refused);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
}
END_TEST

/* More stages is not better by default: data parallel replicas have no bubble, where a whole model fits on a card. */
START_TEST(eight_stages_lose_to_fewer) {
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, HEAD SD15
       "[task]\nglobal_batch = 64\n" CARDS("A100-SXM4-80GB", "8") "[search]\nmicrobatch_sizes = [1, 2, 4, 8]\n");
  search(&scenario, 2, &result);
  ck_assert_int_ge(result.best, 0);
  ck_assert_int_lt(result.trials[result.best].candidate.stages, 8);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(lossy_skips_only_where_allowed) {
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, HEAD SDXL
       "[task]\nglobal_batch = 8\n" CARDS("A100-PCIe-80GB", "2") "[search]\nmicrobatch_sizes = [1]\nk = [1024]\n");
  search(&scenario, 2, &result);
  for (int i = 0; i < result.trial_count; i++)
    ck_assert_int_ne(result.trials[i].candidate.skip_policy, PLAN_SKIP_COMPRESS);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
  load(&scenario, grids[5]);
  search(&scenario, 2, &result);
  int lossy = 0;
  for (int i = 0; i < result.trial_count; i++) lossy += result.trials[i].candidate.skip_policy == PLAN_SKIP_COMPRESS;
  ck_assert_int_gt(lossy, 0);
  /* a lossy plan may win only by being faster than every exact one */
  const sim_trial *best = &result.trials[result.best];
  if (best->candidate.skip_policy == PLAN_SKIP_COMPRESS)
    for (int i = 0; i < result.trial_count; i++)
      if (result.trials[i].state == SIM_TRIAL_SIMULATED && result.trials[i].fits &&
          result.trials[i].candidate.skip_policy != PLAN_SKIP_COMPRESS)
        ck_assert_double_lt(result.trials[i].throughput_samples_per_s, best->throughput_samples_per_s);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(nothing_fits_is_said) {
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, HEAD SDXL "[task]\nglobal_batch = 8\n" CARDS("L4", "1"));
  search(&scenario, 2, &result);
  ck_assert_int_eq(result.best, -1);
  ck_assert_int_ge(result.nearest, 0);
  const sim_trial *nearest = &result.trials[result.nearest];
  ck_assert_int_gt(nearest->tightest.peak_bytes, nearest->tightest.limit_bytes);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(a_search_can_be_stopped) {
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, grids[0]);
  const volatile sig_atomic_t stop = 1;
  const sim_tune_options how = {.threads = 2, .stop = &stop};
  ck_assert_int_eq(sim_tune(&scenario, efficiency, &how, &result, NULL), DP_OK);
  ck_assert(result.stopped);
  ck_assert_int_eq(result.simulated, 0);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
  load(&scenario, HEAD SDXL "[task]\nglobal_batch = 32\n" CARDS("A100-SXM4-80GB", "4") "[search]\nmax_trials = 20\n");
  search(&scenario, 2, &result);
  ck_assert_int_le(result.simulated + result.refused, 20);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(nothing_to_try_is_an_error) {
  plan_scenario scenario;
  sim_tune_result result;
  dp_error error = DP_ERROR_INIT;
  load(&scenario,
       HEAD SDXL "[task]\nglobal_batch = 7\n" CARDS("A100-SXM4-80GB", "4") "[search]\nmicrobatch_sizes = [2, 4]\n");
  const sim_tune_options how = {.threads = 1};
  ck_assert_int_eq(sim_tune(&scenario, efficiency, &how, &result, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, "[search]: found no plan to try for a global batch of 7 on 4 devices") != NULL, "%s",
                error.text);
  plan_scenario_free(&scenario);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {as_good_as_simulating_every_plan,
                                threads_change_nothing,
                                front_is_a_front,
                                neighbours_say_why_they_lost,
                                plans_with_more_chunks_than_units_are_refused,
                                eight_stages_lose_to_fewer,
                                lossy_skips_only_where_allowed,
                                nothing_fits_is_said,
                                a_search_can_be_stopped,
                                nothing_to_try_is_an_error};
  return suite_run("sim_tune", tests, sizeof tests / sizeof tests[0], read_efficiency, free_efficiency, 300);
}
