#include "profiler/run_tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const prof_run_part_names[PROF_RUN_PART_COUNT] = {"compute",  "gaps", "host", "launch",
                                                              "transfer", "peer", "end"};

typedef DP_ARRAY(double) values;

typedef struct maker {
  const prof_run_source *sources;
  size_t count;
  const plan_program *program;
  prof_run_tables *tables;
  values *kinds;                              /* [rank * PLAN_OPCODE_COUNT + opcode] */
  double (*kind_classes_s)[PROF_CLASS_COUNT]; /* the same */
  values *links;                              /* [link of the tables] */
  values classes[PROF_CLASS_COUNT], gaps;
  DP_ARRAY(prof_run_unit) units; /* [unit] count 0: nothing was done for it */
  double *busy_s;                /* [instruction] of the step at hand */
} maker;

static int rank_of(const maker *m, uint32_t instruction) {
  const plan_program *program = m->program;
  const uint32_t worker = program->lanes[plan_instruction_lane(program, instruction)].worker;
  return plan_worker_rank(program->plan, (int)worker);
}

static int kind_of(const maker *m, uint32_t instruction) {
  return rank_of(m, instruction) * PLAN_OPCODE_COUNT + m->program->instructions[instruction].opcode;
}

/* ---- what instructions were made of ---- */

static bool add_to_unit(maker *m, const prof_work *work) {
  if (work->unit < 0) return true;
  while (m->units.count <= (size_t)work->unit) {
    const prof_run_unit next = {.unit = (int32_t)m->units.count};
    if (!dp_array_push(&m->units, next)) return false;
  }
  prof_run_unit *unit = &m->units.items[work->unit];
  const double seconds = work->end_s - work->start_s;
  unit->rank = rank_of(m, work->instruction);
  unit->count++;
  *(m->program->instructions[work->instruction].opcode == PLAN_FORWARD ? &unit->forward_s : &unit->backward_s) +=
      seconds;
  unit->classes_s[work->class] += seconds;
  return true;
}

/* The time in which any of an instruction's work runs, and the gaps between. */
static bool find_busy(maker *m, const prof_run_source *source, prof_run_step *row) {
  const prof_joined *joined = source->joined;
  for (uint32_t i = 0; i < m->program->instruction_count; i++)
    m->busy_s[i] = joined ? 0 : source->timeline->end_s[i] - source->timeline->start_s[i];
  double reached_s = 0;
  for (size_t w = 0; joined && w < joined->work.count; w++) {
    const prof_work *work = &joined->work.items[w];
    const bool first = w == 0 || work->instruction != work[-1].instruction;
    const plan_lane *lane = &m->program->lanes[plan_instruction_lane(m->program, work->instruction)];
    if (first) reached_s = work->start_s;
    if (work->start_s > reached_s && lane->kind == PLAN_LANE_COMPUTE &&
        !dp_array_push(&m->gaps, work->start_s - reached_s))
      return false;
    m->busy_s[work->instruction] += fmax(0, work->end_s - fmax(work->start_s, reached_s));
    reached_s = fmax(reached_s, work->end_s);
    row->classes_s[work->class] += work->end_s - work->start_s;
    m->kind_classes_s[kind_of(m, work->instruction)][work->class] += work->end_s - work->start_s;
    m->tables->stages[rank_of(m, work->instruction)].classes_s[work->class] += work->end_s - work->start_s;
    if (!dp_array_push(&m->classes[work->class], work->end_s - work->start_s) || !add_to_unit(m, work)) return false;
  }
  m->tables->work += joined ? joined->work.count : 0;
  m->tables->stray += joined ? joined->stray : 0;
  m->tables->stray_s += joined ? joined->stray_s : 0;
  return true;
}

/* ---- a worker's time ---- */

static double between(double low, double x, double high) { return fmin(fmax(low, x), high); }

/* From `at_s`, when its lane was free, to `start_s`, when an instruction started. */
static void add_idle(const prof_run_source *source, uint32_t i, double at_s, double start_s, double *parts_s) {
  const plan_timeline *t = source->timeline;
  const plan_program *program = t->program;
  uint32_t last = PLAN_NO_PEER;
  for (uint32_t w = program->wait_first[i]; w < program->wait_first[i + 1]; w++)
    if (last == PLAN_NO_PEER || t->end_s[program->waits[w]] > t->end_s[last]) last = program->waits[w];
  if (last != PLAN_NO_PEER) {
    const double ready_s = between(at_s, t->end_s[last], start_s), begun_s = between(at_s, t->start_s[last], ready_s);
    parts_s[PROF_RUN_PEER] += begun_s - at_s;
    parts_s[PROF_RUN_TRANSFER] += ready_s - begun_s;
    at_s = ready_s;
  }
  const double issued_s = source->joined ? between(at_s, source->joined->begin_s[i], start_s) : at_s;
  parts_s[PROF_RUN_HOST] += issued_s - at_s;
  parts_s[PROF_RUN_LAUNCH] += start_s - issued_s;
}

