// Activations, plain and gated, and sums of two tensors: one pass over memory each. An activation's gradient can make
// the output again and form its own sums over rows on the way.
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

// BOTH: y, too, which forward made. dx may be dy.
template <typename T, int N, typename Curve, bool BOTH>
struct backward_job {
  static constexpr int unroll = 2;
  static constexpr int values = N, parts = 1, slab_unroll = 4;  // parts: of x for one of y; see backward_slabs
  struct item {
    packed<T, N> x, dy, old;
  };
  const T *x, *dy;
  T *dx, *y;
  bool accumulate;
  __device__ __forceinline__ item load(int64_t i) const { return load_of(i, i * N, accumulate); }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float sums[parts][N] = {};
    store_and_sum(i, i * N, from, accumulate, sums);
  }
  static __device__ __forceinline__ int64_t place_of(int64_t first, int64_t pack) { return (first + pack) * N; }
  __device__ __forceinline__ item load_of(int64_t i, int64_t at, bool add) const {
    item to;
    to.x = load_packed<N>(x + at);
    to.dy = load_packed<N>(dy + i * N);
    if (add) to.old = load_packed<N>(dx + at);
    return to;
  }
  __device__ __forceinline__ void store_and_sum(int64_t i, int64_t at, const item &from, bool add,
                                                float (&sums)[parts][N]) const {
    float v[N], d[N];
    unpack(from.x, v);
    unpack(from.dy, d);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const curve c = Curve::template at<is_fast<T>>(v[k]);
      v[k] = c.value;
      d[k] *= c.slope;
      sums[0][k] += d[k];
    }
    if (BOTH) store_rounded<N>(y + i * N, v);
    if (add) {
      unpack(from.old, v);
#pragma unroll
      for (int k = 0; k < N; k++) d[k] += v[k];
    }
    store_rounded<N>(dx + at, d);
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
  static constexpr int values = N, parts = 2, slab_unroll = 2;
  struct item {
    packed<T, N> first, gate, dy, old_first, old_gate;
    int64_t at;
  };
  const T *x, *dy;
  T *dx, *y;
  int64_t channels;
  divider packs_a_row;
  bool accumulate;
  __device__ __forceinline__ item load(int64_t i) const {
    return load_of(i, (i + packs_a_row.divide(i) * packs_a_row.by) * N, accumulate);
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float sums[parts][N] = {};
    store_and_sum(i, from.at, from, accumulate, sums);
  }
  static __device__ __forceinline__ int64_t place_of(int64_t first, int64_t pack) { return (2 * first + pack) * N; }
  __device__ __forceinline__ item load_of(int64_t i, int64_t at, bool add) const {
    item to;
    to.at = at;
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
                                                float (&sums)[parts][N]) const {
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

// A backward job's work, dx overwritten, and partial[slab][parts * channels]: sums of dx over the slab's rows. Of x and
// dx, `parts` packs go with one of y, of `values`: the first at place_of(where y's row begins, in packs, and which pack
// of the row it is), each other one `channels` behind the one before.
template <typename Job>
__global__ void __launch_bounds__(SLAB_THREADS, SLAB_BLOCKS)
    backward_slabs(int64_t rows, int64_t packs, int64_t slab_rows, int width, const Job job, float *partial) {
  using item = typename Job::item;
  constexpr int N = Job::values, PARTS = Job::parts, UNROLL = Job::slab_unroll;
  constexpr int PITCH = SLAB_THREADS + 32 / N;  // so that a warp reads from all banks
  __shared__ float shared[PARTS * N * PITCH];
  const int lanes = SLAB_THREADS / width, lane = threadIdx.x / width;
  const int64_t first_pack = static_cast<int64_t>(blockIdx.x) * width, pack = first_pack + threadIdx.x % width;
  float sums[PARTS][N] = {};
  if (lane < lanes && pack < packs) {
    const int64_t first = blockIdx.y * slab_rows, end = first + slab_rows < rows ? first + slab_rows : rows;
    for (int64_t row = first + lane; row < end; row += UNROLL * lanes) {
      item items[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const int64_t r = row + u * lanes;
        if (r < end) items[u] = job.load_of(r * packs + pack, Job::place_of(r * packs, pack), false);
      }
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const int64_t r = row + u * lanes;
        if (r < end) job.store_and_sum(r * packs + pack, Job::place_of(r * packs, pack), items[u], false, sums);
      }
    }
  }
#pragma unroll
  for (int p = 0; p < PARTS; p++)
#pragma unroll
    for (int k = 0; k < N; k++) shared[(p * N + k) * PITCH + threadIdx.x] = sums[p][k];
  __syncthreads();
  const int64_t channels = packs * N;
  float *const to = partial + blockIdx.y * PARTS * channels + first_pack * N;
  for (int p = 0; p < PARTS; p++)
    for (int c = threadIdx.x; c < width * N && first_pack * N + c < channels; c += SLAB_THREADS) {
      float total = 0;
      for (int l = 0; l < lanes; l++) total += shared[(p * N + c % N) * PITCH + l * width + c / N];
      to[p * channels + c] = total;
    }
}

size_t slabs_workspace(int64_t rows, int64_t channels, int parts, kern_dtype dtype) {
  if (rows <= 0 || channels <= 0) return 0;
  const int64_t one = slabs_shape_of(rows, channels, 1).slabs;
  const int64_t wide = slabs_shape_of(rows, channels, static_cast<int>(16 / kern_dtype_bytes(dtype))).slabs;
  return static_cast<size_t>((one > wide ? one : wide) * parts * channels) * sizeof(float);
}

