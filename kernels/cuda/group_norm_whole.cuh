// Group norm of few positions: a block has a sample's group to itself and keeps it, in registers or in shared memory,
// so that x and dy are read once and nothing is launched but this. A thread stays with N of the group's channels,
// `columns` times N, and takes every `lanes`th position.
#ifndef DP_KERNELS_CUDA_GROUP_NORM_WHOLE_CUH
#define DP_KERNELS_CUDA_GROUP_NORM_WHOLE_CUH

#include "kernels/cuda/norm.cuh"

namespace kern {
namespace {

// 1 / (1 + exp(-z)); what is too small for a normal number is 0.
__device__ __forceinline__ float sigmoid(float z) {
  float power, s;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(z * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1.0f + power));
  return s;
}
__device__ __forceinline__ float silu(float z) { return z * sigmoid(z); }
__device__ __forceinline__ float silu_slope(float z) {
  const float s = sigmoid(z);
  return s * (1.0f + z * (1.0f - s));
}

// What a thread of such a block has.
template <int N>
struct whole_part {
  int channel; /* the first of its N */
  int rows;    /* 0: it only helps with sums */
  int64_t start, step;
  __device__ whole_part(int positions, int channels, int groups, int columns) {
    const int lane = threadIdx.x / columns, lanes = blockDim.x / columns;
    channel = (int)(blockIdx.x % groups) * columns * N + threadIdx.x % columns * N;
    rows = lane < lanes && lane < positions ? (positions - 1 - lane) / lanes + 1 : 0;
    start = ((int64_t)(blockIdx.x / groups) * positions + lane) * channels + channel;
    step = (int64_t)lanes * channels;
  }
};

template <typename T, int N, int V, bool SILU>
__global__ void __launch_bounds__(1024)
    whole_forward(int positions, int channels, int groups, int columns, float epsilon, const T *x, const T *gain,
                  const T *offset, T *y, float *statistics) {
  __shared__ float shared[32];
  const whole_part<N> p(positions, channels, groups, columns);
  packed<T, N> u[V];
#pragma unroll
  for (int v = 0; v < V; v++)
    u[v] = v < p.rows ? load_packed_last<T, N>(x + p.start + v * p.step) : zero_packed<T, N>();
  float sum = 0;
#pragma unroll
  for (int v = 0; v < V; v++) {
    float part = 0;
#pragma unroll
    for (int k = 0; k < N; k++) part += to_float<T>(u[v].values[k]);
    sum += part;
  }
  const float share = 1.0f / ((float)positions * (float)(columns * N)), near = block_sum(sum, shared) * share;
  stay_packed(u);
  float rest = 0, about = 0; /* about what is nearly the mean, and how far from it that was */
#pragma unroll
  for (int v = 0; v < V; v++)
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float d = v < p.rows ? to_float<T>(u[v].values[k]) - near : 0.0f;
      rest += d;
      about = fmaf(d, d, about);
    }
  stay_packed(u);
  rest = block_sum(rest, shared) * share;
  about = block_sum(about, shared) * share - rest * rest;
  const float mean = near + rest, rstd = 1.0f / sqrtf((about < 0.0f ? 0.0f : about) + epsilon);
  if (threadIdx.x == 0) {
    statistics[2 * blockIdx.x] = mean;
    statistics[2 * blockIdx.x + 1] = rstd;
  }
  if (p.rows == 0) return;
  float factor[N], shift[N];
#pragma unroll
  for (int k = 0; k < N; k++) {
    factor[k] = rstd * (gain != nullptr ? to_float<T>(gain[p.channel + k]) : 1.0f);
    shift[k] = offset != nullptr ? to_float<T>(offset[p.channel + k]) : 0.0f;
  }
#pragma unroll
  for (int v = 0; v < V; v++) {
    if (v >= p.rows) break;
    float out[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float z = fmaf(to_float<T>(u[v].values[k]) - mean, factor[k], shift[k]);
      out[k] = SILU ? silu(z) : z;
    }
    store_packed<T, N>(y + p.start + v * p.step, out);
  }
}

