/* Exact dynamic programs for straight and folded placement; see partition.h for what they minimise. */
#include "sim/partition.h"

#include <math.h>
#include <string.h>

#include "sim/partition_tables.h"

/* Costs are sums of doubles: what differs by less than this is a tie. */
static const double tie = 1 + 1e-12;

typedef enum objective {
  SLOWEST, /* least largest cost */
  FULLEST, /* least largest excess over the memory limit, bytes */
  EVEN     /* least sum of squared costs */
} objective;

typedef struct solver {
  sim_partition_tables *t;
  const sim_partition_problem *p;
  dp_error *error;
  objective goal;
  double cost_bound;  /* workers that cost more are not looked at */
  int64_t over_bound; /* nor those that are over their limit by more */
  double *value;      /* [rank][a][d] folded; [rank][end] straight */
  int *next;
  /* folded: for the state (a, d) at hand, what chunks [a, b) and [c, d) hold twice */
  double *fast_s;                     /* [rank + 1]: sum of speeds of ranks before it */
  double *room_bytes;                 /* [rank + 1]: sum of what ranks before it have for units */
  int least_in_flight;                /* of any chunk */
  int64_t *inner;                     /* [b][c] bytes made in [a, b) and used in [b, c): wire */
  int64_t *both, *both_skips, *local; /* [b - a][d - c] of the window */
  int *last_user;                     /* [crossing][d] its last user before d; -1 */
  int *near, *near_first;             /* crossings with a point at or after a, and the first such point */
  int near_count;
} solver;

#define AT(table, a, b) sim_partition_at(s->t, s->t->table, a, b)

static int64_t limit_of(const solver *s, int rank) { return sim_partition_limit(s->p, rank); }

/* Transient of the chunks with ends a..b and c..d; c == d: one chunk. */
static dp_status largest_transient(solver *s, int a, int b, int c, int d, int64_t *bytes) {
  int64_t second = 0;
  DP_TRY(sim_partition_transient(s->t, a, b, bytes, s->error));
  if (c < d) DP_TRY(sim_partition_transient(s->t, c, d, &second, s->error));
  if (second > *bytes) *bytes = second;
  return DP_OK;
}

/* What choosing this worker makes of `rest`, the value of the others; INFINITY when it may not be. Transients, which
 * are dear, are asked for last. */
static dp_status combine(solver *s, int rank, const sim_partition_terms *terms, int64_t skips, double rest, double best,
                         int a, int b, int c, int d, double *total) {
  *total = INFINITY;
  if (s->p->skip_policy == PLAN_SKIP_LOCAL && skips > 0) return DP_OK;
  const double cost_s = sim_partition_cost_s(s->p, rank, terms);
  if (cost_s > s->cost_bound) return DP_OK;
  double value = s->goal == SLOWEST ? fmax(rest, cost_s) : s->goal == EVEN ? rest + cost_s * cost_s : rest;
  if (value >= best) return DP_OK;
  if (s->t->limited) {
    int64_t over = sim_partition_memory(s->p, rank, terms) - limit_of(s, rank), transient;
    if (over > s->over_bound || (s->goal == FULLEST && (double)over >= best)) return DP_OK;
    DP_TRY(largest_transient(s, a, b, c, d, &transient));
    over += transient;
    if (over > s->over_bound) return DP_OK;
    if (s->goal == FULLEST) value = fmax(rest, (double)over);
  }
  if (value < best) *total = value;
  return DP_OK;
}

/* ---- straight: chunk r on rank r ---- */

