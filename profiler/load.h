/* How much work of a kind ran when, on a device: pieces of it are added, and then asked how much of a span of time they
 * filled, in O(log n). A moment at which two of them ran counts twice.
 */
#ifndef DP_PROFILER_LOAD_H
#define DP_PROFILER_LOAD_H

#include <stdint.h>

#include "base/array.h"

typedef struct prof_moment {
  int64_t at_ns;
  int64_t running; /* from then on; before prof_load_finish the change */
  int64_t sum_ns;  /* of all pieces, up to then */
} prof_moment;

typedef struct prof_load {
  DP_ARRAY(prof_moment) moments; /* ascending, after prof_load_finish */
} prof_load;

bool prof_load_add(prof_load *load, int64_t start_ns, int64_t end_ns); /* false: no memory */
void prof_load_finish(prof_load *load);                                /* once, after all were added */
/* The pieces' time between the two, from_ns <= to_ns. */
int64_t prof_load_between(const prof_load *load, int64_t from_ns, int64_t to_ns);
void prof_load_free(prof_load *load);

#endif
