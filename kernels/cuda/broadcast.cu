// One vector a sample over all positions: sums, scale and shift, gates. The gradients of the vectors are sums over
// positions: each block sums some positions of some channels, writing the input's gradient on its way, then one kernel
// adds up the blocks' sums. How positions are cut follows from the sizes alone.
#include "kernels/cuda/stream.cuh"

namespace kern {
namespace {

int64_t stride_of(const kern_broadcast *s) {
  if (s->vector_stride < 0) return 0;
  return s->vector_stride == 0 ? s->channels : s->vector_stride;
}
bool is_empty(const kern_broadcast *s) { return s->batch <= 0 || s->positions <= 0 || s->channels <= 0; }
bool are_rows_packs(const kern_broadcast *s, int n) { return s->channels % n == 0 && stride_of(s) % n == 0; }

// y = x + a
template <typename T, int N>
struct add_vector_job {
  static constexpr int unroll = 4;
  struct item {
    packed<T, N> x, a;
  };
  const T *x, *a;
  T *y;
  int64_t stride;
  divider packs_a_row, packs_a_sample;
  __device__ __forceinline__ item load(int64_t i) const {
    int64_t column;
    (void)packs_a_row.split(i, &column);
    return {load_packed<N>(x + i * N), load_packed<N>(a + packs_a_sample.divide(i) * stride + column * N)};
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float v[N], a_values[N];
    unpack(from.x, v);
    unpack(from.a, a_values);
#pragma unroll
    for (int k = 0; k < N; k++) v[k] += a_values[k];
    store_rounded<N>(y + i * N, v);
  }
};

// y = x (one + a), plus b or what y is where these are asked for
template <typename T, int N>
struct scale_job {
  static constexpr int unroll = 2;
  struct item {
    packed<T, N> x, a, b;
  };
  const T *x, *a, *b;
  T *y;
  float one;
  bool accumulate;
  int64_t stride;
  divider packs_a_row, packs_a_sample;
  __device__ __forceinline__ item load(int64_t i) const {
    int64_t column;
    (void)packs_a_row.split(i, &column);
    const int64_t at = packs_a_sample.divide(i) * stride + column * N;
    item to;
    to.x = load_packed<N>(x + i * N);
    to.a = load_packed<N>(a + at);
    if (b != nullptr) to.b = load_packed<N>(b + at);
    if (accumulate) to.b = load_packed<N>(y + i * N);
    return to;
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const {
    float v[N], other[N];
    unpack(from.x, v);
    unpack(from.a, other);
#pragma unroll
    for (int k = 0; k < N; k++) v[k] *= one + other[k];
    if (b != nullptr || accumulate) {
      unpack(from.b, other);
#pragma unroll
      for (int k = 0; k < N; k++) v[k] += other[k];
    }
    store_rounded<N>(y + i * N, v);
  }
};

// A block has x_lanes packs side by side of y_lanes positions; `rows` positions are a part's.
struct cut {
  int x_lanes, y_lanes, tiles;
  int64_t rows, parts;
};

cut cut_of(const kern_broadcast *s, int pack_values) {
  const int64_t packs = divide_up(s->channels, pack_values);
  cut c = {};
  double best = 0;
  // Of all ways to cut a row evenly, the one that leaves the fewest threads idle, with 256 bytes or more side by side.
  for (int64_t tiles = divide_up(packs, stream_threads); tiles <= packs; tiles++) {
    const int64_t lanes = divide_up(packs, tiles);
    if (lanes < 16 && c.tiles > 0) break;
    const int64_t down = stream_threads / lanes;
    const double busy = static_cast<double>(packs * down) / static_cast<double>(tiles * stream_threads);
    if (c.tiles > 0 && busy <= best) continue;
    best = busy;
    c.x_lanes = static_cast<int>(lanes);
    c.y_lanes = static_cast<int>(down);
    c.tiles = static_cast<int>(tiles);
  }
  const int64_t wanted = divide_up(2048, s->batch * c.tiles), most = divide_up(s->positions, 4 * c.y_lanes);
  c.rows = divide_up(s->positions, wanted < most ? wanted : most);
  c.parts = divide_up(s->positions, c.rows);
  return c;
}

// A row of sums in shared memory, as long as keeps its readers out of each other's banks: they go over a pack's values
// first, then over packs. All rows of a block are at most shared_rows (at 21 lanes).
__host__ __device__ constexpr int line_of(int lanes) { return lanes < 16 ? lanes : (lanes + 3) / 8 * 8 + 4; }
constexpr bool do_lines_fit(int rows) {
  for (int lanes = 1; lanes <= stream_threads; lanes++)
    if (stream_threads / lanes * line_of(lanes) > rows) return false;
  return true;
}
constexpr int shared_rows = 336;
static_assert(do_lines_fit(shared_rows), "shared memory of a block's sums");

template <typename T>
struct sums_job {
  const T *x, *a, *dy;
  T *dx; /* NULL: not asked for */
  float one;
  bool accumulate;
  int64_t positions, channels, stride;
  cut how;
  float *partial; /* [batch][parts][sums][channels] */
};

// Sums of dy x (OF_A) and of dy (OF_B) over the positions of a part; dx = dy (one + a).
template <typename T, int N, bool OF_A, bool OF_B>
__global__ void __launch_bounds__(stream_threads, 3) sums_kernel(const __grid_constant__ sums_job<T> j) {
  constexpr int unroll = OF_A ? 2 : 4, sums = (OF_A ? 1 : 0) + (OF_B ? 1 : 0), per_pack = sums * N;
  __shared__ float shared[shared_rows * per_pack];
  const int lanes = j.how.x_lanes, line = line_of(lanes), down = j.how.y_lanes, x = threadIdx.x % lanes,
            y = threadIdx.x / lanes;
  const int64_t tile = blockIdx.x % j.how.tiles, rest = blockIdx.x / j.how.tiles;
  const int64_t part = rest % j.how.parts, sample = rest / j.how.parts;
  const int64_t first = part * j.how.rows;
  const int64_t last = first + j.how.rows < j.positions ? first + j.how.rows : j.positions;
  const int64_t column = (tile * lanes + x) * N;

  float of_a[N] = {}, of_b[N] = {};
  if (y < down && column < j.channels) {
    float factor[N] = {};
    if (j.dx != nullptr) {
      unpack(load_packed<N>(j.a + sample * j.stride + column), factor);
#pragma unroll
      for (int k = 0; k < N; k++) factor[k] += j.one;
    }
#pragma unroll 1
    for (int64_t row = first + y; row < last; row += down * unroll) {
      const int64_t at = (sample * j.positions + row) * j.channels + column, step = down * j.channels;
      packed<T, N> dy[unroll], of_x[unroll], old[unroll];
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        if (row + u * down >= last) continue;
        dy[u] = load_packed<N>(j.dy + at + u * step);
        if constexpr (OF_A) of_x[u] = load_packed<N>(j.x + at + u * step);
        if (j.dx != nullptr && j.accumulate) old[u] = load_packed<N>(j.dx + at + u * step);
      }
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        if (row + u * down >= last) continue;
        float d[N], v[N];
        unpack(dy[u], d);
        if constexpr (OF_A) {
          unpack(of_x[u], v);
#pragma unroll
          for (int k = 0; k < N; k++) of_a[k] += d[k] * v[k];
        }
        if constexpr (OF_B) {
#pragma unroll
          for (int k = 0; k < N; k++) of_b[k] += d[k];
        }
        if (j.dx == nullptr) continue;
#pragma unroll
        for (int k = 0; k < N; k++) d[k] *= factor[k];
        if (j.accumulate) {
          unpack(old[u], v);
#pragma unroll
          for (int k = 0; k < N; k++) d[k] += v[k];
        }
        store_rounded<N>(j.dx + at + u * step, d);
      }
    }
  }

