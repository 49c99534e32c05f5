/* What measuring needs of a CUDA device (exec/measure_units.h): moments in its queue, and something to compute on. */
#include <stdlib.h>

#include "exec/device_cuda.h"

enum { NOISE = 1 << 20 }; /* values */

static graph_dtype dtype_of(const exec_worker *w) { return w->layout.graph->precision; }

static dp_status make_noise(exec_worker *w, dp_error *error) {
  exec_cuda *d = exec_cuda_of(w);
  float *host = malloc(NOISE * sizeof *host);
  if (!host) return dp_fail_memory(error);
  for (int64_t i = 0; i < NOISE; i++) host[i] = 0.04f * ((float)((i * 7919 + 13) % 65521) / 32760.5f - 1);
  dp_status status =
      exec_cuda_check(cudaMalloc(&d->noise, NOISE * (size_t)graph_dtype_bytes(dtype_of(w))), "cudaMalloc", error);
  if (status == DP_OK) status = exec_cuda_write(w, dtype_of(w), NOISE, host, d->noise, error);
  free(host);
  return status;
}

dp_status exec_cuda_make_marks(exec_worker *w, uint32_t count, dp_error *error) {
  exec_cuda *d = exec_cuda_of(w);
  EXEC_CUDA_TRY(cudaSetDevice(d->gpu), error);
  DP_TRY(make_noise(w, error));
  d->marks = calloc((size_t)count + 1, sizeof *d->marks);
  if (!d->marks) return dp_fail_memory(error);
  for (; d->mark_count < count; d->mark_count++) EXEC_CUDA_TRY(cudaEventCreate(&d->marks[d->mark_count]), error);
  return DP_OK;
}

/* In a graph that is being recorded it is a node, and comes each time that the graph is played. */
void exec_cuda_mark(exec_worker *w, uint32_t number) {
  const exec_cuda *d = exec_cuda_of(w);
  EXEC_CUDA_NOTE(w, cudaEventRecordWithFlags(d->marks[number], d->stream,
                                             d->recording ? cudaEventRecordExternal : cudaEventRecordDefault));
}

dp_status exec_cuda_read_mark(const exec_pipeline *p, exec_worker *w, uint32_t number, double *at_s, dp_error *error) {
  const exec_cuda *d = exec_cuda_of(w);
  const exec_cuda_lanes *l = exec_cuda_lanes_of(p);
  float ms = 0;
  EXEC_CUDA_TRY(cudaEventElapsedTime(&ms, l->base[d->gpu], d->marks[number]), error);
  *at_s = l->base_s[d->gpu] + ms * 1e-3;
  return DP_OK;
}

const char *exec_cuda_describe(const exec_worker *w) { return exec_cuda_of(w)->kernels->about_device; }

void exec_cuda_forget(exec_worker *w) {
  exec_cuda *d = exec_cuda_of(w);
  EXEC_CUDA_NOTE(w, cudaSetDevice(d->gpu));
  EXEC_CUDA_NOTE(w, cudaStreamSynchronize(d->stream));
  for (int r = 0; r < 2; r++)
    for (uint32_t i = 0; d->records[r] && i < d->instructions; i++) {
      if (d->records[r][i].graph) EXEC_CUDA_NOTE(w, cudaGraphExecDestroy(d->records[r][i].graph));
      free(d->records[r][i].begun);
      d->records[r][i] = (exec_cuda_record){.graph = NULL};
    }
}

void exec_cuda_strew(exec_worker *w, int64_t bytes, void *at) {
  const exec_cuda *d = exec_cuda_of(w);
  const int64_t most = NOISE * graph_dtype_bytes(dtype_of(w));
  EXEC_CUDA_NOTE(w, cudaSetDevice(d->gpu));
  for (int64_t done = 0; done < bytes; done += most) {
    const size_t count = (size_t)(bytes - done < most ? bytes - done : most);
    EXEC_CUDA_NOTE(w, cudaMemcpyAsync((char *)at + done, d->noise, count, cudaMemcpyDeviceToDevice, d->stream));
  }
}

void exec_cuda_free_marks(exec_cuda *d) {
  for (uint32_t i = 0; i < d->mark_count; i++) (void)cudaEventDestroy(d->marks[i]);
  if (d->noise) (void)cudaFree(d->noise);
  free(d->marks);
}
