#define _GNU_SOURCE /* pipe2, realpath */
#include "cli/traced.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"

/* ---- the folder ---- */

bool cli_traced_recorded(const char *folder) {
  DIR *stream = opendir(folder);
  bool found = false;
  for (const struct dirent *entry; stream && !found && (entry = readdir(stream)) != NULL;)
    found = dp_ends_with(entry->d_name, ".dpr");
  if (stream) (void)closedir(stream);
  return found;
}

void cli_traced_say_none(void) {
  fprintf(stderr, "diffpipe: there are no records: nothing that ran used CUDA, or see what was said above\n");
}

static dp_status make_new(char *name, size_t size, dp_error *error) {
  for (int i = 1; i < 10000; i++) {
    (void)snprintf(name, size, "profile-%d", i);
    if (mkdir(name, 0777) == 0) return DP_OK;
    if (errno != EEXIST) return dp_fail(error, DP_IO_FAILED, "%s: cannot be made a folder: %s", name, strerror(errno));
  }
  return dp_fail(error, DP_BAD_INPUT, "profile-9999: there are too many, allowed: --out DIR");
}

dp_status cli_traced_folder(const char *given, char **folder, bool *made, dp_error *error) {
  char name[32];
  struct stat about;
  *made = !given || stat(given, &about) != 0;
  if (given && !*given) return dp_fail(error, DP_BAD_INPUT, "--out: found \"\", allowed: a folder");
  if (given && cli_traced_recorded(given))
    return dp_fail(error, DP_BAD_INPUT, "%s: it holds records of an earlier run, allowed: a folder without files *.dpr",
                   given);
  if (given)
    DP_TRY(dp_folder_make(given, error));
  else
    DP_TRY(make_new(name, sizeof name, error));
  *folder = realpath(given ? given : name, NULL);
  return *folder ? DP_OK : dp_fail(error, DP_IO_FAILED, "%s: %s", given ? given : name, strerror(errno));
}

/* ---- the library ---- */

static const char library_name[] = "libdiffpipe-inject.so";

/* $DIFFPIPE_INJECT_LIBRARY; beside the program in its build folder; ../lib/diffpipe from it; the configured place. */
static dp_status find_library(char path[PATH_MAX], dp_error *error) {
  const char *given = getenv("DIFFPIPE_INJECT_LIBRARY");
  char program[PATH_MAX], candidate[PATH_MAX + 64];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  const char *const forms[] = {"%s/%s", "%s/../lib/diffpipe/%s"};
  if (given && *given) {
    if (!realpath(given, path))
      return dp_fail(error, DP_BAD_INPUT, "DIFFPIPE_INJECT_LIBRARY: %s: %s", given, strerror(errno));
    return DP_OK;
  }
  if (length > 0) {
    program[length] = 0;
    char *slash = strrchr(program, '/');
    if (slash) *slash = 0;
    for (int i = 0; i < 2; i++) {
      (void)snprintf(candidate, sizeof candidate, i ? forms[1] : forms[0], program, library_name);
      if (realpath(candidate, path)) return DP_OK;
    }
  }
#ifdef DP_PKGLIBDIR
  (void)snprintf(candidate, sizeof candidate, "%s/%s", DP_PKGLIBDIR, library_name);
  if (realpath(candidate, path)) return DP_OK;
#endif
  return dp_fail(error, DP_UNSUPPORTED,
                 "%s is not there: this diffpipe was built without CUPTI 13 and NVTX, so it cannot record programs",
                 library_name);
}

/* ---- signals ---- */

static volatile sig_atomic_t traced; /* the program's process id */

/* One that a process sent, not the terminal. */
static void hand_on(int signal, siginfo_t *about, void *context) {
  const int kept = errno;
  (void)context;
  if (traced > 0 && about->si_code <= 0) (void)kill((pid_t)traced, signal);
  errno = kept;
}

