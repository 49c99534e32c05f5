/* What the parts of `diffpipe advise` share. */
#ifndef DP_CLI_ADVISE_H
#define DP_CLI_ADVISE_H

#include "sim/advise.h"

/* A line of the difference between the user's file and a proposal. */
typedef struct cli_advise_line {
  char op;                  /* '-' or '+' */
  int line;                 /* of the file, 1-based; 0: a new one, or one given with --set */
  const char *text, *table; /* table NULL: the top of the file, else "model", "optimizer" */
  sim_advise_group group;
} cli_advise_line;

enum { CLI_ADVISE_MAX_LINES = 64 };
typedef struct cli_advise_lines {
  dp_arena arena;
  cli_advise_line items[CLI_ADVISE_MAX_LINES];
  int count;
} cli_advise_lines;

typedef struct cli_advice {
  const char *path; /* of the configuration */
  const plan_dpipe *config;
  const plan_scenario *scenario;
  const sim_advise_result *result;
} cli_advice;

/* The file's own lines of what changes, and the new ones; by line. Free with cli_advise_lines_free. */
dp_status cli_advise_lines_of(const cli_advice *advice, const sim_advise_proposal *proposal, cli_advise_lines *lines,
                              dp_error *error);
void cli_advise_lines_free(cli_advise_lines *lines);

dp_status cli_advise_print_text(const cli_advice *advice, dp_error *error);
dp_status cli_advise_print_json(const cli_advice *advice, dp_error *error);

/* What the keys of --json mean, for diffpipe formats; ends with a row of NULLs. */
typedef struct cli_advise_key {
  const char *name, *meaning;
} cli_advise_key;
extern const cli_advise_key cli_advise_keys[];

/* Samples of a listed micro batch under a setting. */
int64_t cli_advise_listed(const plan_dpipe_batch *batch, const sim_advise_setting *setting);
/* "[10, 20]" */
const char *cli_advise_split_text(const sim_advise_setting *setting, char *out, size_t room);
/* The file's key for pictures' micro batches, or our name of the group. */
const char *cli_advise_group_name(const cli_advice *advice, sim_advise_group group);

#endif
