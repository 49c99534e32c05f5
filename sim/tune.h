/* The search for a plan: candidates from the scenario's [search], bounded below, the promising ones simulated.
 *
 * A candidate is a choice of stages, replicas, schedule, chunks, microbatch size, recomputation, skip policy and, where
 * [search] lists them, transport and SMs kept for NCCL, for the scenario's global batch. With T = F + B the device time of one microbatch, forward and backward, each unit on the
 * device that is fastest for it, p stages and m microbatches a replica, its step cannot be shorter than
 * - gpipe: T + (m - 1) T / p. Before the first backward, the first microbatch has passed all stages forward, and the
 *   stage that is slowest forward (no less than the mean, F / p) has taken the others too; so again backward.
 * - 1f1b: T + ((m - 1) B + max(0, m - p) F) / p. When the first microbatch is back at stage s, that has at most p
 *   forwards done; what is left there, and the way back from it, is no less than for the mean of all stages.
 * - others: max(T, m T / p). The first microbatch goes there and back, and no worker does more than work all the time.
 *   For zb-h1 and zb-v the first T is without the weight gradients, which nobody waits for.
 *
 * With tensor groups T is what one member computes of a microbatch, and what it sends to the others at the pace of the
 * cluster's fastest link. Candidates are taken in ascending order of that bound, in rounds of equal size that several
 * threads share; a candidate whose bound is not below the best step found in earlier rounds is pruned. So the plan
 * found is the best of all candidates, and the result does not depend on how fast the threads are.
 *
 * Then the best plan is refined: each skip tensor that travels in it is given each other policy that [search] allows,
 * and what gains a thousandth is kept, the most helpful first; in a lossy plan, skips are made exact again where that
 * costs nothing. Last, its neighbours that were pruned are simulated, so that it can be said why each of them lost.
 *
 * Of equally fast plans (1e-9 relative) exact skips beat lossy ones, then less memory, then fewer workers, then the
 * earlier candidate win.
 */
#ifndef DP_SIM_TUNE_H
#define DP_SIM_TUNE_H

#include <signal.h>

#include "sim/predict.h"

typedef struct sim_candidate {
  int stages, replicas, chunks, microbatches, microbatch_size;
  int tensor; /* members of a tensor group; 0 counts as 1 */
  plan_schedule schedule;
  plan_skip_policy skip_policy;
  int64_t k;
  bool even_split; /* folded: chunks of equal time instead of the fewest bytes */
  plan_recompute recompute;
  bool own_transport; /* the next two; else the scenario's */
  plan_transport transport;
  int nccl_sms;
  const char *const *skips; /* "UNIT=POLICY" where a unit's skips have a policy of their own, as plan.skips */
  int skip_count;
  int recomputed_units; /* what "auto" came to; -1: not known before it is simulated */
} sim_candidate;

typedef enum sim_trial_state {
  SIM_TRIAL_WAITING,   /* not looked at: the search was stopped */
  SIM_TRIAL_PRUNED,    /* its bound is no better than the best plan */
  SIM_TRIAL_TOO_LARGE, /* weights, gradients and optimizer states alone are more than its devices hold: `why` says so */
  SIM_TRIAL_REFUSED,   /* it cannot be: `why` is the error */
  SIM_TRIAL_SIMULATED
} sim_trial_state;

typedef struct sim_trial {
  sim_candidate candidate;
  sim_trial_state state;
  double bound_s;
  bool set_aside; /* made in refining the best plan, and gained too little: neither a neighbour nor on the front */
  /* of a simulated one */
  bool fits;
  double step_s, throughput_samples_per_s, bubble_ratio, usd_per_million_samples, joules_per_sample;
  int64_t peak_bytes, boundary_and_skip_bytes, skip_bytes; /* of the fullest worker; of a step */
  sim_shortage tightest;                                   /* of the worker with the least room */
  sim_shortage without_recomputation; /* recompute = "auto" and some needed: what else there would be */
  const char *bound_name;             /* what bounds it most beside compute; NULL: compute alone */
  double bound_share;
  const char *why; /* why it lost against the best, or what is wrong with it; "" for the best; arena-owned */
} sim_trial;

