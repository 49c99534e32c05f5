/* diffpipe tune: searches for the best plan of a scenario and says why the others lost. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/progress.h"
#include "base/str.h"
#include "cli/baselines.h"
#include "cli/candidate.h"
#include "cli/command.h"
#include "cli/efficiency.h"
#include "cli/folder.h"
#include "cli/json.h"
#include "cli/remedies.h"
#include "cli/search.h"
#include "cli/text.h"
#include "cli/tune_json.h"

enum { SLOT_SET, SLOT_PROFILE, SLOT_JSON, SLOT_ALL, SLOT_THREADS, SLOT_OUT, SLOT_NO_PLOTS, SLOT_BASELINES };

static const cli_option options[] = {
    CLI_OPTION_SET(SLOT_SET),
    CLI_OPTION_PROFILE(SLOT_PROFILE),
    {.name = "json", .type = CLI_FLAG, .help = "print JSON instead of tables", .slot = SLOT_JSON},
    {.name = "all", .type = CLI_FLAG, .help = "list every plan that was looked at", .slot = SLOT_ALL},
    CLI_OPTION_THREADS(SLOT_THREADS, "plans simulated"),
    CLI_OPTION_OUT(SLOT_OUT, "the best plan's report and files, and tune.json,"),
    CLI_OPTION_NO_PLOTS(SLOT_NO_PLOTS),
    {.name = "baselines",
     .type = CLI_FLAG,
     .help = "compare with equal parameters, equal units, straight 1F1B, ...",
     .slot = SLOT_BASELINES},
};

/* ---- tables ---- */

static bool is_of(const char *assignment, const char *table) {
  const size_t length = strlen(table);
  return strncmp(assignment, table, length) == 0 && (assignment[length] == '.' || assignment[length] == '=');
}

/* The scenario as it was searched, a profile included, with the candidate's [plan]. */
static dp_status print_plan_line(const sim_candidate *c, const cli_values *values, dp_error *error) {
  dp_str line = {0};
  dp_str_add_word(&line, values->arguments[0]);
  for (int i = 0; i < values->set_count; i++) {
    if (is_of(values->sets[i], "plan") || is_of(values->sets[i], "search")) continue;
    dp_str_add(&line, " \\\n    --set ");
    dp_str_add_word(&line, values->sets[i]);
  }
  dp_str_add(&line, " \\\n    ");
  cli_candidate_settings(c, " \\\n    ", &line);
  const dp_status status = line.failed ? dp_fail_memory(error) : DP_OK;
  if (status == DP_OK) printf("  diffpipe simulate %s\n", dp_str_text(&line));
  dp_str_free(&line);
  return status;
}

static void print_front(const sim_tune_result *result) {
  printf(
      "\nPareto front: throughput, memory of the fullest worker, cost (GB = 1e9 bytes)\n"
      "  samples/s       step     GB  USD/M samples  bubble  stages x replicas, microbatches x size\n");
  bool lossy = false, tensor = false;
  for (int i = 0; i < result->front_count; i++) {
    const sim_trial *t = &result->trials[result->front[i]];
    char plan[128], step[32];
    printf("  %9.4g  %9s  %5.1f  %13.4g  %4.1f %%  %s\n", t->throughput_samples_per_s,
           dp_format_seconds(t->step_s, step), (double)t->peak_bytes / 1e9, t->usd_per_million_samples,
           100 * t->bubble_ratio, sim_candidate_brief(&t->candidate, plan));
    lossy = lossy || sim_candidate_lossiness(&t->candidate) > 0;
    tensor = tensor || sim_candidate_tensor(&t->candidate) > 1;
  }
  if (tensor) printf("  4/T2: four stages, each shared by a tensor group of two devices\n");
  if (lossy) printf("  lossy: skips are compressed; quality not measured\n");
}

static void print_lost(const sim_tune_result *result, bool all) {
  printf("\n%s\n", all ? "All other plans, and why they lost" : "Its neighbours, one choice away, and why they lost");
  for (int i = 0; i < (all ? result->trial_count : result->neighbour_count); i++) {
    const int index = all ? i : result->neighbours[i];
    char plan[256];
    if (index == result->best || !result->trials[index].why) continue;
    cli_print_wrapped(2, sim_candidate_show(&result->trials[index].candidate, plan));
    cli_print_wrapped(4, result->trials[index].why);
  }
}

