#include "sim/assumptions.h"

#include <math.h>
#include <string.h>

#include "plan/transport.h"
#include "sim/efficiency.h"

typedef struct collector {
  const plan_scenario *scenario;
  const sim_efficiency *efficiency;
  const sim_implementation *implementation;
  dp_arena *arena;
  DP_ARRAY(sim_assumption) rows;
  bool failed;
} collector;

static void add(collector *c, const char *what, const char *value, const char *source, double error_band) {
  const sim_assumption row = {what, value, source && source[0] ? source : "not stated", error_band};
  if (!what || !value || !row.source || !dp_array_push(&c->rows, row)) c->failed = true;
}

static const char *string_of(const dp_node *table, const char *key) {
  const dp_node *node = dp_node_get(table, key);
  return node && node->kind == DP_NODE_STRING ? node->string : "";
}

/* ---- cards and links ---- */

static const char *checked(collector *c, const plan_device_model *model) {
  const char *verified = model->verified && model->verified[0] ? model->verified : "nothing";
  if (!model->recalled || !model->recalled[0]) return dp_arena_printf(c->arena, "verified: %s", verified);
  return dp_arena_printf(c->arena, "verified: %s; from memory: %s", verified, model->recalled);
}

static void add_device(collector *c, const plan_device *device) {
  const plan_device_model *model = device->model;
  const graph_dtype precision = c->scenario->model_options.precision;
  const sim_cost_context context = {.efficiency = c->efficiency,
                                    .implementation = c->implementation,
                                    .device = device,
                                    .precision = precision,
                                    .host_issue_factor = 1};
  const char *says = checked(c, model);
  if (model->source && model->source[0] && says && strcmp(model->source, model->verified) != 0)
    says = dp_arena_printf(c->arena, "%s; %s", model->source, says);
  add(c, dp_arena_printf(c->arena, "%s: data sheet", model->name),
      dp_arena_printf(c->arena, "%.4g TFLOP/s %s, %.4g GB/s, %.4g GB, %.4g W",
                      model->peak_flops_per_s[precision] / 1e12, graph_dtype_name(precision),
                      model->memory_bandwidth_bytes_per_s / 1e9, (double)model->memory_bytes / 1e9, model->tdp_w),
      says, sim_cost_error_band(&context));
  if (model->achieved_flops_per_s > 0)
    add(c, dp_arena_printf(c->arena, "%s: best matrix product", model->name),
        dp_arena_printf(c->arena, "%.4g TFLOP/s bf16", model->achieved_flops_per_s / 1e12), model->achieved_source, 0);
  if (model->price_usd_per_h > 0)
    add(c, dp_arena_printf(c->arena, "%s: price", model->name),
        dp_arena_printf(c->arena, "%.4g USD/h a card", model->price_usd_per_h), model->price_source, 0);
}

static void add_devices(collector *c) {
  const plan_cluster *cluster = &c->scenario->cluster;
  for (size_t d = 0; d < cluster->devices.count; d++) {
    bool seen = false;
    for (size_t e = 0; e < d && !seen; e++) seen = cluster->devices.items[e].model == cluster->devices.items[d].model;
    if (!seen) add_device(c, &cluster->devices.items[d]);
  }
}

enum { MAX_CLASSES = 64 };

/* The classes that were told of. */
typedef struct class_list {
  const plan_link_model *models[MAX_CLASSES];
  int count;
} class_list;

static void add_class(collector *c, class_list *told, const plan_link_model *model) {
  bool seen = model == NULL || told->count == MAX_CLASSES;
  for (int t = 0; t < told->count && !seen; t++) seen = told->models[t] == model;
  if (seen) return;
  told->models[told->count++] = model;
  const char *latency = model->latency_s > 0 ? dp_arena_printf(c->arena, ", %.3g us", model->latency_s * 1e6) : "";
  if (!latency) c->failed = true;
  add(c, dp_arena_printf(c->arena, "link %s", model->name),
      dp_arena_printf(c->arena, "%.4g GB/s one way of %.4g%s%s", model->bandwidth_bytes_per_s / 1e9,
                      fmax(model->theoretical_bytes_per_s, model->bandwidth_bytes_per_s) / 1e9, latency ? latency : "",
                      model->verified ? "" : "; not verified"),
      model->source, 0);
}

/* Of the cluster's links, and of what messages become of them by NCCL or through the host. */
static void add_links(collector *c, const sim_prediction *prediction) {
  const plan_cluster *cluster = &c->scenario->cluster;
  const plan_program *program = &prediction->program;
  class_list told = {.count = 0};
  for (size_t l = 0; l < cluster->links.count; l++) add_class(c, &told, cluster->links.items[l].model);
  for (uint32_t m = 0; m < program->message_count; m++) {
    plan_route route;
    if (plan_transport_route(&prediction->plan, cluster, (int)program->messages[m].from_worker,
                             (int)program->messages[m].to_worker, &route, NULL) == DP_OK)
      add_class(c, &told, route.limiting);
  }
}

