/* What is chosen for a plan: the units to recompute, the policy of each skip tensor, the change that makes a job fit.
 */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/remedy.h"
#include "tests/scratch.h"
#include "tests/sim_texts.h"
#include "tests/suite.h"

static void load(plan_scenario *scenario, const char *text) { load_as("choices.toml", text, scenario); }

static int recomputed(const sim_prediction *p) {
  int count = 0;
  for (size_t u = 0; u < p->graph.units.count; u++) count += p->plan.recompute[u] != 0;
  return count;
}

/* ---- recomputation ---- */

/* One of each kind: fits as it is, fits with some, with all, with nothing. */
static const char *const plans[] = {
    HEAD SDXL CARDS("A100-SXM4-80GB", "2") "[plan]\nstages = 2\nmicrobatch_size = 2\nmicrobatches = 8\n",
    HEAD SDXL CARDS("A100-SXM4-80GB", "1") "[plan]\nmicrobatch_size = 8\nmicrobatches = 2\n",
    HEAD SDXL CARDS("RTX-4090", "4") "[plan]\nstages = 4\nmicrobatch_size = 2\nmicrobatches = 12\n",
    HEAD SDXL CARDS(
        "RTX-4090",
        "4") "[plan]\nstages = 4\nschedule = \"interleaved\"\nchunks = 2\nmicrobatch_size = 2\nmicrobatches = 8\n",
    HEAD SDXL CARDS("RTX-4090",
                    "4") "[plan]\nstages = 4\nschedule = \"folded\"\nmicrobatch_size = 2\nmicrobatches = 8\n",
    HEAD SDXL CARDS("RTX-4090",
                    "4") "[plan]\nstages = 4\nschedule = \"zb-h1\"\nmicrobatch_size = 2\nmicrobatches = 8\n",
    HEAD SDXL CARDS("RTX-4090", "4") "[plan]\nstages = 4\nschedule = \"zb-v\"\nmicrobatch_size = 2\nmicrobatches = 8\n",
    HEAD SDXL CARDS("RTX-4090",
                    "4") "[plan]\nstages = 4\nschedule = \"gpipe\"\nmicrobatch_size = 1\nmicrobatches = 16\n",
    HEAD SDXL CARDS("L4", "2") "[plan]\nstages = 2\nmicrobatch_size = 1\nmicrobatches = 4\n",
    HEAD SD15 CARDS("RTX-3090", "2") "memory_limit_gb = 9\n[plan]\nstages = 2\nmicrobatch_size = 4\nmicrobatches = 8\n",
    HEAD SD15 CARDS(
        "RTX-3090",
        "2") "memory_limit_gb = 9\n[plan]\nstages = 1\ndata_parallel = 2\nmicrobatch_size = 4\nmicrobatches = 2\n",
};
enum { PLAN_COUNT = sizeof plans / sizeof plans[0] };

static void assert_auto_is_as_good(int i) {
  plan_scenario scenario;
  sim_prediction by[PLAN_RECOMPUTE_CHOICES];
  load(&scenario, plans[i]);
  for (int r = 0; r < PLAN_RECOMPUTE_CHOICES; r++) {
    scenario.recompute = (plan_recompute)r;
    predict(&scenario, &by[r]);
  }
  const sim_prediction *automatic = &by[PLAN_RECOMPUTE_AUTO], *none = &by[PLAN_RECOMPUTE_NONE];
  const sim_prediction *all = &by[PLAN_RECOMPUTE_ALL];
  ck_assert_int_eq(recomputed(none), 0);
  ck_assert_int_eq(recomputed(all), (int)all->graph.units.count);
  if (none->fits || all->fits) ck_assert(automatic->fits);
  if (none->fits) ck_assert_double_le(automatic->metrics.step_s, none->metrics.step_s * (1 + 1e-12));
  if (automatic->fits && all->fits) ck_assert_double_le(automatic->metrics.step_s, all->metrics.step_s * (1 + 1e-12));
  /* why it was needed is told exactly where it was */
  const bool told = automatic->without_recomputation.peak_bytes > 0;
  ck_assert(!(recomputed(automatic) > 0 && !told));
  if (told) ck_assert_int_gt(automatic->without_recomputation.peak_bytes, automatic->without_recomputation.limit_bytes);
  for (int r = 0; r < PLAN_RECOMPUTE_CHOICES; r++) sim_prediction_free(&by[r]);
  plan_scenario_free(&scenario);
}

