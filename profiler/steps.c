#include "profiler/steps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

typedef struct span {
  int64_t begin_ns, end_ns; /* of the host */
  uint64_t number;
  int64_t first_ns, last_ns; /* of the device's work that was launched in it; 0: none */
} span;
typedef DP_ARRAY(span) span_array;

static bool is_named(const prof_session *session, const prof_record *record, const char *name) {
  return strcmp(session->names.items[record->name], name) == 0;
}

static bool ends(const prof_record *begin, const prof_record *end) {
  return begin->value ? end->value == begin->value : end->value == 0 && end->thread == begin->thread;
}

/* The record's end: of a range with an id the end of that id, of a pushed one the pop of its thread at its own depth.
 */
static int64_t range_end(const prof_session *session, size_t begin) {
  const prof_record *records = session->records.items;
  int depth = 0;
  for (size_t i = begin + 1; i < session->records.count; i++) {
    const prof_record *r = &records[i];
    if (r->process != records[begin].process) continue;
    const bool of_stack = records[begin].value == 0 && r->value == 0 && r->thread == records[begin].thread;
    if (r->kind == PROF_RANGE_BEGIN && of_stack) depth++;
    if (r->kind != PROF_RANGE_END || !ends(&records[begin], r)) continue;
    if (!of_stack || depth == 0) return r->start_ns;
    depth--;
  }
  return 0; /* it was cut: no step */
}

static dp_status find_ranges(const prof_session *session, uint16_t process, const char *name, span_array *spans,
                             dp_error *error) {
  int64_t until = INT64_MIN; /* a range of the same name within one is no step */
  for (size_t i = 0; i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->process != process || r->kind != PROF_RANGE_BEGIN || r->start_ns < until || !is_named(session, r, name))
      continue;
    const int64_t end = range_end(session, i);
    if (end == 0) continue;
    if (!dp_array_push(spans, ((span){r->start_ns, end, spans->count, 0, 0}))) return dp_fail_memory(error);
    until = end;
  }
  return DP_OK;
}

static dp_status find_marks(const prof_session *session, uint16_t process, span_array *spans, dp_error *error) {
  int64_t last = 0;
  for (size_t i = 0; i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->process != process) continue;
    if (r->end_ns > last) last = r->end_ns;
    if (r->kind != PROF_STEP) continue;
    span *before = spans->count ? &spans->items[spans->count - 1] : NULL;
    if (before && before->end_ns == before->begin_ns) before->end_ns = r->start_ns;
    if (!dp_array_push(spans, ((span){r->start_ns, r->end_ns, r->value, 0, 0}))) return dp_fail_memory(error);
  }
  span *newest = spans->count ? &spans->items[spans->count - 1] : NULL;
  if (newest && newest->end_ns == newest->begin_ns) newest->end_ns = last + 1;
  return DP_OK;
}

typedef struct launch {
  uint32_t correlation;
  uint32_t at; /* span */
} launch;

static int by_correlation(const void *a, const void *b) {
  const launch *x = a, *y = b;
  return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

static void add_work(span *s, const prof_record *r) {
  if (s->first_ns == 0 || r->start_ns < s->first_ns) s->first_ns = r->start_ns;
  if (r->end_ns > s->last_ns) s->last_ns = r->end_ns;
}

/* Gives each span the work of its launches. Spans and records are both by time. */
static dp_status find_work(const prof_session *session, uint16_t process, span_array *spans, dp_error *error) {
  DP_ARRAY(launch) launches = {0};
  size_t s = 0;
  bool done = true;
  for (size_t i = 0; done && i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->process != process || r->kind != PROF_CALL || r->correlation == 0) continue;
    while (s < spans->count && spans->items[s].end_ns <= r->start_ns) s++;
    if (s == spans->count) break;
    if (r->start_ns >= spans->items[s].begin_ns)
      done = dp_array_push(&launches, ((launch){r->correlation, (uint32_t)s}));
  }
  if (launches.count) qsort(launches.items, launches.count, sizeof(launch), by_correlation);
  for (size_t i = 0; done && launches.count && i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->process != process || !prof_on_device(r) || r->correlation == 0) continue;
    const launch key = {r->correlation, 0};
    const launch *found = bsearch(&key, launches.items, launches.count, sizeof key, by_correlation);
    if (found) add_work(&spans->items[found->at], r);
  }
  dp_array_free(&launches);
  return done ? DP_OK : dp_fail_memory(error);
}

/* Steps follow each other as their ranges do and never overlap, though work of one may start before that of the last.
 */
