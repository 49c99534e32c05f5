#define _DEFAULT_SOURCE
/* exec/dataset: the laws of buckets and order, what a cache is refused for and in which words, a run that resumes in
 * the middle of an epoch, the thread that reads ahead and its errors. */
#include "exec/dataset.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/cache.h"
#include "exec/manifest.h"
#include "exec/order.h"
#include "exec/shapes.h"
#include "tests/scratch.h"
#include "tests/suite.h"

enum { SAMPLES = 23, TOKENS = 5, CHANNELS = 12, POOLED = 6, SIZES = 3 };
static const int64_t sizes[SIZES][2] = {{64, 64}, {48, 80}, {96, 64}};

static dp_error error;
static exec_dataset *set, *other;

static void must(dp_status status) { ck_assert_msg(status == DP_OK, "%s", error.text); }

static void teardown(void) {
  exec_dataset_free(set);
  exec_dataset_free(other);
  scratch_clean(scratch);
  scratch_leave();
}

/* ---- a data set in the working folder ---- */

static void write_latents(const exec_manifest *manifest, const char *encoder) {
  int64_t members[SAMPLES];
  for (int b = 0; b < SIZES; b++) {
    size_t count = 0;
    for (size_t i = 0; i < manifest->count; i++)
      if (exec_bucket_of(sizes, SIZES, manifest->samples[i].height, manifest->samples[i].width) == b)
        members[count++] = (int64_t)i;
    const exec_cache_latents what = {exec_image_encoder_find(encoder), sizes[b][0], sizes[b][1], members, count};
    must(exec_cache_write_latents(manifest, &what, NULL, NULL, NULL, &error));
  }
}

static void write_text(const exec_manifest *manifest, int64_t channels) {
  const exec_cache_text what = {exec_text_encoder_find("hashed-words"), TOKENS, channels, POOLED};
  must(exec_cache_write_text(manifest, &what, NULL, NULL, NULL, &error));
}

static void setup(void) {
  exec_manifest manifest = {0};
  scratch_enter();
  error = (dp_error)DP_ERROR_INIT;
  set = other = NULL;
  must(exec_shapes_write("set", 5, SAMPLES, sizes, SIZES, NULL, NULL, &error));
  must(exec_manifest_make("set", NULL, NULL, &manifest, &error));
  must(exec_manifest_write(&manifest, &error));
  write_latents(&manifest, "average-8x8");
  write_text(&manifest, CHANNELS);
  exec_manifest_free(&manifest);
}

static exec_dataset_options usual(void) {
  return (exec_dataset_options){.path = "set",
                                .buckets = sizes,
                                .bucket_count = SIZES,
                                .latent_channels = 4,
                                .text_tokens = TOKENS,
                                .text_channels = CHANNELS,
                                .pooled_channels = POOLED,
                                .global_batch = 3,
                                .seed = 77,
                                .shuffle = true};
}

/* Opening fails, as the user's doing, with a line of these two parts. */
static void must_refuse(const exec_dataset_options *options, const char *begin, const char *part) {
  error = (dp_error)DP_ERROR_INIT;
  ck_assert_int_eq(exec_dataset_open(options, &set, &error), DP_BAD_INPUT);
  ck_assert_ptr_null(set);
  ck_assert_msg(strncmp(error.text, begin, strlen(begin)) == 0 && strstr(error.text, part), "%s", error.text);
}

/* ---- batches ---- */

/* A sample's latents, as its image is when encoded here and now, channels last. */
static void check_latents(const exec_manifest *manifest, const exec_batch *batch, const exec_sample_view *view) {
  static float planes[3 * 96 * 80], latents[4 * 12 * 12];
  const int64_t *size = sizes[batch->bucket];
  exec_image image = {0};
  ck_assert_str_eq(view->name, manifest->samples[view->id].file);
  ck_assert_int_eq(exec_bucket_of(sizes, SIZES, view->original_height, view->original_width), batch->bucket);
  must(exec_manifest_image(manifest, (size_t)view->id, &image, &error));
  ck_assert(image.height == view->original_height && image.width == view->original_width);
  must(exec_image_fit(&image, size[1], size[0], planes, &error));
  exec_image_encode(exec_image_encoder_find("average-8x8"), planes, size[0], size[1], latents);
  exec_image_free(&image);
  ck_assert(batch->height == size[0] / 8 && batch->width == size[1] / 8 && batch->channels == 4);
  for (int64_t y = 0; y < batch->height; y++)
    for (int64_t x = 0; x < batch->width; x++)
      for (int64_t c = 0; c < 4; c++)
        ck_assert(view->latents[(y * batch->width + x) * 4 + c] == latents[(c * batch->height + y) * batch->width + x]);
}

