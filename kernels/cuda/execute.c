#include <pthread.h>

#include "kernels/cuda/context.h"

/* Engines may set attributes of their kernels, which all threads of a process share, before they launch them. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static bool is_launch_failure(cudnnStatus_t status) {
  return status == CUDNN_STATUS_EXECUTION_FAILED || status == CUDNN_STATUS_EXECUTION_FAILED_CUDART ||
         status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
}

cudnnStatus_t kern_cuda_execute(kern_cuda *context, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  (void)pthread_mutex_lock(&one_at_a_time);
  (void)cudaGetLastError(); /* our launches are looked at where they are made; this is a library's, and done with */
  cudnnStatus_t status = cudnnBackendExecute(context->dnn, plan, pack);
  if (is_launch_failure(status)) {
    (void)cudaGetLastError();
    status = cudnnBackendExecute(context->dnn, plan, pack);
  }
  (void)pthread_mutex_unlock(&one_at_a_time);
  return status;
}
