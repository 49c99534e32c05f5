// Layer norm and RMS norm: a team of threads keeps its row in registers, so that a row is read once and, in backward,
// x and dy once. With xh = (x - mean) rstd (RMS: mean 0) and g = dy gain: dx = rstd (g - mean(g) - xh mean(g xh)),
// without mean(g) for RMS; dgain = sum of dy xh, doffset = sum of dy over rows, by a sweep and its blocks' sums.
#include "kernels/cuda/row_norm_ring.cuh"

namespace kern {
namespace {

// A team has a row: thread i its accesses i, i + TEAM, .. of them V. `again`: statistics are read.
template <typename T, int TEAM, int V, bool RMS>
__global__ void __launch_bounds__(THREADS)
    forward(row_job job, const T *x, const T *gain, const T *offset, bool again, float *statistics, T *y) {
  constexpr int N = pack<T>::count;
  __shared__ float shared[32];
  const int64_t row = (int64_t)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
  const int packs = job.channels / N, first = threadIdx.x % TEAM;
  const bool there = row < job.rows;
  const T *from = x + row * job.channels;
  packed<T, N> u[V];
#pragma unroll
  for (int v = 0; v < V; v++)
    u[v] =
        there && first + v * TEAM < packs ? load_packed_last<T, N>(from + (first + v * TEAM) * N) : zero_packed<T, N>();
  float mean = 0, rstd = 0;
  if (again) {
    if (there) load_statistics<RMS>(statistics, row, mean, rstd);
  } else {
    const float share = 1.0f / (float)job.channels;
    if (!RMS) {
      float sum = 0;
#pragma unroll
      for (int v = 0; v < V; v++)
#pragma unroll
        for (int k = 0; k < N; k++) sum += to_float<T>(u[v].values[k]);
      mean = team_sum<TEAM>(sum, shared) * share;
      stay_packed(u);
    }
    float square = 0;
#pragma unroll
    for (int v = 0; v < V; v++)
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float d = RMS || first + v * TEAM < packs ? to_float<T>(u[v].values[k]) - mean : 0.0f;
        square = fmaf(d, d, square);
      }
    rstd = 1.0f / sqrtf(team_sum<TEAM>(square, shared) * share + job.epsilon);
    if (there && first == 0) store_statistics<RMS>(statistics, row, mean, rstd);
  }
  if (!there) return;
  stay_packed(u);
  T *to = y + row * job.channels;
#pragma unroll
  for (int v = 0; v < V; v++) {
    const int c = (first + v * TEAM) * N;
    if (c >= job.channels) break;
    float out[N];
#pragma unroll
    for (int k = 0; k < N; k++) out[k] = (to_float<T>(u[v].values[k]) - mean) * rstd;
    if (gain != nullptr) {
      const packed<T, N> by = load_packed<T, N>(gain + c);
#pragma unroll
      for (int k = 0; k < N; k++) out[k] *= to_float<T>(by.values[k]);
    }
    if (offset != nullptr) {
      const packed<T, N> by = load_packed<T, N>(offset + c);
#pragma unroll
      for (int k = 0; k < N; k++) out[k] += to_float<T>(by.values[k]);
    }
    store_packed<T, N>(to + c, out);
  }
}

template <typename T, int TEAM, int V, bool RMS>
__global__ void __launch_bounds__(THREADS)
    input_gradient(row_job job, const T *x, const T *gain, const float *statistics, const T *dy, bool accumulate,
                   T *dx) {
  constexpr int N = pack<T>::count;
  __shared__ float shared[32];
  const int64_t row = (int64_t)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM, start = row * job.channels;
  const int packs = job.channels / N, first = threadIdx.x % TEAM;
  const bool there = row < job.rows;
  packed<T, N> u[V], w[V];
#pragma unroll
  for (int v = 0; v < V; v++) {
    const bool mine = there && first + v * TEAM < packs;
    u[v] = mine ? load_packed_last<T, N>(x + start + (first + v * TEAM) * N) : zero_packed<T, N>();
    w[v] = mine ? load_packed_last<T, N>(dy + start + (first + v * TEAM) * N) : zero_packed<T, N>();
  }
  float mean = 0, rstd = 0;
  if (there) load_statistics<RMS>(statistics, row, mean, rstd);
  float g_sum = 0, gx_sum = 0;
#pragma unroll
  for (int v = 0; v < V; v++) {
    const int c = (first + v * TEAM) * N;
    packed<T, N> by = zero_packed<T, N>();
    if (gain != nullptr && c < job.channels) by = load_packed<T, N>(gain + c);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float g =
          gain != nullptr ? to_float<T>(w[v].values[k]) * to_float<T>(by.values[k]) : to_float<T>(w[v].values[k]);
      if (!RMS) g_sum += g;
      gx_sum = fmaf(g, (to_float<T>(u[v].values[k]) - mean) * rstd, gx_sum);
    }
  }
  const float share = 1.0f / (float)job.channels;
  const float g_mean = RMS ? 0.0f : team_sum<TEAM>(g_sum, shared) * share;
  const float gx_mean = team_sum<TEAM>(gx_sum, shared) * share;
  if (!there) return;
  stay_packed(u);
  stay_packed(w);
#pragma unroll
  for (int v = 0; v < V; v++) {
    const int c = (first + v * TEAM) * N;
    if (c >= job.channels) break;
    packed<T, N> by = zero_packed<T, N>(), old = zero_packed<T, N>();
    if (gain != nullptr) by = load_packed<T, N>(gain + c);
    if (accumulate) old = load_packed<T, N>(dx + start + c);
    float out[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
      const float g =
          gain != nullptr ? to_float<T>(w[v].values[k]) * to_float<T>(by.values[k]) : to_float<T>(w[v].values[k]);
      const float xh = (to_float<T>(u[v].values[k]) - mean) * rstd;
      out[k] = rstd * (g - g_mean - xh * gx_mean);
      if (accumulate) out[k] += to_float<T>(old.values[k]);
    }
    store_packed<T, N>(dx + start + c, out);
  }
}

