/* One job on several clusters, and sweeps. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "sim/tune_search.h"
#include "sim/whatif.h"
#include "tests/scratch.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

static char path[64];
static dp_arena arena;

static void write_text(char file_path[64], const char *name, const char *text) {
  (void)snprintf(file_path, 64, "/tmp/diffpipe-%s-XXXXXX.toml", name);
  scratch_file(file_path, text);
}

static void write_scenario(const char *task) {
  char text[1024];
  (void)snprintf(text, sizeof text,
                 "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"models/sd15_unet.json\"\nheight = "
                 "512\nwidth = 512\n"
                 "[task]\n%s\n[cluster]\nfile = \"clusters/8xa100-80gb-sxm.toml\"\n"
                 "[search]\nmicrobatch_sizes = [4, 8]\nschedules = [\"1f1b\"]\n",
                 task);
  write_text(path, "whatif", text);
}

static void setup(void) {
  read_efficiency();
  write_scenario("global_batch = 64");
}
static void teardown(void) {
  free_efficiency();
  (void)unlink(path);
  dp_arena_free(&arena);
}

typedef struct asked {
  const char *clusters[4];
  int cluster_count;
  const char *sweep;
  const char *sets[2];
  int set_count;
  bool plan_fixed;
  int threads;
  const volatile sig_atomic_t *stop;
} asked;

static dp_status run(const asked *a, sim_whatif_result *result, dp_error *error) {
  plan_whatif_cluster clusters[4];
  for (int i = 0; i < a->cluster_count; i++)
    clusters[i] = (plan_whatif_cluster){a->clusters[i], dp_path_resolve(&arena, NULL, a->clusters[i])};
  sim_sweep *sweep = DP_ARENA_NEW(&arena, sim_sweep, 1); /* the result points into it */
  if (a->sweep) ck_assert_int_eq(sim_sweep_parse(a->sweep, NULL, &arena, sweep, error), DP_OK);
  const sim_tune_options how = {.threads = a->threads ? a->threads : 2, .stop = a->stop};
  const sim_whatif_request request = {.scenario_path = path,
                                      .sets = a->sets,
                                      .set_count = a->set_count,
                                      .clusters = clusters,
                                      .cluster_count = a->cluster_count,
                                      .sweeps = sweep,
                                      .sweep_count = a->sweep != NULL,
                                      .plan_fixed = a->plan_fixed,
                                      .efficiency = efficiency,
                                      .options = &how};
  return sim_whatif(&request, result, error);
}

static sim_whatif_result answer(const asked *a) {
  sim_whatif_result result;
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(run(a, &result, &error) == DP_OK, "%s", error.text);
  return result;
}

START_TEST(faster_cards_win_and_gains_are_sane) {
  const asked a = {
      .clusters = {"clusters/8xa100-80gb-sxm.toml", "clusters/8xh100-sxm.toml", "clusters/4xrtx3090-pcie.toml"},
      .cluster_count = 3};
  sim_whatif_result result = answer(&a);
  const sim_hardware *rows = result.rows;
  ck_assert_double_gt(rows[1].best.throughput_samples_per_s, rows[0].best.throughput_samples_per_s);
  ck_assert_int_le(rows[2].best.candidate.stages * rows[2].best.candidate.replicas, 4);
  for (int i = 0; i < 3; i++) {
    ck_assert(rows[i].fits && rows[i].measured && !rows[i].why);
    for (int r = 0; r < SIM_RESOURCE_COUNT; r++) {
      ck_assert_double_ge(rows[i].gain[r], -1e-6);
      if (r != SIM_RESOURCE_MEMORY_SIZE) ck_assert_double_le(rows[i].gain[r], 0.1 + 1e-6);
    }
    ck_assert_double_gt(rows[i].gain[SIM_RESOURCE_COMPUTE] + rows[i].gain[SIM_RESOURCE_MEMORY_BANDWIDTH], 0.05);
    ck_assert_double_eq(rows[i].price.joules_per_sample, rows[i].best.joules_per_sample);
  }
  sim_whatif_free(&result);
}
END_TEST

/* Two A100 and two RTX 4090 do at least what the two A100 alone do: any plan may leave devices idle. */
START_TEST(generations_mix) {
  static const char text[] =
      "format = \"diffpipe-cluster\"\nversion = 1\nname = \"%s\"\n[[node]]\n[[node.device]]\nmodel = "
      "\"A100-PCIe-80GB\"\ncount = 2\npurchase_usd = 9000\n%s";
  char mixed[64], plain[64], whole[512];
  (void)snprintf(whole, sizeof whole, text, "mixed",
                 "[[node.device]]\nmodel = \"RTX-4090\"\ncount = 2\npurchase_usd = 2000\n");
  write_text(mixed, "mixed", whole);
  (void)snprintf(whole, sizeof whole, text, "plain", "");
  write_text(plain, "plain", whole);
  const asked a = {.clusters = {mixed, plain}, .cluster_count = 2, .sweep = "device.memory_gb=24,40"};
  sim_whatif_result result = answer(&a);
  ck_assert(result.rows[0].fits && result.rows[1].fits);
  ck_assert_double_ge(result.rows[0].best.throughput_samples_per_s,
                      result.rows[1].best.throughput_samples_per_s * (1 - 1e-9));
  ck_assert_double_eq(result.rows[0].price.purchase_usd, 22000);
  ck_assert_double_eq(result.rows[1].price.purchase_usd, 18000);
  ck_assert(result.sweeps[0].points[0].fits);
  sim_whatif_free(&result);
  (void)unlink(mixed);
  (void)unlink(plain);
}
END_TEST

