/* A small training for the suites of sessions: pictures and captions made by code, cached by the toy encoders for a
 * model of tests/fixtures, and a plan for it. The suite has entered a scratch folder. */
#ifndef DP_TESTS_TRAIN_WORLD_H
#define DP_TESTS_TRAIN_WORLD_H

#include <stdio.h>
#include <string.h>

#include "exec/cache.h"
#include "exec/session.h"
#include "exec/shapes.h"
#include "sim/predict.h"
#include "tests/fixtures.h"
#include "tests/sim_efficiency.h"
#include "tests/suite.h"

enum { WORLD_PICTURES = 10, WORLD_BATCH = 4 };

typedef struct world {
  plan_scenario scenario;
  sim_prediction prediction;
  exec_session *session;
} world;

#define MUST(call)                                                    \
  do {                                                                \
    dp_error must_error = DP_ERROR_INIT;                              \
    ck_assert_msg((call) == DP_OK, "%s: %s", #call, must_error.text); \
  } while (0)

/* Writes the folder `data` for the model of a graph. */
static inline void world_data(const exec_objective_sizes *sizes) {
  exec_manifest manifest = {0};
  int64_t members[WORLD_PICTURES];
  const int64_t size[1][2] = {{sizes->height * EXEC_LATENT_PIXELS, sizes->width * EXEC_LATENT_PIXELS}};
  for (int i = 0; i < WORLD_PICTURES; i++) members[i] = i;
  MUST(exec_shapes_write("data", 1, WORLD_PICTURES, size, 1, NULL, NULL, &must_error));
  MUST(exec_manifest_make("data", NULL, NULL, &manifest, &must_error));
  MUST(exec_manifest_write(&manifest, &must_error));
  const exec_cache_latents latents = {
      "data", "", exec_image_encoder_of_channels(sizes->channels), size[0][0], size[0][1], members, WORLD_PICTURES};
  const exec_cache_text text = {"data",
                                "",
                                exec_text_encoder_find("hashed-words"),
                                sizes->text_tokens,
                                sizes->text_channels,
                                sizes->pooled_channels};
  MUST(exec_cache_write_latents(&manifest, &latents, NULL, NULL, NULL, &must_error));
  MUST(exec_cache_write_text(&manifest, &text, NULL, NULL, NULL, &must_error));
  exec_manifest_free(&manifest);
}

/* Reads and predicts a scenario of the model with further lines; `task` are lines of [task]. Writes the data when they
 * are not there. */
static inline void world_plan(const char *model, const char *task, const char *lines, world *w) {
  char text[8192];
  const int height = strcmp(model, "sd3") == 0 ? 96 : strncmp(model, "flux", 4) == 0 ? 64 : 128;
  *w = (world){.session = NULL};
  (void)snprintf(text, sizeof text,
                 "format = \"diffpipe-scenario\"\nversion = 1\n[model]\nconfig = \"%s\"\nheight = %d\nwidth = %d\n"
                 "text_tokens = 7\nprecision = \"fp32\"\n[cluster]\n[[cluster.node]]\n[[cluster.node.device]]\n"
                 "model = \"RTX-4090\"\ncount = 4\n[task]\nglobal_batch = %d\n%s\n%s\n",
                 fixture_path(model, "config.json"), height, height, WORLD_BATCH, task, lines);
  MUST(plan_scenario_parse(text, strlen(text), "world.toml", &w->scenario, &must_error));
  MUST(sim_predict(&w->scenario, efficiency, &w->prediction, &must_error));
  FILE *data = fopen("data/text.safetensors", "rb");
  if (data) {
    (void)fclose(data);
    return;
  }
  exec_objective objective;
  MUST(exec_objective_init(&w->scenario, &w->prediction.graph, &w->prediction.plan, &objective, &must_error));
  world_data(&objective.sizes);
  exec_objective_free(&objective);
}

static inline dp_status world_try_open(world *w, const char *folder, int64_t steps, dp_error *error) {
  const exec_session_options options = {.scenario = &w->scenario,
                                        .graph = &w->prediction.graph,
                                        .program = &w->prediction.program,
                                        .folder = folder,
                                        .steps = steps,
                                        .threads = 1};
  return exec_session_create(&options, &w->session, error);
}

static inline void world_open(const char *model, const char *task, const char *lines, const char *folder, int64_t steps,
                              world *w) {
  world_plan(model, task, lines, w);
  MUST(world_try_open(w, folder, steps, &must_error));
}

static inline void world_close(world *w) {
  exec_session_free(w->session);
  sim_prediction_free(&w->prediction);
  plan_scenario_free(&w->scenario);
}

#endif