/* Those that are ignored (nohup) stay so. */
static void hand_on_signals(void) {
  static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
    struct sigaction now;
    struct sigaction ours = {.sa_sigaction = hand_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    (void)sigemptyset(&ours.sa_mask);
    if (sigaction(signals[i], NULL, &now) == 0 && ((now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_IGN))
      (void)sigaction(signals[i], &ours, NULL);
  }
}

/* ---- the program ---- */

static bool set_environment(const cli_traced *how, const char *library) {
  char mb[32];
  (void)snprintf(mb, sizeof mb, "%lld", (long long)how->keep_mb);
  return setenv("CUDA_INJECTION64_PATH", library, 1) == 0 && setenv("NVTX_INJECTION64_PATH", library, 1) == 0 &&
         setenv("DIFFPIPE_PROFILE_DIR", how->folder, 1) == 0 && setenv("DIFFPIPE_PROFILE_MB", mb, 1) == 0 &&
         setenv("DIFFPIPE_PROFILE_GRAPHS", how->whole_graphs ? "whole" : "nodes", 1) == 0;
}

static bool redirect(const char *output) {
  const int file = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return file >= 0 && dup2(file, STDOUT_FILENO) >= 0 && dup2(file, STDERR_FILENO) >= 0;
}

/* Never returns. The reason goes through the pipe, which a program that runs has closed. */
static void become(char *const *arguments, const cli_traced *how, const char *library, const sigset_t *mask, int said) {
  (void)sigprocmask(SIG_SETMASK, mask, NULL);
  if (set_environment(how, library) && (!how->output || redirect(how->output))) (void)execvp(arguments[0], arguments);
  const int reason = errno;
  (void)!write(said, &reason, sizeof reason);
  _exit(127);
}

static dp_status launch(char *const *arguments, const cli_traced *how, const char *library, pid_t *child,
                        dp_error *error) {
  int ends[2], reason = 0;
  sigset_t all, before;
  if (pipe2(ends, O_CLOEXEC) != 0) return dp_fail(error, DP_IO_FAILED, "a pipe: %s", strerror(errno));
  (void)fflush(NULL);
  (void)sigfillset(&all);
  (void)sigprocmask(SIG_BLOCK, &all, &before); /* until it is known whom to hand them on to */
  hand_on_signals();
  const pid_t pid = fork();
  if (pid == 0) become(arguments, how, library, &before, ends[1]);
  const int failed = errno;
  traced = pid;
  (void)sigprocmask(SIG_SETMASK, &before, NULL);
  (void)close(ends[1]);
  ssize_t got = 0;
  if (pid > 0) do
      got = read(ends[0], &reason, sizeof reason);
    while (got < 0 && errno == EINTR);
  (void)close(ends[0]);
  if (pid < 0) return dp_fail(error, DP_IO_FAILED, "a process: %s", strerror(failed));
  if (got == (ssize_t)sizeof reason) {
    (void)waitpid(pid, NULL, 0);
    return dp_fail(error, DP_BAD_INPUT, "%s: cannot be run: %s", arguments[0], strerror(reason));
  }
  *child = pid;
  return DP_OK;
}

dp_status cli_traced_start(const char *const *arguments, int count, const cli_traced *how, pid_t *child,
                           dp_error *error) {
  char library[PATH_MAX];
  DP_TRY(find_library(library, error));
  char **copy = calloc((size_t)count + 1, sizeof *copy);
  bool done = copy != NULL;
  for (int i = 0; done && i < count; i++) done = (copy[i] = strdup(arguments[i])) != NULL;
  const dp_status status = done ? launch(copy, how, library, child, error) : dp_fail_memory(error);
  for (int i = 0; copy && i < count; i++) free(copy[i]);
  free(copy);
  return status;
}

dp_status cli_traced_wait(pid_t child, bool block, bool *ended, int *exit_status, dp_error *error) {
  int how = 0;
  pid_t got = 0;
  do got = waitpid(child, &how, block ? 0 : WNOHANG);
  while (got < 0 && errno == EINTR);
  if (got < 0) return dp_fail(error, DP_IO_FAILED, "the program's end: %s", strerror(errno));
  *ended = got == child;
  if (!*ended) return DP_OK;
  traced = 0; /* its number may be another's soon */
  *exit_status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
  return DP_OK;
}

void cli_traced_pass_on(int exit_status, dp_status status, const dp_error *error) {
  if (exit_status == 0) return;
  if (status != DP_OK) fprintf(stderr, "diffpipe: %s\n", error->text);
  if (fflush(stdout) != 0) fprintf(stderr, "diffpipe: the output could not be written\n");
  exit(exit_status);
}
