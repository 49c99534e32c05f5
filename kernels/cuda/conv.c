/* Convolutions: those of one position without a step are products; the others are cuDNN's, with channels last, or
 * products with gathered columns. What is to be added to the result is asked of cuDNN in a few ways, since not every
 * engine knows each, and else added by a kernel of our own. Weights' gradients may be faster as products of shifted
 * images. For each size the way and its plan are found once.
 *
 * The workspace is scratch, for a result that is then added to what lies there, and before it what a plan or a product
 * uses; the ways by shifts have all of it for their copies. Plans get room for copies of images in another layout and
 * for the partial sums of weights' gradients that are split over positions: at SDXL's largest, 8 images of 128 x 128 x
 * 320, the most that is given, 256 MiB, which holds 69 partial sums.
 */
#include "kernels/cuda/conv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/memory.h"

enum { TUNED_PLANS = 24, COMPILED_PLANS = 2, FEW_CHANNELS = 16 };
static const size_t most_library_bytes = (size_t)256 << 20;

/* In the order in which they are tried. */
typedef enum way {
  WAY_BETA,    /* the convolution adds to its result */
  WAY_FUSED,   /* what is added is part of the graph; for gradients cuDNN compiles that, which takes a second */
  WAY_PLAIN,   /* the convolution, then our addition */
  WAY_ROUNDED, /* as that, with weights' gradients in the activations' dtype on the way */
  WAY_COLUMNS, /* from here on products: see conv.h */
  WAY_SHIFTED,
  WAY_SPREAD,
  WAYS
} way;
static const char *const direction_names[] = {"forward", "input gradient", "weight gradient"}; /* by kern_conv_direction */
static const char *const way_names[] = {"beta", "fused", "plain", "rounded", "columns", "shifted", "spread"};

/* Of a size. */
typedef struct choice {
  way way;
  kern_conv_plans *plans;
  int index;
} choice;

typedef struct job {
  kern_cuda *context;
  const kern_conv2d *size;
  kern_conv_direction direction;
  bool accumulate;
  void *arrays[KERN_CONV_ARRAYS];
  void *library, *scratch;
  size_t library_bytes;
  const choice *timed;
} job;

static void release(void *value) {
  choice *c = value;
  kern_conv_plans_free(c->plans);
  free(c);
}

void kern_cuda_convs_free(kern_cuda_cache *cache) { kern_cuda_cache_free(cache, release); }

/* ---- sizes ---- */

static bool is_product(const kern_conv2d *s) {
  return s->kernel_height == 1 && s->kernel_width == 1 && s->stride_height == 1 && s->stride_width == 1 &&
         s->padding_height == 0 && s->padding_width == 0;
}

static kern_linear product_of(const kern_conv2d *s) {
  return (kern_linear){.rows = s->batch * s->height * s->width, .in = s->in, .out = s->out};
}

static int64_t out_positions(const kern_conv2d *s) {
  return s->batch * kern_cuda_conv_out_height(s) * kern_cuda_conv_out_width(s);
}

static int64_t values_of(const kern_conv2d *s, kern_conv_array array) {
  if (array == KERN_CONV_X) return s->batch * s->height * s->width * s->in;
  if (array == KERN_CONV_W) return s->out * s->kernel_height * s->kernel_width * s->in;
  return out_positions(s) * s->out;
}

static size_t library_bytes(const kern_conv2d *s, kern_dtype dtype) {
  const int64_t images = values_of(s, KERN_CONV_X) + values_of(s, KERN_CONV_Y);
  const size_t wish =
      kern_cuda_round_up((size_t)(2 * images * kern_dtype_bytes(dtype)) + (size_t)(64 * values_of(s, KERN_CONV_W)));
  const size_t bytes = wish < most_library_bytes ? wish : most_library_bytes;
  return kern_cuda_larger(bytes, KERN_CONV_COLUMNS_BYTES);
}

/* A result, the weights' in fp32, or turned weights. */
static size_t scratch_bytes(const kern_conv2d *s, kern_dtype dtype) {
  const int64_t x = values_of(s, KERN_CONV_X), y = values_of(s, KERN_CONV_Y);
  return kern_cuda_round_up(
      kern_cuda_larger((size_t)((x > y ? x : y) * kern_dtype_bytes(dtype)), (size_t)(values_of(s, KERN_CONV_W) * 4)));
}

