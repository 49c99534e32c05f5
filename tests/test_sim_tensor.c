/* Tensor groups in whole predictions: what they compute, what they send, what they keep; and when a search takes them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/shard.h"
#include "plan/nccl.h"
#include "sim/tune.h"
#include "tests/sim_texts.h"
#include "tests/suite.h"

#define SD3 "[model]\nconfig = \"models/sd3_medium.json\"\nheight = 512\nwidth = 512\n"
#define FLUX "[model]\nconfig = \"models/flux_dev.json\"\nheight = 512\nwidth = 512\n"

static void load(plan_scenario *scenario, const char *text) { load_as("tensor.toml", text, scenario); }

static void do_run(run *r, const char *text) {
  load(&r->scenario, text);
  predict(&r->scenario, &r->prediction);
}

/* Of all units of the share, once each: device seconds, collective seconds, bytes sent. */
typedef struct sums {
  double device_s[2], tensor_s[2]; /* forward, both backwards */
  int64_t sent_bytes[2];
} sums;

static sums add_up(const run *r, double ring_bytes_per_s) {
  const graph *share = &r->prediction.graph;
  const plan_plan *plan = &r->prediction.plan;
  const plan_device *device = &r->scenario.cluster.devices.items[plan->devices[0]];
  const sim_prepared_kind *kind = sim_prepared_kind_of(&r->prediction.own, device);
  plan_nccl_query query = plan_nccl_query_of(r->scenario.catalogue.nccl, &r->scenario.cluster, plan->devices,
                                             plan_tensor(plan), ring_bytes_per_s);
  sums s = {.sent_bytes = {0}};
  for (size_t o = 0; o < share->ops.count; o++)
    for (int d = 0; d < 3; d++) {
      const graph_op *op = &share->ops.items[o];
      const graph_work *work = d == 0 ? &op->forward : d == 1 ? &op->backward_input : &op->backward_weight;
      s.device_s[d > 0] += sim_cost_op(&kind->context, op, (sim_direction)d);
      if (work->collective == GRAPH_COLLECTIVE_NONE) continue;
      query.op = work->collective == GRAPH_COLLECTIVE_ALL_REDUCE ? PLAN_NCCL_ALL_REDUCE : PLAN_NCCL_ALL_GATHER;
      query.bytes = (double)work->collective_bytes;
      s.tensor_s[d > 0] += plan_nccl_time_s(r->scenario.catalogue.nccl, &query, NULL);
      s.sent_bytes[d > 0] += graph_collective_sent_bytes(work, plan_tensor(plan));
    }
  return s;
}

static double share_of_bound(const sim_prediction *p, const char *name) {
  for (int b = 0; b < p->bound_count; b++)
    if (strcmp(p->bounds[b].name, name) == 0) return p->bounds[b].share;
  return 0;
}

/* One stage and one microbatch: the sum of what stands in the share. */
START_TEST(a_step_is_compute_and_collectives) {
  static const char text[] =
      HEAD SD3 "[task]\nglobal_batch = 2\n" CARDS("H100-SXM5-80GB", "8") "[plan]\nstages = 1\ntensor_parallel = 4\n";
  run r;
  do_run(&r, text);
  const sim_prediction *p = &r.prediction;
  plan_route route;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(p->program.worker_count, 4);
  ck_assert_int_eq(plan_cluster_route(&r.scenario.cluster, 0, 1, &route, &error), DP_OK);
  const sums s = add_up(&r, route.bandwidth_bytes_per_s);
  ck_assert_double_gt(s.tensor_s[0], 0);
  for (int w = 0; w < 4; w++) {
    const plan_worker_metrics *worker = &p->metrics.workers[w];
    ck_assert_double_eq_tol(worker->forward_s, 2 * s.device_s[0], 1e-9); /* microbatches of 1 */
    ck_assert_double_eq_tol(worker->backward_s, 2 * s.device_s[1], 1e-9);
    ck_assert_double_ge(worker->tensor_s, 2 * (s.tensor_s[0] + s.tensor_s[1]) - 1e-9);
    ck_assert_double_le(worker->tensor_s, 2 * (s.tensor_s[0] + s.tensor_s[1]) + 1e-3); /* no norms of q and k here */
    ck_assert_double_eq_tol(worker->compute_s + worker->tensor_s + worker->idle_s, p->metrics.step_s, 1e-9);
    ck_assert_int_eq(worker->sent_bytes, 2 * (s.sent_bytes[0] + s.sent_bytes[1]));
    ck_assert_int_eq(p->memory.workers[w].at_peak_bytes[PLAN_MEMORY_WEIGHTS] / 1000,
                     p->memory.workers[0].at_peak_bytes[PLAN_MEMORY_WEIGHTS] / 1000);
  }
  ck_assert_int_eq(p->metrics.comm_bytes_by_kind[PLAN_TRAFFIC_TENSOR], 4 * 2 * (s.sent_bytes[0] + s.sent_bytes[1]));
  ck_assert_int_eq(p->metrics.comm_bytes, p->metrics.comm_bytes_by_kind[PLAN_TRAFFIC_TENSOR]);
  const double share = p->metrics.workers[0].tensor_s / p->metrics.step_s;
  ck_assert_double_eq_tol(share_of_bound(p, "tensor-parallel collectives"), share, 1e-6);
  double all = 0;
  for (int b = 0; b < p->bound_count; b++) all += p->bounds[b].share;
  ck_assert_double_eq_tol(all, 1, 1e-5);
  /* the samples of a group are those of one replica */
  ck_assert_double_eq_tol(p->metrics.throughput_samples_per_s, 2 / p->metrics.step_s, 1e-9);
  end_run(&r);
}
END_TEST

