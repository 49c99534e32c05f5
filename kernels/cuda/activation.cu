// Activations, plain and gated, and sums of two tensors: one pass over memory each. A gated activation's gradient can
// form its sums over rows on the way.
#include "kernels/cuda/products.h"
#include "kernels/cuda/stream.cuh"

namespace kern {
namespace {

struct curve {
  float value, slope;
};

// With bf16 the fast forms are used: their error of some 1e-6 is far below the rounding of 2e-3 that follows.
__device__ __forceinline__ float fast_power_of_2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
__device__ __forceinline__ float fast_reciprocal(float x) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}
template <bool FAST>
__device__ __forceinline__ float sigmoid(float x) {
  return FAST ? fast_reciprocal(1.0f + fast_power_of_2(-1.44269504f * x)) : 1.0f / (1.0f + expf(-x));
}

struct silu {
  template <bool FAST>
  static __device__ __forceinline__ curve at(float x) {
    const float s = sigmoid<FAST>(x);
    return {x * s, s * (1.0f + x * (1.0f - s))};
  }
};

struct gelu {
  template <bool FAST>
  static __device__ __forceinline__ curve at(float x) {
    if constexpr (FAST) {  // Abramowitz & Stegun, "Handbook of mathematical functions", 7.1.26, as on the CPU
      const float e = fast_power_of_2((-0.5f * 1.44269504f) * (x * x));
      const float t = fast_reciprocal(1.0f + (0.3275911f * 0.707106781f) * fabsf(x));
      float p = 0.5f * 1.061405429f;
      p = p * t - 0.5f * 1.453152027f;
      p = p * t + 0.5f * 1.421413741f;
      p = p * t - 0.5f * 0.284496736f;
      p = p * t + 0.5f * 0.254829592f;
      const float tail = p * t * e;  // Phi(-|x|)
      return {fmaxf(x, 0.0f) - fabsf(x) * tail, (x > 0.0f ? 1.0f - tail : tail) + x * (0.39894228f * e)};
    } else {
      const float phi = 0.5f * erfcf(-0.707106781f * x);
      return {x * phi, phi + x * (0.39894228f * expf(-0.5f * x * x))};
    }
  }
};

// 0.5 (1 + tanh u) = sigmoid(2 u)
struct gelu_tanh {
  template <bool FAST>
  static __device__ __forceinline__ curve at(float x) {
    constexpr float twice = 2.0f * 0.797884561f, cubic = 0.044715f;
    const float s = sigmoid<FAST>(twice * (x + cubic * x * x * x));
    return {x * s, s + x * s * (1.0f - s) * twice * (1.0f + 3.0f * cubic * x * x)};
  }
};

template <typename T>
constexpr bool is_fast = sizeof(T) == 2;

template <typename F>
void with_kind(kern_activation kind, F f) {
  if (kind == KERN_SILU)
    f(silu());
  else if (kind == KERN_GELU)
    f(gelu());
  else
    f(gelu_tanh());
}
template <typename F>
void with_kind(kern_gated kind, F f) {
  if (kind == KERN_GEGLU)
    f(gelu());
  else
    f(silu());
}

template <typename T, int N, typename Curve>
struct forward_job {
  static constexpr int unroll = 4;
  struct item {
    packed<T, N> x;
  };
  const T *x;
  T *y;
  __device__ __forceinline__ item load(int64_t i) const { return {load_packed<N>(x + i * N)}; }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float v[N];
    unpack(from.x, v);
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = Curve::template at<is_fast<T>>(v[k]).value;
    store_rounded<N>(y + i * N, v);
  }
};

template <typename T, int N, typename Curve>
struct backward_job {
  static constexpr int unroll = 2;
  struct item {
    packed<T, N> x, dy, old;
  };
  const T *x, *dy;
  T *dx;
  bool accumulate;
  __device__ __forceinline__ item load(int64_t i) const {
    item to;
    to.x = load_packed<N>(x + i * N);
    to.dy = load_packed<N>(dy + i * N);
    if (accumulate) to.old = load_packed<N>(dx + i * N);
    return to;
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float v[N], d[N];
    unpack(from.x, v);
    unpack(from.dy, d);
#pragma unroll
    for (int k = 0; k < N; k++) d[k] *= Curve::template at<is_fast<T>>(v[k]).slope;
    if (accumulate) {
      unpack(from.old, v);
#pragma unroll
      for (int k = 0; k < N; k++) d[k] += v[k];
    }
    store_rounded<N>(dx + i * N, d);
  }
};