static dp_status print_tables(const plan_scenario *scenario, const cli_values *values, const sim_tune_result *result,
                              double search_s, dp_error *error) {
  char plan[256], step[32];
  printf("%s: %d plans, %d simulated, %d pruned, %d too large, %d refused, %.2f s\n%s\n", scenario->name,
         result->trial_count, result->simulated, result->pruned, result->too_large, result->refused, search_s,
         result->stopped ? "stopped early: better plans may exist\n" : "");
  if (result->best < 0) {
    printf("No plan fits.\n");
    if (result->nearest >= 0) {
      const sim_trial *t = &result->trials[result->nearest];
      char shortage[128];
      printf("Nearest:\n");
      cli_print_wrapped(2, sim_candidate_show(&t->candidate, plan));
      cli_print_wrapped(4, sim_shortage_show(&t->tightest, shortage));
    }
    return DP_OK;
  }
  const sim_trial *best = &result->trials[result->best];
  char line[320], shortage[128];
  (void)snprintf(line, sizeof line, "Best: %s", sim_candidate_show(&best->candidate, plan));
  cli_print_wrapped(0, line);
  printf("  step %s, %.4g samples/s, bubble %.1f %%, %.1f GB on the fullest worker\n",
         dp_format_seconds(best->step_s, step), best->throughput_samples_per_s, 100 * best->bubble_ratio,
         (double)best->peak_bytes / 1e9);
  if (best->without_recomputation.peak_bytes > 0 && best->candidate.recomputed_units > 0)
    printf("  with nothing recomputed, %s\n", sim_shortage_show(&best->without_recomputation, shortage));
  if (result->refining_trials > 0 && best->candidate.skip_count == 0)
    printf("  no skip tensor gains 0.1 %% by a policy of its own (%d tried)\n", result->refining_trials);
  printf("\n");
  DP_TRY(print_plan_line(&best->candidate, values, error));
  print_front(result);
  print_lost(result, values->slots[SLOT_ALL].given);
  return DP_OK;
}

/* ---- running ---- */

static void show_progress(void *data, uint64_t done, uint64_t total, const sim_trial *best) {
  dp_progress *progress = data;
  char note[96];
  progress->total = total; /* what is pruned goes fast: the time left is at most that */
  int length = snprintf(note, sizeof note, "%llu of %llu plans, ", (unsigned long long)done, (unsigned long long)total);
  if (best)
    (void)snprintf(note + length, sizeof note - (size_t)length, "best %.4g samples/s", best->throughput_samples_per_s);
  else
    (void)snprintf(note + length, sizeof note - (size_t)length, "nothing fits yet");
  dp_progress_update(progress, done, note);
}

/* How the answer changes with devices, batch and K: tune.json's `studies`. */
static dp_status study(const plan_scenario *scenario, const sim_efficiency *efficiency, const cli_values *values,
                       const sim_tune_result *result, json_t *json, dp_error *error) {
  dp_progress progress;
  sim_study study;
  json_t *studies = NULL;
  dp_progress_begin(&progress, "studies", 0);
  const sim_tune_options how = cli_search_options(values, SLOT_THREADS, &progress);
  dp_status status = sim_study_run(scenario, efficiency, result, &how, &study, error);
  dp_progress_end(&progress);
  if (status != DP_OK) return status;
  status = cli_study_json(&study, &studies, error);
  sim_study_free(&study);
  if (status != DP_OK) return status;
  return cli_json_put(json, "studies", studies) ? DP_OK : dp_fail_memory(error);
}

/* The folder of the best plan; where nothing fits, of the one that is least over. */
static dp_status write_folder(const plan_scenario *scenario, const sim_efficiency *efficiency,
                              const sim_tune_result *result, json_t *json, const cli_values *values, dp_error *error) {
  const int index = result->best >= 0 ? result->best : result->nearest;
  if (index < 0) {
    fprintf(stderr, "diffpipe: note: wrote nothing: no plan could be simulated\n");
    return DP_OK;
  }
  const int64_t global_batch = sim_tune_global_batch(scenario, error);
  if (!global_batch) return DP_BAD_INPUT;
  const plan_scenario chosen = sim_tune_scenario(scenario, &result->trials[index].candidate, global_batch);
  sim_prediction prediction;
  cli_folder_view view;
  DP_TRY(sim_predict(&chosen, efficiency, &prediction, error));
  dp_status status = cli_folder_view_of(&chosen, efficiency, &prediction, values, &view, error);
  if (status == DP_OK) {
    json_t *studies = json_object_get(json, "studies");
    if (studies && !cli_json_put(studies, "assumptions", cli_folder_assumptions(&view.run)))
      status = dp_fail_memory(error);
    if (status == DP_OK)
      status =
          cli_folder_write(&view.run, json, values->slots[SLOT_OUT].string, !values->slots[SLOT_NO_PLOTS].given, error);
    cli_folder_view_free(&view);
  }
  sim_prediction_free(&prediction);
  return status;
}

