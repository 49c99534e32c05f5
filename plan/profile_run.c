#include "plan/profile_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/line.h"
#include "base/median.h"
#include "plan/profile_run_beside.h"
#include "plan/profile_run_links.h"

typedef DP_ARRAY(double) series;

/* Durations of one size. */
typedef struct sized {
  double bytes;
  series seconds;
} sized;
typedef DP_ARRAY(sized) sizes;

typedef struct fit {
  const plan_profile_run *run;
  const plan_program *program;
  plan_profile *profile;
  plan_profile_keys keys;
  plan_profile_beside beside;
  series gaps, before, after, errors, optimizer_s, parameters;
  series none, feed, loss; /* what of recorded passes is of no unit: of most, of those that have the inputs, the loss */
  double *forward_s;       /* [unit] as recorded; 0: not */
  double passes_s, recorded_s;
  sizes messages, sums;
  double norm_wait_s, norm_parameters; /* from the last one's gradients to the exchange of norms; of that one */
  dp_str *outliers;
  int told;
  dp_error *error;
} fit;

static double span_s(const fit *f, uint32_t i) { return f->run->timeline->end_s[i] - f->run->timeline->start_s[i]; }

/* What it would have taken alone. */
static double alone_s(const fit *f, uint32_t i) {
  return span_s(f, i) / plan_profile_beside_stretch(&f->beside, f->program, i);
}

static double middle(series *s) { return dp_median(s->items, s->count); }

static dp_status push(fit *f, series *s, double value) {
  return dp_array_push(s, value) ? DP_OK : dp_fail_memory(f->error);
}

static dp_status push_sized(fit *f, sizes *all, double bytes, double seconds) {
  size_t i = 0;
  while (i < all->count && all->items[i].bytes != bytes) i++;
  if (i == all->count) {
    const sized made = {.bytes = bytes};
    if (!dp_array_push(all, made)) return dp_fail_memory(f->error);
  }
  return push(f, &all->items[i].seconds, seconds);
}

/* ---- units ---- */

static bool is_pass(uint32_t opcode) { return opcode <= PLAN_BACKWARD_WEIGHT; }

static plan_profile_pass pass_of(uint32_t opcode) {
  return opcode == PLAN_FORWARD          ? PLAN_PROFILE_FORWARD
         : opcode == PLAN_BACKWARD       ? PLAN_PROFILE_BACKWARD
         : opcode == PLAN_BACKWARD_INPUT ? PLAN_PROFILE_BACKWARD_INPUT
                                         : PLAN_PROFILE_BACKWARD_WEIGHT;
}

/* The middle of what an instruction's class on its lane takes alone, without every fifth; those are compared with it. */
static dp_status middle_of_class(fit *f, const plan_lane *lane, uint32_t class_id, double *seconds) {
  series kept = {0}, aside = {0};
  dp_status status = DP_OK;
  uint32_t count = 0;
  for (uint32_t i = lane->first; status == DP_OK && i < lane->first + lane->count; i++)
    if (f->program->instructions[i].class_id == class_id)
      status = push(f, ++count % PLAN_PROFILE_ASIDE == 0 ? &aside : &kept, alone_s(f, i));
  *seconds = middle(&kept);
  for (size_t i = 0; status == DP_OK && i < aside.count && aside.items[i] > 0; i++)
    status = push(f, &f->errors, fabs(*seconds / aside.items[i] - 1));
  char text[128];
  for (uint32_t i = lane->first; f->outliers && i < lane->first + lane->count; i++) {
    if (f->program->instructions[i].class_id != class_id || alone_s(f, i) <= PLAN_PROFILE_OUTLIER * *seconds) continue;
    if (f->told++ < PLAN_PROFILE_OUTLIERS)
      dp_str_addf(f->outliers, "%s took %.3g ms, the middle of its class %.3g ms\n",
                  plan_instruction_show(f->program, i, text), 1e3 * span_s(f, i),
                  1e3 * *seconds * plan_profile_beside_stretch(&f->beside, f->program, i));
  }
  dp_array_free(&kept);
  dp_array_free(&aside);
  return status;
}

static void stretch(const fit *f, plan_profile_unit *unit) {
  const double *by = f->beside.by[unit->pass != PLAN_PROFILE_FORWARD];
  unit->beside_forward_s = unit->alone_s * (1 + by[0]);
  unit->beside_backward_s = unit->alone_s * (1 + by[1]);
}

