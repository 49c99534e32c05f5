/* One kind at one size in one dtype: values and gradients, what is and is not written, repeats, graphs, places. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_suite.h"

enum { MAX_BUFFERS = 40 };

typedef struct buffer {
  char *p;
  size_t bytes;
} buffer;

typedef struct trial {
  const cuda_job *job;
  ops_arrays a;
  float *in[OPS_MAX_ARRAYS], *start[OPS_MAX_ARRAYS], *dy;
  float *want_kept;                 /* NULL: not looked at */
  double *want;                     /* the output */
  float *want_d[2][OPS_MAX_ARRAYS]; /* [accumulate] */
  buffer buffers[MAX_BUFFERS];      /* of the device */
  int buffer_count;
  size_t out_bytes, kept_bytes, workspace_bytes;
  void *dev_in[OPS_MAX_ARRAYS], *dev_start[OPS_MAX_ARRAYS], *dev_d[OPS_MAX_ARRAYS], *dev_dy, *out, *other, *kept;
  void *scratch;
  kern_cuda *c;
  cudaStream_t stream;
  int place;
} trial;

static double stretch(const trial *t) { return t->job->kind->stretch > 0 ? t->job->kind->stretch : 1; }
static kern_dtype in_dtype(const trial *t, kern_dtype dtype, kern_dtype gradient, int i) {
  return t->job->kind->wide >> i & 1 ? KERN_FP32 : t->job->kind->given >> i & 1 ? gradient : dtype;
}
static kern_dtype d_dtype(const trial *t, kern_dtype dtype, kern_dtype gradient, int i) {
  return t->job->kind->weights >> i & 1 ? gradient : dtype;
}
static size_t host_bytes(const trial *t, int i) { return (size_t)t->a.n[i] * sizeof(float); }
/* Exactly what an array has, so that its guard is next to it; where fp32 is run first, room for that. */
static size_t in_bytes(const trial *t, int i) {
  return t->job->large
             ? host_bytes(t, i)
             : (size_t)(t->a.n[i] * kern_dtype_bytes(in_dtype(t, t->job->mode.dtype, t->job->mode.gradient, i)));
}
static size_t d_bytes(const trial *t, int i) {
  return t->job->large
             ? host_bytes(t, i)
             : (size_t)(t->a.n[i] * kern_dtype_bytes(d_dtype(t, t->job->mode.dtype, t->job->mode.gradient, i)));
}

static size_t kind_workspace(const cuda_job *job, kern_dtype dtype) {
  return job->kind->workspace == NULL ? 0 : job->kind->workspace(job->z, dtype);
}
size_t cuda_trial_workspace(const cuda_job *job) {
  const size_t narrow = kind_workspace(job, job->mode.dtype), wide = job->large ? kind_workspace(job, KERN_FP32) : 0;
  return narrow > wide ? narrow : wide;
}

/* Device memory with a guard behind it. */
static void *device(trial *t, size_t bytes) {
  char *p = NULL;
  if (t->buffer_count == MAX_BUFFERS || cudaMalloc((void **)&p, bytes + CUDA_GUARD) != cudaSuccess ||
      cudaMemset(p + bytes, 0xff, CUDA_GUARD) != cudaSuccess)
    return NULL;
  t->buffers[t->buffer_count++] = (buffer){p, bytes};
  return p;
}
static bool guards_are_whole(const trial *t) {
  unsigned char guard[CUDA_GUARD];
  for (int i = 0; i < t->buffer_count; i++) {
    if (cudaMemcpy(guard, t->buffers[i].p + t->buffers[i].bytes, CUDA_GUARD, cudaMemcpyDeviceToHost) != cudaSuccess)
      return false;
    for (int j = 0; j < CUDA_GUARD; j++)
      if (guard[j] != 0xff) return false;
  }
  return true;
}

