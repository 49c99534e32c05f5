/* What the files of kernels/cuda/ share; in C and in CUDA C++. */
#ifndef DP_KERNELS_CUDA_CONTEXT_H
#define DP_KERNELS_CUDA_CONTEXT_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a file keeps from call to call: how each size was found to be fastest. */
typedef struct kern_cuda_cache kern_cuda_cache;

struct kern_cuda {
  kern_cuda_options options;
  cudaStream_t stream;
  int sm_count; /* of the part */
  bool is_part; /* not all of the device's */
  int device;
  char about_device[384]; /* to whom it asks what is remembered */
  bool tuning;
  bool overwrites; /* gradients of weights */
  cublasLtHandle_t blas;
  cudnnHandle_t dnn;
  kern_cuda_cache *gemms, *convs, *attentions; /* of products.c, conv.c, attention.c; NULL: none yet */
  cudaEvent_t timer[2];                        /* for tuning */
  dp_error trouble;                            /* status DP_OK: none */
};

/* Each file's own; NULL is fine. */
void kern_cuda_gemms_free(kern_cuda_cache *cache);
void kern_cuda_convs_free(kern_cuda_cache *cache);
void kern_cuda_attentions_free(kern_cuda_cache *cache);
/* How the sizes met so far are run: words for kern_cuda_describe. */
void kern_cuda_attentions_describe(const kern_cuda_cache *cache, char *out, size_t bytes);

/* Keeps the first failure. `what` is the call's text. True: it went well. */
bool kern_cuda_check(kern_cuda *context, cudaError_t result, const char *what);
bool kern_cuda_check_blas(kern_cuda *context, cublasStatus_t result, const char *what);
bool kern_cuda_check_dnn(kern_cuda *context, cudnnStatus_t result, const char *what);
/* A plan of cuDNN on the context's stream. On parts of an H200, beside other processes, an engine that had run on the
 * part before failed to launch now and then (cudaErrorInvalidClusterSize). Why is not known; three things stand against
 * it, of which the counts below may tell which it is that helps:
 *
 *   dropped   What other libraries left of errors in this thread goes first. Engines ask cudaGetLastError whether their
 *             kernel was launched, and would take for theirs what cuBLASLt got for an algorithm whose clusters the part
 *             cannot launch. (Where such are tried, errors are dropped, too, for the sake of our own kernels.)
 *   lock      Plans run one at a time in a process: a kernel's attributes, as whether its clusters may be larger than
 *             8, are those of all threads, and engines set them before they launch. By its documents cuDNN is safe in
 *             several threads with a handle each, as here. It costs nothing in steps that are replayed.
 *   mended    A launch that fails is tried once more. First kernels of a plan may so run twice, into its workspace.
 *             This one is needed: of test_cuda_exec's plans of sd15 614 launches failed, with no error left, and all
 *             went well the second time (cuDNN 9.19, H200); none was dropped.
 *
 * Engines whose clusters a part can never launch are none of these: all are run before they are chosen. */
cudnnStatus_t kern_cuda_execute(kern_cuda *context, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack);
typedef struct kern_cuda_plan_counts { /* of this process, so far */
  uint64_t dropped, failed, mended;    /* errors left by others; launches that failed; of them, went well the second time */
  cudaError_t dropped_last, failed_last;
} kern_cuda_plan_counts;
void kern_cuda_count_plans(kern_cuda_plan_counts *counts);
/* No other thread's plan runs until it is released; a thread's own ones do. For what must find kernels' attributes as the
 * plans of the thread have set them: a graph of their launches is checked against these when it is instantiated ("too
 * many resources requested for launch", seen on four parts of an H200 whose workers recorded side by side). */
void kern_cuda_hold_plans(void);
void kern_cuda_release_plans(void);
void kern_cuda_fail(kern_cuda *context, dp_status status, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;
#define KERN_CUDA_TRY(context, call) kern_cuda_check((context), (call), #call)
#define KERN_BLAS_TRY(context, call) kern_cuda_check_blas((context), (call), #call)
#define KERN_DNN_TRY(context, call) kern_cuda_check_dnn((context), (call), #call)
static inline bool kern_cuda_failed(const kern_cuda *context) { return context->trouble.status != DP_OK; }

/* Milliseconds of a call on the stream: the median of a few. Waits for the device: never while a stream is captured. */
float kern_cuda_time_ms(kern_cuda *context, void (*call)(void *data), void *data);

#ifdef __cplusplus
}
#endif
#endif
