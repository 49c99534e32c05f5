#define _POSIX_C_SOURCE 200809L
#include "sim/baseline.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

const char *const sim_baseline_names[] = {
    "replicas", "equal-parameters", "equal-trainable", "equal-units", "straight", "folded", NULL};
const char *const sim_baseline_titles[] = {"replicas of the whole model",
                                           "1F1B, equal parameters",
                                           "1F1B, equal trainable parameters",
                                           "1F1B, equal numbers of units",
                                           "1F1B, split as here",
                                           "folded, split as here",
                                           NULL};

typedef struct planner {
  plan_schedule schedule;
  plan_skip_policy skip_policy;
  bool one_stage, own_split;
  bool may_choose; /* recomputes just what memory needs, as the search does */
} planner;

static const planner planners[SIM_BASELINE_COUNT] = {
    [SIM_BASELINE_REPLICAS] = {PLAN_1F1B, PLAN_SKIP_DIRECT, true, false, false},
    [SIM_BASELINE_EQUAL_PARAMETERS] = {PLAN_1F1B, PLAN_SKIP_RELAY, false, true, false},
    [SIM_BASELINE_EQUAL_TRAINABLE] = {PLAN_1F1B, PLAN_SKIP_RELAY, false, true, false},
    [SIM_BASELINE_EQUAL_UNITS] = {PLAN_1F1B, PLAN_SKIP_DIRECT, false, true, false},
    [SIM_BASELINE_STRAIGHT] = {PLAN_1F1B, PLAN_SKIP_DIRECT, false, false, true},
    [SIM_BASELINE_FOLDED] = {PLAN_FOLDED, PLAN_SKIP_DIRECT, false, false, true},
};

dp_status sim_baseline_split(sim_baseline_kind kind, const graph *model, int stages, int *cuts, dp_error *error) {
  const int n = (int)model->units.count;
  if (!planners[kind].own_split)
    return dp_fail(error, DP_BAD_INPUT, "the baseline \"%s\" has no split of its own", sim_baseline_names[kind]);
  if (stages < 1 || stages > n)
    return dp_fail(error, DP_BAD_INPUT, "%d stages of %d units, allowed: 1 to %d stages", stages, n, n);
  if (kind == SIM_BASELINE_EQUAL_UNITS) {
    for (int s = 1; s < stages; s++) cuts[s - 1] = s * (n / stages) + (s < n % stages ? s : n % stages);
    return DP_OK;
  }
  double *weight = calloc((size_t)n, sizeof *weight);
  if (!weight) return dp_fail_memory(error);
  for (int u = 0; u < n; u++) {
    const graph_unit *unit = &model->units.items[u];
    weight[u] = (double)(kind == SIM_BASELINE_EQUAL_TRAINABLE ? unit->trainable_parameters
                                                              : unit->parameters + unit->adapter_parameters);
  }
  double sum = 0;
  for (int u = 0; u < n; u++) sum += weight[u];
  for (int u = 0; u < n && sum == 0; u++) weight[u] = 1; /* a study without weights: units count */
  const dp_status status = plan_split_balanced(weight, n, stages, NULL, cuts, error);
  free(weight);
  return status;
}

/* ---- the grid ---- */

typedef struct point {
  int stages, replicas, size, microbatches;
  plan_recompute recompute;
} point;

typedef struct choice { /* a point as one planner would have it */
  const point *point;
  const sim_prepared *prepared;
  int *cuts; /* of its own split */
  double bound_s;
} choice;

typedef struct comparison {
  const plan_scenario *scenario;
  const sim_tune_result *tuned;
  const sim_tune_options *options;
  int64_t global_batch;
  point *points;
  int point_count;
  sim_prepared *prepared; /* one a microbatch size */
  int prepared_count;
  sim_baselines *out;
  atomic_int next; /* row to be taken by a thread */
  dp_status status[SIM_BASELINE_COUNT];
  dp_error errors[SIM_BASELINE_COUNT];
  dp_arena arena;
} comparison;

static bool same_point(const point *a, const point *b) {
  return a->stages == b->stages && a->replicas == b->replicas && a->size == b->size;
}

