/* sim/engine.h: small cases worked out by hand, closed forms, random programs against the plain engine of
 * tests/sim_reference.c, and the laws that hold for every program. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim_laws.h"
#include "tests/sim_programs.h"
#include "tests/sim_reference.h"
#include "tests/suite.h"

static dp_error error;
static plan_program program;
static plan_timeline timeline;
static sim_figures figures;
static sim_statistics statistics;

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  program = (plan_program){.worker_count = 0};
  timeline = (plan_timeline){.program = NULL};
  figures = (sim_figures){.work_s = NULL};
}
static void teardown(void) {
  plan_timeline_free(&timeline);
  sim_figures_free(&figures);
  dp_arena_free(&program.arena);
}
static void again(void) {
  teardown();
  setup();
}

static void run(void) {
  ck_assert_int_eq(plan_timeline_init(&program, &timeline, &error), DP_OK);
  const dp_status status = sim_run(&figures.input, &timeline, &statistics, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}
static void near(double found, double wanted) {
  ck_assert_msg(fabs(found - wanted) <= 1e-9 * fmax(fabs(wanted), 1), "found %.17g, wanted %.17g", found, wanted);
}
static void span(uint32_t id, double start_s, double end_s) {
  near(timeline.start_s[id], start_s);
  near(timeline.end_s[id], end_s);
}

/* --- worked out by hand --- */

/* Workers 0 and 1: one compute instruction each, and a transfer from 0 to 1 that waits for nothing. Ids: 0 compute and
 * 1 SEND on worker 0, 2 compute and 3 RECV on worker 1. */
static void one_transfer(double work_0_s, double work_1_s, sim_transfer transfer) {
  sim_draft draft = {0};
  sim_draft_add(&draft, sim_draft_lane(&draft, 0, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false), PLAN_FORWARD, 0, 0,
                PLAN_NO_PEER);
  sim_draft_add(&draft, sim_draft_lane(&draft, 1, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false), PLAN_FORWARD, 0, 1,
                PLAN_NO_PEER);
  sim_draft_pair(&draft, 0, 1, false, 0, 0);
  sim_draft_finish(&draft, 2, &program);
  sim_figures_line(&program, work_0_s, work_1_s, 0, 0, 10, &figures);
  transfer.links = figures.messages[0].links;
  figures.messages[0] = transfer;
  run();
}

START_TEST(alone_a_transfer_takes_latency_and_bytes_over_bandwidth) {
  one_transfer(0, 0, (sim_transfer){.hops = 1, .bytes = 30, .latency_s = 0.5, .busy_latency_s = 0.5});
  span(1, 0, 3.5);
  span(3, 0, 3.5);
  near(timeline.step_s, 3.5);
  again();
  one_transfer(0, 0,
               (sim_transfer){.hops = 1,
                              .bytes = 30,
                              .latency_s = 0.5,
                              .busy_latency_s = 0.5,
                              .cap_bytes_per_s = 6,
                              .busy_cap_bytes_per_s = 6});
  span(1, 0, 5.5);
}

START_TEST(zero_bytes_take_no_time) {
  one_transfer(2, 1, (sim_transfer){.hops = 1, .latency_s = 9, .busy_latency_s = 9, .compute_slowdown = 1});
  span(1, 0, 0);
  span(0, 0, 2);
  span(2, 0, 1);
}

START_TEST(compute_slows_down_while_a_transfer_lasts) {
  /* 4 s at 1 / 1.5 do 8/3 s of work; the rest runs at full speed. */
  one_transfer(10, 1, (sim_transfer){.hops = 1, .bytes = 40, .compute_slowdown = 0.5});
  span(1, 0, 4);
  span(0, 0, 4 + 10 - 4 / 1.5);
  span(2, 0, 1.5);
  near(timeline.step_s, 14 - 4 / 1.5);
}

