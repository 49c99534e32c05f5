/* plan/: compiled programs: laws over random plans, what travels, the deadlock check, timelines and metrics. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "graph/shard.h"
#include "plan/compressor.h"
#include "tests/plan_reference.h"
#include "tests/suite.h"

static dp_error error;
static graph model;
static plan_plan plan;
static plan_program program;
static plan_timeline timeline;

static void setup(void) { error = (dp_error)DP_ERROR_INIT; }
static void drop_program(void) {
  plan_timeline_free(&timeline);
  plan_program_free(&program);
  plan_plan_free(&plan);
}
static void drop(void) {
  drop_program();
  graph_free(&model);
}

static void compile(const reference_plan *wanted) {
  reference_plan_make(wanted, &model, &plan);
  dp_status status = plan_compile(&plan, &model, &program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  status = plan_program_check(&program, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}

/* ---- random plans ---- */

static void assert_laws(void) {
  uint32_t sends = 0, receives = 0;
  for (uint32_t l = 0; l < program.lane_count; l++) {
    const plan_lane *lane = &program.lanes[l];
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      if (i > lane->first) ck_assert(timeline.start_s[i] >= timeline.end_s[i - 1]);
      sends += program.instructions[i].opcode == PLAN_SEND;
      receives += program.instructions[i].opcode == PLAN_RECV;
      ck_assert_uint_eq(plan_instruction_lane(&program, i), l);
    }
  }
  ck_assert_uint_eq(sends, receives);
  plan_metrics metrics;
  ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
  int64_t sent = 0, received = 0;
  double busy_s = 0;
  for (int w = 0; w < metrics.worker_count; w++) {
    const plan_worker_metrics *worker = &metrics.workers[w];
    ck_assert_double_eq_tol(worker->compute_s + worker->idle_s, metrics.step_s, 1e-9);
    ck_assert_double_eq_tol(worker->forward_s + worker->backward_s + worker->optimizer_s, worker->compute_s, 1e-9);
    ck_assert(worker->compute_s <= metrics.step_s + 1e-9);
    ck_assert(worker->exposed_comm_s >= -1e-9 && worker->exposed_comm_s <= worker->comm_s + 1e-9);
    ck_assert(worker->exposed_comm_s <= worker->idle_s + 1e-9);
    sent += worker->sent_bytes;
    received += worker->received_bytes;
    busy_s += worker->compute_s;
  }
  ck_assert_int_eq(sent, received);
  ck_assert_int_eq(sent, metrics.comm_bytes);
  ck_assert_double_eq_tol(metrics.bubble_ratio, 1 - busy_s / (metrics.step_s * metrics.worker_count), 1e-9);
  uint32_t *ids, count;
  ck_assert_int_eq(plan_critical_path(&timeline, &ids, &count, &error), DP_OK);
  ck_assert_uint_gt(count, 0);
  double length_s = 0;
  for (uint32_t i = 0; i < count; i++) {
    length_s += timeline.end_s[ids[i]] - timeline.start_s[ids[i]];
    if (i > 0) ck_assert_double_eq_tol(timeline.start_s[ids[i]], timeline.end_s[ids[i - 1]], 1e-9);
  }
  ck_assert_double_eq_tol(length_s, metrics.step_s, 1e-6 * metrics.step_s); /* nothing waits without a reason */
  free(ids);
  plan_metrics_free(&metrics);
}

START_TEST(random_plans_keep_the_laws) {
  const uint64_t seeds = suite_is_short() ? 100 : 400;
  for (uint64_t seed = 0; seed < seeds; seed++) {
    dp_random random;
    dp_random_init(&random, seed, 1);
    const int units = 6 + (int)dp_random_below(&random, 40);
    if (seed % 3 == 0)
      reference_chain(units, 1, 2, 0.7, 100, &model);
    else
      reference_skip_graph(units, (int)(seed % 7), &random, &model);
    int cuts[64];
    const reference_plan wanted = reference_random_plan(&random, units, cuts);
    compile(&wanted);
    const double speeds[] = {0, 1000, 10};
    for (size_t i = 0; i < DP_COUNT_OF(speeds); i++) {
      plan_timeline_free(&timeline);
      reference_play(&program, &model, 0.01, speeds[i], i == 2 ? &random : NULL, &timeline);
      assert_laws();
    }
    drop();
  }
}
END_TEST

