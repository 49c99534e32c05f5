/* diffusers' FluxTransformer2DModel: Flux.1.
 *
 * Units: embeddings; each joint block; each single block (image and text tokens joined, in the first of them); norm_out
 * with proj_out. Latents come packed, 2 x 2 of the VAE's to a token. The conditioning vector is an ordinary tensor that
 * every block reads.
 */
#include <inttypes.h>

#include "graph/config.h"
#include "graph/layers.h"
#include "graph/models/joint.h"
#include "graph/models/models.h"

#define NAME(...) graph_build_name(b, __VA_ARGS__)

enum { PACKED = 2, MLP_RATIO = 4 };

typedef struct flux_config {
  int64_t patch_size, in_channels, out_channels, layers, single_layers, head_dim, heads, text_channels, pooled_channels;
  bool guidance;
  graph_integers rope;
} flux_config;

#define AT(field) offsetof(flux_config, field)

static const graph_config_key keys[] = {
    {"patch_size", GRAPH_CONFIG_INTEGER, AT(patch_size), 1, 64, NULL},
    {"in_channels", GRAPH_CONFIG_INTEGER, AT(in_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"out_channels", GRAPH_CONFIG_INTEGER, AT(out_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"num_layers", GRAPH_CONFIG_INTEGER, AT(layers), 0, GRAPH_MAX_LAYERS, NULL},
    {"num_single_layers", GRAPH_CONFIG_INTEGER, AT(single_layers), 0, GRAPH_MAX_LAYERS, NULL},
    {"attention_head_dim", GRAPH_CONFIG_INTEGER, AT(head_dim), 1, 65536, NULL},
    {"num_attention_heads", GRAPH_CONFIG_INTEGER, AT(heads), 1, 65536, NULL},
    {"joint_attention_dim", GRAPH_CONFIG_INTEGER, AT(text_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"pooled_projection_dim", GRAPH_CONFIG_INTEGER, AT(pooled_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"guidance_embeds", GRAPH_CONFIG_BOOLEAN, AT(guidance), 0, 0, NULL},
    {"axes_dims_rope", GRAPH_CONFIG_INTEGERS, AT(rope), 1, 65536, NULL},
};

/* The defaults of the class; out_channels 0: as in_channels. */
static const flux_config defaults = {.patch_size = 1,
                                     .in_channels = 64,
                                     .layers = 19,
                                     .single_layers = 38,
                                     .head_dim = 128,
                                     .heads = 24,
                                     .text_channels = 4096,
                                     .pooled_channels = 768,
                                     .rope = {.count = 3, .values = {16, 56, 56}}};

static dp_status check(const dp_node *config, const flux_config *c, const graph_model_options *o, dp_error *error) {
  const int64_t channels = c->heads * c->head_dim;
  int64_t rotated = 0;
  for (int i = 0; i < c->rope.count; i++) rotated += c->rope.values[i];
  if (channels > GRAPH_MAX_CHANNELS)
    return dp_fail_at(error, config, "num_attention_heads times attention_head_dim is %" PRId64 ", must be at most %d",
                      channels, GRAPH_MAX_CHANNELS);
  if (c->rope.single || rotated != c->head_dim)
    return dp_fail_at(error, c->rope.node != NULL ? c->rope.node : config,
                      "axes_dims_rope adds up to %" PRId64
                      ", must be a list that adds up to attention_head_dim, %" PRId64,
                      rotated, c->head_dim);
  if (c->layers + c->single_layers == 0)
    return dp_fail_at(error, config, "num_layers and num_single_layers are both 0");
  const char *why = "8 pixels a latent, 2 latents packed";
  DP_TRY(graph_model_check_side(config, "height", o->height, GRAPH_VAE_FACTOR * PACKED, why, error));
  DP_TRY(graph_model_check_side(config, "width", o->width, GRAPH_VAE_FACTOR * PACKED, why, error));
  return graph_model_check_image(config, o, error);
}

/* Attention and feed-forward side by side over all tokens: x + gate * proj_out([attention, GELU(proj_mlp)]). */
static int build_single_block(graph_builder *b, const joint_sizes *s, const char *name, int temb, int x) {
  const int64_t channels = s->heads * s->head_dim, inner = MLP_RATIO * channels;
  const char *const norm = NAME("%s.norm", name), *const attn = NAME("%s.attn", name);
  const int act = layer_unary(b, GRAPH_SILU, NAME("%s.silu", norm), temb);
  const int m = joint_modulation(b, norm, act, channels, 3); /* shift, scale, gate */
  int h = layer_layer_norm(b, NAME("%s.norm", norm), x, false, 1e-6);
  h = layer_modulate(b, NAME("%s.modulate", norm), h, m + 1, m);
  int mlp = layer_linear(b, NAME("%s.proj_mlp", name), h, channels, inner, true);
  mlp = layer_unary(b, GRAPH_GELU, NAME("%s.act_mlp", name), mlp);
  h = joint_attend(b, s, attn, GRAPH_ATTENTION_SELF, joint_project(b, s, attn, false, h));
  h = layer_concat(b, NAME("%s.concat", name), h, mlp, 2);
  h = layer_linear(b, NAME("%s.proj_out", name), h, channels + inner, channels, true);
  h = layer_gate(b, NAME("%s.gate", name), h, m + 2);
  return layer_add(b, name, h, x);
}

static void build_all(graph_builder *b, const flux_config *c, const graph_model_options *o) {
  const int64_t channels = c->heads * c->head_dim;
  const int64_t side = GRAPH_VAE_FACTOR * PACKED;
  const int64_t tokens = (o->height / side) * (o->width / side);
  const int64_t out = c->out_channels != 0 ? c->out_channels : c->in_channels;
  const int latent = graph_build_input(b, "hidden_states", 3, (const int64_t[]){o->batch, tokens, c->in_channels});
  const int prompt =
      graph_build_input(b, "encoder_hidden_states", 3, (const int64_t[]){o->batch, o->text_tokens, c->text_channels});
  const int pooled = graph_build_input(b, "pooled_projections", 2, (const int64_t[]){o->batch, c->pooled_channels});
  const int timestep = graph_build_scalars(b, "timestep", 1, &o->batch);
  const int guidance = c->guidance ? graph_build_scalars(b, "guidance", 1, &o->batch) : GRAPH_NONE;
  const joint_sizes sizes = {
      .heads = c->heads,
      .head_dim = c->head_dim,
      .image_tokens = tokens,
      .text_tokens = o->text_tokens,
      .qk_norm = true,
      .text_first = true,
      .rotary = graph_build_constant(b, "image_rotary_emb", 3,
                                     (const int64_t[]){2, tokens + o->text_tokens, c->head_dim}, GRAPH_FP32),
  };
  graph_build_unit(b, "x_embedder");
  const int temb = joint_condition(b, 1000, timestep, guidance, pooled, c->pooled_channels, channels);
  int text = layer_linear(b, "context_embedder", prompt, c->text_channels, channels, true);
  int x = layer_linear(b, "x_embedder", latent, c->in_channels, channels, true);
  for (int64_t i = 0; i < c->layers && !graph_build_failed(b); i++)
    joint_block_build(b, &sizes, NAME("transformer_blocks.%" PRId64, i), temb, false, false, &x, &text);
  for (int64_t i = 0; i < c->single_layers && !graph_build_failed(b); i++) {
    const char *name = NAME("single_transformer_blocks.%" PRId64, i);
    graph_build_unit(b, name);
    if (i == 0) x = layer_concat(b, "joined_tokens", text, x, 1);
    x = build_single_block(b, &sizes, name, temb, x);
  }
  graph_build_unit(b, "proj_out");
  if (c->single_layers > 0) x = 1 + layer_split_at(b, "image_tokens", x, 1, o->text_tokens);
  graph_build_output(b, joint_output(b, x, temb, channels, c->patch_size * c->patch_size * out));
  graph_build_latent(b, latent);
}

dp_status graph_flux_build(const dp_node *config, const graph_model_options *options, graph *g, dp_error *error) {
  flux_config c = defaults;
  graph_model_options o = *options;
  DP_TRY(graph_config_read(config, "FluxTransformer2DModel", keys, sizeof keys / sizeof *keys, &c, error));
  if (o.height == 0) o.height = 1024; /* the pipeline's default: the file has no sample_size */
  if (o.width == 0) o.width = 1024;
  if (o.text_tokens == 0) o.text_tokens = 512;
  DP_TRY(check(config, &c, &o, error));
  graph_builder *b = graph_build_begin(g, &o, config);
  if (b == NULL) return dp_fail_memory(error);
  build_all(b, &c, &o);
  return graph_build_finish(b, error);
}
