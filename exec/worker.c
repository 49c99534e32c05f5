#include "exec/worker.h"

#include <math.h>
#include <string.h>

#include "graph/op_table.h"

/* ---- making it ---- */

static dp_status add_handed_on(const exec_work *work, int index, exec_frame *frame, dp_error *error) {
  const plan_program *program = work->program;
  for (uint32_t m = 0; m < program->message_count; m++) {
    const plan_message *message = &program->messages[m];
    if ((int)message->from_worker != index && (int)message->to_worker != index) continue;
    for (int i = message->first_tensor; i < message->first_tensor + message->tensor_count; i++)
      DP_TRY(exec_frame_add(frame, work->graph, program->message_tensors[i], true, error));
  }
  return DP_OK;
}

static dp_status make_inputs(const exec_work *work, exec_worker *w, exec_frame *frame, int microbatch,
                             dp_error *error) {
  for (size_t t = 0; t < work->graph->tensors.count; t++) {
    const graph_tensor *tensor = &work->graph->tensors.items[t];
    if (tensor->producer_op != GRAPH_NONE) continue;
    bool read = false;
    for (int i = 0; i < tensor->consumer_unit_count; i++) read = read || w->here[tensor->consumer_units[i]];
    if (!read) continue;
    if (tensor->is_constant && microbatch > 0) {
      frame->values[t] = w->frames[0].values[t];
      continue;
    }
    frame->values[t] = DP_ARENA_NEW(&frame->arena, float, (size_t)graph_tensor_elements(tensor));
    if (!frame->values[t]) return dp_fail_memory(error);
  }
  return DP_OK;
}

/* ---- compressed skips ---- */

/* The compressor of a tensor in a message of any pipeline and either direction; -1: it travels whole. */
static int compressor_of(const exec_work *work, const plan_message *message, int tensor) {
  const uint32_t each = work->program->message_count / (uint32_t)plan_copy_count(work->plan);
  for (int i = 0; i < work->compress.count; i++) {
    const plan_compressor *c = &work->compress.compressors[i];
    const plan_message *forward = &work->program->messages[c->message];
    const bool same = message->backward
                          ? message->from_chunk == forward->to_chunk && message->to_chunk == forward->from_chunk
                          : (uint32_t)(message - work->program->messages) % each == c->message;
    if (same && c->tensor == tensor) return i;
  }
  return -1;
}

int64_t exec_wire_floats(const exec_work *work, const plan_message *message, int tensor) {
  const int compressor = compressor_of(work, message, tensor);
  return compressor >= 0 ? exec_compress_kept(&work->compress.compressors[compressor])
                         : graph_tensor_elements(&work->graph->tensors.items[tensor]);
}

exec_squeeze *exec_worker_squeeze(const exec_work *work, const exec_worker *w, const plan_message *message,
                                  int tensor) {
  const int compressor = w->squeeze_count > 0 ? compressor_of(work, message, tensor) : -1;
  for (int i = 0; i < w->squeeze_count && compressor >= 0; i++)
    if (w->squeezes[i].compressor == compressor) return &w->squeezes[i];
  return NULL;
}

/* One end or the other of each compressor; an end's matrices are an extra of the unit that it counts as. */
static dp_status list_squeezes(const exec_work *work, exec_worker *w, dp_arena *arena, exec_extra **extras,
                               dp_error *error) {
  const int count = work->compress.count;
  w->squeezes = DP_ARENA_NEW(arena, exec_squeeze, (size_t)count + 1);
  *extras = DP_ARENA_NEW(arena, exec_extra, (size_t)count + 1);
  if (!w->squeezes || !*extras) return dp_fail_memory(error);
  for (int i = 0; i < count; i++) {
    const plan_compressor *c = &work->compress.compressors[i];
    const bool down = w->here[c->down_unit];
    if (!down && !w->here[c->up_unit]) continue;
    (*extras)[w->squeeze_count] = (exec_extra){down ? c->down_unit : c->up_unit, c->parameters, c->trained};
    w->squeezes[w->squeeze_count] = (exec_squeeze){.compressor = i, .down = down, .extra = w->squeeze_count};
    w->squeeze_count++;
  }
  return DP_OK;
}

