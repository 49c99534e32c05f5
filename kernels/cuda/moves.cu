// Ops that move values: pieces, enlargement and pooling, patches; and the embeddings of time and of positions.
#include <cmath>

#include "kernels/cuda/stream.cuh"

namespace kern {
namespace {

// ---- pieces ----

// The pieces that there are, side by side: piece k begins at column start[k] of these and at[k] of the whole.
struct pieces_table {
  int count;
  int64_t start[KERN_CUDA_MAX_PIECES + 1], at[KERN_CUDA_MAX_PIECES], width[KERN_CUDA_MAX_PIECES];
  char *piece[KERN_CUDA_MAX_PIECES];
};

// Index i is pack i of the pieces side by side.
template <typename T, int N, bool ADD>
struct pieces_job {
  static constexpr int unroll = 4;
  struct item {
    packed<T, N> value, old;
    T *to;
  };
  pieces_table table;
  T *whole;
  int64_t whole_width;
  divider packs_a_row;
  bool to_whole;
  __device__ __forceinline__ item load(int64_t i) const {
    int64_t column;
    const int64_t row = packs_a_row.split(i, &column);
    column *= N;
    int k = 0;
    while (k + 1 < table.count && column >= table.start[k + 1]) k++;
    const int64_t within = column - table.start[k];
    T *piece = reinterpret_cast<T *>(table.piece[k]) + row * table.width[k] + within;
    T *of_whole = whole + row * whole_width + table.at[k] + within;
    item to;
    to.value = load_packed<N>(static_cast<const T *>(to_whole ? piece : of_whole));
    to.to = to_whole ? of_whole : piece;
    if constexpr (ADD) to.old = load_packed<N>(static_cast<const T *>(to.to));
    return to;
  }
  __device__ __forceinline__ void store(int64_t, const item &from) const {
    if constexpr (ADD) {
      float v[N], old[N];
      unpack(from.value, v);
      unpack(from.old, old);
#pragma unroll
      for (int k = 0; k < N; k++) v[k] += old[k];
      store_rounded<N>(from.to, v);
    } else {
      store_packed<N>(from.to, from.value);
    }
  }
};

void move_pieces(kern_cuda *context, const char *what, int64_t outer, int pieces, const int64_t *widths,
                 char *const *piece, void *whole, bool to_whole, bool accumulate) {
  if (pieces > KERN_CUDA_MAX_PIECES) {
    kern_cuda_fail(context, DP_INTERNAL, "%s: %d pieces, at most %d are allowed", what, pieces,
                   static_cast<int>(KERN_CUDA_MAX_PIECES));
    return;
  }
  pieces_table table = {};
  int64_t all = 0, together = 0, bits = 0; /* of all widths: are they packs? */
  bool aligned = is_aligned16(whole);
  for (int i = 0; i < pieces; i++) {
    if (piece[i] != nullptr && widths[i] > 0) {
      table.start[table.count] = together;
      table.at[table.count] = all;
      table.width[table.count] = widths[i];
      table.piece[table.count++] = piece[i];
      aligned = aligned && is_aligned16(piece[i]);
      together += widths[i];
    }
    all += widths[i];
    bits |= widths[i];
  }
  table.start[table.count] = together;
  if (outer <= 0 || together == 0) return;
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    const auto run = [&](auto w) {
      constexpr int M = decltype(w)::value;
      const int64_t packs_a_row = together / M;
      T *of_whole = static_cast<T *>(whole);
      const divider by = divider_of(packs_a_row);
      if (accumulate)
        stream(context, what, outer * packs_a_row, pieces_job<T, M, true>{table, of_whole, all, by, to_whole});
      else
        stream(context, what, outer * packs_a_row, pieces_job<T, M, false>{table, of_whole, all, by, to_whole});
    };
    if (aligned && bits % N == 0)
      run(width<N>());
    else
      run(width<1>());
  });
}

// ---- enlargement and pooling: small pixel (y, x) stands for the large ones (y factor + dy, x factor + dx) ----

struct resample_sizes {
  int64_t small_width, channels, factor, count; /* of small values */
  float weight;
};

