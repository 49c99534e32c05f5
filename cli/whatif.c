/* diffpipe whatif: one job on several clusters, and sweeps over a key. */
#include "cli/efficiency.h"
#include "cli/whatif.h"

#include <string.h>

#include "base/file.h"
#include "base/schema.h"
#include "cli/command.h"
#include "cli/folder.h"
#include "cli/json.h"
#include "cli/search.h"
#include "cli/whatif_from.h"

enum {
  SLOT_SET,
  SLOT_CLUSTER,
  SLOT_SWEEP,
  SLOT_REFERENCE,
  SLOT_USD_PER_KWH,
  SLOT_PLAN_FIXED,
  SLOT_THREADS,
  SLOT_OUT,
  SLOT_NO_PLOTS,
  SLOT_JSON,
  SLOT_CSV,
  SLOT_PROFILE,
  SLOT_FROM,
  SLOT_STEPS_FROM,
  SLOT_PRECISION,
  SLOT_HOST_FACTOR,
  SLOT_DEVICE_WAS,
  SLOT_CLUSTER_WAS
};

static const cli_option options[] = {
    {.name = "cluster",
     .type = CLI_LIST,
     .argument = "FILE",
     .help = "a cluster to compare; repeat it; default [whatif] clusters",
     .slot = SLOT_CLUSTER},
    {.name = "reference",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "the cluster that buying is weighed against; default the first",
     .slot = SLOT_REFERENCE},
    {.name = "usd-per-kwh",
     .type = CLI_STRING,
     .argument = "USD",
     .help = "what a kWh of power costs; default [whatif] usd_per_kwh",
     .slot = SLOT_USD_PER_KWH},
    {.name = "sweep",
     .type = CLI_LIST,
     .argument = "KEY=VALUES",
     .help = "the best plan for each value: FROM:TO:logN, FROM:TO:linN or A,B,C",
     .slot = SLOT_SWEEP},
    {.name = "plan-fixed",
     .type = CLI_FLAG,
     .help = "sweeps keep [plan], or the best plan of their first point",
     .slot = SLOT_PLAN_FIXED},
    CLI_OPTION_SET(SLOT_SET),
    CLI_OPTION_PROFILE(SLOT_PROFILE),
    CLI_OPTION_THREADS(SLOT_THREADS, "searches"),
    CLI_OPTION_OUT(SLOT_OUT, "whatif.json, whatif.csv and plots"),
    CLI_OPTION_NO_PLOTS(SLOT_NO_PLOTS),
    {.name = "json", .type = CLI_FLAG, .help = "print JSON instead of a table", .slot = SLOT_JSON},
    {.name = "csv", .type = CLI_FLAG, .help = "print CSV instead of a table", .slot = SLOT_CSV},
    {.name = "from",
     .type = CLI_STRING,
     .argument = "DIR",
     .help = "in place of a scenario: a run that diffpipe profile recorded",
     .slot = SLOT_FROM},
    CLI_OPTION_STEPS_FROM(SLOT_STEPS_FROM),
    {.name = "precision",
     .type = CLI_STRING,
     .argument = "NAME",
     .help = "of recorded kernels whose names do not tell",
     .fallback = "default that of most",
     .slot = SLOT_PRECISION},
    {.name = "host-factor",
     .type = CLI_STRING,
     .argument = "X",
     .help = "the host takes X times as long as recorded",
     .fallback = "default as the clusters say",
     .slot = SLOT_HOST_FACTOR},
    {.name = "device-was",
     .type = CLI_STRING,
     .argument = "MODEL",
     .help = "card of the catalogue that was recorded",
     .fallback = "default by its name",
     .slot = SLOT_DEVICE_WAS},
    {.name = "cluster-was",
     .type = CLI_STRING,
     .argument = "FILE",
     .help = "cluster that was recorded",
     .fallback = "default one machine of these cards",
     .slot = SLOT_CLUSTER_WAS},
};

/* What is asked, put together from the command line and [whatif]. */
typedef struct question {
  dp_arena arena;
  const cli_values *values;
  const char **sets;
  int set_count;
  plan_scenario scenario; /* on its own cluster, or the first one given */
  plan_whatif_cluster *clusters;
  int cluster_count, reference;
  sim_sweep *sweeps;
  int sweep_count;
} question;

