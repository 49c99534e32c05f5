/* diffpipe version: what this build can do and which CUDA devices it sees. */
#include <stdio.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "base/file.h"
#include "cli/command.h"

static const struct {
  const char *name;
  bool on;
} features[] = {
#ifdef HAVE_CUDA
    {"CUDA", true},
#else
    {"CUDA", false},
#endif
#ifdef HAVE_CUBLAS
    {"cuBLAS", true},
#else
    {"cuBLAS", false},
#endif
#ifdef HAVE_CUDNN
    {"cuDNN", true},
#else
    {"cuDNN", false},
#endif
#ifdef HAVE_NCCL
    {"NCCL", true},
#else
    {"NCCL", false},
#endif
#ifdef HAVE_CUPTI
    {"CUPTI", true},
#else
    {"CUPTI", false},
#endif
#ifdef HAVE_MPI
    {"MPI", true},
#else
    {"MPI", false},
#endif
#ifdef HAVE_OPENBLAS
    {"OpenBLAS", true},
#else
    {"OpenBLAS", false},
#endif
#ifdef DP_GNUPLOT
    {"gnuplot", true},
#else
    {"gnuplot", false},
#endif
};

#ifdef HAVE_CUDA
static void print_devices(void) {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess) {
    printf("CUDA devices: none (%s)\n", cudaGetErrorString(found));
    return;
  }
  printf("CUDA devices: %d\n", count);
  for (int i = 0; i < count; i++) {
    struct cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    printf("  %d: %s, sm_%d%d, %d SMs, %.1f GB\n", i, properties.name, properties.major, properties.minor,
           properties.multiProcessorCount, (double)properties.totalGlobalMem / 1e9);
  }
}
#else
static void print_devices(void) { printf("CUDA devices: this build has no CUDA\n"); }
#endif

static dp_status run(const cli_values *values, dp_error *error) {
  if (values->argument_count)
    return dp_fail(error, DP_BAD_INPUT, "version: found the argument \"%s\", allowed: none", values->arguments[0]);
  printf("diffpipe %s\n", PACKAGE_VERSION);
  for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
    printf("%s%s %s", i ? ", " : "built with: ", features[i].name, features[i].on ? "on" : "off");
  printf("\ndata: %s\n", dp_data_folder());
  print_devices();
  return DP_OK;
}

const cli_command cli_version = {.name = "version",
                                 .arguments = "",
                                 .summary = "Tell the version, what this build can do, and the CUDA devices it sees.",
                                 .run = run};
