/* Predictions between whole GPUs whose links a profile has: messages and all-reduces take what was measured, as much more
 * or less as another cluster's links carry, and what was not measured stays as it was. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "plan/nccl.h"
#include "plan/profile_rows.h"
#include "plan/profile_run_links.h"
#include "sim/assumptions.h"
#include "tests/scratch.h"
#include "tests/sim_texts.h"

#define MIB 1048576.0

static run r;
static dp_error error;
static double nccl_slowdown; /* of write_profile */
#define OK(call) ck_assert_msg((call) == DP_OK, "%s", error.text)

static void setup(void) {
  error = (dp_error)DP_ERROR_INIT;
  nccl_slowdown = 0;
  read_efficiency();
  scratch_enter();
}

static void teardown(void) {
  end_run(&r);
  memset(&r, 0, sizeof r);
  scratch_clean(scratch);
  scratch_leave();
  free_efficiency();
}

static const plan_profile_link local = {.way = PLAN_PROFILE_LOCAL,
                                        .link = "nvlink4",
                                        .link_bytes_per_s = 397e9,
                                        .link_latency_s = 1.79e-6,
                                        .gpus = 2,
                                        .handover_s = 5e-6};

/* 10 us and 100 us for a hundred times as much, beside compute twice that. */
static void write_profile(const plan_profile_link *links, int count) {
  plan_profile profile = {.nccl_slowdown = nccl_slowdown,
                          .device = "H200-SXM-141GB",
                          .processor = "by hand",
                          .cores = 132,
                          .threads = 1,
                          .workers = 1,
                          .implementation = "cuda",
                          .precision = GRAPH_BF16,
                          .gemm = "none",
                          .made = "2026-01-01T00:00:00Z",
                          .optimizer_busy_factor = 1};
  for (int i = 0; i < count; i++) {
    plan_profile_link link = links[i];
    ck_assert(dp_array_push(&link.points, ((plan_profile_point){MIB, 1e-5, 2e-5})));
    ck_assert(dp_array_push(&link.points, ((plan_profile_point){100 * MIB, 1e-4, 2e-4})));
    OK(plan_profile_set_link(&profile, &link, &error));
  }
  OK(plan_profile_write(&profile, "profile.json", &error));
  plan_profile_free(&profile);
}

static void do_run(const char *cluster, const char *plan) {
  char text[2048];
  (void)snprintf(text, sizeof text,
                 HEAD SD15 "precision = \"bf16\"\n[task]\nimplementation = \"cuda\"\n%s[plan]\nmicrobatch_size = 4\n%s",
                 cluster, plan);
  end_run(&r);
  memset(&r, 0, sizeof r);
  load_as("s.toml", text, &r.scenario);
  predict(&r.scenario, &r.prediction);
}

/* The first one, with its bytes. */
static double span_s(plan_opcode opcode, double *bytes) {
  const plan_program *program = &r.prediction.program;
  for (uint32_t i = 0; i < program->instruction_count; i++) {
    const plan_instruction *one = &program->instructions[i];
    if (one->opcode != opcode) continue;
    *bytes = (double)(opcode == PLAN_SEND ? program->messages[one->class_id].bytes
                                          : program->collectives[one->class_id].bytes);
    return r.prediction.timeline.end_s[i] - r.prediction.timeline.start_s[i];
  }
  ck_abort_msg("no such instruction");
  return 0;
}

/* A message between two stages, from one that has stopped computing, or (busy) goes on. */
static double message_s(const char *cluster, const char *plan, bool busy, double *bytes) {
  char plans[256];
  (void)snprintf(plans, sizeof plans, "stages = 2\nschedule = \"1f1b\"\nmicrobatches = %d\n%s", busy ? 2 : 1, plan);
  do_run(cluster, plans);
  return span_s(PLAN_SEND, bytes);
}

/* What write_profile says of so many bytes alone. */
static double measured_s(double bytes) { return 1e-5 * pow(10, log(bytes / MIB) / log(100)); }

static void near(double found, double expected) {
  ck_assert_msg(fabs(found - expected) <= 1e-9 * fabs(expected), "found %.12g, expected %.12g", found, expected);
}

#define NODE "[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"H200-SXM-141GB\"\n"
#define PROFILE "[cluster]\nprofile = \"profile.json\"\n"
static const char two[] = PROFILE NODE "count = 2\n";
static const char four[] = PROFILE NODE "count = 4\n";
static const char four_bare[] = "[cluster]\n" NODE "count = 4\n";
static const char two_bare[] = "[cluster]\n" NODE "count = 2\n";
static const char parts[] = PROFILE NODE "virtual = 2\n", parts_bare[] = "[cluster]\n" NODE "virtual = 2\n";

