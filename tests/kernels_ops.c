/* Norms, activations, sums and vectors broadcast over positions: plain references and runs. */
#include "tests/kernels_sizes.h"

#include <math.h>

#define UNUSED_BACKWARD (void)out, (void)kept, (void)in

/* z: batch, positions, channels, groups, affine */
static void group_norm_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[0] * z[1] * z[2], OPS_INPUT);
  if (z[4]) ops_add_array(a, z[2], OPS_WEIGHT);
  if (z[4]) ops_add_array(a, z[2], OPS_WEIGHT);
  a->out = z[0] * z[1] * z[2];
  a->kept = z[0] * z[3] * 2;
}
static size_t group_norm_workspace(const int64_t *z, int threads) {
  const kern_group_norm s = group_norm_of(z);
  return kern_group_norm_workspace(&s, threads);
}
static void group_norm_reference(const int64_t *z, const double *const *in, double *out) {
  const int64_t each = z[2] / z[3];
  for (int64_t b = 0; b < z[0]; b++)
    for (int64_t g = 0; g < z[3]; g++) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < z[1] * each; i++)
        mean += in[0][(b * z[1] + i / each) * z[2] + g * each + i % each] / (double)(z[1] * each);
      for (int64_t i = 0; i < z[1] * each; i++)
        variance += pow(in[0][(b * z[1] + i / each) * z[2] + g * each + i % each] - mean, 2) / (double)(z[1] * each);
      for (int64_t i = 0; i < z[1] * each; i++) {
        const int64_t c = g * each + i % each, at = (b * z[1] + i / each) * z[2] + c;
        const double value = (in[0][at] - mean) / sqrt(variance + (double)0.01f);
        out[at] = z[4] ? value * in[1][c] + in[2][c] : value;
      }
    }
}
static void group_norm_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  const kern_group_norm s = group_norm_of(z);
  kern_group_norm_forward(c, &s, in[0], z[4] ? in[1] : NULL, z[4] ? in[2] : NULL, out, kept);
}
static void group_norm_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                                const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out;
  const kern_group_norm s = group_norm_of(z);
  kern_group_norm_backward(c, &s, in[0], z[4] ? in[1] : NULL, kept, dy, d[0], accumulate, NULL, NULL);
  if (z[4]) kern_group_norm_backward(c, &s, in[0], in[1], kept, dy, NULL, false, d[1], d[2]);
}
const ops_kind ops_group_norm = {"group_norm",         group_norm_arrays,  group_norm_workspace,
                                 group_norm_reference, group_norm_forward, group_norm_backward};

/* z: rows, channels, affine */
static size_t row_norm_workspace(const int64_t *z, int threads) {
  const kern_row_norm s = row_norm_of(z);
  return kern_row_norm_workspace(&s, threads);
}
static void row_norm_reference(const int64_t *z, const double *const *in, double *out, bool rms) {
  for (int64_t i = 0; i < z[0]; i++) {
    const double *x = in[0] + i * z[1];
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < z[1] && !rms; c++) mean += x[c] / (double)z[1];
    for (int64_t c = 0; c < z[1]; c++) variance += (x[c] - mean) * (x[c] - mean) / (double)z[1];
    for (int64_t c = 0; c < z[1]; c++) {
      const double value = (x[c] - mean) / sqrt(variance + (double)0.01f) * (z[2] ? in[1][c] : 1);
      out[i * z[1] + c] = value + (z[2] && !rms ? in[2][c] : 0);
    }
  }
}
static void layer_norm_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[0] * z[1], OPS_INPUT);
  if (z[2]) ops_add_array(a, z[1], OPS_WEIGHT);
  if (z[2]) ops_add_array(a, z[1], OPS_WEIGHT);
  a->out = z[0] * z[1];
  a->kept = z[0] * 2;
}
static void layer_norm_reference(const int64_t *z, const double *const *in, double *out) {
  row_norm_reference(z, in, out, false);
}
static void layer_norm_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  const kern_row_norm s = row_norm_of(z);
  kern_layer_norm_forward(c, &s, in[0], z[2] ? in[1] : NULL, z[2] ? in[2] : NULL, out, kept);
}
static void layer_norm_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                                const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out;
  const kern_row_norm s = row_norm_of(z);
  kern_layer_norm_backward(c, &s, in[0], z[2] ? in[1] : NULL, kept, dy, d[0], accumulate, NULL, NULL);
  if (z[2]) kern_layer_norm_backward(c, &s, in[0], in[1], kept, dy, NULL, false, d[1], d[2]);
}
const ops_kind ops_layer_norm = {"layer_norm",         layer_norm_arrays,  row_norm_workspace,
                                 layer_norm_reference, layer_norm_forward, layer_norm_backward};

