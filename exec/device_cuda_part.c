/* Parts of a device: green contexts, whose functions are the driver's and are looked up when they are needed, so that
 * the program also starts where there is no driver. */
#include <cuda.h>
#include <stdlib.h>

#include "exec/device_cuda.h"

enum { MULTIPLE = 8 }; /* of multiprocessors that Hopper's can be shared out in */

/* What is used of the driver. */
typedef struct driver {
  CUresult (*get_resource)(CUdevice, CUdevResource *, CUdevResourceType);
  CUresult (*split)(CUdevResource *, unsigned int *, const CUdevResource *, CUdevResource *, unsigned int,
                    unsigned int);
  CUresult (*describe)(CUdevResourceDesc *, CUdevResource *, unsigned int);
  CUresult (*create)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned int);
  CUresult (*destroy)(CUgreenCtx);
  CUresult (*stream)(CUstream *, CUgreenCtx, unsigned int, int);
  CUresult (*name)(CUresult, const char **);
} driver;

static dp_status find(const char *name, void **function, dp_error *error) {
  enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, function, 13000, cudaEnableDefault, &found) == cudaSuccess &&
      found == cudaDriverEntryPointSuccess && *function)
    return DP_OK;
  return dp_fail(error, DP_UNSUPPORTED, "the driver cannot share a device out: found no %s, allowed: one of CUDA 13",
                 name);
}

static dp_status find_all(driver *d, dp_error *error) {
  /* an object pointer becomes one of a function through memory, as POSIX has it */
  struct {
    const char *name;
    void *slot;
  } wanted[] = {{"cuDeviceGetDevResource", &d->get_resource},
                {"cuDevSmResourceSplitByCount", &d->split},
                {"cuDevResourceGenerateDesc", &d->describe},
                {"cuGreenCtxCreate", &d->create},
                {"cuGreenCtxDestroy", &d->destroy},
                {"cuGreenCtxStreamCreate", &d->stream},
                {"cuGetErrorName", &d->name}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *function = NULL;
    DP_TRY(find(wanted[i].name, &function, error));
    *(void **)wanted[i].slot = function;
  }
  return DP_OK;
}

static dp_status check(const driver *d, CUresult result, const char *what, dp_error *error) {
  const char *name = "an unknown error";
  if (result == CUDA_SUCCESS) return DP_OK;
  (void)d->name(result, &name);
  return dp_fail(error, DP_RUN_FAILED, "%s: %s", what, name);
}

static dp_status make_green(const exec_cuda *device, const driver *d, CUdevResource *of, CUgreenCtx *green,
                            dp_error *error) {
  CUdevResourceDesc description;
  DP_TRY(check(d, d->describe(&description, of, 1), "cuDevResourceGenerateDesc", error));
  return check(d, d->create(green, description, device->gpu, CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate", error);
}

/* All but what is kept for NCCL, and that. */
static dp_status open_beside_nccl(exec_cuda *device, const driver *d, int nccl_sms, dp_error *error) {
  CUdevResource all, compute, rest;
  CUgreenCtx green;
  CUstream stream;
  unsigned int count = 1;
  DP_TRY(check(d, d->get_resource(device->gpu, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource", error));
  const int64_t sms = plan_compute_sms(all.sm.smCount, MULTIPLE, nccl_sms);
  if (sms < MULTIPLE)
    return dp_fail(error, DP_BAD_INPUT,
                   "plan.nccl_sms: found %d on device %d of %u multiprocessors, allowed: at most %u", nccl_sms,
                   device->gpu, all.sm.smCount, all.sm.smCount - MULTIPLE);
  DP_TRY(check(d, d->split(&compute, &count, &all, &rest, 0, (unsigned int)sms), "cuDevSmResourceSplitByCount", error));
  DP_TRY(make_green(device, d, &compute, &green, error));
  device->green = green;
  DP_TRY(check(d, d->stream(&stream, green, CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate", error));
  device->stream = stream;
  device->sm_count = (int)compute.sm.smCount;
  DP_TRY(make_green(device, d, &rest, &green, error));
  device->nccl_green = green;
  return DP_OK;
}

static dp_status open_part(exec_cuda *device, const driver *d, int part, int parts, dp_error *error) {
  enum { MOST = 64 };
  CUdevResource all, groups[MOST], rest;
  CUgreenCtx green;
  CUstream stream;
  unsigned int count = (unsigned int)parts;
  DP_TRY(check(d, d->get_resource(device->gpu, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource", error));
  const unsigned int each = all.sm.smCount / (unsigned int)parts / MULTIPLE * MULTIPLE;
  if (each == 0 || parts > MOST)
    return dp_fail(error, DP_BAD_INPUT, "found %d workers on device %d of %u multiprocessors, allowed: at most %u",
                   parts, device->gpu, all.sm.smCount, all.sm.smCount / MULTIPLE);
  DP_TRY(check(d, d->split(groups, &count, &all, &rest, 0, each), "cuDevSmResourceSplitByCount", error));
  if ((int)count < parts)
    return dp_fail(error, DP_UNSUPPORTED, "device %d comes in %u parts of %u multiprocessors, needed: %d", device->gpu,
                   count, each, parts);
  DP_TRY(make_green(device, d, &groups[part], &green, error));
  device->green = green;
  DP_TRY(check(d, d->stream(&stream, green, CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate", error));
  device->stream = stream;
  device->sm_count = (int)groups[part].sm.smCount;
  return DP_OK;
}

dp_status exec_cuda_part_open(exec_cuda *device, int part, int parts, int nccl_sms, dp_error *error) {
  driver d;
  if (parts > 1 && nccl_sms > 0)
    return dp_fail(error, DP_BAD_INPUT, "plan.nccl_sms: found %d beside %d workers on one GPU, allowed: one, or 0",
                   nccl_sms, parts);
  if (nccl_sms > 0) {
    DP_TRY(find_all(&d, error));
    return open_beside_nccl(device, &d, nccl_sms, error);
  }
  if (parts > 1) {
    DP_TRY(find_all(&d, error));
    return open_part(device, &d, part, parts, error);
  }
  EXEC_CUDA_TRY(cudaDeviceGetAttribute(&device->sm_count, cudaDevAttrMultiProcessorCount, device->gpu), error);
  EXEC_CUDA_TRY(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking), error);
  return DP_OK;
}

dp_status exec_cuda_part_stream(const exec_cuda *device, cudaStream_t *stream, dp_error *error) {
  driver d;
  CUstream made;
  if (!device->nccl_green) {
    EXEC_CUDA_TRY(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), error);
    return DP_OK;
  }
  DP_TRY(find_all(&d, error));
  DP_TRY(check(&d, d.stream(&made, device->nccl_green, CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate", error));
  *stream = made;
  return DP_OK;
}

void exec_cuda_part_close(exec_cuda *device) {
  driver d;
  if (device->stream) (void)cudaStreamDestroy(device->stream);
  if (device->green && find_all(&d, NULL) == DP_OK) (void)d.destroy(device->green);
  if (device->nccl_green && find_all(&d, NULL) == DP_OK) (void)d.destroy(device->nccl_green);
  device->stream = NULL;
  device->green = device->nccl_green = NULL;
}