START_TEST(messages_take_what_was_measured) {
  plan_profile_link links[] = {local, local, local};
  links[1].way = PLAN_PROFILE_HOST;
  links[1].link = "pcie5-x16-host";
  links[1].link_bytes_per_s = 37e9;
  links[1].link_latency_s = 11.6e-6;
  links[2].way = PLAN_PROFILE_NCCL;
  links[2].link = "nvlink4-nccl";
  links[2].link_bytes_per_s = 371e9;
  links[2].link_latency_s = 11.2e-6;
  links[2].handover_s = 0;
  write_profile(links, 3);
  static const char *const plans[] = {"transport = \"local\"\n", "transport = \"host\"\n", "transport = \"nccl\"\n"};
  double bytes;
  for (int i = 0; i < 3; i++) {
    const double alone_s = message_s(two, plans[i], false, &bytes);
    ck_assert(bytes > MIB && bytes < 100 * MIB);
    near(alone_s, links[i].handover_s + measured_s(bytes));
    near(message_s(two, plans[i], true, &bytes), links[i].handover_s + 2 * measured_s(bytes));
  }
  near(message_s(two, "", false, &bytes), 5e-6 + measured_s(bytes)); /* copies are what it chooses itself */
  /* on multiprocessors of its own NCCL was not measured, nor between parts of a card: as without the profile */
  const char *apart = "transport = \"nccl\"\nnccl_sms = 20\n";
  near(message_s(two, apart, false, &bytes), message_s(two_bare, apart, false, &bytes));
  near(message_s(parts, "", false, &bytes), message_s(parts_bare, "", false, &bytes));
}
END_TEST

START_TEST(other_links_are_not_those_that_were_measured) {
  plan_profile_link link = local;
  double bytes;
  link.link = "nvlink3";
  write_profile(&link, 1);
  near(message_s(two, "", false, &bytes), message_s(two_bare, "", false, &bytes));
}
END_TEST

/* Half as wide: what goes by size takes twice as long; and what comes later comes as much later. */
START_TEST(a_slower_cluster_is_slower_in_proportion) {
  char cluster[512];
  double bytes;
  write_profile(&local, 1);
  (void)snprintf(cluster, sizeof cluster, "%s[link.nvlink]\nbandwidth_gb_per_s = 198.5\n", two);
  const double half_s = message_s(cluster, "", false, &bytes);
  near(half_s, 5e-6 + 1e-5 + 2 * (measured_s(bytes) - 1e-5));
  (void)snprintf(cluster, sizeof cluster, "%s[link.nvlink]\nlatency_us = 11.79\n", two);
  near(message_s(cluster, "", false, &bytes), 5e-6 + measured_s(bytes) + 1e-5);
}
END_TEST

/* A pipeline that sends forward and back at once, for so long that it waits for that. */
static double step_s(double both_bytes_per_s, double together_bytes_per_s) {
  plan_profile_link link = local;
  link.gpus = 4;
  link.both_bytes_per_s = both_bytes_per_s;
  link.together_bytes_per_s = together_bytes_per_s;
  write_profile(&link, 1);
  do_run(four, "stages = 4\nmicrobatches = 8\nschedule = \"1f1b\"\n");
  return r.prediction.metrics.step_s;
}

START_TEST(what_goes_at_once_shares_what_it_reached_at_once) {
  const double reached = 100 * MIB / 1e-4, alone = step_s(0, 0);
  near(step_s(2 * reached, 3 * reached), alone);
  ck_assert_double_gt(step_s(reached / 80, 0), 1.05 * alone);
  ck_assert_double_gt(step_s(0, reached / 80), 1.05 * alone);
}
END_TEST

static double all_reduce_s(const char *cluster, int replicas, double *bytes) {
  char plan[256];
  (void)snprintf(plan, sizeof plan,
                 "stages = 1\nmicrobatches = 1\ndata_parallel = %d\ntransport = \"nccl\"\ngradient_buckets = 1\n",
                 replicas);
  do_run(cluster, plan);
  return span_s(PLAN_ALL_REDUCE, bytes);
}

