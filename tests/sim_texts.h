/* What the suites of whole predictions and searches share: pieces of scenarios' texts, and reading, predicting and
 * searching that must succeed. */
#ifndef DP_TESTS_SIM_TEXTS_H
#define DP_TESTS_SIM_TEXTS_H

#include <string.h>

#include "sim/predict.h"
#include "sim/tune.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

#define HEAD "format = \"diffpipe-scenario\"\nversion = 1\n"
#define SDXL "[model]\nconfig = \"models/sdxl_unet.json\"\nheight = 1024\nwidth = 1024\n"
#define SD15 "[model]\nconfig = \"models/sd15_unet.json\"\nheight = 512\nwidth = 512\n"
#define UNITS                                         \
  "[model]\nsynthetic_units = 13\nforward_us = 500\n" \
  "boundary_bytes = 4000000\nparameters = 50000000\nactivation_bytes = 100000000\n"
/* A node of `count` cards, a text; further keys of the cards may follow. */
#define CARDS(model, count) \
  "[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\nmodel = \"" model "\"\ncount = " count "\n"

/* Reads the text as if it stood in `file`. */
static inline void load_as(const char *file, const char *text, plan_scenario *scenario) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(plan_scenario_parse(text, strlen(text), file, scenario, &error) == DP_OK, "%s", error.text);
}

static inline void predict(const plan_scenario *scenario, sim_prediction *prediction) {
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(sim_predict(scenario, efficiency, prediction, &error) == DP_OK, "%s", error.text);
}

static inline void search(const plan_scenario *scenario, int threads, sim_tune_result *result) {
  const sim_tune_options how = {.threads = threads};
  dp_error error = DP_ERROR_INIT;
  ck_assert_msg(sim_tune(scenario, efficiency, &how, result, &error) == DP_OK, "%s", error.text);
}

/* A scenario and what is predicted of it. */
typedef struct run {
  plan_scenario scenario;
  sim_prediction prediction;
} run;

static inline void end_run(run *r) {
  sim_prediction_free(&r->prediction);
  plan_scenario_free(&r->scenario);
}

#endif
