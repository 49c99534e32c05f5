/* Inside kernels/cpu/: loops that the compiler turns into vector instructions, and functions that it can do so with.
 *
 * KERN_CLONES compiles a function for several vector widths; the loader takes the widest that the machine has. All do
 * the same roundings (no contraction, no reassociation), so results do not depend on the machine. Sums keep KERN_LANES
 * partial sums, added up in a fixed order.
 */
#ifndef DP_KERNELS_CPU_VECTOR_H
#define DP_KERNELS_CPU_VECTOR_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Needs ifunc of glibc; sanitizers' runtimes are not up yet when the loader resolves it. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(KERN_NO_CLONES)
#define KERN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KERN_CLONES
#endif

/* The iterations of the next loop do not depend on each other: outputs may be inputs, but do not overlap otherwise. */
#ifdef __clang__
/* With sanitizers and without -O no loop can become one of vectors. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define KERN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define KERN_INDEPENDENT _Pragma("GCC ivdep")
#endif

#define KERN_INLINE static inline __attribute__((always_inline))

/* For what products go through anyway (tile.h): multiplications and additions are fused where the machine can, and bits
 * depend on that. */
#ifdef __clang__
#define KERN_FUSED
#else
#define KERN_FUSED __attribute__((optimize("fp-contract=fast")))
#endif

enum { KERN_LANES = 16 };

KERN_INLINE float kern_lanes_sum(const float *lanes) {
  float sum[KERN_LANES];
  for (int i = 0; i < KERN_LANES; i++) sum[i] = lanes[i];
  for (int width = KERN_LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) sum[i] += sum[i + width];
  return sum[0];
}

/* e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2, ln 2 in two parts; e^r as 1 + r + r^2 q(r) with the q of degree
 * 4 whose greatest relative error is least (3e-9, found by Lawson's iteration). Relative error below 2e-7 for x in
 * [-87, 88]; below it is as at -87, above e^88; NaN stays NaN. That the two bounds are looked at in different places
 * makes each one instruction or two. */
KERN_INLINE float kern_exp(float x) {
  const float magic = 12582912.0f; /* 1.5 * 2^23: the sum has n in its low bits */
  const bool above = x > 88.0f;
  x = x < -87.0f ? -87.0f : x;
  const float shifted = x * 1.44269504f + magic;
  const float n = shifted - magic;
  const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 0.00138145988f;
  p = p * r + 0.00836871658f;
  p = p * r + 0.0416683890f;
  p = p * r + 0.166665211f;
  p = p * r + 0.499999940f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000u;
  float power;
  memcpy(&power, &bits, sizeof power);
  const float value = p * power;
  return above ? 1.65163625e38f : value;
}

KERN_INLINE float kern_sigmoid(float x) { return 1.0f / (1.0f + kern_exp(-x)); }

/* The normal distribution's Phi(x), and its density in *density. Abramowitz & Stegun, "Handbook of mathematical
 * functions", 7.1.26: error of erf below 1.5e-7; of Phi, with roundings, below 3e-7. */
KERN_INLINE float kern_normal(float x, float *density) {
  const float z = fabsf(x) * 0.707106781f;
  const float e = kern_exp(-0.5f * x * x);
  const float t = 1.0f / (1.0f + 0.3275911f * z);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float tail = 0.5f * p * t * e;
  *density = 0.39894228f * e;
  return x > 0 ? 1.0f - tail : tail;
}

#endif
