/* What cuDNN's plans met with, in a line before a program's last: which of the three things of kern_cuda_execute it was
 * that helped. */
#ifndef DP_TESTS_CUDA_PLANS_H
#define DP_TESTS_CUDA_PLANS_H

#include <inttypes.h>
#include <stdio.h>

#include "kernels/cuda/context.h"

static inline void tell_plans(void) {
  kern_cuda_plan_counts c;
  kern_cuda_count_plans(&c);
  printf("plans of cuDNN: %" PRIu64 " errors of others dropped (last: %s), %" PRIu64
         " launches failed (last: %s), %" PRIu64 " of them not the second time\n",
         c.dropped, cudaGetErrorName(c.dropped_last), c.failed, cudaGetErrorName(c.failed_last), c.mended);
}

#endif
