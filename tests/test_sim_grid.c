/* The plan found for our own scenarios against every plan of a coarse grid: each is written as [plan] of the scenario
 * and simulated, as `diffpipe simulate` would, so that neither the search's list of candidates nor its pruning is
 * trusted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/tune.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

enum { MAX_SETS = 8, SET_BYTES = 96 };

/* Assignments for --set, and the scenario read with them. */
typedef struct sets {
  char text[MAX_SETS][SET_BYTES];
  const char *pointers[MAX_SETS];
  int count;
} sets;

static void set(sets *s, const char *key, const char *value) {
  (void)snprintf(s->text[s->count], SET_BYTES, "%s=%s", key, value);
  s->pointers[s->count] = s->text[s->count];
  s->count++;
}
static void set_integer(sets *s, const char *key, int value) {
  char text[16];
  (void)snprintf(text, sizeof text, "%d", value);
  set(s, key, text);
}

static dp_status read_scenario(const char *name, const sets *with, plan_scenario *scenario, dp_error *error) {
  const char *folder = getenv("DIFFPIPE_DATA_DIR");
  char path[4096];
  (void)snprintf(path, sizeof path, "%s/%s.toml", folder ? folder : DP_SOURCE_DATA_DIR, name);
  return plan_scenario_read(path, with->pointers, with->count, scenario, error);
}

/* A grid over one scenario; lists end with 0. `recompute`: "none", "all" or both. Global batches are small: what is
 * asked is whether the best of the grid is found, which takes no longer steps. */
typedef struct grid {
  const char *name;
  int global_batch;
  int stages[4], replicas[4], sizes[4];
  const char *schedules[4], *recompute[3];
} grid;

static const grid grids[] = {
    {"sd15-4xrtx3090", 32, {1, 2, 4}, {1, 2, 4}, {2, 8}, {"1f1b", "folded", "zb-v"}, {"none"}},
    {"sdxl-8xa100-sxm", 64, {1, 4, 8}, {1, 2, 8}, {2, 4}, {"1f1b", "folded", "zb-v"}, {"none"}},
    {"sdxl-8xa100-pcie", 64, {2, 4, 8}, {1, 2}, {2, 4}, {"1f1b", "folded", "zb-v"}, {"none"}},
    {"sd3-8xh100", 64, {1, 4, 8}, {1, 2, 8}, {2, 4}, {"1f1b", "gpipe", "interleaved"}, {"none"}},
    {"flux-lora-4xrtx4090", 16, {2, 4}, {1, 2}, {1, 2}, {"1f1b", "zb-h1"}, {"none", "all"}},
    {"sdxl-unlike-16gb-24gb", 16, {2}, {1}, {1, 2, 4}, {"1f1b", "folded", "interleaved"}, {"none", "all"}},
    {"sdxl-h200-virtual4", 16, {2, 4}, {1, 2}, {1, 2}, {"1f1b", "interleaved"}, {"none", "all"}},
    {"sdxl-2x8xa100-ib", 64, {1, 4, 8}, {2, 4, 16}, {4}, {"1f1b", "interleaved"}, {"none"}},
    {"sdxl-8x8xa100-ib", 128, {1, 4, 8}, {8, 16, 64}, {2}, {"1f1b", "interleaved"}, {"none"}},
};
enum { GRID_COUNT = sizeof grids / sizeof grids[0] };

static void list_integers(const int *values, char *out, size_t size) {
  size_t at = (size_t)snprintf(out, size, "[");
  for (int i = 0; i < 4 && values[i]; i++)
    at += (size_t)snprintf(out + at, size - at, "%s%d", i ? ", " : "", values[i]);
  (void)snprintf(out + at, size - at, "]");
}
static void list_names(const char *const *values, int most, char *out, size_t size) {
  size_t at = (size_t)snprintf(out, size, "[");
  for (int i = 0; i < most && values[i]; i++)
    at += (size_t)snprintf(out + at, size - at, "%s\"%s\"", i ? ", " : "", values[i]);
  (void)snprintf(out + at, size - at, "]");
}

static void search_grid(const grid *g, sim_tune_result *result) {
  sets with = {.count = 0};
  char text[SET_BYTES - 24];
  dp_error error = DP_ERROR_INIT;
  plan_scenario scenario;
  set_integer(&with, "task.global_batch", g->global_batch);
  list_integers(g->stages, text, sizeof text);
  set(&with, "search.stages", text);
  list_integers(g->replicas, text, sizeof text);
  set(&with, "search.data_parallel", text);
  list_integers(g->sizes, text, sizeof text);
  set(&with, "search.microbatch_sizes", text);
  list_names(g->schedules, 4, text, sizeof text);
  set(&with, "search.schedules", text);
  list_names(g->recompute, 3, text, sizeof text);
  set(&with, "search.recompute", text);
  ck_assert_msg(read_scenario(g->name, &with, &scenario, &error) == DP_OK, "%s: %s", g->name, error.text);
  const sim_tune_options how = {.threads = 2};
  ck_assert_msg(sim_tune(&scenario, efficiency, &how, result, &error) == DP_OK, "%s: %s", g->name, error.text);
  plan_scenario_free(&scenario);
}

typedef struct tally {
  int simulated, fitting;
  double most; /* samples/s of the best that fits */
  char best[SET_BYTES];
} tally;

