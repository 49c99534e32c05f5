/* Copies between workers of one process through pinned memory of the host (plan/transport.h: host), by the copy engines
 * of both devices; no thread waits. Internal to exec/. */
#ifndef DP_EXEC_DEVICE_CUDA_STAGE_H
#define DP_EXEC_DEVICE_CUDA_STAGE_H

#include "exec/device_cuda.h"

/* Whether a lane's messages go so: by a second queue, too, of the sender's device, which waits for the lane's. */
static inline bool exec_cuda_is_staged(const exec_pipeline *p, uint32_t lane) {
  const plan_lane *of = &p->work.program->lanes[lane];
  return of->kind == PLAN_LANE_RECV && exec_is_here(p, of->peer) &&
         plan_transport_of(p->work.plan, p->work.options.cluster, (int)of->peer, (int)of->worker) ==
             PLAN_TRANSPORT_HOST;
}

/* For a RECV lane that wants it, else nothing. In exec_cuda_lanes. */
dp_status exec_cuda_open_stage(exec_pipeline *p, uint32_t lane, dp_error *error);
void exec_cuda_close_stages(exec_pipeline *p);
/* For any RECV lane whose ends are here; and ended. */
dp_status exec_cuda_make_stage(exec_pipeline *p, uint32_t lane, exec_cuda_stage **stage, dp_error *error);
void exec_cuda_close_stage(exec_cuda_stage *stage); /* NULL is fine */
/* In the lane's queue. */
void exec_cuda_stage_copy(exec_pipeline *p, uint32_t lane, int64_t bytes, uint32_t from_worker, const void *from,
                          void *to);

#endif
