// Sums of columns, and what is added where a library cannot on its way.
//
// Threads of a block are `width` packs of columns times as many rows as fit; each keeps to its columns and goes down
// its slab of rows. The number of slabs depends on the sizes alone.
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/products.h"

namespace kern {
namespace {

constexpr int THREADS = 256, UNROLL = 4, SUM_UNROLL = 8;
constexpr int64_t SLABS = 1024, SLAB_ROWS = 32;

template <typename T, int N>
__device__ __forceinline__ void load(const T *from, float (&to)[N]) {
  if constexpr (N == 1)
    to[0] = to_float<T>(*from);
  else
    load16<T>(from, to);
}
template <typename T, int N>
__device__ __forceinline__ void store(T *to, const float (&from)[N]) {
  if constexpr (N == 1)
    *to = from_float<T>(from[0]);
  else
    store16<T>(to, from);
}

// Packs of columns that a block has; all blocks the same.
int width_of(int64_t columns, int n) {
  const int64_t packs = divide_up(columns, n);
  return static_cast<int>(divide_up(packs, divide_up(packs, THREADS)));
}

int64_t slabs_of(int64_t rows, int64_t columns) {
  const int64_t of_columns = divide_up(SLABS, divide_up(columns, THREADS * 8)), of_rows = divide_up(rows, SLAB_ROWS);
  return of_rows < of_columns ? of_rows : of_columns;
}

// SUM_UNROLL rows, all on their way before the first is added; where not FULL, only `rows` of them.
template <typename T, int N, bool FULL>
__device__ __forceinline__ void add_rows(const T *at, int64_t step, int64_t rows, float (&sum)[N]) {
  packed<T, N> values[SUM_UNROLL];
#pragma unroll
  for (int u = 0; u < SUM_UNROLL; u++)
    values[u] = FULL || u < rows ? load_packed<T, N>(at + u * step) : zero_packed<T, N>();
#pragma unroll
  for (int u = 0; u < SUM_UNROLL; u++)
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] += to_float<T>(values[u].values[i]);
}

template <typename T, typename O, int N>
__global__ void __launch_bounds__(THREADS) sum_slabs(int64_t rows, int64_t columns, int64_t stride, int64_t slab_rows,
                                                     int width, bool accumulate, const T *x, float *partial, O *out) {
  constexpr int PITCH = THREADS + 32 / N;  // so that a warp reads from all banks
  __shared__ float shared[N * PITCH];
  const int lanes = THREADS / width, lane = threadIdx.x / width;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * width * N;
  const int64_t column = first_column + static_cast<int64_t>(threadIdx.x % width) * N;
  float sum[N] = {};
  if (lane < lanes && column < columns) {
    const int64_t first = blockIdx.y * slab_rows, last = first + slab_rows, end = last < rows ? last : rows;
    const T *at = x + column;
    int64_t row = first + lane;
    for (; row + (SUM_UNROLL - 1) * lanes < end; row += SUM_UNROLL * lanes)
      add_rows<T, N, true>(at + row * stride, lanes * stride, SUM_UNROLL, sum);
    if (row < end) add_rows<T, N, false>(at + row * stride, lanes * stride, (end - 1 - row) / lanes + 1, sum);
  }
#pragma unroll
  for (int i = 0; i < N; i++) shared[i * PITCH + threadIdx.x] = sum[i];
  __syncthreads();
  for (int c = threadIdx.x; c < width * N && first_column + c < columns; c += THREADS) {
    float total = 0;
    for (int l = 0; l < lanes; l++) total += shared[c % N * PITCH + l * width + c / N];
    const int64_t to = first_column + c;
    if (gridDim.y == 1)
      out[to] = from_float<O>(accumulate ? to_float<O>(out[to]) + total : total);
    else
      partial[blockIdx.y * columns + to] = total;
  }
}

template <typename O>
__global__ void __launch_bounds__(1024)
    sum_partials(int64_t columns, int slabs, bool accumulate, const float *partial, O *out) {
  __shared__ float shared[32][33];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int s = threadIdx.y; s < slabs; s += 32) sum += partial[s * columns + column];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
#pragma unroll
  for (int i = 0; i < 32; i++) total += shared[i][threadIdx.x];
  out[column] = from_float<O>(accumulate ? to_float<O>(out[column]) + total : total);
}

