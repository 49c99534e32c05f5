#include "graph/build.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/checked.h"
#include "graph/liveness.h"
#include "graph/op_table.h"

/* A model file is not trusted: no config may ask for more than this (SDXL has about 2,000 ops, Flux 1,600). */
enum { MAX_OPS = 1 << 17 };

struct graph_builder {
  graph *graph;
  const dp_node *config; /* NULL: built by hand */
  graph_trainable trainable;
  int64_t lora_rank;
  bool lora_all_linear;
  const char *const *lora_targets;
  size_t lora_target_count;
  bool (*joins)(const char *unit);
  dp_status status;
  dp_error error;
  char name[256]; /* scratch */
};

/* Linear layers that get an adapter where no others are named: the attention projections. */
static const char *const projections[] = {"to_q",       "to_k",       "to_v",       "to_out.0",
                                          "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"};

bool graph_is_target(const char *target, const char *name) {
  const size_t length = strlen(name), ending = strlen(target);
  if (length < ending || strcmp(name + length - ending, target) != 0) return false;
  return length == ending || name[length - ending - 1] == '.';
}

static bool is_adapted(const graph_builder *b, const char *name) {
  if (b->lora_all_linear) return strstr(name, "block") != NULL; /* down_blocks, mid_block, transformer_blocks, ... */
  for (size_t i = 0; i < b->lora_target_count; i++)
    if (graph_is_target(b->lora_targets[i], name)) return true;
  return false;
}

graph_builder *graph_build_begin(graph *g, const graph_model_options *options, const dp_node *config) {
  graph_builder *b = calloc(1, sizeof *b);
  if (b == NULL) return NULL;
  b->graph = g;
  b->config = config;
  b->trainable = options->trainable;
  b->lora_rank = options->lora_rank;
  b->lora_all_linear = options->lora_all_linear && !options->lora_targets;
  b->lora_targets = options->lora_targets ? options->lora_targets : projections;
  b->lora_target_count = options->lora_targets ? options->lora_target_count : sizeof projections / sizeof *projections;
  b->joins = options->joins;
  g->batch = options->batch;
  g->height = options->height;
  g->width = options->width;
  g->frames = options->frames;
  g->text_tokens = options->text_tokens;
  g->precision = options->precision;
  g->tensor_parallel = 1;
  g->config_file = "";
  if (config != NULL && config->file != NULL) {
    g->config_file = dp_arena_strdup(&g->arena, config->file);
    if (g->config_file == NULL) b->status = dp_fail_memory(&b->error);
  }
  return b;
}

bool graph_build_failed(const graph_builder *b) { return b->status != DP_OK; }

static int fail_memory(graph_builder *b) {
  if (b->status == DP_OK) b->status = dp_fail_memory(&b->error);
  return GRAPH_NONE;
}

void graph_build_fail(graph_builder *b, const dp_node *node, const char *format, ...) {
  if (b->status != DP_OK) return;
  char text[DP_ERROR_TEXT_BYTES / 2];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (node == NULL) node = b->config;
  b->status = node != NULL ? dp_fail_at(&b->error, node, "%s", text) : dp_fail(&b->error, DP_BAD_INPUT, "%s", text);
}

void graph_build_fail_memory(graph_builder *b) { fail_memory(b); }

const char *graph_build_name(graph_builder *b, const char *format, ...) {
  if (b->status != DP_OK) return "";
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(b->name, sizeof b->name, format, arguments);
  va_end(arguments);
  const char *name = dp_arena_strdup(&b->graph->arena, b->name);
  if (name == NULL) fail_memory(b);
  return name != NULL ? name : "";
}

const graph_tensor *graph_build_tensor(const graph_builder *b, int tensor) {
  if (b->status != DP_OK || tensor < 0 || (size_t)tensor >= b->graph->tensors.count) return NULL;
  return &b->graph->tensors.items[tensor];
}

static int add_tensor(graph_builder *b, graph_tensor tensor) {
  if (b->status != DP_OK) return GRAPH_NONE;
  const int64_t elements = graph_tensor_elements(&tensor);
  tensor.bytes = graph_mul(elements, graph_dtype_bytes(tensor.dtype));
  if (graph_is_huge(tensor.bytes)) {
    graph_build_fail(b, NULL, "tensor %s has more bytes than 64 bits can count, take smaller sizes", tensor.name);
    return GRAPH_NONE;
  }
  if (!dp_array_push(&b->graph->tensors, tensor)) return fail_memory(b);
  return (int)b->graph->tensors.count - 1;
}

