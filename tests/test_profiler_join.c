/* Records of made-up runs joined to their programs: the timeline that they were made from must come out, and tables
 * whose parts sum to the whole.
 */
#include <math.h>

#include "profiler/run_tables.h"
#include "profiler/unit_times.h"
#include "tests/plan_reference.h"
#include "tests/profiler_world.h"

enum { STEP_NS = 1000000000, OTHER_THREAD = 9999 };

static dp_error error;
static graph chain;
static plan_plan plan;
static plan_program program;
static plan_groups groups;
static plan_timeline played;
static prof_session session;
static unsigned char *classes;
static prof_join joined;
static prof_run_tables tables;

static void begin(const reference_plan *wanted, int units, uint64_t seed) {
  dp_random jitter;
  error = (dp_error)DP_ERROR_INIT;
  dp_random_init(&jitter, seed, 0);
  reference_chain(units, 1e-3, 2e-3, -1, 1000, &chain);
  reference_plan_make(wanted, &chain, &plan);
  ck_assert_msg(plan_compile(&plan, &chain, &program, &error) == DP_OK, "%s", error.text);
  ck_assert_int_eq(plan_groups_of(&program, &program.arena, &groups, &error), DP_OK);
  reference_play(&program, &chain, 1e-4, 1e7, &jitter, &played);
}

static void finish(void) {
  ck_assert_int_eq(prof_session_finish(&session, &error), DP_OK);
  classes = world_classes(&session);
}

static void join(size_t most) {
  finish();
  ck_assert_msg(prof_join_of(&session, classes, &program, most, &joined, &error) == DP_OK, "%s", error.text);
}

static void end(void) {
  prof_run_tables_free(&tables);
  prof_join_free(&joined);
  prof_session_free(&session);
  free(classes);
  classes = NULL;
  plan_timeline_free(&played);
  plan_program_free(&program);
  plan_plan_free(&plan);
  graph_free(&chain);
}

static void tabulate(void) {
  prof_run_source sources[8];
  ck_assert(joined.steps.count > 0 && joined.steps.count <= 8);
  for (size_t s = 0; s < joined.steps.count; s++)
    sources[s] =
        (prof_run_source){joined.steps.items[s].number, &joined.steps.items[s].timeline, &joined.steps.items[s]};
  ck_assert_int_eq(prof_run_tables_of(sources, joined.steps.count, &tables, &error), DP_OK);
}

/* ---- a run's records ---- */

typedef struct run {
  world worlds[2];
  int processes;
  bool nccl;          /* transfers are kernels that a thread of NCCL's launches */
  bool graphs;        /* work is joined by its graphs: the correlations of what computes are wrong */
  uint32_t torn_step; /* its first backward's window is missing; 0: none */
  uint32_t odd_step;  /* its work has times of this kind; 0: none has */
  enum { ENDS_LATE, BEGINS_EARLY, OVERLAPS } odd;
  int64_t host_ns;
  uint32_t last_lane;
} run;

static int process_of(const run *r, uint32_t i) {
  const uint32_t worker = program.lanes[plan_instruction_lane(&program, i)].worker;
  return (int)worker / (program.worker_count / r->processes);
}

/* Whether its lane does its work: of the ends and members in one process one does all. */
static bool is_done_by_itself(const run *r, uint32_t i) {
  const plan_instruction *of = &program.instructions[i];
  if (of->opcode == PLAN_SEND) return process_of(r, of->peer) != process_of(r, i);
  if (of->opcode != PLAN_ALL_REDUCE) return true;
  for (uint32_t m = groups.first[of->peer]; groups.ids[m] != i; m++)
    if (process_of(r, groups.ids[m]) == process_of(r, i)) return false;
  return true;
}

static void add_piece(world *w, uint32_t i, const char *name, int64_t from_ns, int64_t to_ns) {
  const uint32_t lane = plan_instruction_lane(&program, i);
  world_add(w, &(prof_record){.kind = name ? PROF_KERNEL : PROF_COPY,
                              .name = name ? world_name(w, name) : 0,
                              .start_ns = from_ns,
                              .end_ns = to_ns,
                              .stream = 100 + lane,
                              .thread = i + 1, /* each instruction is a graph of its own */
                              .correlation = w->correlation,
                              .graph = 1});
}

static bool is_of_units(uint32_t i) {
  const plan_opcode opcode = program.instructions[i].opcode;
  return program.lanes[plan_instruction_lane(&program, i)].kind == PLAN_LANE_COMPUTE && opcode != PLAN_OPTIMIZER_STEP;
}

