/* Products and norms on a CUDA device, and what their kernels do besides: residuals, SiLU after a group norm. */
#include "tests/cuda_ops.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/context.h"

static size_t linear_workspace(const int64_t *z, kern_dtype dtype) {
  const kern_linear s = linear_of(z);
  return kern_cuda_linear_workspace(&s, dtype);
}
static void linear_run(const cuda_call *c, const void *const *in, const void *residual) {
  const kern_linear s = linear_of(c->z);
  kern_cuda_linear_forward(c->c, &s, in[0], in[1], c->z[3] ? in[2] : NULL, residual, c->out);
}
static void linear_forward(const cuda_call *c) { linear_run(c, c->in, NULL); }
/* Of y = product + bias + residual: the product, or it and one of two others. NULL: there is no such term. */
static double largest_part(double y, const float *bias, const float *residual) {
  const double b = bias ? *bias : 0, r = residual ? *residual : 0, product = fabs(y - b - r);
  if (!bias && !residual) return 0;
  return bias && residual ? fmax(product, fmax(fabs(y - b), fabs(y - r))) : product;
}
static double linear_before(const int64_t *z, const float *const *in, int64_t i, double y) {
  return largest_part(y, z[3] ? in[2] + i % (z[2] + z[4]) : NULL, NULL);
}
static void linear_back(const cuda_call *c, const void *const *in, void *const *d) {
  const kern_linear s = linear_of(c->z);
  void *const dbias = c->z[3] ? d[2] : NULL;
  if (d[0]) kern_cuda_linear_input_gradient(c->c, &s, in[1], c->dy, d[0], c->accumulate);
  if (d[1] || dbias) kern_cuda_linear_weight_gradient(c->c, &s, in[0], c->dy, d[1], dbias);
}
static void linear_backward(const cuda_call *c) { linear_back(c, c->in, c->d); }
static const cuda_ops_kind linear = {.rows = &ops_linear,
                                     .cpu = &ops_linear,
                                     .weights = 6,
                                     .subsets = {1, 2, 4},
                                     .tunes = true,
                                     .before = linear_before,
                                     .products = 3,
                                     .workspace = linear_workspace,
                                     .forward = linear_forward,
                                     .backward = linear_backward};

/* A residual is the first input, and the rest is shifted by one. */
static void shift(ops_arrays *a, void (*arrays)(const int64_t *, ops_arrays *), const int64_t *z) {
  ops_arrays rest = {.count = 0};
  arrays(z, &rest);
  ops_add_array(a, rest.out, OPS_CONSTANT);
  for (int i = 0; i < rest.count; i++) ops_add_array(a, rest.n[i], rest.role[i]);
  a->out = rest.out;
}
static void add_residual(const ops_kind *kind, const int64_t *z, const double *const *in, double *out) {
  ops_arrays a = {.count = 0};
  kind->arrays(z, &a);
  kind->reference(z, in + 1, out);
  for (int64_t i = 0; i < a.out; i++) out[i] += in[0][i];
}
static void linear_residual_arrays(const int64_t *z, ops_arrays *a) { shift(a, ops_linear.arrays, z); }
static size_t linear_cpu_workspace(const int64_t *z, int threads) { return ops_linear.workspace(z, threads); }
static void linear_residual_reference(const int64_t *z, const double *const *in, double *out) {
  add_residual(&ops_linear, z, in, out);
}
static void linear_residual_cpu(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  ops_linear.forward(c, z, in + 1, out, kept); /* gradients do not look at the output */
}
static void linear_residual_cpu_back(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                                     const float *kept, const float *dy, float *const *d, bool accumulate) {
  ops_linear.backward(c, z, in + 1, out, kept, dy, d + 1, accumulate);
}
static const ops_kind linear_residual_kind = {"linear+residual",    linear_residual_arrays,
                                              linear_cpu_workspace, linear_residual_reference,
                                              linear_residual_cpu,  linear_residual_cpu_back};
