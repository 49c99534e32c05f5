/* What the tests of plan/ share: plans made by hand, random graphs with skips, and a plain player of programs that
 * looks at every lane again and again. It has nothing in common with sim/engine.c. */
#ifndef DP_TESTS_PLAN_REFERENCE_H
#define DP_TESTS_PLAN_REFERENCE_H

#include "base/random.h"
#include "graph/build.h"
#include "graph/model.h"
#include "plan/timeline.h"

typedef struct reference_plan {
  int ranks, chunks_per_rank, replicas, tensor, microbatches, denoise_steps, gradient_buckets;
  plan_schedule schedule;
  plan_skip_policy skip_policy;
  int64_t k;
  bool sampling, global_norm;
  const int *cuts; /* NULL: equal chunks */
} reference_plan;

/* Fills a plan with chunks and order; fails the test when that is refused. 0 in a count means 1. */
void reference_plan_make(const reference_plan *wanted, const graph *g, plan_plan *plan);
/* The same up to and without the order. */
void reference_plan_shape(const reference_plan *wanted, const graph *g, plan_plan *plan);

/* Equal units of forward_s and backward_s, half of it for the weights unless weight_s >= 0. */
void reference_chain(int units, double forward_s, double backward_s, double weight_s, int64_t boundary_bytes, graph *g);

/* Units of one or two ops in a chain, with `skips` tensors more that are used further on; shapes vary. */
void reference_skip_graph(int units, int skips, dp_random *random, graph *g);

/* Plays a program: a compute instruction lasts the sum of its units' fixed costs (an optimizer step: nothing), or 1 for
 * units without; a transfer lasts latency_s + bytes / bytes_per_s; zero bytes, and all when bytes_per_s is 0, no time.
 * With `jitter` every length is multiplied by a number of its own in [0, 4). Fails the test when the program stops. */
void reference_play(const plan_program *program, const graph *g, double latency_s, double bytes_per_s,
                    dp_random *jitter, plan_timeline *timeline);

/* Random plans that fit a number of units, of any schedule and policy but local. `cuts` has room for units. */
reference_plan reference_random_plan(dp_random *random, int units, int *cuts);

/* Most microbatches of chunk-forwards begun and whose `until` is not done, over the order of a rank. */
int reference_in_flight(const plan_plan *plan, int rank, plan_opcode until);

#endif
