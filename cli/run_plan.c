#include "cli/run_plan.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/schema.h"
#include "reports/read.h"

/* What of plan.json is a key of [plan], under the same name. The rest is made from these, and compared afterwards. */
static const char *const integers[] = {"stages",       "chunks",          "data_parallel",   "tensor_parallel",
                                       "microbatches", "microbatch_size", "gradient_buckets"};
static const char *const texts[] = {"schedule", "skip_policy"};
static const char *const defaulted_integers[] = {"k", "nccl_sms"}; /* written where they are not 0 */

static dp_status fail_key(const dp_node *plan, const char *key, dp_error *error) {
  return dp_fail_at(error, plan, "the key \"%s\" is missing or of another kind, needed: a plan as simulate writes it",
                    key);
}

static bool add_list(const dp_node *list, const char *key, dp_str *out) {
  if (!list || list->kind != DP_NODE_ARRAY) return false;
  dp_str_addf(out, ", %s = [", key);
  for (size_t i = 0; i < list->count; i++) {
    const dp_node *item = list->items[i];
    dp_str_add(out, i ? ", " : "");
    if (item->kind == DP_NODE_INTEGER)
      dp_str_addf(out, "%lld", (long long)item->integer);
    else if (item->kind == DP_NODE_STRING && !strpbrk(item->string, "\"\\"))
      dp_str_addf(out, "\"%s\"", item->string);
    else
      return false;
  }
  dp_str_add(out, "]");
  return true;
}

/* plan.json has the devices' names; [plan] takes their places in the cluster, which setup.json lists. */
static bool add_devices(const dp_node *plan, const dp_node *setup, dp_str *out) {
  const dp_node *names = dp_node_get(plan, "devices"), *all = dp_node_get(dp_node_get(setup, "cluster"), "devices");
  if (!names || names->kind != DP_NODE_ARRAY || !all || all->kind != DP_NODE_ARRAY) return false;
  dp_str_add(out, ", devices = [");
  for (size_t w = 0; w < names->count; w++) {
    size_t d = 0;
    for (; d < all->count; d++) {
      const char *name = report_node_text(all->items[d], "name");
      if (name && names->items[w]->kind == DP_NODE_STRING && strcmp(name, names->items[w]->string) == 0) break;
    }
    if (d == all->count) return false;
    dp_str_addf(out, "%s%zu", w ? ", " : "", d);
  }
  dp_str_add(out, "]");
  return true;
}

static bool add_recomputed(const dp_node *plan, dp_str *out) {
  const dp_node *chunks = dp_node_get(plan, "placement");
  size_t units = 0;
  if (!chunks || chunks->kind != DP_NODE_ARRAY) return false;
  for (size_t c = 0; c < chunks->count; c++) {
    const dp_node *list = dp_node_get(chunks->items[c], "recompute");
    if (!list || list->kind != DP_NODE_ARRAY) return false;
    for (size_t i = 0; i < list->count; i++)
      dp_str_addf(out, "%s%lld", units++ ? ", " : ", recompute = [", (long long)list->items[i]->integer);
  }
  dp_str_add(out, units ? "]" : ", recompute = \"none\"");
  return true;
}

/* plan={stages = 2, ...}: in the place of the scenario's own [plan]. */
static dp_status make_assignment(const dp_node *plan, const dp_node *setup, dp_str *out, dp_error *error) {
  dp_str_add(out, "plan={");
  for (size_t i = 0; i < DP_COUNT_OF(integers); i++) {
    const dp_node *node = dp_node_get(plan, integers[i]);
    if (!node || node->kind != DP_NODE_INTEGER) return fail_key(plan, integers[i], error);
    dp_str_addf(out, "%s%s = %lld", i ? ", " : "", integers[i], (long long)node->integer);
  }
  for (size_t i = 0; i < DP_COUNT_OF(texts); i++) {
    const char *text = report_node_text(plan, texts[i]);
    if (!text || strpbrk(text, "\"\\")) return fail_key(plan, texts[i], error);
    dp_str_addf(out, ", %s = \"%s\"", texts[i], text);
  }
  const dp_node *skips = dp_node_get(plan, "skips");
  for (size_t i = 0; i < DP_COUNT_OF(defaulted_integers); i++) {
    const int64_t value = report_node_integer(plan, defaulted_integers[i]);
    if (value > 0) dp_str_addf(out, ", %s = %lld", defaulted_integers[i], (long long)value);
  }
  const char *transport = report_node_text(plan, "transport");
  if (transport && strpbrk(transport, "\"\\")) return fail_key(plan, "transport", error);
  if (transport) dp_str_addf(out, ", transport = \"%s\"", transport);
  if (skips && !add_list(skips, "skips", out)) return fail_key(plan, "skips", error);
  const dp_node *split = report_node_list(plan, "split");
  if (split && !add_list(split, "split", out)) return fail_key(plan, "split", error);
  if (!add_recomputed(plan, out)) return fail_key(plan, "placement", error);
  if (!add_devices(plan, setup, out)) return fail_key(plan, "devices", error);
  dp_str_add(out, "}");
  return out->failed ? dp_fail_memory(error) : DP_OK;
}

