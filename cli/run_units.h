/* What the units of a run take, measured as they run: in one step of CLI_RUN_UNITS_EVERY each op is timed, which takes
 * longer than the step alone; such a step is none of those that the run is reported by.
 */
#ifndef DP_CLI_RUN_UNITS_H
#define DP_CLI_RUN_UNITS_H

#include "exec/pipeline.h"
#include "plan/unit_times.h"

enum { CLI_RUN_UNITS_EVERY = 4 };

/* Of the workers of the first replica that are in this process. Does not move. */
typedef struct cli_run_units {
  exec_observer observer;
  const graph *graph;
  const plan_program *program;
  bool split; /* backward comes apart */
  plan_unit_times times;
  int *chunk_of;   /* [unit] malloc'ed */
  double *classes; /* of the step whose ops were timed last, as prof_monitor_ops wants it; malloc'ed */
} cli_run_units;

dp_status cli_run_units_init(const graph *graph, const plan_program *program, cli_run_units *units, dp_error *error);
void cli_run_units_free(cli_run_units *units); /* safe on a zeroed one */
/* Before a step, from 1: whether its ops are timed. */
bool cli_run_units_begin(cli_run_units *units, int64_t step);
/* After one whose ops were. */
void cli_run_units_count(cli_run_units *units);

#endif