static void rms_norm_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[0] * z[1], OPS_INPUT);
  if (z[2]) ops_add_array(a, z[1], OPS_WEIGHT);
  a->out = z[0] * z[1];
  a->kept = z[0];
}
static void rms_norm_reference(const int64_t *z, const double *const *in, double *out) {
  row_norm_reference(z, in, out, true);
}
static void rms_norm_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  const kern_row_norm s = row_norm_of(z);
  kern_rms_norm_forward(c, &s, in[0], z[2] ? in[1] : NULL, out, kept);
}
static void rms_norm_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                              const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out;
  const kern_row_norm s = row_norm_of(z);
  kern_rms_norm_backward(c, &s, in[0], z[2] ? in[1] : NULL, kept, dy, d[0], accumulate, z[2] ? d[1] : NULL);
}
const ops_kind ops_rms_norm = {"rms_norm",         rms_norm_arrays,  row_norm_workspace,
                               rms_norm_reference, rms_norm_forward, rms_norm_backward};

/* The argument is drawn from [-1, 1] and stretched to where the functions bend. */
static const double stretch = 4;

static double activate(int64_t kind, double x) {
  if (kind == KERN_SILU) return x / (1 + exp(-x));
  if (kind == KERN_GELU) return 0.5 * x * erfc(-x / sqrt(2));
  return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

/* z: kind, n */
static void activation_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[1], OPS_INPUT);
  a->out = a->kept = z[1];
}
static void activation_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t i = 0; i < z[1]; i++) out[i] = activate(z[0], stretch * in[0][i]);
}
static void activation_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  kern_scale(c, z[1], (float)stretch, in[0], kept);
  kern_activation_forward(c, (kern_activation)z[0], z[1], kept, out);
}
static void activation_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                                const float *kept, const float *dy, float *const *d, bool accumulate) {
  UNUSED_BACKWARD;
  if (accumulate) kern_scale(c, z[1], (float)(1 / stretch), d[0], d[0]); /* powers of 2: no rounding */
  kern_activation_backward(c, (kern_activation)z[0], z[1], kept, dy, d[0], accumulate);
  kern_scale(c, z[1], (float)stretch, d[0], d[0]);
}
const ops_kind ops_activation = {"activation",         activation_arrays,  NULL,
                                 activation_reference, activation_forward, activation_backward};

/* z: kind, rows, channels */
static void gated_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[1] * 2 * z[2], OPS_INPUT);
  a->out = z[1] * z[2];
}
static void gated_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t i = 0; i < z[1] * z[2]; i++) {
    const double *x = in[0] + i / z[2] * 2 * z[2] + i % z[2];
    out[i] = x[0] * activate(z[0] == KERN_GEGLU ? KERN_GELU : KERN_SILU, x[z[2]]);
  }
}
static void gated_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  (void)kept;
  kern_gated_forward(c, (kern_gated)z[0], z[1], z[2], in[0], out);
}
static void gated_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                           const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out, (void)kept;
  kern_gated_backward(c, (kern_gated)z[0], z[1], z[2], in[0], dy, d[0], accumulate);
}
const ops_kind ops_gated = {"gated", gated_arrays, NULL, gated_reference, gated_forward, gated_backward};

/* z: n */
static void add_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[0], OPS_CONSTANT);
  ops_add_array(a, z[0], OPS_CONSTANT);
  a->out = z[0];
}
static void add_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t i = 0; i < z[0]; i++) out[i] = in[0][i] + in[1][i];
}
static void add_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  (void)kept;
  kern_add(c, z[0], in[0], in[1], out);
}
const ops_kind ops_add = {"add", add_arrays, NULL, add_reference, add_forward, NULL};

