/* setup.json: what the page tells beside the figures of metrics.json. */
#include "plan/transport.h"
#include "reports/flows.h"
#include "reports/json.h"
#include "reports/report.h"
#include "reports/tables.h"

static json_t *texts(const char *const *items, int count) {
  json_t *array = json_array();
  for (int i = 0; i < count; i++) report_json_append(&array, report_json_text(items[i]));
  return array;
}

static json_t *model_json(const graph *model) {
  json_t *o = json_object();
  report_json_set(&o, "class", report_json_text(model->class_name));
  const bool share = model->tensor_parallel > 1;
  report_json_set(&o, "parameters", json_integer(share ? model->model_parameters : model->parameters));
  report_json_set(&o, "trainable_parameters",
                  json_integer(share ? model->model_trainable_parameters : model->trainable_parameters));
  report_json_set(&o, "whole_products", json_integer(model->whole_products));
  report_json_set(&o, "units", json_integer((json_int_t)model->units.count));
  report_json_set(&o, "height", json_integer(model->height));
  report_json_set(&o, "width", json_integer(model->width));
  report_json_set(&o, "frames", json_integer(model->frames));
  report_json_set(&o, "text_tokens", json_integer(model->text_tokens));
  report_json_set(&o, "precision", json_string(graph_dtype_name(model->precision)));
  return o;
}

static json_t *devices_json(const plan_cluster *cluster) {
  json_t *array = json_array();
  for (size_t d = 0; d < cluster->devices.count; d++) {
    const plan_device *device = &cluster->devices.items[d];
    json_t *o = json_object();
    report_json_set(&o, "name", json_string(device->name)); /* as plan.json names it */
    report_json_set(&o, "node", json_integer(device->node));
    report_json_set(&o, "model", report_json_text(device->model ? device->model->name : ""));
    report_json_set(&o, "parts", json_integer(device->parts));
    report_json_set(&o, "memory_bytes", json_integer(device->memory_bytes));
    report_json_append(&array, o);
  }
  return array;
}

static json_t *cluster_json(const plan_cluster *cluster) {
  json_t *o = json_object();
  report_json_set(&o, "name", report_json_text(cluster->name));
  report_json_set(&o, "nodes", json_integer(cluster->node_count));
  report_json_set(&o, "price_usd_per_h", report_json_known(cluster->price_usd_per_h));
  report_json_set(&o, "power_w", report_json_known(cluster->power_w));
  report_json_set(&o, "devices", devices_json(cluster));
  return o;
}

static json_t *chunks_json(const report_run *run) {
  json_t *array = json_array();
  const plan_plan *plan = run->program->plan;
  for (int c = 0; c < plan->chunk_count; c++) {
    int64_t parameters = 0, trainable = 0;
    for (int u = plan->chunks[c].first_unit; u < plan->chunks[c].first_unit + plan->chunks[c].unit_count; u++) {
      parameters += run->graph->units.items[u].parameters;
      trainable += run->graph->units.items[u].trainable_parameters;
    }
    json_t *o = json_object();
    report_json_set(&o, "rank", json_integer(plan->chunks[c].rank));
    report_json_set(&o, "parameters", json_integer(parameters));
    report_json_set(&o, "trainable_parameters", json_integer(trainable));
    report_json_append(&array, o);
  }
  return array;
}

static void set_kinds(json_t **o, const int64_t kind_bytes[PLAN_TRAFFIC_COUNT]) {
  for (int k = 0; k < PLAN_TRAFFIC_COUNT; k++) report_json_set(o, plan_traffic_names[k], json_integer(kind_bytes[k]));
}

/* How the two exchange data, and the class of the slowest link between them. */
static void set_transport(json_t **o, const report_run *run, const report_flow *flow) {
  const plan_plan *plan = run->program->plan;
  plan_route route;
  if (!run->cluster->links.count ||
      plan_transport_route(plan, run->cluster, flow->from, flow->to, &route, NULL) != DP_OK || !route.limiting)
    return;
  const plan_transport transport = plan_transport_of(plan, run->cluster, flow->from, flow->to);
  report_json_set(o, "transport", json_string(plan_transport_names[transport]));
  report_json_set(o, "class", report_json_text(route.limiting->name));
}

static json_t *transfers_json(const report_run *run, const report_flows *flows) {
  json_t *array = json_array();
  for (size_t i = 0; i < flows->pairs.count; i++) {
    json_t *o = json_object();
    report_json_set(&o, "from", json_integer(flows->pairs.items[i].from));
    report_json_set(&o, "to", json_integer(flows->pairs.items[i].to));
    set_transport(&o, run, &flows->pairs.items[i]);
    set_kinds(&o, flows->pairs.items[i].kind_bytes);
    report_json_append(&array, o);
  }
  return array;
}

static json_t *links_json(const report_run *run, const report_flows *flows) {
  json_t *array = json_array();
  for (size_t i = 0; i < flows->links.count; i++) {
    const plan_link *link = &run->cluster->links.items[flows->links.items[i].link];
    json_t *o = json_object();
    report_json_set(&o, "name", report_json_text(link->name));
    report_json_set(&o, "class", report_json_text(link->model ? link->model->name : ""));
    report_json_set(&o, "bandwidth_bytes_per_s", report_json_number(link->bandwidth_bytes_per_s));
    set_kinds(&o, flows->links.items[i].kind_bytes);
    report_json_append(&array, o);
  }
  return array;
}

static json_t *assumptions_json(const report_run *run) {
  json_t *array = json_array();
  for (int a = 0; a < run->assumption_count; a++) {
    const report_assumption *assumption = &run->assumptions[a];
    json_t *o = json_object();
    report_json_set(&o, "what", report_json_text(assumption->what));
    report_json_set(&o, "value", report_json_text(assumption->value));
    report_json_set(&o, "source", report_json_text(assumption->source));
    report_json_set(&o, "error_band", report_json_known(assumption->error_band));
    report_json_append(&array, o);
  }
  return array;
}

dp_status report_setup_json(const report_run *run, void **json, dp_error *error) {
  report_flows flows;
  DP_TRY(report_flows_of(run, &flows, error));
  json_t *o = json_object();
  report_json_set(&o, "format", json_string("diffpipe-setup"));
  report_json_set(&o, "version", json_integer(1));
  report_json_set(&o, "scenario_file", run->scenario_file ? report_json_text(run->scenario_file) : json_null());
  report_json_set(&o, "assignments", texts(run->assignments, run->assignment_count));
  report_json_set(&o, "job_steps", json_integer(run->job_steps));
  report_json_set(&o, "model", model_json(run->graph));
  report_json_set(&o, "cluster", cluster_json(run->cluster));
  report_json_set(&o, "chunks", chunks_json(run));
  report_json_set(&o, "transfers", transfers_json(run, &flows));
  report_json_set(&o, "links", links_json(run, &flows));
  report_json_set(&o, "assumptions", assumptions_json(run));
  report_flows_free(&flows);
  if (!o) return dp_fail_memory(error);
  *json = o;
  return DP_OK;
}
