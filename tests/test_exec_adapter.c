#define _DEFAULT_SOURCE
/* exec/adapter: files of LoRA adapters as diffusers and PEFT name them. */
#include "exec/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/random.h"
#include "tests/graph_helpers.h"
#include "tests/scratch.h"
#include "tests/suite.h"

static const char *const tiny_unet =
    "{\"_class_name\":\"UNet2DConditionModel\",\"sample_size\":8,\"down_block_types\":[\"DownBlock2D\","
    "\"CrossAttnDownBlock2D\"],\"up_block_types\":[\"CrossAttnUpBlock2D\",\"UpBlock2D\"],\"block_out_channels\":[8,16],"
    "\"layers_per_block\":1,\"cross_attention_dim\":8,\"attention_head_dim\":2,\"norm_num_groups\":4}\n";
static const char *const tiny_flux =
    "{\"_class_name\":\"FluxTransformer2DModel\",\"patch_size\":1,\"in_channels\":16,\"num_layers\":1,"
    "\"num_single_layers\":1,\"attention_head_dim\":16,\"num_attention_heads\":2,\"joint_attention_dim\":8,"
    "\"pooled_projection_dim\":8,\"axes_dims_rope\":[4,6,6]}";
enum { RANK = 3 };
#define DATA "out/pytorch_lora_weights.safetensors"

static dp_error error;
static dp_arena arena;
static graph model;
static exec_adapter_layer *layers;
static int count;
static exec_adapter adapter;

static void must(dp_status status) { ck_assert_msg(status == DP_OK, "%s", error.text); }

static void make(const char *config, int64_t rank) {
  graph_free(&model);
  graph_model_options options = options_of(1, 64, 4);
  options.trainable = GRAPH_TRAIN_LORA;
  options.lora_rank = rank;
  model = build_model(config, &options);
  must(exec_adapter_layers(&model, &arena, &layers, &count, &error));
}

static void setup(void) {
  scratch_enter();
  error = (dp_error)DP_ERROR_INIT;
  make(tiny_unet, RANK);
}

static void teardown(void) {
  exec_adapter_close(&adapter);
  graph_free(&model);
  dp_arena_free(&arena);
  ck_assert_int_eq(dp_folder_remove("out", NULL, &error), DP_OK);
  scratch_leave();
}

static float value_of(int layer, int factor, int64_t i) { return (float)(layer * 10000 + factor * 5000 + i) / 3; }

static dp_status source(void *context, int layer, const float **a, const float **b, dp_error *into) {
  static float room[2][16384];
  (void)context;
  (void)into;
  for (int64_t i = 0; i < layers[layer].rank * layers[layer].in; i++) room[0][i] = value_of(layer, 0, i);
  for (int64_t i = 0; i < layers[layer].rank * layers[layer].out; i++) room[1][i] = value_of(layer, 1, i);
  *a = room[0];
  *b = room[1];
  return DP_OK;
}

static void must_hold_values(double alpha) {
  static float a[16384], b[16384];
  ck_assert_int_eq(adapter.count, count);
  for (int l = 0; l < count; l++) {
    ck_assert(adapter.layers[l].alpha == alpha);
    ck_assert_int_eq(adapter.layers[l].rank, RANK);
    must(exec_adapter_read(&adapter, l, a, b, &error));
    for (int64_t i = 0; i < RANK * layers[l].in; i++) ck_assert(a[i] == value_of(l, 0, i));
    for (int64_t i = 0; i < RANK * layers[l].out; i++) ck_assert(b[i] == value_of(l, 1, i));
  }
}

