/* One job on several clusters: the best plan on each, what would help it most, and sweeps over a key.
 *
 * Every row is a search of its own (sim/tune.h), every point of a sweep too, on every cluster, with the key set as
 * `--set` does. They are shared out over threads, one search a thread; the answer does not depend on how. A point
 * begins with what is known from its row: a plan that takes so long there bounds the search, which finds the same plan
 * sooner.
 */
#ifndef DP_SIM_WHATIF_H
#define DP_SIM_WHATIF_H

#include "sim/break_even.h"
#include "sim/sweep.h"
#include "sim/tune.h"

/* What grows by a tenth, everything else equal. */
typedef enum sim_resource {
  SIM_RESOURCE_COMPUTE,          /* peak and achieved FLOP/s of every device */
  SIM_RESOURCE_MEMORY_BANDWIDTH, /* of every device */
  SIM_RESOURCE_LINK_BANDWIDTH,   /* of every link */
  SIM_RESOURCE_HOST,             /* hosts issue work faster */
  SIM_RESOURCE_MEMORY_SIZE,      /* of every device: plans that did not fit or had to recompute are tried again */
  SIM_RESOURCE_COUNT
} sim_resource;
extern const char *const sim_resource_names[]; /* "compute", "memory_bandwidth", ... */

typedef struct sim_hardware {
  const char *file;       /* borrowed: as the user named it; NULL: the scenario's own cluster */
  plan_scenario scenario; /* the job on this cluster */
  sim_tune_result tuned;
  bool found; /* a plan could be simulated: `best` is one */
  bool fits;
  sim_trial best;                  /* copy of the best trial where it fits, else of the nearest one */
  const char *why;                 /* where nothing fits: one sentence; else NULL; arena-owned by the result */
  bool measured;                   /* `gain` is: it fits, and the user did not stop before */
  double gain[SIM_RESOURCE_COUNT]; /* relative throughput gained by 10 % more of each */
  sim_price price;
} sim_hardware;

typedef struct sim_sweep_point {
  bool done; /* false: the user stopped before it was searched to its end */
  bool found, fits;
  sim_trial trial; /* the best that fits, else the nearest; `why` is NULL */
  const char *why; /* where nothing fits: one sentence; else NULL */
  bool changed;    /* its plan has another layout than that of the last point of this cluster that fits */
} sim_sweep_point;

typedef struct sim_sweep_result {
  const sim_sweep *sweep;
  bool plan_fixed; /* its points were not searched */
  sim_sweep_point *points; /* [row * sweep->count + value] */
} sim_sweep_result;

typedef struct sim_whatif_result {
  dp_arena arena;
  dp_arena *arenas; /* one a search: their threads share none */
  int arena_count;
  sim_hardware *rows;
  int row_count;
  sim_sweep_result *sweeps;
  int sweep_count;
  bool stopped; /* by the user: a row may have better plans, rows and points are missing */
} sim_whatif_result;

typedef struct sim_whatif_request {
  const char *scenario_path;
  const char *const *sets;
  int set_count;
  const plan_whatif_cluster *clusters; /* path NULL: the scenario's own [cluster] */
  int cluster_count;
  const sim_sweep *sweeps;
  int sweep_count;
  /* Points are not searched: they have the scenario's [plan] where it has one, else the plan of the first point of the
   * cluster that fits, its microbatches as the batch asks. A sweep over "plan.*" is always so. */
  bool plan_fixed;
  const sim_efficiency *efficiency;
  const sim_tune_options *options; /* threads, stop, progress (after each search; best is NULL) */
} sim_whatif_request;

/* DP_BAD_INPUT when the scenario or a cluster cannot be read, when no row has a plan to try, or when no point of a
 * sweep can be: the first reason is the error. On failure nothing is left to free. */
dp_status sim_whatif(const sim_whatif_request *request, sim_whatif_result *result, dp_error *error);
void sim_whatif_free(sim_whatif_result *result);

#endif