static dp_status solve_straight(solver *s) {
  const sim_partition_tables *t = s->t;
  const int n = t->places, side = t->side, ranks = t->ranks;
  const bool relay = s->p->skip_policy == PLAN_SKIP_RELAY;
  for (int r = 0; r < ranks; r++)
    for (int b = r + 1; b <= n - (ranks - 1 - r); b++) {
      double *best = &s->value[r * side + b];
      *best = INFINITY;
      for (int a = b - 1; a >= r; a--) {
        if (r == 0 && a > 0) a = 0;
        const double rest = r ? s->value[(r - 1) * side + a] : a ? INFINITY : s->goal == FULLEST ? -INFINITY : 0;
        sim_partition_terms terms = {.compute_s = sim_partition_work_s(t, r, a, b)};
        /* work and what is saved only grow with earlier starts */
        if (terms.compute_s > s->cost_bound || (s->goal == SLOWEST && terms.compute_s >= *best)) break;
        if (rest >= *best) continue;
        terms.memory = sim_partition_chunk_bytes(t, r, a, b);
        terms.received = relay ? AT(reaching, a, a) : AT(used, a, b);
        terms.sent = AT(reaching, b, b) - (b > a ? AT(reaching, a, b) : 0) + (b < n ? t->chain_saving[b] : 0);
        if (relay) terms.sent = AT(reaching, b, b);
        if (r) terms.chain_s = sim_partition_hop_s(s->p, r, relay ? terms.received : t->chain[a]);
        double total;
        DP_TRY(combine(s, r, &terms, AT(used_skips, a, b), rest, *best, a, b, b, b, &total));
        if (total >= *best) continue;
        *best = total;
        s->next[r * side + b] = a;
      }
    }
  return DP_OK;
}

static void read_straight(const solver *s, int *cuts) {
  for (int r = s->t->ranks - 1, b = s->t->places; r > 0; r--) cuts[r - 1] = b = s->next[r * s->t->side + b];
}

/* ---- folded: [a, b) and [c, d) on a rank ---- */

/* Makes the tables for makers from a on out of those for a + 1. */
static void step_outwards(solver *s, int a) {
  const sim_partition_tables *t = s->t;
  const bool relay = s->p->skip_policy == PLAN_SKIP_RELAY;
  s->near_count = 0;
  for (int i = 0; i < t->crossing_count; i++) {
    const sim_crossing *c = &t->crossings[i];
    int first = c->made;
    for (int u = 0; first < a && u < c->user_count; u++) first = c->users[u];
    if (first >= a && c->user_count) {
      s->near[s->near_count] = i;
      s->near_first[s->near_count++] = first;
    }
    if (c->made != a || relay) continue;
    for (int b = a + 1, u = 0; b < t->places; b++) {
      while (u < c->user_count && c->users[u] < b) u++;
      if (u == c->user_count) break;
      const int64_t bytes = c->start == b ? c->bytes : c->packed_bytes;
      for (int e = c->users[u] + 1; e <= t->places; e++) s->inner[b * t->side + e] += bytes;
    }
  }
}

/* The window tables of the state (a, d), for b <= b_end and c >= c_first. */
static void fill_window(solver *s, int a, int d, int b_end, int c_first) {
  const sim_partition_tables *t = s->t;
  const int side = t->side;
  for (int i = 0; i <= b_end - a; i++)
    for (int j = 0; j <= d - c_first; j++)
      s->both[i * side + j] = s->both_skips[i * side + j] = s->local[i * side + j] = 0;
  for (int i = 0; i < s->near_count; i++) {
    const sim_crossing *c = &t->crossings[s->near[i]];
    const int first = s->near_first[i], last = s->last_user[s->near[i] * side + d];
    if (first >= b_end || last < c_first || last <= first) continue;
    const int at = (first - a + 1) * side + (d - last);
    s->both[at] += s->p->skip_policy == PLAN_SKIP_RELAY ? 0 : c->packed_bytes;
    s->both_skips[at] += c->counted;
    if (c->made >= a && c->needs_gradient) s->local[at] += c->bytes;
  }
  int64_t *const tables[] = {s->both, s->both_skips, s->local};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i <= b_end - a; i++)
      for (int j = 0; j <= d - c_first; j++) {
        int64_t *v = &tables[k][i * side + j];
        if (i) *v += v[-side];
        if (j) *v += v[-1];
        if (i && j) *v -= v[-side - 1];
      }
}