START_TEST(adapters_come_back) {
  static const struct {
    const char *config, *prefix;
    double alpha;
  } cases[] = {{NULL, "unet.", 8}, {NULL, "transformer.", 2.5}};
  for (size_t i = 0; i < 2; i++) {
    uint64_t bytes = 0;
    make(i ? tiny_flux : tiny_unet, RANK);
    ck_assert_int_gt(count, 0);
    must(exec_adapter_write("out", &model, cases[i].alpha, source, NULL, &bytes, &error));
    must(exec_adapter_open("out", &model, &adapter, &error));
    ck_assert_uint_eq(adapter.file.map_bytes, bytes);
    ck_assert_str_eq(dp_safetensors_metadata(&adapter.file, "format"), "pt");
    for (size_t t = 0; t < adapter.file.count; t++)
      ck_assert_int_eq(strncmp(adapter.file.tensors[t].name, cases[i].prefix, strlen(cases[i].prefix)), 0);
    must_hold_values(cases[i].alpha);
    exec_adapter_close(&adapter);
    must(exec_adapter_open(DATA, &model, &adapter, &error)); /* by the file's name too */
    must_hold_values(cases[i].alpha);
    exec_adapter_close(&adapter);
  }
}
END_TEST

/* A file whose tensors have these endings of names, with alphas of the first `alphas` layers = 5, and metadata. */
static void put(const char *prefix, const char *a, const char *b, int without, int alphas, int64_t rank,
                const char *extra, const char *metadata) {
  static const int64_t one = 1;
  dp_safetensors_entry *entries = calloc(3 * (size_t)count + 1, sizeof *entries);
  int64_t(*dims)[4] = calloc((size_t)count, sizeof *dims);
  float *numbers = calloc(1 << 20, sizeof *numbers);
  ck_assert(entries && dims && numbers);
  size_t made = 0, filled = 0;
  for (int l = 0; l < count; l++) {
    const char *module = model.ops.items[layers[l].op].name;
    const int64_t own[4] = {rank, layers[l].in, layers[l].out, rank};
    memcpy(dims[l], own, sizeof own);
    if (l == without) continue;
    entries[made++] =
        (dp_safetensors_entry){dp_arena_printf(&arena, "%s%s%s", prefix, module, a), DP_DTYPE_F32, 2, dims[l]};
    for (int64_t i = 0; i < rank * layers[l].in; i++) numbers[filled++] = value_of(l, 0, i);
    entries[made++] =
        (dp_safetensors_entry){dp_arena_printf(&arena, "%s%s%s", prefix, module, b), DP_DTYPE_F32, 2, dims[l] + 2};
    for (int64_t i = 0; i < rank * layers[l].out; i++) numbers[filled++] = value_of(l, 1, i);
    if (l >= alphas) continue;
    entries[made++] =
        (dp_safetensors_entry){dp_arena_printf(&arena, "%s%s.alpha", prefix, module), DP_DTYPE_F32, 0, &one};
    numbers[filled++] = 5;
  }
  if (extra) {
    entries[made++] = (dp_safetensors_entry){extra, DP_DTYPE_F32, 1, &one};
    filled++;
  }
  const dp_safetensors_string strings = {"lora_adapter_metadata", metadata};
  dp_safetensors_writer writer = {0};
  must(dp_folder_make("out", &error));
  must(dp_safetensors_create(DATA, entries, made, &strings, metadata != NULL, &writer, &error));
  must(dp_safetensors_write(&writer, numbers, filled * sizeof *numbers, &error));
  must(dp_safetensors_commit(&writer, NULL, &error));
  free(entries);
  free(dims);
  free(numbers);
}

START_TEST(names_of_others_are_read) {
  put("unet.", ".lora_A.weight", ".lora_B.weight", -1, 0, RANK, "text_encoder.x.lora_A.weight", NULL);
  must(exec_adapter_open("out", &model, &adapter, &error));
  must_hold_values(RANK); /* alpha is the rank where nobody says it */
  exec_adapter_close(&adapter);
  put("", ".lora_A.default.weight", ".lora_B.default.weight", -1, 0, RANK, NULL, "{\"r\": 3, \"lora_alpha\": 6}");
  must(exec_adapter_open("out", &model, &adapter, &error));
  must_hold_values(6);
  exec_adapter_close(&adapter);
  put("unet.", ".lora.down.weight", ".lora.up.weight", -1, count, RANK, NULL, "{\"unet.lora_alpha\": 6}");
  must(exec_adapter_open("out", &model, &adapter, &error));
  must_hold_values(5); /* a tensor says it for its layer */
  exec_adapter_close(&adapter);
  put("unet.", ".lora_A.weight", ".lora_B.weight", -1, 0, RANK, NULL,
      "{\"unet.lora_alpha\": 6, \"unet.use_rslora\": true, \"unet.use_dora\": false}");
  must(exec_adapter_open("out", &model, &adapter, &error));
  must_hold_values(6 * sqrt(3)); /* scale alpha / sqrt(r) */
}
END_TEST

