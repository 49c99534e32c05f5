/* diffpipe calibrate: measures what ops and links cost on this machine and writes a profile. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/progress.h"
#include "base/range.h"
#include "base/schema.h"
#include "cli/calibrate_records.h"
#include "cli/calibrate_run.h"
#include "cli/calibrate_tell.h"
#include "cli/calibrate_units.h"
#include "cli/command.h"
#include "cli/efficiency.h"
#include "cli/recalibrate.h"
#include "cli/traced.h"
#include "exec/measure.h"
#include "plan/profile_rows.h"
#include "reports/read.h"
#include "sim/tune.h"

enum {
  SLOT_SET,
  SLOT_PROFILE,
  SLOT_FROM,
  SLOT_BACKEND,
  SLOT_OUT,
  SLOT_SECONDS,
  SLOT_THREADS,
  SLOT_ALGORITHMS,
  SLOT_LINKS,
  SLOT_NCCL,
  SLOT_JSON
};
enum { MICROBATCHES = 4, ROUNDS = 3, DEFAULT_SECONDS = 20, MAX_SIZES = 32 };

static const char *const backends[] = {"cpu", "cuda", NULL};

static const cli_option options[] = {
    CLI_OPTION_SET(SLOT_SET),
    {.name = "from",
     .type = CLI_STRING,
     .argument = "DIR",
     .help = "measure nothing: make a profile of a run or records, or correct --profile",
     .slot = SLOT_FROM},
    CLI_OPTION_PROFILE(SLOT_PROFILE),
    {.name = "backend",
     .type = CLI_CHOICE,
     .argument = "NAME",
     .help = "what is measured",
     .fallback = "default cpu",
     .slot = SLOT_BACKEND,
     .choices = backends},
    {.name = "out",
     .letter = 'o',
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "write the profile here",
     .fallback = "default profile.json",
     .slot = SLOT_OUT},
    {.name = "seconds",
     .type = CLI_INTEGER,
     .argument = "S",
     .help = "time to measure for; nine steps of each program at least",
     .fallback = "default 20",
     .slot = SLOT_SECONDS,
     .min = 1,
     .max = 86400},
    {.name = "threads",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "of each worker's kernels; default train.threads, else a device's cores",
     .slot = SLOT_THREADS,
     .min = 1,
     .max = 1024},
    {.name = "algorithms",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "on a GPU, with the algorithms found before; adds those found now",
     .slot = SLOT_ALGORITHMS},
    {.name = "links",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "on GPUs, NCCL between them as tests/bench_cuda_links measured it",
     .slot = SLOT_LINKS},
    {.name = "nccl",
     .type = CLI_FLAG,
     .help = "on whole GPUs, NCCL's send and receive, too, beside this model's units",
     .slot = SLOT_NCCL},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON instead of a summary", .slot = SLOT_JSON},
};

/* One that is under way. */
typedef struct calibration {
  const plan_scenario *scenario;
  sim_efficiency *efficiency;
  exec_measure *measure;
  dp_arena arena;
  const char *processor;
  int cores, threads, workers; /* of the machine; of a worker; side by side */
  int64_t sizes[MAX_SIZES];    /* of microbatches */
  int size_count, runs, run;
  double seconds; /* of one run */
  dp_progress progress;
  dp_error *error;
} calibration;

/* ---- what is to be measured ---- */

static void add_size(calibration *c, int64_t size) {
  for (int i = 0; i < c->size_count; i++)
    if (c->sizes[i] == size) return;
  if (c->size_count < MAX_SIZES) c->sizes[c->size_count++] = size;
}

/* Of the plan, and those that a search would try. */
static dp_status find_sizes(calibration *c) {
  const plan_scenario *scenario = c->scenario;
  plan_plan plan = {0};
  DP_TRY(plan_scenario_plan(scenario, &plan, c->error));
  add_size(c, plan.microbatch_size);
  const int64_t batch = (int64_t)plan.microbatches * plan.microbatch_size * plan.replicas;
  plan_plan_free(&plan);
  const dp_node *list = dp_node_get(scenario->search, "microbatch_sizes");
  int64_t *sizes = NULL;
  size_t count = 0;
  if (list)
    DP_TRY(dp_range_read_integers(list, "search.microbatch_sizes", 1, 65536, &c->arena, &sizes, &count, c->error));
  for (size_t i = 0; i < count; i++)
    if (sizes[i] <= batch) add_size(c, sizes[i]);
  return DP_OK;
}