/* The rank in the middle takes [a, d) in two chunks; where they meet changes its memory only: as near as can be to
 * equal halves. */
static dp_status solve_middle(solver *s, int a, int d, double *best, int *choice) {
  const sim_partition_tables *t = s->t;
  const int r = t->ranks - 1, side = t->side;
  const double half_s = sim_partition_work_s(t, r, a, d) / 2;
  double least_uneven = INFINITY;
  sim_partition_terms terms = {.compute_s = 2 * half_s, .received = AT(used, a, d)};
  terms.sent = AT(reaching, d, d) - AT(reaching, a, d);
  if (s->p->skip_policy != PLAN_SKIP_RELAY && d < t->places) terms.sent += t->chain_saving[d];
  if (r)
    terms.chain_s = sim_partition_hop_s(s->p, r, s->p->skip_policy == PLAN_SKIP_RELAY ? terms.received : t->chain[a]);
  for (int m = a + 1; m < d; m++) {
    const double uneven = fabs(sim_partition_work_s(t, r, a, m) - half_s);
    if (*best < INFINITY && (!t->limited || s->goal != FULLEST) && uneven >= least_uneven) continue;
    terms.memory = sim_partition_chunk_bytes(t, r, a, m) + sim_partition_chunk_bytes(t, r + 1, m, d);
    terms.local_gradient = 0;
    for (int i = 0; i < s->near_count; i++) {
      const sim_crossing *c = &t->crossings[s->near[i]];
      if (c->made >= a && c->made < m && c->needs_gradient && s->last_user[s->near[i] * side + d] >= m)
        terms.local_gradient += c->bytes;
    }
    double total;
    DP_TRY(
        combine(s, r, &terms, AT(used_skips, a, d), s->goal == FULLEST ? -INFINITY : 0, INFINITY, a, m, m, d, &total));
    if (total > *best || total == INFINITY || (total == *best && uneven >= least_uneven)) continue;
    *best = total;
    *choice = m * side + m;
    least_uneven = uneven;
  }
  return DP_OK;
}

static bool too_full(const solver *s, int rank, int64_t bytes, double best) {
  if (!s->t->limited) return false;
  const int64_t over = bytes + (s->p->fixed_bytes ? s->p->fixed_bytes[rank] : 0) - limit_of(s, rank);
  return over > s->over_bound || (s->goal == FULLEST && (double)over >= best);
}

/* What its chunk cannot do without; only grows with the chunk. */
static int64_t least_bytes(const solver *s, int chunk, int a, int b) {
  return s->t->persistent[b] - s->t->persistent[a] + AT(inputs, a, b) +
         sim_partition_in_flight(s->p, chunk) * AT(saved, a, b);
}

