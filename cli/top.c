/* diffpipe top: what a recorded program does just now. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/schema.h"
#include "cli/profile_report.h"
#include "cli/traced.h"
#include "profiler/tail.h"
#include "reports/table.h"

enum { SLOT_OUT, SLOT_STEPS, SLOT_CLASSES, SLOT_AWAY, SLOT_COUNT };
enum { KEPT_BYTES = 2 << 20, /* of records of each process: what is looked at each second */ SHOWN_CLASSES = 3 };

static const cli_option options[] = {
    {.name = "out",
     .letter = 'o',
     .type = CLI_STRING,
     .argument = "DIR",
     .help = "of a program: folder for the records",
     .fallback = "default profile-1, or the next",
     .slot = SLOT_OUT},
    CLI_OPTION_STEPS_FROM(SLOT_STEPS),
    CLI_OPTION_CLASSES(SLOT_CLASSES),
    CLI_OPTION_AWAY(SLOT_AWAY),
    {.name = "count",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "end after so many looks",
     .fallback = "default when all processes have ended",
     .slot = SLOT_COUNT,
     .min = 1,
     .max = 1000000000},
};

typedef struct top {
  const char *folder;
  cli_recorded_how how;
  bool screen;        /* a terminal, that is written anew each time */
  bool without_range; /* that of the steps was not said yet */
  prof_tail *tail;
  pid_t child; /* 0: none was started */
  bool child_ended;
  int exit_status;
} top;

/* ---- what is shown ---- */

static void add_time(dp_str *text) {
  char clock[32];
  const time_t now = time(NULL);
  struct tm local;
  if (!localtime_r(&now, &local) || !strftime(clock, sizeof clock, "%H:%M:%S", &local)) return;
  dp_str_add(text, clock);
}

static double last_step_s(const prof_summary *summary) {
  const prof_step *step = summary->step_count ? &summary->steps[summary->step_count - 1].step : NULL;
  return step ? (double)(step->end_ns - step->start_ns) * 1e-9 : 0;
}

static double part_of(const prof_device_row *row, prof_part part) {
  return row->window_s > 0 ? 100 * row->parts_s[part] / row->window_s : 0;
}

static int64_t memory_of(const top *t, const cli_recorded *p, const prof_device_row *row) {
  return prof_tail_memory(t->tail, &p->session.processes.items[row->process].header, row->device);
}

static void add_steps(dp_str *text, const prof_summary *summary) {
  char p50[32], p95[32], last[32];
  if (summary->step_count == 0)
    dp_str_add(text, "no steps");
  else
    dp_str_addf(text, "step %s (p95 %s, last %s, of %zu)", dp_format_seconds(summary->step_time.p50_s, p50),
                dp_format_seconds(summary->step_time.p95_s, p95), dp_format_seconds(last_step_s(summary), last),
                summary->step_count);
}

static bool all_ended(const prof_session *session) {
  for (size_t i = 0; i < session->processes.count; i++)
    if (!session->processes.items[i].ended) return false;
  return session->processes.count > 0;
}

/* A process that was killed closes no file, and one that hangs writes none. */
static void add_notes(dp_str *text, const top *t, const prof_session *session) {
  enum { PATIENCE_S = 10 }; /* records are written twice a second */
  int64_t last_ns = 0;
  if (t->without_range) dp_str_addf(text, "; no NVTX range \"%s\" yet: steps are found", t->how.range);
  if (all_ended(session)) return;
  for (size_t i = 0; i < session->records.count; i++)
    if (session->records.items[i].end_ns > last_ns) last_ns = session->records.items[i].end_ns;
  const double age_s = difftime(time(NULL), (time_t)(last_ns / 1000000000));
  if (last_ns == 0 || age_s <= PATIENCE_S) return;
  const bool minutes = age_s >= 120, hours = age_s >= 7200;
  dp_str_addf(text, "; nothing new for %.0f %s",
              age_s / (hours     ? 3600
                       : minutes ? 60
                                 : 1),
              hours     ? "h"
              : minutes ? "min"
                        : "s");
}

