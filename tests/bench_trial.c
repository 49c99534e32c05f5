/* Time of one trial of a search: a whole prediction of SDXL on eight A100s, that is graph, costs, split,
 * order, program, check, memory, engine and metrics. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>

#include "sim/predict.h"
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

int main(void) {
  dp_error error = DP_ERROR_INIT;
  sim_efficiency *efficiency = NULL;
  if (sim_efficiency_read(NULL, &efficiency, &error) != DP_OK) stop(&error);
  const char *folder = getenv("DIFFPIPE_DATA_DIR");
  char path[4096];
  (void)snprintf(path, sizeof path, "%s/sdxl-8xa100-sxm.toml", folder ? folder : "scenarios");
  for (int s = 0; s < PLAN_SCHEDULE_COUNT; s++) measure(efficiency, path, plan_schedule_names[s]);
  sim_efficiency_free(efficiency);
  return 0;
}