static void simulate_one(const grid *g, int stages, int replicas, int size, const char *schedule, const char *recompute,
                         tally *sum) {
  sets with = {.count = 0};
  dp_error error = DP_ERROR_INIT;
  plan_scenario scenario;
  sim_prediction prediction;
  set_integer(&with, "task.global_batch", g->global_batch);
  set_integer(&with, "plan.stages", stages);
  set_integer(&with, "plan.data_parallel", replicas);
  set_integer(&with, "plan.microbatch_size", size);
  set(&with, "plan.schedule", schedule);
  set(&with, "plan.recompute", recompute);
  const dp_status status = read_scenario(g->name, &with, &scenario, &error);
  if (status == DP_BAD_INPUT) return;
  ck_assert_msg(status == DP_OK, "%s: %s", g->name, error.text);
  if (sim_predict(&scenario, efficiency, &prediction, &error) == DP_OK) {
    const double rate = prediction.metrics.throughput_samples_per_s;
    sum->simulated++;
    sum->fitting += prediction.fits;
    if (prediction.fits && rate > sum->most) {
      sum->most = rate;
      (void)snprintf(sum->best, sizeof sum->best, "%d x %d, %s, size %d, %s", stages, replicas, schedule, size,
                     recompute);
    }
    sim_prediction_free(&prediction);
  } else {
    ck_assert_msg(error.status == DP_BAD_INPUT, "%s: %s", g->name, error.text);
  }
  plan_scenario_free(&scenario);
}

static void simulate_grid(const grid *g, tally *sum) {
  for (int p = 0; p < 4 && g->stages[p]; p++)
    for (int r = 0; r < 4 && g->replicas[r]; r++)
      for (int b = 0; b < 4 && g->sizes[b]; b++)
        for (int s = 0; s < 4 && g->schedules[s]; s++)
          for (int again = 0; again < 3 && g->recompute[again]; again++) {
            if (g->stages[p] == 1 && s > 0) continue; /* the same plan again */
            const char *schedule = g->stages[p] == 1 ? "1f1b" : g->schedules[s];
            simulate_one(g, g->stages[p], g->replicas[r], g->sizes[b], schedule, g->recompute[again], sum);
          }
}

START_TEST(no_plan_of_the_grid_beats_the_one_found) {
  for (int i = 0; i < GRID_COUNT; i++) {
    const grid *g = &grids[i];
    sim_tune_result result;
    tally sum = {.most = 0};
    search_grid(g, &result);
    simulate_grid(g, &sum);
    ck_assert_msg(sum.simulated >= 8 && sum.fitting >= 2, "%s: %d simulated, %d fit: not much of a grid", g->name,
                  sum.simulated, sum.fitting);
    ck_assert_msg(result.best >= 0, "%s: the search found nothing that fits, the grid has %s", g->name, sum.best);
    const double found = result.trials[result.best].throughput_samples_per_s;
    ck_assert_msg(found >= sum.most * (1 - 1e-9), "%s: found %.9g samples/s, the grid has %.9g: %s", g->name, found,
                  sum.most, sum.best);
    sim_tune_result_free(&result);
  }
}
END_TEST

/* ---- more stages are not better by default ---- */

typedef struct stage_count {
  double samples_per_s, bubble;
  double unevenness; /* the busiest worker's compute over the mean */
} stage_count;

static stage_count simulate_stages(int stages, int replicas, int size) {
  sets with = {.count = 0};
  dp_error error = DP_ERROR_INIT;
  plan_scenario scenario;
  sim_prediction prediction;
  set_integer(&with, "plan.stages", stages);
  set_integer(&with, "plan.data_parallel", replicas);
  set_integer(&with, "plan.microbatch_size", size);
  set(&with, "plan.schedule", "zb-v");
  ck_assert_msg(read_scenario("sdxl-8xa100-sxm", &with, &scenario, &error) == DP_OK, "%s", error.text);
  ck_assert_msg(sim_predict(&scenario, efficiency, &prediction, &error) == DP_OK, "%s", error.text);
  ck_assert(prediction.fits);
  double sum = 0, most = 0;
  for (int w = 0; w < 8; w++) {
    sum += prediction.metrics.workers[w].compute_s;
    most = fmax(most, prediction.metrics.workers[w].compute_s);
  }
  const stage_count found = {prediction.metrics.throughput_samples_per_s, prediction.metrics.bubble_ratio,
                             most / (sum / 8)};
  sim_prediction_free(&prediction);
  plan_scenario_free(&scenario);
  return found;
}

/* SDXL on eight A100 with NVSwitch, the scenario's fastest pipelines: two replicas of four stages beat eight stages, at
 * the same microbatch size and against the best one of eight stages. Its units are too coarse for eight even stages,
 * and the bubble is longer. */
START_TEST(eight_stages_lose_to_four) {
  const stage_count four = simulate_stages(4, 2, 4), eight = simulate_stages(8, 1, 4);
  const stage_count smaller = simulate_stages(8, 1, 2);
  ck_assert_double_gt(four.samples_per_s, eight.samples_per_s);
  ck_assert_double_gt(four.samples_per_s, smaller.samples_per_s);
  ck_assert_double_lt(four.unevenness, eight.unevenness);
  ck_assert_double_lt(four.bubble, eight.bubble);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {no_plan_of_the_grid_beats_the_one_found, eight_stages_lose_to_four};
  return suite_run("sim_grid", tests, sizeof tests / sizeof tests[0], read_efficiency, free_efficiency, 300);
}
