/* Loads the libraries of CUDA as the first use of a device does, and prints their versions; on stderr what failed, with
 * exit status 1. Needs no device. Threads load at once, as workers do. tests/test_cuda_libraries.sh runs it. */
#include <cublasLt.h>
#include <cudnn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_NCCL
#include <nccl.h>
#endif

#include "kernels/cuda/libraries.h"

enum { THREADS = 4 };

static void *load(void *data) {
  dp_error *error = data;
  (void)kern_cuda_load(error);
#ifdef HAVE_NCCL
  if (error->status == DP_OK) (void)kern_cuda_load_nccl(error);
#endif
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  static dp_error errors[THREADS];
  for (int i = 0; i < THREADS; i++)
    if (pthread_create(&threads[i], NULL, load, &errors[i]) != 0) return 1;
  for (int i = 0; i < THREADS; i++) (void)pthread_join(threads[i], NULL);
  for (int i = 1; i < THREADS; i++)
    if (strcmp(errors[i].text, errors[0].text) != 0) fprintf(stderr, "one thread was told: %s\n", errors[i].text);
  if (errors[0].status != DP_OK) {
    fprintf(stderr, "cuda_libraries: %s\n", errors[0].text);
    return 1;
  }
  printf("cuBLASLt %zu, built with %d\n", cublasLtGetVersion(), CUBLAS_VERSION);
  printf("cuDNN %zu, built with %d\n", cudnnGetVersion(), CUDNN_VERSION);
#ifdef HAVE_NCCL
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return 1;
  printf("NCCL %d, built with %d\n", version, NCCL_VERSION_CODE);
#else
  dp_error error = DP_ERROR_INIT;
  if (kern_cuda_load_nccl(&error) != DP_UNSUPPORTED) return 1;
  printf("%s\n", error.text);
#endif
  return 0;
}
