/* Scenarios: what is read, what defaults are, how counts settle, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "plan/scenario.h"
#include "tests/suite.h"

static plan_scenario scenario;
static plan_plan plan;

static void teardown(void) {
  plan_plan_free(&plan);
  plan_scenario_free(&scenario);
}

#define HEAD "format = \"diffpipe-scenario\"\nversion = 1\n"         /* lines 1, 2 */
#define SYNTHETIC "[model]\nsynthetic_units = 16\nforward_us = 10\n" /* lines 3 to 5 */
#define EIGHT \
  "[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"H100-SXM5-80GB\"\ncount = 8\n" /* 6 to 10 */
#define BASE HEAD SYNTHETIC EIGHT
#define SD15 HEAD "[model]\nconfig = \"models/sd15_unet.json\"\n" EIGHT

static dp_status parse(const char *text, dp_error *error) {
  teardown();
  return plan_scenario_parse(text, strlen(text), "s.toml", &scenario, error);
}

static void settle(const char *text) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(parse(text, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(plan_scenario_plan(&scenario, &plan, &error) == DP_OK, "%s", error.text);
}

static void read_installed(const char *name, const char *const *sets, int count) {
  dp_error error = DP_ERROR_INIT;
  dp_arena arena = {0};
  const char *path = dp_arena_printf(&arena, "%s/%s.toml", dp_data_folder(), name);
  teardown();
  ck_assert_msg(plan_scenario_read(path, sets, count, &scenario, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(plan_scenario_plan(&scenario, &plan, &error) == DP_OK, "%s", error.text);
  dp_arena_free(&arena);
}

START_TEST(defaults_are_as_documented) {
  settle(BASE);
  ck_assert_str_eq(scenario.name, "s");
  ck_assert(scenario.training && scenario.gradient_fp32 && scenario.cuda_graphs && !scenario.guidance);
  ck_assert_str_eq(scenario.implementation, "fused");
  ck_assert_int_eq(scenario.optimizer, PLAN_ADAMW);
  ck_assert_int_eq(scenario.steps, 1);
  ck_assert_double_eq_tol(scenario.synthetic_options.forward_s, 10e-6, 1e-18);
  ck_assert_double_eq_tol(scenario.synthetic_options.backward_s, 20e-6, 1e-18);
  ck_assert_double_eq_tol(scenario.synthetic_options.weight_backward_s, 10e-6, 1e-18);
  ck_assert_int_eq(plan.ranks, 8);
  ck_assert_int_eq(plan.replicas, 1);
  ck_assert_int_eq(plan.chunks_per_rank, 1);
  ck_assert_int_eq(plan.schedule, PLAN_1F1B);
  ck_assert_int_eq(plan.microbatches, 32);
  ck_assert_int_eq(plan.microbatch_size, 1);
  ck_assert_int_eq(plan.skip_policy, PLAN_SKIP_DIRECT);
  ck_assert_int_eq(plan.gradient_buckets, 1);
  ck_assert_int_eq(plan.denoise_steps, 1);
  for (int w = 0; w < 8; w++) ck_assert_int_eq(plan.devices[w], w);
  settle(BASE "[plan]\ndata_parallel = 2\nschedule = \"folded\"\n");
  ck_assert_int_eq(plan.ranks, 4);
  ck_assert_int_eq(plan.chunks_per_rank, 2);
  ck_assert_int_eq(plan.gradient_buckets, 4);
  settle(BASE "[task]\nkind = \"sample\"\nguidance = true\n");
  ck_assert_int_eq(plan.denoise_steps, 50);
  ck_assert_int_eq(plan.microbatches, 8);
  ck_assert(!plan.training && scenario.guidance);
  graph g = {0};
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(plan_scenario_graph(&scenario, 3, &g, &error), DP_OK);
  ck_assert_int_eq(g.batch, 6); /* guidance: each sample twice */
  graph_free(&g);
}
END_TEST

/* What is to be trained here is planned for what trains it. */
START_TEST(implementation_is_the_executor_s_where_it_trains) {
  settle(SD15 "[train]\n");
  ck_assert_str_eq(scenario.implementation, "cuda");
  settle(SD15 "[task]\nimplementation = \"pytorch-eager\"\n[train]\n");
  ck_assert_str_eq(scenario.implementation, "pytorch-eager");
  settle(HEAD
         "[model]\nconfig = \"models/sd15_unet.json\"\nprecision = \"fp32\"\n[cluster]\nfile = "
         "\"clusters/2xcpu.toml\"\n[train]\n");
  ck_assert_str_eq(scenario.implementation, "cpu");
}
END_TEST

START_TEST(two_counts_give_the_third) {
  static const struct {
    const char *text;
    int microbatches, microbatch_size;
  } cases[] = {
      {"[task]\nglobal_batch = 64\n[plan]\ndata_parallel = 2\n", 32, 1},
      {"[task]\nglobal_batch = 64\n[plan]\ndata_parallel = 2\nmicrobatch_size = 4\n", 8, 4},
      {"[task]\nglobal_batch = 64\n[plan]\ndata_parallel = 2\nmicrobatches = 4\n", 4, 8},
      {"[task]\nglobal_batch = 64\n[plan]\ndata_parallel = 2\nmicrobatches = 4\nmicrobatch_size = 8\n", 4, 8},
      {"[plan]\nmicrobatches = 5\nmicrobatch_size = 3\n", 5, 3},
      {"[plan]\nmicrobatches = 5\n", 5, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[512];
    (void)snprintf(text, sizeof text, "%s%s", BASE, cases[i].text);
    settle(text);
    ck_assert_int_eq(plan.microbatches, cases[i].microbatches);
    ck_assert_int_eq(plan.microbatch_size, cases[i].microbatch_size);
  }
}
END_TEST

START_TEST(plan_keys_reach_the_plan) {
  settle(BASE
         "[task]\noptimizer = \"adafactor\"\ngradient_precision = \"model\"\ncuda_graphs = false\nimplementation = "
         "\"pytorch-eager\"\n"
         "[plan]\nstages = 2\ndata_parallel = 2\ndevices = [7, 5, 3, 1]\nsplit = [2, 5, 9]\nschedule = "
         "\"interleaved\"\nchunks = 2\n"
         "skip_policy = \"compress\"\nk = 64\nrecompute = [\"unit0\", 3]\ngradient_buckets = 7\n"
         "[search]\nschedules = [\"folded\", \"1f1b\"]\nmicrobatch_sizes = [1, 2]\nallow_lossy_skips = "
         "true\nmax_stages = 4\n");
  ck_assert_int_eq(plan.optimizer, PLAN_ADAFACTOR);
  ck_assert(!plan.gradient_fp32 && !scenario.cuda_graphs);
  ck_assert_str_eq(scenario.implementation, "pytorch-eager");
  static const int devices[] = {7, 5, 3, 1};
  for (int w = 0; w < 4; w++) ck_assert_int_eq(plan.devices[w], devices[w]);
  ck_assert_uint_eq(scenario.split_count, 3);
  ck_assert_int_eq(scenario.split[2], 9);
  ck_assert_int_eq(plan.schedule, PLAN_INTERLEAVED);
  ck_assert_int_eq(plan.skip_policy, PLAN_SKIP_COMPRESS);
  ck_assert_int_eq(plan.k, 64);
  ck_assert_int_eq(plan.gradient_buckets, 7);
  ck_assert_uint_eq(scenario.recompute_list->count, 2);
  ck_assert_int_eq(scenario.recompute, PLAN_RECOMPUTE_LISTED);
  ck_assert_ptr_nonnull(scenario.search);
  settle(BASE "[plan]\nschedule = \"interleaved\"\nchunks = 1\nrecompute = \"all\"\n"); /* plain 1F1B by another name */
  ck_assert_int_eq(plan.chunks_per_rank, 1);
  ck_assert_int_eq(scenario.recompute, PLAN_RECOMPUTE_ALL);
}
END_TEST

/* Members of a tensor group take neighbouring devices, then come stages, then replicas; an own list goes by worker. */
START_TEST(tensor_groups_are_placed) {
  static const int in_order[] = {0, 2, 1, 3, 4, 6, 5, 7}; /* worker: (replica, member, stage) */
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(parse(SD15 "[plan]\ntensor_parallel = 2\ndata_parallel = 2\n", &error), DP_OK);
  ck_assert_int_eq(plan_scenario_plan(&scenario, &plan, &error), DP_OK);
  ck_assert(plan.ranks == 2 && plan.tensor == 2 && plan.replicas == 2 && plan_worker_count(&plan) == 8);
  for (int w = 0; w < 8; w++) ck_assert_int_eq(plan.devices[w], in_order[w]);
  teardown();
  ck_assert_int_eq(parse(SD15 "[plan]\ntensor_parallel = 2\nstages = 2\ndevices = [7, 1, 0, 3]\n", &error), DP_OK);
  ck_assert_int_eq(plan_scenario_plan(&scenario, &plan, &error), DP_OK);
  ck_assert(plan.devices[0] == 7 && plan.devices[1] == 1 && plan.devices[2] == 0 && plan.devices[3] == 3);
  graph share = {0};
  ck_assert_int_eq(plan_scenario_share(&scenario, 1, 2, &share, &error), DP_OK);
  ck_assert_int_eq(share.tensor_parallel, 2);
  ck_assert_int_eq(share.model_parameters, 859520964);
  graph_free(&share);
  ck_assert_int_eq(plan_scenario_share(&scenario, 1, 7, &share, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text,
                               "s.toml:11: plan.tensor_parallel: found a tensor group of 7, allowed: one "
                               "that divides some layer of the model"));
}
END_TEST

START_TEST(installed_scenarios_are_read) {
  static const struct {
    const char *name;
    size_t devices;
    int ranks, replicas, microbatches;
  } cases[] = {
      {"sd15-4xrtx3090", 4, 4, 1, 32},    {"sdxl-8xa100-sxm", 8, 4, 2, 32},     {"sdxl-8xa100-pcie", 8, 4, 2, 16},
      {"sd3-8xh100", 8, 4, 2, 32},        {"flux-lora-4xrtx4090", 4, 4, 1, 16}, {"sdxl-unlike-16gb-24gb", 2, 2, 1, 16},
      {"sdxl-2x8xa100-ib", 16, 4, 4, 32}, {"sdxl-h200-virtual4", 4, 4, 1, 32},  {"study-1f1b", 4, 4, 1, 8},
      {"flux-image-8xh100", 8, 1, 1, 1},  {"flux-batch4-8xh100", 8, 4, 1, 4},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    read_installed(cases[i].name, NULL, 0);
    ck_assert_str_eq(scenario.name, cases[i].name);
    ck_assert_uint_eq(scenario.cluster.devices.count, cases[i].devices);
    ck_assert_msg(plan.ranks == cases[i].ranks && plan.replicas == cases[i].replicas &&
                      plan.microbatches == cases[i].microbatches,
                  "%s", cases[i].name);
    graph g = {0};
    dp_error error = DP_ERROR_INIT;
    ck_assert_msg(plan_scenario_graph(&scenario, plan.microbatch_size, &g, &error) == DP_OK, "%s", error.text);
    ck_assert_int_eq(g.batch, plan.microbatch_size);
    ck_assert_int_ge((int)g.units.count, plan.chunk_count);
    graph_free(&g);
  }
}
END_TEST

START_TEST(command_line_overrides_the_file) {
  const char *const sets[] = {"plan.stages=2",      "plan.data_parallel=4",   "task.global_batch=32",
                              "plan.schedule=1f1b", "plan.microbatch_size=4", "cluster.file=clusters/8xh200-sxm.toml"};
  read_installed("sdxl-8xa100-sxm", sets, 6);
  ck_assert_int_eq(plan.ranks, 2);
  ck_assert_int_eq(plan.replicas, 4);
  ck_assert_int_eq(plan.microbatches, 2);
  ck_assert_int_eq(plan.schedule, PLAN_1F1B);
  ck_assert_str_eq(scenario.cluster.name, "8xh200-sxm");
  const char *const wrong[] = {"plan.stages=9"};
  dp_error error = DP_ERROR_INIT;
  dp_arena arena = {0};
  teardown();
  ck_assert_int_eq(
      plan_scenario_read(dp_arena_printf(&arena, "%s/study-1f1b.toml", dp_data_folder()), wrong, 1, &scenario, &error),
      DP_BAD_INPUT);
  ck_assert_str_eq(
      error.text,
      "--set plan.stages=9: plan.stages: found 9 with data_parallel = 1, 9 workers, allowed: at most 4 stages, since "
      "there are 4 devices of the cluster");
  dp_arena_free(&arena);
}
END_TEST

START_TEST(errors_name_line_and_value) {
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"", "s.toml:1: the key \"format\" is missing, allowed: format = \"diffpipe-scenario\""},
      {HEAD SYNTHETIC, "s.toml:1: scenario: the key \"cluster\" is missing"},
      {HEAD EIGHT, "s.toml:1: scenario: the key \"model\" is missing"},
      {HEAD "[model]\n" EIGHT, "s.toml:3: model: found neither config nor synthetic_units, needed: one of the two"},
      {HEAD "[model]\nconfig = \"a.json\"\nsynthetic_units = 4\n" EIGHT,
       "s.toml:5: model.synthetic_units: found beside config, allowed: one of the two"},
      {HEAD "[model]\nconfig = \"no.json\"\n" EIGHT,
       "s.toml:4: model.config: found \"no.json\", which cannot be opened, allowed: a file beside the scenario or in "
       "the installed data"},
      {HEAD "[model]\nconfig = \"models/sdxl_unet.json\"\nforward_us = 3\n" EIGHT,
       "s.toml:5: model.forward_us: found beside config, allowed: only with synthetic_units"},
      {HEAD SYNTHETIC "height = 512\n" EIGHT,
       "s.toml:6: model.height: found beside synthetic_units, allowed: only with config"},
      {HEAD SYNTHETIC "backward_us = 5\nweight_backward_us = 6\n" EIGHT,
       "s.toml:7: model.weight_backward_us: found 6, allowed: at most backward_us, 5"},
      {HEAD SYNTHETIC "[cluster]\nfile = \"clusters/8xh100-sxm.toml\"\nname = \"x\"\n",
       "s.toml:8: cluster.name: found beside file, allowed: one of the two"},
      {HEAD SYNTHETIC "[cluster]\n", "s.toml:6: cluster: found neither file nor node"},
      {HEAD SYNTHETIC "[cluster]\nfile = \"none.toml\"\n",
       "s.toml:7: cluster.file: found \"none.toml\", which cannot be opened"},
      {HEAD SYNTHETIC "[cluster]\nfile = 7\n", "s.toml:7: cluster.file: found 7, allowed: the path of a cluster file"},
      {HEAD SYNTHETIC "[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"H1000\"\n",
       "s.toml:9: [[node.device]].model: found \"H1000\", allowed: V100-SXM2-32GB"},
      {BASE "[plan]\nstage = 4\n",
       "s.toml:12: plan: unknown key \"stage\", did you mean \"stages\"? allowed: stages, split"},
      {BASE "[plan]\nstages = 1000000000\n",
       "s.toml:12: plan.stages: found 1000000000, allowed: an integer from 1 to 65536"},
      {BASE "[plan]\nstages = 9\n",
       "s.toml:12: plan.stages: found 9 with data_parallel = 1, 9 workers, allowed: at most 8 stages, since there are "
       "8 devices of the cluster"},
      {BASE "[plan]\ndata_parallel = 9\n",
       "s.toml:12: plan.data_parallel: found 9, allowed: at most 8, the devices of the cluster"},
      {BASE "[plan]\ntensor_parallel = 2\n",
       "s.toml:12: plan.tensor_parallel: found 2 with synthetic units, allowed: 1"},
      {SD15 "[plan]\ntensor_parallel = 8\ndata_parallel = 2\n",
       "s.toml:11: plan.tensor_parallel: found 8 with data_parallel = 2, allowed: at most 4, since there are 8 devices "
       "of the cluster"},
      {SD15 "[plan]\ntensor_parallel = 2\ndata_parallel = 2\nstages = 3\n",
       "s.toml:13: plan.stages: found 3 with data_parallel = 2 and tensor_parallel = 2, 12 workers, allowed: at most 2 "
       "stages, since there are 8 devices of the cluster"},
      {SD15 "[plan]\ntensor_parallel = 2\nstages = 1\ndevices = [0]\n",
       "s.toml:11: plan.tensor_parallel: found 2 with data_parallel = 1, allowed: at most 1, since there are 1 entries "
       "of plan.devices"},
      {SD15 "[plan]\ntensor_parallel = 2\nstages = 1\ndevices = [0, 1, 2]\n",
       "s.toml:13: plan.devices: found 3 entries for 1 stages * 1 replicas * 2 tensor members, allowed: 2"},
      {SD15 "[plan]\ntensor_parallel = 65\n",
       "s.toml:11: plan.tensor_parallel: found 65, allowed: an integer from 1 to 64"},
      {SD15 "[search]\ntensor_parallel = [2, 100]\n",
       "s.toml:11: search.tensor_parallel: found 100, allowed: integers from 1 to 64"},
      {BASE "[plan]\nschedule = \"folded\"\nchunks = 3\n",
       "s.toml:13: plan.chunks: found 3 with schedule = \"folded\", allowed: 2"},
      {BASE "[plan]\nchunks = 2\n", "s.toml:12: plan.chunks: found 2 with schedule = \"1f1b\", allowed: 1"},
      {BASE "[plan]\nschedule = \"interleaved\"\nchunks = 3\n",
       "plan.stages: found 8 stages of 3 chunks, allowed: at most 16 chunks in all, the model's units"},
      {BASE "[plan]\nk = 8\n",
       "s.toml:12: plan.k: found with skip_policy = \"direct\", allowed: only with \"compress\""},
      {BASE "[plan]\nskip_policy = \"compress\"\n", "s.toml:12: plan.skip_policy: found \"compress\" without k"},
      {BASE "[plan]\nsplit = [3, 2]\nstages = 3\n",
       "s.toml:12: plan.split: found 2 after 3, allowed: ascending cut points"},
      {BASE "[plan]\nsplit = [1, 2]\nstages = 2\n",
       "s.toml:12: plan.split: found 2 cut points, allowed: 1 (stages * chunks - 1)"},
      {BASE "[plan]\nsplit = [16]\nstages = 2\n", "s.toml:12: plan.split: found 16, allowed: at most 15 (units - 1)"},
      {BASE "[plan]\ndevices = [0, 8]\n", "s.toml:12: plan.devices: found 8, allowed: integers from 0 to 7"},
      {BASE "[plan]\ndevices = [0, 0]\n", "s.toml:12: plan.devices: found device 0 twice, allowed: once"},
      {BASE "[plan]\ndevices = [0, 1, 2]\nstages = 2\n",
       "s.toml:12: plan.devices: found 3 entries for 2 stages * 1 replicas, allowed: 2"},
      {BASE "[plan]\nrecompute = 3\n",
       "s.toml:12: plan.recompute: found 3, allowed: none, all, auto, or a list of unit names or indices"},
      {BASE "[plan]\nrecompute = [-1]\n", "s.toml:12: plan.recompute: found -1, allowed: unit names or indices from 0"},
      {BASE "[plan]\nmicrobatches = 1000000\nchunks = 4\nschedule = \"interleaved\"\nstages = 4\ndata_parallel = 2\n",
       "s.toml:12: plan: found 4 stages * 2 replicas * 4 chunks * 1000000 microbatches = 32000000 passes a step, "
       "allowed: at most 4194304"},
      {HEAD "[model]\nsynthetic_units = 65535\nforward_us = 10\n" EIGHT
            "[plan]\nschedule = \"interleaved\"\nchunks = 250\n",
       "s.toml:13: plan: found 2000 chunks of 65535 synthetic units, allowed: at most 1024 chunks of so many units"},
      {BASE "[task]\nglobal_batch = 10\n[plan]\ndata_parallel = 4\n",
       "s.toml:12: task.global_batch: found 10, allowed: a multiple of data_parallel, 4"},
      {BASE "[task]\nglobal_batch = 64\n[plan]\nmicrobatches = 4\nmicrobatch_size = 4\ndata_parallel = 2\n",
       "s.toml:12: task.global_batch: found 64, allowed: microbatches * microbatch_size * data_parallel = 4 * 4 * 2 = "
       "32"},
      {BASE "[task]\nglobal_batch = 64\n[plan]\nmicrobatch_size = 5\n",
       "s.toml:14: plan.microbatch_size: found 5 with global_batch = 64 and data_parallel = 1, allowed: a divisor of "
       "64"},
      {BASE "[task]\nkind = \"sample\"\noptimizer = \"sgd\"\n",
       "s.toml:13: task.optimizer: found with kind = \"sample\", allowed: only with kind = \"train\""},
      {BASE "[task]\nguidance = true\n",
       "s.toml:12: task.guidance: found with kind = \"train\", allowed: only with kind = \"sample\""},
      {BASE "[task]\ntrainable = \"lora\"\n",
       "s.toml:12: task.trainable: found \"lora\" with synthetic units, allowed: full"},
      {BASE "[task]\nlora_rank = 4\n",
       "s.toml:12: task.lora_rank: found with trainable = \"full\", allowed: only with trainable = \"lora\""},
      {BASE "[task]\nkind = \"training\"\n",
       "s.toml:12: task.kind: found \"training\", did you mean \"train\"? allowed: train, sample"},
      {BASE "[search]\nschedules = [\"1f1b\", \"2f2b\"]\n",
       "s.toml:12: search.schedules: found \"2f2b\", allowed: gpipe, 1f1b"},
      {BASE "[search]\nmicrobatch_size = [1]\n",
       "s.toml:12: search: unknown key \"microbatch_size\", did you mean \"microbatch_sizes\"?"},
      {BASE "[search]\nk = [0]\n", "s.toml:12: search.k: found 0, allowed: integers from 1 to 1000000000"},
      {HEAD "plan = 3\n" SYNTHETIC EIGHT, "s.toml:3: plan: found 3, allowed: a table"},
      {HEAD "[model]\nconfig = \"models/sdxl_unet.json\"\n[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\nmodel "
            "= \"V100-SXM2-32GB\"\ncount = 2\n",
       "s.toml:3: model.precision: found bf16, which device node0/gpu0, V100-SXM2-32GB, does not compute, allowed: "
       "fp16 or fp32"},
      {"format = \"diffpipe-cluster\"\nversion = 1\n",
       "s.toml:1: format: found \"diffpipe-cluster\", allowed: \"diffpipe-scenario\""},
      {"format = \"diffpipe-scenario\"\nversion = 2\n", "s.toml:2: version: found 2, allowed: 1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    dp_error error = DP_ERROR_INIT;
    const dp_status status = parse(cases[i].text, &error);
    ck_assert_msg(status == DP_BAD_INPUT, "case %zu: status %d, expected %s", i, (int)status, cases[i].expected);
    ck_assert_msg(strstr(error.text, cases[i].expected) != NULL, "case %zu:\n%s\nexpected\n%s", i, error.text,
                  cases[i].expected);
  }
}
END_TEST

START_TEST(training_has_defaults_and_takes_every_key) {
  settle(BASE);
  const plan_train *t = &scenario.train;
  ck_assert_int_eq(t->objective, -1);
  ck_assert(!t->scheduler && !t->weights && !t->stage_rates && !scenario.data.path);
  ck_assert_ptr_null(scenario.model_options.lora_targets);
  ck_assert(t->learning_rate == 1e-4 && t->betas[0] == 0.9 && t->betas[1] == 0.999 && t->epsilon == 1e-8);
  ck_assert(t->weight_decay == 0.01 && t->clip_norm == 0 && t->guidance == 1 && t->ema_decay == 0);
  ck_assert(t->deterministic);
  ck_assert_int_eq(t->keep_checkpoints, 3);
  ck_assert(scenario.data.shuffle && !scenario.data.trust_cache && scenario.data.bucket_count == 0);
  settle(SD15
         "[task]\ntrainable = \"lora\"\nlora_rank = 4\n[data]\npath = \"no/where\"\nshuffle = false\n"
         "buckets = [[512, 768], [768, 512]]\n[train]\nobjective = \"v_prediction\"\nweights = \"nor/here\"\n"
         "lr_schedule = \"cosine\"\nwarmup_steps = 5\nlr_floor = 0.1\nbetas = [0.8, 0.95]\nstage_rates = [1, 0.5]\n"
         "lora_targets = [\"to_q\", \"ff.net.2\"]\nlora_alpha = 8\nema_decay = 0.99\nseed = 7\nmin_snr_gamma = 5\n"
         "deterministic = false\n");
  ck_assert_str_eq(plan_objective_names[t->objective], "v_prediction");
  ck_assert(t->clip_norm == 1 && plan.global_norm); /* the norm is a part of the program */
  ck_assert_int_eq(t->rate_schedule, PLAN_RATE_COSINE);
  ck_assert(t->warmup_steps == 5 && t->rate_floor == 0.1 && t->betas[0] == 0.8 && t->betas[1] == 0.95);
  ck_assert(t->stage_rate_count == 2 && t->stage_rates[0] == 1 && t->stage_rates[1] == 0.5);
  ck_assert(t->lora_alpha == 8 && t->ema_decay == 0.99 && t->seed == 7 && t->min_snr_gamma == 5 && !t->deterministic);
  ck_assert(scenario.data.bucket_count == 2 && scenario.data.buckets[1].height == 768 && !scenario.data.shuffle);
}
END_TEST

/* Which layers are trained is part of the model that is planned; files are looked for by who trains. */
START_TEST(training_reaches_the_graph_and_finds_its_files) {
  dp_error error = DP_ERROR_INIT;
  graph g = {0};
  settle(SD15 "[task]\ntrainable = \"lora\"\nlora_rank = 4\n[train]\nlora_targets = [\"attn2.to_k\"]\n");
  ck_assert_msg(plan_scenario_graph(&scenario, 1, &g, &error) == DP_OK, "%s", error.text);
  int adapted = 0;
  for (size_t o = 0; o < g.ops.count; o++) {
    const graph_op *op = &g.ops.items[o];
    ck_assert_int_eq(op->adapter_parameters > 0, strstr(op->name, ".attn2.to_k") != NULL);
    adapted += op->adapter_parameters > 0;
  }
  ck_assert_int_eq(adapted, 16); /* one a transformer block */
  graph_free(&g);
  settle(SD15 "[task]\ntrainable = \"lora\"\n[train]\nlora_targets = [\"to_q\", \"o_k\"]\n");
  ck_assert_int_eq(plan_scenario_graph(&scenario, 1, &g, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "s.toml:13: train.lora_targets is \"o_k\", must be the end of a linear layer's name, as to_q");
  settle(SD15 "[data]\npath = \"no/where\"\n[train]\nscheduler = \"models/sd15_unet.json\"\n");
  ck_assert_int_eq(plan_scenario_find_training(&scenario, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "s.toml:11: data.path: found \"no/where\", which cannot be opened, allowed: a file beside the "
                   "scenario or in the installed data");
  const char *end = strstr(scenario.train.scheduler, "/models/sd15_unet.json");
  ck_assert_ptr_nonnull(end);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("plan: scenario");
  TCase *tests = suite_case(suite, "all", NULL, teardown, 120);
  tcase_add_test(tests, defaults_are_as_documented);
  tcase_add_test(tests, implementation_is_the_executor_s_where_it_trains);
  tcase_add_test(tests, two_counts_give_the_third);
  tcase_add_test(tests, plan_keys_reach_the_plan);
  tcase_add_test(tests, tensor_groups_are_placed);
  tcase_add_test(tests, installed_scenarios_are_read);
  tcase_add_test(tests, command_line_overrides_the_file);
  tcase_add_test(tests, errors_name_line_and_value);
  tcase_add_test(tests, training_has_defaults_and_takes_every_key);
  tcase_add_test(tests, training_reaches_the_graph_and_finds_its_files);
  return suite_finish(suite);
}
