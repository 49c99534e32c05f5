/* Speed of CUDA's kernels at the sizes of SDXL 1024^2 (batch 8), SD 1.5 512^2, SD3 and Flux, in bf16. What moves memory
 * is given in GB/s of the fewest bytes (each array read or written once) beside the copy bandwidth, products in TFLOP/s
 * beside the rate of an 8192^3 product, both measured here first. Each figure is the median of replays of a graph that
 * goes through several sets of arrays, larger together than the L2 cache. In the table, what moves memory has a second
 * share: of our own copy of as many bytes in the place of those arrays, timed the same way, since what is small never
 * reaches the first. Gradients of weights overwrite. Siblings, layers that read the same, are done one by one, as a
 * batch, and as was timed to be faster. A table goes to stderr, lines of JSON to stdout.
 *
 * usage: bench_cuda_kernels [--only TEXT]... [--seconds N] [--sms N]
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tests/bench.h"
#include "tests/cuda_device.h"
#include "tests/cuda_ops.h"

enum { MAX_SETS = 24, RUNS = 15, MAX_ONLY = 16 };

typedef enum part { FORWARD, BACKWARD, INPUT, WEIGHT, PARTS } part; /* of a product's backward: the one, the other */
static const char *const part_names[PARTS] = {"forward", "backward", "dx", "dw"};

typedef struct row {
  const char *kind, *where;
  int64_t z[OPS_MAX_SIZES];
} row;

#define CONV(b, size, in, out, kernel, stride) \
  { b, size, size, in, out, kernel, kernel, stride, (kernel) / 2, (kernel) / 2, 1 }
