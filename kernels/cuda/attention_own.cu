// Our own attention of fp32, exact in it, and what it shares with that of bf16 in attention_mma.cu. Online softmax over
// tiles of keys, as in Dao, "FlashAttention-2", 2023. Backward is algorithm 2 of it without its atomic additions: one
// pass makes dk and dv of a tile of keys from all queries, another dq of a tile of queries from all keys, which makes
// the scores twice and gives every sum one order.
//
// A block has 16 x 16 threads and a tile is TILE tokens of one head in shared memory. A thread has the scores of
// TILE / 16 neighbouring rows and every 16th column, and the same rows of what is summed up, in fours of channels,
// every 64th. There, "rows" are the tokens that a block makes something for and "columns" those that it goes through.
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.cuh"

namespace kern {
namespace {

constexpr int SIDE = 16, THREADS = SIDE * SIDE;

// Dim: head_dim, rounded up. Rows of shared memory are a bank's width of 16 bytes apart in banks.
template <int Dim, int Tile>
struct shape {
  static constexpr int TILE = Tile, OWN = Tile / SIDE, SUMS = Dim / SIDE;
  static constexpr int PITCH = Dim + 4, SCORES_PITCH = Tile + 4;
  static constexpr int TILE_FLOATS = Tile * PITCH, SCORES_FLOATS = Tile * SCORES_PITCH;
};

// Tokens [0, rows) of a head to shared memory; rows that are not there and channels up to a multiple of 4 are 0. wide:
// 16 bytes at a time.
template <typename S>
__device__ __forceinline__ void load_tile(const float *from, int64_t stride, int rows, int dim, bool wide, float *to) {
  if (wide) {
    constexpr int COUNT = pack<float>::count;
    const int across = dim / COUNT;
    for (int i = threadIdx.x; i < S::TILE * across; i += THREADS) {
      const int row = i / across, at = i % across * COUNT;
      float values[COUNT] = {};
      if (row < rows) load16(from + row * stride + at, values);
#pragma unroll
      for (int c = 0; c < COUNT; c += 4)
        *reinterpret_cast<float4 *>(to + row * S::PITCH + at + c) =
            make_float4(values[c], values[c + 1], values[c + 2], values[c + 3]);
    }
    return;
  }
  const int across = (dim + 3) / 4 * 4;
  for (int i = threadIdx.x; i < S::TILE * across; i += THREADS) {
    const int row = i / across, at = i % across;
    to[row * S::PITCH + at] = row < rows && at < dim ? from[row * stride + at] : 0.0f;
  }
}

// s = rows of a times rows of b
template <typename S>
__device__ __forceinline__ void scores_of(const float *a, const float *b, int dim, float (&s)[S::OWN][S::OWN]) {
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
#pragma unroll
  for (int i = 0; i < S::OWN; i++)
#pragma unroll
    for (int j = 0; j < S::OWN; j++) s[i][j] = 0;
#pragma unroll 2
  for (int c = 0; c < dim; c += 4) {
    float4 of_a[S::OWN], of_b[S::OWN];
#pragma unroll
    for (int i = 0; i < S::OWN; i++) of_a[i] = *reinterpret_cast<const float4 *>(a + (y * S::OWN + i) * S::PITCH + c);
#pragma unroll
    for (int j = 0; j < S::OWN; j++) of_b[j] = *reinterpret_cast<const float4 *>(b + (x + SIDE * j) * S::PITCH + c);
#pragma unroll
    for (int i = 0; i < S::OWN; i++)
#pragma unroll
      for (int j = 0; j < S::OWN; j++) {
        s[i][j] = fmaf(of_a[i].x, of_b[j].x, s[i][j]);
        s[i][j] = fmaf(of_a[i].y, of_b[j].y, s[i][j]);
        s[i][j] = fmaf(of_a[i].z, of_b[j].z, s[i][j]);
        s[i][j] = fmaf(of_a[i].w, of_b[j].w, s[i][j]);
      }
  }
}

template <typename S>
__device__ __forceinline__ void store_scores(const float (&s)[S::OWN][S::OWN], float *to) {
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
#pragma unroll
  for (int i = 0; i < S::OWN; i++)
#pragma unroll
    for (int j = 0; j < S::OWN; j++) to[(y * S::OWN + i) * S::SCORES_PITCH + x + SIDE * j] = s[i][j];
}

// sum += scores times rows of b
template <typename S>
__device__ __forceinline__ void add_product(const float *scores, const float *b, float (&sum)[S::OWN][S::SUMS]) {
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
#pragma unroll 1
  for (int n = 0; n < S::TILE; n += 4) {
    alignas(16) float of_scores[S::OWN][4];
#pragma unroll
    for (int i = 0; i < S::OWN; i++)
      *reinterpret_cast<float4 *>(of_scores[i]) =
          *reinterpret_cast<const float4 *>(scores + (y * S::OWN + i) * S::SCORES_PITCH + n);
#pragma unroll
    for (int u = 0; u < 4; u++)
#pragma unroll
      for (int c = 0; c < S::SUMS; c += 4) {
        const float4 of_b = *reinterpret_cast<const float4 *>(b + (n + u) * S::PITCH + x * 4 + c * SIDE);
#pragma unroll
        for (int i = 0; i < S::OWN; i++) {
          sum[i][c] = fmaf(of_scores[i][u], of_b.x, sum[i][c]);
          sum[i][c + 1] = fmaf(of_scores[i][u], of_b.y, sum[i][c + 1]);
          sum[i][c + 2] = fmaf(of_scores[i][u], of_b.z, sum[i][c + 2]);
          sum[i][c + 3] = fmaf(of_scores[i][u], of_b.w, sum[i][c + 3]);
        }
      }
  }
}

template <typename S>
__device__ __forceinline__ void store_sums(const float (&sum)[S::OWN][S::SUMS], int rows, int dim, bool accumulate,
                                           float *to, int64_t stride) {
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
#pragma unroll
  for (int i = 0; i < S::OWN; i++) {
    const int row = y * S::OWN + i;
    if (row >= rows) break;
#pragma unroll
    for (int c = 0; c < S::SUMS; c++) {
      const int channel = x * 4 + c / 4 * 4 * SIDE + c % 4;
      if (channel >= dim) continue;
      float *at = to + row * stride + channel;
      *at = accumulate ? *at + sum[i][c] : sum[i][c];
    }
  }
}

// Of the threads that share rows.
__device__ __forceinline__ float side_max(float value) {
#pragma unroll
  for (int offset = SIDE / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}
__device__ __forceinline__ float side_sum(float value) {
#pragma unroll
  for (int offset = SIDE / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// Which tile of which head of which sample a block has.
struct place {
  int64_t batch, head, first;  // first: row
};
__device__ __forceinline__ place place_of(int64_t heads, int64_t rows, int tile) {
  const int64_t tiles = (rows + tile - 1) / tile, index = blockIdx.x;
  return {index / (tiles * heads), index / tiles % heads, index % tiles * tile};
}

struct forward_call {
  const float *q, *k, *v;
  float *y;
  float *lse;
  int64_t heads, q_tokens, k_tokens, q_stride, k_stride, v_stride, y_stride;
  int dim;
  float scale;
  bool wide;
};

template <typename S>
__global__ void __launch_bounds__(THREADS) forward_kernel(forward_call call) {
  extern __shared__ float4 shared4[];
  float *q = reinterpret_cast<float *>(shared4), *kv = q + S::TILE_FLOATS, *scores = kv + S::TILE_FLOATS;
  const place at = place_of(call.heads, call.q_tokens, S::TILE);
  const int rows = static_cast<int>(min(static_cast<int64_t>(S::TILE), call.q_tokens - at.first));
  const int64_t channel = at.head * call.dim;
  load_tile<S>(call.q + (at.batch * call.q_tokens + at.first) * call.q_stride + channel, call.q_stride, rows, call.dim,
               call.wide, q);
  float sum[S::OWN][S::SUMS] = {}, most[S::OWN], total[S::OWN] = {};
#pragma unroll
  for (int i = 0; i < S::OWN; i++) most[i] = -INFINITY;
  for (int64_t first = 0; first < call.k_tokens; first += S::TILE) {
    const int columns = static_cast<int>(min(static_cast<int64_t>(S::TILE), call.k_tokens - first));
    const int64_t token = at.batch * call.k_tokens + first;
    __syncthreads();
    load_tile<S>(call.k + token * call.k_stride + channel, call.k_stride, columns, call.dim, call.wide, kv);
    __syncthreads();
    float s[S::OWN][S::OWN];
    scores_of<S>(q, kv, call.dim, s);
#pragma unroll
    for (int i = 0; i < S::OWN; i++) {
      float now = -INFINITY;
#pragma unroll
      for (int j = 0; j < S::OWN; j++) {
        s[i][j] = static_cast<int>(threadIdx.x) % SIDE + SIDE * j < columns ? s[i][j] * call.scale : -INFINITY;
        now = fmaxf(now, s[i][j]);
      }
      now = fmaxf(most[i], side_max(now));
      const float shrink = expf(most[i] - now);  // what is there was relative to a lower maximum
      most[i] = now;
      total[i] *= shrink;
#pragma unroll
      for (int j = 0; j < S::OWN; j++) {
        s[i][j] = expf(s[i][j] - now);
        total[i] += s[i][j];
      }
#pragma unroll
      for (int c = 0; c < S::SUMS; c++) sum[i][c] *= shrink;
    }
    store_scores<S>(s, scores);
    __syncthreads();
    load_tile<S>(call.v + token * call.v_stride + channel, call.v_stride, columns, call.dim, call.wide, kv);
    __syncthreads();
    add_product<S>(scores, kv, sum);
  }
#pragma unroll
  for (int i = 0; i < S::OWN; i++) {
    const float all = side_sum(total[i]), factor = 1.0f / all;
#pragma unroll
    for (int c = 0; c < S::SUMS; c++) sum[i][c] *= factor;
    const int row = threadIdx.x / SIDE * S::OWN + i;
    if (call.lse != nullptr && threadIdx.x % SIDE == 0 && row < rows)
      call.lse[(at.batch * call.heads + at.head) * call.q_tokens + at.first + row] = most[i] + logf(all);
  }
  store_sums<S>(sum, rows, call.dim, false, call.y + (at.batch * call.q_tokens + at.first) * call.y_stride + channel,
                call.y_stride);
}

// delta[batch, heads, q_tokens] = y dy: what a softmax's gradient takes off. A warp for each.
template <typename T>
__global__ void __launch_bounds__(THREADS) delta_kernel(int64_t n, int64_t heads, int64_t tokens, int dim,
                                                        int64_t stride, const T *y, const T *dy, float *delta) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  if (index >= n) return;
  const int64_t head = index % heads, token = index / heads, at = token * stride + head * dim;
  float sum = 0;
  for (int c = threadIdx.x % 32; c < dim; c += 32) sum = fmaf(to_float<T>(y[at + c]), to_float<T>(dy[at + c]), sum);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) delta[(token / tokens * heads + head) * tokens + token % tokens] = sum;
}

// Of keys: rows are keys, row1 = k, row2 = v, column1 = q, column2 = dy, sum1 = dk, sum2 = dv. Of queries: row1 = q,
// row2 = dy, column1 = k, column2 = v, sum1 = dq, sum2 NULL.
struct backward_call {
  const float *row1, *row2, *column1, *column2;
  float *sum1, *sum2;
  const float *lse, *delta;
  int64_t heads, rows, columns, row1_stride, row2_stride, column1_stride, column2_stride;
  int dim;
  float scale;
  bool accumulate, wide;
};

template <typename S, bool OF_KEYS>
__global__ void __launch_bounds__(THREADS) backward_kernel(backward_call call) {
  extern __shared__ float4 shared4[];
  float *row1 = reinterpret_cast<float *>(shared4), *row2 = row1 + S::TILE_FLOATS, *column1 = row2 + S::TILE_FLOATS,
        *column2 = column1 + S::TILE_FLOATS, *scores = column2 + S::TILE_FLOATS, *lse = scores + S::SCORES_FLOATS,
        *delta = lse + S::TILE;
  const place at = place_of(call.heads, call.rows, S::TILE);
  const int rows = static_cast<int>(min(static_cast<int64_t>(S::TILE), call.rows - at.first));
  const int64_t channel = at.head * call.dim, token = at.batch * call.rows + at.first;
  const int64_t queries = OF_KEYS ? call.columns : call.rows;
  const float *of_lse = call.lse + (at.batch * call.heads + at.head) * queries;
  const float *of_delta = call.delta + (at.batch * call.heads + at.head) * queries;
  const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
  load_tile<S>(call.row1 + token * call.row1_stride + channel, call.row1_stride, rows, call.dim, call.wide, row1);
  load_tile<S>(call.row2 + token * call.row2_stride + channel, call.row2_stride, rows, call.dim, call.wide, row2);
  if (!OF_KEYS && threadIdx.x < rows) {
    lse[threadIdx.x] = of_lse[at.first + threadIdx.x];
    delta[threadIdx.x] = of_delta[at.first + threadIdx.x];
  }
  float sum1[S::OWN][S::SUMS] = {}, sum2[S::OWN][S::SUMS] = {};
  for (int64_t first = 0; first < call.columns; first += S::TILE) {
    const int columns = static_cast<int>(min(static_cast<int64_t>(S::TILE), call.columns - first));
    const int64_t from = at.batch * call.columns + first;
    __syncthreads();
    load_tile<S>(call.column1 + from * call.column1_stride + channel, call.column1_stride, columns, call.dim, call.wide,
                 column1);
    load_tile<S>(call.column2 + from * call.column2_stride + channel, call.column2_stride, columns, call.dim, call.wide,
                 column2);
    if (OF_KEYS && threadIdx.x < columns) {
      lse[threadIdx.x] = of_lse[first + threadIdx.x];
      delta[threadIdx.x] = of_delta[first + threadIdx.x];
    }
    __syncthreads();
    float s[S::OWN][S::OWN], d[S::OWN][S::OWN];
    scores_of<S>(row1, column1, call.dim, s);
    scores_of<S>(row2, column2, call.dim, d);
#pragma unroll
    for (int i = 0; i < S::OWN; i++)
#pragma unroll
      for (int j = 0; j < S::OWN; j++) {
        const int row = y * S::OWN + i, column = x + SIDE * j, query = OF_KEYS ? column : row;
        const bool there = row < rows && column < columns;
        s[i][j] = there ? expf(s[i][j] * call.scale - lse[query]) : 0.0f;
        d[i][j] = there ? call.scale * (s[i][j] * (d[i][j] - delta[query])) : 0.0f;
      }
    if (OF_KEYS) {  // one after the other, so that there need be room for one only
      store_scores<S>(s, scores);
      __syncthreads();
      add_product<S>(scores, column2, sum2);
      __syncthreads();
    }
    store_scores<S>(d, scores);
    __syncthreads();
    add_product<S>(scores, column1, sum1);
  }
  if (call.sum1 != nullptr)
    store_sums<S>(sum1, rows, call.dim, call.accumulate, call.sum1 + token * call.row1_stride + channel,
                  call.row1_stride);
  if (OF_KEYS && call.sum2 != nullptr)
    store_sums<S>(sum2, rows, call.dim, call.accumulate, call.sum2 + token * call.row2_stride + channel,
                  call.row2_stride);
}

// n and across count what is taken at a time: one value, or 16 bytes.
template <typename T, bool WIDE>
__global__ void __launch_bounds__(THREADS) add_kernel(int64_t n, int64_t across, const T *x, T *y, int64_t y_stride) {
  constexpr int COUNT = WIDE ? pack<T>::count : 1;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * THREADS) {
    const int64_t row = i / across;
    const T *from = x + i * COUNT;
    T *at = y + row * y_stride + (i - row * across) * COUNT;
    if constexpr (WIDE) {
      float values[COUNT], sums[COUNT];
      load16(from, values);
      load16(at, sums);
#pragma unroll
      for (int c = 0; c < COUNT; c++) sums[c] += values[c];
      store16(at, sums);
    } else {
      *at = from_float<T>(to_float<T>(*at) + to_float<T>(*from));
    }
  }
}

// Calls f(shape) with the smallest that holds the heads; wide heads have smaller tiles where four must be kept.
template <typename F>
void with_shape(int64_t dim, F f) {
  if (dim <= 64)
    f(shape<64, 64>());
  else if (dim <= 128)
    f(shape<128, 64>());
  else if (dim <= 192)
    f(shape<192, 32>());
  else
    f(shape<256, 32>());
}

template <typename Kernel, typename Call>
void launch(kern_cuda *context, Kernel kernel, int64_t blocks, size_t shared, const Call &call, const char *what) {
  if (blocks == 0) return;
  if (!KERN_CUDA_TRY(
          context, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared))))
    return;
  kernel<<<static_cast<unsigned>(blocks), THREADS, shared, context->stream>>>(call);
  launched(context, what);
}