static void linear_residual_forward(const cuda_call *c) { linear_run(c, c->in + 1, c->in[0]); }
static void linear_residual_backward(const cuda_call *c) { linear_back(c, c->in + 1, c->d + 1); }
static double linear_residual_before(const int64_t *z, const float *const *in, int64_t i, double y) {
  return largest_part(y, z[3] ? in[3] + i % (z[2] + z[4]) : NULL, in[0] + i);
}
static const cuda_ops_kind linear_residual = {.rows = &ops_linear,
                                              .cpu = &linear_residual_kind,
                                              .weights = 12,
                                              .y_on = 1,
                                              .tunes = true,
                                              .before = linear_residual_before,
                                              .products = 6,
                                              .workspace = linear_workspace,
                                              .forward = linear_residual_forward,
                                              .backward = linear_residual_backward};

/* Siblings: z[5] linear layers without bias that read the same, their weights, outputs and gradients one behind the
 * other. All in one call, however that does it; as a batch; and each by itself. */
enum { MOST_SIBLINGS = 4 };
static void siblings_arrays(const int64_t *z, ops_arrays *a) {
  ops_arrays one = {.count = 0};
  ops_linear.arrays(z, &one);
  ops_add_array(a, one.n[0], OPS_CONSTANT);
  ops_add_array(a, z[5] * one.n[1], OPS_WEIGHT);
  a->out = z[5] * one.out;
}
static void siblings_reference(const int64_t *z, const double *const *in, double *out) {
  for (int64_t i = 0; i < z[5]; i++) {
    const double *const one[] = {in[0], in[1] + i * z[1] * z[2]};
    ops_linear.reference(z, one, out + i * z[0] * z[2]);
  }
}
static void siblings_cpu(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  for (int64_t i = 0; i < z[5]; i++) {
    const float *const one[] = {in[0], in[1] + i * z[1] * z[2]};
    ops_linear.forward(c, z, one, out + i * z[0] * z[2], kept);
  }
}
static void siblings_cpu_back(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                              const float *kept, const float *dy, float *const *d, bool accumulate) {
  const kern_linear s = linear_of(z);
  (void)out, (void)kept, (void)accumulate;
  for (int64_t i = 0; i < z[5]; i++)
    kern_linear_weight_gradient(c, &s, in[0], dy + i * z[0] * z[2], d[1] + i * z[1] * z[2], NULL);
}
const ops_kind cuda_ops_siblings = {"siblings",         siblings_arrays, linear_cpu_workspace,
                                    siblings_reference, siblings_cpu,    siblings_cpu_back};

static void siblings_of(const cuda_call *c, const void *const *x, int64_t values, kern_dtype dtype,
                        void *lists[MOST_SIBLINGS]) {
  for (int64_t i = 0; i < c->z[5]; i++) lists[i] = cuda_ops_at(*x, i * values, dtype);
}
static void siblings_forward(const cuda_call *c) {
  const kern_linear s = linear_of(c->z);
  const void *const out = c->out;
  void *w[MOST_SIBLINGS], *y[MOST_SIBLINGS];
  siblings_of(c, &c->in[1], s.in * s.out, c->dtype, w);
  siblings_of(c, &out, s.rows * s.out, c->dtype, y);
  kern_cuda_linears_forward(c->c, &s, (int)c->z[5], c->in[0], (const void *const *)w, y);
}
static void siblings_backward(const cuda_call *c) {
  const kern_linear s = linear_of(c->z);
  const void *const d = c->d[1];
  void *dy[MOST_SIBLINGS], *dw[MOST_SIBLINGS];
  siblings_of(c, &c->dy, s.rows * s.out, c->dtype, dy);
  siblings_of(c, &d, s.in * s.out, c->gradient, dw);
  kern_cuda_linears_weight_gradient(c->c, &s, (int)c->z[5], c->in[0], (const void *const *)dy, dw);
}
static const cuda_ops_kind siblings = {.rows = &cuda_ops_siblings,
                                       .cpu = &cuda_ops_siblings,
                                       .weights = 2,
                                       .tunes = true,
                                       .products = 2,
                                       .workspace = linear_workspace,
                                       .forward = siblings_forward,
                                       .backward = siblings_backward};

