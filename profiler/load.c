#include "profiler/load.h"

#include <stdlib.h>

bool prof_load_add(prof_load *load, int64_t start_ns, int64_t end_ns) {
  if (end_ns <= start_ns) return true;
  if (!dp_array_push(&load->moments, ((prof_moment){.at_ns = start_ns, .running = 1}))) return false;
  return dp_array_push(&load->moments, ((prof_moment){.at_ns = end_ns, .running = -1}));
}

static int by_time(const void *a, const void *b) {
  const prof_moment *x = a, *y = b;
  return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

void prof_load_finish(prof_load *load) {
  prof_moment *moments = load->moments.items;
  if (load->moments.count) qsort(moments, load->moments.count, sizeof *moments, by_time);
  for (size_t i = 1; i < load->moments.count; i++) {
    moments[i].sum_ns = moments[i - 1].sum_ns + moments[i - 1].running * (moments[i].at_ns - moments[i - 1].at_ns);
    moments[i].running += moments[i - 1].running;
  }
}

/* All of the pieces' time before a moment. */
static int64_t sum_until(const prof_load *load, int64_t at_ns) {
  size_t low = 0, high = load->moments.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (load->moments.items[middle].at_ns <= at_ns)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return 0;
  const prof_moment *last = &load->moments.items[low - 1];
  return last->sum_ns + last->running * (at_ns - last->at_ns);
}

int64_t prof_load_between(const prof_load *load, int64_t from_ns, int64_t to_ns) {
  return sum_until(load, to_ns) - sum_until(load, from_ns);
}

void prof_load_free(prof_load *load) { dp_array_free(&load->moments); }
