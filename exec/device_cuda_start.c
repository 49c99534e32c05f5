/* Between the layout and the first step: what a worker has on its device beside the layout, and its kernels, which meet
 * every size once; and the end of all that. */
#include <stdlib.h>
#include <string.h>

#include "exec/algorithms.h"
#include "exec/device_cuda.h"

/* ---- what is beside the layout: numbers of a step, and what is fed ---- */

static void point(exec_cuda_scalars *s, char *base, int64_t samples, int64_t flags) {
  s->loss = (double *)(void *)base;
  s->square = s->loss + 1;
  s->norm_square = s->loss + 2;
  s->squares = s->loss + 3;
  s->flags = (uint32_t *)(void *)(s->squares + samples);
  s->bytes = (int64_t)sizeof(double) * (3 + samples) + (int64_t)sizeof(uint32_t) * flags;
}

static dp_status make_scalars(const exec_work *work, exec_cuda *d, dp_error *error) {
  const int64_t samples = exec_work_samples(work);
  void *device = NULL, *host = NULL, *weights = NULL;
  point(&d->device, NULL, samples, d->instructions);
  EXEC_CUDA_TRY(cudaMalloc(&device, (size_t)d->device.bytes), error);
  point(&d->device, device, samples, d->instructions);
  EXEC_CUDA_TRY(cudaMallocHost(&host, (size_t)d->device.bytes), error);
  point(&d->host, host, samples, d->instructions);
  EXEC_CUDA_TRY(cudaMalloc(&weights, (size_t)samples * sizeof *d->weights), error);
  d->weights = weights;
  return DP_OK;
}

static dp_status make_slot(exec_cuda_slot *slot, int64_t count, dp_error *error) {
  void *host = NULL;
  if (slot->host) return DP_OK;
  EXEC_CUDA_TRY(cudaMallocHost(&host, (size_t)count * sizeof(float)), error);
  *slot = (exec_cuda_slot){host, count};
  return DP_OK;
}

static dp_status make_slots_of(const exec_work *work, exec_cuda *d, int tensor, dp_error *error) {
  const int64_t count = graph_tensor_elements(&work->graph->tensors.items[tensor]);
  for (int m = 0; m < d->microbatches; m++) DP_TRY(make_slot(exec_cuda_slot_of(d, tensor, m), count, error));
  return DP_OK;
}

static dp_status make_slots(const exec_work *work, exec_worker *w, dp_error *error) {
  exec_cuda *d = exec_cuda_of(w);
  d->slots = calloc(d->tensors * (size_t)d->microbatches, sizeof *d->slots);
  d->weigh = calloc((size_t)d->microbatches, sizeof *d->weigh);
  if (!d->slots || !d->weigh) return dp_fail_memory(error);
  for (int c = 0; c < work->plan->chunk_count; c++)
    for (int i = 0; i < w->layout.places[c].input_count; i++)
      DP_TRY(make_slots_of(work, d, w->layout.places[c].inputs[i].tensor, error));
  if (!w->squares) return DP_OK;
  DP_TRY(make_slots_of(work, d, work->output, error));
  for (int m = 0; m < d->microbatches; m++)
    DP_TRY(make_slot(&d->weigh[m], work->graph->tensors.items[work->output].dims[0], error));
  return DP_OK;
}

static dp_status make_records(exec_cuda *d, dp_error *error) {
  for (int r = 0; r < 2; r++) {
    d->records[r] = calloc((size_t)d->instructions + 1, sizeof *d->records[r]);
    if (!d->records[r]) return dp_fail_memory(error);
  }
  return DP_OK;
}

/* What the worker will call for a chunk, on whatever lies in memory. */
static void meet(const exec_work *work, exec_worker *w, int c, const exec_fusion *fusion, bool fresh) {
  const exec_cuda *d = exec_cuda_of(w);
  const plan_places *places = &w->layout.places[c];
  const exec_chunk chunk = {.graph = work->graph,
                            .places = places,
                            .parameters = &w->parameters,
                            .math = &exec_math_cuda,
                            .kern = d->kernels,
                            .worker = w->index,
                            .fresh = fresh,
                            .fusion = fusion};
  const exec_memory *memory = &w->layout.memory[c * w->layout.microbatches];
  memset(memory->begun, 0, d->tensors);
  exec_chunk_forward(&chunk, memory);
  for (int i = 0; i < places->arrival_count; i++) memory->begun[places->arrivals[i].tensor] = 1;
  exec_chunk_begin_backward(&chunk, memory);
  exec_chunk_backward(&chunk, memory, places->first_unit, places->unit_count);
  if (plan_splits_backward(work->plan))
    exec_chunk_backward_weight(&chunk, memory, places->first_unit, places->unit_count);
}

