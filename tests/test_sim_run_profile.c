/* A profile from a measured step: what is "measured" here comes from a profile known to the test alone, so that other
 * plans must be predicted from the step's timeline as they are from that. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/line.h"
#include "plan/profile_run.h"
#include "sim/predict.h"
#include "tests/fixtures.h"
#include "tests/scratch.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

static dp_error error;
static plan_scenario scenario;
static sim_prediction prediction;
static plan_profile learnt;
static const plan_recorded_units *recorded; /* with what is to be learnt; NULL */
static double recorded_share;
static int crowd; /* workers of the profiles' machine that slow each other down */
#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  read_efficiency();
  scratch_enter();
  recorded = NULL;
  crowd = 1;
}

static void teardown(void) {
  plan_profile_free(&learnt);
  sim_prediction_free(&prediction);
  plan_scenario_free(&scenario);
  scratch_clean(scratch);
  scratch_leave();
  free_efficiency();
}

/* profile: file; NULL: none. */
static double predict(const char *profile, const char *plan) {
  char text[8192], line[64] = "";
  if (profile) (void)snprintf(line, sizeof line, "profile = \"%s\"", profile);
  sim_prediction_free(&prediction);
  plan_scenario_free(&scenario);
  (void)snprintf(
      text, sizeof text,
      "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"%s\"\nheight = 64\nwidth = 64\n"
      "text_tokens = 7\nprecision = \"fp32\"\n[task]\nimplementation = \"cpu\"\nglobal_batch = 8\n[cluster]\n"
      "%s\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"CPU-core\"\ncount = 4\n[plan]\n"
      "microbatch_size = 1\n%s\n",
      fixture_path("sd15", "config.json"), line, plan);
  OK(plan_scenario_parse(text, strlen(text), "learn.toml", &scenario, &error));
  OK(sim_predict(&scenario, efficiency, &prediction, &error));
  return prediction.metrics.step_s;
}

static void name(plan_profile *profile) {
  profile->device = "CPU-core";
  profile->processor = "none";
  profile->cores = 4;
  profile->threads = 1;
  profile->workers = crowd;
  profile->implementation = "cpu";
  profile->precision = GRAPH_FP32;
  profile->gemm = profile->made = "none";
  profile->optimizer_busy_factor = 1;
}

static double truth_s(size_t unit, plan_profile_pass pass) { return 1e-5 * (double)(1 + unit % 7) * (1 + pass % 3); }

/* What is to be found out: of each unit that is unlike those before. */
static void write_truth(void) {
  plan_profile truth = {.device = NULL};
  plan_profile_keys keys;
  dp_str text = {0};
  (void)predict(NULL, "stages = 1");
  const graph *g = &prediction.graph;
  OK(plan_profile_keys_init(g, &keys, &error));
  for (size_t u = 0; u < g->units.count; u++) {
    char key[17];
    bool known = false;
    plan_profile_unit_key(&keys, (int)u, &text, key);
    for (size_t i = 0; i < truth.units.count; i++) known = known || strcmp(truth.units.items[i].unit, key) == 0;
    for (int p = PLAN_PROFILE_FORWARD; p <= PLAN_PROFILE_BACKWARD && !known; p++) {
      const double seconds = truth_s(u, (plan_profile_pass)p);
      const plan_profile_unit unit = {.unit = dp_arena_strdup(&truth.arena, key),
                                      .name = g->units.items[u].name,
                                      .sms = 1,
                                      .pass = (plan_profile_pass)p,
                                      .alone_s = seconds,
                                      .beside_forward_s = seconds,
                                      .beside_backward_s = seconds,
                                      .runs = 1};
      ck_assert(dp_array_push(&truth.units, unit));
    }
  }
  const plan_profile_part part = {
      .sms = 1, .workers = 1, .optimizer_s_per_parameter = 1e-9, .optimizer_busy_factor = 1, .runtime_bytes = 1};
  const plan_profile_point points[] = {{1000, 1e-6, 1e-6}, {1e8, 1e-1, 1e-1}}; /* 1 ns a byte */
  ck_assert(dp_array_push(&truth.parts, part));
  for (int i = 0; i < 2; i++) ck_assert(dp_array_push(&truth.copies, points[i]));
  name(&truth);
  OK(plan_profile_finish(&truth, &error));
  OK(plan_profile_write(&truth, "truth.json", &error));
  dp_str_free(&text);
  plan_profile_keys_free(&keys);
  plan_profile_free(&truth);
}

