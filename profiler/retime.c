/* The sweep through all that was measured, in its order; profiler/retime.h has the law. */
#include "profiler/retime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/retime_parts.h"

typedef struct boundary {
  int64_t was_ns, *is_ns;
  uint16_t process;
} boundary;

typedef struct sweep {
  retime_plan plan;
  const prof_retime_how *how;
  const prof_record *was; /* [session->records.count] */
  prof_record *is;        /* the same, set again */
  const prof_steps *steps;
  double host_factor;
  int64_t away_ns;
  boundary *boundaries; /* [2 * steps->items.count] by time */
} sweep;

/* ---- moments ---- */

static void depend(retime_moment *on, const retime_moment *moment) {
  if (!moment->known) return;
  if (!on->known) {
    *on = *moment;
    return;
  }
  if (moment->was_ns > on->was_ns) on->was_ns = moment->was_ns;
  if (moment->is_ns > on->is_ns) on->is_ns = moment->is_ns;
}

static int64_t after(const retime_moment *on, int64_t was_ns) {
  return on->known ? on->is_ns + (was_ns - on->was_ns) : was_ns;
}

static int64_t after_host(const sweep *s, const retime_moment *on, int64_t was_ns) {
  if (!on->known) return was_ns;
  return on->is_ns + llround((double)(was_ns - on->was_ns) * s->host_factor);
}

static retime_lane *lane_of(sweep *s, size_t record) { return &s->plan.lanes.items[s->plan.lane_of[record]]; }

static bool is_call(const prof_record *r) { return r->kind == PROF_CALL || r->kind == PROF_SYNC; }

/* ---- work ---- */

static bool begins_step(sweep *s, const prof_record *work) {
  retime_process *process = &s->plan.processes[work->process];
  bool first = false;
  for (; process->step < s->steps->items.count; process->step++) {
    const prof_step *step = &s->steps->items.items[process->step];
    if (step->process != work->process || step->start_ns > work->start_ns) break;
    first = true;
  }
  return first;
}

static int64_t launched_ns(const sweep *s, size_t record) {
  const size_t call = s->plan.launch_of[record];
  return call == RETIME_NONE ? INT64_MAX : s->was[call].start_ns;
}

/* What it waits for on other streams; `own`: what it depends on beside. */
static void depend_on_streams(sweep *s, size_t record, const retime_moment *own, retime_moment *on) {
  const prof_record *r = &s->was[record];
  const prof_class class = prof_record_class(r, s->plan.classes);
  const bool first = begins_step(s, r), still = own->known && r->start_ns - own->was_ns > RETIME_STILL_NS;
  if (!first && !still && class != PROF_NCCL && class != PROF_OPTIMIZER) return;
  for (size_t l = s->plan.processes[r->process].lanes; l != RETIME_NONE; l = s->plan.lanes.items[l].next) {
    const retime_lane *lane = &s->plan.lanes.items[l];
    if (!lane->on_device || !lane->done.known || l == s->plan.lane_of[record]) continue;
    const bool seen = still && lane->done.was_ns > own->was_ns && r->start_ns - lane->done.was_ns <= RETIME_NEAR_NS;
    const bool sends = class == PROF_NCCL && lane->done_launched_ns <= launched_ns(s, record);
    if (first || seen || sends || (class == PROF_OPTIMIZER && lane->nccl)) depend(on, &lane->done);
  }
}

static void begin_work(sweep *s, size_t record) {
  const prof_record *r = &s->was[record];
  const size_t call = s->plan.launch_of[record], group = s->plan.group_of[record];
  retime_lane *lane = lane_of(s, record);
  retime_process *process = &s->plan.processes[r->process];
  retime_moment own = {false, 0, 0};
  depend(&own, &lane->begun);
  depend(&own, &lane->done);
  if (call != RETIME_NONE) {
    const bool returned = s->was[call].end_ns <= r->start_ns;
    depend(&own, &(retime_moment){true, returned ? s->was[call].end_ns : s->was[call].start_ns,
                                  returned ? s->is[call].end_ns : s->is[call].start_ns});
  }
  retime_moment on = own;
  depend_on_streams(s, record, &own, &on);
  if (!on.known) on = process->device;
  s->is[record].start_ns = after(&on, r->start_ns);
  lane->begun = process->device = (retime_moment){true, r->start_ns, s->is[record].start_ns};
  if (group == RETIME_NONE) return;
  retime_group *of = &s->plan.groups.items[group];
  if (s->is[record].start_ns > of->is_start_ns) of->is_start_ns = s->is[record].start_ns;
}

static int64_t work_ns(const sweep *s, const prof_record *r, int64_t was_ns) {
  return llround(s->how->work_s(s->how->context, r, (double)was_ns * 1e-9) * 1e9);
}