START_TEST(auto_fits_wherever_all_or_none_does_and_is_no_slower) {
  for (int i = 0; i < PLAN_COUNT; i++) assert_auto_is_as_good(i);
}
END_TEST

/* The list that auto made, written down, is the same plan; and in it nothing is recomputed in vain: with any unit less
 * the plan does not fit. */
static void assert_all_is_needed(int i) {
  plan_scenario scenario;
  sim_prediction automatic, other;
  load(&scenario, plans[i]);
  scenario.recompute = PLAN_RECOMPUTE_AUTO;
  predict(&scenario, &automatic);
  const int n = (int)automatic.graph.units.count, count = recomputed(&automatic);
  if (!automatic.fits || count == 0 || automatic.plan.schedule == PLAN_FOLDED) { /* folded: its order changes, too */
    sim_prediction_free(&automatic);
    plan_scenario_free(&scenario);
    return;
  }
  int64_t *split = calloc((size_t)automatic.plan.chunk_count, sizeof *split);
  for (int c = 1; c < automatic.plan.chunk_count; c++) split[c - 1] = automatic.plan.chunks[c].first_unit;
  scenario.split = split;
  scenario.split_count = (size_t)automatic.plan.chunk_count - 1;
  dp_node *nodes = calloc((size_t)n, sizeof *nodes), **items = calloc((size_t)n, sizeof *items);
  dp_node list = {.kind = DP_NODE_ARRAY, .file = "choices.toml", .items = items};
  scenario.recompute = PLAN_RECOMPUTE_LISTED;
  scenario.recompute_list = &list;
  int needed = 0;
  for (int left_out = -1; left_out < n; left_out++) {
    if (left_out >= 0 && !automatic.plan.recompute[left_out]) continue;
    list.count = 0;
    for (int u = 0; u < n; u++) {
      if (u == left_out || !automatic.plan.recompute[u]) continue;
      nodes[list.count] = (dp_node){.kind = DP_NODE_INTEGER, .file = "choices.toml", .integer = u};
      items[list.count] = &nodes[list.count];
      list.count++;
    }
    predict(&scenario, &other);
    if (left_out < 0) {
      ck_assert(other.fits);
      ck_assert_double_eq_tol(other.metrics.step_s, automatic.metrics.step_s, 1e-12);
    } else {
      needed += !other.fits;
    }
    sim_prediction_free(&other);
  }
  /* a layout takes a little more or less than what lives: a unit in twenty may be one too many */
  ck_assert_msg(needed * 20 >= count * 19 - 19, "plan %d: %d of %d units are needed", i, needed, count);
  free(items);
  free(nodes);
  free(split);
  sim_prediction_free(&automatic);
  plan_scenario_free(&scenario);
}

START_TEST(nothing_is_recomputed_in_vain) {
  for (int i = 0; i < PLAN_COUNT; i++) assert_all_is_needed(i);
}
END_TEST

static const char tiny_model[] =
    "{\"_class_name\": \"UNet2DConditionModel\", \"sample_size\": 64, \"in_channels\": 4, \"out_channels\": 4,"
    " \"down_block_types\": [\"DownBlock2D\"], \"up_block_types\": [\"UpBlock2D\"],"
    " \"mid_block_type\": \"UNetMidBlock2DCrossAttn\", \"block_out_channels\": [64], \"layers_per_block\": 2,"
    " \"cross_attention_dim\": 64, \"attention_head_dim\": 8}";

/* Against all subsets of the units of a small model, over limits from what everything recomputed takes to what nothing
 * does: taking units by most bytes a second costs at most one unit's forward more than the best subset (the greedy rule
 * for covering knapsacks). */