/* Equal units of several chunks, or copies: their mean. */
static dp_status add_unit(fit *f, int unit, plan_profile_pass pass, double seconds, dp_str *scratch) {
  char key[17];
  plan_profile_unit_key(&f->keys, unit, scratch, key);
  if (scratch->failed) return dp_fail_memory(f->error);
  for (size_t i = 0; i < f->profile->units.count; i++) {
    plan_profile_unit *known = &f->profile->units.items[i];
    if (known->pass != pass || strcmp(known->unit, key) != 0) continue;
    known->alone_s = (known->alone_s * (double)known->runs + seconds) / (double)(known->runs + 1);
    stretch(f, known);
    known->runs++;
    return DP_OK;
  }
  plan_profile_unit made = {.unit = dp_arena_strdup(&f->profile->arena, key),
                            .name = dp_arena_strdup(&f->profile->arena, f->run->graph->units.items[unit].name),
                            .sms = f->run->sms,
                            .pass = pass,
                            .alone_s = seconds,
                            .runs = 1};
  stretch(f, &made);
  return made.unit && made.name && dp_array_push(&f->profile->units, made) ? DP_OK : dp_fail_memory(f->error);
}

static double again_of(const fit *f, uint32_t unit) { return f->run->again ? f->run->again[unit] : 1; }

/* A backward also runs forward again what is recomputed. */
static double share_of(const fit *f, const plan_work *work, uint32_t unit) {
  const uint8_t *recompute = f->program->plan->recompute;
  if (work->opcode == PLAN_FORWARD) return f->run->forward_s[unit];
  const bool again = recompute && recompute[unit] && work->opcode != PLAN_BACKWARD_WEIGHT;
  return f->run->backward_s[unit] + (again ? again_of(f, unit) * f->run->forward_s[unit] : 0);
}

static dp_status add_work(fit *f, const plan_work *work, double seconds, dp_str *scratch) {
  double sum = 0;
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) sum += share_of(f, work, u);
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) {
    const double own = work->opcode == PLAN_FORWARD ? f->run->forward_s[u] : f->run->backward_s[u];
    const double share = sum > 0 ? own / sum : 1.0 / work->unit_count;
    DP_TRY(add_unit(f, (int)u, pass_of(work->opcode), fmax(1e-9, share * seconds), scratch));
  }
  return DP_OK;
}

/* ---- units that were recorded one by one ---- */

static dp_status keep_none(fit *f, const plan_work *work, double seconds) {
  const bool forward = work->opcode == PLAN_FORWARD;
  if (forward && (int)work->chunk == f->program->plan->chunk_count - 1) return push(f, &f->loss, seconds);
  return push(f, forward && work->chunk == 0 ? &f->feed : &f->none, seconds);
}

static dp_status add_recorded_work(fit *f, uint32_t w, double seconds, dp_str *scratch) {
  const plan_recorded_units *recorded = f->run->recorded;
  const plan_work *work = &f->program->works[w];
  const double *unit_s = &recorded->unit_s[w * recorded->unit_count];
  const uint8_t *recompute = f->program->plan->recompute;
  double sum_s = recorded->none_s[w];
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) sum_s += unit_s[u];
  for (uint32_t u = work->first_unit; u < work->first_unit + work->unit_count; u++) {
    const double all_s = unit_s[u] * seconds / sum_s, least = 0.1; /* of a backward, beside what it runs again */
    const bool again =
        recompute && recompute[u] && (work->opcode == PLAN_BACKWARD || work->opcode == PLAN_BACKWARD_INPUT);
    const double own_s = again ? fmax(least * all_s, all_s - again_of(f, u) * f->forward_s[u]) : all_s;
    if (work->opcode == PLAN_FORWARD) f->forward_s[u] = all_s;
    DP_TRY(add_unit(f, (int)u, pass_of(work->opcode), fmax(1e-9, own_s), scratch));
  }
  f->recorded_s += seconds;
  return keep_none(f, work, recorded->none_s[w] * seconds / sum_s);
}

static dp_status add_pass(fit *f, uint32_t w, dp_str *scratch) {
  const plan_work *work = &f->program->works[w];
  const plan_lane *lane = &f->program->lanes[f->program->worker_lane[work->worker]];
  double seconds;
  DP_TRY(middle_of_class(f, lane, w, &seconds));
  f->passes_s += seconds;
  return f->run->recorded && f->run->recorded->known[w] ? add_recorded_work(f, w, seconds, scratch)
                                                        : add_work(f, work, seconds, scratch);
}