/* The same plan gives the same bytes. */
START_TEST(compiling_is_reproducible) {
  dp_random random;
  dp_random_init(&random, 11, 1);
  reference_skip_graph(24, 4, &random, &model);
  const reference_plan wanted = {
      .ranks = 4, .chunks_per_rank = 2, .schedule = PLAN_FOLDED, .microbatches = 6, .replicas = 2};
  compile(&wanted);
  plan_program first = program;
  plan_plan first_plan = plan;
  compile(&wanted);
  ck_assert_uint_eq(first.instruction_count, program.instruction_count);
  ck_assert_int_eq(
      memcmp(first.instructions, program.instructions, program.instruction_count * sizeof(plan_instruction)), 0);
  ck_assert_int_eq(memcmp(first.wait_first, program.wait_first, (program.instruction_count + 1) * sizeof(uint32_t)), 0);
  ck_assert_int_eq(memcmp(first.waits, program.waits, program.wait_first[program.instruction_count] * sizeof(uint32_t)),
                   0);
  plan_program_free(&first);
  plan_plan_free(&first_plan);
}
END_TEST

/* ---- what travels ---- */

/* Eight units; unit 0's output is used by unit 1 and by unit 7, unit 1's by 2 and 6. */
static void make_ladder(void) {
  const graph_model_options options = {.batch = 2, .height = 8, .width = 8, .frames = 1, .precision = GRAPH_BF16};
  graph_builder *b = graph_build_begin(&model, &options, NULL);
  ck_assert_ptr_nonnull(b);
  const graph_attributes convolution = {.in_channels = 8,
                                        .out_channels = 8,
                                        .kernel = {1, 3, 3},
                                        .stride = {1, 1, 1},
                                        .padding = {0, 1, 1},
                                        .bias = true};
  int made[8], x = graph_build_input(b, "latent", 4, (const int64_t[]){2, 8, 8, 8});
  graph_build_latent(b, x);
  for (int u = 0; u < 8; u++) {
    graph_build_unit(b, graph_build_name(b, "units.%d", u));
    x = graph_build_op(b, GRAPH_CONV2D, graph_build_name(b, "units.%d.conv", u), &convolution, &x, 1);
    if (u >= 6)
      x = graph_build_op(b, GRAPH_ADD, graph_build_name(b, "units.%d.add", u), &(graph_attributes){0},
                         (const int[]){x, made[7 - u]}, 2);
    made[u] = x;
  }
  graph_build_output(b, x);
  const dp_status status = graph_build_finish(b, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}
enum { FEATURE_BYTES = 2 * 8 * 8 * 8 * 2 };

static void bytes_of(const reference_plan *wanted, int64_t *boundary, int64_t *skip) {
  compile(wanted);
  plan_metrics metrics;
  reference_play(&program, &model, 0, 1, NULL, &timeline);
  ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
  *boundary = metrics.comm_bytes_by_kind[PLAN_TRAFFIC_BOUNDARY];
  *skip = metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP];
  plan_metrics_free(&metrics);
  drop_program();
}

START_TEST(skips_travel_by_policy) {
  make_ladder();
  int64_t boundary, skip;
  /* four stages of two units: unit 0 -> 7 and 1 -> 6, from stage 0 to stage 3; training sends as much back */
  reference_plan wanted = {
      .ranks = 4, .schedule = PLAN_1F1B, .microbatches = 3, .skip_policy = PLAN_SKIP_DIRECT, .k = 4};
  bytes_of(&wanted, &boundary, &skip);
  ck_assert_int_eq(boundary, 2 * 3 * 3 * FEATURE_BYTES);
  ck_assert_int_eq(skip, 2 * 3 * 2 * FEATURE_BYTES);
  wanted.skip_policy = PLAN_SKIP_RELAY; /* unit 1's output crosses the first cut as boundary */
  bytes_of(&wanted, &boundary, &skip);
  ck_assert_int_eq(boundary, 2 * 3 * 3 * FEATURE_BYTES);
  ck_assert_int_eq(skip, 2 * 3 * (3 + 2) * FEATURE_BYTES);
  wanted.skip_policy = PLAN_SKIP_COMPRESS;
  bytes_of(&wanted, &boundary, &skip);
  ck_assert_int_eq(boundary, 2 * 3 * 3 * FEATURE_BYTES);
  ck_assert_int_eq(skip, 2 * 3 * 2 * (2 * 4 * 2)); /* batch 2, k 4, bf16 */
  wanted.skip_policy = PLAN_SKIP_DIRECT;
  wanted.sampling = true;
  bytes_of(&wanted, &boundary, &skip);
  ck_assert_int_eq(skip, 3 * 2 * FEATURE_BYTES);
  /* folded: both ends of both skips on one rank each, whatever the policy; 7 cuts, one of them within the last rank */
  for (plan_skip_policy policy = 0; policy < PLAN_SKIP_POLICY_COUNT; policy++) {
    const reference_plan folded = {
        .ranks = 4, .chunks_per_rank = 2, .schedule = PLAN_FOLDED, .microbatches = 3, .skip_policy = policy};
    bytes_of(&folded, &boundary, &skip);
    ck_assert_int_eq(boundary, 2 * 3 * 6 * FEATURE_BYTES);
    ck_assert_int_eq(skip, 0);
  }
}
END_TEST

