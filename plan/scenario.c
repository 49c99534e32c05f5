#include "plan/scenario.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "plan/cluster_change.h"
#include "plan/describe.h"
#include "plan/scenario_reader.h"

const dp_node *plan_scenario_node(const plan_scenario *scenario, const char *table, const char *key) {
  const dp_node *root = scenario->document.root, *section = dp_node_get(root, table);
  const dp_node *node = dp_node_get(section, key);
  return node ? node : section ? section : root;
}

const dp_node *plan_scenario_first_of(const dp_node *table, const char *const *keys) {
  for (; *keys; keys++)
    if (dp_node_get(table, *keys)) return dp_node_get(table, *keys);
  return NULL;
}

static bool opens(const char *path) {
  FILE *stream = fopen(path, "rb");
  if (stream) (void)fclose(stream);
  return stream != NULL;
}

dp_status plan_scenario_resolve(plan_scenario *scenario, const dp_node *node, const char *what, const char **path,
                                dp_error *error) {
  const char *const from[] = {node->line > 0 ? node->file : NULL, scenario->document.file};
  for (int i = 0; i < 2; i++) {
    *path = dp_path_resolve(&scenario->arena, from[i], node->string);
    if (!*path) return dp_fail_memory(error);
    if (opens(*path)) return DP_OK;
  }
  return dp_fail_at(error, node,
                    "%s: found \"%.200s\", which cannot be opened, allowed: a file beside the scenario or in the "
                    "installed data",
                    what, node->string);
}

/* ---- the file ---- */

typedef struct file_keys {
  const char *format, *name;
  int64_t version;
  const dp_node *model, *task, *cluster, *plan, *search, *link, *device, *host, *whatif, *train, *data, *monitor;
} file_keys;

static const dp_field file_fields[] = {
    {"format", DP_FIELD_STRING, offsetof(file_keys, format), true, 0, 0, NULL, "diffpipe-scenario"},
    {"version", DP_FIELD_INTEGER, offsetof(file_keys, version), true, 1, 1, NULL, "1"},
    {"name", DP_FIELD_STRING, offsetof(file_keys, name), false, 0, 0, NULL, "default the file's name"},
    {"model", DP_FIELD_NODE, offsetof(file_keys, model), true, 0, 0, NULL, "[model], with config or synthetic_units"},
    {"task", DP_FIELD_NODE, offsetof(file_keys, task), false, 0, 0, NULL, "[task]"},
    {"cluster", DP_FIELD_NODE, offsetof(file_keys, cluster), true, 0, 0, NULL,
     "[cluster], with file or [[cluster.node]]"},
    {"plan", DP_FIELD_NODE, offsetof(file_keys, plan), false, 0, 0, NULL, "[plan]"},
    {"search", DP_FIELD_NODE, offsetof(file_keys, search), false, 0, 0, NULL, "[search]"},
    {"link", DP_FIELD_NODE, offsetof(file_keys, link), false, 0, 0, NULL, "[link]: what is changed of the cluster's"},
    {"device", DP_FIELD_NODE, offsetof(file_keys, device), false, 0, 0, NULL, "[device]: what is changed of its cards"},
    {"host", DP_FIELD_NODE, offsetof(file_keys, host), false, 0, 0, NULL, "[host]: what is changed of its machines"},
    {"whatif", DP_FIELD_NODE, offsetof(file_keys, whatif), false, 0, 0, NULL, "[whatif]"},
    {"train", DP_FIELD_NODE, offsetof(file_keys, train), false, 0, 0, NULL, "[train]"},
    {"data", DP_FIELD_NODE, offsetof(file_keys, data), false, 0, 0, NULL, "[data]"},
    {"monitor", DP_FIELD_NODE, offsetof(file_keys, monitor), false, 0, 0, NULL, "[monitor]"},
};

/* "scenarios/sdxl.toml" -> "sdxl" */
static const char *stem(dp_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  const char *base = slash ? slash + 1 : path;
  const char *dot = strrchr(base, '.');
  return dp_arena_printf(arena, "%.*s", (int)(dot && dot > base ? dot - base : (ptrdiff_t)strlen(base)), base);
}

bool plan_scenario_says_implementation(const plan_scenario *scenario) {
  return dp_node_get(dp_node_get(scenario->document.root, "task"), "implementation") != NULL;
}

/* What is to be trained here is planned for the executor that does it. */
static void default_implementation(const dp_node *train, plan_scenario *scenario) {
  if (!train || plan_scenario_says_implementation(scenario) || scenario->cluster.devices.count == 0) return;
  scenario->implementation = plan_device_is_processor(scenario->cluster.devices.items[0].model) ? "cpu" : "cuda";
}

