/* Predictions that rest on a profile: the numbers come out exactly, from the best source, and the answer says so. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/assumptions.h"
#include "sim/predict.h"
#include "tests/fixtures.h"
#include "tests/scratch.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

static dp_error error;
static plan_scenario scenario;
static sim_prediction prediction;
#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  read_efficiency();
  scratch_enter();
}

static void teardown(void) {
  sim_prediction_free(&prediction);
  plan_scenario_free(&scenario);
  scratch_clean(scratch);
  scratch_leave();
  free_efficiency();
}

static dp_status read_scenario_on(const char *implementation, const char *devices, const char *plan,
                                  const char *cluster, const char *precision) {
  char text[8192];
  (void)snprintf(text, sizeof text,
                 "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"%s\"\nheight = 128\nwidth = 192\n"
                 "text_tokens = 7\nprecision = \"%s\"\n[task]\nimplementation = \"%s\"\n[cluster]\n%s\n"
                 "[[cluster.node]]\n[[cluster.node.device]]\n%s\n[plan]\n%s\n",
                 fixture_path("sd15", "config.json"), precision, implementation, cluster, devices, plan);
  plan_scenario_free(&scenario);
  return plan_scenario_parse(text, strlen(text), "profile.toml", &scenario, &error);
}

static dp_status read_scenario(const char *plan, const char *cluster, const char *precision) {
  return read_scenario_on("cpu", "model = \"CPU-core\"\ncount = 4", plan, cluster, precision);
}

static void predict(const char *plan) {
  sim_prediction_free(&prediction);
  OK(read_scenario(plan, "profile = \"profile.json\"", "fp32"));
  OK(sim_predict(&scenario, efficiency, &prediction, &error));
}

/* The i-th op that runs takes (i + 1) us alone, twice that busy. `skip` of every so many are left out; 0: none. */
static void write_profile(int skip, double sums[PLAN_DIRECTION_COUNT]) {
  plan_profile profile = {.device = "CPU-core",
                          .processor = "by hand",
                          .cores = 2,
                          .threads = 1,
                          .workers = 2,
                          .implementation = "cpu",
                          .precision = GRAPH_FP32,
                          .gemm = "none",
                          .made = "2026-01-01T00:00:00Z",
                          .optimizer_s = 1e-6,
                          .optimizer_s_per_parameter = 1e-9,
                          .optimizer_busy_factor = 1.5,
                          .loss_s = 2e-6,
                          .loss_s_per_byte = 1e-10,
                          .instruction_s = 1e-5,
                          .handover_s = 4e-5,
                          .step_s = 1e-4,
                          .repeat_error = 0.12,
                          .held_out_error = 0.3,
                          .held_out = 7};
  const plan_profile_point points[] = {{1000, 1e-6, 1e-6}, {1e8, 1e-1, 1e-1}}; /* 1 ns a byte */
  for (int i = 0; i < 2; i++) ck_assert(dp_array_push(&profile.copies, points[i]));
  ck_assert(dp_array_push(&profile.sums, points[0]));
  OK(read_scenario("stages = 1", "", "fp32"));
  graph g;
  plan_profile_keys keys;
  dp_str key = {0};
  OK(plan_scenario_graph(&scenario, 1, &g, &error));
  OK(plan_profile_keys_init(&g, &keys, &error));
  memset(sums, 0, PLAN_DIRECTION_COUNT * sizeof *sums);
  int count = 0;
  for (size_t o = 0; o < g.ops.count; o++)
    for (int d = 0; d < PLAN_DIRECTION_COUNT; d++) {
      if (!plan_profile_runs(&g, (int)o, (plan_direction)d)) continue;
      plan_profile_key(&keys, (int)o, (plan_direction)d, &key);
      plan_profile_op op = {.op = dp_arena_strdup(&profile.arena, dp_str_text(&key)),
                            .direction = (plan_direction)d,
                            .kind = g.ops.items[o].kind,
                            .work = plan_profile_work_of(&g, (int)o, (plan_direction)d),
                            .runs = 1};
      size_t same = 0; /* ops that are alike take alike */
      while (same < profile.ops.count &&
             (profile.ops.items[same].direction != op.direction || strcmp(profile.ops.items[same].op, op.op) != 0))
        same++;
      op.alone_s = same < profile.ops.count ? profile.ops.items[same].alone_s : 1e-6 * ++count;
      op.busy_s = 2 * op.alone_s;
      sums[d] += op.alone_s;
      if (same == profile.ops.count) ck_assert(dp_array_push(&profile.ops, op));
    }
  if (skip) {
    size_t kept = 0;
    for (size_t i = 0; i < profile.ops.count; i++)
      if (i % (size_t)skip != 0) profile.ops.items[kept++] = profile.ops.items[i];
    profile.ops.count = kept;
    OK(plan_profile_fit(&profile, &error));
  }
  OK(plan_profile_finish(&profile, &error));
  OK(plan_profile_write(&profile, "profile.json", &error));
  dp_str_free(&key);
  plan_profile_keys_free(&keys);
  graph_free(&g);
  plan_profile_free(&profile);
}