  if (y < down) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      if constexpr (OF_A) shared[(y * per_pack + k) * line + x] = of_a[k];
      if constexpr (OF_B) shared[(y * per_pack + (OF_A ? N : 0) + k) * line + x] = of_b[k];
    }
  }
  __syncthreads();
  const int of_one = lanes * N;
  for (int i = threadIdx.x; i < sums * of_one; i += stream_threads) {
    const int which = i < of_one ? 0 : 1, value = i - which * of_one;
    const int64_t channel = tile * of_one + value;
    if (channel >= j.channels) continue;
    const float *from = shared + (which * N + value % N) * line + value / N;
    float sum = 0;
    for (int row = 0; row < down; row++) sum += from[row * per_pack * line];
    j.partial[((sample * j.how.parts + part) * sums + which) * j.channels + channel] = sum;
  }
}

constexpr int join_columns = 32, join_lanes = 16;

template <typename T>
struct join_job {
  const float *partial; /* [vectors][count][sums][channels] */
  T *gradients[2];
  int sums;
  bool accumulate;
  int64_t count, channels, stride, tiles;
};

template <typename T>
__global__ void __launch_bounds__(join_columns *join_lanes) join_kernel(const __grid_constant__ join_job<T> j) {
  __shared__ float shared[join_lanes][join_columns];
  const int x = threadIdx.x % join_columns, y = threadIdx.x / join_columns;
  const int64_t column = blockIdx.x % j.tiles * join_columns + x, rest = blockIdx.x / j.tiles;
  const int which = static_cast<int>(rest % j.sums);
  const int64_t vector = rest / j.sums;
  float sum = 0;
  if (column < j.channels) {
    const float *from = j.partial + (vector * j.count * j.sums + which) * j.channels + column;
#pragma unroll 8
    for (int64_t p = y; p < j.count; p += join_lanes) sum += from[p * j.sums * j.channels];
  }
  shared[y][x] = sum;
  __syncthreads();
  if (y != 0 || column >= j.channels) return;
  for (int i = 1; i < join_lanes; i++) sum += shared[i][x];
  T *to = j.gradients[which] + vector * j.stride + column;
  *to = from_float<T>(j.accumulate ? to_float<T>(*to) + sum : sum);
}

