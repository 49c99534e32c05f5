/* diffusion-pipe's files and DeepSpeed's partition rules. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/dpipe.h"
#include "tests/scratch.h"
#include "tests/suite.h"

#define BASE                                                                                     \
  "dataset = 'd.toml'\nmicro_batch_size_per_gpu = 1\n[model]\ntype = 'flux'\ndtype = 'bfloat16'" \
  "\n[optimizer]\ntype = 'adamw'\n"

static plan_dpipe config;
static dp_error failure;

static void setup(void) { memset(&config, 0, sizeof config); }
static void teardown(void) { plan_dpipe_free(&config); }

static void read_config(const char *text) {
  failure = (dp_error)DP_ERROR_INIT;
  ck_assert_msg(plan_dpipe_parse(text, strlen(text), "c.toml", &config, &failure) == DP_OK, "%s", failure.text);
}

static void read_sizes(const char *text) {
  failure = (dp_error)DP_ERROR_INIT;
  read_config(BASE);
  ck_assert_msg(plan_dpipe_parse_dataset(&config, text, strlen(text), "d.toml", &failure) == DP_OK, "%s", failure.text);
}

static void check_parts(const int64_t *weights, int layers, int stages, const int *expected) {
  int parts[16];
  ck_assert_int_eq(plan_deepspeed_balanced(weights, layers, stages, parts, NULL), DP_OK);
  for (int s = 0; s <= stages; s++)
    ck_assert_msg(parts[s] == expected[s], "stage %d begins at %d, not %d", s, parts[s], expected[s]);
}

/* By hand: 59 = 15 + 15 + 15 + 14, 23 = 6 + 6 + 6 + 5, 26 = 9 + 9 + 8; three layers leave two of five stages empty. */
START_TEST(uniform_by_hand) {
  static const struct {
    int layers, stages, parts[6];
  } cases[] = {{59, 4, {0, 15, 30, 45, 59}}, {23, 4, {0, 6, 12, 18, 23}}, {26, 3, {0, 9, 18, 26}},
               {4, 4, {0, 1, 2, 3, 4}},      {3, 5, {0, 1, 2, 3, 3, 3}},  {7, 1, {0, 7}}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    int parts[8];
    plan_deepspeed_uniform(cases[c].layers, cases[c].stages, parts);
    for (int s = 0; s <= cases[c].stages; s++) ck_assert_int_eq(parts[s], cases[c].parts[s]);
  }
}
END_TEST