static const row rows[] = {
    {"group_norm+silu", "SDXL", {8, 16384, 320, 32, 1}},
    {"group_norm+silu", "SDXL", {8, 16384, 640, 32, 1}},
    {"group_norm+silu", "SDXL", {8, 16384, 960, 32, 1}},
    {"group_norm+silu", "SDXL", {1, 16384, 320, 32, 1}},
    {"group_norm+silu", "SDXL", {8, 4096, 640, 32, 1}},
    {"group_norm+silu", "SDXL", {8, 4096, 1920, 32, 1}},
    {"group_norm+silu", "SDXL", {8, 1024, 1280, 32, 1}},
    {"group_norm+silu", "SDXL", {8, 1024, 2560, 32, 1}},
    {"group_norm+silu", "SD 1.5", {8, 4096, 320, 32, 1}},
    {"group_norm", "SDXL", {8, 4096, 640, 32, 1}},
    {"layer_norm", "SDXL", {32768, 640, 1}},
    {"layer_norm", "SDXL", {8192, 1280, 1}},
    {"layer_norm", "SD3", {32768, 1536, 0}},
    {"layer_norm", "Flux", {4608, 3072, 0}},
    {"rms_norm", "Flux", {110592, 128, 1}},
    {"activation", "SDXL SiLU", {KERN_SILU, 8 * 16384 * 320}},
    {"activation", "Flux GELU", {KERN_GELU_TANH, 4608 * 12288}},
    {"activation", "SD3 GELU", {KERN_GELU_TANH, 16384 * 6144}},
    {"activation again + bias", "SD3 GELU", {KERN_GELU_TANH, 16384, 6144}},
    {"activation again + bias", "Flux GELU", {KERN_GELU_TANH, 4608, 12288}},
    {"gated", "SDXL GEGLU", {KERN_GEGLU, 32768, 2560}},
    {"gated", "SDXL GEGLU", {KERN_GEGLU, 8192, 5120}},
    {"gated again + bias", "SDXL GEGLU", {KERN_GEGLU, 32768, 2560}},
    {"gated again + bias", "SDXL GEGLU", {KERN_GEGLU, 8192, 5120}},
    {"add", "SDXL", {8 * 16384 * 320}},
    {"add_vector", "SDXL", {8, 16384, 320, 0}},
    {"add_vector", "SDXL", {8, 1024, 1280, 0}},
    {"modulate", "SD3", {8, 4096, 1536, 0}},
    {"modulate", "Flux", {1, 4608, 3072, 0}},
    {"gate", "SD3", {8, 4096, 1536, 0}},
    {"concat", "SDXL", {131072, 320, 160, 160}},
    {"split", "SD3", {32768, 1536, 1536, 1536}},
    {"upsample", "SDXL", {8, 64, 64, 640, 2}},
    {"downsample", "halves", {8, 128, 128, 320, 2}},
    {"patchify", "SD3", {8, 128, 128, 16, 2, 0}},
    {"unpatchify", "SD3", {8, 128, 128, 16, 2, 0}},
    {"rotary", "Flux", {1, 4608, 24, 128}},
    {"time_embedding", "SDXL", {8, 320, 1, 0, 1, 10000}},
    {"loss", "SDXL", {8, 65536, 1}},
    {"sum_squares", "gradients", {300000000}},
    {"adamw, bf16 gradients and weights", "parameters", {300000000}},
    {"linear", "SDXL", {32768, 640, 5120, 1, 0}},
    {"linear", "SDXL", {32768, 2560, 640, 1, 0}},
    {"linear", "SDXL", {32768, 640, 640, 1, 0}},
    {"linear", "SDXL", {8192, 1280, 10240, 1, 0}},
    {"linear", "SDXL", {8192, 5120, 1280, 1, 0}},
    {"linear", "SDXL", {8192, 1280, 1280, 1, 0}},
    {"linear", "SDXL", {616, 2048, 1280, 0, 0}},
    {"linear", "Flux", {4608, 3072, 12288, 1, 0}},
    {"siblings, one by one", "SDXL", {8192, 1280, 1280, 0, 0, 3}},
    {"siblings, a batch", "SDXL", {8192, 1280, 1280, 0, 0, 3}},
    {"siblings", "SDXL", {8192, 1280, 1280, 0, 0, 3}},
    {"siblings, one by one", "SDXL", {32768, 640, 640, 0, 0, 3}},
    {"siblings, a batch", "SDXL", {32768, 640, 640, 0, 0, 3}},
    {"siblings", "SDXL", {32768, 640, 640, 0, 0, 3}},
    {"siblings, one by one", "SDXL", {616, 2048, 1280, 0, 0, 2}},
    {"siblings, a batch", "SDXL", {616, 2048, 1280, 0, 0, 2}},
    {"siblings", "SDXL", {616, 2048, 1280, 0, 0, 2}},
    {"siblings, one by one", "SDXL", {616, 2048, 640, 0, 0, 2}},
    {"siblings, a batch", "SDXL", {616, 2048, 640, 0, 0, 2}},
    {"siblings", "SDXL", {616, 2048, 640, 0, 0, 2}},
    {"siblings' dx, one by one", "SDXL", {8192, 1280, 1280, 0, 0, 3}},
    {"siblings' dx, of interleaved dy", "SDXL", {8192, 1280, 1280, 0, 0, 3}},
    {"siblings' dx, one by one", "SDXL", {32768, 640, 640, 0, 0, 3}},
    {"siblings' dx, of interleaved dy", "SDXL", {32768, 640, 640, 0, 0, 3}},
    {"linear+residual", "SDXL", {32768, 640, 640, 1, 0}},
    {"lora", "SDXL", {32768, 640, 640, 16}},
    {"conv2d", "SDXL", CONV(8, 128, 320, 320, 3, 1)},
    {"conv2d", "SDXL", CONV(8, 64, 640, 640, 3, 1)},
    {"conv2d", "SDXL", CONV(8, 32, 1280, 1280, 3, 1)},
    {"conv2d", "SDXL", CONV(8, 128, 960, 320, 3, 1)},
    {"conv2d", "SDXL", CONV(8, 64, 1920, 640, 3, 1)},
    {"conv2d", "SDXL", CONV(8, 32, 2560, 1280, 3, 1)},
    {"conv2d", "SDXL", CONV(8, 128, 320, 320, 3, 2)},
    {"conv2d", "SDXL", CONV(8, 128, 640, 320, 1, 1)},
    {"conv2d", "SDXL", CONV(8, 128, 4, 320, 3, 1)},
    {"conv2d", "SDXL", CONV(8, 128, 320, 4, 3, 1)},
    {"conv2d", "SD 1.5", CONV(8, 64, 320, 320, 3, 1)},
    {"conv2d+residual", "SDXL", CONV(8, 64, 640, 640, 3, 1)},
    {"attention", "SDXL", {8, 10, 64, 4096, 4096, 0}},
    {"attention", "SDXL", {8, 20, 64, 1024, 1024, 0}},
    {"attention", "SDXL", {8, 10, 64, 4096, 77, 0}},
    {"attention", "SDXL", {8, 20, 64, 1024, 77, 0}},
    {"attention", "SD 1.5", {8, 8, 40, 4096, 4096, 0}},
    {"attention", "SD 1.5", {8, 8, 80, 1024, 1024, 0}},
    {"attention", "SD 1.5", {8, 8, 40, 4096, 77, 0}},
    {"attention", "SD 1.5", {8, 8, 80, 1024, 77, 0}},
    {"attention", "SD3", {2, 24, 64, 4429, 4429, 0}},
    {"attention", "Flux", {2, 24, 128, 4608, 4608, 0}},
    {"attention, any order", "SDXL", {8, 10, 64, 4096, 4096, 0}},
    {"attention, any order", "SDXL", {8, 20, 64, 1024, 1024, 0}},
    {"attention, any order", "SDXL", {8, 10, 64, 4096, 77, 0}},
    {"attention, any order", "SDXL", {8, 20, 64, 1024, 77, 0}},
    {"attention, any order", "SD3", {2, 24, 64, 4429, 4429, 0}},
    {"attention, few keys", "SDXL", {8, 10, 64, 4096, 77, 0}},
    {"attention, few keys", "SDXL", {8, 20, 64, 1024, 77, 0}},
    {"attention, few keys", "SD 1.5", {8, 8, 40, 4096, 77, 0}},
    {"attention, few keys", "SD 1.5", {8, 8, 80, 1024, 77, 0}},
    {"separable", "skip", {8, 64, 64, 640, 16, 16, 64}},
};

