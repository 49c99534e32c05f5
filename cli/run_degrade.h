/* What a run does about links that have become slow: it looks for the plan to fall back to (sim/fallback.h), says what
 * a step would take by it, and with --on-anomaly degrade goes over to it before the next step; and back, when the links
 * are well again. What lasts of the session goes along in memory (exec_session_take), so nothing is lost, and losses
 * are those of a run that never changed but for the rounding of sums.
 *
 * A slow link's factor is what its messages take now, by what was predicted of them; links that are as they were acquit
 * the parts of the cluster that they share with it (plan/slow.h).
 *
 * While the run goes by the other plan nothing is judged. Every monitor.probe_every steps each slow link is probed
 * (exec/probe.h), and it is well when that takes at most monitor.recovered_multiple times what it took before the run,
 * or is over it by so little that all its messages of a step make less than half of monitor.least_share of the mean
 * step. When all of them have been well in monitor.recovered_steps probes in a row the run goes back to its own plan;
 * each time twice as many are needed, up to 64 times as many, so that links that come and go do not keep it changing.
 *
 * Of several processes the first decides, and all change together; each then has all of what lasts in its memory. Plans
 * whose workers they cannot share evenly are none.
 *
 * A plan that cannot be made (memory, a library) leaves the run by the one that it has, and is not tried again.
 */
#ifndef DP_CLI_RUN_DEGRADE_H
#define DP_CLI_RUN_DEGRADE_H

#include "cli/run_monitor.h"
#include "cli/run_plan.h"
#include "cli/run_processes.h"
#include "sim/fallback.h"

typedef struct cli_run_degrade {
  bool on, changes; /* whether it looks; whether the run goes over */
  const plan_scenario *scenario;
  const sim_efficiency *efficiency;
  cli_processes *processes;
  exec_session_options how; /* the session's own */
  sim_fallbacks fallbacks;
  double *healthy_s;   /* [monitor.watched_count] what a probe of a link takes; 0: of no link, or none was possible */
  uint32_t *links;     /* [slow_count] watched */
  plan_slow_way *slow; /* the same */
  int slow_count;
  sim_fallback found;
  cli_run_sizes sizes; /* of it */
  bool degraded;       /* the run goes by it */
  int64_t well, needed;
  dp_arena arena;
} cli_run_degrade;

/* DP_BAD_INPUT: what a run cannot go over to another plan with. */
dp_status cli_run_degrade_check(const plan_scenario *scenario, const plan_plan *plan, const graph *g, int processes,
                                bool cuda, dp_error *error);
/* Before the first step, when the monitor is there. `changes`: --on-anomaly degrade, which every process calls; else
 * advise, which the first does. */
dp_status cli_run_degrade_begin(const plan_scenario *scenario, const sim_efficiency *efficiency,
                                cli_processes *processes, const exec_session_options *how, bool changes,
                                const cli_run_monitor *monitor, cli_run_degrade *degrade, dp_error *error);
/* Between two steps, when the monitor has judged the last one. *session may be another afterwards; after a failure it
 * may be NULL. */
dp_status cli_run_degrade_step(cli_run_degrade *degrade, cli_run_monitor *monitor, int64_t step, exec_session **session,
                               dp_error *error);
void cli_run_degrade_free(cli_run_degrade *degrade); /* after the session; a zeroed one is fine */

#endif
