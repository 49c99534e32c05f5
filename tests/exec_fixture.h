/* A small model of tests/fixtures under a plan: its scenario, its weights in a pipeline, numbers to feed it with.
 * Without Check, for programs that mpirun starts. */
#ifndef DP_TESTS_EXEC_FIXTURE_H
#define DP_TESTS_EXEC_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "exec/checkpoint_model.h"
#include "exec/pipeline.h"
#include "exec/tables.h"
#include "graph/op_table.h"
#include "plan/scenario.h"
#include "tests/fixtures.h"

typedef struct exec_fixture {
  const char *model;
  int height, width, text_tokens, global_batch;
  const char *precision; /* NULL: fp32 */
  const char *task;      /* further lines of [task]; NULL: none */
  const char *device;    /* NULL: RTX-4090, which has no peer access */
  const char *plan;      /* lines of [plan]; microbatches have one sample where they do not say otherwise */
} exec_fixture;

/* On eight cards of one node. */
static inline dp_status exec_fixture_scenario(const exec_fixture *f, plan_scenario *scenario, dp_error *error) {
  char text[8192];
  (void)snprintf(text, sizeof text,
                 "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"%s\"\nheight = %d\nwidth = %d\n"
                 "text_tokens = %d\nprecision = \"%s\"\n[task]\nglobal_batch = %d\n%s\n"
                 "[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"%s\"\ncount = 8\n"
                 "[plan]\n%s%s\n",
                 fixture_path(f->model, "config.json"), f->height, f->width, f->text_tokens,
                 f->precision ? f->precision : "fp32", f->global_batch, f->task ? f->task : "", f->device ? f->device : "RTX-4090",
                 strstr(f->plan, "microbatch_size") ? "" : "microbatch_size = 1\n", f->plan);
  return plan_scenario_parse(text, strlen(text), "fixture.toml", scenario, error);
}

/* What each worker has of the weights, and its constants; `config`: of the model. */
static inline dp_status exec_fixture_load(exec_pipeline *pipeline, const plan_program *program, const graph *g,
                                          const exec_weights *weights, const dp_node *config, dp_error *error) {
  dp_status status = DP_OK;
  for (int w = 0; w < program->worker_count; w++) {
    if (!exec_pipeline_has(pipeline, w)) continue;
    exec_parameters *parameters = exec_pipeline_parameters(pipeline, w);
    for (int k = 0; status == DP_OK && k < (int)g->weights.count; k++) {
      if (!exec_parameters_value(parameters, k)) continue;
      float *file = malloc((size_t)g->weights.items[k].parameters * sizeof *file);
      status = file ? exec_weights_read(weights, k, file, error) : dp_fail_memory(error);
      if (status == DP_OK) status = exec_pipeline_write_weight(pipeline, w, EXEC_VALUES, k, file, error);
      free(file);
    }
    for (int t = 0; status == DP_OK && t < (int)g->tensors.count; t++) {
      if (!g->tensors.items[t].is_constant || !exec_pipeline_constant(pipeline, w, t)) continue;
      float *constant = malloc((size_t)graph_tensor_elements(&g->tensors.items[t]) * sizeof *constant);
      status = constant ? exec_table_fill(g, t, config, weights->files,
                                          exec_weights_buffer(weights, g->tensors.items[t].name), constant, error)
                        : dp_fail_memory(error);
      if (status == DP_OK) status = exec_pipeline_write_constant(pipeline, w, t, constant, error);
      free(constant);
    }
  }
  return status;
}

/* A feed's data: a sample's numbers come from its index alone, whoever works on it. */
typedef struct exec_fixture_feed {
  const graph *graph;
  int microbatches;
} exec_fixture_feed;

static inline void exec_fixture_fill(void *data, int replica, int microbatch, int tensor, float *out) {
  const exec_fixture_feed *d = data;
  const graph_tensor *t = &d->graph->tensors.items[tensor];
  const int64_t n = graph_tensor_elements(t) / t->dims[0];
  const bool is_time = strcmp(t->name, "timestep") == 0;
  for (int64_t s = 0; s < t->dims[0]; s++) {
    dp_random random;
    const int64_t sample = ((int64_t)replica * d->microbatches + microbatch) * t->dims[0] + s;
    dp_random_init(&random, (uint64_t)tensor + 1, (uint64_t)sample);
    for (int64_t i = 0; i < n; i++)
      out[s * n + i] = is_time ? (float)dp_random_below(&random, 1000) : (float)(2 * dp_random_uniform(&random) - 1);
  }
}

#endif
