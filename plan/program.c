#include "plan/program.h"

#include <stdio.h>

const char *const plan_opcode_names[] = {
    "FORWARD", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT", "SEND", "RECV", "ALL_REDUCE", "OPTIMIZER_STEP", NULL};
const char *const plan_traffic_names[] = {"boundary", "skip", "gradient", "latent", "tensor", NULL};

void plan_program_free(plan_program *program) {
  dp_arena_free(&program->arena);
  *program = (plan_program){0};
}

uint32_t plan_instruction_lane(const plan_program *program, uint32_t instruction) {
  uint32_t low = 0, high = program->lane_count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (program->lanes[middle].first <= instruction)
      low = middle;
    else
      high = middle;
  }
  return low;
}

const char *plan_instruction_show(const plan_program *program, uint32_t instruction, char out[128]) {
  const plan_instruction *i = &program->instructions[instruction];
  const plan_lane *lane = &program->lanes[plan_instruction_lane(program, instruction)];
  const char *name = i->opcode < PLAN_OPCODE_COUNT ? plan_opcode_names[i->opcode] : "?";
  const char *kind = lane->backward ? " gradient" : "";
  if (i->opcode == PLAN_OPTIMIZER_STEP)
    (void)snprintf(out, 128, "worker %u %s", lane->worker, name);
  else if (i->opcode == PLAN_SEND || i->opcode == PLAN_RECV)
    (void)snprintf(out, 128, "worker %u %s%s %s worker %u chunk %d microbatch %u", lane->worker, name, kind,
                   i->opcode == PLAN_SEND ? "to" : "from", lane->peer, (int)i->chunk, i->microbatch);
  else if (i->opcode == PLAN_ALL_REDUCE && program->collectives[i->class_id].norm)
    (void)snprintf(out, 128, "worker %u %s of the gradient norm", lane->worker, name);
  else if (i->opcode == PLAN_ALL_REDUCE || i->part)
    (void)snprintf(out, 128, "worker %u %s chunk %d microbatch %u part %d", lane->worker, name, (int)i->chunk,
                   i->microbatch, (int)i->part);
  else
    (void)snprintf(out, 128, "worker %u %s chunk %d microbatch %u", lane->worker, name, (int)i->chunk, i->microbatch);
  return out;
}

dp_status plan_groups_of(const plan_program *program, dp_arena *arena, plan_groups *groups, dp_error *error) {
  const size_t count = program->group_count;
  uint32_t *end = DP_ARENA_NEW(arena, uint32_t, count + 2); /* filling moves each group's end to where it belongs */
  if (!end) return dp_fail_memory(error);
  for (int pass = 0; pass < 2; pass++) { /* count, then fill */
    for (uint32_t l = 0; l < program->lane_count; l++) {
      const plan_lane *lane = &program->lanes[l];
      if (lane->kind != PLAN_LANE_COLLECTIVE) continue;
      for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
        const uint32_t group = program->instructions[i].peer;
        if (pass == 0)
          end[group + 2]++;
        else
          groups->ids[end[group + 1]++] = i;
      }
    }
    if (pass == 1) break;
    for (size_t g = 0; g < count; g++) end[g + 2] += end[g + 1];
    groups->ids = DP_ARENA_NEW(arena, uint32_t, (size_t)end[count + 1] + 1);
    if (!groups->ids) return dp_fail_memory(error);
  }
  groups->first = end;
  return DP_OK;
}