/* From the prediction there is: how units share a chunk is as the truth has it. */
static void learn(dp_str *outliers) {
  plan_profile truth;
  plan_profile_keys keys;
  dp_str text = {0};
  double forward_s[256], backward_s[256], again[256];
  const graph *g = &prediction.graph;
  ck_assert_uint_le(g->units.count, 256);
  OK(plan_profile_read("truth.json", &truth, &error));
  OK(plan_profile_keys_init(g, &keys, &error));
  for (size_t u = 0; u < g->units.count; u++) {
    char key[17];
    plan_profile_unit_key(&keys, (int)u, &text, key);
    forward_s[u] = plan_profile_find_unit(&truth, key, 1, PLAN_PROFILE_FORWARD)->alone_s;
    backward_s[u] = plan_profile_find_unit(&truth, key, 1, PLAN_PROFILE_BACKWARD)->alone_s;
    again[u] = sim_cost_again_share(&prediction.own.kinds[0].context, g, (int)u);
  }
  dp_str_free(&text);
  plan_profile_keys_free(&keys);
  plan_profile_free(&truth);
  for (size_t u = 0; u < g->units.count && recorded; u++) forward_s[u] = backward_s[u] = 1; /* which is not so */
  const plan_profile_run run = {.timeline = &prediction.timeline,
                                .recorded = recorded,
                                .graph = g,
                                .cluster = &scenario.cluster,
                                .forward_s = forward_s,
                                .backward_s = backward_s,
                                .again = again,
                                .sms = 1,
                                .sharers = crowd > 1 ? crowd : 2,
                                .step_s = prediction.timeline.step_s};
  OK(plan_profile_of_run(&run, &learnt, outliers, &recorded_share, &error));
  name(&learnt);
  OK(plan_profile_write(&learnt, "learnt.json", &error));
}

static void close_to(double got, double expected) {
  ck_assert_msg(fabs(got / expected - 1) < 1e-4, "%.9g, expected %.9g", got, expected);
}

/* Norms of gradients that processors took before they met over them, their exchange, and what hand-overs are made of. */
START_TEST(norms_are_learnt) {
  static const char plan[] = "stages = 2\nschedule = \"gpipe\"\n[train]\nclip_norm = 1\n";
  plan_profile truth;
  write_truth();
  OK(plan_profile_read("truth.json", &truth, &error));
  const plan_profile_point exchange = {8, 5e-7, 5e-7};
  truth.parts.items[0].norm_s_per_parameter = 2e-9;
  truth.handover_s = 4e-5;
  truth.handover_after_s = 1e-5;
  ck_assert(dp_array_push(&truth.sums, exchange));
  OK(plan_profile_write(&truth, "truth.json", &error));
  plan_profile_free(&truth);
  const double step_s = predict("truth.json", plan);
  learn(NULL);
  close_to(learnt.parts.items[0].norm_s_per_parameter, 2e-9);
  close_to(learnt.handover_after_s, 1e-5);
  close_to(learnt.handover_s, 4e-5);
  ck_assert_uint_eq(learnt.sums.count, 1);
  close_to(learnt.sums.items[0].bytes, 8);
  close_to(learnt.sums.items[0].alone_s, 5e-7);
  close_to(predict("learnt.json", plan), step_s);
}
END_TEST

/* One step of two stages tells of one worker, of four, of other schedules, and of recomputation. */
START_TEST(other_plans_are_predicted_as_by_the_truth) {
  static const char *const plans[] = {"stages = 1",
                                      "stages = 4",
                                      "stages = 2\nschedule = \"gpipe\"",
                                      "stages = 2\nschedule = \"interleaved\"\nchunks = 2",
                                      "stages = 2\nrecompute = \"all\"",
                                      "stages = 1\ndata_parallel = 1"};
  write_truth();
  (void)predict("truth.json", "stages = 2");
  learn(NULL);
  ck_assert_int_gt(learnt.held_out, 0);
  ck_assert(learnt.held_out_error < 1e-6);
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    const double truth = predict("truth.json", plans[i]), got = predict("learnt.json", plans[i]);
    const double blind = predict(NULL, plans[i]);
    ck_assert_msg(fabs(got / truth - 1) < 0.01, "%s: %g, expected %g", plans[i], got, truth);
    ck_assert_msg(fabs(blind / truth - 1) > 0.1, "%s: %g without a profile", plans[i], blind);
  }
}
END_TEST

