// Backward of attention to few keys in bf16, as from an image to the words of its text, in one pass over the queries:
// all keys and values of a head lie in shared memory, so that a tile of queries has all its scores at once (the
// gradients as in Dao, "FlashAttention-2", 2023; what it takes from the output, the sum over keys of P dP, is at hand
// here, and the output is not read). A tile is read once, and dq written once.
//
// A block goes over a slab of some tiles of a head. Each warp has 16 queries of a tile, makes their P and dS in
// registers and from them dq; P and dS then go through shared memory, where half of the warps add up dv = P^T dy and
// half dk = dS^T q, each its channels of them for all keys, in registers until the slab has ended. Slabs' sums lie in
// the workspace, and a second kernel adds them in their order. How many slabs there are goes by the sizes alone, so
// every sum has one order on any device and any part of one.
#include "kernels/cuda/attention_few.cuh"

namespace kern {
namespace {

template <int Dim, int Keys, int Warps>
struct few_shape : few_tile<Dim, Keys> {
  using few_tile<Dim, Keys>::PITCH, few_tile<Dim, Keys>::CHANNELS, few_tile<Dim, Keys>::KEY_VALUES;
  static constexpr int WARPS = Warps, THREADS = Warps * 32, ROWS = Warps * 16, SCORES_PITCH = Keys + 8;
  static constexpr int OWN = CHANNELS / (Warps / 2);  // of a gradient's products of 8 channels, a warp's
  static constexpr int ROW_VALUES = ROWS * PITCH, SCORES_VALUES = ROWS * SCORES_PITCH;
  static constexpr int BYTES = (2 * KEY_VALUES + 5 * ROW_VALUES + 2 * SCORES_VALUES) * 2;
  static constexpr int BLOCKS = Warps == 4 ? 2 : 1;  // on a multiprocessor
  static_assert(CHANNELS % (Warps / 2) == 0, "equal shares");
};

struct few_call {
  const bf16 *q, *k, *v, *dy;
  const float *lse;
  bf16 *dq;         // nullptr: not wanted
  float *partials;  // [pair, slab, dv and dk, key, channel]; nullptr: neither is wanted
  int64_t q_stride, k_stride, v_stride, y_stride, dq_stride, heads, q_tokens, slabs, slab_tokens;
  int dim, keys;
  float scale;
  bool accumulate;
};

// The warp's 16 rows of P, not rounded: exp(scale s - lse), 0 where there is no key. lse2: in powers of 2, of the
// lane's two rows, infinite where there is no query.
template <typename S>
__device__ __forceinline__ void few_probabilities(const float (&lse2)[2], float scale, int keys,
                                                  float (&s)[S::TILES][4]) {
#pragma unroll
  for (int j = 0; j < S::TILES; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) s[j][e] = power_of_2(fmaf(s[j][e], scale * LOG2_E, -lse2[e / 2]));
  few_mask<S>(keys, 0, s);
}

template <typename S>
__device__ __forceinline__ void few_store_scores(const uint32_t (&s)[S::TILES / 2][4], bf16 *to) {
#pragma unroll
  for (int j = 0; j < S::TILES / 2; j++) store_matrices(to + j * 16, S::SCORES_PITCH, s[j]);
}

// dp becomes dS = scale P (dP - sum over keys of P dP).
template <typename S>
__device__ __forceinline__ void few_score_gradients(const float (&p)[S::TILES][4], float scale,
                                                    float (&dp)[S::TILES][4]) {
  float delta[2] = {};
#pragma unroll
  for (int j = 0; j < S::TILES; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) delta[e / 2] = fmaf(p[j][e], dp[j][e], delta[e / 2]);
  delta[0] = scale * four_sum(delta[0]), delta[1] = scale * four_sum(delta[1]);
#pragma unroll
  for (int j = 0; j < S::TILES; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) dp[j][e] = p[j][e] * fmaf(scale, dp[j][e], -delta[e / 2]);
}

// sum[key][channel of the warp] += scores^T rows, over a tile of queries
template <typename S>
__device__ __forceinline__ void few_add_up(const bf16 *scores, const bf16 *rows, int first_channel,
                                           float (&sum)[S::KEYS / 16][S::OWN][4]) {
  const int lane = threadIdx.x % 32;
  const bf16 *of_scores = scores + (lane / 16 * 8 + lane % 8) * S::SCORES_PITCH + lane / 8 % 2 * 8;
  const bf16 *of_rows = rows + lane % 16 * S::PITCH + first_channel + lane / 16 * 8;
#pragma unroll
  for (int row = 0; row < S::ROWS; row += 16) {
    uint32_t right[(S::OWN + 1) / 2][4];  // where OWN is odd, the second half of the last is nobody's
#pragma unroll
    for (int c = 0; c < S::OWN; c += 2) load_matrices_turned(right[c / 2], of_rows + row * S::PITCH + c * 8);
#pragma unroll
    for (int m = 0; m < S::KEYS / 16; m++) {
      uint32_t left[4];
      load_matrices_turned(left, of_scores + row * S::SCORES_PITCH + m * 16);
#pragma unroll
      for (int c = 0; c < S::OWN; c++) multiply(sum[m][c], left, right[c / 2][c % 2 * 2], right[c / 2][c % 2 * 2 + 1]);
    }
  }
}

template <typename S>
__device__ __forceinline__ void few_store_sums(const float (&sum)[S::KEYS / 16][S::OWN][4], int keys, int dim,
                                               int first_channel, float *to) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < S::KEYS / 16; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int key = m * 16 + half * 8 + lane / 4;
      if (key >= keys) continue;
#pragma unroll
      for (int c = 0; c < S::OWN; c++)
        if (first_channel + c * 8 < dim)
          *reinterpret_cast<float2 *>(to + key * dim + first_channel + c * 8 + lane % 4 * 2) =
              make_float2(sum[m][c][2 * half], sum[m][c][2 * half + 1]);
    }
}