START_TEST(patterns_of_alpha_go_by_the_end_of_names) {
  put("unet.", ".lora_A.weight", ".lora_B.weight", -1, 0, RANK, NULL,
      "{\"unet.lora_alpha\": 6, \"unet.alpha_pattern\": {\"attn1.to_q\": 12, \"^attn1.to_k\": 9, \"ttn1.to_v\": 9}}");
  must(exec_adapter_open("out", &model, &adapter, &error));
  int found = 0;
  for (int l = 0; l < count; l++) {
    const bool named = strstr(model.ops.items[layers[l].op].name, ".attn1.to_q") != NULL;
    ck_assert(adapter.layers[l].alpha == (named ? 12 : 6));
    found += named;
  }
  ck_assert_int_gt(found, 0);
}
END_TEST

static void must_refuse(const char *expected) {
  ck_assert_int_eq(exec_adapter_open("out", &model, &adapter, &error), DP_BAD_INPUT);
  ck_assert_msg(strncmp(error.text, expected, strlen(expected)) == 0, "found:  %s\nwanted: %s", error.text, expected);
  ck_assert_int_eq(adapter.count, 0);
}

START_TEST(what_does_not_fit_is_named) {
  char expected[300];
  const char *second = model.ops.items[layers[1].op].name;
  must(dp_folder_make("out", &error));
  must_refuse(DATA ": cannot be read: No such file or directory");
  put("unet.", ".lora_A.weight", ".lora_B.weight", 1, 0, RANK, NULL, NULL);
  (void)snprintf(expected, sizeof expected, DATA ": lora_A of %s is missing, allowed: every adapted layer", second);
  must_refuse(expected);
  put("unet.", ".lora_A.weight", ".lora_B.weight", -1, 0, 5, NULL, NULL);
  (void)snprintf(expected, sizeof expected,
                 DATA ": tensor unet.%s.lora_A.weight: found [5, 16], allowed: [3, 16], of rank 3 (task.lora_rank)",
                 model.ops.items[layers[0].op].name);
  must_refuse(expected);
  put("unet.", ".lora_A.weight", ".lora_B.weight", -1, 0, RANK, "unet.conv_in.lora_A.weight", NULL);
  must_refuse(DATA ": tensor unet.conv_in.lora_A.weight: found no such adapted layer in this model and scenario");
  put("unet.", ".lora_A.weight", ".lora_B.weight", -1, 0, RANK, "lora_unet_down_blocks_0.lora_down.weight", NULL);
  must_refuse(DATA ": tensor lora_unet_down_blocks_0.lora_down.weight: allowed: MODULE.lora_A.weight, MODULE.lora_B");
  put("unet.", ".lora_A.weight", ".lora_B.weight", -1, 0, RANK, NULL, "{\n\"unet.use_dora\": true}");
  must_refuse(DATA ": lora_adapter_metadata:2: use_dora: found true, allowed: false");
  put("unet.", ".lora_A.weight", ".lora_B.weight", -1, 0, RANK, NULL, "{\"unet.lora_alpha\": -1}");
  must_refuse(DATA ": lora_adapter_metadata:1: unet.lora_alpha: found -1, allowed: a number above 0");
  put("unet.", ".lora_A.weight", ".lora_B.weight", -1, 0, RANK, NULL, "{");
  must_refuse(DATA ": lora_adapter_metadata:1: not valid JSON");
  put("unet.", ".lora_A.weight", ".lora_A.default.weight", -1, 0, RANK, NULL, NULL);
  must_refuse(DATA ": tensor unet.");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {adapters_come_back, names_of_others_are_read, patterns_of_alpha_go_by_the_end_of_names,
                                what_does_not_fit_is_named};
  return suite_run("exec adapter", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