/* Of work that computes in the odd step: its second piece ends, or its first begins, out of the step, whose marks are
 * STEP_NS / 2 apart; or all second pieces are so long that only several of one queue show it. */
static int64_t sooner_ns(const run *r, bool is_odd) { return is_odd && r->odd == BEGINS_EARLY ? STEP_NS / 5 : 0; }
static int64_t later_ns(const run *r, bool is_odd) {
  return !is_odd || r->odd == BEGINS_EARLY ? 0 : r->odd == ENDS_LATE ? STEP_NS / 5 * 3 : STEP_NS / 10 * 3;
}

static void add_instruction(run *r, uint32_t i, int64_t zero_ns, bool torn) {
  world *w = &r->worlds[process_of(r, i)];
  const uint32_t lane = plan_instruction_lane(&program, i), thread = 10 + lane;
  const bool computes = program.lanes[lane].kind == PLAN_LANE_COMPUTE;
  const bool overlaps = r->nccl && !computes && lane != r->last_lane; /* it waits while another one is launched */
  const int64_t from_ns = zero_ns + (int64_t)lround(played.start_s[i] * 1e9),
                to_ns = zero_ns + (int64_t)lround(played.end_s[i] * 1e9), tenth_ns = (to_ns - from_ns) / 10;
  if (!torn)
    world_add(w, &(prof_record){.kind = PROF_INSTRUCTION,
                                .device = PROF_NO_DEVICE,
                                .start_ns = r->host_ns - (overlaps ? 70 : 0),
                                .end_ns = r->host_ns + 90,
                                .thread = thread,
                                .value = i});
  world_call(w, computes || !r->nccl ? thread : OTHER_THREAD, r->host_ns + 40, r->host_ns + 60, ++w->correlation);
  r->host_ns += 100;
  r->last_lane = lane;
  if (to_ns == from_ns) return;
  if (!computes) {
    add_piece(w, i, r->nccl ? "ncclDevKernel_SendRecv" : NULL, from_ns, to_ns);
    return;
  }
  const uint32_t correlation = w->correlation;
  if (r->graphs && is_of_units(i)) w->correlation--;              /* another's */
  const bool is_odd = r->odd_step > 0 && zero_ns == (int64_t)r->odd_step * STEP_NS;
  /* of one graph, with a gap */
  add_piece(w, i, "layer_norm", from_ns - sooner_ns(r, is_odd), from_ns + 4 * tenth_ns);
  add_piece(w, i, "nvjet", from_ns + 5 * tenth_ns, to_ns + later_ns(r, is_odd));
  w->correlation = correlation;
}

/* In an order in which the host could have issued them. */
static void add_step(run *r, uint32_t number) {
  bool *issued = calloc(program.instruction_count + 1, sizeof *issued);
  const int64_t zero_ns = (int64_t)number * STEP_NS;
  bool torn = number == r->torn_step;
  ck_assert_ptr_nonnull(issued);
  r->host_ns = zero_ns;
  for (int p = 0; p < r->processes; p++)
    world_add(&r->worlds[p], &(prof_record){.kind = PROF_STEP,
                                            .device = PROF_NO_DEVICE,
                                            .start_ns = zero_ns - 1000,
                                            .end_ns = zero_ns + STEP_NS / 2,
                                            .value = number});
  for (uint32_t left = program.instruction_count; left > 0;)
    for (uint32_t i = 0; i < program.instruction_count; i++) {
      bool ready = !issued[i] && (i == program.lanes[plan_instruction_lane(&program, i)].first || issued[i - 1]);
      for (uint32_t w = program.wait_first[i]; w < program.wait_first[i + 1]; w++)
        ready = ready && issued[program.waits[w]];
      if (!ready) continue;
      issued[i] = true;
      left--;
      if (!is_done_by_itself(r, i)) continue;
      const bool tears = torn && program.instructions[i].opcode == PLAN_BACKWARD;
      add_instruction(r, i, zero_ns, tears);
      torn = torn && !tears;
    }
  free(issued);
}

static void add_row(world *w, prof_kind kind, uint32_t i, uint64_t value) {
  world_add(w, &(prof_record){.kind = (uint8_t)kind,
                              .device = PROF_NO_DEVICE,
                              .start_ns = 1,
                              .end_ns = 1,
                              .thread = i + 1,
                              .graph = kind == PROF_NODE,
                              .value = value});
}