template <typename S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS) few_backward_kernel(const __grid_constant__ few_call call) {
  extern __shared__ uint4 shared16[];
  bf16 *k = reinterpret_cast<bf16 *>(shared16), *v = k + S::KEY_VALUES, *q = v + S::KEY_VALUES;
  bf16 *dy = q + 2 * S::ROW_VALUES, *p = dy + 2 * S::ROW_VALUES, *ds = p + S::SCORES_VALUES,
       *staged = ds + S::SCORES_VALUES;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own_row = warp * 16;
  const bool makes_dk = warp >= S::WARPS / 2;
  const int own_channel = warp % (S::WARPS / 2) * S::OWN * 8;
  const int64_t pair = blockIdx.x / call.slabs, slab = blockIdx.x % call.slabs;
  const int64_t batch = pair / call.heads, channel = pair % call.heads * call.dim, token = batch * call.q_tokens;
  const bf16 *of_q = call.q + token * call.q_stride + channel, *of_dy = call.dy + token * call.y_stride + channel;
  const float *of_lse = call.lse + pair * call.q_tokens;
  const int64_t begin = slab * call.slab_tokens, end = min(begin + call.slab_tokens, call.q_tokens);
  const auto load_queries = [&](int64_t first, int into) {
    const int there = static_cast<int>(min(end - first, static_cast<int64_t>(S::ROWS)));
    few_load<S, S::ROWS, S::THREADS>(threadIdx.x, of_q + first * call.q_stride, call.q_stride, there, call.dim,
                                     q + into * S::ROW_VALUES);
    few_load<S, S::ROWS, S::THREADS>(threadIdx.x, of_dy + first * call.y_stride, call.y_stride, there, call.dim,
                                     dy + into * S::ROW_VALUES);
  };
  few_load<S, S::KEYS, S::THREADS>(threadIdx.x, call.k + batch * call.keys * call.k_stride + channel, call.k_stride,
                                   call.keys, call.dim, k);
  few_load<S, S::KEYS, S::THREADS>(threadIdx.x, call.v + batch * call.keys * call.v_stride + channel, call.v_stride,
                                   call.keys, call.dim, v);
  load_queries(begin, 0);

  float sum[S::KEYS / 16][S::OWN][4] = {};
  int now = 0;
#pragma unroll 1
  for (int64_t first = begin; first < end; first += S::ROWS, now ^= 1) {
    const int there = static_cast<int>(min(end - first, static_cast<int64_t>(S::ROWS))) - own_row;  // of the warp's
    float lse2[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = lane / 4 + half * 8;
      lse2[half] = row < there ? of_lse[first + own_row + row] * LOG2_E : INFINITY;
    }
    copies_done();
    __syncthreads();  // and all have ended with the tile before, and its scores
    if (first + S::ROWS < end) load_queries(first + S::ROWS, now ^ 1);
    const bf16 *q_tile = q + now * S::ROW_VALUES, *dy_tile = dy + now * S::ROW_VALUES;

    float s[S::TILES][4], dp[S::TILES][4];
    few_scores<S>(q_tile + own_row * S::PITCH, k, s);
    few_probabilities<S>(lse2, call.scale, call.keys, s);
    uint32_t rounded[S::TILES / 2][4];
    few_round<S>(s, rounded);
    few_store_scores<S>(rounded, p + own_row * S::SCORES_PITCH);
    few_scores<S>(dy_tile + own_row * S::PITCH, v, dp);
    few_score_gradients<S>(s, call.scale, dp);
    few_round<S>(dp, rounded);
    few_store_scores<S>(rounded, ds + own_row * S::SCORES_PITCH);
    if (call.dq != nullptr) {
      float of_dq[S::CHANNELS][4] = {};
      few_product<S>(rounded, k, of_dq);
      few_store<S>(of_dq, staged + own_row * S::PITCH, there, call.dim, call.accumulate,
                   call.dq + (token + first + own_row) * call.dq_stride + channel, call.dq_stride);
    }
    if (call.partials == nullptr) continue;
    __syncthreads();
    few_add_up<S>(makes_dk ? ds : p, makes_dk ? q_tile : dy_tile, own_channel, sum);
  }
  if (call.partials != nullptr)
    few_store_sums<S>(sum, call.keys, call.dim, own_channel,
                      call.partials + (blockIdx.x * int64_t{2} + makes_dk) * call.keys * call.dim);
}

