/* diffpipe formats: every key of every input file, from the rows that read them. */
#include <jansson.h>
#include <stdio.h>

#include "base/str.h"
#include "cli/advise.h"
#include "cli/command.h"
#include "cli/json.h"
#include "exec/algorithms.h"
#include "exec/manifest.h"
#include "plan/describe.h"

static const char introduction[] =
    "# File formats\n\n"
    "This page is what `diffpipe formats` prints; a test holds it to that. Every file starts with `format` and\n"
    "`version = 1`; an unknown key is an error that names file, line and the nearest known key. Units stand in names. "
    "GB is\n"
    "10^9 bytes. Paths are relative to the file that names them, then to the installed data. `diffpipe simulate` "
    "takes\n"
    "`--set table.key=value` for any key of a scenario; the value is TOML (`4`, `true`, `[1, 2]`), or else a "
    "string.\n\n"
    "Written files (`plan.json`, `metrics.json`, `setup.json`, `tune.json`, `timeline.json`, plots, `report.html`) "
    "are\n"
    "in doc/reports.md.\n\n"
    "## Scenario: `format = \"diffpipe-scenario\"`\n";

static const char cluster[] =
    "\nModels are diffusers' own `config.json`, read unchanged. `global_batch` = `microbatches` * `microbatch_size` *\n"
    "`data_parallel`: two of them give the third, and a contradiction is an error. `[cluster]` has `file`, or the keys "
    "of a\n"
    "cluster file, and `profile`, the path of a profile. `[search]` bounds what `diffpipe tune` tries; `simulate` does not look at it.\n"
    "`[link]`, `[device]` and `[host]` change the cluster that was read, as in `--set link.bandwidth_gb_per_s=64`; a table in\n"
    "them speaks of one kind or class of links or of one card: `[link.nvlink]`, `[link.pcie4-x16]`, `[device.RTX-4090]`.\n\n"
    "`plan.transport` is how workers of one machine exchange data: `local` by the copy engines into each other's memory,\n"
    "`nccl` by NCCL's send and receive, `host` by the copy engines through pinned memory of the host. `auto` is `local`, "
    "but\n"
    "`host` between cards without peer access and between parts of a card whose `virtual_link` is of kind `host`. "
    "Between\n"
    "machines it is always NCCL. A collective takes NCCL where any two of its members do.\n\n"
    "## Cluster: `format = \"diffpipe-cluster\"`\n\n"
    "Two lines are enough: `[[node]]` and `[[node.device]]` with a `model` and a `count`; SXM boards then get an "
    "NVSwitch,\n"
    "other cards hang on PCIe root complexes. The rest says what differs. Cards are named in `catalogue/devices.toml`\n"
    "(`RTX-4090`, `A100-SXM4-80GB`), classes of links in `catalogue/links.toml` (`pcie4-x16`, `ib-hdr200`); in a "
    "scenario the\n"
    "tables begin with `cluster`: `[[cluster.node]]`, `[[cluster.node.device]]`. Several nodes are joined by a "
    "`[[fabric]]`, into\n"
    "which each has a `[[node.nic]]`.\n";

static const char catalogue[] =
    "\n## Catalogue: `catalogue/devices.toml`, `catalogue/links.toml`\n\n"
    "Formats `diffpipe-devices` and `diffpipe-links`. A cluster file may have rows of its own, of the same shape.\n"
    "`catalogue/nccl.toml` holds the constants of NCCL's cost model, `catalogue/efficiency.toml` the efficiency "
    "curves; the\n"
    "heads of these files say what their keys mean.\n";

static const char machine[] =
    "\n## Machine: `format = \"diffpipe-machine\"`\n\n"
    "JSON: what `diffpipe machine --json` says of a machine's GPUs, and `diffpipe machine --from FILE` makes a cluster of.\n"
    "plan/machine.h says how.\n";

static const char profile[] =
    "\n## Profile: `profile.json`, `format = \"diffpipe-profile\"`\n\n"
    "What `diffpipe calibrate` measured and `[cluster] profile` or `--profile` names. doc/calibration.md says how it is\n"
    "made and used; plan/profile.h has the formulas.\n";

static const char foreign[] =
    "\n## diffusion-pipe: what `diffpipe advise` reads\n\n"
    "These files are not ours: keys that are not below are listed and change nothing. What is not given has\n"
    "diffusion-pipe's own default. doc/advise.md says what is made of them.\n";

static const char dataset[] =
    "\n## Data set: `manifest.json`, `format = \"diffpipe-dataset\"`\n\n"
    "JSON, written by `diffpipe data manifest`. The caches that are made of it are in doc/data.md.\n";

static const char algorithms[] =
    "\n## Algorithms: `algorithms.json`, `format = \"diffpipe-algorithms\"`\n\n"
    "What a run on CUDA devices found by timing, in its folder and in the file of `--algorithms`: which algorithm of the\n"
    "libraries, or of our own, for which problem. A device or a version that is another has a table of its own. The texts are\n"
    "the kernels' own (kernels/cuda/memory.h), good for the same versions alone, and not meant to be written by hand; a file\n"
    "may be removed at any time, and all is timed again.\n";

