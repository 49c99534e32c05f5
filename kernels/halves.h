/* An fp32 master kept as two halves of 16 bits: the bf16 weight that kernels read, and beside it the master's low bits.
 *
 * With b the master's bits and arithmetic modulo 2^32:
 *   weight = (b + 0x8000) >> 16                the nearest bf16; of two as near, the one of larger magnitude
 *   low    = b & 0xffff
 *   b      = (weight << 16) + low, where low counts as a number from -0x8000 to 0x7fff
 * So every master that is a number comes back to the bit, whatever its sign: zeros, subnormals, infinities, and those
 * from 0x7f7f8000 on, whose weight is infinite, as in any rounding to the nearest. A NaN becomes the quiet one,
 * 0x7fc00000, first: of some the sum would carry into the sign, of others the weight would be infinity.
 *
 * That differs from rounding ties to even where a master lies just between two bf16 (low is 0x8000, one in 65536), and
 * has to: to even, the masters 0x00018000 and 0x00028000 would both have the weight 0x0002, and their low halves are
 * the same. Away from zero they have 0x0002 and 0x0003. Either way is half a unit in the last place off.
 */
#ifndef DP_KERNELS_HALVES_H
#define DP_KERNELS_HALVES_H

#include <stdint.h>

#ifdef __CUDACC__
#define KERN_HALVES static __host__ __device__ __forceinline__
#else
#define KERN_HALVES static inline
#endif

/* A master's bits as they are kept. */
KERN_HALVES uint32_t kern_halves_kept(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits; }
/* Both of kept bits. */
KERN_HALVES uint32_t kern_halves_weight(uint32_t kept) { return (kept + 0x8000u) >> 16; }
KERN_HALVES uint32_t kern_halves_low(uint32_t kept) { return kept & 0xffffu; }
/* weight and low < 2^16 */
KERN_HALVES uint32_t kern_halves_join(uint32_t weight, uint32_t low) {
  return (weight << 16) + low - ((low & 0x8000u) << 1);
}

#endif