/* ---- clusters ---- */

static dp_status resolve(question *q, const char *option, const char *file, plan_whatif_cluster *cluster,
                         dp_error *error) {
  const char *const from[] = {NULL, q->values->arguments[0]};
  for (int i = 0; i < 2; i++) {
    cluster->path = dp_path_resolve(&q->arena, from[i], file);
    if (!cluster->path) return dp_fail_memory(error);
    cluster->file = file;
    FILE *stream = fopen(cluster->path, "rb");
    if (stream) {
      (void)fclose(stream);
      return DP_OK;
    }
  }
  return dp_fail(error, DP_BAD_INPUT,
                 "--%s %.200s: cannot be opened, allowed: a file here, beside the scenario or in the installed data",
                 option, file);
}

/* Those of the command line first: the scenario is then read on the first of them. */
static dp_status find_clusters(question *q, dp_error *error) {
  const cli_values *values = q->values;
  const plan_whatif *whatif = &q->scenario.whatif;
  const size_t listed = whatif->cluster_count;
  if (values->repeated_count == 0) {
    q->clusters = DP_ARENA_NEW(&q->arena, plan_whatif_cluster, listed + 2);
    if (!q->clusters) return dp_fail_memory(error);
    for (size_t i = 0; i < listed; i++) q->clusters[q->cluster_count++] = whatif->clusters[i];
    if (listed == 0 && q->sweep_count > 0)
      q->clusters[q->cluster_count++] = (plan_whatif_cluster){NULL, NULL}; /* the scenario's own */
  }
  if (q->cluster_count == 0)
    return dp_fail(
        error, DP_BAD_INPUT,
        "whatif: found no cluster, allowed: --cluster FILE, once for each choice; [whatif] clusters = [\"FILE\", "
        "...] in the scenario; or --sweep for the scenario's own");
  plan_whatif_cluster reference = whatif->reference;
  if (values->slots[SLOT_REFERENCE].given)
    DP_TRY(resolve(q, "reference", values->slots[SLOT_REFERENCE].string, &reference, error));
  if (!reference.file) return DP_OK;
  while (q->reference < q->cluster_count &&
         (!q->clusters[q->reference].path || strcmp(q->clusters[q->reference].path, reference.path) != 0))
    q->reference++;
  if (q->reference < q->cluster_count) return DP_OK;
  memmove(&q->clusters[1], &q->clusters[0], (size_t)q->cluster_count * sizeof *q->clusters);
  q->clusters[0] = reference;
  q->cluster_count++;
  q->reference = 0;
  return DP_OK;
}

/* ---- sweeps ---- */

/* The clusters compared take the place of [cluster]: a change there would be lost in silence. A profile holds wherever
 * its device is. */
static dp_status check_no_cluster_key(const question *q, const char *what, const char *key, dp_error *error) {
  if (strncmp(key, "cluster.", 8) != 0 || !q->clusters[0].file || strncmp(key, "cluster.profile", 15) == 0)
    return DP_OK;
  return dp_fail(error, DP_BAD_INPUT,
                 "--%s %.200s: found a key of [cluster] beside clusters to compare, allowed: keys of [link], [device], "
                 "[host], [model], [task], [plan], [search]",
                 what, key);
}

static dp_status find_sweeps(question *q, dp_error *error) {
  const cli_values *values = q->values;
  const dp_node *listed = q->scenario.whatif.sweep;
  const size_t count = values->sweep_count ? (size_t)values->sweep_count : listed ? listed->count : 0;
  q->sweeps = DP_ARENA_NEW(&q->arena, sim_sweep, count);
  if (!q->sweeps) return dp_fail_memory(error);
  for (size_t i = 0; i < count; i++) {
    const dp_node *node = values->sweep_count ? NULL : listed->items[i];
    DP_TRY(sim_sweep_parse(node ? node->string : values->sweeps[i], node, &q->arena, &q->sweeps[i], error));
    q->sweep_count++;
  }
  return DP_OK;
}

/* ---- the question ---- */

