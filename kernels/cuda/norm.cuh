// What the norms share: accesses of 16 bytes or of one value, which sums of columns have, too, and sweeps over [batch,
// positions, channels] whose threads each stay with their channels, for sums over positions.
#ifndef DP_KERNELS_CUDA_NORM_CUH
#define DP_KERNELS_CUDA_NORM_CUH

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device.cuh"

namespace kern {

// N values of T that one access moves.
template <int BYTES>
struct access_of;
template <>
struct access_of<16> {
  using type = uint4;
};
template <>
struct access_of<8> {
  using type = uint2;
};
template <>
struct access_of<4> {
  using type = unsigned int;
};
template <>
struct access_of<2> {
  using type = unsigned short;
};
template <typename T, int N>
using bits_of = typename access_of<N *(int)sizeof(T)>::type;
template <typename T, int N>
union packed {
  bits_of<T, N> bits;
  T values[N];
  unsigned int words[(N * sizeof(T) + 3) / 4];
};

template <typename T, int N>
__device__ __forceinline__ packed<T, N> load_packed(const T *from) {
  packed<T, N> to;
  to.bits = *reinterpret_cast<const bits_of<T, N> *>(from);
  return to;
}
// The first to leave the cache: for what is read for the last time.
template <typename T, int N>
__device__ __forceinline__ packed<T, N> load_packed_last(const T *from) {
  packed<T, N> to;
  to.bits = __ldcs(reinterpret_cast<const bits_of<T, N> *>(from));
  return to;
}
template <typename T, int N>
__device__ __forceinline__ packed<T, N> zero_packed() {
  packed<T, N> to;
  to.bits = bits_of<T, N>();
  return to;
}
// Keeps values packed from here on: else the compiler converts them once for all passes over them and runs out of
// registers.
template <typename T, int N, int V>
__device__ __forceinline__ void stay_packed(packed<T, N> (&u)[V]) {
#pragma unroll
  for (int v = 0; v < V; v++)
#pragma unroll
    for (int w = 0; w < N * (int)sizeof(T) / 4; w++) asm volatile("" : "+r"(u[v].words[w]));
}
template <typename T, int N>
__device__ __forceinline__ void store_packed(T *to, const float (&from)[N]) {
  packed<T, N> u;
#pragma unroll
  for (int k = 0; k < N; k++) u.values[k] = from_float<T>(from[k]);
  *reinterpret_cast<bits_of<T, N> *>(to) = u.bits;
}

// Calls f(T(), N as a constant): N fills 16 bytes where `wide` is set, else it is 1.
template <typename F>
void with_access(kern_dtype dtype, bool wide, F f) {
  with_dtype(dtype, [&](auto zero) {
    if (wide)
      f(zero, std::integral_constant<int, pack<decltype(zero)>::count>());
    else
      f(zero, std::integral_constant<int, 1>());
  });
}
// Calls f(true or false as a constant).
template <typename F>
void with_flag(bool flag, F f) {
  if (flag)
    f(std::true_type());
  else
    f(std::false_type());
}

// That a block may have.
inline size_t shared_bytes(kern_cuda *c) {
  int most = 0;
  (void)KERN_CUDA_TRY(c, cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->device));
  return (size_t)std::max(most, 48 << 10);
}
// Launches of the kernel may ask for so much. It is the most that any will, not what the next one does: all threads of
// the process share it, and one would take from another what that is about to launch, or has recorded, with.
template <typename K>
void allow_shared(kern_cuda *c, K *kernel, int most) {
  (void)KERN_CUDA_TRY(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
}

inline bool is_wide(kern_dtype dtype, int64_t channels) { return channels % (16 / kern_dtype_bytes(dtype)) == 0; }

// A block has `columns` threads along its chunk of the channels, N each, times `lanes` along positions. Blocks of a
// sample take its rows in turns of `lanes`, so that all together go through memory from one end to the other.
struct sweep {
  int64_t batch, positions, channels;
  int slabs; /* blocks that share a sample's rows */
  int columns, lanes, chunks;
  int64_t turns, rest; /* positions = turns * slabs * lanes + rest */
};
enum { SWEEP_THREADS = 256, SWEEP_MAX_BLOCKS = 1024 };

// `blocks` is how many are to run side by side. The workspace is for SWEEP_MAX_BLOCKS of them.
inline sweep sweep_of(int64_t batch, int64_t positions, int64_t channels, int n, int64_t blocks) {
  sweep s = {batch, positions, channels, 1, 1, 1, 1, 0, 0};
  const int64_t packs = channels / n;
  s.chunks = (int)divide_up(packs, SWEEP_THREADS);
  s.columns = (int)divide_up(packs, s.chunks);
  s.lanes = SWEEP_THREADS / s.columns;
  const int64_t each = std::min<int64_t>(blocks, SWEEP_MAX_BLOCKS) / (batch * s.chunks);
  s.slabs = (int)std::max<int64_t>(1, std::min(each, divide_up(positions, 2 * s.lanes)));
  s.turns = positions / ((int64_t)s.slabs * s.lanes);
  s.rest = positions % ((int64_t)s.slabs * s.lanes);
  return s;
}
inline int sweep_threads(const sweep &s) { return (s.columns * s.lanes + 31) / 32 * 32; }
inline unsigned sweep_blocks(const sweep &s) { return (unsigned)(s.batch * s.slabs * s.chunks); }
// Two sums for each thread's channels.
inline size_t sweep_shared(const sweep &s, int n) { return (size_t)2 * s.columns * s.lanes * n * sizeof(float); }

// A sweep for as many blocks as the stream's part runs of a kernel side by side, each with so much shared memory or
// what the sums need.
template <typename K>
sweep sweep_for(kern_cuda *context, K *kernel, int64_t batch, int64_t positions, int64_t channels, int n,
                size_t shared = 0) {
  const sweep one = sweep_of(batch, positions, channels, n, 1);
  int resident = 1;
  (void)KERN_CUDA_TRY(context, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, sweep_threads(one),
                                                                             std::max(shared, sweep_shared(one, n))));
  return sweep_of(batch, positions, channels, n, (int64_t)context->sm_count * std::max(1, resident));
}

