#include <math.h>

#include "plan/order.h"

/* Which of a rank's chunks goes first among those that have a step ready. */
typedef enum preference { OLDEST, DEEPEST, SHALLOWEST } preference; /* oldest microbatch, ties to the deepest chunk */

/* A greedy rule takes a ready step whenever there is one. That is good while memory is plentiful; where few microbatches
 * may be in flight its bubble grows with their number. The periodic rule repeats one microbatch's pattern (after Qi 2024,
 * "Pipeline parallelism with controllable memory"): it waits for the step whose turn it is, its bubble does not grow, and
 * a microbatch stays in flight for little longer than it must. */
typedef struct rule {
  preference backward, forward;
  bool periodic;
} rule;

static const rule rules[] = {{OLDEST, OLDEST, false},      {SHALLOWEST, DEEPEST, false}, {SHALLOWEST, SHALLOWEST, false},
                             {DEEPEST, SHALLOWEST, false}, {DEEPEST, DEEPEST, false},    {OLDEST, SHALLOWEST, false},
                             {OLDEST, OLDEST, true}};

typedef struct event { /* the end of a step */
  double time_s;
  int rank, chunk;
  bool backward;
} event;

typedef struct player {
  plan_plan *plan;
  const plan_chunk_costs *costs;
  const int *limit;
  rule rule;
  bool record;
  int items;
  int *chunks, *first_chunk; /* of each rank, ascending: CSR */
  int *forward_begun, *forward_done, *backward_begun, *backward_done; /* [chunk] microbatches so far */
  int *running; /* [rank] */
  event *heap;
  int heap_count;
  double period_s, *forward_start_s, *backward_start_s; /* [chunk] of microbatch 0; period 0: there is no pattern */
} player;

static bool earlier(const event *a, const event *b) {
  return a->time_s < b->time_s || (a->time_s == b->time_s && a->rank < b->rank);
}

static void push(player *p, event e) {
  int at = p->heap_count++;
  for (; at > 0 && earlier(&e, &p->heap[(at - 1) / 2]); at = (at - 1) / 2) p->heap[at] = p->heap[(at - 1) / 2];
  p->heap[at] = e;
}

static event pop(player *p) {
  const event top = p->heap[0], last = p->heap[--p->heap_count];
  int at = 0;
  for (;;) {
    int child = 2 * at + 1;
    if (child >= p->heap_count) break;
    if (child + 1 < p->heap_count && earlier(&p->heap[child + 1], &p->heap[child])) child++;
    if (!earlier(&p->heap[child], &last)) break;
    p->heap[at] = p->heap[child];
    at = child;
  }
  p->heap[at] = last;
  return top;
}

static double pass_s(const player *p, int chunk, bool backward) {
  return backward ? p->costs->backward_input_s[chunk] + p->costs->backward_weight_s[chunk] : p->costs->forward_s[chunk];
}

/* Chunks take microbatches in ascending order, so that counts say what is ready. */
static bool forward_ready(const player *p, int rank, int chunk) {
  const int next = p->forward_begun[chunk];
  if (next == p->items) return false;
  if (chunk > 0 && next >= p->forward_done[chunk - 1]) return false;
  if (chunk == 0 && next >= p->forward_done[p->plan->chunk_count - 1] + p->plan->microbatches) return false;
  return chunk != p->chunks[p->first_chunk[rank]] || next - p->backward_done[chunk] < p->limit[rank];
}

static bool backward_ready(const player *p, int chunk) {
  if (!p->plan->training) return false;
  const int last = p->plan->chunk_count - 1;
  return p->backward_begun[chunk] < (chunk == last ? p->forward_done[chunk] : p->backward_done[chunk + 1]);
}

static bool better(preference how, int microbatch, int best_microbatch) {
  /* chunks are looked at in ascending order */
  return how == DEEPEST || (how == OLDEST && microbatch <= best_microbatch);
}

static int pick(const player *p, int rank, bool backward) {
  const int *begun = backward ? p->backward_begun : p->forward_begun;
  int best = -1;
  for (int i = p->first_chunk[rank]; i < p->first_chunk[rank + 1]; i++) {
    const int chunk = p->chunks[i];
    if (!(backward ? backward_ready(p, chunk) : forward_ready(p, rank, chunk))) continue;
    if (best < 0 || better(backward ? p->rule.backward : p->rule.forward, begun[chunk], begun[best])) best = chunk;
  }
  return best;
}