static dp_status check(const calibration *c) {
  const plan_scenario *scenario = c->scenario;
  const plan_device *first = &scenario->cluster.devices.items[0];
  if (scenario->synthetic)
    return dp_fail_at(c->error, plan_scenario_node(scenario, "model", "synthetic_units"),
                      "calibrate: found synthetic units, allowed: a model; such units cost what the scenario says");
  if (!plan_device_is_processor(first->model))
    return dp_fail_at(c->error, plan_scenario_node(scenario, "cluster", "file"),
                      "calibrate: found %s, allowed with --backend cpu: a processor (CPU-core, CPU-8-cores)",
                      first->model->name);
  for (size_t d = 1; d < scenario->cluster.devices.count; d++)
    if (scenario->cluster.devices.items[d].model != first->model)
      return dp_fail_at(c->error, plan_scenario_node(scenario, "cluster", "file"),
                        "calibrate: found %s beside %s, allowed: devices of one kind",
                        scenario->cluster.devices.items[d].model->name, first->model->name);
  return DP_OK;
}

/* Workers that fit beside each other on this machine, of those on the scenario's first. */
static int workers_side_by_side(const calibration *c) {
  const plan_cluster *cluster = &c->scenario->cluster;
  int workers = 0;
  for (size_t d = 0; d < cluster->devices.count; d++) workers += cluster->devices.items[d].node == 0;
  const int room = c->cores / c->threads > 1 ? c->cores / c->threads : 1;
  return workers < room ? workers : room;
}

/* ---- measuring ---- */

static void tick(void *data, double elapsed_s) {
  calibration *c = data;
  const double done = (c->run + (elapsed_s < c->seconds ? elapsed_s / c->seconds : 1)) / c->runs;
  dp_progress_update(&c->progress, (uint64_t)(1000 * done), NULL);
}

static dp_status measure_plan(calibration *c, int stages, int replicas, int64_t size) {
  const sim_candidate candidate = {.stages = stages,
                                   .replicas = replicas,
                                   .chunks = 1,
                                   .microbatches = MICROBATCHES,
                                   .microbatch_size = (int)size,
                                   .schedule = PLAN_1F1B,
                                   .skip_policy = PLAN_SKIP_DIRECT,
                                   .recompute = PLAN_RECOMPUTE_NONE};
  const plan_scenario changed = sim_tune_scenario(c->scenario, &candidate, MICROBATCHES * size * replicas);
  sim_prediction prediction;
  DP_TRY(sim_predict(&changed, c->efficiency, &prediction, c->error));
  const dp_status status =
      exec_measure_run(c->measure, &prediction.program, &prediction.graph, c->seconds, tick, c, c->error);
  sim_prediction_free(&prediction);
  c->run++;
  return status;
}

/* In rounds: where a pipeline's memory happens to lie makes all of its ops faster or slower, and machines change their
 * pace. */
static dp_status measure_all(calibration *c) {
  for (int i = 0; i < ROUNDS * c->size_count; i++) {
    const int64_t size = c->sizes[i % c->size_count];
    DP_TRY(measure_plan(c, 1, 1, size));
    if (c->workers == 1) continue;
    DP_TRY(measure_plan(c, 1, c->workers, size));
    DP_TRY(measure_plan(c, 2, 1, size));
  }
  return DP_OK;
}