static float *room(dp_arena *arena, int64_t floats, bool *failed) {
  float *made = DP_ARENA_NEW(arena, float, (size_t)floats);
  *failed = *failed || !made;
  return made;
}

static dp_status make_squeeze(const exec_work *work, exec_squeeze *squeeze, dp_arena *arena, dp_error *error) {
  const plan_compressor *c = &work->compress.compressors[squeeze->compressor];
  const size_t microbatches = (size_t)work->plan->microbatches;
  int64_t longest = 0;
  bool failed = false;
  for (int d = 0; d < 3; d++) longest = c->dims[d] > longest ? c->dims[d] : longest;
  const int64_t whole = c->batch * c->dims[0] * c->dims[1] * c->dims[2];
  squeeze->packed = DP_ARENA_NEW(arena, float *, microbatches);
  squeeze->gradients = DP_ARENA_NEW(arena, float *, microbatches);
  if (!squeeze->packed || !squeeze->gradients) return dp_fail_memory(error);
  for (size_t m = 0; m < microbatches; m++) {
    squeeze->packed[m] = room(arena, exec_compress_kept(c), &failed);
    if (!squeeze->down) squeeze->gradients[m] = room(arena, exec_compress_kept(c), &failed);
  }
  if (squeeze->down) {
    squeeze->up = room(arena, c->parameters, &failed);
    squeeze->scratch = room(arena, whole > longest * longest ? whole : longest * longest, &failed);
  }
  return failed ? dp_fail_memory(error) : DP_OK;
}

/* What a chunk receives packed is restored before it runs. */
static void restore_skips(const exec_work *work, exec_worker *w, int chunk, int microbatch) {
  for (int i = 0; i < w->squeeze_count; i++) {
    const exec_squeeze *squeeze = &w->squeezes[i];
    const plan_compressor *c = &work->compress.compressors[squeeze->compressor];
    const exec_frame *frame = &w->frames[microbatch];
    if (squeeze->down || work->program->messages[c->message].to_chunk != chunk) continue;
    exec_compress_restore(w->kern, c, exec_squeeze_in(w, squeeze, w->parameters.values), squeeze->packed[microbatch],
                          frame->values[frame->root[c->tensor]]);
  }
}

/* And what it sends is packed after. */
static void pack_skips(const exec_work *work, exec_worker *w, int chunk, int microbatch) {
  for (int i = 0; i < w->squeeze_count; i++) {
    exec_squeeze *squeeze = &w->squeezes[i];
    const plan_compressor *c = &work->compress.compressors[squeeze->compressor];
    const exec_frame *frame = &w->frames[microbatch];
    const float *whole = frame->values[frame->root[c->tensor]];
    if (!squeeze->down || work->program->messages[c->message].from_chunk != chunk) continue;
    exec_compress_pack(w->kern, c, exec_squeeze_in(w, squeeze, w->parameters.values), whole,
                       squeeze->packed[microbatch]);
    if (work->fitting) {
      exec_compress_gather(w->kern, c, whole, squeeze->moments, squeeze->scratch);
    } else if (work->step->measure_skips) {
      exec_compress_restore(w->kern, c, squeeze->up, squeeze->packed[microbatch], squeeze->scratch);
      squeeze->psnr =
          exec_compress_psnr(graph_tensor_elements(&work->graph->tensors.items[c->tensor]), whole, squeeze->scratch);
    }
  }
}

/* The gradients of restored skips are complete when the first unit that uses them has run backward. */
static void restore_skips_backward(const exec_work *work, exec_worker *w, const exec_chunk *chunk, int microbatch) {
  for (int i = 0; i < w->squeeze_count; i++) {
    const exec_squeeze *squeeze = &w->squeezes[i];
    const plan_compressor *c = &work->compress.compressors[squeeze->compressor];
    exec_frame *frame = &w->frames[microbatch];
    const int root = frame->root[c->tensor];
    if (squeeze->down || !c->trained || c->up_unit < chunk->first_unit ||
        c->up_unit >= chunk->first_unit + chunk->unit_count)
      continue;
    if (!frame->begun[root])
      kern_fill(w->kern, graph_tensor_elements(&work->graph->tensors.items[c->tensor]), 0, frame->gradients[root]);
    exec_compress_restore_backward(w->kern, c, exec_squeeze_in(w, squeeze, w->parameters.values),
                                   squeeze->packed[microbatch], frame->gradients[root], squeeze->gradients[microbatch],
                                   exec_squeeze_in(w, squeeze, w->parameters.gradients));
  }
}

