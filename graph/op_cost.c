/* Work of each op and what its backward keeps.
 *
 * Conventions. A multiply-add is 2 FLOPs; a transcendental function counts as 1. Bytes are the least traffic of one
 * kernel: each operand is read or written once. A direction that has nothing to do stays all zero.
 * Weight gradients of norms ride along with their input gradient, since they read the same operands; only when the
 * input needs no gradient are they backward_weight. The gradients of attention are all backward_input. Where a tensor
 * has several readers, all but the last add their gradient to what lies there already (graph_cost_accumulate).
 */
#include "graph/checked.h"
#include "graph/op_table.h"

enum { STATISTIC_BYTES = 4 }; /* mean, reciprocal deviation, log-sum-exp: fp32 */

static int64_t product(const int64_t *values, int count) {
  int64_t result = 1;
  for (int i = 0; i < count; i++) result = graph_mul(result, values[i]);
  return result;
}

static int64_t weight_bytes(const graph_cost *cost) { return graph_mul(cost->op->parameters, cost->element_bytes); }

/* A memory-bound kernel over whole tensors. */
static graph_work memory_work(int64_t flops, int64_t read, int64_t written, int kernels) {
  return (graph_work){
      .op_class = GRAPH_CLASS_MEMORY, .flops = flops, .bytes_read = read, .bytes_written = written, .kernels = kernels};
}

/* A matrix product [batch] x (m, k) x (k, n) and `extra` elementwise FLOPs. */
static graph_work matrix_work(graph_op_class op_class, int64_t m, int64_t n, int64_t k, int64_t extra, int64_t read,
                              int64_t written) {
  const int64_t flops = graph_mul(2, graph_mul3(m, n, k));
  return (graph_work){.op_class = op_class,
                      .flops = graph_add(flops, extra),
                      .matrix_flops = flops,
                      .bytes_read = read,
                      .bytes_written = written,
                      .batch = 1,
                      .m = m,
                      .n = n,
                      .k = k,
                      .kernels = 1};
}

/* y = x w + b as an implicit product of m rows: convolutions and linear layers alike. */
static void weighted_cost(graph_cost *cost, graph_op_class op_class, int64_t m, int64_t k, int64_t n) {
  const int64_t input_bytes = cost->inputs[0]->bytes, output_bytes = cost->output->bytes;
  const int64_t weights = weight_bytes(cost);
  const int64_t bias = cost->op->attributes.bias ? cost->out : 0;
  cost->forward = matrix_work(op_class, m, n, k, bias, graph_add(input_bytes, weights), output_bytes);
  if (cost->input_gradient)
    cost->backward_input =
        matrix_work(op_class, m, cost->op->attributes.in_channels, graph_mul(k / cost->op->attributes.in_channels, n),
                    0, graph_add(output_bytes, weights), input_bytes);
  if (cost->weight_gradient) {
    cost->backward_weight = matrix_work(op_class, n, k, m, bias, graph_add(input_bytes, output_bytes), weights);
    cost->saves[0] = true;
  }
}

/* m: output positions times batch; k: input channels times taps. */
void graph_cost_conv(graph_cost *cost) {
  const graph_attributes *a = &cost->op->attributes;
  const int spatial = cost->output->rank - 2;
  const int64_t taps = product(&a->kernel[3 - spatial], spatial);
  weighted_cost(cost, GRAPH_CLASS_CONVOLUTION, cost->out / a->out_channels, graph_mul(a->in_channels, taps),
                a->out_channels);
}

graph_adapter graph_adapter_of(const graph_op *op, int64_t rows, int64_t element_bytes) {
  const int64_t in = op->attributes.in_channels, out = op->attributes.out_channels;
  const int64_t rank = op->adapter_parameters / graph_add(in, out);
  const int64_t hidden = graph_mul3(rows, rank, element_bytes);
  const int64_t x = graph_mul3(rows, in, element_bytes), y = graph_mul3(rows, out, element_bytes);
  const int64_t a = graph_mul3(in, rank, element_bytes), b = graph_mul3(out, rank, element_bytes);
  const graph_work down = matrix_work(GRAPH_CLASS_GEMM, rows, rank, in, 0, graph_add(x, a), hidden);
  const graph_work back = matrix_work(GRAPH_CLASS_GEMM, rows, rank, out, 0, graph_add(y, b), hidden);
  return (graph_adapter){
      .forward = {down, matrix_work(GRAPH_CLASS_GEMM, rows, out, rank, 0, graph_add(graph_add(hidden, b), y), y)},
      .backward_input = {back, matrix_work(GRAPH_CLASS_GEMM, rows, in, rank, 0, graph_add(graph_add(hidden, a), x), x)},
      .backward_weight = {matrix_work(GRAPH_CLASS_GEMM, in, rank, rows, 0, graph_add(x, hidden), a),
                          matrix_work(GRAPH_CLASS_GEMM, out, rank, rows, 0, graph_add(y, hidden), b), back}};
}

