#include "sim/partition_tables.h"

#include <math.h>
#include <string.h>

#include "graph/graph.h"

#define KEEP(t, type, count) DP_ARENA_NEW(&(t)->arena, type, (size_t)(count))

/* ---- terms ---- */

int sim_partition_chunk_rank(const sim_partition_problem *p, int chunk) {
  if (p->folded) return chunk < p->ranks ? chunk : 2 * p->ranks - 1 - chunk;
  return chunk % p->ranks;
}

int64_t sim_partition_limit(const sim_partition_problem *p, int rank) {
  return p->memory_limit_bytes ? p->memory_limit_bytes[rank] : INT64_MAX / 4;
}

double sim_partition_hop_s(const sim_partition_problem *p, int chunk, int64_t bytes) {
  const double latency_s = p->hop_latency_s ? p->hop_latency_s[chunk] : 0;
  return (p->training ? 2 : 1) * (latency_s + (double)bytes * (p->hop_s_per_byte ? p->hop_s_per_byte[chunk] : 0));
}

double sim_partition_cost_s(const sim_partition_problem *p, int rank, const sim_partition_terms *terms) {
  double wire_s = 0;
  if (p->wire_s_per_byte) {
    const int64_t most = terms->received > terms->sent ? terms->received : terms->sent;
    wire_s = p->wire_s_per_byte[rank] * (double)(p->training ? terms->received + terms->sent : most);
  }
  return fmax(terms->compute_s + p->exposed_share * terms->chain_s, wire_s);
}

int64_t sim_partition_memory(const sim_partition_problem *p, int rank, const sim_partition_terms *terms) {
  int64_t bytes = terms->memory + (p->fixed_bytes ? p->fixed_bytes[rank] : 0) +
                  (p->training ? 4 : 2) * (terms->received + terms->sent);
  const int last = p->folded ? 2 * p->ranks - 1 - rank : rank + (p->chunks_per_rank - 1) * p->ranks;
  const int more = sim_partition_in_flight(p, rank) - sim_partition_in_flight(p, last);
  if (p->training && more > 0) bytes += more * terms->local_gradient;
  return bytes;
}

dp_status sim_partition_transient(sim_partition_tables *t, int a, int b, int64_t *bytes, dp_error *error) {
  int64_t *known = &t->transient[(size_t)a * (size_t)t->side + (size_t)b];
  if (*known < 0) {
    const sim_partition_problem *p = t->problem;
    const int first = t->first_unit[a], end = t->first_unit[b];
    graph_transients transients;
    DP_TRY(p->peaks ? graph_peaks_of(p->peaks, first, end - first, &transients, error)
                    : graph_transient_bytes(p->graph, first, end - first, &transients, error));
    int64_t again_bytes = 0;
    bool recomputed = false;
    for (int u = first; p->recompute && u < end; u++) {
      if (!p->recompute[u]) continue;
      recomputed = true;
      if (p->graph->units.items[u].saved_bytes > again_bytes) again_bytes = p->graph->units.items[u].saved_bytes;
    }
    int64_t most = p->training && !recomputed ? transients.forward_bytes : transients.inference_bytes;
    if (p->training && transients.backward_bytes + again_bytes > most) most = transients.backward_bytes + again_bytes;
    *known = most;
  }
  *bytes = *known;
  return DP_OK;
}

/* ---- places ---- */

