/* What the table of ops has no row for: products of every form, flat arrays, the loss in place, pieces that are left
 * out, infinities. The optimiser is in tests/cuda_adamw.c. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_arrays.h"

/* ---- products ---- */

static void try_gemm(kern_dtype dtype, kern_dtype c_dtype, int form, int64_t batch, float alpha, float beta, int64_t m,
                     int64_t n, int64_t k, int64_t gap) {
  const bool at = form & 1, bt = form & 2;
  kern_cuda_gemm g = {.m = m,
                      .n = n,
                      .k = k,
                      .a_transposed = at,
                      .b_transposed = bt,
                      .a_stride = (at ? m : k) + gap,
                      .b_stride = (bt ? k : n) + gap,
                      .c_stride = n + gap,
                      .alpha = alpha,
                      .beta = beta,
                      .c_dtype = c_dtype,
                      .batch = batch};
  g.a_batch_stride = (at ? k : m) * g.a_stride;
  g.b_batch_stride = (bt ? n : k) * g.b_stride;
  g.c_batch_stride = m * g.c_stride;
  const int64_t count = batch > 0 ? batch : 1;
  array a = draw(dtype, count * g.a_batch_stride), b = draw(dtype, count * g.b_batch_stride);
  array c = draw(c_dtype, count * g.c_batch_stride);
  double *want = cuda_suite_host((size_t)c.n * sizeof *want);
  double *products = cuda_suite_host((size_t)c.n * sizeof *products);
  for (int64_t i = 0; i < c.n; i++) want[i] = c.host[i], products[i] = 0;
  for (int64_t l = 0; l < count; l++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        const float *x = a.host + l * g.a_batch_stride, *y = b.host + l * g.b_batch_stride;
        double sum = 0;
        for (int64_t p = 0; p < k; p++)
          sum +=
              (double)x[at ? p * g.a_stride + i : i * g.a_stride + p] * y[bt ? j * g.b_stride + p : p * g.b_stride + j];
        const int64_t to = l * g.c_batch_stride + i * g.c_stride + j;
        products[to] = fabs(alpha * sum);
        want[to] = alpha * sum + (beta != 0 ? beta * want[to] : 0);
      }
  if (beta == 0) { /* what lies there is not read */
    for (int64_t l = 0; l < count; l++)
      for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) c.host[l * g.c_batch_stride + i * g.c_stride + j] = NAN;
    put(&c);
  }
  kern_cuda *context_ = context(dtype, dtype, 1 << 25);
  if (context_ != NULL) {
    kern_cuda_gemm_run(context_, &g, a.device, b.device, c.device);
    char what[48];
    (void)snprintf(what, sizeof what, "%s to %s%s%s batch %d beta %g", dtype == KERN_FP32 ? "fp32" : "bf16",
                   c_dtype == KERN_FP32 ? "fp32" : "bf16", at ? " A^T" : "", bt ? " B^T" : "", (int)batch,
                   (double)beta);
    if (cuda_suite_went_well(context_, stream(), what))
      hold_sum(what, &c, want, beta != 0 ? products : NULL, ops_tolerance(k));
  }
  free(want);
  free(products);
  drop(&a), drop(&b), drop(&c);
}
static void special_gemm(void) {
  const kern_dtype types[3][2] = {{KERN_FP32, KERN_FP32}, {KERN_BF16, KERN_BF16}, {KERN_BF16, KERN_FP32}};
  for (int t = 0; t < 3; t++)
    for (int form = 0; form < 4; form++) {
      try_gemm(types[t][0], types[t][1], form, 0, 1, 0, 64, 96, 128, 0);
      try_gemm(types[t][0], types[t][1], form, 1, 0.5f, 1, 33, 17, 29, 0);
      try_gemm(types[t][0], types[t][1], form, 3, 0.75f, 0, 40, 24, 16, 8);
      try_gemm(types[t][0], types[t][1], form, 2, -1, 1, 7, 5, 9, 3);
      try_gemm(types[t][0], types[t][1], form, 0, 1, 1, 1, 1280, 320, 0);
    }
}

/* ---- flat arrays ---- */

static const int64_t counts[] = {1, 2, 7, 8, 1023, 100003, 1 << 20};
enum { COUNTS = sizeof counts / sizeof *counts };