/* The step whose turn it is in the pattern, if it is ready. */
static int pick_in_turn(const player *p, int rank, bool *backward) {
  int best = -1;
  double best_s = INFINITY;
  for (int i = p->first_chunk[rank]; i < p->first_chunk[rank + 1]; i++) {
    const int chunk = p->chunks[i];
    for (int b = 0; b < 2; b++) {
      const int next = b ? p->backward_begun[chunk] : p->forward_begun[chunk];
      const double turn_s = (b ? p->backward_start_s[chunk] : p->forward_start_s[chunk]) + next * p->period_s;
      if (next == p->items || turn_s >= best_s) continue;
      best_s = turn_s;
      best = chunk;
      *backward = b;
    }
  }
  if (best < 0) return best;
  return (*backward ? backward_ready(p, best) : forward_ready(p, rank, best)) ? best : -1;
}

static void begin(player *p, int rank, double now_s) {
  if (p->running[rank]) return;
  bool backward = false;
  int chunk;
  if (p->rule.periodic) {
    chunk = pick_in_turn(p, rank, &backward);
  } else {
    chunk = pick(p, rank, true);
    backward = chunk >= 0;
    if (!backward) chunk = pick(p, rank, false);
  }
  if (chunk < 0) return;
  const int microbatch = backward ? p->backward_begun[chunk]++ : p->forward_begun[chunk]++;
  if (p->record) plan_order_add(p->plan, rank, backward ? PLAN_BACKWARD : PLAN_FORWARD, chunk, microbatch);
  p->running[rank] = 1;
  push(p, (event){now_s + pass_s(p, chunk, backward), rank, chunk, backward});
}

/* Plays the plan by one rule; the time when all is done, infinity when it stops before. */
static double play(player *p, rule by, bool record) {
  const int chunks = p->plan->chunk_count;
  p->rule = by;
  p->record = record;
  for (int c = 0; c < chunks; c++)
    p->forward_begun[c] = p->forward_done[c] = p->backward_begun[c] = p->backward_done[c] = 0;
  for (int r = 0; r < p->plan->ranks; r++) begin(p, r, 0);
  double now_s = 0;
  while (p->heap_count > 0) {
    now_s = p->heap[0].time_s;
    /* all that ends now is done before anyone chooses; who may choose: the ranks that ended and those they fed */
    int ended = 0;
    while (p->heap_count > 0 && p->heap[0].time_s <= now_s) {
      const event e = pop(p);
      p->running[e.rank] = 0;
      if (e.backward)
        p->backward_done[e.chunk]++;
      else
        p->forward_done[e.chunk]++;
      p->heap[p->plan->ranks + ended++] = e; /* the upper half of the array is free */
    }
    for (int i = 0; i < ended; i++) {
      const event e = p->heap[p->plan->ranks + i];
      const int next = e.backward ? e.chunk - 1 : e.chunk + 1 < chunks ? e.chunk + 1 : 0;
      begin(p, e.rank, now_s);
      if (next >= 0) begin(p, p->plan->chunks[next].rank, now_s);
    }
  }
  for (int c = 0; c < chunks; c++)
    if (p->forward_done[c] < p->items || (p->plan->training && p->backward_done[c] < p->items)) return INFINITY;
  return now_s;
}

/* ---- the pattern ---- */

/* Whether a step may take [start, start + length) of its rank, modulo the period, beside those placed already. */
static bool fits_modulo(const player *p, int rank, int placed, double start_s, double length_s) {
  const double slack_s = p->period_s * 1e-9;
  for (int i = p->first_chunk[rank]; i < p->first_chunk[rank + 1]; i++)
    for (int b = 0; b < 2; b++) {
      const int chunk = p->chunks[i], last = p->plan->chunk_count - 1;
      if ((b ? 2 * last + 1 - chunk : chunk) >= placed) continue; /* its place in the chain comes later */
      const double other_s = b ? p->backward_start_s[chunk] : p->forward_start_s[chunk];
      double after_s = fmod(start_s - other_s, p->period_s);
      if (after_s < -slack_s) after_s += p->period_s;
      if (after_s > p->period_s - slack_s) after_s = 0;
      if (after_s < pass_s(p, chunk, b) - slack_s || after_s + length_s > p->period_s + slack_s) return false;
    }
  return true;
}

/* Places the chain of one microbatch, each step as early as its rank has room for it in every period: at the end of the
 * step before it, or where a step of its rank ends. */
