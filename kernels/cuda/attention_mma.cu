// Our own attention of bf16, on tensor cores, for what cuDNN does not take: the passes of attention_own.cu (Dao,
// "FlashAttention-2", 2023, backward without atomic additions) with products of 16 x 8 x 16. A block is 4 warps and has
// 64 rows of one head, 16 for each warp; it goes through COLUMNS tokens at a time. Scores stay in registers: what a
// product of 16 x 8 leaves there is what the next takes as its first factor. Tiles lie in shared memory as they come,
// with rows 16 bytes apart in banks. "Rows" and "columns" are those of attention_own.cu.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/mma.cuh"

namespace kern {
namespace {

constexpr int WARPS = 4, THREADS = WARPS * 32, ROWS = WARPS * 16;

// Dim: head_dim, rounded up.
template <int Dim, int Columns>
struct mma_shape {
  static constexpr int COLUMNS = Columns, PITCH = Dim + 8, TILES = Columns / 8, SUMS = Dim / 8;
  static constexpr int ROWS_BYTES = ROWS * PITCH * 2, COLUMNS_BYTES = Columns * PITCH * 2;
};

// Tokens [0, there) of a head to `rows` rows of shared memory; the others, and channels up to a multiple of 16, are 0.
template <typename S>
__device__ __forceinline__ void load_tokens(const bf16 *from, int64_t stride, int rows, int there, int dim, bool wide,
                                            bf16 *to) {
  const int padded = (dim + 15) / 16 * 16;
  if (wide) {
    const int across = padded / 8;
    for (int i = threadIdx.x; i < rows * across; i += THREADS) {
      const int row = i / across, at = i % across * 8;
      const bool is = row < there && at < dim;
      copy16(to + row * S::PITCH + at, is ? from + row * stride + at : from, is);
    }
    return;
  }
  for (int i = threadIdx.x; i < rows * padded; i += THREADS) {
    const int row = i / padded, at = i % padded;
    to[row * S::PITCH + at] = row < there && at < dim ? from[row * stride + at] : from_float<bf16>(0.0f);
  }
}

// s = the warp's rows of a times rows of b
template <typename S>
__device__ __forceinline__ void scores_of(const bf16 *a, const bf16 *b, int dim, float (&s)[S::TILES][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bf16 *of_a = a + (warp * 16 + lane % 16) * S::PITCH + lane / 16 * 8;
  const bf16 *of_b = b + (lane % 8 + lane / 16 * 8) * S::PITCH + lane / 8 % 2 * 8;
#pragma unroll
  for (int j = 0; j < S::TILES; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) s[j][e] = 0;
#pragma unroll 2
  for (int c = 0; c < dim; c += 16) {
    uint32_t left[4];
    load_matrices(left, of_a + c);
#pragma unroll
    for (int j = 0; j < S::TILES; j += 2) {
      uint32_t right[4];
      load_matrices(right, of_b + j * 8 * S::PITCH + c);
      multiply(s[j], left, right[0], right[1]);
      multiply(s[j + 1], left, right[2], right[3]);
    }
  }
}

// sum += s, rounded, times rows of b
template <typename S>
__device__ __forceinline__ void add_product(const float (&s)[S::TILES][4], const bf16 *b, float (&sum)[S::SUMS][4]) {
  const int lane = threadIdx.x % 32;
  const bf16 *of_b = b + lane % 16 * S::PITCH + lane / 16 * 8;
#pragma unroll
  for (int j = 0; j < S::TILES; j += 2) {
    const uint32_t left[4] = {packed_pair(s[j][0], s[j][1]), packed_pair(s[j][2], s[j][3]), packed_pair(s[j + 1][0], s[j + 1][1]),
                              packed_pair(s[j + 1][2], s[j + 1][3])};
#pragma unroll
    for (int c = 0; c < S::SUMS; c += 2) {
      uint32_t right[4];
      load_matrices_turned(right, of_b + j * 8 * S::PITCH + c * 8);
      multiply(sum[c], left, right[0], right[1]);
      multiply(sum[c + 1], left, right[2], right[3]);
    }
  }
}

// Where a lane's values of a 16 x 8 are: e of 4 is in row_of(e), column_of(e).
__device__ __forceinline__ int row_of(int e) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + e / 2 * 8; }
__device__ __forceinline__ int column_of(int e) { return threadIdx.x % 4 * 2 + e % 2; }

template <typename S>
__device__ __forceinline__ void store_sums(const float (&sum)[S::SUMS][4], int rows, int dim, bool accumulate, bf16 *to,
                                           int64_t stride) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = row_of(2 * half);
    if (row >= rows) continue;
#pragma unroll
    for (int c = 0; c < S::SUMS; c++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int channel = c * 8 + column_of(e);
        if (channel >= dim) continue;
        bf16 *at = to + row * stride + channel;
        const float value = sum[c][2 * half + e];
        *at = from_float<bf16>(accumulate ? to_float<bf16>(*at) + value : value);
      }
  }
}