static void special_flat(void) {
  for (int i = 0; i < COUNTS; i++)
    for (int d = 0; d < 2; d++) {
      const kern_dtype dtype = d ? KERN_BF16 : KERN_FP32, other = d ? KERN_FP32 : KERN_BF16;
      const int64_t n = counts[i];
      array x = draw(dtype, n), same = empty(dtype, n), converted = empty(other, n), back = empty(dtype, n);
      array filled = empty(dtype, n), grown = draw(dtype, n);
      double *want = cuda_suite_host((size_t)n * sizeof *want), squares = 0;
      kern_cuda *c = context(dtype, dtype, kern_cuda_sum_squares_workspace(n));
      void *sum = NULL;
      if (c == NULL || cudaMalloc(&sum, sizeof(double)) != cudaSuccess) return;
      kern_cuda_copy(c, n, x.device, same.device);
      kern_cuda_convert(c, n, dtype, x.device, other, converted.device);
      kern_cuda_convert(c, n, dtype, x.device, dtype, back.device);
      kern_cuda_fill(c, dtype, n, 0.375f, filled.device);
      kern_cuda_axpy(c, dtype, n, -0.75f, x.device, grown.device);
      kern_cuda_sum_squares(c, dtype, n, x.device, sum);
      if (cuda_suite_went_well(c, stream(), "flat arrays")) {
        for (int64_t j = 0; j < n; j++) want[j] = x.host[j], squares += want[j] * want[j];
        hold("copy", &same, want, 0);
        hold("convert to its own dtype", &back, want, 0);
        hold("convert", &converted, want, 0);
        for (int64_t j = 0; j < n; j++) want[j] = 0.375;
        hold("fill", &filled, want, 0);
        for (int64_t j = 0; j < n; j++) want[j] = grown.host[j] - 0.75 * x.host[j];
        hold("axpy", &grown, want, 1e-6);
        double got = NAN;
        (void)cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost);
        if (fabs(got - squares) <= 1e-6 * squares)
          cuda_suite_pass();
        else
          cuda_suite_fail("sum of squares", "of %lld: got %.12g, expected %.12g", (long long)n, got, squares);
      }
      (void)cudaFree(sum);
      free(want);
      drop(&x), drop(&same), drop(&converted), drop(&back), drop(&filled), drop(&grown);
    }
}

static void special_not_finite(void) {
  const float bad[] = {NAN, INFINITY, -INFINITY};
  for (int d = 0; d < 2; d++)
    for (int i = 0; i < COUNTS; i++) {
      const kern_dtype dtype = d ? KERN_BF16 : KERN_FP32;
      array x = draw(dtype, counts[i]);
      uint32_t *flag = NULL;
      kern_cuda *c = context(dtype, dtype, 0);
      if (c == NULL || cudaMalloc((void **)&flag, sizeof *flag) != cudaSuccess) return;
      for (int b = -1; b < 3; b++) {
        const uint32_t before = 2;
        uint32_t got = 0;
        const int64_t at = b == 0 ? 0 : b == 1 ? counts[i] - 1 : counts[i] / 2;
        const float kept = x.host[at];
        if (b >= 0) x.host[at] = bad[b];
        put(&x);
        upload(flag, &before, sizeof before);
        kern_cuda_find_not_finite(c, counts[i], x.device, flag);
        x.host[at] = kept;
        if (!cuda_suite_went_well(c, stream(), "not finite")) continue;
        (void)cudaMemcpy(&got, flag, sizeof got, cudaMemcpyDeviceToHost);
        if (got == (b >= 0 ? 3u : 2u))
          cuda_suite_pass();
        else
          cuda_suite_fail("not finite", "of %lld values with %g: the flag is %u", (long long)counts[i],
                          b >= 0 ? (double)bad[b] : 0, got);
      }
      (void)cudaFree(flag);
      drop(&x);
    }
}

/* ---- the loss ---- */

