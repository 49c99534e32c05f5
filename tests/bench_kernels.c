/* GFLOP/s of linear layers, convolutions and attention, each direction, beside one cblas_sgemm of as many FLOPs in the
 * same run. The sizes are those of a small UNet and of SD 1.5's upper levels. One thread is measured on the CPU's
 * clock, since others use the machine too; two threads on the wall's, against OpenBLAS's own two.
 */
#define _POSIX_C_SOURCE 200809L
#include <cblas.h>
#include <string.h>

#include "kernels/cpu/kern.h"
#include "tests/bench.h"

enum { RUNS = 9, MAX_ARRAYS = 6 };

typedef struct shape {
  const char *name;
  enum { LINEAR, CONV, ATTENTION } kind;
  int64_t z[6]; /* rows, in, out | batch, side, in, out, kernel | batch, heads, head_dim, q_tokens, k_tokens */
} shape;

static const shape shapes[] = {
    {"linear 4096 x 320 to 320", LINEAR, {4096, 320, 320}},
    {"linear 4096 x 320 to 2560", LINEAR, {4096, 320, 2560}},
    {"linear 1024 x 64 to 64", LINEAR, {1024, 64, 64}},
    {"conv 3x3, 4 of 32x32, 64 to 64", CONV, {4, 32, 64, 64, 3}},
    {"conv 3x3, 1 of 32x32, 320 to 320", CONV, {1, 32, 320, 320, 3}},
    {"conv 3x3, 4 of 8x8, 128 to 128", CONV, {4, 8, 128, 128, 3}},
    {"attention, 2 x 8 heads of 40, 1024 tokens", ATTENTION, {2, 8, 40, 1024, 1024}},
    {"attention, 2 x 8 heads of 40, 1024 on 77 tokens", ATTENTION, {2, 8, 40, 1024, 77}},
};

typedef enum direction { FORWARD, INPUT, WEIGHT, DIRECTIONS } direction;
static const char *const direction_names[] = {"forward", "input gradient", "weight gradient"};

/* The product that does the same work: of these m, n and k. */
typedef struct work {
  int64_t m, n, k;
} work;

static work work_of(const shape *s, direction d) {
  const int64_t *z = s->z;
  if (s->kind == LINEAR) return (work){z[0], z[2], z[1]};
  if (s->kind == CONV) return (work){z[0] * z[1] * z[1], z[3], z[4] * z[4] * z[2]};
  return (work){z[3], z[4], z[0] * z[1] * z[2] * (d == FORWARD ? 2 : 5)};
}

static float *arrays[MAX_ARRAYS], *more[MAX_ARRAYS];

static float *make(int64_t n) {
  float *x = malloc((size_t)n * sizeof *x);
  if (x == NULL) exit(1);
  for (int64_t i = 0; i < n; i++) x[i] = (float)(i * 7919 % 1009) / 1009 - 0.5f;
  return x;
}

static size_t workspace_of(const shape *s, int threads) {
  const int64_t *z = s->z;
  const kern_linear linear = {.rows = z[0], .in = z[1], .out = z[2]};
  const kern_conv2d conv = {z[0], z[1], z[1], z[2], z[3], z[4], z[4], 1, 1, z[4] / 2, z[4] / 2};
  const kern_attention attention = {z[0], z[1], z[2], z[3], z[4], 0, 0, 0, 0, 0.1f};
  if (s->kind == LINEAR) return kern_linear_workspace(&linear, threads);
  if (s->kind == CONV) return kern_conv2d_workspace(&conv, threads);
  return kern_attention_workspace(&attention, threads);
}

/* arrays: x, w, bias, y or q, k, v, y, lse; more: their gradients */
static void run(kern_context *c, const shape *s, direction d) {
  const int64_t *z = s->z;
  float *const *a = arrays, *const *g = more;
  const kern_linear linear = {.rows = z[0], .in = z[1], .out = z[2]};
  const kern_conv2d conv = {z[0], z[1], z[1], z[2], z[3], z[4], z[4], 1, 1, z[4] / 2, z[4] / 2};
  const kern_attention attention = {z[0], z[1], z[2], z[3], z[4], 0, 0, 0, 0, 0.1f};
  if (s->kind == ATTENTION && d == FORWARD) kern_attention_forward(c, &attention, a[0], a[1], a[2], a[3], a[4]);
  if (s->kind == ATTENTION && d == INPUT)
    kern_attention_backward(c, &attention, a[0], a[1], a[2], a[3], a[4], g[3], g[0], g[1], g[2], false);
  if (s->kind == LINEAR && d == FORWARD) kern_linear_forward(c, &linear, a[0], a[1], a[2], a[3]);
  if (s->kind == LINEAR && d == INPUT) kern_linear_input_gradient(c, &linear, a[1], g[3], g[0], false);
  if (s->kind == LINEAR && d == WEIGHT) kern_linear_weight_gradient(c, &linear, a[0], g[3], g[1], g[2]);
  if (s->kind == CONV && d == FORWARD) kern_conv2d_forward(c, &conv, a[0], a[1], a[2], a[3]);
  if (s->kind == CONV && d == INPUT) kern_conv2d_input_gradient(c, &conv, a[1], g[3], g[0], false);
  if (s->kind == CONV && d == WEIGHT) kern_conv2d_weight_gradient(c, &conv, a[0], g[3], g[1], g[2]);
}