static int add_input(graph_builder *b, const char *name, int rank, const int64_t dims[], graph_dtype dtype,
                     bool is_constant) {
  graph_tensor tensor = {.rank = rank,
                         .dtype = dtype,
                         .producer_op = GRAPH_NONE,
                         .producer_unit = GRAPH_NONE,
                         .view_of = GRAPH_NONE,
                         .is_constant = is_constant};
  for (int i = 0; i < rank; i++) tensor.dims[i] = dims[i];
  tensor.name = graph_build_name(b, "%s", name);
  return add_tensor(b, tensor);
}

int graph_build_input(graph_builder *b, const char *name, int rank, const int64_t dims[]) {
  return add_input(b, name, rank, dims, b->graph->precision, false);
}

int graph_build_constant(graph_builder *b, const char *name, int rank, const int64_t dims[], graph_dtype dtype) {
  return add_input(b, name, rank, dims, dtype, true);
}

int graph_build_scalars(graph_builder *b, const char *name, int rank, const int64_t dims[]) {
  return add_input(b, name, rank, dims, GRAPH_FP32, false);
}

void graph_build_unit(graph_builder *b, const char *name) {
  if (b->status != DP_OK) return;
  if (b->joins != NULL && b->graph->units.count > 0 && b->joins(name)) return;
  const graph_unit unit = {.name = graph_build_name(b, "%s", name), .first_op = (int)b->graph->ops.count};
  if (!dp_array_push(&b->graph->units, unit)) fail_memory(b);
}

/* Appends the weights that shape inference found. */
static void add_weights(graph_builder *b, graph_op *op, const graph_shape *shape) {
  op->first_weight = (int)b->graph->weights.count;
  op->weight_count = shape->weight_count;
  for (int i = 0; i < shape->weight_count; i++) {
    graph_weight weight = {.rank = shape->weights[i].rank, .parameters = 1};
    for (int d = 0; d < weight.rank; d++) {
      weight.dims[d] = shape->weights[i].dims[d];
      weight.parameters = graph_mul(weight.parameters, weight.dims[d]);
    }
    weight.name = graph_build_name(b, "%s.%s", op->name, shape->weights[i].suffix);
    op->parameters = graph_add(op->parameters, weight.parameters);
    if (b->status == DP_OK && !dp_array_push(&b->graph->weights, weight)) fail_memory(b);
  }
  op->trainable = b->trainable;
  if (b->trainable != GRAPH_TRAIN_LORA) return;
  const bool adapter = op->kind == GRAPH_LINEAR && is_adapted(b, op->name);
  op->trainable = adapter ? GRAPH_TRAIN_LORA : GRAPH_TRAIN_FROZEN;
  if (adapter)
    op->adapter_parameters =
        graph_mul(b->lora_rank, graph_add(op->attributes.in_channels, op->attributes.out_channels));
}

static int *copy_ids(graph_builder *b, const int *ids, int count) {
  int *copy = DP_ARENA_NEW(&b->graph->arena, int, (size_t)count);
  if (copy == NULL) fail_memory(b);
  for (int i = 0; copy != NULL && i < count; i++) copy[i] = ids[i];
  return copy;
}

/* Runs the op's shape inference; false: refused. */
static bool infer_shapes(graph_builder *b, const graph_op *op, graph_shape *shape) {
  const graph_op_row *row = &graph_op_rows[op->kind];
  shape->attributes = &op->attributes;
  shape->precision = b->graph->precision;
  shape->input_count = op->input_count;
  for (int i = 0; i < op->input_count; i++) {
    if (op->inputs[i] < 0 || (size_t)op->inputs[i] >= b->graph->tensors.count) {
      graph_build_fail(b, NULL, "%s (%s) reads a tensor that does not exist", op->name, row->name);
      return false;
    }
    shape->inputs[i] = &b->graph->tensors.items[op->inputs[i]];
  }
  row->shape(shape);
  if (shape->problem[0] != '\0') {
    graph_build_fail(b, NULL, "%s (%s): %s", op->name, row->name, shape->problem);
    return false;
  }
  return true;
}