static void check_text(const exec_manifest *manifest, const exec_sample_view *view) {
  float text[TOKENS * CHANNELS], pooled[POOLED];
  exec_text_encoder_find("hashed-words")
      ->encode(manifest->samples[view->id].caption, TOKENS, CHANNELS, POOLED, text, pooled);
  ck_assert_mem_eq(view->text, text, sizeof text);
  ck_assert_mem_eq(view->pooled, pooled, sizeof pooled);
}

START_TEST(a_batch_has_what_the_encoders_made_of_its_samples) {
  exec_dataset_options o = usual();
  exec_manifest manifest = {0};
  must(exec_manifest_read("set", &manifest, &error));
  for (int prefetch = 0; prefetch < 2; prefetch++) {
    o.prefetch = prefetch;
    must(exec_dataset_open(&o, &set, &error));
    ck_assert_int_eq(exec_dataset_count(set), SAMPLES);
    ck_assert_int_eq(exec_dataset_batches_per_epoch(set), 9); /* 8, 8 and 7 samples in batches of 3 */
    ck_assert_int_eq(exec_dataset_bucket_count_of(set, 2), 7);
    ck_assert_str_eq(exec_dataset_fingerprint(set)->encoder, "average-8x8");
    for (int64_t step = 0; step < 20; step++) {
      const exec_batch *batch = NULL;
      must(exec_dataset_batch(set, step, &batch, &error));
      ck_assert(batch->step == step && batch->epoch == step / 9);
      for (int i = 0; i < 3; i++) {
        check_latents(&manifest, batch, &batch->samples[i]);
        check_text(&manifest, &batch->samples[i]);
      }
    }
    exec_dataset_free(set);
    set = NULL;
  }
  exec_manifest_free(&manifest);
}
END_TEST

/* Tells where it was called from: step, sample of the batch, and the latents that it was to work on. */
static void note(const void *data, const exec_batch *batch, int64_t sample, float *given, float *wanted) {
  const int64_t n = batch->height * batch->width * batch->channels;
  ck_assert_ptr_eq(data, sizes);
  for (int64_t k = 0; k < n; k++) {
    given[k] = (float)(batch->step * 100 + sample);
    wanted[k] = batch->samples[sample].latents[k] + 1;
  }
}

START_TEST(what_a_step_makes_of_its_latents_is_made_where_they_are_read) {
  exec_dataset_options o = usual();
  o.prepare_data = sizes;
  for (int round = 0; round < 2; round++) {
    o.prepare = note;
    o.prefetch = round > 0;
    o.first_sample = 1;
    o.sample_count = 2;
    must(exec_dataset_open(&o, &set, &error));
    for (int64_t step = 0; step < 12; step++) {
      const exec_batch *batch = NULL;
      must(exec_dataset_batch(set, step, &batch, &error));
      const int64_t n = batch->height * batch->width * batch->channels;
      ck_assert(!batch->samples[0].given && !batch->samples[0].wanted); /* another process's */
      for (int64_t i = 1; i < 3; i++) {
        const exec_sample_view *v = &batch->samples[i];
        for (int64_t k = 0; k < n; k++)
          ck_assert(v->given[k] == (float)(step * 100 + i) && v->wanted[k] == v->latents[k] + 1);
        ck_assert(v->text && v->pooled && v->text >= v->wanted + n);
      }
    }
    exec_dataset_free(set);
    set = NULL;
  }
}
END_TEST

