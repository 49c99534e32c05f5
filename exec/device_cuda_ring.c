#define _GNU_SOURCE /* memfd_create, syscall */
#include "exec/device_cuda_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
  SLOTS = EXEC_CUDA_RING_SLOTS,
  PIECE = EXEC_CUDA_RING_PIECE,
  APART = 128
}; /* bytes: counters in lines of their own */

/* What one side has done. */
typedef struct progress {
  _Alignas(APART) atomic_uint_least64_t pieces;
  atomic_uint bell;   /* another number each time that `pieces` is: a futex */
  atomic_uint asleep; /* the other side is at it */
} progress;

/* At the beginning of the memory; the slots begin at the next page. */
typedef struct shared {
  uint64_t token;
  progress filled;  /* by the sender */
  progress emptied; /* by the receiver */
} shared;

struct exec_cuda_ring {
  shared *shared;
  char *slots;
  size_t bytes;              /* mapped */
  int file;                  /* the sender's, until it hides it; -1: closed */
  cudaEvent_t copied[SLOTS]; /* the last copy of this side */
  uint64_t begun, ended;     /* pieces whose copies are in the queue; that are known to be done */
  uint64_t told;             /* of them the other has been told */
  bool sends, pinned;
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "a lock would be of one process");

/* ---- making it ---- */

static size_t head_bytes(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (sizeof(shared) + page - 1) / page * page;
}

static size_t ring_bytes(void) { return head_bytes() + (size_t)SLOTS * PIECE; }

