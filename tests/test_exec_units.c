/* Whole units as they are measured: what is solved from runs beside others, that every unit of a program is met, and
 * that a prediction which rests on them gives just that. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/lanes.h"
#include "exec/measure_units_store.h"
#include "sim/predict.h"
#include "tests/fixtures.h"
#include "tests/scratch.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

static dp_error error;
static plan_scenario scenario;
static sim_prediction prediction;
static plan_profile profile;
static exec_units *units;
#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  read_efficiency();
  scratch_enter();
}

static void teardown(void) {
  exec_units_free(units);
  units = NULL;
  plan_profile_free(&profile);
  sim_prediction_free(&prediction);
  plan_scenario_free(&scenario);
  scratch_clean(scratch);
  scratch_leave();
  free_efficiency();
}

static void near(double got, double expected) {
  ck_assert_msg(fabs(got - expected) <= 1e-9 * fabs(expected), "%.12g, expected %.12g", got, expected);
}

/* ---- solving ---- */

static const exec_units_slowness law = {.by = {0.2, 1}};
static exec_units_point by_law(double forward, double backward) {
  const double beside[2] = {forward, backward};
  return (exec_units_point){.more = exec_units_slowed(&law, beside) - 1, .beside = {forward, backward}};
}

static void near_within(double got, double expected, double bound) {
  ck_assert_msg(fabs(got - expected) <= bound * fabs(expected), "%.12g, expected %.12g", got, expected);
}

/* Points that follow the law give back what it was made with, whatever the others did meanwhile. */
START_TEST(what_points_were_made_of_is_found_again) {
  const exec_units_point points[] = {by_law(1, 0), by_law(0, 1), by_law(0.6, 0.3), by_law(0.3, 0.7)};
  exec_units_slowness got;
  exec_units_slow(points, 4, &got);
  for (int k = 0; k < 2; k++) near_within(got.by[k], law.by[k], 0.06);
  exec_units_slow(points, 0, &got);
  ck_assert(got.by[0] == 0 && got.by[1] == 0);
}
END_TEST

/* Where the others only ever did both alike, one is not told from the other; where they did one, it is. */
START_TEST(what_was_not_told_apart_is_alike) {
  const exec_units_point both[] = {{0.5, {0.5, 0.5}}, {0.25, {0.25, 0.25}}}, one = {0.5, {0, 1}};
  exec_units_slowness got;
  exec_units_slow(both, 2, &got);
  near_within(got.by[0], 0.5, 1e-6);
  near_within(got.by[1], 0.5, 1e-6);
  exec_units_slow(&one, 1, &got);
  near_within(got.by[1], 0.5, 0.02);
  ck_assert(got.by[0] >= 0 && got.by[0] <= 0.51);
}
END_TEST

/* Nobody is faster for others beside. */
START_TEST(others_never_help) {
  const exec_units_point points[] = {{-0.05, {1, 0}}, {0.2, {0, 1}}, {0.05, {0.5, 0.5}}};
  exec_units_slowness got;
  exec_units_slow(points, 3, &got);
  ck_assert(got.by[0] == 0 && got.by[1] > 0.1 && got.by[1] < 0.25);
}
END_TEST

/* Optimizers that share a device's memory: while enough of them run each gets its share, and the last have all they can
 * use. Of 3.77, 7.12, 11.6 and 11.8 ms alone, four parts of an H200 took 8.1, 13.5, 18.3 and 18.5 ms. */
START_TEST(optimizers_share_memory) {
  double seconds[] = {11.6, 3.77, 11.8, 7.12}, alike[] = {1, 1}, lone[] = {5};
  near_within(exec_units_shared_s(seconds, 4, 2.15, 4), 8.1 + 13.5 + 18.3 + 18.5, 0.01);
  near(exec_units_shared_s(alike, 2, 1.5, 2), 3);
  near(exec_units_shared_s(alike, 2, 1, 2), 2);
  near(exec_units_shared_s(lone, 1, 1.5, 2), 5);
  near(exec_units_shared_s(lone, 0, 1.5, 2), 0);
}
END_TEST

