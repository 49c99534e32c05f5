#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "kernels/cuda/context.h"

/* Of a thread that holds it it may be taken again. */
static pthread_mutex_t one_at_a_time;
static pthread_once_t once = PTHREAD_ONCE_INIT;
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

static void make_lock(void) {
  pthread_mutexattr_t attributes;
  (void)pthread_mutexattr_init(&attributes);
  (void)pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  (void)pthread_mutex_init(&one_at_a_time, &attributes);
  (void)pthread_mutexattr_destroy(&attributes);
}

void kern_cuda_hold_plans(void) {
  (void)pthread_once(&once, make_lock);
  (void)pthread_mutex_lock(&one_at_a_time);
}

void kern_cuda_release_plans(void) { (void)pthread_mutex_unlock(&one_at_a_time); }

cudnnStatus_t kern_cuda_execute(kern_cuda *context, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  kern_cuda_hold_plans();
  drop_others_error();
  cudnnStatus_t status = cudnnBackendExecute(context->dnn, plan, pack);
  if (is_launch_failure(status)) {
    counts.failed++;
    counts.failed_last = cudaGetLastError();
    status = cudnnBackendExecute(context->dnn, plan, pack);
    counts.mended += status == CUDNN_STATUS_SUCCESS;
  }
  kern_cuda_release_plans();
  return status;
}

void kern_cuda_count_plans(kern_cuda_plan_counts *out) {
  kern_cuda_hold_plans();
  *out = counts;
  kern_cuda_release_plans();
}
