#include "plan/order.h"

#include <inttypes.h>

enum { MAX_STEPS = 1 << 30 };

int plan_order_items(const plan_plan *plan) { return plan->microbatches * plan->denoise_steps; }

void plan_order_add(plan_plan *plan, int rank, plan_opcode opcode, int chunk, int microbatch) {
  plan->order[rank][plan->order_count[rank]++] =
      (plan_step){.opcode = (uint8_t)opcode, .chunk = (uint16_t)chunk, .microbatch = (uint32_t)microbatch};
}

/* ---- round-robin placement: forwards and backwards depth first, in groups of microbatches ---- */

/* Groups are of p microbatches, for a group takes p chunk-times to come round to its first rank again; the last takes
 * the remainder too (p + m % p), since a smaller one would arrive late. Fewer than p: one group. */
typedef struct grouping {
  int ranks, chunks, microbatches, groups;
} grouping;

static grouping grouping_of(const plan_plan *plan) {
  const int groups = plan->microbatches / plan->ranks;
  return (grouping){plan->ranks, plan->chunks_per_rank, plan->microbatches, groups > 0 ? groups : 1};
}

static int group_size(const grouping *g, int group) {
  return group + 1 < g->groups ? g->ranks : g->microbatches - (g->groups - 1) * g->ranks;
}

/* The n-th forward or backward of rank r: which chunk and microbatch. */
static void nth(const grouping *g, int rank, bool backward, int n, int *chunk, int *microbatch) {
  const int whole = g->ranks * g->chunks;
  int group = n / whole;
  if (group >= g->groups) group = g->groups - 1;
  const int size = group_size(g, group), inside = n - group * whole;
  const int local = inside / size;
  *chunk = (backward ? g->chunks - 1 - local : local) * g->ranks + rank;
  *microbatch = group * g->ranks + inside % size;
}

static void add_nth(plan_plan *plan, const grouping *g, int rank, bool backward, int n) {
  int chunk, microbatch;
  nth(g, rank, backward, n, &chunk, &microbatch);
  plan_order_add(plan, rank, backward ? PLAN_BACKWARD : PLAN_FORWARD, chunk, microbatch);
}

/* Forwards before the first backward: as many as the way to the last chunk and back takes. */
static int warm_up(const plan_plan *plan, const grouping *g, int rank) {
  const int left = plan->ranks - rank - 1, all = g->microbatches * g->chunks;
  int count = all;
  if (plan->schedule == PLAN_1F1B || (plan->schedule == PLAN_INTERLEAVED && g->chunks == 1)) count = left;
  if (plan->schedule == PLAN_INTERLEAVED && g->chunks > 1)
    count = 2 * left + (g->chunks - 1) * group_size(g, g->groups - 1);
  return count < all ? count : all;
}

static void order_round_robin(plan_plan *plan, int rank) {
  const grouping g = grouping_of(plan);
  const int all = g.microbatches * g.chunks, warm = warm_up(plan, &g, rank);
  for (int n = 0; n < warm; n++) add_nth(plan, &g, rank, false, n);
  for (int n = warm; n < all; n++) {
    add_nth(plan, &g, rank, false, n);
    add_nth(plan, &g, rank, true, n - warm);
  }
  for (int n = all - warm; n < all; n++) add_nth(plan, &g, rank, true, n);
}

static void order_sampling(plan_plan *plan, int rank) {
  const grouping g = grouping_of(plan);
  for (int step = 0; step < plan->denoise_steps; step++)
    for (int n = 0; n < g.microbatches * g.chunks; n++) {
      int chunk, microbatch;
      nth(&g, rank, false, n, &chunk, &microbatch);
      plan_order_add(plan, rank, PLAN_FORWARD, chunk, step * g.microbatches + microbatch);
    }
}

/* ---- zero bubble ---- */

/* Steps done so far, by local chunk. Adding a step past the last microbatch does nothing, so that the phases below can
 * be written for many microbatches and hold for few. */
typedef struct counter {
  plan_plan *plan;
  int rank, chunk[2], forward[2], input[2], weight[2];
} counter;

static void add(counter *c, plan_opcode opcode, int local) {
  int *count = opcode == PLAN_FORWARD ? c->forward : opcode == PLAN_BACKWARD_INPUT ? c->input : c->weight;
  const int microbatch = count[local]++;
  if (microbatch < c->plan->microbatches) plan_order_add(c->plan, c->rank, opcode, c->chunk[local], microbatch);
}

