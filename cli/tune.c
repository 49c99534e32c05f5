/* diffpipe tune: searches for the best plan of a scenario and says why the others lost. */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/progress.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/json.h"
#include "sim/tune.h"

enum { SLOT_SET, SLOT_JSON, SLOT_ALL, SLOT_THREADS };

static const cli_option options[] = {
    {.name = "set",
     .type = CLI_LIST,
     .argument = "TABLE.KEY=VALUE",
     .help = "set a key of the scenario; may be repeated",
     .slot = SLOT_SET},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON instead of tables", .slot = SLOT_JSON},
    {.name = "all", .type = CLI_FLAG, .help = "list every plan that was looked at", .slot = SLOT_ALL},
    {.name = "threads",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "plans simulated at once; default one a processor",
     .slot = SLOT_THREADS,
     .min = 1,
     .max = 16},
};

/* ---- JSON ---- */

static json_t *trial_json(const sim_trial *trial) {
  json_t *row = json_object(), *plan = cli_json_candidate(&trial->candidate);
  const bool done =
      row && plan && cli_json_put(row, "plan", plan) && cli_json_put(row, "fits", json_boolean(trial->fits)) &&
      cli_json_put(row, "step_s", json_real(trial->step_s)) &&
      cli_json_put(row, "throughput_samples_per_s", json_real(trial->throughput_samples_per_s)) &&
      cli_json_put(row, "bubble_ratio", json_real(trial->bubble_ratio)) &&
      cli_json_put(row, "peak_memory_bytes", json_integer(trial->peak_bytes)) &&
      cli_json_put(row, "boundary_and_skip_bytes", json_integer(trial->boundary_and_skip_bytes)) &&
      cli_json_put(row, "usd_per_million_samples", json_real(trial->usd_per_million_samples)) &&
      cli_json_put(row, "joules_per_sample", json_real(trial->joules_per_sample)) &&
      cli_json_put(row, "quality",
                   json_string(trial->candidate.skip_policy == PLAN_SKIP_COMPRESS ? "not measured" : "exact"));
  if (done) return row;
  json_decref(row);
  return NULL;
}

static bool add_rejected(json_t *list, const sim_trial *trial) {
  json_t *row = json_object(), *plan = cli_json_candidate(&trial->candidate);
  return json_array_append_new(list, row) == 0 && plan && cli_json_put(row, "plan", plan) &&
         cli_json_put(row, "why", json_string(trial->why));
}

static dp_status print_json(const sim_tune_result *result, bool all, double search_s, dp_error *error) {
  json_t *root = json_object(), *front = json_array(), *rejected = json_array();
  bool done = root && cli_json_put(root, "format", json_string("diffpipe-tune")) &&
              cli_json_put(root, "version", json_integer(1)) &&
              cli_json_put(root, "best", result->best < 0 ? json_null() : trial_json(&result->trials[result->best])) &&
              cli_json_put(root, "front", front) && cli_json_put(root, "rejected", rejected) &&
              cli_json_put(root, "trials", json_integer(result->simulated)) &&
              cli_json_put(root, "candidates", json_integer(result->trial_count)) &&
              cli_json_put(root, "pruned", json_integer(result->pruned)) &&
              cli_json_put(root, "refused", json_integer(result->refused)) &&
              cli_json_put(root, "stopped", json_boolean(result->stopped)) &&
              cli_json_put(root, "search_s", json_real(search_s));
  if (done && result->nearest >= 0) done = cli_json_put(root, "nearest", trial_json(&result->trials[result->nearest]));
  for (int i = 0; done && i < result->front_count; i++)
    done = json_array_append_new(front, trial_json(&result->trials[result->front[i]])) == 0;
  for (int i = 0; done && i < (all ? result->trial_count : result->neighbour_count); i++) {
    const int index = all ? i : result->neighbours[i];
    if (index != result->best && result->trials[index].why) done = add_rejected(rejected, &result->trials[index]);
  }
  if (done)
    done = json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0 && fputc('\n', stdout) != EOF;
  json_decref(root);
  return done ? DP_OK : dp_fail_memory(error);
}

/* ---- tables ---- */

static void print_plan_line(const sim_candidate *c, const char *scenario) {
  printf(
      "  diffpipe simulate %s \\\n"
      "    --set plan.stages=%d --set plan.data_parallel=%d --set plan.schedule=%s \\\n"
      "    --set plan.chunks=%d --set plan.microbatches=%d --set plan.microbatch_size=%d \\\n"
      "    --set plan.recompute=%s --set plan.skip_policy=%s",
      scenario, c->stages, c->replicas, plan_schedule_names[c->schedule], c->chunks, c->microbatches,
      c->microbatch_size, c->recompute ? "all" : "none", plan_skip_policy_names[c->skip_policy]);
  if (c->k) printf(" --set plan.k=%lld", (long long)c->k);
  printf("\n");
}

/* "2x4 interleaved/4 8x4 recomputed" */
static const char *brief(const sim_candidate *c, char out[128]) {
  char chunks[16] = "", skips[40] = "";
  if (c->schedule == PLAN_INTERLEAVED) (void)snprintf(chunks, sizeof chunks, "/%d", c->chunks);
  if (c->k) (void)snprintf(skips, sizeof skips, " K=%lld", (long long)c->k);
  (void)snprintf(out, 128, "%dx%d %s%s %dx%d%s%s", c->stages, c->replicas, plan_schedule_names[c->schedule], chunks,
                 c->microbatches, c->microbatch_size, c->recompute ? " recomputed" : "", skips);
  return out;
}