static bool is_attention(const row *r) { return strncmp(r->kind, "attention", 9) == 0; }
static bool is_siblings(const row *r) { return strncmp(r->kind, "siblings", 8) == 0; }

/* Multiply-adds of a forward, or 0: it moves memory. */
static double products_of(const row *r) {
  const int64_t *z = r->z;
  double n = 0;
  if (strncmp(r->kind, "linear", 6) == 0) n = (double)z[0] * (double)z[1] * (double)z[2];
  if (is_siblings(r)) n = (double)(z[0] * z[5]) * (double)z[1] * (double)z[2];
  if (strncmp(r->kind, "conv", 4) == 0)
    n = (double)(z[0] * z[4] * z[5] * z[6] * z[3]) * (double)((z[1] + 2 * z[8] - z[5]) / z[7] + 1) *
        (double)((z[2] + 2 * z[9] - z[6]) / z[7] + 1);
  if (is_attention(r)) n = 2.0 * (double)(z[0] * z[1] * z[2]) * (double)z[3] * (double)z[4];
  return n;
}

/* AdamW over n parameters with bf16 gradients: moments, weights and low halves one after another. */
static int64_t adamw_place(const int64_t *z) { return (z[0] + 63) / 64 * 64; }
static void adamw_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[0], OPS_CONSTANT);
  ops_add_array(a, 4, OPS_CONSTANT); /* the norm's square */
  a->out = z[0];
}
static size_t adamw_bytes(const int64_t *z, kern_dtype dtype) {
  (void)dtype;
  return (size_t)adamw_place(z) * 2 * (sizeof(float) + sizeof(uint16_t));
}
static void adamw_forward(const cuda_call *c) {
  float *const m = c->out, *const v = m + adamw_place(c->z);
  uint16_t *const weights = (uint16_t *)(v + adamw_place(c->z)), *const low = weights + adamw_place(c->z);
  const kern_cuda_adamw how = {
      .settings = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01, .step = 10},
      .n = c->z[0],
      .clip_norm = 1};
  kern_cuda_adamw_step(c->c, &how, c->in[1], c->in[0], weights, low, m, v, NULL);
}
static const ops_kind adamw_arrays_of = {.name = "adamw, bf16 gradients and weights", .arrays = adamw_arrays};
static const cuda_ops_kind adamw = {.cpu = &adamw_arrays_of, .forward = adamw_forward, .out_bytes = adamw_bytes};