/* The node that an instruction's work is, of its first unit; another process has graphs and nodes of the same ids. */
static void add_nodes(run *r, int process) {
  for (uint32_t i = 0; i < program.instruction_count; i++) {
    const bool mine = process_of(r, i) == process;
    if (!is_of_units(i)) continue;
    add_row(&r->worlds[process], PROF_NODE, i, mine ? program.works[program.instructions[i].class_id].first_unit : 0);
    if (r->graphs) add_row(&r->worlds[process], PROF_MADE, i, mine ? i : 0);
  }
}

static void begin_run(run *r) {
  for (int p = 0; p < r->processes; p++) {
    const prof_header header = {.pid = 7 + p, .rank = p, .realtime_ns = 1, .clock_ns = 1, .host = "host"};
    world_begin(&r->worlds[p], &header);
    add_nodes(r, p);
  }
}

static void read_run(run *r) {
  for (int p = 0; p < r->processes; p++) world_read(&r->worlds[p], &session);
}

/* ---- laws ---- */

static void is_as_played(const prof_joined *step) {
  const plan_timeline *t = &step->timeline;
  for (uint32_t i = 0; i < program.instruction_count; i++) {
    if (played.end_s[i] <= played.start_s[i]) continue;
    ck_assert_double_eq_tol(t->start_s[i], played.start_s[i], 3e-9);
    ck_assert_double_eq_tol(t->end_s[i], played.end_s[i], 3e-9);
    ck_assert_double_ge(t->issue_s[i], step->begin_s[i]);
  }
  ck_assert_double_eq_tol(t->step_s, played.step_s, 3e-9);
}

static double sum(const double *parts_s, int count) {
  double s = 0;
  for (int p = 0; p < count; p++) s += parts_s[p];
  return s;
}

static void parts_sum_to_the_whole(void) {
  double stages_s = 0, computed_s = 0, communicated_s = 0;
  for (size_t s = 0; s < tables.step_count; s++) {
    const prof_run_step *step = &tables.steps[s];
    ck_assert_double_eq_tol(sum(step->parts_s, PROF_RUN_PART_COUNT), tables.workers * step->step_s, 1e-9);
    for (int p = 0; p < PROF_RUN_PART_COUNT; p++) ck_assert_double_ge(step->parts_s[p], 0);
    computed_s += step->parts_s[PROF_RUN_COMPUTE] + step->parts_s[PROF_RUN_GAPS];
  }
  for (int r = 0; r < tables.ranks; r++) {
    ck_assert_double_eq_tol(sum(tables.stages[r].parts_s, PROF_RUN_PART_COUNT), tables.stages[r].worker_s, 1e-9);
    stages_s += tables.stages[r].worker_s;
  }
  ck_assert_double_eq_tol(stages_s, tables.workers * tables.step_time.sum_s, 1e-9);
  for (size_t k = 0; k < tables.kinds.count; k++) {
    const prof_run_kind *kind = &tables.kinds.items[k];
    const bool computes = kind->opcode != PLAN_SEND && kind->opcode != PLAN_RECV && kind->opcode != PLAN_ALL_REDUCE;
    if (computes) computed_s -= kind->time.sum_s;
    if (kind->opcode == PLAN_RECV) communicated_s += kind->time.sum_s;
  }
  ck_assert_double_eq_tol(computed_s, 0, 1e-7);
  for (size_t l = 0; l < tables.links.count; l++) communicated_s -= tables.links.items[l].time.sum_s;
  ck_assert_double_eq_tol(communicated_s, 0, 1e-7);
}

