/* A ring of pinned memory that two processes of one host have mapped, and through which pieces of messages go from a
 * device of one to a device of the other: the sender's queue copies into a slot, the receiver's out of it, and the host's
 * threads only watch the copies and count; one that has none under way sleeps until the other side wakes it. Internal to
 * exec/.
 *
 * The sender makes it, as a file of memory without a name (memfd_create), and tells where among its own files in /proc the
 * other finds it; once that has joined, the file is closed. So it is outside /dev/shm, whose size containers limit and
 * which MPI and NCCL need, and nothing of it is left of a process that is killed at whatever time. Where either fails, as
 * in containers that do not see each other's processes, or is not wanted (DIFFPIPE_SHARED_MEMORY=0 in the environment of
 * either), there is none, and that is no error.
 * One thread of each process uses it at a time.
 */
#ifndef DP_EXEC_DEVICE_CUDA_RING_H
#define DP_EXEC_DEVICE_CUDA_RING_H

#include "exec/device_cuda.h"

enum {
  EXEC_CUDA_RING_SLOTS = 4,
  EXEC_CUDA_RING_PIECE = 2 << 20, /* bytes of a slot */
};

/* What the one tells the other. */
typedef struct exec_cuda_ring_name {
  char path[64]; /* empty: there is none */
  uint64_t token;
} exec_cuda_ring_name;

typedef struct exec_cuda_ring exec_cuda_ring;

/* Of the current device. NULL: it could not be made, or not joined. */
exec_cuda_ring *exec_cuda_ring_make(exec_cuda_ring_name *name);
exec_cuda_ring *exec_cuda_ring_join(const exec_cuda_ring_name *name);
void exec_cuda_ring_hide(exec_cuda_ring *ring);  /* the sender: nobody joins any more; NULL is fine */
void exec_cuda_ring_close(exec_cuda_ring *ring); /* after all copies; NULL is fine */

/* A message, in the order of both sides' calls; without bytes a word, when all before it in the queue has been done. The
 * sender's comes back when all is in the ring, the receiver's when the last copy is in its queue. DP_RUN_FAILED when the
 * step cannot go on before that. */
dp_status exec_cuda_ring_send(const exec_pipeline *p, exec_cuda_ring *ring, cudaStream_t stream, int count,
                              const exec_piece *pieces, dp_error *error);
dp_status exec_cuda_ring_receive(const exec_pipeline *p, exec_cuda_ring *ring, cudaStream_t stream, int count,
                                 const exec_piece *pieces, dp_error *error);

/* ---- what is left of a message ---- */

typedef struct exec_cuda_cursor {
  const exec_piece *pieces;
  int count, piece;
  size_t at;
} exec_cuda_cursor;

/* The next piece's device memory and bytes, at most `most`; false: there is none. */
bool exec_cuda_next(exec_cuda_cursor *cursor, size_t most, char **at, size_t *bytes);

#endif
