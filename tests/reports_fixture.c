#include "tests/reports_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An instruction before its place is known. */
typedef struct draft {
  plan_instruction body;
  uint32_t lane;
  int waits[2], wait_count, peer; /* indices of drafts; peer -1: none */
} draft;

typedef struct maker {
  const fixture_options *options;
  fixture *out;
  DP_ARRAY(draft) drafts;
  DP_ARRAY(plan_lane) lanes;
  int *compute; /* [(worker * chunks + chunk) * microbatches * 2 + backward * microbatches + microbatch] draft */
  int *received;
  int chunks, workers;
} maker;

#define NEW(m, type, count) ((type *)must(dp_arena_alloc(&(m)->out->arena, (size_t)(count), sizeof(type))))

static void *must(void *memory) {
  if (!memory) abort();
  return memory;
}

#define PUSH(array, ...) (dp_array_push((array), __VA_ARGS__) ? (void)0 : abort())

static int slot(const maker *m, int worker, int chunk, int backward, int microbatch) {
  return ((worker * m->chunks + chunk) * 2 + backward) * m->options->microbatches + microbatch;
}

static uint32_t lane_of(maker *m, uint32_t worker, plan_lane_kind kind, bool backward, uint32_t peer) {
  for (size_t l = 0; l < m->lanes.count; l++) {
    const plan_lane *lane = &m->lanes.items[l];
    if (lane->worker == worker && lane->kind == kind && lane->backward == backward && lane->peer == peer)
      return (uint32_t)l;
  }
  const plan_lane lane = {.worker = worker, .kind = (uint16_t)kind, .backward = backward, .peer = peer};
  PUSH(&m->lanes, lane);
  return (uint32_t)m->lanes.count - 1;
}

static int add(maker *m, uint32_t lane, plan_instruction body, int wait) {
  draft made = {.body = body, .lane = lane, .peer = -1};
  if (wait >= 0) made.waits[made.wait_count++] = wait;
  PUSH(&m->drafts, made);
  return (int)m->drafts.count - 1;
}

static void add_compute(maker *m, int worker, int opcode, int chunk, int microbatch) {
  const plan_instruction body = {.opcode = (uint8_t)opcode,
                                 .chunk = (uint16_t)chunk,
                                 .microbatch = (uint32_t)microbatch,
                                 .class_id = (uint32_t)((worker * m->chunks + chunk) * PLAN_OPCODE_COUNT + opcode),
                                 .peer = PLAN_NO_PEER};
  const int made = add(m, lane_of(m, (uint32_t)worker, PLAN_LANE_COMPUTE, false, PLAN_NO_PEER), body, -1);
  if (opcode != PLAN_BACKWARD_WEIGHT) m->compute[slot(m, worker, chunk, opcode != PLAN_FORWARD, microbatch)] = made;
}

static void add_backward(maker *m, int worker, int chunk, int microbatch) {
  add_compute(m, worker, m->options->split_backward ? PLAN_BACKWARD_INPUT : PLAN_BACKWARD, chunk, microbatch);
  if (m->options->split_backward) add_compute(m, worker, PLAN_BACKWARD_WEIGHT, chunk, microbatch);
}

static void add_worker_compute(maker *m, int worker) {
  const fixture_options *o = m->options;
  const int rank = worker % o->ranks;
  if (o->one_f_one_b && o->training) {
    const int warm = o->ranks - rank < o->microbatches ? o->ranks - rank : o->microbatches;
    for (int i = 0; i < warm; i++) add_compute(m, worker, PLAN_FORWARD, rank, i);
    for (int i = 0; i < o->microbatches; i++) {
      add_backward(m, worker, rank, i);
      if (i + warm < o->microbatches) add_compute(m, worker, PLAN_FORWARD, rank, i + warm);
    }
    return;
  }
  for (int c = rank; c < m->chunks; c += o->ranks)
    for (int i = 0; i < o->microbatches; i++) add_compute(m, worker, PLAN_FORWARD, c, i);
  for (int c = m->chunks - o->ranks + rank; c >= 0 && o->training; c -= o->ranks)
    for (int i = 0; i < o->microbatches; i++) add_backward(m, worker, c, i);
}