static dp_status find_places(sim_partition_tables *t, int most, dp_error *error) {
  const sim_partition_problem *p = t->problem;
  const int units = (int)p->graph->units.count;
  t->places = units < most ? units : most;
  t->side = t->places + 1;
  t->first_unit = KEEP(t, int, t->side);
  if (!t->first_unit) return dp_fail_memory(error);
  if (units > t->places)
    DP_TRY(plan_split_balanced(p->unit_s[0], units, t->places, NULL, t->first_unit + 1, error));
  else
    for (int u = 0; u < units; u++) t->first_unit[u] = u;
  t->first_unit[0] = 0;
  t->first_unit[t->places] = units;
  t->prefix_s = KEEP(t, double *, t->ranks);
  t->speed = KEEP(t, double, t->ranks);
  t->persistent = KEEP(t, int64_t, t->side);
  if (!t->prefix_s || !t->speed || !t->persistent) return dp_fail_memory(error);
  for (int r = 0; r < t->ranks; r++) {
    int same = 0; /* ranks of one device share their costs */
    while (same < r && p->unit_s[same] != p->unit_s[r]) same++;
    t->prefix_s[r] = same < r ? t->prefix_s[same] : KEEP(t, double, t->side);
    if (!t->prefix_s[r]) return dp_fail_memory(error);
    if (same < r) {
      t->speed[r] = t->speed[same];
      continue;
    }
    for (int i = 0; i < t->places; i++) {
      double sum = 0;
      for (int u = t->first_unit[i]; u < t->first_unit[i + 1]; u++) sum += p->unit_s[r][u];
      t->prefix_s[r][i + 1] = t->prefix_s[r][i] + sum;
    }
    for (int u = 0; u < units; u++) {
      const double here_s = p->unit_s[r][u], reference_s = p->unit_s[0][u];
      if (reference_s > 0) t->speed[r] = fmax(t->speed[r], here_s > 0 ? reference_s / here_s : INFINITY);
    }
  }
  for (int i = 0; i < t->places; i++) {
    t->persistent[i + 1] = t->persistent[i];
    for (int u = t->first_unit[i]; p->unit_persistent_bytes && u < t->first_unit[i + 1]; u++)
      t->persistent[i + 1] += p->unit_persistent_bytes[u];
  }
  return DP_OK;
}

/* ---- tensors ---- */

/* Places that hold it for backward, ascending and unique: the rule of graph_saved_bytes. */
static int keepers(const sim_partition_problem *p, const graph_tensor *tensor, const int *place_of, int *out) {
  int count = 0;
  if (!p->training || tensor->is_constant) return 0;
  int s = 0, c = 0;
  while (s < tensor->saver_unit_count || (p->recompute && c < tensor->consumer_unit_count)) {
    int unit;
    if (s < tensor->saver_unit_count &&
        (!p->recompute || c >= tensor->consumer_unit_count || tensor->saver_units[s] <= tensor->consumer_units[c])) {
      unit = tensor->saver_units[s++];
      if (p->recompute && p->recompute[unit]) continue;
    } else {
      unit = tensor->consumer_units[c++];
      if (!p->recompute[unit] || unit == tensor->producer_unit) continue;
    }
    if (count == 0 || out[count - 1] != place_of[unit]) out[count++] = place_of[unit];
  }
  return count;
}

/* Adds `bytes` to table[a][b] for all a in [from, to] and b in [begin, end] as a difference, summed up by finish(). */
static void add_box(const sim_partition_tables *t, int64_t *table, int from, int to, int begin, int end,
                    int64_t bytes) {
  const size_t side = (size_t)t->side;
  if (from > to || begin > end) return;
  const bool more = end + 1 < t->side;
  table[(size_t)from * side + (size_t)begin] += bytes;
  if (more) table[(size_t)from * side + (size_t)end + 1] -= bytes;
  if (to + 1 >= t->side) return;
  table[((size_t)to + 1) * side + (size_t)begin] -= bytes;
  if (more) table[((size_t)to + 1) * side + (size_t)end + 1] += bytes;
}

static void finish(const sim_partition_tables *t, int64_t *table) {
  const size_t side = (size_t)t->side;
  for (size_t a = 0; a < side; a++)
    for (size_t b = 1; b < side; b++) table[a * side + b] += table[a * side + b - 1];
  for (size_t i = side; i < side * side; i++) table[i] += table[i - side];
}

/* Each of the ascending places counts `bytes` once for every range that holds at least one of them. */
static void add_any(const sim_partition_tables *t, int64_t *table, const int *places, int count, int64_t bytes) {
  for (int i = 0; i < count; i++)
    add_box(t, table, i ? places[i - 1] + 1 : 0, places[i], places[i] + 1, t->places, bytes);
}

