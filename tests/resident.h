/* How much memory this process has resident, as Linux counts it. */
#ifndef DP_TESTS_RESIDENT_H
#define DP_TESTS_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of /proc/self/status in bytes: "VmRSS:", now resident; "VmHWM:", the most so far. 0 where there is none. */
static inline int64_t resident_bytes(const char *key) {
  char line[256];
  int64_t kilobytes = 0;
  FILE *file = fopen("/proc/self/status", "r");
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, key, strlen(key)) == 0) kilobytes = strtoll(line + strlen(key), NULL, 10);
  (void)fclose(file);
  return 1024 * kilobytes;
}

/* From here on the most is what comes; false where the system does not let it be forgotten. */
static inline bool resident_forget_peak(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (file == NULL) return false;
  const bool written = fputs("5", file) >= 0;
  return fclose(file) == 0 && written;
}

#endif
