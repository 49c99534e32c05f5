/* What bench_cuda_links.c, which measures copies, and cuda_links_nccl.c, which measures NCCL, share: the GPUs with
 * their buffers and products, and how a row is told. Any failure ends the process, with a line. */
#ifndef DP_TESTS_CUDA_LINKS_H
#define DP_TESTS_CUDA_LINKS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "exec/transport.h"
#include "kernels/cuda/cuda.h"

enum {
  LINKS_MAX_GPUS = 16,
  LINKS_RUNS = 5,
  LINKS_PRODUCT = 8192,          /* m, n and k of the products beside */
  LINKS_HOST_BYTES = 128 << 20,  /* of each pinned buffer */
  LINKS_SLOWING_BYTES = 16 << 20 /* from this size on products are timed, too: smaller messages do not last as long */
};
#define LINKS_MOST_BYTES ((int64_t)1 << 30)

typedef struct links_gpu {
  int index;
  kern_cuda *kernels;
  cudaStream_t compute;
  cudaEvent_t begin, end; /* of the products */
  void *workspace, *a, *b, *c;
  char *out, *in[2], *host[2]; /* LINKS_MOST_BYTES on the device, LINKS_HOST_BYTES pinned */
  double product_s;            /* by itself */
} links_gpu;

/* What a row has of one size; times in seconds. Those that were not measured are 0. */
typedef struct links_result {
  double alone_s, beside_s, slowing; /* slowing: of a product, 1: none */
  double waiting;                    /* the same beside what waits for another GPU */
} links_result;

typedef struct links_options {
  double end_s;     /* no row is begun after */
  const char *only; /* rows that have this in their names; NULL: all */
  int nccl_sms;
} links_options;

void links_must(dp_status status, const dp_error *error);
void links_check(cudaError_t result, const char *what);
#define LINKS_TRY(call) links_check((call), #call)

void links_gpu_open(links_gpu *gpu, int index);
void links_gpu_close(links_gpu *gpu);
/* In the queue of `compute`, between the two events; the GPU is the current one. */
void links_products(links_gpu *gpu, int count);
double links_products_s(links_gpu *gpu, int count); /* when the queue is done: seconds of one */
double links_elapsed_s(cudaEvent_t begin, cudaEvent_t end);
/* Sets product_s; nothing else runs. */
void links_time_products(links_gpu *gpu);

bool links_wanted(const links_options *options, const char *row);
extern const int64_t links_sizes[];
extern const int links_size_count;
/* How many of something that takes so long last `wanted_s`, at least and at most so many. */
int links_count(double wanted_s, double each_s, int least, int most);
/* A line of the table and one of JSON. `factor`: of the bytes to those that cross each link (all-reduce), else 1. sms:
 * that NCCL was bounded to. */
void links_tell(const char *row, int gpus, int flows, int64_t bytes, double factor, int sms,
                const links_result *result);

/* All processes call it; each has its GPU. */
void links_nccl(exec_transport *transport, links_gpu *gpu, const links_options *options);

#endif