/* What a compute instruction of a worker hands on. */
static void add_transfer(maker *m, int index) {
  const fixture_options *o = m->options;
  const draft made = m->drafts.items[index];
  const int opcode = made.body.opcode, chunk = made.body.chunk, microbatch = (int)made.body.microbatch;
  const bool backward = opcode != PLAN_FORWARD;
  const int to_chunk = backward ? chunk - 1 : chunk + 1;
  if (opcode == PLAN_BACKWARD_WEIGHT || to_chunk < 0 || to_chunk >= m->chunks) return;
  const int worker = (int)m->lanes.items[made.lane].worker, first = worker / o->ranks * o->ranks;
  const int to = first + to_chunk % o->ranks, consumer = m->compute[slot(m, to, to_chunk, backward, microbatch)];
  if (to == worker) {
    m->drafts.items[consumer].waits[m->drafts.items[consumer].wait_count++] = index;
    return;
  }
  plan_instruction body = {.opcode = PLAN_SEND,
                           .chunk = (uint16_t)chunk,
                           .microbatch = (uint32_t)microbatch,
                           .class_id = (uint32_t)((worker * m->chunks + chunk) * 2 + backward)};
  const int send = add(m, lane_of(m, (uint32_t)worker, PLAN_LANE_SEND, backward, (uint32_t)to), body, index);
  body.opcode = PLAN_RECV;
  body.chunk = (uint16_t)to_chunk;
  const int receive = add(m, lane_of(m, (uint32_t)to, PLAN_LANE_RECV, backward, (uint32_t)worker), body, -1);
  m->drafts.items[send].peer = receive;
  m->drafts.items[receive].peer = send;
  m->drafts.items[consumer].waits[m->drafts.items[consumer].wait_count++] = receive;
}

static int by_lane(const void *a, const void *b) {
  const plan_lane *x = a, *y = b;
  if (x->worker != y->worker) return x->worker < y->worker ? -1 : 1;
  return x->kind != y->kind ? (int)x->kind - (int)y->kind : (int)x->backward - (int)y->backward;
}

/* Orders the lanes, numbers the instructions, resolves waits and peers. */
static void flatten(maker *m) {
  plan_program *program = &m->out->program;
  const size_t count = m->drafts.count;
  for (size_t l = 0; l < m->lanes.count; l++)
    m->lanes.items[l].first = (uint32_t)l; /* the old number, for the moment */
  qsort(m->lanes.items, m->lanes.count, sizeof *m->lanes.items, by_lane);
  uint32_t *id = NEW(m, uint32_t, count), at = 0;
  program->instructions = NEW(m, plan_instruction, count);
  program->wait_first = NEW(m, uint32_t, count + 1);
  program->waits = NEW(m, uint32_t, 2 * count);
  program->lanes = NEW(m, plan_lane, m->lanes.count);
  program->worker_lane = NEW(m, uint32_t, m->workers + 1);
  program->lane_count = (uint32_t)m->lanes.count;
  program->instruction_count = (uint32_t)count;
  program->worker_count = m->workers;
  for (uint32_t l = 0; l < program->lane_count; l++) {
    plan_lane lane = m->lanes.items[l];
    const uint32_t old = lane.first;
    lane.first = at;
    for (size_t i = 0; i < count; i++)
      if (m->drafts.items[i].lane == old) id[i] = at++;
    lane.count = at - lane.first;
    program->lanes[l] = lane;
    program->worker_lane[lane.worker + 1] = l + 1;
  }
  for (size_t i = 0; i < count; i++) {
    program->instructions[id[i]] = m->drafts.items[i].body;
    if (m->drafts.items[i].peer >= 0) program->instructions[id[i]].peer = id[m->drafts.items[i].peer];
    program->wait_first[id[i] + 1] = (uint32_t)m->drafts.items[i].wait_count;
  }
  for (size_t i = 0; i < count; i++) program->wait_first[i + 1] += program->wait_first[i];
  for (size_t i = 0; i < count; i++)
    for (int w = 0; w < m->drafts.items[i].wait_count; w++)
      program->waits[program->wait_first[id[i]] + (uint32_t)w] = id[m->drafts.items[i].waits[w]];
}

