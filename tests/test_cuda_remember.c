/* Products, convolutions and attention ask what is remembered before they time anything, take it as it was, and tell
 * what they found; without a device: the kernels' own code over stand-ins of the libraries, whose algorithms have
 * made-up times. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_graph.h"
#include "kernels/cuda/conv.h"
#include "kernels/cuda/engine.h"
#include "tests/suite.h"

/* ---- a memory of a few things ---- */

enum { MOST = 16, ALGORITHMS = 3, FASTEST = 2, FEW = 7 };

static struct {
  char device[450], devices[MOST][450], problem[MOST][600], way[MOST][KERN_CUDA_WAY_BYTES];
  int count, asked, kept;
} memory;

static int place_of(const char *device, const char *problem) {
  int i = 0;
  while (i < memory.count && (strcmp(memory.devices[i], device) != 0 || strcmp(memory.problem[i], problem) != 0)) i++;
  return i;
}

static const char *find(void *data, const char *device, const char *problem) {
  const int i = place_of(device, problem);
  ck_assert_ptr_eq(data, &memory);
  (void)snprintf(memory.device, sizeof memory.device, "%s", device);
  memory.asked++;
  return i < memory.count ? memory.way[i] : NULL;
}

static void keep(void *data, const char *device, const char *problem, const char *way) {
  const int i = place_of(device, problem);
  ck_assert_ptr_eq(data, &memory);
  ck_assert_str_eq(device, memory.device);
  ck_assert_int_lt(i, MOST);
  (void)snprintf(memory.devices[i], sizeof memory.devices[i], "%s", device);
  (void)snprintf(memory.problem[i], sizeof memory.problem[i], "%s", problem);
  (void)snprintf(memory.way[i], sizeof memory.way[i], "%s", way);
  if (i == memory.count) memory.count++;
  memory.kept++;
}

static kern_cuda context;
static int plan_count;                     /* of attention */
static int noted;                          /* so many of its engines add in any order */
static int timed, guessed, ran;            /* how often; which algorithm ran last */
static int refused;                        /* the algorithm that this part of the device cannot launch */
enum { SHIFTED = ALGORITHMS + 1, SPREAD }; /* a gradient of weights by shifts, in one way or the other */
static int unlucky;                        /* launches of plans that will fail */
static cudaError_t last_error;             /* of the thread */
static int quickest;                       /* of what `ran` may be: quicker than FASTEST */
static bool shifts_fail;                   /* no product for them */
static bool few_takes;                     /* the kernel of few keys takes all */
static int products;                       /* of the batch that ran last; 1: no batch */
static float batch_ms;                     /* what a batch takes; 0: as long as one product */
static _Alignas(256) char scratch[256];    /* arrays that nobody writes to */

static void forget(void) {
  kern_cuda_gemms_free(context.gemms);
  kern_cuda_convs_free(context.convs);
  kern_cuda_attentions_free(context.attentions);
  context.gemms = context.convs = context.attentions = NULL;
  timed = guessed = memory.asked = memory.kept = 0;
  ran = -1;
}

static void setup(void) {
  memset(&memory, 0, sizeof memory);
  plan_count = noted = 0;
  refused = -1;
  unlucky = 0;
  last_error = cudaSuccess;
  quickest = -2;
  shifts_fail = false;
  few_takes = false;
  products = 0;
  batch_ms = 0;
  context = (kern_cuda){.options = {.dtype = KERN_BF16,
                                    .gradient = KERN_FP32,
                                    .workspace = scratch,
                                    .workspace_bytes = (size_t)4 << 30,
                                    .memory = {find, keep, &memory}},
                        .about_device = "a card, 132 multiprocessors",
                        .tuning = true};
  forget();
}

static void teardown(void) { forget(); }

/* ---- stand-ins: of context.c ---- */

void kern_cuda_fail(kern_cuda *c, dp_status status, const char *format, ...) {
  (void)format;
  c->trouble.status = status;
}
bool kern_cuda_check(kern_cuda *c, cudaError_t result, const char *what) {
  (void)c, (void)what;
  return result == cudaSuccess;
}
bool kern_cuda_check_blas(kern_cuda *c, cublasStatus_t result, const char *what) {
  (void)c, (void)what;
  return result == CUBLAS_STATUS_SUCCESS;
}
bool kern_cuda_check_dnn(kern_cuda *c, cudnnStatus_t result, const char *what) {
  (void)c, (void)what;
  return result == CUDNN_STATUS_SUCCESS;
}
float kern_cuda_time_ms(kern_cuda *c, void (*call)(void *data), void *data) {
  (void)c;
  timed++;
  call(data);
  if (products > 1 && batch_ms > 0) return batch_ms;
  return ran == quickest ? 0.5f : ran == FASTEST ? 1 : 2;
}