int graph_build_op(graph_builder *b, graph_op_kind kind, const char *name, const graph_attributes *attributes,
                   const int *inputs, int input_count) {
  if (b->status != DP_OK) return GRAPH_NONE;
  const graph_op_row *row = &graph_op_rows[kind];
  graph *const g = b->graph;
  if (g->units.count == 0 || input_count < row->min_inputs || input_count > row->max_inputs) {
    graph_build_fail(b, NULL, "%s (%s): no unit was begun, or %d inputs are not %d to %d", name, row->name, input_count,
                     row->min_inputs, row->max_inputs);
    return GRAPH_NONE;
  }
  if (g->ops.count >= MAX_OPS) {
    graph_build_fail(b, NULL, "the model has more than %d ops, take fewer or smaller layers", MAX_OPS);
    return GRAPH_NONE;
  }
  graph_op op = {.kind = kind,
                 .unit = (int)g->units.count - 1,
                 .input_count = input_count,
                 .attributes = attributes != NULL ? *attributes : (graph_attributes){0}};
  op.name = graph_build_name(b, "%s", name);
  op.inputs = copy_ids(b, inputs, input_count);
  if (b->status != DP_OK) return GRAPH_NONE;
  graph_shape shape = {0};
  if (!infer_shapes(b, &op, &shape)) return GRAPH_NONE;
  int outputs[GRAPH_MAX_PIECES];
  for (int i = 0; i < shape.output_count; i++) {
    graph_tensor *tensor = &shape.outputs[i];
    tensor->name =
        shape.output_count == 1 ? graph_build_name(b, "%s.output", name) : graph_build_name(b, "%s.output.%d", name, i);
    tensor->producer_op = (int)g->ops.count;
    tensor->producer_unit = op.unit;
    tensor->view_of = graph_op_has(&op, GRAPH_OP_VIEW) ? inputs[0] : GRAPH_NONE;
    outputs[i] = add_tensor(b, *tensor);
  }
  op.output_count = shape.output_count;
  op.outputs = copy_ids(b, outputs, op.output_count);
  add_weights(b, &op, &shape);
  if (b->status == DP_OK && !dp_array_push(&g->ops, op)) return fail_memory(b);
  if (b->status != DP_OK) return GRAPH_NONE;
  g->units.items[op.unit].op_count++;
  return outputs[0];
}

void graph_build_output(graph_builder *b, int tensor) {
  if (b->status != DP_OK) return;
  if (tensor < 0 || (size_t)tensor >= b->graph->tensors.count)
    graph_build_fail(b, NULL, "the output is a tensor that does not exist");
  else
    b->graph->tensors.items[tensor].is_output = true;
}

void graph_build_latent(graph_builder *b, int tensor) {
  const graph_tensor *latent = graph_build_tensor(b, tensor);
  if (latent != NULL) b->graph->latent_bytes = latent->bytes;
}

/* Ascending, unique lists of the units that read (`saved`: keep for backward) each tensor. Ops come in the order of
 * their units, so the last unit listed tells whether this one is new. First pass counts, second fills. */
static void list_units(graph_builder *b, bool saved, int *latest) {
  graph *const g = b->graph;
  for (int pass = 0; pass < 2; pass++) {
    for (size_t t = 0; t < g->tensors.count; t++) {
      graph_tensor *tensor = &g->tensors.items[t];
      int *count = saved ? &tensor->saver_unit_count : &tensor->consumer_unit_count;
      if (pass == 1) {
        int *units = DP_ARENA_NEW(&g->arena, int, (size_t)*count);
        if (units == NULL) {
          fail_memory(b);
          return;
        }
        if (saved)
          tensor->saver_units = units;
        else
          tensor->consumer_units = units;
      }
      *count = 0;
      latest[t] = GRAPH_NONE;
    }
    for (size_t o = 0; o < g->ops.count; o++) {
      const graph_op *op = &g->ops.items[o];
      const int *ids = saved ? op->saved : op->inputs;
      for (int i = 0; i < (saved ? op->saved_count : op->input_count); i++) {
        graph_tensor *tensor = &g->tensors.items[ids[i]];
        int *count = saved ? &tensor->saver_unit_count : &tensor->consumer_unit_count;
        if (latest[ids[i]] == op->unit) continue;
        latest[ids[i]] = op->unit;
        if (pass == 1) (saved ? tensor->saver_units : tensor->consumer_units)[*count] = op->unit;
        ++*count;
      }
    }
  }
}

/* `latest` becomes the last op that reads each tensor. */
static void count_readers(graph *g, int *latest) {
  for (size_t t = 0; t < g->tensors.count; t++) latest[t] = GRAPH_NONE;
  for (size_t o = 0; o < g->ops.count; o++) {
    const graph_op *op = &g->ops.items[o];
    for (int i = 0; i < op->input_count; i++) {
      if (latest[op->inputs[i]] != (int)o) g->tensors.items[op->inputs[i]].consumer_op_count++;
      latest[op->inputs[i]] = (int)o;
    }
  }
}