static void special_loss(void) {
  enum { BATCH = 3, N = 1031 };
  const kern_loss size = {BATCH, N, 0.5};
  for (int d = 0; d < 2; d++) {
    const kern_dtype dtype = d ? KERN_BF16 : KERN_FP32;
    kern_cuda *c = context(dtype, dtype, kern_cuda_loss_workspace(&size));
    array p = draw(dtype, BATCH * N), target = draw(dtype, BATCH * N), weights = draw(KERN_FP32, BATCH);
    double host[1 + BATCH] = {2.5}, got[1 + BATCH], want[1 + BATCH] = {2.5}, slopes[BATCH * N], *device = NULL;
    if (c == NULL || cudaMalloc((void **)&device, sizeof host) != cudaSuccess) return;
    upload(device, host, sizeof host);
    kern_cuda_loss_forward(c, &size, p.device, target.device, weights.device, device + 1, device);
    kern_cuda_loss_backward(c, &size, p.device, target.device, weights.device, p.device);
    for (int i = 0; i < BATCH * N; i++) {
      const double difference = (double)p.host[i] - target.host[i];
      want[1 + i / N] += difference * difference / N;
      slopes[i] = 2 * 0.5 * weights.host[i / N] * difference / N;
    }
    for (int b = 0; b < BATCH; b++) want[0] += 0.5 * weights.host[b] * want[1 + b];
    if (cuda_suite_went_well(c, stream(), "loss")) {
      (void)cudaMemcpy(got, device, sizeof got, cudaMemcpyDeviceToHost);
      for (int i = 0; i < 1 + BATCH; i++)
        if (fabs(got[i] - want[i]) <= 1e-6 * fabs(want[i]))
          cuda_suite_pass();
        else
          cuda_suite_fail(i ? "squares" : "sum, added", "got %.10g, expected %.10g", got[i], want[i]);
      hold("gradient on prediction", &p, slopes, 1e-6);
    }
    (void)cudaFree(device);
    drop(&p), drop(&target), drop(&weights);
  }
}

/* ---- the rest ---- */

/* Two pieces and eight; one that is NULL leaves its place as it is; adding. */
static void special_pieces(void) {
  for (int d = 0; d < 2; d++)
    for (int pieces = 2; pieces <= KERN_CUDA_MAX_PIECES; pieces += 6)
      for (int adds_ = 0; adds_ < 2; adds_++) {
        const kern_dtype dtype = d ? KERN_BF16 : KERN_FP32;
        enum { OUTER = 37 };
        int64_t widths[KERN_CUDA_MAX_PIECES], width = 0;
        array piece[KERN_CUDA_MAX_PIECES];
        void *lists[KERN_CUDA_MAX_PIECES];
        for (int i = 0; i < pieces; i++) width += widths[i] = 8 * (i + 1) + (adds_ ? i : 0);
        array whole = draw(dtype, OUTER * width);
        double *want = cuda_suite_host((size_t)whole.n * sizeof *want);
        for (int64_t i = 0; i < whole.n; i++) want[i] = whole.host[i];
        for (int64_t i = 0, at = 0; i < pieces; at += widths[i++]) {
          piece[i] = draw(dtype, OUTER * widths[i]);
          lists[i] = i == 1 ? NULL : piece[i].device;
          for (int64_t j = 0; j < OUTER * widths[i] && i != 1; j++) {
            double *to = want + j / widths[i] * width + at + j % widths[i];
            *to = piece[i].host[j] + (adds_ ? *to : 0);
          }
        }
        kern_cuda *c = context(dtype, dtype, 0);
        if (c == NULL) return;
        kern_cuda_concat(c, OUTER, pieces, widths, (const void *const *)lists, whole.device, adds_);
        if (cuda_suite_went_well(c, stream(), "concat")) hold("concat, one left out", &whole, want, 1e-7);
        put(&whole);
        kern_cuda_split(c, OUTER, pieces, widths, whole.device, lists, adds_);
        if (cuda_suite_went_well(c, stream(), "split"))
          for (int64_t i = 0, at = 0; i < pieces; at += widths[i++]) {
            for (int64_t j = 0; j < OUTER * widths[i]; j++)
              want[j] = i == 1 ? piece[i].host[j]
                               : whole.host[j / widths[i] * width + at + j % widths[i]] +
                                     (adds_ ? (double)piece[i].host[j] : 0);
            hold("split, one left out", &piece[i], want, 1e-7);
          }
        free(want);
        drop(&whole);
        for (int i = 0; i < pieces; i++) drop(&piece[i]);
      }
}

