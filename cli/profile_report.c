/* diffpipe profile report: the tables of a folder of records. */
#include "cli/profile_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "cli/json.h"
#include "profiler/names.h"
#include "profiler/trace.h"

enum { SLOT_STEPS, SLOT_CLASSES, SLOT_AWAY, SLOT_KERNELS, SLOT_CSV, SLOT_JSON, SLOT_TRACE };

static const cli_option options[] = {
    CLI_OPTION_STEPS_FROM(SLOT_STEPS),
    CLI_OPTION_CLASSES(SLOT_CLASSES),
    CLI_OPTION_AWAY(SLOT_AWAY),
    {.name = "kernels",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "list the N kernels that took longest",
     .fallback = "default 10",
     .slot = SLOT_KERNELS,
     .min = 0,
     .max = 100000},
    {.name = "csv", .type = CLI_FLAG, .help = "print the classes as CSV", .slot = SLOT_CSV},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON},
    CLI_OPTION_TRACE(SLOT_TRACE),
};

void cli_cell_seconds(report_table *table, double s) {
  char text[32];
  report_table_cell(table, "%s", dp_format_seconds(s, text));
}

void cli_columns(report_table *table, const char *const *heads) {
  for (int i = 0; heads[i]; i++) report_table_column(table, heads[i], i == 0 ? REPORT_LEFT : REPORT_RIGHT);
}

void cli_cells_spread(report_table *table, const prof_spread *spread) {
  report_table_cell(table, "%" PRIu64, spread->count);
  cli_cell_seconds(table, spread->sum_s);
  cli_cell_seconds(table, spread->p50_s);
  cli_cell_seconds(table, spread->p95_s);
  cli_cell_seconds(table, spread->max_s);
}

dp_status cli_table_finish(report_table *table, FILE *out, dp_error *error) {
  dp_str text = {0};
  report_table_print(table, 100, &text);
  const bool failed = table->failed || text.failed;
  if (!failed) fprintf(out, "%s\n", dp_str_text(&text));
  dp_str_free(&text);
  report_table_free(table);
  return failed ? dp_fail_memory(error) : DP_OK;
}

static uint64_t lost(const prof_counts *counts) {
  return counts->no_buffer + counts->rotated + counts->not_written + counts->source;
}

double cli_recorded_recording_s(const cli_recorded *p, size_t process) {
  double sum_s = 0;
  for (size_t i = 0; i < p->session.records.count; i++) {
    const prof_record *r = &p->session.records.items[i];
    if (r->kind == PROF_OVERHEAD && r->process == process) sum_s += (double)(r->end_ns - r->start_ns) * 1e-9;
  }
  return sum_s;
}

static dp_status print_processes(const cli_recorded *p, FILE *out, dp_error *error) {
  static const char *const heads[] = {"process", "rank", "records", "lost", "files end", "steps", "sure", NULL};
  double recording_s = 0;
  char text[32];
  report_table table = {.title = NULL};
  report_table_title(&table, "Processes");
  cli_columns(&table, heads);
  report_table_column(&table, "how", REPORT_TEXT);
  for (size_t i = 0; i < p->session.processes.count; i++) {
    const prof_process *process = &p->session.processes.items[i];
    const prof_process_steps *steps = &p->steps.processes[i];
    report_table_row(&table, lost(&process->counts) > 0);
    report_table_cell(&table, "%s %" PRId32, process->header.host, process->header.pid);
    if (process->header.rank >= 0)
      report_table_cell(&table, "%" PRId32, process->header.rank);
    else
      report_table_cell(&table, "-");
    report_table_cell(&table, "%" PRIu64, process->records);
    report_table_cell(&table, "%" PRIu64, lost(&process->counts));
    report_table_cell(&table, "%s", process->cut ? "cut" : process->ended ? "whole" : "open");
    report_table_cell(&table, "%" PRIu64, steps->count);
    report_table_cell(&table, "%.2f", steps->confidence);
    report_table_cell(&table, "%s", steps->why);
    recording_s += cli_recorded_recording_s(p, i);
  }
  if (recording_s > 0)
    report_table_note(&table, "recording itself took %s of their threads", dp_format_seconds(recording_s, text));
  return cli_table_finish(&table, out, error);
}

static dp_status print_classes(const cli_recorded *p, FILE *out, dp_error *error) {
  static const char *const heads[] = {"class", "count", "sum", "p50", "p95", "max", "share", NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "Work of the devices by class");
  cli_columns(&table, heads);
  for (int c = 0; c < PROF_CLASS_COUNT; c++) {
    const prof_class_row *row = &p->summary.classes[c];
    if (row->time.count == 0) continue;
    report_table_row(&table, false);
    report_table_cell(&table, "%s", prof_class_names[c]);
    cli_cells_spread(&table, &row->time);
    report_table_cell(&table, "%.1f %%", 100 * row->share);
  }
  return cli_table_finish(&table, out, error);
}

