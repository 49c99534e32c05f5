/* Inside graph/: the layers that model files are written in. Each adds one op, or a few, and returns the tensor made.
 * `name` is the module path in diffusers, from which weights get their names.
 */
#ifndef DP_GRAPH_LAYERS_H
#define DP_GRAPH_LAYERS_H

#include "graph/build.h"

int layer_conv2d(graph_builder *b, const char *name, int x, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                 int64_t padding);
int layer_linear(graph_builder *b, const char *name, int x, int64_t in, int64_t out, bool bias);
int layer_group_norm(graph_builder *b, const char *name, int x, int64_t groups, double epsilon);
int layer_layer_norm(graph_builder *b, const char *name, int x, bool affine, double epsilon);
int layer_rms_norm(graph_builder *b, const char *name, int x, int64_t heads, int64_t head_dim, double epsilon);
int layer_attention(graph_builder *b, const char *name, graph_attention_form form, int q, int k, int v, int64_t heads,
                    int64_t head_dim);
int layer_unary(graph_builder *b, graph_op_kind kind, const char *name, int x); /* silu, gelu, geglu, swiglu, reshape */
int layer_add(graph_builder *b, const char *name, int x, int y);
int layer_concat(graph_builder *b, const char *name, int x, int y, int64_t axis);
int layer_split(graph_builder *b, const char *name, int x, int64_t axis, int64_t parts); /* the first; others follow */
int layer_split_at(graph_builder *b, const char *name, int x, int64_t axis, int64_t first);
int layer_modulate(graph_builder *b, const char *name, int x, int scale, int shift);
int layer_gate(graph_builder *b, const char *name, int x, int gate);
/* `form`: the time embedding's attributes apart from the channels; NULL: diffusers' usual ones. */
int layer_sinusoid(graph_builder *b, const char *name, int x, int64_t channels, const graph_attributes *form);
/* diffusers' TimestepEmbedding and PixArtAlphaTextProjection: linear_1, SiLU, linear_2. */
int layer_embedding_mlp(graph_builder *b, const char *name, int x, int64_t in, int64_t out);
/* diffusers' FeedForward: net.0.proj, activation, net.2; inner width 4 * channels, gated when `kind` is GEGLU. */
int layer_feed_forward(graph_builder *b, const char *name, int x, int64_t channels, graph_op_kind kind);

#endif
