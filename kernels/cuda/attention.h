/* Between attention.c, which chooses, and attention_own.cu, attention_mma.cu and attention_few.cu, our own kernels.
 * Sizes come with strides that are not 0. */
#ifndef DP_KERNELS_CUDA_ATTENTION_H
#define DP_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KERN_ATTENTION_MOST_DIM = 256 };

static inline size_t kern_attention_round(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* What our own backward keeps in the workspace: the dot product of y and dy, fp32, for each query of each head. */
static inline size_t kern_attention_own_workspace(const kern_attention *size) {
  return kern_attention_round((size_t)(size->batch * size->heads * size->q_tokens) * sizeof(float));
}
void kern_attention_own_forward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                const void *v, void *y, float *lse);
void kern_attention_own_backward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                 const void *v, const void *y, const float *lse, const void *dy, void *dq, void *dk,
                                 void *dv, bool accumulate);

/* Those of bf16; delta is that of the workspace, made already. */
void kern_attention_mma_forward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                const void *v, void *y, float *lse);
void kern_attention_mma_backward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                 const void *v, const float *lse, const float *delta, const void *dy, void *dq,
                                 void *dk, void *dv, bool accumulate);

/* ---- attention_few_forward.cu, attention_few.cu: where all keys fit into shared memory; bf16. Backward is one pass.
 * Sums have one order, by the sizes. ---- */

/* Where gradients go; NULL: not wanted. The workspace is on a boundary of 256 bytes. */
typedef struct kern_attention_few {
  void *dq, *dk, *dv;
  int64_t dq_stride, dk_stride, dv_stride;
  bool accumulate;
  void *workspace;
} kern_attention_few;

/* Whether the sizes are for it, on this device. All arrays but lse must be on boundaries of 16 bytes. */
bool kern_attention_few_takes_forward(const kern_cuda *context, const kern_attention *size);
bool kern_attention_few_takes_backward(const kern_cuda *context, const kern_attention *size);
size_t kern_attention_few_workspace(const kern_attention *size); /* of sizes that are not for it: 0 */
void kern_attention_few_forward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                const void *v, void *y, float *lse);
void kern_attention_few_backward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                 const void *v, const float *lse, const void *dy, const kern_attention_few *to);

/* y[rows, width] += x, which is dense; y has a stride. Of the context's dtype. */
void kern_attention_add(kern_cuda *context, int64_t rows, int64_t width, const void *x, void *y, int64_t y_stride);

#ifdef __cplusplus
}
#endif
#endif