static dp_status name_profile(const calibration *c, plan_profile *profile) {
  char made[32] = "unknown";
  const time_t now = time(NULL);
  struct tm utc;
  if (gmtime_r(&now, &utc)) (void)strftime(made, sizeof made, "%Y-%m-%dT%H:%M:%SZ", &utc);
  profile->cores = c->cores;
  profile->precision = c->scenario->model_options.precision;
  const struct {
    const char **to;
    const char *text;
  } strings[] = {{&profile->device, c->scenario->cluster.devices.items[0].model->name},
                 {&profile->processor, c->processor},
                 {&profile->implementation, c->scenario->implementation},
                 {&profile->gemm, kern_gemm_name()},
                 {&profile->made, made}};
  for (size_t i = 0; i < DP_COUNT_OF(strings); i++) {
    *strings[i].to = dp_arena_strdup(&profile->arena, strings[i].text);
    if (!*strings[i].to) return dp_fail_memory(c->error);
  }
  return DP_OK;
}

/* ---- the command ---- */

static const char *path_of(const cli_values *values) {
  return values->slots[SLOT_OUT].given ? values->slots[SLOT_OUT].string : "profile.json";
}

static dp_status calibrate(calibration *c, const cli_values *values) {
  const char *path = path_of(values);
  const int64_t seconds = values->slots[SLOT_SECONDS].given ? values->slots[SLOT_SECONDS].integer : DEFAULT_SECONDS;
  plan_profile profile = {.device = NULL};
  DP_TRY(check(c));
  DP_TRY(cli_efficiency_read(&c->efficiency, c->error));
  DP_TRY(find_sizes(c));
  DP_TRY(exec_measure_machine(&c->arena, &c->processor, &c->cores, c->error));
  const int64_t own = c->scenario->train.threads > 0 ? c->scenario->train.threads
                                                     : c->scenario->cluster.devices.items[0].model->sm_count;
  c->threads = (int)(values->slots[SLOT_THREADS].given ? values->slots[SLOT_THREADS].integer : own);
  c->workers = workers_side_by_side(c);
  c->runs = ROUNDS * c->size_count * (c->workers > 1 ? 3 : 1);
  c->seconds = (double)seconds / c->runs;
  DP_TRY(exec_measure_create(c->threads, &c->measure, c->error));
  dp_progress_begin(&c->progress, "measuring", 1000);
  dp_status status = measure_all(c);
  dp_progress_end(&c->progress);
  if (status == DP_OK) status = exec_measure_profile(c->measure, &profile, c->error);
  if (status == DP_OK) status = name_profile(c, &profile);
  if (status == DP_OK) status = plan_profile_write(&profile, path, c->error);
  if (status == DP_OK && values->slots[SLOT_JSON].given) status = cli_calibrate_tell_ops_json(&profile, path, c->error);
  if (status == DP_OK && !values->slots[SLOT_JSON].given) cli_calibrate_tell_ops(&profile, path, values->arguments[0]);
  plan_profile_free(&profile);
  return status;
}

/* ---- a GPU ---- */

/* Into the profile that is given, else a new one. */
static dp_status calibrate_gpu(calibration *c, const cli_values *values) {
  const char *path = path_of(values);
  plan_profile made = {.device = NULL};
  plan_profile *profile = c->scenario->profile ? c->scenario->profile : &made;
  DP_TRY(cli_efficiency_read(&c->efficiency, c->error));
  DP_TRY(find_sizes(c));
  const cli_calibrate_units_how how = {
      .scenario = c->scenario,
      .efficiency = c->efficiency,
      .sizes = c->sizes,
      .size_count = c->size_count,
      .nccl = values->slots[SLOT_NCCL].given,
      .seconds = values->slots[SLOT_SECONDS].given ? (double)values->slots[SLOT_SECONDS].integer : DEFAULT_SECONDS,
      .algorithms = values->slots[SLOT_ALGORITHMS].given ? values->slots[SLOT_ALGORITHMS].string : NULL};
  exec_units_took took = {.programs = 0};
  dp_status status = DP_OK;
  if (values->slots[SLOT_LINKS].given)
    status = plan_profile_read_rows(values->slots[SLOT_LINKS].string, &c->scenario->cluster, profile, c->error);
  if (status == DP_OK) status = cli_calibrate_units(&how, profile, &took, c->error);
  if (status == DP_OK) status = plan_profile_write(profile, path, c->error);
  if (status == DP_OK && values->slots[SLOT_JSON].given)
    status = cli_calibrate_tell_units_json(profile, &took, path, c->error);
  if (status == DP_OK && !values->slots[SLOT_JSON].given)
    cli_calibrate_tell_units(profile, &took, path, values->arguments[0]);
  plan_profile_free(&made);
  return status;
}

