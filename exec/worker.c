#include "exec/worker.h"

#include <math.h>
#include <string.h>

#include "graph/op_table.h"

static const plan_lane *compute_of(const exec_work *work, const exec_worker *w) {
  return &work->program->lanes[work->program->worker_lane[w->index]];
}

int exec_work_threads(const exec_work *work) { return work->options.threads > 0 ? work->options.threads : 1; }

/* ---- compressed skips ---- */

int64_t exec_wire_floats(const exec_work *work, const plan_message *message, int k) {
  const int at = message->first_tensor + k, compressor = plan_compressor_at(work->program, at);
  return compressor >= 0 ? exec_compress_kept(&work->program->compressors[compressor])
                         : graph_tensor_elements(&work->graph->tensors.items[work->program->message_tensors[at]]);
}

exec_squeeze *exec_worker_squeeze(const exec_work *work, const exec_worker *w, const plan_message *message, int k) {
  const int compressor = plan_compressor_at(work->program, message->first_tensor + k);
  return compressor >= 0 && w->squeezes[compressor].here ? &w->squeezes[compressor] : NULL;
}

/* An end's matrices in one of the worker's arrays. */
static float *matrices_in(const exec_worker *w, const exec_squeeze *squeeze, float *array) {
  return array + w->parameters.extra_offset[squeeze->extra];
}

/* One end or the other of each compressor; an end's matrices are an extra of the unit that it counts as. */
static dp_status list_squeezes(const exec_work *work, exec_worker *w, dp_arena *arena, exec_extra **extras,
                               int *extra_count, dp_error *error) {
  const int count = work->program->compressor_count;
  w->squeezes = DP_ARENA_NEW(arena, exec_squeeze, (size_t)count + 1);
  *extras = DP_ARENA_NEW(arena, exec_extra, (size_t)count + 1);
  if (!w->squeezes || !*extras) return dp_fail_memory(error);
  for (int i = 0; i < count; i++) {
    const plan_compressor *c = &work->program->compressors[i];
    const bool down = w->here[c->down_unit];
    if (!down && !w->here[c->up_unit]) continue;
    w->squeezes[i] = (exec_squeeze){.here = true, .down = down, .extra = *extra_count};
    (*extras)[(*extra_count)++] = (exec_extra){down ? c->down_unit : c->up_unit, c->parameters, c->trained};
  }
  return DP_OK;
}

static dp_status make_squeeze(const exec_work *work, const exec_worker *w, const plan_compressor *c,
                              exec_squeeze *squeeze, dp_arena *arena, dp_error *error) {
  const size_t microbatches = (size_t)work->plan->microbatches;
  float ***const lists[] = {&squeeze->whole, &squeeze->packed, &squeeze->gradients, &squeeze->whole_gradients};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    *lists[i] = DP_ARENA_NEW(arena, float *, microbatches);
    if (!*lists[i]) return dp_fail_memory(error);
  }
  for (size_t m = 0; m < microbatches; m++)
    DP_TRY(exec_layout_squeeze(&w->layout, c, squeeze->down, (int)m, &squeeze->whole[m], &squeeze->packed[m],
                               &squeeze->whole_gradients[m], &squeeze->gradients[m], error));
  if (squeeze->down) squeeze->up = DP_ARENA_NEW(arena, float, (size_t)c->parameters);
  return !squeeze->down || squeeze->up ? DP_OK : dp_fail_memory(error);
}

/* What a chunk receives packed is restored before it runs. */
static void restore_skips(const exec_work *work, exec_worker *w, int chunk, int microbatch) {
  for (int i = 0; i < work->program->compressor_count; i++) {
    const exec_squeeze *squeeze = &w->squeezes[i];
    const plan_compressor *c = &work->program->compressors[i];
    if (!squeeze->here || squeeze->down || work->program->messages[c->message].to_chunk != chunk) continue;
    exec_compress_restore(w->kern, c, matrices_in(w, squeeze, w->parameters.values), squeeze->packed[microbatch],
                          squeeze->whole[microbatch]);
  }
}

/* And what it sends is packed after. scratch: of the workspace, for a tensor or a matrix of its largest dimension. */
static void pack_skips(const exec_work *work, exec_worker *w, float *scratch, int chunk, int microbatch) {
  for (int i = 0; i < work->program->compressor_count; i++) {
    exec_squeeze *squeeze = &w->squeezes[i];
    const plan_compressor *c = &work->program->compressors[i];
    if (!squeeze->here || !squeeze->down || work->program->messages[c->message].from_chunk != chunk) continue;
    const float *whole = squeeze->whole[microbatch];
    exec_compress_pack(w->kern, c, matrices_in(w, squeeze, w->parameters.values), whole, squeeze->packed[microbatch]);
    if (work->fitting) {
      exec_compress_gather(w->kern, c, whole, squeeze->moments, scratch);
    } else if (work->step->measure_skips) {
      exec_compress_restore(w->kern, c, squeeze->up, squeeze->packed[microbatch], scratch);
      squeeze->psnr = exec_compress_psnr(graph_tensor_elements(&work->graph->tensors.items[c->tensor]), whole, scratch);
    }
  }
}

