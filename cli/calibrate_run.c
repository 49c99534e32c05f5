#include "cli/calibrate_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/traced.h"
#include "exec/measure.h"
#include "exec/pipeline.h"
#include "plan/profile_run.h"
#include "plan/transport.h"
#include "profiler/unit_times.h"
#include "reports/read.h"
#include "sim/predict.h"
#include "sim/unit_times.h"

typedef struct reading {
  const plan_scenario *scenario;
  const sim_prediction *prediction;
  dp_document timeline_file, comparison_file;
  plan_timeline timeline;
  double *forward_s, *backward_s, *again; /* [unit] as plan_profile_run has them */
  double step_s;
  dp_error *error;
} reading;

/* ---- timeline.json ---- */

static dp_status check_event(const reading *r, const dp_node *event, int64_t id) {
  const plan_program *program = &r->prediction->program;
  const dp_node *args = dp_node_get(event, "args"), *chunk = dp_node_get(args, "chunk");
  const dp_node *microbatch = dp_node_get(args, "microbatch"), *bytes = dp_node_get(args, "bytes");
  bool same = id >= 0 && id < (int64_t)program->instruction_count;
  if (same) {
    const plan_instruction *i = &program->instructions[id];
    const bool message = i->opcode == PLAN_SEND || i->opcode == PLAN_RECV;
    same = (!chunk || chunk->integer == (int64_t)i->chunk) &&
           (!microbatch || microbatch->integer == (int64_t)i->microbatch) &&
           (!message || (bytes && bytes->integer == program->messages[i->class_id].bytes));
  }
  if (same) return DP_OK;
  return dp_fail_at(r->error, event,
                    "calibrate: found instruction %lld, which the scenario's plan does not have so, "
                    "allowed: the run's scenario, with all that was --set",
                    (long long)id);
}

static dp_status read_time(const reading *r, const dp_node *event, const char *key, double *s) {
  const dp_node *node = dp_node_get(event, key);
  const double most = 1e15; /* us */
  *s = 1e-6 * report_node_real(event, key);
  if (node && (node->kind == DP_NODE_INTEGER || node->kind == DP_NODE_REAL) && *s >= 0 && *s <= 1e-6 * most)
    return DP_OK;
  char shown[80];
  return dp_fail_at(r->error, node ? node : event, "calibrate: %s of an instruction: found %s, allowed: 0 to %g us",
                    key, node ? dp_node_show(node, shown) : "none", most);
}

/* The first of each instruction is the measured one; the predicted follow. */
static dp_status read_events(reading *r, const dp_node *events) {
  const uint32_t n = r->prediction->program.instruction_count;
  uint32_t seen = 0;
  dp_status status = DP_OK;
  uint8_t *known = calloc((size_t)n + 1, 1);
  if (!known) return dp_fail_memory(r->error);
  for (size_t e = 0; events && e < events->count && seen < n && status == DP_OK; e++) {
    const dp_node *event = events->items[e], *id = dp_node_get(dp_node_get(event, "args"), "instruction");
    const char *kind = report_node_text(event, "ph");
    if (!kind || strcmp(kind, "X") != 0 || !id || id->kind != DP_NODE_INTEGER) continue;
    status = check_event(r, event, id->integer);
    if (status != DP_OK || known[id->integer]) continue;
    known[id->integer] = 1;
    seen++;
    double start_s = 0, duration_s = 0;
    status = read_time(r, event, "ts", &start_s);
    if (status == DP_OK) status = read_time(r, event, "dur", &duration_s);
    r->timeline.start_s[id->integer] = start_s;
    r->timeline.end_s[id->integer] = start_s + duration_s;
    r->timeline.step_s = fmax(r->timeline.step_s, r->timeline.end_s[id->integer]);
  }
  free(known);
  if (status != DP_OK || seen == n) return status;
  return dp_fail_at(r->error, r->timeline_file.root,
                    "calibrate: found %u instructions, allowed: the %u of the scenario's plan", seen, n);
}

static dp_status read_timeline(reading *r, const char *path) {
  DP_TRY(dp_document_read(path, &r->timeline_file, r->error));
  const dp_node *about = dp_node_get(r->timeline_file.root, "otherData");
  DP_TRY(report_root_check(about ? about : r->timeline_file.root, "diffpipe-timeline", r->error));
  const char *origin = report_node_text(about, "origin"), *scenario = report_node_text(about, "scenario");
  if (!origin || strcmp(origin, "measured") != 0)
    return dp_fail_at(r->error, r->timeline_file.root, "calibrate: found a timeline that is %s, allowed: measured",
                      origin ? origin : "nothing known");
  if (!scenario || strcmp(scenario, r->scenario->name) != 0)
    return dp_fail_at(r->error, r->timeline_file.root, "calibrate: found a run of %s, allowed: of %s",
                      scenario ? scenario : "nothing", r->scenario->name);
  r->step_s = report_node_real(about, "step_s");
  return read_events(r, dp_node_get(r->timeline_file.root, "traceEvents"));
}

