/* Shape inference. Tensors: images [B, C, H, W] or [B, C, T, H, W], tokens [B, N, C], vectors [B, C]. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/checked.h"
#include "graph/op_table.h"

static void refuse(graph_shape *shape, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void refuse(graph_shape *shape, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(shape->problem, sizeof shape->problem, format, arguments);
  va_end(arguments);
}

int64_t graph_tensor_elements(const graph_tensor *tensor) {
  int64_t elements = 1;
  for (int i = 0; i < tensor->rank; i++) elements = graph_mul(elements, tensor->dims[i]);
  return elements;
}

static void add_weight(graph_shape *shape, const char *suffix, int rank, const int64_t dims[]) {
  const int i = shape->weight_count++;
  shape->weights[i].suffix = suffix;
  shape->weights[i].rank = rank;
  memcpy(shape->weights[i].dims, dims, (size_t)rank * sizeof *dims);
}

/* The first output starts as a copy of the first input's shape. */
static graph_tensor *add_output(graph_shape *shape) {
  graph_tensor *output = &shape->outputs[shape->output_count++];
  output->rank = shape->inputs[0]->rank;
  memcpy(output->dims, shape->inputs[0]->dims, sizeof output->dims);
  output->dtype = shape->precision;
  return output;
}

int graph_tensor_channel_axis(const graph_tensor *tensor) { return tensor->rank >= 4 ? 1 : tensor->rank - 1; }

static bool check_channels(graph_shape *shape, int64_t expected) {
  const graph_tensor *input = shape->inputs[0];
  const int64_t found = input->dims[graph_tensor_channel_axis(input)];
  if (found == expected) return true;
  refuse(shape, "the input has %" PRId64 " channels, must have %" PRId64, found, expected);
  return false;
}

static bool check_rank(graph_shape *shape, int min, int max) {
  const int rank = shape->inputs[0]->rank;
  if (rank >= min && rank <= max) return true;
  refuse(shape, "the input has %d dimensions, must have %d to %d", rank, min, max);
  return false;
}

static bool same_dims(const graph_tensor *a, const graph_tensor *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i]) return false;
  return true;
}

/* out = floor((in + 2 padding - kernel) / stride) + 1 for each spatial dimension. */
void graph_shape_conv(graph_shape *shape) {
  const graph_attributes *a = shape->attributes;
  if (!check_rank(shape, 4, 5) || !check_channels(shape, a->in_channels)) return;
  const int rank = shape->inputs[0]->rank;
  int64_t weight[GRAPH_MAX_RANK] = {a->out_channels, a->in_channels};
  graph_tensor *output = add_output(shape);
  output->dims[1] = a->out_channels;
  for (int i = 2; i < rank; i++) {
    const int d = i - rank + 3; /* T, H, W are 0, 1, 2 */
    const int64_t room = shape->inputs[0]->dims[i] + 2 * a->padding[d] - a->kernel[d];
    if (a->kernel[d] < 1 || a->stride[d] < 1 || room < 0) {
      refuse(shape, "a kernel of %" PRId64 " does not fit an input of %" PRId64 " with padding %" PRId64, a->kernel[d],
             shape->inputs[0]->dims[i], a->padding[d]);
      return;
    }
    output->dims[i] = room / a->stride[d] + 1;
    weight[i] = a->kernel[d];
  }
  add_weight(shape, "weight", rank, weight);
  if (a->bias) add_weight(shape, "bias", 1, &a->out_channels);
}

void graph_shape_linear(graph_shape *shape) {
  const graph_attributes *a = shape->attributes;
  if (!check_rank(shape, 2, 3) || !check_channels(shape, a->in_channels)) return;
  graph_tensor *output = add_output(shape);
  output->dims[output->rank - 1] = a->out_channels;
  add_weight(shape, "weight", 2, (const int64_t[]){a->out_channels, a->in_channels});
  if (a->bias) add_weight(shape, "bias", 1, &a->out_channels);
}

