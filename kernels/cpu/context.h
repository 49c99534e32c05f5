/* Inside kernels/cpu/: the threads of a context, its workspace, and a matrix product of one thread. */
#ifndef DP_KERNELS_CPU_CONTEXT_H
#define DP_KERNELS_CPU_CONTEXT_H

#include <assert.h>
#include <string.h>

#include "kernels/cpu/kern.h"

/* Does part `index` of a job; `thread` is below the context's threads and differs between parts that run at once. */
typedef void (*kern_part)(const void *job, int64_t index, int thread);

/* Runs all parts, in no order; returns when all are done. How a job is cut must not depend on the number of threads. */
void kern_parallel(kern_context *context, int64_t parts, kern_part part, const void *job);

void *kern_workspace(kern_context *context, size_t bytes); /* the block, which must have so many bytes */

/* The product of kern_gemm_run on the calling thread alone. */
void kern_gemm_serial(const kern_gemm *size, const float *a, const float *b, float *c);
/* The product in parts, each begun by setting its rows of C to bias[n] when bias is not NULL (then beta is not read).
 */
void kern_gemm_bias(kern_context *context, const kern_gemm *size, const float *a, const float *b, const float *bias,
                    float *c);

/* result[columns] += sum over rows of x[rows, columns]; with overwrite, = . Needs kern_sum_rows_workspace. */
size_t kern_sum_rows_workspace(int64_t rows, int64_t columns);
void kern_sum_rows(kern_context *context, int64_t rows, int64_t columns, int64_t stride, const float *x, bool overwrite,
                   float *result);

static inline int64_t kern_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t kern_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t kern_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline size_t kern_floats(int64_t n) { return ((size_t)n * sizeof(float) + 63) / 64 * 64; }
static inline int64_t kern_stride(int64_t stride, int64_t width) { return stride == 0 ? width : stride; }

/* Of memory-bound work: values in one part, a few microseconds' worth. */
enum { KERN_PART_VALUES = 16384 };
/* Rows of `width` in one part. */
static inline int64_t kern_part_rows(int64_t width) { return kern_max(1, KERN_PART_VALUES / width); }
/* At most so many partial sums over rows. */
enum { KERN_MAX_PARTIALS = 32 };
static inline int64_t kern_partials(int64_t rows, int64_t width) {
  const int64_t wanted = kern_ceil_div(rows, kern_part_rows(width));
  const int64_t each = kern_ceil_div(rows, kern_min(wanted, KERN_MAX_PARTIALS));
  return kern_ceil_div(rows, each);
}

#endif
