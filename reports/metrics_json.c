#include <jansson.h>
#include <math.h>

#include "reports/report.h"
#include "reports/tables.h"

/* An object under construction: sticky, so that it reads straight down; `json` is NULL once something failed. */
typedef struct object {
  json_t *json;
} object;

static void set(object *o, const char *key, json_t *value) {
  if (o->json && json_object_set_new(o->json, key, value) == 0) return; /* it takes the value even when it fails */
  if (!o->json) json_decref(value);
  json_decref(o->json);
  o->json = NULL;
}

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }
static json_t *integer(int64_t value) { return json_integer((json_int_t)value); }
/* 0 means unknown in a run; a reader should not take it for a figure. */
static json_t *known(double value) { return value > 0 ? number(value) : json_null(); }

static json_t *text(const char *value) {
  dp_arena arena = {0};
  const char *clean = report_text_clean(&arena, value ? value : "");
  json_t *json = clean ? json_string(clean) : NULL;
  dp_arena_free(&arena);
  return json;
}

static void append(json_t **array, json_t *value) {
  if (*array && json_array_append_new(*array, value) == 0) return;
  if (!*array) json_decref(value);
  json_decref(*array);
  *array = NULL;
}

static json_t *traffic(const plan_metrics *metrics) {
  object o = {json_object()};
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) set(&o, plan_traffic_names[k], integer(metrics->comm_bytes_by_kind[k]));
  return o.json;
}

static json_t *workers(const report_run *run) {
  json_t *array = json_array();
  const int ranks = run->program->plan->ranks;
  for (int w = 0; w < run->metrics->worker_count; w++) {
    const plan_worker_metrics *m = &run->metrics->workers[w];
    object o = {json_object()};
    set(&o, "device", text(report_device_name(run, w)));
    set(&o, "rank", integer(w % ranks));
    set(&o, "replica", integer(w / ranks));
    set(&o, "peak_memory_bytes", integer(run->memory->workers[w].peak_bytes));
    set(&o, "memory_limit_bytes", integer(run->memory_limit_bytes[w]));
    set(&o, "compute_s", number(m->compute_s));
    set(&o, "forward_s", number(m->forward_s));
    set(&o, "backward_s", number(m->backward_s));
    set(&o, "optimizer_s", number(m->optimizer_s));
    set(&o, "comm_s", number(m->comm_s));
    set(&o, "exposed_comm_s", number(m->exposed_comm_s));
    set(&o, "idle_s", number(m->idle_s));
    set(&o, "sent_bytes", integer(m->sent_bytes));
    set(&o, "received_bytes", integer(m->received_bytes));
    append(&array, o.json);
  }
  return array;
}

static json_t *memory(const report_run *run) {
  json_t *array = json_array();
  for (int w = 0; w < run->memory->worker_count; w++) {
    const plan_worker_memory *m = &run->memory->workers[w];
    object o = {json_object()};
    set(&o, "worker", integer(w));
    for (int c = 0; c < PLAN_MEMORY_CLASS_COUNT; c++) set(&o, plan_memory_class_names[c], integer(m->at_peak_bytes[c]));
    set(&o, "layout_bytes", integer(m->layout_bytes));
    set(&o, "live_peak_bytes", integer(m->live_peak_bytes));
    set(&o, "resting_bytes", integer(m->resting_bytes));
    set(&o, "peak_bytes", integer(m->peak_bytes));
    append(&array, o.json);
  }
  return array;
}

static json_t *bounds(const report_run *run) {
  json_t *array = json_array();
  for (int b = 0; b < run->bound_count; b++) {
    object o = {json_object()};
    set(&o, "name", text(run->bounds[b].name));
    set(&o, "share", number(run->bounds[b].share));
    append(&array, o.json);
  }
  return array;
}

dp_status report_metrics_json(const report_run *run, void **json, dp_error *error) {
  const plan_metrics *metrics = run->metrics;
  object o = {json_object()};
  set(&o, "format", json_string("diffpipe-metrics"));
  set(&o, "version", json_integer(1));
  set(&o, "scenario", text(run->name));
  set(&o, "origin", text(run->origin));
  set(&o, "step_s", number(metrics->step_s));
  set(&o, "error_band", number(run->error_band));
  set(&o, "trajectory_s", run->program->plan->training ? json_null() : number(run->timeline->step_s));
  set(&o, "throughput_samples_per_s", number(metrics->throughput_samples_per_s));
  set(&o, "bubble_ratio", number(metrics->bubble_ratio));
  set(&o, "usd_per_million_samples", known(run->usd_per_million_samples));
  set(&o, "joules_per_sample", known(run->joules_per_sample));
  set(&o, "comm_bytes", integer(metrics->comm_bytes));
  set(&o, "comm_bytes_by_kind", traffic(metrics));
  set(&o, "fits", json_boolean(run->fits));
  set(&o, "tightest_worker", integer(run->tightest_worker));
  set(&o, "instructions", integer((int64_t)run->program->instruction_count));
  set(&o, "bounds", bounds(run));
  set(&o, "workers", workers(run));
  set(&o, "memory", memory(run));
  set(&o, "plan", plan_plan_json(run->program->plan, run->graph, run->cluster));
  if (!o.json) return dp_fail_memory(error);
  *json = o.json;
  return DP_OK;
}
