#include "graph/op.h"

#include "graph/op_table.h"

#define ROW(kind) [GRAPH_##kind]

/* One row per op kind. Everything that the rest of the program knows about an op kind stands here. */
const graph_op_row graph_op_rows[GRAPH_OP_KIND_COUNT] = {
    ROW(CONV2D) = {.name = "conv2d", .op_class = GRAPH_CLASS_CONVOLUTION, .min_inputs = 1, .max_inputs = 1,
                   .shape = graph_shape_conv, .cost = graph_cost_conv},
    ROW(CONV3D) = {.name = "conv3d", .op_class = GRAPH_CLASS_CONVOLUTION, .min_inputs = 1, .max_inputs = 1,
                   .shape = graph_shape_conv, .cost = graph_cost_conv},
    ROW(LINEAR) = {.name = "linear", .op_class = GRAPH_CLASS_GEMM, .min_inputs = 1, .max_inputs = 1,
                   .shape = graph_shape_linear, .cost = graph_cost_linear},
    ROW(ATTENTION) = {.name = "attention", .op_class = GRAPH_CLASS_ATTENTION, .min_inputs = 3, .max_inputs = 3,
                      .shape = graph_shape_attention, .cost = graph_cost_attention},
    ROW(GROUP_NORM) = {.name = "group_norm", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                       .norm = true, .shape = graph_shape_group_norm, .cost = graph_cost_norm},
    ROW(LAYER_NORM) = {.name = "layer_norm", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                       .norm = true, .shape = graph_shape_layer_norm, .cost = graph_cost_norm},
    ROW(RMS_NORM) = {.name = "rms_norm", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                     .norm = true, .shape = graph_shape_rms_norm, .cost = graph_cost_norm},
    ROW(SILU) = {.name = "silu", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                 .elementwise = true, .shape = graph_shape_same, .cost = graph_cost_activation},
    ROW(GELU) = {.name = "gelu", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                 .elementwise = true, .shape = graph_shape_same, .cost = graph_cost_activation},
    ROW(GEGLU) = {.name = "geglu", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                  .elementwise = true, .shape = graph_shape_gated, .cost = graph_cost_gated},
    ROW(SWIGLU) = {.name = "swiglu", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                   .elementwise = true, .shape = graph_shape_gated, .cost = graph_cost_gated},
    ROW(ADD) = {.name = "add", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 2, .max_inputs = 2,
                .elementwise = true, .shares_gradient = true, .shape = graph_shape_add, .cost = graph_cost_add},
    ROW(CONCAT) = {.name = "concat", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 2, .max_inputs = GRAPH_MAX_INPUTS,
                   .shares_gradient = true, .shape = graph_shape_concat, .cost = graph_cost_concat},
    ROW(SPLIT) = {.name = "split", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                  .view = true, .shape = graph_shape_split, .cost = graph_cost_view},
    ROW(UPSAMPLE) = {.name = "upsample", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                     .shape = graph_shape_upsample, .cost = graph_cost_resample},
    ROW(DOWNSAMPLE) = {.name = "downsample", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                       .shape = graph_shape_downsample, .cost = graph_cost_resample},
    ROW(TIME_EMBEDDING) = {.name = "time_embedding", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                           .shape = graph_shape_time_embedding, .cost = graph_cost_time_embedding},
    ROW(TEXT_EMBEDDING) = {.name = "text_embedding", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                           .shape = graph_shape_text_embedding, .cost = graph_cost_text_embedding},
    ROW(MODULATE) = {.name = "modulate", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 2, .max_inputs = 3,
                     .elementwise = true, .shape = graph_shape_modulate, .cost = graph_cost_modulate},
    ROW(ROTARY) = {.name = "rotary", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 2, .max_inputs = 2,
                   .elementwise = true, .shape = graph_shape_rotary, .cost = graph_cost_rotary},
    ROW(PATCHIFY) = {.name = "patchify", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                     .shape = graph_shape_patchify, .cost = graph_cost_copy},
    ROW(UNPATCHIFY) = {.name = "unpatchify", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                       .shape = graph_shape_unpatchify, .cost = graph_cost_copy},
    ROW(RESHAPE) = {.name = "reshape", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                    .view = true, .shape = graph_shape_reshape, .cost = graph_cost_view},
    ROW(LOSS) = {.name = "loss", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 2, .max_inputs = 2,
                 .shape = graph_shape_loss, .cost = graph_cost_loss},
    ROW(SYNTHETIC) = {.name = "synthetic", .op_class = GRAPH_CLASS_MEMORY, .min_inputs = 1, .max_inputs = 1,
                      .shape = graph_shape_synthetic, .cost = graph_cost_view},
};

const char *graph_op_kind_name(graph_op_kind kind) { return graph_op_rows[kind].name; }

const char *graph_op_class_name(graph_op_class op_class) {
  static const char *const names[GRAPH_CLASS_COUNT] = {
      [GRAPH_CLASS_GEMM] = "gemm",
      [GRAPH_CLASS_CONVOLUTION] = "convolution",
      [GRAPH_CLASS_ATTENTION] = "attention",
      [GRAPH_CLASS_MEMORY] = "memory",
  };
  return names[op_class];
}
