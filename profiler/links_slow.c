/* What messages slow kernels by, and what the host takes from launch to launch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "profiler/links_parts.h"

/* ---- kernels beside messages ---- */

enum { ALONE = -1 };
static const double MOST_SLOWDOWN = 100; /* that a profile may have */

/* A kernel that ran alone, or beside messages of one way. */
typedef struct run {
  uint32_t name, grid[3], block_threads;
  int way;                /* or ALONE */
  double seconds, beside; /* beside: the share of it */
} run;
typedef DP_ARRAY(run) runs;

/* What a kernel's runs beside a way tell. */
typedef struct told {
  double slowdown, seconds;
} told;

typedef struct way_runs {
  DP_ARRAY(told) kernels;
  DP_ARRAY(run) aside; /* with alone_s of their kernel in `alone_s` */
  links_series alone_s;
} way_runs;

typedef struct slow_finder {
  links_maker *m;
  runs all;
  way_runs ways[PROF_WAY_COUNT];
  links_series scratch;
} slow_finder;

/* False: it tells nothing. */
static bool find_way(const links_maker *m, const prof_record *r, run *made) {
  double most = 0, sum = links_share(m, r, LINKS_OTHER);
  made->way = ALONE;
  if (links_share(m, r, LINKS_COMPUTE) > LINKS_LONE) return false;
  for (int way = 0; way < PROF_WAY_COUNT; way++) {
    const double share = fmin(1, links_share(m, r, way));
    sum += share;
    if (share <= most) continue;
    most = share;
    made->way = way;
  }
  made->beside = most;
  if (sum <= LINKS_LONE) made->way = ALONE;
  return sum <= LINKS_LONE || (most >= LINKS_BESIDE && sum - most <= LINKS_LONE);
}

static dp_status list_runs(slow_finder *f) {
  for (size_t i = 0; i < f->m->session->records.count; i++) {
    const prof_record *r = &f->m->session->records.items[i];
    if (r->kind != PROF_KERNEL || r->end_ns <= r->start_ns || links_kind_of(f->m, r) != LINKS_COMPUTE) continue;
    run made = {.name = r->name,
                .grid = {r->grid[0], r->grid[1], r->grid[2]},
                .block_threads = r->block_threads,
                .seconds = (double)(r->end_ns - r->start_ns) * 1e-9};
    if (find_way(f->m, r, &made) && !dp_array_push(&f->all, made)) return dp_fail_memory(f->m->error);
  }
  return DP_OK;
}

static int compare_kernels(const run *x, const run *y) {
  if (x->name != y->name) return x->name < y->name ? -1 : 1;
  const int order = memcmp(x->grid, y->grid, sizeof x->grid);
  if (order) return order;
  return (x->block_threads > y->block_threads) - (x->block_threads < y->block_threads);
}

