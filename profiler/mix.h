/* Of which classes of ops the time of a stage's pass is made: tells which of them a drift comes from
 * (profiler/drift.h). It sees the steps in which every op is timed, which take longer than others, so it is compared
 * with itself alone: the median of the newest PROF_MIX_STEPS against that of the first so many.
 */
#ifndef DP_PROFILER_MIX_H
#define DP_PROFILER_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/op.h"

enum { PROF_MIX_STEPS = 4 };

typedef struct prof_mix { /* zeroed: nothing was seen */
  double first[GRAPH_CLASS_COUNT][PROF_MIX_STEPS], newest[GRAPH_CLASS_COUNT][PROF_MIX_STEPS];
  int64_t seen;
} prof_mix;

/* A step: seconds of each class. */
void prof_mix_add(prof_mix *mix, const double seconds[GRAPH_CLASS_COUNT]);
/* The class whose time has grown most, or shrunk most where the drift is to faster; *ratio: its time now by that at
 * first. -1: none has, or fewer than twice PROF_MIX_STEPS were seen. */
int prof_mix_most(const prof_mix *mix, bool slower, double *ratio);

#endif
