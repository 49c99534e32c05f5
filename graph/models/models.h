/* Inside graph/: the model families' build functions (graph/model.c lists them) and the checks they share. */
#ifndef DP_GRAPH_MODELS_MODELS_H
#define DP_GRAPH_MODELS_MODELS_H

#include "graph/model.h"

dp_status graph_unet2d_build(const dp_node *config, const graph_model_options *options, graph *graph, dp_error *error);
dp_status graph_sd3_build(const dp_node *config, const graph_model_options *options, graph *graph, dp_error *error);
dp_status graph_flux_build(const dp_node *config, const graph_model_options *options, graph *graph, dp_error *error);

/* Bounds of what a config may say, so that no product of a few of them is absurd before 64 bits end. */
enum {
  GRAPH_MAX_CHANNELS = 1000000,
  GRAPH_MAX_LAYERS = 10000,
  GRAPH_MAX_KERNEL = 31,
  GRAPH_VAE_FACTOR = 8 /* pixels to a latent, each way: the VAEs of SD 1.x to Flux */
};

/* `why` says what the multiple comes from. */
dp_status graph_model_check_side(const dp_node *config, const char *name, int64_t value, int64_t multiple,
                                 const char *why, dp_error *error);
dp_status graph_model_check_image(const dp_node *config, const graph_model_options *options, dp_error *error);

#endif
