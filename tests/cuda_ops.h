/* How the ops of the table are run on a CUDA device: over kernels/cuda/cuda.h, beside the plain references and the
 * CPU's runs that tests/kernels_ops.h has. */
#ifndef DP_TESTS_CUDA_OPS_H
#define DP_TESTS_CUDA_OPS_H

#include "kernels/cuda/cuda.h"
#include "tests/kernels_sizes.h"

/* One call. All pointers are device memory. */
typedef struct cuda_call {
  kern_cuda *c;
  kern_dtype dtype, gradient;
  const int64_t *z;
  const void *in[OPS_MAX_ARRAYS];
  void *out, *kept; /* kept NULL: nothing is kept, where that may be said */
  const void *dy;
  void *d[OPS_MAX_ARRAYS]; /* NULL: not asked for */
  void *scratch;           /* as large as kept */
  bool accumulate;
} cuda_call;

/* Which arrays: bit i is in[i]. */
typedef struct cuda_ops_kind {
  const char *name;     /* NULL: that of `cpu` */
  const ops_kind *rows; /* whose rows of the table it is run at */
  const ops_kind *cpu;  /* arrays, reference, and the run on the CPU that gradients are held to */
  unsigned weights;     /* their gradients have the gradient dtype */
  unsigned wide;        /* they are fp32 whatever the dtype */
  unsigned given;       /* they have the gradient dtype themselves */
  unsigned y_on;        /* y may be exactly this */
  bool dx_on_dy;        /* d[0] may be dy */
  unsigned subsets[4];  /* gradients that may be asked for without the others */
  bool same_kept;       /* kept is that of the CPU: statistics */
  bool no_kept;         /* kept may be NULL in forward */
  bool wide_out;        /* the output is fp32 or more */
  bool tunes;           /* sizes may be timed: kern_cuda_tune */
  bool any_order;       /* gradients need not have the same bits twice */
  bool always_adds;     /* gradients of weights are added even where kern_cuda_overwrite is on */
  double stretch;       /* in[0] is this much larger than the table's, which the reference knows; 0: as large */
  /* Roundings to the dtype of what lies between inputs and output, and inputs and gradients, each relative to the
   * largest value of the result: see compare() of tests/cuda_trial.c */
  int between, between_back;
  /* Where a sum may be rounded to bf16 before the rest is added: the largest magnitude, of value i of the output, that
   * is rounded so; and which gradients are products that may be, before they are added to what lies there. */
  double (*before)(const int64_t *z, const float *const *in, int64_t i, double y); /* NULL: none */
  unsigned products;
  size_t (*workspace)(const int64_t *z, kern_dtype dtype); /* NULL: none */
  void (*forward)(const cuda_call *c);
  void (*backward)(const cuda_call *c); /* NULL: none */
  void (*again)(const cuda_call *c);    /* forward's output once more, from kept; NULL: none */
  /* Where the output is not n values of the dtype: its bytes, and those bytes as values. */
  size_t (*out_bytes)(const int64_t *z, kern_dtype dtype);
  void (*fetch)(const int64_t *z, kern_dtype dtype, const void *host, float *out);
} cuda_ops_kind;

extern const cuda_ops_kind *const cuda_ops_products[], *const cuda_ops_moves[]; /* each ends with NULL */
extern const cuda_ops_kind cuda_ops_siblings_singly;                            /* for comparison; in neither */

/* Names for rows at which only kernels of CUDA's are run. Of siblings: as ops_linear's, without bias, and how many. */
extern const ops_kind cuda_ops_few_keys, cuda_ops_siblings;

static inline const char *cuda_ops_name(const cuda_ops_kind *kind) { return kind->name ? kind->name : kind->cpu->name; }

static inline void *cuda_ops_at(const void *p, int64_t n, kern_dtype dtype) {
  return (char *)(uintptr_t)p + n * kern_dtype_bytes(dtype);
}

static inline float cuda_ops_from_bf16(uint16_t value) {
  union {
    uint32_t bits;
    float value;
  } u = {(uint32_t)value << 16};
  return u.value;
}
static inline uint16_t cuda_ops_to_bf16(float value) { /* to the nearest, halves to even */
  union {
    float value;
    uint32_t bits;
  } u = {value};
  if (value != value) return 0x7fff;
  return (uint16_t)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16);
}
static inline float cuda_ops_round(kern_dtype dtype, float value) {
  return dtype == KERN_FP32 ? value : cuda_ops_from_bf16(cuda_ops_to_bf16(value));
}
static inline void cuda_ops_to_floats(kern_dtype dtype, int64_t n, const void *from, float *to) {
  for (int64_t i = 0; i < n; i++)
    to[i] = dtype == KERN_FP32 ? ((const float *)from)[i] : cuda_ops_from_bf16(((const uint16_t *)from)[i]);
}

#endif
