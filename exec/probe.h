/* What a link takes now, apart from any run: one message, alone, by the way that a plan's workers exchange data. A run
 * that has left a link looks so whether it is well again.
 *
 * On processors it is a copy in their memory. On CUDA devices it is a copy by the copy engines, through pinned memory
 * of the host where the way is `host`; a way that is NCCL's is looked at by such a copy, too, which crosses the same
 * links. The least of EXEC_PROBES copies counts, after one that is not timed: what is compared is one probe with
 * another, of the same link when it was well.
 */
#ifndef DP_EXEC_PROBE_H
#define DP_EXEC_PROBE_H

#include "exec/transport.h"
#include "plan/cluster.h"
#include "plan/plan.h"
#include "plan/program.h"

enum { EXEC_PROBE_BYTES = 64 << 20 }; /* at most */

typedef struct exec_probe {
  bool cuda;
  const plan_cluster *cluster;
  const plan_program *program; /* of the plan whose workers' link it is */
  int from_worker, to_worker;
  plan_transport way;
  int64_t bytes;             /* of the message; 1 to EXEC_PROBE_BYTES are copied */
  int64_t step;              /* the next one, for exec/throttle.h */
  exec_transport *transport; /* NULL: one process */
  int from_process, to_process;
} exec_probe;

/* Between two steps. Every process calls it, and has the same answer; between two processes, which are on processors,
 * it is a message by the transport and a word back. */
dp_status exec_probe_link(const exec_probe *probe, double *seconds, dp_error *error);

#endif
