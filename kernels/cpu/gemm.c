/* Matrix products, cut into parts by their sizes alone. Where the machine has wide vectors the tiles of tile.h do the
 * work, elsewhere OpenBLAS, and tiles without it.
 */
#include <stdio.h>

#include "kernels/cpu/context.h"
#include "kernels/cpu/tile.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_OPENBLAS
#include <cblas.h>
#endif

const char *kern_gemm_name(void) {
  const kern_tiles *tiles = kern_tiles_get();
#ifdef HAVE_OPENBLAS
  if (!tiles->fast) return openblas_get_config();
#endif
  return tiles->name;
}

/* Of A, in the second cache while all columns of B pass by; on the stack where they are packed. Whole tiles. */
enum {
  BLOCK_VALUES = 65536,
  LEAST_DEPTH = KERN_TILE_DEPTH / 4,
  WHOLE_ROWS = 24,
  PACKED_GAP = 16,
  PACKED_VALUES = BLOCK_VALUES + BLOCK_VALUES / LEAST_DEPTH * PACKED_GAP
};

/* A's rows [i, end) and columns [l, l + k), at `a`: a[row * stride + column], transposed a[column * stride + row]. */
typedef struct block {
  int64_t i, end, l, k, stride;
  const float *a;
} block;

typedef struct product {
  const kern_gemm *size;
  const kern_tiles *tiles;
  const float *a, *b, *bias;
  float *c;
} product;

/* Lines that lie a multiple of 4 KiB apart want the same few places of the first cache, and a column that has each
 * value in another page has none of them at hand: such blocks are packed. */
static bool lies_badly(const kern_gemm *s) {
  enum { PAGE_VALUES = 1024 };
  return s->a_transposed ? s->a_stride >= PAGE_VALUES : s->a_stride % PAGE_VALUES == 0;
}

static void find_block(const product *p, block *b, float *packed) {
  const kern_gemm *s = p->size;
  b->a = p->a + (s->a_transposed ? b->l * s->a_stride + b->i : b->i * s->a_stride + b->l);
  b->stride = s->a_stride;
  if (!lies_badly(s)) return;
  const int64_t rows = b->end - b->i, count = s->a_transposed ? b->k : rows, width = s->a_transposed ? rows : b->k;
  const int64_t stride = width + PACKED_GAP;
  for (int64_t r = 0; r < count; r++) memcpy(packed + r * stride, b->a + r * b->stride, (size_t)width * sizeof *packed);
  b->a = packed;
  b->stride = stride;
}

/* The block times a panel of B, which is columns [j, j + its width) of C. */
static void run_panel(const product *p, const block *b, int64_t j, int width, const float *panel) {
  const kern_gemm *s = p->size;
  const int tile_rows = p->tiles->rows;
  const float *rows[KERN_TILE_ROWS];
  float *c[KERN_TILE_ROWS];
  kern_tile_call call = {.taps = 1, .k = b->k, .stride = b->stride, .b = panel, .c = c, .alpha = s->alpha};
  call.add = b->l > 0 || s->beta != 0;
  call.bias = p->bias != NULL && b->l == 0 ? p->bias + j : NULL;
  if (!s->a_transposed) call.rows = rows;
  for (int64_t i = 0; i < b->end - b->i; i += tile_rows) {
    const int64_t count = kern_min(tile_rows, b->end - b->i - i);
    for (int r = 0; r < count; r++) c[r] = p->c + (b->i + i + r) * s->c_stride + j;
    if (s->a_transposed)
      call.columns = b->a + i;
    else
      for (int r = 0; r < tile_rows; r++) rows[r] = b->a + (i + kern_min(r, count - 1)) * b->stride;
    kern_tile_run(p->tiles, width, &call, count, s->n - j);
  }
}

static void scale_c(const kern_gemm *s, float *c) {
  for (int64_t i = 0; i < s->m; i++)
    for (int64_t j = 0; j < s->n; j++) c[i * s->c_stride + j] *= s->beta;
}

