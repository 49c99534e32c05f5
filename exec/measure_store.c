#include "exec/measure_store.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/line.h"
#include "base/median.h"

enum { HOLD_OUT = 5 };

dp_status exec_measure_create(int threads, exec_measure **measure, dp_error *error) {
  exec_measure *m = calloc(1, sizeof *m);
  if (!m) return dp_fail_memory(error);
  m->threads = threads;
  *measure = m;
  return DP_OK;
}

static void free_sizes(exec_sizes *sizes) {
  for (size_t i = 0; i < sizes->count; i++) dp_array_free(&sizes->items[i].seconds);
  dp_array_free(sizes);
}

void exec_measure_free(exec_measure *m) {
  if (!m) return;
  free_sizes(&m->copies);
  free_sizes(&m->sums);
  free_sizes(&m->optimizer[0]);
  free_sizes(&m->optimizer[1]);
  free_sizes(&m->norms);
  free_sizes(&m->loss);
  dp_array_free(&m->gaps_s);
  dp_array_free(&m->excess);
  dp_array_free(&m->before_s);
  dp_array_free(&m->after_s);
  dp_array_free(&m->begin_s);
  dp_array_free(&m->owns);
  dp_array_free(&m->ops);
  free(m->scratch);
  dp_arena_free(&m->arena);
  free(m);
}

dp_status exec_measure_reserve(exec_measure *m, size_t count, dp_error *error) {
  const size_t wanted = count < 256 ? 256 : count;
  if (wanted <= m->scratch_count) return DP_OK;
  double *scratch = realloc(m->scratch, wanted * sizeof *scratch);
  if (!scratch) return dp_fail_memory(error);
  m->scratch = scratch;
  m->scratch_count = wanted;
  return DP_OK;
}

/* ---- keeping ---- */

dp_status exec_measure_keep_op(exec_measure *m, const exec_measure_sample *sample, bool busy, dp_error *error) {
  size_t i = 0;
  while (i < m->ops.count &&
         (m->ops.items[i].sample.direction != sample->direction || strcmp(m->ops.items[i].sample.op, sample->op) != 0))
    i++;
  if (i == m->ops.count) {
    exec_measured_op made = {.sample = *sample};
    made.sample.op = dp_arena_strdup(&m->arena, sample->op);
    made.sample.runs = 0;
    if (!made.sample.op || !dp_array_push(&m->ops, made)) return dp_fail_memory(error);
  }
  exec_measured_op *op = &m->ops.items[i];
  op->sum_s[busy] += sample->seconds;
  op->places[busy]++;
  if (busy) return DP_OK;
  op->half_s[0] += sample->halves[0];
  op->half_s[1] += sample->halves[1];
  op->sample.runs += sample->runs;
  return DP_OK;
}

static dp_status keep_size(exec_sizes *sizes, double size, double seconds, dp_error *error) {
  size_t i = 0;
  while (i < sizes->count && sizes->items[i].size != size) i++;
  if (i == sizes->count) {
    const exec_measured_size made = {.size = size};
    if (!dp_array_push(sizes, made)) return dp_fail_memory(error);
  }
  return dp_array_push(&sizes->items[i].seconds, seconds) ? DP_OK : dp_fail_memory(error);
}

dp_status exec_measure_keep_loss(exec_measure *m, double bytes, double seconds, dp_error *error) {
  return keep_size(&m->loss, bytes, seconds, error);
}

void exec_measure_begin_run(exec_measure *m, const plan_program *program) {
  m->program = program;
  m->pass_s = 0;
  m->owns.count = 0;
  m->meets_for_norm = m->meets_for_norm || (program->plan->global_norm && program->worker_count > 1);
  if (program->plan->ranks == 1 && program->worker_count > m->workers) m->workers = program->worker_count;
}

static double trained_parameters(const plan_program *program, const graph *g, uint32_t worker) {
  return (double)plan_trainable_parameters(program->plan, g, plan_worker_rank(program->plan, (int)worker));
}

