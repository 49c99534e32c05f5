#include "exec/parameters.h"

#include <string.h>

dp_status exec_parameters_init(const graph *g, const uint8_t *here, bool training, exec_parameters *parameters,
                               dp_error *error) {
  exec_parameters made = {.graph = g};
  made.offset = DP_ARENA_NEW(&made.arena, int64_t, g->weights.count);
  made.trained = DP_ARENA_NEW(&made.arena, uint8_t, g->weights.count);
  bool room = made.offset && made.trained;
  for (size_t w = 0; room && w < g->weights.count; w++) made.offset[w] = -1;
  for (size_t o = 0; room && o < g->ops.count; o++) {
    const graph_op *op = &g->ops.items[o];
    if (here && !here[op->unit]) continue;
    for (int w = op->first_weight; w < op->first_weight + op->weight_count; w++) {
      made.offset[w] = made.count;
      made.trained[w] = training && op->trainable == GRAPH_TRAIN_FULL;
      made.count += g->weights.items[w].parameters;
    }
  }
  float **const arrays[] = {&made.values, &made.gradients, &made.first, &made.second};
  for (int i = 0; room && i < (training ? 4 : 1); i++) {
    *arrays[i] = DP_ARENA_NEW(&made.arena, float, (size_t)made.count);
    room = *arrays[i] != NULL;
  }
  if (!room) {
    dp_arena_free(&made.arena);
    return dp_fail_memory(error);
  }
  *parameters = made;
  return DP_OK;
}

void exec_parameters_free(exec_parameters *parameters) {
  dp_arena_free(&parameters->arena);
  memset(parameters, 0, sizeof *parameters);
}

float *exec_parameters_value(const exec_parameters *p, int weight) {
  return p->offset[weight] < 0 ? NULL : p->values + p->offset[weight];
}

float *exec_parameters_gradient(const exec_parameters *p, int weight) {
  return p->offset[weight] < 0 || !p->trained[weight] ? NULL : p->gradients + p->offset[weight];
}

void exec_parameters_from_file(kern_context *context, exec_parameters *p, int weight, const float *file) {
  const graph_weight *w = &p->graph->weights.items[weight];
  float *memory = p->values + p->offset[weight];
  if (w->rank == 4)
    kern_conv2d_weight_from_file(context, w->dims[0], w->dims[1], w->dims[2], w->dims[3], file, memory);
  else
    kern_copy(context, w->parameters, file, memory);
}

void exec_parameters_to_file(kern_context *context, const exec_parameters *p, const float *array, int weight,
                             float *file) {
  const graph_weight *w = &p->graph->weights.items[weight];
  const float *memory = array + p->offset[weight];
  if (w->rank == 4)
    kern_conv2d_weight_to_file(context, w->dims[0], w->dims[1], w->dims[2], w->dims[3], memory, file);
  else
    kern_copy(context, w->parameters, memory, file);
}