/* ---- comparison.json: how a chunk's units share its time ---- */

/* Measured, where that pass of it was, else as it was predicted. */
static double unit_s(const dp_node *unit, const char *pass) {
  const dp_node *times = dp_node_get(unit, pass);
  const double measured = report_node_real(times, "measured_s");
  return measured > 0 ? measured : report_node_real(times, "predicted_s");
}

static void keep_unit(reading *r, size_t u, double forward_s, double backward_s) {
  const double least = 0.1; /* of a backward, beside what it runs again */
  const uint8_t *recompute = r->prediction->plan.recompute;
  r->again[u] = sim_cost_again_share(&r->prediction->own.kinds[0].context, &r->prediction->graph, (int)u);
  if (recompute && recompute[u]) backward_s = fmax(least * backward_s, backward_s - r->again[u] * forward_s);
  r->forward_s[u] = forward_s;
  r->backward_s[u] = backward_s;
}

/* Where a chunk runs as one, as on GPUs, the run could not tell units apart. */
static dp_status predict_units(reading *r) {
  plan_unit_times times = {.unit_count = 0};
  dp_status status = sim_unit_times(r->scenario, r->prediction, &times, r->error);
  for (size_t u = 0; status == DP_OK && u < times.unit_count; u++)
    keep_unit(r, u, plan_unit_forward_s(&times, u), plan_unit_backward_s(&times, u));
  plan_unit_times_free(&times);
  return status;
}

static dp_status read_units(reading *r, const char *path) {
  const size_t count = r->prediction->graph.units.count;
  DP_TRY(dp_document_read(path, &r->comparison_file, r->error));
  DP_TRY(report_root_check(r->comparison_file.root, "diffpipe-comparison", r->error));
  const dp_node *units = dp_node_get(r->comparison_file.root, "units");
  if (units && units->kind == DP_NODE_ARRAY && units->count == 0) return predict_units(r);
  if (!units || units->kind != DP_NODE_ARRAY || units->count != count)
    return dp_fail_at(r->error, r->comparison_file.root, "calibrate: found %zu units, allowed: the %zu of the scenario",
                      units ? units->count : 0, count);
  for (size_t u = 0; u < count; u++)
    keep_unit(r, u, unit_s(units->items[u], "forward"), unit_s(units->items[u], "backward"));
  return DP_OK;
}

/* ---- records: what each unit took ---- */

static dp_status join_records(const reading *r, const char *folder, prof_unit_times *times) {
  enum { MOST_STEPS = 100 };
  const plan_program *program = &r->prediction->program;
  prof_session session;
  prof_join join;
  dp_status status = prof_join_read(folder, program, MOST_STEPS, &session, &join, r->error);
  if (status == DP_OK) status = prof_unit_times_of(&join, program, r->prediction->graph.units.count, times, r->error);
  prof_join_free(&join);
  prof_session_free(&session);
  return status;
}

/* Nothing is known without. */
static dp_status read_records(const reading *r, const char *folder, prof_unit_times *times) {
  dp_str path = {0};
  dp_str_addf(&path, "%s/records", folder);
  dp_status status = path.failed ? dp_fail_memory(r->error) : DP_OK;
  if (status == DP_OK && cli_traced_recorded(path.text)) status = join_records(r, path.text, times);
  dp_str_free(&path);
  return status;
}

/* ---- the profile ---- */

static bool is_staged(const reading *r) {
  const plan_plan *plan = &r->prediction->plan;
  return plan_worker_count(plan) > 1 && plan_transport_of(plan, &r->scenario->cluster, 0, 1) == PLAN_TRANSPORT_HOST;
}

/* Workers of the first device's card, or of its machine's processors. */
static int sharers_of(const reading *r) {
  const plan_device *devices = r->scenario->cluster.devices.items;
  const plan_plan *plan = &r->prediction->plan;
  int count = 0;
  for (int w = 0; w < plan_worker_count(plan); w++) {
    const plan_device *device = &devices[plan->devices[w]];
    count +=
        plan_device_is_processor(devices[0].model) ? device->node == devices[0].node : device->card == devices[0].card;
  }
  return count > 0 ? count : 1;
}

