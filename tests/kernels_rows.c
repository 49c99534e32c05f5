/* The sizes at which every op is tried, on the CPU (tests/test_kernels.c) and on CUDA devices. */
#include <math.h>

#include "tests/kernels_ops.h"

/* kind, terms of the longest sum, probes, sizes */
const ops_row ops_rows[] = {
    {&ops_linear, 7, 20, {5, 7, 3, 1, 0}},
    {&ops_linear, 33, 20, {17, 33, 19, 0, 5}},
    {&ops_linear, 520, 6, {300, 520, 260, 1, 3}}, /* several tiles */
    {&ops_linear, 70, 10, {1, 70, 41, 1, 0}},
    {&ops_linear, 1024, 2, {70, 1024, 45, 1, 0}},  /* rows of A a page apart; several depths */
    {&ops_linear, 1024, 2, {270, 35, 1024, 0, 0}}, /* columns of A, too */
    {&ops_lora, 30, 20, {9, 30, 14, 4}},
    {&ops_conv, 27, 20, {2, 5, 7, 3, 4, 3, 3, 1, 1, 1, 1}},
    {&ops_conv, 18, 20, {1, 8, 6, 2, 5, 3, 3, 2, 1, 1, 1}},
    {&ops_conv, 9, 20, {3, 4, 4, 9, 7, 1, 1, 1, 0, 0, 0}},
    {&ops_conv, 16, 20, {2, 6, 4, 4, 5, 2, 2, 2, 0, 0, 1}},
    {&ops_conv, 30, 20, {1, 7, 9, 3, 2, 5, 2, 3, 4, 0, 1}},
    {&ops_conv, 50, 20, {1, 2, 2, 2, 3, 5, 5, 1, 2, 2, 0}},      /* a kernel wider than the image */
    {&ops_conv, 3, 10, {2, 5, 5, 3, 4, 1, 1, 2, 0, 0, 1}},       /* 1x1 with a stride */
    {&ops_conv, 5000, 1, {2, 45, 33, 192, 2, 3, 3, 1, 1, 1, 1}}, /* several parts, cut within an image */
    {&ops_conv, 2700, 2, {1, 5, 6, 300, 40, 3, 3, 1, 1, 1, 1}},  /* more channels than are summed at once */
    {&ops_conv, 300, 6, {2, 9, 8, 32, 64, 3, 3, 2, 2, 1, 1}},    /* whole tiles; a stride both ways */
    {&ops_attention, 12, 20, {2, 3, 4, 5, 9, 0}},
    {&ops_attention, 12, 20, {1, 2, 6, 7, 7, 1}},
    {&ops_attention, 20, 6, {1, 1, 8, 1, 1, 0}},
    {&ops_attention, 700, 2, {1, 2, 3, 130, 1030, 0}}, /* several tiles both ways, few heads */
    {&ops_attention, 700, 2, {2, 2, 3, 131, 515, 0}},  /* several tiles both ways, each head whole */
    {&ops_attention, 300, 4, {1, 5, 40, 140, 150, 0}}, /* a block of whole panels and a bit; wide heads */
    {&ops_separable, 60, 20, {2, 6, 5, 7, 3, 2, 4}},
    {&ops_separable, 60, 20, {2, 3, 2, 4, 6, 5, 7}},
    {&ops_group_norm, 35, 20, {2, 7, 20, 4, 1}},
    {&ops_group_norm, 1, 20, {3, 1, 5, 5, 0}},
    {&ops_group_norm, 6000, 3, {2, 900, 34, 2, 1}}, /* several blocks, the last one short */
    {&ops_layer_norm, 33, 20, {5, 33, 1}},
    {&ops_layer_norm, 16, 20, {7, 16, 0}},
    {&ops_layer_norm, 900, 3, {700, 65, 1}}, /* several parts */
    {&ops_rms_norm, 19, 20, {6, 19, 1}},
    {&ops_rms_norm, 900, 3, {1500, 32, 1}},
    {&ops_rms_norm, 5, 20, {4, 5, 0}},
    {&ops_activation, 8, 20, {KERN_SILU, 77}},
    {&ops_activation, 8, 20, {KERN_GELU, 77}},
    {&ops_activation, 8, 20, {KERN_GELU_TANH, 77}},
    {&ops_activation, 8, 5, {KERN_SILU, 40003}},
    {&ops_gated, 8, 20, {KERN_GEGLU, 5, 37}},
    {&ops_gated, 8, 20, {KERN_SWIGLU, 5, 37}},
    {&ops_gated, 8, 3, {KERN_GEGLU, 1501, 12}},
    {&ops_add, 1, 0, {33001}},
    {&ops_add_vector, 7, 20, {3, 7, 11, 0}},
    {&ops_add_vector, 4000, 3, {2, 2000, 19, 3}},
    {&ops_add_vector, 14, 20, {2, 1, 14, -1}},
    {&ops_modulate, 7, 20, {3, 7, 11, 0}},
    {&ops_modulate, 2000, 3, {2, 2000, 19, 3}},
    {&ops_gate, 7, 20, {3, 7, 11, 0}},
    {&ops_gate, 2000, 3, {2, 2000, 19, 3}},
    {&ops_concat, 1, 20, {5, 3, 7, 1}},
    {&ops_concat, 1, 3, {2, 20000, 17, 3}}, /* long rows */
    {&ops_split, 1, 20, {5, 3, 7, 1}},
    {&ops_split, 1, 3, {3000, 5, 9, 4}},
    {&ops_upsample, 4, 20, {2, 3, 5, 7, 2}},
    {&ops_upsample, 9, 20, {1, 2, 1, 3, 3}},
    {&ops_downsample, 4, 20, {2, 6, 4, 7, 2}},
    {&ops_downsample, 9, 20, {1, 3, 6, 5, 3}},
    {&ops_patchify, 1, 20, {2, 4, 6, 3, 2, 0}},
    {&ops_patchify, 1, 20, {2, 4, 6, 3, 2, 1}},
    {&ops_unpatchify, 1, 20, {1, 6, 3, 5, 3, 0}},
    {&ops_unpatchify, 1, 20, {1, 6, 3, 5, 3, 1}},
    {&ops_layout, 1, 0, {5, 7, 3, 2}},
    {&ops_layout, 1, 0, {40, 70, 1, 33}},
    {&ops_time, 8, 0, {3, 16, 1, 0, 1, 10000}},
    {&ops_time, 8, 0, {2, 9, 0, 1, 7, 100}},
    {&ops_embedding, 9, 20, {9, 150, 5}},
    {&ops_rotary, 2, 20, {2, 3, 2, 6}},
    {&ops_rotary, 2, 3, {2, 300, 3, 16}},
    {&ops_loss, 21, 0, {3, 21, 1}},
    {&ops_loss, 256, 0, {2, 20001, 0}},
    {&ops_squares, 256, 0, {50021}},
    {&ops_adamw, 64, 0, {97, 7}},
    {&ops_flat, 1, 0, {33001}},
};
const size_t ops_row_count = sizeof ops_rows / sizeof *ops_rows;

/* An fp32 sum of k products of random terms is off by about sqrt(k) / 4 roundings of its size, and what follows by a
 * few more; 4 sqrt(k) + 32 roundings of the largest value leave a factor of ten. */
double ops_tolerance(int64_t longest) { return (32 + 4 * sqrt((double)longest)) * ldexp(1, -24); }
