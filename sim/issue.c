/* The hosts' pace. A host never waits for its devices, so when it issues what is known before virtual time begins. */
#include <stdlib.h>

#include "sim/engine_state.h"

typedef struct seat {
  int host;
  uint32_t worker;
} seat;

static int seat_compare(const void *a, const void *b) {
  const seat *x = a, *y = b;
  if (x->host != y->host) return x->host < y->host ? -1 : 1;
  return x->worker < y->worker ? -1 : x->worker > y->worker;
}

/* Workers seats[0 .. count - 1] take turns on one host thread. */
static void issue_in_turns(const sim_input *input, const seat *seats, size_t count, plan_timeline *timeline) {
  const plan_program *program = input->program;
  double clock_s = 0;
  bool any = true;
  for (uint32_t position = 0; any; position++) {
    any = false;
    for (size_t s = 0; s < count; s++) {
      const uint32_t first_lane = program->worker_lane[seats[s].worker];
      if (first_lane == program->worker_lane[seats[s].worker + 1]) continue;
      const plan_lane *lane = &program->lanes[first_lane];
      if (lane->kind != PLAN_LANE_COMPUTE || position >= lane->count) continue;
      const uint32_t id = lane->first + position;
      clock_s += input->work_issue_s[program->instructions[id].class_id];
      timeline->issue_s[id] = clock_s;
      any = true;
    }
  }
}

dp_status sim_engine_issue(const sim_input *input, plan_timeline *timeline, dp_error *error) {
  const size_t workers = (size_t)input->program->worker_count;
  seat *seats = calloc(workers + 1, sizeof *seats);
  if (seats == NULL) return dp_fail_memory(error);
  if (timeline->issue_s == NULL) timeline->issue_s = calloc((size_t)input->program->instruction_count + 1, sizeof(double));
  if (timeline->issue_s == NULL) {
    free(seats);
    return dp_fail_memory(error);
  }
  for (size_t w = 0; w < workers; w++) {
    seats[w] = (seat){input->worker_host != NULL ? input->worker_host[w] : (int)w, (uint32_t)w};
  }
  qsort(seats, workers, sizeof *seats, seat_compare);
  for (size_t first = 0, last; first < workers; first = last) {
    for (last = first + 1; last < workers && seats[last].host == seats[first].host; last++) {
    }
    issue_in_turns(input, &seats[first], last - first, timeline);
  }
  free(seats);
  return DP_OK;
}
