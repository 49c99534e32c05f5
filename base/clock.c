#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <time.h>

double dp_clock_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void dp_sleep_s(double seconds) {
  const struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)nanosleep(&pause, NULL);
}