static void fill_crossing(const sim_partition_tables *t, const sim_crossing *c) {
  const bool relay = t->problem->skip_policy == PLAN_SKIP_RELAY;
  const int64_t wire = relay ? c->bytes : c->packed_bytes;
  for (int i = 0; i < c->user_count; i++) {
    const int from = i ? c->users[i - 1] + 1 : c->made + 1;
    add_box(t, t->used, from, c->users[i], c->users[i] + 1, t->places, wire);
    add_box(t, t->used_skips, from, c->users[i], c->users[i] + 1, t->places, c->counted);
  }
  if (c->user_count) add_box(t, t->reaching, c->made + 1, t->places, 0, c->users[c->user_count - 1], wire);
  if (c->start >= 0) {
    t->chain[c->start] += c->bytes;
    t->chain_saving[c->start] += c->bytes - wire;
    /* a chunk that begins there gets it whole, and as a boundary tensor */
    add_box(t, t->used, c->start, c->start, c->start + 1, t->places, c->bytes - wire);
    add_box(t, t->used_skips, c->start, c->start, c->start + 1, t->places, -c->counted);
  }
  /* leaves [a, b), and nobody in it saves it */
  const int end = c->last < c->first_keeper ? c->last : c->first_keeper;
  add_box(t, t->kept, 0, c->made, c->made + 1, end, c->bytes);
}

static dp_status read_tensor(sim_partition_tables *t, int id, const int *place_of, int *scratch, dp_error *error) {
  const sim_partition_problem *p = t->problem;
  const graph_tensor *tensor = &p->graph->tensors.items[id];
  int count = keepers(p, tensor, place_of, scratch);
  if (count) add_any(t, t->saved, scratch, count, tensor->bytes);
  const int first_keeper = count ? scratch[0] : t->places + 1;
  if (tensor->producer_unit == GRAPH_NONE) {
    count = 0;
    for (int i = 0; i < tensor->consumer_unit_count; i++) {
      const int place = place_of[tensor->consumer_units[i]];
      if (count == 0 || scratch[count - 1] != place) scratch[count++] = place;
    }
    add_any(t, t->inputs, scratch, count, tensor->bytes);
    return DP_OK;
  }
  const int made = place_of[tensor->producer_unit];
  count = 0;
  for (int i = 0; i < tensor->consumer_unit_count; i++) {
    const int place = place_of[tensor->consumer_units[i]];
    if (place > made && (count == 0 || scratch[count - 1] != place)) scratch[count++] = place;
  }
  if (count == 0 && !tensor->is_output) return DP_OK;
  sim_crossing *c = &t->crossings[t->crossing_count++];
  *c = (sim_crossing){.made = made,
                      .user_count = count,
                      .first_keeper = first_keeper,
                      .bytes = tensor->bytes,
                      .packed_bytes = tensor->bytes,
                      .start = -1,
                      .needs_gradient = tensor->needs_gradient,
                      .counted = !graph_tensor_is_vector(tensor)};
  c->users = KEEP(t, int, count);
  if (!c->users) return dp_fail_memory(error);
  if (count) memcpy(c->users, scratch, (size_t)count * sizeof *scratch);
  c->last = tensor->is_output ? t->places : scratch[count - 1];
  const int next = tensor->producer_unit + 1;
  if (count && place_of[next] == made + 1)
    for (int i = 0; i < tensor->consumer_unit_count; i++)
      if (tensor->consumer_units[i] == next) c->start = made + 1;
  /* what shows another tensor's memory is kept with it */
  for (int view = id; first_keeper > t->places && p->graph->tensors.items[view].view_of != GRAPH_NONE;) {
    view = p->graph->tensors.items[view].view_of;
    const graph_tensor *root = &p->graph->tensors.items[view];
    if (root->producer_unit != tensor->producer_unit) break;
    if (keepers(p, root, place_of, scratch) && scratch[0] < c->first_keeper) c->first_keeper = scratch[0];
  }
  const plan_plan policy = {.skip_policy = p->skip_policy, .k = p->k};
  (void)plan_skip_is_compressed(&policy, p->graph, id, &c->packed_bytes);
  fill_crossing(t, c);
  return DP_OK;
}

