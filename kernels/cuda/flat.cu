// The loss, and flat arrays. Sums are of short runs in fp32, then in double: within a thread, over its
// block, over the blocks in order. How values are cut follows from their number alone.
#include "kernels/cuda/stream.cuh"

namespace kern {
namespace {

// Thread 0 gets the sum over the block; `shared` holds a double for each warp.
__device__ __forceinline__ double block_sum_double(double value, double *shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  const int warps = blockDim.x / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 1; i < warps; i++) value += shared[i];
  return value;
}

// ---- squares ----

constexpr int squares_unroll = 4;
constexpr int64_t most_squares_blocks = 8448; /* 64 for each of an H200's processors: no round is nearly empty */

int64_t squares_blocks(int64_t n) {
  const int64_t blocks = divide_up(n, stream_threads * squares_unroll * 8);
  return blocks < most_squares_blocks ? blocks : most_squares_blocks;
}

template <int N, typename T>
__device__ __forceinline__ float square_sum(const packed<T, N> &from) {
  float v[N], sum = 0;
  unpack(from, v);
#pragma unroll
  for (int k = 0; k < N; k++) sum += v[k] * v[k];
  return sum;
}

// Packs of N, and by the first threads the values that are left.
template <typename T, int N>
__global__ void __launch_bounds__(stream_threads) squares_kernel(const int64_t n, const T *x, double *partial) {
  __shared__ double shared[stream_threads / 32];
  const int64_t packs = n / N,
                first = static_cast<int64_t>(blockIdx.x) * (stream_threads * squares_unroll) + threadIdx.x;
  const int64_t step = static_cast<int64_t>(gridDim.x) * (stream_threads * squares_unroll);
  double sum = 0;
#pragma unroll 1
  for (int64_t at = first; at < packs; at += step) {
    packed<T, N> values[squares_unroll] = {};
#pragma unroll
    for (int u = 0; u < squares_unroll; u++)
      if (at + u * stream_threads < packs) values[u] = load_packed<N>(x + (at + u * stream_threads) * N);
    float run = 0;
#pragma unroll
    for (int u = 0; u < squares_unroll; u++) run += square_sum<N>(values[u]);
    sum += static_cast<double>(run);
  }
  const int64_t left = packs * N + threadIdx.x;
  if (blockIdx.x == 0 && left < n) {
    const float v = to_float<T>(x[left]);
    sum += static_cast<double>(v * v);
  }
  sum = block_sum_double(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

constexpr int join_threads = 1024;

__global__ void __launch_bounds__(join_threads) join_kernel(const int64_t count, const double *partial, double *sum) {
  __shared__ double shared[join_threads / 32];
  double value = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += join_threads) value += partial[i];
  value = block_sum_double(value, shared);
  if (threadIdx.x == 0) *sum = value;
}

// ---- loss ----

struct loss_cut {
  int64_t parts, values; /* parts of a sample, and values of one: a multiple of 8 */
};
loss_cut loss_cut_of(const kern_loss *s) {
  const int64_t most = 512, wanted = divide_up(s->n, 2048), parts = wanted < most ? wanted : most;
  loss_cut c = {0, divide_up(divide_up(s->n, parts), 8) * 8};
  c.parts = divide_up(s->n, c.values);
  return c;
}

template <typename T, int N>
__global__ void __launch_bounds__(stream_threads)
    loss_kernel(const int64_t n, const loss_cut cut, const T *prediction, const T *target, double *partial) {
  __shared__ double shared[stream_threads / 32];
  const int64_t sample = blockIdx.x / cut.parts, first = blockIdx.x % cut.parts * cut.values;
  const int64_t values = first + cut.values < n ? cut.values : n - first;
  const T *x = prediction + sample * n + first, *y = target + sample * n + first;
  double sum = 0;
#pragma unroll 2
  for (int64_t at = threadIdx.x * N; at < values; at += stream_threads * N) {
    float a[N], b[N], run = 0;
    unpack(load_packed<N>(x + at), a);
    unpack(load_packed<N>(y + at), b);
#pragma unroll
    for (int k = 0; k < N; k++) run += (a[k] - b[k]) * (a[k] - b[k]);
    sum += static_cast<double>(run);
  }
  sum = block_sum_double(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block: a warp for a sample at a time, then the samples in order.
__global__ void __launch_bounds__(stream_threads)
    loss_join_kernel(const int64_t batch, const double n, const double factor, const int64_t parts,
                     const double *partial, const float *weights, double *squares, double *sum) {
  const int lane = threadIdx.x % 32;
  for (int64_t b = threadIdx.x / 32; b < batch; b += stream_threads / 32) {
    double value = 0;
    for (int64_t p = lane; p < parts; p += 32) value += partial[b * parts + p];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
    if (lane == 0) squares[b] = value / n;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  double loss = 0;
  for (int64_t b = 0; b < batch; b++) loss += (weights == nullptr ? 1.0 : static_cast<double>(weights[b])) * squares[b];
  *sum += factor * loss;
}

template <typename T, int N>
struct loss_gradient_job {
  static constexpr int unroll = 2;
  struct item {
    packed<T, N> x, y;
    float factor;
  };
  const T *prediction, *target;
  const float *weights;
  T *gradient;
  double factor, n;
  divider packs_a_sample;
  __device__ __forceinline__ item load(int64_t i) const {
    const double weight = weights == nullptr ? 1.0 : static_cast<double>(weights[packs_a_sample.divide(i)]);
    return {load_packed<N>(prediction + i * N), load_packed<N>(target + i * N),
            static_cast<float>(2 * factor * weight / n)};
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float a[N], b[N];
    unpack(from.x, a);
    unpack(from.y, b);
#pragma unroll
    for (int k = 0; k < N; k++) a[k] = from.factor * (a[k] - b[k]);
    store_rounded<N>(gradient + i * N, a);
  }
};

// ---- copies ----

template <typename T, int N>
struct fill_job {
  static constexpr int unroll = 4;
  struct item {};
  T *x;
  float value;
  __device__ __forceinline__ item load(int64_t) const { return {}; }
  __device__ __forceinline__ void store(int64_t i, const item &) const {
    float v[N];
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = value;
    store_rounded<N>(x + i * N, v);
  }
};

template <typename From, typename To, int N>
struct convert_job {
  static constexpr int unroll = 4;
  struct item {
    packed<From, N> x;
  };
  const From *x;
  To *y;
  __device__ __forceinline__ item load(int64_t i) const { return {load_packed<N>(x + i * N)}; }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    if constexpr (sizeof(From) == sizeof(To)) {
      store_packed<N>(y + i * N, from.x);
    } else {
      float v[N];
      unpack(from.x, v);
      store_rounded<N>(y + i * N, v);
    }
  }
};

template <typename T, int N>
struct axpy_job {
  static constexpr int unroll = 4;
  struct item {
    packed<T, N> x, y;
  };
  const T *x;
  T *y;
  float factor;
  __device__ __forceinline__ item load(int64_t i) const {
    return {load_packed<N>(x + i * N), load_packed<N>(static_cast<const T *>(y + i * N))};
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float a[N], b[N];
    unpack(from.x, a);
    unpack(from.y, b);
#pragma unroll
    for (int k = 0; k < N; k++) b[k] += factor * a[k];
    store_rounded<N>(y + i * N, b);
  }
};

// Infinity and NaN have all bits of the exponent.
__device__ __forceinline__ bool is_bad(unsigned word, float) { return (word & 0x7f800000u) == 0x7f800000u; }
__device__ __forceinline__ bool is_bad(unsigned word, bf16) {
  return (word & 0x7f800000u) == 0x7f800000u || (word & 0x7f80u) == 0x7f80u;
}

template <typename T, int N>
__global__ void __launch_bounds__(stream_threads) not_finite_kernel(const int64_t n, const T *x, uint32_t *flag) {
  constexpr int unroll = 4;
  const int64_t packs = n / N, step = static_cast<int64_t>(gridDim.x) * (stream_threads * unroll);
  bool bad = false;
#pragma unroll 1
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * (stream_threads * unroll) + threadIdx.x; at < packs;
       at += step) {
    packed<T, N> values[unroll] = {};
#pragma unroll
    for (int u = 0; u < unroll; u++)
      if (at + u * stream_threads < packs) values[u] = load_packed<N>(x + (at + u * stream_threads) * N);
#pragma unroll
    for (int u = 0; u < unroll; u++) {
      if constexpr (N == 1) {
        float v[1];
        unpack(values[u], v);
        bad |= !isfinite(v[0]);
      } else {
        const uint4 bits = values[u].bits;
        bad |= is_bad(bits.x, T()) | is_bad(bits.y, T()) | is_bad(bits.z, T()) | is_bad(bits.w, T());
      }
    }
  }
  const int64_t left = packs * N + threadIdx.x;
  if (blockIdx.x == 0 && left < n) bad |= !isfinite(to_float<T>(x[left]));
  if (__syncthreads_or(bad) && threadIdx.x == 0) atomicOr(flag, 1u);
}

template <typename From, typename To>
void convert(kern_cuda *context, const char *what, int64_t n, const void *x, void *y) {
  constexpr int N = pack<From>::count < pack<To>::count ? pack<From>::count : pack<To>::count;
  const bool aligned = is_aligned(x, N * sizeof(From)) && is_aligned(y, N * sizeof(To));
  stream_values<N>(context, what, n, aligned, [&](auto w, int64_t at) {
    return convert_job<From, To, decltype(w)::value>{static_cast<const From *>(x) + at, static_cast<To *>(y) + at};
  });
}

}  // namespace
}  // namespace kern

using namespace kern;

size_t kern_cuda_loss_workspace(const kern_loss *s) {
  if (s->batch <= 0 || s->n <= 0) return 0;
  return static_cast<size_t>(s->batch * loss_cut_of(s).parts) * sizeof(double);
}

void kern_cuda_loss_forward(kern_cuda *context, const kern_loss *s, const void *prediction, const void *target,
                            const float *weights, double *squares, double *sum) {
  if (s->batch <= 0 || s->n <= 0 || kern_cuda_failed(context)) return;
  auto *partial = static_cast<double *>(workspace_of(context, kern_cuda_loss_workspace(s), "loss forward"));
  if (partial == nullptr) return;
  const loss_cut cut = loss_cut_of(s);
  const unsigned blocks = static_cast<unsigned>(s->batch * cut.parts);
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    const T *x = static_cast<const T *>(prediction), *y = static_cast<const T *>(target);
    if (is_aligned16(x) && is_aligned16(y) && s->n % N == 0)
      loss_kernel<T, N><<<blocks, stream_threads, 0, context->stream>>>(s->n, cut, x, y, partial);
    else
      loss_kernel<T, 1><<<blocks, stream_threads, 0, context->stream>>>(s->n, cut, x, y, partial);
  });
  launched(context, "loss forward");
  loss_join_kernel<<<1, stream_threads, 0, context->stream>>>(s->batch, static_cast<double>(s->n), s->factor, cut.parts,
                                                              partial, weights, squares, sum);
  launched(context, "loss forward");
}

