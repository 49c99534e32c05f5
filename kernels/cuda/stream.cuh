// Kernels that go once over memory: packs of 16 bytes, several loads in flight a thread before the first store, and the
// same job a value at a time where 16 bytes do not fit. A job is a struct of what it reads and writes:
//   struct job { struct item {..}; static constexpr int unroll; item load(int64_t) const; void store(int64_t, const
//   item &) const; };
// load(i) reads all that store(i) needs and nothing that another index stores, so that in place is right.
#ifndef DP_KERNELS_CUDA_STREAM_CUH
#define DP_KERNELS_CUDA_STREAM_CUH

#include "kernels/cuda/device.cuh"

namespace kern {

template <int BYTES>
struct bits_of;
template <>
struct bits_of<2> {
  using type = unsigned short;
};
template <>
struct bits_of<4> {
  using type = unsigned;
};
template <>
struct bits_of<8> {
  using type = uint2;
};
template <>
struct bits_of<16> {
  using type = uint4;
};

// N values as they lie in memory, on a boundary of their size.
template <typename T, int N>
struct packed {
  typename bits_of<N *static_cast<int>(sizeof(T))>::type bits;
};
template <int N, typename T>
__device__ __forceinline__ packed<T, N> load_packed(const T *from) {
  return {*reinterpret_cast<const decltype(packed<T, N>::bits) *>(from)};
}
// 16 bytes are said to be one access: of an assignment the compiler makes four where a branch is near.
template <int N, typename T>
__device__ __forceinline__ void store_packed(T *to, const packed<T, N> &values) {
  if constexpr (sizeof values == 16)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(values.bits.x),
                 "r"(values.bits.y), "r"(values.bits.z), "r"(values.bits.w)
                 : "memory");
  else
    *reinterpret_cast<decltype(packed<T, N>::bits) *>(to) = values.bits;
}

template <int N>
__device__ __forceinline__ void unpack(const packed<float, N> &from, float (&to)[N]) {
  const float *values = reinterpret_cast<const float *>(&from.bits);
#pragma unroll
  for (int i = 0; i < N; i++) to[i] = values[i];
}
// A bf16 is the upper half of the float of the same value.
template <int N>
__device__ __forceinline__ void unpack(const packed<bf16, N> &from, float (&to)[N]) {
  if constexpr (N == 1) {
    to[0] = __uint_as_float(static_cast<unsigned>(from.bits) << 16);
  } else {
    const unsigned *words = reinterpret_cast<const unsigned *>(&from.bits);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      to[2 * i] = __uint_as_float(words[i] << 16);
      to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  }
}
template <int N>
__device__ __forceinline__ packed<float, N> repack(const float (&from)[N], float) {
  packed<float, N> to;
  float *values = reinterpret_cast<float *>(&to.bits);
#pragma unroll
  for (int i = 0; i < N; i++) values[i] = from[i];
  return to;
}
template <int N>
__device__ __forceinline__ packed<bf16, N> repack(const float (&from)[N], bf16) {
  packed<bf16, N> to;
  if constexpr (N == 1) {
    to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(from[0]));
  } else {
    unsigned *words = reinterpret_cast<unsigned *>(&to.bits);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      const __nv_bfloat162 two = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
      words[i] = *reinterpret_cast<const unsigned *>(&two);
    }
  }
  return to;
}
// Rounds and stores.
template <int N, typename T>
__device__ __forceinline__ void store_rounded(T *to, const float (&from)[N]) {
  store_packed<N>(to, repack(from, T()));
}