/* Of a file; the receiver's has the sender's token. The file stays open. */
static exec_cuda_ring *open_ring(int file, bool sends, uint64_t token) {
  exec_cuda_ring *r = calloc(1, sizeof *r);
  void *memory = r ? mmap(NULL, ring_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (memory == MAP_FAILED) {
    free(r);
    return NULL;
  }
  r->shared = memory;
  r->slots = (char *)memory + head_bytes();
  r->bytes = ring_bytes();
  r->file = -1;
  r->sends = sends;
  if (sends) r->shared->token = token;
  r->pinned = r->shared->token == token && cudaHostRegister(memory, r->bytes, cudaHostRegisterPortable) == cudaSuccess;
  bool good = r->pinned;
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

/* All of it now: what is not there when it is touched ends the process. */
static bool allocate(int file) {
  int code = 0;
  do code = posix_fallocate(file, 0, (off_t)ring_bytes());
  while (code == EINTR);
  return code == 0;
}

#define FILE_NAME "diffpipe"

exec_cuda_ring *exec_cuda_ring_make(exec_cuda_ring_name *name) {
  memset(name, 0, sizeof *name); /* it travels as bytes */
  const int file = is_wanted() ? memfd_create(FILE_NAME, MFD_CLOEXEC) : -1;
  if (file < 0) return NULL;
  const uint64_t token = (uint64_t)(dp_clock_s() * 1e9) ^ (uint64_t)getpid() << 40;
  exec_cuda_ring *r = allocate(file) ? open_ring(file, true, token) : NULL;
  if (!r) {
    (void)close(file);
    return NULL;
  }
  r->file = file;
  name->token = token;
  (void)snprintf(name->path, sizeof name->path, "/proc/%ld/fd/%d", (long)getpid(), file);
  return r;
}

/* Whether a path leads to such memory. In a container of its own the number of the process is another's. */
static bool is_ring(const char *path) {
  static const char want[] = "/memfd:" FILE_NAME;
  char text[sizeof want] = "";
  return readlink(path, text, sizeof text) >= (ssize_t)sizeof want - 1 && memcmp(text, want, sizeof want - 1) == 0;
}

exec_cuda_ring *exec_cuda_ring_join(const exec_cuda_ring_name *name) {
  if (!name->path[0] || !is_wanted() || !is_ring(name->path)) return NULL;
  const int file = open(name->path, O_RDWR | O_CLOEXEC);
  if (file < 0) return NULL;
  const bool whole = lseek(file, 0, SEEK_END) == (off_t)ring_bytes();
  exec_cuda_ring *r = whole ? open_ring(file, false, name->token) : NULL;
  (void)close(file);
  return r;
}

void exec_cuda_ring_hide(exec_cuda_ring *r) {
  if (!r || r->file < 0) return;
  (void)close(r->file);
  r->file = -1;
}

void exec_cuda_ring_close(exec_cuda_ring *r) {
  if (!r) return;
  exec_cuda_ring_hide(r);
  for (int i = 0; i < SLOTS; i++)
    if (r->copied[i]) (void)cudaEventDestroy(r->copied[i]);
  if (r->pinned) (void)cudaHostUnregister(r->shared);
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

/* ---- sleeping until the other side has done something ---- */

static const double LOOK_S = 20e-3; /* how often a sleeper looks whether the step goes on */

static void ring_bell(progress *c) { (void)syscall(SYS_futex, &c->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

static void await_bell(progress *c, unsigned heard) {
  const struct timespec most = {0, (long)(LOOK_S * 1e9)};
  (void)syscall(SYS_futex, &c->bell, FUTEX_WAIT, heard, &most, NULL, 0);
}

/* All of these are in one order: who is not seen asleep here has yet to look at the pieces, or at the bell. */
static void tell(progress *mine, uint64_t pieces) {
  atomic_store(&mine->pieces, pieces);
  (void)atomic_fetch_add(&mine->bell, 1);
  if (atomic_load(&mine->asleep)) ring_bell(mine);
}

static void sleep_past(progress *others, uint64_t number) {
  atomic_store(&others->asleep, 1);
  const unsigned heard = atomic_load(&others->bell);
  if (atomic_load(&others->pieces) <= number) await_bell(others, heard);
  atomic_store(&others->asleep, 0);
}

/* ---- using it ---- */

/* Tells the other of the copies that have been done. */
static dp_status look(exec_cuda_ring *r, dp_error *error) {
  for (; r->ended < r->begun; r->ended++) {
    const cudaError_t result = cudaEventQuery(r->copied[r->ended % SLOTS]);
    if (result == cudaErrorNotReady) break;
    DP_TRY(exec_cuda_check(result, "cudaEventQuery", error));
  }
  if (r->told == r->ended) return DP_OK;
  r->told = r->ended;
  tell(r->sends ? &r->shared->filled : &r->shared->emptied, r->ended);
  return DP_OK;
}

/* A piece travels 40 to 150 us, and the next follows: a thread that has slept wakes too late for it. Then what comes late
 * is noticed late in proportion. */
static const double TRAVELS_S = 100e-6;
static double pause_s(double waited_s) { return fmin(waited_s / 16, 200e-6); }

/* Until a counter is past a number. This side's copies, for which the other may wait, tell nobody that they are done, so
 * while there are some they are looked at; else, as a receiver's thread mostly is, asleep until the other side tells. */
static dp_status wait_past(const exec_pipeline *p, exec_cuda_ring *r, progress *c, uint64_t number, dp_error *error) {
  const exec_transport *t = p->work.options.transport;
  const double began_s = dp_clock_s();
  for (;;) {
    DP_TRY(look(r, error));
    if (atomic_load(&c->pieces) > number) return DP_OK;
    if (atomic_load(&p->stop) || (t && t->lost && atomic_load(t->lost)))
      return dp_fail(error, DP_RUN_FAILED, "a message was no longer waited for: the run cannot go on");
    const double waited_s = dp_clock_s() - began_s;
    if (waited_s < TRAVELS_S)
      (void)sched_yield();
    else if (r->ended == r->begun)
      sleep_past(c, number);
    else
      dp_sleep_s(pause_s(waited_s));
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

/* One that the other has filled, or emptied. */
static dp_status wait_for_slot(const exec_pipeline *p, exec_cuda_ring *r, dp_error *error) {
  if (!r->sends) return wait_past(p, r, &r->shared->filled, r->begun, error);
  return r->begun < SLOTS ? DP_OK : wait_past(p, r, &r->shared->emptied, r->begun - SLOTS, error);
}

static dp_status copy_all(const exec_pipeline *p, exec_cuda_ring *r, cudaStream_t stream, int count,
                          const exec_piece *pieces, dp_error *error) {
  exec_cuda_cursor c = {.pieces = pieces, .count = count};
  char *at = NULL;
  size_t bytes = 0;
  dp_wake_in_time();
  for (bool more = exec_cuda_next(&c, PIECE, &at, &bytes), first = true; more || first; first = false) {
    DP_TRY(wait_for_slot(p, r, error));
    DP_TRY(copy(r, stream, more ? at : NULL, bytes, error));
    more = more && exec_cuda_next(&c, PIECE, &at, &bytes);
  }
  return DP_OK;
}

dp_status exec_cuda_ring_send(const exec_pipeline *p, exec_cuda_ring *r, cudaStream_t stream, int count,
                              const exec_piece *pieces, dp_error *error) {
  DP_TRY(copy_all(p, r, stream, count, pieces, error));
  return wait_past(p, r, &r->shared->filled, r->begun - 1, error);
}

dp_status exec_cuda_ring_receive(const exec_pipeline *p, exec_cuda_ring *r, cudaStream_t stream, int count,
                                 const exec_piece *pieces, dp_error *error) {
  DP_TRY(copy_all(p, r, stream, count, pieces, error));
  return look(r, error);
}
