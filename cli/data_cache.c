/* diffpipe data cache: latents and text embeddings of a data set, by toy encoders that need no download. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/schema.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/data.h"
#include "cli/json.h"
#include "exec/cache.h"

enum {
  SLOT_FOR,
  SLOT_HEIGHT,
  SLOT_WIDTH,
  SLOT_BUCKETS,
  SLOT_ENCODER,
  SLOT_TEXT_ENCODER,
  SLOT_TOKENS,
  SLOT_CHANNELS,
  SLOT_POOLED,
  SLOT_JSON
};
enum { SIDE_MOST = EXEC_IMAGE_SIDE, CHANNELS_MOST = 1 << 16 };

static const cli_option options[] = {
    {.name = "for",
     .type = CLI_STRING,
     .argument = "SCENARIO",
     .help = "take sizes and channels from the model that is to be trained",
     .slot = SLOT_FOR},
    {.name = "height",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "pixels that images are scaled and cut to",
     .slot = SLOT_HEIGHT,
     .min = 1,
     .max = SIDE_MOST},
    {.name = "width",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "pixels",
     .slot = SLOT_WIDTH,
     .min = 1,
     .max = SIDE_MOST},
    {.name = "buckets",
     .type = CLI_STRING,
     .argument = "HxW,...",
     .help = "several sizes; each image takes that of the nearest aspect ratio",
     .slot = SLOT_BUCKETS},
    {.name = "encoder",
     .type = CLI_STRING,
     .argument = "NAME",
     .help = "average-8x8 (4 channels), cosines-8x8 (16)",
     .fallback = "by the model, else the first",
     .slot = SLOT_ENCODER},
    {.name = "text-encoder",
     .type = CLI_STRING,
     .argument = "NAME",
     .help = "hashed-words",
     .fallback = "hashed-words",
     .slot = SLOT_TEXT_ENCODER},
    {.name = "text-tokens",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "tokens of a caption",
     .fallback = "the model's, else 77",
     .slot = SLOT_TOKENS,
     .min = 1,
     .max = CHANNELS_MOST},
    {.name = "text-channels",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "channels of a token",
     .fallback = "the model's, else 768",
     .slot = SLOT_CHANNELS,
     .min = 1,
     .max = CHANNELS_MOST},
    {.name = "pooled-channels",
     .type = CLI_INTEGER,
     .argument = "N",
     .help = "channels of the pooled text, 0: none",
     .fallback = "the model's, else 0",
     .slot = SLOT_POOLED,
     .min = 0,
     .max = CHANNELS_MOST},
    {.name = "json", .type = CLI_FLAG, .help = "print JSON", .slot = SLOT_JSON},
};

/* What is to be made. */
typedef struct job {
  dp_arena arena;
  exec_manifest manifest;
  int64_t (*buckets)[2];
  size_t bucket_count;
  const exec_image_encoder *encoder;
  exec_cache_text text;
  exec_order order; /* which samples are in which bucket */
  uint64_t *latent_bytes, text_bytes;
} job;

/* ---- what the model wants ---- */

static dp_status take_encoder(const char *path, int64_t channels, job *j, dp_error *error) {
  if (!j->encoder) j->encoder = exec_image_encoder_of_channels(channels);
  if (j->encoder && j->encoder->channels == channels) return DP_OK;
  return dp_fail(error, DP_BAD_INPUT,
                 "%s: found a model that takes %" PRId64
                 " latent channels, allowed: those that a built-in encoder "
                 "makes (average-8x8 4, cosines-8x8 16); scripts/cache_with_diffusers.py runs a VAE",
                 path, channels);
}

static dp_status take_model(const char *path, job *j, dp_error *error) {
  cli_data_model model;
  DP_TRY(cli_data_model_read(path, &j->arena, &model, error));
  DP_TRY(take_encoder(path, model.sizes.channels, j, error));
  j->text.tokens = model.sizes.text_tokens;
  j->text.channels = model.sizes.text_channels;
  j->text.pooled_channels = model.sizes.pooled_channels;
  if (j->bucket_count) return DP_OK; /* the command line says */
  j->buckets = model.buckets;
  j->bucket_count = model.bucket_count;
  return DP_OK;
}

