#include "profiler/join_times.h"

#include <stdlib.h>

bool prof_times_init(size_t step_count, size_t lane_count, prof_times *times) {
  *times = (prof_times){.step_count = step_count, .lane_count = lane_count};
  times->wrong = calloc(step_count + 1, sizeof *times->wrong);
  times->busy_ns = calloc(step_count * lane_count + 1, sizeof *times->busy_ns);
  return times->wrong && times->busy_ns;
}

void prof_times_add(prof_times *times, size_t step, size_t lane, int64_t start_ns, int64_t end_ns, int64_t from_ns,
                    int64_t to_ns) {
  const double step_ns = (double)(to_ns - from_ns);
  const int64_t slack_ns = PROF_TIMES_SLACK_NS + (int64_t)(PROF_TIMES_SLACK * step_ns);
  const int64_t most_ns = to_ns - from_ns + slack_ns + (int64_t)(PROF_TIMES_OVERLAP * step_ns);
  if (start_ns < from_ns - slack_ns || end_ns > to_ns + slack_ns) times->wrong[step] = true;
  if (lane == PROF_TIMES_NO_LANE) return;
  int64_t *busy_ns = &times->busy_ns[step * times->lane_count + lane];
  *busy_ns += end_ns - start_ns;
  if (*busy_ns > most_ns) times->wrong[step] = true;
}

void prof_times_free(prof_times *times) {
  free(times->wrong);
  free(times->busy_ns);
  *times = (prof_times){.wrong = NULL};
}