/* Of the instructions' work, all that is of units, forward and back; each unit has its stage's. */
static void units_have_their_time(void) {
  double forward_s = 0, backward_s = 0, kinds_s[2] = {0}, stages_s[8] = {0};
  for (size_t u = 0; u < tables.units.count; u++) {
    const prof_run_unit *unit = &tables.units.items[u];
    forward_s += unit->forward_s;
    backward_s += unit->backward_s;
    stages_s[unit->rank] += unit->forward_s + unit->backward_s;
    ck_assert_double_eq_tol(sum(unit->classes_s, PROF_CLASS_COUNT), unit->forward_s + unit->backward_s, 1e-9);
    ck_assert_uint_gt(unit->count, 0);
  }
  for (size_t k = 0; k < tables.kinds.count; k++) {
    const prof_run_kind *kind = &tables.kinds.items[k];
    const double kind_s = sum(kind->classes_s, PROF_CLASS_COUNT);
    if (kind->opcode == PLAN_OPTIMIZER_STEP || kind->opcode == PLAN_SEND || kind->opcode == PLAN_RECV ||
        kind->opcode == PLAN_ALL_REDUCE)
      continue;
    kinds_s[kind->opcode == PLAN_FORWARD] += kind_s;
    stages_s[kind->rank] -= kind_s;
  }
  ck_assert_double_gt(forward_s, 0);
  ck_assert_double_eq_tol(forward_s, kinds_s[1], 1e-9);
  ck_assert_double_eq_tol(backward_s, kinds_s[0], 1e-9);
  for (int r = 0; r < tables.ranks; r++) ck_assert_double_eq_tol(stages_s[r], 0, 1e-9);
}

static const reference_plan plans[] = {
    {.ranks = 2, .chunks_per_rank = 1, .microbatches = 4, .schedule = PLAN_1F1B},
    {.ranks = 2, .chunks_per_rank = 2, .microbatches = 4, .schedule = PLAN_FOLDED},
    {.ranks = 4, .chunks_per_rank = 1, .microbatches = 6, .schedule = PLAN_ZB_H1},
    {.ranks = 2, .chunks_per_rank = 1, .replicas = 2, .microbatches = 3, .schedule = PLAN_GPIPE, .global_norm = true}};
enum { PLANS = sizeof plans / sizeof plans[0], STEPS = 5 };

/* One process or two, copies or NCCL's kernels, by correlations or by graphs. */
START_TEST(what_was_played_comes_out) {
  run r = {.processes = _i & 1 ? 2 : 1, .nccl = (_i & 2) != 0, .graphs = (_i & 4) != 0};
  begin(&plans[_i / 8], 8, (uint64_t)_i);
  begin_run(&r);
  for (uint32_t s = 1; s <= STEPS; s++) add_step(&r, s);
  read_run(&r);
  join(3);
  ck_assert_uint_eq(joined.steps.count, 3);
  ck_assert_uint_eq(joined.torn, 0);
  for (size_t s = 0; s < 3; s++) {
    ck_assert_uint_eq(joined.steps.items[s].number, 3 + s);
    ck_assert_uint_eq(joined.steps.items[s].stray, 0);
    is_as_played(&joined.steps.items[s]);
  }
  tabulate();
  ck_assert(tables.recorded);
  parts_sum_to_the_whole();
  const double classes_s = sum(tables.steps[0].classes_s, PROF_CLASS_COUNT);
  ck_assert_double_gt(tables.classes[PROF_GEMM].share, tables.classes[PROF_NORM].share); /* 5 tenths and 4 */
  ck_assert_uint_gt(tables.classes[r.nccl ? PROF_NCCL : PROF_COPIES].time.count, 0);
  for (int c = 0; c < PROF_CLASS_COUNT; c++) {
    double left_s = tables.classes[c].time.sum_s;
    for (size_t k = 0; k < tables.kinds.count; k++) left_s -= tables.kinds.items[k].classes_s[c];
    ck_assert_double_eq_tol(left_s, 0, 1e-9);
  }
  ck_assert_double_gt(classes_s, 0);
  units_have_their_time();
  ck_assert_uint_gt(tables.gaps.count, 0);
  ck_assert_uint_gt(tables.links.count, 0);
  end();
}
END_TEST

/* Marks of queues alone: the same kinds, without classes. */
START_TEST(a_timeline_alone_has_tables) {
  begin(&plans[_i], 8, 5);
  const prof_run_source source = {1, &played, NULL};
  ck_assert_int_eq(prof_run_tables_of(&source, 1, &tables, &error), DP_OK);
  ck_assert(!tables.recorded);
  parts_sum_to_the_whole();
  ck_assert_double_eq(tables.steps[0].parts_s[PROF_RUN_GAPS], 0);
  ck_assert_double_eq(tables.steps[0].parts_s[PROF_RUN_HOST], 0);
  ck_assert_uint_eq(tables.work, 0);
  end();
}
END_TEST

START_TEST(a_torn_step_is_left_out) {
  run r = {.processes = 1, .torn_step = 2};
  begin(&plans[0], 8, 1);
  begin_run(&r);
  for (uint32_t s = 1; s <= 3; s++) add_step(&r, s);
  read_run(&r);
  join(10);
  ck_assert_uint_eq(joined.torn, 1);
  ck_assert_uint_eq(joined.steps.count, 2);
  ck_assert_uint_eq(joined.steps.items[1].number, 3);
  is_as_played(&joined.steps.items[1]);
  end();
}
END_TEST

