/* The event engine: plays a program in virtual time.
 *
 * Rules. A compute instruction starts when it heads its lane, its waits are done, and the host has begun to issue it; it
 * ends at the later of start + work and the end of its issue (host-bound work runs at the host's pace). The host of a
 * worker issues that worker's compute instructions in lane order, one after another, from time 0, and runs ahead freely.
 * A SEND and its RECV start together when both head their lanes and have their waits done; they last alpha + n/beta on
 * the message's route, sharing links by max-min fairness. An ALL_REDUCE starts when every member is ready and is one flow
 * over all links of its ring. While a transfer or collective touches a worker's device, its compute runs
 * (1 + slowdown) times longer; while either end computes at the start of a transfer, the transfer has the busy latency
 * and busy cap. Ties break by time, then instruction id (worker, lane, position), so a run is reproducible to the bit.
 * Times are doubles in seconds. Nothing is allocated while it runs.
 */
#ifndef DP_SIM_ENGINE_H
#define DP_SIM_ENGINE_H

#include "plan/program.h"
#include "plan/timeline.h"

/* How a message class or a collective class travels. */
typedef struct sim_transfer {
  const int *links; /* link ids; none: the transfer is bound only by its cap */
  int hops;
  double bytes;     /* bytes of the flow: 0 = no time at all */
  double latency_s, cap_bytes_per_s;           /* alone; cap <= 0 means unbounded */
  double busy_latency_s, busy_cap_bytes_per_s; /* when either end computes as it starts */
  double compute_slowdown;                     /* of compute on both ends' devices while it lasts */
} sim_transfer;

typedef struct sim_input {
  const plan_program *program;
  const double *work_s;          /* [work_count] device time of each work class */
  const double *work_issue_s;    /* [work_count] host time to issue it; NULL: hosts cost nothing */
  const sim_transfer *messages;  /* [message_count] */
  const sim_transfer *collectives; /* [collective_count] */
  const double *link_capacity_bytes_per_s; /* [link_count] */
  int link_count;
  const int *worker_host;        /* [worker_count] workers with the same number share one host thread; NULL: one each */
} sim_input;

typedef struct sim_statistics {
  uint64_t events;         /* heap pops */
  uint64_t rate_changes;   /* flow or compute finish times that moved */
  uint64_t memory_bytes;   /* what the engine itself allocated */
} sim_statistics;

/* The timeline must have been made for input->program. DP_INTERNAL with the stuck instruction of each worker when the
 * program cannot go on (plan_program_check would have said so). statistics may be NULL. */
dp_status sim_run(const sim_input *input, plan_timeline *timeline, sim_statistics *statistics, dp_error *error);

#endif