static void upload(kern_dtype dtype, int64_t n, double factor, const float *from, void *to) {
  const size_t bytes = (size_t)(n * kern_dtype_bytes(dtype));
  void *raw = cuda_suite_host(bytes);
  for (int64_t i = 0; i < n; i++) {
    const float value = (float)(from[i] * factor);
    if (dtype == KERN_FP32)
      ((float *)raw)[i] = value;
    else
      ((uint16_t *)raw)[i] = cuda_ops_to_bf16(value);
  }
  (void)cudaMemcpy(to, raw, bytes, cudaMemcpyHostToDevice);
  free(raw);
}
static void *download(const void *from, size_t bytes) {
  void *raw = cuda_suite_host(bytes);
  if (cudaMemcpy(raw, from, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) memset(raw, 0xff, bytes);
  return raw;
}
static float *floats_of(const void *raw, kern_dtype dtype, int64_t n, double factor) {
  float *values = cuda_suite_host((size_t)n * sizeof *values);
  cuda_ops_to_floats(dtype, n, raw, values);
  for (int64_t i = 0; i < n && factor != 1; i++) values[i] = (float)(values[i] * factor);
  return values;
}

/* Rounding to bf16 is off by at most 2^-8 of a value, and by less than 1.25 * 2^-9 of a norm over many values; an fp32
 * sum as ops_tolerance says, once more for the CPU's own where that is what is compared with. A result may be a small
 * difference of values around 1, as a norm's, or a gradient. Roundings between input and result are of many terms of a
 * sum, mostly, and are counted as so many of the largest result.
 *
 * before: NULL, or the magnitude of what is rounded before the rest of a value is added. With u = 2^-8 that is off by
 * u before, and the value then by u (|want| + u before) more; over many values the two roundings are independent, so
 * that the squares of their norms add. */
static void compare(const trial *t, const char *what, int64_t n, const float *got, const double *want,
                    kern_dtype stored, int between, const double *before, bool gradient, bool strict_gaps) {
  const double rounded = stored == KERN_BF16 ? 1 : 0, exact = ops_tolerance(t->job->longest) * (gradient ? 2 : 1);
  double largest = 1e-3, errors = 0, squares = 0, norm = 0, worst = -1;
  int64_t at = 0, missing = 0, touched = 0, first_missing = 0, first_touched = 0;
  if (t->job->mode.dtype == KERN_FP32) between = 0;
  for (int64_t i = 0; i < n; i++)
    if (fabs(want[i]) > largest) largest = fabs(want[i]);
  const double all = ldexp(between, -8) * largest + exact * (largest + 1);
  for (int64_t i = 0; i < n; i++) {
    if (isnan(want[i])) {
      if (!isnan(got[i]) && strict_gaps && touched++ == 0) first_touched = i;
      continue;
    }
    if (isnan(got[i])) {
      if (missing++ == 0) first_missing = i;
      continue;
    }
    const double error = fabs(got[i] - want[i]), first = before ? before[i] * (1 + ldexp(1, -8)) : 0;
    const double share = error / (ldexp(rounded, -8) * fabs(want[i]) + ldexp(first, -8) + all);
    errors += error * error;
    norm += want[i] * want[i];
    squares += rounded * want[i] * want[i] + first * first;
    if (share > worst) worst = share, at = i;
  }
  const double allowed_norm =
      ldexp(1.25, -9) * sqrt(squares) + ldexp(between, -9) * sqrt(norm) + exact * (sqrt(norm) + sqrt((double)n));
  if (missing > 0)
    cuda_suite_fail(what, "%lld of %lld are NaN or not written, the first at %lld (expected %.6g)", (long long)missing,
                    (long long)n, (long long)first_missing, want[first_missing]);
  else if (touched > 0)
    cuda_suite_fail(what, "%lld values that are nobody's are written, the first at %lld: %.6g", (long long)touched,
                    (long long)first_touched, (double)got[first_touched]);
  else if (worst > 1 || (n >= 256 && sqrt(errors) > allowed_norm))
    cuda_suite_fail(
        what, "worst at %lld of %lld: got %.7g, expected %.7g, %.3g times what is allowed; norm of errors %.3g of %.3g",
        (long long)at, (long long)n, (double)got[at], want[at], worst, sqrt(errors / (norm > 0 ? norm : 1)),
        allowed_norm / (norm > 0 ? sqrt(norm) : 1));
  else
    cuda_suite_pass();
}
static void compare_floats(const trial *t, const char *what, int64_t n, const float *got, const float *want,
                           kern_dtype stored, int between, const double *before, bool gradient) {
  double *wide = cuda_suite_host((size_t)n * sizeof *wide);
  for (int64_t i = 0; i < n; i++) wide[i] = want[i];
  compare(t, what, n, got, wide, stored, between, before, gradient, true);
  free(wide);
}

/* ---- one run ---- */

static cuda_call call_of(const trial *t, kern_dtype dtype, kern_dtype gradient, bool accumulate) {
  cuda_call call = {.c = t->c,
                    .dtype = dtype,
                    .gradient = gradient,
                    .z = t->job->z,
                    .out = t->out,
                    .kept = t->kept,
                    .dy = t->dev_dy,
                    .scratch = t->scratch,
                    .accumulate = accumulate};
  for (int i = 0; i < t->a.count; i++) {
    call.in[i] = t->dev_in[i];
    call.d[i] = t->dev_d[i];
  }
  return call;
}
static void poison(void *p, size_t bytes, cudaStream_t stream) {
  if (bytes > 0) (void)cudaMemsetAsync(p, 0xff, bytes, stream);
}
static void poison_forward(const trial *t, void *out) {
  poison(out, t->out_bytes, t->stream);
  poison(t->kept, t->kept_bytes, t->stream);
  poison(t->scratch, t->kept_bytes, t->stream);
}
/* What gradients are before a call. */
static void prepare_backward(const trial *t, bool accumulate, unsigned asked) {
  for (int i = 0; i < t->a.count; i++) {
    if (t->dev_d[i] == NULL || !(asked >> i & 1)) continue;
    if (t->a.role[i] == OPS_WEIGHT || accumulate)
      (void)cudaMemcpyAsync(t->dev_d[i], t->dev_start[i], d_bytes(t, i), cudaMemcpyDeviceToDevice, t->stream);
    else
      poison(t->dev_d[i], d_bytes(t, i), t->stream);
  }
  poison(t->scratch, t->kept_bytes, t->stream);
}
static float *fetch_out(const trial *t, const void *raw, kern_dtype dtype) {
  if (t->job->kind->fetch == NULL) return floats_of(raw, dtype, t->a.out, 1);
  float *values = cuda_suite_host((size_t)t->a.out * sizeof *values);
  t->job->kind->fetch(t->job->z, dtype, raw, values);
  return values;
}
static float *fetch_d(const trial *t, kern_dtype dtype, kern_dtype gradient, int i) {
  void *raw = download(t->dev_d[i], d_bytes(t, i));
  float *values = floats_of(raw, d_dtype(t, dtype, gradient, i), t->a.n[i], i == 0 ? stretch(t) : 1);
  free(raw);
  return values;
}
static void upload_all(trial *t, kern_dtype dtype, kern_dtype gradient) {
  for (int i = 0; i < t->a.count; i++) {
    const double factor = i == 0 ? stretch(t) : 1;
    upload(in_dtype(t, dtype, gradient, i), t->a.n[i], factor, t->in[i], t->dev_in[i]);
    if (t->dev_d[i]) upload(d_dtype(t, dtype, gradient, i), t->a.n[i], 1 / factor, t->start[i], t->dev_start[i]);
  }
  upload(dtype, t->a.out, 1, t->dy, t->dev_dy);
  (void)cudaDeviceSynchronize(); /* copies of pageable memory may be under way still, and our streams do not wait */
  t->out_bytes = t->job->kind->out_bytes ? t->job->kind->out_bytes(t->job->z, dtype)
                                         : (size_t)(t->a.out * kern_dtype_bytes(dtype));
}
static bool enter(trial *t, int place, kern_dtype dtype, kern_dtype gradient) {
  t->place = place;
  t->workspace_bytes = kind_workspace(t->job, dtype);
  t->stream = cuda_suite_world.places[place].stream;
  t->c = cuda_suite_context(place, dtype, gradient, t->workspace_bytes);
  return t->c != NULL;
}

typedef void (*runner)(const cuda_call *call);
/* Captures the call in a graph and runs that. */
static bool replay(trial *t, runner run, const cuda_call *call, const char *what) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t ready = NULL;
  cudaError_t result = cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal);
  if (result == cudaSuccess) {
    run(call);
    result = cudaStreamEndCapture(t->stream, &graph);
  }
  if (result == cudaSuccess) result = cudaGraphInstantiate(&ready, graph, 0);
  if (result == cudaSuccess) result = cudaGraphLaunch(ready, t->stream);
  if (result != cudaSuccess) {
    (void)cudaGetLastError();
    cuda_suite_fail(what, "a graph: %s", cudaGetErrorString(result));
  }
  const bool right = cuda_suite_went_well(t->c, t->stream, what) && result == cudaSuccess;
  if (ready) (void)cudaGraphExecDestroy(ready);
  if (graph) (void)cudaGraphDestroy(graph);
  return right;
}