static dp_status make_grid(comparison *c, dp_error *error) {
  const bool may_recompute = c->scenario->training && !c->scenario->synthetic;
  c->points = DP_ARENA_NEW(&c->arena, point, PLAN_RECOMPUTE_CHOICES * (size_t)c->tuned->trial_count);
  if (!c->points) return dp_fail_memory(error);
  for (int t = 0; t < c->tuned->trial_count; t++) {
    const sim_candidate *from = &c->tuned->trials[t].candidate;
    point made = {.stages = from->stages, .replicas = from->replicas, .size = from->microbatch_size};
    /* none of these planners has tensor groups: their members become replicas where the batch allows it */
    const int tensor = sim_candidate_tensor(from);
    if (c->global_batch % ((int64_t)made.replicas * tensor * made.size) == 0) made.replicas *= tensor;
    made.microbatches = (int)(c->global_batch / made.replicas / made.size);
    int i = 0;
    while (i < c->point_count && !same_point(&c->points[i], &made)) i++;
    if (i < c->point_count) continue;
    for (int again = 0; again < (may_recompute ? PLAN_RECOMPUTE_CHOICES : 1); again++) {
      made.recompute = (plan_recompute)again;
      c->points[c->point_count++] = made;
    }
  }
  return DP_OK;
}

static dp_status prepare(comparison *c, const sim_efficiency *efficiency, dp_error *error) {
  c->prepared = DP_ARENA_NEW(&c->arena, sim_prepared, (size_t)c->point_count);
  if (!c->prepared) return dp_fail_memory(error);
  for (int i = 0; i < c->point_count; i++) {
    int k = 0;
    while (k < c->prepared_count && c->prepared[k].microbatch_size != c->points[i].size) k++;
    if (k < c->prepared_count) continue;
    DP_TRY(sim_prepare(c->scenario, efficiency, c->points[i].size, &c->prepared[k], error));
    c->prepared_count++;
  }
  return DP_OK;
}

/* ---- bounds ---- */

/* One microbatch on the units [first, end), each on the device that is fastest for it. */
typedef struct pass_times {
  double forward_s, backward_s;
} pass_times;

static pass_times least_s(const comparison *c, const choice *chosen, int first, int end) {
  pass_times sum = {0, 0};
  for (int u = first; u < end; u++) {
    double least[3] = {INFINITY, INFINITY, INFINITY};
    for (int k = 0; k < chosen->prepared->kind_count; k++)
      for (int d = SIM_FORWARD; d <= SIM_BACKWARD_WEIGHT; d++)
        least[d] = fmin(least[d], chosen->prepared->kinds[k].units[u].device_s[d]);
    sum.forward_s += least[SIM_FORWARD];
    if (c->scenario->training) sum.backward_s += least[SIM_BACKWARD_INPUT] + least[SIM_BACKWARD_WEIGHT];
    if (chosen->point->recompute == PLAN_RECOMPUTE_ALL) sum.backward_s += least[SIM_FORWARD];
  }
  return sum;
}

/* As in sim/tune.h; with the cuts known, for each stage instead of their mean. */
static double bound_of(const comparison *c, const choice *chosen, plan_schedule schedule) {
  const int p = chosen->point->stages, n = (int)chosen->prepared->model.units.count;
  const double m = (double)chosen->point->microbatches * (c->scenario->training ? 1 : (double)c->scenario->steps);
  const bool flushed = c->scenario->training && schedule == PLAN_1F1B;
  const pass_times all = least_s(c, chosen, 0, n);
  const double all_s = all.forward_s + all.backward_s;
  double bound_s =
      flushed ? all_s + ((m - 1) * all.backward_s + fmax(0, m - p) * all.forward_s) / p : fmax(all_s, m * all_s / p);
  for (int s = 0; chosen->cuts && s < p; s++) {
    const pass_times stage = least_s(c, chosen, s ? chosen->cuts[s - 1] : 0, s + 1 < p ? chosen->cuts[s] : n);
    const double left_s = (m - 1) * stage.backward_s + fmax(0, m - (p - s)) * stage.forward_s;
    bound_s = fmax(bound_s, flushed ? all_s + left_s : m * (stage.forward_s + stage.backward_s));
  }
  return bound_s * (1 - 1e-9);
}

static int compare_choices(const void *a, const void *b) {
  const choice *x = a, *y = b;
  if (x->bound_s != y->bound_s) return x->bound_s < y->bound_s ? -1 : 1;
  return (x->point > y->point) - (x->point < y->point);
}