/* ---- from a run ---- */

/* The scenario again as the run had it: its plan may rest on the profile that it was predicted with. */
static dp_status read_as_run(calibration *c, const cli_values *values, plan_scenario *scenario) {
  const char *known = NULL;
  const char **sets = DP_ARENA_NEW(&c->arena, const char *, (size_t)values->set_count + 1);
  if (!sets) return dp_fail_memory(c->error);
  DP_TRY(cli_run_profile_of(values->slots[SLOT_FROM].string, &c->arena, &known, c->error));
  for (int i = 0; i < values->set_count; i++) sets[i] = values->sets[i];
  sets[values->set_count] = known;
  DP_TRY(plan_scenario_read(values->arguments[0], sets, values->set_count + (known ? 1 : 0), scenario, c->error));
  if (!plan_device_is_processor(scenario->cluster.devices.items[0].model)) scenario->implementation = "cuda";
  return DP_OK;
}

static dp_status learn(calibration *c, const cli_values *values) {
  plan_profile profile = {.device = NULL};
  plan_scenario scenario;
  cli_run_told told = {.outliers = {0}};
  DP_TRY(cli_efficiency_read(&c->efficiency, c->error));
  DP_TRY(read_as_run(c, values, &scenario));
  dp_status status =
      cli_calibrate_run(&scenario, c->efficiency, values->slots[SLOT_FROM].string, &profile, &told, c->error);
  plan_scenario_free(&scenario);
  if (status == DP_OK) status = plan_profile_write(&profile, path_of(values), c->error);
  if (status == DP_OK)
    status = cli_calibrate_tell_run(&profile, &told, path_of(values), values->slots[SLOT_JSON].given, c->error);
  dp_str_free(&told.outliers);
  plan_profile_free(&profile);
  return status;
}

/* Of records of any program: links, into the profile that is given, else a new one. */
static dp_status learn_links(const calibration *c, const cli_values *values) {
  plan_profile made = {.device = NULL};
  plan_profile *profile = c->scenario->profile ? c->scenario->profile : &made;
  cli_records_found found = {.devices = 0};
  dp_status status = cli_calibrate_records(c->scenario, values->slots[SLOT_FROM].string, profile, &found, c->error);
  if (status == DP_OK) status = plan_profile_write(profile, path_of(values), c->error);
  if (status == DP_OK)
    status = cli_calibrate_tell_records(&found, profile, path_of(values), values->arguments[0],
                                        values->slots[SLOT_JSON].given, c->error);
  cli_records_found_free(&found);
  plan_profile_free(&made);
  return status;
}

/* A run corrects once what it was predicted with: by another content of the same file, as of one that was corrected
 * already, a step takes another time. */
static void compare_step(calibration *c, const char *profile, double step_s) {
  plan_scenario scenario = *c->scenario; /* a view */
  sim_prediction prediction;
  dp_error unsaid = DP_ERROR_INIT;
  char now[32], then[32];
  if (!plan_device_is_processor(scenario.cluster.devices.items[0].model)) scenario.implementation = "cuda";
  if (cli_efficiency_read(&c->efficiency, &unsaid) != DP_OK ||
      sim_predict(&scenario, c->efficiency, &prediction, &unsaid) != DP_OK)
    return;
  if (fabs(prediction.metrics.step_s - step_s) > 1e-6 * step_s)
    fprintf(stderr,
            "diffpipe: note: by %s a step takes %s, and %s were predicted of the run: the file was changed since, or "
            "something else is --set\n",
            profile, dp_format_seconds(prediction.metrics.step_s, now), dp_format_seconds(step_s, then));
  sim_prediction_free(&prediction);
}

