/* Cut points. Two exact dynamic programs: contiguous chunks in a row, and folded pairs from the outside in. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* Costs are sums of doubles: what differs by less than this is a tie. */
static const double tie = 1 + 1e-12;

/* ---- contiguous chunks ---- */

typedef struct row_split {
  const double *prefix; /* [units + 1] */
  const double *speed;  /* NULL: all 1 */
  int units, chunks;
} row_split;

static double chunk_s(const row_split *s, int chunk, int first, int end) {
  return (s->prefix[end] - s->prefix[first]) / (s->speed ? s->speed[chunk] : 1);
}

/* The least possible largest chunk. best[j] after round c: over splits of the first c + 1 + j units into c + 1 chunks
 * (each has a unit, which leaves units - chunks + 1 values of j). The last chunk's cost falls in its first unit; with
 * equal speeds best never falls in j, so the best place is where the two meet, found by halving. With unlike speeds a
 * chunk before it may get cheaper with more units, so every place is tried. */
static double least_largest(const row_split *s, bool halve, double *best, double *next) {
  const int slack = s->units - s->chunks;
  for (int j = 0; j <= slack; j++) best[j] = chunk_s(s, 0, 0, j + 1);
  for (int c = 1; c < s->chunks; c++) {
    for (int j = 0; j <= slack; j++) { /* end = c + 1 + j; its first unit from c to c + j */
      int low = 0, high = j;
      while (halve && low < high) { /* the first place where the chunks before it cost no less than it does */
        const int middle = (low + high) / 2;
        if (best[middle] >= chunk_s(s, c, c + middle, c + 1 + j))
          high = middle;
        else
          low = middle + 1;
      }
      const int from = halve ? (low > 0 ? low - 1 : 0) : 0;
      next[j] = INFINITY;
      for (int i = halve ? low : j; i >= from; i--) {
        const double last = chunk_s(s, c, c + i, c + 1 + j);
        if (last >= next[j]) break; /* earlier starts cost more */
        next[j] = fmin(next[j], fmax(best[i], last));
      }
    }
    double *swap = best;
    best = next;
    next = swap;
  }
  return best[slack];
}

/* Of all splits whose largest chunk is at most `limit`, the one with the least sum of squares (the most even), ties to
 * the earliest cut. square[c][j], from[c][j] with j as above. */
static void most_even(const row_split *s, double limit, double *square, int *from, int *cuts) {
  const int slack = s->units - s->chunks, width = slack + 1;
  for (int j = 0; j <= slack; j++) {
    const double cost = chunk_s(s, 0, 0, j + 1);
    square[j] = cost <= limit ? cost * cost : INFINITY;
  }
  for (int c = 1; c < s->chunks; c++)
    for (int j = 0; j <= slack; j++) {
      double least = INFINITY;
      int at = 0;
      for (int i = j; i >= 0; i--) {
        const double cost = chunk_s(s, c, c + i, c + 1 + j);
        if (cost > limit) break; /* earlier starts cost more */
        const double sum = square[(c - 1) * width + i] + cost * cost;
        if (sum <= least * tie) {
          least = fmin(least, sum);
          at = i;
        }
      }
      square[c * width + j] = least;
      from[c * width + j] = at;
    }
  for (int c = s->chunks - 1, j = slack; c > 0; c--) {
    j = from[c * width + j];
    cuts[c - 1] = c + j;
  }
}

/* Fills chunks up to the limit from the left, leaving a unit for each chunk to come; for too many units to be even. */
static void first_fit(const row_split *s, double limit, int *cuts) {
  int first = 0;
  for (int c = 0; c + 1 < s->chunks; c++) {
    int end = first + 1;
    while (end < s->units - (s->chunks - 1 - c) && chunk_s(s, c, first, end + 1) <= limit) end++;
    cuts[c] = first = end;
  }
}