static void add_kept_sms(collector *c, const plan_plan *plan) {
  if (plan->nccl_sms == 0) return;
  const plan_device *device = &c->scenario->cluster.devices.items[plan->devices[0]];
  const plan_link_model *row = plan_catalogue_link(&c->scenario->catalogue, "nvlink4-nccl-partition");
  const int64_t compute = plan_compute_sms(device->sm_count, plan_device_sm_step(device->model), plan->nccl_sms);
  add(c, "SMs kept for NCCL",
      dp_arena_printf(c->arena, "compute has %lld of %lld and that share of its rate, as a part of a card has",
                      (long long)compute, (long long)device->sm_count),
      row ? dp_arena_printf(c->arena, "an estimate, on the careful side: %s", row->source) : "an estimate", 0);
}

/* ---- how ops run ---- */

static void add_curves(collector *c, const graph *model) {
  static const char *const names[GRAPH_CLASS_COUNT] = {[GRAPH_CLASS_GEMM] = "matrix products",
                                                       [GRAPH_CLASS_CONVOLUTION] = "convolutions",
                                                       [GRAPH_CLASS_ATTENTION] = "attention",
                                                       [GRAPH_CLASS_MEMORY] = "memory-bound ops"};
  const dp_node *list = dp_node_get(c->efficiency->document.root, "curve");
  bool present[GRAPH_CLASS_COUNT] = {false};
  const bool any_order = !c->scenario->train.deterministic;
  for (size_t o = 0; o < model->ops.count; o++)
    if (model->ops.items[o].forward.kernels) present[model->ops.items[o].forward.op_class] = true;
  for (size_t i = 0; list && i < c->efficiency->curves.count && i < list->count;
       i++) { /* rows and curves in one order */
    const sim_curve *curve = &c->efficiency->curves.items[i];
    const bool attention = curve->op_class == GRAPH_CLASS_ATTENTION;
    if (curve->backward || !present[curve->op_class]) continue;
    if (curve != sim_efficiency_curve(c->efficiency, c->implementation, curve->op_class, 0, curve->backend,
                                      curve->head_dim, any_order))
      continue;
    if (attention && curve->backend != c->implementation->attention_backend) continue;
    const sim_curve *back = sim_efficiency_curve(c->efficiency, c->implementation, curve->op_class, 1, curve->backend,
                                                 curve->head_dim, any_order);
    const char *what = attention ? dp_arena_printf(c->arena, "attention, heads of %lld", (long long)curve->head_dim)
                                 : names[curve->op_class];
    add(c, what,
        dp_arena_printf(c->arena, "up to %.0f %% of the %s forward, %.0f %% backward",
                        100 * curve->share[curve->points - 1],
                        curve->op_class == GRAPH_CLASS_MEMORY ? "bandwidth" : "peak",
                        100 * (back ? back->share[back->points - 1] : 0)),
        string_of(list->items[i], "source"), 0);
  }
}

static void add_implementation(collector *c) {
  const dp_node *list = dp_node_get(c->efficiency->document.root, "implementation");
  for (size_t i = 0; list && i < list->count; i++) {
    const char *name = string_of(list->items[i], "name");
    const double process_bytes = c->implementation->process_bytes;
    if (strcmp(name, c->implementation->name) != 0) continue;
    add(c, dp_arena_printf(c->arena, "ops are run: %s", name),
        dp_arena_printf(
            c->arena, "%s; %.2g GB of context, %.2g GB of workspace a device%s",
            c->implementation->measured ? "whole models were compared with it" : "no whole model was compared with it",
            c->implementation->context_bytes / 1e9, c->implementation->workspace_bytes / 1e9,
            process_bytes > 0
                ? dp_arena_printf(c->arena, ", %.2g GB that the workers of a machine, or of a card, share",
                                  process_bytes / 1e9)
                : ""),
        string_of(list->items[i], "source"), c->implementation->measured ? 0 : c->efficiency->band_unmeasured);
  }
}

static bool is_of_one_gpu(const plan_profile_link *link) { return link->way >= PLAN_PROFILE_TO_DEVICE; }

static void add_measured_links(collector *c, const plan_profile *profile) {
  for (size_t i = 0; i < profile->links.count; i++) {
    const plan_profile_link *link = &profile->links.items[i];
    if (is_of_one_gpu(link)) continue; /* no prediction rests on it */
    const plan_profile_point *largest = &link->points.items[link->points.count - 1];
    add(c, dp_arena_printf(c->arena, "between GPUs of a host: %s", plan_profile_way_names[link->way]),
        dp_arena_printf(c->arena, "over links of class %s; %.0f MiB in %.3g ms alone, %.3g ms beside compute",
                        link->link, largest->bytes / 1048576, 1e3 * largest->alone_s, 1e3 * largest->busy_s),
        dp_arena_printf(c->arena, "the profile, %lld GPUs of one host; other links are the catalogue's",
                        (long long)link->gpus),
        link->error);
  }
  if (profile->nccl_slowdown > 0)
    add(c, "compute beside NCCL",
        dp_arena_printf(c->arena, "takes %.1f %% longer, where no link was measured", 100 * profile->nccl_slowdown),
        "the profile", 0);
}