/* Every size that the worker will meet is met once: libraries build what they need and the fastest ways are found
 * before anything counts. */
static dp_status warm_up(const exec_work *work, exec_worker *w, dp_error *error) {
  exec_cuda *d = exec_cuda_of(w);
  kern_cuda_tune(d->kernels, true);
  for (int c = 0; c < work->plan->chunk_count; c++) {
    if (w->layout.places[c].unit_count == 0) continue;
    const bool some_fresh = w->first_microbatch, some_added = !some_fresh || work->plan->microbatches > 1;
    for (int fresh = !some_added; fresh <= some_fresh; fresh++) {
      if (w->fusions) meet(work, w, c, &w->fusions[c], fresh == 1);
      if (!w->fusions || work->options.observer) meet(work, w, c, NULL, fresh == 1);
    }
  }
  exec_worker_meet_squeezes(work, w);
  kern_cuda_tune(d->kernels, false);
  EXEC_CUDA_TRY(cudaStreamSynchronize(d->stream), error);
  return kern_cuda_status(d->kernels, error);
}

dp_status exec_cuda_choose_again(const exec_work *work, exec_worker *w, dp_error *error) {
  exec_cuda *d = exec_cuda_of(w);
  EXEC_CUDA_TRY(cudaSetDevice(d->gpu), error);
  EXEC_CUDA_TRY(cudaStreamSynchronize(d->stream), error);
  kern_cuda_forget(d->kernels);
  return warm_up(work, w, error);
}

static const char *find_algorithm(void *data, const char *device, const char *problem) {
  return exec_algorithms_find(data, device, problem);
}

static void keep_algorithm(void *data, const char *device, const char *problem, const char *way) {
  exec_algorithms_keep(data, device, problem, way);
}

dp_status exec_cuda_start(const exec_work *work, exec_worker *w, dp_error *error) {
  exec_cuda *d = exec_cuda_of(w);
  const kern_context_options host = {.threads = exec_work_threads(work)};
  const size_t shown =
      exec_compress_shown_bytes(work->program, work->graph->precision, plan_worker_rank(work->plan, w->index));
  const plan_lane *compute = &work->program->lanes[work->program->worker_lane[w->index]];
  d->instructions = compute->count;
  EXEC_CUDA_TRY(cudaSetDevice(d->gpu), error);
  DP_TRY(kern_context_create(&host, &w->kern, error));
  kern_cuda_options how = {.dtype = work->graph->precision == GRAPH_BF16 ? KERN_BF16 : KERN_FP32,
                           .gradient = w->parameters.gradient_dtype == GRAPH_BF16 ? KERN_BF16 : KERN_FP32,
                           .stream = d->stream,
                           .sm_count = d->sm_count,
                           .workspace = w->layout.workspace,
                           .workspace_bytes = w->layout.workspace_bytes - shown,
                           .any_order = work->options.any_order};
  if (work->options.algorithms)
    how.memory = (kern_cuda_memory){find_algorithm, keep_algorithm, work->options.algorithms};
  DP_TRY(kern_cuda_create(&how, &d->kernels, error));
  w->context = d->kernels;
  DP_TRY(make_scalars(work, d, error));
  DP_TRY(make_slots(work, w, error));
  DP_TRY(make_records(d, error));
  return warm_up(work, w, error);
}

void exec_cuda_close(exec_worker *w) {
  exec_cuda *d = exec_cuda_of(w);
  if (!d) return;
  (void)cudaSetDevice(d->gpu);
  for (int r = 0; r < 2; r++) {
    for (uint32_t i = 0; d->records[r] && i < d->instructions; i++) {
      if (d->records[r][i].graph) (void)cudaGraphExecDestroy(d->records[r][i].graph);
      free(d->records[r][i].begun);
    }
    free(d->records[r]);
  }
  for (size_t i = 0; d->slots && i < d->tensors * (size_t)d->microbatches; i++)
    if (d->slots[i].host) (void)cudaFreeHost(d->slots[i].host);
  for (int m = 0; d->weigh && m < d->microbatches; m++)
    if (d->weigh[m].host) (void)cudaFreeHost(d->weigh[m].host);
  if (d->device.loss) (void)cudaFree(d->device.loss);
  if (d->host.loss) (void)cudaFreeHost(d->host.loss);
  if (d->weights) (void)cudaFree(d->weights);
  kern_cuda_free(d->kernels);
  exec_cuda_free_marks(d);
  exec_cuda_part_close(d);
  free(d->slots);
  free(d->weigh);
  free(d);
  w->device = NULL;
}