static void check_bits(const char *what, const void *first, const void *second, size_t bytes) {
  size_t at = 0;
  while (at < bytes && ((const char *)first)[at] == ((const char *)second)[at]) at++;
  if (at == bytes)
    cuda_suite_pass();
  else
    cuda_suite_fail(what, "other bits, from byte %zu of %zu", at, bytes);
}

static void check_out(const trial *t, const char *what, const void *raw, bool strict_gaps) {
  float *got = fetch_out(t, raw, t->job->mode.dtype);
  const kern_dtype stored = t->job->kind->wide_out ? KERN_FP32 : t->job->mode.dtype;
  double *before = NULL;
  if (t->job->kind->before && stored == KERN_BF16) {
    before = cuda_suite_host((size_t)t->a.out * sizeof *before);
    for (int64_t i = 0; i < t->a.out; i++)
      before[i] = isnan(t->want[i]) ? 0 : t->job->kind->before(t->job->z, (const float *const *)t->in, i, t->want[i]);
  }
  compare(t, what, t->a.out, got, t->want, stored, t->job->kind->between, before, false, strict_gaps);
  free(before);
  free(got);
}

static bool forward(trial *t) {
  const cuda_ops_kind *kind = t->job->kind;
  cuda_call call = call_of(t, t->job->mode.dtype, t->job->mode.gradient, false);
  poison_forward(t, t->out);
  kind->forward(&call);
  if (!cuda_suite_went_well(t->c, t->stream, "forward")) return false;
  void *first = download(t->out, t->out_bytes);
  check_out(t, "y", first, true);
  if (t->want_kept) {
    void *raw = download(t->kept, (size_t)t->a.kept * sizeof(float));
    compare_floats(t, "kept", t->a.kept, raw, t->want_kept, KERN_FP32, 0, NULL, true);
    free(raw);
  }
  call.out = t->other;
  const struct {
    const char *what;
    runner run;
    bool graph, keeps;
  } ways[] = {{"y, once more", kind->forward, false, true},
              {"y, in a graph", kind->forward, true, true},
              {"y, again from what is kept", kind->again, false, false}};
  for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
    if (ways[w].run == NULL) continue;
    poison(t->other, t->out_bytes, t->stream);
    if (ways[w].graph) {
      if (!replay(t, ways[w].run, &call, ways[w].what)) continue;
    } else {
      ways[w].run(&call);
      if (!cuda_suite_went_well(t->c, t->stream, ways[w].what)) continue;
    }
    void *second = download(t->other, t->out_bytes);
    check_bits(ways[w].what, first, second, t->out_bytes);
    free(second);
  }
  for (int i = 0; i < t->a.count; i++) {
    if (!(kind->y_on >> i & 1)) continue;
    const size_t bytes = (size_t)(t->a.n[i] * kern_dtype_bytes(t->job->mode.dtype));
    (void)cudaMemcpyAsync(t->other, t->dev_in[i], bytes, cudaMemcpyDeviceToDevice, t->stream);
    cuda_call place = call;
    place.in[i] = t->other;
    kind->forward(&place);
    if (!cuda_suite_went_well(t->c, t->stream, "y, in place")) continue;
    void *second = download(t->other, t->out_bytes);
    check_out(t, "y, in place", second, false);
    free(second);
  }
  if (kind->no_kept) {
    call.kept = NULL;
    poison(t->other, t->out_bytes, t->stream);
    kind->forward(&call);
    if (cuda_suite_went_well(t->c, t->stream, "y, nothing kept")) {
      void *second = download(t->other, t->out_bytes);
      check_out(t, "y, nothing kept", second, true);
      free(second);
    }
  }
  free(first);
  return true;
}

