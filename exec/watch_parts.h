/* What the files of the watch share; see exec/watch.h. */
#ifndef DP_EXEC_WATCH_PARTS_H
#define DP_EXEC_WATCH_PARTS_H

#include "exec/watch.h"

enum { EXEC_HOST_BYTES = 64, EXEC_PATH_BYTES = 1001 };

/* What is told under way. Both ends are the same program on like machines. */
typedef struct exec_alive {
  int64_t step;         /* 0: before the first */
  uint32_t instruction; /* PLAN_NO_PEER: none */
  uint32_t unused;
} exec_alive;

typedef enum exec_fate { EXEC_HERE, EXEC_LEFT, EXEC_GONE, EXEC_SILENT } exec_fate;

/* Another process. */
typedef struct exec_peer {
  int socket; /* -1: none */
  int pid;
  char host[EXEC_HOST_BYTES];
  exec_fate fate;
  bool deaf; /* it takes no more bytes: nothing is sent to it any more */
  double heard_s;
  exec_alive alive;
  char checkpoint[EXEC_PATH_BYTES];
  char *inbox; /* [EXEC_FRAME_BYTES] */
  size_t inbox_count;
} exec_peer;

/* ---- watch_mesh.c ---- */

/* Connects every two processes: sockets, hosts and pids in peers[process_count], whose own entry has no socket. */
dp_status exec_mesh_open(exec_transport *transport, exec_peer *peers, dp_error *error);

/* ---- watch_line.c ---- */

typedef struct exec_loss {
  const exec_peer *peers;
  int process_count, process; /* process: the one to tell about */
  const plan_program *program;
  double silence_s;
  int64_t step;           /* of the run: its own may not have been heard any more */
  const char *checkpoint; /* "": none */
} exec_loss;
/* "worker 2 (process 2, host H, pid P) is gone at step 12, last heard of during worker 2 BACKWARD chunk 2 microbatch 5;
 * last good checkpoint: PATH" */
void exec_loss_show(const exec_loss *loss, char line[DP_ERROR_TEXT_BYTES]);

#endif
