/* The subcommands: one row and one file each. */
#ifndef DP_CLI_COMMAND_H
#define DP_CLI_COMMAND_H

#include "base/status.h"
#include "cli/options.h"

typedef struct cli_command {
  const char *name;
  const char *arguments; /* "SCENARIO", "MODEL.json", "" */
  const char *takes;     /* its one argument as an error tells it: "one, the scenario"; NULL: it takes none */
  int more;              /* arguments that may follow it */
  bool optional;         /* none may be given: run checks */
  const char *summary;   /* one line */
  const char *help;      /* paragraphs after the options, or NULL */
  const cli_option *options;
  int option_count;
  /* Gets the parsed options, and as many arguments as it takes; returns the status of the work; the error is printed by
   * main. */
  dp_status (*run)(const cli_values *values, dp_error *error);
  /* Of a family, NULL at the end: each is named "FAMILY NAME". The row itself then only names and helps. */
  const struct cli_command *const *commands;
} cli_command;

extern const cli_command cli_advise, cli_calibrate, cli_compare, cli_data, cli_data_cache, cli_data_check, cli_formats,
    cli_inspect, cli_machine, cli_profile, cli_profile_report, cli_report, cli_run, cli_simulate, cli_top, cli_tune, cli_version, cli_whatif;

#endif
