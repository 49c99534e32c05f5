#include "sim/whatif.h"

#include <string.h>

#include "sim/whatif_search.h"

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
    const bool copies = link[l].model->reference_memory_bytes_per_s > 0; /* inside a card: as fast as its memory */
    if (resource == (copies ? SIM_RESOURCE_MEMORY_BANDWIDTH : SIM_RESOURCE_LINK_BANDWIDTH))
      link[l].bandwidth_bytes_per_s *= growth;
  }
  if (resource == SIM_RESOURCE_HOST) grown->cluster.host_issue_factor /= growth;
  grown->cluster.devices.items = device;
  grown->cluster.links.items = link;
  return DP_OK;
}

/* Throughput of a candidate on the grown cluster; 0: it does not fit. DP_BAD_INPUT where it cannot be. */
static dp_status predict(const plan_scenario *grown, const sim_candidate *candidate, int64_t batch,
                         const sim_efficiency *efficiency, double *throughput, dp_error *error) {
  const plan_scenario changed = sim_tune_scenario(grown, candidate, batch);
  sim_prediction prediction;
  DP_TRY(sim_predict(&changed, efficiency, &prediction, error));
  *throughput = prediction.fits ? prediction.metrics.throughput_samples_per_s : 0;
  sim_prediction_free(&prediction);
  return DP_OK;
}

/* With more memory only those plans differ that were short of it. */
static dp_status best_with_memory(const sim_hardware *h, const plan_scenario *grown, int64_t batch,
                                  const sim_efficiency *efficiency, double *throughput, dp_error *error) {
  *throughput = h->best.throughput_samples_per_s;
  for (int i = 0; i < h->tuned.trial_count; i++) {
    const sim_trial *trial = &h->tuned.trials[i];
    const bool recomputed = trial->candidate.recomputed_units > 0 && trial->without_recomputation.peak_bytes > 0;
    const bool short_of_it = trial->state == SIM_TRIAL_SIMULATED
                                 ? !trial->fits || recomputed
                                 : trial->state == SIM_TRIAL_REFUSED || trial->state == SIM_TRIAL_TOO_LARGE;
    if (!short_of_it || trial->set_aside || trial->bound_s >= (double)batch / *throughput) continue;
    double found = 0;
    dp_error trouble = DP_ERROR_INIT;
    const dp_status status = predict(grown, &trial->candidate, batch, efficiency, &found, &trouble);
    if (status != DP_OK && status != DP_BAD_INPUT) return dp_fail(error, status, "%s", trouble.text);
    if (found > *throughput) *throughput = found;
  }
  return DP_OK;
}

dp_status sim_hardware_measure_gain(sim_hardware *h, const sim_efficiency *efficiency, sim_resource resource,
                                    dp_error *error) {
  dp_arena arena = {0};
  plan_scenario grown;
  const int64_t batch = sim_tune_global_batch(&h->scenario, error);
  dp_status status = batch ? grow(&h->scenario, resource, &arena, &grown, error) : DP_BAD_INPUT;
  double throughput = 0;
  if (status == DP_OK)
    status = resource == SIM_RESOURCE_MEMORY_SIZE
                 ? best_with_memory(h, &grown, batch, efficiency, &throughput, error)
                 : predict(&grown, &h->best.candidate, batch, efficiency, &throughput, error);
  if (status == DP_OK && throughput > 0) h->gain[resource] = throughput / h->best.throughput_samples_per_s - 1;
  dp_arena_free(&arena);
  return status;
}
