#include "profiler/summary.h"

#include <stdlib.h>
#include <string.h>

#include "base/median.h"

const char *const prof_part_names[PROF_PART_COUNT] = {"compute",   "exposed_nccl", "exposed_copies",
                                                      "idle_host", "idle_data",    "idle_other"};

prof_spread prof_spread_of(double *values, size_t count) {
  prof_spread spread = {.count = count};
  if (count == 0) return spread;
  spread.p50_s = dp_quantile(values, count, 0.5); /* sorted from here on */
  spread.p95_s = dp_quantile(values, count, 0.95);
  spread.max_s = values[count - 1];
  for (size_t i = 0; i < count; i++) spread.sum_s += values[i];
  return spread;
}

static double seconds(int64_t ns) { return (double)ns * 1e-9; }

typedef int64_t (*window_array)[2];

/* Of each process from its first step to its last, or all its work. */
static void find_windows(const prof_session *session, const prof_steps *steps, window_array windows) {
  for (size_t p = 0; p < session->processes.count; p++) windows[p][0] = windows[p][1] = 0;
  for (size_t s = 0; s < steps->items.count; s++) {
    const prof_step *step = &steps->items.items[s];
    if (windows[step->process][1] == 0) windows[step->process][0] = step->start_ns;
    if (step->end_ns > windows[step->process][1]) windows[step->process][1] = step->end_ns;
  }
  for (size_t i = 0; i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (!prof_on_device(r) || steps->processes[r->process].count) continue;
    if (windows[r->process][1] == 0) windows[r->process][0] = r->start_ns;
    if (r->end_ns > windows[r->process][1]) windows[r->process][1] = r->end_ns;
  }
}

bool prof_summary_counts(const prof_record *r, const int64_t window[2]) {
  return r->start_ns >= window[0] && (r->start_ns < window[1] || (r->start_ns == window[1] && r->end_ns == window[1]));
}

/* ---- streams and devices ---- */

static bool add_stream(prof_summary *summary, const prof_record *r) {
  size_t s = summary->streams.count; /* the last one is the likeliest */
  while (s > 0) {
    const prof_stream_row *row = &summary->streams.items[s - 1];
    if (row->process == r->process && row->device == r->device && row->stream == r->stream) break;
    s--;
  }
  if (s == 0) {
    if (!dp_array_push(&summary->streams, ((prof_stream_row){r->process, r->device, r->stream, 0, 0}))) return false;
    s = summary->streams.count;
  }
  summary->streams.items[s - 1].count++;
  summary->streams.items[s - 1].sum_s += seconds(r->end_ns - r->start_ns);
  return true;
}

static prof_device_row *find_device(prof_summary *summary, const prof_record *r) {
  for (size_t d = 0; d < summary->devices.count; d++)
    if (summary->devices.items[d].process == r->process && summary->devices.items[d].device == r->device)
      return &summary->devices.items[d];
  return dp_array_push(&summary->devices, ((prof_device_row){.process = r->process, .device = r->device}))
             ? &summary->devices.items[summary->devices.count - 1]
             : NULL;
}

static int by_stream(const void *a, const void *b) {
  const prof_stream_row *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return (x->stream > y->stream) - (x->stream < y->stream);
}

static int by_device(const void *a, const void *b) {
  const prof_device_row *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  return (x->device > y->device) - (x->device < y->device);
}

/* Device rows of all that worked or allocated, with their memory. What was allocated before recording began is unknown,
 * so a sum below 0 begins again at 0. */
static dp_status find_rows(const prof_session *session, const int64_t (*windows)[2], prof_summary *summary,
                           dp_error *error) {
  for (size_t i = 0; i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    const bool allocates = r->kind == PROF_ALLOCATE || r->kind == PROF_FREE;
    if (r->device == PROF_NO_DEVICE || !(allocates || prof_on_device(r))) continue;
    prof_device_row *row = find_device(summary, r);
    if (!row) return dp_fail_memory(error);
    row->window_s = seconds(windows[r->process][1] - windows[r->process][0]);
    if (allocates) {
      const int64_t bytes = r->value > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)r->value;
      row->end_bytes += r->kind == PROF_ALLOCATE ? bytes : -bytes;
      if (row->end_bytes < 0 || row->end_bytes > INT64_MAX / 2) row->end_bytes = 0;
      if (row->end_bytes > row->peak_bytes) row->peak_bytes = row->end_bytes;
    } else if (prof_summary_counts(r, windows[r->process]) && !add_stream(summary, r)) {
      return dp_fail_memory(error);
    }
  }
  if (summary->streams.count) qsort(summary->streams.items, summary->streams.count, sizeof(prof_stream_row), by_stream);
  if (summary->devices.count) qsort(summary->devices.items, summary->devices.count, sizeof(prof_device_row), by_device);
  return DP_OK;
}

