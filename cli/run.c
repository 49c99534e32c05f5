/* diffpipe run: trains by a plan, measures every step, and lays what was measured beside what was predicted. */
#include <stdio.h>
#include <string.h>

#include "base/schema.h"
#include "cli/command.h"
#include "cli/efficiency.h"
#include "cli/run_notes.h"
#include "cli/run_parts.h"

enum {
  SLOT_SET,
  SLOT_PROFILE,
  SLOT_STEPS,
  SLOT_RESUME,
  SLOT_EVAL,
  SLOT_OUT,
  SLOT_NO_PLOTS,
  SLOT_BACKEND,
  SLOT_THREADS,
  SLOT_TRUST_CACHE,
  SLOT_ALGORITHMS,
  SLOT_ON_ANOMALY,
  SLOT_PROFILE_STEPS,
  SLOT_JSON
};

enum { BACKEND_AUTO, BACKEND_CPU, BACKEND_CUDA };
static const char *const backends[] = {"auto", "cpu", "cuda", NULL};
static const char *const anomalies[] = {"alarm", "advise", "degrade", "off", NULL}; /* cli_run_anomaly */

static const cli_option options[] = {
    CLI_OPTION_SET(SLOT_SET),
    CLI_OPTION_PROFILE(SLOT_PROFILE),
    {.name = "steps",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "train up to step N",
     .fallback = "task.steps",
     .slot = SLOT_STEPS,
     .min = 1,
     .max = 1000000000},
    {.name = "resume", .type = CLI_FLAG, .help = "go on from the newest whole checkpoint", .slot = SLOT_RESUME},
    {.name = "eval", .type = CLI_FLAG, .help = "train nothing; evaluate at fixed timesteps", .slot = SLOT_EVAL},
    {.name = "out",
     .letter = 'o',
     .type = CLI_STRING,
     .argument = "DIR",
     .help = "the run's folder",
     .fallback = "run-NAME of the scenario",
     .slot = SLOT_OUT},
    {.name = "no-plots",
     .type = CLI_FLAG,
     .help = "write the figures of the plots but do not draw them",
     .slot = SLOT_NO_PLOTS},
    {.name = "backend",
     .type = CLI_CHOICE,
     .argument = "NAME",
     .help = "what the workers run on",
     .fallback = "auto",
     .slot = SLOT_BACKEND,
     .choices = backends},
    {.name = "threads",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "of each worker on processors",
     .fallback = "train.threads, else a device's cores",
     .slot = SLOT_THREADS,
     .min = 1,
     .max = 1024},
    {.name = "algorithms",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "of CUDA's libraries: take what FILE has, add what was timed",
     .slot = SLOT_ALGORITHMS},
    {.name = "on-anomaly",
     .type = CLI_CHOICE,
     .argument = "WHAT",
     .help = "what to do when the run slows down",
     .fallback = "alarm",
     .slot = SLOT_ON_ANOMALY,
     .choices = anomalies},
    {.name = "profile-steps",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "record what N of the last steps did, kernels too",
     .slot = SLOT_PROFILE_STEPS,
     .min = 1,
     .max = CLI_RUN_RECORD_MOST},
    {.name = "trust-cache",
     .type = CLI_FLAG,
     .help = "take a cache that was made for another model or of other data",
     .slot = SLOT_TRUST_CACHE},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON},
};

static bool given(const cli_values *values, int slot) { return values->slots[slot].given; }

static cli_run_job job_of(const cli_values *values) {
  cli_run_job r = {.resume = given(values, SLOT_RESUME),
                   .evaluates = given(values, SLOT_EVAL),
                   .json = given(values, SLOT_JSON),
                   .plots = !given(values, SLOT_NO_PLOTS),
                   .on_anomaly = (cli_run_anomaly)values->slots[SLOT_ON_ANOMALY].integer,
                   .saved = -1};
  if (given(values, SLOT_ALGORITHMS)) r.algorithms_file = values->slots[SLOT_ALGORITHMS].string;
  if (given(values, SLOT_THREADS)) r.threads = (int)values->slots[SLOT_THREADS].integer;
  if (given(values, SLOT_PROFILE_STEPS)) r.profile_steps = (size_t)values->slots[SLOT_PROFILE_STEPS].integer;
  return r;
}

/* ---- from the command line to a plan ---- */

static dp_status run_prediction(const cli_values *values, const cli_run_source *source, const plan_scenario *scenario,
                                const sim_efficiency *efficiency, const sim_prediction *prediction,
                                const cli_run_sizes *sizes, bool cuda, cli_processes *processes, dp_error *error) {
  cli_folder_view view;
  dp_arena arena = {0};
  cli_values as_read = *values; /* what the reports name: the scenario, with all assignments */
  const char *const argument = source->scenario;
  as_read.arguments = &argument;
  as_read.sets = source->sets;
  as_read.set_count = source->set_count;
  plan_unit_times unit_costs = {0};
  if (values->slots[SLOT_ON_ANOMALY].integer == CLI_RUN_DEGRADE)
    DP_TRY(cli_run_degrade_check(scenario, &prediction->plan, &prediction->graph,
                                 exec_process_count(processes->transport), cuda, error));
  DP_TRY(cli_run_note_differences(source, scenario, prediction, !cli_processes_speak(processes), error));
  const int64_t threads =
      values->slots[SLOT_THREADS].given ? values->slots[SLOT_THREADS].integer : scenario->train.threads;
  if (cli_processes_speak(processes)) DP_TRY(cli_run_note_profile(scenario, threads, error));
  if (cuda) cli_processes_note_transport(processes, &prediction->plan);
  DP_TRY(sim_unit_times(scenario, prediction, &unit_costs, error));
  dp_status status = cli_folder_view_of(scenario, efficiency, prediction, &as_read, &view, error);
  if (status != DP_OK) {
    plan_unit_times_free(&unit_costs);
    return status;
  }
  cli_run_job r = job_of(values);
  r.scenario = scenario;
  r.efficiency = efficiency;
  r.predicted = &view;
  r.unit_costs = &unit_costs;
  r.sizes = sizes;
  r.processes = processes;
  r.transport = processes->transport;
  r.cuda = cuda;
  r.steps = given(values, SLOT_STEPS) ? values->slots[SLOT_STEPS].integer : scenario->steps;
  view.run.job_steps = r.steps;
  r.folder = values->slots[SLOT_OUT].given ? values->slots[SLOT_OUT].string
                                           : dp_arena_printf(&arena, "run-%s", scenario->name);
  status = r.folder ? cli_processes_ready(processes, &prediction->program, error) : dp_fail_memory(error);
  if (status == DP_OK) status = cli_run_work(&r, error);
  if (processes->agreed) status = cli_processes_end(processes, status, error);
  cli_folder_view_free(&view);
  plan_unit_times_free(&unit_costs);
  dp_arena_free(&arena);
  return status;
}

