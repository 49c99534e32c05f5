#include "exec/align.h"

#include <math.h>
#include <stdlib.h>

static const double ROUNDING_S = 1e-9;

typedef struct aligner {
  const plan_program *program;
  const plan_timeline *timeline;
  int processes;
  int *of;       /* [instruction] its process */
  double *late;  /* [processes * processes] from, to: by how much the second must be later than the first, at least */
  double *shift; /* [process] */
} aligner;

static void bound(aligner *a, uint32_t first, uint32_t second) {
  const int from = a->of[first], to = a->of[second];
  const double late = a->timeline->start_s[first] - a->timeline->end_s[second] + ROUNDING_S;
  double *least = &a->late[from * a->processes + to];
  if (from != to && late > *least) *least = late;
}

static void bound_sends(aligner *a, const plan_lane *sends, bool meet) {
  for (uint32_t send = sends->first; send < sends->first + sends->count; send++) {
    const uint32_t recv = a->program->instructions[send].peer;
    bound(a, send, recv);
    if (meet) bound(a, recv, send);
  }
}

static void bound_all(aligner *a, const plan_groups *groups, exec_align_meet meet, const void *data) {
  const plan_program *program = a->program;
  for (int i = 0; i < a->processes * a->processes; i++) a->late[i] = -1e30;
  for (uint32_t l = 0; l < program->lane_count; l++)
    if (program->lanes[l].kind == PLAN_LANE_SEND)
      bound_sends(a, &program->lanes[l], !meet || meet(data, &program->lanes[l]));
  for (uint32_t g = 0; groups && g < program->group_count; g++)
    for (uint32_t m = groups->first[g]; m < groups->first[g + 1]; m++)
      for (uint32_t n = groups->first[g]; n < groups->first[g + 1]; n++) bound(a, groups->ids[m], groups->ids[n]);
}

/* Longest paths: Bellman and Ford. A cycle that grows (no shifts do) is left after as many rounds as there are
 * processes. */
static void find_shifts(aligner *a) {
  for (int round = 0; round < a->processes; round++)
    for (int p = 0; p < a->processes; p++)
      for (int q = 0; q < a->processes; q++) {
        const double least = a->shift[p] + a->late[p * a->processes + q];
        if (p != q && least > a->shift[q]) a->shift[q] = least;
      }
}

dp_status exec_align_clocks(const plan_program *program, const plan_groups *groups, int processes, exec_align_meet meet,
                            const void *data, plan_timeline *timeline, dp_error *error) {
  const int each = program->worker_count / processes;
  aligner a = {.program = program,
               .timeline = timeline,
               .processes = processes,
               .of = calloc((size_t)program->instruction_count + 1, sizeof *a.of),
               .late = calloc((size_t)(processes * processes), sizeof *a.late),
               .shift = calloc((size_t)processes, sizeof *a.shift)};
  const bool room = a.of && a.late && a.shift;
  if (room) {
    for (uint32_t l = 0; l < program->lane_count; l++)
      for (uint32_t i = program->lanes[l].first; i < program->lanes[l].first + program->lanes[l].count; i++)
        a.of[i] = (int)program->lanes[l].worker / each;
    bound_all(&a, groups, meet, data);
    find_shifts(&a);
    for (uint32_t i = 0; i < program->instruction_count; i++) {
      timeline->start_s[i] += a.shift[a.of[i]];
      timeline->end_s[i] += a.shift[a.of[i]];
    }
  }
  free(a.of);
  free(a.late);
  free(a.shift);
  return room ? DP_OK : dp_fail_memory(error);
}

static void join_sends(const plan_program *program, const plan_lane *sends, bool meet, plan_timeline *t) {
  for (uint32_t send = sends->first; send < sends->first + sends->count; send++) {
    const uint32_t recv = program->instructions[send].peer;
    t->start_s[recv] = fmax(t->start_s[recv], t->start_s[send]);
    t->end_s[recv] = fmax(t->end_s[recv], t->start_s[recv]);
    if (!meet) continue;
    t->start_s[send] = t->start_s[recv];
    t->end_s[send] = fmax(t->end_s[send], t->start_s[send]);
  }
}

void exec_join_ends(const plan_program *program, const plan_groups *groups, exec_align_meet meet, const void *data,
                    plan_timeline *t) {
  for (uint32_t l = 0; l < program->lane_count; l++)
    if (program->lanes[l].kind == PLAN_LANE_SEND)
      join_sends(program, &program->lanes[l], !meet || meet(data, &program->lanes[l]), t);
  for (uint32_t g = 0; groups && g < program->group_count; g++) {
    double start_s = 0;
    for (uint32_t m = groups->first[g]; m < groups->first[g + 1]; m++)
      start_s = fmax(start_s, t->start_s[groups->ids[m]]);
    for (uint32_t m = groups->first[g]; m < groups->first[g + 1]; m++) {
      const uint32_t id = groups->ids[m];
      t->start_s[id] = start_s;
      t->end_s[id] = fmax(t->end_s[id], start_s);
    }
  }
}
