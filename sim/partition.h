/* The partitioner: cut points that make the slowest worker as fast as can be, under each worker's own memory limit.
 *
 * Straight (one chunk a rank) and folded placement are solved exactly by dynamic programming, interleaved placement
 * (more chunks in turn) by branch and bound over a local search. A worker w holds chunks, each a run of units [x, y).
 * Its terms, all for one microbatch:
 *
 *   cost_s(w)    = compute_s + exposed_s
 *   compute_s    = sum of unit_s[w] over its units
 *   exposed_s    = max(exposed_share * chain_s, wire_s - compute_s, 0)
 *   chain_s      = passes * sum over its chunks whose previous chunk lies on another rank of
 *                  (hop_latency_s + chain bytes * hop_s_per_byte); passes = 2 in training (the gradient's way back),
 * else 1. Chain bytes: what the previous unit makes for the chunk's first unit; relayed, all that the chunk receives.
 *   wire_s       = wire_s_per_byte[w] * (training ? received + sent : max(received, sent))
 *
 * Why these: a link carries beside compute what it can, so traffic is felt only as far as it takes longer than the
 * computing (wire_s; a port works both ways at once, and in training it carries in each way what was received and the
 * gradients of what was sent, or the reverse). What lies on a microbatch's own way from chunk to chunk is felt as far
 * as the schedule has no other microbatch to work on: with q in flight at a rank and a period T, q * T is at least the
 * time of a microbatch from there to the end and back (Little's law). 1F1B keeps p - s at stage s, one for each stage
 * to come, so that the hop into each of these stages adds to T in full: exposed_share = 1. Where the warm-up is longer
 * by as much as the transfers take (GPipe, sampling, folded with 2 p in flight) it is 0. Skips are made long before
 * they are used and are not in chain_s.
 *
 *   received     = bytes of the tensors that it uses and others make, each once
 *   sent         = bytes of the tensors that it makes, once for each stretch of foreign chunks between its own (or
 * after its last) whose ranks get them there: exact unless several of them do. Relayed: what it makes or hands on from
 * chunk to chunk, starting from the last chunk before the user whose rank has it. Skips that `compress` makes smaller
 * count as their K values, a tensor whose first chunk there begins with the unit next to its maker is whole. Under
 * `local` a worker that receives a skip is not allowed.
 *
 *   memory(w)    = fixed_bytes[w] + sum over units of unit_persistent_bytes + constants and graph inputs it reads, once
 * a chunk
 *                + sum over chunks of in_flight[chunk] * (saved + kept)
 *                + largest transient of its chunks + 2 * (received + sent) + in training 2 * (received + sent) once
 * more
 *                + max(0, in_flight[first] - in_flight[last]) * gradients of what its first chunks make for its later
 * ones saved        = graph_saved_bytes of the chunk (received tensors among them) + unit_kept_bytes; 0 when sampling
 *   kept         = tensors that leave the chunk or the graph and that it does not save (views are saved with what they
 * show) transient    = as plan/memory.h takes it from graph_transient_bytes: forward, or backward with what
 * recomputation brings back Two buffers a transfer and direction: one in use, one ahead (PLAN_PREFETCH). A skip's
 * gradient that goes back over d chunks may have up to 1 + d, and placing buffers leaves gaps; on the other side the
 * peaks of the terms need not meet. So the sum is an estimate from above in general, and plan_memory_layout has the
 * last word.
 *
 * Ties: of all splits whose slowest worker is the least possible (to 1e-12), the one with the least sum of squares of
 * the workers' costs; among those the first in order of search, which does not depend on anything but the problem.
 * Everything is deterministic.
 *
 * Work, n units (joined to at most SIM_PARTITION_PLACES runs of even cost, straight 4 times that) and p ranks: straight
 * n^2 p / 2; folded n^4 p / 24 at worst, in practice what a bound on the slowest worker leaves, which is raised step by
 * step until a split lies under it.
 */
#ifndef DP_SIM_PARTITION_H
#define DP_SIM_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/graph.h"
#include "graph/peaks.h"
#include "plan/plan.h"

enum { SIM_PARTITION_PLACES = 120 };

typedef struct sim_partition_problem {
  const graph *graph;
  graph_peaks *peaks;         /* of the graph; NULL: looked at anew */
  int ranks, chunks_per_rank; /* folded: chunks_per_rank 2 and a V, chunk c and 2 * ranks - 1 - c on one rank */
  bool folded;                /* else chunk c on rank c % ranks */
  bool training;
  plan_skip_policy skip_policy;
  int64_t k;                            /* compress: values a sample */
  const double *const *unit_s;          /* [rank][unit] seconds, forward and backward with what is recomputed, >= 0 */
  const double *hop_latency_s;          /* [chunk] of the hop from chunk - 1; [0] is not looked at; NULL: 0 */
  const double *hop_s_per_byte;         /* [chunk]; NULL: 0 */
  const double *wire_s_per_byte;        /* [rank]; NULL: 0 */
  double exposed_share;                 /* 0 to 1, see above */
  const int64_t *unit_persistent_bytes; /* [unit] weights, gradients, optimizer state; NULL: 0 */
  const int64_t
      *unit_kept_bytes;     /* [unit] beside graph_saved_bytes, per microbatch (zero bubble: gradients kept); NULL: 0 */
  const uint8_t *recompute; /* [unit]; NULL: none */
  const int *in_flight;     /* [chunk] microbatches between its forward and its last backward; NULL: 1 */
  const int64_t *fixed_bytes;        /* [rank] runtime and library workspace; NULL: 0 */
  const int64_t *memory_limit_bytes; /* [rank]; NULL: no limit */
  bool only_if_possible;             /* leave it where no split can fit: `impossible`, and cuts are not set */
} sim_partition_problem;

/* The terms of one rank. */
typedef struct sim_partition_load {
  double cost_s, compute_s, exposed_s;
  int64_t received_bytes, sent_bytes; /* per microbatch, forward */
  int64_t memory_bytes;
  int received_skips; /* tensors received that are skips, vectors apart */
} sim_partition_load;

typedef struct sim_partition_result {
  bool feasible; /* every rank within its limit, and no skip travels under `local` */
  bool exact;    /* proved optimal; false: units were joined, or branch and bound ran out of steps */
  double slowest_s;
  int slowest_rank;
  /* Not feasible: `cuts` is the split whose fullest worker is over its limit by the fewest bytes, the fastest of these.
   */
  int over_rank;      /* the fullest, against its limit; -1 where all fit */
  int64_t over_bytes; /* by how much */
  bool impossible;    /* the ranks together have no room for the units' persistent bytes and what the least number of
                       * microbatches in flight keeps: no split and no layout fits; told only when asked for */
  bool skips_travel;  /* `local` cannot be kept by any split: the answer is that of `direct` */
} sim_partition_result;

/* Writes chunk_count - 1 ascending cuts, and, where loads[ranks] is not NULL, the ranks' terms. DP_BAD_INPUT when there
 * are more chunks than units (or places). */
dp_status sim_partition_solve(const sim_partition_problem *problem, int *cuts, sim_partition_load *loads,
                              sim_partition_result *result, dp_error *error);

/* The terms of every rank for given cuts, straight from the formulas; loads[ranks]. */
dp_status sim_partition_evaluate(const sim_partition_problem *problem, const int *cuts, sim_partition_load *loads,
                                 dp_error *error);

#endif