static dp_status solve_state(solver *s, int r, int a, int d, int b_end, int c_first, double *best, int *choice) {
  const sim_partition_tables *t = s->t;
  const int side = t->side, inside = 2 * (t->ranks - r - 1), mirror = 2 * t->ranks - 1 - r;
  const bool relay = s->p->skip_policy == PLAN_SKIP_RELAY;
  for (int b = a + 1; b <= b_end && b + inside < d; b++) {
    /* work and what is saved only grow with b and with falling c: past a bound nothing better follows */
    const double first_s = sim_partition_work_s(t, r, a, b);
    if (first_s > s->cost_bound || (s->goal == SLOWEST && first_s >= *best)) break;
    const int64_t first_bytes = t->limited ? least_bytes(s, r, a, b) : 0;
    if (too_full(s, r, first_bytes, *best)) break;
    for (int c = d - 1; c >= c_first && c >= b + inside; c--) {
      sim_partition_terms terms = {.compute_s = first_s + sim_partition_work_s(t, r, c, d)};
      if (terms.compute_s > s->cost_bound || (s->goal == SLOWEST && terms.compute_s >= *best)) break;
      const double rest = s->value[((r + 1) * side + b) * side + c];
      if (rest >= *best) continue;
      if (t->limited && too_full(s, r, first_bytes + least_bytes(s, mirror, c, d), *best)) break;
      const int at = (b - a) * side + (d - c);
      if (relay) {
        const int64_t from_inside = AT(reaching, c, c) - AT(reaching, b, c), from_outside = AT(used, a, d);
        terms.received = from_outside + from_inside;
        terms.sent = AT(used, b, c) + AT(reaching, d, d) - AT(reaching, a, d);
        terms.chain_s =
            (r ? sim_partition_hop_s(s->p, r, from_outside) : 0) + sim_partition_hop_s(s->p, mirror, from_inside);
      } else {
        terms.received = AT(used, a, b) + AT(used, c, d) - s->both[at];
        terms.sent = s->inner[b * side + c] + AT(reaching, b, d) - AT(reaching, a, d) + AT(reaching, d, d) -
                     AT(reaching, c, d) + (d < t->places ? t->chain_saving[d] : 0);
        terms.chain_s =
            (r ? sim_partition_hop_s(s->p, r, t->chain[a]) : 0) + sim_partition_hop_s(s->p, mirror, t->chain[c]);
      }
      terms.local_gradient = s->local[at];
      terms.memory = sim_partition_chunk_bytes(t, r, a, b) + sim_partition_chunk_bytes(t, mirror, c, d);
      double total;
      DP_TRY(combine(s, r, &terms, AT(used_skips, a, b) + AT(used_skips, c, d) - s->both_skips[at], rest, *best, a, b,
                     c, d, &total));
      if (total >= *best) continue;
      *best = total;
      *choice = b * side + c;
    }
  }
  return DP_OK;
}

/* Whether ranks with the speeds [from, to) can do `work_s` (in seconds of rank 0) within the bound. */
static bool can_do(const solver *s, double work_s, int from, int to) {
  return !(work_s * (1 - 1e-9) > s->cost_bound * (s->fast_s[to] - s->fast_s[from]) * tie);
}

/* Lower bound of the bytes of any chunks that [a, b) is divided into: a tensor that two of them save counts twice. */
static double bytes_in(const solver *s, int a, int b) {
  return (double)(s->t->persistent[b] - s->t->persistent[a]) + (double)s->least_in_flight * (double)AT(saved, a, b);
}

/* Whether the ranks [from, to) have room for so many bytes. */
static bool can_hold(const solver *s, double bytes, int from, int to) {
  return !s->t->limited || bytes <= s->room_bytes[to] - s->room_bytes[from] + (double)s->over_bound * (to - from);
}

/* Whether some rank could have the chunk, by its memory. */
static bool some_rank_holds(const solver *s, bool second, int a, int b) {
  for (int r = 0; r < s->t->ranks; r++)
    if (!too_full(s, r, least_bytes(s, second ? 2 * s->t->ranks - 1 - r : r, a, b), INFINITY)) return true;
  return !s->t->limited;
}

