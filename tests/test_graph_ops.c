/* The op table: shapes, FLOPs, bytes and what backward keeps of every kind, against arithmetic by hand. */
#include <stdarg.h>

#include "tests/graph_helpers.h"

/* A direction of an op as expected: FLOPs, of them matrix FLOPs, bytes read and written, kernels. */
typedef struct expected_work {
  int64_t flops, matrix_flops, read, written;
  int kernels;
} expected_work;

static void check_work(const char *what, const graph_work *work, expected_work expected) {
  const bool same = work->flops == expected.flops && work->matrix_flops == expected.matrix_flops &&
                    work->bytes_read == expected.read && work->bytes_written == expected.written &&
                    work->kernels == expected.kernels;
  ck_assert_msg(same, "%s: flops %" PRId64 " matrix %" PRId64 " read %" PRId64 " written %" PRId64 " kernels %d", what,
                work->flops, work->matrix_flops, work->bytes_read, work->bytes_written, work->kernels);
}

static void check_gemm(const graph_work *work, int64_t batch, int64_t m, int64_t n, int64_t k) {
  ck_assert_int_eq(work->batch, batch);
  ck_assert_int_eq(work->m, m);
  ck_assert_int_eq(work->n, n);
  ck_assert_int_eq(work->k, k);
}

static void check_shape(const graph *g, int tensor, int rank, ...) {
  va_list dims;
  ck_assert_int_eq(g->tensors.items[tensor].rank, rank);
  va_start(dims, rank);
  for (int d = 0; d < rank; d++) ck_assert_int_eq(g->tensors.items[tensor].dims[d], va_arg(dims, int));
  va_end(dims);
}

/* The saved tensors, by id, GRAPH_NONE at the end, in order of the op's inputs, then the output. */
static void check_saved(const graph_op *op, int64_t extra_bytes, ...) {
  va_list ids;
  int count = 0;
  va_start(ids, extra_bytes);
  for (int id = va_arg(ids, int); id != GRAPH_NONE; id = va_arg(ids, int), count++) {
    ck_assert_int_lt(count, op->saved_count);
    ck_assert_int_eq(op->saved[count], id);
  }
  va_end(ids);
  ck_assert_int_eq(op->saved_count, count);
  ck_assert_int_eq(op->saved_extra_bytes, extra_bytes);
}

static const expected_work nothing = {0, 0, 0, 0, 0};

static graph g;
static graph_builder *b;

static void begin(graph_dtype precision, graph_trainable trainable) {
  g = (graph){0};
  b = begin_by_hand(&g, precision, trainable);
}

/* Tokens [batch, tokens, channels] that need a gradient: an embedding of them would. */
static int tokens_with_gradient(const char *name, int64_t batch, int64_t tokens, int64_t channels) {
  const int ids = graph_build_scalars(b, graph_build_name(b, "%s.ids", name), 2, (const int64_t[]){batch, tokens});
  return graph_build_op(b, GRAPH_TEXT_EMBEDDING, name, &(graph_attributes){.in_channels = 10, .out_channels = channels},
                        &ids, 1);
}

static int vector_with_gradient(const char *name, int64_t batch, int64_t channels) {
  const int ids = graph_build_scalars(b, graph_build_name(b, "%s.ids", name), 1, &batch);
  return graph_build_op(b, GRAPH_TEXT_EMBEDDING, name, &(graph_attributes){.in_channels = 10, .out_channels = channels},
                        &ids, 1);
}

/* An image [batch, channels, height, width] that needs a gradient. */
static int image_with_gradient(const char *name, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  const int x = tokens_with_gradient(name, batch, height * width, channels);
  return graph_build_op(b, GRAPH_RESHAPE, graph_build_name(b, "%s.image", name),
                        &(graph_attributes){.grid = {0, height, width}}, &x, 1);
}

static const graph_op *op_of(int tensor) { return &g.ops.items[g.tensors.items[tensor].producer_op]; }