static void run_block(const product *p, const block *b) {
  const kern_gemm *s = p->size;
  _Alignas(64) float panel[KERN_TILE_DEPTH * KERN_TILE_COLUMNS];
  for (int64_t j = 0; j < s->n;) {
    const int width = kern_tile_width(p->tiles, s->n - j), columns = p->tiles->widths[width].columns;
    const float *from = p->b + (s->b_transposed ? j * s->b_stride + b->l : b->l * s->b_stride + j);
    kern_tile_pack(b->k, s->n - j, columns, s->b_transposed, from, s->b_stride, panel);
    run_panel(p, b, j, width, panel);
    j += columns;
  }
}

static void run_tiles(const product *p) {
  const kern_gemm *s = p->size;
  float packed[PACKED_VALUES];
  if (s->beta != 0 && s->beta != 1) scale_c(s, p->c);
  /* C is passed over once for each range of k: few, and as even as they can be */
  const int64_t depth = kern_ceil_div(kern_max(1, s->k), kern_ceil_div(kern_max(1, s->k), KERN_TILE_DEPTH));
  for (int64_t l = 0; l == 0 || l < s->k; l += depth) { /* once where k is 0, too */
    const int64_t k = kern_min(depth, s->k - l);
    const int64_t rows = BLOCK_VALUES / kern_max(LEAST_DEPTH, k) / WHOLE_ROWS * WHOLE_ROWS;
    for (int64_t i = 0; i < s->m; i += rows) {
      block b = {.i = i, .end = kern_min(s->m, i + rows), .l = l, .k = k};
      find_block(p, &b, packed);
      run_block(p, &b);
    }
  }
}

/* C = alpha op(A) op(B) + bias, or + beta C where there is none. */
static void run_product(const kern_gemm *s, const float *a, const float *b, const float *bias, float *c) {
  const kern_tiles *tiles = kern_tiles_get();
  if (s->m == 0 || s->n == 0) return;
#ifdef HAVE_OPENBLAS
  if (!tiles->fast) {
    for (int64_t i = 0; bias != NULL && i < s->m; i++) memcpy(c + i * s->c_stride, bias, (size_t)s->n * sizeof *c);
    cblas_sgemm(CblasRowMajor, s->a_transposed ? CblasTrans : CblasNoTrans, s->b_transposed ? CblasTrans : CblasNoTrans,
                (blasint)s->m, (blasint)s->n, (blasint)s->k, s->alpha, a, (blasint)s->a_stride, b, (blasint)s->b_stride,
                bias != NULL ? 1 : s->beta, c, (blasint)s->c_stride);
    return;
  }
#endif
  kern_gemm size = *s;
  if (bias != NULL) size.beta = 0;
  run_tiles(&(product){&size, tiles, a, b, bias, c});
}

void kern_gemm_serial(const kern_gemm *s, const float *a, const float *b, float *c) { run_product(s, a, b, NULL, c); }

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
  run_product(&s, j->a + (s.a_transposed ? m : m * s.a_stride), j->b + (s.b_transposed ? n * s.b_stride : n),
              j->bias != NULL ? j->bias + n : NULL, j->c + m * s.c_stride + n);
}

/* Half of x, rounded up to whole tiles. */
static int64_t half(int64_t x) {
  enum { WHOLE = 96 }; /* of rows and of columns of all tiles */
  return (x / 2 + WHOLE - 1) / WHOLE * WHOLE;
}

/* A part's columns of B are packed once more in each part, so that parts are cut only while they keep work for about 20
 * microseconds, and the longer side first. */
void kern_gemm_bias(kern_context *context, const kern_gemm *size, const float *a, const float *b, const float *bias,
                    float *c) {
  enum { MAX_PARTS = 32, MIN_SIDE = 96 };
  const double min_products = 1 << 20;
  gemm_job job = {.size = size, .a = a, .b = b, .bias = bias, .c = c, .tile_m = size->m, .tile_n = size->n};
  if (size->m == 0 || size->n == 0) return;
  for (;;) {
    const int64_t parts = kern_ceil_div(size->m, job.tile_m) * kern_ceil_div(size->n, job.tile_n);
    if (parts * 2 > MAX_PARTS || (double)job.tile_m * (double)job.tile_n * (double)size->k < 2 * min_products) break;
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