void kern_cuda_loss_backward(kern_cuda *context, const kern_loss *s, const void *prediction, const void *target,
                             const float *weights, void *dprediction) {
  if (s->batch <= 0 || s->n <= 0) return;
  const bool aligned = is_aligned16(prediction) && is_aligned16(target) && is_aligned16(dprediction);
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    stream_rows<N>(context, "loss backward", s->batch * s->n, aligned && s->n % N == 0, [&](auto w) {
      constexpr int M = decltype(w)::value;
      return loss_gradient_job<T, M>{static_cast<const T *>(prediction),
                                     static_cast<const T *>(target),
                                     weights,
                                     static_cast<T *>(dprediction),
                                     s->factor,
                                     static_cast<double>(s->n),
                                     divider_of(s->n / M)};
    });
  });
}

size_t kern_cuda_sum_squares_workspace(int64_t n) {
  return static_cast<size_t>(n > 0 ? squares_blocks(n) : 0) * sizeof(double);
}

void kern_cuda_sum_squares(kern_cuda *context, kern_dtype dtype, int64_t n, const void *x, double *sum) {
  if (kern_cuda_failed(context)) return;
  auto *partial = static_cast<double *>(workspace_of(context, kern_cuda_sum_squares_workspace(n), "sum of squares"));
  const int64_t blocks = n > 0 ? squares_blocks(n) : 0;
  if (kern_cuda_failed(context)) return;
  if (blocks > 0) {
    with_dtype(dtype, [&](auto value) {
      using T = decltype(value);
      const T *from = static_cast<const T *>(x);
      const unsigned grid = static_cast<unsigned>(blocks);
      if (is_aligned16(x))
        squares_kernel<T, pack<T>::count><<<grid, stream_threads, 0, context->stream>>>(n, from, partial);
      else
        squares_kernel<T, 1><<<grid, stream_threads, 0, context->stream>>>(n, from, partial);
    });
    launched(context, "sum of squares");
  }
  join_kernel<<<1, join_threads, 0, context->stream>>>(blocks, partial, sum);
  launched(context, "sum of squares");
}