/* ZB-H1: 1F1B in which the weight part of each backward comes `rank` microbatches later: then every rank keeps p
 * microbatches, and the cool-down has weight work for each of its gaps. */
static void order_zb_h1(plan_plan *plan, int rank) {
  const int m = plan->microbatches, left = plan->ranks - rank - 1;
  counter c = {.plan = plan, .rank = rank, .chunk = {rank}};
  for (int i = 0; i < m && i < left; i++) add(&c, PLAN_FORWARD, 0);
  while (c.input[0] < m) {
    const bool filling = c.forward[0] < m;
    if (filling) add(&c, PLAN_FORWARD, 0);
    add(&c, PLAN_BACKWARD_INPUT, 0);
    if (c.forward[0] == m || c.input[0] - c.weight[0] > rank) add(&c, PLAN_BACKWARD_WEIGHT, 0);
  }
  while (c.weight[0] < m) add(&c, PLAN_BACKWARD_WEIGHT, 0);
}

/* ZB-V: the phases of the paper's appendix. Local chunk 0 goes down the V, 1 comes back up, so the last rank turns
 * microbatches round at once, and each rank can go from forward to backward with no more than 2 p chunks kept. */
static void order_zb_v(plan_plan *plan, int rank) {
  const int p = plan->ranks, m = plan->microbatches, left = p - rank;
  const int least = m > 2 * p - 1 ? m : 2 * p - 1; /* the phases need so many; surplus steps are dropped by add() */
  counter c = {.plan = plan, .rank = rank, .chunk = {rank, 2 * p - 1 - rank}};
  for (int i = 0; i < 2 * left - 1; i++) add(&c, PLAN_FORWARD, 0);
  for (int i = 0; i < rank; i++) {
    add(&c, PLAN_FORWARD, 1);
    add(&c, PLAN_FORWARD, 0);
  }
  for (int i = 0; i < left; i++) {
    add(&c, PLAN_FORWARD, 1);
    add(&c, PLAN_BACKWARD_INPUT, 1);
    add(&c, PLAN_BACKWARD_WEIGHT, 1);
  }
  while (c.forward[1] < least) {
    if (c.forward[0] < least) add(&c, PLAN_FORWARD, 0);
    add(&c, PLAN_BACKWARD_INPUT, 0);
    add(&c, PLAN_BACKWARD_WEIGHT, 0);
    add(&c, PLAN_FORWARD, 1);
    add(&c, PLAN_BACKWARD_INPUT, 1);
    add(&c, PLAN_BACKWARD_WEIGHT, 1);
  }
  for (int i = 0; i < rank; i++) {
    add(&c, PLAN_BACKWARD_INPUT, 0);
    add(&c, PLAN_BACKWARD_INPUT, 1);
  }
  for (int i = 0; i < left; i++) {
    add(&c, PLAN_BACKWARD_INPUT, 0);
    add(&c, PLAN_BACKWARD_WEIGHT, 0);
  }
  while (c.weight[1] < least) add(&c, PLAN_BACKWARD_WEIGHT, 1);
  while (c.weight[0] < least) add(&c, PLAN_BACKWARD_WEIGHT, 0);
}

/* ---- the table ---- */

typedef struct schedule_row {
  int min_chunks, max_chunks;                  /* a rank */
  int passes;                                  /* steps per chunk and microbatch in training */
  void (*training)(plan_plan *plan, int rank); /* NULL: list scheduled */
  void (*sampling)(plan_plan *plan, int rank);
} schedule_row;

static const schedule_row schedules[PLAN_SCHEDULE_COUNT] = {
    [PLAN_GPIPE] = {1, 0x7fff, 2, order_round_robin, order_sampling},
    [PLAN_1F1B] = {1, 1, 2, order_round_robin, order_sampling},
    [PLAN_INTERLEAVED] = {1, 0x7fff, 2, order_round_robin, order_sampling},
    [PLAN_FOLDED] = {2, 2, 2, NULL, NULL},
    [PLAN_ZB_H1] = {1, 1, 3, order_zb_h1, order_sampling},
    [PLAN_ZB_V] = {2, 2, 3, order_zb_v, NULL},
};

