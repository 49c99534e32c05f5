/* What each rank keeps of every microbatch, by the laws of memory.h; internal to plan/. */
#ifndef DP_PLAN_MEMORY_RULES_H
#define DP_PLAN_MEMORY_RULES_H

#include "base/array.h"
#include "plan/compile.h"
#include "plan/memory.h"

/* An end of a rule: a pass of a chunk is done, or a message is sent. */
typedef struct plan_keep_end {
  bool sent;
  int pass, chunk;  /* plan_compile_pass */
  uint32_t message; /* of replica 0 */
} plan_keep_end;

/* One buffer for each microbatch. It lives to the last of its ends. */
typedef struct plan_keep {
  plan_memory_class memory_class;
  plan_role role;
  bool gradient, received;
  int chunk, pass;  /* begins with this pass of the chunk, unless received with */
  bool for_message; /* `message` is what its role is about, too */
  uint32_t message;
  int tensor; /* GRAPH_NONE: several */
  int64_t bytes;
  size_t first_end, end_count;
} plan_keep;

typedef struct plan_keep_list {
  DP_ARRAY(plan_keep) keeps;
  DP_ARRAY(plan_keep_end) ends;
} plan_keep_list;

/* What finding the rules needs to know, for all ranks. */
typedef struct plan_keeper {
  const plan_program *program;
  const plan_plan *plan;
  const graph *graph;
  dp_error *error;
  int items;
  bool split_backward;
  bool unfused; /* plan_memory_options */
  int *chunk_of_unit;
  int *mark;                                                   /* [tensor] chunk, plus 1, that has counted it */
  int *rank_chunks, *rank_first;                               /* chunks of each rank, ascending: CSR */
  uint32_t *in_messages, *in_first, *out_messages, *out_first; /* messages of replica 0 by rank: CSR */
} plan_keeper;

/* In `arena`. */
dp_status plan_keeper_init(const plan_program *program, const graph *graph, bool unfused, dp_arena *arena,
                           plan_keeper *keeper, dp_error *error);
/* Replaces what is in the list. */
dp_status plan_keeper_rank(plan_keeper *keeper, int rank, plan_keep_list *list);

/* Where gradients of weights may begin, in bytes from the beginning of SAVED, when each is written once in a step, by
 * overwriting. They lie in one run, unit by unit. The backward runs from the last unit to the first: while that of unit
 * u runs, what the units up to u have to do with in SAVED is still read, and gradients of u and all later ones are
 * there. So they may begin at the least offset that is, for each u with gradients, at least the end of what the
 * backward of any unit up to u has to do with in SAVED - bytes of gradients of units before u. shares: false where the
 * rank has more than one chunk or microbatch, a weight backward that comes apart, compressed skips, or a weight whose
 * gradient no action writes. memory_gradients.c */
dp_status plan_keeper_gradients(const plan_keeper *keeper, int rank, int64_t value_bytes, bool *shares,
                                int64_t *begin_bytes);

#endif