size_t kern_cuda_conv2d_workspace(const kern_conv2d *s, kern_dtype dtype) {
  const kern_linear product = product_of(s);
  if (is_product(s)) return kern_cuda_linear_workspace(&product, dtype);
  return kern_cuda_larger(library_bytes(s, dtype) + scratch_bytes(s, dtype),
                          kern_cuda_column_sums_workspace(out_positions(s), s->out));
}

/* ---- one way ---- */

static kern_conv_array result_of(kern_conv_direction direction) {
  return direction == KERN_CONV_FORWARD          ? KERN_CONV_Y
         : direction == KERN_CONV_INPUT_GRADIENT ? KERN_CONV_X
                                                 : KERN_CONV_W;
}

static kern_dtype result_dtype(const job *j) {
  return j->direction == KERN_CONV_WEIGHT_GRADIENT ? j->context->options.gradient : j->context->options.dtype;
}

/* CUDNN_STATUS_SUCCESS, or the plan cannot be run; other failures are the context's. */
static cudnnStatus_t run_way(const job *j, const choice *c) {
  const kern_conv2d *s = j->size;
  const kern_conv_array result = result_of(j->direction);
  const kern_dtype dtype = j->context->options.dtype;
  void *arrays[KERN_CONV_ARRAYS];
  memcpy(arrays, j->arrays, sizeof arrays);
  if (c->way == WAY_COLUMNS) {
    kern_conv_columns_run(j->context, s, j->direction, j->accumulate, arrays, j->scratch, j->library, j->library_bytes);
    return CUDNN_STATUS_SUCCESS;
  }
  if (c->way > WAY_COLUMNS) {
    kern_conv_shifts_run(j->context, s, c->way == WAY_SPREAD, j->accumulate, arrays, j->library);
    return CUDNN_STATUS_SUCCESS;
  }
  const bool apart = c->way == WAY_ROUNDED || (c->way == WAY_PLAIN && (j->accumulate || arrays[KERN_CONV_RESIDUAL]));
  if (apart) arrays[result] = j->scratch;
  if (c->way == WAY_FUSED && j->accumulate) arrays[KERN_CONV_RESIDUAL] = arrays[result];
  if (c->way == WAY_FUSED && !j->accumulate && !arrays[KERN_CONV_BIAS]) {
    arrays[KERN_CONV_BIAS] = j->scratch;
    if (!KERN_CUDA_TRY(j->context,
                       cudaMemsetAsync(j->scratch, 0, (size_t)(s->out * kern_dtype_bytes(dtype)), j->context->stream)))
      return CUDNN_STATUS_SUCCESS;
  }
  const cudnnStatus_t status = kern_conv_plans_run(j->context, c->plans, c->index, arrays, j->library);
  if (status != CUDNN_STATUS_SUCCESS || c->way == WAY_FUSED || c->way == WAY_BETA) return status;
  if (j->accumulate)
    kern_cuda_add_to(j->context, values_of(s, result), c->way == WAY_ROUNDED ? dtype : result_dtype(j), j->scratch,
                     result_dtype(j), j->arrays[result]);
  else if (c->way == WAY_ROUNDED)
    kern_cuda_convert(j->context, values_of(s, result), dtype, j->scratch, result_dtype(j), j->arrays[result]);
  else if (arrays[KERN_CONV_BIAS] || arrays[KERN_CONV_RESIDUAL])
    kern_cuda_add_bias(j->context, out_positions(s), s->out, s->out, arrays[KERN_CONV_Y], arrays[KERN_CONV_BIAS],
                       arrays[KERN_CONV_RESIDUAL], j->arrays[KERN_CONV_Y]);
  return status;
}

/* ---- the choice ---- */

static bool is_aligned(const job *j) {
  uintptr_t all = 0;
  for (int i = 0; i < KERN_CONV_ARRAYS; i++) all |= (uintptr_t)j->arrays[i];
  return all % 16 == 0;
}