/* By correlations or by graphs, which do not know the step of what began before it. */
START_TEST(a_step_with_times_that_cannot_be_is_left_out) {
  static const run runs[] = {{.odd = ENDS_LATE},
                             {.odd = BEGINS_EARLY},
                             {.odd = OVERLAPS},
                             {.odd = ENDS_LATE, .graphs = true},
                             {.odd = OVERLAPS, .graphs = true}};
  run r = {.processes = 2, .odd_step = 2, .odd = runs[_i].odd, .graphs = runs[_i].graphs};
  begin(&plans[0], 8, 1);
  begin_run(&r);
  for (uint32_t s = 1; s <= 3; s++) add_step(&r, s);
  read_run(&r);
  join(10);
  ck_assert_uint_eq(joined.torn, 0);
  ck_assert_uint_eq(joined.impossible, 1);
  ck_assert_uint_eq(joined.steps.count, 2);
  ck_assert_uint_eq(joined.steps.items[0].number, 1);
  ck_assert_uint_eq(joined.steps.items[1].number, 3);
  is_as_played(&joined.steps.items[0]);
  is_as_played(&joined.steps.items[1]);
  end();
}
END_TEST

START_TEST(nothing_was_recorded) {
  run r = {.processes = 1};
  begin(&plans[0], 8, 1);
  begin_run(&r);
  read_run(&r);
  join(10);
  ck_assert_uint_eq(joined.steps.count, 0);
  end();
}
END_TEST

/* ---- why a worker did not compute ---- */

static void window(world *w, uint32_t i, int64_t from_us, int64_t to_us, int64_t runs_us, int64_t runs_to_us) {
  world_add(w, &(prof_record){.kind = PROF_INSTRUCTION,
                              .device = PROF_NO_DEVICE,
                              .start_ns = from_us * 1000,
                              .end_ns = to_us * 1000,
                              .thread = 3,
                              .value = i});
  world_call(w, 3, from_us * 1000 + 500, to_us * 1000, ++w->correlation);
  add_piece(w, i, "nvjet", runs_us * 1000, runs_to_us * 1000);
}

/* One worker: forward, backward, optimizer. In µs from the first window at 1000:
 *   queued 0..10          50..60           65..70
 *   runs       20..40           58..80         80..90
 * and a copy that no instruction asked for. */
START_TEST(each_cause_is_told) {
  const reference_plan one = {.ranks = 1, .microbatches = 1, .schedule = PLAN_GPIPE};
  run r = {.processes = 1};
  begin(&one, 2, 1);
  ck_assert_uint_eq(program.instruction_count, 3);
  begin_run(&r);
  world *w = &r.worlds[0];
  world_add(w, &(prof_record){
                   .kind = PROF_STEP, .device = PROF_NO_DEVICE, .start_ns = 990000, .end_ns = 1100000, .value = 12});
  window(w, 0, 1000, 1010, 1020, 1040);
  window(w, 1, 1050, 1060, 1058, 1080);
  window(w, 2, 1065, 1070, 1080, 1090);
  ++w->correlation;
  add_piece(w, 0, NULL, 1091000, 1093000);
  read_run(&r);
  join(1);
  tabulate();
  const double *parts_s = tables.steps[0].parts_s;
  ck_assert_uint_eq(tables.steps[0].number, 12);
  ck_assert_double_eq_tol(tables.steps[0].step_s, 90e-6, 1e-12);
  ck_assert_double_eq_tol(parts_s[PROF_RUN_COMPUTE], 52e-6, 1e-12);
  ck_assert_double_eq_tol(parts_s[PROF_RUN_HOST], 10e-6, 1e-12);          /* 40..50 */
  ck_assert_double_eq_tol(parts_s[PROF_RUN_LAUNCH], 20e-6 + 8e-6, 1e-12); /* 0..20, 50..58 */
  ck_assert_uint_eq(tables.stray, 1);
  ck_assert_double_eq_tol(tables.stray_s, 2e-6, 1e-12);
  end();
}
END_TEST

/* ---- units' times ---- */

/* Each pass: for each of its units a gap and a piece, and what is of none at its end; every instruction of a class as long
 * as the others, but each seventh three times. In units of the time: unit u takes u + 1 and a gap of a half. */