dp_status plan_split_balanced(const double *unit_cost, int unit_count, int chunk_count, const double *speed, int *cuts,
                              dp_error *error) {
  enum {
    EVEN_LIMIT = 20000000,
    TRY_LIMIT = 1000000000
  }; /* steps that making it even, and trying every place, may take */
  if (chunk_count < 1 || chunk_count > unit_count)
    return dp_fail(error, DP_BAD_INPUT, "%d chunks of %d units, allowed: at most as many chunks as units", chunk_count,
                   unit_count);
  dp_arena arena = {0};
  const size_t n = (size_t)unit_count, width = n - (size_t)chunk_count + 1;
  double *prefix = DP_ARENA_NEW(&arena, double, n + 1), *a = DP_ARENA_NEW(&arena, double, width);
  double *b = DP_ARENA_NEW(&arena, double, width);
  dp_status status = prefix && a && b ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    for (size_t u = 0; u < n; u++) prefix[u + 1] = prefix[u] + unit_cost[u];
    const row_split s = {prefix, speed, unit_count, chunk_count};
    const size_t steps = width * width / 2 * (size_t)chunk_count;
    const double limit = least_largest(&s, !speed || steps > TRY_LIMIT, a, b) * tie;
    if (steps <= EVEN_LIMIT) {
      double *square = DP_ARENA_NEW(&arena, double, width *(size_t)chunk_count);
      int *from = DP_ARENA_NEW(&arena, int, width *(size_t)chunk_count);
      if (square && from)
        most_even(&s, limit, square, from, cuts);
      else
        status = dp_fail_memory(error);
    } else {
      first_fit(&s, limit, cuts);
    }
  }
  dp_arena_free(&arena);
  return status;
}

/* ---- folded pairs ---- */

/* Units are joined to at most MAX_PLACES places where a cut may lie, which bounds the work to places^4 / 24 * ranks. */
enum { MAX_PLACES = 120 };

typedef struct fold {
  int places, ranks;
  const double *speed;
  double s_per_byte;
  double *cost;     /* [places + 1] running sum of unit costs */
  double *pair;     /* [places + 1][places + 1] running sums of skip bytes by producer and consumer place */
  double *alone;    /* [b][a], a <= b: skip bytes that cross the edges of the places [a, b) */
  double *boundary; /* [places + 1] bytes that a cut before place i moves to the next unit */
} fold;

static double *pair_at(const fold *f, int u, int c) { return &f->pair[u * (f->places + 1) + c]; }

/* Skip bytes made in [a, b) and used in [c, d). */
static double pair_bytes(const fold *f, int a, int b, int c, int d) {
  return *pair_at(f, b, d) - *pair_at(f, a, d) - *pair_at(f, b, c) + *pair_at(f, a, c);
}

/* Skip bytes that the places [a, b) send or receive: made here and used elsewhere, or the reverse. */
static double alone_bytes(const fold *f, int a, int b) {
  const int n = f->places;
  return pair_bytes(f, a, b, 0, n) + pair_bytes(f, 0, n, a, b) - 2 * pair_bytes(f, a, b, a, b);
}

/* The same of a rank with the places [a, b) and [c, d), b <= c. Sums of whole bytes: exact in any order. */
static double travelling_bytes(const fold *f, int a, int b, int c, int d) {
  const int side = f->places + 1;
  return f->alone[b * side + a] + f->alone[d * side + c] - 2 * pair_bytes(f, a, b, c, d);
}

static double rank_s(const fold *f, int rank, int a, int b, int c, int d) {
  const double work = f->cost[b] - f->cost[a] + f->cost[d] - f->cost[c];
  return work / (f->speed ? f->speed[rank] : 1) + f->s_per_byte * travelling_bytes(f, a, b, c, d);
}

/* value[r][a][d]: the best of ranks r.. for the places [a, d). With limit < 0 the value is the largest rank's cost;
 * otherwise the bytes moved by splits whose ranks all cost at most `limit`. Nothing above `bound` is looked at. next:
 * the choice (b, c) that reaches the value. */