/* The largest of them that were not taken yet; PROF_CLASS_COUNT: none is left. */
static int next_class(const prof_summary *summary, bool *taken) {
  int best = PROF_CLASS_COUNT;
  for (int c = 0; c < PROF_CLASS_COUNT; c++)
    if (!taken[c] && summary->classes[c].share > (best < PROF_CLASS_COUNT ? summary->classes[best].share : 0)) best = c;
  if (best < PROF_CLASS_COUNT) taken[best] = true;
  return best;
}

/* For a file or a pipe: one line a look. */
static void add_line(dp_str *text, const top *t, const cli_recorded *p) {
  bool taken[PROF_CLASS_COUNT] = {false};
  add_time(text);
  dp_str_add(text, " ");
  add_steps(text, &p->summary);
  for (size_t d = 0; d < p->summary.devices.count; d++) {
    const prof_device_row *row = &p->summary.devices.items[d];
    char memory[32];
    dp_str_addf(text,
                "; %u:%u compute %.0f %%, NCCL %.0f %%, copies %.0f %%, host %.0f %%, data %.0f %%, other %.0f %%, %s",
                row->process, row->device, part_of(row, PROF_COMPUTE), part_of(row, PROF_EXPOSED_NCCL),
                part_of(row, PROF_EXPOSED_COPIES), part_of(row, PROF_IDLE_HOST), part_of(row, PROF_IDLE_DATA),
                part_of(row, PROF_IDLE_OTHER), dp_format_bytes((double)memory_of(t, p, row), memory));
  }
  for (int i = 0; i < SHOWN_CLASSES; i++) {
    const int c = next_class(&p->summary, taken);
    if (c == PROF_CLASS_COUNT) break;
    dp_str_addf(text, "%s %s %.0f %%", i ? "," : ";", prof_class_names[c], 100 * p->summary.classes[c].share);
  }
  add_notes(text, t, &p->session);
  dp_str_add(text, "\n");
}

static void classes_table(report_table *table, const cli_recorded *p) {
  bool taken[PROF_CLASS_COUNT] = {false};
  report_table_column(table, "class", REPORT_LEFT);
  report_table_column(table, "share", REPORT_RIGHT);
  report_table_column(table, "", REPORT_BAR);
  report_table_column(table, "p50", REPORT_RIGHT);
  for (int c = next_class(&p->summary, taken); c < PROF_CLASS_COUNT; c = next_class(&p->summary, taken)) {
    char time_text[32];
    report_table_row(table, false);
    report_table_cell(table, "%s", prof_class_names[c]);
    report_table_cell(table, "%.1f %%", 100 * p->summary.classes[c].share);
    report_table_cell(table, "%.4f", p->summary.classes[c].share);
    report_table_cell(table, "%s", dp_format_seconds(p->summary.classes[c].time.p50_s, time_text));
  }
}

static void devices_table(report_table *table, const top *t, const cli_recorded *p, size_t most) {
  static const char *const heads[] = {"device",     "compute", "NCCL alone", "copies alone",
                                      "host-bound", "data",    "other idle", "memory"};
  for (size_t i = 0; i < DP_COUNT_OF(heads); i++) report_table_column(table, heads[i], i ? REPORT_RIGHT : REPORT_LEFT);
  for (size_t d = 0; d < p->summary.devices.count && d < most; d++) {
    const prof_device_row *row = &p->summary.devices.items[d];
    const prof_device *device = prof_session_device(&p->session, row->process, row->device);
    char memory[32];
    report_table_row(table, false);
    report_table_cell(table, "%u:%u %s", row->process, row->device, device ? device->name : "");
    for (int part = 0; part < PROF_PART_COUNT; part++)
      report_table_cell(table, "%.1f %%", part_of(row, (prof_part)part));
    report_table_cell(table, "%s", dp_format_bytes((double)memory_of(t, p, row), memory));
  }
  if (p->summary.devices.count > most)
    report_table_note(table, "and %zu more; diffpipe profile report shows all", p->summary.devices.count - most);
}

