/* What a worker does on its device within a step, but for its ops: what it is fed, loss, norm, optimizer, and what the
 * host fetches at the end. */
#include <string.h>

#include "exec/device_cuda.h"

void exec_cuda_zero(exec_worker *w, int64_t bytes, void *at) {
  EXEC_CUDA_NOTE(w, cudaSetDevice(exec_cuda_of(w)->gpu));
  EXEC_CUDA_NOTE(w, cudaMemsetAsync(at, 0, (size_t)bytes, exec_cuda_of(w)->stream));
}

void exec_cuda_begin(const exec_work *work, exec_worker *w) {
  exec_cuda *d = exec_cuda_of(w);
  (void)work;
  w->loss = w->square = 0;
  exec_cuda_zero(w, d->device.bytes, d->device.loss);
}

static void fill(const exec_work *work, exec_worker *w, int tensor, int microbatch) {
  const exec_feed *source = &work->options.feed;
  source->fill(source->data, plan_worker_replica(work->plan, w->index), microbatch, tensor,
               exec_cuda_slot_of(exec_cuda_of(w), tensor, microbatch)->host);
}

/* The multiprocessors read the host's memory and round: a queue's copies of a few MB from it cost the copy engine near
 * a millisecond each, during which nothing else runs. */
static void fetch(const exec_cuda *d, const exec_cuda_slot *slot, kern_dtype dtype, void *to) {
  kern_cuda_convert(d->kernels, slot->count, KERN_FP32, slot->host, dtype, to);
}

void exec_cuda_prepare(const exec_work *work, exec_worker *w, const exec_chunk *chunk, int microbatch) {
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

void exec_cuda_feed(const exec_work *work, exec_worker *w, int tensor, int microbatch, void *place) {
  const exec_cuda *d = exec_cuda_of(w);
  const graph_dtype dtype = work->graph->tensors.items[tensor].dtype;
  fetch(d, exec_cuda_slot_of(d, tensor, microbatch), dtype == GRAPH_FP32 ? KERN_FP32 : KERN_BF16, place);
}

void exec_cuda_look(const exec_work *work, exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                    uint32_t instruction) {
  const exec_cuda *d = exec_cuda_of(w);
  const plan_places *places = chunk->places;
  for (int i = 0; i < places->made_count; i++) {
    const graph_tensor *t = &work->graph->tensors.items[places->made[i].tensor];
    if (t->producer_unit == places->first_unit + places->unit_count - 1)
      kern_cuda_find_not_finite(d->kernels, graph_tensor_elements(t), exec_memory_at(memory, places->made[i].place),
                                &d->device.flags[exec_cuda_position(work, w, instruction)]);
  }
}

void exec_cuda_loss(const exec_work *work, exec_worker *w, int microbatch, const void *target) {
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

void exec_cuda_norm(exec_worker *w) {
  const exec_cuda *d = exec_cuda_of(w);
  const exec_parameters *p = &w->parameters;
  kern_cuda_sum_squares(d->kernels, d->kernels->options.gradient, p->trained_count, p->gradients, d->device.square);
}

/* A worker alone, or without global_norm, has not met the others. */
void exec_cuda_optimize(const exec_work *work, exec_worker *w) {
  const exec_cuda *d = exec_cuda_of(w);
  const exec_step *step = work->step;
  const exec_parameters *p = &w->parameters;
  const bool met = work->program->worker_count > 1 && work->plan->global_norm;
  if (p->trained_count == 0) return;
  if (met) {
    const exec_cuda_lanes *lanes = work->lanes;
    kern_cuda_sum(d->kernels, work->plan->ranks, lanes->norms, d->device.norm_square); /* the workers of one replica */
  } else {
    exec_cuda_norm(w);
  }
  kern_cuda_adamw how = {.settings = step->adamw,
                         .n = p->trained_count,
                         .clip_norm = met || work->program->worker_count == 1 ? step->clip_norm : 0,
                         .means_decay = step->means_decay};
  if (step->rank_rates) how.settings.lr *= step->rank_rates[plan_worker_rank(work->plan, w->index)];
  kern_cuda_adamw_step(d->kernels, &how, met ? d->device.norm_square : d->device.square, p->gradients, p->values,
                       p->low, p->first, p->second, p->means);
}

dp_status exec_cuda_collect(const exec_work *work, exec_worker *w, dp_error *error) {
  exec_cuda *d = exec_cuda_of(w);
  const plan_lane *compute = &work->program->lanes[work->program->worker_lane[w->index]];
  EXEC_CUDA_TRY(cudaSetDevice(d->gpu), error);
  EXEC_CUDA_TRY(cudaMemcpy(d->host.loss, d->device.loss, (size_t)d->device.bytes, cudaMemcpyDeviceToHost), error);
  d->steps += !work->step->evaluate;
  w->loss = *d->host.loss;
  w->square = *d->host.square;
  if (w->squares) memcpy(w->squares, d->host.squares, (size_t)exec_work_samples(work) * sizeof *w->squares);
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

void exec_cuda_use_means(exec_worker *w, bool means) {
  const exec_cuda *d = exec_cuda_of(w);
  const exec_parameters *p = &w->parameters;
  (void)means;
  EXEC_CUDA_NOTE(w, cudaSetDevice(d->gpu));
  kern_cuda_exchange_means(d->kernels, p->trained_count, p->values, p->low, p->means);
}