static void siblings_batch_forward(const cuda_call *c) {
  const kern_linear s = linear_of(c->z);
  const kern_cuda_gemm size = {.m = s.rows,
                               .n = s.out,
                               .k = s.in,
                               .b_transposed = true,
                               .alpha = 1,
                               .c_dtype = c->dtype,
                               .batch = c->z[5],
                               .b_batch_stride = s.in * s.out,
                               .c_batch_stride = s.rows * s.out};
  kern_cuda_gemm_run(c->c, &size, c->in[0], c->in[1], c->out);
}
static void siblings_batch_backward(const cuda_call *c) {
  const kern_linear s = linear_of(c->z);
  const kern_cuda_gemm size = {.m = s.out,
                               .n = s.in,
                               .k = s.rows,
                               .a_transposed = true,
                               .alpha = 1,
                               .beta = c->c->overwrites ? 0 : 1,
                               .c_dtype = c->gradient,
                               .batch = c->z[5],
                               .a_batch_stride = s.rows * s.out,
                               .c_batch_stride = s.in * s.out};
  kern_cuda_gemm_run(c->c, &size, c->dy, c->in[0], c->d[1]);
}
static const cuda_ops_kind siblings_batch = {.name = "siblings, a batch",
                                             .rows = &cuda_ops_siblings,
                                             .cpu = &cuda_ops_siblings,
                                             .weights = 2,
                                             .tunes = true,
                                             .products = 2,
                                             .workspace = linear_workspace,
                                             .forward = siblings_batch_forward,
                                             .backward = siblings_batch_backward};

static void siblings_singly_forward(const cuda_call *c) {
  const kern_linear s = linear_of(c->z);
  for (int64_t i = 0; i < c->z[5]; i++)
    kern_cuda_linear_forward(c->c, &s, c->in[0], cuda_ops_at(c->in[1], i * s.in * s.out, c->dtype), NULL, NULL,
                             cuda_ops_at(c->out, i * s.rows * s.out, c->dtype));
}
static void siblings_singly_backward(const cuda_call *c) {
  const kern_linear s = linear_of(c->z);
  for (int64_t i = 0; i < c->z[5]; i++)
    kern_cuda_linear_weight_gradient(c->c, &s, c->in[0], cuda_ops_at(c->dy, i * s.rows * s.out, c->dtype),
                                     cuda_ops_at(c->d[1], i * s.in * s.out, c->gradient), NULL);
}
const cuda_ops_kind cuda_ops_siblings_singly = {.name = "siblings, one by one",
                                                .cpu = &cuda_ops_siblings,
                                                .weights = 2,
                                                .tunes = true,
                                                .workspace = linear_workspace,
                                                .forward = siblings_singly_forward,
                                                .backward = siblings_singly_backward};

/* hidden is rounded, and dhidden. */
static size_t lora_workspace(const int64_t *z, kern_dtype dtype) {
  const kern_lora s = lora_of(z);
  return kern_cuda_lora_workspace(&s, dtype);
}
static void lora_forward(const cuda_call *c) {
  const kern_lora s = lora_of(c->z);
  kern_cuda_copy(c->c, s.rows * s.out, c->in[3], c->out);
  kern_cuda_lora_forward(c->c, &s, c->in[0], c->in[1], c->in[2], c->kept, c->out);
}
static void lora_backward(const cuda_call *c) {
  const kern_lora s = lora_of(c->z);
  kern_cuda_lora_input_gradient(c->c, &s, c->in[1], c->in[2], c->dy, c->scratch, c->d[0]);
  if (c->d[1] && c->d[2])
    kern_cuda_lora_weight_gradient(c->c, &s, c->in[0], c->dy, c->kept, c->scratch, c->d[1], c->d[2]);
}
static const cuda_ops_kind lora = {.rows = &ops_lora,
                                   .cpu = &ops_lora,
                                   .weights = 6,
                                   .subsets = {6, 1},
                                   .tunes = true,
                                   .between = 2,
                                   .between_back = 2,
                                   .workspace = lora_workspace,
                                   .forward = lora_forward,
                                   .backward = lora_backward};

