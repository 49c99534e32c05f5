/* What the readers of a scenario share: plan/scenario.c has the file, plan/scenario_whatif.c [whatif],
 * plan/scenario_train.c [train] and [data], plan/scenario_monitor.c [monitor]. Internal to plan/.
 */
#ifndef DP_PLAN_SCENARIO_READER_H
#define DP_PLAN_SCENARIO_READER_H

#include "base/schema.h"
#include "plan/scenario.h"

/* A file that the scenario names: beside it, else in the installed data; of --set: from the current folder first. */
dp_status plan_scenario_resolve(plan_scenario *scenario, const dp_node *node, const char *what, const char **path,
                                dp_error *error);

enum { PLAN_WHATIF_FIELD_COUNT = 6 };
extern const dp_field plan_whatif_fields[PLAN_WHATIF_FIELD_COUNT];
enum { PLAN_TRAIN_FIELD_COUNT = 25, PLAN_DATA_FIELD_COUNT = 4, PLAN_MONITOR_FIELD_COUNT = 11 };
extern const dp_field plan_train_fields[PLAN_TRAIN_FIELD_COUNT], plan_data_fields[PLAN_DATA_FIELD_COUNT];
extern const dp_field plan_monitor_fields[PLAN_MONITOR_FIELD_COUNT];
/* NULL: the defaults. [train] is read after [task]. */
dp_status plan_scenario_read_whatif(const dp_node *table, plan_scenario *scenario, dp_error *error);
dp_status plan_scenario_read_train(const dp_node *table, plan_scenario *scenario, dp_error *error);
dp_status plan_scenario_read_data(const dp_node *table, plan_scenario *scenario, dp_error *error);
dp_status plan_scenario_read_monitor(const dp_node *table, plan_scenario *scenario, dp_error *error);

#endif
