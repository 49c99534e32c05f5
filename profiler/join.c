#include "profiler/join.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/join_times.h"

typedef struct mark {
  uint64_t number;
  uint16_t process;
  int64_t start_ns, end_ns;
} mark;

/* A thread puts an instruction's work into queues. */
typedef struct window {
  uint16_t process;
  uint32_t thread, instruction;
  uint32_t step; /* of the join's */
  int64_t begin_ns, end_ns;
} window;

#define NO_WINDOW SIZE_MAX
typedef struct launch {
  uint16_t process;
  uint32_t correlation;
  int64_t start_ns;
  size_t window; /* or NO_WINDOW */
} launch;

typedef struct stream_lane {
  uint16_t process, device;
  uint32_t stream, lane;
} stream_lane;

/* A node of a process' graphs, or a graph by its nodes' upper half alone. */
typedef struct node {
  uint64_t id;
  uint16_t process;
  uint32_t of; /* the unit, the instruction */
} node;

typedef struct joiner {
  const prof_session *session;
  const unsigned char *classes;
  const plan_program *program;
  prof_join *join;
  int64_t *zero_ns; /* [step] when the first instruction's window begins */
  DP_ARRAY(mark) marks;
  DP_ARRAY(window) windows;  /* by process, thread and begin */
  DP_ARRAY(launch) launches; /* by process and correlation */
  DP_ARRAY(stream_lane) streams;
  DP_ARRAY(node) nodes, graphs; /* by process and id */
  prof_times times;
} joiner;

/* ---- steps ---- */

