// Both gradients of layer norm and RMS norm for rows of some 1 to 3 KiB, of which a warp's registers hold the sums of
// all channels and little else: rows come by asynchronous copies into a ring in shared memory, where the next ones are
// on their way while one is worked at. row_norm.cu's head has the formulae.
#ifndef DP_KERNELS_CUDA_ROW_NORM_RING_CUH
#define DP_KERNELS_CUDA_ROW_NORM_RING_CUH

#include "kernels/cuda/ring.cuh"
#include "kernels/cuda/row_norm_both.cuh"

namespace kern {
namespace {

// Warps of a block, one block a multiprocessor: as many as have registers for their sums.
template <typename T, int V>
constexpr int RING_WARPS = V > 32 / pack<T>::count ? 12 : 16;
constexpr int RING_STAGES = 4;  // at most; 2 at least

// Nothing that was read before is kept in registers behind it.
__device__ __forceinline__ void ring_forget() { asm volatile("" ::: "memory"); }

template <typename T, int N>
__device__ __forceinline__ packed<T, N> ring_at(const uint4 *from) {
  return load_packed<T, N>(reinterpret_cast<const T *>(from));
}

// Warp w of block b has rows (i warps + w) blocks + b, i = 0, 1, ..: each thread accesses i, i + 32, .. of them V,
// which it copies for itself alone, so that nothing waits for other threads. kept: [warps][stages][x, dy, and dx where
// it is added to][accesses of a row], later sums[warps][2][channels]. partial[block][2][channels].
template <typename T, int V, bool RMS>
__global__ void __launch_bounds__((RING_WARPS<T, V> * 32), 1)
    both_gradients_ring(row_job job, int stages, const T *x, const T *gain, const float *statistics, const T *dy,
                        bool accumulate, T *dx, float *partial) {
  constexpr int N = pack<T>::count;
  extern __shared__ uint4 kept_rows[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, packs = job.channels / N;
  const int row_packs = (accumulate ? 3 : 2) * packs;
  uint4 *const ring = kept_rows + warp * stages * row_packs + lane;
  const int64_t first = (int64_t)warp * gridDim.x + blockIdx.x, step = (int64_t)warps * gridDim.x;
  const float share = 1.0f / (float)job.channels;
  const auto fetch = [&](int64_t row, uint4 *to) {
    if (row < job.rows) {
      const int64_t at = row * job.channels + lane * N;
#pragma unroll
      for (int v = 0; v < V; v++)
        if (lane + 32 * v < packs) {
          ring_fetch(to + 32 * v, x + at + 32 * N * v);
          ring_fetch(to + packs + 32 * v, dy + at + 32 * N * v);
          if (accumulate) ring_fetch(to + 2 * packs + 32 * v, dx + at + 32 * N * v);
        }
    }
    ring_close(); /* of none, too, so that all rows are counted */
  };
  for (int i = 0; i < stages; i++) fetch(first + i * step, ring + i * row_packs);

  packed<T, N> by[V];
#pragma unroll
  for (int v = 0; v < V; v++) by[v] = gain_at<T, N>(gain, (lane + 32 * v) * N, job.channels);
  float s1[V][N] = {}, s2[V][N] = {};
  float means = 0, rstds = 0; /* of the row that is this thread's of the next 32 */
  int stage = 0, turn = 0;
  for (int64_t row = first; row < job.rows; row += step) {
    if (turn % 32 == 0 && row + lane * step < job.rows)
      load_statistics<RMS>(statistics, row + lane * step, means, rstds);
    const float mean = RMS ? 0.0f : __shfl_sync(0xffffffffu, means, turn % 32);
    const float rstd = __shfl_sync(0xffffffffu, rstds, turn % 32);
    turn++;
    uint4 *const at = ring + stage * row_packs;
    stage = stage + 1 < stages ? stage + 1 : 0;
    ring_wait(stages);
    float g_mean = 0, gx_mean = 0;
#pragma unroll
    for (int v = 0; v < V; v++) {
      if (lane + 32 * v >= packs) break;
      const packed<T, N> u = ring_at<T, N>(at + 32 * v), w = ring_at<T, N>(at + packs + 32 * v);
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float d = to_float<T>(w.values[k]), xh = (to_float<T>(u.values[k]) - mean) * rstd;
        const float g = d * to_float<T>(by[v].values[k]);
        if (!RMS) s1[v][k] += d;
        s2[v][k] = fmaf(d, xh, s2[v][k]);
        if (!RMS) g_mean += g;
        gx_mean = fmaf(g, xh, gx_mean);
      }
    }
    if (!RMS) g_mean = warp_sum(g_mean) * share;
    gx_mean = warp_sum(gx_mean) * share;
    ring_forget();
    stay_packed(by);
#pragma unroll
    for (int v = 0; v < V; v++) {
      if (lane + 32 * v >= packs) break;
      const packed<T, N> u = ring_at<T, N>(at + 32 * v), w = ring_at<T, N>(at + packs + 32 * v);
      packed<T, N> old = zero_packed<T, N>();
      if (accumulate) old = ring_at<T, N>(at + 2 * packs + 32 * v);
      float out[N];
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float d = to_float<T>(w.values[k]), xh = (to_float<T>(u.values[k]) - mean) * rstd;
        out[k] = rstd * (d * to_float<T>(by[v].values[k]) - g_mean - xh * gx_mean);
        if (accumulate) out[k] += to_float<T>(old.values[k]);
      }
      store_packed<T, N>(dx + row * job.channels + (lane + 32 * v) * N, out);
    }
    fetch(row + stages * step, at);
  }

