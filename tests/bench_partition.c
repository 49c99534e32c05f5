/* Time of the partitioner on whole models, with and without memory limits that bind. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>

#include "sim/partition.h"
#include "sim/predict.h"
#include "tests/bench.h"

enum { RUNS = 9, RANKS = 8, MAX_CHUNKS = 16 };

static void stop(const char *text) {
  fprintf(stderr, "bench_partition: %s\n", text);
  exit(1);
}

static double solve_s(const sim_partition_problem *problem, sim_partition_result *result) {
  int cuts[MAX_CHUNKS];
  double seconds[RUNS];
  for (int i = 0; i < RUNS; i++) {
    const double from_s = bench_cpu_s();
    if (sim_partition_solve(problem, cuts, NULL, result, NULL) != DP_OK) stop("it fails");
    seconds[i] = bench_cpu_s() - from_s;
  }
  return bench_median(seconds, RUNS);
}

static void measure(const char *name, const graph *model, bool folded, int chunks_per_rank) {
  const size_t units = model->units.count;
  double *unit_s = calloc(units, sizeof *unit_s), wire_s_per_byte[RANKS], hop_s_per_byte[MAX_CHUNKS];
  int64_t *persistent_bytes = calloc(units, sizeof *persistent_bytes), limit_bytes[RANKS];
  const double *rank_s[RANKS];
  int in_flight[MAX_CHUNKS];
  if (!unit_s || !persistent_bytes) stop("no memory");
  for (size_t u = 0; u < units; u++) {
    unit_s[u] = (double)model->units.items[u].forward_flops * 1e-14;
    persistent_bytes[u] = model->units.items[u].parameters * 18;
  }
  for (int r = 0; r < RANKS; r++) {
    rank_s[r] = unit_s;
    wire_s_per_byte[r] = 1e-11;
  }
  for (int c = 0; c < MAX_CHUNKS; c++) {
    hop_s_per_byte[c] = 1e-11;
    in_flight[c] = folded ? (c < RANKS ? RANKS : 1 + (MAX_CHUNKS - 1 - c) / 2) : RANKS;
  }
  sim_partition_problem p = {.graph = model,
                             .ranks = RANKS,
                             .chunks_per_rank = chunks_per_rank,
                             .folded = folded,
                             .training = true,
                             .unit_s = rank_s,
                             .hop_s_per_byte = hop_s_per_byte,
                             .wire_s_per_byte = wire_s_per_byte,
                             .exposed_share = 1,
                             .unit_persistent_bytes = persistent_bytes,
                             .in_flight = in_flight,
                             .memory_limit_bytes = limit_bytes};
  int cuts[MAX_CHUNKS];
  sim_partition_load loads[RANKS];
  sim_partition_result result;
  int64_t fullest = 0;
  for (int r = 0; r < RANKS; r++) limit_bytes[r] = INT64_MAX / 8;
  if (sim_partition_solve(&p, cuts, NULL, &result, NULL) != DP_OK ||
      sim_partition_evaluate(&p, cuts, loads, NULL) != DP_OK)
    stop("it fails");
  for (int r = 0; r < RANKS; r++)
    if (loads[r].memory_bytes > fullest) fullest = loads[r].memory_bytes;
  static const double shares[] = {2, 0.9, 0.3};
  double first_s = 0;
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    for (int r = 0; r < RANKS; r++) limit_bytes[r] = (int64_t)((double)fullest * shares[i]);
    const double seconds = solve_s(&p, &result);
    if (i == 0) first_s = seconds;
    char text[256];
    (void)snprintf(text, sizeof text, "partition of %s over 8 ranks, limit %.1f of the fastest split's fullest, %s",
                   name, shares[i], result.feasible ? "fits" : "does not fit");
    bench_report(text, seconds, "s", i ? "the same with memory for all" : NULL, i ? seconds / first_s : 0, RUNS);
  }
  free(unit_s);
  free(persistent_bytes);
}

int main(void) {
  static const char *const scenarios[] = {"sdxl-8xa100-sxm", "flux-lora-4xrtx4090"};
  const char *folder = getenv("DIFFPIPE_DATA_DIR");
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
    dp_error error = DP_ERROR_INIT;
    plan_scenario scenario;
    graph model;
    char path[4096], name[80];
    (void)snprintf(path, sizeof path, "%s/%s.toml", folder ? folder : "scenarios", scenarios[i]);
    if (plan_scenario_read(path, NULL, 0, &scenario, &error) != DP_OK ||
        plan_scenario_graph(&scenario, 2, &model, &error) != DP_OK)
      stop(error.text);
    for (int folded = 0; folded < 2; folded++) {
      (void)snprintf(name, sizeof name, "%s (%zu units), %s", i ? "Flux" : "SDXL", model.units.count,
                     folded ? "folded" : "straight");
      measure(name, &model, folded, folded ? 2 : 1);
    }
    graph_free(&model);
    plan_scenario_free(&scenario);
  }
  return 0;
}
