#include "sim/fallback.h"

#include <stdlib.h>
#include <string.h>

/* ---- beforehand ---- */

typedef struct choice {
  const sim_trial *trial;
  double expected_s;
} choice;

static int by_time(const void *left, const void *right) {
  const double a = ((const choice *)left)->expected_s, b = ((const choice *)right)->expected_s;
  return (a > b) - (a < b);
}

static bool can_be_taken(const sim_trial *trial, int processes) {
  const bool simulated = trial->state == SIM_TRIAL_SIMULATED;
  return sim_candidate_tensor(&trial->candidate) == 1 && sim_candidate_workers(&trial->candidate) % processes == 0 &&
         trial->candidate.skip_count == 0 && sim_candidate_lossiness(&trial->candidate) == 0 &&
         (simulated ? trial->fits : trial->state == SIM_TRIAL_PRUNED);
}

static bool same_shape(const sim_candidate *a, const sim_candidate *b) {
  return a->stages == b->stages && a->replicas == b->replicas;
}

static dp_status keep_best(choice *choices, size_t count, sim_fallbacks *made, dp_error *error) {
  if (count) qsort(choices, count, sizeof *choices, by_time);
  made->candidates = DP_ARENA_NEW(&made->arena, sim_candidate, count + 1);
  made->expected_s = DP_ARENA_NEW(&made->arena, double, count + 1);
  if (!made->candidates || !made->expected_s) return dp_fail_memory(error);
  for (size_t i = 0; i < count; i++) {
    const sim_candidate *candidate = &choices[i].trial->candidate;
    int alike = 0;
    for (int k = 0; k < made->count; k++) alike += same_shape(candidate, &made->candidates[k]);
    if (alike == SIM_FALLBACKS_EACH) continue;
    made->expected_s[made->count] = choices[i].expected_s;
    made->candidates[made->count++] = *candidate;
  }
  return DP_OK;
}

dp_status sim_fallbacks_prepare(const plan_scenario *scenario, const sim_efficiency *efficiency, int processes,
                                sim_fallbacks *fallbacks, dp_error *error) {
  const sim_tune_options how = {.best_only = true};
  sim_tune_result result;
  sim_fallbacks made = {.count = 0};
  made.global_batch = sim_tune_global_batch(scenario, error);
  if (!made.global_batch) return error ? error->status : DP_BAD_INPUT;
  DP_TRY(sim_tune(scenario, efficiency, &how, &result, error));
  choice *choices = calloc((size_t)result.trial_count + 1, sizeof *choices);
  size_t count = 0;
  dp_status status = choices ? DP_OK : dp_fail_memory(error);
  for (int i = 0; status == DP_OK && i < result.trial_count; i++) {
    const sim_trial *trial = &result.trials[i];
    if (can_be_taken(trial, processes))
      choices[count++] = (choice){trial, trial->state == SIM_TRIAL_SIMULATED ? trial->step_s : trial->bound_s};
  }
  if (status == DP_OK) status = keep_best(choices, count, &made, error);
  free(choices);
  sim_tune_result_free(&result);
  if (status == DP_OK)
    *fallbacks = made;
  else
    sim_fallbacks_free(&made);
  return status;
}

void sim_fallbacks_free(sim_fallbacks *fallbacks) {
  dp_arena_free(&fallbacks->arena);
  *fallbacks = (sim_fallbacks){.count = 0};
}

/* ---- when it is asked for ---- */

enum { PLACEMENTS = 3 };

/* The cluster's devices, or those of the scenario's own map, in order; placement 1 and 2: one end of the slowest way
 * last, so that a plan that leaves a device idle leaves that one. */
static dp_status place(const plan_scenario *scenario, const plan_slow_way *slowest, int placement, int workers,
                       sim_fallback *f, int64_t **map, dp_error *error) {
  const int all = scenario->device_map ? (int)scenario->device_map_count : (int)scenario->cluster.devices.count;
  const int64_t last = placement == 0 ? -1 : placement == 1 ? slowest->to : slowest->from;
  int64_t *made = DP_ARENA_NEW(&f->arena, int64_t, (size_t)all + 1);
  int count = 0;
  if (!made) return dp_fail_memory(error);
  for (int d = 0; d < all && count < workers; d++) {
    const int64_t device = scenario->device_map ? scenario->device_map[d] : d;
    if (device != last) made[count++] = device;
  }
  *map = count == workers ? made : NULL;
  return DP_OK;
}