static void check_gradients(const trial *t, bool accumulate, unsigned asked, const char *how) {
  for (int i = 0; i < t->a.count; i++) {
    if (t->dev_d[i] == NULL || !(asked >> i & 1)) continue;
    char what[64];
    (void)snprintf(what, sizeof what, "d%d%s%s", i, how, accumulate ? ", added" : "");
    float *got = fetch_d(t, t->job->mode.dtype, t->job->mode.gradient, i);
    const kern_dtype stored = d_dtype(t, t->job->mode.dtype, t->job->mode.gradient, i);
    const float *want = t->want_d[accumulate][i];
    double *before = NULL;
    if (t->job->kind->products >> i & 1 && stored == KERN_BF16 && (accumulate || t->a.role[i] == OPS_WEIGHT)) {
      before = cuda_suite_host((size_t)t->a.n[i] * sizeof *before);
      for (int64_t j = 0; j < t->a.n[i]; j++) before[j] = fabs((double)want[j] - t->start[i][j]);
    }
    compare_floats(t, what, t->a.n[i], got, want, stored, t->job->kind->between_back, before, true);
    free(before);
    free(got);
  }
}

static void backward(trial *t, bool accumulate) {
  const cuda_ops_kind *kind = t->job->kind;
  const unsigned every = ~0u;
  unsigned wanted = 0;
  for (int i = 0; i < t->a.count; i++) wanted |= t->dev_d[i] ? 1u << i : 0;
  const cuda_call call = call_of(t, t->job->mode.dtype, t->job->mode.gradient, accumulate);
  void *first[OPS_MAX_ARRAYS] = {NULL};
  for (int way = 0; way < 3; way++) {
    const char *const what = way == 0 ? "backward" : way == 1 ? "backward, once more" : "backward, in a graph";
    prepare_backward(t, accumulate, every);
    if (way == 2) {
      if (!replay(t, kind->backward, &call, what)) continue;
    } else {
      kind->backward(&call);
      if (!cuda_suite_went_well(t->c, t->stream, what)) break;
    }
    if (way == 0) check_gradients(t, accumulate, every, "");
    for (int i = 0; i < t->a.count; i++) {
      if (t->dev_d[i] == NULL) continue;
      void *raw = download(t->dev_d[i], d_bytes(t, i));
      if (way == 0) {
        first[i] = raw;
        continue;
      }
      char name[64];
      (void)snprintf(name, sizeof name, "d%d, %s", i, way == 1 ? "once more" : "in a graph");
      if (!kind->any_order) check_bits(name, first[i], raw, d_bytes(t, i));
      free(raw);
    }
    if (way > 0 && kind->any_order) check_gradients(t, accumulate, every, way == 1 ? ", once more" : ", in a graph");
  }
  for (int i = 0; i < t->a.count; i++) free(first[i]);
  for (int s = 0; s < 4; s++) {
    const unsigned asked = kind->subsets[s] & wanted;
    if (asked == 0 || asked == wanted || asked != kind->subsets[s]) continue;
    cuda_call alone = call;
    for (int i = 0; i < t->a.count; i++)
      if (!(asked >> i & 1)) alone.d[i] = NULL;
    prepare_backward(t, accumulate, every);
    kind->backward(&alone);
    if (!cuda_suite_went_well(t->c, t->stream, "backward, others NULL")) continue;
    check_gradients(t, accumulate, asked, ", others NULL");
  }
  if (kind->dx_on_dy && !accumulate) {
    cuda_call place = call;
    prepare_backward(t, accumulate, every);
    const size_t bytes = (size_t)(t->a.out * kern_dtype_bytes(t->job->mode.dtype));
    (void)cudaMemcpyAsync(t->dev_d[0], t->dev_dy, bytes, cudaMemcpyDeviceToDevice, t->stream);
    place.dy = t->dev_d[0];
    kind->backward(&place);
    if (cuda_suite_went_well(t->c, t->stream, "backward, in place")) check_gradients(t, false, every, ", dx on dy");
  }
}

