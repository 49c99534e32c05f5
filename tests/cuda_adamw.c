/* The optimiser: clipping, means, masters in halves beside whole ones, and what must leave them as they are. */
#include "kernels/halves.h"
#include "tests/cuda_arrays.h"

/* Parameters as a context of dtype has them: p.host, which is fp32 whatever the dtype, as it is, or in halves, whose
 * low ones are with `low`. */
static array draw_parameters(kern_dtype dtype, int64_t n) {
  array p = draw(KERN_FP32, n);
  p.dtype = dtype;
  return p;
}
static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
static void put_parameters(array *p, array *low) {
  uint16_t *raw = cuda_suite_host((size_t)p->n * 2 * sizeof *raw);
  if (p->dtype == KERN_FP32) put(p);
  for (int64_t i = 0; i < p->n; i++) {
    const uint32_t kept = kern_halves_kept(bits_of(p->host[i]));
    raw[i] = (uint16_t)kern_halves_weight(kept);
    raw[p->n + i] = (uint16_t)kern_halves_low(kept);
  }
  if (p->dtype == KERN_BF16) {
    upload(p->device, raw, (size_t)p->n * sizeof *raw);
    upload(low->device, raw + p->n, (size_t)p->n * sizeof *raw);
  }
  free(raw);
}
/* Their bits; where they are halves, it fails unless both are what the law makes of them. */
static uint32_t *get_parameters(const array *p, const array *low) {
  uint32_t *bits = cuda_suite_host((size_t)p->n * sizeof *bits);
  uint16_t *raw = cuda_suite_host((size_t)p->n * 2 * sizeof *raw);
  int64_t wrong = 0;
  memset(bits, 0xff, (size_t)p->n * sizeof *bits);
  memset(raw, 0xff, (size_t)p->n * 2 * sizeof *raw);
  if (p->dtype == KERN_FP32) {
    (void)cudaMemcpy(bits, p->device, (size_t)p->n * sizeof *bits, cudaMemcpyDeviceToHost);
    free(raw);
    return bits;
  }
  (void)cudaMemcpy(raw, p->device, (size_t)p->n * sizeof *raw, cudaMemcpyDeviceToHost);
  (void)cudaMemcpy(raw + p->n, low->device, (size_t)p->n * sizeof *raw, cudaMemcpyDeviceToHost);
  for (int64_t i = 0; i < p->n; i++) {
    bits[i] = kern_halves_join(raw[i], raw[p->n + i]);
    wrong += kern_halves_kept(bits[i]) != bits[i] || kern_halves_weight(bits[i]) != raw[i];
  }
  if (wrong > 0)
    cuda_suite_fail("weights", "%lld of %lld are not their masters' nearest", (long long)wrong, (long long)p->n);
  else
    cuda_suite_pass();
  free(raw);
  return bits;
}
static void hold_bits(const char *what, int64_t n, const uint32_t *got, const uint32_t *want) {
  int64_t wrong = 0, at = 0;
  for (int64_t i = n - 1; i >= 0; i--)
    if (got[i] != want[i]) wrong++, at = i;
  if (wrong > 0)
    cuda_suite_fail(what, "%lld of %lld differ, the first at %lld: got %08x, expected %08x", (long long)wrong,
                    (long long)n, (long long)at, (unsigned)got[at], (unsigned)want[at]);
  else
    cuda_suite_pass();
}

/* What a step works on, and the arrays of another that begins alike. */
typedef struct trained {
  array p, low, m, v, mean;
} trained;
static trained draw_trained(kern_dtype dtype, int64_t n) {
  trained t = {draw_parameters(dtype, n), empty(KERN_BF16, n), draw(KERN_FP32, n), draw(KERN_FP32, n),
               draw(KERN_FP32, n)};
  for (int64_t i = 0; i < n; i++) t.v.host[i] = fabsf(t.v.host[i]);
  put(&t.v);
  put_parameters(&t.p, &t.low);
  return t;
}
static array like(const array *a, kern_dtype dtype) {
  array b = empty(dtype, a->n);
  memcpy(b.host, a->host, (size_t)a->n * sizeof *a->host);
  if (dtype == a->dtype) put(&b);
  return b;
}
static trained trained_whole(const trained *t) {
  trained other = {like(&t->p, KERN_FP32), empty(KERN_BF16, t->p.n), like(&t->m, KERN_FP32), like(&t->v, KERN_FP32),
                   like(&t->mean, KERN_FP32)};
  put(&other.p);
  return other;
}
static void drop_trained(trained *t) { drop(&t->p), drop(&t->low), drop(&t->m), drop(&t->v), drop(&t->mean); }
static void step_trained(kern_cuda *c, const kern_cuda_adamw *how, const double *norm, const array *g,
                         const trained *t) {
  kern_cuda_adamw_step(c, how, norm, g->device, t->p.device, t->p.dtype == KERN_BF16 ? t->low.device : NULL,
                       t->m.device, t->v.device, how->means_decay > 0 ? t->mean.device : NULL);
}