bool is_wide(const kern_attention *s, const void *a, const void *b, const void *c) {
  constexpr int64_t COUNT = pack<float>::count;
  return s->head_dim % COUNT == 0 && s->q_stride % COUNT == 0 && s->k_stride % COUNT == 0 && s->v_stride % COUNT == 0 &&
         s->y_stride % COUNT == 0 && is_aligned16(a) && is_aligned16(b) && is_aligned16(c);
}

template <typename S>
void run_forward(kern_cuda *context, const kern_attention *s, const float *q, const float *k, const float *v, float *y,
                 float *lse) {
  forward_call call = {};
  call.q = q, call.k = k, call.v = v, call.y = y, call.lse = lse;
  call.heads = s->heads, call.q_tokens = s->q_tokens, call.k_tokens = s->k_tokens;
  call.q_stride = s->q_stride, call.k_stride = s->k_stride, call.v_stride = s->v_stride, call.y_stride = s->y_stride;
  call.dim = static_cast<int>(s->head_dim), call.scale = s->scale, call.wide = is_wide(s, q, k, v);
  launch(context, forward_kernel<S>, s->batch * s->heads * divide_up(s->q_tokens, S::TILE),
         (2 * S::TILE_FLOATS + S::SCORES_FLOATS) * sizeof(float), call, "attention");
}

