/* One record of CUPTI's activity API becomes one of ours. Nothing here calls CUPTI, so made-up records test it.
 *
 * Records are those of CUPTI 13 (CUpti_ActivityKernel10 and what goes with it): later versions only append to them.
 * A record whose time CUPTI could not take (start 0) is counted as lost by the source. Memory of the host, waits of one
 * stream for another, and kinds without a row here are passed over.
 */
#ifndef DP_PROFILER_CUPTI_CONVERT_H
#define DP_PROFILER_CUPTI_CONVERT_H

#include "profiler/writer.h"

enum { PROF_CUPTI_CALLS = 2048 }; /* numbers of calls whose names are kept; there are some 500 and 800 */

typedef struct prof_cupti {
  prof_writer *writer;
  /* Of a call of the runtime, else of the driver; NULL: it has none. */
  const char *(*call_name)(bool runtime, uint32_t id);
  uint32_t names[2][PROF_CUPTI_CALLS]; /* numbers of their strings; 0: not yet asked */
  bool waits[2][PROF_CUPTI_CALLS];     /* a call in which the host waits: PROF_SYNC */
} prof_cupti;

/* Adds it to the writer. `record`: a CUpti_Activity of any kind; what an overhead record owns is freed. */
void prof_cupti_take(prof_cupti *cupti, const void *record);

/* Which calls are worth their record: of the runtime all but those that ask or set something at once, of the driver,
 * which the runtime calls in turn, those that launch, copy, set, allocate or wait. */
bool prof_cupti_wants(bool runtime, const char *name);

#endif