static void add_product(graph_work *to, const graph_work *product) {
  to->flops = graph_add(to->flops, product->flops);
  to->matrix_flops = graph_add(to->matrix_flops, product->matrix_flops);
  to->bytes_read = graph_add(to->bytes_read, product->bytes_read);
  to->bytes_written = graph_add(to->bytes_written, product->bytes_written);
  to->kernels += product->kernels;
}

static void add_adapter(graph_cost *cost) {
  const graph_attributes *a = &cost->op->attributes;
  const int64_t rows = cost->out / a->out_channels;
  const graph_adapter adapter = graph_adapter_of(cost->op, rows, cost->element_bytes);
  graph_work *const forward = &cost->forward, *const input = &cost->backward_input;
  graph_work *const weight = &cost->backward_weight;

  /* the sums are in the epilogues of the second products */
  for (int i = 0; i < 2; i++) add_product(forward, &adapter.forward[i]);
  forward->flops = graph_add(forward->flops, cost->out);
  if (cost->input_gradient) {
    for (int i = 0; i < 2; i++) add_product(input, &adapter.backward_input[i]);
    input->flops = graph_add(input->flops, cost->in);
  }
  *weight = (graph_work){.op_class = GRAPH_CLASS_GEMM,
                         .batch = 1,
                         .m = a->in_channels > a->out_channels ? a->in_channels : a->out_channels,
                         .n = adapter.forward[0].n,
                         .k = rows};
  for (int i = 0; i < 2; i++) add_product(weight, &adapter.backward_weight[i]);
  if (!cost->input_gradient) {
    /* of one fused kernel: dy is read once */
    graph_work again = adapter.backward_weight[2];
    again.bytes_read = again.bytes_written = 0;
    add_product(weight, &again);
  }
  cost->saves[0] = true;
  cost->saved_extra_bytes = cost->statistic_bytes = adapter.forward[0].bytes_written;
}

void graph_cost_linear(graph_cost *cost) {
  const graph_attributes *a = &cost->op->attributes;
  weighted_cost(cost, GRAPH_CLASS_GEMM, cost->out / a->out_channels, a->in_channels, a->out_channels);
  if (cost->op->adapter_parameters > 0) add_adapter(cost);
}

/* Fused attention (Dao et al., "FlashAttention", 2022): the scores never leave the chip; backward computes them again,
 * 5 products against forward's 2. Softmax counts 5 FLOPs a score: scale, maximum, subtract, exp, sum. */
void graph_cost_attention(graph_cost *cost) {
  const graph_attributes *a = &cost->op->attributes;
  const graph_tensor *q = cost->inputs[0], *k = cost->inputs[1];
  const int64_t batch = graph_mul(q->dims[0], a->heads);
  const int64_t rows = graph_mul(batch, q->dims[1]);
  const int64_t scores = graph_mul(rows, k->dims[1]);
  const int64_t one = graph_mul(2, graph_mul(scores, a->head_dim));
  const int64_t statistics = graph_mul(rows, STATISTIC_BYTES);
  const int64_t operands = graph_add(q->bytes, graph_mul(2, k->bytes));
  cost->forward = (graph_work){
      .op_class = GRAPH_CLASS_ATTENTION,
      .matrix_flops = graph_mul(2, one),
      .flops = graph_add(graph_mul(2, one), graph_mul(5, scores)),
      .bytes_read = operands,
      .bytes_written = graph_add(cost->output->bytes, statistics),
      .batch = batch,
      .m = q->dims[1],
      .n = k->dims[1],
      .k = a->head_dim,
      .kernels = 1,
  };
  cost->statistic_bytes = statistics;
  if (!cost->input_gradient) return;
  cost->backward_input = cost->forward;
  cost->backward_input.matrix_flops = graph_mul(5, one);
  /* scores again (4), the products of dp - delta with p (2), and delta = rows of dy * y */
  cost->backward_input.flops = graph_add(graph_mul(5, one), graph_add(graph_mul(6, scores), graph_mul(2, cost->out)));
  cost->backward_input.bytes_read =
      graph_add(graph_add(operands, graph_mul(2, cost->output->bytes)), graph_mul(2, statistics));
  cost->backward_input.bytes_written = operands;
  cost->backward_input.kernels = 2; /* delta, then all three gradients */
  cost->saves[0] = cost->saves[1] = cost->saves[2] = cost->saves_output = true;
  cost->saved_extra_bytes = statistics;
}

/* Group, layer and RMS norm: 8 FLOPs an element forward (mean, variance, normalise, affine; RMS needs half), twice that
 * backward. Keeps its input and, in fp32, mean and reciprocal deviation of every group, row or head. */
