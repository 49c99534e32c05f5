#include "cli/data.h"
#include "plan/scenario.h"

static dp_status take_buckets(const plan_data *data, dp_arena *arena, cli_data_model *model, dp_error *error) {
  model->bucket_count = data->bucket_count ? data->bucket_count : 1;
  model->buckets = dp_arena_alloc(arena, model->bucket_count, sizeof *model->buckets);
  if (!model->buckets) return dp_fail_memory(error);
  model->buckets[0][0] = model->sizes.height * EXEC_LATENT_PIXELS;
  model->buckets[0][1] = model->sizes.width * EXEC_LATENT_PIXELS;
  for (size_t b = 0; b < data->bucket_count; b++) {
    model->buckets[b][0] = data->buckets[b].height;
    model->buckets[b][1] = data->buckets[b].width;
  }
  return DP_OK;
}

static dp_status take_graph(const plan_scenario *scenario, const plan_plan *plan, dp_arena *arena, cli_data_model *made,
                            dp_error *error) {
  graph g = {0};
  exec_objective objective = {0};
  dp_status status = plan_scenario_graph(scenario, plan->microbatch_size, &g, error);
  if (status == DP_OK) status = exec_objective_init(scenario, &g, plan, &objective, error);
  if (status == DP_OK) {
    *made = (cli_data_model){.class_name = dp_arena_strdup(arena, g.class_name),
                             .sizes = objective.sizes,
                             .global_batch = objective.global_batch,
                             .seed = objective.seed,
                             .shuffle = scenario->data.shuffle,
                             .trust_cache = scenario->data.trust_cache};
    status = made->class_name ? take_buckets(&scenario->data, arena, made, error) : dp_fail_memory(error);
  }
  exec_objective_free(&objective);
  graph_free(&g);
  return status;
}

dp_status cli_data_model_read(const char *path, dp_arena *arena, cli_data_model *model, dp_error *error) {
  plan_scenario scenario = {0};
  plan_plan plan = {0};
  cli_data_model made = {0};
  DP_TRY(plan_scenario_read(path, NULL, 0, &scenario, error));
  dp_status status = plan_scenario_plan(&scenario, &plan, error);
  if (status == DP_OK) status = take_graph(&scenario, &plan, arena, &made, error);
  plan_plan_free(&plan);
  plan_scenario_free(&scenario);
  if (status == DP_OK) *model = made;
  return status;
}
