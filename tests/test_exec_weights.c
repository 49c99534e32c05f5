#define _DEFAULT_SOURCE
/* exec/checkpoint_model: folders of diffusers are read as they are, written so that they can be read, and refused with
 * what is wrong. */
#include "exec/checkpoint_model.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/random.h"
#include "tests/graph_helpers.h"
#include "tests/scratch.h"
#include "tests/suite.h"

static const char *const tiny_unet =
    "{\"_class_name\":\"UNet2DConditionModel\",\"sample_size\":8,\"down_block_types\":[\"DownBlock2D\","
    "\"CrossAttnDownBlock2D\"],\"up_block_types\":[\"CrossAttnUpBlock2D\",\"UpBlock2D\"],\"block_out_channels\":[8,16],"
    "\"layers_per_block\":1,\"cross_attention_dim\":8,\"attention_head_dim\":2,\"norm_num_groups\":4}\n";
static const char *const tiny_sd3 =
    "{\"_class_name\":\"SD3Transformer2DModel\",\"sample_size\":8,\"patch_size\":2,\"in_channels\":4,\"num_layers\":2,"
    "\"attention_head_dim\":4,\"num_attention_heads\":2,\"joint_attention_dim\":8,\"caption_projection_dim\":8,"
    "\"pooled_projection_dim\":8,\"out_channels\":4,\"pos_embed_max_size\":6}";

static dp_error error;
static dp_arena arena;
static graph model;
static float *values;       /* of all weights, one behind the other */
static const float **parts; /* by weight */

static void must(dp_status status) { ck_assert_msg(status == DP_OK, "%s", error.text); }

static void put(const char *path, const char *text) {
  FILE *stream = fopen(path, "wb");
  ck_assert_msg(stream != NULL, "%s", path);
  ck_assert_int_ge(fputs(text, stream), 0);
  ck_assert_int_eq(fclose(stream), 0);
}

/* Makes a model and random weights, every bit pattern of finite numbers and more among them. */
static void make(const char *config) {
  graph_free(&model);
  free(values);
  free(parts);
  put("given.json", config);
  graph_model_options options = options_of(1, 64, 4);
  model = (graph){0};
  must(graph_model_read("given.json", &options, &model, &error));
  values = malloc((size_t)model.parameters * sizeof *values);
  parts = malloc(model.weights.count * sizeof *parts);
  ck_assert(values && parts);
  dp_random random;
  dp_random_init(&random, 1, 0);
  for (int64_t i = 0; i < model.parameters; i++) {
    const uint32_t bits = dp_random_u32(&random);
    memcpy(&values[i], &bits, sizeof bits);
  }
  float *at = values;
  for (size_t w = 0; w < model.weights.count; w++) {
    parts[w] = at;
    at += model.weights.items[w].parameters;
  }
  ck_assert_int_eq(at - values, model.parameters);
}

static void setup(void) {
  scratch_enter();
  error = (dp_error)DP_ERROR_INIT;
  make(tiny_unet);
}

static void teardown(void) {
  graph_free(&model);
  free(values);
  free(parts);
  values = NULL;
  parts = NULL;
  dp_arena_free(&arena);
  scratch_clean(scratch);
  scratch_leave();
}

static dp_status write_folder(const char *path, uint64_t shard_bytes, uint64_t *bytes) {
  const exec_weights_form form = {.config_path = "given.json", .shard_bytes = shard_bytes};
  return exec_weights_write(path, &model, &form, exec_weights_source_array, parts, bytes, &error);
}

static void must_hold_values(const char *path) {
  exec_weights weights = {0};
  must(exec_weights_open(path, &model, &weights, &error));
  float *read = malloc((size_t)model.parameters * sizeof *read);
  ck_assert_ptr_nonnull(read);
  must(exec_weights_read_range(&weights, 0, (int)model.weights.count, read, &error));
  ck_assert_int_eq(memcmp(read, values, (size_t)model.parameters * sizeof *read), 0);
  memset(read, 0, (size_t)model.parameters * sizeof *read);
  const int last = (int)model.weights.count - 1;
  must(exec_weights_read(&weights, last, read, &error));
  ck_assert_int_eq(memcmp(read, parts[last], (size_t)model.weights.items[last].parameters * sizeof *read), 0);
  free(read);
  exec_weights_close(&weights);
}