static dp_status make_output(const exec_work *work, exec_worker *w, dp_arena *arena, dp_error *error) {
  const graph_tensor *output = &work->graph->tensors.items[work->output];
  if (!w->here[output->producer_unit]) return DP_OK;
  w->target = DP_ARENA_NEW(arena, float, (size_t)graph_tensor_elements(output));
  w->weights = DP_ARENA_NEW(arena, float, (size_t)output->dims[0]);
  w->squares = DP_ARENA_NEW(arena, double, (size_t)(work->plan->microbatches * output->dims[0]));
  return w->target && w->weights && w->squares ? DP_OK : dp_fail_memory(error);
}

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static dp_status make(const exec_work *work, const exec_worker *shared, dp_arena *arena, exec_worker *w,
                      dp_error *error) {
  const graph *g = work->graph;
  const plan_plan *plan = work->plan;
  w->here = DP_ARENA_NEW(arena, uint8_t, g->units.count);
  w->frames = DP_ARENA_NEW(arena, exec_frame, (size_t)plan->microbatches);
  w->norms = DP_ARENA_NEW(arena, double, (size_t)work->program->worker_count);
  if (!w->here || !w->frames || !w->norms) return dp_fail_memory(error);
  kern_context_options how = {.threads = work->options.threads > 0 ? work->options.threads : 1};
  for (int c = 0; c < plan->chunk_count; c++) {
    const plan_chunk *chunk = &plan->chunks[c];
    if (chunk->rank != plan_worker_rank(plan, w->index)) continue;
    memset(w->here + chunk->first_unit, 1, (size_t)chunk->unit_count);
    how.workspace_bytes =
        most(how.workspace_bytes, exec_chunk_workspace(g, chunk->first_unit, chunk->unit_count, how.threads));
  }
  exec_extra *extras = NULL;
  DP_TRY(list_squeezes(work, w, arena, &extras, error));
  how.workspace_bytes = most(how.workspace_bytes, exec_compress_workspace(&work->compress, how.threads));
  const exec_parameters_options weights = {.here = w->here,
                                           .training = true,
                                           .means = work->options.means,
                                           .lora_alpha = work->options.lora_alpha,
                                           .extras = extras,
                                           .extra_count = w->squeeze_count};
  w->borrows = shared != NULL;
  if (shared)
    w->parameters = shared->parameters;
  else
    DP_TRY(exec_parameters_init(g, &weights, &w->parameters, error));
  how.workspace_bytes = most(how.workspace_bytes, kern_sum_squares_workspace(w->parameters.trained_count, how.threads));
  how.workspace_bytes = most(how.workspace_bytes, 1 << 16); /* the loss */
  DP_TRY(kern_context_create(&how, &w->kern, error));
  for (int m = 0; m < plan->microbatches; m++) {
    DP_TRY(exec_frame_init(g, w->here, w->parameters.lora, true, &w->frames[m], error));
    DP_TRY(add_handed_on(work, w->index, &w->frames[m], error));
    DP_TRY(make_inputs(work, w, &w->frames[m], m, error));
  }
  for (int i = 0; i < w->squeeze_count; i++) DP_TRY(make_squeeze(work, &w->squeezes[i], arena, error));
  return make_output(work, w, arena, error);
}

dp_status exec_worker_init(const exec_work *work, int index, const exec_worker *shared, dp_arena *arena, exec_worker *w,
                           dp_error *error) {
  *w = (exec_worker){.index = index};
  const dp_status status = make(work, shared, arena, w, error);
  if (status != DP_OK) exec_worker_free(work, w);
  return status;
}

void exec_worker_free(const exec_work *work, exec_worker *w) {
  for (int m = 0; w->frames && m < work->plan->microbatches; m++) exec_frame_free(&w->frames[m]);
  if (!w->borrows) exec_parameters_free(&w->parameters);
  kern_context_free(w->kern);
  *w = (exec_worker){.index = 0};
}

