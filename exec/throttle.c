#define _POSIX_C_SOURCE 200809L
#include "exec/throttle.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const double MOST_MS = 60000;

dp_status exec_throttle_read(exec_throttle *throttle, dp_error *error) {
  const char *text = getenv("DIFFPIPE_THROTTLE");
  exec_throttle made = {.last = INT64_MAX};
  double more_ms = 0;
  long long first = 0, last = INT64_MAX;
  int end = 0;
  *throttle = (exec_throttle){.more_s = 0};
  if (!text || !text[0]) return DP_OK;
  bool read = sscanf(text, "%d-%d:%lld-%lld:%lf%n", &made.from, &made.to, &first, &last, &more_ms, &end) == 5;
  if (!read) {
    last = INT64_MAX;
    read = sscanf(text, "%d-%d:%lld-:%lf%n", &made.from, &made.to, &first, &more_ms, &end) == 4;
  }
  if (!read || text[end] || made.from < 0 || made.to < 0 || first < 1 || last < first || !(more_ms >= 0) ||
      more_ms > MOST_MS)
    return dp_fail(error, DP_BAD_INPUT,
                   "DIFFPIPE_THROTTLE: found \"%.80s\", allowed: FROM-TO:FIRST-LAST:MS, two devices, steps from 1, "
                   "milliseconds up to %.0f",
                   text, MOST_MS);
  made.first = first;
  made.last = last;
  made.more_s = more_ms / 1e3;
  *throttle = made;
  return DP_OK;
}

bool exec_throttle_hits(const exec_throttle *t, int from, int to, int64_t step) {
  return t->more_s > 0 && from == t->from && to == t->to && step >= t->first && step <= t->last;
}

void exec_throttle_sleep(const exec_throttle *t) {
  struct timespec left = {.tv_sec = (time_t)floor(t->more_s)};
  left.tv_nsec = (long)((t->more_s - floor(t->more_s)) * 1e9);
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}
