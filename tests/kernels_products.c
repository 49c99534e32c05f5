/* Linear layers, adapters, convolutions, attention, separable projections: plain references and runs. */
#include <math.h>
#include <stdlib.h>

#include "tests/kernels_sizes.h"

/* z: rows, in, out, bias, extra floats between rows of x and of y */
static void linear_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[0] * (z[1] + z[4]) - z[4], OPS_INPUT);
  ops_add_array(a, z[1] * z[2], OPS_WEIGHT);
  if (z[3]) ops_add_array(a, z[2], OPS_WEIGHT);
  a->out = z[0] * (z[2] + z[4]) - z[4];
}
static size_t linear_workspace(const int64_t *z, int threads) {
  const kern_linear s = linear_of(z);
  return kern_linear_workspace(&s, threads);
}
static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}
/* The gaps between rows of y are nobody's: the driver expects them untouched, as NaN. */
static void linear_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t i = 0; i < z[0]; i++) {
    for (int64_t o = 0; o < z[2]; o++)
      out[i * (z[2] + z[4]) + o] = (z[3] ? in[2][o] : 0) + dot(in[0] + i * (z[1] + z[4]), in[1] + o * z[1], z[1]);
    for (int64_t o = 0; i + 1 < z[0] && o < z[4]; o++) out[i * (z[2] + z[4]) + z[2] + o] = NAN;
  }
}
static void linear_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  (void)kept;
  const kern_linear s = linear_of(z);
  kern_linear_forward(c, &s, in[0], in[1], z[3] ? in[2] : NULL, out);
}
static void linear_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                            const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out, (void)kept;
  const kern_linear s = linear_of(z);
  kern_linear_input_gradient(c, &s, in[1], dy, d[0], accumulate);
  kern_linear_weight_gradient(c, &s, in[0], dy, d[1], z[3] ? d[2] : NULL);
}
const ops_kind ops_linear = {"linear",         linear_arrays,  linear_workspace,
                             linear_reference, linear_forward, linear_backward};

/* z: rows, in, out, rank. y starts as the last input: its gradient is dy itself, and that of x is added to. */
static void lora_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[0] * z[1], OPS_WEIGHT);
  ops_add_array(a, z[3] * z[1], OPS_WEIGHT);
  ops_add_array(a, z[2] * z[3], OPS_WEIGHT);
  ops_add_array(a, z[0] * z[2], OPS_CONSTANT);
  a->out = z[0] * z[2];
  a->kept = z[0] * z[3];
}
static void lora_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t i = 0; i < z[0]; i++)
    for (int64_t o = 0; o < z[2]; o++) {
      double sum = 0;
      for (int64_t r = 0; r < z[3]; r++)
        for (int64_t k = 0; k < z[1]; k++) sum += in[0][i * z[1] + k] * in[1][r * z[1] + k] * in[2][o * z[3] + r];
      out[i * z[2] + o] = in[3][i * z[2] + o] + 0.75 * sum;
    }
}
static void lora_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  const kern_lora s = lora_of(z);
  kern_copy(c, z[0] * z[2], in[3], out);
  kern_lora_forward(c, &s, in[0], in[1], in[2], kept, out);
}
static void lora_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                          const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out, (void)accumulate;
  const kern_lora s = lora_of(z);
  float *dhidden = malloc((size_t)(z[0] * z[3]) * sizeof *dhidden);
  if (dhidden == NULL) exit(1);
  kern_lora_input_gradient(c, &s, in[1], in[2], dy, dhidden, d[0]);
  kern_lora_weight_gradient(c, &s, in[0], dy, kept, dhidden, d[1], d[2]);
  free(dhidden);
}
const ops_kind ops_lora = {"lora", lora_arrays, NULL, lora_reference, lora_forward, lora_backward};

/* z: batch, height, width, in, out, kernel height, kernel width, stride, padding height, padding width, bias */
static void conv_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[0] * z[1] * z[2] * z[3], OPS_INPUT);
  ops_add_array(a, z[4] * z[5] * z[6] * z[3], OPS_WEIGHT);
  if (z[10]) ops_add_array(a, z[4], OPS_WEIGHT);
  a->out = z[0] * ((z[1] + 2 * z[8] - z[5]) / z[7] + 1) * ((z[2] + 2 * z[9] - z[6]) / z[7] + 1) * z[4];
}
static size_t conv_workspace(const int64_t *z, int threads) {
  const kern_conv2d s = conv_of(z);
  return kern_conv2d_workspace(&s, threads);
}
static void conv_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t b = 0; b < z[0]; b++)
    for (int64_t y = 0; y <= z[1] + 2 * z[8] - z[5]; y += z[7])
      for (int64_t x = 0; x <= z[2] + 2 * z[9] - z[6]; x += z[7])
        for (int64_t o = 0; o < z[4]; o++) {
          double sum = z[10] ? in[2][o] : 0;
          for (int64_t ky = 0; ky < z[5]; ky++)
            for (int64_t kx = 0; kx < z[6]; kx++) {
              const int64_t sy = y + ky - z[8], sx = x + kx - z[9];
              if (sy < 0 || sy >= z[1] || sx < 0 || sx >= z[2]) continue;
              const double *pixel = in[0] + ((b * z[1] + sy) * z[2] + sx) * z[3];
              const double *w = in[1] + ((o * z[5] + ky) * z[6] + kx) * z[3];
              for (int64_t c = 0; c < z[3]; c++) sum += pixel[c] * w[c];
            }
          *out++ = sum;
        }
}
static void conv_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  (void)kept;
  const kern_conv2d s = conv_of(z);
  kern_conv2d_forward(c, &s, in[0], in[1], z[10] ? in[2] : NULL, out);
}
static void conv_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                          const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out, (void)kept;
  const kern_conv2d s = conv_of(z);
  kern_conv2d_input_gradient(c, &s, in[1], dy, d[0], accumulate);
  kern_conv2d_weight_gradient(c, &s, in[0], dy, d[1], z[10] ? d[2] : NULL);
}
const ops_kind ops_conv = {"conv2d", conv_arrays, conv_workspace, conv_reference, conv_forward, conv_backward};

