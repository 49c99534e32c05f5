/* [monitor] of a scenario. */
#include "plan/scenario_reader.h"

const plan_monitor plan_monitor_defaults = {.baseline_steps = 20,
                                            .window_steps = 64,
                                            .multiple = 1.5,
                                            .z_score = 6,
                                            .least_share = 0.05,
                                            .slow_steps = 2,
                                            .recovered_multiple = 1.2,
                                            .recovered_steps = 3,
                                            .drift = 0.08,
                                            .probe_every = 5};

#define ROW(key, type, min, max, help) \
  { #key, type, offsetof(plan_monitor, key), false, min, max, NULL, help }
const dp_field plan_monitor_fields[PLAN_MONITOR_FIELD_COUNT] = {
    ROW(baseline_steps, DP_FIELD_INTEGER, 2, 4096, "steps before anything is said; default 20"),
    ROW(window_steps, DP_FIELD_INTEGER, 2, 4096,
        "the newest so many that were not slow are the baseline, at least baseline_steps; default 64"),
    ROW(multiple, DP_FIELD_REAL, 1.01, 1e6, "a slow value is more than so many times the baseline's mean; default 1.5"),
    ROW(z_score, DP_FIELD_REAL, 0, 1e9,
        "and so many deviations over its median (1.4826 MAD, at least 1 % of the median); default 6"),
    ROW(least_share, DP_FIELD_REAL, 0, 1e6,
        "and, of a stage or link, over its mean by this part of the mean step; default 0.05"),
    ROW(slow_steps, DP_FIELD_INTEGER, 1, 1e6, "in a row make an alarm; default 2"),
    ROW(recovered_multiple, DP_FIELD_REAL, 1, 1e6, "well again is at most so many times the mean; default 1.2"),
    ROW(recovered_steps, DP_FIELD_INTEGER, 1, 1e6, "in a row, or probes of a link that was left; default 3"),
    ROW(drift, DP_FIELD_REAL, 0, 1e6,
        "a note when measured / predicted of a stage has changed by so much; 0: none; default 0.08"),
    ROW(probe_every, DP_FIELD_INTEGER, 1, 1e6, "steps between probes of a link that was left; default 5"),
    ROW(hook, DP_FIELD_STRING, 0, 0, "a command for the shell at each event, doc/monitor.md; default none"),
};
#undef ROW

dp_status plan_scenario_read_monitor(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  plan_monitor *m = &scenario->monitor;
  *m = plan_monitor_defaults;
  DP_TRY(dp_schema_read(table, scenario->document.root, "monitor", plan_monitor_fields, PLAN_MONITOR_FIELD_COUNT, m,
                        error));
  if (m->window_steps < m->baseline_steps && !dp_node_get(table, "window_steps")) m->window_steps = m->baseline_steps;
  if (m->window_steps < m->baseline_steps)
    return dp_fail_at(error, dp_node_get(table, "window_steps"),
                      "monitor.window_steps: found %lld, allowed: at least %lld, monitor.baseline_steps",
                      (long long)m->window_steps, (long long)m->baseline_steps);
  if (m->recovered_multiple > m->multiple && !dp_node_get(table, "recovered_multiple"))
    m->recovered_multiple = m->multiple;
  if (m->recovered_multiple > m->multiple)
    return dp_fail_at(error, dp_node_get(table, "recovered_multiple"),
                      "monitor.recovered_multiple: found %g, allowed: at most %g, monitor.multiple",
                      m->recovered_multiple, m->multiple);
  return DP_OK;
}