static size_t conv_workspace(const int64_t *z, kern_dtype dtype) {
  const kern_conv2d s = conv_of(z);
  return kern_cuda_conv2d_workspace(&s, dtype);
}
static void conv_run(const cuda_call *c, const void *const *in, const void *residual) {
  const kern_conv2d s = conv_of(c->z);
  kern_cuda_conv2d_forward(c->c, &s, in[0], in[1], c->z[10] ? in[2] : NULL, residual, c->out);
}
static void conv_forward(const cuda_call *c) { conv_run(c, c->in, NULL); }
static double conv_before(const int64_t *z, const float *const *in, int64_t i, double y) {
  return largest_part(y, z[10] ? in[2] + i % z[4] : NULL, NULL);
}
static void conv_back(const cuda_call *c, const void *const *in, void *const *d) {
  const kern_conv2d s = conv_of(c->z);
  void *const dbias = c->z[10] ? d[2] : NULL;
  if (d[0]) kern_cuda_conv2d_input_gradient(c->c, &s, in[1], c->dy, d[0], c->accumulate);
  if (d[1] || dbias) kern_cuda_conv2d_weight_gradient(c->c, &s, in[0], c->dy, d[1], dbias);
}
static void conv_backward(const cuda_call *c) { conv_back(c, c->in, c->d); }
/* A gradient may be rounded before it is added: cuDNN gives it so. */
static const cuda_ops_kind conv = {.rows = &ops_conv,
                                   .cpu = &ops_conv,
                                   .weights = 6,
                                   .subsets = {1, 2, 4},
                                   .tunes = true,
                                   .between_back = 1,
                                   .before = conv_before,
                                   .workspace = conv_workspace,
                                   .forward = conv_forward,
                                   .backward = conv_backward};

static void conv_residual_arrays(const int64_t *z, ops_arrays *a) { shift(a, ops_conv.arrays, z); }
static size_t conv_cpu_workspace(const int64_t *z, int threads) { return ops_conv.workspace(z, threads); }
static void conv_residual_reference(const int64_t *z, const double *const *in, double *out) {
  add_residual(&ops_conv, z, in, out);
}
static void conv_residual_cpu(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  ops_conv.forward(c, z, in + 1, out, kept);
}
static void conv_residual_cpu_back(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                                   const float *kept, const float *dy, float *const *d, bool accumulate) {
  ops_conv.backward(c, z, in + 1, out, kept, dy, d + 1, accumulate);
}
static const ops_kind conv_residual_kind = {"conv2d+residual",       conv_residual_arrays, conv_cpu_workspace,
                                            conv_residual_reference, conv_residual_cpu,    conv_residual_cpu_back};
static void conv_residual_forward(const cuda_call *c) { conv_run(c, c->in + 1, c->in[0]); }
static void conv_residual_backward(const cuda_call *c) { conv_back(c, c->in + 1, c->d + 1); }
static double conv_residual_before(const int64_t *z, const float *const *in, int64_t i, double y) {
  return largest_part(y, z[10] ? in[3] + i % z[4] : NULL, in[0] + i);
}
static const cuda_ops_kind conv_residual = {.rows = &ops_conv,
                                            .cpu = &conv_residual_kind,
                                            .weights = 12,
                                            .y_on = 1,
                                            .tunes = true,
                                            .between_back = 1,
                                            .before = conv_residual_before,
                                            .workspace = conv_workspace,
                                            .forward = conv_residual_forward,
                                            .backward = conv_residual_backward};

/* Probabilities are rounded before they multiply v; in backward those, their gradients, and the kept output. */
static size_t attention_workspace(const int64_t *z, kern_dtype dtype) {
  const kern_attention s = attention_of(z);
  return kern_cuda_attention_workspace(&s, dtype);
}
/* in or d, as q, k and v: three arrays, or three slices of one. */
static void slices(const cuda_call *c, const void *const *from, void *to[3]) {
  for (int i = 0; i < 3; i++)
    to[i] = !c->z[5]  ? (void *)(uintptr_t)from[i]
            : from[0] ? cuda_ops_at(from[0], i * c->z[1] * c->z[2], c->dtype)
                      : NULL;
}
static void attention_forward(const cuda_call *c) {
  const kern_attention s = attention_of(c->z);
  void *in[3];
  slices(c, c->in, in);
  kern_cuda_attention_forward(c->c, &s, in[0], in[1], in[2], c->out, c->kept);
}
static void attention_backward(const cuda_call *c) {
  const kern_attention s = attention_of(c->z);
  void *in[3], *d[3];
  slices(c, c->in, in);
  slices(c, (const void *const *)c->d, d);
  kern_cuda_attention_backward(c->c, &s, in[0], in[1], in[2], c->out, c->kept, c->dy, d[0], d[1], d[2], c->accumulate);
}
static const cuda_ops_kind attention = {.rows = &ops_attention,
                                        .cpu = &ops_attention,
                                        .subsets = {1, 2, 4, 5},
                                        .same_kept = true,
                                        .no_kept = true,
                                        .tunes = true,
                                        .between = 3,
                                        .between_back = 5,
                                        .workspace = attention_workspace,
                                        .forward = attention_forward,
                                        .backward = attention_backward};

