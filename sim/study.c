#include "sim/study.h"

#include <string.h>

enum { PROMISING = 16 };

typedef struct studier {
  const plan_scenario *scenario;
  const sim_efficiency *efficiency;
  const sim_tune_result *result;
  const sim_tune_options *options;
  sim_study *study;
  int64_t global_batch;
  uint64_t done, total;
  dp_error *error;
} studier;

static bool stopped(studier *s) {
  if (s->options->stop && *s->options->stop) s->study->stopped = true;
  return s->study->stopped;
}

static void tell(studier *s) {
  s->done++;
  if (s->options->progress) s->options->progress(s->options->progress_data, s->done, s->total, NULL);
}

/* Skip policies of a candidate are the result's; these outlive it. */
static dp_status keep_skips(studier *s, sim_candidate *candidate) {
  const char **skips = DP_ARENA_NEW(&s->study->arena, const char *, (size_t)candidate->skip_count);
  if (!skips) return dp_fail_memory(s->error);
  for (int i = 0; i < candidate->skip_count; i++)
    if (!(skips[i] = dp_arena_strdup(&s->study->arena, candidate->skips[i]))) return dp_fail_memory(s->error);
  candidate->skips = skips;
  return DP_OK;
}

static dp_status take(studier *s, const sim_tune_result *result, sim_study_point *point) {
  const int index = result->best >= 0 ? result->best : result->nearest;
  point->found = index >= 0;
  point->fits = result->best >= 0;
  if (!point->found) return DP_OK;
  point->trial = result->trials[index];
  point->trial.why = NULL;
  return keep_skips(s, &point->trial.candidate);
}

/* DP_OK with *there false where the search has no plan to try. */
static dp_status search(studier *s, const plan_scenario *changed, sim_study_point *point, bool *there) {
  const sim_tune_options quiet = {.threads = s->options->threads, .stop = s->options->stop};
  sim_tune_result result;
  dp_error trouble = DP_ERROR_INIT;
  *there = false;
  const dp_status status = sim_tune(changed, s->efficiency, &quiet, &result, &trouble);
  if (status == DP_BAD_INPUT) return DP_OK;
  if (status != DP_OK) return dp_fail(s->error, status, "%s", trouble.text);
  if (result.stopped && stopped(s)) {
    sim_tune_result_free(&result);
    return DP_OK;
  }
  const dp_status taken = take(s, &result, point);
  *there = true;
  sim_tune_result_free(&result);
  return taken;
}

/* Shares of the cluster: who uses a quarter of the devices pays a quarter. */
static dp_status study_devices(studier *s) {
  const int all = (int)s->scenario->cluster.devices.count;
  for (int n = 1;; n = 2 * n < all ? 2 * n : all) {
    if (stopped(s)) return DP_OK;
    sim_study_point point = {.devices = n, .global_batch = s->global_batch};
    bool there = true;
    if (n == all) {
      DP_TRY(take(s, s->result, &point));
    } else {
      plan_scenario changed = *s->scenario;
      changed.global_batch = s->global_batch;
      changed.cluster.devices.count = (size_t)n;
      changed.cluster.price_usd_per_h *= (double)n / all;
      changed.cluster.power_w *= (double)n / all;
      DP_TRY(search(s, &changed, &point, &there));
    }
    if (there) s->study->devices[s->study->device_count++] = point;
    tell(s);
    if (n == all) return DP_OK;
  }
}

/* ---- batches ---- */

/* The simulated plans of the search, fastest first, those that fit before the others. */
static int promising(const studier *s, int indices[PROMISING]) {
  int count = 0;
  for (int i = 0; i < s->result->trial_count; i++) {
    const sim_trial *trial = &s->result->trials[i];
    if (trial->state != SIM_TRIAL_SIMULATED || trial->set_aside) continue;
    int at = count < PROMISING ? count : PROMISING;
    while (at > 0) {
      const sim_trial *before = &s->result->trials[indices[at - 1]];
      if (before->fits != trial->fits ? before->fits : before->step_s <= trial->step_s) break;
      if (at < PROMISING) indices[at] = indices[at - 1];
      at--;
    }
    if (at == PROMISING) continue;
    indices[at] = i;
    if (count < PROMISING) count++;
  }
  return count;
}

/* DP_OK with *done false where there can be no such plan. */
static dp_status simulate(studier *s, const sim_candidate *candidate, int64_t global_batch, sim_trial *trial,
                          bool *done) {
  const plan_scenario changed = sim_tune_scenario(s->scenario, candidate, global_batch);
  sim_prediction prediction;
  dp_error trouble = DP_ERROR_INIT;
  const dp_status status = sim_predict(&changed, s->efficiency, &prediction, &trouble);
  *done = status == DP_OK;
  if (status == DP_BAD_INPUT) return DP_OK;
  if (status != DP_OK) return dp_fail(s->error, status, "%s", trouble.text);
  *trial = (sim_trial){.candidate = *candidate};
  sim_trial_take(trial, &prediction);
  sim_prediction_free(&prediction);
  return DP_OK;
}

