/* For tests: a link that becomes slow in the middle of a run. DIFFPIPE_THROTTLE of the environment, as
 * "0-1:20-35:10": in training steps 20 to 35 every message from device 0 of the cluster to device 1 takes 10 ms more,
 * and so does a probe of that link (exec/probe.h) after step 19 and before step 35 has been done. "20-" has no end. What
 * sleeps is the lane's thread, on CUDA devices its queue, so all transports have it; sums of gradients are not slowed.
 */
#ifndef DP_EXEC_THROTTLE_H
#define DP_EXEC_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct exec_throttle { /* zeroed: nothing is slowed */
  int from, to;                /* devices */
  int64_t first, last;         /* steps, from 1 */
  double more_s;
} exec_throttle;

/* Without the variable nothing is slowed; DP_BAD_INPUT: it is none of the above. */
dp_status exec_throttle_read(exec_throttle *throttle, dp_error *error);
/* Whether it is that link and step. */
bool exec_throttle_hits(const exec_throttle *throttle, int from, int to, int64_t step);
void exec_throttle_sleep(const exec_throttle *throttle);

#endif