static double duration(const maker *m, int opcode) {
  switch (opcode) {
    case PLAN_FORWARD:
    case PLAN_BACKWARD_INPUT:
    case PLAN_BACKWARD_WEIGHT:
      return m->options->forward_s;
    case PLAN_BACKWARD:
      return 2 * m->options->forward_s;
    case PLAN_OPTIMIZER_STEP:
      return m->options->forward_s / 2;
    case PLAN_ALL_REDUCE:
      return 3 * m->options->transfer_s;
    default:
      return m->options->transfer_s;
  }
}

/* Start times grow until every rule of the program holds. */
static void play(maker *m) {
  const plan_program *program = &m->out->program;
  plan_timeline *timeline = &m->out->timeline;
  timeline->program = program;
  timeline->start_s = NEW(m, double, program->instruction_count);
  timeline->end_s = NEW(m, double, program->instruction_count);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t l = 0; l < program->lane_count; l++)
      for (uint32_t i = program->lanes[l].first; i < program->lanes[l].first + program->lanes[l].count; i++) {
        double start = i > program->lanes[l].first ? timeline->end_s[i - 1] : 0;
        for (uint32_t w = program->wait_first[i]; w < program->wait_first[i + 1]; w++)
          start = fmax(start, timeline->end_s[program->waits[w]]);
        const plan_instruction *instruction = &program->instructions[i];
        if (instruction->opcode == PLAN_SEND || instruction->opcode == PLAN_RECV)
          start = fmax(start, timeline->start_s[instruction->peer]);
        if (instruction->opcode == PLAN_ALL_REDUCE)
          for (uint32_t j = 0; j < program->instruction_count; j++)
            if (program->instructions[j].opcode == PLAN_ALL_REDUCE &&
                program->instructions[j].peer == instruction->peer)
              start = fmax(start, timeline->start_s[j]);
        const double end = start + duration(m, instruction->opcode);
        if (start > timeline->start_s[i] || end > timeline->end_s[i]) moved = true;
        timeline->start_s[i] = start;
        timeline->end_s[i] = end;
        timeline->step_s = fmax(timeline->step_s, end);
      }
  }
}

static void add_classes(maker *m) {
  plan_program *program = &m->out->program;
  const int pairs = m->workers * m->chunks;
  program->works = NEW(m, plan_work, pairs * PLAN_OPCODE_COUNT);
  program->work_count = (uint32_t)(pairs * PLAN_OPCODE_COUNT);
  for (uint32_t w = 0; w < program->work_count; w++) program->works[w].parts = 1;
  program->messages = NEW(m, plan_message, pairs * 2);
  program->message_count = (uint32_t)(pairs * 2);
  for (uint32_t i = 0; i < program->message_count; i++)
    program->messages[i] = (plan_message){.backward = i % 2, .bytes = 1000000, .kind_bytes = {400000, 600000}};
  program->collectives = NEW(m, plan_collective, 1);
  program->collective_count = 1;
  program->collectives[0] = (plan_collective){.bytes = 5000000};
}

static void add_end_of_step(maker *m, int worker) {
  const fixture_options *o = m->options;
  const int last = (int)m->drafts.count - 1; /* of this worker's compute */
  int wait = -1;
  if (!o->training) return;
  if (o->replicas > 1) {
    const plan_instruction body = {.opcode = PLAN_ALL_REDUCE, .peer = (uint32_t)(worker % o->ranks)};
    wait = add(m, lane_of(m, (uint32_t)worker, PLAN_LANE_COLLECTIVE, false, PLAN_NO_PEER), body, last);
  }
  const plan_instruction body = {.opcode = PLAN_OPTIMIZER_STEP,
                                 .peer = PLAN_NO_PEER,
                                 .class_id = (uint32_t)(worker * m->chunks * PLAN_OPCODE_COUNT + PLAN_OPTIMIZER_STEP)};
  (void)add(m, lane_of(m, (uint32_t)worker, PLAN_LANE_COMPUTE, false, PLAN_NO_PEER), body, wait);
}

