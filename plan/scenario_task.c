/* [task] of a scenario: what the job is. */
#include "plan/scenario_reader.h"

typedef struct task_keys {
  int64_t global_batch, lora_rank, steps;
  int kind, optimizer, trainable, gradient_precision;
  bool guidance, cuda_graphs;
  const char *implementation;
} task_keys;

static const char *const kind_choices[] = {"train", "sample", NULL};
static const char *const trainable_choices[] = {"full", "lora", NULL};
static const char *const gradient_choices[] = {"fp32", "model", NULL};
const dp_field plan_task_fields[PLAN_TASK_FIELD_COUNT] = {
    {"kind", DP_FIELD_CHOICE, offsetof(task_keys, kind), false, 0, 0, kind_choices, "default train"},
    {"global_batch", DP_FIELD_INTEGER, offsetof(task_keys, global_batch), false, 1, 1e9, NULL,
     "samples a step, of all replicas; default from the plan"},
    {"optimizer", DP_FIELD_CHOICE, offsetof(task_keys, optimizer), false, 0, 0, plan_optimizer_names, "default adamw"},
    {"trainable", DP_FIELD_CHOICE, offsetof(task_keys, trainable), false, 0, 0, trainable_choices, "default full"},
    {"lora_rank", DP_FIELD_INTEGER, offsetof(task_keys, lora_rank), false, 1, 65536, NULL,
     "with trainable = \"lora\"; default 16"},
    {"steps", DP_FIELD_INTEGER, offsetof(task_keys, steps), false, 1, 1e9, NULL,
     "train: steps of the job, default 1; sample: denoise steps, default 50"},
    {"guidance", DP_FIELD_BOOLEAN, offsetof(task_keys, guidance), false, 0, 0, NULL,
     "sample: classifier-free guidance, the model sees each sample twice; default false"},
    {"gradient_precision", DP_FIELD_CHOICE, offsetof(task_keys, gradient_precision), false, 0, 0, gradient_choices,
     "what gradients accumulate in; default fp32"},
    {"cuda_graphs", DP_FIELD_BOOLEAN, offsetof(task_keys, cuda_graphs), false, 0, 0, NULL,
     "one launch an instruction instead of one a kernel; default true"},
    {"implementation", DP_FIELD_STRING, offsetof(task_keys, implementation), false, 0, 0, NULL,
     "how ops are run, a row of catalogue/efficiency.toml; default fused, with [train] what runs it: cuda, on "
     "processors cpu"},
};
static const char *const training_keys[] = {"optimizer", "trainable", "lora_rank", "gradient_precision", NULL};

dp_status plan_scenario_read_task(const dp_node *table, plan_scenario *scenario, dp_error *error) {
  task_keys keys = {.lora_rank = 16, .cuda_graphs = true, .implementation = "fused"};
  DP_TRY(dp_schema_read(table, NULL, "task", plan_task_fields, PLAN_TASK_FIELD_COUNT, &keys, error));
  const bool training = keys.kind == 0;
  const dp_node *wrong = training ? dp_node_get(table, "guidance") : plan_scenario_first_of(table, training_keys);
  if (wrong)
    return dp_fail_at(error, wrong, "task.%s: found with kind = \"%s\", allowed: only with kind = \"%s\"", wrong->key,
                      kind_choices[keys.kind], kind_choices[!keys.kind]);
  const dp_node *rank = dp_node_get(table, "lora_rank");
  if (rank && keys.trainable == 0)
    return dp_fail_at(error, rank,
                      "task.lora_rank: found with trainable = \"full\", allowed: only with trainable = \"lora\"");
  if (keys.trainable == 1 && scenario->synthetic)
    return dp_fail_at(error, dp_node_get(table, "trainable"),
                      "task.trainable: found \"lora\" with synthetic units, allowed: full");
  scenario->training = training;
  scenario->global_batch = keys.global_batch;
  scenario->optimizer = (plan_optimizer)keys.optimizer;
  scenario->steps = keys.steps ? keys.steps : training ? 1 : 50;
  scenario->guidance = keys.guidance;
  scenario->gradient_fp32 = keys.gradient_precision == 0;
  scenario->cuda_graphs = keys.cuda_graphs;
  scenario->implementation = keys.implementation;
  scenario->model_options.trainable = keys.trainable == 0 ? GRAPH_TRAIN_FULL : GRAPH_TRAIN_LORA;
  scenario->model_options.lora_rank = keys.lora_rank;
  return DP_OK;
}
