/* Bringing the clocks of several processes' devices together, and then the two ends of each transfer; internal to exec/.
 *
 * What a device did is known by its own clock, which a process ties to the host's once a step, some microseconds wrong
 * (or milliseconds, where processes take turns on a device). But nothing has come before its sender has begun, and no
 * member of a collective is through before the last has come. Nor does a sender end before its receiver has begun,
 * where that copies from the sender's memory; by other ways what is sent may wait in buffers. That bounds the clocks'
 * differences on both sides; processes are moved as little as it allows.
 */
#ifndef DP_EXEC_ALIGN_H
#define DP_EXEC_ALIGN_H

#include "plan/timeline.h"

/* Whether a lane's sends end only after they have begun at the other end. */
typedef bool (*exec_align_meet)(const void *data, const plan_lane *sends);

/* All workers' times, those of a process a run: afterwards no end of a transfer or a collective is before the start of
 * another, unless no shift of whole processes makes it so. Times grow, or stay. groups: NULL where the collectives did
 * nothing. meet, of `data`: NULL where all sends do. */
dp_status exec_align_clocks(const plan_program *program, const plan_groups *groups, int processes, exec_align_meet meet,
                            const void *data, plan_timeline *timeline, dp_error *error);

/* The ends of a transfer, and the members of a collective, start together: when the last of them is ready. But where a
 * message may wait in buffers, its sender goes on before the receiver has begun: those sends stay as they are, and nothing
 * is received before they begin. groups, meet: as above. Times grow, or stay. */
void exec_join_ends(const plan_program *program, const plan_groups *groups, exec_align_meet meet, const void *data,
                    plan_timeline *timeline);

#endif