static dp_status ask(question *q, dp_error *error) {
  const cli_values *values = q->values;
  q->sets = DP_ARENA_NEW(&q->arena, const char *, (size_t)values->set_count + 1);
  if (!q->sets) return dp_fail_memory(error);
  for (int i = 0; i < values->set_count; i++) q->sets[q->set_count++] = values->sets[i];
  if (values->slots[SLOT_USD_PER_KWH].given) {
    q->sets[q->set_count] = dp_arena_printf(&q->arena, "whatif.usd_per_kwh=%s", values->slots[SLOT_USD_PER_KWH].string);
    if (!q->sets[q->set_count++]) return dp_fail_memory(error);
  }
  q->clusters = DP_ARENA_NEW(&q->arena, plan_whatif_cluster, (size_t)values->repeated_count + 1);
  if (!q->clusters) return dp_fail_memory(error);
  for (int i = 0; i < values->repeated_count; i++)
    DP_TRY(resolve(q, "cluster", values->repeated[i], &q->clusters[q->cluster_count++], error));
  const plan_scenario_source source = {.path = values->arguments[0],
                                       .sets = q->sets,
                                       .set_count = q->set_count,
                                       .job_only = true,
                                       .cluster_file = q->cluster_count ? q->clusters[0].path : NULL};
  DP_TRY(plan_scenario_read_from(&source, &q->scenario, error));
  DP_TRY(find_sweeps(q, error));
  DP_TRY(find_clusters(q, error));
  for (int i = 0; i < values->set_count; i++) DP_TRY(check_no_cluster_key(q, "set", values->sets[i], error));
  for (int i = 0; i < q->sweep_count; i++) DP_TRY(check_no_cluster_key(q, "sweep", q->sweeps[i].text, error));
  return DP_OK;
}

/* ---- running ---- */

static dp_status search(const question *q, const sim_efficiency *efficiency, sim_whatif_result *result,
                        dp_error *error) {
  const cli_values *values = q->values;
  dp_progress progress;
  const sim_tune_options how = cli_search_options(values, SLOT_THREADS, &progress);
  const sim_whatif_request request = {.scenario_path = values->arguments[0],
                                      .sets = q->sets,
                                      .set_count = q->set_count,
                                      .clusters = q->clusters,
                                      .cluster_count = q->cluster_count,
                                      .sweeps = q->sweeps,
                                      .sweep_count = q->sweep_count,
                                      .plan_fixed = values->slots[SLOT_PLAN_FIXED].given,
                                      .efficiency = efficiency,
                                      .options = &how};
  cli_search_begin();
  dp_progress_begin(&progress, "whatif", 0);
  const dp_status status = sim_whatif(&request, result, error);
  dp_progress_end(&progress);
  cli_search_end();
  return status;
}

static dp_status tell(const question *q, const sim_whatif_result *result, dp_error *error) {
  const cli_values *values = q->values;
  const plan_whatif *whatif = &q->scenario.whatif;
  cli_whatif_answer answer = {.result = result,
                              .scenario = q->scenario.name,
                              .global_batch = sim_tune_global_batch(&q->scenario, NULL),
                              .terms = {whatif->usd_per_kwh, whatif->hours_per_month, whatif->utilisation}};
  for (int i = 0; i < result->row_count; i++)
    if (result->rows[i].file == q->clusters[q->reference].file) answer.reference = &result->rows[i];
  json_t *json = NULL;
  DP_TRY(cli_whatif_json(&answer, &json, error));
  dp_status status = DP_OK;
  if (values->slots[SLOT_OUT].given)
    status =
        cli_whatif_folder(&answer, json, values->slots[SLOT_OUT].string, !values->slots[SLOT_NO_PLOTS].given, error);
  if (status == DP_OK && values->slots[SLOT_JSON].given) {
    status = cli_json_print(json, error);
  } else if (status == DP_OK && values->slots[SLOT_CSV].given) {
    cli_whatif_csv(&answer, stdout);
  } else if (status == DP_OK) {
    cli_whatif_print_tables(&answer);
  }
  json_decref(json);
  return status;
}

static dp_status check_options(const cli_values *values, dp_error *error) {
  if (values->slots[SLOT_JSON].given && values->slots[SLOT_CSV].given)
    return dp_fail(error, DP_BAD_INPUT, "whatif: found --json and --csv, allowed: one of them");
  return cli_folder_check(values, "whatif", SLOT_OUT, SLOT_NO_PLOTS, error);
}

/* ---- a recorded run ---- */

