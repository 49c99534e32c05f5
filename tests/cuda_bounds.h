/* How far a program on CUDA devices may be from the CPU's lone worker. */
#ifndef DP_TESTS_CUDA_BOUNDS_H
#define DP_TESTS_CUDA_BOUNDS_H

#include <math.h>
#include <stdint.h>

/* [bf16] fp32: sums in other orders, over some thousand terms and four steps. bf16: each of some hundred ops rounds its
 * output by up to 2^-8, at random, so that a loss is off by a few thousandths and gradients by some hundredths. */
static const double loss_bound[] = {2e-5, 2e-2}, gradient_bound[] = {2e-4, 0.12};

/* The norm of a - b, as a part of b's. */
static inline double distance(int64_t n, const float *a, const float *b) {
  double square = 0, off = 0;
  for (int64_t i = 0; i < n; i++) {
    const double d = (double)a[i] - b[i];
    square += (double)b[i] * b[i];
    off += d * d;
  }
  return sqrt(off / square);
}

#endif