/* An activation made again, its input's gradient and that of the bias before it. */
static void activation_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[1] * z[2], OPS_INPUT);
  ops_add_array(a, z[2], OPS_WEIGHT);
  a->out = z[1] * z[2];
}
static size_t activation_workspace(const int64_t *z, kern_dtype dtype) {
  return kern_cuda_activation_bias_workspace(z[1], z[2], dtype);
}
static void activation_forward(const cuda_call *c) {
  kern_cuda_activation_forward(c->c, (kern_activation)c->z[0], c->z[1] * c->z[2], c->in[0], c->out);
}
static void activation_backward(const cuda_call *c) {
  kern_cuda_activation_bias(c->c, (kern_activation)c->z[0], c->z[1], c->z[2], c->in[0], c->dy, c->d[0], c->out,
                            c->d[1]);
}
static const ops_kind activation_arrays_of = {.name = "activation again + bias", .arrays = activation_arrays};
static const cuda_ops_kind activation_bias = {.cpu = &activation_arrays_of,
                                              .workspace = activation_workspace,
                                              .forward = activation_forward,
                                              .backward = activation_backward};

/* The same of a gated one. */
static void gated_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[1] * 2 * z[2], OPS_INPUT);
  ops_add_array(a, 2 * z[2], OPS_WEIGHT);
  a->out = z[1] * z[2];
}
static size_t gated_workspace(const int64_t *z, kern_dtype dtype) {
  return kern_cuda_gated_bias_workspace(z[1], z[2], dtype);
}
static void gated_forward(const cuda_call *c) {
  kern_cuda_gated_forward(c->c, (kern_gated)c->z[0], c->z[1], c->z[2], c->in[0], c->out);
}
static void gated_backward(const cuda_call *c) {
  kern_cuda_gated_bias(c->c, (kern_gated)c->z[0], c->z[1], c->z[2], c->in[0], c->dy, c->d[0], c->out, c->d[1]);
}
static const ops_kind gated_arrays_of = {.name = "gated again + bias", .arrays = gated_arrays};
static const cuda_ops_kind gated_bias = {
    .cpu = &gated_arrays_of, .workspace = gated_workspace, .forward = gated_forward, .backward = gated_backward};

/* The gradient of what siblings read, as "forward" of the gradients of their outputs: products that add, and what one
 * product would take if those gradients lay row by row beside each other. */
static void input_arrays(const int64_t *z, ops_arrays *a) {
  ops_add_array(a, z[5] * z[0] * z[2], OPS_CONSTANT);
  ops_add_array(a, z[5] * z[1] * z[2], OPS_CONSTANT);
  a->out = z[0] * z[1];
}
static size_t input_workspace(const int64_t *z, kern_dtype dtype) {
  const kern_linear s = linear_of(z);
  return kern_cuda_linear_workspace(&s, dtype);
}
static void input_singly(const cuda_call *c) {
  const kern_linear s = linear_of(c->z);
  for (int64_t i = 0; i < c->z[5]; i++)
    kern_cuda_linear_input_gradient(c->c, &s, cuda_ops_at(c->in[1], i * s.in * s.out, c->dtype),
                                    cuda_ops_at(c->in[0], i * s.rows * s.out, c->dtype), c->out, i > 0);
}
static void input_at_once(const cuda_call *c) {
  const kern_linear s = {.rows = c->z[0], .in = c->z[1], .out = c->z[2] * c->z[5]};
  kern_cuda_linear_input_gradient(c->c, &s, c->in[1], c->in[0], c->out, false);
}
static const ops_kind input_arrays_of = {.name = "siblings' dx, one by one", .arrays = input_arrays};
static const cuda_ops_kind of_input[] = {
    {.cpu = &input_arrays_of, .tunes = true, .workspace = input_workspace, .forward = input_singly},
    {.name = "siblings' dx, of interleaved dy",
     .cpu = &input_arrays_of,
     .tunes = true,
     .workspace = input_workspace,
     .forward = input_at_once}};

