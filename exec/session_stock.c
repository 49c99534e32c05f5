#include "exec/session_stock.h"

#include "graph/op_table.h"

static const char *const kinds[] = {"weight", "adamw_m", "adamw_v", "ema"};
enum { KINDS = 4 };

static const exec_array arrays[KINDS] = {EXEC_VALUES, EXEC_FIRST, EXEC_SECOND, EXEC_MEANS};

int64_t exec_stock_floats(const exec_checkpoint_array *array) {
  int64_t n = 1;
  for (int d = 0; d < array->rank; d++) n *= array->dims[d];
  return n;
}

static dp_status add(exec_stock *list, const char *name, exec_stock_item what, int rank, const int64_t *dims,
                     dp_arena *arena, dp_error *error) {
  exec_checkpoint_array *array = &list->arrays[list->count];
  *array = (exec_checkpoint_array){.rank = rank, .dims = dims};
  array->name = dp_arena_printf(arena, "%s/%s", kinds[what.kind], name);
  if (!array->name) return dp_fail_memory(error);
  if (exec_stock_floats(array) > list->largest) list->largest = exec_stock_floats(array);
  list->items[list->count++] = what;
  return DP_OK;
}

static dp_status add_factors(exec_stock *list, int kind, int op_index, const exec_parameters *p, dp_arena *arena,
                             dp_error *error) {
  const graph_op *op = &list->session->graph->ops.items[op_index];
  const int64_t rank = p->lora[op_index].rank, in = op->attributes.in_channels, out = op->attributes.out_channels;
  int64_t *dims = DP_ARENA_NEW(arena, int64_t, 4);
  const char *a = dp_arena_printf(arena, "%s.lora_A.weight", op->name),
             *b = dp_arena_printf(arena, "%s.lora_B.weight", op->name);
  if (!dims || !a || !b) return dp_fail_memory(error);
  dims[0] = dims[3] = rank;
  dims[1] = in;
  dims[2] = out;
  const int64_t at = p->lora_offset[op_index];
  DP_TRY(add(list, a, (exec_stock_item){kind, -1, at}, 2, dims, arena, error));
  return add(list, b, (exec_stock_item){kind, -1, at + rank * in}, 2, dims + 2, arena, error);
}

/* The ends of compressed skips that are here: their matrices, one behind the other. */
static dp_status add_skips(exec_stock *list, int kind, dp_arena *arena, dp_error *error) {
  static const char *const ends_names[] = {"down", "up"};
  exec_session *s = list->session;
  for (int i = 0; i < exec_pipeline_skips(s->pipeline); i++) {
    const exec_skip ends = exec_pipeline_skip(s->pipeline, i, plan_worker_replica(s->plan, list->worker));
    for (int e = 0; e < 2; e++) {
      if (ends.worker[e] != list->worker || (kind > 0 && !ends.compressor->trained)) continue;
      const char *name = dp_arena_printf(arena, "skip.%s.%s", s->skip_names[i], ends_names[e]);
      if (!name) return dp_fail_memory(error);
      DP_TRY(
          add(list, name, (exec_stock_item){kind, -1, ends.offset[e]}, 1, &ends.compressor->parameters, arena, error));
    }
  }
  return DP_OK;
}

dp_status exec_stock_take(exec_session *s, int worker, dp_arena *arena, exec_stock *list, dp_error *error) {
  const graph *g = s->graph;
  const exec_parameters *p = exec_session_parameters(s, worker);
  const size_t skips = (size_t)exec_pipeline_skips(s->pipeline);
  const size_t most = KINDS * (g->weights.count + 2 * g->ops.count + 2 * skips);
  *list = (exec_stock){.session = s, .worker = worker, .largest = 1};
  list->arrays = DP_ARENA_NEW(arena, exec_checkpoint_array, most);
  list->items = DP_ARENA_NEW(arena, exec_stock_item, most);
  if (!list->arrays || !list->items) return dp_fail_memory(error);
  for (int k = 0; k < KINDS; k++) {
    if (arrays[k] == EXEC_MEANS && !p->means) continue;
    for (size_t w = 0; w < g->weights.count; w++) {
      const graph_weight *weight = &g->weights.items[w];
      if (p->offset[w] >= 0 && p->trained[w])
        DP_TRY(add(list, weight->name, (exec_stock_item){k, (int)w, 0}, weight->rank, weight->dims, arena, error));
    }
    for (size_t o = 0; p->lora && o < g->ops.count; o++)
      if (p->lora[o].rank > 0) DP_TRY(add_factors(list, k, (int)o, p, arena, error));
    DP_TRY(add_skips(list, k, arena, error));
  }
  return DP_OK;
}

dp_status exec_stock_read(const exec_stock *list, size_t index, float *out, dp_error *error) {
  const exec_stock_item *what = &list->items[index];
  exec_pipeline *pipeline = list->session->pipeline;
  if (what->weight >= 0)
    return exec_pipeline_read_weight(pipeline, list->worker, arrays[what->kind], what->weight, out, error);
  return exec_pipeline_read(pipeline, list->worker, arrays[what->kind], what->at,
                            exec_stock_floats(&list->arrays[index]), out, error);
}

dp_status exec_stock_write(const exec_stock *list, size_t index, const float *values, dp_error *error) {
  const exec_stock_item *what = &list->items[index];
  exec_pipeline *pipeline = list->session->pipeline;
  if (what->weight >= 0)
    return exec_pipeline_write_weight(pipeline, list->worker, arrays[what->kind], what->weight, values, error);
  return exec_pipeline_write(pipeline, list->worker, arrays[what->kind], what->at,
                             exec_stock_floats(&list->arrays[index]), values, error);
}
