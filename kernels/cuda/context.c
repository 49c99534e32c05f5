#include "kernels/cuda/context.h"

#include "kernels/cuda/libraries.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kern_cuda_fail(kern_cuda *c, dp_status status, const char *format, ...) {
  if (kern_cuda_failed(c)) return;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  (void)dp_fail(&c->trouble, status, "%s", text);
}

bool kern_cuda_check(kern_cuda *c, cudaError_t result, const char *what) {
  if (result == cudaSuccess) return true;
  kern_cuda_fail(c, result == cudaErrorMemoryAllocation ? DP_NO_MEMORY : DP_RUN_FAILED, "%s: %s", what,
                 cudaGetErrorString(result));
  return false;
}

bool kern_cuda_check_blas(kern_cuda *c, cublasStatus_t result, const char *what) {
  if (result == CUBLAS_STATUS_SUCCESS) return true;
  kern_cuda_fail(c, DP_RUN_FAILED, "%s: %s", what, cublasLtGetStatusString(result));
  return false;
}

bool kern_cuda_check_dnn(kern_cuda *c, cudnnStatus_t result, const char *what) {
  if (result == CUDNN_STATUS_SUCCESS) return true;
  char why[256] = "";
  cudnnGetLastErrorString(why, sizeof why);
  kern_cuda_fail(c, DP_RUN_FAILED, "%s: %s: %s", what, cudnnGetErrorString(result), why);
  return false;
}

static void describe_device(kern_cuda *c, const char *name) {
  int driver = 0;
  const size_t blas = cublasLtGetVersion(), dnn = cudnnGetVersion();
  (void)cudaDriverGetVersion(&driver);
  (void)snprintf(c->about_device, sizeof c->about_device,
                 "%s, %d multiprocessors, driver for CUDA %d.%d, cuBLASLt %zu.%zu.%zu, cuDNN %zu.%zu.%zu", name,
                 c->sm_count, driver / 1000, driver % 1000 / 10, blas / 10000, blas / 100 % 100, blas % 100,
                 dnn / 10000, dnn / 100 % 100, dnn % 100);
}

static dp_status make(kern_cuda *c) {
  struct cudaDeviceProp properties;
  if (!KERN_CUDA_TRY(c, cudaGetDevice(&c->device))) return c->trouble.status;
  int count = 0;
  if (!KERN_CUDA_TRY(c, cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, c->device)))
    return c->trouble.status;
  if (c->sm_count <= 0) c->sm_count = count;
  c->is_part = c->sm_count < count;
  if (!KERN_CUDA_TRY(c, cudaGetDeviceProperties(&properties, c->device))) return c->trouble.status;
  describe_device(c, properties.name);
  if (!KERN_BLAS_TRY(c, cublasLtCreate(&c->blas)) || !KERN_DNN_TRY(c, cudnnCreate(&c->dnn)) ||
      !KERN_DNN_TRY(c, cudnnSetStream(c->dnn, c->stream)))
    return c->trouble.status;
  for (int i = 0; i < 2; i++)
    if (!KERN_CUDA_TRY(c, cudaEventCreate(&c->timer[i]))) return c->trouble.status;
  return DP_OK;
}

dp_status kern_cuda_create(const kern_cuda_options *options, kern_cuda **context, dp_error *error) {
  DP_TRY(kern_cuda_load(error));
  kern_cuda *c = calloc(1, sizeof *c);
  if (!c) return dp_fail_memory(error);
  c->options = *options;
  c->stream = options->stream;
  c->sm_count = options->sm_count;
  const dp_status status = make(c);
  if (status != DP_OK) {
    (void)dp_fail(error, status, "%s", c->trouble.text);
    kern_cuda_free(c);
    return status;
  }
  *context = c;
  return DP_OK;
}

void kern_cuda_forget(kern_cuda *c) {
  kern_cuda_gemms_free(c->gemms);
  kern_cuda_convs_free(c->convs);
  kern_cuda_attentions_free(c->attentions);
  c->gemms = c->convs = c->attentions = NULL;
}

void kern_cuda_free(kern_cuda *c) {
  if (!c) return;
  kern_cuda_forget(c);
  for (int i = 0; i < 2; i++)
    if (c->timer[i]) (void)cudaEventDestroy(c->timer[i]);
  if (c->dnn) (void)cudnnDestroy(c->dnn);
  if (c->blas) (void)cublasLtDestroy(c->blas);
  free(c);
}

dp_status kern_cuda_status(kern_cuda *c, dp_error *error) {
  if (!kern_cuda_failed(c)) (void)kern_cuda_check(c, cudaPeekAtLastError(), "a kernel");
  if (!kern_cuda_failed(c)) return DP_OK;
  const dp_status status = dp_fail(error, c->trouble.status, "%s", c->trouble.text);
  c->trouble = (dp_error)DP_ERROR_INIT;
  return status;
}

void kern_cuda_tune(kern_cuda *c, bool on) { c->tuning = on; }

void kern_cuda_overwrite(kern_cuda *context, bool on) { context->overwrites = on; }

void kern_cuda_describe(const kern_cuda *c, char out[256]) {
  char attentions[128];
  kern_cuda_attentions_describe(c->attentions, attentions, sizeof attentions);
  (void)snprintf(out, 256, "CUDA %d.%d, cuBLASLt %zu, cuDNN %zu, %d SMs, %s, %s", CUDART_VERSION / 1000,
                 CUDART_VERSION % 1000 / 10, cublasLtGetVersion(), cudnnGetVersion(), c->sm_count,
                 c->options.dtype == KERN_BF16 ? "bf16" : "fp32", attentions);
}

static int compare(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

float kern_cuda_time_ms(kern_cuda *c, void (*call)(void *data), void *data) {
  enum { RUNS = 5 };
  float times[RUNS] = {0};
  call(data); /* what the first one loads is not counted */
  for (int i = 0; i < RUNS && !kern_cuda_failed(c); i++) {
    (void)KERN_CUDA_TRY(c, cudaEventRecord(c->timer[0], c->stream));
    call(data);
    (void)KERN_CUDA_TRY(c, cudaEventRecord(c->timer[1], c->stream));
    (void)KERN_CUDA_TRY(c, cudaEventSynchronize(c->timer[1]));
    (void)KERN_CUDA_TRY(c, cudaEventElapsedTime(&times[i], c->timer[0], c->timer[1]));
  }
  qsort(times, RUNS, sizeof *times, compare);
  return times[RUNS / 2];
}
