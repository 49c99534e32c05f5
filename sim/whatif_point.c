/* A point of a sweep: the job read with the key set, and the best plan of it. */
#include <string.h>

#include "sim/whatif_search.h"

const char *sim_trial_why_not(const sim_trial *nearest, dp_arena *arena) {
  char plan[256], shortage[128];
  return dp_arena_printf(arena, "the nearest plan, %s: %s", sim_candidate_show(&nearest->candidate, plan),
                         sim_shortage_show(&nearest->tightest, shortage));
}

/* Skips of its own are the result's: the copy outlives it. */
static dp_status keep_candidate(const sim_candidate *candidate, dp_arena *arena, sim_candidate *kept, dp_error *error) {
  const char **skips = DP_ARENA_NEW(arena, const char *, (size_t)candidate->skip_count);
  if (!skips) return dp_fail_memory(error);
  for (int i = 0; i < candidate->skip_count; i++)
    if (!(skips[i] = dp_arena_strdup(arena, candidate->skips[i]))) return dp_fail_memory(error);
  *kept = *candidate;
  kept->skips = skips;
  return DP_OK;
}

static dp_status take(const sim_trial *trial, bool fits, dp_arena *arena, sim_sweep_point *point, dp_error *error) {
  point->found = true;
  point->fits = fits;
  point->trial = *trial;
  point->trial.why = NULL;
  DP_TRY(keep_candidate(&trial->candidate, arena, &point->trial.candidate, error));
  if (!fits && !(point->why = sim_trial_why_not(&point->trial, arena))) return dp_fail_memory(error);
  return DP_OK;
}

/* How long the hint's plan takes here; 0: it does not fit or cannot be. Without skips of their own: the search finds
 * its plan without them first, and refines that. */
static dp_status known_step(const plan_scenario *scenario, const sim_point_job *job, double *step_s, dp_error *error) {
  *step_s = 0;
  if (!job->hint) return DP_OK;
  sim_candidate plain = *job->hint;
  plain.skips = NULL;
  plain.skip_count = 0;
  const int64_t batch = sim_tune_global_batch(scenario, error);
  if (!batch) return DP_BAD_INPUT;
  plan_scenario changed = sim_tune_scenario(scenario, &plain, batch);
  changed.microbatches = 0; /* as the batch asks */
  sim_prediction prediction;
  dp_error trouble = DP_ERROR_INIT;
  const dp_status status = sim_predict(&changed, job->request->efficiency, &prediction, &trouble);
  if (status == DP_BAD_INPUT) return DP_OK;
  if (status != DP_OK) return dp_fail(error, status, "%s", trouble.text);
  if (prediction.fits) *step_s = prediction.metrics.step_s;
  sim_prediction_free(&prediction);
  return DP_OK;
}

static dp_status search(const plan_scenario *scenario, const sim_point_job *job, sim_sweep_point *point,
                        dp_error *error) {
  const sim_tune_options *options = job->request->options;
  sim_tune_options how = {.threads = 1, .stop = options->stop, .best_only = true};
  DP_TRY(known_step(scenario, job, &how.known_step_s, error));
  sim_tune_result result;
  DP_TRY(sim_tune(scenario, job->request->efficiency, &how, &result, error));
  if (how.known_step_s > 0 && !result.stopped &&
      (result.best < 0 || result.trials[result.best].step_s > how.known_step_s * (1 + 1e-9))) {
    sim_tune_result_free(&result); /* what was known is not among the plans of this point: it bounds nothing */
    how.known_step_s = 0;
    DP_TRY(sim_tune(scenario, job->request->efficiency, &how, &result, error));
  }
  dp_status status = DP_OK;
  const int index = result.best >= 0 ? result.best : result.nearest;
  point->done = !(result.stopped && options->stop && *options->stop);
  if (point->done && index >= 0) status = take(&result.trials[index], result.best >= 0, job->arena, point, error);
  if (point->done && index < 0)
    point->why = result.trial_count && result.trials[0].why ? dp_arena_strdup(job->arena, result.trials[0].why)
                                                            : "no plan could be tried";
  if (status == DP_OK && point->fits && job->fixed)
    status = keep_candidate(&point->trial.candidate, job->arena, job->kept, error);
  sim_tune_result_free(&result);
  return status;
}

/* `candidate` NULL: the scenario's own plan. */
static dp_status predict(const plan_scenario *scenario, const sim_candidate *candidate, const sim_point_job *job,
                         sim_sweep_point *point, dp_error *error) {
  plan_scenario changed = *scenario;
  if (candidate) {
    const int64_t batch = sim_tune_global_batch(scenario, error);
    if (!batch) return DP_BAD_INPUT;
    changed = sim_tune_scenario(scenario, candidate, batch);
    changed.microbatches = 0;
  }
  sim_prediction prediction;
  DP_TRY(sim_predict(&changed, job->request->efficiency, &prediction, error));
  sim_trial trial = {.candidate = sim_candidate_of_plan(&changed, &prediction)};
  sim_trial_take(&trial, &prediction);
  const dp_status status = take(&trial, prediction.fits, job->arena, point, error);
  point->done = true;
  sim_prediction_free(&prediction);
  return status;
}

dp_status sim_sweep_point_find(const sim_point_job *job, sim_sweep_point *point, dp_error *error) {
  const sim_whatif_request *request = job->request;
  dp_arena scratch = {0};
  const char **sets = DP_ARENA_NEW(&scratch, const char *, (size_t)request->set_count + 1);
  const char *last = dp_arena_printf(&scratch, "%s=%s", job->key, job->value);
  plan_scenario scenario;
  dp_status status = sets && last ? DP_OK : dp_fail_memory(error);
  if (status == DP_OK) {
    for (int i = 0; i < request->set_count; i++) sets[i] = request->sets[i];
    sets[request->set_count] = last;
    const plan_scenario_source source = {.path = request->scenario_path,
                                         .sets = sets,
                                         .set_count = request->set_count + 1,
                                         .job_only = !(job->fixed && job->own_plan),
                                         .cluster_file = job->cluster_path};
    status = plan_scenario_read_from(&source, &scenario, error);
    if (status == DP_OK) {
      const bool kept = job->fixed && job->kept->stages > 0;
      status = job->fixed && job->own_plan ? predict(&scenario, NULL, job, point, error)
               : kept                      ? predict(&scenario, job->kept, job, point, error)
                                           : search(&scenario, job, point, error);
      plan_scenario_free(&scenario);
    }
  }
  dp_arena_free(&scratch);
  return status;
}
