/* The files of a cache: what the encoders made of the samples, once, so that training does not run them.
 *
 * latents-HEIGHTxWIDTH.safetensors holds for each sample of that bucket (exec/order.h) the tensor "latents/FILE"
 * [channels, height / 8, width / 8], as diffusers lays latents out; text.safetensors holds for all samples "text/FILE"
 * [tokens, channels] and, where the model takes it, "pooled/FILE" [channels]. F32, F16, BF16 or F64. FILE is the name
 * in the manifest. __metadata__ has the fingerprint: what the file is, of which manifest, and what made it. doc/data.md
 * has the keys.
 */
#ifndef DP_EXEC_CACHE_H
#define DP_EXEC_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/safetensors.h"
#include "base/status.h"
#include "exec/dataset.h"
#include "exec/encoders.h"
#include "exec/manifest.h"

/* "FOLDER/latents-64x96.safetensors", height first; "FOLDER/text.safetensors"; arena-owned, NULL: no memory. */
const char *exec_cache_latents_path(dp_arena *arena, const char *folder, int64_t height, int64_t width);
const char *exec_cache_text_path(dp_arena *arena, const char *folder);

/* ---- writing, with the toy encoders ---- */

typedef struct exec_cache_latents {
  const exec_image_encoder *encoder;
  int64_t height, width;  /* pixels, multiples of EXEC_LATENT_PIXELS */
  const int64_t *samples; /* of the manifest */
  size_t sample_count;
} exec_cache_latents;

typedef struct exec_cache_text {
  const exec_text_encoder *encoder;
  int64_t tokens, channels, pooled_channels; /* tokens >= 1, channels >= 1; pooled_channels 0: none */
} exec_cache_text;

/* Told how many samples of the file are done; may be NULL. */
typedef void (*exec_cache_progress)(void *data, size_t done);

/* Each writes its file into the manifest's folder, for any model; beside, then renamed. DP_BAD_INPUT: an image is not
 * what the manifest says. `bytes` (may be NULL) gets the size of the file. */
dp_status exec_cache_write_latents(const exec_manifest *manifest, const exec_cache_latents *what,
                                   exec_cache_progress progress, void *data, uint64_t *bytes, dp_error *error);
dp_status exec_cache_write_text(const exec_manifest *manifest, const exec_cache_text *what,
                                exec_cache_progress progress, void *data, uint64_t *bytes, dp_error *error);

/* ---- reading ---- */

/* What a file is held to: what the run wants and, where the run does not care, what the files before say. What is
 * unknown in both is not looked at. */
typedef struct exec_cache_wanted {
  exec_fingerprint run, others;
  uint32_t manifest;
  bool trust; /* nothing is looked at */
} exec_cache_wanted;

/* Opens a file and holds its metadata to what is wanted: DP_BAD_INPUT with one line that says what differs. `found`
 * gets what the file says of itself; its strings are the file's. */
dp_status exec_cache_open_latents(const char *path, int64_t height, int64_t width, const exec_cache_wanted *wanted,
                                  dp_safetensors *file, exec_fingerprint *found, dp_error *error);
dp_status exec_cache_open_text(const char *path, const exec_cache_wanted *wanted, dp_safetensors *file,
                               exec_fingerprint *found, dp_error *error);
/* The tensor "KIND/NAME" of this shape. DP_BAD_INPUT when it is not there, has another shape, or is no floating point:
 * then training could not go on, so that trust is of no use. */
dp_status exec_cache_find(const dp_safetensors *file, const char *kind, const char *name, int rank, const int64_t *dims,
                          const dp_safetensor **tensor, dp_error *error);

#endif