START_TEST(local_policy_names_what_would_travel) {
  make_ladder();
  const reference_plan wanted = {.ranks = 4, .schedule = PLAN_1F1B, .microbatches = 3, .skip_policy = PLAN_SKIP_LOCAL};
  reference_plan_make(&wanted, &model, &plan);
  ck_assert_int_eq(plan_compile(&plan, &model, &program, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "units.0.conv"));
  ck_assert_ptr_nonnull(strstr(error.text, "(stage 0)"));
  ck_assert_ptr_nonnull(strstr(error.text, "(stage 3)"));
}
END_TEST

START_TEST(the_latent_returns_to_the_first_stage) {
  reference_chain(4, 1, 2, 1, 100, &model);
  model.latent_bytes = 77;
  const reference_plan wanted = {
      .ranks = 4, .schedule = PLAN_1F1B, .microbatches = 3, .denoise_steps = 5, .sampling = true};
  compile(&wanted);
  reference_play(&program, &model, 0, 0, NULL, &timeline);
  plan_metrics metrics;
  ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
  ck_assert_int_eq(metrics.comm_bytes_by_kind[PLAN_TRAFFIC_LATENT], 3 * 4 * 77);
  ck_assert_int_eq(metrics.comm_bytes_by_kind[PLAN_TRAFFIC_BOUNDARY], 3 * 5 * 3 * 100);
  ck_assert_double_eq_tol(metrics.throughput_samples_per_s, 3 / timeline.step_s, 1e-12);
  plan_metrics_free(&metrics);
}
END_TEST

/* ---- replicas ---- */

START_TEST(replicas_reduce_their_gradients_by_parts) {
  reference_chain(12, 1, 2, 1, 100, &model); /* 1000 parameters each */
  const reference_plan wanted = {
      .ranks = 2, .schedule = PLAN_1F1B, .microbatches = 4, .replicas = 2, .gradient_buckets = 4};
  compile(&wanted);
  ck_assert_uint_eq(program.group_count, 2 * 4);
  int64_t bytes = 0;
  for (uint32_t c = 0; c < program.collective_count; c++) {
    ck_assert_uint_eq(program.collectives[c].member_count, 2);
    bytes += program.collectives[c].bytes;
  }
  ck_assert_int_eq(bytes, 12 * 1000 * 4); /* fp32 */
  /* the parts go from the chunk's end to its start and cover it */
  uint32_t end = 12, parts = 0;
  for (uint32_t w = 0; w < program.work_count / 2; w++) {
    const plan_work *work = &program.works[w];
    if (work->parts <= 1 || work->chunk != 1) continue;
    ck_assert_uint_eq(work->first_unit + work->unit_count, end);
    ck_assert_int_eq(work->part, parts++);
    ck_assert_uint_ge(work->unit_count, 1);
    end = work->first_unit;
  }
  ck_assert_uint_eq(end, 6);
  ck_assert_uint_eq(parts, 4);
  reference_play(&program, &model, 0, 1e6, NULL, &timeline);
  plan_metrics metrics;
  ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
  ck_assert_int_eq(metrics.comm_bytes_by_kind[PLAN_TRAFFIC_GRADIENT], 2 * (12 * 1000 * 4)); /* 2 (n - 1) / n = 1 */
  /* the first parts are reduced while the last backward goes on */
  double first_end_s = INFINITY;
  for (uint32_t i = 0; i < program.instruction_count; i++)
    if (program.instructions[i].opcode == PLAN_ALL_REDUCE && timeline.end_s[i] < first_end_s)
      first_end_s = timeline.end_s[i];
  ck_assert(first_end_s < timeline.step_s - 1);
  plan_metrics_free(&metrics);
}
END_TEST

