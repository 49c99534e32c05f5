/* The cost model as the commands use it. */
#ifndef DP_CLI_EFFICIENCY_H
#define DP_CLI_EFFICIENCY_H

#include "sim/cost.h"

/* The installed catalogue, with the workspace that the executor's kernels have: what is predicted of a worker on a
 * processor is what it allocates. Free with sim_efficiency_free. */
dp_status cli_efficiency_read(sim_efficiency **efficiency, dp_error *error);

#endif
