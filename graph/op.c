#include "graph/op.h"

#include "graph/op_table.h"

enum {
  MANY = GRAPH_MAX_INPUTS,
  VIEW = GRAPH_OP_VIEW,
  ELEM = GRAPH_OP_ELEMENTWISE,
  NORM = GRAPH_OP_NORM,
  SAME = GRAPH_OP_SHARES_GRADIENT,
  PLAIN = GRAPH_OP_PLAIN,
  GATED = GRAPH_OP_GATED
};

#define ROW(kind, name, class, min, max, traits, shape, cost) \
  [GRAPH_##kind] = {name, GRAPH_CLASS_##class, min, max, traits, graph_shape_##shape, graph_cost_##cost}

/* One row per op kind: name, efficiency class, least and most inputs, traits, shape inference, work and what backward
 * keeps. Everything that the rest of the program knows about an op kind stands here. */
const graph_op_row graph_op_rows[GRAPH_OP_KIND_COUNT] = {
    // clang-format off
    ROW(CONV2D,         "conv2d",         CONVOLUTION, 1, 1,    0,           conv,           conv),
    ROW(CONV3D,         "conv3d",         CONVOLUTION, 1, 1,    0,           conv,           conv),
    ROW(LINEAR,         "linear",         GEMM,        1, 1,    0,           linear,         linear),
    ROW(ATTENTION,      "attention",      ATTENTION,   3, 3,    0,           attention,      attention),
    ROW(GROUP_NORM,     "group_norm",     MEMORY,      1, 1,    NORM,        group_norm,     norm),
    ROW(LAYER_NORM,     "layer_norm",     MEMORY,      1, 1,    NORM,        layer_norm,     norm),
    ROW(RMS_NORM,       "rms_norm",       MEMORY,      1, 1,    NORM,        rms_norm,       norm),
    ROW(SILU,           "silu",           MEMORY,      1, 1,    ELEM | PLAIN, same,          activation),
    ROW(GELU,           "gelu",           MEMORY,      1, 1,    ELEM | PLAIN, same,          activation),
    ROW(GEGLU,          "geglu",          MEMORY,      1, 1,    ELEM | GATED, gated,         gated),
    ROW(SWIGLU,         "swiglu",         MEMORY,      1, 1,    ELEM | GATED, gated,         gated),
    ROW(ADD,            "add",            MEMORY,      2, 2,    ELEM | SAME, add,            add),
    ROW(CONCAT,         "concat",         MEMORY,      2, MANY, SAME,        concat,         concat),
    ROW(SPLIT,          "split",          MEMORY,      1, 1,    VIEW,        split,          view),
    ROW(UPSAMPLE,       "upsample",       MEMORY,      1, 1,    0,           upsample,       resample),
    ROW(DOWNSAMPLE,     "downsample",     MEMORY,      1, 1,    0,           downsample,     resample),
    ROW(TIME_EMBEDDING, "time_embedding", MEMORY,      1, 1,    0,           time_embedding, time_embedding),
    ROW(TEXT_EMBEDDING, "text_embedding", MEMORY,      1, 1,    0,           text_embedding, text_embedding),
    ROW(MODULATE,       "modulate",       MEMORY,      2, 3,    ELEM,        modulate,       modulate),
    ROW(ROTARY,         "rotary",         MEMORY,      2, 2,    ELEM,        rotary,         rotary),
    ROW(PATCHIFY,       "patchify",       MEMORY,      1, 1,    0,           patchify,       copy),
    ROW(UNPATCHIFY,     "unpatchify",     MEMORY,      1, 1,    0,           unpatchify,     copy),
    ROW(RESHAPE,        "reshape",        MEMORY,      1, 1,    VIEW,        reshape,        view),
    ROW(LOSS,           "loss",           MEMORY,      2, 2,    0,           loss,           loss),
    ROW(SYNTHETIC,      "synthetic",      MEMORY,      1, 1,    0,           synthetic,      view),
    ROW(TENSOR_ENTER,   "tensor_enter",   MEMORY,      1, 1,    VIEW,        same,           tensor_enter),
    ROW(TENSOR_REDUCE,  "tensor_reduce",  MEMORY,      1, 1,    VIEW,        same,           tensor_reduce),
    ROW(TENSOR_GATHER,  "tensor_gather",  MEMORY,      1, 1,    0,           tensor_gather,  tensor_gather),
    // clang-format on
};

const char *graph_op_kind_name(graph_op_kind kind) { return graph_op_rows[kind].name; }

const char *const graph_op_class_names[] = {
    [GRAPH_CLASS_GEMM] = "gemm",
    [GRAPH_CLASS_CONVOLUTION] = "convolution",
    [GRAPH_CLASS_ATTENTION] = "attention",
    [GRAPH_CLASS_MEMORY] = "memory",
    [GRAPH_CLASS_COUNT] = NULL,
};

const char *graph_op_class_name(graph_op_class op_class) { return graph_op_class_names[op_class]; }
