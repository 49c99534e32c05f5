/* Steps by the order of kernels: see profiler/steps.h for the rule. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"
#include "profiler/classes.h"
#include "profiler/steps.h"

enum { ALPHABETS = 4 /* name and grid, name; each alone, and with the two before it */ };

typedef struct place {
  uint64_t text;
  size_t at; /* index of the kernel */
} place;

typedef struct anchor {
  size_t first, count; /* its places */
  double distance, coverage;
} anchor;

typedef struct finder {
  DP_ARRAY(const prof_record *) kernels; /* of the busiest stream, by start */
  place *places;                         /* [ALPHABETS * kernels], by alphabet, text, index */
  double *distances;                     /* [kernels]: scratch */
  DP_ARRAY(anchor) anchors;
  DP_ARRAY(size_t) cuts; /* kernels that begin a step */
  const unsigned char *classes;
  bool has_optimizer;
  double period, coverage;
} finder;

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

static bool is_optimizer(const finder *f, size_t at) {
  return f->classes[f->kernels.items[at]->name] == PROF_OPTIMIZER;
}

/* ---- the kernels ---- */

typedef struct stream_time {
  uint16_t device;
  uint32_t stream;
  int64_t busy_ns;
} stream_time;

static dp_status find_kernels(const prof_session *session, uint16_t process, finder *f, dp_error *error) {
  DP_ARRAY(stream_time) streams = {0};
  bool done = true;
  for (size_t i = 0; done && i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->process != process || r->kind != PROF_KERNEL || f->classes[r->name] == PROF_NCCL) continue;
    size_t s = 0;
    while (s < streams.count && (streams.items[s].device != r->device || streams.items[s].stream != r->stream)) s++;
    if (s == streams.count) done = dp_array_push(&streams, ((stream_time){r->device, r->stream, 0}));
    if (done) streams.items[s].busy_ns += r->end_ns - r->start_ns;
  }
  const stream_time *busiest = streams.items;
  for (size_t s = 1; s < streams.count; s++)
    if (streams.items[s].busy_ns > busiest->busy_ns) busiest = &streams.items[s];
  for (size_t i = 0; done && busiest && i < session->records.count; i++) {
    const prof_record *r = &session->records.items[i];
    if (r->process == process && r->kind == PROF_KERNEL && r->device == busiest->device &&
        r->stream == busiest->stream && f->classes[r->name] != PROF_NCCL) {
      done = dp_array_push(&f->kernels, r);
      f->has_optimizer = f->has_optimizer || f->classes[r->name] == PROF_OPTIMIZER;
    }
  }
  dp_array_free(&streams);
  return done ? DP_OK : dp_fail_memory(error);
}

/* ---- the anchors ---- */

static uint64_t text_of(const finder *f, int alphabet, size_t at) {
  uint64_t text = (uint64_t)alphabet + 1;
  const size_t before = alphabet >= 2 ? 2 : 0;
  for (size_t i = at < before ? 0 : at - before; i <= at; i++) {
    const prof_record *r = f->kernels.items[i];
    text = mix(text, r->name);
    if (alphabet % 2 == 0)
      for (int g = 0; g < 3; g++) text = mix(text, r->grid[g]);
  }
  return text;
}

static int by_text(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->text != y->text) return x->text < y->text ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

static bool is_regular(double distance, double median) { return fabs(distance - median) <= median / 4; }

static bool measure(finder *f, size_t first, size_t count, anchor *found) {
  if (count < 3) return false;
  for (size_t i = 0; i + 1 < count; i++)
    f->distances[i] = (double)(f->places[first + i + 1].at - f->places[first + i].at);
  const double median = dp_median(f->distances, count - 1);
  double covered = 0;
  size_t regular = 0;
  for (size_t i = 0; i + 1 < count; i++)
    if (is_regular(f->distances[i], median)) {
      covered += f->distances[i];
      regular++;
    }
  /* of what lies between its first place and the end: before it the program warms up, a quarter of the whole at most */
  const size_t before = f->places[first].at, most = f->kernels.count / 4;
  const double whole = (double)(f->kernels.count - (before < most ? before : most));
  *found = (anchor){first, count, median, fmin(1, (covered + median) / whole)};
  return median >= 2 && (double)regular >= 0.7 * (double)(count - 1);
}

