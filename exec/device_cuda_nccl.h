/* NCCL under the lanes of workers on CUDA devices; internal to exec/.
 *
 * Communicators do not block: whoever waits for one looks at its errors meanwhile, and gives up when the run cannot go
 * on, or after DIFFPIPE_NCCL_TIMEOUT_S of the environment (30 s) when one is being made. Each is used by one lane's
 * thread, and any other may look at it or abort it meanwhile: NCCL wants one thread at a time in a communicator, asking
 * for its errors included, so each has a lock. A build without NCCL has the functions, which say so.
 */
#ifndef DP_EXEC_DEVICE_CUDA_NCCL_H
#define DP_EXEC_DEVICE_CUDA_NCCL_H

#include <cuda_runtime_api.h>

#include "exec/device.h"

enum { EXEC_NCCL_ID_BYTES = 128 };

typedef struct exec_nccl exec_nccl; /* a communicator */

typedef struct exec_nccl_how {
  unsigned char id[EXEC_NCCL_ID_BYTES];
  int rank, ranks;
  int most_sms;            /* that its kernels may take; 0: as many as NCCL likes */
  const char *peer;        /* for errors: "worker 3 (process 1)", all the others; copied, cut at 255 bytes */
  const atomic_bool *stop; /* the step cannot go on */
  const atomic_bool *lost; /* the run cannot; NULL: nobody watches */
} exec_nccl_how;

/* Multiprocessors for each of so many communicators on a device, whose kernels must all find room beside each other: a
 * third of it for all of them. */
static inline int exec_nccl_share(int sms, int count) { return sms / 3 > count ? sms / 3 / count : 1; }

bool exec_nccl_is_known(void); /* to this build */
bool exec_nccl_is_there(void); /* and on this machine */
dp_status exec_nccl_make_id(unsigned char id[EXEC_NCCL_ID_BYTES], dp_error *error);
/* On the current device; all ranks must call it. */
dp_status exec_nccl_open(const exec_nccl_how *how, exec_nccl **nccl, dp_error *error);
/* At a clean end, when nothing is under way; what was aborted is only freed. All ranks of a host must call it, for their
 * communicators in one order; one that waits for 5 s for others that have gone leaves the rest to the end of the process.
 * NULL is fine. */
void exec_nccl_close(exec_nccl *nccl);
/* What is under way ends where it is; a lane's thread that is in one must be about to leave it (*stop is true). All
 * `count` communicators at once, for the end of each frees memory, which the driver puts off until the kernels of all have
 * ended. Returns when all have, or after 5 s. Further calls with them fail. NULLs are fine. */
void exec_nccl_abort(exec_nccl *const *nccls, int count);

/* In the queue of a stream: pieces to the other of two ranks, or from it; a sum over all ranks, in place. */
dp_status exec_nccl_send(exec_nccl *nccl, int count, const exec_piece *pieces, cudaStream_t stream, dp_error *error);
dp_status exec_nccl_receive(exec_nccl *nccl, int count, const exec_piece *pieces, cudaStream_t stream, dp_error *error);
dp_status exec_nccl_sum(exec_nccl *nccl, bool bf16, int64_t n, void *values, cudaStream_t stream, dp_error *error);
/* Whether what was put in a queue can still end: DP_RUN_FAILED names the peer. By any thread, at once: DP_OK, too, while
 * another one is in the communicator, which then sees for itself. */
dp_status exec_nccl_look(exec_nccl *nccl, dp_error *error);

#endif
