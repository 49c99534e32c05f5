/* The partitioner against exhaustive search, with terms worked out here unit by unit and tensor by tensor. */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "plan/traffic.h"
#include "sim/partition.h"
#include "tests/graph_helpers.h"

enum { MAX_UNITS = 12, MAX_RANKS = 4, MAX_TENSORS = 4 * MAX_UNITS, ROOM = 128 };

/* ---- the formulas of the header, once more ---- */

typedef struct split {
  const sim_partition_problem *p;
  int units, chunks, first[ROOM], end[ROOM], chunk_of[ROOM];
} split;

static split split_of(const sim_partition_problem *p, const int *cuts) {
  split s = {.p = p, .units = (int)p->graph->units.count, .chunks = p->ranks * p->chunks_per_rank};
  for (int c = 0; c < s.chunks; c++) {
    s.first[c] = c ? cuts[c - 1] : 0;
    s.end[c] = c + 1 < s.chunks ? cuts[c] : s.units;
    for (int u = s.first[c]; u < s.end[c]; u++) s.chunk_of[u] = c;
  }
  return s;
}
static int rank_of(const split *s, int chunk) {
  return s->p->folded && chunk >= s->p->ranks ? 2 * s->p->ranks - 1 - chunk : chunk % s->p->ranks;
}
static const graph_tensor *tensor_of(const split *s, size_t i) { return &s->p->graph->tensors.items[i]; }
static bool uses(const graph_tensor *t, int first, int end) {
  for (int i = 0; i < t->consumer_unit_count; i++)
    if (t->consumer_units[i] >= first && t->consumer_units[i] < end) return true;
  return false;
}
static bool chunk_uses(const split *s, const graph_tensor *t, int chunk) {
  return uses(t, s->first[chunk], s->end[chunk]);
}
/* Its first unit is next to the maker and uses the tensor. */
static bool is_next(const split *s, const graph_tensor *t, int chunk) {
  return s->first[chunk] == t->producer_unit + 1 && uses(t, s->first[chunk], s->first[chunk] + 1);
}
static int64_t wire_bytes(const split *s, size_t tensor, bool next) {
  const graph_tensor *t = tensor_of(s, tensor);
  if (next || s->p->skip_policy != PLAN_SKIP_COMPRESS || t->rank < 4) return t->bytes;
  const int64_t packed = t->dims[0] * s->p->k * graph_dtype_bytes(t->dtype);
  return packed < t->bytes ? packed : t->bytes;
}
/* First chunk of the rank that uses the tensor, after its maker's; -1 for none or where the rank makes it. */
static int receives_at(const split *s, const graph_tensor *t, int rank) {
  const int made = s->chunk_of[t->producer_unit];
  if (rank_of(s, made) == rank) return -1;
  for (int c = made + 1; c < s->chunks; c++)
    if (rank_of(s, c) == rank && chunk_uses(s, t, c)) return c;
  return -1;
}

typedef struct terms {
  double cost_s[MAX_RANKS], slowest_s, squares;
  int64_t received[MAX_RANKS], sent[MAX_RANKS], memory[MAX_RANKS], over_bytes;
  int skips;
} terms;

static void count_direct(const split *s, size_t i, terms *t, int64_t *chain) {
  const graph_tensor *tensor = tensor_of(s, i);
  const int made = s->chunk_of[tensor->producer_unit], maker = rank_of(s, made);
  for (int r = 0; r < s->p->ranks; r++) {
    const int at = receives_at(s, tensor, r);
    if (at < 0) continue;
    t->received[r] += wire_bytes(s, i, is_next(s, tensor, at));
    t->skips += !is_next(s, tensor, at) && !graph_tensor_is_vector(tensor);
    if (is_next(s, tensor, at)) chain[at] += tensor->bytes;
  }
  for (int c = made; c < s->chunks; c++) { /* a stretch begins after each chunk of the maker's rank */
    if (rank_of(s, c) != maker) continue;
    int end = c + 1;
    bool got = false;
    for (; end < s->chunks && rank_of(s, end) != maker; end++)
      got = got || receives_at(s, tensor, rank_of(s, end)) == end;
    if (got) t->sent[maker] += wire_bytes(s, i, is_next(s, tensor, c + 1));
  }
}

