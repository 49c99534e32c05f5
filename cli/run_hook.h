/* monitor.hook: a command for the shell that is run at each event of a run, beside it: the run never waits for it.
 *
 * Its environment has the event: DIFFPIPE_EVENT its kind, DIFFPIPE_EVENT_JSON the line of log.jsonl, and each key of
 * that line in capitals, as DIFFPIPE_EVENT_STEP. Its input is empty, its output goes to stderr, and it has a process
 * group of its own, so that Ctrl-C does not reach it. At most CLI_RUN_HOOKS are under way at once: an event that comes
 * then has none. That one could not be started, ended otherwise than with status 0, or was left out, is noted once.
 */
#ifndef DP_CLI_RUN_HOOK_H
#define DP_CLI_RUN_HOOK_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

enum { CLI_RUN_HOOKS = 8 };

typedef struct cli_run_hook {   /* zeroed, but for the command */
  const char *command;          /* NULL: there is none */
  pid_t running[CLI_RUN_HOOKS]; /* 0: a free place */
  bool told;
} cli_run_hook;

void cli_run_hook_start(cli_run_hook *hook, const json_t *row);
/* Takes up those that have ended. One that has not when the run ends goes on by itself. */
void cli_run_hook_look(cli_run_hook *hook);

#endif
