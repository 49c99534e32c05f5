/* What the engine knows while it runs: made whole by engine_prepare.c, played by engine.c. Internal to sim/. */
#ifndef DP_SIM_ENGINE_STATE_H
#define DP_SIM_ENGINE_STATE_H

#include "sim/engine.h"
#include "sim/heap.h"
#include "sim/network.h"

#define SIM_NONE UINT32_MAX

typedef enum sim_lane_phase {
  SIM_LANE_IDLE,    /* its head waits for instructions of its worker, or there is none left */
  SIM_LANE_READY,   /* its head waits for its peer, or for the other members of its group */
  SIM_LANE_RUNNING
} sim_lane_phase;

typedef struct sim_lane {
  uint32_t head, end;    /* the next or running instruction; one past the lane's last */
  uint32_t partner;      /* SEND, RECV: the lane where the peer was found last; at first the lane itself */
  uint32_t worker;
  uint32_t waiting_for;  /* the first wait of the head that is not done, or SIM_NONE */
  uint32_t wait, wait_end; /* of the next instruction to start: its waits not yet known to be done, */
  uint32_t class_id, peer; /* and what it is. Fetched when the one before it starts, long before they are needed */
  uint8_t kind, phase;   /* plan_lane_kind, sim_lane_phase */
  bool is_waiter;        /* among the engine's waiters */
  bool flowing;          /* the event queued is the end of a flow in the network, not of the instruction */
} sim_lane;

/* A class of messages or collectives whose time depends on what else happens. */
typedef struct sim_travel {
  double bytes, latency_s, cap, busy_latency_s, busy_cap; /* caps include all capacities on the path; may be INFINITY */
  double slowdown, waiting_slowdown;
  const int *shared;     /* those of its links that can ever be full by the flows of several lanes */
  uint32_t shared_count;
  bool asks_busy;
} sim_travel;

/* The running compute instruction of a worker, where rates can change. */
typedef struct sim_compute {
  double remaining_s; /* work left at since_s, at full speed */
  double since_s;     /* may lie ahead: its start, when the host is late */
  double stretch;     /* 1 + the largest slowdown that touches the worker + all of its ends that wait */
  double issued_s;
} sim_compute;

typedef struct sim_engine {
  const sim_input *input;
  const plan_program *program;
  plan_timeline *timeline;
  sim_lane *lanes;
  uint64_t *done; /* a bit an instruction */
  sim_heap queue;
  double now_s;
  uint32_t remaining; /* instructions not done */

  /* Class -> duration that nothing can change, or -1: see travels. Messages, then collectives. */
  double *fixed_s;
  sim_travel *travels;

  uint32_t *instant, instant_count;   /* running lanes that end now */
  uint32_t *waiters, waiter_count;    /* lanes that began to wait for others in this instant, and slow compute by it */
  uint32_t *deferred, deferred_count; /* leading lanes of travels that start once this instant has come to rest */

  uint32_t *group_first;  /* [group_count + 1] into group_lanes; the first is the group's leading lane */
  uint32_t *group_lanes;
  uint32_t *group_ready;  /* [group_count] members that are ready */

  bool stretches;         /* some travel has a slowdown */
  sim_compute *computes;  /* [worker_count] */
  double *lane_slowdown;  /* [lane_count] of the travel under way on it, or waited with */

  sim_network *network;   /* NULL: no links are shared */
  bool network_changed;
  uint32_t *lane_flow, *flow_lane;
  double *lane_latency_s; /* [lane_count] of the travel under way */

  sim_statistics statistics;
  void *memory, *shared_links;
} sim_engine;

/* Checks the figures, sizes and fills everything. On failure nothing is left to release. */
dp_status sim_engine_prepare(const sim_input *input, plan_timeline *timeline, sim_engine *engine, dp_error *error);
void sim_engine_release(sim_engine *engine);

/* When the host has issued each compute instruction, into timeline->issue_s. */
dp_status sim_engine_issue(const sim_input *input, plan_timeline *timeline, dp_error *error);

/* The lane that instruction belongs to, by bisection. */
uint32_t sim_engine_lane_of(const plan_program *program, uint32_t instruction);

#endif