static dp_status find_anchors(finder *f, dp_error *error) {
  const size_t count = f->kernels.count;
  f->places = calloc(ALPHABETS * count + 1, sizeof *f->places);
  f->distances = calloc(count + 1, sizeof *f->distances);
  if (!f->places || !f->distances) return dp_fail_memory(error);
  for (int a = 0; a < ALPHABETS; a++) {
    place *places = f->places + (size_t)a * count;
    for (size_t i = 0; i < count; i++) places[i] = (place){text_of(f, a, i), i};
    qsort(places, count, sizeof *places, by_text);
    for (size_t first = 0, next = 0; first < count; first = next) {
      anchor found;
      while (next < count && places[next].text == places[first].text) next++;
      if (f->has_optimizer && !is_optimizer(f, places[first].at)) continue;
      if (measure(f, (size_t)a * count + first, next - first, &found) && !dp_array_push(&f->anchors, found))
        return dp_fail_memory(error);
    }
  }
  return DP_OK;
}

/* Keeps the anchors of the period alone; false: there is none. */
static bool choose_period(finder *f) {
  double best = 0, least = f->has_optimizer ? 0.3 : 0.6;
  for (size_t i = 0; i < f->anchors.count; i++) best = fmax(best, f->anchors.items[i].coverage);
  if (!f->has_optimizer) least = fmax(least, best - 0.015);
  for (size_t i = 0; i < f->anchors.count; i++) {
    const anchor *a = &f->anchors.items[i];
    if (a->coverage >= least && (f->period == 0 || a->distance < f->period)) {
      f->period = a->distance;
      f->coverage = a->coverage;
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < f->anchors.count; i++) {
    const anchor *a = &f->anchors.items[i];
    if (a->coverage >= least && fabs(a->distance - f->period) <= f->period / 20) f->anchors.items[kept++] = *a;
  }
  f->anchors.count = kept;
  return kept > 0;
}

/* ---- the cuts ---- */

/* The kernels from an anchor's last place to the end. */
static double tail_of(const finder *f, const anchor *a) {
  return (double)(f->kernels.count - f->places[a->first + a->count - 1].at);
}

/* The time that the stream did nothing before the anchor: a step begins where the host or the data were waited for. */
static double wait_of(finder *f, const anchor *a) {
  size_t count = 0;
  for (size_t i = 0; i < a->count; i++) {
    const size_t at = f->places[a->first + i].at;
    if (at > 0) f->distances[count++] = (double)(f->kernels.items[at]->start_ns - f->kernels.items[at - 1]->end_ns);
  }
  return dp_median(f->distances, count);
}

/* The optimizer's last: the least tail, of equals the one with the most places. Of others a whole period as the tail,
 * then the longest wait. */
static const anchor *choose_anchor(finder *f) {
  const anchor *best = &f->anchors.items[0];
  for (size_t i = 1; i < f->anchors.count; i++) {
    const anchor *a = &f->anchors.items[i];
    if (f->has_optimizer) {
      if (a->count != best->count ? a->count > best->count : tail_of(f, a) < tail_of(f, best)) best = a;
      continue;
    }
    const double off = fabs(tail_of(f, a) - f->period), best_off = fabs(tail_of(f, best) - f->period);
    if (off != best_off           ? off < best_off
        : a->count != best->count ? a->count > best->count
                                  : wait_of(f, a) > wait_of(f, best))
      best = a;
  }
  return best;
}

/* How often the other anchors came between two places, by their mean. */
static double votes_between(const finder *f, size_t from, size_t to) {
  double votes = 0;
  for (size_t i = 0; i < f->anchors.count; i++) {
    const anchor *a = &f->anchors.items[i];
    for (size_t p = 0; p < a->count; p++) {
      const size_t at = f->places[a->first + p].at;
      votes += at > from && at <= to;
    }
  }
  return votes / (double)f->anchors.count;
}

static bool add_cuts(finder *f, const anchor *chosen) {
  size_t last = 0;
  for (size_t i = 0; i < chosen->count; i++) {
    size_t at = f->places[chosen->first + i].at;
    if (i > 0) {
      const double times = round((double)(at - last) / f->period);
      const bool fits = times >= 2 && fabs((double)(at - last) - times * f->period) <= f->period / 4 &&
                        votes_between(f, last, at) >= times - 0.5;
      for (double k = 1; fits && k < times; k++)
        if (!dp_array_push(&f->cuts, last + (size_t)((double)(at - last) * k / times))) return false;
    }
    if (!dp_array_push(&f->cuts, at)) return false;
    last = at;
  }
  if (!f->has_optimizer) return true;
  for (size_t i = 0; i < f->cuts.count; i++) { /* a step ends behind its optimizer's pass */
    size_t *cut = &f->cuts.items[i];
    do ++*cut;
    while (*cut < f->kernels.count && is_optimizer(f, *cut));
  }
  return true;
}

static bool add_step(const finder *f, size_t first, size_t next, uint16_t process, uint64_t number, prof_steps *steps) {
  const prof_record *begin = f->kernels.items[first];
  prof_step step = {.process = process, .number = number, .start_ns = begin->start_ns};
  step.end_ns =
      next < f->kernels.count ? f->kernels.items[next]->start_ns : f->kernels.items[f->kernels.count - 1]->end_ns;
  step.odd = !is_regular((double)(next - first), f->period);
  return dp_array_push(&steps->items, step);
}

/* The optimizer's cuts end steps, of which the first is no longer than the others: what is before them is no step.
 * Other cuts begin them, and the last one lasts to the end when that is a whole period. */
static bool add_steps(const finder *f, uint16_t process, prof_steps *steps) {
  const size_t *cuts = f->cuts.items, count = f->cuts.count, whole = (size_t)f->period;
  uint64_t number = 0;
  if (f->has_optimizer)
    if (!add_step(f, cuts[0] > whole ? cuts[0] - whole : 0, cuts[0], process, number++, steps)) return false;
  for (size_t i = 0; i + 1 < count; i++)
    if (!add_step(f, cuts[i], cuts[i + 1], process, number++, steps)) return false;
  const size_t left = f->kernels.count - cuts[count - 1];
  if (!f->has_optimizer && is_regular((double)left, f->period))
    return add_step(f, cuts[count - 1], f->kernels.count, process, number, steps);
  return true;
}

static dp_status describe(const finder *f, size_t first, prof_process_steps *about, prof_steps *steps,
                          dp_error *error) {
  const size_t count = steps->items.count - first;
  size_t regular = 0;
  for (size_t i = 1; i < count; i++) regular += !steps->items.items[first + i].odd;
  *about = (prof_process_steps){.how = PROF_STEPS_AUTO, .count = count, .period = (size_t)f->period};
  about->confidence =
      (double)regular / (double)(count - 1) * (1 - 1 / (double)count) * (f->has_optimizer ? 1 : f->coverage);
  about->why = dp_arena_printf(
      &steps->arena,
      "%s %s every %zu kernels of the busiest stream; %zu of %zu steps after the first are as long as that",
      f->has_optimizer ? "the optimizer" : "the same kernels", f->has_optimizer ? "comes" : "come", (size_t)f->period,
      regular, count - 1);
  return about->why ? DP_OK : dp_fail_memory(error);
}

static dp_status find(const prof_session *session, uint16_t process, finder *f, prof_steps *steps, dp_error *error) {
  prof_process_steps *about = &steps->processes[process];
  *about = (prof_process_steps){.how = PROF_STEPS_AUTO, .why = "no kernels that come back at a regular distance"};
  DP_TRY(find_kernels(session, process, f, error));
  if (f->kernels.count < 6) return DP_OK;
  DP_TRY(find_anchors(f, error));
  if (f->has_optimizer && !choose_period(f)) { /* the optimizer does not come back: as if there were none */
    f->has_optimizer = false;
    f->anchors.count = 0;
    free(f->places);
    free(f->distances);
    f->places = NULL;
    f->distances = NULL;
    DP_TRY(find_anchors(f, error));
  }
  if (f->period == 0 && !choose_period(f)) return DP_OK;
  const anchor chosen = *choose_anchor(f);
  const size_t first = steps->items.count;
  if (!add_cuts(f, &chosen) || !add_steps(f, process, steps)) return dp_fail_memory(error);
  if (steps->items.count - first >= 3) return describe(f, first, about, steps, error);
  steps->items.count = first;
  return DP_OK;
}

dp_status prof_steps_auto(const prof_session *session, const unsigned char *classes, uint16_t process,
                          prof_steps *steps, dp_error *error) {
  finder f = {.classes = classes};
  const dp_status status = find(session, process, &f, steps, error);
  dp_array_free(&f.kernels);
  dp_array_free(&f.anchors);
  dp_array_free(&f.cuts);
  free(f.places);
  free(f.distances);
  return status;
}
