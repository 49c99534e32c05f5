/* diffusers' UNet2DConditionModel: SD 1.x, 2.x and SDXL.
 *
 * Units: time and text embedding with conv_in; each resnet; each transformer block (the first of an attention module
 * with its norm and proj_in, the last with proj_out and the residual); each down- and up-sampler; conv_norm_out with
 * conv_out. The skips from the down path, the time embedding and the residuals around attention modules are ordinary
 * tensors that later units read.
 */
#include <inttypes.h>
#include <string.h>

#include "graph/config.h"
#include "graph/layers.h"
#include "graph/models/models.h"

#define NAME(...) graph_build_name(b, __VA_ARGS__)

enum { MAX_BLOCKS = 12, TIME_IDS = 6 /* SDXL: original size, crop, target size */ };

enum mid_type { MID_CROSS_ATTENTION, MID_PLAIN, MID_NONE };
enum addition_type { ADDITION_NONE = -1, ADDITION_TEXT_TIME };

typedef struct unet_config {
  int64_t in_channels, out_channels, norm_num_groups, conv_in_kernel, conv_out_kernel, time_embedding_dim;
  int64_t addition_time_embed_dim, projection_dim;
  double norm_eps, freq_shift;
  bool use_linear_projection, flip_sin_to_cos;
  int mid_block_type, addition_embed_type;
  graph_integers sample_size, block_out_channels, layers_per_block, cross_attention_dim, transformer_layers, heads;
  graph_integers num_attention_heads;
  graph_strings down_block_types, up_block_types;
} unet_config;

static const char *const down_types[] = {"DownBlock2D", "CrossAttnDownBlock2D", NULL};
static const char *const up_types[] = {"UpBlock2D", "CrossAttnUpBlock2D", NULL};
static const char *const mid_types[] = {"UNetMidBlock2DCrossAttn", "UNetMidBlock2D", NULL};
static const char *const addition_types[] = {"text_time", NULL};
static const char *const only_null[] = {"null", NULL};
static const char *const only_false[] = {"false", NULL};
static const char *const only_false_or_null[] = {"false", "null", NULL};
static const char *const only_one[] = {"1", NULL};
static const char *const only_zero[] = {"0", NULL};
static const char *const only_default[] = {"default", NULL};
static const char *const only_positional[] = {"positional", NULL};
static const char *const only_silu[] = {"silu", "swish", NULL};

#define AT(field) offsetof(unet_config, field)