struct few_sum_call {
  const float *partials;
  bf16 *dv, *dk;                                // nullptr: not wanted
  int64_t v_stride, k_stride, heads, n, slabs;  // n: of 8 channels
  int dim, keys;
  bool accumulate;
};

constexpr int SUM_THREADS = 256;

// Over the slabs, 8 channels of a key a thread; y of the grid is 0 for dv and 1 for dk.
__global__ void __launch_bounds__(SUM_THREADS) few_sum_kernel(const __grid_constant__ few_sum_call call) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * SUM_THREADS + threadIdx.x;
  bf16 *to = blockIdx.y == 0 ? call.dv : call.dk;
  if (i >= call.n || to == nullptr) return;
  const int across = call.dim / 8, size = call.keys * call.dim;
  const int64_t row = i / across, pair = row / call.keys;
  const int at = static_cast<int>(i % across) * 8, key = static_cast<int>(row % call.keys);
  const float *from = call.partials + (pair * call.slabs * 2 + blockIdx.y) * size + key * call.dim + at;
  float sum[8] = {};
#pragma unroll 4
  for (int64_t slab = 0; slab < call.slabs; slab++) {
    const float4 low = *reinterpret_cast<const float4 *>(from + slab * 2 * size);
    const float4 high = *reinterpret_cast<const float4 *>(from + slab * 2 * size + 4);
    sum[0] += low.x, sum[1] += low.y, sum[2] += low.z, sum[3] += low.w;
    sum[4] += high.x, sum[5] += high.y, sum[6] += high.z, sum[7] += high.w;
  }
  to += (pair / call.heads * call.keys + key) * (blockIdx.y == 0 ? call.v_stride : call.k_stride) +
        pair % call.heads * call.dim + at;
  if (call.accumulate) {
    float old[8];
    load16(to, old);
#pragma unroll
    for (int n = 0; n < 8; n++) sum[n] += old[n];
  }
  store16(to, sum);
}

