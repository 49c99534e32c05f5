#include "cli/baselines.h"

#include <math.h>
#include <stdio.h>

#include "cli/json.h"

static void print_figures(const char *title, const sim_trial *trial, double gain) {
  char rate[32] = "-", faster[32] = "";
  if (trial->fits) (void)snprintf(rate, sizeof rate, "%.4g", trial->throughput_samples_per_s);
  if (!isnan(gain)) (void)snprintf(faster, sizeof faster, "%+.1f %%", 100 * gain);
  printf("  %-33s %9s %9s %8.2f %8.1f %7.1f\n", title, rate, faster, (double)trial->skip_bytes / 1e9,
         100 * trial->bubble_ratio, (double)trial->peak_bytes / 1e9);
}

void cli_baselines_print(const sim_baselines *baselines, const sim_tune_result *tuned) {
  char plan[256];
  printf(
      "\nOther planners on the same devices: each with its best stages, replicas and microbatch size of the\n"
      "same grid, nothing or all recomputed (split as here: as needed too). Gain: of the best plan over it.\n"
      "GB = 1e9 bytes, skips: of a step.\n"
      "  %-33s %9s %9s %8s %8s %7s\n",
      "", "samples/s", "gain", "skip GB", "bubble %", "peak GB");
  if (tuned->best >= 0) print_figures("the best plan", &tuned->trials[tuned->best], NAN);
  for (int r = 0; r < baselines->count; r++) {
    const sim_baseline *row = &baselines->rows[r];
    if (row->trial.state != SIM_TRIAL_SIMULATED) {
      printf("  %s\n    %s\n", sim_baseline_titles[row->kind], row->trial.why);
      continue;
    }
    print_figures(sim_baseline_titles[row->kind], &row->trial, row->gain);
    printf("    %s\n", sim_candidate_show(&row->trial.candidate, plan));
    if (row->trial.why[0]) printf("    %s\n", row->trial.why);
  }
}

static json_t *plan_json(const sim_baseline *row) {
  json_t *plan = cli_json_candidate(&row->trial.candidate);
  if (!plan || !row->cut_count) return plan;
  json_t *split = json_array();
  bool done = cli_json_put(plan, "split", split);
  for (int i = 0; done && i < row->cut_count; i++) done = json_array_append_new(split, json_integer(row->cuts[i])) == 0;
  if (done) return plan;
  json_decref(plan);
  return NULL;
}

static bool add_figures(json_t *out, const sim_trial *trial) {
  char text[256];
  return cli_json_put(out, "text", json_string(sim_candidate_show(&trial->candidate, text))) &&
         cli_json_put(out, "step_s", json_real(trial->step_s)) &&
         cli_json_put(out, "throughput_samples_per_s", json_real(trial->throughput_samples_per_s)) &&
         cli_json_put(out, "bubble_ratio", json_real(trial->bubble_ratio)) &&
         cli_json_put(out, "peak_memory_bytes", json_integer(trial->peak_bytes)) &&
         cli_json_put(out, "skip_bytes", json_integer(trial->skip_bytes)) &&
         cli_json_put(out, "boundary_bytes", json_integer(trial->boundary_and_skip_bytes - trial->skip_bytes));
}

static bool add_row(json_t *list, const sim_baseline *row) {
  json_t *out = json_object();
  return json_array_append_new(list, out) == 0 &&
         cli_json_put(out, "name", json_string(sim_baseline_names[row->kind])) &&
         cli_json_put(out, "title", json_string(sim_baseline_titles[row->kind])) &&
         cli_json_put(out, "plan", row->trial.state == SIM_TRIAL_SIMULATED ? plan_json(row) : json_null()) &&
         cli_json_put(out, "fits", json_boolean(row->trial.fits)) &&
         (row->trial.state != SIM_TRIAL_SIMULATED || add_figures(out, &row->trial)) &&
         cli_json_put(out, "gain_of_best", isnan(row->gain) ? json_null() : json_real(row->gain)) &&
         cli_json_put(out, "why", json_string(row->trial.why)) && cli_json_put(out, "grid", json_integer(row->grid)) &&
         cli_json_put(out, "simulated", json_integer(row->simulated));
}

json_t *cli_baselines_json(const sim_baselines *baselines) {
  json_t *list = json_array();
  bool done = list != NULL;
  for (int r = 0; done && r < baselines->count; r++) done = add_row(list, &baselines->rows[r]);
  if (done) return list;
  json_decref(list);
  return NULL;
}