/* The planner's choices in ascending order of bound. */
static dp_status list_choices(const comparison *c, sim_baseline_kind kind, dp_arena *arena, choice **choices,
                              int *count, dp_error *error) {
  const planner *how = &planners[kind];
  *choices = DP_ARENA_NEW(arena, choice, (size_t)c->point_count);
  *count = 0;
  if (!*choices) return dp_fail_memory(error);
  for (int i = 0; i < c->point_count; i++) {
    choice made = {.point = &c->points[i], .prepared = c->prepared};
    while (made.prepared->microbatch_size != made.point->size) made.prepared++;
    const int chunks = made.point->stages * (how->schedule == PLAN_FOLDED ? 2 : 1);
    if (how->one_stage != (made.point->stages == 1) || chunks > (int)made.prepared->model.units.count) continue;
    if (made.point->recompute == PLAN_RECOMPUTE_AUTO && !how->may_choose) continue;
    if (how->own_split) {
      made.cuts = DP_ARENA_NEW(arena, int, (size_t)made.point->stages);
      if (!made.cuts) return dp_fail_memory(error);
      DP_TRY(sim_baseline_split(kind, &made.prepared->model, made.point->stages, made.cuts, error));
    }
    made.bound_s = bound_of(c, &made, how->schedule);
    (*choices)[(*count)++] = made;
  }
  if (*count) qsort(*choices, (size_t)*count, sizeof **choices, compare_choices);
  return DP_OK;
}

/* ---- trials ---- */

static bool better(const sim_trial *a, const sim_trial *b) {
  if (b->state != SIM_TRIAL_SIMULATED) return true;
  if (a->fits != b->fits) return a->fits;
  if (!a->fits)
    return (double)a->tightest.peak_bytes / (double)a->tightest.limit_bytes <
           (double)b->tightest.peak_bytes / (double)b->tightest.limit_bytes;
  if (fabs(a->step_s / b->step_s - 1) > 1e-9) return a->step_s < b->step_s;
  return a->peak_bytes < b->peak_bytes;
}

static dp_status simulate(const comparison *c, const choice *chosen, sim_trial *trial, dp_arena *arena,
                          dp_error *error) {
  const int cut_count = chosen->cuts ? chosen->point->stages - 1 : 0;
  plan_scenario scenario = sim_tune_scenario(c->scenario, &trial->candidate, c->global_batch);
  if (cut_count) {
    scenario.split = DP_ARENA_NEW(arena, int64_t, (size_t)cut_count);
    if (!scenario.split) return dp_fail_memory(error);
    scenario.split_count = (size_t)cut_count;
    for (int i = 0; i < cut_count; i++) scenario.split[i] = chosen->cuts[i];
  }
  sim_prediction prediction;
  const dp_status status = sim_predict_prepared(&scenario, chosen->prepared, &prediction, error);
  if (status == DP_OK) {
    sim_trial_take(trial, &prediction);
    sim_prediction_free(&prediction);
  } else if (status == DP_BAD_INPUT) {
    trial->state = SIM_TRIAL_REFUSED;
    trial->why = dp_arena_strdup(arena, error->text);
    return trial->why ? DP_OK : dp_fail_memory(error);
  }
  return status;
}

/* Against the plan found. */
static dp_status say_why(const comparison *c, sim_baseline *row, dp_arena *arena, dp_error *error) {
  const sim_trial *best = c->tuned->best < 0 ? NULL : &c->tuned->trials[c->tuned->best];
  sim_trial *trial = &row->trial;
  const bool compared = best && trial->state == SIM_TRIAL_SIMULATED && trial->fits;
  row->gain = compared ? best->throughput_samples_per_s / trial->throughput_samples_per_s - 1 : NAN;
  if (compared && row->gain < -1e-9)
    trial->why = dp_arena_printf(arena, "faster by %.1f %% than the best plan that [search] allows",
                                 100 * (1 / (1 + row->gain) - 1));
  else if (compared && row->gain < 1e-9 && trial->peak_bytes == best->peak_bytes)
    trial->why = "equal to the best plan";
  else if (trial->state == SIM_TRIAL_SIMULATED && trial->fits && !best)
    trial->why = "";
  else
    trial->why = sim_trial_why_lost(trial, best, arena);
  return trial->why ? DP_OK : dp_fail_memory(error);
}