static const cuda_ops_kind *kind_of(const char *name) {
  const cuda_ops_kind *const *const lists[] = {cuda_ops_products, cuda_ops_moves};
  for (int l = 0; l < 2; l++)
    for (const cuda_ops_kind *const *k = lists[l]; *k; k++)
      if (strcmp(cuda_ops_name(*k), name) == 0) return *k;
  if (strcmp(name, activation_bias.cpu->name) == 0) return &activation_bias;
  if (strcmp(name, gated_bias.cpu->name) == 0) return &gated_bias;
  if (strcmp(name, cuda_ops_siblings_singly.name) == 0) return &cuda_ops_siblings_singly;
  for (int i = 0; i < 2; i++)
    if (strcmp(name, cuda_ops_name(&of_input[i])) == 0) return &of_input[i];
  return strcmp(name, adamw.cpu->name) == 0 ? &adamw : NULL;
}

static void die(const char *what, const char *why) {
  (void)fprintf(stderr, "bench_cuda_kernels: %s: %s\n", what, why);
  exit(1);
}
static void try(cudaError_t result, const char *what) {
  if (result != cudaSuccess) die(what, cudaGetErrorString(result));
}

typedef struct world {
  cuda_place place;
  kern_cuda *c;
  void *workspace, *noise;
  cudaEvent_t begin, end;
  double copy_gb_per_s, gemm_tflop_per_s;
} world;
static world w;
enum { NOISE = 1 << 24 }; /* bytes of random bf16 values, which are values of that size as fp32 too */

static void fill(void *to, size_t bytes, size_t from) {
  for (size_t at = 0; at < bytes; at += NOISE) {
    const size_t n = bytes - at < NOISE ? bytes - at : NOISE, begin = n < NOISE ? from % (NOISE - n) / 16 * 16 : 0;
    try(cudaMemcpyAsync((char *)to + at, (char *)w.noise + begin, n, cudaMemcpyDeviceToDevice, w.place.stream), "fill");
  }
}

/* Seconds of one call: the median over replays of a graph of all of them. */
typedef void (*caller)(void *data, int set);
static double time_of(caller call, void *data, int sets, double budget_s) {
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  try(cudaStreamBeginCapture(w.place.stream, cudaStreamCaptureModeThreadLocal), "capture");
  int calls = sets;
  while (calls < 8) calls += sets;
  for (int i = 0; i < calls; i++) call(data, i % sets);
  try(cudaStreamEndCapture(w.place.stream, &graph), "capture");
  try(cudaGraphInstantiate(&ready, graph, 0), "graph");
  double times[RUNS], spent = 0;
  int runs = 0;
  for (int i = -1; i < RUNS && (i < 3 || spent < budget_s); i++) { /* the first one is not counted */
    float ms = 0;
    try(cudaEventRecord(w.begin, w.place.stream), "event");
    try(cudaGraphLaunch(ready, w.place.stream), "launch");
    try(cudaEventRecord(w.end, w.place.stream), "event");
    try(cudaEventSynchronize(w.end), "run");
    try(cudaEventElapsedTime(&ms, w.begin, w.end), "event");
    spent += 1e-3 * ms;
    if (i >= 0) times[runs++] = 1e-3 * ms / calls;
  }
  (void)cudaGraphExecDestroy(ready);
  (void)cudaGraphDestroy(graph);
  return bench_median(times, runs);
}

/* ---- the two ceilings ---- */

typedef struct ceiling {
  char *from, *to;
  size_t bytes;
  kern_cuda_gemm gemm;
} ceiling;
static void copy_call(void *data, int set) {
  const ceiling *c = data;
  (void)set;
  try(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, w.place.stream), "copy");
}
/* Seconds of a copy that is put on the stream: a graph's copies are the copy engines', which are slower than the
 * multiprocessors. */