static dp_status read_tensors(sim_partition_tables *t, dp_error *error) {
  const sim_partition_problem *p = t->problem;
  const graph *g = p->graph;
  const size_t side = (size_t)t->side;
  int most = 1;
  for (size_t i = 0; i < g->tensors.count; i++) {
    const int users = g->tensors.items[i].consumer_unit_count + g->tensors.items[i].saver_unit_count;
    if (users > most) most = users;
  }
  int *place_of = KEEP(t, int, g->units.count), *scratch = KEEP(t, int, most);
  t->crossings = KEEP(t, sim_crossing, g->tensors.count);
  t->chain = KEEP(t, int64_t, side);
  t->chain_saving = KEEP(t, int64_t, side);
  int64_t **const tables[] = {&t->used, &t->used_skips, &t->reaching, &t->saved, &t->kept, &t->inputs, &t->transient};
  bool room = place_of && scratch && t->crossings && t->chain && t->chain_saving;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    room = (*tables[i] = KEEP(t, int64_t, side * side)) != NULL && room;
  if (!room) return dp_fail_memory(error);
  for (int i = 0; i < t->places; i++)
    for (int u = t->first_unit[i]; u < t->first_unit[i + 1]; u++) place_of[u] = i;
  for (size_t i = 0; i < g->tensors.count; i++) DP_TRY(read_tensor(t, (int)i, place_of, scratch, error));
  for (size_t u = 0; u < g->units.count; u++) { /* held whatever else is */
    int64_t bytes = 0;
    if (p->training && !(p->recompute && p->recompute[u])) bytes += g->units.items[u].saved_extra_bytes;
    if (p->training && p->unit_kept_bytes) bytes += p->unit_kept_bytes[u];
    add_any(t, t->saved, &place_of[u], 1, bytes);
  }
  for (size_t i = 0; i + 1 < sizeof tables / sizeof *tables; i++) finish(t, *tables[i]);
  memset(t->transient, 0xff, side * side * sizeof *t->transient);
  return DP_OK;
}

dp_status sim_partition_tables_build(const sim_partition_problem *p, int places, sim_partition_tables *t,
                                     dp_error *error) {
  *t = (sim_partition_tables){.problem = p,
                              .ranks = p->ranks,
                              .chunks = p->ranks * p->chunks_per_rank,
                              .limited = p->memory_limit_bytes != NULL};
  const int units = (int)p->graph->units.count, room = units < places ? units : places;
  if (p->ranks < 1 || p->chunks_per_rank < 1 || t->chunks > room || (p->folded && p->chunks_per_rank != 2))
    return dp_fail(error, DP_BAD_INPUT,
                   "%d stages of %d chunk(s) over %d units, allowed: at most %d chunks in all, folded 2 a stage",
                   p->ranks, p->chunks_per_rank, units, room);
  dp_status status = find_places(t, places, error);
  if (status == DP_OK) status = read_tensors(t, error);
  if (status != DP_OK) sim_partition_tables_free(t);
  return status;
}

void sim_partition_tables_free(sim_partition_tables *t) {
  dp_arena_free(&t->arena);
  *t = (sim_partition_tables){0};
}

/* ---- whole splits, tensor by tensor ---- */

size_t sim_partition_scratch_size(const sim_partition_tables *t) {
  return (size_t)t->places + (size_t)t->ranks + 2 * (size_t)t->chunks + 1 +
         sizeof(sim_partition_terms) / sizeof(int) * (size_t)t->ranks + 2;
}

typedef struct walk {
  const sim_partition_tables *t;
  const int *cuts;
  int *chunk_of, *mark; /* [place], [rank] */
  sim_partition_terms *terms;
  sim_partition_load *loads;
} walk;

static int start_of(const walk *w, int chunk) { return chunk ? w->cuts[chunk - 1] : 0; }
static int rank_of(const walk *w, int chunk) { return sim_partition_chunk_rank(w->t->problem, chunk); }

static void walk_direct(walk *w, const sim_crossing *c) {
  const int maker = w->chunk_of[c->made], maker_rank = rank_of(w, maker);
  int own = maker, sent_from = -1; /* the last chunk of the maker's rank before the user: its stretch */
  for (int i = 0; i < c->user_count; i++) {
    const int chunk = w->chunk_of[c->users[i]], rank = rank_of(w, chunk);
    for (int next = own + 1; next <= chunk; next++)
      if (rank_of(w, next) == maker_rank) own = next;
    if (w->mark[rank]) continue;
    w->mark[rank] = 1;
    const bool whole = start_of(w, chunk) == c->start;
    w->terms[rank].received += whole ? c->bytes : c->packed_bytes;
    w->loads[rank].received_skips += whole ? 0 : c->counted;
    if (whole)
      w->terms[rank].chain_s +=
          sim_partition_hop_s(w->t->problem, chunk, c->bytes) - sim_partition_hop_s(w->t->problem, chunk, 0);
    if (sent_from == own) continue;
    sent_from = own;
    w->terms[maker_rank].sent += start_of(w, own + 1) == c->start ? c->bytes : c->packed_bytes;
  }
}