static dp_status add_steps(const span_array *spans, uint16_t process, prof_steps *steps, dp_error *error) {
  const size_t before = steps->items.count;
  int64_t latest = INT64_MIN;
  if (!dp_array_reserve(&steps->items, spans->count)) return dp_fail_memory(error);
  for (size_t i = 0; i < spans->count; i++) {
    const span *s = &spans->items[i];
    const int64_t start = s->first_ns ? s->first_ns : s->begin_ns;
    if (start > latest) latest = start;
    steps->items.items[steps->items.count++] = (prof_step){.process = process, .number = s->number, .start_ns = latest};
  }
  for (size_t i = 0; i < spans->count; i++) {
    const span *s = &spans->items[i], *next = i + 1 < spans->count ? s + 1 : NULL;
    prof_step *step = &steps->items.items[before + i];
    const int64_t next_ns = next ? step[1].start_ns : INT64_MAX, own_ns = s->last_ns ? s->last_ns : s->end_ns;
    const bool follows = next && next->begin_ns - s->end_ns <= (s->end_ns - s->begin_ns) / 2;
    step->end_ns = follows || own_ns > next_ns ? next_ns : own_ns;
    if (step->end_ns < step->start_ns) step->end_ns = step->start_ns;
  }
  return DP_OK;
}

static dp_status find_of(const prof_session *session, const unsigned char *classes, prof_steps_how how,
                         const char *range, uint16_t process, prof_steps *steps, dp_error *error) {
  span_array spans = {0};
  prof_process_steps *about = &steps->processes[process];
  dp_status status = how == PROF_STEPS_RANGE ? find_ranges(session, process, range, &spans, error)
                                             : find_marks(session, process, &spans, error);
  if (status == DP_OK && how == PROF_STEPS_AUTO && spans.count == 0)
    return prof_steps_auto(session, classes, process, steps, error);
  if (status == DP_OK) status = find_work(session, process, &spans, error);
  if (status == DP_OK) status = add_steps(&spans, process, steps, error);
  *about = (prof_process_steps){
      .how = how == PROF_STEPS_AUTO ? PROF_STEPS_MARKS : how, .count = spans.count, .confidence = spans.count ? 1 : 0};
  about->why = how == PROF_STEPS_RANGE ? dp_arena_printf(&steps->arena, "%zu ranges of that name", spans.count)
                                       : dp_arena_printf(&steps->arena, "the program marked %zu steps", spans.count);
  dp_array_free(&spans);
  return status == DP_OK && !about->why ? dp_fail_memory(error) : status;
}

/* Says what ranges there are. */
static dp_status no_range(const prof_session *session, const char *range, dp_error *error) {
  enum { TOLD = 8 };
  dp_str names = {0};
  size_t found = 0;
  bool begun = false;
  bool *known = calloc(session->names.count + 1, sizeof *known);
  for (size_t i = 0; known && i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->kind != PROF_RANGE_BEGIN || !r->name) continue;
    begun = begun || is_named(session, r, range);
    if (!known[r->name] && found++ < TOLD)
      dp_str_addf(&names, "%s\"%.60s\"", found > 1 ? ", " : ": ", session->names.items[r->name]);
    known[r->name] = true;
  }
  if (found > TOLD) dp_str_addf(&names, " and %zu more", found - TOLD);
  dp_status status = known && !names.failed ? DP_BAD_INPUT : dp_fail_memory(error);
  if (status == DP_BAD_INPUT && begun)
    (void)dp_fail(error, status,
                  "steps: found no end of the NVTX range \"%.200s\", allowed: one that ended while it was recorded",
                  range);
  else if (status == DP_BAD_INPUT)
    (void)dp_fail(error, status, "steps: found no NVTX range \"%.200s\", allowed: one that was recorded%s", range,
                  found ? dp_str_text(&names) : ", and none was");
  dp_str_free(&names);
  free(known);
  return status;
}

dp_status prof_steps_find(const prof_session *session, const unsigned char *classes, prof_steps_how how,
                          const char *range, prof_steps *steps, dp_error *error) {
  prof_steps made = {.processes = NULL};
  made.processes = DP_ARENA_NEW(&made.arena, prof_process_steps, session->processes.count);
  dp_status status = made.processes ? DP_OK : dp_fail_memory(error);
  for (size_t p = 0; status == DP_OK && p < session->processes.count; p++)
    status = find_of(session, classes, how, range, (uint16_t)p, &made, error);
  if (status == DP_OK && how == PROF_STEPS_RANGE && made.items.count == 0) status = no_range(session, range, error);
  if (status == DP_OK)
    *steps = made;
  else
    prof_steps_free(&made);
  return status;
}

void prof_steps_free(prof_steps *steps) {
  dp_array_free(&steps->items);
  dp_arena_free(&steps->arena);
  *steps = (prof_steps){.processes = NULL};
}