/* Of two makings of a program one is kept: what the other took, and how far it was off, counts no more. */
START_TEST(a_dropped_making_leaves_no_errors) {
  static const double errors[] = {0.01, 0.5, 0.02, 0.6, 0.03}; /* the odd ones are of making 1 */
  size_t row;
  OK(exec_units_create(&units, &error));
  OK(exec_units_row(units, "0123456789abcdef", "unit", 16, PLAN_PROFILE_FORWARD, &row, &error));
  for (int i = 0; i < 5; i++) {
    const exec_units_sample sample = {.seconds = 1 + errors[i], .making = i % 2};
    const exec_units_error of = {errors[i], i % 2}, twice = {2 * errors[i], i % 2};
    OK(exec_units_keep(units, row, false, &sample, &error));
    ck_assert(dp_array_push(&units->errors, of) && dp_array_push(&units->repeats, twice));
  }
  exec_units_drop(units, 1);
  OK(exec_units_profile(units, &profile, &error));
  ck_assert_int_eq(profile.held_out, 3);
  near(profile.held_out_error, 0.02);
  near(profile.repeat_error, 0.04);
  ck_assert_int_eq(profile.units.items[0].runs, 3);
  near(profile.units.items[0].alone_s, 1.02);
}
END_TEST

/* ---- a model ---- */

static void predict(const char *cluster, const char *plan) {
  char text[8192];
  sim_prediction_free(&prediction);
  plan_scenario_free(&scenario);
  (void)snprintf(text, sizeof text,
                 "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"%s\"\nheight = 64\nwidth = 64\n"
                 "text_tokens = 7\nprecision = \"fp32\"\n[task]\nimplementation = \"cpu\"\n[cluster]\n%s\n"
                 "[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"CPU-core\"\ncount = 4\n[plan]\n%s\n",
                 fixture_path("sd15", "config.json"), cluster, plan);
  OK(plan_scenario_parse(text, strlen(text), "units.toml", &scenario, &error));
  scenario.global_norm = true;
  OK(sim_predict(&scenario, efficiency, &prediction, &error));
}

static void measure(const char *plan, int workers) {
  predict("", plan);
  const exec_units_how how = {.program = &prediction.program,
                              .graph = &prediction.graph,
                              .sms = 1,
                              .sharers = workers,
                              .seconds = 0.05,
                              .options = {.threads = 1}};
  OK(exec_units_run(units, &how, &error));
}

static void write_profile(void) {
  OK(exec_units_profile(units, &profile, &error));
  profile.device = "CPU-core";
  profile.processor = "this one";
  profile.cores = profile.workers = 2;
  profile.threads = 1;
  profile.implementation = "cpu";
  profile.precision = GRAPH_FP32;
  profile.gemm = "own";
  profile.made = "2026-01-01T00:00:00Z";
  profile.optimizer_busy_factor = 1;
  OK(plan_profile_write(&profile, "profile.json", &error));
}

static bool has_samples_of(int making) {
  for (size_t i = 0; i < units->rows.count; i++)
    for (int first = 0; first < 2; first++)
      for (size_t s = 0; s < units->rows.items[i].samples[first].count; s++)
        if (units->rows.items[i].samples[first].items[s].making == making) return true;
  return false;
}

static void errors_are_of_kept(const exec_units_errors *errors) {
  ck_assert_uint_gt(errors->count, 0);
  for (size_t i = 0; i < errors->count; i++)
    ck_assert_msg(has_samples_of(errors->items[i].making), "making %d", errors->items[i].making);
}

/* Every unit of both programs, in all passes; the optimizer, too. */
START_TEST(every_unit_is_measured) {
  int passes[PLAN_PROFILE_PASS_COUNT] = {0};
  OK(exec_units_create(&units, &error));
  measure("stages = 2\nmicrobatches = 2\nmicrobatch_size = 1", 2);
  measure("stages = 2\nmicrobatches = 2\nmicrobatch_size = 1\nschedule = \"zb-h1\"", 2);
  ck_assert_int_eq(units->makings, 4);
  errors_are_of_kept(&units->errors);
  errors_are_of_kept(&units->repeats);
  write_profile();
  for (size_t i = 0; i < profile.units.count; i++) {
    const plan_profile_unit *unit = &profile.units.items[i];
    passes[unit->pass]++;
    ck_assert_msg(
        unit->alone_s > 0 && unit->beside_forward_s >= unit->alone_s && unit->beside_backward_s >= unit->alone_s, "%s",
        unit->name);
    ck_assert_int_eq(unit->first_s > 0,
                     unit->pass == PLAN_PROFILE_BACKWARD || unit->pass == PLAN_PROFILE_BACKWARD_WEIGHT);
  }
  for (int p = 1; p < PLAN_PROFILE_PASS_COUNT; p++) ck_assert_int_eq(passes[p], passes[0]);
  ck_assert_int_gt(passes[0], 5);
  ck_assert_int_le(passes[0], (int)prediction.graph.units.count);
  ck_assert_uint_eq(profile.parts.count, 1);
  ck_assert(profile.parts.items[0].optimizer_s_per_parameter > 0 && profile.parts.items[0].optimizer_busy_factor >= 1);
  ck_assert_int_gt(profile.held_out, 0);
  ck_assert_uint_ge(profile.copies.count, 3); /* and what a message takes, alone and beside them */
  for (size_t i = 0; i < profile.copies.count; i++)
    ck_assert(profile.copies.items[i].alone_s > 0 && profile.copies.items[i].busy_s >= profile.copies.items[i].alone_s);
  ck_assert_uint_eq(profile.staged.count, profile.copies.count);
  ck_assert(profile.copies_bytes_per_s > 0 && profile.copy_slowdown >= 0);
  predict("profile = \"profile.json\"", "stages = 2\nmicrobatches = 2\nmicrobatch_size = 1");
  near(prediction.source_share[PLAN_SOURCE_MEASURED], 1);
}
END_TEST