static void add_worker(const maker *m, const prof_run_source *source, int worker, double *parts_s) {
  const plan_timeline *t = source->timeline;
  const plan_lane *lane = &m->program->lanes[m->program->worker_lane[worker]];
  double at_s = 0;
  for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
    const double start_s = between(at_s, t->start_s[i], t->step_s), end_s = between(start_s, t->end_s[i], t->step_s);
    const double busy_s = fmin(m->busy_s[i], end_s - start_s);
    add_idle(source, i, at_s, start_s, parts_s);
    parts_s[PROF_RUN_COMPUTE] += busy_s;
    parts_s[PROF_RUN_GAPS] += end_s - start_s - busy_s;
    at_s = end_s;
  }
  parts_s[PROF_RUN_END] += t->step_s - at_s;
}

static void add_workers(const maker *m, const prof_run_source *source, const plan_metrics *metrics,
                        prof_run_step *row) {
  for (int w = 0; w < m->program->worker_count; w++) {
    double parts_s[PROF_RUN_PART_COUNT] = {0};
    prof_run_stage *stage = &m->tables->stages[plan_worker_rank(m->program->plan, w)];
    add_worker(m, source, w, parts_s);
    for (int p = 0; p < PROF_RUN_PART_COUNT; p++) {
      row->parts_s[p] += parts_s[p];
      stage->parts_s[p] += parts_s[p];
    }
    stage->worker_s += source->timeline->step_s;
    stage->comm_s += metrics->workers[w].comm_s;
    stage->exposed_s += metrics->workers[w].exposed_comm_s;
    row->comm_s += metrics->workers[w].comm_s;
    row->exposed_s += metrics->workers[w].exposed_comm_s;
  }
}

/* ---- kinds and links ---- */

static int compare_links(const prof_run_link *a, const prof_run_link *b) {
  if (a->from != b->from) return a->from < b->from ? -1 : 1;
  if (a->to != b->to) return a->to < b->to ? -1 : 1;
  return a->backward - b->backward;
}

static int by_link(const void *a, const void *b) { return compare_links(a, b); }

static prof_run_link link_of(const plan_program *program, uint32_t recv) {
  const plan_message *message = &program->messages[program->instructions[recv].class_id];
  return (prof_run_link){.from = message->from_worker, .to = message->to_worker, .backward = message->backward != 0};
}

static bool find_links(maker *m) {
  for (uint32_t l = 0; l < m->program->lane_count; l++) {
    const plan_lane *lane = &m->program->lanes[l];
    if (lane->kind == PLAN_LANE_RECV && lane->count > 0 &&
        !dp_array_push(&m->tables->links, link_of(m->program, lane->first)))
      return false;
  }
  if (m->tables->links.count) qsort(m->tables->links.items, m->tables->links.count, sizeof(prof_run_link), by_link);
  m->links = calloc(m->tables->links.count + 1, sizeof *m->links);
  return m->links != NULL;
}

static bool add_message(maker *m, uint32_t recv, double seconds) {
  const prof_run_link key = link_of(m->program, recv);
  prof_run_link *link = bsearch(&key, m->tables->links.items, m->tables->links.count, sizeof(prof_run_link), by_link);
  const int64_t bytes = m->program->messages[m->program->instructions[recv].class_id].bytes;
  if (!link || bytes == 0) return true; /* nothing but an order */
  link->bytes += bytes;
  return dp_array_push(&m->links[link - m->tables->links.items], seconds);
}

static bool add_instructions(maker *m, const plan_timeline *t) {
  for (uint32_t i = 0; i < m->program->instruction_count; i++) {
    const plan_opcode opcode = m->program->instructions[i].opcode;
    const double seconds = t->end_s[i] - t->start_s[i];
    if (!dp_array_push(&m->kinds[kind_of(m, i)], seconds)) return false;
    if (opcode == PLAN_RECV && !add_message(m, i, seconds)) return false;
  }
  return true;
}

/* ---- all of it ---- */

static dp_status add_step(maker *m, size_t s, dp_error *error) {
  const prof_run_source *source = &m->sources[s];
  prof_run_step *row = &m->tables->steps[s];
  plan_metrics metrics;
  row->number = source->number;
  row->step_s = source->timeline->step_s;
  if (!find_busy(m, source, row) || !add_instructions(m, source->timeline)) return dp_fail_memory(error);
  DP_TRY(plan_metrics_of(source->timeline, &metrics, error));
  row->bubble_ratio = metrics.bubble_ratio;
  add_workers(m, source, &metrics, row);
  plan_metrics_free(&metrics);
  return DP_OK;
}

static double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

static bool sum_kinds(maker *m) {
  for (int k = 0; k < m->tables->ranks * PLAN_OPCODE_COUNT; k++) {
    prof_run_kind kind = {.rank = k / PLAN_OPCODE_COUNT, .opcode = (plan_opcode)(k % PLAN_OPCODE_COUNT)};
    if (m->kinds[k].count == 0) continue;
    kind.time = prof_spread_of(m->kinds[k].items, m->kinds[k].count);
    memcpy(kind.classes_s, m->kind_classes_s[k], sizeof kind.classes_s);
    kind.share = share(kind.time.sum_s, m->tables->stages[kind.rank].worker_s);
    if (!dp_array_push(&m->tables->kinds, kind)) return false;
  }
  return true;
}

