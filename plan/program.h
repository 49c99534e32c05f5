/* A program: for each worker, instructions on lanes with their dependencies. Nothing else decides order. The simulator
 * reads it in virtual time, the executor on real devices.
 *
 * Invariants: instructions of one lane are contiguous in `instructions` and run in that order, one at a time; lanes of
 * one worker are contiguous, workers ascending. An instruction starts when it is at the head of its lane and all in its
 * wait list are done. A SEND and its RECV name each other (`peer`), start together when both are ready and end
 * together.
 * An ALL_REDUCE starts when all members of its group (`peer` = group id) are ready, and they end together.
 * Waits never cross workers: only SEND/RECV pairs and groups do.
 */
#ifndef DP_PLAN_PROGRAM_H
#define DP_PLAN_PROGRAM_H

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "plan/plan.h"

typedef enum plan_opcode {
  PLAN_FORWARD,
  PLAN_BACKWARD,        /* input and weight gradients */
  PLAN_BACKWARD_INPUT,
  PLAN_BACKWARD_WEIGHT,
  PLAN_SEND,
  PLAN_RECV,
  PLAN_ALL_REDUCE,
  PLAN_OPTIMIZER_STEP,
  PLAN_OPCODE_COUNT
} plan_opcode;
extern const char *const plan_opcode_names[]; /* "FORWARD", ... */

/* The passes of a chunk: BACKWARD and BACKWARD_INPUT are one. */
enum { PLAN_PASS_FORWARD, PLAN_PASS_BACKWARD, PLAN_PASS_WEIGHT, PLAN_PASS_COUNT };

typedef enum plan_lane_kind { PLAN_LANE_COMPUTE, PLAN_LANE_SEND, PLAN_LANE_RECV, PLAN_LANE_COLLECTIVE } plan_lane_kind;

typedef struct plan_lane {
  uint32_t worker;
  uint16_t kind;     /* plan_lane_kind */
  uint16_t backward; /* SEND and RECV: 1 for gradients; each peer and direction has its own lane */
  uint32_t peer;     /* the other worker, for SEND and RECV */
  uint32_t first, count; /* instructions */
} plan_lane;

#define PLAN_NO_PEER UINT32_MAX

typedef struct plan_instruction {
  uint8_t opcode;
  uint8_t part;       /* of the last backward, in buckets: 0 .. parts - 1 */
  uint16_t chunk;     /* SEND: the chunk that made the tensors; RECV: the chunk that consumes them */
  /* sampling: denoise step * microbatches + microbatch, as the sender or receiver counts it: latents arrive as those of
   * the next denoise step */
  uint32_t microbatch;
  uint32_t class_id;  /* compute: into works; SEND and RECV: into messages; ALL_REDUCE: into collectives */
  uint32_t peer;      /* see above, else PLAN_NO_PEER */
} plan_instruction;

/* Equal work, costed once: compute of one chunk on one worker, with the collectives of its tensor group, which are part
 * of the instruction: the members run the same instructions in the same order. */
typedef struct plan_work {
  uint8_t opcode;
  uint8_t part, parts; /* backward split into buckets: part `part` of `parts`, from the chunk's end to its start */
  uint16_t chunk;                  /* OPTIMIZER_STEP: the rank's first chunk */
  uint32_t worker;
  uint32_t first_unit, unit_count; /* the units this part covers */
  int64_t tensor_bytes; /* that the worker sends in those collectives */
} plan_work;

typedef enum plan_traffic {
  PLAN_TRAFFIC_BOUNDARY, /* boundary tensors consumed by the next unit, and their gradients */
  PLAN_TRAFFIC_SKIP,     /* skip tensors and their gradients */
  PLAN_TRAFFIC_GRADIENT, /* weight gradients between replicas (bytes that each worker sends) */
  PLAN_TRAFFIC_LATENT,   /* sampling: the last stage's output back to the first */
  PLAN_TRAFFIC_TENSOR,   /* collectives of tensor groups (bytes that each member sends) */
  PLAN_TRAFFIC_COUNT
} plan_traffic;
extern const char *const plan_traffic_names[]; /* "boundary", "skip", "gradient", "latent", "tensor", NULL */

/* What one SEND moves: all tensors from one chunk to another, one microbatch, one direction. */
typedef struct plan_message {
  uint32_t from_worker, to_worker;
  uint16_t from_chunk, to_chunk;
  uint8_t backward;
  int64_t bytes;                        /* on the wire */
  int64_t kind_bytes[PLAN_TRAFFIC_COUNT]; /* the parts of `bytes` */
  int first_tensor, tensor_count;       /* into message_tensors; ids of the graph */
} plan_message;