static void solve(const fold *f, double limit, double bound, double *value, int *next) {
  const int n = f->places, side = n + 1;
  double speed_here = 0, speed_outside = 0; /* of the ranks r.. and of those before r */
  for (int r = 0; r < f->ranks; r++) speed_outside += f->speed ? f->speed[r] : 1;
  for (int r = f->ranks - 1; r >= 0; r--) {
    speed_here += f->speed ? f->speed[r] : 1;
    speed_outside -= f->speed ? f->speed[r] : 1;
    for (int a = r; a <= n; a++)
      for (int d = n - r; d >= a + 2 * (f->ranks - r); d--) {
        double *best = &value[(r * side + a) * side + d];
        int *choice = &next[(r * side + a) * side + d];
        *best = INFINITY;
        *choice = 0;
        /* more work inside, or outside, than the ranks there can do within the bound */
        const double inside = f->cost[d] - f->cost[a];
        if (inside > bound * speed_here || f->cost[n] - inside > bound * speed_outside * tie + bound * 1e-9) continue;
        if (r == f->ranks - 1) { /* the innermost rank takes all that is left */
          const double cost = rank_s(f, r, a, d, d, d);
          *best = limit < 0 ? cost : cost <= limit ? travelling_bytes(f, a, d, d, d) / 2 : INFINITY;
          continue;
        }
        const double speed = f->speed ? f->speed[r] : 1;
        for (int b = a + 1; b + 1 < d; b++) {
          /* work only grows with b and with falling c: past the bound nothing better follows */
          const double outer_s = (f->cost[b] - f->cost[a]) / speed;
          if (outer_s >= *best && limit < 0) break;
          if (outer_s > bound) break;
          const double *rests = &value[((r + 1) * side + b) * side], *alone = &f->alone[d * side];
          const double *before_a = pair_at(f, a, 0), *before_b = pair_at(f, b, 0);
          const double outer_bytes = f->alone[b * side + a], both_bytes = before_b[d] - before_a[d];
          for (int c = d - 1; c >= b + 2 * (f->ranks - r - 1); c--) {
            const double inner_s = (f->cost[d] - f->cost[c]) / speed;
            if (outer_s + inner_s >= *best && limit < 0) break;
            if (outer_s + inner_s > bound) break;
            const double rest = rests[c];
            if (rest >= *best) continue;
            const double moved = outer_bytes + alone[c] - 2 * (both_bytes - before_b[c] + before_a[c]);
            const double work = f->cost[b] - f->cost[a] + f->cost[d] - f->cost[c];
            const double cost = work / speed + f->s_per_byte * moved;
            double total;
            if (limit < 0)
              total = cost > rest ? cost : rest;
            else if (cost > limit)
              continue;
            else
              total = rest + moved / 2 + f->boundary[b] + f->boundary[c];
            if (total < *best) {
              *best = total;
              *choice = b * side + c;
            }
          }
        }
      }
  }
}

/* The largest rank of the balanced split, folded: no optimum is worse. places must be at least 2 * ranks. */
static double folded_bound(const fold *f, double *unit_cost, int *cuts) {
  for (int i = 0; i < f->places; i++) unit_cost[i] = f->cost[i + 1] - f->cost[i];
  if (plan_split_balanced(unit_cost, f->places, 2 * f->ranks, NULL, cuts, NULL) != DP_OK) return INFINITY;
  double most = 0;
  for (int r = 0; r < f->ranks; r++) {
    const int mirror = 2 * f->ranks - 1 - r;
    const double cost = rank_s(f, r, r ? cuts[r - 1] : 0, cuts[r], cuts[mirror - 1],
                               mirror < 2 * f->ranks - 1 ? cuts[mirror] : f->places);
    if (cost > most) most = cost;
  }
  return most;
}

