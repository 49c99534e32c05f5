#include "plan/traffic.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* One tensor of one flow. */
typedef struct edge {
  int from, to, tensor; /* tensor GRAPH_NONE: makes the flow exist */
  bool backward;
  plan_traffic kind;
} edge;

typedef struct traffic {
  const plan_plan *plan;
  const graph *graph;
  int *chunk_of_unit;
  int *mark; /* [rank] the last tensor, plus 1, that reached it */
  DP_ARRAY(edge) edges;
  dp_error *error;
} traffic;

static int rank_of(const traffic *t, int chunk) { return t->plan->chunks[chunk].rank; }

static dp_status add_edge(traffic *t, int from, int to, int tensor, plan_traffic kind) {
  if (!dp_array_push(&t->edges, ((edge){from, to, tensor, false, kind}))) return dp_fail_memory(t->error);
  if (!t->plan->training || kind == PLAN_TRAFFIC_LATENT) return DP_OK;
  if (tensor != GRAPH_NONE && !t->graph->tensors.items[tensor].needs_gradient) return DP_OK;
  if (!dp_array_push(&t->edges, ((edge){to, from, tensor, true, kind}))) return dp_fail_memory(t->error);
  return DP_OK;
}

plan_traffic plan_traffic_kind(const graph *g, const int *chunk_of_unit, int from, int to, int tensor) {
  const graph_tensor *t = &g->tensors.items[tensor];
  const int next = t->producer_unit + 1;
  if (chunk_of_unit[t->producer_unit] != from || (size_t)next >= g->units.count || chunk_of_unit[next] != to)
    return PLAN_TRAFFIC_SKIP;
  for (int i = 0; i < t->consumer_unit_count && t->consumer_units[i] <= next; i++)
    if (t->consumer_units[i] == next) return PLAN_TRAFFIC_BOUNDARY;
  return PLAN_TRAFFIC_SKIP;
}

static dp_status refuse_skip(const traffic *t, int tensor, int from, int to) {
  return dp_fail(
      t->error, DP_BAD_INPUT,
      "plan.skip_policy: found local, but %s is made in chunk %d (stage %d) and used in chunk %d (stage %d), "
      "allowed: direct, relay or compress, or a split that keeps both on one stage",
      t->graph->tensors.items[tensor].name, from, rank_of(t, from), to, rank_of(t, to));
}

static dp_status add_tensor(traffic *t, int tensor) {
  const graph_tensor *tensor_of = &t->graph->tensors.items[tensor];
  if (tensor_of->producer_unit == GRAPH_NONE) return DP_OK;
  const int made = t->chunk_of_unit[tensor_of->producer_unit], stamp = tensor + 1;
  const plan_skip_policy policy = plan_skip_policy_of(t->plan, tensor);
  const bool relay = policy == PLAN_SKIP_RELAY;
  t->mark[rank_of(t, made)] = stamp;
  int reached = made; /* relay: chunks up to here have seen it */
  for (int i = 0; i < tensor_of->consumer_unit_count; i++) {
    const int used = t->chunk_of_unit[tensor_of->consumer_units[i]];
    if (t->mark[rank_of(t, used)] == stamp) continue;
    for (int from = relay ? reached : made; from < used; from++) {
      const int to = relay ? from + 1 : used;
      if (t->mark[rank_of(t, to)] != stamp) {
        const plan_traffic kind = plan_traffic_kind(t->graph, t->chunk_of_unit, from, to, tensor);
        if (kind == PLAN_TRAFFIC_SKIP && policy == PLAN_SKIP_LOCAL && !graph_tensor_is_vector(tensor_of))
          return refuse_skip(t, tensor, made, used);
        DP_TRY(add_edge(t, from, to, tensor, kind));
        t->mark[rank_of(t, to)] = stamp;
      }
      reached = to;
      if (!relay || t->mark[rank_of(t, used)] == stamp) break;
    }
  }
  return DP_OK;
}

