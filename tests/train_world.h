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
  sim_prediction prediction, other;
  exec_session_size sizes[2]; /* the second is `other`'s, a bucket of another size */
  size_t size_count;
  bool has_other;
  exec_session *session;
} world;

#define MUST(call)                                                    \
  do {                                                                \
    dp_error must_error = DP_ERROR_INIT;                              \
    ck_assert_msg((call) == DP_OK, "%s: %s", #call, must_error.text); \
  } while (0)

/* Writes the folder `data` for the model of a graph; with `wide` every third picture is 64 x 192 and has a bucket. */
static inline void world_data(const exec_objective_sizes *sizes, bool wide) {
  exec_manifest manifest = {0};
  int64_t members[2][WORLD_PICTURES];
  size_t counts[2] = {0, 0};
  const int64_t own[] = {sizes->height * EXEC_LATENT_PIXELS, sizes->width * EXEC_LATENT_PIXELS};
  const int64_t size[3][2] = {{own[0], own[1]}, {own[0], own[1]}, {64, 192}};
  const exec_image_encoder *encoder = exec_image_encoder_of_channels(sizes->channels);
  for (int i = 0; i < WORLD_PICTURES; i++) {
    const int bucket = wide && i % 3 == 2;
    members[bucket][counts[bucket]++] = i;
  }
  MUST(exec_shapes_write("data", 1, WORLD_PICTURES, size, wide ? 3 : 1, NULL, NULL, &must_error));
  MUST(exec_manifest_make("data", NULL, NULL, &manifest, &must_error));
  MUST(exec_manifest_write(&manifest, &must_error));
  const exec_cache_latents latents = {encoder, own[0], own[1], members[0], counts[0]};
  const exec_cache_latents others = {encoder, 64, 192, members[1], counts[1]};
  const exec_cache_text text = {exec_text_encoder_find("hashed-words"), sizes->text_tokens, sizes->text_channels,
                                sizes->pooled_channels};
  MUST(exec_cache_write_latents(&manifest, &latents, NULL, NULL, NULL, &must_error));
  if (wide) MUST(exec_cache_write_latents(&manifest, &others, NULL, NULL, NULL, &must_error));
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
  w->sizes[0] = (exec_session_size){&w->prediction.graph, &w->prediction.program};
  w->size_count = 1;
  FILE *data = fopen("data/text.safetensors", "rb");
  if (data) {
    (void)fclose(data);
    return;
  }
  exec_objective objective;
  MUST(exec_objective_init(&w->scenario, &w->prediction.graph, &w->prediction.plan, &objective, &must_error));
  world_data(&objective.sizes, w->scenario.data.bucket_count == 2);
  exec_objective_free(&objective);
}

/* Adds the program of another bucket, of the same split. */
static inline void world_bucket(world *w, int64_t height, int64_t width) {
  int64_t cuts[16];
  plan_scenario other = w->scenario;
  other.model_options.height = height;
  other.model_options.width = width;
  for (int c = 1; c < w->prediction.plan.chunk_count; c++) cuts[c - 1] = w->prediction.plan.chunks[c].first_unit;
  other.split = cuts;
  other.split_count = (size_t)w->prediction.plan.chunk_count - 1;
  MUST(sim_predict(&other, efficiency, &w->other, &must_error));
  w->sizes[1] = (exec_session_size){&w->other.graph, &w->other.program};
  w->size_count = 2;
  w->has_other = true;
}

static inline dp_status world_try_open(world *w, const char *folder, int64_t steps, dp_error *error) {
  const exec_session_options options = {.scenario = &w->scenario,
                                        .sizes = w->sizes,
                                        .size_count = w->size_count,
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
  if (w->has_other) sim_prediction_free(&w->other);
  plan_scenario_free(&w->scenario);
}

#endif