static dp_status print_kernels(const cli_recorded *p, FILE *out, dp_error *error) {
  static const char *const heads[] = {"sum", "count", "p50", "p95", "share", NULL};
  const size_t all = p->summary.kernels.count, most = p->kernels == 0 ? 10 : p->kernels < 0 ? 0 : (size_t)p->kernels;
  report_table table = {.title = NULL};
  if (all == 0 || most == 0) return DP_OK;
  report_table_title(&table, "Kernels that took longest");
  for (int i = 0; heads[i]; i++) report_table_column(&table, heads[i], REPORT_RIGHT);
  report_table_column(&table, "class", REPORT_LEFT);
  report_table_column(&table, "name", REPORT_TEXT);
  for (size_t k = 0; k < all && k < most; k++) {
    const prof_kernel_row *row = &p->summary.kernels.items[k];
    char *name = prof_readable_name(p->session.names.items[row->name]);
    report_table_row(&table, false);
    cli_cell_seconds(&table, row->time.sum_s);
    report_table_cell(&table, "%" PRIu64, row->time.count);
    cli_cell_seconds(&table, row->time.p50_s);
    cli_cell_seconds(&table, row->time.p95_s);
    report_table_cell(&table, "%.1f %%", 100 * row->share);
    report_table_cell(&table, "%s", prof_class_names[row->class]);
    report_table_cell(&table, "%s", name ? name : "");
    free(name);
  }
  if (all > most) report_table_note(&table, "and %zu more; --kernels N shows N, --json all", all - most);
  return cli_table_finish(&table, out, error);
}

static dp_status print_copies(const cli_recorded *p, FILE *out, dp_error *error) {
  static const char *const heads[] = {"copies", "count", "sum", "bytes", "GB/s", NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "Copies (GB = 10^9 bytes)");
  cli_columns(&table, heads);
  for (int c = 0; c < PROF_COPY_END; c++) {
    const prof_copy_row *row = &p->summary.copies[c];
    char text[32];
    if (row->count == 0) continue;
    report_table_row(&table, false);
    report_table_cell(&table, "%s", prof_copy_name(c));
    report_table_cell(&table, "%" PRIu64, row->count);
    cli_cell_seconds(&table, row->sum_s);
    report_table_cell(&table, "%s", dp_format_bytes((double)row->bytes, text));
    report_table_cell(&table, "%.4g", row->sum_s > 0 ? 1e-9 * (double)row->bytes / row->sum_s : 0);
  }
  if (report_table_rows(&table) > 0) return cli_table_finish(&table, out, error);
  report_table_free(&table);
  return DP_OK;
}

static dp_status print_devices(const cli_recorded *p, FILE *out, dp_error *error) {
  static const char *const heads[] = {"device",     "time", "compute",    "NCCL alone", "copies alone",
                                      "host-bound", "data", "other idle", NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "Time of the devices, parts of the whole");
  cli_columns(&table, heads);
  for (size_t d = 0; d < p->summary.devices.count; d++) {
    const prof_device_row *row = &p->summary.devices.items[d];
    const prof_device *device = prof_session_device(&p->session, row->process, row->device);
    report_table_row(&table, false);
    report_table_cell(&table, "%u:%u %s", row->process, row->device, device ? device->name : "");
    cli_cell_seconds(&table, row->window_s);
    for (int part = 0; part < PROF_PART_COUNT; part++)
      report_table_cell(&table, "%.1f %%", row->window_s > 0 ? 100 * row->parts_s[part] / row->window_s : 0);
  }
  return cli_table_finish(&table, out, error);
}

static dp_status print_gaps(const cli_recorded *p, FILE *out, dp_error *error) {
  static const char *const heads[] = {"device", "gaps",        "sum",           "p50",         "p95",
                                      "max",    "NCCL hidden", "copies hidden", "peak memory", NULL};
  report_table table = {.title = NULL};
  report_table_title(&table, "Gaps between work, what ran beside compute, memory (GB = 10^9 bytes)");
  cli_columns(&table, heads);
  for (size_t d = 0; d < p->summary.devices.count; d++) {
    const prof_device_row *row = &p->summary.devices.items[d];
    char text[32];
    report_table_row(&table, false);
    report_table_cell(&table, "%u:%u", row->process, row->device);
    cli_cells_spread(&table, &row->gaps);
    cli_cell_seconds(&table, row->nccl_s - row->parts_s[PROF_EXPOSED_NCCL]);
    cli_cell_seconds(&table, row->copies_s - row->parts_s[PROF_EXPOSED_COPIES]);
    report_table_cell(&table, "%s", row->peak_bytes ? dp_format_bytes((double)row->peak_bytes, text) : "-");
  }
  return cli_table_finish(&table, out, error);
}

static dp_status print_steps(const cli_recorded *p, FILE *out, dp_error *error) {
  static const char *const heads[] = {"", "count", "sum", "p50", "p95", "max", NULL};
  report_table table = {.title = NULL};
  if (p->summary.step_count == 0) return DP_OK;
  report_table_title(&table, "Steps");
  cli_columns(&table, heads);
  report_table_row(&table, false);
  report_table_cell(&table, "a step");
  cli_cells_spread(&table, &p->summary.step_time);
  return cli_table_finish(&table, out, error);
}