static int by_kernel(const void *a, const void *b) {
  const run *x = a, *y = b;
  const int order = compare_kernels(x, y);
  if (order) return order;
  if (x->way != y->way) return x->way < y->way ? -1 : 1;
  return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* 1 + s, by one run. */
static double factor_of(const run *r, double alone_s) {
  const double rest_s = alone_s - (1 - r->beside) * r->seconds;
  return rest_s > 0.01 * alone_s ? r->beside * r->seconds / rest_s : r->seconds / alone_s;
}

/* The runs of one kernel beside one way, in the order of their times; every fifth of all is aside. */
static dp_status tell_way(slow_finder *f, const run *first, size_t count, double alone_s) {
  way_runs *way = &f->ways[first->way];
  prof_link *link = &f->m->links->ways[first->way];
  told made = {0, 0};
  f->scratch.count = 0;
  for (size_t i = 0; i < count; i++) {
    if (count > LINKS_ASIDE && i % LINKS_ASIDE == LINKS_ASIDE / 2) { /* from all parts of them */
      if (!dp_array_push(&way->aside, first[i]) || !dp_array_push(&way->alone_s, alone_s))
        return dp_fail_memory(f->m->error);
      continue;
    }
    made.seconds += first[i].seconds;
    if (!dp_array_push(&f->scratch, factor_of(&first[i], alone_s))) return dp_fail_memory(f->m->error);
  }
  if (f->scratch.count < LINKS_LEAST) return DP_OK;
  link->kernels++;
  link->runs += f->scratch.count;
  made.slowdown = links_middle(&f->scratch) - 1;
  return dp_array_push(&way->kernels, made) ? DP_OK : dp_fail_memory(f->m->error);
}

/* Of runs that are sorted, of which those that ran alone come first. */
static dp_status tell_kernel(slow_finder *f, const run *first, size_t count) {
  size_t alone = 0;
  f->scratch.count = 0;
  for (; alone < count && first[alone].way == ALONE; alone++)
    if (!dp_array_push(&f->scratch, first[alone].seconds)) return dp_fail_memory(f->m->error);
  if (alone < LINKS_LEAST) return DP_OK;
  const double low = dp_quantile(f->scratch.items, alone, 0.25), high = dp_quantile(f->scratch.items, alone, 0.75);
  const double alone_s = links_middle(&f->scratch);
  if (high > (1 + LINKS_STEADY) * alone_s || low < (1 - LINKS_STEADY) * alone_s) return DP_OK;
  for (size_t i = alone, end; i < count; i = end) {
    for (end = i; end < count && first[end].way == first[i].way;) end++;
    if (end - i >= LINKS_LEAST) DP_TRY(tell_way(f, &first[i], end - i, alone_s));
  }
  return DP_OK;
}

static int by_slowdown(const void *a, const void *b) {
  const told *x = a, *y = b;
  return (x->slowdown > y->slowdown) - (x->slowdown < y->slowdown);
}

static dp_status finish_way(slow_finder *f, int which) {
  way_runs *way = &f->ways[which];
  prof_link *link = &f->m->links->ways[which];
  double sum_s = 0, below_s = 0;
  if (way->kernels.count == 0) return DP_OK;
  qsort(way->kernels.items, way->kernels.count, sizeof *way->kernels.items, by_slowdown);
  for (size_t k = 0; k < way->kernels.count; k++) sum_s += way->kernels.items[k].seconds;
  for (size_t k = 0; k < way->kernels.count && 2 * below_s < sum_s; k++) {
    below_s += way->kernels.items[k].seconds;
    link->slowdown = fmin(MOST_SLOWDOWN, fmax(0, way->kernels.items[k].slowdown));
  }
  f->scratch.count = 0;
  for (size_t i = 0; i < way->aside.count; i++) {
    const run *r = &way->aside.items[i];
    const double factor = 1 + link->slowdown;
    const double said_s = way->alone_s.items[i] * factor / (factor * (1 - r->beside) + r->beside);
    if (!dp_array_push(&f->scratch, fabs(said_s / r->seconds - 1))) return dp_fail_memory(f->m->error);
  }
  link->runs_aside = f->scratch.count;
  link->slowdown_error = links_middle(&f->scratch);
  return DP_OK;
}

static dp_status tell_all(slow_finder *f) {
  if (f->all.count) qsort(f->all.items, f->all.count, sizeof *f->all.items, by_kernel);
  for (size_t i = 0, end; i < f->all.count; i = end) {
    for (end = i; end < f->all.count && compare_kernels(&f->all.items[i], &f->all.items[end]) == 0;) end++;
    DP_TRY(tell_kernel(f, &f->all.items[i], end - i));
  }
  for (int way = 0; way < PROF_WAY_COUNT; way++) DP_TRY(finish_way(f, way));
  return DP_OK;
}

dp_status links_find_slowdowns(links_maker *m) {
  slow_finder f = {.m = m};
  dp_status status = list_runs(&f);
  if (status == DP_OK) status = tell_all(&f);
  for (int way = 0; way < PROF_WAY_COUNT; way++) {
    dp_array_free(&f.ways[way].kernels);
    dp_array_free(&f.ways[way].aside);
    dp_array_free(&f.ways[way].alone_s);
  }
  dp_array_free(&f.all);
  dp_array_free(&f.scratch);
  return status;
}

/* ---- launches ---- */

/* What a call launched: one kernel, or something else. */
typedef struct launched {
  uint16_t process;
  uint32_t correlation;
  bool kernel; /* and no node of a graph */
  int64_t start_ns, end_ns;
} launched;

typedef struct call {
  uint16_t process;
  uint32_t thread;
  int64_t start_ns, end_ns;
  bool waits;
  uint32_t correlation;
} call;

typedef struct launch_finder {
  links_maker *m;
  DP_ARRAY(launched) works;
  DP_ARRAY(call) calls;
  links_series gaps, aside;
} launch_finder;

static int by_correlation(const void *a, const void *b) {
  const launched *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

static int by_thread(const void *a, const void *b) {
  const call *x = a, *y = b;
  if (x->process != y->process) return x->process < y->process ? -1 : 1;
  if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
  return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static dp_status list_calls(launch_finder *f) {
  for (size_t i = 0; i < f->m->session->records.count; i++) {
    const prof_record *r = &f->m->session->records.items[i];
    bool done = true;
    if (r->kind == PROF_CALL || r->kind == PROF_SYNC)
      done = dp_array_push(
          &f->calls, ((call){r->process, r->thread, r->start_ns, r->end_ns, r->kind == PROF_SYNC, r->correlation}));
    if (prof_on_device(r) && r->correlation)
      done = dp_array_push(&f->works,
                           ((launched){r->process, r->correlation, r->kind == PROF_KERNEL && prof_record_node(r) == 0,
                                       r->start_ns, r->end_ns}));
    if (!done) return dp_fail_memory(f->m->error);
  }
  if (f->works.count) qsort(f->works.items, f->works.count, sizeof *f->works.items, by_correlation);
  if (f->calls.count) qsort(f->calls.items, f->calls.count, sizeof *f->calls.items, by_thread);
  return DP_OK;
}

static const launched *work_of(const launch_finder *f, const call *c) {
  const launched wanted = {.process = c->process, .correlation = c->correlation};
  if (c->correlation == 0 || f->works.count == 0) return NULL;
  return bsearch(&wanted, f->works.items, f->works.count, sizeof wanted, by_correlation);
}

/* The calls of one thread. */
static dp_status find_gaps(launch_finder *f, const call *first, size_t count) {
  const call *last = NULL; /* the last one that launched a kernel */
  int64_t done_ns = 0;     /* all that the thread launched */
  bool follows = false;    /* it was in no wait since then */
  for (size_t i = 0; i < count; i++) {
    const call *c = &first[i];
    const launched *work = work_of(f, c);
    follows = follows && !c->waits && c->start_ns - c[-1].end_ns <= LINKS_AWAY_NS;
    if (!work) continue;
    if (last && c->correlation == last->correlation) continue; /* the driver's call within the runtime's */
    const bool dry = done_ns > 0 && work->start_ns - done_ns >= LINKS_DRY_NS;
    if (follows && dry && work->kernel) {
      const bool aside = (f->gaps.count + f->aside.count + 1) % LINKS_ASIDE == 0;
      if (!dp_array_push(aside ? &f->aside : &f->gaps, (double)(c->start_ns - last->start_ns) * 1e-9))
        return dp_fail_memory(f->m->error);
    }
    if (work->end_ns > done_ns) done_ns = work->end_ns;
    follows = work->kernel; /* a call that copies may wait */
    last = c;
  }
  return DP_OK;
}

static dp_status find_launches(launch_finder *f) {
  prof_links *links = f->m->links;
  DP_TRY(list_calls(f));
  for (size_t i = 0, end; i < f->calls.count; i = end) {
    const call *first = &f->calls.items[i];
    for (end = i; end < f->calls.count && f->calls.items[end].process == first->process &&
                  f->calls.items[end].thread == first->thread;)
      end++;
    DP_TRY(find_gaps(f, first, end - i));
  }
  if (f->gaps.count < LINKS_LAUNCHES) return DP_OK;
  links->launches = f->gaps.count;
  links->launch_s = links_middle(&f->gaps);
  links->launches_aside = f->aside.count;
  for (size_t i = 0; i < f->aside.count; i++) f->aside.items[i] = fabs(links->launch_s / f->aside.items[i] - 1);
  links->launch_error = links_middle(&f->aside);
  return DP_OK;
}

dp_status links_find_launches(links_maker *m) {
  launch_finder f = {.m = m};
  const dp_status status = find_launches(&f);
  dp_array_free(&f.works);
  dp_array_free(&f.calls);
  dp_array_free(&f.gaps);
  dp_array_free(&f.aside);
  return status;
}
