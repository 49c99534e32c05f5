/* Writes the folder of a run as `diffpipe run` does, of a run that never was: the scenario's prediction, distorted.
 *
 *   make_run SCENARIO DIR [KEY=VALUE]...
 *
 * worker=W backward=F: backwards of worker W take F times as long; links=F: transfers do; delay_ms=D: every compute
 * instruction starts D later than it could; jitter=J: every length differs by up to J from step to step, and so does
 * everything else that is random; steps=N; losses=N: so many lines of log.jsonl. Any TABLE.KEY=VALUE is a --set. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/random.h"
#include "plan/compare.h"
#include "reports/report.h"
#include "sim/predict.h"
#include "sim/unit_times.h"
#include "tests/compare_world.h"

enum { MAX_SETS = 16 };

typedef struct recipe {
  const plan_program *program;
  double worker, backward, links, delay_ms, jitter, steps, losses;
  uint64_t step;
} recipe;

static const struct {
  const char *key;
  size_t at;
} keys[] = {{"worker", offsetof(recipe, worker)}, {"backward", offsetof(recipe, backward)},
            {"links", offsetof(recipe, links)},   {"delay_ms", offsetof(recipe, delay_ms)},
            {"jitter", offsetof(recipe, jitter)}, {"steps", offsetof(recipe, steps)},
            {"losses", offsetof(recipe, losses)}};

static void stop(const char *why) {
  fprintf(stderr, "make_run: %s\n", why);
  exit(2);
}

static void set(recipe *r, const char *argument) {
  const char *equals = strchr(argument, '=');
  for (size_t k = 0; equals && k < sizeof keys / sizeof keys[0]; k++)
    if (strlen(keys[k].key) == (size_t)(equals - argument) &&
        strncmp(keys[k].key, argument, (size_t)(equals - argument)) == 0) {
      *(double *)((char *)r + keys[k].at) = strtod(equals + 1, NULL);
      return;
    }
  stop(argument);
}

static void distort(const void *how, uint32_t id, distortion *what) {
  const recipe *r = how;
  const plan_instruction *i = &r->program->instructions[id];
  const plan_lane *lane = &r->program->lanes[plan_instruction_lane(r->program, id)];
  dp_random random;
  dp_random_init(&random, r->step, id);
  if (is_backward(i->opcode) && (int)lane->worker == (int)r->worker) what->factor = r->backward;
  if (i->opcode == PLAN_SEND) what->factor = r->links;
  what->factor *= 1 + r->jitter * dp_random_uniform(&random);
  if (lane->kind == PLAN_LANE_COMPUTE) what->delay_s = r->delay_ms / 1e3;
}

/* Losses that fall, with noise; every 20th step is evaluated. */
static void write_log(const recipe *r, const char *folder, double step_s, double rate) {
  char path[600];
  dp_random random;
  dp_random_init(&random, 1, 1);
  (void)snprintf(path, sizeof path, "%s/log.jsonl", folder);
  FILE *log = fopen(path, "w");
  if (!log) stop("log.jsonl cannot be written");
  fprintf(log, "{\"event\": \"start\", \"scenario\": \"made\"}\n");
  for (int s = 1; s <= (int)r->losses; s++) {
    const double noise = dp_random_uniform(&random), loss = 0.15 + 0.9 * exp(-s / (0.3 * r->losses)) + 0.12 * noise;
    fprintf(log,
            "{\"step\": %d, \"loss\": %.6f, \"lr\": 1e-4, \"gradient_norm\": %.4f, \"step_s\": %.6f, "
            "\"samples_per_s\": %.4f}\n",
            s, loss, 1 + noise, step_s * (1 + 0.1 * noise), rate / (1 + 0.1 * noise));
    if (s % 20 == 0) fprintf(log, "{\"step\": %d, \"eval_loss\": %.6f}\n", s, loss);
  }
  if (fclose(log) != 0) stop("log.jsonl cannot be written");
}

static dp_status measure_units(const recipe *r, const sim_prediction *prediction, const plan_unit_times *predicted,
                               plan_unit_times *measured, dp_error *error) {
  const plan_plan *plan = &prediction->plan;
  DP_TRY(plan_unit_times_init(predicted->unit_count, measured, error));
  for (int c = 0; c < plan->chunk_count; c++)
    for (int u = plan->chunks[c].first_unit; u < plan->chunks[c].first_unit + plan->chunks[c].unit_count; u++) {
      const bool slow = plan->chunks[c].rank == (int)r->worker;
      plan_unit_times_add(measured, (size_t)u, PLAN_UNIT_FORWARD, plan_unit_forward_s(predicted, (size_t)u));
      plan_unit_times_add(measured, (size_t)u, PLAN_UNIT_BACKWARD_INPUT,
                          (slow ? r->backward : 1) * plan_unit_backward_s(predicted, (size_t)u));
    }
  return DP_OK;
}