/* Gradients of weights, which were NaN before, are what else is added; where a kind always adds, it has added. */
static void check_first(const trial *t, const char *how) {
  for (int i = 0; i < t->a.count; i++) {
    if (t->dev_d[i] == NULL || !(t->job->kind->weights >> i & 1)) continue;
    char what[64];
    (void)snprintf(what, sizeof what, "d%d, first%s", i, how);
    float *got = fetch_d(t, t->job->mode.dtype, t->job->mode.gradient, i);
    float *want = cuda_suite_host(host_bytes(t, i));
    for (int64_t j = 0; j < t->a.n[i]; j++)
      want[j] = t->want_d[0][i][j] - (t->job->kind->always_adds ? 0 : t->start[i][j]);
    compare_floats(t, what, t->a.n[i], got, want, t->job->mode.gradient, t->job->kind->between_back, NULL, true);
    free(want);
    free(got);
  }
}

/* With kern_cuda_overwrite on: by itself, and in a graph. */
static void backward_first(trial *t) {
  const cuda_ops_kind *kind = t->job->kind;
  const cuda_call call = call_of(t, t->job->mode.dtype, t->job->mode.gradient, false);
  bool any = false;
  kern_cuda_overwrite(t->c, true);
  for (int way = 0; way < 2; way++) {
    prepare_backward(t, false, ~0u);
    for (int i = 0; i < t->a.count; i++) {
      if (t->dev_d[i] == NULL || !(kind->weights >> i & 1)) continue;
      if (!kind->always_adds) poison(t->dev_d[i], d_bytes(t, i), t->stream);
      any = true;
    }
    if (!any) break;
    if (way == 1) {
      if (!replay(t, kind->backward, &call, "backward, first, in a graph")) break;
    } else {
      kind->backward(&call);
      if (!cuda_suite_went_well(t->c, t->stream, "backward, first")) break;
    }
    check_first(t, way == 1 ? ", in a graph" : "");
  }
  kern_cuda_overwrite(t->c, false);
}

