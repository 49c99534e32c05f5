#define _POSIX_C_SOURCE 200809L
#include "exec/pipeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "graph/op_table.h"

typedef struct worker {
  exec_parameters parameters;
  kern_context *kern;
  exec_frame *frames; /* [microbatch] */
  uint8_t *here;      /* [unit] */
  float *target;      /* of the output, where it is made here */
  double loss;        /* sum over this step's microbatches */
} worker;

struct exec_pipeline {
  const plan_program *program;
  const plan_plan *plan;
  const graph *graph;
  exec_pipeline_options options;
  worker *workers;
  float **arrived;       /* [instruction] gradients set aside by a RECV */
  uint32_t *inbox_first; /* [instruction] 1 + a RECV of gradients that it adds first, of the furthest chunk; 0: none */
  uint32_t *inbox_next;  /* [RECV] 1 + the next one; 0: it is the last */
  plan_groups groups;
  int output; /* tensor */
  int64_t step;
  /* one step */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint8_t *done, *ready; /* [instruction] */
  uint32_t *group_ready; /* [group] members that are */
  bool given_up;         /* not all threads came */
  plan_timeline *timeline;
  double began_s;
  dp_arena arena;
};

/* ---- making it ---- */

static dp_status check_plan(const plan_plan *plan, const graph *g, dp_error *error) {
  const char *missing = NULL;
  for (size_t u = 0; u < g->units.count && plan->recompute; u++)
    if (plan->recompute[u]) missing = "recomputation";
  if (plan_skip_is_used(plan, g, PLAN_SKIP_COMPRESS)) missing = "compressed skips";
  if (plan_tensor(plan) > 1) missing = "tensor groups";
  if (!plan->training) missing = "sampling";
  if (g->precision != GRAPH_FP32) missing = "a precision other than fp32";
  if (missing) return dp_fail(error, DP_UNSUPPORTED, "the CPU executor does not know %s yet", missing);
  return exec_chunk_check(&(exec_chunk){.graph = g, .op_count = (int)g->ops.count}, error);
}

static int rank_of(const exec_pipeline *p, int w) { return w % p->plan->ranks; }
static int replica_of(const exec_pipeline *p, int w) { return w / p->plan->ranks; }

static dp_status add_handed_on(exec_pipeline *p, int w, exec_frame *frame, dp_error *error) {
  const plan_program *program = p->program;
  for (uint32_t m = 0; m < program->message_count; m++) {
    const plan_message *message = &program->messages[m];
    if ((int)message->from_worker != w && (int)message->to_worker != w) continue;
    for (int i = message->first_tensor; i < message->first_tensor + message->tensor_count; i++)
      DP_TRY(exec_frame_add(frame, p->graph, program->message_tensors[i], true, error));
  }
  return DP_OK;
}