static dp_status write_run(recipe *r, const plan_scenario *scenario, const char *file, const char *folder,
                           const sim_prediction *prediction, dp_error *error) {
  plan_timeline_samples samples;
  plan_timeline step, median;
  plan_metrics metrics;
  plan_step_spread spread;
  plan_unit_times predicted_units, measured_units;
  report_bound bounds[SIM_MAX_BOUNDS], measured_bounds[REPORT_MAX_BOUNDS];
  int bound_count;
  dp_str notes = {0};
  r->program = &prediction->program;
  DP_TRY(plan_timeline_samples_init(&prediction->program, 16, &samples, error));
  for (r->step = 0; r->step < (uint64_t)r->steps; r->step++) {
    distorted_timeline(&prediction->timeline, distort, r, &step);
    plan_timeline_samples_add(&samples, &step);
    plan_timeline_free(&step);
  }
  DP_TRY(plan_timeline_samples_median(&samples, &median, error));
  DP_TRY(plan_timeline_samples_spread(&samples, &spread, error));
  DP_TRY(plan_metrics_of(&median, &metrics, error));
  DP_TRY(sim_unit_times(scenario, prediction, &predicted_units, error));
  DP_TRY(measure_units(r, prediction, &predicted_units, &measured_units, error));
  report_bounds_of(&metrics, measured_bounds, &bound_count);
  for (int b = 0; b < prediction->bound_count; b++)
    bounds[b] = (report_bound){prediction->bounds[b].name, prediction->bounds[b].share};
  const report_run predicted = {.name = scenario->name,
                                .origin = "predicted",
                                .scenario_file = file,
                                .graph = &prediction->graph,
                                .cluster = &scenario->cluster,
                                .program = &prediction->program,
                                .timeline = &prediction->timeline,
                                .metrics = &prediction->metrics,
                                .memory = &prediction->memory,
                                .memory_limit_bytes = prediction->memory_limit_bytes,
                                .fits = prediction->fits,
                                .tightest_worker = prediction->tightest_worker,
                                .bounds = bounds,
                                .bound_count = prediction->bound_count,
                                .error_band = prediction->error_band,
                                .job_steps = scenario->steps};
  report_run measured = predicted;
  measured.origin = "measured";
  measured.timeline = &median;
  measured.metrics = &metrics;
  measured.bounds = measured_bounds;
  measured.bound_count = bound_count;
  measured.error_band = 0;
  measured.steps = &spread;
  const report_pair pair = {.predicted = &predicted,
                            .measured = &measured,
                            .samples = &samples,
                            .predicted_units = &predicted_units,
                            .measured_units = &measured_units};
  const char *gnuplot = getenv("GNUPLOT");
  const report_options options = {.gnuplot = gnuplot && *gnuplot ? gnuplot : NULL};
  if (r->losses > 0) {
    DP_TRY(dp_folder_make(folder, error));
    write_log(r, folder, spread.median_s, metrics.throughput_samples_per_s);
  }
  const dp_status status = report_run_folder_write(&pair, folder, &options, &notes, error);
  dp_str_free(&notes);
  plan_unit_times_free(&predicted_units);
  plan_unit_times_free(&measured_units);
  plan_metrics_free(&metrics);
  plan_timeline_free(&median);
  plan_timeline_samples_free(&samples);
  return status;
}

int main(int argc, char **argv) {
  dp_error error = DP_ERROR_INIT;
  recipe r = {.worker = -1, .backward = 1, .links = 1, .steps = 1};
  const char *sets[MAX_SETS];
  int set_count = 0;
  plan_scenario scenario;
  sim_efficiency *efficiency = NULL;
  sim_prediction prediction;
  if (argc < 3) stop("usage: make_run SCENARIO DIR [KEY=VALUE]...");
  for (int i = 3; i < argc; i++) {
    const char *dot = strchr(argv[i], '.'), *equals = strchr(argv[i], '=');
    if (dot && equals && dot < equals && set_count < MAX_SETS)
      sets[set_count++] = argv[i];
    else
      set(&r, argv[i]);
  }
  if (plan_scenario_read(argv[1], sets, set_count, &scenario, &error) != DP_OK) stop(error.text);
  if (sim_efficiency_read(NULL, &efficiency, &error) != DP_OK) stop(error.text);
  if (sim_predict(&scenario, efficiency, &prediction, &error) != DP_OK) stop(error.text);
  if (write_run(&r, &scenario, argv[1], argv[2], &prediction, &error) != DP_OK) stop(error.text);
  sim_prediction_free(&prediction);
  sim_efficiency_free(efficiency);
  plan_scenario_free(&scenario);
  return 0;
}