static double time_of_copies(ceiling *c) {
  enum { COPIES = 8 };
  double times[RUNS];
  for (int i = -1; i < RUNS; i++) {
    float ms = 0;
    try(cudaEventRecord(w.begin, w.place.stream), "event");
    for (int k = 0; k < COPIES; k++) copy_call(c, k);
    try(cudaEventRecord(w.end, w.place.stream), "event");
    try(cudaEventSynchronize(w.end), "run");
    try(cudaEventElapsedTime(&ms, w.begin, w.end), "event");
    if (i >= 0) times[i] = 1e-3 * ms / COPIES;
  }
  return bench_median(times, RUNS);
}
static void own_copy_call(void *data, int set) {
  const ceiling *c = data;
  (void)set;
  kern_cuda_copy(w.c, (int64_t)(c->bytes / 2), c->from, c->to);
}
static void gemm_call(void *data, int set) {
  const ceiling *c = data;
  (void)set;
  kern_cuda_gemm_run(w.c, &c->gemm, c->from, c->from + (c->bytes >> 1), c->to);
}
static void measure_ceilings(void) {
  enum { SIDE = 8192 };
  ceiling c = {.bytes = (size_t)1 << 30,
               .gemm = {.m = SIDE,
                        .n = SIDE,
                        .k = SIDE,
                        .b_transposed = true,
                        .a_stride = SIDE,
                        .b_stride = SIDE,
                        .c_stride = SIDE,
                        .alpha = 1,
                        .c_dtype = KERN_BF16}};
  try(cudaMalloc((void **)&c.from, c.bytes), "memory");
  try(cudaMalloc((void **)&c.to, c.bytes), "memory");
  fill(c.from, c.bytes, 0);
  const double copy_s = fmin(time_of_copies(&c), time_of(own_copy_call, &c, 1, 1));
  w.copy_gb_per_s = 2e-9 * (double)c.bytes / copy_s;
  kern_cuda_tune(w.c, true);
  gemm_call(&c, 0);
  kern_cuda_tune(w.c, false);
  gemm_call(&c, 0);
  w.gemm_tflop_per_s = 2e-12 * pow(SIDE, 3) / time_of(gemm_call, &c, 1, 1);
  (void)cudaFree(c.from);
  (void)cudaFree(c.to);
}

/* ---- one row ---- */

typedef struct trial {
  const cuda_ops_kind *kind;
  part part;
  cuda_call calls[MAX_SETS];
} trial;
static void trial_call(void *data, int set) {
  const trial *t = data;
  if (t->part == FORWARD)
    t->kind->forward(&t->calls[set]);
  else
    t->kind->backward(&t->calls[set]);
}
static void well(const char *what) {
  dp_error error = DP_ERROR_INIT;
  const cudaError_t result = cudaStreamSynchronize(w.place.stream);
  if (kern_cuda_status(w.c, &error) != DP_OK) die(what, error.text);
  try(result, what);
}
static void *piece(char **at, size_t bytes, size_t salt) {
  void *p = *at;
  *at += (bytes + 255) / 256 * 256;
  fill(p, bytes, salt);
  return p;
}

typedef struct same {
  char *memory;
  size_t apart, half; /* from one set to the next; bytes read, and as many are written */
} same;
static void same_call(void *data, int set) {
  const same *c = data;
  char *const from = c->memory + (size_t)set * c->apart;
  kern_cuda_copy(w.c, (int64_t)(c->half / 2), from, from + c->half);
}
/* Seconds of a copy that reads and writes so many bytes together, in the place of a row's sets; 0: no room. */
static double time_of_same(char *memory, size_t apart, int sets, size_t touched, double budget_s) {
  same c = {memory, apart, touched / 2 / 256 * 256};
  if (c.half == 0 || 2 * c.half > apart) return 0;
  return time_of(same_call, &c, sets, budget_s);
}

/* Whether backward reads in[i]: what norms, activations, gates and products multiply by. */
static bool reads(const cuda_ops_kind *k, int i) {
  static const char *const none[] = {"add_vector", "concat",   "split",     "upsample",
                                     "downsample", "patchify", "unpatchify"};
  for (size_t n = 0; n < sizeof none / sizeof *none; n++)
    if (strcmp(k->cpu->name, none[n]) == 0) return false;
  if (strcmp(k->cpu->name, "rotary") == 0) return i > 0;
  return strcmp(k->cpu->name, "modulate") != 0 || i < 2;
}