static void measure(maker *m) {
  const plan_program *program = &m->out->program;
  const plan_timeline *timeline = &m->out->timeline;
  plan_metrics *metrics = &m->out->metrics;
  double busy = 0;
  *metrics = (plan_metrics){
      .step_s = timeline->step_s, .worker_count = m->workers, .workers = NEW(m, plan_worker_metrics, m->workers)};
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    plan_worker_metrics *worker = &metrics->workers[lane->worker];
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      const double s = timeline->end_s[i] - timeline->start_s[i];
      const int opcode = program->instructions[i].opcode;
      if (lane->kind != PLAN_LANE_COMPUTE)
        worker->comm_s += s;
      else
        worker->compute_s += s;
      if (opcode == PLAN_FORWARD) worker->forward_s += s;
      if (opcode == PLAN_BACKWARD || opcode == PLAN_BACKWARD_INPUT || opcode == PLAN_BACKWARD_WEIGHT)
        worker->backward_s += s;
      if (opcode == PLAN_OPTIMIZER_STEP) worker->optimizer_s += s;
      if (opcode == PLAN_RECV) worker->received_bytes += 1000000;
      if (opcode != PLAN_SEND) continue;
      worker->sent_bytes += 1000000;
      metrics->comm_bytes += 1000000;
      metrics->comm_bytes_by_kind[PLAN_TRAFFIC_BOUNDARY] += 400000;
      metrics->comm_bytes_by_kind[PLAN_TRAFFIC_SKIP] += 600000;
    }
  }
  for (int w = 0; w < m->workers; w++) {
    busy += metrics->workers[w].compute_s;
    metrics->workers[w].idle_s = timeline->step_s - metrics->workers[w].compute_s;
  }
  metrics->bubble_ratio = 1 - busy / (m->workers * timeline->step_s);
  metrics->throughput_samples_per_s = m->options->microbatches * m->options->replicas / timeline->step_s;
}

static void add_memory(maker *m) {
  plan_memory *memory = &m->out->memory;
  int64_t *limits = NEW(m, int64_t, m->workers);
  memory->workers = NEW(m, plan_worker_memory, m->workers);
  memory->worker_count = m->workers;
  m->out->run.fits = true;
  for (int w = 0; w < m->workers; w++) {
    plan_worker_memory *worker = &memory->workers[w];
    const int64_t in_flight = m->options->ranks - w % m->options->ranks;
    const int64_t bytes[PLAN_MEMORY_CLASS_COUNT] = {2100000000, 4200000000, 12600000000, 1500000000 * in_flight,
                                                    700000000,  90000000,   1100000000,  800000000};
    memcpy(worker->at_peak_bytes, bytes, sizeof bytes);
    for (int c = 0; c < PLAN_MEMORY_CLASS_COUNT; c++) worker->live_peak_bytes += bytes[c];
    worker->resting_bytes = bytes[0] + bytes[1] + bytes[2];
    worker->layout_bytes = worker->live_peak_bytes - bytes[PLAN_MEMORY_RUNTIME] + 250000000;
    worker->peak_bytes = worker->layout_bytes + bytes[PLAN_MEMORY_RUNTIME];
    limits[w] = m->options->limit_bytes;
    if (worker->peak_bytes > limits[w]) m->out->run.fits = false;
  }
  m->out->run.memory_limit_bytes = limits;
}