static void walk_relay(walk *w, const sim_crossing *c) {
  for (int i = 0; i < c->user_count; i++) {
    const int chunk = w->chunk_of[c->users[i]];
    if (w->mark[rank_of(w, chunk)]) continue;
    int from = chunk - 1;
    while (!w->mark[rank_of(w, from)]) from--;
    for (; from < chunk && !w->mark[rank_of(w, chunk)]; from++) {
      const int to = rank_of(w, from + 1);
      if (w->mark[to]) continue;
      w->mark[to] = 1;
      w->terms[rank_of(w, from)].sent += c->bytes;
      w->terms[to].received += c->bytes;
      w->loads[to].received_skips += start_of(w, from + 1) != c->start ? c->counted : 0;
      w->terms[to].chain_s +=
          sim_partition_hop_s(w->t->problem, from + 1, c->bytes) - sim_partition_hop_s(w->t->problem, from + 1, 0);
    }
  }
}

dp_status sim_partition_loads(sim_partition_tables *t, const int *cuts, int *scratch, sim_partition_load *loads,
                              dp_error *error) {
  const sim_partition_problem *p = t->problem;
  const uintptr_t at = ((uintptr_t)scratch + sizeof(double) - 1) / sizeof(double) * sizeof(double);
  walk w = {.t = t, .cuts = cuts, .terms = (sim_partition_terms *)at, .loads = loads};
  w.chunk_of = (int *)(w.terms + t->ranks);
  w.mark = w.chunk_of + t->places;
  memset(w.terms, 0, (size_t)t->ranks * sizeof *w.terms);
  memset(loads, 0, (size_t)t->ranks * sizeof *loads);
  for (int c = 0; c < t->chunks; c++) {
    const int a = start_of(&w, c), b = c + 1 < t->chunks ? cuts[c] : t->places, rank = rank_of(&w, c);
    for (int i = a; i < b; i++) w.chunk_of[i] = c;
    w.terms[rank].compute_s += sim_partition_work_s(t, rank, a, b);
    w.terms[rank].memory += sim_partition_chunk_bytes(t, c, a, b);
    if (c && rank_of(&w, c - 1) != rank) w.terms[rank].chain_s += sim_partition_hop_s(p, c, 0);
    if (!t->limited) continue;
    int64_t bytes;
    DP_TRY(sim_partition_transient(t, a, b, &bytes, error));
    if (bytes > loads[rank].memory_bytes) loads[rank].memory_bytes = bytes;
  }
  for (int i = 0; i < t->crossing_count; i++) {
    const sim_crossing *c = &t->crossings[i];
    const int maker = w.chunk_of[c->made], maker_rank = rank_of(&w, maker);
    memset(w.mark, 0, (size_t)t->ranks * sizeof *w.mark);
    w.mark[maker_rank] = 1;
    bool local = false;
    for (int u = 0; u < c->user_count; u++) {
      const int chunk = w.chunk_of[c->users[u]];
      local = local || (chunk != maker && rank_of(&w, chunk) == maker_rank);
    }
    if (local && c->needs_gradient) w.terms[maker_rank].local_gradient += c->bytes;
    if (p->skip_policy == PLAN_SKIP_RELAY)
      walk_relay(&w, c);
    else
      walk_direct(&w, c);
  }
  for (int r = 0; r < t->ranks; r++) {
    sim_partition_load *load = &loads[r];
    load->cost_s = sim_partition_cost_s(p, r, &w.terms[r]);
    load->compute_s = w.terms[r].compute_s;
    load->exposed_s = load->cost_s - load->compute_s;
    load->received_bytes = w.terms[r].received;
    load->sent_bytes = w.terms[r].sent;
    load->memory_bytes += sim_partition_memory(p, r, &w.terms[r]);
  }
  return DP_OK;
}