// Index i is pack i of y[rows, channels]; x has [first, gate] in a row.
template <typename T, int N, typename Curve>
struct gated_forward_job {
  static constexpr int unroll = 2;
  struct item {
    packed<T, N> first, gate;
  };
  const T *x;
  T *y;
  int64_t channels;
  divider packs_a_row;
  __device__ __forceinline__ item load(int64_t i) const {
    const T *from = x + (i + packs_a_row.divide(i) * packs_a_row.by) * N;
    return {load_packed<N>(from), load_packed<N>(from + channels)};
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float first[N], gate[N];
    unpack(from.first, first);
    unpack(from.gate, gate);
#pragma unroll
    for (int k = 0; k < N; k++) first[k] *= Curve::template at<is_fast<T>>(gate[k]).value;
    store_rounded<N>(y + i * N, first);
  }
};

// BOTH: y, too, which forward made.
template <typename T, int N, typename Curve, bool BOTH>
struct gated_backward_job {
  static constexpr int unroll = 2;
  struct item {
    packed<T, N> first, gate, dy, old_first, old_gate;
    int64_t at;
  };
  const T *x, *dy;
  T *dx, *y;
  int64_t channels;
  divider packs_a_row;
  bool accumulate;
  __device__ __forceinline__ item load(int64_t i) const { return load_of(packs_a_row.divide(i), i, accumulate); }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float sums[2][N] = {};
    store_and_sum(i, from.at, from, accumulate, sums);
  }
  __device__ __forceinline__ item load_of(int64_t row, int64_t i, bool add) const {
    item to;
    to.at = (i + row * packs_a_row.by) * N;
    to.first = load_packed<N>(x + to.at);
    to.gate = load_packed<N>(x + to.at + channels);
    to.dy = load_packed<N>(dy + i * N);
    if (add) {
      to.old_first = load_packed<N>(dx + to.at);
      to.old_gate = load_packed<N>(dx + to.at + channels);
    }
    return to;
  }
  __device__ __forceinline__ void store_and_sum(int64_t i, int64_t at, const item &from, bool add,
                                                float (&sums)[2][N]) const {
    float first[N], gate[N], d[N], again[N];
    unpack(from.first, first);
    unpack(from.gate, gate);
    unpack(from.dy, d);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const curve c = Curve::template at<is_fast<T>>(gate[k]);
      if (BOTH) again[k] = first[k] * c.value;
      gate[k] = d[k] * first[k] * c.slope;
      first[k] = d[k] * c.value;
      sums[0][k] += first[k];
      sums[1][k] += gate[k];
    }
    if (BOTH) store_rounded<N>(y + i * N, again);
    if (add) {
      unpack(from.old_first, d);
#pragma unroll
      for (int k = 0; k < N; k++) first[k] += d[k];
      unpack(from.old_gate, d);
#pragma unroll
      for (int k = 0; k < N; k++) gate[k] += d[k];
    }
    store_rounded<N>(dx + at, first);
    store_rounded<N>(dx + at + channels, gate);
  }
};

// Blocks that form sums over rows: each has `width` packs of columns, times as many rows as there are threads, of a
// slab of the rows; the same on every device.
struct slabs_shape {
  int64_t slabs, slab_rows, strips;
  int width;
};
constexpr int SLAB_THREADS = 256, SLAB_BLOCKS = 3;  // of a multiprocessor at a time
slabs_shape slabs_shape_of(int64_t rows, int64_t channels, int n) {
  constexpr int64_t BLOCKS = 3 * 132 * SLAB_BLOCKS, ROWS = 32, WIDTH = 64; /* three rounds on a large device */
  const int64_t packs = divide_up(channels, n), strips = divide_up(packs, WIDTH);
  const int64_t most = strips < BLOCKS ? BLOCKS / strips : 1, parts = divide_up(rows, ROWS);
  const int64_t slab_rows = divide_up(rows, parts < most ? parts : most);
  return {divide_up(rows, slab_rows), slab_rows, strips, static_cast<int>(divide_up(packs, strips))};
}

