#include "sim/whatif.h"

#include <string.h>

#include "base/str.h"

const char *const sim_resource_names[] = {"compute", "memory_bandwidth", "link_bandwidth", "host", "memory_size", NULL};

static const double growth = 1.1;

/* A shallow copy of the scenario whose devices and links are its own, in `arena`, with one resource grown. */
static dp_status grow(const plan_scenario *scenario, sim_resource resource, dp_arena *arena, plan_scenario *grown,
                      dp_error *error) {
  *grown = *scenario;
  const size_t devices = scenario->cluster.devices.count, links = scenario->cluster.links.count;
  plan_device *device = DP_ARENA_NEW(arena, plan_device, devices);
  plan_device_model *models = DP_ARENA_NEW(arena, plan_device_model, devices);
  plan_link *link = DP_ARENA_NEW(arena, plan_link, links);
  if (!device || !models || !link) return dp_fail_memory(error);
  size_t model_count = 0;
  for (size_t d = 0; d < devices; d++) {
    device[d] = scenario->cluster.devices.items[d];
    size_t m = 0; /* equal devices keep one model: costs are shared by model */
    for (size_t e = 0; e < d; e++)
      if (scenario->cluster.devices.items[e].model == scenario->cluster.devices.items[d].model) {
        device[d].model = device[e].model;
        m = 1;
        break;
      }
    if (!m) {
      plan_device_model *model = &models[model_count++];
      *model = *device[d].model;
      device[d].model = model;
      if (resource == SIM_RESOURCE_COMPUTE) {
        for (int t = 0; t < GRAPH_DTYPE_COUNT; t++) model->peak_flops_per_s[t] *= growth;
        model->achieved_flops_per_s *= growth;
      }
      if (resource == SIM_RESOURCE_MEMORY_BANDWIDTH) model->memory_bandwidth_bytes_per_s *= growth;
    }
    if (resource == SIM_RESOURCE_MEMORY_SIZE)
      device[d].memory_bytes = (int64_t)((double)device[d].memory_bytes * growth);
  }
  for (size_t l = 0; l < links; l++) {
    link[l] = scenario->cluster.links.items[l];
    if (resource == SIM_RESOURCE_LINK_BANDWIDTH) link[l].bandwidth_bytes_per_s *= growth;
  }
  if (resource == SIM_RESOURCE_HOST) grown->cluster.host_issue_factor /= growth;
  grown->cluster.devices.items = device;
  grown->cluster.links.items = link;
  return DP_OK;
}

static dp_status measure_gain(sim_hardware *h, const sim_efficiency *efficiency, const sim_tune_options *options,
                              sim_resource resource, dp_error *error) {
  dp_arena arena = {0};
  plan_scenario grown;
  dp_status status = grow(&h->scenario, resource, &arena, &grown, error);
  double throughput = 0;
  if (status == DP_OK && resource == SIM_RESOURCE_MEMORY_SIZE) {
    sim_tune_result again;
    status = sim_tune(&grown, efficiency, options, &again, error);
    if (status == DP_OK) {
      if (again.best >= 0) throughput = again.trials[again.best].throughput_samples_per_s;
      sim_tune_result_free(&again);
    }
  } else if (status == DP_OK) {
    const plan_scenario changed =
        sim_tune_scenario(&grown, &h->best.candidate, sim_tune_global_batch(&h->scenario, error));
    sim_prediction prediction;
    status = sim_predict(&changed, efficiency, &prediction, error);
    if (status == DP_OK) {
      throughput = prediction.metrics.throughput_samples_per_s;
      sim_prediction_free(&prediction);
    }
  }
  if (status == DP_OK && throughput > 0) h->gain[resource] = throughput / h->best.throughput_samples_per_s - 1;
  dp_arena_free(&arena);
  return status;
}

dp_status sim_whatif(const char *scenario_path, const char *const *sets, int set_count, const char *cluster_file,
                     const sim_efficiency *efficiency, const sim_tune_options *options, sim_hardware *hardware,
                     dp_error *error) {
  memset(hardware, 0, sizeof *hardware);
  dp_arena arena = {0};
  const char **all = DP_ARENA_NEW(&arena, const char *, (size_t)set_count + 1);
  char *last = dp_arena_printf(&arena, "cluster.file=%s", cluster_file);
  if (!all || !last) {
    dp_arena_free(&arena);
    return dp_fail_memory(error);
  }
  for (int i = 0; i < set_count; i++) all[i] = sets[i];
  all[set_count] = last;
  hardware->file = cluster_file;
  dp_status status = plan_scenario_read_job(scenario_path, all, set_count + 1, &hardware->scenario, error);
  dp_arena_free(&arena);
  if (status != DP_OK) return status;
  status = sim_tune(&hardware->scenario, efficiency, options, &hardware->tuned, error);
  if (status != DP_OK) {
    plan_scenario_free(&hardware->scenario);
    return status;
  }
  hardware->fits = hardware->tuned.best >= 0;
  const int shown = hardware->fits ? hardware->tuned.best : hardware->tuned.nearest;
  if (shown >= 0) hardware->best = hardware->tuned.trials[shown];
  bool known = true;
  for (size_t d = 0; d < hardware->scenario.cluster.devices.count; d++) {
    const double price = hardware->scenario.cluster.devices.items[d].purchase_usd;
    hardware->purchase_usd += price;
    if (price <= 0) known = false;
  }
  if (!known) hardware->purchase_usd = 0;
  for (int r = 0; hardware->fits && r < SIM_RESOURCE_COUNT && status == DP_OK; r++)
    status = measure_gain(hardware, efficiency, options, (sim_resource)r, error);
  if (status != DP_OK) sim_hardware_free(hardware);
  return status;
}

void sim_hardware_free(sim_hardware *hardware) {
  sim_tune_result_free(&hardware->tuned);
  plan_scenario_free(&hardware->scenario);
  memset(hardware, 0, sizeof *hardware);
}

double sim_break_even_months(const sim_hardware *hardware, const sim_hardware *reference) {
  if (!hardware->fits || !reference->fits || hardware->purchase_usd <= 0 ||
      reference->best.usd_per_million_samples <= 0)
    return 0;
  const double month_s = 365.25 * 24 * 3600 / 12;
  const double rent_usd_per_month =
      hardware->best.throughput_samples_per_s * month_s / 1e6 * reference->best.usd_per_million_samples;
  return hardware->purchase_usd / rent_usd_per_month;
}
