#include "exec/worker.h"

#include <math.h>
#include <string.h>

#include "graph/op_table.h"

static const plan_lane *compute_of(const exec_work *work, const exec_worker *w) {
  return &work->program->lanes[work->program->worker_lane[w->index]];
}

int64_t exec_trained_floats(const plan_program *program, const graph *g, int rank) {
  const plan_plan *plan = program->plan;
  int64_t trained = plan_trainable_parameters(plan, g, rank);
  for (int i = 0; i < program->compressor_count; i++) {
    const plan_compressor *skip = &program->compressors[i];
    const int ends = (plan->chunks[plan_chunk_of(plan, (size_t)skip->down_unit)].rank == rank) +
                     (plan->chunks[plan_chunk_of(plan, (size_t)skip->up_unit)].rank == rank);
    if (skip->trained) trained += ends * skip->parameters;
  }
  return trained;
}

kern_loss exec_loss_size(const exec_work *work) {
  const graph_tensor *t = &work->graph->tensors.items[work->output];
  const double samples = (double)work->plan->microbatches * work->plan->replicas * (double)t->dims[0];
  return (kern_loss){.batch = t->dims[0], .n = graph_tensor_elements(t) / t->dims[0], .factor = 1 / samples};
}

int exec_work_threads(const exec_work *work) { return work->options.threads > 0 ? work->options.threads : 1; }

/* ---- making it ---- */

static dp_status make_output(const exec_work *work, exec_worker *w, dp_arena *arena, dp_error *error) {
  const graph_tensor *output = &work->graph->tensors.items[work->output];
  if (!w->here[output->producer_unit]) return DP_OK;
  w->weights = DP_ARENA_NEW(arena, float, (size_t)output->dims[0]);
  w->squares = DP_ARENA_NEW(arena, double, (size_t)exec_work_samples(work));
  return w->weights && w->squares ? DP_OK : dp_fail_memory(error);
}

/* Of its own, or those of a worker of another pipeline. */
static dp_status make_parameters(const exec_work *work, const exec_worker *shared, const exec_extra *extras,
                                 int extra_count, exec_worker *w, dp_error *error) {
  const exec_parameters_options how = {
      .here = w->here,
      .training = true,
      .means = work->options.means,
      .lora_alpha = work->options.lora_alpha,
      .values = w->layout.values,
      .gradients = w->layout.gradients,
      .optimizer = w->layout.optimizer,
      .value_dtype = work->graph->precision,
      .gradient_dtype = work->plan->gradient_fp32 ? GRAPH_FP32 : work->graph->precision,
      .extras = extras,
      .extra_count = extra_count};
  w->borrows = shared != NULL;
  if (!shared) return exec_parameters_init(work->graph, &how, &w->parameters, error);
  w->parameters = shared->parameters;
  return DP_OK;
}

static dp_status make_fusions(const exec_work *work, exec_worker *w, dp_error *error) {
  if (!work->kind->math->fused || work->options.poison) return DP_OK;
  w->fusions = DP_ARENA_NEW(&w->layout.arena, exec_fusion, (size_t)work->plan->chunk_count);
  if (!w->fusions) return dp_fail_memory(error);
  for (int c = 0; c < work->plan->chunk_count; c++)
    DP_TRY(exec_fusion_of(work->graph, &w->layout.places[c], &w->layout.arena, &w->fusions[c], error));
  return DP_OK;
}

/* What the weight backward of a chunk writes, of the trained parameters. */
static int64_t written_by(const exec_work *work, const exec_worker *w, int chunk) {
  int64_t count = 0;
  for (int p = 0; p < PLAN_PASS_COUNT; p++) {
    const plan_pass_places *pass = &w->layout.places[chunk].passes[p];
    for (uint32_t a = 0; a < pass->action_count; a++) {
      const graph_op *op = &work->graph->ops.items[pass->actions[a].op];
      if (pass->actions[a].kind != PLAN_ACTION_WEIGHT_GRADIENT) continue;
      count += op->adapter_parameters;
      for (int k = op->first_weight; k < op->first_weight + op->weight_count; k++)
        if (exec_parameters_gradient(&w->parameters, k)) count += work->graph->weights.items[k].parameters;
    }
  }
  return count;
}