/* And one step that recomputes, whose backwards run again what is read of their units' forwards, of steps that do not. */
START_TEST(what_is_run_again_is_no_backward) {
  static const char *const plans[] = {"stages = 1", "stages = 2", "stages = 2\nrecompute = \"all\""};
  write_truth();
  (void)predict("truth.json", plans[2]);
  learn(NULL);
  for (int i = 0; i < 3; i++) {
    const double truth = predict("truth.json", plans[i]), got = predict("learnt.json", plans[i]);
    ck_assert_msg(fabs(got / truth - 1) < 0.01, "%s: %g, expected %g", plans[i], got, truth);
  }
}
END_TEST

/* Of [a forward, a backward][while all others run forwards, backwards]. */
static const double beside[2][2] = {{0.1, 0.15}, {0.25, 0.3}};

static void write_crowded_truth(void) {
  plan_profile truth;
  crowd = 4;
  write_truth();
  OK(plan_profile_read("truth.json", &truth, &error));
  for (size_t i = 0; i < truth.units.count; i++) {
    plan_profile_unit *unit = &truth.units.items[i];
    const double *by = beside[unit->pass != PLAN_PROFILE_FORWARD];
    unit->beside_forward_s = unit->alone_s * (1 + by[0]);
    unit->beside_backward_s = unit->alone_s * (1 + by[1]);
  }
  OK(plan_profile_write(&truth, "truth.json", &error));
  plan_profile_free(&truth);
}

/* Every third of the instructions a little longer: what is no law. */
static void add_noise(double most) {
  plan_timeline *t = &prediction.timeline;
  for (uint32_t i = 0; i < t->program->instruction_count; i++)
    t->end_s[i] += most * (double)(i * 7 % 3) / 2 * (t->end_s[i] - t->start_s[i]);
}

/* A pipeline fills and drains with few beside, so one step tells what workers take from each other. */
START_TEST(what_others_take_is_told_apart) {
  static const char *const plans[] = {"stages = 1", "stages = 2", "stages = 4\nschedule = \"gpipe\"",
                                      "stages = 4\nschedule = \"folded\"", "stages = 2\nrecompute = \"all\""};
  write_crowded_truth();
  (void)predict("truth.json", "stages = 4");
  learn(NULL);
  ck_assert_msg(learnt.held_out_error < 2e-3, "off by %g", learnt.held_out_error);
  for (size_t i = 0; i < learnt.units.count; i++) {
    const plan_profile_unit *unit = &learnt.units.items[i];
    const double *by = beside[unit->pass != PLAN_PROFILE_FORWARD];
    ck_assert_double_eq_tol(unit->beside_forward_s / unit->alone_s - 1, by[0], 0.03);
    ck_assert_double_eq_tol(unit->beside_backward_s / unit->alone_s - 1, by[1], 0.03);
  }
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    const double truth = predict("truth.json", plans[i]), got = predict("learnt.json", plans[i]);
    ck_assert_msg(fabs(got / truth - 1) < 0.01, "%s: %g, expected %g", plans[i], got, truth);
  }
}
END_TEST

/* Where others explain little of how instructions differ, or nothing, none of it is laid on them. */
START_TEST(noise_is_not_laid_on_others) {
  write_truth();
  crowd = 4;
  (void)predict("truth.json", "stages = 4");
  add_noise(0.2);
  learn(NULL);
  for (size_t i = 0; i < learnt.units.count; i++) {
    ck_assert_double_eq(learnt.units.items[i].beside_forward_s, learnt.units.items[i].alone_s);
    ck_assert_double_eq(learnt.units.items[i].beside_backward_s, learnt.units.items[i].alone_s);
  }
}
END_TEST

/* Instructions take something beside their units, and more with the inputs and the loss. */
static const double each_s = 2e-5, feed_s = 5e-5, loss_s = 9e-5;