/* The norm is one all-reduce of all workers, after every gradient and before every optimizer step. */
START_TEST(the_global_norm_comes_between) {
  static const int replicas[] = {1, 2}, tensors[] = {1, 2};
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      reference_chain(4, 1, 2, 1, 100, &model);
      const reference_plan wanted = {.ranks = 2,
                                     .schedule = PLAN_ZB_H1,
                                     .microbatches = 3,
                                     .replicas = replicas[i],
                                     .tensor = tensors[j],
                                     .gradient_buckets = 2,
                                     .global_norm = true};
      compile(&wanted);
      reference_play(&program, &model, 0, 0, NULL, &timeline);
      int norms = 0;
      double norm_s = 0, first_s = INFINITY, last_s = 0;
      for (uint32_t id = 0; id < program.instruction_count; id++) {
        const plan_instruction *instruction = &program.instructions[id];
        if (instruction->opcode == PLAN_ALL_REDUCE && program.collectives[instruction->class_id].norm) {
          norms++;
          norm_s = timeline.end_s[id];
          ck_assert_uint_eq(program.collectives[instruction->class_id].member_count, (unsigned)program.worker_count);
        } else if (instruction->opcode == PLAN_OPTIMIZER_STEP) {
          first_s = fmin(first_s, timeline.start_s[id]);
        } else {
          last_s = fmax(last_s, timeline.end_s[id]);
        }
      }
      ck_assert_int_eq(norms, program.worker_count);
      ck_assert(last_s <= norm_s && norm_s <= first_s);
      drop();
    }
  reference_chain(4, 1, 2, 1, 100, &model); /* one worker knows it by itself */
  compile(&(reference_plan){.ranks = 1, .schedule = PLAN_1F1B, .microbatches = 2, .global_norm = true});
  ck_assert_uint_eq(program.group_count, 0);
}
END_TEST

/* ---- compressed skips ---- */

START_TEST(compressors_keep_k_values_of_like_dimensions) {
  int64_t kept[3];
  plan_compressor_shape((const int64_t[]){320, 128, 128}, 1024, kept);
  ck_assert(kept[0] == 16 && kept[1] == 8 && kept[2] == 8);
  for (uint64_t seed = 0; seed < 300; seed++) {
    dp_random random;
    dp_random_init(&random, 3, seed);
    int64_t dims[3];
    for (int d = 0; d < 3; d++) dims[d] = 1 + (int64_t)dp_random_below(&random, 60);
    const int64_t all = dims[0] * dims[1] * dims[2], k = 1 + (int64_t)dp_random_below(&random, (uint64_t)all);
    plan_compressor_shape(dims, k, kept);
    double least = INFINITY, most = 0;
    for (int d = 0; d < 3; d++) {
      ck_assert(kept[d] >= 1 && kept[d] <= dims[d]);
      least = fmin(least, (double)dims[d] / (double)kept[d]);
      most = fmax(most, (double)dims[d] / (double)kept[d]);
    }
    ck_assert(kept[0] * kept[1] * kept[2] <= k);
    /* a larger one that shrinks alike would have been taken */
    for (int d = 0; d < 3; d++) {
      int64_t more[3] = {kept[0], kept[1], kept[2]};
      if (++more[d] > dims[d] || more[0] * more[1] * more[2] > k) continue;
      double some_least = INFINITY, some_most = 0;
      for (int e = 0; e < 3; e++) {
        some_least = fmin(some_least, (double)dims[e] / (double)more[e]);
        some_most = fmax(some_most, (double)dims[e] / (double)more[e]);
      }
      ck_assert(some_most / some_least > 4 || most / least > 4);
    }
  }
}
END_TEST

/* ---- tensor groups ---- */

