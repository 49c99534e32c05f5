/* diffpipe profile: runs a program, records what it does with CUDA, and tells it. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/schema.h"
#include "cli/profile_report.h"
#include "cli/traced.h"

enum { SLOT_OUT, SLOT_STEPS, SLOT_CLASSES, SLOT_AWAY, SLOT_GRAPHS, SLOT_KEEP, SLOT_JSON, SLOT_TRACE };

static const char *const graph_choices[] = {"nodes", "whole", NULL};

static const cli_option options[] = {
    {.name = "out",
     .letter = 'o',
     .type = CLI_STRING,
     .argument = "DIR",
     .help = "folder for the records and the report",
     .fallback = "default profile-1, or the next",
     .slot = SLOT_OUT},
    CLI_OPTION_STEPS_FROM(SLOT_STEPS),
    CLI_OPTION_CLASSES(SLOT_CLASSES),
    CLI_OPTION_AWAY(SLOT_AWAY),
    {.name = "graphs",
     .type = CLI_CHOICE,
     .argument = "HOW",
     .help = "record CUDA graphs",
     .fallback = "default nodes",
     .slot = SLOT_GRAPHS,
     .choices = graph_choices},
    {.name = "keep-mb",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "of each process keep the last N MB of records",
     .fallback = "default 512",
     .slot = SLOT_KEEP,
     .min = 4,
     .max = 1 << 20},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON},
    CLI_OPTION_TRACE(SLOT_TRACE),
};

static bool has_work(const cli_recorded *p) {
  for (size_t i = 0; i < p->session.records.count; i++)
    if (prof_on_device(&p->session.records.items[i])) return true;
  return false;
}

static dp_status write_file(const cli_recorded *p, const char *folder, bool json, dp_error *error) {
  dp_str path = {0};
  dp_output output;
  dp_str_addf(&path, "%s/%s", folder, json ? "summary.json" : "report.txt");
  dp_status status = path.failed ? dp_fail_memory(error) : dp_output_open(dp_str_text(&path), &output, error);
  dp_str_free(&path);
  if (status != DP_OK) return status;
  if (json) {
    json_t *root = cli_profile_json(p);
    if (!root) status = dp_fail_memory(error);
    if (root) (void)json_dumpf(root, output.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(15)); /* told at the commit */
    if (root) (void)fputc('\n', output.stream);
    json_decref(root);
  } else {
    status = cli_profile_print(p, output.stream, error);
  }
  if (status == DP_OK) return dp_output_commit(&output, error);
  dp_output_abandon(&output);
  return status;
}

static void say_what_lacks(const cli_recorded *p) {
  uint64_t not_written = 0;
  for (size_t i = 0; i < p->session.processes.count; i++)
    not_written += p->session.processes.items[i].counts.not_written;
  if (not_written > 0)
    fprintf(stderr, "diffpipe: the system did not take %" PRIu64 " records: is the disk full?\n", not_written);
  else if (!has_work(p))
    fprintf(stderr, "diffpipe: no work of a device was recorded: nothing ran there, or see what was said above\n");
}

/* The tables, or JSON, of what was recorded, here and in the folder. */
static dp_status tell(const char *folder, const cli_recorded_how *how, bool json, dp_error *error) {
  cli_recorded p = {.classes = NULL};
  dp_status status = cli_recorded_read(folder, how, &p, error);
  if (status == DP_OK) say_what_lacks(&p);
  if (status == DP_OK) status = write_file(&p, folder, false, error);
  if (status == DP_OK) status = write_file(&p, folder, true, error);
  if (status == DP_OK) status = json ? cli_profile_print_json(&p, error) : cli_profile_print(&p, stdout, error);
  cli_recorded_free(&p);
  fprintf(stderr, "diffpipe: the records%s are in %s\n", status == DP_OK ? ", report.txt and summary.json" : "",
          folder);
  return status;
}

static dp_status record(const cli_values *values, const cli_traced *traced, int *exit_status, dp_error *error) {
  pid_t child = 0;
  bool ended = false;
  DP_TRY(cli_traced_start(values->arguments, values->argument_count, traced, &child, error));
  return cli_traced_wait(child, true, &ended, exit_status, error);
}

static dp_status run(const cli_values *values, dp_error *error) {
  cli_recorded_how how = {.classes = values->slots[SLOT_CLASSES].string, .trace = values->slots[SLOT_TRACE].string};
  cli_traced traced = {.whole_graphs = values->slots[SLOT_GRAPHS].given && values->slots[SLOT_GRAPHS].integer == 1,
                       .keep_mb = values->slots[SLOT_KEEP].given ? values->slots[SLOT_KEEP].integer : 0};
  char *folder = NULL;
  bool made = false;
  int exit_status = 0;
  DP_TRY(cli_profile_steps_from("profile", values->slots[SLOT_STEPS].string, &how.range, error));
  if (values->slots[SLOT_AWAY].given) how.away_ns = values->slots[SLOT_AWAY].integer * 1000;
  DP_TRY(cli_recorded_check(&how, error));
  DP_TRY(cli_traced_folder(values->slots[SLOT_OUT].string, &folder, &made, error));
  traced.folder = folder;
  dp_status status = record(values, &traced, &exit_status, error);
  if (status != DP_OK || !cli_traced_recorded(folder)) {
    if (status == DP_OK) cli_traced_say_none();
    if (made) (void)rmdir(folder);
  } else {
    status = tell(folder, &how, values->slots[SLOT_JSON].given, error);
  }
  free(folder);
  cli_traced_pass_on(exit_status, status, error);
  return status;
}

static const cli_command *const commands[] = {&cli_profile_report, NULL};

const cli_command cli_profile = {
    .name = "profile",
    .arguments = "[OPTION]... -- PROGRAM [ARGUMENT]...",
    .takes = "at least one, the program to run, after --",
    .more = 1 << 30,
    .summary = "Record and tell what a program does with CUDA.",
    .help =
        "The program and all that it starts (torchrun, mpirun on this host) run unchanged, with a library\n"
        "loaded into each that uses CUDA or NVTX, which writes files for each process. The exit status is the\n"
        "program's. doc/profiling.md tells the files, the rules by which steps and classes of kernels are\n"
        "found, and what the figures mean.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run,
    .commands = commands,
};