struct plan_compressor; /* plan/compressor.h */

typedef struct plan_collective {
  int64_t bytes;       /* of the reduced buffer */
  uint32_t first_member, member_count; /* into group_members: workers */
  uint32_t first_unit, unit_count; /* whose gradients they are */
  uint16_t chunk;
  uint8_t part;
  uint8_t norm; /* of all workers and of no chunk: the square of each one's gradient norm, 8 bytes; no report counts it
                 * as traffic */
} plan_collective;

typedef struct plan_program {
  dp_arena arena;
  const plan_plan *plan;
  int worker_count;
  uint32_t *worker_lane;          /* [worker_count + 1] first lane of each worker; the compute lane is the first */
  plan_lane *lanes;               uint32_t lane_count;
  plan_instruction *instructions; uint32_t instruction_count;
  uint32_t *wait_first;           /* [instruction_count + 1] into waits */
  uint32_t *waits;                /* ids of instructions on the same worker */
  plan_work *works;               uint32_t work_count;
  plan_message *messages;         uint32_t message_count;
  int *message_tensors;           uint32_t message_tensor_count;
  int *message_compressors;       /* [message_tensor_count] what each goes through; -1: it travels whole. NULL: all do */
  struct plan_compressor *compressors; int compressor_count; /* by message, then by tensor */
  plan_collective *collectives;   uint32_t collective_count;
  uint32_t *group_members;        uint32_t group_member_count;
  uint32_t *group_class;          uint32_t group_count; /* group id -> collective class */
} plan_program;

/* Compiles a plan whose order is set.
 *
 * What is sent where follows from the graph's liveness and the skip policy. One message carries all tensors from one
 * chunk to another, for one microbatch and direction; neighbour chunks on two ranks always have one each way, of 0
 * bytes if need be, for the order rests on it. A rank gets a tensor once, for the first of its chunks that uses it. In
 * training the gradients of what needs one come back the same way. Replicas are alike, and so are the members of a tensor
 * group: each sends whole tensors to its peer of the same number. `graph` is then a member's share; gradients are reduced
 * among the replicas of each member.
 *
 * Transfers of one lane run in the order in which the sender's compute makes the messages; both ends have that order. A
 * SEND waits for the compute that makes it. A RECV waits for the compute instruction PLAN_PREFETCH before its consumer,
 * or for an earlier one where a later message of its lane, or a sender's buffer, could not wait so long: receive
 * buffers are bounded and known beforehand, and no order of steps that could run without transfers can deadlock with
 * them (the proof is in compile.h, the check below). Forward tensors in training are kept where they were made until
 * that microbatch's backward, which comes after they were sent. All else is sent from buffers used in turns, two
 * between neighbour chunks and 1 + distance otherwise: the compute that fills one waits until it has been sent. */
enum { PLAN_PREFETCH = 2 };
dp_status plan_compile(const plan_plan *plan, const graph *graph, plan_program *program, dp_error *error);
void plan_program_free(plan_program *program);

/* Messages of the first copy of the pipeline; those of the others follow in the same order. */
static inline uint32_t plan_message_count(const plan_program *program) {
  return program->message_count / (uint32_t)plan_copy_count(program->plan);
}

/* Proves that the program can finish whatever the durations: DP_INTERNAL with the cycle spelled out, instruction by
 * instruction ("worker 0 FORWARD chunk 1 microbatch 3 waits for worker 1 SEND ..."), when it cannot. Linear time. */
dp_status plan_program_check(const plan_program *program, dp_error *error);
/* Also checks the structural invariants above (pairs name each other, same message, waits within the worker, ...). */

/* "worker 2 BACKWARD chunk 2 microbatch 5" */
const char *plan_instruction_show(const plan_program *program, uint32_t instruction, char out[128]);
/* The instructions of each group, one a member, in the order of their lanes: group g has ids[first[g]] up to
 * ids[first[g + 1]]. Both are made in `arena`. */
typedef struct plan_groups {
  uint32_t *first; /* [group_count + 1] */
  uint32_t *ids;
} plan_groups;
dp_status plan_groups_of(const plan_program *program, dp_arena *arena, plan_groups *groups, dp_error *error);

/* The worker of an instruction, through its lane (binary search). */
uint32_t plan_instruction_lane(const plan_program *program, uint32_t instruction);

#endif
