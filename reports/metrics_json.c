#include <jansson.h>

#include "reports/json.h"
#include "reports/report.h"
#include "reports/tables.h"

static json_t *traffic(const plan_metrics *metrics) {
  json_t *o = json_object();
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++)
    report_json_set(&o, plan_traffic_names[k], json_integer(metrics->comm_bytes_by_kind[k]));
  return o;
}

static json_t *workers(const report_run *run) {
  json_t *array = json_array();
  const plan_plan *plan = run->program->plan;
  for (int w = 0; w < run->metrics->worker_count; w++) {
    const plan_worker_metrics *m = &run->metrics->workers[w];
    json_t *o = json_object();
    report_json_set(&o, "device", report_json_text(report_device_name(run, w)));
    report_json_set(&o, "rank", json_integer(plan_worker_rank(plan, w)));
    report_json_set(&o, "replica", json_integer(plan_worker_replica(plan, w)));
    report_json_set(&o, "tensor_member", json_integer(plan_worker_member(plan, w)));
    report_json_set(&o, "peak_memory_bytes", json_integer(run->memory->workers[w].peak_bytes));
    report_json_set(&o, "memory_limit_bytes", json_integer(run->memory_limit_bytes[w]));
    report_json_set(&o, "compute_s", report_json_number(m->compute_s));
    report_json_set(&o, "forward_s", report_json_number(m->forward_s));
    report_json_set(&o, "backward_s", report_json_number(m->backward_s));
    report_json_set(&o, "optimizer_s", report_json_number(m->optimizer_s));
    report_json_set(&o, "tensor_s", report_json_number(m->tensor_s));
    report_json_set(&o, "comm_s", report_json_number(m->comm_s));
    report_json_set(&o, "exposed_comm_s", report_json_number(m->exposed_comm_s));
    report_json_set(&o, "idle_s", report_json_number(m->idle_s));
    report_json_set(&o, "sent_bytes", json_integer(m->sent_bytes));
    report_json_set(&o, "received_bytes", json_integer(m->received_bytes));
    report_json_append(&array, o);
  }
  return array;
}

static json_t *memory(const report_run *run) {
  json_t *array = json_array();
  for (int w = 0; w < run->memory->worker_count; w++) {
    const plan_worker_memory *m = &run->memory->workers[w];
    json_t *o = json_object();
    report_json_set(&o, "worker", json_integer(w));
    for (int c = 0; c < PLAN_MEMORY_CLASS_COUNT; c++)
      report_json_set(&o, plan_memory_class_names[c], json_integer(m->at_peak_bytes[c]));
    report_json_set(&o, "layout_bytes", json_integer(m->layout_bytes));
    report_json_set(&o, "live_peak_bytes", json_integer(m->live_peak_bytes));
    report_json_set(&o, "resting_bytes", json_integer(m->resting_bytes));
    report_json_set(&o, "peak_bytes", json_integer(m->peak_bytes));
    report_json_append(&array, o);
  }
  return array;
}

static json_t *bounds(const report_run *run) {
  json_t *array = json_array();
  for (int b = 0; b < run->bound_count; b++) {
    json_t *o = json_object();
    report_json_set(&o, "name", report_json_text(run->bounds[b].name));
    report_json_set(&o, "share", report_json_number(run->bounds[b].share));
    report_json_append(&array, o);
  }
  return array;
}

json_t *report_steps_json(const plan_step_spread *steps) {
  json_t *o = json_object();
  report_json_set(&o, "count", json_integer(steps->count));
  report_json_set(&o, "median_s", report_json_number(steps->median_s));
  report_json_set(&o, "mean_s", report_json_number(steps->mean_s));
  report_json_set(&o, "p95_s", report_json_number(steps->p95_s));
  report_json_set(&o, "max_s", report_json_number(steps->max_s));
  return o;
}

static json_t *skips(const report_run *run) {
  json_t *o = json_object();
  for (int s = 0; s < run->skip_count; s++)
    report_json_set(&o, run->skips[s].name, report_json_number(run->skips[s].psnr_db));
  return o;
}

dp_status report_metrics_json(const report_run *run, void **json, dp_error *error) {
  const plan_metrics *metrics = run->metrics;
  json_t *o = json_object();
  report_json_set(&o, "format", json_string("diffpipe-metrics"));
  report_json_set(&o, "version", json_integer(1));
  report_json_set(&o, "scenario", report_json_text(run->name));
  report_json_set(&o, "origin", report_json_text(run->origin));
  report_json_set(&o, "step_s", report_json_number(metrics->step_s));
  report_json_set(&o, "error_band", report_json_number(run->error_band));
  report_json_set(&o, "trajectory_s",
                  run->program->plan->training ? json_null() : report_json_number(run->timeline->step_s));
  report_json_set(&o, "throughput_samples_per_s", report_json_number(metrics->throughput_samples_per_s));
  report_json_set(&o, "bubble_ratio", report_json_number(metrics->bubble_ratio));
  report_json_set(&o, "usd_per_million_samples", report_json_known(run->usd_per_million_samples));
  report_json_set(&o, "joules_per_sample", report_json_known(run->joules_per_sample));
  report_json_set(&o, "comm_bytes", json_integer(metrics->comm_bytes));
  report_json_set(&o, "comm_bytes_by_kind", traffic(metrics));
  report_json_set(&o, "fits", json_boolean(run->fits));
  report_json_set(&o, "tightest_worker", json_integer(run->tightest_worker));
  report_json_set(&o, "instructions", json_integer((int64_t)run->program->instruction_count));
  report_json_set(&o, "bounds", bounds(run));
  if (run->skip_count) report_json_set(&o, "skip_psnr_db", skips(run));
  if (run->steps) report_json_set(&o, "steps", report_steps_json(run->steps));
  report_json_set(&o, "workers", workers(run));
  report_json_set(&o, "memory", memory(run));
  report_json_set(&o, "plan", plan_plan_json(run->program->plan, run->graph, run->cluster));
  if (!o) return dp_fail_memory(error);
  *json = o;
  return DP_OK;
}