static void prepare(const shape *s) {
  const int64_t *z = s->z;
  int64_t n[5] = {z[0] * z[1], z[1] * z[2], z[2], z[0] * z[2], 1};
  if (s->kind == CONV) {
    n[0] = z[0] * z[1] * z[1] * z[2];
    n[1] = z[3] * z[4] * z[4] * z[2];
    n[2] = z[3];
    n[3] = z[0] * z[1] * z[1] * z[3];
  }
  if (s->kind == ATTENTION) {
    n[0] = n[3] = z[0] * z[1] * z[2] * z[3];
    n[1] = n[2] = z[0] * z[1] * z[2] * z[4];
    n[4] = z[0] * z[1] * z[3];
  }
  for (int i = 0; i < 5; i++) {
    arrays[i] = make(n[i]);
    more[i] = make(n[i]);
  }
}

static void measure(kern_context *context, const shape *s, direction d, int threads) {
  const work w = work_of(s, d);
  const double flops = 2.0 * (double)w.m * (double)w.n * (double)w.k;
  const int repeats = 1 + (int)(2e8 / flops);
  float *a = make(w.m * w.k), *b = make(w.n * w.k), *c = make(w.m * w.n);
  double ours_s[RUNS], peer_s[RUNS];
  char name[128], peer[96];
  run(context, s, d);
  for (int i = 0; i < RUNS; i++) {
    double from_s = bench_clock_s(threads);
    for (int r = 0; r < repeats; r++) run(context, s, d);
    ours_s[i] = (bench_clock_s(threads) - from_s) / repeats;
    openblas_set_num_threads(threads);
    from_s = bench_clock_s(threads);
    for (int r = 0; r < repeats; r++)
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)w.m, (blasint)w.n, (blasint)w.k, 1, a, (blasint)w.k,
                  b, (blasint)w.k, 0, c, (blasint)w.n);
    peer_s[i] = (bench_clock_s(threads) - from_s) / repeats;
    openblas_set_num_threads(1);
  }
  const double ours = bench_median(ours_s, RUNS), theirs = bench_median(peer_s, RUNS);
  (void)snprintf(name, sizeof name, "%s, %s, %d thread%s", s->name,
                 s->kind == ATTENTION && d == INPUT ? "gradients" : direction_names[d], threads,
                 threads > 1 ? "s" : "");
  (void)snprintf(peer, sizeof peer, "cblas_sgemm %d x %d x %d", (int)w.m, (int)w.n, (int)w.k);
  bench_report(name, flops / ours * 1e-9, "GFLOP/s", peer, theirs / ours, RUNS);
  free(a);
  free(b);
  free(c);
}

/* Bound by memory: 4 samples of 32 x 32 positions of 320 channels, 16 bytes a position and channel being four arrays.
 */
enum { BATCH = 4, POSITIONS = 1024, CHANNELS = 320, VALUES = BATCH * POSITIONS * CHANNELS };

static float *flat[4], *vectors[3];

static const kern_group_norm group_norm = {BATCH, POSITIONS, CHANNELS, 32, 1e-5f};
static const kern_row_norm row_norm = {BATCH * POSITIONS, CHANNELS, 1e-5f};
static const kern_broadcast broadcast = {BATCH, POSITIONS, CHANNELS, 0};

