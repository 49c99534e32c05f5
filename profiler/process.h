/* Who a process that records is, and its clocks. */
#ifndef DP_PROFILER_PROCESS_H
#define DP_PROFILER_PROCESS_H

#include "profiler/record.h"

int64_t prof_process_now_ns(void); /* CLOCK_MONOTONIC: the clock of records */
/* Both at one moment. */
void prof_process_clocks(int64_t *realtime_ns, int64_t *clock_ns);
/* Of the caller, now; rank -1: none. */
prof_header prof_process_header(int32_t rank);
uint32_t prof_process_thread(void); /* of the caller, as the system numbers it */

#endif