static void count_relay(const split *s, size_t i, terms *t, int64_t *chain) {
  const graph_tensor *tensor = tensor_of(s, i);
  bool has[MAX_RANKS] = {false};
  has[rank_of(s, s->chunk_of[tensor->producer_unit])] = true;
  for (int c = s->chunk_of[tensor->producer_unit] + 1; c < s->chunks; c++) {
    if (!chunk_uses(s, tensor, c) || has[rank_of(s, c)]) continue;
    int from = c;
    while (!has[rank_of(s, from)]) from--;
    for (int to = from + 1; !has[rank_of(s, c)]; to++) {
      if (has[rank_of(s, to)]) continue;
      has[rank_of(s, to)] = true;
      t->sent[rank_of(s, to - 1)] += tensor->bytes;
      t->received[rank_of(s, to)] += tensor->bytes;
      chain[to] += tensor->bytes;
    }
  }
}

static bool saved_in(const split *s, const graph_tensor *t, int first, int end, bool *anywhere) {
  bool here = false;
  for (int u = 0; u < s->units; u++) {
    const bool again = s->p->recompute && s->p->recompute[u];
    bool keeps = again && u != t->producer_unit && uses(t, u, u + 1);
    for (int i = 0; i < t->saver_unit_count; i++) keeps = keeps || (t->saver_units[i] == u && !again);
    if (!keeps || !s->p->training || t->is_constant) continue;
    *anywhere = true;
    here = here || (u >= first && u < end);
  }
  return here;
}

static int64_t chunk_memory(const split *s, int chunk, int64_t *transient_bytes) {
  const sim_partition_problem *p = s->p;
  const graph *g = p->graph;
  const int first = s->first[chunk], end = s->end[chunk];
  int64_t bytes = 0, each = p->training ? graph_saved_bytes(g, first, end - first, p->recompute, NULL) : 0,
          again_bytes = 0;
  bool recomputes = false;
  for (int u = first; u < end; u++) {
    bytes += p->unit_persistent_bytes[u];
    if (p->training) each += p->unit_kept_bytes[u];
    if (!p->recompute || !p->recompute[u]) continue;
    recomputes = true;
    if (g->units.items[u].saved_bytes > again_bytes) again_bytes = g->units.items[u].saved_bytes;
  }
  for (size_t i = 0; i < g->tensors.count; i++) {
    const graph_tensor *t = tensor_of(s, i);
    if (t->producer_unit == GRAPH_NONE) {
      if (chunk_uses(s, t, chunk)) bytes += t->bytes;
      continue;
    }
    if (s->chunk_of[t->producer_unit] != chunk || !(t->is_output || uses(t, end, s->units))) continue;
    bool anywhere = false, saved = saved_in(s, t, first, end, &anywhere);
    for (const graph_tensor *view = t; !anywhere && view->view_of != GRAPH_NONE;) {
      view = tensor_of(s, (size_t)view->view_of);
      if (view->producer_unit != t->producer_unit) break;
      bool root = false;
      saved = saved_in(s, view, first, end, &root) || saved;
    }
    if (!saved) each += t->bytes;
  }
  graph_transients transients;
  ck_assert_int_eq(graph_transient_bytes(g, first, end - first, &transients, NULL), DP_OK);
  int64_t most = p->training && !recomputes ? transients.forward_bytes : transients.inference_bytes;
  if (p->training && transients.backward_bytes + again_bytes > most) most = transients.backward_bytes + again_bytes;
  if (most > *transient_bytes) *transient_bytes = most;
  return bytes + p->in_flight[chunk] * each;
}