START_TEST(all_reduces_take_what_was_measured) {
  plan_profile_link link = local;
  double bytes;
  link.way = PLAN_PROFILE_ALL_REDUCE;
  link.handover_s = 0;
  write_profile(&link, 1);
  const double two_s = all_reduce_s(two, 2, &bytes), four_s = all_reduce_s(four, 4, &bytes);
  ck_assert_double_gt(bytes, 100 * MIB); /* beyond the last size, in proportion */
  near(two_s, 1e-4 * bytes / (100 * MIB));
  const int devices[] = {0, 1, 2, 3};
  plan_nccl_query query = plan_nccl_query_of(r.scenario.catalogue.nccl, &r.scenario.cluster, devices, 4, 397e9);
  query.op = PLAN_NCCL_ALL_REDUCE;
  query.bytes = bytes;
  const double model_s = plan_nccl_time_s(r.scenario.catalogue.nccl, &query, NULL);
  query.ranks = 2;
  near(four_s, two_s * model_s / plan_nccl_time_s(r.scenario.catalogue.nccl, &query, NULL));
}
END_TEST

/* How long two stages meet over the norm; s_per_parameter: the norm of a stage's gradients, in the profile. */
static double meet_s(const char *transport, double s_per_parameter) {
  plan_profile profile;
  char plan[256];
  double bytes;
  write_profile(&local, 1);
  OK(plan_profile_read("profile.json", &profile, &error));
  const plan_profile_part part = {
      .sms = 132, .workers = 1, .optimizer_busy_factor = 1, .norm_s_per_parameter = s_per_parameter};
  ck_assert(dp_array_push(&profile.parts, part));
  OK(plan_profile_write(&profile, "profile.json", &error));
  plan_profile_free(&profile);
  (void)snprintf(plan, sizeof plan, "stages = 2\nmicrobatches = 2\ntransport = \"%s\"\n[train]\nclip_norm = 1\n",
                 transport);
  do_run(two, plan);
  return span_s(PLAN_ALL_REDUCE, &bytes);
}

/* It is no part of the optimizer's step in such a profile. */
START_TEST(the_norm_is_taken_before_workers_meet_over_it_whichever_way) {
  static const char *const transports[] = {"local", "host", "nccl"};
  for (int t = 0; t < 3; t++) {
    const double without_s = meet_s(transports[t], 0), with_s = meet_s(transports[t], 1e-12);
    near(with_s - without_s, 1e-12 * (double)plan_trainable_parameters(&r.prediction.plan, &r.prediction.graph, 0));
  }
}
END_TEST

/* ---- links without work, as records of a program tell them ---- */

static double class_s(int direction) {
  double sum = 0;
  for (int w = 0; w < r.prediction.program.worker_count; w++) {
    const plan_worker_metrics *worker = &r.prediction.metrics.workers[w];
    sum += direction == 0 ? worker->forward_s : direction == 1 ? worker->backward_s : worker->optimizer_s;
  }
  return sum;
}

static bool assumes(const char *what) {
  const sim_assumption *rows;
  dp_arena arena = {0};
  int count;
  bool found = false;
  OK(sim_assumptions_of(&r.scenario, efficiency, &r.prediction, &arena, &rows, &count, &error));
  for (int i = 0; i < count; i++) found = found || strcmp(rows[i].what, what) == 0;
  dp_arena_free(&arena);
  return found;
}

START_TEST(a_profile_without_work_leaves_it_to_the_curves) {
  static const char plan[] = "stages = 2\nschedule = \"1f1b\"\nmicrobatches = 4\n";
  plan_profile_link link = local;
  double bare[3];
  do_run(two_bare, plan);
  const double bare_s = r.prediction.metrics.step_s, band = r.prediction.error_band;
  for (int k = 0; k < 3; k++) bare[k] = class_s(k);
  ck_assert(!assumes("ops"));
  link.way = PLAN_PROFILE_TO_HOST; /* which none rests on */
  link.gpus = 1;
  write_profile(&link, 1);
  do_run(two, plan);
  near(r.prediction.metrics.step_s, bare_s);
  near(r.prediction.error_band, band);
  for (int k = 0; k < 3; k++) near(class_s(k), bare[k]);
  ck_assert(assumes("ops") && !assumes("between GPUs of a host: to-host") && !assumes("compute beside NCCL"));
  write_profile(&local, 1);
  do_run(two, plan);
  ck_assert(assumes("ops") && assumes("between GPUs of a host: local"));
}
END_TEST

/* Compute beside it takes as much longer as the profile says, where NCCL's link is the catalogue's. */
START_TEST(kernels_of_nccl_slow_compute_as_recorded) {
  static const char plan[] =
      "stages = 1\nmicrobatches = 1\ndata_parallel = 2\ntransport = \"nccl\"\ngradient_buckets = 8\n";
  double seconds[3];
  for (int k = 0; k < 3; k++) {
    nccl_slowdown = k == 1 ? 0.5 : 1;
    write_profile(&local, 1);
    do_run(k ? two : two_bare, plan);
    seconds[k] = class_s(1);
  }
  ck_assert_double_gt(seconds[1], 1.01 * seconds[0]);
  ck_assert_double_gt(seconds[2], 1.01 * seconds[1]);
  ck_assert(assumes("compute beside NCCL"));
}
END_TEST