/* The gradients of restored skips are complete when the first unit that uses them has run backward. */
static void restore_skips_backward(const exec_work *work, exec_worker *w, const plan_work *what, uint32_t microbatch) {
  const uint8_t *begun = exec_layout_begun(&w->layout, microbatch);
  for (int i = 0; i < work->program->compressor_count; i++) {
    const exec_squeeze *squeeze = &w->squeezes[i];
    const plan_compressor *c = &work->program->compressors[i];
    if (!squeeze->here || squeeze->down || !c->trained || c->up_unit < (int)what->first_unit ||
        c->up_unit >= (int)(what->first_unit + what->unit_count))
      continue;
    float *gradient = squeeze->whole_gradients[microbatch];
    if (!begun[c->tensor])
      kern_fill(w->kern, graph_tensor_elements(&work->graph->tensors.items[c->tensor]), 0, gradient);
    exec_compress_restore_backward(w->kern, c, matrices_in(w, squeeze, w->parameters.values),
                                   squeeze->packed[microbatch], gradient, squeeze->gradients[microbatch],
                                   matrices_in(w, squeeze, w->parameters.gradients));
  }
}

/* ---- making it ---- */

static dp_status make_output(const exec_work *work, exec_worker *w, dp_arena *arena, dp_error *error) {
  const graph_tensor *output = &work->graph->tensors.items[work->output];
  if (!w->here[output->producer_unit]) return DP_OK;
  w->weights = DP_ARENA_NEW(arena, float, (size_t)output->dims[0]);
  w->squares = DP_ARENA_NEW(arena, double, (size_t)(work->plan->microbatches * output->dims[0]));
  return w->weights && w->squares ? DP_OK : dp_fail_memory(error);
}

/* Of its own, or those of a worker of another pipeline. */
static dp_status make_parameters(const exec_work *work, const exec_worker *shared, const exec_extra *extras,
                                 int extra_count, exec_worker *w, dp_error *error) {
  const exec_parameters_options how = {.here = w->here,
                                       .training = true,
                                       .means = work->options.means,
                                       .lora_alpha = work->options.lora_alpha,
                                       .values = w->layout.values,
                                       .gradients = w->layout.gradients,
                                       .optimizer = w->layout.optimizer,
                                       .extras = extras,
                                       .extra_count = extra_count};
  w->borrows = shared != NULL;
  if (!shared) return exec_parameters_init(work->graph, &how, &w->parameters, error);
  w->parameters = shared->parameters;
  return DP_OK;
}

static dp_status make(const exec_work *work, const exec_worker *shared, dp_arena *arena, exec_worker *w,
                      dp_error *error) {
  const plan_plan *plan = work->plan;
  w->here = DP_ARENA_NEW(arena, uint8_t, work->graph->units.count);
  w->norms = DP_ARENA_NEW(arena, double, (size_t)work->program->worker_count);
  if (!w->here || !w->norms) return dp_fail_memory(error);
  for (int c = 0; c < plan->chunk_count; c++)
    if (plan->chunks[c].rank == plan_worker_rank(plan, w->index))
      memset(w->here + plan->chunks[c].first_unit, 1, (size_t)plan->chunks[c].unit_count);
  exec_extra *extras = NULL;
  int extra_count = 0;
  DP_TRY(list_squeezes(work, w, arena, &extras, &extra_count, error));
  DP_TRY(exec_layout_init(work->program, work->graph, &work->memory.workers[w->index], w->index, shared == NULL,
                          &w->layout, error));
  DP_TRY(make_parameters(work, shared, extras, extra_count, w, error));
  const kern_context_options how = {.threads = exec_work_threads(work),
                                    .workspace = w->layout.workspace,
                                    .workspace_bytes = w->layout.workspace_bytes};
  DP_TRY(kern_context_create(&how, &w->kern, error));
  for (int i = 0; i < work->program->compressor_count; i++)
    if (w->squeezes[i].here)
      DP_TRY(make_squeeze(work, w, &work->program->compressors[i], &w->squeezes[i], arena, error));
  return make_output(work, w, arena, error);
}

