/* diffpipe compare: where prediction and measurement differ most, and why; or two runs side by side. */
#include <jansson.h>
#include <stdio.h>

#include "base/schema.h"
#include "cli/command.h"
#include "cli/folder.h"
#include "cli/json.h"
#include "reports/report.h"

enum { SLOT_JSON, SLOT_TOP, SLOT_OUT };
enum { TOP_DEFAULT = 10 };

static const cli_option options[] = {
    {.name = "json", .type = CLI_FLAG, .help = "print JSON instead of tables", .slot = SLOT_JSON},
    {.name = "top",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "so many units, those with the largest effect first",
     .fallback = "10",
     .slot = SLOT_TOP,
     .min = 0,
     .max = 65535},
    {.name = "out",
     .letter = 'o',
     .type = CLI_STRING,
     .argument = "DIR",
     .help = "with two runs: draw both losses into this folder",
     .slot = SLOT_OUT},
};

static dp_status print_text(const cli_values *values, dp_error *error) {
  const int top = values->slots[SLOT_TOP].given ? (int)values->slots[SLOT_TOP].integer : TOP_DEFAULT;
  dp_str text = {0};
  const dp_status status = values->argument_count > 1
                               ? report_compare_runs_text(values->arguments[0], values->arguments[1], &text, error)
                               : report_compare_text(values->arguments[0], top, &text, error);
  if (status == DP_OK) (void)fputs(dp_str_text(&text), stdout);
  dp_str_free(&text);
  return status;
}

static dp_status print_json(const cli_values *values, dp_error *error) {
  void *json = NULL;
  DP_TRY(values->argument_count > 1 ? report_compare_runs_json(values->arguments[0], values->arguments[1], &json, error)
                                    : report_compare_json(values->arguments[0], &json, error));
  const dp_status status = cli_json_print(json, error);
  json_decref(json);
  return status;
}

static dp_status draw_losses(const cli_values *values, dp_error *error) {
  const char *folder = values->slots[SLOT_OUT].string;
  dp_str notes = {0};
  if (!folder[0]) return dp_fail(error, DP_BAD_INPUT, "compare: --out: found \"\", allowed: the name of a folder");
  const dp_status status =
      report_losses_write(values->arguments[0], values->arguments[1], folder, cli_folder_gnuplot(), &notes, error);
  if (notes.length) fprintf(stderr, "diffpipe: note: %s", dp_str_text(&notes));
  if (status == DP_OK)
    fprintf(stderr, "diffpipe: wrote %s: %s\n", folder,
            notes.length ? "plots/losses.gp, plots/losses.tsv" : "losses.svg, losses.png");
  dp_str_free(&notes);
  return status;
}

static dp_status run(const cli_values *values, dp_error *error) {
  if (values->argument_count < 2 && values->slots[SLOT_OUT].given)
    return dp_fail(error, DP_BAD_INPUT, "compare: found --out with one folder, allowed: with two");
  if (values->argument_count > 1 && values->slots[SLOT_TOP].given)
    return dp_fail(error, DP_BAD_INPUT, "compare: found --top with two folders, allowed: with one");
  if (values->slots[SLOT_OUT].given) DP_TRY(draw_losses(values, error));
  return values->slots[SLOT_JSON].given ? print_json(values, error) : print_text(values, error);
}

const cli_command cli_compare = {
    .name = "compare",
    .arguments = "DIR [DIR]",
    .takes = "the folder of a run, or two folders",
    .more = 1,
    .summary = "Tell where prediction and measurement differ and why, or lay two runs side by side.",
    .help =
        "With one DIR, which `run` wrote: step, bubbles and memory predicted and measured; why the step\n"
        "differs, the largest effect first; and the same by kind of instruction, worker, chunk and unit. The\n"
        "effects of all causes add up to the difference of the steps; doc/compare.md says how they are found.\n"
        "\n"
        "With two, of runs or predictions (`simulate --out`, `tune --out`): the figures of their metrics.json;\n"
        "with --out, both runs' losses in one plot, as of one with compressed skips beside one with exact ones.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run};