/* The same where sums may have any order. */
static void attention_backward_any_order(const cuda_call *c) {
  c->c->options.any_order = true;
  attention_backward(c);
  c->c->options.any_order = false;
}
static const cuda_ops_kind attention_any_order = {.name = "attention, any order",
                                                  .rows = &ops_attention,
                                                  .cpu = &ops_attention,
                                                  .subsets = {1, 2, 4, 5},
                                                  .same_kept = true,
                                                  .tunes = true,
                                                  .any_order = true,
                                                  .between = 3,
                                                  .between_back = 5,
                                                  .workspace = attention_workspace,
                                                  .forward = attention_forward,
                                                  .backward = attention_backward_any_order};

/* The kernels of few keys, whatever is faster, backward at the end of the workspace; where they do not take a size, as
 * above. */
const ops_kind cuda_ops_few_keys = {.name = "attention, few keys"};
static kern_attention attention_few_of(const int64_t *z) {
  kern_attention s = attention_of(z);
  s.y_stride = s.heads * s.head_dim;
  if (s.q_stride == 0) s.q_stride = s.k_stride = s.v_stride = s.y_stride;
  return s;
}
static void attention_few_forward(const cuda_call *c) {
  const kern_attention s = attention_few_of(c->z);
  void *in[3];
  slices(c, c->in, in);
  if (kern_attention_few_takes_forward(c->c, &s))
    kern_attention_few_forward(c->c, &s, in[0], in[1], in[2], c->out, c->kept);
  else
    attention_forward(c);
}
static void attention_few_backward(const cuda_call *c) {
  const kern_attention s = attention_few_of(c->z);
  void *in[3], *d[3];
  if (!kern_attention_few_takes_backward(c->c, &s)) {
    attention_backward(c);
    return;
  }
  slices(c, c->in, in);
  slices(c, (const void *const *)c->d, d);
  const kern_cuda_options *o = &c->c->options;
  const size_t before = (o->workspace_bytes - kern_attention_few_workspace(&s)) / 256 * 256;
  const kern_attention_few to = {d[0],       d[1],       d[2],          s.q_stride,
                                 s.k_stride, s.v_stride, c->accumulate, (char *)o->workspace + before};
  kern_attention_few_backward(c->c, &s, in[0], in[1], in[2], c->kept, c->dy, &to);
}
static const cuda_ops_kind attention_few = {.name = "attention, few keys",
                                            .rows = &cuda_ops_few_keys,
                                            .cpu = &ops_attention,
                                            .subsets = {1, 2, 4, 5},
                                            .same_kept = true,
                                            .no_kept = true,
                                            .between = 3,
                                            .between_back = 5,
                                            .workspace = attention_workspace,
                                            .forward = attention_few_forward,
                                            .backward = attention_few_backward};

/* Two products lie between, each way; of a gradient of a matrix, those of x and those of dy. */
static size_t separable_workspace(const int64_t *z, kern_dtype dtype) {
  const kern_separable s = separable_of(z);
  return kern_cuda_separable_workspace(&s, dtype);
}
static void separable_forward(const cuda_call *c) {
  const kern_separable s = separable_of(c->z);
  kern_cuda_separable_forward(c->c, &s, c->in[0], c->in[1], c->in[2], c->in[3], c->out);
}
static void separable_backward(const cuda_call *c) {
  const kern_separable s = separable_of(c->z);
  if (c->d[0])
    kern_cuda_separable_input_gradient(c->c, &s, c->in[1], c->in[2], c->in[3], c->dy, c->d[0], c->accumulate);
  if (c->d[1])
    kern_cuda_separable_weight_gradient(c->c, &s, c->in[0], c->in[1], c->in[2], c->in[3], c->dy, c->d[1], c->d[2],
                                        c->d[3]);
}
static const cuda_ops_kind separable = {.rows = &ops_separable,
                                        .cpu = &ops_separable,
                                        .weights = 14,
                                        .always_adds = true,
                                        .subsets = {1, 14},
                                        .tunes = true,
                                        .between = 3,
                                        .between_back = 5,
                                        .workspace = separable_workspace,
                                        .forward = separable_forward,
                                        .backward = separable_backward};