void kern_cuda_fill(kern_cuda *context, kern_dtype dtype, int64_t n, float value, void *x) {
  with_dtype(dtype, [&](auto of) {
    using T = decltype(of);
    stream_values<pack<T>::count>(context, "fill", n, is_aligned16(x), [&](auto w, int64_t at) {
      return fill_job<T, decltype(w)::value>{static_cast<T *>(x) + at, value};
    });
  });
}

void kern_cuda_convert(kern_cuda *context, int64_t n, kern_dtype from, const void *x, kern_dtype to, void *y) {
  with_dtype(from, [&](auto source) {
    with_dtype(to, [&](auto target) { convert<decltype(source), decltype(target)>(context, "convert", n, x, y); });
  });
}

void kern_cuda_copy(kern_cuda *context, int64_t n, const void *x, void *y) {
  with_dtype(context->options.dtype,
             [&](auto value) { convert<decltype(value), decltype(value)>(context, "copy", n, x, y); });
}

void kern_cuda_axpy(kern_cuda *context, kern_dtype dtype, int64_t n, float factor, const void *x, void *y) {
  with_dtype(dtype, [&](auto value) {
    using T = decltype(value);
    stream_values<pack<T>::count>(context, "axpy", n, is_aligned16(x) && is_aligned16(y), [&](auto w, int64_t at) {
      return axpy_job<T, decltype(w)::value>{static_cast<const T *>(x) + at, static_cast<T *>(y) + at, factor};
    });
  });
}

void kern_cuda_find_not_finite(kern_cuda *context, int64_t n, const void *x, uint32_t *flag) {
  if (n <= 0 || kern_cuda_failed(context)) return;
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    const T *from = static_cast<const T *>(x);
    if (is_aligned16(x))
      not_finite_kernel<T, N>
          <<<stream_blocks(context, divide_up(n, stream_threads * 4 * N)), stream_threads, 0, context->stream>>>(
              n, from, flag);
    else
      not_finite_kernel<T, 1>
          <<<stream_blocks(context, divide_up(n, stream_threads * 4)), stream_threads, 0, context->stream>>>(n, from,
                                                                                                             flag);
  });
  launched(context, "find not finite");
}
