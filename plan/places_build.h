/* Finding places; internal to plan/. */
#ifndef DP_PLAN_PLACES_BUILD_H
#define DP_PLAN_PLACES_BUILD_H

#include "base/array.h"
#include "graph/op_table.h"
#include "plan/places.h"

enum { PLAN_PLACE_ALIGNMENT = 64 }; /* of places in the workspace, and in SAVED of what is a multiple of it */
enum { PLAN_MAX_OPERANDS = 2 * (GRAPH_MAX_INPUTS + GRAPH_MAX_PIECES + 1) };

static inline int64_t plan_place_aligned(int64_t bytes) {
  return (bytes + PLAN_PLACE_ALIGNMENT - 1) / PLAN_PLACE_ALIGNMENT * PLAN_PLACE_ALIGNMENT;
}

/* The operands of an action, as plan_action orders them, by kind. */
typedef struct plan_operands {
  plan_place in[GRAPH_MAX_INPUTS], out[GRAPH_MAX_PIECES], in_gradient[GRAPH_MAX_INPUTS], out_gradient[GRAPH_MAX_PIECES];
  plan_place statistics, hidden;
} plan_operands;

typedef struct plan_placer {
  const plan_plan *plan;
  const graph *graph;
  plan_places *out;
  dp_arena *arena, scratch;
  dp_error *error;
  int chunk, first_unit, end_unit, first_op, end_op;
  int *chunk_of_unit;
  bool split;
  bool failed; /* no memory */
  /* Outside the workspace; NONE: nowhere there. [tensor]: values in SAVED, INPUTS or OUTSIDE, in AGAIN; gradients in
   * KEPT or OUTSIDE. [op]: statistics in SAVED, in AGAIN; gradients of hidden values in KEPT. */
  plan_place *value, *again, *gradient;
  plan_place *statistics, *statistics_again, *hidden;
  uint8_t *saved;  /* [tensor] plan_places_saves and does not remake */
  int *outside[2]; /* [gradient][tensor] 1 + index into outsides */
  DP_ARRAY(plan_outside) outsides;
  DP_ARRAY(plan_arrival) arrivals;
  DP_ARRAY(plan_port) departures;
  /* Of one pass: places of the workspace hold the index of their life until all are known. 1 + life, 0: none. */
  DP_ARRAY(plan_action) actions;
  DP_ARRAY(plan_place) places;
  DP_ARRAY(plan_life) lives;
  int *value_life, *gradient_life; /* [tensor] */
  int *statistics_life;            /* [op] */
  DP_ARRAY(int) made;              /* tensors made again for the unit at hand: those with a value_life in a backward */
  uint8_t *wanted;                 /* [tensor] by the recomputation of the unit at hand */
} plan_placer;

static inline const graph_tensor *plan_placer_tensor(const plan_placer *p, int tensor) {
  return &p->graph->tensors.items[tensor];
}
static inline const graph_op *plan_placer_op(const plan_placer *p, int op) { return &p->graph->ops.items[op]; }
static inline bool plan_placer_has(const plan_placer *p, int unit) {
  return unit >= p->first_unit && unit < p->end_unit;
}
static inline bool plan_placer_recomputes(const plan_placer *p, int unit) {
  return p->plan->recompute && p->plan->recompute[unit];
}
static inline bool plan_place_is_none(plan_place place) { return place.block == PLAN_BLOCK_NONE; }

static inline int plan_placer_root(const plan_placer *p, int tensor) { return plan_places_root(p->graph, tensor); }
/* It is a reshape whose output shows its input: nothing runs. */
bool plan_placer_shows(const plan_placer *p, const graph_op *op);
/* Its weights or its adapter have gradients. */
bool plan_placer_learns(const graph_op *op);
/* Forward writes that many bytes beside its outputs. */
int64_t plan_placer_statistic_bytes(const graph_op *op);

/* Later chunks use it, or it is the output. */
bool plan_placer_leaves(const plan_placer *p, const graph_tensor *tensor);
/* Where gradients from outside the chunk are collected before its backward begins. */
plan_place plan_placer_collected(plan_placer *p, int tensor);

/* A life that begins with the next action. */
int plan_placer_begin(plan_placer *p, int64_t bytes);
/* Its place, for the next action. */
plan_place plan_placer_use(plan_placer *p, int life);
void plan_placer_act(plan_placer *p, plan_action_kind kind, int op, const plan_operands *operands);

/* Of a pass whose lives have places within end_bytes, while its places hold indices: siblings get others where that
 * brings them side by side. */
dp_status plan_placer_seat_siblings(plan_placer *p, int64_t end_bytes);

/* The actions of a pass. */
dp_status plan_placer_backward(plan_placer *p);
dp_status plan_placer_weight(plan_placer *p);

#endif