struct mma_place {
  int64_t batch, head, first;  // first: row
};
__device__ __forceinline__ mma_place place_of(int64_t heads, int64_t rows) {
  const int64_t tiles = (rows + ROWS - 1) / ROWS, index = blockIdx.x;
  return {index / (tiles * heads), index / tiles % heads, index % tiles * ROWS};
}

__device__ __forceinline__ int at_most(int64_t n, int most) { return n < most ? static_cast<int>(n) : most; }

struct mma_forward_call {
  const bf16 *q, *k, *v;
  bf16 *y;
  float *lse;
  int64_t heads, q_tokens, k_tokens, q_stride, k_stride, v_stride, y_stride;
  int dim;
  float scale;
  bool wide;
};

// While scores are made the values come, and while values are added up the next keys.
template <typename S>
__global__ void __launch_bounds__(THREADS) mma_forward_kernel(mma_forward_call call) {
  extern __shared__ uint4 shared16[];
  bf16 *q = reinterpret_cast<bf16 *>(shared16), *k = q + ROWS * S::PITCH, *v = k + S::COLUMNS * S::PITCH;
  const mma_place at = place_of(call.heads, call.q_tokens);
  const int rows = at_most(call.q_tokens - at.first, ROWS);
  const int64_t channel = at.head * call.dim, token = at.batch * call.q_tokens + at.first;
  const bf16 *keys = call.k + at.batch * call.k_tokens * call.k_stride + channel;
  const bf16 *values = call.v + at.batch * call.k_tokens * call.v_stride + channel;
  const float scale = call.scale * LOG2_E;  // exponentials are of 2
  load_tokens<S>(call.q + token * call.q_stride + channel, call.q_stride, ROWS, rows, call.dim, call.wide, q);
  load_tokens<S>(keys, call.k_stride, S::COLUMNS, at_most(call.k_tokens, S::COLUMNS), call.dim, call.wide, k);
  float sum[S::SUMS][4] = {}, most[2] = {-INFINITY, -INFINITY}, total[2] = {};
  for (int64_t first = 0; first < call.k_tokens; first += S::COLUMNS) {
    const int columns = at_most(call.k_tokens - first, S::COLUMNS);
    copies_done();
    __syncthreads();
    load_tokens<S>(values + first * call.v_stride, call.v_stride, S::COLUMNS, columns, call.dim, call.wide, v);
    float s[S::TILES][4];
    scores_of<S>(q, k, call.dim, s);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float now = -INFINITY;
#pragma unroll
      for (int j = 0; j < S::TILES; j++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          s[j][e] = j * 8 + column_of(e) < columns ? s[j][e] * scale : -INFINITY;
          now = fmaxf(now, s[j][e]);
        }
      now = fmaxf(most[half], four_max(now));
      const float shrink = exp2f(most[half] - now);  // what is there was relative to a lower maximum
      most[half] = now;
      total[half] *= shrink;
#pragma unroll
      for (int j = 0; j < S::TILES; j++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
          s[j][e] = exp2f(s[j][e] - now);
          total[half] += s[j][e];
        }
#pragma unroll
      for (int c = 0; c < S::SUMS; c++) {
        sum[c][2 * half] *= shrink;
        sum[c][2 * half + 1] *= shrink;
      }
    }
    copies_done();
    __syncthreads();
    const int64_t next = first + S::COLUMNS;
    if (next < call.k_tokens)
      load_tokens<S>(keys + next * call.k_stride, call.k_stride, S::COLUMNS, at_most(call.k_tokens - next, S::COLUMNS),
                     call.dim, call.wide, k);
    add_product<S>(s, v, sum);
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float all = four_sum(total[half]), factor = 1.0f / all;
#pragma unroll
    for (int c = 0; c < S::SUMS; c++) {
      sum[c][2 * half] *= factor;
      sum[c][2 * half + 1] *= factor;
    }
    const int row = row_of(2 * half);
    if (call.lse != nullptr && threadIdx.x % 4 == 0 && row < rows)
      call.lse[(at.batch * call.heads + at.head) * call.q_tokens + at.first + row] = most[half] * LN_2 + logf(all);
  }
  store_sums<S>(sum, rows, call.dim, false, call.y + token * call.y_stride + channel, call.y_stride);
}

// As attention_own.cu's.
struct mma_backward_call {
  const bf16 *row1, *row2, *column1, *column2;
  bf16 *sum1, *sum2;
  const float *lse, *delta;
  int64_t heads, rows, columns, row1_stride, row2_stride, column1_stride, column2_stride;
  int dim;
  float scale;
  bool accumulate, wide;
};