static void print_csv(const cli_recorded *p) {
  printf("class,count,sum_s,p50_s,p95_s,max_s,share\n");
  for (int c = 0; c < PROF_CLASS_COUNT; c++) {
    const prof_spread *t = &p->summary.classes[c].time;
    printf("%s,%" PRIu64 ",%.9f,%.9f,%.9f,%.9f,%.6f\n", prof_class_names[c], t->count, t->sum_s, t->p50_s, t->p95_s,
           t->max_s, p->summary.classes[c].share);
  }
}

dp_status cli_profile_print(const cli_recorded *p, FILE *out, dp_error *error) {
  DP_TRY(print_processes(p, out, error));
  DP_TRY(print_steps(p, out, error));
  DP_TRY(print_classes(p, out, error));
  DP_TRY(print_kernels(p, out, error));
  DP_TRY(print_copies(p, out, error));
  DP_TRY(print_devices(p, out, error));
  return print_gaps(p, out, error);
}

dp_status cli_profile_print_json(const cli_recorded *p, dp_error *error) {
  json_t *root = cli_profile_json(p);
  const dp_status status = root ? cli_json_print(root, error) : dp_fail_memory(error);
  json_decref(root);
  return status;
}

static dp_status print(const cli_recorded *p, const cli_values *values, dp_error *error) {
  if (values->slots[SLOT_JSON].given) return cli_profile_print_json(p, error);
  if (!values->slots[SLOT_CSV].given) return cli_profile_print(p, stdout, error);
  print_csv(p);
  return DP_OK;
}

dp_status cli_profile_steps_from(const char *command, const char *from, const char **range, dp_error *error) {
  *range = NULL;
  if (!from || strcmp(from, "auto") == 0) return DP_OK;
  if (strncmp(from, "nvtx:", 5) != 0 || !from[5])
    return dp_fail(error, DP_BAD_INPUT, "%s: --steps-from: found \"%.200s\", allowed: nvtx:NAME, auto", command, from);
  *range = from + 5;
  return DP_OK;
}

dp_status cli_recorded_check(const cli_recorded_how *how, dp_error *error) {
  prof_rules rules = {.items = NULL};
  DP_TRY(prof_rules_read(how->classes, &rules, error));
  prof_rules_free(&rules);
  return DP_OK;
}

dp_status cli_recorded_find(cli_recorded *p, const cli_recorded_how *how, dp_error *error) {
  DP_TRY(prof_rules_read(how->classes, &p->rules, error));
  p->classes = prof_rules_classes(&p->rules, &p->session);
  if (!p->classes) return dp_fail_memory(error);
  DP_TRY(prof_steps_find(&p->session, p->classes, how->range ? PROF_STEPS_RANGE : PROF_STEPS_AUTO, how->range,
                         &p->steps, error));
  return prof_summary_of(&p->session, p->classes, &p->steps, how->away_ns, &p->summary, error);
}

dp_status cli_recorded_read(const char *folder, const cli_recorded_how *how, cli_recorded *p, dp_error *error) {
  dp_status status = prof_session_read(folder, &p->session, error);
  if (status == DP_OK) status = cli_recorded_find(p, how, error);
  if (status == DP_OK && how->trace) status = prof_trace_write(&p->session, p->classes, &p->steps, how->trace, error);
  return status;
}

void cli_recorded_free(cli_recorded *p) {
  prof_summary_free(&p->summary);
  prof_steps_free(&p->steps);
  free(p->classes);
  prof_rules_free(&p->rules);
  prof_session_free(&p->session);
  *p = (cli_recorded){.classes = NULL};
}

static dp_status run(const cli_values *values, dp_error *error) {
  cli_recorded p = {.classes = NULL};
  cli_recorded_how how = {.classes = values->slots[SLOT_CLASSES].string, .trace = values->slots[SLOT_TRACE].string};
  if (values->slots[SLOT_CSV].given && values->slots[SLOT_JSON].given)
    return dp_fail(error, DP_BAD_INPUT, "profile report: found --csv and --json, allowed: one of them");
  DP_TRY(cli_profile_steps_from("profile report", values->slots[SLOT_STEPS].string, &how.range, error));
  if (values->slots[SLOT_AWAY].given) how.away_ns = values->slots[SLOT_AWAY].integer * 1000;
  const int64_t wanted = values->slots[SLOT_KERNELS].integer;
  if (values->slots[SLOT_KERNELS].given) p.kernels = wanted > 0 ? wanted : -1;
  dp_status status = cli_recorded_read(values->arguments[0], &how, &p, error);
  if (status == DP_OK) status = print(&p, values, error);
  cli_recorded_free(&p);
  return status;
}

const cli_command cli_profile_report = {
    .name = "profile report",
    .arguments = "DIR",
    .takes = "one, the folder of records",
    .summary = "Tell what the devices of a recorded program did.",
    .help =
        "DIR has the files *.dpr of one process or of several, which are put on one clock. Steps are the\n"
        "NVTX ranges of a name, what the program marked, or found by the kernels' order; doc/profiling.md.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run,
};
