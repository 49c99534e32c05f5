#define _GNU_SOURCE /* environ */
#include "cli/run_hook.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"

__attribute__((format(printf, 2, 3))) static void note(cli_run_hook *hook, const char *format, ...) {
  char text[256];
  va_list arguments;
  if (hook->told) return;
  hook->told = true;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "diffpipe: note: monitor.hook: %s; this is said once\n", text);
}

/* ---- the environment ---- */

static bool is_ours(const char *entry) {
  static const char prefix[] = "DIFFPIPE_EVENT";
  return strncmp(entry, prefix, sizeof prefix - 1) == 0;
}

/* "step": 7 -> "DIFFPIPE_EVENT_STEP=7"; NULL: no memory. */
static char *entry_of(dp_arena *arena, const char *key, const json_t *value) {
  char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  char *entry = dp_arena_printf(arena, "DIFFPIPE_EVENT_%s=%s", key, text ? text : json_string_value(value));
  free(text);
  for (char *c = entry; c && *c != '='; c++) *c = (char)toupper((unsigned char)*c);
  return entry;
}

static char **environment(dp_arena *arena, const json_t *row) {
  size_t count = 0, n = 0;
  while (environ[count]) count++;
  char **all = DP_ARENA_NEW(arena, char *, count + json_object_size(row) + 2);
  char *line = json_dumps(row, JSON_COMPACT);
  const char *key;
  json_t *value;
  for (size_t i = 0; all && i < count; i++)
    if (!is_ours(environ[i])) all[n++] = environ[i];
  bool whole = all && line && (all[n++] = dp_arena_printf(arena, "DIFFPIPE_EVENT_JSON=%s", line)) != NULL;
  free(line);
  json_object_foreach((json_t *)row, key, value) {
    if (!whole) break;
    char *entry = strcmp(key, "event") == 0 ? dp_arena_printf(arena, "DIFFPIPE_EVENT=%s", json_string_value(value))
                                            : entry_of(arena, key, value);
    whole = entry != NULL;
    all[n++] = entry;
  }
  return whole ? all : NULL;
}

/* ---- the process ---- */

static int spawn(const char *command, char **all, pid_t *process) {
  char *const words[] = {"sh", "-c", (char *)command, NULL};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  int trouble = posix_spawn_file_actions_init(&files);
  if (trouble) return trouble;
  trouble = posix_spawnattr_init(&how);
  if (!trouble) {
    trouble = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!trouble) trouble = posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    if (!trouble) trouble = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
    if (!trouble) trouble = posix_spawnattr_setpgroup(&how, 0);
    if (!trouble) trouble = posix_spawn(process, "/bin/sh", &files, &how, words, all);
    (void)posix_spawnattr_destroy(&how);
  }
  (void)posix_spawn_file_actions_destroy(&files);
  return trouble;
}

void cli_run_hook_look(cli_run_hook *hook) {
  for (int i = 0; i < CLI_RUN_HOOKS; i++) {
    int status = 0;
    if (hook->running[i] == 0 || waitpid(hook->running[i], &status, WNOHANG) == 0) continue;
    hook->running[i] = 0;
    if (WIFSIGNALED(status)) note(hook, "it was ended by signal %d", WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status)) note(hook, "it ended with status %d", WEXITSTATUS(status));
  }
}

void cli_run_hook_start(cli_run_hook *hook, const json_t *row) {
  dp_arena arena = {0};
  int place = 0;
  if (!hook->command) return;
  cli_run_hook_look(hook);
  while (place < CLI_RUN_HOOKS && hook->running[place]) place++;
  if (place == CLI_RUN_HOOKS) {
    note(hook, "%d are still under way, and one more was left out", CLI_RUN_HOOKS);
    return;
  }
  char **all = environment(&arena, row);
  const int trouble = all ? spawn(hook->command, all, &hook->running[place]) : ENOMEM;
  if (trouble) {
    hook->running[place] = 0;
    note(hook, "it could not be started: %s", strerror(trouble));
  }
  dp_arena_free(&arena);
}
