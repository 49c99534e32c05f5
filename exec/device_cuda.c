/* A CUDA device, or a part of one, under a worker. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "exec/device_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "exec/algorithms.h"
#include "exec/device_cuda_wire.h"
#include "exec/ops.h"
#include "kernels/cuda/libraries.h"

dp_status exec_cuda_check(cudaError_t result, const char *what, dp_error *error) {
  if (result == cudaSuccess) return DP_OK;
  return dp_fail(error, DP_RUN_FAILED, "%s: %s", what, cudaGetErrorString(result));
}

dp_status exec_device_cuda_there(dp_error *error) {
  int count = 0;
  /* before the first call: each lane's queue goes its own way, none waits behind another's transfer */
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const cudaError_t result = cudaGetDeviceCount(&count);
  const char *why = cudaGetErrorString(result);
  if (result == cudaSuccess) why = "there is none";
  if (result == cudaErrorInsufficientDriver) why = "no NVIDIA driver, or one older than this build's CUDA runtime";
  if (result != cudaSuccess || count == 0)
    return dp_fail(error, DP_UNSUPPORTED,
                   "found no CUDA device that can be used (%s), allowed: a machine with one, or cpu", why);
  return kern_cuda_load(error);
}

int exec_device_cuda_count(void) {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/* ---- before anything is made ---- */

static dp_status survey(exec_host_facts *facts, dp_error *error) {
  int gpus = 0;
  EXEC_CUDA_TRY(cudaGetDeviceCount(&gpus), error);
  facts->gpu_count = gpus < EXEC_MAX_GPUS ? gpus : EXEC_MAX_GPUS;
  for (int g = 0; g < facts->gpu_count; g++) {
    struct cudaDeviceProp properties;
    EXEC_CUDA_TRY(cudaGetDeviceProperties(&properties, g), error);
    if (g == 0 || properties.multiProcessorCount < facts->sm_count) facts->sm_count = properties.multiProcessorCount;
    memcpy(facts->uuids[g], &properties.uuid, sizeof facts->uuids[g]);
  }
  return DP_OK;
}

static dp_status check(const exec_work *work, dp_error *error) {
  const char *missing = NULL;
  if (work->graph->precision == GRAPH_FP16) missing = "fp16";
  if (missing) return dp_fail(error, DP_UNSUPPORTED, "the executor does not know %s on CUDA devices yet", missing);
  DP_TRY(exec_device_cuda_there(error));
  return exec_chunk_check(&exec_math_cuda, work->graph, error);
}

static int64_t workspace(const plan_program *program, const graph *g, int rank, int threads) {
  const plan_plan *plan = program->plan;
  const kern_loss loss = {.batch = plan->microbatch_size, .n = 1 << 20};
  size_t most = kern_cuda_loss_workspace(&loss);
  for (int c = 0; c < plan->chunk_count; c++) {
    if (plan->chunks[c].rank != rank) continue;
    const size_t bytes =
        exec_chunk_workspace(&exec_math_cuda, g, plan->chunks[c].first_unit, plan->chunks[c].unit_count, threads);
    if (bytes > most) most = bytes;
  }
  const size_t others[] = {kern_cuda_sum_squares_workspace(exec_trained_floats(program, g, rank)),
                           exec_compress_workspace(program, &exec_math_cuda, g->precision, threads)};
  for (int i = 0; i < 2; i++)
    if (others[i] > most) most = others[i];
  return (int64_t)(most + exec_compress_shown_bytes(program, g->precision, rank)) + PLAN_ALIGNMENT;
}

/* ---- a worker's device ---- */

static dp_status place_of(const exec_work *work, int worker, exec_place *place, dp_error *error) {
  int gpus = 0;
  EXEC_CUDA_TRY(cudaGetDeviceCount(&gpus), error);
  if (gpus > EXEC_CUDA_MAX_GPUS) gpus = EXEC_CUDA_MAX_GPUS;
  const int workers = work->program->worker_count, each = (workers + gpus - 1) / gpus;
  const exec_place *places = work->places ? work->places : work->options.places;
  *place = places ? places[worker] : (exec_place){worker / each, worker % each, each};
  if (place->gpu >= 0 && place->gpu < gpus) return DP_OK;
  return dp_fail(error, DP_BAD_INPUT, "worker %d is to be on GPU %d, found: %d, from 0 on", worker, place->gpu, gpus);
}

static dp_status open_device(const exec_work *work, exec_worker *w, dp_error *error) {
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

static dp_status fits(const exec_pipeline *p, dp_error *error) {
  const int gpus = exec_device_cuda_count();
  for (int gpu = 0; gpu < gpus && gpu < EXEC_CUDA_MAX_GPUS; gpu++) DP_TRY(fits_on(p, gpu, error));
  return DP_OK;
}

static dp_status allocate(exec_worker *w, int64_t bytes, char **base, dp_error *error) {
  void *memory = NULL;
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_of(w)->gpu), error);
  EXEC_CUDA_TRY(cudaMalloc(&memory, (size_t)bytes), error);
  *base = memory;
  return DP_OK;
}

