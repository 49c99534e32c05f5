/* What the readers of a scenario share: plan/scenario.c has the file; [model], [task], [cluster], [plan], [search],
 * [whatif] and [monitor] have each a plan/scenario_NAME.c, and plan/scenario_train.c has [train] and [data]. Internal to
 * plan/.
 */
#ifndef DP_PLAN_SCENARIO_READER_H
#define DP_PLAN_SCENARIO_READER_H

#include "base/schema.h"
#include "plan/scenario.h"

/* A file that the scenario names: beside it, else in the installed data; of --set: from the current folder first. */
dp_status plan_scenario_resolve(plan_scenario *scenario, const dp_node *node, const char *what, const char **path,
                                dp_error *error);

/* Whether it has task.implementation. */
bool plan_scenario_says_implementation(const plan_scenario *scenario);
/* The first of `keys` that the table has; NULL: it has none. */
const dp_node *plan_scenario_first_of(const dp_node *table, const char *const *keys);

enum {
  PLAN_MODEL_FIELD_COUNT = 13,
  PLAN_TASK_FIELD_COUNT = 10,
  PLAN_PLAN_FIELD_COUNT = 16,
  PLAN_SEARCH_FIELD_COUNT = 15,
  PLAN_WHATIF_FIELD_COUNT = 6
};
extern const dp_field plan_model_fields[PLAN_MODEL_FIELD_COUNT], plan_task_fields[PLAN_TASK_FIELD_COUNT];
extern const dp_field plan_plan_fields[PLAN_PLAN_FIELD_COUNT], plan_search_fields[PLAN_SEARCH_FIELD_COUNT];
extern const dp_field plan_whatif_fields[PLAN_WHATIF_FIELD_COUNT];
enum { PLAN_TRAIN_FIELD_COUNT = 25, PLAN_DATA_FIELD_COUNT = 4, PLAN_MONITOR_FIELD_COUNT = 11 };
extern const dp_field plan_train_fields[PLAN_TRAIN_FIELD_COUNT], plan_data_fields[PLAN_DATA_FIELD_COUNT];
extern const dp_field plan_monitor_fields[PLAN_MONITOR_FIELD_COUNT];
dp_status plan_scenario_read_model(const dp_node *table, plan_scenario *scenario, dp_error *error);
dp_status plan_scenario_read_task(const dp_node *table, plan_scenario *scenario, dp_error *error);
/* The whole table, whose key `profile` is left to the next one; that is read after [model], [task] and this. */
dp_status plan_scenario_read_cluster(const dp_node *whole, plan_scenario *scenario, dp_error *error);
/* The value of cluster.profile; NULL: none. `anywhere`: the cluster is one of several, and this may be the profile of
 * another. */
dp_status plan_scenario_read_profile(const dp_node *node, bool anywhere, plan_scenario *scenario, dp_error *error);
dp_status plan_scenario_read_plan(const dp_node *table, plan_scenario *scenario, dp_error *error);
/* In its place for the job alone: [plan] is not looked at, but for typing errors and, without task.global_batch, for the
 * batch that it makes. `task`: [task], for the error; NULL: there is none. */
dp_status plan_scenario_read_batch(const dp_node *table, const dp_node *task, plan_scenario *scenario, dp_error *error);
dp_status plan_scenario_read_search(const dp_node *table, plan_scenario *scenario, dp_error *error);
/* NULL: the defaults. [train] is read after [task]. */
dp_status plan_scenario_read_whatif(const dp_node *table, plan_scenario *scenario, dp_error *error);
dp_status plan_scenario_read_train(const dp_node *table, plan_scenario *scenario, dp_error *error);
dp_status plan_scenario_read_data(const dp_node *table, plan_scenario *scenario, dp_error *error);
dp_status plan_scenario_read_monitor(const dp_node *table, plan_scenario *scenario, dp_error *error);

#endif
