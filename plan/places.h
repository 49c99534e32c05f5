/* The places inside a chunk's memory, for an executor that runs one op after another and fuses none: the CPU.
 *
 * A pass of a chunk is a list of actions: an op forward, its input gradients, its weight gradients, or its output made
 * again; with a place for every operand. A place is an offset in one of the blocks that plan/memory.h lays out:
 *   SAVED      the saved activations of a microbatch: of what graph_saved_bytes counts, all that is neither received
 * nor made again, tensors and the ops' statistics, in the order in which they are made, but first those of odd sizes;
 * AGAIN      what recomputed units save, made again by the input
 * backward for a weight backward that comes apart; KEPT       gradients of what weighted ops put out, and of adapters'
 * hidden values, from the one to the other; INPUTS     graph inputs that are not saved; WORKSPACE  all else that lives
 * within one pass, placed by lifetimes over its actions: operands of one action never overlap, but that one input's
 * gradient of a sum lies where the sum's does, and that of a plain activation behind a linear layer where its output's
 * does, and what an action reads for the last time is free after it; OUTSIDE    a buffer of its own, or another chunk's
 * block: constants, what is received, what leaves and is not saved, gradients that several chunks of the worker add to.
 *
 * Backward runs unit by unit from the last. A recomputed unit first runs those of its ops again that its backward rests
 * on. Before an op's backward, what that needs and nobody saved is made again: a norm's output from its input and
 * statistics, pieces of a split, and what follows from them. Weight gradients follow an op's input gradients at once,
 * unless the weight backward comes apart.
 *
 * What a cheap op puts out (a norm, an elementwise op, a concatenation), only its own unit reads and can be made of
 * what is there anyway is never saved, though the graph counts it: the inputs of products after norms and activations.
 * Making it again takes as long as making it did and gives the same bits.
 *
 * Lives leave room for one call that does two actions (exec/fusion.h): what a product or a group norm reads stays until
 * the sum or the SiLU behind it is there, and a sum's gradient as long as that of a product or gate that it adds is
 * read; the gradient of what a gated activation reads begins where the activation is made again for the product behind
 * it (a plain one's has its place by then). And what siblings put out, and the gradients of that, lie one behind the
 * other where the workspace, which is not made larger for it, has room: they are one product for who can do a batch.
 *
 * A reshape shows its input's memory where only its own unit reads it; where it leaves the unit it is copied, as a
 * split always is. Gradients: the first action that adds to one overwrites it.
 */
#ifndef DP_PLAN_PLACES_H
#define DP_PLAN_PLACES_H

#include "plan/program.h"

typedef enum plan_block {
  PLAN_BLOCK_NONE, /* no place: not wanted */
  PLAN_BLOCK_SAVED,
  PLAN_BLOCK_AGAIN,
  PLAN_BLOCK_KEPT,
  PLAN_BLOCK_INPUTS,
  PLAN_BLOCK_WORKSPACE,
  PLAN_BLOCK_OUTSIDE,
  PLAN_BLOCK_COUNT
} plan_block;

typedef struct plan_place {
  uint32_t block; /* plan_block */
  int64_t at;     /* bytes into the block; OUTSIDE: index into plan_places.outside */
} plan_place;

typedef enum plan_action_kind {
  PLAN_ACTION_FORWARD,
  PLAN_ACTION_AGAIN, /* the output for a backward; a norm's, from its input and statistics */
  PLAN_ACTION_INPUT_GRADIENT,
  PLAN_ACTION_WEIGHT_GRADIENT
} plan_action_kind;

/* Operands, from places[first_place] on, of an op with n inputs and m outputs: n input values, m output values, n input
 * gradients, m output gradients, the statistics and the gradient of an adapter's hidden values: 2 (n + m + 1). */
typedef struct plan_action {
  int op;
  uint8_t kind;
  uint32_t first_place;
} plan_action;

