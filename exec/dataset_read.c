#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/dataset_state.h"

static dp_status check_finite(const dp_safetensors *file, const char *kind, const char *name, const float *values,
                              int64_t count, dp_error *error) {
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(values[i]))
      return dp_fail(error, DP_BAD_INPUT,
                     "cache %s: %s of sample %.200s: found %s at place %" PRId64 ", allowed: finite numbers",
                     file->path, kind, name, isnan(values[i]) ? "a NaN" : "an infinity", i);
  return DP_OK;
}

static dp_status fetch(const dp_safetensors *file, const dp_safetensor *tensor, const char *kind, const char *name,
                       float *out, dp_error *error) {
  DP_TRY(dp_safetensor_fetch_fp32(file, tensor, out, error));
  return check_finite(file, kind, name, out, tensor->elements, error);
}

/* [channels, places] to [places, channels]. */
static void put_channels_last(const float *planes, int64_t channels, int64_t places, float *out) {
  for (int64_t c = 0; c < channels; c++)
    for (int64_t p = 0; p < places; p++) out[p * channels + c] = planes[c * places + p];
}

static int64_t text_size(const exec_dataset_options *o) { return o->text_tokens * o->text_channels; }

static int64_t latents_size(const exec_dataset *d) { return (d->options.prepare ? 3 : 1) * d->most_latents; }

static int64_t sample_size(const exec_dataset *d) {
  return latents_size(d) + text_size(&d->options) + d->options.pooled_channels;
}

static void prepare_sample(const exec_dataset *d, const exec_batch *batch, int64_t sample, float *given,
                           exec_sample_view *view) {
  float *const wanted = given + d->most_latents;
  if (!d->options.prepare) return;
  d->options.prepare(d->options.prepare_data, batch, sample, given, wanted);
  view->given = given;
  view->wanted = wanted;
}

static dp_status read_sample(exec_dataset *d, const exec_batch *batch, int64_t sample, float *room,
                             exec_sample_view *view, dp_error *error) {
  float *text = room + latents_size(d), *pooled = text + text_size(&d->options);
  const dp_safetensors *file = &d->latent_files[batch->bucket];
  DP_TRY(fetch(file, d->latents[view->id], "latents", view->name, d->planes, error));
  put_channels_last(d->planes, batch->channels, batch->height * batch->width, room);
  view->latents = room;
  prepare_sample(d, batch, sample, room + d->most_latents, view);
  if (d->text[view->id]) {
    DP_TRY(fetch(&d->text_file, d->text[view->id], "text", view->name, text, error));
    view->text = text;
  }
  if (d->pooled[view->id]) {
    DP_TRY(fetch(&d->text_file, d->pooled[view->id], "pooled", view->name, pooled, error));
    view->pooled = pooled;
  }
  return DP_OK;
}

static exec_sample_view describe(const exec_dataset *d, int64_t id, int bucket) {
  const exec_sample *s = &d->manifest.samples[id];
  const exec_cover cover = exec_cover_of(s->width, s->height, d->buckets[bucket][1], d->buckets[bucket][0]);
  return (exec_sample_view){.id = id,
                            .name = s->file,
                            .original_height = s->height,
                            .original_width = s->width,
                            .crop_top = cover.crop_top,
                            .crop_left = cover.crop_left};
}

/* Fills a slot; by the thread, or by the caller where there is none. */
static dp_status read_batch(exec_dataset *d, int64_t step, exec_dataset_slot *slot, dp_error *error) {
  const exec_dataset_options *o = &d->options;
  exec_batch *batch = &slot->batch;
  *batch = (exec_batch){.step = step, .samples = slot->samples, .channels = o->latent_channels};
  exec_order_batch(&d->order, step, &batch->epoch, &batch->bucket, slot->ids);
  batch->height = d->buckets[batch->bucket][0] / EXEC_LATENT_PIXELS;
  batch->width = d->buckets[batch->bucket][1] / EXEC_LATENT_PIXELS;
  for (int64_t i = 0; i < o->global_batch; i++) slot->samples[i] = describe(d, slot->ids[i], batch->bucket);
  for (int64_t i = 0; i < o->sample_count; i++) {
    const int64_t sample = o->first_sample + i;
    DP_TRY(read_sample(d, batch, sample, slot->values + i * sample_size(d), &slot->samples[sample], error));
  }
  return DP_OK;
}

/* ---- the thread ---- */

static void *read_on(void *data) {
  exec_dataset *d = data;
  exec_dataset_reader *r = &d->reader;
  (void)pthread_mutex_lock(&r->mutex);
  while (true) {
    while (!r->leaves && (!r->is_asked || r->is_answered)) (void)pthread_cond_wait(&r->asked, &r->mutex);
    if (r->leaves) break;
    const int64_t step = r->step;
    exec_dataset_slot *slot = &d->slots[r->slot];
    (void)pthread_mutex_unlock(&r->mutex);
    dp_error error = DP_ERROR_INIT;
    const dp_status status = read_batch(d, step, slot, &error);
    (void)pthread_mutex_lock(&r->mutex);
    r->status = status;
    r->error = error;
    r->is_answered = true;
    (void)pthread_cond_signal(&r->answered);
  }
  (void)pthread_mutex_unlock(&r->mutex);
  return NULL;
}