/* Opening gives exactly this error. */
static void must_refuse(const char *path, const char *expected) {
  exec_weights weights = {0};
  ck_assert_int_eq(exec_weights_open(path, &model, &weights, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, expected);
  ck_assert_ptr_null(weights.files);
}

START_TEST(a_folder_comes_back_with_the_same_bits) {
  uint64_t bytes = 0;
  must(write_folder("out/of/model/", 0, &bytes));
  ck_assert_int_eq(count_entries("out/of"), 1); /* the folder beside is gone */
  ck_assert_int_eq(count_entries("out/of/model"), 2);
  struct stat config, data, folder;
  ck_assert_int_eq(stat("out/of/model/config.json", &config), 0);
  ck_assert_int_eq(stat("out/of/model/diffusion_pytorch_model.safetensors", &data), 0);
  ck_assert_uint_eq(bytes, (uint64_t)(config.st_size + data.st_size));
  const mode_t mask = umask(0);
  (void)umask(mask);
  ck_assert_int_eq(stat("out/of/model", &folder), 0);
  ck_assert_int_eq(folder.st_mode & 0777, 0777 & ~mask);
  char *text = NULL;
  size_t length = 0;
  must(dp_file_read("out/of/model/config.json", 10000, &text, &length, &error));
  ck_assert_str_eq(text, tiny_unet);
  free(text);
  dp_safetensors file = {0};
  must(dp_safetensors_open("out/of/model/diffusion_pytorch_model.safetensors", &file, &error));
  ck_assert_str_eq(dp_safetensors_metadata(&file, "format"), "pt"); /* diffusers asks for it */
  ck_assert_uint_eq(file.count, model.weights.count);
  dp_safetensors_close(&file);
  must_hold_values("out/of/model");
}
END_TEST

START_TEST(a_large_model_is_cut_into_files) {
  const uint64_t limits[] = {1, 1000, 4000, 20000};
  for (size_t i = 0; i < 4; i++) {
    must(write_folder("model", limits[i], NULL)); /* replaces the one before, which has other files */
    must_hold_values("model");
    dp_document index = {0};
    must(dp_document_read("model/diffusion_pytorch_model.safetensors.index.json", &index, &error));
    const dp_node *metadata = dp_node_get(index.root, "metadata");
    ck_assert_int_eq(dp_node_get(metadata, "total_size")->integer, model.parameters * 4);
    ck_assert_uint_eq(dp_node_get(index.root, "weight_map")->count, model.weights.count);
    dp_document_free(&index);
    const int files = count_entries("model") - 2;
    if (i == 0) ck_assert_int_eq(files, (int)model.weights.count); /* a tensor is never cut */
    for (int f = 1; f <= files; f++) {
      char path[128];
      dp_safetensors file = {0};
      (void)snprintf(path, sizeof path, "model/diffusion_pytorch_model-%05d-of-%05d.safetensors", f, files);
      must(dp_safetensors_open(path, &file, &error));
      ck_assert(file.data_bytes <= limits[i] || file.count == 1);
      dp_safetensors_close(&file);
    }
  }
  must(write_folder("model", 0, NULL));
  ck_assert_int_eq(count_entries("model"), 2); /* nothing of the shards is left */
  must_hold_values("model");
}
END_TEST

START_TEST(a_pipeline_is_taken_for_its_model) {
  const char *folder = NULL, *config = NULL;
  must(write_folder("pipe/unet", 0, NULL));
  must(exec_weights_find("pipe", &arena, &folder, &config, &error));
  ck_assert_str_eq(folder, "pipe/unet");
  ck_assert_str_eq(config, "pipe/unet/config.json");
  must(exec_weights_find("pipe/unet", &arena, &folder, &config, &error));
  ck_assert_str_eq(folder, "pipe/unet");
  must(write_folder("pipe/transformer", 0, NULL));
  ck_assert_int_eq(exec_weights_find("pipe", &arena, &folder, &config, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "pipe: found unet/ and transformer/, allowed: the folder of one model");
  ck_assert_int_eq(exec_weights_find("absent", &arena, &folder, &config, &error), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "absent: no model was found, allowed: a folder with config.json, or with unet/ or transformer/ that "
                   "has one");
}
END_TEST

/* A file of the model's weights with one thing changed: entries may be left out, added or altered. */
static void put_weights(const char *path, const char *without, const char *halved, const dp_safetensors_entry *extra) {
  dp_safetensors_entry *entries = calloc(model.weights.count + 1, sizeof *entries);
  ck_assert_ptr_nonnull(entries);
  size_t count = 0;
  uint64_t bytes = 0;
  for (size_t w = 0; w <= model.weights.count; w++) {
    const graph_weight *weight = &model.weights.items[w];
    if (w == model.weights.count) {
      if (!extra) break;
      entries[count] = *extra;
    } else {
      if (without && strcmp(weight->name, without) == 0) continue;
      const bool half = halved && strcmp(weight->name, halved) == 0;
      entries[count] =
          (dp_safetensors_entry){weight->name, half ? DP_DTYPE_F16 : DP_DTYPE_F32, weight->rank, weight->dims};
    }
    uint64_t size = (uint64_t)dp_dtype_bytes(entries[count].dtype);
    for (int d = 0; d < entries[count].rank; d++) size *= (uint64_t)entries[count].dims[d];
    bytes += size;
    count++;
  }
  dp_safetensors_writer writer = {0};
  must(dp_safetensors_create(path, entries, count, NULL, 0, &writer, &error));
  for (uint64_t i = 0; i < bytes; i += 2) must(dp_safetensors_write(&writer, "\0\x3c", 2, &error)); /* 1 in fp16 */
  must(dp_safetensors_commit(&writer, NULL, &error));
  free(entries);
}

#define DATA "model/diffusion_pytorch_model.safetensors"

START_TEST(what_does_not_fit_is_named) {
  must(dp_folder_make("model", &error));
  static const int64_t two = 2, square[] = {3, 3};
  put_weights(DATA, "conv_in.bias", NULL, NULL);
  must_refuse("model", "model: 1 tensor does not fit the model: conv_in.bias: missing");
  const dp_safetensors_entry shape = {"conv_in.bias", DP_DTYPE_F32, 1, &two},
                             integers = {"conv_out.bias", DP_DTYPE_I32, 1, (const int64_t[]){4}},
                             other = {"position_ids", DP_DTYPE_F32, 2, square};
  put_weights(DATA, "conv_in.bias", NULL, &shape);
  must_refuse("model", "model: 1 tensor does not fit the model: conv_in.bias: found [2], allowed: [8]");
  put_weights(DATA, "conv_out.bias", NULL, &integers);
  must_refuse("model",
              "model: 1 tensor does not fit the model: conv_out.bias: found dtype I32, allowed: F32, F16, BF16, F64");
  put_weights(DATA, "conv_in.bias", NULL, &other);
  must_refuse("model", "model: 2 tensors do not fit the model: conv_in.bias: missing; position_ids: not of this model");
  /* of many the first four are told, and how many they are */
  static const int64_t none = 0;
  const dp_safetensors_entry nothing = {"x", DP_DTYPE_F32, 1, &none};
  dp_safetensors_writer writer = {0};
  must(dp_safetensors_create(DATA, &nothing, 1, NULL, 0, &writer, &error));
  must(dp_safetensors_commit(&writer, NULL, &error));
  exec_weights weights = {0};
  ck_assert_int_eq(exec_weights_open("model", &model, &weights, &error), DP_BAD_INPUT);
  char expected[300];
  (void)snprintf(expected, sizeof expected, "model: %zu tensors do not fit the model: %s: missing; ",
                 model.weights.count + 1, model.weights.items[0].name);
  ck_assert_int_eq(strncmp(error.text, expected, strlen(expected)), 0);
  ck_assert_str_eq(error.text + strlen(error.text) - 14, ": missing; ...");
}
END_TEST

START_TEST(halves_are_read_as_numbers) {
  must(dp_folder_make("model", &error));
  put_weights("model/diffusion_pytorch_model.fp16.safetensors", NULL, "conv_in.bias", NULL); /* a variant alone */
  exec_weights weights = {0};
  must(exec_weights_open("model", &model, &weights, &error));
  for (size_t w = 0; w < model.weights.count; w++) {
    if (strcmp(model.weights.items[w].name, "conv_in.bias") != 0) continue;
    float bias[8] = {0};
    must(exec_weights_read(&weights, (int)w, bias, &error));
    for (int i = 0; i < 8; i++) ck_assert(bias[i] == 1);
  }
  exec_weights_close(&weights);
}
END_TEST

START_TEST(what_is_no_checkpoint_is_told) {
  must(dp_folder_make("model", &error));
  must_refuse("model",
              "model: no weights were found, allowed: diffusion_pytorch_model.safetensors, or an index "
              "diffusion_pytorch_model.safetensors.index.json of several files");
  put("model/diffusion_pytorch_model.bin", "");
  must_refuse("model",
              "model: found diffusion_pytorch_model.bin, allowed: diffusion_pytorch_model.safetensors (diffusers' "
              "save_pretrained writes it)");
  put(DATA, "torn");
  must_refuse("model", DATA ": found 4 bytes, allowed: a safetensors file, which has at least 10");
}
END_TEST

#define INDEX "model/diffusion_pytorch_model.safetensors.index.json"

START_TEST(an_index_is_held_to_its_files) {
  static const struct {
    const char *text, *expected;
  } cases[] = {
      {"{\n\"metadata\": {}}", INDEX ":1: weight_map: found no table, allowed: {TENSOR: FILE}"},
      {"{\n\"weight_map\": {}}", INDEX ":2: weight_map: found no table, allowed: {TENSOR: FILE}"},
      {"{\"weight_map\": {\n\"a\": 7}}", INDEX ":2: weight_map: found 7, allowed: the name of a file in the folder"},
      {"{\"weight_map\": {\n\"a\": \"../a\"}}",
       INDEX ":2: weight_map: found \"../a\", allowed: the name of a file in the folder"},
      {"{\"weight_map\": {\n\"a\": \"b\"}}", "model/b: cannot be read: No such file or directory"},
      {"{\"weight_map\": {\"a\": \"p\", \"b\": \"p\", \"c\": \"q\"}}",
       INDEX ": 2 tensors do not fit the model: b: not in p, where the index has it; b: in q, where the index does not "
             "have it"},
      {"{\"weight_map\": {\"a\": \"p\", \"c\": \"q\"}}",
       INDEX ": 1 tensor does not fit the model: b: in q, where the index does not have it"},
  };
  must(dp_folder_make("model", &error));
  put("model/p", "");
  static const int64_t one = 1;
  const dp_safetensors_entry a = {"a", DP_DTYPE_U8, 1, &one},
                             others[] = {{"b", DP_DTYPE_U8, 1, &one}, {"c", DP_DTYPE_U8, 1, &one}};
  dp_safetensors_writer writer = {0};
  must(dp_safetensors_create("model/p", &a, 1, NULL, 0, &writer, &error));
  must(dp_safetensors_write(&writer, "x", 1, &error));
  must(dp_safetensors_commit(&writer, NULL, &error));
  must(dp_safetensors_create("model/q", others, 2, NULL, 0, &writer, &error));
  must(dp_safetensors_write(&writer, "xy", 2, &error));
  must(dp_safetensors_commit(&writer, NULL, &error));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    put(INDEX, cases[i].text);
    must_refuse("model", cases[i].expected);
  }
}
END_TEST

START_TEST(a_config_that_contradicts_is_refused) {
  must(write_folder("model", 0, NULL));
  put("model/config.json",
      "{\"_class_name\": \"UNet2DConditionModel\", \"sample_size\": 16,\n\"attention_head_dim\": 4}");
  must_refuse(
      "model",
      "model/config.json:2: attention_head_dim: found 4, allowed: 2, as in given.json, of which the model was made");
  put("model/config.json", "{\"attention_head_dim\": [2, 2], \"norm_eps\": 1e-5, \"block_out_channels\": [8, 16]}");
  must_hold_values("model");
  put("model/config.json", "{\"block_out_channels\": [8, 12]}");
  exec_weights weights = {0};
  ck_assert_int_eq(exec_weights_open("model", &model, &weights, &error), DP_BAD_INPUT);
}
END_TEST

START_TEST(a_table_of_positions_goes_along) {
  make(tiny_sd3);
  const int64_t dims[] = {1, 36, 8};
  const dp_safetensors_entry table = {"pos_embed.pos_embed", DP_DTYPE_F16, 3, dims},
                             wrong = {"pos_embed.pos_embed", DP_DTYPE_F16, 3, (const int64_t[]){1, 36, 6}};
  must(dp_folder_make("given", &error));
  put_weights("given/diffusion_pytorch_model.safetensors", NULL, NULL, &wrong);
  must_refuse("given",
              "given: 1 tensor does not fit the model: pos_embed.pos_embed: found [1, 36, 6] of F16, which is not "
              "this model's table");
  put_weights("given/diffusion_pytorch_model.safetensors", NULL, NULL, &table);
  exec_weights given = {0}, made = {0};
  must(exec_weights_open("given", &model, &given, &error));
  ck_assert_ptr_null(exec_weights_buffer(&given, "conv_in.weight"));
  const exec_weights_form form = {
      .config_path = "given.json", .buffers = given.buffers, .buffer_count = given.buffer_count};
  must(exec_weights_write("given", &model, &form, exec_weights_source_array, parts, NULL,
                          &error)); /* over what is open */
  exec_weights_close(&given);
  must(exec_weights_open("given", &model, &made, &error));
  const dp_safetensor *kept = exec_weights_buffer(&made, "pos_embed.pos_embed");
  ck_assert_ptr_nonnull(kept);
  ck_assert_int_eq(kept->dtype, DP_DTYPE_F32);
  float numbers[36 * 8];
  must(dp_safetensor_read_fp32(&made.files[0], kept, numbers, &error));
  for (int i = 0; i < 36 * 8; i++) ck_assert(numbers[i] == 1);
  exec_weights_close(&made);
  must_hold_values("given");
}
END_TEST

/* Fails at one weight, as a worker does that has died. */
static dp_status failing_source(void *context, int weight, const float **source_values, dp_error *into) {
  if (weight == *(const int *)context) return dp_fail(into, DP_IO_FAILED, "worker 3 has died");
  *source_values = parts[weight];
  return DP_OK;
}

START_TEST(a_writing_that_fails_changes_nothing) {
  must(write_folder("model", 1000, NULL));
  const int files = count_entries("model");
  for (int at = 0; at < (int)model.weights.count; at += 7) {
    const exec_weights_form form = {.config_path = "given.json", .shard_bytes = 500};
    ck_assert_int_eq(exec_weights_write("model", &model, &form, failing_source, &at, NULL, &error), DP_IO_FAILED);
    ck_assert_str_eq(error.text, "worker 3 has died");
    ck_assert_int_eq(count_entries("model"), files);
    ck_assert_int_eq(count_entries("."), 2); /* model and given.json */
  }
  struct rlimit before, small;
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  small = before;
  for (small.rlim_cur = 0; small.rlim_cur < 40000; small.rlim_cur += 7001) { /* as good as a full disk */
    (void)setrlimit(RLIMIT_FSIZE, &small);
    const dp_status status = write_folder("model", 0, NULL);
    (void)setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(status, DP_IO_FAILED);
    ck_assert_str_eq(error.text, small.rlim_cur < strlen(tiny_unet)
                                     ? "model/config.json: cannot be written: File too large"
                                     : DATA ": cannot be written: File too large");
    ck_assert_int_eq(count_entries("."), 2);
  }
  (void)signal(SIGXFSZ, handler);
  must_hold_values("model");
}
END_TEST

START_TEST(nothing_else_is_overwritten) {
  must(write_folder("model", 0, NULL));
  put("model/thesis.tex", "years of work");
  ck_assert_int_eq(write_folder("model", 0, NULL), DP_BAD_INPUT);
  ck_assert_str_eq(error.text,
                   "model: found thesis.tex in it, allowed: a new folder, or one with nothing else in it to replace");
  ck_assert_int_eq(write_folder("given.json", 0, NULL), DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "given.json: found a file, allowed: a folder or a new name");
  ck_assert_int_eq(write_folder("given.json/model", 0, NULL), DP_IO_FAILED);
  const exec_weights_form form = {.config_path = "absent.json"};
  ck_assert_int_eq(exec_weights_write("m", &model, &form, exec_weights_source_array, parts, NULL, &error),
                   DP_BAD_INPUT);
  ck_assert_str_eq(error.text, "absent.json: cannot be read: No such file or directory");
  ck_assert_int_eq(count_entries("."), 2);
  ck_assert_int_eq(symlink("other", "link"), 0); /* a link goes on showing the same folder */
  must(write_folder("other", 0, NULL));
  must(write_folder("link", 500, NULL));
  ck_assert_int_gt(count_entries("other"), 2);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_folder_comes_back_with_the_same_bits,
                                a_large_model_is_cut_into_files,
                                a_pipeline_is_taken_for_its_model,
                                what_does_not_fit_is_named,
                                halves_are_read_as_numbers,
                                what_is_no_checkpoint_is_told,
                                an_index_is_held_to_its_files,
                                a_config_that_contradicts_is_refused,
                                a_table_of_positions_goes_along,
                                a_writing_that_fails_changes_nothing,
                                nothing_else_is_overwritten};
  return suite_run("exec weights", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
