/* Other planners' plans against brute force, and what is said of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/baseline.h"
#include "tests/sim_texts.h"
#include "tests/suite.h"

static void load(plan_scenario *scenario, const char *text) { load_as("baseline.toml", text, scenario); }

static void read_file(plan_scenario *scenario, const char *name, const char *const *sets, int count) {
  const char *folder = getenv("DIFFPIPE_DATA_DIR");
  char path[4096];
  dp_error error = DP_ERROR_INIT;
  (void)snprintf(path, sizeof path, "%s/%s", folder ? folder : DP_SOURCE_DATA_DIR, name);
  ck_assert_msg(plan_scenario_read(path, sets, count, scenario, &error) == DP_OK, "%s", error.text);
}

static void compare(const plan_scenario *scenario, int threads, sim_tune_result *tuned, sim_baselines *baselines) {
  const sim_tune_options how = {.threads = threads};
  dp_error error = DP_ERROR_INIT;
  search(scenario, threads, tuned);
  ck_assert_msg(sim_baselines_find(scenario, efficiency, tuned, &how, baselines, &error) == DP_OK, "%s", error.text);
}

static const sim_baseline *row_of(const sim_baselines *baselines, sim_baseline_kind kind) {
  for (int r = 0; r < baselines->count; r++)
    if (baselines->rows[r].kind == kind) return &baselines->rows[r];
  return NULL;
}

/* ---- splits ---- */

static double weight_of(const graph_unit *unit, bool trainable) {
  return (double)(trainable ? unit->trainable_parameters : unit->parameters + unit->adapter_parameters);
}

/* The largest of three stages. */
static double largest(const graph *model, bool trainable, int a, int b) {
  double sum[3] = {0, 0, 0};
  for (int u = 0; u < (int)model->units.count; u++)
    sum[u < a ? 0 : u < b ? 1 : 2] += weight_of(&model->units.items[u], trainable);
  return fmax(sum[0], fmax(sum[1], sum[2]));
}