static void mark_fused(graph *g) {
  for (size_t o = 1; o < g->ops.count; o++) {
    graph_op *op = &g->ops.items[o];
    const graph_op *before = &g->ops.items[o - 1];
    if (!graph_op_has(op, GRAPH_OP_ELEMENTWISE) || before->unit != op->unit || graph_op_has(before, GRAPH_OP_VIEW))
      continue;
    const graph_tensor *between = &g->tensors.items[before->outputs[0]];
    for (int i = 0; i < op->input_count; i++)
      if (op->inputs[i] == before->outputs[0] && between->consumer_op_count == 1 && !between->is_output)
        op->fused = true;
  }
}

/* Needs the units that read each tensor. */
static void mark_fused_away(graph *g) {
  for (size_t i = 0; i < g->tensors.count; i++) {
    graph_tensor *t = &g->tensors.items[i];
    if (t->producer_op == GRAPH_NONE || t->is_output || (size_t)t->producer_op + 1 >= g->ops.count) continue;
    const graph_op *next = &g->ops.items[t->producer_op + 1];
    if (!next->fused || t->consumer_unit_count != 1 || t->consumer_units[0] != t->producer_unit) continue;
    for (int k = 0; k < next->input_count; k++)
      if (next->inputs[k] == (int)i) t->fused_away = t->consumer_op_count == 1;
  }
}

static bool has_trainable(const graph_op *op) {
  return op->adapter_parameters > 0 || (op->trainable == GRAPH_TRAIN_FULL && op->parameters > 0);
}

static void mark_gradients(graph *g) {
  for (size_t o = 0; o < g->ops.count; o++) {
    const graph_op *op = &g->ops.items[o];
    /* the fixed costs of a synthetic unit include its backward, whether or not it has parameters */
    bool needed = has_trainable(op) || op->kind == GRAPH_SYNTHETIC;
    for (int i = 0; i < op->input_count; i++) needed = needed || g->tensors.items[op->inputs[i]].needs_gradient;
    for (int i = 0; i < op->output_count; i++) g->tensors.items[op->outputs[i]].needs_gradient = needed;
  }
}

/* Keeps what the costs say, views of this unit as what they show, each tensor once, constants never. */
static void keep_saved(graph_builder *b, graph_op *op, const graph_cost *cost) {
  int ids[GRAPH_MAX_INPUTS + 1], count = 0;
  for (int i = 0; i <= op->input_count; i++) {
    const bool is_output = i == op->input_count;
    if (is_output ? !cost->saves_output : !cost->saves[i]) continue;
    const int id = graph_liveness_root(b->graph, is_output ? op->outputs[0] : op->inputs[i], op->unit, op->unit + 1);
    bool known = b->graph->tensors.items[id].is_constant;
    for (int j = 0; j < count; j++) known = known || ids[j] == id;
    if (!known) ids[count++] = id;
  }
  op->saved = copy_ids(b, ids, count);
  op->saved_count = op->saved != NULL ? count : 0;
  op->saved_extra_bytes = cost->saved_extra_bytes;
  op->statistic_bytes = cost->statistic_bytes;
}

static bool work_is_huge(const graph_work *work) {
  return graph_is_huge(work->flops) || graph_is_huge(work->bytes_read) || graph_is_huge(work->bytes_written);
}

static void cost_op(graph_builder *b, int index, const int *last_reader) {
  graph *const g = b->graph;
  graph_op *op = &g->ops.items[index];
  const graph_op_row *row = &graph_op_rows[op->kind];
  graph_cost cost = {.graph = g, .op = op, .element_bytes = graph_dtype_bytes(g->precision)};
  for (int i = 0; i < op->input_count; i++) {
    cost.inputs[i] = &g->tensors.items[op->inputs[i]];
    cost.input_gradient = cost.input_gradient || cost.inputs[i]->needs_gradient;
  }
  cost.output = &g->tensors.items[op->outputs[0]];
  cost.in = graph_tensor_elements(cost.inputs[0]);
  cost.out = graph_tensor_elements(cost.output);
  cost.weight_gradient = op->trainable == GRAPH_TRAIN_FULL && op->parameters > 0;
  if (cost.inputs[0]->producer_unit == op->unit) {
    const graph_op *before = &g->ops.items[cost.inputs[0]->producer_op];
    cost.after_norm = graph_op_has(before, GRAPH_OP_NORM) && before->saved_count > 0;
  }
  row->cost(&cost);
  for (int i = 0; i < op->input_count && !graph_op_has(op, GRAPH_OP_VIEW); i++)
    if (cost.inputs[i]->needs_gradient && last_reader[op->inputs[i]] != index)
      graph_cost_accumulate(&cost.backward_input, cost.inputs[i]);
  op->forward = cost.forward;
  op->backward_input = cost.backward_input;
  op->backward_weight = cost.backward_weight;
  if (work_is_huge(&op->forward) || work_is_huge(&op->backward_input) || work_is_huge(&op->backward_weight) ||
      graph_is_huge(op->parameters) || graph_is_huge(op->adapter_parameters))
    graph_build_fail(b, NULL, "%s (%s) does more than 64 bits can count, take smaller sizes", op->name, row->name);
  keep_saved(b, op, &cost);
}

