/* exec/place: which GPU each worker has; exec/align: the clocks of several processes brought together. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "exec/place.h"

#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "exec/align.h"
#include "exec/lanes.h"
#include "sim/predict.h"
#include "tests/exec_fixture.h"
#include "tests/suite.h"
#include "tests/timeline_order.h"

static dp_error error;

static void must(dp_status status) { ck_assert_msg(status == DP_OK, "%s", error.text); }

/* GPUs by letters, a host by its name. */
static exec_host_facts facts_of(const char *host, const char *gpus) {
  exec_host_facts facts = {.gpu_count = (int32_t)strlen(gpus)};
  (void)snprintf(facts.host, sizeof facts.host, "%s", host);
  for (size_t g = 0; gpus[g]; g++) memset(facts.uuids[g], gpus[g], sizeof facts.uuids[g]);
  return facts;
}

static void check_places(const exec_host_facts *facts, int processes, int workers, const exec_place *expected) {
  exec_place places[16];
  exec_deal_places(facts, processes, workers, places);
  for (int w = 0; w < workers; w++)
    ck_assert_msg(
        places[w].gpu == expected[w].gpu && places[w].part == expected[w].part && places[w].parts == expected[w].parts,
        "worker %d of %d: GPU %d, part %d of %d", w, workers, places[w].gpu, places[w].part, places[w].parts);
}

START_TEST(processes_that_see_the_same_gpus_share_them_out) {
  const exec_host_facts two[] = {facts_of("a", "PQ"), facts_of("a", "PQ")};
  check_places(two, 2, 2, (exec_place[]){{0, 0, 1}, {1, 0, 1}});
  check_places(two, 2, 4, (exec_place[]){{0, 0, 2}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}});
  const exec_host_facts four[] = {facts_of("a", "PQ"), facts_of("a", "PQ"), facts_of("a", "PQ"), facts_of("a", "PQ")};
  check_places(four, 4, 4, (exec_place[]){{0, 0, 1}, {0, 0, 1}, {1, 0, 1}, {1, 0, 1}});
  const exec_host_facts one = facts_of("a", "PQRS");
  check_places(&one, 1, 4, (exec_place[]){{0, 0, 1}, {1, 0, 1}, {2, 0, 1}, {3, 0, 1}});
  check_places(&one, 1, 8,
               (exec_place[]){{0, 0, 2}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}, {2, 0, 2}, {2, 1, 2}, {3, 0, 2}, {3, 1, 2}});
}
END_TEST

START_TEST(a_process_with_gpus_of_its_own_keeps_them) {
  const exec_host_facts own[] = {facts_of("a", "P"), facts_of("a", "Q")};
  check_places(own, 2, 4, (exec_place[]){{0, 0, 2}, {0, 1, 2}, {0, 0, 2}, {0, 1, 2}});
  /* the same letters on two hosts are other GPUs */
  const exec_host_facts hosts[] = {facts_of("a", "PQ"), facts_of("a", "PQ"), facts_of("b", "PQ"), facts_of("b", "PQ")};
  check_places(hosts, 4, 4, (exec_place[]){{0, 0, 1}, {1, 0, 1}, {0, 0, 1}, {1, 0, 1}});
}
END_TEST

/* A whole card and two parts of another, which a machine has, or has not: then workers are dealt out over what there is. */
START_TEST(the_clusters_cards_are_the_machines_where_it_has_as_many) {
  plan_device devices[] = {{.card = 0, .parts = 1}, {.card = 1, .parts = 2}, {.card = 1, .parts = 2}};
  const plan_cluster cluster = {.devices = {.items = devices, .count = 3}};
  int of_workers[] = {2, 0, 1};
  const plan_plan plan = {.devices = of_workers};
  const plan_program program = {.plan = &plan, .worker_count = 3};
  const exec_place whole[] = {{1, 1, 2}, {0, 0, 1}, {1, 0, 2}}, fewer[] = {{0, 0, 2}, {0, 1, 2}, {1, 0, 1}},
                   one[] = {{0, 0, 3}, {0, 1, 3}, {0, 2, 3}};
  exec_place places[3];
  exec_place_workers(&program, &cluster, 2, places);
  ck_assert(memcmp(places, whole, sizeof places) == 0);
  exec_place_workers(&program, &cluster, 1, places);
  ck_assert(memcmp(places, one, sizeof places) == 0);
  devices[0].card = 2;
  exec_place_workers(&program, &cluster, 2, places);
  ck_assert(memcmp(places, fewer, sizeof places) == 0);
}
END_TEST

