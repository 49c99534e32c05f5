#include <stdlib.h>

#include "profiler/summary.h"

typedef struct launch {
  uint32_t name;
  prof_class class;
  double s;
} launch;

static int by_name(const void *a, const void *b) {
  const launch *x = a, *y = b;
  return (x->name > y->name) - (x->name < y->name);
}

static int by_sum(const void *a, const void *b) {
  const prof_kernel_row *x = a, *y = b;
  if (x->time.sum_s != y->time.sum_s) return x->time.sum_s < y->time.sum_s ? 1 : -1;
  return (x->name > y->name) - (x->name < y->name);
}

/* Those of one name, from the first on; how many there are. */
static size_t add_kernel(const launch *from, size_t left, double *values, prof_summary *summary, bool *added) {
  size_t count = 0;
  while (count < left && from[count].name == from->name) {
    values[count] = from[count].s;
    count++;
  }
  prof_kernel_row row = {.name = from->name, .class = from->class, .time = prof_spread_of(values, count)};
  if (summary->work_s > 0) row.share = row.time.sum_s / summary->work_s;
  *added = dp_array_push(&summary->kernels, row);
  return count;
}

dp_status prof_summary_kernels(const prof_session *session, const unsigned char *classes, const int64_t (*windows)[2],
                               prof_summary *summary, dp_error *error) {
  launch *launches = malloc((session->records.count + 1) * sizeof *launches);
  double *values = malloc((session->records.count + 1) * sizeof *values);
  bool done = launches && values;
  size_t count = 0;
  for (size_t i = 0; done && i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->kind != PROF_KERNEL || !prof_summary_counts(r, windows[r->process])) continue;
    launches[count++] = (launch){r->name, prof_record_class(r, classes), (double)(r->end_ns - r->start_ns) * 1e-9};
  }
  if (done && count) qsort(launches, count, sizeof *launches, by_name);
  for (size_t i = 0; done && i < count;) i += add_kernel(launches + i, count - i, values, summary, &done);
  if (done && summary->kernels.count)
    qsort(summary->kernels.items, summary->kernels.count, sizeof(prof_kernel_row), by_sum);
  free(launches);
  free(values);
  return done ? DP_OK : dp_fail_memory(error);
}
