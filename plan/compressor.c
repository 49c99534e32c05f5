#include "plan/compressor.h"

#include <math.h>
#include <stdlib.h>

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
  for (int i = 0; i < 3; i++) made.parameters += plan_compressor_matrix(&made, i);
  return made;
}

/* The compressor whose other direction a message of gradients is. */
static int find_forward(const plan_program *program, const plan_message *back, int tensor) {
  for (int i = 0; i < program->compressor_count; i++) {
    const plan_compressor *c = &program->compressors[i];
    const plan_message *forward = &program->messages[c->message];
    if (c->tensor == tensor && back->from_chunk == forward->to_chunk && back->to_chunk == forward->from_chunk) return i;
  }
  return -1;
}

static void list(plan_program *program, const graph *g, const int *chunk_of_unit) {
  const plan_plan *plan = program->plan;
  for (uint32_t m = 0; m < plan_message_count(program); m++) { /* forward ones first */
    const plan_message *message = &program->messages[m];
    for (int i = message->first_tensor; i < message->first_tensor + message->tensor_count; i++) {
      const int tensor = program->message_tensors[i];
      int64_t bytes;
      if (message->backward) {
        program->message_compressors[i] = find_forward(program, message, tensor);
        continue;
      }
      program->message_compressors[i] = -1;
      if (plan_traffic_kind(g, chunk_of_unit, message->from_chunk, message->to_chunk, tensor) != PLAN_TRAFFIC_SKIP ||
          !plan_skip_is_compressed(plan, g, tensor, &bytes))
        continue;
      program->message_compressors[i] = program->compressor_count;
      program->compressors[program->compressor_count++] = make(program, g, m, tensor);
    }
  }
}

dp_status plan_compressors_make(plan_program *program, const graph *g, dp_error *error) {
  const plan_plan *plan = program->plan;
  if (!plan_skip_is_used(plan, g, PLAN_SKIP_COMPRESS)) return DP_OK;
  program->message_compressors = DP_ARENA_NEW(&program->arena, int, program->message_tensor_count);
  program->compressors = DP_ARENA_NEW(&program->arena, plan_compressor, program->message_tensor_count);
  int *chunk_of_unit = malloc(g->units.count * sizeof *chunk_of_unit);
  if (!program->message_compressors || !program->compressors || !chunk_of_unit) {
    free(chunk_of_unit);
    return dp_fail_memory(error);
  }
  for (int c = 0; c < plan->chunk_count; c++)
    for (int u = 0; u < plan->chunks[c].unit_count; u++) chunk_of_unit[plan->chunks[c].first_unit + u] = c;
  list(program, g, chunk_of_unit);
  free(chunk_of_unit);
  return DP_OK;
}