// gated_backward_job's work, and partial[slab][2 channels]: sums of dx over the slab's rows.
template <typename T, int N, typename Curve, bool BOTH>
__global__ void __launch_bounds__(SLAB_THREADS, SLAB_BLOCKS)
    gated_slabs(int64_t rows, int64_t slab_rows, int width, const gated_backward_job<T, N, Curve, BOTH> job,
                float *partial) {
  using item = typename gated_backward_job<T, N, Curve, BOTH>::item;
  constexpr int PITCH = SLAB_THREADS + 32 / N, UNROLL = 2;  // a pitch so that a warp reads from all banks
  __shared__ float shared[2 * N * PITCH];
  const int lanes = SLAB_THREADS / width, lane = threadIdx.x / width;
  const int64_t first_pack = static_cast<int64_t>(blockIdx.x) * width, pack = first_pack + threadIdx.x % width;
  const int64_t packs = job.packs_a_row.by;
  float sums[2][N] = {};
  if (lane < lanes && pack < packs) {
    const int64_t first = blockIdx.y * slab_rows, end = first + slab_rows < rows ? first + slab_rows : rows;
    for (int64_t row = first + lane; row < end; row += UNROLL * lanes) {
      item items[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const int64_t r = row + u * lanes;
        if (r < end) items[u] = job.load_of(r, r * packs + pack, false);
      }
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const int64_t r = row + u * lanes;
        if (r < end) job.store_and_sum(r * packs + pack, (2 * r * packs + pack) * N, items[u], false, sums);
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; half++)
#pragma unroll
    for (int k = 0; k < N; k++) shared[(half * N + k) * PITCH + threadIdx.x] = sums[half][k];
  __syncthreads();
  float *const to = partial + blockIdx.y * 2 * job.channels + first_pack * N;
  for (int half = 0; half < 2; half++)
    for (int c = threadIdx.x; c < width * N && first_pack * N + c < job.channels; c += SLAB_THREADS) {
      float total = 0;
      for (int l = 0; l < lanes; l++) total += shared[(half * N + c % N) * PITCH + l * width + c / N];
      to[half * job.channels + c] = total;
    }
}

template <typename T, int N>
struct add_job {
  static constexpr int unroll = 4;
  struct item {
    packed<T, N> x, y;
  };
  const T *x, *y;
  T *z;
  __device__ __forceinline__ item load(int64_t i) const {
    return {load_packed<N>(x + i * N), load_packed<N>(y + i * N)};
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float a[N], b[N];
    unpack(from.x, a);
    unpack(from.y, b);
#pragma unroll
    for (int k = 0; k < N; k++) a[k] += b[k];
    store_rounded<N>(z + i * N, a);
  }
};

}  // namespace
}  // namespace kern

using namespace kern;

void kern_cuda_activation_forward(kern_cuda *context, kern_activation kind, int64_t n, const void *x, void *y) {
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    with_kind(kind, [&](auto of) {
      stream_values<pack<T>::count>(context, "activation forward", n, is_aligned16(x) && is_aligned16(y),
                                    [&](auto w, int64_t at) {
                                      return forward_job<T, decltype(w)::value, decltype(of)>{
                                          static_cast<const T *>(x) + at, static_cast<T *>(y) + at};
                                    });
    });
  });
}

void kern_cuda_activation_backward(kern_cuda *context, kern_activation kind, int64_t n, const void *x, const void *dy,
                                   void *dx, bool accumulate) {
  const bool aligned = is_aligned16(x) && is_aligned16(dy) && is_aligned16(dx);
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    with_kind(kind, [&](auto of) {
      stream_values<pack<T>::count>(context, "activation backward", n, aligned, [&](auto w, int64_t at) {
        return backward_job<T, decltype(w)::value, decltype(of)>{
            static_cast<const T *>(x) + at, static_cast<const T *>(dy) + at, static_cast<T *>(dx) + at, accumulate};
      });
    });
  });
}

void kern_cuda_gated_forward(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                             void *y) {
  if (rows <= 0 || channels <= 0) return;
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    const bool aligned = is_aligned16(x) && is_aligned16(y) && channels % N == 0;
    with_kind(kind, [&](auto of) {
      stream_rows<N>(context, "gated forward", rows * channels, aligned, [&](auto w) {
        constexpr int M = decltype(w)::value;
        return gated_forward_job<T, M, decltype(of)>{static_cast<const T *>(x), static_cast<T *>(y), channels,
                                                     divider_of(channels / M)};
      });
    });
  });
}