dp_status exec_worker_init(const exec_work *work, int index, const exec_worker *shared, dp_arena *arena, exec_worker *w,
                           dp_error *error) {
  *w = (exec_worker){.index = index};
  const dp_status status = make(work, shared, arena, w, error);
  if (status != DP_OK) exec_worker_free(w);
  return status;
}

void exec_worker_free(exec_worker *w) {
  if (!w->borrows) exec_parameters_free(&w->parameters);
  kern_context_free(w->kern);
  exec_layout_free(&w->layout);
  *w = (exec_worker){.index = 0};
}

void exec_worker_begin(const exec_work *work, exec_worker *w) {
  w->loss = w->square = 0;
  w->scale = 1;
  w->spoilt = false;
  w->trouble = (exec_trouble){0};
  if (!work->step->evaluate) kern_fill(w->kern, w->parameters.trained_count, 0, w->parameters.gradients);
  memset(w->layout.begun, 0, (size_t)work->plan->microbatches * work->graph->tensors.count);
  if (work->options.poison) exec_layout_poison_all(&w->layout);
}

/* ---- forward ---- */

static void feed(const exec_work *work, const exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                 int microbatch) {
  const exec_feed *source = &work->options.feed;
  for (int i = 0; i < chunk->places->input_count; i++) {
    const plan_port *input = &chunk->places->inputs[i];
    source->fill(source->data, plan_worker_replica(work->plan, w->index), microbatch, input->tensor,
                 exec_memory_at(memory, input->place));
  }
}

/* The weighted mean over the samples of all replicas, and its gradient. */
static void take_loss(const exec_work *work, exec_worker *w, float *target, int microbatch) {
  const exec_feed *source = &work->options.feed;
  const float *output = w->layout.outputs[microbatch];
  const graph_tensor *t = &work->graph->tensors.items[work->output];
  const int replica = plan_worker_replica(work->plan, w->index);
  const double samples = (double)work->plan->microbatches * work->plan->replicas * (double)t->dims[0];
  const kern_loss size = {.batch = t->dims[0], .n = graph_tensor_elements(t) / t->dims[0], .factor = 1 / samples};
  source->fill(source->data, replica, microbatch, work->output, target);
  if (source->weigh) source->weigh(source->data, replica, microbatch, w->weights);
  const float *weights = source->weigh ? w->weights : NULL;
  for (int64_t s = 0; s < size.batch; s++) { /* one by one: there is no bound on samples */
    kern_loss one = size;
    one.batch = 1;
    w->loss += kern_loss_forward(w->kern, &one, output + s * size.n, target + s * size.n, weights ? weights + s : NULL,
                                 &w->squares[microbatch * size.batch + s]);
  }
  if (work->step->evaluate) return;
  kern_loss_backward(w->kern, &size, output, target, weights, w->layout.output_gradients[microbatch]);
  exec_layout_begun(&w->layout, (uint32_t)microbatch)[work->output] = 1;
}

/* Only what leaves the chunk's last unit is looked at, as long as that is finite. */
static void look_for_trouble(const exec_work *work, exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                             uint32_t at) {
  if (w->trouble.at || exec_chunk_is_finite(chunk, memory)) return;
  w->trouble = (exec_trouble){.at = (int64_t)at + 1,
                              .unit = exec_chunk_find_not_finite(chunk, memory),
                              .microbatch = (int32_t)work->program->instructions[at].microbatch};
}

static void forward(const exec_work *work, exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                    uint32_t at) {
  const plan_instruction *instruction = &work->program->instructions[at];
  const int microbatch = (int)instruction->microbatch;
  feed(work, w, chunk, memory, microbatch);
  restore_skips(work, w, instruction->chunk, microbatch);
  exec_chunk_forward(chunk, memory);
  pack_skips(work, w, exec_memory_at(memory, chunk->places->scratch), instruction->chunk, microbatch);
  look_for_trouble(work, w, chunk, memory, at);
  if (instruction->chunk == work->plan->chunk_count - 1)
    take_loss(work, w, exec_memory_at(memory, chunk->places->target), microbatch);
}

/* ---- backward ---- */