static terms terms_of(const sim_partition_problem *p, const int *cuts) {
  const split s = split_of(p, cuts);
  terms t;
  memset(&t, 0, sizeof t);
  int64_t chain[ROOM] = {0}, local[MAX_RANKS] = {0};
  for (size_t i = 0; i < p->graph->tensors.count; i++) {
    const graph_tensor *tensor = tensor_of(&s, i);
    if (tensor->producer_unit == GRAPH_NONE) continue;
    if (p->skip_policy == PLAN_SKIP_RELAY)
      count_relay(&s, i, &t, chain);
    else
      count_direct(&s, i, &t, chain);
    const int made = s.chunk_of[tensor->producer_unit];
    bool here = false;
    for (int c = made + 1; c < s.chunks; c++)
      here = here || (rank_of(&s, c) == rank_of(&s, made) && chunk_uses(&s, tensor, c));
    if (here && tensor->needs_gradient) local[rank_of(&s, made)] += tensor->bytes;
  }
  for (int r = 0; r < p->ranks; r++) {
    double compute_s = 0, chain_s = 0;
    int64_t transient_bytes = 0, memory = p->fixed_bytes[r];
    int first = -1, last = 0;
    for (int c = 0; c < s.chunks; c++) {
      if (rank_of(&s, c) != r) continue;
      if (first < 0) first = c;
      last = c;
      for (int u = s.first[c]; u < s.end[c]; u++) compute_s += p->unit_s[r][u];
      if (c && rank_of(&s, c - 1) != r)
        chain_s += (p->training ? 2 : 1) * (p->hop_latency_s[c] + (double)chain[c] * p->hop_s_per_byte[c]);
      memory += chunk_memory(&s, c, &transient_bytes);
    }
    const int64_t both = t.received[r] + t.sent[r], most = t.received[r] > t.sent[r] ? t.received[r] : t.sent[r];
    const double wire_s = p->wire_s_per_byte[r] * (double)(p->training ? both : most);
    t.cost_s[r] = compute_s + fmax(0, fmax(p->exposed_share * chain_s, wire_s - compute_s));
    t.memory[r] = memory + transient_bytes + 2 * both;
    if (p->training) t.memory[r] += 2 * both;
    if (p->training && p->in_flight[first] > p->in_flight[last])
      t.memory[r] += (p->in_flight[first] - p->in_flight[last]) * local[r];
    t.slowest_s = fmax(t.slowest_s, t.cost_s[r]);
    t.squares += t.cost_s[r] * t.cost_s[r];
    const int64_t over = t.memory[r] - p->memory_limit_bytes[r];
    if (over > t.over_bytes) t.over_bytes = over;
  }
  return t;
}

/* ---- exhaustive search ---- */

typedef struct best {
  bool found;
  terms terms;
} best;

static bool is_better(const terms *a, const terms *b) {
  if (a->over_bytes != b->over_bytes) return a->over_bytes < b->over_bytes;
  if (fabs(a->slowest_s - b->slowest_s) > 1e-11 * b->slowest_s) return a->slowest_s < b->slowest_s;
  return a->squares < b->squares;
}

static void try_all(const sim_partition_problem *p, int *cuts, int at, best *b) {
  const int units = (int)p->graph->units.count, chunks = p->ranks * p->chunks_per_rank;
  if (at == chunks - 1) {
    const terms t = terms_of(p, cuts);
    if ((p->skip_policy == PLAN_SKIP_LOCAL && t.skips) || (b->found && !is_better(&t, &b->terms))) return;
    b->found = true;
    b->terms = t;
    return;
  }
  for (int c = at ? cuts[at - 1] + 1 : 1; c <= units - (chunks - 1 - at); c++) {
    cuts[at] = c;
    try_all(p, cuts, at + 1, b);
  }
}

static int seen_feasible, seen_full, seen_travel;

