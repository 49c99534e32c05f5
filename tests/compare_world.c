#include "tests/compare_world.h"

#include <math.h>
#include <stdlib.h>

bool is_backward(int opcode) {
  return opcode == PLAN_BACKWARD || opcode == PLAN_BACKWARD_INPUT || opcode == PLAN_BACKWARD_WEIGHT;
}

static const plan_lane *lane_of(const plan_program *p, uint32_t id) { return &p->lanes[plan_instruction_lane(p, id)]; }

/* The instruction that speaks for its pair or group. */
static uint32_t leader_of(const plan_program *p, uint32_t id) {
  const plan_instruction *i = &p->instructions[id];
  if (i->opcode == PLAN_RECV) return i->peer;
  if (i->opcode != PLAN_ALL_REDUCE) return id;
  for (uint32_t other = 0; other < id; other++)
    if (p->instructions[other].opcode == PLAN_ALL_REDUCE && p->instructions[other].peer == i->peer) return other;
  return id;
}

/* When an instruction alone could start. */
static double ready_s(const plan_program *p, const double *end_s, uint32_t id) {
  double latest_s = 0;
  if (id > lane_of(p, id)->first) latest_s = end_s[id - 1];
  for (uint32_t w = p->wait_first[id]; w < p->wait_first[id + 1]; w++) latest_s = fmax(latest_s, end_s[p->waits[w]]);
  return latest_s;
}

void distorted_timeline(const plan_timeline *predicted, void (*distort)(const void *how, uint32_t id, distortion *what),
                        const void *how, plan_timeline *measured) {
  const plan_program *p = predicted->program;
  const uint32_t n = p->instruction_count;
  dp_error error = DP_ERROR_INIT;
  double *length_s = calloc(n, sizeof *length_s), *delay_s = calloc(n, sizeof *delay_s);
  double *ready = calloc(n, sizeof *ready);
  uint32_t *leader = calloc(n, sizeof *leader);
  if (!length_s || !delay_s || !ready || !leader || plan_timeline_init(p, measured, &error) != DP_OK) abort();
  for (uint32_t i = 0; i < n; i++) {
    leader[i] = leader_of(p, i);
    ready[leader[i]] = fmax(ready[leader[i]], ready_s(p, predicted->end_s, i));
  }
  for (uint32_t i = 0; i < n; i++) {
    distortion what = {1, 0};
    distort(how, leader[i], &what);
    length_s[i] = what.factor * (predicted->end_s[i] - predicted->start_s[i]);
    delay_s[i] = what.delay_s + predicted->start_s[i] - ready[leader[i]];
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t i = 0; i < n; i++) ready[i] = 0;
    for (uint32_t i = 0; i < n; i++) ready[leader[i]] = fmax(ready[leader[i]], ready_s(p, measured->end_s, i));
    for (uint32_t i = 0; i < n; i++) {
      const double start_s = ready[leader[i]] + delay_s[i], end_s = start_s + length_s[i];
      moved = moved || start_s != measured->start_s[i] || end_s != measured->end_s[i];
      measured->start_s[i] = start_s;
      measured->end_s[i] = end_s;
    }
  }
  for (uint32_t i = 0; i < n; i++) measured->step_s = fmax(measured->step_s, measured->end_s[i]);
  free(length_s);
  free(delay_s);
  free(ready);
  free(leader);
}
