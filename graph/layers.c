#include "graph/layers.h"

#define NAME(...) graph_build_name(b, __VA_ARGS__)

static int one(graph_builder *b, graph_op_kind kind, const char *name, const graph_attributes *attributes, int x) {
  return graph_build_op(b, kind, name, attributes, &x, 1);
}

static int two(graph_builder *b, graph_op_kind kind, const char *name, const graph_attributes *attributes, int x,
               int y) {
  return graph_build_op(b, kind, name, attributes, (const int[]){x, y}, 2);
}

int layer_conv2d(graph_builder *b, const char *name, int x, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                 int64_t padding) {
  return one(b, GRAPH_CONV2D, name,
             &(graph_attributes){.in_channels = in,
                                 .out_channels = out,
                                 .kernel = {1, kernel, kernel},
                                 .stride = {1, stride, stride},
                                 .padding = {0, padding, padding},
                                 .bias = true},
             x);
}

int layer_linear(graph_builder *b, const char *name, int x, int64_t in, int64_t out, bool bias) {
  return one(b, GRAPH_LINEAR, name, &(graph_attributes){.in_channels = in, .out_channels = out, .bias = bias}, x);
}

int layer_group_norm(graph_builder *b, const char *name, int x, int64_t groups, double epsilon) {
  return one(b, GRAPH_GROUP_NORM, name, &(graph_attributes){.groups = groups, .affine = true, .epsilon = epsilon}, x);
}

int layer_layer_norm(graph_builder *b, const char *name, int x, bool affine, double epsilon) {
  return one(b, GRAPH_LAYER_NORM, name, &(graph_attributes){.affine = affine, .epsilon = epsilon}, x);
}

int layer_rms_norm(graph_builder *b, const char *name, int x, int64_t heads, int64_t head_dim, double epsilon) {
  return one(b, GRAPH_RMS_NORM, name,
             &(graph_attributes){.affine = true, .heads = heads, .head_dim = head_dim, .epsilon = epsilon}, x);
}

int layer_attention(graph_builder *b, const char *name, graph_attention_form form, int q, int k, int v, int64_t heads,
                    int64_t head_dim) {
  return graph_build_op(b, GRAPH_ATTENTION, name,
                        &(graph_attributes){.form = form, .heads = heads, .head_dim = head_dim}, (const int[]){q, k, v},
                        3);
}

int layer_unary(graph_builder *b, graph_op_kind kind, const char *name, int x) { return one(b, kind, name, NULL, x); }

int layer_add(graph_builder *b, const char *name, int x, int y) { return two(b, GRAPH_ADD, name, NULL, x, y); }

int layer_concat(graph_builder *b, const char *name, int x, int y, int64_t axis) {
  return two(b, GRAPH_CONCAT, name, &(graph_attributes){.axis = axis}, x, y);
}

int layer_split(graph_builder *b, const char *name, int x, int64_t axis, int64_t parts) {
  return one(b, GRAPH_SPLIT, name, &(graph_attributes){.axis = axis, .parts = parts}, x);
}

int layer_split_at(graph_builder *b, const char *name, int x, int64_t axis, int64_t first) {
  return one(b, GRAPH_SPLIT, name, &(graph_attributes){.axis = axis, .first = first}, x);
}

int layer_modulate(graph_builder *b, const char *name, int x, int scale, int shift) {
  return graph_build_op(b, GRAPH_MODULATE, name, NULL, (const int[]){x, scale, shift}, 3);
}

int layer_gate(graph_builder *b, const char *name, int x, int gate) {
  return two(b, GRAPH_MODULATE, name, NULL, x, gate);
}

int layer_sinusoid(graph_builder *b, const char *name, int x, int64_t channels, const graph_attributes *form) {
  graph_attributes attributes = form ? *form : (graph_attributes){.time_factor = 1};
  attributes.out_channels = channels;
  return one(b, GRAPH_TIME_EMBEDDING, name, &attributes, x);
}

int layer_embedding_mlp(graph_builder *b, const char *name, int x, int64_t in, int64_t out) {
  x = layer_linear(b, NAME("%s.linear_1", name), x, in, out, true);
  x = layer_unary(b, GRAPH_SILU, NAME("%s.act", name), x);
  return layer_linear(b, NAME("%s.linear_2", name), x, out, out, true);
}

int layer_feed_forward(graph_builder *b, const char *name, int x, int64_t channels, graph_op_kind kind) {
  const int64_t inner = 4 * channels;
  x = layer_linear(b, NAME("%s.net.0.proj", name), x, channels, kind == GRAPH_GEGLU ? 2 * inner : inner, true);
  x = layer_unary(b, kind, NAME("%s.net.0", name), x);
  return layer_linear(b, NAME("%s.net.2", name), x, inner, channels, true);
}
