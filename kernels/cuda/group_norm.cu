// Group norm over channels-last rows. A sweep makes mean and sum of squares about it for each block's part of a group,
// joined exactly (Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
// 1979), so that a mean far from 0 costs no digits; a second sweep, from the end, where x is still in the cache, makes
// y. Backward, with xh = (x - mean) rstd and dy already that of the norm (times SiLU'): of each channel s1 = sum of dy,
// s2 = sum of dy xh; doffset and dgain are these summed over samples; with m1, m2 = sums over the group's channels of
// gain s1, gain s2 divided by its size: dx = rstd (dy gain - m1 - xh m2).
// Sweeps whose threads have much to compute for what they read read ahead: ring.cuh. What is small enough goes another
// way: group_norm_whole.cuh.
#include "kernels/cuda/group_norm_whole.cuh"
#include "kernels/cuda/ring.cuh"

namespace kern {
namespace {

// Groups reach over chunks of channels; a chunk's part of a group has slot group + chunk.
__host__ __device__ inline int64_t slots_of(const sweep &s, int groups) { return groups + s.chunks; }

// The channels of a group that a chunk has.
template <int N>
struct group_part {
  int from, width; /* in the chunk */
  __device__ group_part(const sweep &s, int chunk, int group, int each) {
    const int span = s.columns * N, low = max(chunk * span, group * each);
    from = low - chunk * span;
    width = min(min((chunk + 1) * span, (int)s.channels), (group + 1) * each) - low;
  }
};

// The group of a channel, and of the next ones.
struct group_of {
  int group, each, left;
  __device__ group_of(int channel, int each) : group(channel / each), each(each) { left = each - channel % each; }
  __device__ void next() {
    if (--left > 0) return;
    group++;
    left = each;
  }
};

// Turns that a thread's reads are ahead.
constexpr int MOMENTS_STAGES = 3, SUMS_STAGES = 4, GRADIENT_STAGES = 4;
constexpr int MOMENTS_ROWS = 4;  // of a turn

// R rows of a thread's channels join its moments; where not FULL, only the first `rows`.
template <typename T, int N, int R, bool FULL>
__device__ __forceinline__ void join_rows(packed<T, N> (&u)[R], int rows, float &count, float (&mean)[N],
                                          float (&square)[N]) {
#pragma unroll
  for (int i = 0; i < R; i++)
    if (!FULL && i >= rows) u[i] = zero_packed<T, N>();
  const float added = FULL ? R : rows, inverse = 1.0f / added, total = count + added;
  const float share = added / total, weight = count * share;
#pragma unroll
  for (int k = 0; k < N; k++) {
    float sum = 0, about = 0;
#pragma unroll
    for (int i = 0; i < R; i++) sum += to_float<T>(u[i].values[k]);
    const float middle = sum * inverse;
#pragma unroll
    for (int i = 0; i < R; i++) {
      const float d = FULL || i < rows ? to_float<T>(u[i].values[k]) - middle : 0.0f;
      about = fmaf(d, d, about);
    }
    const float delta = middle - mean[k];
    mean[k] = fmaf(delta, share, mean[k]);
    square[k] += fmaf(delta * delta, weight, about);
  }
  count = total;
}

// partial[sample, slab][2][slots]: mean, sum of squares about it.
template <typename T, int N>
__global__ void __launch_bounds__(SWEEP_THREADS) moments(sweep s, int groups, const T *x, float *partial) {
  extern __shared__ float4 turns[];
  float *const shared = reinterpret_cast<float *>(turns);
  constexpr int R = MOMENTS_ROWS;
  const sweep_part<N> p(s);
  float count = 0, mean[N] = {}, square[N] = {};
  const int64_t step = p.step(s);
  const T *const first = x + p.at(s);
  auto rows = ring_of<T, N, R, MOMENTS_STAGES>(
      turns, [=](int turn, int r) { return ring_place<T>{first + (turn * R + r) * step, turn * R + r < p.rows}; });
  for (int i = 0; i < p.rows; i += R, rows.go_on()) {
    packed<T, N> u[R];
    rows.take(u);
    if (i + R <= p.rows)
      join_rows<T, N, R, true>(u, R, count, mean, square);
    else
      join_rows<T, N, R, false>(u, p.rows - i, count, mean, square);
  }
  __syncthreads();
  p.share(s, mean, square, shared);

  const int row_floats = s.columns * N, half = s.lanes * row_floats, each = (int)s.channels / groups;
  const int64_t slots = slots_of(s, groups);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int g = p.first / each + warp; g <= (p.first + p.width - 1) / each; g += warps) {
    const group_part<N> of(s, p.chunk, g, each);
    const int entries = s.lanes * of.width;
    const float near = shared[of.from]; /* lane 0 always has a row */
    float sum = 0;
    for (int e = lane; e < entries; e += 32) {
      const int l = e / of.width, at = l * row_floats + of.from + e % of.width;
      sum += (float)lane_rows(s, p.slab, l) * (shared[at] - near);
    }
    const float middle = near + warp_sum(sum) / (slab_rows(s, p.slab) * (float)of.width);
    float about = 0;
    for (int e = lane; e < entries; e += 32) {
      const int l = e / of.width, at = l * row_floats + of.from + e % of.width;
      const float d = shared[at] - middle;
      about += shared[half + at] + (float)lane_rows(s, p.slab, l) * d * d;
    }
    about = warp_sum(about);
    if (lane == 0) {
      float *to = partial + (p.sample * s.slabs + p.slab) * 2 * slots + g + p.chunk;
      to[0] = middle;
      to[slots] = about;
    }
  }
}

// A warp a group: statistics[batch, groups][2].
template <int N>
__global__ void __launch_bounds__(128)
    join_moments(sweep s, int groups, float epsilon, const float *partial, float *statistics) {
  const int64_t index = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
  if (index >= s.batch * groups) return;
  const int lane = threadIdx.x % 32;
  const int64_t sample = index / groups, slots = slots_of(s, groups);
  const int g = (int)(index % groups), each = (int)s.channels / groups;
  const int span = s.columns * N, first = g * each / span, last = ((g + 1) * each - 1) / span;
  const float *from = partial + sample * s.slabs * 2 * slots + g;
  const float near = from[first], total = (float)s.positions * (float)each;
  float sum = 0, about = 0;
  for (int chunk = first; chunk <= last; chunk++) {
    const float width = (float)group_part<N>(s, chunk, g, each).width;
    for (int slab = lane; slab < s.slabs; slab += 32)
      sum += slab_rows(s, slab) * width * (from[slab * 2 * slots + chunk] - near);
  }
  const float mean = near + warp_sum(sum) / total;
  for (int chunk = first; chunk <= last; chunk++) {
    const float width = (float)group_part<N>(s, chunk, g, each).width;
    for (int slab = lane; slab < s.slabs; slab += 32) {
      const float d = from[slab * 2 * slots + chunk] - mean;
      about += from[(slab * 2 + 1) * slots + chunk] + slab_rows(s, slab) * width * d * d;
    }
  }
  about = warp_sum(about);
  if (lane != 0) return;
  statistics[index * 2] = mean;
  statistics[index * 2 + 1] = 1.0f / sqrtf(about / total + epsilon);
}

// y = (x - mean) factor + shift, and SiLU of it. (With the mean in the shift a large one would cost digits.)
template <typename T, int N, bool SILU>
__global__ void __launch_bounds__(SWEEP_THREADS)
    apply(sweep s, int groups, const T *x, const T *gain, const T *offset, const float *statistics, T *y) {
  constexpr int R = 4;
  const sweep_part<N> p(s);
  if (p.rows == 0) return;
  const int each = (int)s.channels / groups;
  float mean[N], factor[N], shift[N];
  group_of g(p.channel, each);
#pragma unroll
  for (int k = 0; k < N; k++, g.next()) {
    const int c = p.channel + k;
    const float *of = statistics + (p.sample * groups + g.group) * 2;
    mean[k] = of[0];
    factor[k] = of[1] * (gain != nullptr ? to_float<T>(gain[c]) : 1.0f);
    shift[k] = offset != nullptr ? to_float<T>(offset[c]) : 0.0f;
  }
  const int64_t step = p.step(s), end = p.at(s) + (p.rows - 1) * step;
  for (int i = 0; i < p.rows; i += R) {
    packed<T, N> u[R];
#pragma unroll
    for (int r = 0; r < R; r++)
      if (i + r < p.rows) u[r] = load_packed_last<T, N>(x + end - (i + r) * step);
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (i + r >= p.rows) break;
      float out[N];
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float z = fmaf(to_float<T>(u[r].values[k]) - mean[k], factor[k], shift[k]);
        out[k] = SILU ? silu(z) : z;
      }
      store_packed<T, N>(y + end - (i + r) * step, out);
    }
  }
}

