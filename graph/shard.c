#include "graph/shard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build.h"
#include "graph/checked.h"
#include "graph/op_table.h"

/* Where a tensor of the whole model is in the share: ids of the share's tensors, GRAPH_NONE where it is not. */
typedef struct place {
  int whole, split;
  int entered, entered_unit; /* TENSOR_ENTER of the whole one, made in that unit */
} place;

typedef struct sharder {
  const graph *whole;
  int degree;
  graph_builder *b;
  place *places;        /* [tensor] */
  uint8_t *stays_whole; /* [op] belongs to an attention that stays whole */
  int64_t *partial;     /* [unit] */
  const char **adapted; /* names of the layers with adapters */
  int whole_products, split_products;
} sharder;

static const graph_tensor *tensor_of(const sharder *s, int tensor) { return &s->whole->tensors.items[tensor]; }

static int64_t channels_of(const sharder *s, int tensor) {
  const graph_tensor *t = tensor_of(s, tensor);
  return t->dims[graph_tensor_channel_axis(t)];
}

static bool divides(const sharder *s, int64_t count) { return count % s->degree == 0; }

static bool is_product(const graph_op *op) {
  return op->kind == GRAPH_LINEAR || op->kind == GRAPH_CONV2D || op->kind == GRAPH_CONV3D;
}

/* ---- what stays whole with its attention ---- */

static bool is_between(const graph_op *op) { /* a product and an attention */
  return op->kind == GRAPH_RMS_NORM || op->kind == GRAPH_ROTARY || op->kind == GRAPH_CONCAT ||
         op->kind == GRAPH_SPLIT || op->kind == GRAPH_RESHAPE;
}

/* Backwards from an op to the linear layers that feed it. */
static void mark_feeding(sharder *s, const graph_op *op) {
  for (int i = 0; i < op->input_count; i++) {
    const int producer = tensor_of(s, op->inputs[i])->producer_op;
    if (producer == GRAPH_NONE || s->whole->ops.items[producer].unit != op->unit) continue;
    const graph_op *made = &s->whole->ops.items[producer];
    if (made->kind == GRAPH_LINEAR)
      s->stays_whole[producer] = 1;
    else if (is_between(made))
      mark_feeding(s, made);
  }
}

/* The op that made what this one reads first, views looked through; NULL: a graph input. */
static const graph_op *source_of(const sharder *s, const graph_op *op) {
  const graph_op *made = NULL;
  for (int t = op->inputs[0];; t = made->inputs[0]) {
    if (tensor_of(s, t)->producer_op == GRAPH_NONE) return NULL;
    made = &s->whole->ops.items[tensor_of(s, t)->producer_op];
    if (!graph_op_has(made, GRAPH_OP_VIEW)) return made;
  }
}

static bool attention_is_whole(const sharder *s, const graph_op *op) {
  return op->kind == GRAPH_ATTENTION && !divides(s, op->attributes.heads);
}

static void mark_attentions(sharder *s) {
  for (size_t o = 0; o < s->whole->ops.count; o++) {
    const graph_op *op = &s->whole->ops.items[o];
    if (attention_is_whole(s, op)) mark_feeding(s, op);
    if (op->kind != GRAPH_LINEAR) continue;
    const graph_op *source = source_of(s, op);
    if (source != NULL && source->unit == op->unit && attention_is_whole(s, source)) s->stays_whole[o] = 1;
  }
}

/* ---- tensors of the share ---- */

/* The tensor, whole; gathers it when it is split. */
static int need_whole(sharder *s, int tensor) {
  place *p = &s->places[tensor];
  if (p->whole != GRAPH_NONE) return p->whole;
  const char *name = graph_build_name(s->b, "%s.gather", tensor_of(s, tensor)->name);
  p->whole = graph_build_op(s->b, GRAPH_TENSOR_GATHER, name, &(graph_attributes){.parts = s->degree}, &p->split, 1);
  return p->whole;
}

/* The whole tensor for an op of `unit` that splits by output channels. */
static int enter(sharder *s, int tensor, int unit) {
  const int whole = need_whole(s, tensor);
  place *p = &s->places[tensor];
  if (!tensor_of(s, tensor)->needs_gradient) return whole;
  if (p->entered_unit == unit) return p->entered;
  const char *name = graph_build_name(s->b, "%s.enter", tensor_of(s, tensor)->name);
  p->entered = graph_build_op(s->b, GRAPH_TENSOR_ENTER, name, NULL, &whole, 1);
  p->entered_unit = unit;
  return p->entered;
}

static bool is_split(const sharder *s, int tensor) {
  return s->places[tensor].whole == GRAPH_NONE && s->places[tensor].split != GRAPH_NONE;
}

static bool all_split(const sharder *s, const graph_op *op) {
  for (int i = 0; i < op->input_count; i++)
    if (!is_split(s, op->inputs[i])) return false;
  return true;
}

/* What leaves the unit is whole. */
static bool leaves(const graph_tensor *t) {
  return t->is_output ||
         (t->consumer_unit_count > 0 && t->consumer_units[t->consumer_unit_count - 1] > t->producer_unit);
}

