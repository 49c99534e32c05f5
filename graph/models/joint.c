#include "graph/models/joint.h"

#include "graph/layers.h"

#define NAME(...) graph_build_name(b, __VA_ARGS__)

static const double epsilon = 1e-6;

int joint_modulation(graph_builder *b, const char *name, int act, int64_t channels, int64_t parts) {
  const int x = layer_linear(b, NAME("%s.linear", name), act, channels, parts * channels, true);
  return layer_split(b, NAME("%s.chunk", name), x, 1, parts);
}

/* adaLN: a layer norm without weights, scaled and shifted. */
static int norm_modulate(graph_builder *b, const char *norm, const char *name, int x, int scale, int shift) {
  return layer_modulate(b, name, layer_layer_norm(b, norm, x, false, epsilon), scale, shift);
}

/* x + gate * branch */
static int add_gated(graph_builder *b, const char *name, int x, int branch, int gate) {
  return layer_add(b, name, layer_gate(b, NAME("%s.gate", name), branch, gate), x);
}

joint_qkv joint_project(graph_builder *b, const joint_sizes *s, const char *name, bool added, int x) {
  const int64_t channels = s->heads * s->head_dim;
  const char *const q_name = added ? NAME("%s.add_q_proj", name) : NAME("%s.to_q", name);
  const char *const k_name = added ? NAME("%s.add_k_proj", name) : NAME("%s.to_k", name);
  const char *const v_name = added ? NAME("%s.add_v_proj", name) : NAME("%s.to_v", name);
  joint_qkv made;
  made.q = layer_linear(b, q_name, x, channels, channels, true);
  if (s->qk_norm)
    made.q = layer_rms_norm(b, NAME("%s.%s", name, added ? "norm_added_q" : "norm_q"), made.q, s->heads, s->head_dim,
                            epsilon);
  made.k = layer_linear(b, k_name, x, channels, channels, true);
  if (s->qk_norm)
    made.k = layer_rms_norm(b, NAME("%s.%s", name, added ? "norm_added_k" : "norm_k"), made.k, s->heads, s->head_dim,
                            epsilon);
  made.v = layer_linear(b, v_name, x, channels, channels, true);
  return made;
}

static int rotate(graph_builder *b, const joint_sizes *s, const char *name, int x) {
  if (s->rotary == GRAPH_NONE) return x;
  return graph_build_op(b, GRAPH_ROTARY, name, &(graph_attributes){.heads = s->heads, .head_dim = s->head_dim},
                        (const int[]){x, s->rotary}, 2);
}

int joint_attend(graph_builder *b, const joint_sizes *s, const char *name, graph_attention_form form, joint_qkv x) {
  x.q = rotate(b, s, NAME("%s.rotary_q", name), x.q);
  x.k = rotate(b, s, NAME("%s.rotary_k", name), x.k);
  return layer_attention(b, name, form, x.q, x.k, x.v, s->heads, s->head_dim);
}

static int join(graph_builder *b, const joint_sizes *s, const char *name, int image, int text) {
  return layer_concat(b, name, s->text_first ? text : image, s->text_first ? image : text, 1);
}

/* Attention over both kinds of tokens; returns the image's part, the text's in *text_part. Neither is projected yet. */
static int attend_jointly(graph_builder *b, const joint_sizes *s, const char *name, int image, int text,
                          int *text_part) {
  const joint_qkv i = joint_project(b, s, name, false, image), t = joint_project(b, s, name, true, text);
  const joint_qkv both = {join(b, s, NAME("%s.joint_q", name), i.q, t.q),
                          join(b, s, NAME("%s.joint_k", name), i.k, t.k),
                          join(b, s, NAME("%s.joint_v", name), i.v, t.v)};
  const int x = joint_attend(b, s, name, GRAPH_ATTENTION_JOINT, both);
  const int first = layer_split_at(b, NAME("%s.part", name), x, 1, s->text_first ? s->text_tokens : s->image_tokens);
  *text_part = s->text_first ? first : first + 1;
  return s->text_first ? first + 1 : first;
}

/* x + gate * FF(adaLN(x)), under `name`'s norm2 and ff (or, for text, norm2_context and ff_context). */
static int feed_forward(graph_builder *b, const char *name, const char *suffix, const char *output, int x, int shift,
                        int64_t channels) {
  int h = norm_modulate(b, NAME("%s.norm2%s", name, suffix), NAME("%s.norm2%s.modulate", name, suffix), x, shift + 1,
                        shift);
  h = layer_feed_forward(b, NAME("%s.ff%s", name, suffix), h, channels, GRAPH_GELU);
  return add_gated(b, output, x, h, shift + 2);
}