START_TEST(units_are_chosen_nearly_as_well_as_by_trying_all) {
  char config[] = "/tmp/diffpipe-choices-XXXXXX.json";
  scratch_file(config, tiny_model);
  char text[1024];
  (void)snprintf(text, sizeof text,
                 HEAD
                 "[model]\nconfig = \"%s\"\nheight = 512\nwidth = 512\n"
                 "[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"A100-SXM4-80GB\"\n"
                 "[plan]\nmicrobatches = 2\nmicrobatch_size = 16\n",
                 config);
  plan_scenario scenario;
  load(&scenario, text);
  sim_prediction p;
  scenario.recompute = PLAN_RECOMPUTE_NONE;
  predict(&scenario, &p);
  const int n = (int)p.graph.units.count;
  ck_assert_int_le(n, 12);
  const int64_t most_bytes = p.memory.workers[0].peak_bytes;
  sim_prediction_free(&p);
  scenario.recompute = PLAN_RECOMPUTE_ALL;
  predict(&scenario, &p);
  const int64_t least_bytes = p.memory.workers[0].peak_bytes;
  sim_prediction_free(&p);
  ck_assert_int_lt(least_bytes, most_bytes);

  sim_prepared prepared;
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(sim_prepare(&scenario, efficiency, 16, &prepared, &error), DP_OK);
  const int sets = 1 << n;
  double *step_s = calloc((size_t)sets, sizeof *step_s), largest_s = 0;
  int64_t *peak_bytes = calloc((size_t)sets, sizeof *peak_bytes);
  dp_node nodes[12], *items[12], list = {.kind = DP_NODE_ARRAY, .file = "choices.toml", .items = items};
  scenario.recompute = PLAN_RECOMPUTE_LISTED;
  scenario.recompute_list = &list;
  for (int set = 0; set < sets; set++) {
    list.count = 0;
    for (int u = 0; u < n; u++)
      if (set >> u & 1) {
        nodes[list.count] = (dp_node){.kind = DP_NODE_INTEGER, .file = "choices.toml", .integer = u};
        items[list.count] = &nodes[list.count];
        list.count++;
      }
    ck_assert_int_eq(sim_predict_prepared(&scenario, &prepared, &p, &error), DP_OK);
    step_s[set] = p.metrics.step_s;
    peak_bytes[set] = p.memory.workers[0].peak_bytes;
    sim_prediction_free(&p);
  }
  for (int u = 0; u < n; u++) largest_s = fmax(largest_s, step_s[1 << u] - step_s[0]);

  scenario.recompute = PLAN_RECOMPUTE_AUTO;
  scenario.recompute_list = NULL;
  int partly = 0;
  for (int i = 0; i <= 16; i++) {
    const int64_t limit = least_bytes + (most_bytes - least_bytes) * i / 16;
    scenario.cluster.devices.items[0].memory_bytes = limit;
    double best_s = INFINITY;
    for (int set = 0; set < sets; set++)
      if (peak_bytes[set] <= limit) best_s = fmin(best_s, step_s[set]);
    ck_assert_int_eq(sim_predict_prepared(&scenario, &prepared, &p, &error), DP_OK);
    ck_assert_msg(p.fits, "limit %d of 16", i);
    ck_assert_double_ge(p.metrics.step_s, best_s * (1 - 1e-12));
    ck_assert_msg(p.metrics.step_s <= best_s + largest_s * (1 + 1e-9),
                  "limit %d of 16: %.6g s, best %.6g s, a unit %.6g", i, p.metrics.step_s, best_s, largest_s);
    partly += recomputed(&p) > 0 && recomputed(&p) < n;
    sim_prediction_free(&p);
  }
  ck_assert_int_gt(partly, 8); /* it was about choosing */
  free(step_s);
  free(peak_bytes);
  sim_prepared_free(&prepared);
  plan_scenario_free(&scenario);
  ck_assert_int_eq(unlink(config), 0);
}
END_TEST

/* ---- skips ---- */

static int64_t skip_bytes(const char *more) {
  char text[1024];
  (void)snprintf(text, sizeof text, HEAD SDXL CARDS("A100-SXM4-80GB", "4") "[plan]\nstages = 4\nmicrobatches = 4\n%s\n",
                 more);
  plan_scenario scenario;
  sim_prediction p;
  load(&scenario, text);
  predict(&scenario, &p);
  const int64_t bytes = p.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP];
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
  return bytes;
}

#define FIRST "down_blocks.0.resnets.0"
#define SECOND "down_blocks.1.downsamplers.0"
START_TEST(every_skip_has_its_own_policy) {
  const int64_t direct = skip_bytes(""), relay = skip_bytes("skip_policy = \"relay\"");
  const int64_t first = skip_bytes("skips = [\"" FIRST "=relay\"]") - direct;
  const int64_t second = skip_bytes("skips = [\"" SECOND "=relay\"]") - direct;
  ck_assert_int_gt(first, 0);
  ck_assert_int_gt(second, 0);
  ck_assert_int_eq(skip_bytes("skips = [\"" FIRST "=relay\", \"" SECOND "=relay\"]") - direct, first + second);
  ck_assert_int_eq(relay - skip_bytes("skip_policy = \"relay\"\nskips = [\"" FIRST "=direct\"]"), first);
  ck_assert_int_lt(first + second, relay - direct);
  /* compress: K values a sample instead of the tensor, there and back, a microbatch */
  const int64_t compressed = skip_bytes("skips = [\"" FIRST "=compress\"]\nk = 100");
  const int64_t tensor = 2LL * 320 * 128 * 128;
  ck_assert_int_eq(direct - compressed, 4 * 2 * (tensor - 2 * 100));
}
END_TEST