START_TEST(conv2d) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = image_with_gradient("x", 2, 3, 8, 6);
  const graph_attributes a = {.in_channels = 3,
                              .out_channels = 5,
                              .kernel = {1, 3, 3},
                              .stride = {1, 2, 2},
                              .padding = {0, 1, 1},
                              .bias = true};
  const int y = graph_build_op(b, GRAPH_CONV2D, "conv", &a, &x, 1);
  finish_by_hand(b);
  const graph_op *op = op_of(y);
  check_shape(&g, y, 4, 2, 5, 4, 3); /* (8 + 2 - 3) / 2 + 1, (6 + 2 - 3) / 2 + 1 */
  ck_assert_int_eq(op->parameters, 5 * 3 * 9 + 5);
  ck_assert_str_eq(g.weights.items[op->first_weight].name, "conv.weight");
  ck_assert_str_eq(g.weights.items[op->first_weight + 1].name, "conv.bias");
  const int in = 2 * 3 * 48, out = 2 * 5 * 12, matrix = 2 * 24 * 5 * 27;
  check_work("forward", &op->forward, (expected_work){matrix + out, matrix, 2 * (in + 140), 2 * out, 1});
  check_gemm(&op->forward, 1, 24, 5, 27);
  check_work("input", &op->backward_input, (expected_work){matrix, matrix, 2 * (out + 140), 2 * in, 1});
  check_gemm(&op->backward_input, 1, 24, 3, 45);
  check_work("weight", &op->backward_weight, (expected_work){matrix + out, matrix, 2 * (in + out), 2 * 140, 1});
  check_gemm(&op->backward_weight, 1, 5, 27, 24);
  ck_assert_int_eq(op->forward.op_class, GRAPH_CLASS_CONVOLUTION);
  /* its input is a view of the embedding made in this unit: that is what stays */
  check_saved(op, 0, find_tensor(&g, "x.output"), GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(conv3d) {
  begin(GRAPH_FP32, GRAPH_TRAIN_FULL);
  const int x = graph_build_input(b, "x", 5, (const int64_t[]){1, 2, 5, 4, 4});
  const graph_attributes a = {
      .in_channels = 2, .out_channels = 3, .kernel = {3, 2, 2}, .stride = {1, 2, 2}, .padding = {1, 0, 0}};
  const int y = graph_build_op(b, GRAPH_CONV3D, "conv", &a, &x, 1);
  finish_by_hand(b);
  const graph_op *op = op_of(y);
  check_shape(&g, y, 5, 1, 3, 5, 2, 2);
  ck_assert_int_eq(op->parameters, 3 * 2 * 12);
  ck_assert_int_eq(g.weights.items[0].rank, 5);
  const int in = 2 * 80, out = 3 * 20, matrix = 2 * 20 * 3 * 24;
  check_work("forward", &op->forward, (expected_work){matrix, matrix, 4 * (in + 72), 4 * out, 1});
  check_work("input", &op->backward_input, nothing); /* x is a graph input */
  check_work("weight", &op->backward_weight, (expected_work){matrix, matrix, 4 * (in + out), 4 * 72, 1});
  check_saved(op, 0, x, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(linear) {
  begin(GRAPH_BF16, GRAPH_TRAIN_FULL);
  const int x = tokens_with_gradient("x", 2, 7, 12);
  const int y = graph_build_op(b, GRAPH_LINEAR, "linear",
                               &(graph_attributes){.in_channels = 12, .out_channels = 20, .bias = true}, &x, 1);
  finish_by_hand(b);
  const graph_op *op = op_of(y);
  check_shape(&g, y, 3, 2, 7, 20);
  const int matrix = 2 * 14 * 12 * 20;
  check_work("forward", &op->forward, (expected_work){matrix + 280, matrix, 2 * (168 + 260), 2 * 280, 1});
  check_gemm(&op->forward, 1, 14, 20, 12);
  check_work("input", &op->backward_input, (expected_work){matrix, matrix, 2 * (280 + 260), 2 * 168, 1});
  check_gemm(&op->backward_input, 1, 14, 12, 20);
  check_work("weight", &op->backward_weight, (expected_work){matrix + 280, matrix, 2 * (168 + 280), 2 * 260, 1});
  check_gemm(&op->backward_weight, 1, 20, 12, 14);
  check_saved(op, 0, x, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(linear_with_adapter) {
  begin(GRAPH_BF16, GRAPH_TRAIN_LORA); /* rank 4 */
  const int x = graph_build_input(b, "x", 3, (const int64_t[]){2, 7, 12});
  const int y =
      graph_build_op(b, GRAPH_LINEAR, "attn.to_q", &(graph_attributes){.in_channels = 12, .out_channels = 20}, &x, 1);
  const int z = graph_build_op(b, GRAPH_LINEAR, "attn.to_out.0",
                               &(graph_attributes){.in_channels = 20, .out_channels = 12}, &y, 1);
  const int w =
      graph_build_op(b, GRAPH_LINEAR, "ff", &(graph_attributes){.in_channels = 12, .out_channels = 12}, &z, 1);
  finish_by_hand(b);
  const int matrix = 2 * 14 * 12 * 20, adapter = 2 * 14 * 4 * (12 + 20), up = 2 * 14 * 4 * 20;
  const int in = 168, out = 280, hidden = 14 * 4, values = 4 * 32;
  const graph_op *op = op_of(y);
  ck_assert_int_eq(op->adapter_parameters, values);
  ck_assert_int_eq(op->trainable, GRAPH_TRAIN_LORA);
  check_work("forward", &op->forward,
             (expected_work){matrix + adapter + out, matrix + adapter, 2 * (in + 240 + in + values + hidden + out),
                             2 * (out + hidden + out), 3});
  check_work("input", &op->backward_input, nothing);
  check_work("weight", &op->backward_weight,
             (expected_work){adapter + up, adapter + up, 2 * (in + out + 2 * hidden), 2 * values, 3});
  check_saved(op, 2 * hidden, x, GRAPH_NONE);
  op = op_of(z); /* from 20 to 12 channels, its input needs a gradient */
  check_work("input", &op->backward_input,
             (expected_work){matrix + adapter + out, matrix + adapter, 2 * (in + 240 + in + values + hidden + out),
                             2 * (out + hidden + out), 3});
  check_work("weight", &op->backward_weight,
             (expected_work){adapter, adapter, 2 * (in + out + 2 * hidden), 2 * values, 2});
  check_saved(op, 2 * hidden, y, GRAPH_NONE);
  op = op_of(w); /* frozen: passes the gradient on and keeps nothing */
  check_work("input", &op->backward_input, (expected_work){2 * 14 * 144, 2 * 14 * 144, 2 * (in + 144), 2 * in, 1});
  check_work("weight", &op->backward_weight, nothing);
  check_saved(op, 0, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(attention) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int q = tokens_with_gradient("q", 2, 6, 8), k = tokens_with_gradient("k", 2, 5, 8),
            v = tokens_with_gradient("v", 2, 5, 8);
  const graph_attributes a = {.heads = 4, .head_dim = 2, .form = GRAPH_ATTENTION_CROSS};
  const int y = graph_build_op(b, GRAPH_ATTENTION, "attn", &a, (const int[]){q, k, v}, 3);
  finish_by_hand(b);
  const graph_op *op = op_of(y);
  check_shape(&g, y, 3, 2, 6, 8);
  const int scores = 2 * 4 * 6 * 5, product = 2 * scores * 2, statistics = 4 * 2 * 4 * 6; /* fp32 log-sum-exp */
  check_work("forward", &op->forward,
             (expected_work){2 * product + 5 * scores, 2 * product, 2 * (96 + 80 + 80), 2 * 96 + statistics, 1});
  check_gemm(&op->forward, 8, 6, 5, 2);
  check_work("input", &op->backward_input,
             (expected_work){5 * product + 6 * scores + 2 * 96, 5 * product,
                             2 * (96 + 80 + 80 + 2 * 96) + 2 * statistics, 2 * (96 + 80 + 80), 2});
  check_work("weight", &op->backward_weight, nothing);
  check_saved(op, statistics, q, k, v, y, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

/* As in a resnet: norm, SiLU, convolution. The norm keeps its input and statistics, the SiLU nothing, the convolution
 * the SiLU's output; the norm's output never exists. */
START_TEST(group_norm_and_silu) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = image_with_gradient("x", 2, 8, 4, 4);
  const int n = graph_build_op(b, GRAPH_GROUP_NORM, "norm", &(graph_attributes){.groups = 4, .affine = true}, &x, 1);
  const int s = graph_build_op(b, GRAPH_SILU, "silu", NULL, &n, 1);
  const graph_attributes a = {.in_channels = 8, .out_channels = 8, .kernel = {1, 1, 1}, .stride = {1, 1, 1}};
  const int y = graph_build_op(b, GRAPH_CONV2D, "conv", &a, &s, 1);
  finish_by_hand(b);
  const int elements = 2 * 8 * 16, statistics = 4 * 2 * 2 * 4;
  const graph_op *op = op_of(n);
  ck_assert_int_eq(op->parameters, 16);
  check_work("norm", &op->forward, (expected_work){8 * elements, 0, 2 * (elements + 16), 2 * elements + statistics, 1});
  check_work("norm input", &op->backward_input,
             (expected_work){16 * elements, 0, 2 * (2 * elements + 16) + statistics, 2 * (elements + 16), 2});
  check_work("norm weight", &op->backward_weight, nothing);
  check_saved(op, statistics, find_tensor(&g, "x.output"), GRAPH_NONE);
  op = op_of(s);
  ck_assert(op->fused);
  check_work("silu", &op->forward, (expected_work){4 * elements, 0, 2 * elements, 2 * elements, 1});
  check_work("silu input", &op->backward_input, (expected_work){5 * elements, 0, 4 * elements, 2 * elements, 1});
  check_saved(op, 0, GRAPH_NONE);
  op = op_of(y);
  ck_assert(!op->fused);
  check_saved(op, 0, s, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(layer_norm) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = tokens_with_gradient("x", 2, 5, 8), u = graph_build_input(b, "u", 3, (const int64_t[]){2, 5, 8});
  const int y = graph_build_op(b, GRAPH_LAYER_NORM, "plain", NULL, &x, 1);
  const int z = graph_build_op(b, GRAPH_LAYER_NORM, "affine", &(graph_attributes){.affine = true}, &u, 1);
  finish_by_hand(b);
  const int elements = 80, statistics = 4 * 2 * 10;
  check_work("forward", &op_of(y)->forward,
             (expected_work){8 * elements, 0, 2 * elements, 2 * elements + statistics, 1});
  check_work("input", &op_of(y)->backward_input,
             (expected_work){16 * elements, 0, 4 * elements + statistics, 2 * elements, 1});
  check_saved(op_of(y), statistics, x, GRAPH_NONE);
  /* no gradient of its input: that of its weights is work of its own */
  check_work("input", &op_of(z)->backward_input, nothing);
  check_work("weight", &op_of(z)->backward_weight,
             (expected_work){4 * elements, 0, 2 * (2 * elements + 16) + statistics, 2 * 16, 1});
  check_saved(op_of(z), statistics, u, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(rms_norm) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = tokens_with_gradient("x", 2, 5, 8);
  const int y = graph_build_op(b, GRAPH_RMS_NORM, "per_head",
                               &(graph_attributes){.affine = true, .heads = 4, .head_dim = 2}, &x, 1);
  finish_by_hand(b);
  const int elements = 80, statistics = 4 * 2 * 5 * 4; /* one a head */
  ck_assert_int_eq(op_of(y)->parameters, 2);
  check_work("forward", &op_of(y)->forward,
             (expected_work){4 * elements, 0, 2 * (elements + 2), 2 * elements + statistics, 1});
  check_work("input", &op_of(y)->backward_input,
             (expected_work){8 * elements, 0, 2 * (2 * elements + 2) + statistics, 2 * (elements + 2), 2});
  check_saved(op_of(y), statistics, x, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(activations) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = tokens_with_gradient("x", 2, 5, 8), u = tokens_with_gradient("u", 2, 5, 8);
  const int v = tokens_with_gradient("v", 2, 5, 8), w = tokens_with_gradient("w", 2, 5, 8);
  const int silu = graph_build_op(b, GRAPH_SILU, "silu", NULL, &x, 1),
            gelu = graph_build_op(b, GRAPH_GELU, "gelu", NULL, &u, 1);
  const int geglu = graph_build_op(b, GRAPH_GEGLU, "geglu", NULL, &v, 1),
            swiglu = graph_build_op(b, GRAPH_SWIGLU, "swiglu", NULL, &w, 1);
  finish_by_hand(b);
  check_shape(&g, gelu, 3, 2, 5, 8);
  check_shape(&g, geglu, 3, 2, 5, 4);
  check_work("silu", &op_of(silu)->forward, (expected_work){4 * 80, 0, 160, 160, 1});
  check_saved(op_of(silu), 0, x, GRAPH_NONE); /* no norm before it */
  check_work("gelu", &op_of(gelu)->forward, (expected_work){8 * 80, 0, 160, 160, 1});
  check_work("gelu input", &op_of(gelu)->backward_input, (expected_work){9 * 80, 0, 320, 160, 1});
  check_saved(op_of(gelu), 0, u, GRAPH_NONE);
  check_work("geglu", &op_of(geglu)->forward, (expected_work){9 * 40, 0, 160, 80, 1});
  check_work("geglu input", &op_of(geglu)->backward_input, (expected_work){18 * 40, 0, 240, 160, 1});
  check_saved(op_of(geglu), 0, v, GRAPH_NONE);
  check_work("swiglu", &op_of(swiglu)->forward, (expected_work){5 * 40, 0, 160, 80, 1});
  check_saved(op_of(swiglu), 0, w, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

/* x is read twice: by the linear layer, whose input gradient is added to what the sum left there. */
START_TEST(add_and_accumulation) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = tokens_with_gradient("x", 2, 5, 8), t = vector_with_gradient("t", 2, 8);
  const int h =
      graph_build_op(b, GRAPH_LINEAR, "linear", &(graph_attributes){.in_channels = 8, .out_channels = 8}, &x, 1);
  const int y = graph_build_op(b, GRAPH_ADD, "residual", NULL, (const int[]){h, x}, 2);
  const int z = graph_build_op(b, GRAPH_ADD, "broadcast", NULL, (const int[]){y, t}, 2);
  finish_by_hand(b);
  check_work("forward", &op_of(y)->forward, (expected_work){80, 0, 320, 160, 1});
  check_work("input", &op_of(y)->backward_input, nothing);
  check_saved(op_of(y), 0, GRAPH_NONE);
  ck_assert(op_of(y)->fused);
  const int matrix = 2 * 10 * 64;
  check_work("linear", &op_of(h)->backward_input, (expected_work){matrix + 80, matrix, 2 * (80 + 64) + 160, 160, 1});
  check_work("forward", &op_of(z)->forward, (expected_work){80, 0, 160 + 32, 160, 1});
  check_work("input", &op_of(z)->backward_input, (expected_work){80, 0, 160, 32, 1}); /* sums over tokens */
  graph_free(&g);
}
END_TEST

START_TEST(concat_and_split) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = image_with_gradient("x", 1, 3, 2, 2), y = image_with_gradient("y", 1, 5, 2, 2);
  const int c = graph_build_op(b, GRAPH_CONCAT, "concat", &(graph_attributes){.axis = 1}, (const int[]){x, y}, 2);
  const int t = graph_build_op(b, GRAPH_RESHAPE, "tokens", NULL, &c, 1);
  const int s = graph_build_op(b, GRAPH_SPLIT, "parts", &(graph_attributes){.axis = 2, .parts = 4}, &t, 1);
  const int f = graph_build_op(b, GRAPH_SPLIT, "at", &(graph_attributes){.axis = 1, .first = 1}, &t, 1);
  finish_by_hand(b);
  check_shape(&g, c, 4, 1, 8, 2, 2);
  check_work("concat", &op_of(c)->forward, (expected_work){0, 0, 64, 64, 1});
  check_work("concat input", &op_of(c)->backward_input, nothing);
  check_saved(op_of(c), 0, GRAPH_NONE);
  check_shape(&g, t, 3, 1, 4, 8);
  for (int i = 0; i < 4; i++) check_shape(&g, s + i, 3, 1, 4, 2);
  check_shape(&g, f, 3, 1, 1, 8);
  check_shape(&g, f + 1, 3, 1, 3, 8);
  check_work("split", &op_of(s)->forward, nothing);
  check_work("reshape", &op_of(t)->forward, nothing);
  ck_assert_int_eq(g.tensors.items[s + 3].view_of, t);
  ck_assert_int_eq(g.tensors.items[t].view_of, c);
  ck_assert_int_eq(g.tensors.items[c].view_of, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(resampling) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = image_with_gradient("x", 1, 3, 4, 2), u = image_with_gradient("u", 1, 3, 4, 2);
  const int up = graph_build_op(b, GRAPH_UPSAMPLE, "up", &(graph_attributes){.scale = 2}, &x, 1);
  const int down = graph_build_op(b, GRAPH_DOWNSAMPLE, "down", &(graph_attributes){.scale = 2}, &u, 1);
  finish_by_hand(b);
  check_shape(&g, up, 4, 1, 3, 8, 4);
  check_work("up", &op_of(up)->forward, (expected_work){0, 0, 48, 192, 1});
  check_work("up input", &op_of(up)->backward_input, (expected_work){96, 0, 192, 48, 1});
  check_saved(op_of(up), 0, GRAPH_NONE);
  check_shape(&g, down, 4, 1, 3, 2, 1);
  check_work("down", &op_of(down)->forward, (expected_work){24, 0, 48, 12, 1});
  check_work("down input", &op_of(down)->backward_input, (expected_work){24, 0, 12, 48, 1});
  graph_free(&g);
}
END_TEST

START_TEST(embeddings) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int steps = graph_build_scalars(b, "steps", 1, (const int64_t[]){2});
  const int sizes = graph_build_scalars(b, "sizes", 2, (const int64_t[]){2, 6});
  const int ids = graph_build_scalars(b, "ids", 2, (const int64_t[]){2, 7});
  const int t = graph_build_op(b, GRAPH_TIME_EMBEDDING, "time", &(graph_attributes){.out_channels = 32}, &steps, 1);
  const int s =
      graph_build_op(b, GRAPH_TIME_EMBEDDING, "sizes_time", &(graph_attributes){.out_channels = 4}, &sizes, 1);
  const int e = graph_build_op(b, GRAPH_TEXT_EMBEDDING, "text",
                               &(graph_attributes){.in_channels = 100, .out_channels = 8}, &ids, 1);
  finish_by_hand(b);
  check_shape(&g, t, 2, 2, 32);
  check_shape(&g, s, 2, 2, 24);
  check_shape(&g, e, 3, 2, 7, 8);
  check_work("time", &op_of(t)->forward, (expected_work){2 * 64, 0, 8, 128, 1}); /* timesteps are fp32 */
  ck_assert(!g.tensors.items[t].needs_gradient);
  ck_assert_int_eq(op_of(e)->parameters, 800);
  check_work("text", &op_of(e)->forward, (expected_work){0, 0, 4 * 14 + 2 * 112, 2 * 112, 1});
  check_work("text weight", &op_of(e)->backward_weight, (expected_work){112, 0, 4 * 14 + 2 * 112, 1600, 1});
  check_saved(op_of(e), 0, ids, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

/* Scale and shift after a norm: only the scale stays. The gate: branch and gate stay. */
START_TEST(modulate) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = tokens_with_gradient("x", 2, 5, 8);
  const int scale = vector_with_gradient("scale", 2, 8), shift = vector_with_gradient("shift", 2, 8),
            gate = vector_with_gradient("gate", 2, 8);
  const int n = graph_build_op(b, GRAPH_LAYER_NORM, "norm", NULL, &x, 1);
  const int m = graph_build_op(b, GRAPH_MODULATE, "modulate", NULL, (const int[]){n, scale, shift}, 3);
  const int h =
      graph_build_op(b, GRAPH_LINEAR, "linear", &(graph_attributes){.in_channels = 8, .out_channels = 8}, &m, 1);
  const int y = graph_build_op(b, GRAPH_MODULATE, "gated", NULL, (const int[]){h, gate}, 2);
  const int z = graph_build_op(b, GRAPH_MODULATE, "plain", NULL, (const int[]){y, scale, shift}, 3);
  finish_by_hand(b);
  check_work("modulate", &op_of(m)->forward, (expected_work){3 * 80, 0, 160 + 2 * 32, 160, 1});
  /* scale and shift are read again later: what lies there is added to */
  check_work("modulate input", &op_of(m)->backward_input,
             (expected_work){5 * 80 + 32, 0, 320 + 32 + 2 * 32, 160 + 2 * 32, 2});
  check_saved(op_of(m), 0, scale, GRAPH_NONE);
  ck_assert(op_of(m)->fused);
  check_work("gate", &op_of(y)->forward, (expected_work){80, 0, 160 + 32, 160, 1});
  check_work("gate input", &op_of(y)->backward_input, (expected_work){3 * 80, 0, 320 + 32, 160 + 32, 2});
  check_saved(op_of(y), 0, h, gate, GRAPH_NONE);
  check_saved(op_of(z), 0, y, scale, GRAPH_NONE); /* no norm before it: x stays too */
  graph_free(&g);
}
END_TEST

START_TEST(rotary) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = tokens_with_gradient("x", 2, 5, 8);
  const int table = graph_build_constant(b, "table", 3, (const int64_t[]){2, 5, 4}, GRAPH_FP32);
  const int y = graph_build_op(b, GRAPH_ROTARY, "rotary", &(graph_attributes){.heads = 2, .head_dim = 4},
                               (const int[]){x, table}, 2);
  finish_by_hand(b);
  check_shape(&g, y, 3, 2, 5, 8);
  check_work("forward", &op_of(y)->forward, (expected_work){240, 0, 160 + 160, 160, 1});
  check_work("input", &op_of(y)->backward_input, (expected_work){240, 0, 160 + 160, 160, 1});
  check_saved(op_of(y), 0, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(patches) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = image_with_gradient("x", 2, 3, 4, 6),
            v = graph_build_input(b, "v", 5, (const int64_t[]){1, 3, 2, 4, 6});
  const graph_attributes image = {.patch = {1, 2, 2}, .grid = {0, 2, 3}, .out_channels = 3};
  const graph_attributes video = {.patch = {2, 2, 3}, .grid = {1, 2, 2}, .out_channels = 3};
  const int p = graph_build_op(b, GRAPH_PATCHIFY, "patchify", &image, &x, 1);
  const int y = graph_build_op(b, GRAPH_UNPATCHIFY, "unpatchify", &image, &p, 1);
  const int q = graph_build_op(b, GRAPH_PATCHIFY, "patchify_video", &video, &v, 1);
  const int w = graph_build_op(b, GRAPH_UNPATCHIFY, "unpatchify_video", &video, &q, 1);
  finish_by_hand(b);
  check_shape(&g, p, 3, 2, 6, 12);
  check_shape(&g, y, 4, 2, 3, 4, 6);
  check_shape(&g, q, 3, 1, 4, 36);
  check_shape(&g, w, 5, 1, 3, 2, 4, 6);
  check_work("patchify", &op_of(p)->forward, (expected_work){0, 0, 288, 288, 1});
  check_work("unpatchify input", &op_of(y)->backward_input, (expected_work){0, 0, 288, 288, 1});
  check_work("no gradient", &op_of(q)->backward_input, nothing);
  check_saved(op_of(p), 0, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(loss) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = tokens_with_gradient("x", 2, 5, 8),
            target = graph_build_input(b, "target", 3, (const int64_t[]){2, 5, 8});
  const int y = graph_build_op(b, GRAPH_LOSS, "loss", NULL, (const int[]){x, target}, 2);
  finish_by_hand(b);
  check_shape(&g, y, 1, 1);
  ck_assert_int_eq(g.tensors.items[y].bytes, 4);
  check_work("forward", &op_of(y)->forward, (expected_work){240, 0, 320, 4, 1});
  check_work("input", &op_of(y)->backward_input, (expected_work){160, 0, 320, 160, 1});
  check_saved(op_of(y), 0, x, target, GRAPH_NONE);
  graph_free(&g);
}
END_TEST

START_TEST(names_are_unique) {
  for (int i = 0; i < GRAPH_OP_KIND_COUNT; i++) {
    ck_assert_ptr_nonnull(graph_op_kind_name((graph_op_kind)i));
    for (int j = 0; j < i; j++)
      ck_assert_str_ne(graph_op_kind_name((graph_op_kind)i), graph_op_kind_name((graph_op_kind)j));
  }
  for (int i = 0; i < GRAPH_CLASS_COUNT; i++) ck_assert_ptr_nonnull(graph_op_class_name((graph_op_class)i));
}
END_TEST

/* What does not fit is refused, with the op's name, and the rest of the build is a no-op. */
static const struct {
  graph_op_kind kind;
  graph_attributes attributes;
  int inputs; /* of x [2, 6, 8], x, x; 10 more: of the image [1, 4, 6, 6] */
  const char *error;
} unfit[] = {
    {GRAPH_LINEAR, {.in_channels = 9, .out_channels = 8}, 1, "op (linear): the input has 8 channels, must have 9"},
    {GRAPH_CONV2D, {.in_channels = 4, .out_channels = 8}, 11, "op (conv2d): a kernel of 0 does not fit"},
    {GRAPH_CONV2D,
     {.in_channels = 4, .out_channels = 8, .kernel = {1, 9, 9}, .stride = {1, 1, 1}},
     11,
     "a kernel of 9 does not fit an input of 6"},
    {GRAPH_CONV2D,
     {.in_channels = 8, .out_channels = 8},
     1,
     "op (conv2d): the input has 3 dimensions, must have 4 to 5"},
    {GRAPH_ATTENTION, {.heads = 3, .head_dim = 2}, 3, "the input has 8 channels, must have 6"},
    {GRAPH_ATTENTION, {.heads = 4, .head_dim = 2}, 2, "2 inputs are not 3 to 3"},
    {GRAPH_GROUP_NORM, {.groups = 3}, 11, "4 channels cannot be parted into 3 equal groups"},
    {GRAPH_RMS_NORM, {.heads = 3, .head_dim = 2}, 1, "8 channels are not 3 heads of 2"},
    {GRAPH_CONCAT, {.axis = 3}, 2, "there is no axis 3"},
    {GRAPH_SPLIT, {.axis = 1, .parts = 5}, 1, "6 cannot be split so"},
    {GRAPH_SPLIT, {.axis = 1, .first = 6}, 1, "6 cannot be split so"},
    {GRAPH_MODULATE, {0}, 2, "scale, shift and gate must be [batch, channels]"},
    {GRAPH_ROTARY, {.head_dim = 4}, 2, "the table must be [2, tokens, head dimension]"},
    {GRAPH_PATCHIFY, {.patch = {1, 4, 4}}, 11, "6 is not a multiple of the patch size 4"},
    {GRAPH_UNPATCHIFY,
     {.patch = {1, 2, 2}, .grid = {0, 2, 2}, .out_channels = 2},
     1,
     "6 tokens of 8 values do not fill a grid of 4"},
    {GRAPH_RESHAPE, {.grid = {0, 5, 5}}, 1, "6 tokens do not fill a grid of 25"},
    {GRAPH_DOWNSAMPLE, {.scale = 4}, 11, "6 is not a multiple of 4"},
};

START_TEST(unfit_inputs_are_refused) {
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const bool image = unfit[_i].inputs > 10;
  const int x = image ? graph_build_input(b, "x", 4, (const int64_t[]){1, 4, 6, 6})
                      : graph_build_input(b, "x", 3, (const int64_t[]){2, 6, 8});
  dp_error error = DP_ERROR_INIT;
  ck_assert_int_eq(
      graph_build_op(b, unfit[_i].kind, "op", &unfit[_i].attributes, (const int[]){x, x, x}, unfit[_i].inputs % 10),
      GRAPH_NONE);
  ck_assert(graph_build_failed(b));
  ck_assert_int_eq(graph_build_op(b, GRAPH_SILU, "later", NULL, &x, 1), GRAPH_NONE);
  ck_assert_int_eq(graph_build_finish(b, &error), DP_BAD_INPUT);
  ck_assert_msg(strstr(error.text, unfit[_i].error) != NULL, "%s", error.text);
}
END_TEST

START_TEST(misuse_is_refused) {
  dp_error error = DP_ERROR_INIT;
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  graph_build_op(b, GRAPH_SILU, "silu", NULL, (const int[]){5}, 1);
  ck_assert_int_eq(graph_build_finish(b, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "reads a tensor that does not exist"));
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  ck_assert_int_eq(graph_build_finish(b, &error), DP_BAD_INPUT); /* no ops */
  begin(GRAPH_FP16, GRAPH_TRAIN_FULL);
  const int x = graph_build_input(b, "x", 2, (const int64_t[]){INT64_MAX / 4, 3});
  ck_assert_int_eq(x, GRAPH_NONE);
  ck_assert_int_eq(graph_build_finish(b, &error), DP_BAD_INPUT);
  ck_assert_ptr_nonnull(strstr(error.text, "tensor x has more bytes than 64 bits can count"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("graph ops");
  TCase *ops = suite_case(suite, "ops", NULL, NULL, 0);
  const TTest *const tests[] = {conv2d,
                                conv3d,
                                linear,
                                linear_with_adapter,
                                attention,
                                group_norm_and_silu,
                                layer_norm,
                                rms_norm,
                                activations,
                                add_and_accumulation,
                                concat_and_split,
                                resampling,
                                embeddings,
                                modulate,
                                rotary,
                                patches,
                                loss,
                                names_are_unique,
                                misuse_is_refused};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(ops, tests[i]);
  tcase_add_loop_test(ops, unfit_inputs_are_refused, 0, sizeof unfit / sizeof *unfit);
  return suite_finish(suite);
}
