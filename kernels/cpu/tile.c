#include "kernels/cpu/tile.h"

#include <stdatomic.h>
#include <string.h>

#include "kernels/cpu/vector.h"

#if defined(__GNUC__) && !defined(__clang__)
#define FUSED optimize("fp-contract=fast")
#define UNROLL _Pragma("GCC unroll 16")
#else
#define FUSED
#define UNROLL _Pragma("clang loop unroll(full)")
#pragma clang fp contract(fast)
#endif

/* Memory is aligned to floats only. */
typedef float vector4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float vector8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float vector16 __attribute__((vector_size(64), aligned(4), may_alias));

/* Tiles of ROWS rows and VECTORS vectors of LANES columns. */
#define FINISH(vector, lanes, tile_rows, vectors)                                           \
  UNROLL for (int i = 0; i < (tile_rows); i++) UNROLL for (int v = 0; v < (vectors); v++) { \
    float *c = call->c[i] + v * (lanes);                                                    \
    vector value = sum[i][v] * call->alpha;                                                 \
    if (call->bias != NULL) value += *(const vector *)(call->bias + v * (lanes));           \
    if (call->add) value += *(const vector *)c;                                             \
    *(vector *)c = value;                                                                   \
  }
#define TILES(name, target, vector, lanes, tile_rows, vectors)                                               \
  target static void name##_rows(const kern_tile_call *call) {                                               \
    vector sum[tile_rows][vectors] = {0};                                                                    \
    const float *b = call->b, *const *rows = call->rows;                                                     \
    for (int64_t t = 0; t < call->taps; t++, rows += (tile_rows)) {                                          \
      const float *a[tile_rows];                                                                             \
      UNROLL for (int i = 0; i < (tile_rows); i++) a[i] = rows[i];                                           \
      for (int64_t l = 0; l < call->k; l++, b += (vectors) * (lanes)) {                                      \
        vector of_b[vectors];                                                                                \
        UNROLL for (int v = 0; v < (vectors); v++) of_b[v] = *(const vector *)(b + v * (lanes));             \
        UNROLL for (int i = 0; i < (tile_rows); i++) UNROLL for (int v = 0; v < (vectors); v++) sum[i][v] += \
            a[i][l] * of_b[v];                                                                               \
      }                                                                                                      \
    }                                                                                                        \
    FINISH(vector, lanes, tile_rows, vectors)                                                                \
  }                                                                                                          \
  target static void name##_columns(const kern_tile_call *call) {                                            \
    vector sum[tile_rows][vectors] = {0};                                                                    \
    const float *b = call->b, *a = call->columns;                                                            \
    for (int64_t l = 0; l < call->k; l++, b += (vectors) * (lanes), a += call->stride) {                     \
      vector of_b[vectors];                                                                                  \
      UNROLL for (int v = 0; v < (vectors); v++) of_b[v] = *(const vector *)(b + v * (lanes));               \
      UNROLL for (int i = 0; i < (tile_rows); i++) UNROLL for (int v = 0; v < (vectors); v++) sum[i][v] +=   \
          a[i] * of_b[v];                                                                                    \
    }                                                                                                        \
    FINISH(vector, lanes, tile_rows, vectors)                                                                \
  }

#if defined(__x86_64__) && defined(__GNUC__)
#define AVX512 __attribute__((target("avx512f,avx512vl,fma"), FUSED))
#define AVX2 __attribute__((target("avx2,fma"), FUSED))
TILES(avx512_32, AVX512, vector16, 16, 8, 2)
TILES(avx512_16, AVX512, vector16, 16, 8, 1)
TILES(avx512_8, AVX512, vector8, 8, 8, 1)
TILES(avx2_16, AVX2, vector8, 8, 6, 2)
TILES(avx2_8, AVX2, vector8, 8, 6, 1)
static bool has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif
#define PLAIN __attribute__((FUSED))
TILES(plain_8, PLAIN, vector4, 4, 6, 2)
TILES(plain_4, PLAIN, vector4, 4, 6, 1)
static bool always(void) { return true; }

static const kern_tiles all[] = {
#if defined(__x86_64__) && defined(__GNUC__)
    {"tiles for AVX-512",
     has_avx512,
     true,
     8,
     {{32, avx512_32_rows, avx512_32_columns},
      {16, avx512_16_rows, avx512_16_columns},
      {8, avx512_8_rows, avx512_8_columns}}},
    {"tiles for AVX2", has_avx2, true, 6, {{16, avx2_16_rows, avx2_16_columns}, {8, avx2_8_rows, avx2_8_columns}}},
#endif
    {"plain tiles", always, false, 6, {{8, plain_8_rows, plain_8_columns}, {4, plain_4_rows, plain_4_columns}}},
};

