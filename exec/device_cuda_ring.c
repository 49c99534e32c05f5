#define _POSIX_C_SOURCE 200809L
#include "exec/device_cuda_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

enum {
  SLOTS = EXEC_CUDA_RING_SLOTS,
  PIECE = EXEC_CUDA_RING_PIECE,
  APART = 128
}; /* bytes: counters in lines of their own */

/* At the beginning of the memory; the slots begin at the next page. */
typedef struct shared {
  uint64_t token;
  _Alignas(APART) atomic_uint_least64_t filled;  /* pieces, by the sender */
  _Alignas(APART) atomic_uint_least64_t emptied; /* by the receiver */
} shared;

struct exec_cuda_ring {
  shared *shared;
  char *slots;
  size_t bytes;              /* mapped */
  cudaEvent_t copied[SLOTS]; /* the last copy of this side */
  uint64_t begun, ended;     /* pieces whose copies are in the queue; that are known to be done, and counted */
  bool sends;
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a lock would be of one process");

/* ---- making it ---- */

static size_t head_bytes(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (sizeof(shared) + page - 1) / page * page;
}

/* The file is closed. */
static exec_cuda_ring *open_ring(int file, bool sends) {
  exec_cuda_ring *r = calloc(1, sizeof *r);
  const size_t bytes = head_bytes() + (size_t)SLOTS * PIECE;
  void *memory = r ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  (void)close(file);
  if (memory == MAP_FAILED) {
    free(r);
    return NULL;
  }
  r->shared = memory;
  r->slots = (char *)memory + head_bytes();
  r->bytes = bytes;
  r->sends = sends;
  bool good = cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess;
  for (int i = 0; good && i < SLOTS; i++)
    good = cudaEventCreateWithFlags(&r->copied[i], cudaEventDisableTiming) == cudaSuccess;
  if (good) return r;
  exec_cuda_ring_close(r);
  (void)cudaGetLastError(); /* nobody else is to find it */
  return NULL;
}

static bool is_wanted(void) {
  const char *text = getenv("DIFFPIPE_SHARED_MEMORY");
  return !text || strcmp(text, "0") != 0;
}

exec_cuda_ring *exec_cuda_ring_make(exec_cuda_ring_name *name) {
  static atomic_uint made;
  int file = -1;
  memset(name, 0, sizeof *name); /* it travels as bytes */
  if (!is_wanted()) return NULL;
  for (int tries = 0; file < 0 && tries < 100; tries++) {
    (void)snprintf(name->name, sizeof name->name, "/diffpipe-%ld-%u", (long)getpid(), atomic_fetch_add(&made, 1));
    file = shm_open(name->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 && errno != EEXIST) break; /* another's, which has the number of this process in its own container */
  }
  /* all of it now: what is not there when it is touched ends the process */
  const bool there = file >= 0 && posix_fallocate(file, 0, (off_t)(head_bytes() + (size_t)SLOTS * PIECE)) == 0;
  if (file >= 0 && !there) (void)close(file);
  exec_cuda_ring *r = there ? open_ring(file, true) : NULL;
  if (!r) {
    if (file >= 0) (void)shm_unlink(name->name);
    memset(name, 0, sizeof *name);
    return NULL;
  }
  name->token = (uint64_t)(dp_clock_s() * 1e9) ^ (uint64_t)getpid() << 40;
  r->shared->token = name->token;
  return r;
}

exec_cuda_ring *exec_cuda_ring_join(const exec_cuda_ring_name *name) {
  if (!name->name[0] || !is_wanted()) return NULL;
  const int file = shm_open(name->name, O_RDWR, 0);
  if (file < 0) return NULL;
  if (lseek(file, 0, SEEK_END) != (off_t)(head_bytes() + (size_t)SLOTS * PIECE)) {
    (void)close(file);
    return NULL;
  }
  exec_cuda_ring *r = open_ring(file, false);
  if (r && r->shared->token == name->token) return r;
  exec_cuda_ring_close(r);
  return NULL;
}

void exec_cuda_ring_take_name(const exec_cuda_ring_name *name) {
  if (name->name[0]) (void)shm_unlink(name->name);
}

void exec_cuda_ring_close(exec_cuda_ring *r) {
  if (!r) return;
  for (int i = 0; i < SLOTS; i++)
    if (r->copied[i]) (void)cudaEventDestroy(r->copied[i]);
  (void)cudaHostUnregister(r->shared);
  (void)munmap(r->shared, r->bytes);
  free(r);
}

/* ---- what is left of a message ---- */

bool exec_cuda_next(exec_cuda_cursor *c, size_t most, char **at, size_t *bytes) {
  while (c->piece < c->count && c->at == c->pieces[c->piece].bytes) {
    c->piece++;
    c->at = 0;
  }
  if (c->piece == c->count) return false;
  const size_t left = c->pieces[c->piece].bytes - c->at;
  *at = (char *)c->pieces[c->piece].at + c->at;
  *bytes = left < most ? left : most;
  c->at += *bytes;
  return true;
}

/* ---- using it ---- */

/* Tells the other of the copies that have been done. */
static dp_status look(exec_cuda_ring *r, dp_error *error) {
  for (; r->ended < r->begun; r->ended++) {
    const cudaError_t result = cudaEventQuery(r->copied[r->ended % SLOTS]);
    if (result == cudaErrorNotReady) break;
    DP_TRY(exec_cuda_check(result, "cudaEventQuery", error));
  }
  atomic_store(r->sends ? &r->shared->filled : &r->shared->emptied, r->ended);
  return DP_OK;
}

/* Until a counter is past a number; looking at this side's copies meanwhile, for which the other may wait. */
static dp_status wait_past(const exec_pipeline *p, exec_cuda_ring *r, const atomic_uint_least64_t *counter,
                           uint64_t number, dp_error *error) {
  const exec_transport *t = p->work.options.transport;
  const double began_s = dp_clock_s();
  for (;;) {
    DP_TRY(look(r, error));
    if (atomic_load(counter) > number) return DP_OK;
    if (atomic_load(&p->stop) || (t && t->lost && atomic_load(t->lost)))
      return dp_fail(error, DP_RUN_FAILED, "a message was no longer waited for: the run cannot go on");
    const double waited_s = dp_clock_s() - began_s;
    if (waited_s > 20e-6) dp_sleep_s(waited_s < 2e-3 ? 10e-6 : 100e-6);
  }
}

/* at: NULL where a message has no bytes. */
static dp_status copy(exec_cuda_ring *r, cudaStream_t stream, char *at, size_t bytes, dp_error *error) {
  const uint64_t slot = r->begun % SLOTS;
  char *there = r->slots + slot * PIECE;
  if (at && r->sends) EXEC_CUDA_TRY(cudaMemcpyAsync(there, at, bytes, cudaMemcpyDeviceToHost, stream), error);
  if (at && !r->sends) EXEC_CUDA_TRY(cudaMemcpyAsync(at, there, bytes, cudaMemcpyHostToDevice, stream), error);
  EXEC_CUDA_TRY(cudaEventRecord(r->copied[slot], stream), error);
  r->begun++;
  return DP_OK;
}

dp_status exec_cuda_ring_send(const exec_pipeline *p, exec_cuda_ring *r, cudaStream_t stream, int count,
                              const exec_piece *pieces, dp_error *error) {
  exec_cuda_cursor c = {.pieces = pieces, .count = count};
  char *at = NULL;
  size_t bytes = 0;
  for (bool more = exec_cuda_next(&c, PIECE, &at, &bytes), first = true; more || first; first = false) {
    if (r->begun >= SLOTS) DP_TRY(wait_past(p, r, &r->shared->emptied, r->begun - SLOTS, error));
    DP_TRY(copy(r, stream, more ? at : NULL, bytes, error));
    more = more && exec_cuda_next(&c, PIECE, &at, &bytes);
  }
  return wait_past(p, r, &r->shared->filled, r->begun - 1, error);
}

dp_status exec_cuda_ring_receive(const exec_pipeline *p, exec_cuda_ring *r, cudaStream_t stream, int count,
                                 const exec_piece *pieces, dp_error *error) {
  exec_cuda_cursor c = {.pieces = pieces, .count = count};
  char *at = NULL;
  size_t bytes = 0;
  for (bool more = exec_cuda_next(&c, PIECE, &at, &bytes), first = true; more || first; first = false) {
    DP_TRY(wait_past(p, r, &r->shared->filled, r->begun, error));
    DP_TRY(copy(r, stream, more ? at : NULL, bytes, error));
    more = more && exec_cuda_next(&c, PIECE, &at, &bytes);
  }
  return look(r, error);
}