void exec_worker_begin(const exec_work *work, exec_worker *w) {
  w->loss = w->square = 0;
  w->scale = 1;
  w->spoilt = false;
  w->trouble = (exec_trouble){0};
  if (!work->step->evaluate) kern_fill(w->kern, w->parameters.trained_count, 0, w->parameters.gradients);
  for (int m = 0; m < work->plan->microbatches; m++) exec_frame_clear(&w->frames[m], work->graph);
}

/* ---- forward ---- */

static void feed(const exec_work *work, const exec_worker *w, int microbatch, const exec_chunk *chunk) {
  const int end = chunk->first_unit + chunk->unit_count;
  for (size_t t = 0; t < work->graph->tensors.count; t++) {
    const graph_tensor *tensor = &work->graph->tensors.items[t];
    if (tensor->producer_op != GRAPH_NONE || tensor->is_constant) continue;
    bool read = false;
    for (int i = 0; i < tensor->consumer_unit_count; i++)
      read = read || (tensor->consumer_units[i] >= chunk->first_unit && tensor->consumer_units[i] < end);
    if (read)
      work->options.feed.fill(work->options.feed.data, plan_worker_replica(work->plan, w->index), microbatch, (int)t,
                              w->frames[microbatch].values[t]);
  }
}

/* The weighted mean over the samples of all replicas, and its gradient. */
static void take_loss(const exec_work *work, exec_worker *w, int microbatch) {
  const exec_feed *source = &work->options.feed;
  exec_frame *frame = &w->frames[microbatch];
  const graph_tensor *t = &work->graph->tensors.items[work->output];
  const int root = frame->root[work->output], replica = plan_worker_replica(work->plan, w->index);
  const double samples = (double)work->plan->microbatches * work->plan->replicas * (double)t->dims[0];
  const kern_loss size = {.batch = t->dims[0], .n = graph_tensor_elements(t) / t->dims[0], .factor = 1 / samples};
  source->fill(source->data, replica, microbatch, work->output, w->target);
  if (source->weigh) source->weigh(source->data, replica, microbatch, w->weights);
  const float *weights = source->weigh ? w->weights : NULL;
  for (int64_t s = 0; s < size.batch; s++) { /* one by one: there is no bound on samples */
    kern_loss one = size;
    one.batch = 1;
    w->loss += kern_loss_forward(w->kern, &one, frame->values[root] + s * size.n, w->target + s * size.n,
                                 weights ? weights + s : NULL, &w->squares[microbatch * size.batch + s]);
  }
  if (work->step->evaluate) return;
  kern_loss_backward(w->kern, &size, frame->values[root], w->target, weights, frame->gradients[root]);
  frame->begun[root] = 1;
}

static bool all_finite(int64_t n, const float *x) {
  float sum = 0; /* 0 times what is not finite is not 0 */
  for (int64_t i = 0; i < n; i++) sum += 0 * x[i];
  return sum == 0;
}

/* The first unit of the chunk that put out something not finite; -1: none did. */
static int spoilt_unit(const exec_work *work, const exec_chunk *chunk, const exec_frame *frame) {
  for (int u = chunk->first_unit; u < chunk->first_unit + chunk->unit_count; u++) {
    const graph_unit *unit = &work->graph->units.items[u];
    for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
      for (int i = 0; i < work->graph->ops.items[o].output_count; i++) {
        const int tensor = work->graph->ops.items[o].outputs[i];
        if (!all_finite(graph_tensor_elements(&work->graph->tensors.items[tensor]), frame->values[frame->root[tensor]]))
          return u;
      }
  }
  return -1;
}

/* Only the last unit's output is looked at, as long as that is finite. */
static void look_for_trouble(const exec_work *work, exec_worker *w, const exec_chunk *chunk, uint32_t at) {
  const plan_instruction *instruction = &work->program->instructions[at];
  const exec_frame *frame = &w->frames[instruction->microbatch];
  const graph_op *last = &work->graph->ops.items[chunk->first_op + chunk->op_count - 1];
  const int tensor = last->outputs[last->output_count - 1];
  if (w->trouble.at) return;
  if (all_finite(graph_tensor_elements(&work->graph->tensors.items[tensor]), frame->values[frame->root[tensor]]))
    return;
  w->trouble = (exec_trouble){
      .at = (int64_t)at + 1, .unit = spoilt_unit(work, chunk, frame), .microbatch = (int32_t)instruction->microbatch};
}

