/* What the plan's transport does to predictions: times of single messages against what was measured or follows from the
 * catalogue's rows, and what must not change. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/assumptions.h"
#include "tests/sim_texts.h"

#define MIB 1048576.0

static run r;

static void teardown(void) {
  end_run(&r);
  free_efficiency();
}

static void do_run(const char *text) {
  end_run(&r);
  memset(&r, 0, sizeof r);
  load_as("s.toml", text, &r.scenario);
  predict(&r.scenario, &r.prediction);
}

/* Two stages of one unit each, sampling one step of one microbatch: one message of so many bytes, from a worker that
 * has stopped computing to one that has not begun, or (busy) to one that computes meanwhile. Its seconds. */
static double message_s(const char *cluster, const char *plan, double bytes, bool busy) {
  char text[1024];
  (void)snprintf(text, sizeof text,
                 HEAD
                 "[model]\nsynthetic_units = 2\nforward_us = 100000\nboundary_bytes = %.0f\n%s[task]\nkind = "
                 "\"sample\"\nsteps = 1\n[plan]\nmicrobatches = %d\n%s",
                 bytes, cluster, busy ? 2 : 1, plan);
  do_run(text);
  const plan_program *program = &r.prediction.program;
  for (uint32_t i = 0; i < program->instruction_count; i++)
    if (program->instructions[i].opcode == PLAN_SEND) /* the first one; of two, beside the second forward */
      return r.prediction.timeline.end_s[i] - r.prediction.timeline.start_s[i];
  ck_abort_msg("no message");
  return 0;
}

static void assert_near(double found, double expected, double tolerance) {
  ck_assert_msg(fabs(found - expected) <= tolerance * fabs(expected), "found %.9g, expected %.9g within %g", found,
                expected, tolerance);
}

static const char h200[] = CARDS("H200-SXM-141GB", "2");
static const char a100[] = CARDS("A100-SXM4-80GB", "2");
static const char rtx[] = CARDS("RTX-4090", "2");
static const char parts[] = CARDS("H200-SXM-141GB", "1\nvirtual = 2");
static const char two_nodes[] =
    "[cluster]\n[[cluster.fabric]]\nname = \"ib\"\n[[cluster.node]]\ncount = 2\n[[cluster.node.device]]\nmodel = "
    "\"H200-SXM-141GB\"\n[[cluster.node.nic]]\nlink = \"ib-ndr400\"\nfabric = \"ib\"\n";
#define NCCL "transport = \"nccl\"\n"
#define HOST "transport = \"host\"\n"

/* Two H200, as measured: NCCL's send and receive alone, beside GEMMs, and on 20 SMs of its own. */
START_TEST(nccl_takes_what_was_measured) {
  static const struct {
    const char *plan;
    bool busy;
    double bytes, us, gb_per_s, tolerance;
  } cells[] = {
      {NCCL, false, 4096, 13, 0, 0.15},
      {NCCL, false, 2 * MIB, 15, 0, 0.15},
      {NCCL, false, 128 * MIB, 0, 351, 0.02},
      {NCCL, false, 1024 * MIB, 0, 370, 0.02},
      {NCCL, true, 4096, 163, 0, 0.02},
      {NCCL, true, 2 * MIB, 303, 0, 0.02},
      {NCCL, true, 128 * MIB, 0, 101, 0.02},
      {NCCL, true, 1024 * MIB, 0, 287, 0.02},
      {"", false, 4096, 1.8, 0, 0.02},
      {"", true, 128 * MIB, 0, 393, 0.01},
      {NCCL "nccl_sms = 20\n", false, 4096, 16, 0, 0.02},
      {NCCL "nccl_sms = 20\n", true, 4096, 16, 0, 0.02},
      {NCCL "nccl_sms = 20\n", true, 128 * MIB, 0, 198, 0.02},
  };
  for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
    const double s = message_s(h200, cells[i].plan, cells[i].bytes, cells[i].busy);
    if (cells[i].us > 0)
      assert_near(1e6 * s, cells[i].us, cells[i].tolerance);
    else
      assert_near(cells[i].bytes / s / 1e9, cells[i].gb_per_s, cells[i].tolerance);
  }
}
END_TEST