resample_sizes sizes_of(const kern_resample *s, bool x_is_small, bool mean) {
  const int64_t by = x_is_small ? 1 : s->factor, area = s->factor * s->factor;
  return {s->width / by, s->channels, s->factor, s->batch * (s->height / by) * (s->width / by) * s->channels,
          mean ? 1.0f / static_cast<float>(area) : 1.0f};
}

// Index i is a pack of the small image; FACTOR 0: any.
template <typename T, int N, int FACTOR>
struct resample_place {
  resample_sizes size;
  divider packs_a_pixel, pixels_a_row;
  __device__ __forceinline__ int64_t large(int64_t i) const {
    int64_t pack_at, x;
    const int64_t row = pixels_a_row.split(packs_a_pixel.split(i, &pack_at), &x);
    return (row * factor() * line() + x * factor()) * size.channels + pack_at * N;
  }
  __device__ __forceinline__ int64_t line() const { return size.small_width * factor(); } /* pixels */
  __device__ __forceinline__ int factor() const { return FACTOR != 0 ? FACTOR : static_cast<int>(size.factor); }
};

template <typename T, int N, int FACTOR>
struct spread_job {
  static constexpr int unroll = 2;
  struct item {
    packed<T, N> x;
  };
  resample_place<T, N, FACTOR> place;
  const T *from;
  T *to;
  bool accumulate;
  __device__ __forceinline__ item load(int64_t i) const { return {load_packed<N>(from + i * N)}; }
  __device__ __forceinline__ void store(int64_t i, const item &one) const {
    const int factor = place.factor();
    float v[N], out[N];
    unpack(one.x, v);
#pragma unroll
    for (int k = 0; k < N; k++) v[k] *= place.size.weight;
    T *corner = to + place.large(i);
#pragma unroll
    for (int dy = 0; dy < factor; dy++) {
#pragma unroll
      for (int dx = 0; dx < factor; dx++) {
        T *at = corner + (dy * place.line() + dx) * place.size.channels;
#pragma unroll
        for (int k = 0; k < N; k++) out[k] = 0;
        if (accumulate) unpack(load_packed<N>(static_cast<const T *>(at)), out);
#pragma unroll
        for (int k = 0; k < N; k++) out[k] = accumulate ? out[k] + v[k] : v[k];
        store_rounded<N>(at, out);
      }
    }
  }
};

template <typename T, int N, int FACTOR>
struct gather_job {
  static constexpr int unroll = 1;
  struct item {
    float sum[N];
  };
  resample_place<T, N, FACTOR> place;
  const T *from;
  T *to;
  bool accumulate;
  __device__ __forceinline__ item load(int64_t i) const {
    const int factor = place.factor();
    const T *corner = from + place.large(i);
    item to_sum = {};
#pragma unroll
    for (int dy = 0; dy < factor; dy++) {
#pragma unroll
      for (int dx = 0; dx < factor; dx++) {
        float v[N];
        unpack(load_packed<N>(corner + (dy * place.line() + dx) * place.size.channels), v);
#pragma unroll
        for (int k = 0; k < N; k++) to_sum.sum[k] += v[k];
      }
    }
    return to_sum;
  }
  __device__ __forceinline__ void store(int64_t i, const item &one) const {
    float v[N], old[N] = {};
    if (accumulate) unpack(load_packed<N>(static_cast<const T *>(to + i * N)), old);
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = one.sum[k] * place.size.weight + old[k];
    store_rounded<N>(to + i * N, v);
  }
};

template <template <typename, int, int> class Job>
void resample(kern_cuda *context, const char *what, const resample_sizes &size, const void *from, void *to,
              bool accumulate) {
  if (size.count <= 0) return;
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    const bool aligned = is_aligned16(from) && is_aligned16(to) && size.channels % N == 0;
    const T *source = static_cast<const T *>(from);
    T *target = static_cast<T *>(to);
    const auto run = [&](auto w, auto f) {
      constexpr int M = decltype(w)::value, factor = decltype(f)::value;
      const resample_place<T, M, factor> place = {size, divider_of(size.channels / M), divider_of(size.small_width)};
      stream(context, what, size.count / M, Job<T, M, factor>{place, source, target, accumulate});
    };
    if (aligned && size.factor == 2)
      run(width<N>(), width<2>());
    else if (aligned)
      run(width<N>(), width<0>());
    else
      run(width<1>(), width<0>());
  });
}

