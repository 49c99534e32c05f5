/* A recorded run on other devices: the same work in the same order, each piece as long as it would be there.
 *
 * The law. Everything is set in time again in the order in which it was measured. What happens at t, after others that
 * it depends on, the last of them at m, happens at t' = m' + (t - m): m' is the last of the new times of all that it
 * depends on, the lag t - m stays. With work as long as it was, every time stays as it was. It depends on:
 *
 *   a piece of work   the work of its stream that had ended or begun; the call that launched it (its end, where that
 *                     came before the work, else its start); and of other streams of its process
 *                       - what ended at most RETIME_NEAR_NS before it while its own stream stood still for more than
 *                         RETIME_STILL_NS though it was launched: it was seen to wait for that;
 *                       - NCCL's kernels: the last work launched before that had ended: they send what it computed;
 *                       - the optimizer's kernels: NCCL's last that had ended;
 *                       - the first work of a step: all that had ended.
 *   its end           its start, and how long it takes there (work_s). A collective that all processes take part in
 *                     moves data from when the last of them began until the first ended: only that is handed to work_s,
 *                     the rest was waiting and is found again.
 *   the host          a thread's calls follow each other as they did, their lags times host_factor. A call in which the
 *                     host waits ends after all that had ended on its process' devices, and one that launched a copy
 *                     after that, where it ended before the call. One that launched other work ends after the work
 *                     that had ended last, if that was within the call, and it took longer than RETIME_LONG_NS, or than
 *                     RETIME_CALL_NS while RETIME_QUEUE launches were not done: the queue was full. It takes
 *                     RETIME_CALL_NS of the host at least. A thread that was in no call for longer than away_ns goes on
 *                     after the last call of the others, if there was one in that time.
 *   a step's ends     the last start or end of work before them.
 *
 * So what was hidden stays hidden until it is the longest, and a device that has become faster stands still for its
 * host. What is not in the records cannot be kept: a stream that waited for another's event without ever losing time
 * by it is not seen to, but by the rules above. Work that slows down other work beside it does so as it did.
 */
#ifndef DP_PROFILER_RETIME_H
#define DP_PROFILER_RETIME_H

#include "profiler/classes.h"
#include "profiler/steps.h"

enum {
  RETIME_STILL_NS = 2000,
  RETIME_NEAR_NS = 20000,
  RETIME_LONG_NS = 100000,
  RETIME_CALL_NS = 5000,
  RETIME_QUEUE = 500 /* the driver's queue takes some 1000 */
};

typedef struct prof_retime_how {
  /* Seconds that work takes there which took measured_s, by its record; at least 0. */
  double (*work_s)(const void *context, const prof_record *work, double measured_s);
  const void *context;
  double host_factor; /* 0: 1 */
  int64_t away_ns;    /* 0: 1 ms */
} prof_retime_how;

/* A session of its own times; names, processes and devices are those of the one that it was made from, which must
 * outlive it. */
typedef struct prof_retimed {
  prof_session session;
  prof_steps steps;
  size_t collectives; /* matched among the processes; 0: one process, or they do not match */
} prof_retimed;

dp_status prof_retime(const prof_session *session, const unsigned char *classes, const prof_steps *steps,
                      const prof_retime_how *how, prof_retimed *retimed, dp_error *error);
void prof_retimed_free(prof_retimed *retimed); /* safe on a zeroed one */

#endif