/* Gradients are reduced among the replicas of each member; a member's messages go to its peer of the same number. */
START_TEST(members_reduce_their_own_gradients) {
  reference_chain(4, 1, 2, 1, 100, &model);
  const reference_plan wanted = {
      .ranks = 2, .schedule = PLAN_1F1B, .microbatches = 2, .replicas = 3, .tensor = 2, .gradient_buckets = 2};
  compile(&wanted);
  ck_assert_int_eq(program.worker_count, 2 * 3 * 2);
  ck_assert_uint_eq(program.group_count, 2 * 2 * 2); /* stages, parts, members */
  for (int w = 0; w < program.worker_count; w++)
    ck_assert_int_eq(
        plan_worker_of(&plan, plan_worker_replica(&plan, w), plan_worker_member(&plan, w), plan_worker_rank(&plan, w)),
        w);
  for (uint32_t i = 0; i < program.instruction_count; i++) {
    const plan_instruction *reduce = &program.instructions[i];
    if (reduce->opcode != PLAN_ALL_REDUCE) continue;
    const int worker = (int)program.lanes[plan_instruction_lane(&program, i)].worker;
    const plan_collective *collective = &program.collectives[reduce->class_id];
    ck_assert_uint_eq(collective->member_count, 3);
    ck_assert_int_eq(collective->bytes, 1000 * 4);
    for (uint32_t m = 0; m < 3; m++) {
      const int other = (int)program.group_members[collective->first_member + m];
      ck_assert_int_eq(plan_worker_rank(&plan, other), plan_worker_rank(&plan, worker));
      ck_assert_int_eq(plan_worker_member(&plan, other), plan_worker_member(&plan, worker));
      ck_assert_int_eq(plan_worker_replica(&plan, other), (int)m);
    }
  }
  for (uint32_t m = 0; m < program.message_count; m++) {
    const int from = (int)program.messages[m].from_worker, to = (int)program.messages[m].to_worker;
    ck_assert_int_eq(plan_worker_member(&plan, from), plan_worker_member(&plan, to));
    ck_assert_int_eq(plan_worker_replica(&plan, from), plan_worker_replica(&plan, to));
  }
  reference_play(&program, &model, 0, 0, NULL, &timeline);
  plan_metrics metrics;
  ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
  ck_assert_double_eq_tol(metrics.throughput_samples_per_s, 2 * 3 / timeline.step_s, 1e-12); /* members add none */
  ck_assert_int_eq(metrics.comm_bytes_by_kind[PLAN_TRAFFIC_BOUNDARY], 2 * 2 * 100 * 6);
  plan_metrics_free(&metrics);
}
END_TEST

/* A layer that is split by output channels and one by input channels: the second sums up forward, the first backward.
 * The time is a part of the instructions. */
START_TEST(collectives_of_a_tensor_group_are_part_of_the_work) {
  graph whole = {0};
  const graph_model_options options = {.batch = 2, .height = 8, .width = 8, .frames = 1, .precision = GRAPH_BF16};
  graph_builder *b = graph_build_begin(&whole, &options, NULL);
  int x = graph_build_input(b, "x", 3, (const int64_t[]){2, 16, 8});
  for (int u = 0; u < 2; u++) {
    graph_build_unit(b, graph_build_name(b, "unit%d", u));
    for (int l = 0; l < 2; l++)
      x = graph_build_op(b, GRAPH_LINEAR, graph_build_name(b, "unit%d.linear%d", u, l),
                         &(graph_attributes){.in_channels = 8, .out_channels = 8}, &x, 1);
  }
  graph_build_output(b, x);
  ck_assert_int_eq(graph_build_finish(b, &error), DP_OK);
  ck_assert_int_eq(graph_shard(&whole, 4, &model, &error), DP_OK);
  graph_free(&whole);
  const reference_plan wanted = {.ranks = 1, .schedule = PLAN_1F1B, .microbatches = 1, .tensor = 4};
  compile(&wanted);
  const int64_t one = 2 * 16 * 8 * 2 * 2 * 3 / 4; /* of bf16; a ring of 4 sends 2 * 3 / 4 of it */
  for (uint32_t w = 0; w < program.work_count; w++) {
    const plan_work *work = &program.works[w];
    /* backward: what the second unit reads; the graph's input needs no gradient */
    ck_assert_int_eq(work->tensor_bytes, work->opcode == PLAN_FORWARD    ? 2 * one
                                         : work->opcode == PLAN_BACKWARD ? one
                                                                         : 0);
  }
  reference_play(&program, &model, 0, 0, NULL, &timeline); /* 2 forward, 2 backward */
  timeline.work_tensor_s = calloc(program.work_count, sizeof(double));
  for (uint32_t w = 0; w < program.work_count; w++)
    if (program.works[w].opcode == PLAN_FORWARD) timeline.work_tensor_s[w] = 0.5;
  plan_metrics metrics;
  ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
  ck_assert_int_eq(metrics.comm_bytes_by_kind[PLAN_TRAFFIC_TENSOR], 4 * 3 * one);
  ck_assert_int_eq(metrics.comm_bytes, 4 * 3 * one);
  for (int w = 0; w < 4; w++) {
    ck_assert_int_eq(metrics.workers[w].sent_bytes, 3 * one);
    ck_assert_double_eq_tol(metrics.workers[w].tensor_s, 0.5, 1e-12);
    ck_assert_double_eq_tol(metrics.workers[w].compute_s, 3.5, 1e-12);
    ck_assert_double_eq_tol(metrics.workers[w].forward_s, 1.5, 1e-12);
    ck_assert_double_eq_tol(metrics.workers[w].idle_s, 0, 1e-12);
  }
  ck_assert_double_eq_tol(metrics.bubble_ratio, 0, 1e-12);
  plan_metrics_free(&metrics);
}
END_TEST