/* What the RECV waits for has come at once; the SEND waits for 2 s of work. */
START_TEST(compute_slows_down_while_its_end_waits_for_the_other) {
  sim_draft draft = {0};
  const uint32_t first = sim_draft_add(&draft, sim_draft_lane(&draft, 0, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false),
                                       PLAN_FORWARD, 0, 0, PLAN_NO_PEER);
  sim_draft_add(&draft, sim_draft_lane(&draft, 1, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false), PLAN_FORWARD, 0, 1,
                PLAN_NO_PEER);
  sim_draft_wait(&draft, sim_draft_pair(&draft, 0, 1, false, 0, 0), first);
  sim_draft_finish(&draft, 2, &program);
  sim_figures_line(&program, 2, 10, 0, 0, 10, &figures);
  figures.messages[0] = (sim_transfer){
      .links = figures.messages[0].links, .hops = 1, .bytes = 40, .compute_slowdown = 0.25, .waiting_slowdown = 1};
  run();
  span(0, 0, 2);
  span(1, 2, 6);
  span(2, 0, 2 + 4 + (10 - 2 / 2.0 - 4 / 1.25)); /* half the work, then four fifths, then all of it */
  figures.messages[0].bytes = 0;                 /* is there at once, and waits for nothing on a device */
  plan_timeline_free(&timeline);
  run();
  span(2, 0, 10);
}

START_TEST(a_transfer_beside_compute_has_busy_figures) {
  const sim_transfer transfer = {
      .hops = 1, .bytes = 20, .latency_s = 1, .busy_latency_s = 3, .busy_cap_bytes_per_s = 5};
  one_transfer(0, 0.1, transfer);
  span(1, 0, 3 + 20 / 5.0);
  again();
  one_transfer(0, 0, transfer); /* work that takes no time has ended */
  span(1, 0, 1 + 20 / 10.0);
}

/* Three workers by number: at 1 s, the sender's work ends and lets a transfer to the receiver go; at the same instant,
 * work on the receiver begins (it has waited for another transfer, from the third worker) or ends. The transfer takes 1
 * s alone and 5 s beside compute. Returns how long it took. */
static double transfer_at_a_shared_instant(uint32_t sender, uint32_t receiver, uint32_t third, bool begins) {
  sim_draft draft = {0};
  const uint32_t sends = sim_draft_lane(&draft, sender, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false);
  const uint32_t receives = sim_draft_lane(&draft, receiver, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false);
  const uint32_t before = sim_draft_add(&draft, sends, PLAN_FORWARD, 0, 0, PLAN_NO_PEER);
  const uint32_t beside = sim_draft_add(&draft, receives, PLAN_FORWARD, 0, 0, PLAN_NO_PEER);
  const uint32_t other = sim_draft_pair(&draft, third, receiver, false, 0, 0);
  if (begins) sim_draft_wait(&draft, beside, other + 1);
  sim_draft_wait(&draft, sim_draft_pair(&draft, sender, receiver, false, 0, 1), before);
  sim_draft_finish(&draft, 3, &program);
  sim_figures_line(&program, 1, 1, 10, 0, 10, &figures);
  figures.messages[1].busy_latency_s = 4;
  run();
  for (uint32_t i = 0; i < program.instruction_count; i++) {
    if (program.instructions[i].opcode != PLAN_SEND || program.instructions[i].class_id != 1) continue;
    near(timeline.start_s[i], 1);
    return timeline.end_s[i] - timeline.start_s[i];
  }
  return NAN;
}

START_TEST(what_happens_at_one_instant_is_one_change) {
  for (uint32_t sender = 0; sender < 3; sender++) {
    for (uint32_t turn = 1; turn < 3; turn++) {
      const uint32_t receiver = (sender + turn) % 3, third = (sender + 3 - turn) % 3;
      near(transfer_at_a_shared_instant(sender, receiver, third, true), 5);
      again();
      near(transfer_at_a_shared_instant(sender, receiver, third, false), 1);
      again();
    }
  }
}