/* Places the outputs of an op, whose first is `first` in the share. */
static void place_outputs(sharder *s, const graph_op *op, int first, bool split) {
  for (int i = 0; i < op->output_count; i++) {
    place *p = &s->places[op->outputs[i]];
    *(split ? &p->split : &p->whole) = first + i;
  }
  for (int i = 0; split && i < op->output_count; i++)
    if (leaves(tensor_of(s, op->outputs[i]))) (void)need_whole(s, op->outputs[i]);
}

/* ---- ops ---- */

static void copy_whole(sharder *s, const graph_op *op) {
  int inputs[GRAPH_MAX_INPUTS];
  for (int i = 0; i < op->input_count; i++) inputs[i] = need_whole(s, op->inputs[i]);
  place_outputs(s, op, graph_build_op(s->b, op->kind, op->name, &op->attributes, inputs, op->input_count), false);
}

/* An op whose inputs are split, the second of a rotation apart: its table is whole. */
static void copy_split(sharder *s, const graph_op *op, const graph_attributes *attributes) {
  int inputs[GRAPH_MAX_INPUTS];
  for (int i = 0; i < op->input_count; i++)
    inputs[i] = is_split(s, op->inputs[i]) ? s->places[op->inputs[i]].split : need_whole(s, op->inputs[i]);
  place_outputs(s, op, graph_build_op(s->b, op->kind, op->name, attributes, inputs, op->input_count), true);
}

static int64_t adapter_rank(const graph_op *op) {
  return op->adapter_parameters / graph_add(op->attributes.in_channels, op->attributes.out_channels);
}

static void shard_product(sharder *s, const graph_op *op, bool stays_whole) {
  graph_attributes local = op->attributes;
  const bool by_input = is_split(s, op->inputs[0]);
  if (stays_whole || (!by_input && !divides(s, local.out_channels))) {
    s->whole_products++;
    copy_whole(s, op);
    return;
  }
  s->split_products++;
  /* the adapter's factor at the side that is not split */
  s->partial[op->unit] += adapter_rank(op) * (by_input ? local.out_channels : local.in_channels);
  if (!by_input) {
    local.out_channels /= s->degree;
    const int input = enter(s, op->inputs[0], op->unit);
    place_outputs(s, op, graph_build_op(s->b, op->kind, op->name, &local, &input, 1), true);
    return;
  }
  local.in_channels /= s->degree;
  const int sums = graph_build_op(s->b, op->kind, op->name, &local, &s->places[op->inputs[0]].split, 1);
  const char *name = graph_build_name(s->b, "%s.reduce", op->name);
  place_outputs(s, op, graph_build_op(s->b, GRAPH_TENSOR_REDUCE, name, NULL, &sums, 1), false);
}

/* Whether an op with split inputs can go on with them; adapts its attributes. */
static bool goes_on_split(const sharder *s, const graph_op *op, graph_attributes *local) {
  const int axis = graph_tensor_channel_axis(tensor_of(s, op->inputs[0]));
  switch (op->kind) {
    case GRAPH_ATTENTION:
      local->heads /= s->degree;
      return all_split(s, op) && divides(s, op->attributes.heads);
    case GRAPH_RMS_NORM:
      local->heads /= s->degree;
      return op->attributes.head_dim != 0 && divides(s, op->attributes.heads);
    case GRAPH_ROTARY:
      local->heads /= s->degree;
      return divides(s, channels_of(s, op->inputs[0]) / op->attributes.head_dim);
    case GRAPH_GROUP_NORM:
      local->groups /= s->degree;
      return divides(s, op->attributes.groups);
    case GRAPH_GEGLU:
    case GRAPH_SWIGLU:
      return divides(s, channels_of(s, op->outputs[0]));
    case GRAPH_CONCAT:
      return all_split(s, op); /* along channels the weights that follow are in the order of the pieces */
    case GRAPH_SPLIT:
      return op->attributes.axis != axis;
    case GRAPH_ADD:
    case GRAPH_MODULATE:
      return all_split(s, op);
    case GRAPH_SILU:
    case GRAPH_GELU:
    case GRAPH_RESHAPE:
    case GRAPH_UPSAMPLE:
    case GRAPH_DOWNSAMPLE:
      return true;
    default:
      return false;
  }
}

static void shard_op(sharder *s, const graph_op *op, bool stays_whole) {
  graph_attributes local = op->attributes;
  if (s->degree > 1 && is_product(op)) {
    shard_product(s, op, stays_whole);
  } else if (op->input_count > 0 && is_split(s, op->inputs[0]) && goes_on_split(s, op, &local)) {
    /* the heads of a norm share its weights, and a member has only some of them */
    if (op->kind == GRAPH_RMS_NORM && op->trainable == GRAPH_TRAIN_FULL) s->partial[op->unit] += op->parameters;
    if (op->kind == GRAPH_ATTENTION) s->split_products++;
    copy_split(s, op, &local);
  } else {
    if (s->degree > 1 && op->kind == GRAPH_ATTENTION) s->whole_products++;
    copy_whole(s, op);
  }
}

