/* The life of the recording in a program: how it begins, its thread, fork, signals, the end. */
#define _GNU_SOURCE /* environ */
#include "profiler/inject.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "profiler/cupti_capture.h"
#include "profiler/process.h"

enum {
  TICK_MS = 100,    /* between two looks at CUPTI's buffers */
  FLUSH_TICKS = 5,  /* what a SIGKILL takes away is about so old */
  CLOCK_TICKS = 50, /* between two pairs of clocks */
  FILES = 8,        /* of a process */
  URGENT_MS = 2000  /* a deadly signal waits no longer for the thread */
};

static struct {
  pthread_once_t once;
  prof_writer *writer;
  _Atomic bool running;             /* this process has the thread */
  _Atomic bool capturing, captured; /* CUPTI was started, here or in a parent */
  _Atomic bool stop, urgent, urgent_done;
  sem_t wake;
  pthread_t thread;
  pid_t pid;
} life = {.once = PTHREAD_ONCE_INIT};

/* One line, whole: several processes may speak at the same time. There is no caller who could say it. */
static void say(const char *what, const char *why) {
  char line[1300];
  const int length = snprintf(line, sizeof line, "diffpipe profile: process %ld: %s: %s\n", (long)getpid(), what, why);
  if (length > 0) (void)!write(STDERR_FILENO, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

/* ---- who the process is ---- */

static int32_t rank_of_process(void) {
  static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char *text = getenv(names[i]);
    char *end = NULL;
    const long rank = text ? strtol(text, &end, 10) : -1;
    if (text && end != text && !*end && rank >= 0 && rank <= INT32_MAX) return (int32_t)rank;
  }
  return -1;
}

uint32_t prof_inject_thread(void) {
  static _Thread_local struct {
    pid_t of;
    uint32_t id;
  } mine;
  if (mine.of != life.pid || !mine.id) {
    mine.id = prof_process_thread();
    mine.of = life.pid;
  }
  return mine.id;
}

/* ---- the thread ---- */

static void sleep_a_tick(void) {
  struct timespec until;
  (void)clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += TICK_MS * 1000000L;
  if (until.tv_nsec >= 1000000000) {
    until.tv_nsec -= 1000000000;
    until.tv_sec++;
  }
  while (sem_timedwait(&life.wake, &until) != 0 && errno == EINTR) {
  }
}

/* All that there is, complete or not. */
static void write_all(void) {
  if (life.capturing) prof_capture_finish();
  prof_writer_flush(life.writer, true);
}

static void *work(void *unused) {
  (void)unused;
  for (unsigned tick = 1; !life.stop; tick++) {
    sleep_a_tick();
    if (life.stop) break;
    const bool flush = tick % FLUSH_TICKS == 0;
    if (life.urgent && !life.urgent_done) {
      write_all();
      life.urgent_done = true;
      continue;
    }
    if (life.capturing) prof_capture_pump(flush);
    if (tick % CLOCK_TICKS == 0) {
      int64_t realtime = 0, clock = 0;
      prof_process_clocks(&realtime, &clock);
      prof_writer_clock(life.writer, realtime, clock);
    }
    prof_writer_flush(life.writer, flush);
  }
  return NULL;
}

/* Takes no signal, which are the program's. */
static void start_thread(void) {
  bool expected = false;
  if (!life.writer || !atomic_compare_exchange_strong(&life.running, &expected, true)) return;
  sigset_t all, before;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  const int reason = pthread_create(&life.thread, NULL, work, NULL);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (reason != 0) say("nothing is written until the end", strerror(reason)); /* `running` stays: no second attempt */
  if (reason != 0) life.stop = true;
}

/* ---- the end ---- */

/* At exit, of the process that has the thread as of a child that never got it. */
static void finish(void) {
  const bool joins = life.running && !life.stop;
  life.stop = true;
  if (joins) {
    (void)sem_post(&life.wake);
    (void)pthread_join(life.thread, NULL);
  }
  write_all();
  prof_writer_close(life.writer);
}

static void sleep_ms(long ms) {
  const struct timespec time = {.tv_nsec = ms * 1000000L};
  (void)nanosleep(&time, NULL);
}

/* Lets the thread write everything, for a while; then, should the thread wait for what this one holds, writes what can
 * be written from here. The signal comes again when this returns, with its default. */
static void on_deadly(int signal) {
  const int kept = errno;
  if (life.running && !life.stop) {
    life.urgent = true;
    (void)sem_post(&life.wake);
    for (int waited = 0; waited < URGENT_MS && !life.urgent_done; waited += 5) sleep_ms(5);
  }
  (void)prof_writer_emergency(life.writer);
  (void)raise(signal);
  errno = kept;
}

/* Only where the default, which is to die at once, would have held. */
static void catch_signals(void) {
  static const int deadly[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU};
  for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++) {
    struct sigaction now;
    if (sigaction(deadly[i], NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours = {.sa_handler = on_deadly, .sa_flags = (int)SA_RESETHAND};
    (void)sigfillset(&ours.sa_mask);
    (void)sigaction(deadly[i], &ours, NULL);
  }
}

/* ---- fork ---- */

static void before_fork(void) { prof_writer_before_fork(life.writer); }

static void in_parent(void) { prof_writer_parent(life.writer); }

static void in_child(void) {
  life.pid = getpid();
  life.running = life.stop = life.urgent = life.urgent_done = life.capturing = false;
  (void)sem_init(&life.wake, 0, 0);
  prof_capture_child();
  prof_nvtx_child();
  const prof_header header = prof_process_header(rank_of_process());
  prof_writer_child(life.writer, &header);
}

/* ---- the beginning ---- */

static uint64_t kept_bytes(void) {
  const char *text = getenv("DIFFPIPE_PROFILE_MB");
  const unsigned long long mb = text ? strtoull(text, NULL, 10) : 0;
  return mb >= 4 && mb <= 1u << 20 ? mb * 1000000 : 512u * 1000000;
}

static void begin(void) {
  const char *folder = getenv("DIFFPIPE_PROFILE_DIR");
  if (!folder || !*folder) return;
  dp_error error = DP_ERROR_INIT;
  life.pid = getpid();
  const prof_header header = prof_process_header(rank_of_process());
  const prof_writer_options options = {.folder = folder, .files = FILES, .file_bytes = kept_bytes() / FILES};
  if (sem_init(&life.wake, 0, 0) != 0) return;
  if (prof_writer_open(&options, &header, &life.writer, &error) != DP_OK) {
    say("nothing is recorded", error.text);
    return;
  }
  (void)pthread_atfork(before_fork, in_parent, in_child);
  (void)atexit(finish);
  catch_signals();
}

prof_writer *prof_inject_writer(void) {
  (void)pthread_once(&life.once, begin);
  if (!life.running) start_thread();
  return life.writer;
}

/* The driver calls this while it initialises CUDA, once in a process. In the child of a process that records already,
 * CUDA cannot be initialised again, nor CUPTI. */
__attribute__((visibility("default"))) int InitializeInjection(void);
int InitializeInjection(void) {
  prof_writer *writer = prof_inject_writer();
  bool expected = false;
  if (!writer || !atomic_compare_exchange_strong(&life.captured, &expected, true)) return 1;
  const char *graphs = getenv("DIFFPIPE_PROFILE_GRAPHS");
  dp_error error = DP_ERROR_INIT;
  if (prof_capture_start(writer, graphs && strcmp(graphs, "whole") == 0, &error) != DP_OK)
    say("work of the device is not recorded", error.text);
  life.capturing = true;
  return 1;
}
