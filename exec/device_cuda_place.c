/* Where a worker computes, and its memory there: its GPU, or its part of one, and whether all that is to be on a GPU fits. */
#include <stdlib.h>

#include "exec/device_cuda.h"

static dp_status place_of(const exec_work *work, int worker, exec_place *place, dp_error *error) {
  int gpus = 0;
  EXEC_CUDA_TRY(cudaGetDeviceCount(&gpus), error);
  if (gpus > EXEC_CUDA_MAX_GPUS) gpus = EXEC_CUDA_MAX_GPUS;
  const exec_place *places = work->places ? work->places : work->options.places;
  *place = places ? places[worker] : exec_place_dealt(worker, work->program->worker_count, gpus);
  if (place->gpu >= 0 && place->gpu < gpus) return DP_OK;
  return dp_fail(error, DP_BAD_INPUT, "worker %d is to be on GPU %d, found: %d, from 0 on", worker, place->gpu, gpus);
}

dp_status exec_cuda_open(const exec_work *work, exec_worker *w, dp_error *error) {
  exec_place place;
  DP_TRY(place_of(work, w->index, &place, error));
  exec_cuda *d = calloc(1, sizeof *d);
  if (!d) return dp_fail_memory(error);
  w->device = d;
  d->gpu = place.gpu;
  d->microbatches = work->plan->microbatches;
  d->tensors = work->graph->tensors.count;
  EXEC_CUDA_TRY(cudaSetDevice(d->gpu), error);
  return exec_cuda_part_open(d, place.part, place.parts, work->plan->nccl_sms, error);
}

/* Whether a worker, of whichever process, is on a GPU of this one. */
static dp_status is_on(const exec_pipeline *p, int worker, int gpu, bool *on, dp_error *error) {
  const int each = p->work.program->worker_count / exec_process_count(p->work.options.transport);
  exec_place place;
  if (exec_is_here(p, (uint32_t)worker)) {
    DP_TRY(place_of(&p->work, worker, &place, error));
    *on = place.gpu == gpu;
    return DP_OK;
  }
  *on = false;
  for (int w = p->first_worker; p->work.facts && w < p->end_worker; w++)
    if (p->work.places[w].gpu == gpu) *on = *on || exec_share_gpu(p->work.facts, p->work.places, each, worker, w);
  return DP_OK;
}

/* All that is to be on a GPU, by all processes, against what is free there now. */
static dp_status fits_on(const exec_pipeline *p, int gpu, dp_error *error) {
  int64_t bytes = 0;
  int workers = 0;
  size_t available = 0, all = 0;
  for (int w = 0; w < p->work.program->worker_count; w++) {
    bool on = false;
    DP_TRY(is_on(p, w, gpu, &on, error));
    if (!on) continue;
    bytes += p->work.memory.workers[w].layout_bytes;
    workers++;
  }
  if (workers == 0) return DP_OK;
  EXEC_CUDA_TRY(cudaSetDevice(gpu), error);
  EXEC_CUDA_TRY(cudaMemGetInfo(&available, &all), error);
  if (bytes <= (int64_t)available) return DP_OK;
  if (p->work.options.shortage)
    *p->work.options.shortage =
        (exec_shortage){.gpu = gpu, .workers = workers, .needed_bytes = bytes, .free_bytes = (int64_t)available};
  return dp_fail(
      error, DP_RUN_FAILED,
      "GPU %d: the plan needs %.2f GB there for %d worker%s, found %.2f of its %.2f GB free, allowed: a plan "
      "that needs less, or that others give some up",
      gpu, (double)bytes / 1e9, workers, workers == 1 ? "" : "s", (double)available / 1e9, (double)all / 1e9);
}

dp_status exec_cuda_fits(const exec_pipeline *p, dp_error *error) {
  const int gpus = exec_device_cuda_count();
  for (int gpu = 0; gpu < gpus && gpu < EXEC_CUDA_MAX_GPUS; gpu++) DP_TRY(fits_on(p, gpu, error));
  return DP_OK;
}

dp_status exec_cuda_allocate(exec_worker *w, int64_t bytes, char **base, dp_error *error) {
  void *memory = NULL;
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_of(w)->gpu), error);
  EXEC_CUDA_TRY(cudaMalloc(&memory, (size_t)bytes), error);
  *base = memory;
  return DP_OK;
}

void exec_cuda_release(exec_worker *w, char *base) {
  (void)cudaSetDevice(exec_cuda_of(w)->gpu);
  (void)cudaFree(base);
}

int64_t exec_cuda_taken(const exec_pipeline *p) {
  bool seen[EXEC_CUDA_MAX_GPUS] = {false};
  int64_t bytes = 0;
  for (int w = p->first_worker; w < p->end_worker; w++) {
    const int gpu = exec_cuda_at(p, w)->gpu;
    size_t available = 0, all = 0;
    if (seen[gpu] || cudaSetDevice(gpu) != cudaSuccess || cudaMemGetInfo(&available, &all) != cudaSuccess) continue;
    seen[gpu] = true;
    bytes += (int64_t)(all - available);
  }
  return bytes;
}

/* The parts of a card, too: what synchronises its own context does so with all that were cut out of it. */
void exec_cuda_wait_idle(const exec_pipeline *p) {
  bool seen[EXEC_CUDA_MAX_GPUS] = {false};
  for (int w = p->first_worker; w < p->end_worker; w++) {
    const int gpu = exec_cuda_at(p, w)->gpu;
    if (!seen[gpu] && cudaSetDevice(gpu) == cudaSuccess) (void)cudaDeviceSynchronize();
    seen[gpu] = true;
  }
}
