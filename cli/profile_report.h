/* diffpipe profile and top: what is read from records, and the ways of telling it. */
#ifndef DP_CLI_PROFILE_REPORT_H
#define DP_CLI_PROFILE_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "base/str.h"
#include "cli/command.h"
#include "profiler/summary.h"
#include "reports/table.h"

/* Rows that these commands share; `at`: the slot. */
#define CLI_OPTION_STEPS_FROM(at)                                                                       \
  {                                                                                                     \
    .name = "steps-from", .type = CLI_STRING, .argument = "nvtx:NAME",                                  \
    .help = "take that NVTX range for steps; auto: find them", .fallback = "default auto", .slot = (at) \
  }
#define CLI_OPTION_CLASSES(at)                                                                             \
  {                                                                                                        \
    .name = "classes", .type = CLI_STRING, .argument = "FILE", .help = "rules for the classes of kernels", \
    .fallback = "default catalogue/kernels.toml", .slot = (at)                                             \
  }
#define CLI_OPTION_AWAY(at)                                                                                   \
  {                                                                                                           \
    .name = "away-us", .type = CLI_INTEGER, .argument = "N",                                                  \
    .help = "idle counts as data's after N us without a CUDA call", .fallback = "default 1000", .slot = (at), \
    .min = 1, .max = 1000000000                                                                               \
  }
#define CLI_OPTION_TRACE(at)                                                     \
  {                                                                              \
    .name = "trace", .type = CLI_STRING, .argument = "FILE",                     \
    .help = "also write Chrome trace events, which Perfetto opens", .slot = (at) \
  }

typedef struct cli_recorded {
  prof_session session;
  prof_rules rules;
  unsigned char *classes;
  prof_steps steps;
  prof_summary summary;
  int64_t kernels; /* rows of that table; 0: 10, -1: none */
} cli_recorded;

typedef struct cli_recorded_how {
  const char *range;   /* steps are that NVTX range; NULL: found */
  const char *classes; /* file of rules; NULL: the installed one */
  const char *trace;   /* file to write; NULL: none */
  int64_t away_ns;     /* 0: 1 ms */
} cli_recorded_how;

/* nvtx:NAME gives the name; NULL and auto give NULL. */
dp_status cli_profile_steps_from(const char *command, const char *from, const char **range, dp_error *error);

/* Before a program is run, what reading its records will need. */
dp_status cli_recorded_check(const cli_recorded_how *how, dp_error *error);
/* `recorded` is zeroed before, and freed after a failure, too. */
dp_status cli_recorded_read(const char *folder, const cli_recorded_how *how, cli_recorded *recorded, dp_error *error);
/* The same of a session that is there already; no trace. */
dp_status cli_recorded_find(cli_recorded *recorded, const cli_recorded_how *how, dp_error *error);
void cli_recorded_free(cli_recorded *recorded);

/* What these tables, and those of runs, are made of: columns with heads, the first to the left; seconds; a spread as count,
 * sum, p50, p95 and max; the end, which prints the table and frees it. And a spread as JSON; NULL: no memory. */
void cli_columns(report_table *table, const char *const *heads);
void cli_cell_seconds(report_table *table, double s);
void cli_cells_spread(report_table *table, const prof_spread *spread);
dp_status cli_table_finish(report_table *table, FILE *out, dp_error *error);
json_t *cli_spread_json(const prof_spread *spread);

/* How long recording itself took of a process' threads, as CUPTI says. */
double cli_recorded_recording_s(const cli_recorded *recorded, size_t process);

/* Tables. */
dp_status cli_profile_print(const cli_recorded *recorded, FILE *out, dp_error *error);
/* Format `diffpipe-profile-summary`; NULL: no memory. */
json_t *cli_profile_json(const cli_recorded *recorded);
dp_status cli_profile_print_json(const cli_recorded *recorded, dp_error *error); /* to stdout */

#endif