/* ---- of the runtime, and of other kernels ---- */

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaMemsetAsync(void *at, int value, size_t count, cudaStream_t stream) {
  (void)at, (void)value, (void)count, (void)stream;
  return cudaSuccess;
}
void kern_cuda_add_bias(kern_cuda *c, int64_t rows, int64_t columns, int64_t stride, const void *x, const void *bias,
                        const void *residual, void *y) {
  (void)c, (void)rows, (void)columns, (void)stride, (void)x, (void)bias, (void)residual, (void)y;
}
void kern_cuda_add_to(kern_cuda *c, int64_t n, kern_dtype x_dtype, const void *x, kern_dtype y_dtype, void *y) {
  (void)c, (void)n, (void)x_dtype, (void)x, (void)y_dtype, (void)y;
}
void kern_cuda_convert(kern_cuda *c, int64_t n, kern_dtype from, const void *x, kern_dtype to, void *y) {
  (void)c, (void)n, (void)from, (void)x, (void)to, (void)y;
}
size_t kern_cuda_column_sums_workspace(int64_t rows, int64_t columns) {
  (void)rows, (void)columns;
  return 0;
}
void kern_cuda_column_sums(kern_cuda *c, int64_t rows, int64_t columns, int64_t stride, kern_dtype x_dtype,
                           const void *x, kern_dtype out_dtype, bool accumulate, void *out, void *workspace) {
  (void)c, (void)rows, (void)columns, (void)stride, (void)x_dtype, (void)x, (void)out_dtype, (void)accumulate;
  (void)out, (void)workspace;
  ran = ALGORITHMS;
}

/* ---- of cuBLASLt: algorithms 0, 1, 2, with a number of their own in their words, and one without a workspace ---- */