/* 12 SMs are 120 left for compute in groups of 8; 40 are 88 left and 44 NCCL's, which carry more than NCCL sends. */
START_TEST(kept_sms_carry_their_share) {
  static const struct {
    const char *plan;
    double gb_per_s;
  } cases[] = {{NCCL "nccl_sms = 12\n", 202.7 * 12 / 20},
               {NCCL "nccl_sms = 20\n", 202.7},
               {NCCL "nccl_sms = 16\n", 202.7}, /* compute has 112 anyway */
               {NCCL "nccl_sms = 40\n", 371}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const double bytes = 4096 * MIB;
    assert_near(message_s(h200, cases[i].plan, bytes, false), 15.98e-6 + bytes / (cases[i].gb_per_s * 1e9), 1e-9);
  }
}
END_TEST

/* Through host memory, between cards that could do better: pcie5-x16-host; parts of a card: host-staged, 27 GB/s. */
START_TEST(host_takes_the_way_through_host_memory) {
  const double bytes = 256 * MIB;
  assert_near(message_s(h200, HOST, bytes, false), 11.6e-6 + bytes / 37e9, 1e-9);
  assert_near(message_s(a100, HOST, bytes, false), 14.5e-6 + bytes / 21.2e9, 1e-9);
  assert_near(message_s(parts, HOST, bytes, false), 11.6e-6 + bytes / 27e9, 1e-9);
  assert_near(message_s(parts, HOST, bytes, true), 11.6e-6 + bytes / 25e9, 1e-3);
  /* over two sockets: the link between them, 16 GB/s as NCCL assumes */
  static const char sockets[] =
      "[cluster]\n[[cluster.node]]\n[[cluster.node.pcie]]\nname = \"r0\"\n[[cluster.node.pcie]]\nname = \"r1\"\n"
      "[[cluster.node.device]]\nmodel = \"H200-SXM-141GB\"\npcie = \"r0\"\n"
      "[[cluster.node.device]]\nmodel = \"H200-SXM-141GB\"\npcie = \"r1\"\n";
  assert_near(message_s(sockets, HOST, bytes, false), 11.6e-6 + bytes / 16e9, 1e-9);
  assert_near(message_s(sockets, "", bytes, false), message_s(h200, "", bytes, false), 1e-12); /* NVSwitch */
  /* no such row: in proportion to pcie5-x16 and pcie5-x16-host, 240 GB/s, of which host memory carries 100 */
  const char c2c[] = CARDS("GH200-96GB", "2");
  assert_near(message_s(c2c, HOST, bytes, false), (2.5 + 11.6 - 2.5) * 1e-6 + bytes / 100e9, 1e-9);
}
END_TEST

/* A100's NVLink has no row for NCCL: it takes what NCCL takes over the H200's for a message as much larger as that is
 * faster, since both begin to copy after 1.79 us. */
START_TEST(what_was_not_measured_is_estimated_in_proportion) {
  for (double bytes = 4096; bytes < 1e10; bytes *= 7) {
    assert_near(message_s(a100, NCCL, bytes, false), message_s(h200, NCCL, bytes * 397 / 240, false), 1e-6);
    assert_near(message_s(a100, NCCL, bytes, true), message_s(h200, NCCL, bytes * 397 / 240, true), 1e-6);
  }
  assert_near(message_s(a100, NCCL, 4096 * MIB, false), 11.2e-6 + 4096 * MIB / (240e9 * 371 / 397), 1e-6);
  /* copies through the host begin after 14.5 us, and NCCL 9.41 us later; 22.4 of 24 GB/s are within any SMs' reach */
  const char pcie[] = CARDS("A100-PCIe-80GB", "2");
  assert_near(message_s(rtx, NCCL, 4096 * MIB, false), (14.5 + 11.2 - 1.79) * 1e-6 + 4096 * MIB / (21.2e9 * 371 / 397),
              1e-6);
  assert_near(message_s(pcie, NCCL "nccl_sms = 20\n", 4096 * MIB, true),
              (2.5 + 15.98 - 1.79) * 1e-6 + 4096 * MIB / (24e9 * 371 / 397), 1e-3);
  assert_near(message_s(parts, NCCL, 64 * MIB, false), 39.5e-6 + 64 * MIB / 9.4e9, 1e-9);
  bool told = false;
  dp_error error = DP_ERROR_INIT;
  dp_arena arena = {0};
  const sim_assumption *rows = NULL;
  int count = 0;
  (void)message_s(a100, NCCL, 64 * MIB, false);
  ck_assert_int_eq(sim_assumptions_of(&r.scenario, efficiency, &r.prediction, &arena, &rows, &count, &error), DP_OK);
  for (int i = 0; i < count; i++) {
    if (strcmp(rows[i].what, "link nvlink3-nccl") != 0) continue;
    told = true;
    ck_assert_ptr_nonnull(strstr(rows[i].value, "not verified"));
    ck_assert_str_eq(rows[i].source, "an estimate: nvlink3, changed as nvlink4-nccl is against nvlink4");
  }
  ck_assert(told);
  dp_arena_free(&arena);
}
END_TEST