static void print_front(const sim_tune_result *result) {
  printf(
      "\nPareto front: throughput, memory of the fullest worker, cost (GB = 1e9 bytes)\n"
      "  samples/s       step     GB  USD/M samples  bubble  stages x replicas, microbatches x size\n");
  for (int i = 0; i < result->front_count; i++) {
    const sim_trial *t = &result->trials[result->front[i]];
    char plan[128], step[32];
    printf("  %9.4g  %9s  %5.1f  %13.4g  %4.1f %%  %s\n", t->throughput_samples_per_s,
           dp_format_seconds(t->step_s, step), (double)t->peak_bytes / 1e9, t->usd_per_million_samples,
           100 * t->bubble_ratio, brief(&t->candidate, plan));
  }
}

static void print_lost(const sim_tune_result *result, bool all) {
  printf("\n%s\n", all ? "All other plans, and why they lost" : "Its neighbours, one choice away, and why they lost");
  for (int i = 0; i < (all ? result->trial_count : result->neighbour_count); i++) {
    const int index = all ? i : result->neighbours[i];
    char plan[256];
    if (index == result->best || !result->trials[index].why) continue;
    printf("  %s\n    %s\n", sim_candidate_show(&result->trials[index].candidate, plan), result->trials[index].why);
  }
}

static void print_tables(const plan_scenario *scenario, const char *path, const sim_tune_result *result, bool all,
                         double search_s) {
  char plan[256], step[32];
  printf("%s: %d plans, %d simulated, %d pruned, %d refused, %.2f s%s\n\n", scenario->name, result->trial_count,
         result->simulated, result->pruned, result->refused, search_s,
         result->stopped ? " (stopped early: better plans may exist)" : "");
  if (result->best < 0) {
    printf("No plan fits.\n");
    if (result->nearest >= 0) {
      const sim_trial *t = &result->trials[result->nearest];
      printf("Nearest: %s\n  worker %d needs %.1f of %.1f GB, %.1f of it activations\n",
             sim_candidate_show(&t->candidate, plan), t->tightest_worker, (double)t->tightest_peak_bytes / 1e9,
             (double)t->tightest_limit_bytes / 1e9, (double)t->tightest_activation_bytes / 1e9);
    }
    return;
  }
  const sim_trial *best = &result->trials[result->best];
  printf("Best: %s\n", sim_candidate_show(&best->candidate, plan));
  printf("  step %s, %.4g samples/s, bubble %.1f %%, %.1f GB on the fullest worker\n\n",
         dp_format_seconds(best->step_s, step), best->throughput_samples_per_s, 100 * best->bubble_ratio,
         (double)best->peak_bytes / 1e9);
  print_plan_line(&best->candidate, path);
  print_front(result);
  print_lost(result, all);
}

/* ---- running ---- */

static volatile sig_atomic_t stop_asked; /* set by Ctrl-C: the best so far is still told */

static void ask_stop(int number) {
  (void)number;
  stop_asked = 1;
}

static void show_progress(void *data, uint64_t done, uint64_t total, const sim_trial *best) {
  dp_progress *progress = data;
  char note[64] = "nothing fits yet";
  (void)total;
  if (best) (void)snprintf(note, sizeof note, "best %.4g samples/s", best->throughput_samples_per_s);
  dp_progress_update(progress, done, note);
}

static double now_s(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dp_status search(const plan_scenario *scenario, const sim_efficiency *efficiency, const cli_values *values,
                        dp_error *error) {
  dp_progress progress;
  dp_progress_begin(&progress, "tune", 0);
  const sim_tune_options how = {
      .threads = values->slots[SLOT_THREADS].given ? (int)values->slots[SLOT_THREADS].integer : 0,
      .stop = &stop_asked,
      .progress = show_progress,
      .progress_data = &progress};
  struct sigaction caught = {.sa_handler = ask_stop}, before;
  (void)sigaction(SIGINT, &caught, &before);
  const double from_s = now_s();
  sim_tune_result result;
  const dp_status status = sim_tune(scenario, efficiency, &how, &result, error);
  const double search_s = now_s() - from_s;
  (void)sigaction(SIGINT, &before, NULL);
  dp_progress_end(&progress);
  if (status != DP_OK) return status;
  const bool all = values->slots[SLOT_ALL].given;
  dp_status printed = DP_OK;
  if (values->slots[SLOT_JSON].given)
    printed = print_json(&result, all, search_s, error);
  else
    print_tables(scenario, values->arguments[0], &result, all, search_s);
  sim_tune_result_free(&result);
  return printed;
}

static dp_status run(const cli_values *values, dp_error *error) {
  if (values->argument_count != 1)
    return dp_fail(error, DP_BAD_INPUT, "tune: found %d arguments, allowed: one, the scenario", values->argument_count);
  plan_scenario scenario;
  sim_efficiency *efficiency = NULL;
  DP_TRY(plan_scenario_read_job(values->arguments[0], values->sets, values->set_count, &scenario, error));
  dp_status status = sim_efficiency_read(NULL, &efficiency, error);
  if (status == DP_OK) status = search(&scenario, efficiency, values, error);
  sim_efficiency_free(efficiency);
  plan_scenario_free(&scenario);
  return status;
}

const cli_command cli_tune = {
    .name = "tune",
    .arguments = "SCENARIO",
    .summary = "Search for the best plan of a scenario, and tell why the others lost.",
    .help =
        "[search] of the scenario bounds what is tried; [plan] is not looked at. Ctrl-C ends the search\n"
        "with the best plan so far.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run};