/* Recomputed units run their forward again, with its collectives. Partial gradients are summed before the optimizer. */
START_TEST(recomputation_repeats_collectives) {
#define CASE(more) \
  HEAD SD3 "[task]\nglobal_batch = 2\n" CARDS("H100-SXM5-80GB", "2") "[plan]\nstages = 1\ntensor_parallel = 2\n" more
  run none, all;
  do_run(&none, CASE(""));
  do_run(&all, CASE("recompute = \"all\"\n"));
  plan_route route;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(plan_cluster_route(&none.scenario.cluster, 0, 1, &route, &error), DP_OK);
  const sums s = add_up(&none, route.bandwidth_bytes_per_s);
  ck_assert_double_eq_tol(all.prediction.metrics.workers[0].tensor_s - none.prediction.metrics.workers[0].tensor_s,
                          2 * s.tensor_s[0], 1e-9);
  ck_assert_int_eq(all.prediction.metrics.workers[0].sent_bytes - none.prediction.metrics.workers[0].sent_bytes,
                   2 * s.sent_bytes[0]);
  end_run(&none);
  end_run(&all);
  run full, lora;
  do_run(&full, HEAD FLUX
         "[task]\nglobal_batch = 1\n" CARDS("H200-SXM-141GB", "4") "[plan]\nstages = 1\ntensor_parallel = 4\n");
  do_run(&lora, HEAD FLUX "[task]\nglobal_batch = 1\ntrainable = \"lora\"\n" CARDS(
                    "H200-SXM-141GB", "4") "[plan]\nstages = 1\ntensor_parallel = 4\n");
  const run *runs[] = {&full, &lora};
  for (int i = 0; i < 2; i++) {
    const plan_program *program = &runs[i]->prediction.program;
    const int64_t bytes = plan_partial_gradient_bytes(&runs[i]->prediction.plan, &runs[i]->prediction.graph, 0);
    /* 19 joint blocks of 4 norms and 38 of 2, of 128 weights; adapters: 8 and 3 times rank 16 x 3072; fp32 */
    ck_assert_int_eq(bytes, i == 0 ? 4LL * 128 * (19 * 4 + 38 * 2) : 4LL * 16 * 3072 * (19 * 8 + 38 * 3));
    for (uint32_t w = 0; w < program->work_count; w++)
      if (program->works[w].opcode == PLAN_OPTIMIZER_STEP)
        ck_assert_int_eq(program->works[w].tensor_bytes, bytes / 4 * 6); /* 2 * 3 / 4 of it */
  }
  end_run(&full);
  end_run(&lora);
}
END_TEST

/* Each of T members holds its part of weights, gradients, states and activations. */
START_TEST(memory_is_divided) {
  int64_t weights[2], optimizer[2], activations[2];
  for (int i = 0; i < 2; i++) {
    run r;
    do_run(&r, i ? HEAD FLUX
                   "[task]\nglobal_batch = 1\n" CARDS("H200-SXM-141GB", "4") "[plan]\nstages = 1\ntensor_parallel = 4\n"
                 : HEAD FLUX "[task]\nglobal_batch = 1\n" CARDS("H200-SXM-141GB", "4") "[plan]\nstages = 1\n");
    weights[i] = r.prediction.memory.workers[0].at_peak_bytes[PLAN_MEMORY_WEIGHTS];
    optimizer[i] = r.prediction.memory.workers[0].at_peak_bytes[PLAN_MEMORY_OPTIMIZER];
    activations[i] = r.prediction.memory.workers[0].at_peak_bytes[PLAN_MEMORY_ACTIVATIONS];
    ck_assert_int_eq(r.prediction.fits, i); /* 214 GB of weights, gradients and states */
    end_run(&r);
  }
  ck_assert_int_ge(4 * weights[1], weights[0]);
  ck_assert_int_lt(4 * weights[1], weights[0] + weights[0] / 100); /* biases after reductions, norms */
  ck_assert_int_lt(4 * optimizer[1], optimizer[0] + optimizer[0] / 100);
  ck_assert_int_gt(4 * activations[1], activations[0]); /* what norms keep is whole */
  ck_assert_int_lt(2 * activations[1], activations[0]);
}
END_TEST