/* A cluster file's own row of that name is no estimate. */
START_TEST(a_file_says_what_nccl_takes) {
  static const char own[] =
      CARDS("A100-SXM4-80GB", "2")
      "[[cluster.link]]\nname = \"nvlink3-nccl\"\nkind = \"nvlink\"\nbandwidth_gb_per_s = 200\nlatency_us = 20\n"
      "source = \"a test\"\nverified = true\n";
  assert_near(message_s(own, NCCL, 64 * MIB, false), 20e-6 + 64 * MIB / 200e9, 1e-9);
}
END_TEST

/* Networks are NCCL's own figures: only SMs of its own change what a message takes beside compute. */
START_TEST(between_machines_it_is_nccl_anyway) {
  const double alone_s = message_s(two_nodes, "", MIB, false), busy_s = message_s(two_nodes, "", MIB, true);
  ck_assert_double_gt(busy_s, alone_s + 100e-6);
  ck_assert_double_eq(message_s(two_nodes, NCCL, MIB, true), busy_s);
  ck_assert_double_eq(message_s(two_nodes, HOST, MIB, true), busy_s);
  assert_near(message_s(two_nodes, "nccl_sms = 20\n", MIB, true), alone_s + (15.98 - 11.2) * 1e-6, 1e-9);
}
END_TEST

static double step_of(const char *text) {
  do_run(text);
  return r.prediction.metrics.step_s;
}

/* To the bit: what the topology would choose is what the plan may say as well. */
START_TEST(auto_is_the_choice_of_the_topology) {
#define JOB HEAD SD15 "[plan]\nmicrobatches = 4\nskip_policy = \"direct\"\n"
  ck_assert_double_eq(step_of(JOB CARDS("H200-SXM-141GB", "2")),
                      step_of(JOB "transport = \"local\"\n" CARDS("H200-SXM-141GB", "2")));
  ck_assert_double_eq(step_of(JOB CARDS("RTX-4090", "2")), step_of(JOB HOST CARDS("RTX-4090", "2")));
  ck_assert_double_lt(step_of(JOB CARDS("H200-SXM-141GB", "2")), step_of(JOB NCCL CARDS("H200-SXM-141GB", "2")));
  /* gradients: NCCL's own model, whether the plan says so or not */
  ck_assert_double_eq(step_of(JOB "data_parallel = 2\n" CARDS("H200-SXM-141GB", "2")),
                      step_of(JOB "data_parallel = 2\n" NCCL CARDS("H200-SXM-141GB", "2")));
}
END_TEST

/* 132 SMs less 100 are 32: those of a quarter of the card, which compute as fast. */
START_TEST(compute_has_the_other_sms) {
  double forward_s[2] = {0, 0};
  static const char *const texts[2] = {
      HEAD SD15 "[plan]\nstages = 1\nmicrobatches = 1\nnccl_sms = 100\n" CARDS("H200-SXM-141GB", "1"),
      HEAD SD15 "[plan]\nstages = 1\nmicrobatches = 1\n" CARDS("H200-SXM-141GB", "1\nvirtual = 4")};
  for (int i = 0; i < 2; i++) {
    do_run(texts[i]);
    forward_s[i] = r.prediction.metrics.workers[0].forward_s;
  }
  ck_assert_double_gt(forward_s[0], 0);
  ck_assert_double_eq(forward_s[0], forward_s[1]);
}
END_TEST

/* Seconds of the one all-reduce of 128 MiB over `n` H200, when compute has ended. */
static double reduce_s(int n, const char *plan) {
  char text[1024];
  (void)snprintf(text, sizeof text,
                 HEAD
                 "[model]\nsynthetic_units = 1\nforward_us = 1000\nparameters = 33554432\n[cluster]\n"
                 "[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"H200-SXM-141GB\"\ncount = %d\n"
                 "[plan]\ndata_parallel = %d\nmicrobatches = 1\ngradient_buckets = 1\n%s",
                 n, n, plan);
  do_run(text);
  const plan_program *program = &r.prediction.program;
  for (uint32_t i = 0; i < program->instruction_count; i++)
    if (program->instructions[i].opcode == PLAN_ALL_REDUCE)
      return r.prediction.timeline.end_s[i] - r.prediction.timeline.start_s[i];
  ck_abort_msg("no all-reduce");
  return 0;
}

