#include "profiler/mix.h"

#include <string.h>

#include "base/median.h"

void prof_mix_add(prof_mix *mix, const double seconds[GRAPH_CLASS_COUNT]) {
  for (int c = 0; c < GRAPH_CLASS_COUNT; c++) {
    if (mix->seen < PROF_MIX_STEPS) mix->first[c][mix->seen] = seconds[c];
    mix->newest[c][mix->seen % PROF_MIX_STEPS] = seconds[c];
  }
  mix->seen++;
}

static double median_of(const double values[PROF_MIX_STEPS]) {
  double sorted[PROF_MIX_STEPS];
  memcpy(sorted, values, sizeof sorted);
  return dp_median(sorted, PROF_MIX_STEPS);
}

int prof_mix_most(const prof_mix *mix, bool slower, double *ratio) {
  int most = -1;
  double most_s = 0;
  for (int c = 0; c < GRAPH_CLASS_COUNT && mix->seen >= 2 * PROF_MIX_STEPS; c++) {
    const double first_s = median_of(mix->first[c]), now_s = median_of(mix->newest[c]);
    const double more_s = slower ? now_s - first_s : first_s - now_s;
    if (first_s <= 0 || more_s <= most_s) continue;
    most = c;
    most_s = more_s;
    *ratio = now_s / first_s;
  }
  return most;
}