static dp_status check(const plan_plan *plan, dp_error *error) {
  const schedule_row *row = &schedules[plan->schedule];
  const char *name = plan_schedule_names[plan->schedule];
  if (plan->ranks < 1 || plan->microbatches < 1 || plan->denoise_steps < 1)
    return dp_fail(error, DP_BAD_INPUT,
                   "plan: found %d stages, %d microbatches, %d denoise steps, allowed: 1 or more of each", plan->ranks,
                   plan->microbatches, plan->denoise_steps);
  if (plan->training && plan->denoise_steps != 1)
    return dp_fail(error, DP_BAD_INPUT, "plan: found %d denoise steps in training, allowed: 1", plan->denoise_steps);
  if (plan->chunks_per_rank < row->min_chunks || plan->chunks_per_rank > row->max_chunks) {
    if (row->min_chunks == row->max_chunks)
      return dp_fail(error, DP_BAD_INPUT, "plan.chunks: found %d, allowed with schedule %s: %d", plan->chunks_per_rank,
                     name, row->min_chunks);
    return dp_fail(error, DP_BAD_INPUT, "plan.chunks: found %d, allowed with schedule %s: %d or more",
                   plan->chunks_per_rank, name, row->min_chunks);
  }
  if (plan->chunk_count != plan->ranks * plan->chunks_per_rank || plan->chunk_count > UINT16_MAX)
    return dp_fail(error, DP_BAD_INPUT,
                   "plan: found %d chunks on %d stages of %d, allowed: stages * chunks, at most %d", plan->chunk_count,
                   plan->ranks, plan->chunks_per_rank, UINT16_MAX);
  for (int c = 0; c < plan->chunk_count; c++) {
    const int rank = plan_schedule_chunk_rank(plan->schedule, plan->ranks, c);
    if (plan->chunks[c].rank != rank)
      return dp_fail(error, DP_BAD_INPUT, "plan: found chunk %d on stage %d, allowed with schedule %s: stage %d", c,
                     plan->chunks[c].rank, name, rank);
  }
  const int64_t passes = plan->training ? row->passes : 1;
  const int64_t items = (int64_t)plan->microbatches * plan->denoise_steps; /* below 2^62 */
  if (items > MAX_STEPS || items * plan->chunk_count * passes > MAX_STEPS)
    return dp_fail(error, DP_BAD_INPUT,
                   "plan: found %d chunks of %" PRId64 " microbatches, allowed: at most %d steps in all",
                   plan->chunk_count, items, MAX_STEPS);
  return DP_OK;
}

static dp_status order_by_list(plan_plan *plan, const plan_chunk_costs *costs, const int *in_flight_limit,
                               dp_error *error) {
  dp_arena scratch = {0};
  double *unit = DP_ARENA_NEW(&scratch, double, (size_t)plan->chunk_count);
  int *limit = DP_ARENA_NEW(&scratch, int, (size_t)plan->ranks);
  dp_status status = unit && limit ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    for (int c = 0; c < plan->chunk_count; c++) unit[c] = 1;
    for (int r = 0; r < plan->ranks; r++) {
      limit[r] = !in_flight_limit ? 2 * plan->ranks : in_flight_limit[r] > 1 ? in_flight_limit[r] : 1;
      if (!plan->training) limit[r] = plan_order_items(plan);
    }
    const plan_chunk_costs usual = {unit, unit, unit, NULL};
    status = plan_order_list(plan, costs ? costs : &usual, limit, error);
  }
  dp_arena_free(&scratch);
  return status;
}

dp_status plan_order_generate(plan_plan *plan, const plan_chunk_costs *costs, const int *in_flight_limit,
                              dp_error *error) {
  DP_TRY(check(plan, error));
  const schedule_row *row = &schedules[plan->schedule];
  const size_t room =
      (size_t)plan_order_items(plan) * (size_t)plan->chunks_per_rank * (size_t)(plan->training ? row->passes : 1);
  plan->order = DP_ARENA_NEW(&plan->arena, plan_step *, (size_t)plan->ranks);
  plan->order_count = DP_ARENA_NEW(&plan->arena, int, (size_t)plan->ranks);
  if (!plan->order || !plan->order_count) return dp_fail_memory(error);
  for (int r = 0; r < plan->ranks; r++) {
    plan->order[r] = DP_ARENA_NEW(&plan->arena, plan_step, room);
    if (!plan->order[r]) return dp_fail_memory(error);
  }
  void (*closed)(plan_plan *, int) = plan->training ? row->training : row->sampling;
  if (!closed) return order_by_list(plan, costs, in_flight_limit, error);
  for (int r = 0; r < plan->ranks; r++) closed(plan, r);
  return DP_OK;
}
