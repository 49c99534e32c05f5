/* What every benchmark program tests/bench_*.c shares: a clock, the median, and one line of JSON for each figure.
 * `make bench` runs the programs and joins their lines into bench.json; anything else they say goes to stderr. */
#ifndef DP_TESTS_BENCH_H
#define DP_TESTS_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Seconds on the monotonic clock. The program defines _POSIX_C_SOURCE 200809L before its first include. */
static inline double bench_now_s(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds that this process has computed: for work of one thread, where others use the machine too. */
static inline double bench_cpu_s(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Of work of so many threads: one is measured by what it computed, several on the wall's clock. */
static inline double bench_clock_s(int threads) { return threads == 1 ? bench_cpu_s() : bench_now_s(); }

static inline int bench_compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the values; count >= 1. */
static inline double bench_median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, bench_compare);
  return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* One figure: the median of `runs` runs. `peer` names what was measured in the same run, and `ratio` is this value to the
 * peer's; without a peer it is NULL and the ratio is not looked at. Names and units are plain words: nothing is escaped. */
static inline void bench_report(const char *name, double value, const char *unit, const char *peer, double ratio, int runs) {
  printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", ", name, value, unit);
  if (peer) printf("\"peer\": \"%s\", \"ratio\": %.4g, ", peer, ratio);
  else printf("\"peer\": null, \"ratio\": null, ");
  printf("\"runs\": %d}\n", runs);
  (void)fflush(stdout);
}

#endif
