#include "tests/sim_laws.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "tests/timeline_order.h"

const sim_figures_options SIM_MIXES[SIM_MIX_COUNT] = {
    {.link_count = 0, .max_hops = 1},
    {.link_count = 3, .max_hops = 2},
    {.link_count = 12, .max_hops = 4, .zero_bytes = true},
    {.link_count = 6, .max_hops = 3, .unbounded_caps = true, .hosts = true},
    {.link_count = 0, .max_hops = 1, .busy = true, .hosts = true},
    {.link_count = 0, .max_hops = 1, .slowdown = true, .zero_bytes = true},
    {.link_count = 5, .max_hops = 3, .busy = true, .slowdown = true},
    {.link_count = 2, .max_hops = 1, .busy = true, .slowdown = true, .hosts = true, .shared_hosts = true, .zero_bytes = true},
};

void sim_laws_check(const sim_input *input, const plan_timeline *timeline) {
  const plan_program *program = input->program;
  const double slack_s = 1e-9;
  double latest_s = 0;
  uint32_t *member = calloc(program->group_count + 1, sizeof *member); /* 1 + the last seen of each group */
  ck_assert_ptr_nonnull(member);
  ck_assert(timeline_is_ordered(timeline));
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    double busy_s = 0;
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      if (lane->kind == PLAN_LANE_SEND) {
        const uint32_t peer = program->instructions[i].peer;
        ck_assert(timeline->start_s[i] == timeline->start_s[peer] && timeline->end_s[i] == timeline->end_s[peer]);
      }
      if (lane->kind == PLAN_LANE_COLLECTIVE) {
        uint32_t *last = &member[program->instructions[i].peer];
        if (*last > 0) {
          ck_assert(timeline->start_s[i] == timeline->start_s[*last - 1] && timeline->end_s[i] == timeline->end_s[*last - 1]);
        }
        *last = i + 1;
      }
      if (lane->kind == PLAN_LANE_COMPUTE && input->work_issue_s != NULL) {
        ck_assert(timeline->end_s[i] >= timeline->issue_s[i]);
      }
      busy_s += timeline->end_s[i] - timeline->start_s[i];
      latest_s = fmax(latest_s, timeline->end_s[i]);
    }
    ck_assert(timeline->step_s >= busy_s - slack_s);
  }
  ck_assert(timeline->step_s == latest_s);
  free(member);
}

double sim_laws_lone_starts(const sim_input *input, double *start_s) {
  const plan_program *p = input->program;
  double *ready_s = calloc(p->instruction_count + 1, sizeof *ready_s), *end_s = calloc(p->instruction_count + 1, sizeof *end_s);
  double *group_s = calloc(p->group_count + 1, sizeof *group_s), latest_s = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t l = 0; l < p->lane_count; l++) {
      const plan_lane *lane = &p->lanes[l];
      for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
        const plan_instruction *instruction = &p->instructions[i];
        double at_s = i > lane->first ? end_s[i - 1] : 0;
        for (uint32_t w = p->wait_first[i]; w < p->wait_first[i + 1]; w++) at_s = fmax(at_s, end_s[p->waits[w]]);
        ready_s[i] = at_s;
        double took_s = 0;
        if (lane->kind == PLAN_LANE_COMPUTE) {
          took_s = input->work_s[instruction->class_id];
        } else {
          const bool group = lane->kind == PLAN_LANE_COLLECTIVE;
          const sim_transfer *t =
              group ? &input->collectives[p->group_class[instruction->peer]] : &input->messages[instruction->class_id];
          double rate = t->cap_bytes_per_s > 0 ? t->cap_bytes_per_s : INFINITY;
          double busy_rate = t->busy_cap_bytes_per_s > 0 ? t->busy_cap_bytes_per_s : INFINITY;
          for (int h = 0; h < t->hops; h++) {
            int times = 0;
            for (int g = 0; g < t->hops; g++) times += t->links[g] == t->links[h];
            rate = fmin(rate, input->link_capacity_bytes_per_s[t->links[h]] / times);
            busy_rate = fmin(busy_rate, input->link_capacity_bytes_per_s[t->links[h]] / times);
          }
          if (t->bytes > 0) {
            took_s = fmin(t->latency_s + t->bytes / rate, t->busy_latency_s + t->bytes / busy_rate);
          }
          if (group) {
            group_s[instruction->peer] = fmax(group_s[instruction->peer], at_s);
            at_s = group_s[instruction->peer];
          } else {
            at_s = fmax(at_s, ready_s[instruction->peer]);
          }
        }
        start_s[i] = at_s;
        if (at_s + took_s > end_s[i]) {
          end_s[i] = at_s + took_s;
          moved = true;
        }
        latest_s = fmax(latest_s, end_s[i]);
      }
    }
  }
  free(ready_s);
  free(end_s);
  free(group_s);
  return latest_s;
}
