#include "exec/parameters.h"

#include <string.h>

/* ---- places ---- */

static bool is_here(const exec_parameters_options *o, const graph_op *op) { return !o->here || o->here[op->unit]; }

/* The op's weights, if they are trained or not as asked; and its adapter. */
static void place_op(const exec_parameters_options *o, exec_parameters *p, int op_index, bool trained) {
  const graph_op *op = &p->graph->ops.items[op_index];
  for (int w = op->first_weight; w < op->first_weight + op->weight_count; w++) {
    if ((o->training && op->trainable == GRAPH_TRAIN_FULL) != trained) continue;
    p->offset[w] = p->count;
    p->trained[w] = trained;
    p->count += p->graph->weights.items[w].parameters;
  }
  if (!p->lora || op->adapter_parameters == 0 || trained != o->training) return;
  const int64_t in = op->attributes.in_channels, out = op->attributes.out_channels;
  exec_lora *lora = &p->lora[op_index];
  lora->rank = op->adapter_parameters / (in + out);
  lora->scale = o->lora_alpha > 0 ? (float)(o->lora_alpha / (double)lora->rank) : 1;
  p->lora_offset[op_index] = p->count;
  p->count += op->adapter_parameters;
}

static void place_extras(const exec_parameters_options *o, exec_parameters *p, int unit, bool trained) {
  for (int i = 0; i < o->extra_count; i++) {
    const exec_extra *extra = &o->extras[i];
    if (extra->unit != unit || (o->training && extra->trained) != trained) continue;
    p->extra_offset[i] = p->count;
    p->count += extra->count;
  }
}

static void place_all(const exec_parameters_options *o, exec_parameters *p) {
  const graph *g = p->graph;
  for (size_t w = 0; w < g->weights.count; w++) p->offset[w] = -1;
  for (int pass = 0; pass < 2; pass++) {
    for (size_t u = 0; u < g->units.count; u++) {
      const graph_unit *unit = &g->units.items[u];
      if (pass == 0) p->unit_first[u] = p->count;
      for (int i = unit->first_op; i < unit->first_op + unit->op_count; i++)
        if (is_here(o, &g->ops.items[i])) place_op(o, p, i, pass == 0);
      if (!o->here || o->here[u]) place_extras(o, p, (int)u, pass == 0);
    }
    if (pass == 0) p->unit_first[g->units.count] = p->trained_count = p->count;
  }
}

static void *at(float *array, graph_dtype dtype, int64_t offset) {
  return (char *)array + offset * graph_dtype_bytes(dtype);
}

/* Where the factors lie, in whatever `values` are now. */
static void point(exec_parameters *p) {
  for (size_t i = 0; p->lora && i < p->graph->ops.count; i++) {
    exec_lora *lora = &p->lora[i];
    if (lora->rank == 0) continue;
    const int64_t a = p->lora_offset[i], b = a + lora->rank * p->graph->ops.items[i].attributes.in_channels;
    lora->a = at(p->values, p->value_dtype, a);
    lora->b = at(p->values, p->value_dtype, b);
    if (!p->gradients) continue;
    lora->da = at(p->gradients, p->gradient_dtype, a);
    lora->db = at(p->gradients, p->gradient_dtype, b);
  }
}

static bool has_adapters(const graph *g) {
  for (size_t o = 0; o < g->ops.count; o++)
    if (g->ops.items[o].adapter_parameters > 0) return true;
  return false;
}

/* An array in given memory, or else in the arena. */
static bool place_array(exec_parameters *p, float *given, int64_t count, float **array) {
  *array = given ? given : DP_ARENA_NEW(&p->arena, float, (size_t)count + 1);
  return *array != NULL;
}

static bool place_arrays(const exec_parameters_options *o, exec_parameters *p) {
  const int64_t n = p->trained_count;
  float *moments = o->optimizer;
  if (!place_array(p, o->values, p->count, &p->values)) return false;
  if (!o->training) return true;
  if (o->value_dtype == GRAPH_BF16) p->low = (uint16_t *)(void *)(moments + (o->means ? 3 : 2) * n);
  return place_array(p, o->gradients, n, &p->gradients) && place_array(p, moments, n, &p->first) &&
         place_array(p, moments ? moments + n : NULL, n, &p->second) &&
         (!o->means || place_array(p, moments ? moments + 2 * n : NULL, n, &p->means));
}

dp_status exec_parameters_init(const graph *g, const exec_parameters_options *options, exec_parameters *parameters,
                               dp_error *error) {
  exec_parameters made = {.graph = g, .value_dtype = options->value_dtype, .gradient_dtype = options->gradient_dtype};
  made.offset = DP_ARENA_NEW(&made.arena, int64_t, g->weights.count);
  made.trained = DP_ARENA_NEW(&made.arena, uint8_t, g->weights.count);
  made.unit_first = DP_ARENA_NEW(&made.arena, int64_t, g->units.count + 1);
  made.extra_offset = DP_ARENA_NEW(&made.arena, int64_t, (size_t)options->extra_count + 1);
  bool room = made.offset && made.trained && made.unit_first && made.extra_offset;
  if (room && has_adapters(g)) {
    made.lora = DP_ARENA_NEW(&made.arena, exec_lora, g->ops.count);
    made.lora_offset = DP_ARENA_NEW(&made.arena, int64_t, g->ops.count);
    room = made.lora && made.lora_offset;
  }
  if (room) place_all(options, &made);
  room = room && place_arrays(options, &made);
  if (!room) {
    dp_arena_free(&made.arena);
    return dp_fail_memory(error);
  }
  point(&made);
  *parameters = made;
  return DP_OK;
}

void exec_parameters_free(exec_parameters *parameters) {
  dp_arena_free(&parameters->arena);
  memset(parameters, 0, sizeof *parameters);
}

void exec_parameters_exchange_means(exec_parameters *p) {
  for (int64_t i = 0; i < p->trained_count; i++) {
    const float value = p->values[i];
    p->values[i] = p->means[i];
    p->means[i] = value;
  }
}

/* ---- weights ---- */

void *exec_parameters_value(const exec_parameters *p, int weight) {
  return p->offset[weight] < 0 ? NULL : at(p->values, p->value_dtype, p->offset[weight]);
}

void *exec_parameters_gradient(const exec_parameters *p, int weight) {
  return p->offset[weight] < 0 || !p->trained[weight] ? NULL : at(p->gradients, p->gradient_dtype, p->offset[weight]);
}

bool exec_weight_is_permuted(const graph_weight *w) { return w->rank == 4; }

void exec_weight_from_file(kern_context *context, const graph_weight *w, const float *file, float *memory) {
  if (exec_weight_is_permuted(w))
    kern_conv2d_weight_from_file(context, w->dims[0], w->dims[1], w->dims[2], w->dims[3], file, memory);
  else
    kern_copy(context, w->parameters, file, memory);
}

void exec_weight_to_file(kern_context *context, const graph_weight *w, const float *memory, float *file) {
  if (exec_weight_is_permuted(w))
    kern_conv2d_weight_to_file(context, w->dims[0], w->dims[1], w->dims[2], w->dims[3], memory, file);
  else
    kern_copy(context, w->parameters, memory, file);
}

void exec_parameters_from_file(kern_context *context, exec_parameters *p, int weight, const float *file) {
  exec_weight_from_file(context, &p->graph->weights.items[weight], file, p->values + p->offset[weight]);
}

void exec_parameters_to_file(kern_context *context, const exec_parameters *p, const float *array, int weight,
                             float *file) {
  exec_weight_to_file(context, &p->graph->weights.items[weight], array + p->offset[weight], file);
}