typedef struct answer {
  sim_tune_result result;
  sim_baselines baselines;
  bool ails; /* nothing fits, and the search was not stopped */
  sim_remedies remedies;
  double search_s;
  json_t *json;
} answer;

static dp_status find_remedies(const plan_scenario *scenario, const sim_efficiency *efficiency,
                               const cli_values *values, answer *told, dp_error *error) {
  dp_progress progress;
  const sim_tune_options how = cli_search_options(values, SLOT_THREADS, NULL);
  dp_progress_begin(&progress, "nothing fits; looking for the smallest change that does", 0);
  dp_progress_update(&progress, 0, NULL);
  const dp_status status = sim_remedies_find(scenario, efficiency, &how, &told->remedies, error);
  dp_progress_end(&progress);
  return status;
}

/* Everything that Ctrl-C may end: the search, the other planners' plans, the studies of a folder. `told` is zeroed. */
static dp_status search(const plan_scenario *scenario, const sim_efficiency *efficiency, const cli_values *values,
                        answer *told, dp_error *error) {
  dp_progress progress;
  dp_progress_begin(&progress, "tune", 0);
  sim_tune_options how = cli_search_options(values, SLOT_THREADS, &progress);
  how.progress = show_progress;
  const double from_s = dp_clock_s();
  dp_status status = sim_tune(scenario, efficiency, &how, &told->result, error);
  told->search_s = dp_clock_s() - from_s;
  if (status == DP_OK && values->slots[SLOT_BASELINES].given)
    status = sim_baselines_find(scenario, efficiency, &told->result, &how, &told->baselines, error);
  dp_progress_end(&progress);
  told->ails = status == DP_OK && told->result.best < 0 && !told->result.stopped;
  if (told->ails) status = find_remedies(scenario, efficiency, values, told, error);
  if (status == DP_OK)
    status = cli_tune_json(&told->result, values->slots[SLOT_ALL].given, told->search_s, &told->json, error);
  if (status == DP_OK && values->slots[SLOT_BASELINES].given &&
      !cli_json_put(told->json, "baselines", cli_baselines_json(&told->baselines)))
    status = dp_fail_memory(error);
  if (status == DP_OK && told->ails && !cli_json_put(told->json, "remedies", cli_remedies_json(&told->remedies)))
    status = dp_fail_memory(error);
  if (status == DP_OK && values->slots[SLOT_OUT].given)
    status = study(scenario, efficiency, values, &told->result, told->json, error);
  return status;
}

static dp_status tell(const plan_scenario *scenario, const sim_efficiency *efficiency, const cli_values *values,
                      const answer *told, dp_error *error) {
  if (values->slots[SLOT_OUT].given)
    DP_TRY(write_folder(scenario, efficiency, &told->result, told->json, values, error));
  if (values->slots[SLOT_JSON].given) return cli_json_print(told->json, error);
  DP_TRY(print_tables(scenario, values, &told->result, told->search_s, error));
  if (told->ails) cli_remedies_print(&told->remedies);
  if (values->slots[SLOT_BASELINES].given) cli_baselines_print(&told->baselines, &told->result);
  return DP_OK;
}

static dp_status tune(const plan_scenario *scenario, const sim_efficiency *efficiency, const cli_values *values,
                      dp_error *error) {
  answer told = {.json = NULL};
  cli_search_begin();
  dp_status status = search(scenario, efficiency, values, &told, error);
  cli_search_end();
  if (status == DP_OK) status = tell(scenario, efficiency, values, &told, error);
  json_decref(told.json);
  sim_remedies_free(&told.remedies);
  sim_baselines_free(&told.baselines);
  sim_tune_result_free(&told.result);
  return status;
}

static dp_status run(const cli_values *values, dp_error *error) {
  DP_TRY(cli_folder_check(values, "tune", SLOT_OUT, SLOT_NO_PLOTS, error));
  plan_scenario scenario;
  sim_efficiency *efficiency = NULL;
  DP_TRY(plan_scenario_read_job(values->arguments[0], values->sets, values->set_count, &scenario, error));
  dp_status status = cli_efficiency_read(&efficiency, error);
  if (status == DP_OK) status = tune(&scenario, efficiency, values, error);
  sim_efficiency_free(efficiency);
  plan_scenario_free(&scenario);
  return status;
}

const cli_command cli_tune = {
    .name = "tune",
    .arguments = "SCENARIO",
    .takes = "one, the scenario",
    .summary = "Search for the best plan of a scenario, and tell why the others lost.",
    .help =
        "[search] of the scenario bounds what is tried; [plan] is not looked at. Ctrl-C ends the search\n"
        "with the best plan so far. With --out the best plan is studied, too: on fewer devices, with other\n"
        "batches, with each K; `diffpipe report` makes the page again.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run};