static void release(exec_worker *w, char *base) {
  (void)cudaSetDevice(exec_cuda_of(w)->gpu);
  (void)cudaFree(base);
}

static int64_t taken(const exec_pipeline *p) {
  bool seen[EXEC_CUDA_MAX_GPUS] = {false};
  int64_t bytes = 0;
  for (int w = p->first_worker; w < p->end_worker; w++) {
    const int gpu = exec_cuda_of(&p->workers[w])->gpu;
    size_t available = 0, all = 0;
    if (seen[gpu] || cudaSetDevice(gpu) != cudaSuccess || cudaMemGetInfo(&available, &all) != cudaSuccess) continue;
    seen[gpu] = true;
    bytes += (int64_t)(all - available);
  }
  return bytes;
}

/* ---- what is beside the layout: numbers of a step, and what is fed ---- */

static void point(exec_cuda_scalars *s, char *base, int64_t samples, int64_t flags) {
  s->loss = (double *)(void *)base;
  s->square = s->loss + 1;
  s->norm_square = s->loss + 2;
  s->squares = s->loss + 3;
  s->flags = (uint32_t *)(void *)(s->squares + samples);
  s->bytes = (int64_t)sizeof(double) * (3 + samples) + (int64_t)sizeof(uint32_t) * flags;
}

static int64_t samples_of(const exec_work *work) {
  return work->plan->microbatches * work->graph->tensors.items[work->output].dims[0];
}

