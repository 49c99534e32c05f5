/* Recording with CUPTI's activity API: finds the library when asked, gives it buffers, and turns what comes back into
 * records. One for a process, since CUPTI's callbacks know no more than that.
 *
 * Memory: up to PROF_CUPTI_BUFFERS buffers of PROF_CUPTI_BUFFER_BYTES; where none is free CUPTI drops records, which is
 * counted as lost by the source. A buffer that CUPTI is done with is only put into a queue by whichever thread brings
 * it; prof_capture_pump, on a thread of one's own, does the rest. Times are those of prof_process_now_ns.
 *
 * Nodes of CUDA graphs are recorded one by one, or each launch as a whole, which costs a program with many small nodes
 * less.
 */
#ifndef DP_PROFILER_CUPTI_CAPTURE_H
#define DP_PROFILER_CUPTI_CAPTURE_H

#include "profiler/writer.h"

enum { PROF_CUPTI_BUFFERS = 256, PROF_CUPTI_BUFFER_BYTES = 1 << 20 };

/* Once in a process, before or while CUDA is initialised. DP_UNSUPPORTED says why nothing will be recorded: CUPTI was
 * not found, somebody else holds it, or it is forbidden. */
dp_status prof_capture_start(prof_writer *writer, bool whole_graphs, dp_error *error);
/* Before prof_capture_start: who is told of nodes of CUDA graphs as they are made, on the thread that makes
 * them, until prof_capture_finish. from: the node that it is a copy of, as those of executable graphs are; 0: none. */
typedef void (*prof_capture_node)(void *data, uint64_t node, uint64_t from);
void prof_capture_follow(prof_capture_node note, void *data);
uint32_t prof_capture_graph(void *graph); /* of a cudaGraphExec_t the upper half of its nodes' ids; 0: not known */
/* Records kernels, copies, memsets and calls of CUDA no more, or again; memory, overhead and devices always. Where no
 * work is under way, as between two steps when the devices were waited for: of what is, there may be a record or none.
 * What CUPTI makes of graphs depends on what is on when they are launched. Before it switches off it takes all records
 * that are complete: of a graph's kernels CUPTI 13.0 looks up the times only then, and a launch that came between, which
 * is not recorded, has put its own there. False: CUPTI refuses, and nothing more is recorded until a later call is not
 * refused. */
bool prof_capture_switch(bool on);
/* Turns what CUPTI brought into records and writes them; with `flush` asks it first for buffers that are not full but
 * whose records are complete. Any thread, one at a time. */
void prof_capture_pump(bool flush);
/* The last pump, with all that there is, complete or not: when the process ends. No device is waited for. */
void prof_capture_finish(void);

/* After fork, in the child: it has CUPTI's memory but not its threads, and never calls it again. */
void prof_capture_child(void);

#endif
