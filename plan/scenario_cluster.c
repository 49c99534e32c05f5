/* [cluster] of a scenario, in the file or in one of its own, and its profile. */
#include <string.h>

#include "plan/scenario_reader.h"

/* The table without `profile`, which is no key of a cluster. */
static const dp_node *without_profile(const dp_node *table, dp_arena *arena) {
  if (!dp_node_get(table, "profile")) return table;
  dp_node *bare = DP_ARENA_NEW(arena, dp_node, 1);
  if (!bare) return NULL;
  *bare = *table;
  bare->items = DP_ARENA_NEW(arena, dp_node *, table->count);
  bare->count = bare->capacity = 0;
  if (!bare->items) return NULL;
  for (size_t i = 0; i < table->count; i++)
    if (strcmp(table->items[i]->key, "profile") != 0) bare->items[bare->count++] = table->items[i];
  return bare;
}

dp_status plan_scenario_read_cluster(const dp_node *whole, plan_scenario *scenario, dp_error *error) {
  const dp_node *file = dp_node_get(whole, "file");
  char shown[80];
  if (whole->kind != DP_NODE_TABLE)
    return dp_fail_at(error, whole, "cluster: found %s, allowed: a table", dp_node_show(whole, shown));
  const dp_node *table = without_profile(whole, &scenario->arena);
  if (!table) return dp_fail_memory(error);
  if (!file) {
    if (table->count == 0)
      return dp_fail_at(error, table,
                        "cluster: found neither file nor node, needed: a cluster file or [[cluster.node]]");
    return plan_cluster_build(table, &scenario->catalogue, &scenario->cluster, error);
  }
  for (size_t i = 0; i < table->count; i++)
    if (table->items[i] != file)
      return dp_fail_at(error, table->items[i], "cluster.%.60s: found beside file, allowed: one of the two",
                        table->items[i]->key);
  if (file->kind != DP_NODE_STRING || !file->string[0])
    return dp_fail_at(error, file, "cluster.file: found %s, allowed: the path of a cluster file",
                      dp_node_show(file, shown));
  const char *path = NULL;
  DP_TRY(plan_scenario_resolve(scenario, file, "cluster.file", &path, error));
  return plan_cluster_read(path, &scenario->catalogue, &scenario->cluster_document, &scenario->cluster, error);
}

/* ---- its profile ---- */

static bool is_of_job(const plan_scenario *scenario, const plan_profile *profile) {
  return strcmp(profile->implementation, scenario->implementation) == 0 &&
         profile->precision == scenario->model_options.precision;
}

const plan_profile *plan_scenario_profile(const plan_scenario *scenario, const plan_device *device) {
  const plan_profile *profile = scenario->profile;
  if (!profile || scenario->synthetic || !is_of_job(scenario, profile)) return NULL;
  return strcmp(profile->device, device->model->name) == 0 ? profile : NULL;
}

dp_status plan_scenario_read_profile(const dp_node *node, bool anywhere, plan_scenario *scenario, dp_error *error) {
  char shown[80];
  if (!node) return DP_OK;
  if (node->kind != DP_NODE_STRING || !node->string[0])
    return dp_fail_at(error, node, "cluster.profile: found %s, allowed: the path of a profile.json",
                      dp_node_show(node, shown));
  DP_TRY(plan_scenario_resolve(scenario, node, "cluster.profile", &scenario->profile_path, error));
  plan_profile *profile = DP_ARENA_NEW(&scenario->arena, plan_profile, 1);
  if (!profile) return dp_fail_memory(error);
  DP_TRY(plan_profile_read(scenario->profile_path, profile, error));
  scenario->profile = profile;
  /* What runs on GPUs is known by its profile; without one, what is compared is what others run. */
  if (strcmp(profile->implementation, "cuda") == 0 && !plan_scenario_says_implementation(scenario))
    scenario->implementation = profile->implementation;
  if (anywhere || scenario->synthetic) return DP_OK;
  if (!is_of_job(scenario, profile))
    return dp_fail_at(error, node, "cluster.profile: found one of %s in %s, allowed: of %s in %s, as the job runs",
                      profile->implementation, graph_dtype_name(profile->precision), scenario->implementation,
                      graph_dtype_name(scenario->model_options.precision));
  for (size_t d = 0; d < scenario->cluster.devices.count; d++)
    if (plan_scenario_profile(scenario, &scenario->cluster.devices.items[d])) return DP_OK;
  return dp_fail_at(error, node, "cluster.profile: found one of %.60s, allowed: of a device of the cluster (%.60s)",
                    profile->device, scenario->cluster.devices.items[0].model->name);
}
