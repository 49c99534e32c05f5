/* Advice under way: what the search asks of the evaluation. Internal to sim/. */
#ifndef DP_SIM_ADVISER_H
#define DP_SIM_ADVISER_H

#include "sim/advise.h"
#include "sim/predict.h"

/* A model at one size and micro batch, kept. */
typedef struct sim_adviser_graph {
  int64_t width, height, micro_batch;
  sim_prepared prepared;
} sim_adviser_graph;

typedef struct sim_adviser {
  const plan_dpipe *config;
  const sim_efficiency *efficiency;
  const sim_advise_options *options;
  plan_scenario *scenario;
  sim_advise_result *out;
  DP_ARRAY(sim_adviser_graph *) graphs;
  const dp_node *recompute; /* list of the checkpointed layers */
  int64_t units_of_batch; /* accumulation * replicas, times the micro batch where that is one number: what must stay */
  int least_shift;        /* of listed micro batches: how often all of them can be halved, negative */
  dp_error *error;
} sim_adviser;

#define SIM_ADVISER_NEW(a, type, count) DP_ARENA_NEW(&(a)->out->arena, type, (size_t)(count))

/* The scenario, the layers and their weights, what is to be recomputed. */
dp_status sim_adviser_open(sim_adviser *a);
void sim_adviser_close(sim_adviser *a);

/* The model at a size, and what it costs on every kind of device; kept until the end. */
dp_status sim_adviser_graph_of(sim_adviser *a, const plan_dpipe_bucket *bucket, int64_t micro_batch,
                               const sim_prepared **prepared);

/* Cuts of the setting's stages by diffusion-pipe's rule, which is not manual. */
dp_status sim_adviser_cut(sim_adviser *a, plan_dpipe_partition partition, int stages, const int64_t **split);
/* Cuts that make the slowest stage as fast as can be, for the last row. */
dp_status sim_adviser_balance(sim_adviser *a, const sim_advise_setting *setting, const int64_t **split);

dp_status sim_adviser_evaluate(sim_adviser *a, const plan_dpipe_bucket *bucket, const sim_advise_setting *setting,
                               sim_advise_figures *figures);
/* All rows; `hasty`: the representatives alone, the largest first, up to the first that does not fit. Writes the rows'
 * figures when `rows` is true. */
dp_status sim_adviser_mix(sim_adviser *a, const sim_advise_setting *setting, bool hasty, bool rows,
                          sim_advise_mix *mix);

/* Least relative gain of a change. */
#define SIM_ADVISE_WORTH 0.01

/* Micro batches are given by size. */
bool sim_adviser_batch_is_listed(const sim_adviser *a);
/* Samples of a bucket's micro batch under a setting. */
int64_t sim_adviser_batch_of(const sim_adviser *a, const sim_advise_setting *setting, const plan_dpipe_bucket *bucket);
/* Sets the accumulation so that the global batch stays; false: it cannot. */
bool sim_adviser_keep_batch(const sim_adviser *a, sim_advise_setting *setting);
/* The rule that cuts other numbers of stages: the file's, or 'parameters' where it is manual. */
plan_dpipe_partition sim_adviser_rule(const sim_adviser *a);
bool sim_adviser_same_split(const sim_advise_setting *a, const sim_advise_setting *b);
int sim_adviser_count_changes(const sim_advise_setting *a, const sim_advise_setting *b);
/* Takes back what is hardly worth it. */
dp_status sim_adviser_reduce(sim_adviser *a, sim_advise_setting *setting, sim_advise_mix *best);
dp_status sim_adviser_propose(sim_adviser *a, const sim_advise_setting *setting, sim_advise_proposal *proposal);
/* What more accumulation would give to the fastest. */
dp_status sim_adviser_look_beyond(sim_adviser *a);

/* Fills in the result's notes, at the end. */
dp_status sim_adviser_note(sim_adviser *a);

#endif
