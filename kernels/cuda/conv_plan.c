/* Convolutions as cuDNN's graphs: the convolution, then a residual and a bias if asked for; in this order there are
 * engines that need not be compiled first. Images and weights are dense with channels last, which cuDNN is told by
 * strides. The heuristics' list is followed from its head, then, where that is short, the fallback list; engines that
 * add in no fixed order, or less exactly than asked for, are passed over, and so are more than a few of those that are
 * compiled when they are made, which takes a second each.
 *
 * cuDNN's failures here mean that it has no such engine: they are not the context's.
 */
#include <stdlib.h>

#include "kernels/cuda/conv.h"
#include "kernels/cuda/engine.h"

enum { MAX_PLANS = 32, MAX_PARTS = 24, MAX_CONFIGS = 64, UID = 1, VIRTUAL = 100 };
enum { FEW = 8 }; /* as many of the fallback list, and of what is compiled, are enough */

typedef cudnnBackendDescriptor_t part;

typedef struct plan {
  part config, plan;
  size_t workspace_bytes;
} plan;

struct kern_conv_plans {
  part parts[MAX_PARTS]; /* of the graph; they live as long as its plans */
  int part_count;
  bool broken; /* a part could not be made */
  part graph;
  bool used[KERN_CONV_ARRAYS];
  plan plans[MAX_PLANS];
  int count, compiled;
};

static void destroy(part p) {
  if (p) (void)cudnnBackendDestroyDescriptor(p);
}

static part make(kern_conv_plans *g, cudnnBackendDescriptorType_t type) {
  part p = NULL;
  if (g->part_count == MAX_PARTS || cudnnBackendCreateDescriptor(type, &p) != CUDNN_STATUS_SUCCESS)
    g->broken = true;
  else
    g->parts[g->part_count++] = p;
  return p;
}

static void set(kern_conv_plans *g, part p, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *values) {
  if (!g->broken && cudnnBackendSetAttribute(p, name, type, count, values) != CUDNN_STATUS_SUCCESS) g->broken = true;
}