static dp_status solve_folded(solver *s) {
  const sim_partition_tables *t = s->t;
  const int n = t->places, side = t->side, ranks = t->ranks;
  const double *reference = t->prefix_s[0];
  double fastest = 0;
  for (int r = 0; r < ranks; r++) fastest = fmax(fastest, t->speed[r]);
  memset(s->inner, 0, (size_t)side * (size_t)side * sizeof *s->inner);
  for (int a = n - 1; a >= 0; a--) {
    step_outwards(s, a);
    int b_end = a + 1; /* further than any rank can go in the bound */
    while (b_end < n && !((reference[b_end] - reference[a]) * (1 - 1e-9) > s->cost_bound * fastest) &&
           some_rank_holds(s, false, a, b_end))
      b_end++;
    for (int d = a + 2; d <= n; d++) {
      bool ready = false;
      int c_first = d - 1;
      for (int r = ranks - 1; r >= 0; r--) {
        double *best = &s->value[(r * side + a) * side + d];
        int *choice = &s->next[(r * side + a) * side + d];
        *best = INFINITY;
        *choice = 0;
        if (r > a || r > n - d || d - a < 2 * (ranks - r) || (r == 0 && (a > 0 || d < n))) continue;
        const double inside_s = reference[d] - reference[a];
        if (!can_do(s, inside_s, r, ranks) || !can_do(s, reference[n] - inside_s, 0, r)) continue;
        if (!can_hold(s, bytes_in(s, a, d), r, ranks) || !can_hold(s, bytes_in(s, 0, a) + bytes_in(s, d, n), 0, r))
          continue;
        if (r == ranks - 1) {
          DP_TRY(solve_middle(s, a, d, best, choice));
          continue;
        }
        if (!ready) {
          while (c_first > a + 1 && !((reference[d] - reference[c_first]) * (1 - 1e-9) > s->cost_bound * fastest) &&
                 some_rank_holds(s, true, c_first, d))
            c_first--;
          fill_window(s, a, d, b_end < d ? b_end : d, c_first);
          ready = true;
        }
        DP_TRY(solve_state(s, r, a, d, b_end, c_first, best, choice));
      }
    }
  }
  return DP_OK;
}

static void read_folded(const solver *s, int *cuts) {
  const int side = s->t->side, chunks = s->t->chunks;
  int a = 0, d = s->t->places;
  for (int r = 0; r < s->t->ranks; r++) {
    const int choice = s->next[(r * side + a) * side + d];
    a = choice / side;
    d = choice % side;
    cuts[r] = a;
    if (chunks - 2 - r > r) cuts[chunks - 2 - r] = d;
  }
}

/* ---- bounds, raised until a split lies under them ---- */

static dp_status solve(solver *s, objective goal, double cost_bound, int64_t over_bound, double *value) {
  s->goal = goal;
  s->cost_bound = cost_bound;
  s->over_bound = over_bound;
  if (s->p->folded) {
    DP_TRY(solve_folded(s));
    *value = s->value[s->t->places];
  } else {
    DP_TRY(solve_straight(s));
    *value = s->value[(s->t->ranks - 1) * s->t->side + s->t->places];
  }
  return DP_OK;
}

/* The least slowest worker; INFINITY when no split is allowed. */
static dp_status least_slowest(solver *s, int64_t over_bound, double *slowest_s) {
  const sim_partition_tables *t = s->t;
  double worst_s = 0;
  for (int r = 0; r < t->ranks; r++) worst_s = fmax(worst_s, t->prefix_s[r][t->places]);
  const double least_s = t->prefix_s[0][t->places] / s->fast_s[t->ranks];
  if (s->p->folded && least_s > 0)
    for (double more = 0.04; least_s * (1 + more) < worst_s; more *= 2) {
      DP_TRY(solve(s, SLOWEST, least_s * (1 + more), over_bound, slowest_s));
      if (*slowest_s < INFINITY) return DP_OK;
    }
  return solve(s, SLOWEST, INFINITY, over_bound, slowest_s);
}

/* No split is over its limits by less: even were all ranks equally full. */
static double least_over(const solver *s) {
  return (bytes_in(s, 0, s->t->places) - s->room_bytes[s->t->ranks]) / s->t->ranks;
}

static dp_status least_fullest(solver *s, double *over_bytes) {
  int64_t limit = 0;
  for (int r = 0; r < s->t->ranks; r++)
    if (limit_of(s, r) > limit) limit = limit_of(s, r);
  const double least = fmax(least_over(s), 0), step = (double)limit / 64 + least / 16 + 1;
  if (s->p->folded)
    for (double more = step; more < 1000 * step; more *= 2) {
      DP_TRY(solve(s, FULLEST, INFINITY, (int64_t)(least + more), over_bytes));
      if (*over_bytes < INFINITY) return DP_OK;
    }
  return solve(s, FULLEST, INFINITY, INT64_MAX, over_bytes);
}