static double loss_s(void) {
  for (size_t t = 0; t < prediction.graph.tensors.count; t++)
    if (prediction.graph.tensors.items[t].is_output)
      return 2e-6 + 1e-10 * (double)prediction.graph.tensors.items[t].bytes;
  return 0;
}

static void near(double got, double expected) {
  ck_assert_msg(fabs(got - expected) <= 1e-9 * expected, "%.12g, expected %.12g", got, expected);
}

/* Of times that are taken from moments late in a step. */
static void near_time(double got, double expected) {
  ck_assert_msg(fabs(got - expected) <= 1e-6 * expected, "%.12g, expected %.12g", got, expected);
}

/* The first instruction of an opcode on a worker. */
static uint32_t find(plan_opcode opcode, uint32_t worker) {
  const plan_program *program = &prediction.program;
  for (uint32_t i = 0; i < program->instruction_count; i++)
    if (program->instructions[i].opcode == opcode && program->lanes[plan_instruction_lane(program, i)].worker == worker)
      return i;
  ck_abort_msg("no such instruction");
}

/* From the end of what a transfer waited for, at both its ends, to its start. */
static double late_s(uint32_t i) {
  const plan_program *program = &prediction.program;
  uint32_t by;
  double ready_s = 0;
  for (uint32_t k = 0; k < program->instruction_count; k++) {
    const bool group = program->instructions[i].opcode == PLAN_ALL_REDUCE;
    const bool end = k == i || (group ? program->instructions[k].opcode == PLAN_ALL_REDUCE &&
                                            program->instructions[k].peer == program->instructions[i].peer
                                      : k == program->instructions[i].peer);
    if (end) ready_s = fmax(ready_s, plan_released_s(&prediction.timeline, plan_instruction_lane(program, k), k, &by));
  }
  return prediction.timeline.start_s[i] - ready_s;
}

static double span_s(uint32_t i) { return prediction.timeline.end_s[i] - prediction.timeline.start_s[i]; }

START_TEST(a_measured_step_is_the_sum_of_what_was_measured) {
  double sums[PLAN_DIRECTION_COUNT];
  write_profile(0, sums);
  predict("stages = 1\nmicrobatches = 3");
  const double ops = sums[0] + sums[1] + sums[2];
  const double optimizer = 1e-6 + 1e-9 * (double)prediction.graph.trainable_parameters;
  near(prediction.metrics.step_s, 3 * (ops + loss_s()) + 7 * 1e-5 + optimizer + 1e-4);
  near(prediction.source_share[PLAN_SOURCE_MEASURED], 1);
  near(prediction.error_band, hypot(efficiency->band_measured, 0.12));
}
END_TEST