static void end_work(sweep *s, size_t record) {
  const prof_record *r = &s->was[record];
  const size_t group = s->plan.group_of[record];
  retime_lane *lane = lane_of(s, record);
  int64_t end_ns;
  if (group == RETIME_NONE) {
    end_ns = s->is[record].start_ns + work_ns(s, r, r->end_ns - r->start_ns);
  } else {
    const retime_group *of = &s->plan.groups.items[group];
    end_ns = of->is_start_ns + work_ns(s, r, of->end_ns - of->start_ns) + (r->end_ns - of->end_ns);
  }
  s->is[record].end_ns = end_ns;
  const size_t call = s->plan.launch_of[record];
  if (call != RETIME_NONE && s->plan.launch_of[call] == record && s->was[call].end_ns < r->end_ns)
    s->plan.processes[r->process].launches--;
  const retime_moment done = {true, r->end_ns, end_ns};
  s->plan.processes[r->process].device = s->plan.processes[r->process].done = done;
  if (lane->done.known && lane->done.is_ns > end_ns) { /* its stream's work that had ended is the later one now */
    lane->done.was_ns = r->end_ns;
    return;
  }
  lane->done = done;
  lane->done_launched_ns = call == RETIME_NONE ? INT64_MIN : launched_ns(s, record);
  lane->nccl = prof_record_class(r, s->plan.classes) == PROF_NCCL;
}

/* ---- the host ---- */

static void begin_call(sweep *s, size_t record) {
  const prof_record *r = &s->was[record];
  retime_lane *lane = lane_of(s, record);
  retime_process *process = &s->plan.processes[r->process];
  const size_t l = s->plan.lane_of[record];
  const bool away = !lane->begun.known || r->start_ns - lane->begun.was_ns > s->away_ns;
  retime_moment on = lane->begun;
  if (away && process->call_lane != l) depend(&on, &process->call);
  s->is[record].start_ns = after_host(s, &on, r->start_ns);
  lane->begun = process->call = (retime_moment){true, r->start_ns, s->is[record].start_ns};
  process->call_lane = l;
}

/* Whether a call that launched work waited for room in the queue. */
static bool was_full(const prof_record *call, const retime_process *process) {
  const int64_t took_ns = call->end_ns - call->start_ns;
  if (!process->done.known || process->done.was_ns <= call->start_ns) return false;
  return took_ns > RETIME_LONG_NS || (took_ns > RETIME_CALL_NS && process->launches >= RETIME_QUEUE);
}

static void end_call(sweep *s, size_t record) {
  const prof_record *r = &s->was[record];
  retime_lane *lane = lane_of(s, record);
  retime_process *process = &s->plan.processes[r->process];
  const size_t work = s->plan.launch_of[record];
  int64_t least_ns = 0;
  retime_moment on = lane->begun;
  if (r->kind == PROF_SYNC) {
    for (size_t l = process->lanes; l != RETIME_NONE; l = s->plan.lanes.items[l].next)
      if (s->plan.lanes.items[l].on_device) depend(&on, &s->plan.lanes.items[l].done);
  } else if (work != RETIME_NONE && s->was[work].kind == PROF_COPY && s->was[work].end_ns <= r->end_ns) {
    depend(&on, &(retime_moment){true, s->was[work].end_ns, s->is[work].end_ns});
  } else if (work != RETIME_NONE && was_full(r, process)) {
    depend(&on, &process->done);
    least_ns = r->end_ns - r->start_ns < RETIME_CALL_NS ? r->end_ns - r->start_ns : RETIME_CALL_NS;
  }
  s->is[record].end_ns = after_host(s, &on, r->end_ns);
  const int64_t floor_ns = s->is[record].start_ns + llround((double)least_ns * s->host_factor);
  if (s->is[record].end_ns < floor_ns) s->is[record].end_ns = floor_ns;
  if (work != RETIME_NONE && s->was[work].end_ns > r->end_ns) process->launches++;
  lane->begun = process->call = (retime_moment){true, r->end_ns, s->is[record].end_ns};
  process->call_lane = s->plan.lane_of[record];
}

/* Ranges, allocations and the like move along with their thread. */
static void set_other(sweep *s, size_t record) {
  const prof_record *r = &s->was[record];
  const retime_moment *thread = &lane_of(s, record)->begun;
  s->is[record].start_ns = after_host(s, thread->known ? thread : &s->plan.processes[r->process].call, r->start_ns);
  s->is[record].end_ns = s->is[record].start_ns + (r->end_ns - r->start_ns);
}

/* ---- the sweep ---- */

