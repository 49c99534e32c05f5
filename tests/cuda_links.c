#define _POSIX_C_SOURCE 200809L
#include "tests/cuda_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/random.h"

const int64_t links_sizes[] = {4 << 10, 64 << 10, 2 << 20, 16 << 20, 128 << 20, LINKS_MOST_BYTES};
const int links_size_count = sizeof links_sizes / sizeof *links_sizes;

void links_must(dp_status status, const dp_error *error) {
  if (status == DP_OK) return;
  fprintf(stderr, "bench_cuda_links: %s\n", error->text);
  exit(1);
}

void links_check(cudaError_t result, const char *what) {
  if (result == cudaSuccess) return;
  fprintf(stderr, "bench_cuda_links: %s: %s\n", what, cudaGetErrorString(result));
  exit(1);
}

/* ---- a GPU ---- */

static const kern_cuda_gemm product = {.m = LINKS_PRODUCT,
                                       .n = LINKS_PRODUCT,
                                       .k = LINKS_PRODUCT,
                                       .a_stride = LINKS_PRODUCT,
                                       .b_stride = LINKS_PRODUCT,
                                       .c_stride = LINKS_PRODUCT,
                                       .alpha = 1,
                                       .c_dtype = KERN_BF16};
#define PRODUCT_BYTES ((size_t)LINKS_PRODUCT * LINKS_PRODUCT * 2)
#define WORKSPACE_BYTES ((size_t)64 << 20)

/* Values that differ, for equal ones cost less power, and so time: bf16 of -1 to 1. */
static void fill(void *to) {
  enum { VALUES = 1 << 22 };
  uint16_t *values = malloc(VALUES * sizeof *values);
  dp_random random;
  if (!values) links_check(cudaErrorMemoryAllocation, "malloc");
  dp_random_init(&random, 1, 0);
  for (int i = 0; i < VALUES; i++) {
    const float value = (float)(2 * dp_random_uniform(&random) - 1);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    values[i] = (uint16_t)(bits >> 16);
  }
  for (size_t at = 0; at < PRODUCT_BYTES; at += VALUES * sizeof *values)
    LINKS_TRY(cudaMemcpy((char *)to + at, values, VALUES * sizeof *values, cudaMemcpyHostToDevice));
  free(values);
}

static void check_kernels(links_gpu *gpu) {
  dp_error error = DP_ERROR_INIT;
  links_must(kern_cuda_status(gpu->kernels, &error), &error);
}

void links_gpu_open(links_gpu *gpu, int index) {
  dp_error error = DP_ERROR_INIT;
  *gpu = (links_gpu){.index = index};
  LINKS_TRY(cudaSetDevice(index));
  LINKS_TRY(cudaStreamCreateWithFlags(&gpu->compute, cudaStreamNonBlocking));
  LINKS_TRY(cudaEventCreate(&gpu->begin));
  LINKS_TRY(cudaEventCreate(&gpu->end));
  LINKS_TRY(cudaMalloc(&gpu->workspace, WORKSPACE_BYTES));
  LINKS_TRY(cudaMalloc(&gpu->a, PRODUCT_BYTES));
  LINKS_TRY(cudaMalloc(&gpu->b, PRODUCT_BYTES));
  LINKS_TRY(cudaMalloc(&gpu->c, PRODUCT_BYTES));
  fill(gpu->a);
  fill(gpu->b);
  for (int i = 0; i < 3; i++) {
    char **place = i == 0 ? &gpu->out : &gpu->in[i - 1];
    LINKS_TRY(cudaMalloc((void **)place, (size_t)LINKS_MOST_BYTES));
    LINKS_TRY(cudaMemset(*place, 0, (size_t)LINKS_MOST_BYTES));
  }
  for (int i = 0; i < 2; i++) {
    LINKS_TRY(cudaHostAlloc((void **)&gpu->host[i], LINKS_HOST_BYTES, cudaHostAllocPortable));
    memset(gpu->host[i], 0, LINKS_HOST_BYTES);
  }
  const kern_cuda_options options = {.dtype = KERN_BF16,
                                     .gradient = KERN_FP32,
                                     .stream = gpu->compute,
                                     .workspace = gpu->workspace,
                                     .workspace_bytes = WORKSPACE_BYTES};
  links_must(kern_cuda_create(&options, &gpu->kernels, &error), &error);
  kern_cuda_tune(gpu->kernels, true);
  kern_cuda_gemm_run(gpu->kernels, &product, gpu->a, gpu->b, gpu->c);
  kern_cuda_tune(gpu->kernels, false);
  LINKS_TRY(cudaDeviceSynchronize());
  check_kernels(gpu);
}