/* Values and names of a batch, for comparing. */
static uint64_t digest(const exec_batch *batch, int64_t first, int64_t count) {
  uint64_t hash = (uint64_t)batch->bucket;
  const size_t latents = (size_t)(batch->height * batch->width * batch->channels);
  for (int64_t i = first; i < first + count; i++) {
    const exec_sample_view *v = &batch->samples[i];
    const struct {
      const float *values;
      size_t count;
    } parts[] = {{v->latents, latents}, {v->text, TOKENS * CHANNELS}, {v->pooled, POOLED}};
    hash = hash * 1000003 + (uint64_t)v->id;
    for (int p = 0; p < 3; p++)
      for (size_t k = 0; k < parts[p].count; k++) {
        uint32_t bits;
        memcpy(&bits, &parts[p].values[k], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
      }
  }
  return hash;
}

START_TEST(a_run_goes_on_in_the_middle_of_an_epoch_with_the_same_bits) {
  enum { STEPS = 40 };
  exec_dataset_options o = usual();
  uint64_t straight[STEPS];
  const exec_batch *batch = NULL;
  o.prefetch = true;
  must(exec_dataset_open(&o, &set, &error));
  for (int64_t s = 0; s < STEPS; s++) {
    must(exec_dataset_batch(set, s, &batch, &error));
    straight[s] = digest(batch, 0, 3);
  }
  static const int64_t resumes[] = {0, 13, 4, 31, 31, 8};
  for (size_t r = 0; r < sizeof resumes / sizeof resumes[0]; r++) {
    o.prefetch = r % 2 == 0;
    must(exec_dataset_open(&o, &other, &error));
    ck_assert_str_eq(exec_dataset_identity(other), exec_dataset_identity(set));
    for (int64_t s = resumes[r]; s < STEPS; s += 1 + (int64_t)r / 3) { /* the later ones leap over steps */
      must(exec_dataset_batch(other, s, &batch, &error));
      ck_assert_uint_eq(digest(batch, 0, 3), straight[s]);
    }
    exec_dataset_free(other);
    other = NULL;
  }
}
END_TEST

START_TEST(a_batch_lasts_until_the_call_after_the_next) {
  exec_dataset_options o = usual();
  const exec_batch *batches[2] = {NULL, NULL};
  uint64_t digests[2] = {0, 0};
  o.prefetch = true;
  must(exec_dataset_open(&o, &set, &error));
  for (int64_t s = 0; s < 60; s++) {
    const int now = (int)(s % 2);
    must(exec_dataset_batch(set, s, &batches[now], &error));
    digests[now] = digest(batches[now], 0, 3);
    if (s > 0) ck_assert_uint_eq(digest(batches[!now], 0, 3), digests[!now]);
  }
}
END_TEST

START_TEST(a_process_may_read_its_own_samples_only) {
  exec_dataset_options o = usual();
  must(exec_dataset_open(&o, &set, &error));
  o.first_sample = 1;
  o.sample_count = 2;
  must(exec_dataset_open(&o, &other, &error));
  for (int64_t s = 0; s < 12; s++) {
    const exec_batch *all = NULL, *some = NULL;
    must(exec_dataset_batch(set, s, &all, &error));
    must(exec_dataset_batch(other, s, &some, &error));
    ck_assert_uint_eq(digest(all, 1, 2), digest(some, 1, 2));
    ck_assert_ptr_null(some->samples[0].latents);
    ck_assert_str_eq(some->samples[0].name, all->samples[0].name);
  }
}
END_TEST

START_TEST(a_model_without_text_needs_no_file_of_it) {
  exec_dataset_options o = usual();
  const exec_batch *batch = NULL;
  ck_assert_int_eq(unlink("set/text.safetensors"), 0);
  o.text_tokens = o.text_channels = o.pooled_channels = 0;
  must(exec_dataset_open(&o, &set, &error));
  must(exec_dataset_batch(set, 0, &batch, &error));
  ck_assert(batch->samples[0].latents && !batch->samples[0].text && !batch->samples[0].pooled);
}
END_TEST

START_TEST(the_identity_changes_with_what_decides_the_batches) {
  exec_dataset_options o = usual();
  char first[17];
  must(exec_dataset_open(&o, &set, &error));
  (void)snprintf(first, sizeof first, "%s", exec_dataset_identity(set));
  for (int change = 0; change < 3; change++) {
    exec_dataset_options changed = o;
    if (change == 0) changed.seed++;
    if (change == 1) changed.global_batch++;
    if (change == 2) changed.shuffle = false;
    must(exec_dataset_open(&changed, &other, &error));
    ck_assert_str_ne(exec_dataset_identity(other), first);
    exec_dataset_free(other);
    other = NULL;
  }
}
END_TEST

/* ---- refusals ---- */

START_TEST(a_stale_cache_is_told) {
  exec_dataset_options o = usual();
  exec_manifest manifest = {0};
  must(exec_manifest_read("set", &manifest, &error));
  const uint32_t old = manifest.hash;
  manifest.samples[3].caption = "something else";
  exec_manifest_rehash(&manifest);
  must(exec_manifest_write(&manifest, &error));
  char part[200];
  (void)snprintf(part, sizeof part,
                 "was made of the manifest %08x, the data set's is %08x; make it again with `diffpipe data cache` or "
                 "scripts/cache_with_diffusers.py, or give --trust-cache",
                 old, manifest.hash);
  o.trust_cache = true; /* the caption's file is older than the manifest: that nothing else is in the way */
  must(exec_dataset_open(&o, &set, &error));
  exec_dataset_free(set);
  set = NULL;
  o.trust_cache = false;
  ck_assert_int_eq(unlink("set/shape-000003.txt"), 0);
  must_refuse(&o, "cache set/latents-64x64.safetensors: ", part);
  exec_manifest_free(&manifest);
}
END_TEST

static void put(const char *path, const char *text) {
  FILE *stream = fopen(path, "w");
  ck_assert_ptr_nonnull(stream);
  ck_assert_int_ge(fputs(text, stream), 0);
  ck_assert_int_eq(fclose(stream), 0);
}

START_TEST(a_changed_image_or_caption_is_noticed) {
  exec_dataset_options o = usual();
  put("set/shape-000002.txt", "a caption of another day");
  must_refuse(&o, "set/shape-000002.txt: was changed since the manifest was made", "`diffpipe data manifest`");
  ck_assert_int_eq(unlink("set/shape-000002.txt"), 0); /* what is not there is not needed */
  ck_assert_int_eq(rename("set/shape-000004.ppm", "set/shape-000001.ppm"), 0);
  ck_assert_int_eq(utimensat(AT_FDCWD, "set/shape-000001.ppm", NULL, 0), 0); /* now */
  must_refuse(&o, "set/shape-000001.ppm: was changed since the manifest was made", "`diffpipe data manifest`");
  ck_assert_int_eq(unlink("set/shape-000001.ppm"), 0);
  must(exec_dataset_open(&o, &set, &error));
}
END_TEST

START_TEST(a_foreign_cache_is_told) {
  static const struct {
    exec_fingerprint wanted;
    const char *file, *says;
  } cases[] = {
      {{.encoder = "stabilityai/sd-vae-ft-mse"},
       "latents-64x64",
       "was made with the encoder average-8x8, the run wants stabilityai/sd-vae-ft-mse; "},
      {{.encoder = "average-8x8", .scaling_factor = 0.18215},
       "latents-64x64",
       "was made with the scaling factor 1, the run wants 0.18215; "},
      {{.scaling_factor = 1, .shift_factor = 0.0609},
       "latents-64x64",
       "was made with the shift factor 0, the run wants 0.0609; "},
      {{.text_encoder = "openai/clip-vit-large-patch14"},
       "text",
       "was made with the text encoder hashed-words, the run wants openai/clip-vit-large-patch14; "},
  };
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    exec_dataset_options o = usual();
    char begin[100];
    o.wanted = cases[c].wanted;
    (void)snprintf(begin, sizeof begin, "cache set/%s.safetensors: ", cases[c].file);
    must_refuse(&o, begin, cases[c].says);
    o.trust_cache = true;
    must(exec_dataset_open(&o, &set, &error));
    exec_dataset_free(set);
    set = NULL;
  }
  exec_dataset_options o = usual();
  o.wanted = (exec_fingerprint){"UNet2DConditionModel", "average-8x8", "hashed-words", 1.0000001, 0};
  must(exec_dataset_open(&o, &set, &error)); /* it says it is for any model */
}
END_TEST