// make(T(), curve, width<N>(), BOTH) is the job; with y, or without.
template <int PARTS, typename Kind, typename Make>
void backward_and_bias(kern_cuda *context, Kind kind, int64_t rows, int64_t channels, const void *x, const void *dy,
                       const void *dx, const void *y, void *dbias, Make make) {
  if (kern_cuda_failed(context) || rows <= 0 || channels <= 0) return;
  const size_t bytes = slabs_workspace(rows, channels, PARTS, context->options.dtype);
  float *const partial = static_cast<float *>(workspace_of(context, bytes, "activation backward and bias"));
  if (partial == nullptr) return;
  const bool aligned = is_aligned16(x) && is_aligned16(dy) && is_aligned16(dx) && is_aligned16(y);
  with_dtype(context->options.dtype, [&](auto value) {
    constexpr int WIDE = pack<decltype(value)>::count;
    with_kind(kind, [&](auto of) {
      const auto launch = [&](auto w, auto both) {
        const auto job = make(value, of, w, both);
        const slabs_shape s = slabs_shape_of(rows, channels, decltype(w)::value);
        static_assert(decltype(job)::parts == PARTS);
        backward_slabs<<<dim3(static_cast<unsigned>(s.strips), static_cast<unsigned>(s.slabs)), SLAB_THREADS, 0,
                         context->stream>>>(rows, channels / decltype(w)::value, s.slab_rows, s.width, job, partial);
        launched(context, "activation backward and bias");
        kern_cuda_sum_slabs(context, s.slabs, PARTS * channels, partial, context->options.gradient,
                            !context->overwrites, dbias);
      };
      const bool wide = aligned && channels % WIDE == 0;
      if (wide && y != nullptr)
        launch(width<WIDE>(), std::true_type());
      else if (wide)
        launch(width<WIDE>(), std::false_type());
      else if (y != nullptr)
        launch(width<1>(), std::true_type());
      else
        launch(width<1>(), std::false_type());
    });
  });
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

template <bool BOTH>
static void activation_backward(kern_cuda *context, kern_activation kind, int64_t n, const void *x, const void *dy,
                                void *dx, bool accumulate, void *y) {
  const bool aligned = is_aligned16(x) && is_aligned16(dy) && is_aligned16(dx) && is_aligned16(y);
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    with_kind(kind, [&](auto of) {
      stream_values<pack<T>::count>(context, "activation backward", n, aligned, [&](auto w, int64_t at) {
        return backward_job<T, decltype(w)::value, decltype(of), BOTH>{
            static_cast<const T *>(x) + at, static_cast<const T *>(dy) + at, static_cast<T *>(dx) + at,
            BOTH ? static_cast<T *>(y) + at : nullptr, accumulate};
      });
    });
  });
}

void kern_cuda_activation_backward(kern_cuda *context, kern_activation kind, int64_t n, const void *x, const void *dy,
                                   void *dx, bool accumulate) {
  activation_backward<false>(context, kind, n, x, dy, dx, accumulate, nullptr);
}

void kern_cuda_activation_both(kern_cuda *context, kern_activation kind, int64_t n, const void *x, const void *dy,
                               void *dx, void *y) {
  activation_backward<true>(context, kind, n, x, dy, dx, false, y);
}

size_t kern_cuda_activation_bias_workspace(int64_t rows, int64_t channels, kern_dtype dtype) {
  return slabs_workspace(rows, channels, 1, dtype);
}

void kern_cuda_activation_bias(kern_cuda *context, kern_activation kind, int64_t rows, int64_t channels, const void *x,
                               const void *dy, void *dx, void *y, void *dbias) {
  backward_and_bias<1>(context, kind, rows, channels, x, dy, dx, y, dbias, [&](auto value, auto of, auto w, auto both) {
    using T = decltype(value);
    return backward_job<T, decltype(w)::value, decltype(of), decltype(both)::value>{
        static_cast<const T *>(x), static_cast<const T *>(dy), static_cast<T *>(dx), static_cast<T *>(y), false};
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

// Of N values at once, in rows of `channels`; y is made as well where BOTH.
template <int N, bool BOTH, typename T, typename Kind>
static gated_backward_job<T, N, Kind, BOTH> gated_job(T, Kind, int64_t channels, const void *x, const void *dy,
                                                      void *dx, bool accumulate, void *y) {
  return {static_cast<const T *>(x),
          static_cast<const T *>(dy),
          static_cast<T *>(dx),
          static_cast<T *>(y),
          channels,
          divider_of(channels / N),
          accumulate};
}

template <bool BOTH>
static void gated_backward(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                           const void *dy, void *dx, bool accumulate, void *y) {
  if (rows <= 0 || channels <= 0) return;
  with_dtype(context->options.dtype, [&](auto value) {
    constexpr int N = pack<decltype(value)>::count;
    const bool aligned =
        is_aligned16(x) && is_aligned16(dy) && is_aligned16(dx) && is_aligned16(y) && channels % N == 0;
    with_kind(kind, [&](auto of) {
      stream_rows<N>(context, "gated backward", rows * channels, aligned, [&](auto w) {
        return gated_job<decltype(w)::value, BOTH>(value, of, channels, x, dy, dx, accumulate, y);
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
  return slabs_workspace(rows, channels, 2, dtype);
}

void kern_cuda_gated_bias(kern_cuda *context, kern_gated kind, int64_t rows, int64_t channels, const void *x,
                          const void *dy, void *dx, void *y, void *dbias) {
  backward_and_bias<2>(context, kind, rows, channels, x, dy, dx, y, dbias, [&](auto value, auto of, auto w, auto both) {
    return gated_job<decltype(w)::value, decltype(both)::value>(value, of, channels, x, dy, dx, false, y);
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