static int compare_edges(const void *left, const void *right) {
  const edge *a = left, *b = right;
  if (a->backward != b->backward) return a->backward ? 1 : -1;
  if (a->from != b->from) return a->from < b->from ? -1 : 1;
  if (a->to != b->to) return a->to < b->to ? -1 : 1;
  return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static int64_t edge_bytes(const traffic *t, const edge *e) {
  if (e->kind == PLAN_TRAFFIC_LATENT) return t->graph->latent_bytes;
  if (e->tensor == GRAPH_NONE) return 0;
  int64_t bytes = t->graph->tensors.items[e->tensor].bytes;
  if (e->kind == PLAN_TRAFFIC_SKIP) (void)plan_skip_is_compressed(t->plan, t->graph, e->tensor, &bytes);
  return bytes;
}

/* Runs of edges with the same ends become flows. */
static dp_status group(traffic *t, dp_arena *arena, plan_traffic_table *table) {
  const size_t count = t->edges.count;
  if (count) qsort(t->edges.items, count, sizeof(edge), compare_edges);
  size_t flows = 0;
  for (size_t i = 0; i < count; i++) {
    const edge *e = &t->edges.items[i];
    flows += i == 0 || e->backward != e[-1].backward || e->from != e[-1].from || e->to != e[-1].to;
  }
  table->flows = DP_ARENA_NEW(arena, plan_flow, flows);
  table->tensors = DP_ARENA_NEW(arena, int, count);
  if (!table->flows || !table->tensors) return dp_fail_memory(t->error);
  for (size_t i = 0; i < count; i++) {
    const edge *e = &t->edges.items[i];
    if (i == 0 || e->backward != e[-1].backward || e->from != e[-1].from || e->to != e[-1].to)
      table->flows[table->flow_count++] = (plan_flow){
          .from_chunk = e->from, .to_chunk = e->to, .backward = e->backward, .first_tensor = table->tensor_count};
    plan_flow *flow = &table->flows[table->flow_count - 1];
    const int64_t bytes = edge_bytes(t, e);
    flow->bytes += bytes;
    flow->kind_bytes[e->kind] += bytes;
    if (e->tensor == GRAPH_NONE) continue;
    const int made = t->chunk_of_unit[t->graph->tensors.items[e->tensor].producer_unit];
    if (!e->backward && made != e->from) flow->relayed = true;
    table->tensors[table->tensor_count++] = e->tensor;
    flow->tensor_count++;
  }
  return DP_OK;
}

static dp_status build(traffic *t, dp_arena *scratch, dp_arena *arena, plan_traffic_table *table) {
  const plan_plan *plan = t->plan;
  t->chunk_of_unit = DP_ARENA_NEW(scratch, int, t->graph->units.count);
  t->mark = DP_ARENA_NEW(scratch, int, (size_t)plan->ranks);
  if (!t->chunk_of_unit || !t->mark) return dp_fail_memory(t->error);
  for (int c = 0; c < plan->chunk_count; c++)
    for (int u = 0; u < plan->chunks[c].unit_count; u++) t->chunk_of_unit[plan->chunks[c].first_unit + u] = c;
  for (size_t i = 0; i < t->graph->tensors.count; i++) DP_TRY(add_tensor(t, (int)i));
  for (int c = 0; c + 1 < plan->chunk_count; c++)
    if (rank_of(t, c) != rank_of(t, c + 1)) DP_TRY(add_edge(t, c, c + 1, GRAPH_NONE, PLAN_TRAFFIC_BOUNDARY));
  const int last = plan->chunk_count - 1;
  if (!plan->training && plan->denoise_steps > 1 && rank_of(t, last) != rank_of(t, 0))
    DP_TRY(add_edge(t, last, 0, GRAPH_NONE, PLAN_TRAFFIC_LATENT));
  return group(t, arena, table);
}

dp_status plan_traffic_build(const plan_plan *plan, const graph *g, dp_arena *arena, plan_traffic_table *table,
                             dp_error *error) {
  *table = (plan_traffic_table){0};
  traffic t = {.plan = plan, .graph = g, .error = error};
  dp_arena scratch = {0};
  const dp_status status = build(&t, &scratch, arena, table);
  dp_array_free(&t.edges);
  dp_arena_free(&scratch);
  return status;
}