/* Of a recorded program, whose kernels' work nobody knows. */
static void add_profile_without_work(collector *c, const plan_profile *profile) {
  add(c, "ops", "by the catalogue's curves: the profile has none, but links alone",
      dp_arena_printf(c->arena, "%s: %s, %s", c->scenario->profile_path, profile->processor, profile->made), 0);
  add_measured_links(c, profile);
}

static void add_step(collector *c, const sim_prediction *prediction) {
  const plan_profile *profile = c->scenario->profile;
  const double *share = prediction->source_share;
  const char *source = string_of(dp_node_get(c->efficiency->document.root, "error_band"), "source");
  if (!profile || share[PLAN_SOURCE_MEASURED] + share[PLAN_SOURCE_INTERPOLATED] <= 0) {
    add(c, "the step", "from data sheets and efficiency curves, nothing measured for this job", source,
        prediction->error_band);
    if (profile && !plan_profile_has_work(profile)) add_profile_without_work(c, profile);
    return;
  }
  add(c, "the step",
      dp_arena_printf(
          c->arena, "of the ops' time %.0f %% measured for these shapes, %.0f %% interpolated, %.0f %% from curves",
          100 * share[PLAN_SOURCE_MEASURED], 100 * share[PLAN_SOURCE_INTERPOLATED], 100 * share[PLAN_SOURCE_ANALYTIC]),
      dp_arena_printf(c->arena, "%s: %zu ops on %s, %s", c->scenario->profile_path, profile->ops.count,
                      profile->processor, profile->made),
      prediction->error_band);
  add(c, "interpolated ops",
      dp_arena_printf(c->arena, "err by %.1f %%, measured ones differ by %.1f %% when measured again",
                      100 * profile->held_out_error, 100 * profile->repeat_error),
      dp_arena_printf(c->arena, "the profile, %lld ops kept aside", (long long)profile->held_out),
      profile->held_out_error);
  add(c, "copies and hand-overs",
      dp_arena_printf(c->arena, "%.3g us a hand-over, %.3g us an instruction beside its ops", 1e6 * profile->handover_s,
                      1e6 * profile->instruction_s),
      "the profile", 0);
  add_measured_links(c, profile);
}

static bool added_by_one(const plan_plan *plan) {
  return plan->transport_wanted == PLAN_TRANSPORT_LOCAL || plan->transport_wanted == PLAN_TRANSPORT_HOST;
}

static void add_all(collector *c, const sim_prediction *prediction) {
  const plan_scenario *scenario = c->scenario;
  if (scenario->synthetic) {
    add(c, "units", "cost what the scenario says, on any device", "the scenario", 0);
    add_links(c, prediction);
    return;
  }
  add_step(c, prediction);
  add_devices(c);
  if (scenario->cluster.price_usd_per_h > 0)
    add(c, "price of the cluster", dp_arena_printf(c->arena, "%.2f USD/h", scenario->cluster.price_usd_per_h),
        scenario->cluster.file && scenario->cluster.file[0] ? "the cluster's file, else the sum of its cards"
                                                            : "the scenario, else the sum of its cards",
        0);
  if (scenario->cluster.power_w > 0)
    add(c, "power of the cluster",
        dp_arena_printf(c->arena, "%.4g kW, all cards at their full power", scenario->cluster.power_w / 1e3),
        "data sheets and the cluster's file", 0);
  add_links(c, prediction);
  if (plan_copy_count(&prediction->plan) > 1 && plan_device_is_processor(scenario->cluster.devices.items[0].model))
    add(c, "collectives", "one worker adds up the others' gradients and copies the sum back",
        "how the executor does it", 0);
  else if (plan_copy_count(&prediction->plan) > 1 && added_by_one(&prediction->plan))
    add(c, "collectives", "within a machine one worker adds up the others' gradients and copies the sum back",
        "how the executor does it", 0);
  else if (plan_copy_count(&prediction->plan) > 1)
    add(c, "collectives", "NCCL's own cost model: ring or tree, the cheaper",
        string_of(scenario->catalogue.nccl_document.root, "source"), 0);
  add_kept_sms(c, &prediction->plan);
  add_curves(c, &prediction->graph);
  add_implementation(c);
}

dp_status sim_assumptions_of(const plan_scenario *scenario, const sim_efficiency *efficiency,
                             const sim_prediction *prediction, dp_arena *arena, const sim_assumption **assumptions,
                             int *count, dp_error *error) {
  collector c = {.scenario = scenario, .efficiency = efficiency, .arena = arena};
  DP_TRY(sim_efficiency_implementation(efficiency, scenario->implementation,
                                       plan_scenario_node(scenario, "task", "implementation"), &c.implementation,
                                       error));
  add_all(&c, prediction);
  sim_assumption *rows = c.failed ? NULL : DP_ARENA_NEW(arena, sim_assumption, c.rows.count);
  if (rows) {
    memcpy(rows, c.rows.items, c.rows.count * sizeof *rows);
    *assumptions = rows;
    *count = (int)c.rows.count;
  }
  dp_array_free(&c.rows);
  return rows ? DP_OK : dp_fail_memory(error);
}