static void on_place(trial *t, int place) {
  const cuda_ops_kind *kind = t->job->kind;
  const cuda_mode *mode = &t->job->mode;
  cuda_suite_say_place(place);
  if (!enter(t, place, mode->dtype, mode->gradient)) return;
  if (place == CUDA_TUNED) {
    kern_cuda_tune(t->c, true);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
      const cuda_call call = call_of(t, mode->dtype, mode->gradient, accumulate);
      prepare_backward(t, accumulate, ~0u);
      kind->forward(&call);
      if (kind->backward) kind->backward(&call);
      if (!kind->backward || accumulate) continue;
      kern_cuda_overwrite(t->c, true);
      kind->backward(&call);
      kern_cuda_overwrite(t->c, false);
    }
    kern_cuda_tune(t->c, false);
    if (!cuda_suite_went_well(t->c, t->stream, "tuning")) return;
  }
  if (!forward(t)) return;
  for (int accumulate = 0; accumulate < 2 && kind->backward != NULL; accumulate++) backward(t, accumulate);
  if (kind->backward != NULL) backward_first(t);
  cuda_suite_check(guards_are_whole(t), "arrays", "something behind an array is written");
  cuda_suite_check(cuda_suite_workspace_is_whole(t->workspace_bytes, t->stream), "workspace",
                   "something behind the workspace is written");
}