/* Timesteps as they are: up to 1000, in both dtypes. */
static void special_time(void) {
  enum { STEPS = 5, CHANNELS = 320 };
  const float steps[STEPS] = {0, 1, 250.5f, 999, 1000};
  for (int d = 0; d < 2; d++) {
    kern_cuda *c = context(KERN_BF16, KERN_BF16, 0);
    array t = draw(KERN_FP32, STEPS), y = empty(d ? KERN_BF16 : KERN_FP32, STEPS * CHANNELS);
    double want[STEPS * CHANNELS];
    memcpy(t.host, steps, sizeof steps);
    put(&t);
    const kern_time_embedding size = {STEPS, CHANNELS, true, 0, 1, 10000};
    if (c == NULL) return;
    kern_cuda_time_embedding_forward(c, &size, t.device, y.dtype, y.device);
    for (int i = 0; i < STEPS * CHANNELS; i++) {
      const int half = CHANNELS / 2, at = i % CHANNELS;
      const double angle = (double)steps[i / CHANNELS] * exp(-log(10000) * (at % half) / half);
      want[i] = at < half ? cos(angle) : sin(angle);
    }
    /* an angle of 1000 is off by 1000 * 2^-24 and as much by its frequency */
    if (cuda_suite_went_well(c, stream(), "time embedding")) hold("time embedding", &y, want, 1000 * ldexp(4, -24));
    drop(&t), drop(&y);
  }
}

/* NaN and infinity in an input reach the output. */
static void special_passes_on(void) {
  enum { N = 4096 };
  for (int d = 0; d < 2; d++)
    for (int which = 0; which < 4; which++) {
      const kern_dtype dtype = d ? KERN_BF16 : KERN_FP32;
      const kern_row_norm norm = {N / 64, 64, 1e-5f};
      kern_cuda *c = context(dtype, dtype, kern_cuda_row_norm_workspace(&norm, dtype));
      array x = draw(dtype, N), y = empty(dtype, N), statistics = empty(KERN_FP32, N);
      x.host[1234] = NAN;
      put(&x);
      clear(y.device, 0, N * 2);
      if (c == NULL) return;
      if (which == 0) kern_cuda_activation_forward(c, KERN_SILU, N, x.device, y.device);
      if (which == 1) kern_cuda_gated_forward(c, KERN_GEGLU, N / 128, 64, x.device, y.device);
      if (which == 2) kern_cuda_add(c, N, x.device, x.device, y.device);
      if (which == 3) kern_cuda_layer_norm_forward(c, &norm, x.device, NULL, NULL, y.device, statistics.device);
      if (cuda_suite_went_well(c, stream(), "NaN")) {
        float *got = get(&y);
        const int at = which == 1 ? 1234 / 128 * 64 + 1234 % 128 % 64 : 1234;
        cuda_suite_check(isnan(got[at]), "NaN", "does not reach the output");
        cuda_suite_check(!isnan(got[0]), "NaN", "reaches what has no part in it");
        free(got);
      }
      drop(&x), drop(&y), drop(&statistics);
    }
}

static void hold_like(const char *what, const array *a, const array *other) {
  float *values = get(other);
  double *want = cuda_suite_host((size_t)a->n * sizeof *want);
  for (int64_t i = 0; i < a->n; i++) want[i] = values[i];
  hold(what, a, want, 1e-6);
  free(values);
  free(want);
}

/* Both at once are what one by one are, the gradient in place of the output's; whole accesses, and others. */
static void special_activation_both(void) {
  static const kern_activation kinds[] = {KERN_SILU, KERN_GELU, KERN_GELU_TANH};
  static const int64_t sizes[] = {300 * 128, 77 * 20, 35};
  for (int which = 0; which < 18; which++) {
    const kern_dtype dtype = which & 1 ? KERN_FP32 : KERN_BF16;
    const kern_activation kind = kinds[which / 2 % 3];
    const int64_t n = sizes[which / 6];
    kern_cuda *c = context(dtype, dtype, 0);
    if (c == NULL) return;
    array x = draw(dtype, n), dy = draw(dtype, n), dx = empty(dtype, n), y[2] = {empty(dtype, n), empty(dtype, n)};
    kern_cuda_activation_forward(c, kind, n, x.device, y[0].device);
    kern_cuda_activation_backward(c, kind, n, x.device, dy.device, dx.device, false);
    kern_cuda_activation_both(c, kind, n, x.device, dy.device, dy.device, y[1].device);
    if (cuda_suite_went_well(c, stream(), "activation, both")) {
      hold_like("activation, both: y", &y[1], &y[0]);
      hold_like("activation, both: dx", &dy, &dx);
    }
    drop(&x), drop(&dy), drop(&dx), drop(&y[0]), drop(&y[1]);
  }
}

/* dbias[channels] of a row: += that of a bias that x had added. */
static void add_activation_bias(kern_activation kind, int64_t channels, const float *x, const float *dy,
                                double *dbias) {
  for (int64_t c = 0; c < channels; c++) {
    const double z = x[c], s = 1 / (1 + exp(-z));
    const double inner = sqrt(2 / acos(-1)), t = tanh(inner * (z + 0.044715 * z * z * z));
    const double tanh_slope = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * inner * (1 + 3 * 0.044715 * z * z);
    dbias[c] += dy[c] * (kind == KERN_SILU ? s * (1 + z * (1 - s)) : tanh_slope);
  }
}

