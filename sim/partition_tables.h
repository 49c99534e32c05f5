/* What the partitioner looks up instead of walking the graph; internal to sim/.
 *
 * A place is a run of units that cuts keep together (one unit, unless there are too many); a range [a, b) is one of
 * places. Tables hold whole sums of bytes, so that the order of adding does not matter.
 */
#ifndef DP_SIM_PARTITION_TABLES_H
#define DP_SIM_PARTITION_TABLES_H

#include "sim/partition.h"

/* A tensor that a cut can divide: some place after its maker's uses it, or it leaves the graph. */
typedef struct sim_crossing {
  int made;
  int *users, user_count; /* places after `made`, ascending, unique */
  int last;               /* last user; the number of places for the graph's output; else -1 */
  int start;              /* the place that begins with the unit next to the maker, if that unit uses it; else -1 */
  int first_keeper;       /* first place that saves it; the number of places + 1: none */
  int64_t bytes, packed_bytes; /* whole, and as a skip on the wire */
  bool needs_gradient;
  int counted; /* 1; vectors, which may travel under `local`, 0 */
} sim_crossing;

typedef struct sim_partition_tables {
  dp_arena arena;
  const sim_partition_problem *problem;
  int places, ranks, chunks;
  bool limited;        /* some rank has a memory limit */
  int *first_unit;     /* [places + 1] */
  double **prefix_s;   /* [rank][places + 1] running sums of unit_s */
  double *speed;       /* [rank] most seconds of rank 0 that it does in one */
  int64_t *persistent; /* [places + 1] running sums */
  sim_crossing *crossings;
  int crossing_count;
  int64_t *chain;        /* [places + 1] whole bytes whose start it is */
  int64_t *chain_saving; /* [places + 1] the same, whole less packed */
  /* [a * side + b], side = places + 1 */
  int side;
  int64_t *used;       /* made before a and used in [a, b): bytes on the wire to a chunk there; relay: whole */
  int64_t *used_skips; /* how many of these are skips */
  int64_t *reaching;   /* made before a and with a user at or after b: packed bytes; relay: whole */
  int64_t *saved, *kept, *inputs;
  int64_t *transient; /* -1: not asked for yet */
} sim_partition_tables;

/* places: at most so many. */
dp_status sim_partition_tables_build(const sim_partition_problem *problem, int places, sim_partition_tables *tables,
                                     dp_error *error);
void sim_partition_tables_free(sim_partition_tables *tables);
dp_status sim_partition_transient(sim_partition_tables *tables, int a, int b, int64_t *bytes, dp_error *error);

/* Terms of a worker as they come together. */
typedef struct sim_partition_terms {
  double compute_s, chain_s;
  int64_t received, sent, local_gradient; /* bytes; local_gradient: of what first chunks make for later ones */
  int64_t memory;                         /* everything but transients, transfer buffers and those gradients */
} sim_partition_terms;

double sim_partition_cost_s(const sim_partition_problem *problem, int rank, const sim_partition_terms *terms);
/* Memory without transients. */
int64_t sim_partition_memory(const sim_partition_problem *problem, int rank, const sim_partition_terms *terms);
int64_t sim_partition_limit(const sim_partition_problem *problem, int rank);
double sim_partition_hop_s(const sim_partition_problem *problem, int chunk, int64_t bytes);
int sim_partition_chunk_rank(const sim_partition_problem *problem, int chunk);

static inline int64_t sim_partition_at(const sim_partition_tables *t, const int64_t *table, int a, int b) {
  return table[(size_t)a * (size_t)t->side + (size_t)b];
}
static inline double sim_partition_work_s(const sim_partition_tables *t, int rank, int a, int b) {
  return t->prefix_s[rank][b] - t->prefix_s[rank][a];
}
static inline int sim_partition_in_flight(const sim_partition_problem *problem, int chunk) {
  return problem->in_flight ? problem->in_flight[chunk] : 1;
}
/* Persistent bytes, inputs and what is held per microbatch in flight, of one chunk. */
static inline int64_t sim_partition_chunk_bytes(const sim_partition_tables *t, int chunk, int a, int b) {
  return t->persistent[b] - t->persistent[a] + sim_partition_at(t, t->inputs, a, b) +
         sim_partition_in_flight(t->problem, chunk) *
             (sim_partition_at(t, t->saved, a, b) + sim_partition_at(t, t->kept, a, b));
}

/* Loads of all ranks for cuts between places; may be asked for again and again. scratch: of sim_partition_scratch_size
 * ints. */
size_t sim_partition_scratch_size(const sim_partition_tables *tables);
dp_status sim_partition_loads(sim_partition_tables *tables, const int *cuts, int *scratch, sim_partition_load *loads,
                              dp_error *error);

/* Interleaved placement, on place cuts; best effort beyond small cases, `exact` says. none: skips cannot stay local. */
dp_status sim_partition_interleaved(sim_partition_tables *tables, int *cuts, bool *exact, bool *none, dp_error *error);

#endif
