/* Inside graph/: what SD3 and Flux share: transformer blocks over image and text tokens with one joint attention and
 * adaLN conditioning (Esser et al., "Scaling rectified flow transformers for high-resolution image synthesis", 2024).
 */
#ifndef DP_GRAPH_MODELS_JOINT_H
#define DP_GRAPH_MODELS_JOINT_H

#include "graph/build.h"

typedef struct joint_sizes {
  int64_t heads, head_dim, image_tokens, text_tokens;
  bool qk_norm;    /* RMS norm of queries and keys, per head */
  bool text_first; /* in the joint attention */
  int rotary;      /* the table of cosines and sines; GRAPH_NONE: no rotary embedding */
} joint_sizes;

/* Begins the block's unit. image and text are updated; with context_pre_only the text goes no further (GRAPH_NONE).
 * `dual`: a second attention over image tokens alone. */
void joint_block_build(graph_builder *b, const joint_sizes *sizes, const char *name, int temb, bool context_pre_only,
                       bool dual, int *image, int *text);

/* One attention's queries, keys and values from tokens: projections `to_q` and so on under `name`, norms, [B, N, C]
 * each. */
typedef struct joint_qkv {
  int q, k, v;
} joint_qkv;
joint_qkv joint_project(graph_builder *b, const joint_sizes *sizes, const char *name, bool added, int x);
int joint_attend(graph_builder *b, const joint_sizes *sizes, const char *name, graph_attention_form form,
                 joint_qkv qkv);

/* `time_text_embed`: timestep, pooled text and (unless GRAPH_NONE) guidance to the conditioning vector. */
int joint_condition(graph_builder *b, double time_factor, int timestep, int guidance, int pooled,
                    int64_t pooled_channels, int64_t channels);

/* `parts` pieces [B, C] of a linear layer over SiLU(temb), here called act; the first, the others follow. */
int joint_modulation(graph_builder *b, const char *name, int act, int64_t channels, int64_t parts);

/* norm_out and proj_out. */
int joint_output(graph_builder *b, int x, int temb, int64_t channels, int64_t out);

#endif