static void write_truth_with_more(void) {
  plan_profile truth;
  write_truth();
  OK(plan_profile_read("truth.json", &truth, &error));
  truth.parts.items[0].instruction_s = each_s;
  truth.parts.items[0].feed_s = feed_s;
  truth.parts.items[0].loss_s = loss_s;
  OK(plan_profile_write(&truth, "truth.json", &error));
  plan_profile_free(&truth);
}

/* What was recorded of the prediction there is, which took longer by a tenth for that. */
static void record(plan_recorded_units *units) {
  const plan_program *program = &prediction.program;
  const plan_plan *plan = &prediction.plan;
  const graph *g = &prediction.graph;
  plan_profile truth;
  plan_profile_keys keys;
  dp_str text = {0};
  OK(plan_profile_read("truth.json", &truth, &error));
  OK(plan_profile_keys_init(g, &keys, &error));
  *units = (plan_recorded_units){.work_count = program->work_count,
                                 .unit_count = g->units.count,
                                 .unit_s = calloc(program->work_count * g->units.count, sizeof(double)),
                                 .none_s = calloc(program->work_count, sizeof(double)),
                                 .known = calloc(program->work_count, sizeof(bool))};
  ck_assert(units->unit_s && units->none_s && units->known);
  for (uint32_t w = 0; w < program->work_count; w++) {
    const plan_work *work = &program->works[w];
    const bool forward = work->opcode == PLAN_FORWARD;
    units->known[w] = true;
    units->none_s[w] = 1.1 * (each_s + (forward && work->chunk == 0 ? feed_s : 0) +
                              (forward && (int)work->chunk == plan->chunk_count - 1 ? loss_s : 0));
    for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) {
      char key[17];
      plan_profile_unit_key(&keys, (int)u, &text, key);
      units->unit_s[w * g->units.count + u] =
          1.1 * plan_profile_find_unit(&truth, key, 1, forward ? PLAN_PROFILE_FORWARD : PLAN_PROFILE_BACKWARD)->alone_s;
    }
  }
  dp_str_free(&text);
  plan_profile_keys_free(&keys);
  plan_profile_free(&truth);
}

/* Units that were recorded one by one do not depend on how they are said to share a chunk; some of the passes may be
 * without. */
START_TEST(recorded_units_have_their_own_times) {
  static const char *const plans[] = {"stages = 1", "stages = 4", "stages = 2\nschedule = \"gpipe\""};
  plan_recorded_units units;
  write_truth_with_more();
  (void)predict("truth.json", "stages = 2");
  record(&units);
  recorded = &units;
  learn(NULL);
  ck_assert_double_eq_tol(recorded_share, 1, 1e-9);
  const plan_profile_part *part = &learnt.parts.items[0];
  ck_assert_double_eq_tol(part->instruction_s, each_s, 1e-3 * each_s);
  ck_assert_double_eq_tol(part->feed_s, feed_s, 1e-3 * feed_s);
  ck_assert_double_eq_tol(part->loss_s, loss_s, 1e-3 * loss_s);
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    const double truth = predict("truth.json", plans[i]), got = predict("learnt.json", plans[i]);
    ck_assert_msg(fabs(got / truth - 1) < 0.004, "%s: %g, expected %g", plans[i], got, truth);
  }
  for (uint32_t w = 0; w < units.work_count; w++) units.known[w] = false;
  (void)predict("truth.json", "stages = 2");
  plan_profile_free(&learnt);
  learn(NULL);
  ck_assert(recorded_share == 0);
  const double truth = predict("truth.json", "stages = 4"), got = predict("learnt.json", "stages = 4");
  ck_assert_msg(fabs(got / truth - 1) > 0.01, "%g, which only recorded units tell: %g", got, truth);
  free(units.unit_s);
  free(units.none_s);
  free(units.known);
}
END_TEST

