/* The compiler's parts and what they share; internal to plan/.
 *
 * One pipeline is compiled, then copied for replicas and members of tensor groups. Why the result cannot deadlock: let level(x) be the length of the longest chain
 * of compute steps that ends with x, over the orders of the ranks and the chain of chunks alone (no transfers). Every
 * dependency that transfers add points from a lower to a higher level, if a message is put just below
 *   limit(message) = least level, over this message and those after it on its lane, of the steps that wait for it:
 *                    its consumer, and where its buffer is used in turns the step that fills that buffer next,
 * since its producer lies below all of these, and its receive is posted after a step whose level is below the limit.
 */
#ifndef DP_PLAN_COMPILE_H
#define DP_PLAN_COMPILE_H

#include "plan/compressor.h"
#include "plan/program.h"
#include "plan/traffic.h"

/* What one chunk's steps need to know. */
typedef struct plan_compile_chunk {
  int first_out[2], out_count[2]; /* flows that leave it, by direction: contiguous in flows */
  int first_in[2], in_count[2];   /* flows that enter it: into compiler.entering */
  uint32_t work[PLAN_PASS_COUNT]; /* work classes; the last of the bucketed pass have `parts` more */
  uint32_t part_work;             /* first of `parts` classes */
  uint32_t first_group;           /* collectives of its parts */
  int parts;                      /* of the last backward; 1 when whole */
  int *step[PLAN_PASS_COUNT];     /* [items] index in the rank's order */
} plan_compile_chunk;

typedef struct plan_compiler {
  const plan_plan *plan;
  const graph *graph;
  plan_program *program;
  dp_arena scratch;
  dp_error *error;
  int items;
  bool split_backward; /* BACKWARD_INPUT and BACKWARD_WEIGHT */
  plan_traffic_table traffic;
  int *rank_chunks, *rank_first; /* chunks of each rank, ascending: CSR */
  int *entering;
  int *slots;                      /* [flow] buffers used in turns; 0: each message has its own */
  uint32_t *send_lane, *recv_lane; /* [flow] */
  plan_compile_chunk *chunks;
  /* by step: rank r's from first_step[r] */
  uint32_t *first_step;
  int *level;
  uint32_t *instruction;                                /* the step's last part */
  uint32_t lanes, instructions, works, messages, waits; /* of one pipeline */
  uint32_t groups;                                      /* of all-reduces, of one member's replicas */
  uint32_t norm_group;                                  /* of all workers; PLAN_NO_PEER: none */
  uint32_t *cursor;                                     /* [lane] instructions written */
  uint32_t *optimizer_work;                             /* [rank] */
  uint32_t *sends;                                      /* [flow * items + microbatch of the sender] */
  uint32_t *post; /* [instruction] of a receive: 1 + the step after which it is posted; 0: at once */
} plan_compiler;

#define PLAN_SCRATCH(c, type, count) DP_ARENA_NEW(&(c)->scratch, type, (size_t)(count))
#define PLAN_KEEP(c, type, count) DP_ARENA_NEW(&(c)->program->arena, type, (size_t)(count))

/* Checks the plan and its order; says where each step stands and its level. */
dp_status plan_compile_order(plan_compiler *c);
/* Flows, lanes and their sizes, work classes, messages and collectives of one replica. */
dp_status plan_compile_layout(plan_compiler *c);

/* How many of a flow's sends there are: latents of the last denoise step go nowhere. */
uint32_t plan_compile_flow_items(const plan_compiler *c, const plan_flow *flow);

static inline int plan_compile_pass(int opcode) {
  return opcode == PLAN_FORWARD           ? PLAN_PASS_FORWARD
         : opcode == PLAN_BACKWARD_WEIGHT ? PLAN_PASS_WEIGHT
                                          : PLAN_PASS_BACKWARD;
}

#endif