// ---- patches ----

// Index i is pack i of the tokens. Channels last: the values of a row of a patch lie together in both, and packs are of
// these; channel first: a pack is one value.
template <typename T, int N>
struct patches_job {
  static constexpr int unroll = 2;
  struct item {
    packed<T, N> value;
    int64_t of_image;
  };
  const T *from;
  T *to;
  int64_t channels, patch, width; /* of the image */
  bool to_tokens, accumulate, channel_first;
  divider by_inner, by_patch, by_middle, by_across;
  __device__ __forceinline__ int64_t place(int64_t i) const {
    int64_t inner, middle, y, column;
    if (channel_first) {  // token, channel, y, x
      const int64_t rest = by_patch.split(by_inner.split(i, &inner), &y);
      const int64_t row = by_across.split(by_middle.split(rest, &middle), &column);
      return ((row * patch + y) * width + column * patch + inner) * channels + middle;
    }
    const int64_t row = by_across.split(by_patch.split(by_inner.split(i, &inner), &y), &column);
    return ((row * patch + y) * width + column * patch) * channels + inner * N;
  }
  __device__ __forceinline__ item load(int64_t i) const {
    item one;
    one.of_image = place(i);
    one.value = load_packed<N>(from + (to_tokens ? one.of_image : i * N));
    return one;
  }
  __device__ __forceinline__ void store(int64_t i, const item &one) const {
    T *at = to + (to_tokens ? i * N : one.of_image);
    if (!accumulate) {
      store_packed<N>(at, one.value);
      return;
    }
    float v[N], old[N];
    unpack(one.value, v);
    unpack(load_packed<N>(static_cast<const T *>(at)), old);
#pragma unroll
    for (int k = 0; k < N; k++) v[k] += old[k];
    store_rounded<N>(at, v);
  }
};

void move_patches(kern_cuda *context, const char *what, const kern_patches *s, const void *from, void *to,
                  bool to_tokens, bool accumulate) {
  const int64_t n = s->batch * s->height * s->width * s->channels, together = s->patch * s->channels;
  if (n <= 0) return;
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    const bool aligned = is_aligned16(from) && is_aligned16(to) && !s->channel_first && together % N == 0;
    stream_rows<N>(context, what, n, aligned, [&](auto w) {
      constexpr int M = decltype(w)::value;
      return patches_job<T, M>{static_cast<const T *>(from),
                               static_cast<T *>(to),
                               s->channels,
                               s->patch,
                               s->width,
                               to_tokens,
                               accumulate,
                               s->channel_first,
                               divider_of(s->channel_first ? s->patch : together / M),
                               divider_of(s->patch),
                               divider_of(s->channels),
                               divider_of(s->width / s->patch)};
    });
  });
}

// ---- time ----

struct time_sizes {
  int64_t n, channels;
  float exponent, denominator, scale; /* the frequency is e^(exponent i / denominator) */
  bool flip;
};

// As on the CPU: fp32 at each step, since large angles feel the last bit of the frequency, and e^x to that bit.
template <typename Y>
__global__ void __launch_bounds__(stream_threads) time_kernel(const time_sizes s, const float *t, Y *y) {
  const int64_t half = s.channels / 2, columns = half + s.channels % 2;
  const int64_t step = static_cast<int64_t>(gridDim.x) * stream_threads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * stream_threads + threadIdx.x; at < s.n * columns; at += step) {
    const int64_t row = at / columns, i = at % columns;
    Y *to = y + row * s.channels;
    if (i == half) {
      to[s.channels - 1] = from_float<Y>(0.0f);
      continue;
    }
    const float exponent = __fdiv_rn(__fmul_rn(s.exponent, static_cast<float>(i)), s.denominator);
    const float frequency = static_cast<float>(exp(static_cast<double>(exponent)));
    const float angle = __fmul_rn(s.scale, __fmul_rn(t[row], frequency));
    to[s.flip ? half + i : i] = from_float<Y>(sinf(angle));
    to[s.flip ? i : half + i] = from_float<Y>(cosf(angle));
  }
}