/* Two senders, one receiver each, both flows over link 0. Instruction ids: SENDs 0 and 1, RECVs 2 and 3. */
static void two_over_one_root(double bytes_0, double bytes_1, double latency_s) {
  sim_draft draft = {0};
  sim_draft_pair(&draft, 0, 2, false, 0, 0);
  sim_draft_pair(&draft, 1, 3, false, 0, 1);
  sim_draft_finish(&draft, 4, &program);
  sim_figures_line(&program, 0, 0, 0, latency_s, 10, &figures);
  figures.messages[0].bytes = bytes_0;
  figures.messages[1].bytes = bytes_1;
  figures.links[1] = 0;
  run();
}

START_TEST(two_over_one_root_take_twice_as_long) {
  two_over_one_root(100, 100, 0.25);
  span(0, 0, 20.25);
  span(1, 0, 20.25);
  ck_assert_uint_eq(statistics.shared_flows, 2);
  again();
  two_over_one_root(100, 30, 0.25); /* 30 each by t = 6, then the first goes on alone */
  span(1, 0, 6.25);
  span(0, 0, 13.25);
  again();
  two_over_one_root(100, 0, 0.25);
  span(0, 0, 10.25);
}

START_TEST(a_lane_may_send_to_several_lanes) {
  sim_draft draft = {0};
  const uint32_t sends = sim_draft_lane(&draft, 0, PLAN_LANE_SEND, 1, false);
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t receives = sim_draft_lane(&draft, 1, PLAN_LANE_RECV, 0, i % 2 == 1);
    const uint32_t send = sim_draft_add(&draft, sends, PLAN_SEND, i, 0, 2 * i + 1);
    sim_draft_add(&draft, receives, PLAN_RECV, i, 0, send);
  }
  const uint32_t computes = sim_draft_lane(&draft, 1, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false);
  for (uint32_t i = 0; i < 4; i++) {
    sim_draft_wait(&draft, sim_draft_add(&draft, computes, PLAN_FORWARD, i, 0, PLAN_NO_PEER), 2 * i + 1);
  }
  sim_draft_finish(&draft, 2, &program);
  sim_figures_line(&program, 0.5, 0, 10, 0, 10, &figures);
  run();
  for (uint32_t i = 0; i < 4; i++) {
    span(i, i, i + 1);
    span(program.instructions[i].peer, i, i + 1);
    span(4 + i, i + 1, i + 1.5); /* what waits for the RECV */
  }
}

START_TEST(the_host_sets_the_pace_of_small_work) {
  sim_draft draft = {0};
  for (uint32_t w = 0; w < 2; w++) {
    const uint32_t lane = sim_draft_lane(&draft, w, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false);
    for (uint32_t i = 0; i < 3; i++) sim_draft_add(&draft, lane, PLAN_FORWARD, i, 0, PLAN_NO_PEER);
  }
  sim_draft_finish(&draft, 2, &program);
  sim_figures_line(&program, 1, 1, 0, 0, 1, &figures);
  figures.work_issue_s[0] = 3;
  figures.input.work_issue_s = figures.work_issue_s;
  run();
  for (uint32_t i = 0; i < 6; i++) span(i, 3.0 * (i % 3), 3.0 * (i % 3) + 3);
  near(timeline.issue_s[5], 9);

  plan_timeline_free(&timeline);
  figures.work_s[0] = 5; /* now the device is slower: the host runs ahead */
  run();
  for (uint32_t i = 0; i < 6; i++) span(i, 5.0 * (i % 3), 5.0 * (i % 3) + 5);
  near(timeline.issue_s[5], 9);

  plan_timeline_free(&timeline);
  figures.input.worker_host = figures.worker_host; /* both on host 0: they take turns */
  run();
  for (uint32_t i = 0; i < 3; i++) {
    near(timeline.issue_s[i], 6 * i + 3.0);
    near(timeline.issue_s[3 + i], 6 * i + 6.0);
    span(i, 6 * i, 6 * i + 5);
    span(3 + i, 6 * i + 3, 6 * i + 8);
  }
}

