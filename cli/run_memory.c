#include "cli/run_memory.h"

#include <stdlib.h>
#include <string.h>

int64_t cli_run_share(const plan_scenario *scenario, const exec_shortage *shortage, int gpus) {
  const int64_t devices = (int64_t)scenario->cluster.devices.count, cards = gpus > 0 ? gpus : 1,
                each = (devices + cards - 1) / cards;
  return shortage->free_bytes / (each > 0 ? each : 1);
}

/* As device.memory_gb says it, of a card; to a thousandth of a GB, and no more than the bytes. */
static int64_t card_megabytes(const plan_scenario *scenario, int64_t device_bytes) {
  return device_bytes * scenario->cluster.devices.items[0].parts / 1000000;
}

/* Of a scenario whose devices are the caller's to change: all get as much memory, for the settings speak of all. */
static dp_status search(const plan_scenario *scenario, const sim_efficiency *efficiency, int64_t device_bytes,
                        dp_str *words, dp_error *error) {
  const sim_tune_options how = {.best_only = true};
  sim_tune_result result;
  plan_device *devices = scenario->cluster.devices.items;
  const size_t count = scenario->cluster.devices.count;
  for (size_t i = 0; i < count; i++)
    if (devices[i].memory_bytes < device_bytes) device_bytes = devices[i].memory_bytes;
  const int64_t megabytes = card_megabytes(scenario, device_bytes);
  for (size_t i = 0; i < count; i++) devices[i].memory_bytes = megabytes * 1000000 / devices[i].parts;
  DP_TRY(sim_tune(scenario, efficiency, &how, &result, error));
  if (result.best >= 0) {
    dp_str_addf(words, "the fastest plan that fits: --set device.memory_gb=%lld.%03lld ", (long long)(megabytes / 1000),
                (long long)(megabytes % 1000));
    cli_candidate_settings(&result.trials[result.best].candidate, " ", words);
  } else {
    dp_str_addf(words, "no plan of this scenario fits in %.2f GB a device", (double)device_bytes / 1e9);
  }
  sim_tune_result_free(&result);
  return words->failed ? dp_fail_memory(error) : DP_OK;
}

dp_status cli_run_advise(const plan_scenario *scenario, const sim_efficiency *efficiency, int64_t device_bytes,
                         dp_str *words, dp_error *error) {
  plan_scenario limited = *scenario;
  const size_t bytes = scenario->cluster.devices.count * sizeof *limited.cluster.devices.items;
  limited.cluster.devices.items = malloc(bytes + 1);
  if (!limited.cluster.devices.items) return dp_fail_memory(error);
  memcpy(limited.cluster.devices.items, scenario->cluster.devices.items, bytes);
  const dp_status status = search(&limited, efficiency, device_bytes, words, error);
  free(limited.cluster.devices.items);
  return status;
}

void cli_run_add_advice(const plan_scenario *scenario, const sim_efficiency *efficiency, const exec_shortage *shortage,
                        int gpus, dp_error *error) {
  const dp_error found = *error;
  dp_str words = {0};
  dp_error trouble = DP_ERROR_INIT;
  const int64_t bytes = cli_run_share(scenario, shortage, gpus);
  const dp_status status = cli_run_advise(scenario, efficiency, bytes, &words, &trouble);
  (void)dp_fail(error, found.status, "%s; %s", found.text,
                status == DP_OK ? dp_str_text(&words) : "no other plan could be searched for");
  dp_str_free(&words);
}