// ONE, TWO: which sums are made; both where there are registers for both.
template <typename S, bool OF_KEYS, bool ONE, bool TWO>
__global__ void __launch_bounds__(THREADS) mma_backward_kernel(mma_backward_call call) {
  extern __shared__ uint4 shared16[];
  bf16 *row1 = reinterpret_cast<bf16 *>(shared16), *row2 = row1 + ROWS * S::PITCH, *column1 = row2 + ROWS * S::PITCH,
       *column2 = column1 + S::COLUMNS * S::PITCH;
  float *lse = reinterpret_cast<float *>(column2 + S::COLUMNS * S::PITCH), *delta = lse + ROWS;
  const mma_place at = place_of(call.heads, call.rows);
  const int rows = at_most(call.rows - at.first, ROWS);
  const int64_t channel = at.head * call.dim, token = at.batch * call.rows + at.first;
  const int64_t queries = OF_KEYS ? call.columns : call.rows;
  const float *of_lse = call.lse + (at.batch * call.heads + at.head) * queries;
  const float *of_delta = call.delta + (at.batch * call.heads + at.head) * queries;
  load_tokens<S>(call.row1 + token * call.row1_stride + channel, call.row1_stride, ROWS, rows, call.dim, call.wide,
                 row1);
  load_tokens<S>(call.row2 + token * call.row2_stride + channel, call.row2_stride, ROWS, rows, call.dim, call.wide,
                 row2);
  if (!OF_KEYS && threadIdx.x < ROWS) {
    const bool there = static_cast<int>(threadIdx.x) < rows;
    lse[threadIdx.x] = there ? of_lse[at.first + threadIdx.x] : 0.0f;
    delta[threadIdx.x] = there ? of_delta[at.first + threadIdx.x] : 0.0f;
  }
  float sum1[ONE ? S::SUMS : 1][4] = {}, sum2[TWO ? S::SUMS : 1][4] = {};
  for (int64_t first = 0; first < call.columns; first += S::COLUMNS) {
    const int columns = at_most(call.columns - first, S::COLUMNS);
    const int64_t from = at.batch * call.columns + first;
    __syncthreads();
    load_tokens<S>(call.column1 + from * call.column1_stride + channel, call.column1_stride, S::COLUMNS, columns,
                   call.dim, call.wide, column1);
    load_tokens<S>(call.column2 + from * call.column2_stride + channel, call.column2_stride, S::COLUMNS, columns,
                   call.dim, call.wide, column2);
    if (OF_KEYS && threadIdx.x < S::COLUMNS) {
      const bool there = static_cast<int>(threadIdx.x) < columns;
      lse[threadIdx.x] = there ? of_lse[first + threadIdx.x] : 0.0f;
      delta[threadIdx.x] = there ? of_delta[first + threadIdx.x] : 0.0f;
    }
    copies_done();
    __syncthreads();
    float p[S::TILES][4];
    scores_of<S>(row1, column1, call.dim, p);
#pragma unroll
    for (int j = 0; j < S::TILES; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int row = row_of(e), column = j * 8 + column_of(e);
        const bool there = row < rows && column < columns;
        p[j][e] = there ? exp2f((p[j][e] * call.scale - lse[OF_KEYS ? column : row]) * LOG2_E) : 0.0f;
      }
    if constexpr (TWO) add_product<S>(p, column2, sum2);
    if constexpr (ONE) {
      float d[S::TILES][4];
      scores_of<S>(row2, column2, call.dim, d);
#pragma unroll
      for (int j = 0; j < S::TILES; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int row = row_of(e), column = j * 8 + column_of(e);
          const bool there = row < rows && column < columns;
          d[j][e] = there ? call.scale * (p[j][e] * (d[j][e] - delta[OF_KEYS ? column : row])) : 0.0f;
        }
      add_product<S>(d, column1, sum1);
    }
  }
  if constexpr (ONE)
    store_sums<S>(sum1, rows, call.dim, call.accumulate, call.sum1 + token * call.row1_stride + channel,
                  call.row1_stride);
  if constexpr (TWO)
    store_sums<S>(sum2, rows, call.dim, call.accumulate, call.sum2 + token * call.row2_stride + channel,
                  call.row2_stride);
}

template <typename Kernel, typename Call>
void launch(kern_cuda *context, Kernel kernel, int64_t blocks, size_t shared, const Call &call, const char *what) {
  if (blocks == 0 || !KERN_CUDA_TRY(context, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                                  static_cast<int>(shared))))
    return;
  kernel<<<static_cast<unsigned>(blocks), THREADS, shared, context->stream>>>(call);
  launched(context, what);
}