/* q [B, N, heads * dim], k and v [B, M, heads * dim] to [B, N, heads * dim] */
void graph_shape_attention(graph_shape *shape) {
  const graph_attributes *a = shape->attributes;
  const graph_tensor *q = shape->inputs[0], *k = shape->inputs[1], *v = shape->inputs[2];
  if (!check_rank(shape, 3, 3) || !check_channels(shape, graph_mul(a->heads, a->head_dim))) return;
  if (!same_dims(k, v) || k->rank != 3 || k->dims[0] != q->dims[0] || k->dims[2] != q->dims[2]) {
    refuse(shape, "keys and values must have the queries' batch and channels, and the same tokens");
    return;
  }
  add_output(shape);
}

void graph_shape_group_norm(graph_shape *shape) {
  const graph_attributes *a = shape->attributes;
  if (!check_rank(shape, 3, 5)) return;
  const int64_t channels = shape->inputs[0]->dims[graph_tensor_channel_axis(shape->inputs[0])];
  if (a->groups < 1 || channels % a->groups != 0) {
    refuse(shape, "%" PRId64 " channels cannot be parted into %" PRId64 " equal groups", channels, a->groups);
    return;
  }
  add_output(shape);
  if (a->affine) add_weight(shape, "weight", 1, &channels);
  if (a->affine) add_weight(shape, "bias", 1, &channels);
}

void graph_shape_layer_norm(graph_shape *shape) {
  if (!check_rank(shape, 2, 3)) return;
  const graph_tensor *output = add_output(shape);
  const int64_t channels = output->dims[output->rank - 1];
  if (shape->attributes->affine) add_weight(shape, "weight", 1, &channels);
  if (shape->attributes->affine) add_weight(shape, "bias", 1, &channels);
}

/* Over all channels, or over each head's when head_dim is set. */
void graph_shape_rms_norm(graph_shape *shape) {
  const graph_attributes *a = shape->attributes;
  if (!check_rank(shape, 2, 3)) return;
  const graph_tensor *output = add_output(shape);
  const int64_t channels = output->dims[output->rank - 1];
  if (a->head_dim != 0 && channels != graph_mul(a->heads, a->head_dim)) {
    refuse(shape, "%" PRId64 " channels are not %" PRId64 " heads of %" PRId64, channels, a->heads, a->head_dim);
    return;
  }
  if (a->affine) add_weight(shape, "weight", 1, a->head_dim != 0 ? &a->head_dim : &channels);
}

void graph_shape_same(graph_shape *shape) { add_output(shape); }

/* [..., 2 C] to [..., C]: one half gates the other. */
void graph_shape_gated(graph_shape *shape) {
  graph_tensor *output = add_output(shape);
  int64_t *channels = &output->dims[output->rank - 1];
  if (*channels % 2 != 0) refuse(shape, "%" PRId64 " channels cannot be halved", *channels);
  *channels /= 2;
}

/* The second operand has the same shape, or lacks the batch ([1, ...]), or is one value a channel ([B, C]). */
void graph_shape_add(graph_shape *shape) {
  const graph_tensor *x = shape->inputs[0], *y = shape->inputs[1];
  add_output(shape);
  bool fits = x->rank == y->rank && (y->dims[0] == x->dims[0] || y->dims[0] == 1);
  for (int i = 1; fits && i < x->rank; i++) fits = x->dims[i] == y->dims[i];
  if (y->rank == 2 && y->dims[0] == x->dims[0] && y->dims[1] == x->dims[graph_tensor_channel_axis(x)]) fits = true;
  if (!fits) refuse(shape, "the shapes of the two operands differ");
}

