/* diffpipe formats: every key of every input file, from the rows that read them. */
#include <stdio.h>

#include "base/str.h"
#include "cli/command.h"
#include "plan/describe.h"

static const char introduction[] =
    "# File formats\n\n"
    "This page is what `diffpipe formats` prints; a test holds it to that. Every file starts with `format` and\n"
    "`version = 1`; an unknown key is an error that names file, line and the nearest known key. Units stand in names. GB is\n"
    "10^9 bytes. Paths are relative to the file that names them, then to the installed data. `diffpipe simulate` takes\n"
    "`--set table.key=value` for any key of a scenario; the value is TOML (`4`, `true`, `[1, 2]`), or else a string.\n\n"
    "Written files (`plan.json`, `metrics.json`, `timeline.json`, plots, `report.html`) are in doc/reports.md.\n\n"
    "## Scenario: `format = \"diffpipe-scenario\"`\n";

static const char cluster[] =
    "\nModels are diffusers' own `config.json`, read unchanged. `global_batch` = `microbatches` * `microbatch_size` *\n"
    "`data_parallel`: two of them give the third, and a contradiction is an error. `[cluster]` has `file`, or the keys of a\n"
    "cluster file.\n\n"
    "## Cluster: `format = \"diffpipe-cluster\"`\n\n"
    "Two lines are enough: `[[node]]` and `[[node.device]]` with a `model` and a `count`; SXM boards then get an NVSwitch,\n"
    "other cards hang on PCIe root complexes. The rest says what differs.\n";

static const char catalogue[] =
    "\n## Catalogue: `catalogue/devices.toml`, `catalogue/links.toml`\n\n"
    "Formats `diffpipe-devices` and `diffpipe-links`. A cluster file may have rows of its own, of the same shape.\n"
    "`catalogue/nccl.toml` holds the constants of NCCL's cost model, `catalogue/efficiency.toml` the efficiency curves; the\n"
    "heads of these files say what their keys mean.\n";

static dp_status run(const cli_values *values, dp_error *error) {
  if (values->argument_count)
    return dp_fail(error, DP_BAD_INPUT, "formats: found the argument \"%s\", allowed: none", values->arguments[0]);
  dp_str text = {0};
  dp_str_add(&text, introduction);
  plan_scenario_describe(&text);
  dp_str_add(&text, cluster);
  plan_cluster_describe(&text);
  plan_cluster_rows_describe(&text);
  dp_str_add(&text, catalogue);
  plan_catalogue_describe(&text);
  const dp_status status = text.failed ? dp_fail_memory(error) : DP_OK;
  if (status == DP_OK) fputs(dp_str_text(&text), stdout);
  dp_str_free(&text);
  return status;
}

const cli_command cli_formats = {.name = "formats",
                                 .arguments = "",
                                 .summary = "Tell every key of scenarios, clusters and the catalogue, as Markdown.",
                                 .run = run};
