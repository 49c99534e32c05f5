/* Counting checks, for plain programs that test on a device: tests/cuda_suite.h has those of single kernels. */
#ifndef DP_TESTS_CUDA_CHECKS_H
#define DP_TESTS_CUDA_CHECKS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int passed, failed;
static const char *now = ""; /* what is tested, for failures; empty: their text says it */

static void check(bool right, const char *format, ...) {
  va_list arguments;
  if (right) {
    passed++;
    return;
  }
  failed++;
  va_start(arguments, format);
  printf("FAIL %s%s", now, now[0] ? ": " : "");
  (void)vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
  (void)fflush(stdout);
}

#endif