static size_t group_norm_workspace(const int64_t *z, kern_dtype dtype) {
  const kern_group_norm s = group_norm_of(z);
  return kern_cuda_group_norm_workspace(&s, dtype);
}
static void group_norm_run(const cuda_call *c, bool silu) {
  const kern_group_norm s = group_norm_of(c->z);
  const bool affine = c->z[4] != 0;
  kern_cuda_group_norm_forward(c->c, &s, c->in[0], affine ? c->in[1] : NULL, affine ? c->in[2] : NULL, silu, c->out,
                               c->kept);
}
static void group_norm_repeat(const cuda_call *c, bool silu) {
  const kern_group_norm s = group_norm_of(c->z);
  const bool affine = c->z[4] != 0;
  kern_cuda_group_norm_again(c->c, &s, c->in[0], affine ? c->in[1] : NULL, affine ? c->in[2] : NULL, c->kept, silu,
                             c->out);
}
static void group_norm_back(const cuda_call *c, bool silu) {
  const kern_group_norm s = group_norm_of(c->z);
  const bool affine = c->z[4] != 0;
  kern_cuda_group_norm_backward(c->c, &s, c->in[0], affine ? c->in[1] : NULL, affine ? c->in[2] : NULL, c->kept, c->dy,
                                silu, c->d[0], c->accumulate, affine ? c->d[1] : NULL, affine ? c->d[2] : NULL);
}
static void group_norm_forward(const cuda_call *c) { group_norm_run(c, false); }
static void group_norm_backward(const cuda_call *c) { group_norm_back(c, false); }
static void group_norm_again(const cuda_call *c) { group_norm_repeat(c, false); }
static const cuda_ops_kind group_norm = {.rows = &ops_group_norm,
                                         .cpu = &ops_group_norm,
                                         .weights = 6,
                                         .y_on = 1,
                                         .dx_on_dy = true,
                                         .subsets = {1, 6, 2, 4},
                                         .same_kept = true,
                                         .workspace = group_norm_workspace,
                                         .forward = group_norm_forward,
                                         .backward = group_norm_backward,
                                         .again = group_norm_again};

/* Kept on the CPU: the statistics, then the norm's output. */
static void group_norm_silu_arrays(const int64_t *z, ops_arrays *a) {
  ops_group_norm.arrays(z, a);
  a->kept += a->out;
}
static size_t group_norm_silu_workspace(const int64_t *z, int threads) { return ops_group_norm.workspace(z, threads); }
static void group_norm_silu_reference(const int64_t *z, const double *const *in, double *out) {
  ops_group_norm.reference(z, in, out);
  for (int64_t i = 0; i < z[0] * z[1] * z[2]; i++) out[i] /= 1 + exp(-out[i]);
}
static void group_norm_silu_cpu(kern_context *c, const int64_t *z, const float *const *in, float *out, float *kept) {
  float *const normed = kept + z[0] * z[3] * 2;
  ops_group_norm.forward(c, z, in, normed, kept);
  kern_activation_forward(c, KERN_SILU, z[0] * z[1] * z[2], normed, out);
}
static void group_norm_silu_cpu_back(kern_context *c, const int64_t *z, const float *const *in, const float *out,
                                     const float *kept, const float *dy, float *const *d, bool accumulate) {
  const int64_t n = z[0] * z[1] * z[2];
  float *dnormed = malloc((size_t)n * sizeof *dnormed);
  if (dnormed == NULL) exit(1);
  kern_activation_backward(c, KERN_SILU, n, kept + z[0] * z[3] * 2, dy, dnormed, false);
  ops_group_norm.backward(c, z, in, out, kept, dnormed, d, accumulate);
  free(dnormed);
}
static const ops_kind group_norm_silu_kind = {"group_norm+silu",         group_norm_silu_arrays,
                                              group_norm_silu_workspace, group_norm_silu_reference,
                                              group_norm_silu_cpu,       group_norm_silu_cpu_back};