START_TEST(an_all_reduce_starts_with_its_last_member) {
  sim_draft draft = {0};
  for (uint32_t w = 0; w < 3; w++) {
    const uint32_t lane = sim_draft_lane(&draft, w, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false);
    const uint32_t work = sim_draft_add(&draft, lane, PLAN_BACKWARD, 0, w, PLAN_NO_PEER);
    const uint32_t ring = sim_draft_lane(&draft, w, PLAN_LANE_COLLECTIVE, PLAN_NO_PEER, false);
    const uint32_t reduce = sim_draft_add(&draft, ring, PLAN_ALL_REDUCE, 0, 0, 0);
    sim_draft_wait(&draft, reduce, work);
    sim_draft_wait(&draft, sim_draft_add(&draft, lane, PLAN_OPTIMIZER_STEP, 0, 3, PLAN_NO_PEER), reduce);
  }
  dp_array_push(&draft.groups, 0);
  sim_draft_pair(&draft, 0, 1, false, 0, 0);
  sim_draft_finish(&draft, 3, &program);
  sim_figures_line(&program, 0, 0, 100, 0, 10, &figures);
  for (int w = 0; w < 3; w++) figures.work_s[w] = 1 + w;
  figures.work_s[3] = 0.5;
  const int ring[] = {0};
  figures.collectives[0] = (sim_transfer){.links = ring, .hops = 1, .bytes = 20, .latency_s = 1, .busy_latency_s = 1};
  run();
  /* The ring starts at 3 and shares link 0 with the pair's flow, which has 70 left: 20 at 5/s take it to 7, then 1. */
  for (int w = 0; w < 3; w++) {
    const uint32_t first = program.lanes[program.worker_lane[w]].first;
    span(first, 0, 1 + w);
    span(first + 1, 8, 8.5);
    span(program.lanes[program.worker_lane[w + 1] - 1].first, 3, 8);
  }
  const uint32_t send = program.lanes[program.worker_lane[0] + 1].first;
  ck_assert_int_eq(program.instructions[send].opcode, PLAN_SEND);
  span(send, 0, 7 + 5);
}

START_TEST(a_program_that_cannot_go_on_is_told) {
  sim_draft draft = {0};
  for (uint32_t w = 0; w < 2; w++) { /* each waits to receive before it sends */
    const uint32_t lane = sim_draft_lane(&draft, w, PLAN_LANE_COMPUTE, PLAN_NO_PEER, false);
    sim_draft_add(&draft, lane, PLAN_FORWARD, 7, 0, PLAN_NO_PEER);
  }
  const uint32_t there = sim_draft_pair(&draft, 0, 1, false, 0, 0), back = sim_draft_pair(&draft, 1, 0, true, 0, 1);
  sim_draft_wait(&draft, there, back + 1);
  sim_draft_wait(&draft, back, there + 1);
  sim_draft_finish(&draft, 2, &program);
  sim_figures_line(&program, 1, 1, 1, 1, 1, &figures);
  ck_assert_int_eq(plan_timeline_init(&program, &timeline, &error), DP_OK);
  ck_assert_int_eq(sim_run(&figures.input, &timeline, NULL, &error), DP_INTERNAL);
  char first[128], second[128];
  ck_assert_ptr_nonnull(strstr(error.text, plan_instruction_show(&program, 1, first)));
  ck_assert_ptr_nonnull(strstr(error.text, plan_instruction_show(&program, 4, second)));
  ck_assert_ptr_null(strchr(error.text, '\n'));
}