static void add_pieces(prof_joined *step, uint32_t i) {
  const plan_work *work = &program.works[program.instructions[i].class_id];
  const double factor = 1e-6 * (program.instructions[i].opcode == PLAN_FORWARD ? 1 : 2) * (i % 7 == 6 ? 3 : 1);
  double at_s = played.start_s[i];
  for (uint32_t u = 0; u < work->unit_count; u++) {
    const uint32_t unit = work->first_unit + (work->unit_count - 1 - u); /* in any order */
    if (u > 0) at_s += factor * 0.5;
    const prof_work piece = {.instruction = i,
                             .unit = (int32_t)unit,
                             .start_s = at_s,
                             .end_s = at_s + factor * ((double)unit + (u > 0 ? 0.5 : 1))};
    ck_assert(dp_array_push(&step->work, piece));
    at_s = piece.end_s;
  }
  const prof_work beside = {.instruction = i, .unit = PROF_NO_UNIT, .start_s = at_s - 1e-9, .end_s = at_s + factor};
  ck_assert(dp_array_push(&step->work, beside));
}

START_TEST(units_have_their_times_by_pass) {
  prof_unit_times times;
  begin(&plans[_i], 8, 5);
  for (int s = 0; s < 7; s++) {
    prof_joined step = {.number = (uint64_t)s};
    for (uint32_t i = 0; i < program.instruction_count; i++)
      if (is_of_units(i)) add_pieces(&step, i);
    ck_assert(dp_array_push(&joined.steps, step));
  }
  ck_assert_int_eq(prof_unit_times_of(&joined, &program, 8, &times, &error), DP_OK);
  ck_assert_uint_gt(times.aside, 0);
  ck_assert(times.error < 1e-9); /* the middle of them: few are longer */
  for (uint32_t w = 0; w < program.work_count; w++) {
    const plan_work *work = &program.works[w];
    if (work->opcode > PLAN_BACKWARD_WEIGHT) continue;
    const double factor = 1e-6 * (work->opcode == PLAN_FORWARD ? 1 : 2);
    ck_assert(times.units.known[w]);
    ck_assert_double_eq_tol(times.units.none_s[w], factor, 1e-12);
    for (uint32_t u = 0; u < 8; u++) {
      const bool own = u >= work->first_unit && u < work->first_unit + work->unit_count;
      ck_assert_double_eq_tol(times.units.unit_s[w * 8 + u], own ? factor * (u + 1) : 0, 1e-12);
    }
  }
  prof_unit_times_free(&times);
  end();
}
END_TEST

/* Of a run without nodes nothing is known, nor of two instructions of a class. */
START_TEST(units_without_nodes_are_not_known) {
  prof_unit_times times;
  begin(&plans[0], 8, 5);
  for (int k = 0; k < 2; k++) {
    prof_joined step = {.number = 1};
    for (uint32_t i = 0; i < program.instruction_count; i++) {
      if (!is_of_units(i) || (k == 1 && program.instructions[i].microbatch > 1)) continue;
      add_pieces(&step, i);
      for (size_t p = 0; k == 0 && p < step.work.count; p++) step.work.items[p].unit = PROF_NO_UNIT;
    }
    ck_assert(dp_array_push(&joined.steps, step));
    ck_assert_int_eq(prof_unit_times_of(&joined, &program, 8, &times, &error), DP_OK);
    for (uint32_t w = 0; w < program.work_count; w++) ck_assert(!times.units.known[w]);
    prof_unit_times_free(&times);
    prof_join_free(&joined);
  }
  end();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("profiler join");
  TCase *tcase = suite_case(suite, "join", NULL, NULL, 0);
  tcase_add_loop_test(tcase, what_was_played_comes_out, 0, 8 * PLANS);
  tcase_add_loop_test(tcase, a_timeline_alone_has_tables, 0, PLANS);
  tcase_add_test(tcase, a_torn_step_is_left_out);
  tcase_add_loop_test(tcase, a_step_with_times_that_cannot_be_is_left_out, 0, 5);
  tcase_add_test(tcase, nothing_was_recorded);
  tcase_add_test(tcase, each_cause_is_told);
  tcase_add_loop_test(tcase, units_have_their_times_by_pass, 0, PLANS);
  tcase_add_test(tcase, units_without_nodes_are_not_known);
  return suite_finish(suite);
}