/* One worker: the step is what the units, instructions and the optimizer take. */
START_TEST(a_step_is_the_sum_of_its_units) {
  OK(exec_units_create(&units, &error));
  measure("stages = 1\nmicrobatches = 2\nmicrobatch_size = 1", 1);
  write_profile();
  predict("profile = \"profile.json\"", "stages = 1\nmicrobatches = 2\nmicrobatch_size = 1");
  const plan_profile_part *part = &profile.parts.items[0];
  const graph *g = &prediction.graph;
  plan_profile_keys keys;
  dp_str text = {0};
  double sum = 5 * part->instruction_s + 2 * (part->feed_s + part->loss_s) + part->step_s + part->optimizer_s +
               part->optimizer_s_per_parameter * (double)g->trainable_parameters;
  OK(plan_profile_keys_init(g, &keys, &error));
  for (size_t u = 0; u < g->units.count; u++) {
    char key[17];
    plan_profile_unit_key(&keys, (int)u, &text, key);
    const plan_profile_unit *forward = plan_profile_find_unit(&profile, key, 1, PLAN_PROFILE_FORWARD);
    const plan_profile_unit *backward = plan_profile_find_unit(&profile, key, 1, PLAN_PROFILE_BACKWARD);
    ck_assert(forward && backward);
    sum += 2 * forward->alone_s + backward->alone_s + (backward->first_s > 0 ? backward->first_s : backward->alone_s);
  }
  ck_assert_msg(fabs(prediction.metrics.step_s - sum) < 1e-7 * sum, "%g, expected %g", prediction.metrics.step_s, sum);
  dp_str_free(&text);
  plan_profile_keys_free(&keys);
}
END_TEST

/* Those of other devices, and of another number of multiprocessors, are no help. */
START_TEST(other_parts_are_predicted_as_before) {
  OK(exec_units_create(&units, &error));
  measure("stages = 1\nmicrobatches = 2\nmicrobatch_size = 1", 1);
  OK(exec_units_profile(units, &profile, &error));
  for (size_t i = 0; i < profile.units.count; i++) profile.units.items[i].sms = 16;
  profile.parts.items[0].sms = 16;
  write_profile(); /* what it has of one is there again, beside these */
  predict("profile = \"profile.json\"", "stages = 1");
  near(prediction.source_share[PLAN_SOURCE_MEASURED], 1);
  ck_assert_uint_eq(profile.parts.count, 2);
  ck_assert(plan_profile_find_part(&profile, 16) && plan_profile_find_part(&profile, 1) &&
            !plan_profile_find_part(&profile, 32));
}
END_TEST

/* Workers on devices of their own: what they exchange is a profile's `links`, which are a cluster's class. */
START_TEST(links_between_devices_are_measured_apart) {
  OK(exec_units_create(&units, &error));
  predict("", "stages = 3\nmicrobatches = 2\nmicrobatch_size = 1");
  const exec_units_how how = {.program = &prediction.program,
                              .graph = &prediction.graph,
                              .sms = 1,
                              .sharers = 1,
                              .seconds = 0.01,
                              .options = {.threads = 1, .cluster = &scenario.cluster}};
  OK(exec_units_run(units, &how, &error));
  write_profile();
  ck_assert_uint_eq(profile.copies.count, 0);
  ck_assert_uint_eq(profile.links.count, 2);
  plan_route route;
  OK(plan_cluster_route(&scenario.cluster, 0, 1, &route, &error));
  for (int way = PLAN_PROFILE_LOCAL; way <= PLAN_PROFILE_HOST; way++) {
    const plan_profile_link *link = plan_profile_find_link(&profile, (plan_profile_way)way, route.limiting->name);
    ck_assert_ptr_nonnull(link);
    near(link->link_bytes_per_s, route.bandwidth_bytes_per_s);
    near(link->link_latency_s, route.latency_s);
    ck_assert_int_eq(link->gpus, 3);
    ck_assert_uint_ge(link->points.count, 3);
    for (size_t i = 0; i < link->points.count; i++) {
      const plan_profile_point *at = &link->points.items[i];
      ck_assert(at->alone_s > 0 && at->busy_s >= at->alone_s && (i == 0 || at->alone_s >= at[-1].alone_s));
    }
    ck_assert(link->both_bytes_per_s > 0 && link->together_bytes_per_s > 0);
  }
}
END_TEST

