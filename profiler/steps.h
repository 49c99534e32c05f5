/* Where one step of a program ends and the next begins, in what was recorded of it. Each process has its own steps.
 *
 * range: a step is an NVTX range of a given name. marks: the program said where each begins (PROF_STEP), and may have
 * said where it ends; else it lasts to the next one, the last to the end. A step begins on its device with the first work whose launching call (same correlation) lies in the
 * range, and ends where the next step begins; where more than half a range's length lies between two ranges, at the end
 * of the last work launched in it. Without such work the host's times hold. auto: by the order of kernels on the
 * busiest stream. A text stands for each kernel, its name and grid, or only its name (shapes that alternate), alone or
 * with the two before it (kernels that come often). An anchor is a text that comes back at a regular distance d,
 * counted in kernels: of the distances between its places at least 70 % are within a quarter of their median d, and
 * those sum to a part of the whole, its coverage.
 *   - Where kernels of the optimizer are, only they may be anchors, with a coverage of at least 0.3 (evaluations may
 * lie between), so that all passes of gradient accumulation are one step. The least d is the period, the last anchor of
 * a period ends the step.
 *   - Else the period is the least d whose coverage is within 0.015 of the best: layers of a step come back at a
 * shorter distance, but not across its ends; what is done every few steps comes back at a longer one. Of its anchors
 * one that leaves a whole period after its last place begins the step. Where an anchor was lost, a distance of k
 * periods is divided when the other anchors of the period came k times in it. Fewer than 3 steps, or 2 kernels a step,
 * are none.
 *
 * confidence, for auto: r * (1 - 1/n) * c. r is the part of the n steps, but the first, whose number of kernels is
 * within a quarter of the period; c is 1 with kernels of the optimizer, else the coverage. 1 for ranges and marks.
 */
#ifndef DP_PROFILER_STEPS_H
#define DP_PROFILER_STEPS_H

#include "profiler/session.h"

typedef enum prof_steps_how { PROF_STEPS_AUTO, PROF_STEPS_RANGE, PROF_STEPS_MARKS } prof_steps_how;

typedef struct prof_step {
  uint16_t process;
  uint64_t number; /* in its process, from 0; of marks: theirs */
  int64_t start_ns, end_ns;
  bool odd; /* of auto: its number of kernels is not within a quarter of the period */
} prof_step;

typedef struct prof_process_steps {
  prof_steps_how how;
  uint64_t count;
  size_t period;     /* kernels of a step; 0 unless auto */
  double confidence; /* 0 to 1 */
  const char *why;   /* a sentence; arena-owned */
} prof_process_steps;

typedef struct prof_steps {
  dp_arena arena;
  DP_ARRAY(prof_step) items;     /* by process and start */
  prof_process_steps *processes; /* [session->processes.count]; of the arena */
} prof_steps;

/* `classes`: of prof_rules_classes. `range`: the name, for PROF_STEPS_RANGE, DP_BAD_INPUT when no process has such a
 * range. PROF_STEPS_AUTO takes marks where a process has some. A process without steps gets 0 and why. */
dp_status prof_steps_find(const prof_session *session, const unsigned char *classes, prof_steps_how how,
                          const char *range, prof_steps *steps, dp_error *error);
void prof_steps_free(prof_steps *steps);

/* Inside: the steps of one process by its kernels. */
dp_status prof_steps_auto(const prof_session *session, const unsigned char *classes, uint16_t process,
                          prof_steps *steps, dp_error *error);

#endif
