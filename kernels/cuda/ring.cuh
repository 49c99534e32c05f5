// Asynchronous copies of 16 bytes into a ring in shared memory, so that bytes are on their way while a thread computes
// and no register waits for them. Each thread reads what it copied itself: nothing waits for other threads.
#ifndef DP_KERNELS_CUDA_RING_CUH
#define DP_KERNELS_CUDA_RING_CUH

#include "kernels/cuda/norm.cuh"

namespace kern {

// Without a hint for the device's cache: with one ptxas 13.0 addresses some of these copies by registers that are no
// descriptor, which the device calls an illegal instruction.
__device__ __forceinline__ void ring_fetch(uint4 *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}
// What was fetched since the last one is one stage, even if it is nothing.
__device__ __forceinline__ void ring_close() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the newest stages - 1 have come.
__device__ __forceinline__ void ring_wait(int stages) {
  if (stages == 2)
    asm volatile("cp.async.wait_group 1;" ::: "memory");
  else if (stages == 3)
    asm volatile("cp.async.wait_group 2;" ::: "memory");
  else
    asm volatile("cp.async.wait_group 3;" ::: "memory");
}

// Where an access lies, and whether there is any. Not a pointer that may be NULL: nvcc 13.0 takes some that are one or
// the other for pointers into shared memory (an illegal instruction).
template <typename T>
struct ring_place {
  const T *at;
  bool there;
};

// What a thread reads in turns of P accesses of N values, STAGES turns ahead where an access is of 16 bytes, else when
// it is taken. from(turn, p) is a ring_place.
template <typename T, int N, int P, int STAGES, typename From>
struct rows_ring {
  static constexpr bool AHEAD = N * sizeof(T) == 16;
  From from;
  uint4 *slots; /* [stage][p][thread], from this thread on */
  int turn = 0, stage = 0;
  __device__ __forceinline__ rows_ring(void *shared, From from) : from(from), slots((uint4 *)shared + threadIdx.x) {
    if constexpr (AHEAD)
#pragma unroll
      for (int s = 0; s < STAGES; s++) fetch(s, s);
  }
  __device__ __forceinline__ uint4 *slot(int of_stage, int p) const { return slots + (of_stage * P + p) * blockDim.x; }
  __device__ __forceinline__ void fetch(int of_turn, int to_stage) const {
#pragma unroll
    for (int p = 0; p < P; p++) {
      const ring_place<T> place = from(of_turn, p);
      if (place.there) ring_fetch(slot(to_stage, p), place.at);
    }
    ring_close();
  }
  // This turn's; of what is not there, anything.
  __device__ __forceinline__ void take(packed<T, N> (&u)[P]) const {
    if constexpr (AHEAD) ring_wait(STAGES);
#pragma unroll
    for (int p = 0; p < P; p++) {
      if constexpr (AHEAD)
        u[p] = load_packed<T, N>(reinterpret_cast<const T *>(slot(stage, p)));
      else if (const ring_place<T> place = from(turn, p); place.there)
        u[p] = load_packed<T, N>(place.at);
    }
  }
  // After it: the place of what was taken is free.
  __device__ __forceinline__ void go_on() {
    if constexpr (AHEAD) fetch(turn + STAGES, stage);
    turn++;
    stage = stage + 1 < STAGES ? stage + 1 : 0;
  }
};
template <typename T, int N, int P, int STAGES, typename From>
__device__ __forceinline__ rows_ring<T, N, P, STAGES, From> ring_of(void *shared, From from) {
  return {shared, from};
}
// Bytes of shared memory.
inline size_t ring_bytes(int threads, int value_bytes, int n, int p, int stages) {
  return n * value_bytes == 16 ? (size_t)threads * (size_t)(p * stages * 16) : 0;
}

}  // namespace kern
#endif
