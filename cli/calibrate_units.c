#define _POSIX_C_SOURCE 200809L
#include "cli/calibrate_units.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/progress.h"
#include "base/schema.h"
#include "cli/run_algorithms.h"
#include "exec/machine.h"
#include "sim/tune.h"

enum { MICROBATCHES = 2, MOST_SCHEDULES = 2 };

typedef struct calibration {
  const cli_calibrate_units_how *how;
  exec_units *units;
  exec_algorithms *algorithms;
  plan_schedule schedules[MOST_SCHEDULES]; /* one whose backward is whole, one that splits it */
  int schedule_count, stages, sharers;
  dp_error *error;
} calibration;

static bool splits(plan_schedule schedule) { return schedule == PLAN_ZB_H1 || schedule == PLAN_ZB_V; }

static void add_schedule(calibration *c, bool split) {
  const plan_schedule schedule = split ? PLAN_ZB_H1 : PLAN_1F1B;
  if (split && c->stages < 2) return; /* one worker alone has no use for it */
  for (int i = 0; i < c->schedule_count; i++)
    if (c->schedules[i] == schedule) return;
  c->schedules[c->schedule_count++] = schedule;
}

/* What the plan, and those that a search tries, do with a backward. */
static dp_status find_schedules(calibration *c) {
  const plan_scenario *scenario = c->how->scenario;
  plan_plan plan = {0};
  DP_TRY(plan_scenario_plan(scenario, &plan, c->error));
  add_schedule(c, splits(plan.schedule));
  plan_plan_free(&plan);
  const dp_node *list = dp_node_get(scenario->search, "schedules");
  for (size_t i = 0; list && i < list->count; i++)
    for (int s = 0; s < PLAN_SCHEDULE_COUNT && list->items[i]->kind == DP_NODE_STRING; s++)
      if (strcmp(list->items[i]->string, plan_schedule_names[s]) == 0) add_schedule(c, splits((plan_schedule)s));
  if (c->schedule_count == 0) add_schedule(c, false);
  return DP_OK;
}

/* A worker on each part of one card; or on each whole card of the first machine that this one has, too. */
static int find_stages(const calibration *c) {
  const plan_cluster *cluster = &c->how->scenario->cluster;
  const int there = exec_device_cuda_count();
  int cards = 0;
  if (c->sharers > 1) return c->sharers;
  for (size_t d = 0; d < cluster->devices.count; d++) cards += cluster->devices.items[d].node == 0;
  return cards < there ? cards : there > 1 ? there : 1;
}

static dp_status measure(calibration *c, plan_schedule schedule, int64_t size) {
  const sim_candidate candidate = {.stages = c->stages,
                                   .replicas = 1,
                                   .chunks = 1,
                                   .microbatches = MICROBATCHES,
                                   .microbatch_size = (int)size,
                                   .schedule = schedule,
                                   .skip_policy = PLAN_SKIP_DIRECT,
                                   .recompute = PLAN_RECOMPUTE_NONE};
  const plan_scenario changed = sim_tune_scenario(c->how->scenario, &candidate, MICROBATCHES * size);
  sim_prediction prediction;
  DP_TRY(sim_predict(&changed, c->how->efficiency, &prediction, c->error));
  const exec_units_how how = {.program = &prediction.program,
                              .graph = &prediction.graph,
                              .sms = c->how->scenario->cluster.devices.items[0].sm_count,
                              .sharers = c->sharers,
                              .nccl = c->how->nccl,
                              .seconds = c->how->seconds / (c->how->size_count * c->schedule_count),
                              .options = {.cuda = true,
                                          .cluster = &c->how->scenario->cluster,
                                          .lora_alpha = c->how->scenario->train.lora_alpha,
                                          .any_order = !c->how->scenario->train.deterministic,
                                          .algorithms = c->algorithms}};
  const dp_status status = exec_units_run(c->units, &how, c->error);
  sim_prediction_free(&prediction);
  return status;
}

static dp_status measure_all(calibration *c) {
  dp_progress progress;
  const int runs = c->how->size_count * c->schedule_count;
  dp_status status = DP_OK;
  dp_progress_begin(&progress, "measuring units", (uint64_t)runs);
  for (int i = 0; i < runs && status == DP_OK; i++) {
    status = measure(c, c->schedules[i / c->how->size_count], c->how->sizes[i % c->how->size_count]);
    dp_progress_update(&progress, (uint64_t)i + 1, NULL);
  }
  dp_progress_end(&progress);
  return status;
}

/* What else there is of this model on such devices is by the curves, corrected. */
static dp_status compare_with_curves(const calibration *c, plan_profile *profile) {
  const plan_scenario *scenario = c->how->scenario;
  sim_against_curves sums = {{0}, {0}};
  for (int s = 0; s < c->how->size_count; s++) {
    sim_prepared prepared;
    DP_TRY(sim_prepare(scenario, c->how->efficiency, c->how->sizes[s], &prepared, c->error));
    sim_cost_context context = prepared.kinds[0].context;
    context.profile = profile;
    const dp_status status = sim_cost_against_curves(&context, &prepared.model, &sums, c->error);
    sim_prepared_free(&prepared);
    DP_TRY(status);
  }
  for (size_t i = 0; i < profile->parts.count; i++) {
    plan_profile_part *part = &profile->parts.items[i];
    if (part->sms != scenario->cluster.devices.items[0].sm_count) continue;
    if (sums.curves_s[0] > 0) part->forward_factor = sums.measured_s[0] / sums.curves_s[0];
    if (sums.curves_s[1] > 0) part->backward_factor = sums.measured_s[1] / sums.curves_s[1];
  }
  return DP_OK;
}