START_TEST(skips_that_cannot_be_are_refused) {
  static const struct {
    const char *plan, *says;
  } cases[] = {
      {"skips = [\"nowhere=relay\"]",
       "choices.toml:15: plan.skips: found \"nowhere\", allowed: a unit that makes a skip"},
      {"skips = [\"conv_out=relay\"]",
       "choices.toml:15: plan.skips: found \"conv_out\", allowed: a unit that makes a skip"},
      {"skips = [\"" FIRST "=local\"]", "plan.skip_policy: found local, but " FIRST},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[1024];
    (void)snprintf(text, sizeof text, HEAD SDXL CARDS("A100-SXM4-80GB", "4") "\n[plan]\nstages = 4\n%s\n",
                   cases[i].plan);
    plan_scenario scenario;
    sim_prediction p;
    dp_error error = DP_ERROR_INIT;
    load(&scenario, text);
    ck_assert_int_eq(sim_predict(&scenario, efficiency, &p, &error), DP_BAD_INPUT);
    ck_assert_msg(strstr(error.text, cases[i].says) != NULL, "%s", error.text);
    plan_scenario_free(&scenario);
  }
}
END_TEST

/* A folded UNet sends only vectors between its stages where its skips stay at home, and `local` takes that. */
START_TEST(local_lets_vectors_travel) {
  plan_scenario scenario;
  sim_prediction p;
  load(&scenario,
       HEAD SD15 CARDS("RTX-3090",
                       "2") "[plan]\nstages = 2\nschedule = \"folded\"\nmicrobatches = 4\nskip_policy = \"local\"\n");
  predict(&scenario, &p);
  ck_assert_int_lt(p.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_SKIP], 1000000);
  ck_assert_int_gt(p.metrics.comm_bytes_by_kind[PLAN_TRAFFIC_BOUNDARY], 1000000);
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
}
END_TEST

/* Two machines joined by `gb` GB/s. */
static void load_far_apart(plan_scenario *scenario, const char *gb, const char *more) {
  char text[2048];
  (void)snprintf(text, sizeof text,
                 HEAD SDXL
                 "[task]\nglobal_batch = 16\n[cluster]\n[[cluster.fabric]]\nname = \"lan\"\n"
                 "[[cluster.link]]\nname = \"slow\"\nkind = \"network\"\nbandwidth_gb_per_s = %s\nlatency_us = 50\n"
                 "source = \"this test\"\nverified = false\n"
                 "[[cluster.node]]\ncount = 2\n[[cluster.node.pcie]]\nname = \"root\"\n"
                 "[[cluster.node.nic]]\nlink = \"slow\"\nfabric = \"lan\"\npcie = \"root\"\n"
                 "[[cluster.node.device]]\nmodel = \"A100-PCIe-80GB\"\npcie = \"root\"\n"
                 "[search]\nstages = [2]\nschedules = [\"1f1b\"]\nmicrobatch_sizes = [1]\n%s",
                 gb, more);
  load(scenario, text);
}

/* The slower the link, the more is compressed; and a plan that is refined is never slower than what it was made of. */
START_TEST(skips_are_compressed_only_where_it_pays) {
  static const char *const gb[] = {"400", "12", "3", "0.5"};
  int lossiness[4];
  for (int i = 0; i < 4; i++) {
    plan_scenario scenario;
    sim_tune_result result;
    load_far_apart(&scenario, gb[i], "allow_lossy_skips = true\nk = \"256:16384:log3\"\n");
    search(&scenario, 2, &result);
    ck_assert_int_gt(result.refining_trials, 0);
    const sim_trial *best = &result.trials[result.best];
    lossiness[i] = sim_candidate_lossiness(&best->candidate);
    ck_assert(!best->set_aside);
    int ks = 0;
    for (int t = 0; t < result.trial_count; t++) {
      const sim_trial *trial = &result.trials[t];
      ks |= trial->candidate.k == 256 ? 1 : trial->candidate.k == 2048 ? 2 : trial->candidate.k == 16384 ? 4 : 0;
      if (trial->state != SIM_TRIAL_SIMULATED || !trial->fits || trial->set_aside) continue;
      ck_assert_double_ge(best->throughput_samples_per_s, trial->throughput_samples_per_s * (1 - 1e-9));
    }
    ck_assert_int_eq(ks, 7);
    sim_tune_result_free(&result);
    plan_scenario_free(&scenario);
  }
  ck_assert_int_gt(lossiness[3], 0);
  for (int i = 1; i < 4; i++) ck_assert_int_ge(lossiness[i], lossiness[i - 1]);
}
END_TEST

