/* Recomputation of just what memory needs.
 *
 * A unit whose activations are recomputed frees, for each microbatch in flight, what only it keeps (its marginal part
 * of graph_saved_bytes), and costs its forward once more a microbatch. Where a rank is over its limit, its units are
 * taken by most bytes a second, one by one and each counted beside those already taken, until the excess and the
 * workspace in which the largest of them is made again are covered. What the layout says then corrects the estimate:
 * the split is balanced again with the new times, and more units are taken where a rank is still over. In the end units
 * that the room allows are given back, least bytes a second first. */
#include <math.h>
#include <string.h>

#include "sim/fit.h"
#include "sim/predictor.h"

enum { ROUNDS = 8 };

typedef struct choice {
  sim_predictor *p;
  int *in_flight, *chunk_of_unit; /* [chunk]; [unit] */
  int64_t *room_bytes;            /* [rank] limit less peak, least of its replicas; < 0: over */
  uint8_t *flags;                 /* the plan's */
} choice;

static dp_status look(choice *c) {
  sim_predictor *p = c->p;
  const plan_plan *plan = &p->out->plan;
  for (int r = 0; r < plan->ranks; r++) {
    c->room_bytes[r] = INT64_MAX;
    for (int w = r; w < p->out->memory.worker_count; w += plan->ranks) {
      const int64_t room = p->out->memory_limit_bytes[w] - p->out->memory.workers[w].peak_bytes;
      if (room < c->room_bytes[r]) c->room_bytes[r] = room;
    }
  }
  for (int k = 0; k < plan->chunk_count; k++)
    for (int u = 0; u < plan->chunks[k].unit_count; u++) c->chunk_of_unit[plan->chunks[k].first_unit + u] = k;
  return sim_fit_in_flight(plan, c->in_flight, p->error);
}

/* Bytes that the unit's flag makes the difference of on its worker. */
static int64_t freed_bytes(const choice *c, int unit) {
  const graph *g = &c->p->out->graph;
  const int k = c->chunk_of_unit[unit];
  const plan_chunk *chunk = &c->p->out->plan.chunks[k];
  const uint8_t flag = c->flags[unit];
  c->flags[unit] = 0;
  const int64_t kept = graph_saved_bytes(g, chunk->first_unit, chunk->unit_count, c->flags, NULL);
  c->flags[unit] = 1;
  const int64_t left = graph_saved_bytes(g, chunk->first_unit, chunk->unit_count, c->flags, NULL);
  c->flags[unit] = flag;
  return c->in_flight[k] * (kept - left);
}

static double forward_s(const choice *c, int unit) {
  const sim_predictor *p = c->p;
  const int rank = p->out->plan.chunks[c->chunk_of_unit[unit]].rank;
  return p->kinds[p->rank_kind[rank]].units[unit].device_s[SIM_FORWARD];
}

static int rank_of(const choice *c, int unit) { return c->p->out->plan.chunks[c->chunk_of_unit[unit]].rank; }

/* The unit of the rank with the flag at hand that trades best (most bytes a second) or worst; -1: none. */
static int pick(const choice *c, int rank, uint8_t flag, bool best, const int64_t *bytes) {
  int picked = -1;
  double picked_rate = 0;
  for (int u = 0; u < (int)c->p->out->graph.units.count; u++) {
    if (c->flags[u] != flag || bytes[u] <= 0 || rank_of(c, u) != rank) continue;
    const double s = forward_s(c, u), rate = s > 0 ? (double)bytes[u] / s : INFINITY;
    if (picked < 0 || (best ? rate > picked_rate : rate < picked_rate)) {
      picked = u;
      picked_rate = rate;
    }
  }
  return picked;
}

/* What the neighbours of a unit free depends on its flag: tensors between them are kept by whoever keeps. */
static void update(const choice *c, int unit, int64_t *bytes) {
  const int k = c->chunk_of_unit[unit];
  const plan_chunk *chunk = &c->p->out->plan.chunks[k];
  for (int u = unit - 1; u <= unit + 1; u++)
    if (u >= chunk->first_unit && u < chunk->first_unit + chunk->unit_count) bytes[u] = freed_bytes(c, u);
}

/* Marks units of every rank that is over. False: nothing more could be marked. */
static bool mark(const choice *c, double more, int64_t *bytes) {
  const graph *g = &c->p->out->graph;
  const int n = (int)g->units.count;
  bool marked = false;
  for (int r = 0; r < c->p->out->plan.ranks; r++) {
    if (c->room_bytes[r] >= 0) continue;
    int64_t workspace = 0; /* in which the largest recomputed unit is made again */
    for (int u = 0; u < n; u++) {
      if (rank_of(c, u) != r) continue;
      bytes[u] = freed_bytes(c, u);
      if (c->flags[u] && g->units.items[u].saved_bytes > workspace) workspace = g->units.items[u].saved_bytes;
    }
    double need = -more * (double)c->room_bytes[r];
    while (need > 0) {
      const int u = pick(c, r, 0, true, bytes);
      if (u < 0) break;
      need -= (double)bytes[u];
      if (g->units.items[u].saved_bytes > workspace) {
        need += (double)(g->units.items[u].saved_bytes - workspace);
        workspace = g->units.items[u].saved_bytes;
      }
      c->flags[u] = 1;
      marked = true;
      update(c, u, bytes);
    }
  }
  return marked;
}