/* Halves go through a step as whole masters do, to the bit. */
static void compare_with_whole(kern_dtype gradient, const kern_cuda_adamw *how, const double *norm, const array *g,
                               const trained *t, trained *other, const uint32_t *got) {
  kern_cuda *c = context(KERN_FP32, gradient, 0);
  if (c == NULL) return;
  step_trained(c, how, norm, g, other);
  if (!cuda_suite_went_well(c, stream(), "adamw of whole masters")) return;
  const array *const mine[] = {&t->m, &t->v, &t->mean}, *const others[] = {&other->m, &other->v, &other->mean};
  uint32_t *want = get_parameters(&other->p, NULL);
  hold_bits("masters beside whole ones", t->p.n, got, want);
  free(want);
  for (int i = 0; i < 3; i++) {
    float *a = get(mine[i]), *b = get(others[i]);
    cuda_suite_check(memcmp(a, b, (size_t)t->p.n * sizeof *a) == 0, "adamw", "moments or means beside whole masters");
    free(a);
    free(b);
  }
}

static void try_adamw(kern_dtype dtype, kern_dtype gradient, double clip_norm, double norm_square, int64_t n,
                      bool means) {
  kern_cuda *c = context(dtype, gradient, 0);
  array g = draw(gradient, n), masters = empty(KERN_FP32, n);
  trained t = draw_trained(dtype, n), other = trained_whole(&t);
  double *want[4], *norm = NULL;
  for (int i = 0; i < 4; i++) want[i] = cuda_suite_host((size_t)n * sizeof(double));
  if (c == NULL || cudaMalloc((void **)&norm, sizeof *norm) != cudaSuccess) return;
  upload(norm, &norm_square, sizeof norm_square);
  const kern_cuda_adamw how = {
      .settings = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1, .step = 3},
      .n = n,
      .clip_norm = clip_norm,
      .means_decay = means ? 0.75 : 0};
  step_trained(c, &how, norm, &g, &t);
  const bool changes = isfinite(norm_square);
  double scale = clip_norm > 0 ? clip_norm / (sqrt(norm_square) + 1e-6) : 1;
  if (scale > 1) scale = 1;
  for (int64_t i = 0; i < n; i++) {
    double x = t.p.host[i];
    const double slope = scale * g.host[i], first = t.m.host[i] + 0.1 * (slope - t.m.host[i]);
    const double second = 0.99 * t.v.host[i] + 0.01 * slope * slope;
    x *= 1 - 0.01 * 0.1;
    x -= 0.01 / (1 - pow(0.9, 3)) * first / (sqrt(second) / sqrt(1 - pow(0.99, 3)) + 1e-8);
    want[0][i] = changes ? x : t.p.host[i];
    want[1][i] = changes ? first : t.m.host[i];
    want[2][i] = changes ? second : t.v.host[i];
    want[3][i] = changes && means ? t.mean.host[i] + 0.25 * (x - t.mean.host[i]) : t.mean.host[i];
  }
  if (cuda_suite_went_well(c, stream(), "adamw")) {
    uint32_t *bits = get_parameters(&t.p, &t.low);
    upload(masters.device, bits, (size_t)n * sizeof *bits);
    hold("masters", &masters, want[0], 2e-6);
    hold("first moments", &t.m, want[1], 1e-6);
    hold("second moments", &t.v, want[2], 1e-6);
    hold("means", &t.mean, want[3], n > 1 ? 2e-6 : 2e-5); /* one alone may be small beside what it is the sum of */
    if (dtype == KERN_BF16) compare_with_whole(gradient, &how, norm, &g, &t, &other, bits);
    free(bits);
  }
  for (int i = 0; i < 4; i++) free(want[i]);
  (void)cudaFree(norm);
  drop(&g), drop(&masters);
  drop_trained(&t), drop_trained(&other);
}
void cuda_special_adamw(void) {
  const int64_t sizes[] = {1, 7, 4096, 100003};
  for (int mode = 0; mode < 8; mode++)
    for (int i = 0; i < 4; i++) {
      const kern_dtype dtype = mode & 1 ? KERN_BF16 : KERN_FP32, gradient = mode & 2 ? KERN_BF16 : KERN_FP32;
      const bool means = mode & 4;
      try_adamw(dtype, gradient, 0, 9, sizes[i], means);
      try_adamw(dtype, gradient, 1, 9, sizes[i], means);
      try_adamw(dtype, gradient, 5, 9, sizes[i], means);
      try_adamw(dtype, gradient, 1, (double)INFINITY, sizes[i], means);
      try_adamw(dtype, gradient, 1, (double)NAN, sizes[i], means);
      try_adamw(dtype, gradient, 0, (double)NAN, sizes[i], means);
    }
}