static void run_row(const row *r, part p, double budget_s) {
  const cuda_ops_kind *k = kind_of(r->kind);
  if (k == NULL) die(r->kind, "no such op");
  ops_arrays a = {.count = 0};
  k->cpu->arrays(r->z, &a);
  const int shift = strstr(r->kind, "+residual") ? 1 : 0; /* of x among the inputs */
  if (p != FORWARD && k->backward == NULL) return;
  size_t in[OPS_MAX_ARRAYS], d[OPS_MAX_ARRAYS], bytes = 0, touched = 0;
  const size_t out = k->out_bytes ? k->out_bytes(r->z, KERN_BF16) : (size_t)a.out * 2, kept = (size_t)a.kept * 4;
  for (int i = 0; i < a.count; i++) {
    in[i] = (size_t)a.n[i] * (k->wide >> i & 1 ? 4 : 2);
    d[i] = p == FORWARD || a.role[i] == OPS_CONSTANT || (p == INPUT && i != shift) || (p == WEIGHT && i == shift)
               ? 0
               : (size_t)a.n[i] * 2;
    bytes += (in[i] + d[i] + 511) / 256 * 256;
    touched += d[i] + (p == FORWARD || reads(k, i) ? in[i] : 0);
  }
  touched += p == FORWARD ? (k == &adamw ? 2 * out : out) : (size_t)a.out * 2; /* AdamW reads what it writes */
  if ((is_attention(r) || k == &activation_bias || k == &gated_bias) && p != FORWARD) touched += out;
  bytes += (out + 2 * kept + (size_t)a.out * 2 + 1024) / 256 * 256;
  int sets = (int)(((size_t)200 << 20) / touched) + 1;
  if (sets > MAX_SETS) sets = MAX_SETS;
  char *memory = NULL;
  if (cudaMalloc((void **)&memory, bytes * (size_t)sets + 4096) != cudaSuccess) die(r->kind, "no memory");
  char *at = memory;
  static trial t;
  t.kind = k;
  t.part = p;
  for (int s = 0; s < sets; s++) {
    cuda_call *c = &t.calls[s];
    *c = (cuda_call){.c = w.c, .dtype = KERN_BF16, .gradient = KERN_BF16, .z = r->z};
    for (int i = 0; i < a.count; i++) {
      c->in[i] = piece(&at, in[i], (size_t)(s * 8 + i) * 4096);
      c->d[i] = d[i] > 0 ? piece(&at, d[i], (size_t)s * 64) : NULL;
    }
    c->out = piece(&at, out, 0);
    c->dy = piece(&at, (size_t)a.out * 2, (size_t)s * 4096 + 16);
    c->kept = piece(&at, kept, 0);
    c->scratch = piece(&at, kept, 0);
    if (k == &adamw) { /* moments that are no squares have no root */
      try(cudaMemsetAsync(c->out, 0, out, w.place.stream), "clear");
      try(cudaMemsetAsync((void *)(uintptr_t)c->in[1], 0, in[1], w.place.stream), "clear");
    }
  }
  kern_cuda_tune(w.c, k->tunes);
  k->forward(&t.calls[0]);
  if (p != FORWARD) k->backward(&t.calls[0]);
  kern_cuda_tune(w.c, false);
  for (int s = 0; s < sets; s++) k->forward(&t.calls[s]);
  trial_call(&t, 0);
  well(r->kind);
  const double s = time_of(trial_call, &t, sets, budget_s);
  const bool moves = products_of(r) == 0;
  const double same_s = moves ? time_of_same(memory, bytes, sets, touched, budget_s / 4) : 0;
  well(r->kind);
  (void)cudaFree(memory);

  char name[160], sizes[80] = "";
  int count = OPS_MAX_SIZES;
  while (count > 0 && r->z[count - 1] == 0) count--;
  for (int i = 0; i < count; i++) {
    const size_t length = strlen(sizes);
    (void)snprintf(sizes + length, sizeof sizes - length, i ? " %lld" : "%lld", (long long)r->z[i]);
  }
  (void)snprintf(name, sizeof name, "cuda %s %s (%s) %s", r->kind, part_names[p], sizes, r->where);
  const double products = products_of(r);
  /* of attention's backward: the scores once more, and four products */
  const double flops = 2 * products * (p == BACKWARD ? (is_attention(r) ? 2.5 : 2) : 1);
  const double value = moves ? 1e-9 * (double)touched / s : 1e-12 * flops / s;
  const double ratio = value / (moves ? w.copy_gb_per_s : w.gemm_tflop_per_s);
  char of_same[16] = "";
  if (same_s > 0) (void)snprintf(of_same, sizeof of_same, "%5.0f %%", 100 * same_s / s);
  (void)fprintf(stderr, "%-78s %10.1f us %8.1f %s %5.0f %% %s\n", name + 5, 1e6 * s, value,
                moves ? "GB/s   " : "TFLOP/s", 100 * ratio, of_same);
  bench_report(name, value, moves ? "GB/s" : "TFLOP/s", moves ? "copy" : "GEMM 8192^3", ratio, RUNS);
}