/* ---- what the command line says ---- */

static dp_status find_encoders(const cli_values *values, job *j, dp_error *error) {
  const char *image = values->slots[SLOT_ENCODER].given ? values->slots[SLOT_ENCODER].string : NULL;
  const char *text = values->slots[SLOT_TEXT_ENCODER].given ? values->slots[SLOT_TEXT_ENCODER].string : "hashed-words";
  if (image && !(j->encoder = exec_image_encoder_find(image)))
    return dp_fail(error, DP_BAD_INPUT,
                   "data cache: --encoder: found \"%.100s\", allowed: %s; scripts/cache_with_diffusers.py runs a VAE",
                   image, exec_image_encoder_names());
  if (!(j->text.encoder = exec_text_encoder_find(text)))
    return dp_fail(
        error, DP_BAD_INPUT,
        "data cache: --text-encoder: found \"%.100s\", allowed: %s; scripts/cache_with_diffusers.py runs others", text,
        exec_text_encoder_names());
  return DP_OK;
}

static void take_number(const cli_values *values, int slot, int64_t *number) {
  if (values->slots[slot].given) *number = values->slots[slot].integer;
}

static dp_status read_job(const cli_values *values, job *j, dp_error *error) {
  static const cli_data_size_options how = {"data cache", "buckets",          SLOT_HEIGHT, SLOT_WIDTH,
                                            SLOT_BUCKETS, EXEC_LATENT_PIXELS, SIDE_MOST,   EXEC_LATENT_PIXELS};
  j->text = (exec_cache_text){.tokens = 77, .channels = 768};
  DP_TRY(cli_data_sizes(&how, values, &j->arena, &j->buckets, &j->bucket_count, error));
  DP_TRY(find_encoders(values, j, error));
  if (values->slots[SLOT_FOR].given) DP_TRY(take_model(values->slots[SLOT_FOR].string, j, error));
  take_number(values, SLOT_TOKENS, &j->text.tokens);
  take_number(values, SLOT_CHANNELS, &j->text.channels);
  take_number(values, SLOT_POOLED, &j->text.pooled_channels);
  if (!j->encoder) j->encoder = exec_image_encoder_of_channels(4);
  if (j->bucket_count > EXEC_MAX_BUCKETS)
    return dp_fail(error, DP_BAD_INPUT, "data cache: found %zu buckets, allowed: at most %d", j->bucket_count,
                   EXEC_MAX_BUCKETS);
  if (j->bucket_count) return DP_OK;
  return dp_fail(
      error, DP_BAD_INPUT,
      "data cache: found no size for the images, allowed: --for SCENARIO, --height and --width, or --buckets");
}

/* ---- the work ---- */

static dp_status sort_samples(job *j, dp_error *error) {
  j->latent_bytes = DP_ARENA_NEW(&j->arena, uint64_t, j->bucket_count);
  if (!j->latent_bytes) return dp_fail_memory(error);
  return exec_manifest_order(&j->manifest, (const int64_t(*)[2])j->buckets, j->bucket_count, 1, 0, false, &j->order,
                             error);
}

typedef struct shown {
  dp_progress bar;
  uint64_t before; /* samples of the files before this one */
} shown;

static void show(void *data, size_t done) {
  shown *s = data;
  dp_progress_update(&s->bar, s->before + done, NULL);
}

static dp_status write_all(job *j, shown *s, dp_error *error) {
  for (size_t b = 0; b < j->bucket_count; b++) {
    const int64_t first = j->order.begins[b], end = j->order.begins[b + 1];
    const exec_cache_latents what = {j->encoder, j->buckets[b][0], j->buckets[b][1], j->order.members + first,
                                     (size_t)(end - first)};
    if (first == end) continue;
    DP_TRY(exec_cache_write_latents(&j->manifest, &what, show, s, &j->latent_bytes[b], error));
    s->before += (uint64_t)(end - first);
  }
  if (j->text.tokens == 0) return DP_OK; /* the model takes no text */
  return exec_cache_write_text(&j->manifest, &j->text, show, s, &j->text_bytes, error);
}