static dp_status keep(plan_profile *profile, const char **to, const char *text, dp_error *error) {
  *to = dp_arena_strdup(&profile->arena, text);
  return *to ? DP_OK : dp_fail_memory(error);
}

/* What is added to must be of the same card and driver. */
static dp_status check_known(const calibration *c, const plan_profile *profile, const char *card, const char *driver) {
  if (profile->units.count == 0 || !profile->processor) return DP_OK;
  const char *other = profile->driver ? profile->driver : "";
  if (strcmp(profile->processor, card) == 0 && strcmp(other, driver) == 0) return DP_OK;
  return dp_fail_at(c->error, plan_scenario_node(c->how->scenario, "cluster", "profile"),
                    "calibrate: found a profile of %.60s with driver %.40s, allowed: of this %.60s with %.40s, or none",
                    profile->processor, other, card, driver);
}

static dp_status name_profile(const calibration *c, plan_profile *profile) {
  const plan_scenario *scenario = c->how->scenario;
  const plan_device *device = &scenario->cluster.devices.items[0];
  const char *about = exec_units_device(c->units);
  char made[32] = "unknown", card[128];
  const time_t now = time(NULL);
  struct tm utc;
  dp_arena arena = {0};
  plan_machine machine = {.driver = ""};
  dp_error unread = DP_ERROR_INIT;
  if (gmtime_r(&now, &utc)) (void)strftime(made, sizeof made, "%Y-%m-%dT%H:%M:%SZ", &utc);
  const bool known = exec_machine_read(&arena, &machine, &unread) == DP_OK;
  (void)snprintf(card, sizeof card, "%.*s", (int)strcspn(about, ","), about);
  profile->cores = device->model->sm_count;
  profile->threads = 1;
  profile->workers = c->sharers;
  profile->precision = scenario->model_options.precision;
  profile->optimizer_busy_factor = 1;
  dp_status status = check_known(c, profile, card, known ? machine.driver : "");
  if (status == DP_OK) status = keep(profile, &profile->device, device->model->name, c->error);
  if (status == DP_OK) status = keep(profile, &profile->processor, card, c->error);
  if (status == DP_OK) status = keep(profile, &profile->implementation, "cuda", c->error);
  if (status == DP_OK) status = keep(profile, &profile->gemm, "cuBLASLt", c->error);
  if (status == DP_OK) status = keep(profile, &profile->libraries, about, c->error);
  if (status == DP_OK) status = keep(profile, &profile->driver, known ? machine.driver : "", c->error);
  if (status == DP_OK) status = keep(profile, &profile->made, made, c->error);
  dp_arena_free(&arena);
  return status;
}

static dp_status check(const calibration *c) {
  const plan_scenario *scenario = c->how->scenario;
  const plan_device *first = &scenario->cluster.devices.items[0];
  if (scenario->synthetic)
    return dp_fail_at(c->error, plan_scenario_node(scenario, "model", "synthetic_units"),
                      "calibrate: found synthetic units, allowed: a model; such units cost what the scenario says");
  if (plan_device_is_processor(first->model))
    return dp_fail_at(c->error, plan_scenario_node(scenario, "cluster", "file"),
                      "calibrate: found %s, allowed with --backend cuda: a GPU", first->model->name);
  for (size_t d = 1; d < scenario->cluster.devices.count; d++)
    if (scenario->cluster.devices.items[d].model != first->model ||
        scenario->cluster.devices.items[d].parts != first->parts)
      return dp_fail_at(c->error, plan_scenario_node(scenario, "cluster", "file"),
                        "calibrate: found %s beside %s, allowed: devices of one kind, in parts of one size",
                        scenario->cluster.devices.items[d].name, first->name);
  return exec_device_cuda_there(c->error);
}

dp_status cli_calibrate_units(const cli_calibrate_units_how *how, plan_profile *profile, exec_units_took *took,
                              dp_error *error) {
  calibration c = {.how = how, .error = error};
  dp_str notes = {0};
  DP_TRY(check(&c));
  c.sharers = how->scenario->cluster.devices.items[0].parts;
  c.stages = find_stages(&c);
  if (how->nccl && (c.sharers > 1 || c.stages < 2)) /* said before anything is measured */
    return dp_fail(error, DP_UNSUPPORTED, "calibrate: found --nccl with %s, allowed: two or more whole GPUs",
                   c.sharers > 1 ? "parts of a GPU" : "one GPU");
  DP_TRY(find_schedules(&c));
  dp_status status = exec_units_create(&c.units, error);
  if (status == DP_OK && how->algorithms) status = exec_algorithms_create(&c.algorithms, error);
  if (status == DP_OK && how->algorithms) status = exec_algorithms_read(c.algorithms, how->algorithms, false, error);
  if (status == DP_OK) status = measure_all(&c);
  if (status == DP_OK && how->algorithms)
    status = cli_run_algorithms_write(c.algorithms, NULL, how->algorithms, &notes, error);
  if (status == DP_OK) status = exec_units_profile(c.units, profile, error);
  if (status == DP_OK) status = compare_with_curves(&c, profile);
  if (status == DP_OK) status = name_profile(&c, profile);
  if (status == DP_OK) *took = exec_units_has_taken(c.units);
  dp_str_free(&notes);
  exec_units_free(c.units);
  exec_algorithms_free(c.algorithms);
  return status;
}
