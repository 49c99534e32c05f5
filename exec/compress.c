#include "exec/compress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "plan/memory.h"

/* ---- sizes ---- */

static kern_separable down_size(const plan_compressor *c) {
  return (kern_separable){.batch = c->batch,
                          .height = c->dims[1],
                          .width = c->dims[2],
                          .in = c->dims[0],
                          .out_height = c->kept[1],
                          .out_width = c->kept[2],
                          .out = c->kept[0]};
}

static kern_separable up_size(const plan_compressor *c) {
  return (kern_separable){.batch = c->batch,
                          .height = c->kept[1],
                          .width = c->kept[2],
                          .in = c->kept[0],
                          .out_height = c->dims[1],
                          .out_width = c->dims[2],
                          .out = c->dims[0]};
}

int64_t exec_compress_kept(const plan_compressor *c) { return c->batch * c->kept[0] * c->kept[1] * c->kept[2]; }

int64_t exec_compress_longest(const plan_compressor *c) {
  int64_t longest = 0;
  for (int d = 0; d < 3; d++)
    if (c->dims[d] > longest) longest = c->dims[d];
  return longest;
}

size_t exec_compress_workspace(const plan_program *program, const exec_math *math, graph_dtype dtype, int threads) {
  size_t most = 0;
  for (int i = 0; i < program->compressor_count; i++) {
    const kern_separable sizes[] = {down_size(&program->compressors[i]), up_size(&program->compressors[i])};
    for (int s = 0; s < 2; s++) {
      const size_t bytes = math->project_workspace(&sizes[s], dtype, threads);
      if (bytes > most) most = bytes;
    }
  }
  return most;
}