START_TEST(workers_side_by_side_slow_each_other) {
  double sums[PLAN_DIRECTION_COUNT];
  write_profile(0, sums);
  predict("stages = 1\ndata_parallel = 2\nmicrobatches = 3");
  const double both = 2 * sums[0] + loss_s() + 1e-5;
  near(span_s(find(PLAN_FORWARD, 0)), both);
  near(span_s(find(PLAN_FORWARD, 1)), both);
  predict("stages = 1\ndata_parallel = 4\nmicrobatches = 3"); /* on two cores */
  near(span_s(find(PLAN_FORWARD, 3)), 2 * both);
}
END_TEST

START_TEST(copies_and_sums_are_as_measured) {
  double sums[PLAN_DIRECTION_COUNT];
  write_profile(0, sums);
  predict("stages = 2\nschedule = \"gpipe\"\nmicrobatches = 3");
  const uint32_t recv = find(PLAN_RECV, 1);
  const plan_message *message = &prediction.program.messages[prediction.program.instructions[recv].class_id];
  near_time(span_s(recv), 1e-9 * (double)message->bytes);
  near_time(late_s(recv), 4e-5);
  predict("stages = 1\ndata_parallel = 3\nmicrobatches = 3\ngradient_buckets = 1");
  const uint32_t reduce = find(PLAN_ALL_REDUCE, 0);
  const plan_collective *sum = &prediction.program.collectives[prediction.program.instructions[reduce].class_id];
  near_time(span_s(reduce), 2e-9 * (double)sum->bytes);
  near_time(late_s(reduce), 4e-5);
}
END_TEST

/* 4e-5 s of hand-over, of which `after_s` follow a transfer; norms of gradients 2 ns a parameter; and their exchange. */
static void write_norm_profile(double after_s, double exchange_s) {
  double sums[PLAN_DIRECTION_COUNT];
  plan_profile profile;
  write_profile(0, sums);
  OK(plan_profile_read("profile.json", &profile, &error));
  const plan_profile_point exchange = {8, exchange_s, exchange_s}, gradient = {1e6, 1e-3, 1e-3};
  profile.norm_s_per_parameter = 2e-9;
  profile.handover_after_s = after_s;
  profile.sums.items[0] = exchange_s > 0 ? exchange : gradient;
  if (exchange_s > 0) ck_assert(dp_array_push(&profile.sums, gradient));
  OK(plan_profile_write(&profile, "profile.json", &error));
  plan_profile_free(&profile);
}

/* The norm of the worker that is last to have it: taken before they meet, whose exchange is as short as it was measured. */
START_TEST(workers_meet_over_norms_as_measured) {
  write_norm_profile(1e-5, 5e-7);
  predict("stages = 2\nschedule = \"gpipe\"\nmicrobatches = 3\n[train]\nclip_norm = 1\n");
  const uint32_t meet = find(PLAN_ALL_REDUCE, 0), optimizer = find(PLAN_OPTIMIZER_STEP, 0);
  const plan_timeline *t = &prediction.timeline;
  double ready_s = 0, normed_s = 0;
  for (uint32_t w = 0; w < 2; w++) {
    const double done_s = t->end_s[find(PLAN_OPTIMIZER_STEP, w) - 1];
    ready_s = fmax(ready_s, done_s);
    normed_s =
        fmax(normed_s, done_s + 2e-9 * (double)plan_trainable_parameters(&prediction.plan, &prediction.graph, (int)w));
  }
  ck_assert(normed_s > ready_s);
  near_time(span_s(meet), 5e-7);
  near_time(late_s(meet), normed_s - ready_s + 3e-5);
  near_time(t->start_s[optimizer] - t->end_s[meet], 1e-5);
  const uint32_t recv = find(PLAN_RECV, 1);
  near_time(late_s(recv), 3e-5);
  near_time(t->start_s[find(PLAN_FORWARD, 1)] - t->end_s[recv], 1e-5);
}
END_TEST