static dp_status keep_instruction(exec_measure *m, const plan_timeline *t, uint32_t lane, uint32_t i, dp_error *error) {
  const plan_program *program = t->program;
  const plan_instruction *instruction = &program->instructions[i];
  const double seconds = t->end_s[i] - t->start_s[i];
  uint32_t by, other;
  const double released = plan_released_s(t, lane, i, &by);
  if (instruction->opcode == PLAN_RECV) {
    const double sent = plan_released_s(t, plan_instruction_lane(program, instruction->peer), instruction->peer, &other);
    const double bytes = (double)program->messages[instruction->class_id].bytes;
    if (!dp_array_push(&m->before_s, t->start_s[i] - fmax(released, sent))) return dp_fail_memory(error);
    return bytes > 0 ? keep_size(&m->copies, bytes, seconds, error) : DP_OK;
  }
  if (instruction->opcode == PLAN_ALL_REDUCE) {
    const plan_collective *collective = &program->collectives[instruction->class_id];
    const bool leads = program->group_members[collective->first_member] == program->lanes[lane].worker;
    if (!leads || collective->bytes == 0 || collective->member_count < 2) return DP_OK;
    return keep_size(&m->sums, (double)collective->bytes, seconds / (collective->member_count - 1), error);
  }
  if (program->worker_count == 1 && by != PLAN_NO_PEER)
    return dp_array_push(&m->gaps_s, t->start_s[i] - released) ? DP_OK : dp_fail_memory(error);
  if (instruction->opcode != PLAN_SEND && by != PLAN_NO_PEER && program->instructions[by].opcode == PLAN_RECV)
    return dp_array_push(&m->after_s, t->start_s[i] - released) ? DP_OK : dp_fail_memory(error);
  return DP_OK;
}

dp_status exec_measure_keep_step(exec_measure *m, const plan_timeline *t, double wall_s, double own_s,
                                 dp_error *error) {
  const plan_program *program = t->program;
  for (uint32_t l = 0; l < program->lane_count; l++)
    for (uint32_t i = program->lanes[l].first; i < program->lanes[l].first + program->lanes[l].count; i++)
      DP_TRY(keep_instruction(m, t, l, i, error));
  if (program->worker_count > 1) return DP_OK;
  return dp_array_push(&m->owns, own_s) && dp_array_push(&m->begin_s, wall_s - t->step_s) ? DP_OK
                                                                                          : dp_fail_memory(error);
}

dp_status exec_measure_keep_norm(exec_measure *m, const graph *g, double seconds, dp_error *error) {
  return keep_size(&m->norms, trained_parameters(m->program, g, 0), seconds, error);
}

dp_status exec_measure_keep_optimizer(exec_measure *m, const plan_timeline *t, const graph *g, dp_error *error) {
  const plan_program *program = t->program;
  const bool busy = program->worker_count > 1;
  if (program->plan->ranks > 1) return DP_OK;
  for (uint32_t i = 0; i < program->instruction_count; i++)
    if (program->instructions[i].opcode == PLAN_OPTIMIZER_STEP) {
      const uint32_t worker = program->lanes[plan_instruction_lane(program, i)].worker;
      DP_TRY(
          keep_size(&m->optimizer[busy], trained_parameters(program, g, worker), t->end_s[i] - t->start_s[i], error));
    }
  return DP_OK;
}

double exec_measure_typical(double *values, size_t count) { return dp_quantile(values, count, 0.25); }

/* A sorted copy is not needed: the order of a series tells nothing. */
static double typical_of(const exec_series *series) { return exec_measure_typical(series->items, series->count); }

static double typical_at(const exec_sizes *sizes, double size) {
  for (size_t i = 0; i < sizes->count; i++)
    if (sizes->items[i].size == size) return typical_of(&sizes->items[i].seconds);
  return 0;
}

/* A lone worker's step against what its ops, the loss and the optimizer take. */
dp_status exec_measure_end_run(exec_measure *m, const graph *g, dp_error *error) {
  const plan_program *program = m->program;
  if (program->worker_count > 1) return DP_OK;
  double loss_bytes = 0;
  for (size_t t = 0; t < g->tensors.count; t++)
    if (g->tensors.items[t].is_output) loss_bytes = (double)g->tensors.items[t].bytes;
  const double microbatches = program->plan->microbatches;
  const double known = microbatches * (m->pass_s + typical_at(&m->loss, loss_bytes)) +
                       typical_at(&m->optimizer[0], trained_parameters(program, g, 0));
  const double beside = typical_of(&m->begin_s) + typical_of(&m->gaps_s) * program->instruction_count;
  return dp_array_push(&m->excess, (typical_of(&m->owns) - beside) / known) ? DP_OK : dp_fail_memory(error);
}

/* ---- the profile ---- */

