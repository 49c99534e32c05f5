/* What makes two ops the same work: kind, shapes, attributes, and in backward which gradients are wanted. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "graph/op_table.h"
#include "plan/profile.h"

dp_status plan_profile_keys_init(const graph *g, plan_profile_keys *keys, dp_error *error) {
  int *last = malloc((g->tensors.count + 1) * sizeof *last);
  if (!last) return dp_fail_memory(error);
  for (size_t t = 0; t < g->tensors.count; t++) last[t] = GRAPH_NONE;
  for (size_t o = 0; o < g->ops.count; o++)
    for (int i = 0; i < g->ops.items[o].input_count; i++) last[g->ops.items[o].inputs[i]] = (int)o;
  *keys = (plan_profile_keys){g, last};
  return DP_OK;
}

void plan_profile_keys_free(plan_profile_keys *keys) {
  free(keys->last_reader);
  *keys = (plan_profile_keys){NULL, NULL};
}

static bool wanted(const graph *g, const graph_op *op, int input) {
  return g->tensors.items[op->inputs[input]].needs_gradient;
}

bool plan_profile_runs(const graph *g, int o, plan_direction direction) {
  const graph_op *op = &g->ops.items[o];
  if (op->kind == GRAPH_RESHAPE) return false;
  if (direction == PLAN_DIRECTION_FORWARD) return true;
  if (direction == PLAN_DIRECTION_BACKWARD_WEIGHT)
    return (op->weight_count > 0 && op->trainable == GRAPH_TRAIN_FULL) || op->adapter_parameters > 0;
  if (op->kind == GRAPH_TIME_EMBEDDING || op->kind == GRAPH_TEXT_EMBEDDING) return false;
  for (int i = 0; i < op->input_count; i++)
    if (wanted(g, op, i)) return true;
  return false;
}

static void add_dims(const graph_tensor *t, dp_str *key) {
  for (int d = 0; d < t->rank; d++) dp_str_addf(key, "%s%lld", d ? "x" : " ", (long long)t->dims[d]);
}

/* " name=3x3" of the last `count` of T, H, W, where one is set */
static void add_spatial(const char *name, const int64_t values[3], int count, dp_str *key) {
  bool any = false;
  for (int i = 3 - count; i < 3; i++) any = any || values[i] != 0;
  if (!any) return;
  dp_str_addf(key, " %s=", name);
  for (int i = 3 - count; i < 3; i++) dp_str_addf(key, "%s%lld", i > 3 - count ? "x" : "", (long long)values[i]);
}

static void add_attributes(const graph_op *op, int spatial, dp_str *key) {
  const graph_attributes *a = &op->attributes;
  const struct {
    const char *name;
    int64_t value;
  } numbers[] = {{"groups", a->groups}, {"heads", a->heads}, {"head_dim", a->head_dim}, {"scale", a->scale},
                 {"axis", a->axis},     {"parts", a->parts}, {"first", a->first}};
  if (op->kind == GRAPH_CONV2D || op->kind == GRAPH_CONV3D) {
    add_spatial("kernel", a->kernel, spatial, key);
    add_spatial("stride", a->stride, spatial, key);
    add_spatial("padding", a->padding, spatial, key);
  }
  if (op->kind == GRAPH_PATCHIFY || op->kind == GRAPH_UNPATCHIFY) add_spatial("patch", a->patch, 3, key);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].value) dp_str_addf(key, " %s=%lld", numbers[i].name, (long long)numbers[i].value);
  if (a->bias) dp_str_add(key, " bias");
  if (a->affine) dp_str_add(key, " affine");
  if (op->adapter_parameters > 0)
    dp_str_addf(key, " lora=%lld", (long long)(op->adapter_parameters / (a->in_channels + a->out_channels)));
}

void plan_profile_key(const plan_profile_keys *keys, int o, plan_direction direction, dp_str *key) {
  const graph *g = keys->graph;
  const graph_op *op = &g->ops.items[o];
  dp_str_clear(key);
  dp_str_add(key, graph_op_kind_name(op->kind));
  for (int i = 0; i < op->input_count; i++) add_dims(&g->tensors.items[op->inputs[i]], key);
  dp_str_add(key, " >");
  for (int i = 0; i < op->output_count; i++) add_dims(&g->tensors.items[op->outputs[i]], key);
  add_attributes(op, g->tensors.items[op->inputs[0]].rank - 2, key);
  if (direction != PLAN_DIRECTION_BACKWARD_INPUT) return;
  const char *separator = " dx=";
  for (int i = 0; i < op->input_count; i++) {
    if (!wanted(g, op, i)) continue;
    /* backward meets a tensor's last reader first: the others add to what that one has left */
    dp_str_addf(key, "%s%d%s", separator, i, keys->last_reader[op->inputs[i]] == o ? "" : "+");
    separator = ",";
  }
}

plan_profile_work plan_profile_work_of(const graph *g, int o, plan_direction direction) {
  const graph_op *op = &g->ops.items[o];
  const graph_work *work = direction == PLAN_DIRECTION_FORWARD          ? &op->forward
                           : direction == PLAN_DIRECTION_BACKWARD_INPUT ? &op->backward_input
                                                                        : &op->backward_weight;
  double bytes = (double)work->bytes_read + (double)work->bytes_written;
  if (bytes == 0) {
    work = &op->forward;
    bytes = (double)work->bytes_read + (double)work->bytes_written;
  }
  if (bytes == 0) /* a piece that the graph counts as a view, and that is copied */
    for (int i = 0; i < op->output_count; i++) bytes += 2 * (double)g->tensors.items[op->outputs[i]].bytes;
  return (plan_profile_work){(double)work->matrix_flops, (double)(work->flops - work->matrix_flops), bytes};
}

/* FNV-1a, 64 bits */
static uint64_t hash(uint64_t so_far, const char *text) {
  for (; *text; text++) so_far = (so_far ^ (uint8_t)*text) * UINT64_C(1099511628211);
  return (so_far ^ '\n') * UINT64_C(1099511628211);
}

void plan_profile_unit_key(const plan_profile_keys *keys, int u, dp_str *scratch, char out[17]) {
  const graph_unit *unit = &keys->graph->units.items[u];
  uint64_t value = UINT64_C(14695981039346656037);
  for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
    for (int d = 0; d < PLAN_DIRECTION_COUNT; d++) {
      if (!plan_profile_runs(keys->graph, o, (plan_direction)d)) continue;
      plan_profile_key(keys, o, (plan_direction)d, scratch);
      value = hash(hash(value, plan_direction_names[d]), dp_str_text(scratch));
    }
  (void)snprintf(out, 17, "%016" PRIx64, value);
}
