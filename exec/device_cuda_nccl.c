#define _POSIX_C_SOURCE 200809L
#include "exec/device_cuda_nccl.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_NCCL

#include <nccl.h>
#include <stdio.h>

#include "kernels/cuda/libraries.h"

_Static_assert(sizeof(ncclUniqueId) == EXEC_NCCL_ID_BYTES, "ids travel as bytes");

struct exec_nccl {
  pthread_mutex_t lock; /* held for every call of NCCL with the communicator */
  ncclComm_t comm;      /* NULL: aborted */
  char peer[256];
  const atomic_bool *stop, *lost;
  int rank, device;
};

bool exec_nccl_is_known(void) { return true; }
bool exec_nccl_is_there(void) { return kern_cuda_load_nccl(NULL) == DP_OK; }

static double timeout_s(void) {
  const char *text = getenv("DIFFPIPE_NCCL_TIMEOUT_S");
  const double given = text ? strtod(text, NULL) : 0;
  return given > 0 ? given : 30;
}

static dp_status fail(exec_nccl *n, const char *call, ncclResult_t result, dp_error *error) {
  (void)pthread_mutex_lock(&n->lock);
  const char *last = n->comm ? ncclGetLastError(n->comm) : NULL;
  const dp_status status = dp_fail(error, DP_RUN_FAILED, "NCCL with %s: %s: %s%s%s", n->peer, call,
                                   ncclGetErrorString(result), last && last[0] ? ": " : "", last ? last : "");
  (void)pthread_mutex_unlock(&n->lock);
  return status;
}

/* The lock is held. What has been aborted is in progress for ever: who waits sees that the step was stopped. */
static ncclResult_t ask_locked(exec_nccl *n) {
  ncclResult_t result = ncclInProgress;
  const ncclResult_t asked = n->comm ? ncclCommGetAsyncError(n->comm, &result) : ncclSuccess;
  return asked == ncclSuccess ? result : asked;
}

static ncclResult_t ask(exec_nccl *n) {
  (void)pthread_mutex_lock(&n->lock);
  const ncclResult_t result = ask_locked(n);
  (void)pthread_mutex_unlock(&n->lock);
  return result;
}

/* Until the communicator has done what it was told: a call may only have begun it. */
static dp_status settle(exec_nccl *n, const char *call, ncclResult_t result, double limit_s, dp_error *error) {
  const double began_s = dp_clock_s();
  while (result == ncclInProgress) {
    const double waited_s = dp_clock_s() - began_s;
    if (atomic_load(n->stop) || (n->lost && atomic_load(n->lost)))
      return dp_fail(error, DP_RUN_FAILED, "NCCL with %s: %s was given up: the run cannot go on", n->peer, call);
    if (limit_s > 0 && waited_s > limit_s)
      return dp_fail(error, DP_RUN_FAILED, "NCCL with %s: %s: nothing came of it within %.0f s", n->peer, call,
                     limit_s);
    if (waited_s > 50e-6) dp_sleep_s(waited_s < 2e-3 ? 20e-6 : 1e-3);
    result = ask(n);
  }
  return result == ncclSuccess ? DP_OK : fail(n, call, result, error);
}

dp_status exec_nccl_make_id(unsigned char id[EXEC_NCCL_ID_BYTES], dp_error *error) {
  ncclUniqueId made;
  DP_TRY(kern_cuda_load_nccl(error));
  const ncclResult_t result = ncclGetUniqueId(&made);
  if (result != ncclSuccess) return dp_fail(error, DP_RUN_FAILED, "ncclGetUniqueId: %s", ncclGetErrorString(result));
  memcpy(id, &made, sizeof made);
  return DP_OK;
}

/* ---- ending ---- */

typedef struct ending {
  ncclComm_t comm;
  int device;
  bool abort;
  atomic_bool done, left;
} ending;

static void *end_communicator(void *data) {
  ending *e = data;
  (void)cudaSetDevice(e->device);
  (void)(e->abort ? ncclCommAbort(e->comm) : ncclCommDestroy(e->comm));
  atomic_store(&e->done, true);
  while (!atomic_load(&e->left)) dp_sleep_s(1e-3);
  free(e);
  return NULL;
}

