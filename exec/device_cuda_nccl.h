/* NCCL under the lanes of workers on CUDA devices; internal to exec/.
 *
 * Communicators do not block: whoever waits for one looks at its errors meanwhile, and gives up when the run cannot go
 * on, or after DIFFPIPE_NCCL_TIMEOUT_S of the environment (30 s) when one is being made. Each is used by one lane's
 * thread at a time. A build without NCCL has the functions, which say so.
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
  const char *peer;        /* for errors: "worker 3 (process 1)"; copied */
  const atomic_bool *stop; /* the step cannot go on */
  const atomic_bool *lost; /* the run cannot; NULL: nobody watches */
} exec_nccl_how;

bool exec_nccl_is_known(void); /* to this build */
bool exec_nccl_is_there(void); /* and on this machine */
dp_status exec_nccl_make_id(unsigned char id[EXEC_NCCL_ID_BYTES], dp_error *error);
/* On the current device; all ranks must call it. */
dp_status exec_nccl_open(const exec_nccl_how *how, exec_nccl **nccl, dp_error *error);
/* abort: what is under way ends where it is. All ranks of a host must call it, for their communicators in one order; one
 * that waits for 5 s for others that have gone leaves the rest to the end of the process. NULL is fine. */
void exec_nccl_close(exec_nccl *nccl, bool abort);

/* In the queue of a stream: pieces to the other of two ranks, or from it; a sum over all ranks, in place. */
dp_status exec_nccl_send(exec_nccl *nccl, int count, const exec_piece *pieces, cudaStream_t stream, dp_error *error);
dp_status exec_nccl_receive(exec_nccl *nccl, int count, const exec_piece *pieces, cudaStream_t stream, dp_error *error);
dp_status exec_nccl_sum(exec_nccl *nccl, bool bf16, int64_t n, void *values, cudaStream_t stream, dp_error *error);
/* Whether what was put in a queue can still end. */
dp_status exec_nccl_look(exec_nccl *nccl, dp_error *error);

#endif
