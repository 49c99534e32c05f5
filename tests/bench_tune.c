/* The search against simulating a coarse grid in full, for our scenarios: it fails where a plan of the grid beats the
 * one found. Then whole searches as a user waits for them, on two threads. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/tune.h"
#include "tests/bench.h"

enum { RUNS = 3, SEARCH_RUNS = 5, THREADS = 2 };

static void stop(const char *name, const char *text) {
  fprintf(stderr, "bench_tune: %s: %s\n", name, text);
  exit(1);
}

static void read_scenario(const char *name, plan_scenario *scenario) {
  const char *folder = getenv("DIFFPIPE_DATA_DIR");
  char path[4096];
  dp_error error = DP_ERROR_INIT;
  (void)snprintf(path, sizeof path, "%s/%s.toml", folder ? folder : "scenarios", name);
  if (plan_scenario_read_job(path, NULL, 0, scenario, &error) != DP_OK) stop(name, error.text);
}

/* ---- the grid ---- */

/* Stages and replicas are powers of two, microbatches of `sizes` samples, every schedule in its usual form, nothing or
 * everything recomputed, skips direct: the plans that someone would try by hand. */
static const int sizes[] = {1, 2, 4, 8};
enum { SIZE_COUNT = sizeof sizes / sizeof sizes[0] };

typedef struct tally {
  int simulated, fitting;
  double most; /* samples/s */
  char best[256];
} tally;

static void simulate_one(const char *name, const plan_scenario *job, const sim_prepared *prepared,
                         const sim_candidate *candidate, int64_t global_batch, tally *sum) {
  const plan_scenario plan = sim_tune_scenario(job, candidate, global_batch);
  sim_prediction prediction;
  dp_error error = DP_ERROR_INIT;
  const dp_status status = sim_predict_prepared(&plan, prepared, &prediction, &error);
  if (status == DP_BAD_INPUT) return;
  if (status != DP_OK) stop(name, error.text);
  sum->simulated++;
  sum->fitting += prediction.fits;
  if (prediction.fits && prediction.metrics.throughput_samples_per_s > sum->most) {
    sum->most = prediction.metrics.throughput_samples_per_s;
    (void)sim_candidate_show(candidate, sum->best);
  }
  sim_prediction_free(&prediction);
}

static void simulate_size(const char *name, const plan_scenario *job, const sim_prepared *prepared, tally *sum) {
  const int64_t batch = sim_tune_global_batch(job, NULL);
  const int devices = (int)job->cluster.devices.count, size = (int)prepared->microbatch_size;
  for (int stages = 1; stages <= devices; stages *= 2)
    for (int replicas = 1; stages * replicas <= devices; replicas *= 2) {
      if (batch % ((int64_t)replicas * size)) continue;
      for (int schedule = 0; schedule < PLAN_SCHEDULE_COUNT; schedule++) {
        if (stages == 1 && schedule != PLAN_1F1B) continue;
        const bool one = schedule == PLAN_GPIPE || schedule == PLAN_1F1B || schedule == PLAN_ZB_H1;
        for (int again = 0; again < 2; again++) {
          const sim_candidate candidate = {.stages = stages,
                                           .replicas = replicas,
                                           .chunks = one ? 1 : 2,
                                           .microbatches = (int)(batch / replicas / size),
                                           .microbatch_size = size,
                                           .schedule = (plan_schedule)schedule,
                                           .skip_policy = PLAN_SKIP_DIRECT,
                                           .recompute = again ? PLAN_RECOMPUTE_ALL : PLAN_RECOMPUTE_NONE};
          simulate_one(name, job, prepared, &candidate, batch, sum);
        }
      }
    }
}

static double simulate_grid(const char *name, const plan_scenario *job, const sim_efficiency *efficiency, tally *sum) {
  const double from_s = bench_now_s();
  memset(sum, 0, sizeof *sum);
  for (int b = 0; b < SIZE_COUNT; b++) {
    sim_prepared prepared;
    dp_error error = DP_ERROR_INIT;
    if (sim_prepare(job, efficiency, sizes[b], &prepared, &error) != DP_OK) stop(name, error.text);
    simulate_size(name, job, &prepared, sum);
    sim_prepared_free(&prepared);
  }
  return bench_now_s() - from_s;
}

/* ---- the search ---- */

typedef struct found {
  int candidates, simulated, pruned;
  double samples_per_s;
} found;