/* Bit patterns from all over, ties and their neighbours among them. */
static void fill_patterns(int64_t n, uint32_t shift, float *to) {
  static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (int64_t i = 0; i < n; i++) {
    const uint32_t bits = (uint32_t)i * 2654435761u + shift,
                   kept = i % 2 ? bits : (bits & 0xffff0000u) | low[i / 2 % 6];
    memcpy(&to[i], &kept, sizeof kept);
  }
}

/* Masters and means change places and back, and a step that changes nothing changes no bit. */
static void try_exchange(kern_dtype dtype, int64_t n) {
  kern_cuda *c = context(dtype, KERN_FP32, 0);
  trained t = draw_trained(dtype, n);
  array g = draw(KERN_FP32, n);
  uint32_t *want[2], *got, *means = cuda_suite_host((size_t)n * sizeof *means);
  double *norm = NULL;
  const double one = 1;
  if (c == NULL || cudaMalloc((void **)&norm, sizeof *norm) != cudaSuccess) return;
  upload(norm, &one, sizeof one);
  fill_patterns(n, 0, t.p.host);
  fill_patterns(n, 77, t.mean.host);
  memset(g.host, 0, (size_t)n * sizeof *g.host);
  memset(t.m.host, 0, (size_t)n * sizeof *t.m.host);
  put(&g), put(&t.m), put(&t.mean), put_parameters(&t.p, &t.low);
  for (int i = 0; i < 2; i++) { /* a NaN is kept as one of them, where there are halves */
    const float *from = i ? t.mean.host : t.p.host;
    want[i] = cuda_suite_host((size_t)n * sizeof *want[i]);
    for (int64_t j = 0; j < n; j++)
      want[i][j] = dtype == KERN_BF16 ? kern_halves_kept(bits_of(from[j])) : bits_of(from[j]);
  }
  for (int turn = 0; turn < 2; turn++) {
    kern_cuda_exchange_means(c, n, t.p.device, dtype == KERN_BF16 ? t.low.device : NULL, t.mean.device);
    if (!cuda_suite_went_well(c, stream(), "exchange")) return;
    got = get_parameters(&t.p, &t.low);
    (void)cudaMemcpy(means, t.mean.device, (size_t)n * sizeof *means, cudaMemcpyDeviceToHost);
    hold_bits("means in the place of masters", n, got, want[!turn]);
    if (turn == 0) hold_bits("masters in the place of means", n, means, want[0]);
    for (int64_t j = 0; turn == 1 && j < n; j++) means[j] = dtype == KERN_BF16 ? kern_halves_kept(means[j]) : means[j];
    if (turn == 1) hold_bits("means again", n, means, want[1]);
    free(got);
  }
  const kern_cuda_adamw how = {.settings = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .step = 3}, .n = n};
  step_trained(c, &how, norm, &g, &t);
  if (cuda_suite_went_well(c, stream(), "adamw that rests")) {
    got = get_parameters(&t.p, &t.low);
    for (int64_t j = 0; j < n; j++) got[j] = kern_halves_kept(got[j]), want[0][j] = kern_halves_kept(want[0][j]);
    hold_bits("masters of a step that changes nothing", n, got, want[0]);
    free(got);
  }
  free(want[0]), free(want[1]), free(means);
  (void)cudaFree(norm);
  drop(&g);
  drop_trained(&t);
}
void cuda_special_exchange(void) {
  const int64_t sizes[] = {1, 2, 7, 1023, 1 << 20};
  for (int d = 0; d < 2; d++)
    for (int i = 0; i < 5; i++) try_exchange(d ? KERN_BF16 : KERN_FP32, sizes[i]);
}
