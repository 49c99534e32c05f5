/* diffpipe advise: reads a diffusion-pipe configuration and says what to change. */
#include <stdio.h>
#include <string.h>

#include "base/progress.h"
#include "cli/advise.h"
#include "cli/command.h"
#include "cli/efficiency.h"

enum { SLOT_CLUSTER, SLOT_DATASET, SLOT_MODEL, SLOT_SET, SLOT_JSON };

static const cli_option options[] = {
    {.name = "cluster",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "the GPUs to train on (needed)",
     .slot = SLOT_CLUSTER},
    {.name = "dataset",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "the dataset file, in place of the one that CONFIG names",
     .slot = SLOT_DATASET},
    {.name = "model",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "the model's diffusers config.json, where the type alone does not tell it",
     .slot = SLOT_MODEL},
    {.name = "set",
     .type = CLI_LIST,
     .argument = "KEY=VALUE",
     .help = "set a key of CONFIG (model.dtype=float16); may be repeated",
     .slot = SLOT_SET},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON instead of text", .slot = SLOT_JSON},
};

static void show_progress(void *data, uint64_t done) { dp_progress_update(data, done, NULL); }

static dp_status advise(const plan_dpipe *config, const sim_efficiency *efficiency, const cli_values *values,
                        dp_error *error) {
  dp_progress progress;
  dp_progress_begin(&progress, "advise", 0);
  const sim_advise_options how = {.model = values->slots[SLOT_MODEL].string,
                                  .cluster = values->slots[SLOT_CLUSTER].string,
                                  .progress = show_progress,
                                  .progress_data = &progress};
  plan_scenario scenario;
  sim_advise_result result;
  dp_status status = sim_advise(config, efficiency, &how, &scenario, &result, error);
  dp_progress_end(&progress);
  if (status != DP_OK) return status;
  const cli_advice advice = {values->arguments[0], config, &scenario, &result};
  status =
      values->slots[SLOT_JSON].given ? cli_advise_print_json(&advice, error) : cli_advise_print_text(&advice, error);
  sim_advise_result_free(&result);
  plan_scenario_free(&scenario);
  return status;
}

static dp_status run(const cli_values *values, dp_error *error) {
  if (!values->slots[SLOT_CLUSTER].given)
    return dp_fail(error, DP_BAD_INPUT, "advise: --cluster is missing, needed: --cluster FILE, the GPUs to train on");
  plan_dpipe config;
  sim_efficiency *efficiency = NULL;
  DP_TRY(plan_dpipe_read(values->arguments[0], values->sets, values->set_count, &config, error));
  dp_status status = plan_dpipe_read_dataset(&config, values->slots[SLOT_DATASET].string, error);
  if (status == DP_OK) status = cli_efficiency_read(&efficiency, error);
  if (status == DP_OK) status = advise(&config, efficiency, values, error);
  sim_efficiency_free(efficiency);
  plan_dpipe_free(&config);
  return status;
}

const cli_command cli_advise = {
    .name = "advise",
    .arguments = "CONFIG.toml",
    .takes = "one, the diffusion-pipe configuration",
    .summary = "Read a diffusion-pipe training configuration: does it fit, how fast, what to change.",
    .help =
        "CONFIG.toml and its dataset file are those that diffusion-pipe trains with (sdxl, sd3, flux). For each\n"
        "size of the dataset it says whether it fits and how long a step takes; then which lines to change,\n"
        "with the predicted gain of each change alone and of all together. The global batch stays what it was\n"
        "unless nothing fits then. Only what diffusion-pipe can do is proposed. Keys that do not matter here\n"
        "are listed, never an error; doc/advise.md says what is modelled and what is not.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run};