template <typename S>
void run_backward(kern_cuda *context, const kern_attention *s, const float *q, const float *k, const float *v,
                  const float *lse, const float *delta, const float *dy, float *dq, float *dk, float *dv,
                  bool accumulate) {
  const size_t shared = (4 * S::TILE_FLOATS + S::SCORES_FLOATS + 2 * S::TILE) * sizeof(float);
  backward_call call = {};
  call.lse = lse, call.delta = delta, call.heads = s->heads, call.scale = s->scale, call.accumulate = accumulate;
  call.dim = static_cast<int>(s->head_dim), call.wide = is_wide(s, q, k, v) && is_aligned16(dy);
  if (dk != nullptr || dv != nullptr) {
    call.row1 = k, call.row2 = v, call.column1 = q, call.column2 = dy, call.sum1 = dk, call.sum2 = dv;
    call.rows = s->k_tokens, call.columns = s->q_tokens;
    call.row1_stride = s->k_stride, call.row2_stride = s->v_stride;
    call.column1_stride = s->q_stride, call.column2_stride = s->y_stride;
    launch(context, backward_kernel<S, true>, s->batch * s->heads * divide_up(s->k_tokens, S::TILE), shared, call,
           "attention's backward of keys");
  }
  if (dq == nullptr) return;
  call.row1 = q, call.row2 = dy, call.column1 = k, call.column2 = v, call.sum1 = dq, call.sum2 = nullptr;
  call.rows = s->q_tokens, call.columns = s->k_tokens;
  call.row1_stride = s->q_stride, call.row2_stride = s->y_stride;
  call.column1_stride = s->k_stride, call.column2_stride = s->v_stride;
  launch(context, backward_kernel<S, false>, s->batch * s->heads * divide_up(s->q_tokens, S::TILE), shared, call,
         "attention's backward of queries");
}