START_TEST(who_shares_a_gpu_is_told_by_its_name) {
  const exec_host_facts facts[] = {facts_of("a", "PQ"), facts_of("a", "QP"), facts_of("b", "PQ")};
  const exec_place places[] = {{0, 0, 1}, {1, 0, 1}, {0, 0, 1}};
  ck_assert(exec_share_gpu(facts, places, 1, 0, 1)); /* P is the first of one and the second of the other */
  ck_assert(!exec_share_gpu(facts, places, 1, 0, 2));
}
END_TEST

START_TEST(processes_can_count_as_on_other_hosts) {
  exec_host_facts facts[2];
  exec_host_facts_init(&facts[0]);
  ck_assert_int_gt((int)strlen(facts[0].host), 0);
  ck_assert_int_eq(setenv("DIFFPIPE_HOSTID", "elsewhere", 1), 0);
  exec_host_facts_init(&facts[1]);
  (void)unsetenv("DIFFPIPE_HOSTID");
  ck_assert_str_eq(facts[1].host, "elsewhere");
  ck_assert(!exec_same_host(facts, 0, 1));
}
END_TEST

/* A timeline as it was played, the clocks of some processes wrong: in order again, as long as before but for what was
 * wrong. */
static void check_clocks(const char *plan, int processes, bool evaluate) {
  const exec_fixture job = {
      .model = "sd15", .height = 128, .width = 192, .text_tokens = 7, .global_batch = 8, .plan = plan};
  plan_scenario scenario;
  sim_prediction p;
  sim_efficiency *efficiency = NULL;
  plan_groups groups;
  dp_arena arena = {0};
  dp_random random;
  must(sim_efficiency_read(NULL, &efficiency, &error));
  must(exec_fixture_scenario(&job, &scenario, &error));
  scenario.global_norm = true;
  must(sim_predict(&scenario, efficiency, &p, &error));
  must(plan_groups_of(&p.program, &arena, &groups, &error));
  plan_timeline *t = &p.timeline;
  ck_assert(timeline_is_ordered(t) && transfers_meet(t));
  dp_random_init(&random, 5, (uint64_t)processes);
  for (int round = 0; round < 20; round++) {
    const int each = p.program.worker_count / processes;
    double wrong[16];
    for (int q = 0; q < processes; q++) wrong[q] = t->step_s * dp_random_uniform(&random);
    for (uint32_t l = 0; l < p.program.lane_count; l++)
      for (uint32_t i = p.program.lanes[l].first; i < p.program.lanes[l].first + p.program.lanes[l].count; i++) {
        t->start_s[i] += wrong[(int)p.program.lanes[l].worker / each];
        t->end_s[i] += wrong[(int)p.program.lanes[l].worker / each];
      }
    must(exec_align_clocks(&p.program, evaluate ? NULL : &groups, processes, NULL, NULL, t, &error));
    for (uint32_t i = 0; i < p.program.instruction_count; i++) {
      const uint32_t peer = p.program.instructions[i].peer;
      if (p.program.instructions[i].opcode != PLAN_RECV) continue;
      const double both_s = fmax(t->start_s[i], t->start_s[peer]);
      ck_assert(both_s <= t->end_s[i] && both_s <= t->end_s[peer]);
    }
  }
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
  sim_efficiency_free(efficiency);
  dp_arena_free(&arena);
}

START_TEST(clocks_come_together) {
  check_clocks("stages = 4\nschedule = \"1f1b\"", 2, false);
  check_clocks("stages = 4\nschedule = \"folded\"", 4, false);
  check_clocks("stages = 2\nschedule = \"zb-v\"\ndata_parallel = 2", 4, false);
  check_clocks("stages = 2\nschedule = \"interleaved\"\nchunks = 3", 2, true);
}
END_TEST

static bool never_meet(const void *data, const plan_lane *sends) {
  (void)data, (void)sends;
  return false;
}

/* Between two processes, sends that end when they have begun, and receivers that begin when all has come: clocks that
 * are right are not taken for wrong, unless all sends are said to wait for their receivers. */
START_TEST(sends_may_end_before_their_receivers_begin) {
  const exec_fixture job = {.model = "sd15",
                            .height = 128,
                            .width = 192,
                            .text_tokens = 7,
                            .global_batch = 8,
                            .plan = "stages = 4\nschedule = \"1f1b\""};
  plan_scenario scenario;
  sim_prediction p;
  sim_efficiency *efficiency = NULL;
  must(sim_efficiency_read(NULL, &efficiency, &error));
  must(exec_fixture_scenario(&job, &scenario, &error));
  must(sim_predict(&scenario, efficiency, &p, &error));
  plan_timeline *t = &p.timeline;
  const uint32_t n = p.program.instruction_count;
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t send = p.program.instructions[i].peer;
    if (p.program.instructions[i].opcode != PLAN_RECV) continue;
    t->end_s[send] = t->start_s[send];
    t->start_s[i] = t->end_s[i];
  }
  double *right = malloc(2 * n * sizeof *right);
  ck_assert_ptr_nonnull(right);
  memcpy(right, t->start_s, n * sizeof *right);
  memcpy(right + n, t->end_s, n * sizeof *right);
  must(exec_align_clocks(&p.program, NULL, 4, never_meet, NULL, t, &error));
  ck_assert_int_eq(memcmp(right, t->start_s, n * sizeof *right), 0);
  ck_assert_int_eq(memcmp(right + n, t->end_s, n * sizeof *right), 0);
  must(exec_align_clocks(&p.program, NULL, 4, NULL, NULL, t, &error));
  ck_assert_int_ne(memcmp(right, t->start_s, n * sizeof *right), 0);
  free(right);
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
  sim_efficiency_free(efficiency);
}
END_TEST