bool is_wide(const kern_attention *s, const void *a, const void *b, const void *c) {
  return s->head_dim % 8 == 0 && s->q_stride % 8 == 0 && s->k_stride % 8 == 0 && s->v_stride % 8 == 0 &&
         s->y_stride % 8 == 0 && is_aligned16(a) && is_aligned16(b) && is_aligned16(c);
}

template <typename S, bool OF_KEYS, bool ONE, bool TWO>
void run_pass(kern_cuda *context, int64_t batch, const mma_backward_call &call, const char *what) {
  launch(context, mma_backward_kernel<S, OF_KEYS, ONE, TWO>, batch * call.heads * divide_up(call.rows, ROWS),
         2 * (S::ROWS_BYTES + S::COLUMNS_BYTES) + 2 * ROWS * sizeof(float), call, what);
}

template <typename S, bool BOTH>
void run_passes(kern_cuda *context, const kern_attention *s, const mma_backward_call &keys,
                const mma_backward_call &queries) {
  const char *what = "attention's backward of keys";
  if constexpr (BOTH) {
    if (keys.sum1 != nullptr && keys.sum2 != nullptr) run_pass<S, true, true, true>(context, s->batch, keys, what);
  }
  if (keys.sum1 != nullptr && (!BOTH || keys.sum2 == nullptr))
    run_pass<S, true, true, false>(context, s->batch, keys, what);
  if (keys.sum2 != nullptr && (!BOTH || keys.sum1 == nullptr))
    run_pass<S, true, false, true>(context, s->batch, keys, what);
  if (queries.sum1 != nullptr)
    run_pass<S, false, true, false>(context, s->batch, queries, "attention's backward of queries");
}

}  // namespace
}  // namespace kern

void kern_attention_mma_forward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                const void *v, void *y, float *lse) {
  using namespace kern;
  const kern_attention *s = size;
  mma_forward_call call = {};
  call.q = static_cast<const bf16 *>(q), call.k = static_cast<const bf16 *>(k), call.v = static_cast<const bf16 *>(v);
  call.y = static_cast<bf16 *>(y), call.lse = lse;
  call.heads = s->heads, call.q_tokens = s->q_tokens, call.k_tokens = s->k_tokens;
  call.q_stride = s->q_stride, call.k_stride = s->k_stride, call.v_stride = s->v_stride, call.y_stride = s->y_stride;
  call.dim = static_cast<int>(s->head_dim), call.scale = s->scale, call.wide = is_wide(s, q, k, v);
  const auto run = [&](auto shape) {
    using S = decltype(shape);
    launch(context, mma_forward_kernel<S>, s->batch * s->heads * divide_up(s->q_tokens, ROWS),
           S::ROWS_BYTES + 2 * S::COLUMNS_BYTES, call, "attention");
  };
  if (s->head_dim <= 64)
    run(mma_shape<64, 64>());
  else if (s->head_dim <= 128)
    run(mma_shape<128, 64>());
  else if (s->head_dim <= 160)
    run(mma_shape<160, 64>());
  else
    run(mma_shape<256, 32>());
}

void kern_attention_mma_backward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                 const void *v, const float *lse, const float *delta, const void *dy, void *dq,
                                 void *dk, void *dv, bool accumulate) {
  using namespace kern;
  const kern_attention *s = size;
  mma_backward_call keys = {};
  keys.lse = lse, keys.delta = delta, keys.heads = s->heads, keys.scale = s->scale, keys.accumulate = accumulate;
  keys.dim = static_cast<int>(s->head_dim), keys.wide = is_wide(s, q, k, v) && is_aligned16(dy);
  mma_backward_call queries = keys;
  keys.row1 = queries.column1 = static_cast<const bf16 *>(k),
  keys.row2 = queries.column2 = static_cast<const bf16 *>(v);
  keys.column1 = queries.row1 = static_cast<const bf16 *>(q),
  keys.column2 = queries.row2 = static_cast<const bf16 *>(dy);
  keys.row1_stride = queries.column1_stride = s->k_stride, keys.row2_stride = queries.column2_stride = s->v_stride;
  keys.column1_stride = queries.row1_stride = s->q_stride, keys.column2_stride = queries.row2_stride = s->y_stride;
  keys.rows = queries.columns = s->k_tokens, keys.columns = queries.rows = s->q_tokens;
  keys.sum1 = static_cast<bf16 *>(dk), keys.sum2 = static_cast<bf16 *>(dv), queries.sum1 = static_cast<bf16 *>(dq);
  if (s->head_dim <= 64)
    run_passes<mma_shape<64, 64>, true>(context, s, keys, queries);
  else if (s->head_dim <= 128)
    run_passes<mma_shape<128, 32>, true>(context, s, keys, queries);
  else if (s->head_dim <= 160)
    run_passes<mma_shape<160, 32>, true>(context, s, keys, queries);
  else
    run_passes<mma_shape<256, 32>, false>(context, s, keys, queries);
}