/* z: batch, positions, channels, vectors (0: dense; -1: one for all samples; 3: as a piece of three) */
static int64_t vector_floats(const int64_t *z) {
  return z[3] < 0 ? z[2] : z[3] == 0 ? z[0] * z[2] : ((z[0] - 1) * z[3] + 1) * z[2];
}
static int64_t vector_at(const int64_t *z, int64_t sample) {
  return z[3] < 0 ? 0 : sample * z[2] * (z[3] == 0 ? 1 : z[3]);
}
static size_t broadcast_workspace(const int64_t *z, int threads) {
  const kern_broadcast s = broadcast_of(z);
  return kern_broadcast_workspace(&s, threads);
}
static void broadcast_arrays(const int64_t *z, ops_arrays *a, int vectors) {
  ops_add_array(a, z[0] * z[1] * z[2], OPS_INPUT);
  for (int i = 0; i < vectors; i++) ops_add_array(a, vector_floats(z), z[3] > 0 ? OPS_WEIGHT : OPS_INPUT);
  a->out = z[0] * z[1] * z[2];
}

static void add_vector_arrays(const int64_t *z, ops_arrays *a) {
  broadcast_arrays(z, a, 1);
  a->role[0] = OPS_CONSTANT;
}
static void add_vector_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t i = 0; i < z[0] * z[1] * z[2]; i++)
    out[i] = in[0][i] + in[1][vector_at(z, i / (z[1] * z[2])) + i % z[2]];
}
static void add_vector_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  (void)kept;
  const kern_broadcast s = broadcast_of(z);
  kern_add_vector_forward(c, &s, in[0], in[1], out);
}
static void add_vector_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                                const float *kept, const float *dy, float *const *d, bool accumulate) {
  UNUSED_BACKWARD;
  const kern_broadcast s = broadcast_of(z);
  kern_add_vector_backward(c, &s, dy, d[1], adds(z, accumulate));
}
const ops_kind ops_add_vector = {"add_vector",         add_vector_arrays,  broadcast_workspace,
                                 add_vector_reference, add_vector_forward, add_vector_backward};

static void modulate_arrays(const int64_t *z, ops_arrays *a) { broadcast_arrays(z, a, 2); }
static void modulate_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t i = 0; i < z[0] * z[1] * z[2]; i++) {
    const int64_t at = vector_at(z, i / (z[1] * z[2])) + i % z[2];
    out[i] = in[0][i] * (1 + in[1][at]) + in[2][at];
  }
}
static void modulate_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  (void)kept;
  const kern_broadcast s = broadcast_of(z);
  kern_modulate_forward(c, &s, in[0], in[1], in[2], out);
}
static void modulate_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                              const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out, (void)kept;
  const kern_broadcast s = broadcast_of(z);
  kern_modulate_backward(c, &s, in[0], in[1], dy, d[0], NULL, NULL, accumulate);
  kern_modulate_backward(c, &s, in[0], in[1], dy, NULL, d[1], d[2], adds(z, accumulate));
}
const ops_kind ops_modulate = {"modulate",         modulate_arrays,  broadcast_workspace,
                               modulate_reference, modulate_forward, modulate_backward};

static void gate_arrays(const int64_t *z, ops_arrays *a) { broadcast_arrays(z, a, 1); }
static void gate_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t i = 0; i < z[0] * z[1] * z[2]; i++)
    out[i] = in[0][i] * in[1][vector_at(z, i / (z[1] * z[2])) + i % z[2]];
}
static void gate_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  (void)kept;
  const kern_broadcast s = broadcast_of(z);
  kern_gate_forward(c, &s, in[0], in[1], out);
}
static void gate_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                          const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out, (void)kept;
  const kern_broadcast s = broadcast_of(z);
  if (adds(z, accumulate) == accumulate) {
    kern_gate_backward(c, &s, in[0], in[1], dy, d[0], d[1], accumulate);
    return;
  }
  kern_gate_backward(c, &s, in[0], in[1], dy, d[0], NULL, accumulate);
  kern_gate_backward(c, &s, in[0], in[1], dy, NULL, d[1], true);
}
const ops_kind ops_gate = {"gate", gate_arrays, broadcast_workspace, gate_reference, gate_forward, gate_backward};