/* Every key of the class, in diffusers' order. */
static const graph_config_key keys[] = {
    {"sample_size", GRAPH_CONFIG_INTEGERS, AT(sample_size), 1, 65536, NULL},
    {"in_channels", GRAPH_CONFIG_INTEGER, AT(in_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"out_channels", GRAPH_CONFIG_INTEGER, AT(out_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"center_input_sample", GRAPH_CONFIG_ONLY, 0, 0, 0, only_false},
    {"flip_sin_to_cos", GRAPH_CONFIG_BOOLEAN, AT(flip_sin_to_cos), 0, 0, NULL},
    {"freq_shift", GRAPH_CONFIG_REAL, AT(freq_shift), 0, 0, NULL},
    {"down_block_types", GRAPH_CONFIG_STRINGS, AT(down_block_types), 0, 0, down_types},
    {"mid_block_type", GRAPH_CONFIG_CHOICE, AT(mid_block_type), 0, 0, mid_types},
    {"up_block_types", GRAPH_CONFIG_STRINGS, AT(up_block_types), 0, 0, up_types},
    {"only_cross_attention", GRAPH_CONFIG_ONLY, 0, 0, 0, only_false},
    {"block_out_channels", GRAPH_CONFIG_INTEGERS, AT(block_out_channels), 1, GRAPH_MAX_CHANNELS, NULL},
    {"layers_per_block", GRAPH_CONFIG_INTEGERS, AT(layers_per_block), 1, GRAPH_MAX_LAYERS, NULL},
    {"downsample_padding", GRAPH_CONFIG_ONLY, 0, 0, 0, only_one},
    {"mid_block_scale_factor", GRAPH_CONFIG_ANY, 0, 0, 0, NULL},
    {"dropout", GRAPH_CONFIG_ONLY, 0, 0, 0, only_zero},
    {"act_fn", GRAPH_CONFIG_ONLY, 0, 0, 0, only_silu},
    {"norm_num_groups", GRAPH_CONFIG_INTEGER, AT(norm_num_groups), 1, GRAPH_MAX_CHANNELS, NULL},
    {"norm_eps", GRAPH_CONFIG_REAL, AT(norm_eps), 0, 0, NULL},
    {"cross_attention_dim", GRAPH_CONFIG_INTEGERS, AT(cross_attention_dim), 1, GRAPH_MAX_CHANNELS, NULL},
    {"transformer_layers_per_block", GRAPH_CONFIG_INTEGERS, AT(transformer_layers), 0, GRAPH_MAX_LAYERS, NULL},
    {"reverse_transformer_layers_per_block", GRAPH_CONFIG_ONLY, 0, 0, 0, only_null},
    {"encoder_hid_dim", GRAPH_CONFIG_ONLY, 0, 0, 0, only_null},
    {"encoder_hid_dim_type", GRAPH_CONFIG_ONLY, 0, 0, 0, only_null},
    {"attention_head_dim", GRAPH_CONFIG_INTEGERS, AT(heads), 1, GRAPH_MAX_CHANNELS, NULL},
    {"num_attention_heads", GRAPH_CONFIG_INTEGERS, AT(num_attention_heads), 1, GRAPH_MAX_CHANNELS, NULL},
    {"dual_cross_attention", GRAPH_CONFIG_ONLY, 0, 0, 0, only_false},
    {"use_linear_projection", GRAPH_CONFIG_BOOLEAN, AT(use_linear_projection), 0, 0, NULL},
    {"class_embed_type", GRAPH_CONFIG_ONLY, 0, 0, 0, only_null},
    {"addition_embed_type", GRAPH_CONFIG_CHOICE, AT(addition_embed_type), 0, 0, addition_types},
    {"addition_time_embed_dim", GRAPH_CONFIG_INTEGER, AT(addition_time_embed_dim), 1, GRAPH_MAX_CHANNELS, NULL},
    {"num_class_embeds", GRAPH_CONFIG_ONLY, 0, 0, 0, only_null},
    {"upcast_attention", GRAPH_CONFIG_ANY, 0, 0, 0, NULL},
    {"resnet_time_scale_shift", GRAPH_CONFIG_ONLY, 0, 0, 0, only_default},
    {"resnet_skip_time_act", GRAPH_CONFIG_ONLY, 0, 0, 0, only_false},
    {"resnet_out_scale_factor", GRAPH_CONFIG_ANY, 0, 0, 0, NULL},
    {"time_embedding_type", GRAPH_CONFIG_ONLY, 0, 0, 0, only_positional},
    {"time_embedding_dim", GRAPH_CONFIG_INTEGER, AT(time_embedding_dim), 1, GRAPH_MAX_CHANNELS, NULL},
    {"time_embedding_act_fn", GRAPH_CONFIG_ONLY, 0, 0, 0, only_null},
    {"timestep_post_act", GRAPH_CONFIG_ONLY, 0, 0, 0, only_null},
    {"time_cond_proj_dim", GRAPH_CONFIG_ONLY, 0, 0, 0, only_null},
    {"conv_in_kernel", GRAPH_CONFIG_INTEGER, AT(conv_in_kernel), 1, GRAPH_MAX_KERNEL, NULL},
    {"conv_out_kernel", GRAPH_CONFIG_INTEGER, AT(conv_out_kernel), 1, GRAPH_MAX_KERNEL, NULL},
    {"projection_class_embeddings_input_dim", GRAPH_CONFIG_INTEGER, AT(projection_dim), 1, GRAPH_MAX_CHANNELS, NULL},
    {"attention_type", GRAPH_CONFIG_ONLY, 0, 0, 0, only_default},
    {"class_embeddings_concat", GRAPH_CONFIG_ONLY, 0, 0, 0, only_false},
    {"mid_block_only_cross_attention", GRAPH_CONFIG_ONLY, 0, 0, 0, only_false_or_null},
    {"cross_attention_norm", GRAPH_CONFIG_ONLY, 0, 0, 0, only_null},
    {"addition_embed_type_num_heads", GRAPH_CONFIG_ANY, 0, 0, 0, NULL},
};

/* The defaults of the class. */
static void set_defaults(unet_config *c) {
  *c = (unet_config){
      .in_channels = 4,
      .out_channels = 4,
      .norm_num_groups = 32,
      .conv_in_kernel = 3,
      .conv_out_kernel = 3,
      .norm_eps = 1e-5,
      .flip_sin_to_cos = true,
      .mid_block_type = MID_CROSS_ATTENTION,
      .addition_embed_type = ADDITION_NONE,
      .block_out_channels = {.count = 4, .values = {320, 640, 1280, 1280}},
      .layers_per_block = {.count = 1, .single = true, .values = {2}},
      .cross_attention_dim = {.count = 1, .single = true, .values = {1280}},
      .transformer_layers = {.count = 1, .single = true, .values = {1}},
      .heads = {.count = 1, .single = true, .values = {8}},
      .down_block_types = {.count = 4,
                           .values = {"CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
                                      "DownBlock2D"}},
      .up_block_types = {.count = 4,
                         .values = {"UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"}},
  };
}

static dp_status check_blocks(const dp_node *config, const unet_config *c, dp_error *error) {
  const int blocks = c->down_block_types.count;
  const dp_node *const down = c->down_block_types.node != NULL ? c->down_block_types.node : config;
  const dp_node *const up = c->up_block_types.node != NULL ? c->up_block_types.node : config;
  if (blocks < 1 || blocks > MAX_BLOCKS)
    return dp_fail_at(error, down, "down_block_types has %d items, must have 1 to %d", blocks, MAX_BLOCKS);
  if (c->up_block_types.count != blocks)
    return dp_fail_at(error, up, "up_block_types has %d items, must have %d as down_block_types",
                      c->up_block_types.count, blocks);
  if (c->block_out_channels.single)
    return dp_fail_at(error, c->block_out_channels.node, "block_out_channels must be a list of %d integers", blocks);
  DP_TRY(graph_integers_check(&c->block_out_channels, config, "block_out_channels", blocks, error));
  DP_TRY(graph_integers_check(&c->layers_per_block, config, "layers_per_block", blocks, error));
  DP_TRY(graph_integers_check(&c->cross_attention_dim, config, "cross_attention_dim", blocks, error));
  DP_TRY(graph_integers_check(&c->transformer_layers, config, "transformer_layers_per_block", blocks, error));
  return graph_integers_check(&c->heads, config, "attention_head_dim", blocks, error);
}

static dp_status check_channels(const dp_node *config, const unet_config *c, dp_error *error) {
  for (int i = 0; i < c->block_out_channels.count; i++) {
    const int64_t channels = c->block_out_channels.values[i], heads = graph_integers_at(&c->heads, i);
    const bool cross = strcmp(c->down_block_types.values[i], "CrossAttnDownBlock2D") == 0 ||
                       strcmp(c->up_block_types.values[c->up_block_types.count - 1 - i], "CrossAttnUpBlock2D") == 0 ||
                       (i + 1 == c->block_out_channels.count && c->mid_block_type == MID_CROSS_ATTENTION);
    const dp_node *node = c->block_out_channels.node != NULL ? c->block_out_channels.node->items[i] : config;
    if (channels % c->norm_num_groups != 0)
      return dp_fail_at(error, node,
                        "block_out_channels has %" PRId64 ", must be a multiple of norm_num_groups, %" PRId64, channels,
                        c->norm_num_groups);
    if (cross && channels % heads != 0)
      return dp_fail_at(error, c->heads.node != NULL ? c->heads.node : config,
                        "attention_head_dim says %" PRId64 " heads, must divide the block's %" PRId64 " channels",
                        heads, channels);
  }
  if (c->conv_in_kernel % 2 == 0 || c->conv_out_kernel % 2 == 0)
    return dp_fail_at(error, config, "conv_in_kernel and conv_out_kernel must be odd");
  if (c->addition_embed_type != ADDITION_TEXT_TIME) return DP_OK;
  const dp_node *node = dp_node_get(config, "addition_embed_type");
  if (c->addition_time_embed_dim == 0 || c->projection_dim == 0)
    return dp_fail_at(error, node,
                      "addition_embed_type is text_time, which needs addition_time_embed_dim and "
                      "projection_class_embeddings_input_dim");
  if (c->projection_dim <= TIME_IDS * c->addition_time_embed_dim)
    return dp_fail_at(error, dp_node_get(config, "projection_class_embeddings_input_dim"),
                      "projection_class_embeddings_input_dim is %" PRId64
                      ", must exceed %d times addition_time_embed_dim",
                      c->projection_dim, TIME_IDS);
  return DP_OK;
}

/* Height and width of the sample; 0: unknown. */
static void take_defaults(const unet_config *c, graph_model_options *o) {
  const graph_integers *size = &c->sample_size;
  const bool known = size->count > 0 && (size->single || size->count == 2);
  if (o->height == 0 && known) o->height = GRAPH_VAE_FACTOR * size->values[0];
  if (o->width == 0 && known) o->width = GRAPH_VAE_FACTOR * size->values[size->single ? 0 : 1];
  if (o->text_tokens == 0) o->text_tokens = 77; /* CLIP */
}

static dp_status check_sides(const dp_node *config, const unet_config *c, const graph_model_options *o,
                             dp_error *error) {
  if (o->height == 0 || o->width == 0)
    return dp_fail_at(error, config,
                      "height and width are not given and the file has no sample_size to take them from");
  const int64_t multiple = (int64_t)GRAPH_VAE_FACTOR << (c->down_block_types.count - 1);
  const char *why = "8 pixels a latent, and 2 for each down-sampler";
  DP_TRY(graph_model_check_side(config, "height", o->height, multiple, why, error));
  return graph_model_check_side(config, "width", o->width, multiple, why, error);
}

/* State of the build: what all blocks share, and the skips that the up path will take. */
typedef struct unet {
  const unet_config *config;
  graph_builder *b;
  int x, temb, text;
  int64_t channels, temb_channels; /* of x and of temb */
  int64_t height, width;           /* of x */
  int *skips;
  int64_t *skip_channels;
  int skip_count;
} unet;

static void push_skip(unet *u) { /* there is room: see count_skips */
  u->skips[u->skip_count] = u->x;
  u->skip_channels[u->skip_count++] = u->channels;
}

static void build_resnet(unet *u, const char *name, int64_t out) {
  graph_builder *b = u->b;
  const unet_config *c = u->config;
  const int64_t in = u->channels;
  const int x = u->x;
  int t = layer_unary(b, GRAPH_SILU, NAME("%s.time_act", name), u->temb);
  t = layer_linear(b, NAME("%s.time_emb_proj", name), t, u->temb_channels, out, true);
  int h = layer_group_norm(b, NAME("%s.norm1", name), x, c->norm_num_groups, c->norm_eps);
  h = layer_unary(b, GRAPH_SILU, NAME("%s.act1", name), h);
  h = layer_conv2d(b, NAME("%s.conv1", name), h, in, out, 3, 1, 1);
  h = layer_add(b, NAME("%s.add_time", name), h, t);
  h = layer_group_norm(b, NAME("%s.norm2", name), h, c->norm_num_groups, c->norm_eps);
  h = layer_unary(b, GRAPH_SILU, NAME("%s.act2", name), h);
  h = layer_conv2d(b, NAME("%s.conv2", name), h, out, out, 3, 1, 1);
  const int shortcut = in != out ? layer_conv2d(b, NAME("%s.conv_shortcut", name), x, in, out, 1, 1, 0) : x;
  u->x = layer_add(b, name, h, shortcut);
  u->channels = out;
}

/* One attention of a BasicTransformerBlock, with its residual. `text` GRAPH_NONE: self-attention. */
static int build_attention(unet *u, const char *name, int x, int normed, int text, int64_t text_channels,
                           int64_t heads) {
  graph_builder *b = u->b;
  const int64_t channels = u->channels;
  const bool cross = text != GRAPH_NONE;
  const int source = cross ? text : normed;
  const int64_t source_channels = cross ? text_channels : channels;
  const int q = layer_linear(b, NAME("%s.to_q", name), normed, channels, channels, false);
  const int k = layer_linear(b, NAME("%s.to_k", name), source, source_channels, channels, false);
  const int v = layer_linear(b, NAME("%s.to_v", name), source, source_channels, channels, false);
  int h =
      layer_attention(b, name, cross ? GRAPH_ATTENTION_CROSS : GRAPH_ATTENTION_SELF, q, k, v, heads, channels / heads);
  h = layer_linear(b, NAME("%s.to_out.0", name), h, channels, channels, true);
  return layer_add(b, NAME("%s.residual", name), h, x);
}

static int build_transformer_block(unet *u, const char *name, int x, int64_t text_channels, int64_t heads) {
  graph_builder *b = u->b;
  int h = layer_layer_norm(b, NAME("%s.norm1", name), x, true, 1e-5);
  x = build_attention(u, NAME("%s.attn1", name), x, h, GRAPH_NONE, 0, heads);
  h = layer_layer_norm(b, NAME("%s.norm2", name), x, true, 1e-5);
  x = build_attention(u, NAME("%s.attn2", name), x, h, u->text, text_channels, heads);
  h = layer_layer_norm(b, NAME("%s.norm3", name), x, true, 1e-5);
  h = layer_feed_forward(b, NAME("%s.ff", name), h, u->channels, GRAPH_GEGLU);
  return layer_add(b, name, h, x);
}

/* diffusers' Transformer2DModel. proj_in and proj_out are 1x1 convolutions or, with use_linear_projection, linear. */
static void build_transformer(unet *u, const char *name, int block) {
  graph_builder *b = u->b;
  const bool linear = u->config->use_linear_projection;
  const int64_t channels = u->channels, heads = graph_integers_at(&u->config->heads, block);
  const int64_t text_channels = graph_integers_at(&u->config->cross_attention_dim, block);
  const int64_t layers = graph_integers_at(&u->config->transformer_layers, block);
  const graph_attributes grid = {.grid = {0, u->height, u->width}};
  const int residual = u->x;
  graph_build_unit(b, layers > 0 ? NAME("%s.transformer_blocks.0", name) : name);
  int x = layer_group_norm(b, NAME("%s.norm", name), residual, u->config->norm_num_groups, 1e-6);
  if (!linear) x = layer_conv2d(b, NAME("%s.proj_in", name), x, channels, channels, 1, 1, 0);
  x = layer_unary(b, GRAPH_RESHAPE, NAME("%s.to_tokens", name), x);
  if (linear) x = layer_linear(b, NAME("%s.proj_in", name), x, channels, channels, true);
  for (int64_t i = 0; i < layers && !graph_build_failed(b); i++) {
    const char *block_name = NAME("%s.transformer_blocks.%" PRId64, name, i);
    if (i > 0) graph_build_unit(b, block_name);
    x = build_transformer_block(u, block_name, x, text_channels, heads);
  }
  if (linear) x = layer_linear(b, NAME("%s.proj_out", name), x, channels, channels, true);
  x = graph_build_op(b, GRAPH_RESHAPE, NAME("%s.to_image", name), &grid, &x, 1);
  if (!linear) x = layer_conv2d(b, NAME("%s.proj_out", name), x, channels, channels, 1, 1, 0);
  u->x = layer_add(b, name, x, residual);
}

static void build_embeddings(unet *u, int sample, int timestep, int text_embeds, int time_ids) {
  graph_builder *b = u->b;
  const unet_config *c = u->config;
  const int64_t first = c->block_out_channels.values[0];
  u->temb_channels = c->time_embedding_dim != 0 ? c->time_embedding_dim : 4 * first;
  graph_build_unit(b, "conv_in");
  const graph_attributes form = {
      .sines_first = !c->flip_sin_to_cos, .frequency_shift = c->freq_shift, .time_factor = 1};
  int t = layer_sinusoid(b, "time_proj", timestep, first, &form);
  t = layer_embedding_mlp(b, "time_embedding", t, first, u->temb_channels);
  if (c->addition_embed_type == ADDITION_TEXT_TIME) {
    int a = layer_sinusoid(b, "add_time_proj", time_ids, c->addition_time_embed_dim, &form);
    a = layer_concat(b, "add_embeds", text_embeds, a, 1);
    a = layer_embedding_mlp(b, "add_embedding", a, c->projection_dim, u->temb_channels);
    t = layer_add(b, "time_and_text_embedding", a, t);
  }
  u->temb = t;
  u->x = layer_conv2d(b, "conv_in", sample, c->in_channels, first, c->conv_in_kernel, 1, (c->conv_in_kernel - 1) / 2);
  u->channels = first;
}

static void build_down_block(unet *u, int i) {
  graph_builder *b = u->b;
  const unet_config *c = u->config;
  const bool cross = strcmp(c->down_block_types.values[i], "CrossAttnDownBlock2D") == 0;
  for (int64_t j = 0; j < graph_integers_at(&c->layers_per_block, i) && !graph_build_failed(b); j++) {
    const char *resnet = NAME("down_blocks.%d.resnets.%" PRId64, i, j);
    graph_build_unit(b, resnet);
    build_resnet(u, resnet, c->block_out_channels.values[i]);
    if (cross) build_transformer(u, NAME("down_blocks.%d.attentions.%" PRId64, i, j), i);
    push_skip(u);
  }
  if (i + 1 == c->down_block_types.count) return;
  const char *name = NAME("down_blocks.%d.downsamplers.0", i);
  graph_build_unit(b, name);
  u->x = layer_conv2d(b, NAME("%s.conv", name), u->x, u->channels, u->channels, 3, 2, 1);
  u->height /= 2;
  u->width /= 2;
  push_skip(u);
}

static void build_mid_block(unet *u) {
  graph_builder *b = u->b;
  const int type = u->config->mid_block_type;
  if (type == MID_NONE) return;
  graph_build_unit(b, "mid_block.resnets.0");
  build_resnet(u, "mid_block.resnets.0", u->channels);
  if (type == MID_PLAIN) return;
  build_transformer(u, "mid_block.attentions.0", u->config->down_block_types.count - 1);
  graph_build_unit(b, "mid_block.resnets.1");
  build_resnet(u, "mid_block.resnets.1", u->channels);
}

static void build_up_block(unet *u, int i) {
  graph_builder *b = u->b;
  const unet_config *c = u->config;
  const int mirror = c->up_block_types.count - 1 - i; /* the block of the down path whose settings it shares */
  const bool cross = strcmp(c->up_block_types.values[i], "CrossAttnUpBlock2D") == 0;
  for (int64_t j = 0; j <= graph_integers_at(&c->layers_per_block, mirror) && !graph_build_failed(b); j++) {
    const char *resnet = NAME("up_blocks.%d.resnets.%" PRId64, i, j);
    graph_build_unit(b, resnet);
    u->skip_count--;
    u->x = layer_concat(b, NAME("%s.concat", resnet), u->x, u->skips[u->skip_count], 1);
    u->channels += u->skip_channels[u->skip_count];
    build_resnet(u, resnet, c->block_out_channels.values[mirror]);
    if (cross) build_transformer(u, NAME("up_blocks.%d.attentions.%" PRId64, i, j), mirror);
  }
  if (mirror == 0) return;
  const char *name = NAME("up_blocks.%d.upsamplers.0", i);
  graph_build_unit(b, name);
  u->x = graph_build_op(b, GRAPH_UPSAMPLE, name, &(graph_attributes){.scale = 2}, &u->x, 1);
  u->x = layer_conv2d(b, NAME("%s.conv", name), u->x, u->channels, u->channels, 3, 1, 1);
  u->height *= 2;
  u->width *= 2;
}

static void build_all(unet *u, const graph_model_options *o) {
  graph_builder *b = u->b;
  const unet_config *c = u->config;
  const int blocks = c->down_block_types.count;
  const int64_t pooled = c->projection_dim - TIME_IDS * c->addition_time_embed_dim;
  const bool text_time = c->addition_embed_type == ADDITION_TEXT_TIME;
  const int sample =
      graph_build_input(b, "sample", 4, (const int64_t[]){o->batch, c->in_channels, u->height, u->width});
  const int timestep = graph_build_scalars(b, "timestep", 1, &o->batch);
  u->text =
      graph_build_input(b, "encoder_hidden_states", 3,
                        (const int64_t[]){o->batch, o->text_tokens, graph_integers_at(&c->cross_attention_dim, 0)});
  const int text_embeds =
      text_time ? graph_build_input(b, "text_embeds", 2, (const int64_t[]){o->batch, pooled}) : GRAPH_NONE;
  const int time_ids =
      text_time ? graph_build_scalars(b, "time_ids", 2, (const int64_t[]){o->batch, TIME_IDS}) : GRAPH_NONE;
  build_embeddings(u, sample, timestep, text_embeds, time_ids);
  push_skip(u);
  for (int i = 0; i < blocks && !graph_build_failed(b); i++) build_down_block(u, i);
  build_mid_block(u);
  for (int i = 0; i < blocks && !graph_build_failed(b); i++) build_up_block(u, i);
  graph_build_unit(b, "conv_out");
  int x = layer_group_norm(b, "conv_norm_out", u->x, c->norm_num_groups, c->norm_eps);
  x = layer_unary(b, GRAPH_SILU, "conv_act", x);
  x = layer_conv2d(b, "conv_out", x, u->channels, c->out_channels, c->conv_out_kernel, 1, (c->conv_out_kernel - 1) / 2);
  graph_build_output(b, x);
  graph_build_latent(b, sample);
}

/* The down path pushes conv_in's output, one skip a resnet and one a down-sampler; the up path takes one a resnet and
 * has one resnet more in every block: the numbers are equal. */
static size_t count_skips(const unet_config *c) {
  size_t count = (size_t)c->down_block_types.count;
  for (int i = 0; i < c->down_block_types.count; i++) count += (size_t)graph_integers_at(&c->layers_per_block, i);
  return count;
}

static dp_status read_config(const dp_node *config, unet_config *c, dp_error *error) {
  set_defaults(c);
  DP_TRY(graph_config_read(config, "UNet2DConditionModel", keys, sizeof keys / sizeof *keys, c, error));
  const dp_node *mid = dp_node_get(config, "mid_block_type"), *groups = dp_node_get(config, "norm_num_groups");
  if (mid != NULL && mid->kind == DP_NODE_NULL) c->mid_block_type = MID_NONE;
  if (groups != NULL && groups->kind == DP_NODE_NULL)
    return dp_fail_at(error, groups, "norm_num_groups is null, must be an integer: models without norms are not built");
  /* the number of heads; most files say it under the name of the head dimension */
  if (c->num_attention_heads.count > 0) c->heads = c->num_attention_heads;
  DP_TRY(check_blocks(config, c, error));
  return check_channels(config, c, error);
}

dp_status graph_unet2d_build(const dp_node *config, const graph_model_options *options, graph *g, dp_error *error) {
  unet_config c;
  graph_model_options o = *options;
  DP_TRY(read_config(config, &c, error));
  take_defaults(&c, &o);
  DP_TRY(check_sides(config, &c, &o, error));
  DP_TRY(graph_model_check_image(config, &o, error));
  const size_t skips = count_skips(&c);
  unet u = {.config = &c,
            .b = graph_build_begin(g, &o, config),
            .height = o.height / GRAPH_VAE_FACTOR,
            .width = o.width / GRAPH_VAE_FACTOR};
  if (u.b == NULL) return dp_fail_memory(error);
  u.skips = DP_ARENA_NEW(&g->arena, int, skips);
  u.skip_channels = DP_ARENA_NEW(&g->arena, int64_t, skips);
  if (u.skips != NULL && u.skip_channels != NULL)
    build_all(&u, &o);
  else
    graph_build_fail_memory(u.b);
  return graph_build_finish(u.b, error);
}