/* ---- timelines by hand ---- */

START_TEST(metrics_by_hand) {
  reference_chain(2, 1, 2, 1, 100, &model);
  const reference_plan one = {.ranks = 2, .schedule = PLAN_1F1B, .microbatches = 1};
  compile(&one);
  reference_play(&program, &model, 0.25, 400, NULL, &timeline); /* a transfer takes 0.5 */
  plan_metrics metrics;
  ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
  ck_assert_double_eq_tol(metrics.step_s, 7, 1e-12); /* 1, 0.5, 1 + 2, 0.5, 2 */
  ck_assert_double_eq_tol(metrics.bubble_ratio, 1 - 6.0 / 14, 1e-12);
  ck_assert_double_eq_tol(metrics.throughput_samples_per_s, 1 / 7.0, 1e-12);
  ck_assert_int_eq(metrics.comm_bytes, 200);
  for (int w = 0; w < 2; w++) {
    const plan_worker_metrics *worker = &metrics.workers[w];
    ck_assert_double_eq_tol(worker->forward_s, 1, 1e-12);
    ck_assert_double_eq_tol(worker->backward_s, 2, 1e-12);
    ck_assert_double_eq_tol(worker->comm_s, 1, 1e-12);
    ck_assert_double_eq_tol(worker->exposed_comm_s, 1, 1e-12);
    ck_assert_double_eq_tol(worker->idle_s, 4, 1e-12);
    ck_assert_int_eq(worker->sent_bytes, 100);
    ck_assert_int_eq(worker->received_bytes, 100);
  }
  plan_metrics_free(&metrics);
  uint32_t *ids, count;
  ck_assert_int_eq(plan_critical_path(&timeline, &ids, &count, &error), DP_OK);
  static const plan_opcode chain[] = {PLAN_FORWARD, PLAN_SEND, PLAN_FORWARD, PLAN_BACKWARD, PLAN_SEND, PLAN_BACKWARD};
  ck_assert_uint_ge(count, DP_COUNT_OF(chain));
  for (size_t i = 0; i < DP_COUNT_OF(chain); i++) {
    const uint8_t opcode = program.instructions[ids[i]].opcode;
    ck_assert(opcode == chain[i] ||
              (chain[i] == PLAN_SEND && opcode == PLAN_RECV)); /* either end stands for a transfer */
  }
  free(ids);
  drop_program();
  /* two microbatches: worker 0 sends the first while it computes the second */
  const reference_plan two = {.ranks = 2, .schedule = PLAN_GPIPE, .microbatches = 2};
  compile(&two);
  reference_play(&program, &model, 0.25, 400, NULL, &timeline);
  ck_assert_int_eq(plan_metrics_of(&timeline, &metrics, &error), DP_OK);
  /* worker 0: F0 0-1, F1 1-2; sends at 1 and 2; worker 1: F 1.5-2.5-3.5, B 3.5-5.5-7.5; gradients at 5.5 and 7.5 */
  ck_assert_double_eq_tol(metrics.step_s, 10, 1e-12);
  ck_assert_double_eq_tol(metrics.workers[0].comm_s, 2, 1e-12);
  ck_assert_double_eq_tol(metrics.workers[0].exposed_comm_s, 1, 1e-12); /* 2-2.5 and 5.5-6 */
  ck_assert_double_eq_tol(metrics.workers[1].exposed_comm_s, 1, 1e-12); /* 1-1.5 and 7.5-8 */
  plan_metrics_free(&metrics);
}
END_TEST