// Rows of any width: a warp a row, a value at a time; the row is read again from the cache.
template <typename T, bool RMS>
__global__ void __launch_bounds__(THREADS)
    forward_any(row_job job, const T *x, const T *gain, const T *offset, bool again, float *statistics, T *y) {
  const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (row >= job.rows) return;
  const int lane = threadIdx.x % 32;
  const T *from = x + row * job.channels;
  float mean = 0, rstd;
  if (again) {
    load_statistics<RMS>(statistics, row, mean, rstd);
  } else {
    if (!RMS) {
      float sum = 0;
      for (int c = lane; c < job.channels; c += 32) sum += to_float<T>(from[c]);
      mean = warp_sum(sum) / (float)job.channels;
    }
    float square = 0;
    for (int c = lane; c < job.channels; c += 32) {
      const float d = to_float<T>(from[c]) - mean;
      square = fmaf(d, d, square);
    }
    rstd = 1.0f / sqrtf(warp_sum(square) / (float)job.channels + job.epsilon);
    if (lane == 0) store_statistics<RMS>(statistics, row, mean, rstd);
  }
  for (int c = lane; c < job.channels; c += 32) {
    float out = (to_float<T>(from[c]) - mean) * rstd;
    if (gain != nullptr) out *= to_float<T>(gain[c]);
    if (offset != nullptr) out += to_float<T>(offset[c]);
    y[row * job.channels + c] = from_float<T>(out);
  }
}

