/* When nothing fits: which changes, small ones first, would make the job fit.
 *
 * Each is tried alone, by a search of its own on a copy of the scenario, narrowed to small microbatches and three
 * schedules where [search] leaves these open, so that its throughput is the least to expect: the bounds of [search] dropped; 8-bit AdamW;
 * LoRA instead of all weights; a smaller global batch (halved until it fits); more devices like the last one (one more,
 * then twice, four times ... as many); another card of the catalogue in the same places, the least memory that fits.
 * Where none of the first four helps alone, all of them together are tried. */
#ifndef DP_SIM_REMEDY_H
#define DP_SIM_REMEDY_H

#include "sim/tune.h"

typedef struct sim_remedy {
  const char *what; /* "train LoRA adapters instead of all weights" */
  const char *how;  /* "--set task.trainable=lora"; NULL: hardware */
  sim_trial best;   /* of the search with it; it fits */
} sim_remedy;

enum { SIM_MAX_REMEDIES = 8 };
typedef struct sim_remedies {
  sim_remedy items[SIM_MAX_REMEDIES]; /* those that help, the smallest change first */
  int count;
  bool stopped; /* by options.stop: there may be others */
  dp_arena arena;
} sim_remedies;

/* Of `options` threads and stop count. On failure nothing is left to free. */
dp_status sim_remedies_find(const plan_scenario *scenario, const sim_efficiency *efficiency,
                            const sim_tune_options *options, sim_remedies *remedies, dp_error *error);
void sim_remedies_free(sim_remedies *remedies);

#endif