/* Sums that are added one after another are fp32's; with one tap a row there are none, and one way is enough. */
static bool has_shifts(const job *j, way w) {
  const bool spread = w == WAY_SPREAD, one = j->size->kernel_width == 1;
  const size_t bytes = kern_conv_shifts_bytes(j->size, j->context->options.dtype, spread);
  return j->direction == KERN_CONV_WEIGHT_GRADIENT && bytes > 0 &&
         bytes <= j->library_bytes + scratch_bytes(j->size, j->context->options.dtype) &&
         (spread ? !one : one || j->context->options.gradient == KERN_FP32);
}

static bool is_possible(const job *j, way w) {
  const bool more = j->arrays[KERN_CONV_BIAS] || j->arrays[KERN_CONV_RESIDUAL];
  const bool weights = j->direction == KERN_CONV_WEIGHT_GRADIENT;
  if (w == WAY_COLUMNS) return true;
  if (!is_aligned(j)) return false;
  if (w > WAY_COLUMNS) return has_shifts(j, w);
  if (w == WAY_FUSED) return more || j->accumulate;
  if (w == WAY_BETA) return j->accumulate;
  if (w == WAY_ROUNDED) return weights && j->context->options.gradient != j->context->options.dtype;
  return true;
}

/* What the convolution alone gives, before our addition. */
static bool is_rounded_twice(const job *j) {
  return j->context->options.dtype == KERN_BF16 && (j->arrays[KERN_CONV_BIAS] || j->arrays[KERN_CONV_RESIDUAL]);
}

static kern_conv_graph graph_of(const job *j, way w) {
  kern_conv_graph graph = {.size = *j->size, .direction = j->direction, .result = result_dtype(j)};
  if (w == WAY_ROUNDED) graph.result = j->context->options.dtype;
  graph.add = w == WAY_BETA;
  if (w == WAY_FUSED) {
    graph.bias = j->direction == KERN_CONV_FORWARD; /* also before a residual alone: those engines there are */
    graph.residual = j->arrays[KERN_CONV_RESIDUAL] != NULL || j->accumulate;
  }
  return graph;
}

static kern_conv_plans *plans_of(const job *j, way w, int most) {
  const kern_conv_graph graph = graph_of(j, w);
  return kern_conv_plans_make(j->context, &graph, j->library_bytes, most);
}

static void run_timed(void *data) {
  const job *j = data;
  (void)KERN_DNN_TRY(j->context, run_way(j, j->timed));
}

/* The first plan that can be run; it has been run. */
static bool take_first(const job *j, choice *c) {
  for (c->way = 0; c->way < WAY_COLUMNS; c->way++) {
    if (!is_possible(j, c->way) || !(c->plans = plans_of(j, c->way, 1))) continue;
    if (run_way(j, c) == CUDNN_STATUS_SUCCESS) return true;
    (void)cudaGetLastError();
    kern_conv_plans_free(c->plans);
    c->plans = NULL;
  }
  return run_way(j, c) == CUDNN_STATUS_SUCCESS;
}

/* Milliseconds; 0: it cannot be run. */
static float time_of(job *j, const choice *c) {
  const bool well = run_way(j, c) == CUDNN_STATUS_SUCCESS;
  if (c->way > WAY_COLUMNS && j->context->trouble.status == DP_UNSUPPORTED) { /* such a product: there are other ways */
    j->context->trouble = (dp_error)DP_ERROR_INIT;
    return 0;
  }
  if (!well) {
    (void)cudaGetLastError();
    return 0;
  }
  j->timed = c;
  const float ms = kern_cuda_time_ms(j->context, run_timed, j);
  return ms > 0 ? ms : 1e-6f;
}

static bool may_win(const job *j, way w, bool alone) {
  const kern_cuda_options *options = &j->context->options;
  const bool few = j->size->in <= FEW_CHANNELS || j->size->out <= FEW_CHANNELS;
  if (w > WAY_COLUMNS) return !few;
  /* cuDNN's engines are not at their best with few channels, nor in exact fp32 */
  return !alone && (few || (options->dtype == KERN_FP32 && !options->tf32));
}