START_TEST(plans_as_json) {
  reference_chain(8, 1, 2, 1, 100, &model);
  const reference_plan wanted = {
      .ranks = 2, .chunks_per_rank = 2, .schedule = PLAN_FOLDED, .microbatches = 2, .replicas = 2};
  reference_plan_make(&wanted, &model, &plan);
  plan.recompute[3] = 1;
  json_t *json = plan_plan_json(&plan, &model, NULL);
  ck_assert_ptr_nonnull(json);
  ck_assert_str_eq(json_string_value(json_object_get(json, "format")), "diffpipe-plan");
  ck_assert_int_eq(json_integer_value(json_object_get(json, "version")), 1);
  ck_assert_str_eq(json_string_value(json_object_get(json, "schedule")), "folded");
  ck_assert_uint_eq(json_array_size(json_object_get(json, "devices")), 4);
  const json_t *split = json_object_get(json, "split");
  ck_assert_uint_eq(json_array_size(split), 3);
  for (size_t i = 0; i < 3; i++)
    ck_assert_int_eq(json_integer_value(json_array_get(split, i)), plan.chunks[i + 1].first_unit);
  const json_t *placement = json_object_get(json, "placement");
  ck_assert_uint_eq(json_array_size(placement), 4);
  ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(placement, 3), "rank")), 0);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(placement, 3), "first")), "units.6");
  ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(json_array_get(placement, 1), "recompute"), 0)),
                   3);
  const json_t *order = json_object_get(json, "order");
  ck_assert_uint_eq(json_array_size(order), 2);
  ck_assert_uint_eq(json_array_size(json_array_get(order, 0)), 2 * 2 * 2);
  ck_assert_str_eq(json_string_value(json_array_get(json_array_get(order, 0), 0)), "F0.0");
  json_decref(json);
}
END_TEST

/* ---- the check ---- */

static uint32_t find(uint32_t worker, plan_opcode opcode, uint32_t microbatch) {
  for (uint32_t l = program.worker_lane[worker]; l < program.worker_lane[worker + 1]; l++)
    for (uint32_t i = program.lanes[l].first; i < program.lanes[l].first + program.lanes[l].count; i++)
      if (program.instructions[i].opcode == opcode && program.instructions[i].microbatch == microbatch) return i;
  ck_abort_msg("worker %u has no %s of microbatch %u", worker, plan_opcode_names[opcode], microbatch);
  return 0;
}

START_TEST(a_deadlock_is_named) {
  reference_chain(3, 1, 2, 1, 100, &model);
  const reference_plan wanted = {.ranks = 3, .schedule = PLAN_1F1B, .microbatches = 4};
  compile(&wanted);
  /* worker 0's forward of microbatch 2 does not go out before its forward of 3, which follows a backward */
  program.waits[program.wait_first[find(0, PLAN_SEND, 2)]] = find(0, PLAN_FORWARD, 3);
  ck_assert_int_eq(plan_program_check(&program, &error), DP_OK); /* late, but no cycle: 3 only needs backward 0 */
  program.waits[program.wait_first[find(0, PLAN_SEND, 0)]] = find(0, PLAN_BACKWARD, 0);
  ck_assert_int_eq(plan_program_check(&program, &error), DP_INTERNAL);
  static const char *const links[] = {
      "deadlock: ",
      "worker 0 SEND to worker 1 chunk 0 microbatch 0 waits for worker 0 BACKWARD chunk 0 microbatch 0",
      "worker 0 BACKWARD chunk 0 microbatch 0 waits for worker 0 RECV gradient from worker 1 chunk 0 microbatch 0",
      "worker 0 RECV gradient from worker 1 chunk 0 microbatch 0 waits for worker 1 SEND gradient to worker 0 chunk 1",
      "worker 1 SEND gradient to worker 0 chunk 1 microbatch 0 waits for worker 1 BACKWARD chunk 1 microbatch 0",
      "BACKWARD chunk 1 microbatch 0, behind worker 1 FORWARD",
      "worker 1 FORWARD chunk 1 microbatch 0 waits for worker 1 RECV from worker 0 chunk 1 microbatch 0",
      "worker 1 RECV from worker 0 chunk 1 microbatch 0 waits for worker 0 SEND to worker 1 chunk 0 microbatch 0"};
  for (size_t i = 0; i < DP_COUNT_OF(links); i++)
    ck_assert_msg(strstr(error.text, links[i]) != NULL, "no \"%s\" in \"%s\"", links[i], error.text);
  ck_assert_ptr_null(strchr(error.text, '\n'));
}
END_TEST

START_TEST(crossed_orders_are_found) {
  reference_chain(4, 1, 2, 1, 100, &model);
  const reference_plan wanted = {
      .ranks = 2, .schedule = PLAN_1F1B, .microbatches = 4, .replicas = 2, .gradient_buckets = 2};
  /* two collectives in two orders on two members */
  compile(&wanted);
  const uint32_t lane = program.worker_lane[3] - 1; /* collective lane of worker 2, the twin of worker 0 */
  ck_assert_int_eq(program.lanes[lane].kind, PLAN_LANE_COLLECTIVE);
  const uint32_t first = program.lanes[lane].first;
  const plan_instruction swapped = program.instructions[first];
  program.instructions[first] = program.instructions[first + 1];
  program.instructions[first + 1] = swapped;
  ck_assert_int_eq(plan_program_check(&program, &error), DP_INTERNAL);
  ck_assert_ptr_nonnull(strstr(error.text, "deadlock"));
  ck_assert_ptr_nonnull(strstr(error.text, "ALL_REDUCE"));
}
END_TEST