/* Both ways wait for the other ranks of this host, of which some may have gone. NULL: it could not be begun. */
static ending *begin_ending(int device, ncclComm_t comm, bool abort) {
  pthread_t thread;
  ending *e = calloc(1, sizeof *e);
  if (!e) return NULL;
  e->comm = comm;
  e->device = device;
  e->abort = abort;
  if (pthread_create(&thread, NULL, end_communicator, e) != 0) {
    free(e);
    return NULL;
  }
  (void)pthread_detach(thread);
  return e;
}

static void leave_ending(ending *e, double until_s) {
  if (!e) return;
  while (!atomic_load(&e->done) && dp_clock_s() < until_s) dp_sleep_s(1e-3);
  atomic_store(&e->left, true);
}

enum { END_S = 5 }; /* the other may have gone */

/* The communicator, for who ends it alone. NULL: it is not to be had, for a thread is in it all the time. */
static ncclComm_t take(exec_nccl *n, double until_s) {
  while (pthread_mutex_trylock(&n->lock) != 0) {
    if (dp_clock_s() > until_s) return NULL;
    dp_sleep_s(1e-3);
  }
  const ncclComm_t comm = n->comm;
  n->comm = NULL;
  (void)pthread_mutex_unlock(&n->lock);
  return comm;
}

void exec_nccl_abort(exec_nccl *const *nccls, int count) {
  const double now_s = dp_clock_s(), until_s = now_s + END_S;
  ending **endings = calloc((size_t)count + 1, sizeof *endings);
  for (int i = 0; endings && i < count; i++) { /* a second for all of them that threads are in */
    const ncclComm_t comm = nccls[i] ? take(nccls[i], now_s + 1) : NULL;
    if (comm) endings[i] = begin_ending(nccls[i]->device, comm, true);
  }
  for (int i = 0; endings && i < count; i++) leave_ending(endings[i], until_s);
  free(endings);
}

void exec_nccl_close(exec_nccl *n) {
  if (!n) return;
  if (n->comm) {
    (void)pthread_mutex_lock(&n->lock);
    const ncclResult_t result = ncclCommFinalize(n->comm);
    (void)pthread_mutex_unlock(&n->lock);
    const bool abort = settle(n, "ncclCommFinalize", result, END_S, NULL) != DP_OK;
    leave_ending(begin_ending(n->device, n->comm, abort), dp_clock_s() + END_S);
  }
  (void)pthread_mutex_destroy(&n->lock);
  free(n);
}

/* ---- beginning ---- */

static dp_status open_communicator(exec_nccl *n, const exec_nccl_how *how, dp_error *error) {
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  /* no clusters of blocks: a cluster needs multiprocessors of one GPC at once, which most_sms of them may not be, and then
   * a kernel waits for one that waits for its peer's; by default there are four in one on Hopper */
  config.cgaClusterSize = 0;
  if (how->most_sms > 0) {
    config.minCTAs = 1;
    config.maxCTAs = how->most_sms;
  }
  if (cudaGetDevice(&n->device) != cudaSuccess) return dp_fail(error, DP_RUN_FAILED, "NCCL has no CUDA device");
  memcpy(&id, how->id, sizeof id);
  const ncclResult_t result = ncclCommInitRankConfig(&n->comm, how->ranks, id, how->rank, &config);
  return settle(n, "ncclCommInitRank", result, timeout_s(), error);
}

dp_status exec_nccl_open(const exec_nccl_how *how, exec_nccl **nccl, dp_error *error) {
  DP_TRY(kern_cuda_load_nccl(error));
  exec_nccl *n = calloc(1, sizeof *n);
  if (!n) return dp_fail_memory(error);
  n->stop = how->stop;
  n->lost = how->lost;
  n->rank = how->rank;
  (void)snprintf(n->peer, sizeof n->peer, "%s", how->peer);
  if (pthread_mutex_init(&n->lock, NULL) != 0) {
    free(n);
    return dp_fail(error, DP_UNSUPPORTED, "the system gives no more locks");
  }
  const dp_status status = open_communicator(n, how, error);
  if (status == DP_OK) {
    *nccl = n;
  } else {
    exec_nccl_abort(&n, 1);
    exec_nccl_close(n);
  }
  return status;
}

/* ---- using ---- */

static dp_status fail_aborted(const exec_nccl *n, dp_error *error) {
  return dp_fail(error, DP_RUN_FAILED, "NCCL with %s: the communicator was aborted", n->peer);
}

