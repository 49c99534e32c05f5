#include "sim/prepared.h"

#include <string.h>

#include "plan/transport.h"

const sim_prepared_kind *sim_prepared_kind_of(const sim_prepared *prepared, const plan_device *device) {
  for (int k = 0; k < prepared->kind_count; k++) {
    const sim_prepared_kind *kind = &prepared->kinds[k];
    if (kind->device->model == device->model && kind->device->compute_share == device->compute_share) return kind;
  }
  return NULL;
}

/* The device as compute has it; whole where nothing would be left, which no plan does. */
static const plan_device *computing_part(const plan_scenario *scenario, const plan_device *device, dp_arena *arena) {
  const int64_t step = plan_device_sm_step(device->model);
  const int64_t left = plan_compute_sms(device->sm_count, step, scenario->nccl_sms);
  if (scenario->nccl_sms == 0 || left < step) return device;
  plan_device *part = DP_ARENA_NEW(arena, plan_device, 1);
  if (!part) return NULL;
  *part = *device;
  part->sm_count = left;
  part->compute_share *= (double)part->sm_count / (double)device->sm_count;
  return part;
}

static dp_status cost_kinds(const plan_scenario *scenario, const sim_efficiency *efficiency, sim_prepared *prepared,
                            dp_error *error) {
  const plan_cluster *cluster = &scenario->cluster;
  prepared->kinds = DP_ARENA_NEW(&prepared->arena, sim_prepared_kind, cluster->devices.count);
  if (!prepared->kinds) return dp_fail_memory(error);
  for (size_t d = 0; d < cluster->devices.count; d++) {
    const plan_device *device = &cluster->devices.items[d];
    if (sim_prepared_kind_of(prepared, device)) continue;
    sim_prepared_kind *kind = &prepared->kinds[prepared->kind_count];
    const plan_device *computing = computing_part(scenario, device, &prepared->arena);
    if (!computing) return dp_fail_memory(error);
    kind->device = device;
    kind->context = (sim_cost_context){.efficiency = efficiency,
                                       .implementation = prepared->implementation,
                                       .device = computing,
                                       .precision = prepared->model.precision,
                                       .any_order = !scenario->train.deterministic,
                                       .gradient_fp32 = scenario->gradient_fp32,
                                       .cuda_graphs = scenario->cuda_graphs,
                                       .host_issue_factor = cluster->host_issue_factor,
                                       .profile = plan_scenario_profile(scenario, device)};
    kind->units = DP_ARENA_NEW(&prepared->arena, sim_unit_cost, prepared->model.units.count);
    if (!kind->units) return dp_fail_memory(error);
    DP_TRY(sim_cost_units(&kind->context, &prepared->model, kind->units, error));
    prepared->kind_count++;
  }
  return DP_OK;
}

dp_status sim_prepare_share(const plan_scenario *scenario, const sim_efficiency *efficiency, int64_t microbatch_size,
                            int tensor, sim_prepared *prepared, dp_error *error) {
  memset(prepared, 0, sizeof *prepared);
  prepared->microbatch_size = microbatch_size;
  prepared->nccl_sms = scenario->nccl_sms;
  DP_TRY(sim_efficiency_implementation(efficiency, scenario->implementation,
                                       plan_scenario_node(scenario, "task", "implementation"),
                                       &prepared->implementation, error));
  DP_TRY(plan_scenario_share(scenario, microbatch_size, tensor, &prepared->model, error));
  dp_status status = graph_peaks_new(&prepared->model, &prepared->peaks, error);
  if (status == DP_OK) status = cost_kinds(scenario, efficiency, prepared, error);
  if (status != DP_OK) sim_prepared_free(prepared);
  return status;
}

dp_status sim_prepare(const plan_scenario *scenario, const sim_efficiency *efficiency, int64_t microbatch_size,
                      sim_prepared *prepared, dp_error *error) {
  return sim_prepare_share(scenario, efficiency, microbatch_size, 1, prepared, error);
}

void sim_prepared_free(sim_prepared *prepared) {
  graph_peaks_free(prepared->peaks);
  graph_free(&prepared->model);
  dp_arena_free(&prepared->arena);
  memset(prepared, 0, sizeof *prepared);
}