START_TEST(what_does_not_fit_says_why) {
  const asked a = {
      .clusters = {"clusters/4xrtx3090-pcie.toml"}, .cluster_count = 1, .sets = {"device.memory_gb=2"}, .set_count = 1};
  sim_whatif_result result = answer(&a);
  ck_assert(!result.rows[0].fits && result.rows[0].found && !result.rows[0].measured);
  ck_assert_msg(strstr(result.rows[0].why, " of 2.0 GB, ") != NULL, "%s", result.rows[0].why);
  sim_whatif_free(&result);
}
END_TEST

/* The law of a sweep: each point is what a search with the key set finds. */
static void equals_search(const sim_whatif_result *result, const char *cluster) {
  const sim_sweep *sweep = result->sweeps[0].sweep;
  for (int v = 0; v < sweep->count; v++) {
    const sim_sweep_point *point = &result->sweeps[0].points[v];
    const char *set = dp_arena_printf(&arena, "%s=%s", sweep->key, sweep->values[v].text);
    const plan_scenario_source source = {.path = path,
                                         .sets = &set,
                                         .set_count = 1,
                                         .job_only = true,
                                         .cluster_file = dp_path_resolve(&arena, NULL, cluster)};
    plan_scenario scenario;
    sim_tune_result tuned;
    dp_error error = DP_ERROR_INIT;
    const sim_tune_options how = {.threads = 2};
    ck_assert_msg(plan_scenario_read_from(&source, &scenario, &error) == DP_OK, "%s", error.text);
    ck_assert_msg(sim_tune(&scenario, efficiency, &how, &tuned, &error) == DP_OK, "%s", error.text);
    ck_assert(point->done && point->fits && tuned.best >= 0);
    const sim_trial *best = &tuned.trials[tuned.best];
    ck_assert_double_eq(best->throughput_samples_per_s, point->trial.throughput_samples_per_s);
    ck_assert_int_eq(best->peak_bytes, point->trial.peak_bytes);
    ck_assert_int_eq(sim_candidate_differences(&best->candidate, &point->trial.candidate), 0);
    sim_tune_result_free(&tuned);
    plan_scenario_free(&scenario);
  }
}

START_TEST(points_are_what_a_search_finds) {
  static const char cluster[] = "clusters/4xrtx3090-pcie.toml";
  asked a = {.clusters = {cluster}, .cluster_count = 1, .sweep = "link.bandwidth_gb_per_s=0.1:100:log4"};
  sim_whatif_result result = answer(&a);
  equals_search(&result, cluster);
  for (int v = 1; v < 4; v++) /* and more bandwidth never lowers the best throughput */
    ck_assert_double_ge(result.sweeps[0].points[v].trial.throughput_samples_per_s,
                        result.sweeps[0].points[v - 1].trial.throughput_samples_per_s * (1 - 1e-9));
  bool changed = false;
  for (int v = 0; v < 4; v++) changed = changed || result.sweeps[0].points[v].changed;
  ck_assert(changed && !result.sweeps[0].points[0].changed);
  sim_whatif_free(&result);
  static const char *const others[] = {"task.global_batch=32,64", "search.stages=[1],[4]",
                                       "search.microbatch_sizes=[1],[4]"};
  for (int i = 0; i < 3; i++) { /* the row's plan need not be among those of a point */
    a.sweep = others[i];
    result = answer(&a);
    equals_search(&result, cluster);
    sim_whatif_free(&result);
  }
}
END_TEST

/* The plan of the first point stays: never better than the best one, and the same there. */
START_TEST(a_fixed_plan_stays) {
  asked a = {.clusters = {"clusters/4xrtx3090-pcie.toml"},
             .cluster_count = 1,
             .sweep = "link.bandwidth_gb_per_s=0.1:100:log3"};
  sim_whatif_result free_plan = answer(&a);
  a.plan_fixed = true;
  sim_whatif_result fixed = answer(&a);
  const sim_sweep_point *points = fixed.sweeps[0].points, *best = free_plan.sweeps[0].points;
  ck_assert_double_eq(points[0].trial.throughput_samples_per_s, best[0].trial.throughput_samples_per_s);
  for (int v = 0; v < 3; v++) {
    ck_assert(points[v].fits && !points[v].changed);
    ck_assert_int_eq(points[v].trial.candidate.stages, points[0].trial.candidate.stages);
    ck_assert_double_le(points[v].trial.throughput_samples_per_s, best[v].trial.throughput_samples_per_s * (1 + 1e-9));
  }
  sim_whatif_free(&fixed);
  sim_whatif_free(&free_plan);
}
END_TEST

