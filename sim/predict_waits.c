/* What passes between an instruction and what waits for it, beside what either takes: threads that are woken, and the
 * norm of gradients. The engine has it in the latency of transfers and collectives, which is all that decides when
 * anything ends; the timeline is told apart again, as runs measure it. */
#include <math.h>

#include "sim/predictor.h"

void sim_predict_hand_over(const plan_profile *profile, sim_transfer *transfer) {
  transfer->after_s = fmin(profile->handover_after_s, profile->handover_s);
  transfer->before_s = profile->handover_s - transfer->after_s;
}

bool sim_predict_meets_for_norm(const sim_predictor *p) {
  return p->out->plan.global_norm && p->out->program.worker_count > 1;
}

static double norm_s(const sim_predictor *p, uint32_t worker) {
  const plan_plan *plan = &p->out->plan;
  return sim_cost_norm_s(&p->kinds[p->kind_of_worker[worker]].context,
                         plan_trainable_parameters(plan, &p->out->graph, plan_worker_rank(plan, (int)worker)));
}

/* How much later the last member has its norm than the last one has its gradients. */
static double norm_more_s(const sim_predictor *p, uint32_t collective) {
  const plan_timeline *t = &p->out->timeline;
  const plan_program *program = t->program;
  double ready_s = 0, normed_s = 0;
  for (uint32_t l = 0; l < program->lane_count; l++) {
    const plan_lane *lane = &program->lanes[l];
    for (uint32_t i = lane->first; lane->kind == PLAN_LANE_COLLECTIVE && i < lane->first + lane->count; i++) {
      if (program->instructions[i].class_id != collective) continue;
      uint32_t by;
      const double released_s = plan_released_s(t, l, i, &by);
      ready_s = fmax(ready_s, released_s);
      normed_s = fmax(normed_s, released_s + norm_s(p, lane->worker));
    }
  }
  return normed_s - ready_s;
}

static bool is_on_processors(const sim_predictor *p, const plan_collective *collective) {
  const uint32_t first = p->out->program.group_members[collective->first_member];
  const int device = sim_worker_device(&p->out->plan, (int)first);
  return plan_device_is_processor(p->scenario->cluster.devices.items[device].model);
}

bool sim_predict_norms(sim_predictor *p) {
  const plan_program *program = &p->out->program;
  bool changed = false;
  for (uint32_t c = 0; c < program->collective_count && !p->scenario->synthetic; c++) {
    sim_transfer *transfer = &p->collectives[c];
    if (!program->collectives[c].norm || transfer->bytes <= 0) continue;
    const double more_s = norm_more_s(p, c);
    if (more_s <= 0) continue;
    transfer->latency_s += more_s;
    transfer->busy_latency_s += more_s;
    if (is_on_processors(p, &program->collectives[c])) transfer->before_s += more_s; /* a GPU has it in its queue */
    changed = true;
  }
  return changed;
}

static const sim_transfer *transfer_of(const sim_predictor *p, uint32_t i) {
  const plan_instruction *instruction = &p->out->program.instructions[i];
  if (instruction->opcode == PLAN_ALL_REDUCE) return &p->collectives[instruction->class_id];
  return instruction->opcode == PLAN_SEND || instruction->opcode == PLAN_RECV ? &p->messages[instruction->class_id]
                                                                              : NULL;
}

void sim_predict_tell_waits(sim_predictor *p) {
  plan_timeline *t = &p->out->timeline;
  for (uint32_t i = 0; i < p->out->program.instruction_count; i++) {
    const sim_transfer *transfer = transfer_of(p, i);
    if (!transfer || transfer->bytes <= 0) continue;
    t->start_s[i] = fmin(t->start_s[i] + transfer->before_s, t->end_s[i]);
    t->end_s[i] = fmax(t->end_s[i] - transfer->after_s, t->start_s[i]);
  }
}