/* All members take as long as the slowest: with a slower card the pair is as slow as two of those compute. */
START_TEST(members_keep_in_step) {
  double compute_s[3];
  static const char *const cards[] = {"[[cluster.node.device]]\nmodel = \"RTX-4090\"\ncount = 2\n",
                                      ("[[cluster.node.device]]\nmodel = \"RTX-4090\"\n"
                                       "[[cluster.node.device]]\nmodel = \"RTX-3090\"\n"),
                                      "[[cluster.node.device]]\nmodel = \"RTX-3090\"\ncount = 2\n"};
  for (int i = 0; i < 3; i++) {
    char text[1024];
    (void)snprintf(text, sizeof text, "%s%s", HEAD SD3 "[task]\nglobal_batch = 1\n[cluster]\n[[cluster.node]]\n",
                   cards[i]);
    strncat(text, "[plan]\nstages = 1\ntensor_parallel = 2\n", sizeof text - strlen(text) - 1);
    run r;
    do_run(&r, text);
    compute_s[i] = r.prediction.metrics.workers[0].forward_s + r.prediction.metrics.workers[0].backward_s;
    ck_assert_double_eq_tol(
        compute_s[i], r.prediction.metrics.workers[1].forward_s + r.prediction.metrics.workers[1].backward_s, 1e-12);
    end_run(&r);
  }
  ck_assert_double_lt(compute_s[0], compute_s[2]);
  ck_assert_double_eq_tol(compute_s[1], compute_s[2], 1e-12);
}
END_TEST

/* Cards 0 and 1 are under one switch, 2 and 3 under another: two groups of one card here and one there share the links
 * between the switches. With a port each to one NVSwitch groups do not meet. */
START_TEST(groups_share_what_they_cross) {
#define PAIRS(cluster, more)                                                 \
  HEAD SD3 "[task]\nglobal_batch = 4\n[cluster]\nfile = \"clusters/" cluster \
           "\"\n[plan]\nstages = 1\ntensor_parallel = 2\n" more
  static const char *const pairs[] = {
      PAIRS("8xa100-80gb-pcie.toml", "microbatches = 4\ndevices = [0, 2]\n"),
      PAIRS("8xa100-80gb-pcie.toml", "microbatch_size = 1\ndata_parallel = 2\ndevices = [0, 2, 1, 3]\n"),
      PAIRS("8xh100-sxm.toml", "microbatches = 4\n"),
      PAIRS("8xh100-sxm.toml", "microbatch_size = 1\ndata_parallel = 2\n"),
  };
  double tensor_s[4];
  for (int i = 0; i < 4; i++) {
    run r;
    do_run(&r, pairs[i]);
    tensor_s[i] = r.prediction.metrics.workers[0].tensor_s / r.prediction.plan.microbatches;
    end_run(&r);
  }
  ck_assert_double_gt(tensor_s[1], 1.3 * tensor_s[0]);
  ck_assert_double_eq_tol(tensor_s[3], tensor_s[2], 1e-12);
  ck_assert_double_gt(tensor_s[0], 4 * tensor_s[2]); /* PCIe against NVLink */
}
END_TEST

/* ---- the search ---- */

/* Simulates every candidate: none is better than the plan found, and no step is below its bound. Returns the best. */
static sim_candidate check_search(const char *text) {
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, text);
  search(&scenario, 2, &result);
  const int64_t batch = sim_tune_global_batch(&scenario, NULL);
  ck_assert_int_ge(result.best, 0);
  const sim_trial *best = &result.trials[result.best];
  int groups = 0;
  for (int i = 0; i < result.trial_count; i++) {
    const sim_trial *trial = &result.trials[i];
    const plan_scenario changed = sim_tune_scenario(&scenario, &trial->candidate, batch);
    sim_prediction prediction;
    dp_error error = DP_ERROR_INIT;
    groups += sim_candidate_tensor(&trial->candidate) > 1;
    if (sim_predict(&changed, efficiency, &prediction, &error) != DP_OK) {
      ck_assert_int_eq(error.status, DP_BAD_INPUT);
      continue;
    }
    char shown[256];
    ck_assert_msg(prediction.metrics.step_s >= trial->bound_s, "%s: step %.9g, bound %.9g",
                  sim_candidate_show(&trial->candidate, shown), prediction.metrics.step_s, trial->bound_s);
    if (prediction.fits && !trial->set_aside)
      ck_assert_double_le(prediction.metrics.throughput_samples_per_s, best->throughput_samples_per_s * (1 + 1e-9));
    sim_prediction_free(&prediction);
  }
  ck_assert_int_gt(groups, 0);
  const sim_candidate found = best->candidate;
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
  return found;
}

