/* What signals ask of a run: SIGINT and SIGTERM to end after the step, SIGUSR1 to save. A second SIGINT ends the program
 * at once. */
#ifndef DP_CLI_RUN_SIGNALS_H
#define DP_CLI_RUN_SIGNALS_H

#include "exec/transport.h"

enum { CLI_RUN_WISH_NONE, CLI_RUN_WISH_SAVE, CLI_RUN_WISH_STOP }; /* the largest of all processes counts */

void cli_run_listen(void);
/* What was asked of any process since the last call; to end stays asked. All processes call it. */
dp_status cli_run_wish(exec_transport *transport, int64_t *wished, dp_error *error);

#endif
