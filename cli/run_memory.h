/* What to do where a CUDA device has less memory free than the plan of a run needs. */
#ifndef DP_CLI_RUN_MEMORY_H
#define DP_CLI_RUN_MEMORY_H

#include "cli/candidate.h"
#include "exec/pipeline.h"

/* Searches the scenario's plans as `tune` does, with at most so many bytes on each of its devices, and adds what it
 * found to `words`: "the fastest plan that fits: --set device.memory_gb=20.000 --set plan.stages=4 ...", or that there
 * is none. (What is recomputed by itself goes by the memory that the scenario says.) */
dp_status cli_run_advise(const plan_scenario *scenario, const sim_efficiency *efficiency, int64_t device_bytes,
                         dp_str *words, dp_error *error);
/* What one of the scenario's devices has of a GPU's free memory where its devices share so many of them evenly. */
int64_t cli_run_share(const plan_scenario *scenario, const exec_shortage *shortage, int gpus);
/* Adds the advice to the error of a run that has such a shortage: its line, then "; " and the words. */
void cli_run_add_advice(const plan_scenario *scenario, const sim_efficiency *efficiency, const exec_shortage *shortage,
                        int gpus, dp_error *error);

#endif
