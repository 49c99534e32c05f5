#include "plan/compressor.h"

#include <math.h>

#include "plan/traffic.h"

/* By what factor the most shrunken dimension shrinks more than the least. */
static double unlikeness(const int64_t dims[3], const int64_t kept[3]) {
  double least = INFINITY, most = 0;
  for (int i = 0; i < 3; i++) {
    const double factor = (double)dims[i] / (double)kept[i];
    if (factor < least) least = factor;
    if (factor > most) most = factor;
  }
  return most / least;
}

void plan_compressor_shape(const int64_t dims[3], int64_t k, int64_t kept[3]) {
  int64_t best = 0;
  double best_unlikeness = INFINITY;
  kept[0] = kept[1] = kept[2] = 1;
  for (int64_t h = 1; h <= dims[1] && h <= k; h++)
    for (int64_t w = 1; w <= dims[2] && h * w <= k; w++) {
      const int64_t most = k / (h * w), c = most < dims[0] ? most : dims[0];
      const int64_t candidate[3] = {c, h, w};
      const double unlike = unlikeness(dims, candidate);
      const int64_t product = unlike <= 4 ? c * h * w : 0;
      if (product < best || (product == best && unlike >= best_unlikeness)) continue;
      best = product;
      best_unlikeness = unlike;
      for (int i = 0; i < 3; i++) kept[i] = candidate[i];
    }
}

/* The first unit of the receiving chunk that uses the tensor. */
static int first_user(const graph *g, const plan_chunk *chunk, int tensor) {
  const graph_tensor *t = &g->tensors.items[tensor];
  for (int i = 0; i < t->consumer_unit_count; i++)
    if (t->consumer_units[i] >= chunk->first_unit) return t->consumer_units[i];
  return chunk->first_unit;
}

static plan_compressor make(const plan_program *program, const graph *g, uint32_t message, int tensor) {
  const graph_tensor *t = &g->tensors.items[tensor];
  plan_compressor made = {.message = message,
                          .tensor = tensor,
                          .down_unit = t->producer_unit,
                          .up_unit = first_user(g, &program->plan->chunks[program->messages[message].to_chunk], tensor),
                          .batch = t->dims[0],
                          .dims = {t->dims[1], t->dims[t->rank - 2], t->dims[t->rank - 1]},
                          .trained = t->needs_gradient};
  if (t->rank == 5) made.dims[1] *= t->dims[2];
  plan_compressor_shape(made.dims, program->plan->k, made.kept);
  for (int i = 0; i < 3; i++) made.parameters += made.dims[i] * made.kept[i];
  return made;
}

dp_status plan_compressors_of(const plan_program *program, const graph *g, dp_arena *arena,
                              plan_compressor **compressors, int *count, dp_error *error) {
  const plan_plan *plan = program->plan;
  *count = 0;
  *compressors = NULL;
  if (!plan_skip_is_used(plan, g, PLAN_SKIP_COMPRESS)) return DP_OK;
  int *chunk_of_unit = DP_ARENA_NEW(arena, int, g->units.count);
  *compressors = DP_ARENA_NEW(arena, plan_compressor, program->message_tensor_count);
  if (!chunk_of_unit || !*compressors) return dp_fail_memory(error);
  for (int c = 0; c < plan->chunk_count; c++)
    for (int u = 0; u < plan->chunks[c].unit_count; u++) chunk_of_unit[plan->chunks[c].first_unit + u] = c;
  for (uint32_t m = 0; m < program->message_count / (uint32_t)plan_copy_count(plan); m++) {
    const plan_message *message = &program->messages[m];
    for (int i = message->first_tensor; !message->backward && i < message->first_tensor + message->tensor_count; i++) {
      const int tensor = program->message_tensors[i];
      int64_t bytes;
      if (plan_traffic_kind(g, chunk_of_unit, message->from_chunk, message->to_chunk, tensor) == PLAN_TRAFFIC_SKIP &&
          plan_skip_is_compressed(plan, g, tensor, &bytes))
        (*compressors)[(*count)++] = make(program, g, m, tensor);
    }
  }
  return DP_OK;
}