template <bool BOTH>
static void gated_backward(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                           const void *dy, void *dx, bool accumulate, void *y) {
  if (rows <= 0 || channels <= 0) return;
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    const bool aligned =
        is_aligned16(x) && is_aligned16(dy) && is_aligned16(dx) && is_aligned16(y) && channels % N == 0;
    with_kind(kind, [&](auto of) {
      stream_rows<N>(context, "gated backward", rows * channels, aligned, [&](auto w) {
        constexpr int M = decltype(w)::value;
        return gated_backward_job<T, M, decltype(of), BOTH>{static_cast<const T *>(x),
                                                            static_cast<const T *>(dy),
                                                            static_cast<T *>(dx),
                                                            static_cast<T *>(y),
                                                            channels,
                                                            divider_of(channels / M),
                                                            accumulate};
      });
    });
  });
}

void kern_cuda_gated_backward(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                              const void *dy, void *dx, bool accumulate) {
  gated_backward<false>(context, kind, rows, channels, x, dy, dx, accumulate, nullptr);
}

void kern_cuda_gated_both(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                          const void *dy, void *dx, void *y) {
  gated_backward<true>(context, kind, rows, channels, x, dy, dx, false, y);
}

size_t kern_cuda_gated_bias_workspace(int64_t rows, int64_t channels, kern_dtype dtype) {
  if (rows <= 0 || channels <= 0) return 0;
  const int64_t one = slabs_shape_of(rows, channels, 1).slabs;
  const int64_t wide = slabs_shape_of(rows, channels, static_cast<int>(16 / kern_dtype_bytes(dtype))).slabs;
  return static_cast<size_t>((one > wide ? one : wide) * 2 * channels) * sizeof(float);
}

void kern_cuda_gated_bias(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                          const void *dy, void *dx, void *y, void *dbias) {
  if (kern_cuda_failed(context) || rows <= 0 || channels <= 0) return;
  const size_t bytes = kern_cuda_gated_bias_workspace(rows, channels, context->options.dtype);
  float *const partial = static_cast<float *>(workspace_of(context, bytes, "gated backward and bias"));
  if (partial == nullptr) return;
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    const bool aligned = is_aligned16(x) && is_aligned16(dy) && is_aligned16(dx) && is_aligned16(y);
    with_kind(kind, [&](auto of) {
      const auto launch = [&](auto w, auto both) {
        constexpr int N = decltype(w)::value;
        constexpr bool BOTH = decltype(both)::value;
        const slabs_shape s = slabs_shape_of(rows, channels, N);
        const gated_backward_job<T, N, decltype(of), BOTH> job = {static_cast<const T *>(x),
                                                                  static_cast<const T *>(dy),
                                                                  static_cast<T *>(dx),
                                                                  static_cast<T *>(y),
                                                                  channels,
                                                                  divider_of(channels / N),
                                                                  false};
        gated_slabs<<<dim3(static_cast<unsigned>(s.strips), static_cast<unsigned>(s.slabs)), SLAB_THREADS, 0,
                      context->stream>>>(rows, s.slab_rows, s.width, job, partial);
        launched(context, "gated backward and bias");
        kern_cuda_sum_slabs(context, s.slabs, 2 * channels, partial, context->options.gradient, !context->overwrites,
                            dbias);
      };
      constexpr int WIDE = pack<T>::count;
      if (aligned && channels % WIDE == 0 && y != nullptr)
        launch(width<WIDE>(), std::true_type());
      else if (aligned && channels % WIDE == 0)
        launch(width<WIDE>(), std::false_type());
      else if (y != nullptr)
        launch(width<1>(), std::true_type());
      else
        launch(width<1>(), std::false_type());
    });
  });
}

void kern_cuda_add(kern_cuda *context, int64_t n, const void *x, const void *y, void *z) {
  const bool aligned = is_aligned16(x) && is_aligned16(y) && is_aligned16(z);
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    stream_values<pack<T>::count>(context, "add", n, aligned, [&](auto w, int64_t at) {
      return add_job<T, decltype(w)::value>{static_cast<const T *>(x) + at, static_cast<const T *>(y) + at,
                                            static_cast<T *>(z) + at};
    });
  });
}