static void ask(exec_dataset_reader *r, int64_t step, int slot) {
  (void)pthread_mutex_lock(&r->mutex);
  r->step = step;
  r->slot = slot;
  r->is_asked = true;
  r->is_answered = false;
  (void)pthread_cond_signal(&r->asked);
  (void)pthread_mutex_unlock(&r->mutex);
}

/* Waits for what was asked for last and takes it back. */
static dp_status wait_for(exec_dataset_reader *r, dp_error *error) {
  (void)pthread_mutex_lock(&r->mutex);
  while (!r->is_answered) (void)pthread_cond_wait(&r->answered, &r->mutex);
  r->is_asked = r->is_answered = false;
  const dp_status status = r->status;
  if (status != DP_OK && error) *error = r->error;
  (void)pthread_mutex_unlock(&r->mutex);
  return status;
}

/* The slots go round: the one after the last is neither that nor the one before. */
static int next_slot(const exec_dataset *d) { return (d->last + 1) % EXEC_DATASET_SLOTS; }

static dp_status read_with_thread(exec_dataset *d, int64_t step, int slot, dp_error *error) {
  exec_dataset_reader *r = &d->reader;
  /* only this thread asks and takes back, so these two may be read without the mutex */
  if (r->is_asked && r->step != step) (void)wait_for(r, NULL); /* another step was foreseen */
  if (!r->is_asked) ask(r, step, slot);
  return wait_for(r, error);
}

dp_status exec_dataset_batch(exec_dataset *dataset, int64_t step, const exec_batch **batch, dp_error *error) {
  exec_dataset *d = dataset;
  const int slot = next_slot(d);
  if (step < 0) return dp_fail(error, DP_INTERNAL, "the batch of step %" PRId64 ", allowed: from 0", step);
  DP_TRY(d->reader.is_running ? read_with_thread(d, step, slot, error) : read_batch(d, step, &d->slots[slot], error));
  d->last = slot;
  if (d->reader.is_running && step < INT64_MAX) ask(&d->reader, step + 1, next_slot(d));
  *batch = &d->slots[slot].batch;
  return DP_OK;
}

/* ---- beginning and end ---- */

static dp_status make_room(exec_dataset *d, dp_error *error) {
  const size_t batch = (size_t)d->options.global_batch, read = (size_t)d->options.sample_count;
  d->planes = malloc((size_t)d->most_latents * sizeof *d->planes);
  bool done = d->planes != NULL;
  for (int s = 0; s < EXEC_DATASET_SLOTS; s++) {
    d->slots[s].samples = calloc(batch, sizeof *d->slots[s].samples);
    d->slots[s].ids = calloc(batch, sizeof *d->slots[s].ids);
    d->slots[s].values = calloc(read, (size_t)sample_size(d) * sizeof *d->slots[s].values);
    done = done && d->slots[s].samples && d->slots[s].ids && d->slots[s].values;
  }
  return done ? DP_OK : dp_fail_memory(error);
}

/* 0, or why not. */
static int start(exec_dataset *d) {
  exec_dataset_reader *r = &d->reader;
  int reason = pthread_mutex_init(&r->mutex, NULL);
  if (reason) return reason;
  if ((reason = pthread_cond_init(&r->asked, NULL)) == 0) {
    if ((reason = pthread_cond_init(&r->answered, NULL)) == 0) {
      if ((reason = pthread_create(&r->thread, NULL, read_on, d)) == 0) return 0;
      (void)pthread_cond_destroy(&r->answered);
    }
    (void)pthread_cond_destroy(&r->asked);
  }
  (void)pthread_mutex_destroy(&r->mutex);
  return reason;
}

dp_status exec_dataset_begin(exec_dataset *dataset, dp_error *error) {
  DP_TRY(make_room(dataset, error));
  if (!dataset->options.prefetch) return DP_OK;
  const int reason = start(dataset);
  dataset->reader.is_running = reason == 0;
  if (reason == 0) return DP_OK;
  return dp_fail(error, DP_IO_FAILED, "the thread that reads samples cannot be started: %s", strerror(reason));
}

static void stop(exec_dataset_reader *r) {
  (void)pthread_mutex_lock(&r->mutex);
  r->leaves = true;
  (void)pthread_cond_signal(&r->asked);
  (void)pthread_mutex_unlock(&r->mutex);
  (void)pthread_join(r->thread, NULL);
  (void)pthread_cond_destroy(&r->asked);
  (void)pthread_cond_destroy(&r->answered);
  (void)pthread_mutex_destroy(&r->mutex);
}

void exec_dataset_end(exec_dataset *dataset) {
  if (dataset->reader.is_running) stop(&dataset->reader);
  for (int s = 0; s < EXEC_DATASET_SLOTS; s++) {
    free(dataset->slots[s].samples);
    free(dataset->slots[s].ids);
    free(dataset->slots[s].values);
  }
  free(dataset->planes);
}
