/* Siblings with gaps between their arrays, done as a batch and one after another, whatever is faster: the way is given
 * as if it were remembered. Nothing but the outputs is written. */
#include "kernels/cuda/memory.h"
#include "tests/cuda_arrays.h"

enum { COUNT = 3 };

/* What a tuned batch was found to be, which is remembered as a product's; and the way that siblings are given. */
static struct {
  char batch[KERN_CUDA_WAY_BYTES], given[KERN_CUDA_WAY_BYTES];
  int taken;
} memory;

static const char *find(void *data, const char *device, const char *problem) {
  (void)data, (void)device, (void)problem;
  if (!memory.given[0]) return NULL;
  memory.taken++;
  return memory.given;
}

static void keep(void *data, const char *device, const char *problem, const char *way) {
  (void)data, (void)device, (void)problem;
  (void)snprintf(memory.batch, sizeof memory.batch, "%s", way);
}

typedef struct family {
  kern_linear size;
  bool gradients;                     /* dw of x and dy; else y of x and w */
  array x, of, to;                    /* what they share, what each reads, what each writes */
  int64_t of_far, to_far, of_n, to_n; /* from one to the next, and values of one */
  double *want;                       /* where nobody writes: NaN */
} family;

static family make_family(kern_dtype dtype, kern_dtype gradient, bool gradients, int64_t gap) {
  const kern_linear s = {.rows = 200, .in = 72, .out = 88};
  const int64_t w = s.in * s.out, y = s.rows * s.out;
  family f = {.size = s, .gradients = gradients, .of_n = gradients ? y : w, .to_n = gradients ? w : y};
  f.of_far = f.of_n + gap;
  f.to_far = f.to_n + 2 * gap;
  f.x = draw(dtype, s.rows * s.in);
  f.of = draw(dtype, COUNT * f.of_far);
  f.to = empty(gradients ? gradient : dtype, COUNT * f.to_far);
  f.want = cuda_suite_host((size_t)f.to.n * sizeof *f.want);
  for (int64_t i = 0; i < f.to.n; i++) {
    const int64_t n = i % f.to_far, width = gradients ? s.in : s.out, row = n / width, column = n % width;
    const float *const of = f.of.host + i / f.to_far * f.of_far;
    double sum = 0;
    for (int64_t k = 0; k < (gradients ? s.rows : s.in); k++)
      sum += gradients ? (double)of[k * s.out + row] * f.x.host[k * s.in + column]
                       : (double)f.x.host[row * s.in + k] * of[column * s.in + k];
    f.want[i] = n < f.to_n ? sum : NAN;
  }
  return f;
}

static void drop_family(family *f) {
  drop(&f->x), drop(&f->of), drop(&f->to);
  free(f->want);
}

static void run_family(kern_cuda *c, const family *f) {
  const void *of[COUNT];
  void *to[COUNT];
  for (int i = 0; i < COUNT; i++) {
    of[i] = cuda_ops_at(f->of.device, i * f->of_far, f->of.dtype);
    to[i] = cuda_ops_at(f->to.device, i * f->to_far, f->to.dtype);
  }
  clear(f->to.device, 0xff, (size_t)f->to.n * 4);
  if (f->gradients)
    kern_cuda_linears_weight_gradient(c, &f->size, COUNT, f->x.device, of, to);
  else
    kern_cuda_linears_forward(c, &f->size, COUNT, f->x.device, of, to);
}

/* The way of a batch by itself. */
static void tune_batch(kern_cuda *c, const family *f) {
  const kern_linear *s = &f->size;
  const kern_cuda_gemm size = {.m = f->gradients ? s->out : s->rows,
                               .n = f->gradients ? s->in : s->out,
                               .k = f->gradients ? s->rows : s->in,
                               .a_transposed = f->gradients,
                               .b_transposed = !f->gradients,
                               .alpha = 1,
                               .c_dtype = f->to.dtype,
                               .batch = COUNT,
                               .a_batch_stride = f->gradients ? f->of_far : 0,
                               .b_batch_stride = f->gradients ? 0 : f->of_far,
                               .c_batch_stride = f->to_far};
  kern_cuda_tune(c, true);
  kern_cuda_gemm_run(c, &size, f->gradients ? f->of.device : f->x.device, f->gradients ? f->x.device : f->of.device,
                     f->to.device);
  kern_cuda_tune(c, false);
}

