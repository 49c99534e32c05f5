/* The event engine: plays a program in virtual time.
 *
 * Rules
 * - A compute instruction starts when it heads its lane, its waits are done, and the host has begun to issue it. It ends
 *   at the later of start + work and the end of its issue (host-bound work runs at the host's pace).
 * - The host of a worker issues that worker's compute instructions in lane order, one after another, from time 0, and
 *   runs ahead freely. A host thread that several workers share issues position 0 of each of them in worker order, then
 *   position 1, and so on. Transfers and collectives cost hosts nothing.
 * - A SEND and its RECV start together when both head their lanes and have their waits done, and end together. They move
 *   their bytes at the rate that max-min fairness over the links gives them (sim/network.h) and end one latency after
 *   the last byte has left; the links are free by then. Alone: latency + bytes / min(cap, least capacity on the path).
 *   Zero bytes take no time at all.
 * - An ALL_REDUCE starts when every member is ready and is one flow over all links of its ring; it ends for all alike.
 * - While transfers or collectives touch a worker, its compute runs (1 + the largest slowdown among them) times longer.
 * - While ends of transfers or collectives of a worker are ready and wait for the others, the sum of their waiting
 *   slowdowns is added to that: each holds what it has of the device.
 * - A transfer that starts while a worker it touches computes has the busy latency and the busy cap throughout.
 * - An instant is one set of changes: first all that ends at time t ends, and what can start does, zero-time work to its
 *   end; then all transfers that can start at t start together, and only now is it asked who computes (work that starts
 *   at t does, work that ends at t does not). So the order in which ties are taken has no influence.
 *
 * With neither busy figures, nor slowdown, nor shared hosts or links, start times are sums and maxima of durations, so
 * nothing that gets shorter makes anything later. With them, a change that speeds up one thing can slow another down (a
 * transfer now meets compute that it missed before), as on real machines.
 *
 * Times are doubles in seconds. The same input gives the same bits. Nothing is allocated while it runs.
 */
#ifndef DP_SIM_ENGINE_H
#define DP_SIM_ENGINE_H

#include "plan/program.h"
#include "plan/timeline.h"

/* How a message class or a collective class travels. */
typedef struct sim_transfer {
  const int *links; /* link ids, repeats allowed (a link crossed twice carries twice); none: bound only by the cap */
  int hops;
  double bytes;     /* bytes of the flow, >= 0; 0 = no time at all */
  double latency_s, cap_bytes_per_s;           /* alone; cap <= 0 means unbounded */
  double busy_latency_s, busy_cap_bytes_per_s; /* when a worker it touches computes as it starts */
  double compute_slowdown;                     /* of compute on the workers it touches while it lasts, >= 0 */
  double waiting_slowdown;                     /* of compute on one whose end is ready before the others', >= 0 */
  /* Of the latency, what passes in a run before it starts, and after its end. The engine does not look at these: its
   * spans have all of the latency, and the timeline of sim_predict is without them. */
  double before_s, after_s;
} sim_transfer;

typedef struct sim_input {
  const plan_program *program;
  const double *work_s;          /* [work_count] device time of each work class */
  const double *instruction_s;   /* [instruction_count] of compute, in place of work_s; NULL: instructions of a class are alike */
  const double *work_issue_s;    /* [work_count] host time to issue it; NULL: hosts cost nothing */
  const sim_transfer *messages;  /* [message_count] */
  const sim_transfer *collectives; /* [collective_count] */
  const double *link_capacity_bytes_per_s; /* [link_count] */
  int link_count;
  const int *worker_host;        /* [worker_count] workers with the same number share one host thread; NULL: one each */
} sim_input;

typedef struct sim_statistics {
  uint64_t events;         /* taken from the queue */
  uint64_t rate_changes;   /* flow or compute finish times that moved, and new flows on shared links */
  uint64_t shared_flows;   /* transfers that crossed a link which another lane's transfers use too */
  uint64_t solved_flows;   /* flows over all runs of the max-min solver */
  uint64_t memory_bytes;   /* what the engine itself allocated */
} sim_statistics;

/* The timeline must have been made for input->program. Where work_issue_s is given and timeline->issue_s is NULL, it is
 * allocated here, for plan_timeline_free to free; transfers have 0 in it. DP_INTERNAL for figures that are negative or no
 * numbers, and, with the stuck instruction of each worker, when the program cannot go on (plan_program_check would have
 * said so). statistics may be NULL. */
dp_status sim_run(const sim_input *input, plan_timeline *timeline, sim_statistics *statistics, dp_error *error);

#endif