void joint_block_build(graph_builder *b, const joint_sizes *s, const char *name, int temb, bool context_pre_only,
                       bool dual, int *image, int *text) {
  const int64_t channels = s->heads * s->head_dim;
  const char *const attn = NAME("%s.attn", name), *const attn2 = NAME("%s.attn2", name);
  const char *const norm1 = NAME("%s.norm1", name), *const norm1_context = NAME("%s.norm1_context", name);
  graph_build_unit(b, name);
  const int act = layer_unary(b, GRAPH_SILU, NAME("%s.act", name), temb);
  /* image: shift, scale, gate of attention, the same of the feed-forward, the same of the second attention.
   * text: the first six; with context_pre_only scale and shift alone, in that order (AdaLayerNormContinuous). */
  const int m = joint_modulation(b, norm1, act, channels, dual ? 9 : 6);
  const int c = joint_modulation(b, norm1_context, act, channels, context_pre_only ? 2 : 6);
  const int normed = layer_layer_norm(b, NAME("%s.norm", norm1), *image, false, epsilon);
  const int i = layer_modulate(b, NAME("%s.modulate", norm1), normed, m + 1, m);
  const int i2 = dual ? layer_modulate(b, NAME("%s.modulate2", norm1), normed, m + 7, m + 6) : GRAPH_NONE;
  const int t = norm_modulate(b, NAME("%s.norm", norm1_context), NAME("%s.modulate", norm1_context), *text,
                              context_pre_only ? c : c + 1, context_pre_only ? c + 1 : c);
  int text_part;
  int h = attend_jointly(b, s, attn, i, t, &text_part);
  h = layer_linear(b, NAME("%s.to_out.0", attn), h, channels, channels, true);
  int x = add_gated(b, NAME("%s.residual", attn), *image, h, m + 2);
  if (dual) {
    h = joint_attend(b, s, attn2, GRAPH_ATTENTION_SELF, joint_project(b, s, attn2, false, i2));
    h = layer_linear(b, NAME("%s.to_out.0", attn2), h, channels, channels, true);
    x = add_gated(b, NAME("%s.residual", attn2), x, h, m + 8);
  }
  *image = feed_forward(b, name, "", name, x, m + 3, channels);
  if (context_pre_only) {
    *text = GRAPH_NONE;
    return;
  }
  h = layer_linear(b, NAME("%s.to_add_out", attn), text_part, channels, channels, true);
  x = add_gated(b, NAME("%s.context_residual", attn), *text, h, c + 2);
  *text = feed_forward(b, name, "_context", NAME("%s.context", name), x, c + 3, channels);
}

int joint_condition(graph_builder *b, double time_factor, int timestep, int guidance, int pooled,
                    int64_t pooled_channels, int64_t channels) {
  enum { SINUSOIDS = 256 }; /* fixed in diffusers' class */
  const graph_attributes form = {.time_factor = time_factor};
  int x = layer_sinusoid(b, "time_text_embed.time_proj", timestep, SINUSOIDS, &form);
  x = layer_embedding_mlp(b, "time_text_embed.timestep_embedder", x, SINUSOIDS, channels);
  if (guidance != GRAPH_NONE) {
    int g = layer_sinusoid(b, "time_text_embed.guidance_proj", guidance, SINUSOIDS, &form);
    g = layer_embedding_mlp(b, "time_text_embed.guidance_embedder", g, SINUSOIDS, channels);
    x = layer_add(b, "time_text_embed.time_guidance", g, x);
  }
  const int p = layer_embedding_mlp(b, "time_text_embed.text_embedder", pooled, pooled_channels, channels);
  return layer_add(b, "time_text_embed", p, x);
}

int joint_output(graph_builder *b, int x, int temb, int64_t channels, int64_t out) {
  const int act = layer_unary(b, GRAPH_SILU, "norm_out.silu", temb);
  const int m = joint_modulation(b, "norm_out", act, channels, 2); /* scale, shift */
  x = norm_modulate(b, "norm_out.norm", "norm_out.modulate", x, m, m + 1);
  return layer_linear(b, "proj_out", x, channels, out, true);
}
