#include "cli/run_monitor.h"

#include <stdlib.h>

#include "reports/json.h"

dp_status cli_run_monitor_init(const plan_program *program, const plan_monitor *rule, const plan_timeline *predicted,
                               cli_run_log *log, dp_progress *bar, cli_run_monitor *monitor, dp_error *error) {
  cli_run_monitor made = {.log = log, .bar = bar, .hook = {.command = rule->hook}, .cold = CLI_RUN_COLD_STEPS};
  DP_TRY(prof_monitor_init(program, rule, predicted, &made.monitor, error));
  made.events = calloc(prof_monitor_most(&made.monitor), sizeof *made.events);
  if (!made.events) {
    prof_monitor_free(&made.monitor);
    return dp_fail_memory(error);
  }
  *monitor = made;
  return DP_OK;
}

void cli_run_monitor_free(cli_run_monitor *m) {
  cli_run_hook_look(&m->hook);
  if (m->monitor.program) prof_monitor_free(&m->monitor);
  free(m->events);
  *m = (cli_run_monitor){.events = NULL};
}

dp_status cli_run_monitor_tell(cli_run_monitor *m, json_t *row, dp_error *error) {
  if (!row) return dp_fail_memory(error);
  if (m->quiet) {
    json_decref(row);
    return DP_OK;
  }
  dp_progress_clear(m->bar);
  fprintf(stderr, "diffpipe: note: %s: %s\n", json_string_value(json_object_get(row, "event")),
          json_string_value(json_object_get(row, "line")));
  cli_run_hook_start(&m->hook, row);
  return cli_run_log_row(m->log, row, error);
}

void cli_run_monitor_begin_again(cli_run_monitor *m) {
  if (m->monitor.program) prof_monitor_forgive(&m->monitor);
  m->cold = CLI_RUN_COLD_STEPS;
}

static json_t *drift_row(const prof_monitor *monitor, const prof_event *e) {
  static const char *const passes[PLAN_PASS_COUNT] = {"forward", "backward", "weight"};
  const bool known = e->op_class >= 0;
  return json_pack("{sI ss sI si si ss so so so so so}", "step", (json_int_t)e->step, "event",
                   prof_event_names[e->kind], "since", (json_int_t)e->since, "stage",
                   monitor->program->plan->chunks[e->chunk].rank, "chunk", e->chunk, "pass", passes[e->pass],
                   "measured_s", report_json_number(e->now_s), "predicted_s", report_json_number(e->mean_s),
                   "first_ratio", report_json_number(e->reference), "op_class",
                   known ? json_string(graph_op_class_name((graph_op_class)e->op_class)) : json_null(), "class_ratio",
                   known ? report_json_number(e->class_ratio) : json_null());
}

static json_t *alarm_row(const prof_monitor *monitor, const prof_event *e) {
  char name[64];
  json_t *row = json_pack("{sI ss ss ss sI so so so so}", "step", (json_int_t)e->step, "event",
                          prof_event_names[e->kind], "subject", prof_subject_names[e->watched->subject], "name",
                          prof_watched_show(monitor, e->watched, name), "since", (json_int_t)e->since, "now_s",
                          report_json_number(e->now_s), "mean_s", report_json_number(e->mean_s), "median_s",
                          report_json_number(e->median_s), "z_score", report_json_number(e->score));
  bool done = row != NULL;
  if (done && e->watched->subject != PROF_OF_STEP)
    done = json_object_set_new(row, "worker", json_integer(e->watched->worker)) == 0;
  if (done && e->watched->subject == PROF_OF_LINK)
    done = json_object_set_new(row, "peer", json_integer(e->watched->peer)) == 0;
  if (done) return row;
  json_decref(row);
  return NULL;
}

static dp_status tell_event(cli_run_monitor *m, const prof_event *e, dp_error *error) {
  char line[256];
  json_t *row = e->kind == PROF_EVENT_DRIFT ? drift_row(&m->monitor, e) : alarm_row(&m->monitor, e);
  if (row && json_object_set_new(row, "line", json_string(prof_event_show(&m->monitor, e, line))) != 0) {
    json_decref(row);
    row = NULL;
  }
  return cli_run_monitor_tell(m, row, error);
}

dp_status cli_run_monitor_step(cli_run_monitor *m, int64_t step, double step_s, const plan_timeline *timeline,
                               bool recorded, const double *ops, dp_error *error) {
  m->event_count = 0;
  if (!m->monitor.program) return DP_OK;
  cli_run_hook_look(&m->hook);
  if (m->cold > 0) {
    m->cold--;
    return DP_OK;
  }
  m->event_count = prof_monitor_step(&m->monitor, step, step_s, timeline, recorded || ops != NULL, m->events);
  if (ops && timeline) prof_monitor_ops(&m->monitor, ops);
  for (uint32_t i = 0; i < m->event_count; i++) DP_TRY(tell_event(m, &m->events[i], error));
  return DP_OK;
}
