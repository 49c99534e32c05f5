/* Which GPU each worker computes on, over all processes of a run; internal to exec/.
 *
 * Processes of one host that see the same GPUs (by their UUIDs) deal their workers out over them together, in order and
 * in equal runs; a process that sees others than its neighbours do (CUDA_VISIBLE_DEVICES) has those for itself. Workers
 * of one process that share a GPU take equal parts of it (green contexts); workers of several processes cannot: each
 * process has all of the GPU, in turns or, under MPS, beside the others.
 */
#ifndef DP_EXEC_PLACE_H
#define DP_EXEC_PLACE_H

#include <string.h>

#include "exec/pipeline.h"

enum { EXEC_MAX_GPUS = 16 };

/* Of a process, as processes send it. */
typedef struct exec_host_facts {
  char host[64];               /* the same for processes that share memory */
  int32_t gpu_count, sm_count; /* sm_count: multiprocessors of the least of them */
  unsigned char uuids[EXEC_MAX_GPUS][16];
} exec_host_facts;

/* Of this process; its GPUs are the caller's to fill in. Processes with another DIFFPIPE_HOSTID in their environment
 * count as on another host, wherever they are. */
void exec_host_facts_init(exec_host_facts *facts);
static inline bool exec_same_host(const exec_host_facts *facts, int a, int b) {
  return strcmp(facts[a].host, facts[b].host) == 0;
}

/* places[workers], as each worker's own process counts GPUs. Every process has a GPU and workers / processes workers.
 */
void exec_deal_places(const exec_host_facts *facts, int processes, int workers, exec_place *places);

/* Of one process alone, over that many GPUs: as above. */
static inline exec_place exec_place_dealt(int worker, int workers, int gpus) {
  const int each = (workers + gpus - 1) / gpus, gpu = worker / each, left = workers - gpu * each;
  return (exec_place){gpu, worker - gpu * each, left < each ? left : each};
}

/* Of a run of one process. The devices of the plan's cluster are the machine's GPUs, card by card and part by part,
 * where it has as many; else workers are dealt out over those that there are, as above. gpus >= 1. */
void exec_place_workers(const plan_program *program, const plan_cluster *cluster, int gpus, exec_place *places);

/* Whether two workers are on one GPU; of two processes, or not. */
bool exec_share_gpu(const exec_host_facts *facts, const exec_place *places, int each, int worker_a, int worker_b);

#endif
