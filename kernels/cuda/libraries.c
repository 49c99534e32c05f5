/* Each function of a library is defined here with the library's own name and hands its arguments on to what was found
 * under that name. A function that is called but has no row here is not found when the program is linked. */
#include "kernels/cuda/libraries.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <cublasLt.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef HAVE_NCCL
#include <nccl.h>
#endif

/* ---- the functions: type, name, parameters, arguments; a library's version comes first ---- */

#define CUBLASLT_FUNCTIONS(F)                                                                                          \
  F(size_t, cublasLtGetVersion, (void), ())                                                                            \
  F(const char *, cublasLtGetStatusString, (cublasStatus_t status), (status))                                          \
  F(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), (handle))                                             \
  F(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle), (handle))                                              \
  F(cublasStatus_t, cublasLtMatmul,                                                                                    \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void *alpha, const void *a, cublasLtMatrixLayout_t of_a, \
     const void *b, cublasLtMatrixLayout_t of_b, const void *beta, const void *c, cublasLtMatrixLayout_t of_c,         \
     void *d, cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,       \
     cudaStream_t stream),                                                                                             \
    (handle, how, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algorithm, workspace, bytes, stream))               \
  F(cublasStatus_t, cublasLtMatmulAlgoCheck,                                                                           \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t of_a, cublasLtMatrixLayout_t of_b,      \
     cublasLtMatrixLayout_t of_c, cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t *algorithm,                  \
     cublasLtMatmulHeuristicResult_t *result),                                                                         \
    (handle, how, of_a, of_b, of_c, of_d, algorithm, result))                                                          \
  F(cublasStatus_t, cublasLtMatmulAlgoConfigSetAttribute,                                                              \
    (cublasLtMatmulAlgo_t * algorithm, cublasLtMatmulAlgoConfigAttributes_t name, const void *value, size_t bytes),    \
    (algorithm, name, value, bytes))                                                                                   \
  F(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                                                    \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t of_a, cublasLtMatrixLayout_t of_b,      \
     cublasLtMatrixLayout_t of_c, cublasLtMatrixLayout_t of_d, cublasLtMatmulPreference_t wish, int wanted,            \
     cublasLtMatmulHeuristicResult_t found[], int *count),                                                             \
    (handle, how, of_a, of_b, of_c, of_d, wish, wanted, found, count))                                                 \
  F(cublasStatus_t, cublasLtMatmulDescCreate,                                                                          \
    (cublasLtMatmulDesc_t * how, cublasComputeType_t compute, cudaDataType_t scale), (how, compute, scale))            \
  F(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t how), (how))                                      \
  F(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                                                    \
    (cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes),                  \
    (how, name, value, bytes))                                                                                         \
  F(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * wish), (wish))                       \
  F(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t wish), (wish))                        \
  F(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                                              \
    (cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t name, const void *value, size_t bytes),     \
    (wish, name, value, bytes))                                                                                        \
  F(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                                        \
    (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t stride),             \
    (layout, type, rows, columns, stride))                                                                             \
  F(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))                            \
  F(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                                                  \
    (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name, const void *value, size_t bytes),            \
    (layout, name, value, bytes))

#define CUDNN_FUNCTIONS(F)                                                                                    \
  F(size_t, cudnnGetVersion, (void), ())                                                                      \
  F(const char *, cudnnGetErrorString, (cudnnStatus_t status), (status))                                      \
  F(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), (handle))                                           \
  F(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))                                            \
  F(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))             \
  F(cudnnStatus_t, cudnnBackendCreateDescriptor,                                                              \
    (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t * descriptor), (type, descriptor))           \
  F(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), (descriptor))        \
  F(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor))                 \
  F(cudnnStatus_t, cudnnBackendSetAttribute,                                                                  \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, \
     int64_t count, const void *values),                                                                      \
    (descriptor, name, type, count, values))                                                                  \
  F(cudnnStatus_t, cudnnBackendGetAttribute,                                                                  \
    (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, \
     int64_t wanted, int64_t * count, void *values),                                                          \
    (descriptor, name, type, wanted, count, values))                                                          \
  F(cudnnStatus_t, cudnnBackendExecute,                                                                       \
    (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack), (handle, plan, pack))

#define NCCL_FUNCTIONS(F)                                                                                           \
  F(ncclResult_t, ncclGetVersion, (int *version), (version))                                                        \
  F(const char *, ncclGetErrorString, (ncclResult_t result), (result))                                              \
  F(const char *, ncclGetLastError, (ncclComm_t communicator), (communicator))                                      \
  F(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))                                                       \
  F(ncclResult_t, ncclCommInitRankConfig,                                                                           \
    (ncclComm_t * communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config),                        \
    (communicator, ranks, id, rank, config))                                                                        \
  F(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t communicator, ncclResult_t * result), (communicator, result))  \
  F(ncclResult_t, ncclCommAbort, (ncclComm_t communicator), (communicator))                                         \
  F(ncclResult_t, ncclCommDestroy, (ncclComm_t communicator), (communicator))                                       \
  F(ncclResult_t, ncclCommFinalize, (ncclComm_t communicator), (communicator))                                      \
  F(ncclResult_t, ncclSend,                                                                                         \
    (const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream),  \
    (from, count, type, peer, communicator, stream))                                                                \
  F(ncclResult_t, ncclRecv,                                                                                         \
    (void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream),          \
    (to, count, type, peer, communicator, stream))                                                                  \
  F(ncclResult_t, ncclAllReduce,                                                                                    \
    (const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t operation, ncclComm_t communicator, \
     cudaStream_t stream),                                                                                          \
    (from, to, count, type, operation, communicator, stream))                                                       \
  F(ncclResult_t, ncclGroupStart, (void), ())                                                                       \
  F(ncclResult_t, ncclGroupEnd, (void), ())