/* A few instructions that were held up change nothing, and are named. */
START_TEST(what_was_held_up_does_not_count) {
  dp_str lines = {0};
  write_truth();
  const double truth = predict("truth.json", "stages = 1");
  (void)predict("truth.json", "stages = 2");
  uint32_t slow = 0;
  while (prediction.program.instructions[slow].opcode != PLAN_BACKWARD ||
         prediction.program.instructions[slow].microbatch != 3)
    slow++;
  prediction.timeline.end_s[slow] += 2 * (prediction.timeline.end_s[slow] - prediction.timeline.start_s[slow]);
  learn(&lines);
  ck_assert_msg(strstr(dp_str_text(&lines), "worker 0 BACKWARD chunk 0 microbatch 3 took") != NULL, "%s",
                dp_str_text(&lines));
  ck_assert_ptr_eq(strchr(dp_str_text(&lines), '\n')[1] ? (void *)1 : NULL, NULL); /* and nothing else is */
  const double got = predict("learnt.json", "stages = 1");
  ck_assert_msg(fabs(got / truth - 1) < 0.01, "%g, expected %g", got, truth);
  dp_str_free(&lines);
}
END_TEST

/* A later run that took other times corrects it. */
START_TEST(units_are_corrected_by_pass) {
  const plan_profile_factors factors = {.forward = 2, .backward = 3, .optimizer = 5};
  write_truth();
  (void)predict("truth.json", "stages = 1");
  const double before[2] = {prediction.metrics.workers[0].forward_s, prediction.metrics.workers[0].backward_s};
  const double optimizer_s = prediction.metrics.workers[0].optimizer_s;
  OK(plan_profile_read("truth.json", &learnt, &error));
  plan_profile_scale(&learnt, &factors);
  OK(plan_profile_write(&learnt, "scaled.json", &error));
  (void)predict("scaled.json", "stages = 1");
  ck_assert_double_eq_tol(prediction.metrics.workers[0].forward_s / before[0], 2, 1e-6);
  ck_assert_double_eq_tol(prediction.metrics.workers[0].backward_s / before[1], 3, 1e-6);
  ck_assert_double_eq_tol(prediction.metrics.workers[0].optimizer_s / optimizer_s, 5, 1e-6);
}
END_TEST

/* ---- GPUs ---- */

/* Of two replicas that compute all the time, on devices of so many multiprocessors: one's instructions of a kind. */
static double replica_s(const char *devices, plan_opcode opcode) {
  char text[8192];
  double sum = 0;
  sim_prediction_free(&prediction);
  plan_scenario_free(&scenario);
  (void)snprintf(text, sizeof text,
                 "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"%s\"\nheight = 64\nwidth = 64\n"
                 "text_tokens = 7\nprecision = \"fp32\"\n[task]\nglobal_batch = 8\n[cluster]\nprofile = \"gpu.json\"\n"
                 "[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"H200-SXM-141GB\"\n%s\n[plan]\nstages = 1\n"
                 "data_parallel = 2\nmicrobatch_size = 1\n",
                 fixture_path("sd15", "config.json"), devices);
  OK(plan_scenario_parse(text, strlen(text), "gpu.toml", &scenario, &error));
  ck_assert_str_eq(scenario.implementation, "cuda"); /* the profile's, where the scenario names none */
  OK(sim_predict(&scenario, efficiency, &prediction, &error));
  const plan_lane *lane = &prediction.program.lanes[prediction.program.worker_lane[0]];
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++)
    if (prediction.program.instructions[i].opcode == opcode)
      sum += prediction.timeline.end_s[i] - prediction.timeline.start_s[i];
  return sum;
}

