/* How a step on devices ends that cannot end by itself; internal to exec/.
 *
 * Ten times a second the thread that plays a step looks at all that may have become of it: the run is lost
 * (exec/watch.h); a library has found an error since (exec_device_kind.look_at_wires: NCCL's, with the peer's name); or nothing
 * has moved, neither the host's threads nor a device, for as long as exec_stall_patience_s allows (a run of one process
 * waits for its own threads, which may read a disk, as long as no device works). Whoever else waits
 * within a step, a lane's thread for an event, for NCCL or for a message, has no limit of its own and ends when the step
 * is stopped. So there is one limit, and one line, which names worker, instruction, peer and how long.
 *
 * A step that was given up may leave threads in a call of the driver, and work on the devices, behind. Communicators are
 * then aborted, so that what waits for other processes ends; where something stays all the same, nothing that it works
 * on may be freed, and only the end of the process helps.
 */
#ifndef DP_EXEC_STALL_H
#define DP_EXEC_STALL_H

#include "exec/lanes.h"

#define EXEC_LOOK_S 0.1 /* how often a sleeper looks whether the step goes on */

/* How long nothing may move: DIFFPIPE_STALL_S of the environment, else 25 s, or ten times the longest step so far, in
 * whose course a process may have nothing to do but to wait for others; in the first step, in which others may be slow,
 * at least ten minutes. */
double exec_stall_patience_s(const exec_pipeline *pipeline);
/* From now on; before the step's first wait. */
void exec_stall_begin(exec_pipeline *pipeline);
/* By the thread that plays the step, as often as it likes: it looks when EXEC_LOOK_S have gone by. The lock is not held.
 * DP_RUN_FAILED: the step will not end. */
dp_status exec_stall_look(exec_pipeline *pipeline, dp_error *error);
/* After a step that failed: aborts what waits for other processes, and waits up to 5 s for all to end. False: something
 * stays (or has stayed, in a pipeline of the same workers), and no memory may be freed. */
bool exec_stall_leave(exec_pipeline *pipeline);

#endif