/* `none`: no split keeps skips local. */
static dp_status solve_all(solver *s, int *cuts, bool *none) {
  double slowest_s = INFINITY, over_bytes, sum;
  int64_t over_bound = 0;
  *none = false;
  if (!s->t->limited || least_over(s) <= 0) DP_TRY(least_slowest(s, over_bound, &slowest_s));
  if (slowest_s == INFINITY && s->t->limited) {
    DP_TRY(least_fullest(s, &over_bytes));
    *none = over_bytes == INFINITY;
    if (*none) return DP_OK;
    over_bound = (int64_t)over_bytes;
    DP_TRY(least_slowest(s, over_bound, &slowest_s));
  }
  *none = slowest_s == INFINITY;
  if (*none) return DP_OK;
  DP_TRY(solve(s, EVEN, slowest_s * tie, over_bound, &sum));
  if (s->p->folded)
    read_folded(s, cuts);
  else
    read_straight(s, cuts);
  return DP_OK;
}

static dp_status make_room(solver *s) {
  sim_partition_tables *t = s->t;
  const size_t side = (size_t)t->side, states = (size_t)t->ranks * side * (s->p->folded ? side : 1);
  const size_t square = s->p->folded ? side * side : 0;
  const size_t crossings = s->p->folded ? (size_t)t->crossing_count : 0;
  s->value = DP_ARENA_NEW(&t->arena, double, states);
  s->next = DP_ARENA_NEW(&t->arena, int, states);
  s->fast_s = DP_ARENA_NEW(&t->arena, double, (size_t)t->ranks + 1);
  s->room_bytes = DP_ARENA_NEW(&t->arena, double, (size_t)t->ranks + 1);
  s->inner = DP_ARENA_NEW(&t->arena, int64_t, square);
  s->both = DP_ARENA_NEW(&t->arena, int64_t, square);
  s->both_skips = DP_ARENA_NEW(&t->arena, int64_t, square);
  s->local = DP_ARENA_NEW(&t->arena, int64_t, square);
  s->last_user = DP_ARENA_NEW(&t->arena, int, crossings *side);
  s->near = DP_ARENA_NEW(&t->arena, int, crossings);
  s->near_first = DP_ARENA_NEW(&t->arena, int, crossings);
  if (!s->value || !s->next || !s->fast_s || !s->room_bytes || !s->inner || !s->both || !s->both_skips || !s->local ||
      !s->last_user || !s->near || !s->near_first)
    return dp_fail_memory(s->error);
  s->least_in_flight = sim_partition_in_flight(s->p, 0);
  for (int c = 1; c < t->chunks; c++)
    if (sim_partition_in_flight(s->p, c) < s->least_in_flight) s->least_in_flight = sim_partition_in_flight(s->p, c);
  for (int r = 0; r < t->ranks; r++) {
    s->fast_s[r + 1] = s->fast_s[r] + t->speed[r];
    s->room_bytes[r + 1] = s->room_bytes[r] + (double)(limit_of(s, r) - (s->p->fixed_bytes ? s->p->fixed_bytes[r] : 0));
  }
  for (size_t i = 0; i < crossings; i++)
    for (int d = 0; d <= t->places; d++) {
      int *last = &s->last_user[i * side + (size_t)d];
      *last = -1;
      for (int u = 0; u < t->crossings[i].user_count && t->crossings[i].users[u] < d; u++)
        *last = t->crossings[i].users[u];
    }
  return DP_OK;
}