static void add_surroundings(maker *m) {
  const fixture_options *o = m->options;
  fixture *out = m->out;
  static const char *const names[] = {"compute: convolutions", "compute: matrix products", "pipeline bubble",
                                      "communication not hidden"};
  static const double shares[] = {0.46, 0.31, 0.15, 0.08};
  for (int b = 0; b < 4; b++) out->bounds[b] = (report_bound){names[b], shares[b]};
  out->graph.class_name = "UNet2DConditionModel";
  out->graph.height = out->graph.width = 1024;
  out->graph.frames = 1;
  out->graph.text_tokens = 77;
  out->graph.precision = GRAPH_BF16;
  out->graph.parameters = out->graph.trainable_parameters = 2567463684;
  for (int u = 0; u < m->chunks; u++) PUSH(&out->graph.units, ((graph_unit){.name = "unit"}));
  out->model.name = "A100-SXM4-80GB";
  out->cluster.name = "fixture";
  out->cluster.node_count = 1;
  out->cluster.price_usd_per_h = 14.3;
  out->cluster.power_w = 3800;
  for (int d = 0; d < m->workers + o->spare_devices; d++) {
    const char *name = d == 0 ? o->device_name : must(dp_arena_printf(&out->arena, "node0/gpu%d", d));
    const plan_device device = {.name = name, .model = &out->model, .parts = 1, .memory_bytes = o->limit_bytes};
    PUSH(&out->cluster.devices, device);
  }
  out->plan = (plan_plan){.training = o->training,
                          .ranks = o->ranks,
                          .chunks_per_rank = o->chunks_per_rank,
                          .replicas = o->replicas,
                          .schedule = o->one_f_one_b ? PLAN_1F1B : PLAN_INTERLEAVED,
                          .microbatches = o->microbatches,
                          .microbatch_size = 1,
                          .denoise_steps = 1,
                          .gradient_fp32 = true,
                          .gradient_buckets = 1,
                          .chunk_count = m->chunks,
                          .chunks = NEW(m, plan_chunk, m->chunks),
                          .devices = NEW(m, int, m->workers)};
  for (int c = 0; c < m->chunks; c++)
    out->plan.chunks[c] = (plan_chunk){.first_unit = c, .unit_count = 1, .rank = c % o->ranks};
  for (int w = 0; w < m->workers; w++) out->plan.devices[w] = w;
}

void fixture_make(const fixture_options *options, fixture *made) {
  *made = (fixture){0};
  maker m = {.options = options,
             .out = made,
             .chunks = options->ranks * options->chunks_per_rank,
             .workers = options->ranks * options->replicas};
  add_surroundings(&m);
  m.compute = NEW(&m, int, m.workers *m.chunks * 2 * options->microbatches);
  for (int w = 0; w < m.workers; w++) {
    add_worker_compute(&m, w);
    add_end_of_step(&m, w);
  }
  const int computed = (int)m.drafts.count;
  for (int i = 0; i < computed; i++)
    if (m.lanes.items[m.drafts.items[i].lane].kind == PLAN_LANE_COMPUTE &&
        m.drafts.items[i].body.opcode != PLAN_OPTIMIZER_STEP)
      add_transfer(&m, i);
  add_classes(&m);
  made->program.plan = &made->plan;
  flatten(&m);
  play(&m);
  measure(&m);
  add_memory(&m);
  dp_array_free(&m.drafts);
  dp_array_free(&m.lanes);
  made->run = (report_run){.name = options->name,
                           .origin = "predicted",
                           .graph = &made->graph,
                           .cluster = &made->cluster,
                           .program = &made->program,
                           .timeline = &made->timeline,
                           .metrics = &made->metrics,
                           .memory = &made->memory,
                           .memory_limit_bytes = made->run.memory_limit_bytes,
                           .fits = made->run.fits,
                           .tightest_worker = 0,
                           .bounds = made->bounds,
                           .bound_count = 4,
                           .error_band = 0.15,
                           .usd_per_million_samples = 1234.5,
                           .joules_per_sample = 98.7,
                           .job_steps = 10000};
}

void fixture_free(fixture *made) {
  dp_array_free(&made->graph.units);
  dp_array_free(&made->cluster.devices);
  dp_arena_free(&made->arena);
}
