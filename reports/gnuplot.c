#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reports/plots.h"

extern char **environ;

/* The first line that says something, for the note. */
static void first_words(FILE *said, char out[160]) {
  rewind(said);
  out[0] = 0;
  char line[160];
  while (fgets(line, sizeof line, said)) {
    size_t from = strspn(line, " \t\r\n^"), to = strcspn(line + from, "\r\n");
    if (to == 0 || line[from] == '"') continue; /* gnuplot repeats the script's line before it complains */
    memmove(out, line + from, to);
    out[to] = 0;
    if (strstr(out, "line") || strstr(out, "annot")) return;
  }
}

static dp_status wait_for(pid_t child, FILE *said, const char *gnuplot, dp_error *error) {
  int result = 0;
  while (waitpid(child, &result, 0) < 0)
    if (errno != EINTR) return dp_fail(error, DP_UNSUPPORTED, "%s: cannot be waited for: %s", gnuplot, strerror(errno));
  if (WIFEXITED(result) && WEXITSTATUS(result) == 0) return DP_OK;
  if (WIFEXITED(result) && WEXITSTATUS(result) == 127)
    return dp_fail(error, DP_UNSUPPORTED, "%s: cannot be run: %s", gnuplot, strerror(ENOENT));
  char words[160];
  first_words(said, words);
  if (WIFSIGNALED(result)) return dp_fail(error, DP_UNSUPPORTED, "%s: ended by signal %d", gnuplot, WTERMSIG(result));
  return dp_fail(error, DP_UNSUPPORTED, "%s: exit status %d: %s", gnuplot, WEXITSTATUS(result), words);
}

dp_status report_gnuplot_run(const char *gnuplot, const char *script, const char *data, const char *svg,
                             const char *png, dp_error *error) {
  dp_str assignments = {0};
  dp_str_add(&assignments, "data=");
  report_plot_quote(data, &assignments);
  dp_str_add(&assignments, ";svg=");
  report_plot_quote(svg, &assignments);
  dp_str_add(&assignments, ";png=");
  report_plot_quote(png, &assignments);
  dp_str path = {0};
  dp_str_addf(&path, "%s%s", script[0] == '-' ? "./" : "", script);
  FILE *said = tmpfile();
  posix_spawn_file_actions_t actions;
  if (assignments.failed || path.failed || posix_spawn_file_actions_init(&actions) != 0) {
    dp_str_free(&assignments);
    dp_str_free(&path);
    if (said) (void)fclose(said);
    return dp_fail_memory(error);
  }
  /* -d leaves the user's own start-up files out */
  char name[] = "gnuplot", defaults[] = "-d", execute[] = "-e";
  char *const arguments[] = {name, defaults, execute, assignments.text, path.text, NULL};
  bool set = said && posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0) == 0;
  set = set && posix_spawn_file_actions_adddup2(&actions, fileno(said), STDOUT_FILENO) == 0;
  set = set && posix_spawn_file_actions_adddup2(&actions, fileno(said), STDERR_FILENO) == 0;
  pid_t child = 0;
  const int failed = set ? posix_spawnp(&child, gnuplot, &actions, NULL, arguments, environ) : errno;
  const dp_status status = !set || failed
                               ? dp_fail(error, DP_UNSUPPORTED, "%s: cannot be run: %s", gnuplot, strerror(failed))
                               : wait_for(child, said, gnuplot, error);
  (void)posix_spawn_file_actions_destroy(&actions);
  dp_str_free(&assignments);
  dp_str_free(&path);
  if (said) (void)fclose(said);
  return status;
}
