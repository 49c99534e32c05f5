/* Matrix products, cut into tiles by their sizes alone. */
#include "kernels/cpu/context.h"
#include "kernels/cpu/vector.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_OPENBLAS
#include <cblas.h>

const char *kern_gemm_name(void) { return openblas_get_config(); }

void kern_gemm_serial(const kern_gemm *s, const float *a, const float *b, float *c) {
  if (s->m == 0 || s->n == 0) return;
  cblas_sgemm(CblasRowMajor, s->a_transposed ? CblasTrans : CblasNoTrans, s->b_transposed ? CblasTrans : CblasNoTrans,
              (blasint)s->m, (blasint)s->n, (blasint)s->k, s->alpha, a, (blasint)s->a_stride, b, (blasint)s->b_stride,
              s->beta, c, (blasint)s->c_stride);
}

#else

const char *kern_gemm_name(void) { return "built in"; }

/* c[n] += b[n] * factor */
KERN_CLONES static void add_row(int64_t n, float factor, const float *b, float *c) {
  KERN_INDEPENDENT
  for (int64_t j = 0; j < n; j++) c[j] += factor * b[j];
}

/* Rows of B are added to rows of C; where B is transposed, columns of 8 rows of B are gathered first. */
void kern_gemm_serial(const kern_gemm *s, const float *a, const float *b, float *c) {
  enum { BLOCK = 64 };
  float gathered[BLOCK];
  for (int64_t i = 0; i < s->m; i++)
    for (int64_t j = 0; j < s->n; j++) {
      float *value = &c[i * s->c_stride + j];
      *value = s->beta == 0 ? 0 : *value * s->beta;
    }
  for (int64_t j0 = 0; j0 < s->n; j0 += BLOCK) {
    const int64_t width = kern_min(BLOCK, s->n - j0);
    for (int64_t l = 0; l < s->k; l++) {
      const float *row = b + l * s->b_stride + j0;
      if (s->b_transposed) {
        for (int64_t j = 0; j < width; j++) gathered[j] = b[(j0 + j) * s->b_stride + l];
        row = gathered;
      }
      for (int64_t i = 0; i < s->m; i++)
        add_row(width, s->alpha * (s->a_transposed ? a[l * s->a_stride + i] : a[i * s->a_stride + l]), row,
                c + i * s->c_stride + j0);
    }
  }
}

#endif

typedef struct gemm_job {
  const kern_gemm *size;
  const float *a, *b, *bias;
  float *c;
  int64_t tile_m, tile_n, tiles_n;
} gemm_job;

static void gemm_part(const void *data, int64_t index, int thread) {
  (void)thread;
  const gemm_job *j = data;
  kern_gemm s = *j->size;
  const int64_t m = index / j->tiles_n * j->tile_m, n = index % j->tiles_n * j->tile_n;
  s.m = kern_min(j->tile_m, s.m - m);
  s.n = kern_min(j->tile_n, s.n - n);
  float *c = j->c + m * s.c_stride + n;
  if (j->bias != NULL) {
    for (int64_t i = 0; i < s.m; i++) memcpy(c + i * s.c_stride, j->bias + n, (size_t)s.n * sizeof *c);
    s.beta = 1;
  }
  kern_gemm_serial(&s, j->a + (s.a_transposed ? m : m * s.a_stride), j->b + (s.b_transposed ? n * s.b_stride : n), c);
}

/* Half of x, rounded up to a multiple of 16. */
static int64_t half(int64_t x) { return (x / 2 + 15) / 16 * 16; }

/* A tile's operands are packed once more, so tiles are cut only while they keep work for about 50 microseconds, and the
 * longer side first. */
void kern_gemm_bias(kern_context *context, const kern_gemm *size, const float *a, const float *b, const float *bias,
                    float *c) {
  enum { MAX_TILES = 16, MIN_SIDE = 128 };
  const double min_products = 1 << 21;
  gemm_job job = {.size = size, .a = a, .b = b, .bias = bias, .c = c, .tile_m = size->m, .tile_n = size->n};
  if (size->m == 0 || size->n == 0) return;
  for (;;) {
    const int64_t tiles = kern_ceil_div(size->m, job.tile_m) * kern_ceil_div(size->n, job.tile_n);
    if (tiles * 2 > MAX_TILES || (double)job.tile_m * (double)job.tile_n * (double)size->k < 2 * min_products) break;
    int64_t *const longer = job.tile_m >= job.tile_n ? &job.tile_m : &job.tile_n;
    if (*longer < 2 * MIN_SIDE) break;
    *longer = half(*longer);
  }
  job.tiles_n = kern_ceil_div(size->n, job.tile_n);
  kern_parallel(context, kern_ceil_div(size->m, job.tile_m) * job.tiles_n, gemm_part, &job);
}

void kern_gemm_run(kern_context *context, const kern_gemm *size, const float *a, const float *b, float *c) {
  kern_gemm_bias(context, size, a, b, NULL, c);
}