/* Of a terminal that does not say, what has room for all. */
static struct winsize size_of_screen(void) {
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    size = (struct winsize){.ws_col = 100, .ws_row = USHRT_MAX};
  return size;
}

/* A line less than the screen has, which the last one's end would move. */
static void cut_lines(dp_str *text, int rows) {
  char *end = text->text;
  for (int lines = 1; end && lines < rows; lines++) {
    end = strchr(end, '\n');
    if (end) end++;
  }
  if (!end) return;
  *end = 0;
  text->length = (size_t)(end - text->text);
}

static bool add_screen(dp_str *text, const top *t, const cli_recorded *p) {
  enum { OTHER_ROWS = 8, LEAST_DEVICES = 2 }; /* all but devices and classes */
  report_table classes = {.title = NULL}, devices = {.title = NULL};
  const struct winsize size = size_of_screen();
  size_t running = 0;
  for (size_t i = 0; i < p->session.processes.count; i++) running += !p->session.processes.items[i].ended;
  classes_table(&classes, p);
  const int room = size.ws_row - OTHER_ROWS - report_table_rows(&classes);
  devices_table(&devices, t, p, (size_t)(room > LEAST_DEVICES ? room : LEAST_DEVICES));
  dp_str_add(text, "\033[H\033[2J\033[?7l"); /* what is wider is cut */
  add_time(text);
  dp_str_addf(text, "  %s: processes %zu, not ended %zu\n", t->folder, p->session.processes.count, running);
  add_steps(text, &p->summary);
  add_notes(text, t, &p->session);
  dp_str_add(text, "\n\n");
  report_table_print(&devices, size.ws_col, text);
  dp_str_add(text, "\n");
  report_table_print(&classes, size.ws_col, text);
  cut_lines(text, size.ws_row);
  dp_str_add(text, "\033[?7h");
  const bool failed = classes.failed || devices.failed;
  report_table_free(&classes);
  report_table_free(&devices);
  return !failed;
}

/* ---- one look ---- */

static dp_status show(const top *t, const cli_recorded *p, dp_error *error) {
  dp_str text = {0};
  bool done = true;
  if (p->session.processes.count == 0)
    dp_str_addf(&text, "%sno records in %s yet\n", t->screen ? "\033[H\033[2J" : "", t->folder);
  else if (t->screen)
    done = add_screen(&text, t, p);
  else
    add_line(&text, t, p);
  done = done && !text.failed;
  if (done) (void)fputs(dp_str_text(&text), stdout);
  dp_str_free(&text);
  if (!done) return dp_fail_memory(error);
  return fflush(stdout) == 0 ? DP_OK : dp_fail(error, DP_IO_FAILED, "the output could not be written");
}

/* Where the range of the steps was not said yet they are found for the moment. */
static dp_status look(top *t, bool *ended, dp_error *error) {
  cli_recorded p = {.classes = NULL};
  cli_recorded_how how = t->how;
  dp_status status = prof_tail_read(t->tail, &p.session, error);
  if (status == DP_OK && p.session.processes.count > 0) {
    status = cli_recorded_find(&p, &how, error);
    t->without_range = status == DP_BAD_INPUT && how.range;
    if (t->without_range) {
      const prof_session session = p.session;
      p.session = (prof_session){.slots = NULL};
      cli_recorded_free(&p);
      p.session = session;
      how.range = NULL;
      status = cli_recorded_find(&p, &how, error);
    }
  }
  *ended = all_ended(&p.session);
  if (status == DP_OK) status = show(t, &p, error);
  cli_recorded_free(&p);
  return status;
}

/* Once a second until the program, or all processes, have ended. */
static dp_status watch(top *t, int64_t count, dp_error *error) {
  bool ended = false;
  for (int64_t i = 0; count == 0 || i < count; i++) {
    const double began_s = dp_clock_s();
    const bool last = t->child_ended;
    DP_TRY(look(t, &ended, error));
    if (t->child ? last : ended) return DP_OK;
    while (!t->child_ended && dp_clock_s() - began_s < 1 && (count == 0 || i + 1 < count)) {
      dp_sleep_s(0.05);
      if (t->child) DP_TRY(cli_traced_wait(t->child, false, &t->child_ended, &t->exit_status, error));
    }
  }
  return DP_OK;
}