/* Takes the prediction over where it is better. */
static dp_status try_candidate(const plan_scenario *slowed, const sim_efficiency *efficiency,
                               const sim_fallbacks *fallbacks, int index, int64_t *map, sim_fallback *f,
                               dp_error *error) {
  const sim_candidate *candidate = &fallbacks->candidates[index];
  plan_scenario changed = sim_tune_scenario(slowed, candidate, fallbacks->global_batch);
  dp_error reason = DP_ERROR_INIT;
  sim_prediction made;
  changed.device_map = map;
  changed.device_map_count = (size_t)sim_candidate_workers(candidate);
  const dp_status status = sim_predict(&changed, efficiency, &made, &reason);
  if (status == DP_NO_MEMORY) return dp_fail(error, status, "%s", reason.text);
  if (status != DP_OK) return DP_OK; /* such a plan cannot be on these devices */
  const double best_s = f->found ? f->prediction.metrics.step_s : f->kept_s * (1 - SIM_FALLBACK_MARGIN);
  if (!made.fits || made.metrics.step_s >= best_s) {
    sim_prediction_free(&made);
    return DP_OK;
  }
  sim_prediction_free(&made);
  if (f->found) sim_prediction_free(&f->prediction);
  f->found = false;
  f->scenario = changed; /* the prediction has addresses in it: made where it stays */
  f->candidate = *candidate;
  DP_TRY(sim_predict(&f->scenario, efficiency, &f->prediction, error));
  f->found = true;
  return DP_OK;
}

static dp_status search(const sim_fallbacks *fallbacks, const plan_scenario *scenario, const sim_efficiency *efficiency,
                        const plan_slow_way *slow, int slow_count, sim_fallback *f, dp_error *error) {
  const plan_slow_way *slowest = slow;
  plan_scenario slowed = *scenario;
  sim_prediction kept;
  slowed.cluster.slow = slow;
  slowed.cluster.slow_count = slow_count;
  for (int s = 1; s < slow_count; s++)
    if (slow[s].factor > slowest->factor) slowest = &slow[s];
  DP_TRY(sim_predict(&slowed, efficiency, &kept, error));
  f->kept_s = kept.metrics.step_s;
  sim_prediction_free(&kept);
  for (int i = 0; i < fallbacks->count; i++) {
    const double best_s = f->found ? f->prediction.metrics.step_s : f->kept_s;
    if (fallbacks->expected_s[i] >= best_s) break; /* they ascend */
    for (int p = 0; p < (slow_count ? PLACEMENTS : 1); p++) {
      int64_t *map = NULL;
      DP_TRY(place(scenario, slowest, p, sim_candidate_workers(&fallbacks->candidates[i]), f, &map, error));
      if (map) DP_TRY(try_candidate(&slowed, efficiency, fallbacks, i, map, f, error));
    }
  }
  return DP_OK;
}

dp_status sim_fallback_find(const sim_fallbacks *fallbacks, const plan_scenario *scenario,
                            const sim_efficiency *efficiency, const plan_slow_way *slow, int slow_count,
                            sim_fallback *fallback, dp_error *error) {
  *fallback = (sim_fallback){.found = false};
  const dp_status status = search(fallbacks, scenario, efficiency, slow, slow_count, fallback, error);
  if (status != DP_OK) sim_fallback_free(fallback);
  return status;
}

static dp_status take(const plan_scenario *scenario, const sim_efficiency *efficiency, const sim_candidate *candidate,
                      int64_t global_batch, const int64_t *devices, sim_fallback *f, dp_error *error) {
  const size_t workers = (size_t)sim_candidate_workers(candidate);
  int64_t *map = DP_ARENA_NEW(&f->arena, int64_t, workers);
  if (!map) return dp_fail_memory(error);
  memcpy(map, devices, workers * sizeof *map);
  f->scenario = sim_tune_scenario(scenario, candidate, global_batch);
  f->scenario.device_map = map;
  f->scenario.device_map_count = workers;
  f->candidate = *candidate;
  return sim_predict(&f->scenario, efficiency, &f->prediction, error);
}

dp_status sim_fallback_take(const plan_scenario *scenario, const sim_efficiency *efficiency, const plan_slow_way *slow,
                            int slow_count, const sim_candidate *candidate, int64_t global_batch,
                            const int64_t *devices, sim_fallback *fallback, dp_error *error) {
  plan_scenario slowed = *scenario;
  slowed.cluster.slow = slow;
  slowed.cluster.slow_count = slow_count;
  *fallback = (sim_fallback){.found = false};
  const dp_status status = take(&slowed, efficiency, candidate, global_batch, devices, fallback, error);
  fallback->found = status == DP_OK;
  if (status != DP_OK) sim_fallback_free(fallback);
  return status;
}

void sim_fallback_free(sim_fallback *fallback) {
  if (fallback->found) sim_prediction_free(&fallback->prediction);
  dp_arena_free(&fallback->arena);
  *fallback = (sim_fallback){.found = false};
}