START_TEST(broken_structure_is_found) {
  reference_chain(4, 1, 2, 1, 100, &model);
  const reference_plan wanted = {.ranks = 2, .schedule = PLAN_1F1B, .microbatches = 4, .replicas = 2};
  for (int kind = 0; kind < 8; kind++) {
    compile(&wanted);
    const uint32_t send = find(0, PLAN_SEND, 1), forward = find(0, PLAN_FORWARD, 1),
                   reduce = find(0, PLAN_ALL_REDUCE, 3);
    switch (kind) {
      case 0:
        program.instructions[send].peer = program.instructions[find(0, PLAN_SEND, 2)].peer;
        break;
      case 1:
        program.instructions[program.instructions[send].peer].class_id++;
        break;
      case 2:
        program.instructions[forward].opcode = PLAN_SEND;
        break;
      case 3:
        program.instructions[forward].class_id = program.work_count;
        break;
      case 4:
        program.waits[program.wait_first[send]] = find(1, PLAN_FORWARD, 0);
        break;
      case 5:
        program.lanes[1].first++;
        break;
      case 6:
        program.instructions[reduce].peer = 1 - program.instructions[reduce].peer;
        break;
      default:
        program.instructions[send].microbatch = 2;
        break;
    }
    ck_assert_msg(plan_program_check(&program, &error) == DP_INTERNAL, "kind %d was not found", kind);
    ck_assert_ptr_null(strstr(error.text, "deadlock"));
    drop_program();
  }
}
END_TEST

/* An order that cannot run is refused before anything is made of it. */
START_TEST(broken_orders_are_refused) {
  reference_chain(2, 1, 2, 1, 100, &model);
  const reference_plan wanted = {.ranks = 2, .schedule = PLAN_1F1B, .microbatches = 2};
  for (int kind = 0; kind < 4; kind++) {
    reference_plan_make(&wanted, &model, &plan);
    plan_step *order = plan.order[1]; /* F0 B0 F1 B1 */
    switch (kind) {
      case 0:
        order[0].microbatch = 1;
        break;
      case 1:
        order[2].chunk = 0;
        break;
      case 2:
        plan.order_count[1]--;
        break;
      default: {                          /* rank 0: backward 0 before forward 0's only follower could run */
        plan_step *other = plan.order[0]; /* F0 F1 B0 B1 */
        const plan_step swapped = other[0];
        other[0] = other[2];
        other[2] = swapped;
      }
    }
    ck_assert_int_eq(plan_compile(&plan, &model, &program, &error), DP_INTERNAL);
    drop_program();
  }
}
END_TEST

START_TEST(schedules_refuse_other_chunk_counts) {
  reference_chain(24, 1, 2, 1, 100, &model);
  const struct {
    plan_schedule schedule;
    int chunks;
  } refused[] = {{PLAN_1F1B, 2}, {PLAN_ZB_H1, 2}, {PLAN_ZB_V, 1}, {PLAN_FOLDED, 1}, {PLAN_FOLDED, 3}};
  for (size_t i = 0; i < DP_COUNT_OF(refused); i++) {
    const reference_plan wanted = {
        .ranks = 2, .schedule = refused[i].schedule, .chunks_per_rank = refused[i].chunks, .microbatches = 2};
    reference_plan_shape(&wanted, &model, &plan);
    ck_assert_int_eq(plan_order_generate(&plan, NULL, NULL, &error), DP_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(error.text, plan_schedule_names[refused[i].schedule]));
    plan_plan_free(&plan);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {random_plans_keep_the_laws,
                                compiling_is_reproducible,
                                skips_travel_by_policy,
                                local_policy_names_what_would_travel,
                                the_latent_returns_to_the_first_stage,
                                replicas_reduce_their_gradients_by_parts,
                                the_global_norm_comes_between,
                                compressors_keep_k_values_of_like_dimensions,
                                members_reduce_their_own_gradients,
                                collectives_of_a_tensor_group_are_part_of_the_work,
                                metrics_by_hand,
                                plans_as_json,
                                a_deadlock_is_named,
                                crossed_orders_are_found,
                                broken_structure_is_found,
                                broken_orders_are_refused,
                                schedules_refuse_other_chunk_counts};
  return suite_run("plan_program", tests, DP_COUNT_OF(tests), setup, drop, 120);
}