/* Reads the graph's tensors into the tables; place_of maps a unit to its place. */
static void fill(fold *f, const graph *model, const double *unit_cost, const int *place_of) {
  const int n = f->places;
  for (size_t u = 0; u < model->units.count; u++) f->cost[place_of[u] + 1] += unit_cost[u];
  for (int i = 0; i < n; i++) f->cost[i + 1] += f->cost[i];
  for (size_t t = 0; t < model->tensors.count; t++) {
    const graph_tensor *tensor = &model->tensors.items[t];
    if (tensor->producer_unit == GRAPH_NONE) continue;
    const int made = place_of[tensor->producer_unit];
    for (int i = 0; i < tensor->consumer_unit_count; i++) {
      const int used = place_of[tensor->consumer_units[i]];
      if (used <= made) continue;
      if (tensor->consumer_units[i] == tensor->producer_unit + 1)
        f->boundary[used] += (double)tensor->bytes;
      else
        *pair_at(f, made + 1, used + 1) += (double)tensor->bytes;
    }
  }
  for (int u = 1; u <= n; u++)
    for (int c = 1; c <= n; c++)
      *pair_at(f, u, c) += *pair_at(f, u - 1, c) + *pair_at(f, u, c - 1) - *pair_at(f, u - 1, c - 1);
  for (int b = 0; b <= n; b++)
    for (int a = 0; a <= b; a++) f->alone[b * (n + 1) + a] = alone_bytes(f, a, b);
}

static void read_cuts(const fold *f, const int *next, const int *first_unit, int *cuts) {
  const int side = f->places + 1, chunks = 2 * f->ranks;
  int a = 0, d = f->places;
  for (int r = 0; r + 1 < f->ranks; r++) {
    const int choice = next[(r * side + a) * side + d];
    a = choice / side;
    d = choice % side;
    cuts[r] = first_unit[a];
    cuts[chunks - 2 - r] = first_unit[d];
  }
  int middle = a + 1; /* where the innermost rank's two chunks meet is free: in half */
  while (middle + 1 < d && f->cost[middle] - f->cost[a] < (f->cost[d] - f->cost[a]) / 2) middle++;
  cuts[f->ranks - 1] = first_unit[middle];
}

dp_status plan_split_folded(const graph *model, const double *unit_cost, int ranks, double skip_s_per_byte,
                            const double *speed, int *cuts, dp_error *error) {
  const int units = (int)model->units.count;
  if (ranks < 1 || 2 * ranks > units)
    return dp_fail(error, DP_BAD_INPUT, "%d folded stages of %d units, allowed: at most %d", ranks, units, units / 2);
  if (2 * ranks > MAX_PLACES) /* so many stages leave nothing to choose: one chunk after another */
    return plan_split_balanced(unit_cost, units, 2 * ranks, NULL, cuts, error);
  dp_arena arena = {0};
  fold f = {
      .places = units < MAX_PLACES ? units : MAX_PLACES, .ranks = ranks, .speed = speed, .s_per_byte = skip_s_per_byte};
  const size_t side = (size_t)f.places + 1, states = (size_t)ranks * side * side;
  int *place_of = DP_ARENA_NEW(&arena, int, units), *first_unit = DP_ARENA_NEW(&arena, int, side);
  int *joined = DP_ARENA_NEW(&arena, int, f.places), *next = DP_ARENA_NEW(&arena, int, states);
  double *value = DP_ARENA_NEW(&arena, double, states), *scratch = DP_ARENA_NEW(&arena, double, side);
  f.cost = DP_ARENA_NEW(&arena, double, side);
  f.boundary = DP_ARENA_NEW(&arena, double, side);
  f.pair = DP_ARENA_NEW(&arena, double, side *side);
  f.alone = DP_ARENA_NEW(&arena, double, side *side);
  dp_status status = place_of && first_unit && joined && next && value && scratch && f.cost && f.boundary && f.pair && f.alone
                         ? DP_OK
                         : dp_fail_memory(error);
  if (status == DP_OK) status = plan_split_balanced(unit_cost, units, f.places, NULL, joined, error);
  if (status == DP_OK) {
    for (int u = 0, place = 0; u < units; u++) {
      if (place + 1 < f.places && u == joined[place]) place++;
      if (u == 0 || place != place_of[u - 1]) first_unit[place] = u;
      place_of[u] = place;
    }
    first_unit[f.places] = units;
    fill(&f, model, unit_cost, place_of);
    const double bound = folded_bound(&f, scratch, joined) * tie;
    solve(&f, -1, bound, value, next);
    const double limit = value[f.places] * 1.02;
    solve(&f, limit, limit, value, next);
    read_cuts(&f, next, first_unit, cuts);
  }
  dp_arena_free(&arena);
  return status;
}
