/* The library that is loaded into a program to record it: what its parts share. The driver loads it by
 * CUDA_INJECTION64_PATH when the program initialises CUDA, NVTX by NVTX_INJECTION64_PATH at the program's first range.
 * A program that does neither never sees it.
 *
 * Environment, set by `diffpipe profile`: DIFFPIPE_PROFILE_DIR, the folder for records (without it nothing is done);
 * DIFFPIPE_PROFILE_MB, how many MB of records a process keeps; DIFFPIPE_PROFILE_GRAPHS=whole.
 *
 * The program never fails for it: what cannot be recorded is said in one line on stderr.
 */
#ifndef DP_PROFILER_INJECT_H
#define DP_PROFILER_INJECT_H

#include "profiler/writer.h"

/* The process' writer, opened by the first call, with a thread that writes several times a second; NULL: nothing is
 * recorded. A forked child gets its thread by its first call. */
prof_writer *prof_inject_writer(void);
uint32_t prof_inject_thread(void); /* of the caller, as the system numbers it */

/* After fork, in the child: what is kept for each thread begins anew. */
void prof_nvtx_child(void);

#endif
