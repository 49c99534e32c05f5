// What the kernels share: both dtypes behind one spelling, 16-byte accesses, sums over a block.
#ifndef DP_KERNELS_CUDA_DEVICE_CUH
#define DP_KERNELS_CUDA_DEVICE_CUH

#include <cuda_bf16.h>

#include "kernels/cuda/context.h"

namespace kern {

using bf16 = __nv_bfloat16;

template <typename T>
__device__ __forceinline__ float to_float(T value);
template <>
__device__ __forceinline__ float to_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ float to_float<bf16>(bf16 value) {
  return __bfloat162float(value);
}
template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
  return __float2bfloat16_rn(value);
}

// As many values as 16 bytes hold.
template <typename T>
struct pack {
  static constexpr int count = 16 / sizeof(T);
};
template <typename T>
__device__ __forceinline__ void load16(const T *from, float (&to)[pack<T>::count]) {
  union {
    uint4 bits;
    T values[pack<T>::count];
  } u;
  u.bits = *reinterpret_cast<const uint4 *>(from);
#pragma unroll
  for (int i = 0; i < pack<T>::count; i++) to[i] = to_float<T>(u.values[i]);
}
template <typename T>
__device__ __forceinline__ void store16(T *to, const float (&from)[pack<T>::count]) {
  union {
    uint4 bits;
    T values[pack<T>::count];
  } u;
#pragma unroll
  for (int i = 0; i < pack<T>::count; i++) u.values[i] = from_float<T>(from[i]);
  *reinterpret_cast<uint4 *>(to) = u.bits;
}
inline bool is_aligned16(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
// Every thread gets the sum; `shared` holds 32 floats and may be used again after the next __syncthreads().
__device__ __forceinline__ float block_sum(float value, float *shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
  value = warp_sum(value);
  __syncthreads();
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

// Calls f(T()) with the context's dtype, or a given one.
template <typename F>
void with_dtype(kern_dtype dtype, F f) {
  if (dtype == KERN_BF16)
    f(bf16());
  else
    f(float());
}

inline int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

// After a launch.
inline void launched(kern_cuda *context, const char *what) { (void)kern_cuda_check(context, cudaGetLastError(), what); }

}  // namespace kern
#endif