/* ---- from a step, as a run measures it ---- */

static const plan_profile_link *learn(plan_profile *profile, plan_profile_way way, const char *link) {
  plan_profile_free(profile);
  OK(plan_profile_links_of_run(&r.prediction.timeline, &r.scenario.cluster, profile, &error));
  return plan_profile_find_link(profile, way, link);
}

/* What a step was predicted with is found in it again. */
START_TEST(links_of_a_step_are_learnt) {
  plan_profile_link links[] = {local, local, local};
  plan_profile profile = {.device = NULL};
  double bytes;
  links[1].way = PLAN_PROFILE_NCCL;
  links[1].link = "nvlink4-nccl";
  links[1].link_bytes_per_s = 371e9;
  links[1].link_latency_s = 11.2e-6;
  links[2].way = PLAN_PROFILE_ALL_REDUCE;
  write_profile(links, 3);
  for (int i = 0; i < 2; i++) {
    for (int busy = 0; busy < 2; busy++) {
      const double seconds = message_s(two, i ? "transport = \"nccl\"\n" : "", busy, &bytes);
      const plan_profile_link *link = learn(&profile, links[i].way, links[i].link);
      ck_assert_ptr_nonnull(link);
      ck_assert(link->gpus == 2 && link->link_bytes_per_s == links[i].link_bytes_per_s);
      const plan_profile_point at = plan_profile_at(link->points.items, link->points.count, bytes);
      near(busy ? at.busy_s : at.alone_s, seconds);
      ck_assert_uint_eq(profile.links.count, 1);
    }
  }
  const double sum_s = all_reduce_s(two, 2, &bytes);
  const plan_profile_link *sum = learn(&profile, PLAN_PROFILE_ALL_REDUCE, "nvlink4");
  ck_assert_ptr_nonnull(sum);
  near(sum->points.items[sum->points.count - 1].alone_s, sum_s);
  near(sum->points.items[sum->points.count - 1].bytes, bytes);
  (void)message_s(parts, "", true, &bytes); /* of one card: it has none */
  ck_assert_ptr_null(learn(&profile, PLAN_PROFILE_LOCAL, "nvlink4"));
  (void)message_s(two, "transport = \"nccl\"\nnccl_sms = 20\n", true, &bytes);
  ck_assert_ptr_null(learn(&profile, PLAN_PROFILE_NCCL, "nvlink4-nccl"));
  ck_assert_uint_eq(profile.links.count, 0);
  plan_profile_free(&profile);
}
END_TEST

/* ---- from what tests/bench_cuda_links wrote ---- */

#define ROW(name, gpus, flows, bytes, us, beside, more)                                                 \
  "{\"row\": \"" name "\", \"gpus\": " gpus ", \"flows\": " flows ", \"bytes\": " bytes ", \"us\": " us \
  ", \"gb_per_s\": 1, \"beside_us\": " beside ", \"beside_gb_per_s\": null, \"gemm_slowing\": " more "}\n"

static dp_status read_rows(const char *text, plan_profile *profile) {
  error = (dp_error)DP_ERROR_INIT;
  OK(dp_file_write("links.jsonl", text, strlen(text), &error));
  return plan_profile_read_rows("links.jsonl", &r.scenario.cluster, profile, &error);
}

