#include "cli/tune_json.h"

#include "cli/json.h"

/* The keys of [plan] for machines, and the plan in words. */
static bool put_plan(json_t *row, const sim_candidate *candidate) {
  char text[256];
  json_t *plan = cli_json_candidate(candidate);
  return plan && cli_json_put(row, "plan", plan) &&
         cli_json_put(row, "text", json_string(sim_candidate_show(candidate, text)));
}

json_t *cli_trial_json(const sim_trial *trial) {
  json_t *row = json_object();
  const bool done =
      row && put_plan(row, &trial->candidate) && cli_json_put(row, "fits", json_boolean(trial->fits)) &&
      cli_json_put(row, "step_s", json_real(trial->step_s)) &&
      cli_json_put(row, "throughput_samples_per_s", json_real(trial->throughput_samples_per_s)) &&
      cli_json_put(row, "bubble_ratio", json_real(trial->bubble_ratio)) &&
      cli_json_put(row, "peak_memory_bytes", json_integer(trial->peak_bytes)) &&
      cli_json_put(row, "boundary_and_skip_bytes", json_integer(trial->boundary_and_skip_bytes)) &&
      cli_json_put(row, "skip_bytes", json_integer(trial->skip_bytes)) &&
      cli_json_put(row, "usd_per_million_samples", json_real(trial->usd_per_million_samples)) &&
      cli_json_put(row, "joules_per_sample", json_real(trial->joules_per_sample)) &&
      cli_json_put(row, "quality", json_string(sim_candidate_lossiness(&trial->candidate) ? "not measured" : "exact"));
  if (done) return row;
  json_decref(row);
  return NULL;
}

static bool add_rejected(json_t *list, const sim_trial *trial) {
  json_t *row = json_object();
  return json_array_append_new(list, row) == 0 && put_plan(row, &trial->candidate) &&
         cli_json_put(row, "why", json_string(trial->why));
}

dp_status cli_tune_json(const sim_tune_result *result, bool all, double search_s, json_t **json, dp_error *error) {
  json_t *root = json_object(), *front = json_array(), *rejected = json_array();
  bool done =
      root && cli_json_put(root, "format", json_string("diffpipe-tune")) &&
      cli_json_put(root, "version", json_integer(1)) &&
      cli_json_put(root, "best", result->best < 0 ? json_null() : cli_trial_json(&result->trials[result->best])) &&
      cli_json_put(root, "front", front) && cli_json_put(root, "rejected", rejected) &&
      cli_json_put(root, "trials", json_integer(result->simulated)) &&
      cli_json_put(root, "candidates", json_integer(result->trial_count)) &&
      cli_json_put(root, "pruned", json_integer(result->pruned)) &&
      cli_json_put(root, "too_large", json_integer(result->too_large)) &&
      cli_json_put(root, "refused", json_integer(result->refused)) &&
      cli_json_put(root, "stopped", json_boolean(result->stopped)) &&
      cli_json_put(root, "refining_trials", json_integer(result->refining_trials)) &&
      cli_json_put(root, "search_s", json_real(search_s));
  if (done && result->nearest >= 0)
    done = cli_json_put(root, "nearest", cli_trial_json(&result->trials[result->nearest]));
  for (int i = 0; done && i < result->front_count; i++)
    done = json_array_append_new(front, cli_trial_json(&result->trials[result->front[i]])) == 0;
  for (int i = 0; done && i < (all ? result->trial_count : result->neighbour_count); i++) {
    const int index = all ? i : result->neighbours[i];
    if (index != result->best && result->trials[index].why) done = add_rejected(rejected, &result->trials[index]);
  }
  if (done) {
    *json = root;
    return DP_OK;
  }
  json_decref(root);
  return dp_fail_memory(error);
}

/* ---- studies ---- */

static bool add_point(json_t *list, const char *key, int64_t value, const sim_study_point *point) {
  json_t *row = point->found ? cli_trial_json(&point->trial) : json_object();
  return json_array_append_new(list, row) == 0 && cli_json_put(row, key, json_integer(value)) &&
         cli_json_put(row, "fits", json_boolean(point->fits));
}

static bool add_k(json_t *list, const sim_study_k *point) {
  json_t *row = json_object();
  return json_array_append_new(list, row) == 0 && cli_json_put(row, "k", json_integer(point->k)) &&
         cli_json_put(row, "skip_bytes", json_integer(point->skip_bytes)) &&
         cli_json_put(row, "peak_memory_bytes", json_integer(point->peak_bytes)) &&
         cli_json_put(row, "step_s", json_real(point->step_s)) &&
         cli_json_put(row, "throughput_samples_per_s", json_real(point->throughput_samples_per_s)) &&
         cli_json_put(row, "fits", json_boolean(point->fits)) &&
         cli_json_put(row, "quality", json_string(point->k ? "not measured" : "exact"));
}

dp_status cli_study_json(const sim_study *study, json_t **json, dp_error *error) {
  json_t *root = json_object(), *devices = json_array(), *batches = json_array(), *ks = json_array();
  bool done = root && cli_json_put(root, "devices", devices) && cli_json_put(root, "batch", batches) &&
              cli_json_put(root, "k", ks) && cli_json_put(root, "stopped", json_boolean(study->stopped));
  for (int i = 0; done && i < study->device_count; i++)
    done = add_point(devices, "devices", study->devices[i].devices, &study->devices[i]);
  for (int i = 0; done && i < study->batch_count; i++)
    done = add_point(batches, "global_batch", study->batches[i].global_batch, &study->batches[i]);
  for (int i = 0; done && i < study->k_count; i++) done = add_k(ks, &study->ks[i]);
  char layout[256];
  if (done && study->k_count)
    done = cli_json_put(root, "k_layout", json_string(sim_candidate_show(&study->k_layout, layout)));
  if (done) {
    *json = root;
    return DP_OK;
  }
  json_decref(root);
  return dp_fail_memory(error);
}
