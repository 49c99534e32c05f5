#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

double dp_clock_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void dp_sleep_s(double seconds) {
  const struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)nanosleep(&pause, NULL);
}

void dp_wake_in_time(void) {
#ifdef __linux__
  (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
#endif
}