static void group_norm_silu_forward(const cuda_call *c) { group_norm_run(c, true); }
static void group_norm_silu_backward(const cuda_call *c) { group_norm_back(c, true); }
static void group_norm_silu_again(const cuda_call *c) { group_norm_repeat(c, true); }
static const cuda_ops_kind group_norm_silu = {.rows = &ops_group_norm,
                                              .cpu = &group_norm_silu_kind,
                                              .weights = 6,
                                              .y_on = 1,
                                              .dx_on_dy = true,
                                              .subsets = {1, 6, 2, 4},
                                              .workspace = group_norm_workspace,
                                              .forward = group_norm_silu_forward,
                                              .backward = group_norm_silu_backward,
                                              .again = group_norm_silu_again};

static size_t row_norm_workspace(const int64_t *z, kern_dtype dtype) {
  const kern_row_norm s = row_norm_of(z);
  return kern_cuda_row_norm_workspace(&s, dtype);
}
static void layer_norm_forward(const cuda_call *c) {
  const kern_row_norm s = row_norm_of(c->z);
  const bool affine = c->z[2] != 0;
  kern_cuda_layer_norm_forward(c->c, &s, c->in[0], affine ? c->in[1] : NULL, affine ? c->in[2] : NULL, c->out, c->kept);
}
static void layer_norm_again(const cuda_call *c) {
  const kern_row_norm s = row_norm_of(c->z);
  const bool affine = c->z[2] != 0;
  kern_cuda_layer_norm_again(c->c, &s, c->in[0], affine ? c->in[1] : NULL, affine ? c->in[2] : NULL, c->kept, c->out);
}
static void layer_norm_backward(const cuda_call *c) {
  const kern_row_norm s = row_norm_of(c->z);
  const bool affine = c->z[2] != 0;
  kern_cuda_layer_norm_backward(c->c, &s, c->in[0], affine ? c->in[1] : NULL, c->kept, c->dy, c->d[0], c->accumulate,
                                affine ? c->d[1] : NULL, affine ? c->d[2] : NULL);
}
static const cuda_ops_kind layer_norm = {.rows = &ops_layer_norm,
                                         .cpu = &ops_layer_norm,
                                         .weights = 6,
                                         .y_on = 1,
                                         .dx_on_dy = true,
                                         .subsets = {1, 6, 2, 4},
                                         .same_kept = true,
                                         .workspace = row_norm_workspace,
                                         .forward = layer_norm_forward,
                                         .backward = layer_norm_backward,
                                         .again = layer_norm_again};
static void rms_norm_forward(const cuda_call *c) {
  const kern_row_norm s = row_norm_of(c->z);
  kern_cuda_rms_norm_forward(c->c, &s, c->in[0], c->z[2] ? c->in[1] : NULL, c->out, c->kept);
}
static void rms_norm_again(const cuda_call *c) {
  const kern_row_norm s = row_norm_of(c->z);
  kern_cuda_rms_norm_again(c->c, &s, c->in[0], c->z[2] ? c->in[1] : NULL, c->kept, c->out);
}
static void rms_norm_backward(const cuda_call *c) {
  const kern_row_norm s = row_norm_of(c->z);
  kern_cuda_rms_norm_backward(c->c, &s, c->in[0], c->z[2] ? c->in[1] : NULL, c->kept, c->dy, c->d[0], c->accumulate,
                              c->z[2] ? c->d[1] : NULL);
}
static const cuda_ops_kind rms_norm = {.rows = &ops_rms_norm,
                                       .cpu = &ops_rms_norm,
                                       .weights = 2,
                                       .y_on = 1,
                                       .dx_on_dy = true,
                                       .subsets = {1, 2},
                                       .same_kept = true,
                                       .workspace = row_norm_workspace,
                                       .forward = rms_norm_forward,
                                       .backward = rms_norm_backward,
                                       .again = rms_norm_again};

const cuda_ops_kind *const cuda_ops_products[] = {
    &linear,    &siblings,      &siblings_batch,  &linear_residual,     &lora,
    &conv,      &conv_residual, &attention,       &attention_any_order, &attention_few,
    &separable, &group_norm,    &group_norm_silu, &layer_norm,          &rms_norm,
    NULL};
