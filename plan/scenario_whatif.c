#include "plan/scenario_reader.h"

typedef struct whatif_keys {
  const dp_node *clusters, *sweep;
  const char *reference;
  double usd_per_kwh, hours_per_month, utilisation;
} whatif_keys;

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(whatif_keys, key), false, min, max, NULL, help }
const dp_field plan_whatif_fields[PLAN_WHATIF_FIELD_COUNT] = {
    ROW(clusters, DP_FIELD_NODE, 0, 0, "list of cluster files to compare; --cluster replaces it"),
    ROW(reference, DP_FIELD_STRING, 0, 0, "cluster file that buying is weighed against; default the first"),
    ROW(usd_per_kwh, DP_FIELD_REAL, 0, 100, "USD for a kWh of power; default 0.15, an assumption"),
    ROW(hours_per_month, DP_FIELD_REAL, 0.001, 744, "default 730.5: all hours of a mean month"),
    ROW(utilisation, DP_FIELD_REAL, 0.001, 1, "share of these hours at work; default 1"),
    ROW(sweep, DP_FIELD_NODE, 0, 0,
        "list of \"KEY=FROM:TO:logN\", \"KEY=FROM:TO:linN\" or \"KEY=A,B,C\"; --sweep replaces it"),
};
#undef ROW

static dp_status check_strings(const dp_node *node, const char *what, const char *allowed, dp_error *error) {
  char shown[80];
  if (node->kind != DP_NODE_ARRAY)
    return dp_fail_at(error, node, "%s: found %s, allowed: a list of %s", what, dp_node_show(node, shown), allowed);
  for (size_t i = 0; i < node->count; i++)
    if (node->items[i]->kind != DP_NODE_STRING || !node->items[i]->string[0])
      return dp_fail_at(error, node->items[i], "%s: found %s, allowed: %s", what, dp_node_show(node->items[i], shown),
                        allowed);
  return DP_OK;
}

dp_status plan_scenario_read_whatif(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  whatif_keys keys = {.usd_per_kwh = 0.15, .hours_per_month = 365.25 * 24 / 12, .utilisation = 1};
  DP_TRY(dp_schema_read(table, scenario->document.root, "whatif", plan_whatif_fields, PLAN_WHATIF_FIELD_COUNT, &keys,
                        error));
  plan_whatif *whatif = &scenario->whatif;
  *whatif = (plan_whatif){.usd_per_kwh = keys.usd_per_kwh,
                          .hours_per_month = keys.hours_per_month,
                          .utilisation = keys.utilisation,
                          .sweep = keys.sweep};
  if (keys.sweep) DP_TRY(check_strings(keys.sweep, "whatif.sweep", "strings like \"task.global_batch=32,64\"", error));
  if (keys.clusters) {
    DP_TRY(check_strings(keys.clusters, "whatif.clusters", "paths of cluster files", error));
    plan_whatif_cluster *clusters = DP_ARENA_NEW(&scenario->arena, plan_whatif_cluster, keys.clusters->count);
    if (!clusters) return dp_fail_memory(error);
    for (size_t i = 0; i < keys.clusters->count; i++) {
      clusters[i].file = keys.clusters->items[i]->string;
      DP_TRY(plan_scenario_resolve(scenario, keys.clusters->items[i], "whatif.clusters", &clusters[i].path, error));
    }
    whatif->clusters = clusters;
    whatif->cluster_count = keys.clusters->count;
  }
  whatif->reference.file = keys.reference;
  if (!keys.reference) return DP_OK;
  return plan_scenario_resolve(scenario, dp_node_get(table, "reference"), "whatif.reference", &whatif->reference.path,
                               error);
}