/* Forwards first, which backwards may run again. */
static dp_status add_units(fit *f) {
  dp_str scratch = {0};
  dp_status status = DP_OK;
  f->forward_s = calloc(f->run->graph->units.count + 1, sizeof *f->forward_s);
  if (!f->forward_s) return dp_fail_memory(f->error);
  for (int turn = 0; turn < 2; turn++)
    for (uint32_t w = 0; status == DP_OK && w < f->program->work_count; w++)
      if (is_pass(f->program->works[w].opcode) && (f->program->works[w].opcode == PLAN_FORWARD) == (turn == 0))
        status = add_pass(f, w, &scratch);
  dp_str_free(&scratch);
  return status;
}

/* Of an instruction, and how much more of a forward that has the inputs, or the loss. */
static void take_none(fit *f, plan_profile_part *part) {
  const double each_s = middle(&f->none);
  part->instruction_s += each_s;
  part->optimizer_s = fmax(0, part->optimizer_s - each_s);
  part->feed_s = f->feed.count ? fmax(0, middle(&f->feed) - each_s) : 0;
  part->loss_s = f->loss.count ? fmax(0, middle(&f->loss) - each_s) : 0;
}

/* ---- all else ---- */

/* A message that is one of `links`. */
static bool is_apart(const fit *f, uint32_t recv) {
  const plan_message *message = &f->program->messages[f->program->instructions[recv].class_id];
  return plan_profile_is_apart(f->program, f->run->cluster, message);
}

static dp_status keep_message(fit *f, uint32_t lane, uint32_t i) {
  const plan_instruction *recv = &f->program->instructions[i];
  const double bytes = (double)f->program->messages[recv->class_id].bytes;
  uint32_t by;
  if (is_apart(f, i)) return DP_OK;
  const double ready = plan_released_s(f->run->timeline, lane, i, &by);
  const double sent = plan_released_s(f->run->timeline, plan_instruction_lane(f->program, recv->peer), recv->peer, &by);
  DP_TRY(push(f, &f->before, f->run->timeline->start_s[i] - fmax(ready, sent)));
  return bytes > 0 ? push_sized(f, &f->messages, bytes, span_s(f, i)) : DP_OK;
}

static bool is_on_processors(const fit *f) {
  return f->run->cluster && plan_device_is_processor(f->run->cluster->devices.items[0].model);
}

/* Processors take the norm of their gradients before its exchange starts. */
static void keep_norm(fit *f, uint32_t lane, uint32_t i) {
  uint32_t by;
  const double ready_s = plan_released_s(f->run->timeline, lane, i, &by);
  const double wait_s = f->run->timeline->start_s[i] - ready_s;
  const int rank = plan_worker_rank(f->program->plan, (int)f->program->lanes[lane].worker);
  if (f->norm_parameters > 0 && wait_s >= f->norm_wait_s) return;
  f->norm_wait_s = wait_s;
  f->norm_parameters = (double)plan_trainable_parameters(f->program->plan, f->run->graph, rank);
}

static dp_status keep_sum(fit *f, uint32_t lane, uint32_t i) {
  const plan_collective *c = &f->program->collectives[f->program->instructions[i].class_id];
  const bool leads = f->program->group_members[c->first_member] == f->program->lanes[lane].worker;
  if (c->norm && !is_on_processors(f)) return DP_OK;
  if (c->norm) keep_norm(f, lane, i);
  if (!leads || c->bytes == 0 || c->member_count < 2) return DP_OK;
  return push_sized(f, &f->sums, (double)c->bytes, span_s(f, i) / (c->member_count - 1));
}

static dp_status keep_compute(fit *f, uint32_t lane, uint32_t i) {
  const plan_plan *plan = f->program->plan;
  const uint32_t worker = f->program->lanes[lane].worker;
  uint32_t by;
  const double released = plan_released_s(f->run->timeline, lane, i, &by);
  if (f->program->instructions[i].opcode == PLAN_OPTIMIZER_STEP) {
    const int64_t parameters = plan_trainable_parameters(plan, f->run->graph, plan_worker_rank(plan, (int)worker));
    DP_TRY(push(f, &f->parameters, (double)parameters));
    DP_TRY(push(f, &f->optimizer_s, span_s(f, i)));
  }
  if (by == PLAN_NO_PEER) return DP_OK;
  const double gap_s = f->run->timeline->start_s[i] - released;
  if (f->program->instructions[by].opcode == PLAN_RECV) return is_apart(f, by) ? DP_OK : push(f, &f->after, gap_s);
  return by + 1 == i && by >= f->program->lanes[lane].first ? push(f, &f->gaps, gap_s) : DP_OK;
}

