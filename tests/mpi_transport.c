/* Run by tests/test_mpi.sh under mpirun: what the transport carries, and what the watch makes of a process that dies.
 *
 * usage: mpi_transport carry | broken | leak | watch VICTIM HOW WHEN
 *   VICTIM: a process, -1: none; HOW: a number of a signal, `exit`, `fail` (tells the watch), or `!` and a command,
 * after which it goes on; WHEN: before so many of its messages of 400. */
#define _GNU_SOURCE /* memfd_create */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "exec/transport_mpi.h"
#include "exec/watch.h"

static exec_transport *transport;
static dp_error error = DP_ERROR_INIT;

/* One write a line: those of several processes do not mix. */
static void say(const char *what) {
  char line[DP_ERROR_TEXT_BYTES + 40];
  const int length = snprintf(line, sizeof line, "mpi_transport: %s\n", what);
  if (write(STDERR_FILENO, line, (size_t)length) < 0) _exit(3);
}

static void fail(const char *file, int line, const char *what) {
  char text[DP_ERROR_TEXT_BYTES * 2];
  (void)snprintf(text, sizeof text, "%s:%d: process %d: %s: %s", file, line, transport ? transport->process : -1, what,
                 error.text);
  say(text);
  _exit(3);
}

#define CHECK(what) ((what) ? (void)0 : fail(__FILE__, __LINE__, #what))
#define OK(call) CHECK((call) == DP_OK)

/* ---- carry: many tags, threads, sizes ---- */

enum { LANES = 4, MESSAGES = 60, MOST_BYTES = 300000 };

/* From empty to large; the bytes tell who sent them and which they are. */
static size_t message_bytes(int from, int tag, int number) {
  dp_random random;
  dp_random_init(&random, (uint64_t)(from * LANES + tag), (uint64_t)number);
  const uint64_t most = dp_random_below(&random, 4) == 0 ? MOST_BYTES : 100;
  return (size_t)dp_random_below(&random, most);
}

static unsigned char message_byte(int from, int tag, int number, size_t at) {
  return (unsigned char)(from * 31 + tag * 7 + number * 13 + (int)(at % 251));
}

typedef struct lane {
  int tag;
  bool sends;
  dp_error error;
  pthread_t thread;
} lane;

static void *run_lane(void *data) {
  lane *l = data;
  const int mine = transport->process;
  unsigned char *bytes = malloc(MOST_BYTES);
  CHECK(bytes != NULL);
  for (int number = 0; number < MESSAGES; number++)
    for (int step = 1; step < transport->process_count; step++) {
      const int peer = (mine + (l->sends ? step : transport->process_count - step)) % transport->process_count;
      const int from = l->sends ? mine : peer;
      const size_t count = message_bytes(from, l->tag, number);
      if (l->sends) {
        for (size_t i = 0; i < count; i++) bytes[i] = message_byte(from, l->tag, number, i);
        CHECK(transport->send(transport, peer, (uint32_t)l->tag, bytes, count, NULL, &l->error) == DP_OK);
        memset(bytes, 0, count); /* it may be used again */
      } else {
        CHECK(transport->receive(transport, peer, (uint32_t)l->tag, bytes, count, NULL, &l->error) == DP_OK);
        for (size_t i = 0; i < count; i++) CHECK(bytes[i] == message_byte(from, l->tag, number, i));
      }
    }
  free(bytes);
  return NULL;
}

static void check_lanes(void) {
  lane lanes[2 * LANES];
  for (int i = 0; i < 2 * LANES; i++) {
    lanes[i] = (lane){.tag = i / 2 == LANES - 1 ? EXEC_TAG_END - 1 : i / 2, .sends = i % 2, .error = DP_ERROR_INIT};
    CHECK(pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]) == 0);
  }
  for (int i = 0; i < 2 * LANES; i++) CHECK(pthread_join(lanes[i].thread, NULL) == 0);
}