/* Writes a file of no tensors but these strings and one that has nothing to do with it. */
static void put_cache(const char *path, const dp_safetensors_string *metadata, size_t count) {
  const int64_t one = 1;
  const dp_safetensors_entry entry = {"x", DP_DTYPE_U8, 1, &one};
  dp_safetensors_writer writer = {0};
  must(dp_safetensors_create(path, &entry, 1, metadata, count, &writer, &error));
  must(dp_safetensors_write(&writer, "x", 1, &error));
  must(dp_safetensors_commit(&writer, NULL, &error));
}

START_TEST(files_that_are_no_cache_are_told) {
  exec_dataset_options o = usual();
  static const dp_safetensors_string foreign = {"format", "pt"},
                                     late[] = {{"format", "diffpipe-latents"}, {"version", "2"}};
  put_cache("set/latents-64x64.safetensors", &foreign, 1);
  must_refuse(
      &o, "cache set/latents-64x64.safetensors: ", "found the format pt in its metadata, allowed: diffpipe-latents");
  o.trust_cache = true; /* then the first thing that is missing */
  must_refuse(&o, "cache set/latents-64x64.safetensors: ", "has no latents of sample shape-000000.ppm; make it again");
  o.trust_cache = false;
  put_cache("set/latents-64x64.safetensors", NULL, 0);
  must_refuse(&o, "cache set/latents-64x64.safetensors: ", "found the format none in its metadata");
  put_cache("set/latents-64x64.safetensors", late, 2);
  must_refuse(&o, "cache set/latents-64x64.safetensors: ", "is of version 2, this program reads 1; ");
  ck_assert_int_eq(truncate("set/latents-64x64.safetensors", 20), 0);
  must_refuse(&o, "set/latents-64x64.safetensors: ", "(is the file complete?)");
  ck_assert_int_eq(unlink("set/latents-64x64.safetensors"), 0);
  must_refuse(&o, "cache set/latents-64x64.safetensors: ", "is missing; make it again with `diffpipe data cache`");
}
END_TEST