// s1 and s2 of each channel, to of_channels[sample, slab][2][channels], or summed with gain over groups, to
// of_groups[sample, slab][2][slots]; each may be NULL.
template <typename T, int N, bool SILU>
__global__ void __launch_bounds__(SWEEP_THREADS)
    sums(sweep s, int groups, const T *x, const T *gain, const T *offset, const float *statistics, const T *dy,
         float *of_groups, float *of_channels) {
  extern __shared__ float4 turns[];
  float *const shared = reinterpret_cast<float *>(turns);
  const sweep_part<N> p(s);
  const int each = (int)s.channels / groups;
  float s1[N] = {}, s2[N] = {};
  if (p.rows > 0) {
    const int64_t step = p.step(s);
    const T *const first_x = x + p.at(s), *const first_dy = dy + p.at(s);
    auto rows = ring_of<T, N, 2, SUMS_STAGES>(turns, [=](int turn, int which) {
      return ring_place<T>{(which == 0 ? first_x : first_dy) + turn * step, turn < p.rows};
    });
    float mean[N], factor[N], shift[N];
    group_of of_mean(p.channel, each), of_rstd = of_mean;
#pragma unroll
    for (int k = 0; k < N; k++, of_mean.next()) {
      const int c = p.channel + k;
      const float *of = statistics + (p.sample * groups + of_mean.group) * 2;
      mean[k] = of[0];
      if (!SILU) continue;
      factor[k] = of[1] * (gain != nullptr ? to_float<T>(gain[c]) : 1.0f);
      shift[k] = offset != nullptr ? to_float<T>(offset[c]) : 0.0f;
    }
    for (int i = 0; i < p.rows; i++, rows.go_on()) {
      packed<T, N> u[2];
      rows.take(u);
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float value = to_float<T>(u[0].values[k]) - mean[k];
        float d = to_float<T>(u[1].values[k]);
        if (SILU) d *= silu_slope(fmaf(value, factor[k], shift[k]));
        s1[k] += d;
        s2[k] = fmaf(d, value, s2[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < N; k++, of_rstd.next()) s2[k] *= statistics[(p.sample * groups + of_rstd.group) * 2 + 1];
  }
  __syncthreads();
  p.share(s, s1, s2, shared);
  if (of_channels != nullptr) p.channel_sums(s, shared, of_channels);
  if (of_groups == nullptr) return;
  const int row_floats = s.columns * N, half = s.lanes * row_floats;
  const int64_t slots = slots_of(s, groups);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int g = p.first / each + warp; g <= (p.first + p.width - 1) / each; g += warps) {
    const group_part<N> of(s, p.chunk, g, each);
    float a = 0, b = 0;
    for (int e = lane; e < s.lanes * of.width; e += 32) {
      const int c = of.from + e % of.width, at = e / of.width * row_floats + c;
      const float by = gain != nullptr ? to_float<T>(gain[p.first + c]) : 1.0f;
      a = fmaf(by, shared[at], a);
      b = fmaf(by, shared[half + at], b);
    }
    a = warp_sum(a);
    b = warp_sum(b);
    if (lane == 0) {
      float *to = of_groups + (p.sample * s.slabs + p.slab) * 2 * slots + g + p.chunk;
      to[0] = a;
      to[slots] = b;
    }
  }
}

// A warp a group: means[batch, groups][2]: m1, m2.
template <int N>
__global__ void __launch_bounds__(128) join_sums(sweep s, int groups, const float *partial, float *means) {
  const int64_t index = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
  if (index >= s.batch * groups) return;
  const int lane = threadIdx.x % 32;
  const int64_t sample = index / groups, slots = slots_of(s, groups);
  const int g = (int)(index % groups), each = (int)s.channels / groups;
  const int span = s.columns * N, first = g * each / span, last = ((g + 1) * each - 1) / span;
  const float *from = partial + sample * s.slabs * 2 * slots + g;
  float a = 0, b = 0;
  for (int chunk = first; chunk <= last; chunk++)
    for (int slab = lane; slab < s.slabs; slab += 32) {
      a += from[slab * 2 * slots + chunk];
      b += from[(slab * 2 + 1) * slots + chunk];
    }
  a = warp_sum(a);
  b = warp_sum(b);
  if (lane != 0) return;
  const float total = (float)s.positions * (float)each;
  means[index * 2] = a / total;
  means[index * 2 + 1] = b / total;
}

// dx = rstd gain dy - rstd^2 m2 (x - mean) - rstd m1
template <typename T, int N, bool SILU>
__global__ void __launch_bounds__(SWEEP_THREADS, 3)
    input_gradient(sweep s, int groups, const T *x, const T *gain, const T *offset, const float *statistics,
                   const float *means, const T *dy, T *dx, bool accumulate) {
  extern __shared__ float4 turns[];
  const sweep_part<N> p(s);
  if (p.rows == 0) return;
  const int64_t step = p.step(s), end = p.at(s) + (p.rows - 1) * step;
  auto rows = ring_of<T, N, 3, GRADIENT_STAGES>(turns, [=](int turn, int which) {
    return ring_place<T>{(which == 0 ? x : which == 1 ? dy : dx) + end - turn * step,
                         turn < p.rows && (which < 2 || accumulate)};
  });
  const int each = (int)s.channels / groups;
  float mean[N], factor[N], of_x[N], constant[N];
  packed<T, N> shift = zero_packed<T, N>();
  group_of walk(p.channel, each);
#pragma unroll
  for (int k = 0; k < N; k++, walk.next()) {
    const int c = p.channel + k;
    const int64_t g = (p.sample * groups + walk.group) * 2;
    const float rstd = statistics[g + 1];
    mean[k] = statistics[g];
    factor[k] = rstd * (gain != nullptr ? to_float<T>(gain[c]) : 1.0f);
    of_x[k] = -rstd * rstd * means[g + 1];
    constant[k] = -rstd * means[g];
    if (SILU && offset != nullptr) shift.values[k] = offset[c];
  }
  for (int i = 0; i < p.rows; i++, rows.go_on()) {
    packed<T, N> u[3];
    rows.take(u);
    float out[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float value = to_float<T>(u[0].values[k]) - mean[k];
      float d = to_float<T>(u[1].values[k]);
      if (SILU) d *= silu_slope(fmaf(value, factor[k], to_float<T>(shift.values[k])));
      out[k] = fmaf(d, factor[k], fmaf(value, of_x[k], constant[k]));
      if (accumulate) out[k] += to_float<T>(u[2].values[k]);
    }
    store_packed<T, N>(dx + end - i * step, out);
  }
}

// Where things lie in the workspace, in floats: partial sums of groups, of channels, means of groups.
int64_t group_floats(const sweep &s, int64_t groups) { return s.batch * s.slabs * 2 * slots_of(s, (int)groups); }
int64_t channel_floats(const sweep &s) { return s.batch * s.slabs * 2 * s.channels; }

bool is_empty(const kern_group_norm *size) { return size->batch <= 0 || size->positions <= 0 || size->channels <= 0; }

bool is_wide_with(const kern_cuda *c, const kern_group_norm *size, const void *a, const void *b, const void *d) {
  return is_wide(c->options.dtype, size->channels) && is_aligned16(a) && is_aligned16(b) && is_aligned16(d);
}

void run_apply(kern_cuda *c, const kern_group_norm *size, const void *x, const void *gain, const void *offset,
               const float *statistics, bool silu, void *y) {
  with_access(c->options.dtype, is_wide_with(c, size, x, y, nullptr), [&](auto zero, auto count) {
    with_flag(silu, [&](auto of_silu) {
      using T = decltype(zero);
      constexpr int N = decltype(count)::value;
      const auto kernel = apply<T, N, decltype(of_silu)::value>;
      const sweep s = sweep_for(c, kernel, size->batch, size->positions, size->channels, N);
      kernel<<<sweep_blocks(s), sweep_threads(s), 0, c->stream>>>(
          s, (int)size->groups, static_cast<const T *>(x), static_cast<const T *>(gain), static_cast<const T *>(offset),
          statistics, static_cast<T *>(y));
      launched(c, "group norm");
    });
  });
}

}  // namespace
}  // namespace kern

