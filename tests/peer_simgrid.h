/* SimGrid (https://simgrid.org) as a peer of the engine: the same program as a graph of SimGrid's activities. Only for the
 * benchmark, only where configure found it; plain data, so that the two sides share no header. */
#ifndef DP_TESTS_PEER_SIMGRID_H
#define DP_TESTS_PEER_SIMGRID_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct peer_task { /* computes `seconds` on host `from`, or moves `bytes` from host `from` to host `to` */
  uint32_t from, to;
  double seconds;
  uint64_t bytes; /* 0: computes */
} peer_task;

typedef struct peer_route {
  uint32_t from, to;
  const int *links;
  int hops;
} peer_route;

typedef struct peer_input {
  uint32_t host_count, task_count, order_count, route_count;
  int link_count;
  const peer_task *tasks;
  const uint32_t (*orders)[2]; /* task [0] before task [1] */
  const peer_route *routes;    /* one for each pair of hosts that talk */
  const double *capacity_bytes_per_s, *link_latency_s;
} peer_input;

/* Simulates in a process of its own, since SimGrid can be started once in each. step_s: virtual; build_s and run_s: what
 * it took to make the activities and to play them; peak_bytes: of that process. 0, or -1 when it failed. */
int peer_simgrid_run(const peer_input *input, double *step_s, double *build_s, double *run_s, uint64_t *peak_bytes);

#ifdef __cplusplus
}
#endif
#endif