template <typename T, bool RMS>
__global__ void __launch_bounds__(THREADS)
    input_gradient_any(row_job job, const T *x, const T *gain, const float *statistics, const T *dy, bool accumulate,
                       T *dx) {
  const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32, start = row * job.channels;
  if (row >= job.rows) return;
  const int lane = threadIdx.x % 32;
  float mean, rstd, g_sum = 0, gx_sum = 0;
  load_statistics<RMS>(statistics, row, mean, rstd);
  for (int c = lane; c < job.channels; c += 32) {
    const float g = to_float<T>(dy[start + c]) * (gain != nullptr ? to_float<T>(gain[c]) : 1.0f);
    g_sum += g;
    gx_sum = fmaf(g, (to_float<T>(x[start + c]) - mean) * rstd, gx_sum);
  }
  const float g_mean = RMS ? 0.0f : warp_sum(g_sum) / (float)job.channels;
  const float gx_mean = warp_sum(gx_sum) / (float)job.channels;
  for (int c = lane; c < job.channels; c += 32) {
    const float g = to_float<T>(dy[start + c]) * (gain != nullptr ? to_float<T>(gain[c]) : 1.0f);
    const float xh = (to_float<T>(x[start + c]) - mean) * rstd;
    const float out = rstd * (g - g_mean - xh * gx_mean);
    dx[start + c] = from_float<T>(accumulate ? to_float<T>(dx[start + c]) + out : out);
  }
}

// partial[slab][2][channels]: sums of dy, of dy xh.
template <typename T, int N, bool RMS>
__global__ void __launch_bounds__(SWEEP_THREADS, 3)
    column_sums(sweep s, const T *x, const float *statistics, const T *dy, float *partial) {
  extern __shared__ float sums[];
  constexpr int R = 2;
  const sweep_part<N> p(s);
  float s1[N] = {}, s2[N] = {};
  const int64_t step = p.step(s), turn = (int64_t)s.slabs * s.lanes;
  int64_t at = p.at(s), row = p.slab * s.lanes + p.lane;
  for (int i = 0; i < p.rows; i += R, at += R * step, row += R * turn) {
    packed<T, N> u[R], v[R];
    float mean[R] = {}, rstd[R] = {};
#pragma unroll
    for (int r = 0; r < R; r++) {
      const bool there = i + r < p.rows;
      u[r] = there ? load_packed<T, N>(x + at + r * step) : zero_packed<T, N>();
      v[r] = there ? load_packed<T, N>(dy + at + r * step) : zero_packed<T, N>();
      if (there) load_statistics<RMS>(statistics, row + r * turn, mean[r], rstd[r]);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int k = 0; k < N; k++) {
        const float d = to_float<T>(v[r].values[k]);
        if (!RMS) s1[k] += d;
        s2[k] = fmaf(d, (to_float<T>(u[r].values[k]) - mean[r]) * rstd[r], s2[k]);
      }
  }
  p.share(s, s1, s2, sums);
  p.channel_sums(s, sums, partial);
}

// Calls f(TEAM, V as constants) for rows of so many accesses; false: for none.
template <typename F>
bool with_team(int64_t packs, F f) {
  using std::integral_constant;
  if (packs <= 8)
    f(integral_constant<int, 4>(), integral_constant<int, 2>());
  else if (packs <= 16)
    f(integral_constant<int, 8>(), integral_constant<int, 2>());
  else if (packs <= 32)
    f(integral_constant<int, 16>(), integral_constant<int, 2>());
  else if (packs <= 64)
    f(integral_constant<int, 32>(), integral_constant<int, 2>());
  else if (packs <= 96)
    f(integral_constant<int, 32>(), integral_constant<int, 3>());
  else if (packs <= 128)
    f(integral_constant<int, 32>(), integral_constant<int, 4>());
  else if (packs <= 160)
    f(integral_constant<int, 32>(), integral_constant<int, 5>());
  else if (packs <= 192)
    f(integral_constant<int, 32>(), integral_constant<int, 6>());
  else if (packs <= 384)
    f(integral_constant<int, 32>(), integral_constant<int, 12>());
  else if (packs <= 1024)
    f(integral_constant<int, THREADS>(), integral_constant<int, 4>());
  else
    return false;
  return true;
}

