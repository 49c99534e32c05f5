#define _POSIX_C_SOURCE 200809L
#include "base/condition.h"

#include <stdbool.h>
#include <time.h>

static bool make(pthread_cond_t *condition) {
  pthread_condattr_t how;
  if (pthread_condattr_init(&how) != 0) return false;
  const bool made = pthread_condattr_setclock(&how, CLOCK_MONOTONIC) == 0 && pthread_cond_init(condition, &how) == 0;
  (void)pthread_condattr_destroy(&how);
  return made;
}

dp_status dp_condition_init(pthread_cond_t *condition, dp_error *error) {
  return make(condition) ? DP_OK : dp_fail(error, DP_UNSUPPORTED, "the system gives no more conditions");
}

void dp_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, double seconds) {
  struct timespec until;
  (void)clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += (long)(seconds * 1e9);
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  (void)pthread_cond_timedwait(condition, lock, &until);
}
