#include "cli/run_units.h"

#include <stdlib.h>
#include <string.h>

/* The threads of one worker take turns, and each unit is on one of the first replica's. */
static void note(void *data, int worker, int op, plan_direction direction, double seconds) {
  cli_run_units *units = data;
  if (plan_worker_replica(units->program->plan, worker) > 0) return;
  const int unit = units->graph->ops.items[op].unit;
  /* a backward in one piece is one run */
  const int at = direction == PLAN_DIRECTION_FORWARD                           ? PLAN_UNIT_FORWARD
                 : direction == PLAN_DIRECTION_BACKWARD_WEIGHT && units->split ? PLAN_UNIT_BACKWARD_WEIGHT
                                                                               : PLAN_UNIT_BACKWARD_INPUT;
  units->times.total_s[unit * PLAN_UNIT_DIRECTION_COUNT + at] += seconds;
  const int pass = at == PLAN_UNIT_FORWARD           ? PLAN_PASS_FORWARD
                   : at == PLAN_UNIT_BACKWARD_WEIGHT ? PLAN_PASS_WEIGHT
                                                     : PLAN_PASS_BACKWARD;
  const int class = (int)units->graph->ops.items[op].forward.op_class;
  units->classes[(units->chunk_of[unit] * PLAN_PASS_COUNT + pass) * GRAPH_CLASS_COUNT + class] += seconds;
}

static size_t class_count(const plan_program *program) {
  return (size_t)program->plan->chunk_count * PLAN_PASS_COUNT * GRAPH_CLASS_COUNT;
}

static dp_status map_units(cli_run_units *units, dp_error *error) {
  const plan_plan *plan = units->program->plan;
  units->chunk_of = calloc(units->graph->units.count + 1, sizeof *units->chunk_of);
  units->classes = calloc(class_count(units->program) + 1, sizeof *units->classes);
  if (!units->chunk_of || !units->classes) return dp_fail_memory(error);
  for (int c = 0; c < plan->chunk_count; c++)
    for (int u = 0; u < plan->chunks[c].unit_count; u++) units->chunk_of[plan->chunks[c].first_unit + u] = c;
  return DP_OK;
}

dp_status cli_run_units_init(const graph *g, const plan_program *program, cli_run_units *units, dp_error *error) {
  *units = (cli_run_units){.graph = g, .program = program, .observer = {.note = note, .data = units}};
  for (uint32_t w = 0; w < program->work_count; w++)
    units->split = units->split || program->works[w].opcode == PLAN_BACKWARD_WEIGHT;
  DP_TRY(map_units(units, error));
  return plan_unit_times_init(g->units.count, &units->times, error);
}

void cli_run_units_free(cli_run_units *units) {
  plan_unit_times_free(&units->times);
  free(units->chunk_of);
  free(units->classes);
  *units = (cli_run_units){.graph = NULL};
}

bool cli_run_units_begin(cli_run_units *units, int64_t step) {
  units->observer.on = step % CLI_RUN_UNITS_EVERY == CLI_RUN_UNITS_EVERY - 1;
  if (units->observer.on) memset(units->classes, 0, class_count(units->program) * sizeof *units->classes);
  return units->observer.on;
}

/* Every microbatch went through every unit. */
void cli_run_units_count(cli_run_units *units) {
  const size_t n = units->times.unit_count * PLAN_UNIT_DIRECTION_COUNT;
  for (size_t i = 0; i < n; i++)
    if (units->times.total_s[i] > 0) units->times.runs[i] += (uint32_t)units->program->plan->microbatches;
}