static void check(const sim_partition_problem *p) {
  int cuts[ROOM] = {0}, tried[ROOM] = {0}, again[ROOM] = {0};
  sim_partition_result result, second;
  sim_partition_load loads[MAX_RANKS];
  dp_error error = DP_ERROR_INIT;
  sim_partition_problem asked = *p;
  ck_assert_msg(sim_partition_solve(p, cuts, NULL, &result, &error) == DP_OK, "%s", error.text);
  ck_assert_int_eq(sim_partition_solve(p, again, loads, &second, NULL), DP_OK);
  ck_assert_int_eq(memcmp(cuts, again, sizeof cuts), 0);
  best b = {0};
  try_all(&asked, tried, 0, &b);
  ck_assert_int_eq(result.skips_travel, !b.found);
  if (!b.found) {
    asked.skip_policy = PLAN_SKIP_DIRECT;
    try_all(&asked, tried, 0, &b);
  }
  ck_assert(result.exact);
  for (int c = 0; c + 1 < p->ranks * p->chunks_per_rank; c++)
    ck_assert(cuts[c] > (c ? cuts[c - 1] : 0) && cuts[c] < (int)p->graph->units.count);
  const terms t = terms_of(&asked, cuts);
  ck_assert_int_eq(result.over_bytes, b.terms.over_bytes);
  ck_assert_double_eq_tol(result.slowest_s, b.terms.slowest_s, 1e-9 * b.terms.slowest_s + 1e-12);
  ck_assert_int_eq(t.over_bytes, b.terms.over_bytes);
  ck_assert_double_eq_tol(t.slowest_s, b.terms.slowest_s, 1e-9 * b.terms.slowest_s + 1e-12);
  ck_assert_double_eq_tol(t.squares, b.terms.squares, 1e-9 * b.terms.squares + 1e-12);
  ck_assert_int_eq(result.feasible, b.terms.over_bytes == 0 && !result.skips_travel);
  ck_assert_int_eq(result.over_rank < 0, b.terms.over_bytes == 0);
  if (result.over_rank >= 0)
    ck_assert_int_eq(t.memory[result.over_rank] - p->memory_limit_bytes[result.over_rank], result.over_bytes);
  ck_assert_int_eq(sim_partition_evaluate(&asked, cuts, loads, NULL), DP_OK);
  for (int r = 0; r < p->ranks; r++) {
    ck_assert_double_eq_tol(loads[r].cost_s, t.cost_s[r], 1e-9 * t.cost_s[r] + 1e-15);
    ck_assert_int_eq(loads[r].received_bytes, t.received[r]);
    ck_assert_int_eq(loads[r].sent_bytes, t.sent[r]);
    ck_assert_int_eq(loads[r].memory_bytes, t.memory[r]);
  }
  seen_feasible += result.feasible;
  seen_full += result.over_rank >= 0;
  seen_travel += result.skips_travel;
}

/* ---- problems ---- */

typedef struct problem_room {
  double unit_s[MAX_RANKS][ROOM], hop_latency_s[ROOM], hop_s_per_byte[ROOM], wire_s_per_byte[MAX_RANKS];
  const double *rank_s[MAX_RANKS];
  int64_t persistent[ROOM], kept[ROOM], fixed[MAX_RANKS], limit[MAX_RANKS];
  uint8_t recompute[ROOM];
  int in_flight[ROOM];
} problem_room;

static int below(dp_random *random, int n) { return (int)dp_random_below(random, (uint64_t)n); }

/* Everything but the graph. Limits lie around what some split takes. scale_bytes: of a usual tensor. */
static sim_partition_problem make_problem(dp_random *random, const graph *model, int ranks, int chunks_per_rank,
                                          bool folded, int64_t scale_bytes, problem_room *room) {
  const int units = (int)model->units.count, chunks = ranks * chunks_per_rank;
  memset(room, 0, sizeof *room);
  sim_partition_problem p = {.graph = model,
                             .ranks = ranks,
                             .chunks_per_rank = chunks_per_rank,
                             .folded = folded,
                             .training = below(random, 3) > 0,
                             .skip_policy = (plan_skip_policy)below(random, PLAN_SKIP_POLICY_COUNT),
                             .k = 1 + below(random, 4),
                             .exposed_share = below(random, 3) / 2.0,
                             .unit_s = room->rank_s,
                             .hop_latency_s = room->hop_latency_s,
                             .hop_s_per_byte = room->hop_s_per_byte,
                             .wire_s_per_byte = room->wire_s_per_byte,
                             .unit_persistent_bytes = room->persistent,
                             .unit_kept_bytes = room->kept,
                             .in_flight = room->in_flight,
                             .fixed_bytes = room->fixed,
                             .memory_limit_bytes = room->limit};
  const bool whole = below(random, 2), alike = below(random, 2), recompute = below(random, 2);
  const double slow_links = below(random, 3) ? 0.05 : 0.5;
  for (int u = 0; u < units; u++) {
    const double cost = whole ? below(random, 4) : dp_random_uniform(random);
    for (int r = 0; r < ranks; r++)
      room->unit_s[r][u] = alike ? cost : cost * (1 + r) / 2 + (below(random, 4) ? 0 : dp_random_uniform(random));
    room->persistent[u] = below(random, 8) * scale_bytes;
    room->kept[u] = below(random, 2) * scale_bytes;
    room->recompute[u] = (uint8_t)below(random, 2);
  }
  if (recompute) p.recompute = room->recompute;
  for (int r = 0; r < ranks; r++) {
    room->rank_s[r] = room->unit_s[r];
    room->wire_s_per_byte[r] = slow_links * dp_random_uniform(random) / (double)scale_bytes;
    room->fixed[r] = below(random, 3) * scale_bytes;
  }
  for (int c = 0; c < chunks; c++) {
    room->hop_latency_s[c] = 0.1 * dp_random_uniform(random);
    room->hop_s_per_byte[c] = slow_links * dp_random_uniform(random) / (double)scale_bytes;
    room->in_flight[c] = 1 + below(random, chunks - c);
  }
  int cuts[ROOM] = {0};
  for (int c = 0; c + 1 < chunks; c++) cuts[c] = (c + 1) * units / chunks;
  const terms t = terms_of(&p, cuts);
  const double share = 0.5 + 0.8 * dp_random_uniform(random);
  for (int r = 0; r < ranks; r++)
    room->limit[r] = (int64_t)(share * (0.7 + 0.6 * dp_random_uniform(random)) * (double)t.memory[r]);
  return p;
}