size_t exec_compress_shown_each(const plan_compressor *c, graph_dtype dtype) {
  return (size_t)((c->parameters * graph_dtype_bytes(dtype) + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT);
}

size_t exec_compress_shown_bytes(const plan_program *program, graph_dtype dtype, int rank) {
  const plan_plan *plan = program->plan;
  size_t bytes = 0;
  for (int i = 0; i < program->compressor_count; i++) {
    const plan_compressor *c = &program->compressors[i];
    if (plan->chunks[plan_chunk_of(plan, (size_t)c->down_unit)].rank == rank)
      bytes += exec_compress_shown_each(c, dtype);
  }
  return bytes > 0 ? bytes + PLAN_ALIGNMENT : 0; /* the first begins on a boundary */
}

void exec_compress_matrices(const plan_compressor *c, graph_dtype dtype, void *first, void *matrices[3]) {
  char *next = first;
  for (int d = 0; d < 3; d++) {
    matrices[d] = next;
    next += plan_compressor_matrix(c, d) * graph_dtype_bytes(dtype);
  }
}

/* ---- there and back ---- */

void exec_compress_pack(const exec_projector *p, const void *whole, void *packed) {
  const kern_separable size = down_size(p->compressor);
  p->math->project(p->kern, &size, p->matrices, whole, packed);
}

void exec_compress_restore(const exec_projector *p, const void *packed, void *whole) {
  const kern_separable size = up_size(p->compressor);
  p->math->project(p->kern, &size, p->matrices, packed, whole);
}

void exec_compress_restore_backward(const exec_projector *p, const void *packed, const void *dwhole, void *dpacked) {
  const kern_separable size = up_size(p->compressor);
  p->math->project_input_gradient(p->kern, &size, p->matrices, dwhole, dpacked, false);
  if (p->gradients[0]) p->math->project_weight_gradient(p->kern, &size, p->matrices, packed, dwhole, p->gradients);
}

void exec_compress_pack_backward(const exec_projector *p, const void *whole, const void *dpacked, void *dwhole,
                                 bool accumulate) {
  const kern_separable size = down_size(p->compressor);
  p->math->project_input_gradient(p->kern, &size, p->matrices, dpacked, dwhole, accumulate);
  if (p->gradients[0]) p->math->project_weight_gradient(p->kern, &size, p->matrices, whole, dpacked, p->gradients);
}

/* ---- the fit ---- */

/* sum += a a^T of a[n, k] (or a^T a of a[k, n]); in doubles from a product in fp32. */
static void add_product(kern_context *kern, int64_t n, int64_t k, int64_t stride, bool transposed, const float *a,
                        float *scratch, double *sum) {
  const kern_gemm size = {.m = n,
                          .n = n,
                          .k = k,
                          .a_transposed = transposed,
                          .b_transposed = !transposed,
                          .a_stride = stride,
                          .b_stride = stride,
                          .c_stride = n,
                          .alpha = 1};
  kern_gemm_run(kern, &size, a, a, scratch);
  for (int64_t i = 0; i < n * n; i++) sum[i] += (double)scratch[i];
}

void exec_compress_gather(kern_context *kern, const plan_compressor *c, const float *whole, double *const moments[3],
                          float *scratch) {
  const int64_t channels = c->dims[0], height = c->dims[1], width = c->dims[2], row = width * channels;
  add_product(kern, channels, c->batch * height * width, channels, true, whole, scratch, moments[0]);
  for (int64_t b = 0; b < c->batch; b++) {
    const float *x = whole + b * height * row;
    add_product(kern, height, row, row, false, x, scratch, moments[1]);
    for (int64_t h = 0; h < height; h++)
      add_product(kern, width, channels, channels, false, x + h * row, scratch, moments[2]);
  }
}

/* Gram-Schmidt, twice for safety; a vector that depends on the others becomes 0. */
static void make_orthonormal(int64_t n, int64_t kept, double *vectors) {
  for (int64_t i = 0; i < kept; i++) {
    double *v = vectors + i * n;
    for (int pass = 0; pass < 2; pass++)
      for (int64_t j = 0; j < i; j++) {
        double dot = 0;
        for (int64_t x = 0; x < n; x++) dot += v[x] * vectors[j * n + x];
        for (int64_t x = 0; x < n; x++) v[x] -= dot * vectors[j * n + x];
      }
    double square = 0;
    for (int64_t x = 0; x < n; x++) square += v[x] * v[x];
    const double scale = square > 1e-300 ? 1 / sqrt(square) : 0;
    for (int64_t x = 0; x < n; x++) v[x] *= scale;
  }
}

/* vectors[kept, n]: the leading eigenvectors' space of a symmetric moment matrix. */
static void iterate(int64_t n, int64_t kept, const double *moment, double *vectors, double *next) {
  enum { ITERATIONS = 30 };
  dp_random random;
  dp_random_init(&random, 1, (uint64_t)n);
  for (int64_t i = 0; i < kept * n; i++) vectors[i] = dp_random_uniform(&random) - 0.5;
  make_orthonormal(n, kept, vectors);
  for (int round = 0; round < ITERATIONS && kept < n; round++) {
    for (int64_t i = 0; i < kept; i++)
      for (int64_t x = 0; x < n; x++) {
        double sum = 0;
        for (int64_t y = 0; y < n; y++) sum += moment[x * n + y] * vectors[i * n + y];
        next[i * n + x] = sum;
      }
    memcpy(vectors, next, (size_t)(kept * n) * sizeof *vectors);
    make_orthonormal(n, kept, vectors);
  }
}

dp_status exec_compress_fit(const plan_compressor *c, double *const moments[3], float *down, float *up,
                            dp_error *error) {
  for (int d = 0; d < 3; d++) {
    const int64_t n = c->dims[d], kept = c->kept[d];
    double *vectors = malloc(2 * (size_t)(kept * n) * sizeof *vectors);
    if (!vectors) return dp_fail_memory(error);
    iterate(n, kept, moments[d], vectors, vectors + kept * n);
    for (int64_t i = 0; i < kept; i++)
      for (int64_t x = 0; x < n; x++) {
        down[i * n + x] = (float)vectors[i * n + x];
        up[x * kept + i] = (float)vectors[i * n + x];
      }
    free(vectors);
    down += plan_compressor_matrix(c, d);
    up += plan_compressor_matrix(c, d);
  }
  return DP_OK;
}

double exec_compress_psnr(int64_t n, const float *whole, const float *restored) {
  double least = whole[0], most = whole[0], square = 0;
  for (int64_t i = 0; i < n; i++) {
    const double off = (double)whole[i] - restored[i];
    if (whole[i] < least) least = whole[i];
    if (whole[i] > most) most = whole[i];
    square += off * off;
  }
  const double error = sqrt(square / (double)n);
  if (error == 0) return EXEC_PSNR_EXACT;
  return 20 * log10(fmax(most - least, 1e-300) / error);
}
