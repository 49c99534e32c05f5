/* Arrays on the device for entries of the CUDA suite that have no row in the table of ops. */
#ifndef DP_TESTS_CUDA_ARRAYS_H
#define DP_TESTS_CUDA_ARRAYS_H

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_suite.h"

typedef struct array {
  int64_t n;
  kern_dtype dtype;
  float *host; /* what was drawn, rounded to the dtype */
  void *device;
} array;

static uint64_t state = 99;
static inline kern_cuda *context(kern_dtype dtype, kern_dtype gradient, size_t workspace) {
  return cuda_suite_context(CUDA_WHOLE, dtype, gradient, workspace);
}
static inline cudaStream_t stream(void) { return cuda_suite_world.places[CUDA_WHOLE].stream; }

/* Copies of pageable memory and fills may be under way when they return, and our stream does not wait for them. */
static inline void upload(void *to, const void *from, size_t bytes) {
  (void)cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
  (void)cudaDeviceSynchronize();
}
static inline void clear(void *to, int value, size_t bytes) {
  (void)cudaMemset(to, value, bytes);
  (void)cudaDeviceSynchronize();
}
static inline void put(array *a) {
  void *raw = cuda_suite_host((size_t)(a->n * kern_dtype_bytes(a->dtype)));
  for (int64_t i = 0; i < a->n; i++)
    if (a->dtype == KERN_FP32)
      ((float *)raw)[i] = a->host[i];
    else
      ((uint16_t *)raw)[i] = cuda_ops_to_bf16(a->host[i]);
  upload(a->device, raw, (size_t)(a->n * kern_dtype_bytes(a->dtype)));
  free(raw);
}
static inline array draw(kern_dtype dtype, int64_t n) {
  array a = {n, dtype, cuda_suite_host((size_t)n * sizeof(float)), NULL};
  for (int64_t i = 0; i < n; i++) a.host[i] = cuda_ops_round(dtype, (float)ops_draw(&state));
  if (cudaMalloc(&a.device, (size_t)n * 4 + 16) != cudaSuccess) cuda_suite_fail("memory", "none on the device");
  clear(a.device, 0xff, (size_t)n * 4 + 16);
  put(&a);
  return a;
}
static inline array empty(kern_dtype dtype, int64_t n) { /* NaN */
  array a = draw(dtype, n);
  clear(a.device, 0xff, (size_t)n * 4 + 16);
  return a;
}
static inline float *get(const array *a) {
  void *raw = cuda_suite_host((size_t)(a->n * kern_dtype_bytes(a->dtype)));
  float *values = cuda_suite_host((size_t)a->n * sizeof *values);
  if (cudaMemcpy(raw, a->device, (size_t)(a->n * kern_dtype_bytes(a->dtype)), cudaMemcpyDeviceToHost) != cudaSuccess)
    memset(raw, 0xff, (size_t)(a->n * kern_dtype_bytes(a->dtype)));
  cuda_ops_to_floats(a->dtype, a->n, raw, values);
  free(raw);
  return values;
}
static inline void drop(array *a) {
  free(a->host);
  (void)cudaFree(a->device);
}

/* |got - want| <= a rounding of the dtype + `exact` of the largest; and, where `before` says what may be rounded before
 * the rest is added, a rounding of that. */
static inline void hold_sum(const char *what, const array *a, const double *want, const double *before, double exact) {
  float *got = get(a);
  double largest = 1e-3, worst = -1;
  int64_t at = 0;
  for (int64_t i = 0; i < a->n; i++) largest = fmax(largest, fabs(want[i]));
  for (int64_t i = 0; i < a->n; i++) {
    const double first = before && a->dtype == KERN_BF16 ? ldexp(before[i], -8) : 0;
    const double allowed =
        (a->dtype == KERN_BF16 ? first + ldexp(fabs(want[i]) + first, -8) : 0) + exact * largest + FLT_MIN;
    const double share = isnan(got[i]) ? INFINITY : fabs(got[i] - want[i]) / allowed;
    if (share > worst) worst = share, at = i;
  }
  if (worst > 1)
    cuda_suite_fail(what, "worst at %lld of %lld: got %.8g, expected %.8g", (long long)at, (long long)a->n,
                    (double)got[at], want[at]);
  else
    cuda_suite_pass();
  free(got);
}

static inline void hold(const char *what, const array *a, const double *want, double exact) {
  hold_sum(what, a, want, NULL, exact);
}

#endif