/* Parts of one card take as long beside each other as was measured; whole cards leave each other alone. */
START_TEST(parts_of_a_card_slow_each_other_down) {
  plan_profile cpu, gpu;
  write_truth();
  OK(plan_profile_read("truth.json", &cpu, &error));
  OK(plan_profile_read("truth.json", &gpu, &error));
  gpu.device = "H200-SXM-141GB";
  gpu.implementation = "cuda";
  gpu.copies.count = gpu.parts.count = 0;
  const plan_profile_part two = {
      .sms = 64, .workers = 2, .optimizer_s_per_parameter = 1e-9, .optimizer_busy_factor = 1.5, .runtime_bytes = 1};
  plan_profile_part whole = two;
  whole.sms = 132;
  whole.workers = 1;
  whole.optimizer_busy_factor = 1;
  ck_assert(dp_array_push(&gpu.parts, two) && dp_array_push(&gpu.parts, whole));
  for (size_t i = 0; i < gpu.units.count; i++) {
    plan_profile_unit *unit = &gpu.units.items[i];
    unit->sms = 64;
    /* the only other one does the same at the same time: what it does otherwise must not count */
    unit->beside_forward_s = (unit->pass == PLAN_PROFILE_FORWARD ? 3 : 1) * unit->alone_s;
    unit->beside_backward_s = (unit->pass == PLAN_PROFILE_FORWARD ? 7 : 5) * unit->alone_s;
  }
  for (size_t i = 0; i < cpu.units.count; i++) {
    plan_profile_unit unit = cpu.units.items[i];
    unit.sms = 132;
    unit.beside_forward_s = unit.beside_backward_s = 3 * unit.alone_s;
    ck_assert(dp_array_push(&gpu.units, unit));
  }
  OK(plan_profile_finish(&gpu, &error));
  OK(plan_profile_write(&gpu, "gpu.json", &error));
  for (int k = 0; k < 2; k++) {
    const double parts = replica_s("virtual = 2", k ? PLAN_BACKWARD : PLAN_FORWARD);
    const double cards = replica_s("count = 2", k ? PLAN_BACKWARD : PLAN_FORWARD);
    ck_assert_msg(fabs(parts / cards - (k ? 5 : 3)) < 0.05, "%g on parts, %g on cards", parts, cards);
  }
  /* two optimizers at once get what one and a third could use */
  const double shared_s = replica_s("virtual = 2", PLAN_OPTIMIZER_STEP);
  const double own_s = replica_s("count = 2", PLAN_OPTIMIZER_STEP);
  ck_assert_msg(fabs(shared_s / own_s - 1.5) < 0.01, "%g on parts, %g on cards", shared_s, own_s);
  plan_profile_free(&cpu);
  plan_profile_free(&gpu);
}
END_TEST

/* A recomputation runs again what a backward reads, and no more: not the product that a block ends with. */
START_TEST(recomputation_spares_what_nobody_reads) {
  double sums[2];
  write_truth();
  for (int k = 0; k < 2; k++) {
    (void)predict("truth.json", k ? "stages = 1\nrecompute = \"all\"" : "stages = 1");
    sums[k] = prediction.metrics.workers[0].backward_s;
  }
  const double again = (sums[1] - sums[0]) / prediction.metrics.workers[0].forward_s;
  ck_assert_msg(again > 0.3 && again < 0.9, "%g of a forward", again);
}
END_TEST

START_TEST(lines_have_no_negative_part) {
  const double x[] = {1, 2, 4}, rising[] = {3, 5, 9}, falling[] = {9, 5, 3}, below[] = {1, 3, 7};
  double constant, slope;
  dp_fit_line(x, rising, 3, &constant, &slope);
  ck_assert_double_eq_tol(constant, 1, 1e-12);
  ck_assert_double_eq_tol(slope, 2, 1e-12);
  dp_fit_line(x, falling, 3, &constant, &slope);
  ck_assert(constant == 0 && slope > 0);
  dp_fit_line(x, below, 3, &constant, &slope); /* -1 + 2 x */
  ck_assert(constant == 0 && slope > 1.5 && slope < 2);
  dp_fit_line(x, rising, 1, &constant, &slope);
  ck_assert(constant == 0 && slope == 3);
  dp_fit_line(x, rising, 0, &constant, &slope);
  ck_assert(constant == 0 && slope == 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("sim_run_profile");
  TCase *tcase = suite_case(suite, "all", setup, teardown, 60);
  tcase_add_test(tcase, other_plans_are_predicted_as_by_the_truth);
  tcase_add_test(tcase, what_is_run_again_is_no_backward);
  tcase_add_test(tcase, norms_are_learnt);
  tcase_add_test(tcase, what_others_take_is_told_apart);
  tcase_add_test(tcase, noise_is_not_laid_on_others);
  tcase_add_test(tcase, recorded_units_have_their_own_times);
  tcase_add_test(tcase, what_was_held_up_does_not_count);
  tcase_add_test(tcase, units_are_corrected_by_pass);
  tcase_add_test(tcase, parts_of_a_card_slow_each_other_down);
  tcase_add_test(tcase, recomputation_spares_what_nobody_reads);
  tcase_add_test(tcase, lines_have_no_negative_part);
  return suite_finish(suite);
}