void graph_cost_norm(graph_cost *cost) {
  const graph_attributes *a = &cost->op->attributes;
  const graph_tensor *x = cost->inputs[0];
  const int64_t weights = weight_bytes(cost);
  const bool rms = cost->op->kind == GRAPH_RMS_NORM;
  const int64_t per_element = rms ? 4 : 8;
  int64_t statistics;
  if (cost->op->kind == GRAPH_GROUP_NORM)
    statistics = graph_mul(2, graph_mul(x->dims[0], a->groups));
  else
    statistics = graph_mul(rms ? 1 : 2, cost->in / (a->head_dim != 0 ? a->head_dim : x->dims[x->rank - 1]));
  const int64_t statistic_bytes = graph_mul(statistics, STATISTIC_BYTES);
  cost->forward = memory_work(graph_mul(per_element, cost->in), graph_add(x->bytes, weights),
                              graph_add(cost->output->bytes, statistic_bytes), 1);
  cost->statistic_bytes = statistic_bytes;
  if (!cost->input_gradient && !cost->weight_gradient) return;
  const int64_t read = graph_add(graph_add(x->bytes, cost->output->bytes), graph_add(weights, statistic_bytes));
  if (cost->input_gradient)
    cost->backward_input = memory_work(graph_mul(2 * per_element, cost->in), read,
                                       graph_add(x->bytes, cost->weight_gradient ? weights : 0),
                                       cost->weight_gradient && weights > 0 ? 2 : 1);
  else
    cost->backward_weight = memory_work(graph_mul(4, cost->in), read, weights, 1);
  cost->saves[0] = true;
  cost->saved_extra_bytes = statistic_bytes;
}

/* SiLU and GELU: 4 and 8 FLOPs an element, one more backward. After a norm the argument is computed again from what the
 * norm keeps; else it is kept. */
void graph_cost_activation(graph_cost *cost) {
  const int64_t per_element = cost->op->kind == GRAPH_SILU ? 4 : 8;
  const int64_t bytes = cost->output->bytes;
  cost->forward = memory_work(graph_mul(per_element, cost->out), bytes, bytes, 1);
  if (!cost->input_gradient) return;
  cost->backward_input = memory_work(graph_mul(per_element + 1, cost->out), graph_mul(2, bytes), bytes, 1);
  cost->saves[0] = !cost->after_norm;
}

/* GEGLU and SwiGLU: the activation of one half times the other. */
void graph_cost_gated(graph_cost *cost) {
  const int64_t per_element = cost->op->kind == GRAPH_GEGLU ? 9 : 5;
  const int64_t input = cost->inputs[0]->bytes, output = cost->output->bytes;
  cost->forward = memory_work(graph_mul(per_element, cost->out), input, output, 1);
  if (!cost->input_gradient) return;
  cost->backward_input = memory_work(graph_mul(2 * per_element, cost->out), graph_add(input, output), input, 1);
  cost->saves[0] = true;
}

/* Backward of a sum is the same gradient twice: nothing runs, unless one operand was broadcast and needs it summed up.
 */
void graph_cost_add(graph_cost *cost) {
  const graph_tensor *x = cost->inputs[0], *y = cost->inputs[1];
  cost->forward = memory_work(cost->out, graph_add(x->bytes, y->bytes), cost->output->bytes, 1);
  if (y->needs_gradient && y->bytes != x->bytes)
    cost->backward_input = memory_work(cost->out, cost->output->bytes, y->bytes, 1);
}

/* Backward reads slices of the gradient where they lie. */
void graph_cost_concat(graph_cost *cost) {
  cost->forward = memory_work(0, cost->output->bytes, cost->output->bytes, 1);
}

void graph_cost_view(graph_cost *cost) { cost->forward.op_class = GRAPH_CLASS_MEMORY; }

/* Nearest-neighbour enlargement copies, its backward sums; average pooling the other way round. */
void graph_cost_resample(graph_cost *cost) {
  const int64_t input = cost->inputs[0]->bytes, output = cost->output->bytes;
  const bool pool = cost->op->kind == GRAPH_DOWNSAMPLE;
  cost->forward = memory_work(pool ? cost->in : 0, input, output, 1);
  if (cost->input_gradient) cost->backward_input = memory_work(pool ? cost->in : cost->out, output, input, 1);
}

/* Angle, sine or cosine. */
void graph_cost_time_embedding(graph_cost *cost) {
  cost->forward = memory_work(graph_mul(2, cost->out), cost->inputs[0]->bytes, cost->output->bytes, 1);
}

void graph_cost_text_embedding(graph_cost *cost) {
  const int64_t output = cost->output->bytes;
  cost->forward = memory_work(0, graph_add(cost->inputs[0]->bytes, output), output, 1);
  if (!cost->weight_gradient) return;
  cost->backward_weight = memory_work(cost->out, graph_add(cost->inputs[0]->bytes, output), weight_bytes(cost), 1);
  cost->saves[0] = true;
}