static dp_status read_root(plan_scenario *scenario, const char *cluster_file, dp_error *error) {
  const dp_node *root = scenario->document.root;
  DP_TRY(dp_schema_check_format(root, "diffpipe-scenario", 1, error));
  file_keys keys = {0};
  DP_TRY(dp_schema_read(root, NULL, "scenario", file_fields, DP_COUNT_OF(file_fields), &keys, error));
  scenario->name = keys.name ? keys.name : stem(&scenario->arena, scenario->document.file);
  if (!scenario->name) return dp_fail_memory(error);
  DP_TRY(plan_scenario_read_model(keys.model, scenario, error));
  DP_TRY(plan_scenario_read_task(keys.task, scenario, error));
  DP_TRY(plan_scenario_read_train(keys.train, scenario, error));
  DP_TRY(plan_scenario_read_data(keys.data, scenario, error));
  DP_TRY(plan_scenario_read_monitor(keys.monitor, scenario, error));
  DP_TRY(plan_catalogue_read(NULL, &scenario->catalogue, error));
  DP_TRY(cluster_file ? plan_cluster_read(cluster_file, &scenario->catalogue, &scenario->cluster_document,
                                          &scenario->cluster, error)
                      : plan_scenario_read_cluster(keys.cluster, scenario, error));
  DP_TRY(plan_cluster_change(root, &scenario->catalogue, &scenario->cluster, error));
  default_implementation(keys.train, scenario);
  DP_TRY(plan_scenario_read_profile(dp_node_get(keys.cluster, "profile"), cluster_file != NULL, scenario, error));
  DP_TRY(scenario->job_only ? plan_scenario_read_batch(keys.plan, keys.task, scenario, error)
                            : plan_scenario_read_plan(keys.plan, scenario, error));
  DP_TRY(plan_scenario_read_search(keys.search, scenario, error));
  DP_TRY(plan_scenario_read_whatif(keys.whatif, scenario, error));
  plan_plan plan = {0};
  DP_TRY(plan_scenario_plan(scenario, &plan, error)); /* contradictions show now */
  plan_plan_free(&plan);
  return DP_OK;
}

static dp_status finish(plan_scenario *made, const char *cluster_file, plan_scenario *scenario, dp_error *error) {
  const dp_status status = read_root(made, cluster_file, error);
  if (status != DP_OK)
    plan_scenario_free(made);
  else
    *scenario = *made;
  return status;
}

dp_status plan_scenario_read_from(const plan_scenario_source *source, plan_scenario *scenario, dp_error *error) {
  plan_scenario made = {.job_only = source->job_only};
  DP_TRY(dp_document_read(source->path, &made.document, error));
  for (int i = 0; i < source->set_count; i++) {
    dp_status status = DP_OK;
    if (made.document.root->kind == DP_NODE_TABLE) status = dp_document_set(&made.document, source->sets[i], error);
    if (status != DP_OK) {
      plan_scenario_free(&made);
      return status;
    }
  }
  return finish(&made, source->cluster_file, scenario, error);
}

dp_status plan_scenario_read(const char *path, const char *const *sets, int set_count, plan_scenario *scenario,
                             dp_error *error) {
  const plan_scenario_source source = {.path = path, .sets = sets, .set_count = set_count};
  return plan_scenario_read_from(&source, scenario, error);
}

dp_status plan_scenario_read_job(const char *path, const char *const *sets, int set_count, plan_scenario *scenario,
                                 dp_error *error) {
  const plan_scenario_source source = {.path = path, .sets = sets, .set_count = set_count, .job_only = true};
  return plan_scenario_read_from(&source, scenario, error);
}

dp_status plan_scenario_parse(const char *text, size_t length, const char *name, plan_scenario *scenario,
                              dp_error *error) {
  plan_scenario made = {0};
  DP_TRY(dp_document_parse_toml(text, length, name, &made.document, error));
  return finish(&made, NULL, scenario, error);
}

void plan_scenario_free(plan_scenario *scenario) {
  if (scenario->profile) plan_profile_free(scenario->profile);
  plan_cluster_free(&scenario->cluster);
  plan_catalogue_free(&scenario->catalogue);
  dp_document_free(&scenario->cluster_document);
  dp_document_free(&scenario->document);
  dp_arena_free(&scenario->arena);
  *scenario = (plan_scenario){0};
}

size_t plan_scenario_tables(const plan_key_table **tables) {
  static const plan_key_table all[] = {
      {"the top of the file", file_fields, DP_COUNT_OF(file_fields)},
      {"[model]", plan_model_fields, PLAN_MODEL_FIELD_COUNT},
      {"[task]", plan_task_fields, PLAN_TASK_FIELD_COUNT},
      {"[plan]", plan_plan_fields, PLAN_PLAN_FIELD_COUNT},
      {"[search]", plan_search_fields, PLAN_SEARCH_FIELD_COUNT},
      {"[whatif]", plan_whatif_fields, PLAN_WHATIF_FIELD_COUNT},
      {"[train]", plan_train_fields, PLAN_TRAIN_FIELD_COUNT},
      {"[data]", plan_data_fields, PLAN_DATA_FIELD_COUNT},
      {"[monitor]", plan_monitor_fields, PLAN_MONITOR_FIELD_COUNT},
  };
  *tables = all;
  return DP_COUNT_OF(all);
}