static void forward(const exec_work *work, exec_worker *w, const exec_chunk *chunk, uint32_t at) {
  const plan_instruction *instruction = &work->program->instructions[at];
  const int microbatch = (int)instruction->microbatch;
  feed(work, w, microbatch, chunk);
  restore_skips(work, w, instruction->chunk, microbatch);
  exec_chunk_forward(chunk, &w->frames[microbatch]);
  pack_skips(work, w, instruction->chunk, microbatch);
  look_for_trouble(work, w, chunk, at);
  if (instruction->chunk == work->plan->chunk_count - 1) take_loss(work, w, microbatch);
}

/* ---- backward ---- */

static void add_arrived(const exec_work *work, exec_worker *w, uint32_t at) {
  const plan_program *program = work->program;
  for (uint32_t next = work->inbox_first[at]; next; next = work->inbox_next[next - 1]) {
    const plan_instruction *recv = &program->instructions[next - 1];
    const plan_message *message = &program->messages[recv->class_id];
    exec_frame *frame = &w->frames[recv->microbatch];
    const float *from = work->arrived[next - 1];
    for (int k = message->first_tensor; k < message->first_tensor + message->tensor_count; k++) {
      const int tensor = program->message_tensors[k], root = frame->root[tensor];
      const int64_t n = exec_wire_floats(work, message, tensor);
      const exec_squeeze *squeeze = exec_worker_squeeze(work, w, message, tensor);
      if (squeeze)
        exec_compress_pack_backward(w->kern, &work->compress.compressors[squeeze->compressor],
                                    exec_squeeze_in(w, squeeze, w->parameters.values), frame->values[root], from,
                                    frame->gradients[root], frame->begun[root],
                                    exec_squeeze_in(w, squeeze, w->parameters.gradients));
      else if (frame->begun[root])
        kern_axpy(w->kern, n, 1, from, frame->gradients[root]);
      else
        kern_copy(w->kern, n, from, frame->gradients[root]);
      frame->begun[root] = 1;
      from += n;
    }
  }
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

static exec_chunk chunk_of(const exec_work *work, const exec_worker *w, const plan_work *what) {
  const int first_unit = (int)what->first_unit, unit_count = (int)what->unit_count;
  const graph_unit *first = &work->graph->units.items[first_unit];
  const graph_unit *last = &work->graph->units.items[first_unit + unit_count - 1];
  return (exec_chunk){.graph = work->graph,
                      .first_unit = first_unit,
                      .unit_count = unit_count,
                      .first_op = first->first_op,
                      .op_count = last->first_op + last->op_count - first->first_op,
                      .parameters = &w->parameters,
                      .adapters = w->parameters.lora,
                      .kern = w->kern,
                      .observer = work->options.observer,
                      .worker = w->index};
}

void exec_worker_run(const exec_work *work, exec_worker *w, uint32_t at) {
  const plan_instruction *instruction = &work->program->instructions[at];
  const exec_chunk chunk = chunk_of(work, w, &work->program->works[instruction->class_id]);
  exec_frame *frame = &w->frames[instruction->microbatch];
  if (work->step->evaluate && instruction->opcode != PLAN_FORWARD) return;
  switch (instruction->opcode) {
    case PLAN_FORWARD:
      forward(work, w, &chunk, at);
      return;
    case PLAN_BACKWARD:
      add_arrived(work, w, at);
      exec_chunk_backward_input(&chunk, frame);
      restore_skips_backward(work, w, &chunk, (int)instruction->microbatch);
      exec_chunk_backward_weight(&chunk, frame);
      return;
    case PLAN_BACKWARD_INPUT:
      add_arrived(work, w, at);
      exec_chunk_backward_input(&chunk, frame);
      restore_skips_backward(work, w, &chunk, (int)instruction->microbatch);
      return;
    case PLAN_OPTIMIZER_STEP:
      optimize(work, w);
      return;
    default:
      exec_chunk_backward_weight(&chunk, frame);
      return;
  }
}