/* 1 2 3 | 4 5 differ by 3, every other cut by more; 1 2 3 | 4 | 5 by 2. Of 1 | 2 and 2 | 1 the later cut. */
START_TEST(balanced_by_hand) {
  check_parts((const int64_t[]){1, 2, 3, 4, 5}, 5, 2, (const int[]){0, 3, 5});
  check_parts((const int64_t[]){1, 2, 3, 4, 5}, 5, 3, (const int[]){0, 3, 4, 5});
  check_parts((const int64_t[]){1, 1, 1}, 3, 2, (const int[]){0, 2, 3});
  check_parts((const int64_t[]){4, 1, 1, 4}, 4, 2, (const int[]){0, 2, 4});
  check_parts((const int64_t[]){5, 1, 1, 1, 1, 1}, 6, 2, (const int[]){0, 1, 6});
  check_parts((const int64_t[]){1, 1, 1}, 3, 4, (const int[]){0, 1, 2, 3, 3});
  /* a rule that goes by prefixes, so not always the best: what DeepSpeed's own function answers */
  check_parts((const int64_t[]){3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, 11, 3, (const int[]){0, 5, 8, 11});
  check_parts((const int64_t[]){1, 9, 1, 1, 9, 1, 4}, 7, 4, (const int[]){0, 2, 4, 6, 7});
}
END_TEST

/* Flux: 45,047,808 + 19 double blocks + 38 single ones + 19,077,184; as DeepSpeed's own function cuts them. */
START_TEST(balanced_flux) {
  int64_t weights[59];
  for (int l = 0; l < 59; l++) weights[l] = l == 0 ? 45047808 : l < 20 ? 339831296 : l < 58 ? 141591808 : 19077184;
  check_parts(weights, 59, 2, (const int[]){0, 18, 59});
  check_parts(weights, 59, 3, (const int[]){0, 13, 31, 59});
  check_parts(weights, 59, 4, (const int[]){0, 10, 19, 38, 59});
  check_parts(weights, 59, 8, (const int[]){0, 5, 9, 13, 17, 24, 36, 48, 59});
}
END_TEST

/* CLIPTextModel of SDXL: 49408 tokens and 77 places of 768, 12 layers; bigG: 1280, 32 layers, and a projection. */
START_TEST(text_encoders_add_up) {
  static const int64_t width[] = {768, 1280}, layers[] = {12, 32}, inner[] = {3072, 5120};
  int64_t weights = 0, adapter = 0;
  for (int e = 0; e < 2; e++) {
    const int64_t w = width[e], m = inner[e];
    const int64_t layer = 4 * (w * w + w) + 2 * 2 * w + (w * m + m) + (m * w + w);
    weights += (49408 + 77) * w + layers[e] * layer + 2 * w + (e ? w * w : 0);
    adapter += layers[e] * (4 * 2 * w + 2 * (w + m)) + (e ? 2 * w : 0);
  }
  ck_assert_int_eq(weights, PLAN_DPIPE_TEXT_ENCODERS);
  ck_assert_int_eq(adapter, PLAN_DPIPE_TEXT_ADAPTER);
}
END_TEST

START_TEST(units_join_to_layers) {
  static const struct {
    const char *unit;
    bool joins;
  } cases[] = {{"conv_in", false},
               {"down_blocks.1.resnets.0", false},
               {"down_blocks.1.attentions.0.transformer_blocks.0", true},
               {"down_blocks.1.downsamplers.0", false},
               {"mid_block.resnets.0", false},
               {"mid_block.attentions.0.transformer_blocks.0", false},
               {"mid_block.attentions.0.transformer_blocks.9", true},
               {"mid_block.resnets.1", true},
               {"up_blocks.0.attentions.2.transformer_blocks.9", true},
               {"up_blocks.0.upsamplers.0", false},
               {"conv_out", false}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
    ck_assert_msg(plan_dpipe_joins(cases[c].unit) == cases[c].joins, "%s", cases[c].unit);
  ck_assert(plan_dpipe_is_checkpointed(PLAN_DPIPE_SDXL, "conv_in"));
  ck_assert(!plan_dpipe_is_checkpointed(PLAN_DPIPE_SDXL, "down_blocks.0.downsamplers.0"));
  ck_assert(!plan_dpipe_is_checkpointed(PLAN_DPIPE_FLUX, "x_embedder"));
  ck_assert(plan_dpipe_is_checkpointed(PLAN_DPIPE_FLUX, "single_transformer_blocks.3"));
}
END_TEST

/* What train.py has where the file says nothing. */
START_TEST(defaults) {
  read_config("[model]\ntype='sdxl'\ndtype='float16'\n[optimizer]\ntype='AdamW8bitKahan'\n");
  ck_assert_int_eq(config.stages, 1);
  ck_assert_int_eq(config.accumulation, 1);
  ck_assert_int_eq(config.batches.items[0].batch, 1);
  ck_assert_int_eq(config.checkpointing, PLAN_DPIPE_KEEP_ALL);
  ck_assert_int_eq(config.partition, PLAN_DPIPE_PARAMETERS);
  ck_assert_int_eq(config.transformer_dtype, PLAN_DPIPE_FP16);
  ck_assert(!config.lora && config.optimizer_known);
  ck_assert_double_eq(config.optimizer->state_values, 1);
  ck_assert_double_eq(config.optimizer->state_bytes, 2);
}
END_TEST

START_TEST(unknown_things_are_listed) {
  read_config(
      "epochs = 3\nnonsense = 1\n[model]\ntype='sd3'\ndtype='bfloat16'\nflux_shift=true\n[optimizer]\ntype='Ranger'\n"
      "lr=1\n[monitoring]\nenable_wandb=false\n");
  ck_assert_uint_eq(config.unused.count, 5);
  ck_assert_str_eq(config.unused.items[1].name, "nonsense");
  ck_assert_int_eq(config.unused.items[1].node->line, 2);
  for (size_t i = 0; i < 5; i++) ck_assert(config.unused.items[i].known == (i != 1));
  ck_assert(!config.optimizer_known);
  ck_assert_str_eq(config.optimizer->name, "adamw");
}
END_TEST

START_TEST(assignments_win) {
  char path[] = "/tmp/diffpipe-dpipe-XXXXXX.toml";
  scratch_file(path, "pipeline_stages = 2\n" BASE);
  const char *sets[] = {"pipeline_stages=4", "model.dtype=float32"};
  failure = (dp_error)DP_ERROR_INIT;
  const dp_status status = plan_dpipe_read(path, sets, 2, &config, &failure);
  (void)remove(path);
  ck_assert_msg(status == DP_OK, "%s", failure.text);
  ck_assert_int_eq(config.stages, 4);
  ck_assert_int_eq(config.dtype, PLAN_DPIPE_FP32);
}
END_TEST

/* 0.5 to 2 in seven steps of 2^(1/3); 1024^2 pixels; sides to the nearest 16, half to even. */
START_TEST(ratios_by_hand) {
  static const double ratios[] = {0.5, 0.63, 0.794, 1, 1.26, 1.587, 2};
  static const int64_t sides[][2] = {{720, 1456}, {816, 1296}, {912, 1152}, {1024, 1024},
                                     {1152, 912}, {1296, 816}, {1456, 720}};
  read_sizes("resolutions=[1024]\nenable_ar_bucket=true\nmin_ar=0.5\nmax_ar=2\nnum_ar_buckets=7\n[[directory]]\n");
  ck_assert_uint_eq(config.buckets.count, 7);
  for (size_t i = 0; i < 7; i++) {
    ck_assert_double_eq_tol(config.buckets.items[i].ratio, ratios[i], 1e-12);
    ck_assert_int_eq(config.buckets.items[i].width, sides[i][0]);
    ck_assert_int_eq(config.buckets.items[i].height, sides[i][1]);
  }
}
END_TEST

/* An area given as a pair is its square root: 1280 x 720 is 960 squared. Aspect ratios are off by default; sizes that
 * two directories share count once; directories override. Videos are left out. */
START_TEST(directories_and_pairs) {
  read_sizes(
      "resolutions=[[1280, 720], 512]\nar_buckets=[2.0]\nframe_buckets=[1, 33]\n"
      "[[directory]]\n[[directory]]\nenable_ar_bucket=true\nar_buckets=[[1, 1], [2, 1]]\n"
      "[[directory]]\nsize_buckets=[[832, 1216, 1], [512, 512, 1], [512, 512, 17]]\n");
  static const int64_t sizes[][2] = {{512, 512}, {720, 368}, {960, 960}, {1360, 672}, {832, 1216}};
  ck_assert_int_gt(config.video_buckets, 0);
  ck_assert_uint_eq(config.buckets.count, 5);
  for (size_t i = 0; i < config.buckets.count; i++) {
    bool found = false;
    for (size_t k = 0; k < 5; k++)
      found = found || (config.buckets.items[i].width == sizes[k][0] && config.buckets.items[i].height == sizes[k][1]);
    ck_assert_msg(found, "%d x %d", (int)config.buckets.items[i].width, (int)config.buckets.items[i].height);
    if (i) ck_assert_double_ge(config.buckets.items[i].resolution, config.buckets.items[i - 1].resolution);
  }
}
END_TEST

/* By the size nearest to the root of the pixels; equally near: the first. */
START_TEST(batches_by_size) {
  read_config(
      "micro_batch_size_per_gpu = 3\nimage_micro_batch_size_per_gpu = [[512, 8], [1024, 2]]\n[model]\n"
      "type='sdxl'\ndtype='bfloat16'\n[optimizer]\ntype='adamw'\n");
  ck_assert_str_eq(config.batch_key, "image_micro_batch_size_per_gpu");
  static const struct {
    int64_t width, height, batch;
  } cases[] = {{512, 512, 8}, {768, 768, 8}, {784, 784, 2}, {1456, 720, 2}, {64, 64, 8}};
  for (size_t c = 0; c < 5; c++) {
    const plan_dpipe_bucket bucket = {.width = cases[c].width, .height = cases[c].height, .frames = 1};
    ck_assert_int_eq(plan_dpipe_batch_of(&config, &bucket), cases[c].batch);
  }
}
END_TEST

/* Each is one line with file and line, and leaves nothing behind. */
START_TEST(what_the_trainer_refuses) {
  static const struct {
    const char *text, *says;
  } cases[] = {
      {"[model]\ntype='chroma'\ndtype='bfloat16'\n[optimizer]\ntype='adamw'\n",
       "c.toml:2: model.type: found \"chroma\""},
      {"pipeline_stages=3\npartition_method='manual'\n" BASE,
       "c.toml:2: config.partition_method: found \"manual\" without"},
      {"pipeline_stages=3\npartition_method='Manual'\npartition_split=[4]\n" BASE,
       "c.toml:3: config.partition_split: found 1 items"},
      {"pipeline_stages=3\npartition_method='manual'\npartition_split=[4, 4]\n" BASE,
       "c.toml:3: config.partition_split: found 4 after 4"},
      {"partition_method='type:block'\n" BASE, "c.toml:1: config.partition_method"},
      {"activation_checkpointing='deep'\n" BASE, "c.toml:1: config.activation_checkpointing: found \"deep\""},
      {"blocks_to_swap=4\n" BASE, "c.toml:1: config.blocks_to_swap: found without [adapter]"},
      {BASE "[adapter]\ntype='lora'\nrank=4\nalpha=4\n", "c.toml:11: adapter.alpha"},
      {BASE "[adapter]\ntype='lokr'\nrank=4\n", "c.toml:9: adapter.type: found \"lokr\""},
  };
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    failure = (dp_error)DP_ERROR_INIT;
    ck_assert_int_eq(plan_dpipe_parse(cases[c].text, strlen(cases[c].text), "c.toml", &config, &failure), DP_BAD_INPUT);
    ck_assert_msg(strncmp(failure.text, cases[c].says, strlen(cases[c].says)) == 0, "%s", failure.text);
    ck_assert_ptr_null(config.document.root);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {uniform_by_hand,           balanced_by_hand,     balanced_flux,
                                text_encoders_add_up,      units_join_to_layers, defaults,
                                unknown_things_are_listed, assignments_win,      ratios_by_hand,
                                directories_and_pairs,     batches_by_size,      what_the_trainer_refuses};
  return suite_run("plan_dpipe", tests, sizeof tests / sizeof tests[0], setup, teardown, 30);
}
