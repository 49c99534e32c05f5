/* Between the host and a CUDA device, at once: arrays of any dtype there, fp32 here. */
#include <stdlib.h>
#include <string.h>

#include "exec/device_cuda.h"
#include "kernels/halves.h"

enum { PIECE = 1 << 20 }; /* values that are rounded or joined at a time */

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float value_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t bf16_of(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN stays NaN */
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void round_all(int64_t n, const float *from, uint16_t *to) {
  for (int64_t i = 0; i < n; i++) to[i] = bf16_of(from[i]);
}

void exec_cuda_add_bf16(int64_t n, const uint16_t *from, uint16_t *to) {
  for (int64_t i = 0; i < n; i++) to[i] = bf16_of(value_of((uint32_t)to[i] << 16) + value_of((uint32_t)from[i] << 16));
}

/* What runs on the worker's stream before is done; what is copied is there before anything runs on it after. */
static dp_status quiet(exec_worker *w, dp_error *error) {
  EXEC_CUDA_TRY(cudaSetDevice(exec_cuda_of(w)->gpu), error);
  return exec_cuda_check(cudaStreamSynchronize(exec_cuda_of(w)->stream), "cudaStreamSynchronize", error);
}
static dp_status to_host(void *to, const void *from, size_t bytes, dp_error *error) {
  return exec_cuda_check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy", error);
}
static dp_status to_device(void *to, const void *from, size_t bytes, dp_error *error) {
  EXEC_CUDA_TRY(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), error);
  return exec_cuda_check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize", error);
}

static int64_t piece_at(int64_t at, int64_t n) { return n - at < PIECE ? n - at : PIECE; }

dp_status exec_cuda_read(exec_worker *w, graph_dtype dtype, int64_t n, const void *from, float *to, dp_error *error) {
  const uint16_t *halves = from;
  DP_TRY(quiet(w, error));
  if (dtype == GRAPH_FP32) return to_host(to, from, (size_t)n * sizeof *to, error);
  uint16_t *piece = malloc(PIECE * sizeof *piece);
  dp_status status = piece ? DP_OK : dp_fail_memory(error);
  for (int64_t at = 0; status == DP_OK && at < n; at += PIECE) {
    const int64_t count = piece_at(at, n);
    status = to_host(piece, halves + at, (size_t)count * sizeof *piece, error);
    for (int64_t i = 0; status == DP_OK && i < count; i++) to[at + i] = value_of((uint32_t)piece[i] << 16);
  }
  free(piece);
  return status;
}

dp_status exec_cuda_write(exec_worker *w, graph_dtype dtype, int64_t n, const float *from, void *to, dp_error *error) {
  uint16_t *halves = to;
  DP_TRY(quiet(w, error));
  if (dtype == GRAPH_FP32) return to_device(to, from, (size_t)n * sizeof *from, error);
  uint16_t *piece = malloc(PIECE * sizeof *piece);
  dp_status status = piece ? DP_OK : dp_fail_memory(error);
  for (int64_t at = 0; status == DP_OK && at < n; at += PIECE) {
    const int64_t count = piece_at(at, n);
    round_all(count, from + at, piece);
    status = to_device(halves + at, piece, (size_t)count * sizeof *piece, error);
  }
  free(piece);
  return status;
}

dp_status exec_cuda_read_masters(exec_worker *w, int64_t n, const void *weights, const uint16_t *low, float *to,
                                 dp_error *error) {
  const uint16_t *from = weights;
  DP_TRY(quiet(w, error));
  uint16_t *piece = malloc(2 * PIECE * sizeof *piece), *low_piece = piece ? piece + PIECE : NULL;
  dp_status status = piece ? DP_OK : dp_fail_memory(error);
  for (int64_t at = 0; status == DP_OK && at < n; at += PIECE) {
    const int64_t count = piece_at(at, n);
    const size_t bytes = (size_t)count * sizeof *piece;
    status = to_host(piece, from + at, bytes, error);
    if (status == DP_OK) status = to_host(low_piece, low + at, bytes, error);
    for (int64_t i = 0; status == DP_OK && i < count; i++)
      to[at + i] = value_of(kern_halves_join(piece[i], low_piece[i]));
  }
  free(piece);
  return status;
}

dp_status exec_cuda_write_masters(exec_worker *w, int64_t n, const float *from, void *weights, uint16_t *low,
                                  dp_error *error) {
  uint16_t *to = weights;
  DP_TRY(quiet(w, error));
  uint16_t *piece = malloc(2 * PIECE * sizeof *piece), *low_piece = piece ? piece + PIECE : NULL;
  dp_status status = piece ? DP_OK : dp_fail_memory(error);
  for (int64_t at = 0; status == DP_OK && at < n; at += PIECE) {
    const int64_t count = piece_at(at, n);
    const size_t bytes = (size_t)count * sizeof *piece;
    for (int64_t i = 0; i < count; i++) {
      const uint32_t kept = kern_halves_kept(bits_of(from[at + i]));
      piece[i] = (uint16_t)kern_halves_weight(kept);
      low_piece[i] = (uint16_t)kern_halves_low(kept);
    }
    status = to_device(to + at, piece, bytes, error);
    if (status == DP_OK) status = to_device(low + at, low_piece, bytes, error);
  }
  free(piece);
  return status;
}

float *exec_cuda_fetch(exec_worker *w, int64_t n, const void *from) {
  kern_cuda *kernels = exec_cuda_of(w)->kernels;
  const graph_dtype dtype = exec_cuda_dtype(kernels) == KERN_BF16 ? GRAPH_BF16 : GRAPH_FP32;
  dp_error error = DP_ERROR_INIT;
  float *to = malloc((size_t)n * sizeof *to);
  dp_status status = to ? DP_OK : dp_fail_memory(&error);
  if (status == DP_OK) status = exec_cuda_read(w, dtype, n, from, to, &error);
  if (status == DP_OK) return to;
  kern_cuda_fail(kernels, status, "%s", error.text);
  free(to);
  return NULL;
}