/* By itself: a cluster of processors, or an implementation for them, runs on processors; any other on CUDA devices
 * where this machine has one. What runs is predicted: the plan's memory is then the executor's. */
static dp_status choose_backend(const cli_values *values, bool speak, plan_scenario *scenario, bool *cuda,
                                dp_error *error) {
  const int64_t wanted = values->slots[SLOT_BACKEND].given ? values->slots[SLOT_BACKEND].integer : BACKEND_AUTO;
  dp_error why = DP_ERROR_INIT;
  *cuda = wanted == BACKEND_CUDA;
  if (wanted == BACKEND_CUDA) DP_TRY(exec_device_cuda_there(error));
  if (wanted == BACKEND_AUTO && strcmp(scenario->implementation, "cpu") != 0 &&
      !plan_device_is_processor(scenario->cluster.devices.items[0].model)) {
    *cuda = exec_device_cuda_there(&why) == DP_OK;
    if (!*cuda && speak) fprintf(stderr, "diffpipe: note: the workers run on processors: %s\n", why.text);
  }
  if (*cuda) scenario->implementation = "cuda";
  return DP_OK;
}

static dp_status run_scenario(const cli_values *values, const cli_run_source *source, plan_scenario *scenario,
                              cli_processes *processes, dp_error *error) {
  sim_efficiency *efficiency = NULL;
  sim_prediction prediction;
  bool cuda;
  DP_TRY(choose_backend(values, cli_processes_speak(processes), scenario, &cuda, error));
  if (values->slots[SLOT_TRUST_CACHE].given) scenario->data.trust_cache = true;
  DP_TRY(plan_scenario_find_training(scenario, error));
  DP_TRY(cli_efficiency_read(&efficiency, error));
  dp_status status = sim_predict(scenario, efficiency, &prediction, error);
  if (status == DP_OK) {
    cli_run_sizes sizes;
    status = cli_run_sizes_of(scenario, efficiency, &prediction, &sizes, error);
    if (status == DP_OK) {
      status = run_prediction(values, source, scenario, efficiency, &prediction, &sizes, cuda, processes, error);
      cli_run_sizes_free(&sizes);
    }
    sim_prediction_free(&prediction);
  }
  sim_efficiency_free(efficiency);
  return status;
}

static dp_status read_and_run(const cli_values *values, cli_processes *processes, dp_error *error) {
  if (values->slots[SLOT_OUT].given && !values->slots[SLOT_OUT].string[0])
    return dp_fail(error, DP_BAD_INPUT, "run: --out: found \"\", allowed: a folder");
  if (given(values, SLOT_EVAL) && given(values, SLOT_PROFILE_STEPS))
    return dp_fail(error, DP_BAD_INPUT,
                   "run: found --profile-steps with --eval, allowed: without, for no step is trained");
  cli_run_source source;
  plan_scenario scenario;
  DP_TRY(cli_run_source_of(values, &source, error));
  dp_status status = plan_scenario_read(source.scenario, source.sets, source.set_count, &scenario, error);
  if (status == DP_OK) {
    status = run_scenario(values, &source, &scenario, processes, error);
    plan_scenario_free(&scenario);
  }
  cli_run_source_free(&source);
  return status;
}

static dp_status run_command(const cli_values *values, dp_error *error) {
  cli_processes processes;
  DP_TRY(cli_processes_begin(&processes, error));
  return cli_processes_end(&processes, read_and_run(values, &processes, error), error);
}

const cli_command cli_run = {
    .name = "run",
    .arguments = "PLAN|SCENARIO",
    .takes = "one, a plan or a scenario",
    .summary = "Train by a plan on this machine, and lay what was measured beside the prediction.",
    .help =
        "SCENARIO is a TOML file with [data]; PLAN the plan.json of a folder that simulate, tune or run wrote:\n"
        "its setup.json says of which scenario. The folder of a run gets log.jsonl (a line a step),\n"
        "checkpoints/, plan.json, setup.json, metrics.json, timeline.json, report.html, and at the end model/.\n"
        "\n"
        "Under mpirun or srun the workers are shared out among the processes, in equal runs.\n"
        "\n"
        "SIGINT and SIGTERM end the run after the step, with a checkpoint and exit status 0; --resume goes on\n"
        "with the same bits. SIGUSR1 saves and goes on. doc/training.md tells the rest.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run_command};
