/* Activations, sums, moves, the loss and the optimiser on a CUDA device. */
#include <string.h>

#include "kernels/halves.h"
#include "tests/cuda_ops.h"

/* The argument is stretched by the driver, as the reference does it. */
static void activation_forward(const cuda_call *c) {
  kern_cuda_activation_forward(c->c, (kern_activation)c->z[0], c->z[1], c->in[0], c->out);
}
static void activation_backward(const cuda_call *c) {
  kern_cuda_activation_backward(c->c, (kern_activation)c->z[0], c->z[1], c->in[0], c->dy, c->d[0], c->accumulate);
}
static const cuda_ops_kind activation = {.rows = &ops_activation,
                                         .cpu = &ops_activation,
                                         .y_on = 1,
                                         .dx_on_dy = true,
                                         .stretch = 4,
                                         .forward = activation_forward,
                                         .backward = activation_backward};

static void gated_forward(const cuda_call *c) {
  kern_cuda_gated_forward(c->c, (kern_gated)c->z[0], c->z[1], c->z[2], c->in[0], c->out);
}
static void gated_backward(const cuda_call *c) {
  kern_cuda_gated_backward(c->c, (kern_gated)c->z[0], c->z[1], c->z[2], c->in[0], c->dy, c->d[0], c->accumulate);
}
static const cuda_ops_kind gated = {
    .rows = &ops_gated, .cpu = &ops_gated, .forward = gated_forward, .backward = gated_backward};

static void add_forward(const cuda_call *c) { kern_cuda_add(c->c, c->z[0], c->in[0], c->in[1], c->out); }
static const cuda_ops_kind add = {.rows = &ops_add, .cpu = &ops_add, .y_on = 3, .forward = add_forward};

static size_t broadcast_workspace(const int64_t *z, kern_dtype dtype) {
  const kern_broadcast s = broadcast_of(z);
  return kern_cuda_broadcast_workspace(&s, dtype);
}
static void add_vector_forward(const cuda_call *c) {
  const kern_broadcast s = broadcast_of(c->z);
  kern_cuda_add_vector_forward(c->c, &s, c->in[0], c->in[1], c->out);
}
static void add_vector_backward(const cuda_call *c) {
  const kern_broadcast s = broadcast_of(c->z);
  kern_cuda_add_vector_backward(c->c, &s, c->dy, c->d[1], adds(c->z, c->accumulate));
}
static const cuda_ops_kind add_vector = {.rows = &ops_add_vector,
                                         .cpu = &ops_add_vector,
                                         .y_on = 1,
                                         .workspace = broadcast_workspace,
                                         .forward = add_vector_forward,
                                         .backward = add_vector_backward};

/* Where vectors are added and x's gradient is not, those are two calls. */
static bool is_apart(const cuda_call *c) { return adds(c->z, c->accumulate) != c->accumulate; }
static void modulate_forward(const cuda_call *c) {
  const kern_broadcast s = broadcast_of(c->z);
  kern_cuda_modulate_forward(c->c, &s, c->in[0], c->in[1], c->in[2], c->out);
}
static void modulate_backward(const cuda_call *c) {
  const kern_broadcast s = broadcast_of(c->z);
  if (!is_apart(c)) {
    kern_cuda_modulate_backward(c->c, &s, c->in[0], c->in[1], c->dy, c->d[0], c->d[1], c->d[2], c->accumulate);
    return;
  }
  if (c->d[1] || c->d[2]) /* first: d[0] may be dy */
    kern_cuda_modulate_backward(c->c, &s, c->in[0], c->in[1], c->dy, NULL, c->d[1], c->d[2], true);
  if (c->d[0]) kern_cuda_modulate_backward(c->c, &s, c->in[0], c->in[1], c->dy, c->d[0], NULL, NULL, false);
}
static const cuda_ops_kind modulate = {.rows = &ops_modulate,
                                       .cpu = &ops_modulate,
                                       .y_on = 1,
                                       .dx_on_dy = true,
                                       .subsets = {1, 2, 4, 6},
                                       .workspace = broadcast_workspace,
                                       .forward = modulate_forward,
                                       .backward = modulate_backward};