/* A plain activation's gradient in place of its output's, with that of a bias: as gated ones below. */
static void special_activation_bias(void) {
  static const int64_t sizes[][2] = {{300, 128},  {77, 20},   {5, 7},      {1, 64},
                                     {333, 2056}, {97, 2062}, {40001, 40}, {2, 12288}};
  for (int which = 0; which < 64; which++) {
    const kern_dtype dtype = which & 1 ? KERN_FP32 : KERN_BF16, gradient = which & 2 ? KERN_FP32 : dtype;
    const kern_activation kind = which & 2 ? KERN_GELU_TANH : KERN_SILU;
    const bool overwrites = which & 4, both = (which >> 1 & 1) == (which >> 2 & 1);
    const int64_t rows = sizes[which / 8][0], channels = sizes[which / 8][1], n = rows * channels;
    kern_cuda *c = context(dtype, gradient, kern_cuda_activation_bias_workspace(rows, channels, dtype));
    if (c == NULL) return;
    array x = draw(dtype, n), dy = draw(dtype, n), dx = empty(dtype, n), y[2] = {empty(dtype, n), empty(dtype, n)};
    array dbias = overwrites ? empty(gradient, channels) : draw(gradient, channels);
    double *want = cuda_suite_host((size_t)channels * sizeof *want);
    for (int64_t i = 0; i < channels; i++) want[i] = overwrites ? 0 : dbias.host[i];
    for (int64_t r = 0; r < rows; r++)
      add_activation_bias(kind, channels, x.host + r * channels, dy.host + r * channels, want);
    kern_cuda_overwrite(c, overwrites);
    kern_cuda_activation_both(c, kind, n, x.device, dy.device, dx.device, y[0].device);
    kern_cuda_activation_bias(c, kind, rows, channels, x.device, dy.device, dy.device, both ? y[1].device : NULL,
                              dbias.device);
    kern_cuda_overwrite(c, false);
    if (cuda_suite_went_well(c, stream(), "activation, bias")) {
      if (both) hold_like("activation, bias: y", &y[1], &y[0]);
      hold_like("activation, bias: dx", &dy, &dx);
      hold("activation, bias: dbias", &dbias, want, dtype == KERN_BF16 ? 1e-4 : 1e-5);
    }
    free(want);
    drop(&x), drop(&dy), drop(&dx), drop(&dbias), drop(&y[0]), drop(&y[1]);
  }
}

/* Both at once are what one by one are; rows of whole accesses, and others. */
static void special_gated_both(void) {
  static const int64_t sizes[][2] = {{300, 128}, {77, 20}, {5, 7}};
  for (int which = 0; which < 12; which++) {
    const kern_dtype dtype = which & 1 ? KERN_FP32 : KERN_BF16;
    const kern_gated kind = which & 2 ? KERN_GEGLU : KERN_SWIGLU;
    const int64_t rows = sizes[which / 4][0], channels = sizes[which / 4][1], n = rows * channels;
    kern_cuda *c = context(dtype, dtype, 0);
    if (c == NULL) return;
    array x = draw(dtype, 2 * n), dy = draw(dtype, n), y[2] = {empty(dtype, n), empty(dtype, n)};
    array dx[2] = {empty(dtype, 2 * n), empty(dtype, 2 * n)};
    kern_cuda_gated_forward(c, kind, rows, channels, x.device, y[0].device);
    kern_cuda_gated_backward(c, kind, rows, channels, x.device, dy.device, dx[0].device, false);
    kern_cuda_gated_both(c, kind, rows, channels, x.device, dy.device, dx[1].device, y[1].device);
    if (cuda_suite_went_well(c, stream(), "gated, both")) {
      hold_like("gated, both: y", &y[1], &y[0]);
      hold_like("gated, both: dx", &dx[1], &dx[0]);
    }
    drop(&x), drop(&dy);
    for (int i = 0; i < 2; i++) drop(&y[i]), drop(&dx[i]);
  }
}

