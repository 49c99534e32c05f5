/* One job on several clusters: the best plan on each, and what would help it most. */
#ifndef DP_SIM_WHATIF_H
#define DP_SIM_WHATIF_H

#include "sim/tune.h"

/* What grows by a tenth, everything else equal. */
typedef enum sim_resource {
  SIM_RESOURCE_COMPUTE,          /* peak and achieved FLOP/s of every device */
  SIM_RESOURCE_MEMORY_BANDWIDTH, /* of every device */
  SIM_RESOURCE_LINK_BANDWIDTH,   /* of every link */
  SIM_RESOURCE_HOST,             /* hosts issue work faster */
  SIM_RESOURCE_MEMORY_SIZE,      /* of every device; the plan is searched for again */
  SIM_RESOURCE_COUNT
} sim_resource;
extern const char *const sim_resource_names[]; /* "compute", "memory_bandwidth", ... */

typedef struct sim_hardware {
  const char *file;       /* borrowed: as the user named it */
  plan_scenario scenario; /* the job on this cluster */
  sim_tune_result tuned;
  bool fits;
  sim_trial best;                  /* copy of the best trial where it fits, else of the nearest one (all 0: none) */
  double gain[SIM_RESOURCE_COUNT]; /* relative throughput gained by 10 % more of each; 0 where nothing fits */
  double purchase_usd;             /* of all devices; 0: unknown */
} sim_hardware;

/* Reads the scenario once for each cluster file ("cluster.file" set last), searches, and measures sensitivity. On
 * failure nothing is left to free. stop as in sim_tune. */
dp_status sim_whatif(const char *scenario_path, const char *const *sets, int set_count, const char *cluster_file,
                     const sim_efficiency *efficiency, const sim_tune_options *options, sim_hardware *hardware,
                     dp_error *error);
void sim_hardware_free(sim_hardware *hardware);

/* Months after which buying `hardware` is cheaper than renting `reference` for the same samples, at full load; 0 when a
 * price is unknown or nothing fits; infinity never happens: without cost of power. */
double sim_break_even_months(const sim_hardware *hardware, const sim_hardware *reference);

#endif
