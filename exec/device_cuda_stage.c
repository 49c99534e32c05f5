#include "exec/device_cuda_stage.h"

/* Two pieces in turns: while one comes from the sender's device the other goes to the receiver's. */
struct exec_cuda_stage {
  cudaStream_t fetch; /* of the sender's device */
  char *pinned[2];
  cudaEvent_t full[2], empty[2]; /* of the sender's device; of the receiver's */
  cudaEvent_t begun;             /* of the receiver's: what the lane waits for has come */
};

dp_status exec_cuda_make_stage(exec_pipeline *p, uint32_t lane, exec_cuda_stage **stage, dp_error *error) {
  const plan_lane *of = &p->work.program->lanes[lane];
  exec_cuda_stage *s = DP_ARENA_NEW(&p->arena, exec_cuda_stage, 1);
  if (!s) return dp_fail_memory(error);
  *stage = s;
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, of->worker)->gpu), error);
  EXEC_CUDA_TRY(cudaEventCreateWithFlags(&s->begun, cudaEventDisableTiming), error);
  for (int i = 0; i < 2; i++) {
    EXEC_CUDA_TRY(cudaHostAlloc((void **)&s->pinned[i], EXEC_CUDA_PIECE, cudaHostAllocPortable), error);
    EXEC_CUDA_TRY(cudaEventCreateWithFlags(&s->empty[i], cudaEventDisableTiming), error);
  }
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_at(p, of->peer)->gpu), error);
  DP_TRY(exec_cuda_part_stream(exec_cuda_at(p, of->peer), &s->fetch, error));
  for (int i = 0; i < 2; i++) EXEC_CUDA_TRY(cudaEventCreateWithFlags(&s->full[i], cudaEventDisableTiming), error);
  return DP_OK;
}

dp_status exec_cuda_open_stage(exec_pipeline *p, uint32_t lane, dp_error *error) {
  if (!exec_cuda_is_staged(p, lane)) return DP_OK;
  return exec_cuda_make_stage(p, lane, &exec_cuda_lanes_of(p)->stages[lane], error);
}

void exec_cuda_close_stage(exec_cuda_stage *s) {
  if (!s) return;
  if (s->fetch) (void)cudaStreamDestroy(s->fetch);
  if (s->begun) (void)cudaEventDestroy(s->begun);
  for (int i = 0; i < 2; i++) {
    if (s->pinned[i]) (void)cudaFreeHost(s->pinned[i]);
    if (s->full[i]) (void)cudaEventDestroy(s->full[i]);
    if (s->empty[i]) (void)cudaEventDestroy(s->empty[i]);
  }
  *s = (exec_cuda_stage){.fetch = NULL};
}

void exec_cuda_close_stages(exec_pipeline *p) {
  for (uint32_t lane = p->first_lane; exec_cuda_lanes_of(p)->stages && lane < p->end_lane; lane++) {
    exec_cuda_close_stage(exec_cuda_lanes_of(p)->stages[lane]);
    exec_cuda_lanes_of(p)->stages[lane] = NULL;
  }
}

void exec_cuda_stage_copy(exec_pipeline *p, uint32_t lane, int64_t bytes, uint32_t from_worker, const void *from,
                          void *to) {
  const exec_cuda_stage *s = exec_cuda_lanes_of(p)->stages[lane];
  const exec_cuda *source = exec_cuda_at(p, from_worker),
                  *target = exec_cuda_at(p, p->work.program->lanes[lane].worker);
  kern_cuda *kernels = target->kernels;
  cudaStream_t stream = exec_cuda_lanes_of(p)->streams[lane];
  KERN_CUDA_TRY(kernels, cudaEventRecord(s->begun, stream));
  KERN_CUDA_TRY(kernels, cudaStreamWaitEvent(s->fetch, s->begun, 0));
  for (int64_t at = 0, half = 0; at < bytes; at += EXEC_CUDA_PIECE, half = 1 - half) {
    const size_t count = (size_t)(bytes - at < EXEC_CUDA_PIECE ? bytes - at : EXEC_CUDA_PIECE);
    KERN_CUDA_TRY(kernels, cudaSetDevice(source->gpu));
    KERN_CUDA_TRY(kernels, cudaStreamWaitEvent(s->fetch, s->empty[half], 0)); /* nothing, before it was recorded */
    KERN_CUDA_TRY(kernels,
                  cudaMemcpyAsync(s->pinned[half], (const char *)from + at, count, cudaMemcpyDeviceToHost, s->fetch));
    KERN_CUDA_TRY(kernels, cudaEventRecord(s->full[half], s->fetch));
    KERN_CUDA_TRY(kernels, cudaSetDevice(target->gpu));
    KERN_CUDA_TRY(kernels, cudaStreamWaitEvent(stream, s->full[half], 0));
    KERN_CUDA_TRY(kernels, cudaMemcpyAsync((char *)to + at, s->pinned[half], count, cudaMemcpyHostToDevice, stream));
    KERN_CUDA_TRY(kernels, cudaEventRecord(s->empty[half], stream));
  }
}