static const char *slot_name(int slot) {
  for (size_t i = 0; i < DP_COUNT_OF(options); i++)
    if (options[i].slot == slot) return options[i].name;
  return "";
}

/* Options of scenarios mean nothing for records, and the other way round. */
static dp_status check_which(const cli_values *values, dp_error *error) {
  static const int of_scenarios[] = {SLOT_REFERENCE, SLOT_USD_PER_KWH, SLOT_PLAN_FIXED, SLOT_THREADS,
                                     SLOT_OUT,       SLOT_NO_PLOTS,    SLOT_PROFILE};
  static const int of_records[] = {SLOT_STEPS_FROM, SLOT_PRECISION, SLOT_HOST_FACTOR, SLOT_DEVICE_WAS,
                                   SLOT_CLUSTER_WAS};
  const bool from = values->slots[SLOT_FROM].given;
  const int *const slots = from ? of_scenarios : of_records;
  const size_t count = from ? DP_COUNT_OF(of_scenarios) : DP_COUNT_OF(of_records);
  for (size_t i = 0; i < count; i++)
    if (values->slots[slots[i]].given)
      return dp_fail(error, DP_BAD_INPUT, "whatif: found --%s, allowed: only %s --from", slot_name(slots[i]),
                     from ? "without" : "with");
  if (from && (values->set_count || values->sweep_count))
    return dp_fail(error, DP_BAD_INPUT, "whatif: found --%s, allowed: only without --from",
                   values->set_count ? "set" : "sweep");
  if (from && values->argument_count)
    return dp_fail(error, DP_BAD_INPUT, "whatif: found the scenario %.200s beside --from, allowed: one of them",
                   values->arguments[0]);
  if (!from && !values->argument_count)
    return dp_fail(error, DP_BAD_INPUT, "whatif: found 0 arguments, allowed: one, the scenario; or --from DIR");
  return DP_OK;
}

static dp_status run_from(const cli_values *values, dp_error *error) {
  const cli_from_question recorded = {.folder = values->slots[SLOT_FROM].string,
                                      .clusters = values->repeated,
                                      .cluster_count = values->repeated_count,
                                      .precision = values->slots[SLOT_PRECISION].string,
                                      .device_was = values->slots[SLOT_DEVICE_WAS].string,
                                      .cluster_was = values->slots[SLOT_CLUSTER_WAS].string,
                                      .host_factor = values->slots[SLOT_HOST_FACTOR].string,
                                      .steps_from = values->slots[SLOT_STEPS_FROM].string,
                                      .json = values->slots[SLOT_JSON].given,
                                      .csv = values->slots[SLOT_CSV].given};
  return cli_whatif_from(&recorded, error);
}

static dp_status run(const cli_values *values, dp_error *error) {
  DP_TRY(check_which(values, error));
  DP_TRY(check_options(values, error));
  if (values->slots[SLOT_FROM].given) return run_from(values, error);
  question q = {.values = values};
  sim_efficiency *efficiency = NULL;
  sim_whatif_result result;
  dp_status status = ask(&q, error);
  if (status == DP_OK && values->slots[SLOT_PLAN_FIXED].given && q.sweep_count == 0)
    status = dp_fail(error, DP_BAD_INPUT, "whatif: found --plan-fixed, allowed: only with a sweep");
  if (status == DP_OK) status = cli_efficiency_read(&efficiency, error);
  if (status == DP_OK) status = search(&q, efficiency, &result, error);
  if (status == DP_OK) {
    status = tell(&q, &result, error);
    sim_whatif_free(&result);
  }
  sim_efficiency_free(efficiency);
  plan_scenario_free(&q.scenario);
  dp_arena_free(&q.arena);
  return status;
}

const cli_command cli_whatif = {
    .name = "whatif",
    .arguments = "SCENARIO",
    .takes = "one, the scenario",
    .optional = true,
    .summary = "Compare clusters for one job: the best plan on each, its cost, and what would help it.",
    .help =
        "Searches as `diffpipe tune` does on every cluster. A sweep searches at each value of a key of the\n"
        "scenario (task.global_batch=32:512:log5) or of the hardware (link.bandwidth_gb_per_s=16:900:log8).\n"
        "Ctrl-C ends with what is known so far. With --from, in place of a scenario, a recorded run is set in\n"
        "time again on every cluster, its work scaled by class; doc/whatif.md.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .run = run};