template <typename T>
void run_delta(kern_cuda *context, const kern_attention *s, const T *y, const T *dy, float *delta) {
  const int64_t n = s->batch * s->q_tokens * s->heads;
  if (n == 0) return;
  delta_kernel<T><<<static_cast<unsigned>(divide_up(n, THREADS / 32)), THREADS, 0, context->stream>>>(
      n, s->heads, s->q_tokens, static_cast<int>(s->head_dim), s->y_stride, y, dy, delta);
  launched(context, "attention's delta");
}

}  // namespace
}  // namespace kern

void kern_attention_own_forward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                const void *v, void *y, float *lse) {
  if (kern_cuda_failed(context)) return;
  if (context->options.dtype == KERN_BF16) {
    kern_attention_mma_forward(context, size, q, k, v, y, lse);
    return;
  }
  kern::with_shape(size->head_dim, [&](auto shape) {
    kern::run_forward<decltype(shape)>(context, size, static_cast<const float *>(q), static_cast<const float *>(k),
                                       static_cast<const float *>(v), static_cast<float *>(y), lse);
  });
}

void kern_attention_own_backward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                 const void *v, const void *y, const float *lse, const void *dy, void *dq, void *dk,
                                 void *dv, bool accumulate) {
  if (kern_cuda_failed(context)) return;
  float *delta = static_cast<float *>(context->options.workspace);
  kern::with_dtype(context->options.dtype, [&](auto dtype) {
    using T = decltype(dtype);
    kern::run_delta(context, size, static_cast<const T *>(y), static_cast<const T *>(dy), delta);
  });
  if (context->options.dtype == KERN_BF16) {
    kern_attention_mma_backward(context, size, q, k, v, lse, delta, dy, dq, dk, dv, accumulate);
    return;
  }
  kern::with_shape(size->head_dim, [&](auto shape) {
    kern::run_backward<decltype(shape)>(context, size, static_cast<const float *>(q), static_cast<const float *>(k),
                                        static_cast<const float *>(v), lse, delta, static_cast<const float *>(dy),
                                        static_cast<float *>(dq), static_cast<float *>(dk), static_cast<float *>(dv),
                                        accumulate);
  });
}

void kern_attention_add(kern_cuda *context, int64_t rows, int64_t width, const void *x, void *y, int64_t y_stride) {
  if (kern_cuda_failed(context) || rows * width == 0) return;
  kern::with_dtype(context->options.dtype, [&](auto dtype) {
    using T = decltype(dtype);
    constexpr int64_t COUNT = kern::pack<T>::count;
    const bool wide = width % COUNT == 0 && y_stride % COUNT == 0 && kern::is_aligned16(x) && kern::is_aligned16(y);
    const int64_t across = wide ? width / COUNT : width, n = rows * across;
    const int64_t blocks = std::min<int64_t>(kern::divide_up(n, kern::THREADS), 32 * context->sm_count);
    const auto kernel = wide ? kern::add_kernel<T, true> : kern::add_kernel<T, false>;
    kernel<<<static_cast<unsigned>(blocks), kern::THREADS, 0, context->stream>>>(n, across, static_cast<const T *>(x),
                                                                                 static_cast<T *>(y), y_stride);
    kern::launched(context, "attention's addition");
  });
}