/* Sums over ops and units; every sum saturates, so the totals tell whether any overflowed. */
static void sum_up(graph_builder *b) {
  graph *const g = b->graph;
  for (size_t u = 0; u < g->units.count; u++) {
    graph_unit *unit = &g->units.items[u];
    for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++) {
      const graph_op *op = &g->ops.items[o];
      const int64_t own = op->trainable == GRAPH_TRAIN_FULL ? op->parameters : 0;
      unit->parameters = graph_add(unit->parameters, op->parameters);
      unit->adapter_parameters = graph_add(unit->adapter_parameters, op->adapter_parameters);
      unit->trainable_parameters = graph_add(unit->trainable_parameters, graph_add(own, op->adapter_parameters));
      unit->forward_flops = graph_add(unit->forward_flops, op->forward.flops);
      unit->matrix_flops = graph_add(unit->matrix_flops, op->forward.matrix_flops);
    }
    g->parameters = graph_add(g->parameters, unit->parameters);
    g->trainable_parameters = graph_add(g->trainable_parameters, unit->trainable_parameters);
    g->forward_flops = graph_add(g->forward_flops, unit->forward_flops);
    g->matrix_flops = graph_add(g->matrix_flops, unit->matrix_flops);
  }
  g->model_parameters = g->parameters;
  g->model_trainable_parameters = g->trainable_parameters;
}

static void measure(graph_builder *b) {
  graph *const g = b->graph;
  graph_liveness liveness;
  const dp_status status = graph_liveness_init(g, &liveness, &b->error);
  if (status != DP_OK) {
    b->status = status;
    return;
  }
  int64_t all = 0; /* of all units' bytes: huge when any of them is */
  for (size_t u = 0; u < g->units.count; u++) {
    graph_unit *unit = &g->units.items[u];
    graph_liveness_unit(&liveness, g->units.items, (int)u);
    all = graph_add(all, graph_add(graph_add(unit->saved_bytes, unit->output_bytes), unit->input_bytes));
    all = graph_add(all, graph_add(unit->inference_transient_bytes, unit->backward_transient_bytes));
  }
  graph_liveness_free(&liveness);
  g->saved_bytes = graph_saved_bytes(g, 0, (int)g->units.count, NULL, NULL);
  if (graph_is_huge(all) || graph_is_huge(g->forward_flops) || graph_is_huge(g->parameters))
    graph_build_fail(b, NULL, "the model's totals are more than 64 bits can count, take smaller sizes");
}

static void complete(graph_builder *b) {
  graph *const g = b->graph;
  if (g->ops.count == 0) {
    graph_build_fail(b, NULL, "the model has no ops");
    return;
  }
  for (size_t u = 0; u < g->units.count; u++)
    if (g->units.items[u].op_count == 0) graph_build_fail(b, NULL, "unit %s has no ops", g->units.items[u].name);
  int *scratch = malloc((g->tensors.count + 1) * sizeof *scratch);
  if (scratch == NULL) fail_memory(b);
  if (b->status == DP_OK) list_units(b, false, scratch);
  if (b->status == DP_OK) {
    count_readers(g, scratch);
    mark_fused(g);
    mark_gradients(g);
  }
  for (size_t o = 0; o < g->ops.count && b->status == DP_OK; o++) cost_op(b, (int)o, scratch);
  if (b->status == DP_OK) list_units(b, true, scratch);
  if (b->status == DP_OK) sum_up(b);
  if (b->status == DP_OK) mark_fused_away(g);
  if (b->status == DP_OK) measure(b);
  free(scratch);
}

dp_status graph_build_finish(graph_builder *b, dp_error *error) {
  if (b->status == DP_OK) complete(b);
  const dp_status status = b->status;
  if (status != DP_OK) {
    if (error != NULL) *error = b->error;
    graph_free(b->graph);
  }
  free(b);
  return status;
}