static void run_group_norm(kern_context *c) {
  kern_group_norm_forward(c, &group_norm, flat[0], vectors[0], vectors[1], flat[1], vectors[2]);
}
static void run_group_norm_back(kern_context *c) {
  kern_group_norm_backward(c, &group_norm, flat[0], vectors[0], vectors[2], flat[1], flat[2], false, vectors[0],
                           vectors[1]);
}
static void run_layer_norm(kern_context *c) {
  kern_layer_norm_forward(c, &row_norm, flat[0], vectors[0], vectors[1], flat[1], vectors[2]);
}
static void run_layer_norm_back(kern_context *c) {
  kern_layer_norm_backward(c, &row_norm, flat[0], vectors[0], vectors[2], flat[1], flat[2], false, vectors[0],
                           vectors[1]);
}
static void run_silu(kern_context *c) { kern_activation_forward(c, KERN_SILU, VALUES, flat[0], flat[1]); }
static void run_gelu_back(kern_context *c) {
  kern_activation_backward(c, KERN_GELU, VALUES, flat[0], flat[1], flat[2], false);
}
static void run_geglu(kern_context *c) {
  kern_gated_forward(c, KERN_GEGLU, BATCH * POSITIONS / 2, CHANNELS, flat[0], flat[1]);
}
static void run_modulate(kern_context *c) {
  kern_modulate_forward(c, &broadcast, flat[0], vectors[0], vectors[1], flat[1]);
}
static void run_add(kern_context *c) { kern_add(c, VALUES, flat[0], flat[1], flat[2]); }
static void run_adamw(kern_context *c) {
  const kern_adamw s = {1e-4, 0.9, 0.999, 1e-8, 0.01, 1, 1000};
  kern_adamw_step(c, &s, VALUES, flat[0], flat[1], flat[2], flat[3]);
}

static const struct {
  const char *name;
  void (*run)(kern_context *context);
  double passes; /* arrays of VALUES read or written, at least */
} streams[] = {
    {"group norm", run_group_norm, 2},
    {"group norm, gradients", run_group_norm_back, 3},
    {"layer norm", run_layer_norm, 2},
    {"layer norm, gradients", run_layer_norm_back, 3},
    {"SiLU", run_silu, 2},
    {"GELU, gradient", run_gelu_back, 3},
    {"GEGLU", run_geglu, 1.5},
    {"modulate", run_modulate, 2},
    {"add", run_add, 3},
    {"AdamW", run_adamw, 7},
};

static void measure_streams(kern_context *context, int threads) {
  enum { REPEATS = 10 };
  for (int i = 0; i < 4; i++) flat[i] = make(VALUES);
  for (int i = 0; i < 3; i++) vectors[i] = make(2 * BATCH * POSITIONS);
  for (int64_t i = 0; i < VALUES; i++) flat[3][i] = 1;
  for (size_t s = 0; s < sizeof streams / sizeof *streams; s++) {
    const double bytes = streams[s].passes * VALUES * sizeof(float);
    double ours_s[RUNS], peer_s[RUNS];
    char name[128];
    streams[s].run(context);
    for (int i = 0; i < RUNS; i++) {
      double from_s = bench_clock_s(threads);
      for (int r = 0; r < REPEATS; r++) streams[s].run(context);
      ours_s[i] = (bench_clock_s(threads) - from_s) / REPEATS;
      from_s = bench_clock_s(threads);
      for (int r = 0; r < REPEATS; r++) memcpy(flat[1 + r % 2], flat[0], VALUES * sizeof(float));
      peer_s[i] = (bench_clock_s(threads) - from_s) / REPEATS * streams[s].passes / 2;
    }
    const double ours = bench_median(ours_s, RUNS);
    (void)snprintf(name, sizeof name, "%s, %d values, %d thread%s", streams[s].name, VALUES, threads,
                   threads > 1 ? "s" : "");
    bench_report(name, bytes / ours * 1e-9, "GB/s", "memcpy of as many bytes", bench_median(peer_s, RUNS) / ours, RUNS);
  }
  for (int i = 0; i < 4; i++) free(flat[i]);
  for (int i = 0; i < 3; i++) free(vectors[i]);
}

static kern_context *make_context(int threads, size_t bytes) {
  const kern_context_options options = {.threads = threads, .workspace_bytes = bytes};
  kern_context *context;
  dp_error error = DP_ERROR_INIT;
  if (kern_context_create(&options, &context, &error) == DP_OK) return context;
  fprintf(stderr, "bench_kernels: %s\n", error.text);
  exit(1);
}

int main(void) {
  for (int threads = 1; threads <= 2; threads++)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
      kern_context *context = make_context(threads, workspace_of(&shapes[i], threads));
      prepare(&shapes[i]);
      run(context, &shapes[i], FORWARD);
      for (int d = 0; d < (shapes[i].kind == ATTENTION ? WEIGHT : DIRECTIONS); d++)
        measure(context, &shapes[i], (direction)d, threads);
      for (int k = 0; k < 5; k++) {
        free(arrays[k]);
        free(more[k]);
      }
      kern_context_free(context);
    }
  for (int threads = 1; threads <= 2; threads++) {
    const size_t norm = kern_group_norm_workspace(&group_norm, threads),
                 rows = kern_row_norm_workspace(&row_norm, threads);
    kern_context *context = make_context(threads, norm > rows ? norm : rows);
    measure_streams(context, threads);
    kern_context_free(context);
  }
  return 0;
}