using namespace kern;

size_t kern_cuda_group_norm_workspace(const kern_group_norm *size, kern_dtype dtype) {
  if (is_empty(size)) return 0;
  int64_t most = 0;
  for (const int n : {1, (int)(16 / kern_dtype_bytes(dtype))}) {
    if (size->channels % n != 0) continue;
    const sweep s = sweep_of(size->batch, size->positions, size->channels, n, SWEEP_MAX_BLOCKS);
    most = std::max(most, group_floats(s, size->groups) + channel_floats(s) + size->batch * size->groups * 2);
  }
  return (size_t)most * sizeof(float);
}

void kern_cuda_group_norm_forward(kern_cuda *c, const kern_group_norm *size, const void *x, const void *gain,
                                  const void *offset, bool silu, void *y, float *statistics) {
  if (kern_cuda_failed(c) || is_empty(size)) return;
  float *partial = static_cast<float *>(c->options.workspace);
  bool done = false;
  if (is_aligned16(x) && is_aligned16(y))
    with_dtype(c->options.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int N = pack<T>::count;
      done = run_whole_forward<T, N>(c, size, x, gain, offset, silu, y, statistics) ||
             run_whole_forward<T, N / 2>(c, size, x, gain, offset, silu, y, statistics);
    });
  if (done) return;
  with_access(c->options.dtype, is_wide_with(c, size, x, nullptr, nullptr), [&](auto zero, auto count) {
    using T = decltype(zero);
    constexpr int N = decltype(count)::value;
    const size_t ring = ring_bytes(SWEEP_THREADS, sizeof(T), N, MOMENTS_ROWS, MOMENTS_STAGES);
    const sweep s = sweep_for(c, moments<T, N>, size->batch, size->positions, size->channels, N, ring);
    moments<T, N><<<sweep_blocks(s), sweep_threads(s), std::max(ring, sweep_shared(s, N)), c->stream>>>(
        s, (int)size->groups, static_cast<const T *>(x), partial);
    launched(c, "group norm's moments");
    join_moments<N><<<(unsigned)divide_up(size->batch * size->groups, 4), 128, 0, c->stream>>>(
        s, (int)size->groups, size->epsilon, partial, statistics);
    launched(c, "group norm's statistics");
  });
  run_apply(c, size, x, gain, offset, statistics, silu, y);
}