/* Hidden, so that the libraries call one another and not these. */
#define DEFINE(type, name, parameters, arguments) \
  static type(*name##_found) parameters;          \
  __attribute__((visibility("hidden"))) type name parameters { return name##_found arguments; }
#define ROW(type, name, parameters, arguments) {#name, &name##_found},

CUBLASLT_FUNCTIONS(DEFINE)
CUDNN_FUNCTIONS(DEFINE)

static void (*cudnnGetLastErrorString_found)(char *text, size_t bytes);
__attribute__((visibility("hidden"))) void cudnnGetLastErrorString(char *text, size_t bytes) {
  cudnnGetLastErrorString_found(text, bytes);
}

/* ---- the libraries ---- */

typedef struct function {
  const char *name;
  void *slot; /* a pointer to the function */
} function;

typedef struct library {
  const char *name, *file;
  const function *functions;
  int count;
  size_t (*version)(void); /* as MAJOR * 10000 + MINOR * 100 + PATCH */
  bool looked;             /* for it, already */
  dp_error trouble;        /* what came of that */
} library;

#define TEXT_OF(major) #major
#define FILE_OF(base, major) base ".so." TEXT_OF(major)
#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static const function cublaslt_functions[] = {CUBLASLT_FUNCTIONS(ROW)};
static library cublaslt = {.name = "cuBLASLt",
                           .file = FILE_OF("libcublasLt", CUBLAS_VER_MAJOR),
                           .functions = cublaslt_functions,
                           .count = COUNT(cublaslt_functions),
                           .version = cublasLtGetVersion};

static const function cudnn_functions[] = {
    CUDNN_FUNCTIONS(ROW){"cudnnGetLastErrorString", &cudnnGetLastErrorString_found}};
static library cudnn = {.name = "cuDNN",
                        .file = FILE_OF("libcudnn", CUDNN_MAJOR),
                        .functions = cudnn_functions,
                        .count = COUNT(cudnn_functions),
                        .version = cudnnGetVersion};

#ifdef HAVE_NCCL
ncclResult_t ncclGroupStart(void), ncclGroupEnd(void); /* which nccl.h declares as K&R did */
NCCL_FUNCTIONS(DEFINE)

static size_t nccl_version(void) {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? (size_t)version : 0;
}

static const function nccl_functions[] = {NCCL_FUNCTIONS(ROW)};
static library nccl = {.name = "NCCL",
                       .file = FILE_OF("libnccl", NCCL_MAJOR),
                       .functions = nccl_functions,
                       .count = COUNT(nccl_functions),
                       .version = nccl_version};
#endif

/* ---- loading ---- */

/* As the program's own libraries are found; else in the folder in which it was linked. */
static void *open_file(const char *file, char *why, size_t bytes) {
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle) return handle;
  (void)snprintf(why, bytes, "%s", dlerror());
  char path[1024];
  if (snprintf(path, sizeof path, "%s/%s", DP_CUDA_LIBDIR, file) >= (int)sizeof path || access(path, R_OK) != 0)
    return NULL;
  handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) (void)snprintf(why, bytes, "%s", dlerror());
  return handle;
}

static void look_for(library *l) {
  char why[512], version[64] = "";
  void *handle = open_file(l->file, why, sizeof why);
  if (!handle) {
    (void)dp_fail(&l->trouble, DP_UNSUPPORTED, "%s cannot be loaded: %s, needed: %s, as the program was built with",
                  l->name, why, l->file);
    return;
  }
  for (int i = 0; i < l->count; i++) {
    void *found = dlsym(handle, l->functions[i].name);
    if (!found) {
      (void)dp_fail(&l->trouble, DP_UNSUPPORTED,
                    "%s%s (%s) has no %s, needed: one as new as the program was built with", l->name, version, l->file,
                    l->functions[i].name);
      return;
    }
    memcpy(l->functions[i].slot, &found, sizeof found); /* as POSIX has it */
    if (i > 0) continue;
    const size_t n = l->version();
    (void)snprintf(version, sizeof version, " %zu.%zu.%zu", n / 10000, n / 100 % 100, n % 100);
  }
}

static dp_status load(library *l, dp_error *error) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  (void)pthread_mutex_lock(&lock);
  if (!l->looked) look_for(l);
  l->looked = true;
  (void)pthread_mutex_unlock(&lock);
  return l->trouble.status == DP_OK ? DP_OK : dp_fail(error, l->trouble.status, "%s", l->trouble.text);
}

dp_status kern_cuda_load(dp_error *error) {
  DP_TRY(load(&cublaslt, error));
  return load(&cudnn, error);
}

dp_status kern_cuda_load_nccl(dp_error *error) {
#ifdef HAVE_NCCL
  return load(&nccl, error);
#else
  return dp_fail(error, DP_UNSUPPORTED, "this build has no NCCL");
#endif
}
