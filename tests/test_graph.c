/* Graphs: the published parameter and FLOP totals, shapes, costs by hand, liveness against brute force. */
#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "graph/build.h"

static const char *model_path(const char *name) {
  static char path[4096];
  const char *folder = getenv("DIFFPIPE_DATA_DIR");
  snprintf(path, sizeof path, "%s/models/%s.json", folder != NULL ? folder : dp_data_folder(), name);
  return path;
}

static graph_model_options sized(int64_t batch, int64_t side, int64_t text_tokens) {
  graph_model_options options;
  graph_model_options_default(&options);
  options.batch = batch;
  options.height = options.width = side;
  options.text_tokens = text_tokens;
  return options;
}

static graph read_model(const char *name, const graph_model_options *options) {
  graph g = {0};
  dp_error error = DP_ERROR_INIT;
  const dp_status status = graph_model_read(model_path(name), options, &g, &error);
  ck_assert_msg(status == DP_OK, "%s", error.text);
  return g;
}

/* shared oracles: totals confirmed with diffusers, FLOPs as PyTorch's FlopCounterMode counts; 0: no figure published */
static const struct {
  const char *model;
  int64_t side, text_tokens, parameters, matrix_flops;
} oracles[] = {
    {"sd15_unet", 512, 77, 859520964, 803273441280},
    {"sd21_unet", 0, 0, 865910724, 0},
    {"sdxl_unet", 1024, 77, 2567463684, 6761236398080},
    {"sd3_medium", 1024, 333, 2028328000, 8904337539072},
    {"sd35_medium", 0, 0, 2243171520, 0},
    {"sd35_large", 0, 0, 8056627520, 0},
    {"flux_dev", 1024, 512, 11901408320, 74384653418496},
    {"flux_schnell", 0, 0, 11891178560, 0},
};

START_TEST(totals_equal_the_published) {
  const graph_model_options options = sized(1, oracles[_i].side, oracles[_i].text_tokens);
  graph g = read_model(oracles[_i].model, &options);
  ck_assert_int_eq(g.parameters, oracles[_i].parameters);
  if (oracles[_i].matrix_flops != 0) ck_assert_int_eq(g.matrix_flops, oracles[_i].matrix_flops);
  graph_free(&g);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("graph");
  TCase *models = tcase_create("models");
  tcase_add_loop_test(models, totals_equal_the_published, 0, sizeof oracles / sizeof *oracles);
  suite_add_tcase(suite, models);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed != 0;
}