// ---- rotary ----

// Index i is a pack of a head's width, for some heads of a token: the table is read once for these.
template <typename T, int N, bool BACK>
struct rotary_job {
  static constexpr int unroll = 1;
  static constexpr int together = 4;
  struct item {
    packed<T, N> x[together], old[together];
    float cosines[N], sines[N];
    int64_t at;
    int heads;
  };
  const T *from;
  const float *cosines, *sines;
  T *to;
  int64_t heads, head_dim;
  bool accumulate;
  divider packs_a_head, groups, tokens;
  static __device__ __forceinline__ void load_table(const float *table, float (&out)[N]) {
    constexpr int M = N % 4 == 0 ? 4 : 1;
#pragma unroll
    for (int k = 0; k < N; k += M) {
      float some[M];
      unpack(load_packed<M>(table + k), some);
#pragma unroll
      for (int l = 0; l < M; l++) out[k + l] = some[l];
    }
  }
  // Pairs, where no pack fits, begin on a boundary of one value only.
  static __device__ __forceinline__ packed<T, N> load_values(const T *at) {
    if constexpr (N > 2) return load_packed<N>(at);
    const float two[N] = {to_float<T>(at[0]), to_float<T>(at[1])};
    return repack(two, T());
  }
  static __device__ __forceinline__ void store_values(T *at, const float (&v)[N]) {
    if constexpr (N > 2) {
      store_rounded<N>(at, v);
    } else {
      at[0] = from_float<T>(v[0]);
      at[1] = from_float<T>(v[1]);
    }
  }
  __device__ __forceinline__ item load(int64_t i) const {
    item one;
    int64_t column, group, token;
    const int64_t row = groups.split(packs_a_head.split(i, &column), &group);
    (void)tokens.split(row, &token);
    column *= N;
    const int64_t left = heads - group * together;
    one.heads = static_cast<int>(left < together ? left : together);
    one.at = (row * heads + group * together) * head_dim + column;
#pragma unroll
    for (int h = 0; h < together; h++) {
      if (h >= one.heads) continue;
      one.x[h] = load_values(from + one.at + h * head_dim);
      if (accumulate) one.old[h] = load_values(to + one.at + h * head_dim);
    }
    load_table(cosines + token * head_dim + column, one.cosines);
    load_table(sines + token * head_dim + column, one.sines);
    return one;
  }
  __device__ __forceinline__ void store(int64_t, const item &one) const {
#pragma unroll
    for (int h = 0; h < together; h++) {
      if (h >= one.heads) continue;
      float v[N], turned[N];
      unpack(one.x[h], v);
#pragma unroll
      for (int k = 0; k < N; k += 2) {
        if constexpr (BACK) {  // the transpose
          turned[k] = v[k] * one.cosines[k] + v[k + 1] * one.sines[k + 1];
          turned[k + 1] = v[k + 1] * one.cosines[k + 1] - v[k] * one.sines[k];
        } else {
          turned[k] = v[k] * one.cosines[k] - v[k + 1] * one.sines[k];
          turned[k + 1] = v[k + 1] * one.cosines[k + 1] + v[k] * one.sines[k + 1];
        }
      }
      if (accumulate) {
        unpack(one.old[h], v);
#pragma unroll
        for (int k = 0; k < N; k++) turned[k] += v[k];
      }
      store_values(to + one.at + h * head_dim, turned);
    }
  }
};

template <bool BACK>
void turn(kern_cuda *context, const char *what, const kern_rotary *s, const void *from, const float *cosines,
          const float *sines, void *to, bool accumulate) {
  if (s->batch <= 0 || s->tokens <= 0 || s->heads <= 0 || s->head_dim <= 0) return;
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    const bool aligned =
        is_aligned16(from) && is_aligned16(to) && is_aligned16(cosines) && is_aligned16(sines) && s->head_dim % N == 0;
    const auto run = [&](auto w) {
      constexpr int M = decltype(w)::value;
      using job = rotary_job<T, M, BACK>;
      const int64_t packs = s->head_dim / M, groups = divide_up(s->heads, job::together);
      stream(context, what, s->batch * s->tokens * groups * packs,
             job{static_cast<const T *>(from), cosines, sines, static_cast<T *>(to), s->heads, s->head_dim, accumulate,
                 divider_of(packs), divider_of(groups), divider_of(s->tokens)});
    };
    if (aligned)
      run(width<N>());
    else
      run(width<2>());
  });
}

}  // namespace
}  // namespace kern