/* As it was named, from here or from the plan's folder. */
static dp_status find_scenario(const dp_node *setup, const char *folder, cli_run_source *source, dp_error *error) {
  const dp_node *node = dp_node_get(setup, "scenario_file");
  const char *file = report_node_text(setup, "scenario_file");
  if (!file)
    return dp_fail_at(error, node ? node : setup, "scenario_file: found none, needed: the scenario of the plan");
  const char *beside = dp_arena_printf(&source->arena, "%s/%s", folder, file);
  source->scenario = dp_arena_strdup(&source->arena, file);
  if (!beside || !source->scenario) return dp_fail_memory(error);
  if (access(source->scenario, R_OK) == 0) return DP_OK;
  if (access(beside, R_OK) == 0) {
    source->scenario = beside;
    return DP_OK;
  }
  return dp_fail_at(error, node,
                    "scenario_file: found \"%.200s\", which is neither here nor beside the plan, needed: "
                    "the scenario of the plan",
                    file);
}

static dp_status take_plan(const dp_node *plan, const dp_node *setup, const cli_values *values, const char *folder,
                           cli_run_source *source, dp_error *error) {
  const dp_node *given = dp_node_get(setup, "assignments");
  const size_t before = given && given->kind == DP_NODE_ARRAY ? given->count : 0;
  dp_str assignment = {0};
  DP_TRY(find_scenario(setup, folder, source, error));
  dp_status status = make_assignment(plan, setup, &assignment, error);
  const char **sets = DP_ARENA_NEW(&source->arena, const char *, before + 1 + (size_t)values->set_count);
  int count = 0;
  bool room = sets != NULL;
  for (size_t i = 0; room && status == DP_OK && i < before; i++) {
    if (given->items[i]->kind != DP_NODE_STRING) continue;
    sets[count] = dp_arena_strdup(&source->arena, given->items[i]->string);
    room = sets[count++] != NULL;
  }
  if (room && status == DP_OK) {
    sets[count] = dp_arena_strdup(&source->arena, dp_str_text(&assignment));
    room = sets[count++] != NULL;
    for (int i = 0; i < values->set_count; i++) sets[count++] = values->sets[i];
  }
  dp_str_free(&assignment);
  if (status == DP_OK && !room) status = dp_fail_memory(error);
  source->sets = sets;
  source->set_count = count;
  return status;
}

static dp_status read_plan(const char *path, const dp_node *plan, const cli_values *values, cli_run_source *source,
                           dp_error *error) {
  const char *slash = strrchr(path, '/');
  const char *folder =
      slash ? dp_arena_printf(&source->arena, "%.*s", (int)(slash - path), path) : dp_arena_strdup(&source->arena, ".");
  const char *beside = folder ? dp_arena_printf(&source->arena, "%s/setup.json", folder) : NULL;
  dp_document setup = {0};
  if (!beside) return dp_fail_memory(error);
  DP_TRY(dp_schema_check_format(plan, "diffpipe-plan", 1, error));
  DP_TRY(dp_document_read(beside, &setup, error));
  dp_status status = dp_schema_check_format(setup.root, "diffpipe-setup", 1, error);
  if (status == DP_OK) status = take_plan(plan, setup.root, values, folder, source, error);
  dp_document_free(&setup);
  return status;
}

static bool is_json(const char *path) {
  const size_t length = strlen(path);
  return length > 5 && strcmp(path + length - 5, ".json") == 0;
}

