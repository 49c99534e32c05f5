/* A scenario: the file people write. [model] [task] [cluster] [plan] [search] [whatif] [train] [data] [monitor], and in [link] [device] [host] what
 * is changed of the cluster (plan/cluster_change.h); see doc/formats.md. */
#ifndef DP_PLAN_SCENARIO_H
#define DP_PLAN_SCENARIO_H

#include "base/node.h"
#include "graph/model.h"
#include "plan/cluster.h"
#include "plan/plan.h"
#include "plan/profile.h"
#include "plan/scenario_monitor.h"
#include "plan/scenario_train.h"

/* A cluster file that [whatif] names. */
typedef struct plan_whatif_cluster {
  const char *file; /* as written */
  const char *path; /* resolved */
} plan_whatif_cluster;

/* [whatif]: what `diffpipe whatif` compares, and what buying is reckoned with. */
typedef struct plan_whatif {
  const plan_whatif_cluster *clusters;
  size_t cluster_count;
  plan_whatif_cluster reference; /* file NULL: not given */
  double usd_per_kwh;            /* default 0.15, an assumption: what power costs differs by place and contract */
  double hours_per_month;        /* default 730.5, all hours of a mean month */
  double utilisation;            /* share of them at work; default 1 */
  const dp_node *sweep;          /* strings, read by sim/sweep.h; NULL: none */
} plan_whatif;

/* Where a plan is cut that names no units. Balanced: workers of equal times, and of these splits of a folded placement the
 * one that moves fewest bytes, whose chunks may be of very unlike sizes. Even: chunks of equal time. Auto: balanced, but of
 * a folded placement the faster of the two. */
typedef enum plan_split_way { PLAN_SPLIT_AUTO, PLAN_SPLIT_BALANCED, PLAN_SPLIT_EVEN, PLAN_SPLIT_WAYS } plan_split_way;
extern const char *const plan_split_way_names[];

typedef struct plan_scenario {
  dp_document document;         /* the scenario file with --set applied */
  dp_document cluster_document; /* when [cluster] names a file */
  plan_catalogue catalogue;
  plan_cluster cluster;
  dp_arena arena;
  plan_profile *profile;        /* [cluster] profile, in the arena; NULL: none */
  const char *profile_path;     /* resolved */
  const char *name;
  bool job_only;                /* [plan] was left out */
  /* [model] */
  bool synthetic;
  const char *config_path;                  /* resolved */
  graph_model_options model_options;        /* batch is set from the plan's microbatch_size */
  graph_synthetic_options synthetic_options;
  /* [task] */
  bool training;
  int64_t global_batch;                     /* 0: from the plan */
  plan_optimizer optimizer;
  int64_t steps;                            /* training: steps in the job (for cost); sampling: denoise steps */
  bool guidance;                            /* classifier-free guidance: the model sees each sample twice */
  bool gradient_fp32;
  bool global_norm;                         /* gradients are clipped by their global norm (plan/plan.h) */
  const char *implementation;               /* how ops are run, a row of catalogue/efficiency.toml; default "fused", with
                                             * [train] "cuda" or "cpu" */
  bool cuda_graphs;                         /* host issues one launch a chunk instead of one a kernel */
  /* [plan]: 0 or NULL = not given */
  int64_t stages, chunks, data_parallel, tensor_parallel, microbatches, microbatch_size, k, gradient_buckets;
  int schedule, skip_policy;                /* -1: not given */
  plan_transport transport;                 /* auto where not given */
  int64_t nccl_sms;
  const char *const *skips; size_t skip_count; /* "UNIT=POLICY": skips made in that unit that have a policy of their own */
  const dp_node *skips_node;                /* where they stand; NULL: not in a file */
  int64_t *split; size_t split_count;       /* cut points, unit indices */
  plan_split_way split_way;                 /* where there are none */
  plan_recompute recompute; const dp_node *recompute_list; /* the list of unit names or indices, else NULL */
  int64_t *device_map; size_t device_map_count;      /* devices in worker order */
  const dp_node *search;                    /* [search], read by the tuner */
  plan_whatif whatif;
  plan_train train;
  plan_data data;
  plan_monitor monitor;
} plan_scenario;

/* Defaults. task: kind "train", optimizer "adamw", trainable "full", lora_rank 16, steps 1 (sampling 50), gradients fp32,
 * CUDA graphs on. plan: data_parallel 1; tensor_parallel 1; stages = devices / data_parallel / tensor_parallel; schedule 1f1b; chunks 1 (interleaved, folded
 * and zb-v 2); skips direct; no recomputation; gradient_buckets 1, with data parallel 4; transport auto; nccl_sms 0;
 * microbatch_size 1;
 * microbatches from global_batch, without it 4 * stages (sampling: stages); workers take devices in order, the members of a
 * tensor group neighbouring ones.
 *
 * Reads, applies the assignments ("plan.stages=4"), resolves paths, reads catalogue and cluster, checks everything that
 * can be checked without building the graph. */
dp_status plan_scenario_read(const char *path, const char *const *sets, int set_count, plan_scenario *scenario, dp_error *error);
/* The same without [plan]: the job alone, for those who look for a plan. Of [plan] only typing errors count and, without
 * task.global_batch, the batch that its microbatches make; one of the two must be given. The plan that remains is one stage
 * on one device. */
dp_status plan_scenario_read_job(const char *path, const char *const *sets, int set_count, plan_scenario *scenario, dp_error *error);
/* Where a scenario comes from; all borrowed for the call. */
typedef struct plan_scenario_source {
  const char *path;
  const char *const *sets;
  int set_count;
  bool job_only;            /* as plan_scenario_read_job */
  const char *cluster_file; /* a path, taken in place of [cluster]; NULL: [cluster] */
} plan_scenario_source;
dp_status plan_scenario_read_from(const plan_scenario_source *source, plan_scenario *scenario, dp_error *error);
/* The same from memory; `name` stands in for the path, for errors and relative paths. */
dp_status plan_scenario_parse(const char *text, size_t length, const char *name, plan_scenario *scenario, dp_error *error);
/* The node of a key ("plan", "stages"), else of its table, else the root: where an error about it belongs. */
const dp_node *plan_scenario_node(const plan_scenario *scenario, const char *table, const char *key);
void plan_scenario_free(plan_scenario *scenario);
/* The profile where it is of this device, as the job runs on it; NULL: none is. */
const plan_profile *plan_scenario_profile(const plan_scenario *scenario, const plan_device *device);
/* Finds the files that [train] and [data] name, beside the scenario or in the installed data: their names become paths.
 * DP_BAD_INPUT for one that cannot be opened. Only who trains asks. */
dp_status plan_scenario_find_training(plan_scenario *scenario, dp_error *error);
/* The [model] graph for a microbatch size (times two with guidance). */
dp_status plan_scenario_graph(const plan_scenario *scenario, int64_t microbatch_size, graph *graph, dp_error *error);
/* The share that one member of a tensor group has of it (graph/shard.h); the whole for `tensor` 1. */
dp_status plan_scenario_share(const plan_scenario *scenario, int64_t microbatch_size, int tensor, graph *graph,
                              dp_error *error);
/* Settles stages, data_parallel, microbatches, microbatch_size against global_batch and the cluster:
 * global_batch = microbatches * microbatch_size * data_parallel; two of them give the third; contradictions are errors
 * at the key. Fills everything of the plan but chunks, order and recompute. */
dp_status plan_scenario_plan(const plan_scenario *scenario, plan_plan *plan, dp_error *error);

#endif
