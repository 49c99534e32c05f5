#define _GNU_SOURCE /* syscall, gethostname */
#include "profiler/process.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t prof_process_now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t realtime_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Taken between two readings of the other clock, so that being interrupted there moves nothing: the closest of some. */
void prof_process_clocks(int64_t *realtime, int64_t *clock) {
  int64_t best = INT64_MAX;
  for (int i = 0; i < 5; i++) {
    const int64_t before = prof_process_now_ns(), there = realtime_ns(), after = prof_process_now_ns();
    if (after - before >= best) continue;
    best = after - before;
    *realtime = there;
    *clock = before + best / 2;
  }
}

static void read_command(char *command, size_t size) {
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t length = file >= 0 ? read(file, command, size - 1) : -1;
  if (file >= 0) (void)close(file);
  for (ssize_t i = 0; i < length; i++)
    if (!command[i]) command[i] = i + 1 < length ? ' ' : 0;
  command[length > 0 ? length : 0] = 0;
}

prof_header prof_process_header(int32_t rank) {
  prof_header header = {.pid = (int32_t)getpid(), .parent = (int32_t)getppid(), .rank = rank};
  (void)gethostname(header.host, sizeof header.host - 1);
  read_command(header.command, sizeof header.command);
  prof_process_clocks(&header.realtime_ns, &header.clock_ns);
  return header;
}

uint32_t prof_process_thread(void) { return (uint32_t)syscall(SYS_gettid); }