static dp_status find_row(const comparison *c, sim_baseline *row, dp_arena *arena, dp_error *error) {
  const planner *how = &planners[row->kind];
  choice *choices;
  DP_TRY(list_choices(c, row->kind, arena, &choices, &row->grid, error));
  const int splits = how->schedule == PLAN_FOLDED ? 2 : 1; /* the fewest bytes, and even chunks */
  for (int j = 0; j < row->grid * splits; j++) {
    const int i = j / splits;
    const point *at = choices[i].point;
    if (row->trial.fits && choices[i].bound_s >= row->trial.step_s) break;
    if (c->options->stop && *c->options->stop) break;
    sim_trial trial = {.candidate = {.stages = at->stages,
                                     .replicas = at->replicas,
                                     .chunks = how->schedule == PLAN_FOLDED ? 2 : 1,
                                     .microbatches = at->microbatches,
                                     .microbatch_size = at->size,
                                     .schedule = how->schedule,
                                     .even_split = j % splits == 1,
                                     .skip_policy = how->skip_policy,
                                     .recompute = at->recompute},
                       .bound_s = choices[i].bound_s};
    DP_TRY(simulate(c, &choices[i], &trial, arena, error));
    row->simulated += trial.state == SIM_TRIAL_SIMULATED;
    const bool kept =
        trial.state == SIM_TRIAL_SIMULATED ? better(&trial, &row->trial) : row->trial.state == SIM_TRIAL_WAITING;
    if (!kept) continue;
    row->trial = trial;
    row->cuts = choices[i].cuts;
    row->cut_count = choices[i].cuts ? at->stages - 1 : 0;
  }
  return say_why(c, row, arena, error);
}

static void *find_rows(void *data) {
  comparison *c = data;
  for (;;) {
    const int r = atomic_fetch_add(&c->next, 1);
    if (r >= c->out->count) return NULL;
    c->status[r] = find_row(c, &c->out->rows[r], &c->out->arenas[r], &c->errors[r]);
  }
}

/* Whether the planner has anything to choose from. */
static bool applies(const comparison *c, sim_baseline_kind kind) {
  const graph *model = &c->prepared[0].model;
  if (kind == SIM_BASELINE_EQUAL_TRAINABLE &&
      (!c->scenario->training || model->trainable_parameters == model->parameters || !model->trainable_parameters))
    return false;
  for (int i = 0; i < c->point_count; i++)
    if (planners[kind].one_stage == (c->points[i].stages == 1) &&
        (size_t)c->points[i].stages * (planners[kind].schedule == PLAN_FOLDED ? 2 : 1) <= model->units.count)
      return true;
  return false;
}

static dp_status find_all(comparison *c, dp_error *error) {
  for (int k = 0; k < SIM_BASELINE_COUNT; k++)
    if (applies(c, (sim_baseline_kind)k)) c->out->rows[c->out->count++].kind = (sim_baseline_kind)k;
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const int threads = c->options->threads > 0 ? c->options->threads : processors > 0 ? (int)processors : 1;
  pthread_t others[SIM_BASELINE_COUNT];
  int started = 0;
  while (started + 1 < threads && started + 1 < c->out->count &&
         pthread_create(&others[started], NULL, find_rows, c) == 0)
    started++;
  (void)find_rows(c);
  for (int t = 0; t < started; t++) (void)pthread_join(others[t], NULL);
  for (int r = 0; r < c->out->count; r++)
    if (c->status[r] != DP_OK) return dp_fail(error, c->status[r], "%s", c->errors[r].text);
  return DP_OK;
}

dp_status sim_baselines_find(const plan_scenario *scenario, const sim_efficiency *efficiency,
                             const sim_tune_result *tuned, const sim_tune_options *options, sim_baselines *baselines,
                             dp_error *error) {
  memset(baselines, 0, sizeof *baselines);
  comparison c;
  memset(&c, 0, sizeof c);
  c.scenario = scenario;
  c.tuned = tuned;
  c.options = options;
  c.out = baselines;
  c.global_batch = sim_tune_global_batch(scenario, error);
  if (!c.global_batch) return DP_BAD_INPUT;
  dp_status status = make_grid(&c, error);
  if (status == DP_OK) status = prepare(&c, efficiency, error);
  if (status == DP_OK) status = find_all(&c, error);
  for (int k = 0; k < c.prepared_count; k++) sim_prepared_free(&c.prepared[k]);
  dp_arena_free(&c.arena);
  if (status != DP_OK) sim_baselines_free(baselines);
  return status;
}

void sim_baselines_free(sim_baselines *baselines) {
  for (int r = 0; r < SIM_BASELINE_COUNT; r++) dp_arena_free(&baselines->arenas[r]);
  memset(baselines, 0, sizeof *baselines);
}
