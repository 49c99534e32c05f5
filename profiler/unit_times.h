/* What the units of a model took in the recorded steps of a run of our own, pass by pass, by the nodes of its CUDA graphs.
 *
 * Pieces of an instruction's work follow each other: one has the time from the end of all before it in the instruction, or
 * of the first from its start, to its own end; so gaps are of what comes after them, and units and what is of none sum to
 * the instruction. Of all instructions of a class (plan_work: a chunk's pass, or a part of it) the middle counts for each
 * unit. Every fifth is kept aside. A class is known of which UNIT_TIMES_LEAST instructions count and half of the time is of
 * its units.
 */
#ifndef DP_PROFILER_UNIT_TIMES_H
#define DP_PROFILER_UNIT_TIMES_H

#include "plan/profile_run.h"
#include "profiler/join.h"

enum { UNIT_TIMES_LEAST = 3, UNIT_TIMES_ASIDE = 5 };

typedef struct prof_unit_times {
  plan_recorded_units units; /* malloc'ed */
  uint64_t aside;            /* instructions */
  double error;              /* median relative error of the middles on the units of those */
} prof_unit_times;

/* join: of steps of `program`, which may be none. */
dp_status prof_unit_times_of(const prof_join *join, const plan_program *program, size_t unit_count,
                             prof_unit_times *times, dp_error *error);
void prof_unit_times_free(prof_unit_times *times); /* safe on a zeroed one */

#endif