static _Atomic(const kern_tiles *) chosen;

const kern_tiles *kern_tiles_all(int index) { return (size_t)index < sizeof all / sizeof *all ? &all[index] : NULL; }

void kern_tiles_choose(const kern_tiles *tiles) { atomic_store(&chosen, tiles); }

const kern_tiles *kern_tiles_get(void) {
  const kern_tiles *tiles = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (tiles != NULL) return tiles;
  tiles = all;
  while (!tiles->supported()) tiles++;
  atomic_store_explicit(&chosen, tiles, memory_order_relaxed);
  return tiles;
}

/* 4 x 4 values in registers: four rows of b become four columns of `packed`. */
static void transpose4(const float *b, int64_t stride, float *packed, int width) {
  const vector4 r0 = *(const vector4 *)b, r1 = *(const vector4 *)(b + stride);
  const vector4 r2 = *(const vector4 *)(b + 2 * stride), r3 = *(const vector4 *)(b + 3 * stride);
  const vector4 low01 = {r0[0], r1[0], r0[1], r1[1]}, high01 = {r0[2], r1[2], r0[3], r1[3]};
  const vector4 low23 = {r2[0], r3[0], r2[1], r3[1]}, high23 = {r2[2], r3[2], r2[3], r3[3]};
  *(vector4 *)packed = (vector4){low01[0], low01[1], low23[0], low23[1]};
  *(vector4 *)(packed + width) = (vector4){low01[2], low01[3], low23[2], low23[3]};
  *(vector4 *)(packed + 2 * width) = (vector4){high01[0], high01[1], high23[0], high23[1]};
  *(vector4 *)(packed + 3 * width) = (vector4){high01[2], high01[3], high23[2], high23[3]};
}

enum { COPIED = 16 };

KERN_CLONES static void copy_rows(int64_t k, int64_t width, const float *b, int64_t stride, float *packed) {
  for (int64_t l = 0; l < k; l++, b += stride, packed += width)
    for (int64_t j = 0; j < width; j += COPIED) {
      KERN_INDEPENDENT
      for (int i = 0; i < COPIED; i++) packed[j + i] = b[j + i];
    }
}

void kern_tile_pack(int64_t k, int64_t columns, int width, bool transposed, const float *b, int64_t stride,
                    float *packed) {
  enum { LINE = 16 };
  if (columns > width) columns = width;
  if (!transposed && columns == width && width % COPIED == 0) {
    copy_rows(k, width, b, stride, packed);
    return;
  }
  if (!transposed) {
    for (int64_t l = 0; l < k; l++, packed += width) {
      memcpy(packed, b + l * stride, (size_t)columns * sizeof *packed);
      for (int64_t j = columns; j < width; j++) packed[j] = 0;
    }
    return;
  }
  const int64_t whole = columns / 4 * 4, depth = k / 4 * 4;
  for (int64_t first = 0; first < depth;
       first += LINE) /* each line of memory is read once, wherever the next row's lies */
    for (int64_t j = 0; j < whole; j += 4)
      for (int64_t l = first; l < depth && l < first + LINE; l += 4)
        transpose4(b + j * stride + l, stride, packed + l * width + j, width);
  for (int64_t l = 0; l < k; l++)
    for (int64_t j = l < depth ? whole : 0; j < width; j++) packed[l * width + j] = j < columns ? b[j * stride + l] : 0;
}

void kern_tile_run(const kern_tiles *tiles, int width, const kern_tile_call *call, int64_t rows, int64_t columns) {
  const int all_columns = tiles->widths[width].columns;
  const kern_tile run = call->rows != NULL ? tiles->widths[width].of_rows : tiles->widths[width].of_columns;
  if (rows >= tiles->rows && columns >= all_columns) {
    run(call);
    return;
  }
  float spare[KERN_TILE_ROWS * KERN_TILE_COLUMNS];
  float *c[KERN_TILE_ROWS];
  for (int i = 0; i < tiles->rows; i++) c[i] = spare + i * all_columns;
  kern_tile_call apart = *call;
  apart.c = c;
  apart.bias = NULL;
  apart.add = false;
  float whole[KERN_TILE_ROWS * KERN_TILE_DEPTH];
  if (call->rows == NULL && rows < tiles->rows) { /* a tile reads all its rows */
    kern_tile_pack(call->k, rows, tiles->rows, false, call->columns, call->stride, whole);
    apart.columns = whole;
    apart.stride = tiles->rows;
  }
  run(&apart);
  if (columns > all_columns) columns = all_columns;
  if (rows > tiles->rows) rows = tiles->rows;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      float value = c[i][j];
      if (call->bias != NULL) value += call->bias[j];
      if (call->add) value += call->c[i][j];
      call->c[i][j] = value;
    }
}
