/* A set of samples for training: cached latents and text embeddings, in an order that a seed decides.
 *
 * What is read is a folder as `diffpipe data` or scripts/cache_with_diffusers.py make it (doc/data.md): manifest.json,
 * latents-HEIGHTxWIDTH.safetensors of each bucket, text.safetensors. A cache that was made of other samples or in
 * another way than the run wants is refused with one line that says what differs; `trust_cache` lets everything pass
 * but shapes. The images themselves are not needed; those that are there and younger than the manifest are looked at,
 * so that a changed one is noticed.
 *
 * The order. A sample is in the bucket whose aspect ratio is nearest its own, and a batch has samples of one bucket.
 * An epoch has ceil(samples / global_batch) batches of each bucket. Shuffled, the samples of each bucket and then the
 * batches of all buckets are permuted anew for each epoch, by counters alone: the batch of a step is a function of
 * (the data set, global_batch, seed, step), and a run resumes in the middle of an epoch with the same samples. The last
 * batch of a bucket is filled up from the beginning of the bucket's order in this epoch, as often as needed: each
 * sample comes at least once an epoch, and in all k or k + 1 times where k = batches * global_batch / samples of the
 * bucket, rounded down: 1 or 2, unless the bucket is smaller than a batch.
 */
#ifndef DP_EXEC_DATASET_H
#define DP_EXEC_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
  EXEC_LATENT_PIXELS = 8 /* pixels a latent stands for, in height and in width */
};

/* What a cache was made with, or has to have been made with. Strings NULL or "", and a scaling factor of 0 (then the
 * shift is not looked at either): unknown, or anything will do. */
typedef struct exec_fingerprint {
  const char *model;        /* class of the model that it is for: "UNet2DConditionModel" */
  const char *encoder;      /* of the images: "average-8x8", "stabilityai/sd-vae-ft-mse" */
  const char *text_encoder; /* "hashed-words", "openai/clip-vit-large-patch14" */
  double scaling_factor;    /* latents are (what the encoder gave - shift_factor) * scaling_factor */
  double shift_factor;
} exec_fingerprint;

struct exec_batch;

typedef struct exec_dataset_options {
  const char *path;            /* the data set's folder, or its manifest; the cache is beside it */
  const int64_t (*buckets)[2]; /* height, width in pixels, multiples of EXEC_LATENT_PIXELS, each once */
  size_t bucket_count;         /* >= 1 */
  int64_t latent_channels;     /* of the model */
  int64_t text_tokens;         /* 0: the model takes no text */
  int64_t text_channels;
  int64_t pooled_channels; /* 0: the model takes no pooled text */
  exec_fingerprint wanted; /* zero: anything will do, as long as all files of the cache agree */
  int64_t global_batch;    /* >= 1 */
  /* Which of a batch's samples this process reads, [first_sample, first_sample + sample_count); of the others only id,
   * name and sizes are there. sample_count 0: all. */
  int64_t first_sample, sample_count;
  uint64_t seed;
  bool shuffle;
  bool trust_cache;
  bool prefetch; /* the batch of the next step is read by a thread while this one is used */
  /* What a step makes of the latents of a sample that was read, by whoever reads it: as many values each. NULL: nothing.
   * prepare_data stays the caller's, in use until the data set is freed. */
  void (*prepare)(const void *prepare_data, const struct exec_batch *batch, int64_t sample, float *given, float *wanted);
  const void *prepare_data;
} exec_dataset_options;

/* A sample of a batch. Arrays are fp32 and finite. */
typedef struct exec_sample_view {
  const float *latents;                    /* [height, width, channels] of the batch: channels last; scaled */
  const float *given, *wanted;             /* what the options' prepare made of them; NULL: there is none */
  const float *text;                       /* [text_tokens, text_channels]; NULL: the model takes none */
  const float *pooled;                     /* [pooled_channels]; NULL: the model takes none */
  int64_t id;                              /* place in the manifest: the same for every seed, epoch and bucket */
  const char *name;                        /* the file, as in the manifest */
  int64_t original_height, original_width; /* of the image, in pixels */
  int64_t crop_top, crop_left;             /* cut off after it was scaled to cover the bucket, in pixels (for SDXL) */
} exec_sample_view;

typedef struct exec_batch {
  int64_t step, epoch;
  int bucket;                      /* index into the options' buckets */
  int64_t height, width, channels; /* of the latents */
  const exec_sample_view *samples; /* [global_batch] */
} exec_batch;

typedef struct exec_dataset exec_dataset;

/* Opens manifest and cache and holds every sample's shapes to the options before the first step. Options and their
 * strings may go after the call. DP_BAD_INPUT for a data set or cache that is missing, wrong, stale or foreign. */
dp_status exec_dataset_open(const exec_dataset_options *options, exec_dataset **dataset, dp_error *error);

/* The batch of a step, from 0. Valid until the next call but one. One thread at a time may call it. Errors that the
 * prefetching thread met come from the call for the step whose batch it read: DP_BAD_INPUT for values that are not
 * finite, DP_IO_FAILED where the file cannot be read. */
dp_status exec_dataset_batch(exec_dataset *dataset, int64_t step, const exec_batch **batch, dp_error *error);

int64_t exec_dataset_count(const exec_dataset *dataset); /* samples */
int64_t exec_dataset_batches_per_epoch(const exec_dataset *dataset);
int64_t exec_dataset_bucket_count_of(const exec_dataset *dataset, int bucket); /* samples of a bucket, may be 0 */
/* Of samples, cache and order: 16 hexadecimal digits. A run that resumes with another one sees other batches. */
const char *exec_dataset_identity(const exec_dataset *dataset);
/* What the cache says of itself; strings are the data set's. */
const exec_fingerprint *exec_dataset_fingerprint(const exec_dataset *dataset);

void exec_dataset_free(exec_dataset *dataset); /* NULL is fine; stops the thread */

#endif