static int compare_points(const void *a, const void *b) {
  const plan_profile_point *x = a, *y = b;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Larger never takes less: what noise turned round is levelled. */
static dp_status add_points(const exec_sizes *sizes, plan_profile_points *points, dp_error *error) {
  for (size_t i = 0; i < sizes->count; i++) {
    const double seconds = fmax(1e-9, typical_of(&sizes->items[i].seconds));
    const plan_profile_point point = {sizes->items[i].size, seconds, seconds};
    if (!dp_array_push(points, point)) return dp_fail_memory(error);
  }
  if (points->count > 1) qsort(points->items, points->count, sizeof *points->items, compare_points);
  for (size_t i = 1; i < points->count; i++) {
    points->items[i].alone_s = fmax(points->items[i].alone_s, points->items[i - 1].alone_s);
    points->items[i].busy_s = points->items[i].alone_s;
  }
  return DP_OK;
}

/* Through what each size typically takes, less what the same size of another kind does. */
static dp_status fit_line(const exec_sizes *sizes, const exec_sizes *less, double *constant, double *slope,
                          dp_error *error) {
  double *points = malloc((2 * sizes->count + 1) * sizeof *points), *seconds = points + sizes->count;
  if (!points) return dp_fail_memory(error);
  for (size_t i = 0; i < sizes->count; i++) {
    points[i] = sizes->items[i].size;
    seconds[i] = fmax(0, typical_of(&sizes->items[i].seconds) - (less ? typical_at(less, points[i]) : 0));
  }
  dp_fit_line(points, seconds, sizes->count, constant, slope);
  free(points);
  return DP_OK;
}

static dp_status add_ops(const exec_measure *m, double factor, plan_profile *profile, dp_error *error) {
  double *differences = malloc((m->ops.count + 1) * sizeof *differences);
  if (!differences) return dp_fail_memory(error);
  size_t count = 0;
  bool done = true;
  for (size_t i = 0; done && i < m->ops.count; i++) {
    const exec_measured_op *measured = &m->ops.items[i];
    const exec_measure_sample *sample = &measured->sample;
    if (measured->places[0] == 0) continue;
    plan_profile_op op = {.op = dp_arena_strdup(&profile->arena, sample->op),
                          .direction = sample->direction,
                          .kind = sample->kind,
                          .work = sample->work,
                          .alone_s = fmax(1e-9, factor * measured->sum_s[0] / measured->places[0]),
                          .runs = sample->runs};
    const double busy_s = measured->places[1] ? factor * measured->sum_s[1] / measured->places[1] : 0;
    op.busy_s = fmax(op.alone_s, busy_s);
    done = op.op && dp_array_push(&profile->ops, op);
    if (measured->half_s[0] > 0) differences[count++] = fabs(measured->half_s[1] / measured->half_s[0] - 1);
  }
  profile->repeat_error = dp_median(differences, count);
  free(differences);
  return done ? DP_OK : dp_fail_memory(error);
}

static double busy_factor(const exec_measure *m) {
  double factor = 1;
  for (size_t i = 0; i < m->optimizer[1].count; i++) {
    const double size = m->optimizer[1].items[i].size;
    const double alone = typical_at(&m->optimizer[0], size) - (m->meets_for_norm ? typical_at(&m->norms, size) : 0);
    if (alone > 0) factor = fmax(factor, typical_of(&m->optimizer[1].items[i].seconds) / alone);
  }
  return factor;
}

/* Steps take longer than the sum of their ops, since ops are now and then slower than mostly. The program in which they
 * do least counts: the others met more of who else uses the machine. */
static double excess_of(const exec_measure *m) {
  const double most = 1.1;
  return fmin(fmax(dp_quantile(m->excess.items, m->excess.count, 0), 1), most);
}

static dp_status make_profile(const exec_measure *m, plan_profile *profile, dp_error *error) {
  profile->threads = m->threads;
  profile->workers = m->workers > 0 ? m->workers : 1;
  double constant_s;
  DP_TRY(fit_line(&m->optimizer[0], &m->norms, &profile->optimizer_s, &profile->optimizer_s_per_parameter, error));
  DP_TRY(fit_line(&m->norms, NULL, &constant_s, &profile->norm_s_per_parameter, error));
  profile->optimizer_busy_factor = busy_factor(m);
  DP_TRY(fit_line(&m->loss, NULL, &profile->loss_s, &profile->loss_s_per_byte, error));
  profile->instruction_s = fmax(0, typical_of(&m->gaps_s));
  profile->handover_after_s = fmax(0, typical_of(&m->after_s));
  profile->handover_s = fmax(0, typical_of(&m->before_s)) + profile->handover_after_s;
  profile->step_s = fmax(0, typical_of(&m->begin_s));
  DP_TRY(add_points(&m->copies, &profile->copies, error));
  DP_TRY(add_points(&m->sums, &profile->sums, error));
  DP_TRY(add_ops(m, excess_of(m), profile, error));
  DP_TRY(plan_profile_finish(profile, error));
  return plan_profile_hold_out(profile, HOLD_OUT, error);
}

dp_status exec_measure_profile(const exec_measure *m, plan_profile *profile, dp_error *error) {
  plan_profile made = {.device = NULL};
  if (m->excess.count == 0) return dp_fail(error, DP_BAD_INPUT, "nothing was measured on one worker alone");
  const dp_status status = make_profile(m, &made, error);
  if (status == DP_OK)
    *profile = made;
  else
    plan_profile_free(&made);
  return status;
}
