#include <pthread.h>

#include "kernels/cuda/context.h"

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static kern_cuda_plan_counts counts; /* under it */

static bool is_launch_failure(cudnnStatus_t status) {
  return status == CUDNN_STATUS_EXECUTION_FAILED || status == CUDNN_STATUS_EXECUTION_FAILED_CUDART ||
         status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
}

/* Errors of our own launches were looked at where they were made. */
static void drop_others_error(void) {
  const cudaError_t left = cudaGetLastError();
  if (left == cudaSuccess) return;
  counts.dropped++;
  counts.dropped_last = left;
}

cudnnStatus_t kern_cuda_execute(kern_cuda *context, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  (void)pthread_mutex_lock(&one_at_a_time);
  drop_others_error();
  cudnnStatus_t status = cudnnBackendExecute(context->dnn, plan, pack);
  if (is_launch_failure(status)) {
    counts.failed++;
    counts.failed_last = cudaGetLastError();
    status = cudnnBackendExecute(context->dnn, plan, pack);
    counts.mended += status == CUDNN_STATUS_SUCCESS;
  }
  (void)pthread_mutex_unlock(&one_at_a_time);
  return status;
}

void kern_cuda_count_plans(kern_cuda_plan_counts *out) {
  (void)pthread_mutex_lock(&one_at_a_time);
  *out = counts;
  (void)pthread_mutex_unlock(&one_at_a_time);
}