typedef struct graph_room {
  graph model;
  graph_unit units[MAX_UNITS];
  graph_tensor tensors[MAX_TENSORS];
  int users[MAX_TENSORS][MAX_UNITS], savers[MAX_TENSORS][MAX_UNITS];
} graph_room;

/* Units without ops: tensors between any of them, saved by some of those that use them. */
static void make_graph(dp_random *random, int units, graph_room *room) {
  memset(room, 0, sizeof *room);
  int count = 0;
  for (int u = 0; u < units; u++) {
    room->units[u].saved_extra_bytes = below(random, 6);
    room->units[u].saved_bytes = room->units[u].saved_extra_bytes + below(random, 9);
    for (int i = below(random, 3); i >= 0; i--) {
      graph_tensor *t = &room->tensors[count];
      *t = (graph_tensor){.rank = 3 + below(random, 2),
                          .dims = {1},
                          .dtype = GRAPH_FP32,
                          .bytes = 1 + below(random, 20),
                          .producer_unit = u,
                          .view_of = GRAPH_NONE,
                          .consumer_units = room->users[count],
                          .saver_units = room->savers[count],
                          .needs_gradient = below(random, 4) > 0,
                          .is_output = u + 1 == units};
      if (u == 0 && i == 2) t->producer_unit = GRAPH_NONE;
      const int many = below(random, 8) == 0;
      for (int user = u; user < units; user++) {
        const bool next = user == u + 1 && i == 0, far = below(random, many ? 2 : 2 * units) == 0;
        if (next || far) t->consumer_units[t->consumer_unit_count++] = user;
        if ((next || far || user == u) && below(random, 2)) t->saver_units[t->saver_unit_count++] = user;
      }
      count++;
    }
  }
  room->model.units.items = room->units;
  room->model.units.count = (size_t)units;
  room->model.tensors.items = room->tensors;
  room->model.tensors.count = (size_t)count;
}

static void check_placement(uint64_t seed, int rounds, bool folded, int most_chunks) {
  dp_random random;
  dp_random_init(&random, seed, 0);
  seen_feasible = seen_full = seen_travel = 0;
  for (int round = 0; round < rounds; round++) {
    static graph_room model;
    static problem_room room;
    const int ranks = 1 + below(&random, MAX_RANKS), least = most_chunks > 1 ? 2 : 1;
    int chunks = least + (folded ? 0 : below(&random, most_chunks - least + 1));
    while (chunks > least && ranks * chunks > MAX_UNITS) chunks--;
    const int units = ranks * chunks + below(&random, MAX_UNITS - ranks * chunks + 1);
    make_graph(&random, units, &model);
    const sim_partition_problem p = make_problem(&random, &model.model, ranks, chunks, folded, 10, &room);
    check(&p);
  }
  ck_assert_int_gt(seen_feasible, rounds / 5);
  ck_assert_int_gt(seen_full, rounds / 10);
  ck_assert_int_gt(seen_travel, rounds / 50);
}

START_TEST(straight_equals_exhaustive_search) { check_placement(1, 3000, false, 1); }
END_TEST
START_TEST(folded_equals_exhaustive_search) { check_placement(2, 3000, true, 2); }
END_TEST
START_TEST(interleaved_equals_exhaustive_search) { check_placement(3, 1500, false, 4); }
END_TEST