/* dbias[2 channels] of a row: += that of a bias that x had added. */
static void add_gated_bias(kern_gated kind, int64_t channels, const float *x, const float *dy, double *dbias) {
  for (int64_t c = 0; c < channels; c++) {
    const double z = x[channels + c], s = 1 / (1 + exp(-z)), phi = 0.5 * erfc(-z * sqrt(0.5));
    const double value = kind == KERN_GEGLU ? z * phi : z * s;
    const double slope = kind == KERN_GEGLU ? phi + z * exp(-0.5 * z * z) / sqrt(2 * acos(-1)) : s * (1 + z * (1 - s));
    dbias[c] += dy[c] * value;
    dbias[channels + c] += dy[c] * x[c] * slope;
  }
}

/* A gated activation's gradient with that of a bias, with y and without, added and overwriting: several strips of
 * columns, several slabs of rows, less than one, rows that are not of whole accesses. */
static void special_gated_bias(void) {
  static const int64_t sizes[][2] = {{300, 128}, {77, 20}, {5, 7}, {1, 64}, {333, 1096}, {97, 1030}};
  for (int which = 0; which < 48; which++) {
    const kern_dtype dtype = which & 1 ? KERN_FP32 : KERN_BF16, gradient = which & 2 ? KERN_FP32 : dtype;
    const kern_gated kind = which & 2 ? KERN_GEGLU : KERN_SWIGLU;
    const bool overwrites = which & 4, both = (which >> 1 & 1) == (which >> 2 & 1);
    const int64_t rows = sizes[which / 8][0], channels = sizes[which / 8][1], n = rows * channels;
    kern_cuda *c = context(dtype, gradient, kern_cuda_gated_bias_workspace(rows, channels, dtype));
    if (c == NULL) return;
    array x = draw(dtype, 2 * n), dy = draw(dtype, n), y[2] = {empty(dtype, n), empty(dtype, n)};
    array dx[2] = {empty(dtype, 2 * n), empty(dtype, 2 * n)};
    array dbias = overwrites ? empty(gradient, 2 * channels) : draw(gradient, 2 * channels);
    double *want = cuda_suite_host((size_t)(2 * channels) * sizeof *want);
    for (int64_t i = 0; i < 2 * channels; i++) want[i] = overwrites ? 0 : dbias.host[i];
    for (int64_t r = 0; r < rows; r++)
      add_gated_bias(kind, channels, x.host + r * 2 * channels, dy.host + r * channels, want);
    kern_cuda_overwrite(c, overwrites);
    kern_cuda_gated_both(c, kind, rows, channels, x.device, dy.device, dx[0].device, y[0].device);
    kern_cuda_gated_bias(c, kind, rows, channels, x.device, dy.device, dx[1].device, both ? y[1].device : NULL,
                         dbias.device);
    kern_cuda_overwrite(c, false);
    if (cuda_suite_went_well(c, stream(), "gated, bias")) {
      if (both) hold_like("gated, bias: y", &y[1], &y[0]);
      hold_like("gated, bias: dx", &dx[1], &dx[0]);
      hold("gated, bias: dbias", &dbias, want, dtype == KERN_BF16 ? 1e-4 : 1e-5);
    }
    free(want);
    drop(&x), drop(&dy), drop(&dbias);
    for (int i = 0; i < 2; i++) drop(&y[i]), drop(&dx[i]);
  }
}

/* A failure is kept and told once, and the context goes on. */
static void special_status(void) {
  kern_cuda *c = context(KERN_BF16, KERN_BF16, 0);
  dp_error error = DP_ERROR_INIT;
  char line[256] = "";
  if (c == NULL) return;
  cuda_suite_check(kern_cuda_status(c, &error) == DP_OK, "status", "there was no failure");
  kern_cuda_describe(c, line);
  cuda_suite_check(line[0] != 0 && strchr(line, '\n') == NULL, "describe", "not one line");
}

const cuda_special cuda_specials[] = {{"gemm", special_gemm},
                                      {"flat arrays", special_flat},
                                      {"not finite", special_not_finite},
                                      {"adamw step", cuda_special_adamw},
                                      {"exchange means", cuda_special_exchange},
                                      {"loss in place", special_loss},
                                      {"pieces", special_pieces},
                                      {"time steps", special_time},
                                      {"NaN", special_passes_on},
                                      {"remembered", cuda_special_remember},
                                      {"conv2d's weights by products", cuda_special_shifts},
                                      {"siblings, in ways that are given", cuda_special_siblings},
                                      {"activation, both", special_activation_both},
                                      {"activation, bias", special_activation_bias},
                                      {"gated, both", special_gated_both},
                                      {"gated, bias", special_gated_bias},
                                      {"status", special_status},
                                      {NULL, NULL}};
