#include "graph/model.h"

#include <inttypes.h>
#include <string.h>

#include "graph/build.h"
#include "graph/models/models.h"

enum { MAX_SIDE = 65536, MAX_BATCH = 65536, MAX_FRAMES = 65536, MAX_TEXT_TOKENS = 1000000, MAX_RANK = 65536 };

const graph_family graph_families[] = {
    {"UNet2DConditionModel", graph_unet2d_build},
    {"SD3Transformer2DModel", graph_sd3_build},
    {"FluxTransformer2DModel", graph_flux_build},
};
const int graph_family_count = sizeof graph_families / sizeof *graph_families;

void graph_model_options_default(graph_model_options *options) {
  *options = (graph_model_options){
      .batch = 1, .frames = 1, .precision = GRAPH_BF16, .trainable = GRAPH_TRAIN_FULL, .lora_rank = 16};
}

static dp_status check_size(const dp_node *config, const char *name, int64_t value, int64_t min, int64_t max,
                            dp_error *error) {
  if (value >= min && value <= max) return DP_OK;
  return dp_fail_at(error, config, "%s is %" PRId64 ", must be from %" PRId64 " to %" PRId64, name, value, min, max);
}

static dp_status check_options(const dp_node *config, const graph_model_options *o, dp_error *error) {
  DP_TRY(check_size(config, "batch", o->batch, 1, MAX_BATCH, error));
  DP_TRY(check_size(config, "height", o->height, 0, MAX_SIDE, error));
  DP_TRY(check_size(config, "width", o->width, 0, MAX_SIDE, error));
  DP_TRY(check_size(config, "frames", o->frames, 1, MAX_FRAMES, error));
  DP_TRY(check_size(config, "text_tokens", o->text_tokens, 0, MAX_TEXT_TOKENS, error));
  if (o->trainable == GRAPH_TRAIN_LORA) DP_TRY(check_size(config, "lora_rank", o->lora_rank, 1, MAX_RANK, error));
  return DP_OK;
}

static dp_status fail_class(const dp_node *config, const dp_node *class_node, dp_error *error) {
  char known[512] = "", shown[80];
  for (int i = 0; i < graph_family_count; i++) {
    if (i > 0) strncat(known, i + 1 < graph_family_count ? ", " : " or ", sizeof known - strlen(known) - 1);
    strncat(known, graph_families[i].class_name, sizeof known - strlen(known) - 1);
  }
  if (class_node == NULL) return dp_fail_at(error, config, "_class_name is missing, must be %s", known);
  return dp_fail_at(error, class_node, "_class_name is %s, must be %s", dp_node_show(class_node, shown), known);
}

static dp_status check_targets(const dp_node *config, const graph_model_options *options, const graph *g,
                               dp_error *error) {
  for (size_t t = 0; t < options->lora_target_count; t++) {
    size_t o = 0;
    while (o < g->ops.count &&
           (g->ops.items[o].kind != GRAPH_LINEAR || !graph_is_target(options->lora_targets[t], g->ops.items[o].name)))
      o++;
    if (o == g->ops.count)
      return dp_fail_at(error, config, "lora_targets is \"%.80s\", must be the end of a linear layer's name, as to_q",
                        options->lora_targets[t]);
  }
  return DP_OK;
}

dp_status graph_model_build(const dp_node *config, const graph_model_options *options, graph *g, dp_error *error) {
  char shown[80];
  if (config->kind != DP_NODE_TABLE)
    return dp_fail_at(error, config, "the file is %s, must be an object with diffusers' keys",
                      dp_node_show(config, shown));
  const dp_node *class_node = dp_node_get(config, "_class_name");
  const graph_family *family = NULL;
  for (int i = 0; i < graph_family_count && class_node != NULL && class_node->kind == DP_NODE_STRING; i++)
    if (strcmp(graph_families[i].class_name, class_node->string) == 0) family = &graph_families[i];
  if (family == NULL) return fail_class(config, class_node, error);
  DP_TRY(check_options(config, options, error));
  DP_TRY(family->build(config, options, g, error));
  if (options->trainable == GRAPH_TRAIN_LORA) {
    const dp_status status = check_targets(config, options, g, error);
    if (status != DP_OK) {
      graph_free(g);
      return status;
    }
  }
  g->class_name = family->class_name;
  return DP_OK;
}

dp_status graph_model_read(const char *config_path, const graph_model_options *options, graph *g, dp_error *error) {
  dp_document document = {0};
  DP_TRY(dp_document_read(config_path, &document, error));
  const dp_status status = graph_model_build(document.root, options, g, error);
  dp_document_free(&document);
  return status;
}

dp_status graph_model_check_side(const dp_node *config, const char *name, int64_t value, int64_t multiple,
                                 const char *why, dp_error *error) {
  if (value > 0 && value % multiple == 0) return check_size(config, name, value, 1, MAX_SIDE, error);
  return dp_fail_at(error, config, "%s is %" PRId64 ", must be a multiple of %" PRId64 " (%s)", name, value, multiple,
                    why);
}

dp_status graph_model_check_image(const dp_node *config, const graph_model_options *options, dp_error *error) {
  if (options->frames == 1) return DP_OK;
  return dp_fail_at(error, config, "frames is %" PRId64 ", must be 1: this class makes images", options->frames);
}