START_TEST(figures_that_are_no_figures_are_refused) {
  sim_program_1f1b(2, 2, &program);
  sim_figures_line(&program, 1, 1, 1, 1, 1, &figures);
  ck_assert_int_eq(plan_timeline_init(&program, &timeline, &error), DP_OK);
  double *const places[] = {&figures.work_s[1],
                            &figures.capacity[0],
                            &figures.messages[1].bytes,
                            &figures.messages[0].latency_s,
                            &figures.messages[1].compute_slowdown,
                            &figures.messages[0].waiting_slowdown};
  for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
    const double bad[] = {-1, NAN, INFINITY}, good = *places[p];
    for (size_t b = 0; b < 3; b++) {
      *places[p] = bad[b];
      ck_assert_int_eq(sim_run(&figures.input, &timeline, NULL, &error), DP_INTERNAL);
    }
    *places[p] = good;
  }
  figures.links[0] = 2;
  ck_assert_int_eq(sim_run(&figures.input, &timeline, NULL, &error), DP_INTERNAL);
  ck_assert_ptr_nonnull(strstr(error.text, "link 2"));
  figures.links[0] = 1;
  ck_assert_int_eq(sim_run(&figures.input, &timeline, NULL, &error), DP_OK);
}

/* --- closed forms, without the compiler --- */

START_TEST(one_forward_one_backward_takes_its_closed_form) {
  for (int p = 2; p <= 8; p *= 2) {
    for (int m = 1; m <= 32; m++) {
      sim_program_1f1b(p, m, &program);
      sim_figures_line(&program, 1.25, 2.5, 0, 1, 1, &figures);
      run();
      near(timeline.step_s, (m + p - 1) * 3.75);
      again();
    }
  }
}

/* --- laws --- */

enum { SEEDS = 150 };

static void random_case(uint64_t seed, int mix) {
  dp_random random;
  dp_random_init(&random, seed, (uint64_t)mix);
  sim_program_random(&random, SIM_MIXES[mix].busy, &program);
  sim_figures_random(&random, &program, &SIM_MIXES[mix], &figures);
}

START_TEST(random_programs_run_as_the_plain_engine_says) {
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    random_case(seed, _i);
    run();
    sim_laws_check(&figures.input, &timeline);
    plan_timeline wanted;
    ck_assert_int_eq(plan_timeline_init(&program, &wanted, &error), DP_OK);
    const dp_status status = reference_run(&figures.input, &wanted, NULL, &error);
    ck_assert_msg(status == DP_OK, "%s", error.text);
    for (uint32_t i = 0; i < program.instruction_count; i++) {
      span(i, wanted.start_s[i], wanted.end_s[i]);
      if (figures.input.work_issue_s != NULL) ck_assert(timeline.issue_s[i] == wanted.issue_s[i]);
    }
    near(timeline.step_s, wanted.step_s);
    plan_timeline_free(&wanted);
    again();
  }
}

START_TEST(a_step_is_no_shorter_than_its_critical_path) {
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    random_case(seed, _i);
    run();
    double *start_s = calloc(program.instruction_count + 1, sizeof *start_s);
    const double path_s = sim_laws_lone_starts(&figures.input, start_s);
    ck_assert(timeline.step_s >= path_s * (1 - 1e-12));
    if (_i == 0) { /* nothing is shared: exactly that long, instruction by instruction */
      near(timeline.step_s, path_s);
      for (uint32_t i = 0; i < program.instruction_count; i++) near(timeline.start_s[i], start_s[i]);
    }
    free(start_s);
    again();
  }
}

START_TEST(the_same_input_gives_the_same_bits) {
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    random_case(seed, _i);
    run();
    const plan_timeline before = timeline;
    run();
    const size_t bytes = program.instruction_count * sizeof(double);
    ck_assert(bytes == 0 || memcmp(before.start_s, timeline.start_s, bytes) == 0);
    ck_assert(bytes == 0 || memcmp(before.end_s, timeline.end_s, bytes) == 0);
    ck_assert(before.step_s == timeline.step_s);
    plan_timeline keep = before;
    plan_timeline_free(&keep);
    again();
  }
}