// Calls f(TEAM, V, R as constants) for rows of so many accesses whose both gradients a team makes; false: for none.
template <typename F>
bool with_rows(int64_t packs, F f) {
  using std::integral_constant;
  if (packs <= 8)
    f(integral_constant<int, 8>(), integral_constant<int, 1>(), integral_constant<int, 4>());
  else if (packs <= 16)
    f(integral_constant<int, 16>(), integral_constant<int, 1>(), integral_constant<int, 4>());
  else if (packs <= 32)
    f(integral_constant<int, 32>(), integral_constant<int, 1>(), integral_constant<int, 4>());
  else if (packs <= 64)
    f(integral_constant<int, 32>(), integral_constant<int, 2>(), integral_constant<int, 2>());
  else
    return false;
  return true;
}

// Likewise f(V as a constant) for rows that come through a ring.
template <typename F>
bool with_ring(int64_t packs, F f) {
  using std::integral_constant;
  if (packs <= 64 || packs > 192) return false;
  if (packs <= 96)
    f(integral_constant<int, 3>());
  else if (packs <= 128)
    f(integral_constant<int, 4>());
  else if (packs <= 160)
    f(integral_constant<int, 5>());
  else
    f(integral_constant<int, 6>());
  return true;
}

bool is_empty(const kern_row_norm *size) { return size->rows <= 0 || size->channels <= 0; }

template <bool RMS>
void run_forward(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain, const void *offset,
                 bool again, float *statistics, void *y) {
  if (kern_cuda_failed(c) || is_empty(size)) return;
  const row_job job = {size->rows, (int)size->channels, size->epsilon};
  const bool wide = is_wide(c->options.dtype, size->channels) && is_aligned16(x) && is_aligned16(y) &&
                    is_aligned16(gain) && is_aligned16(offset);
  with_dtype(c->options.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x_t = static_cast<const T *>(x), gain_t = static_cast<const T *>(gain);
    const auto offset_t = static_cast<const T *>(offset);
    const auto y_t = static_cast<T *>(y);
    const bool done =
        wide && with_team(size->channels / pack<T>::count, [&](auto team, auto each) {
          constexpr int TEAM = decltype(team)::value, V = decltype(each)::value;
          forward<T, TEAM, V, RMS><<<(unsigned)divide_up(size->rows, THREADS / TEAM), THREADS, 0, c->stream>>>(
              job, x_t, gain_t, offset_t, again, statistics, y_t);
        });
    if (!done)
      forward_any<T, RMS><<<(unsigned)divide_up(size->rows, THREADS / 32), THREADS, 0, c->stream>>>(
          job, x_t, gain_t, offset_t, again, statistics, y_t);
  });
  launched(c, RMS ? "RMS norm" : "layer norm");
}

template <bool RMS>
void run_input_gradient(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain,
                        const float *statistics, const void *dy, bool accumulate, void *dx) {
  const row_job job = {size->rows, (int)size->channels, size->epsilon};
  const bool wide = is_wide(c->options.dtype, size->channels) && is_aligned16(x) && is_aligned16(dy) &&
                    is_aligned16(gain) && is_aligned16(dx);
  with_dtype(c->options.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto x_t = static_cast<const T *>(x), gain_t = static_cast<const T *>(gain);
    const auto dy_t = static_cast<const T *>(dy);
    const auto dx_t = static_cast<T *>(dx);
    const bool done =
        wide && with_team(size->channels / pack<T>::count, [&](auto team, auto each) {
          constexpr int TEAM = decltype(team)::value, V = decltype(each)::value;
          input_gradient<T, TEAM, V, RMS><<<(unsigned)divide_up(size->rows, THREADS / TEAM), THREADS, 0, c->stream>>>(
              job, x_t, gain_t, statistics, dy_t, accumulate, dx_t);
        });
    if (!done)
      input_gradient_any<T, RMS><<<(unsigned)divide_up(size->rows, THREADS / 32), THREADS, 0, c->stream>>>(
          job, x_t, gain_t, statistics, dy_t, accumulate, dx_t);
  });
  launched(c, RMS ? "RMS norm's gradient" : "layer norm's gradient");
}

