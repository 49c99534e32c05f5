/* Interleaved placement. A rank's cost joins chunks that lie far apart, so no dynamic program over cut points decides
 * it: a local search finds a good split, and branch and bound over all splits improves it or proves it the best. */
#include <math.h>
#include <string.h>

#include "sim/partition_tables.h"

/* Steps of the proof. All splits of 12 units take less than half of them. */
enum { STEP_LIMIT = 100000, STEPS_A_SPLIT = 100, ROUND_LIMIT = 50 };

static const double tie = 1 + 1e-12;

/* How good a split is: less over the limit, then faster, then more even. */
typedef struct worth {
  bool allowed; /* no skip travels that may not */
  int64_t over_bytes;
  double slowest_s, squares;
} worth;

typedef struct search {
  sim_partition_tables *t;
  dp_error *error;
  int *cuts, *best_cuts, *scratch;
  double *rank_s; /* [rank] of the chunks that are set */
  sim_partition_load *loads;
  worth best;
  long steps;
} search;

static bool better(const worth *a, const worth *b) {
  if (a->allowed != b->allowed) return a->allowed;
  if (a->over_bytes != b->over_bytes) return a->over_bytes < b->over_bytes;
  if (a->slowest_s * tie < b->slowest_s) return true;
  if (a->slowest_s > b->slowest_s * tie) return false;
  return a->squares * tie < b->squares;
}

/* Judges s->cuts and takes them when they are better than the best so far. */
static dp_status judge(search *s, bool *taken) {
  const sim_partition_problem *p = s->t->problem;
  worth w = {.allowed = true};
  DP_TRY(sim_partition_loads(s->t, s->cuts, s->scratch, s->loads, s->error));
  for (int r = 0; r < s->t->ranks; r++) {
    const sim_partition_load *load = &s->loads[r];
    const int64_t over = s->t->limited ? load->memory_bytes - sim_partition_limit(p, r) : 0;
    if (over > w.over_bytes) w.over_bytes = over;
    if (p->skip_policy == PLAN_SKIP_LOCAL && load->received_skips > 0) w.allowed = false;
    w.slowest_s = fmax(w.slowest_s, load->cost_s);
    w.squares += load->cost_s * load->cost_s;
  }
  *taken = better(&w, &s->best);
  if (!*taken) return DP_OK;
  s->best = w;
  memcpy(s->best_cuts, s->cuts, (size_t)s->t->chunks * sizeof *s->cuts);
  return DP_OK;
}

/* Moves one cut, or two together, as long as that helps. */
static dp_status improve(search *s) {
  const int cuts = s->t->chunks - 1;
  for (int round = 0; round < ROUND_LIMIT; round++) {
    bool moved = false, taken;
    for (int first = 0; first < cuts; first++)
      for (int count = 1; count <= 2 && first + count <= cuts; count++)
        for (int by = -3; by <= 3; by++) {
          memcpy(s->cuts, s->best_cuts, (size_t)s->t->chunks * sizeof *s->cuts);
          for (int c = first; c < first + count; c++) s->cuts[c] += by;
          const int before = first ? s->cuts[first - 1] : 0, last = first + count - 1;
          const int after = last + 1 < cuts ? s->cuts[last + 1] : s->t->places;
          if (by == 0 || s->cuts[first] <= before || s->cuts[last] >= after) continue;
          DP_TRY(judge(s, &taken));
          moved = moved || taken;
        }
    if (!moved) break;
  }
  return DP_OK;
}

/* Every split whose first `chunk` chunks stand, as far as their work alone leaves hope. */
static dp_status branch(search *s, int chunk) {
  const sim_partition_tables *t = s->t;
  const int first = chunk ? s->cuts[chunk - 1] : 0, rank = sim_partition_chunk_rank(t->problem, chunk);
  const double before_s = s->rank_s[rank];
  const bool last = chunk + 1 == t->chunks;
  for (int end = last ? t->places : first + 1; end <= t->places - (t->chunks - 1 - chunk); end++) {
    if (s->steps >= STEP_LIMIT) break;
    s->steps++;
    s->rank_s[rank] = before_s + sim_partition_work_s(t, rank, first, end);
    const bool can_win_by_time = s->best.allowed && s->best.over_bytes == 0;
    if (can_win_by_time && s->rank_s[rank] > s->best.slowest_s * tie * tie) break; /* longer chunks cost more */
    if (last) {
      bool taken;
      s->steps += STEPS_A_SPLIT;
      DP_TRY(judge(s, &taken));
      break;
    }
    /* what is left must go into what the ranks have left */
    double room_s = 0;
    for (int r = 0; can_win_by_time && r < t->ranks; r++)
      room_s += (s->best.slowest_s * tie - s->rank_s[r]) * t->speed[r];
    if (can_win_by_time && (t->prefix_s[0][t->places] - t->prefix_s[0][end]) * (1 - 1e-9) > room_s * (1 + 1e-9))
      continue;
    s->cuts[chunk] = end;
    DP_TRY(branch(s, chunk + 1));
  }
  s->rank_s[rank] = before_s;
  return DP_OK;
}

dp_status sim_partition_interleaved(sim_partition_tables *t, int *cuts, bool *exact, bool *none, dp_error *error) {
  search s = {.t = t, .error = error, .best = {.over_bytes = INT64_MAX, .slowest_s = INFINITY, .squares = INFINITY}};
  double *place_s = DP_ARENA_NEW(&t->arena, double, (size_t)t->places),
         *speed = DP_ARENA_NEW(&t->arena, double, (size_t)t->chunks);
  s.cuts = DP_ARENA_NEW(&t->arena, int, (size_t)t->chunks);
  s.best_cuts = DP_ARENA_NEW(&t->arena, int, (size_t)t->chunks);
  s.scratch = DP_ARENA_NEW(&t->arena, int, sim_partition_scratch_size(t));
  s.rank_s = DP_ARENA_NEW(&t->arena, double, (size_t)t->ranks);
  s.loads = DP_ARENA_NEW(&t->arena, sim_partition_load, (size_t)t->ranks);
  if (!place_s || !speed || !s.cuts || !s.best_cuts || !s.scratch || !s.rank_s || !s.loads)
    return dp_fail_memory(error);
  for (int i = 0; i < t->places; i++) place_s[i] = sim_partition_work_s(t, 0, i, i + 1);
  for (int c = 0; c < t->chunks; c++) {
    const double whole_s = t->prefix_s[sim_partition_chunk_rank(t->problem, c)][t->places];
    speed[c] = whole_s > 0 && t->prefix_s[0][t->places] > 0 ? t->prefix_s[0][t->places] / whole_s : 1;
  }
  DP_TRY(plan_split_balanced(place_s, t->places, t->chunks, speed, s.cuts, error));
  bool taken;
  DP_TRY(judge(&s, &taken));
  if (!taken) memcpy(s.best_cuts, s.cuts, (size_t)t->chunks * sizeof *cuts);
  DP_TRY(improve(&s));
  DP_TRY(branch(&s, 0));
  *exact = s.steps < STEP_LIMIT;
  *none = !s.best.allowed;
  memcpy(cuts, s.best_cuts, (size_t)(t->chunks - 1) * sizeof *cuts);
  return DP_OK;
}
