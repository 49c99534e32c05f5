/* Bringing the clocks of several processes' devices together; internal to exec/.
 *
 * What a device did is known by its own clock, which a process ties to the host's once a step, some microseconds wrong (or
 * milliseconds, where processes take turns on a device). But no transfer ends at one end before it has begun at the
 * other, and no member of a collective is through before the last has come. That bounds the clocks' differences on both
 * sides; processes are moved as little as that allows.
 */
#ifndef DP_EXEC_ALIGN_H
#define DP_EXEC_ALIGN_H

#include "plan/timeline.h"

/* All workers' times, those of a process a run: afterwards no end of a transfer or a collective is before the start of
 * another, unless no shift of whole processes makes it so. Times grow, or stay. groups: NULL where the collectives did
 * nothing. */
dp_status exec_align_clocks(const plan_program *program, const plan_groups *groups, int processes,
                            plan_timeline *timeline, dp_error *error);

#endif