/* [plan] has the word in a sweep over its keys: each point is a prediction of that plan. */
START_TEST(keys_of_the_plan) {
  const asked a = {.clusters = {"clusters/4xrtx3090-pcie.toml"}, .cluster_count = 1, .sweep = "plan.stages=1,2,4,9"};
  sim_whatif_result result = answer(&a);
  for (int v = 0; v < 4; v++) {
    const sim_sweep_point *point = &result.sweeps[0].points[v];
    const sim_sweep_value *value = &result.sweeps[0].sweep->values[v];
    if (value->number == 9) { /* more than there are cards */
      ck_assert(point->done && !point->found);
      ck_assert_msg(strstr(point->why, "--set plan.stages=9") != NULL, "%s", point->why);
      continue;
    }
    const char *sets[] = {"cluster.file=clusters/4xrtx3090-pcie.toml",
                          dp_arena_printf(&arena, "plan.stages=%s", value->text)};
    plan_scenario scenario;
    sim_prediction prediction;
    dp_error error = DP_ERROR_INIT;
    ck_assert_msg(plan_scenario_read(path, sets, 2, &scenario, &error) == DP_OK, "%s", error.text);
    ck_assert_msg(sim_predict(&scenario, efficiency, &prediction, &error) == DP_OK, "%s", error.text);
    ck_assert_int_eq(point->trial.candidate.stages, (int)value->number);
    ck_assert_double_eq(point->trial.throughput_samples_per_s, prediction.metrics.throughput_samples_per_s);
    sim_prediction_free(&prediction);
    plan_scenario_free(&scenario);
  }
  sim_whatif_free(&result);
}
END_TEST

START_TEST(impossible_points_are_told_unless_all_are) {
  asked a = {.clusters = {"clusters/4xrtx3090-pcie.toml"}, .cluster_count = 1, .sweep = "model.height=500,512"};
  sim_whatif_result result = answer(&a);
  ck_assert(result.sweeps[0].points[0].done && !result.sweeps[0].points[0].found);
  ck_assert_msg(strstr(result.sweeps[0].points[0].why, "height") != NULL, "%s", result.sweeps[0].points[0].why);
  ck_assert(result.sweeps[0].points[1].fits);
  sim_whatif_free(&result);
  dp_error error = DP_ERROR_INIT;
  a.sweep = "task.globl_batch=32,64";
  ck_assert_int_eq(run(&a, &result, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, "unknown key \"globl_batch\"") != NULL, "%s", error.text);
  a.sweep = "link.nvlink.bandwidth_gb_per_s=32,64";
  ck_assert_int_eq(run(&a, &result, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, "which 4xrtx3090-pcie does not have") != NULL, "%s", error.text);
}
END_TEST

START_TEST(threads_do_not_matter_and_a_stop_is_told) {
  asked a = {.clusters = {"clusters/4xrtx3090-pcie.toml", "clusters/8xa100-80gb-sxm.toml"},
             .cluster_count = 2,
             .sweep = "link.bandwidth_gb_per_s=1,30",
             .threads = 1};
  sim_whatif_result one = answer(&a);
  a.threads = 3;
  sim_whatif_result three = answer(&a);
  for (int i = 0; i < 4; i++) {
    ck_assert_double_eq(one.sweeps[0].points[i].trial.throughput_samples_per_s,
                        three.sweeps[0].points[i].trial.throughput_samples_per_s);
    ck_assert_int_eq(one.sweeps[0].points[i].changed, three.sweeps[0].points[i].changed);
  }
  for (int r = 0; r < SIM_RESOURCE_COUNT; r++) ck_assert_double_eq(one.rows[1].gain[r], three.rows[1].gain[r]);
  sim_whatif_free(&one);
  sim_whatif_free(&three);
  const volatile sig_atomic_t stop = 1;
  a.stop = &stop;
  sim_whatif_result stopped = answer(&a);
  ck_assert(stopped.stopped);
  ck_assert_int_eq(stopped.row_count, 0);
  sim_whatif_free(&stopped);
}
END_TEST

START_TEST(a_batch_must_be_given) {
  (void)unlink(path);
  write_scenario("kind = \"train\"");
  sim_whatif_result result;
  dp_error error = DP_ERROR_INIT;
  const asked a = {.clusters = {"clusters/8xh100-sxm.toml"}, .cluster_count = 1};
  ck_assert_int_eq(run(&a, &result, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, ":7: task: the key \"global_batch\" is missing") != NULL, "%s", error.text);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {faster_cards_win_and_gains_are_sane,
                                generations_mix,
                                what_does_not_fit_says_why,
                                points_are_what_a_search_finds,
                                a_fixed_plan_stays,
                                keys_of_the_plan,
                                impossible_points_are_told_unless_all_are,
                                threads_do_not_matter_and_a_stop_is_told,
                                a_batch_must_be_given};
  return suite_run("sim_whatif", tests, sizeof tests / sizeof tests[0], setup, teardown, 300);
}