/* No other pair of cuts makes the largest stage smaller, frozen weights counted or not. */
START_TEST(equal_parameters_are_as_equal_as_can_be) {
  static const char *const sets[] = {"task.trainable=lora", "task.lora_rank=16"};
  plan_scenario scenario;
  graph model;
  dp_error error = DP_ERROR_INIT;
  read_file(&scenario, "sd15-4xrtx3090.toml", sets, 2);
  ck_assert_int_eq(plan_scenario_graph(&scenario, 1, &model, &error), DP_OK);
  const int n = (int)model.units.count;
  int cuts[2][2];
  for (int trainable = 0; trainable < 2; trainable++) {
    const sim_baseline_kind kind = trainable ? SIM_BASELINE_EQUAL_TRAINABLE : SIM_BASELINE_EQUAL_PARAMETERS;
    ck_assert_int_eq(sim_baseline_split(kind, &model, 3, cuts[trainable], &error), DP_OK);
    const double found = largest(&model, trainable == 1, cuts[trainable][0], cuts[trainable][1]);
    double least = INFINITY;
    for (int a = 1; a < n; a++)
      for (int b = a + 1; b < n; b++) least = fmin(least, largest(&model, trainable == 1, a, b));
    ck_assert_double_le(found, least * (1 + 1e-12));
  }
  ck_assert(memcmp(cuts[0], cuts[1], sizeof cuts[0]) != 0); /* frozen weights matter */
  graph_free(&model);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(equal_units_differ_by_one_at_most) {
  plan_scenario scenario;
  graph model;
  dp_error error = DP_ERROR_INIT;
  int cuts[16];
  load(&scenario,
       HEAD "[model]\nsynthetic_units = 13\nforward_us = 100\n[task]\nglobal_batch = 4\n" CARDS("A100-SXM4-80GB", "4"));
  ck_assert_int_eq(plan_scenario_graph(&scenario, 1, &model, &error), DP_OK);
  for (int stages = 1; stages <= 13; stages++) {
    ck_assert_int_eq(sim_baseline_split(SIM_BASELINE_EQUAL_UNITS, &model, stages, cuts, &error), DP_OK);
    int least = 13, most = 0, before = 13;
    for (int s = 0; s < stages; s++) {
      const int units = (s + 1 < stages ? cuts[s] : 13) - (s ? cuts[s - 1] : 0);
      least = units < least ? units : least;
      most = units > most ? units : most;
      ck_assert_int_le(units, before); /* the first ones have one more */
      before = units;
    }
    ck_assert_int_ge(least, 1);
    ck_assert_int_le(most - least, 1);
    /* units without weights weigh one each, so that no stage has more than the largest here */
    ck_assert_int_eq(sim_baseline_split(SIM_BASELINE_EQUAL_PARAMETERS, &model, stages, cuts, &error), DP_OK);
    for (int s = 0; s < stages; s++) ck_assert_int_le((s + 1 < stages ? cuts[s] : 13) - (s ? cuts[s - 1] : 0), most);
  }
  ck_assert_int_eq(sim_baseline_split(SIM_BASELINE_EQUAL_UNITS, &model, 14, cuts, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "14 stages of 13 units, allowed: 1 to 13 stages");
  ck_assert_int_eq(sim_baseline_split(SIM_BASELINE_FOLDED, &model, 2, cuts, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "the baseline \"folded\" has no split of its own");
  graph_free(&model);
  plan_scenario_free(&scenario);
}
END_TEST

/* ---- the best of the grid ---- */

static const char grid_text[] =
    HEAD SD15 "[task]\nglobal_batch = 16\n" CARDS("RTX-3090", "4") "[search]\nmicrobatch_sizes = [1, 4]\n";

/* Least step of a planner over the grid, written out, or INFINITY. */
static double least_step_s(const plan_scenario *scenario, sim_baseline_kind kind, bool own_split, int from_stages) {
  static const int sizes[] = {1, 4};
  double least = INFINITY;
  for (int stages = from_stages; stages <= (from_stages == 1 ? 1 : 4); stages++)
    for (int replicas = 1; stages * replicas <= 4; replicas++)
      for (int s = 0; s < 2; s++)
        for (int again = 0; again <= (own_split || from_stages == 1 ? PLAN_RECOMPUTE_ALL : PLAN_RECOMPUTE_AUTO);
             again++) {
          if (16 % (replicas * sizes[s])) continue;
          sim_candidate candidate = {
              .stages = stages,
              .replicas = replicas,
              .microbatches = 16 / replicas / sizes[s],
              .microbatch_size = sizes[s],
              .chunks = kind == SIM_BASELINE_FOLDED ? 2 : 1,
              .schedule = kind == SIM_BASELINE_FOLDED ? PLAN_FOLDED : PLAN_1F1B,
              .skip_policy = kind == SIM_BASELINE_EQUAL_PARAMETERS ? PLAN_SKIP_RELAY : PLAN_SKIP_DIRECT,
              .recompute = (plan_recompute)again};
          plan_scenario plan = sim_tune_scenario(scenario, &candidate, 16);
          int64_t split[4];
          if (own_split) {
            graph model;
            int cuts[4];
            ck_assert_int_eq(plan_scenario_graph(scenario, sizes[s], &model, NULL), DP_OK);
            ck_assert_int_eq(sim_baseline_split(kind, &model, stages, cuts, NULL), DP_OK);
            graph_free(&model);
            for (int i = 0; i + 1 < stages; i++) split[i] = cuts[i];
            plan.split = split;
            plan.split_count = (size_t)(stages - 1);
          }
          for (int even = 0; even <= (kind == SIM_BASELINE_FOLDED); even++) { /* folded chooses its split */
            sim_prediction prediction;
            plan.split_way = even == 1 ? PLAN_SPLIT_EVEN : PLAN_SPLIT_BALANCED;
            if (sim_predict(&plan, efficiency, &prediction, NULL) != DP_OK) continue;
            if (prediction.fits) least = fmin(least, prediction.metrics.step_s);
            sim_prediction_free(&prediction);
          }
        }
  return least;
}

START_TEST(each_is_the_best_of_its_grid) {
  static const struct {
    sim_baseline_kind kind;
    bool own_split;
    int from_stages;
  } kinds[] = {{SIM_BASELINE_REPLICAS, false, 1},
               {SIM_BASELINE_EQUAL_PARAMETERS, true, 2},
               {SIM_BASELINE_EQUAL_UNITS, true, 2},
               {SIM_BASELINE_STRAIGHT, false, 2},
               {SIM_BASELINE_FOLDED, false, 2}};
  plan_scenario scenario;
  sim_tune_result tuned;
  sim_baselines baselines;
  load(&scenario, grid_text);
  compare(&scenario, 2, &tuned, &baselines);
  ck_assert_int_eq(baselines.count, 5); /* nothing is frozen: no row for trainable weights */
  const sim_trial *best = &tuned.trials[tuned.best];
  for (int k = 0; k < 5; k++) {
    const sim_baseline *row = row_of(&baselines, kinds[k].kind);
    ck_assert_ptr_nonnull(row);
    const double least_s = least_step_s(&scenario, kinds[k].kind, kinds[k].own_split, kinds[k].from_stages);
    ck_assert(isfinite(least_s));
    ck_assert_msg(fabs(row->trial.step_s / least_s - 1) < 1e-9, "%s: %.9g s, by hand %.9g s",
                  sim_baseline_names[row->kind], row->trial.step_s, least_s);
    ck_assert_double_eq_tol(row->gain, row->trial.step_s / best->step_s - 1, 1e-9);
    ck_assert_int_le(row->simulated, row->grid * (row->kind == SIM_BASELINE_FOLDED ? 2 : 1));
    ck_assert_int_eq(row->cut_count, kinds[k].own_split ? row->trial.candidate.stages - 1 : 0);
  }
  sim_baselines_free(&baselines);
  sim_tune_result_free(&tuned);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(threads_change_nothing) {
  plan_scenario scenario;
  sim_tune_result tuned[2];
  sim_baselines found[2];
  load(&scenario, grid_text);
  for (int i = 0; i < 2; i++) compare(&scenario, i ? 3 : 1, &tuned[i], &found[i]);
  ck_assert_int_eq(found[0].count, found[1].count);
  for (int r = 0; r < found[0].count; r++) {
    const sim_baseline *a = &found[0].rows[r], *b = &found[1].rows[r];
    ck_assert(a->trial.step_s == b->trial.step_s && a->gain == b->gain && a->simulated == b->simulated);
    ck_assert_str_eq(a->trial.why, b->trial.why);
  }
  for (int i = 0; i < 2; i++) {
    sim_baselines_free(&found[i]);
    sim_tune_result_free(&tuned[i]);
  }
  plan_scenario_free(&scenario);
}
END_TEST

/* ---- what is said ---- */

/* Frozen weights too large for one card: replicas of the whole model do not fit, four stages do. */
START_TEST(what_does_not_fit_says_so) {
  static const char *const sets[] = {"search.microbatch_sizes=[1]", "search.schedules=[\"1f1b\"]"};
  plan_scenario scenario;
  sim_tune_result tuned;
  sim_baselines baselines;
  read_file(&scenario, "flux-lora-4xrtx4090.toml", sets, 2);
  compare(&scenario, 2, &tuned, &baselines);
  const sim_baseline *whole = row_of(&baselines, SIM_BASELINE_REPLICAS);
  ck_assert(!whole->trial.fits && isnan(whole->gain));
  ck_assert_msg(strncmp(whole->trial.why, "does not fit: worker 0 needs ", 29) == 0, "%s", whole->trial.why);
  const sim_baseline *trainable = row_of(&baselines, SIM_BASELINE_EQUAL_TRAINABLE);
  ck_assert_ptr_nonnull(trainable);
  ck_assert(trainable->trial.fits && trainable->gain > 0);
  ck_assert_msg(strncmp(trainable->trial.why, "slower by ", 10) == 0, "%s", trainable->trial.why);
  ck_assert_str_eq(row_of(&baselines, SIM_BASELINE_STRAIGHT)->trial.why, "equal to the best plan");
  sim_baselines_free(&baselines);
  sim_tune_result_free(&tuned);
  plan_scenario_free(&scenario);
}
END_TEST

/* A search that may only fold is beaten, and that is said too. */
START_TEST(a_narrow_search_can_be_beaten) {
  plan_scenario scenario;
  sim_tune_result tuned;
  sim_baselines baselines;
  load(&scenario, HEAD SD15 "[task]\nglobal_batch = 16\n" CARDS(
                      "A100-SXM4-80GB", "2") "[search]\nmicrobatch_sizes = [4]\nschedules = [\"folded\"]\nstages = [2]\n"
                                             "recompute = [\"all\"]\n");
  compare(&scenario, 1, &tuned, &baselines);
  ck_assert_ptr_null(row_of(&baselines, SIM_BASELINE_REPLICAS)); /* one stage was not allowed */
  const sim_baseline *straight = row_of(&baselines, SIM_BASELINE_STRAIGHT);
  ck_assert_double_lt(straight->gain, 0);
  ck_assert_msg(strncmp(straight->trial.why, "faster by ", 10) == 0, "%s", straight->trial.why);
  sim_baselines_free(&baselines);
  sim_tune_result_free(&tuned);
  plan_scenario_free(&scenario);
}
END_TEST

/* Other planners have no tensor groups: where the search may only use them, they get all devices as replicas. */
START_TEST(tensor_groups_become_replicas) {
  plan_scenario scenario;
  sim_tune_result tuned;
  sim_baselines baselines;
  load(&scenario, HEAD SD15 "[task]\nglobal_batch = 16\n" CARDS(
                      "A100-SXM4-80GB", "4") "[search]\nmicrobatch_sizes = [4]\nstages = [1, 2]\ndata_parallel = [1]\n"
                                             "tensor_parallel = [2]\n");
  compare(&scenario, 2, &tuned, &baselines);
  const sim_baseline *whole = row_of(&baselines, SIM_BASELINE_REPLICAS),
                     *straight = row_of(&baselines, SIM_BASELINE_STRAIGHT);
  ck_assert_int_eq(whole->trial.candidate.replicas, 2);
  ck_assert_int_eq(straight->trial.candidate.replicas, 2);
  ck_assert_int_eq(sim_candidate_tensor(&straight->trial.candidate), 1);
  ck_assert(straight->trial.fits);
  sim_baselines_free(&baselines);
  sim_tune_result_free(&tuned);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(a_stopped_comparison_says_so) {
  plan_scenario scenario;
  sim_tune_result tuned;
  sim_baselines baselines;
  const volatile sig_atomic_t stop = 1;
  const sim_tune_options how = {.threads = 1, .stop = &stop};
  load(&scenario, grid_text);
  ck_assert_int_eq(sim_tune(&scenario, efficiency, &how, &tuned, NULL), DP_OK);
  ck_assert_int_eq(sim_baselines_find(&scenario, efficiency, &tuned, &how, &baselines, NULL), DP_OK);
  ck_assert_int_gt(baselines.count, 0);
  for (int r = 0; r < baselines.count; r++)
    ck_assert_str_eq(baselines.rows[r].trial.why, "not looked at: the search was stopped");
  sim_baselines_free(&baselines);
  sim_tune_result_free(&tuned);
  plan_scenario_free(&scenario);
}
END_TEST

/* ---- unlike cards ---- */

/* Cards of 16 and 24 GB: with microbatches of 4, half of the weights on each leaves the small card short, since the
 * first of two stages keeps two microbatches. The split that diffpipe takes fits, with the same schedule. */
START_TEST(unlike_cards_need_another_split_than_equal_parameters) {
  static const char *const sets[] = {"plan.schedule=1f1b", "plan.microbatch_size=4"};
  plan_scenario scenario;
  graph model;
  sim_prediction equal, ours;
  dp_error error = DP_ERROR_INIT;
  int cut;
  read_file(&scenario, "sdxl-unlike-16gb-24gb.toml", sets, 2);
  ck_assert_int_eq(plan_scenario_graph(&scenario, 4, &model, &error), DP_OK);
  ck_assert_int_eq(sim_baseline_split(SIM_BASELINE_EQUAL_PARAMETERS, &model, 2, &cut, &error), DP_OK);
  graph_free(&model);
  int64_t split[1] = {cut};
  plan_scenario as_equal = scenario;
  as_equal.split = split;
  as_equal.split_count = 1;
  predict(&as_equal, &equal);
  predict(&scenario, &ours);
  ck_assert(!equal.fits);
  ck_assert_int_eq(equal.tightest_worker, 0); /* the small card */
  ck_assert_int_gt(equal.memory.workers[0].peak_bytes, equal.memory_limit_bytes[0]);
  ck_assert(ours.fits);
  ck_assert_int_lt(ours.plan.chunks[0].unit_count, cut); /* it gives the small card less */
  ck_assert_double_gt(ours.metrics.throughput_samples_per_s, equal.metrics.throughput_samples_per_s);
  sim_prediction_free(&equal);
  sim_prediction_free(&ours);
  plan_scenario_free(&scenario);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {equal_parameters_are_as_equal_as_can_be,
                                equal_units_differ_by_one_at_most,
                                each_is_the_best_of_its_grid,
                                threads_change_nothing,
                                what_does_not_fit_says_so,
                                a_narrow_search_can_be_beaten,
                                tensor_groups_become_replicas,
                                a_stopped_comparison_says_so,
                                unlike_cards_need_another_split_than_equal_parameters};
  return suite_run("sim_baseline", tests, sizeof tests / sizeof tests[0], read_efficiency, free_efficiency, 120);
}
