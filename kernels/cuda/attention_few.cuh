// What attention to few keys has in common forward and backward: all keys and values of a head in shared memory, and 16
// queries a warp.
#ifndef DP_KERNELS_CUDA_ATTENTION_FEW_CUH
#define DP_KERNELS_CUDA_ATTENTION_FEW_CUH

#include "kernels/cuda/attention.h"
#include "kernels/cuda/mma.cuh"

namespace kern {

// Dim, Keys: head_dim and k_tokens, rounded up.
template <int Dim, int Keys>
struct few_tile {
  static constexpr int DIM = Dim, KEYS = Keys, PITCH = Dim + 8, KEY_VALUES = Keys * PITCH;
  static constexpr int TILES = Keys / 8, CHANNELS = Dim / 8;  // products of 8 keys, of 8 channels
  static_assert(Dim % 16 == 0 && Keys % 16 == 0, "whole products");
};

// Tokens [0, there) of a head to ROWS rows of shared memory; the others, and channels from dim on, are 0. 8 threads
// have a row, 64 channels at a time; thread: of THREADS.
template <typename S, int ROWS, int THREADS>
__device__ __forceinline__ void few_load(int thread, const bf16 *from, int64_t stride, int there, int dim, bf16 *to) {
  constexpr int STEP = THREADS / 8;
  static_assert(ROWS % STEP == 0, "all threads have as many rows");
  const int row = thread / 8, at = thread % 8 * 8;
  const bf16 *place = from + row * stride + at;
  const bool whole = there >= ROWS && dim == S::DIM;
  to += row * S::PITCH + at;
#pragma unroll
  for (int i = 0; i < ROWS; i += STEP, place += STEP * stride)
#pragma unroll
    for (int c = 0; c < S::DIM; c += 64) {
      if (c + 64 > S::DIM && at + c >= S::DIM) continue;
      const bool is = whole || (row + i < there && at + c < dim);
      copy16(to + i * S::PITCH + c, is ? place + c : from, is);
    }
}

// s = the warp's rows of a times the keys' rows of b
template <typename S>
__device__ __forceinline__ void few_scores(const bf16 *a, const bf16 *b, float (&s)[S::TILES][4]) {
  const int lane = threadIdx.x % 32;
  const bf16 *of_a = a + lane % 16 * S::PITCH + lane / 16 * 8;
  const bf16 *of_b = b + (lane % 8 + lane / 16 * 8) * S::PITCH + lane / 8 % 2 * 8;
#pragma unroll
  for (int j = 0; j < S::TILES; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) s[j][e] = 0;
#pragma unroll
  for (int c = 0; c < S::DIM; c += 16) {
    uint32_t left[4];
    load_matrices(left, of_a + c);
#pragma unroll
    for (int j = 0; j < S::TILES; j += 2) {
      uint32_t right[4];
      load_matrices(right, of_b + j * 8 * S::PITCH + c);
      multiply(s[j], left, right[0], right[1]);
      multiply(s[j + 1], left, right[2], right[3]);
    }
  }
}

// The warp's 16 rows, rounded: first factors of products with rows of keys.
template <typename S>
__device__ __forceinline__ void few_round(const float (&s)[S::TILES][4], uint32_t (&to)[S::TILES / 2][4]) {
#pragma unroll
  for (int j = 0; j < S::TILES; j++)
#pragma unroll
    for (int half = 0; half < 2; half++) to[j / 2][j % 2 * 2 + half] = packed_pair(s[j][2 * half], s[j][2 * half + 1]);
}

// sum += the warp's rows, rounded, times the keys' rows of b
template <typename S>
__device__ __forceinline__ void few_product(const uint32_t (&s)[S::TILES / 2][4], const bf16 *b,
                                            float (&sum)[S::CHANNELS][4]) {
  const int lane = threadIdx.x % 32;
  const bf16 *of_b = b + lane % 16 * S::PITCH + lane / 16 * 8;
#pragma unroll
  for (int j = 0; j < S::TILES / 2; j++)
#pragma unroll
    for (int c = 0; c < S::CHANNELS; c += 2) {
      uint32_t right[4];
      load_matrices_turned(right, of_b + j * 16 * S::PITCH + c * 8);
      multiply(sum[c], s[j], right[0], right[1]);
      multiply(sum[c + 1], s[j], right[2], right[3]);
    }
}

__device__ __forceinline__ void store_eight(const bf16 *from, bool accumulate, bf16 *to) {
  if (!accumulate) {
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
    return;
  }
  float values[8], sums[8];
  load16(from, values);
  load16(to, sums);
#pragma unroll
  for (int n = 0; n < 8; n++) sums[n] += values[n];
  store16(to, sums);
}

// The warp's 16 rows of sums, `there` of which are wanted, through as many of shared memory to 16 bytes a store.
template <typename S>
__device__ __forceinline__ void few_store(const float (&sum)[S::CHANNELS][4], bf16 *staged, int there, int dim,
                                          bool accumulate, bf16 *to, int64_t stride) {
#pragma unroll
  for (int c = 0; c < S::CHANNELS; c += 2) {
    const uint32_t rounded[4] = {packed_pair(sum[c][0], sum[c][1]), packed_pair(sum[c][2], sum[c][3]),
                                 packed_pair(sum[c + 1][0], sum[c + 1][1]), packed_pair(sum[c + 1][2], sum[c + 1][3])};
    store_matrices(staged + c * 8, S::PITCH, rounded);
  }
  __syncwarp();
  const int lane = threadIdx.x % 32, first = lane / 8, at = lane % 8 * 8;
  const bool whole = there >= 16 && dim == S::DIM;
  staged += first * S::PITCH + at, to += first * stride + at;
#pragma unroll
  for (int row = 0; row < 16; row += 4, to += 4 * stride)
#pragma unroll
    for (int c = 0; c < S::DIM; c += 64) {
      if (c + 64 > S::DIM && at + c >= S::DIM) continue;
      if (whole || (first + row < there && at + c < dim)) store_eight(staged + row * S::PITCH + c, accumulate, to + c);
    }
}

// Missing keys' columns of the warp's rows become `value`.
template <typename S>
__device__ __forceinline__ void few_mask(int keys, float value, float (&s)[S::TILES][4]) {
  const int first = threadIdx.x % 4 * 2;
  if (keys > S::KEYS - 8) {  // mostly
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (S::KEYS - 8 + first + e % 2 >= keys) s[S::TILES - 1][e] = value;
    return;
  }
#pragma unroll
  for (int j = 0; j < S::TILES; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (j * 8 + first + e % 2 >= keys) s[j][e] = value;
}

// Sizes and strides that may be for some shape, and room on the device.
inline bool few_may_take(const kern_cuda *context, const kern_attention *s, int shared_bytes) {
  int most = 0;
  return context->options.dtype == KERN_BF16 && s->q_stride % 8 == 0 && s->k_stride % 8 == 0 && s->v_stride % 8 == 0 &&
         s->y_stride % 8 == 0 &&
         cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, context->device) == cudaSuccess &&
         shared_bytes <= most;
}
// How many of a head's tiles a block has, so that there are about so many blocks, and equal ones but the last of a
// head.
inline int64_t few_share(const kern_attention *s, int64_t tiles, int64_t blocks, int64_t least, int64_t most) {
  const int64_t wanted = s->batch * s->heads * tiles / blocks;
  return divide_up(tiles, divide_up(tiles, wanted < least ? least : wanted > most ? most : wanted));
}
inline bool few_is_something(const kern_attention *s) {
  return s->head_dim % 8 == 0 && s->k_tokens > 0 && s->q_tokens > 0 && s->batch * s->heads > 0;
}

}  // namespace kern
#endif
