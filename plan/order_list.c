#include <math.h>

#include "plan/order.h"

/* Which of a rank's chunks goes first among those that have a step ready. */
typedef enum preference { OLDEST, DEEPEST, SHALLOWEST } preference; /* oldest microbatch, ties to the deepest chunk */

typedef struct rule {
  preference backward, forward;
} rule;

static const rule rules[] = {{OLDEST, OLDEST},     {SHALLOWEST, DEEPEST}, {SHALLOWEST, SHALLOWEST},
                             {DEEPEST, SHALLOWEST}, {DEEPEST, DEEPEST},    {OLDEST, SHALLOWEST}};

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

static void begin(player *p, int rank, double now_s) {
  if (p->running[rank]) return;
  int chunk = pick(p, rank, true);
  const bool backward = chunk >= 0;
  if (!backward) chunk = pick(p, rank, false);
  if (chunk < 0) return;
  const int microbatch = backward ? p->backward_begun[chunk]++ : p->forward_begun[chunk]++;
  if (p->record) plan_order_add(p->plan, rank, backward ? PLAN_BACKWARD : PLAN_FORWARD, chunk, microbatch);
  p->running[rank] = 1;
  const double length_s =
      backward ? p->costs->backward_input_s[chunk] + p->costs->backward_weight_s[chunk] : p->costs->forward_s[chunk];
  push(p, (event){now_s + length_s, rank, chunk, backward});
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

static bool allocate(player *p, dp_arena *scratch) {
  const size_t ranks = (size_t)p->plan->ranks, chunks = (size_t)p->plan->chunk_count;
  p->chunks = DP_ARENA_NEW(scratch, int, chunks);
  p->first_chunk = DP_ARENA_NEW(scratch, int, ranks + 1);
  p->forward_begun = DP_ARENA_NEW(scratch, int, 4 * chunks);
  p->running = DP_ARENA_NEW(scratch, int, ranks);
  p->heap = DP_ARENA_NEW(scratch, event, 2 * ranks);
  if (!p->chunks || !p->first_chunk || !p->forward_begun || !p->running || !p->heap) return false;
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
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
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