static dp_status make_scalars(const exec_work *work, exec_cuda *d, dp_error *error) {
  const int64_t samples = samples_of(work);
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

static exec_cuda_slot *slot_of(const exec_cuda *d, int tensor, int microbatch) {
  return &d->slots[(size_t)tensor * (size_t)d->microbatches + (size_t)microbatch];
}

static dp_status make_slots_of(const exec_work *work, exec_cuda *d, int tensor, dp_error *error) {
  const int64_t count = graph_tensor_elements(&work->graph->tensors.items[tensor]);
  for (int m = 0; m < d->microbatches; m++) DP_TRY(make_slot(slot_of(d, tensor, m), count, error));
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

static dp_status choose_again(const exec_work *work, exec_worker *w, dp_error *error) {
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

static dp_status start(const exec_work *work, exec_worker *w, dp_error *error) {
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

static void close_device(exec_worker *w) {
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

/* ---- a step ---- */

static void note(exec_worker *w, cudaError_t result, const char *what) {
  (void)kern_cuda_check(exec_cuda_of(w)->kernels, result, what);
}
#define NOTE(w, call) note((w), (call), #call)

static void zero(exec_worker *w, int64_t bytes, void *at) {
  NOTE(w, cudaSetDevice(exec_cuda_of(w)->gpu));
  NOTE(w, cudaMemsetAsync(at, 0, (size_t)bytes, exec_cuda_of(w)->stream));
}

static void begin(const exec_work *work, exec_worker *w) {
  exec_cuda *d = exec_cuda_of(w);
  (void)work;
  w->loss = w->square = 0;
  zero(w, d->device.bytes, d->device.loss);
}

static void fill(const exec_work *work, exec_worker *w, int tensor, int microbatch) {
  const exec_feed *source = &work->options.feed;
  source->fill(source->data, plan_worker_replica(work->plan, w->index), microbatch, tensor,
               slot_of(exec_cuda_of(w), tensor, microbatch)->host);
}

/* The multiprocessors read the host's memory and round: a queue's copies of a few MB from it cost the copy engine near
 * a millisecond each, during which nothing else runs. */
static void fetch(const exec_cuda *d, const exec_cuda_slot *slot, kern_dtype dtype, void *to) {
  kern_cuda_convert(d->kernels, slot->count, KERN_FP32, slot->host, dtype, to);
}

static void prepare(const exec_work *work, exec_worker *w, const exec_chunk *chunk, int microbatch) {
  exec_cuda *d = exec_cuda_of(w);
  const exec_feed *source = &work->options.feed;
  for (int i = 0; i < chunk->places->input_count; i++) fill(work, w, chunk->places->inputs[i].tensor, microbatch);
  const graph_tensor *output = &work->graph->tensors.items[work->output];
  if (output->producer_unit < chunk->places->first_unit ||
      output->producer_unit >= chunk->places->first_unit + chunk->places->unit_count)
    return;
  fill(work, w, work->output, microbatch);
  if (source->weigh)
    source->weigh(source->data, plan_worker_replica(work->plan, w->index), microbatch, d->weigh[microbatch].host);
}

static void feed(const exec_work *work, exec_worker *w, int tensor, int microbatch, void *place) {
  const exec_cuda *d = exec_cuda_of(w);
  const graph_dtype dtype = work->graph->tensors.items[tensor].dtype;
  fetch(d, slot_of(d, tensor, microbatch), dtype == GRAPH_FP32 ? KERN_FP32 : KERN_BF16, place);
}

static uint32_t position_of(const exec_work *work, const exec_worker *w, uint32_t instruction) {
  return instruction - work->program->lanes[work->program->worker_lane[w->index]].first;
}

static void look(const exec_work *work, exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                 uint32_t instruction) {
  const exec_cuda *d = exec_cuda_of(w);
  const plan_places *places = chunk->places;
  for (int i = 0; i < places->made_count; i++) {
    const graph_tensor *t = &work->graph->tensors.items[places->made[i].tensor];
    if (t->producer_unit == places->first_unit + places->unit_count - 1)
      kern_cuda_find_not_finite(d->kernels, graph_tensor_elements(t), exec_memory_at(memory, places->made[i].place),
                                &d->device.flags[position_of(work, w, instruction)]);
  }
}

static void take_loss(const exec_work *work, exec_worker *w, int microbatch, const void *target) {
  const exec_cuda *d = exec_cuda_of(w);
  const kern_loss size = exec_loss_size(work);
  const void *output = w->layout.outputs[microbatch];
  float *weights = NULL;
  if (work->options.feed.weigh) {
    weights = d->weights + microbatch * size.batch;
    fetch(d, &d->weigh[microbatch], KERN_FP32, weights);
  }
  kern_cuda_loss_forward(d->kernels, &size, output, target, weights, d->device.squares + microbatch * size.batch,
                         d->device.loss);
  if (!work->step->evaluate)
    kern_cuda_loss_backward(d->kernels, &size, output, target, weights, w->layout.output_gradients[microbatch]);
}

static void norm(exec_worker *w) {
  const exec_cuda *d = exec_cuda_of(w);
  const exec_parameters *p = &w->parameters;
  kern_cuda_sum_squares(d->kernels, d->kernels->options.gradient, p->trained_count, p->gradients, d->device.square);
}

/* A worker alone, or without global_norm, has not met the others. */
static void optimize(const exec_work *work, exec_worker *w) {
  const exec_cuda *d = exec_cuda_of(w);
  const exec_step *step = work->step;
  const exec_parameters *p = &w->parameters;
  const bool met = work->program->worker_count > 1 && work->plan->global_norm;
  if (p->trained_count == 0) return;
  if (met) {
    const exec_cuda_lanes *lanes = work->lanes;
    kern_cuda_sum(d->kernels, work->plan->ranks, lanes->norms, d->device.norm_square); /* the workers of one replica */
  } else {
    norm(w);
  }
  kern_cuda_adamw how = {.settings = step->adamw,
                         .n = p->trained_count,
                         .clip_norm = met || work->program->worker_count == 1 ? step->clip_norm : 0,
                         .means_decay = step->means_decay};
  if (step->rank_rates) how.settings.lr *= step->rank_rates[plan_worker_rank(work->plan, w->index)];
  kern_cuda_adamw_step(d->kernels, &how, met ? d->device.norm_square : d->device.square, p->gradients, p->values,
                       p->low, p->first, p->second, p->means);
}

static dp_status collect(const exec_work *work, exec_worker *w, dp_error *error) {
  exec_cuda *d = exec_cuda_of(w);
  const plan_lane *compute = &work->program->lanes[work->program->worker_lane[w->index]];
  EXEC_CUDA_TRY(cudaSetDevice(d->gpu), error);
  EXEC_CUDA_TRY(cudaMemcpy(d->host.loss, d->device.loss, (size_t)d->device.bytes, cudaMemcpyDeviceToHost), error);
  d->steps += !work->step->evaluate;
  w->loss = *d->host.loss;
  w->square = *d->host.square;
  if (w->squares) memcpy(w->squares, d->host.squares, (size_t)samples_of(work) * sizeof *w->squares);
  for (uint32_t i = 0; i < d->instructions && !w->trouble.at; i++) {
    if (!d->host.flags[i]) continue;
    const plan_instruction *instruction = &work->program->instructions[compute->first + i];
    const plan_places *places = &w->layout.places[instruction->chunk];
    w->trouble = (exec_trouble){.at = (int64_t)(compute->first + i) + 1,
                                .unit = places->first_unit,
                                .last_unit = places->first_unit + places->unit_count - 1,
                                .microbatch = (int32_t)instruction->microbatch};
  }
  return DP_OK;
}

static void use_means(exec_worker *w, bool means) {
  const exec_cuda *d = exec_cuda_of(w);
  const exec_parameters *p = &w->parameters;
  (void)means;
  NOTE(w, cudaSetDevice(d->gpu));
  kern_cuda_exchange_means(d->kernels, p->trained_count, p->values, p->low, p->means);
}

/* ---- graphs: what an instruction put in the queue, played again ---- */

static bool is_recorded(const exec_work *work, uint32_t instruction) {
  return work->program->instructions[instruction].opcode != PLAN_OPTIMIZER_STEP && !work->options.poison &&
         !work->fitting && !work->searching && !work->step->measure_skips &&
         !(work->options.observer && work->options.observer->on);
}

static exec_cuda_record *record_of(const exec_work *work, exec_worker *w, uint32_t instruction) {
  return &exec_cuda_of(w)->records[work->step->evaluate][position_of(work, w, instruction)];
}

static uint8_t *begun_of(const exec_work *work, exec_worker *w, uint32_t instruction) {
  return exec_layout_begun(&w->layout, work->program->instructions[instruction].microbatch);
}

static bool replay(const exec_work *work, exec_worker *w, uint32_t instruction) {
  const exec_cuda *d = exec_cuda_of(w);
  const exec_cuda_record *record = record_of(work, w, instruction);
  if (!is_recorded(work, instruction) || !record->graph) return false;
  memcpy(begun_of(work, w, instruction), record->begun, d->tensors);
  NOTE(w, cudaGraphLaunch(record->graph, d->stream));
  return true;
}

/* The first step runs as it is: what it meets for the first time could not be captured. */
static void record_begin(const exec_work *work, exec_worker *w, uint32_t instruction) {
  exec_cuda *d = exec_cuda_of(w);
  d->recording = d->steps > 0 && !w->unrecorded && is_recorded(work, instruction);
  if (d->recording) NOTE(w, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal));
}

static void record_end(const exec_work *work, exec_worker *w, uint32_t instruction) {
  exec_cuda *d = exec_cuda_of(w);
  exec_cuda_record *record = record_of(work, w, instruction);
  cudaGraph_t made = NULL;
  if (!d->recording) return;
  d->recording = false;
  NOTE(w, cudaStreamEndCapture(d->stream, &made));
  if (made) NOTE(w, cudaGraphInstantiate(&record->graph, made, 0));
  if (made) (void)cudaGraphDestroy(made);
  record->begun = malloc(d->tensors);
  if (!record->begun) {
    kern_cuda_fail(d->kernels, DP_NO_MEMORY, "the host has no memory left");
    return;
  }
  memcpy(record->begun, begun_of(work, w, instruction), d->tensors);
  if (record->graph) NOTE(w, cudaGraphLaunch(record->graph, d->stream));
}

const exec_device_kind exec_device_cuda = {.name = "cuda",
                                           .deferred = true,
                                           .math = &exec_math_cuda,
                                           .workspace = workspace,
                                           .check = check,
                                           .survey = survey,
                                           .fits = fits,
                                           .open = open_device,
                                           .allocate = allocate,
                                           .release = release,
                                           .start = start,
                                           .choose_again = choose_again,
                                           .close = close_device,
                                           .probe = exec_cuda_probe,
                                           .taken = taken,
                                           .read = exec_cuda_read,
                                           .write = exec_cuda_write,
                                           .read_masters = exec_cuda_read_masters,
                                           .write_masters = exec_cuda_write_masters,
                                           .fetch = exec_cuda_fetch,
                                           .zero = zero,
                                           .prepare = prepare,
                                           .feed = feed,
                                           .look = look,
                                           .loss = take_loss,
                                           .norm = norm,
                                           .optimize = optimize,
                                           .begin = begin,
                                           .collect = collect,
                                           .use_means = use_means,
                                           .make_marks = exec_cuda_make_marks,
                                           .mark = exec_cuda_mark,
                                           .read_mark = exec_cuda_read_mark,
                                           .describe = exec_cuda_describe,
                                           .forget = exec_cuda_forget,
                                           .strew = exec_cuda_strew,
                                           .open_copies = exec_cuda_open_copies,
                                           .close_copies = exec_cuda_close_copies,
                                           .time_copies = exec_cuda_time_copies,
                                           .time_handover = exec_cuda_time_handover,
                                           .replay = replay,
                                           .record_begin = record_begin,
                                           .record_end = record_end,
                                           .open_lanes = exec_cuda_open_lanes,
                                           .close_lanes = exec_cuda_close_lanes,
                                           .begin_lanes = exec_cuda_begin_lanes,
                                           .enter = exec_cuda_enter,
                                           .leave = exec_cuda_leave,
                                           .copy = exec_cuda_copy,
                                           .clear = exec_cuda_clear,
                                           .delay = exec_cuda_delay,
                                           .add_gradients = exec_cuda_add_gradients,
                                           .ended = exec_cuda_ended,
                                           .begun = exec_cuda_begun,
                                           .look_at_wires = exec_cuda_look_at_wires,
                                           .abandon_wires = exec_cuda_abandon_wires,
                                           .idle = exec_cuda_idle,
                                           .send = exec_cuda_send,
                                           .receive = exec_cuda_receive,
                                           .reduce = exec_cuda_reduce,
                                           .share_norms = exec_cuda_share_norms,
                                           .finish_lanes = exec_cuda_finish_lanes};