// Rows of a slab's lane, and of all its lanes.
__device__ __forceinline__ int lane_rows(const sweep &s, int slab, int lane) {
  return (int)s.turns + (slab * s.lanes + lane < s.rest ? 1 : 0);
}
__device__ __forceinline__ float slab_rows(const sweep &s, int slab) {
  const int64_t more = s.rest - slab * s.lanes;
  return (float)(s.turns * s.lanes + max((int64_t)0, min(more, (int64_t)s.lanes)));
}

// A thread's part of a sweep.
template <int N>
struct sweep_part {
  int chunk, slab, lane, column;
  int first, width; /* the chunk's channels */
  int channel;      /* the first of the thread's N */
  int rows;         /* 0: it only helps with sums */
  int64_t sample;
  __device__ explicit sweep_part(const sweep &s) {
    chunk = (int)(blockIdx.x % s.chunks);
    slab = (int)(blockIdx.x / s.chunks % s.slabs);
    sample = blockIdx.x / s.chunks / s.slabs;
    lane = threadIdx.x / s.columns;
    column = threadIdx.x % s.columns;
    first = chunk * s.columns * N;
    width = min(s.columns * N, (int)s.channels - first);
    channel = first + column * N;
    rows = lane < s.lanes && channel < s.channels ? lane_rows(s, slab, lane) : 0;
  }
  // Where its first value is, and how far it is to the next row's.
  __device__ int64_t at(const sweep &s) const {
    return (sample * s.positions + slab * s.lanes + lane) * s.channels + channel;
  }
  __device__ int64_t step(const sweep &s) const { return (int64_t)s.slabs * s.lanes * s.channels; }
  // Puts two values a channel where all threads find them: shared[2][lanes][columns * N].
  __device__ void share(const sweep &s, const float (&a)[N], const float (&b)[N], float *shared) const {
    if (lane < s.lanes) {
      float *to = shared + (lane * s.columns + column) * N;
#pragma unroll
      for (int k = 0; k < N; k++) {
        to[k] = a[k];
        to[s.lanes * s.columns * N + k] = b[k];
      }
    }
    __syncthreads();
  }
  // Sums of what is shared over lanes, to partial[sample, slab][2][channels].
  __device__ void channel_sums(const sweep &s, const float *shared, float *partial) const {
    float *to = partial + (sample * s.slabs + slab) * 2 * s.channels + first;
    for (int half = 0; half < 2; half++)
      for (int c = threadIdx.x; c < width; c += blockDim.x) {
        float sum = 0;
        for (int l = 0; l < s.lanes; l++) sum += shared[(half * s.lanes + l) * s.columns * N + c];
        to[half * s.channels + c] = sum;
      }
  }
};

// first = or += sums of partial[rows][0][channels], second those of [1]; each may be NULL.
template <typename G>
__global__ void __launch_bounds__(1024)
    add_column_sums(int64_t rows, int64_t channels, bool accumulate, const float *partial, G *first, G *second) {
  __shared__ float shared[32][33];
  G *out = blockIdx.y == 0 ? first : second;
  if (out == nullptr) return;
  const int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
  float sum = 0;
  if (c < channels) {
    const float *from = partial + blockIdx.y * channels + c;
#pragma unroll 4
    for (int64_t r = threadIdx.y; r < rows; r += 32) sum += from[r * 2 * channels];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= channels) return;
  float total = 0;
#pragma unroll
  for (int r = 0; r < 32; r++) total += shared[r][threadIdx.x];
  out[c] = from_float<G>(accumulate ? to_float<G>(out[c]) + total : total);
}

// Adds sums over a sweep's blocks to gradients of the gradient dtype.
inline void add_sweep_sums(kern_cuda *context, const sweep &s, const float *partial, void *first, void *second) {
  const dim3 grid((unsigned)divide_up(s.channels, 32), 2), block(32, 32);
  with_dtype(context->options.gradient, [&](auto zero) {
    using G = decltype(zero);
    add_column_sums<G><<<grid, block, 0, context->stream>>>(s.batch * s.slabs, s.channels, !context->overwrites,
                                                            partial, static_cast<G *>(first), static_cast<G *>(second));
  });
  launched(context, "sums of a norm's gradients");
}

}  // namespace kern
#endif
