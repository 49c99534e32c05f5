#include "exec/dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "exec/dataset_state.h"

static dp_status check_bucket(const exec_dataset_options *o, size_t b, dp_error *error) {
  for (int side = 0; side < 2; side++) {
    const int64_t size = o->buckets[b][side];
    if (size < EXEC_LATENT_PIXELS || size > EXEC_IMAGE_SIDE || size % EXEC_LATENT_PIXELS)
      return dp_fail(error, DP_BAD_INPUT,
                     "%s: found a bucket with a side of %" PRId64 " pixels, allowed: multiples of %d up to %d", o->path,
                     size, EXEC_LATENT_PIXELS, EXEC_IMAGE_SIDE);
  }
  for (size_t before = 0; before < b; before++)
    if (memcmp(o->buckets[before], o->buckets[b], sizeof o->buckets[b]) == 0)
      return dp_fail(error, DP_BAD_INPUT, "%s: found the bucket %" PRId64 "x%" PRId64 " twice, allowed: once", o->path,
                     o->buckets[b][0], o->buckets[b][1]);
  return DP_OK;
}

static dp_status check_options(const exec_dataset_options *o, dp_error *error) {
  if (o->bucket_count < 1 || o->bucket_count > EXEC_MAX_BUCKETS)
    return dp_fail(error, DP_BAD_INPUT, "%s: found %zu buckets, allowed: from 1 to %d", o->path, o->bucket_count,
                   EXEC_MAX_BUCKETS);
  for (size_t b = 0; b < o->bucket_count; b++) DP_TRY(check_bucket(o, b, error));
  if (o->global_batch < 1 || o->latent_channels < 1 || o->text_tokens < 0 || o->pooled_channels < 0 ||
      (o->text_tokens > 0 && o->text_channels < 1))
    return dp_fail(error, DP_INTERNAL, "%s: sizes of batch, latents and text below what is possible", o->path);
  if (o->first_sample < 0 || o->sample_count < 0 || o->first_sample > o->global_batch - o->sample_count)
    return dp_fail(error, DP_INTERNAL, "%s: samples beyond the batch of %" PRId64, o->path, o->global_batch);
  return DP_OK;
}

static dp_status copy_options(const exec_dataset_options *options, exec_dataset *d, dp_error *error) {
  d->options = *options;
  d->buckets = calloc(options->bucket_count, sizeof *d->buckets);
  d->latent_files = calloc(options->bucket_count, sizeof *d->latent_files);
  if (!d->buckets || !d->latent_files) return dp_fail_memory(error);
  memcpy(d->buckets, options->buckets, options->bucket_count * sizeof *d->buckets);
  d->options.buckets = (const int64_t(*)[2])d->buckets;
  if (d->options.sample_count == 0) {
    d->options.first_sample = 0;
    d->options.sample_count = options->global_batch;
  }
  for (size_t b = 0; b < options->bucket_count; b++) {
    const int64_t h = d->buckets[b][0] / EXEC_LATENT_PIXELS, w = d->buckets[b][1] / EXEC_LATENT_PIXELS;
    if (h * w * options->latent_channels > d->most_latents) d->most_latents = h * w * options->latent_channels;
  }
  return DP_OK;
}

static dp_status sort_samples(exec_dataset *d, dp_error *error) {
  const exec_dataset_options *o = &d->options;
  const size_t count = d->manifest.count;
  d->latents = calloc(count, sizeof(const dp_safetensor *));
  d->text = calloc(count, sizeof(const dp_safetensor *));
  d->pooled = calloc(count, sizeof(const dp_safetensor *));
  if (!d->latents || !d->text || !d->pooled) return dp_fail_memory(error);
  return exec_manifest_order(&d->manifest, o->buckets, o->bucket_count, o->global_batch, o->seed, o->shuffle, &d->order,
                             error);
}

static void learn(const char **mine, const char *theirs) {
  if (!*mine || !(*mine)[0]) *mine = theirs;
}

/* Adds what a file says to what all files after it have to say. */
static void agree(exec_fingerprint *others, const exec_fingerprint *found) {
  learn(&others->model, found->model);
  learn(&others->encoder, found->encoder);
  learn(&others->text_encoder, found->text_encoder);
  if (others->scaling_factor == 0) {
    others->scaling_factor = found->scaling_factor;
    others->shift_factor = found->shift_factor;
  }
}

static dp_status open_bucket(exec_dataset *d, size_t bucket, exec_cache_wanted *wanted, dp_arena *arena,
                             dp_error *error) {
  const int64_t height = d->buckets[bucket][0], width = d->buckets[bucket][1];
  const int64_t dims[] = {d->options.latent_channels, height / EXEC_LATENT_PIXELS, width / EXEC_LATENT_PIXELS};
  const char *path = exec_cache_latents_path(arena, d->manifest.folder, height, width);
  dp_safetensors *file = &d->latent_files[bucket];
  exec_fingerprint found = {0};
  if (!path) return dp_fail_memory(error);
  DP_TRY(exec_cache_open_latents(path, height, width, wanted, file, &found, error));
  agree(&wanted->others, &found);
  for (int64_t m = d->order.begins[bucket]; m < d->order.begins[bucket + 1]; m++) {
    const int64_t sample = d->order.members[m];
    DP_TRY(exec_cache_find(file, "latents", d->manifest.samples[sample].file, 3, dims, &d->latents[sample], error));
  }
  return DP_OK;
}