/* x (1 + scale) + shift, or x g. What is kept follows from whose gradient is wanted: that of x needs scale, that of
 * scale needs x; after a norm x is computed again from what the norm keeps. */
void graph_cost_modulate(graph_cost *cost) {
  const bool gate = cost->op->input_count == 2;
  const int64_t x = cost->output->bytes, vector = cost->inputs[1]->bytes;
  const int64_t vectors = graph_mul(vector, gate ? 1 : 2);
  cost->forward = memory_work(graph_mul(gate ? 1 : 3, cost->out), graph_add(x, vectors), x, 1);
  if (!cost->input_gradient) return;
  const bool of_x = cost->inputs[0]->needs_gradient;
  bool of_vector = false;
  for (int i = 1; i < cost->op->input_count; i++) of_vector = of_vector || cost->inputs[i]->needs_gradient;
  cost->saves[0] = cost->inputs[1]->needs_gradient && !cost->after_norm;
  cost->saves[1] = of_x;
  int64_t flops = of_x ? graph_mul(gate ? 1 : 2, cost->out) : 0;
  if (of_vector) flops = graph_add(flops, graph_mul(gate ? 2 : 3, cost->out));
  cost->backward_input = memory_work(flops, graph_add(graph_mul(of_vector ? 2 : 1, x), of_x ? vector : 0),
                                     graph_add(of_x ? x : 0, of_vector ? vectors : 0), of_vector ? 2 : 1);
}

/* Pairs are turned by an angle: 3 FLOPs an element; backward turns back. The table is a constant. */
void graph_cost_rotary(graph_cost *cost) {
  const int64_t x = cost->output->bytes, table = cost->inputs[1]->bytes;
  cost->forward = memory_work(graph_mul(3, cost->out), graph_add(x, table), x, 1);
  if (cost->input_gradient) cost->backward_input = cost->forward;
}

void graph_cost_copy(graph_cost *cost) {
  cost->forward = memory_work(0, cost->inputs[0]->bytes, cost->output->bytes, 1);
  if (cost->input_gradient) cost->backward_input = memory_work(0, cost->output->bytes, cost->inputs[0]->bytes, 1);
}

/* Mean squared error: difference, square, sum; backward is the scaled difference. */
void graph_cost_loss(graph_cost *cost) {
  const int64_t x = cost->inputs[0]->bytes;
  const int64_t both = graph_add(x, cost->inputs[1]->bytes);
  cost->forward = memory_work(graph_mul(3, cost->in), both, cost->output->bytes, 1);
  if (!cost->input_gradient) return;
  cost->backward_input = memory_work(graph_mul(2, cost->in), both, x, 1);
  cost->saves[0] = cost->saves[1] = true;
}

static void collect(graph_work *work, graph_collective collective, int64_t bytes) {
  work->op_class = GRAPH_CLASS_MEMORY;
  work->collective = collective;
  work->collective_bytes = bytes;
}

/* Megatron-LM's conjugate operators f and g (Shoeybi et al. 2019, section 3): the identity one way, an all-reduce the
 * other. */
void graph_cost_tensor_enter(graph_cost *cost) {
  cost->forward.op_class = GRAPH_CLASS_MEMORY;
  if (cost->input_gradient) collect(&cost->backward_input, GRAPH_COLLECTIVE_ALL_REDUCE, cost->inputs[0]->bytes);
}

void graph_cost_tensor_reduce(graph_cost *cost) {
  collect(&cost->forward, GRAPH_COLLECTIVE_ALL_REDUCE, cost->output->bytes);
}

/* An all-gather leaves the members' pieces one after another: a kernel puts the channels side by side. Backward each
 * member takes its channels of a gradient that all have. */
void graph_cost_tensor_gather(graph_cost *cost) {
  const int64_t piece = cost->inputs[0]->bytes, whole = cost->output->bytes;
  cost->forward = memory_work(0, whole, whole, 1);
  collect(&cost->forward, GRAPH_COLLECTIVE_ALL_GATHER, whole);
  if (cost->input_gradient) cost->backward_input = memory_work(0, piece, piece, 1);
}

/* Reading what lies there already; a kernel of its own only for an op that otherwise only passes the gradient on. */
void graph_cost_accumulate(graph_work *backward_input, const graph_tensor *tensor) {
  const int64_t elements = graph_tensor_elements(tensor);
  if (backward_input->kernels == 0) *backward_input = memory_work(0, tensor->bytes, tensor->bytes, 1);
  backward_input->flops = graph_add(backward_input->flops, elements);
  backward_input->bytes_read = graph_add(backward_input->bytes_read, tensor->bytes);
}