void graph_shape_concat(graph_shape *shape) {
  const int axis = (int)shape->attributes->axis;
  graph_tensor *output = add_output(shape);
  if (axis < 0 || axis >= output->rank) {
    refuse(shape, "there is no axis %d", axis);
    return;
  }
  for (int i = 1; i < shape->input_count; i++) {
    const graph_tensor *next = shape->inputs[i];
    for (int d = 0; d < output->rank; d++)
      if (next->rank != output->rank || (d != axis && next->dims[d] != output->dims[d])) {
        refuse(shape, "operand %d differs in more than axis %d", i, axis);
        return;
      }
    output->dims[axis] = graph_add(output->dims[axis], next->dims[axis]);
  }
}

void graph_shape_split(graph_shape *shape) {
  const graph_attributes *a = shape->attributes;
  const graph_tensor *input = shape->inputs[0];
  const int axis = (int)a->axis;
  if (axis < 0 || axis >= input->rank) {
    refuse(shape, "there is no axis %d", axis);
    return;
  }
  const int64_t size = input->dims[axis];
  const bool equal = a->parts > 0;
  if (equal ? a->parts > GRAPH_MAX_PIECES || size % a->parts != 0 : a->first < 1 || a->first >= size) {
    refuse(shape, "%" PRId64 " cannot be split so", size);
    return;
  }
  for (int i = 0; i < (equal ? a->parts : 2); i++)
    add_output(shape)->dims[axis] = equal ? size / a->parts : i == 0 ? a->first : size - a->first;
}

void graph_shape_upsample(graph_shape *shape) {
  if (!check_rank(shape, 4, 4)) return;
  graph_tensor *output = add_output(shape);
  for (int i = 2; i < 4; i++) output->dims[i] = graph_mul(output->dims[i], shape->attributes->scale);
}

void graph_shape_downsample(graph_shape *shape) {
  if (!check_rank(shape, 4, 4)) return;
  graph_tensor *output = add_output(shape);
  for (int i = 2; i < 4; i++) {
    if (shape->attributes->scale < 1 || output->dims[i] % shape->attributes->scale != 0)
      refuse(shape, "%" PRId64 " is not a multiple of %" PRId64, output->dims[i], shape->attributes->scale);
    else
      output->dims[i] /= shape->attributes->scale;
  }
}

/* [B] to [B, C]; [B, n] to [B, n C] */
void graph_shape_time_embedding(graph_shape *shape) {
  if (!check_rank(shape, 1, 2)) return;
  graph_tensor *output = add_output(shape);
  output->dims[1] = graph_mul(output->rank == 2 ? output->dims[1] : 1, shape->attributes->out_channels);
  output->rank = 2;
}

/* ids [B, N] to [B, N, C] from a table of in_channels rows */
void graph_shape_text_embedding(graph_shape *shape) {
  const graph_attributes *a = shape->attributes;
  if (!check_rank(shape, 1, 2)) return;
  graph_tensor *output = add_output(shape);
  output->dims[output->rank++] = a->out_channels;
  add_weight(shape, "weight", 2, (const int64_t[]){a->in_channels, a->out_channels});
}

/* x [B, N, C] with scale and shift [B, C], or with a gate [B, C] */
void graph_shape_modulate(graph_shape *shape) {
  const graph_tensor *x = add_output(shape);
  for (int i = 1; i < shape->input_count; i++) {
    const graph_tensor *y = shape->inputs[i];
    if (y->rank != 2 || y->dims[0] != x->dims[0] || y->dims[1] != x->dims[x->rank - 1])
      refuse(shape, "scale, shift and gate must be [batch, channels] of what they modulate");
  }
}

/* x [B, N, heads * dim] with cosines and sines [2, N, dim] */
void graph_shape_rotary(graph_shape *shape) {
  const graph_tensor *x = shape->inputs[0], *table = shape->inputs[1];
  const int64_t dim = shape->attributes->head_dim;
  if (!check_rank(shape, 3, 3)) return;
  add_output(shape);
  if (table->rank != 3 || table->dims[0] != 2 || table->dims[1] != x->dims[1] || table->dims[2] != dim || dim < 1 ||
      x->dims[2] % dim != 0)
    refuse(shape, "the table must be [2, tokens, head dimension] of what it rotates");
}