static dp_status judge(sim_partition_tables *t, const int *cuts, sim_partition_load *out, sim_partition_result *result,
                       dp_error *error) {
  sim_partition_load *loads = out ? out : DP_ARENA_NEW(&t->arena, sim_partition_load, (size_t)t->ranks);
  int *scratch = DP_ARENA_NEW(&t->arena, int, sim_partition_scratch_size(t));
  if (!loads || !scratch) return dp_fail_memory(error);
  DP_TRY(sim_partition_loads(t, cuts, scratch, loads, error));
  result->over_rank = -1;
  for (int r = 0; r < t->ranks; r++) {
    const int64_t over = t->limited ? loads[r].memory_bytes - sim_partition_limit(t->problem, r) : 0;
    if (over > result->over_bytes) {
      result->over_bytes = over;
      result->over_rank = r;
    }
    if (r && loads[r].cost_s <= result->slowest_s) continue;
    result->slowest_s = loads[r].cost_s;
    result->slowest_rank = r;
  }
  result->feasible = result->over_rank < 0 && !result->skips_travel;
  return DP_OK;
}

static int most_places(const sim_partition_problem *p) {
  return p->folded ? SIM_PARTITION_PLACES : 4 * SIM_PARTITION_PLACES;
}

dp_status sim_partition_solve(const sim_partition_problem *problem, int *cuts, sim_partition_load *loads,
                              sim_partition_result *result, dp_error *error) {
  sim_partition_tables tables;
  DP_TRY(sim_partition_tables_build(problem, most_places(problem), &tables, error));
  sim_partition_problem direct = *problem;
  sim_partition_result found = {.exact = tables.places == (int)problem->graph->units.count};
  solver s = {.t = &tables, .p = problem, .error = error};
  const bool interleaved = !problem->folded && problem->chunks_per_rank > 1;
  bool none = false, exact = true;
  dp_status status = make_room(&s);
  found.impossible = status == DP_OK && problem->only_if_possible && tables.limited && least_over(&s) > 0;
  while (!found.impossible) {
    if (status == DP_OK)
      status =
          interleaved ? sim_partition_interleaved(&tables, cuts, &exact, &none, error) : solve_all(&s, cuts, &none);
    if (status != DP_OK || !none || found.skips_travel) break;
    found.skips_travel = true;
    direct.skip_policy = PLAN_SKIP_DIRECT; /* moves the same bytes: the tables stand */
    tables.problem = s.p = &direct;
  }
  found.exact = found.exact && exact;
  if (status == DP_OK && !found.impossible) status = judge(&tables, cuts, loads, &found, error);
  if (status == DP_OK) {
    for (int c = 0; !found.impossible && c + 1 < tables.chunks; c++) cuts[c] = tables.first_unit[cuts[c]];
    *result = found;
  }
  sim_partition_tables_free(&tables);
  return status;
}

dp_status sim_partition_evaluate(const sim_partition_problem *problem, const int *cuts, sim_partition_load *loads,
                                 dp_error *error) {
  enum { ALL = 4 * SIM_PARTITION_PLACES };
  sim_partition_tables tables;
  const int units = (int)problem->graph->units.count, chunks = problem->ranks * problem->chunks_per_rank;
  if (units > ALL)
    return dp_fail(error, DP_BAD_INPUT, "%d units to evaluate a split of, allowed: at most %d", units, ALL);
  for (int c = 0; c + 1 < chunks; c++)
    if (cuts[c] <= (c ? cuts[c - 1] : 0) || cuts[c] >= units)
      return dp_fail(error, DP_BAD_INPUT, "cut %d at unit %d of %d, allowed: ascending, a unit for each chunk", c,
                     cuts[c], units);
  DP_TRY(sim_partition_tables_build(problem, ALL, &tables, error));
  int *scratch = DP_ARENA_NEW(&tables.arena, int, sim_partition_scratch_size(&tables));
  const dp_status status = scratch ? sim_partition_loads(&tables, cuts, scratch, loads, error) : dp_fail_memory(error);
  sim_partition_tables_free(&tables);
  return status;
}