static void set_part(kern_conv_plans *g, part p, cudnnBackendAttributeName_t name, part value) {
  set(g, p, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish(kern_conv_plans *g, part p) {
  if (!g->broken && cudnnBackendFinalize(p) != CUDNN_STATUS_SUCCESS) g->broken = true;
}

/* ---- the graph ---- */

typedef struct shape {
  int64_t outer, channels, height, width;
} shape;

static part tensor(kern_conv_plans *g, int64_t uid, kern_dtype dtype, bool is_virtual, shape s) {
  part p = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const cudnnDataType_t type = dtype == KERN_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  const int64_t dims[4] = {s.outer, s.channels, s.height, s.width}, alignment = 16;
  const int64_t strides[4] = {s.height * s.width * s.channels, 1, s.width * s.channels, s.channels};
  set(g, p, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set(g, p, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
  set(g, p, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
  set(g, p, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
  set(g, p, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  set(g, p, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  finish(g, p);
  return p;
}

static part array(kern_conv_plans *g, kern_conv_array which, kern_dtype dtype, shape s) {
  g->used[which] = true;
  return tensor(g, UID + which, dtype, false, s);
}

static part convolution(kern_conv_plans *g, const kern_conv2d *s) {
  part p = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  const int64_t dims = 2, dilations[2] = {1, 1}, strides[2] = {s->stride_height, s->stride_width};
  const int64_t padding[2] = {s->padding_height, s->padding_width};
  set(g, p, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set(g, p, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(g, p, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
  set(g, p, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
  set(g, p, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
  set(g, p, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
  set(g, p, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding);
  finish(g, p);
  return p;
}

/* What a direction's attributes are called, in the order of x, w, y. */
typedef struct names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t arrays[3], convolution, alpha, beta;
  kern_conv_array result;
} names;

static const names names_of[] = {
    [KERN_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                           KERN_CONV_Y},
    [KERN_CONV_INPUT_GRADIENT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                  {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                                  KERN_CONV_X},
    [KERN_CONV_WEIGHT_GRADIENT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                   {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                                   KERN_CONV_W},
};

static part addition(kern_conv_plans *g, part x, part more, part y) {
  part how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
  finish(g, how);
  part p = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_part(g, p, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  set_part(g, p, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  set_part(g, p, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, more);
  set_part(g, p, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  finish(g, p);
  return p;
}

static bool describe(kern_cuda *context, kern_conv_plans *g, const kern_conv_graph *what) {
  const kern_conv2d *s = &what->size;
  const names *n = &names_of[what->direction];
  const kern_dtype dtype = context->options.dtype;
  const shape shapes[3] = {{s->batch, s->in, s->height, s->width},
                           {s->out, s->in, s->kernel_height, s->kernel_width},
                           {s->batch, s->out, kern_cuda_conv_out_height(s), kern_cuda_conv_out_width(s)}};
  const shape result = shapes[n->result];
  part operations[3];
  int64_t count = 0, more = what->bias + what->residual;

  part at = more > 0 ? tensor(g, VIRTUAL, KERN_FP32, true, result) : array(g, n->result, what->result, result);
  part how = convolution(g, s), p = make(g, n->type);
  for (int i = 0; i < 3; i++)
    set_part(g, p, n->arrays[i], i == (int)n->result ? at : array(g, (kern_conv_array)i, dtype, shapes[i]));
  const float alpha = 1, beta = what->add ? 1 : 0;
  set_part(g, p, n->convolution, how);
  set(g, p, n->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
  set(g, p, n->beta, CUDNN_TYPE_FLOAT, 1, &beta);
  finish(g, p);
  operations[count++] = p;
  for (int i = 0; i < 2; i++) {
    if (!(i == 0 ? what->residual : what->bias)) continue;
    const part other = i == 0 ? array(g, KERN_CONV_RESIDUAL, what->result, result)
                              : array(g, KERN_CONV_BIAS, dtype, (shape){1, result.channels, 1, 1});
    const part to =
        count == more ? array(g, n->result, what->result, result) : tensor(g, VIRTUAL + count, KERN_FP32, true, result);
    operations[count++] = addition(g, at, other, to);
    at = to;
  }
  g->graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &context->dnn);
  set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, operations);
  finish(g, g->graph);
  return !g->broken;
}

/* ---- engines ---- */

static bool is_exact(const kern_cuda *context, const cudnnBackendNumericalNote_t *notes, int64_t count) {
  const bool exact = context->options.dtype == KERN_FP32 && !context->options.tf32;
  if (count > CUDNN_NUMERICAL_NOTE_TYPE_COUNT) return false; /* of a newer library: not all are known */
  for (int64_t i = 0; i < count; i++) {
    switch (notes[i]) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return false;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        if (exact) return false;
        break;
      default:
        break;
    }
  }
  return true;
}

static bool is_compiled(part engine) {
  cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  int64_t count = 0;
  if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                               CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, notes) != CUDNN_STATUS_SUCCESS)
    return false;
  for (int64_t i = 0; i < count && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
    if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return true;
  return false;
}

static bool is_wanted(const kern_cuda *context, part config, bool *compiled) {
  part engine = NULL;
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t one = 0, count = 0;
  bool wanted = false;
  if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
  if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine) ==
          CUDNN_STATUS_SUCCESS &&
      cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) == CUDNN_STATUS_SUCCESS)
    wanted = is_exact(context, notes, count);
  *compiled = wanted && is_compiled(engine);
  destroy(engine);
  return wanted;
}

/* Takes the config, or leaves it the caller's. */
static bool try_config(const kern_cuda *context, kern_conv_plans *g, part config, size_t workspace_bytes) {
  plan p = {.config = config};
  int64_t bytes = 0, one = 0;
  bool compiled = false;
  if (!is_wanted(context, config, &compiled) || (compiled && g->compiled == FEW) ||
      cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p.plan) != CUDNN_STATUS_SUCCESS)
    return false;
  if (cudnnBackendSetAttribute(p.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &context->dnn) ==
          CUDNN_STATUS_SUCCESS &&
      cudnnBackendSetAttribute(p.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                               &config) == CUDNN_STATUS_SUCCESS &&
      cudnnBackendFinalize(p.plan) == CUDNN_STATUS_SUCCESS &&
      cudnnBackendGetAttribute(p.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &one, &bytes) ==
          CUDNN_STATUS_SUCCESS &&
      bytes >= 0 && (uint64_t)bytes <= workspace_bytes) {
    p.workspace_bytes = (size_t)bytes;
    g->plans[g->count++] = p;
    g->compiled += compiled;
    return true;
  }
  destroy(p.plan);
  return false;
}

static void ask(const kern_cuda *context, kern_conv_plans *g, cudnnBackendHeurMode_t mode, size_t workspace_bytes,
                int most) {
  part heuristics = NULL, configs[MAX_CONFIGS] = {NULL};
  int64_t count = 0, made = 0;
  if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics) != CUDNN_STATUS_SUCCESS) return;
  bool well = cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                       1, &g->graph) == CUDNN_STATUS_SUCCESS &&
              cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) ==
                  CUDNN_STATUS_SUCCESS;
  if (well && context->options.sm_count > 0) { /* a hint, which not every version takes */
    const int32_t sm_count = context->sm_count;
    (void)cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_TYPE_INT32, 1, &sm_count);
  }
  well = well && cudnnBackendFinalize(heuristics) == CUDNN_STATUS_SUCCESS &&
         cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                                  NULL) == CUDNN_STATUS_SUCCESS;
  if (count > MAX_CONFIGS) count = MAX_CONFIGS;
  while (well && made < count) {
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[made]) != CUDNN_STATUS_SUCCESS) break;
    made++;
  }
  count = 0;
  if (well && made > 0 &&
      cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &count,
                               configs) != CUDNN_STATUS_SUCCESS)
    count = 0;
  for (int64_t i = 0; i < made; i++)
    if (i >= count || g->count >= most || !try_config(context, g, configs[i], workspace_bytes)) destroy(configs[i]);
  destroy(heuristics);
}

/* ---- plans ---- */

kern_conv_plans *kern_conv_plans_make(kern_cuda *context, const kern_conv_graph *graph, size_t workspace_bytes,
                                      int most) {
  kern_conv_plans *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  if (most > MAX_PLANS) most = MAX_PLANS;
  if (describe(context, g, graph)) {
    ask(context, g, CUDNN_HEUR_MODE_A, workspace_bytes, most);
    const int enough = most < FEW ? most : FEW;
    if (g->count < enough) ask(context, g, CUDNN_HEUR_MODE_FALLBACK, workspace_bytes, enough);
  }
  (void)cudaGetLastError(); /* an engine's that could not be built is not a launch's */
  if (g->count > 0) return g;
  kern_conv_plans_free(g);
  return NULL;
}

kern_conv_plans *kern_conv_plans_restore(kern_cuda *context, const kern_conv_graph *graph, size_t workspace_bytes,
                                         const char *words) {
  kern_conv_plans *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  part config = describe(context, g, graph) ? kern_cuda_engine_of(g->graph, words) : NULL;
  if (config && !try_config(context, g, config, workspace_bytes)) destroy(config);
  (void)cudaGetLastError();
  if (g->count > 0) return g;
  kern_conv_plans_free(g);
  return NULL;
}

bool kern_conv_plans_tell(const kern_conv_plans *g, int index, char *out, size_t bytes) {
  return kern_cuda_engine_tell(g->graph, g->plans[index].config, out, bytes);
}

int kern_conv_plans_count(const kern_conv_plans *g) { return g->count; }

static void drop(plan *p) {
  destroy(p->plan);
  destroy(p->config);
  *p = (plan){.plan = NULL};
}

void kern_conv_plans_keep(kern_conv_plans *g, int index) {
  for (int i = 0; i < g->count; i++)
    if (i != index) drop(&g->plans[i]);
}

void kern_conv_plans_free(kern_conv_plans *g) {
  if (!g) return;
  for (int i = 0; i < g->count; i++) drop(&g->plans[i]);
  while (g->part_count > 0) destroy(g->parts[--g->part_count]); /* what is made of others goes first */
  free(g);
}

cudnnStatus_t kern_conv_plans_run(kern_cuda *context, const kern_conv_plans *g, int index,
                                  void *const arrays[KERN_CONV_ARRAYS], void *workspace) {
  int64_t uids[KERN_CONV_ARRAYS], count = 0;
  void *pointers[KERN_CONV_ARRAYS];
  for (int i = 0; i < KERN_CONV_ARRAYS; i++) {
    if (!g->used[i]) continue;
    uids[count] = UID + i;
    pointers[count++] = arrays[i];
  }
  if (g->plans[index].workspace_bytes == 0) workspace = NULL;
  part pack = NULL;
  cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids);
  if (status == CUDNN_STATUS_SUCCESS)
    status =
        cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendFinalize(pack);
  if (status == CUDNN_STATUS_SUCCESS) status = kern_cuda_execute(context, g->plans[index].plan, pack);
  destroy(pack);
  return status;
}