/* Parameters of what compresses skips, whose gradients are always added. */
static int64_t trained_extras(const exec_work *work, const exec_worker *w) {
  int64_t count = 0;
  for (int i = 0; i < work->program->compressor_count; i++)
    if (w->squeezes[i].here && work->program->compressors[i].trained) count += work->program->compressors[i].parameters;
  return count;
}

/* An op has its weights for itself and one action for their gradients: so where the counts are equal every trained
 * parameter but what compresses skips is written once by each microbatch, and the first need not find zeros. */
static dp_status find_first_microbatches(const exec_work *work, exec_worker *w, dp_error *error) {
  const plan_lane *compute = compute_of(work, w);
  const plan_opcode opcode = plan_splits_backward(work->plan) ? PLAN_BACKWARD_WEIGHT : PLAN_BACKWARD;
  int64_t written = 0;
  int *first = DP_ARENA_NEW(&w->layout.arena, int, (size_t)work->plan->chunk_count);
  if (!first) return dp_fail_memory(error);
  for (int c = 0; c < work->plan->chunk_count; c++) {
    first[c] = -1;
    written += written_by(work, w, c);
  }
  for (uint32_t i = compute->first; i < compute->first + compute->count; i++) {
    const plan_instruction *instruction = &work->program->instructions[i];
    if (instruction->opcode == opcode && first[instruction->chunk] < 0)
      first[instruction->chunk] = (int)instruction->microbatch;
  }
  if (written + trained_extras(work, w) == w->parameters.trained_count) w->first_microbatch = first;
  return DP_OK;
}

/* What starting has left behind. */
static void clear(const exec_work *work, exec_worker *w) {
  if (!w->borrows) work->kind->zero(w, work->memory.workers[w->index].resting_bytes, w->base);
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
  DP_TRY(exec_worker_list_squeezes(work, w, arena, &extras, &extra_count, error));
  const plan_worker_memory *memory = &work->memory.workers[w->index];
  DP_TRY(work->kind->open(work, w, error));
  DP_TRY(work->kind->allocate(w, memory->layout_bytes, &w->base, error));
  DP_TRY(exec_layout_init(work->program, work->graph, memory, w->index, w->base, &w->layout, error));
  DP_TRY(make_fusions(work, w, error));
  DP_TRY(make_parameters(work, shared, extras, extra_count, w, error));
  DP_TRY(find_first_microbatches(work, w, error));
  if (memory->shares_gradients && !shared && !w->first_microbatch)
    return dp_fail(error, DP_INTERNAL, "worker %d: gradients lie in saved activations and are not overwritten",
                   w->index);
  DP_TRY(make_output(work, w, arena, error));
  DP_TRY(exec_worker_make_squeezes(work, w, arena, error));
  DP_TRY(work->kind->start(work, w, error));
  clear(work, w);
  return DP_OK;
}

dp_status exec_worker_choose_again(const exec_work *work, exec_worker *w, dp_error *error) {
  DP_TRY(work->kind->choose_again(work, w, error));
  clear(work, w);
  return DP_OK;
}

dp_status exec_worker_init(const exec_work *work, int index, const exec_worker *shared, dp_arena *arena, exec_worker *w,
                           dp_error *error) {
  *w = (exec_worker){.index = index, .kind = work->kind};
  const dp_status status = make(work, shared, arena, w, error);
  if (status != DP_OK) exec_worker_free(w);
  return status;
}

void exec_worker_free(exec_worker *w) {
  if (!w->borrows) exec_parameters_free(&w->parameters);
  kern_context_free(w->kern);
  exec_layout_free(&w->layout);
  if (w->base) w->kind->release(w, w->base);
  if (w->kind) w->kind->close(w);
  *w = (exec_worker){.index = 0};
}

/* For tests: every buffer that begins, or ends, at a moment of the compute lane becomes NaN; but not what gradients of
 * weights have taken of one. */