static double search(const char *name, const plan_scenario *job, const sim_efficiency *efficiency, int threads,
                     found *out) {
  const sim_tune_options how = {.threads = threads};
  sim_tune_result result;
  dp_error error = DP_ERROR_INIT;
  const double from_s = bench_now_s();
  if (sim_tune(job, efficiency, &how, &result, &error) != DP_OK) stop(name, error.text);
  const double took_s = bench_now_s() - from_s;
  if (result.best < 0) stop(name, "the search found no plan that fits");
  *out =
      (found){result.trial_count, result.simulated, result.pruned, result.trials[result.best].throughput_samples_per_s};
  sim_tune_result_free(&result);
  return took_s;
}

static void report_trials(const char *what, const found *best, double search_s, int runs) {
  char text[160];
  (void)snprintf(text, sizeof text, "trials of the search for %s", what);
  bench_report(text, best->simulated / search_s, "trials/s", NULL, 0, runs);
  (void)snprintf(text, sizeof text, "pruned share of the search for %s", what);
  bench_report(text, (double)best->pruned / best->candidates, "of all", NULL, 0, 1);
}

/* Both on one thread, turn by turn. */
static void against_grid(const char *name, const sim_efficiency *efficiency) {
  plan_scenario job;
  double grid_s[RUNS], search_s[RUNS];
  tally sum;
  found best;
  char text[160], peer[96];
  read_scenario(name, &job);
  for (int i = 0; i < RUNS; i++) {
    grid_s[i] = simulate_grid(name, &job, efficiency, &sum);
    search_s[i] = search(name, &job, efficiency, 1, &best);
  }
  fprintf(stderr, "bench_tune: %s: found %.6g samples/s, best of %d plans (%d fit) %.6g: %s\n", name,
          best.samples_per_s, sum.simulated, sum.fitting, sum.most, sum.best);
  if (sum.most > best.samples_per_s * (1 + 1e-9)) stop(name, "a plan of the grid beats the one found");
  const double whole_s = bench_median(search_s, RUNS), peer_s = bench_median(grid_s, RUNS);
  (void)snprintf(text, sizeof text, "search for %s, %d candidates, one thread", name, best.candidates);
  (void)snprintf(peer, sizeof peer, "simulating a grid of %d plans", sum.simulated);
  bench_report(text, whole_s, "s", peer, whole_s / peer_s, RUNS);
  report_trials(name, &best, whole_s, RUNS);
  (void)snprintf(text, sizeof text, "throughput found for %s", name);
  (void)snprintf(peer, sizeof peer, "the best of the grid");
  bench_report(text, best.samples_per_s, "samples/s", peer, best.samples_per_s / sum.most, RUNS);
  plan_scenario_free(&job);
}

/* As a user waits for it. */
static void whole_search(const char *name, const char *what, const sim_efficiency *efficiency) {
  plan_scenario job;
  double both_s[SEARCH_RUNS], one_s[SEARCH_RUNS];
  found best;
  char text[160];
  read_scenario(name, &job);
  for (int i = 0; i < SEARCH_RUNS; i++) {
    both_s[i] = search(name, &job, efficiency, THREADS, &best);
    one_s[i] = search(name, &job, efficiency, 1, &best);
  }
  const double whole_s = bench_median(both_s, SEARCH_RUNS);
  (void)snprintf(text, sizeof text, "search for %s, %d candidates, %d threads", what, best.candidates, THREADS);
  bench_report(text, whole_s, "s", "one thread", whole_s / bench_median(one_s, SEARCH_RUNS), SEARCH_RUNS);
  report_trials(what, &best, whole_s, SEARCH_RUNS);
  plan_scenario_free(&job);
}

int main(void) {
  static const char *const names[] = {"sd15-4xrtx3090",     "sdxl-8xa100-sxm",     "sdxl-8xa100-pcie",
                                      "sd3-8xh100",         "flux-lora-4xrtx4090", "sdxl-unlike-16gb-24gb",
                                      "sdxl-h200-virtual4", "sdxl-2x8xa100-ib"};
  dp_error error = DP_ERROR_INIT;
  sim_efficiency *efficiency = NULL;
  if (sim_efficiency_read(NULL, &efficiency, &error) != DP_OK) stop("catalogue", error.text);
  whole_search("sdxl-8xa100-sxm", "SDXL on 8 A100", efficiency);
  whole_search("sdxl-8x8xa100-ib", "SDXL on 64 A100", efficiency);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) against_grid(names[i], efficiency);
  sim_efficiency_free(efficiency);
  return 0;
}
