// AdamW over flat arrays, and running means that change places with what they are means of. A parameter is a float, or
// two halves of one (kernels/halves.h).
#include <cmath>

#include "kernels/cuda/stream.cuh"
#include "kernels/halves.h"

namespace kern {
namespace {

// Parameters as they lie in memory: item<N> is N of them, load and store go to value `at`; of the two arrays that there
// may be the second has what is low.
struct whole {
  float *values;
  template <int N>
  using item = packed<float, N>;
  template <int N>
  __device__ __forceinline__ item<N> load(int64_t at) const {
    return load_packed<N>(static_cast<const float *>(values + at));
  }
  template <int N>
  static __device__ __forceinline__ void set(item<N> &to, const float (&from)[N]) {
    to = repack(from, float());
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t at, const item<N> &from) const {
    store_packed<N>(values + at, from);
  }
  template <int N>
  __device__ __forceinline__ void store_low(int64_t, const item<N> &) const {}
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
  static __device__ __forceinline__ void set(item<N> &to, const float (&from)[N]) {
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
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t at, const item<N> &from) const {
    store_packed<N>(weights + at, from.weight);
  }
  template <int N>
  __device__ __forceinline__ void store_low(int64_t at, const item<N> &from) const {
    store_packed<N>(low + at, from.low);
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
  __device__ __forceinline__ void step(float scale, adamw_item<G, P, N, MEANS> &item) const {
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
    P::set(item.parameter, p);
    item.first = repack(m, float());
    item.second = repack(v, float());
    if constexpr (MEANS) {
      unpack(item.mean, m);
#pragma unroll
      for (int k = 0; k < N; k++) m[k] += means_factor * (p[k] - m[k]);
      item.mean = repack(m, float());
    }
  }

  // U items, from value `at` on, `apart` between them: array by array, so that runs of each are long; all loads are on
  // their way before the first is needed.
  template <int N, bool MEANS, int U>
  __device__ __forceinline__ void steps(int64_t at, int64_t apart, float scale) const {
    adamw_item<G, P, N, MEANS> items[U];
#pragma unroll
    for (int u = 0; u < U; u++) items[u].gradient = load_packed<N>(gradients + at + u * apart);
#pragma unroll
    for (int u = 0; u < U; u++) items[u].parameter = parameters.template load<N>(at + u * apart);
#pragma unroll
    for (int u = 0; u < U; u++) items[u].first = load_packed<N>(static_cast<const float *>(first + at + u * apart));
#pragma unroll
    for (int u = 0; u < U; u++) items[u].second = load_packed<N>(static_cast<const float *>(second + at + u * apart));
    if constexpr (MEANS)
#pragma unroll
      for (int u = 0; u < U; u++) items[u].mean = load_packed<N>(static_cast<const float *>(means + at + u * apart));
    __syncwarp(__activemask());
#pragma unroll
    for (int u = 0; u < U; u++) step<N, MEANS>(scale, items[u]);
#pragma unroll
    for (int u = 0; u < U; u++) parameters.template store<N>(at + u * apart, items[u].parameter);
#pragma unroll
    for (int u = 0; u < U; u++) parameters.template store_low<N>(at + u * apart, items[u].parameter);
#pragma unroll
    for (int u = 0; u < U; u++) store_packed<N>(first + at + u * apart, items[u].first);
#pragma unroll
    for (int u = 0; u < U; u++) store_packed<N>(second + at + u * apart, items[u].second);
    if constexpr (MEANS)
#pragma unroll
      for (int u = 0; u < U; u++) store_packed<N>(means + at + u * apart, items[u].mean);
  }
};

constexpr int adamw_unroll = 4;

// Tiles of a block's threads, a pack in four each; then, by one block, what is left of a tile. On an H200 two blocks of
// 128 registers a thread at once, and a block for every tile rather than a few that stay, were the fastest of 54 ways,
// 6 % before four blocks that store pack by pack.
template <typename G, typename P, int N, bool MEANS>
__global__ void __launch_bounds__(stream_threads, 2)
    adamw_kernel(const int64_t packs, const __grid_constant__ adamw_job<G, P> j) {
  constexpr int64_t tile = stream_threads * adamw_unroll;
  const double norm_square = *j.norm_square;
  if (!isfinite(norm_square)) return;
  float scale = 1;
  if (j.clip_norm > 0) scale = static_cast<float>(fmin(1.0, j.clip_norm / (sqrt(norm_square) + 1e-6)));
  const int64_t tiles = packs / tile;
#pragma unroll 1
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x)
    j.template steps<N, MEANS, adamw_unroll>((t * tile + threadIdx.x) * N, stream_threads * N, scale);
  if (blockIdx.x != tiles % gridDim.x) return;
  for (int64_t at = tiles * tile + threadIdx.x; at < packs; at += stream_threads)
    j.template steps<N, MEANS, 1>(at * N, 0, scale);
}

template <typename G, typename P, int N>
void run_adamw(kern_cuda *context, int64_t packs, const adamw_job<G, P> &j) {
  if (packs <= 0) return;
  const int64_t tiles = divide_up(packs, stream_threads * adamw_unroll), most = (int64_t)context->sm_count * 4096;
  const auto blocks = static_cast<unsigned>(tiles < most ? tiles : most);
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
    typename P::template item<N> to;
    unpack(from.parameter, p);
    unpack(from.mean, mean);
    P::set(to, mean);
    parameters.template store<N>(i * N, to);
    parameters.template store_low<N>(i * N, to);
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