/* With ops, so that transients and views count. */
START_TEST(a_unet_equals_exhaustive_search) {
  const graph_model_options options = options_of(2, 64, 16);
  graph model = build_model(small_unet, &options);
  ck_assert_int_le((int)model.units.count, ROOM);
  dp_random random;
  dp_random_init(&random, 4, 0);
  for (int round = 0; round < 60; round++) {
    static problem_room room;
    const int ranks = 2 + round / 2 % 2;
    const bool folded = round % 2 && ranks == 2;
    const sim_partition_problem p = make_problem(&random, &model, ranks, folded ? 2 : 1, folded, 100000, &room);
    check(&p);
  }
  graph_free(&model);
}
END_TEST

/* What is received is what plan/traffic.h sends, for every policy that both count alike. */
START_TEST(traffic_is_that_of_the_plan) {
  const graph_model_options options = options_of(1, 1024, 77);
  graph model = build_model("sdxl_unet", &options);
  const int units = (int)model.units.count;
  double *unit_s = calloc((size_t)units, sizeof *unit_s);
  const double *rank_s[8];
  for (int u = 0; u < units; u++) unit_s[u] = (double)model.units.items[u].forward_flops * 1e-14;
  for (int r = 0; r < 8; r++) rank_s[r] = unit_s;
  for (int folded = 0; folded < 2; folded++)
    for (int policy = 0; policy < 3; policy++) {
      if (folded && policy == PLAN_SKIP_RELAY) continue; /* handed on by a shorter way here */
      sim_partition_problem p = {.graph = &model,
                                 .ranks = 4,
                                 .chunks_per_rank = folded ? 2 : 1,
                                 .folded = folded,
                                 .skip_policy = (plan_skip_policy)policy,
                                 .k = 4096,
                                 .unit_s = rank_s};
      int cuts[8];
      sim_partition_result result;
      sim_partition_load loads[8];
      ck_assert_int_eq(sim_partition_solve(&p, cuts, NULL, &result, NULL), DP_OK);
      ck_assert(result.feasible);
      ck_assert(result.exact);
      ck_assert_int_eq(sim_partition_evaluate(&p, cuts, loads, NULL), DP_OK);
      plan_chunk chunks[8];
      const split s = split_of(&p, cuts);
      for (int c = 0; c < s.chunks; c++)
        chunks[c] = (plan_chunk){.first_unit = s.first[c], .unit_count = s.end[c] - s.first[c], .rank = rank_of(&s, c)};
      plan_plan plan = {.ranks = 4,
                        .chunks_per_rank = p.chunks_per_rank,
                        .chunks = chunks,
                        .chunk_count = s.chunks,
                        .skip_policy = p.skip_policy,
                        .k = p.k,
                        .denoise_steps = 1};
      dp_arena arena = {0};
      plan_traffic_table table;
      ck_assert_int_eq(plan_traffic_build(&plan, &model, &arena, &table, NULL), DP_OK);
      int64_t received[4] = {0};
      for (int f = 0; f < table.flow_count; f++) received[chunks[table.flows[f].to_chunk].rank] += table.flows[f].bytes;
      for (int r = 0; r < 4; r++) ck_assert_int_eq(loads[r].received_bytes, received[r]);
      dp_arena_free(&arena);
    }
  free(unit_s);
  graph_free(&model);
}
END_TEST

START_TEST(bad_problems_are_refused) {
  static graph_room model;
  dp_random random;
  dp_random_init(&random, 5, 0);
  make_graph(&random, 3, &model);
  const double unit_s[3] = {1, 1, 1}, *const rank_s[4] = {unit_s, unit_s, unit_s, unit_s};
  sim_partition_problem p = {.graph = &model.model, .ranks = 4, .chunks_per_rank = 1, .unit_s = rank_s};
  int cuts[4];
  sim_partition_result result;
  sim_partition_load loads[4];
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(sim_partition_solve(&p, cuts, NULL, &result, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "4 stages of 1 chunk(s) over 3 units, allowed: at most 3 chunks in all, folded 2 a stage");
  p.ranks = 3;
  ck_assert_int_eq(sim_partition_evaluate(&p, (const int[]){2, 2}, loads, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "cut 1 at unit 2 of 3, allowed: ascending, a unit for each chunk");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {straight_equals_exhaustive_search,    folded_equals_exhaustive_search,
                                interleaved_equals_exhaustive_search, a_unet_equals_exhaustive_search,
                                traffic_is_that_of_the_plan,          bad_problems_are_refused};
  return suite_run("sim_partition", tests, sizeof tests / sizeof tests[0], NULL, NULL, 240);
}