START_TEST(collectives_go_as_the_plan_says) {
  const double bytes = 128 * MIB;
  ck_assert_double_eq(reduce_s(4, ""), reduce_s(4, NCCL));
  /* one worker adds the others' and copies the sum back: each goes over a link twice, one after the other */
  assert_near(reduce_s(2, "transport = \"local\"\n"), 1.79e-6 + 2 * bytes / (397e9 * 0.995), 1e-9);
  assert_near(reduce_s(4, "transport = \"local\"\n"), 1.79e-6 + 6 * bytes / (397e9 * 0.995), 1e-9);
  assert_near(reduce_s(2, HOST), 11.6e-6 + 2 * bytes / 37e9, 1e-9);
  /* two ranks send the whole buffer each: 20 SMs carry 202.7 GB/s of it */
  const double plain_s = reduce_s(2, NCCL), kept_s = reduce_s(2, NCCL "nccl_sms = 20\n");
  ck_assert_double_gt(kept_s, plain_s);
  assert_near(kept_s, bytes / 202.7e9, 0.05);
}
END_TEST

/* [search] lists: each combination that makes sense is a candidate, predicted as a scenario with these keys would be.
 */
START_TEST(a_search_tries_transports) {
  static const char job[] = HEAD SD15
      "[task]\nglobal_batch = 8\n[search]\nschedules = [\"1f1b\"]\nmicrobatch_sizes = [1]\n"
      "data_parallel = [1]\ntensor_parallel = [1]\nrecompute = [\"none\"]\nstages = [1, 2]\n"
      "transports = [\"nccl\", \"local\"]\nnccl_sms = [0, 20]\n" CARDS("H200-SXM-141GB", "2");
  sim_tune_result found;
  do_run(job);
  search(&r.scenario, 1, &found);
  int count = 0, alone = 0; /* apart from skips' own policies, tried in the end */
  for (int t = 0; t < found.trial_count; t++)
    if (found.trials[t].candidate.skip_count == 0) *(found.trials[t].candidate.stages == 2 ? &count : &alone) += 1;
  ck_assert_int_eq(count, 3); /* nccl, nccl with 20 SMs, local */
  ck_assert_int_eq(alone, 1);
  const sim_candidate best = found.trials[found.best].candidate;
  ck_assert(best.own_transport && best.transport == PLAN_TRANSPORT_LOCAL && best.nccl_sms == 0);
  for (int t = 0; t < found.trial_count; t++) {
    const sim_trial *trial = &found.trials[t];
    char text[1024];
    if (trial->state != SIM_TRIAL_SIMULATED || trial->candidate.skip_count) continue;
    (void)snprintf(text, sizeof text,
                   HEAD SD15 "[task]\nglobal_batch = 8\n[plan]\nstages = %d\ntransport = \"%s\"\nnccl_sms = %d\n%s",
                   trial->candidate.stages, plan_transport_names[trial->candidate.transport], trial->candidate.nccl_sms,
                   h200);
    do_run(text);
    assert_near(r.prediction.metrics.step_s, trial->step_s, 1e-12);
  }
  char shown[256];
  ck_assert_ptr_nonnull(strstr(sim_candidate_show(&best, shown), ", transport local"));
  sim_tune_result_free(&found);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("sim: transport");
  TCase *tests = suite_case(suite, "all", read_efficiency, teardown, 120);
  tcase_add_test(tests, nccl_takes_what_was_measured);
  tcase_add_test(tests, kept_sms_carry_their_share);
  tcase_add_test(tests, host_takes_the_way_through_host_memory);
  tcase_add_test(tests, what_was_not_measured_is_estimated_in_proportion);
  tcase_add_test(tests, a_file_says_what_nccl_takes);
  tcase_add_test(tests, between_machines_it_is_nccl_anyway);
  tcase_add_test(tests, auto_is_the_choice_of_the_topology);
  tcase_add_test(tests, compute_has_the_other_sms);
  tcase_add_test(tests, collectives_go_as_the_plan_says);
  tcase_add_test(tests, a_search_tries_transports);
  return suite_finish(suite);
}
