#include <math.h>

#include "base/array.h"
#include "plan/order.h"

/* Which of a rank's chunks goes first among those that have a step ready. */
typedef enum preference { OLDEST, DEEPEST, SHALLOWEST } preference; /* oldest microbatch, ties to the deepest chunk */

/* A greedy rule takes a ready step whenever there is one. That is good while memory is plentiful; where few
 * microbatches may be in flight its bubble grows with their number. The periodic rule repeats one microbatch's pattern
 * (after Qi 2024, "Pipeline parallelism with controllable memory"): it waits for the step whose turn it is, its bubble
 * does not grow, and a microbatch stays in flight for little longer than it must. */
typedef struct rule {
  preference backward, forward;
  bool periodic;
} rule;

static const rule rules[] = {{OLDEST, OLDEST, false},         {SHALLOWEST, DEEPEST, false},
                             {SHALLOWEST, SHALLOWEST, false}, {DEEPEST, SHALLOWEST, false},
                             {DEEPEST, DEEPEST, false},       {OLDEST, SHALLOWEST, false},
                             {OLDEST, OLDEST, true}};

typedef struct event { /* a step ends, or what it made arrives at the next chunk's rank */
  double time_s;
  int rank, chunk;
  bool backward, arrival;
} event;

typedef struct player {
  plan_plan *plan;
  const plan_chunk_costs *costs;
  const int *limit;
  rule rule;
  bool record; /* writes the order into the plan; reads it from there when `replay` */
  bool replay;
  bool blind; /* transfers take no time */
  int *turn;  /* [rank] steps of the order begun, in a replay */
  int items;
  int *chunks, *first_chunk; /* of each rank, ascending: CSR */
  /* [chunk] microbatches so far; fed: has what its forward, or backward, takes from the neighbour chunk */
  int *forward_begun, *forward_fed, *backward_begun, *backward_fed, *backward_done;
  bool *running, *woken; /* [rank] */
  int *wake, wake_count; /* ranks that may have a step to begin */
  DP_ARRAY(event) heap;
  bool out_of_memory;
  double period_s, *forward_start_s, *backward_start_s; /* [chunk] of microbatch 0; period 0: there is no pattern */
} player;

static bool earlier(const event *a, const event *b) { return a->time_s < b->time_s; }