// Blocks of one wave, as many as the workspace has room for; `rows` of each at a time.
template <typename K>
sweep both_sweep(kern_cuda *c, const kern_row_norm *size, K kernel, int threads, size_t shared, int most, int n,
                 int64_t rows) {
  int resident = 1;
  (void)KERN_CUDA_TRY(c, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared));
  const int64_t together = (int64_t)c->sm_count * std::max(1, std::min(resident, most));
  sweep s = sweep_of(1, size->rows, size->channels, n, SWEEP_MAX_BLOCKS);
  s.slabs = (int)std::min({(int64_t)s.slabs, together, divide_up(size->rows, rows)});
  return s;
}

// False: rows are too long, or not of whole accesses.
template <bool RMS>
bool run_both_gradients(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain,
                        const float *statistics, const void *dy, bool accumulate, void *dx, void *dgain,
                        void *doffset) {
  const row_job job = {size->rows, (int)size->channels, size->epsilon};
  const int64_t packs = size->channels * kern_dtype_bytes(c->options.dtype) / 16;
  if (!is_wide(c->options.dtype, size->channels) || packs > 1024 || !is_aligned16(x) || !is_aligned16(dy) ||
      !is_aligned16(gain) || !is_aligned16(dx))
    return false;
  float *partial = static_cast<float *>(c->options.workspace);
  with_dtype(c->options.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int N = pack<T>::count;
    const auto x_t = static_cast<const T *>(x), gain_t = static_cast<const T *>(gain);
    const auto dy_t = static_cast<const T *>(dy);
    const auto dx_t = static_cast<T *>(dx);
    const bool by_ring = with_ring(packs, [&](auto each) {
      constexpr int V = decltype(each)::value;
      const auto kernel = both_gradients_ring<T, V, RMS>;
      const size_t most = shared_bytes(c);
      const ring_shape shape = ring_shape_of(size, sizeof(T), accumulate, RING_WARPS<T, V>, most);
      const int threads = shape.warps * 32;
      allow_shared(c, kernel, (int)most);
      const sweep s = both_sweep(c, size, kernel, threads, shape.shared, 16, N, shape.warps);
      kernel<<<(unsigned)s.slabs, threads, shape.shared, c->stream>>>(job, shape.stages, x_t, gain_t, statistics, dy_t,
                                                                      accumulate, dx_t, partial);
      launched(c, RMS ? "RMS norm's gradients" : "layer norm's gradients");
      add_sweep_sums(c, s, partial, doffset, dgain);
    });
    if (by_ring) return;
    const bool done = with_rows(packs, [&](auto team, auto each, auto together) {
      constexpr int TEAM = decltype(team)::value, V = decltype(each)::value, R = decltype(together)::value;
      const auto kernel = both_gradients<T, TEAM, V, R, RMS>;
      const size_t shared = BOTH_THREADS / 32 * 2 * (size_t)size->channels * sizeof(float);
      const sweep s = both_sweep(c, size, kernel, BOTH_THREADS, shared, 16, N, BOTH_THREADS / TEAM);
      kernel<<<(unsigned)s.slabs, BOTH_THREADS, shared, c->stream>>>(job, x_t, gain_t, statistics, dy_t, accumulate,
                                                                     dx_t, partial);
      launched(c, RMS ? "RMS norm's gradients" : "layer norm's gradients");
      add_sweep_sums(c, s, partial, doffset, dgain);
    });
    if (done) return;
    const int threads = (int)divide_up(packs, 32) * 32;
    with_flag(threads <= THREADS, [&](auto few) {
      constexpr int MOST = decltype(few)::value ? THREADS : 1024, R = decltype(few)::value ? 4 : 1;
      const auto kernel = both_gradients_long<T, MOST, R, RMS>;
      const sweep s = both_sweep(c, size, kernel, threads, 0, 3 * THREADS / threads, N, 1);
      kernel<<<(unsigned)s.slabs, threads, 0, c->stream>>>(job, x_t, gain_t, statistics, dy_t, accumulate, dx_t,
                                                           partial);
      launched(c, RMS ? "RMS norm's gradients" : "layer norm's gradients");
      add_sweep_sums(c, s, partial, doffset, dgain);
    });
  });
  return true;
}