  __syncthreads(); /* all that was copied has come, and been read */
  float *const sums = reinterpret_cast<float *>(kept_rows), *const mine = sums + warp * 2 * job.channels;
#pragma unroll
  for (int v = 0; v < V; v++) {
    if (lane + 32 * v >= packs) break;
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const int c = (lane + 32 * v) * N + k;
      *reinterpret_cast<float4 *>(mine + c) = make_float4(s1[v][k], s1[v][k + 1], s1[v][k + 2], s1[v][k + 3]);
      *reinterpret_cast<float4 *>(mine + job.channels + c) =
          make_float4(s2[v][k], s2[v][k + 1], s2[v][k + 2], s2[v][k + 3]);
    }
  }
  __syncthreads();
  for (int i = (RMS ? job.channels : 0) + (int)threadIdx.x * 4; i < 2 * job.channels; i += blockDim.x * 4) {
    float4 sum = *reinterpret_cast<const float4 *>(sums + i);
    for (int other = 1; other < warps; other++) {
      const float4 more = *reinterpret_cast<const float4 *>(sums + other * 2 * job.channels + i);
      sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    *reinterpret_cast<float4 *>(partial + (int64_t)blockIdx.x * 2 * job.channels + i) = sum;
  }
}

// How much of a multiprocessor a block takes.
struct ring_shape {
  int warps, stages;
  size_t shared;
};
inline ring_shape ring_shape_of(const kern_row_norm *size, int value_bytes, bool accumulate, int warps, size_t most) {
  const size_t row = (size_t)(accumulate ? 3 : 2) * (size_t)size->channels * (size_t)value_bytes;
  const size_t sums = 2 * (size_t)size->channels * sizeof(float), least = std::max(2 * row, sums);
  ring_shape shape = {(int)std::min<size_t>((size_t)warps, most / least), RING_STAGES, 0};
  while (shape.stages > 2 && (size_t)(shape.warps * shape.stages) * row > most) shape.stages--;
  shape.shared = (size_t)shape.warps * std::max((size_t)shape.stages * row, sums);
  return shape;
}

}  // namespace
}  // namespace kern
#endif