inline bool is_aligned(const void *pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

// Division by what is known at the launch. Where n < 2^31 it is one multiplication and exact (Granlund & Montgomery,
// "Division by invariant integers using multiplication", 1994, figure 4.1); else floor((2^64 - 1) / by) gives the
// quotient or one less.
struct divider {
  int64_t by;
  uint64_t wide;
  unsigned magic;
  int shift;
  __device__ __forceinline__ unsigned divide_small(unsigned n) const {  // n < 2^31
    return (__umulhi(n, magic) + n) >> shift;
  }
  __device__ __forceinline__ int64_t divide(int64_t n) const {
    if (n < (int64_t{1} << 31)) return divide_small(static_cast<unsigned>(n));
    const int64_t near = static_cast<int64_t>(__umul64hi(static_cast<uint64_t>(n), wide));
    return n - near * by >= by ? near + 1 : near;
  }
  // Returns the quotient and gives the remainder.
  __device__ __forceinline__ int64_t split(int64_t n, int64_t *remainder) const {
    const int64_t quotient = divide(n);
    *remainder = n - quotient * by;
    return quotient;
  }
};
inline divider divider_of(int64_t by) {
  const uint64_t divisor = static_cast<uint64_t>(by);
  divider d = {by, UINT64_MAX / divisor, 0, 31};
  if (divisor >= uint64_t{1} << 31) return d;  // all n < 2^31 give 0
  d.shift = 0;
  while ((uint64_t{1} << d.shift) < divisor) d.shift++;
  d.magic = static_cast<unsigned>((((uint64_t{1} << d.shift) - divisor) << 32) / divisor + 1);
  return d;
}

constexpr int stream_threads = 256;

template <typename Job>
__global__ void __launch_bounds__(stream_threads) stream_kernel(const int64_t n, const __grid_constant__ Job job) {
  constexpr int unroll = Job::unroll;
  const int64_t step = static_cast<int64_t>(gridDim.x) * (stream_threads * unroll);
#pragma unroll 1
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * (stream_threads * unroll) + threadIdx.x; at < n; at += step) {
    typename Job::item items[unroll];
#pragma unroll
    for (int u = 0; u < unroll; u++)
      if (at + u * stream_threads < n) items[u] = job.load(at + u * stream_threads);
#pragma unroll
    for (int u = 0; u < unroll; u++)
      if (at + u * stream_threads < n) job.store(at + u * stream_threads, items[u]);
  }
}

// Blocks for `tiles` of equal work: several rounds of what the part holds at once, so that none waits long for the last
// ones.
inline unsigned stream_blocks(const kern_cuda *context, int64_t tiles) {
  const int64_t most = static_cast<int64_t>(context->sm_count) * 32;
  return static_cast<unsigned>(tiles < most ? tiles : most);
}

template <typename Job>
void stream(kern_cuda *context, const char *what, int64_t n, const Job &job) {
  if (n <= 0 || kern_cuda_failed(context)) return;
  const int64_t tiles = divide_up(n, stream_threads * Job::unroll);
  stream_kernel<<<stream_blocks(context, tiles), stream_threads, 0, context->stream>>>(n, job);
  launched(context, what);
}

template <int N>
struct width {
  static constexpr int value = N;
};

// A flat array of n values: packs of N, then what is left one by one. make(width<N>(), at) is the job from value `at`.
template <int N, typename Make>
void stream_values(kern_cuda *context, const char *what, int64_t n, bool aligned, Make make) {
  const int64_t packs = aligned ? n / N : 0;
  stream(context, what, packs, make(width<N>(), int64_t{0}));
  stream(context, what, n - packs * N, make(width<1>(), packs * N));
}
// Rows that are all packs of N, or none is.
template <int N, typename Make>
void stream_rows(kern_cuda *context, const char *what, int64_t n, bool aligned, Make make) {
  if (aligned)
    stream(context, what, n / N, make(width<N>()));
  else
    stream(context, what, n, make(width<1>()));
}

inline void *workspace_of(kern_cuda *context, size_t bytes, const char *what) {
  if (bytes <= context->options.workspace_bytes) return context->options.workspace;
  kern_cuda_fail(context, DP_RUN_FAILED, "%s: a workspace of %zu bytes is needed, there are %zu", what, bytes,
                 context->options.workspace_bytes);
  return nullptr;
}

}  // namespace kern
#endif
