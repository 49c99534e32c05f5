/* What the suites of graph/ share: building models and small graphs. */
#ifndef DP_TESTS_GRAPH_HELPERS_H
#define DP_TESTS_GRAPH_HELPERS_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "graph/build.h"
#include "tests/suite.h"

static inline graph_model_options options_of(int64_t batch, int64_t side, int64_t text_tokens) {
  graph_model_options options;
  graph_model_options_default(&options);
  options.batch = batch;
  options.height = options.width = side;
  options.text_tokens = text_tokens;
  return options;
}

/* `model`: a file of scenarios/models without its ending, or JSON. */
static inline dp_status try_model(const char *model, const graph_model_options *options, graph *g, dp_error *error) {
  if (model[0] != '{') {
    char path[4096];
    snprintf(path, sizeof path, "%s/models/%s.json", dp_data_folder(), model);
    return graph_model_read(path, options, g, error);
  }
  dp_document document = {0};
  DP_TRY(dp_document_parse_json(model, strlen(model), "model.json", &document, error));
  const dp_status status = graph_model_build(document.root, options, g, error);
  dp_document_free(&document);
  return status;
}

static inline graph build_model(const char *model, const graph_model_options *options) {
  graph g = {0};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = try_model(model, options, &g, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  return g;
}

/* Every model file and small ones of each class with unusual values. */
static const char *const small_unet =
    "{\"_class_name\":\"UNet2DConditionModel\",\"sample_size\":[32,32],\"in_channels\":9,\"out_channels\":8,"
    "\"down_block_types\":[\"DownBlock2D\",\"CrossAttnDownBlock2D\"],\"up_block_types\":[\"CrossAttnUpBlock2D\","
    "\"UpBlock2D\"],\"mid_block_type\":\"UNetMidBlock2D\",\"block_out_channels\":[64,96],\"layers_per_block\":[1,3],"
    "\"cross_attention_dim\":40,\"transformer_layers_per_block\":[2,3],\"attention_head_dim\":[4,6],"
    "\"norm_num_groups\":16,\"time_embedding_dim\":112,\"conv_in_kernel\":5,\"conv_out_kernel\":1}";
static const char *const small_unet_without_mid =
    "{\"_class_name\":\"UNet2DConditionModel\",\"sample_size\":[32,32],\"in_channels\":9,\"out_channels\":8,"
    "\"down_block_types\":[\"DownBlock2D\",\"CrossAttnDownBlock2D\"],\"up_block_types\":[\"CrossAttnUpBlock2D\","
    "\"UpBlock2D\"],\"mid_block_type\":null,\"block_out_channels\":[64,96],\"layers_per_block\":[1,3],"
    "\"cross_attention_dim\":40,\"transformer_layers_per_block\":[2,3],\"num_attention_heads\":[4,6],"
    "\"attention_head_dim\":8,\"norm_num_groups\":16,\"time_embedding_dim\":112,\"conv_in_kernel\":5,\"conv_out_"
    "kernel\":1}";
static const char *const sdxl_refiner =
    "{\"_class_name\":\"UNet2DConditionModel\",\"sample_size\":128,\"down_block_types\":[\"DownBlock2D\","
    "\"CrossAttnDownBlock2D\",\"CrossAttnDownBlock2D\",\"DownBlock2D\"],\"up_block_types\":[\"UpBlock2D\","
    "\"CrossAttnUpBlock2D\",\"CrossAttnUpBlock2D\",\"UpBlock2D\"],\"block_out_channels\":[384,768,1536,1536],"
    "\"cross_attention_dim\":1280,\"transformer_layers_per_block\":4,\"attention_head_dim\":[6,12,24,24],"
    "\"use_linear_projection\":true,\"addition_embed_type\":\"text_time\",\"addition_time_embed_dim\":256,"
    "\"projection_class_embeddings_input_dim\":2560}";
static const char *const small_sd3 =
    "{\"_class_name\":\"SD3Transformer2DModel\",\"sample_size\":32,\"patch_size\":4,\"in_channels\":8,\"num_layers\":3,"
    "\"attention_head_dim\":16,\"num_attention_heads\":5,\"joint_attention_dim\":24,\"caption_projection_dim\":80,"
    "\"pooled_projection_dim\":48,\"out_channels\":6,\"pos_embed_max_size\":16,\"dual_attention_layers\":[0,2],"
    "\"qk_norm\":\"rms_norm\"}";
static const char *const small_flux =
    "{\"_class_name\":\"FluxTransformer2DModel\",\"in_channels\":16,\"out_channels\":12,\"num_layers\":2,"
    "\"num_single_layers\":1,\"attention_head_dim\":16,\"num_attention_heads\":3,\"joint_attention_dim\":32,"
    "\"pooled_projection_dim\":24,\"guidance_embeds\":true,\"axes_dims_rope\":[4,6,6]}";

/* A graph of few ops, built by hand: starts one unit; ck_asserts that it can be finished. */
static inline graph_builder *begin_by_hand(graph *g, graph_dtype precision, graph_trainable trainable) {
  graph_model_options options;
  graph_model_options_default(&options);
  options.precision = precision;
  options.trainable = trainable;
  options.lora_rank = 4;
  graph_builder *b = graph_build_begin(g, &options, NULL);
  ck_assert_ptr_nonnull(b);
  graph_build_unit(b, "unit");
  return b;
}

static inline void finish_by_hand(graph_builder *b) {
  dp_error error = DP_ERROR_INIT;
  const dp_status status = graph_build_finish(b, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
}

static inline int find_tensor(const graph *g, const char *name) {
  for (size_t i = 0; i < g->tensors.count; i++)
    if (strcmp(g->tensors.items[i].name, name) == 0) return (int)i;
  return GRAPH_NONE;
}

static inline const graph_op *find_op(const graph *g, const char *name) {
  for (size_t i = 0; i < g->ops.count; i++)
    if (strcmp(g->ops.items[i].name, name) == 0) return &g->ops.items[i];
  ck_abort_msg("no op %s", name);
}

static inline int find_unit(const graph *g, const char *name) {
  for (size_t i = 0; i < g->units.count; i++)
    if (strcmp(g->units.items[i].name, name) == 0) return (int)i;
  ck_abort_msg("no unit %s", name);
}

#endif
