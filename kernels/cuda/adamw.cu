// AdamW over flat arrays, and running means that change places with what they are means of. A parameter is a float, or
// two halves of one (kernels/halves.h).
#include <cmath>

#include "kernels/cuda/stream.cuh"
#include "kernels/halves.h"

namespace kern {
namespace {

// Parameters as they lie in memory: item<N> is N of them, load and store go to value `at`.
struct whole {
  float *values;
  template <int N>
  using item = packed<float, N>;
  template <int N>
  __device__ __forceinline__ item<N> load(int64_t at) const {
    return load_packed<N>(static_cast<const float *>(values + at));
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t at, const float (&from)[N]) const {
    store_rounded<N>(values + at, from);
  }
};

template <int N>
struct halves_item {
  packed<uint16_t, N> weight, low;
};
struct halves {
  uint16_t *weights, *low;
  template <int N>
  using item = halves_item<N>;
  template <int N>
  __device__ __forceinline__ item<N> load(int64_t at) const {
    return {load_packed<N>(static_cast<const uint16_t *>(weights + at)),
            load_packed<N>(static_cast<const uint16_t *>(low + at))};
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t at, const float (&from)[N]) const {
    item<N> to = {};
    uint32_t kept[N];
#pragma unroll
    for (int k = 0; k < N; k++) kept[k] = kern_halves_kept(__float_as_uint(from[k]));
    if constexpr (N == 1) {
      to.weight.bits = static_cast<uint16_t>(kern_halves_weight(kept[0]));
      to.low.bits = static_cast<uint16_t>(kern_halves_low(kept[0]));
    } else {
      auto *weight_words = reinterpret_cast<uint32_t *>(&to.weight.bits),
           *low_words = reinterpret_cast<uint32_t *>(&to.low.bits);
#pragma unroll
      for (int i = 0; i < N / 2; i++) {
        weight_words[i] = kern_halves_weight(kept[2 * i]) | kern_halves_weight(kept[2 * i + 1]) << 16;
        low_words[i] = kern_halves_low(kept[2 * i]) | kern_halves_low(kept[2 * i + 1]) << 16;
      }
    }
    store_packed<N>(weights + at, to.weight);
    store_packed<N>(low + at, to.low);
  }
};
template <int N>
__device__ __forceinline__ void unpack(const halves_item<N> &from, float (&to)[N]) {
  if constexpr (N == 1) {
    to[0] = __uint_as_float(kern_halves_join(from.weight.bits, from.low.bits));
  } else {
    const auto *weight_words = reinterpret_cast<const uint32_t *>(&from.weight.bits);
    const auto *low_words = reinterpret_cast<const uint32_t *>(&from.low.bits);
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      to[2 * i] = __uint_as_float(kern_halves_join(weight_words[i] & 0xffffu, low_words[i] & 0xffffu));
      to[2 * i + 1] = __uint_as_float(kern_halves_join(weight_words[i] >> 16, low_words[i] >> 16));
    }
  }
}

// ---- the step ----

// Within 1e-6 of itself, as the quotient below: of an update, which is small beside what it changes.
__device__ __forceinline__ float square_root(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

template <typename G, typename P, int N, bool MEANS>
struct adamw_item {
  packed<G, N> gradient;
  typename P::template item<N> parameter;
  packed<float, N> first, second, mean; /* mean: only with MEANS */
};

template <typename G, typename P>
struct adamw_job {
  const double *norm_square;
  const G *gradients;
  P parameters;
  float *first, *second, *means; /* means NULL: none */
  double clip_norm;
  float decay, one_minus_beta1, beta2, one_minus_beta2, step_size, root_factor, epsilon, means_factor;

  template <int N, bool MEANS>
  __device__ __forceinline__ adamw_item<G, P, N, MEANS> load(int64_t at) const {
    adamw_item<G, P, N, MEANS> item;
    item.gradient = load_packed<N>(gradients + at);
    item.parameter = parameters.template load<N>(at);
    item.first = load_packed<N>(static_cast<const float *>(first + at));
    item.second = load_packed<N>(static_cast<const float *>(second + at));
    if constexpr (MEANS) item.mean = load_packed<N>(static_cast<const float *>(means + at));
    return item;
  }

  template <int N, bool MEANS>
  __device__ __forceinline__ void step(int64_t at, float scale, const adamw_item<G, P, N, MEANS> &item) const {
    float g[N], p[N], m[N], v[N];
    unpack(item.gradient, g);
    unpack(item.parameter, p);
    unpack(item.first, m);
    unpack(item.second, v);
#pragma unroll
    for (int k = 0; k < N; k++) {
      g[k] *= scale;
      m[k] += one_minus_beta1 * (g[k] - m[k]);
      v[k] = beta2 * v[k] + one_minus_beta2 * g[k] * g[k];
      p[k] = p[k] * decay - __fdividef(step_size * m[k], square_root(v[k]) * root_factor + epsilon);
    }
    parameters.template store<N>(at, p);
    store_rounded<N>(first + at, m);
    store_rounded<N>(second + at, v);
    if constexpr (MEANS) {
      unpack(item.mean, m);
#pragma unroll
      for (int k = 0; k < N; k++) m[k] += means_factor * (p[k] - m[k]);
      store_rounded<N>(means + at, m);
    }
  }
};

// Tiles whose loads are all on their way before the first is needed, with no branch between them; then, by one block,
// what is left of a tile. Four blocks at once are enough, with 64 registers a thread: of fewer the compiler makes more
// blocks, by putting half of the loads behind the first half's roots.
template <typename G, typename P, int N, bool MEANS>
__global__ void __launch_bounds__(stream_threads, 4)
    adamw_kernel(const int64_t packs, const __grid_constant__ adamw_job<G, P> j) {
  constexpr int unroll = 2;
  constexpr int64_t tile = stream_threads * unroll;
  const double norm_square = *j.norm_square;
  if (!isfinite(norm_square)) return;
  float scale = 1;
  if (j.clip_norm > 0) scale = static_cast<float>(fmin(1.0, j.clip_norm / (sqrt(norm_square) + 1e-6)));
  const int64_t tiles = packs / tile;
#pragma unroll 1
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t from = t * tile + threadIdx.x;
    adamw_item<G, P, N, MEANS> items[unroll];
#pragma unroll
    for (int u = 0; u < unroll; u++) items[u] = j.template load<N, MEANS>((from + u * stream_threads) * N);
#pragma unroll
    for (int u = 0; u < unroll; u++) j.template step<N, MEANS>((from + u * stream_threads) * N, scale, items[u]);
  }
  if (blockIdx.x != tiles % gridDim.x) return;
  for (int64_t at = tiles * tile + threadIdx.x; at < packs; at += stream_threads)
    j.template step<N, MEANS>(at * N, scale, j.template load<N, MEANS>(at * N));
}

template <typename G, typename P, int N>
void run_adamw(kern_cuda *context, int64_t packs, const adamw_job<G, P> &j) {
  if (packs <= 0) return;
  const unsigned blocks = stream_blocks(context, divide_up(packs, stream_threads * 2));
  if (j.means != nullptr)
    adamw_kernel<G, P, N, true><<<blocks, stream_threads, 0, context->stream>>>(packs, j);
  else
    adamw_kernel<G, P, N, false><<<blocks, stream_threads, 0, context->stream>>>(packs, j);
  launched(context, "AdamW");
}

template <typename P, int N>
struct exchange_job {
  static constexpr int unroll = 2;
  struct item {
    typename P::template item<N> parameter;
    packed<float, N> mean;
  };
  P parameters;
  float *means;
  __device__ __forceinline__ item load(int64_t i) const {
    return {parameters.template load<N>(i * N), load_packed<N>(static_cast<const float *>(means + i * N))};
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float p[N], mean[N];
    unpack(from.parameter, p);
    unpack(from.mean, mean);
    parameters.template store<N>(i * N, mean);
    store_rounded<N>(means + i * N, p);
  }
};

// ---- how parameters are kept ----

whole from_value(const whole &p, int64_t at) { return {p.values + at}; }
halves from_value(const halves &p, int64_t at) { return {p.weights + at, p.low + at}; }
bool is_aligned_for(const whole &p) { return is_aligned16(p.values); }
bool is_aligned_for(const halves &p) { return is_aligned(p.weights, 8) && is_aligned(p.low, 8); }

template <typename F>
void with_parameters(const kern_cuda *context, void *weights, uint16_t *low, F f) {
  if (context->options.dtype == KERN_BF16)
    f(halves{static_cast<uint16_t *>(weights), low});
  else
    f(whole{static_cast<float *>(weights)});
}

}  // namespace
}  // namespace kern