static void check_family(const char *what, const family *f) {
  const double exact = ops_tolerance(f->size.rows);
  float *got = get(&f->to);
  double largest = 0;
  int64_t wrong = -1;
  for (int64_t i = 0; i < f->to.n; i++) largest = fmax(largest, isnan(f->want[i]) ? 0 : fabs(f->want[i]));
  for (int64_t i = 0; i < f->to.n && wrong < 0; i++) {
    const double allowed = (f->to.dtype == KERN_BF16 ? ldexp(fabs(f->want[i]), -8) : 0) + exact * largest;
    if (isnan(f->want[i]) ? !isnan(got[i]) : !(fabs(got[i] - f->want[i]) <= allowed)) wrong = i;
  }
  if (wrong < 0)
    cuda_suite_pass();
  else
    cuda_suite_fail(what, "value %lld of %lld: got %.8g, expected %.8g", (long long)wrong, (long long)f->to.n,
                    (double)got[wrong], f->want[wrong]);
  free(got);
}

static void try_family(int place, kern_dtype dtype, kern_dtype gradient, bool gradients, void *workspace,
                       size_t bytes) {
  const cuda_place *at = &cuda_suite_world.places[place];
  const kern_cuda_options options = {.dtype = dtype,
                                     .gradient = gradient,
                                     .stream = at->stream,
                                     .sm_count = at->sm_count,
                                     .workspace = workspace,
                                     .workspace_bytes = bytes,
                                     .memory = {find, keep, NULL}};
  family f = make_family(dtype, gradient, gradients, 16);
  kern_cuda *c = NULL;
  dp_error error = DP_ERROR_INIT;
  memset(&memory, 0, sizeof memory);
  if (kern_cuda_create(&options, &c, &error) != DP_OK) {
    cuda_suite_fail("siblings", "%s", error.text);
  } else {
    kern_cuda_overwrite(c, true);
    run_family(c, &f); /* never timed: one after another */
    if (cuda_suite_went_well(c, at->stream, "siblings, one by one")) check_family("siblings, one by one", &f);
    kern_cuda_forget(c);
    tune_batch(c, &f);
    if (strncmp(memory.batch, "apart ", 6) == 0)
      (void)snprintf(memory.given, sizeof memory.given, "fused %.1000s", memory.batch + 6);
    run_family(c, &f);
    if (cuda_suite_went_well(c, at->stream, "siblings, a batch")) check_family("siblings, a batch", &f);
    cuda_suite_check(memory.taken == 1, "siblings, a batch", "the way of a batch was not taken");
  }
  kern_cuda_free(c);
  drop_family(&f);
}

void cuda_special_siblings(void) {
  static const kern_dtype types[3][2] = {{KERN_FP32, KERN_FP32}, {KERN_BF16, KERN_BF16}, {KERN_BF16, KERN_FP32}};
  static const int places[] = {CUDA_WHOLE, CUDA_PART};
  const kern_linear size = {.rows = 200, .in = 72, .out = 88};
  const size_t bytes = kern_cuda_linear_workspace(&size, KERN_BF16);
  void *workspace = NULL;
  if (cudaMalloc(&workspace, bytes) != cudaSuccess) {
    cuda_suite_fail("siblings", "no workspace of %zu bytes", bytes);
    return;
  }
  for (int p = 0; p < 2; p++) {
    if (!cuda_suite_world.there[places[p]] || !cuda_place_enter(&cuda_suite_world.places[places[p]])) continue;
    cuda_suite_say_place(places[p]);
    for (int t = 0; t < 3; t++)
      for (int gradients = 0; gradients < 2; gradients++)
        try_family(places[p], types[t][0], types[t][1], gradients == 1, workspace, bytes);
  }
  cuda_suite_say_place(CUDA_WHOLE);
  (void)cuda_place_enter(&cuda_suite_world.places[CUDA_WHOLE]);
  (void)cudaFree(workspace);
}