static dp_status name_profile(const reading *r, plan_profile *profile) {
  const plan_device *device = &r->scenario->cluster.devices.items[0];
  const char *processor = NULL;
  int cores = 0;
  DP_TRY(exec_measure_machine(&profile->arena, &processor, &cores, r->error));
  const bool cpu = plan_device_is_processor(device->model);
  profile->threads = cpu ? device->model->sm_count : 1;
  profile->workers = sharers_of(r);
  profile->cores = fmax(cores, (double)(profile->workers * profile->threads));
  profile->precision = r->scenario->model_options.precision;
  const struct {
    const char **to;
    const char *text;
  } strings[] = {{&profile->device, device->model->name},
                 {&profile->processor, cpu ? processor : device->model->name},
                 {&profile->implementation, r->scenario->implementation},
                 {&profile->gemm, cpu ? kern_gemm_name() : "cuBLASLt"},
                 {&profile->made, "from a run"}};
  for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
    *strings[i].to = dp_arena_strdup(&profile->arena, strings[i].text);
    if (!*strings[i].to) return dp_fail_memory(r->error);
  }
  return DP_OK;
}

/* What else there is of this model is by the curves, corrected. */
static dp_status compare_with_curves(const reading *r, plan_profile *profile) {
  sim_against_curves sums = {{0}, {0}};
  sim_cost_context context = r->prediction->own.kinds[0].context;
  context.profile = profile;
  DP_TRY(sim_cost_against_curves(&context, &r->prediction->graph, &sums, r->error));
  plan_profile_part *part = &profile->parts.items[0];
  if (sums.curves_s[0] > 0) part->forward_factor = sums.measured_s[0] / sums.curves_s[0];
  if (sums.curves_s[1] > 0) part->backward_factor = sums.measured_s[1] / sums.curves_s[1];
  return DP_OK;
}

static dp_status fit(reading *r, const char *folder, plan_profile *profile, cli_run_told *told) {
  dp_str path = {0};
  const size_t units = r->prediction->graph.units.count;
  r->forward_s = calloc(3 * units + 1, sizeof *r->forward_s);
  if (!r->forward_s) return dp_fail_memory(r->error);
  r->backward_s = r->forward_s + units;
  r->again = r->backward_s + units;
  dp_str_addf(&path, "%s/timeline.json", folder);
  dp_status status = path.failed ? dp_fail_memory(r->error) : read_timeline(r, path.text);
  dp_str_clear(&path);
  dp_str_addf(&path, "%s/comparison.json", folder);
  if (status == DP_OK) status = path.failed ? dp_fail_memory(r->error) : read_units(r, path.text);
  dp_str_free(&path);
  DP_TRY(status);
  prof_unit_times times = {.aside = 0};
  DP_TRY(read_records(r, folder, &times));
  const plan_worker_memory *memory = &r->prediction->memory.workers[0];
  const plan_profile_run run = {.timeline = &r->timeline,
                                .graph = &r->prediction->graph,
                                .cluster = &r->scenario->cluster,
                                .recorded = times.units.known ? &times.units : NULL,
                                .forward_s = r->forward_s,
                                .backward_s = r->backward_s,
                                .again = r->again,
                                .sms = r->scenario->cluster.devices.items[0].sm_count,
                                .sharers = sharers_of(r),
                                .staged = is_staged(r),
                                .step_s = r->step_s,
                                .runtime_bytes = memory->peak_bytes - memory->layout_bytes};
  status = plan_profile_of_run(&run, profile, &told->outliers, &told->recorded_share, r->error);
  told->units_error = times.error;
  told->units_aside = times.aside;
  prof_unit_times_free(&times);
  DP_TRY(status);
  DP_TRY(compare_with_curves(r, profile));
  return name_profile(r, profile);
}

dp_status cli_calibrate_run(const plan_scenario *scenario, const sim_efficiency *efficiency, const char *folder,
                            plan_profile *profile, cli_run_told *told, dp_error *error) {
  sim_prediction prediction;
  if (scenario->synthetic)
    return dp_fail_at(error, plan_scenario_node(scenario, "model", "synthetic_units"),
                      "calibrate: found synthetic units, allowed: a model; such units cost what the scenario says");
  DP_TRY(sim_predict(scenario, efficiency, &prediction, error));
  reading r = {.scenario = scenario, .prediction = &prediction, .error = error};
  dp_status status = plan_timeline_init(&prediction.program, &r.timeline, error);
  if (status == DP_OK) status = fit(&r, folder, profile, told);
  free(r.forward_s);
  plan_timeline_free(&r.timeline);
  dp_document_free(&r.timeline_file);
  dp_document_free(&r.comparison_file);
  sim_prediction_free(&prediction);
  return status;
}