/* A larger batch: the promising plans with more microbatches. */
static dp_status study_more(studier *s, int times, sim_study_point *point, bool *there) {
  int indices[PROMISING];
  const int count = promising(s, indices);
  *there = false;
  for (int i = 0; i < count; i++) {
    sim_candidate candidate = s->result->trials[indices[i]].candidate;
    sim_trial trial;
    bool done = false;
    if (stopped(s)) {
      *there = false;
      return DP_OK;
    }
    candidate.microbatches *= times;
    DP_TRY(simulate(s, &candidate, point->global_batch, &trial, &done));
    if (!done) continue;
    const bool better =
        !*there || (trial.fits != point->fits ? trial.fits
                                              : trial.throughput_samples_per_s > point->trial.throughput_samples_per_s);
    if (!better) continue;
    point->trial = trial;
    point->fits = trial.fits;
    point->found = *there = true;
  }
  return *there ? keep_skips(s, &point->trial.candidate) : DP_OK;
}

static dp_status study_batches(studier *s) {
  static const int times[][2] = {{1, 4}, {1, 2}, {1, 1}, {2, 1}, {4, 1}};
  for (int i = 0; i < 5; i++) {
    if (stopped(s)) return DP_OK;
    sim_study_point point = {.devices = (int)s->scenario->cluster.devices.count,
                             .global_batch = s->global_batch * times[i][0] / times[i][1]};
    bool there = s->global_batch % times[i][1] == 0 && point.global_batch <= INT32_MAX;
    if (there && times[i][0] > 1) {
      DP_TRY(study_more(s, times[i][0], &point, &there));
    } else if (there && times[i][1] > 1) {
      plan_scenario changed = *s->scenario;
      changed.global_batch = point.global_batch;
      DP_TRY(search(s, &changed, &point, &there));
    } else if (there) {
      DP_TRY(take(s, s->result, &point));
    }
    if (there) s->study->batches[s->study->batch_count++] = point;
    tell(s);
  }
  return DP_OK;
}

/* ---- K ---- */

/* The fastest plan that fits, exact, with stages between which skips can travel; -1: none. */
static int layout_for_k(const sim_tune_result *result) {
  int found = -1;
  for (int i = 0; i < result->trial_count; i++) {
    const sim_trial *trial = &result->trials[i];
    if (trial->state != SIM_TRIAL_SIMULATED || !trial->fits || trial->candidate.stages < 2) continue;
    if (sim_candidate_lossiness(&trial->candidate)) continue;
    if (found < 0 || trial->step_s < result->trials[found].step_s) found = i;
  }
  return found;
}

static int64_t next_k(const sim_tune_result *result, int64_t after) {
  int64_t least = 0;
  for (int i = 0; i < result->trial_count; i++) {
    const int64_t k = result->trials[i].candidate.k;
    if (k > after && (least == 0 || k < least)) least = k;
  }
  return least;
}

static dp_status study_k(studier *s, int64_t k) {
  sim_candidate candidate = s->study->k_layout;
  candidate.k = k;
  if (k) candidate.skip_policy = PLAN_SKIP_COMPRESS;
  sim_trial trial;
  bool done = false;
  DP_TRY(simulate(s, &candidate, s->global_batch, &trial, &done));
  if (!done) return DP_OK; /* a K that this layout cannot take */
  const sim_study_k row = {.k = k,
                           .skip_bytes = trial.skip_bytes,
                           .peak_bytes = trial.peak_bytes,
                           .step_s = trial.step_s,
                           .throughput_samples_per_s = trial.throughput_samples_per_s,
                           .fits = trial.fits};
  s->study->ks[s->study->k_count++] = row;
  return DP_OK;
}

static dp_status study_ks(studier *s) {
  const int layout = layout_for_k(s->result);
  int count = 0;
  for (int64_t k = next_k(s->result, 0); k; k = next_k(s->result, k)) count++;
  if (layout < 0 || count == 0) return DP_OK;
  s->study->ks = DP_ARENA_NEW(&s->study->arena, sim_study_k, (size_t)count + 1);
  if (!s->study->ks) return dp_fail_memory(s->error);
  s->study->k_layout = s->result->trials[layout].candidate;
  s->study->k_layout.skips = NULL; /* one policy for all of them */
  s->study->k_layout.skip_count = 0;
  DP_TRY(study_k(s, 0));
  for (int64_t k = next_k(s->result, 0); k && !stopped(s); k = next_k(s->result, k)) DP_TRY(study_k(s, k));
  return DP_OK;
}

static dp_status run(studier *s) {
  s->global_batch = sim_tune_global_batch(s->scenario, s->error);
  if (!s->global_batch) return DP_BAD_INPUT;
  enum { MAX_POINTS = 40 }; /* doublings of an int, and all */
  s->study->devices = DP_ARENA_NEW(&s->study->arena, sim_study_point, MAX_POINTS);
  s->study->batches = DP_ARENA_NEW(&s->study->arena, sim_study_point, MAX_POINTS);
  if (!s->study->devices || !s->study->batches) return dp_fail_memory(s->error);
  s->total = 1 + 5;
  for (size_t n = 1; n < s->scenario->cluster.devices.count; n *= 2) s->total++;
  DP_TRY(study_ks(s)); /* the quick one first: it should be there when the user stops the others */
  DP_TRY(study_devices(s));
  return study_batches(s);
}

dp_status sim_study_run(const plan_scenario *scenario, const sim_efficiency *efficiency, const sim_tune_result *result,
                        const sim_tune_options *options, sim_study *study, dp_error *error) {
  memset(study, 0, sizeof *study);
  studier s = {.scenario = scenario,
               .efficiency = efficiency,
               .result = result,
               .options = options,
               .study = study,
               .error = error};
  const dp_status status = run(&s);
  if (status != DP_OK) sim_study_free(study);
  return status;
}

void sim_study_free(sim_study *study) {
  dp_arena_free(&study->arena);
  memset(study, 0, sizeof *study);
}