static void end_record(sweep *s, size_t record) {
  if (prof_on_device(&s->was[record]))
    end_work(s, record);
  else if (is_call(&s->was[record]))
    end_call(s, record);
}

static void begin_record(sweep *s, size_t record) {
  const prof_record *r = &s->was[record];
  if (prof_on_device(r))
    begin_work(s, record);
  else if (is_call(r))
    begin_call(s, record);
  else
    set_other(s, record);
  if (r->end_ns == r->start_ns) end_record(s, record);
}

/* At one moment what ends, then what starts, then steps. */
static void run(sweep *s) {
  const size_t count = s->plan.session->records.count, boundary_count = 2 * s->steps->items.count;
  size_t record = 0, end = 0, at = 0;
  while (record < count || end < s->plan.end_count || at < boundary_count) {
    const int64_t start_ns = record < count ? s->was[record].start_ns : INT64_MAX;
    const int64_t end_ns = end < s->plan.end_count ? s->plan.ends[end].at_ns : INT64_MAX;
    const int64_t step_ns = at < boundary_count ? s->boundaries[at].was_ns : INT64_MAX;
    if (end < s->plan.end_count && end_ns <= start_ns && end_ns <= step_ns) {
      end_record(s, s->plan.ends[end++].record);
    } else if (record < count && start_ns <= step_ns) {
      begin_record(s, record++);
    } else {
      const boundary *b = &s->boundaries[at++];
      *b->is_ns = after(&s->plan.processes[b->process].device, b->was_ns);
    }
  }
}

static int by_time(const void *a, const void *b) {
  const boundary *x = a, *y = b;
  return (x->was_ns > y->was_ns) - (x->was_ns < y->was_ns);
}

static dp_status copy(const prof_session *session, const prof_steps *steps, sweep *s, prof_retimed *made,
                      dp_error *error) {
  made->session = *session;
  made->session.records.items = NULL;
  made->session.records.count = made->session.records.capacity = 0;
  made->steps = *steps;
  made->steps.items.items = NULL;
  made->steps.items.count = made->steps.items.capacity = 0;
  s->boundaries = malloc((2 * steps->items.count + 1) * sizeof *s->boundaries);
  if (!s->boundaries || !dp_array_reserve(&made->session.records, session->records.count + 1) ||
      !dp_array_reserve(&made->steps.items, steps->items.count + 1))
    return dp_fail_memory(error);
  if (session->records.count)
    memcpy(made->session.records.items, session->records.items, session->records.count * sizeof(prof_record));
  made->session.records.count = session->records.count;
  for (size_t i = 0; i < steps->items.count; i++) {
    made->steps.items.items[i] = steps->items.items[i];
    prof_step *step = &made->steps.items.items[i];
    s->boundaries[2 * i] = (boundary){step->start_ns, &step->start_ns, step->process};
    s->boundaries[2 * i + 1] = (boundary){step->end_ns, &step->end_ns, step->process};
  }
  made->steps.items.count = steps->items.count;
  if (steps->items.count) qsort(s->boundaries, 2 * steps->items.count, sizeof *s->boundaries, by_time);
  return DP_OK;
}

dp_status prof_retime(const prof_session *session, const unsigned char *classes, const prof_steps *steps,
                      const prof_retime_how *how, prof_retimed *retimed, dp_error *error) {
  prof_retimed made = {.collectives = 0};
  sweep s = {.how = how,
             .steps = steps,
             .was = session->records.items,
             .host_factor = how->host_factor > 0 ? how->host_factor : 1,
             .away_ns = how->away_ns > 0 ? how->away_ns : 1000000};
  dp_status status = copy(session, steps, &s, &made, error);
  if (status == DP_OK) status = retime_plan_make(session, classes, &s.plan, error);
  if (status == DP_OK) {
    s.is = made.session.records.items;
    for (size_t i = steps->items.count; i-- > 0;) s.plan.processes[steps->items.items[i].process].step = i;
    run(&s);
    made.collectives = s.plan.groups.count;
    for (size_t i = 0; i < made.steps.items.count; i++)
      if (made.steps.items.items[i].end_ns < made.steps.items.items[i].start_ns)
        made.steps.items.items[i].end_ns = made.steps.items.items[i].start_ns;
    status = prof_session_sort(&made.session, error);
  }
  retime_plan_free(&s.plan);
  free(s.boundaries);
  if (status == DP_OK)
    *retimed = made;
  else
    prof_retimed_free(&made);
  return status;
}

void prof_retimed_free(prof_retimed *retimed) {
  dp_array_free(&retimed->session.records);
  dp_array_free(&retimed->steps.items);
  *retimed = (prof_retimed){.collectives = 0};
}
