/* What any timeline must obey, measured or played. */
#ifndef DP_TESTS_TIMELINE_ORDER_H
#define DP_TESTS_TIMELINE_ORDER_H

#include <stdbool.h>

#include "plan/timeline.h"

/* Every instruction runs after those it waits for, one at a time on its lane. */
static inline bool timeline_is_ordered(const plan_timeline *t) {
  const plan_program *program = t->program;
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      if (!(t->start_s[i] >= 0 && t->end_s[i] >= t->start_s[i])) return false;
      if (i > lane->first && t->start_s[i] < t->end_s[i - 1]) return false;
      for (uint32_t w = program->wait_first[i]; w < program->wait_first[i + 1]; w++)
        if (t->start_s[i] < t->end_s[program->waits[w]]) return false;
    }
  }
  return true;
}

/* Nothing is received before its sender has begun. Where messages may wait in buffers, a sender may have gone on. */
static inline bool transfers_follow(const plan_timeline *t) {
  for (uint32_t i = 0; i < t->program->instruction_count; i++) {
    const plan_instruction *recv = &t->program->instructions[i];
    if (recv->opcode == PLAN_RECV && t->start_s[i] < t->start_s[recv->peer]) return false;
  }
  return true;
}

/* A transfer starts at both ends together. */
static inline bool transfers_meet(const plan_timeline *t) {
  for (uint32_t i = 0; i < t->program->instruction_count; i++) {
    const plan_instruction *recv = &t->program->instructions[i];
    if (recv->opcode == PLAN_RECV && t->start_s[i] != t->start_s[recv->peer]) return false;
  }
  return true;
}

#endif