using namespace kern;

void kern_cuda_adamw_step(kern_cuda *context, const kern_cuda_adamw *how, const double *norm_square,
                          const void *gradients, void *weights, uint16_t *low, float *first, float *second,
                          float *means) {
  if (how->n <= 0 || kern_cuda_failed(context)) return;
  const kern_adamw *s = &how->settings;
  const double step = static_cast<double>(s->step);
  with_dtype(context->options.gradient, [&](auto gradient) {
    with_parameters(context, weights, low, [&](auto parameters) {
      using G = decltype(gradient);
      using P = decltype(parameters);
      constexpr int N = pack<float>::count;
      adamw_job<G, P> j = {norm_square,
                           static_cast<const G *>(gradients),
                           parameters,
                           first,
                           second,
                           means,
                           how->clip_norm,
                           static_cast<float>(1 - s->lr * s->weight_decay),
                           static_cast<float>(1 - s->beta1),
                           static_cast<float>(s->beta2),
                           static_cast<float>(1 - s->beta2),
                           static_cast<float>(s->lr / (1 - std::pow(s->beta1, step))),
                           static_cast<float>(1 / std::sqrt(1 - std::pow(s->beta2, step))),
                           static_cast<float>(s->epsilon),
                           static_cast<float>(1 - how->means_decay)};
      const bool aligned = is_aligned(gradients, N * sizeof(G)) && is_aligned_for(parameters) && is_aligned16(first) &&
                           is_aligned16(second) && is_aligned16(means);
      const int64_t packs = aligned ? how->n / N : 0;
      run_adamw<G, P, N>(context, packs, j);
      j.gradients += packs * N;
      j.parameters = from_value(parameters, packs * N);
      j.first += packs * N;
      j.second += packs * N;
      if (j.means != nullptr) j.means += packs * N;
      run_adamw<G, P, 1>(context, how->n - packs * N, j);
    });
  });
}

void kern_cuda_exchange_means(kern_cuda *context, int64_t n, void *weights, uint16_t *low, float *means) {
  with_parameters(context, weights, low, [&](auto parameters) {
    using P = decltype(parameters);
    stream_values<pack<float>::count>(
        context, "exchange means", n, is_aligned_for(parameters) && is_aligned16(means), [&](auto w, int64_t at) {
          return exchange_job<P, decltype(w)::value>{from_value(parameters, at), means + at};
        });
  });
}
