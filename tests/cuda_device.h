/* What tests and benchmarks on a CUDA device share: where work runs, and the driver's calls that the runtime has not.
 */
#ifndef DP_TESTS_CUDA_DEVICE_H
#define DP_TESTS_CUDA_DEVICE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>

/* A stream of the whole device or of a part of its multiprocessors. */
typedef struct cuda_place {
  const char *name;
  cudaStream_t stream;
  void *context; /* CUcontext; NULL: none */
  int sm_count;  /* 0: all */
} cuda_place;

/* Makes the place; false, and why, where that cannot be. */
bool cuda_place_whole(cuda_place *place, char why[200]);
/* A green context of at least so many multiprocessors, for as long as the process runs. */
bool cuda_place_part(int sm_count, cuda_place *place, char why[200]);
/* What this thread calls belongs to the place from now on. */
bool cuda_place_enter(const cuda_place *place);

/* Whether there is a device to run on; else `why` is one line. */
bool cuda_device_is_there(char why[200]);

#endif