template <bool RMS>
void run_backward(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain, const float *statistics,
                  const void *dy, bool accumulate, void *dx, void *dgain, void *doffset) {
  if (kern_cuda_failed(c) || is_empty(size)) return;
  const bool of_weights = dgain != nullptr || doffset != nullptr;
  if (dx != nullptr && of_weights &&
      run_both_gradients<RMS>(c, size, x, gain, statistics, dy, accumulate, dx, dgain, doffset))
    return;
  if (of_weights) { /* first: dx may overwrite dy */
    const bool wide = is_wide(c->options.dtype, size->channels) && is_aligned16(x) && is_aligned16(dy);
    float *partial = static_cast<float *>(c->options.workspace);
    with_access(c->options.dtype, wide, [&](auto zero, auto count) {
      using T = decltype(zero);
      constexpr int N = decltype(count)::value;
      const auto kernel = column_sums<T, N, RMS>;
      const sweep s = sweep_for(c, kernel, 1, size->rows, size->channels, N);
      kernel<<<sweep_blocks(s), sweep_threads(s), sweep_shared(s, N), c->stream>>>(
          s, static_cast<const T *>(x), statistics, static_cast<const T *>(dy), partial);
      launched(c, "sums of a row norm");
      add_sweep_sums(c, s, partial, doffset, dgain);
    });
  }
  if (dx != nullptr) run_input_gradient<RMS>(c, size, x, gain, statistics, dy, accumulate, dx);
}

}  // namespace
}  // namespace kern

size_t kern_cuda_row_norm_workspace(const kern_row_norm *size, kern_dtype dtype) {
  if (kern::is_empty(size)) return 0;
  int64_t most = 0;
  for (const int n : {1, (int)(16 / kern_dtype_bytes(dtype))}) {
    if (size->channels % n != 0) continue;
    const kern::sweep s = kern::sweep_of(1, size->rows, size->channels, n, kern::SWEEP_MAX_BLOCKS);
    most = std::max(most, (int64_t)s.slabs * 2 * s.channels);
  }
  return (size_t)most * sizeof(float);
}

void kern_cuda_layer_norm_forward(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain,
                                  const void *offset, void *y, float *statistics) {
  kern::run_forward<false>(c, size, x, gain, offset, false, statistics, y);
}

void kern_cuda_layer_norm_again(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain,
                                const void *offset, const float *statistics, void *y) {
  kern::run_forward<false>(c, size, x, gain, offset, true, const_cast<float *>(statistics), y);
}

void kern_cuda_layer_norm_backward(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain,
                                   const float *statistics, const void *dy, void *dx, bool accumulate, void *dgain,
                                   void *doffset) {
  kern::run_backward<false>(c, size, x, gain, statistics, dy, accumulate, dx, dgain, doffset);
}

void kern_cuda_rms_norm_forward(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain, void *y,
                                float *statistics) {
  kern::run_forward<true>(c, size, x, gain, nullptr, false, statistics, y);
}

void kern_cuda_rms_norm_again(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain,
                              const float *statistics, void *y) {
  kern::run_forward<true>(c, size, x, gain, nullptr, true, const_cast<float *>(statistics), y);
}

void kern_cuda_rms_norm_backward(kern_cuda *c, const kern_row_norm *size, const void *x, const void *gain,
                                 const float *statistics, const void *dy, void *dx, bool accumulate, void *dgain) {
  kern::run_backward<true>(c, size, x, gain, statistics, dy, accumulate, dx, dgain, nullptr);
}