template <typename T, typename O, int N>
void sum_columns(kern_cuda *context, int64_t rows, int64_t columns, int64_t stride, const T *x, bool accumulate, O *out,
                 float *partial) {
  const int width = width_of(columns, N);
  const int64_t slab_rows = divide_up(rows, slabs_of(rows, columns)), slabs = divide_up(rows, slab_rows);
  const dim3 grid(static_cast<unsigned>(divide_up(columns, static_cast<int64_t>(width) * N)),
                  static_cast<unsigned>(slabs));
  sum_slabs<T, O, N>
      <<<grid, THREADS, 0, context->stream>>>(rows, columns, stride, slab_rows, width, accumulate, x, partial, out);
  launched(context, "column sums");
  if (slabs == 1 || kern_cuda_failed(context)) return;
  sum_partials<O><<<static_cast<unsigned>(divide_up(columns, 32)), dim3(32, 32), 0, context->stream>>>(
      columns, static_cast<int>(slabs), accumulate, partial, out);
  launched(context, "column sums of slabs");
}

template <typename T, int N>
__global__ void __launch_bounds__(THREADS) add_bias(int64_t rows, int64_t columns, int64_t stride, int64_t slab_rows,
                                                    int width, const T *x, const T *bias, const T *residual, T *y) {
  const int lanes = THREADS / width, lane = threadIdx.x / width;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * width + threadIdx.x % width) * N;
  if (lane >= lanes || column >= columns) return;
  const int64_t first = blockIdx.x * slab_rows, last = first + slab_rows, end = last < rows ? last : rows;
  float offset[N] = {};
  if (bias) load<T, N>(bias + column, offset);
  int64_t row = first + lane;
  for (; row + (UNROLL - 1) * lanes < end; row += UNROLL * lanes) {
    float values[UNROLL][N], more[UNROLL][N] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int64_t at = (row + u * lanes) * stride + column;
      load<T, N>(x + at, values[u]);
      if (residual) load<T, N>(residual + at, more[u]);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
#pragma unroll
      for (int i = 0; i < N; i++) values[u][i] += offset[i] + more[u][i];
      store<T, N>(y + (row + u * lanes) * stride + column, values[u]);
    }
  }
  for (; row < end; row += lanes) {
    const int64_t at = row * stride + column;
    float values[N], more[N] = {};
    load<T, N>(x + at, values);
    if (residual) load<T, N>(residual + at, more);
#pragma unroll
    for (int i = 0; i < N; i++) values[i] += offset[i] + more[i];
    store<T, N>(y + at, values);
  }
}

template <typename T, int N>
void launch_add_bias(kern_cuda *context, int64_t rows, int64_t columns, int64_t stride, const T *x, const T *bias,
                     const T *residual, T *y) {
  const int width = width_of(columns, N);
  const int64_t slab_rows = static_cast<int64_t>(THREADS / width) * 2 * UNROLL;
  const dim3 grid(static_cast<unsigned>(divide_up(rows, slab_rows)),
                  static_cast<unsigned>(divide_up(columns, static_cast<int64_t>(width) * N)));
  add_bias<T, N><<<grid, THREADS, 0, context->stream>>>(rows, columns, stride, slab_rows, width, x, bias, residual, y);
  launched(context, "add of a bias");
}

// Eight values, whichever the dtype.
template <typename T>
__device__ __forceinline__ void load8(const T *from, float (&to)[8]) {
  constexpr int N = pack<T>::count;
#pragma unroll
  for (int at = 0; at < 8; at += N) {
    float some[N];
    load16<T>(from + at, some);
#pragma unroll
    for (int i = 0; i < N; i++) to[at + i] = some[i];
  }
}
template <typename T>
__device__ __forceinline__ void store8(T *to, const float (&from)[8]) {
  constexpr int N = pack<T>::count;
#pragma unroll
  for (int at = 0; at < 8; at += N) {
    float some[N];
#pragma unroll
    for (int i = 0; i < N; i++) some[i] = from[at + i];
    store16<T>(to + at, some);
  }
}

