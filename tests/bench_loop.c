/* The closed loop: steps of unlike plans of one job, predicted before and after this machine was measured, beside the
 * steps that the executor takes. The plans take turns, several times; a figure is the median over all turns. What the
 * workers compute in a step, all together, stands beside what the process computed: where others use the machine too,
 * that is what can be compared. With an argument, a scenario, that one's job; else the small UNet on two workers of the
 * installed scenarios. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "exec/measure.h"
#include "graph/op_table.h"
#include "sim/tune.h"
#include "tests/bench.h"

enum { TURNS = 5, STEPS = 8, MICROBATCHES = 4, ROUNDS = 3 };
static const double CALIBRATE_S = 1; /* each of the programs, in each round */

static const sim_candidate plans[] = {
    {.stages = 1, .replicas = 1, .chunks = 1, .microbatch_size = 1, .schedule = PLAN_1F1B},
    {.stages = 1, .replicas = 1, .chunks = 1, .microbatch_size = 4, .schedule = PLAN_1F1B},
    {.stages = 2, .replicas = 1, .chunks = 1, .microbatch_size = 1, .schedule = PLAN_GPIPE},
    {.stages = 2, .replicas = 1, .chunks = 1, .microbatch_size = 1, .schedule = PLAN_1F1B},
    {.stages = 2, .replicas = 1, .chunks = 1, .microbatch_size = 2, .schedule = PLAN_1F1B},
    {.stages = 2, .replicas = 1, .chunks = 2, .microbatch_size = 1, .schedule = PLAN_INTERLEAVED},
    {.stages = 2, .replicas = 1, .chunks = 2, .microbatch_size = 1, .schedule = PLAN_FOLDED},
    {.stages = 2, .replicas = 1, .chunks = 1, .microbatch_size = 1, .schedule = PLAN_ZB_H1},
    {.stages = 2, .replicas = 1, .chunks = 2, .microbatch_size = 1, .schedule = PLAN_ZB_V},
    {.stages = 1, .replicas = 2, .chunks = 1, .microbatch_size = 1, .schedule = PLAN_1F1B},
    {.stages = 1, .replicas = 2, .chunks = 1, .microbatch_size = 2, .schedule = PLAN_1F1B},
};
enum { PLANS = sizeof plans / sizeof plans[0] };
static const int sizes[] = {1, 2, 4};

static plan_scenario scenario;
static sim_efficiency *efficiency;
static int64_t global_batch;
static dp_error error;

static void must(dp_status status) {
  if (status == DP_OK) return;
  fprintf(stderr, "bench_loop: %s\n", error.text);
  exit(1);
}

/* In place: a prediction points into itself. */
static void predict(sim_candidate plan, int64_t batch, sim_prediction *prediction) {
  plan.microbatches = (int)(batch / plan.replicas / plan.microbatch_size);
  plan.recompute = PLAN_RECOMPUTE_NONE;
  const plan_scenario changed = sim_tune_scenario(&scenario, &plan, batch);
  must(sim_predict(&changed, efficiency, prediction, &error));
}

/* ---- calibration, as the command does it ---- */

static void measure(exec_measure *measure, int stages, int replicas, int size) {
  const sim_candidate plan = {
      .stages = stages, .replicas = replicas, .chunks = 1, .microbatch_size = size, .schedule = PLAN_1F1B};
  sim_prediction p;
  predict(plan, (int64_t)MICROBATCHES * size * replicas, &p);
  must(exec_measure_run(measure, &p.program, &p.graph, CALIBRATE_S, NULL, NULL, &error));
  sim_prediction_free(&p);
}

static plan_profile calibrate(void) {
  exec_measure *m = NULL;
  plan_profile profile;
  int cores = 0;
  must(exec_measure_create(1, &m, &error));
  const int count = sizeof sizes / sizeof *sizes;
  for (int i = 0; i < ROUNDS * count; i++) {
    measure(m, 1, 1, sizes[i % count]);
    measure(m, 1, 2, sizes[i % count]);
    measure(m, 2, 1, sizes[i % count]);
  }
  must(exec_measure_profile(m, &profile, &error));
  exec_measure_free(m);
  must(exec_measure_machine(&profile.arena, &profile.processor, &cores, &error));
  profile.cores = cores;
  profile.device = scenario.cluster.devices.items[0].model->name;
  profile.implementation = scenario.implementation;
  profile.precision = scenario.model_options.precision;
  profile.gemm = kern_gemm_name();
  profile.made = "now";
  return profile;
}

/* ---- running ---- */

static void fill(void *data, int replica, int microbatch, int tensor, float *out) {
  const graph *g = data;
  const graph_tensor *t = &g->tensors.items[tensor];
  for (int64_t i = 0, n = graph_tensor_elements(t); i < n; i++) {
    const float x = (float)((i * 7919 + 31 * microbatch + 97 * replica + tensor) % 1009) / 504.5f - 1;
    out[i] = t->rank == 1 ? 500 + 400 * x : x;
  }
}

