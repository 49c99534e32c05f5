/* A timeline taken apart into what each instruction added to it, and put together again.
 *
 * Every timeline of a program, predicted or measured, is a longest path through the same graph of events. An event is a
 * compute instruction, a SEND with its RECV, or all members of an ALL_REDUCE. With
 *
 *   ready(e) = max(0, the ends of what its members' lanes ran before, and of what its members wait for)
 *   delay(e) = the latest start of its members - ready(e)      handing over: a thread wakes up, a host issues
 *   length(m) = end(m) - that start                            work, or the bytes that travel
 *
 * end(m) = ready(e) + delay(e) + length(m) gives the timeline back exactly, whatever clocks said: delay and length may
 * be negative where clocks of several hosts differ. So two timelines of one program differ in delays and lengths only,
 * and what a difference does to the step is found by replaying with some of them changed.
 */
#ifndef DP_PLAN_REPLAY_H
#define DP_PLAN_REPLAY_H

#include "base/arena.h"
#include "plan/timeline.h"

typedef struct plan_replay {
  const plan_program *program;
  uint32_t event_count;  /* numbered so that an event comes after all that it waits for */
  uint32_t *event_first; /* [event_count + 1] into members */
  uint32_t *members;     /* [instruction_count] instructions, event by event */
  uint32_t *event_of;    /* [instruction_count] */
  uint32_t *lane_of;     /* [instruction_count] */
  double *end_s;         /* [instruction_count] of the last plan_replay_run */
  uint32_t *after;       /* [instruction_count] what it started after then: an instruction, or PLAN_NO_PEER */
  dp_arena arena;
} plan_replay;

/* What a timeline is made of. */
typedef struct plan_parts {
  double *delay_s;  /* [event_count] */
  double *length_s; /* [instruction_count] */
} plan_parts;

/* The program must outlive it. DP_INTERNAL: the program cannot end (plan_program_check says why). */
dp_status plan_replay_init(const plan_program *program, plan_replay *replay, dp_error *error);
void plan_replay_free(plan_replay *replay);

/* Made in the replay's arena. */
dp_status plan_replay_dissect(plan_replay *replay, const plan_timeline *timeline, plan_parts *parts, dp_error *error);

/* Runs with (1 - t) * a + t * b; gives the instruction that ends last (of equal ones the first), PLAN_NO_PEER where
 * there is none. */
uint32_t plan_replay_run(plan_replay *replay, const plan_parts *a, const plan_parts *b, double t);

/* What lies between two timelines, shared out: effects of delays and lengths whose sum is the difference of the latest
 * ends, b's minus a's.
 *
 * Along the straight line from a to b the latest end is a maximum of straight lines, one a path of the program, so it
 * is convex in t. Where a path is the longest, each delay and length on it adds its own difference times the piece of
 * the line: what never lies on a longest path gets nothing, and a single change gets everything. (These are the
 * Aumann-Shapley prices of Billera and Heath 1982, "Allocation of shared costs".) The pieces are found by intersecting
 * the lines of the ends, at most PLAN_REPLAY_RUNS times; the sum is exact all the same. */
enum { PLAN_REPLAY_RUNS = 400 };
dp_status plan_replay_share(plan_replay *replay, const plan_parts *a, const plan_parts *b, plan_parts *effect_s,
                            dp_error *error);

#endif
