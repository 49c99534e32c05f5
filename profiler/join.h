/* What was recorded of a run of our own, joined to the instructions of its program: which kernels and copies each one
 * was, and from them the same timeline as a prediction has.
 *
 * The run says when each step began and ended (PROF_STEP) and when a thread of its host put an instruction's work into
 * queues (PROF_INSTRUCTION). A call lies in the instruction that its thread then worked on, and what it launched, all
 * nodes of a CUDA graph as well as a single kernel, has its correlation. Kernels of NCCL may be launched by a thread of
 * NCCL's own: they belong to the only transfer that was being put into a queue then, or, of several, to that whose lane
 * the stream is known by others to belong to. All other work of a device in a step is stray.
 *
 * An instruction lasts from the start of its first piece of work to the end of its last. One without work ends when all
 * that it waits for has. The ends of a transfer, and the members of a collective, have the times of those of them that
 * did the work.
 *
 * A step is told of when all of it is there and its records have times that can be (profiler/join_times.h).
 */
#ifndef DP_PROFILER_JOIN_H
#define DP_PROFILER_JOIN_H

#include "plan/timeline.h"
#include "profiler/classes.h"
#include "profiler/nodes.h"

typedef struct prof_work {
  uint32_t instruction;
  int32_t unit;  /* of the model; PROF_NO_UNIT: none, or it is not known */
  uint8_t class; /* prof_class */
  double start_s, end_s;
} prof_work;

typedef struct prof_joined {
  uint64_t number;          /* the run's */
  plan_timeline timeline;   /* with issue_s: when the host had put the instruction into a queue */
  double *begin_s;          /* [instruction] when it began to; malloc'ed */
  DP_ARRAY(prof_work) work; /* by instruction and start */
  uint64_t stray;           /* pieces of work of devices that are of no instruction */
  double stray_s;
} prof_joined;

typedef struct prof_join {
  DP_ARRAY(prof_joined) steps; /* by number */
  uint64_t torn;               /* steps of which not every instruction was recorded: they are left out */
  uint64_t impossible;         /* others with records of times that cannot be: they are left out, too */
} prof_join;

/* Of the last `most` steps that were recorded. `classes`: of prof_rules_classes. The program outlives the result. */
dp_status prof_join_of(const prof_session *session, const unsigned char *classes, const plan_program *program,
                       size_t most, prof_join *join, dp_error *error);
/* Of a folder of records, with the classes of the installed rules. The caller frees both, after a failure, too. */
dp_status prof_join_read(const char *folder, const plan_program *program, size_t most, prof_session *session,
                         prof_join *join, dp_error *error);
void prof_join_free(prof_join *join); /* safe on a zeroed one */

#endif