dp_status cli_run_source_of(const cli_values *values, cli_run_source *source, dp_error *error) {
  cli_run_source made = {.scenario = values->arguments[0], .sets = values->sets, .set_count = values->set_count};
  if (is_json(values->arguments[0])) {
    dp_document plan = {0};
    DP_TRY(dp_document_read(values->arguments[0], &plan, error));
    dp_status status = DP_OK;
    const char *format = report_node_text(plan.root, "format");
    if (!format || strcmp(format, "diffpipe-scenario") != 0) {
      made.plan_path = values->arguments[0];
      status = read_plan(values->arguments[0], plan.root, values, &made, error);
    }
    dp_document_free(&plan);
    if (status != DP_OK) {
      cli_run_source_free(&made);
      return status;
    }
  }
  *source = made;
  return DP_OK;
}

void cli_run_source_free(cli_run_source *source) {
  dp_arena_free(&source->arena);
  *source = (cli_run_source){.scenario = NULL};
}

dp_status cli_run_differences(const cli_run_source *source, const sim_prediction *prediction,
                              const plan_cluster *cluster, dp_str *lines, dp_error *error) {
  if (!source->plan_path) return DP_OK;
  json_t *wanted = json_load_file(source->plan_path, 0, NULL); /* was read before */
  json_t *made = plan_plan_json(&prediction->plan, &prediction->graph, cluster);
  if (!wanted || !made) {
    json_decref(wanted);
    json_decref(made);
    return dp_fail_memory(error);
  }
  const char *key;
  json_t *value;
  json_object_foreach(wanted, key, value) if (!json_equal(value, json_object_get(made, key)))
      dp_str_addf(lines,
                  "\"%s\" of %s is not what will run: it is made anew from the scenario and what is known of this "
                  "machine\n",
                  key, source->plan_path);
  json_object_foreach(made, key, value) if (!json_object_get(wanted, key))
      dp_str_addf(lines, "\"%s\" is not in %s\n", key, source->plan_path);
  json_decref(wanted);
  json_decref(made);
  return lines->failed ? dp_fail_memory(error) : DP_OK;
}

/* ---- sizes ---- */

static dp_status predict_size(const plan_scenario *scenario, const sim_efficiency *efficiency, const plan_plan *plan,
                              const plan_bucket *bucket, sim_prediction *made, int64_t *split, dp_error *error) {
  plan_scenario other = *scenario; /* a view: what it points to stays the scenario's */
  other.model_options.height = bucket->height;
  other.model_options.width = bucket->width;
  for (int c = 1; c < plan->chunk_count; c++) split[c - 1] = plan->chunks[c].first_unit;
  other.split = split;
  other.split_count = (size_t)plan->chunk_count - 1;
  return sim_predict(&other, efficiency, made, error);
}

static dp_status add_sizes(const plan_scenario *scenario, const sim_efficiency *efficiency,
                           const sim_prediction *prediction, cli_run_sizes *made, dp_error *error) {
  const size_t buckets = scenario->data.bucket_count;
  int64_t *split = DP_ARENA_NEW(&made->arena, int64_t, (size_t)prediction->plan.chunk_count);
  made->sizes = DP_ARENA_NEW(&made->arena, exec_session_size, buckets + 1);
  made->made = DP_ARENA_NEW(&made->arena, sim_prediction, buckets + 1);
  if (!split || !made->sizes || !made->made) return dp_fail_memory(error);
  for (size_t b = 0; b < (buckets ? buckets : 1); b++) {
    const sim_prediction *own = prediction;
    if (buckets && (scenario->data.buckets[b].height != prediction->graph.height ||
                    scenario->data.buckets[b].width != prediction->graph.width)) {
      DP_TRY(predict_size(scenario, efficiency, &prediction->plan, &scenario->data.buckets[b], &made->made[b], split,
                          error));
      own = &made->made[b];
    }
    made->sizes[b] = (exec_session_size){&own->graph, &own->program};
    made->count = b + 1;
  }
  return DP_OK;
}

dp_status cli_run_sizes_of(const plan_scenario *scenario, const sim_efficiency *efficiency,
                           const sim_prediction *prediction, cli_run_sizes *sizes, dp_error *error) {
  cli_run_sizes made = {.count = 0};
  const dp_status status = add_sizes(scenario, efficiency, prediction, &made, error);
  if (status == DP_OK)
    *sizes = made;
  else
    cli_run_sizes_free(&made);
  return status;
}

void cli_run_sizes_free(cli_run_sizes *sizes) {
  for (size_t b = 0; b < sizes->count; b++)
    if (sizes->sizes[b].graph == &sizes->made[b].graph) sim_prediction_free(&sizes->made[b]);
  dp_arena_free(&sizes->arena);
  *sizes = (cli_run_sizes){.count = 0};
}