// dx as input_gradient's; dynamic shared memory holds x and dy: each thread its own [turns][2].
template <typename T, int N, bool SILU>
__global__ void __launch_bounds__(512)
    whole_gradient(int positions, int channels, int groups, int columns, const T *x, const T *gain, const T *offset,
                   const float *statistics, const T *dy, T *dx, bool accumulate) {
  extern __shared__ uint4 kept[];
  __shared__ float shared[32];
  constexpr int R = 4;
  const whole_part<N> p(positions, channels, groups, columns);
  packed<T, N> *const own = reinterpret_cast<packed<T, N> *>(kept) + threadIdx.x;
  const float mean = statistics[2 * blockIdx.x], rstd = statistics[2 * blockIdx.x + 1];
  float by[N] = {}, shift[N] = {};
  if (p.rows > 0)
#pragma unroll
    for (int k = 0; k < N; k++) {
      by[k] = gain != nullptr ? to_float<T>(gain[p.channel + k]) : 1.0f;
      if (SILU && offset != nullptr) shift[k] = to_float<T>(offset[p.channel + k]);
    }
  float a = 0, b = 0;
  for (int i = 0; i < p.rows; i += R) {
    packed<T, N> u[R], v[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
      const bool there = i + r < p.rows;
      u[r] = there ? load_packed_last<T, N>(x + p.start + (i + r) * p.step) : zero_packed<T, N>();
      v[r] = there ? load_packed_last<T, N>(dy + p.start + (i + r) * p.step) : zero_packed<T, N>();
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (i + r < p.rows) {
        own[2 * (i + r) * blockDim.x] = u[r];
        own[(2 * (i + r) + 1) * blockDim.x] = v[r];
      }
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float value = to_float<T>(u[r].values[k]) - mean;
        float d = to_float<T>(v[r].values[k]) * by[k];
        if (SILU) d *= silu_slope(fmaf(value, rstd * by[k], shift[k]));
        a += d;
        b = fmaf(d, value, b);
      }
    }
  }
  const float share = 1.0f / ((float)positions * (float)(columns * N));
  const float m1 = block_sum(a, shared) * share, m2 = block_sum(b, shared) * rstd * share;
  const float of_x = -rstd * rstd * m2, constant = -rstd * m1;
  for (int i = 0; i < p.rows; i++) {
    const packed<T, N> u = own[2 * i * blockDim.x], v = own[(2 * i + 1) * blockDim.x];
    packed<T, N> old = zero_packed<T, N>();
    if (accumulate) old = load_packed<T, N>(dx + p.start + i * p.step);
    float out[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float value = to_float<T>(u.values[k]) - mean;
      float d = to_float<T>(v.values[k]);
      if (SILU) d *= silu_slope(fmaf(value, rstd * by[k], shift[k]));
      out[k] = fmaf(d, rstd * by[k], fmaf(value, of_x, constant));
      if (accumulate) out[k] += to_float<T>(old.values[k]);
    }
    store_packed<T, N>(dx + p.start + i * p.step, out);
  }
}

// The fewest threads of which none takes more than `most` positions; 0: too many even for 1024, or a row's piece of a
// group is so short that parts of memory would be fetched for nothing.
inline int whole_threads(const kern_group_norm *size, int bytes, int n, int64_t most) {
  const int64_t each = size->channels / size->groups, columns = each / n;
  if (each % n != 0 || each * bytes < 32) return 0;
  for (int threads = 128; threads <= 1024; threads *= 2)
    if (columns <= threads && divide_up(size->positions, threads / columns) <= most) return threads;
  return 0;
}

// False: not for this size.
template <typename T, int N>
bool run_whole_forward(kern_cuda *c, const kern_group_norm *size, const void *x, const void *gain, const void *offset,
                       bool silu, void *y, float *statistics) {
  constexpr int held = 128 / (N * (int)sizeof(T)); /* accesses of a thread: 32 registers of them */
  const int threads = whole_threads(size, sizeof(T), N, held);
  if (threads == 0) return false;
  with_flag(silu, [&](auto of_silu) {
    const auto kernel = whole_forward<T, N, held, decltype(of_silu)::value>;
    kernel<<<(unsigned)(size->batch * size->groups), threads, 0, c->stream>>>(
        (int)size->positions, (int)size->channels, (int)size->groups, (int)(size->channels / size->groups / N),
        size->epsilon, static_cast<const T *>(x), static_cast<const T *>(gain), static_cast<const T *>(offset),
        static_cast<T *>(y), statistics);
  });
  launched(c, "group norm");
  return true;
}

// Likewise.
template <typename T, int N>
bool run_whole_gradient(kern_cuda *c, const kern_group_norm *size, const void *x, const void *gain, const void *offset,
                        const float *statistics, const void *dy, bool silu, void *dx, bool accumulate) {
  const int64_t columns = size->channels / size->groups / N;
  const int few = whole_threads(size, sizeof(T), N, 8);
  const int threads = few == 0 || few > 512 ? 512 : few;
  if (whole_threads(size, sizeof(T), N, INT64_MAX) == 0 || columns > threads) return false;
  const int64_t bytes = divide_up(size->positions, threads / columns) * 2 * threads * N * (int64_t)sizeof(T);
  const int most = (int)shared_bytes(c) - 1024;
  if (bytes > most) return false;
  with_flag(silu, [&](auto of_silu) {
    const auto kernel = whole_gradient<T, N, decltype(of_silu)::value>;
    allow_shared(c, kernel, most);
    kernel<<<(unsigned)(size->batch * size->groups), threads, (size_t)bytes, c->stream>>>(
        (int)size->positions, (int)size->channels, (int)size->groups, (int)columns, static_cast<const T *>(x),
        static_cast<const T *>(gain), static_cast<const T *>(offset), statistics, static_cast<const T *>(dy),
        static_cast<T *>(dx), accumulate);
  });
  launched(c, "group norm's gradient");
  return true;
}

}  // namespace
}  // namespace kern
#endif
