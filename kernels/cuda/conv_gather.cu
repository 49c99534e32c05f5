// The moves of convolutions by products. Values are moved as they are, so only their bytes count.
#include "kernels/cuda/conv.h"
#include "kernels/cuda/stream.cuh"

namespace kern {
namespace {

constexpr int THREADS = 256;

struct gather {
  int64_t first;
  int target_height, target_width, source_height, source_width, kernel_height, kernel_width;
  int stride_height, stride_width, padding_height, padding_width;
};

// Where `at` is met along one dimension; -1: outside, or between the steps of a stride.
template <bool BACK>
__device__ __forceinline__ int met(int at, int tap, int stride, int padding, int size) {
  if (!BACK) {
    const int from = at * stride - padding + tap;
    return from >= 0 && from < size ? from : -1;
  }
  const int from = at + padding - tap;
  return from >= 0 && from % stride == 0 && from / stride < size ? from / stride : -1;
}

// One piece of 16 bytes, or one value, of one tap's channels a thread; `pieces` a tap.
template <typename P, bool BACK>
__global__ void __launch_bounds__(THREADS)
    gather_columns(gather g, int64_t total, int pieces, const P *__restrict__ source, P *__restrict__ columns) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * THREADS;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; i < total; i += step) {
    int64_t rest = i / pieces;
    const int piece = static_cast<int>(i - rest * pieces);
    const int tap_column = static_cast<int>(rest % g.kernel_width);
    rest /= g.kernel_width;
    const int tap_row = static_cast<int>(rest % g.kernel_height);
    int64_t position = g.first + rest / g.kernel_height;
    const int column = static_cast<int>(position % g.target_width);
    position /= g.target_width;
    const int row = static_cast<int>(position % g.target_height);
    const int64_t sample = position / g.target_height;
    const int h = met<BACK>(row, tap_row, g.stride_height, g.padding_height, g.source_height);
    const int w = met<BACK>(column, tap_column, g.stride_width, g.padding_width, g.source_width);
    P value = {};
    if (h >= 0 && w >= 0) value = source[((sample * g.source_height + h) * g.source_width + w) * pieces + piece];
    columns[i] = value;
  }
}

template <typename P>
__global__ void __launch_bounds__(THREADS)
    turn(int64_t out, int64_t taps, int64_t pieces, const P *__restrict__ w, P *__restrict__ turned) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * THREADS, total = out * taps * pieces;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x; i < total; i += step) {
    const int64_t piece = i % pieces, o = i / pieces % out, tap = i / pieces / out;
    turned[i] = w[(o * taps + tap) * pieces + piece];
  }
}

// One piece of 16 bytes; there are less than 2^31.
struct spread_job {
  static constexpr int unroll = 4;
  struct item {
    uint4 bits;
  };
  const uint4 *__restrict__ image;
  uint4 *__restrict__ spread;
  divider pieces, taps, sample, row;  // pieces a tap; positions of the grid a sample, a row
  unsigned before, batch, height, width;
  __device__ __forceinline__ item load(int64_t i) const {
    const unsigned at = static_cast<unsigned>(i), flat = pieces.divide_small(at), line = taps.divide_small(flat);
    const unsigned piece = at - flat * static_cast<unsigned>(pieces.by);
    const unsigned ahead = line + flat - line * static_cast<unsigned>(taps.by);  // of the grid's beginning by `before`
    const unsigned position = ahead < before ? 0 : ahead - before;
    const unsigned b = sample.divide_small(position), rest = position - b * static_cast<unsigned>(sample.by);
    const unsigned y = row.divide_small(rest), x = rest - y * static_cast<unsigned>(row.by);
    item to = {};
    if (ahead >= before && b < batch && y < height && x < width)
      to.bits = image[((b * height + y) * width + x) * static_cast<unsigned>(pieces.by) + piece];
    return to;
  }
  __device__ __forceinline__ void store(int64_t i, const item &from) const { spread[i] = from.bits; }
};

