// Products of 16 x 8 x 16 in bf16 on tensor cores, and what feeds them: copies to shared memory that nobody waits for,
// and matrices of 8 x 8 from there to registers.
#ifndef DP_KERNELS_CUDA_MMA_CUH
#define DP_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/device.cuh"

namespace kern {

constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;

// c[16][8] += a[16][16] b[16][8]
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four matrices of 8 x 8; lane l says where row l % 8 of matrix l / 8 begins.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const bf16 *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ __forceinline__ void load_matrices_turned(uint32_t (&to)[4], const bf16 *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
// 16 x 16 values as a first factor has them, to rows of shared memory that are `pitch` values apart.
__device__ __forceinline__ void store_matrices(bf16 *to, int pitch, const uint32_t (&from)[4]) {
  const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
  const bf16 *row = to + lane % 16 * pitch + lane / 16 * 8;
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(row))),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
#else
#pragma unroll
  for (int i = 0; i < 4; i++)
    memcpy(to + (lane / 4 + i % 2 * 8) * pitch + i / 2 * 8 + lane % 4 * 2, &from[i], sizeof from[i]);
#endif
}
// 16 bytes to shared memory, of zeros where there is nothing; there when copies_done() and a barrier have been passed.
__device__ __forceinline__ void copy16(bf16 *to, const bf16 *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ uint32_t packed_pair(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &both, sizeof bits);
  return bits;
}

// Results that would be denormal are 0.
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Of the lanes that share rows.
__device__ __forceinline__ float four_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ __forceinline__ float four_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

}  // namespace kern
#endif