/* A place of the workspace: from one action to another, inclusive. */
typedef struct plan_life {
  uint32_t begin, end;
  int64_t at, bytes;
} plan_life;

/* Operands of a linear layer, as plan_action counts them. And actions, at most, from a sibling's weight gradient to the
 * next one's: the input gradient, and what is made again. */
enum { PLAN_LINEAR_OUTPUT = 1, PLAN_LINEAR_OUTPUT_GRADIENT = 3, PLAN_SIBLINGS_NEAR = 4 };

typedef struct plan_pass_places {
  plan_action *actions;
  uint32_t action_count;
  plan_place *places;
  uint32_t *unit_begin, *unit_end; /* [unit of the chunk] its actions */
  plan_life *lives;
  uint32_t life_count;
  int64_t workspace_bytes;
} plan_pass_places;

typedef struct plan_port {
  int tensor;
  plan_place place;
} plan_port;

/* The gradient of a tensor that leaves its chunk, as the chunk's backward begins. */
typedef struct plan_arrival {
  int tensor;
  plan_place collected; /* what later chunks of this worker, or the loss, have put there; NONE: nothing */
  plan_place place;     /* where the backward looks for it; may be the same */
} plan_arrival;

typedef struct plan_outside {
  int tensor;
  bool gradient;
} plan_outside;

typedef struct plan_places {
  int first_unit, unit_count;
  plan_pass_places passes[PLAN_PASS_COUNT];
  plan_outside *outside;
  int outside_count;
  plan_port *inputs; /* graph inputs that change: the feed fills them in before the forward */
  int input_count;
  plan_port *made; /* what leaves the chunk or is the graph's output: values, SAVED or OUTSIDE */
  int made_count;
  plan_arrival *arrivals;
  int arrival_count;
  /* Gradients of what other chunks made that lie in the workspace when the backward ends: of compressed skips. */
  plan_port *departures;
  int departure_count;
  /* In the workspace, after the last forward action: the output's target, where it is made here; and where compressed
   * skips leave, room for the largest. */
  plan_place target, scratch;
  int64_t block_bytes[PLAN_BLOCK_COUNT]; /* WORKSPACE: the most of all passes */
} plan_places;

/* The tensor whose memory it shows: through reshapes that only their own unit reads. */
int plan_places_root(const graph *graph, int tensor);
/* Whether the backward of the units [first, first + count) keeps a tensor: the rule of graph_saved_bytes. */
bool plan_places_saves(const plan_plan *plan, const graph *graph, int tensor, int first, int count);
/* Whether such a one is not saved here but made again. */
bool plan_places_remakes(const plan_plan *plan, const graph *graph, int tensor, int first, int count);
/* Whether what an op makes may be, where all that it reads is at hand. */
bool plan_places_is_cheap(const graph_op *op);
/* Siblings: linear layers of a unit, one op after another, that read the same, as many values to as many, all trained
 * or none, without bias and adapter, so that their weights lie one behind the other in the order of ops. As the
 * queries, keys and values of attention. */
enum { PLAN_MAX_SIBLINGS = 3 };
typedef struct plan_siblings {
  int first, count; /* ops; 1: it has none */
} plan_siblings;
plan_siblings plan_places_siblings(const graph *graph, int op);
/* Bytes of SAVED: what is saved, and what aligns it. */
int64_t plan_places_saved_bytes(const plan_plan *plan, const graph *graph, int first, int count);

/* Of one chunk, in `arena`. split_backward: the weight backward comes apart. DP_INTERNAL names an op whose backward
 * needs what the graph does not keep. */
dp_status plan_places_of(const plan_plan *plan, const graph *graph, int chunk, bool split_backward, dp_arena *arena,
                         plan_places *places, dp_error *error);
/* Where the value lies of a tensor that the chunk makes and that leaves it; NONE: it is not such a one. */
plan_place plan_places_made(const plan_places *places, int tensor);

#endif
