/* diffpipe version: what this build can do and which CUDA devices it sees. */
#include <jansson.h>
#include <stdio.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

#include "base/file.h"
#include "base/schema.h"
#include "cli/command.h"
#include "cli/json.h"

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
#ifdef HAVE_PNG
    {"libpng", true},
#else
    {"libpng", false},
#endif
#ifdef HAVE_JPEG
    {"libjpeg", true},
#else
    {"libjpeg", false},
#endif
#ifdef DP_GNUPLOT
    {"gnuplot", true},
#else
    {"gnuplot", false},
#endif
};

enum { SLOT_JSON, MAX_DEVICES = 64 };

typedef struct device {
  char name[256];
  int major, minor, sms;
  size_t memory_bytes;
} device;

#ifdef HAVE_CUDA
/* Fills `devices` and returns their number; `why` says why there is none. */
static int find_devices(device devices[MAX_DEVICES], const char **why) {
  int driver = 0, count = 0;
  /* Without a driver the runtime calls the driver version 0, and every other call "insufficient", which misleads. */
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    *why = "no NVIDIA driver on this machine";
    return 0;
  }
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || count == 0) {
    *why = found != cudaSuccess ? cudaGetErrorString(found) : "the driver finds no device";
    return 0;
  }
  int kept = 0;
  for (int i = 0; i < count && kept < MAX_DEVICES; i++) {
    struct cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    device *d = &devices[kept++];
    *d = (device){.major = properties.major,
                  .minor = properties.minor,
                  .sms = properties.multiProcessorCount,
                  .memory_bytes = properties.totalGlobalMem};
    (void)snprintf(d->name, sizeof d->name, "%s", properties.name);
  }
  if (kept == 0) *why = "their properties cannot be read";
  return kept;
}
#else
static int find_devices(device devices[MAX_DEVICES], const char **why) {
  (void)devices;
  *why = "this build has no CUDA";
  return 0;
}
#endif

static dp_status print_json(const device *devices, int count, const char *why, dp_error *error) {
  json_t *built_with = json_object(), *list = json_array();
  for (size_t i = 0; i < DP_COUNT_OF(features); i++)
    json_object_set_new(built_with, features[i].name, json_boolean(features[i].on));
  for (int i = 0; i < count; i++)
    json_array_append_new(
        list, json_pack("{s:s, s:i, s:i, s:i, s:I}", "name", devices[i].name, "major", devices[i].major, "minor",
                        devices[i].minor, "sms", devices[i].sms, "memory_bytes", (json_int_t)devices[i].memory_bytes));
  json_t *root = json_pack("{s:s, s:o, s:s, s:o, s:s?}", "version", PACKAGE_VERSION, "built_with", built_with, "data",
                           dp_data_folder(), "cuda_devices", list, "no_cuda_devices_because", count ? NULL : why);
  if (!root) return dp_fail_memory(error);
  const dp_status status = cli_json_print(root, error);
  json_decref(root);
  return status;
}

static dp_status run(const cli_values *values, dp_error *error) {
  device devices[MAX_DEVICES];
  const char *why = NULL;
  const int count = find_devices(devices, &why);
  if (values->slots[SLOT_JSON].given) return print_json(devices, count, why, error);
  printf("diffpipe %s\n", PACKAGE_VERSION);
  for (size_t i = 0; i < DP_COUNT_OF(features); i++)
    printf("%s%s %s", i ? ", " : "built with: ", features[i].name, features[i].on ? "on" : "off");
  printf("\ndata: %s\n", dp_data_folder());
  if (count == 0)
    printf("CUDA devices: none: %s\n", why);
  else
    printf("CUDA devices: %d\n", count);
  for (int i = 0; i < count; i++)
    printf("  %d: %s, sm_%d%d, %d SMs, %.1f GB\n", i, devices[i].name, devices[i].major, devices[i].minor,
           devices[i].sms, (double)devices[i].memory_bytes / 1e9);
  return DP_OK;
}

static const cli_option options[] = {
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON},
};

const cli_command cli_version = {.name = "version",
                                 .arguments = "",
                                 .summary = "Tell the version, what this build can do, and the CUDA devices it sees.",
                                 .options = options,
                                 .option_count = (int)DP_COUNT_OF(options),
                                 .run = run};