START_TEST(unshared_faster_parts_never_lengthen_a_step) {
  const sim_figures_options options = {.link_count = 0, .max_hops = 1, .hosts = true, .shared_hosts = true};
  for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
    dp_random random;
    dp_random_init(&random, seed, 99);
    sim_program_random(&random, false, &program);
    sim_figures_random(&random, &program, &options, &figures);
    run();
    const double before_s = timeline.step_s;
    for (uint32_t i = 0; i < program.work_count; i++) {
      figures.work_s[i] *= dp_random_uniform(&random);
      figures.work_issue_s[i] *= dp_random_uniform(&random);
    }
    for (uint32_t c = 0; c < program.message_count; c++) {
      figures.messages[c].latency_s = figures.messages[c].busy_latency_s *= dp_random_uniform(&random);
      figures.messages[c].cap_bytes_per_s = figures.messages[c].busy_cap_bytes_per_s *= 1 + dp_random_uniform(&random);
    }
    plan_timeline_free(&timeline);
    run();
    ck_assert(timeline.step_s <= before_s * (1 + 1e-12));
    again();
  }
}

/* Pipelines over dedicated links, and over a switch whose ports both directions share. */
START_TEST(pipelines_run_as_the_plain_engine_says) {
  for (int p = 2; p <= 6; p += 2) {
    for (int m = 1; m <= 9; m += 4) {
      for (int shared = 0; shared < 2; shared++) {
        sim_program_1f1b(p, m, &program);
        (shared ? sim_figures_switch : sim_figures_line)(&program, 1.03, 1.97, 0.61, 0.011, 1, &figures);
        run();
        sim_laws_check(&figures.input, &timeline);
        ck_assert_int_eq(statistics.shared_flows > 0, shared && p > 2);
        plan_timeline wanted;
        ck_assert_int_eq(plan_timeline_init(&program, &wanted, &error), DP_OK);
        ck_assert_int_eq(reference_run(&figures.input, &wanted, NULL, &error), DP_OK);
        for (uint32_t i = 0; i < program.instruction_count; i++) span(i, wanted.start_s[i], wanted.end_s[i]);
        plan_timeline_free(&wanted);
        again();
      }
    }
  }
}

int main(void) {
  Suite *suite = suite_create("sim_engine");
  TCase *tcase = suite_case(suite, "sim_engine", setup, teardown, 120);
  tcase_add_test(tcase, alone_a_transfer_takes_latency_and_bytes_over_bandwidth);
  tcase_add_test(tcase, zero_bytes_take_no_time);
  tcase_add_test(tcase, compute_slows_down_while_a_transfer_lasts);
  tcase_add_test(tcase, compute_slows_down_while_its_end_waits_for_the_other);
  tcase_add_test(tcase, a_transfer_beside_compute_has_busy_figures);
  tcase_add_test(tcase, what_happens_at_one_instant_is_one_change);
  tcase_add_test(tcase, two_over_one_root_take_twice_as_long);
  tcase_add_test(tcase, a_lane_may_send_to_several_lanes);
  tcase_add_test(tcase, the_host_sets_the_pace_of_small_work);
  tcase_add_test(tcase, an_all_reduce_starts_with_its_last_member);
  tcase_add_test(tcase, a_program_that_cannot_go_on_is_told);
  tcase_add_test(tcase, figures_that_are_no_figures_are_refused);
  tcase_add_test(tcase, one_forward_one_backward_takes_its_closed_form);
  tcase_add_loop_test(tcase, random_programs_run_as_the_plain_engine_says, 0, SIM_MIX_COUNT);
  tcase_add_loop_test(tcase, a_step_is_no_shorter_than_its_critical_path, 0, SIM_MIX_COUNT);
  tcase_add_loop_test(tcase, the_same_input_gives_the_same_bits, 0, SIM_MIX_COUNT);
  tcase_add_test(tcase, unshared_faster_parts_never_lengthen_a_step);
  tcase_add_test(tcase, pipelines_run_as_the_plain_engine_says);
  return suite_finish(suite);
}