/* Gives back what the room allows. False: nothing. */
static bool give_back(const choice *c, int64_t *bytes) {
  const int n = (int)c->p->out->graph.units.count;
  bool given = false;
  for (int u = 0; u < n; u++) bytes[u] = c->flags[u] ? freed_bytes(c, u) : 0;
  for (int r = 0; r < c->p->out->plan.ranks; r++) {
    int64_t room = c->room_bytes[r];
    for (;;) {
      const int u = pick(c, r, 1, false, bytes);
      if (u < 0) break;
      if (bytes[u] > room) {
        bytes[u] = 0; /* this one not; perhaps another */
        continue;
      }
      room -= bytes[u];
      c->flags[u] = 0;
      given = true;
    }
  }
  return given;
}

static dp_status again(choice *c, bool balance) {
  sim_predictor *p = c->p;
  plan_memory_free(&p->out->memory);
  plan_program_free(&p->out->program);
  sim_predict_cost_recompute(p);
  if (balance) DP_TRY(sim_predict_set_chunks(p));
  DP_TRY(sim_predict_compile_once(p));
  return look(c);
}

/* Where the estimate is no guide (a backward in two parts keeps what was made again until the second): of each rank's
 * units, least bytes a second first, as many as its room allows, found by halving. The flags at hand fit. */
static dp_status give_back_by_layout(choice *c, int64_t *bytes) {
  sim_predictor *p = c->p;
  const int n = (int)p->out->graph.units.count, ranks = p->out->plan.ranks;
  int *order = SIM_SCRATCH(p, int, n), *first = SIM_SCRATCH(p, int, ranks + 1);
  int *low = SIM_SCRATCH(p, int, ranks), *high = SIM_SCRATCH(p, int, ranks), *taken = SIM_SCRATCH(p, int, ranks);
  uint8_t *fitting = SIM_SCRATCH(p, uint8_t, n);
  if (!order || !first || !low || !high || !taken || !fitting) return dp_fail_memory(p->error);
  memcpy(fitting, c->flags, (size_t)n);
  for (int u = 0; u < n; u++) bytes[u] = c->flags[u] ? freed_bytes(c, u) + 1 : 0;
  int count = 0;
  for (int r = 0; r < ranks; r++) {
    first[r] = count;
    for (int u; (u = pick(c, r, 1, false, bytes)) >= 0; bytes[u] = 0) order[count++] = u;
    high[r] = count - first[r];
  }
  first[ranks] = count;
  for (bool open = true; open;) {
    open = false;
    for (int r = 0; r < ranks; r++) {
      taken[r] = (low[r] + high[r] + 1) / 2;
      open = open || low[r] < high[r];
      for (int i = first[r]; i < first[r + 1]; i++) c->flags[order[i]] = i - first[r] >= taken[r];
    }
    DP_TRY(again(c, false));
    for (int r = 0; r < ranks; r++) {
      if (c->room_bytes[r] >= 0)
        low[r] = taken[r];
      else if (taken[r] > low[r])
        high[r] = taken[r] - 1;
    }
  }
  if (p->out->fits) return DP_OK;
  memcpy(c->flags, fitting, (size_t)n);
  return again(c, false);
}

dp_status sim_predict_compile_recomputing(sim_predictor *p) {
  sim_prediction *out = p->out;
  const size_t n = out->graph.units.count;
  choice c = {.p = p,
              .in_flight = SIM_SCRATCH(p, int, out->plan.chunk_count),
              .chunk_of_unit = SIM_SCRATCH(p, int, n),
              .room_bytes = SIM_SCRATCH(p, int64_t, out->plan.ranks),
              .flags = out->plan.recompute};
  int64_t *bytes = SIM_SCRATCH(p, int64_t, n);
  uint8_t *fitting = SIM_SCRATCH(p, uint8_t, n);
  if (!c.in_flight || !c.chunk_of_unit || !c.room_bytes || !bytes || !fitting) return dp_fail_memory(p->error);
  DP_TRY(sim_predict_compile_once(p));
  DP_TRY(look(&c));
  for (int i = 0; i < ROUNDS && !out->fits; i++) {
    if (!mark(&c, i < ROUNDS / 2 ? 1 : 2, bytes)) break;
    DP_TRY(again(&c, true));
  }
  const bool by_layout = !out->fits || out->plan.schedule == PLAN_ZB_H1 || out->plan.schedule == PLAN_ZB_V;
  if (!out->fits) { /* everything, and whatever split fits then */
    memset(c.flags, 1, n);
    plan_memory_free(&out->memory);
    plan_program_free(&out->program);
    sim_predict_cost_recompute(p);
    DP_TRY(sim_predict_set_chunks(p));
    DP_TRY(sim_predict_compile(p));
    DP_TRY(look(&c));
    if (!out->fits || out->plan.schedule == PLAN_FOLDED) return DP_OK; /* folded: with fewer in flight */
  }
  if (by_layout) return give_back_by_layout(&c, bytes);
  memcpy(fitting, c.flags, n);
  if (!give_back(&c, bytes)) return DP_OK;
  DP_TRY(again(&c, false));
  if (out->fits) return DP_OK;
  memcpy(c.flags, fitting, n);
  return again(&c, false);
}
