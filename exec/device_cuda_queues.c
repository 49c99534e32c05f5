/* A device's queues, one a lane. The device has 32 of its own behind them, a process (CUDA_DEVICE_MAX_CONNECTIONS): of
 * more, what waits in one holds up what is in another that shares it, be that a worker's compute. On eight parts of an
 * H200, whose skips need 41, a forward waited 16 ms with all that it reads at hand. So where there are too many, the
 * lanes whose messages go farthest, which are skips that nobody waits for soon, share a queue a worker, and in that
 * nothing waits: the lane's thread puts a copy there once all that it waits for has come. A copy through the host's
 * memory has a queue of the sender's device, too, that waits as long as the lane's does. */
#include <stdlib.h>

#include "exec/device_cuda_stage.h"
#include "exec/device_cuda_wire.h"

/* Two are left to others of the process. */
enum { MOST_QUEUES = 32 - 2 };

static bool has_queue(const exec_pipeline *p, uint32_t lane) {
  return p->work.program->lanes[lane].kind == PLAN_LANE_COMPUTE || !exec_is_done_by_others(p, lane);
}

/* How far a lane's messages go, in workers; 0: it has none, or another process has its other end. */
static uint32_t reach_of(const exec_pipeline *p, uint32_t lane) {
  const plan_lane *of = &p->work.program->lanes[lane];
  if (of->kind == PLAN_LANE_COMPUTE || of->kind == PLAN_LANE_COLLECTIVE || !exec_is_here(p, of->peer)) return 0;
  return of->worker > of->peer ? of->worker - of->peer : of->peer - of->worker;
}

/* Whether it takes queues of a GPU. */
static bool is_on(const exec_pipeline *p, uint32_t lane, int gpu) {
  return has_queue(p, lane) &&
         (exec_cuda_at(p, exec_cuda_worker_of(p, lane))->gpu == gpu ||
          (exec_cuda_is_staged(p, lane) && exec_cuda_at(p, p->work.program->lanes[lane].peer)->gpu == gpu));
}

/* The one with the longest reach of a GPU that is not patient yet. */
static uint32_t farthest(const exec_pipeline *p, const exec_cuda_lanes *l, int gpu) {
  uint32_t found = UINT32_MAX, reach = 1; /* to the next worker is not far */
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++)
    if (is_on(p, lane, gpu) && !l->patient[lane] && reach_of(p, lane) > reach) {
      found = lane;
      reach = reach_of(p, lane);
    }
  return found;
}

static int count_queues(const exec_pipeline *p, const exec_cuda_lanes *l, int gpu) {
  int count = 0;
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++) {
    const uint32_t worker = exec_cuda_worker_of(p, lane);
    if (!l->patient[lane] && exec_cuda_is_staged(p, lane))
      count += exec_cuda_at(p, p->work.program->lanes[lane].peer)->gpu == gpu;
    if (!has_queue(p, lane) || exec_cuda_at(p, worker)->gpu != gpu) continue;
    bool first = true; /* of those that share its worker's */
    for (uint32_t other = p->first_lane; l->patient[lane] && other < lane; other++)
      first = first && !(l->patient[other] && exec_cuda_worker_of(p, other) == worker);
    count += first;
  }
  return count;
}

static void choose_patient(const exec_pipeline *p, exec_cuda_lanes *l) {
  for (int w = p->first_worker; w < p->end_worker; w++) {
    const int gpu = exec_cuda_at(p, (uint32_t)w)->gpu;
    while (count_queues(p, l, gpu) > MOST_QUEUES) {
      const uint32_t lane = farthest(p, l, gpu);
      if (lane == UINT32_MAX) break;
      l->patient[lane] = true;
    }
  }
}

static dp_status make_queue(exec_pipeline *p, exec_cuda_lanes *l, uint32_t lane, dp_error *error) {
  const plan_lane *of = &p->work.program->lanes[lane];
  const exec_cuda *device = exec_cuda_at(p, of->worker);
  EXEC_CUDA_TRY(cudaSetDevice(device->gpu), error);
  l->next[lane] = of->first;
  if (of->kind == PLAN_LANE_COMPUTE) {
    l->streams[lane] = device->stream;
  } else if (l->patient[lane]) {
    if (!l->shared[of->worker]) DP_TRY(exec_cuda_part_stream(device, &l->shared[of->worker], error));
    l->streams[lane] = l->shared[of->worker];
  } else if (has_queue(p, lane)) {
    DP_TRY(exec_cuda_part_stream(device, &l->streams[lane], error));
  }
  for (uint32_t i = of->first; i < of->first + of->count; i++) {
    EXEC_CUDA_TRY(cudaEventCreate(&l->start[i]), error);
    EXEC_CUDA_TRY(cudaEventCreate(&l->end[i]), error);
  }
  return DP_OK;
}

dp_status exec_cuda_open_queues(exec_pipeline *p, exec_cuda_lanes *l, dp_error *error) {
  choose_patient(p, l);
  for (uint32_t lane = p->first_lane; lane < p->end_lane; lane++) {
    DP_TRY(make_queue(p, l, lane, error));
    DP_TRY(exec_cuda_open_stage(p, lane, error));
  }
  return DP_OK;
}

void exec_cuda_close_queues(exec_pipeline *p, exec_cuda_lanes *l) {
  const plan_program *program = p->work.program;
  for (uint32_t lane = p->first_lane; l->streams && l->patient && lane < p->end_lane; lane++) {
    const plan_lane *of = &program->lanes[lane];
    if (of->kind != PLAN_LANE_COMPUTE && !l->patient[lane] && l->streams[lane])
      (void)cudaStreamDestroy(l->streams[lane]);
    for (uint32_t i = of->first; i < of->first + of->count; i++) {
      if (l->start && l->start[i]) (void)cudaEventDestroy(l->start[i]);
      if (l->end && l->end[i]) (void)cudaEventDestroy(l->end[i]);
    }
  }
  for (int w = p->first_worker; l->shared && w < p->end_worker; w++)
    if (l->shared[w]) (void)cudaStreamDestroy(l->shared[w]);
}
