/* Any bytes as a scenario: refused with one line, or a plan whose counts agree and a graph for it. */
#include <stdlib.h>
#include <string.h>

#include "plan/scenario.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const dp_error *error) {
  if (!error->text[0] || strchr(error->text, '\n')) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  plan_scenario scenario = {0};
  dp_error error = DP_ERROR_INIT;
  if (plan_scenario_parse((const char *)data, size, "fuzz.toml", &scenario, &error) != DP_OK) {
    check_error(&error);
    return 0;
  }
  plan_plan plan = {0};
  if (plan_scenario_plan(&scenario, &plan, &error) != DP_OK) abort(); /* parse settled it once already */
  if (plan.ranks < 1 || plan.replicas < 1 || plan.microbatches < 1 || plan.microbatch_size < 1 ||
      plan.denoise_steps < 1)
    abort();
  if (scenario.global_batch &&
      scenario.global_batch != (int64_t)plan.microbatches * plan.microbatch_size * plan.replicas)
    abort();
  for (int w = 0; w < plan_worker_count(&plan); w++)
    if (plan.devices[w] < 0 || (size_t)plan.devices[w] >= scenario.cluster.devices.count) abort();
  graph built = {0};
  if (plan_scenario_graph(&scenario, plan.microbatch_size, &built, &error) != DP_OK) check_error(&error);
  graph_free(&built);
  plan_plan_free(&plan);
  plan_scenario_free(&scenario);
  return 0;
}
