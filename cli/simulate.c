/* diffpipe simulate: predicts a scenario and reports it. */
#include <jansson.h>
#include <stdio.h>

#include "base/schema.h"
#include "cli/command.h"
#include "cli/efficiency.h"
#include "cli/folder.h"
#include "cli/json.h"
#include "reports/report.h"
#include "sim/predict.h"

enum { SLOT_SET, SLOT_PROFILE, SLOT_JSON, SLOT_OUT, SLOT_NO_PLOTS };

static const cli_option options[] = {
    CLI_OPTION_SET(SLOT_SET),
    CLI_OPTION_PROFILE(SLOT_PROFILE),
    {.name = "json", .type = CLI_FLAG, .help = "print JSON instead of tables", .slot = SLOT_JSON},
    CLI_OPTION_OUT(SLOT_OUT, "report, metrics, plan, timeline and plots"),
    CLI_OPTION_NO_PLOTS(SLOT_NO_PLOTS),
};

static dp_status print_json(const report_run *run, dp_error *error) {
  void *metrics = NULL;
  DP_TRY(report_metrics_json(run, &metrics, error));
  const dp_status status = cli_json_print(metrics, error);
  json_decref(metrics);
  return status;
}

static dp_status print_summary(const report_run *run, dp_error *error) {
  dp_str text = {0};
  const dp_status status = report_summary(run, &text, error);
  if (status == DP_OK) (void)fputs(dp_str_text(&text), stdout);
  dp_str_free(&text);
  return status;
}

/* What a person should know beside the data. */
static dp_status talk(const report_run *run, dp_error *error) {
  dp_str text = {0};
  report_idle_devices(run, &text);
  if (text.failed) return dp_fail_memory(error);
  if (text.length) fprintf(stderr, "diffpipe: note: %s\n", dp_str_text(&text));
  dp_str_clear(&text);
  report_verdict(run, &text);
  if (text.failed) return dp_fail_memory(error);
  if (!run->fits) fprintf(stderr, "diffpipe: note: %s\n", dp_str_text(&text));
  dp_str_free(&text);
  return DP_OK;
}

static dp_status tell(const report_run *run, const cli_values *values, dp_error *error) {
  if (values->slots[SLOT_OUT].given)
    DP_TRY(cli_folder_write(run, NULL, values->slots[SLOT_OUT].string, !values->slots[SLOT_NO_PLOTS].given, error));
  DP_TRY(values->slots[SLOT_JSON].given ? print_json(run, error) : print_summary(run, error));
  return talk(run, error);
}

static dp_status predict(const plan_scenario *scenario, const sim_efficiency *efficiency, const cli_values *values,
                         dp_error *error) {
  sim_prediction prediction;
  cli_folder_view view;
  DP_TRY(sim_predict(scenario, efficiency, &prediction, error));
  dp_status status = cli_folder_view_of(scenario, efficiency, &prediction, values, &view, error);
  if (status == DP_OK) {
    status = tell(&view.run, values, error);
    cli_folder_view_free(&view);
  }
  sim_prediction_free(&prediction);
  return status;
}

static dp_status run_command(const cli_values *values, dp_error *error) {
  DP_TRY(cli_folder_check(values, "simulate", SLOT_OUT, SLOT_NO_PLOTS, error));
  plan_scenario scenario;
  sim_efficiency *efficiency = NULL;
  DP_TRY(plan_scenario_read(values->arguments[0], values->sets, values->set_count, &scenario, error));
  dp_status status = cli_efficiency_read(&efficiency, error);
  if (status == DP_OK) status = predict(&scenario, efficiency, values, error);
  sim_efficiency_free(efficiency);
  plan_scenario_free(&scenario);
  return status;
}

const cli_command cli_simulate = {
    .name = "simulate",
    .arguments = "SCENARIO",
    .takes = "one, the scenario",
    .summary = "Predict step time, bubbles, memory, traffic and cost of a scenario.",
    .help =
        "SCENARIO is a TOML file; `diffpipe formats` tells its keys. The tables say what each worker does with\n"
        "its time and memory, what travels between workers, and what bounds the step. A plan that does not fit\n"
        "into memory is predicted all the same, and the verdict says by how much.\n"
        "\n"
        "With --out the folder gets report.html, metrics.json (what --json prints), plan.json, timeline.json\n"
        "(Chrome trace events: opens in Perfetto), and timeline, memory and bounds as SVG and PNG by gnuplot\n"
        "($GNUPLOT, if set); plots/ keeps the figures and scripts they were drawn from.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run_command};