static void shard_input(sharder *s, int tensor) {
  const graph_tensor *t = tensor_of(s, tensor);
  s->places[tensor].whole = t->is_constant ? graph_build_constant(s->b, t->name, t->rank, t->dims, t->dtype)
                            : t->dtype == s->whole->precision ? graph_build_input(s->b, t->name, t->rank, t->dims)
                                                              : graph_build_scalars(s->b, t->name, t->rank, t->dims);
}

static void shard_all(sharder *s) {
  const graph *g = s->whole;
  for (size_t t = 0; t < g->tensors.count; t++) {
    s->places[t] = (place){GRAPH_NONE, GRAPH_NONE, GRAPH_NONE, GRAPH_NONE};
    if (g->tensors.items[t].producer_op == GRAPH_NONE) shard_input(s, (int)t);
  }
  if (s->degree > 1) mark_attentions(s);
  for (size_t u = 0; u < g->units.count && !graph_build_failed(s->b); u++) {
    const graph_unit *unit = &g->units.items[u];
    graph_build_unit(s->b, unit->name);
    for (int o = unit->first_op; o < unit->first_op + unit->op_count; o++)
      shard_op(s, &g->ops.items[o], s->stays_whole[o]);
  }
  for (size_t t = 0; t < g->tensors.count; t++)
    if (g->tensors.items[t].is_output) graph_build_output(s->b, s->places[t].whole);
}

/* How the whole model was built. Its adapted layers are named one by one in `adapted` [op of the whole]. */
static graph_model_options options_of(const graph *g, const char **adapted) {
  graph_model_options options = {.batch = g->batch,
                                 .height = g->height,
                                 .width = g->width,
                                 .frames = g->frames,
                                 .text_tokens = g->text_tokens,
                                 .precision = g->precision,
                                 .trainable = GRAPH_TRAIN_FULL,
                                 .lora_targets = adapted};
  for (size_t o = 0; o < g->ops.count; o++) {
    const graph_op *op = &g->ops.items[o];
    if (op->trainable != GRAPH_TRAIN_FULL) options.trainable = GRAPH_TRAIN_LORA;
    if (op->adapter_parameters <= 0) continue;
    options.lora_rank = adapter_rank(op);
    adapted[options.lora_target_count++] = op->name;
  }
  return options;
}

static dp_status finish(const sharder *s, graph *share, dp_error *error) {
  share->class_name = s->whole->class_name; /* constant strings */
  share->config_file = dp_arena_strdup(&share->arena, s->whole->config_file);
  if (share->config_file == NULL) {
    graph_free(share);
    return dp_fail_memory(error);
  }
  share->latent_bytes = s->whole->latent_bytes;
  share->model_parameters = s->whole->parameters;
  share->model_trainable_parameters = s->whole->trainable_parameters;
  share->tensor_parallel = s->degree;
  share->whole_products = s->whole_products;
  for (size_t u = 0; u < share->units.count; u++) share->units.items[u].partial_parameters = s->partial[u];
  if (s->degree == 1 || s->split_products > 0) return DP_OK;
  graph_free(share);
  return dp_fail(error, DP_BAD_INPUT, "found a tensor group of %d, allowed: one that divides some layer of the model",
                 s->degree);
}

static dp_status shard(sharder *s, graph *share, dp_error *error) {
  const graph *g = s->whole;
  s->places = calloc(g->tensors.count + 1, sizeof *s->places);
  s->stays_whole = calloc(g->ops.count + 1, 1);
  s->partial = calloc(g->units.count + 1, sizeof *s->partial);
  s->adapted = calloc(g->ops.count + 1, sizeof *s->adapted);
  if (s->places == NULL || s->stays_whole == NULL || s->partial == NULL || s->adapted == NULL)
    return dp_fail_memory(error);
  const graph_model_options options = options_of(g, s->adapted);
  s->b = graph_build_begin(share, &options, NULL);
  if (s->b == NULL) return dp_fail_memory(error);
  shard_all(s);
  DP_TRY(graph_build_finish(s->b, error));
  return finish(s, share, error);
}

dp_status graph_shard(const graph *whole, int degree, graph *share, dp_error *error) {
  if (degree < 1 || degree > GRAPH_MAX_TENSOR_PARALLEL)
    return dp_fail(error, DP_BAD_INPUT, "found a tensor group of %d, allowed: 1 to %d", degree,
                   GRAPH_MAX_TENSOR_PARALLEL);
  if (whole->units.items[0].fixed.present)
    return dp_fail(error, DP_BAD_INPUT, "found a tensor group of %d with synthetic units, allowed: 1", degree);
  sharder s = {.whole = whole, .degree = degree};
  const dp_status status = shard(&s, share, error);
  free(s.places);
  free(s.stays_whole);
  free(s.partial);
  free(s.adapted);
  return status;
}

int64_t graph_collective_sent_bytes(const graph_work *work, int degree) {
  if (work->collective == GRAPH_COLLECTIVE_NONE) return 0;
  const int64_t ways = work->collective == GRAPH_COLLECTIVE_ALL_REDUCE ? 2 : 1;
  return ways *
         (work->collective_bytes / degree * (degree - 1) + work->collective_bytes % degree * (degree - 1) / degree);
}