unsigned blocks_of(int64_t total) {
  const int64_t blocks = divide_up(total, THREADS), most = 1 << 20;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

// Calls f(P(), pieces) with the widest piece that rows of `bytes` and both arrays allow.
template <typename F>
void with_pieces(int64_t bytes, const void *a, const void *b, F f) {
  const uint64_t all = static_cast<uint64_t>(bytes) | reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b);
  if (all % 16 == 0)
    f(uint4(), bytes / 16);
  else if (all % 8 == 0)
    f(uint2(), bytes / 8);
  else if (all % 4 == 0)
    f(uint32_t(), bytes / 4);
  else
    f(uint16_t(), bytes / 2);
}

}  // namespace
}  // namespace kern

void kern_conv_gather(kern_cuda *context, const kern_conv2d *s, bool back, int64_t first, int64_t count,
                      const void *source, void *columns) {
  if (kern_cuda_failed(context) || count <= 0) return;
  const int out_height = static_cast<int>(kern_cuda_conv_out_height(s));
  const int out_width = static_cast<int>(kern_cuda_conv_out_width(s));
  const int height = static_cast<int>(s->height), width = static_cast<int>(s->width);
  kern::gather g = {};
  g.first = first;
  g.target_height = back ? height : out_height;
  g.target_width = back ? width : out_width;
  g.source_height = back ? out_height : height;
  g.source_width = back ? out_width : width;
  g.kernel_height = static_cast<int>(s->kernel_height);
  g.kernel_width = static_cast<int>(s->kernel_width);
  g.stride_height = static_cast<int>(s->stride_height);
  g.stride_width = static_cast<int>(s->stride_width);
  g.padding_height = static_cast<int>(s->padding_height);
  g.padding_width = static_cast<int>(s->padding_width);
  const int64_t bytes = (back ? s->out : s->in) * kern_dtype_bytes(context->options.dtype);
  kern::with_pieces(bytes, source, columns, [&](auto piece, int64_t pieces) {
    using P = decltype(piece);
    const int64_t total = count * s->kernel_height * s->kernel_width * pieces;
    const P *from = static_cast<const P *>(source);
    P *to = static_cast<P *>(columns);
    if (back)
      kern::gather_columns<P, true>
          <<<kern::blocks_of(total), kern::THREADS, 0, context->stream>>>(g, total, static_cast<int>(pieces), from, to);
    else
      kern::gather_columns<P, false>
          <<<kern::blocks_of(total), kern::THREADS, 0, context->stream>>>(g, total, static_cast<int>(pieces), from, to);
  });
  kern::launched(context, "a convolution's columns");
}

void kern_conv_turn(kern_cuda *context, const kern_conv2d *s, const void *w, void *turned) {
  if (kern_cuda_failed(context)) return;
  kern::with_pieces(s->in * kern_dtype_bytes(context->options.dtype), w, turned, [&](auto piece, int64_t pieces) {
    using P = decltype(piece);
    const int64_t taps = s->kernel_height * s->kernel_width;
    kern::turn<P><<<kern::blocks_of(s->out * taps * pieces), kern::THREADS, 0, context->stream>>>(
        s->out, taps, pieces, static_cast<const P *>(w), static_cast<P *>(turned));
  });
  kern::launched(context, "a convolution's weights");
}

void kern_conv_spread(kern_cuda *context, const kern_conv_grid *grid, int64_t channels, int64_t taps, int64_t before,
                      int64_t rows, const void *image, void *spread) {
  const int64_t pieces = channels * kern_dtype_bytes(context->options.dtype) / 16;
  const kern::spread_job job = {static_cast<const uint4 *>(image),
                                static_cast<uint4 *>(spread),
                                kern::divider_of(pieces),
                                kern::divider_of(taps),
                                kern::divider_of(grid->grid_height * grid->grid_width),
                                kern::divider_of(grid->grid_width),
                                static_cast<unsigned>(before),
                                static_cast<unsigned>(grid->batch),
                                static_cast<unsigned>(grid->height),
                                static_cast<unsigned>(grid->width)};
  kern::stream(context, "a convolution's grid", rows * taps * pieces, job);
}