static dp_status print_json(const job *j, dp_error *error) {
  char hash[9];
  (void)snprintf(hash, sizeof hash, "%08" PRIx32, j->manifest.hash);
  json_t *buckets = json_array();
  bool done = buckets != NULL;
  for (size_t b = 0; b < j->bucket_count; b++)
    done = json_array_append_new(buckets, json_pack("{sI sI sI sI}", "height", (json_int_t)j->buckets[b][0], "width",
                                                    (json_int_t)j->buckets[b][1], "samples",
                                                    (json_int_t)(j->order.begins[b + 1] - j->order.begins[b]), "bytes",
                                                    (json_int_t)j->latent_bytes[b])) == 0 &&
           done;
  json_t *root =
      json_pack("{ss ss sI ss sI ss sI sI sI sI so}", "folder", j->manifest.folder, "manifest", hash, "samples",
                (json_int_t)j->manifest.count, "encoder", j->encoder->name, "latent_channels",
                (json_int_t)j->encoder->channels, "text_encoder", j->text.encoder->name, "text_tokens",
                (json_int_t)j->text.tokens, "text_channels", (json_int_t)j->text.channels, "pooled_channels",
                (json_int_t)j->text.pooled_channels, "text_bytes", (json_int_t)j->text_bytes, "buckets", buckets);
  const dp_status status = done && root ? cli_json_print(root, error) : dp_fail_memory(error);
  json_decref(root);
  return status;
}

static void print_text(const job *j) {
  char bytes[32];
  for (size_t b = 0; b < j->bucket_count; b++) {
    const int64_t count = j->order.begins[b + 1] - j->order.begins[b];
    printf("latents %5" PRId64 " × %-5" PRId64 " %7" PRId64 " sample%s", j->buckets[b][0], j->buckets[b][1], count,
           count == 1 ? " " : "s");
    if (count) printf("  %10s", dp_format_bytes((double)j->latent_bytes[b], bytes));
    printf("\n");
  }
  if (j->text.tokens)
    printf("text    %5" PRId64 " × %-5" PRId64 " %7zu sample%s  %10s\n", j->text.tokens, j->text.channels,
           j->manifest.count, j->manifest.count == 1 ? " " : "s", dp_format_bytes((double)j->text_bytes, bytes));
  printf("%s and %s are toy encoders, for demonstrations and tests\n", j->encoder->name, j->text.encoder->name);
}

static dp_status run_job(const cli_values *values, job *j, dp_error *error) {
  DP_TRY(exec_manifest_read(values->arguments[0], &j->manifest, error));
  DP_TRY(read_job(values, j, error));
  DP_TRY(exec_manifest_check_files(&j->manifest, error));
  DP_TRY(sort_samples(j, error));
  shown s = {.before = 0};
  dp_progress_begin(&s.bar, "cache", 2 * (uint64_t)j->manifest.count);
  const dp_status status = write_all(j, &s, error);
  dp_progress_end(&s.bar);
  if (status != DP_OK) return status;
  if (values->slots[SLOT_JSON].given) return print_json(j, error);
  print_text(j);
  return DP_OK;
}

static dp_status run(const cli_values *values, dp_error *error) {
  job j = {0};
  const dp_status status = run_job(values, &j, error);
  exec_order_free(&j.order);
  exec_manifest_free(&j.manifest);
  dp_arena_free(&j.arena);
  return status;
}

const cli_command cli_data_cache = {
    .name = "data cache",
    .arguments = "DIR",
    .takes = "one, the folder of the data set",
    .summary = "Make the latents and text embeddings that training reads, with toy encoders.",
    .help =
        "Writes DIR/latents-HEIGHTxWIDTH.safetensors for each size, and DIR/text.safetensors. The built-in\n"
        "encoders need no download and are toys, for demonstrations and tests: average-8x8 makes of each\n"
        "block of 8 x 8 pixels its mean light, two differences of colour and a gradient; hashed-words makes\n"
        "of each word a pseudo-random direction. scripts/cache_with_diffusers.py runs a real VAE and real\n"
        "text encoders, and writes the same files.",
    .options = options,
    .option_count = (int)DP_COUNT_OF(options),
    .run = run,
};