static dp_status make_inputs(exec_pipeline *p, worker *w, exec_frame *frame, int microbatch, dp_error *error) {
  for (size_t t = 0; t < p->graph->tensors.count; t++) {
    const graph_tensor *tensor = &p->graph->tensors.items[t];
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

static dp_status make_worker(exec_pipeline *p, int index, dp_error *error) {
  worker *w = &p->workers[index];
  const graph *g = p->graph;
  const plan_plan *plan = p->plan;
  w->here = DP_ARENA_NEW(&p->arena, uint8_t, g->units.count);
  w->frames = DP_ARENA_NEW(&p->arena, exec_frame, (size_t)plan->microbatches);
  if (!w->here || !w->frames) return dp_fail_memory(error);
  kern_context_options how = {.threads = p->options.threads > 0 ? p->options.threads : 1};
  for (int c = 0; c < plan->chunk_count; c++) {
    const plan_chunk *chunk = &plan->chunks[c];
    if (chunk->rank != rank_of(p, index)) continue;
    memset(w->here + chunk->first_unit, 1, (size_t)chunk->unit_count);
    const size_t bytes = exec_chunk_workspace(g, chunk->first_unit, chunk->unit_count, how.threads);
    if (bytes > how.workspace_bytes) how.workspace_bytes = bytes;
  }
  if (how.workspace_bytes < 1 << 16) how.workspace_bytes = 1 << 16; /* the loss */
  DP_TRY(kern_context_create(&how, &w->kern, error));
  DP_TRY(exec_parameters_init(g, w->here, true, &w->parameters, error));
  for (int m = 0; m < plan->microbatches; m++) {
    DP_TRY(exec_frame_init(g, w->here, NULL, true, &w->frames[m], error));
    DP_TRY(add_handed_on(p, index, &w->frames[m], error));
    DP_TRY(make_inputs(p, w, &w->frames[m], m, error));
  }
  if (!w->here[g->tensors.items[p->output].producer_unit]) return DP_OK;
  w->target = DP_ARENA_NEW(&p->arena, float, (size_t)graph_tensor_elements(&g->tensors.items[p->output]));
  return w->target ? DP_OK : dp_fail_memory(error);
}

static bool begins_backward(const plan_instruction *i) {
  return (i->opcode == PLAN_BACKWARD || i->opcode == PLAN_BACKWARD_INPUT) && i->part == 0;
}

static dp_status set_aside(exec_pipeline *p, uint32_t recv, const plan_message *message, dp_error *error) {
  int64_t elements = 0;
  for (int t = message->first_tensor; t < message->first_tensor + message->tensor_count; t++)
    elements += graph_tensor_elements(&p->graph->tensors.items[p->program->message_tensors[t]]);
  p->arrived[recv] = DP_ARENA_NEW(&p->arena, float, (size_t)elements + 1);
  return p->arrived[recv] ? DP_OK : dp_fail_memory(error);
}

/* After those from chunks as far as this one's, or further. */
static void put_in_inbox(exec_pipeline *p, uint32_t backward, uint32_t recv) {
  const plan_program *program = p->program;
  const uint16_t chunk = program->messages[program->instructions[recv].class_id].from_chunk;
  uint32_t *at = &p->inbox_first[backward];
  while (*at && program->messages[program->instructions[*at - 1].class_id].from_chunk >= chunk)
    at = &p->inbox_next[*at - 1];
  p->inbox_next[recv] = *at;
  *at = recv + 1;
}

static dp_status make_inbox(exec_pipeline *p, dp_error *error) {
  const plan_program *program = p->program;
  const uint32_t n = program->instruction_count, microbatches = (uint32_t)p->plan->microbatches;
  p->arrived = DP_ARENA_NEW(&p->arena, float *, n);
  p->inbox_first = DP_ARENA_NEW(&p->arena, uint32_t, n);
  p->inbox_next = DP_ARENA_NEW(&p->arena, uint32_t, n);
  /* of one worker: where the backward of a chunk and microbatch begins */
  uint32_t *begins = DP_ARENA_NEW(&p->arena, uint32_t, (size_t)p->plan->chunk_count * microbatches);
  if (!p->arrived || !p->inbox_first || !p->inbox_next || !begins) return dp_fail_memory(error);
  for (int w = 0; w < program->worker_count; w++) {
    const uint32_t first = program->lanes[program->worker_lane[w]].first;
    const plan_lane *last = &program->lanes[program->worker_lane[w + 1] - 1];
    const uint32_t end = last->first + last->count;
    for (uint32_t i = first; i < end; i++) {
      const plan_instruction *instruction = &program->instructions[i];
      if (begins_backward(instruction)) begins[instruction->chunk * microbatches + instruction->microbatch] = i;
    }
    for (uint32_t i = first; i < end; i++) {
      const plan_instruction *recv = &program->instructions[i];
      if (recv->opcode != PLAN_RECV || !program->messages[recv->class_id].backward) continue;
      DP_TRY(set_aside(p, i, &program->messages[recv->class_id], error));
      put_in_inbox(p, begins[recv->chunk * microbatches + recv->microbatch], i);
    }
  }
  return DP_OK;
}

static dp_status make(exec_pipeline *p, dp_error *error) {
  const plan_program *program = p->program;
  for (size_t t = 0; t < p->graph->tensors.count; t++)
    if (p->graph->tensors.items[t].is_output) p->output = (int)t;
  p->workers = DP_ARENA_NEW(&p->arena, worker, (size_t)program->worker_count);
  p->done = DP_ARENA_NEW(&p->arena, uint8_t, program->instruction_count);
  p->ready = DP_ARENA_NEW(&p->arena, uint8_t, program->instruction_count);
  p->group_ready = DP_ARENA_NEW(&p->arena, uint32_t, program->group_count);
  if (!p->workers || !p->done || !p->ready || !p->group_ready) return dp_fail_memory(error);
  DP_TRY(plan_groups_of(program, &p->arena, &p->groups, error));
  for (int w = 0; w < program->worker_count; w++) DP_TRY(make_worker(p, w, error));
  return make_inbox(p, error);
}

dp_status exec_pipeline_create(const plan_program *program, const graph *g, const exec_pipeline_options *options,
                               exec_pipeline **pipeline, dp_error *error) {
  DP_TRY(check_plan(program->plan, g, error));
  exec_pipeline *p = calloc(1, sizeof *p);
  if (!p) return dp_fail_memory(error);
  p->program = program;
  p->plan = program->plan;
  p->graph = g;
  p->options = *options;
  if (pthread_mutex_init(&p->lock, NULL) != 0) {
    free(p);
    return dp_fail(error, DP_INTERNAL, "no lock could be made");
  }
  if (pthread_cond_init(&p->changed, NULL) != 0) {
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
    return dp_fail(error, DP_INTERNAL, "no condition could be made");
  }
  const dp_status status = make(p, error);
  if (status != DP_OK)
    exec_pipeline_free(p);
  else
    *pipeline = p;
  return status;
}

void exec_pipeline_free(exec_pipeline *p) {
  if (!p) return;
  for (int w = 0; p->workers && w < p->program->worker_count; w++) {
    for (int m = 0; p->workers[w].frames && m < p->plan->microbatches; m++) exec_frame_free(&p->workers[w].frames[m]);
    exec_parameters_free(&p->workers[w].parameters);
    kern_context_free(p->workers[w].kern);
  }
  (void)pthread_cond_destroy(&p->changed);
  (void)pthread_mutex_destroy(&p->lock);
  dp_arena_free(&p->arena);
  free(p);
}

exec_parameters *exec_pipeline_parameters(exec_pipeline *p, int w) { return &p->workers[w].parameters; }
kern_context *exec_pipeline_kernels(exec_pipeline *p, int w) { return p->workers[w].kern; }
float *exec_pipeline_constant(exec_pipeline *p, int w, int tensor) { return p->workers[w].frames[0].values[tensor]; }

/* ---- instructions ---- */

static void feed(const exec_pipeline *p, int index, int microbatch, int first_unit, int unit_count) {
  const worker *w = &p->workers[index];
  for (size_t t = 0; t < p->graph->tensors.count; t++) {
    const graph_tensor *tensor = &p->graph->tensors.items[t];
    if (tensor->producer_op != GRAPH_NONE || tensor->is_constant) continue;
    bool read = false;
    for (int i = 0; i < tensor->consumer_unit_count; i++)
      read = read || (tensor->consumer_units[i] >= first_unit && tensor->consumer_units[i] < first_unit + unit_count);
    if (read)
      p->options.feed.fill(p->options.feed.data, replica_of(p, index), microbatch, (int)t,
                           w->frames[microbatch].values[t]);
  }
}

/* The mean over the samples of all replicas, and its gradient. */
static void take_loss(const exec_pipeline *p, int index, int microbatch) {
  worker *w = &p->workers[index];
  exec_frame *frame = &w->frames[microbatch];
  const graph_tensor *t = &p->graph->tensors.items[p->output];
  const int root = frame->root[p->output];
  const double samples = (double)p->plan->microbatches * p->plan->replicas * (double)t->dims[0];
  const kern_loss size = {.batch = t->dims[0], .n = graph_tensor_elements(t) / t->dims[0], .factor = 1 / samples};
  p->options.feed.fill(p->options.feed.data, replica_of(p, index), microbatch, p->output, w->target);
  for (int64_t s = 0; s < size.batch; s++) { /* one by one: there is no bound on samples */
    kern_loss one = size;
    double square;
    one.batch = 1;
    w->loss +=
        kern_loss_forward(w->kern, &one, frame->values[root] + s * size.n, w->target + s * size.n, NULL, &square);
  }
  kern_loss_backward(w->kern, &size, frame->values[root], w->target, NULL, frame->gradients[root]);
  frame->begun[root] = 1;
}

static exec_chunk chunk_of(const exec_pipeline *p, int index, int first_unit, int unit_count) {
  const worker *w = &p->workers[index];
  const graph_unit *first = &p->graph->units.items[first_unit];
  const graph_unit *last = &p->graph->units.items[first_unit + unit_count - 1];
  return (exec_chunk){.graph = p->graph,
                      .first_unit = first_unit,
                      .unit_count = unit_count,
                      .first_op = first->first_op,
                      .op_count = last->first_op + last->op_count - first->first_op,
                      .parameters = &w->parameters,
                      .kern = w->kern};
}

static void add_arrived(const exec_pipeline *p, int index, uint32_t instruction) {
  const plan_program *program = p->program;
  worker *w = &p->workers[index];
  for (uint32_t next = p->inbox_first[instruction]; next; next = p->inbox_next[next - 1]) {
    const plan_instruction *recv = &program->instructions[next - 1];
    const plan_message *message = &program->messages[recv->class_id];
    exec_frame *frame = &w->frames[recv->microbatch];
    const float *from = p->arrived[next - 1];
    for (int k = message->first_tensor; k < message->first_tensor + message->tensor_count; k++) {
      const int tensor = program->message_tensors[k], root = frame->root[tensor];
      const int64_t n = graph_tensor_elements(&p->graph->tensors.items[tensor]);
      if (frame->begun[root])
        kern_axpy(w->kern, n, 1, from, frame->gradients[root]);
      else
        kern_copy(w->kern, n, from, frame->gradients[root]);
      frame->begun[root] = 1;
      from += n;
    }
  }
}

static void compute(exec_pipeline *p, int index, uint32_t at) {
  const plan_instruction *instruction = &p->program->instructions[at];
  const plan_work *work = &p->program->works[instruction->class_id];
  worker *w = &p->workers[index];
  if (instruction->opcode == PLAN_OPTIMIZER_STEP) {
    kern_adamw settings = p->options.adamw;
    settings.step = p->step;
    settings.gradient_scale = 1;
    kern_adamw_step(w->kern, &settings, w->parameters.count, w->parameters.values, w->parameters.gradients,
                    w->parameters.first, w->parameters.second);
    return;
  }
  const exec_chunk chunk = chunk_of(p, index, (int)work->first_unit, (int)work->unit_count);
  exec_frame *frame = &w->frames[instruction->microbatch];
  switch (instruction->opcode) {
    case PLAN_FORWARD:
      feed(p, index, (int)instruction->microbatch, chunk.first_unit, chunk.unit_count);
      exec_chunk_forward(&chunk, frame);
      if (instruction->chunk == p->plan->chunk_count - 1) take_loss(p, index, (int)instruction->microbatch);
      return;
    case PLAN_BACKWARD:
      add_arrived(p, index, at);
      exec_chunk_backward_input(&chunk, frame);
      exec_chunk_backward_weight(&chunk, frame);
      return;
    case PLAN_BACKWARD_INPUT:
      add_arrived(p, index, at);
      exec_chunk_backward_input(&chunk, frame);
      return;
    default:
      exec_chunk_backward_weight(&chunk, frame);
      return;
  }
}

/* By the receiver, when both are ready. Values go to their place; gradients are set aside. */
static void transfer(exec_pipeline *p, uint32_t recv_at) {
  const plan_program *program = p->program;
  const plan_instruction *recv = &program->instructions[recv_at], *send = &program->instructions[recv->peer];
  const plan_message *message = &program->messages[recv->class_id];
  const exec_frame *from = &p->workers[message->from_worker].frames[send->microbatch];
  const exec_frame *to = &p->workers[message->to_worker].frames[recv->microbatch];
  float *aside = p->arrived[recv_at];
  for (int k = message->first_tensor; k < message->first_tensor + message->tensor_count; k++) {
    const int tensor = program->message_tensors[k], root = from->root[tensor];
    const size_t n = (size_t)graph_tensor_elements(&p->graph->tensors.items[tensor]);
    if (!message->backward) {
      memcpy(to->values[to->root[tensor]], from->values[root], n * sizeof(float));
      continue;
    }
    if (from->begun[root])
      memcpy(aside, from->gradients[root], n * sizeof(float));
    else
      memset(aside, 0, n * sizeof(float)); /* nobody there has a use for it */
    aside += n;
  }
}

/* The weights of the units whose backward this part was, over all members: by the first of them. */
static void all_reduce(exec_pipeline *p, const plan_collective *collective) {
  const plan_program *program = p->program;
  const uint32_t *members = &program->group_members[collective->first_member];
  uint32_t c = 0, parts = 0;
  for (; c < program->work_count; c++) /* a chunk that has parts also has the whole, of other microbatches */
    if (program->works[c].worker == members[0] && program->works[c].chunk == collective->chunk &&
        program->works[c].parts > parts)
      parts = program->works[c].parts;
  for (c = 0; c < program->work_count; c++) {
    const plan_work *work = &program->works[c];
    const bool last = work->opcode == PLAN_BACKWARD || work->opcode == PLAN_BACKWARD_WEIGHT;
    if (last && work->worker == members[0] && work->chunk == collective->chunk && work->part == collective->part &&
        work->parts == parts)
      break;
  }
  const plan_work *work = &program->works[c];
  const graph *g = p->graph;
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) {
    const graph_unit *unit = &g->units.items[u];
    for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
      for (int k = g->ops.items[o].first_weight; k < g->ops.items[o].first_weight + g->ops.items[o].weight_count; k++) {
        float *sum = exec_parameters_gradient(&p->workers[members[0]].parameters, k);
        const int64_t n = g->weights.items[k].parameters;
        if (!sum) continue;
        for (uint32_t m = 1; m < collective->member_count; m++) {
          const float *other = exec_parameters_gradient(&p->workers[members[m]].parameters, k);
          for (int64_t i = 0; i < n; i++) sum[i] += other[i];
        }
        for (uint32_t m = 1; m < collective->member_count; m++)
          memcpy(exec_parameters_gradient(&p->workers[members[m]].parameters, k), sum, (size_t)n * sizeof *sum);
      }
  }
}

/* ---- lanes ---- */

typedef struct lane_run {
  exec_pipeline *pipeline;
  uint32_t lane;
} lane_run;

static bool may_start(const exec_pipeline *p, uint32_t i) {
  for (uint32_t w = p->program->wait_first[i]; w < p->program->wait_first[i + 1]; w++)
    if (!p->done[p->program->waits[w]]) return false;
  return true;
}

static void note(exec_pipeline *p, uint32_t i, double start_s) {
  if (!p->timeline) return;
  p->timeline->start_s[i] = start_s - p->began_s;
  p->timeline->end_s[i] = dp_clock_s() - p->began_s;
}

static void finish(exec_pipeline *p, uint32_t i, double start_s) {
  note(p, i, start_s);
  p->done[i] = 1;
}

static void wait_change(exec_pipeline *p) { (void)pthread_cond_wait(&p->changed, &p->lock); }

/* The lock is held. Whether this lane does the work, both ends or all members being ready: of a pair the receiver's, of
 * a group the first member's. The others wait for it to be done. */
static bool meet(exec_pipeline *p, const plan_lane *lane, uint32_t i) {
  const uint32_t peer = p->program->instructions[i].peer;
  const bool collective = lane->kind == PLAN_LANE_COLLECTIVE;
  const uint32_t *members = collective ? &p->groups.ids[p->groups.first[peer]] : NULL;
  const uint32_t count = collective ? p->groups.first[peer + 1] - p->groups.first[peer] : 0;
  p->ready[i] = 1;
  if (collective) p->group_ready[peer]++;
  (void)pthread_cond_broadcast(&p->changed);
  if (lane->kind == PLAN_LANE_SEND || (collective && members[0] != i)) {
    while (!p->done[i]) wait_change(p);
    return false;
  }
  while (lane->kind == PLAN_LANE_RECV && !p->ready[peer]) wait_change(p);
  while (collective && p->group_ready[peer] < count) wait_change(p);
  return true;
}

static void work_on(exec_pipeline *p, const plan_lane *lane, uint32_t i) {
  if (lane->kind == PLAN_LANE_COMPUTE)
    compute(p, (int)lane->worker, i);
  else if (lane->kind == PLAN_LANE_RECV)
    transfer(p, i);
  else
    all_reduce(p, &p->program->collectives[p->program->instructions[i].class_id]);
}

static void run_instruction(exec_pipeline *p, const plan_lane *lane, uint32_t i) {
  const uint32_t peer = p->program->instructions[i].peer;
  (void)pthread_mutex_lock(&p->lock);
  if (!p->given_up) {
    while (!may_start(p, i)) wait_change(p);
    if (meet(p, lane, i)) {
      (void)pthread_mutex_unlock(&p->lock);
      const double start_s = dp_clock_s();
      work_on(p, lane, i);
      (void)pthread_mutex_lock(&p->lock);
      if (lane->kind == PLAN_LANE_RECV) finish(p, peer, start_s);
      if (lane->kind == PLAN_LANE_COLLECTIVE)
        for (uint32_t m = p->groups.first[peer] + 1; m < p->groups.first[peer + 1]; m++)
          finish(p, p->groups.ids[m], start_s);
      finish(p, i, start_s);
      (void)pthread_cond_broadcast(&p->changed);
    }
  }
  (void)pthread_mutex_unlock(&p->lock);
}

static void *run_lane(void *data) {
  const lane_run *run = data;
  const plan_lane *lane = &run->pipeline->program->lanes[run->lane];
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) run_instruction(run->pipeline, lane, i);
  return NULL;
}