static void gate_forward(const cuda_call *c) {
  const kern_broadcast s = broadcast_of(c->z);
  kern_cuda_gate_forward(c->c, &s, c->in[0], c->in[1], c->out);
}
static void gate_backward(const cuda_call *c) {
  const kern_broadcast s = broadcast_of(c->z);
  if (!is_apart(c)) {
    kern_cuda_gate_backward(c->c, &s, c->in[0], c->in[1], c->dy, c->d[0], c->d[1], c->accumulate);
    return;
  }
  if (c->d[1]) kern_cuda_gate_backward(c->c, &s, c->in[0], c->in[1], c->dy, NULL, c->d[1], true);
  if (c->d[0]) kern_cuda_gate_backward(c->c, &s, c->in[0], c->in[1], c->dy, c->d[0], NULL, false);
}
static const cuda_ops_kind gate = {.rows = &ops_gate,
                                   .cpu = &ops_gate,
                                   .y_on = 1,
                                   .dx_on_dy = true,
                                   .subsets = {1, 2},
                                   .workspace = broadcast_workspace,
                                   .forward = gate_forward,
                                   .backward = gate_backward};

/* Pieces lie one after another, so that some begin on no boundary of 16 bytes. */
static void concat_forward(const cuda_call *c) { kern_cuda_concat(c->c, c->z[0], 3, c->z + 1, c->in, c->out, false); }
static void concat_backward(const cuda_call *c) {
  kern_cuda_split(c->c, c->z[0], 3, c->z + 1, c->dy, c->d, c->accumulate);
}
static const cuda_ops_kind concat = {
    .rows = &ops_concat, .cpu = &ops_concat, .subsets = {2, 5}, .forward = concat_forward, .backward = concat_backward};
static void three_of(const cuda_call *c, const void *whole, void *piece[3]) {
  for (int64_t i = 0, at = 0; i < 3; at += c->z[0] * c->z[1 + i++]) piece[i] = cuda_ops_at(whole, at, c->dtype);
}
static void split_forward(const cuda_call *c) {
  void *piece[3];
  three_of(c, c->out, piece);
  kern_cuda_split(c->c, c->z[0], 3, c->z + 1, c->in[0], piece, false);
}
static void split_backward(const cuda_call *c) {
  void *piece[3];
  three_of(c, c->dy, piece);
  kern_cuda_concat(c->c, c->z[0], 3, c->z + 1, (const void *const *)piece, c->d[0], c->accumulate);
}
static const cuda_ops_kind split = {
    .rows = &ops_split, .cpu = &ops_split, .forward = split_forward, .backward = split_backward};

static void upsample_forward(const cuda_call *c) {
  const kern_resample s = resample_of(c->z);
  kern_cuda_upsample_forward(c->c, &s, c->in[0], c->out);
}
static void upsample_backward(const cuda_call *c) {
  const kern_resample s = resample_of(c->z);
  kern_cuda_upsample_backward(c->c, &s, c->dy, c->d[0], c->accumulate);
}
static const cuda_ops_kind upsample = {
    .rows = &ops_upsample, .cpu = &ops_upsample, .forward = upsample_forward, .backward = upsample_backward};
static void downsample_forward(const cuda_call *c) {
  const kern_resample s = resample_of(c->z);
  kern_cuda_downsample_forward(c->c, &s, c->in[0], c->out);
}
static void downsample_backward(const cuda_call *c) {
  const kern_resample s = resample_of(c->z);
  kern_cuda_downsample_backward(c->c, &s, c->dy, c->d[0], c->accumulate);
}
static const cuda_ops_kind downsample = {
    .rows = &ops_downsample, .cpu = &ops_downsample, .forward = downsample_forward, .backward = downsample_backward};

static void patchify_forward(const cuda_call *c) {
  const kern_patches s = patches_of(c->z);
  kern_cuda_patchify(c->c, &s, c->in[0], c->out, false);
}
static void patchify_backward(const cuda_call *c) {
  const kern_patches s = patches_of(c->z);
  kern_cuda_unpatchify(c->c, &s, c->dy, c->d[0], c->accumulate);
}
static const cuda_ops_kind patchify = {
    .rows = &ops_patchify, .cpu = &ops_patchify, .forward = patchify_forward, .backward = patchify_backward};