START_TEST(files_of_one_cache_have_to_agree) {
  exec_dataset_options o = usual();
  exec_manifest manifest = {0};
  must(exec_manifest_read("set", &manifest, &error));
  write_latents(&manifest, "cosines-8x8");
  ck_assert_int_eq(rename("set/latents-48x80.safetensors", "b"), 0);
  write_latents(&manifest, "average-8x8");
  ck_assert_int_eq(rename("b", "set/latents-48x80.safetensors"), 0);
  must_refuse(&o, "cache set/latents-48x80.safetensors: ",
              "was made with the encoder cosines-8x8, the other files have average-8x8; ");
  o.trust_cache = true; /* not so far that 16 channels would be 4 */
  must_refuse(
      &o, "cache set/latents-48x80.safetensors: ",
      "latents of sample shape-000001.ppm: found the shape [16, 6, 10], the run wants [4, 6, 10]; make it again");
  ck_assert_int_eq(rename("set/latents-96x64.safetensors", "set/latents-64x64.safetensors"), 0);
  o.trust_cache = false;
  must_refuse(&o, "cache set/latents-64x64.safetensors: ", "was made for a height of 96, the bucket has 64; ");
  exec_manifest_free(&manifest);
}
END_TEST

START_TEST(text_of_another_width_is_told) {
  exec_dataset_options o = usual();
  o.text_channels = 768;
  o.trust_cache = true;
  must_refuse(&o, "cache set/text.safetensors: ",
              "text of sample shape-000000.ppm: found the shape [5, 12], the run wants [5, 768]; ");
  o = usual();
  o.text_tokens = 77;
  must_refuse(&o, "cache set/text.safetensors: ", "found the shape [5, 12], the run wants [77, 12]; ");
  o = usual();
  o.pooled_channels = 1280;
  must_refuse(&o, "cache set/text.safetensors: ",
              "pooled of sample shape-000000.ppm: found the shape [6], the run wants [1280]; ");
}
END_TEST

