#include "tests/cuda_device.h"

#include <cuda.h> /* for types alone: libcuda is not linked */
#include <string.h>

bool cuda_device_is_there(char why[200]) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return true;
  (void)snprintf(why, 200, "no CUDA device: %s", result == cudaSuccess ? "none is there" : cudaGetErrorString(result));
  return false;
}

static bool find(const char *name, void **function, char why[200]) {
  enum { VERSION = 12080 }; /* of the calls' form */
  enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t result = cudaGetDriverEntryPointByVersion(name, function, VERSION, cudaEnableDefault, &found);
  if (result == cudaSuccess && found == cudaDriverEntryPointSuccess && *function != NULL) return true;
  (void)snprintf(why, 200, "the driver has no %s", name);
  return false;
}

bool cuda_place_whole(cuda_place *place, char why[200]) {
  *place = (cuda_place){.name = "whole"};
  CUresult (*get_current)(CUcontext *);
  cudaError_t result = cudaSetDevice(0);
  if (result == cudaSuccess) result = cudaFree(NULL);
  if (result == cudaSuccess) result = cudaStreamCreateWithFlags(&place->stream, cudaStreamNonBlocking);
  if (result != cudaSuccess) {
    (void)snprintf(why, 200, "%s", cudaGetErrorString(result));
    return false;
  }
  CUcontext context;
  if (!find("cuCtxGetCurrent", (void **)&get_current, why)) return false;
  if (get_current(&context) != CUDA_SUCCESS) return false;
  place->context = context;
  return true;
}

bool cuda_place_part(int sm_count, cuda_place *place, char why[200]) {
  CUresult (*get_resource)(CUdevice, CUdevResource *, CUdevResourceType);
  CUresult (*split)(CUdevResource *, unsigned *, const CUdevResource *, CUdevResource *, unsigned, unsigned);
  CUresult (*describe)(CUdevResourceDesc *, CUdevResource *, unsigned);
  CUresult (*create)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned);
  CUresult (*context_of)(CUcontext *, CUgreenCtx);
  CUresult (*make_stream)(CUstream *, CUgreenCtx, unsigned, int);
  if (!find("cuDeviceGetDevResource", (void **)&get_resource, why) ||
      !find("cuDevSmResourceSplitByCount", (void **)&split, why) ||
      !find("cuDevResourceGenerateDesc", (void **)&describe, why) || !find("cuGreenCtxCreate", (void **)&create, why) ||
      !find("cuCtxFromGreenCtx", (void **)&context_of, why) ||
      !find("cuGreenCtxStreamCreate", (void **)&make_stream, why))
    return false;
  CUdevResource all, part, rest;
  CUdevResourceDesc description;
  CUgreenCtx green;
  CUcontext context;
  CUstream stream;
  unsigned parts = 1;
  CUresult result = get_resource(0, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) result = split(&part, &parts, &all, &rest, 0, (unsigned)sm_count);
  if (result == CUDA_SUCCESS) result = describe(&description, &part, 1);
  if (result == CUDA_SUCCESS) result = create(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
  if (result == CUDA_SUCCESS) result = context_of(&context, green);
  if (result == CUDA_SUCCESS) result = make_stream(&stream, green, CU_STREAM_NON_BLOCKING, 0);
  if (result != CUDA_SUCCESS) {
    (void)snprintf(why, 200, "a green context of %d multiprocessors: CUDA driver error %d", sm_count, (int)result);
    return false;
  }
  *place = (cuda_place){"part", stream, context, (int)part.sm.smCount};
  return true;
}

bool cuda_place_enter(const cuda_place *place) {
  static CUresult (*set_current)(CUcontext);
  char why[200];
  if (set_current == NULL && !find("cuCtxSetCurrent", (void **)&set_current, why)) return false;
  return set_current(place->context) == CUDA_SUCCESS;
}
