/* diffpipe report: makes the page of a run's folder. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/schema.h"
#include "cli/command.h"
#include "cli/folder.h"
#include "cli/json.h"

enum { SLOT_MD, SLOT_OUT, SLOT_NO_PLOTS, SLOT_JSON };

static const cli_option options[] = {
    {.name = "md", .type = CLI_FLAG, .help = "write Markdown, without pictures, instead of HTML", .slot = SLOT_MD},
    {.name = "out",
     .letter = 'o',
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "where to write it; - is stdout",
     .fallback = "DIR/report.html, DIR/report.md",
     .slot = SLOT_OUT},
    {.name = "no-plots", .type = CLI_FLAG, .help = "do not draw plots that DIR lacks", .slot = SLOT_NO_PLOTS},
    {.name = "json",
     .type = CLI_FLAG,
     .help = "print what the page is made from, and write nothing",
     .slot = SLOT_JSON},
};

static dp_status write_page(const dp_str *page, const char *path, dp_error *error) {
  if (strcmp(path, "-") == 0) {
    (void)fwrite(page->text, 1, page->length, stdout); /* main looks at the stream's error flag */
    return DP_OK;
  }
  DP_TRY(dp_file_write(path, page->text, page->length, error));
  fprintf(stderr, "diffpipe: wrote %s\n", path);
  return DP_OK;
}

/* The files of the folder in one object; report_check has read them without a complaint. */
static dp_status print_json(const char *folder, dp_error *error) {
  static const char *const names[] = {"metrics", "setup", "comparison", "profile", "tune"};
  DP_TRY(report_check(folder, error));
  json_t *root = json_object();
  bool done = root && cli_json_put(root, "format", json_string("diffpipe-report")) &&
              cli_json_put(root, "version", json_integer(1));
  for (size_t i = 0; done && i < DP_COUNT_OF(names); i++) {
    dp_str path = {0};
    dp_str_addf(&path, "%s/%s.json", folder, names[i]);
    json_t *file = path.failed ? NULL : json_load_file(dp_str_text(&path), 0, NULL);
    done = !path.failed && cli_json_put(root, names[i], file ? file : json_null()); /* the last three may be absent */
    dp_str_free(&path);
  }
  const dp_status status = done ? cli_json_print(root, error) : dp_fail_memory(error);
  json_decref(root);
  return status;
}

static dp_status run(const cli_values *values, dp_error *error) {
  if (values->slots[SLOT_OUT].given && !values->slots[SLOT_OUT].string[0])
    return dp_fail(error, DP_BAD_INPUT, "report: --out: found \"\", allowed: a file, or - for stdout");
  const char *folder = values->arguments[0],
             *gnuplot = values->slots[SLOT_NO_PLOTS].given ? NULL : cli_folder_gnuplot();
  const bool markdown = values->slots[SLOT_MD].given;
  if (values->slots[SLOT_JSON].given) return print_json(folder, error);
  dp_str page = {0}, notes = {0}, path = {0};
  if (values->slots[SLOT_OUT].given)
    dp_str_add(&path, values->slots[SLOT_OUT].string);
  else
    dp_str_addf(&path, "%s/%s", folder, markdown ? "report.md" : "report.html");
  dp_status status = report_again(folder, markdown, gnuplot, &page, &notes, error);
  if (status == DP_OK && (path.failed || notes.failed)) status = dp_fail_memory(error);
  if (status == DP_OK && notes.length) fprintf(stderr, "diffpipe: note: %s", dp_str_text(&notes));
  if (status == DP_OK) status = write_page(&page, dp_str_text(&path), error);
  dp_str_free(&page);
  dp_str_free(&notes);
  dp_str_free(&path);
  return status;
}

const cli_command cli_report = {
    .name = "report",
    .arguments = "DIR",
    .takes = "one, the folder of a run",
    .summary = "Make the page of a run's folder, as HTML or Markdown.",
    .help =
        "DIR is what `run`, `simulate --out` or `tune --out` wrote. Only its files are read: metrics.json,\n"
        "setup.json, tune.json, comparison.json, profile.json and log.jsonl where there are such, and the\n"
        "plots. The page is one file that needs neither network nor scripts.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run};