START_TEST(a_sample_that_is_missing_in_the_cache_is_told) {
  exec_dataset_options o = usual();
  exec_manifest manifest = {0};
  int64_t all[SAMPLES];
  must(exec_manifest_read("set", &manifest, &error));
  size_t count = 0; /* of the first bucket but the last */
  for (int64_t i = 0; i + SIZES < SAMPLES; i += SIZES) all[count++] = i;
  const exec_cache_latents what = {exec_image_encoder_find("average-8x8"), 64, 64, all, count - 1};
  must(exec_cache_write_latents(&manifest, &what, NULL, NULL, NULL, &error));
  must_refuse(&o,
              "cache set/latents-64x64.safetensors: ", "has no latents of sample shape-000018.ppm; make it again with");
  o.bucket_count = 1; /* now all belong to it */
  must_refuse(&o, "cache set/latents-64x64.safetensors: ", "has no latents of sample shape-000001.ppm; ");
  exec_manifest_free(&manifest);
}
END_TEST

START_TEST(buckets_that_cannot_be_are_told) {
  static const int64_t odd[][2] = {{64, 64}, {48, 84}}, twice[][2] = {{64, 64}, {64, 64}};
  exec_dataset_options o = usual();
  o.buckets = odd;
  o.bucket_count = 2;
  must_refuse(&o, "set: found a bucket with a side of 84 pixels, allowed: multiples of 8", "");
  o.buckets = twice;
  must_refuse(&o, "set: found the bucket 64x64 twice, allowed: once", "");
  o.bucket_count = 0;
  must_refuse(&o, "set: found 0 buckets, allowed: from 1", "");
  o = usual();
  ck_assert_int_eq(unlink("set/manifest.json"), 0);
  must_refuse(&o, "set/manifest.json: is missing, make it with `diffpipe data manifest FOLDER`", "");
}
END_TEST

/* ---- errors of the thread ---- */

/* Writes a value into the first latent of a sample of the file of 64 x 64. */
static void spoil(const char *tensor, float value) {
  dp_safetensors file = {0};
  must(dp_safetensors_open("set/latents-64x64.safetensors", &file, &error));
  const dp_safetensor *found = dp_safetensors_find(&file, tensor);
  ck_assert_ptr_nonnull(found);
  const long place = (long)(file.map_bytes - file.data_bytes + found->offset_bytes) + 4 * 7;
  dp_safetensors_close(&file);
  FILE *stream = fopen("set/latents-64x64.safetensors", "r+b");
  ck_assert_ptr_nonnull(stream);
  ck_assert_int_eq(fseek(stream, place, SEEK_SET), 0);
  ck_assert_uint_eq(fwrite(&value, sizeof value, 1, stream), 1);
  ck_assert_int_eq(fclose(stream), 0);
}

/* The first step from `step` on whose batch has the sample; the data set does not fail for others. */
static int64_t step_with(const char *name) {
  exec_dataset_options o = usual();
  exec_dataset *clean = NULL;
  const exec_batch *batch = NULL;
  must(exec_dataset_open(&o, &clean, &error));
  int64_t step = 0;
  for (bool found = false; !found; step++) {
    must(exec_dataset_batch(clean, step, &batch, &error));
    for (int i = 0; i < 3; i++) found = found || strcmp(batch->samples[i].name, name) == 0;
  }
  exec_dataset_free(clean);
  return step - 1;
}

