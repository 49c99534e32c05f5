/* Whether the times of a step's records can be: CUPTI has given work the end of a later launch, which lasted as long as
 * the whole step or beyond it. By the marks that the run set around the step, on the same clock:
 *   no piece of work begins before the step or ends after it, with a slack of PROF_TIMES_SLACK_NS and PROF_TIMES_SLACK of
 *   the step, for clocks of devices that were set a little wrong,
 *   and all pieces of one compute lane together take no longer than the step, with that slack and PROF_TIMES_OVERLAP of
 *   it, for kernels whose ends overlap. Lanes and no streams, whose numbers CUPTI gives anew in each part of a card.
 */
#ifndef DP_PROFILER_JOIN_TIMES_H
#define DP_PROFILER_JOIN_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROF_TIMES_SLACK 0.01
#define PROF_TIMES_OVERLAP 0.1
enum { PROF_TIMES_SLACK_NS = 100000 };
#define PROF_TIMES_NO_LANE SIZE_MAX

typedef struct prof_times {
  size_t step_count, lane_count;
  bool *wrong;      /* [step] */
  int64_t *busy_ns; /* [step][lane] */
} prof_times;

bool prof_times_init(size_t step_count, size_t lane_count, prof_times *times); /* false: there is no memory */
/* A piece of a step's work, of a compute lane or PROF_TIMES_NO_LANE; the step was from and to, as its process says. */
void prof_times_add(prof_times *times, size_t step, size_t lane, int64_t start_ns, int64_t end_ns, int64_t from_ns,
                    int64_t to_ns);
void prof_times_free(prof_times *times); /* safe on a zeroed one */

#endif