/* [B, C, H, W] to [B, H/p * W/p, C p p]; with T likewise */
void graph_shape_patchify(graph_shape *shape) {
  if (!check_rank(shape, 4, 5)) return;
  const graph_tensor *input = shape->inputs[0];
  graph_tensor *output = add_output(shape);
  int64_t tokens = 1, values = input->dims[1];
  for (int i = 2; i < input->rank; i++) {
    const int64_t patch = shape->attributes->patch[i - input->rank + 3];
    if (patch < 1 || input->dims[i] % patch != 0) {
      refuse(shape, "%" PRId64 " is not a multiple of the patch size %" PRId64, input->dims[i], patch);
      return;
    }
    tokens = graph_mul(tokens, input->dims[i] / patch);
    values = graph_mul(values, patch);
  }
  output->rank = 3;
  output->dims[1] = tokens;
  output->dims[2] = values;
}

/* [B, H W, C p p] to [B, C, H p, W p], where the grid is H, W; with T likewise */
void graph_shape_unpatchify(graph_shape *shape) {
  const graph_attributes *a = shape->attributes;
  if (!check_rank(shape, 3, 3)) return;
  const graph_tensor *input = shape->inputs[0];
  const bool video = a->grid[0] > 0;
  graph_tensor *output = add_output(shape);
  int64_t tokens = 1, values = a->out_channels;
  output->rank = 2;
  output->dims[1] = a->out_channels;
  for (int d = video ? 0 : 1; d < 3; d++) {
    tokens = graph_mul(tokens, a->grid[d]);
    values = graph_mul(values, a->patch[d]);
    output->dims[output->rank++] = graph_mul(a->grid[d], a->patch[d]);
  }
  if (tokens != input->dims[1] || values != input->dims[2])
    refuse(shape, "%" PRId64 " tokens of %" PRId64 " values do not fill a grid of %" PRId64 " patches of %" PRId64,
           input->dims[1], input->dims[2], tokens, values);
}

/* An image to tokens [B, (T) H W, C], and back when the grid is set: views in channels-last memory. */
void graph_shape_reshape(graph_shape *shape) {
  const graph_attributes *a = shape->attributes;
  if (!check_rank(shape, 3, 5)) return;
  const graph_tensor *input = shape->inputs[0];
  graph_tensor *output = add_output(shape);
  if (input->rank > 3) {
    output->rank = 3;
    output->dims[1] = 1;
    for (int i = 2; i < input->rank; i++) output->dims[1] = graph_mul(output->dims[1], input->dims[i]);
    output->dims[2] = input->dims[1];
    return;
  }
  output->rank = 2;
  output->dims[1] = input->dims[2];
  int64_t tokens = 1;
  for (int d = a->grid[0] > 0 ? 0 : 1; d < 3; d++) {
    tokens = graph_mul(tokens, a->grid[d]);
    output->dims[output->rank++] = a->grid[d];
  }
  if (tokens != input->dims[1])
    refuse(shape, "%" PRId64 " tokens do not fill a grid of %" PRId64, input->dims[1], tokens);
}

void graph_shape_loss(graph_shape *shape) {
  graph_tensor *output = add_output(shape);
  if (!same_dims(shape->inputs[0], shape->inputs[1])) refuse(shape, "prediction and target differ in shape");
  output->rank = 1;
  output->dims[0] = 1;
  output->dtype = GRAPH_FP32;
}

/* in_channels: how many parameters the unit has. */
void graph_shape_synthetic(graph_shape *shape) {
  add_output(shape);
  if (shape->attributes->in_channels > 0) add_weight(shape, "weight", 1, &shape->attributes->in_channels);
}

void graph_shape_tensor_gather(graph_shape *shape) {
  graph_tensor *output = add_output(shape);
  int64_t *channels = &output->dims[graph_tensor_channel_axis(output)];
  *channels = graph_mul(*channels, shape->attributes->parts);
}