/* ---- NCCL, by a kind that says it has it ---- */

static bool waits;

static dp_status open_pair(exec_pipeline *p, int64_t bytes, dp_error *e) {
  (void)p, (void)bytes, (void)e;
  return DP_OK;
}

static dp_status time_pair(exec_pipeline *p, bool both, int64_t bytes, int messages, double *seconds, dp_error *e) {
  (void)p, (void)messages, (void)e;
  *seconds = 1e-6 + 1e-9 * (double)bytes * (both ? 1.5 : 1);
  return DP_OK;
}

static dp_status wait_in_pair(exec_pipeline *p, bool begins, dp_error *e) {
  (void)p, (void)e;
  waits = begins;
  return DP_OK;
}

/* The second worker takes a quarter longer while its receive waits. */
static dp_status compute(void *data, int worker, double *seconds, dp_error *e) {
  (void)data, (void)e;
  *seconds = worker == 1 && waits ? 1.25 : 1;
  return DP_OK;
}

START_TEST(what_nccl_takes_is_measured_beside_compute) {
  exec_units_links links = {.measured = false};
  exec_pipeline *pipeline = NULL;
  exec_device_kind kind = exec_device_cpu;
  predict("", "stages = 2\nmicrobatches = 2\nmicrobatch_size = 1");
  const exec_pipeline_options options = {.threads = 1, .cluster = &scenario.cluster};
  OK(exec_pipeline_create(&prediction.program, &prediction.graph, &options, &pipeline, &error));
  ck_assert_int_eq(exec_units_measure_links(&links, pipeline, true, true, compute, NULL, &error), DP_UNSUPPORTED);
  ck_assert_str_eq(error.text, "NCCL is measured between two GPUs, found processors");
  exec_units_free_links(&links);
  kind.open_pair = open_pair;
  kind.time_pair = time_pair;
  kind.wait_in_pair = wait_in_pair;
  pipeline->work.kind = &kind;
  links = (exec_units_links){.measured = false};
  OK(exec_units_measure_links(&links, pipeline, true, true, compute, NULL, &error));
  pipeline->work.kind = &exec_device_cpu;
  OK(exec_units_add_links(&links, &profile, &error));
  ck_assert_uint_eq(profile.links.count, 3);
  const plan_profile_link *link = &profile.links.items[2];
  ck_assert_int_eq(link->way, PLAN_PROFILE_NCCL);
  const plan_profile_point *last = &link->points.items[link->points.count - 1];
  near(last->alone_s, 1e-6 + 1e-9 * last->bytes);
  near(last->busy_s, last->alone_s);
  near(link->both_bytes_per_s, 2 * last->bytes / (1e-6 + 1.5e-9 * last->bytes));
  near(link->waiting_slowdown, 0.25);
  ck_assert(!waits && profile.links.items[0].waiting_slowdown == 0);
  exec_units_free_links(&links);
  exec_pipeline_free(pipeline);
}
END_TEST

START_TEST(one_microbatch_is_not_enough) {
  predict("", "stages = 1\nmicrobatches = 1");
  const exec_units_how how = {.program = &prediction.program, .graph = &prediction.graph, .sms = 1, .sharers = 1};
  OK(exec_units_create(&units, &error));
  ck_assert_int_eq(exec_units_run(units, &how, &error), DP_INTERNAL);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("exec_units");
  TCase *tcase = suite_case(suite, "all", setup, teardown, 60);
  tcase_add_test(tcase, what_points_were_made_of_is_found_again);
  tcase_add_test(tcase, what_was_not_told_apart_is_alike);
  tcase_add_test(tcase, others_never_help);
  tcase_add_test(tcase, optimizers_share_memory);
  tcase_add_test(tcase, a_dropped_making_leaves_no_errors);
  tcase_add_test(tcase, every_unit_is_measured);
  tcase_add_test(tcase, a_step_is_the_sum_of_its_units);
  tcase_add_test(tcase, other_parts_are_predicted_as_before);
  tcase_add_test(tcase, links_between_devices_are_measured_apart);
  tcase_add_test(tcase, what_nccl_takes_is_measured_beside_compute);
  tcase_add_test(tcase, one_microbatch_is_not_enough);
  return suite_finish(suite);
}
