/* The libraries that are loaded when a device is first used, not when the program starts: they are hundreds of MB, and
 * most commands need none of them. Their functions are called by their own names, as their headers declare them, once
 * the library that they belong to has been loaded. */
#ifndef DP_KERNELS_CUDA_LIBRARIES_H
#define DP_KERNELS_CUDA_LIBRARIES_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuBLASLt and cuDNN; and NCCL. Any number of times, from any thread; a library stays until the program ends.
 * DP_UNSUPPORTED: one is not there, or lacks a function, or this build does not know it. */
dp_status kern_cuda_load(dp_error *error);
dp_status kern_cuda_load_nccl(dp_error *error);

#ifdef __cplusplus
}
#endif
#endif