/* Whoever meets nobody takes it in the optimizer's step. */
START_TEST(a_lone_workers_norm_is_in_its_step) {
  double steps_s[2];
  for (int k = 0; k < 2; k++) {
    double sums[PLAN_DIRECTION_COUNT];
    if (k == 0) write_profile(0, sums);
    if (k == 1) write_norm_profile(0, 5e-7);
    predict("stages = 1\nmicrobatches = 3\n[train]\nclip_norm = 1\n");
    steps_s[k] = prediction.metrics.step_s;
  }
  near_time(steps_s[1] - steps_s[0], 2e-9 * (double)prediction.graph.trainable_parameters);
}
END_TEST

/* A profile without the exchange of norms says nothing of it, whatever a gradient took: that is the catalogue's. */
START_TEST(the_exchange_of_norms_is_no_gradients) {
  static const char plan[] = "stages = 2\nmicrobatches = 3\n[train]\nclip_norm = 1\n";
  write_norm_profile(0, 0);
  predict(plan);
  const double with_s = span_s(find(PLAN_ALL_REDUCE, 0));
  sim_prediction_free(&prediction);
  OK(read_scenario(plan, "", "fp32"));
  OK(sim_predict(&scenario, efficiency, &prediction, &error));
  near_time(with_s, span_s(find(PLAN_ALL_REDUCE, 0)));
}
END_TEST

/* Of the process that they are in, workers of one machine have a part each, whatever they are; of two machines, those have
 * the larger part that are fewer. */