static dp_status open_text(exec_dataset *d, exec_cache_wanted *wanted, dp_arena *arena, dp_error *error) {
  const exec_dataset_options *o = &d->options;
  const int64_t dims[] = {o->text_tokens, o->text_channels};
  if (o->text_tokens == 0 && o->pooled_channels == 0) return DP_OK;
  const char *path = exec_cache_text_path(arena, d->manifest.folder);
  exec_fingerprint found = {0};
  if (!path) return dp_fail_memory(error);
  DP_TRY(exec_cache_open_text(path, wanted, &d->text_file, &found, error));
  agree(&wanted->others, &found);
  for (size_t i = 0; i < d->manifest.count; i++) {
    const char *name = d->manifest.samples[i].file;
    if (o->text_tokens) DP_TRY(exec_cache_find(&d->text_file, "text", name, 2, dims, &d->text[i], error));
    if (o->pooled_channels)
      DP_TRY(exec_cache_find(&d->text_file, "pooled", name, 1, &o->pooled_channels, &d->pooled[i], error));
  }
  return DP_OK;
}

/* Strings are copied, so that each is there, if empty. */
static dp_status keep_fingerprint(exec_dataset *d, const exec_fingerprint *f, dp_error *error) {
  dp_arena *arena = &d->manifest.arena;
  d->fingerprint = (exec_fingerprint){.model = dp_arena_strdup(arena, f->model ? f->model : ""),
                                      .encoder = dp_arena_strdup(arena, f->encoder ? f->encoder : ""),
                                      .text_encoder = dp_arena_strdup(arena, f->text_encoder ? f->text_encoder : ""),
                                      .scaling_factor = f->scaling_factor,
                                      .shift_factor = f->shift_factor};
  return d->fingerprint.model && d->fingerprint.encoder && d->fingerprint.text_encoder ? DP_OK : dp_fail_memory(error);
}

/* Of all that decides which samples a step has and what is in them. */
static void identify(exec_dataset *d) {
  const exec_fingerprint *f = &d->fingerprint;
  char text[1024];
  (void)snprintf(text, sizeof text, "%.200s|%.200s|%.200s|%.9g|%.9g|%" PRId64 "|%d", f->model, f->encoder,
                 f->text_encoder, f->scaling_factor, f->shift_factor, d->options.global_batch, d->options.shuffle);
  uLong sum = crc32_z(0, (const unsigned char *)text, strlen(text));
  sum = crc32_z(sum, (const unsigned char *)&d->options.seed, sizeof d->options.seed);
  sum = crc32_z(sum, (const unsigned char *)d->buckets, d->options.bucket_count * sizeof *d->buckets);
  (void)snprintf(d->identity, sizeof d->identity, "%08" PRIx32 "%08" PRIx32, d->manifest.hash, (uint32_t)sum);
}

static dp_status open_cache(exec_dataset *d, dp_arena *arena, dp_error *error) {
  const exec_dataset_options *o = &d->options;
  exec_cache_wanted wanted = {.run = o->wanted, .manifest = d->manifest.hash, .trust = o->trust_cache};
  for (size_t b = 0; b < o->bucket_count; b++)
    if (d->order.begins[b] < d->order.begins[b + 1]) DP_TRY(open_bucket(d, b, &wanted, arena, error));
  DP_TRY(open_text(d, &wanted, arena, error));
  return keep_fingerprint(d, &wanted.others, error);
}

static dp_status open_all(const exec_dataset_options *options, exec_dataset *d, dp_error *error) {
  dp_arena arena = {0};
  DP_TRY(check_options(options, error));
  DP_TRY(copy_options(options, d, error));
  DP_TRY(exec_manifest_read(options->path, &d->manifest, error));
  if (!options->trust_cache) DP_TRY(exec_manifest_check_files(&d->manifest, error));
  DP_TRY(sort_samples(d, error));
  const dp_status status = open_cache(d, &arena, error);
  dp_arena_free(&arena);
  if (status != DP_OK) return status;
  identify(d);
  d->options.path = NULL; /* it is the caller's */
  d->options.wanted = (exec_fingerprint){0};
  return exec_dataset_begin(d, error);
}

dp_status exec_dataset_open(const exec_dataset_options *options, exec_dataset **dataset, dp_error *error) {
  exec_dataset *made = calloc(1, sizeof *made);
  if (!made) return dp_fail_memory(error);
  made->last = -1;
  const dp_status status = open_all(options, made, error);
  if (status == DP_OK)
    *dataset = made;
  else
    exec_dataset_free(made);
  return status;
}

void exec_dataset_free(exec_dataset *dataset) {
  if (!dataset) return;
  exec_dataset_end(dataset);
  for (size_t b = 0; dataset->latent_files && b < dataset->options.bucket_count; b++)
    dp_safetensors_close(&dataset->latent_files[b]);
  dp_safetensors_close(&dataset->text_file);
  exec_order_free(&dataset->order);
  exec_manifest_free(&dataset->manifest);
  free(dataset->buckets);
  free(dataset->latent_files);
  free(dataset->latents);
  free(dataset->text);
  free(dataset->pooled);
  free(dataset);
}

int64_t exec_dataset_count(const exec_dataset *dataset) { return (int64_t)dataset->manifest.count; }

int64_t exec_dataset_batches_per_epoch(const exec_dataset *dataset) { return dataset->order.batches; }

int64_t exec_dataset_bucket_count_of(const exec_dataset *dataset, int bucket) {
  return dataset->order.begins[bucket + 1] - dataset->order.begins[bucket];
}

const char *exec_dataset_identity(const exec_dataset *dataset) { return dataset->identity; }

const exec_fingerprint *exec_dataset_fingerprint(const exec_dataset *dataset) { return &dataset->fingerprint; }