static void make_world(int sms) {
  char why[200], line[256];
  size_t most = (size_t)1 << 26;
  if (!cuda_place_whole(&w.place, why)) die("device", why);
  if (sms > 0 && !cuda_place_part(sms, &w.place, why)) die("part", why);
  if (!cuda_place_enter(&w.place)) die("device", "its context cannot be entered");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const cuda_ops_kind *k = kind_of(rows[i].kind);
    const size_t bytes = k != NULL && k->workspace != NULL ? k->workspace(rows[i].z, KERN_BF16) : 0;
    if (bytes > most) most = bytes;
  }
  try(cudaMalloc(&w.workspace, most), "workspace");
  try(cudaMalloc(&w.noise, NOISE), "noise");
  try(cudaEventCreate(&w.begin), "event");
  try(cudaEventCreate(&w.end), "event");
  uint16_t *noise = malloc(NOISE);
  if (noise == NULL) die("noise", "no memory");
  uint64_t state = 1;
  for (int i = 0; i < NOISE / 2; i++) noise[i] = cuda_ops_to_bf16((float)ops_draw(&state));
  try(cudaMemcpy(w.noise, noise, NOISE, cudaMemcpyHostToDevice), "noise");
  try(cudaDeviceSynchronize(), "noise");
  free(noise);
  const kern_cuda_options options = {.dtype = KERN_BF16,
                                     .gradient = KERN_BF16,
                                     .stream = w.place.stream,
                                     .sm_count = w.place.sm_count,
                                     .workspace = w.workspace,
                                     .workspace_bytes = most};
  dp_error error = DP_ERROR_INIT;
  if (kern_cuda_create(&options, &w.c, &error) != DP_OK) die("context", error.text);
  kern_cuda_overwrite(w.c, true);
  kern_cuda_describe(w.c, line);
  (void)fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv) {
  const char *only[MAX_ONLY];
  int only_count = 0, sms = 0;
  double seconds = 240;
  for (int i = 1; i < argc; i++) {
    const bool more = i + 1 < argc;
    if (more && strcmp(argv[i], "--only") == 0 && only_count < MAX_ONLY)
      only[only_count++] = argv[++i];
    else if (more && strcmp(argv[i], "--seconds") == 0)
      seconds = strtod(argv[++i], NULL);
    else if (more && strcmp(argv[i], "--sms") == 0)
      sms = (int)strtol(argv[++i], NULL, 10);
    else {
      (void)fprintf(stderr, "usage: %s [--only TEXT]... [--seconds N] [--sms N]\n", argv[0]);
      return 2;
    }
  }
  char why[200];
  if (!cuda_device_is_there(why)) {
    (void)fprintf(stderr, "skipped: %s\n", why);
    return 77;
  }
  const double begin_s = bench_now_s();
  make_world(sms);
  measure_ceilings();
  well("ceilings");
  (void)fprintf(stderr, "copy %.0f GB/s, GEMM %.0f TFLOP/s\n", w.copy_gb_per_s, w.gemm_tflop_per_s);
  bench_report("cuda copy 1 GiB", w.copy_gb_per_s, "GB/s", NULL, 0, RUNS);
  bench_report("cuda GEMM 8192^3", w.gemm_tflop_per_s, "TFLOP/s", NULL, 0, RUNS);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bool wanted = only_count == 0;
    for (int k = 0; k < only_count; k++)
      wanted = wanted || strstr(rows[i].kind, only[k]) || strstr(rows[i].where, only[k]);
    const bool parts =
        strncmp(rows[i].kind, "linear", 6) == 0 || strncmp(rows[i].kind, "conv", 4) == 0 || is_siblings(&rows[i]);
    for (part p = FORWARD; p < PARTS && wanted; p++) {
      if (p != FORWARD && parts != (p != BACKWARD)) continue;
      if (p == INPUT && is_siblings(&rows[i])) continue; /* gradients of what they read are no batch */
      if (bench_now_s() - begin_s > seconds) {
        (void)fprintf(stderr, "stopped after %.0f s\n", seconds);
        return 0;
      }
      run_row(&rows[i], p, 0.5);
    }
  }
  kern_cuda_free(w.c);
  return 0;
}