static void push(player *p, event e) {
  if (!dp_array_push(&p->heap, e)) {
    p->out_of_memory = true;
    return;
  }
  event *heap = p->heap.items;
  size_t at = p->heap.count - 1;
  for (; at > 0 && earlier(&e, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = e;
}

static event pop(player *p) {
  event *heap = p->heap.items;
  const event top = heap[0], last = heap[--p->heap.count];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= p->heap.count) break;
    if (child + 1 < p->heap.count && earlier(&heap[child + 1], &heap[child])) child++;
    if (!earlier(&heap[child], &last)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
  return top;
}

static double pass_s(const player *p, int chunk, bool backward) {
  return backward ? p->costs->backward_input_s[chunk] + p->costs->backward_weight_s[chunk] : p->costs->forward_s[chunk];
}

/* What a chunk's step takes to reach the next chunk of its direction. */
static double transfer_s(const player *p, int from, int to) {
  if (p->blind || !p->costs->transfer_s || p->plan->chunks[from].rank == p->plan->chunks[to].rank) return 0;
  return p->costs->transfer_s[from < to ? from : to];
}

/* Chunks take microbatches in ascending order, so that counts say what is ready. */
static bool forward_ready(const player *p, int rank, int chunk) {
  const int next = p->forward_begun[chunk];
  if (next == p->items || next >= p->forward_fed[chunk]) return false;
  return chunk != p->chunks[p->first_chunk[rank]] || next - p->backward_done[chunk] < p->limit[rank];
}

static bool backward_ready(const player *p, int chunk) { return p->backward_begun[chunk] < p->backward_fed[chunk]; }

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
  if (p->replay) {
    const plan_step *step = &p->plan->order[rank][p->turn[rank]];
    if (p->turn[rank] == p->plan->order_count[rank]) return;
    chunk = step->chunk;
    backward = step->opcode != PLAN_FORWARD;
    if (!(backward ? backward_ready(p, chunk) : forward_ready(p, rank, chunk))) return;
    p->turn[rank]++;
  } else if (p->rule.periodic) {
    chunk = pick_in_turn(p, rank, &backward);
  } else {
    chunk = pick(p, rank, true);
    backward = chunk >= 0;
    if (!backward) chunk = pick(p, rank, false);
  }
  if (chunk < 0) return;
  const int microbatch = backward ? p->backward_begun[chunk]++ : p->forward_begun[chunk]++;
  if (p->record) plan_order_add(p->plan, rank, backward ? PLAN_BACKWARD : PLAN_FORWARD, chunk, microbatch);
  p->running[rank] = true;
  push(p, (event){now_s + pass_s(p, chunk, backward), rank, chunk, backward, false});
}

static void wake(player *p, int rank) {
  if (p->woken[rank]) return;
  p->woken[rank] = true;
  p->wake[p->wake_count++] = rank;
}

/* `chunk` has what one more of its forwards, or backwards, needs. */
static void feed(player *p, int chunk, bool backward) {
  (backward ? p->backward_fed : p->forward_fed)[chunk]++;
  wake(p, p->plan->chunks[chunk].rank);
}

static void end_step(player *p, const event *e) {
  const int last = p->plan->chunk_count - 1;
  const bool turns =
      !e->backward && e->chunk == last; /* the last chunk goes over to backward, or to the next denoise step */
  p->running[e->rank] = false;
  if (e->backward) p->backward_done[e->chunk]++;
  wake(p, e->rank);
  if (e->backward && e->chunk == 0) return;
  const bool backward = e->backward || (turns && p->plan->training);
  const int next = turns ? p->plan->training ? last : 0 : e->chunk + (e->backward ? -1 : 1);
  const double way_s = turns ? 0 : transfer_s(p, e->chunk, next); /* latents are small */
  if (way_s > 0)
    push(p, (event){e->time_s + way_s, p->plan->chunks[next].rank, next, backward, true});
  else
    feed(p, next, backward);
}

/* Plays the plan by one rule; the time when all is done, infinity when it stops before. */
static double play(player *p, rule by, bool record) {
  const plan_plan *plan = p->plan;
  p->rule = by;
  p->record = record;
  for (int c = 0; c < plan->chunk_count; c++)
    p->forward_begun[c] = p->forward_fed[c] = p->backward_begun[c] = p->backward_fed[c] = p->backward_done[c] = 0;
  p->forward_fed[0] = plan->microbatches;
  for (int r = 0; r < plan->ranks; r++) p->turn[r] = 0;
  for (int r = 0; record && r < plan->ranks; r++) plan->order_count[r] = 0;
  for (int r = 0; r < plan->ranks; r++) begin(p, r, 0);
  double now_s = 0;
  while (p->heap.count > 0 && !p->out_of_memory) {
    now_s = p->heap.items[0].time_s;
    while (p->heap.count > 0 && p->heap.items[0].time_s <= now_s) { /* all of one time before anyone chooses */
      const event e = pop(p);
      if (e.arrival)
        feed(p, e.chunk, e.backward);
      else
        end_step(p, &e);
    }
    while (p->wake_count > 0) {
      const int rank = p->wake[--p->wake_count];
      p->woken[rank] = false;
      begin(p, rank, now_s);
    }
  }
  for (int c = 0; c < plan->chunk_count; c++)
    if (p->forward_begun[c] < p->items || (plan->training && p->backward_begun[c] < p->items)) return INFINITY;
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
    if (at > 0 && at != chunks) now_s += transfer_s(p, backward ? chunk + 1 : chunk - 1, chunk);
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
  p->forward_begun = DP_ARENA_NEW(scratch, int, 5 * chunks);
  p->forward_start_s = DP_ARENA_NEW(scratch, double, 2 * chunks);
  p->running = DP_ARENA_NEW(scratch, bool, 2 * ranks);
  p->wake = DP_ARENA_NEW(scratch, int, 2 * ranks);
  if (!p->chunks || !p->first_chunk || !p->forward_begun || !p->forward_start_s || !p->running || !p->wake)
    return false;
  p->backward_start_s = p->forward_start_s + chunks;
  p->forward_fed = p->forward_begun + chunks;
  p->backward_begun = p->forward_fed + chunks;
  p->backward_fed = p->backward_begun + chunks;
  p->backward_done = p->backward_fed + chunks;
  p->woken = p->running + ranks;
  p->turn = p->wake + ranks;
  for (size_t c = 0; c < chunks; c++) p->first_chunk[p->plan->chunks[c].rank + 1]++;
  for (size_t r = 0; r < ranks; r++) p->first_chunk[r + 1] += p->first_chunk[r];
  for (size_t c = 0; c < chunks; c++) { /* `wake` counts while it is free */
    const int rank = p->plan->chunks[c].rank;
    p->chunks[p->first_chunk[rank] + p->wake[rank]++] = (int)c;
  }
  return true;
}

/* The step of an order that was made without looking at transfers, when they take their time. */
static double play_blind(player *p, rule by) {
  p->blind = true;
  const double alone_s = play(p, by, true);
  p->blind = false;
  if (alone_s == INFINITY) return INFINITY;
  p->replay = true;
  const double step_s = play(p, by, false);
  p->replay = false;
  return step_s;
}

dp_status plan_order_list(plan_plan *plan, const plan_chunk_costs *costs, const int *limit, dp_error *error) {
  dp_arena scratch = {0};
  player p = {.plan = plan, .costs = costs, .limit = limit, .items = plan_order_items(plan)};
  dp_status status = allocate(&p, &scratch) ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    double best_s = INFINITY;
    size_t best = 0;
    bool best_is_blind = false;
    find_pattern(&p);
    for (size_t i = 0; i < 2 * sizeof rules / sizeof *rules; i++) {
      const rule *by = &rules[i / 2];
      const bool blind = i % 2;
      if ((by->periodic && p.period_s <= 0) || (blind && !costs->transfer_s)) continue;
      const double step_s = blind ? play_blind(&p, *by) : play(&p, *by, false);
      if (step_s < best_s * (1 - 1e-12) || (best_s == INFINITY && step_s < best_s)) {
        best_s = step_s;
        best = i / 2;
        best_is_blind = blind;
      }
    }
    p.blind = best_is_blind;
    if (p.out_of_memory)
      status = dp_fail_memory(error);
    else if (best_s == INFINITY || play(&p, rules[best], true) == INFINITY)
      status =
          dp_fail(error, DP_INTERNAL, "plan: the list scheduler stopped before all %d microbatches were done", p.items);
  }
  dp_array_free(&p.heap);
  dp_arena_free(&scratch);
  return status;
}