static void unpatchify_forward(const cuda_call *c) {
  const kern_patches s = patches_of(c->z);
  kern_cuda_unpatchify(c->c, &s, c->in[0], c->out, false);
}
static void unpatchify_backward(const cuda_call *c) {
  const kern_patches s = patches_of(c->z);
  kern_cuda_patchify(c->c, &s, c->dy, c->d[0], c->accumulate);
}
static const cuda_ops_kind unpatchify = {
    .rows = &ops_unpatchify, .cpu = &ops_unpatchify, .forward = unpatchify_forward, .backward = unpatchify_backward};

static void time_forward(const cuda_call *c) {
  const int64_t *z = c->z;
  const kern_time_embedding s = {z[0], z[1], z[2] != 0, (double)z[3], (double)z[4], (double)z[5]};
  kern_cuda_time_embedding_forward(c->c, &s, c->in[0], c->dtype, c->out);
}
static const cuda_ops_kind time_embedding = {.rows = &ops_time, .cpu = &ops_time, .wide = 1, .forward = time_forward};

static void rotary_forward(const cuda_call *c) {
  const kern_rotary s = rotary_of(c->z);
  kern_cuda_rotary_forward(c->c, &s, c->in[0], c->in[1], c->in[2], c->out);
}
static void rotary_backward(const cuda_call *c) {
  const kern_rotary s = rotary_of(c->z);
  kern_cuda_rotary_backward(c->c, &s, c->dy, c->in[1], c->in[2], c->d[0], c->accumulate);
}
static const cuda_ops_kind rotary = {.rows = &ops_rotary,
                                     .cpu = &ops_rotary,
                                     .wide = 6,
                                     .y_on = 1,
                                     .dx_on_dy = true,
                                     .forward = rotary_forward,
                                     .backward = rotary_backward};

/* The output: the loss and the squares, which are double, then the gradient. */
static size_t loss_workspace(const int64_t *z, kern_dtype dtype) {
  (void)dtype;
  const kern_loss s = loss_of(z);
  return kern_cuda_loss_workspace(&s);
}
static size_t loss_doubles_bytes(const int64_t *z) { return (size_t)(2 + z[0]) / 2 * 2 * sizeof(double); }
static size_t loss_bytes(const int64_t *z, kern_dtype dtype) {
  return loss_doubles_bytes(z) + (size_t)(z[0] * z[1] * kern_dtype_bytes(dtype));
}
static void loss_fetch(const int64_t *z, kern_dtype dtype, const void *host, float *out) {
  for (int64_t i = 0; i < 1 + z[0]; i++) out[i] = (float)((const double *)host)[i];
  cuda_ops_to_floats(dtype, z[0] * z[1], (const char *)host + loss_doubles_bytes(z), out + 1 + z[0]);
}
static void loss_forward(const cuda_call *c) {
  const kern_loss s = loss_of(c->z);
  double *const sum = c->out;
  const float *const weights = c->z[2] ? c->in[2] : NULL;
  kern_cuda_fill(c->c, KERN_FP32, 2, 0, sum);
  kern_cuda_loss_forward(c->c, &s, c->in[0], c->in[1], weights, sum + 1, sum);
  kern_cuda_loss_backward(c->c, &s, c->in[0], c->in[1], weights, (char *)c->out + loss_doubles_bytes(c->z));
}
static const cuda_ops_kind loss = {.rows = &ops_loss,
                                   .cpu = &ops_loss,
                                   .wide = 4,
                                   .workspace = loss_workspace,
                                   .forward = loss_forward,
                                   .out_bytes = loss_bytes,
                                   .fetch = loss_fetch};

static size_t squares_workspace(const int64_t *z, kern_dtype dtype) {
  (void)dtype;
  return kern_cuda_sum_squares_workspace(z[0]);
}
static size_t squares_bytes(const int64_t *z, kern_dtype dtype) {
  (void)z, (void)dtype;
  return sizeof(double);
}
static void squares_fetch(const int64_t *z, kern_dtype dtype, const void *host, float *out) {
  (void)z, (void)dtype;
  *out = (float)*(const double *)host;
}
static void squares_forward(const cuda_call *c) { kern_cuda_sum_squares(c->c, c->dtype, c->z[0], c->in[0], c->out); }
static const cuda_ops_kind squares = {.rows = &ops_squares,
                                      .cpu = &ops_squares,
                                      .wide_out = true,
                                      .workspace = squares_workspace,
                                      .forward = squares_forward,
                                      .out_bytes = squares_bytes,
                                      .fetch = squares_fetch};