START_TEST(the_search_is_right_with_tensor_groups) {
  static const struct {
    const char *text;
    int tensor; /* 0: whatever */
  } cases[] = {
      /* one image: a pipeline of any length takes as long */
      {HEAD FLUX "[task]\nkind = \"sample\"\nsteps = 2\nglobal_batch = 1\n" CARDS("H100-SXM5-80GB", "4"), 4},
      {HEAD FLUX "[task]\nglobal_batch = 2\n" CARDS("H100-SXM5-80GB", "4"), 0},
      {HEAD SD3 "[task]\nglobal_batch = 4\n" CARDS("RTX-4090", "4") "[search]\nmicrobatch_sizes = [1, 2]\n", 0},
      {HEAD SD3 "[task]\nglobal_batch = 2\n[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"RTX-4090\"\n"
                "count = 2\n[[cluster.node.device]]\nmodel = \"RTX-3090\"\ncount = 2\n"
                "[search]\ntensor_parallel = [1, 2, 3, 4]\nschedules = [\"1f1b\", \"folded\"]\n",
       0},
      {HEAD FLUX "[task]\nglobal_batch = 2\ntrainable = \"lora\"\n[cluster]\nfile = \"clusters/2x8xa100-ib.toml\"\n"
                 "[search]\nstages = [1, 4]\ndata_parallel = [1]\ntensor_parallel = [1, 8, 16]\n",
       0},
  };
  if (suite_is_short() && _i == 1) return; /* many plans */
  const sim_candidate best = check_search(cases[_i].text);
  if (cases[_i].tensor) ck_assert_int_eq(sim_candidate_tensor(&best), cases[_i].tensor);
}
END_TEST

/* Many samples: replicas need no reduction in every layer. What a group cannot split is no candidate. */
START_TEST(groups_are_only_taken_where_they_help) {
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, HEAD SD3 "[task]\nglobal_batch = 64\n" CARDS("H100-SXM5-80GB", "4") "[search]\nmicrobatch_sizes = [4]\n"
                                                                                      "tensor_parallel = [1, 2, 4, 5]\n");
  search(&scenario, 2, &result);
  int wide = 0;
  ck_assert_int_eq(sim_candidate_tensor(&result.trials[result.best].candidate), 1);
  for (int i = 0; i < result.trial_count; i++) wide += sim_candidate_tensor(&result.trials[i].candidate) == 4;
  ck_assert_int_gt(wide, 0);
  for (int i = 0; i < result.trial_count; i++) ck_assert_int_le(sim_candidate_tensor(&result.trials[i].candidate), 4);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);

  load(&scenario, HEAD FLUX "[task]\nkind = \"sample\"\nsteps = 2\nglobal_batch = 1\n" CARDS("H100-SXM5-80GB", "4"));
  search(&scenario, 2, &result);
  char shown[256], brief[128];
  int neighbours = 0;
  const sim_candidate *best = &result.trials[result.best].candidate;
  ck_assert_str_eq(sim_candidate_show(best, shown),
                   "1 stage x 4 tensor members x 1 replica, 1f1b, 1 microbatch of 1, nothing recomputed, skips direct");
  ck_assert_str_eq(sim_candidate_brief(best, brief), "1/T4x1 1f1b 1x1");
  for (int i = 0; i < result.neighbour_count; i++)
    if (sim_candidate_tensor(&result.trials[result.neighbours[i]].candidate) == 2) neighbours++;
  ck_assert_int_eq(neighbours, 1); /* half the group, and said why it lost */
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);

  dp_error error = DP_ERROR_INIT;
  load(&scenario, HEAD SD3 "[task]\nglobal_batch = 4\n" CARDS("H100-SXM5-80GB", "8") "[search]\ntensor_parallel = 7\n");
  const sim_tune_options how = {.threads = 1};
  ck_assert_int_eq(sim_tune(&scenario, efficiency, &how, &result, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "found a tensor group of 7, allowed: one that divides some layer"));
  plan_scenario_free(&scenario);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("sim: tensor groups");
  TCase *cases = suite_case(suite, "all", read_efficiency, free_efficiency, 120);
  const TTest *const tests[] = {
      a_step_is_compute_and_collectives, recomputation_repeats_collectives,    memory_is_divided, members_keep_in_step,
      groups_share_what_they_cross,      groups_are_only_taken_where_they_help};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(cases, tests[i]);
  tcase_add_loop_test(cases, the_search_is_right_with_tensor_groups, 0, 5);
  return suite_finish(suite);
}