static void check_control(void) {
  enum { MOST = 64 };
  const int n = transport->process_count;
  double entered_s[MOST], left_s[MOST];
  int64_t value = transport->process == 0 ? 42 : 0, largest = transport->process == n / 2 ? 7 : -transport->process;
  int all[MOST] = {0};
  CHECK(n <= MOST);
  OK(exec_broadcast(transport, &value, sizeof value, &error));
  CHECK(value == 42);
  OK(exec_gather(transport, &transport->process, sizeof transport->process, all, &error));
  for (int p = 0; p < n && transport->process == 0; p++) CHECK(all[p] == p);
  OK(exec_maximum(transport, &largest, &error));
  CHECK(largest == 7);
  const double in_s = dp_clock_s() + transport->clock_offset_s;
  OK(exec_barrier(transport, &error));
  const double out_s = dp_clock_s() + transport->clock_offset_s;
  OK(exec_gather(transport, &in_s, sizeof in_s, entered_s, &error));
  OK(exec_gather(transport, &out_s, sizeof out_s, left_s, &error));
  for (int p = 0; p < n && transport->process == 0; p++) /* the processes of a test have one clock */
    for (int q = 0; q < n; q++) CHECK(left_s[p] >= entered_s[q]);
  CHECK(transport->clock_offset_s == 0);
}

