/* Time of a search, and of one trial of it: a whole prediction of SDXL on eight A100s, that is graph, costs, split,
 * order, program, check, memory, engine and metrics. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>

#include "sim/tune.h"
#include "tests/bench.h"

enum { RUNS = 15 };

static void stop(const dp_error *error) {
  fprintf(stderr, "bench_trial: %s\n", error->text);
  exit(1);
}

static void measure(const sim_efficiency *efficiency, const char *path, const char *schedule) {
  dp_error error = DP_ERROR_INIT;
  plan_scenario scenario;
  char set[64], name[160];
  (void)snprintf(set, sizeof set, "plan.schedule=%s", schedule);
  const char *const sets[] = {set};
  if (plan_scenario_read(path, sets, 1, &scenario, &error) != DP_OK) stop(&error);
  double graph_s[RUNS], trial_s[RUNS];
  uint32_t instructions = 0;
  for (int i = 0; i < RUNS; i++) {
    graph model;
    double from_s = bench_cpu_s();
    if (plan_scenario_graph(&scenario, 2, &model, &error) != DP_OK) stop(&error);
    graph_s[i] = bench_cpu_s() - from_s;
    graph_free(&model);
    sim_prediction prediction;
    from_s = bench_cpu_s();
    if (sim_predict(&scenario, efficiency, &prediction, &error) != DP_OK) stop(&error);
    trial_s[i] = bench_cpu_s() - from_s;
    instructions = prediction.program.instruction_count;
    sim_prediction_free(&prediction);
  }
  const double whole_s = bench_median(trial_s, RUNS);
  (void)snprintf(name, sizeof name, "trial of SDXL on 8 workers, %s, %u instructions", schedule, instructions);
  bench_report(name, whole_s, "s", "building its graph alone", whole_s / bench_median(graph_s, RUNS), RUNS);
  plan_scenario_free(&scenario);
}

/* 64 GPUs of 8 machines, SDXL. */
static const char big_text[] =
    "format = \"diffpipe-scenario\"\nversion = 1\n"
    "[model]\nconfig = \"models/sdxl_unet.json\"\nheight = 1024\nwidth = 1024\n[task]\nglobal_batch = 512\n"
    "[cluster]\n[[cluster.fabric]]\nname = \"ib\"\n[[cluster.node]]\ncount = 8\n[[cluster.node.device]]\n"
    "model = \"H100-SXM5-80GB\"\ncount = 8\n[[cluster.node.nic]]\nlink = \"ib-ndr400\"\ncount = 8\nfabric = \"ib\"\n";

/* The whole search, on all processors; the peer is the same search on one. Wall time: what a user waits. */
static void measure_search(const sim_efficiency *efficiency, const plan_scenario *scenario, const char *what,
                           int runs) {
  double all_s[RUNS], one_s[RUNS];
  sim_tune_result result;
  dp_error error = DP_ERROR_INIT;
  char name[160];
  int simulated = 0, pruned = 0, count = 0;
  for (int i = 0; i < runs; i++)
    for (int threads = 0; threads < 2; threads++) {
      const sim_tune_options how = {.threads = threads};
      const double from_s = bench_now_s();
      if (sim_tune(scenario, efficiency, &how, &result, &error) != DP_OK) stop(&error);
      (threads ? one_s : all_s)[i] = bench_now_s() - from_s;
      simulated = result.simulated;
      pruned = result.pruned;
      count = result.trial_count;
      sim_tune_result_free(&result);
    }
  const double whole_s = bench_median(all_s, runs);
  (void)snprintf(name, sizeof name, "search for %s, %d candidates", what, count);
  bench_report(name, whole_s, "s", "one thread", whole_s / bench_median(one_s, runs), runs);
  (void)snprintf(name, sizeof name, "trials of the search for %s", what);
  bench_report(name, simulated / whole_s, "trials/s", NULL, 0, runs);
  (void)snprintf(name, sizeof name, "pruned share of the search for %s", what);
  bench_report(name, (double)pruned / count, "of all", NULL, 0, 1);
}

static void measure_searches(const sim_efficiency *efficiency, const char *path) {
  dp_error error = DP_ERROR_INIT;
  plan_scenario scenario;
  if (plan_scenario_read(path, NULL, 0, &scenario, &error) != DP_OK) stop(&error);
  measure_search(efficiency, &scenario, "SDXL on 8 A100", 5);
  plan_scenario_free(&scenario);
  if (plan_scenario_parse(big_text, sizeof big_text - 1, "64 GPUs", &scenario, &error) != DP_OK) stop(&error);
  measure_search(efficiency, &scenario, "SDXL on 64 H100", 3);
  plan_scenario_free(&scenario);
}

int main(void) {
  dp_error error = DP_ERROR_INIT;
  sim_efficiency *efficiency = NULL;
  if (sim_efficiency_read(NULL, &efficiency, &error) != DP_OK) stop(&error);
  const char *folder = getenv("DIFFPIPE_DATA_DIR");
  char path[4096];
  (void)snprintf(path, sizeof path, "%s/sdxl-8xa100-sxm.toml", folder ? folder : "scenarios");
  for (int s = 0; s < PLAN_SCHEDULE_COUNT; s++) measure(efficiency, path, plan_schedule_names[s]);
  measure_searches(efficiency, path);
  sim_efficiency_free(efficiency);
  return 0;
}
