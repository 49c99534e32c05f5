#include "cli/recalibrate.h"

#include <string.h>

#include "reports/read.h"

/* Sums of one kind of instruction over the chunks, each by its median: a few slow ones do not count. */
typedef struct sum {
  double predicted_s, measured_s;
} sum;

/* One of "forward", "backward", or a row of "kinds". */
static void add(const dp_node *compared, sum *to) {
  const double count = report_node_real(compared, "count");
  to->predicted_s += count * report_node_real(dp_node_get(compared, "predicted"), "median_s");
  to->measured_s += count * report_node_real(dp_node_get(compared, "measured"), "median_s");
}

static dp_status factor_of(const dp_node *root, const char *what, const sum *s, double *factor, dp_error *error) {
  const double found = s->predicted_s > 0 ? s->measured_s / s->predicted_s : 0;
  if (!(found >= 0.01 && found <= 100)) /* else it was another machine, or nothing like the scenario */
    return dp_fail_at(error, root, "calibrate: %s took %.3g times what was predicted, allowed: 0.01 to 100 times", what,
                      found);
  *factor = found;
  return DP_OK;
}

static dp_status read_factors(const dp_node *root, plan_profile_factors *factors, dp_error *error) {
  const dp_node *chunks = dp_node_get(root, "chunks"), *kinds = dp_node_get(root, "kinds");
  sum forward = {0, 0}, backward = {0, 0}, optimizer = {0, 0};
  plan_profile_factors found;
  for (size_t i = 0; chunks && i < chunks->count; i++) {
    add(dp_node_get(chunks->items[i], "forward"), &forward);
    add(dp_node_get(chunks->items[i], "backward"), &backward);
  }
  for (size_t i = 0; kinds && i < kinds->count; i++) {
    const char *kind = report_node_text(kinds->items[i], "kind");
    if (kind && strcmp(kind, plan_opcode_names[PLAN_OPTIMIZER_STEP]) == 0) add(kinds->items[i], &optimizer);
  }
  DP_TRY(factor_of(root, "forward", &forward, &found.forward, error));
  DP_TRY(factor_of(root, "backward", &backward, &found.backward, error));
  DP_TRY(factor_of(root, "the optimizer", &optimizer, &found.optimizer, error));
  *factors = found;
  return DP_OK;
}

static bool names(const char *assignment, const char *profile) {
  static const char key[] = "cluster.profile=";
  if (strncmp(assignment, key, sizeof key - 1) != 0) return false;
  const char *value = assignment + sizeof key - 1;
  const size_t length = strlen(profile), quoted = value[0] == '"';
  return strncmp(value + quoted, profile, length) == 0 && strcmp(value + quoted + length, quoted ? "\"" : "") == 0;
}

/* The run was given the profile as it is given here, or has it from the scenario as here. */
static dp_status check_setup(const dp_document *setup, const plan_scenario *scenario, dp_error *error) {
  const dp_node *given = plan_scenario_node(scenario, "cluster", "profile");
  const dp_node *list = dp_node_get(setup->root, "assignments");
  bool any = false, same = false;
  for (size_t i = 0; list && i < list->count; i++) {
    if (list->items[i]->kind != DP_NODE_STRING || strncmp(list->items[i]->string, "cluster.profile=", 16) != 0)
      continue;
    any = true;
    same = names(list->items[i]->string, given->string);
  }
  if (any ? same : given->line > 0) return DP_OK;
  return dp_fail_at(error, list ? list : setup->root,
                    "calibrate: the run was predicted %s, allowed: with %.200s, as given here",
                    any ? "with another profile" : "without a profile", given->string);
}

static dp_status check_scenario(const dp_document *comparison, const plan_scenario *scenario, dp_error *error) {
  const dp_node *node = dp_node_get(comparison->root, "scenario");
  const char *name = report_node_text(comparison->root, "scenario");
  if (name && strcmp(name, scenario->name) == 0) return DP_OK;
  return dp_fail_at(error, node ? node : comparison->root, "calibrate: found a run of %s, allowed: of %s",
                    name ? name : "nothing", scenario->name);
}

dp_status cli_recalibrate(const plan_scenario *scenario, const char *folder, plan_profile_factors *factors,
                          double *step_s, dp_error *error) {
  dp_arena arena = {0};
  dp_document comparison = {0}, setup = {0};
  const char *path = dp_arena_printf(&arena, "%s/comparison.json", folder);
  const char *setup_path = dp_arena_printf(&arena, "%s/setup.json", folder);
  dp_status status = path && setup_path ? dp_document_read(path, &comparison, error) : dp_fail_memory(error);
  if (status == DP_OK) status = report_root_check(comparison.root, "diffpipe-comparison", error);
  if (status == DP_OK) status = dp_document_read(setup_path, &setup, error);
  if (status == DP_OK) status = report_root_check(setup.root, "diffpipe-setup", error);
  if (status == DP_OK) status = check_scenario(&comparison, scenario, error);
  if (status == DP_OK) status = check_setup(&setup, scenario, error);
  if (status == DP_OK) status = read_factors(comparison.root, factors, error);
  if (status == DP_OK) *step_s = report_node_real(dp_node_get(comparison.root, "step_s"), "predicted");
  dp_document_free(&setup);
  dp_document_free(&comparison);
  dp_arena_free(&arena);
  return status;
}

dp_status cli_run_profile_of(const char *folder, dp_arena *arena, const char **assignment, dp_error *error) {
  dp_document setup = {0};
  const char *path = dp_arena_printf(arena, "%s/setup.json", folder);
  *assignment = NULL;
  if (!path) return dp_fail_memory(error);
  DP_TRY(dp_document_read(path, &setup, error));
  dp_status status = report_root_check(setup.root, "diffpipe-setup", error);
  const dp_node *list = dp_node_get(setup.root, "assignments");
  for (size_t i = 0; list && i < list->count && status == DP_OK; i++) {
    if (list->items[i]->kind != DP_NODE_STRING || strncmp(list->items[i]->string, "cluster.profile=", 16) != 0)
      continue;
    *assignment = dp_arena_strdup(arena, list->items[i]->string);
    if (!*assignment) status = dp_fail_memory(error);
  }
  dp_document_free(&setup);
  return status;
}