void kern_cuda_group_norm_again(kern_cuda *c, const kern_group_norm *size, const void *x, const void *gain,
                                const void *offset, const float *statistics, bool silu, void *y) {
  if (kern_cuda_failed(c) || is_empty(size)) return;
  run_apply(c, size, x, gain, offset, statistics, silu, y);
}

void kern_cuda_group_norm_backward(kern_cuda *c, const kern_group_norm *size, const void *x, const void *gain,
                                   const void *offset, const float *statistics, const void *dy, bool silu, void *dx,
                                   bool accumulate, void *dgain, void *doffset) {
  const bool of_weights = dgain != nullptr || doffset != nullptr;
  if (kern_cuda_failed(c) || is_empty(size) || (dx == nullptr && !of_weights)) return;
  bool done = false;
  if (!of_weights && is_aligned16(x) && is_aligned16(dy) && is_aligned16(dx))
    with_dtype(c->options.dtype, [&](auto zero) {
      using T = decltype(zero);
      constexpr int N = pack<T>::count;
      done = run_whole_gradient<T, N>(c, size, x, gain, offset, statistics, dy, silu, dx, accumulate) ||
             run_whole_gradient<T, N / 2>(c, size, x, gain, offset, statistics, dy, silu, dx, accumulate);
    });
  if (done) return;
  with_access(c->options.dtype, is_wide_with(c, size, x, dy, dx), [&](auto zero, auto count) {
    with_flag(silu, [&](auto of_silu) {
      using T = decltype(zero);
      constexpr int N = decltype(count)::value;
      constexpr bool SILU = decltype(of_silu)::value;
      const auto x_t = static_cast<const T *>(x), gain_t = static_cast<const T *>(gain);
      const auto offset_t = static_cast<const T *>(offset), dy_t = static_cast<const T *>(dy);
      const size_t ring = ring_bytes(SWEEP_THREADS, sizeof(T), N, 2, SUMS_STAGES);
      const sweep s = sweep_for(c, sums<T, N, SILU>, size->batch, size->positions, size->channels, N, ring);
      float *means = static_cast<float *>(c->options.workspace);
      float *of_groups = means + size->batch * size->groups * 2;
      float *of_channels = of_groups + group_floats(s, size->groups);
      sums<T, N, SILU><<<sweep_blocks(s), sweep_threads(s), std::max(ring, sweep_shared(s, N)), c->stream>>>(
          s, (int)size->groups, x_t, gain_t, offset_t, statistics, dy_t, dx != nullptr ? of_groups : nullptr,
          of_weights ? of_channels : nullptr);
      launched(c, "group norm's sums");
      if (of_weights) add_sweep_sums(c, s, of_channels, doffset, dgain);
      if (dx == nullptr) return;
      join_sums<N><<<(unsigned)divide_up(size->batch * size->groups, 4), 128, 0, c->stream>>>(s, (int)size->groups,
                                                                                              of_groups, means);
      launched(c, "group norm's means");
      const auto kernel = input_gradient<T, N, SILU>;
      const size_t gradient_ring = ring_bytes(SWEEP_THREADS, sizeof(T), N, 3, GRADIENT_STAGES);
      const sweep last = sweep_for(c, kernel, size->batch, size->positions, size->channels, N, gradient_ring);
      kernel<<<sweep_blocks(last), sweep_threads(last), gradient_ring, c->stream>>>(
          last, (int)size->groups, x_t, gain_t, offset_t, statistics, means, dy_t, static_cast<T *>(dx), accumulate);
      launched(c, "group norm's gradient");
    });
  });
}