/* ---- classes and steps ---- */

static void add_to_step(prof_summary *summary, const prof_record *r, prof_class class) {
  size_t low = 0, high = summary->step_count; /* the first step that does not end before the record starts */
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const prof_step *step = &summary->steps[middle].step;
    if (step->process < r->process || (step->process == r->process && step->end_ns <= r->start_ns))
      low = middle + 1;
    else
      high = middle;
  }
  if (low == summary->step_count) return;
  const prof_step *step = &summary->steps[low].step;
  if (step->process == r->process && step->start_ns <= r->start_ns)
    summary->steps[low].classes_s[class] += seconds(r->end_ns - r->start_ns);
}

static dp_status find_classes(const prof_session *session, const unsigned char *classes, const int64_t (*windows)[2],
                              prof_summary *summary, dp_error *error) {
  double *values = malloc((session->records.count + 1) * sizeof *values);
  if (!values) return dp_fail_memory(error);
  for (int c = 0; c < PROF_CLASS_COUNT; c++) {
    size_t count = 0;
    for (size_t i = 0; i < session->records.count; i++) {
      const prof_record *r = &session->records.items[i];
      if (!prof_on_device(r) || (int)prof_record_class(r, classes) != c || !prof_summary_counts(r, windows[r->process]))
        continue;
      values[count++] = seconds(r->end_ns - r->start_ns);
      add_to_step(summary, r, (prof_class)c);
      if (r->kind != PROF_COPY) continue;
      prof_copy_row *copy = &summary->copies[r->detail < PROF_COPY_END ? r->detail : PROF_COPY_OTHER];
      copy->count++;
      copy->bytes += r->value;
      copy->sum_s += values[count - 1];
    }
    summary->classes[c].time = prof_spread_of(values, count);
    summary->work_s += summary->classes[c].time.sum_s;
  }
  free(values);
  for (int c = 0; c < PROF_CLASS_COUNT && summary->work_s > 0; c++)
    summary->classes[c].share = summary->classes[c].time.sum_s / summary->work_s;
  return DP_OK;
}

static dp_status set_steps(const prof_steps *steps, prof_summary *summary, dp_error *error) {
  const size_t count = steps->items.count;
  double *values = calloc(count + 1, sizeof *values);
  summary->steps = calloc(count + 1, sizeof *summary->steps);
  summary->step_count = count;
  if (values && summary->steps) {
    for (size_t s = 0; s < count; s++) {
      summary->steps[s].step = steps->items.items[s];
      values[s] = seconds(steps->items.items[s].end_ns - steps->items.items[s].start_ns);
    }
    summary->step_time = prof_spread_of(values, count);
  }
  const bool done = values && summary->steps;
  free(values);
  return done ? DP_OK : dp_fail_memory(error);
}

dp_status prof_summary_of(const prof_session *session, const unsigned char *classes, const prof_steps *steps,
                          int64_t away_ns, prof_summary *summary, dp_error *error) {
  prof_summary made = {.steps = NULL};
  window_array windows = calloc(session->processes.count + 1, sizeof *windows);
  if (!windows) return dp_fail_memory(error);
  find_windows(session, steps, windows);
  const int64_t(*const seen)[2] = (const int64_t(*)[2])windows;
  dp_status status = set_steps(steps, &made, error);
  if (status == DP_OK) status = find_rows(session, seen, &made, error);
  if (status == DP_OK) status = find_classes(session, classes, seen, &made, error);
  if (status == DP_OK) status = prof_summary_kernels(session, classes, seen, &made, error);
  if (status == DP_OK)
    status = prof_summary_parts(session, classes, seen, away_ns > 0 ? away_ns : 1000000, &made, error);
  free(windows);
  if (status == DP_OK)
    *summary = made;
  else
    prof_summary_free(&made);
  return status;
}

void prof_summary_free(prof_summary *summary) {
  dp_array_free(&summary->kernels);
  dp_array_free(&summary->streams);
  dp_array_free(&summary->devices);
  free(summary->steps);
  *summary = (prof_summary){.steps = NULL};
}