static ncclResult_t exchange_locked(exec_nccl *n, bool sends, int count, const exec_piece *pieces,
                                    cudaStream_t stream) {
  ncclResult_t result = ncclGroupStart();
  for (int i = 0; result == ncclSuccess && i < count; i++)
    result = sends ? ncclSend(pieces[i].at, pieces[i].bytes, ncclInt8, 1 - n->rank, n->comm, stream)
                   : ncclRecv(pieces[i].at, pieces[i].bytes, ncclInt8, 1 - n->rank, n->comm, stream);
  const ncclResult_t ended = ncclGroupEnd();
  return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

static dp_status exchange(exec_nccl *n, bool sends, int count, const exec_piece *pieces, cudaStream_t stream,
                          dp_error *error) {
  (void)pthread_mutex_lock(&n->lock);
  const bool there = n->comm != NULL;
  const ncclResult_t result = there ? exchange_locked(n, sends, count, pieces, stream) : ncclInvalidUsage;
  (void)pthread_mutex_unlock(&n->lock);
  if (!there) return fail_aborted(n, error);
  /* the first call connects the two, which the other must be there for: it may be long in coming */
  return settle(n, sends ? "ncclSend" : "ncclRecv", result, 0, error);
}

dp_status exec_nccl_send(exec_nccl *n, int count, const exec_piece *pieces, cudaStream_t stream, dp_error *error) {
  return exchange(n, true, count, pieces, stream, error);
}

dp_status exec_nccl_receive(exec_nccl *n, int count, const exec_piece *pieces, cudaStream_t stream, dp_error *error) {
  return exchange(n, false, count, pieces, stream, error);
}

dp_status exec_nccl_sum(exec_nccl *n, bool bf16, int64_t count, void *values, cudaStream_t stream, dp_error *error) {
  (void)pthread_mutex_lock(&n->lock);
  const bool there = n->comm != NULL;
  const ncclResult_t result =
      there ? ncclAllReduce(values, values, (size_t)count, bf16 ? ncclBfloat16 : ncclFloat32, ncclSum, n->comm, stream)
            : ncclInvalidUsage;
  (void)pthread_mutex_unlock(&n->lock);
  if (!there) return fail_aborted(n, error);
  return settle(n, "ncclAllReduce", result, 0, error);
}

dp_status exec_nccl_look(exec_nccl *n, dp_error *error) {
  if (pthread_mutex_trylock(&n->lock) != 0) return DP_OK;
  const ncclResult_t result = ask_locked(n);
  (void)pthread_mutex_unlock(&n->lock);
  return result == ncclSuccess || result == ncclInProgress ? DP_OK : fail(n, "under way", result, error);
}

#else

static dp_status fail(dp_error *error) {
  return dp_fail(error, DP_UNSUPPORTED, "this build knows no NCCL, allowed: transport local or host, on one machine");
}

bool exec_nccl_is_known(void) { return false; }
bool exec_nccl_is_there(void) { return false; }
dp_status exec_nccl_make_id(unsigned char id[EXEC_NCCL_ID_BYTES], dp_error *error) {
  (void)id;
  return fail(error);
}
dp_status exec_nccl_open(const exec_nccl_how *how, exec_nccl **nccl, dp_error *error) {
  (void)how, (void)nccl;
  return fail(error);
}
void exec_nccl_close(exec_nccl *nccl) { (void)nccl; }
void exec_nccl_abort(exec_nccl *const *nccls, int count) { (void)nccls, (void)count; }
dp_status exec_nccl_send(exec_nccl *nccl, int count, const exec_piece *pieces, cudaStream_t stream, dp_error *error) {
  (void)nccl, (void)count, (void)pieces, (void)stream;
  return fail(error);
}
dp_status exec_nccl_receive(exec_nccl *nccl, int count, const exec_piece *pieces, cudaStream_t stream,
                            dp_error *error) {
  (void)nccl, (void)count, (void)pieces, (void)stream;
  return fail(error);
}
dp_status exec_nccl_sum(exec_nccl *nccl, bool bf16, int64_t n, void *values, cudaStream_t stream, dp_error *error) {
  (void)nccl, (void)bf16, (void)n, (void)values, (void)stream;
  return fail(error);
}
dp_status exec_nccl_look(exec_nccl *nccl, dp_error *error) {
  (void)nccl;
  return fail(error);
}

#endif