/* Parameters, in bf16 both halves of them, then moments in fp32; the reference's factor of 0.5 is made by clipping: the
 * norm is 2, 1 is allowed. Each array begins on a boundary of 16 bytes; the norm's square comes last. */
static int64_t adamw_place(const int64_t *z) { return (z[0] + 7) / 8 * 8; }
static size_t adamw_bytes(const int64_t *z, kern_dtype dtype) {
  (void)dtype;
  return (size_t)(3 * adamw_place(z)) * sizeof(float) + sizeof(double);
}
static uint16_t *adamw_low(const int64_t *z, const void *out) { return (uint16_t *)(uintptr_t)out + adamw_place(z); }
static void adamw_fetch(const int64_t *z, kern_dtype dtype, const void *host, float *out) {
  const uint16_t *const weights = host, *const low = adamw_low(z, host);
  for (int64_t i = 0; i < 3; i++)
    memcpy(out + i * z[0], (const float *)host + i * adamw_place(z), (size_t)z[0] * sizeof(float));
  for (int64_t i = 0; dtype == KERN_BF16 && i < z[0]; i++) {
    const uint32_t bits = kern_halves_join(weights[i], low[i]);
    memcpy(&out[i], &bits, sizeof bits);
  }
}
static void adamw_forward(const cuda_call *c) {
  const int64_t n = c->z[0];
  float *const p = c->out, *const first = p + adamw_place(c->z), *const second = first + adamw_place(c->z);
  float *const norm_square = second + adamw_place(c->z); /* a double that is 4: its upper half has the bits of 2.25f */
  uint16_t *const low = c->dtype == KERN_BF16 ? adamw_low(c->z, p) : NULL;
  kern_cuda_fill(c->c, KERN_FP32, 1, 0, norm_square);
  kern_cuda_fill(c->c, KERN_FP32, 1, 2.25f, norm_square + 1);
  kern_cuda_convert(c->c, n, KERN_FP32, c->in[0], KERN_FP32, first);
  kern_cuda_exchange_means(c->c, n, p, low, first); /* whatever lies in p, as NaN, goes to first */
  kern_cuda_fill(c->c, KERN_FP32, n, 0, first);
  kern_cuda_fill(c->c, KERN_FP32, n, 0, second);
  kern_cuda_adamw s = {.settings = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1},
                       .n = n,
                       .clip_norm = 0.5 * (2 + 1e-6)};
  for (s.settings.step = 1; s.settings.step <= c->z[1]; s.settings.step++)
    kern_cuda_adamw_step(c->c, &s, (const double *)(const void *)norm_square, c->in[1], p, low, first, second, NULL);
}
static const cuda_ops_kind adamw = {.rows = &ops_adamw,
                                    .cpu = &ops_adamw,
                                    .wide = 1,
                                    .given = 2,
                                    .wide_out = true,
                                    .forward = adamw_forward,
                                    .out_bytes = adamw_bytes,
                                    .fetch = adamw_fetch};

/* The same sum as the reference's: 0.75 (-1.5 (x + 0.5 y)) + 0.25 y; the first term is rounded. */
static void flat_forward(const cuda_call *c) {
  kern_cuda_fill(c->c, c->dtype, c->z[0], 0, c->out);
  kern_cuda_axpy(c->c, c->dtype, c->z[0], -1.125f, c->in[0], c->out);
  kern_cuda_axpy(c->c, c->dtype, c->z[0], -0.3125f, c->in[1], c->out);
}
static const cuda_ops_kind flat = {.rows = &ops_flat, .cpu = &ops_flat, .between = 1, .forward = flat_forward};

const cuda_ops_kind *const cuda_ops_moves[] = {
    &activation, &gated,    &add,        &add_vector, &modulate,   &gate,           &concat,
    &split,      &upsample, &downsample, &patchify,   &unpatchify, &time_embedding, &rotary,
    &loss,       &squares,  &adamw,      &flat,       NULL};
