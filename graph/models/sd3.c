/* diffusers' SD3Transformer2DModel: Stable Diffusion 3 and 3.5.
 *
 * Units: patch, time and text embedding; each joint block; norm_out with proj_out. The conditioning vector is an
 * ordinary tensor that every block reads.
 */
#include <inttypes.h>

#include "graph/config.h"
#include "graph/layers.h"
#include "graph/models/joint.h"
#include "graph/models/models.h"

typedef struct sd3_config {
  int64_t sample_size, patch_size, in_channels, out_channels, layers, head_dim, heads;
  int64_t text_channels, caption_channels, pooled_channels, max_size;
  graph_integers dual_layers;
  int qk_norm; /* -1: none */
} sd3_config;

static const char *const qk_norms[] = {"rms_norm", NULL};

#define AT(field) offsetof(sd3_config, field)

static const graph_config_key keys[] = {
    {"sample_size", GRAPH_CONFIG_INTEGER, AT(sample_size), 1, 65536, NULL},
    {"patch_size", GRAPH_CONFIG_INTEGER, AT(patch_size), 1, 64, NULL},
    {"in_channels", GRAPH_CONFIG_INTEGER, AT(in_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"num_layers", GRAPH_CONFIG_INTEGER, AT(layers), 1, GRAPH_MAX_LAYERS, NULL},
    {"attention_head_dim", GRAPH_CONFIG_INTEGER, AT(head_dim), 1, 65536, NULL},
    {"num_attention_heads", GRAPH_CONFIG_INTEGER, AT(heads), 1, 65536, NULL},
    {"joint_attention_dim", GRAPH_CONFIG_INTEGER, AT(text_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"caption_projection_dim", GRAPH_CONFIG_INTEGER, AT(caption_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"pooled_projection_dim", GRAPH_CONFIG_INTEGER, AT(pooled_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"out_channels", GRAPH_CONFIG_INTEGER, AT(out_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"pos_embed_max_size", GRAPH_CONFIG_INTEGER, AT(max_size), 1, 65536, NULL},
    {"dual_attention_layers", GRAPH_CONFIG_INTEGERS, AT(dual_layers), 0, GRAPH_MAX_LAYERS, NULL},
    {"qk_norm", GRAPH_CONFIG_CHOICE, AT(qk_norm), 0, 0, qk_norms},
};

/* The defaults of the class. */
static const sd3_config defaults = {.sample_size = 128,
                                    .patch_size = 2,
                                    .in_channels = 16,
                                    .out_channels = 16,
                                    .layers = 18,
                                    .head_dim = 64,
                                    .heads = 18,
                                    .text_channels = 4096,
                                    .caption_channels = 1152,
                                    .pooled_channels = 2048,
                                    .max_size = 96,
                                    .qk_norm = -1};

static dp_status check(const dp_node *config, const sd3_config *c, dp_error *error) {
  const int64_t channels = c->heads * c->head_dim;
  const dp_node *caption = dp_node_get(config, "caption_projection_dim");
  if (channels > GRAPH_MAX_CHANNELS)
    return dp_fail_at(error, config, "num_attention_heads times attention_head_dim is %" PRId64 ", must be at most %d",
                      channels, GRAPH_MAX_CHANNELS);
  if (c->caption_channels != channels)
    return dp_fail_at(error, caption != NULL ? caption : config,
                      "caption_projection_dim is %" PRId64
                      ", must be num_attention_heads times attention_head_dim, %" PRId64,
                      c->caption_channels, channels);
  for (int i = 0; i < c->dual_layers.count; i++)
    if (c->dual_layers.values[i] >= c->layers)
      return dp_fail_at(error, c->dual_layers.node,
                        "dual_attention_layers has %" PRId64 ", must be below num_layers, %" PRId64,
                        c->dual_layers.values[i], c->layers);
  return DP_OK;
}

static dp_status check_sides(const dp_node *config, const sd3_config *c, const graph_model_options *o,
                             dp_error *error) {
  const int64_t multiple = GRAPH_VAE_FACTOR * c->patch_size;
  const char *why = "8 pixels a latent, times patch_size";
  const dp_node *max = dp_node_get(config, "pos_embed_max_size");
  DP_TRY(graph_model_check_side(config, "height", o->height, multiple, why, error));
  DP_TRY(graph_model_check_side(config, "width", o->width, multiple, why, error));
  const int64_t longest = (o->height > o->width ? o->height : o->width) / multiple;
  if (longest <= c->max_size) return DP_OK;
  return dp_fail_at(error, max != NULL ? max : config,
                    "height and width are up to %" PRId64 " patches, must be at most pos_embed_max_size, %" PRId64,
                    longest, c->max_size);
}

static bool is_dual(const sd3_config *c, int64_t layer) {
  for (int i = 0; i < c->dual_layers.count; i++)
    if (c->dual_layers.values[i] == layer) return true;
  return false;
}

static void build_all(graph_builder *b, const sd3_config *c, const graph_model_options *o) {
  const int64_t channels = c->heads * c->head_dim, patch = c->patch_size;
  const int64_t height = o->height / GRAPH_VAE_FACTOR, width = o->width / GRAPH_VAE_FACTOR;
  const int64_t tokens = (height / patch) * (width / patch);
  const joint_sizes sizes = {.heads = c->heads,
                             .head_dim = c->head_dim,
                             .image_tokens = tokens,
                             .text_tokens = o->text_tokens,
                             .qk_norm = c->qk_norm >= 0,
                             .rotary = GRAPH_NONE};
  const int latent =
      graph_build_input(b, "hidden_states", 4, (const int64_t[]){o->batch, c->in_channels, height, width});
  const int prompt =
      graph_build_input(b, "encoder_hidden_states", 3, (const int64_t[]){o->batch, o->text_tokens, c->text_channels});
  const int pooled = graph_build_input(b, "pooled_projections", 2, (const int64_t[]){o->batch, c->pooled_channels});
  const int timestep = graph_build_scalars(b, "timestep", 1, &o->batch);
  const int positions =
      graph_build_constant(b, "pos_embed.pos_embed", 3, (const int64_t[]){1, tokens, channels}, o->precision);

  graph_build_unit(b, "pos_embed");
  const int temb = joint_condition(b, 1, timestep, GRAPH_NONE, pooled, c->pooled_channels, channels);
  int text = layer_linear(b, "context_embedder", prompt, c->text_channels, c->caption_channels, true);
  int x = layer_conv2d(b, "pos_embed.proj", latent, c->in_channels, channels, patch, patch, 0);
  x = layer_unary(b, GRAPH_RESHAPE, "pos_embed.to_tokens", x);
  x = layer_add(b, "pos_embed", x, positions);
  for (int64_t i = 0; i < c->layers && !graph_build_failed(b); i++)
    joint_block_build(b, &sizes, graph_build_name(b, "transformer_blocks.%" PRId64, i), temb, i + 1 == c->layers,
                      is_dual(c, i), &x, &text);
  graph_build_unit(b, "proj_out");
  x = joint_output(b, x, temb, channels, patch * patch * c->out_channels);
  x = graph_build_op(
      b, GRAPH_UNPATCHIFY, "unpatchify",
      &(graph_attributes){
          .out_channels = c->out_channels, .patch = {1, patch, patch}, .grid = {0, height / patch, width / patch}},
      &x, 1);
  graph_build_output(b, x);
  graph_build_latent(b, latent);
}

dp_status graph_sd3_build(const dp_node *config, const graph_model_options *options, graph *g, dp_error *error) {
  sd3_config c = defaults;
  graph_model_options o = *options;
  DP_TRY(graph_config_read(config, "SD3Transformer2DModel", keys, sizeof keys / sizeof *keys, &c, error));
  DP_TRY(check(config, &c, error));
  if (o.height == 0) o.height = GRAPH_VAE_FACTOR * c.sample_size;
  if (o.width == 0) o.width = GRAPH_VAE_FACTOR * c.sample_size;
  if (o.text_tokens == 0) o.text_tokens = 333; /* 77 of the CLIPs and 256 of T5 */
  DP_TRY(check_sides(config, &c, &o, error));
  DP_TRY(graph_model_check_image(config, &o, error));
  graph_builder *b = graph_build_begin(g, &o, config);
  if (b == NULL) return dp_fail_memory(error);
  build_all(b, &c, &o);
  return graph_build_finish(b, error);
}