static dp_status keep_all(fit *f) {
  for (uint32_t l = 0; l < f->program->lane_count; l++) {
    const plan_lane *lane = &f->program->lanes[l];
    for (uint32_t i = lane->first; i < lane->first + lane->count; i++) {
      if (lane->kind == PLAN_LANE_COMPUTE) DP_TRY(keep_compute(f, l, i));
      if (lane->kind == PLAN_LANE_RECV) DP_TRY(keep_message(f, l, i));
      if (lane->kind == PLAN_LANE_COLLECTIVE) DP_TRY(keep_sum(f, l, i));
    }
  }
  return DP_OK;
}

static int compare_sized(const void *a, const void *b) {
  const sized *x = a, *y = b;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Larger never takes less: what noise turned round is levelled. */
static dp_status add_points(fit *f, sizes *all, plan_profile_points *points) {
  double least_s = 1e-9;
  if (all->count > 1) qsort(all->items, all->count, sizeof *all->items, compare_sized);
  for (size_t i = 0; i < all->count; i++) {
    least_s = fmax(least_s, middle(&all->items[i].seconds));
    const plan_profile_point point = {all->items[i].bytes, least_s, least_s};
    if (!dp_array_push(points, point)) return dp_fail_memory(f->error);
  }
  return DP_OK;
}

static dp_status add_part(fit *f) {
  const plan_timeline *t = f->run->timeline;
  plan_profile_part part = {.sms = f->run->sms,
                            .workers = f->run->sharers,
                            .optimizer_busy_factor = 1,
                            .instruction_s = fmax(0, middle(&f->gaps)),
                            .runtime_bytes = f->run->runtime_bytes};
  double first_s = t->step_s;
  for (uint32_t i = 0; i < f->program->instruction_count; i++) first_s = fmin(first_s, t->start_s[i]);
  part.step_s = fmax(0, f->run->step_s - t->step_s) + fmax(0, first_s);
  dp_fit_line(f->parameters.items, f->optimizer_s.items, f->optimizer_s.count, &part.optimizer_s,
              &part.optimizer_s_per_parameter);
  take_none(f, &part);
  if (f->norm_parameters > 0)
    part.norm_s_per_parameter = fmax(0, f->norm_wait_s - fmax(0, middle(&f->before))) / f->norm_parameters;
  return dp_array_push(&f->profile->parts, part) ? DP_OK : dp_fail_memory(f->error);
}

static dp_status fit_all(fit *f) {
  plan_profile *profile = f->profile;
  DP_TRY(plan_profile_keys_init(f->run->graph, &f->keys, f->error));
  DP_TRY(plan_profile_beside_of_run(f->run, &f->beside, f->error));
  DP_TRY(add_units(f));
  DP_TRY(keep_all(f));
  DP_TRY(add_part(f));
  DP_TRY(add_points(f, &f->messages, f->run->staged ? &profile->staged : &profile->copies));
  DP_TRY(add_points(f, &f->sums, &profile->sums));
  if (f->run->cluster) DP_TRY(plan_profile_links_of_run(f->run->timeline, f->run->cluster, profile, f->error));
  profile->handover_after_s = fmax(0, middle(&f->after));
  profile->handover_s = fmax(0, middle(&f->before)) + profile->handover_after_s;
  profile->optimizer_busy_factor = 1;
  profile->held_out = (int64_t)f->errors.count;
  profile->held_out_error = middle(&f->errors);
  return plan_profile_finish_units(profile, f->error);
}

static void free_sizes(sizes *all) {
  for (size_t i = 0; i < all->count; i++) dp_array_free(&all->items[i].seconds);
  dp_array_free(all);
}

dp_status plan_profile_of_run(const plan_profile_run *run, plan_profile *profile, dp_str *outliers,
                              double *recorded_share, dp_error *error) {
  fit f = {.run = run, .program = run->timeline->program, .profile = profile, .outliers = outliers, .error = error};
  dp_status status = fit_all(&f);
  if (status == DP_OK && outliers && outliers->failed) status = dp_fail_memory(error);
  if (status == DP_OK && recorded_share) *recorded_share = f.passes_s > 0 ? f.recorded_s / f.passes_s : 0;
  plan_profile_keys_free(&f.keys);
  plan_profile_beside_free(&f.beside);
  free(f.forward_s);
  series *const lists[] = {&f.gaps,       &f.before, &f.after, &f.errors, &f.optimizer_s,
                           &f.parameters, &f.none,   &f.feed,  &f.loss};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) dp_array_free(lists[i]);
  free_sizes(&f.messages);
  free_sizes(&f.sums);
  return status;
}