static int by_number(const void *a, const void *b) {
  const mark *x = a, *y = b;
  if (x->number != y->number) return x->number < y->number ? -1 : 1;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Those of the last `most` numbers. */
static bool find_marks(joiner *j, size_t most) {
  for (size_t i = 0; i < j->session->records.count; i++) {
    const prof_record *r = &j->session->records.items[i];
    if (r->kind == PROF_STEP && r->end_ns > r->start_ns &&
        !dp_array_push(&j->marks, ((mark){r->value, r->process, r->start_ns, r->end_ns})))
      return false;
  }
  if (j->marks.count == 0) return true;
  qsort(j->marks.items, j->marks.count, sizeof(mark), by_number);
  size_t first = j->marks.count, numbers = 0;
  while (first > 0) {
    const bool another = first == j->marks.count || j->marks.items[first - 1].number != j->marks.items[first].number;
    if (another && numbers == most) break;
    numbers += another;
    first--;
  }
  memmove(j->marks.items, j->marks.items + first, (j->marks.count - first) * sizeof(mark));
  j->marks.count -= first;
  return true;
}

static void free_joined(prof_joined *step) {
  plan_timeline_free(&step->timeline);
  free(step->begin_s);
  dp_array_free(&step->work);
}

static dp_status add_step(joiner *j, uint64_t number, dp_error *error) {
  const size_t n = j->program->instruction_count + 1;
  prof_joined step = {.number = number};
  DP_TRY(plan_timeline_init(j->program, &step.timeline, error));
  step.timeline.issue_s = malloc(n * sizeof(double));
  step.begin_s = malloc(n * sizeof(double));
  if (!step.timeline.issue_s || !step.begin_s || !dp_array_push(&j->join->steps, step)) {
    free_joined(&step);
    return dp_fail_memory(error);
  }
  for (size_t i = 0; i < n; i++) step.timeline.issue_s[i] = step.begin_s[i] = (double)NAN;
  for (size_t i = 0; i + 1 < n; i++) step.timeline.start_s[i] = step.timeline.end_s[i] = (double)NAN;
  return DP_OK;
}

static dp_status add_steps(joiner *j, dp_error *error) {
  for (size_t m = 0; m < j->marks.count; m++)
    if (m == 0 || j->marks.items[m].number != j->marks.items[m - 1].number)
      DP_TRY(add_step(j, j->marks.items[m].number, error));
  j->zero_ns = malloc((j->join->steps.count + 1) * sizeof *j->zero_ns);
  if (!j->zero_ns) return dp_fail_memory(error);
  for (size_t s = 0; s <= j->join->steps.count; s++) j->zero_ns[s] = INT64_MAX;
  const bool has_times = prof_times_init(j->join->steps.count, j->program->lane_count, &j->times);
  return has_times ? DP_OK : dp_fail_memory(error);
}

/* The step of a process in which a moment lies; steps.count: none. */
static size_t step_at(const joiner *j, uint16_t process, int64_t ns) {
  size_t step = 0;
  for (size_t m = 0; m < j->marks.count; m++) {
    const mark *at = &j->marks.items[m];
    if (m > 0 && at->number != at[-1].number) step++;
    if (at->process == process && ns >= at->start_ns && ns <= at->end_ns) return step;
  }
  return j->join->steps.count;
}

/* ---- windows and calls ---- */

static int by_thread(const void *a, const void *b) {
  const window *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
  return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static bool find_windows(joiner *j) {
  for (size_t i = 0; i < j->session->records.count; i++) {
    const prof_record *r = &j->session->records.items[i];
    if (r->kind != PROF_INSTRUCTION || r->value >= j->program->instruction_count) continue;
    const size_t step = step_at(j, r->process, r->start_ns);
    if (step == j->join->steps.count) continue;
    if (r->start_ns < j->zero_ns[step]) j->zero_ns[step] = r->start_ns;
    if (!dp_array_push(&j->windows,
                       ((window){r->process, r->thread, (uint32_t)r->value, (uint32_t)step, r->start_ns, r->end_ns})))
      return false;
  }
  if (j->windows.count) qsort(j->windows.items, j->windows.count, sizeof(window), by_thread);
  return true;
}

/* Of the call's thread; NO_WINDOW: it was at no instruction. */
static size_t window_of(const joiner *j, const prof_record *call) {
  size_t low = 0, high = j->windows.count; /* the last that is not after the call */
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const window *w = &j->windows.items[middle];
    const bool after = w->process != call->process ? w->process > call->process
                       : w->thread != call->thread ? w->thread > call->thread
                                                   : w->begin_ns > call->start_ns;
    if (after)
      high = middle;
    else
      low = middle + 1;
  }
  if (low == 0) return NO_WINDOW;
  const window *w = &j->windows.items[low - 1];
  const bool in = w->process == call->process && w->thread == call->thread && call->start_ns <= w->end_ns;
  return in ? low - 1 : NO_WINDOW;
}

static int by_correlation(const void *a, const void *b) {
  const launch *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

static bool find_launches(joiner *j) {
  for (size_t i = 0; i < j->session->records.count; i++) {
    const prof_record *r = &j->session->records.items[i];
    if (r->kind == PROF_CALL && r->correlation &&
        !dp_array_push(&j->launches, ((launch){r->process, r->correlation, r->start_ns, window_of(j, r)})))
      return false;
  }
  if (j->launches.count) qsort(j->launches.items, j->launches.count, sizeof(launch), by_correlation);
  return true;
}

static const launch *launch_of(const joiner *j, const prof_record *r) {
  const launch key = {.process = r->process, .correlation = r->correlation};
  if (!r->correlation || !j->launches.count) return NULL;
  return bsearch(&key, j->launches.items, j->launches.count, sizeof key, by_correlation);
}

/* ---- nodes of graphs ---- */

static int by_node(const void *a, const void *b) {
  const node *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  return (x->id > y->id) - (x->id < y->id);
}

static bool find_nodes(joiner *j) {
  const plan_chunk *last = &j->program->plan->chunks[j->program->plan->chunk_count - 1];
  const uint64_t units = (uint64_t)(last->first_unit + last->unit_count);
  for (size_t i = 0; i < j->session->records.count; i++) {
    const prof_record *r = &j->session->records.items[i];
    const node row = {prof_record_node(r), r->process, (uint32_t)r->value};
    if (r->kind == PROF_NODE && r->value < units && !dp_array_push(&j->nodes, row)) return false;
    if (r->kind == PROF_MADE && r->value < j->program->instruction_count && !dp_array_push(&j->graphs, row))
      return false;
  }
  if (j->nodes.count) qsort(j->nodes.items, j->nodes.count, sizeof(node), by_node);
  if (j->graphs.count) qsort(j->graphs.items, j->graphs.count, sizeof(node), by_node);
  return true;
}

static const node *find_node(const node *nodes, size_t count, uint16_t process, uint64_t id) {
  const node key = {.id = id, .process = process};
  return id && count ? bsearch(&key, nodes, count, sizeof key, by_node) : NULL;
}

static int32_t unit_of(const joiner *j, const prof_record *r) {
  const node *found = find_node(j->nodes.items, j->nodes.count, r->process, prof_record_node(r));
  return found ? (int32_t)found->of : PROF_NO_UNIT;
}

/* NULL: it is none of a graph that is known. */
static const node *graph_of(const joiner *j, const prof_record *r) {
  return find_node(j->graphs.items, j->graphs.count, r->process, prof_record_node(r) >> 32 << 32);
}

/* ---- work ---- */

static const stream_lane *stream_of(const joiner *j, const prof_record *r) {
  for (size_t s = 0; s < j->streams.count; s++) {
    const stream_lane *at = &j->streams.items[s];
    if (at->process == r->process && at->device == r->device && at->stream == r->stream) return at;
  }
  return NULL;
}

/* Whether a stream is, as far as is known, that of a lane: its own, or both are not known. */
static bool may_be_of(const joiner *j, const stream_lane *stream, uint32_t lane) {
  if (stream) return stream->lane == lane;
  for (size_t s = 0; s < j->streams.count; s++)
    if (j->streams.items[s].lane == lane) return false;
  return true;
}

/* The only transfer of a process that was being put into a queue at a moment, of those whose lane the stream may be. */
static size_t transfer_at(const joiner *j, uint16_t process, int64_t ns, const stream_lane *stream) {
  size_t found = NO_WINDOW;
  for (size_t i = 0; i < j->windows.count; i++) {
    const window *w = &j->windows.items[i];
    if (w->process != process || ns < w->begin_ns || ns > w->end_ns) continue;
    const uint32_t lane = plan_instruction_lane(j->program, w->instruction);
    if (j->program->lanes[lane].kind == PLAN_LANE_COMPUTE || !may_be_of(j, stream, lane)) continue;
    if (found != NO_WINDOW) return NO_WINDOW;
    found = i;
  }
  return found;
}

/* What is found of a stream for the first time tells whose it is. */
static bool find_window(joiner *j, const prof_record *r, size_t *at) {
  const launch *by = launch_of(j, r);
  *at = by ? by->window : NO_WINDOW;
  if (!by || *at != NO_WINDOW || prof_record_class(r, j->classes) != PROF_NCCL) return true;
  const stream_lane *stream = stream_of(j, r);
  *at = transfer_at(j, r->process, by->start_ns, stream);
  if (*at == NO_WINDOW || stream) return true;
  const uint32_t lane = plan_instruction_lane(j->program, j->windows.items[*at].instruction);
  return dp_array_push(&j->streams, ((stream_lane){r->process, r->device, r->stream, lane}));
}

/* Work of a step that it began in, or was launched in. */
static void check_times(joiner *j, const prof_record *r, size_t step, size_t lane) {
  const uint64_t number = j->join->steps.items[step].number;
  const bool computes = lane != PROF_TIMES_NO_LANE && j->program->lanes[lane].kind == PLAN_LANE_COMPUTE;
  for (size_t m = 0; m < j->marks.count; m++) {
    const mark *at = &j->marks.items[m];
    if (at->number != number || at->process != r->process) continue;
    prof_times_add(&j->times, step, computes ? lane : PROF_TIMES_NO_LANE, r->start_ns, r->end_ns, at->start_ns,
                   at->end_ns);
    return;
  }
}

static bool add_to(joiner *j, const prof_record *r, size_t step, uint32_t instruction) {
  const int64_t zero_ns = j->zero_ns[step];
  check_times(j, r, step, plan_instruction_lane(j->program, instruction));
  return dp_array_push(&j->join->steps.items[step].work,
                       ((prof_work){instruction, unit_of(j, r), (uint8_t)prof_record_class(r, j->classes),
                                    (double)(r->start_ns - zero_ns) * 1e-9, (double)(r->end_ns - zero_ns) * 1e-9}));
}

static bool add_work(joiner *j, const prof_record *r) {
  const node *made = graph_of(j, r);
  size_t at = NO_WINDOW;
  if (!made && !find_window(j, r, &at)) return false;
  if (at != NO_WINDOW) return add_to(j, r, j->windows.items[at].step, j->windows.items[at].instruction);
  const size_t step = step_at(j, r->process, r->start_ns);
  if (step == j->join->steps.count) return true;
  if (made && j->zero_ns[step] != INT64_MAX) return add_to(j, r, step, made->of);
  j->join->steps.items[step].stray++;
  j->join->steps.items[step].stray_s += (double)(r->end_ns - r->start_ns) * 1e-9;
  check_times(j, r, step, PROF_TIMES_NO_LANE);
  return true;
}

static int by_instruction(const void *a, const void *b) {
  const prof_work *x = a, *y = b;
  if (x->instruction != y->instruction) return x->instruction < y->instruction ? -1 : 1;
  if (x->start_s < y->start_s || x->start_s > y->start_s) return x->start_s < y->start_s ? -1 : 1;
  return (x->end_s > y->end_s) - (x->end_s < y->end_s);
}

/* Each stream that is known leaves fewer lanes for the others. */
static bool learn_streams(joiner *j) {
  for (size_t before = SIZE_MAX; before != j->streams.count;) {
    before = j->streams.count;
    for (size_t i = 0; i < j->session->records.count; i++) {
      const prof_record *r = &j->session->records.items[i];
      size_t at;
      if (!prof_on_device(r) || prof_record_class(r, j->classes) != PROF_NCCL || stream_of(j, r)) continue;
      if (!find_window(j, r, &at)) return false;
    }
  }
  return true;
}

static bool find_work(joiner *j) {
  if (!learn_streams(j)) return false;
  for (size_t i = 0; i < j->session->records.count; i++)
    if (prof_on_device(&j->session->records.items[i]) && !add_work(j, &j->session->records.items[i])) return false;
  for (size_t s = 0; s < j->join->steps.count; s++) {
    prof_joined *step = &j->join->steps.items[s];
    if (step->work.count) qsort(step->work.items, step->work.count, sizeof(prof_work), by_instruction);
  }
  return true;
}

/* ---- times ---- */

static int by_begin(const void *a, const void *b) {
  const window *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
  return (x->instruction > y->instruction) - (x->instruction < y->instruction);
}

static void take_spans(prof_joined *step) {
  double *start_s = step->timeline.start_s, *end_s = step->timeline.end_s;
  for (size_t i = 0; i < step->work.count; i++) {
    const prof_work *w = &step->work.items[i];
    start_s[w->instruction] = fmin(start_s[w->instruction], w->start_s); /* of a number and none: the number */
    end_s[w->instruction] = fmax(end_s[w->instruction], w->end_s);
  }
}

/* What an instruction does the work of, too: the other end, or the other members. */
static void each_partner(const plan_program *program, const plan_groups *groups, uint32_t i, prof_joined *step,
                         void (*f)(prof_joined *step, uint32_t i, uint32_t partner)) {
  const plan_instruction *of = &program->instructions[i];
  if (of->opcode == PLAN_SEND || of->opcode == PLAN_RECV) f(step, i, of->peer);
  if (of->opcode != PLAN_ALL_REDUCE) return;
  for (uint32_t m = groups->first[of->peer]; m < groups->first[of->peer + 1]; m++)
    if (groups->ids[m] != i) f(step, i, groups->ids[m]);
}

/* Of an instruction without work: when all that it waits for, as far as that is known, has ended. */
static double ready_s(const plan_timeline *t, uint32_t i) {
  const plan_program *program = t->program;
  const plan_lane *lane = &program->lanes[plan_instruction_lane(program, i)];
  double s = 0;
  for (uint32_t w = program->wait_first[i]; w < program->wait_first[i + 1]; w++)
    s = fmax(s, t->end_s[program->waits[w]]);
  return i > lane->first ? fmax(s, t->end_s[i - 1]) : s;
}

static void hand_over(prof_joined *step, uint32_t i, uint32_t partner) {
  plan_timeline *t = &step->timeline;
  if (isnan(t->issue_s[partner])) {
    t->issue_s[partner] = t->issue_s[i];
    step->begin_s[partner] = step->begin_s[i];
  }
  if (!isnan(t->start_s[partner])) return;
  t->start_s[partner] = t->start_s[i];
  t->end_s[partner] = t->end_s[i];
}

static void meet(prof_joined *step, uint32_t i, uint32_t partner) {
  plan_timeline *t = &step->timeline;
  t->start_s[i] = t->start_s[partner] = fmax(t->start_s[i], t->start_s[partner]);
  t->end_s[i] = t->end_s[partner] = fmax(fmax(t->end_s[i], t->end_s[partner]), t->start_s[i]);
}

/* The host puts an instruction into a queue after all that it waits for, so in the order of windows what one needs is
 * known before it. Partners without work of their own take the worker's first, so that what waits for either finds it.
 */
static void take_times(joiner *j, const plan_groups *groups) {
  for (size_t s = 0; s < j->join->steps.count; s++) take_spans(&j->join->steps.items[s]);
  for (size_t i = 0; i < j->windows.count; i++) {
    const window *w = &j->windows.items[i];
    prof_joined *step = &j->join->steps.items[w->step];
    step->begin_s[w->instruction] = (double)(w->begin_ns - j->zero_ns[w->step]) * 1e-9;
    step->timeline.issue_s[w->instruction] = (double)(w->end_ns - j->zero_ns[w->step]) * 1e-9;
  }
  for (size_t i = 0; i < j->windows.count; i++) {
    const window *w = &j->windows.items[i];
    prof_joined *step = &j->join->steps.items[w->step];
    plan_timeline *t = &step->timeline;
    if (isnan(t->start_s[w->instruction]))
      t->start_s[w->instruction] = t->end_s[w->instruction] = ready_s(t, w->instruction);
    each_partner(j->program, groups, w->instruction, step, hand_over);
  }
  for (size_t s = 0; s < j->join->steps.count; s++)
    for (uint32_t i = 0; i < j->program->instruction_count; i++)
      each_partner(j->program, groups, i, &j->join->steps.items[s], meet);
}

/* Those of which an instruction is missing or whose times cannot be are left out. */
static void keep_whole(joiner *j) {
  size_t kept = 0;
  for (size_t s = 0; s < j->join->steps.count; s++) {
    prof_joined *step = &j->join->steps.items[s];
    bool whole = true;
    for (uint32_t i = 0; i < j->program->instruction_count; i++) {
      whole = whole && !isnan(step->timeline.issue_s[i]) && !isnan(step->timeline.end_s[i]);
      step->timeline.step_s = fmax(step->timeline.step_s, step->timeline.end_s[i]);
    }
    const bool can_be = !j->times.wrong[s];
    j->join->torn += !whole;
    j->join->impossible += whole && !can_be;
    if (whole && can_be)
      j->join->steps.items[kept++] = *step;
    else
      free_joined(step);
  }
  j->join->steps.count = kept;
}

dp_status prof_join_of(const prof_session *session, const unsigned char *classes, const plan_program *program,
                       size_t most, prof_join *join, dp_error *error) {
  prof_join made = {.torn = 0};
  joiner j = {.session = session, .classes = classes, .program = program, .join = &made};
  dp_arena arena = {0};
  plan_groups groups;
  dp_status status = plan_groups_of(program, &arena, &groups, error);
  if (status == DP_OK && !find_marks(&j, most)) status = dp_fail_memory(error);
  if (status == DP_OK) status = add_steps(&j, error);
  if (status == DP_OK && !(find_windows(&j) && find_launches(&j) && find_nodes(&j) && find_work(&j)))
    status = dp_fail_memory(error);
  if (status == DP_OK) {
    if (j.windows.count) qsort(j.windows.items, j.windows.count, sizeof(window), by_begin);
    take_times(&j, &groups);
    keep_whole(&j);
  }
  free(j.zero_ns);
  dp_array_free(&j.marks);
  dp_array_free(&j.windows);
  dp_array_free(&j.launches);
  dp_array_free(&j.streams);
  dp_array_free(&j.nodes);
  dp_array_free(&j.graphs);
  prof_times_free(&j.times);
  dp_arena_free(&arena);
  if (status == DP_OK)
    *join = made;
  else
    prof_join_free(&made);
  return status;
}

dp_status prof_join_read(const char *folder, const plan_program *program, size_t most, prof_session *session,
                         prof_join *join, dp_error *error) {
  prof_rules rules = {.count = 0};
  unsigned char *classes = NULL;
  *session = (prof_session){.slots = NULL};
  *join = (prof_join){.torn = 0};
  DP_TRY(prof_session_read(folder, session, error));
  dp_status status = prof_rules_read(NULL, &rules, error);
  if (status == DP_OK) {
    classes = prof_rules_classes(&rules, session);
    if (!classes) status = dp_fail_memory(error);
  }
  if (status == DP_OK) status = prof_join_of(session, classes, program, most, join, error);
  free(classes);
  prof_rules_free(&rules);
  return status;
}

void prof_join_free(prof_join *join) {
  for (size_t s = 0; s < join->steps.count; s++) free_joined(&join->steps.items[s]);
  dp_array_free(&join->steps);
  join->torn = join->impossible = 0;
}