/* More than an int counts. The same few pages lie behind all of it, so that the test does not need the memory. */
static void check_large(void) {
  const size_t period = (size_t)1 << 26, count = ((size_t)1 << 31) + 12345;
  if (transport->process > 1) return;
  char *bytes = mmap(NULL, count + period, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const int file = memfd_create("large", MFD_CLOEXEC);
  CHECK(bytes != MAP_FAILED && file >= 0 && ftruncate(file, (off_t)period) == 0);
  for (size_t at = 0; at < count; at += period)
    CHECK(mmap(bytes + at, period, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == bytes + at);
  if (transport->process == 0) {
    for (size_t i = 0; i < period; i++) bytes[i] = (char)(i * 2654435761u >> 13);
    OK(transport->send(transport, 1, 5, bytes, count, NULL, &error));
  } else {
    OK(transport->receive(transport, 0, 5, bytes, count, NULL, &error));
    for (size_t i = 0; i < period; i++) CHECK(bytes[i] == (char)(i * 2654435761u >> 13));
  }
  CHECK(munmap(bytes, count + period) == 0 && close(file) == 0);
}

/* ---- giving up ---- */

typedef struct waiting {
  bool sends;
  uint32_t tag;
  atomic_bool stop;
  dp_status status;
  dp_error error;
} waiting;

static void *wait_in_vain(void *data) {
  waiting *w = data;
  static char bytes[100]; /* of a send that is given up: MPI may still read it */
  const int peer = 1 - transport->process;
  w->status = w->sends ? transport->send(transport, peer, w->tag, bytes, sizeof bytes, &w->stop, &w->error)
                       : transport->receive(transport, peer, w->tag, bytes, sizeof bytes, &w->stop, &w->error);
  return NULL;
}

/* After `turns` in which the other thread may run: before it began to wait, or while it waits. */
static void give_up(bool sends, int turns) {
  pthread_t thread;
  waiting w = {.sends = sends, .tag = 77, .error = DP_ERROR_INIT};
  atomic_init(&w.stop, false);
  CHECK(pthread_create(&thread, NULL, wait_in_vain, &w) == 0);
  for (int i = 0; i < turns; i++) (void)sched_yield();
  atomic_store(&w.stop, true);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(w.status == DP_RUN_FAILED && strstr(w.error.text, sends ? "sending to process" : "receiving from process"));
}

/* A receive that was given up takes nothing from those that follow under its tag. */
static void check_cancel(void) {
  for (int i = 0; i < 20 && transport->process < 2; i++) {
    char token = (char)i, came = -1;
    if (transport->process == 0) {
      give_up(false, 50 * i);
      OK(transport->send(transport, 1, 78, &token, 1, NULL, &error));
      OK(transport->receive(transport, 1, 77, &came, 1, NULL, &error));
    } else {
      OK(transport->receive(transport, 0, 78, &came, 1, NULL, &error));
      OK(transport->send(transport, 0, 77, &token, 1, NULL, &error));
    }
    CHECK(came == token);
  }
}

/* After a send that was given up nothing works, and nothing hangs. */
static void check_broken(void) {
  char token = 0;
  if (transport->process > 0) {
    (void)transport->receive(transport, 0, 79, &token, 1, NULL, &error); /* never sent: mpirun ends this process */
    return;
  }
  give_up(true, 1000);
  CHECK(exec_barrier(transport, &error) == DP_RUN_FAILED);
  transport->free(transport);
  say("nothing works after a send that was given up");
  _exit(0);
}

/* ---- watch ---- */

typedef struct plan {
  int victim, when;
  const char *how;
} plan;

static void say_line(void *data, const char *line) {
  (void)data;
  say(line);
}

static void end_run(void *data, dp_status status) {
  (void)data;
  _exit(dp_exit_status(status));
}

static void act(const plan *p, exec_watch *watch) {
  if (strcmp(p->how, "exit") == 0) _exit(0);
  if (p->how[0] == '!') {
    CHECK(system(p->how + 1) == 0);
    return;
  }
  if (strcmp(p->how, "fail") == 0) exec_watch_fail(watch, DP_BAD_INPUT, "the input is wrong");
  (void)kill(getpid(), (int)strtol(p->how, NULL, 10));
  for (;;) (void)pause(); /* a signal takes its time */
}

/* Messages go round a ring of processes; a step is ten of them. */
static void check_watch(const plan *p) {
  enum { PER_STEP = 10, STEPS = 40, BYTES = 50000 };
  static char bytes[BYTES];
  const int n = transport->process_count, mine = transport->process;
  const int next = (mine + 1) % n, before = (mine + n - 1) % n;
  exec_watch *watch = NULL;
  const exec_watch_options options = {.transport = transport, .say = say_line, .end = end_run};
  OK(exec_watch_open(&options, &watch, &error));
  for (int i = 0; i < STEPS * PER_STEP; i++) {
    if (i % PER_STEP == 0) exec_watch_step(watch, i / PER_STEP + 1);
    if (i == 10 * PER_STEP && mine == 0) exec_watch_checkpoint(watch, "run/checkpoints/step-10");
    if (mine == p->victim && i == p->when) act(p, watch);
    dp_status status = DP_OK;
    if (mine == 0) status = transport->send(transport, next, 1, bytes, BYTES, NULL, &error);
    if (status == DP_OK) status = transport->receive(transport, before, 1, bytes, BYTES, NULL, &error);
    if (status == DP_OK && mine > 0) status = transport->send(transport, next, 1, bytes, BYTES, NULL, &error);
    if (status != DP_OK) exec_watch_fail(watch, status, error.text);
  }
  CHECK(!exec_watch_lost(watch));
  transport->free(transport);
  exec_watch_close(watch);
  transport = NULL;
  if (mine == 0) say("done");
}

/* ---- */

static void leak_on_purpose(void) {
  static char *volatile kept; /* for a moment: the compiler leaves it in */
  kept = malloc(77);
  CHECK(kept != NULL);
  kept = NULL;
}

static void note_signal(int number) { (void)number; }

static void open_transport(void) {
  static const int kept[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGPIPE};
  enum { KEPT = sizeof kept / sizeof *kept };
  struct sigaction mine = {.sa_handler = note_signal}, after;
  for (int i = 0; i < KEPT; i++) CHECK(sigaction(kept[i], &mine, NULL) == 0);
  OK(exec_transport_open_mpi(&transport, NULL, &error));
  for (int i = 0; i < KEPT; i++) CHECK(sigaction(kept[i], NULL, &after) == 0 && after.sa_handler == note_signal);
  mine.sa_handler = SIG_DFL;
  for (int i = 0; i < KEPT; i++) CHECK(sigaction(kept[i], &mine, NULL) == 0);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  const bool watch = strcmp(what, "watch") == 0 && argc == 5;
  if (!watch && strcmp(what, "carry") != 0 && strcmp(what, "broken") != 0 && strcmp(what, "leak") != 0) {
    say("usage: mpi_transport carry | broken | leak | watch VICTIM HOW WHEN");
    return 2;
  }
  open_transport();
  CHECK(transport != NULL);
  if (strcmp(what, "carry") == 0) {
    check_control();
    check_lanes();
    check_cancel();
    check_large();
    OK(exec_barrier(transport, &error));
    if (transport->process == 0) say("carried");
    transport->free(transport);
  }
  if (strcmp(what, "broken") == 0) check_broken();
  if (strcmp(what, "leak") == 0) {
    leak_on_purpose();
    transport->free(transport);
  }
  if (watch) {
    const plan p = {(int)strtol(argv[2], NULL, 10), (int)strtol(argv[4], NULL, 10), argv[3]};
    check_watch(&p);
  }
  return 0;
}
