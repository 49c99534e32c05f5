/* A program that runs while it is recorded: the environment that loads the library into it and into what it starts,
 * signals handed on, its end waited for.
 *
 * Signals that end this process are given to the program instead, and this process goes on until the program has ended;
 * what the terminal sends to both is not sent twice.
 */
#ifndef DP_CLI_TRACED_H
#define DP_CLI_TRACED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct cli_traced {
  const char *folder; /* of the records; exists */
  const char *output; /* a file for what it prints; NULL: where this process prints */
  bool whole_graphs;  /* CUDA graphs are recorded as a whole */
  int64_t keep_mb;    /* of records of each process; 0: 512 MB */
} cli_traced;

/* Makes `given`, or without it profile-1, profile-2, ... here: the first that is not there. DP_BAD_INPUT for a folder
 * that holds records already. `*folder`: its absolute path, malloc'ed. */
dp_status cli_traced_folder(const char *given, char **folder, bool *made, dp_error *error);

bool cli_traced_recorded(const char *folder); /* whether it holds records */
void cli_traced_say_none(void);               /* on stderr: that it has none, and why that may be */

/* `arguments`: the program, found by PATH, and its arguments. DP_BAD_INPUT where it cannot be run, DP_UNSUPPORTED where
 * the library to load is missing. Call it once in a process. */
dp_status cli_traced_start(const char *const *arguments, int count, const cli_traced *how, pid_t *child,
                           dp_error *error);
/* Waits for its end, or only looks. `*ended`, and then its exit status, 128 and the signal's number when a signal ended
 * it. */
dp_status cli_traced_wait(pid_t child, bool block, bool *ended, int *exit_status, dp_error *error);
/* The program's exit status is ours: ends this process with it when it is not 0; the failure of what came after, which
 * `status` tells, is printed then. */
void cli_traced_pass_on(int exit_status, dp_status status, const dp_error *error);

#endif