/* The fastest of the ways by products, if it is faster than `least`, 0: there is no other. */
static void take_products(job *j, choice *best, float least) {
  for (way w = WAY_COLUMNS; w < WAYS && !kern_cuda_failed(j->context); w++) {
    const choice c = {.way = w};
    if (!is_possible(j, w) || !may_win(j, w, least <= 0)) continue;
    const float ms = time_of(j, &c);
    if (ms <= 0 || (least > 0 && ms >= least)) continue;
    least = ms;
    kern_conv_plans_free(best->plans);
    *best = c;
  }
}

static void take_fastest(job *j, choice *best) {
  float least = 0;
  *best = (choice){.way = WAY_COLUMNS};
  for (way w = 0; w < WAY_COLUMNS && !kern_cuda_failed(j->context); w++) {
    choice c = {.way = w};
    const bool compiled = w == WAY_FUSED && j->accumulate, twice = w == WAY_PLAIN && is_rounded_twice(j);
    if (!is_possible(j, w) || ((compiled || twice) && least > 0)) continue;
    c.plans = plans_of(j, w, compiled ? COMPILED_PLANS : TUNED_PLANS);
    if (!c.plans) continue;
    int fastest = -1;
    for (; c.index < kern_conv_plans_count(c.plans) && !kern_cuda_failed(j->context); c.index++) {
      float ms = time_of(j, &c);
      if (w == WAY_ROUNDED) ms *= 2; /* it must be worth a rounding */
      if (ms <= 0 || (least > 0 && ms >= least)) continue;
      least = ms;
      fastest = c.index;
    }
    if (fastest < 0) {
      kern_conv_plans_free(c.plans);
      continue;
    }
    kern_conv_plans_keep(c.plans, fastest);
    kern_conv_plans_free(best->plans);
    *best = (choice){.way = w, .plans = c.plans, .index = fastest};
  }
  take_products(j, best, least);
}

/* ---- what is remembered: the way, and the engine of its plan ---- */

typedef struct attempt {
  job *job;
  choice *choice;
  bool done; /* it has been run */
} attempt;

/* It is also run: parts of a device with as many multiprocessors may differ in the clusters that they can launch. */
static bool restore(void *data, const char *words) {
  attempt *at = data;
  const job *j = at->job;
  way w = 0;
  while (w < WAYS && !kern_cuda_take_word(&words, way_names[w])) w++;
  if (w == WAYS || !is_possible(j, w)) return false;
  choice c = {.way = w};
  if (w < WAY_COLUMNS) {
    const kern_conv_graph graph = graph_of(j, w);
    c.plans = kern_conv_plans_restore(j->context, &graph, j->library_bytes, words);
    if (!c.plans) return false;
  } else if (*words) {
    return false;
  }
  at->done = run_way(j, &c) == CUDNN_STATUS_SUCCESS;
  if (at->done) {
    *at->choice = c;
    return true;
  }
  (void)cudaGetLastError();
  kern_conv_plans_free(c.plans);
  return false;
}

static bool choose_anew(void *data, char words[KERN_CUDA_WAY_BYTES]) {
  attempt *at = data;
  const choice *c = at->choice;
  if (at->job->context->tuning)
    take_fastest(at->job, at->choice);
  else
    at->done = take_first(at->job, at->choice);
  const int length = snprintf(words, KERN_CUDA_WAY_BYTES, c->plans ? "%s " : "%s", way_names[c->way]);
  return !c->plans || kern_conv_plans_tell(c->plans, c->index, words + length, (size_t)(KERN_CUDA_WAY_BYTES - length));
}

static kern_cuda_key key_of(const job *j) {
  const kern_conv2d *s = j->size;
  return (kern_cuda_key){{s->batch, s->height, s->width, s->in, s->out, s->kernel_height, s->kernel_width,
                          s->stride_height, s->stride_width, s->padding_height, s->padding_width, j->direction,
                          j->accumulate, j->arrays[KERN_CONV_BIAS] != NULL, j->arrays[KERN_CONV_RESIDUAL] != NULL,
                          is_aligned(j)}};
}