/* ---- what is expected ---- */

static void reference(trial *t) {
  const ops_kind *cpu = t->job->kind->cpu;
  const int64_t *z = t->job->z;
  double *wide[OPS_MAX_ARRAYS];
  for (int i = 0; i < t->a.count; i++) {
    wide[i] = cuda_suite_host((size_t)t->a.n[i] * sizeof(double));
    for (int64_t j = 0; j < t->a.n[i]; j++) wide[i][j] = t->in[i][j];
  }
  cpu->reference(z, (const double *const *)wide, t->want);
  for (int i = 0; i < t->a.count; i++) free(wide[i]);
  for (int64_t j = 0; j < t->a.out; j++)
    if (isnan(t->want[j])) t->dy[j] = NAN;
  if (cpu->backward == NULL && !t->job->kind->same_kept) return;

  enum { THREADS = 2 };
  kern_context *context = NULL;
  const kern_context_options options = {.threads = THREADS,
                                        .workspace_bytes = cpu->workspace ? cpu->workspace(z, THREADS) : 0};
  dp_error error = DP_ERROR_INIT;
  if (kern_context_create(&options, &context, &error) != DP_OK) {
    cuda_suite_fail("the CPU", "%s", error.text);
    return;
  }
  float *out = cuda_suite_host((size_t)t->a.out * sizeof *out);
  float *kept = cuda_suite_host((size_t)t->a.kept * sizeof *kept);
  cpu->forward(context, z, (const float *const *)t->in, out, kept);
  for (int accumulate = 0; accumulate < 2 && cpu->backward != NULL; accumulate++) {
    for (int i = 0; i < t->a.count; i++) {
      if (t->a.role[i] == OPS_CONSTANT) continue;
      float *d = t->want_d[accumulate][i] = cuda_suite_host(host_bytes(t, i));
      for (int64_t j = 0; j < t->a.n[i]; j++) d[j] = t->a.role[i] == OPS_WEIGHT || accumulate ? t->start[i][j] : NAN;
    }
    cpu->backward(context, z, (const float *const *)t->in, out, kept, t->dy, t->want_d[accumulate], accumulate);
  }
  if (t->job->kind->same_kept)
    t->want_kept = kept;
  else
    free(kept);
  free(out);
  kern_context_free(context);
}

/* The same in fp32 on the device, on the same inputs. */
static bool device_reference(trial *t) {
  const cuda_ops_kind *kind = t->job->kind;
  upload_all(t, KERN_FP32, KERN_FP32);
  if (!enter(t, CUDA_WHOLE, KERN_FP32, KERN_FP32)) return false;
  poison_forward(t, t->out);
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    const cuda_call call = call_of(t, KERN_FP32, KERN_FP32, accumulate);
    if (accumulate == 0) {
      kind->forward(&call);
      if (!cuda_suite_went_well(t->c, t->stream, "fp32 forward")) return false;
      void *raw = download(t->out, t->out_bytes);
      float *values = fetch_out(t, raw, KERN_FP32);
      for (int64_t j = 0; j < t->a.out; j++) t->want[j] = values[j];
      free(values);
      free(raw);
    }
    if (kind->backward == NULL) break;
    prepare_backward(t, accumulate, ~0u);
    kind->backward(&call);
    if (!cuda_suite_went_well(t->c, t->stream, "fp32 backward")) return false;
    for (int i = 0; i < t->a.count; i++)
      if (t->dev_d[i]) t->want_d[accumulate][i] = fetch_d(t, KERN_FP32, KERN_FP32, i);
  }
  return true;
}