/* z: batch, heads, head_dim, q_tokens, k_tokens, slices: then k is in[0]'s second third and v its last, as q_tokens =
 * k_tokens and the three are one tensor [B, T, 3 * width] */
static void attention_arrays(const int64_t *z, ops_arrays *a) {
  const int64_t width = z[1] * z[2];
  if (z[5]) ops_add_array(a, z[0] * z[3] * 3 * width, OPS_INPUT);
  if (!z[5]) ops_add_array(a, z[0] * z[3] * width, OPS_INPUT);
  if (!z[5]) ops_add_array(a, z[0] * z[4] * width, OPS_INPUT);
  if (!z[5]) ops_add_array(a, z[0] * z[4] * width, OPS_INPUT);
  a->out = z[0] * z[3] * width;
  a->kept = z[0] * z[1] * z[3];
}
static size_t attention_workspace(const int64_t *z, int threads) {
  const kern_attention s = attention_of(z);
  return kern_attention_workspace(&s, threads);
}
static void attention_reference(const int64_t *z, const double *const *in, double *out) {
  const int64_t dim = z[2], width = z[1] * dim, stride = z[5] ? 3 * width : width;
  const double *q = in[0], *k = z[5] ? q + width : in[1], *v = z[5] ? q + 2 * width : in[2];
  double *p = malloc((size_t)z[4] * sizeof *p);
  if (p == NULL) exit(1);
  for (int64_t b = 0; b < z[0]; b++)
    for (int64_t h = 0; h < z[1]; h++)
      for (int64_t i = 0; i < z[3]; i++) {
        double sum = 0;
        for (int64_t j = 0; j < z[4]; j++) {
          double score = 0;
          for (int64_t c = 0; c < dim; c++)
            score += q[(b * z[3] + i) * stride + h * dim + c] * k[(b * z[4] + j) * stride + h * dim + c];
          sum += p[j] = exp(score * (double)(1 / sqrtf((float)dim)));
        }
        for (int64_t c = 0; c < dim; c++) {
          double value = 0;
          for (int64_t j = 0; j < z[4]; j++) value += p[j] / sum * v[(b * z[4] + j) * stride + h * dim + c];
          out[(b * z[3] + i) * width + h * dim + c] = value;
        }
      }
  free(p);
}
static void attention_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  const kern_attention s = attention_of(z);
  const int64_t width = z[1] * z[2];
  kern_attention_forward(c, &s, in[0], z[5] ? in[0] + width : in[1], z[5] ? in[0] + 2 * width : in[2], out, kept);
}
static void attention_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                               const float *kept, const float *dy, float *const *d, bool accumulate) {
  const kern_attention s = attention_of(z);
  const int64_t width = z[1] * z[2];
  const float *q = in[0], *k = z[5] ? q + width : in[1], *v = z[5] ? q + 2 * width : in[2];
  if (z[5]) {
    kern_attention_backward(c, &s, q, k, v, out, kept, dy, d[0], d[0] + width, d[0] + 2 * width, accumulate);
    return;
  }
  kern_attention_backward(c, &s, q, k, v, out, kept, dy, NULL, d[1], NULL, accumulate);
  kern_attention_backward(c, &s, q, k, v, out, kept, dy, d[0], NULL, d[2], accumulate);
}
const ops_kind ops_attention = {"attention",         attention_arrays,  attention_workspace,
                                attention_reference, attention_forward, attention_backward};

/* z: batch, height, width, in, out_height, out_width, out */
static void separable_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[0] * z[1] * z[2] * z[3], OPS_INPUT);
  ops_add_array(a, z[6] * z[3], OPS_WEIGHT);
  ops_add_array(a, z[4] * z[1], OPS_WEIGHT);
  ops_add_array(a, z[5] * z[2], OPS_WEIGHT);
  a->out = z[0] * z[4] * z[5] * z[6];
}
static size_t separable_workspace(const int64_t *z, int threads) {
  const kern_separable s = separable_of(z);
  return kern_separable_workspace(&s, threads);
}
static void separable_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t b = 0; b < z[0]; b++)
    for (int64_t p = 0; p < z[4]; p++)
      for (int64_t q = 0; q < z[5]; q++)
        for (int64_t o = 0; o < z[6]; o++) {
          double sum = 0;
          for (int64_t y = 0; y < z[1]; y++)
            for (int64_t x = 0; x < z[2]; x++)
              for (int64_t c = 0; c < z[3]; c++)
                sum += in[0][((b * z[1] + y) * z[2] + x) * z[3] + c] * in[1][o * z[3] + c] * in[2][p * z[1] + y] *
                       in[3][q * z[2] + x];
          *out++ = sum;
        }
}
static void separable_forward(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  (void)kept;
  const kern_separable s = separable_of(z);
  kern_separable_forward(c, &s, in[0], in[1], in[2], in[3], out);
}
static void separable_backward(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                               const float *kept, const float *dy, float *const *d, bool accumulate) {
  (void)out, (void)kept;
  const kern_separable s = separable_of(z);
  kern_separable_input_gradient(c, &s, in[1], in[2], in[3], dy, d[0], accumulate);
  kern_separable_weight_gradient(c, &s, in[0], in[1], in[2], in[3], dy, d[1], d[2], d[3]);
}
const ops_kind ops_separable = {"separable",         separable_arrays,  separable_workspace,
                                separable_reference, separable_forward, separable_backward};