template <typename X, typename Y>
__global__ void __launch_bounds__(THREADS) add_to(int64_t n, bool aligned, const X *x, Y *y) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * 8;
  if (aligned && first + 8 <= n) {
    float more[8], values[8];
    load8<X>(x + first, more);
    load8<Y>(y + first, values);
#pragma unroll
    for (int i = 0; i < 8; i++) values[i] += more[i];
    store8<Y>(y + first, values);
    return;
  }
  for (int64_t i = first; i < first + 8 && i < n; i++) y[i] = from_float<Y>(to_float<Y>(y[i]) + to_float<X>(x[i]));
}

}  // namespace
}  // namespace kern

size_t kern_cuda_column_sums_workspace(int64_t rows, int64_t columns) {
  if (rows <= 0 || columns <= 0) return 0;
  return kern_cuda_round_up(static_cast<size_t>(kern::slabs_of(rows, columns) * columns) * sizeof(float));
}

void kern_cuda_column_sums(kern_cuda *context, int64_t rows, int64_t columns, int64_t stride, kern_dtype x_dtype,
                           const void *x, kern_dtype out_dtype, bool accumulate, void *out, void *workspace) {
  if (kern_cuda_failed(context) || rows <= 0 || columns <= 0) return;
  kern::with_dtype(x_dtype, [&](auto x_value) {
    kern::with_dtype(out_dtype, [&](auto out_value) {
      using T = decltype(x_value);
      using O = decltype(out_value);
      constexpr int N = kern::pack<T>::count;
      const T *from = static_cast<const T *>(x);
      O *to = static_cast<O *>(out);
      float *partial = static_cast<float *>(workspace);
      if (columns % N == 0 && stride % N == 0 && kern::is_aligned16(x))
        kern::sum_columns<T, O, N>(context, rows, columns, stride, from, accumulate, to, partial);
      else
        kern::sum_columns<T, O, 1>(context, rows, columns, stride, from, accumulate, to, partial);
    });
  });
}

void kern_cuda_sum_slabs(kern_cuda *context, int64_t slabs, int64_t columns, const float *partial, kern_dtype out_dtype,
                         bool accumulate, void *out) {
  if (kern_cuda_failed(context) || slabs <= 0 || columns <= 0) return;
  kern::with_dtype(out_dtype, [&](auto value) {
    using O = decltype(value);
    kern::sum_partials<O><<<static_cast<unsigned>(kern::divide_up(columns, 32)), dim3(32, 32), 0, context->stream>>>(
        columns, static_cast<int>(slabs), accumulate, partial, static_cast<O *>(out));
  });
  kern::launched(context, "sums of slabs");
}

void kern_cuda_add_bias(kern_cuda *context, int64_t rows, int64_t columns, int64_t stride, const void *x,
                        const void *bias, const void *residual, void *y) {
  if (kern_cuda_failed(context) || rows <= 0 || columns <= 0) return;
  kern::with_dtype(context->options.dtype, [&](auto value) {
    using T = decltype(value);
    constexpr int N = kern::pack<T>::count;
    const T *from = static_cast<const T *>(x), *one = static_cast<const T *>(bias);
    const T *more = static_cast<const T *>(residual);
    T *to = static_cast<T *>(y);
    if (columns % N == 0 && stride % N == 0 && kern::is_aligned16(x) && kern::is_aligned16(bias) &&
        kern::is_aligned16(residual) && kern::is_aligned16(y))
      kern::launch_add_bias<T, N>(context, rows, columns, stride, from, one, more, to);
    else
      kern::launch_add_bias<T, 1>(context, rows, columns, stride, from, one, more, to);
  });
}

void kern_cuda_add_to(kern_cuda *context, int64_t n, kern_dtype x_dtype, const void *x, kern_dtype y_dtype, void *y) {
  if (kern_cuda_failed(context) || n <= 0) return;
  const unsigned blocks = static_cast<unsigned>(kern::divide_up(n, 8 * kern::THREADS));
  const bool aligned = kern::is_aligned16(x) && kern::is_aligned16(y);
  kern::with_dtype(x_dtype, [&](auto x_value) {
    kern::with_dtype(y_dtype, [&](auto y_value) {
      using X = decltype(x_value);
      using Y = decltype(y_value);
      kern::add_to<X, Y>
          <<<blocks, kern::THREADS, 0, context->stream>>>(n, aligned, static_cast<const X *>(x), static_cast<Y *>(y));
    });
  });
  kern::launched(context, "an addition");
}
