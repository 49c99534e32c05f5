/* What products, convolutions and separable projections share, inside kernels/cuda/. */
#ifndef DP_KERNELS_CUDA_PRODUCTS_H
#define DP_KERNELS_CUDA_PRODUCTS_H

#include "kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuBLAS' own choice for this generation. More is not used, so that the algorithm depends on the sizes alone. */
#define KERN_CUDA_PRODUCT_BYTES ((size_t)32 << 20)

static inline size_t kern_cuda_round_up(size_t bytes) { return (bytes + 255) & ~(size_t)255; }
static inline size_t kern_cuda_larger(size_t a, size_t b) { return a > b ? a : b; }
static inline int64_t kern_cuda_or_dense(int64_t stride, int64_t width) { return stride > 0 ? stride : width; }

/* C = alpha op(A) op(B) + beta R + bias: R is `residual`, which lies as C does and may be C, or C itself where it is
 * NULL; bias[n], of C's dtype, may be NULL, and is for one product alone, not a batch. */
void kern_cuda_product(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, const void *bias,
                       const void *residual, void *c, void *workspace, size_t workspace_bytes);

/* As that without bias and residual, and sums[m], of C's dtype, of the rows of op(A). False: nothing was done, for the
 * two by themselves are the way, or nothing was timed. */
bool kern_cuda_product_with_sums(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, void *c,
                                 void *sums, void *workspace, size_t workspace_bytes);

/* Siblings: size->batch products, of whose operands one may have a batch stride of 0: it is the same for all. As one
 * call, where that has been timed to be faster than one after another; false: nothing was done. */
bool kern_cuda_product_siblings(kern_cuda *context, const kern_cuda_gemm *size, const void *a, const void *b, void *c,
                                void *workspace, size_t workspace_bytes);

/* ---- bias.cu ---- */

/* out[columns] = or += sum over rows of x[rows, columns]; stride in values. */
size_t kern_cuda_column_sums_workspace(int64_t rows, int64_t columns);
void kern_cuda_column_sums(kern_cuda *context, int64_t rows, int64_t columns, int64_t stride, kern_dtype x_dtype,
                           const void *x, kern_dtype out_dtype, bool accumulate, void *out, void *workspace);
/* out[columns] = or += sum over slabs of partial[slabs, columns]. */
void kern_cuda_sum_slabs(kern_cuda *context, int64_t slabs, int64_t columns, const float *partial, kern_dtype out_dtype,
                         bool accumulate, void *out);
/* y[rows, columns] = x + bias + residual, all of y's stride and of the context's dtype; bias and residual may each be
 * NULL; in place on x or residual. */
void kern_cuda_add_bias(kern_cuda *context, int64_t rows, int64_t columns, int64_t stride, const void *x,
                        const void *bias, const void *residual, void *y);
/* y[n] += x[n], each of its dtype. */
void kern_cuda_add_to(kern_cuda *context, int64_t n, kern_dtype x_dtype, const void *x, kern_dtype y_dtype, void *y);

#ifdef __cplusplus
}
#endif
#endif
