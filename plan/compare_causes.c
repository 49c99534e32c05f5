#include "plan/compare_causes.h"

#include <math.h>
#include <stdlib.h>

const char *const plan_cause_names[] = {"compute",        "transfer",         "collective", "compute-delay",
                                        "transfer-delay", "collective-delay", "after",      NULL};

/* Causes under way: a lane has one for the lengths of each opcode it runs and one for its delays. An event is of the
 * lane of its first member: a SEND, or a group's first. */
enum { SLOTS = PLAN_OPCODE_COUNT + 1, DELAY_SLOT = PLAN_OPCODE_COUNT };

static void describe(const plan_lane *lane, int slot, plan_cause *cause) {
  const bool delay = slot == DELAY_SLOT;
  cause->worker = (int)lane->worker;
  cause->peer = -1;
  cause->opcode = delay ? PLAN_OPCODE_COUNT : slot;
  switch (lane->kind) {
    case PLAN_LANE_COMPUTE:
      cause->kind = delay ? PLAN_CAUSE_COMPUTE_DELAY : PLAN_CAUSE_COMPUTE;
      return;
    case PLAN_LANE_COLLECTIVE:
      cause->kind = delay ? PLAN_CAUSE_COLLECTIVE_DELAY : PLAN_CAUSE_COLLECTIVE;
      cause->opcode = PLAN_ALL_REDUCE;
      return;
    default:
      cause->kind = delay ? PLAN_CAUSE_TRANSFER_DELAY : PLAN_CAUSE_TRANSFER;
      cause->opcode = PLAN_SEND;
      cause->peer = (int)lane->peer;
      cause->backward = lane->backward != 0;
  }
}

static void gather(plan_cause *cause, uint32_t leader, double predicted_s, double measured_s, double effect_s) {
  cause->count++;
  cause->predicted_s += predicted_s;
  cause->measured_s += measured_s;
  cause->effect_s += effect_s;
  if (cause->count == 1 || fabs(effect_s) > fabs(cause->worst_effect_s)) {
    cause->worst = leader;
    cause->worst_effect_s = effect_s;
    cause->worst_predicted_s = predicted_s;
    cause->worst_measured_s = measured_s;
  }
}

/* The largest effect first; of equal ones the order of the lanes. */
static int by_effect(const void *a, const void *b) {
  const plan_cause *x = a, *y = b;
  const double one = fabs(x->effect_s), other = fabs(y->effect_s);
  if (one != other) return one > other ? -1 : 1;
  if (x->worker != y->worker) return x->worker - y->worker;
  if (x->kind != y->kind) return (int)x->kind - (int)y->kind;
  if (x->opcode != y->opcode) return x->opcode - y->opcode;
  return x->peer != y->peer ? x->peer - y->peer : (int)x->backward - (int)y->backward;
}

dp_status plan_compare_causes(const plan_replay *r, const plan_parts *predicted, const plan_parts *measured,
                              const plan_parts *effect, const double after_s[2], plan_comparison *out,
                              dp_error *error) {
  const plan_program *program = r->program;
  const size_t slots = (size_t)program->lane_count * SLOTS;
  plan_cause *made = DP_ARENA_NEW(&out->arena, plan_cause, slots + 1);
  if (!made) return dp_fail_memory(error);
  for (uint32_t e = 0; e < r->event_count; e++) {
    const uint32_t leader = r->members[r->event_first[e]], lane = r->lane_of[leader];
    plan_cause *of_lane = &made[(size_t)lane * SLOTS];
    double length_effect_s = 0; /* the path goes through one of the members */
    for (uint32_t m = r->event_first[e]; m < r->event_first[e + 1]; m++)
      length_effect_s += effect->length_s[r->members[m]];
    gather(&of_lane[program->instructions[leader].opcode], leader, predicted->length_s[leader],
           measured->length_s[leader], length_effect_s);
    gather(&of_lane[DELAY_SLOT], leader, predicted->delay_s[e], measured->delay_s[e], effect->delay_s[e]);
  }
  int count = 0;
  for (size_t i = 0; i < slots; i++) {
    plan_cause cause = made[i];
    if (!cause.count) continue;
    cause.predicted_s /= cause.count;
    cause.measured_s /= cause.count;
    if (cause.predicted_s == cause.measured_s && cause.effect_s == 0) continue;
    describe(&program->lanes[i / SLOTS], (int)(i % SLOTS), &cause);
    made[count++] = cause;
  }
  if (after_s[0] != after_s[1])
    made[count++] = (plan_cause){.kind = PLAN_CAUSE_AFTER,
                                 .opcode = PLAN_OPCODE_COUNT,
                                 .worker = -1,
                                 .peer = -1,
                                 .count = 1,
                                 .predicted_s = after_s[0],
                                 .measured_s = after_s[1],
                                 .effect_s = after_s[1] - after_s[0],
                                 .worst = PLAN_NO_PEER,
                                 .worst_effect_s = after_s[1] - after_s[0],
                                 .worst_predicted_s = after_s[0],
                                 .worst_measured_s = after_s[1]};
  if (count) qsort(made, (size_t)count, sizeof *made, by_effect);
  out->causes = made;
  out->cause_count = count;
  return DP_OK;
}
