// Attention to few keys in bf16, as from an image to the words of its text: all keys and values of a head lie in shared
// memory, so that 16 queries of a warp have all their scores at once, and the softmax is made once. After a block has
// its keys, its warps go on by themselves, each with the next queries on their way.
#include "kernels/cuda/attention_few.cuh"

namespace kern {
namespace {

template <int Dim, int Keys, int Blocks>
struct few_forward_shape : few_tile<Dim, Keys> {
  using few_tile<Dim, Keys>::PITCH, few_tile<Dim, Keys>::KEY_VALUES;
  static constexpr int WARPS = 4, THREADS = WARPS * 32, ROWS = WARPS * 16, OWN_VALUES = 16 * PITCH;
  static constexpr int BYTES = (2 * KEY_VALUES + 2 * WARPS * OWN_VALUES) * 2;
  static constexpr int BLOCKS = Blocks;  // on a multiprocessor
};

struct few_forward_call {
  const bf16 *q, *k, *v;
  bf16 *y;
  float *lse;  // nullptr: not wanted
  int64_t q_stride, k_stride, v_stride, y_stride, heads, q_tokens, parts, part_tokens;
  int dim, keys;
  float scale;
};

// s becomes exp(scale s - maximum), not rounded; the maximum is in powers of 2. Both are of the lane's two rows.
template <typename S>
__device__ __forceinline__ void few_softmax(float scale, int keys, float (&s)[S::TILES][4], float (&most)[2],
                                            float (&total)[2]) {
#pragma unroll
  for (int j = 0; j < S::TILES; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) s[j][e] *= scale * LOG2_E;
  few_mask<S>(keys, -INFINITY, s);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float now = -INFINITY, sum = 0;
#pragma unroll
    for (int j = 0; j < S::TILES; j++) now = fmaxf(now, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    most[half] = now = four_max(now);
#pragma unroll
    for (int j = 0; j < S::TILES; j++)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; e++) {
        s[j][e] = power_of_2(s[j][e] - now);
        sum += s[j][e];
      }
    total[half] = four_sum(sum);
  }
}

template <typename S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    few_forward_kernel(const __grid_constant__ few_forward_call call) {
  extern __shared__ uint4 shared16[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bf16 *k = reinterpret_cast<bf16 *>(shared16), *v = k + S::KEY_VALUES,
       *own = v + S::KEY_VALUES + warp * 2 * S::OWN_VALUES;
  const int64_t pair = blockIdx.x / call.parts, begin = blockIdx.x % call.parts * call.part_tokens;
  const int64_t batch = pair / call.heads, channel = pair % call.heads * call.dim, token = batch * call.q_tokens;
  const int64_t end = min(begin + call.part_tokens, call.q_tokens);
  const bf16 *of_q = call.q + token * call.q_stride + channel;
  const auto load_queries = [&](int64_t first, int into) {
    few_load<S, 16, 32>(lane, of_q + first * call.q_stride, call.q_stride,
                        static_cast<int>(min(end - first, int64_t{16})), call.dim, own + into * S::OWN_VALUES);
  };
  few_load<S, S::KEYS, S::THREADS>(threadIdx.x, call.k + batch * call.keys * call.k_stride + channel, call.k_stride,
                                   call.keys, call.dim, k);
  few_load<S, S::KEYS, S::THREADS>(threadIdx.x, call.v + batch * call.keys * call.v_stride + channel, call.v_stride,
                                   call.keys, call.dim, v);
  int64_t first = begin + warp * 16;
  if (first < end) load_queries(first, 0);
  copies_done();
  __syncthreads();
  int now = 0;
#pragma unroll 1
  for (; first < end; first += S::ROWS, now ^= 1) {
    copies_done();
    __syncwarp();  // and all have stored what was here before
    if (first + S::ROWS < end) load_queries(first + S::ROWS, now ^ 1);
    const int there = static_cast<int>(min(end - first, int64_t{16}));
    bf16 *rows = own + now * S::OWN_VALUES;
    float s[S::TILES][4], most[2], total[2], sum[S::CHANNELS][4] = {};
    few_scores<S>(rows, k, s);
    few_softmax<S>(call.scale, call.keys, s, most, total);
    uint32_t rounded[S::TILES / 2][4];
    few_round<S>(s, rounded);
    few_product<S>(rounded, v, sum);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float factor = 1.0f / total[half];
#pragma unroll
      for (int c = 0; c < S::CHANNELS; c++) {
        sum[c][2 * half] *= factor;
        sum[c][2 * half + 1] *= factor;
      }
      const int row = lane / 4 + half * 8;
      if (call.lse != nullptr && lane % 4 == 0 && row < there)
        call.lse[pair * call.q_tokens + first + row] = most[half] * LN_2 + logf(total[half]);
    }
    __syncwarp();  // the queries have been read
    few_store<S>(sum, rows, there, call.dim, false, call.y + (token + first) * call.y_stride + channel, call.y_stride);
  }
}

// Calls f(shape) with the smallest that holds the size, and says whether there is one.
template <typename F>
bool with_few_forward_shape(const kern_attention *s, F f) {
  if (!few_is_something(s)) return false;
  if (s->k_tokens <= 80 && s->head_dim <= 48)
    f(few_forward_shape<48, 80, 4>());
  else if (s->k_tokens <= 80 && s->head_dim <= 64)
    f(few_forward_shape<64, 80, 4>());
  else if (s->k_tokens <= 80 && s->head_dim <= 80)
    f(few_forward_shape<80, 80, 3>());
  else if (s->k_tokens <= 80 && s->head_dim <= 160)
    f(few_forward_shape<160, 80, 2>());
  else if (s->k_tokens <= 128 && s->head_dim <= 64)
    f(few_forward_shape<64, 128, 3>());
  else
    return false;
  return true;
}

// Some tiles a block, so that keys are read less often than queries, where there are blocks enough.
template <typename S>
void run_few_forward(kern_cuda *context, const kern_attention *s, few_forward_call call) {
  const int64_t tiles = divide_up(s->q_tokens, S::ROWS), each = few_share(s, tiles, 1024, 1, 8);
  call.parts = divide_up(tiles, each), call.part_tokens = each * S::ROWS;
  if (!KERN_CUDA_TRY(
          context, cudaFuncSetAttribute(few_forward_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES)))
    return;
  few_forward_kernel<S>
      <<<static_cast<unsigned>(s->batch * s->heads * call.parts), S::THREADS, S::BYTES, context->stream>>>(call);
  launched(context, "attention to few keys");
}

}  // namespace
}  // namespace kern

bool kern_attention_few_takes_forward(const kern_cuda *context, const kern_attention *size) {
  int bytes = 0;
  return kern::with_few_forward_shape(size, [&](auto shape) { bytes = decltype(shape)::BYTES; }) &&
         kern::few_may_take(context, size, bytes);
}

void kern_attention_few_forward(kern_cuda *context, const kern_attention *size, const void *q, const void *k,
                                const void *v, void *y, float *lse) {
  using namespace kern;
  if (kern_cuda_failed(context)) return;
  few_forward_call call = {};
  call.q = static_cast<const bf16 *>(q), call.k = static_cast<const bf16 *>(k), call.v = static_cast<const bf16 *>(v);
  call.y = static_cast<bf16 *>(y), call.lse = lse, call.q_stride = size->q_stride, call.k_stride = size->k_stride;
  call.v_stride = size->v_stride, call.y_stride = size->y_stride, call.heads = size->heads;
  call.q_tokens = size->q_tokens, call.dim = static_cast<int>(size->head_dim);
  call.keys = static_cast<int>(size->k_tokens), call.scale = size->scale;
  (void)with_few_forward_shape(size, [&](auto shape) { run_few_forward<decltype(shape)>(context, size, call); });
}
