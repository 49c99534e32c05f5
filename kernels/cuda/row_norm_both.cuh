// Layer norm's and RMS norm's kernels that make both gradients, of the input and of the weights, so that x and dy are
// read once; and what they share with row_norm.cu, whose head has the formulae.
#ifndef DP_KERNELS_CUDA_ROW_NORM_BOTH_CUH
#define DP_KERNELS_CUDA_ROW_NORM_BOTH_CUH

#include "kernels/cuda/norm.cuh"

namespace kern {
namespace {

constexpr int THREADS = 256, BOTH_THREADS = 128;

// Sums over TEAM threads: a part of a warp, a warp, or the whole block. All threads of the block call it.
template <int TEAM>
__device__ __forceinline__ float team_sum(float value, float *shared) {
  if constexpr (TEAM > 32) {
    return block_sum(value, shared);
  } else {
#pragma unroll
    for (int offset = TEAM / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
  }
}

// Statistics of a row: mean and rstd, or rstd alone.
template <bool RMS>
__device__ __forceinline__ void load_statistics(const float *statistics, int64_t row, float &mean, float &rstd) {
  mean = RMS ? 0.0f : statistics[2 * row];
  rstd = statistics[RMS ? row : 2 * row + 1];
}
template <bool RMS>
__device__ __forceinline__ void store_statistics(float *statistics, int64_t row, float mean, float rstd) {
  if (!RMS) statistics[2 * row] = mean;
  statistics[RMS ? row : 2 * row + 1] = rstd;
}

struct row_job {
  int64_t rows;
  int channels;
  float epsilon;
};

// N values of the gain from channel c on, which stay in the cache of the multiprocessor; ones where there is none.
template <typename T, int N>
__device__ __forceinline__ packed<T, N> gain_at(const T *gain, int c, int channels) {
  packed<T, N> by;
  if (gain != nullptr && c < channels) return load_packed<T, N>(gain + c);
#pragma unroll
  for (int k = 0; k < N; k++) by.values[k] = from_float<T>(1.0f);
  return by;
}

// Both gradients at once, x and dy read once: a team of threads, a warp or a part of one, has R rows at a time and goes
// from one end to the other, so that each thread keeps sums of its own channels: accesses i, i + TEAM, .. of them V. In
// the end a block adds those of its warps, in their order. partial[block][2][channels].
template <typename T, int TEAM, int V, int R, bool RMS>
__global__ void __launch_bounds__(BOTH_THREADS, 4)
    both_gradients(row_job job, const T *x, const T *gain, const float *statistics, const T *dy, bool accumulate, T *dx,
                   float *partial) {
  constexpr int N = pack<T>::count, TEAMS = BOTH_THREADS / TEAM, WARPS = BOTH_THREADS / 32;
  extern __shared__ float4 kept[];
  float *const of_warps = reinterpret_cast<float *>(kept); /* [WARPS][2][channels] */
  const int first = threadIdx.x % TEAM, packs = job.channels / N;
  const int64_t step = (int64_t)gridDim.x * TEAMS;
  const float share = 1.0f / (float)job.channels;
  float s1[V][N] = {}, s2[V][N] = {};
  /* all threads of a block go round equally often, as sums over teams need it */
  for (int64_t from = (int64_t)blockIdx.x * TEAMS; from < job.rows; from += R * step) {
    const int64_t row = from + threadIdx.x / TEAM;
    packed<T, N> u[R][V], w[R][V];
    float mean[R] = {}, rstd[R] = {};
#pragma unroll
    for (int r = 0; r < R; r++) {
      const bool there = row + r * step < job.rows;
      const int64_t at = (row + r * step) * job.channels;
#pragma unroll
      for (int v = 0; v < V; v++) {
        const bool mine = there && first + v * TEAM < packs;
        u[r][v] = mine ? load_packed_last<T, N>(x + at + (first + v * TEAM) * N) : zero_packed<T, N>();
        w[r][v] = mine ? load_packed_last<T, N>(dy + at + (first + v * TEAM) * N) : zero_packed<T, N>();
      }
      if (there) load_statistics<RMS>(statistics, row + r * step, mean[r], rstd[r]);
    }
    float g_mean[R] = {}, gx_mean[R] = {};
#pragma unroll
    for (int v = 0; v < V; v++) {
      const packed<T, N> by = gain_at<T, N>(gain, (first + v * TEAM) * N, job.channels);
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int k = 0; k < N; k++) {
          const float d = to_float<T>(w[r][v].values[k]), xh = (to_float<T>(u[r][v].values[k]) - mean[r]) * rstd[r];
          const float g = d * to_float<T>(by.values[k]);
          if (!RMS) s1[v][k] += d;
          s2[v][k] = fmaf(d, xh, s2[v][k]);
          if (!RMS) g_mean[r] += g;
          gx_mean[r] = fmaf(g, xh, gx_mean[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (!RMS) g_mean[r] = team_sum<TEAM>(g_mean[r], nullptr) * share;
      gx_mean[r] = team_sum<TEAM>(gx_mean[r], nullptr) * share;
      stay_packed(u[r]);
      stay_packed(w[r]);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (row + r * step >= job.rows) break;
      T *const to = dx + (row + r * step) * job.channels;
#pragma unroll
      for (int v = 0; v < V; v++) {
        const int c = (first + v * TEAM) * N;
        if (c >= job.channels) break;
        const packed<T, N> by = gain_at<T, N>(gain, c, job.channels);
        packed<T, N> old = zero_packed<T, N>();
        if (accumulate) old = load_packed<T, N>(to + c);
        float out[N];
#pragma unroll
        for (int k = 0; k < N; k++) {
          const float d = to_float<T>(w[r][v].values[k]), xh = (to_float<T>(u[r][v].values[k]) - mean[r]) * rstd[r];
          out[k] = rstd[r] * (d * to_float<T>(by.values[k]) - g_mean[r] - xh * gx_mean[r]);
          if (accumulate) out[k] += to_float<T>(old.values[k]);
        }
        store_packed<T, N>(to + c, out);
      }
    }
  }
  float *const of_mine = of_warps + threadIdx.x / 32 * 2 * job.channels;
#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int offset = TEAM; offset < 32; offset *= 2)
#pragma unroll
      for (int k = 0; k < N; k++) {
        if (!RMS) s1[v][k] += __shfl_xor_sync(0xffffffffu, s1[v][k], offset);
        s2[v][k] += __shfl_xor_sync(0xffffffffu, s2[v][k], offset);
      }
    if (threadIdx.x % 32 >= TEAM || first + v * TEAM >= packs) continue;
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const int c = (first + v * TEAM) * N + k;
      *reinterpret_cast<float4 *>(of_mine + c) = make_float4(s1[v][k], s1[v][k + 1], s1[v][k + 2], s1[v][k + 3]);
      *reinterpret_cast<float4 *>(of_mine + job.channels + c) =
          make_float4(s2[v][k], s2[v][k + 1], s2[v][k + 2], s2[v][k + 3]);
    }
  }
  __syncthreads();
  for (int i = (RMS ? job.channels : 0) + (int)threadIdx.x; i < 2 * job.channels; i += BOTH_THREADS) {
    float sum = of_warps[i];
#pragma unroll
    for (int other = 1; other < WARPS; other++) sum += of_warps[other * 2 * job.channels + i];
    partial[(int64_t)blockIdx.x * 2 * job.channels + i] = sum;
  }
}

// Of longer rows: a block has rows blockIdx.x, + gridDim.x, .., R at a time, and each of its threads one access of
// every row.
template <typename T, int MOST, int R, bool RMS>
__global__ void __launch_bounds__(MOST)
    both_gradients_long(row_job job, const T *x, const T *gain, const float *statistics, const T *dy, bool accumulate,
                        T *dx, float *partial) {
  constexpr int N = pack<T>::count;
  __shared__ float shared[2][MOST / 32][2 * R];  // in turns: a row's sums are read while the next row's are written
  const int c = (int)threadIdx.x * N, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const bool mine = c < job.channels;
  const float share = 1.0f / (float)job.channels;
  packed<T, N> by = zero_packed<T, N>();
  if (mine && gain != nullptr) by = load_packed<T, N>(gain + c);
  float s1[N] = {}, s2[N] = {};
  int side = 0;
  for (int64_t from = blockIdx.x; from < job.rows; from += (int64_t)R * gridDim.x, side ^= 1) {
    packed<T, N> u[R], w[R];
    float mean[R] = {}, rstd[R] = {}, sums[2 * R] = {};
#pragma unroll
    for (int r = 0; r < R; r++) {
      const int64_t row = from + (int64_t)r * gridDim.x;
      const bool there = row < job.rows;
      u[r] = there && mine ? load_packed_last<T, N>(x + row * job.channels + c) : zero_packed<T, N>();
      w[r] = there && mine ? load_packed_last<T, N>(dy + row * job.channels + c) : zero_packed<T, N>();
      if (there) load_statistics<RMS>(statistics, row, mean[r], rstd[r]);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float d = to_float<T>(w[r].values[k]), xh = (to_float<T>(u[r].values[k]) - mean[r]) * rstd[r];
        const float g = gain != nullptr ? d * to_float<T>(by.values[k]) : d;
        if (!RMS) s1[k] += d;
        s2[k] = fmaf(d, xh, s2[k]);
        if (!RMS) sums[2 * r] += g;
        sums[2 * r + 1] = fmaf(g, xh, sums[2 * r + 1]);
      }
#pragma unroll
    for (int i = RMS; i < 2 * R; i += 1 + RMS) sums[i] = warp_sum(sums[i]);
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int i = RMS; i < 2 * R; i += 1 + RMS) shared[side][warp][i] = sums[i];
    __syncthreads();
    stay_packed(u);
    stay_packed(w);
#pragma unroll
    for (int r = 0; r < R; r++) {
      const int64_t at = (from + (int64_t)r * gridDim.x) * job.channels + c;
      if (from + (int64_t)r * gridDim.x >= job.rows || !mine) break;
      packed<T, N> old = zero_packed<T, N>();
      if (accumulate) old = load_packed<T, N>(dx + at);
      float g_mean = 0, gx_mean = 0;
      for (int i = 0; i < warps; i++) {
        if (!RMS) g_mean += shared[side][i][2 * r];
        gx_mean += shared[side][i][2 * r + 1];
      }
      g_mean *= share;
      gx_mean *= share;
      float out[N];
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float d = to_float<T>(w[r].values[k]), xh = (to_float<T>(u[r].values[k]) - mean[r]) * rstd[r];
        const float g = gain != nullptr ? d * to_float<T>(by.values[k]) : d;
        out[k] = rstd[r] * (g - g_mean - xh * gx_mean);
        if (accumulate) out[k] += to_float<T>(old.values[k]);
      }
      store_packed<T, N>(dx + at, out);
    }
  }
  if (!mine) return;
  float *to = partial + (int64_t)blockIdx.x * 2 * job.channels + c;
#pragma unroll
  for (int k = 0; k < N; k++) {
    if (!RMS) to[k] = s1[k];
    to[job.channels + k] = s2[k];
  }
}

}  // namespace
}  // namespace kern
#endif