static void begin_step(exec_pipeline *p, plan_timeline *timeline) {
  const uint32_t n = p->program->instruction_count;
  memset(p->done, 0, n);
  memset(p->ready, 0, n);
  memset(p->group_ready, 0, p->program->group_count * sizeof *p->group_ready);
  for (int w = 0; w < p->program->worker_count; w++) {
    worker *one = &p->workers[w];
    one->loss = 0;
    memset(one->parameters.gradients, 0, (size_t)one->parameters.count * sizeof(float));
    for (int m = 0; m < p->plan->microbatches; m++) exec_frame_clear(&one->frames[m], p->graph);
  }
  p->step++;
  p->timeline = timeline;
  p->began_s = dp_clock_s();
}

dp_status exec_pipeline_step(exec_pipeline *p, double *loss, plan_timeline *timeline, dp_error *error) {
  const uint32_t lanes = p->program->lane_count;
  pthread_t *threads = calloc(lanes, sizeof *threads);
  lane_run *runs = calloc(lanes, sizeof *runs);
  if (!threads || !runs) {
    free(threads);
    free(runs);
    return dp_fail_memory(error);
  }
  begin_step(p, timeline);
  /* nobody starts before all are there: where a thread is refused, none has begun */
  (void)pthread_mutex_lock(&p->lock);
  uint32_t started = 0;
  for (; started < lanes; started++) {
    runs[started] = (lane_run){p, started};
    if (pthread_create(&threads[started], NULL, run_lane, &runs[started]) != 0) break;
  }
  p->given_up = started < lanes;
  (void)pthread_mutex_unlock(&p->lock);
  for (uint32_t l = 0; l < started; l++) (void)pthread_join(threads[l], NULL);
  free(threads);
  free(runs);
  if (started < lanes)
    return dp_fail(error, DP_UNSUPPORTED, "the system gives %u threads, needed: %u, one a lane", started, lanes);
  if (timeline) {
    timeline->step_s = 0;
    for (uint32_t i = 0; i < p->program->instruction_count; i++)
      if (timeline->end_s[i] > timeline->step_s) timeline->step_s = timeline->end_s[i];
  }
  *loss = 0;
  for (int w = 0; w < p->program->worker_count; w++) *loss += p->workers[w].loss;
  return DP_OK;
}