/* So many values a sample that no skip gets smaller: as fast as exact, and so exact wins. */
START_TEST(exact_plans_win_where_lossy_ones_are_no_faster) {
  plan_scenario scenario;
  sim_tune_result result;
  load_far_apart(&scenario, "0.5", "allow_lossy_skips = true\nk = [100000000]\n");
  search(&scenario, 2, &result);
  const sim_trial *best = &result.trials[result.best];
  ck_assert_int_eq(sim_candidate_lossiness(&best->candidate), 0);
  int as_fast = 0;
  for (int t = 0; t < result.trial_count; t++)
    if (sim_candidate_lossiness(&result.trials[t].candidate) > 0 && result.trials[t].fits)
      as_fast += fabs(result.trials[t].step_s / best->step_s - 1) < 1e-9;
  ck_assert_int_gt(as_fast, 0);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(nothing_is_lossy_unasked) {
  plan_scenario scenario;
  sim_tune_result result;
  load_far_apart(&scenario, "0.5", "k = [256]\n");
  search(&scenario, 2, &result);
  for (int t = 0; t < result.trial_count; t++)
    ck_assert_int_eq(sim_candidate_lossiness(&result.trials[t].candidate), 0);
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
}
END_TEST

/* ---- what would fit ---- */

START_TEST(what_is_too_large_fits_in_no_split) {
  plan_scenario scenario;
  sim_tune_result result;
  load(&scenario, HEAD SDXL "[task]\nglobal_batch = 8\n" CARDS("RTX-4090", "3") "[search]\nmicrobatch_sizes = [1]\n");
  search(&scenario, 2, &result);
  ck_assert_int_gt(result.too_large, 0);
  ck_assert_int_ge(result.best, 0);
  for (int t = 0; t < result.trial_count; t++) {
    if (result.trials[t].state != SIM_TRIAL_TOO_LARGE) continue;
    ck_assert_ptr_nonnull(strstr(result.trials[t].why, "does not fit: weights, gradients and optimizer states are "));
    const plan_scenario changed = sim_tune_scenario(&scenario, &result.trials[t].candidate, 8);
    sim_prediction p;
    predict(&changed, &p);
    ck_assert(!p.fits);
    sim_prediction_free(&p);
  }
  sim_tune_result_free(&result);
  plan_scenario_free(&scenario);
}
END_TEST

static const sim_remedy *remedy_like(const sim_remedies *remedies, const char *what) {
  for (int i = 0; i < remedies->count; i++)
    if (strstr(remedies->items[i].what, what)) return &remedies->items[i];
  return NULL;
}

static void heal(const plan_scenario *scenario, sim_remedies *remedies) {
  const sim_tune_options how = {.threads = 2};
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(sim_remedies_find(scenario, efficiency, &how, remedies, &error) == DP_OK, "%s", error.text);
}

/* The change, made in the file, gives what was promised. */
static void assert_fits(const char *text, const sim_remedy *remedy) {
  plan_scenario scenario;
  sim_prediction p;
  load(&scenario, text);
  const plan_scenario changed =
      sim_tune_scenario(&scenario, &remedy->best.candidate, sim_tune_global_batch(&scenario, NULL));
  predict(&changed, &p);
  ck_assert(p.fits);
  ck_assert_double_eq_tol(p.metrics.throughput_samples_per_s / remedy->best.throughput_samples_per_s, 1, 1e-9);
  sim_prediction_free(&p);
  plan_scenario_free(&scenario);
}

#define SMALL "[search]\nmicrobatch_sizes = [1]\nschedules = [\"1f1b\"]\n"
START_TEST(the_smallest_change_comes_first) {
  plan_scenario scenario;
  sim_tune_result result;
  sim_remedies remedies;
  load(&scenario, HEAD SDXL "[task]\nglobal_batch = 12\n" CARDS("RTX-4090", "2") SMALL);
  search(&scenario, 2, &result);
  ck_assert_int_eq(result.best, -1);
  ck_assert_int_ge(result.nearest, 0);
  sim_tune_result_free(&result);
  heal(&scenario, &remedies);
  ck_assert_int_ge(remedies.count, 4);
  const sim_remedy *packed = remedy_like(&remedies, "8 bits"), *lora = remedy_like(&remedies, "LoRA");
  const sim_remedy *third = remedy_like(&remedies, "1 more RTX-4090"), *card = remedy_like(&remedies, "cards of ");
  ck_assert_ptr_eq(packed, &remedies.items[0]);
  ck_assert_str_eq(packed->how, "--set task.optimizer=adamw-8bit");
  ck_assert(lora && third && card && lora < third && third < card);
  ck_assert_ptr_null(remedy_like(&remedies, "global batch")); /* microbatches of 1 are tried anyway */
  assert_fits(HEAD SDXL "[task]\nglobal_batch = 12\noptimizer = \"adamw-8bit\"\n" CARDS("RTX-4090", "2"), packed);
  assert_fits(HEAD SDXL "[task]\nglobal_batch = 12\ntrainable = \"lora\"\n" CARDS("RTX-4090", "2"), lora);
  assert_fits(HEAD SDXL "[task]\nglobal_batch = 12\n" CARDS("RTX-4090", "3"), third);
  sim_remedies_free(&remedies);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(bounds_of_the_search_may_be_what_is_wrong) {
  plan_scenario scenario;
  sim_remedies remedies;
  load(&scenario, HEAD SDXL "[task]\nglobal_batch = 64\n" CARDS(
                      "A100-SXM4-80GB", "1") "[search]\nmicrobatch_sizes = [64]\nrecompute = [\"none\"]\n");
  heal(&scenario, &remedies);
  ck_assert_int_gt(remedies.count, 0);
  ck_assert_str_eq(remedies.items[0].what, "leave out the bounds of [search]");
  ck_assert_ptr_null(remedies.items[0].how);
  sim_remedies_free(&remedies);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(some_jobs_need_several_changes) {
  plan_scenario scenario;
  sim_remedies remedies;
  load(&scenario,
       HEAD SDXL "[task]\nglobal_batch = 4\n" CARDS(
           "RTX-4090", "1") "memory_limit_gb = 9.5\n[search]\nmicrobatch_sizes = [4]\nrecompute = [\"none\"]\n");
  heal(&scenario, &remedies);
  ck_assert_int_gt(remedies.count, 0);
  ck_assert_msg(strstr(remedies.items[0].what, "together") != NULL, "%s", remedies.items[0].what);
  sim_remedies_free(&remedies);
  plan_scenario_free(&scenario);
}
END_TEST

START_TEST(a_stopped_search_for_changes_says_so) {
  plan_scenario scenario;
  sim_remedies remedies;
  load(&scenario, HEAD SDXL "[task]\nglobal_batch = 12\n" CARDS("RTX-4090", "2") SMALL);
  const volatile sig_atomic_t stop = 1;
  const sim_tune_options how = {.threads = 1, .stop = &stop};
  ck_assert_int_eq(sim_remedies_find(&scenario, efficiency, &how, &remedies, NULL), DP_OK);
  ck_assert(remedies.stopped);
  ck_assert_int_eq(remedies.count, 0);
  sim_remedies_free(&remedies);
  plan_scenario_free(&scenario);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {auto_fits_wherever_all_or_none_does_and_is_no_slower,
                                nothing_is_recomputed_in_vain,
                                units_are_chosen_nearly_as_well_as_by_trying_all,
                                every_skip_has_its_own_policy,
                                skips_that_cannot_be_are_refused,
                                local_lets_vectors_travel,
                                skips_are_compressed_only_where_it_pays,
                                exact_plans_win_where_lossy_ones_are_no_faster,
                                nothing_is_lossy_unasked,
                                what_is_too_large_fits_in_no_split,
                                the_smallest_change_comes_first,
                                bounds_of_the_search_may_be_what_is_wrong,
                                some_jobs_need_several_changes,
                                a_stopped_search_for_changes_says_so};
  return suite_run("sim_choices", tests, sizeof tests / sizeof tests[0], read_efficiency, free_efficiency, 300);
}