enum { MARK = 0xabc00, BARE = 8 };
static size_t most_workspace; /* of those that are asked for */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *how, cublasComputeType_t compute, cudaDataType_t scale) {
  (void)compute, (void)scale;
  *how = NULL;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t how) {
  (void)how;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes) {
  (void)how, (void)name, (void)value, (void)bytes;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  (void)type, (void)rows, (void)columns, (void)stride;
  int32_t *const count = malloc(sizeof *count);
  ck_assert_ptr_nonnull(count);
  *count = 1;
  *layout = (cublasLtMatrixLayout_t)(void *)count;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  free(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t bytes) {
  if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) memcpy(layout, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *wish) {
  *wish = NULL;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish) {
  (void)wish;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                    size_t bytes) {
  (void)wish;
  if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) memcpy(&most_workspace, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t how,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int wanted,
                                              cublasLtMatmulHeuristicResult_t found[], int *count) {
  (void)handle, (void)how, (void)a, (void)b, (void)c, (void)d, (void)wish;
  guessed++;
  const int most = most_workspace >= 512 ? ALGORITHMS : 1;
  for (*count = 0; *count < most && *count < wanted; ++*count) {
    found[*count] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS, .workspaceSize = 512};
    found[*count].algo.data[0] = MARK + (uint64_t)*count;
    if (most_workspace < 512) found[*count].workspaceSize = 0, found[*count].algo.data[0] = MARK + BARE;
    found[*count].algo.data[7] = UINT64_MAX;
  }
  return CUBLAS_STATUS_SUCCESS;
}
static size_t workspace_of(const cublasLtMatmulAlgo_t *algorithm) {
  return algorithm->data[0] == MARK + BARE ? 0 : 512;
}
static bool is_ours(const cublasLtMatmulAlgo_t *algorithm) {
  return algorithm->data[0] >= MARK && (algorithm->data[0] < MARK + ALGORITHMS || workspace_of(algorithm) == 0) &&
         algorithm->data[7] == UINT64_MAX;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulHeuristicResult_t *result) {
  (void)handle, (void)how, (void)a, (void)b, (void)c, (void)d;
  result->workspaceSize = workspace_of(algorithm);
  return is_ours(algorithm) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t name, const void *value,
                                                    size_t bytes) {
  (void)algorithm, (void)name, (void)value, (void)bytes;
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t of_a, const void *b, cublasLtMatrixLayout_t of_b, const void *beta,
                              const void *c, cublasLtMatrixLayout_t of_c, void *d, cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                              cudaStream_t stream) {
  (void)handle, (void)how, (void)alpha, (void)a, (void)of_a, (void)b, (void)of_b, (void)beta, (void)c, (void)of_c;
  (void)d, (void)workspace, (void)stream;
  memcpy(&products, of_d, sizeof(int32_t));
  ck_assert(is_ours(algorithm) && bytes == workspace_of(algorithm));
  if ((int)(algorithm->data[0] - MARK) == refused) return CUBLAS_STATUS_EXECUTION_FAILED;
  ran = (int)(algorithm->data[0] - MARK);
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- of cuDNN's plans for convolutions: those of the plain way ---- */

struct kern_conv_plans {
  int first, count;
};

static kern_conv_plans *make_plans(const kern_conv_graph *graph, int first, int count) {
  if (graph->add || graph->bias || graph->residual) return NULL;
  kern_conv_plans *made = malloc(sizeof *made);
  if (made) *made = (kern_conv_plans){first, count};
  return made;
}
kern_conv_plans *kern_conv_plans_make(kern_cuda *c, const kern_conv_graph *graph, size_t workspace_bytes, int most) {
  (void)c, (void)workspace_bytes;
  guessed++;
  return make_plans(graph, 0, most < ALGORITHMS ? most : ALGORITHMS);
}
kern_conv_plans *kern_conv_plans_restore(kern_cuda *c, const kern_conv_graph *graph, size_t workspace_bytes,
                                         const char *words) {
  uint64_t number;
  (void)c, (void)workspace_bytes;
  if (!kern_cuda_take_word(&words, "plan") || !kern_cuda_take_number(&words, 10, &number) || number >= ALGORITHMS)
    return NULL;
  return make_plans(graph, (int)number, 1);
}
bool kern_conv_plans_tell(const kern_conv_plans *plans, int index, char *out, size_t bytes) {
  return snprintf(out, bytes, "plan %d", plans->first + index) > 0;
}
int kern_conv_plans_count(const kern_conv_plans *plans) { return plans->count; }
void kern_conv_plans_keep(kern_conv_plans *plans, int index) { (void)plans, (void)index; }
void kern_conv_plans_free(kern_conv_plans *plans) { free(plans); }
cudnnStatus_t kern_conv_plans_run(kern_cuda *c, const kern_conv_plans *plans, int index,
                                  void *const arrays[KERN_CONV_ARRAYS], void *workspace) {
  (void)c, (void)arrays, (void)workspace;
  if (plans->first + index == refused) return CUDNN_STATUS_EXECUTION_FAILED;
  ran = plans->first + index;
  return CUDNN_STATUS_SUCCESS;
}
void kern_conv_columns_run(kern_cuda *c, const kern_conv2d *size, kern_conv_direction direction, bool accumulate,
                           void *const arrays[KERN_CONV_ARRAYS], void *turned, void *workspace,
                           size_t workspace_bytes) {
  (void)c, (void)size, (void)direction, (void)accumulate, (void)arrays, (void)turned, (void)workspace;
  (void)workspace_bytes;
  ran = ALGORITHMS;
}

/* For any kernel of more than one position, and no more than there is. */
size_t kern_conv_shifts_bytes(const kern_conv2d *size, kern_dtype dtype, bool spread) {
  (void)dtype, (void)spread;
  return size->kernel_height * size->kernel_width > 1 ? 1 : 0;
}
void kern_conv_shifts_run(kern_cuda *c, const kern_conv2d *size, bool spread, bool accumulate,
                          void *const arrays[KERN_CONV_ARRAYS], void *workspace) {
  (void)size, (void)accumulate, (void)arrays, (void)workspace;
  ran = spread ? SPREAD : SHIFTED;
  if (shifts_fail) c->trouble.status = DP_UNSUPPORTED;
}

/* ---- of cuDNN's graphs for attention: descriptors are numbers, a plan's is where that of its configuration is; a plan
 * for 8 samples needs more than there is ---- */

enum { A_GRAPH = 7, A_CONFIG = 1, MOST_PLANS = 64 };
static descriptor plans[MOST_PLANS]; /* the configuration of each */
static descriptor asked_of;          /* the configuration whose engine was asked for last */
static int64_t goes_batch;

static descriptor of_number(intptr_t n) { return (descriptor)n; }

void kern_attention_destroy_from(builder *b, int first) { b->made_count = first; }
descriptor kern_attention_make(builder *b, cudnnBackendDescriptorType_t type) {
  b->made_count++;
  if (type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return of_number(A_GRAPH);
  ck_assert_int_lt(plan_count, MOST_PLANS);
  return (descriptor)&plans[plan_count++];
}
void kern_attention_set(builder *b, descriptor of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        int64_t count, const void *values) {
  (void)b, (void)of, (void)name, (void)type, (void)count, (void)values;
}
void kern_attention_set_descriptor(builder *b, descriptor of, cudnnBackendAttributeName_t name, descriptor value) {
  (void)b;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) *(descriptor *)of = value;
}
void kern_attention_finish(builder *b, descriptor of) { (void)b, (void)of; }
void kern_attention_say(builder *b, const entry *e) {
  b->operation_count = 1;
  goes_batch = e->batch;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(descriptor d) {
  (void)d;
  return CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion(void) { return 91900; }
cudnnStatus_t cudnnBackendGetAttribute(descriptor from, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *values) {
  (void)type;
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE) asked_of = from;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    guessed++;
    ck_assert_int_ge(most, ALGORITHMS);
    for (int i = 0; i < ALGORITHMS; i++) ((descriptor *)values)[i] = of_number(A_CONFIG + i);
    *count = ALGORITHMS;
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    *(int64_t *)values = goes_batch == 8 ? INT64_MAX : 1024;
    *count = 1;
  } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && (intptr_t)asked_of < A_CONFIG + noted) {
    *(cudnnBackendNumericalNote_t *)values = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    *count = 1;
  } else {
    *count = 0;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, descriptor plan, descriptor pack) {
  (void)handle, (void)pack;
  if (last_error != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED_CUDART; /* as if it were its own */
  if (unlucky > 0) {
    unlucky--;
    last_error = cudaErrorInvalidClusterSize;
    return CUDNN_STATUS_EXECUTION_FAILED_CUDART;
  }
  if ((int)((intptr_t) * (descriptor *)plan - A_CONFIG) == refused) return CUDNN_STATUS_EXECUTION_FAILED;
  ran = (int)((intptr_t) * (descriptor *)plan - A_CONFIG);
  return CUDNN_STATUS_SUCCESS;
}
descriptor kern_cuda_engine_of(descriptor graph, const char *words) {
  uint64_t number;
  ck_assert_ptr_eq(graph, of_number(A_GRAPH));
  if (!kern_cuda_take_word(&words, "config") || !kern_cuda_take_number(&words, 10, &number)) return NULL;
  return number < A_CONFIG + ALGORITHMS ? of_number((intptr_t)number) : NULL;
}
bool kern_cuda_engine_tell(descriptor graph, descriptor config, char *out, size_t bytes) {
  ck_assert_ptr_eq(graph, of_number(A_GRAPH));
  return snprintf(out, bytes, "config %d", (int)(intptr_t)config) > 0;
}
void kern_attention_own_forward(kern_cuda *c, const kern_attention *size, const void *q, const void *k, const void *v,
                                void *y, float *lse) {
  (void)c, (void)size, (void)q, (void)k, (void)v, (void)y, (void)lse;
  ran = ALGORITHMS;
}
void kern_attention_own_backward(kern_cuda *c, const kern_attention *size, const void *q, const void *k, const void *v,
                                 const void *y, const float *lse, const void *dy, void *dq, void *dk, void *dv,
                                 bool accumulate) {
  (void)c, (void)size, (void)q, (void)k, (void)v, (void)y, (void)lse, (void)dy, (void)dq, (void)dk, (void)dv;
  (void)accumulate;
  ran = ALGORITHMS;
}
bool kern_attention_few_takes_forward(const kern_cuda *c, const kern_attention *size) {
  (void)c, (void)size;
  return few_takes;
}
bool kern_attention_few_takes_backward(const kern_cuda *c, const kern_attention *size) {
  (void)c, (void)size;
  return few_takes;
}
size_t kern_attention_few_workspace(const kern_attention *size) {
  (void)size;
  return 0;
}
void kern_attention_few_forward(kern_cuda *c, const kern_attention *size, const void *q, const void *k, const void *v,
                                void *y, float *lse) {
  (void)c, (void)size, (void)q, (void)k, (void)v, (void)y, (void)lse;
  ran = FEW;
}
void kern_attention_few_backward(kern_cuda *c, const kern_attention *size, const void *q, const void *k, const void *v,
                                 const float *lse, const void *dy, const kern_attention_few *to) {
  const int64_t width = size->heads * size->head_dim;
  (void)c, (void)q, (void)k, (void)v, (void)lse, (void)dy;
  ck_assert(to->dq_stride == width && to->dk_stride == width && to->dv_stride == width);
  ck_assert_uint_eq((uintptr_t)to->workspace % 256, 0);
  ran = FEW;
}
void kern_attention_add(kern_cuda *c, int64_t rows, int64_t width, const void *x, void *y, int64_t y_stride) {
  (void)c, (void)rows, (void)width, (void)x, (void)y, (void)y_stride;
}

/* ---- what is solved ---- */

static void product(void) {
  const kern_cuda_gemm size = {.m = 64, .n = 32, .k = 16, .alpha = 1, .c_dtype = KERN_BF16};
  kern_cuda_gemm_run(&context, &size, scratch, scratch, scratch);
}
static void product_without_workspace(void) {
  quickest = BARE;
  product();
}
static void product_with_bias(void) {
  const kern_linear size = {.rows = 64, .in = 16, .out = 32};
  kern_cuda_linear_forward(&context, &size, scratch, scratch, scratch, NULL, scratch);
}
static void product_with_sums(void) {
  const kern_linear size = {.rows = 64, .in = 16, .out = 32};
  kern_cuda_linear_weight_gradient(&context, &size, scratch, scratch, scratch, scratch);
}
static const kern_conv2d a_convolution = {.batch = 1,
                                          .height = 8,
                                          .width = 8,
                                          .in = 32,
                                          .out = 32,
                                          .kernel_height = 3,
                                          .kernel_width = 3,
                                          .stride_height = 1,
                                          .stride_width = 1,
                                          .padding_height = 1,
                                          .padding_width = 1};
static void convolution(void) {
  kern_cuda_conv2d_forward(&context, &a_convolution, scratch, scratch, NULL, NULL, scratch);
}
static void weight_gradient(void) {
  context.overwrites = true;
  kern_cuda_conv2d_weight_gradient(&context, &a_convolution, scratch, scratch, scratch, NULL);
}
static void weight_gradient_by_shifts(void) {
  quickest = SHIFTED;
  weight_gradient();
}
static void weight_gradient_spread(void) {
  quickest = SPREAD;
  weight_gradient();
}
static kern_attention attention_of(int64_t batch) {
  return (kern_attention){.batch = batch, .heads = 8, .head_dim = 64, .q_tokens = 128, .k_tokens = 128, .scale = 1};
}
static void attention(void) {
  const kern_attention size = attention_of(4);
  kern_cuda_attention_forward(&context, &size, scratch, scratch, scratch, scratch, (float *)(void *)scratch);
}
static void attention_of_our_own(void) {
  const kern_attention size = attention_of(8);
  kern_cuda_attention_forward(&context, &size, scratch, scratch, scratch, scratch, (float *)(void *)scratch);
}
static void backward_of(int64_t batch) {
  const kern_attention size = attention_of(batch);
  kern_cuda_attention_backward(&context, &size, scratch, scratch, scratch, scratch, (float *)(void *)scratch, scratch,
                               scratch, scratch, scratch, false);
}
static void attention_backward(void) { backward_of(8); }
static void attention_in_any_order(void) {
  context.options.any_order = true;
  backward_of(4);
}

static const struct {
  void (*solve)(void);
  const char *problem, *way; /* how it begins; all of it */
  int ran;
} cases[] = {
    {product, "product bf16 fp32 exact 64 32 16 0 0 16 32 32 0 1 1 0 0 0 0 16 33554432",
     "apart 512 abc02 0 0 0 0 0 0 ffffffffffffffff", FASTEST},
    {product_without_workspace, "product bf16 fp32 exact 64 32 16 0 0 16 32 32 0 1 1 0 0 0 0 16 33554432",
     "apart 0 abc08 0 0 0 0 0 0 ffffffffffffffff", BARE},
    {product_with_bias, "product bf16 fp32 exact 64 32 16 0 1 16 16 32 0 1 1 0 0 0 1 16 33554432",
     "fused 512 abc02 0 0 0 0 0 0 ffffffffffffffff", FASTEST},
    {convolution, "conv bf16 fp32 exact 1 8 8 32 32 3 3 1 1 1 1 0 0 0 0 1", "plain plan 2", FASTEST},
    {weight_gradient, "conv_dw bf16 fp32 exact 1 8 8 32 32 3 3 1 1 1 1 2 0 0 0 1", "plain plan 2", FASTEST},
    {weight_gradient_by_shifts, "conv_dw bf16 fp32 exact 1 8 8 32 32 3 3 1 1 1 1 2 0 0 0 1", "shifted", SHIFTED},
    {weight_gradient_spread, "conv_dw bf16 fp32 exact 1 8 8 32 32 3 3 1 1 1 1 2 0 0 0 1", "spread", SPREAD},
    {attention, "attention bf16 fp32 exact 4 8 64 128 128 512 512 512 512 0 0 0 0 1 ", "graph 4 8 config 3", FASTEST},
    {attention_of_our_own, "attention bf16 fp32 exact 8 8 64 128 128 512 512 512 512 0 0 0 0 1 ", "own", ALGORITHMS},
    {attention_backward, "attention bf16 fp32 exact 8 8 64 128 128 512 512 512 512 512 512 512 1 1 ",
     "graph 4 8 config 3", FASTEST},
    {attention_in_any_order, "attention bf16 fp32 exact 4 8 64 128 128 512 512 512 512 512 512 512 1 1 1 ",
     "sum 4 8 config 3", FASTEST},
};
enum { CASES = sizeof cases / sizeof *cases, OWN = 8, BACKWARD = 9 };

static void expect_found_anew(int i) {
  ck_assert_int_eq(context.trouble.status, DP_OK);
  ck_assert_int_eq(memory.asked, 1);
  ck_assert_int_eq(timed > 0, i != OWN);
  ck_assert_int_gt(guessed, 0);
  ck_assert_int_eq(memory.kept, 1);
  ck_assert_int_eq(memory.count, 1);
  ck_assert_str_eq(memory.device, context.about_device);
  ck_assert_msg(strncmp(memory.problem[0], cases[i].problem, strlen(cases[i].problem)) == 0, "%s", memory.problem[0]);
  ck_assert_str_eq(memory.way[0], cases[i].way);
  ck_assert_int_eq(ran, cases[i].ran);
}

START_TEST(what_was_found_is_told_and_then_not_timed_again) {
  cases[_i].solve();
  expect_found_anew(_i);
  for (int tuning = 0; tuning < 2; tuning++) {
    forget();
    context.tuning = tuning == 1;
    cases[_i].solve();
    ck_assert_int_eq(memory.asked, 1);
    ck_assert_int_eq(timed, 0);
    ck_assert_int_eq(guessed, 0);
    ck_assert_int_eq(memory.kept, 0);
    ck_assert_int_eq(ran, cases[_i].ran);
    ran = -1;
    cases[_i].solve(); /* a warm call asks nobody */
    ck_assert_int_eq(memory.asked, 1);
    ck_assert_int_eq(ran, cases[_i].ran);
  }
}
END_TEST

/* Also what is slower is taken when it is what is remembered. */
START_TEST(what_is_remembered_goes_before_what_is_fast) {
  static const char *const slower[CASES] = {"apart 512 abc00 0 0 0 0 0 0 ffffffffffffffff",
                                            "apart 512 abc00 0 0 0 0 0 0 ffffffffffffffff",
                                            "apart 512 abc00 0 0 0 0 0 0 ffffffffffffffff",
                                            "plain plan 0",
                                            "plain plan 0",
                                            "plain plan 0",
                                            "plain plan 0",
                                            "operation 2 1 config 1",
                                            "graph 2 8 config 1",
                                            "graph 2 1 config 1",
                                            "sum 2 1 config 1"};
  cases[_i].solve();
  (void)snprintf(memory.way[0], sizeof memory.way[0], "%s", slower[_i]);
  forget();
  cases[_i].solve();
  ck_assert_int_eq(timed + guessed + memory.kept, 0);
  ck_assert_int_eq(ran, 0);
}
END_TEST

START_TEST(what_cannot_be_had_is_timed_again_and_replaced) {
  static const char *const wrong[] = {"",
                                      "?",
                                      "fused",
                                      "apart 512",
                                      "apart 512 abc02 0 0 0 0 0 0 fffffffffffffffff",
                                      "apart 512 abc02 0 0 0 0 0 0 ffffffffffffffff 0",
                                      "apart 512 abc09 0 0 0 0 0 0 ffffffffffffffff",
                                      "apart 511 abc02 0 0 0 0 0 0 ffffffffffffffff",
                                      "apart 33554433 abc02 0 0 0 0 0 0 ffffffffffffffff",
                                      "apart -1 abc02 0 0 0 0 0 0 ffffffffffffffff",
                                      "plain",
                                      "plain plan 3",
                                      "beta plan 2",
                                      "fused plan 2",
                                      "rounded plan 3",
                                      "columns plan 2",
                                      "shifted plan 2",
                                      "spread plan 2",
                                      "graph 3 8 config 1",
                                      "graph 0 8 config 1",
                                      "graph 4 8 config 4",
                                      "graph 8 8 config 1",
                                      "graph 4",
                                      "own config 1"};
  for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
    setup();
    cases[_i].solve();
    (void)snprintf(memory.way[0], sizeof memory.way[0], "%s", wrong[w]);
    forget();
    cases[_i].solve();
    expect_found_anew(_i);
    forget();
  }
}
END_TEST

/* A part that cannot launch what another found takes something else, and remembers it as its own. */
START_TEST(parts_may_be_unlike) {
  if (cases[_i].ran >= ALGORITHMS) return; /* what nobody refuses */
  context.is_part = true;
  cases[_i].solve();
  for (int again = 0; again < 2; again++) {
    forget();
    refused = FASTEST;
    cases[_i].solve();
    ck_assert_int_eq(context.trouble.status, DP_OK);
    ck_assert(ran >= 0 && ran != FASTEST && ran < ALGORITHMS);
    ck_assert_int_eq(memory.asked, 2);
    ck_assert_int_eq(memory.kept, !again);
    ck_assert_int_eq(timed > 0, !again);
    ck_assert_int_eq(memory.count, 2);
    ck_assert_str_eq(memory.way[0], cases[_i].way);
    ck_assert_str_eq(memory.devices[1], "a card, 132 multiprocessors, a part unlike others");
    forget();
    refused = -1; /* the part that found it */
    cases[_i].solve();
    ck_assert_int_eq(memory.asked, 1);
    ck_assert_int_eq(ran, FASTEST);
  }
}
END_TEST

START_TEST(guesses_are_not_told) {
  context.tuning = false;
  cases[_i].solve();
  ck_assert_int_eq(memory.asked, 1);
  ck_assert_int_eq(timed, 0);
  ck_assert_int_gt(guessed, 0);
  ck_assert_int_eq(memory.kept, 0);
  ck_assert_int_eq(ran, _i == OWN ? ALGORITHMS : 0);
}
END_TEST

START_TEST(nothing_need_be_remembered) {
  context.options.memory = (kern_cuda_memory){NULL, NULL, NULL};
  cases[_i].solve();
  ck_assert_int_eq(ran, cases[_i].ran);
  ck_assert_int_eq(memory.asked + memory.kept, 0);
}
END_TEST

START_TEST(what_fails_is_not_told) {
  context.trouble.status = DP_RUN_FAILED;
  cases[_i].solve();
  ck_assert_int_eq(memory.kept, 0);
}
END_TEST

/* A product with sums on its way is timed against both by themselves, which is another problem. */
START_TEST(a_product_with_sums_or_both_by_themselves) {
  product_with_sums();
  ck_assert_int_eq(memory.kept, 2);
  ck_assert_str_eq(memory.way[0], "apart 512 abc02 0 0 0 0 0 0 ffffffffffffffff");
  ck_assert_str_eq(memory.way[1], "fused 512 abc02 0 0 0 0 0 0 ffffffffffffffff");
  ck_assert_int_eq(ran, FASTEST);
  forget();
  product_with_sums();
  ck_assert_int_eq(memory.asked, 1);
  ck_assert_int_eq(timed + guessed + memory.kept, 0);
  ck_assert_int_eq(ran, FASTEST);
  (void)snprintf(memory.way[1], sizeof memory.way[1], "apart");
  forget();
  product_with_sums(); /* with all of the workspace: a third problem */
  ck_assert_int_eq(memory.count, 3);
  forget();
  product_with_sums();
  ck_assert_int_eq(memory.asked, 2);
  ck_assert_int_eq(timed + guessed + memory.kept, 0);
  ck_assert_int_eq(ran, ALGORITHMS);
  (void)snprintf(memory.way[1], sizeof memory.way[1], "apart 512 abc02 0 0 0 0 0 0 ffffffffffffffff");
  forget();
  product_with_sums();
  ck_assert_int_eq(memory.kept, 1);
  ck_assert_str_eq(memory.way[1], "fused 512 abc02 0 0 0 0 0 0 ffffffffffffffff");
}
END_TEST

/* Siblings whose weights and outputs lie so far apart. */
static void siblings_apart(int w, int y) {
  const kern_linear size = {.rows = 64, .in = 16, .out = 32};
  const void *const weights[] = {scratch, scratch + w, scratch + 2 * w};
  void *const outputs[] = {scratch, scratch + y, scratch + 2 * y};
  kern_cuda_linears_forward(&context, &size, 3, scratch, weights, outputs);
}

static const char siblings_problem[] = "product bf16 fp32 exact 64 32 16 0 1 16 16 32 0 1 3 0 1 1 3 16 33554432";

/* Siblings are timed against one after another, which are another problem; one way is for all distances. */
START_TEST(siblings_are_a_batch_where_that_is_faster) {
  batch_ms = 0.75f;
  siblings_apart(16, 32);
  ck_assert_int_eq(products, 3);
  ck_assert_int_eq(memory.kept, 2);
  ck_assert_str_eq(memory.way[0], "apart 512 abc02 0 0 0 0 0 0 ffffffffffffffff");
  ck_assert_str_eq(memory.problem[1], siblings_problem);
  ck_assert_str_eq(strchr(memory.way[1], ' '), " 512 abc00 0 0 0 0 0 0 ffffffffffffffff");
  ck_assert(strncmp(memory.way[1], "fused", 5) == 0);
  timed = guessed = memory.asked = memory.kept = 0;
  siblings_apart(48, 64);
  ck_assert_int_eq(memory.asked, 1);
  ck_assert_int_eq(timed + guessed + memory.kept, 0);
  ck_assert_int_eq(products, 3);
  siblings_apart(16, 32); /* a warm call */
  ck_assert_int_eq(memory.asked, 1);
  ck_assert_int_eq(products, 3);
  siblings_apart(16, 40); /* on other boundaries it is another problem */
  ck_assert_int_eq(memory.asked, 3);
  ck_assert_int_eq(memory.kept, 1 + 1);
}
END_TEST

START_TEST(siblings_stay_apart_where_that_is_as_fast) {
  siblings_apart(16, 32);
  ck_assert_int_eq(products, 1);
  ck_assert_str_eq(memory.problem[1], siblings_problem);
  ck_assert_str_eq(memory.way[1], "apart");
  forget();
  siblings_apart(64, 16);
  ck_assert_int_eq(memory.asked, 2);
  ck_assert_int_eq(timed + guessed + memory.kept, 0);
  ck_assert_int_eq(products, 1);
  ck_assert_int_eq(ran, FASTEST);
  (void)snprintf(memory.way[1], sizeof memory.way[1], "apart 512 abc02 0 0 0 0 0 0 ffffffffffffffff");
  forget();
  siblings_apart(16, 32); /* those are not words of theirs */
  ck_assert_str_eq(memory.way[1], "apart");
}
END_TEST

/* Not at equal distances, not ascending, or never timed. */
START_TEST(siblings_that_are_no_batch) {
  const kern_linear size = {.rows = 64, .in = 16, .out = 32};
  const void *const even[] = {scratch, scratch + 16, scratch + 32}, *const odd[] = {scratch, scratch + 16,
                                                                                    scratch + 48};
  void *const outputs[] = {scratch, scratch + 16, scratch + 32}, *const down[] = {scratch + 32, scratch + 16, scratch};
  batch_ms = 0.75f;
  kern_cuda_linears_forward(&context, &size, 3, scratch, odd, outputs);
  kern_cuda_linears_forward(&context, &size, 3, scratch, even, down);
  kern_cuda_linears_weight_gradient(&context, &size, 3, scratch, odd, outputs);
  kern_cuda_linears_weight_gradient(&context, &size, 3, scratch, even, down);
  ck_assert_int_eq(memory.asked, 2); /* forward, and a gradient */
  ck_assert_int_eq(products, 1);
  forget();
  memory.count = 0;
  context.tuning = false;
  kern_cuda_linears_forward(&context, &size, 3, scratch, even, outputs);
  kern_cuda_linears_weight_gradient(&context, &size, 3, scratch, even, outputs);
  ck_assert_int_eq(memory.kept, 0);
  ck_assert_int_eq(products, 1);
}
END_TEST

/* Ways that only gradients of weights have: of products of shifts those that are summed in parts only in fp32; where
 * there is no such product, another way is taken. */
START_TEST(ways_of_weight_gradients_alone) {
  static const char *const ways[] = {"shifted", "spread", "rounded plan 1"};
  quickest = SHIFTED;
  convolution();
  ck_assert_str_eq(memory.way[0], "plain plan 2");
  for (int i = 0; i < 3; i++) {
    (void)snprintf(memory.way[0], sizeof memory.way[0], "%s", ways[i]);
    forget();
    convolution();
    ck_assert_str_eq(memory.way[0], "plain plan 2");
  }
  forget();
  setup();
  context.options.gradient = KERN_BF16;
  weight_gradient_by_shifts();
  ck_assert_str_eq(memory.way[0], "plain plan 2");
  (void)snprintf(memory.way[0], sizeof memory.way[0], "shifted");
  forget();
  weight_gradient();
  ck_assert_str_eq(memory.way[0], "plain plan 2");
  forget();
  weight_gradient_spread();
  ck_assert_int_eq(timed, 0);
  (void)snprintf(memory.way[0], sizeof memory.way[0], "spread");
  forget();
  weight_gradient();
  ck_assert_int_eq(timed, 0);
  ck_assert_int_eq(ran, SPREAD);
  forget();
  setup();
  shifts_fail = true;
  weight_gradient_spread();
  ck_assert_int_eq(context.trouble.status, DP_OK);
  ck_assert_str_eq(memory.way[0], "plain plan 2");
}
END_TEST

/* What adds in any order is neither found nor remembered where that is not allowed. */
START_TEST(attention_adds_in_one_order_where_it_must) {
  attention_backward();
  (void)snprintf(memory.way[0], sizeof memory.way[0], "sum 2 1 config 1");
  forget();
  attention_backward();
  expect_found_anew(BACKWARD);
  forget();
  noted = 1; /* of config 1, which is slower */
  (void)snprintf(memory.way[0], sizeof memory.way[0], "graph 2 1 config 1");
  attention_backward();
  expect_found_anew(BACKWARD);
  forget();
  setup();
  noted = ALGORITHMS;
  attention_backward();
  ck_assert_str_eq(memory.way[0], "own");
  ck_assert_int_eq(ran, ALGORITHMS);
  forget();
  setup();
  noted = ALGORITHMS;
  attention_in_any_order();
  ck_assert_str_eq(memory.way[0], "sum 4 8 config 3");
}
END_TEST

/* To few keys our own kernels are among those that are timed, as another kind of problem, and are taken before our
 * others where cuDNN has nothing. */
static void (*const with_few_keys[])(void) = {attention, attention_backward, attention_in_any_order};
static const char *const without_few_keys[] = {"graph 4 8 config 3", "graph 4 8 config 3", "sum 4 8 config 3"};
START_TEST(attention_to_few_keys) {
  with_few_keys[_i]();
  const char *const after = strchr(memory.problem[0], ' ');
  char problem[sizeof memory.problem[0]];
  (void)snprintf(problem, sizeof problem, "attention-few%s", after);
  forget();
  few_takes = true;
  quickest = FEW;
  with_few_keys[_i]();
  ck_assert_int_eq(memory.count, 2);
  ck_assert_str_eq(memory.problem[1], problem);
  ck_assert_str_eq(memory.way[1], "own");
  ck_assert_int_eq(ran, FEW);
  forget();
  with_few_keys[_i]();
  ck_assert_int_eq(timed + guessed + memory.kept, 0);
  ck_assert_int_eq(ran, FEW);
  forget();
  setup();
  few_takes = true; /* and is slower */
  with_few_keys[_i]();
  ck_assert_str_eq(memory.way[0], without_few_keys[_i]);
  ck_assert_int_eq(ran, FASTEST);
  forget();
  context.tuning = false; /* nobody knows which is faster */
  memory.count = 0;
  with_few_keys[_i]();
  ck_assert_int_eq(ran, 0);
}
END_TEST

START_TEST(few_keys_go_before_our_other_kernels) {
  few_takes = true;
  noted = ALGORITHMS; /* cuDNN adds in any order */
  attention_backward();
  ck_assert_str_eq(memory.way[0], "own");
  ck_assert_int_eq(ran, FEW);
  forget();
  attention_of_our_own();
  ck_assert_int_eq(ran, FEW);
}
END_TEST

/* Whatever the choice may depend on makes another problem. */
START_TEST(other_problems_are_others) {
  convolution();
  forget();
  context.options.gradient = KERN_BF16;
  convolution();
  forget();
  context.options.dtype = KERN_FP32;
  convolution();
  forget();
  context.options.tf32 = true;
  convolution();
  ck_assert_int_eq(memory.count, 4);
  forget();
  setup();
  attention();
  forget();
  context.options.workspace_bytes /= 2;
  attention();
  ck_assert_int_eq(memory.count, 2);
}
END_TEST

/* What another library has left is not taken for a plan's own failure, and one that fails is tried once more. */
START_TEST(a_plan_is_not_blamed_for_others_and_may_fail_once) {
  descriptor config = of_number(A_CONFIG + 1);
  kern_cuda_plan_counts before, c;
  kern_cuda_count_plans(&before);
  ran = -1;
  last_error = cudaErrorInvalidClusterSize;
  ck_assert_int_eq(kern_cuda_execute(&context, (descriptor)&config, NULL), CUDNN_STATUS_SUCCESS);
  ck_assert_int_eq(ran, 1);
  kern_cuda_count_plans(&c);
  ck_assert_uint_eq(c.dropped, before.dropped + 1);
  ck_assert_int_eq(c.dropped_last, cudaErrorInvalidClusterSize);
  ck_assert_uint_eq(c.failed, before.failed);
  unlucky = 1;
  ck_assert_int_eq(kern_cuda_execute(&context, (descriptor)&config, NULL), CUDNN_STATUS_SUCCESS);
  unlucky = 2;
  ck_assert_int_eq(kern_cuda_execute(&context, (descriptor)&config, NULL), CUDNN_STATUS_EXECUTION_FAILED_CUDART);
  ck_assert_int_eq(unlucky, 0);
  kern_cuda_count_plans(&c);
  ck_assert_uint_eq(c.failed, before.failed + 2);
  ck_assert_uint_eq(c.mended, before.mended + 1);
  ck_assert_int_eq(c.failed_last, cudaErrorInvalidClusterSize);
}
END_TEST

START_TEST(words_and_numbers) {
  const char *at = "fused 12 ff";
  uint64_t n = 0;
  ck_assert(!kern_cuda_take_word(&at, "fuse") && !kern_cuda_take_word(&at, "fused 1") &&
            !kern_cuda_take_number(&at, 10, &n));
  ck_assert(kern_cuda_take_word(&at, "fused") && kern_cuda_take_number(&at, 10, &n) && n == 12);
  ck_assert(!kern_cuda_take_number(&at, 10, &n) && kern_cuda_take_number(&at, 16, &n) && n == 255 && !*at);
  ck_assert(!kern_cuda_take_number(&at, 10, &n) && !kern_cuda_take_word(&at, "fused"));
  static const char *const none[] = {"-1", "+1", " 1", "1x", "18446744073709551616", ""};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    at = none[i];
    ck_assert_msg(!kern_cuda_take_number(&at, 10, &n) && at == none[i], "%s", none[i]);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_remember");
  TCase *tcase = suite_case(suite, "cuda_remember", setup, teardown, 0);
  tcase_add_loop_test(tcase, what_was_found_is_told_and_then_not_timed_again, 0, CASES);
  tcase_add_loop_test(tcase, what_is_remembered_goes_before_what_is_fast, 0, CASES);
  tcase_add_loop_test(tcase, what_cannot_be_had_is_timed_again_and_replaced, 0, CASES);
  tcase_add_loop_test(tcase, parts_may_be_unlike, 0, CASES);
  tcase_add_loop_test(tcase, guesses_are_not_told, 0, CASES);
  tcase_add_loop_test(tcase, nothing_need_be_remembered, 0, CASES);
  tcase_add_loop_test(tcase, what_fails_is_not_told, 0, CASES);
  tcase_add_test(tcase, a_product_with_sums_or_both_by_themselves);
  tcase_add_test(tcase, siblings_are_a_batch_where_that_is_faster);
  tcase_add_test(tcase, siblings_stay_apart_where_that_is_as_fast);
  tcase_add_test(tcase, siblings_that_are_no_batch);
  tcase_add_test(tcase, ways_of_weight_gradients_alone);
  tcase_add_test(tcase, attention_adds_in_one_order_where_it_must);
  tcase_add_loop_test(tcase, attention_to_few_keys, 0, 3);
  tcase_add_test(tcase, few_keys_go_before_our_other_kernels);
  tcase_add_test(tcase, other_problems_are_others);
  tcase_add_test(tcase, a_plan_is_not_blamed_for_others_and_may_fail_once);
  tcase_add_test(tcase, words_and_numbers);
  return suite_finish(suite);
}
