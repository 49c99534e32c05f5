/* A copy between two GPUs, or within one, apart from any pipeline. */
#include <math.h>

#include "base/clock.h"
#include "exec/device_cuda.h"

typedef struct probe {
  char *from, *to, *pinned; /* on the one GPU, on the other, on the host */
  cudaStream_t stream;
} probe;

static dp_status open_probe(const exec_probe_copy *copy, probe *p, dp_error *error) {
  EXEC_CUDA_TRY(cudaSetDevice(copy->from_gpu), error);
  EXEC_CUDA_TRY(cudaMalloc((void **)&p->from, copy->bytes), error);
  EXEC_CUDA_TRY(cudaSetDevice(copy->to_gpu), error);
  EXEC_CUDA_TRY(cudaMalloc((void **)&p->to, copy->bytes), error);
  if (copy->staged) EXEC_CUDA_TRY(cudaMallocHost((void **)&p->pinned, copy->bytes), error);
  EXEC_CUDA_TRY(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking), error);
  return DP_OK;
}

static void close_probe(probe *p) {
  if (p->stream) (void)cudaStreamDestroy(p->stream);
  if (p->pinned) (void)cudaFreeHost(p->pinned);
  if (p->to) (void)cudaFree(p->to);
  if (p->from) (void)cudaFree(p->from);
}

static dp_status copy_once(const exec_probe_copy *copy, const probe *p, dp_error *error) {
  if (copy->staged) {
    EXEC_CUDA_TRY(cudaMemcpyAsync(p->pinned, p->from, copy->bytes, cudaMemcpyDeviceToHost, p->stream), error);
    EXEC_CUDA_TRY(cudaMemcpyAsync(p->to, p->pinned, copy->bytes, cudaMemcpyHostToDevice, p->stream), error);
  } else {
    EXEC_CUDA_TRY(cudaMemcpyAsync(p->to, p->from, copy->bytes, cudaMemcpyDefault, p->stream), error);
  }
  EXEC_CUDA_TRY(cudaStreamSynchronize(p->stream), error);
  return DP_OK;
}

static dp_status time_copies(const exec_probe_copy *copy, const probe *p, double *seconds, dp_error *error) {
  double least_s = HUGE_VAL;
  for (int i = 0; i <= EXEC_PROBES; i++) { /* the first is not timed */
    const double from_s = dp_clock_s();
    DP_TRY(copy_once(copy, p, error));
    if (i > 0) least_s = fmin(least_s, dp_clock_s() - from_s);
  }
  *seconds = least_s;
  return DP_OK;
}

dp_status exec_cuda_probe(const exec_probe_copy *copy, double *seconds, dp_error *error) {
  int before = 0;
  probe p = {.from = NULL};
  EXEC_CUDA_TRY(cudaGetDevice(&before), error);
  dp_status status = open_probe(copy, &p, error);
  if (status == DP_OK) status = time_copies(copy, &p, seconds, error);
  close_probe(&p);
  (void)cudaSetDevice(before);
  if (status != DP_OK) (void)cudaGetLastError(); /* or the next step would take it for its own */
  return status;
}