static void poison(const exec_work *work, exec_worker *w, uint32_t moment, bool begin) {
  const plan_worker_memory *plan = w->layout.plan;
  for (uint32_t i = 0; i < plan->buffer_count; i++) {
    const plan_buffer *b = &plan->buffers[i];
    const int64_t left = plan->gradients_offset_bytes - b->offset_bytes;
    const bool taken = plan->shares_gradients && b->role == PLAN_ROLE_SAVED && left < b->bytes;
    if (b->role == PLAN_ROLE_PERSISTENT || b->role == PLAN_ROLE_GRADIENTS || (begin ? b->begin : b->end) != moment)
      continue;
    work->kind->math->spoil(w->context, taken && !begin ? left : b->bytes, w->base + b->offset_bytes);
  }
}

void exec_worker_begin(const exec_work *work, exec_worker *w) {
  const plan_worker_memory *plan = w->layout.plan;
  w->trouble = (exec_trouble){0};
  work->kind->begin(work, w);
  const int64_t gradient_bytes = w->parameters.trained_count * graph_dtype_bytes(w->parameters.gradient_dtype);
  if (!work->step->evaluate && !w->first_microbatch) work->kind->zero(w, gradient_bytes, w->parameters.gradients);
  if (!work->step->evaluate && w->first_microbatch && work->options.poison)
    work->kind->math->spoil(w->context, gradient_bytes, w->parameters.gradients);
  if (!work->step->evaluate && w->first_microbatch) exec_worker_begin_skips(work, w);
  memset(w->layout.begun, 0, (size_t)work->plan->microbatches * work->graph->tensors.count);
  if (work->options.poison)
    work->kind->math->spoil(w->context, plan->layout_bytes - plan->resting_bytes, w->base + plan->resting_bytes);
}

/* ---- forward ---- */

static void feed(const exec_work *work, exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                 int microbatch) {
  for (int i = 0; i < chunk->places->input_count; i++) {
    const plan_port *input = &chunk->places->inputs[i];
    work->kind->feed(work, w, input->tensor, microbatch, exec_memory_at(memory, input->place));
  }
}

/* Only what leaves the chunk's last unit is looked at, as long as that is finite. */
static void find_unit(const exec_work *work, exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                      uint32_t at) {
  if (w->trouble.at || exec_chunk_is_finite(chunk, memory)) return;
  const int unit = exec_chunk_find_not_finite(chunk, memory);
  w->trouble = (exec_trouble){.at = (int64_t)at + 1,
                              .unit = unit,
                              .last_unit = unit,
                              .microbatch = (int32_t)work->program->instructions[at].microbatch};
}

static void forward(const exec_work *work, exec_worker *w, const exec_chunk *chunk, const exec_memory *memory,
                    uint32_t at) {
  const plan_instruction *instruction = &work->program->instructions[at];
  const int microbatch = (int)instruction->microbatch;
  feed(work, w, chunk, memory, microbatch);
  exec_worker_restore_skips(work, w, instruction->chunk, microbatch);
  exec_chunk_forward(chunk, memory);
  exec_worker_pack_skips(work, w, exec_memory_at(memory, chunk->places->scratch), instruction->chunk, microbatch);
  if (work->kind->look && !work->searching)
    work->kind->look(work, w, chunk, memory, at);
  else
    find_unit(work, w, chunk, memory, at);
  if (instruction->chunk != work->plan->chunk_count - 1) return;
  void *target = exec_memory_at(memory, chunk->places->target);
  work->kind->feed(work, w, work->output, microbatch, target);
  work->kind->loss(work, w, microbatch, target);
  if (!work->step->evaluate) exec_layout_begun(&w->layout, (uint32_t)microbatch)[work->output] = 1;
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
    const void *from = exec_layout_port(l, arrival->message, arrival->port, instruction->microbatch);
    void *to = l->targets[arrival->to * l->microbatches + (int)instruction->microbatch];
    if (squeeze)
      exec_worker_pack_backward(work, w, squeeze, instruction->microbatch, from, to, begun[arrival->tensor]);
    else
      work->kind->math->move(w->context, n, from, to, begun[arrival->tensor]);
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
  exec_worker_restore_skips_backward(work, w, what, instruction->microbatch);
}

/* ---- the optimizer ---- */