void links_gpu_close(links_gpu *gpu) {
  LINKS_TRY(cudaSetDevice(gpu->index));
  kern_cuda_free(gpu->kernels);
  void *const arrays[] = {gpu->workspace, gpu->a, gpu->b, gpu->c, gpu->out, gpu->in[0], gpu->in[1]};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) LINKS_TRY(cudaFree(arrays[i]));
  for (int i = 0; i < 2; i++) LINKS_TRY(cudaFreeHost(gpu->host[i]));
  LINKS_TRY(cudaEventDestroy(gpu->begin));
  LINKS_TRY(cudaEventDestroy(gpu->end));
  LINKS_TRY(cudaStreamDestroy(gpu->compute));
}

void links_products(links_gpu *gpu, int count) {
  LINKS_TRY(cudaEventRecord(gpu->begin, gpu->compute));
  for (int i = 0; i < count; i++) kern_cuda_gemm_run(gpu->kernels, &product, gpu->a, gpu->b, gpu->c);
  LINKS_TRY(cudaEventRecord(gpu->end, gpu->compute));
  check_kernels(gpu);
}

double links_elapsed_s(cudaEvent_t begin, cudaEvent_t end) {
  float ms = 0;
  LINKS_TRY(cudaEventSynchronize(end));
  LINKS_TRY(cudaEventElapsedTime(&ms, begin, end));
  return ms * 1e-3;
}

double links_products_s(links_gpu *gpu, int count) { return links_elapsed_s(gpu->begin, gpu->end) / count; }

void links_time_products(links_gpu *gpu) {
  enum { COUNT = 4 };
  double seconds[LINKS_RUNS];
  LINKS_TRY(cudaSetDevice(gpu->index));
  for (int r = -1; r < LINKS_RUNS; r++) { /* the first warms up */
    links_products(gpu, COUNT);
    const double s = links_products_s(gpu, COUNT);
    if (r >= 0) seconds[r] = s;
  }
  gpu->product_s = dp_median(seconds, LINKS_RUNS);
}

/* ---- rows ---- */

bool links_wanted(const links_options *options, const char *row) {
  return dp_clock_s() < options->end_s && (!options->only || strstr(row, options->only));
}

int links_count(double wanted_s, double each_s, int least, int most) {
  const double count = each_s > 0 ? wanted_s / each_s + 1 : most;
  return count > most ? most : count < least ? least : (int)count;
}

static void print_number(const char *name, double value, bool known) {
  if (known)
    printf(", \"%s\": %.5g", name, value);
  else
    printf(", \"%s\": null", name);
}

void links_tell(const char *row, int gpus, int flows, int64_t bytes, double factor, int sms, const links_result *r) {
  const double moved = factor * (double)bytes;
  static char told[96]; /* a head above each row's sizes */
  printf("{\"row\": \"%s\", \"gpus\": %d, \"flows\": %d, \"bytes\": %lld", row, gpus, flows, (long long)bytes);
  print_number("us", r->alone_s * 1e6, true);
  print_number("gb_per_s", moved / r->alone_s * 1e-9, true);
  print_number("beside_us", r->beside_s * 1e6, r->beside_s > 0);
  print_number("beside_gb_per_s", r->beside_s > 0 ? moved / r->beside_s * 1e-9 : 0, r->beside_s > 0);
  print_number("gemm_slowing", r->slowing, r->slowing > 0);
  print_number("waiting_slowing", r->waiting, r->waiting > 0);
  printf(", \"sms\": %d}\n", sms);
  (void)fflush(stdout);
  if (strcmp(told, row) != 0)
    fprintf(stderr, "%s, %d GPU%s, %d at once\n%12s %12s %10s %12s %10s %8s %8s\n", row, gpus, gpus == 1 ? "" : "s",
            flows, "bytes", "us", "GB/s", "beside us", "GB/s", "GEMM x", "waits x");
  (void)snprintf(told, sizeof told, "%s", row);
  fprintf(stderr, "%12lld %12.2f %10.2f", (long long)bytes, r->alone_s * 1e6, moved / r->alone_s * 1e-9);
  if (r->beside_s > 0) fprintf(stderr, " %12.2f %10.2f", r->beside_s * 1e6, moved / r->beside_s * 1e-9);
  if (r->slowing > 0) fprintf(stderr, " %8.3f", r->slowing);
  if (r->waiting > 0) fprintf(stderr, " %8.3f", r->waiting);
  fprintf(stderr, "\n");
}
