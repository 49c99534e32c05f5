/* The parts of each device's time: a sweep over the starts and ends of its work. */
#include <stdlib.h>
#include <string.h>

#include "profiler/summary.h"

typedef enum group { GROUP_COMPUTE, GROUP_NCCL, GROUP_COPIES, GROUP_COUNT } group;

typedef struct edge {
  int64_t at_ns;
  bool starts;
  group group;
  const prof_record *record;
} edge;

typedef struct call {
  uint16_t process;
  uint32_t correlation;
  int64_t start_ns, away_ns; /* how long its thread was in no call before */
} call;

typedef struct last_call {
  uint16_t process;
  uint32_t thread;
  int64_t end_ns;
} last_call;

typedef struct sweep {
  const prof_session *session;
  const unsigned char *classes;
  prof_summary *summary;
  prof_device_row *row;
  int64_t window[2], limit_ns;
  DP_ARRAY(call) calls; /* by process and correlation */
  DP_ARRAY(edge) edges;
  DP_ARRAY(double) gaps;
} sweep;

/* ---- calls ---- */

static int by_correlation(const void *a, const void *b) {
  const call *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  if (x->correlation != y->correlation) return x->correlation < y->correlation ? -1 : 1;
  return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static bool find_calls(sweep *s) {
  DP_ARRAY(last_call) threads = {0};
  bool done = true;
  for (size_t i = 0; done && i < s->session->records.count; i++) {
    const prof_record *r = &s->session->records.items[i];
    if (r->kind != PROF_CALL && r->kind != PROF_SYNC) continue;
    size_t t = 0;
    while (t < threads.count && (threads.items[t].process != r->process || threads.items[t].thread != r->thread)) t++;
    const int64_t away = t < threads.count ? r->start_ns - threads.items[t].end_ns : 0;
    if (t == threads.count) done = dp_array_push(&threads, ((last_call){r->process, r->thread, r->end_ns}));
    if (done && r->end_ns > threads.items[t].end_ns) threads.items[t].end_ns = r->end_ns;
    if (done && r->kind == PROF_CALL && r->correlation)
      done = dp_array_push(&s->calls, ((call){r->process, r->correlation, r->start_ns, away}));
  }
  dp_array_free(&threads);
  if (s->calls.count) qsort(s->calls.items, s->calls.count, sizeof(call), by_correlation);
  return done;
}

static int compare_call(const void *key, const void *item) {
  const prof_record *r = key;
  const call *c = item;
  if (r->process != c->process) return r->process < c->process ? -1 : 1;
  return (r->correlation > c->correlation) - (r->correlation < c->correlation);
}

/* Why nothing ran from a moment until this work began. */
static prof_part cause_of(const sweep *s, int64_t dry_ns, const prof_record *next) {
  if (!next->correlation || !s->calls.count) return PROF_IDLE_OTHER;
  const call *launch = bsearch(next, s->calls.items, s->calls.count, sizeof(call), compare_call);
  if (!launch || launch->start_ns <= dry_ns) return PROF_IDLE_OTHER;
  return launch->away_ns > s->limit_ns ? PROF_IDLE_DATA : PROF_IDLE_HOST;
}

/* ---- the sweep ---- */

/* Gives a piece of time to the device and to the steps that it lies in. `step`: the first that may not be over. */
static void add_part(sweep *s, int64_t from, int64_t to, prof_part part, size_t *step) {
  if (to <= from) return;
  prof_step_row *steps = s->summary->steps;
  s->row->parts_s[part] += (double)(to - from) * 1e-9;
  while (*step < s->summary->step_count && steps[*step].step.process == s->row->process &&
         steps[*step].step.end_ns <= from)
    ++*step;
  for (size_t i = *step; i < s->summary->step_count; i++) {
    const prof_step *at = &steps[i].step;
    if (at->process != s->row->process || at->start_ns >= to) break;
    const int64_t begin = at->start_ns > from ? at->start_ns : from, end = at->end_ns < to ? at->end_ns : to;
    if (end > begin) steps[i].parts_s[part] += (double)(end - begin) * 1e-9;
  }
}

/* Ends before starts, so that work which follows without a gap leaves none. */
static int by_time(const void *a, const void *b) {
  const edge *x = a, *y = b;
  if (x->at_ns != y->at_ns) return x->at_ns < y->at_ns ? -1 : 1;
  if (x->starts != y->starts) return x->starts ? 1 : -1;
  return (x->record > y->record) - (x->record < y->record);
}

static int64_t within(const sweep *s, int64_t ns) {
  return ns < s->window[0] ? s->window[0] : ns > s->window[1] ? s->window[1] : ns;
}

static bool find_edges(sweep *s) {
  s->edges.count = 0;
  for (size_t i = 0; i < s->session->records.count; i++) {
    const prof_record *r = &s->session->records.items[i];
    if (r->process != s->row->process || r->device != s->row->device || !prof_on_device(r)) continue;
    const int64_t start = within(s, r->start_ns), end = within(s, r->end_ns);
    if (end <= start) continue;
    const prof_class class = prof_record_class(r, s->classes);
    const group of = class == PROF_NCCL ? GROUP_NCCL : class == PROF_COPIES ? GROUP_COPIES : GROUP_COMPUTE;
    if (!dp_array_push(&s->edges, ((edge){start, true, of, r})) ||
        !dp_array_push(&s->edges, ((edge){end, false, of, r})))
      return false;
  }
  if (s->edges.count) qsort(s->edges.items, s->edges.count, sizeof(edge), by_time);
  return true;
}

static bool run(sweep *s) {
  size_t running[GROUP_COUNT] = {0}, step = 0;
  int64_t at = s->window[0];
  s->gaps.count = 0;
  while (step < s->summary->step_count && s->summary->steps[step].step.process != s->row->process) step++;
  for (size_t i = 0; i < s->edges.count; i++) {
    const edge *e = &s->edges.items[i];
    const double passed = (double)(e->at_ns - at) * 1e-9;
    const bool dry = !running[GROUP_COMPUTE] && !running[GROUP_NCCL] && !running[GROUP_COPIES];
    const prof_part part = running[GROUP_COMPUTE]  ? PROF_COMPUTE
                           : running[GROUP_NCCL]   ? PROF_EXPOSED_NCCL
                           : running[GROUP_COPIES] ? PROF_EXPOSED_COPIES
                                                   : cause_of(s, at, e->record);
    if (running[GROUP_NCCL]) s->row->nccl_s += passed;
    if (running[GROUP_COPIES]) s->row->copies_s += passed;
    add_part(s, at, e->at_ns, part, &step);
    if (dry && i > 0 && e->at_ns > at && !dp_array_push(&s->gaps, passed)) return false;
    running[e->group] += e->starts ? 1 : (size_t)-1;
    at = e->at_ns;
  }
  add_part(s, at, s->window[1], PROF_IDLE_OTHER, &step);
  s->row->gaps = prof_spread_of(s->gaps.items, s->gaps.count);
  return true;
}

dp_status prof_summary_parts(const prof_session *session, const unsigned char *classes, const int64_t (*windows)[2],
                             int64_t away_ns, prof_summary *summary, dp_error *error) {
  sweep s = {.session = session, .classes = classes, .summary = summary, .limit_ns = away_ns};
  bool done = find_calls(&s);
  for (size_t d = 0; done && d < summary->devices.count; d++) {
    s.row = &summary->devices.items[d];
    memcpy(s.window, windows[s.row->process], sizeof s.window);
    done = find_edges(&s) && run(&s);
  }
  dp_array_free(&s.calls);
  dp_array_free(&s.edges);
  dp_array_free(&s.gaps);
  return done ? DP_OK : dp_fail_memory(error);
}