static int by_time(const void *a, const void *b) {
  const prof_run_unit *x = a, *y = b;
  const double x_s = x->forward_s + x->backward_s, y_s = y->forward_s + y->backward_s;
  if (x_s < y_s || x_s > y_s) return x_s > y_s ? -1 : 1;
  return (x->unit > y->unit) - (x->unit < y->unit);
}

static bool sum_units(maker *m, double all_s) {
  prof_run_tables *t = m->tables;
  for (size_t u = 0; u < m->units.count; u++) {
    prof_run_unit unit = m->units.items[u];
    unit.share = share(unit.forward_s + unit.backward_s, all_s);
    if (unit.count > 0 && !dp_array_push(&t->units, unit)) return false;
  }
  if (t->units.count) qsort(t->units.items, t->units.count, sizeof(prof_run_unit), by_time);
  return true;
}

static bool sum_up(maker *m) {
  prof_run_tables *t = m->tables;
  double all_s = 0, whole_s = 0, bubbles_s = 0;
  values steps = {0};
  if (!dp_array_reserve(&steps, t->step_count)) return false;
  for (size_t s = 0; s < t->step_count; s++) {
    steps.items[steps.count++] = t->steps[s].step_s;
    whole_s += t->steps[s].step_s;
    bubbles_s += t->steps[s].step_s * t->steps[s].bubble_ratio;
  }
  t->step_time = prof_spread_of(steps.items, steps.count);
  dp_array_free(&steps);
  t->bubble_ratio = share(bubbles_s, whole_s);
  t->gaps = prof_spread_of(m->gaps.items, m->gaps.count);
  for (size_t l = 0; l < t->links.count; l++)
    t->links.items[l].time = prof_spread_of(m->links[l].items, m->links[l].count);
  for (int c = 0; c < PROF_CLASS_COUNT; c++) {
    t->classes[c].time = prof_spread_of(m->classes[c].items, m->classes[c].count);
    all_s += t->classes[c].time.sum_s;
  }
  for (int c = 0; c < PROF_CLASS_COUNT; c++) t->classes[c].share = share(t->classes[c].time.sum_s, all_s);
  return sum_kinds(m) && sum_units(m, all_s);
}

static bool make_room(maker *m) {
  prof_run_tables *t = m->tables;
  t->steps = calloc(m->count, sizeof *t->steps);
  t->stages = calloc((size_t)t->ranks, sizeof *t->stages);
  m->kinds = calloc((size_t)t->ranks * PLAN_OPCODE_COUNT, sizeof *m->kinds);
  m->kind_classes_s = calloc((size_t)t->ranks * PLAN_OPCODE_COUNT, sizeof *m->kind_classes_s);
  m->busy_s = malloc(((size_t)m->program->instruction_count + 1) * sizeof *m->busy_s);
  t->step_count = m->count;
  return t->steps && t->stages && m->kinds && m->kind_classes_s && m->busy_s && find_links(m);
}

static void free_maker(maker *m) {
  for (int k = 0; m->kinds && k < m->tables->ranks * PLAN_OPCODE_COUNT; k++) dp_array_free(&m->kinds[k]);
  for (size_t l = 0; m->links && l < m->tables->links.count; l++) dp_array_free(&m->links[l]);
  for (int c = 0; c < PROF_CLASS_COUNT; c++) dp_array_free(&m->classes[c]);
  dp_array_free(&m->gaps);
  dp_array_free(&m->units);
  free(m->kinds);
  free(m->kind_classes_s);
  free(m->links);
  free(m->busy_s);
}

dp_status prof_run_tables_of(const prof_run_source *sources, size_t count, prof_run_tables *tables, dp_error *error) {
  const plan_program *program = sources[0].timeline->program;
  prof_run_tables made = {
      .recorded = sources[0].joined != NULL, .ranks = program->plan->ranks, .workers = program->worker_count};
  maker m = {.sources = sources, .count = count, .program = program, .tables = &made};
  dp_status status = make_room(&m) ? DP_OK : dp_fail_memory(error);
  for (size_t s = 0; status == DP_OK && s < count; s++) status = add_step(&m, s, error);
  if (status == DP_OK && !sum_up(&m)) status = dp_fail_memory(error);
  free_maker(&m);
  if (status == DP_OK)
    *tables = made;
  else
    prof_run_tables_free(&made);
  return status;
}

void prof_run_tables_free(prof_run_tables *tables) {
  free(tables->steps);
  free(tables->stages);
  dp_array_free(&tables->kinds);
  dp_array_free(&tables->links);
  dp_array_free(&tables->units);
  *tables = (prof_run_tables){.steps = NULL};
}