// Calls f(shape) with the smallest that holds the size, and says whether there is one.
template <typename F>
bool with_few_shape(const kern_attention *s, F f) {
  if (!few_is_something(s)) return false;
  if (s->k_tokens <= 80 && s->head_dim <= 48)
    f(few_shape<48, 80, 4>());
  else if (s->k_tokens <= 80 && s->head_dim <= 64)
    f(few_shape<64, 80, 4>());
  else if (s->k_tokens <= 80 && s->head_dim <= 80)
    f(few_shape<80, 80, 4>());
  else if (s->k_tokens <= 128 && s->head_dim <= 64)
    f(few_shape<64, 128, 8>());
  else
    return false;
  return true;
}

struct few_slabs {
  int64_t count, tokens;  // of a head; of each but the last
};

// Enough blocks for any device to be busy with, and no more than that: each reads its keys and writes its sums.
template <typename S>
few_slabs slabs_of(const kern_attention *s) {
  const int64_t tiles = divide_up(s->q_tokens, S::ROWS), each = few_share(s, tiles, 512, 2, 8);
  return {divide_up(tiles, each), each * S::ROWS};
}

template <typename S>
void run_few(kern_cuda *context, const kern_attention *s, few_call call, few_sum_call sums) {
  const few_slabs slabs = slabs_of<S>(s);
  const int64_t pairs = s->batch * s->heads;
  call.slabs = sums.slabs = slabs.count, call.slab_tokens = slabs.tokens;
  if (!KERN_CUDA_TRY(
          context, cudaFuncSetAttribute(few_backward_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES)))
    return;
  few_backward_kernel<S><<<static_cast<unsigned>(pairs * slabs.count), S::THREADS, S::BYTES, context->stream>>>(call);
  launched(context, "attention's backward of few keys");
  if (call.partials == nullptr) return;
  sums.n = pairs * s->k_tokens * s->head_dim / 8;
  few_sum_kernel<<<dim3(static_cast<unsigned>(divide_up(sums.n, SUM_THREADS)), 2), SUM_THREADS, 0, context->stream>>>(
      sums);
  launched(context, "attention's sums of few keys");
}

}  // namespace
}  // namespace kern

size_t kern_attention_few_workspace(const kern_attention *size) {
  int64_t slabs = 0;
  (void)kern::with_few_shape(size, [&](auto shape) { slabs = kern::slabs_of<decltype(shape)>(size).count; });
  return kern_attention_round(
      static_cast<size_t>(size->batch * size->heads * slabs * 2 * size->k_tokens * size->head_dim) * sizeof(float));
}

bool kern_attention_few_takes_backward(const kern_cuda *context, const kern_attention *size) {
  int bytes = 0;
  return kern::with_few_shape(size, [&](auto shape) { bytes = decltype(shape)::BYTES; }) &&
         kern::few_may_take(context, size, bytes);
}

void kern_attention_few_backward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                 const void *v, const float *lse, const void *dy, const kern_attention_few *to) {
  using namespace kern;
  if (kern_cuda_failed(context)) return;
  few_call call = {};
  call.q = static_cast<const bf16 *>(q), call.k = static_cast<const bf16 *>(k), call.v = static_cast<const bf16 *>(v);
  call.dy = static_cast<const bf16 *>(dy), call.lse = lse, call.dq = static_cast<bf16 *>(to->dq);
  call.partials = to->dk != nullptr || to->dv != nullptr ? static_cast<float *>(to->workspace) : nullptr;
  call.q_stride = size->q_stride, call.k_stride = size->k_stride, call.v_stride = size->v_stride;
  call.y_stride = size->y_stride, call.dq_stride = to->dq_stride, call.heads = size->heads;
  call.q_tokens = size->q_tokens, call.dim = static_cast<int>(size->head_dim);
  call.keys = static_cast<int>(size->k_tokens), call.scale = size->scale, call.accumulate = to->accumulate;
  few_sum_call sums = {};
  sums.partials = call.partials, sums.dv = static_cast<bf16 *>(to->dv), sums.dk = static_cast<bf16 *>(to->dk);
  sums.v_stride = to->dv_stride, sums.k_stride = to->dk_stride, sums.heads = size->heads;
  sums.dim = call.dim, sums.keys = call.keys, sums.accumulate = to->accumulate;
  (void)with_few_shape(size, [&](auto shape) { run_few<decltype(shape)>(context, size, call, sums); });
}