static const char answer[] =
    "\n### What `diffpipe advise --json` prints: `format = \"diffpipe-advise\"`\n\n"
    "| key | meaning |\n|---|---|\n";

static const struct {
  const char *format; /* of the file that the tables belong to */
  size_t (*tables)(const plan_key_table **);
  const char *before; /* the prose in front of them */
} parts[] = {
    {"diffpipe-scenario", plan_scenario_tables, introduction},
    {"diffpipe-scenario", plan_cluster_change_tables, ""},
    {"diffpipe-cluster", plan_cluster_tables, cluster},
    {"diffpipe-cluster", plan_cluster_row_tables, ""},
    {"diffpipe-devices, diffpipe-links", plan_catalogue_tables, catalogue},
    {"diffpipe-machine", plan_machine_tables, machine},
    {"diffpipe-profile", plan_profile_tables, profile},
    {"diffpipe-dataset", exec_manifest_tables, dataset},
    {"diffpipe-algorithms", exec_algorithms_tables, algorithms},
    {"diffusion-pipe", plan_dpipe_tables, foreign},
    {"diffusion-pipe dataset", plan_dpipe_dataset_tables, ""},
};
enum { PART_COUNT = sizeof parts / sizeof parts[0] };

static dp_status print_markdown(dp_error *error) {
  dp_str text = {0};
  for (int p = 0; p < PART_COUNT; p++) {
    const plan_key_table *tables;
    const size_t count = parts[p].tables(&tables);
    dp_str_add(&text, parts[p].before);
    for (size_t t = 0; t < count; t++) {
      dp_str_addf(&text, "\n### %s\n\n", tables[t].title);
      dp_schema_describe(tables[t].fields, tables[t].count, &text);
    }
  }
  dp_str_add(&text, answer);
  for (const cli_advise_key *key = cli_advise_keys; key->name; key++)
    dp_str_addf(&text, "| `%s` | %s |\n", key->name, key->meaning);
  const dp_status status = text.failed ? dp_fail_memory(error) : DP_OK;
  if (status == DP_OK) fputs(dp_str_text(&text), stdout);
  dp_str_free(&text);
  return status;
}

static bool add_key(json_t *keys, const char *format, const char *table, const dp_field *field) {
  static const char *const types[] = {"boolean", "integer", "number", "string", "choice", "other"};
  json_t *row = json_object();
  bool done = json_array_append_new(keys, row) == 0 && cli_json_put(row, "format", json_string(format)) &&
              cli_json_put(row, "table", json_string(table)) && cli_json_put(row, "key", json_string(field->key)) &&
              cli_json_put(row, "type", json_string(types[field->type])) &&
              cli_json_put(row, "required", json_boolean(field->required)) &&
              cli_json_put(row, "meaning", json_string(field->help));
  const bool number = field->type == DP_FIELD_INTEGER || field->type == DP_FIELD_REAL;
  if (number && (field->min != 0 || field->max != 0))
    done = done && cli_json_put(row, "min", json_real(field->min)) && cli_json_put(row, "max", json_real(field->max));
  if (field->type == DP_FIELD_CHOICE) {
    json_t *choices = json_array();
    done = done && cli_json_put(row, "choices", choices);
    for (int c = 0; done && field->choices[c]; c++)
      done = json_array_append_new(choices, json_string(field->choices[c])) == 0;
  }
  return done;
}

static dp_status print_json(dp_error *error) {
  json_t *root = json_object(), *keys = json_array();
  bool done = root && cli_json_put(root, "format", json_string("diffpipe-formats")) &&
              cli_json_put(root, "version", json_integer(1)) && cli_json_put(root, "keys", keys);
  for (int p = 0; p < PART_COUNT; p++) {
    const plan_key_table *tables;
    const size_t count = parts[p].tables(&tables);
    for (size_t t = 0; t < count; t++)
      for (size_t f = 0; done && f < tables[t].count; f++)
        done = add_key(keys, parts[p].format, tables[t].title, &tables[t].fields[f]);
  }
  const dp_status status = done ? cli_json_print(root, error) : dp_fail_memory(error);
  json_decref(root);
  return status;
}

enum { SLOT_JSON };

static const cli_option options[] = {{.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON}};

static dp_status run(const cli_values *values, dp_error *error) {
  return values->slots[SLOT_JSON].given ? print_json(error) : print_markdown(error);
}

const cli_command cli_formats = {.name = "formats",
                                 .arguments = "",
                                 .summary = "Tell every key of scenarios, clusters, the catalogue and data sets, as Markdown.",
                                 .options = options,
                                 .option_count = sizeof options / sizeof options[0],
                                 .run = run};
