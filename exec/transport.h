/* How worker processes reach each other. A run whose workers are all threads of one process has none (NULL).
 *
 * Tags below EXEC_TAG_CONTROL are lanes of programs; those from there on are control.
 */
#ifndef DP_EXEC_TRANSPORT_H
#define DP_EXEC_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct exec_transport exec_transport;
struct exec_transport {
  int process_count, process; /* process: of this one */
  double clock_offset_s;      /* to be added to dp_clock_s() of this process to get that of process 0 */
  /* Not NULL: true once the run cannot go on (exec/watch.h sets it); then `send` and `receive` end as with `stop`. */
  const atomic_bool *lost;
  /* Bytes to or from another process. Messages of one pair and tag arrive in order. Both return when the buffer may be
   * used again, may be called by several threads at once, and sleep rather than spin. When `*stop` becomes true
   * meanwhile (NULL: never), or when the peer is gone, they return DP_RUN_FAILED soon; the line names the peer. */
  dp_status (*send)(exec_transport *self, int to, uint32_t tag, const void *bytes, size_t count,
                    const atomic_bool *stop, dp_error *error);
  dp_status (*receive)(exec_transport *self, int from, uint32_t tag, void *bytes, size_t count, const atomic_bool *stop,
                       dp_error *error);
  void (*free)(exec_transport *self);
};

/* Without a transport a run is one process, the first. */
static inline int exec_process(const exec_transport *transport) { return transport ? transport->process : 0; }
static inline int exec_process_count(const exec_transport *transport) {
  return transport ? transport->process_count : 1;
}

enum { EXEC_TAG_CONTROL = 1 << 20, EXEC_TAG_TIMES = EXEC_TAG_CONTROL + 16, EXEC_TAG_SKIPS, EXEC_TAG_COPY, EXEC_TAG_PROBE, EXEC_TAG_WIRES, EXEC_TAG_END = 1 << 21 };

/* Control: every process calls the same ones in the same order, from one thread. Nothing happens without a transport.
 */
dp_status exec_broadcast(exec_transport *transport, void *bytes, size_t count, dp_error *error); /* from process 0 */
/* The same from any process. */
dp_status exec_broadcast_from(exec_transport *transport, int process, void *bytes, size_t count, dp_error *error);
/* all[process_count * count]: on process 0; elsewhere not looked at. */
dp_status exec_gather(exec_transport *transport, const void *mine, size_t count, void *all, dp_error *error);
dp_status exec_barrier(exec_transport *transport, dp_error *error);
/* Every process gives its own status (and its error); all get the gravest, and its line. */
dp_status exec_agree(exec_transport *transport, dp_status mine, dp_error *error);
/* The largest of the processes' values, on all of them. */
dp_status exec_maximum(exec_transport *transport, int64_t *value, dp_error *error);
/* Sets clock_offset_s by the least of many round trips to process 0 (Cristian's algorithm): right within half of that
 * trip; what is within that error of 0 is 0, as on one host, whose processes have one clock. Clocks of two hosts drift
 * apart, so a long run may call it again. */
dp_status exec_measure_clock(exec_transport *transport, dp_error *error);

#endif