using namespace kern;

void kern_cuda_concat(kern_cuda *context, int64_t outer, int pieces, const int64_t *widths, const void *const *piece,
                      void *whole, bool accumulate) {
  char *list[KERN_CUDA_MAX_PIECES] = {};
  for (int i = 0; i < pieces && i < KERN_CUDA_MAX_PIECES; i++)
    list[i] = static_cast<char *>(const_cast<void *>(piece[i]));  // only read
  move_pieces(context, "concat", outer, pieces, widths, list, whole, true, accumulate);
}

void kern_cuda_split(kern_cuda *context, int64_t outer, int pieces, const int64_t *widths, const void *whole,
                     void *const *piece, bool accumulate) {
  char *list[KERN_CUDA_MAX_PIECES] = {};
  for (int i = 0; i < pieces && i < KERN_CUDA_MAX_PIECES; i++) list[i] = static_cast<char *>(piece[i]);
  move_pieces(context, "split", outer, pieces, widths, list, const_cast<void *>(whole), false, accumulate);
}

void kern_cuda_upsample_forward(kern_cuda *context, const kern_resample *size, const void *x, void *y) {
  resample<spread_job>(context, "upsample forward", sizes_of(size, true, false), x, y, false);
}

void kern_cuda_upsample_backward(kern_cuda *context, const kern_resample *size, const void *dy, void *dx,
                                 bool accumulate) {
  resample<gather_job>(context, "upsample backward", sizes_of(size, true, false), dy, dx, accumulate);
}

void kern_cuda_downsample_forward(kern_cuda *context, const kern_resample *size, const void *x, void *y) {
  resample<gather_job>(context, "downsample forward", sizes_of(size, false, true), x, y, false);
}

void kern_cuda_downsample_backward(kern_cuda *context, const kern_resample *size, const void *dy, void *dx,
                                   bool accumulate) {
  resample<spread_job>(context, "downsample backward", sizes_of(size, false, true), dy, dx, accumulate);
}

void kern_cuda_patchify(kern_cuda *context, const kern_patches *size, const void *x, void *tokens, bool accumulate) {
  move_patches(context, "patchify", size, x, tokens, true, accumulate);
}

void kern_cuda_unpatchify(kern_cuda *context, const kern_patches *size, const void *tokens, void *x, bool accumulate) {
  move_patches(context, "unpatchify", size, tokens, x, false, accumulate);
}

void kern_cuda_time_embedding_forward(kern_cuda *context, const kern_time_embedding *s, const float *t,
                                      kern_dtype y_dtype, void *y) {
  if (s->n <= 0 || s->channels <= 0 || kern_cuda_failed(context)) return;
  const int64_t pairs = s->channels / 2;
  const time_sizes size = {s->n,
                           s->channels,
                           static_cast<float>(-std::log(s->max_period)),
                           static_cast<float>(static_cast<double>(pairs) - s->freq_shift),
                           static_cast<float>(s->scale),
                           s->flip_sin_to_cos};
  const unsigned blocks = stream_blocks(context, divide_up(s->n * (pairs + s->channels % 2), stream_threads));
  with_dtype(y_dtype, [&](auto value) {
    using Y = decltype(value);
    time_kernel<Y><<<blocks, stream_threads, 0, context->stream>>>(size, t, static_cast<Y *>(y));
  });
  launched(context, "time embedding");
}

void kern_cuda_rotary_forward(kern_cuda *context, const kern_rotary *size, const void *x, const float *cosines,
                              const float *sines, void *y) {
  turn<false>(context, "rotary forward", size, x, cosines, sines, y, false);
}

void kern_cuda_rotary_backward(kern_cuda *context, const kern_rotary *size, const void *dy, const float *cosines,
                               const float *sines, void *dx, bool accumulate) {
  turn<true>(context, "rotary backward", size, dy, cosines, sines, dx, accumulate);
}