#define NIC "link = \"ethernet-100gbe\"\nfabric = \"lan\"\n"
START_TEST(a_machines_workers_share_its_process) {
  static const struct {
    const char *plan, *more;
    int workers, sharers;
  } cases[] = {{"stages = 1", "", 1, 1},
               {"stages = 2", "", 2, 2},
               {"stages = 2\ndata_parallel = 2", "", 4, 4},
               {"stages = 3\n[[cluster.node.nic]]\n" NIC,
                "[[cluster.fabric]]\nname = \"lan\"\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"CPU-core\"\n"
                "count = 2\n[[cluster.node.nic]]\n" NIC,
                3, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    sim_prediction_free(&prediction);
    OK(read_scenario(cases[i].plan, cases[i].more, "fp32"));
    OK(sim_predict(&scenario, efficiency, &prediction, &error));
    const sim_implementation *cpu = prediction.own.kinds[0].context.implementation;
    ck_assert(cpu->process_bytes > 0 && cpu->context_bytes > 0);
    ck_assert_int_eq(prediction.memory.worker_count, cases[i].workers);
    for (int w = 0; w < cases[i].workers; w++) {
      const plan_worker_memory *memory = &prediction.memory.workers[w];
      const int64_t runtime = memory->peak_bytes - memory->layout_bytes;
      ck_assert_int_eq(runtime, (int64_t)(cpu->context_bytes + cpu->process_bytes / cases[i].sharers));
      ck_assert_int_eq(memory->at_peak_bytes[PLAN_MEMORY_RUNTIME], runtime);
    }
  }
}
END_TEST

#define H200 "model = \"H200-SXM-141GB\"\n"
/* GPUs of a process have a context each, which is shared by a card's parts; these need no communicators. */
START_TEST(a_cards_parts_share_its_context) {
  static const struct {
    const char *devices;
    int workers, parts, communicators; /* one a direction */
  } cases[] = {{H200 "count = 1", 1, 1, 0},
               {H200 "count = 2", 2, 1, 2},
               {H200 "virtual = 2", 2, 2, 0},
               {H200 "virtual = 4", 4, 4, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char plan[32];
    (void)snprintf(plan, sizeof plan, "stages = %d", cases[i].workers);
    sim_prediction_free(&prediction);
    OK(read_scenario_on("cuda", cases[i].devices, plan, "", "bf16"));
    OK(sim_predict(&scenario, efficiency, &prediction, &error));
    const sim_implementation *cuda = prediction.own.kinds[0].context.implementation;
    ck_assert(cuda->process_bytes > 0 && cuda->context_bytes > 0 && cuda->communicator_bytes > 0);
    ck_assert_int_eq(prediction.memory.worker_count, cases[i].workers);
    for (int w = 0; w < cases[i].workers; w++)
      ck_assert_int_eq(prediction.memory.workers[w].at_peak_bytes[PLAN_MEMORY_RUNTIME],
                       (int64_t)(cuda->context_bytes + cuda->process_bytes / cases[i].parts +
                                 cases[i].communicators * cuda->communicator_bytes));
  }
}
END_TEST

START_TEST(what_was_not_measured_is_interpolated) {
  double sums[PLAN_DIRECTION_COUNT];
  write_profile(4, sums);
  predict("stages = 1\nmicrobatches = 3");
  const double *share = prediction.source_share;
  ck_assert_double_gt(share[PLAN_SOURCE_MEASURED], 0.3);
  ck_assert_double_gt(share[PLAN_SOURCE_INTERPOLATED], 0.05);
  near(share[PLAN_SOURCE_MEASURED] + share[PLAN_SOURCE_INTERPOLATED] + share[PLAN_SOURCE_ANALYTIC], 1);
  const double measured = hypot(efficiency->band_measured, 0.12);
  ck_assert_double_gt(prediction.error_band, measured);
  ck_assert_double_lt(prediction.error_band, hypot(measured, 0.3) + 1e-12);
  const sim_assumption *rows = NULL;
  int count = 0;
  OK(sim_assumptions_of(&scenario, efficiency, &prediction, &prediction.arena, &rows, &count, &error));
  char expected[100];
  (void)snprintf(expected, sizeof expected, "%.0f %% measured for these shapes, %.0f %% interpolated",
                 100 * share[PLAN_SOURCE_MEASURED], 100 * share[PLAN_SOURCE_INTERPOLATED]);
  ck_assert_str_eq(rows[0].what, "the step");
  ck_assert_msg(strstr(rows[0].value, expected) != NULL, "%s: found %s", expected, rows[0].value);
  ck_assert_ptr_nonnull(strstr(rows[0].source, "profile.json"));
}
END_TEST

START_TEST(a_profile_of_something_else_is_refused) {
  double sums[PLAN_DIRECTION_COUNT];
  write_profile(0, sums);
  ck_assert_int_eq(read_scenario("stages = 1", "profile = \"profile.json\"\n[device]\nfp16_tflops = 1\n", "fp16"),
                   DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, "cluster.profile: found one of cpu in fp32, allowed: of cpu in fp16") != NULL, "%s",
                error.text);
  plan_profile profile;
  OK(plan_profile_read("profile.json", &profile, &error));
  profile.device = "CPU-8-cores";
  OK(plan_profile_write(&profile, "other.json", &error));
  plan_profile_free(&profile);
  ck_assert_int_eq(read_scenario("stages = 1", "profile = \"other.json\"", "fp32"), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text,
                       "profile.toml:12: cluster.profile: found one of CPU-8-cores, allowed: of a device of "
                       "the cluster (CPU-core)") != NULL,
                "%s", error.text);
  ck_assert_int_eq(read_scenario("stages = 1", "profile = 3", "fp32"), DP_BAD_INPUT);
  ck_assert_int_eq(read_scenario("stages = 1", "profile = \"none.json\"", "fp32"), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, "cluster.profile: found \"none.json\", which cannot be opened") != NULL, "%s",
                error.text);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_measured_step_is_the_sum_of_what_was_measured,
                                workers_side_by_side_slow_each_other,
                                copies_and_sums_are_as_measured,
                                workers_meet_over_norms_as_measured,
                                a_lone_workers_norm_is_in_its_step,
                                the_exchange_of_norms_is_no_gradients,
                                a_machines_workers_share_its_process,
                                a_cards_parts_share_its_context,
                                what_was_not_measured_is_interpolated,
                                a_profile_of_something_else_is_refused};
  return suite_run("sim_profile", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
