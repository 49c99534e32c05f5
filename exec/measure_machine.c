#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "exec/measure.h"

/* "model name : AMD EPYC" of Linux; NULL: no such line. */
static const char *processor(dp_arena *arena) {
  FILE *stream = fopen("/proc/cpuinfo", "r");
  char line[256];
  const char *name = NULL;
  while (stream && !name && fgets(line, sizeof line, stream)) {
    const char *colon = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
    if (!colon) continue;
    colon += 1 + strspn(colon + 1, " \t");
    name = dp_arena_printf(arena, "%.*s", (int)strcspn(colon, "\n"), colon);
  }
  if (stream) (void)fclose(stream);
  return name && name[0] ? name : NULL;
}

dp_status exec_measure_machine(dp_arena *arena, const char **name, int *cores, dp_error *error) {
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  const char *found = processor(arena);
  *name = found ? found : dp_arena_strdup(arena, "unknown");
  *cores = count > 0 ? (int)count : 1;
  return *name ? DP_OK : dp_fail_memory(error);
}