/* ---- the command ---- */

static dp_status start(top *t, const cli_values *values, dp_error *error) {
  dp_str output = {0};
  if (t->screen) dp_str_addf(&output, "%s/output.txt", t->folder);
  const cli_traced traced = {.folder = t->folder, .output = t->screen ? dp_str_text(&output) : NULL};
  const dp_status status = output.failed
                               ? dp_fail_memory(error)
                               : cli_traced_start(values->arguments, values->argument_count, &traced, &t->child, error);
  if (status == DP_OK && t->screen) fprintf(stderr, "diffpipe: what it prints goes to %s\n", dp_str_text(&output));
  dp_str_free(&output);
  return status;
}

static dp_status watch_all(top *t, const cli_values *values, dp_error *error) {
  const int64_t count = values->slots[SLOT_COUNT].given ? values->slots[SLOT_COUNT].integer : 0;
  if (values->before_dashes == 0) DP_TRY(start(t, values, error));
  dp_status status = prof_tail_open(t->folder, KEPT_BYTES, &t->tail, error);
  if (status == DP_OK) status = watch(t, count, error);
  if (t->child && !t->child_ended) { /* looked often enough, or not at all */
    const dp_status waited =
        cli_traced_wait(t->child, true, &t->child_ended, &t->exit_status, status == DP_OK ? error : NULL);
    if (status == DP_OK) status = waited;
  }
  prof_tail_free(t->tail);
  return status;
}

static bool can_be_written_anew(void) {
  const char *kind = getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && kind && *kind && strcmp(kind, "dumb") != 0;
}

static dp_status run(const cli_values *values, dp_error *error) {
  top t = {.folder = values->arguments[0],
           .how = {.classes = values->slots[SLOT_CLASSES].string},
           .screen = can_be_written_anew()};
  char *folder = NULL;
  bool made = false;
  const bool program = values->before_dashes == 0;
  if (!program && values->argument_count != 1)
    return dp_fail(error, DP_BAD_INPUT, "top: found %d arguments, allowed: a folder of records, or -- PROGRAM",
                   values->argument_count);
  if (!program && values->slots[SLOT_OUT].given)
    return dp_fail(error, DP_BAD_INPUT, "top: found --out with a folder of records, allowed: with -- PROGRAM");
  DP_TRY(cli_profile_steps_from("top", values->slots[SLOT_STEPS].string, &t.how.range, error));
  if (values->slots[SLOT_AWAY].given) t.how.away_ns = values->slots[SLOT_AWAY].integer * 1000;
  if (program) {
    DP_TRY(cli_recorded_check(&t.how, error));
    DP_TRY(cli_traced_folder(values->slots[SLOT_OUT].string, &folder, &made, error));
    t.folder = folder;
  }
  const dp_status status = watch_all(&t, values, error);
  if (program && cli_traced_recorded(folder)) {
    dp_str word = {0};
    dp_str_add_word(&word, folder);
    fprintf(stderr, "diffpipe: the records are in %s: diffpipe profile report %s\n", folder, dp_str_text(&word));
    dp_str_free(&word);
  } else if (program) {
    if (status == DP_OK) cli_traced_say_none();
    if (made) (void)rmdir(folder);
  }
  free(folder);
  cli_traced_pass_on(t.exit_status, status, error);
  return status;
}

const cli_command cli_top = {
    .name = "top",
    .arguments = "DIR [OPTION]... | [OPTION]... -- PROGRAM [ARGUMENT]...",
    .takes = "a folder of records, or -- and a program",
    .more = 1 << 30,
    .summary = "Show once a second what a recorded program does.",
    .help =
        "Step time, classes of kernels, idle time by cause and memory, from the last records of each process in\n"
        "DIR, or of the program, which is run as diffpipe profile does; then what it prints goes to a file of\n"
        "the folder. Where stdout is no terminal: a line a second, and the program prints as it did.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run,
};