/* A worker sends and then computes in the place of what it has sent; the receiver comes when that is over. It has been
 * waiting in buffers, or the clocks are wrong: the timeline has an order only where it is known which. */
START_TEST(senders_go_on_while_their_messages_wait) {
  enum { COMPUTE, SEND, RECV, COUNT };
  plan_instruction instructions[] = {
      {.opcode = PLAN_FORWARD}, {.opcode = PLAN_SEND, .peer = RECV}, {.opcode = PLAN_RECV, .peer = SEND}};
  plan_lane lanes[] = {{.kind = PLAN_LANE_COMPUTE, .first = COMPUTE, .count = 1},
                       {.kind = PLAN_LANE_SEND, .worker = 0, .peer = 1, .first = SEND, .count = 1},
                       {.kind = PLAN_LANE_RECV, .worker = 1, .peer = 0, .first = RECV, .count = 1}};
  uint32_t wait_first[] = {0, 1, 1, 1}, waits[] = {SEND};
  const plan_program program = {.instructions = instructions,
                                .instruction_count = COUNT,
                                .lanes = lanes,
                                .lane_count = 3,
                                .worker_count = 2,
                                .wait_first = wait_first,
                                .waits = waits};
  double start_s[] = {1, 0, 3}, end_s[] = {2, 1, 4};
  plan_timeline t = {.program = &program, .start_s = start_s, .end_s = end_s};
  exec_join_ends(&program, NULL, never_meet, NULL, &t);
  ck_assert(timeline_is_ordered(&t) && transfers_follow(&t));
  ck_assert(start_s[SEND] == 0 && end_s[SEND] == 1 && start_s[RECV] == 3 && end_s[RECV] == 4);
  start_s[RECV] = end_s[RECV] = -1; /* received before it was sent */
  exec_join_ends(&program, NULL, never_meet, NULL, &t);
  ck_assert(start_s[RECV] == 0 && end_s[RECV] == 0);
  start_s[RECV] = 3;
  end_s[RECV] = 4;
  exec_join_ends(&program, NULL, NULL, NULL, &t);
  ck_assert(transfers_meet(&t) && !timeline_is_ordered(&t));
}
END_TEST

/* What the plan and the hosts have it counts for nothing: GPUs that cannot map each other's memory go another way. */
START_TEST(sends_meet_where_the_receiver_copies) {
  plan_lane lanes[] = {{.kind = PLAN_LANE_SEND, .worker = 0, .peer = 1},
                       {.kind = PLAN_LANE_SEND, .worker = 1, .peer = 0}};
  plan_plan plan = {.transport_wanted = PLAN_TRANSPORT_LOCAL};
  plan_program program = {.plan = &plan, .lanes = lanes, .lane_count = 2, .worker_count = 2};
  exec_host_facts facts[2] = {{.host = "a"}, {.host = "a"}};
  uint8_t meets[] = {1, 0};
  exec_transport transport = {.process_count = 2};
  exec_pipeline p = {.work = {.program = &program, .plan = &plan, .facts = facts, .options = {.transport = &transport}},
                     .meets = meets};
  ck_assert(exec_sends_meet(&p, &lanes[0]) && !exec_sends_meet(&p, &lanes[1]));
  p.meets = NULL; /* not on devices */
  ck_assert(exec_sends_meet(&p, &lanes[0]) && exec_sends_meet(&p, &lanes[1]));
  p.meets = meets;
  transport.process_count = 1;
  ck_assert(exec_sends_meet(&p, &lanes[1]));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {processes_that_see_the_same_gpus_share_them_out,
                                a_process_with_gpus_of_its_own_keeps_them,
                                the_clusters_cards_are_the_machines_where_it_has_as_many,
                                who_shares_a_gpu_is_told_by_its_name,
                                processes_can_count_as_on_other_hosts,
                                clocks_come_together,
                                sends_may_end_before_their_receivers_begin,
                                senders_go_on_while_their_messages_wait,
                                sends_meet_where_the_receiver_copies};
  return suite_run("exec place", tests, sizeof tests / sizeof tests[0], NULL, NULL, 60);
}