static void draw_all(trial *t, uint64_t seed) {
  uint64_t state = seed;
  for (int i = 0; i < t->a.count; i++) {
    const kern_dtype in = in_dtype(t, t->job->mode.dtype, t->job->mode.gradient, i);
    const kern_dtype d = d_dtype(t, t->job->mode.dtype, t->job->mode.gradient, i);
    t->in[i] = cuda_suite_host(host_bytes(t, i));
    t->start[i] = cuda_suite_host(host_bytes(t, i));
    for (int64_t j = 0; j < t->a.n[i]; j++) {
      t->in[i][j] = cuda_ops_round(in, (float)ops_draw(&state));
      t->start[i][j] = cuda_ops_round(d, (float)ops_draw(&state));
    }
  }
  t->dy = cuda_suite_host((size_t)t->a.out * sizeof *t->dy);
  for (int64_t j = 0; j < t->a.out; j++) t->dy[j] = cuda_ops_round(t->job->mode.dtype, (float)ops_draw(&state));
}

static bool allocate(trial *t) {
  const cuda_ops_kind *kind = t->job->kind;
  bool right = true;
  const kern_dtype widest = t->job->large ? KERN_FP32 : t->job->mode.dtype;
  const size_t dy = (size_t)(t->a.out * kern_dtype_bytes(widest));
  const size_t out = kind->out_bytes ? kind->out_bytes(t->job->z, widest) : dy;
  t->kept_bytes = (size_t)t->a.kept * sizeof(float);
  for (int i = 0; i < t->a.count; i++) {
    right = right && (t->dev_in[i] = device(t, in_bytes(t, i)));
    if (kind->backward == NULL || t->a.role[i] == OPS_CONSTANT) continue;
    right = right && (t->dev_start[i] = device(t, d_bytes(t, i))) && (t->dev_d[i] = device(t, d_bytes(t, i)));
  }
  right = right && (t->out = device(t, out)) && (t->other = device(t, out)) && (t->dev_dy = device(t, dy)) &&
          (t->kept = device(t, t->kept_bytes)) && (t->scratch = device(t, t->kept_bytes));
  if (!right) cuda_suite_fail("memory", "the device has not enough");
  return right;
}

void cuda_trial_run(const cuda_job *job, uint64_t seed) {
  trial t = {.job = job};
  job->kind->cpu->arrays(job->z, &t.a);
  t.want = cuda_suite_host((size_t)t.a.out * sizeof *t.want);
  draw_all(&t, seed);
  cuda_suite_say_place(CUDA_WHOLE);
  if (!job->large) reference(&t);
  if (cuda_place_enter(&cuda_suite_world.places[CUDA_WHOLE]) && allocate(&t) && (!job->large || device_reference(&t))) {
    upload_all(&t, job->mode.dtype, job->mode.gradient);
    for (int place = 0; place < CUDA_PLACES; place++)
      if (cuda_suite_world.there[place] && (place != CUDA_TUNED || job->kind->tunes)) on_place(&t, place);
  }
  for (int i = 0; i < t.a.count; i++) {
    free(t.in[i]);
    free(t.start[i]);
    for (int k = 0; k < 2; k++) free(t.want_d[k][i]);
  }
  free(t.dy);
  free(t.want);
  free(t.want_kept);
  (void)cuda_place_enter(&cuda_suite_world.places[CUDA_WHOLE]);
  for (int i = 0; i < t.buffer_count; i++) (void)cudaFree(t.buffers[i].p);
}