template <typename T, int N, bool OF_A, bool OF_B>
void run_sums(kern_cuda *context, const char *what, const kern_broadcast *s, sums_job<T> j, T *da, T *db) {
  j.how = cut_of(s, N);
  const int64_t blocks = s->batch * j.how.parts * j.how.tiles;
  sums_kernel<T, N, OF_A, OF_B><<<static_cast<unsigned>(blocks), stream_threads, 0, context->stream>>>(j);
  launched(context, what);
  join_job<T> of = {j.partial,
                    {OF_A ? da : db, db},
                    (OF_A ? 1 : 0) + (OF_B ? 1 : 0),
                    j.accumulate,
                    j.how.parts,
                    s->channels,
                    j.stride,
                    divide_up(s->channels, join_columns)};
  if (j.stride == 0) of.count *= s->batch;
  const int64_t vectors = j.stride == 0 ? 1 : s->batch;
  join_kernel<T>
      <<<static_cast<unsigned>(vectors * of.sums * of.tiles), join_columns * join_lanes, 0, context->stream>>>(of);
  launched(context, what);
}

template <typename T, int N>
scale_job<T, N> scale_of(const kern_broadcast *s, const void *x, float one, const void *a, const void *b, void *y,
                         bool accumulate) {
  return {static_cast<const T *>(x),
          static_cast<const T *>(a),
          static_cast<const T *>(b),
          static_cast<T *>(y),
          one,
          accumulate,
          stride_of(s),
          divider_of(s->channels / N),
          divider_of(s->positions * (s->channels / N))};
}

void run_scale(kern_cuda *context, const char *what, const kern_broadcast *s, const void *x, float one, const void *a,
               const void *b, void *y, bool accumulate) {
  if (is_empty(s)) return;
  const bool aligned = is_aligned16(x) && is_aligned16(a) && is_aligned16(b) && is_aligned16(y);
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    stream_rows<N>(context, what, s->batch * s->positions * s->channels, aligned && are_rows_packs(s, N),
                   [&](auto w) { return scale_of<T, decltype(w)::value>(s, x, one, a, b, y, accumulate); });
  });
}