/* Of one replica, for all have the same gradients. */
void exec_worker_clip(const exec_work *work, exec_worker *w) {
  double sum = 0;
  for (int other = 0; other < work->program->worker_count; other++)
    if (plan_worker_replica(work->plan, other) == 0) sum += w->norms[other];
  w->spoilt = !isfinite(sum);
  if (work->step->clip_norm > 0) w->scale = fmin(1, work->step->clip_norm / (sqrt(sum) + 1e-6));
}

/* ---- instructions ---- */

static exec_chunk chunk_of(const exec_work *work, exec_worker *w, const plan_instruction *instruction) {
  return (exec_chunk){
      .graph = work->graph,
      .places = &w->layout.places[instruction->chunk],
      .parameters = &w->parameters,
      .math = work->kind->math,
      .kern = w->context,
      .observer = work->options.observer,
      .worker = w->index,
      .poison = work->options.poison,
      .fresh = w->first_microbatch && w->first_microbatch[instruction->chunk] == (int)instruction->microbatch,
      .fusion = w->fusions ? &w->fusions[instruction->chunk] : NULL};
}

static void mark(void *data, uint32_t number) {
  exec_worker *w = data;
  w->kind->mark(w, number);
}

/* For a witness: the units of a pass in their order, forward or back. */
typedef struct unit_marks {
  const exec_work *work;
  int first, step, count;
} unit_marks;

static void tell_unit(void *data, uint32_t number) {
  const unit_marks *of = data;
  const exec_witness *witness = of->work->options.witness;
  const int unit = (int)number < of->count ? of->first + of->step * (int)number : GRAPH_NONE;
  witness->unit(witness->data, of->work->program, unit);
}

static unit_marks units_of(const exec_work *work, const exec_chunk *chunk, const plan_instruction *instruction,
                           const plan_work *what) {
  const int count = (int)what->unit_count;
  if (instruction->opcode == PLAN_FORWARD)
    return (unit_marks){work, chunk->places->first_unit, 1, chunk->places->unit_count};
  return (unit_marks){work, (int)what->first_unit + count - 1, -1, count};
}

static void run(const exec_work *work, exec_worker *w, uint32_t at) {
  const plan_instruction *instruction = &work->program->instructions[at];
  const plan_work *what = &work->program->works[instruction->class_id];
  exec_chunk chunk = chunk_of(work, w, instruction);
  exec_marks marks = {.mark = mark, .data = w};
  unit_marks units;
  if (w->mark_first) {
    marks.first = w->mark_first[at - compute_of(work, w)->first];
    marks.ends_only = w->mark_ends;
    chunk.marks = &marks;
  } else if (work->options.witness && work->options.witness->unit && instruction->opcode != PLAN_OPTIMIZER_STEP) {
    units = units_of(work, &chunk, instruction, what);
    marks = (exec_marks){.mark = tell_unit, .data = &units};
    chunk.marks = &marks;
  }
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
      if (work->only && work->with_norm && work->program->worker_count > 1) work->kind->norm(w);
      work->kind->optimize(work, w);
      return;
    default:
      exec_chunk_backward_weight(&chunk, memory, (int)what->first_unit, (int)what->unit_count);
      return;
  }
}

/* Where a device plays again what it has recorded, the host's part of the instruction is done all the same. */
static void record(const exec_work *work, exec_worker *w, uint32_t at) {
  if (work->kind->replay(work, w, at)) return;
  do {
    work->kind->record_begin(work, w, at);
    run(work, w, at);
  } while (!work->kind->record_end(work, w, at));
}

void exec_worker_run(const exec_work *work, exec_worker *w, uint32_t at) {
  const uint32_t position = at - compute_of(work, w)->first;
  const plan_instruction *instruction = &work->program->instructions[at];
  if (work->options.poison) {
    poison(work, w, 2 * position, false);
    poison(work, w, 2 * position + 1, true);
  }
  if (instruction->opcode == PLAN_FORWARD) {
    const exec_chunk chunk = chunk_of(work, w, instruction);
    work->kind->prepare(work, w, &chunk, (int)instruction->microbatch);
  }
  if (work->step->evaluate && instruction->opcode != PLAN_FORWARD)
    ;
  else if (work->kind->replay)
    record(work, w, at);
  else
    run(work, w, at);
  if (work->options.poison) {
    poison(work, w, 2 * position + 1, false);
    poison(work, w, 2 * position + 2, true);
  }
}
