/* What goes from process to process under the lanes of workers on CUDA devices; internal to exec/.
 *
 * A wire joins a SEND lane and its RECV lane in two processes, a circle the processes that have members of a replica
 * group. Which way they go is plan/transport.h's, where the machines allow it: `local` between two hosts becomes NCCL
 * (without NCCL, host), `local` between two GPUs that cannot map each other's memory becomes host; both ends try, and
 * both agree.
 *
 *   local   The other's memory is mapped (CUDA IPC). The host's transport carries where a tensor lies, an event of each
 *           end orders the queues: the receiver's waits for the sender's, copies by a copy engine, and the sender's waits
 *           until that has been done. In a circle its first process adds the others' sums to its own, in their order,
 *           and the others copy the result: each process's own members first, then process by process.
 *   nccl    Its send and receive, a communicator a wire; its all-reduce, a communicator a circle, in NCCL's own order.
 *   host    On one host through a ring of pinned memory that both have mapped (device_cuda_ring.h); else, and where there
 *           is no such memory, through two pieces of pinned memory in turns and the host's transport. A lane's thread
 *           waits for the copies (nobody else does). In a circle the first process adds on the host.
 */
#ifndef DP_EXEC_DEVICE_CUDA_WIRE_H
#define DP_EXEC_DEVICE_CUDA_WIRE_H

#include "exec/device_cuda.h"
#include "exec/device_cuda_nccl.h"
#include "exec/device_cuda_ring.h"

typedef struct exec_cuda_link { /* to another process */
  int process;
  uint32_t worker;   /* of it: the other end, or its first member */
  uint32_t tag;      /* of the host's transport, both ways */
  cudaEvent_t event; /* the other's */
  char *memory;      /* of that worker, here */
} exec_cuda_link;

/* What a lane and the other ends share out among them. */
struct exec_cuda_wire {
  plan_transport way;
  int ranks, rank; /* rank: 0 is the sender, or the circle's first process */
  int link_count;  /* the first process has one to each of the others, these one to it */
  exec_cuda_link *links;
  cudaEvent_t event; /* this end's */
  exec_nccl *nccl;
  uint32_t order;        /* the lane of the program for which it was opened: one number of all its ends */
  exec_cuda_ring *ring;  /* host: in the place of pinned; NULL: there is none */
  char *pinned[2];       /* EXEC_CUDA_PIECE bytes each */
  cudaEvent_t copied[2]; /* the last copy to or from it */
  void *token;           /* a few bytes of the device */
};

/* All wires and circles of this process, which meets the others for it. In exec_cuda_lanes. */
dp_status exec_cuda_open_wires(exec_pipeline *p, dp_error *error);
void exec_cuda_close_wires(exec_pipeline *p);
/* Whether what is under way can still end. */
dp_status exec_cuda_look_at_wires(exec_pipeline *p, dp_error *error);
/* Once the step has been stopped: aborts all communicators. */
void exec_cuda_abandon_wires(exec_pipeline *p);

dp_status exec_cuda_send(exec_pipeline *p, uint32_t instruction, int count, const exec_piece *pieces, dp_error *error);
dp_status exec_cuda_receive(exec_pipeline *p, uint32_t instruction, int count, const exec_piece *pieces,
                            dp_error *error);
dp_status exec_cuda_reduce(exec_pipeline *p, uint32_t instruction, int64_t n, void *gradients, dp_error *error);
/* Every worker's square, norms[worker], known here for those here, to all processes. */
dp_status exec_cuda_share_squares(exec_pipeline *p, double *norms, dp_error *error);

/* The allocation of a worker here that others map; parameters: that which has its parameters, another pipeline's where
 * it borrows them. */
char *exec_cuda_memory_of(const exec_pipeline *p, uint32_t worker, bool parameters);

/* Waits, asleep, until an event has come: DP_RUN_FAILED when the step cannot go on before that. */
dp_status exec_cuda_wait(const exec_pipeline *p, cudaEvent_t event, dp_error *error);

#endif
