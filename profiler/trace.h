/* A session as Chrome trace events, for Perfetto: a process each with a row for its steps, one for each stream of a
 * device, and one for each thread of the host with its calls and ranges; memory as a counter of each device.
 *
 * `ts` and `dur` are µs with 3 decimals, from the first record's start, whose CLOCK_REALTIME in ns is
 * otherData.start_ns. Ranges with an id may cross others, so they are asynchronous events. A pop without a push and
 * what was pushed and never popped are left out. Categories of work are its classes.
 */
#ifndef DP_PROFILER_TRACE_H
#define DP_PROFILER_TRACE_H

#include "profiler/classes.h"
#include "profiler/steps.h"

dp_status prof_trace_write(const prof_session *session, const unsigned char *classes, const prof_steps *steps,
                           const char *path, dp_error *error);

#endif