static bool place_chain(player *p) {
  const int chunks = p->plan->chunk_count;
  double now_s = 0;
  for (int at = 0; at < 2 * chunks; at++) {
    const bool backward = at >= chunks;
    const int chunk = backward ? 2 * chunks - 1 - at : at, rank = p->plan->chunks[chunk].rank;
    const double length_s = pass_s(p, chunk, backward);
    double best_s = fits_modulo(p, rank, at, now_s, length_s) ? now_s : INFINITY;
    for (int i = p->first_chunk[rank]; i < p->first_chunk[rank + 1]; i++)
      for (int b = 0; b < 2; b++) {
        const int other = p->chunks[i];
        if ((b ? 2 * chunks - 1 - other : other) >= at) continue;
        double start_s = (b ? p->backward_start_s[other] : p->forward_start_s[other]) + pass_s(p, other, b);
        if (start_s < now_s) start_s += ceil((now_s - start_s) / p->period_s - 1e-9) * p->period_s;
        if (start_s < best_s && fits_modulo(p, rank, at, start_s, length_s)) best_s = start_s;
      }
    if (best_s == INFINITY) return false;
    if (backward)
      p->backward_start_s[chunk] = best_s;
    else
      p->forward_start_s[chunk] = best_s;
    now_s = best_s + length_s;
  }
  return true;
}

/* The shortest period, from the busiest rank's work up in steps of 1 %, for which the chain can be placed. */
static void find_pattern(player *p) {
  enum { TRIES = 50 };
  double most_s = 0;
  for (int r = 0; r < p->plan->ranks; r++) {
    double work_s = 0;
    for (int i = p->first_chunk[r]; i < p->first_chunk[r + 1]; i++)
      work_s += pass_s(p, p->chunks[i], false) + pass_s(p, p->chunks[i], true);
    if (work_s > most_s) most_s = work_s;
  }
  for (int i = 0; p->plan->training && most_s > 0 && i < TRIES; i++) {
    p->period_s = most_s * (1 + 0.01 * i);
    if (place_chain(p)) return;
  }
  p->period_s = 0;
}

static bool allocate(player *p, dp_arena *scratch) {
  const size_t ranks = (size_t)p->plan->ranks, chunks = (size_t)p->plan->chunk_count;
  p->chunks = DP_ARENA_NEW(scratch, int, chunks);
  p->first_chunk = DP_ARENA_NEW(scratch, int, ranks + 1);
  p->forward_begun = DP_ARENA_NEW(scratch, int, 4 * chunks);
  p->forward_start_s = DP_ARENA_NEW(scratch, double, 2 * chunks);
  p->running = DP_ARENA_NEW(scratch, int, ranks);
  p->heap = DP_ARENA_NEW(scratch, event, 2 * ranks);
  if (!p->chunks || !p->first_chunk || !p->forward_begun || !p->forward_start_s || !p->running || !p->heap) return false;
  p->backward_start_s = p->forward_start_s + chunks;
  p->forward_done = p->forward_begun + chunks;
  p->backward_begun = p->forward_done + chunks;
  p->backward_done = p->backward_begun + chunks;
  for (size_t c = 0; c < chunks; c++) p->first_chunk[p->plan->chunks[c].rank + 1]++;
  for (size_t r = 0; r < ranks; r++) p->first_chunk[r + 1] += p->first_chunk[r];
  for (size_t c = 0; c < chunks; c++) { /* `running` counts while it is free */
    const int rank = p->plan->chunks[c].rank;
    p->chunks[p->first_chunk[rank] + p->running[rank]++] = (int)c;
  }
  for (size_t r = 0; r < ranks; r++) p->running[r] = 0;
  return true;
}

dp_status plan_order_list(plan_plan *plan, const plan_chunk_costs *costs, const int *limit, dp_error *error) {
  dp_arena scratch = {0};
  player p = {.plan = plan, .costs = costs, .limit = limit, .items = plan_order_items(plan)};
  dp_status status = allocate(&p, &scratch) ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    double best_s = INFINITY;
    size_t best = 0;
    find_pattern(&p);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
      if (rules[i].periodic && p.period_s <= 0) continue;
      const double step_s = play(&p, rules[i], false);
      if (step_s < best_s * (1 - 1e-12) || (best_s == INFINITY && step_s < best_s)) {
        best_s = step_s;
        best = i;
      }
    }
    if (best_s == INFINITY || play(&p, rules[best], true) == INFINITY)
      status = dp_fail(error, DP_INTERNAL, "plan: the list scheduler stopped before all %d microbatches were done", p.items);
  }
  dp_arena_free(&scratch);
  return status;
}