// dx = dy (one + a), da = sum of dy x, db = sum of dy, each NULL where it is not asked for.
void run_backward(kern_cuda *context, const char *what, const kern_broadcast *s, const void *x, float one,
                  const void *a, const void *dy, void *dx, void *da, void *db, bool accumulate) {
  if (is_empty(s) || kern_cuda_failed(context)) return;
  if (da == nullptr && db == nullptr) {
    if (dx != nullptr) run_scale(context, what, s, dy, one, a, nullptr, dx, accumulate);
    return;
  }
  auto *partial =
      static_cast<float *>(workspace_of(context, kern_cuda_broadcast_workspace(s, context->options.dtype), what));
  if (partial == nullptr) return;
  const bool aligned = (da == nullptr || is_aligned16(x)) && is_aligned16(dy) &&
                       (dx == nullptr || (is_aligned16(dx) && is_aligned16(a)));
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    const sums_job<T> j = {static_cast<const T *>(x),
                           static_cast<const T *>(a),
                           static_cast<const T *>(dy),
                           static_cast<T *>(dx),
                           one,
                           accumulate,
                           s->positions,
                           s->channels,
                           stride_of(s),
                           cut(),
                           partial};
    T *of_a = static_cast<T *>(da), *of_b = static_cast<T *>(db);
    const auto run = [&](auto w) {
      constexpr int M = decltype(w)::value;
      if (of_a != nullptr && of_b != nullptr)
        run_sums<T, M, true, true>(context, what, s, j, of_a, of_b);
      else if (of_a != nullptr)
        run_sums<T, M, true, false>(context, what, s, j, of_a, nullptr);
      else
        run_sums<T, M, false, true>(context, what, s, j, nullptr, of_b);
    };
    if (aligned && are_rows_packs(s, N))
      run(width<N>());
    else
      run(width<1>());
  });
}

}  // namespace
}  // namespace kern

using namespace kern;

size_t kern_cuda_broadcast_workspace(const kern_broadcast *s, kern_dtype dtype) {
  if (is_empty(s)) return 0;
  // Whether packs fit is known with the pointers.
  const int64_t packs = cut_of(s, 16 / static_cast<int>(kern_dtype_bytes(dtype))).parts, scalars = cut_of(s, 1).parts;
  const int64_t parts = packs > scalars ? packs : scalars;
  return static_cast<size_t>(s->batch * parts * 2 * s->channels) * sizeof(float);
}

void kern_cuda_add_vector_forward(kern_cuda *context, const kern_broadcast *s, const void *x, const void *vector,
                                  void *y) {
  if (is_empty(s)) return;
  const bool aligned = is_aligned16(x) && is_aligned16(vector) && is_aligned16(y);
  with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = pack<T>::count;
    stream_rows<N>(context, "add vector forward", s->batch * s->positions * s->channels,
                   aligned && are_rows_packs(s, N), [&](auto w) {
                     constexpr int M = decltype(w)::value;
                     return add_vector_job<T, M>{
                         static_cast<const T *>(x),   static_cast<const T *>(vector),
                         static_cast<T *>(y),         stride_of(s),
                         divider_of(s->channels / M), divider_of(s->positions * (s->channels / M))};
                   });
  });
}

void kern_cuda_add_vector_backward(kern_cuda *context, const kern_broadcast *size, const void *dy, void *dvector,
                                   bool accumulate) {
  run_backward(context, "add vector backward", size, nullptr, 0, nullptr, dy, nullptr, nullptr, dvector, accumulate);
}

void kern_cuda_modulate_forward(kern_cuda *context, const kern_broadcast *size, const void *x, const void *scale,
                                const void *shift, void *y) {
  run_scale(context, "modulate forward", size, x, 1, scale, shift, y, false);
}

void kern_cuda_modulate_backward(kern_cuda *context, const kern_broadcast *size, const void *x, const void *scale,
                                 const void *dy, void *dx, void *dscale, void *dshift, bool accumulate) {
  run_backward(context, "modulate backward", size, x, 1, scale, dy, dx, dscale, dshift, accumulate);
}

void kern_cuda_gate_forward(kern_cuda *context, const kern_broadcast *size, const void *x, const void *gate, void *y) {
  run_scale(context, "gate forward", size, x, 0, gate, nullptr, y, false);
}

void kern_cuda_gate_backward(kern_cuda *context, const kern_broadcast *size, const void *x, const void *gate,
                             const void *dy, void *dx, void *dgate, bool accumulate) {
  run_backward(context, "gate backward", size, x, 0, gate, dy, dx, dgate, nullptr, accumulate);
}
