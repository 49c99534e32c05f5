/* Options of a subcommand: the same rows make the parser and the help. */
#ifndef DP_CLI_OPTIONS_H
#define DP_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"

typedef enum cli_option_type {
  CLI_FLAG,    /* target: bool */
  CLI_INTEGER, /* target: int64_t, within [min, max] */
  CLI_STRING,  /* target: const char * */
  CLI_CHOICE,  /* target: int, index into choices */
  CLI_KEY,     /* a string for a key of the scenario: becomes one of cli_values.sets */
  CLI_LIST     /* may be repeated; collected in cli_values.sets or .sweeps when its name is set or sweep, else in .repeated */
} cli_option_type;

typedef struct cli_option {
  const char *name; /* without the dashes */
  cli_option_type type;
  char letter;          /* 'o': the option is also -o; 0: it has no short form */
  const char *argument; /* "DIR", "N"; NULL for flags */
  const char *help;
  const char *fallback; /* what holds when it is not given, for the help; or NULL */
  int slot;             /* index into cli_values.slots */
  int64_t min, max;     /* CLI_INTEGER */
  const char *const *choices;
  const char *key; /* CLI_KEY: "cluster.profile" */
} cli_option;

/* Rows that several commands have; `at`: the slot. */
#define CLI_OPTION_SET(at)                                             \
  {                                                                    \
    .name = "set", .type = CLI_LIST, .argument = "TABLE.KEY=VALUE",    \
    .help = "set a key of the scenario; may be repeated", .slot = (at) \
  }
#define CLI_OPTION_THREADS(at, what)                                                                           \
  {                                                                                                            \
    .name = "threads", .type = CLI_INTEGER, .argument = "N", .help = what " at once; default one a processor", \
    .slot = (at), .min = 1, .max = 16                                                                          \
  }
#define CLI_OPTION_OUT(at, what)                                                                                    \
  {                                                                                                                 \
    .name = "out", .letter = 'o', .type = CLI_STRING, .argument = "DIR", .help = "write " what " into this folder", \
    .slot = (at)                                                                                                    \
  }
#define CLI_OPTION_PROFILE(at)                                                                  \
  {                                                                                             \
    .name = "profile", .type = CLI_KEY, .argument = "FILE",                                     \
    .help = "costs that diffpipe calibrate measured", .slot = (at), .key = "cluster.profile"    \
  }
#define CLI_OPTION_NO_PLOTS(at)                                                                                      \
  {                                                                                                                  \
    .name = "no-plots", .type = CLI_FLAG, .help = "with --out: write the figures of the plots but do not draw them", \
    .slot = (at)                                                                                                     \
  }

enum { CLI_MAX_SLOTS = 24, CLI_LISTS = 4 /* arguments, and the three kinds of CLI_LIST */ };

/* What was given. Slots that were not given keep `given` false; arguments and strings are borrowed from argv. */
typedef struct cli_values {
  struct {
    bool given;
    int64_t integer; /* CLI_INTEGER, and the index of CLI_CHOICE */
    const char *string;
  } slots[CLI_MAX_SLOTS];
  const char *const *arguments;
  int argument_count;
  int before_dashes; /* how many arguments stand before "--"; -1: there is none */
  const char *const *sets;
  const char *const *sweeps;
  const char *const *repeated; /* of the command's other repeatable option, of which it has at most one */
  int set_count, sweep_count, repeated_count;
  dp_arena arena; /* of what was made of CLI_KEY */
} cli_values;

struct cli_command;

/* Parses argv after the subcommand's name. `storage` has room for argc pointers CLI_LISTS times. Free values->arena, also
 * after a failure.
 */
dp_status cli_options_parse(const struct cli_command *command, int argc, char **argv, const char **storage,
                            cli_values *values, dp_error *error);
void cli_options_help(const struct cli_command *command, FILE *out);

/* DP_BAD_INPUT for a name that is none of `count` names: `lead`, the given text quoted, the nearest name when one is
 * close, and all that is allowed, each with `dashes` in front. Of `given` the part from its dashes to `=` is compared.
 */
dp_status cli_fail_name(const char *lead, const char *given, const char *const *names, int count, const char *dashes,
                        dp_error *error);

#endif