typedef struct sim_tune_options {
  int threads;                       /* 0: as many as there are processors, at most 16 */
  const volatile sig_atomic_t *stop; /* NULL, or set to end the search after the round under way */
  void (*progress)(void *data, uint64_t done, uint64_t total,
                   const sim_trial *best); /* NULL, or called after each round */
  void *progress_data;
  double known_step_s; /* some plan that fits takes no longer: slower ones need not be looked at; 0: none is known */
  bool best_only;      /* the best plan is all that matters: its neighbours are not simulated to say why they lost */
} sim_tune_options;

typedef struct sim_tune_result {
  dp_arena arena;
  sim_trial *trials; /* all candidates, in the order they were enumerated; then those made of the best in refining it */
  int trial_count, simulated, pruned, too_large, refused;
  bool stopped;                                /* by options.stop, max_seconds or max_trials: better plans may exist */
  int best;                                    /* index; -1: nothing fits */
  int nearest; /* with best -1: the plan least over its memory; -1: none could be simulated */
  int *front;  /* Pareto front of the plans that fit: throughput, peak memory, cost; best throughput first */
  int front_count;
  int refining_trials; /* policies by skip tensor that were tried */
  int *neighbours;     /* candidates that differ from the best in one choice */
  int neighbour_count;
} sim_tune_result;

/* DP_BAD_INPUT when the scenario leaves nothing to try (global batch not divisible by any choice, ...). */
dp_status sim_tune(const plan_scenario *scenario, const sim_efficiency *efficiency, const sim_tune_options *options,
                   sim_tune_result *result, dp_error *error);
void sim_tune_result_free(sim_tune_result *result);

/* The figures of a prediction: state, and all that a simulated trial has but `why`. */
void sim_trial_take(sim_trial *trial, const sim_prediction *prediction);
/* One sentence, made in `arena`; NULL: no memory. `best` is not looked at where the trial does not fit. */
const char *sim_trial_why_lost(const sim_trial *trial, const sim_trial *best, dp_arena *arena);

static inline int sim_candidate_tensor(const sim_candidate *c) { return c->tensor > 1 ? c->tensor : 1; }
static inline int sim_candidate_workers(const sim_candidate *c) {
  return c->stages * c->replicas * sim_candidate_tensor(c);
}
static inline int64_t sim_candidate_nccl_sms(const plan_scenario *scenario, const sim_candidate *c) {
  return c->own_transport ? c->nccl_sms : scenario->nccl_sms;
}
/* The scenario as the candidate would have it: a shallow copy, to be used while the original lives and never freed. */
plan_scenario sim_tune_scenario(const plan_scenario *scenario, const sim_candidate *candidate, int64_t global_batch);
int64_t sim_tune_global_batch(const plan_scenario *scenario, dp_error *error); /* 0: error set */

/* The candidate that a plan is; what its own split and list of recomputed units say is not in it. */
sim_candidate sim_candidate_of_plan(const plan_scenario *scenario, const sim_prediction *prediction);
/* How it is cut, which is open where it does not fold: "balanced" and "even" are one way then. */
plan_split_way sim_candidate_split(const sim_candidate *c);
/* "worker 2 needs 43.1 of 40.0 GB, 31.2 of it activations" */
const char *sim_shortage_show(const sim_shortage *shortage, char out[128]);
/* 0: every skip is exact; else the more, the more of them are compressed. */
int sim_candidate_lossiness(const sim_candidate *candidate);
/* "4 stages x 2 replicas, folded, 16 microbatches of 4, all recomputed, skips direct" */
const char *sim_candidate_show(const sim_candidate *candidate, char out[256]);
/* The same for a column of a table, stages x replicas, schedule, microbatches x size: "4x2 interleaved/4 16x4 recomputed" */
const char *sim_candidate_brief(const sim_candidate *candidate, char out[128]);

#endif
