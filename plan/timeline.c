#include "plan/timeline.h"

#include <stdlib.h>

dp_status plan_timeline_init(const plan_program *program, plan_timeline *timeline, dp_error *error) {
  const size_t count = program->instruction_count ? program->instruction_count : 1;
  *timeline = (plan_timeline){.program = program,
                              .start_s = malloc(count * sizeof(double)),
                              .end_s = malloc(count * sizeof(double)),
                              .issue_s = NULL};
  if (timeline->start_s && timeline->end_s) {
    for (size_t i = 0; i < count; i++) timeline->start_s[i] = timeline->end_s[i] = 0;
    return DP_OK;
  }
  plan_timeline_free(timeline);
  return dp_fail_memory(error);
}

void plan_timeline_free(plan_timeline *timeline) {
  free(timeline->start_s);
  free(timeline->end_s);
  free(timeline->issue_s);
  free(timeline->work_tensor_s);
  *timeline = (plan_timeline){0};
}

double plan_released_s(const plan_timeline *t, uint32_t lane, uint32_t i, uint32_t *by) {
  const plan_program *program = t->program;
  double latest = 0;
  *by = PLAN_NO_PEER;
  for (uint32_t w = program->wait_first[i]; w < program->wait_first[i + 1]; w++)
    if (t->end_s[program->waits[w]] >= latest) {
      *by = program->waits[w];
      latest = t->end_s[*by];
    }
  if (i > program->lanes[lane].first && t->end_s[i - 1] >= latest) {
    *by = i - 1;
    latest = t->end_s[i - 1];
  }
  return latest;
}

/* ---- the critical path ---- */

typedef struct path {
  const plan_timeline *timeline;
  plan_groups groups;
} path;

/* The latest to end of what an instruction on its own lane had to wait for. */
static void consider(const path *p, uint32_t id, uint32_t *best) {
  const plan_program *program = p->timeline->program;
  const plan_lane *lane = &program->lanes[plan_instruction_lane(program, id)];
  const double *end_s = p->timeline->end_s;
  if (id > lane->first && (*best == PLAN_NO_PEER || end_s[id - 1] > end_s[*best])) *best = id - 1;
  for (uint32_t w = program->wait_first[id]; w < program->wait_first[id + 1]; w++)
    if (*best == PLAN_NO_PEER || end_s[program->waits[w]] > end_s[*best]) *best = program->waits[w];
}

static uint32_t before(const path *p, uint32_t id) {
  const plan_instruction *i = &p->timeline->program->instructions[id];
  uint32_t best = PLAN_NO_PEER;
  if (i->opcode == PLAN_ALL_REDUCE) {
    for (uint32_t m = p->groups.first[i->peer + 1]; m-- > p->groups.first[i->peer];)
      consider(p, p->groups.ids[m], &best); /* of equal ones the last lane's */
    return best;
  }
  consider(p, id, &best);
  if (i->opcode == PLAN_SEND || i->opcode == PLAN_RECV) consider(p, i->peer, &best);
  return best;
}

dp_status plan_critical_path(const plan_timeline *timeline, uint32_t **ids, uint32_t *count, dp_error *error) {
  const plan_program *program = timeline->program;
  dp_arena scratch = {0};
  path p = {.timeline = timeline};
  uint32_t *found = NULL;
  dp_status status = plan_groups_of(timeline->program, &scratch, &p.groups, error);
  if (status != DP_OK) goto out;
  uint32_t last = PLAN_NO_PEER, length = 0;
  for (uint32_t i = 0; i < program->instruction_count; i++)
    if (last == PLAN_NO_PEER || timeline->end_s[i] > timeline->end_s[last]) last = i;
  for (uint32_t i = last; i != PLAN_NO_PEER; i = before(&p, i)) length++;
  found = malloc((length ? length : 1) * sizeof *found);
  if (!found) {
    status = dp_fail_memory(error);
    goto out;
  }
  uint32_t at = length;
  for (uint32_t i = last; i != PLAN_NO_PEER; i = before(&p, i)) found[--at] = i;
  *ids = found;
  *count = length;
out:
  dp_arena_free(&scratch);
  return status;
}