START_TEST(rows_of_nccl_become_links) {
  plan_profile profile = {.device = NULL};
  do_run(four_bare, "stages = 1\n");
  OK(read_rows(ROW("nccl, one way", "2", "1", "1000", "10", "20", "null") /* as runs of the processes come */
               ROW("nccl, one way", "2", "1", "2000000", "9", "8", "1.1, \"waiting_slowing\": 1.25")
                   ROW("nccl, one way", "2", "1", "4000000", "16", "null",
                       "1.3, \"waiting_slowing\": null, \"sms\": 0") "\n" ROW("nccl, neighbours, one way", "4", "3",
                                                                              "4000000", "17", "17", "1")
                       ROW("nccl, both ways", "2", "2", "4000000", "20", "40", "1.5")
                           ROW("nccl, both ways", "2", "2", "1000", "1", "1", "1.5")
                               ROW("nccl, neighbours, both ways", "4", "6", "4000000", "24", "40", "1.5")
                                   ROW("peer, one way", "2", "1", "1000", "1", "1", "null")
                                       ROW("nccl, all-reduce", "4", "1", "1000", "30", "60", "null"),
               &profile));
  ck_assert_uint_eq(profile.links.count, 2);
  const plan_profile_link *nccl = plan_profile_find_link(&profile, PLAN_PROFILE_NCCL, "nvlink4-nccl");
  const plan_profile_link *sum = plan_profile_find_link(&profile, PLAN_PROFILE_ALL_REDUCE, "nvlink4");
  ck_assert(nccl && sum);
  ck_assert_uint_eq(nccl->points.count, 3);
  const plan_profile_point expected[] = {{1000, 1e-5, 2e-5}, {2e6, 1e-5, 2e-5}, {4e6, 1.6e-5, 2e-5}}; /* levelled */
  for (int i = 0; i < 3; i++) {
    near(nccl->points.items[i].bytes, expected[i].bytes);
    near(nccl->points.items[i].alone_s, expected[i].alone_s);
    near(nccl->points.items[i].busy_s, expected[i].busy_s);
  }
  near(nccl->slowdown, 0.2);
  near(nccl->waiting_slowdown, 0.25);
  near(nccl->both_bytes_per_s, 4e11);
  near(nccl->together_bytes_per_s, 1e12);
  near(nccl->link_bytes_per_s, 371e9);
  near(nccl->link_latency_s, 11.2e-6);
  ck_assert_int_eq(nccl->gpus, 4);
  ck_assert_int_eq(sum->gpus, 4);
  near(sum->points.items[0].busy_s, 6e-5);
  near(sum->link_bytes_per_s, 397e9);
  plan_profile_free(&profile);
}
END_TEST

START_TEST(rows_that_are_wrong_are_refused) {
  static const struct {
    const char *text, *says;
  } cases[] = {
      {"", "links.jsonl: found no row \"nccl, one way\", allowed: what tests/bench_cuda_links wrote under mpirun"},
      {ROW("peer, one way", "2", "1", "1000", "1", "1", "null"), "links.jsonl: found no row \"nccl, one way\""},
      {ROW("nccl, one way", "2", "1", "9", "1", "1", "null") ROW("nccl, one way", "2", "1", "9", "1", "1", "null"),
       "links.jsonl:2: bytes: found 9 after 9, allowed: ascending sizes of a kind, each once"},
      {"\n" ROW("nccl, one way", "2", "1", "9", "0", "1", "null"), "links.jsonl:2: row.us: found 0, allowed: "},
      {ROW("nccl, one way", "2", "1", "9", "1", "true", "null"),
       "links.jsonl:1: beside_us: found true, allowed: a positive number, or null"},
      {ROW("nccl, one way", "2", "1", "9", "1", "1", "null, \"sms\": 16"),
       "links.jsonl:1: sms: found 16, allowed: 0, NCCL on as many multiprocessors as it likes"},
      {ROW("nccl, three ways", "2", "1", "9", "1", "1", "null"),
       "links.jsonl:1: row: found \"nccl, three ways\", allowed: one of tests/bench_cuda_links"},
      {ROW("nccl, one way", "2", "1", "9", "1", "1", "null") "{\"row\": \"nccl, one", "links.jsonl:2"},
  };
  do_run(two_bare, "stages = 1\n");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    plan_profile profile = {.device = NULL};
    ck_assert_int_eq(read_rows(cases[i].text, &profile), DP_BAD_INPUT);
    ck_assert_msg(strncmp(error.text, cases[i].says, strlen(cases[i].says)) == 0, "%s: found %s", cases[i].says,
                  error.text);
    ck_assert_uint_eq(profile.links.count, 0);
    plan_profile_free(&profile);
  }
  do_run(parts_bare, "stages = 1\n");
  plan_profile profile = {.device = NULL};
  ck_assert_int_eq(read_rows(ROW("nccl, one way", "2", "1", "9", "1", "1", "null"), &profile), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, "links.jsonl: found a cluster that begins with ") != NULL, "%s", error.text);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {messages_take_what_was_measured,
                                other_links_are_not_those_that_were_measured,
                                a_slower_cluster_is_slower_in_proportion,
                                what_goes_at_once_shares_what_it_reached_at_once,
                                all_reduces_take_what_was_measured,
                                the_norm_is_taken_before_workers_meet_over_it_whichever_way,
                                a_profile_without_work_leaves_it_to_the_curves,
                                kernels_of_nccl_slow_compute_as_recorded,
                                links_of_a_step_are_learnt,
                                rows_of_nccl_become_links,
                                rows_that_are_wrong_are_refused};
  return suite_run("sim_links", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
