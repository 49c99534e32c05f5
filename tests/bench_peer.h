/* The other side of tests/bench_step: tests/reference/step_speed.py as a process that measures when it is told to. The
 * program defines _POSIX_C_SOURCE 200809L before its first include. */
#ifndef DP_TESTS_BENCH_PEER_H
#define DP_TESTS_BENCH_PEER_H

#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that may not be there. */
typedef struct bench_peer {
  bool running;
  pid_t process;
  FILE *to, *from;
} bench_peer;

/* The mean of some steps. */
typedef struct bench_sample {
  double wall_s, cpu_s, loss;
} bench_sample;

static inline void bench_peer_stop(bench_peer *peer) {
  if (!peer->running) return;
  peer->running = false;
  (void)fclose(peer->to);
  (void)fclose(peer->from);
  (void)waitpid(peer->process, NULL, 0);
}

static inline void bench_peer_run(const char *script, const char *folder, const char *inputs, int threads) {
  char command[16384];
  const char *python = getenv("DIFFPIPE_TORCH"), *options = getenv("DIFFPIPE_TORCH_OPTIONS");
  (void)snprintf(command, sizeof command, "exec \"$0\" \"$1\" \"$2\" \"$3\" --threads %d %s", threads,
                 options ? options : "");
  (void)execlp("sh", "sh", "-c", command, python ? python : "python3", script, folder, inputs, (char *)NULL);
  _exit(127);
}

/* Starts it and waits until it has loaded the model; when it cannot, says so on stderr: `running` is false then. */
static inline void bench_peer_start(bench_peer *peer, const char *script, const char *folder, const char *inputs,
                                    int threads) {
  int down[2], up[2];
  char line[64];
  *peer = (bench_peer){.running = false};
  if (pipe(down) != 0) return;
  if (pipe(up) != 0) {
    (void)close(down[0]);
    (void)close(down[1]);
    return;
  }
  (void)signal(SIGPIPE, SIG_IGN);
  peer->process = fork();
  if (peer->process == 0) {
    (void)dup2(down[0], 0);
    (void)dup2(up[1], 1);
    (void)close(down[1]);
    (void)close(up[0]);
    bench_peer_run(script, folder, inputs, threads);
  }
  (void)close(down[0]);
  (void)close(up[1]);
  peer->to = fdopen(down[1], "w");
  peer->from = fdopen(up[0], "r");
  peer->running = true;
  if (peer->process > 0 && fgets(line, sizeof line, peer->from) != NULL && strcmp(line, "ready\n") == 0) return;
  bench_peer_stop(peer);
  fprintf(stderr, "bench_step: peer not installed: DIFFPIPE_TORCH names no Python with PyTorch and diffusers\n");
}

/* Its answer to a command. */
static inline const char *bench_peer_ask(bench_peer *peer, const char *command, char line[256]) {
  (void)fprintf(peer->to, "%s\n", command);
  (void)fflush(peer->to);
  if (fgets(line, 256, peer->from) != NULL) return line;
  fprintf(stderr, "bench_step: PyTorch ended at \"%s\"\n", command);
  exit(1);
}

static inline void bench_peer_steps(bench_peer *peer, int count, bench_sample *sample) {
  char line[256], command[32];
  (void)snprintf(command, sizeof command, "steps %d", count);
  (void)bench_peer_ask(peer, command, line);
  if (sscanf(line, "%lf %lf %lf", &sample->wall_s, &sample->cpu_s, &sample->loss) == 3) return;
  fprintf(stderr, "bench_step: PyTorch answers \"%s\"\n", line);
  exit(1);
}

static inline void bench_peer_forget(bench_peer *peer) {
  char line[256];
  if (peer->running) (void)bench_peer_ask(peer, "forget", line);
}

static inline int64_t bench_peer_memory(bench_peer *peer) {
  char line[256];
  return peer->running ? strtoll(bench_peer_ask(peer, "memory", line), NULL, 10) : 0;
}

#endif