static void add_arrived(const exec_work *work, exec_worker *w, const plan_instruction *instruction) {
  const exec_layout *l = &w->layout;
  const exec_inbox *inbox = &l->inboxes[instruction->chunk];
  uint8_t *begun = exec_layout_begun(l, instruction->microbatch);
  for (int i = 0; i < inbox->count; i++) {
    const exec_arrival *arrival = &inbox->arrivals[i];
    const int64_t n = graph_tensor_elements(&work->graph->tensors.items[arrival->tensor]);
    const exec_squeeze *squeeze =
        exec_worker_squeeze(work, w, &work->program->messages[arrival->message], arrival->port);
    const float *from = exec_layout_port(l, arrival->message, arrival->port, instruction->microbatch);
    float *to = l->targets[arrival->to * l->microbatches + (int)instruction->microbatch];
    if (squeeze)
      exec_compress_pack_backward(w->kern, &work->program->compressors[squeeze - w->squeezes],
                                  matrices_in(w, squeeze, w->parameters.values),
                                  squeeze->whole[instruction->microbatch], from, to, begun[arrival->tensor],
                                  matrices_in(w, squeeze, w->parameters.gradients));
    else if (begun[arrival->tensor])
      kern_axpy(w->kern, n, 1, from, to);
    else
      kern_copy(w->kern, n, from, to);
    begun[arrival->tensor] = 1;
  }
}

static void backward(const exec_work *work, exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                     const plan_instruction *instruction) {
  const plan_work *what = &work->program->works[instruction->class_id];
  if (instruction->part == 0) {
    exec_chunk_begin_backward(chunk, memory);
    add_arrived(work, w, instruction);
  }
  exec_chunk_backward(chunk, memory, (int)what->first_unit, (int)what->unit_count);
  restore_skips_backward(work, w, what, instruction->microbatch);
}

/* ---- the optimizer ---- */

void exec_worker_norm(exec_worker *w) {
  w->square = kern_sum_squares(w->kern, w->parameters.trained_count, w->parameters.gradients);
}

/* Of one replica, for all have the same gradients. */
void exec_worker_clip(const exec_work *work, exec_worker *w) {
  double sum = 0;
  for (int other = 0; other < work->program->worker_count; other++)
    if (plan_worker_replica(work->plan, other) == 0) sum += w->norms[other];
  w->spoilt = !isfinite(sum);
  if (work->step->clip_norm > 0) w->scale = fmin(1, work->step->clip_norm / (sqrt(sum) + 1e-6));
}

/* A worker alone, or without global_norm, has not met the others. */
static void optimize(const exec_work *work, exec_worker *w) {
  const exec_step *step = work->step;
  exec_parameters *p = &w->parameters;
  kern_adamw settings = step->adamw;
  if (work->program->worker_count == 1 || !work->plan->global_norm) {
    exec_worker_norm(w);
    w->spoilt = !isfinite(w->square);
  }
  if (work->program->worker_count == 1) {
    w->norms[0] = w->square;
    exec_worker_clip(work, w);
  }
  if (w->spoilt) return;
  if (step->rank_rates) settings.lr *= step->rank_rates[plan_worker_rank(work->plan, w->index)];
  settings.gradient_scale = w->scale;
  kern_adamw_step(w->kern, &settings, p->trained_count, p->values, p->gradients, p->first, p->second);
  if (p->means) kern_ema(w->kern, p->trained_count, (float)step->means_decay, p->values, p->means);
}

/* ---- instructions ---- */

static void run(const exec_work *work, exec_worker *w, uint32_t at) {
  const plan_instruction *instruction = &work->program->instructions[at];
  const plan_work *what = &work->program->works[instruction->class_id];
  const exec_chunk chunk = {.graph = work->graph,
                            .places = &w->layout.places[instruction->chunk],
                            .parameters = &w->parameters,
                            .kern = w->kern,
                            .observer = work->options.observer,
                            .worker = w->index,
                            .poison = work->options.poison};
  const exec_memory *memory =
      &w->layout.memory[(uint32_t)instruction->chunk * (uint32_t)w->layout.microbatches + instruction->microbatch];
  switch (instruction->opcode) {
    case PLAN_FORWARD:
      forward(work, w, &chunk, memory, at);
      return;
    case PLAN_BACKWARD:
    case PLAN_BACKWARD_INPUT:
      backward(work, w, &chunk, memory, instruction);
      return;
    case PLAN_OPTIMIZER_STEP:
      optimize(work, w);
      return;
    default:
      exec_chunk_backward_weight(&chunk, memory, (int)what->first_unit, (int)what->unit_count);
      return;
  }
}

void exec_worker_run(const exec_work *work, exec_worker *w, uint32_t at) {
  const uint32_t position = at - compute_of(work, w)->first;
  if (work->options.poison) {
    exec_layout_poison(&w->layout, 2 * position, false);
    exec_layout_poison(&w->layout, 2 * position + 1, true);
  }
  if (!work->step->evaluate || work->program->instructions[at].opcode == PLAN_FORWARD) run(work, w, at);
  if (work->options.poison) {
    exec_layout_poison(&w->layout, 2 * position + 1, false);
    exec_layout_poison(&w->layout, 2 * position + 2, true);
  }
}
