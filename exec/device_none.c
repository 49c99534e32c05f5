/* In a build without CUDA. */
#include "exec/device.h"

dp_status exec_device_cuda_there(dp_error *error) {
  return dp_fail(
      error, DP_UNSUPPORTED,
      "this build knows no CUDA devices: found no CUDA Toolkit with cuBLAS and cuDNN when it was configured, "
      "allowed: cpu");
}

int exec_device_cuda_count(void) { return 0; }

static dp_status check(const struct exec_work *work, dp_error *error) {
  (void)work;
  return exec_device_cuda_there(error);
}

const exec_device_kind exec_device_cuda = {.name = "cuda", .check = check};