static void run(job *j) {
  kern_cuda *context = j->context;
  if (kern_cuda_failed(context) || out_positions(j->size) <= 0) return;
  const kern_dtype dtype = context->options.dtype;
  j->library_bytes = library_bytes(j->size, dtype);
  j->library = context->options.workspace;
  j->scratch = (char *)j->library + j->library_bytes;
  if (context->options.workspace_bytes < j->library_bytes + scratch_bytes(j->size, dtype)) {
    kern_cuda_fail(context, DP_RUN_FAILED, "a workspace of %zu bytes is less than a convolution needs",
                   context->options.workspace_bytes);
    return;
  }
  const kern_cuda_key key = key_of(j);
  choice *c = kern_cuda_cache_find(context->convs, &key);
  attempt at = {.job = j};
  if (!c) {
    c = calloc(1, sizeof *c);
    if (!c) {
      kern_cuda_fail(context, DP_NO_MEMORY, "out of memory");
      return;
    }
    const kern_cuda_chooser chooser = {restore, choose_anew, &at};
    at.choice = c;
    kern_cuda_choose(context, j->direction == KERN_CONV_WEIGHT_GRADIENT ? "conv_dw" : "conv", &key, &chooser);
    if (kern_cuda_failed(context) || !kern_cuda_cache_add(context, &context->convs, &key, c)) {
      release(c);
      return;
    }
  }
  if (at.done) return;
  const cudnnStatus_t status = run_way(j, c);
  if (status == CUDNN_STATUS_SUCCESS) return;
  char words[KERN_CUDA_WAY_BYTES] = "", what[KERN_CUDA_WAY_BYTES + 128];
  if (c->plans) (void)kern_conv_plans_tell(c->plans, c->index, words, sizeof words);
  (void)snprintf(what, sizeof what, "convolution %lld -> %lld, %s, %s %s", (long long)j->size->in,
                 (long long)j->size->out, direction_names[j->direction], way_names[c->way], words);
  (void)kern_cuda_check_dnn(context, status, what);
}

/* ---- the contract ---- */

/* What is only read is not written through these either. */
static void *readable(const void *array) {
  void *same;
  memcpy(&same, &array, sizeof same);
  return same;
}

void kern_cuda_conv2d_forward(kern_cuda *context, const kern_conv2d *s, const void *x, const void *w, const void *bias,
                              const void *residual, void *y) {
  const kern_linear product = product_of(s);
  if (is_product(s)) {
    kern_cuda_linear_forward(context, &product, x, w, bias, residual, y);
    return;
  }
  job j = {.context = context, .size = s, .direction = KERN_CONV_FORWARD};
  j.arrays[KERN_CONV_X] = readable(x);
  j.arrays[KERN_CONV_W] = readable(w);
  j.arrays[KERN_CONV_Y] = y;
  j.arrays[KERN_CONV_BIAS] = readable(bias);
  j.arrays[KERN_CONV_RESIDUAL] = readable(residual);
  run(&j);
}

void kern_cuda_conv2d_input_gradient(kern_cuda *context, const kern_conv2d *s, const void *w, const void *dy, void *dx,
                                     bool accumulate) {
  const kern_linear product = product_of(s);
  if (is_product(s)) {
    kern_cuda_linear_input_gradient(context, &product, w, dy, dx, accumulate);
    return;
  }
  job j = {.context = context, .size = s, .direction = KERN_CONV_INPUT_GRADIENT, .accumulate = accumulate};
  j.arrays[KERN_CONV_X] = dx;
  j.arrays[KERN_CONV_W] = readable(w);
  j.arrays[KERN_CONV_Y] = readable(dy);
  run(&j);
}

void kern_cuda_conv2d_weight_gradient(kern_cuda *context, const kern_conv2d *s, const void *x, const void *dy, void *dw,
                                      void *dbias) {
  const kern_linear product = product_of(s);
  if (is_product(s)) {
    kern_cuda_linear_weight_gradient(context, &product, x, dy, dw, dbias);
    return;
  }
  job j = {.context = context, .size = s, .direction = KERN_CONV_WEIGHT_GRADIENT, .accumulate = !context->overwrites};
  j.arrays[KERN_CONV_X] = readable(x);
  j.arrays[KERN_CONV_W] = dw;
  j.arrays[KERN_CONV_Y] = readable(dy);
  if (dw) run(&j);
  if (dbias)
    kern_cuda_column_sums(context, out_positions(s), s->out, s->out, context->options.dtype, dy,
                          context->options.gradient, !context->overwrites, dbias, context->options.workspace);
}