static void fill_weights(exec_pipeline *pipeline, const graph *g, int workers) {
  for (int w = 0; w < workers; w++) {
    exec_parameters *parameters = exec_pipeline_parameters(pipeline, w);
    for (size_t k = 0; k < g->weights.count; k++) {
      float *values = exec_parameters_value(parameters, (int)k);
      const graph_weight *weight = &g->weights.items[k];
      const float scale =
          weight->rank > 1 ? (float)sqrt(3.0 * (double)weight->dims[0] / (double)weight->parameters) : 0;
      for (int64_t i = 0; values && i < weight->parameters; i++)
        values[i] = weight->rank == 1 ? 1 : scale * ((float)(i * 7919 % 1009) / 504.5f - 1);
    }
    for (size_t t = 0; t < g->tensors.count; t++) {
      float *constant = g->tensors.items[t].is_constant ? exec_pipeline_constant(pipeline, w, (int)t) : NULL;
      if (constant) fill((void *)(uintptr_t)g, 0, 0, (int)t, constant);
    }
  }
}

/* Seconds of STEPS steps, after one that does not count, by the wall's clock and the process's own. */
static void run(const sim_prediction *p, double *seconds, double *computed) {
  exec_pipeline *pipeline = NULL;
  const exec_pipeline_options options = {.threads = 1, .feed = {.fill = fill, .data = (void *)(uintptr_t)&p->graph}};
  must(exec_pipeline_create(&p->program, &p->graph, &options, &pipeline, &error));
  fill_weights(pipeline, &p->graph, p->program.worker_count);
  for (int s = 0; s <= STEPS; s++) {
    const exec_step step = {.adamw = {.lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .step = s + 1}};
    const double start = bench_now_s(), own = bench_cpu_s();
    must(exec_pipeline_step(pipeline, &step, NULL, NULL, &error));
    if (s == 0) continue;
    seconds[s - 1] = bench_now_s() - start;
    computed[s - 1] = bench_cpu_s() - own;
  }
  exec_pipeline_free(pipeline);
}

/* Of all workers. */
static double computing_s(const sim_prediction *p) {
  double sum = 0;
  for (int w = 0; w < p->metrics.worker_count; w++) sum += p->metrics.workers[w].compute_s;
  return sum;
}

static void name_plan(const sim_candidate *plan, char name[96]) {
  (void)snprintf(name, 96, "%d x %d %s, microbatches of %d", plan->stages, plan->replicas,
                 plan_schedule_names[plan->schedule], plan->microbatch_size);
}

int main(int argc, char **argv) {
  static double before[PLANS], after[PLANS], computing[2][PLANS], errors[4][PLANS];
  static double measured[PLANS][TURNS * STEPS], computed[PLANS][TURNS * STEPS];
  char path[4096], name[96], label[160];
  (void)snprintf(path, sizeof path, "%s/tiny-unet-2xcpu.toml", dp_data_folder());
  must(plan_scenario_read_job(argc > 1 ? argv[1] : path, NULL, 0, &scenario, &error));
  must(sim_efficiency_read(NULL, &efficiency, &error));
  global_batch = sim_tune_global_batch(&scenario, &error);
  static sim_prediction predictions[PLANS];
  for (int i = 0; i < PLANS; i++) {
    predict(plans[i], global_batch, &predictions[i]);
    before[i] = predictions[i].metrics.step_s;
    computing[0][i] = computing_s(&predictions[i]);
  }
  plan_profile profile = calibrate();
  scenario.profile = &profile;
  for (int i = 0; i < PLANS; i++) {
    sim_prediction p;
    predict(plans[i], global_batch, &p);
    after[i] = p.metrics.step_s;
    computing[1][i] = computing_s(&p);
    sim_prediction_free(&p);
  }
  for (int turn = 0; turn < TURNS; turn++)
    for (int i = 0; i < PLANS; i++) run(&predictions[i], measured[i] + turn * STEPS, computed[i] + turn * STEPS);
  for (int i = 0; i < PLANS; i++) {
    const double step = bench_median(measured[i], TURNS * STEPS), own = bench_median(computed[i], TURNS * STEPS);
    errors[0][i] = fabs(before[i] / step - 1);
    errors[1][i] = fabs(after[i] / step - 1);
    errors[2][i] = fabs(computing[0][i] / own - 1);
    errors[3][i] = fabs(computing[1][i] / own - 1);
    name_plan(&plans[i], name);
    fprintf(stderr,
            "%-38s %7.2f ms, predicted %+5.1f %% before, %+5.1f %% after; computed %7.2f ms, predicted %+5.1f %% "
            "before, %+5.1f %% after\n",
            name, 1e3 * step, 100 * (before[i] / step - 1), 100 * (after[i] / step - 1), 1e3 * own,
            100 * (computing[0][i] / own - 1), 100 * (computing[1][i] / own - 1));
    (void)snprintf(label, sizeof label, "step, %s, predicted with a profile", name);
    bench_report(label, 1e3 * after[i], "ms", "the executor", after[i] / step, TURNS * STEPS);
  }
  bench_report("median error of predicted steps, without a profile", 100 * bench_median(errors[0], PLANS), "%", NULL, 0,
               PLANS);
  bench_report("median error of predicted steps, with a profile", 100 * bench_median(errors[1], PLANS), "%", NULL, 0,
               PLANS);
  bench_report("median error of what is computed in a step, without a profile", 100 * bench_median(errors[2], PLANS),
               "%", NULL, 0, PLANS);
  bench_report("median error of what is computed in a step, with a profile", 100 * bench_median(errors[3], PLANS), "%",
               NULL, 0, PLANS);
  scenario.profile = NULL;
  for (int i = 0; i < PLANS; i++) sim_prediction_free(&predictions[i]);
  plan_profile_free(&profile);
  sim_efficiency_free(efficiency);
  plan_scenario_free(&scenario);
  return 0;
}