START_TEST(values_that_are_not_finite_are_told_by_the_step_that_has_them) {
  static const struct {
    float value;
    const char *says;
  } cases[] = {{NAN, "found a NaN at place 7, allowed: finite numbers"},
               {-INFINITY, "found an infinity at place 7, allowed: finite numbers"}};
  const int64_t step = step_with("shape-000006.ppm");
  ck_assert_int_gt(step, 0);
  for (int prefetch = 0; prefetch < 2; prefetch++) {
    exec_dataset_options o = usual();
    const exec_batch *batch = NULL;
    char whole[200];
    o.prefetch = prefetch;
    o.trust_cache = true; /* not so far */
    spoil("latents/shape-000006.ppm", cases[prefetch].value);
    must(exec_dataset_open(&o, &set, &error));
    for (int64_t s = 0; s < step; s++) must(exec_dataset_batch(set, s, &batch, &error));
    const exec_batch *last = batch;
    const uint64_t before = digest(last, 0, 3);
    (void)snprintf(whole, sizeof whole, "cache set/latents-64x64.safetensors: latents of sample shape-000006.ppm: %s",
                   cases[prefetch].says);
    for (int again = 0; again < 2; again++) { /* the error does not wear off */
      error = (dp_error)DP_ERROR_INIT;
      ck_assert_int_eq(exec_dataset_batch(set, step, &batch, &error), DP_BAD_INPUT);
      ck_assert_str_eq(error.text, whole);
    }
    ck_assert_ptr_eq(batch, last);
    ck_assert_uint_eq(digest(last, 0, 3), before);
    must(exec_dataset_batch(set, 0, &batch, &error)); /* and does not spread */
    exec_dataset_free(set);
    set = NULL;
  }
}
END_TEST

START_TEST(a_file_that_is_cut_meanwhile_is_an_error_and_no_signal) {
  exec_dataset_options o = usual();
  const exec_batch *batch = NULL;
  o.prefetch = true;
  must(exec_dataset_open(&o, &set, &error));
  must(exec_dataset_batch(set, 0, &batch, &error));
  for (int b = 0; b < SIZES; b++) {
    char path[64];
    (void)snprintf(path, sizeof path, "set/latents-%dx%d.safetensors", (int)sizes[b][0], (int)sizes[b][1]);
    ck_assert_int_eq(truncate(path, 8), 0);
  }
  dp_status status = DP_OK;
  for (int64_t s = 1; s < 4 && status == DP_OK; s++) status = exec_dataset_batch(set, s, &batch, &error);
  ck_assert_int_eq(status, DP_IO_FAILED);
  ck_assert_msg(strstr(error.text, "cannot be read: the file became shorter") != NULL, "%s", error.text);
}
END_TEST

/* The thread is busy or idle, has failed or not: ending waits for it and nothing is lost. */
START_TEST(a_data_set_can_be_closed_at_any_moment) {
  exec_dataset_options o = usual();
  const exec_batch *batch = NULL;
  o.prefetch = true;
  for (int calls = 0; calls < 30; calls++) {
    must(exec_dataset_open(&o, &set, &error));
    for (int64_t s = 0; s < calls % 4; s++) must(exec_dataset_batch(set, 5 * s, &batch, &error));
    exec_dataset_free(set);
    set = NULL;
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_batch_has_what_the_encoders_made_of_its_samples,
                                what_a_step_makes_of_its_latents_is_made_where_they_are_read,
                                a_run_goes_on_in_the_middle_of_an_epoch_with_the_same_bits,
                                a_batch_lasts_until_the_call_after_the_next,
                                a_process_may_read_its_own_samples_only,
                                a_model_without_text_needs_no_file_of_it,
                                the_identity_changes_with_what_decides_the_batches,
                                a_stale_cache_is_told,
                                a_changed_image_or_caption_is_noticed,
                                a_foreign_cache_is_told,
                                files_that_are_no_cache_are_told,
                                files_of_one_cache_have_to_agree,
                                text_of_another_width_is_told,
                                a_sample_that_is_missing_in_the_cache_is_told,
                                buckets_that_cannot_be_are_told,
                                values_that_are_not_finite_are_told_by_the_step_that_has_them,
                                a_file_that_is_cut_meanwhile_is_an_error_and_no_signal,
                                a_data_set_can_be_closed_at_any_moment};
  return suite_run("exec dataset", tests, sizeof tests / sizeof tests[0], setup, teardown, 60);
}