static dp_status correct(calibration *c, const cli_values *values) {
  plan_profile_factors factors;
  plan_profile *profile = c->scenario->profile;
  const char *folder = values->slots[SLOT_FROM].string;
  double step_s = 0;
  if (cli_traced_recorded(folder)) return learn_links(c, values);
  if (!report_there_is(folder, "setup.json"))
    return dp_fail(c->error, DP_BAD_INPUT,
                   "%s: found neither setup.json nor a file *.dpr, allowed: the folder of a run, or of records",
                   folder);
  if (!profile) return learn(c, values);
  DP_TRY(cli_recalibrate(c->scenario, folder, &factors, &step_s, c->error));
  compare_step(c, plan_scenario_node(c->scenario, "cluster", "profile")->string, step_s);
  plan_profile_scale(profile, &factors);
  DP_TRY(plan_profile_write(profile, path_of(values), c->error));
  return cli_calibrate_tell_factors(&factors, path_of(values), values->slots[SLOT_JSON].given, c->error);
}

/* What would have no effect. */
static dp_status check_options(const cli_values *values, bool from, bool gpu, dp_error *error) {
  static const struct {
    int slot;
    const char *name;
    bool of_gpus; /* alone */
  } rows[] = {{SLOT_LINKS, "links", true},
              {SLOT_NCCL, "nccl", true},
              {SLOT_ALGORITHMS, "algorithms", true},
              {SLOT_SECONDS, "seconds", false},
              {SLOT_THREADS, "threads", false}};
  for (size_t i = 0; i < DP_COUNT_OF(rows); i++) {
    if (!values->slots[rows[i].slot].given || !(from || (rows[i].of_gpus && !gpu))) continue;
    return dp_fail(error, DP_BAD_INPUT, "calibrate: found --%s%s", rows[i].name,
                   rows[i].of_gpus ? ", allowed: with --backend cuda alone"
                                   : " with --from, allowed: without, for nothing is measured");
  }
  return DP_OK;
}

static dp_status run_command(const cli_values *values, dp_error *error) {
  const bool from = values->slots[SLOT_FROM].given;
  const bool gpu = values->slots[SLOT_BACKEND].integer == 1;
  DP_TRY(check_options(values, from, gpu, error));
  if (!from && !gpu && values->slots[SLOT_PROFILE].given)
    return dp_fail(error, DP_BAD_INPUT,
                   "calibrate: found --profile without --from, allowed: together, or with --backend cuda");
  plan_scenario scenario;
  DP_TRY(plan_scenario_read(values->arguments[0], values->sets, values->set_count, &scenario, error));
  calibration c = {.scenario = &scenario, .error = error};
  if (gpu) scenario.implementation = "cuda";
  const dp_status status = from ? correct(&c, values) : gpu ? calibrate_gpu(&c, values) : calibrate(&c, values);
  exec_measure_free(c.measure);
  dp_arena_free(&c.arena);
  sim_efficiency_free(c.efficiency);
  plan_scenario_free(&scenario);
  return status;
}

const cli_command cli_calibrate = {
    .name = "calibrate",
    .arguments = "SCENARIO",
    .takes = "one, the scenario",
    .summary = "Measure what ops and links cost on this machine; write a profile.",
    .help =
        "Runs the scenario's model on this machine: a worker alone, workers side by side, and a pipeline, for\n"
        "the plan's microbatch size and those of [search]. Every op is timed as it runs in a step. The profile\n"
        "then stands behind predictions: `--profile FILE` of simulate, tune and whatif, or `profile = \"FILE\"`\n"
        "under [cluster]. Ops whose shape was measured cost what they took, others what a law fitted to their\n"
        "kind says; the answer tells how much of a step rests on which. With --backend cuda units are measured\n"
        "that run whole, on a GPU, on all of its parts or on several at once, and what is exchanged between\n"
        "these; with --profile that one is added to. --from takes the folder of a run, or one of records as\n"
        "`diffpipe profile` leaves it of any program. doc/calibration.md says more.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run_command};
